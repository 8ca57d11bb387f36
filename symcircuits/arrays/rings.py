"""Arithmetic of matrices over a ring: floating point, and a prime field without rounding.

A formula for matrices uses only products, sums and multiples by scalars, so it can be computed over any ring.
Over a prime field every result is exact: two formulas either agree or they do not. Scalars and matrices are
NumPy arrays; axes before the last two are batch axes and broadcast. Not a published interface; products are split
in the usual way for fixed-width integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Floats", "PairwiseSum", "PrimeField", "Ring", "transpose"]

Array = npt.NDArray[Any]

_WIDEST = 2**15  # terms of an inner product that the split below can add up without overflow
_LARGEST = 2**62  # two elements of a larger field could not be added in int64


class Ring(Protocol):
    """The operations that a formula for matrices needs: :class:`Floats` and :class:`PrimeField` have them."""

    def asarray(self, x: Any) -> Array:
        """``x`` as elements of the ring."""

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """The zero matrix of that shape."""

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent random elements."""

    def add(self, a: Array, b: Array) -> Array:
        """``a + b``, elementwise, with broadcasting."""

    def times(self, scalar: Any, a: Array) -> Array:
        """``scalar a``, elementwise, with broadcasting."""

    def matmul(self, a: Array, b: Array) -> Array:
        """``a b``, the matrix product over the last two axes, with broadcasting over the leading ones."""

    def transpose(self, a: Any) -> Any:
        """Transposed matrices: the last two axes swapped."""

    def equal(self, a: Array, b: Array) -> bool:
        """Whether shapes and all entries are the same (no tolerance)."""


class PairwiseSum:
    """A running sum of arrays, added in pairs like a binary tree, so rounding grows with log2 only.

    Sums round less than the terms themselves, so compensated summation would bring the result no nearer to a forward
    pass, at three times the cost (measured: ``tests/benchmarks/bench_accuracy.py``).

    >>> total = PairwiseSum()
    >>> for _ in range(16):
    ...     total.add(0.1)  # added one after the other they make 1.6000000000000003
    >>> total.value
    1.6
    """

    def __init__(self) -> None:
        self._sums: list[Any] = []  # sums of 2^k arrays each, k decreasing: the binary digits of their number
        self.count = 0

    def add(self, array: Any) -> None:
        """Add one more array."""
        self.count += 1
        carry = self.count
        while not carry & 1:
            array = self._sums.pop() + array
            carry >>= 1
        self._sums.append(array)

    @property
    def value(self) -> Any:
        """The sum so far."""
        *left, total = self._sums
        for array in reversed(left):
            total = array + total
        return total


def transpose(a: Array) -> Array:
    """Transposed matrices: the last two axes swapped, ``[..., m, n] -> [..., n, m]``.

    >>> transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    return a.swapaxes(-1, -2)


@dataclass(frozen=True)
class Floats:
    """Matrices of floating-point numbers; ``random`` draws from the standard normal distribution.

    Raises ValueError if ``dtype`` is not a real floating-point type.

    >>> Floats().matmul(np.eye(2), np.array([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """

    dtype: npt.DTypeLike = np.float64

    def __post_init__(self) -> None:
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"Floats needs a floating-point dtype, such as float64, not {np.dtype(self.dtype)}")

    def asarray(self, x: Any) -> Array:
        """``x`` as an array of ``dtype``."""
        return np.asarray(x, dtype=self.dtype)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """The zero matrix of that shape."""
        return np.zeros(shape, dtype=self.dtype)

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent standard normal entries."""
        return self.asarray(rng.standard_normal(shape))

    def add(self, a: Array, b: Array) -> Array:
        """``a + b``."""
        return self.asarray(a + b)

    def times(self, scalar: Any, a: Array) -> Array:
        """``scalar a``."""
        return self.asarray(self.asarray(scalar) * a)

    def matmul(self, a: Array, b: Array) -> Array:
        """``a b``."""
        return self.asarray(a @ b)

    def transpose(self, a: Any) -> Any:
        """The last two axes swapped."""
        return a.swapaxes(-1, -2)

    def equal(self, a: Array, b: Array) -> bool:
        """Whether shapes and all entries are the same, without tolerance."""
        return np.array_equal(a, b)


@dataclass(frozen=True)
class PrimeField:
    """Matrices over the integers modulo a prime ``p < 2**62``, exact, as int64 arrays with entries 0 .. p - 1.

    For ``p < 2**31`` a product is split, ``a b = (a >> 16) b 2**16 + (a & 0xffff) b``, so every partial sum
    stays below ``2**47 * 2**15 = 2**62``: nothing overflows at any inner dimension up to ``2**15``. A larger
    prime uses Python's own integers, exact at any size and some fifty times slower. Raises
    ValueError if p is not a prime, on numbers that are not integers, and on an inner dimension above ``2**15``.

    >>> PrimeField(7).matmul(np.array([[3, 5]]), np.array([[4], [6]])).item()  # 42 = 6 * 7
    0
    """

    p: int = 2**31 - 1

    def __post_init__(self) -> None:
        if type(self.p) is not int or not 2 <= self.p < _LARGEST or not _is_prime(self.p):
            raise ValueError(f"a prime field needs a prime below 2**62, such as 2**31 - 1, not {self.p!r}")

    def asarray(self, x: Any) -> Array:
        """The whole numbers ``x`` (of any size and sign) modulo p."""
        given = np.asarray(x)
        if given.size and given.dtype.kind not in "iuO":
            raise ValueError(f"a prime field holds whole numbers; this array holds {given.dtype}")
        if given.dtype.kind == "O" and not all(isinstance(v, (int, np.integer)) for v in given.flat):
            raise ValueError("a prime field holds whole numbers; this array holds other objects")
        exact = given.astype(np.int64) if given.dtype.kind == "i" else given.astype(object)
        return np.asarray(exact % self.p, dtype=np.int64)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """The zero matrix of that shape."""
        return np.zeros(shape, dtype=np.int64)

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent entries, each of 0 .. p - 1 equally likely."""
        return rng.integers(0, self.p, size=shape, dtype=np.int64)

    def add(self, a: Array, b: Array) -> Array:
        """``a + b`` modulo p."""
        return np.asarray((a + b) % self.p)

    def times(self, scalar: Any, a: Array) -> Array:
        """``scalar a`` modulo p; ``scalar`` is any whole number or array of them."""
        factor = self.asarray(scalar)
        if self.p <= 2**31:
            return np.asarray(factor * a % self.p)
        return np.asarray(factor.astype(object) * a % self.p, dtype=np.int64)

    def matmul(self, a: Array, b: Array) -> Array:
        """``a b`` modulo p."""
        if a.shape[-1] > _WIDEST:
            raise ValueError(f"the inner dimension of a product is {a.shape[-1]}; it is exact up to {_WIDEST}")
        if self.p > 2**31:
            return np.asarray((a.astype(object) @ b.astype(object)) % self.p, dtype=np.int64)
        high = (a >> 16) @ b % self.p
        low = (a & 0xFFFF) @ b % self.p
        return np.asarray(((high << 16) + low) % self.p)

    def transpose(self, a: Any) -> Any:
        """The last two axes swapped."""
        return a.swapaxes(-1, -2)

    def equal(self, a: Array, b: Array) -> bool:
        """Whether shapes and all entries are the same; exact."""
        return np.array_equal(a, b)


def _is_prime(n: int) -> bool:
    """Miller-Rabin with the first twelve primes as bases: no composite number below 2**64 passes."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if any(n % b == 0 for b in bases):
        return n in bases
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    odd = (n - 1) >> twos
    for base in bases:
        power = pow(base, odd, n)
        if power in (1, n - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % n
            if power == n - 1:
                break
        else:
            return False
    return True
