"""Query paths times key paths: which of them meet, how many at a time, and what is kept of the keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases, selections

import symcircuits as sc
from symcircuits.core.expansion import Expansion
from symcircuits.core.walk import Mark
from symcircuits.values import pairs as module
from symcircuits.values.engine import Span
from symcircuits.values.evaluate import Values
from symcircuits.values.pairs import Pairs, side_blocks

Array = npt.NDArray[Any]


class Noting:
    """A meeting that gives whole scores ``[queries, keys, ..., n, n]`` and notes what it was given."""

    def __init__(self, keys: int = 256, queries: int = 0) -> None:
        self.keys, self.queries = keys, queries
        self.asked: list[int] = []  # query paths at a time, 0: one by itself
        self.made: list[int] = []  # key paths at a time

    def query(self, block: Array) -> Array:
        self.asked.append(0 if block.ndim < 4 else len(block))
        return block if block.ndim == 4 else block[None]

    def key(self, block: Array) -> Array:
        self.made.append(len(block))
        return np.array(block)

    def met(self, query: Array, key: Array) -> Array:
        return np.asarray(np.einsum("qbic,kbjc->qkbij", query, key))


def whole(values: Values) -> Array:
    """All terms, one by one, with one batch axis."""
    n = np.shape(values.run.tokens)[-1]
    return np.array([values.value(term) for term in values.expansion]).reshape(-1, max(1, *values.batch, 1), n, n)


def flat(found: list[Array]) -> Array:
    return np.concatenate([block.reshape(-1, *block.shape[-3:]) for block in found])


def scores(heads: tuple[int, ...], order: int, tokens: Any = (3, 1, 4)) -> Values:
    """The terms of an order that lead to a head of the last layer."""
    run = sc.random_model(sc.attention_only(heads), d_head=3, seed=3).run(tokens)
    return sc.evaluate(sc.scores(run.model.architecture, f"L{len(heads) - 1}H0").order(order), run)


def nine(tokens: Any = (3, 1, 4)) -> Values:
    """Of nine query paths and nine key paths, all through one head."""
    return scores((9, 1), 2, tokens)


@st.composite
def drawn(draw: st.DrawFn) -> Values:
    """Scores of any architecture, selected or not."""
    arch, target = draw(cases(max_terms=200).filter(lambda case: case[1].startswith("scores")))
    expansion: Expansion = sc.expand(arch, target)
    for chosen in draw(st.lists(selections(arch, target), max_size=2)):
        expansion = chosen.select(expansion)
    tokens = draw(st.sampled_from([[1, 0, 2], [[1, 0, 2], [2, 2, 1]]]))
    return sc.evaluate(expansion, sc.random_model(arch, d_head=2, d_model=3, seed=4).run(tokens))


@given(drawn(), st.integers(1, 5), st.integers(0, 3), st.sampled_from([0, 2**7, 2**21]), st.data())
def test_all_pairs_from_anywhere_on(values: Values, keys: int, queries: int, block: int, data: st.DataObject) -> None:
    """Those of a range, and what belongs together with the first; by both ways, with keys kept or made again."""
    total = values.expansion.count
    start = data.draw(st.integers(0, max(0, total - 1)))
    wanted = whole(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", block)
        patch.setattr("symcircuits.values.run_arithmetic._KEY_BYTES", data.draw(st.sampled_from([0, 500, 2**20])))
        for way in ("numbers", "each"):
            # By the second way either one query path meets some key paths, or some query paths meet all.
            pairs = Pairs(values, Noting(keys, queries if way == "numbers" else min(queries, 1)))
            for _ in range(2):  # what was kept is taken again
                span, found, inside = Span(start), list[Array](), None
                for part in pairs.numbers(range(start, total), span) if way == "numbers" else pairs.each(span):
                    inside = span.inside if inside is None else inside
                    found.append(part)
                if total:
                    np.testing.assert_allclose(flat(found)[inside:], wanted[start:], rtol=1e-9, atol=1e-12)


def test_many_query_paths_meet_their_key_paths_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a block has room for, none beyond the terms that are wanted, at least one, at most what is said."""
    values = nine([[3, 1, 4], [1, 5, 2]])
    keys, batch, count = 9, 2, 81
    assert values.expansion.count == count

    def at_a_time(terms: range = range(count), queries: int = 0) -> list[int]:
        meeting = Noting(queries=queries)
        list(Pairs(values, meeting).numbers(terms, Span()))
        return meeting.asked

    assert at_a_time() == [9]
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4 * 8 * keys * batch)
    assert at_a_time() == [4, 4, 1]
    assert at_a_time(queries=2) == [2, 2, 2, 2, 1]
    assert at_a_time(queries=7) == [4, 4, 1]
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4 * 8 * keys * batch - 1)
    assert at_a_time() == [3, 3, 3]
    assert at_a_time(range(18))[0] == at_a_time(range(60, 78))[0] == at_a_time(range(10))[0] == 2
    assert at_a_time(range(19))[0] == 3
    assert at_a_time(range(9))[0] == at_a_time(range(1))[0] == 1
    monkeypatch.setattr(module, "_BLOCK_BYTES", 0)
    assert at_a_time() == [1] * 9


def test_each_query_path_by_itself_or_some_where_keys_are_few() -> None:
    values = nine()

    def at_a_time(keys: int, queries: int = 0) -> list[int]:
        meeting = Noting(keys, queries)
        list(Pairs(values, meeting).each(Span()))
        return meeting.asked

    assert at_a_time(8) == at_a_time(9) == at_a_time(17) == [0] * 9
    assert at_a_time(18) == at_a_time(26) == [2, 2, 2, 2, 0]
    assert at_a_time(81) == at_a_time(256) == [9]
    assert at_a_time(256, queries=1) == [0] * 9


def test_keys_are_made_once_where_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to so many bytes for all marks together; else again for each block of query paths."""
    values = nine()
    small = 9 * 3 * 3 * 8  # of 9 key paths at 3 positions
    monkeypatch.setattr(module, "_BLOCK_BYTES", 3 * 8 * 9)  # three times three query paths
    for kept, made in ((small, [4, 4, 1]), (small - 1, 3 * [4, 4, 1])):
        monkeypatch.setattr("symcircuits.values.run_arithmetic._KEY_BYTES", kept)
        meeting = Noting(keys=4)
        pairs = Pairs(values, meeting)
        assert flat([*pairs.numbers(range(81), Span())]).shape == (81, 1, 3, 3)
        assert meeting.made == made
        list(pairs.numbers(range(81), Span()))
        assert meeting.made == (made if kept == small else 2 * made)


def test_of_a_query_path_that_begins_before_only_what_follows_is_made() -> None:
    """And not kept; of the next all, which is kept for those that follow."""
    for way in ("numbers", "each"):
        meeting = Noting(keys=4)
        pairs = Pairs(nine(), meeting)
        list(pairs.numbers(range(14, 81), Span(14)) if way == "numbers" else pairs.each(Span(14)))
        assert meeting.made == [4, 4, 4, 1]
        list(pairs.numbers(range(81), Span()) if way == "numbers" else pairs.each(Span()))
        assert meeting.made == [4, 4, 4, 1]


def test_of_several_marks_what_is_kept_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query paths of unlike order have other key paths: what the first kept the second has no room for."""
    values = scores((2, 2, 1), 2)  # of orders (0, 2), with 4 key paths, (1, 1), with 4, and (2, 0), with 1
    some = values.expansion
    each = 3 * 3 * 8
    for kept, made in ((9 * each, [4, 4, 1]), (8 * each, [4, 4, 1, 1]), (5 * each, [4, 4, 1, 4]), (0, 2 * [4, 4, 1])):
        monkeypatch.setattr("symcircuits.values.run_arithmetic._KEY_BYTES", kept)
        meeting = Noting(keys=4)
        pairs = Pairs(values, meeting)
        for _ in range(2):
            np.testing.assert_allclose(flat([*pairs.numbers(range(some.count), Span())]), whole(values), atol=1e-12)
        assert meeting.made == made


def test_blocks_have_one_mark_each() -> None:
    """Neighbours of unlike marks are given one after the other; values are those of the paths, queries scaled."""
    run = scores((2, 2, 1), 2).run
    expansion = sc.scores(run.model.architecture, "L2H0").through("L0H0")
    values = sc.evaluate(expansion, run)
    keys = dict.fromkeys(expansion.sides[1].counts, 1)
    for side, weights in ((0, expansion._weights), (1, keys)):
        marks, blocks = list[Mark](), list[Array]()
        for mark, block in side_blocks(values, side, weights):
            marks += [mark] * len(block)
            blocks.append(block)
        paths = expansion.sides[side]
        assert marks == [paths.mark(path) for path in paths.iterate(weights)]
        assert len(set(marks)) > 2
    whole_side = [*side_blocks(values, 1, keys)]
    total = sum(len(block) for _, block in whole_side)
    every = np.concatenate([block for _, block in whole_side])
    for start in range(total):
        span = Span(start)
        part = np.concatenate([block for _, block in side_blocks(values, 1, keys, span)])
        assert span.inside == 0
        np.testing.assert_array_equal(part, every[start:])
