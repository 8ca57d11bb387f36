"""The largest terms and their certificate, in words and as a table, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symcircuits.core.budgets import told
from symcircuits.core.text import amount
from symcircuits.render.measures import finite, measured_terms
from symcircuits.render.tables import Titled, measured, number

if TYPE_CHECKING:
    from symcircuits.search.largest import Largest

__all__ = ["certificate", "largest_json", "largest_parts"]

_LITTLE = 0.1  # a share of the sum of squares below which the largest terms say little


def certificate(found: Largest) -> list[str]:
    """What is proved, in sentences."""
    shown, count = len(found.terms), found.expansion.count
    work = f"{amount(found.expansions, 'partial path')} expanded, {amount(found.looked, 'term')} computed"
    if found.exact and count and not shown:
        said = ["nothing is proved: no term was asked for", work]
    elif found.exact and shown == count:
        said = [f"proved: these are all {amount(count, 'term')}" if count else "there are no terms", work]
    elif found.exact:
        said = [
            f"proved: {_these(shown)}; no other of the {amount(count, 'term')} is larger than "
            f"{number(found.bound)} (rounding can change {number(found.rounding)})",
            f"{work}, {found.excluded:,} excluded by bounds",
        ]
    elif found.bound == float("inf") and not shown:
        said = [
            f"nothing is proved: the search ended at {told(found.reached)}, when nothing had a bound yet",
            f"{work}, {found.open:,} left open",
        ]
    else:
        said = [
            f"not proved for all: the search ended at {told(found.reached)}. {_certain(found.certain, shown)}; "
            f"no term that is not listed is larger than {number(found.bound)} (rounding can change "
            f"{number(found.rounding)})",
            f"{work}, {found.excluded:,} excluded by bounds, {found.open:,} left open",
        ]
    return [*said, _sums(found), *_share(found), *_depends(found)]


def _certain(certain: int, shown: int) -> str:
    """How many of those listed are the largest of all."""
    if not certain:
        return "It is not known that a listed term is among the largest"
    if certain < shown:
        return "The first is the largest" if certain == 1 else f"The first {certain:,} of the {shown:,} are the largest"
    return "The one listed is the largest" if shown == 1 else "Those listed are the largest"


def _these(shown: int) -> str:
    return "this is the largest" if shown == 1 else f"these are the {shown:,} largest"


def _sums(found: Largest) -> str:
    total, listed, rest = (number(x) for x in (found.total, found.listed, found.remainder))
    if found.measure.signed:
        return f"sums: all terms {total}, listed {listed}, the others {rest}"
    return f"norms of sums: all terms {total}, listed {listed}, the others {rest}"


def _depends(found: Largest) -> list[str]:
    """On what the ranking depends that is a choice of how the model is written, and not of what it computes."""
    if found.expansion.target != "logits":
        return []
    names, kind = {source.name for source in found.expansion.sources}, found.measure.kind
    of = ["a vector that is added to every row of W_U"] if kind in ("norm", "logit") else []
    of += ["what of the embedding is moved to the positions"] if {"embed", "pos"} <= names else []
    other = (
        "; by 'centred logit' or 'logit difference' it does not" if kind in ("norm", "logit") and of[1:] == [] else ""
    )
    return [f"the order depends on {' and '.join(of)}, which changes no probability{other}"] if of else []


def _share(found: Largest) -> list[str]:
    share = found.share
    if found.squares.value != found.squares.value:
        return ["the sum of the squares of all terms was not estimated: time was up"]
    if not found.squares.value < float("inf"):
        return ["the sum of the squares of all terms leaves the range of float64"]
    if share is None:
        return []
    of = found.squares
    about = "" if of.exact else f", which is estimated, as {measured(of.value, of.error)}"
    said = f"the listed terms hold {100 * share:.3g}% of the sum of the squares of all{about}"
    if share < _LITTLE and found.terms:
        said += ": almost nothing. The weight is spread over very many terms, and the largest do not explain the whole"
    return [said]


def largest_parts(found: Largest) -> list[Titled]:
    """The certificate in words, and the terms as a table."""
    head = f"The largest terms of {found.expansion.target}, by {found.measure}"
    name = "value" if found.measure.signed else "norm"
    rows = [
        [str(i + 1), number(t.size if t.value is None else t.value), t.term.composition, t.term.label]
        for i, t in enumerate(found.terms)
    ]
    terms = [Titled("", ["", name, "type", "path"], rows, [0, 1])] if rows else []
    return [Titled(head, points=[f"  - {line}" for line in certificate(found)]), *terms]


def largest_json(found: Largest) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.largest/1",
        **measured_terms(found.expansion, found.measure),
        "exact": found.exact,
        "certain": found.certain,
        "reached": found.reached or None,
        "bound": finite(found.bound),
        "rounding": found.rounding,
        "expansions": found.expansions,
        "looked_at": found.looked,
        "excluded": found.excluded,
        "open": found.open,
        "total": found.total,
        "listed": found.listed,
        "remainder": found.remainder,
        "squares": {
            "value": finite(found.squares.value), "error": finite(found.squares.error), "exact": found.squares.exact,
        },
        "share": found.share,
        "terms": [
            {
                "label": t.term.label, "order": t.term.order, "composition": t.term.composition, "size": t.size,
                "value": t.value, "text": t.term.text,
            }
            for t in found.terms
        ],
    }  # fmt: skip
