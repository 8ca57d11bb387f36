"""Bounds on all paths into a head, each and in sum, for what a suffix reads, head by head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.walk import Mark
from symcircuits.search.magnitudes import gamma, spectral
from symcircuits.search.suffixes import Functional, Network
from symcircuits.work.pools import OutOfTime

__all__ = ["Bounds"]

Array = npt.NDArray[Any]
Wanted = Callable[[Mark], bool]
_CHUNK = 2**19  # numbers in a temporary array of second moments: it stays in the cache


class Bounds:
    """By mark and head: the number of paths into it, the largest size of their values, their sum, second moments.

    All refer to values after the head's pattern. ``largest[mark] [heads, batch, n]``: a bound on every path's row;
    ``sums``: a bound on the sum of these norms over all paths; ``moments[mark] [heads, batch, b, n n, a]``: the sum of
    ``Z[t, b] Z[s, a]`` over all paths, Z the values; ``off_moments[mark] [heads]`` bounds its error in Frobenius norm.
    ``possible``: whether a path that begins so can be wanted at all. Raises OutOfTime when time is up.
    """

    def __init__(self, network: Network, possible: Wanted, moments: bool, budget: Budget) -> None:
        self.network, self.possible = network, possible
        self.counts: dict[Mark, list[int]] = {}
        self.largest: dict[Mark, Array] = {}
        self.sums: dict[Mark, Array] = {}
        self.moments: dict[Mark, Array] | None = {} if moments else None
        self.off_moments: dict[Mark, Array] = {}
        self.sizes: dict[Mark, Array] = {}  # Frobenius norms of second moments
        self._met: dict[tuple[int, Mark], tuple[list[Mark], list[int], Array, Array]] = {}
        net = network
        for layer in range(len(net.layers)):
            before, last = net.first[layer], net.first[layer + 1]
            if last > before:
                readers = net.reads[before:last].transpose(1, 0, 2).reshape(net.d_model, -1)
                links = net.writes[:before].reshape(-1, net.d_model) @ readers  # one product for all pairs of heads
                links = links.reshape(before, net.d_head, last - before, net.d_head)
                for h in range(before, last):
                    if budget.late:
                        raise OutOfTime
                    self._enter(h, layer, before, np.ascontiguousarray(links[:, :, h - before]))

    def _grown(self, mark: Mark, h: int) -> Mark:
        return self.network.fold(mark.order + 1, self.network.joints.grown(mark.bits, self.network.head_bits[h]))

    def _new(self, mark: Mark) -> None:
        """Allocate the arrays of a mark."""
        if mark in self.counts:
            return
        net, count = self.network, len(self.network.heads)
        shape = (count, net.batch, len(net.tokens))
        self.counts[mark] = [0] * count
        self.largest[mark], self.sums[mark] = np.zeros(shape), np.zeros(shape)
        if self.moments is not None:
            self.moments[mark] = np.zeros((count, net.batch, net.d_head, shape[-1] ** 2, net.d_head))
            self.off_moments[mark], self.sizes[mark] = np.zeros(count), np.zeros(count)

    # -------------------------------------------------------------------------------------- into one head
    def _enter(self, h: int, layer: int, before: int, links: Array) -> None:
        net = self.network
        size = np.zeros(0)
        if before:
            size = spectral(links) + float(net.reads_norm[h]) * gamma(net.d_model) * net.writes_norm[:before]
            size = size + net.off_reads[h] * net.writes_size[:before]
        touched = self._sources(h, layer)
        for mark in list(self.counts):
            if before and any(self.counts[mark][:before]):
                target = self._grown(mark, h)
                if self.possible(target):
                    self._new(target)
                    touched.add(target)
                    self._from_heads(h, before, mark, target, links, size)
        for mark in touched:
            self._mix(h, mark)

    def _sources(self, h: int, layer: int) -> set[Mark]:
        """The output of sources in the head's values, before its pattern."""
        net, touched = self.network, set[Mark]()
        scales, k = net.scales[h][..., None], gamma(net.d_model)
        most = float(np.abs(scales).max(initial=0.0))
        entries = []
        for at, source, value, off in net.sources:
            if at < layer:
                wide = float(np.linalg.norm(value, axis=-1).max(initial=0.0)) * (1 + k) + off
                wrong = most * (2 * k * wide * net.reads_norm[h] + net.off_reads[h] * wide + off * net.reads_norm[h])
                entries.append((source, (value @ net.reads[h]) * scales, float(wrong)))
        entries += net.inside.get(h, [])
        for source, value, off in entries:
            mark = self._grown(Mark(0, net.paths.source_bits(source)), h)
            if not self.possible(mark):
                continue
            self._new(mark)
            touched.add(mark)
            norms = np.linalg.norm(value, axis=-1) * (1 + gamma(net.d_head + 8)) + off
            self.counts[mark][h] += 1
            self.largest[mark][h] = np.maximum(self.largest[mark][h], norms)
            self.sums[mark][h] += norms
            if self.moments is not None:
                square = value.swapaxes(-1, -2)[:, :, :, None, None] * value[:, None, None]  # [batch, b, t, s, a]
                self.moments[mark][h] += square.reshape(self.moments[mark][h].shape)
                total, wrong = float(np.linalg.norm(value)), off * float(np.sqrt(value.shape[0] * value.shape[1]))
                self.off_moments[mark][h] += (2 * total + wrong) * wrong + gamma(4) * total**2
        return touched

    def _from_heads(self, h: int, before: int, mark: Mark, target: Mark, links: Array, size: Array) -> None:
        net, scales = self.network, np.abs(self.network.scales[h])
        grow = 1 + gamma(before + 4)
        self.counts[target][h] += sum(self.counts[mark][:before])
        weighted = self.largest[mark][:before] * size[:, None, None]
        self.largest[target][h] = np.maximum(self.largest[target][h], weighted.max(0) * scales * grow)
        self.sums[target][h] += np.tensordot(size, self.sums[mark][:before], 1) * scales * grow
        if self.moments is None:
            return
        found, shape = self.moments[mark], self.moments[target][h].shape
        step = max(1, _CHUNK // max(found[0].size, 1))
        total = np.zeros(shape)
        for start in range(0, before, step):
            part, link = found[start : min(start + step, before)], links[start : min(start + step, before)]
            one = part.reshape(len(part), -1, shape[-1]) @ link  # the second index, then the first, for all heads
            one = one.reshape(len(part), net.batch, shape[1], -1).swapaxes(0, 1)
            turned = link.reshape(-1, shape[1]).T
            total += (turned @ one.reshape(net.batch, len(part) * shape[1], -1)).reshape(shape)
        pair = net.scales[h][:, :, None] * net.scales[h][:, None, :]
        self.moments[target][h] += total * pair.reshape(net.batch, 1, -1, 1)
        norms = self.sizes[mark][:before]
        frobenius = net.writes_norm[:before] * float(net.reads_norm[h])
        off = size**2 * self.off_moments[mark][:before]
        off = off + (gamma(2 * (net.d_head + before) + 8) + 4 * gamma(net.d_model)) * frobenius**2 * norms
        off = off + 2 * size * net.off_reads[h] * net.writes_norm[:before] * norms
        self.off_moments[target][h] += float(scales.max(initial=0.0)) ** 2 * float(off.sum())

    def _mix(self, h: int, mark: Mark) -> None:
        """Apply the head's pattern."""
        net = self.network
        pattern, n = net.patterns[h], len(net.tokens)
        positive, grow = np.abs(pattern), 1 + gamma(n + 4)
        for bound in (self.largest[mark], self.sums[mark]):
            bound[h] = (positive @ bound[h][..., None])[..., 0] * grow
        if self.moments is None:
            return
        b = net.d_head
        value = self.moments[mark][h].reshape(net.batch, b, n, n * b)
        size = float(np.linalg.norm(value))
        value = (pattern[:, None] @ value).reshape(net.batch, b, n, n, b)
        self.moments[mark][h] = (pattern[:, None, None] @ value).reshape(net.batch, b, n * n, b)
        gain = float(positive.sum(-1).max(initial=0.0) * positive.sum(-2).max(initial=0.0)) * grow
        self.off_moments[mark][h] = gain * (self.off_moments[mark][h] + gamma(2 * n + 4) * size)
        self.sizes[mark][h] = float(np.linalg.norm(self.moments[mark][h])) * (1 + gamma(value.size))

    # --------------------------------------------------------------------------- behind a partial path
    def met(self, wanted: Wanted, tail: Mark, key: int = 0) -> tuple[list[Mark], list[int], Array, Array]:
        """For the heads before a suffix: marks of wanted paths, their numbers, bounds on each row and on the sum.

        ``key`` names ``wanted``, for caching the result.
        """
        if (key, tail) not in self._met:
            net = self.network
            marks = [
                m for m in self.counts if wanted(net.fold(m.order + tail.order, net.joints.met(m.bits, tail.bits)))
            ]
            counts = [sum(c) for c in zip(*(self.counts[m] for m in marks), strict=True)]
            shape = (len(net.heads), net.batch, len(net.tokens))
            largest, sums = np.zeros(shape), np.zeros(shape)
            for m in marks:
                largest, sums = np.maximum(largest, self.largest[m]), sums + self.sums[m]
            self._met[key, tail] = marks, counts or [0] * len(net.heads), largest, sums
        return self._met[key, tail]

    def pairwise(self, found: Functional, rows: Array) -> tuple[Array, Array]:
        """For every head that may precede a suffix: a bound by ``rows [heads, batch, n]``, and its columns."""
        read, size, cols = self._read(found, rows)
        wrong = found.count * found.off_rows * rows[: found.limit].max((1, 2), initial=0.0)
        return (np.sqrt((read**2).sum((0, 1))) + wrong) * size * (1 + gamma(8)), cols

    def summed(self, found: Functional, sums: Array) -> Array:
        """For every head that may precede a suffix: a bound on the sum of the sizes of all terms.

        ``sums``: those of the rows. The size of a sum does not bound the sum of sizes; the sum over all rows does.
        """
        read, size, _ = self._read(found, sums)
        wrong = found.count**2 * found.off_rows * sums[: found.limit].sum((1, 2))
        return np.asarray((read.sum((0, 1)) * (1 + gamma(read.size)) + wrong) * size * (1 + gamma(8)))

    def _read(self, found: Functional, rows: Array) -> tuple[Array, Array, Array]:
        """What a suffix reads of rows of each head, ``[batch, r, heads]``; and its columns with their norms."""
        net, count = self.network, found.limit
        cols = net.writes[:count].reshape(-1, net.d_model) @ found.cols
        cols = cols.reshape(count, net.d_head, found.cols.shape[1])
        size = np.linalg.norm(cols, axis=(1, 2)) if cols.shape[-1] == 1 else spectral(cols)
        size = size * (1 + gamma(net.d_head + 4)) + net._off_written(np.arange(count), found)
        read = np.abs(found.rows) @ rows[:count].transpose(1, 2, 0)
        return read * (1 + gamma(2 * len(net.tokens) + 8)), size, cols

    def mass(self, found: Functional, f: int, cols: Array, marks: Sequence[Mark]) -> tuple[float, float]:
        """The sum of the squares of all terms behind a suffix and head f, and a bound on its root.

        Needs ``moments``; ``cols = O_f R``.
        """
        assert self.moments is not None
        net = self.network
        rows, gram = found.rows.swapaxes(-1, -2) @ found.rows, cols @ cols.T
        flat = rows.reshape(net.batch, 1, 1, -1)
        norm_rows, norm_cols = float(np.linalg.norm(found.rows)), float(np.linalg.norm(cols))
        total, slack, largest = 0.0, 0.0, 0.0
        for mark in marks:
            moments = self.moments[mark][f]
            total += float(((flat @ moments)[:, :, 0] * gram).sum())
            size, wrong = float(self.sizes[mark][f]), float(self.off_moments[mark][f])
            k = gamma(len(net.tokens) ** 2 + net.d_head**2 + 2 * found.rows.shape[1] + 2 * cols.shape[1] + 8)
            slack += (wrong + 2 * k * size) * (norm_rows * norm_cols) ** 2
            largest += size + wrong
        off_cols = float(net._off_written(f, found))
        off = found.count * found.off_rows * (norm_cols + off_cols) + norm_rows * off_cols
        root = np.sqrt(max(total, 0.0) + slack) + np.sqrt(largest) * off
        return total, float(root) * (1 + gamma(16))
