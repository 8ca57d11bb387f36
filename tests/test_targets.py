"""What is looked at of a run: a logit, a difference of two, or the stream alone; and the sums that are shown of it."""

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.values.targets import read_target, totals


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2, 3], [4, 5, 6]]], ids=["one", "batch"])
def test_a_logit_and_a_difference_are_those_of_the_run(tokens: list[int]) -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run(tokens)
    assert run.logits is not None
    at = run.logits[-1, -1] if np.ndim(tokens) == 2 else run.logits[-1]
    row = np.ndim(tokens) - 1
    one, both = read_target(run, row, -1, 4, None), read_target(run, row, -1, 4, 2)
    assert one.at(run.logits) == (at[4], None)
    assert both.at(run.logits) == (at[4], at[4] - at[2])
    assert (one.value, one.difference, both.value, both.difference) == (at[4], None, at[4], at[4] - at[2])
    assert read_target(run, row, -1, None, None).token == np.argmax(at)


def test_without_an_unembedding_there_is_no_token() -> None:
    run = sc.random_model(sc.attention_only((2,), unembed=False), seed=1).run([1, 2, 3])
    assert read_target(run, 0, -1, None, None).token is None
    for token, against in ((1, None), (None, 1), (1, 2)):
        with pytest.raises(ValueError, match="no unembedding, so there is no logit of a token"):
            read_target(run, 0, -1, token, against)


@pytest.mark.parametrize("softmax", [True, False])
def test_sums_by_degree_are_shown_of_polynomials_alone(softmax: bool) -> None:
    run = sc.random_model(sc.attention_only((1, 1), softmax=softmax), seed=1).run([1, 2, 3])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    found = totals(values, read_target(run, 0, -1, 4, 2))
    assert list(found) == ["order", "composition", *([] if softmax else ["degree"])]
    assert run.logits is not None
    for sums in found.values():
        assert sum(s["contribution"] for s in sums.values()) == pytest.approx(run.logits[-1, 4], rel=1e-9)
        assert sum(s["difference"] for s in sums.values()) == pytest.approx(run.logits[-1, 4] - run.logits[-1, 2])
