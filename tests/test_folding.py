"""Folding gains and norm biases: the same function, the same terms by other names, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.model import Model

TOKENS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


def same(a: Any, b: Any) -> bool:
    return bool(np.abs(a - b).max() <= 1e-12 * max(np.abs(a).max(), 1))


@pytest.mark.parametrize("name", ["tl_ln_s2", "tl_mlp_gelu_ln_s18"])
def test_a_folded_model_is_the_same_and_gives_what_was_recorded(data: Path, name: str) -> None:
    recorded, model = np.load(data / name / "reference.npz"), sc.load(data / name)
    folded = sc.fold(model)
    run = folded.run(recorded["tokens"])
    assert same(run.logits, recorded["logits"])
    assert same(run.patterns["L1H2"], recorded["blocks.1.attn.hook_pattern"][:, 2])
    # the head's own result is the same: W_V b_N moved into its b_V
    assert same(run.results["L1H2"], recorded["blocks.1.attn.hook_result"][:, :, 2])
    assert not folded.architecture.gains
    assert not [w for w in folded.weights if w.startswith(("gain", "b_N"))]
    assert folded.notes[-1] == "the gains and biases of the norms were folded into the weights that read them"


@pytest.mark.parametrize("name", ["tl_ln_s2", "tl_mlp_gelu_ln_s18"])
def test_a_folded_model_verifies(data: Path, name: str) -> None:
    report = sc.verify(sc.fold(sc.load(data / name)), [1, 2, 3, 0], targets=["logits", "scores:L1H0"])
    assert report.ok, report.text()


def architectures() -> st.SearchStrategy[Architecture]:
    return st.builds(
        lambda heads, norm, gains, biases, mlps, gated, parallel, grouped: sc.transformer(
            heads, "standard", biases, norm=norm, gains=gains, mlps=mlps, gated=gated and mlps,
            parallel=parallel and mlps, groups=[1 for _ in heads] if grouped else None,
        ),
        st.lists(st.integers(1, 2), min_size=1, max_size=2), st.sampled_from(["LN", "RMS"]), st.booleans(),
        st.sampled_from([True, False, ("b_V", "b_O")]), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    )  # fmt: skip


@given(architectures(), st.integers(0, 5))
def test_folding_any_model_changes_no_number(arch: Architecture, seed: int) -> None:
    model = sc.random_model(arch, seed=seed, settings=sc.Settings(activation="silu"))
    folded = sc.fold(model)
    one, two = model.run(TOKENS), folded.run(TOKENS)
    assert same(one.logits, two.logits)
    for head in one.patterns:
        assert same(one.patterns[head], two.patterns[head])
        assert same(one.results[head], two.results[head])
    for layer in one.mlps:
        assert same(one.mlps[layer], two.mlps[layer])
    assert sc.fold(folded) is folded


def by_source(model: Model, target: str, renamed: Callable[[str, int | None], str]) -> dict[tuple[str, ...], Any]:
    """The sum of the terms of equal paths of heads and equal sources, after renaming them."""
    run = model.run(TOKENS)
    expansion = sc.expand(model.architecture, target)
    sums: dict[tuple[str, ...], Any] = {}
    for term, value in zip(expansion, sc.evaluate(expansion, run), strict=True):
        key = tuple(
            f"{'-'.join(map(str, path.heads))}:{renamed(path.source.name, path.source.head and path.source.head.layer)}"
            for path in term.paths
        )
        if len(key) == 2:  # what the two sides read themselves: b_N becomes b_Q on one, b_K on the other
            key = (key[0].replace("b_R", "b_Q"), key[1].replace("b_R", "b_K"))
        sums[key] = sums.get(key, 0) + value
    return sums


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_terms_of_norm_biases_become_terms_of_the_biases_that_took_them_up(data: Path, target: str) -> None:
    """b_N inside a head is a part of its b_V, before the unembedding of b_U, before queries and keys of b_Q and b_K."""

    def renamed(name: str, inside: int | None) -> str:
        kind = name.partition("[")[0]
        if inside is not None:
            return "b_V"
        if kind in ("b_N", "b_U"):
            return "b_U" if target == "logits" else "b_R"
        return kind if kind in ("b_Q", "b_K") else name

    model = sc.load(data / "tl_ln_s2")
    before, after = (by_source(m, target, renamed) for m in (model, sc.fold(model)))
    assert before.keys() == after.keys()
    assert any("b_V" in key[0] for key in before)
    assert any(key[0].endswith((":b_U", ":b_Q")) for key in before)
    assert all(same(before[key], after[key]) for key in before)
    counts = [sc.expand(m.architecture, target).count for m in (model, sc.fold(model))]
    assert counts[0] > counts[1]


def test_one_gain_left_out_or_the_wrong_order_would_be_seen(data: Path) -> None:
    """b' = b + W b_N with the W before the gain; with W diag(gain) it is another model."""
    model = sc.load(data / "tl_ln_s2")
    folded = sc.fold(model)
    wrong = dict(folded.weights)
    wrong["b_U"] = model.weights["b_U"] + folded.weights["W_U"] @ model.weights["b_N_final"]
    other = Model(folded.architecture, wrong, folded.score_scale, settings=folded.settings)
    assert not same(other.run(TOKENS).logits, model.run(TOKENS).logits)


def test_what_has_no_gain_and_no_norm_bias_is_given_back() -> None:
    for arch in (sc.attention_only((2,)), sc.attention_only((2,), norm="LN", gains=False)):
        model = sc.random_model(arch)
        assert sc.fold(model) is model
    only_gain = sc.fold(sc.random_model(sc.attention_only((1,), norm="RMS", biases=["b_O"])))
    assert only_gain.notes[-1].startswith("the gains of the norms were folded")
    assert only_gain.architecture.biases == {"b_O[L0]"}


def test_a_gain_before_a_position_cannot_be_folded() -> None:
    model = sc.random_model(sc.attention_only((2,), "shortformer", norm="LN", biases=True))
    with pytest.raises(ValueError, match=r"the gain of the norm L0 cannot be folded: positions enter queries and keys"):
        sc.fold(model)
    bias_only = sc.random_model(sc.attention_only((2,), "shortformer", norm="LN", gains=["final"], biases=True))
    assert same(sc.fold(bias_only).run(TOKENS).logits, bias_only.run(TOKENS).logits)
