"""Sizes of terms and of their sums: the largest terms, what is not shown as one sum, and the totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion, Term
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import Measure, norm
from symcircuits.values.summary import over_rows
from symcircuits.values.top import top as top_of
from symcircuits.work.progress import OnProgress

__all__ = ["SizedTerm", "by_degree", "columns", "largest", "remainder", "sized", "totals"]

Array = npt.NDArray[Any]
MAX_DEGREE = 64  # of a model that is a polynomial, up to which its sums by degree are made


@dataclass(frozen=True, slots=True)
class SizedTerm:
    """A term with its size: Frobenius norm over all tokens and outputs, contribution to the chosen logit.

    ``difference``: contribution to logit[token] - logit[against]; None where no second token was chosen.
    """

    term: Term
    norm: float
    contribution: float | None
    difference: float | None = None


def largest(values: Values, by: Measure, top: int, sort: str, progress: OnProgress = None) -> tuple[SizedTerm, ...]:
    """The largest terms, by one pass over the numbers of all; ties keep the order of the expansion.

    ``by``: the chosen logit, filled in; of the stream there is none, and terms have norms alone.
    """
    expansion, count = values.expansion, values.expansion.count
    measures = {"norm": norm()}
    if by.token is not None:
        measures["contribution"] = replace(by, kind=by.kind.partition(" ")[0], against=None)
    if by.against is not None:
        measures["difference"] = by
    found: list[tuple[int, dict[str, float]]] = []
    for blocks in zip(*(values.measure(one) for one in measures.values()), strict=True):
        start = blocks[0].start
        sizes = dict(zip(measures, (over_rows(block.values) for block in blocks), strict=True))
        best = top_of([(start, sizes[sort])], top)
        found += [(i, {name: float(numbers[i - start]) for name, numbers in sizes.items()}) for i, _ in best]
        found = sorted(found, key=lambda one: (-abs(one[1][sort]), one[0]))[:top]
        if progress:
            progress("terms", start + len(sizes["norm"]), count)
    return tuple(
        SizedTerm(expansion[i], one["norm"], one.get("contribution"), one.get("difference")) for i, one in found
    )


def remainder(values: Values, shown: Sequence[SizedTerm], by: Measure) -> dict[str, Any]:
    """What is not shown, as one sum: total minus the shown terms."""
    rest = np.array(values.total())
    for one in shown:
        rest -= values.value(one.term)
    count = values.expansion.count - len(shown)
    if not count:
        rest = np.zeros_like(rest)
    return {"count": count, **sized(rest, by)}


def sized(value: Array, by: Measure) -> dict[str, Any]:
    """Norm, contribution and, where two tokens were chosen, difference of a sum of terms."""
    contribution, difference = by.at(value)
    found = {"norm": frobenius(value), "contribution": contribution}
    return found if by.against is None else {**found, "difference": difference}


def totals(values: Values, by: Measure) -> dict[str, dict[Any, dict[str, Any]]]:
    """Size of the sum of the terms of each order and composition type.

    Of models that are polynomials, and to which nothing is attached, also by degree, patterns and MLPs multiplied out,
    up to a degree of ``MAX_DEGREE``.
    """
    e = values.expansion
    found = {
        "order": _sized_all(values.by_order(), e.counts_by_order(), by),
        "composition": _sized_all(values.by_composition(), e.counts_by_composition(), by),
    }
    degrees = by_degree(e, values.run, by)
    return found | {"degree": degrees} if degrees else found


def by_degree(expansion: Expansion, run: Run, by: Measure) -> dict[Any, dict[str, Any]]:
    """Sizes by degree, of a model that is a polynomial of degree at most ``MAX_DEGREE``; of another none.

    None either where something is attached to the model.
    """
    architecture = expansion.architecture
    if not architecture.polynomial or architecture.attachments:
        return {}
    terms = expansion.unfrozen()
    if terms.max_degree > MAX_DEGREE:
        return {}
    return _sized_all(evaluate(terms, run).by_degree(), terms.counts_by_degree(), by)


def _sized_all(sums: Mapping[Any, Array], counts: Mapping[Any, int], by: Measure) -> dict[Any, dict[str, Any]]:
    return {k: {"count": n, **sized(sums[k], by)} for k, n in counts.items()}


def columns(terms: Sequence[SizedTerm]) -> dict[str, list[Any]]:
    """Terms as columns of equal length: see :meth:`~symcircuits.explanation.explain.Explanation.columns`."""
    found: dict[str, list[Any]] = {
        "label": [s.term.label for s in terms],
        "order": [s.term.order for s in terms],
        "composition": [s.term.composition for s in terms],
        "source": [s.term.sources[0] for s in terms],
        "heads": [" ".join(map(str, s.term.heads[0])) for s in terms],
        "norm": [s.norm for s in terms],
        "contribution": [s.contribution for s in terms],
        "text": [s.term.text for s in terms],
    }
    if any(s.difference is not None for s in terms):
        found["difference"] = [s.difference for s in terms]
    return found
