"""What an explanation found, in sentences made from its numbers, each with its evidence and its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.explained import against_name, logit_name
from symcircuits.render.figures import row_of, token_labels
from symcircuits.render.tables import number

if TYPE_CHECKING:
    from symcircuits.explanation.explain import Explanation
    from symcircuits.explanation.removals import HeadChange

__all__ = ["Finding", "findings_of"]

_NAMED = 3  # terms and heads that a sentence names


class Finding(NamedTuple):
    """A sentence, the section that shows where it comes from, and what would make it another."""

    said: str
    evidence: str
    unless: str


def findings_of(found: Explanation, changes: Callable[[], Mapping[str, HeadChange]]) -> list[Finding]:
    """Up to five: the terms that make the number, by order, where their head looks and why, what a removal does.

    ``changes``: of each head, what removing it does to the chosen number.
    """
    makers: Sequence[Callable[[], Iterator[Finding]]] = (
        lambda: _terms(found), lambda: _orders(found), lambda: _look(found), lambda: _removal(found, changes()),
    )  # fmt: skip
    return [one for make in makers for one in make()]


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def _whole(found: Explanation) -> float | None:
    """The number that the ranked contributions add up to; None where terms have sizes alone."""
    named = {"centred": found.centred, "difference": found.difference, "contribution": found.value}
    return named.get(found.sort)


def _name(found: Explanation) -> str:
    """What that number is of."""
    if found.sort == "difference":
        return f"difference between the {logit_name(found)} and that of {against_name(found)}"
    return logit_name(found) if not found.readout else f"value of {logit_name(found)}"


def _terms(found: Explanation) -> Iterator[Finding]:
    whole = _whole(found)
    if whole is None or not found.rows:
        return
    sizes = [(row, float(getattr(row, found.sort))) for row in found.rows]
    same = [(row, size) for row, size in sizes if size * whole > 0][:_NAMED]
    if not same:
        return
    named = ", ".join(f"{row.label} ({_signed(size)})" for row, size in same)
    above = " above the mean of all outputs" if found.sort == "centred" else ""
    rest = whole - sum(size for _, size in same)
    left = found.expansion.count - sum(len(row.terms) for row, _ in same)
    said = f"The {_name(found)} is {number(whole)}{above}. What adds most to it: {named}"
    said += f"; the other {amount(left, 'term')} add {_signed(rest)}." if left else "; there is nothing else."
    yield Finding(said, "terms", "this is of this prompt, its patterns held fixed")


def _orders(found: Explanation) -> Iterator[Finding]:
    totals = found.totals.get("order", {})
    if _whole(found) is None or len(totals) < 2:
        return
    parts = [(order, float(total[found.sort])) for order, total in totals.items() if found.sort in total]
    named = ", ".join(f"those through {amount(order, 'head')} {_signed(size)}" for order, size in parts)
    if named:
        said = f"All terms by the number of heads they go through: {named}."
        yield Finding(said, "totals", "an order adds up terms of both signs: a small sum need not be of small terms")


def _look(found: Explanation) -> Iterator[Finding]:
    """Where the last head of the largest term looks, and by which composition."""
    by, sides = found.measure, [term.heads[0] for row in found.rows[:1] for term in row.terms[:1]]
    head = str(sides[0][-1]) if sides and sides[0] else None
    if head is None or head not in found.scores or by.position is None:
        return
    weights = row_of(found, found.run.patterns[head])
    weights = weights.reshape(-1, *weights.shape[-2:])[0, by.position]
    key = int(np.argmax(weights))
    label = visible(token_labels(found)[key])
    said = (
        f"From position {by.position}, {head} looks most at position {key} ({label}), with weight {weights[key]:.2f}."
    )
    shares = {kind: share for kind, share in found.scores[head].shares.items() if share is not None}
    if shares and len([kind for kind, count in found.scores[head].counts.items() if count]) > 1:
        kind = max(shares, key=lambda k: shares[k])
        of = "terms without composition" if kind == "none" else f"{kind}-composition"
        said += f" Of its margin over other keys, over all queries, {100 * shares[kind]:.0f} % is {of}."
    yield Finding(said, "heads", "the margin is a mean over queries: at one of them another type may be larger")


def _removal(found: Explanation, changes: Mapping[str, HeadChange]) -> Iterator[Finding]:
    """The head whose removal changes the chosen number most, and how much of that holds with all else fixed."""
    if found.measure.token is None or not changes:
        return
    at = -1 if found.measure.against is not None else 0
    head = max(changes, key=lambda h: abs(changes[h].whole[at]))
    value, whole = changes[head].value[at], changes[head].whole[at]
    what = "difference" if at else "readout" if found.readout else "logit"
    said = (
        f"Without {head} the {what} changes by {_signed(whole)}; with everything else held fixed, by {_signed(value)}."
    )
    if abs(whole - value) > abs(value):
        said += " The rest is what later heads do when they look elsewhere."
    yield Finding(said, "removals", "removed means that it writes nothing; replaced by a mean it may change less")
