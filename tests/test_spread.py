"""Mean and deviation of numbers that come one at a time, held to NumPy's over all of them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from symcircuits.explanation.statistics import Running, Spread

NUMBERS = st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=40)


def spread_of(numbers: list[float]) -> Spread:
    running = Running()
    for x in numbers:
        running.add(x)
    return running.spread


@given(NUMBERS)
def test_a_running_spread_is_that_of_all_numbers(numbers: list[float]) -> None:
    found, size = spread_of(numbers), max(abs(x) for x in numbers)
    assume(size == 0 or size > 1e-290)  # numbers that are not rounded to a multiple of the smallest one
    assert (found.count, found.least, found.most) == (len(numbers), min(numbers), max(numbers))
    assert found.mean == pytest.approx(math.fsum(numbers) / len(numbers), rel=1e-12, abs=1e-14 * size)
    assert found.least <= found.mean <= found.most
    deviation = size * np.std(np.array(numbers) / size) if size else 0.0  # NumPy squares: small ones would vanish
    assert found.std == pytest.approx(deviation, rel=1e-9, abs=1e-14 * size)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.randoms())
def test_the_order_does_not_matter_beyond_rounding(numbers: list[float], chance: object) -> None:
    turned = numbers[:]
    chance.shuffle(turned)  # type: ignore[attr-defined]
    a, b = spread_of(numbers), spread_of(turned)
    assert (a.count, a.least, a.most) == (b.count, b.least, b.most)
    assert b.mean == pytest.approx(a.mean, rel=1e-12, abs=1e-11)
    assert b.std == pytest.approx(a.std, rel=1e-9, abs=1e-11)


def test_far_from_zero_it_keeps_the_deviation() -> None:
    """The sum of squares less the square of the sum would give 0, or less, here."""
    numbers = [1e9 + x for x in (4.0, 7.0, 13.0, 16.0)] * 100
    assert spread_of(numbers).std == pytest.approx(math.sqrt(22.5), rel=1e-8)  # numbers near 1e9 are 1e-7 apart
    assert spread_of([0.1] * 1000).std == 0.0


def test_numbers_whose_squares_overflow() -> None:
    assert spread_of([1e200, 3e200]).std == pytest.approx(1e200, rel=1e-12)


def test_what_is_not_defined_is_not_counted() -> None:
    running = Running()
    assert running.spread == Spread(0, None, None, None, None)
    for x in (None, 2.0, None, 4.0):
        running.add(x)
    assert running.spread == Spread(2, 3.0, 1.0, 2.0, 4.0)
    assert running.spread.json() == {"count": 2, "mean": 3.0, "std": 1.0, "min": 2.0, "max": 4.0}
