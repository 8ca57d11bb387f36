"""Bounds on products and on the effect of rounding, from which the bounds on partial paths are made.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), section 3.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.structured import Centring, Diagonal

__all__ = ["UNIT", "fewer_columns", "gamma", "largest_row_sum", "size_and_roundings", "spectral"]

Array = npt.NDArray[Any]
UNIT: Final = 2.0**-53  # the unit roundoff of float64
_SQUARINGS = 7


def gamma(k: float) -> float:
    """``k u / (1 - k u)``: the relative effect of k successive roundings on a number."""
    return float(k * UNIT / (1 - k * UNIT))


def spectral(matrices: Array) -> Array:
    """An upper bound on the spectral norms of matrices ``[..., a, b]``, within a few percent, rounding included.

    ``||G||_2 <= tr(G^m)^(1/m)`` for ``G = M^T M`` positive semidefinite, by squaring G again and again.

    >>> bool(np.allclose(spectral(np.diag([3.0, 1.0, 0.0])), 3.0, rtol=0.02))
    True
    """
    if matrices.shape[-1] > matrices.shape[-2]:
        matrices = matrices.swapaxes(-1, -2)
    gram = matrices.swapaxes(-1, -2) @ matrices
    found, power = np.ones(gram.shape[:-2]), 1.0
    for step in range(_SQUARINGS):
        trace = np.trace(gram, axis1=-2, axis2=-1)
        found *= np.maximum(trace, 0.0) ** power
        gram = gram / np.where(trace > 0, trace, 1.0)[..., None, None]
        if step + 1 < _SQUARINGS:
            gram, power = gram @ gram, power / 2
    long, short = matrices.shape[-2:]
    # Rounding changes G by at most gamma_long short ||G||, and each square of it by gamma_short short ||G||^2.
    return np.sqrt(found) * (1 + 4 * gamma(short * (long + 4 * short) + 8 * _SQUARINGS))


def size_and_roundings(matrix: Any) -> tuple[float, int]:
    """A bound on the spectral norm of the absolute values of a factor, and the number of roundings in it."""
    if isinstance(matrix, Centring):
        return 2.0, 2 * matrix.d + 4
    if isinstance(matrix, Diagonal):
        return float(np.abs(matrix.entries).max(initial=0.0)), 1
    return float(np.linalg.norm(matrix)) * (1 + gamma(matrix.size)), 2 * max(matrix.shape[-2:])


def largest_row_sum(rows: Array) -> float:
    """A bound on the largest sum of absolute values of a row."""
    return float(np.abs(rows).sum(-1).max(initial=0.0)) * (1 + gamma(rows.shape[-1]))


def fewer_columns(cols: Array) -> tuple[Array, float]:
    """Columns ``[d, min(d, m)]`` with the same Gram matrix of rows, and the error of the replacement."""
    if cols.shape[1] <= cols.shape[0]:
        return cols, 0.0
    small: Array = np.swapaxes(np.linalg.qr(cols.T, mode="r"), 0, 1)
    return small, gamma(16 * cols.shape[0] * cols.shape[1]) * float(np.linalg.norm(cols))
