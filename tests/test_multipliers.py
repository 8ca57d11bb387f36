"""Multipliers of the embedding, of what layers add, and of the logits: what they multiply, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.core.architecture import Architecture, possible_multipliers, scalar_names, transformer
from symcircuits.core.rules import check_finished
from symcircuits.core.words import IllTyped, Word, multipliers_of, scalar_argument, scalar_order
from symcircuits.model import Model, Run, Settings, random_model
from symcircuits.values.by_position import by_position
from symcircuits.values.closure import layer_closures
from symcircuits.values.evaluate import closure
from symcircuits.verification.rows import check_algebra, check_polynomial, check_types

FULL = transformer((2, 2), "standard", True, mlps=True, norm="RMS", multipliers=True)
NUMBERS = {"m_E": 3.0, "r[L0]": 0.5, "r[M0]": 0.25, "r[L1]": -2.0, "r[M1]": 1.5, "m_U": 0.125}


def model(arch: Architecture = FULL) -> Model:
    return replace(random_model(arch, seed=3), multipliers={m: NUMBERS[m] for m in arch.multipliers})


@pytest.fixture(scope="module")
def run() -> Run:
    return model().run([3, 1, 4, 1, 5])


# ----------------------------------------------------------------------------------------- what they multiply
def plain(arch: Architecture, m: Model, tokens: list[int]) -> Any:
    """The forward pass, multipliers in their places, without anything of the package."""
    w, n = m.weights, len(tokens)

    def norm(x: Any, label: str) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + m.settings.eps) * w[f"gain_{label}"]

    def softmax(s: Any) -> Any:
        s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    x = NUMBERS["m_E"] * w["W_E"].T[tokens] + w["W_pos"][:n]
    for layer in range(arch.n_layers):
        y, out = norm(x, f"L{layer}"), w[f"b_O_L{layer}"]
        for h in map(str, arch.layer_heads(layer)):
            q, k, v = (y @ w[f"W_{g}_{h}"].T + w[f"b_{g}_{h}"] for g in "QKV")
            out = out + softmax(q @ k.T * m.score_scale[h]) @ v @ w[f"W_O_{h}"].T
        x = x + NUMBERS[f"r[L{layer}]"] * out
        z = norm(x, f"M{layer}") @ w[f"W_in_L{layer}"].T + w[f"b_in_L{layer}"]
        z = np.maximum(z, 0) @ w[f"W_out_L{layer}"].T + w[f"b_out_L{layer}"]
        x = x + NUMBERS[f"r[M{layer}]"] * z
    return NUMBERS["m_U"] * (norm(x, "final") @ w["W_U"].T + w["b_U"])


def test_the_forward_pass_is_the_definition() -> None:
    """The embedding but not the position; heads with their b_O; the MLP; the logits with their bias."""
    relu = replace(model(), settings=Settings(activation="relu"))
    tokens = [3, 1, 4, 1, 5]
    np.testing.assert_allclose(relu.run(tokens).logits, plain(FULL, relu, tokens), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_each_is_seen_by_what_is_computed(name: str, run: Run) -> None:
    moved = replace(run.model, multipliers={**NUMBERS, name: NUMBERS[name] + 1})
    assert abs(moved.run(run.tokens).logits - run.logits).max() > 1e-3


def test_terms_add_up(run: Run) -> None:
    targets = [sc.logits(FULL), sc.scores(FULL, "L1H1"), sc.scores(FULL, "L0H0")]
    for expansion in targets:
        assert closure(expansion, run).passed
        assert closure(expansion, run, listed=0).passed
    assert all(c.passed for c in layer_closures(run))
    bare = replace(FULL, unembed=False, multipliers=FULL.multipliers - {"m_U"}, norm=None, gains=frozenset())
    bare = replace(bare, biases=frozenset(b for b in bare.biases if not b.startswith("b_U")))
    assert closure(sc.stream(bare), model(bare).run([1, 2])).passed


def test_every_value_is_that_of_its_text(run: Run) -> None:
    values = sc.evaluate(sc.logits(FULL), run)
    for term, value in zip(values.expansion, values, strict=True):
        np.testing.assert_allclose(values.value(term), value, atol=1e-12)
        np.testing.assert_allclose(term.lambdify()(**run.arrays), value, atol=1e-12)
        w = np.eye(value.shape[-1])[2]
        np.testing.assert_allclose(by_position(values, term, w).sum(-1), value @ w, atol=1e-12)


def test_float32_stays_float32(run: Run) -> None:
    small = run.model.run(run.tokens, dtype="float32")
    assert small.logits is not None
    assert (small.logits.dtype, small.arrays["m_E"].dtype) == (np.float32, np.float32)
    assert closure(sc.logits(FULL), small).passed


def test_folding_and_removing_keep_them(run: Run) -> None:
    folded = sc.fold(run.model)
    assert folded.multipliers == run.model.multipliers
    np.testing.assert_allclose(folded.run(run.tokens).logits, run.logits, atol=1e-12)
    gone = sc.remove_heads(run, "L0H1")
    through = sc.evaluate(sc.logits(FULL).through("L0H1"), run).total()
    np.testing.assert_allclose(gone.value_part, -through, atol=1e-12)


def test_a_model_is_kept_with_them(run: Run) -> None:
    again = pickle.loads(pickle.dumps(run.model))
    assert again.multipliers == run.model.multipliers
    assert np.array_equal(again.run(run.tokens).logits, run.logits)


def test_what_is_held_fixed_is_said(run: Run) -> None:
    said = [line for line in sc.explain(run.model, run.tokens).assumptions if line.startswith("multipliers")]
    assert said == ["multipliers in front of terms: m_E 3, r[L0] 0.5, r[M0] 0.25, r[L1] -2, r[M1] 1.5, m_U 0.125"]


# --------------------------------------------------------------------------------------------- words and names
def test_names() -> None:
    assert possible_multipliers(FULL) == ("m_E", "r[L0]", "r[M0]", "r[L1]", "r[M1]", "m_U")
    assert [scalar_argument(s) for s in ("L1H0", "m_E", "r[M1]")] == ["scale_L1H0", "m_E", "r_M1"]
    assert scalar_names(replace(FULL, scale=False)) == possible_multipliers(FULL)
    many = ["m_U", "r[L10]", "r[M2]", "r[L2]", "m_E", "L0H0"]
    assert sorted(many, key=scalar_order) == ["L0H0", "m_E", "r[L2]", "r[M2]", "r[L10]", "m_U"]
    assert transformer((2, 2), multipliers="r").multipliers == {"r[L0]", "r[L1]"}
    assert transformer((), multipliers=["r"]).multipliers == frozenset()
    assert str(transformer((1, 1), multipliers=["r", "m_E"])).endswith("multipliers m_E r")
    assert str(transformer((1, 1), multipliers=["r[L1]"])).endswith("multipliers r[L1]")
    assert str(transformer((1, 1), multipliers=True)).endswith(", multipliers")


def test_a_multiplier_that_is_absent_adds_no_letter() -> None:
    for t in sc.logits(transformer((2, 2), mlps=True, multipliers=["r[M1]"])):
        assert t.word.scales == (("r[M1]",) if "mlp[L1]" in t.text else ())


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"multipliers": ["m"]}, "there is no multiplier 'm' here; they are m_E, r"),
        ({"multipliers": "r[M0]"}, r"there is no multiplier 'r\[M0\]' here"),
        ({"multipliers": ["m_U"], "unembed": False}, "there is no multiplier 'm_U' here"),
        ({"multipliers": 2}, "multipliers must be True, False or the names"),
    ],
)
def test_what_cannot_be_described(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        transformer((2,), **options)


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ({}, "multipliers lacks 6"),
        ({**NUMBERS, "r[L9]": 1.0}, r"multipliers has .* that it does not use: r\[L9\]"),
        ({**NUMBERS, "m_E": float("inf")}, "the multiplier m_E is inf; it must be a finite number"),
    ],
)
def test_numbers_that_do_not_fit(numbers: dict[str, float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        replace(random_model(FULL), multipliers=numbers)


def test_types_refuse_a_multiplier_dropped_doubled_or_of_another_layer() -> None:
    word = sc.logits(FULL).through("L0H1").through("L1H0")[0].word
    assert word.scales == ("m_E", "r[L0]", "r[L1]", "m_U")
    assert check_finished(word, multipliers=FULL.multipliers) is word
    wrong = [word.scales[1:], (*word.scales, "m_E"), ("m_E", "r[L0]", "r[M1]", "m_U"), (), ("m_E", "r[L0]", "m_U")]
    for scales in wrong:
        with pytest.raises(IllTyped, match="a multiplier occurs once for every symbol that requires it"):
            check_finished(Word(word.factors, scales), multipliers=FULL.multipliers)
    with pytest.raises(IllTyped, match="Rule 2"):  # where it is not known which there are, one still stands but once
        check_finished(Word(word.factors, ("m_E", "m_E")))
    assert check_finished(Word(word.factors, ("m_E", "m_U")))
    assert multipliers_of(word.factors, ["m_E"]) == ("m_E",)


def test_scalars_commute() -> None:
    word = sc.scores(FULL, "L1H0").where("K")[0].word
    assert Word(word.factors, word.scales[::-1]) == word
    assert word.text.startswith("scale[L1H0] * m_E * m_E * r[L0] * ")


# -------------------------------------------------------------------------------------------------- is it seen
TERM = "m_E * r[L1] * m_U * A[L1H0] @ X0 @ W_OV[L1H0].T @ W_U.T"
SCORE = "scale[L1H0] * m_E * m_E * r[L0] * A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ X0.T"
SMALL = transformer((2, 2), multipliers=True)


@pytest.mark.parametrize("right", [TERM, SCORE, SCORE.removeprefix("scale[L1H0] * "),
                                   "r_L1 * m_U * m_E * A[L1H0] @ X0 @ W_OV[L1H0].T @ W_U.T",
                                   r"m_E\,r^{\mathrm{L1}}\,m_U\,A^{\mathrm{L1H0}}\,X_0\,W_{OV}^{\mathrm{L1H0}\,\mathsf{T}}\,W_U^{\mathsf{T}}",
                                   "W_U @ W_OV[L1H0] @ W_E",
                                   "m_U * r[L1] * m_E * W_U @ W_OV[L1H0] @ W_E"])  # fmt: skip
def test_right_formulas(right: str) -> None:
    assert sc.check(right, SMALL).right


@pytest.mark.parametrize(
    ("formula", "nearest"),
    [
        (TERM.replace("m_E * ", ""), TERM),
        (TERM.replace("r[L1] * ", ""), TERM),
        (TERM.replace("r[L1]", "r[L1] * r[L1]"), TERM),
        (TERM.replace("r[L1]", "r[L0]"), TERM),
        (TERM.replace("m_U * ", ""), TERM),
        (TERM.partition("A")[1] + TERM.partition("A")[2], TERM),
        (SCORE.replace("m_E * m_E", "m_E"), SCORE),
        (SCORE.replace("r[L0] * ", ""), SCORE),
        ("m_E * W_U @ W_OV[L1H0] @ W_E", "m_E * r[L1] * m_U * W_U @ W_OV[L1H0] @ W_E"),
    ],
)
def test_a_multiplier_dropped_or_doubled_is_wrong(formula: str, nearest: str) -> None:
    verdict = sc.check(formula, SMALL)
    assert (verdict.right, verdict.mistake, verdict.nearest) == (False, "scale", nearest)
    assert sc.check(nearest, SMALL).right


@pytest.mark.parametrize(
    ("formula", "fault"),
    [
        ("r[L7] * X0 @ W_U.T", r"there is no multiplier r\[L7\]; there are r\[L0\], r\[L1\]"),
        ("r * X0 @ W_U.T", r"r needs a label, e.g. r\[L0\], of a layer"),
        ("m_E[L0] * X0 @ W_U.T", "m_E has no label"),
    ],
)
def test_what_cannot_be_read(formula: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        sc.check(formula, SMALL)


def test_a_model_without_multipliers_knows_none() -> None:
    with pytest.raises(ValueError, match="unknown symbol 'm_E'"):
        sc.check("m_E * X0 @ W_U.T", transformer((1,)))


class Wrong:
    """A term whose word carries other scalars."""

    def __init__(self, term: sc.Term, scales: tuple[str, ...]) -> None:
        self.term, self.word = term, Word(term.word.factors, scales)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.term, name)


def test_verify_sees_them() -> None:
    group = [sc.logits(SMALL)]
    terms = list(group[0])
    assert check_types(group).passed
    assert check_algebra(group).passed
    assert check_polynomial(group).passed
    for scales in (terms[3].word.scales[1:], (*terms[3].word.scales, "m_E")):
        wrong: list[Any] = [*terms[:3], Wrong(terms[3], scales), *terms[4:]]
        assert not check_types(group, terms=wrong).passed
        assert not check_algebra(group, terms=lambda e, w=wrong: w).passed  # type: ignore[misc]
        assert not check_polynomial(group, terms=lambda e, w=wrong: w).passed  # type: ignore[misc]
    assert sc.verify(transformer((1, 2), "shortformer", True, mlps=[0], norm="LN", multipliers=True)).ok


def test_an_mlp_with_a_multiplier_is_not_split_into_sources() -> None:
    model = random_model(transformer((1,), mlps=True, multipliers=["r"]), d_model=4)
    split = model.with_(sc.source("feature", [1.0, 0.0, 0.0, 0.0], 0, of="mlp", activations=[1.0, 2.0]))
    with pytest.raises(ValueError, match="has a multiplier, so it cannot be split into sources yet"):
        sc.logits(split.architecture)
