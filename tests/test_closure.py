"""What a layer adds up to, against the stream after it: parts that are added, streams of zeros, the worst of all."""

from dataclasses import replace

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.values.closure import layer_closures, worst_closure
from symcircuits.values.evaluate import Closure, closure


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_what_is_added_to_the_stream_is_a_part_of_its_layer(layer: int) -> None:
    model = sc.random_model(sc.transformer((2, 2), mlps=True, biases=True), seed=1)
    plain = layer_closures(model.run([1, 2, 3]))
    steered = model.with_(sc.source("steer", np.linspace(-5, 5, model.d_model), layer, of="added"))
    found = layer_closures(steered.run([1, 2, 3]))
    assert all(c.passed for c in found)
    more = [c.summands - p.summands for c, p in zip(found, plain, strict=True)]
    assert more == [int(layer == after) for after in (1, 2)]  # before the first layer it is in the stream that it reads


def test_a_layer_that_lacks_a_part_does_not_close() -> None:
    run = sc.random_model(sc.transformer((2, 2), mlps=True, biases=True), seed=1).run([1, 2, 3])
    wrong = replace(run, mlps={**run.mlps, "L1": 2 * run.mlps["L1"]})
    closures = layer_closures(wrong)
    assert [c.passed for c in closures] == [True, False]
    worst = worst_closure(closures)
    assert worst is not None
    assert (worst.target, worst.error > worst.bound) == ("layer:1", True)


def test_zeros_close() -> None:
    """Where nothing is added up there is no error, and no room for one."""
    model = sc.random_model(sc.attention_only((5, 5), biases=True), seed=0)
    nothing = {name: 0 * w for name, w in model.weights.items() if name.startswith("b_")}
    embedding = np.array(model.weights["W_E"])
    embedding[:, 1] = 0.0  # of the first token, which reads itself alone
    found = layer_closures(replace(model, weights={**model.weights, **nothing, "W_E": embedding}).run([1, 2, 3]))
    assert all(c.passed for c in found)
    none = replace(model, weights={name: 0 * w for name, w in model.weights.items()})
    assert [(c.error, c.bound, c.passed) for c in layer_closures(none.run([1, 2, 3]))] == [(0.0, 0.0, True)] * 2


def test_the_worst_is_the_first_that_fails_else_the_nearest_to_its_bound() -> None:
    def of(target: str, error: float, bound: float) -> Closure:
        return Closure(target, error, bound, error <= bound, 2, listed=True)

    zero, far, near, failed = of("0", 0, 0), of("1", 1, 100), of("2", 1, 10), of("3", 5, 1)
    assert worst_closure((zero, far, near)) is near
    assert worst_closure((near, far, zero)) is near
    assert worst_closure((zero,)) is zero
    assert worst_closure((near, failed, of("4", 9, 1))) is failed
    assert worst_closure(()) is None


def test_sums_of_terms_that_cancel_have_the_room_of_what_they_are_made_of() -> None:
    """Who lists no term finds what who lists all does: what heads write is rounded where it is written."""
    model = sc.random_model(sc.attention_only((2,), unembed=False), seed=1)
    weights = {name: np.array(w) for name, w in model.weights.items()}
    for name in "QKVO":
        weights[f"W_{name}_L0H1"] = weights[f"W_{name}_L0H0"].copy()
    weights["W_O_L0H0"] *= 1e9
    weights["W_O_L0H1"] = -weights["W_O_L0H0"]
    run = replace(model, weights=weights).run([1, 2, 3])
    listed, walked = (closure(sc.stream(model), run, listed=most) for most in (2000, 0))
    assert (listed.passed, walked.passed) == (True, True)
    assert (listed.listed, walked.listed) == (True, False)
