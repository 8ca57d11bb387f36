"""Removing heads and parts of scores: every change held to plain forward passes with the same edits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import Edits, forward, heads_of_models, pattern_of, score_rows, seen

import symcircuits as sc
from symcircuits.explanation.ablation import remove_heads, remove_scores
from symcircuits.model import Model, of_outputs, pattern_without, rerun, with_outputs
from symcircuits.zoo import path as sc_path

TOKENS = [3, 1, 4, 1, 5]


def close(a: Any, b: Any, size: Any = 1.0) -> bool:
    return bool(np.all(np.abs(np.asarray(a) - b) <= 1e-10 * (np.max(np.abs(b), initial=0) + np.max(np.abs(size)))))


# ------------------------------------------------------------------------------------------------ a run again
@given(heads_of_models())
def test_a_run_again_without_edits_is_the_run(case: tuple[Model, str]) -> None:
    model, _ = case
    run = model.run(TOKENS)
    again = rerun(run)
    assert np.array_equal(again.end, run.streams[-1] if run.logits is None else run.logits)
    assert all(np.array_equal(again.patterns[h], run.patterns[h]) for h in run.patterns)


def test_what_is_given_to_a_run_again_is_checked() -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run(TOKENS)
    with pytest.raises(ValueError, match=r"pattern of L0H1 must have shape \[5, 5\], not \[4, 4\]"):
        rerun(run, patterns={"L0H1": np.eye(4)})
    with pytest.raises(ValueError, match="no head L0H2"):
        rerun(run, removed=["L0H2"])
    with pytest.raises(ValueError, match="no head L1H0"):
        rerun(run, patterns={"L1H0": np.eye(5)})


# ------------------------------------------------------------------------------------------- a head's output
@given(heads_of_models(), st.data())
def test_removing_heads_is_two_forward_passes(case: tuple[Model, str], data: st.DataObject) -> None:
    model, head = case
    others = data.draw(st.lists(st.sampled_from([str(h) for h in model.architecture.all_heads]), max_size=2))
    heads = tuple(sorted({head, *others}, key=model.architecture.head))
    run, plain = model.run(TOKENS), forward(model, TOKENS)
    frozen = forward(model, TOKENS, plain.frozen(heads)).sums
    recomputed = forward(model, TOKENS, Edits(removed=heads)).sums
    gone = remove_heads(run, heads[0] if len(heads) == 1 else heads)
    assert (gone.heads, gone.of) == (heads, end_name(model))
    assert close(gone.value_part, frozen - plain.sums, plain.sums)
    assert close(gone.pattern_part, recomputed - frozen, plain.sums)
    assert close(gone.change, recomputed - plain.sums, plain.sums)


def end_name(model: Model) -> str:
    if not model.architecture.unembed:
        return "stream"
    return "logits" if model.settings.logit_cap is None else "logits before the soft cap"


def test_the_two_parts_add_up_to_the_change() -> None:
    """To the last bit but one: the pattern part is what the value part leaves."""
    run = sc.random_model(sc.attention_only((3, 3), "standard", True), seed=2).run([[1, 2, 3], [4, 5, 6]])
    gone = remove_heads(run, "L0H1")
    change = rerun(run, removed=["L0H1"]).end - run.logits
    size = np.abs(gone.value_part) + np.abs(gone.pattern_part)
    assert gone.change.shape == (2, 3, 11)
    assert np.all(np.abs(gone.change - change) <= 2.0**-52 * size)
    assert np.abs(gone.pattern_part).max() > 1e-3  # and freezing alone would have missed that


@pytest.mark.parametrize("heads", [[], "L0H9", ["L0H0", "L3H0"], (0, 7)])
def test_heads_that_are_not_there_are_refused(heads: Any) -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run(TOKENS)
    with pytest.raises(ValueError, match="head"):
        remove_heads(run, heads)


# --------------------------------------------------------------------------------------- a part of the scores
@given(heads_of_models(), st.sampled_from(["none", "Q", "K", "QK"]))
def test_removing_a_composition_type(case: tuple[Model, str], composition: str) -> None:
    model, head = case
    plain = forward(model, TOKENS)
    values = [v for row, v in score_rows(model, plain, head) if row.composition == composition]
    check_removal(model, head, composition, sum(values, np.zeros((5, 5))), f"composition {composition}")


@given(heads_of_models(), st.data())
def test_removing_one_term(case: tuple[Model, str], data: st.DataObject) -> None:
    model, head = case
    scores = sc.scores(model.architecture, head)
    i = data.draw(st.integers(0, scores.count - 1))
    row, value = score_rows(model, forward(model, TOKENS), head)[i]
    check_removal(model, head, scores[i], value, row.label)


def check_removal(model: Model, head: str, what: Any, part: Any, name: str) -> None:
    run, plain = model.run(TOKENS), forward(model, TOKENS)
    layer, i = model.architecture.head(head)
    pattern = pattern_of(model, seen(model, layer, i, plain.score_sums[head] - part))
    gone = remove_scores(run, head, what)
    frozen = forward(model, TOKENS, plain.frozen(**{head: pattern})).sums
    recomputed = forward(model, TOKENS, Edits({head: pattern})).sums
    name += "" if model.settings.score_cap is None else ", before the soft cap"
    assert (gone.head, gone.removed, gone.of) == (head, name, end_name(model))
    assert close(gone.scores, part, plain.score_sums[head])
    assert close(gone.pattern, pattern)
    assert close(gone.pattern_change, pattern - plain.patterns[head])
    assert close(gone.frozen, frozen - plain.sums, plain.sums)
    assert close(gone.recomputed, recomputed - plain.sums, plain.sums)
    far = [
        sum(abs(a - b) for a, b in zip(x, y, strict=True)) / 2
        for x, y in zip(pattern, plain.patterns[head], strict=True)
    ]
    assert close(gone.distance, far)


@given(heads_of_models())
def test_what_softmax_does_not_see_changes_nothing(case: tuple[Model, str]) -> None:
    model, head = case
    model = replace(model, settings=replace(model.settings, score_cap=None))  # before a soft cap it is seen
    run = model.run(TOKENS)
    gone = remove_scores(run, head, sc.scores(model.architecture, head).softmax_invisible())
    assert gone.distance.max() < 1e-12
    assert close(gone.frozen, 0, rerun(run).end)
    assert close(gone.recomputed, 0, rerun(run).end)


def test_frozen_and_recomputed_differ_where_heads_come_after() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run(TOKENS)
    first, last = remove_scores(run, "L0H0", "none"), remove_scores(run, "L1H0", "K")
    assert np.abs(first.frozen - first.recomputed).max() > 1e-3
    assert np.abs(last.frozen - last.recomputed).max() < 1e-12


def test_a_batch_is_its_rows() -> None:
    model = sc.random_model(sc.attention_only((2, 2), "shortformer", True), seed=3)
    rows = [[1, 2, 3], [4, 5, 6]]
    both = remove_scores(model.run(rows), "L1H1", "QK")
    for i, row in enumerate(rows):
        one = remove_scores(model.run(row), "L1H1", "QK")
        assert close(both.pattern[i], one.pattern)
        assert close(both.recomputed[i], one.recomputed)
        assert close(both.frozen[i], one.frozen)


def test_without_everything_a_query_looks_everywhere_alike() -> None:
    run = sc.random_model(sc.attention_only((1,)), seed=1).run(TOKENS)
    assert pattern_without(run, "L0H0", run.scores["L0H0"])[3].tolist() == [0.25] * 4 + [0.0]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("V", "unknown composition 'V' of scores:L1H0"),
        (sc.scores(sc.attention_only((2, 2)), "L1H1")[0], "is not a term of scores:L1H0"),
        (sc.scores(sc.attention_only((2, 2)), "L1H1"), "nor a selection of scores:L1H0"),
        (7, "7 is neither a composition type, a term nor a selection"),
        (
            sc.scores(sc.attention_only((2, 2), biases=True), "L1H0"),
            "this selection is of .*biases.*, but the model of the run is",
        ),
    ],
)
def test_what_is_no_part_of_the_scores_is_refused(what: Any, message: str) -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run(TOKENS)
    with pytest.raises(ValueError, match=message):
        remove_scores(run, "L1H0", what)


def test_selections_are_named() -> None:
    scores = sc.scores(sc.attention_only((2, 2)), "L1H0")
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run(TOKENS)
    assert remove_scores(run, "L1H0", scores).removed == "all terms"
    assert remove_scores(run, "L1H0", scores.through("L0H1", "key")).removed == "through L0H1 on the key side"


# --------------------------------------------------------------------------------------------------- paths
def head_output(run: sc.Run, head: str, stream: Any) -> Any:
    """What a head of an attention-only model writes where it reads a stream, by plain products."""
    w = run.model.weights
    q, k, v = (stream @ w[f"W_{x}_{head}"].T + w.get(f"b_{x}_{head}", 0) for x in "QKV")
    s = np.where(np.tri(len(stream), dtype=bool), q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True) @ v @ w[f"W_O_{head}"].T


@pytest.mark.parametrize("path", [("L0H1", "L1H0"), ("L0H0", "L2H1"), ("L0H1", "L1H1", "L2H0")])
def test_a_path_is_removed_alone(path: tuple[str, ...]) -> None:
    """Against a forward pass written out: each head of the path reads the one before as it would be without it."""
    arch = sc.attention_only((2, 2, 2), biases=["b_Q", "b_K", "b_V"])
    run = sc.random_model(arch, seed=5).run(TOKENS)
    change, w = -run.results[path[0]], run.model.weights
    for head in path[1:]:
        change = head_output(run, head, run.streams[int(head[1])] + change) - run.results[head]
    stream = run.streams[int(path[-1][1]) + 1] + change
    for layer in range(int(path[-1][1]) + 1, 3):
        stream = stream + sum(head_output(run, f"L{layer}H{i}", stream) for i in range(2))
    found = remove_heads(run, " -> ".join(path))
    assert found.heads == (" -> ".join(path),)
    assert close(found.change, stream @ w["W_U"].T - run.logits, run.logits)
    terms = [t for t in sc.logits(arch) if " -> ".join(path) in t.label]
    assert terms
    values = sc.evaluate(sc.logits(arch), run)
    assert close(found.value_part, -sum(values.value(t) for t in terms), run.logits)
    assert abs(found.pattern_part).max() > 1e-6


@given(heads_of_models())
def test_paths_of_all_kinds_of_models(case: tuple[Model, str]) -> None:
    """The value part is what frozen patterns lose; the last head alone, without what it would read, is the rest."""
    model, label = case
    arch, run = model.architecture, model.run(TOKENS)
    head = arch.head(label)
    later = [h for h in arch.all_heads if h.layer > head.layer]
    if not later:
        return
    path = f"{label} -> {later[0]}"
    found = remove_heads(run, path)
    frozen_part = sc.evaluate(sc.expand(arch, arch.end).through_sequence(label, str(later[0])), run).total()
    assert close(found.value_part, -frozen_part, frozen_part)
    assert np.isfinite(found.change).all()


def test_the_pair_that_makes_an_induction_head() -> None:
    """Removing the previous-token head from what one induction head reads costs that head its pattern."""
    run = sc.load(sc_path()).run([0, 7, 19, 3, 11, 26, 7, 19, 3, 11])
    one = remove_heads(run, "L0H2 -> L1H0")
    other = remove_heads(run, "L0H1 -> L1H0")
    assert one.change[-1, 26] < -4 < -1 < other.change[-1, 26]
    assert abs(one.value_part[-1, 26]) < 0.5


@pytest.mark.parametrize("path", ["L0H0 -> L0H1", "L1H0 -> L0H0", "L0H0 -> ", "L0H0 -> L9H0", "L0H0->L1H0->L1H1"])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    with pytest.raises(ValueError, match=r"a path needs two or more heads in rising layers|L9H0|''"):
        remove_heads(run, path)


def test_a_model_with_other_outputs_is_no_longer_that_of_its_file() -> None:
    """Workers read a model from its path: a changed copy must have none."""
    model = sc.load(sc_path())
    assert model.path
    few = with_outputs(model, [3, 5])
    assert (few.path, few.stamp, few.d_vocab_out) == ("", "", 2)
    assert of_outputs(model.run([1, 2]), [3, 5]).model.path == ""
    assert few.name == model.name
    assert not few.weights["W_U"].flags.writeable
