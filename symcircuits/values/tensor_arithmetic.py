"""Arithmetic by functions of the array API standard alone: nothing is overwritten, and gradients pass through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from symcircuits.arrays.namespaces import Namespace
from symcircuits.values.engine import Meeting, Room, gathered

__all__ = ["TensorArithmetic"]

_KEY_BYTES = 2**29  # of key vectors
_KEYS = 2**12  # key paths whose one row is combined with a query path at a time
_TOGETHER = 2**20  # numbers in one product of a query path and key paths, by default


class TensorArithmetic(NamedTuple):
    """See :class:`symcircuits.values.engine.Arithmetic`; ``shape``: of the tokens."""

    ring: Namespace
    shape: tuple[int, ...]

    @property
    def kept(self) -> int:
        """Bytes of key vectors to cache."""
        return _KEY_BYTES

    def joined(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Arrays concatenated."""
        return self.ring.xp.concat(parts, axis=axis)

    def flat(self, block: Any, shape: tuple[int, ...]) -> Any:
        """A block reshaped."""
        return block if tuple(block.shape) == shape else self.ring.xp.reshape(block, shape)

    def bytes_of(self, made: Any) -> int:
        """The memory of one array."""
        return int(prod(made.shape) * self.ring.xp.finfo(self.ring.dtype).bits // 8)

    def packed(self, pieces: Iterable[Any], size: int, total: int, wide: bool) -> Iterator[Any]:
        """Blocks, concatenated or cut; the type stays."""
        return gathered(pieces, size, self.joined)

    def lengths(self, block: Any) -> Any:
        """Norms in the type of the arrays."""
        return _lengths(block, self.ring)

    def lengths_of_pairs(self, mask: Any) -> Meeting:
        """Each term is formed: gradients of Gram matrices have larger rounding errors."""
        return _Lengths(self.ring, self._together(), mask)

    def entries_of_pairs(self) -> Meeting:
        """A query's row times the keys' rows."""
        return _Entries(self.ring, _KEYS)

    def scores_of_pairs(self, room: Room) -> Meeting:
        """Every block is an array of its own."""
        each = prod(self.shape) * self.shape[-1]
        return _Scores(self.ring, room.most(each) if room.numbers else self._together())

    def _together(self) -> int:
        return max(1, _TOGETHER // max(1, prod(self.shape) * self.shape[-1]))


class _Meeting:
    """Query paths one by one, with ``keys`` key paths; all are unchanged."""

    queries = 1

    def __init__(self, ring: Namespace, keys: int, mask: Any = None) -> None:
        self.ring, self.keys, self.mask = ring, keys, mask

    def query(self, block: Any) -> Any:
        return block

    def key(self, block: Any) -> Any:
        return block


class _Scores(_Meeting):
    def met(self, query: Any, key: Any) -> tuple[Any, bool]:
        """``q k^T`` of one query path ``[..., n, d_head]``; never known to be finite."""
        return query @ self.ring.transpose(key), False


class _Lengths(_Meeting):
    def met(self, query: Any, key: Any) -> Any:
        """``[1, keys, ...]``."""
        block = query @ self.ring.transpose(key)
        return _lengths(block if self.mask is None else block * self.mask, self.ring)[None, ...]


class _Entries(_Meeting):
    def met(self, query: Any, key: Any) -> Any:
        """``[1, keys, ...]``, from vectors at one position each."""
        return self.ring.xp.sum(query[..., 0, :] * key[..., 0, :], axis=-1)[None, ...]


def _lengths(block: Any, ring: Namespace) -> Any:
    """Frobenius norms of matrices, without overflow or underflow."""
    xp = ring.xp
    most = xp.max(xp.abs(block), axis=(-2, -1), keepdims=True)
    one, none = xp.ones_like(most), most == 0
    scaled = block / xp.where(none, one, most)
    squared = xp.sum(scaled * scaled, axis=(-2, -1), keepdims=True)
    length = xp.sqrt(xp.where(none, one, squared)) * most  # the root has no derivative at 0
    return length[..., 0, 0]
