"""A number for every term: one row for each kind of measure, and blocks of numbers for a range of terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from symcircuits.core.text import shown, whole
from symcircuits.tables.blocks import range_of
from symcircuits.values.blocks import BLOCK, Numbers, in_blocks
from symcircuits.values.engine import AtOnce, Engine, Ranges, Span
from symcircuits.values.entries import contributions, entries
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import Measure, norm
from symcircuits.values.norms import norms
from symcircuits.values.tensor_values import TensorValues
from symcircuits.values.unembedding import with_mean

__all__ = ["MEASURES", "Measuring", "Reduction", "measure"]


class Reduction(NamedTuple):
    """How a measure is computed, with any engine: its name in messages, its function, ``wide`` in float64."""

    what: str
    made: Callable[[Any, Measure], Ranges]
    wide: bool = False


MEASURES: Final = {
    "norm": Reduction("the norm", norms, True),
    "masked norm": Reduction("the norm", norms, True),
    "logit": Reduction("the contribution", contributions),
    "logit difference": Reduction("the contribution", contributions),
    "centred logit": Reduction("the contribution", contributions),
    "direction": Reduction("the contribution", contributions),
    "direction difference": Reduction("the contribution", contributions),
    "score entry": Reduction("the score", entries),
}


_NORM: Final = norm()


class Measuring:
    """Terms measured range after range: results from weights and key paths are computed once."""

    def __init__(self, values: Engine, by: Measure) -> None:
        if by.kind == "centred logit":
            if isinstance(values, TensorValues):
                raise ValueError(
                    "the mean of all logits is not available for arrays of other libraries: give a run, or a difference"
                )
            values, by = with_mean(values, by)  # type: ignore[arg-type]
        self.values, self.by, self.kind = values, by, MEASURES[by.kind]
        with values.calm():
            self._made = self.kind.made(values, by)

    def blocks(
        self, size: int, terms: range, seen: Callable[[Iterator[Any]], Iterator[Any]] | None = None
    ) -> Iterator[Numbers]:
        """The numbers of a range in blocks of ``size``; ``seen`` is called with all pieces they come from."""
        if seen is None and isinstance(self._made, AtOnce):
            yield from self._at_once(self._made.numbers, size, terms)
            return
        span = Span(terms.start)
        pieces = self.values.quiet(self._made(terms, span))
        pieces = pieces if seen is None else seen(pieces)
        for block in in_blocks(self.values, self.kind.what, pieces, size, terms, span, self.kind.wide):
            yield block if self.by.row is None else Numbers(block.start, block.values[:, self.by.row])

    def _at_once(self, numbers: Any, size: int, terms: range) -> Iterator[Numbers]:
        """The same of the numbers of all terms of a run, ``[terms, batch]``."""
        for start in range(terms.start, terms.stop, size):
            block = numbers[start : min(start + size, terms.stop)]
            self.values.look(self.kind.what, block, start)
            found = block.reshape(len(block), *self.values.batch)
            yield Numbers(start, found if self.by.row is None else found[:, self.by.row])


def measure(
    values: Values | TensorValues, by: Measure | None = None, *, size: int = BLOCK, start: int = 0,
    stop: int | None = None,
) -> Iterator[Numbers]:  # fmt: skip
    """A number for every term; see :meth:`symcircuits.values.sums.Sums.measure`."""
    by = _NORM if by is None else by
    if not isinstance(by, Measure):
        raise TypeError(f"by must be a measure (sc.norm(), sc.logit(...), sc.score_entry(...)), not {shown(by)}")
    run: Any = values.tensors if isinstance(values, TensorValues) else values.run
    found = by.on(values.expansion, run)
    size, terms = whole("size", size, 1), range_of(values.expansion, start, stop)
    return _measured(values, found, size, terms)


def _measured(values: Engine, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    if terms:
        yield from Measuring(values, by).blocks(size, terms)
