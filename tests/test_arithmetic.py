"""The arithmetic of both engines of values, each function against the definition that it is of."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import symcircuits as sc
from symcircuits.arrays.namespaces import namespace_of
from symcircuits.values import run_arithmetic, tensor_arithmetic, unembedding
from symcircuits.values.engine import Room
from symcircuits.values.run_arithmetic import RunArithmetic
from symcircuits.values.tensor_arithmetic import TensorArithmetic

BATCH, N, D = 2, 3, 2
RUN = RunArithmetic((BATCH, N, N), np.dtype(np.float64), D)
CAUSAL = np.tril(np.ones((N, N)))


def blocks(seed: int, paths: int, n: int = N, d: int = D) -> Any:
    """Values of paths, ``[paths, batch, n, d]``."""
    return np.random.default_rng(seed).standard_normal((paths, BATCH, n, d))


def tensors(shape: tuple[int, ...] = (BATCH, N), dtype: Any = np.float64) -> TensorArithmetic:
    return TensorArithmetic(namespace_of(np.zeros(1, dtype)), shape)


def scores(queries: Any, keys: Any) -> Any:
    """``[queries, keys, batch, n, n]``, each product formed by itself."""
    return np.array([[[q @ k.T for q, k in zip(qs, ks, strict=True)] for ks in keys] for qs in queries])


def lengths(terms: Any) -> Any:
    return np.sqrt((terms**2).sum((-1, -2)))


# ------------------------------------------------------------------------------------------------ on a run
@pytest.mark.parametrize("size", [1.0, 1e-180, 1e180])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_of_any_size(size: float, dtype: Any) -> None:
    """Of numbers whose squares leave the range too; in float64 whatever the type."""
    block = blocks(1, 4) * (size if dtype is np.float64 else np.sign(size))
    block[2] = 0
    with np.errstate(over="ignore"):  # as where it is called
        found = RUN.lengths(block.astype(dtype))
    assert found.dtype == np.float64
    scale = np.abs(block).max()
    np.testing.assert_allclose(found / scale, lengths(block / scale), rtol=1e-14 if dtype is np.float64 else 1e-6)
    assert (found[2] == 0).all()


def test_lengths_of_one_small_and_one_large_matrix() -> None:
    block = np.full((2, 1, 1, 2), 3.0) * np.array([1e-170, 1e170])[:, None, None, None]
    with np.errstate(over="ignore"):
        found = RUN.lengths(block)
    np.testing.assert_allclose(found[:, 0], np.sqrt(18) * np.array([1e-170, 1e170]), rtol=1e-14)


@given(st.lists(st.integers(0, 5), max_size=6).filter(lambda c: not c or sum(c)), st.integers(1, 7), st.booleans())
def test_pieces_are_packed_into_blocks_of_one_size(counts: list[int], size: int, wide: bool) -> None:
    arithmetic = RunArithmetic((BATCH, N, N), np.dtype(np.float32))
    ends, total = np.cumsum([0, *counts]), sum(counts)
    pieces = [np.arange(2.0 * a, 2 * b).reshape(-1, BATCH) for a, b in itertools.pairwise(ends)]
    found = list(arithmetic.packed(pieces, size, total, wide))
    assert [len(one) for one in found] == [size] * (total // size) + [total % size] * (total % size > 0)
    assert [n for one in found for n in one.reshape(-1).tolist()] == list(range(2 * total))
    assert all(one.dtype == (np.float64 if wide else np.float32) for one in found)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("masked", [True, False])
def test_norms_of_pairs_are_those_of_the_terms_formed(n: int, d: int, masked: bool) -> None:
    """By Gram matrices, masked ones, or terms that are formed: the same, whatever the sizes of the numbers."""
    arithmetic = RunArithmetic((BATCH, n, n), np.dtype(np.float64), d)
    mask = np.tril(np.ones((n, n)))
    meeting = arithmetic.lengths_of_pairs(mask if masked else None)
    queries, keys = blocks(1, 3, n, d), blocks(2, 4, n, d)
    keys[1] = 0
    terms = scores(queries, keys) * (mask if masked else 1)
    sizes = np.array([1e-120, 1.0, 1e120])[:, None, None]
    found = meeting.met(meeting.query(queries * sizes[..., None]), meeting.key(keys * 1e-100))
    np.testing.assert_allclose(found / (sizes * 1e-100), lengths(terms), rtol=1e-9)


def test_norms_of_pairs_that_cancel_are_zero_and_not_undefined() -> None:
    """A query at right angles to a key: the products of their Gram matrices add up to zero, or a little less."""
    rng, meeting = np.random.default_rng(0), RunArithmetic((1, 1, 1), np.dtype(np.float64), 4).lengths_of_pairs(None)
    query, keys = rng.standard_normal(4), rng.standard_normal((300, 4))
    keys -= (keys @ query / (query @ query))[:, None] * query
    found = meeting.met(meeting.query(query[None, None, None]), meeting.key(keys[:, None, None]))
    assert found.max() < 1e-6


def test_every_meeting_takes_some_keys_and_queries_at_a_time() -> None:
    run = [
        RUN.lengths_of_pairs(None),
        RUN.lengths_of_pairs(CAUSAL),
        RUN.entries_of_pairs(),
        RUN.scores_of_pairs(Room()),
    ]
    other = [tensors().lengths_of_pairs(None), tensors().entries_of_pairs(), tensors().scores_of_pairs(Room())]
    assert all(meeting.keys >= 1 for meeting in (*run, *other))
    assert RUN.entries_of_pairs().queries >= 1
    assert RUN.lengths_of_pairs(None).queries == 0  # no limit


def test_masked_norms_are_made_in_the_way_of_less_work() -> None:
    """n d (d + 1) multiplications a pair or 2 n^2 d; and what is made of keys has a bound."""
    for n in range(1, 9):
        for d in range(1, 9):
            shape = RunArithmetic((BATCH, n, n), np.dtype(np.float64), d)
            kind = type(shape.lengths_of_pairs(np.ones((n, n)))).__name__
            work = {"_MaskedGrams": n * d * (d + 1), "_Direct": 2 * n * n * d}
            assert work[kind] == min(work.values())
            wide = RunArithmetic((10**6, n, n), np.dtype(np.float64), d)
            meeting = wide.lengths_of_pairs(np.ones((n, n)))
            assert meeting.keys >= 1
            assert meeting.queries >= 1
    n = d = 64
    for shape in (
        RunArithmetic((4, n, n), np.dtype(np.float64), d),
        RunArithmetic((4, n, n), np.dtype(np.float64), 999),
    ):
        meeting = shape.lengths_of_pairs(np.ones((n, n)))
        made = meeting.query(np.ones((meeting.queries, 4, n, shape.d_head)))
        products = meeting.queries * meeting.keys * 4 * n * n * 8 if shape.d_head == 999 else made[0].nbytes
        assert run_arithmetic._MADE_BYTES / 4 < products <= 2 * run_arithmetic._MADE_BYTES


def test_entries_of_pairs_are_products_of_rows() -> None:
    meeting = RUN.entries_of_pairs()
    queries, keys = blocks(1, 3, 1), blocks(2, 4, 1)
    found = meeting.met(meeting.query(queries), meeting.key(keys))
    np.testing.assert_allclose(found, scores(queries, keys)[..., 0, 0], rtol=1e-14)


def test_scores_of_pairs_are_written_where_there_is_room() -> None:
    out = np.zeros((4, BATCH, N, N))
    meeting = RUN.scores_of_pairs(Room(out=out))
    assert meeting.keys == 4
    query, keys = blocks(1, 1)[0], blocks(2, 4)
    found, finite = meeting.met(meeting.query(query), meeting.key(keys))
    np.testing.assert_allclose(found, scores(query[None], keys)[0], rtol=1e-14)
    assert finite
    assert np.shares_memory(found, out)
    assert RUN.scores_of_pairs(Room(5 * BATCH * N * N)).keys == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_sure_to_be_finite_only_where_no_sum_can_overflow(dtype: Any) -> None:
    """All numbers alike are the worst: their products add up."""
    meeting = RunArithmetic((1, 1, 1), np.dtype(dtype), 8).scores_of_pairs(Room())
    most = float(np.finfo(dtype).max)
    for times, sure in ((0.4, True), (0.6, False)):
        query = np.full((1, 1, 8), np.sqrt(most) / 4, dtype)
        key = np.full((1, 1, 1, 8), times * most / (8 * np.float64(query[0, 0, 0])), dtype)
        assert meeting.met(meeting.query(query), meeting.key(key))[1] == sure
    small = np.full((1, 1, 8), 1e-30, dtype)
    assert not meeting.met(meeting.query(small), meeting.key(np.full((1, 1, 1, 8), most, dtype)))[1]


def test_bytes_of_what_is_made_of_keys() -> None:
    made = RUN.lengths_of_pairs(None).key(blocks(1, 4))
    assert RUN.bytes_of(made) == 8 * (4 * BATCH * 3 + 4 * BATCH)  # triangles of 2 x 2 matrices, and sizes
    assert RUN.bytes_of((np.zeros(3), 1.0)) == 24
    assert RunArithmetic((2, 5, 3, 3), np.dtype(np.float64)).rows == 10


# ------------------------------------------------------------------------------------ by the array API standard
@pytest.mark.parametrize("masked", [True, False])
def test_norms_in_arrays_of_other_libraries(masked: bool) -> None:
    meeting = tensors().lengths_of_pairs(CAUSAL if masked else None)
    query, keys = blocks(1, 1)[0], blocks(2, 4)
    keys[1] = 0
    terms = scores(query[None], keys) * (CAUSAL if masked else 1)
    for size in (1e-200, 1.0, 1e200):
        found = meeting.met(meeting.query(query), meeting.key(keys * size))
        assert found.shape == (1, 4, BATCH)
        np.testing.assert_allclose(found / size, lengths(terms), rtol=1e-14)
    assert (meeting.queries, tensors().lengths(keys)[1].tolist()) == (1, [0.0, 0.0])
    np.testing.assert_allclose(tensors().lengths(keys), lengths(keys), rtol=1e-14)


def test_entries_and_scores_in_arrays_of_other_libraries() -> None:
    query, keys = blocks(1, 1)[0], blocks(2, 4)
    entries, whole = tensors().entries_of_pairs(), tensors().scores_of_pairs(Room())
    found = entries.met(entries.query(query[:, :1]), entries.key(keys[:, :, :1]))
    np.testing.assert_allclose(found, scores(query[None], keys)[..., 0, 0], rtol=1e-14)
    found, finite = whole.met(whole.query(query), whole.key(keys))
    np.testing.assert_allclose(found, scores(query[None], keys)[0], rtol=1e-14)
    assert finite is False


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_any_batch_axes_in_arrays_of_other_libraries(batch: tuple[int, ...]) -> None:
    arithmetic = tensors((*batch, N))
    query, keys = np.random.default_rng(0).standard_normal((2, 4, *batch, N, D))
    meeting = arithmetic.lengths_of_pairs(None)
    found = meeting.met(query[0], keys)
    assert found.shape == (1, 4, *batch)
    np.testing.assert_allclose(found[0], lengths(query[0] @ keys.swapaxes(-1, -2)), rtol=1e-14)
    np.testing.assert_allclose(arithmetic.lengths(keys), lengths(keys), rtol=1e-14)


def test_some_bytes_of_what_is_made_of_keys_are_kept() -> None:
    assert min(RUN.kept, tensors().kept) >= 2**20
    assert tensors((0, 3)).lengths_of_pairs(None).keys >= 1  # a batch of nothing


def test_how_many_keys_meet_a_query_at_a_time() -> None:
    each = BATCH * N * N
    assert tensors().scores_of_pairs(Room(7 * each + 1)).keys == 7
    assert tensors().scores_of_pairs(Room()).keys == tensor_arithmetic._TOGETHER // each
    assert tensors().lengths_of_pairs(None).keys == tensor_arithmetic._TOGETHER // each
    assert tensors((1 << 20, 3)).lengths_of_pairs(None).keys == 1


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 4), (np.float64, 8)])
def test_bytes_of_arrays_of_other_libraries(dtype: Any, size: int) -> None:
    assert tensors(dtype=dtype).bytes_of(np.zeros((3, 5), dtype)) == 15 * size


def test_other_axes_and_pieces_in_arrays_of_other_libraries() -> None:
    block = np.arange(6.0).reshape(2, 3)
    assert tensors().flat(block, (2, 3)) is block
    assert tensors().flat(block, (6,)).tolist() == list(range(6))
    assert tensors().joined([block, block], 1).shape == (2, 6)
    assert [len(b) for b in tensors().packed([block, block, block], 4, 6, True)] == [4, 2]


# ---------------------------------------------------------------------------------- unembeddings made small
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tokens", [[], [1], [1, 0]])
def test_an_unembedding_is_made_small_only_where_that_is_smaller(biased: bool, tokens: list[int]) -> None:
    """It has the columns of the stream, one for a bias, one for each token that is asked for and one for the mean."""
    small = 4 + biased + len(tokens) + bool(tokens)
    arch = sc.attention_only((1,), biases=["b_U"] if biased else False)
    for rows in (small - 1, small, small + 1):
        run = sc.random_model(arch, d_vocab=rows, d_model=4, d_head=2, seed=1).run([1, 2])
        found = unembedding.compact(sc.evaluate(sc.logits(arch), run), tokens)
        assert (found is not None) == (rows > small)
        if found is not None:
            assert len(found.matrices["W_U"]) == small
        assert unembedding.compact(sc.evaluate(sc.stream(arch), run), tokens) is None


@examples(30)
@given(st.integers(1, 40), st.integers(1, 4), st.booleans(), st.integers(1, 200), st.integers(0, 99))
def test_a_triangle_has_the_lengths_of_the_matrix(rows: int, cols: int, biased: bool, each: int, seed: int) -> None:
    """``|x W^T| = |x T^T|`` for every x, block by block too, with the bias as one more column."""
    rng = np.random.default_rng(seed)
    matrix, bias = rng.standard_normal((rows, cols)), rng.standard_normal(rows) if biased else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unembedding, "_BLOCK", each)
        triangle = unembedding._triangle(matrix, bias)
    whole = matrix if bias is None else np.column_stack([matrix, bias])
    assert triangle.shape == (min(whole.shape), whole.shape[1])
    np.testing.assert_allclose(triangle.T @ triangle, whole.T @ whole, rtol=1e-10, atol=1e-12)
