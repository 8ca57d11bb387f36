"""The largest terms and their certificate, in words and as a table, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symcircuits.core.budgets import told
from symcircuits.core.text import amount, argument
from symcircuits.render.measures import depends, finite, measured_terms
from symcircuits.render.tables import Titled, measured, number

if TYPE_CHECKING:
    from symcircuits.search.largest import Largest

__all__ = ["certificate", "largest_json", "largest_parts"]

_LITTLE = 0.1  # a share of the sum of squares below which the largest terms say little


def certificate(found: Largest) -> list[str]:
    """What is proved, in sentences."""
    shown, count, one = len(found.terms), found.ranked, "sum" if found.together else "term"
    work = f"{amount(found.expansions, 'partial path')} expanded, {amount(found.looked, one)} computed"
    if found.exact and count and not shown:
        said = ["nothing is proved: no terms were requested", work]
    elif found.exact and shown == count:
        said = [f"proved: these are all {amount(count, one)}" if count else "there are no terms", work]
    elif found.exact:
        said = [
            f"proved: {_these(shown)}; no other of the {amount(count, one)} is larger than "
            f"{number(found.bound)} (rounding can change this by {number(found.rounding)})",
            f"{work}, {found.excluded:,} excluded by bounds",
        ]
    elif found.bound == float("inf") and not shown:
        said = [
            f"nothing is proved: the search ended at {told(found.reached)}, before any bound was known",
            f"{work}, {found.open:,} left open",
        ]
    else:
        said = [
            f"not proved for all: the search ended at {told(found.reached)}. {_certain(found.certain, shown)}; "
            f"no unlisted term is larger than {number(found.bound)} (rounding can change "
            f"this by {number(found.rounding)})",
            f"{work}, {found.excluded:,} excluded by bounds, {found.open:,} left open",
        ]
    if found.together:
        said.append(
            f"terms from token and position embedding are ranked as one, so there are {amount(count, 'sum')} of "
            f"{amount(found.expansion.count, 'term')}; {argument('by')} ranks each term separately"
        )
    return [*said, _sums(found), *_share(found), *depends(found.expansion, found.measure, found.together)]


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


def _share(found: Largest) -> list[str]:
    share = found.share
    if found.squares.value != found.squares.value:
        return ["the sum of the squares of all terms was not estimated: out of time"]
    if not found.squares.value < float("inf"):
        return ["the sum of the squares of all terms overflows float64"]
    if share is None:
        return []
    of = found.squares
    about = "" if of.exact else f", which is estimated, as {measured(of.value, of.error)}"
    said = f"the listed terms account for {100 * share:.3g}% of the sum of the squares of all{about}"
    if share < _LITTLE and found.terms:
        said += ": almost nothing. The weight is spread over very many terms, and the largest do not explain the whole"
    return [said]


def largest_parts(found: Largest) -> list[Titled]:
    """The certificate in words, and the terms as a table."""
    head = f"The largest terms of {found.expansion.target}, by {found.measure}"
    name = "value" if found.measure.signed else "norm"
    rows = [
        [str(i + 1), number(t.size if t.value is None else t.value), t.term.composition, t.label]
        for i, t in enumerate(found.terms)
    ]
    terms = [Titled("", ["", name, "composition", "path"], rows, [0, 1])] if rows else []
    return [Titled(head, points=[f"  - {line}" for line in certificate(found)]), *terms]


def largest_json(found: Largest) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.largest/1",
        **measured_terms(found.expansion, found.measure),
        "together": found.together,
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
                "label": t.label, "order": t.term.order, "composition": t.term.composition, "size": t.size,
                "value": t.value, "text": t.text,
            }
            for t in found.terms
        ],
    }  # fmt: skip
