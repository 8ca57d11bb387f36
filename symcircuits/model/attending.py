"""The effect of positions on scores: rotations of queries and keys, ALiBi's slopes, and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array
from symcircuits.core.text import amount, brief, shown

__all__ = [
    "Attended", "Rotary", "alibi", "alibi_slopes", "check_seen", "check_windows", "mask", "read_mask", "rotate",
    "rotation_over", "rotations",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions: the first ``dim`` entries of queries and keys (None: as many as form pairs) are rotated.

    Pair m of the row at position i rotates by ``i base^(-2 m / dim)``, or by ``i frequencies[m]`` if they are given.
    Pairs are entries m and m + dim / 2, or with ``adjacent`` 2 m and 2 m + 1. Raises ValueError on an odd or negative
    dim, a base that is not positive, or the wrong number of frequencies. Source: Su et al. (2021), "RoFormer".

    >>> Rotary(dim=4).angles(4).tolist()
    [1.0, 0.01]
    """

    dim: int | None = None
    base: float = 10_000.0
    adjacent: bool = False
    frequencies: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.dim is not None and (type(self.dim) is not int or self.dim < 0 or self.dim % 2):
            raise ValueError(f"rotary positions rotate pairs: dim must be an even whole number, not {brief(self.dim)}")
        if isinstance(self.base, bool) or not 0 < self.base < math.inf:
            raise ValueError(f"the base of rotary positions must be a positive number, not {brief(self.base)}")

    def _dim(self, d_head: int) -> int:
        return d_head - d_head % 2 if self.dim is None else self.dim

    def angles(self, d_head: int) -> Array:
        """The angle of each pair for one step, ``[dim / 2]``; raises ValueError if d_head is too small for them."""
        dim = self._dim(d_head)
        if dim > d_head:
            raise ValueError(f"rotary positions cannot rotate {dim} of the {d_head} entries of queries and keys")
        if self.frequencies is not None:
            if len(self.frequencies) != dim // 2:
                raise ValueError(f"rotary positions have {dim // 2} pairs, but {len(self.frequencies)} frequencies")
            return np.asarray(self.frequencies, np.float64)
        return self.base ** (-2 * np.arange(dim // 2) / dim) if dim else np.zeros(0)

    def pairs(self, d_head: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The first and the second entry of every pair."""
        half = np.arange(self._dim(d_head) // 2)
        return (2 * half, 2 * half + 1) if self.adjacent else (half, half + len(half))


def rotate(rows: Array, rotary: Rotary) -> Array:
    """Queries or keys ``[..., n, d_head]``, row i rotated for position i; an isometry.

    >>> turned = rotate(np.array([[1.0, 0.0], [1.0, 0.0]]), Rotary())
    >>> np.round(turned, 3).tolist()
    [[1.0, 0.0], [0.54, 0.841]]
    """
    cosine, sine = _turns(rows.shape[-2], rows.shape[-1], rotary, rows.dtype)
    first, second = rotary.pairs(rows.shape[-1])
    turned, a, b = rows.copy(), rows[..., first], rows[..., second]
    turned[..., first], turned[..., second] = a * cosine - b * sine, b * cosine + a * sine
    return turned


def _turns(n: int, d_head: int, rotary: Rotary, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    angles = np.outer(np.arange(n), rotary.angles(d_head))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotations(n: int, d_head: int, rotary: Rotary, dtype: npt.DTypeLike = np.float64) -> Array:
    """The matrices ``R_i [n, d_head, d_head]`` that multiply row i from the right: ``q_i R_i``.

    So ``(q_i R_i)(k_j R_j)^T`` depends on the positions through ``R_i R_j^T``, that is, on j - i alone.

    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> turned = np.stack([row @ r for row, r in zip(rows, rotations(3, 2, Rotary()))])
    >>> bool(np.allclose(turned, rotate(rows, Rotary())))
    True
    """
    cosine, sine = _turns(n, d_head, rotary, dtype)
    first, second = rotary.pairs(d_head)
    matrices = np.zeros((n, d_head, d_head), dtype)
    matrices[:] = np.eye(d_head, dtype=dtype)
    matrices[:, first, first], matrices[:, second, second] = cosine, cosine
    matrices[:, first, second], matrices[:, second, first] = sine, -sine
    return matrices


def rotation_over(offset: int, d_head: int, rotary: Rotary) -> Array:
    """``R_i R_j^T [d_head, d_head]`` of a query i and a key j = i + offset: the factor between ``W_Q^T`` and ``W_K``.

    >>> between = rotations(4, 2, Rotary())
    >>> bool(np.allclose(rotation_over(-2, 2, Rotary()), between[3] @ between[1].T))
    True
    """
    first, second = rotary.pairs(d_head)
    angles = -offset * rotary.angles(d_head)
    found = np.eye(d_head)
    found[first, first], found[second, second] = np.cos(angles), np.cos(angles)
    found[first, second], found[second, first] = np.sin(angles), -np.sin(angles)
    return found


def alibi_slopes(n_heads: int, geometric: bool = False) -> Array:
    """The slope of every head: ``2^(-8 h / H)``, h counted from 1; for H between two powers of two, those of both.

    The first ``2^floor(log2 H)`` heads have the slopes of that power, the others every second slope of the next.
    ``geometric``: ``2^(-8 h / H)`` for any H, in float32, as TransformerLens computes them in a model of any type.
    Source: Press, Smith and Lewis (2021), "Train Short, Test Long", and the code published with it.

    >>> alibi_slopes(4).tolist(), alibi_slopes(3).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    if geometric:
        first = np.float32(2.0 ** (-8 / max(n_heads, 1)))
        return np.asarray(first * (np.float64(first) ** np.arange(n_heads)).astype(np.float32))
    power = 1 << max(n_heads.bit_length() - 1, 0)
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    if power < n_heads:
        slopes = np.concatenate([slopes, 2.0 ** (-8 * np.arange(1, 2 * power + 1, 2) / (2 * power))])
    return np.asarray(slopes[:n_heads])


def alibi(slope: float | np.floating[Any], n: int, dtype: npt.DTypeLike = np.float64) -> Array:
    """``-slope |i - j|``, ``[n, n]``: what ALiBi adds to the scores of query i and key j, after their scale.

    The product is taken in the type of the slope.
    """
    steps = np.arange(n, dtype=np.asarray(slope).dtype)
    return np.asarray(-slope * np.abs(steps[:, None] - steps[None, :]), dtype=dtype)


@lru_cache(maxsize=2)  # the layers of a model share one, or two
def mask(n: int, causal: bool, window: int | None = None) -> npt.NDArray[np.bool_]:
    """Which keys (columns) a query (row) attends to: itself and earlier ones, or all; of these, those in its window.

    ``window`` is the number of keys, the query's own included, that a causal query sees, and as many on the other
    side if attention is bidirectional.

    >>> mask(3, True, 2).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    every = np.ones((n, n), dtype=bool)
    seen = np.tril(every) if causal else every
    seen = seen if window is None else seen & _near(n, causal, window)
    seen.flags.writeable = False
    return seen


def _near(n: int, causal: bool, window: int) -> npt.NDArray[np.bool_]:
    """The keys in a query's window; later keys, in bidirectional attention, are all in it."""
    near = np.triu(np.ones((n, n), dtype=bool), 1 - window)
    return near if causal else np.tril(near, window - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """A mask that replaces the model's own: ``allowed [n, n]`` or ``[batch, n, n]``, and numbers ``added`` to scores.

    ``added``: None if nothing is added, else an array of the same shape, 0 where masked.
    """

    allowed: npt.NDArray[np.bool_]
    added: Array | None = None

    def within(self, causal: bool, window: int | None) -> npt.NDArray[np.bool_]:
        """The keys that a layer with that window attends to."""
        seen = self.allowed if window is None else self.allowed & _near(self.allowed.shape[-1], causal, window)
        seen.flags.writeable = False
        return seen


_MASKS = "a mask holds booleans (True: the query may attend to the key), or numbers that are added to scores"


def read_mask(given: Any, shape: tuple[int, ...]) -> Attended:
    """A mask for tokens of that shape: ``[n, n]``, or ``[batch, n, n]`` with a batch; rows are queries, columns keys.

    Booleans: True if the query may attend to the key. Floating-point numbers are added to the scores before softmax;
    minus infinity masks, and so does the lowest number of their type, which libraries use for it.
    Raises ValueError on another shape, on other types (integers included), and on numbers that are nan or plus
    infinity.

    >>> read_mask([[True, False], [True, True]], (2,)).allowed.tolist()
    [[True, False], [True, True]]
    >>> read_mask(np.array([[0.0, -np.inf], [-1.5, 0.0]]), (2,)).added.tolist()
    [[0.0, 0.0], [-1.5, 0.0]]
    """
    array = _mask_array(given)
    n, batch = shape[-1], shape[:-1]
    if array.shape not in ((n, n), (*batch, n, n)):
        expected = f"[{n}, {n}]" + (f" or {[*batch, n, n]}" if batch else "")
        padding = "; of padding say for each query which keys are left: padding[:, None, :] & causal" * (
            array.shape == shape
        )
        raise ValueError(f"the mask has shape {list(array.shape)}; expected {expected}{padding}")
    if array.dtype.kind == "b":
        return Attended(array.copy())
    lowest = 0.99 * float(np.finfo(array.dtype).min)  # also of bfloat16, which is widened
    bad = ~(array < np.inf)
    if bad.any():
        place = [int(i) for i in np.argwhere(bad)[0]]
        raise ValueError(f"the mask holds {array[tuple(place)]} at {place}; numbers added to scores: finite, or -inf")
    allowed = array > lowest
    added = np.where(allowed, array, 0).astype(np.float64)
    added.flags.writeable = False
    return Attended(allowed, added if added.any() else None)


def _mask_array(given: Any) -> npt.NDArray[Any]:
    """The argument (a list, an array, a tensor) as an array of booleans or floating-point numbers."""
    tensor = given.detach() if hasattr(given, "detach") else given
    tensor = tensor.cpu() if hasattr(tensor, "cpu") else tensor
    tensor = tensor.float() if "bfloat16" in str(getattr(tensor, "dtype", "")) and hasattr(tensor, "float") else tensor
    try:
        array = np.asarray(tensor)
    except (TypeError, ValueError, RuntimeError) as fault:
        raise ValueError(f"{_MASKS}; this is a {type(given).__name__}, and cannot be read: {fault!s:.200}") from None
    if array.dtype.kind not in "bf":
        hint = "; if 1 means that a key is seen, give mask.astype(bool)" if array.dtype.kind in "iu" else ""
        raise ValueError(f"{_MASKS}; this one holds {array.dtype}{hint}")
    return array


def check_seen(allowed: npt.NDArray[np.bool_], layer: int, window: int | None) -> None:
    """Raise ValueError if a query is left without keys."""
    alone = ~allowed.any(axis=-1)
    if alone.any():
        *row, query = (int(i) for i in np.argwhere(alone)[0])
        where = f"query {query}" + (f" of row {row[0]}" if row else "")
        why = "" if window is None else f" in the window of layer {layer}, {amount(window, 'key')}"
        raise ValueError(
            f"the mask leaves no key to {where}{why}: a row of a pattern sums to one, so let the query attend to "
            "something (padding to itself: mask[..., i, i] = True)"
        )


def check_windows(windows: Sequence[Any], n_layers: int) -> None:
    """A whole number, 1 or more, or None, for each layer; or no windows at all; otherwise raises ValueError."""
    if windows and len(windows) != n_layers:
        raise ValueError(f"windows must have one entry for each of the {n_layers} layers, not {len(windows)}")
    for layer, w in enumerate(windows):
        if w is not None and (type(w) is not int or w < 1):
            raise ValueError(f"the window of layer {layer} must be a whole number of keys, 1 or more, not {shown(w)}")
