"""The largest score terms by bounds: held to all terms formed, and every bound to what it bounds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import symcircuits as sc
from symcircuits.explanation import score_parts as module
from symcircuits.explanation.score_parts import bounds_of_heads, largest_score_terms
from symcircuits.explanation.score_search import Bounded
from symcircuits.model import Run

POSITIONS = [None, "standard", "shortformer", "rotary", "alibi"]


@st.composite
def runs(draw: st.DrawFn, positions: Any = POSITIONS) -> Run:
    heads = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    more = {"positions": draw(st.sampled_from(positions)), "biases": draw(st.booleans())}
    arch = sc.transformer(heads, mlps=draw(st.booleans()), **more)
    model = sc.random_model(arch, d_model=12, d_head=4, seed=draw(st.integers(0, 99)))
    tokens = np.random.default_rng(1).integers(0, 9, (2, 6) if draw(st.booleans()) else 6)
    return model.run(tokens, draw(st.sampled_from(["float64", "float32"])))


def formed(run: Run, head: str, max_terms: int) -> tuple[Any, Any]:
    """Every term that is looked at and its centred norm, by the definition."""
    looked = module._looked_at(run, sc.scores(run.model.architecture, head), max_terms)
    terms = np.array([np.array(value) for value in sc.evaluate(looked, run)])
    allowed = np.isfinite(run.scores[head])
    count = allowed.sum(-1, keepdims=True)
    mean = np.where(allowed, terms, 0).sum(-1, keepdims=True) / count
    centred = np.where(allowed, terms - mean, 0).reshape(len(terms), -1).astype(float)
    return terms, np.sqrt((centred**2).sum(1))


@pytest.fixture(autouse=True)
def every_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 0)


@examples(40)
@given(runs(), st.sampled_from([20, 200, 3000]))
def test_no_term_is_above_its_bound(run: Run, max_terms: int) -> None:
    heads = [str(h) for h in run.model.architecture.all_heads]
    found = bounds_of_heads(run, heads, max_terms)
    assert found
    eps = float(np.finfo(run.dtype).eps)
    for head, one in found.items():
        terms, sizes = formed(run, head, max_terms)
        bounds, most = one.bounds
        assert bounds.shape == sizes.shape
        assert np.all(sizes <= bounds * (1 + 1e-5) + 8 * eps * most)
        norms = np.where(np.isfinite(run.scores[head]), terms, 0).reshape(len(terms), -1)
        assert np.linalg.norm(norms, axis=1).max() <= most * (1 + 1e-5)
        again = one.formed(np.arange(len(terms)))
        assert np.allclose(again, terms, rtol=0, atol=64 * eps * np.abs(terms).max())


@examples(40)
@given(runs(), st.sampled_from([20, 200, 3000]), st.integers(1, 8))
def test_the_largest_are_those_of_all_terms(run: Run, max_terms: int, top: int) -> None:
    heads = [str(h) for h in run.model.architecture.all_heads]
    found = bounds_of_heads(run, heads, max_terms)
    eps = float(np.finfo(run.dtype).eps)
    for head in heads:
        right, looked = largest_score_terms(run, head, top, max_terms)
        some, same = largest_score_terms(run, head, top, max_terms, bounded=found.get(head))
        assert same == looked
        size = max((s.norm for s in right), default=0.0)
        for a, b in zip(some, right, strict=True):  # as large, place by place: equal terms may change places
            assert abs(a.centred_norm - b.centred_norm) <= 64 * eps * size
            assert (a.centred_share is None) == (b.centred_share is None)
        assert [s.term.label for s in some] == [s.term.label for s in right] or run.dtype == np.float32


def test_most_terms_of_a_head_are_never_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    right = Bounded.formed
    monkeypatch.setattr(Bounded, "formed", lambda self, numbers: asked.append(len(numbers)) or right(self, numbers))
    run = sc.random_model(sc.attention_only((8, 8, 8, 8)), d_model=64, d_head=16, seed=1).run([1, 2, 3, 4, 5, 6])
    (one,) = bounds_of_heads(run, ["L3H0"]).values()
    found, looked = largest_score_terms(run, "L3H0", 5, bounded=one)
    assert [s.term for s in found] == [s.term for s in largest_score_terms(run, "L3H0", 5)[0]]
    assert 0 < sum(asked) < looked / 4


def test_a_bound_that_is_too_small_loses_its_term() -> None:
    """The bounds decide what is formed: where one is wrong, the result is, so that these tests would see it."""
    run = sc.random_model(sc.attention_only((4, 4, 4)), seed=1).run([1, 2, 3, 4])
    (one,) = bounds_of_heads(run, ["L2H0"]).values()
    right = [s.term for s in largest_score_terms(run, "L2H0", 3)[0]]
    assert [s.term for s in largest_score_terms(run, "L2H0", 3, bounded=one)[0]] == right
    orders = tuple(map(len, right[0].heads))
    one.pairs[orders] = one.pairs[orders] * 1e-9
    assert right[0] not in [s.term for s in largest_score_terms(run, "L2H0", 3, bounded=one)[0]]


def test_where_there_are_no_bounds() -> None:
    norms = sc.random_model(sc.transformer((2, 2), norm="LN"), seed=1)
    assert bounds_of_heads(norms.run([1, 2, 3]), ["L1H0"]) == {}
    split = sc.random_model(sc.attention_only((2, 2)), d_model=3).with_(sc.source("cut", [1.0, 0, 0], 1))
    assert bounds_of_heads(split.run([1, 2, 3]), ["L1H0"]) == {}
    assert bounds_of_heads(split.run([1, 2, 3]), []) == {}


@pytest.mark.parametrize("name", ["_EACH", "_FORMED"])
def test_budgets_change_no_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sc.random_model(sc.attention_only((3, 3, 3)), seed=4).run([1, 2, 3, 4])
    (one,) = bounds_of_heads(run, ["L2H1"]).values()
    right, _ = largest_score_terms(run, "L2H1", 4)
    monkeypatch.setattr(module, name, 1)
    assert [s.term for s in largest_score_terms(run, "L2H1", 4, bounded=one)[0]] == [s.term for s in right]
