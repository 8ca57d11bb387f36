"""The commands sample and summary: the numbers of the library, budgets that hold, and what is refused."""

import importlib
import json
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jobs import marks
from test_cli import Cli, cli

import symcircuits as sc
from symcircuits.core import budgets
from symcircuits.search import largest as ranking
from symcircuits.search import squares as square_sums
from symcircuits.values import summary as measured
from symcircuits.values.evaluate import Values
from symcircuits.verification import verify as verification
from symcircuits.work import pools
from symcircuits.work.pools import OutOfTime
from symcircuits.work.workers import WorkerPool, processes
from symcircuits.zoo import path

__all__ = ["cli"]  # a fixture
pytestmark = pytest.mark.usefixtures("limited")
explanation = importlib.import_module("symcircuits.explanation.explain")
TOKENS = [0, 7, 19, 3, 11, 26, 7, 19, 3, 11]
WORDS = (str(path()), "--tokens", ",".join(map(str, TOKENS)))
DEEP = sc.attention_only((12,) * 12)


def selected() -> tuple[Any, Any]:
    model = sc.load(path())
    return model, sc.scores(model.architecture, "L1H0")


def test_sample_is_that_of_the_library(cli: Cli) -> None:
    model, e = selected()
    by = sc.score_entry(6, 2)
    words = ["--target", "scores:L1H0", "--by", "score entry", "--position", "6", "--key", "2", "--seed", "3"]
    for weights in ("bound", "uniform"):
        ran = cli("sample", *WORDS, *words, "--draws", "70", "--weights", weights, "--json")
        found = sc.evaluate(e.through("L0H2"), model.run(TOKENS)).sample(70, by, seed=3, weights=weights)
        assert ran.code == 0
        some = cli("sample", *WORDS, *words, "--draws", "70", "--weights", weights, "--through", "L0H2", "--json")
        told = json.loads(some.out)
        assert (told["estimate"], told["error"], told["draws"]) == (found.estimate, found.error, 70)
        assert (told["schema"], told["reached"], told["bound"]) == ("symcircuits.sample/1", None, None)
        assert (told["count"], json.loads(ran.out)["count"]) == (len(e.through("L0H2")), 25)
        assert sum(t["times"] for t in found.json(top=100)["terms"]) == 70
        largest = told["terms"][0]
        assert largest["size"] == found.sizes.max()
        assert abs(sc.evaluate(e, model.run(TOKENS)).value(_labelled(e, largest["label"]))[6, 2]) == pytest.approx(
            largest["size"]
        )


def _labelled(e: Any, label: str) -> Any:
    return next(t for t in e if t.label == label)


def test_sizes_are_those_of_the_library(cli: Cli) -> None:
    model, e = selected()
    words = ["--target", "scores:L1H0", "--top", "3", "--json"]
    found = sc.evaluate(e, model.run(TOKENS)).summary(top=3)
    told = json.loads(cli("summary", *WORDS, *words).out)
    assert [(t["number"], t["size"]) for t in told["terms"]] == list(found.largest)
    assert told["total"] == {"count": 25, "total": found.total.total, "absolute": found.total.absolute}
    assert (told["start"], told["stop"], told["reached"]) == (0, 25, None)
    assert {k: v["count"] for k, v in told["by_composition"].items()} == e.counts_by_composition()
    assert cli("summary", *WORDS, *words, "--workers", "2").out == cli("summary", *WORDS, *words).out
    part = cli("summary", *WORDS, *words, "--start", "4", "--max-terms", "7", "--workers", "1")
    assert part.code == 3
    part_told = json.loads(part.out)
    assert (part_told["start"], part_told["stop"], part_told["reached"]) == (4, 11, "max_terms (7)")


@pytest.mark.parametrize("width", [60, 100])
def test_what_is_printed_fits_its_width(width: int) -> None:
    model, e = selected()
    run = model.run(TOKENS)
    texts = [
        sc.evaluate(e, run).sample(50, sc.score_entry(key=0)).text(width),
        sc.evaluate(e, run).sample(5, weights="uniform", max_seconds=0).text(width),
        sc.evaluate(sc.logits(model.architecture), run).sample(50, sc.logit(against="second")).text(width),
        sc.evaluate(e, model.run(TOKENS)).summary(sc.score_entry(), max_terms=9).text(width),
        sc.evaluate(e, model.run(TOKENS)).summary(max_terms=0).text(width),
    ]
    assert max(len(line) for text in texts for line in text.split("\n")) <= width
    said = [" ".join(t.split()) for t in texts]
    assert "nothing was drawn, so nothing is known" in said[1]
    assert "proved: it is at most" in said[2]
    assert "9 terms examined one by one: numbers 0 to 8, of 25" in said[3]
    assert "max_terms (9) reached; start 9 continues from there" in said[3]


# ------------------------------------------------------------------------------------------------- budgets
def ticking(step: float) -> Any:
    """A clock that goes on by so much with each look, whatever else the machine does; far from any other clock."""
    times = count(time.monotonic() + 10**6, step)
    return SimpleNamespace(monotonic=lambda: next(times))


def test_time_ends_the_draws_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sc.random_model(DEEP, d_model=24, d_head=4, seed=1).run([3, 1, 4, 1])
    monkeypatch.setattr(budgets, "time", ticking(0.01))
    found = sc.evaluate(sc.logits(DEEP), run).sample(10**6, max_seconds=1.94)
    assert 40 < len(found.terms) < 60  # a look before each, after one for each head
    assert found.reached == "max_seconds (1.94)"
    assert len(found.sizes) == len(found.chances) == len(found.terms)
    assert found.terms == sc.evaluate(sc.logits(DEEP), run).sample(len(found.terms)).terms


def test_time_is_for_bounds_and_estimates_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that is so slow that there is no time for anything, nothing is proved, and that is said."""
    run = sc.random_model(DEEP, d_model=24, d_head=4, seed=1).run([3, 1, 4, 1])
    found = sc.evaluate(sc.logits(DEEP), run).largest(5, sc.norm(), max_seconds=0)
    assert (found.terms, found.exact, found.certain, found.reached) == ((), False, 0, "max_seconds (0)")
    assert (found.bound, found.open, found.looked) == (float("inf"), 13**12, 0)
    assert found.total == pytest.approx(float(np.linalg.norm(run.logits)))
    said = " ".join(found.text().split())
    assert "nothing is proved: the search ended at max_seconds (0), before any bound was known" in said
    assert "the sum of the squares of all terms was not estimated: out of time" in said
    assert json.loads(json.dumps(found.json(), allow_nan=False))["squares"]["value"] is None
    drawn = sc.evaluate(sc.logits(DEEP), run).sample(5, max_seconds=0)
    assert (drawn.terms, drawn.bound, drawn.reached) == ((), float("inf"), "max_seconds (0)")
    signed = square_sums._signed_sums

    def slow(*given: Any) -> Any:
        time.sleep(0.6)
        return signed(*given)

    monkeypatch.setattr(square_sums, "_signed_sums", slow)
    monkeypatch.setattr(square_sums, "_BLOCK_BYTES", 1)
    found = sc.evaluate(sc.logits(DEEP), run).largest(5, moments=False, max_seconds=3)
    assert found.terms
    assert 2 * found.squares.error > 0  # of fewer samples than otherwise
    assert found.seconds < 10 < 0.6 * 32


def test_draws_that_do_not_fit_in_memory_are_refused_before_any() -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1).run([1, 2])
    with pytest.raises(ValueError, match="draws need about 9,536,743,164 MiB"):
        sc.evaluate(sc.logits(run.model.architecture), run).sample(10**13)
    with pytest.raises(ValueError, match=r"3 draws need about 0\.00286 MiB, and max_memory is 0\.00286 MiB"):
        sc.evaluate(sc.logits(run.model.architecture), run).sample(3, max_memory=2999)


@pytest.mark.parametrize("workers", [None, 2, "processes"])
def test_time_ends_sizes_wherever_they_are_made(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges come again and again: work for hours."""
    model = sc.load(path())
    e = sc.logits(model.architecture)
    monkeypatch.setattr(measured, "_tasks", _many(measured._tasks))
    made = processes(1) if workers == "processes" else workers
    values = sc.evaluate(e, model.run(TOKENS))
    seconds = 3 if workers == "processes" else 0.5  # a process takes its time to start
    found = values.summary(max_seconds=seconds, workers=made)
    assert found.reached == f"max_seconds ({seconds})"
    assert found.total.count == found.stop
    assert found.total.count % 16 == 0


def _many(tasks: Any) -> Any:
    """The same ranges without end."""

    def made(source: Any, start: int, stop: int, top: int) -> Any:
        for _ in range(10**7):
            yield from tasks(source, start, stop, top)

    return made


def test_a_range_that_is_slow_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, e = selected()
    pieces = Values.quiet

    def slow(values: Values, found: Any) -> Any:
        for piece in pieces(values, found):
            time.sleep(0.3)
            yield piece

    monkeypatch.setattr(Values, "quiet", slow)
    found = sc.evaluate(e, model.run(TOKENS)).summary(max_seconds=0.1)
    assert (found.total.count, found.stop, found.reached) == (0, 0, "max_seconds (0.1)")


DAY = 86_400.0


def set_ahead(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how much the clock of those who wait is set ahead."""
    ahead, clock = [0.0], time.monotonic
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: clock() + ahead[0], sleep=time.sleep))
    return ahead


def test_nobody_is_waited_for_when_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up once the first result is there; the other task would take ten minutes."""
    ahead = set_ahead(monkeypatch)
    short, long = str(tmp_path / "short"), str(tmp_path / "long")
    with WorkerPool(processes(1)) as crew:
        results = crew.results(marks, [("short", (0, short)), ("long", (600, long))], time.monotonic() + DAY)
        assert next(results) == short
        ahead[0] = 2 * DAY
        with pytest.raises(OutOfTime):
            next(results)
    assert not Path(long).exists()


def test_no_thread_is_waited_for_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, gate, done = set_ahead(monkeypatch), Event(), list[str]()

    def wait(name: str) -> str:
        if name == "long":
            gate.wait(600)
        done.append(name)
        return name

    try:
        with WorkerPool(partial(ThreadPoolExecutor, 1)) as crew:
            results = crew.results(wait, [("one", "short"), ("two", "long")], time.monotonic() + DAY)
            assert next(results) == "short"
            ahead[0] = 2 * DAY
            with pytest.raises(OutOfTime):
                next(results)
        assert done == ["short"]
    finally:
        gate.set()


def test_a_summary_needs_no_more_memory_for_more_terms() -> None:
    """A piece at a time: of all million terms no more than of a quarter of them."""
    run = sc.random_model(sc.attention_only((9, 9, 9, 9)), d_vocab=11, d_model=8, d_head=2, seed=1).run([1, 2, 3])
    values, peaks = sc.evaluate(sc.scores(run.model.architecture, "L3H0"), run), list[int]()
    values.summary(stop=10)  # what is imported for it is not of the terms
    for stop in (250_000, 10**6):
        tracemalloc.start()
        assert values.summary(stop=stop).total.count == stop
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


# ------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("sample", ["--draws", "10000000000000"], "10,000,000,000,000 draws need about"),
        ("sample", ["--draws", "-1"], "--draws: must be"),
        ("sample", ["--max-seconds", "-1"], "--max-seconds: must be"),
        ("sample", ["--max-memory", "-1"], "--max-memory: must be"),
        ("sample", ["--max-memory", "nan"], "--max-memory: must be"),
        ("sample", ["--weights", "size"], "invalid choice"),
        ("sample", ["--by", "loudness"], "unknown measure --by 'loudness': choose norm, 'masked norm', logit, "),
        ("summary", ["--max-seconds", "nan"], "--max-seconds: must be"),
        ("summary", ["--max-terms", "-1"], "--max-terms: must be"),
        ("summary", ["--max-memory", "1MB"], "summary does not take --max-memory; terms, largest and sample do"),
        ("summary", ["--top", "-1"], "--top: must be"),
        ("summary", ["--workers", "0"], "--workers: must be a whole number, 1 or more"),
    ],
)
def test_the_commands_refuse(command: str, words: list[str], said: str, cli: Cli) -> None:
    ran = cli(command, *WORDS, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("command", ["largest", "sample", "summary"])
@pytest.mark.parametrize(
    ("by", "without"),
    [
        ("norm", "row position token against key"),
        ("masked norm", "row position token against key"),
        ("logit", "against key"),
        ("logit difference", "key"),
        ("score entry", "token against"),
    ],
)
def test_options_without_effect_are_refused(command: str, by: str, without: str, cli: Cli) -> None:
    target = ["--target", "scores:L1H0"] if by in ("masked norm", "score entry") else []
    for name in without.split():
        ran = cli(command, *WORDS, *target, "--by", by, f"--{name}", "0")
        assert (ran.code, ran.out) == (2, "")
        assert f"--{name} has no effect with --by {by!r}" in ran.err
    for name in {"row", "position", "token", "against", "key"} - set(without.split()):
        number = "9" if name == "position" else "0"
        assert cli(command, *WORDS, *target, "--by", by, f"--{name}", number).code in (0, 1, 3)


@pytest.mark.parametrize("command", ["largest", "sample", "summary"])
def test_an_empty_target_is_none(command: str, cli: Cli) -> None:
    """It is refused, as other commands do, and not read as the logits."""
    ran = cli(command, *WORDS, "--target", "")
    assert (ran.code, ran.out) == (2, "")
    assert "unknown target ''" in ran.err


def test_what_is_attached_is_not_sent(cli: Cli, tmp_path: Path) -> None:
    probe = tmp_path / "probe.npy"
    np.save(probe, np.ones(48))
    words = ["summary", *WORDS, "--readout", str(probe), "--by", "direction", "--top", "1", "--json"]
    assert json.loads(cli(*words).out)["of"] == "readout:probe"
    ran = cli(*words, "--workers", "2")
    assert ran.code == 2
    assert "workers in other processes read the model from its file" in ran.err
    assert json.loads(cli("sample", *words[1:-3], "--json").out)["of"] == "readout:probe"


def test_a_budget_that_ends_the_work_exits_3(cli: Cli) -> None:
    ran = cli("largest", *WORDS, "--max-seconds", "0")
    assert ran.code == 3
    assert "the search ended at --max-seconds (0)" in " ".join(ran.out.split())


# --------------------------------------------------------------------------------- 10^13 rows are never begun
MANY = 10**13


def test_lists_of_very_many_terms_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sc.random_model(DEEP, d_model=24, d_head=4, seed=1).run([3, 1, 4, 1])
    e = sc.logits(DEEP)
    for module, work in ((ranking, "trees"), (measured, "_tasks"), (explanation, "largest"), (verification, "_run")):
        monkeypatch.setattr(module, work, lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(ValueError, match=r"the 10,000,000,000,000 largest terms need about 9,536,743,164 MiB"):
        sc.evaluate(e, run).largest(MANY)
    with pytest.raises(ValueError, match=r"23,298,085,122,481 terms are too many to look at one by one"):
        sc.evaluate(e, run).summary()
    with pytest.raises(ValueError, match=r"the 1,000,001 largest are too many to list"):
        sc.evaluate(e, run).summary(top=10**6 + 1, max_terms=10**7)
    with pytest.raises(OverflowError, match=r"of logits are too many to look at one by one: give a smaller max_terms"):
        sc.explain(run.model, [3, 1, 4, 1], max_terms=10 * MANY)
    with pytest.raises(OverflowError, match=r"23,298,085,122,481 terms of logits are too many to list"):
        sc.verify(DEEP, targets=["logits"], max_terms=10 * MANY)
    monkeypatch.undo()
    few = sc.evaluate(e, run).largest(3, max_memory=0, max_expansions=2)
    assert len(few.terms) <= 3  # a few are listed in any case
