"""Rows put together in bulk, against rows that are put together one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.tables import weaving
from symcircuits.tables.weaving import numbers, sliced, woven


@given(st.integers(0, 4).flatmap(lambda n: st.integers(max(0, 10**n - 3), 10**n + 3)), st.integers(0, 3000))
@example(999, 3)
@example(1000, 1001)
@example(0, 2001)
def test_digits_of_consecutive_numbers(start: int, count: int) -> None:
    high, low = numbers(start, count)
    assert [a + b for a, b in zip(high, low, strict=True)] == [b"%d" % n for n in range(start, start + count)]


@given(st.lists(st.lists(st.binary(max_size=2), min_size=3, max_size=3), max_size=4))
def test_columns_are_woven_row_by_row(columns: list[list[bytes]]) -> None:
    assert woven(columns, 3) == b"".join(b"".join(row) for row in zip(*columns, strict=True))


@pytest.mark.parametrize("most", [1, 3, 8, 9, 100])
def test_a_block_is_cut_into_blocks(most: int) -> None:
    (block,) = sc.logits(sc.attention_only((1, 1, 1))).blocks(9, start=1)
    parts = list(sliced(block, most))
    assert [len(part) for part in parts] == [most] * (len(block) // most) + [len(block) % most] * (
        len(block) % most > 0
    )
    assert [part.start for part in parts] == list(range(1, len(block) + 1, most))
    for part in parts:
        rows = slice(part.start - 1, part.start - 1 + len(part))
        for name in ("heads", "sources", "orders"):
            (found,), (whole,) = getattr(part, name), getattr(block, name)
            assert found.tolist() == whole[rows].tolist()
        assert part.composition.tolist() == block.composition[rows].tolist()
    assert (parts[0] is block) == (most >= len(block))


@given(st.lists(st.tuples(st.binary(max_size=6), st.integers(1, 9)), max_size=12), st.integers(1, 12))
def test_small_parts_are_put_together_and_large_ones_are_not(parts: list[tuple[bytes, int]], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weaving, "PART", size)
        found = list(weaving._gathered(parts))
    assert b"".join(content for content, _ in found) == b"".join(content for content, _ in parts)
    assert sum(n for _, n in found) == sum(n for _, n in parts)
    assert all(size <= len(content) for content, _ in found[:-1])
    assert all(len(content) < size + 6 for content, _ in found)
    at = 0
    for content, n in found:  # each is of whole parts
        rows, length, begin = 0, 0, at
        while at < len(parts) and (rows, length) != (n, len(content)):
            rows, length, at = rows + parts[at][1], length + len(parts[at][0]), at + 1
        assert (rows, length) == (n, len(content))
        assert at > begin


@given(st.data())
def test_terms_of_a_query_path_are_cut_where_their_strings_may_change(data: st.DataObject) -> None:
    period = data.draw(st.integers(1, 9))
    cuts = sorted({*data.draw(st.sets(st.integers(1, period))), period})
    at, length, most = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 30)), data.draw(st.integers(1, 12))
    key = data.draw(st.integers(0, period - 1))
    span: Any = SimpleNamespace(at=at, end=at + length, key=key, keys=SimpleNamespace(period=period))
    found = list(weaving._runs(span, cuts, most))
    terms = [(place + i, first + i) for place, first, n in found for i in range(n)]
    assert terms == [(at + i, (key + i) % period) for i in range(length)]
    for _, first, n in found:
        assert 0 < n <= most
        assert not any(first < cut < first + n for cut in cuts)
    for _, first, n in found[:-1]:  # and nowhere else
        assert n == most or first + n in cuts
