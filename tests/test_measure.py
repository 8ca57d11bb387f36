"""Measures, ranges and the largest: one rule each, held to brute force over the values of the terms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from strategies import cases, examples, selections

import symcircuits as sc
from symcircuits.core.expansion import Expansion, expand
from symcircuits.explanation.sizes import largest
from symcircuits.model import Run
from symcircuits.values import measured
from symcircuits.values import summary as summaries
from symcircuits.values import top as top_module
from symcircuits.values.engine import Ranges, Span
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import KINDS, Kind, Measure, kinds_of
from symcircuits.values.measured import MEASURES, Reduction
from symcircuits.values.term_values import arrays
from symcircuits.values.top import joined, top
from symcircuits.work.workers import processes
from tests.measures import measure_of

MODEL = Path(__file__).parent / "data" / "tl_3layer_s11"


def attached(tokens: Any = (1, 2, 3)) -> Run:
    """A run that has every target: an attached readout and a source too."""
    model = sc.random_model(sc.attention_only((2, 2), biases=["b_V"]), seed=3)
    own = model.with_(sc.source("part", np.ones((len(np.ravel(tokens)) // np.ndim(tokens), 16)), layer=1),
                      sc.readout(np.eye(16)[:3], "probe"))  # fmt: skip
    return own.run(np.asarray(tokens))


# ------------------------------------------------------------------------------------------- one rule of ranges
def everything_with_a_range(e: Expansion, run: Run, folder: Path) -> dict[str, Callable[..., list[int]]]:
    """Every method that takes start and stop: the numbers of the terms that it was given."""
    values, there = sc.evaluate(e, run), sc.evaluate(e, run.to(xp))
    file = folder / "terms.csv"

    def numbered(blocks: Iterator[Any]) -> list[int]:
        return [block.start + i for block in blocks for i in range(block.values.shape[0])]

    def exported(**span: Any) -> list[int]:
        e.export(file, "number", **span)
        return [int(line) for line in file.read_text().split()[1:]]

    def counted(workers: Any, **span: Any) -> list[int]:
        start = span.get("start", 0)
        return list(range(start, start + e.census(workers=workers, **span).count))

    return {
        "expansion.blocks": lambda **s: [n for b in e.blocks(4, **s) for n in b.numbers.tolist()],
        "census": lambda **s: counted(None, **s),
        "census by workers": lambda **s: counted(2, **s),
        "export": exported,
        "values.blocks": lambda **s: numbered(values.blocks(size=4, **s)),
        "values.measure": lambda **s: numbered(values.measure(size=4, **s)),
        "values.summary": lambda **s: sorted(n for n, _ in values.summary(top=e.count, **s).largest),
        "tensors.blocks": lambda **s: numbered(there.blocks(size=4, **s)),
        "tensors.measure": lambda **s: numbered(there.measure(size=4, **s)),
    }


WITH_A_RANGE = [
    "expansion.blocks", "census", "census by workers", "export", "values.blocks", "values.measure", "values.summary",
    "tensors.blocks", "tensors.measure",
]  # fmt: skip


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
@pytest.mark.parametrize("method", WITH_A_RANGE)
def test_one_rule_of_ranges(method: str, target: str, tmp_path: Path) -> None:
    run = sc.random_model(sc.attention_only((3, 3)), seed=1).run([1, 2])
    e = expand(run.model.architecture, target)
    assert e.count == 16
    ask = everything_with_a_range(e, run, tmp_path)[method]
    for start, stop in ((0, 16), (0, None), (3, 9), (15, 16), (0, 0), (7, 7), (16, None), (16, 16)):
        assert ask(start=start, stop=stop) == list(range(start, 16 if stop is None else stop))
    assert ask() == list(range(16))
    for start, stop in ((17, None), (0, 17), (17, 17), (5, 3), (16, 0), (10**30, None), (0, 10**30)):
        with pytest.raises(ValueError, match=rf"are not a range of the 16 terms of {target}, counted from 0$"):
            ask(start=start, stop=stop)
    for name in ("start", "stop"):
        for wrong in (-1, 1.5, 2.0, True, "3"):
            with pytest.raises(ValueError, match=f"^{name} must be a whole number, 0 or more, not {wrong!r}$"):
                ask(**{name: wrong})
    none = everything_with_a_range(e.order(7), run, tmp_path)[method]
    assert none() == none(start=0, stop=0) == []
    with pytest.raises(ValueError, match="are not a range of the 0 terms"):
        none(stop=1)


def test_every_method_with_a_range_is_in_that_test(tmp_path: Path) -> None:
    import inspect

    run = sc.random_model(sc.attention_only((1,)), seed=1).run([1])
    e = sc.logits(run.model.architecture)
    assert list(everything_with_a_range(e, run, tmp_path)) == WITH_A_RANGE
    for kind, seen in ((Expansion, {"blocks", "census", "export"}), (Values, {"blocks", "measure", "summary"})):
        public = {n: getattr(kind, n) for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}
        ranged = {n for n, f in public.items() if "start" in inspect.signature(f).parameters}
        assert {n for n in ranged if n not in ("index", "count")} == seen


# --------------------------------------------------------------------------------- sums of what measure gives
@st.composite
def measures(draw: st.DrawFn, max_terms: int = 80) -> tuple[Expansion, Run, Measure]:
    """An expansion, perhaps a selection of it, a run, of one row or of two, and one number a term."""
    arch, target = draw(cases(max_terms=max_terms))
    tokens = draw(st.sampled_from([[1, 2, 3], [0], [[1, 2, 0], [3, 3, 4]]]))
    run = sc.random_model(arch, d_vocab=5, d_model=4, d_head=2, seed=draw(st.integers(0, 20))).run(tokens)
    e = expand(arch, target)
    for chosen in draw(st.lists(selections(arch, target), max_size=2)):
        e = chosen.select(e)
    kind, n = draw(st.sampled_from(kinds_of(target))), np.shape(tokens)[-1]
    row = draw(st.integers(-2, 1)) if np.ndim(tokens) == 2 else None
    return e, run, measure_of(kind, draw(st.integers(-n, n - 1)), row=row)


def by_itself(by: Measure, value: Any, run: Run, e: Expansion) -> float:
    """The number of one term, from its value."""
    wide = np.asarray(value, np.float64)
    if by.kind == "masked norm":
        assert e.readout.head is not None
        wide = wide * run.masks[f"L{e.readout.head.layer}"]
    if "norm" in by.kind:
        return float(np.linalg.norm(wide))
    at = wide[by.position] if by.row is None else wide[by.row, by.position]
    if by.kind == "score entry":
        return float(at[by.key])
    return float(at[by.token] - (0.0 if by.against is None else at[by.against]))


def held_to_each_term(found: Any, e: Expansion, run: Run, k: int) -> None:
    numbers = [by_itself(found.measure, value, run, e) for value in sc.evaluate(e, run)]
    most = max(map(abs, numbers), default=0.0)
    near = 1e-10 * (most + 1e-3)
    assert found.total.count == len(numbers) == e.count
    for one, wanted in ((found.total.total, sum(numbers)), (found.total.absolute, sum(map(abs, numbers)))):
        assert abs(one - wanted) <= near * (1 + len(numbers))
    for name, key in (("by_order", lambda t: t.order), ("by_composition", lambda t: t.composition)):
        groups: dict[Any, list[float]] = {}
        for term, number in zip(e, numbers, strict=True):
            groups.setdefault(key(term), []).append(number)
        given = getattr(found, name)()
        assert {k: s.count for k, s in given.items()} == {k: len(v) for k, v in groups.items()}
        for k_, values in groups.items():
            assert abs(given[k_].total - sum(values)) <= near * (1 + len(values))
            assert abs(given[k_].absolute - sum(map(abs, values))) <= near * (1 + len(values))
    both: dict[Any, list[float]] = {}
    for term, number in zip(e, numbers, strict=True):
        both.setdefault((term.orders, term.composition), []).append(number)
    assert {k: s.count for k, s in found.sums.items()} == {k: len(v) for k, v in both.items()}
    for k_, values in both.items():
        assert abs(found.sums[k_].total - sum(values)) <= near * (1 + len(values))
    assert len(found.largest) == min(k, e.count)
    sizes = [abs(size) for _, size in found.largest]
    assert np.allclose(sizes, sorted(map(abs, numbers), reverse=True)[: len(sizes)], rtol=0, atol=near)
    assert all(abs(size - numbers[i]) <= near for i, size in found.largest)


@examples(60, suppress_health_check=[HealthCheck.too_slow])  # models are run where they are drawn
@given(measures(), st.sampled_from([None, 1, 2]), st.integers(0, 9), st.integers(1, 30))
def test_a_summary_is_what_measure_gives_summed(case: Any, workers: int | None, k: int, piece: int) -> None:
    e, run, by = case
    values = sc.evaluate(e, run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "FEWEST", piece)
        patch.setattr(summaries, "LOOK", 1 + piece // 3)
        found = values.summary(by, top=k, workers=workers)
    held_to_each_term(found, e, run, k)
    numbers = np.concatenate([b.values.reshape(len(b.values), -1) for b in values.measure(found.measure)] or [[]])
    if numbers.size and np.shape(numbers)[1] == 1:  # of one row: the very same numbers
        order = sorted(range(len(numbers)), key=lambda i: (-abs(float(numbers[i, 0])), i))[:k]
        alike = [(i, pytest.approx(float(numbers[i, 0]), rel=1e-9, abs=1e-12)) for i in order]
        if not e.readout.bilinear:  # of scores the last digits may differ by what is multiplied together
            alike = [(i, float(numbers[i, 0])) for i in order]
            assert list(found.largest) == alike


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("target", "kind"), [
    ("logits", "norm"), ("logits", "logit difference"), ("scores:L2H1", "masked norm"), ("scores:L1H0", "score entry"),
])  # fmt: skip
@pytest.mark.sampled(4)
def test_processes_sum_up_the_same(target: str, kind: str, batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "FEWEST", 11)
    model = sc.load(MODEL)
    run = model.run([[1, 2, 3], [4, 5, 6]] if batch else [1, 2, 3])
    e = expand(model.architecture, target)
    by = measure_of(kind, -1, **({} if "norm" in kind else {"row": 1 if batch else None}))
    alone, there = (sc.evaluate(e, run).summary(by, workers=w) for w in (None, processes(2)))
    assert (alone.largest, dict(alone.sums), alone.measure) == (there.largest, dict(there.sums), there.measure)
    held_to_each_term(there, e, run, 20)


# ---------------------------------------------------------------------------------------------------- refusals
GIVEN = {
    "norm": sc.norm(), "masked norm": sc.norm(masked=True), "logit": sc.logit(1),
    "difference": sc.logit(1, against=0), "centred": sc.logit(1, against="mean"), "entry": sc.score_entry(2, 0),
}  # fmt: skip
HAVE = {
    "logits": {"norm", "logit", "difference", "centred"}, "stream": {"norm"},
    "readout:probe": {"norm", "logit", "difference"},
    "scores:L1H0": {"norm", "masked norm", "entry"},
}  # fmt: skip
ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "measure": lambda values, by: list(values.measure(by)),
    "summary": lambda values, by: values.summary(by),
    "largest": lambda values, by: values.largest(2, by),
    "sample": lambda values, by: values.sample(5, by),
    "sum_of_squares": lambda values, by: values.sum_of_squares(by),
}


@pytest.mark.parametrize("method", ASKED)
@pytest.mark.parametrize("target", HAVE)
def test_every_kind_on_every_target(target: str, method: str) -> None:
    run = attached()
    values = sc.evaluate(expand(run.model.architecture, target), run)
    for kind, by in GIVEN.items():
        if kind in HAVE[target]:
            assert ASKED[method](values, by)
            continue
        with pytest.raises(ValueError, match=rf"^terms of {target} are not measured by sc\..*: choose sc\.norm\(\)"):
            ASKED[method](values, by)
    for wrong in ("norm", 3, sc.norm, KINDS["norm"]):
        with pytest.raises(TypeError, match=r"^by must be a measure \(sc\.norm\(\), sc\.logit"):
            ASKED[method](values, wrong)


def test_what_does_not_exist_is_refused_by_every_method() -> None:
    run = attached()
    ends = {t: sc.evaluate(expand(run.model.architecture, t), run) for t in HAVE}
    width = run.logits.shape[-1]  # type: ignore[union-attr]
    for target, by, said in (
        ("logits", sc.logit(width), f"token {width} does not exist: there are {width}, counted from 0"),
        ("logits", sc.logit(-1), "token -1 does not exist"),
        ("logits", sc.logit(0, against=width), f"the token against {width} does not exist"),
        ("logits", sc.logit(0, against=-1), "the token against -1 does not exist"),
        ("logits", sc.logit(2, against=2), "the difference of the logit of token 2 with itself is 0; choose two"),
        ("logits", sc.logit(0, position=3), "position 3 does not exist: there are 3"),
        ("logits", sc.logit(0, position=-4), "position -4 does not exist"),
        ("logits", sc.logit(0, row=1), "row 1 does not exist: there is 1"),
        ("readout:probe", sc.logit(3), "direction 3 does not exist: there are 3"),
        ("readout:probe", sc.logit(0, against=3), "the direction against 3 does not exist"),
        ("readout:probe", sc.logit(1, against=1), "the difference of direction 1 with itself is 0"),
        ("scores:L1H0", sc.score_entry(3, 0), "position 3 does not exist"),
        ("scores:L1H0", sc.score_entry(0, 3), "key 3 does not exist"),
        ("scores:L1H0", sc.score_entry(0, 0, row=-2), "row -2 does not exist"),
    ):
        for ask in ASKED.values():
            with pytest.raises(ValueError, match=f"^{said}"):
                ask(ends[target], by)
        with pytest.raises(ValueError, match=f"^{said}"):
            sc.evaluate(ends[target].expansion, run.to(xp)).measure(by)
    for method, ask in ASKED.items():  # one entry before the mask is a number for every term, and no part of anything
        if method == "measure":
            assert ask(ends["scores:L1H0"], sc.score_entry(0, 2))
            continue
        with pytest.raises(ValueError, match="query 0 does not see key 2: the mask leaves no score there"):
            ask(ends["scores:L1H0"], sc.score_entry(0, 2))


def test_rows_of_a_batch() -> None:
    run = attached([[1, 2, 3], [4, 5, 6]])
    ends = {t: sc.evaluate(expand(run.model.architecture, t), run) for t in HAVE}
    for target, by in (
        ("logits", sc.logit(1)),
        ("readout:probe", sc.logit(1, 0)),
        ("scores:L1H0", sc.score_entry(2, 0)),
    ):
        [whole] = ends[target].measure(by)
        assert whole.values.shape == (ends[target].expansion.count, 2)
        for row in (0, 1, -1, -2):
            one = Measure(kind=by.kind, row=row, position=by.position, key=by.key, token=by.token, against=by.against)
            [block] = ends[target].measure(one)
            assert np.array_equal(block.values, whole.values[:, row])
            for name in ("summary", "largest", "sample", "sum_of_squares"):
                ASKED[name](ends[target], one)
            assert ends[target].summary(one).measure.row == row % 2
        for name in ("summary", "largest", "sample", "sum_of_squares"):
            with pytest.raises(ValueError, match=r"^row is required: the run is a batch of 2 rows"):
                ASKED[name](ends[target], by)
    for row in (2, -3):
        for ask in ASKED.values():
            with pytest.raises(ValueError, match=f"^row {row} does not exist: there are 2"):
                ask(ends["logits"], sc.logit(1, row=row))
    with pytest.raises(ValueError, match=r"^token is required for all rows of a batch"):
        ends["logits"].measure(sc.logit())
    with pytest.raises(ValueError, match=r"^against is required for all rows"):
        ends["logits"].measure(sc.logit(1, against="second"))
    with pytest.raises(ValueError, match="key is required for all rows of a batch"):
        ends["scores:L1H0"].measure(sc.score_entry(2))
    assert ends["logits"].summary(sc.norm()).total.count == ends["logits"].expansion.count


@pytest.mark.parametrize("wrong", [True, False, 1.0, 0.5, "1", [1], float("nan")])
def test_what_is_not_a_whole_number_is_refused_where_it_is_said(wrong: Any) -> None:
    for make, names in ((sc.logit, ("token", "against", "position", "row")), (sc.score_entry, ("query", "key", "row"))):
        for name in names:
            with pytest.raises(ValueError, match=f"^{name} must be a whole number, not "):
                make(**{name: wrong})  # type: ignore[operator]
    if not isinstance(wrong, bool):
        with pytest.raises(ValueError, match=r"^masked must be True or False, not "):
            sc.norm(masked=wrong)


def test_what_was_filled_in_once_is_not_taken_for_something_else() -> None:
    """True is 1 to a table of what is known, and no token."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([[1, 2, 3], [4, 5, 6]])
    logits = sc.logits(run.model)
    found = sc.logit(1, against=2, position=1, row=1).on(logits, run)
    assert (found.token, found.against, found.position, found.row) == (1, 2, 1, 1)
    for name, value in (("token", True), ("against", 2.0), ("position", True), ("row", True)):
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            replace(sc.logit(1, against=2, position=1, row=1), **{name: value}).on(logits, run)
    one = sc.random_model(sc.attention_only((2, 2)), seed=1, d_vocab=2).run([1, 0])
    with pytest.raises(ValueError, match="token 2 does not exist: there are 2"):
        sc.logit(2).on(sc.logits(one.model), one)
    assert sc.logit(1).on(logits, run).position == 2
    assert sc.logit(1).on(sc.logits(one.model), one).position == 1


def test_all_terms_are_meant_where_no_range_is_said() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=0).run([1, 2, 3])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    (found,) = measured.measure(values)
    (said,) = values.measure()
    assert found.start == said.start == 0
    assert np.array_equal(found.values, said.values)
    assert len(found.values) == 9


def test_the_last_position_is_meant_where_none_is_said() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=0).run([1, 2, 3, 4])
    arch = run.model.architecture
    assert sc.logit(1).on(sc.logits(arch), run).position == 3
    assert sc.logit(1, position=-3).on(sc.logits(arch), run).position == 1
    assert sc.score_entry(key=0).on(sc.scores(arch, "L1H0"), run).position == 3
    assert Measure(kind="logit", token=1).on(sc.logits(arch), run).position == 3


def test_what_is_left_open_is_filled_in() -> None:
    run = attached()
    first, second = (int(i) for i in np.argsort(-run.logits[1])[:2])  # type: ignore[index]
    e = sc.logits(run.model.architecture)
    found = sc.logit(against="second", position=-2).on(e, run)
    assert (found.kind, found.position, found.token, found.against) == ("logit difference", 1, first, second)
    assert str(found) == f"part in logit[{first}] - logit[{second}] at position 1"
    assert sc.logit(first, "second", position=1).on(e, run).against == second
    assert sc.logit(second, "second", position=1).on(e, run).against == first
    score = sc.score_entry().on(sc.scores(run.model.architecture, "L1H0"), run)
    assert (score.position, score.key) == (2, int(np.argmax(np.abs(run.patterns["L1H0"][2]))))
    direction = sc.logit().on(expand(run.model.architecture, "readout:probe"), run)
    assert (direction.kind, direction.token) == ("direction", int(np.argmax(np.abs(run.readouts["probe"][-1]))))


# --------------------------------------------------------------------------------------- the largest, explained
@st.composite
def explained(draw: st.DrawFn) -> tuple[Values, Measure, int, str]:
    """Values of what is taken apart, what is looked at, how many terms and by what they are sorted."""
    tokens = draw(st.sampled_from([[1, 2, 3], [[1, 2, 3], [4, 0, 2]]]))
    own = draw(st.booleans())
    if own:
        run = attached(tokens)
    else:
        arch = draw(cases(max_terms=60).filter(lambda case: case[1] == "logits"))[0]
        run = sc.random_model(arch, d_vocab=5, d_vocab_out=4, d_model=4, d_head=2, seed=draw(st.integers(0, 9))).run(
            tokens
        )
    name = draw(st.sampled_from(["probe", ""])) if own else ""
    e = expand(run.model.architecture, f"readout:{name}" if name else "logits")
    row = draw(st.integers(0, 1)) if np.ndim(tokens) == 2 else None
    token, against = draw(st.permutations(range(3)))[:2]
    chosen = draw(st.sampled_from([None, against]))
    by = sc.logit(token, chosen, position=draw(st.integers(0, 2)), row=row).on(e, run)
    sort = draw(st.sampled_from(["norm", "contribution"] + (["difference"] if chosen is not None else [])))
    return sc.evaluate(e, run), by, draw(st.integers(0, 12)), sort


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(explained(), st.integers(1, 40))
def test_the_largest_of_an_explanation_are_those_of_brute_force(case: Any, size: int) -> None:
    values, by, k, sort = case
    told: list[tuple[str, int, int]] = []
    with pytest.MonkeyPatch.context() as patch:  # in blocks of any size
        whole = measured.measure
        patch.setattr(measured, "measure", lambda v, one, **how: whole(v, one, **how | {"size": size}))
        found = largest(values, by, k, sort, lambda *said: told.append(said))
    brute = []
    for i, value in enumerate(values):
        at = value[by.position] if by.row is None else value[by.row, by.position]
        one = {"norm": float(np.linalg.norm(value)), "contribution": float(at[by.token])}
        if by.against is not None:
            one["difference"] = float(at[by.token] - at[by.against])
        brute.append((i, one))
    near = 1e-10 * (1e-3 + max(abs(v) for _, one in brute for v in one.values()))
    assert len(found) == min(k, len(brute))
    sizes = [getattr(one, sort) for one in found]
    wanted = sorted((abs(one[sort]) for _, one in brute), reverse=True)[:k]
    assert np.allclose(np.abs(sizes), wanted, rtol=0, atol=near)
    for one in found:
        numbers = brute[values.expansion.index(one.term)][1]
        for name in ("norm", "contribution", "difference"):
            assert (getattr(one, name) is None) == (name not in numbers), name
            assert name not in numbers or abs(getattr(one, name) - numbers[name]) <= near
    assert told[-1] == ("terms", len(brute), len(brute))
    assert [done for _, done, _ in told] == sorted({*range(size, len(brute), size), len(brute)})


def test_ties_keep_the_order_of_the_terms() -> None:
    """Heads that write nothing: all terms through them are 0, whatever they are sorted by."""
    arch = sc.attention_only((2, 2))
    model = sc.random_model(arch, seed=2)
    weights = {n: np.zeros_like(w) if n.startswith("W_O") else w for n, w in model.weights.items()}
    run = sc.Model(arch, weights, model.score_scale).run([1, 2, 3])
    values = sc.evaluate(sc.logits(arch), run)
    for sort in ("norm", "contribution", "difference"):
        found = largest(values, sc.logit(1, 0, position=2), 6, sort)
        assert [values.expansion.index(one.term) for one in found] == list(range(6))
    for by in (sc.norm(), sc.logit(1), sc.logit(1, against=0)):
        assert [i for i, _ in values.summary(by, top=6).largest] == list(range(6))


# ------------------------------------------------------------------------------------------------- the top k
NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0]), st.floats(-1e300, 1e300))


@examples(200)
@given(
    st.lists(NUMBERS, max_size=60) | st.lists(NUMBERS, min_size=12, max_size=30),
    st.integers(0, 8) | st.integers(0, 70),
    st.lists(st.integers(0, 60), max_size=5),
    st.sampled_from([1, 2, 3, 64]),
)
def test_top_is_what_sorting_gives(numbers: list[float], k: int, cuts: list[int], group: int) -> None:
    """However many numbers are looked at for their largest first."""
    wanted = sorted(enumerate(numbers), key=lambda one: (-abs(one[1]), one[0]))[:k]
    places = sorted({0, *(c for c in cuts if c < len(numbers)), len(numbers)})
    blocks = [(a, np.array(numbers[a:b])) for a, b in itertools.pairwise(places)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_module, "_GROUP", group)
        assert list(top(blocks, k)) == wanted
        assert list(joined(k, *(top([block], k) for block in reversed(blocks)))) == wanted


@pytest.mark.parametrize("group", [1, 3, 5, 64])
def test_top_of_many_numbers_with_ties_and_some_left_over(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_module, "_GROUP", group)
    numbers = np.random.default_rng(0).integers(-20, 20, 64 * 9 + 7).astype(float)
    numbers[-2] = 21.0  # among those that fill no group
    wanted = sorted(enumerate(numbers.tolist(), 100), key=lambda one: (-abs(one[1]), one[0]))
    for k in (0, 1, 2, 3, 30, len(numbers) - 1, len(numbers), len(numbers) + 1):
        assert list(top([(100, numbers)], k)) == wanted[:k]


# --------------------------------------------------------------------------- where a statistic of terms is added
def largest_entries(values: Values, by: Measure) -> Ranges:
    """The largest absolute entry of each term: one function over blocks."""
    found = (np.abs(block).max((-2, -1)).reshape(len(block), -1) for block in arrays(values))
    whole = np.concatenate(list(found))

    def numbers(terms: range, span: Span) -> Iterator[Any]:
        span.enter()  # what lies before is given too
        return iter([whole])

    return numbers


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_a_statistic_is_a_function_and_two_rows(target: str, batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = target.partition(":")[0]
    monkeypatch.setitem(KINDS, "largest entry", Kind((here,), "Measure(kind='largest entry')", "largest entry"))
    monkeypatch.setitem(MEASURES, "largest entry", Reduction("the largest entry", largest_entries))
    run = attached([[1, 2, 3], [4, 5, 6]] if batch else [1, 2, 3])
    e, by = expand(run.model.architecture, target), Measure(kind="largest entry")
    values = sc.evaluate(e, run)
    wanted = np.array([np.abs(value).max((-2, -1)) for value in values])
    blocks = list(values.measure(by, size=5))
    assert [b.start for b in blocks] == list(range(0, e.count, 5))
    np.testing.assert_allclose(np.concatenate([b.values for b in blocks]), wanted, rtol=1e-12)
    monkeypatch.setattr(summaries, "FEWEST", 4)
    sizes = np.sqrt((wanted**2).sum(-1)) if batch else wanted
    for workers in (None, 2):
        found = values.summary(by, top=3, workers=workers)
        assert found.total.absolute == pytest.approx(float(sizes.sum()), rel=1e-12)
        assert [i for i, _ in found.largest] == np.argsort(-sizes, kind="stable")[:3].tolist()
        assert "largest entry" in found.text()
        assert found.json()["measure"]["kind"] == "largest entry"
    for ask in (values.largest, values.sample, values.sum_of_squares):
        with pytest.raises(ValueError, match=r"^sizes by Measure\(kind='largest entry'\) have no bounds"):
            ask(by=by)
    other = sc.evaluate(sc.stream(run.model.architecture), run)
    with pytest.raises(
        ValueError, match=r"terms of stream are not measured by Measure\(kind='largest entry'\): choose"
    ):
        other.measure(by)


def test_every_kind_has_its_two_rows() -> None:
    assert list(KINDS) == list(MEASURES)
    run = attached()
    for target in HAVE:
        assert set(kinds_of(target)) == {by.on(expand(run.model.architecture, target), run).kind
                                         for kind, by in GIVEN.items() if kind in HAVE[target]}  # fmt: skip
