"""Numbers that leave the range of their type: named by term, never summed over, and never the ground of a proof."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.explanation.score_parts import largest_score_terms
from symcircuits.model import Run
from symcircuits.values.by_head import through_each_head

TOKENS = [1, 2, 3]
ARCH = sc.attention_only((2, 2, 2))
FACTORS = {"float32": 1e25, "float64": 1e200}


def cancelling(factor: float) -> sc.Model:
    """Two first heads whose outputs are huge and cancel: what the model computes is fine, its single terms are not."""
    model = sc.random_model(ARCH, d_model=4, d_head=2, d_vocab=5, seed=1)
    weights = {name: np.array(w) for name, w in model.weights.items()}
    for name in "QKVO":
        weights[f"W_{name}_L0H1"] = weights[f"W_{name}_L0H0"].copy()
    weights["W_O_L0H0"] *= factor
    weights["W_O_L0H1"] = -weights["W_O_L0H0"]
    for head in "01":
        weights[f"W_V_L1H{head}"] *= factor
    return replace(model, weights=weights)


@pytest.fixture(params=FACTORS)
def run(request: pytest.FixtureRequest) -> Run:
    found = cancelling(FACTORS[request.param]).run(TOKENS, request.param)
    assert found.logits is not None
    assert np.isfinite(found.logits).all()
    return found


def logits(run: Run) -> Any:
    return sc.logits(run.model.architecture)


def scores(run: Run) -> Any:
    return sc.scores(run.model.architecture, "L2H0")


BY_TERM: dict[str, Callable[[Run], Any]] = {
    "norms": lambda run: list(sc.evaluate(logits(run), run).measure()),
    "norms of scores": lambda run: list(sc.evaluate(scores(run), run).measure()),
    "masked norms": lambda run: list(sc.evaluate(scores(run), run).measure(sc.norm(masked=True))),
    "contributions": lambda run: list(sc.evaluate(logits(run), run).measure(sc.logit(1))),
    "entries": lambda run: list(sc.evaluate(scores(run), run).measure(sc.score_entry(2, 0))),
    "values": lambda run: list(sc.evaluate(logits(run), run).blocks()),
    "one value": lambda run: sc.evaluate(logits(run), run).value(logits(run)[7]),
    "values of scores": lambda run: list(sc.evaluate(scores(run), run).blocks()),
    "sizes": lambda run: sc.evaluate(logits(run), run).summary(),
    "sizes of scores": lambda run: sc.evaluate(scores(run), run).summary(sc.score_entry(key=0)),
    "total of a selection": lambda run: sc.evaluate(logits(run).through("L0H0"), run).total(),
    "by order": lambda run: sc.evaluate(scores(run), run).by_order(),
    "by orders": lambda run: sc.evaluate(scores(run), run).by_orders(),
    "by composition": lambda run: sc.evaluate(scores(run), run).by_composition(),
    "by source": lambda run: sc.evaluate(scores(run), run).by_source(),
    "explain": lambda run: sc.explain(run),
    "explain many": lambda run: sc.explain_many(run.model, [TOKENS], dtype=run.dtype),
    "largest score terms": lambda run: largest_score_terms(run, "L2H0"),
}
IN_FLOAT64 = {  # of a run in float32 too; so they have more room
    "squares": lambda run: sc.evaluate(logits(run), run).sum_of_squares(),
    "squares of scores": lambda run: sc.evaluate(scores(run), run).sum_of_squares(sc.score_entry()),
    "squares, estimated": lambda run: sc.evaluate(scores(run), run).sum_of_squares(max_memory=0),
    "largest": lambda run: sc.evaluate(logits(run), run).largest(3),
    "largest part": lambda run: sc.evaluate(logits(run), run).largest(3, sc.logit()),
    "largest scores": lambda run: sc.evaluate(scores(run), run).largest(3),
    "largest score": lambda run: sc.evaluate(scores(run), run).largest(1, sc.score_entry()),
    "sample": lambda run: sc.evaluate(logits(run), run).sample(100, weights="uniform"),
    "sample of scores": lambda run: sc.evaluate(scores(run), run).sample(100, sc.score_entry(), weights="uniform"),
}  # fmt: skip


@pytest.mark.parametrize("what", BY_TERM)
def test_what_is_no_number_is_named_by_term(what: str, run: Run) -> None:
    with pytest.raises(ValueError, match=r"embed (\| embed )?-> L0H[01]( -> L1H[01])?") as said:
        BY_TERM[what](run)
    assert ("float64, or scale" in str(said.value) or "try dtype float64" in str(said.value)) == (
        run.dtype == np.float32
    )


def test_a_total_whose_sums_are_finite_is_that_of_the_model(run: Run) -> None:
    """It is not split by order, so that what cancels within the stream never leaves the range."""
    total, seen = sc.evaluate(scores(run), run).total(), run.masks["L2"]
    assert np.isfinite(total).all()
    error = np.abs(total - run.scores["L2H0"])[seen].max()
    assert error <= 1e-5 * np.abs(run.scores["L2H0"][seen]).max()


@pytest.mark.parametrize("what", IN_FLOAT64)
def test_what_is_no_number_proves_nothing(what: str) -> None:
    run = cancelling(FACTORS["float64"]).run(TOKENS)
    with pytest.raises(ValueError, match=r"embed (\| embed )?-> L[01]H[01]( -> L[12]H[01])?"):
        IN_FLOAT64[what](run)


def test_bounds_that_are_no_numbers_make_no_chances() -> None:
    run = cancelling(FACTORS["float64"]).run(TOKENS)
    with pytest.raises(ValueError, match="probabilities cannot be computed from them"):
        sc.evaluate(logits(run), run).sample(100)


def test_what_is_computed_in_float64_is_right_where_float32_is_too_small() -> None:
    wide, narrow = (cancelling(1e25).run(TOKENS, dtype) for dtype in ("float64", "float32"))
    for ask in (
        sc.evaluate(logits(wide), narrow).sum_of_squares().value,
        sc.evaluate(logits(wide), wide).sum_of_squares().value,
    ):
        assert ask == pytest.approx(sum(float((v**2).sum()) for v in sc.evaluate(logits(wide), wide)), rel=1e-5)
    found = sc.evaluate(logits(wide), narrow).largest(3, sc.logit())
    sizes = sorted((abs(v[-1, found.measure.token]) for v in sc.evaluate(found.expansion, wide)), reverse=True)
    assert [t.size for t in found.terms] == pytest.approx(sizes[:3], rel=1e-5)
    with pytest.raises(ValueError, match=r"the term embed -> L0H[01] -> L1H[01] is not finite"):
        sc.evaluate(logits(wide), narrow).largest(3, sc.norm())


def test_sums_of_heads_are_looked_at_too(run: Run) -> None:
    with pytest.raises(ValueError, match=r"the sum of the terms through L0H0 is not finite, nor is term 7"):
        list(through_each_head(sc.evaluate(logits(run), run)))


def test_sums_that_are_finite_are_given_although_terms_are_not(run: Run) -> None:
    """Of the whole they cancel before anything is multiplied on."""
    values = sc.evaluate(logits(run), run)
    assert np.isfinite(values.total()).all()
    with np.errstate(all="ignore"):
        assert not all(np.isfinite(v).all() for v in values)


def test_sums_of_sizes_that_overflow_are_refused() -> None:
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    weights = {n: np.array(w) * (1e307 if n == "W_U" else 1.0) for n, w in model.weights.items()}
    huge = replace(model, weights=weights)
    sizes = [float(np.abs(v).max()) for v in sc.evaluate(sc.logits(huge.architecture), huge.run(TOKENS))]
    assert np.isfinite(sizes).all()
    with pytest.raises(ValueError, match="the sum of the sizes of the terms leaves the range of float64"):
        sc.evaluate(sc.logits(huge.architecture), huge.run(TOKENS)).summary()


def test_nothing_frozen_is_looked_at_too() -> None:
    arch = sc.transformer((1, 1, 1), softmax=False, scale=False)
    model = sc.random_model(arch, seed=1)
    weights = {
        n: np.array(w) * (1e30 if n == "W_Q_L1H0" else 1e-30 if n == "W_K_L1H0" else 1.0)
        for n, w in model.weights.items()
    }
    run = replace(model, weights=weights).run(TOKENS, "float32")
    terms = sc.logits(arch).unfrozen()
    assert np.isfinite(sc.evaluate(terms, run).total()).all()
    values = sc.evaluate(terms, run)
    values.degrees = lambda: {3: np.array([np.nan])}  # type: ignore[method-assign]
    for name, ask in (("degree 3", values.by_degree), ("all terms", values.total)):
        with pytest.raises(ValueError, match=rf"the sum of (the terms of )?{name} is not finite"):
            ask()
