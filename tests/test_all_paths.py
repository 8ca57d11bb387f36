"""All paths of a small program at once: the same numbers as path by path, in the same order, for any range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures, cases

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.values import all_paths as module
from symcircuits.values.all_paths import all_paths, order_of
from symcircuits.values.evaluate import Values


def near(found: Any, wanted: Any) -> None:
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * (1 + np.abs(wanted).max(initial=0)))


@given(cases(max_terms=300), st.booleans(), st.integers(0, 100))
def test_all_paths_as_one_by_one(case: tuple[Architecture, str], batch: bool, start: int) -> None:
    """Of every feature: norms, sources inside heads, groups, multipliers, rotary positions; and their norms."""
    arch, target = case
    run = sc.random_model(arch, seed=3).run([[3, 1, 4], [1, 5, 2]] if batch else [3, 1, 4])
    expansion = sc.expand(arch, target)
    values = sc.evaluate(expansion, run)
    for side in range(len(expansion.sides)):
        fans, order = values.fans(side), order_of(expansion, side)
        assert order is not None
        found = all_paths(fans, order)
        assert found is not None
        assert len(found) == len(order.marks) == sum(expansion.sides[side].counts.values())
    wanted = [values.value(term) for term in expansion]
    near(np.concatenate([np.copy(block.values) for block in values.blocks()]), wanted)
    lengths = [np.sqrt((one**2).sum((-1, -2))) for one in wanted]
    near(np.concatenate([block.values for block in values.measure()]), lengths)
    start = min(start, len(wanted) - 1)
    part = np.concatenate([np.copy(block.values) for block in values.blocks(start=start, size=2)])
    near(part, wanted[start:])


@given(architectures(max_layers=3, max_heads=3, unembed=True))
def test_contributions_of_all_paths(arch: Architecture) -> None:
    run = sc.random_model(arch, seed=3).run([3, 1, 4])
    values = sc.evaluate(sc.logits(arch), run)
    [found] = values.measure(sc.logit(1, against=0, position=1), size=2**20)
    near(found.values, [v[1, 1] - v[1, 0] for v in map(values.value, values.expansion)])
    some = sc.evaluate(values.expansion.order(0, 2), run)  # chosen terms are read path by path
    for block in some.measure(sc.logit(1, position=1), size=2**20):
        near(block.values, [v[1, 1] for v in map(some.value, some.expansion)])


@given(cases(max_terms=200), st.booleans())
def test_measures_of_all_terms_at_once_as_in_pieces(case: tuple[Architecture, str], batch: bool) -> None:
    """And as of each term by itself."""
    arch, target = case
    run = sc.random_model(arch, seed=3).run([[3, 1, 4], [1, 5, 2]] if batch else [3, 1, 4])
    values = sc.evaluate(sc.expand(arch, target), run)
    each = np.array([values.value(term) for term in values.expansion])
    wanted: dict[sc.Measure, Any] = {sc.norm(): np.sqrt((each**2).sum((-1, -2)))}
    if target.startswith("scores"):
        head = values.expansion.readout.head
        assert head is not None
        seen = each * run.masks[f"L{head.layer}"]
        wanted[sc.norm(masked=True)] = np.sqrt((seen**2).sum((-1, -2)))
        wanted[sc.score_entry(2, 1)] = each[..., 2, 1]
    elif target == "logits":
        wanted[sc.logit(1, against=0, position=1)] = each[..., 1, 1] - each[..., 1, 0]
        wanted[sc.logit(1)] = each[..., 2, 1]
    for most in (0, 2**20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("symcircuits.values.evaluate._AT_ONCE", most)
            assert (values.all_terms() is None) == (most == 0)
            near(np.concatenate([np.copy(block.values) for block in values.blocks()]), each)
            for measure, numbers in wanted.items():
                near(np.concatenate([block.values for block in values.measure(measure, size=7)]), numbers)
                assert sum(len(block.values) for block in values.measure(measure, start=1)) == len(each) - 1


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
@pytest.mark.parametrize("most", [0, 2**20])
def test_a_term_that_is_no_number_is_refused_at_once_and_in_pieces(
    target: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sc.random_model(sc.attention_only((1, 1)), seed=1)
    weights = {k: np.array(v) for k, v in model.weights.items()}
    run = sc.Model(model.architecture, weights, model.score_scale).run([1, 2, 3], "float32")
    monkeypatch.setattr("symcircuits.values.evaluate._AT_ONCE", most)
    expansion = sc.expand(model.architecture, target)
    values = Values(expansion, run, {"W_V_L0H0": np.full(weights["W_V_L0H0"].shape, np.inf, np.float32)})
    for blocks in (values.blocks, values.measure):
        with pytest.raises(ValueError, match=r"of term 1 \(.*L0H0.*\) is not finite"):
            list(blocks())


def test_a_plan_is_that_of_its_matrices() -> None:
    """It is kept with a run; matrices that stand in for some of it, another run and another type have their own."""
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    run = model.run([3, 1, 4])
    for target in ("logits", "scores:L1H0"):
        expansion = sc.expand(model.architecture, target)
        doubled = {"A_L0H0": 2 * run.patterns["L0H0"]}
        for values in (
            sc.evaluate(expansion, run), Values(expansion, run, doubled), sc.evaluate(expansion, run),
            sc.evaluate(expansion, model.run([1, 5, 9])),
        ):  # fmt: skip
            [block] = values.blocks()
            near(block.values, [values.value(term) for term in expansion])
        [single] = sc.evaluate(expansion, model.run([3, 1, 4], "float32")).measure()
        [double] = sc.evaluate(expansion, run).measure()
        np.testing.assert_allclose(single.values, double.values, rtol=1e-4)
        assert single.values.dtype == np.float64


def test_ranges_are_the_same_bits() -> None:
    run = sc.random_model(sc.transformer((3, 3), norm="LN", mlps=True, biases=True), seed=1).run([3, 1, 4])
    for expansion in (sc.logits(run.model), sc.scores(run.model, "L1H2")):
        values = sc.evaluate(expansion, run)
        whole = np.concatenate([np.copy(block.values) for block in values.blocks()])
        part = np.concatenate([np.copy(block.values) for block in values.blocks(start=7)])
        np.testing.assert_array_equal(whole[7:], part)


def test_what_is_much_work_is_left_to_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many paths, and large ones, have no order or are not made; the numbers are the same."""
    run = sc.random_model(sc.attention_only((3, 3)), seed=1).run([3, 1, 4])
    expansion = sc.logits(run.model)
    small = np.concatenate([np.copy(b.values) for b in sc.evaluate(expansion, run).blocks()])
    monkeypatch.setattr(module, "_MOST", 0)
    order = order_of(expansion, 0)
    assert order is not None
    assert all_paths(sc.evaluate(expansion, run).fans(0), order) is None
    near(np.concatenate([np.copy(b.values) for b in sc.evaluate(expansion, run).blocks()]), small)
    monkeypatch.setattr(module, "_MOST_PATHS", 3)
    assert order_of(sc.logits(run.model), 0) is None
    assert order_of(sc.logits(run.model).order(1), 0) is None


def test_arrays_of_a_layer_that_are_kept_are_those_of_their_run() -> None:
    """Another run of the same model has other patterns."""
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    for tokens in ([3, 1, 4], [2, 2, 1], [3, 1, 4]):
        run = model.run(tokens)
        values = sc.evaluate(sc.logits(model), run)
        near(sum(np.copy(b.values).sum(0) for b in values.blocks()), run.logits)


@pytest.mark.parametrize("target", ["logits", "stream"])
def test_work_is_counted_to_the_multiplication(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Of logits the readout is the most, of the stream the second layer; one multiplication less is not enough."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([[3, 1, 4], [1, 5, 2]])
    batch, n, paths, d, d_head, d_vocab = 2, 3, 9, run.model.d_model, run.arrays["W_Q_L0H0"].shape[0], 11
    before, heads = 3, 2  # paths that the second layer reads: the embedding, and that through either first head
    readout, layer = paths * batch * n * d * d_vocab, before * batch * n * d * heads * d_head * (2 + n // d)
    assert layer < readout
    work = readout if target == "logits" else layer
    expansion = sc.expand(run.model.architecture, target)
    order = order_of(expansion, 0)
    assert order is not None
    monkeypatch.setattr(module, "_MOST", work)
    assert all_paths(sc.evaluate(expansion, run).fans(0), order) is not None
    monkeypatch.setattr(module, "_MOST", work - 1)
    assert all_paths(sc.evaluate(expansion, run).fans(0), order) is None


@pytest.mark.parametrize(("target", "width"), [("logits", 11), ("scores:L1H0", 3)])
def test_all_terms_are_made_at_once_up_to_so_many_numbers(
    target: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nine terms on two rows of three tokens; none of a selection, nor where a side is left to the tree."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([[3, 1, 4], [1, 5, 2]])
    values = sc.evaluate(sc.expand(run.model.architecture, target), run)
    monkeypatch.setattr("symcircuits.values.evaluate._AT_ONCE", 9 * 2 * 3 * width)
    found = values.all_terms()
    assert found is not None
    near(found.ordered(found.values).reshape(9, 2, 3, width), [values.value(term) for term in values.expansion])
    assert sc.evaluate(values.expansion.order(0, 1), run).all_terms() is None
    monkeypatch.setattr("symcircuits.values.evaluate._AT_ONCE", 9 * 2 * 3 * width - 1)
    assert values.all_terms() is None
    monkeypatch.setattr("symcircuits.values.evaluate._AT_ONCE", 2**20)
    monkeypatch.setattr(module, "_MOST", 0)
    assert sc.evaluate(values.expansion, run).all_terms() is None


def test_blocks_of_all_terms_are_parts_of_them() -> None:
    """From anywhere to anywhere, as one block, where no size is said."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([3, 1, 4])
    values = sc.evaluate(sc.logits(run.model), run)
    each = [values.value(term) for term in values.expansion]
    for start, stop in ((0, 9), (0, 4), (3, 9), (2, 7), (8, 9)):
        [block] = values.blocks(start=start, stop=stop)
        assert block.start == start
        near(block.values, each[start:stop])
    assert list(values.blocks(start=4, stop=4)) == []
