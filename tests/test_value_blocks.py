"""The values of all terms through one buffer, against each term computed by itself."""

import itertools
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import symcircuits as sc
from symcircuits.core.expansion import Expansion
from symcircuits.model import Run, random_model
from symcircuits.values import pairs as pairs_module
from symcircuits.values import run_arithmetic
from symcircuits.values import sibling_reads as fan_reads
from symcircuits.values import siblings as fans
from symcircuits.values import term_values as value_blocks
from symcircuits.values.evaluate import Values
from tests.test_reductions import assert_alike, large, largest_of, model_of, runs

pytestmark = pytest.mark.usefixtures("by_the_tree")

Array = npt.NDArray[Any]


def by_itself(expansion: Expansion, run: Run) -> Array:
    """Every term by its own factors, one after the other."""
    values = sc.evaluate(expansion, run)
    return np.array([values.value(term) for term in expansion], run.dtype).reshape(-1, *values.shape)


def together(expansion: Expansion, run: Run, most: int | None = None, **options: Any) -> Array:
    """The blocks put together: numbered one after the other, of at most so many terms."""
    found: list[Array] = []
    for block in sc.evaluate(expansion, run).blocks(**options):
        assert block.start == sum(map(len, found))
        assert 0 < len(block.values) <= (most or len(block.values))
        found.append(block.values.copy())
    return np.concatenate(found) if found else np.zeros((0, *sc.evaluate(expansion, run).shape), run.dtype)


@examples(100)
@given(runs(), st.none() | st.integers(1, 9), st.booleans())
def test_the_values_are_those_of_the_terms(drawn: tuple[Expansion, Run], size: int | None, given_out: bool) -> None:
    expansion, run = drawn
    values = by_itself(expansion, run)
    out = np.full((size or 3, *values.shape[1:]), np.nan, run.dtype) if given_out else None
    found = together(expansion, run, size, size=size, out=out)
    assert found.dtype == run.dtype
    assert_alike(found, values, run, largest_of(values))
    listed = np.array(list(sc.evaluate(expansion, run)), run.dtype).reshape(values.shape)
    assert_alike(listed, values, run, largest_of(values))


@examples(60)
@given(runs(), st.none() | st.integers(1, 9), st.data())
def test_a_range_is_a_slice_of_all(drawn: tuple[Expansion, Run], size: int | None, data: st.DataObject) -> None:
    expansion, run = drawn
    values = by_itself(expansion, run)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, expansion.count)] * 2)))
    found = [(b.start, b.values.copy()) for b in sc.evaluate(expansion, run).blocks(size=size, start=start, stop=stop)]
    assert [at for at, _ in found] == [start + sum(len(v) for _, v in found[:i]) for i in range(len(found))]
    assert all(0 < len(v) <= (size or len(v)) for _, v in found)
    whole = np.concatenate([v for _, v in found]) if found else values[:0]
    assert_alike(whole, values[start:stop], run, largest_of(values))


def test_any_buffer_and_anything_kept_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing kept, everything kept; one head at a time, all; one number at a time, all."""
    for run in (model_of((3, 2, 2)), model_of((2, 3, 2), d_head=1)):
        arch = run.model.architecture
        for terms in (sc.logits(arch), sc.logits(arch).through("L1H0"), sc.scores(arch, "L2H1"), sc.stream(arch)):
            wanted = by_itself(terms, run)
            for reads, fan, block, keys in itertools.product((0, 2**28), (1, 2**25), (1, 3000, 2**20), (0, 2**26)):
                monkeypatch.setattr(fan_reads, "_READ_BYTES", reads)
                monkeypatch.setattr(fans, "_FAN_BYTES", fan)
                monkeypatch.setattr(value_blocks, "_BLOCK_BYTES", block)
                monkeypatch.setattr(run_arithmetic, "_KEY_BYTES", keys)
                np.testing.assert_allclose(together(terms, run), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("target", ["logits", "scores"])
def test_blocks_share_one_buffer_and_little_memory(target: str) -> None:
    run = model_of((6, 6, 6, 6), d_head=4, d_vocab=300)
    arch = run.model.architecture
    terms = sc.logits(arch) if target == "logits" else sc.scores(arch, "L3H0")
    blocks = sc.evaluate(terms, run).blocks(size=200 if target == "scores" else None)
    held = [b.values for b in itertools.islice(blocks, 3, 5)]
    assert np.shares_memory(*held)
    tracemalloc.start()
    count = sum(len(b.values) for b in sc.evaluate(terms, run).blocks())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = 9 * 9 if target == "scores" else 9 * run.logits.shape[-1]  # type: ignore[union-attr]
    assert count == terms.count
    assert most < 16e6 < count * each * 8


def test_values_are_written_where_it_is_asked() -> None:
    run = model_of((2, 2))
    terms = sc.logits(run.model.architecture)
    out = np.empty((4, *run.logits.shape))  # type: ignore[union-attr]
    for block in sc.evaluate(terms, run).blocks(out=out):
        assert np.shares_memory(block.values, out)
        np.testing.assert_array_equal(block.values, out[: len(block.values)])
        np.testing.assert_allclose(out[0], sc.evaluate(terms, run).value(terms[block.start]), atol=1e-12)
    assert all(len(b.values) == 1 for b in sc.evaluate(terms, run).blocks(size=1, out=out))


def test_a_step_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions turned round, another head's readout, the patterns of another head: the comparison fails."""
    run = model_of((3, 3, 3))
    terms, step, layer = sc.logits(run.model.architecture), fans.SiblingPaths._step, fan_reads._Reads.layer
    right = together(terms, run)
    wrong: dict[str, tuple[Any, str, Any]] = {
        "turned": (fans.SiblingPaths, "_step", lambda s, b, z, i, h: step(s, b, z[:, ::-1], i, h)),
        "another head": (fans.SiblingPaths, "_step", lambda s, b, z, i, h: step(s, b, z, i, h)[:, ::-1]),
        "readout": (fan_reads._Reads, "layer", lambda s, i: (layer(s, i)[0][::-1], layer(s, i)[1])),  # type: ignore[index]
    }
    for what, (where, name, other) in wrong.items():
        with monkeypatch.context() as patch:
            patch.setattr(where, name, other)
            assert np.abs(together(terms, run) - right).max() > 1e-3 * np.abs(right).max(), what


# ---------------------------------------------------------------------------------------------- bad input
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_overflows_is_named() -> None:
    run, arch = large(np.float32), sc.attention_only((2, 2, 1))
    for terms in (sc.logits(arch), sc.stream(arch), sc.scores(arch, "L2H0"), sc.logits(arch).through("L1H1")):
        with pytest.raises(ValueError, match=r"the value of term \d+ \(.*L\dH\d.*\) is not finite.*float32"):
            list(sc.evaluate(terms, run).blocks())
    fine = large(np.float64)
    assert all(np.isfinite(b.values).all() for b in sc.evaluate(sc.logits(arch), fine).blocks())


def test_what_is_said_to_be_finite_is() -> None:
    """Sure where numbers are ordinary; not where what is read of them is large, or overflows."""
    run = model_of((2, 2))
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    for size, sure in ((1.0, True), (1e150, True), (1e308, False)):
        with np.errstate(over="ignore", invalid="ignore"):
            fan = Values(values.expansion, run, {"W_U": run.arrays["W_U"] * size}).fans(0)
            pieces = list(fan_reads.pieces(fan, values.expansion._weights))
        assert all(np.isfinite(p.values).all() for p in pieces if p.finite)
        assert all(p.finite for p in pieces) == sure
    assert not all(np.isfinite(p.values).all() for p in pieces)


@pytest.mark.parametrize("held", [0, 2**28])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_overflow_are_never_said_to_be_finite(sign: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every product is just within range, and what they add up to is not."""
    monkeypatch.setattr(fan_reads, "_READ_BYTES", held)
    run = model_of((2, 2), d_head=6)
    values, seen = sc.evaluate(sc.logits(run.model.architecture).order(1, 2), run), set()
    louder = {f"W_V_{h}": 100 * run.arrays[f"W_V_{h}"] for h in ("L0H0", "L0H1", "L1H0", "L1H1")}
    fan = Values(values.expansion, run, louder).fans(0)
    largest = max(fan_reads.largest_number(f.z) for k in (1, 2) for f in fan.fans(k, values.expansion._weights))
    for size in np.geomspace(0.01, 1.5, 40):
        read = np.full((fan.d_head, 4), sign * size / largest * np.finfo(np.float64).max)
        for alike in (read, np.where(np.arange(6)[:, None] % 2, read, -read)):
            with np.errstate(over="ignore", invalid="ignore"):
                for piece in fan_reads.pieces(fan, values.expansion._weights, lambda head, r=alike: r):  # type: ignore[misc]
                    whole = bool(np.isfinite(piece.values).all())
                    assert whole or not piece.finite
                    seen.add((whole, piece.finite))
    assert seen == {(True, True), (True, False), (False, False)}


def test_a_product_of_queries_and_keys_that_overflows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are finite, and what they give is not."""
    run, blocks = model_of((2, 2)), pairs_module.side_blocks
    terms = sc.scores(run.model.architecture, "L1H0")
    assert fan_reads.largest_number(np.array([-3.0, 1.0])) == 3 == fan_reads.largest_number(np.array([3.0, -1.0]))
    for sign in (1, -1):
        monkeypatch.setattr(pairs_module, "side_blocks", lambda *a, s=sign: ((m, s * b * 1e160) for m, b in blocks(*a)))
        with pytest.raises(ValueError, match=r"the value of term \d+ \(.*\) is not finite"):
            list(sc.evaluate(terms, run).blocks())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scores_that_just_overflow_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries and keys of ones: each product within range, six of them not."""
    run, blocks, outcome = model_of((2, 2), d_head=6), pairs_module.side_blocks, set()
    terms = sc.scores(run.model.architecture, "L1H0")
    for size in np.geomspace(0.05, 1.5, 30):
        most = float(np.sqrt(size) * np.sqrt(np.finfo(np.float64).max))
        monkeypatch.setattr(pairs_module, "side_blocks", lambda *a, s=most: ((m, b * 0 + s) for m, b in blocks(*a)))
        try:
            assert all(np.isfinite(b.values).all() for b in sc.evaluate(terms, run).blocks())
            outcome.add("finite")
        except ValueError as fault:
            outcome.add("named" if "is not finite" in str(fault) else str(fault))
    assert outcome == {"finite", "named"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_queries_that_are_no_numbers_are_named_whatever_the_keys_are() -> None:
    """Two heads that cancel: what a third reads of each overflows both ways, and its sums are not numbers."""
    arch = sc.attention_only((2, 1, 1))
    model = random_model(arch, d_model=6, d_head=3, seed=1)
    w = {name: np.array(array) for name, array in model.weights.items()}
    w |= {f"W_{side}_L0H1": w[f"W_{side}_L0H0"] for side in "QKV"}
    w["W_O_L0H0"] *= 1e37
    w["W_O_L0H1"] = -w["W_O_L0H0"]
    w["W_V_L1H0"] *= 1e3
    w["W_O_L1H0"] /= 1e3
    run = sc.Model(arch, w, model.score_scale).run([1, 2, 3, 4], np.float32)
    terms = sc.scores(arch, "L2H0")
    queries = [block for _, block in pairs_module.side_blocks(sc.evaluate(terms, run), 0, terms._weights)]
    assert np.isnan(np.concatenate(queries)).any()
    for composition, first in (("Q", r"L0H\d -> L1H0"), ("K", r"L0H\d -> L1H0"), ("QK", "L0H0")):
        with pytest.raises(ValueError, match=rf"the value of term \d+ \(.*{first}.*\) is not finite"):
            list(sc.evaluate(terms.where(composition=composition), run).blocks())
    assert fan_reads.largest_number(np.array([np.nan, 1.0])) == fan_reads.largest_number(np.array([1.0, np.nan])) > 9


def test_only_so_many_heads_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = model_of((3, 3))
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    for most, heads in ((1, 1), (2**25, 3)):
        monkeypatch.setattr(fans, "_FAN_BYTES", most)
        assert {len(f.heads) for f in values.fans(0).fans(2, values.expansion._weights)} == {heads}


def test_heads_that_are_chosen_differ_by_order() -> None:
    """One of them alone first, then with its neighbour."""
    run = model_of((2, 2))
    terms = sc.logits(run.model.architecture).through(["L0H0", "L1H1"])
    np.testing.assert_allclose(together(terms, run), by_itself(terms, run), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d_vocab", [3, 30])
def test_heads_that_are_chosen_need_not_be_neighbours(d_vocab: int) -> None:
    """The first and the third of a layer, each with its own readout."""
    run = random_model(sc.attention_only((3, 4)), d_vocab=d_vocab, d_model=8, d_head=3, seed=2).run([1, 2, 0])
    arch = run.model.architecture
    for chosen in (["L0H0", "L0H2"], ["L1H0", "L1H2"], ["L1H1", "L1H3"], ["L0H2", "L1H0", "L1H3"]):
        for terms in (sc.logits(arch).through(chosen), sc.scores(arch, "L1H0").through(chosen[:1])):
            np.testing.assert_allclose(together(terms, run), by_itself(terms, run), rtol=1e-9, atol=1e-12)


def test_what_first_heads_take_up_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    run = model_of((4, 4, 4))
    terms = sc.logits(run.model.architecture)
    for most in (0, 2000, 2**26):
        monkeypatch.setattr(fans, "_START_BYTES", most)
        monkeypatch.setattr(fans, "_FAN_BYTES", 1)
        found = sc.evaluate(terms, run).fans(0)
        assert sum(len(f.heads) for order in (1, 2, 3) for f in found.fans(order, terms._weights)) == 12 + 48 + 64
        assert sum(z.nbytes for z in found._starts.values()) <= most


def test_no_path_leads_past_a_stream_that_is_split() -> None:
    model = model_of((2, 2, 2)).model
    split = model.with_(sc.source("probe", np.ones(model.d_model), 1))
    run = split.run(np.arange(5))
    for target in ("logits", "scores:L2H0"):
        terms = sc.expand(split.architecture, target)
        np.testing.assert_allclose(together(terms, run), by_itself(terms, run), rtol=1e-9, atol=1e-12)


def test_bad_input() -> None:
    run, arch = model_of((2, 2)), sc.attention_only((2, 2))
    terms = sc.logits(run.model.architecture)
    shape = run.logits.shape  # type: ignore[union-attr]
    fixed = np.empty((3, *shape))
    fixed.flags.writeable = False
    for out, said in (
        (
            np.empty((3, *shape), np.float32),
            r"out must be an array \[terms, 9, 30\] of float64, for one or more terms, not",
        ),
        (np.empty((3, 8, 30)), r"not \[3, 8, 30\] of float64"),
        (np.empty((0, *shape)), r"not \[0, 9, 30\] of float64"),
        ([1.0], r"not \[1.0\]"),
        (np.empty((3, *shape), order="F"), "contiguous in C order"),
        (fixed, "a writable array"),
    ):
        with pytest.raises(ValueError, match=said):
            sc.evaluate(terms, run).blocks(out=out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="out has room for 3 terms, but size=4 needs more"):
        sc.evaluate(terms, run).blocks(out=np.empty((3, *shape)), size=4)
    for size in (0, -1):
        with pytest.raises(ValueError, match="size"):
            sc.evaluate(terms, run).blocks(size=size)
    with pytest.raises(ValueError, match=r"start 3 and stop 2 are not a range of the \d+ terms"):
        sc.evaluate(terms, run).blocks(start=3, stop=2)
    with pytest.raises(ValueError, match="size must be a whole number"):
        sc.evaluate(terms, run).blocks(size=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="but the run is of a model that is"):
        sc.evaluate(sc.logits(arch), run).blocks()
    free = sc.transformer((1, 1), softmax=False)
    other: Any = sc.logits(free).unfrozen()
    with pytest.raises(AttributeError, match="blocks needs terms with patterns held fixed"):
        sc.evaluate(other, random_model(free, d_vocab=5, d_model=3, d_head=2).run([1, 2])).blocks()
