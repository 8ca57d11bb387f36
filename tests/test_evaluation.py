"""Values of terms against plain NumPy products read from their text, sums against sums, closure against mistakes."""

import dataclasses
import inspect
import math
import random
import re
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.walk import Matrices
from symcircuits.model import Model, Run, random_model
from symcircuits.model.attending import rotate
from symcircuits.search.largest import largest
from symcircuits.search.sample import sample
from symcircuits.search.squares import squares
from symcircuits.sympy_layer.lambdify import lambdify_words
from symcircuits.values import evaluate as evaluation
from symcircuits.values.evaluate import PairwiseSum, Values, closure, compare, evaluate, reference, rounding_scale
from symcircuits.values.measured import measure
from symcircuits.values.summary import summary
from symcircuits.values.sums import Sums
from symcircuits.values.term_values import term_values
from symcircuits.values.unembedding import _of_gram, _triangle, compact
from tests.strategies import all_targets, architectures, cases, examples, selections

pytestmark = pytest.mark.usefixtures("by_the_tree")

Array = npt.NDArray[Any]


# ----------------------------------------------------------------------------------------------- plain oracle
def value_of_text(text: str, run: Run) -> Array:
    """The product that a term's text spells, factor by factor, from the weights, tokens and patterns alone."""
    weights, arch = run.model.weights, run.model.architecture
    n = run.tokens.shape[-1]
    scale: Any = 1.0
    *scales, product = text.split(" * ")
    for s in scales:
        numbers = {f"scale[{label}]": x for label, x in run.model.score_scale.items()}
        scale = scale * {**numbers, **run.model.multipliers}[s]
    if " @ R[" in product:  # row i of queries and keys is turned as position i asks
        query, _, rest = product.partition(" @ R[")
        sides = (
            query,
            " @ ".join(
                f.removesuffix(".T") if f.endswith(".T") else f + ".T" if f[:2] not in ("D[", "C", "ga") else f
                for f in reversed(rest.partition("] @ ")[2].split(" @ "))
            ),
        )
        turned = [rotate(value_of_text(side, run), run.model.settings.rotary) for side in sides]
        return scale * turned[0] @ np.swapaxes(turned[1], -1, -2)
    value: Any = None
    for word in product.split(" @ "):
        name, transposed = word.removesuffix(".T"), word.endswith(".T")
        glyph, _, label = name.removesuffix("]").partition("[")
        if glyph == "X0":
            matrix = weights["W_E"].T[run.tokens]
        elif glyph == "A":
            matrix = run.patterns[label]
        elif glyph == "ones":
            matrix = np.ones((n, 1))
        elif glyph == "P":
            matrix = weights["W_pos"][:n]
        elif glyph == "W_OV":
            matrix = weights[f"W_O_{label}"] @ weights[f"W_V_{arch.key_value(arch.head(label))}"]
        elif glyph == "W_QK":
            matrix = weights[f"W_Q_{label}"].T @ weights[f"W_K_{arch.key_value(arch.head(label))}"]
        elif glyph == "D":
            matrix = run.norms[label][..., None] * np.eye(n)
        elif glyph == "C":
            matrix = np.eye(run.model.d_model) - 1 / run.model.d_model
        elif glyph == "gain":
            matrix = np.diag(weights[f"gain_{label}"])
        elif glyph == "mlp":
            matrix = run.mlps[label]
        else:
            matrix = weights[f"{glyph}_{label}" if label else glyph]
            matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        matrix = matrix.astype(np.float64)
        matrix = np.swapaxes(matrix, -1, -2) if transposed else matrix
        value = matrix if value is None else value @ matrix
    return np.broadcast_to(scale * value, run.tokens.shape[:-1] + value.shape[-2:])


def assert_close(found: Array, wanted: Array, size: Any = 1.0, dtype: Any = np.float64) -> None:
    """Equal but for the rounding of some hundred operations on numbers of that size."""
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=500 * float(np.finfo(dtype).eps) * (1 + np.max(size)))


def size_of(values: list[Array]) -> float:
    return float(sum(np.abs(v).max(initial=0) for v in values))


def allowed(run: Run, target: str) -> Array:
    """Which entries the mask leaves."""
    shape = reference(target, run).shape
    masked = target.startswith("scores") and run.model.architecture.causal
    return np.tril(np.ones(shape, bool)) if masked else np.ones(shape, bool)


@st.composite
def runs(draw: st.DrawFn, max_terms: int = 300) -> tuple[Expansion, Run]:
    """A whole expansion and a run: every feature, sizes from 1, d_head above d_model too, with batch axes or not."""
    arch, target = draw(cases(max_terms=max_terms))
    sizes = {k: draw(st.integers(1, 5)) for k in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    model = random_model(arch, **sizes, n_context=6, seed=draw(st.integers(0, 99)))
    n, batch = draw(st.integers(1, 5)), draw(st.sampled_from([(), (1,), (3,)]))
    tokens = np.random.default_rng(draw(st.integers(0, 99))).integers(0, sizes["d_vocab"], (*batch, n))
    try:
        run = model.run(tokens, draw(st.sampled_from([np.float64, np.float64, np.float32])))
    except ValueError as fault:  # without softmax numbers grow with every layer
        if not arch.softmax and "leave the range of float" in str(fault):
            reject()
        raise
    assume(max(float(np.abs(stream).max(initial=0)) for stream in run.streams) < 1e100)  # what cancels grows as fast
    return expand(arch, target), run


# ---------------------------------------------------------------------------------------------- single values
@examples(60)
@given(runs())
def test_each_value_is_the_product_that_its_text_spells(drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    values = evaluate(expansion, run)
    listed = list(values)
    assert len(listed) == len(values) == expansion.count
    for term, value in zip(expansion, listed, strict=True):
        wanted = value_of_text(term.text, run)
        assert value.dtype == run.dtype
        assert_close(value, wanted, np.abs(wanted).max(initial=0), run.dtype)
        alone = values.value(term)
        assert alone.dtype == run.dtype
        assert_close(alone, wanted, np.abs(wanted).max(initial=0), run.dtype)


@examples(60)
@given(runs())
def test_values_add_up_to_what_the_model_computed(drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    values = list(evaluate(expansion, run))
    where, model = allowed(run, expansion.target), reference(expansion.target, run)
    total = np.sum(values, axis=0)
    assert_close(total[where], model[where], size_of(values), run.dtype)
    assert_close(evaluate(expansion, run).total()[where], model[where], size_of(values), run.dtype)
    found = closure(expansion, run)
    assert found.passed
    assert found.error <= found.bound
    assert (found.summands, found.listed) == (expansion.count, True)


@examples(60)
@given(runs(), st.data())
def test_sums_by_the_walk_are_sums_of_terms(drawn: tuple[Expansion, Run], data: st.DataObject) -> None:
    """Of whole expansions and of up to three conditions at once, empty selections among them."""
    expansion, run = drawn
    chosen = expansion
    for s in data.draw(st.lists(selections(expansion.architecture, expansion.target), max_size=3)):
        chosen = s.select(chosen)
    values = evaluate(chosen, run)
    listed = list(values)
    everything = dict(zip(((t.label) for t in expansion), evaluate(expansion, run), strict=True))
    size = size_of(list(everything.values()))
    by_order: dict[int, list[Array]] = {}
    by_composition: dict[str, list[Array]] = {}
    by_orders: dict[tuple[int, ...], list[Array]] = {}
    by_source: dict[Any, list[Array]] = {}
    for term, value in zip(chosen, listed, strict=True):
        assert_close(value, everything[term.label], size, run.dtype)
        by_orders.setdefault(term.orders, []).append(value)
        by_source.setdefault(term.sources if len(term.sources) == 2 else term.sources[0], []).append(value)
        by_order.setdefault(term.order, []).append(value)
        by_composition.setdefault(term.composition, []).append(value)
    zero = np.zeros_like(reference(expansion.target, run))
    assert values.total().dtype == run.dtype
    assert_close(values.total(), sum(listed, zero), size, run.dtype)
    sums: list[tuple[dict[Any, Array], dict[Any, list[Array]]]] = [
        (values.by_order(), by_order), (values.by_composition(), by_composition),
        (values.by_orders(), by_orders), (values.by_source(), by_source),
    ]  # fmt: skip
    for found, wanted in sums:
        assert found.keys() == wanted.keys()
        for key, value in found.items():
            assert_close(value, sum(wanted[key], zero), size, run.dtype)


@pytest.mark.parametrize("chosen", ["all", "through", "sequence", "source", "composition"])
def test_a_total_reads_the_unembedding_once(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not wanted is dropped before it; only where orders are looked at does each have a product of its own."""
    run = random_model(sc.attention_only((2, 2, 2), biases=True), seed=1).run([1, 2, 3])
    whole = sc.logits(run.model)
    expansion, products = {
        "all": (whole, 1), "through": (whole.through("L1H0"), 1), "source": (whole.from_source("b_V[L0H0]"), 1),
        "sequence": (whole.through_sequence("L0H1", "L2H0"), 3), "composition": (whole.where("V"), 3),
    }[chosen]  # fmt: skip
    listed, read = sum(evaluate(expansion, run)), list[str]()
    factor = Matrices.factor
    monkeypatch.setattr(Matrices, "factor", lambda self, f: read.append(f.symbol.argument) or factor(self, f))
    total = evaluate(expansion, run).total()
    assert np.abs(total - listed).max() < 1e-13
    assert read.count("W_U") == products


@examples(30)
@given(runs(max_terms=120))
def test_blocks_are_runs_of_neighbouring_terms(drawn: tuple[Expansion, Run]) -> None:
    """However the values are cut into blocks, they are the values of the terms in order, none left out."""
    expansion, run = drawn
    values = list[Array]()
    for start, block in evaluate(expansion, run).blocks():
        assert start == len(values)
        assert len(block) > 0
        values += list(block.copy())
    for term, a, b in zip(expansion, values, evaluate(expansion, run), strict=True):
        np.testing.assert_array_equal(a, b)
        assert_close(a, evaluate(expansion, run).value(term), np.abs(a).max(initial=0), run.dtype)


def test_values_do_not_depend_on_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key vectors made again for each query path, and read-out matrices made as needed, give the same values."""
    arch = sc.attention_only((2, 2, 1), "standard", True)
    run = random_model(arch, seed=3).run([[1, 2, 3], [4, 5, 6]])
    for target in ("scores:L2H0", "logits"):
        before = list(evaluate(expand(arch, target), run))
        for limit in (1, 2000):
            with monkeypatch.context() as patch:
                patch.setattr("symcircuits.values.run_arithmetic._KEY_BYTES", limit)
                patch.setattr("symcircuits.values.sibling_reads._READ_BYTES", limit)
                after = list(evaluate(expand(arch, target), run))
            assert len(before) == len(after)
            for a, b in zip(before, after, strict=True):
                assert_close(a, b, np.abs(a).max())


def test_a_selection_evaluates_its_own_terms_only() -> None:
    arch = sc.attention_only((3, 2), "standard", ["b_V", "b_O"])
    run = random_model(arch).run([1, 2, 3])
    values = evaluate(sc.logits(arch).through("L0H1").from_source("b_V"), run)
    assert len(values) == len(list(values)) == 3  # b_V[L0H1] alone and through either head of the second layer
    nothing = evaluate(sc.logits(arch).order(7), run)
    assert (list(nothing), nothing.by_order(), nothing.by_composition()) == ([], {}, {})
    np.testing.assert_array_equal(nothing.total(), np.zeros_like(run.logits))


def test_ablating_a_head_takes_away_all_terms_through_it() -> None:
    """With patterns held fixed: the model without the head's output has the other terms, and no others."""
    arch = sc.attention_only((2, 2), "standard", True)
    model = random_model(arch, seed=5)
    run = model.run([3, 1, 4])
    silent = {**model.weights, "W_O_L0H1": np.zeros_like(model.weights["W_O_L0H1"])}
    ablated = sc.Model(arch, silent, model.score_scale)
    arrays = {**run.arrays, "W_O_L0H1": silent["W_O_L0H1"]}
    frozen = dataclasses.replace(run, model=ablated, arrays=arrays)
    every, through = sc.logits(arch), sc.logits(arch).through("L0H1")
    assert_close(
        evaluate(every, run).total() - evaluate(through, run).total(),
        evaluate(every, frozen).total(),
        np.abs(run.logits),
    )


# ----------------------------------------------------------------------------------------- memory and depth
@pytest.mark.parametrize("target", ["logits", "scores:L3H0"])
def test_streaming_holds_little_memory(target: str) -> None:
    """4 layers of 8 heads, 16 tokens: 6,561 logit terms, 531,441 score terms (a part of them is looked at)."""
    arch = sc.attention_only((8, 8, 8, 8))
    run = random_model(arch, d_vocab=200, d_model=32, d_head=4).run(list(range(16)))
    expansion = expand(arch, target)
    list(zip(range(5), evaluate(expansion, run), strict=False))  # what is made once, is made
    values = evaluate(expansion, run)
    tracemalloc.start()
    size = 0
    for count, value in enumerate(values):
        size += value.nbytes
        if count == 7000:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 14e6
    assert peak < size / 4
    assert peak < 4e6


@pytest.mark.parametrize("target", ["logits", "stream"])
def test_the_walk_closes_at_twelve_layers_of_twelve_heads(target: str) -> None:
    arch = sc.attention_only((12,) * 12)
    run = random_model(arch, seed=1).run([1, 2, 3, 4, 5])
    expansion = expand(arch, target)
    assert expansion.count == 13**12
    found = closure(expansion, run)
    assert found.passed
    assert not found.listed
    assert found.summands == 3  # no head, one, more: what types depend on
    values = evaluate(expansion, run)
    by_order = values.by_order()
    assert list(by_order) == list(range(13))
    assert_close(sum(by_order.values()), reference(target, run), 20.0)
    assert_close(values.total(), reference(target, run), 20.0)


def test_sums_through_neighbours_at_twelve_layers() -> None:
    """Of 13^12 terms: what goes from one head straight into another, by removing all that leads around it."""
    arch = sc.attention_only((12,) * 12)
    model = random_model(arch, seed=1)
    run = model.run([1, 2, 3, 4, 5])
    e = sc.logits(arch).through_sequence("L2H3", "L5H0")
    assert e.count == 13**2 * 13**6
    stream = run.streams[2]
    arrays = run.arrays
    for head in ("L2H3", "L5H0"):
        stream = arrays[f"A_{head}"] @ stream @ arrays[f"W_OV_{head}"].T
    for layer in range(6, 12):
        heads = [f"L{layer}H{i}" for i in range(12)]
        stream = stream + sum(arrays[f"A_{h}"] @ stream @ arrays[f"W_OV_{h}"].T for h in heads)
    assert_close(evaluate(e, run).total(), stream @ arrays["W_U"].T, 20.0)


def test_the_walk_closes_for_the_last_scores_of_twelve_layers() -> None:
    arch = sc.attention_only((12,) * 12)
    run = random_model(arch, seed=2).run([1, 2, 3])
    expansion = sc.scores(arch, "L11H11")
    assert expansion.count == 13**22
    assert closure(expansion, run).passed
    found = evaluate(expansion.through("L3H4", "query").where("QK"), run).total()
    by_sides = evaluate(expansion.through("L3H4", "query"), run).by_composition()
    assert set(by_sides) == {"Q", "QK"}
    assert_close(found, by_sides["QK"], 20.0)


def test_too_many_values_to_list_are_refused_by_number() -> None:
    arch = sc.attention_only((12,) * 12)
    values = evaluate(sc.logits(arch), random_model(arch).run([1]))
    with pytest.raises(OverflowError, match="23,298,085,122,481"):
        list(values)
    first = next(iter(values))  # but the first is there at once
    assert first.shape == (1, 11)


# --------------------------------------------------------------------------------------------- what is refused
def test_a_run_of_another_architecture_is_refused() -> None:
    run = random_model(sc.attention_only((2, 2))).run([1])
    with pytest.raises(ValueError, match=r"heads 2,3\].*heads 2,2\].*expand model\.architecture"):
        evaluate(sc.logits(sc.attention_only((2, 3))), run)


def test_a_term_of_another_readout_is_refused() -> None:
    arch = sc.attention_only((2, 2))
    values = evaluate(sc.scores(arch, "L1H0"), random_model(arch).run([1, 2]))
    with pytest.raises(ValueError, match="is not a term of scores:L1H0"):
        values.value(sc.scores(arch, "L1H1")[0])


# ------------------------------------------------------------------------------------------------ pairwise sums
def adversarial(n: int) -> Array:
    """One large number, then many so small that a running sum loses each of them."""
    return np.array([1.0] + [2.0**-53] * (n - 1))


def test_pairwise_sum_adds_in_pairs() -> None:
    numbers = adversarial(2**12)
    exact = math.fsum(numbers)
    total, running = PairwiseSum(), 0.0
    for x in numbers:
        total.add(np.array([x]))
        running += x
    assert total.count == 2**12
    assert running == 1.0  # 4,095 small numbers are lost
    assert abs(total.value[0] - exact) <= 12 * 2.0**-53  # log2 of their number, in units of the last place
    assert abs(running - exact) > 4000 * 2.0**-53


@given(st.integers(1, 70))
def test_pairwise_sum_is_a_binary_tree(n: int) -> None:
    """Each of n summands takes part in at most ceil(log2 n) + 1 additions, and the sum is that of all."""

    @dataclasses.dataclass
    class Counted:
        depths: tuple[int, ...] = (0,)

        def __add__(self, other: "Counted") -> "Counted":
            return Counted(tuple(d + 1 for d in self.depths + other.depths))

    total = PairwiseSum()
    for _ in range(n):
        total.add(Counted())  # type: ignore[arg-type]
    depths = total.value.depths  # type: ignore[attr-defined]
    assert len(depths) == n
    assert max(depths) <= math.ceil(math.log2(n)) + 1


def test_the_sum_can_be_read_on_the_way() -> None:
    total = PairwiseSum()
    for i in range(1, 12):
        total.add(np.array(float(i)))
        assert total.value == i * (i + 1) / 2


# ---------------------------------------------------------------------------------------------------- closure
@pytest.fixture(scope="module")
def record() -> Run:
    """Vocabulary 11, d_model 16, d_head 4, 3 + 3 heads, 7 tokens, causal softmax."""
    return random_model(sc.attention_only((3, 3)), seed=4).run([3, 1, 4, 1, 5, 9, 2])


TARGETS = ("logits", "stream", "scores:L1H2")


def summands(target: str, run: Run) -> list[Array]:
    return [v.copy() for v in evaluate(expand(run.model.architecture, target), run)]


@pytest.mark.parametrize("target", TARGETS)
def test_the_records_check_closes_to_1e_12(target: str, record: Run) -> None:
    found = closure(expand(record.model.architecture, target), record)
    assert found.passed
    assert found.error <= found.bound < 1e-12
    where = allowed(record, target)
    assert np.abs(sum(summands(target, record)) - reference(target, record))[where].max() < 1e-12


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("i", range(16))
def test_compare_refuses_every_missing_and_every_doubled_summand(target: str, i: int, record: Run) -> None:
    values = summands(target, record)
    assert compare(target, record, iter(values), True).passed
    assert not compare(target, record, iter(values[:i] + values[i + 1 :]), True).passed
    assert not compare(target, record, iter([*values, values[i]]), True).passed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_compare_refuses_what_is_no_number(target: str, bad: float, record: Run) -> None:
    """An infinite summand makes the bound infinite too: that is not a pass."""
    values = summands(target, record)
    values[3][2, 1] = bad
    found = compare(target, record, iter(values), True)
    if bad == 1e300:  # finite: the error is as large, and within rounding of so large a number, but is not hidden
        assert found.bound > 1e280
        return
    assert not found.passed
    assert not found.error <= found.bound < np.inf


@pytest.mark.parametrize("target", TARGETS)
def test_compare_refuses_shifted_summands(target: str, record: Run) -> None:
    values = summands(target, record)
    for change in (
        lambda v: np.roll(v, 1, axis=0),  # by a token
        lambda v: np.roll(v, 1, axis=1),  # by a column
        lambda v: v + 1e-10,
        lambda v: v * (1 + 1e-9),
        lambda v: -v,
    ):
        changed = [*values[:5], change(values[5]), *values[6:]]
        found = compare(target, record, iter(changed), True)
        assert not found.passed
        assert found.error > found.bound
    assert compare(target, record, iter(values[::-1]), True).passed  # in another order they are as good


def test_masked_entries_are_excluded(record: Run) -> None:
    target = "scores:L1H2"
    values = summands(target, record)
    values[2][0, 3] = np.nan  # query 0 may not look at key 3
    values[1] += np.triu(np.full((7, 7), 1e9), 1)
    assert compare(target, record, iter(values), True).passed
    values[2][3, 3] = np.nan  # but at itself
    assert not compare(target, record, iter(values), True).passed


def test_a_bidirectional_model_has_no_masked_entries() -> None:
    run = random_model(sc.attention_only((2, 2), causal=False)).run([1, 2, 3])
    values = summands("scores:L1H0", run)
    assert compare("scores:L1H0", run, iter(values), True).passed
    values[0][0, 2] += 1e-9
    assert not compare("scores:L1H0", run, iter(values), True).passed


def test_an_allowed_score_that_is_infinite_is_not_taken_for_masked(record: Run) -> None:
    for bad in (-np.inf, np.inf, np.nan):
        scores = {k: v.copy() for k, v in record.scores.items()}
        scores["L1H2"][4, 2] = bad
        broken = dataclasses.replace(record, scores=scores)
        assert not closure(sc.scores(record.model.architecture, "L1H2"), broken).passed


@pytest.mark.parametrize("target", TARGETS)
def test_no_summands_are_no_pass(target: str, record: Run) -> None:
    found = compare(target, record, iter(()), True)
    assert (found.passed, found.summands) == (False, 0)


def test_no_summands_are_no_pass_even_where_the_model_computes_zero() -> None:
    arch = sc.attention_only(())
    weights = {"W_E": np.zeros((2, 3)), "W_U": np.zeros((3, 2))}
    run = Model(arch, weights).run([0, 1])
    assert closure(sc.logits(arch), run).passed
    assert not compare("logits", run, iter(()), True).passed


@pytest.mark.parametrize(("target", "f"), [("logits", 30.0), ("stream", 5.0), ("scores:L0H0", 7.5)])
def test_the_bound_by_hand(target: str, f: float) -> None:
    """One token, X0 = (3, 4): |x| = 5; W_U = (0, 6): 30; q = (3, 0), k = (5, 0), scale 1/2: 7.5."""
    arch = sc.attention_only((1,))
    weights = {
        "W_E": np.array([[3.0], [4.0]]),
        "W_U": np.array([[0.0, 6.0]]),
        "W_Q_L0H0": np.array([[1.0, 0.0], [0.0, 0.0]]),
        "W_K_L0H0": np.array([[3.0, -1.0], [0.0, 0.0]]),
        "W_V_L0H0": np.zeros((2, 2)),
        "W_O_L0H0": np.zeros((2, 2)),
    }
    run = Model(arch, weights, {"L0H0": 0.5}).run([0])
    np.testing.assert_array_equal(rounding_scale(target, run), np.full((1, 1), f))
    parts = iter([np.full(reference(target, run).shape, v) for v in (2.0, -3.0, 100.0)])
    wrong = compare(target, run, parts, True)
    # The model's values are 24, (3, 4) and 7.5. Of the stream's two entries, the further one has the larger ratio.
    assert (wrong.passed, wrong.summands) == (False, 3)
    assert wrong.error == 99.0 - {"logits": 24.0, "stream": 3.0, "scores:L0H0": 7.5}[target]
    assert wrong.bound == pytest.approx(16 * 2.0**-53 * (105.0 + f), rel=1e-15, abs=0)


@pytest.mark.parametrize(("d_model", "d_head", "small"), [(15, 1, 1), (15, 4, 1), (15, 5, 0), (79, 5, 0), (80, 5, 1)])
def test_the_bound_by_hand_where_q_and_k_nearly_cancel(d_model: int, d_head: int, small: int) -> None:
    """x = (3, 4), W_Q = (4, -2), W_K = (3, -2), one row: q = 4, k = 1, |W_Q| = sqrt 20, |W_K| = sqrt 13, scale 1/2."""

    def padded(*row: float) -> Array:
        return np.array([[*row, *[0.0] * (d_model - 2)]])

    def heads(*row: float) -> Array:
        return np.vstack([padded(*row), np.zeros((d_head - 1, d_model))])

    weights = {
        "W_E": padded(3, 4).T, "W_U": padded(1, 0), "W_Q_L0H0": heads(4, -2), "W_K_L0H0": heads(3, -2),
        "W_V_L0H0": padded(0, 0), "W_O_L0H0": padded(0, 0).T,
    }  # fmt: skip
    run = Model(sc.attention_only((1,)), weights, {"L0H0": 0.5}).run([0])
    made = (5 * math.sqrt(20) * 1 + 4 * 5 * math.sqrt(13)) / 16  # 5.9: more than |q||k| = 4
    f = 0.5 * (made if small else 4)
    fused = 0.5 * 5 * math.sqrt(20 * 13) * 5 / 16  # W_QK = W_Q^T W_K, of rank one
    for found, wanted in ((False, f), (True, fused)):
        assert rounding_scale("scores:L0H0", run, found)[0, 0] == pytest.approx(wanted, rel=1e-14)
        closed = compare("scores:L0H0", run, iter([np.full((1, 1), 3.0)]), True, found)
        assert (closed.passed, closed.error) == (False, 1.0)  # the score is 2
        assert closed.bound == pytest.approx(16 * 2.0**-53 * (3 + wanted), rel=1e-14, abs=0)
    for target in ("logits", "stream"):
        np.testing.assert_array_equal(rounding_scale(target, run, True), rounding_scale(target, run))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_small_heads_have_a_step_of_their_own_in_any_layer(layer: int) -> None:
    """Of heads that add nothing, the stream and so |q|, |k| are those of the first layer; the steps are l + 1."""
    arch = sc.attention_only((0,) * layer + (1,))
    head, rng = f"L{layer}H0", np.random.default_rng(0)
    weights = {
        "W_E": np.array([[1.0], [1.0]]), "W_U": np.eye(2), f"W_Q_{head}": np.array([[1.0, -1.0]]),
        f"W_K_{head}": np.array([[1.0, 0.0]]), f"W_V_{head}": rng.random((1, 2)), f"W_O_{head}": rng.random((2, 1)),
    }  # fmt: skip
    run = Model(arch, weights, {head: 1.0}).run([0])
    made = math.sqrt(2) * math.sqrt(2) * 1 + 0  # |x||W_Q||k| + |q||x||W_K|, q is 0
    assert rounding_scale(f"scores:{head}", run)[0, 0] == pytest.approx(made * (layer + 1) / 16, rel=1e-14)


@pytest.mark.parametrize(("d_head", "seeds"), [(1, range(40)), (2, range(40))])
def test_right_scores_of_heads_of_one_or_two_dimensions_are_never_refused(d_head: int, seeds: range) -> None:
    """Queries of so few numbers cancel as a whole, in models with weights of the usual size too."""
    for seed in seeds:
        arch = sc.attention_only((2, 2), norm="LN")
        run = sc.random_model(arch, d_vocab=20, d_model=8, d_head=d_head, seed=seed).run(list(range(20)))
        for head in arch.all_heads:
            for listed in (2000, 0):
                assert closure(sc.scores(arch, head), run, listed=listed).passed


def rows_with_roundings(run: Run) -> list[tuple[Array, Array]]:
    """By the definition, for each point of the stream: the size of rows, and what a norm hides of it."""
    arch, found, total = run.model.architecture, list[tuple[Array, Array]](), np.zeros(1)
    for point, stream in enumerate(run.streams):
        x = stream.astype(float)
        row = np.sqrt((x**2).sum(-1))
        before, total = total, total + row**2
        if point:
            m = run.model.multipliers.get(f"r[M{point - 1}]", 1.0)
            total = total + ((m * run.mlps.get(f"L{point - 1}", np.zeros(1)).astype(float)) ** 2).sum(-1)
            for head in arch.layer_heads(point - 1):
                total = total + written(run, head, *found[-1]) ** 2 + passed_on(run, head, before)
        size = np.maximum(row, 6 / 16 * np.sqrt(total)) if point else row
        seen = x - x.mean(-1, keepdims=True) if arch.norm == "LN" else x
        inverse = inverses(run, f"L{point}") if arch.norm and f"L{point}" in run.norms else 1.0
        found.append((size, np.maximum(size - np.sqrt((seen**2).sum(-1)), 0) * inverse))
    return found


def inverses(run: Run, norm: str) -> Array:
    """``1 / sigma``, and 0 for an LN of one number."""
    return run.norms[norm].astype(float) * (run.model.architecture.norm != "LN" or run.model.d_model > 1)


def passed_on(run: Run, head: Any, before: Array) -> Array:
    """The square of what a head makes of the roundings in the rows that it reads, each as a row of any direction."""
    w, arch, norm = run.model.weights, run.model.architecture, f"L{head.layer}"
    whole = w[f"W_O_{head}"].astype(float) @ (w[f"W_V_{arch.key_value(head)}"] * w.get(f"gain_{norm}", 1.0))
    seen = before * inverses(run, norm) ** 2 if arch.norm else before + np.zeros(run.tokens.shape)
    mixed = np.einsum("...ij,...j->...i", run.patterns[str(head)].astype(float) ** 2, seen)
    r = run.model.multipliers.get(f"r[L{head.layer}]", 1.0)
    return np.asarray(mixed * (whole**2).sum() / run.model.d_model * r**2)


def written(run: Run, head: Any, rows: Array, hidden: Array) -> Array:
    """The size of what a head writes: its result, and what cancelled in its values."""
    w, arch, norm = run.model.weights, run.model.architecture, f"L{head.layer}"
    shared = arch.key_value(head)
    w_v, w_o, b_v = w[f"W_V_{shared}"], w[f"W_O_{head}"], w.get(f"b_V_{shared}", np.zeros(1))
    d_head, d_model = w_v.shape
    lost = hidden * np.sqrt(((w_v * w.get(f"gain_{norm}", np.ones(d_model))) ** 2).sum() / d_model)
    if min(d_head, d_model) <= 4:
        if arch.norm:
            rows = rows * inverses(run, norm) * np.abs(w.get(f"gain_{norm}", np.ones(1))).max()
            rows = rows + np.sqrt((w.get(f"b_N_{norm}", np.zeros(1)) ** 2).sum())
        lost = np.maximum(lost, (rows * np.sqrt((w_v**2).sum()) + np.sqrt((b_v**2).sum())) / 6)
    out = np.sqrt((w_o**2).sum() / d_head) * run.model.multipliers.get(f"r[L{head.layer}]", 1.0)
    mixed = np.einsum("...ij,...j->...i", np.abs(run.patterns[str(head)]), lost)
    return np.asarray(np.sqrt((run.results[str(head)].astype(float) ** 2).sum(-1)) + mixed * out)


@examples(30)
@given(runs(max_terms=60))
def test_the_bound_as_defined(drawn: tuple[Expansion, Run]) -> None:
    """16 u (sum of |terms| + f) recomputed from the weights; error and bound are those of the largest ratio."""
    expansion, run = drawn
    target, w, model, arch = expansion.target, run.model.weights, run.model, run.model.architecture
    values = [value_of_text(t.text, run) for t in expansion]
    carried = rows_with_roundings(run)
    if target == "stream":
        f = carried[-1][0][..., None]
    elif target == "logits":
        f = carried[-1][0]
        if arch.norm:  # of what the norm's summands are
            f = f * inverses(run, "final") * np.abs(w.get("gain_final", np.ones(1))).max()
            f = f + np.sqrt((w.get("b_N_final", np.zeros(1)) ** 2).sum())
        f = f[..., None] * np.sqrt((w["W_U"] ** 2).sum(1)) * model.multipliers.get("m_U", 1.0)
    else:
        head = target.removeprefix("scores:")
        layer = head[: head.index("H")]
        read = run.streams[int(layer[1:])].astype(float)
        if arch.norm:
            read = read - read.mean(-1, keepdims=True) if arch.norm == "LN" else read
            read = read * run.norms[layer][..., None] * w.get(f"gain_{layer}", 1.0) + w.get(f"b_N_{layer}", 0.0)
        if model.architecture.positions == "shortformer":
            read = read + w["W_pos"][: run.tokens.shape[-1]]
        rows, hidden = carried[int(layer[1:])]
        if arch.norm:
            rows = rows * inverses(run, layer) * np.abs(w.get(f"gain_{layer}", np.ones(1))).max()
            rows = rows + np.sqrt((w.get(f"b_N_{layer}", np.zeros(1)) ** 2).sum())
        if model.architecture.positions == "shortformer":
            rows = rows + np.sqrt((w["W_pos"][: run.tokens.shape[-1]].astype(float) ** 2).sum(-1))
        sides = ("Q", head), ("K", arch.key_value(arch.head(head)))
        made = [rows * np.sqrt((w[f"W_{s}_{label}"].astype(float) ** 2).sum()) for s, label in sides]
        gain = w.get(f"gain_{layer}", np.ones(model.d_model))
        lost = [hidden * np.sqrt(((w[f"W_{s}_{label}"] * gain) ** 2).sum() / model.d_model) for s, label in sides]
        q, k = (read @ w[f"W_{s}_{label}"].T + w.get(f"b_{s}_{label}", 0.0) for s, label in sides)
        if arch.qk_norm:
            names = zip((q, k), (f"Q{head}", f"K{arch.key_value(arch.head(head))}"), strict=True)
            units = [run.norms[n] * np.abs(w[f"gain_{n[0]}{layer[1:]}"]).max() for _, n in names]
            q, k = (x * unit[..., None] for x, unit in zip((q, k), units, strict=True))
            made = [m * unit for m, unit in zip(made, units, strict=True)]
            lost = [m * unit for m, unit in zip(lost, units, strict=True)]
        sizes = [np.sqrt((side**2).sum(-1)) for side in (q, k)]
        f = sizes[0][..., :, None] * (sizes[1] + lost[1])[..., None, :]
        f = f + lost[0][..., :, None] * sizes[1][..., None, :]
        made_f = made[0][..., :, None] * sizes[1][..., None, :] + sizes[0][..., :, None] * made[1][..., None, :]
        d_head, d_model = w[f"W_Q_{head}"].shape
        of_norm = {"LN": 3, "RMS": 1}.get(arch.norm, 0)
        steps = int(layer[1:]) + (1 + of_norm) * (d_head <= 4 or d_model >= 16 * d_head)
        both = [np.maximum(a, b * steps / 16) for a, b in zip(lost, made, strict=True)]
        rounded = 8 * float(np.finfo(run.dtype).eps) * both[0][..., :, None] * both[1][..., None, :]
        f = model.score_scale.get(head, 1.0) * (np.maximum(f, made_f * steps / 16) + rounded)
    unit = float(np.finfo(run.dtype).eps) / 2
    bound = np.broadcast_to(16 * unit * (sum(np.abs(v) for v in values) + f), reference(target, run).shape)
    found = closure(expansion, run)
    where = allowed(run, target)
    assert np.isclose(bound[where], found.bound, rtol=1e-4, atol=0).any()
    error = np.abs(sum(evaluate(expansion, run), np.zeros_like(reference(target, run))) - reference(target, run))[where]
    assert found.error <= 4 * error.max(initial=0) + 20 * bound[where].max()


def test_the_walk_and_the_list_close_alike(record: Run) -> None:
    for target in TARGETS:
        expansion = expand(record.model.architecture, target)
        listed, walked = closure(expansion, record), closure(expansion, record, listed=0)
        assert (listed.listed, walked.listed) == (True, False)
        assert listed.passed
        assert walked.passed
        assert walked.summands == (3 if target != "scores:L1H2" else 4) < listed.summands == 16


def closures() -> Iterator[tuple[str, float]]:
    """Bound / error of random models at weight scale 1, per kind of target."""
    for seed in range(12):
        heads = [(3, 3), (2, 3, 2), (4,), (2, 2, 2, 2)][seed % 4]
        arch = sc.attention_only(heads, [None, "standard", "shortformer"][seed % 3], seed % 2 == 0)
        run = random_model(arch, seed=seed).run(np.random.default_rng(seed).integers(0, 11, 7))
        for target in all_targets(arch):
            found = closure(expand(arch, target), run)
            assert found.passed
            if found.error:
                yield target.partition(":")[0], found.bound / found.error


def test_the_bound_is_not_vacuous() -> None:
    """Medians of bound / error: about 17 for logits, 21 for the stream, 13 for scores: far under 100, and above 1."""
    ratios: dict[str, list[float]] = {}
    for kind, ratio in closures():
        ratios.setdefault(kind, []).append(ratio)
    for kind in ("logits", "stream", "scores"):
        assert 1 < float(np.median(ratios[kind])) < 100, (kind, ratios[kind])


# d_model, d_head, heads, number of tokens: right models that a bound by |q||k| alone refuses
NARROW = [
    (64, 1, (2, 2), 32), (16, 1, (3, 3), 7), (16, 1, (3, 3), 32), (64, 2, (2, 2), 32), (256, 4, (2, 2), 32),
    (128, 4, (4, 4), 64), (16, 2, (1,), 7),
]  # fmt: skip


def narrow(case: tuple[int, int, tuple[int, ...], int], seed: int, weight_scale: float = 1.0) -> Run:
    d_model, d_head, heads, n = case
    sizes = {"d_model": d_model, "d_head": d_head, "n_context": n}
    model = random_model(sc.attention_only(heads), **sizes, seed=seed, weight_scale=weight_scale)
    return model.run(np.random.default_rng(seed).integers(0, 11, n))


def by_fused_weights(expansion: Expansion, run: Run) -> list[Array]:
    """The terms with W_OV and W_QK multiplied out first."""
    return list(lambdify_words([t.word for t in expansion])(run.arrays))


@pytest.mark.parametrize("weight_scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("case", NARROW, ids=str)
@pytest.mark.sampled(8)
def test_right_models_with_a_small_d_head_close(case: tuple[Any, ...], weight_scale: float) -> None:
    ratios: dict[str, list[float]] = {"logits": [], "scores": []}
    for seed in range(3):
        run = narrow(case, seed, weight_scale)
        for target in all_targets(run.model.architecture):
            if target != "stream":
                expansion = expand(run.model.architecture, target)
                found = [closure(expansion, run), closure(expansion, run, listed=0)]
                found.append(compare(target, run, iter(by_fused_weights(expansion, run)), True, fused=True))
                assert all(c.passed for c in found), (seed, found)
                ratios[target.partition(":")[0]] += [c.bound / c.error for c in found if c.error]
    for kind, some in ratios.items():
        assert 1 < float(np.median(some)) < 100, (kind, some)  # it is not vacuous


@pytest.mark.parametrize("case", NARROW, ids=str)
def test_every_missing_term_is_refused_where_d_head_is_small(case: tuple[Any, ...]) -> None:
    for seed in range(2):
        run = narrow(case, seed)
        for target in all_targets(run.model.architecture):
            if target == "stream":
                continue
            expansion = expand(run.model.architecture, target)
            for fused, values in ((False, summands(target, run)), (True, by_fused_weights(expansion, run))):
                for i in range(len(values)):
                    found = compare(target, run, iter(values[:i] + values[i + 1 :]), True, fused)
                    assert not found.passed, (seed, target, i)
                    assert found.error > 1000 * found.bound  # by far


@examples(15)
@given(architectures(max_layers=3, max_heads=3, max_terms=100), st.integers(0, 50))
def test_float32_closes_within_its_own_bound(arch: sc.Architecture, seed: int) -> None:
    model = random_model(arch, seed=seed)
    run = model.run([1, 2, 3], np.float32)
    for target in all_targets(arch):
        if expand(arch, target).count <= 500:
            found = closure(expand(arch, target), run)
            assert found.passed
            assert found.bound > 1e-8  # as wide as float32 needs it


def test_values_are_named_by_their_expansion(record: Run) -> None:
    values = evaluate(sc.logits(record.model.architecture), record)
    assert isinstance(values, Values)
    assert values.expansion.target == "logits"
    assert all(a.label != b.label for a, b in pairwise(values.expansion))


@examples(25)
@given(architectures(max_layers=3, max_heads=3, max_terms=200), st.randoms(use_true_random=False))
def test_the_stream_that_scores_share_is_walked_to_the_same_sums(arch: sc.Architecture, rng: random.Random) -> None:
    """In whatever order heads are asked for, each side is what a walk of its own gives."""
    run = random_model(arch, d_model=5, d_head=3).run([1, 2, 3])
    for head in rng.choices(arch.all_heads, k=6) if arch.all_heads else []:
        values = evaluate(sc.scores(arch, head), run)
        for paths in values.expansion.sides:
            shared, alone = values.side(paths), paths.marked(values.matrices)
            assert shared.keys() == alone.keys()
            assert all(np.array_equal(shared[mark], alone[mark]) for mark in alone)


@examples(25)
@given(architectures(max_layers=3, max_heads=3, max_terms=60, unembed=True), st.integers(0, 39))
def test_sizes_without_the_vocabulary(arch: sc.Architecture, token: int) -> None:
    model = random_model(arch, d_model=5, d_head=3, d_vocab=11, d_vocab_out=40)
    values = evaluate(sc.logits(arch), model.run([[1, 2, 3], [0, 0, 0]]))
    small = compact(values, [token, 3])
    assert small is not None
    for whole, block in zip(values, Values(values.expansion, values.run, small.matrices), strict=True):
        same, entries, mean = small.read(block)
        assert same.shape[-1] == 5 + ("b_U" in arch.biases)
        assert np.isclose(np.linalg.norm(whole), np.linalg.norm(same), rtol=1e-12)
        assert np.allclose(entries, whole[..., [token, 3]], rtol=1e-12, atol=1e-12)
        assert np.allclose(mean[..., 0], whole.mean(-1), rtol=1e-12, atol=1e-12)
    sums = Values(values.expansion, values.run, small.matrices).by_order()  # b_U among other terms
    for order, whole in values.by_order().items():
        same, entries, mean = small.read(sums[order])
        assert np.isclose(np.linalg.norm(whole), np.linalg.norm(same), rtol=1e-12)
        assert np.allclose(entries, whole[..., [token, 3]], rtol=1e-12, atol=1e-12)
        assert np.allclose(mean[..., 0], whole.mean(-1), rtol=1e-12, atol=1e-12)


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 40))
def test_a_large_unembedding_is_decomposed_in_blocks(rows: int, columns: int, block: int) -> None:
    matrix = np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("symcircuits.values.unembedding._BLOCK", block)
        found = _triangle(matrix), _triangle(matrix[:, :-1], matrix[:, -1])  # the last column apart: a bias
    wide = matrix.astype(np.float64)
    for triangle in found:
        assert triangle.shape == (min(rows, columns), columns)
        assert np.allclose(triangle.T @ triangle, wide.T @ wide, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 7), st.integers(0, 30), st.booleans())
def test_norms_of_a_run_in_float32_come_from_a_gram_matrix(columns: int, seed: int, biased: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(5000, columns)).astype(np.float32)  # more than are added up at a time
    parts = (matrix[:, :-1], matrix[:, -1]) if biased else (matrix, None)
    found = _of_gram(*parts, 2.0**-24)
    assert found is not None
    assert np.array_equal(found, _triangle(*parts, 2.0**-24))
    x = rng.normal(size=(columns, 9))
    np.testing.assert_allclose(
        np.linalg.norm(found @ x, axis=0), np.linalg.norm(matrix.astype(float) @ x, axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("small", [1e-4, 1e-7, 1e-12, 0.0])
def test_an_ill_conditioned_unembedding_has_no_gram_matrix(small: float) -> None:
    """A direction that is hardly read at all: its norm would be off by more than float32 rounds; QR has it right."""
    rng = np.random.default_rng(1)
    matrix = (rng.normal(size=(300, 4)) * [1, 1, 1, small]) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    hardly = np.linalg.svd(matrix)[2][-1]
    unit = 2.0**-24
    assert _of_gram(matrix, None, unit) is None
    found, right = (float(np.linalg.norm(a @ hardly)) for a in (_triangle(matrix, None, unit), matrix))
    assert abs(found - right) <= max(unit * right, 1e-14)
    loose = np.linalg.cholesky(matrix.T @ matrix + 1e-30 * np.eye(4)).T if small == 1e-7 else None
    assert loose is None or abs(np.linalg.norm(loose @ hardly) - right) > 1e-5 * right  # what is refused is wrong


@pytest.mark.parametrize("size", [1e200, 1e-200, np.inf, np.nan])
def test_what_has_no_squares_has_no_gram_matrix(size: float) -> None:
    matrix = np.random.default_rng(2).normal(size=(40, 3)) * size
    with np.errstate(all="ignore"):
        assert _of_gram(matrix, None, 2.0**-24) is None


def test_a_run_in_float64_keeps_to_qr(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr("symcircuits.values.unembedding._of_gram", lambda *given: asked.append(given[-1]))
    model = random_model(sc.attention_only((2,)), d_model=4, d_vocab=30)
    for dtype in ("float64", "float32"):
        values = evaluate(sc.logits(model.architecture), model.run([1, 2], dtype))
        assert compact(values, []) is not None
    assert asked == [2.0**-24]


def test_a_small_vocabulary_is_left_as_it_is() -> None:
    run = random_model(sc.attention_only((1,)), d_model=5, d_vocab=6).run([1])
    assert compact(evaluate(sc.logits(run.model.architecture), run), [0]) is None
    assert compact(evaluate(sc.stream(run.model.architecture), run), []) is None
    run = random_model(sc.attention_only((1,), biases=["b_U"]), d_model=5, d_vocab=7).run([1])
    assert compact(evaluate(sc.logits(run.model.architecture), run), [0]) is None  # the bias counts as a column


def test_matrices_that_stand_in_are_not_kept_with_the_run() -> None:
    run = random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    terms = sc.scores(run.model.architecture, "L1H0")
    right, twice = evaluate(terms, run).total(), {"W_O_L0H0": 2 * run.arrays["W_O_L0H0"]}
    for _ in range(2):
        other = Values(terms, run, twice)
        np.testing.assert_allclose(other.total(), sum(other), atol=1e-12)
        assert np.abs(other.total() - right).max() > 0.01
        np.testing.assert_array_equal(evaluate(terms, run).total(), right)


# ------------------------------------------------------------------------------------------ parts of an engine
def test_the_first_term_that_is_no_number_is_named() -> None:
    """Of values of any shape, numbered from the first on."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    for shape in ((4,), (4, 2), (4, 2, 3)):
        numbers = np.zeros(shape)
        values.look("the value", numbers, 5)
        numbers[3] = np.inf
        numbers.reshape(4, -1)[2, -1] = np.nan
        label = re.escape(values.expansion[7].label)
        with pytest.raises(ValueError, match=rf"^the value of term 7 \({label}\) is not finite"):
            values.look("the value", numbers, 5)


def test_a_mask_is_there_where_it_leaves_something_out() -> None:
    for causal in (True, False):
        run = sc.random_model(sc.attention_only((2, 2), causal=causal), seed=1).run([1, 2, 3])
        assert sc.evaluate(sc.logits(run.model.architecture), run).mask() is None
        found = sc.evaluate(sc.scores(run.model.architecture, "L1H0"), run).mask()
        assert found is None if not causal else found.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_what_was_walked_of_another_stream_is_not_taken() -> None:
    """Before a split scores read embeddings and positions, after it a feature and the rest: as many sources."""
    model = sc.random_model(sc.attention_only((2, 2, 2), "standard"), seed=3)
    split = model.with_(sc.source("probe", np.ones(model.d_model), 1))
    for heads in (["L0H0", "L2H0", "L1H1", "L0H1", "L2H1"], ["L2H1", "L0H1", "L1H0"], ["L1H0", "L0H0", "L1H1"]):
        run = split.run([1, 2, 3])
        for head in heads:
            values = sc.evaluate(sc.scores(split.architecture, head), run)
            np.testing.assert_allclose(values.total(), sum(values), rtol=1e-10, atol=1e-12)
            for order, value in values.by_order().items():
                of_order = sc.evaluate(values.expansion.order(order), run)
                np.testing.assert_allclose(value, sum(of_order), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_of_what_was_walked_so_much_is_kept(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream always is; beyond the limit the oldest are let go."""
    run = sc.random_model(sc.attention_only((1,) * 5), d_model=4, seed=3).run([1, 2, 3])
    monkeypatch.setattr(evaluation, "_STREAM_BYTES", most * 3 * 4 * 8)
    for layer in range(5):
        sc.evaluate(sc.scores(run.model.architecture, f"L{layer}H0"), run).total()
        [known] = evaluation._STREAMS[run].values()
        lengths = [len(stream.bits) for stream in known]
        assert lengths == [*range(1, layer + 2)][-max(1, most) :]


# ------------------------------------------------------------------------------------------------ sums, by the walk
@pytest.mark.parametrize("positions", [None, "rotary"])
def test_a_condition_on_either_side_of_scores_is_met_by_one_of_them(positions: str | None) -> None:
    """Not by each: terms whose query path alone goes through a head are among them, and whose key path alone does."""
    run = random_model(sc.attention_only((2, 2, 1), positions, ["b_V"]), d_head=2, seed=3).run([1, 2, 3])
    whole = sc.scores(run.model.architecture, "L2H0")
    for some in (
        whole.through("L0H0"),
        whole.through("L0H0", side="query").through("L1H1", side="key"),
        whole.through("L0H0").through("L1H0"),
        whole.from_source("b_V[L0H1]"),
    ):
        values = evaluate(some, run)
        listed, sums = dict[int, list[Array]](), values.by_order()
        for term, value in zip(some, values, strict=True):
            listed.setdefault(sum(len(path.heads) for path in term.paths), []).append(value)
        assert list(sums) == sorted(listed)
        for order, found in sums.items():
            np.testing.assert_allclose(found, sum(listed[order]), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(values.total(), sum(map(sum, listed.values())), rtol=1e-10, atol=1e-12)
        pairs = dict[tuple[str, str], list[Array]]()
        for term, value in zip(some, values, strict=True):
            query, key = (path.source.name for path in term.paths)
            pairs.setdefault((query, key), []).append(value)
        by_source = values.by_source()
        assert set(by_source) == set(pairs)
        for names, found in by_source.items():
            np.testing.assert_allclose(found, sum(pairs[names]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("positions", [None, "standard", "rotary"])
def test_queries_and_keys_of_one_position_are_turned_as_those_of_all(positions: str | None) -> None:
    run = random_model(sc.attention_only((2,), positions), d_head=4, seed=3).run([1, 2, 3])
    values = evaluate(sc.scores(run.model.architecture, "L0H1"), run)
    rows = np.random.default_rng(0).normal(size=(3, 4))
    turned = values.turned(rows)
    assert np.allclose(turned, rows) == (positions != "rotary")
    for i in range(3):
        np.testing.assert_allclose(values.turned(rows[i : i + 1], i), turned[i : i + 1], atol=1e-14)


def test_what_is_given_where_nothing_is_said() -> None:
    """Blocks of 65,536 numbers or terms, the 20 largest of a summary, the 10 largest that are proved, 1,000 draws."""
    run = random_model(sc.attention_only((256, 256)), d_model=2, d_head=1, d_vocab=3, seed=3).run([1])
    values = evaluate(sc.logits(run.model.architecture), run)
    assert [len(block.values) for block in values.measure()] == [65_536, 513]
    assert len(values.summary(stop=1000).largest) == 20
    assert len(values.sample().sizes) == 1000
    assert [len(block) for block in values.expansion.blocks()] == [65_536, 513]
    small = random_model(sc.attention_only((3, 3)), seed=3).run([1, 2])
    assert len(evaluate(sc.logits(small.model.architecture), small).largest().terms) == 10


@pytest.mark.parametrize(
    ("method", "function"),
    [("sample", sample), ("largest", largest), ("summary", summary), ("sum_of_squares", squares), ("measure", measure),
     ("blocks", term_values)],
)  # fmt: skip
def test_a_method_and_its_function_do_the_same_where_nothing_is_said(method: str, function: Any) -> None:
    said, given_there = (inspect.signature(f).parameters for f in (getattr(Sums, method), function))
    defaults = {name: one.default for name, one in said.items() if one.default is not one.empty}
    assert defaults == {name: given_there[name].default for name in defaults}
    assert len(defaults) >= 2
