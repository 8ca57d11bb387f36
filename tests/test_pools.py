"""Pools of processes that are killed at the worst moment: seen, replaced, and never waited for without end."""

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from symcircuits.work import pools
from symcircuits.work.workers import WorkerDied, WorkerPool, processes


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "POLL", 0.02)
    monkeypatch.setattr(pools, "GRACE", 0.3)
    monkeypatch.setattr(pools, "LAST", 1.0)


def pool(n: int = 2, **more: Any) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, mp_context=get_context("spawn"), **more)


class Process:
    """Of a pool: how it ended, or None; killed it has ended."""

    def __init__(self, exitcode: int | None) -> None:
        self.exitcode = exitcode

    def kill(self) -> None:
        self.exitcode = -9

    def join(self, timeout: float) -> None:
        assert self.exitcode is not None


class Fake:
    """A pool that does what is sent at once, or (``stuck``) never; ``codes``: how its processes ended."""

    def __init__(self, stuck: bool, *codes: int | None) -> None:
        self.stuck, self.sent, self.ended = stuck, list[Any](), False
        self._processes: dict[int, Process] | None = {i: Process(code) for i, code in enumerate(codes)}
        self._shutdown_lock = threading.Lock()

    def submit(self, work: Callable[[Any], Any], task: Any) -> Future[Any]:
        with self._shutdown_lock:
            future: Future[Any] = Future()
            self.sent.append(task)
            if not self.stuck:
                future.set_result(work(task))
            return future

    def shutdown(self, wait: bool) -> None:
        assert not wait
        with self._shutdown_lock:
            self._processes, self.ended = None, True


def numbered(n: int) -> list[tuple[str, int]]:
    return [(f"number {i}", i) for i in range(n)]


# ---------------------------------------------------------------------------------------------------- stuck
def makes(*fakes: Any) -> Callable[[], Executor]:
    left = list(fakes)
    return lambda: left.pop(0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("codes", [[-9, None], [1], [0, 0]])
def test_a_pool_whose_process_is_dead_and_that_never_answers_is_replaced(codes: list[int | None]) -> None:
    stuck, good = Fake(True, *codes), Fake(False, None)
    dead = list((stuck._processes or {}).values())
    with WorkerPool(makes(stuck, good)) as crew:
        assert list(crew.results(abs, numbered(5))) == [0, 1, 2, 3, 4]
    assert (stuck.sent, good.sent) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert stuck.ended
    assert good.ended
    assert None not in [p.exitcode for p in dead]  # what still lived was killed


def test_what_came_before_the_pool_was_stuck_is_not_done_again() -> None:
    class Half(Fake):
        def submit(self, work: Callable[[Any], Any], task: Any) -> Future[Any]:
            self.stuck = task == 1
            return super().submit(work, task)

    half, good = Half(True, -9), Fake(False, None)
    with WorkerPool(makes(half, good)) as crew:
        assert list(crew.results(abs, numbered(4))) == [0, 1, 2, 3]
    assert good.sent == [1]


def test_a_pool_that_is_given_and_is_stuck_is_said_to_be() -> None:
    given = Fake(True, -9, None)
    died = pytest.raises(WorkerDied, match="number 0: a worker died and took its pool with it")
    with died, WorkerPool(given) as crew:
        list(crew.results(abs, numbered(1)))
    assert not given.ended  # whoever made it ends it


def test_a_pool_that_says_it_is_broken_and_leaves_its_work_undone_is_replaced() -> None:
    stuck, good = Fake(True, None), Fake(False, None)
    stuck._broken = "so it is"  # type: ignore[attr-defined]
    with WorkerPool(makes(stuck, good)) as crew:
        assert list(crew.results(abs, numbered(2))) == [0, 1]


def test_a_pool_whose_lock_is_not_given_back_is_replaced() -> None:
    stuck, good = Fake(False, None), Fake(False, None)
    stuck._shutdown_lock.acquire()
    with WorkerPool(makes(stuck, good)) as crew:
        assert list(crew.results(abs, numbered(2))) == [0, 1]
    assert (stuck.sent, stuck.ended) == ([], False)


def test_a_pool_that_is_stuck_each_time_is_an_error() -> None:
    fakes = [Fake(True, -9) for _ in range(5)]
    with pytest.raises(WorkerDied, match="number 0: its worker died 3 times"), WorkerPool(makes(*fakes)) as crew:
        list(crew.results(abs, numbered(1)))


def test_slow_work_is_waited_for_where_all_live() -> None:
    slow = Fake(True, None)
    future: Future[str] = Future()
    threading.Timer(1.0, future.set_result, ["late"]).start()
    assert pools.result(slow, future) == "late"


def _too_late(_: Any) -> None:
    raise TimeoutError("the work says so")


def test_a_timeout_of_the_work_itself_is_its_own() -> None:
    with WorkerPool(processes(1)) as crew, pytest.raises(TimeoutError, match="the work says so"):
        list(crew.results(_too_late, numbered(1)))
    done: Future[Any] = Future()
    done.set_exception(TimeoutError("the work says so"))
    with pytest.raises(TimeoutError, match="the work says so"):
        pools.result(Fake(False, -9), done)


# ----------------------------------------------------------------------------------------------- real pools
def _half_a_result(place: str) -> str:
    """The first time: write the beginning of a result, and die."""
    if Path(place).exists():
        return "done"
    Path(place).touch()
    frame: Any = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1000) + b"half")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_a_process_that_dies_while_it_hands_over_a_result(tmp_path: Path) -> None:
    """Python's pool then waits for the other half for ever."""
    made: list[ProcessPoolExecutor] = []
    threads: list[Any] = []

    def make() -> Executor:
        made.append(pool())
        return made[-1]

    def tasks() -> Any:
        for name, place in [("one", str(tmp_path / "one")), ("two", str(tmp_path / "two"))]:
            yield name, place
            threads.append(made[-1]._executor_manager_thread)

    with WorkerPool(make) as crew:
        assert list(crew.results(_half_a_result, tasks())) == ["done", "done"]
    assert len(made) >= 2
    assert not any(t.is_alive() for t in threads)  # else Python would wait for it on leaving


def _mark(place: str) -> None:
    """What is not waited for is never left behind."""
    time.sleep(600)
    Path(place).touch()


def _stays(place: str) -> int:
    threading.Thread(target=_mark, args=(place,)).start()
    return os.getpid()


def test_a_process_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with WorkerPool(processes(1)) as crew:
        [pid] = crew.results(_stays, [("one", str(tmp_path / "waited"))])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _slow(place: str) -> str:
    if place:
        _mark(place)
    return place


def test_what_is_no_longer_wanted_is_not_waited_for(tmp_path: Path) -> None:
    with WorkerPool(processes(2)) as crew:
        tasks = [(f"task {i}", str(tmp_path / f"waited {i}") if i else "") for i in range(6)]
        results = crew.results(_slow, tasks)
        assert not next(results)
    assert list(tmp_path.iterdir()) == []


def _pid(_: Any) -> int:
    return os.getpid()


def test_processes_that_have_done_their_share_are_no_fault() -> None:
    with pool(1, max_tasks_per_child=1) as given, WorkerPool(given) as crew:
        assert len(set(crew.results(_pid, numbered(3)))) == 3


def test_an_end_with_nothing_begun() -> None:
    never = pool()
    pools.end(never, False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        never.submit(abs, 1)
