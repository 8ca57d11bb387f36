"""What an explanation found, in sentences made from its numbers, each with its evidence and its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.explanation.removals import responding
from symcircuits.render.explained import against_name, logit_name
from symcircuits.render.figures import row_of, token_labels
from symcircuits.render.tables import number, signed

if TYPE_CHECKING:
    from symcircuits.explanation.explain import Explanation
    from symcircuits.explanation.removals import HeadChange

__all__ = ["Finding", "findings_of"]

_NAMED = 3  # terms and heads that a sentence names


class Finding(NamedTuple):
    """A sentence, the section with its evidence, and its limits."""

    said: str
    evidence: str
    unless: str


def findings_of(found: Explanation, changes: Callable[[], Mapping[str, HeadChange]]) -> list[Finding]:
    """Up to five: the largest terms, sums by order, where their head looks and why, the effect of a removal.

    ``changes``: for each head, the effect of removing it on the chosen number.
    """
    makers: Sequence[Callable[[], Iterator[Finding]]] = (
        lambda: _terms(found), lambda: _orders(found), lambda: _look(found), lambda: _removal(found, changes()),
    )  # fmt: skip
    return [one for make in makers for one in make()]


def _whole(found: Explanation) -> float | None:
    """The number that the ranked contributions add up to; None where terms have sizes alone."""
    named = {"centred": found.centred, "difference": found.difference, "contribution": found.value}
    return named.get(found.sort)


def _name(found: Explanation) -> str:
    """What the number is of."""
    if found.measure.against is not None:
        return f"difference between the {logit_name(found)} and {against_name(found)}"
    return f"value of {logit_name(found)}" if found.readout else logit_name(found)


def _terms(found: Explanation) -> Iterator[Finding]:
    """The number, and the largest terms of either sign that it is made of, where terms are ranked by what adds up."""
    number_itself = found.value if found.measure.against is None else found.difference
    if found.measure.token is None or number_itself is None:
        return
    said, whole = f"The {_name(found)} is {number(number_itself)}", _whole(found)
    if found.sort == "centred" and whole is not None:
        said += f", {number(abs(whole))} {'below' if whole < 0 else 'above'} the mean of all outputs"
    sizes = [(row, float(getattr(row, found.sort))) for row in found.rows] if whole is not None else []
    shown = [(row, size) for row, size in sizes if size][:_NAMED]
    if shown and whole is not None:
        rest, left = whole - sum(size for _, size in shown), found.expansion.count
        left -= sum(len(row.terms) for row, _ in shown)
        said += f". The largest terms: {', '.join(f'{row.label} ({signed(size)})' for row, size in shown)}"
        verb = "term adds" if left == 1 else f"{left:,} terms together add"
        said += f"; the other {verb} {signed(rest)}" if left else "; there are no others"
    yield Finding(f"{said}.", "terms", "this applies to this prompt, with its patterns held fixed")


def _orders(found: Explanation) -> Iterator[Finding]:
    totals = found.totals.get("order", {})
    parts = [(order, float(total[found.sort])) for order, total in totals.items() if found.sort in total]
    if _whole(found) is None or len(parts) < 2 or not any(size for _, size in parts):
        return
    named = ", ".join(f"those through {amount(order, 'head')} {signed(size)}" for order, size in parts)
    said = f"All terms by the number of heads they go through: {named}."
    yield Finding(said, "totals", "an order contains terms of both signs: a small sum may consist of large terms")


def _look(found: Explanation) -> Iterator[Finding]:
    """Where the last head of the largest term looks, and by which composition; without softmax nothing is a weight."""
    by, sides = found.measure, [term.heads[0] for row in found.rows[:1] for term in row.terms[:1]]
    head = str(sides[0][-1]) if sides and sides[0] else None
    if head is None or head not in found.scores or by.position is None or not found.model.architecture.softmax:
        return
    weights = row_of(found, found.run.patterns[head])
    weights = weights.reshape(-1, *weights.shape[-2:])[0, by.position]
    if np.count_nonzero(weights) < 2:  # it has no choice
        return
    key = int(np.argmax(weights))
    said = f"From position {by.position}, {head} looks most at position {key} ({visible(token_labels(found)[key])})"
    said += f", with weight {weights[key]:.2f}."
    unless = "patterns are held fixed: the terms do not explain them"
    shares = {kind: share for kind, share in found.scores[head].shares.items() if share is not None}
    if shares and len([kind for kind, count in found.scores[head].counts.items() if count]) > 1:
        kind = max(shares, key=lambda k: shares[k])
        of = "terms without composition make" if kind == "none" else f"{kind}-composition makes"
        said += f" Of its margin over other keys, {of} {100 * shares[kind]:.0f} %"
        said += ", and other types reduce it." if shares[kind] > 1.005 else "."
        unless = "the margin is a mean over queries: at this one another type may be larger"
    yield Finding(said, "heads", unless)


def _removal(found: Explanation, changes: Mapping[str, HeadChange]) -> Iterator[Finding]:
    """The head whose removal changes the chosen number most, and the part of it with everything else held fixed."""
    at = -1 if found.measure.against is not None else 0
    wholes = {head: change.whole[at] for head, change in changes.items() if change.whole is not None}
    if found.measure.token is None or not wholes:
        return
    head = max(wholes, key=lambda h: abs(wholes[h]))
    value, whole = changes[head].value[at], wholes[head]
    if not whole:
        return
    what = "difference" if at else "readout" if found.readout else "logit itself"
    said = f"Of the heads that were removed one by one, {head} changes the {what} most: by {signed(whole)}; with "
    said += f"everything else held fixed, by {signed(value)}."
    responds = responding(found.model.architecture, head)
    if responds and abs(whole - value) > abs(value):
        said += f" The rest comes from what then changes: {', '.join(responds)}."
    yield Finding(said, "removals", "removed means that its output is zero; replacing it by a mean may change less")
