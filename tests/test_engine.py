"""What both engines of values use: how many terms are passed over, where values are written, and in what pieces."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symcircuits.values.engine import Room, Span, gathered


# ------------------------------------------------------------------------------------------------------- spans
@given(st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=5), st.integers(0, 60), st.integers(0, 60))
def test_a_span_gives_the_slice_of_all(groups: list[list[int]], start: int, length: int) -> None:
    """Terms in groups: a group that lies before is passed over as a whole, then some in front of the next."""
    numbers = iter(range(100))
    terms = [[[next(numbers) for _ in range(size)] for size in group] for group in groups]
    span, left, found, entered = Span(start), length, list[int](), False
    for group in terms:
        if not entered and span.over(sum(map(len, group))):
            continue
        span.enter()
        entered = True
        for some in group:
            part = span.part(len(some), left)
            found += some[part]
            left -= len(some[part])
    everything = [term for group in terms for some in group for term in some]
    assert found == everything[start : start + length]


def test_a_span_passes_over_what_lies_before_as_a_whole() -> None:
    span = Span(5)
    assert [span.over(terms) for terms in (3, 3, 2, 1, 0)] == [True, False, True, False, False]
    assert (span.left, span.inside) == (0, 0)
    span = Span(5)
    assert not span.over(6)
    span.enter()
    assert (span.left, span.inside) == (0, 5)
    span.enter()
    assert (span.left, span.inside, span.over(1)) == (0, 5, False)
    assert (Span().left, Span().inside, Span().over(1)) == (0, 0, False)


def test_a_part_begins_where_the_span_does_and_ends_with_the_range() -> None:
    span = Span(5)
    span.enter()
    assert (span.part(3, 4), span.inside) == (slice(3, 3), 2)
    assert (span.part(3, 4), span.inside) == (slice(2, 3), 0)
    assert (span.part(9, 3), span.part(9, 0)) == (slice(0, 3), slice(0, 0))


# ------------------------------------------------------------------------------------------------------- rooms
def test_a_piece_has_at_least_one_path_and_what_the_room_has() -> None:
    assert Room().most(7) == sys.maxsize
    assert [Room(20).most(each) for each in (0, 1, 7, 10, 20, 21)] == [20, 20, 2, 2, 1, 1]
    assert Room(20, out=np.empty((3, 2))).most(100) == 3


def test_memory_is_fresh_unless_it_is_reused() -> None:
    room = Room(10)
    first, second = room.take((2, 3), np.float32), room.take((2, 3), np.float32)
    assert not np.may_share_memory(first, second)
    assert (first.shape, first.dtype) == ((2, 3), np.float32)
    again = Room(10, reused=True)
    first, second, larger = (again.take(shape, np.float64) for shape in ((2, 3), (3, 2), (7,)))
    assert np.may_share_memory(first, second)
    assert not np.may_share_memory(first, larger)
    assert (second.shape, larger.shape) == ((3, 2), (7,))
    assert np.may_share_memory(larger, again.take((1,), np.float64))


def test_memory_that_was_given_is_written_to() -> None:
    out = np.zeros((2, 3))
    Room(out=out).take((1, 3), out.dtype)[:] = 1
    Room(out=out).take((2, 2), out.dtype)[1] += 5
    assert out.tolist() == [[1, 1, 6], [5, 0, 0]]


# ----------------------------------------------------------------------------------------------------- gathering
@given(st.lists(st.integers(0, 6), max_size=6), st.integers(1, 5))
def test_arrays_are_put_together_and_cut(lengths: list[int], size: int) -> None:
    ends = np.cumsum([0, *lengths])
    pieces = [np.arange(2 * a, 2 * b).reshape(-1, 2) for a, b in itertools.pairwise(ends)]
    found = list(gathered(pieces, size, np.concatenate))
    total = int(ends[-1])
    assert [len(one) for one in found] == [size] * (total // size) + [total % size] * (total % size > 0)
    assert [n for one in found for n in one.reshape(-1).tolist()] == list(range(2 * total))


def test_what_is_left_at_the_end_is_put_together_too() -> None:
    pieces = [np.arange(a, a + 2) for a in (0, 2, 4, 6)]
    assert [one.tolist() for one in gathered(pieces, 3, np.concatenate)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [one.tolist() for one in gathered(pieces[:2], 9, np.concatenate)] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("size", [3, 4])
def test_an_array_that_fits_is_given_as_it_is(size: int) -> None:
    """Nothing is copied: not where a piece is of that size, and not where one is left at the end."""
    piece = np.arange(3)
    [found] = gathered([piece], size, np.concatenate)
    assert found is piece
    whole = np.arange(2 * size)
    assert all(part.base is whole for part in gathered([whole], size, np.concatenate))
