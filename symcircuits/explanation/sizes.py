"""Sizes of terms and of their sums: the largest terms, what is not shown as one sum, and the totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion, Term
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import Measure, norm
from symcircuits.values.summary import over_rows
from symcircuits.values.top import top as top_of
from symcircuits.values.unembedding import compact
from symcircuits.work.progress import OnProgress

__all__ = ["SizedTerm", "Sizes", "by_degree", "columns", "largest", "sized"]

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


@final
class Sizes:
    """Norm, contribution and, where two tokens were chosen, difference of sums of the terms of ``values``.

    Neither needs the vocabulary: where it is larger than the stream, ``values`` are those with a smaller unembedding.
    """

    def __init__(self, values: Values, by: Measure) -> None:
        self.by, self.small = by, compact(values, by.chosen)
        self.values = values if self.small is None else Values(values.expansion, values.run, self.small.matrices)

    def __call__(self, value: Array) -> dict[str, Any]:
        """The sizes of one of them."""
        if self.small is None:
            return sized(value, self.by)
        same, entries = self.small.read(value)
        contribution, difference = self.by.of(entries) if self.by.chosen else (None, None)
        return _sized(same, self.by, contribution, difference)

    def remainder(self, shown: Sequence[SizedTerm]) -> dict[str, Any]:
        """What is not shown, as one sum: total minus the shown terms."""
        rest = np.array(self.values.total())
        for one in shown:
            rest -= self.values.value(one.term)
        count = self.values.expansion.count - len(shown)
        if not count:
            rest = np.zeros_like(rest)
        return {"count": count, **self(rest)}

    def totals(self) -> dict[str, dict[Any, dict[str, Any]]]:
        """Size of the sum of the terms of each order and composition type.

        Of models that are polynomials, and to which nothing is attached, also by degree, patterns and MLPs multiplied
        out, up to a degree of ``MAX_DEGREE``.
        """
        e, orders, compositions = self.values.expansion, self.values.by_order(), self.values.by_composition()
        found: dict[str, dict[Any, dict[str, Any]]] = {
            "order": {k: {"count": n, **self(orders[k])} for k, n in e.counts_by_order().items()},
            "composition": {k: {"count": n, **self(compositions[k])} for k, n in e.counts_by_composition().items()},
        }
        degrees = by_degree(e, self.values.run, self.by)
        return found | {"degree": degrees} if degrees else found


def sized(value: Array, by: Measure) -> dict[str, Any]:
    """Norm, contribution and, where two tokens were chosen, difference of a sum of terms."""
    return _sized(value, by, *by.at(value))


def _sized(value: Array, by: Measure, contribution: float | None, difference: float | None) -> dict[str, Any]:
    found = {"norm": frobenius(value), "contribution": contribution}
    return found if by.against is None else {**found, "difference": difference}


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
    sums = evaluate(terms, run).by_degree()
    return {k: {"count": n, **sized(sums[k], by)} for k, n in terms.counts_by_degree().items()}


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
