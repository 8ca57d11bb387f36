"""What removing heads, or parts of their scores, does to the chosen logit: for many of them at once.

The numbers are those of :func:`~symcircuits.explanation.ablation.remove_heads` and ``remove_scores`` at the chosen
entry. What changes with everything held fixed is linear in what a head writes, so one walk backwards gives it for all;
what is recomputed is computed for several at a time, from the edited layer on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion
from symcircuits.explanation.ablation import remove_heads, with_pattern
from symcircuits.model import Run, pattern_without, rerun_each
from symcircuits.values.evaluate import evaluate, reference
from symcircuits.values.measure import Measure
from symcircuits.values.read_back import ReadBack

__all__ = ["HeadChange", "PatternChange", "Removals", "responding"]

Array = npt.NDArray[Any]

Numbers = list[float]  # of the chosen logit, and of the difference where one was chosen; else the norm of the change


@dataclass(frozen=True, slots=True)
class HeadChange:
    """What changes when a head's output is removed: all held fixed, the rest, and both (None: not recomputed)."""

    value: Numbers
    pattern: Numbers | None = None
    whole: Numbers | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PatternChange:
    """What changes when a head has another ``pattern``: everything else held fixed, and recomputed."""

    pattern: Array
    frozen: Numbers
    recomputed: Numbers


def responding(arch: Architecture, head: str) -> list[str]:
    """What is computed after a head, and so may change when it is gone."""
    layer = arch.head(head).layer
    later = any(arch.heads[after] for after in range(layer + 1, arch.n_layers))
    after = [m for m in arch.mlps if m > layer or (m == layer and not arch.parallel)]
    return ["patterns of later heads"] * later + ["norms"] * bool(arch.norm) + ["MLPs"] * bool(after)


@final
class Removals:
    """Changes of one logit (or reading) of a run, chosen by a measure that is filled in.

    Where that names no token or direction, of the norm of the end.
    """

    def __init__(self, run: Run, expansion: Expansion, by: Measure) -> None:
        self.run, self.expansion, self.by = run, expansion, by
        if by.chosen:
            values = evaluate(expansion, run)
            self._before = self._row(reference(expansion.target, run)[..., by.position, :])
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
        for head, whole in zip(heads, self._changed([(head, None) for head in heads]), strict=True):
            value = self._frozen(head)
            found[head] = HeadChange(*map(self._numbers, (value, whole - value, whole)))
        return found

    def frozen(self, heads: Sequence[str]) -> dict[str, HeadChange]:
        """The same with everything held fixed, and nothing recomputed; of none where no entry is chosen.

        That is all that changes where nothing is computed after a head.
        """
        arch, found = self.run.model.architecture, dict[str, HeadChange]()
        for head in heads if self.by.chosen else ():
            value = self._numbers(self._frozen(head))
            last = arch.split is None and not responding(arch, head)
            found[head] = HeadChange(value, [0.0] * len(value), value) if last else HeadChange(value)
        return found

    def _frozen(self, head: str) -> Array:
        return np.asarray(-self._back.of(head, self.run.results[head]))

    def scores(self, parts: Mapping[str, Mapping[str, Array]]) -> dict[str, dict[str, PatternChange]]:
        """For each part that is taken from a head's scores: by head, then by the part's name, as they are given."""
        patterns = {
            head: {name: pattern_without(self.run, head, part) for name, part in of.items()}
            for head, of in parts.items()
        }
        if not self.by.chosen:
            return {head: {name: self._norms(head, new) for name, new in of.items()} for head, of in patterns.items()}
        edits = [(head, new) for head, of in patterns.items() for new in of.values()]
        changed = iter(self._changed(edits))
        found: dict[str, dict[str, PatternChange]] = {}
        for head, of in patterns.items():
            if not of:
                found[head] = {}
                continue
            frozen = self._back.of_pattern(head, np.stack([*of.values()]) - self.run.patterns[head])
            found[head] = {
                name: PatternChange(new, self._numbers(old), self._numbers(next(changed)))
                for (name, new), old in zip(of.items(), frozen, strict=True)
            }
        return found

    def _norms(self, head: str, pattern: Array) -> PatternChange:
        """Of the end as a whole, where no entry of it is chosen."""
        two = with_pattern(self.run, self.expansion, head, pattern)
        return PatternChange(pattern, *([frobenius(part)] for part in two))

    def _changed(self, edits: Sequence[tuple[str, Array | None]]) -> Array:
        """The changes of the chosen entries, ``[edits, chosen]``."""
        assert self.by.position is not None
        return self._row(rerun_each(self.run, edits, self.expansion.target, self.by.position)) - self._before

    def _row(self, ends: Array) -> Array:
        """The chosen entries of rows ``[..., width]`` at the position, with the axes in front of those of the run."""
        rows = ends if self.by.row is None else ends[..., self.by.row, :]
        return np.asarray(rows[..., self.by.chosen], np.float64)

    def _numbers(self, entries: Array) -> Numbers:
        first, *others = map(float, entries)
        return [first, *(first - other for other in others)]
