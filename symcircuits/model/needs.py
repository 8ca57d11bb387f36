"""The needs of a run: weights in its dtype, converted on demand, and memory, checked before it starts.

A model may be larger than the free memory: its weights are then in a mapped file. So a run does not convert
all of them at once, looks up rows of the embedding before converting them, and caches converted weights only if
they are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array, transpose
from symcircuits.work.memory import free_memory, gigabytes

if TYPE_CHECKING:
    from symcircuits.model.transformer import Model

__all__ = ["Converted", "check_run", "dtype_of", "embedded"]

_LITTLE = 2**16  # bytes that are always free
_LEAST_KEPT = 2**30  # bytes of converted weights cached even if little memory is free


@final
class Converted(Mapping[str, Array]):
    """Weights in one dtype, by name; those stored in it are returned themselves.

    Others are converted on demand, and cached up to a quarter of the free memory (1 GiB at least);
    beyond that they are converted each time.
    """

    __slots__ = ("_left", "_made", "dtype", "stored")

    def __init__(self, stored: Mapping[str, Array], dtype: np.dtype[Any]) -> None:
        self.stored, self.dtype = stored, dtype
        self._made: dict[str, Array] = {}
        self._left: int | None = None  # bytes that may still be cached, once something is converted

    def __getitem__(self, name: str) -> Array:
        if name in self._made:
            return self._made[name]
        stored = self.stored[name]
        if stored.dtype == self.dtype:
            return self._made.setdefault(name, stored)
        array = stored.astype(self.dtype)
        if array.dtype != stored.dtype:
            if self._left is None:
                self._left = max(_LEAST_KEPT, (free_memory() or 0) // 4)
            array.flags.writeable = False  # owned by this object
            if array.nbytes <= self._left:
                self._made[name] = array
                self._left -= array.nbytes
        return array

    def __contains__(self, name: object) -> bool:
        return name in self.stored  # without converting

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def dtype_of(w: Mapping[str, Array]) -> np.dtype[Any]:
    """The dtype of weights."""
    return w.dtype if isinstance(w, Converted) else w["W_E"].dtype


def embedded(w: Mapping[str, Array], tokens: npt.NDArray[np.int64]) -> Array:
    """``t W_E^T``: a row of the embedding for each token, looked up before the conversion."""
    stored = w.stored if isinstance(w, Converted) else w
    return np.asarray(transpose(stored["W_E"])[tokens], dtype_of(w))


def check_run(model: Model, tokens: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> None:
    """Raise ValueError, with the memory that a run needs, if that is more than is free."""
    needed = _needed(model, tokens, dtype)
    free = free_memory() if needed > _LITTLE else None  # the free memory is read from a file
    if free is None or needed <= free:
        return
    less = _needed(model, tokens, np.dtype(np.float32))
    hint = f"; in float32 it takes {gigabytes(less)}" if less < needed else ""
    raise ValueError(
        f"a run of this model on tokens of shape {list(tokens.shape)} in {dtype} takes {gigabytes(needed)} of memory, "
        f"and {gigabytes(free)} are free{hint}; give fewer tokens at a time, or use a machine with more"
    )


def _needed(model: Model, tokens: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> int:
    """Bytes of the record, and of the largest weight that must be converted."""
    arch, n = model.architecture, tokens.shape[-1]
    heads, layers = len(arch.all_heads), arch.n_layers
    streams = (layers + 1 + heads + len(arch.mlps)) * model.d_model + 2 * (model.d_vocab_out or 0)
    inner = max((w.shape[0] for name, w in model.weights.items() if name.startswith("W_in_")), default=0)
    numbers = tokens.size * (streams + 2 * inner + 3 * heads * n)
    others = [w.size for name, w in model.weights.items() if w.dtype != dtype and name != "W_E"]
    return int((numbers + max(others, default=0)) * dtype.itemsize)
