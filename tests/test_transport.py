"""Selection and transport multiply to every term; weighted patterns against plain loops, and what they depend on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from tests.strategies import cases, examples

PLAIN = sc.attention_only((2, 2), biases=["b_V", "b_O"])
TOKENS = [3, 1, 4, 1]


@examples(60)
@given(cases(max_terms=60), st.integers(0, 9))
def test_selection_times_transport_is_the_term(case: tuple[Architecture, str], seed: int) -> None:
    arch, target = case
    run = sc.random_model(arch, seed=seed).run([[1, 2, 0], [0, 0, 1]])
    expansion = sc.expand(arch, target)
    values = sc.evaluate(expansion, run)
    for term, value in zip(expansion, values, strict=True):
        if target.startswith("scores"):
            with pytest.raises(ValueError, match="a query side and a key side, and no transport"):
                values.transport(term)
            return
        found = values.transport(term)
        size = abs(value).max() + 1e-300
        assert abs(found.value - value).max() <= 1e-12 * max(size, abs(found.transport).max())
        assert np.allclose(found.by_source(-1).sum(-2), value[..., -1, :], atol=1e-12 * size)
        assert np.array_equal(found.at(2, 0), found.by_source(2)[..., 0, :])
        if arch.norm is None and arch.softmax and arch.n_layers:
            assert np.allclose(found.selection.sum(-1), 1)  # a product of patterns looks somewhere with weight one


def test_the_selection_of_a_virtual_head_is_the_product_of_patterns_in_order() -> None:
    run = sc.random_model(PLAIN, seed=1).run(TOKENS)
    values = sc.evaluate(sc.logits(PLAIN), run)
    term = values.expansion.through_sequence("L0H1", "L1H0").from_source("embed")[0]
    found, w = values.transport(term), run.model.weights
    assert np.allclose(found.selection, run.patterns["L1H0"] @ run.patterns["L0H1"])
    assert not np.allclose(found.selection, run.patterns["L0H1"] @ run.patterns["L1H0"])
    rows = run.streams[0] @ w["W_V_L0H1"].T @ w["W_O_L0H1"].T @ w["W_V_L1H0"].T @ w["W_O_L1H0"].T @ w["W_U"].T
    assert np.allclose(found.transport, rows)


def plain_values(run: sc.Run, head: str, layer: int) -> Any:
    w = run.model.weights
    return run.streams[layer] @ w[f"W_V_{head}"].T + w[f"b_V_{head}"]


def test_weighted_patterns_entry_by_entry() -> None:
    run = sc.random_model(PLAIN, seed=1).run(TOKENS)
    values, w = sc.evaluate(sc.logits(PLAIN), run), run.model.weights
    v, pattern = plain_values(run, "L1H1", 1), run.patterns["L1H1"]
    effect = v @ w["W_O_L1H1"].T @ w["W_U"].T
    for i in range(4):
        for j in range(4):
            want = {
                "value": np.sqrt(sum(x * x for x in v[j])),
                "output": np.sqrt(sum(x * x for x in w["W_O_L1H1"] @ v[j])),
                "effect": effect[j, 5] - effect[j].mean(),
            }
            for by, number in want.items():
                of = sc.logit(5) if by == "effect" else None
                found = values.weighted_pattern("L1H1", by, of)
                assert found[i, j] == pytest.approx(pattern[i, j] * number, abs=1e-12)
            two = values.weighted_pattern((1, 1), of=sc.logit(5, against=2))
            assert two[i, j] == pytest.approx(pattern[i, j] * (effect[j, 5] - effect[j, 2]), abs=1e-12)


@pytest.mark.parametrize("norm", ["LN", "RMS"])
def test_effects_add_up_to_what_the_head_s_last_terms_add(norm: Any) -> None:
    """With a norm before the readout: the sum over keys is the part of the head's own writing in the difference."""
    run = sc.random_model(sc.transformer((2, 2), norm=norm, biases=True), seed=3).run(TOKENS)
    values = sc.evaluate(sc.logits(run.model), run)
    head = run.model.architecture.head("L1H0")
    last = sum(v for t, v in zip(values.expansion, values, strict=True) if t.paths[0].heads[-1:] == (head,))
    found = values.weighted_pattern("L1H0", of=sc.logit(2, against=7)).sum(-1)
    assert np.allclose(found, last[:, 2] - last[:, 7])


def test_what_each_weighting_stays_the_same_under() -> None:
    model = sc.random_model(PLAIN, seed=1)
    rng, w = np.random.default_rng(0), dict(model.weights)
    inside = rng.normal(size=(len(w["W_V_L1H0"]),) * 2) + 2 * np.eye(len(w["W_V_L1H0"]))
    turned = {**w, "W_V_L1H0": inside @ w["W_V_L1H0"], "b_V_L1H0": inside @ w["b_V_L1H0"],
              "W_O_L1H0": w["W_O_L1H0"] @ np.linalg.inv(inside)}  # fmt: skip
    shifted = {**w, "W_U": w["W_U"] + rng.normal(size=model.d_model)}
    runs = {name: sc.Model(PLAIN, given, model.score_scale).run(TOKENS)
            for name, given in (("as it is", w), ("inside", turned), ("shifted", shifted))}  # fmt: skip
    found = {}
    for name, run in runs.items():
        for by in ("value", "output", "effect"):
            values = sc.evaluate(sc.logits(PLAIN), run)
            found[name, by] = values.weighted_pattern("L1H0", by, sc.logit(5) if by == "effect" else None)
    stays = {(name, by): np.allclose(found[name, by], found["as it is", by]) for name, by in found}
    assert [stays["inside", by] for by in ("value", "output", "effect")] == [False, True, True]
    assert stays["shifted", "effect"]


def test_what_cannot_be_taken_apart_is_refused() -> None:
    run = sc.random_model(PLAIN, seed=1).run(TOKENS)
    values = sc.evaluate(sc.logits(PLAIN), run)
    with pytest.raises(ValueError, match="is not a term of logits"):
        values.transport(sc.stream(PLAIN)[0])
    with pytest.raises(ValueError, match="query 4 does not exist"):
        values.transport(values.expansion[0]).at(4, 0)
    with pytest.raises(ValueError, match="by must be 'value', 'output' or 'effect', not 'norm'"):
        values.weighted_pattern("L0H0", "norm")
    with pytest.raises(ValueError, match="has no effect with by='value'"):
        values.weighted_pattern("L0H0", "value", sc.logit(1))
    with pytest.raises(ValueError, match="not measured by"):
        values.weighted_pattern("L0H0", of=sc.score_entry(0, 0))
    with pytest.raises(ValueError, match="an effect is on a logit or a difference of two"):
        values.weighted_pattern("L0H0", of=sc.norm())
    with pytest.raises(ValueError, match="an effect is on logits or on a readout, not on stream"):
        sc.evaluate(sc.stream(PLAIN), run).weighted_pattern("L0H0")
    with pytest.raises(ValueError, match="L2H0"):
        values.weighted_pattern("L2H0")
