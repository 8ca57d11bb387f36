"""Full circuits as factored objects: beside dense products from the definition, spectra, blocks, copying, refusals."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plain import featured_models
from test_composition import behind_norm, matrices

import symcircuits as sc
from symcircuits.circuits.chance import positivity_chance
from symcircuits.circuits.circuit import Circuit
from symcircuits.circuits.factoring import Factored
from symcircuits.circuits.spectrum import singular_values, spectrum
from symcircuits.model import Model
from symcircuits.zoo import path


# ----------------------------------------------------------------------------------------------- a plain oracle
def ends(model: Model) -> tuple[Any, Any]:
    """W_U behind the final norm, and W_E."""
    w_u = model.weights["W_U"].astype(float)
    if model.architecture.norm:
        w_u = w_u * model.weights.get("gain_final", np.ones(model.d_model))
        w_u = w_u - w_u.mean(1, keepdims=True) if model.architecture.norm == "LN" else w_u
    return w_u, model.weights["W_E"].astype(float)


def place(head: str) -> tuple[int, int]:
    layer, _, number = head[1:].partition("H")
    return int(layer), int(number)


def dense(model: Model, kind: str, head: str, *before: Any, offset: int = 0) -> Any:
    """The whole matrix in the paper's convention, d x d and V x V; ``before``: the chain, or (query, key) chains."""
    qk, ov = matrices(model, *place(head), True, offset)

    def moved(chain: Any) -> Any:
        found = np.eye(model.d_model)
        for one in chain:
            found = found @ matrices(model, *place(one), True, 0)[1]
        return found

    w_e = model.weights["W_E"].astype(float)
    if kind == "OV":
        return ends(model)[0] @ ov @ moved(before) @ w_e
    query, key = before or ((), ())
    return w_e.T @ moved(query).T @ qk @ moved(key) @ w_e


def with_ov(matrix: Any, **more: Any) -> Model:
    """A model of one head whose OV circuit is this square matrix."""
    n = len(matrix)
    base = sc.random_model(sc.attention_only((1,)), d_vocab=n, d_model=n, d_head=n)
    own = {"W_E": np.eye(n), "W_U": np.eye(n), "W_O_L0H0": np.array(matrix, float), "W_V_L0H0": np.eye(n)}
    return replace(base, weights={**base.weights, **own, **more})


def ov(matrix: Any) -> Circuit:
    return sc.circuit(with_ov(matrix), "OV", "L0H0")


# --------------------------------------------------------------------------------------------------- the numbers
@st.composite
def chains(draw: st.DrawFn) -> tuple[Model, list[str], list[str]]:
    """A model, and two chains of heads, each the latest first, below one head: that head stands first in both."""
    model = draw(featured_models(d_model=6, d_head=4, d_vocab=7))
    layers = [n for n, count in enumerate(model.architecture.heads) if count]
    assume(layers)
    top = draw(st.sampled_from(layers))
    head = f"L{top}H{draw(st.integers(0, model.architecture.heads[top] - 1))}"
    found = []
    for _ in range(2):
        some = sorted(draw(st.sets(st.sampled_from([n for n in layers if n < top]))) if top > layers[0] else [])
        chain = [f"L{n}H{draw(st.integers(0, model.architecture.heads[n] - 1))}" for n in reversed(some)]
        found.append([head, *chain])
    return model, *found


@given(chains(), st.integers(-4, 0))
def test_circuits_are_the_dense_products(made: tuple[Model, list[str], list[str]], offset: int) -> None:
    model, query, key = made
    turned = model.architecture.positions == "rotary"
    more = {"offset": offset} if turned else {}
    found = sc.circuit(model, "QK", key[0], query=query[1:], key=key[1:], **more)
    wanted = dense(model, "QK", key[0], query[1:], key[1:], offset=offset)
    check(found, wanted)
    if model.architecture.unembed:
        check(sc.circuit(model, "OV", *key), dense(model, "OV", key[0], *key[1:]))
    else:
        with pytest.raises(ValueError, match="no unembedding"):
            sc.circuit(model, "OV", *key)


def check(found: Circuit, wanted: Any) -> None:
    size = max(np.abs(wanted).max(), 1e-3)
    assert found.shape == wanted.shape
    assert np.abs(found.array() - wanted).max() < 1e-12 * size
    assert math.isclose(found[1, 2], wanted[1, 2], abs_tol=1e-12 * size)
    assert np.allclose(found.block([3, 0], [5]), wanted[[3, 0]][:, [5]], atol=1e-12 * size)
    assert np.allclose(found.block([2]), wanted[[2]], atol=1e-12 * size)
    assert np.allclose(found.block(columns=[0, 1]), wanted[:, :2], atol=1e-12 * size)
    assert math.isclose(found.norm, np.linalg.norm(wanted), rel_tol=1e-10)
    assert math.isclose(found.trace, np.trace(wanted), rel_tol=1e-9, abs_tol=1e-11 * size)
    assert np.allclose(found.diagonal, np.diag(wanted), atol=1e-12 * size)
    values = np.linalg.svd(wanted, compute_uv=False)
    assert np.allclose(found.svd.values, values[: len(found.svd.values)], atol=1e-10 * size)
    assert np.allclose(values[found.width :], 0, atol=1e-10 * size)
    other = np.linalg.eigvals(wanted)
    assert math.isclose(np.abs(found.eigenvalues).sum(), np.abs(other).sum(), rel_tol=1e-2, abs_tol=1e-2 * size)
    flat = sorted(((-v, i) for i, v in enumerate(found.array().reshape(-1))))[:4]
    assert [(p.row, p.column) for p in found.top(4)] == [divmod(i, wanted.shape[1]) for _, i in flat]


def test_the_measured_numbers_of_trained_models(data: Path) -> None:
    """Copying of the induction head, matching of its K-composition, as an independent script measured them."""
    for place_, earlier, copying, matching in (
        (path(), "L0H2", "1.00", "0.99"),
        (data / "induction_shortformer_h2_s3", "L0H0", "0.98", "1.00"),
        (data / "real_gbmi_indhead_finetuned_model_0", "L0H0", "1.00", "1.00"),
    ):
        model = sc.load(place_)
        copied = sc.circuit(model, "OV", "L1H0").copying()
        matched = sc.circuit(model, "QK", "L1H0", key=earlier).matching()
        assert f"{copied.eigenvalue_positivity:.2f}" == copying
        assert f"{matched.eigenvalue_positivity:.2f}" == matching
        assert (copied.name, matched.name) == ("copying", "matching")
        dense_ = np.linalg.eigvals(dense(model, "QK", "L1H0", [], [earlier]))
        assert math.isclose(matched.eigenvalue_positivity or 0, dense_.sum().real / np.abs(dense_).sum(), rel_tol=1e-6)


def test_a_circuit_is_the_matrix_of_its_formula() -> None:
    """Its printed text, evaluated by Python with the model's arrays."""
    model = sc.random_model(sc.attention_only((1, 1)), d_model=6, d_vocab=5)
    run = model.run([0])
    for found in (
        sc.circuit(model, "OV", "L1H0", "L0H0"), sc.circuit(model, "QK", "L1H0", key="L0H0", query="L0H0"),
        sc.circuit(model, "OV", "L1H0", end="stream"), sc.circuit(model, "QK", "L1H0", start="stream"),
    ):  # fmt: skip
        for notation in ("paper", "row"):
            one = found.written(notation)
            names = {name: run.arrays[name] for name in ("W_E", "W_U")}
            for glyph in ("W_OV", "W_QK"):
                names[glyph] = {key: run.arrays[f"{glyph}_{key}"] for key in ("L0H0", "L1H0")}
            text = re.sub(r"\[(L\dH\d)\]", r"['\1']", one.formula)
            assert np.allclose(eval(text, {}, names), one.array())  # text of our own


def test_both_conventions() -> None:
    model = sc.load(path())
    columns = sc.circuit(model, "OV", "L1H0", "L0H2")
    rows, lens = columns.written("row"), columns.written("transformerlens")
    assert columns.formula == "W_U @ W_OV[L1H0] @ W_OV[L0H2] @ W_E"
    assert rows.formula == "W_E.T @ W_OV[L0H2].T @ W_OV[L1H0].T @ W_U.T"
    assert lens.formula == "W_E @ OV[L0H2] @ OV[L1H0] @ W_U"
    assert lens.latex().startswith("W_E")
    assert columns.axes == rows.axes[::-1] == ("output token", "input token")
    assert np.allclose(columns.array(), rows.array().T, rtol=0, atol=1e-13)
    assert np.array_equal(columns.diagonal_rank, lens.diagonal_rank)
    assert np.array_equal(rows.written("paper").array(), columns.array())
    assert (columns.convention, rows.convention) == (
        "a map on columns, as in the paper", "a map on rows, the paper's transposed",
    )  # fmt: skip
    match = sc.circuit(model, "QK", "L1H0", key="L0H2")
    assert match.written("transformerlens").formula == "W_E @ QK[L1H0] @ OV[L0H2].T @ W_E.T"
    assert np.array_equal(match.written("row").array(), match.array())
    assert match.axes == match.written("row").axes == ("query token", "key token")
    other = columns.written(sc.Notation("paper", {"W_OV": "M"}))
    assert other.formula == "W_U @ M[L1H0] @ M[L0H2] @ W_E"


@given(featured_models(d_model=6, d_head=4, d_vocab=7))
def test_the_direct_path_is_the_bigram_table(model: Model) -> None:
    assume(model.architecture.unembed)
    found = sc.circuit(model, "direct")
    w_u, w_e = ends(model)
    check(found, w_u @ w_e)
    assert found.copying().tokens == 7
    assert np.allclose(found.written("row").array(), (w_u @ w_e).T)
    if model.architecture.norm is None:
        assert found.formula == "W_U @ W_E"


def test_positions_and_streams() -> None:
    model = sc.random_model(sc.attention_only((1, 1), "standard"), n_context=6)
    p, w_e = model.weights["W_pos"], model.weights["W_E"]
    qk, w_ov = matrices(model, 1, 0, True, 0)
    both = sc.circuit(model, "QK", "L1H0", start=("pos", "embed"))
    assert both.axes == ("query position", "key token")
    assert both.formula == "P @ W_QK[L1H0] @ W_E"
    assert np.allclose(both.array(), p @ qk @ w_e)
    with pytest.raises(ValueError, match="rows and columns of one kind; here they are query positions and key tokens"):
        both.matching()
    assert np.allclose(sc.circuit(model, "QK", "L1H0", start="pos").array(), p @ qk @ p.T)
    assert np.allclose(sc.circuit(model, "OV", "L1H0", start="pos").array(), model.weights["W_U"] @ w_ov @ p.T)
    bare = sc.circuit(model, "OV", "L1H0", start="stream", end="stream")
    assert bare.formula == "W_OV[L1H0]"
    assert np.allclose(bare.array(), w_ov)
    assert math.isclose(bare.trace, np.trace(w_ov), rel_tol=1e-12)
    with pytest.raises(ValueError, match="the stream has no distinguished basis"):
        bare.copying()
    late = sc.random_model(sc.attention_only((1, 1), "shortformer"), n_context=6)
    found = sc.circuit(late, "QK", "L1H0", start=("embed", "pos"), query="L0H0")
    wanted = (matrices(late, 0, 0, True, 0)[1] @ late.weights["W_E"]).T @ matrices(late, 1, 0, True, 0)[0]
    assert np.allclose(found.array(), wanted @ late.weights["W_pos"].T)
    for call in (
        lambda: sc.circuit(late, "OV", "L1H0", start="pos"),
        lambda: sc.circuit(late, "QK", "L1H0", start="pos", key="L0H0"),
    ):
        with pytest.raises(ValueError, match="positions enter queries and keys only"):
            call()


def test_norms_are_folded_and_positions_enter_behind_them() -> None:
    late = sc.random_model(sc.attention_only((1, 1), "shortformer", norm="LN"), n_context=6)
    found = sc.circuit(late, "QK", "L1H0", start=("embed", "pos"))
    w_q = behind_norm(late, 1, late.weights["W_Q_L1H0"])
    assert np.allclose(
        found.array(), late.weights["W_E"].T @ w_q.T @ late.weights["W_K_L1H0"] @ late.weights["W_pos"].T
    )
    assert found.formula == "W_E.T @ C @ gain[L1] @ W_QK[L1H0] @ P.T"
    assert any("1 / sigma" in note for note in found.notes)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stored_types_are_taken_up(dtype: str) -> None:
    base = sc.random_model(sc.attention_only((1, 1)), d_vocab=3000, d_model=64)
    model = replace(base, weights={n: w.astype(dtype) for n, w in base.weights.items()}, dtype="")
    found = sc.circuit(model, "OV", "L1H0", "L0H0")
    wanted = dense(model, "OV", "L1H0", "L0H0")
    assert np.abs(found.array() - wanted).max() < 1e-13 * np.abs(wanted).max()
    assert any("float16" in note for note in found.notes) == (dtype == "float16")


def test_a_large_vocabulary_is_not_squared() -> None:
    base = sc.random_model(sc.attention_only((1, 1)), d_vocab=4000, d_model=16)
    model = replace(base, weights={n: w.astype("float32") for n, w in base.weights.items()}, dtype="")
    tracemalloc.start()
    found = sc.circuit(model, "QK", "L1H0", key="L0H0")
    assert len(found.eigenvalues) == found.svd.rank == 4
    assert math.isclose(found.trace, found.diagonal.sum(), rel_tol=1e-9)
    assert found.block([3, 5]).shape == (2, 4000)
    found.json()
    _, most = tracemalloc.get_traced_memory()
    assert most < 8 * 4000**2 / 30
    tracemalloc.reset_peak()
    assert len(found.top(5, max_memory=2**20)) == 5
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * 4000**2 / 30


# --------------------------------------------------------------------------------------------- largest entries
@given(st.integers(0, 40), st.sampled_from(["largest", "smallest", "absolute"]), st.integers(0, 600), st.integers(0, 9))
def test_the_largest_entries_are_exact_in_any_memory(k: int, by: str, memory: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = ov(np.round(rng.standard_normal((5, 5)), 1))  # with ties
    matrix = found.array()
    keys = {"largest": -matrix, "smallest": matrix, "absolute": -np.abs(matrix)}[by]
    order = np.argsort(keys.reshape(-1), kind="stable")[:k]
    wanted = [(*divmod(int(i), 5), float(matrix.reshape(-1)[i])) for i in order]
    assert [tuple(pair) for pair in found.top(k, by, max_memory=memory)] == wanted


def test_blocks_stay_within_the_memory_that_is_given() -> None:
    found = sc.circuit(sc.random_model(sc.attention_only((1,)), d_vocab=400), "OV", "L0H0")
    for memory in (1, 24 * 400 * 7, 10**9):
        sizes = [len(block) for _, block in found._blocks(memory)]
        assert sum(sizes) == 400
        assert all(24 * 400 * n <= max(memory, 24 * 400) for n in sizes)
    assert [pair[:2] for pair in found.top(3, max_memory=0)] == [pair[:2] for pair in found.top(3)]
    with pytest.raises(ValueError, match=r"needs 1\.22 MiB, and max_memory is 1 MiB: take rows"):
        found.array(max_memory=2**20)


# ------------------------------------------------------------------------------------------------------- spectra
def test_positive_eigenvalues_do_not_show_that_a_head_copies() -> None:
    found = ov([[-1, 3], [-2, 4]])
    assert np.allclose(found.eigenvalues, [2, 1])
    scores = found.copying()
    assert math.isclose(scores.eigenvalue_positivity or 0, 1)
    assert (scores.positive_diagonal, scores.top_of_diagonal) == (0.5, 1)
    assert found[0, 0] == -1  # it lowers its first token, which is the first of its outputs
    assert "necessary and not sufficient" in scores.text()


@pytest.mark.parametrize(
    ("matrix", "values", "positivity"),
    [
        ([[0, -2], [2, 0]], [2j, -2j], 0),  # complex pairs
        ([[1, -2], [2, 1]], [1 + 2j, 1 - 2j], 1 / math.sqrt(5)),
        ([[3, 1], [0, 3]], [3, 3], 1),  # defective
        ([[-2, 1, 0], [0, -2, 1], [0, 0, -2]], [-2] * 3, -1),
        ([[1, 0], [0, -1]], [1, -1], 0),
        ([[0, 0, 1], [1, 0, 0], [0, 1, 0]], [1, (-1 + 3**0.5 * 1j) / 2, (-1 - 3**0.5 * 1j) / 2], 0),  # a permutation
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_complex_and_defective_spectra(matrix: Any, values: Any, positivity: float, turned: bool) -> None:
    base = np.array(matrix, float)
    if turned:  # in a basis in which no zero is seen
        turn = np.random.default_rng(1).standard_normal(base.shape)
        base = turn @ base @ np.linalg.inv(turn)
    found = ov(base)
    assert np.abs(np.sort_complex(found.eigenvalues) - np.sort_complex(np.array(values, complex))).max() < 1e-3
    assert found.spectrum.positivity is not None
    assert found.spectrum.error is not None
    assert abs(found.spectrum.positivity - positivity) <= max(100 * found.spectrum.error, 1e-12)
    assert found.spectrum.error < 1e-3
    assert math.isclose(found.trace, sum(values).real, abs_tol=1e-12)


def test_eigenvalues_come_in_one_order() -> None:
    """The largest modulus first; of one modulus the positive, then the one above the real line."""
    assert np.allclose(ov(np.diag([-1.0, 3, 1, -3])).eigenvalues, [3, -3, 1, -1])
    assert np.allclose(ov([[0, -2, 0], [2, 0, 0], [0, 0, 5]]).eigenvalues, [5, 2j, -2j])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("turned", [False, True])
def test_where_all_eigenvalues_are_zero_there_is_no_positivity(size: int, turned: bool) -> None:
    """Nilpotent: what is computed is far from 0, the rounding to the power of 1 / size."""
    matrix = np.eye(size, k=1)
    if turned and size > 1:
        turn = np.linalg.qr(np.random.default_rng(1).standard_normal((size, size)))[0]
        matrix = turn @ matrix @ turn.T
    scores = ov(matrix).copying()
    assert scores.eigenvalue_positivity is scores.error is None
    assert "0 / 0" in scores.reason
    assert "0 / 0" in scores.text()
    json.dumps(scores.json(), allow_nan=False)


def test_the_small_product_has_the_spectrum_of_the_large_one() -> None:
    rng = np.random.default_rng(0)
    for r, s in ((3, 3), (3, 5), (5, 3), (9, 9)):
        left, core, right = rng.standard_normal((7, r)), rng.standard_normal((r, s)), rng.standard_normal((7, s))
        found = spectrum(Factored(left, core, right, 1.0))
        whole = np.linalg.eigvals(left @ core @ right.T)
        kept = min(7, r, s)
        assert len(found.values) == kept
        assert found.zeros == 7 - kept
        largest = whole[np.argsort(-np.abs(whole))][:kept]
        assert np.allclose(np.sort(np.abs(found.values)), np.sort(np.abs(largest)))
        assert np.isclose(found.values.sum(), whole.sum())
        assert np.isclose(found.trace, whole.sum().real)


@given(st.integers(2, 5), st.integers(0, 10**6), st.sampled_from(["integers", "defective", "nearly"]))
def test_the_error_of_positivity_covers_what_many_digits_show(n: int, seed: int, kind: str) -> None:
    """Beside 60 digits of mpmath."""
    rng = np.random.default_rng(seed)
    r = int(rng.integers(1, n + 1))
    left, right = rng.integers(-3, 4, (2, n, r)).astype(float)
    if kind == "defective":
        basis = rng.integers(-2, 3, (r, r)) + 5.3 * np.eye(r)
        left[:], right[:] = 0, 0
        left[:r], right[:r] = basis @ (2 * np.eye(r) + np.eye(r, k=1)), np.linalg.inv(basis).T
    elif kind == "nearly":
        left = left + 1e-9 * rng.standard_normal(left.shape)
    found = spectrum(Factored(left, None, right, 1.0))
    with mpmath.workdps(60):
        small = mpmath.matrix(right.T.tolist()) * mpmath.matrix(left.tolist())
        values, _ = mpmath.eig(small)
        moduli = float(sum(abs(value) for value in values))
        trace = float(sum(small[i, i] for i in range(r)))
    if found.positivity is None or found.error is None:
        assert moduli < 1e-5 * max(np.linalg.norm(left) * np.linalg.norm(right), 1e-300)
    else:
        assert abs(trace / moduli - found.positivity) <= 10 * found.error + 1e-14


# ----------------------------------------------------------------------------------------------- singular values
def test_directions_inside_a_block_are_refused() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    other = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    found = ov(turn @ np.diag([5, 2, 2, 2, 1, 0]) @ other).svd
    assert [(b.start, b.stop, b.kind) for b in found.blocks] == [
        (0, 1, "single"), (1, 4, "degenerate"), (4, 5, "single"), (5, 6, "null"),
    ]  # fmt: skip
    assert found.rank == 5
    left, right = found.direction(0)
    assert abs(abs(left @ turn[:, 0]) - 1) < 1e-12
    assert math.isclose(left @ turn[:, 0], right @ other[0], abs_tol=1e-12)
    for i in (1, 2, 3):
        with pytest.raises(ValueError, match=r"singular values 1 to 3 \(2 to 2\) are too close to tell"):
            found.direction(i)
        left, right = found.subspace(i)
        assert np.allclose(left @ left.T, turn[:, 1:4] @ turn[:, 1:4].T)
        assert np.allclose(left @ right.T, turn[:, 1:4] @ other[1:4])
    for call in (found.direction, found.subspace):
        with pytest.raises(ValueError, match="singular value 5 may be 0"):
            call(5)
    with pytest.raises(ValueError, match="singular value 6 does not exist: there are 6"):
        found.direction(6)


@pytest.mark.parametrize(("first", "second"), [(1e-9, 1e-9), (1e9, 1e9), (1e-9, 1e9), (1e12, 1.0)])
def test_blocks_and_positivity_do_not_see_the_size_of_weights(first: float, second: float) -> None:
    rng = np.random.default_rng(2)
    turn, other = (np.linalg.qr(rng.standard_normal((5, 5)))[0] for _ in range(2))
    values, core = np.array([2.0, 1 + 1e-13, 1, 1e-5, 0]), np.diag([1.0, 2, 1, 1, 1])
    for middle in (None, core):
        one, two = (
            Factored(a * turn * values, middle, b * other, 1.0) for a, b in ((1.0, 1.0), (first, second))
        )  # fmt: skip
        kinds = [[(b.start, b.stop, b.kind) for b in singular_values(found).blocks] for found in (one, two)]
        assert kinds[0] == kinds[1]
        assert len(kinds[0]) > 2
        plain, scaled = spectrum(one), spectrum(two)
        assert math.isclose(plain.positivity or 9, scaled.positivity or 8, rel_tol=1e-9)
        assert math.isclose(plain.error or 9, scaled.error or 8, rel_tol=0.9, abs_tol=1e-15)


@given(st.floats(-14, -2), st.integers(0, 9))
def test_a_direction_that_is_given_is_not_moved_by_rounding(exponent: float, seed: int) -> None:
    """Two values that are near: where they are told apart, another order of the sums gives the same directions."""
    rng = np.random.default_rng(seed)
    turn, other = (np.linalg.qr(rng.standard_normal((8, 8)))[0] for _ in range(2))
    values = np.array([3, 1 + 10**exponent, 1, 0.5, 0, 0, 0, 0])
    left, right = turn * values, other
    mixed = rng.standard_normal((8, 8)) + 4 * np.eye(8)
    one = singular_values(Factored(left, None, right, 1.0))
    two = singular_values(Factored(left @ mixed, np.linalg.inv(mixed), right, 1.0))
    for found in (one, two):
        block = found.block(1)
        if block.kind == "single":
            assert abs(abs(found.direction(1)[0] @ turn[:, 1]) - 1) < 1e-6
            assert exponent > -10
        else:
            assert exponent < -5
            assert np.allclose(np.abs(found.subspace(1)[0].T @ turn[:, 1:3]) ** 2 @ np.ones(2), 1)


def test_low_rank_is_seen() -> None:
    found = sc.circuit(sc.random_model(sc.attention_only((1, 1)), d_vocab=30), "QK", "L1H0", key="L0H0")
    assert (found.width, found.svd.rank, len(found.svd.values), found.svd.shape) == (4, 4, 4, (30, 30))
    assert all(block.kind == "single" for block in found.svd.blocks)
    for i in range(4):
        left, right = found.svd.direction(i)
        assert math.isclose(left @ found.array() @ right, found.svd.values[i], rel_tol=1e-12)


# -------------------------------------------------------------------------------------------- copying and matching
@given(st.integers(1, 6), st.integers(0, 30))
def test_the_three_scores_by_a_plain_loop(n: int, seed: int) -> None:
    matrix = np.round(np.random.default_rng(seed).standard_normal((n, n)), 1)
    found = ov(matrix)
    ranks, firsts, ties = [], 0, 0
    for j in range(n):  # outputs for input j
        above = sum(matrix[i, j] > matrix[j, j] for i in range(n))
        equal = sum(matrix[i, j] == matrix[j, j] for i in range(n) if i != j)
        ranks.append(above)
        firsts += above == 0 and equal == 0
        ties += above == 0 and equal > 0
    scores = found.copying()
    assert found.diagonal_rank.tolist() == ranks
    assert (scores.top_of_diagonal, scores.ties, scores.tokens) == (firsts / n, ties, n)
    assert scores.positive_diagonal == sum(matrix[i, i] > 0 for i in range(n)) / n


def test_matching_looks_along_the_keys_of_a_query() -> None:
    n = 3
    base = sc.random_model(sc.attention_only((1,)), d_vocab=n, d_model=n, d_head=n)
    scores = np.array([[5.0, 9, 0], [0, 1, 0], [7, 0, 6]])  # rows are queries
    own = {"W_E": np.eye(n), "W_Q_L0H0": np.eye(n), "W_K_L0H0": scores}
    found = sc.circuit(replace(base, weights={**base.weights, **own}), "QK", "L0H0")
    assert np.allclose(found.array(), scores)
    assert found.diagonal_rank.tolist() == [1, 0, 1]


def test_each_says_why_its_scores_are_not_sufficient() -> None:
    base = sc.random_model(sc.attention_only((1,)), d_vocab=2, d_model=2, d_head=2)
    own = {"W_E": np.eye(2), "W_Q_L0H0": np.eye(2), "W_K_L0H0": np.array([[-1.0, 3], [-2, 4]])}
    query = sc.circuit(replace(base, weights={**base.weights, **own}), "QK", "L0H0")
    assert query.matching().eigenvalue_positivity == pytest.approx(1)
    assert query[0, 0] == -1 < query[0, 1] == 3  # a query with the first token looks for the other one
    for found, other, says in (
        (ov(np.array([[-1.0, 3], [-2, 4]])).copying(), "query", "lowers the logit of that token"),
        (query.matching(), "logit", "a query with that token attends to the other one"),
    ):
        words = " ".join(found.text(1000).split())
        assert "each is necessary and not sufficient: [[-1, 3], [-2, 4]]" in words
        assert says in words
        assert other not in words.partition("necessary")[2]


def test_a_zero_head_says_that_nothing_can_be_said() -> None:
    found = ov(np.zeros((3, 3)))
    scores = found.copying()
    assert (scores.eigenvalue_positivity, scores.positive_diagonal, scores.top_of_diagonal) == (None, 0, 0)
    assert scores.ties == 3
    assert [block.kind for block in found.svd.blocks] == ["null"]
    assert (found.norm, found.trace, found.svd.rank) == (0, 0, 0)
    assert "0 / 0" in found.text()
    json.dumps(found.json(3), allow_nan=False)


def test_tied_embeddings_are_said() -> None:
    model = with_ov(np.eye(3), W_E=np.diag([1.0, 2, 3]), W_U=np.diag([1.0, 2, 3]))
    assert any("tied" in note for note in sc.circuit(model, "OV", "L0H0").notes)
    assert not any("tied" in note for note in sc.circuit(model, "QK", "L0H0").notes)


def test_a_vocabulary_of_another_size_has_no_diagonal() -> None:
    found = sc.circuit(sc.random_model(sc.attention_only((1,)), d_vocab_out=7), "OV", "L0H0")
    assert found.shape == (7, 11)
    for call in (lambda: found.eigenvalues, lambda: found.diagonal_rank, found.copying, lambda: found.trace):
        with pytest.raises(ValueError, match="as many rows as columns; here there are 7 output tokens and 11 input"):
            call()
    assert found.json()["eigenvalues"] is None
    assert "trace" not in found.text()


def test_full_circuits_stay_under_any_change_of_basis() -> None:
    model = sc.random_model(sc.attention_only((2, 2)), d_model=8)
    moved = sc.change_basis(model, np.random.default_rng(0).standard_normal((8, 8)))
    for made in (("OV", "L1H0", "L0H1"), ("QK", "L1H1")):
        before, after = sc.circuit(model, *made), sc.circuit(moved, *made)
        assert np.allclose(before.array(), after.array(), atol=1e-9)
        assert np.allclose(np.abs(before.eigenvalues), np.abs(after.eigenvalues), atol=1e-9)


def test_what_leaves_the_model_and_moves_its_circuits() -> None:
    """A vector added to every row of W_U; a vector moved from all token embeddings to all positions."""
    model = sc.random_model(sc.attention_only((1, 1), "standard"), n_context=8)
    v, w, run = np.linspace(-1, 2, 16), model.weights, model.run([1, 2, 3])
    shifted = replace(model, weights={**w, "W_U": w["W_U"] + v})
    moved = replace(model, weights={**w, "W_E": w["W_E"] + v[:, None], "W_pos": w["W_pos"] - v})
    differences = np.diff(run.logits, axis=-1)
    assert np.allclose(np.diff(shifted.run([1, 2, 3]).logits, axis=-1), differences)
    assert np.allclose(moved.run([1, 2, 3]).logits, run.logits)
    output, match = sc.circuit(model, "OV", "L1H0"), sc.circuit(model, "QK", "L1H0")
    for other in (shifted, moved):
        changed = sc.circuit(other, "OV", "L1H0")
        assert np.abs(changed.array() - output.array()).max() > 0.1
        assert (
            abs((changed.copying().eigenvalue_positivity or 0) - (output.copying().eigenvalue_positivity or 0)) > 1e-3
        )
    assert np.allclose(sc.circuit(shifted, "QK", "L1H0").array(), match.array())
    assert np.abs(sc.circuit(moved, "QK", "L1H0").array() - match.array()).max() > 0.1
    assert "every row of W_U" in output.invariant
    assert "every position" in output.invariant
    assert "W_U" not in match.invariant
    assert "every position" in match.invariant
    assert "depends on the basis of the stream" in sc.circuit(model, "OV", "L1H0", end="stream").invariant
    normed = sc.random_model(sc.transformer((1,), norm="RMS"))
    assert "norms fix that of the stream" in sc.circuit(normed, "QK", "L0H0").invariant


@pytest.mark.parametrize("width", [1, 2, 4, 16, 64, 90])
def test_positivity_by_chance(width: int) -> None:
    """Matrices of independent normal numbers, one by one; random heads in a vocabulary that is large."""
    draws = np.random.default_rng(7)
    plain = []
    for _ in range(400 if width < 64 else 60):
        values = np.linalg.eigvals(draws.standard_normal((width, width)))
        plain.append(values.sum().real / np.abs(values).sum())
    found = positivity_chance(width)
    assert abs(found.std / np.sqrt(np.mean(np.square(plain))) - 1) < (0.15 if width < 64 else 0.3)
    assert found is positivity_chance(width)
    scores = sc.circuit(sc.random_model(sc.attention_only((1,)), d_head=width, d_model=90, d_vocab=300), "OV", "L0H0")
    copied = scores.copying()
    assert copied.chance.width == width
    assert abs(copied.eigenvalue_positivity or 0) < 5 * copied.chance.std
    assert copied.by_chance == {"eigenvalue_positivity": 0, "positive_diagonal": 0.5, "top_of_diagonal": 1 / 300}


# ---------------------------------------------------------------------------------------------------- refusals
REFUSED: list[tuple[Any, str]] = [
    (lambda m: sc.circuit(m, "VO", "L1H0"), "unknown circuit 'VO': choose 'OV', 'QK' or 'direct'"),
    (lambda m: sc.circuit(m, "OV"), 'give the head of the circuit, for example circuit(model, "OV", "L0H0")'),
    (lambda m: sc.circuit(m, "OV", "L7H0"), "there is no head L7H0"),
    (lambda m: sc.circuit(m, "OV", "L0H0", "L1H0"), "L1H0 is after L0H0, which cannot read what it writes"),
    (lambda m: sc.circuit(m, "OV", "L1H0", "L1H1"), "L1H1 is in the same layer as L1H0"),
    (lambda m: sc.circuit(m, "QK", "L0H0", key="L1H0"), "L1H0 is after L0H0"),
    (lambda m: sc.circuit(m, "QK", "L1H0", "L0H0"), "heads that compose with its query or key are given by query="),
    (lambda m: sc.circuit(m, "OV", "L1H0", key="L0H0"), "for an OV circuit give the heads, the latest first"),
    (lambda m: sc.circuit(m, "OV", "L1H0", start="position"), "start must be one of embed, pos, stream"),
    (lambda m: sc.circuit(m, "OV", "L1H0", start="pos"), "no position table"),
    (lambda m: sc.circuit(m, "OV", "L1H0", end="logit"), 'end must be "logits" or "stream", not'),
    (lambda m: sc.circuit(m, "QK", "L1H0", end="stream"), "end applies to OV circuits"),
    (lambda m: sc.circuit(m, "QK", "L1H0", start=("embed",)), "start must be one name, or a pair for query and key"),
    (lambda m: sc.circuit(m, "QK", "L1H0", offset=-1), "offset applies to rotary positions"),
    (lambda m: sc.circuit(m, "OV", "L1H0")[99, 0], "row 99 does not exist: there are 11"),
    (lambda m: sc.circuit(m, "OV", "L1H0")[0], "an entry is selected by its row and its column"),
    (lambda m: sc.circuit(m, "OV", "L1H0").block([0], [-1]), "column -1 does not exist"),
    (lambda m: sc.circuit(m, "OV", "L1H0").block(), "give rows or columns"),
    (lambda m: sc.circuit(m, "OV", "L1H0").top(by="size"), "by must be one of largest, smallest, absolute"),
    (lambda m: sc.circuit(m, "OV", "L1H0").top(-1), "k must be a whole number, 0 or more, not -1"),
    (lambda m: sc.circuit(m, "OV", "L1H0").matching(), "a circuit of kind OV has no matching: see copying"),
    (lambda m: sc.circuit(m, "QK", "L1H0").copying(), "a circuit of kind QK has no copying: see matching"),
    (lambda m: sc.circuit(m, "OV", "L1H0").written("rows"), "notation must be one of row, paper, transformerlens"),
    (lambda m: sc.circuit(m.architecture, "OV", "L1H0"), "circuit takes a model"),
    (lambda m: sc.circuit(m, "direct", "L1H0"), "the direct path goes through no head"),
    (lambda m: sc.circuit(m, "direct", end="stream"), "without one of its ends nothing is multiplied"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_made_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call(sc.random_model(sc.attention_only((2, 2))))


def test_weights_that_leave_the_range_of_numbers_are_refused() -> None:
    base = sc.random_model(sc.attention_only((1,)))
    large = {name: base.weights[name] * 1e300 for name in ("W_O_L0H0", "W_U")}
    huge = replace(base, weights={**base.weights, **large})
    with pytest.raises(ValueError, match="leaves the range of float64"):
        sc.circuit(huge, "OV", "L0H0")


def test_a_compiled_program_has_circuits_of_its_stream(data: Path) -> None:
    model = sc.load(data / "tracr_induction_K_2L")
    with pytest.raises(ValueError, match='end="stream" gives its output in the stream'):
        sc.circuit(model, "OV", "L1H0")
    found = sc.circuit(model, "OV", "L1H0", end="stream")
    assert found.axes == ("output stream", "input token")
    assert found.shape == (model.d_model, model.d_vocab)
    assert sc.circuit(model, "QK", "L1H0", key="L0H0").shape == (model.d_vocab, model.d_vocab)


# ------------------------------------------------------------------------------------------------- how it is shown
def test_text_and_json_hold_the_same_numbers() -> None:
    found = sc.circuit(sc.load(path()), "QK", "L1H0", key="L0H2")
    said = json.loads(json.dumps(found.json(2), allow_nan=False))
    assert said["schema"] == "symcircuits.circuit/1"
    assert (said["kind"], said["heads"], said["query"], said["key"]) == ("QK", ["L1H0"], [], ["L0H2"])
    assert said["formula"] == {"text": found.formula, "latex": found.latex()}
    assert (said["shape"], said["width"], said["rank"]) == ([32, 32], 16, 16)
    assert math.isclose(sum(re for re, _ in said["eigenvalues"]), said["trace"], rel_tol=1e-9)
    assert said["eigenvalue_positivity"] == found.matching().eigenvalue_positivity
    assert said["singular_values"] == found.svd.values.tolist()
    assert [tuple(pair.values()) for pair in said["top"]] == [tuple(pair) for pair in found.top(2)]
    text = found.text(70, top=2)
    assert found.formula in text
    assert all(len(line) <= 70 for line in text.splitlines())
    assert "The largest entries" in text
    assert "The largest entries" not in found.text()
    assert found._repr_latex_() == f"$\\displaystyle {found.latex()}$"


def test_tokens_may_have_names() -> None:
    model = sc.random_model(sc.attention_only((1,), "standard"), d_vocab=5, d_vocab_out=4, n_context=6)
    names = ["the", "cat", "sat", "on", "mat\x1b[2J"]
    found = sc.circuit(model, "QK", "L0H0")
    best = found.top(1)[0]
    shown = found.text(top=1, labels=names).splitlines()[-1].split()
    assert shown[:2] == [names[best.row].replace("\x1b", r"\x1b"), names[best.column].replace("\x1b", r"\x1b")]
    output = sc.circuit(model, "OV", "L0H0")
    assert output.text(top=1, labels=names).splitlines()[-1].split()[0] == str(output.top(1)[0].row)  # inputs alone
    positions = sc.circuit(model, "QK", "L0H0", start="pos")
    assert positions.text(top=1, labels=names).splitlines()[-1].split()[0] == str(positions.top(1)[0].row)
    with pytest.raises(ValueError, match="there are 3 labels; one is needed for each vocabulary entry"):
        found.text(labels=names[:3])
