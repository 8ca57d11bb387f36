"""Paths that differ in their last head, together: their values in head space, by one product for each pattern.

A fan is a beginning ``h_1 .. h_(k-1)`` and all heads of one layer that may follow it: ``Z_f = A_f (Z C_f)`` with ``C_f
= W_O^{h T} W_V^{f T}`` for all f at once. The paths of an expansion come in its own order, fan after fan, and only the
fans of the current beginning are kept. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Head
from symcircuits.core.paths import Path, Paths, path_branches
from symcircuits.core.programs import Source
from symcircuits.core.walk import Counts, Mark, Matrices, walk
from symcircuits.values.engine import Span

__all__ = ["LayerArrays", "SiblingPaths", "Siblings"]

_STACKED = 2**22  # numbers in a layer's patterns up to which they are stacked; else used one by one
_PARTS = 8  # parts into which the rows of a causal pattern are split
_FAN_BYTES = 2**25  # of a fan with more than one head
_SMALL_BYTES = 2**18  # of a layer's arrays that are cached with the run
_START_BYTES = 2**26  # values of first heads are cached up to this size


class LayerArrays(NamedTuple):
    """All heads of a layer, narrower ones padded with zeros: patterns with the scales of the stream, reads, writes."""

    patterns: Array | None  # [batch, heads, n, n]; None where they are too large to copy
    reads: Array  # [heads, d_model, d_head]
    writes: Array  # [heads, d_head, d_model]


class Siblings(NamedTuple):
    """Paths ``beginning, head, ...``: the layer of the program, indices of the heads in it, heads still to come."""

    beginning: tuple[Head, ...]
    layer: int
    heads: list[int]
    left: int
    z: Array  # [batch, heads, n, sources, d_head]


class SiblingPaths:
    """The paths of a program on a run, ``batch`` its batch axes, ``n`` its positions.

    ``span``: where to begin; a path counts as many terms as its weight. ``kept``: arrays of small layers of the same
    run, by their heads.
    """

    def __init__(
        self, paths: Paths, matrices: Matrices, batch: tuple[int, ...], n: int, span: Span | None = None,
        kept: dict[tuple[Head, ...], LayerArrays] | None = None,
    ) -> None:  # fmt: skip
        self.span, self._kept = span or Span(), {} if kept is None else kept
        self.paths, self.matrices, self.batch, self.n = paths, matrices, batch, n
        self.rows_of_batch = prod(batch)
        self.plain = not any(paths.head_bits.values()) and not any(paths.name_bits.values())
        self._branches = paths.branches
        self.readout, self._row_factors, self._scales = paths.readout
        self._layers: dict[int, LayerArrays] = {}
        self._links: dict[tuple[Head, int], Array] = {}
        self._starts: dict[tuple[Head, ...], Array] = {}
        self._kept_seen: dict[Head, list[tuple[int, int, int]]] = {}
        self._counts: dict[tuple[int, int], int] = {}
        self._before: dict[int, int] = {}

    def at(self, span: Span) -> SiblingPaths:
        """The same from another span on, sharing results from weights and patterns."""
        _ = self.d_head, self.row_scale if self.scales_rows else None  # once for all
        found = copy(self)
        found.span = span
        return found

    # ---------------------------------------------------------------------------------------------- arrays
    @cached_property
    def d_head(self) -> int:
        """The width of the widest head."""
        return max((self.matrices.factor(b.right[-1]).shape[0] for b in self._branches.values()), default=1)

    @property
    def scales_rows(self) -> bool:
        """Whether the readout scales rows."""
        return bool(self._row_factors or self._scales)

    @cached_property
    def row_scale(self) -> Array:
        """The factors by which the readout scales rows, ``[batch, n]``: its norms and multipliers."""
        found = np.ones((), self.dtype)
        for f in self._row_factors:
            found = found * self.matrices.factor(f).entries
        found = np.asarray(self.matrices.scaled(self._scales, found))
        return np.broadcast_to(found, (*self.batch, self.n)).reshape(self.rows_of_batch, self.n)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of the run's numbers."""
        return np.dtype(self.matrices.ring.dtype)  # type: ignore[attr-defined]

    @cached_property
    def most(self) -> float:
        """The largest number of that type."""
        return float(np.finfo(self.dtype).max)

    def flat(self, value: Array) -> Array:
        """A value ``[..., n, d]`` with one batch axis."""
        if not self.batch:
            return value[None]
        spread = np.broadcast_to(value, self.batch + value.shape[-2:])
        return spread.reshape(self.rows_of_batch, *value.shape[-2:])

    def layer(self, i: int) -> LayerArrays:
        """The arrays of layer i of the program."""
        if i not in self._layers:
            heads = self.paths.layer_heads[i]
            if heads in self._kept:
                return self._layers.setdefault(i, self._kept[heads])
            writes = [self.matrices.factor(self._branches[h].right[-1]) for h in heads]
            d, count = writes[0].shape[1], len(heads)
            shape = self.rows_of_batch, count, self.n, self.n
            found = LayerArrays(
                np.empty(shape, self.dtype) if prod(shape) <= _STACKED else None,
                np.zeros((count, d, self.d_head), self.dtype), np.zeros((count, self.d_head, d), self.dtype),
            )  # fmt: skip
            for k, (head, out) in enumerate(zip(heads, writes, strict=True)):
                branch = self._branches[head]
                if found.patterns is not None:
                    found.patterns[:, k] = self._pattern(head)
                    if branch.left[1:] or branch.scales:
                        found.patterns[:, k] *= self._stream_scale(head)[:, None, :]
                found.reads[k, :, : out.shape[0]] = np.asarray(self.matrices.chain(branch.right[:-1]))
                found.writes[k, : out.shape[0]] = out
            self._layers[i] = found
            if sum(a.nbytes for a in found if a is not None) <= _SMALL_BYTES:
                self._kept[heads] = found
        return self._layers[i]

    def _pattern(self, head: Head) -> Array:
        return self.flat(self.matrices.factor(self._branches[head].left[0]))

    def _stream_scale(self, head: Head) -> Array:
        """The factors by which a head scales the rows of the stream, ``[batch, n]``: its norm and its multipliers."""
        branch, found = self._branches[head], np.ones((), self.dtype)
        for f in branch.left[1:]:
            found = found * self.matrices.factor(f).entries
        found = self.matrices.scaled(branch.scales, found)
        return np.broadcast_to(found, (*self.batch, self.n)).reshape(self.rows_of_batch, self.n)

    def mixed(self, i: int, heads: list[int], inside: Array) -> Array:
        """``A_f X_f`` for heads of a layer, with X ``[batch, heads, n, ...]``."""
        patterns = self.layer(i).patterns
        if patterns is not None:
            return np.asarray((patterns if len(heads) == patterns.shape[1] else patterns[:, heads]) @ inside)
        out = np.empty(inside.shape, self.dtype)
        for at, k in enumerate(heads):
            head = self.paths.layer_heads[i][k]
            branch, value = self._branches[head], inside[:, at]
            if branch.left[1:] or branch.scales:
                value = value * self._stream_scale(head)[..., None]
            pattern = self._pattern(head)
            for first, last, seen in self._seen(head, pattern):
                np.matmul(pattern[:, first:last, :seen], value[:, :seen], out=out[:, at, first:last])
        return out

    def _seen(self, head: Head, pattern: Array) -> list[tuple[int, int, int]]:
        """Groups of rows of a large pattern, and the number of columns that contain all nonzero entries in them."""
        if head not in self._kept_seen:
            each = -(-self.n // _PARTS)
            rows = [(at, min(at + each, self.n)) for at in range(0, self.n, each)]
            self._kept_seen[head] = [(a, b, self.n if pattern[:, a:b, b:].any() else b) for a, b in rows]
        return self._kept_seen[head]

    def behind(self, head: Head, alpha: Array, omega: Array) -> tuple[Array, Array]:
        """A reader of the stream, moved through a head: ``alpha A`` (with the scales of rows) and ``omega W_O W_V``.

        ``alpha [batch, rows, n]``, ``omega [rows, d_model]``; nothing is copied.
        """
        branch = self._branches[head]
        rows = np.asarray(alpha @ self._pattern(head))
        if branch.left[1:] or branch.scales:
            rows *= self._stream_scale(head)[:, None, :]
        read = omega @ self.matrices.factor(branch.right[-1]).swapaxes(-1, -2)
        return rows, np.asarray(read @ np.asarray(self.matrices.chain(branch.right[:-1])).swapaxes(-1, -2))

    def paths_before(self, head: Head) -> int:
        """The number of paths that lead to a head, of all paths, including those of its layer's sources."""
        i = self.paths._layer_of[head]
        if i not in self._before:
            self._before[i] = walk(self.paths.program[:i], Counts()) or 0
        return self._before[i] + sum(s.head == head for s in self.paths.program[i].sources)

    def cols(self, head: Head) -> Array:
        """The readout of a head's values, ``[d_head, width]``."""
        found = np.asarray(self.matrices.chain(self._branches[head].right[-1:] + self.readout))
        short = self.d_head - len(found)
        return np.concatenate([found, np.zeros((short, found.shape[1]), found.dtype)]) if short else found

    def direct(self, source: Source) -> Array:
        """The readout of a source through no head, ``[batch, n, width]``."""
        value = self.matrices.source(source)
        for branch in path_branches(self.paths.program, Path(source)):
            value = self.matrices.branch(branch, value)
        return self.flat(np.asarray(value))

    def _start(self, head: Head) -> Array:
        """All sources of a first head: ``[batch, n, sources, d_head]``."""
        branch, rows = self._branches[head], []
        for s in self.paths.sources_of((head,)):
            if s.head is None:
                row = self.matrices.chain(branch.right[:-1], self.matrices.source(s))
                for f in reversed(branch.left[1:]):
                    row = self.matrices.factor(f) @ row
            elif s.left == branch.left[:1] and s.right[-1:] == branch.right[-1:] and s.scales == branch.scales:
                row = self.matrices.chain(s.core + s.right[:-1])  # the source enters after the norm
            else:
                raise NotImplementedError(f"source {s.name} does not enter {head} at its pattern")
            rows.append(self.flat(row))
        z = np.stack(rows, axis=2).astype(self.dtype, copy=False)
        if z.shape[-1] < self.d_head:
            z = np.pad(z, ((0, 0), (0, 0), (0, 0), (0, self.d_head - z.shape[-1])))
        inside = np.asarray(self.matrices.scaled(branch.scales, z)).reshape(*z.shape[:2], -1)
        return np.asarray(self._pattern(head) @ inside).reshape(z.shape)

    def _first(self, i: int, places: list[int]) -> Array:
        """All sources of some first heads of a layer: ``[batch, heads, n, sources, d_head]``."""
        heads = [self.paths.layer_heads[i][k] for k in places]
        key = tuple(heads)
        if key in self._starts:
            return self._starts[key]
        sources = self.paths.sources_of((heads[0],))
        if any(s.head is not None for s in sources):
            z = np.stack([self._start(h) for h in heads], axis=1)
        else:  # they are in the stream, so all heads read them at once
            reads = self.layer(i).reads
            reads = reads if len(heads) == len(reads) else reads[places]
            inside = np.empty((self.rows_of_batch, len(heads), self.n, len(sources), self.d_head), self.dtype)
            for k, s in enumerate(sources):
                np.matmul(self.flat(self.matrices.source(s))[:, None], reads, out=inside[..., k, :])
            z = self.mixed(i, places, inside.reshape(*inside.shape[:3], -1)).reshape(inside.shape)
        if sum(held.nbytes for held in self._starts.values()) + z.nbytes <= _START_BYTES:
            self._starts[key] = z
        return z

    def _step(self, before: Head, z: Array, i: int, heads: list[int]) -> Array:
        """A beginning's values through some heads of a later layer."""
        if (before, i) not in self._links:
            self._link(before, i)
        link = self._links[before, i]
        if len(heads) < len(link):
            link = link[heads]
        batch, n, sources, d = z.shape
        inside = (z.reshape(batch, 1, n * sources, d) @ link).reshape(batch, len(heads), n, sources * d)
        return self.mixed(i, heads, inside).reshape(batch, len(heads), n, sources, d)

    def _link(self, before: Head, i: int) -> None:
        """``W_O^{h T} W_V^{f T}`` for all f of a later layer; for all h at once, if no condition applies to heads."""
        at = self.paths._layer_of[before]
        heads, writes, reads = self.paths.layer_heads[at], self.layer(at).writes, self.layer(i).reads
        if not self.plain:
            self._links[before, i] = writes[heads.index(before)] @ reads
            return
        links = writes.reshape(-1, writes.shape[-1]) @ reads.transpose(1, 0, 2).reshape(writes.shape[-1], -1)
        links = links.reshape(*writes.shape[:2], *reads.shape[::2]).swapaxes(1, 2)
        self._links.update({(head, i): link for head, link in zip(heads, links, strict=True)})

    # ----------------------------------------------------------------------------------------------- paths
    def count(self, layer: int, left: int) -> int:
        """The number of ways to continue through ``left`` heads from a layer of the program on."""
        key = layer, left
        if key not in self._counts:
            passable, heads = self.paths.passable, self.paths.layer_heads
            if not left:
                self._counts[key] = int(all(passable[layer:]))
            else:
                self._counts[key] = sum(len(heads[i]) * self.count(i + 1, left - 1) for i in self.layers(layer))
        return self._counts[key]

    def layers(self, first: int) -> Iterator[int]:
        """The layers whose heads may come next, from ``first`` on."""
        for i in range(first, len(self.paths.program)):
            yield i
            if not self.paths.passable[i]:
                return

    def orders(self, weights: Mapping[Mark, int]) -> Iterator[int]:
        """The orders of the paths with weight; consume the paths of each before the next order."""
        return (order for order, mass in self.paths._order_masses(weights) if not self.span.over(mass))

    def fans(self, order: int, weights: Mapping[Mark, int], most: int = 0) -> Iterator[Siblings]:
        """The paths of an order (1 or more), in order; up to ``most`` in one fan, if no condition applies to them."""
        yield from self._fans(order, (), None, weights, most)

    def _fans(
        self, order: int, beginning: tuple[Head, ...], z: Array | None, weights: Mapping[Mark, int], most: int
    ) -> Iterator[Siblings]:
        left = order - len(beginning) - 1
        for i, masses in self._next(order, beginning, weights):
            for places in self._held_at_once(i, list(masses), z):
                if self.span.left and self.span.over(sum(masses[k] for k in places)):
                    continue
                names = [self.paths.layer_heads[i][k] for k in places]
                if z is None:
                    behind = self._first(i, places)
                else:
                    behind = self._step(beginning[-1], z, i, places)
                rows = len(places) * behind.shape[3] * (self.count(i + 1, left) if left else 1)
                if not left or (self.plain and rows <= most):
                    self.span.enter()
                    yield Siblings(beginning, i, places, left, behind)
                    continue
                for k, name in zip(range(len(names)), names, strict=True):
                    if not self.span.over(masses[places[k]]):
                        yield from self._fans(order, (*beginning, name), behind[:, k], weights, most)

    def _next(
        self, order: int, beginning: tuple[Head, ...], weights: Mapping[Mark, int]
    ) -> Iterator[tuple[int, dict[int, int]]]:
        """The layers and indices of the heads that may come next, in order, with the number of terms behind each."""
        layers, left = self.paths.layer_heads, order - len(beginning) - 1
        if not self.plain:
            found: dict[int, dict[int, int]] = {}
            for head, mass in self.paths._choices(order, beginning, weights):
                i = self.paths._layer_of[head]
                found.setdefault(i, {})[layers[i].index(head)] = mass
            yield from found.items()
            return
        first = self.paths._layer_of[beginning[-1]] + 1 if beginning else 0
        each = weights.get(Mark(order, 0), 0) * (len(self.paths.sources_of(beginning)) if beginning else 1)
        for i in self.layers(first) if beginning else range(len(layers)):
            if layers[i] and (count := self.count(i + 1, left) * each):
                if beginning:
                    yield i, dict.fromkeys(range(len(layers[i])), count)
                    continue
                terms = {k: len(self.paths.sources_of((h,))) * count for k, h in enumerate(layers[i])}
                if places := {k: n for k, n in terms.items() if n}:
                    yield i, places

    def _held_at_once(self, i: int, heads: list[int], z: Array | None) -> Iterator[list[int]]:
        """Adjacent heads with the same number of sources, as many as fit in memory."""
        group: list[int] = []
        count = before = 0
        if z is not None and len(heads) * z.nbytes <= _FAN_BYTES:
            yield heads
            return
        for k in heads:
            count = len(self.paths.sources_of((self.paths.layer_heads[i][k],))) if z is None else z.shape[2]
            each = self.rows_of_batch * self.n * count * self.d_head * self.dtype.itemsize
            if group and (count != before or (len(group) + 1) * each > _FAN_BYTES):
                yield group
                group = []
            group, before = [*group, k], count
        yield group

    def kept(self, fan: Siblings, weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        """Which of a fan's paths (with no head to come) have weight, None for all, and their marks."""
        if self.plain:
            return None, [Mark(len(fan.beginning) + 1, 0)] * (len(fan.heads) * fan.z.shape[3])
        chains = [(*fan.beginning, self.paths.layer_heads[fan.layer][k]) for k in fan.heads]
        return self._wanted([Path(s, heads) for heads in chains for s in self.paths.sources_of(heads)], weights)

    def kept_direct(self, weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        """The same for the paths through no head, without those that are skipped."""
        kept, marks = self._wanted([Path(s) for s in self.paths.direct], weights)
        passed = 0
        while passed < len(marks) and self.span.over(weights.get(marks[passed], 0)):
            passed += 1
        self.span.enter()
        places = list(range(len(marks))) if kept is None else kept
        return (places[passed:], marks[passed:]) if passed else (kept, marks)

    def _wanted(self, paths: list[Path], weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        marks = [self.paths.mark(p) for p in paths]
        kept = [k for k, mark in enumerate(marks) if weights.get(mark, 0)]
        return (None, marks) if len(kept) == len(paths) else (kept, [marks[k] for k in kept])
