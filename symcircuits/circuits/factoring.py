"""The numbers of typed words, never multiplied out: two thin matrices, and the product between them.

A word of a circuit passes through the spaces of its heads, which are narrow. The factors before the first of them make
one thin matrix, those after the last another; for any vocabulary, the rest is ``d_head x d_head``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.circuits.words import HEAD_SPACES
from symcircuits.core.words import Factor
from symcircuits.model import Model
from symcircuits.model.attending import rotation_over

__all__ = ["Factored", "Numbers", "factored", "triangle"]

Array = npt.NDArray[np.float64]
_BLOCK = 2**21  # numbers converted at a time

# Norms of weights, as stored or scaled.
_NORMS: WeakKeyDictionary[Model, dict[tuple[str, bool], float]] = WeakKeyDictionary()


class Factored(NamedTuple):
    """``left core right^T``: ``left [rows, r]``, ``core [r, s]`` (None: the identity), ``right [columns, s]``.

    ``size``: the product of the norms of all factors, to compare rounding errors with.
    """

    left: Array
    core: Array | None
    right: Array
    size: float


@final
@dataclass(frozen=True, slots=True)
class Numbers:
    """The matrices of a model by their letters, as stored; ``offset``: for rotary positions, key minus query.

    ``scaled``: each divided by a power of two near its largest number, which ratios of norms do not depend on, so no
    product leaves the range of float64.
    """

    model: Model
    offset: int = 0
    scaled: bool = False

    def of(self, factor: Factor) -> Any:
        """The matrix of a factor: an array of the stored type, or a structured matrix."""
        symbol = factor.symbol
        if symbol.glyph == "C":
            return Centring(self.model.d_model)
        if symbol.glyph == "R":
            size = len(self.model.weights[f"W_Q_{symbol.label}"])
            turned = rotation_over(self.offset, size, self.model.settings.rotary)
            return turned.T if factor.transposed else turned
        stored = self.model.weights["W_pos" if symbol.glyph == "P" else symbol.argument]
        if symbol.glyph == "gain":
            return Diagonal(self._scaled(stored.astype(np.float64)))
        array = self._scaled(stored.astype(np.float64)) if self.scaled else stored
        return array.T if factor.transposed else array

    def size(self, factor: Factor, array: Any) -> float:
        """A norm of one factor, whose matrix is given; norms of weights are cached with the model."""
        if isinstance(array, Centring):
            return 1.0
        if isinstance(array, Diagonal):
            return float(np.abs(array.entries).max())
        known, key = _NORMS.setdefault(self.model, {}), (factor.symbol.argument, self.scaled)
        if factor.symbol.glyph == "R" or key not in known:
            known[key] = frobenius(array)
        return known[key]

    def _scaled(self, array: Array) -> Array:
        largest = float(np.abs(array).max()) if self.scaled else 0.0
        return np.ldexp(array, -math.frexp(largest)[1]) if largest else array


def factored(factors: Sequence[Factor], numbers: Numbers) -> Factored:
    """A word of two matrices or more as thin ones, split in the spaces of its heads; raises ValueError beyond float64.

    >>> import symcircuits as sc
    >>> from symcircuits.circuits.words import qk_word
    >>> model = sc.random_model(sc.attention_only((1,)), d_model=16, d_head=4)
    >>> found = factored(qk_word(model.architecture, model.architecture.head("L0H0")), Numbers(model))
    >>> found.left.shape, found.core, found.right.shape
    ((16, 4), None, (16, 4))
    >>> bool(np.allclose(found.left @ found.right.T, model.weights["W_Q_L0H0"].T @ model.weights["W_K_L0H0"]))
    True
    """
    narrow = [i for i, factor in enumerate(factors) if factor.col.space.kind in HEAD_SPACES]
    first, last = (
        (narrow[0], narrow[-1]) if narrow else (0, len(factors) - 2)
    )  # for the direct path, as wide as the stream
    arrays = [numbers.of(factor) for factor in factors]
    with np.errstate(over="ignore", invalid="ignore"):
        left = _outward(arrays[first::-1])
        right = _outward([_turned(a) for a in arrays[last + 1 :]])
        core: Array | None = None
        for array in arrays[first + 1 : last + 1]:
            core = np.asarray(_wide(array) if core is None else core @ _wide(array))
        size = math.prod(map(numbers.size, factors, arrays))
    if not all(np.isfinite(part).all() for part in (left, right, core) if part is not None):
        raise ValueError("the product of the weights leaves the range of float64: scale the weights")
    return Factored(left, core, right, size)


def triangle(thin: Array) -> Array:
    """``R`` with ``R^T R = thin^T thin``, by QR, so the condition is not squared: as long as ``thin`` is wide."""
    return np.asarray(np.linalg.qr(thin, mode="r"))


def _turned(array: Any) -> Any:
    return array.swapaxes(-1, -2)


def _wide(array: Any) -> Any:
    """In float64, unless it is a structured matrix."""
    return array.astype(np.float64, copy=False) if isinstance(array, np.ndarray) else array


def _outward(arrays: Sequence[Any]) -> Array:
    """The product ``... arrays[1] arrays[0]``, starting at the thin one; large arrays are converted by rows."""
    found = np.array(arrays[0], np.float64)
    for array in arrays[1:]:
        if not isinstance(array, np.ndarray) or array.dtype == np.float64:
            found = array @ found
            continue
        each = max(_BLOCK // array.shape[1], 1)
        parts = [array[at : at + each].astype(np.float64) @ found for at in range(0, len(array), each)]
        found = np.concatenate(parts)
    return found
