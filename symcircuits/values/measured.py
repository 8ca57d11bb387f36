"""A number for every term: one row for each kind of measure, and blocks of numbers for a range of terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from symcircuits.core.text import shown, whole
from symcircuits.tables.blocks import range_of
from symcircuits.values.blocks import BLOCK, Numbers
from symcircuits.values.entries import contributions, entries
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import Measure, norm
from symcircuits.values.norms import norms
from symcircuits.values.tensor_reductions import contributions_in, entries_in, norms_in
from symcircuits.values.tensor_values import TensorValues

__all__ = ["MEASURES", "Reduction", "measure"]


class Reduction(NamedTuple):
    """How terms are measured on a run, and in arrays of other libraries: blocks of numbers of a range of terms."""

    on_run: Callable[[Values, Measure, int, range], Iterator[Numbers]]
    in_tensors: Callable[[TensorValues, Measure, int, range], Iterator[Numbers]]


MEASURES: Final = {
    "norm": Reduction(norms, norms_in),
    "masked norm": Reduction(norms, norms_in),
    "logit": Reduction(contributions, contributions_in),
    "logit difference": Reduction(contributions, contributions_in),
    "direction": Reduction(contributions, contributions_in),
    "direction difference": Reduction(contributions, contributions_in),
    "score entry": Reduction(entries, entries_in),
}


def measure(
    values: Values | TensorValues, by: Measure | None = None, *, size: int = BLOCK, start: int = 0,
    stop: int | None = None,
) -> Iterator[Numbers]:  # fmt: skip
    """A number for every term; see :meth:`symcircuits.values.sums.Sums.measure`."""
    by = norm() if by is None else by
    if not isinstance(by, Measure):
        raise TypeError(f"by is a measure (sc.norm(), sc.logit(...), sc.score_entry(...)), not {shown(by)}")
    run: Any = values.tensors if isinstance(values, TensorValues) else values.run
    found = by.on(values.expansion, run)
    size, terms = whole("size", size, 1), range_of(values.expansion, start, stop)
    kind = MEASURES[found.kind]
    if isinstance(values, TensorValues):
        blocks = kind.in_tensors(values, found, size, terms)
    else:
        blocks = kind.on_run(values, found, size, terms)
    return blocks if found.row is None else (Numbers(b.start, b.values[:, found.row]) for b in blocks)
