"""Best-first search for the largest paths of one program, with a bound on all paths not looked at.

Open partial paths are ordered by their bounds (see :mod:`symcircuits.search.suffixes`), together with complete paths,
ordered by their sizes. The first is taken: a partial path is expanded by one head; a complete
path is the next largest, because nothing open can be larger. Source: A* search; own bounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.paths import Path
from symcircuits.core.programs import Source
from symcircuits.core.walk import Mark
from symcircuits.search.bounds import Bounds
from symcircuits.search.suffixes import Functional, Network
from symcircuits.work.progress import OnProgress

__all__ = ["Found", "Search", "Tree"]

Array = npt.NDArray[Any]
Wanted = Callable[[Mark], bool]
_EXTREME = 1e70
_ENTRY_BYTES = 250  # of an open partial path: its entry in the heap
_ALWAYS = 192  # numbers in a head's values up to which second moments are computed for any number of heads
_MOMENT_WORK = 5 * 10**10  # multiplications up to which second moments are computed: some five seconds


@dataclass(frozen=True, slots=True)
class Found:
    """A complete path: its size, its value ``[batch, r, m]``, and a bound on the error of both."""

    size: float
    value: Array
    off: float
    path: Path


def _found(size: float, value: Array, off: float, path: Path) -> Found:
    """Raise ValueError, naming the path, if its size is not finite or rounding may change it without limit: such sizes
    cannot be compared, and nothing would be proved."""
    if not size + off < float("inf"):
        raise ValueError(
            f"the path {path.label} has the size {size:.3g}, and rounding can change it without bound: numbers leave "
            "the range of float64 during the computation, so sizes cannot be compared; scale the weights"
        )
    return Found(size, value, off, path)


class Read(NamedTuple):
    """The readout: ``rows [batch or 1, r, n]``, and columns and their weights (see :meth:`Network.read`)."""

    rows: Array
    chosen: list[int] | None = None
    cols: Array | None = None


class Tree:
    """The wanted partial paths of a program, for one readout of a run.

    ``possible``: whether a path that begins with a mark can be wanted; ``share``: how many trees share the memory.
    """

    def __init__(
        self, net: Network, read: Read, wanted: Wanted, possible: Wanted, budget: Budget, *,
        moments: bool | None = None, share: int = 1,
    ) -> None:  # fmt: skip
        self.net, self.wanted, self.key = net, wanted, 0
        self.has_moments = moments is not False and _moments_fit(self.net, budget.max_memory // share)
        self.budget, self._possible = budget, possible
        self._read, net.small = read, read.cols is None
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are too large raise below
            self.root, self.met = self._what_is_read(net.small)
        self.values = np.array([value for _, _, value, _ in self.net.sources])
        self.most = np.linalg.norm(self.values, axis=-1).max((1, 2), initial=0.0) * (1 + 1e-12)
        self._check_range()

    def _what_is_read(self, small: bool) -> tuple[Functional, list[tuple[Source, Array, float]]]:
        return self.net.read(self._read.rows[..., self.net.tokens], self._read.chosen, self._read.cols, small)

    @cached_property
    def summed(self) -> tuple[Functional, list[tuple[Source, Array, float]]]:
        """Root and sources as values that add up; used if both exist, with all columns."""
        return self._what_is_read(False) if self.met and self.net.small else (self.root, self.met)

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds on the paths behind a head; computed on demand. Raises OutOfTime when time is up."""
        return Bounds(self.net, self._possible, self.has_moments, self.budget)

    @property
    def bytes(self) -> int:
        """The memory of the arrays."""
        found = sum(a.nbytes for a in (self.net.patterns, self.net.reads, self.net.writes, self.values))
        return found + sum(a.nbytes for a in (self.bounds.moments or {}).values())

    def _check_range(self) -> None:
        """Raise ValueError if squares of sizes would overflow or vanish."""
        for what, array in (("the readout of the stream", self.root.cols), ("a source of the stream", self.values)):
            largest = float(np.abs(array).max(initial=0.0))
            if largest and not 1 / _EXTREME < largest < _EXTREME:
                raise ValueError(
                    f"{what} has numbers of size {largest:.0e}, whose squares leave the range of float64, so "
                    "sizes cannot be compared; scale the weights"
                )

    @property
    def count(self) -> int:
        """The number of paths."""
        ended = sum(self._wants(source, self.root) for source, _, _ in self.met)
        ended += sum(self._wants(s[1], self.root) for s in self.net.sources)
        return ended + sum(self.bounds.met(self.wanted, self.root.mark, self.key)[1])

    def path(self, found: Functional, source: Source) -> Path:
        """The path of a source through a suffix."""
        return Path(source, tuple(self.net.heads[f] for f in found.heads))

    def start(self) -> tuple[Functional, list[Found]]:
        """The empty suffix, and the paths through no head."""
        found = []
        for source, value, off in self.met:
            if self._wants(source, self.root):
                found.append(_found(float(np.linalg.norm(value)), value, off, self.path(self.root, source)))
        return self.root, found + self._ended(self.root)

    def expand(self, found: Functional, f: int) -> tuple[Functional, list[Found]]:
        """A suffix with one more head before it, and the paths that begin there."""
        inner, outer = self.net.through(found, f)
        ended = []
        for source, value, off in self.net.inside.get(f, []):
            if self._wants(source, inner):
                most = float(np.linalg.norm(value, axis=-1).max(initial=0.0))
                ended.append(self._one(inner, source, self.net.apply(inner, value), most, off))
        return outer, ended + self._ended(outer)

    def _wants(self, source: Source, found: Functional) -> bool:
        net = self.net
        return self.wanted(net.fold(found.mark.order, net.joints.met(net.paths.source_bits(source), found.mark.bits)))

    def _ended(self, found: Functional) -> list[Found]:
        """The paths whose source is in the stream that a suffix reads."""
        here = [i for i, s in enumerate(self.net.sources) if s[0] < found.layer and self._wants(s[1], found)]
        if not here:
            return []
        values = self.net.apply(found, self.values[here])
        return [
            self._one(found, self.net.sources[i][1], value, self.most[i], self.net.sources[i][3])
            for i, value in zip(here, values, strict=True)
        ]

    def _one(self, found: Functional, source: Source, value: Array, most: float, off: float) -> Found:
        size = abs(value.item()) if value.size == 1 else float(np.linalg.norm(value))
        return _found(size, value, float(self.net.off_applied(found, most, off)), self.path(found, source))

    def children(self, found: Functional) -> tuple[Array, Array, list[int]]:
        """For each head that may precede a suffix: a bound on every term, its columns, and the number of terms."""
        _, counts, largest, _ = self.bounds.met(self.wanted, found.mark, self.key)
        bound, cols = self.bounds.pairwise(found, largest)
        return np.where(np.isnan(bound), np.inf, bound), cols, counts

    def refined(self, found: Functional, f: int, bound: float) -> float:
        """The smaller of a bound and the one by second moments, if these are known."""
        if self.bounds.moments is None:
            return bound
        marks = self.bounds.met(self.wanted, found.mark, self.key)[0]
        return min(bound, self.bounds.mass(found, f, self.net.writes[f] @ found.cols, marks)[1])

    # ------------------------------------------------------------------------------------------- sums
    def total(self) -> Array:
        """The sum of all wanted paths, by the walk: ``[batch, r, m]``."""
        net, total = self.net, np.zeros(())
        for mark, value in net.sums(net.matrices).items():
            if self.wanted(mark):
                total = total + net.apply(self.root, value[..., net.tokens, :])
        for source, value, _ in self.met:
            if self._wants(source, self.root):
                total = total + value
        return np.asarray(total)

    def squares(self) -> float | None:
        """The sum of the squares of the sizes of all wanted paths, by second moments; None if they are too many."""
        if not self.has_moments:
            return None
        root, ended = self.start()
        marks = self.bounds.met(self.wanted, root.mark, self.key)[0]
        masses = [self.bounds.mass(root, f, self.net.writes[f] @ root.cols, marks)[0] for f in range(root.limit)]
        return float(sum(e.size * e.size for e in ended) + sum(masses))


def _moments_fit(net: Network, max_memory: int) -> bool:
    """Whether second moments of all heads are worth their memory and time."""
    heads, n, d = len(net.heads), len(net.tokens), net.d_head
    one = net.batch * (n * d) ** 2
    marks = len({net.fold(*m) for m in net.paths.counts}) * (3 if net.joints.width else 1)
    work = sum(net.first[i] for i in net.layer_of) * one * d * 2 * (net.cap + 1)
    return heads * one * 8 * marks <= max_memory / 2 and (n * d <= _ALWAYS or work <= _MOMENT_WORK)


class Search:
    """The paths of a tree, the largest first; ``keep``: how many are wanted (None: any number).

    ``left``: the largest bound of paths dropped because ``keep`` larger paths were known.
    """

    def __init__(self, tree: Tree, keep: int | None = None, progress: OnProgress = None) -> None:
        self.tree, self.budget, self.keep, self.progress = tree, tree.budget, keep, progress
        self.left, self.looked, self.off = 0.0, 0, 0.0
        self._order, self._best = count(), list[float]()
        self._heap: list[tuple[float, int, int, Any]] = []
        self.budget.bytes += tree.bytes
        self._push(float("inf"), 2, (None, -1, tree.count))

    def _push(self, size: float, kind: int, what: Any) -> None:
        heapq.heappush(self._heap, (-size, kind, next(self._order), what))

    @property
    def _least(self) -> float:
        """The size that a path must exceed to be one of those wanted."""
        if self.keep is None or len(self._best) < self.keep:
            return -1.0
        return self._best[0] if self._best else float("inf")

    def _grow(self, found: Functional, ended: list[Found]) -> None:
        for one in ended:
            self.looked += 1
            self.off = max(self.off, one.off)
            if self.keep is not None:
                (heapq.heappush if len(self._best) < self.keep else heapq.heappushpop)(self._best, one.size)
            self._push(one.size, 0, one)
        bounds, _, counts = self.tree.children(found)
        least = self._least
        for f in np.flatnonzero(~(bounds <= least)):
            if counts[f]:
                self._push(float(bounds[f]), 1, (found, int(f), counts[f]))
                self.budget.bytes += _ENTRY_BYTES
        left = [float(b) for b, n in zip(bounds, counts, strict=False) if n and b <= least]
        self.left = max([self.left, *left])
        self.budget.bytes += found.rows.nbytes + found.cols.nbytes

    @property
    def bound(self) -> float:
        """A bound on all paths that were not returned."""
        return max(self.left, -self._heap[0][0] if self._heap else 0.0)

    @property
    def unseen(self) -> float:
        """A bound on all paths that were not looked at."""
        return max([self.left, *(-size for size, kind, _, _ in self._heap if kind)])

    def open(self, above: float) -> int:
        """The number of paths behind partial paths whose bound exceeds a number."""
        return sum(what[2] for size, kind, _, what in self._heap if kind and -size > above)

    def next(self) -> Found | None:
        """The next largest path; None if there is none, or a limit is reached."""
        while self._heap:
            size, kind, _, what = self._heap[0]
            if kind == 0:
                heapq.heappop(self._heap)
                return what  # type: ignore[no-any-return]
            if self.progress and not self.budget.expansions % 50:
                self.progress("partial paths", self.budget.expansions, self.budget.max_expansions or 0)
            if self.budget.ended():
                return None
            heapq.heappop(self._heap)
            found, f, number = what
            if found is None:
                self.budget.expansions += 1
                self._grow(*self.tree.start())
                continue
            if kind == 1:
                better = self.tree.refined(found, f, -size)
                if better < -size:
                    if better > self._least:
                        self._push(better, 2, (found, f, number))
                    else:
                        self.left = max(self.left, better)
                    continue
            self.budget.expansions += 1
            self._grow(*self.tree.expand(found, f))
        return None

    def rest(self) -> list[Found]:
        """The complete paths looked at but not returned, the largest first."""
        return sorted((what for _, kind, _, what in self._heap if kind == 0), key=lambda one: -one.size)
