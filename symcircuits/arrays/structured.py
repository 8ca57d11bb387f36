"""Matrices of norms, never written out: a diagonal, and the projection that centres rows.

They multiply arrays with ``@`` from either side, and are their own transposes; ``numpy.asarray`` makes them dense.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ["Centring", "Diagonal"]

Array = npt.NDArray[Any]


@final
class Diagonal:
    """``diag(v)`` for ``v [..., n]``: multiplies by scaling rows or columns.

    >>> np.ones((2, 2)) @ Diagonal(np.array([1.0, 3.0]))
    array([[1., 3.],
           [1., 3.]])
    """

    __slots__ = ("entries",)
    __array_ufunc__ = None  # so array @ Diagonal is handled here

    def __init__(self, entries: Array) -> None:
        self.entries = entries

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return (*self.entries.shape, self.entries.shape[-1])

    def swapaxes(self, first: int, second: int) -> Diagonal:
        """The transpose: itself."""
        return self

    def __matmul__(self, other: Any) -> Array:
        return np.asarray(self.entries[..., :, None] * np.asarray(other))

    def __rmatmul__(self, other: Any) -> Array:
        return np.asarray(np.asarray(other) * self.entries[..., None, :])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        dense = self.entries[..., None] * np.eye(self.entries.shape[-1], dtype=self.entries.dtype)
        return np.asarray(dense, dtype=dtype)


@final
class Centring:
    """``I - 1 1^T / d``: subtracts the mean of rows (from the right) or columns (from the left).

    >>> np.array([[1.0, 3.0]]) @ Centring(2)
    array([[-1.,  1.]])
    """

    __slots__ = ("d",)
    __array_ufunc__ = None

    def __init__(self, d: int) -> None:
        self.d = d

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return (self.d, self.d)

    def swapaxes(self, first: int, second: int) -> Centring:
        """The transpose: itself."""
        return self

    def __matmul__(self, other: Any) -> Array:
        array = np.asarray(other)
        return np.asarray(array - array.mean(axis=-2, keepdims=True))

    def __rmatmul__(self, other: Any) -> Array:
        array = np.asarray(other)
        return np.asarray(array - array.mean(axis=-1, keepdims=True))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(np.eye(self.d, dtype=dtype) - 1 / self.d, dtype=dtype)
