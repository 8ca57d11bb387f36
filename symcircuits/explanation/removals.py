"""What removing heads, or parts of their scores, does to the chosen logit: for many of them at once.

The numbers are those of :func:`~symcircuits.explanation.ablation.remove_heads` and ``remove_scores`` at the chosen
entry. What changes with everything held fixed is linear in what a head writes, so one walk backwards gives it for all;
what is recomputed is computed for several at a time, from the edited layer on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion
from symcircuits.explanation.ablation import end_of, remove_heads, with_pattern
from symcircuits.model import Edited, Run, pattern_without, rerun_patterns, rerun_without
from symcircuits.values.evaluate import evaluate, reference
from symcircuits.values.measure import Measure
from symcircuits.values.read_back import ReadBack

__all__ = ["HeadChange", "PatternChange", "Removals"]

Array = npt.NDArray[Any]
T = TypeVar("T")
_AT_ONCE = 2**22  # numbers of the streams that are computed anew together

Numbers = list[float]  # of the chosen logit, and of the difference where one was chosen; else the norm of the change


@dataclass(frozen=True, slots=True)
class HeadChange:
    """What changes when a head's output is removed: everything held fixed, the rest, and both."""

    value: Numbers
    pattern: Numbers
    whole: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class PatternChange:
    """What changes when a head has another ``pattern``: everything else held fixed, and recomputed."""

    pattern: Array
    frozen: Numbers
    recomputed: Numbers


@final
class Removals:
    """Changes of one logit (or reading) of a run, chosen by a measure that is filled in.

    Where that names no token or direction, of the norm of the end.
    """

    def __init__(self, run: Run, expansion: Expansion, by: Measure) -> None:
        self.run, self.expansion, self.by = run, expansion, by
        self._end = reference(expansion.target, run)
        if by.chosen:
            values = evaluate(expansion, run)
            readers = np.zeros((len(by.chosen), *values.shape), run.dtype)
            for reader, token in zip(readers, by.chosen, strict=True):
                (reader if by.row is None else reader[by.row])[by.position, token] = 1
            self._back = ReadBack(values, readers)

    def heads(self, heads: Sequence[str]) -> dict[str, HeadChange]:
        """Of each head when its output is removed, ``heads`` in their order."""
        if not self.by.chosen:
            gone = {head: remove_heads(self.run, head, self.expansion.target) for head in heads}
            parts = {head: (g.value_part, g.pattern_part, g.change) for head, g in gone.items()}
            return {head: HeadChange(*([frobenius(part)] for part in three)) for head, three in parts.items()}
        found: dict[str, HeadChange] = {}
        for _, layer in groupby(heads, key=lambda h: self.run.model.architecture.head(h).layer):
            for some in self._batches([*layer]):
                changed = self._changed(rerun_without(self.run, some), len(some))
                for head, whole in zip(some, changed, strict=True):
                    value = -self._back.of(head, self.run.results[head])
                    found[head] = HeadChange(*map(self._numbers, (value, whole - value, whole)))
        return found

    def scores(self, head: str, parts: Mapping[str, Array]) -> dict[str, PatternChange]:
        """For each part that is taken from a head's scores, by its name."""
        found: dict[str, PatternChange] = {}
        for some in self._batches([*parts]):
            patterns = np.stack([pattern_without(self.run, head, parts[name]) for name in some])
            if not self.by.chosen:
                for name, pattern in zip(some, patterns, strict=True):
                    two = with_pattern(self.run, self.expansion, head, pattern)
                    found[name] = PatternChange(pattern, *([frobenius(part)] for part in two))
                continue
            frozen = self._back.of_pattern(head, patterns - self.run.patterns[head])
            changed = self._changed(rerun_patterns(self.run, head, patterns), len(some))
            for name, pattern, old, new in zip(some, patterns, frozen, changed, strict=True):
                found[name] = PatternChange(pattern, self._numbers(old), self._numbers(new))
        return found

    def _batches(self, edits: Sequence[T]) -> Iterator[Sequence[T]]:
        """As many at a time as are small enough."""
        most = max(1, _AT_ONCE // max(1, self.run.streams[0].size))
        return (edits[at : at + most] for at in range(0, len(edits), most))

    def _changed(self, edited: Edited, reruns: int) -> Array:
        """The changes of the chosen entries, ``[reruns, chosen]``."""
        end = np.broadcast_to(end_of(edited, self.expansion.target), (reruns, *self._end.shape))
        return self._entries(end) - self._entries(self._end)

    def _entries(self, end: Array) -> Array:
        """The chosen entries of ends ``[..., n, width]``, with the axes in front of those of the run."""
        rows = end[..., self.by.position, :] if self.by.row is None else end[..., self.by.row, self.by.position, :]
        return np.asarray(rows[..., self.by.chosen], np.float64)

    def _numbers(self, entries: Array) -> Numbers:
        first, *others = map(float, entries)
        return [first, *(first - other for other in others)]
