"""Norms of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["frobenius", "frobenius_each"]

_MANY = 2**18  # numbers
_LEAST = 1e-200  # sums of squares from here on lost nothing to underflow


def frobenius(value: npt.NDArray[Any]) -> float:
    """Frobenius norm in float64, without overflow of intermediate results."""
    largest = float(np.abs(value).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    scaled = (value.astype(np.float64) / largest).ravel()
    return largest * math.sqrt(scaled @ scaled)


def frobenius_each(values: npt.NDArray[Any], axes: int = 1) -> npt.NDArray[Any]:
    """The same for each array along the first axes, ``axes`` of them."""
    shape = values.shape[:axes]
    if values.size > _MANY:  # uses only as much memory as one array
        return np.array([frobenius(values[at]) for at in np.ndindex(shape)]).reshape(shape)
    flat = np.asarray(values.reshape(*shape, -1), np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("...i,...i->...", flat, flat)
    usual = (squares > _LEAST) & (squares < 1 / _LEAST)
    if usual.all() or not flat[~usual].any():  # the others are zero
        return np.asarray(np.sqrt(squares))
    largest = np.abs(flat).max(axis=-1, initial=0.0)
    usual = (largest > 0) & np.isfinite(largest)
    scaled = flat / np.where(usual, largest, 1.0)[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(usual, largest * np.sqrt(np.einsum("...i,...i->...", scaled, scaled)), largest))
