"""Norms of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["frobenius"]


def frobenius(value: npt.NDArray[Any]) -> float:
    """Frobenius norm, in float64 and free of overflow on the way."""
    largest = float(np.abs(value).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(value.astype(np.float64) / largest))
