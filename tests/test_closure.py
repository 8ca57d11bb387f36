"""What a layer adds up to, against the stream after it: parts that are added, streams of zeros, the worst of all."""

from dataclasses import replace

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.model import Run
from symcircuits.values.closure import layer_closures, worst_closure
from symcircuits.values.evaluate import Closure, closure, compare


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


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("logit_cap", [None, 3.0])
@pytest.mark.parametrize("score_cap", [None, 2.0])
def test_what_is_compared_is_named_where_it_is_not_what_the_model_gives(
    alibi: bool, logit_cap: float | None, score_cap: float | None
) -> None:
    arch = sc.transformer((2, 2), "alibi" if alibi else None, norm="LN")
    model = sc.random_model(arch, settings=sc.Settings(logit_cap=logit_cap, score_cap=score_cap), seed=1)
    run = model.with_(sc.readout(np.ones(model.d_model), layer=1, normed=False)).run([1, 2, 3])
    of_logits = "pre-cap" if logit_cap else ""
    of_scores = "pre-cap" if score_cap else "before the addend" if alibi else ""
    for target, of in (("logits", of_logits), ("scores:L1H0", of_scores), ("stream", ""), ("readout:probe", "")):
        found = closure(sc.expand(run.model.architecture, target), run)
        assert (found.of, found.passed) == (of, True)


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


def stream_of(value: float, dtype: str = "float64") -> Run:
    """A run whose stream holds one number everywhere."""
    run = sc.random_model(sc.attention_only((1,), unembed=False), d_model=2, d_head=1, seed=1).run([1, 2], dtype)
    return replace(run, streams=(*run.streams[:-1], np.full_like(run.streams[-1], value)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_bound_of_the_smallest_numbers(dtype: str) -> None:
    """Below the normal numbers of a type digits are fewer: that much is allowed, but of zeros nothing is."""
    tiny, none = float(np.finfo(dtype).tiny), np.zeros(())
    close, off = stream_of(4 * tiny, dtype), stream_of(0.0, dtype)
    summands = [np.full((2, 2), 4.5 * tiny, dtype)]
    found = compare("stream", close, summands, listed=True, scale=none)
    assert (found.error, found.bound, found.passed) == (0.5 * tiny, tiny, True)
    assert not compare("stream", close, [2 * summands[0]], listed=True, scale=none).passed
    zeros = compare("stream", off, [np.zeros((2, 2), dtype)], listed=True, scale=none)
    assert (zeros.error, zeros.bound, zeros.passed) == (0.0, 0.0, True)
    assert not compare("stream", stream_of(tiny / 2, dtype), [np.zeros((2, 2), dtype)], listed=True, scale=none).passed


def test_the_bound_is_sixteen_roundings_of_what_is_added() -> None:
    """``16 u (sum of |summands| + f)`` at the entry with the largest ratio, here 16 u (3 + 1 + 2) = 96 u."""
    run, unit, one = stream_of(2.0), np.finfo(float).eps / 2, np.zeros((2, 2))
    for roundings, passed in ((92, True), (100, False)):
        less = one.copy()
        less[1, 0] = roundings * unit
        found = compare("stream", run, [one + 3.0, less - 1.0], listed=False, scale=np.asarray(2.0))
        assert found.error == pytest.approx(roundings * unit, rel=0.05, abs=0)
        assert found.bound == pytest.approx(96 * unit, rel=1e-12, abs=0)
        assert (found.passed, found.summands, found.listed) == (passed, 2, False)


def test_nothing_that_is_compared_does_not_close() -> None:
    """Neither without summands nor without entries: scores of which the mask leaves none."""
    run = sc.random_model(sc.attention_only((1,)), seed=1).run([1, 2])
    hidden = replace(run, masks={name: np.zeros_like(mask) for name, mask in run.masks.items()})
    found = compare("scores:L0H0", hidden, [np.zeros((2, 2))], listed=True)
    assert (found.error, found.bound, found.passed, found.summands) == (0.0, 0.0, False, 1)
    empty = compare("stream", stream_of(0.0), [], listed=True, scale=np.zeros(()))
    assert (empty.error, empty.bound, empty.passed, empty.summands) == (0.0, 0.0, False, 0)


def test_the_entry_that_is_nearest_to_its_bound_is_told() -> None:
    """``16 u (sum of |parts| + |x_i|)`` of each entry, also where others have no error, or nothing is added up."""
    model = sc.random_model(sc.attention_only((2,), biases=["b_O"], unembed=False), d_model=3, d_head=2, seed=1)
    embedding = np.array(model.weights["W_E"])
    embedding[:, 1] = 0.0  # of the first token, which reads itself alone
    silent = replace(model, weights={**model.weights, "W_E": embedding, "b_O_L0": 0 * model.weights["b_O_L0"]})
    run = silent.run([1, 2, 3])
    parts = [run.streams[0], run.results["L0H0"], run.results["L0H1"]]
    size, whole = sum(map(np.abs, parts)), sum(parts)
    for at in ((1, 0), (2, 2)):
        after = np.array(whole)
        after[at] += 2.0**-48 * size[at]
        after[1, 1] += 2.0**-50 * size[1, 1]  # less, of its bound
        bound = 16 * 2.0**-53 * (size + np.linalg.norm(after, axis=-1, keepdims=True))
        [found] = layer_closures(replace(run, streams=(run.streams[0], after)))
        assert found.error == pytest.approx(2.0**-48 * size[at], rel=0.1, abs=0)
        assert found.bound == pytest.approx(bound[at], rel=1e-12, abs=0)
        assert found.passed == (found.error <= found.bound)
        assert found.summands == 4


def test_where_sums_do_not_close_the_terms_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to so many terms; beyond, and of sums that close, nothing is listed."""
    run = sc.random_model(sc.attention_only((2,), unembed=False), seed=1).run([1, 2, 3])
    terms, right = sc.stream(run.model), run.streams[-1]
    close = closure(terms, run, listed=0, summed=[right])
    assert (close.passed, close.listed, close.summands) == (True, False, 1)
    found = closure(terms, run, listed=0, summed=[1.001 * right])
    assert (found.passed, found.listed, found.summands) == (True, True, 3)
    monkeypatch.setattr("symcircuits.values.evaluate.LISTED", 2)
    far = closure(terms, run, listed=0, summed=[1.001 * right])
    assert (far.passed, far.listed, far.summands) == (False, False, 1)


@pytest.mark.parametrize("target", ["scores:L1H1", "logits"])
@pytest.mark.parametrize("most", [1, 40, 2**17])
def test_rows_are_compared_some_at_a_time(target: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst entry is the same, in whatever rows it is, and a part that is wrong in one entry is seen."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([3, 1, 4, 1, 5, 9])
    expansion = sc.expand(run.model.architecture, target)
    parts = [np.array(value) for value in sc.evaluate(expansion, run).by_composition().values()]
    right = compare(target, run, iter(parts), False)  # of what comes one by one the whole is made first
    monkeypatch.setattr("symcircuits.values.evaluate._COMPARED", most)
    assert compare(target, run, parts, False) == right
    assert right.passed
    assert right.summands == len(parts)
    for entry in ((0, 0), (2, 1), (5, 5)):
        wrong = [parts[0].copy(), *parts[1:]]
        wrong[0][entry] += 1e-9
        found = compare(target, run, wrong, False)
        assert not found.passed
        assert found.error == pytest.approx(1e-9, rel=1e-3)
        wrong[0][entry] = np.nan
        assert not compare(target, run, wrong, False).passed
    assert not compare(target, run, [], False).passed


def test_what_the_mask_hides_is_not_compared() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([3, 1, 4])
    parts = [np.array(v) for v in sc.evaluate(sc.scores(run.model, "L1H0"), run).by_composition().values()]
    parts[0][0, 2] = np.inf
    assert compare("scores:L1H0", run, parts, False).passed
