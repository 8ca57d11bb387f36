"""Sums of squares of all terms against enumeration: exact by second moments, estimated by random signs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from test_ranking import model_and_run, searches, sizes

import symcircuits as sc
from symcircuits.core.budgets import Budget
from symcircuits.search import squares as square_sums
from symcircuits.search.bounds import Bounds
from symcircuits.search.squares import squares_of
from symcircuits.search.trees import trees
from tests.measures import measure_of


def by_enumeration(found: Any, run: Any) -> float:
    return sum(v * v for v in sizes(found, run))


@examples(60)
@given(searches(80), st.sampled_from([2**30, 0]))
def test_the_sum_of_squares_is_that_of_the_list(case: Any, max_memory: int) -> None:
    e, run, asked = case
    found = sc.evaluate(e, run).sum_of_squares(asked, max_memory=max_memory, samples=400)
    exact = by_enumeration(sc.evaluate(e, run).largest(0, asked), run)
    digits = 1e-10 if run.dtype == np.float64 else 1e-4
    if max_memory == 0 and any(side.program[0].sources and side.layer_heads for side in e.sides):
        assert abs(found.value - exact) <= 7 * found.error + digits * exact
    if found.exact:
        assert found.error == 0
        assert abs(found.value - exact) <= digits * exact


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("logits", "norm", {}),
    ("logits", "logit difference", {"norm": "LN", "biases": True}),
    ("scores:L3H1", "score entry", {"positions": "rotary"}),
    ("scores:L3H1", "norm", {}),
    ("stream", "norm", {"positions": "standard"}),
]


ESTIMATED: list[tuple[str, str, dict[str, Any]]] = [
    ("scores:L2H1", "masked norm", {}),
    ("scores:L2H1", "norm", {"positions": "rotary"}),  # queries and keys are turned before they meet
]


@pytest.mark.parametrize(("target", "by", "features"), CASES)
def test_thousands_of_squares_to_the_last_digits(target: str, by: str, features: dict[str, Any]) -> None:
    run = model_and_run((5, 5, 5, 5), **features)
    e = sc.expand(run.model.architecture, target)
    found = sc.evaluate(e, run).sum_of_squares(measure_of(by))
    assert found.exact
    exact = by_enumeration(sc.evaluate(e, run).largest(0, measure_of(by)), run)
    assert abs(found.value - exact) <= 1e-13 * exact
    assert str(found) == f"{found.value:.6g}"


@pytest.mark.parametrize("target", ["logits", "scores:L2H0"])
def test_squares_of_heads_in_sequence(target: str) -> None:
    run = model_and_run((2, 2, 2), biases=True)
    for chosen in (("L0H1", "L1H0"), ("L0H0", "L1H1")):
        e = sc.expand(run.model.architecture, target).through_sequence(*chosen)
        found = sc.evaluate(e, run).sum_of_squares()
        assert found.exact
        exact = sum(float((value**2).sum()) for value in sc.evaluate(e, run))
        assert abs(found.value - exact) <= 1e-12 * exact


@pytest.mark.parametrize(("target", "by", "features"), [*CASES, *ESTIMATED])
def test_the_estimate_is_unbiased_and_its_error_is_its_error(target: str, by: str, features: dict[str, Any]) -> None:
    run = model_and_run((3, 3, 3, 2), **features)
    e = sc.expand(run.model.architecture, target)
    exact = by_enumeration(sc.evaluate(e, run).largest(0, measure_of(by)), run)
    asked = measure_of(by).on(e, run, one_row=True)
    plain = trees(asked, e, run, Budget(), moments=False)
    found = [squares_of(asked, e, run, plain, Budget(), 300, seed) for seed in range(25)]
    assert not any(f.exact for f in found)
    values, errors = np.array([f.value for f in found]), np.array([f.error for f in found])
    spread = values.std(ddof=1)
    assert abs(values.mean() - exact) <= 4 * spread / 5
    assert 0.5 <= spread / np.sqrt((errors**2).mean()) <= 1.8
    assert str(found[0]).endswith("(estimated)")


def test_second_moments_that_are_wrong_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the patterns do to them."""
    run = model_and_run((3, 3))
    e = sc.logits(run.model.architecture)
    exact = by_enumeration(sc.evaluate(e, run).largest(0, sc.norm()), run)
    assert abs(sc.evaluate(e, run).sum_of_squares().value - exact) <= 1e-13 * exact
    monkeypatch.setattr(Bounds, "_mix", lambda self, h, mark: None)
    assert abs(sc.evaluate(e, run).sum_of_squares().value - exact) > 1e-3 * exact


def test_signs_that_heads_share_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sign for all heads of a layer: their terms are no longer kept apart."""
    run = model_and_run((4, 4))
    e = sc.logits(run.model.architecture)
    exact = by_enumeration(sc.evaluate(e, run).largest(0, sc.norm()), run)
    asked = sc.norm()
    plain = trees(asked, e, run, Budget(), moments=False)
    right = squares_of(asked, e, run, plain, Budget(), 4000)
    assert abs(right.value - exact) <= 4 * right.error
    sign = square_sums._Signed._sign
    shared = lambda self, of, value: sign(self, getattr(of, "layer", of), value)  # noqa: E731
    monkeypatch.setattr(square_sums._Signed, "_sign", shared)
    wrong = squares_of(asked, e, run, plain, Budget(), 4000)
    assert abs(wrong.value - exact) > 8 * wrong.error


def test_an_estimate_needs_samples() -> None:
    run = model_and_run((2,))
    with pytest.raises(ValueError, match="samples must be a whole number, 2 or more"):
        sc.evaluate(sc.logits(run.model.architecture), run).sum_of_squares(samples=1, max_memory=0)
    with pytest.raises(ValueError, match="measured by"):
        sc.evaluate(sc.logits(run.model.architecture), run).sum_of_squares(sc.score_entry())


def test_an_estimate_ends_when_time_is_up() -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture)
    measure = measure_of("norm").on(e, run)
    found = trees(measure, e, run, Budget(max_memory=0))
    none = squares_of(measure, e, run, found, Budget(max_seconds=0), 10)
    assert np.isnan([none.value, none.error]).all()
    assert not none.exact
    whole = squares_of(measure, e, run, found, Budget(max_seconds=float("inf")), 10)
    assert whole == squares_of(measure, e, run, found, Budget(), 10)
    assert whole.value > 0


@pytest.mark.usefixtures("limited")
def test_an_estimate_needs_no_more_memory_than_one_choice_of_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several do not fit they are drawn one by one."""
    monkeypatch.setattr(square_sums, "_BLOCK_BYTES", 1)
    run = model_and_run()
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    found = values.sum_of_squares(samples=400, max_memory=0)
    assert not found.exact
    assert abs(found.value - values.sum_of_squares().value) <= 5 * found.error
