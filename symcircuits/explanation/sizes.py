"""Sizes of terms and of their sums: the largest terms, what is not shown as one sum, and the totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion, Term
from symcircuits.model import Run
from symcircuits.values.blocks import Numbers
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import Measure, norm
from symcircuits.values.summary import over_rows
from symcircuits.values.together import TOGETHER, OneOrTwo, are_apart
from symcircuits.values.top import top as top_of
from symcircuits.values.unembedding import compact
from symcircuits.work.progress import OnProgress

__all__ = ["SizedTerm", "Sizes", "by_degree", "columns", "largest", "sized"]

Array = npt.NDArray[Any]
MAX_DEGREE = 64  # of a model that is a polynomial, up to which its sums by degree are made


@dataclass(frozen=True, slots=True)
class SizedTerm(OneOrTwo):
    """A term with its size: Frobenius norm over all tokens and outputs, contribution to the chosen logit.

    ``difference``: contribution to logit[token] - logit[against]; None where no second token was chosen. ``centred``:
    the contribution less its mean over all outputs; None of a readout and of the stream. ``beside``: in a report, the
    term through the same heads from the position embedding; sizes are then those of the sum of both.
    """

    term: Term
    norm: float
    contribution: float | None
    difference: float | None = None
    centred: float | None = None
    beside: Term | None = None


def largest(
    values: Values, by: Measure, top: int, sort: str, progress: OnProgress = None, together: bool = False
) -> tuple[SizedTerm, ...]:
    """The largest terms, by one pass over the numbers of all; ties keep the order of the expansion. One or two a row.

    ``by``: the chosen logit, filled in; of the stream there is none, and terms have norms alone. ``sort``: the name of
    a number of :class:`SizedTerm`. ``together``: the terms through the same heads from token and position embedding
    count as one; of numbers that add up, and not of norms.
    """
    sizes, expansion = Sizes(values, by), values.expansion
    pairs = _Pairs(expansion) if together and are_apart(expansion) else None
    found: list[tuple[float, int, tuple[int, ...]]] = []
    done = 0
    for block in _numbers(values, by, sort):
        numbers = over_rows(block.values)
        places = np.arange(block.start, block.start + len(numbers))
        if pairs:
            alone = pairs.set_aside(block.start, numbers)
            numbers, places = numbers[alone], places[alone]
        found += [(-abs(number), int(places[i]), (int(places[i]),)) for i, number in top_of([(0, numbers)], top)]
        found = sorted(found)[:top]
        done += len(block.values)
        if progress:
            progress("terms", done, expansion.count)
    if pairs:
        numbers, two = pairs.summed()
        found += [
            (-abs(number), int(two[0][i]), tuple(int(t[i]) for t in two)) for i, number in top_of([(0, numbers)], top)
        ]
    return tuple(sizes.term(*(expansion[i] for i in terms)) for _, _, terms in sorted(found)[:top])


class _Pairs:
    """Terms through the same heads from token and position embedding; those of either come in the same order."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion = expansion
        names = [source.name for source in expansion.sources]
        self.codes = [names.index(name) for name in TOGETHER]
        self.places: list[list[Array]] = [[], []]
        self.numbers: list[list[Array]] = [[], []]

    def set_aside(self, start: int, numbers: Array) -> Array:
        """Keeps the numbers of these terms, from number ``start`` on; which of them are of other sources."""
        of = np.concatenate([b.sources[0] for b in self.expansion.blocks(start=start, stop=start + len(numbers))])
        for i, code in enumerate(self.codes):
            here = np.flatnonzero(of == code)
            self.places[i].append(start + here)
            self.numbers[i].append(numbers[here])
        return np.flatnonzero(~np.isin(of, self.codes))

    def summed(self) -> tuple[Array, list[Array]]:
        """The sum of each pair, and the numbers of its two terms."""
        first, second = (np.concatenate(found) for found in self.numbers)
        return first + second, [np.concatenate(found) for found in self.places]


def _numbers(values: Values, by: Measure, sort: str) -> Iterator[Numbers]:
    """What terms are ranked by."""
    if sort == "norm":
        return values.measure(norm())
    if sort == "difference":
        return values.measure(by)
    one = replace(by, kind=by.kind.partition(" ")[0], against=None)
    return values.measure(one if sort == "contribution" else replace(one, kind="centred logit"))


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
        same, entries, mean = self.small.read(value)
        if not self.by.chosen:
            return _sized(same, self.by, None, None, None)
        contribution, difference = self.by.of(entries)
        return _sized(same, self.by, contribution, difference, contribution - self.by.of(mean[..., [0, 0]])[0])

    def term(self, *terms: Term) -> SizedTerm:
        """One term with its sizes, or two that stand together."""
        found = self(sum(self.values.value(term) for term in terms))  # type: ignore[arg-type]
        return SizedTerm(terms[0], **found, beside=terms[1] if terms[1:] else None)

    def remainder(self, shown: Sequence[SizedTerm]) -> dict[str, Any]:
        """What is not shown, as one sum: total minus the shown terms."""
        rest = np.array(self.values.total())
        for term in (term for one in shown for term in one.terms):
            rest -= self.values.value(term)
        count = self.values.expansion.count - sum(len(one.terms) for one in shown)
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
    centred = None
    if by.kind.startswith("logit") and by.token is not None:
        row = value[by.position] if by.row is None else value[by.row, by.position]
        centred = float(row[by.token] - row.mean(dtype=np.float64))
    return _sized(value, by, *by.at(value), centred)


def _sized(
    value: Array, by: Measure, contribution: float | None, difference: float | None, centred: float | None
) -> dict[str, Any]:
    found = {"norm": frobenius(value), "contribution": contribution}
    found |= {} if centred is None else {"centred": centred}
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
    if any(s.centred is not None for s in terms):
        found["centred"] = [s.centred for s in terms]
    if any(s.difference is not None for s in terms):
        found["difference"] = [s.difference for s in terms]
    return found
