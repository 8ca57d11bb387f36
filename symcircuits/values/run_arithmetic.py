"""Arithmetic with NumPy: numbers are written into given memory, norms of scores come from Gram matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.values.engine import Meeting, Room
from symcircuits.values.sibling_reads import largest_number

__all__ = ["RunArithmetic"]

_KEY_BYTES = 2**26  # of prepared key paths
_KEYS = 256  # key paths prepared at a time
_MADE_BYTES = 2**24  # of these, prepared for masked norms


class RunArithmetic(NamedTuple):
    """See :class:`symcircuits.values.engine.Arithmetic`; ``shape``: of a term's value, ``d_head``: of queries."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    d_head: int = 0

    @property
    def kept(self) -> int:
        """Bytes of prepared key paths to cache."""
        return _KEY_BYTES

    @property
    def rows(self) -> int:
        """The length of the one batch axis."""
        return prod(self.shape[:-2])

    def joined(self, parts: Sequence[Array], axis: int = 0) -> Array:
        """Arrays concatenated."""
        return np.concatenate(parts, axis)

    def flat(self, block: Array, shape: tuple[int, ...]) -> Array:
        """A block reshaped."""
        return block.reshape(shape)

    def bytes_of(self, made: Any) -> int:
        """The memory of a tuple of arrays."""
        return sum(part.nbytes for part in made if isinstance(part, np.ndarray))

    def packed(self, pieces: Iterable[Array], size: int, total: int, wide: bool) -> Iterator[Array]:
        """Pieces ``[terms, batch]`` of any length, written into blocks of ``size`` terms, ``total`` in all."""
        canvas, at, kind = None, 0, np.float64 if wide else self.dtype
        for piece in pieces:
            done = 0
            if canvas is None and 0 < len(piece) == total <= size and piece.dtype == kind:
                yield piece
                return
            while done < len(piece):
                if canvas is None:
                    canvas = np.empty((min(size, total), self.rows), kind)
                n = min(len(piece) - done, len(canvas) - at)
                canvas[at : at + n] = piece[done : done + n]
                at, done = at + n, done + n
                if at == len(canvas):
                    yield canvas
                    total, at, canvas = total - at, 0, None

    def lengths(self, block: Array) -> Array:
        """Norms in float64, ``[paths, batch]``."""
        return lengths(block)

    def lengths_of_pairs(self, mask: Array | None) -> Meeting:
        """Gram matrices, ``|Q K^T|^2 = <Q^T Q, K^T K>``; if a mask leaves few positions, terms are formed."""
        if mask is None:
            return _Grams()
        n, d = self.shape[-1], self.d_head
        numbers = _MADE_BYTES // (8 * max(1, self.rows))
        if 2 * n > d + 1:  # n d (d + 1) multiplications per pair, not 2 n^2 d
            return _MaskedGrams(mask, max(1, 2 * numbers // (n * d * (d + 1))))
        return _Direct(mask, max(1, int(np.sqrt(numbers)) // n))

    def entries_of_pairs(self) -> Meeting:
        """Entries, by one product for many of them."""
        return _Entries()

    def scores_of_pairs(self, room: Room) -> Meeting:
        """Products written into given memory."""
        return _Scores(room, self.shape)


def lengths(block: Array) -> Array:
    """The Frobenius norms of ``[paths, batch, n, width]`` in float64, without overflow or underflow.

    Called with warnings off: squares that leave the range are computed again from scaled numbers.
    """
    flat = block.reshape(*block.shape[:2], -1)
    wide = flat.astype(np.float64, copy=False)
    squared = np.asarray(wide[..., None, :] @ wide[..., None])[..., 0, 0]
    if np.count_nonzero((squared > 1e-200) & (squared < 1e200)) == squared.size:
        return np.asarray(np.sqrt(squared))
    most = np.abs(wide).max(-1, initial=0.0, keepdims=True)
    scaled = wide / np.where(most > 0, most, 1.0)
    return np.asarray(np.sqrt((scaled**2).sum(-1)) * most[..., 0])


def _unit(block: Array) -> tuple[Array, Array]:
    """``[paths, batch, n, d]`` divided by their largest numbers, and these, ``[paths, batch]``; in float64."""
    wide = block.astype(np.float64, copy=False)
    most = np.abs(wide).max((-1, -2), initial=0.0)
    return wide / np.where(most > 0, most, 1.0)[..., None, None], most


def _packed(outer: Array, cross: float) -> Array:
    """The upper triangle of symmetric matrices ``[..., d, d]``; entries off the diagonal times ``cross``."""
    d = outer.shape[-1]
    rows, cols, counted = _triangle(d, cross)
    return np.asarray(outer[..., rows, cols] * counted)


@lru_cache(maxsize=16)
def _triangle(d: int, cross: float) -> tuple[Array, Array, Array]:
    """The rows and columns of an upper triangle, and 1 on its diagonal, ``cross`` off it."""
    rows, cols = np.triu_indices(d)
    return rows, cols, np.where(rows == cols, 1.0, cross)


_Made = tuple[Array, Array]  # paths scaled to size one, and their sizes ``[paths, batch]``


def _sized(found: Array, query: _Made, key: _Made) -> Array:
    """Norms of pairs of size one, ``[batch, queries, keys]``, times the sizes of both: ``[queries, keys, batch]``."""
    found *= query[1].T[:, :, None]
    found *= key[1].T[:, None, :]
    return found.transpose(1, 2, 0)


class _Grams:
    """``<Q^T Q, K^T K>``, by the upper triangles, with entries off the diagonal counted twice."""

    def __init__(self, keys: int = _KEYS, queries: int = 0) -> None:
        self.keys, self.queries = keys, queries

    def _made(self, block: Array, cross: float) -> _Made:
        unit, most = _unit(block)
        return _packed(unit.swapaxes(-1, -2) @ unit, cross), most

    def query(self, block: Array) -> _Made:
        return self._made(block, 2.0)

    def key(self, block: Array) -> _Made:
        return self._made(block, 1.0)

    def met(self, query: _Made, key: _Made) -> Array:
        """``[queries, keys, batch]``."""
        squared = np.asarray(query[0].swapaxes(0, 1) @ key[0].transpose(1, 2, 0))
        np.maximum(squared, 0.0, out=squared)  # nan stays nan
        return _sized(np.sqrt(squared, out=squared), query, key)


class _MaskedGrams(_Grams):
    """``sum_i <q_i^T q_i, sum_j M_ij k_j^T k_j>``: the sums over keys once for each key path."""

    def __init__(self, mask: Array, size: int) -> None:
        super().__init__(min(_KEYS, size), min(_KEYS, size))
        self.mask = mask

    def _made(self, block: Array, cross: float) -> _Made:
        unit, most = _unit(block)
        rows, cols, counted = _triangle(unit.shape[-1], cross)
        found = unit[..., rows] * counted
        found *= unit[..., cols]
        return found, most

    def query(self, block: Array) -> _Made:
        found, most = self._made(block, 2.0)
        return found.reshape(*found.shape[:2], -1), most

    def key(self, block: Array) -> _Made:
        found, most = self._made(block, 1.0)
        return (self.mask @ found).reshape(*found.shape[:2], -1), most


class _Direct:
    """Each term formed and measured where the mask leaves it: less work for few positions."""

    def __init__(self, mask: Array, size: int) -> None:
        self.mask, self.keys, self.queries = mask, size, size

    def query(self, block: Array) -> _Made:
        return _unit(block)

    key = query

    def met(self, query: _Made, key: _Made) -> Array:
        """``[queries, keys, batch]``."""
        terms = query[0][:, None] @ key[0].swapaxes(-1, -2) * self.mask
        return _sized(np.sqrt(np.einsum("qkbij,qkbij->bqk", terms, terms)), query, key)


class _Entries:
    """``<q_p, k_r>`` of paths at one position each."""

    keys, queries = 1 << 12, 64  # one position of each: keys are small, and products stay in the cache

    def query(self, block: Array) -> Array:
        """``[batch, queries, d_head]``."""
        return block[:, :, 0].swapaxes(0, 1)

    def key(self, block: Array) -> tuple[Array]:
        """``[batch, d_head, keys]``."""
        return (np.ascontiguousarray(block[:, :, 0].transpose(1, 2, 0)),)

    def met(self, query: Array, key: tuple[Array]) -> Array:
        """``[queries, keys, batch]``."""
        return np.asarray(query @ key[0]).transpose(1, 2, 0)


class _Scores:
    """Scores of query paths and key paths, written into given memory: ``[keys, ..., n, n]``, for several query paths
    one after another."""

    def __init__(self, room: Room, shape: tuple[int, ...]) -> None:
        self.room, self.shape, self.keys, self.queries = room, shape, room.most(prod(shape)), 0

    def query(self, block: Array) -> tuple[Array, float]:
        """One query path ``[batch, n, d_head]``, or some, and the largest entry of a key for which no sum overflows."""
        most = float(np.finfo(block.dtype).max)
        return block, most / max(1.0, 2 * block.shape[-1] * largest_number(block))

    def key(self, block: Array) -> tuple[Array, float]:
        """Keys as columns, one after the other in memory, so their products are fastest; their largest number."""
        return np.ascontiguousarray(block.swapaxes(-1, -2)), largest_number(block)

    def met(self, query: tuple[Array, float], key: tuple[Array, float]) -> tuple[Array, bool]:
        """Scores, and whether they are known to be finite."""
        (block, safe), (columns, largest) = query, key
        some = () if block.ndim == 3 else (len(block),)
        tile = self.room.take((*some, *columns.shape[:2], *self.shape[-2:]), block.dtype)
        np.matmul(block[:, None] if some else block, columns, out=tile)
        return tile.reshape(-1, *self.shape), largest < safe
