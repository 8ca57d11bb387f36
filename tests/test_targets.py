"""What is looked at of a run: a logit, a difference of two, or the stream alone; and the sums that are shown of it."""

import numpy as np
import pytest

import symcircuits as sc


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2, 3], [4, 5, 6]]], ids=["one", "batch"])
def test_a_logit_and_a_difference_are_those_of_the_run(tokens: list[int]) -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run(tokens)
    assert run.logits is not None
    at = run.logits[-1, -1] if np.ndim(tokens) == 2 else run.logits[-1]
    row = 1 if np.ndim(tokens) == 2 else None
    one, both = (sc.explain(run, by=sc.logit(4, against=other, row=row)) for other in (None, 2))
    assert (one.value, one.difference, both.value, both.difference) == (at[4], None, at[4], at[4] - at[2])
    assert sc.explain(run, by=sc.logit(row=row)).measure.token == np.argmax(at)


@pytest.mark.parametrize("softmax", [True, False])
def test_sums_by_degree_are_shown_of_polynomials_alone(softmax: bool) -> None:
    run = sc.random_model(sc.attention_only((1, 1), softmax=softmax), seed=1).run([1, 2, 3])
    found = sc.explain(run, by=sc.logit(4, against=2)).totals
    assert list(found) == ["order", "composition", *([] if softmax else ["degree"])]
    assert run.logits is not None
    for sums in found.values():
        assert sum(s["contribution"] for s in sums.values()) == pytest.approx(run.logits[-1, 4], rel=1e-9)
        assert sum(s["difference"] for s in sums.values()) == pytest.approx(run.logits[-1, 4] - run.logits[-1, 2])
