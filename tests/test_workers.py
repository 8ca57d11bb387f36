"""Work split over threads, processes and a Dask cluster: the same to the last bit, and whoever dies is replaced."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import dies_at_three, dies_once, lacks, wrong
from test_cli import Cli, cli

import symcircuits as sc
from symcircuits.loaders import by_path as model_file
from symcircuits.loaders.by_path import ModelFile
from symcircuits.work import workers
from symcircuits.work.workers import WorkerDied, WorkerPool, pairwise, processes

__all__ = ["cli"]  # a fixture
pytestmark = pytest.mark.usefixtures("limited")
ROOT = Path(__file__).parent.parent
MODEL = ROOT / "tests" / "data" / "tl_3layer_s11"
PROMPTS = [[i % 5, (i * 3) % 7, i % 4][: 1 + i % 3] for i in range(24)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return sc.explain_many(str(MODEL), PROMPTS).json()


# -------------------------------------------------------------------------------------------------- any number
@pytest.mark.parametrize("number", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_bits(number: int, alone: dict[str, Any]) -> None:
    assert sc.explain_many(str(MODEL), PROMPTS, workers=number).json() == alone
    assert sc.explain_many(sc.load(MODEL), PROMPTS, workers=number).json() == alone


@pytest.mark.parametrize("number", [1, 2])
def test_any_number_of_processes_gives_the_same_bits(number: int, alone: dict[str, Any]) -> None:
    assert sc.explain_many(MODEL, PROMPTS, workers=processes(number)).json() == alone


class Backwards:
    """An executor of one's own, with nothing but submit: work is done late, the last that was sent first."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.sizes: list[int] = []

    def submit(self, work: Callable[[Any], Any], task: Any) -> Any:
        import pickle

        sent = pickle.dumps((work, task))
        self.sizes.append(len(sent))
        future: Late = Late(self, sent)
        self.waiting.append(future)
        return future


class Late(Future):  # type: ignore[type-arg]
    def __init__(self, pool: Backwards, sent: bytes) -> None:
        super().__init__()
        self.pool, self.sent = pool, sent

    def result(self, timeout: float | None = None) -> Any:
        import pickle

        while self.pool.waiting:
            one = self.pool.waiting.pop()
            work, task = pickle.loads(one.sent)
            one.set_result(work(task))
        return super().result(timeout)


def test_anything_with_submit_will_do_and_is_sent_no_arrays(alone: dict[str, Any]) -> None:
    pool = Backwards()
    assert sc.explain_many(MODEL, PROMPTS, workers=pool).json() == alone
    assert len(pool.sizes) == 6
    assert max(pool.sizes) < 2000 < (MODEL / "model.safetensors").stat().st_size


def joblib() -> Any:
    return pytest.importorskip("joblib", reason="joblib is not installed: its back ends are not tested")


def test_loky_is_an_executor_too(alone: dict[str, Any]) -> None:
    loky = joblib().externals.loky
    pool = partial(loky.get_reusable_executor, 2, env={"PYTHONPATH": str(ROOT)})
    assert sc.explain_many(MODEL, PROMPTS, workers=pool).json() == alone
    with pool() as given:
        assert sc.explain_many(MODEL, PROMPTS, workers=given).json() == alone


@pytest.mark.parametrize(
    ("back_end", "more"),
    [("loky", {"return_as": "generator_unordered"}), ("multiprocessing", {}), ("threading", {}), ("sequential", {})],
)
def test_every_back_end_of_joblib_gives_the_same_bits(
    back_end: str, more: dict[str, Any], alone: dict[str, Any], tmp_path: Path
) -> None:
    parallel = joblib().Parallel(2, backend=back_end, **more)
    assert sc.explain_many(MODEL, PROMPTS, workers=parallel).json() == alone
    with pytest.raises(ValueError, match="prompt 2: token 99"):
        sc.explain_many(MODEL, [[1], [99]], workers=parallel)
    with WorkerPool(parallel) as crew, pytest.raises(ValueError, match="that is wrong"):
        list(crew.results(wrong, [("one", 1)]))


@pytest.mark.slow
def test_a_worker_of_joblib_that_dies_is_replaced(tmp_path: Path) -> None:
    names = [str(tmp_path / str(i)) for i in range(3)]
    with WorkerPool(joblib().Parallel(2, backend="loky")) as crew:
        assert list(crew.results(dies_once, [(n, n) for n in names])) == names
        with pytest.raises(WorkerDied, match=r"^number 3: its worker died 3 times while it was the only one"):
            list(crew.results(dies_at_three, [("number 3", 3)]))


def test_sums_of_parts_have_one_order() -> None:
    assert [pairwise([str(i) for i in range(n)], lambda a, b: f"({a}{b})") for n in (1, 2, 5)] == [
        "0", "(01)", "(((01)(23))4)",
    ]  # fmt: skip


def test_bad_prompts_keep_their_places() -> None:
    given = [[1, 2], [99], [3], "x", [0]]
    serial = sc.explain_many(MODEL, given, skip_bad=True)
    assert [f.prompt for f in serial.skipped] == [2, 4]
    assert sc.explain_many(MODEL, given, skip_bad=True, workers=2).json() == serial.json()
    with pytest.raises(ValueError, match="prompt 2: token 99"):
        sc.explain_many(MODEL, given, workers=2)


# ------------------------------------------------------------------------------------------------------ deaths
def test_a_killed_process_is_replaced_and_its_work_done_again(alone: dict[str, Any]) -> None:
    made: list[Any] = []

    def make() -> Executor:
        made.append(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        return made[-1]

    def kill(what: str, done: int, total: int) -> None:
        if what == "prompts" and done == 1:
            for pid in list(made[0]._processes):
                os.kill(pid, signal.SIGKILL)

    # more than is sent ahead, so that some is still to be sent
    assert sc.explain_many(MODEL, PROMPTS * 3, workers=make, progress=kill).json() == (
        sc.explain_many(MODEL, PROMPTS * 3).json()
    )
    assert len(made) == 2


def test_a_worker_that_kills_itself_once(tmp_path: Path) -> None:
    names = [str(tmp_path / str(i)) for i in range(3)]
    with WorkerPool(processes(2)) as crew:
        assert list(crew.results(dies_once, [(n, n) for n in names])) == names


def test_what_always_kills_its_worker_is_named_and_no_other() -> None:
    found: list[int] = []
    with (
        WorkerPool(processes(2)) as crew,
        pytest.raises(WorkerDied, match=r"^number 3: its worker died 3 times while it was the only one"),
    ):
        found.extend(crew.results(dies_at_three, [(f"number {i}", i) for i in range(6)]))
    assert found == [0, 1, 2]


def test_a_pool_that_is_given_and_breaks_is_said_to_need_a_maker() -> None:
    said = "number 3: a worker died and took its pool with it; give a function"
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        WorkerPool(pool) as crew,
        pytest.raises(WorkerDied, match=said),
    ):
        list(crew.results(dies_at_three, [("number 3", 3)]))


# ----------------------------------------------------------------------------------------------------- exports
@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of 100 terms; workers are sent ranges, so that they need not know."""
    monkeypatch.setattr(importlib.import_module("symcircuits.tables.export"), "BLOCK", 100)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.sampled(1)
def test_rows_made_by_workers_are_the_same_file(form: str, tmp_path: Path) -> None:
    e = sc.scores(sc.attention_only((3, 3, 3)), "L2H0").where("QK").written("transformerlens")
    columns = ["number", "orders", "label", "text", "latex"]
    alone = e.export(tmp_path / f"alone.{form}", columns).path.read_bytes()
    assert alone.count(b"\n") == len(e) + (form == "csv") == 225 + (form == "csv")
    for i, who in enumerate((1, 5, processes(2), Backwards())):
        assert e.export(tmp_path / f"{i}.{form}", columns, workers=who).path.read_bytes() == alone


@pytest.mark.usefixtures("small_blocks")
def test_an_export_is_taken_up_by_other_workers(tmp_path: Path) -> None:
    e, made, place = sc.scores(sc.attention_only((3, 3, 3, 3)), "L3H0"), list[Any](), tmp_path / "terms.csv"
    alone = e.export(tmp_path / "alone.csv").path.read_bytes()
    found = e.export(place, max_terms=130, workers=3)
    assert (found.rows, found.complete) == (130, False)

    def make() -> Executor:
        made.append(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        return made[-1]

    def kill(what: str, done: int, total: int) -> None:
        if len(made) == 1:
            for pid in list(made[0]._processes):
                with suppress(ProcessLookupError):  # it was killed before, and nobody has noticed yet
                    os.kill(pid, signal.SIGKILL)

    assert e.export(place, resume=True, workers=make, progress=kill).complete
    assert place.read_bytes() == alone
    assert len(made) == 2


def test_a_parquet_file_is_written_by_one(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"a \.parquet file is written by one process"):
        sc.logits(sc.attention_only((2,))).export(tmp_path / "terms.parquet", workers=2)


def test_the_export_command_takes_workers(tmp_path: Path, cli: Cli) -> None:
    for name, more in (("a", []), ("b", ["--workers", "2"])):
        assert cli("terms", "--heads", "2,2", "-o", str(tmp_path / f"{name}.csv"), *more).code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(("given", "what"), [(0, "1 or more"), (True, "1 or more"), ("two", "not str"), (2.0, "float")])
def test_who_cannot_work_is_refused(given: Any, what: str) -> None:
    with pytest.raises((ValueError, TypeError), match=what):
        WorkerPool(given)


def test_a_model_in_memory_is_not_sent() -> None:
    with pytest.raises(ValueError, match="give the path of its folder in place of the model"):
        sc.explain_many(sc.load(MODEL), PROMPTS, workers=Backwards())


def test_an_executor_that_is_shut_down_is_said_to_be() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(OSError, match="prompts 1 to 4: the executor accepts no work"):
        sc.explain_many(MODEL, PROMPTS, workers=pool)


def test_weights_that_changed_between_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "model"
    shutil.copytree(MODEL, place)
    known = ModelFile.at(place)
    assert known == ModelFile.at(place)
    assert known.digest == ModelFile.at(MODEL).digest  # of what is in the files, wherever they lie
    weights = place / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(OSError, match="the file has changed since the work started"):
        known.model()
    shutil.rmtree(place)
    with pytest.raises(OSError, match="it must lie at the same place for every worker"):
        known.model()


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ModelFile.at(MODEL)
    assert len(known.code) == 64
    monkeypatch.setattr(model_file, "code", lambda: "0" * 64)
    with pytest.raises(OSError, match="a worker has another version of symcircuits"):
        known.model()


def test_faults_of_the_work_itself_arrive_as_they_are() -> None:
    for work, kind, what in ((lacks, OSError, "one: a worker has no symcircuits"), (wrong, ValueError, "that is")):
        with WorkerPool(processes(1)) as crew, pytest.raises(kind, match=what):
            list(crew.results(work, [("one", 1)]))


# ------------------------------------------------------------------------------------------------ command line
def _command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "symcircuits", *map(str, words)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    place = tmp_path / "prompts.jsonl"
    place.write_text("".join(f"{json.dumps(p)}\n" for p in PROMPTS))
    return place


def test_the_command_takes_workers(lines: Path, cli: Cli) -> None:
    words = ("explain", str(MODEL), "--prompts", str(lines), "--json")
    serial, split = cli(*words), cli(*words, "--workers", "2")
    assert (split.code, split.out) == (0, serial.out)
    for bad, what in (
        (["--workers", "0"], "--workers: must be a whole number, 1 or more"),
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "--workers N or --scheduler ADDRESS, not both"),
    ):
        ran = cli(*words, *bad)
        assert (ran.code, ran.out) == (2, "")
        assert what in ran.err


def test_heads_are_split_too(cli: Cli) -> None:
    """The scores of every head, by any workers: the same bits."""
    alone = sc.explain(sc.load(MODEL), [1, 2, 3], queries=[2], workers=1).json()
    assert sc.explain(sc.load(MODEL), [1, 2, 3], queries=[2], workers=3).json() == alone
    assert sc.explain(MODEL, [1, 2, 3], queries=[2], workers=processes(2)).json() == alone
    told: list[tuple[str, int, int]] = []
    sc.explain(MODEL, [1, 2, 3], workers=2, progress=lambda *what: told.append(what))
    heads = len(sc.load(MODEL).architecture.all_heads)
    assert [t for t in told if t[0] == "scores"] == [("scores", i + 1, heads) for i in range(heads)]
    words = ("explain", str(MODEL), "--tokens", "1,2,3", "--queries", "2", "--json")
    serial, split = cli(*words), cli(*words, "--workers", "2")
    assert (split.code, split.out) == (0, serial.out)


def test_workers_elsewhere_are_sent_no_arrays() -> None:
    model = sc.load(MODEL)  # it knows its path; a copy may have been changed
    assert sc.explain(model, [1, 2], workers=processes(1)).json() == sc.explain(MODEL, [1, 2]).json()
    with pytest.raises(ValueError, match=r"load it from the path of its folder \(sc\.load\), or give a number"):
        sc.explain(replace(model), [1, 2], workers=processes(1))
    run = model.run([1, 2], "float32")
    assert sc.explain(run, workers=processes(1)).json() == sc.explain(run).json()
    paper = sc.evaluate(sc.logits(model.architecture).written("paper"), run)
    assert sc.explain(paper, workers=processes(1)).json() == sc.explain(paper).json()
    own = model.with_(sc.readout(np.ones(model.d_model), "probe")).run([1, 2])
    probe = sc.evaluate(sc.expand(own.model.architecture, "readout:probe"), own)
    assert sc.explain(probe, workers=2).json() == sc.explain(probe).json()
    for subject in (own, probe):
        with pytest.raises(ValueError, match=r"load it .*, without readouts and sources of your own"):
            sc.explain(subject, workers=processes(1))
    with pytest.raises(ValueError, match="a run with its own mask cannot be sent to workers in other processes"):
        sc.explain(model.run([1, 2], mask=np.eye(2)), workers=processes(1))


def _children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(place.parent.name))
    return found


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
@pytest.mark.sampled(1)
def test_an_end_leaves_no_orphans(tmp_path: Path, how: signal.Signals, code: int) -> None:
    many = tmp_path / "many.txt"
    many.write_text("1 2 3 0 1 2 3 0 1 2\n" * 20_000)
    command = _command("explain", MODEL, "--prompts", many, "--workers", 2)
    process = subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until, children = time.monotonic() + 60, list[int]()
    while len(children) < 3 and time.monotonic() < until and process.poll() is None:  # two, and what keeps resources
        time.sleep(0.05)
        children = _children(process.pid)
    time.sleep(0.5)
    os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert len(children) == 3
    assert (process.returncode, out) == (code, "")
    if how != signal.SIGKILL:
        assert err.rstrip().endswith("interrupted" if how == signal.SIGINT else "terminated")
        assert "Traceback" not in err
    while _alive(children) and time.monotonic() < until + 30:
        time.sleep(0.05)
    assert _alive(children) == []


# -------------------------------------------------------------------------------------------------------- BLAS
def test_blas_has_one_thread_while_it_lasts() -> None:
    control = pytest.importorskip("threadpoolctl", reason="BLAS threads are set by threadpoolctl")
    np.ones(2) @ np.ones(2)
    with workers.pinned():
        assert [pool["num_threads"] for pool in control.threadpool_info() if pool["user_api"] == "blas"] == [1]


# ------------------------------------------------------------------------------------------- a number of workers
@pytest.mark.parametrize(
    ("share", "sent", "kind"),
    [(1.0, True, ThreadPoolExecutor), (0.0, True, ProcessPoolExecutor), (0.0, False, type(None))],
)
def test_a_number_is_of_what_the_first_piece_shows(
    share: float, sent: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads where work goes on beside a busy interpreter, else processes; where nothing can be sent, this thread."""
    monkeypatch.setattr(workers, "WORTH", -1.0)
    monkeypatch.setattr(workers, "watched", lambda work, task: (work(task), share))

    def sends() -> Any:
        if not sent:
            raise ValueError("it cannot be sent")
        return workers.as_it_is

    with WorkerPool(2) as crew:
        found = crew.results(abs, [(str(i), -i) for i in range(9)], pieces=9, sent=sends)
        assert list(found) == list(range(9))
        assert type(crew._executor) is kind


def test_little_work_stays_in_this_thread() -> None:
    with WorkerPool(2) as crew:
        assert list(crew.results(abs, [("one", -1), ("two", -2)])) == [1, 2]
        assert crew._executor is None


@pytest.mark.parametrize(
    ("seconds", "begun"),
    [
        ([2.0, 0.1, 0.1, 0.1], None),  # the first made what the others find
        ([0.1, 2.0, 2.0, 2.0], 2),
        ([4.0, 4.0, 4.0, 4.0], 1),
        ([0.1, 0.1, 3.0, 3.0], 3),  # the pieces grow
    ],
)
def test_what_is_left_is_told_by_the_pieces_after_the_first(
    seconds: list[float], begun: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three seconds of work that is left are worth more workers."""
    clock, chosen = [0.0], list[int]()
    monkeypatch.setattr("symcircuits.work.workers.time.thread_time", lambda: clock[0])

    def work(number: int) -> int:
        clock[0] += ([*seconds, *[seconds[-1]] * 6])[number]
        return number

    with WorkerPool(2) as crew:
        monkeypatch.setattr(crew, "_choose", lambda *_: chosen.append(done), raising=False)
        for number in crew.results(work, [(str(i), i) for i in range(6)], pieces=6):
            done = number + 1
    assert chosen == ([] if begun is None else [begun])


def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    """Processes that a number of workers starts do not run the script that asked for them."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('begun')\n"
        "import symcircuits as sc\n"
        "from symcircuits.work import workers\n"
        "workers.WORTH, workers.BESIDE = -1.0, 2.0\n"
        f"found = sc.explain_many({str(MODEL)!r}, [[1, 2], [3, 4], [5, 6]], workers=2)\n"
        f"print(found.json() == sc.explain_many({str(MODEL)!r}, [[1, 2], [3, 4], [5, 6]]).json())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(sc.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["begun", "True"]


def test_work_that_is_watched_gives_what_it_gives() -> None:
    """Its result or its error; whoever looked at it has gone."""
    before = threading.active_count()
    found, share = workers.watched(lambda n: sum(range(n)), 3_000_000)
    assert (found, share >= 0) == (sum(range(3_000_000)), True)
    with pytest.raises(ZeroDivisionError):
        workers.watched(lambda n: 1 / n, 0)
    assert threading.active_count() == before
