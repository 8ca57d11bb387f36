"""Work in pieces, by workers: results in the order of the tasks, dead workers' tasks retried, the same for any number.

Tasks are small (paths, digests, numbers, ranges), never arrays. The pieces are fixed before the work starts, and
results are taken in order, so nothing depends on the number of workers. Source: own construction.
"""

from __future__ import annotations

import gc
import os
import pickle
import reprlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)  # fmt: skip
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar, final

from symcircuits.work.pools import OutOfTime, Stuck, end, is_broken, is_free, processes_of, result

__all__ = ["WorkerDied", "WorkerPool", "as_it_is", "dask", "pairwise", "pin", "pinned", "processes"]

T = TypeVar("T")
TRIES = 3  # of a task by itself, after it or a task beside it killed a worker
AHEAD = 4  # unfinished tasks sent for each known worker
UNKNOWN = 16  # assumed number of workers of an executor that does not report it
CONNECT = 10  # seconds within which a scheduler must answer
WORTH = 3.0  # CPU seconds of remaining work that justify processes or threads: starting one takes a second
BESIDE = 0.75  # share of a processor above which work counts as running beside a busy interpreter
SENT = 3e7  # bytes of results per second of work up to which processes are worth it
LOOK = 0.012  # seconds
EMPTY = 60  # seconds that a cluster may be without workers while there is work
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS")


class WorkerDied(OSError):
    """The worker of a task, which the error names, died each time the task was tried."""


def pinned() -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread in this process, by threadpoolctl; without it nothing happens."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, "blas")  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def pin() -> None:
    """Limit BLAS to one thread in this process from now on, by threadpoolctl if installed: for worker processes."""
    pinned()


def processes(n: int) -> Callable[[], Executor]:
    """Creates a pool of ``n`` processes of this machine: BLAS on one thread each; they end when this process ends."""
    return partial(ProcessPoolExecutor, n, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Set up a worker process: one BLAS thread, Ctrl-C left to the parent, and an end with the parent."""
    for name in _THREADS:
        os.environ[name] = "1"  # read when NumPy is imported, which comes later
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def dask(address: str) -> Iterator[_Dask]:
    """The workers of a Dask cluster by the address of its scheduler; raises OSError if it does not answer."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("the workers of a Dask cluster need Dask: pip install 'symcircuits[distributed]'") from None
    client, said = None, ""
    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError, TypeError, RuntimeError) as fault:
        said = (str(fault).strip() or type(fault).__name__).splitlines()[0]
    if client is None:
        gc.collect()  # the unfinished client: closed at exit, it would wait for a loop that is gone, and warn
        raise OSError(f"no Dask scheduler answers at {address} (an address is tcp://HOST:PORT): {said}")
    try:
        if not client.scheduler_info().get("workers"):
            raise OSError(f"the Dask scheduler at {address} has no workers")
        yield _Dask(client, address)
    finally:
        if client.status == "running":
            client.close(timeout=CONNECT)


@final
class _Dask:
    """A Dask cluster as an executor that raises if its scheduler is gone, instead of waiting for ever."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._seen = time.monotonic()  # when workers were last seen

    def check(self) -> None:
        """Raise OSError if the scheduler is gone for good (``connecting``: it may come back), or all workers are."""
        if self._client.status not in ("running", "connecting"):
            raise OSError(f"the Dask scheduler at {self._address} is gone")
        if time.monotonic() - self._seen > EMPTY / 4 and self._client.status == "running":
            if self._client.scheduler_info().get("workers"):
                self._seen = time.monotonic()
            elif time.monotonic() - self._seen > EMPTY:
                raise OSError(f"the Dask scheduler at {self._address} has had no workers for {EMPTY} seconds")

    def submit(self, work: Callable[[Any], Any], task: Any) -> _DaskFuture:
        """Send work; equal tasks are computed again, because they may use other weights."""
        self.check()
        return _DaskFuture(self, self._client.submit(work, task, pure=False))


@final
class _DaskFuture:
    def __init__(self, cluster: _Dask, future: Any) -> None:
        self._cluster, self._future = cluster, future

    def done(self) -> bool:
        return bool(self._future.done())

    def result(self, timeout: float | None = None) -> Any:
        while True:
            self._cluster.check()
            try:
                return self._future.result(timeout=1 if timeout is None else timeout)
            except TimeoutError:
                if getattr(self._future, "status", "") == "error":
                    return self._future.result()  # the work itself may have raised it
                if timeout is not None:
                    raise

    def cancel(self) -> None:
        with suppress(Exception):  # the cluster may be gone
            self._cluster.check()
            self._future.cancel()


@final
class _Joblib:
    """A ``joblib.Parallel`` as an executor: all tasks sent are run together when a result of one is needed."""

    def __init__(self, parallel: Any) -> None:
        from joblib import effective_n_jobs

        self._parallel, self._max_workers = parallel, int(effective_n_jobs(parallel.n_jobs))
        self._sent: list[_JoblibFuture] = []

    def submit(self, work: Callable[[Any], Any], task: Any) -> _JoblibFuture:
        self._sent.append(_JoblibFuture(self, work, task))
        return self._sent[-1]

    def do(self) -> None:
        """Run the tasks sent; a death fails all of them, and the sender sends them again."""
        from joblib import delayed

        lot, self._sent = [f for f in self._sent if f.set_running_or_notify_cancel()], []
        try:
            found = sorted(self._parallel(delayed(_caught)(i, f.work, f.task) for i, f in enumerate(lot)), key=_first)
        except Exception as fault:
            for future in lot:
                future.set_exception(fault)
            return
        for future, (_, wrong, value) in zip(lot, found, strict=True):
            future.set_result(value) if wrong is None else future.set_exception(wrong)


@final
class _JoblibFuture(Future[Any]):
    def __init__(self, executor: _Joblib, work: Callable[[Any], Any], task: Any) -> None:
        super().__init__()
        self._executor, self.work, self.task = executor, work, task

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._executor.do()
        return super().result(timeout)


def _caught(i: int, work: Callable[[Any], T], task: Any) -> tuple[int, Exception | None, T | None]:
    try:
        return i, None, work(task)
    except Exception as fault:
        return i, fault, None


def _first(found: tuple[Any, ...]) -> Any:
    return found[0]


def watched(work: Callable[[Any], T], task: Any) -> tuple[T, float]:
    """The result of work, and the share of a processor that it had while another thread kept the interpreter busy.

    Near 1 if the work is BLAS, which threads can run in parallel; a half or less if it is Python. Takes four samples
    of some milliseconds; 0 if the work ends before that, or if threads have no clocks of their own.
    """
    over, looks = threading.Event(), list[float]()
    try:
        clock = time.pthread_getcpuclockid(threading.get_ident())
    except AttributeError:  # not available on this system
        return work(task), 0.0

    def look() -> None:
        wait = LOOK
        while len(looks) < 4 and not over.wait(wait):
            start, used = time.perf_counter(), time.clock_gettime(clock)
            while (now := time.perf_counter()) < start + LOOK:
                pass
            looks.append((time.clock_gettime(clock) - used) / (now - start))
            wait *= 2

    beside = threading.Thread(target=look, daemon=True)
    beside.start()
    try:
        found = work(task)
    finally:
        over.set()
        beside.join()
    return found, sorted(looks)[len(looks) // 2] if looks else 0.0


@contextmanager
def without_main() -> Iterator[None]:
    """Processes started within this context do not run this one's script, which need not be written for that."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)


def as_it_is(task: T) -> T:
    """The data sent for a task, which holds no arrays."""
    return task


def pairwise(parts: Iterable[T], add: Callable[[T, T], T]) -> T | None:
    """The sum of parts, neighbours first: their number alone fixes its order. None if there are no parts.

    >>> pairwise("abc", lambda x, y: f"({x}+{y})")
    '((a+b)+c)'
    """
    held: list[tuple[int, T]] = []  # sums of 2^level parts; the levels fall
    for part in parts:
        level = 0
        while held and held[-1][0] == level:
            part, level = add(held.pop()[1], part), level + 1
        held.append((level, part))
    total = held.pop()[1] if held else None
    while held and total is not None:
        total = add(held.pop()[1], total)
    return total


@final
class WorkerPool:
    """The workers: None (this thread), a number, an executor, or a function that makes one.

    A number means processes if the work is Python, threads if it is BLAS, and only this thread if little work is
    left: the first pieces are done here and measured (see :meth:`results`).

    An executor is anything with ``submit``, such as those of :mod:`concurrent.futures`, loky and Dask, or a
    ``joblib.Parallel`` with any of its back ends; it is not shut down. One that is made here is shut down, and is
    replaced if its processes die.

    >>> with WorkerPool(2) as crew:
    ...     list(crew.results(abs, [("one", -1), ("two", -2), ("three", 3)]))
    [1, 2, 3]
    """

    @staticmethod
    def check(given: Any) -> None:
        """Raise ValueError if a number of workers is below 1."""
        if isinstance(given, bool) or (isinstance(given, int) and given < 1):
            raise ValueError(f"workers must be a number, 1 or more, not {reprlib.repr(given)}")

    def __init__(self, given: Any = None) -> None:
        self.check(given)
        self._make: Callable[[], Executor] | None = None
        self._number = given if isinstance(given, int) and given > 1 else 0
        self.pace: float | None = None  # CPU seconds of a piece, if measured
        if any(c.__name__ == "Parallel" and c.__module__.startswith("joblib") for c in type(given).__mro__):
            given = _Joblib(given)
        if isinstance(given, int):
            given = None
        elif callable(given):
            self._make = given
        elif given is not None and not callable(getattr(given, "submit", None)):
            raise TypeError(
                "workers must be a number, an executor (with submit, or a joblib.Parallel) or a function that makes "
                f"one, not {type(given).__name__}"
            )
        self._executor: Any = self._make() if self._make else given
        self._sent: deque[tuple[str, Any, Any]] = deque()  # tasks under way, in order
        self._sends: Callable[[Any], Any] | None = None  # makes what processes are sent in place of a task
        if self._executor is not None and not callable(getattr(self._executor, "submit", None)):
            raise TypeError(f"the function given as workers made no executor: {type(self._executor).__name__}")

    @property
    def alone(self) -> bool:
        """Whether this thread does all the work."""
        return self._executor is None and not self._number

    @property
    def here(self) -> bool:
        """Whether all work is done in this process, so objects need not be sent."""
        return self._executor is None or isinstance(self._executor, ThreadPoolExecutor)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # Our own processes are killed below; sending to them then fails. Futures must not be cancelled before that: the
        # thread of the pool would fail too, and print its traceback.
        left = [sent[2] for sent in self._sent if sent[2] is not None]  # after an error, or when enough is done
        self._sent.clear()
        if not self._make or not processes_of(self._executor):
            for future in left:
                future.cancel()
        if self._make:
            end(self._executor, kind is not None or bool(left))

    def results(
        self, work: Callable[[Any], T], tasks: Iterable[tuple[str, Any]], until: float | None = None, *,
        pieces: int | None = None, sent: Callable[[], Callable[[Any], Any]] | None = None,
    ) -> Iterator[T]:  # fmt: skip
        """The result of ``work`` for each task (its name, for errors, and its data), in the order of the tasks.

        No result is waited for beyond ``until`` (of :func:`time.monotonic`): then OutOfTime is raised. If workers are a
        number: ``pieces``, the number of tasks, if known; ``sent``, which makes the function that gives what a process
        is sent in place of a task (None, or ValueError: it cannot be sent).
        """
        tasks = iter(tasks)
        if self._executor is None:
            yield from self._here(work, tasks, pieces, sent)
        if self._executor is None:
            return
        if self._sends is not None:
            sends = self._sends
            tasks = ((name, sends(task)) for name, task in tasks)
        most = AHEAD * int(getattr(self._executor, "_max_workers", None) or UNKNOWN)
        for name, task in tasks:
            self._sent.append((name, task, self._submit(work, task, name)))
            if len(self._sent) >= most:
                yield self._result(work, *self._sent.popleft(), until)
        while self._sent:
            yield self._result(work, *self._sent.popleft(), until)

    def _here(
        self, work: Callable[[Any], T], tasks: Iterator[tuple[str, Any]], pieces: int | None,
        sent: Callable[[], Callable[[Any], Any]] | None,
    ) -> Iterator[T]:  # fmt: skip
        """The tasks done in this thread: all, or, with a number of workers, enough to decide who does the rest."""
        done, first, spent, share = 0, 0.0, 0.0, 0.0
        for _, task in tasks:
            start = time.thread_time()
            if self._number and not done:
                found, share = watched(work, task)
            else:
                found = work(task)
            took = time.thread_time() - start
            done, first, spent = done + 1, first if done else took, spent + took
            each = (spent - first) / (done - 1) if done > 1 else took  # the first also fills caches
            sure = done > 1 or took > WORTH
            self.pace = self.pace or (each if sure else None)
            yield found
            left = each * (pieces - done) if pieces is not None else spent
            if self._number and sure and left > WORTH:
                self._choose(share, sent, len(pickle.dumps(found)) * done / max(spent, 1e-6))
                if self._executor is not None:
                    return
                self._number = 0

    def _choose(self, share: float, sent: Callable[[], Callable[[Any], Any]] | None, bytes_a_second: float) -> None:
        """Threads, processes, or neither: then this thread continues alone."""
        if share > BESIDE:
            self._make = partial(ThreadPoolExecutor, self._number)
        elif sent is not None and bytes_a_second < SENT:
            with suppress(ValueError, OSError):  # the work cannot be sent
                self._sends = sent()
                self._make = processes(self._number)
        self._executor = self._make() if self._make else None

    def _submit(self, work: Callable[[Any], Any], task: Any, name: str) -> Any:
        """The future; None where the pool is broken."""
        try:
            if self._sends is not None:
                with without_main():
                    return self._executor.submit(work, task) if is_free(self._executor) else None
            return self._executor.submit(work, task) if is_free(self._executor) else None
        except BrokenExecutor:
            return None
        except RuntimeError as fault:
            raise OSError(f"{name}: the executor accepts no work ({fault})") from fault

    def _result(self, work: Callable[[Any], T], name: str, task: Any, future: Any, until: float | None) -> T:
        """The result; a task that died with its worker, or beside one that did, is retried by itself."""
        died: BaseException | None = None
        for _ in range(1 + TRIES):
            try:
                if future is not None:
                    found: T = result(self._executor, future, until)
                    return found
            except OutOfTime:
                self._sent.appendleft((name, task, future))  # shutdown cancels it too
                raise
            except Exception as fault:
                if not _worker_died(fault):
                    raise _told(fault, name) from fault
                died = fault
            self._renew(name, isinstance(died, Stuck))
            future = self._submit(work, task, name)
        raise WorkerDied(f"{name}: its worker died {TRIES} times while it was the only one ({died})") from died

    def _renew(self, name: str, stuck: bool) -> None:
        """A new pool in place of one that is broken or stuck; a pool that repairs itself is kept."""
        if not stuck and not is_broken(self._executor) and is_free(self._executor):
            return
        if self._make is None:
            raise WorkerDied(
                f"{name}: a worker died and took its pool with it; give a function that makes the pool, such as "
                "functools.partial(ProcessPoolExecutor, 2), and such tasks are retried"
            )
        end(self._executor, True)
        self._executor = self._make()
        # The old pool will never finish its remaining tasks.
        self._sent = deque((n, t, f if f is not None and f.done() else None) for n, t, f in self._sent)


def _worker_died(fault: BaseException) -> bool:
    return isinstance(fault, (BrokenExecutor, CancelledError)) or type(fault).__name__ in (
        "KilledWorker", "FutureCancelledError",
    )  # fmt: skip


def _told(fault: Exception, name: str) -> Exception:
    """The error to report; one for a worker without symcircuits says so."""
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, ImportError) and (cause.name or "").partition(".")[0] == "symcircuits":
            return OSError(f"{name}: a worker has no symcircuits, or another version of it ({cause})")
        cause = cause.__cause__ or cause.__context__
    return fault
