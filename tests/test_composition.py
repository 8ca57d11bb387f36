"""Composition scores: the recorded ones, a plain oracle with d x d products, chance, and what is null and why."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plain import featured_models, rotation
from strategies import examples, group

import symcircuits as sc
from symcircuits.circuits.chance import Chance, Shapes, chance
from symcircuits.circuits.factoring import Numbers, factored
from symcircuits.circuits.words import ov_word, product_of, score_left
from symcircuits.model import Model
from symcircuits.zoo import path

KINDS = ("Q", "K", "V")
RECORDED = (
    "tl_3layer_s11", "tl_bias_s1", "tl_gqa_s9", "tl_ln_s2", "tl_mlp_gelu_ln_s18", "tl_plain_s0", "tl_rotary_s5",
    "tl_shortformer_s7",
)  # fmt: skip


# ----------------------------------------------------------------------------------------------- a plain oracle
def behind_norm(model: Model, layer: int, w: Any) -> Any:
    """A weight as it reads the stream: gain, then centring, entry by entry."""
    arch = model.architecture
    if not arch.norm:
        return w
    gain = model.weights.get(f"gain_L{layer}", np.ones(model.d_model))
    w = np.array([[float(x) * float(g) for x, g in zip(row, gain, strict=True)] for row in w])
    return np.array([row - math.fsum(row) / len(row) for row in w]) if arch.norm == "LN" else w


def matrices(model: Model, layer: int, i: int, fold: bool, offset: int) -> tuple[Any, Any]:
    """W_QK and W_OV of a head, d x d, from the definition."""
    h, shared = f"L{layer}H{i}", group(model.architecture, layer, i)
    q, k, v = (model.weights[name].astype(np.float64) for name in (f"W_Q_{h}", f"W_K_{shared}", f"W_V_{shared}"))
    if fold:
        q, k, v = (behind_norm(model, layer, w) for w in (q, k, v))
    if model.architecture.qk_norm:
        q, k = model.weights[f"gain_Q{layer}"][:, None] * q, model.weights[f"gain_K{layer}"][:, None] * k
    if model.architecture.positions == "rotary":  # query at -offset, key at 0
        q = rotation(model, -offset, len(q)).T @ q
    return q.T @ k, model.weights[f"W_O_{h}"].astype(np.float64) @ v


def plain_scores(model: Model, kind: str, fold: bool = True, offset: int = 0) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Score, and the same over the tight denominator, by a loop over all pairs."""
    heads = [(layer, i) for layer, n in enumerate(model.architecture.heads) for i in range(n)]
    made = {head: matrices(model, *head, fold, offset) for head in heads}
    found = {}
    for later in heads:
        for earlier in (h for h in heads if h[0] < later[0]):
            qk, ov = made[later]
            a, b = {"Q": qk.T, "K": qk, "V": ov}[kind], made[earlier][1]
            above, size = np.linalg.norm(a @ b), np.linalg.norm(a) * np.linalg.norm(b)
            singular = [np.linalg.svd(x, compute_uv=False) for x in (a, b)]
            tight = math.sqrt(math.fsum(float(s * t) ** 2 for s, t in zip(*singular, strict=True)))
            names = f"L{later[0]}H{later[1]}", f"L{earlier[0]}H{earlier[1]}"
            found[names] = above / size, above / tight
    return found


# --------------------------------------------------------------------------------------------------- the numbers
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_recorded_ones(data: Path, name: str, kind: str) -> None:
    """Of TransformerLens, which takes weights as they are stored: behind a norm those are not what reads the stream."""
    model = sc.load(data / name)
    recorded = np.load(data / name / "reference.npz")[f"comp/{kind}"]
    size = len(model.architecture.all_heads)
    wanted = recorded.transpose(2, 3, 0, 1).reshape(size, size)
    found = sc.composition_scores(model, kind, fold=False)
    assert np.abs(found.array.filled(0) - wanted).max() < 1e-14
    assert np.array_equal(np.ma.getmaskarray(found.array), wanted == 0)
    folded = sc.composition_scores(model, kind)
    same = bool(np.abs(folded.array.filled(0) - wanted).max() < 1e-12)
    assert same == (model.architecture.norm is None)
    if not same:
        assert any("folded" in note for note in folded.notes)
        assert any("left out" in note for note in found.notes)


@given(featured_models(d_model=6, d_head=4), st.sampled_from(KINDS), st.booleans(), st.integers(-5, 0))
def test_scores_are_those_of_a_plain_loop(model: Model, kind: str, fold: bool, offset: int) -> None:
    turned = model.architecture.positions == "rotary" and kind != "V"
    found = sc.composition_scores(model, kind, fold=fold, offset=offset if turned else None)
    wanted = plain_scores(model, kind, fold, offset)
    pairs = {(pair.later, pair.earlier): pair for pair in found.pairs()}
    assert pairs.keys() == wanted.keys()
    late = model.architecture.positions == "shortformer" and fold and kind != "V"
    for names, pair in pairs.items():
        gain = f"L{names[0][1 : names[0].index('H')]}" in model.architecture.gains
        if late and gain:
            assert pair.score is None
            assert "cannot be folded" in pair.reason
            continue
        assert pair.score is not None
        assert pair.tight is not None
        assert math.isclose(pair.score, wanted[names][0], rel_tol=1e-9, abs_tol=1e-13)
        assert math.isclose(pair.tight, wanted[names][1], rel_tol=1e-9, abs_tol=1e-13)
        assert pair.tight <= 1 + 1e-12
        assert found[names] == pair.score
        assert found.reason(*names) == pair.reason == ""


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_heads_wider_than_the_stream(d_model: int, d_head: int, seed: int) -> None:
    model = sc.random_model(sc.attention_only((2, 1)), d_model=d_model, d_head=d_head, seed=seed)
    for kind in KINDS:
        found = sc.composition_scores(model, kind)
        for names, (score, _) in plain_scores(model, kind).items():
            assert math.isclose(found[names] or 0, score, rel_tol=1e-9)


def test_heads_of_different_sizes() -> None:
    base = sc.random_model(sc.attention_only((2, 2)), d_model=8, d_head=3)
    weights = dict(base.weights)
    draws = np.random.default_rng(0)
    for name in weights:
        if name.endswith("H1"):
            shape = (8, 5) if name[:3] == "W_O" else (5 if name[:3] == "W_V" else 2, 8)
            weights[name] = draws.standard_normal(shape)
    model = replace(base, weights=weights)
    for kind in KINDS:
        found = sc.composition_scores(model, kind)
        for pair in found.pairs():
            score, tight = plain_scores(model, kind)[pair.later, pair.earlier]
            assert math.isclose(pair.score or 0, score, rel_tol=1e-12)
            assert math.isclose(pair.tight or 0, tight, rel_tol=1e-12)
        assert len(found.baselines) == 4
        assert found.baseline is None


def test_the_formula_is_the_word_that_was_multiplied() -> None:
    model = sc.random_model(sc.transformer((2, 2), norm="LN"), d_model=8)
    arch = model.architecture
    later, earlier, numbers = arch.head("L1H1"), arch.head("L0H0"), Numbers(model)
    for kind in KINDS:
        left, right = score_left(arch, kind, later), ov_word(arch, earlier)
        dense = []
        for part in (left, right, product_of(left, right).factors):
            a, core, b, _ = factored(part, numbers)
            dense.append(np.linalg.norm((a if core is None else a @ core) @ b.T))
        found = sc.composition_scores(model, kind)
        assert math.isclose(found["L1H1", "L0H0"] or 0, dense[2] / dense[0] / dense[1], rel_tol=1e-12)
        above = found.formula("L1H1", "L0H0").partition(" / ")[0]
        assert above == f"|{product_of(left, right).text}|"


def test_what_tools_print_under_the_same_name_is_something_else() -> None:
    """A packaged tool has W_Q in place of W_QK; a library turned the product of norms cyclically (the erratum)."""
    model = sc.random_model(sc.attention_only((3, 3)))
    found = sc.composition_scores(model, "K")["L1H0", "L0H2"] or 0.0
    qk, ov = matrices(model, 1, 0, True, 0)[0], matrices(model, 0, 2, True, 0)[1]
    w_k, w_q = (model.weights[f"W_{c}_L1H0"].astype(float) for c in "KQ")
    norm = np.linalg.norm
    tool = norm(w_k @ ov) / norm(w_k) / norm(ov)
    cyclic = norm(w_k @ ov @ w_q.T) / norm(qk) / norm(ov)
    transposed = norm(qk @ ov.T) / norm(qk) / norm(ov)
    assert min(abs(other - found) for other in (tool, cyclic, transposed)) > 0.005


def test_no_product_of_the_width_of_the_stream_is_formed() -> None:
    model = sc.random_model(sc.attention_only((2, 2)), d_model=1000, d_head=2, d_vocab=3)
    for kind in KINDS:
        sc.composition_scores(model, kind)  # random heads are drawn once
        tracemalloc.start()
        sc.composition_scores(model, kind)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 8 * 1000**2 / 10


@pytest.mark.parametrize(("scale", "dtype"), [(1e-150, "float64"), (1e150, "float64"), (1.0, "float16")])
def test_scores_do_not_see_the_size_of_weights(scale: float, dtype: str) -> None:
    base = sc.random_model(sc.attention_only((2, 2)), d_model=8)
    scaled = {n: (w * scale).astype(dtype) if n[:3] != "W_E" else w.astype(dtype) for n, w in base.weights.items()}
    model = replace(base, weights=scaled, dtype="")
    reference = model if dtype == "float16" else base
    for kind in KINDS:
        found = sc.composition_scores(model, kind)
        for names, (score, _) in plain_scores(reference, kind).items():
            assert math.isclose(found[names] or 0, score, rel_tol=1e-12)
        assert any("float16" in note for note in found.notes) == (dtype == "float16")


def test_invariance_is_as_it_is_said_to_be() -> None:
    model = sc.random_model(sc.attention_only((2, 2)), d_model=8, d_head=3)
    draws = np.random.default_rng(3)
    turn = np.linalg.qr(draws.standard_normal((8, 8)))[0]
    head = {"L1H0": (draws.standard_normal((3, 3)), draws.standard_normal((3, 3)))}
    for kind in KINDS:
        before = sc.composition_scores(model, kind).array
        for moved in (sc.change_basis(model, turn), sc.change_basis(model, head_bases=head)):
            assert np.abs(sc.composition_scores(moved, kind).array - before).max() < 1e-12
        stretched = sc.change_basis(model, draws.standard_normal((8, 8)))
        assert np.abs(sc.composition_scores(stretched, kind).array - before).max() > 0.01


# --------------------------------------------------------------------------------------------------------- chance
def plain_chance(shapes: Shapes, samples: int) -> tuple[float, float]:
    """Random heads as they are, and their products d x d."""
    draws, scores = np.random.default_rng(1), []
    centre = np.eye(shapes.write) - 1 / shapes.write
    for _ in range(samples):
        q, k = draws.standard_normal((2, shapes.later, shapes.write))
        o = draws.standard_normal((shapes.write, shapes.earlier))
        v = draws.standard_normal((shapes.earlier, shapes.write))
        q, v = (x @ centre if n < shapes.write else x for x, n in ((q, shapes.left), (v, shapes.right)))
        k = k @ centre if shapes.middle < shapes.write else k
        a, b = q.T @ k, o @ v
        scores.append(np.linalg.norm(a @ b) / np.linalg.norm(a) / np.linalg.norm(b))
    return float(np.mean(scores)), float(np.std(scores, ddof=1))


@pytest.mark.parametrize(
    "shapes",
    [
        Shapes(16, 16, 16, 16, 4, 4), Shapes(15, 15, 16, 15, 4, 4), Shapes(6, 6, 6, 6, 8, 8),
        Shapes(12, 11, 12, 11, 2, 5), Shapes(5, 5, 5, 5, 2, 7),
    ],
    ids=str,
)  # fmt: skip
def test_chance_is_that_of_random_heads(shapes: Shapes) -> None:
    found, samples = chance(shapes), 4000
    mean, std = plain_chance(shapes, samples)
    assert abs(found.mean - mean) < 5 * std / math.sqrt(samples)
    assert abs(found.std / std - 1) < 0.08
    assert found is chance(shapes)
    assert found.about == 1 / math.sqrt(shapes.write)


def test_chance_is_near_one_over_the_root_of_d_model() -> None:
    for d_model, d_head in ((64, 16), (768, 64)):
        found = chance(Shapes(d_model, d_model, d_model, d_model, d_head, d_head))
        assert abs(found.mean / found.about - 1) < 0.03
    assert abs(found.mean - 0.03604) < 1e-4  # as measured by others


def test_what_an_ln_centres_has_a_dimension_less() -> None:
    for norm, less in ((None, 0), ("RMS", 0), ("LN", 1)):
        model = sc.random_model(sc.transformer((1, 2), norm=norm), d_model=16, d_head=4)
        for kind in KINDS:
            found = sc.composition_scores(model, kind).baseline
            assert found is not None
            outer = 16 if kind == "V" else 16 - less  # W_O writes to all, W_Q and W_K read what is centred
            assert found.shapes == Shapes(outer, 16 - less, 16, 16 - less, later=4, earlier=4)
            assert sc.composition_scores(model, kind, fold=False).baseline == chance(Shapes(16, 16, 16, 16, 4, 4))


def test_random_heads_are_at_chance_and_trained_ones_are_not() -> None:
    random = sc.composition_scores(sc.random_model(sc.attention_only((6, 6)), d_model=32, d_head=4, seed=5), "K")
    assert {pair.chance for pair in random.pairs()} == {"at"}
    trained = {(p.later, p.earlier): p for p in sc.composition_scores(sc.load(path()), "K").pairs()}
    assert trained["L1H0", "L0H2"].chance == "above"
    assert 15 < (trained["L1H0", "L0H2"].z or 0) < 18
    assert round(trained["L1H0", "L0H2"].tight or 0, 2) == 0.89
    assert (trained["L1H2", "L0H0"].z or 0) < -4
    assert trained["L1H2", "L0H0"].chance == "below"
    assert "below chance" in sc.composition_scores(sc.load(path()), "K").text()


def test_the_measured_pairs_of_trained_models(data: Path) -> None:
    for name, pair, score, tight in (
        ("induction_shortformer_h2_s3", ("L1H0", "L0H0"), 0.233, 0.79),
        ("real_gbmi_indhead_finetuned_model_0", ("L1H0", "L0H0"), 0.482, 0.99),
    ):
        found = sc.composition_scores(sc.load(data / name), "K")
        row = next(p for p in found.pairs() if (p.later, p.earlier) == pair)
        assert (round(row.score or 0, 3), round(row.tight or 0, 2)) == (score, tight)
        assert row.chance == "above"


# --------------------------------------------------------------------------------------------------- what is null
def zeroed(model: Model, *names: str) -> Model:
    return replace(model, weights={n: w * 0 if n in names else w for n, w in model.weights.items()})


def test_a_zero_head_has_no_score() -> None:
    model = zeroed(sc.random_model(sc.attention_only((2, 2))), "W_K_L1H0", "W_O_L0H1")
    for kind in "QK":
        found = sc.composition_scores(model, kind)
        assert found["L1H0", "L0H0"] is None
        assert found.reason("L1H0", "L0H0") == "W_QK of L1H0 is zero, and a score would be 0 / 0"
        assert found["L1H1", "L0H1"] is None
        assert found.reason("L1H1", "L0H1") == "W_OV of L0H1 is zero, and a score would be 0 / 0"
        assert found["L1H1", "L0H0"] is not None
        assert found.array.count() == 1
        assert np.isfinite(found.array.data).all()
        said = json.loads(json.dumps(found.json(), allow_nan=False))
        assert [row["score"] is None for row in said["pairs"]] == [True, True, False, True]
        assert [row["reason"] is None for row in said["pairs"]] == [False, False, True, False]
        assert "0 / 0" in found.text()
    assert sc.composition_scores(model, "V")["L1H0", "L0H0"] is not None


def test_a_head_that_is_zero_up_to_rounding_has_no_score() -> None:
    """Queries and keys that never meet: QR leaves rounding where the product has nothing."""
    base = sc.random_model(sc.attention_only((1, 1)), d_model=16, d_head=4)
    keys, half = base.weights["W_K_L1H0"].copy(), base.weights["W_Q_L1H0"].copy()
    keys[:2], half[2:] = 0, 0
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    apart = {**base.weights, "W_K_L1H0": turn @ keys, "W_Q_L1H0": turn @ half}
    found = sc.composition_scores(replace(base, weights=apart), "K")
    assert found["L1H0", "L0H0"] is None
    assert "zero up to rounding" in found.reason("L1H0", "L0H0")
    near = half.copy()
    near[2:] = 1e-8 * base.weights["W_Q_L1H0"][2:]  # small, and there
    small = replace(base, weights={**base.weights, "W_K_L1H0": keys, "W_Q_L1H0": near})
    found = sc.composition_scores(small, "K")
    assert math.isclose(found["L1H0", "L0H0"] or 0, plain_scores(small, "K")["L1H0", "L0H0"][0], rel_tol=1e-6)


def test_small_scores_are_right_where_gram_matrices_lose_them() -> None:
    """A later head that reads next to nothing of what the earlier one writes: 1e-9 of it."""
    draws = np.random.default_rng(0)
    base = sc.random_model(sc.attention_only((1, 1)), d_model=16, d_head=4)
    basis = np.linalg.qr(draws.standard_normal((16, 16)))[0]
    small = 1e-9
    weights = {
        **base.weights, "W_O_L0H0": basis[:, :4],
        "W_K_L1H0": basis[:, 4:8].T + small * basis[:, :4].T, "W_Q_L1H0": basis[:, 8:12].T, "W_V_L0H0": basis[:, :4].T,
    }  # fmt: skip
    found = sc.composition_scores(replace(base, weights=weights), "K")["L1H0", "L0H0"] or 0.0
    assert math.isclose(found, small / 2, rel_tol=1e-6)  # |small Id| / (|Id| |Id|), of rank 4
    k, o = weights["W_K_L1H0"], weights["W_O_L0H0"]
    gram = np.trace((k.T @ k) @ (o @ o.T))  # its square root is the norm above
    assert not math.isclose(math.sqrt(abs(gram)), 2 * small, rel_tol=1e-2)


def test_what_centring_removes_is_zero() -> None:
    base = sc.random_model(sc.transformer((1, 1), norm="LN", gains=False))
    rows = np.ones_like(base.weights["W_V_L0H0"]) * np.arange(1, 5)[:, None] / 3
    found = sc.composition_scores(replace(base, weights={**base.weights, "W_V_L0H0": rows}), "V")
    assert found["L1H0", "L0H0"] is None
    assert "zero" in found.reason("L1H0", "L0H0")


@pytest.mark.parametrize("heads", [(3,), (), (0, 2), (2, 0)])
def test_models_in_which_no_head_is_earlier(heads: tuple[int, ...]) -> None:
    for kind in KINDS:
        found = sc.composition_scores(sc.random_model(sc.attention_only(heads)), kind)
        assert list(found.pairs()) == []
        assert found.array.count() == 0
        assert found.baselines == ()
        assert found.json()["pairs"] == []
        assert (len(heads) > 1) or "fewer than two layers" in found.text()


def test_a_model_of_one_dimension_has_no_spread() -> None:
    found = sc.composition_scores(sc.random_model(sc.attention_only((1, 1)), d_model=1, d_head=2), "K")
    [pair] = found.pairs()
    assert (round(pair.score or 0, 12), pair.z, pair.chance) == (1, None, None)
    assert np.isfinite(found.z.data).all()
    json.dumps(found.json(), allow_nan=False)


def test_rotary_scores_depend_on_the_offset() -> None:
    model = sc.random_model(sc.attention_only((1, 2), "rotary"))
    alone, there = sc.composition_scores(model, "K"), sc.composition_scores(model, "K", offset=0)
    assert alone["L1H0", "L0H0"] == there["L1H0", "L0H0"]
    assert alone.offset == there.offset == 0
    assert sc.composition_scores(model, "K", offset=-3)["L1H0", "L0H0"] != alone["L1H0", "L0H0"]
    assert any("0 from its query" in note for note in alone.notes)
    for plain in (sc.composition_scores(model, "V"), sc.composition_scores(sc.load(path()), "K")):
        assert not any("rotary" in note for note in plain.notes)
    assert sc.composition_scores(model, "V").offset is None
    assert "R_{j-i}" in alone.latex()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: sc.composition_scores(m, "QK"), "unknown composition 'QK': choose 'Q', 'K' or 'V'"),
        (lambda m: sc.composition_scores(m, "K", offset=-1), "the positions of this model are not"),
        (lambda m: sc.composition_scores(m, "K", fold=1), "fold must be True or False, not 1"),
        (lambda m: sc.composition_scores(m, "K")["L9H0", "L0H0"], "there is no head L9H0: the model has 2 layers"),
        (lambda m: sc.composition_scores(m, "K")["L1H0"], "scores are for two heads, the later first"),
        (lambda m: sc.composition_scores(m, "K").latex("L1H0"), "give both heads"),
        (lambda m: sc.composition_scores(m, "K").latex("L0H0", "L1H0"), "L1H0 is after L0H0"),
        (lambda m: sc.composition_scores(m, "K").latex("L1H0", "L1H0"), "L1H0 is in the layer of L1H0"),
        (lambda m: sc.composition_scores(m.architecture, "K"), "composition_scores takes a model"),
    ],
)
def test_what_cannot_be_said_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError), match=re.escape(message)):
        call(sc.random_model(sc.attention_only((2, 2))))


def test_offsets_that_cannot_be_are_refused() -> None:
    causal = sc.random_model(sc.attention_only((1, 1), "rotary"))
    for offset in (1, 2):
        with pytest.raises(ValueError, match=f"it must be 0 or less, not {offset}"):
            sc.composition_scores(causal, "K", offset=offset)
    with pytest.raises(ValueError, match="V-composition does not depend on positions"):
        sc.composition_scores(causal, "V", offset=-1)
    both = sc.random_model(sc.attention_only((1, 1), "rotary", causal=False))
    assert sc.composition_scores(both, "K", offset=2)["L1H0", "L0H0"] is not None


# --------------------------------------------------------------------------------------------------- how it is shown
def test_a_pair_may_be_named_in_any_way() -> None:
    found = sc.composition_scores(sc.load(path()), "K")
    names: Any = [("L1H0", "L0H2"), ("1.0", "0.2"), ((1, 0), (0, 2))]
    assert len({found[pair] for pair in names}) == 1
    assert found["L0H2", "L1H0"] is found["L1H0", "L1H1"] is None
    assert found.labels == ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2")
    assert found.array[3, 2] == found["L1H0", "L0H2"]
    assert found.array[2, 3] is np.ma.masked


def test_tables_and_json_hold_the_same_numbers() -> None:
    found = sc.composition_scores(sc.load(path()), "Q")
    said = json.loads(json.dumps(found.json(), allow_nan=False))
    assert said["schema"] == "symcircuits.composition/1"
    assert (said["type"], said["folded"], said["offset"]) == ("Q", True, None)
    assert len(said["pairs"]) == len(found.table()) == 9
    for row, pair in zip(said["pairs"], found.pairs(), strict=True):
        assert (row["later"], row["earlier"], row["score"], row["z"], row["tight"], row["chance"]) == pair[:6]
        assert row["score"] == found[row["later"], row["earlier"]]
    [one] = said["baselines"]
    assert one["mean"] == found.baseline.mean if found.baseline else False
    assert said["formula"]["text"] == "|W_QK[h_2].T @ W_OV[h_1]| / (|W_QK[h_2].T| |W_OV[h_1]|)"
    assert len(found.text(top=2).splitlines()) < len(found.text().splitlines())
    assert all(len(line) <= 60 for line in found.text(60).splitlines())


def test_formulas_in_both_shapes() -> None:
    found = sc.composition_scores(sc.load(path()), "K")
    assert found.formula() == "|W_QK[h_2] @ W_OV[h_1]| / (|W_QK[h_2]| |W_OV[h_1]|)"
    assert found.formula(notation="transformerlens") == "|QK[h_2] @ OV[h_1].T| / (|QK[h_2]| |OV[h_1].T|)"
    assert found.formula("L1H0", "L0H2").startswith("|W_QK[L1H0] @ W_OV[L0H2]| / ")
    assert r"W_{QK}^{h_2}\,W_{OV}^{h_1}" in found.latex()
    normed = sc.composition_scores(sc.random_model(sc.transformer((1, 1), norm="LN")), "V")
    assert normed.formula("L1H0", "L0H0").startswith("|W_OV[L1H0] @ gain[L1] @ C @ W_OV[L0H0] @ gain[L0] @ C| / ")


def test_results_cannot_be_written_to() -> None:
    found = sc.composition_scores(sc.load(path()), "K")
    with pytest.raises(ValueError, match="read-only"):
        found.array[3, 2] = 1.0
    assert isinstance(found.baseline, Chance)


# ------------------------------------------------------------------------------------------- what check says of them
@examples(15)  # each is read in four ways
@given(featured_models(), st.sampled_from(KINDS))
def test_printed_formulas_are_read_back_as_right(model: Model, kind: str) -> None:
    found = sc.composition_scores(model, kind)
    pairs = [(pair.later, pair.earlier) for pair in found.pairs()]
    assume(pairs)
    for pair in (pairs[0], pairs[-1]):
        for text in (
            found.formula(*pair), found.latex(*pair), found.formula(*pair, notation="transformerlens"),
        ):  # fmt: skip
            verdict = sc.check(text, model)
            assert verdict.right, (text, verdict.message)
        lens = found.latex(*pair, notation="transformerlens")
        assert sc.check(lens, model, convention="transformerlens").right, lens


K = "W_Q[1, 0] @ W_K[1, 0].T"
OV = "W_V[0, 1] @ W_O[0, 1]"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (r"\frac{\|W_{QK}^{L1H0} W_{OV}^{L0H1}\|_F}{\|W_{QK}^{L1H0}\|_F \|W_{OV}^{L0H1}\|_F}", None),
        (r"\frac{\left\|W_{OV}^{L1H0} W_{OV}^{L0H1}\right\|}{\|W_{OV}^{L1H0}\| \cdot \|W_{OV}^{L0H1}\|}", None),
        (r"\frac{\lVert W_Q^{L1H0\,T} W_K^{L1H0} W_O^{L0H1} W_V^{L0H1}\rVert_{\mathrm{F}}}{\lVert W_Q^{L1H0\,T} "
         r"W_K^{L1H0}\rVert \lVert W_O^{L0H1} W_V^{L0H1}\rVert}", None),
        (f"norm({K} @ ({OV}).T) / (norm({K}) * norm({OV}))", None),
        (f"norm({K} @ ({OV}).T) / norm({K}) / norm({OV})", None),
        ("|W_QK[L1H0] @ W_OV[L0H1]|/(|W_QK[L1H0]||W_OV[L0H1]|)", None),
        ("||W_QK[L1H0] @ W_OV[L0H1]||_F / (||W_QK[L1H0]||_F ||W_OV[L0H1]||_F)", None),
        (r"\frac{\left|W_{QK}^{h_2} W_{OV}^{h_1}\right|}{|W_{QK}^{h_2}||W_{OV}^{h_1}|}", None),
        # a packaged tool: W_Q (or W_K) in place of W_QK, under the paper's name
        (r"\frac{\|W_Q^{L1H0} W_{OV}^{L0H1}\|_F}{\|W_Q^{L1H0}\|_F \|W_{OV}^{L0H1}\|_F}", "dropped-factor"),
        ("|W_K[L1H0] @ W_OV[L0H1]| / (|W_K[L1H0]| |W_OV[L0H1]|)", "dropped-factor"),
        (f"OV = {OV}\nnorm(OV @ W_K[1, 0]) / (norm(W_K[1, 0]) * norm(OV))", "dropped-factor"),
        # a course site: W_O and W_V multiplied in shapes that do not fit
        (f"QK = {K}\nOV = W_O[0, 1] @ W_V[0, 1]\nnorm(QK @ OV.T) / (norm(QK) * norm(OV))", "factor-order"),
        ("|W_Q[L1H0] @ W_E| / (|W_Q[L1H0]| |W_E|)", None),  # of no two heads
        # other slips
        (r"\frac{\|W_{QK}^{L1H0} W_{OV}^{L0H1\,T}\|}{\|W_{QK}^{L1H0}\| \|W_{OV}^{L0H1}\|}", "transpose"),
        (r"\frac{\|W_{OV}^{L0H1} W_{OV}^{L1H0}\|}{\|W_{OV}^{L0H1}\| \|W_{OV}^{L1H0}\|}", "layer-order"),
        (r"\frac{\|W_{QK}^{L1H0} W_{OV}^{L0H1}\|}{\|W_{QK}^{L1H0}\| \|W_{OV}^{L0H0}\|}", "wrong-matrix"),
        (f"norm({K} @ ({OV}).T) / (norm({K}) * norm(W_V[0, 0] @ W_O[0, 0]))", "wrong-matrix"),
    ],
)  # fmt: skip
def test_check_tells_composition_scores_from_what_goes_by_their_name(text: str, mistake: str | None) -> None:
    verdict = sc.check(text, sc.attention_only((2, 2)))
    assert (verdict.right, verdict.mistake) == (mistake is None, mistake), verdict.message


@pytest.mark.parametrize("text", ["|W_QK[L1H0] @ W_OV[L0H1]", r"\| W_{QK}^{L1H0} (W_{OV}^{L0H1} \| )", "|", "| |"])
def test_bars_that_are_not_closed_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"this (bar|parenthesis) is never|cannot be read|a formula is missing between these bars"
    ):
        sc.check(text, sc.attention_only((2, 2)))
