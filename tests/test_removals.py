"""Removals of many heads and parts of scores at once, held to those made one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import heads_of_models
from strategies import examples

import symcircuits as sc
from symcircuits.core.expansion import expand
from symcircuits.explanation.removals import Removals
from symcircuits.explanation.subject import logit_of
from symcircuits.model import Model, Run, end_of, rerun, rerun_each, reruns
from symcircuits.values.read_back import ReadBack

ROWS = [[3, 1, 4, 1], [5, 9, 2, 6]]


def removals(run: Run, target: str, by: Any) -> Removals:
    expansion = expand(run.model, target)
    return Removals(run, expansion, logit_of(by, expansion, run))


def at(by: Any, end: Any) -> list[float]:
    """The chosen entries of an end, or its norm."""
    if not by.chosen:
        return [float(np.linalg.norm(end))]
    return [v for v in by.at(end) if v is not None]


def close(found: Any, right: Any, size: Any) -> bool:
    return bool(np.allclose(found, right, rtol=1e-9, atol=1e-11 * float(np.abs(size).max(initial=1.0))))


def check(run: Run, target: str, by: Any, head: str) -> None:
    many = removals(run, target, by)
    size = end_of(run, target)  # logits before their soft cap
    heads = [str(h) for h in run.model.architecture.all_heads]
    for label, change in many.heads(heads).items():
        one = sc.remove_heads(run, label, target)
        assert close(change.value, at(many.by, one.value_part), size)
        assert close(change.pattern, at(many.by, one.pattern_part), size)
        assert close(change.whole, at(many.by, one.change), size)
    for label, change in many.frozen(heads).items():  # and where nothing is computed after a head, that is all
        one = sc.remove_heads(run, label, target)
        assert close(change.value, at(many.by, one.value_part), size)
        assert change.whole is None or close(change.whole, at(many.by, one.change), size)
        assert change.whole is None or change.pattern == [0.0] * len(change.whole)
    parts = {c: sc.remove_scores(run, head, c, target) for c in ("none", "Q", "K", "QK")}
    found = many.scores({"L0H0": {}, head: {c: p.scores for c, p in parts.items()}})[head]
    assert [*found] == [*parts]
    for c, one_part in parts.items():
        assert np.array_equal(found[c].pattern, one_part.pattern)
        assert close(found[c].frozen, at(many.by, one_part.frozen), size)
        assert close(found[c].recomputed, at(many.by, one_part.recomputed), size)


@examples(40)
@given(heads_of_models(), st.booleans())
def test_many_are_what_each_is(case: tuple[Model, str], batch: bool) -> None:
    model, head = case
    run = model.run(ROWS if batch else ROWS[0])
    target = model.architecture.end
    by = sc.logit(1, against=2, position=2, row=1 if batch else None) if target == "logits" else sc.logit()
    check(run, target, by, head)


def test_a_readout_and_a_stream_that_is_split() -> None:
    model = sc.random_model(sc.transformer((2, 2, 1), norm="LN", mlps=True, biases=True), seed=2, d_model=5)
    model = model.with_(
        sc.readout([[1.0, 0, 0, 2, 0], [0, 1, 0, 0, 1]], "probe", layer=2, normed=True),
        sc.source("cut", [1.0, 0, 0, 0, 1], 1),
    )
    run = model.run(ROWS)
    check(run, "readout:probe", sc.logit(1, against=0, position=3, row=1), "L1H1")
    found = removals(run, "logits", sc.logit(0, row=0)).heads(["L0H0", "L1H0"])
    assert found["L0H0"].value == [0.0]  # what it wrote is in the rest of the stream, which is held fixed
    assert found["L1H0"].value != [0.0]


@pytest.mark.parametrize("most", [1, 50])
def test_few_at_a_time_are_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sc.random_model(sc.attention_only((3, 2)), seed=1).run(ROWS[0])
    heads = ["L0H2", "L0H0", "L1H1"]
    right = removals(run, "logits", sc.logit()).heads(heads)
    assert [*right] == heads
    monkeypatch.setattr(reruns, "_AT_ONCE", most)
    monkeypatch.setattr(reruns, "_ROWS", most)
    for label, change in removals(run, "logits", sc.logit()).heads(heads).items():
        assert np.allclose(change.whole, right[label].whole, rtol=1e-12)


def test_what_nothing_answers_is_known_with_all_held_fixed() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run(ROWS[0])
    known = removals(run, "logits", sc.logit()).frozen(["L0H0", "L1H0"])
    assert known["L0H0"].whole is None  # the patterns of later heads change
    assert known["L1H0"].whole == known["L1H0"].value
    for arch in (sc.attention_only((2, 2), norm="RMS"), sc.transformer((2, 2), mlps=True)):
        run = sc.random_model(arch, seed=1).run(ROWS[0])
        assert removals(run, "logits", sc.logit()).frozen(["L1H0"])["L1H0"].whole is None
    split = sc.random_model(sc.attention_only((2, 2)), seed=1, d_model=5).with_(sc.source("cut", [1.0, 0, 0, 0, 1], 2))
    check(split.run(ROWS[0]), "logits", sc.logit(), "L1H0")


def test_of_the_stream_it_is_the_norm_of_the_change() -> None:
    model = sc.random_model(sc.attention_only((2, 2), unembed=False), seed=1)
    check(model.run(ROWS[0]), "stream", sc.logit(), "L1H0")


# ------------------------------------------------------------------------------------- reruns of several at once
@examples(40)
@given(heads_of_models(), st.integers(0, 3), st.booleans())
def test_reruns_at_once_are_reruns(case: tuple[Model, str], position: int, batch: bool) -> None:
    """Of edits in any order, of one head several times, at any position."""
    model, head = case
    run, target = model.run(ROWS if batch else ROWS[0]), model.architecture.end
    turned = [(head, run.patterns[head][..., ::-1]), (head, run.patterns[head] / 2)]
    edits = [*turned[:1], *((str(h), None) for h in reversed(model.architecture.all_heads)), *turned[1:]]
    found = rerun_each(run, edits, target, position)
    size = float(np.abs(end_of(run, target)).max(initial=1.0))
    for (label, pattern), row in zip(edits, found, strict=True):
        one = rerun(run, removed=[label]) if pattern is None else rerun(run, patterns={label: pattern})
        assert np.allclose(row, end_of(one, target)[..., position, :], rtol=1e-9, atol=1e-11 * size)


@pytest.mark.parametrize("at", ["stream", "mlp"])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("parallel", [False, True])
def test_reruns_are_read_where_a_readout_reads(at: str, layer: int, parallel: bool) -> None:
    """Edits of layers after that change nothing, and they change what is read in their own as it is."""
    arch = sc.transformer((2, 2, 2), norm="LN", mlps=True, biases=True, parallel=parallel)
    model = sc.random_model(arch, seed=2, d_model=5).with_(
        sc.readout(np.eye(5)[:2], "probe", layer=layer, normed=True, at=at)
    )
    run = model.run(ROWS)
    edits = [(f"L{i}H1", None) for i in (2, 0, 1)] + [("L1H0", run.patterns["L1H1"])]
    found = rerun_each(run, edits, "readout:probe", -1)
    for (label, pattern), row in zip(edits, found, strict=True):
        one = rerun(run, removed=[label]) if pattern is None else rerun(run, patterns={label: pattern})
        assert np.allclose(row, one.readouts["probe"][:, -1], rtol=1e-9, atol=1e-12)
        if int(label[1]) > layer or (int(label[1]) == layer and (at == "stream" or parallel)):
            assert np.array_equal(row, run.readouts["probe"][:, -1])


def test_what_is_given_to_reruns_is_checked() -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run(ROWS[0])
    with pytest.raises(ValueError, match=r"pattern of L0H1 must have shape \[4, 4\], not \[3, 3\]"):
        rerun_each(run, [("L0H0", None), ("L0H1", np.zeros((3, 3)))], "logits", 0)
    with pytest.raises(ValueError, match="no head L0H2"):
        rerun_each(run, [("L0H2", None)], "logits", 0)
    assert rerun_each(run, [], "logits", 0).shape == (0, 11)


def test_reruns_that_leave_the_range_are_refused() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run(ROWS[0])
    with pytest.raises(ValueError, match=r"scores of L1H0 leave the range of float64"):
        rerun_each(run, [("L0H1", None), ("L0H0", np.full((4, 4), 1e200))], "logits", 0)


def test_a_rerun_leaves_the_run_as_it_was() -> None:
    run = sc.random_model(sc.transformer((2, 2), norm="LN", mlps=True), seed=1).run(ROWS[0])
    before = {name: {k: v.copy() for k, v in getattr(run, name).items()} for name in ("patterns", "results", "norms")}
    rerun_each(run, [("L0H0", None), ("L0H1", None), ("L1H0", run.patterns["L1H1"])], "logits", 3)
    for name, kept in before.items():
        assert all(np.array_equal(v, getattr(run, name)[k]) for k, v in kept.items())


# ----------------------------------------------------------------------------------------------- reading back
@examples(30)
@given(heads_of_models())
def test_a_reading_is_taken_back_through_all_paths(case: tuple[Model, str]) -> None:
    """Of any reader, not of one entry alone: ``<R, terms through a head>``."""
    model, _ = case
    run = model.run(ROWS)
    expansion = expand(model, model.architecture.end)
    values = sc.evaluate(expansion, run)
    readers = np.random.default_rng(1).normal(size=(3, *values.shape))
    back = ReadBack(values, readers)
    for head in map(str, model.architecture.all_heads):
        total = sc.evaluate(expansion.through(head), run).total()
        right = (readers * total).sum(axis=(1, 2, 3))
        assert np.allclose(back.of(head, run.results[head]), right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("tokens", [ROWS, ROWS[0]])
@pytest.mark.parametrize("more", [(), (5,), (2, 3)])
def test_of_a_head_that_no_path_leads_on_from_nothing_is_read(tokens: Any, more: tuple[int, ...]) -> None:
    """Before a stream that is split; axes in front are kept, as of any head."""
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    run = model.with_(sc.source("probe", np.ones(model.d_model), 1)).run(tokens)
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    back = ReadBack(values, np.ones((4, *values.shape)))
    for head in ("L0H0", "L1H0"):
        written, pattern = (np.broadcast_to(of[head], (*more, *of[head].shape)) for of in (run.results, run.patterns))
        for found in (back.of(head, written), back.of_pattern(head, pattern)):
            assert found.shape == (*more, 4)
            assert found.any() == (head == "L1H0")


def test_a_reading_that_leaves_the_range_is_refused() -> None:
    run = sc.random_model(sc.attention_only((1, 1)), seed=1).run(ROWS[0])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    back = ReadBack(values, np.full((1, *values.shape), 1e308))
    with pytest.raises(ValueError, match="not finite"):
        back.of("L0H0", 1e10 * run.results["L0H0"])


def test_another_pattern_of_a_head_is_read_with_its_bias() -> None:
    run = sc.random_model(sc.attention_only((2, 2), biases=True), seed=3).run(ROWS[0])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    back = ReadBack(values, np.ones((1, *values.shape)))
    same = back.of_pattern("L0H1", run.patterns["L0H1"])
    assert np.allclose(same, back.of("L0H1", run.results["L0H1"]), rtol=1e-10)
    halved = replace(run, results={**run.results, "L0H1": run.results["L0H1"] / 2})
    assert np.allclose(back.of_pattern("L0H1", run.patterns["L0H1"] / 2), back.of("L0H1", halved.results["L0H1"]))
