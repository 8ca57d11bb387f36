"""The largest pairs of paths: score terms, from the largest queries and keys of paths.

A score term is ``|<u, v>| <= |u| |v|`` for one entry, with u the query of one path and v the key of another, and
``|Q K^T| <= |Q| |K|`` for Frobenius norms, with or without mask. So paths are taken from each side, the largest first,
and each new one is paired with all known ones of the other side, until no pair with a path not yet taken can be as
large as those wanted. Source: own derivation (Cauchy and Schwarz).
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.search.best_first import Found, Search, Tree
from symcircuits.work.progress import OnProgress

__all__ = ["Pairs", "pair_sizes"]

Array = npt.NDArray[Any]


def pair_sizes(by: str, run: Run, expansion: Expansion, one: Array, many: Array, side: int) -> Array:
    """The sizes (signed, for an entry) of one path's value paired with those of several of the other side.

    ``one [batch, r, m]``, ``many [paths, batch, r, m]``; ``side`` of the one: 0 for the query.
    """
    if by == "score entry":
        return np.asarray(np.tensordot(many, one, ((1, 2, 3), (0, 1, 2))))
    if by == "norm":  # |Q K^T|^2 = <Q^T Q, K^T K>
        gram, grams = one.swapaxes(-1, -2) @ one, many.swapaxes(-1, -2) @ many
        return np.sqrt(np.maximum(np.tensordot(grams, gram, ((1, 2, 3), (0, 1, 2))), 0))
    assert expansion.readout.head is not None
    mask = run.masks[f"L{expansion.readout.head.layer}"]
    product = one @ many.swapaxes(-1, -2) if side == 0 else many @ one.swapaxes(-1, -2)
    return np.asarray(np.sqrt(((product * mask) ** 2).sum((1, 2, 3))))


def _times(a: float, b: float) -> float:
    return a * b if a and b else 0.0  # a bound not known yet is infinite, and 0 times that is 0


class _Side:
    """The paths taken from one side, the largest first."""

    def __init__(self, search: Search, turns: Array | None, paths: Any) -> None:
        self.search, self.turns, self.paths = search, turns, paths
        self.found: list[Found] = []
        self.values: list[Array] = []
        self.marks: list[Mark] = []
        self.sizes: list[float] = []
        self.stretch = 1.0 if turns is None else float(np.linalg.norm(turns, 2, axis=(1, 2)).max()) * (1 + 1e-9)
        self.top = self.off = 0.0
        self.done = False

    @property
    def most(self) -> float:
        """A bound on all paths of this side."""
        return max(self.top, self.bound)

    @property
    def bound(self) -> float:
        """A bound on all paths not taken."""
        return 0.0 if self.done else (self.search.bound + self.off) * self.stretch

    def take(self) -> bool:
        """Take the next path; returns False if there is none, or a limit is reached."""
        one = self.search.next()
        if one is None:
            self.done = not self.search.budget.reached
            return False
        value = one.value if self.turns is None else (one.value[..., None, :] @ self.turns)[..., 0, :]
        self.found.append(one)
        self.values.append(value)
        self.marks.append(self.paths.mark(one.path))
        self.sizes.append((one.size + one.off) * self.stretch)
        self.top, self.off = max(self.top, self.sizes[-1]), max(self.off, one.off)
        self.search.budget.bytes += value.nbytes
        return True


class Pairs:
    """The largest pairs of two trees; after :meth:`run`, ``best`` holds ``(size, value, query, key)``."""

    def __init__(
        self, trees: tuple[Tree, ...], by: str, run: Run, expansion: Expansion, keep: int, progress: OnProgress = None
    ) -> None:
        head = expansion.readout.head
        turns = None
        if by != "score entry" and f"R_{head}" in run.arrays:
            turns = np.asarray(run.arrays[f"R_{head}"], np.float64)[trees[0].net.tokens]
        self.by, self.run_, self.expansion, self.keep = by, run, expansion, keep
        self.sides = [_Side(Search(t, None, progress), turns, p) for t, p in zip(trees, expansion.sides, strict=True)]
        self.looked, self.off = 0, 0.0
        self._heap: list[tuple[float, int, float, Found, Found]] = []
        self._order = count()
        self._accepted: dict[tuple[Mark, Mark], bool] = {}

    @property
    def unseen(self) -> float:
        """A bound on all pairs not looked at."""
        query, key = self.sides
        return max(_times(query.bound, key.most), _times(key.bound, query.most))

    @property
    def _least(self) -> float:
        if len(self._heap) < self.keep:
            return -1.0
        return self._heap[0][0] if self._heap else float("inf")

    def run(self) -> None:
        """Take paths until no larger pair can come, or a limit is reached."""
        query, key = self.sides
        while not (query.done and key.done) and self.unseen > self._least:
            first = 0 if _times(query.bound, key.most) >= _times(key.bound, query.most) else 1
            first = 1 if query.found and not key.found else first  # one of each side first
            first = 1 - first if self.sides[first].done else first
            if self.sides[first].take():
                self._meet(first)
            elif self.sides[first].search.budget.reached:
                return

    def _meet(self, first: int) -> None:
        """Pair a new path with all known ones of the other side."""
        this, other = self.sides[first], self.sides[1 - first]
        one, mark, size = this.found[-1], this.marks[-1], this.sizes[-1]
        met = [i for i, m in enumerate(other.marks) if self._accepts(mark, m, first)]
        self.looked += len(met)
        least = self._least
        met = [i for i in met if not other.sizes[i] * size <= least]
        if not met:
            return
        many = np.array([other.values[i] for i in met])
        values = pair_sizes(self.by, self.run_, self.expansion, this.values[-1], many, first)
        if not np.isfinite(values).all():
            bad = met[int(np.argmin(np.isfinite(values)))]
            query, key = (one, other.found[bad]) if first == 0 else (other.found[bad], one)
            raise ValueError(
                f"the term {query.path.label} | {key.path.label} is so large that its size leaves the range of "
                "float64, so it cannot be compared; scale the weights"
            )
        rounding = 1e-15 * 2 * (one.value.shape[-1] + one.value.shape[-2] + 4)
        for i, value in zip(met, values.tolist(), strict=True):
            pair = (one, other.found[i]) if first == 0 else (other.found[i], one)
            entry = (abs(value), -next(self._order), value, *pair)
            off = size * other.found[i].off * other.stretch + other.sizes[i] * (
                one.off * this.stretch + rounding * size
            )
            self.off = max(self.off, off)
            (heapq.heappush if len(self._heap) < self.keep else heapq.heappushpop)(self._heap, entry)

    def open(self) -> int:
        """The number of pairs not looked at that may be larger than those wanted."""
        least, ruled_out, joined = self._least, 0, 0
        for first in (0, 1):
            this, other = self.sides[first], self.sides[1 - first]
            partners: dict[Mark, int] = {}
            for mark, size in zip(this.marks, this.sizes, strict=True):
                if mark not in partners:
                    ways = sum(n for m, n in other.paths.counts.items() if self._accepts(mark, m, first))
                    partners[mark] = ways - sum(self._accepts(mark, m, first) for m in other.marks)
                joined += partners[mark]
                ruled_out += partners[mark] * (_times(size, other.bound) <= least)
        if _times(self.sides[0].bound, self.sides[1].bound) <= least:
            ruled_out += self.expansion.count - self.looked - joined
        return self.expansion.count - self.looked - ruled_out

    def _accepts(self, one: Mark, other: Mark, first: int) -> bool:
        pair = (one, other) if first == 0 else (other, one)
        if pair not in self._accepted:
            self._accepted[pair] = self.expansion.accepts(pair)
        return self._accepted[pair]

    @property
    def best(self) -> list[tuple[float, float, Found, Found]]:
        """The largest known pairs."""
        return [(size, value, q, k) for size, _, value, q, k in sorted(self._heap, key=lambda e: (-e[0], -e[1]))]
