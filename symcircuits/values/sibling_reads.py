"""The readout of paths that differ in their last head: one product for all of them, in the order of the expansion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Head
from symcircuits.core.walk import Mark
from symcircuits.values.all_paths import Order, Plan
from symcircuits.values.engine import Piece, Room, Span
from symcircuits.values.siblings import SiblingPaths, Siblings

__all__ = ["SiblingSide", "largest_number", "pieces"]

_FEW_ROWS = 25  # rows of paths through a head, in units of its width, below which its triangle costs more than it saves
_READ_BYTES = 2**28  # readouts of heads, W_O^T W_U^T, are cached up to this size; beyond it they are computed as needed


class SiblingSide:
    """The paths of one side of a run; ``row``: only their values at that position.

    Results from weights and patterns are kept from one range of paths to the next. ``order``: of all paths, computed
    at once by ``plan`` if that is little work; no condition applies to them. ``streams``: cached results of the plan.
    """

    def __init__(
        self, fans: SiblingPaths, row: int | None = None, order: Order | None = None, plan: Plan | None = None,
        streams: dict[int, Array] | None = None,
    ) -> None:  # fmt: skip
        self.fans, self.row, self.order, self.plan = fans, row, order, plan
        self.streams = {} if streams is None else streams
        self._reads: dict[bool, _Reads] = {}

    def pieces(
        self, weights: Mapping[Mark, int], span: Span, room: Room | None = None, narrow: bool = False
    ) -> Iterator[Piece]:
        """See :class:`symcircuits.values.engine.Side`; ``values [paths, batch, n, width]``, one batch axis."""
        if (whole := self._whole(span, room or Room())) is not None:
            yield whole if self.row is None else whole._replace(values=whole.values[:, :, self.row : self.row + 1])
            return
        fans = self.fans.at(span)
        if narrow not in self._reads:
            self._reads[narrow] = _Reads(self.fans, _Corners(self.fans).of if narrow else self.fans.cols)
        for piece in _pieces(fans, weights, self._reads[narrow], room or Room()):
            yield piece if self.row is None else piece._replace(values=piece.values[:, :, self.row : self.row + 1])

    def _whole(self, span: Span, room: Room) -> Piece | None:
        """All paths as one piece, for any span, so no number depends on it; None if they are too many."""
        made = None if self.plan is None else self.plan.made(self.streams)
        if self.order is None or made is None or room.most(made[0].size) < len(made):
            return None
        span.enter()
        found = made[self.order.places]
        return Piece(self.order.marks, found, bool(np.isfinite(found).all()))


class _Corners:
    """A readout of heads with the same norms: the triangle of ``cols = (Q L)^T``, ``|Z cols| = |Z L^T|``."""

    def __init__(self, fans: SiblingPaths) -> None:
        self.fans = fans
        self._held: dict[Head, Array] = {}

    def of(self, head: Head) -> Array:
        """``[d_head, d_head]`` if many paths lead through the heads of its layer; else ``[d_head, width]``."""
        if head not in self._held:
            fans = self.fans
            cols = fans.cols(head)
            d, beside = len(cols), fans.paths.layer_heads[fans.paths._layer_of[head]]  # they are stacked and read alike
            if cols.shape[1] > d and fans.n * max(map(fans.paths_before, beside)) > _FEW_ROWS * d:
                known = bool(np.isfinite(cols).all())  # nan has no triangle, and raises below
                cols = np.asarray(np.linalg.qr(cols.T, mode="r")).T if known else np.full((d, d), np.nan, cols.dtype)
            self._held[head] = cols
        return self._held[head]


def pieces(
    fans: SiblingPaths,
    weights: Mapping[Mark, int],
    read: Callable[[Head], Array] | None = None,
    room: Room | None = None,
) -> Iterator[Piece]:
    """The paths of ``fans`` with weight; ``read``: the readout of a head, ``[d_head, width]``, if not ``fans.cols``.

    Paths through no head are read directly.
    """
    return _pieces(fans, weights, _Reads(fans, read or fans.cols), room or Room())


def _pieces(fans: SiblingPaths, weights: Mapping[Mark, int], reads: _Reads, room: Room) -> Iterator[Piece]:
    for order in fans.orders(weights):
        if order == 0:
            kept, marks = fans.kept_direct(weights)
            for k, mark in zip(range(len(marks)) if kept is None else kept, marks, strict=True):
                value = fans.direct(fans.paths.direct[k])[None]
                out = room.take(value.shape, fans.dtype)
                out[...] = value
                yield Piece([mark], out, bool(np.isfinite(out).all()))
            continue
        for fan in fans.fans(order, weights):
            kept, marks = fans.kept(fan, weights)
            yield from _read(fans, fan, reads, kept, marks, room)


def _read(
    fans: SiblingPaths, fan: Siblings, reads: _Reads, kept: list[int] | None, marks: list[Mark], room: Room
) -> Iterator[Piece]:
    batch, heads, n, sources, d = fan.z.shape
    safe = fans.most / (2 * d)  # products of largest numbers up to this give sums in range
    z = fan.z.transpose(1, 3, 0, 2, 4)
    if fans.scales_rows:
        z = z * fans.row_scale[..., None]  # applied where it is narrow
    z = z.reshape(heads * sources, batch * n, d)
    z, at, width = z if kept is None else z[kept], 0, reads.width(fan.layer)
    size = largest_number(z)
    for paths, cols, largest in _parts(fan, reads, kept, room.most(batch * n * width)):
        part, out = z[at : at + paths], room.take((paths, batch * n, width), fans.dtype)
        if len(cols) in (1, paths):
            np.matmul(part, cols, out=out)
        else:
            shape = len(cols), paths // len(cols)
            np.matmul(part.reshape(*shape, *part.shape[1:]), cols[:, None], out=out.reshape(*shape, *out.shape[1:]))
        yield Piece(marks[at : at + paths], out.reshape(paths, batch, n, width), size * largest < safe)
        at += paths


def _parts(fan: Siblings, reads: _Reads, kept: list[int] | None, most: int) -> Iterator[tuple[int, Array, float]]:
    """A fan's paths, ``most`` at a time: how many, the readout of their heads (of one, of each, or of as many as
    divide the paths evenly), and its largest number."""
    sources = int(fan.z.shape[3])
    each = sources if kept is None else 1
    whole = reads.layer(fan.layer) if most >= each and (kept is None or sources == 1) else None
    if whole is not None:
        heads = fan.heads if kept is None else [fan.heads[k] for k in kept]
        side_by_side = heads[-1:] == [heads[0] + len(heads) - 1] if heads else True  # they increase
        step = most // each
        for at in range(0, len(heads), step):
            some = heads[at : at + step]
            cols = whole[0][some[0] : some[0] + len(some)] if side_by_side else whole[0][some]
            yield len(some) * each, cols, whole[1]
        return
    paths_of = dict.fromkeys(range(len(fan.heads)), sources) if kept is None else Counter(k // sources for k in kept)
    for head, paths in paths_of.items():
        cols, largest = reads.head(fan.layer, fan.heads[head])
        for at in range(0, paths, most):
            yield min(most, paths - at), cols[None], largest


class _Reads:
    """The readout of heads, ``[d_head, width]`` each, with its largest number; cached if it is small."""

    def __init__(self, fans: SiblingPaths, read: Callable[[Head], Array]) -> None:
        self.fans, self.read = fans, read
        self._held: dict[int, tuple[Array, float]] = {}
        self._firsts: dict[int, tuple[Head, Array]] = {}
        self._bytes = 0

    def width(self, layer: int) -> int:
        """The width of the readout of a layer's heads."""
        return int(self._first_of(layer)[1].shape[-1])

    def _first_of(self, layer: int) -> tuple[Head, Array]:
        """The first head of a layer, and its readout."""
        if layer not in self._firsts:
            head = self.fans.paths.layer_heads[layer][0]
            self._firsts[layer] = head, self.read(head)
        return self._firsts[layer]

    def _read(self, layer: int, head: Head) -> Array:
        first, found = self._first_of(layer)
        return found if head == first else self.read(head)

    def layer(self, layer: int) -> tuple[Array, float] | None:
        """For all heads of a layer, ``[heads, d_head, width]``; None if that is too much to cache."""
        if layer in self._held:
            return self._held[layer]
        heads = self.fans.paths.layer_heads[layer]
        if self._bytes + len(heads) * self.fans.d_head * self.width(layer) * self.fans.dtype.itemsize > _READ_BYTES:
            return None
        made = np.stack([self._read(layer, head) for head in heads])
        self._bytes += made.nbytes
        self._held[layer] = made, largest_number(made)
        return self._held[layer]

    def head(self, layer: int, place: int) -> tuple[Array, float]:
        """For one head."""
        if layer in self._held:
            made, largest = self._held[layer]
            return made[place], largest
        found = self._read(layer, self.fans.paths.layer_heads[layer][place])
        return found, largest_number(found)


def largest_number(array: Array) -> float:
    """The largest absolute value; infinite if there is a nan, because comparisons with nan are false.

    >>> largest_number(np.array([1.0, -3.0])), largest_number(np.array([1.0, np.nan]))
    (3.0, inf)
    """
    found = max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    return math.inf if math.isnan(found) else found
