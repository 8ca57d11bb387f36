"""Paths that differ in their last head, together: their values in head space, by one product for each pattern.

A fan is a beginning ``h_1 .. h_(k-1)`` and all heads of one layer that may follow it: ``Z_f = A_f (Z C_f)`` with ``C_f
= W_O^{h T} W_V^{f T}`` for all f at once. The paths of an expansion come in its own order, fan after fan, and only the
fans of the beginning at hand are held. Source: own derivation, as :mod:`symcircuits.tree`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from symcircuits.architecture import Head
from symcircuits.paths import Path, Paths, path_branches
from symcircuits.programs import Source
from symcircuits.rings import Array
from symcircuits.tree import readout_of
from symcircuits.walk import Mark, Matrices

__all__ = ["Fan", "Fans", "LayerArrays", "Piece", "Room", "largest_number"]

_STACKED = 2**22  # numbers in a layer's patterns up to which they are copied side by side; else taken one by one
_READ_BYTES = 2**28  # what is read of heads, W_O^T W_U^T, is kept up to this size; beyond it it is made as needed
_FAN_BYTES = 2**25  # of a fan, where it has more than one head
_START_BYTES = 2**26  # what first heads take up is kept up to this size


class LayerArrays(NamedTuple):
    """All heads of a layer, narrower ones filled with zeros: patterns with what scales the stream, reads, writes."""

    patterns: Array | None  # [batch, heads, n, n]; None where they are too large to copy
    reads: Array  # [heads, d_model, d_head]
    writes: Array  # [heads, d_head, d_model]


class Fan(NamedTuple):
    """Paths ``beginning, head, ...``: the layer of the program, places of the heads in it, heads still to come."""

    beginning: tuple[Head, ...]
    layer: int
    heads: list[int]
    left: int
    z: Array  # [batch, heads, n, sources, d_head]


class Piece(NamedTuple):
    """Neighbouring paths: their marks, ``values [paths, batch, n, width]``, and whether these are sure to be finite.

    Sure by the largest numbers that were multiplied; where it is not sure they may be finite all the same.
    """

    marks: list[Mark]
    values: Array
    finite: bool


class Room:
    """Where values are written: fresh memory for each piece (``reused`` false), or the same again and again.

    ``numbers``: how many numbers a piece may have (0: no limit), one path at least; ``out``: memory that was given,
    ``[paths, ...]``, which limits the number of paths.
    """

    def __init__(self, numbers: int = 0, reused: bool = False, out: Array | None = None) -> None:
        self.numbers, self.reused = numbers, reused or out is not None
        self._paths = 0 if out is None else len(out)
        self._held = None if out is None else out.reshape(-1)

    def most(self, each: int) -> int:
        """The number of paths of so many numbers that a piece may have."""
        return self._paths or (max(1, self.numbers // max(1, each)) if self.numbers else sys.maxsize)

    def take(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Memory of that shape."""
        size = prod(shape)
        if not self.reused:
            return np.empty(shape, dtype)
        if self._held is None or self._held.size < size:
            self._held = np.empty(size, dtype)
        return self._held[:size].reshape(shape)


class Fans:
    """The paths of a program on a run, ``batch`` its batch axes, ``n`` its positions."""

    def __init__(self, paths: Paths, matrices: Matrices, batch: tuple[int, ...], n: int) -> None:
        self.paths, self.matrices, self.batch, self.n = paths, matrices, batch, n
        self.rows_of_batch = prod(batch)
        self.plain = not any(paths.head_bits.values()) and not any(paths.name_bits.values())
        self._branches = {b.head: b for layer in paths.program for b in layer.branches if b.head is not None}
        self.readout, self._row_factors, self._scales = readout_of(paths.program)
        self._layers: dict[int, LayerArrays] = {}
        self._links: dict[tuple[Head, int], Array] = {}
        self._starts: dict[tuple[Head, ...], Array] = {}
        self._start_bytes = 0
        self._counts: dict[tuple[int, int], int] = {}

    # ---------------------------------------------------------------------------------------------- arrays
    @cached_property
    def d_head(self) -> int:
        """The width of the widest head."""
        return max((self.matrices.factor(b.right[-1]).shape[0] for b in self._branches.values()), default=1)

    @cached_property
    def row_scale(self) -> Array:
        """What the readout multiplies rows by, ``[batch, n]``: its norms and multipliers."""
        found = np.ones((), self.dtype)
        for f in self._row_factors:
            found = found * self.matrices.factor(f).entries
        found = np.asarray(self.matrices.scaled(self._scales, found))
        return np.broadcast_to(found, (*self.batch, self.n)).reshape(self.rows_of_batch, self.n)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of the run's numbers."""
        return np.dtype(self.matrices.ring.dtype)  # type: ignore[attr-defined]

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
        return self._layers[i]

    def _pattern(self, head: Head) -> Array:
        return self.flat(self.matrices.factor(self._branches[head].left[0]))

    def _stream_scale(self, head: Head) -> Array:
        """What a head multiplies the rows of the stream by, ``[batch, n]``: its norm and its multipliers."""
        branch, found = self._branches[head], np.ones((), self.dtype)
        for f in branch.left[1:]:
            found = found * self.matrices.factor(f).entries
        found = self.matrices.scaled(branch.scales, found)
        return np.broadcast_to(found, (*self.batch, self.n)).reshape(self.rows_of_batch, self.n)

    def mixed(self, i: int, heads: list[int], inside: Array) -> Array:
        """``A_f X_f`` for heads of a layer, X ``[batch, heads, n, ...]`` of the stream."""
        patterns = self.layer(i).patterns
        if patterns is not None:
            return np.asarray((patterns if len(heads) == patterns.shape[1] else patterns[:, heads]) @ inside)
        out = np.empty(inside.shape, self.dtype)
        for at, k in enumerate(heads):
            head = self.paths.layer_heads[i][k]
            out[:, at] = self._pattern(head) @ (inside[:, at] * self._stream_scale(head)[..., None])
        return out

    def before(self, i: int, alpha: Array) -> Array:
        """``alpha A_f`` for all heads of a layer: ``[batch, rows, n]`` to ``[batch, heads, rows, n]``."""
        patterns = self.layer(i).patterns
        if patterns is not None:
            return np.asarray(alpha[:, None] @ patterns)
        rows = [(alpha @ self._pattern(h)) * self._stream_scale(h)[:, None, :] for h in self.paths.layer_heads[i]]
        return np.stack(rows, axis=1)

    def cols(self, head: Head) -> Array:
        """What is read of a head's values, ``[d_head, width]``."""
        found = np.asarray(self.matrices.chain(self._branches[head].right[-1:] + self.readout))
        short = self.d_head - len(found)
        return np.concatenate([found, np.zeros((short, found.shape[1]), found.dtype)]) if short else found

    def direct(self, source: Source) -> Array:
        """What is read of a source through no head, ``[batch, n, width]``."""
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
                row = self.matrices.chain(s.core + s.right[:-1])  # it enters after the norm
            else:
                raise NotImplementedError(f"source {s.name} does not enter {head} at its pattern")
            rows.append(self.flat(row))
        z = np.stack(rows, axis=2).astype(self.dtype, copy=False)
        if z.shape[-1] < self.d_head:
            z = np.pad(z, ((0, 0), (0, 0), (0, 0), (0, self.d_head - z.shape[-1])))
        inside = np.asarray(self.matrices.scaled(branch.scales, z)).reshape(*z.shape[:2], -1)
        return np.asarray(self._pattern(head) @ inside).reshape(z.shape)

    def _first(self, heads: list[Head]) -> Array:
        """All sources of some first heads of a layer: ``[batch, heads, n, sources, d_head]``."""
        key = tuple(heads)
        if key in self._starts:
            return self._starts[key]
        z = np.stack([self._start(h) for h in heads], axis=1)
        if self._start_bytes + z.nbytes <= _START_BYTES:
            self._start_bytes += z.nbytes
            self._starts[key] = z
        return z

    def _step(self, before: Head, z: Array, i: int, heads: list[int]) -> Array:
        """A beginning's values through some heads of a later layer."""
        arrays = self.layer(i)
        link = self._links.get((before, i))
        if link is None:
            at = next(j for j, found in enumerate(self.paths.layer_heads) if before in found)
            link = self.layer(at).writes[self.paths.layer_heads[at].index(before)] @ arrays.reads
            self._links[before, i] = link
        if len(heads) < len(link):
            link = link[heads]
        batch, n, sources, d = z.shape
        inside = (z.reshape(batch, 1, n * sources, d) @ link).reshape(batch, len(heads), n, sources * d)
        return self.mixed(i, heads, inside).reshape(batch, len(heads), n, sources, d)

    # ----------------------------------------------------------------------------------------------- paths
    def count(self, layer: int, left: int) -> int:
        """The number of ways to go on through ``left`` heads from a layer of the program on."""
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

    def orders(self, weights: Mapping[Mark, int]) -> list[int]:
        """The orders of the paths with weight."""
        return [order for order, _ in self.paths._order_masses(weights)]

    def fans(self, order: int, weights: Mapping[Mark, int], most: int = 0) -> Iterator[Fan]:
        """The paths of an order (1 or more), in order; in one fan up to ``most``, where no condition looks at them."""
        yield from self._fans(order, (), None, weights, most)

    def _fans(
        self, order: int, beginning: tuple[Head, ...], z: Array | None, weights: Mapping[Mark, int], most: int
    ) -> Iterator[Fan]:
        left = order - len(beginning) - 1
        for i, heads in self._next(order, beginning, weights):
            for places in self._held_at_once(i, heads, z):
                names = [self.paths.layer_heads[i][k] for k in places]
                if z is None:
                    behind = self._first(names)
                else:
                    behind = self._step(beginning[-1], z, i, places)
                rows = len(places) * behind.shape[3] * (self.count(i + 1, left) if left else 1)
                if not left or (self.plain and rows <= most):
                    yield Fan(beginning, i, places, left, behind)
                    continue
                for k, name in enumerate(names):
                    yield from self._fans(order, (*beginning, name), behind[:, k], weights, most)

    def _next(
        self, order: int, beginning: tuple[Head, ...], weights: Mapping[Mark, int]
    ) -> Iterator[tuple[int, list[int]]]:
        """The layers and places of the heads that may come next, in order."""
        layers, left = self.paths.layer_heads, order - len(beginning) - 1
        if not self.plain:
            found: dict[int, list[int]] = {}
            for head, _ in self.paths._choices(order, beginning, weights):
                i = self.paths._layer_of[head]
                found.setdefault(i, []).append(layers[i].index(head))
            yield from found.items()
            return
        first = self.paths._layer_of[beginning[-1]] + 1 if beginning else 0
        for i in self.layers(first) if beginning else range(len(layers)):
            if layers[i] and self.count(i + 1, left):
                places = [k for k, h in enumerate(layers[i]) if beginning or self.paths.sources_of((h,))]
                if places:
                    yield i, places

    def _held_at_once(self, i: int, heads: list[int], z: Array | None) -> Iterator[list[int]]:
        """Heads side by side that have the same number of sources, as many as are small enough to hold."""
        group: list[int] = []
        count = before = 0
        for k in heads:
            count = len(self.paths.sources_of((self.paths.layer_heads[i][k],))) if z is None else z.shape[2]
            each = self.rows_of_batch * self.n * count * self.d_head * self.dtype.itemsize
            if group and (count != before or (len(group) + 1) * each > _FAN_BYTES):
                yield group
                group = []
            group, before = [*group, k], count
        yield group

    def kept(self, fan: Fan, weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        """Which of a fan's paths (with no head to come) have weight, None for all, and their marks."""
        if self.plain:
            return None, [Mark(len(fan.beginning) + 1, 0)] * (len(fan.heads) * fan.z.shape[3])
        chains = [(*fan.beginning, self.paths.layer_heads[fan.layer][k]) for k in fan.heads]
        return self._wanted([Path(s, heads) for heads in chains for s in self.paths.sources_of(heads)], weights)

    def kept_direct(self, weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        """The same of the paths through no head."""
        return self._wanted([Path(s) for s in self.paths.direct], weights)

    def _wanted(self, paths: list[Path], weights: Mapping[Mark, int]) -> tuple[list[int] | None, list[Mark]]:
        marks = [self.paths.mark(p) for p in paths]
        kept = [k for k, mark in enumerate(marks) if weights.get(mark, 0)]
        return (None, marks) if len(kept) == len(paths) else (kept, [marks[k] for k in kept])

    def blocks(
        self, weights: Mapping[Mark, int], read: Callable[[Head], Array] | None = None
    ) -> Iterator[tuple[Mark, Array]]:
        """Neighbouring paths of one mark, and what is read of them, ``[paths, batch, n, width]``, in order.

        ``read``: of a head, ``[d_head, width]``, in place of :meth:`cols` (not of the paths through no head).
        """
        for piece in self.pieces(weights, read):
            yield from _by_mark(piece.marks, piece.values)

    def pieces(
        self, weights: Mapping[Mark, int], read: Callable[[Head], Array] | None = None, room: Room | None = None
    ) -> Iterator[Piece]:
        """Neighbouring paths of any marks, in order; ``read`` as in :meth:`blocks`.

        ``room``: where the numbers are written, and how many at a time; what is given then holds until the next is
        asked for.
        """
        reads, room = _Reads(self, read or self.cols), room or Room()
        for order in self.orders(weights):
            if order == 0:
                kept, marks = self.kept_direct(weights)
                for k, mark in zip(range(len(marks)) if kept is None else kept, marks, strict=True):
                    value = self.direct(self.paths.direct[k])[None]
                    out = room.take(value.shape, self.dtype)
                    out[...] = value
                    yield Piece([mark], out, bool(np.isfinite(out).all()))
                continue
            for fan in self.fans(order, weights):
                kept, marks = self.kept(fan, weights)
                yield from self._read(fan, reads, kept, marks, room)

    def _read(self, fan: Fan, reads: _Reads, kept: list[int] | None, marks: list[Mark], room: Room) -> Iterator[Piece]:
        batch, heads, n, sources, d = fan.z.shape
        z = fan.z.transpose(1, 3, 0, 2, 4)
        if self._row_factors or self._scales:
            z = z * self.row_scale[..., None]  # of what is narrow
        z = z.reshape(heads * sources, batch * n, d)
        z, size, at = z if kept is None else z[kept], largest_number(z), 0
        for paths, cols, largest in self._parts(fan, reads, kept, room.most(batch * n * reads.width)):
            part, out = z[at : at + paths], room.take((paths, batch * n, reads.width), self.dtype)
            if len(cols) in (1, paths):
                np.matmul(part, cols, out=out)
            else:
                shape = len(cols), paths // len(cols)
                np.matmul(part.reshape(*shape, *part.shape[1:]), cols[:, None], out=out.reshape(*shape, *out.shape[1:]))
            values = out.reshape(paths, batch, n, reads.width)
            yield Piece(marks[at : at + paths], values, size * largest < self._safe)
            at += paths

    def _parts(self, fan: Fan, reads: _Reads, kept: list[int] | None, most: int) -> Iterator[tuple[int, Array, float]]:
        """A fan's paths, ``most`` at a time: how many, what is read of their heads (of one, of each, or of as many as
        divide the paths evenly), and the largest number of that."""
        sources = int(fan.z.shape[3])
        each = sources if kept is None else 1
        whole = reads.layer(fan.layer) if most >= each and (kept is None or sources == 1) else None
        if whole is not None:
            heads = fan.heads if kept is None else [fan.heads[k] for k in kept]
            side_by_side = heads[-1:] == [heads[0] + len(heads) - 1] if heads else True  # they rise
            step = most // each
            for at in range(0, len(heads), step):
                some = heads[at : at + step]
                cols = whole[0][some[0] : some[0] + len(some)] if side_by_side else whole[0][some]
                yield len(some) * each, cols, whole[1]
            return
        paths_of = (
            dict.fromkeys(range(len(fan.heads)), sources) if kept is None else Counter(k // sources for k in kept)
        )
        for head, paths in paths_of.items():
            cols, largest = reads.head(fan.layer, fan.heads[head])
            for at in range(0, paths, most):
                yield min(most, paths - at), cols[None], largest

    @cached_property
    def _safe(self) -> float:
        """A product of largest numbers below which no sum over the width of a head leaves the range of the type."""
        return float(np.finfo(self.dtype).max) / (2 * self.d_head)


class _Reads:
    """What is read of heads, ``[d_head, width]`` each, with the largest number of it; kept where it is small."""

    def __init__(self, fans: Fans, read: Callable[[Head], Array]) -> None:
        self.fans, self.read = fans, read
        self._held: dict[int, tuple[Array, float]] = {}
        self._bytes = 0

    @cached_property
    def width(self) -> int:
        """The width of what is read."""
        return int(self._some[1].shape[-1])

    @cached_property
    def _some(self) -> tuple[Head, Array]:
        head = next(head for heads in self.fans.paths.layer_heads for head in heads)
        return head, self.read(head)

    def _read(self, head: Head) -> Array:
        return self._some[1] if head == self._some[0] else self.read(head)

    def layer(self, layer: int) -> tuple[Array, float] | None:
        """Of all heads of a layer, ``[heads, d_head, width]``; None where that is too much to keep."""
        if layer in self._held:
            return self._held[layer]
        heads = self.fans.paths.layer_heads[layer]
        if self._bytes + len(heads) * self.fans.d_head * self.width * self.fans.dtype.itemsize > _READ_BYTES:
            return None
        made = np.stack([self._read(head) for head in heads])
        self._bytes += made.nbytes
        self._held[layer] = made, largest_number(made)
        return self._held[layer]

    def head(self, layer: int, place: int) -> tuple[Array, float]:
        """Of one head."""
        if layer in self._held:
            made, largest = self._held[layer]
            return made[place], largest
        found = self._read(self.fans.paths.layer_heads[layer][place])
        return found, largest_number(found)


def largest_number(array: Array) -> float:
    """The largest absolute value."""
    return max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))


def _by_mark(marks: list[Mark], values: Array) -> Iterator[tuple[Mark, Array]]:
    at = 0
    while at < len(marks):
        end = at + 1
        while end < len(marks) and marks[end] == marks[at]:
            end += 1
        yield marks[at], values[at:end]
        at = end
