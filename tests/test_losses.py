"""Loss by order and the effects of parts in loss, against plain loops over paths and the paper's own algorithm."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.circuits import losses
from symcircuits.circuits.losses import run_by_run
from symcircuits.zoo import path
from tests.strategies import architectures, examples

PLAIN = sc.attention_only((2, 3, 1))
TOKENS = [[1, 4, 2, 2, 5], [0, 3, 3, 1, 2]]


def paths_by_order(run: sc.Run) -> dict[tuple[str, ...], Any]:
    """The logits of every path of heads of an attention-only model without biases, by plain products."""
    w, start = run.model.weights, run.streams[0]
    heads = [str(h) for h in run.model.architecture.all_heads]
    found = {}
    for k in range(4):
        for chain in combinations(heads, k):
            if len({h[:2] for h in chain}) < k:  # two heads of one layer
                continue
            x = start
            for h in chain:
                x = run.patterns[h] @ x @ w[f"W_V_{h}"].T @ w[f"W_O_{h}"].T
            found[chain] = x @ w["W_U"].T
    return found


def loss(logits: Any, tokens: Any, queries: list[int]) -> list[float]:
    """The mean loss of each prompt, entry by entry."""
    out = []
    for row, prompt in zip(logits, tokens, strict=True):
        each = [-np.log(np.exp(row[q])[prompt[q + 1]] / np.exp(row[q]).sum()) for q in queries]
        out.append(sum(each) / len(each))
    return out


def test_the_loss_after_each_order_is_that_of_all_paths_of_so_many_heads() -> None:
    run = sc.random_model(PLAIN, d_vocab=6, seed=2).run(TOKENS)
    found, each = sc.evaluate(sc.logits(run.model), run).loss_by_order([0, 2, 3]), paths_by_order(run)
    for order in range(4):
        cut = sum(value for chain, value in each.items() if len(chain) <= order)
        assert np.allclose(found.by_prompt[order], loss(cut, TOKENS, [0, 2, 3]), rtol=1e-12)
    assert found.counts == (1, 6, 11, 6)
    assert found.after[-1] == pytest.approx(np.mean(loss(run.logits, TOKENS, [0, 2, 3])), rel=1e-12)
    assert found.uniform == pytest.approx(np.log(6))
    assert sum(found.marginal) == pytest.approx(found.after[-1] - found.uniform)


@pytest.mark.parametrize("by", ["layer", "head", "pair", "term"])
def test_effects_are_those_of_the_paths_through_a_part(by: str) -> None:
    run = sc.random_model(PLAIN, d_vocab=6, seed=2).run(TOKENS)
    found, each = sc.evaluate(sc.logits(run.model), run).loss_effects(by), paths_by_order(run)
    queries, direct, whole = [0, 1, 2, 3], each[()], sum(each.values())
    named: dict[str, Any] = {}
    for chain, value in each.items():
        names = {
            "layer": {h[:2] for h in chain}, "head": set(chain),
            "pair": {f"{a} -> {b}" for a, b in combinations(chain, 2)}, "term": {" -> ".join(("embed", *chain))},
        }[by]  # fmt: skip
        for name in names:
            named[name] = named.get(name, 0) + value
    assert {p.name for p in found.parts} == set(named)
    for part in found.parts:
        value = named[part.name]
        alone = np.mean(loss(direct + value, TOKENS, queries)) - np.mean(loss(direct, TOKENS, queries))
        last = np.mean(loss(whole, TOKENS, queries)) - np.mean(loss(whole - value, TOKENS, queries))
        assert part.alone == pytest.approx(alone, abs=1e-12)
        assert part.last == pytest.approx(last, abs=1e-12)


@examples(40)
@given(architectures(max_terms=500), st.integers(0, 9))
def test_the_paper_s_algorithm_agrees_at_every_order(arch: sc.Architecture, seed: int) -> None:
    if not arch.unembed:
        return
    run = sc.random_model(arch, seed=seed).run([[1, 2, 0, 1]])
    sums, total = sc.evaluate(sc.logits(arch), run).by_order(), np.zeros(np.shape(run.logits))
    runs = list(run_by_run(run))
    for order, cut in enumerate(runs):
        total = total + sums.get(order, 0)
        assert np.allclose(cut, total, rtol=1e-10, atol=1e-10 * abs(np.asarray(run.logits)).max())
    assert max(sums) < len(runs)


def test_a_wrong_algorithm_is_seen() -> None:
    """What heads write is saved of the run before, and not of this one: then run 1 would be the whole model."""
    run = sc.random_model(PLAIN, d_vocab=6, seed=2).run(TOKENS)
    first = list(run_by_run(run))[1]
    assert abs(first - np.asarray(run.logits)).max() > 1e-3
    assert np.allclose(first, sum(v for chain, v in paths_by_order(run).items() if len(chain) <= 1))


@pytest.mark.parametrize("composition", ["Q", "K"])
def test_patterns_cut_off_by_order_on_one_side(composition: str) -> None:
    """Against plain scores: the stream of up to k heads on that side, the whole stream on the other."""
    run = sc.random_model(PLAIN, d_vocab=6, seed=2).run(TOKENS)
    w, each = run.model.weights, {}
    heads = [str(h) for h in PLAIN.all_heads]
    for chain in [c for k in range(3) for c in combinations(heads, k) if len({h[:2] for h in c}) == k]:
        x = run.streams[0]
        for h in chain:
            x = run.patterns[h] @ x @ w[f"W_V_{h}"].T @ w[f"W_O_{h}"].T
        each[chain] = x

    found = sc.evaluate(sc.logits(PLAIN), run).loss_by_order([1, 2], composition=composition)
    for order in range(3):
        stream, counts = run.streams[0], 0
        for layer in range(3):
            chains = [c for c in each if all(int(h[1]) < layer for h in c)]
            cut = sum(each[c] for c in chains if len(c) <= order)
            counts += len(PLAIN.layer_heads(layer)) * len(chains) * sum(len(c) == order for c in chains)
            whole, after = sum(each[c] for c in chains), stream
            for head in PLAIN.layer_heads(layer):
                q, k = (cut, whole) if composition == "Q" else (whole, cut)
                s = (
                    (q @ w[f"W_Q_{head}"].T)
                    @ np.swapaxes(k @ w[f"W_K_{head}"].T, -1, -2)
                    / np.sqrt(len(w[f"W_Q_{head}"]))
                )
                s = np.where(np.tri(5, dtype=bool), s, -np.inf)
                a = np.exp(s - s.max(-1, keepdims=True))
                a = a / a.sum(-1, keepdims=True)
                after = after + a @ stream @ w[f"W_V_{head}"].T @ w[f"W_O_{head}"].T
            stream = after
        assert np.allclose(found.by_prompt[order], loss(stream @ w["W_U"].T, TOKENS, [1, 2]), rtol=1e-10)
        assert found.counts[order] == counts
    whole_loss = np.mean(loss(run.logits, TOKENS, [1, 2]))
    assert found.after[-1] == pytest.approx(whole_loss, rel=1e-10)
    assert abs(found.after[0] - whole_loss) > 1e-3


def test_induction_is_lost_without_heads_on_the_key_side() -> None:
    rng = np.random.default_rng(0)
    halves = [rng.choice(np.arange(1, 32), 12, replace=False) for _ in range(5)]
    run = sc.load(path("induction")).run([[0, *h, *h] for h in halves])
    values = sc.evaluate(sc.logits(run.model), run)
    by_key = values.loss_by_order(range(13, 24), composition="K")
    by_query = values.loss_by_order(range(13, 24), composition="Q")
    assert by_key.after[0] > 3
    assert by_query.after[0] < 0.01
    assert "of the key side of scores" in " ".join(by_key.text(80).split())


def test_probabilities_and_soft_caps() -> None:
    plain = sc.random_model(PLAIN, d_vocab=6, seed=2)
    capped = sc.Model(PLAIN, plain.weights, plain.score_scale, settings=sc.Settings(logit_cap=0.5))
    run = capped.run(TOKENS)
    values = sc.evaluate(sc.logits(PLAIN), run)
    assert values.loss_by_order().after[-1] == pytest.approx(np.mean(loss(run.logits, TOKENS, [0, 1, 2, 3])), rel=1e-12)
    cut = 0.5 * np.tanh(paths_by_order(run)[()] / 0.5)
    assert np.allclose(values.loss_by_order().by_prompt[0], loss(cut, TOKENS, [0, 1, 2, 3]))
    said = values.loss_by_order(unit="probability")
    shares = np.exp(run.logits) / np.exp(run.logits).sum(-1, keepdims=True)
    right = [np.mean([shares[r, q, TOKENS[r][q + 1]] for q in range(4)]) for r in range(2)]
    assert np.allclose(said.by_prompt[-1], right)
    assert said.uniform == 1 / 6


def test_a_vector_added_to_every_row_of_the_unembedding_changes_nothing() -> None:
    model = sc.random_model(PLAIN, d_vocab=6, seed=2)
    weights = {**model.weights, "W_U": model.weights["W_U"] + np.arange(model.d_model)}
    moved = sc.Model(PLAIN, weights, model.score_scale)
    one, other = (sc.evaluate(sc.logits(PLAIN), m.run(TOKENS)) for m in (model, moved))
    assert np.allclose(one.loss_by_order().by_prompt, other.loss_by_order().by_prompt)
    for a, b in zip(one.loss_effects().parts, other.loss_effects().parts, strict=True):
        assert (a.alone, a.last) == pytest.approx((b.alone, b.last), abs=1e-12)


def test_the_models_that_ship_need_one_head_but_the_pattern_of_two() -> None:
    """Loss of the second half of [0, half, half]: the induction heads write it alone, once their patterns are there."""
    rng = np.random.default_rng(0)
    halves = [rng.choice(np.arange(1, 32), 12, replace=False) for _ in range(20)]
    run = sc.load(path("induction")).run([[0, *h, *h] for h in halves])
    after = sc.evaluate(sc.logits(run.model), run).loss_by_order(range(13, 24)).after
    assert after[0] == pytest.approx(3.49, abs=0.02)
    assert max(after[1:]) < 5e-4


def test_results_are_shown() -> None:
    run = sc.random_model(PLAIN, d_vocab=6, seed=2).run(TOKENS)
    values = sc.evaluate(sc.logits(PLAIN), run)
    found = values.loss_by_order()
    assert found.json()["after"] == list(found.after)
    assert ["none", "0", "1.792"] in [line.split() for line in found.text(60).splitlines()]
    effects = values.loss_effects("layer")
    assert [part["name"] for part in effects.json()["parts"]] == ["L0", "L1", "L2"]
    assert "the 2 largest of 3" in " ".join(effects.text(60, top=2).split())


def test_what_has_no_loss_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sc.random_model(PLAIN, d_vocab=6, seed=2)
    run = model.run(TOKENS)
    whole = sc.evaluate(sc.logits(PLAIN), run)
    with pytest.raises(ValueError, match="for all terms of the logits, not for a selection"):
        sc.evaluate(sc.logits(PLAIN).order(1), run).loss_by_order()
    with pytest.raises(ValueError, match="these are values of stream"):
        sc.evaluate(sc.stream(PLAIN), run).loss_by_order()
    bare = sc.random_model(sc.attention_only((1,), unembed=False)).run([1, 2])
    with pytest.raises(ValueError, match="the model has no unembedding"):
        sc.evaluate(sc.stream(bare.model), bare).loss_by_order()
    with pytest.raises(ValueError, match="the run has one token"):
        sc.evaluate(sc.logits(PLAIN), model.run([1])).loss_by_order()
    for queries, says in (([4], "0 to 3, and at least one"), ([], "at least one"), ([9], "queries 9 does not exist")):
        with pytest.raises(ValueError, match=says):
            whole.loss_by_order(queries)
    with pytest.raises(ValueError, match='unit must be "nats", "probability" or "centred logit", not \'bits\''):
        whole.loss_by_order(unit="bits")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='composition must be "V", "Q" or "K", not \'QK\''):
        whole.loss_by_order(composition="QK")
    with pytest.raises(ValueError, match="by must be 'layer', 'head', 'pair' or 'term', not 'neuron'"):
        whole.loss_effects("neuron")
    few = sc.random_model(PLAIN, d_vocab=9, d_vocab_out=4)
    with pytest.raises(ValueError, match="not the same vocabulary"):
        sc.evaluate(sc.logits(PLAIN), few.run([1, 8])).loss_by_order()
    monkeypatch.setattr(losses, "MOST", 5)
    for by in ("head", "term"):
        with pytest.raises(ValueError, match=r"more than 5: select some, e\.g\. \.order\(1\)"):
            whole.loss_effects(by)


def test_logits_with_a_centred_unembedding_by_order() -> None:
    model = sc.random_model(sc.attention_only((2, 2), "standard"), seed=4)
    run = model.run([[1, 4, 2, 5], [3, 0, 3, 1]])
    values = sc.evaluate(sc.logits(model), run)
    centred = model.weights["W_U"] - model.weights["W_U"].mean(0)
    other = replace(model, weights={**model.weights, "W_U": centred}).run(run.tokens)
    sums, total = sc.evaluate(sc.logits(other.model), other).by_order(), 0.0
    found = values.loss_by_order(unit="centred logit")
    for order in range(3):
        total = total + sums[order]
        wanted = [np.mean([total[row, q, run.tokens[row, q + 1]] for q in range(3)]) for row in (0, 1)]  # type: ignore[index]
        np.testing.assert_allclose(found.by_prompt[order], wanted, atol=1e-12)
    assert found.uniform == 0
    assert "Logit of the next token, less the mean of all after each order" in found.text()
    effects = values.loss_effects("term", unit="centred logit")
    assert [part.alone for part in effects.parts] == pytest.approx([part.last for part in effects.parts])  # it adds up
    by_layer = values.loss_by_order(unit="nats")
    moved = replace(model, weights={**model.weights, "W_U": model.weights["W_U"] + 3.0}).run(run.tokens)
    same = sc.evaluate(sc.logits(moved.model), moved).loss_by_order(unit="centred logit")
    np.testing.assert_allclose(same.by_prompt, found.by_prompt, atol=1e-9)
    assert not np.allclose(by_layer.by_prompt, found.by_prompt)
