"""Sizes of every term, range by range: held to single evaluation, and the same bits whoever works."""

import shutil
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from strategies import architectures, examples

import symcircuits as sc
from symcircuits.core.programs import readout
from symcircuits.tables import blocks as tables
from symcircuits.values import pairs
from symcircuits.values import summary as summaries
from symcircuits.values.measure import Measure
from symcircuits.values.measured import Measuring
from symcircuits.values.pairs import Pairs
from symcircuits.verification import prime_field as exact
from symcircuits.work.workers import WorkerPool, pairwise, processes
from tests.measures import measure_of

MODEL = File(__file__).parent / "data" / "tl_3layer_s11"
TOKENS = [3, 1, 4, 1]


def targets(architecture: Any) -> list[str]:
    heads = architecture.all_heads
    return ["logits" if architecture.unembed else "stream", *([f"scores:{heads[-1]}"] if heads else [])]


@examples(25)
@given(architectures(max_layers=3, max_heads=2, max_terms=60), st.integers(0, 9), st.booleans(), st.data())
def test_every_size_is_that_of_the_term_by_itself(
    architecture: Any, seed: int, rows: bool, data: st.DataObject
) -> None:
    model = sc.random_model(architecture, seed=seed)
    run = model.run([[0, 1, 2], [2, 1, 0]] if rows else [0, 1, 2])
    e = sc.expand(architecture, data.draw(st.sampled_from(targets(architecture))))
    values, kind = sc.evaluate(e, run), e.target.partition(":")[0]
    by = data.draw(
        st.sampled_from({"logits": ["norm", "logit"], "stream": ["norm"]}.get(kind, ["norm", "score entry"]))
    )
    chosen = {} if by == "norm" or not rows else {"row": 1}
    found = values.summary(measure_of(by, **chosen), top=len(e))
    asked, expected = found.measure, {}
    for i, value in enumerate(values):
        one = value if asked.row is None or by == "norm" else value[asked.row]
        entry = (asked.position, asked.token if by == "logit" else asked.key)
        expected[i] = float(np.linalg.norm(one)) if by == "norm" else float(one[entry])
    scale = max(map(abs, expected.values()))
    assert {i for i, _ in found.largest} == set(expected)
    assert all(abs(size - expected[i]) <= 1e-12 * scale for i, size in found.largest)
    absolute = [abs(size) for _, size in found.largest]
    assert absolute == sorted(absolute, reverse=True)
    assert {o: s.count for o, s in found.by_order().items()} == e.counts_by_order()
    assert {c: s.count for c, s in found.by_composition().items()} == {
        c: n for c, n in e.counts_by_composition().items() if n
    }
    assert abs(found.total.total - sum(expected.values())) <= 1e-12 * scale * len(e)


CASES = [("logits", sc.logit(against="second")), ("logits", sc.norm()), ("scores:L2H1", sc.score_entry()),
         ("scores:L2H0", sc.norm(masked=True))]  # fmt: skip


def plain(found: Any) -> Any:
    return found.largest, dict(found.sums), found.measure


@pytest.mark.parametrize(("target", "by"), CASES)
def test_any_number_of_workers_gives_the_same_bits(target: str, by: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "FEWEST", 7)  # many ranges; workers are sent them
    model = sc.load(MODEL)
    values = sc.evaluate(sc.expand(model.architecture, target), model.run(TOKENS))
    alone = plain(values.summary(by, top=9))
    for workers in (1, 2, 5, processes(2)):
        assert plain(values.summary(by, top=9, workers=workers)) == alone
    if by != sc.norm(masked=True):
        assert [t for t, _ in values.summary(by, top=9).terms] == [one.term for one in values.largest(9, by).terms]


@pytest.mark.parametrize("batch", [False, True])
def test_masked_norms_are_of_what_the_mask_leaves(batch: bool) -> None:
    run = sc.random_model(sc.attention_only((2, 2), biases=["b_V"]), seed=4).run([[1, 2, 3], [4, 5, 6]][: 1 + batch])
    terms = sc.scores(run.model.architecture, "L1H0")
    found = sc.evaluate(terms, run.model.run(run.tokens)).summary(sc.norm(masked=True), top=terms.count)
    seen = {term.label: size for term, size in found.terms}
    for term, value in zip(terms, sc.evaluate(terms, run), strict=True):
        assert np.isclose(seen[term.label], np.linalg.norm(value * run.masks["L1"]), rtol=1e-12)


def test_ranges_put_together_are_all() -> None:
    model = sc.load(MODEL)
    e = sc.logits(model.architecture).order(2)
    whole = sc.evaluate(e, model.run(TOKENS)).summary(top=len(e))
    halves = [sc.evaluate(e, model.run(TOKENS)).summary(top=len(e), start=a, stop=b) for a, b in ((0, 11), (11, None))]
    assert sorted(n for h in halves for n, _ in h.largest) == list(range(len(e)))
    sizes = dict(whole.largest)
    assert all(abs(x - sizes[n]) <= 1e-13 * abs(sizes[n]) for h in halves for n, x in h.largest)
    none = sc.evaluate(e, model.run(TOKENS)).summary(start=5, stop=5)
    assert (none.largest, none.total.count, none.by_order()) == ((), 0, {})
    for start, stop, said in ((len(e) + 1, None, "start .* are not a range"), (5, 3, "start 5 and stop 3 are not")):
        with pytest.raises(ValueError, match=said):
            sc.evaluate(e, model.run(TOKENS)).summary(start=start, stop=stop)


# --------------------------------------------------------------------------------------------------- exactly
def _sum_of_range(task: tuple[Any, int, int, int]) -> tuple[int, Any]:
    e, k, start, stop = task
    at = exact.instance(e.architecture, k, seed=3)
    total = at.ring.zeros((k, k))
    for value in exact.word_values((e[i].word for i in range(start, stop)), at):
        for one in value.reshape(-1, k, k):
            total = at.ring.add(total, one)
    return stop - start, total


@pytest.mark.parametrize("width", [1, 4, 27])
def test_sums_over_a_prime_field_depend_on_nothing(width: int) -> None:
    architecture = sc.attention_only((2, 2, 2))
    e, k = sc.logits(architecture), 4
    tasks = [(f"terms {i}", (e, k, i, min(i + width, len(e)))) for i in range(0, len(e), width)]
    at = exact.instance(architecture, k, seed=3)
    for workers in (None, 2, 5, processes(2)):
        with WorkerPool(workers) as crew:
            found = pairwise(crew.results(_sum_of_range, tasks), lambda a, b: (a[0] + b[0], at.ring.add(a[1], b[1])))
        assert found is not None
        assert found[0] == 27
        assert np.array_equal(found[1], exact.walked(readout(architecture, "logits"), at))


# ---------------------------------------------------------------------------------------------------- refused
def test_a_term_that_is_no_number_is_named() -> None:
    model = sc.random_model(sc.attention_only((2, 2)), d_vocab=9, seed=1)
    weights = {n: np.array(w) for n, w in model.weights.items()}
    for name in ("W_Q", "W_K", "W_V"):
        weights[f"{name}_L0H1"] = weights[f"{name}_L0H0"]
    weights["W_O_L0H0"] *= 1e25  # two heads that cancel: the stream is small, and terms through one of them are not
    weights["W_O_L0H1"] = -weights["W_O_L0H0"]
    weights["W_O_L1H0"] *= 1e20
    big, e = replace(model, weights=weights), sc.logits(model.architecture)
    said = r"^the norm of term 5 \(embed -> L0H0 -> L1H0\) is not finite"
    for workers in (None, 2):
        with pytest.raises(ValueError, match=said):
            sc.evaluate(e, big.run([1, 2], "float32")).summary(workers=workers)
    assert sc.evaluate(e, big.run([1, 2], "float64")).summary().total.count == 9


def test_what_cannot_be_is_refused() -> None:
    model = sc.load(MODEL)
    e = sc.logits(model.architecture)
    for wrong, kind, what in (
        ({"by": "norm"}, TypeError, "by must be a measure"),
        ({"top": -1}, ValueError, "top must be a whole number"),
        ({"start": 0.5}, ValueError, "start must be a whole number"),
        ({"workers": 0}, ValueError, "1 or more"),
    ):
        with pytest.raises(kind, match=what):
            sc.evaluate(e, model.run(TOKENS)).summary(**wrong)
    elsewhere = sc.evaluate(e, replace(model).run(TOKENS))  # a copy, which may have been changed
    with pytest.raises(ValueError, match="load it from the path of its folder"):
        elsewhere.summary(workers=processes(1))
    deep = sc.random_model(sc.attention_only((12,) * 12), d_model=2, d_head=1)
    with pytest.raises(ValueError, match="too many to look at one by one"):
        sc.evaluate(sc.logits(deep.architecture), deep.run(TOKENS)).summary()


def test_a_file_that_changed_since_it_was_loaded_is_not_read_by_workers(tmp_path: File) -> None:
    """Workers would measure the new weights, and this process the old ones."""
    folder = shutil.copytree(MODEL, tmp_path / "model")
    model = sc.load(folder)
    values = sc.evaluate(sc.logits(model.architecture), model.run(TOKENS))
    other = sc.load(File(__file__).parent / "data" / "tl_3layer_s11")
    assert values.summary(workers=2).total == sc.evaluate(values.expansion, other.run(TOKENS)).summary().total
    [weights] = folder.glob("*.safetensors")
    arrays = {name: 2 * array for name, array in load_file(weights).items()}
    save_file(arrays, weights)
    for who in (1, 2):  # threads have the run itself
        assert values.summary(workers=who).total.count == len(values)
    with pytest.raises(ValueError, match="this model has changed since it was loaded: load it again"):
        values.summary(workers=processes(1))


def test_a_changed_copy_of_a_run_is_not_run_again_by_workers() -> None:
    """They would measure the run that it was made of."""
    run = sc.load(MODEL).run(TOKENS)
    silent = {**run.arrays, "W_O_L0H1": np.zeros_like(run.arrays["W_O_L0H1"])}
    changed = replace(run, arrays=silent)
    e = sc.logits(run.model.architecture).through("L0H1")
    for workers in (None, 2):
        assert sc.evaluate(e, changed).summary(workers=workers).total.absolute == 0
    with pytest.raises(ValueError, match="this run is a modified copy: give a number of threads"):
        sc.evaluate(e, changed).summary(workers=processes(1))


def test_pieces_of_scores_are_of_whole_query_paths_and_compute_no_more() -> None:
    """A range of few query paths multiplies these alone with the keys, and not all that would fit."""
    run = sc.random_model(sc.attention_only((9, 9, 9)), d_vocab=11, d_model=8, d_head=2, seed=1).run([1, 2, 3])
    e = sc.scores(run.model.architecture, "L2H0")  # 100 query paths, 100 key paths
    values, made = sc.evaluate(e, run), list[int]()
    products = Pairs._products
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairs, "_products", lambda p, q, keys: (made.append(len(q)), products(p, q, keys))[1])
        for start, stop, most in ((0, 10_000, 100), (3_000, 3_300, 3), (3_050, 3_300, 4), (9_950, 10_000, 1)):
            made.clear()
            assert sum(len(b.values) for b in values.measure(start=start, stop=stop)) == stop - start
            assert sum(made) <= most + (start % 100 > 0)
        patch.setattr(summaries, "FEWEST", 80)
        local = summaries._Local(Measuring(values, sc.norm()))
        tasks = [task for _, task in summaries._tasks(local, 250, 2_345, 5)]
    assert [at for _, at, _, _ in tasks] == [250, *range(300, 2_345, 300)]
    assert [end for _, _, end, _ in tasks] == [*range(300, 2_345, 300), 2_345]
    assert list(summaries._tasks(local, 7, 7, 5)) == []


@pytest.mark.parametrize("by", [sc.norm(), sc.score_entry()])
def test_a_summary_lists_no_term_and_makes_keys_once(by: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many pieces: orders come by arithmetic, or by tables of paths where conditions tell paths apart."""
    run = sc.random_model(sc.attention_only((9, 9, 9)), d_vocab=11, d_model=8, d_head=2, seed=1).run([1, 2, 3])
    e, made = sc.scores(run.model.architecture, "L2H0"), list[int]()
    monkeypatch.setattr(summaries, "FEWEST", 80)
    monkeypatch.setattr(tables, "TermBlock", None)  # what blocks of terms are made of
    blocks = pairs.side_blocks
    monkeypatch.setattr(pairs, "side_blocks", lambda v, side, *more: (made.append(side), blocks(v, side, *more))[1])
    for terms in (e, e.through("L1H3"), e.order(1, 2)):
        made.clear()
        found = sc.evaluate(terms, run).summary(by)
        assert {orders: s.count for orders, s in found.by_order().items()} == terms.counts_by_order()
        sets = {frozenset(terms._key_weights(mark)) for mark, n in terms._weights.items() if n}
        assert made.count(1) == len(sets)
        assert made.count(0) >= min(20, terms.count // 400)
