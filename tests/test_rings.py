"""Arithmetic over a ring: a prime field is exact, at the sizes where int64 would overflow too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symcircuits.arrays.rings import Array, Floats, PrimeField, Ring, transpose

FIELDS = [PrimeField(), PrimeField(2**61 - 1), PrimeField(2), PrimeField(65537), PrimeField(2147483629)]
PRIMES = [2, 3, 5, 7, 97, 65537, 2**31 - 1, 2**61 - 1, 4611686018427387847]
COMPOSITES = [0, 1, -7, 4, 9, 561, 41041, 3215031751, 2**31 + 1, 65537 * 65539, 2**62, 2**89 - 1, True, 7.0, "7"]


def exact(a: Array, b: Array, p: int) -> Array:
    """The product through Python's integers: the plainest implementation."""
    return np.asarray((a.astype(object) @ b.astype(object)) % p, dtype=np.int64)


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("field", FIELDS, ids=str)
@given(st.lists(st.integers(1, 5), min_size=3, max_size=3), st.integers(0, 2**32))
def test_a_product_is_exact(field: PrimeField, sizes: list[int], seed: int) -> None:
    rng, (m, n, k) = chance(seed), sizes
    a, b = field.random((m, n), rng), field.random((n, k), rng)
    assert field.equal(field.matmul(a, b), exact(a, b, field.p))


@pytest.mark.parametrize("p", [2**31 - 1, 2147483629, 65537])
def test_nothing_overflows_at_the_widest_product(p: int) -> None:
    field, n = PrimeField(p), 2**15
    for value in (p - 1, min(p - 1, 0x7FFE_FFFF), min(p - 1, 0xFFFF)):
        row, column = np.full((1, n), value), np.full((n, 1), p - 1)
        assert field.matmul(row, column).item() == n * value * (p - 1) % p


def test_a_wider_product_is_refused() -> None:
    wide = np.ones((1, 2**15 + 1), dtype=np.int64)
    with pytest.raises(ValueError, match="inner dimension of a product is 32769; it is exact up to 32768"):
        PrimeField().matmul(wide, wide.T)


@pytest.mark.parametrize("ring", [Floats(), *FIELDS], ids=str)
def test_products_broadcast_over_leading_axes(ring: Ring) -> None:
    rng = chance()
    a, b = ring.random((2, 1, 3, 4), rng), ring.random((5, 4, 2), rng)
    both = ring.matmul(a, b)
    assert both.shape == (2, 5, 3, 2)
    for i in range(2):
        for j in range(5):
            assert np.allclose(both[i, j], ring.matmul(a[i, 0], b[j]))


@pytest.mark.parametrize("field", FIELDS, ids=str)
@given(st.integers(0, 2**32))
def test_the_laws_of_a_ring_hold_exactly(field: PrimeField, seed: int) -> None:
    rng = chance(seed)
    a, b, c = (field.random((3, 3), rng) for _ in range(3))
    s = int(field.random((), rng))
    add, mul, same = field.add, field.matmul, field.equal
    assert same(mul(mul(a, b), c), mul(a, mul(b, c)))
    assert same(mul(a, add(b, c)), add(mul(a, b), mul(a, c)))
    assert same(add(a, b), add(b, a))
    assert same(add(a, field.zeros((3, 3))), a)
    assert same(add(a, field.times(-1, a)), field.zeros((3, 3)))
    assert same(field.times(s, mul(a, b)), mul(field.times(s, a), b))
    assert same(transpose(mul(a, b)), mul(transpose(b), transpose(a)))


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_elements_are_between_zero_and_p(field: PrimeField) -> None:
    rng = chance()
    a, b = field.random((40, 40), rng), field.random((40, 40), rng)
    for x in (a, field.add(a, b), field.matmul(a, b), field.times(-3, a), field.asarray([-1, 2**63 - 1, -(2**63)])):
        assert x.dtype == np.int64
        assert x.min() >= 0
        assert x.max() < field.p


def test_whole_numbers_of_any_size_are_read_modulo_p() -> None:
    field = PrimeField(97)
    assert field.asarray([-1, 10**30]).tolist() == [96, 10**30 % 97]
    assert field.asarray(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [(2**64 - 1) % 97]
    assert field.times(10**30, np.array([2])).tolist() == [2 * 10**30 % 97]


@pytest.mark.parametrize("bad", [[1.0], [0.5], [True], ["1"], [None], [1.5, 10**30]])
def test_what_is_not_whole_is_refused(bad: list[object]) -> None:
    with pytest.raises(ValueError, match="a prime field holds whole numbers; this array holds"):
        PrimeField().asarray(bad)


@pytest.mark.parametrize("p", PRIMES)
def test_a_prime_makes_a_field(p: int) -> None:
    assert PrimeField(p).p == p


@pytest.mark.parametrize("p", COMPOSITES, ids=str)
def test_what_is_no_prime_is_refused(p: object) -> None:
    with pytest.raises(ValueError, match=r"a prime field needs a prime below 2\*\*62"):
        PrimeField(p)  # type: ignore[arg-type]


def test_small_numbers_are_sorted_right_into_primes_and_others() -> None:
    def is_field(n: int) -> bool:
        try:
            return PrimeField(n).p == n
        except ValueError:
            return False

    assert [n for n in range(2000) if is_field(n)] == [n for n in range(2, 2000) if all(n % d for d in range(2, n))]


def test_floats_compute_in_their_dtype() -> None:
    for dtype in (np.float32, np.float64):
        ring = Floats(dtype)
        a = ring.random((2, 2), chance())
        for x in (a, ring.zeros((2, 2)), ring.add(a, a), ring.times(0.5, a), ring.matmul(a, a), ring.asarray([1, 2])):
            assert x.dtype == dtype
    assert not Floats().equal(np.array([1.0]), np.array([np.nextafter(1.0, 2)]))
    with pytest.raises(ValueError, match="Floats needs a floating-point dtype, such as float64, not int64"):
        Floats(np.int64)


@pytest.mark.parametrize("ring", [Floats(), PrimeField()], ids=str)
def test_random_is_reproducible(ring: Ring) -> None:
    assert ring.equal(ring.random((3, 2), chance(1)), ring.random((3, 2), chance(1)))
    assert not ring.equal(ring.random((3, 2), chance(1)), ring.random((3, 2), chance(2)))
    assert not ring.equal(ring.zeros((3, 2)), ring.zeros((2, 3)))
