"""Norms of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["frobenius"]


def frobenius(value: npt.NDArray[Any]) -> float:
    """Frobenius norm, in float64 and free of overflow on the way."""
    largest = float(np.abs(value).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    scaled = (value.astype(np.float64) / largest).ravel()
    return largest * math.sqrt(scaled @ scaled)
