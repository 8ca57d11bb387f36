"""Samples of terms: chances, estimates against exact sums, and what is wrong must be seen."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from test_ranking import model_and_run, searches, sizes

import symcircuits as sc
from symcircuits.core.budgets import Budget
from symcircuits.model import Settings, random_model
from symcircuits.search.sample import _DRAW_BYTES, Sample, _Choices, _Drawn, _Paths
from symcircuits.search.trees import trees
from tests.measures import measure_of


def exact_sum(found: Sample, run: Any) -> float:
    return sum(map(abs, sizes(found, run)))  # type: ignore[arg-type]


def held_to_chances(found: Sample, run: Any) -> None:
    """Every term is drawn with the chance that is said, and has the size that it has."""
    values = np.abs(sizes(found, run))  # type: ignore[arg-type]
    most = values.max(initial=0.0)
    for term, size in zip(found.terms, found.sizes, strict=True):
        assert abs(size - values[found.expansion.index(term)]) <= 1e-10 * most
    chance = {found.expansion.index(t): c for t, c in zip(found.terms, found.chances, strict=True)}
    assert len({(found.expansion.index(t), c) for t, c in zip(found.terms, found.chances, strict=True)}) == len(chance)
    missing = [i for i in range(found.count) if i not in chance]
    total = sum(chance.values())
    assert total <= 1 + 1e-9
    if not missing:
        assert abs(total - 1) < 1e-9
    often = np.bincount([found.expansion.index(t) for t in found.terms], minlength=found.count)
    for i, p in chance.items():
        n = len(found.terms)
        assert abs(often[i] - n * p) <= 6 * np.sqrt(n * p * (1 - p)) + 6


@examples(40)
@given(searches(40), st.sampled_from(["uniform", "bound"]), st.integers(0, 99))
def test_chances_are_those_of_the_draws(case: Any, weights: str, seed: int) -> None:
    e, run, asked = case
    if run.dtype == np.float32:
        return
    found = sc.evaluate(e, run).sample(300, asked, seed=seed, weights=weights)
    assert len(found.terms) == (300 if e.count else 0)
    if e.count:
        held_to_chances(found, run)
    assert exact_sum(found, run) <= found.bound
    if weights == "uniform" and e.target[:6] != "scores":
        assert np.allclose(found.chances, 1 / max(e.count, 1))


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("logits", "logit difference", {}),
    ("logits", "norm", {"norm": "RMS"}),
    ("scores:L2H1", "score entry", {"biases": True}),
    ("scores:L1H0", "masked norm", {"positions": "rotary"}),
]


@pytest.mark.parametrize(("target", "by", "features"), CASES)
@pytest.mark.parametrize("weights", ["uniform", "bound"])
def test_the_estimate_is_unbiased_and_its_error_is_its_error(
    target: str, by: str, features: dict[str, Any], weights: str
) -> None:
    run = model_and_run((3, 3, 3), **features)
    e = sc.expand(run.model.architecture, target)
    found = [sc.evaluate(e, run).sample(200, measure_of(by), seed=seed, weights=weights) for seed in range(30)]
    values = np.abs(sizes(found[0], run))  # type: ignore[arg-type]
    drawn = [values[e.index(term)] for term in found[0].terms]
    np.testing.assert_allclose(found[0].sizes, drawn, rtol=1e-9, atol=1e-12)
    exact = exact_sum(found[0], run)
    estimates, errors = np.array([f.estimate for f in found]), np.array([f.error for f in found])
    spread = estimates.std(ddof=1)
    assert abs(estimates.mean() - exact) <= 4 * spread / np.sqrt(30)
    assert 0.6 <= spread / np.sqrt((errors**2).mean()) <= 1.6
    assert np.mean(np.abs(estimates - exact) <= 2 * errors) >= 0.75


@pytest.mark.parametrize("tokens", [[[0], [1]], [[0, 0], [1, 1]], [0, 1]])
def test_terms_that_stand_at_different_places_add_up_to_more_than_the_size_of_their_sum(tokens: Any) -> None:
    """Each head reads one of two tokens, and every token sees itself alone: the sum of two terms is not as large."""
    arch = sc.attention_only((2, 1), unembed=False)
    model = random_model(arch, d_vocab=2, d_model=4, d_head=1)
    w = {name: np.zeros(array.shape) for name, array in model.weights.items()}
    w["W_E"][[0, 1], [0, 1]] = 1.0
    for i in range(2):
        w[f"W_V_L0H{i}"][0, i] = w[f"W_O_L0H{i}"][2, 0] = 1.0
    w["W_V_L1H0"][0, 2] = w["W_O_L1H0"][3, 0] = 1.0
    run = sc.Model(arch, w, model.score_scale, settings=Settings(windows=(1, 1))).run(tokens)
    e = sc.stream(arch).order(2)
    found = sc.evaluate(e, run).sample(9)
    exact = exact_sum(found, run)
    assert float(np.linalg.norm(sc.evaluate(e, run).total())) < 0.95 * exact
    assert exact <= found.bound < 2 * exact


@pytest.mark.parametrize("target", ["logits", "stream", "scores:L1H0"])
def test_terms_that_are_all_zero_are_drawn_all_the_same(target: str) -> None:
    model = random_model(sc.attention_only((2, 2)), seed=1)
    w = {name: array * (name != "W_E") for name, array in model.weights.items()}
    run = sc.Model(model.architecture, w, model.score_scale).run([1, 2, 3])
    e = sc.expand(model.architecture, target)
    for chosen in (e, e.order(1)):
        found = sc.evaluate(chosen, run).sample(200)
        assert (found.estimate, found.error, len(found.terms)) == (0, 0, 200)
        assert found.bound == 0 or target[:6] == "scores"
        assert len({t.label for t in found.terms}) == chosen.count
        assert np.isclose(sum({t.label: c for t, c in zip(found.terms, found.chances, strict=True)}.values()), 1)


def test_weights_by_bounds_need_fewer_draws() -> None:
    run = model_and_run((5, 5, 5, 5), scale=0.7)
    e = sc.logits(run.model.architecture)
    errors = {w: sc.evaluate(e, run).sample(500, sc.logit(), weights=w).error for w in ("uniform", "bound")}
    assert errors["bound"] < errors["uniform"] / 2


def test_a_chance_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    run = model_and_run((2, 2))
    e = sc.logits(run.model.architecture)
    held_to_chances(sc.evaluate(e, run).sample(500), run)
    draw = _Drawn.draw

    def wrong(self: _Drawn) -> Any:
        term, size, chance = draw(self)
        return term, size, 0.9 * chance

    monkeypatch.setattr(_Drawn, "draw", wrong)
    with pytest.raises(AssertionError):
        held_to_chances(sc.evaluate(e, run).sample(500), run)


def test_the_same_seed_draws_the_same() -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture)
    one, two, other = (sc.evaluate(e, run).sample(20, seed=s) for s in (3, 3, 4))
    assert one.terms == two.terms != other.terms
    assert repr(one).startswith(
        "<Sample of 20 draws of 64 terms of logits, by norm over all positions and outputs: the sum of"
    )


@pytest.mark.parametrize("weights", ["uniform", "bound"])
def test_time_ends_the_draws_when_it_is_up_and_no_sooner(weights: str) -> None:
    run = model_and_run()
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    enough, none = (values.sample(20, weights=weights, max_seconds=s) for s in (10**6, 0))
    assert (len(enough.terms), enough.reached) == (20, "")
    assert enough.terms == values.sample(20, weights=weights).terms
    assert (len(none.terms), none.reached) == (0, "max_seconds (0)")


def test_nothing_to_draw() -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture)
    empty = sc.evaluate(e.order(1).order(2), run).sample(5)
    assert (empty.terms, empty.estimate, empty.error) == ((), 0.0, 0.0)
    assert sc.evaluate(e, run).sample(1).error == float("inf")
    none = sc.evaluate(e, run).sample(0)
    assert (none.terms, none.error) == ((), float("inf"))
    assert np.isnan(none.estimate)  # and not 0, as if there were nothing
    assert repr(none).endswith("nothing is known>")
    assert none.json()["estimate"] is none.json()["error"] is None
    one = sc.evaluate(e, run).sample(1)
    assert one.text().splitlines()[1].endswith(", of unknown error: there is one draw")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"k": -1}, "k must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"weights": "size"}, "weights must be"),
        ({"by": sc.score_entry()}, "measured by"),
    ],
)
def test_bad_choices_are_refused(asked: dict[str, Any], said: str) -> None:
    run = model_and_run()
    with pytest.raises(ValueError, match=said):
        sc.evaluate(sc.logits(run.model.architecture), run).sample(**asked)


def test_draws_that_fit_in_the_memory_are_made_and_no_more() -> None:
    run = model_and_run()
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    each = _DRAW_BYTES
    assert len(values.sample(3, max_memory=3 * each).terms) == 3
    for k, memory in ((3, 3 * each - 1), (10**13, 2**30)):
        with pytest.raises(ValueError, match=rf"^{k:,} draws need about .* and max_memory is .*: draw fewer"):
            values.sample(k, max_memory=memory)


def test_where_chances_add_up_to_less_than_one_the_last_that_can_be_is_drawn() -> None:
    """Rounding at the very end: not one beyond the last, nor one that has no chance."""
    run = model_and_run((2, 2))
    e = sc.logits(run.model.architecture)
    tree = trees(sc.norm().on(e, run, one_row=True), e, run, Budget())[0]
    rng: Any = SimpleNamespace(random=lambda: float(np.nextafter(1.0, 0.0)))
    paths = _Paths(tree, False, rng)
    root = paths.root()
    ended = root.ended * 3
    for weights, drawn in (([1.0, 2.0, 0.0], 1), ([1.0, 1.0, 2.0], 2)):
        here = _Choices(root.found, ended, np.array(weights))
        here.chances = here.chances * (1 - 1e-15)
        paths.kept[tree.key,] = here
        one, chance = paths.draw()
        assert one is ended[drawn]
        assert chance == weights[drawn] / sum(weights)
