"""Sizes of all terms, and samples of them, as text, tables and plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symcircuits.core.budgets import told
from symcircuits.core.text import amount, argument
from symcircuits.render.tables import Titled, measured, number
from symcircuits.values.together import are_apart

if TYPE_CHECKING:
    from symcircuits.core.expansion import Expansion, Term
    from symcircuits.search.sample import Sample
    from symcircuits.values.measure import Measure
    from symcircuits.values.summary import Sum, Summary

__all__ = [
    "depends", "finite", "measured_terms", "sample_json", "sample_line", "sample_parts", "summary_json",
    "summary_parts",
]  # fmt: skip

_DRAWN = {"uniform": "all equally likely", "bound": "large ones more likely, according to bounds"}


def depends(expansion: Expansion, measure: Measure, together: bool = False) -> list[str]:
    """Under which reparameterisations of the model the ranking stays the same, and what it depends on."""
    target, kind, arch = expansion.target.partition(":")[0], measure.kind, expansion.architecture
    apart, bases = are_apart(expansion) and not together, ["other bases inside heads"]
    if not arch.norm:
        bases.append("rotations of the stream" if target == "stream" else "other bases of the stream")
    of = ["the basis of the stream"] if target == "stream" else []
    of += ["a vector added to every row of W_U"] if target == "logits" and kind in ("norm", "logit") else []
    of += ["the split between token and position embedding"] if apart else []
    of += ["parts that are the same for all keys of a query"] if target == "scores" and arch.softmax else []
    said = f"the ranking is the same under {' and '.join(bases)}"
    if not of:
        return [said]
    other = ""
    if target == "logits":
        other = "the ranking by 'centred logit' or 'logit difference' does not"
        other = f"the ranking of largest without {argument('by')} does not" if apart else other
    said += f"; it depends on {' and '.join(of)}, which does not affect probabilities"
    return [said + (f": {other}" if other else "")]


def sample_line(found: Sample) -> str:
    """What a sample says, on one line."""
    known = len(found.terms) or not found.count
    sum_of = f"the sum of all sizes is {measured(found.estimate, found.error)}" if known else "nothing is known"
    return (
        f"<Sample of {amount(len(found.terms), 'draw')} of {amount(found.count, 'term')} of {found.expansion.target}, "
        f"by {found.measure}: {sum_of}>"
    )


def sample_parts(found: Sample, top: int = 10) -> list[Titled]:
    """The estimate in words, and the largest terms that were drawn."""
    count, drawn = amount(found.count, "term"), len(found.terms)
    head = f"The sum of the sizes of all {count} of {found.expansion.target}, by {found.measure}"
    said = [f"{measured(found.estimate, found.error)} (one standard error)" if drawn else "0"]
    if drawn == 1:
        said = [f"{number(found.estimate)}, of unknown error: there is one draw"]
    if not drawn and found.count:
        said = ["nothing was drawn, so nothing is known"]
    if found.bound < float("inf"):
        said.append(f"proved: it is at most {number(found.bound, 6)}")
    said.append(f"{amount(drawn, 'draw')}, {_DRAWN[found.weights]} (seed {found.seed})")
    if found.reached:
        said.append(f"{told(found.reached)} reached: no more were drawn")
    if found.weights == "uniform" and drawn:
        said.append("if few terms make up most of the sum, such draws may miss them, and the error is then too small")
    parts = [Titled(head, points=[f"  - {line}" for line in said])]
    rows = [
        [number(size), str(times), number(chance, 2), term.composition, term.label]
        for term, size, chance, times in _drawn(found)[:top]
    ]
    if rows:
        parts.append(
            Titled("The largest terms drawn", ["size", "times", "chance", "composition", "path"], rows, [0, 1, 2])
        )
    return parts


def _drawn(found: Sample) -> list[tuple[Term, float, float, int]]:
    """The terms that were drawn, each once, with size, chance and how often, the largest first."""
    seen: dict[Any, list[Any]] = {}
    for term, size, chance in zip(found.terms, found.sizes.tolist(), found.chances.tolist(), strict=True):
        seen.setdefault(term.paths, [term, size, chance, 0])[3] += 1
    return sorted(((t, s, c, n) for t, s, c, n in seen.values()), key=lambda one: -one[1])


def sample_json(found: Sample, top: int = 10) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.sample/1",
        **measured_terms(found.expansion, found.measure),
        "weights": found.weights,
        "seed": found.seed,
        "draws": len(found.terms),
        "estimate": found.estimate if found.terms or not found.count else None,
        "error": finite(found.error),
        "bound": finite(found.bound),
        "reached": found.reached or None,
        "terms": [{**_named(t), "size": s, "chance": c, "times": n} for t, s, c, n in _drawn(found)[:top]],
    }


def summary_parts(found: Summary) -> list[Titled]:
    """What was looked at, sums by order and type, and the largest."""
    count, looked = found.expansion.count, found.total.count
    head = f"The sizes of the terms of {found.expansion.target}, by {found.measure}"
    which = "all " if looked == count else ""
    said = [f"{which}{amount(looked, 'term')} examined one by one"]
    if 0 < looked < count:
        said[0] += f": numbers {found.start:,} to {found.stop - 1:,}, of {count:,}"
    if found.reached:
        said.append(f"{told(found.reached)} reached; {argument('start')} {found.stop} continues from there")
    said += depends(found.expansion, found.measure) if found.largest else []
    parts = [Titled(head, points=[f"  - {line}" for line in said])]
    if looked:
        signed = found.measure.signed
        rows = [_row("all", found.total, signed), *_rows("order", found.by_order(), signed)]
        rows += _rows("composition", found.by_composition(), signed)
        header = ["", "terms", "sum", *(["sum of |sizes|"] if signed else [])]
        parts.append(Titled("Totals", header, rows, range(1, len(header))))
    if found.largest:
        name = "value" if found.measure.signed else "norm"
        shown = [
            [number(size), f"{i:,}", t.composition, t.label]
            for (i, size), (t, _) in zip(found.largest, found.terms, strict=True)
        ]
        parts.append(Titled("The largest", [name, "number", "composition", "path"], shown, [0, 1]))
    return parts


def _rows(kind: str, sums: Mapping[Any, Sum], signed: bool) -> list[list[str]]:
    return [_row(f"{kind} {key}", one, signed) for key, one in sums.items()]


def _row(name: str, one: Sum, signed: bool) -> list[str]:
    return [name, f"{one.count:,}", number(one.total), *([number(one.absolute)] if signed else [])]


def summary_json(found: Summary) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.summary/1",
        **measured_terms(found.expansion, found.measure),
        "start": found.start,
        "stop": found.stop,
        "reached": found.reached or None,
        "total": _sum(found.total),
        "by_order": {str(k): _sum(one) for k, one in found.by_order().items()},
        "by_composition": {k: _sum(one) for k, one in found.by_composition().items()},
        "terms": [
            {"number": i, **_named(t), "size": size}
            for (i, size), (t, _) in zip(found.largest, found.terms, strict=True)
        ],
    }


def measured_terms(expansion: Expansion, measure: Measure) -> dict[str, Any]:
    """Which terms were measured, and how, as plain data."""
    return {
        "architecture": str(expansion.architecture), "of": expansion.target,
        "selection": [str(c) for c in expansion.clauses], "count": expansion.count,
        "measure": {name: getattr(measure, name) for name in ("kind", "row", "position", "key", "token", "against")},
    }  # fmt: skip


def _named(term: Term) -> dict[str, Any]:
    return {"label": term.label, "order": term.order, "composition": term.composition, "text": term.text}


def _sum(one: Sum) -> dict[str, Any]:
    return {"count": one.count, "total": one.total, "absolute": one.absolute}


def finite(number: float) -> float | None:
    """A number, or None where JSON has none for it."""
    return number if abs(number) < float("inf") else None
