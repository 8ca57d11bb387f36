"""Scores split, centred and shared out: all of it held to the sum of the terms, one after the other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plain import centred as plain_centred
from plain import forward, heads_of_models, pattern_of, score_rows, seen
from strategies import unseen_by_softmax

import symcircuits as sc
from symcircuits.arrays.norms import frobenius, frobenius_each
from symcircuits.explanation.score_parts import largest_score_terms, lowest_orders, score_parts
from symcircuits.explanation.scores import centred, centred_shares, scores_of_heads
from symcircuits.model import Model, Settings

TOKENS = [3, 1, 4, 1, 5]
BIASED = sc.attention_only((2, 3), "standard", True)


def close(a: Any, b: Any, size: float) -> bool:
    return bool(np.all(np.abs(np.asarray(a) - b) <= 1e-11 * (size + 1e-300)))


def kind(source: str) -> str:
    return source.partition("[")[0]


# ------------------------------------------------------------------------------------------------- the parts
@given(heads_of_models())
def test_parts_are_sums_of_their_terms(case: tuple[Model, str]) -> None:
    model, head = case
    parts, terms = score_parts(model.run(TOKENS), head), score_rows(model, forward(model, TOKENS), head)
    size = max(np.abs(v).max() for _, v in terms)
    compositions = {r.composition for r, _ in terms}
    pairs = {tuple(kind(x.source) for x in r.routes) for r, _ in terms}
    assert set(parts.by_composition) == compositions
    assert set(parts.by_source) == set(parts.counts_by_source) == pairs
    for c in compositions:
        assert close(parts.by_composition[c], sum(v for r, v in terms if r.composition == c), size)
    for pair in pairs:
        mine = [v for r, v in terms if tuple(kind(x.source) for x in r.routes) == pair]
        assert parts.counts_by_source[pair] == len(mine)
        assert close(parts.by_source[pair], sum(mine), size)
    unseen = [v for r, v in terms if unseen_by_softmax(r, model.architecture)]
    assert parts.invisible_count == len(unseen)
    assert close(parts.invisible, sum(unseen, np.zeros((5, 5))), size)
    assert parts.spread <= 1e-11 * size  # constant along the keys
    assert np.array_equal(parts.allowed, np.isfinite(forward(model, TOKENS).scores[head]))


@given(heads_of_models())
def test_without_what_softmax_does_not_see_every_pattern_is_the_same(case: tuple[Model, str]) -> None:
    model, head = case
    expansion, plain = sc.scores(model.architecture, head), forward(model, TOKENS)
    unseen = {t.label for t in expansion if t.softmax_invisible}
    assert unseen == {t.label for t in expansion.softmax_invisible()}
    gone = sum((v for r, v in score_rows(model, plain, head) if r.label in unseen), np.zeros((5, 5)))
    layer, i = model.architecture.head(head)
    pattern = pattern_of(model, seen(model, layer, i, plain.score_sums[head] - gone))
    assert close(pattern, plain.patterns[head], max(1.0, np.abs(gone).max()))


def test_behind_a_soft_cap_softmax_sees_every_term() -> None:
    arch = sc.attention_only((2, 2), biases=True)
    model = sc.random_model(arch, seed=3, settings=Settings(score_cap=1.0))
    assert sc.scores(arch, "L1H0").softmax_invisible().count == 28
    for capped in (model.architecture, sc.attention_only((2, 2), biases=True, capped=True)):
        expansion = sc.scores(capped, "L1H0")
        assert str(capped) == "attention-only, heads 2,2, soft-capped scores, biases"
        assert (expansion.softmax_invisible().count, expansion.count) == (0, 49)
        assert not any(t.softmax_invisible for t in expansion)
        assert "Terms marked *" not in sc.derive(capped, "scores:L1H0").text()
    assert "Terms marked *" in sc.derive(arch, "scores:L1H0").text()
    assert not replace(model, settings=Settings()).architecture.capped
    assert model.architecture == arch  # the terms are the same
    terms = score_rows(model, forward(model, TOKENS), "L1H0")
    gone = sum(v for r, v in terms if unseen_by_softmax(r, arch))
    plain = forward(model, TOKENS)
    moved = pattern_of(model, seen(model, 1, 0, plain.score_sums["L1H0"] - gone)) - plain.patterns["L1H0"]
    assert np.abs(moved).max() > 0.01
    with pytest.raises(ValueError, match="a soft cap on scores needs a softmax"):
        sc.attention_only((1,), softmax=False, capped=True)


@given(heads_of_models())
def test_centred_shares_by_the_definition(case: tuple[Model, str]) -> None:
    model, head = case
    run, plain = model.run(TOKENS), forward(model, TOKENS)
    allowed = np.isfinite(plain.scores[head])
    whole = plain_centred(np.where(allowed, plain.score_sums[head], 0), allowed)
    assume((whole**2).sum() > 1e-12)
    parts, terms = score_parts(run, head), score_rows(model, plain, head)
    sums = {c: sum(v for r, v in terms if r.composition == c) for c in parts.shares}
    for c, share in parts.shares.items():
        mine = float((plain_centred(sums[c], allowed) * whole).sum() / (whole**2).sum())
        assert share == pytest.approx(mine, rel=1e-7, abs=1e-7)
    for shares in (parts.shares, parts.shares_by_source):
        assert sum(v or 0 for v in shares.values()) == pytest.approx(1, abs=1e-9)
    for pair, share in parts.shares_by_source.items():
        of_pair = [r for r, _ in terms if tuple(kind(x.source) for x in r.routes) == pair]
        if all(unseen_by_softmax(r, model.architecture) for r in of_pair):
            assert abs(share or 0) < 1e-9  # what softmax does not see


@given(st.lists(st.floats(-9, 9), min_size=16, max_size=16), st.booleans(), st.floats(-1e6, 1e6))
def test_centring(numbers: list[float], causal: bool, shift: float) -> None:
    value = np.array(numbers).reshape(4, 4)
    allowed = np.tril(np.ones((4, 4), bool)) if causal else np.ones((4, 4), bool)
    assert np.allclose(centred(value, allowed), plain_centred(value, allowed), atol=1e-12)
    assert np.allclose(centred(value + shift, allowed), centred(value, allowed), atol=1e-8)
    masked = np.where(allowed, value, -np.inf)
    assert np.array_equal(centred(masked, allowed), centred(value, allowed))


def test_shares_of_a_head_of_an_explanation() -> None:
    run = sc.random_model(BIASED, seed=5).run([TOKENS, TOKENS[::-1]])
    [scores], parts = scores_of_heads(run, [sc.scores(BIASED, "L1H1")]), score_parts(run, "L1H1")
    assert scores.centred_shares == pytest.approx(parts.shares, rel=1e-12)
    for c, value in parts.by_composition.items():
        rows = [plain_centred(v, ok) for v, ok in zip(value, parts.allowed, strict=True)]
        assert scores.centred_norms[c] == pytest.approx(np.sqrt(sum((r**2).sum() for r in rows)))
    [first] = scores_of_heads(run, [sc.scores(BIASED, "L0H0")])
    assert first.centred_shares["none"] == pytest.approx(1)
    assert (first.centred_shares["Q"], first.centred_norms["K"]) == (0, 0)


@pytest.mark.parametrize("tokens", [TOKENS, [TOKENS, TOKENS[::-1]]])
def test_heads_together_as_one_by_one(tokens: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    run, both = sc.random_model(BIASED, seed=5).run(tokens), [sc.scores(BIASED, head) for head in ("L1H0", "L1H1")]
    together = scores_of_heads(run, both, [1, 2])
    assert together == [one for e in both for one in scores_of_heads(run, [e], [1, 2])]
    assert together[0] != together[1]
    monkeypatch.setattr("symcircuits.explanation.scores._TOGETHER", 1)
    assert scores_of_heads(run, both, [1, 2]) == together
    assert scores_of_heads(run, []) == []


def test_norms_of_arrays_as_of_each() -> None:
    given = np.array([[[0.0, 0.0], [3.0, -4.0]], [[1e300, 1e300], [np.inf, 1.0]]])
    assert frobenius_each(given, 2).tolist() == [[0, 5], [frobenius(given[1, 0]), np.inf]]
    usual = np.array([[0.0, 0.0], [3.0, -4.0]])
    assert frobenius_each(usual).tolist() == [0, 5]
    assert frobenius_each(np.array([[0.0, 1e-180], [3.0, 4.0]])).tolist() == [1e-180, 5]
    many = np.ones((2, 2**18))
    assert frobenius_each(many).tolist() == [frobenius(many[0])] * 2 == [512.0] * 2


def test_shares_are_undefined_where_nothing_is_left_after_centring() -> None:
    """Scores that are constant along the keys: only their queries differ."""
    arch = sc.attention_only((1,), biases=["b_Q", "b_K"])
    weights = {k: np.array(v) for k, v in sc.random_model(arch, seed=1).weights.items()}
    weights["W_K_L0H0"][:] = 0
    run = sc.Model(arch, weights, {"L0H0": 0.3}).run(TOKENS)
    parts = score_parts(run, "L0H0")
    assert set(parts.shares.values()) == set(parts.shares_by_source.values()) == {None}
    assert set(centred_shares(run, sc.scores(arch, "L0H0"), parts.by_source).values()) == {None}
    [found] = scores_of_heads(run, [sc.scores(arch, "L0H0")])
    assert found.centred_shares == dict.fromkeys(("none", "Q", "K", "QK"))
    assert {t.centred_share for t in largest_score_terms(run, "L0H0")[0]} == {None}


def test_at_depth_nothing_is_listed() -> None:
    arch = sc.attention_only((4,) * 8, "standard", True)
    run = sc.random_model(arch, seed=1).run(TOKENS)
    parts = score_parts(run, "L7H0")
    assert sum(parts.counts_by_source.values()) == sc.scores(arch, "L7H0").count > 10**10
    masked = np.where(parts.allowed, sum(parts.by_source.values()), -np.inf)
    assert np.allclose(masked, run.scores["L7H0"], atol=1e-10)
    terms, looked_at = largest_score_terms(run, "L7H0", top=3)
    assert len(terms) == 3
    assert looked_at < 20_000


# ------------------------------------------------------------------------------------------ the largest terms
@given(heads_of_models(), st.integers(1, 8))
def test_the_largest_score_terms(case: tuple[Model, str], top: int) -> None:
    model, head = case
    run, plain = model.run(TOKENS), forward(model, TOKENS)
    allowed = np.isfinite(plain.scores[head])
    terms = score_rows(model, plain, head)
    values = {r.label: (v, plain_centred(v, allowed)) for r, v in terms}
    size = max(np.abs(v).max() for _, v in terms) * 25
    found, looked_at = largest_score_terms(run, head, top)
    assert (len(found), looked_at) == (min(top, len(terms)), len(terms))
    norms = [np.sqrt((c**2).sum()) for _, c in values.values()]
    for s, best in zip(found, sorted(norms, reverse=True), strict=False):
        value, centre = values[s.term.label]
        assert close(s.centred_norm, np.sqrt((centre**2).sum()), size)
        assert close(s.norm, np.sqrt((value[allowed] ** 2).sum()), size)
        assert close(s.centred_norm, best, size)
    whole = sum((c for _, c in values.values()), np.zeros((5, 5)))
    if found[0].centred_share is not None and (whole**2).sum() > 1e-12:
        for s in found:
            mine = (values[s.term.label][1] * whole).sum() / (whole**2).sum()
            assert s.centred_share == pytest.approx(mine, rel=1e-7, abs=1e-7)


def test_orders_that_fit_are_looked_at() -> None:
    logits = sc.logits(sc.attention_only((3, 3)))
    assert lowest_orders(logits, 16) is logits
    assert lowest_orders(logits, 15).counts_by_order() == {0: 1, 1: 6}
    assert lowest_orders(logits, 0).count == 0
    many = sc.logits(sc.attention_only((9,) * 13))
    assert many.count == 10**13
    assert lowest_orders(many, 10**13 - 1).count == 10**13 - 9**13
    with pytest.raises(OverflowError, match="10,000,000,000,000 terms of logits are too many to look at one by one"):
        lowest_orders(many, 10**13)


def test_many_heads_have_the_same_largest_terms_in_any_order_of_looking() -> None:
    """More terms than are kept at a time: the best of all are found, not of the last."""
    arch = sc.attention_only((40, 1))
    run = sc.random_model(arch, seed=1).run([1, 2, 3])
    few, everything = largest_score_terms(run, "L1H0", 2)[0], largest_score_terms(run, "L1H0", 2000)[0]
    assert [s.term.label for s in few] == [s.term.label for s in everything[:2]]


# --------------------------------------------------------------------------------------------------- columns
def test_score_columns_are_columns() -> None:
    found = sc.explain(sc.random_model(BIASED, seed=5), TOKENS)
    table = found.score_columns()
    assert {len(c) for c in table.values()} == {2 * 1 + 3 * 4}
    at = table["head"].index("L1H2") + 2
    assert (table["composition"][at], table["count"][at]) == ("K", found.scores["L1H2"].counts["K"])
    assert table["share"][at] == found.scores["L1H2"].shares["K"]
    assert table["centred_share"][at] == found.scores["L1H2"].centred_shares["K"]
    terms = found.score_columns("L1H2", top=7)
    assert {len(c) for c in terms.values()} == {7}
    first = largest_score_terms(found.run, "L1H2", 7)[0][0]
    assert terms["text"][0] == first.term.text
    assert terms["centred_norm"] == sorted(terms["centred_norm"], reverse=True)
    assert terms["query_heads"][0] == " ".join(map(str, first.term.heads[0]))
    with pytest.raises(ValueError, match="no head L1H3"):
        found.score_columns("L1H3")


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("causal", [True, False])
def test_scores_are_looked_at_some_rows_at_a_time(rows: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    arch = sc.transformer((2, 3), biases=True, causal=causal)
    run = sc.random_model(arch, seed=3).run([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    expansions = [sc.scores(arch, f"L1H{i}") for i in range(3)]
    right = scores_of_heads(run, expansions, [1, 3])
    monkeypatch.setattr("symcircuits.explanation.scores._ROWS", rows)
    for one, whole in zip(scores_of_heads(run, expansions, [1, 3]), right, strict=True):
        assert one.closure == whole.closure
        assert one.counts == whole.counts
        assert one.margin == pytest.approx(whole.margin, rel=1e-12)
        for name in ("shares", "norms", "centred_shares", "centred_norms"):
            assert getattr(one, name) == pytest.approx(getattr(whole, name), rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("rows", [1, 2**18])
def test_shares_of_nothing_are_not_defined_in_any_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal tokens all keys are the same, so that centred scores and the margin are rounding."""
    monkeypatch.setattr("symcircuits.explanation.scores._ROWS", rows)
    run = sc.random_model(sc.attention_only((2, 2)), seed=3).run([4, 4, 4, 4])
    [found] = scores_of_heads(run, [sc.scores(run.model, "L1H0")])
    assert set(found.centred_shares.values()) == {None}
    assert set(found.shares.values()) == {None}
    assert found.norms["QK"] > 0
