"""Sums of many arrays, and the sums of an expansion's terms by source."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.walk import Mark

__all__ = ["PairwiseSum", "by_source"]

Array = npt.NDArray[Any]


class PairwiseSum:
    """A running sum of arrays, added in pairs like a binary tree, so that rounding grows with log2 only."""

    def __init__(self) -> None:
        self._levels: list[Array | None] = []
        self.count = 0

    def add(self, array: Array) -> None:
        """Take up one more array."""
        self.count += 1
        level = 0
        while level < len(self._levels) and self._levels[level] is not None:
            array = self._levels[level] + array
            self._levels[level] = None
            level += 1
        if level == len(self._levels):
            self._levels.append(None)
        self._levels[level] = array

    @property
    def value(self) -> Array:
        """The sum so far."""
        left = [a for a in self._levels if a is not None]
        total = left[0]
        for a in left[1:]:
            total = a + total
        return total


def by_source(values: Any) -> dict[Any, Array]:
    """The sums of :class:`~symcircuits.evaluation.Values` by source, each side walked once for each of its sources."""
    expansion = values.expansion
    sides = [_side_by_source(values, i) for i in range(len(expansion.sides))]
    sums: dict[Any, PairwiseSum] = {}
    for names in product(*sides):
        for marks in product(*(side[name] for side, name in zip(sides, names, strict=True))):
            if expansion.accepts(marks):
                parts = [side[name][mark] for side, name, mark in zip(sides, names, marks, strict=True)]
                value = parts[0] if len(parts) == 1 else values.met(*parts)
                total = sums.setdefault(names[0] if len(names) == 1 else names, PairwiseSum())
                total.add(np.broadcast_to(value, values._batch + value.shape[-2:]))
    return {key: total.value for key, total in sums.items()}


def _side_by_source(values: Any, side: int) -> dict[str, dict[Mark, Any]]:
    """The sums of the paths of a side from each source, by mark."""
    found = {}
    for name in dict.fromkeys(s.name for s in values.expansion._side_sources(side)):
        marked, bit = values.expansion._marked_by_source(name, side)
        sums = values.side(marked.sides[side])
        found[name] = {Mark(m.order, m.bits ^ bit): v for m, v in sums.items() if m.bits & bit}
    return found
