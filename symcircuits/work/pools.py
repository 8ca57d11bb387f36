"""Pools of processes, any of which may be killed at any moment: this is detected, and the pool still ends.

A Python pool waits for ever if a process is killed while it hands over a result (half of it is in the pipe), or
while it holds a lock that the others need. So no wait here is unlimited. The attributes inspected are private to
:mod:`concurrent.futures` (loky uses the same names); an executor without them is left alone. Source: own
construction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from typing import Any

__all__ = ["OutOfTime", "Stuck", "end", "is_broken", "is_free", "processes_of", "result"]

POLL = 0.2  # seconds between two checks
GRACE = 2.0  # seconds for a pool to notice by itself that one of its processes died
LAST = 5.0  # seconds for idle processes to end by themselves


class Stuck(BrokenExecutor):
    """A pool has a dead process and does not notice it."""


class OutOfTime(Exception):
    """No time is left to wait for a result."""


def processes_of(executor: Any) -> list[Any]:
    """The processes of a pool; empty if it has none, or does not list them."""
    found = getattr(executor, "_processes", None)
    return list(found.values()) if isinstance(found, dict) else []


def is_broken(executor: Any) -> bool:
    """Whether a pool knows that it is broken."""
    flags = getattr(executor, "_flags", None)  # loky
    return bool(getattr(executor, "_broken", False) or getattr(flags, "broken", False))


def is_free(executor: Any) -> bool:
    """Whether work can be sent without waiting for ever: only a stuck process holds the lock of a pool for long."""
    lock: Any = getattr(executor, "_shutdown_lock", None)
    if not processes_of(executor) or not hasattr(lock, "acquire"):
        return True
    free = bool(lock.acquire(timeout=GRACE))
    if free:
        lock.release()
    return free


def result(executor: Any, future: Any, until: float | None = None) -> Any:
    """The result of work sent to an executor; raises Stuck if a process died and no result will come.

    Raises OutOfTime if there is no result at ``until`` (of :func:`time.monotonic`).
    """
    pool = hasattr(executor, "_processes")
    if not pool and until is None:
        return future.result()
    since: float | None = None
    while not future.done():
        now = time.monotonic()
        if until is not None and now >= until:
            raise OutOfTime
        with suppress(TimeoutError):  # from this wait; one raised by the work is reported below, when it is done
            return future.result(timeout=POLL if until is None else min(POLL, until - now))
        if not pool or not (_dead(processes_of(executor)) or is_broken(executor)):
            since = None
        elif since is None:
            since = now
        elif now - since > GRACE and not future.done():
            raise Stuck("a process of the pool was killed, and the pool did not notice")
    return future.result()


def _code(process: Any) -> int | None:
    """How a process ended; None while it runs."""
    try:
        return process.exitcode  # type: ignore[no-any-return]
    except ValueError:  # it has ended, and was closed
        return 0


def _dead(processes: Iterable[Any]) -> bool:
    """Whether one ended badly, or all have ended; one that ended normally is replaced by the pool."""
    codes = [_code(p) for p in processes]
    return any(codes) or (bool(codes) and None not in codes)


def end(executor: Any, now: bool) -> None:
    """Shut an executor down; ``now``: at once, whatever it is doing. A pool of processes ends in any case, and soon."""
    processes, thread = processes_of(executor), getattr(executor, "_executor_manager_thread", None)
    if not processes:
        with suppress(OSError, RuntimeError):
            executor.shutdown(wait=not now)
        return
    queues = ("_result_queue", "_writer"), ("_call_queue", "_reader")
    ends = [getattr(getattr(executor, queue, None), name, None) for queue, name in queues]
    if now or not is_free(executor):
        _kill(processes)
    if is_free(executor):
        with suppress(OSError, RuntimeError):
            executor.shutdown(wait=False)
    until = time.monotonic() + LAST
    while not now and _lives(thread, POLL) and not any(map(_code, processes)) and time.monotonic() < until:
        pass
    _kill(processes)
    if _lives(thread, GRACE):  # it waits for the rest of a result, or for room in a queue
        for connection in ends:
            with suppress(OSError, AttributeError):
                connection.close()  # type: ignore[union-attr]
        _lives(thread, LAST)


def _lives(thread: Any, seconds: float) -> bool:
    """Whether a thread still runs after at most that many seconds."""
    if thread is None:
        return False
    thread.join(seconds)
    return bool(thread.is_alive())


def _kill(processes: Iterable[Any]) -> None:
    """Kill the remaining processes and wait for their end."""
    found = list(processes)
    for process in found:
        if _code(process) is None:
            process.kill()
    for process in found:
        with suppress(ValueError):
            process.join(LAST)
