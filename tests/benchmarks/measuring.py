"""How the benchmarks measure: CPU seconds in turns, memory, exponents; and how a script gives what it measured.

Imported first by every script: BLAS gets one thread, which must be done before NumPy is imported.
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # what is measured is the package that this file belongs to

import argparse
import importlib.util
import platform
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from results import as_json, shown

__all__ = ["absent", "cpu", "fit", "form", "machine", "medians", "peak", "script", "timed", "turns"]

SHORT = 0.02  # work that takes less CPU time than this is done several times
WARM = 0.5  # and less than this, once before: the first time has things to set up
Ways = dict[str, Callable[[], Any]]


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The same, of short work the mean of as many times as take some hundredths of a second."""
    spent, result = cpu(work)
    if spent >= SHORT:
        return spent, result
    times = min(1000, int(SHORT / max(spent, 1e-6)) + 1)
    return cpu(lambda: [work() for _ in range(times)][-1])[0] / times, result


def turns(rounds: int, ways: Ways) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """CPU seconds of each way in each round, taking turns, and what each gives."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    given: dict[str, Any] = {}
    for _ in range(rounds):
        for name, work in ways.items():
            given.pop(name, None)  # what it gave before may be large
            seconds, given[name] = timed(work)
            if not spent[name] and SHORT <= seconds < WARM:
                seconds, given[name] = timed(work)
            spent[name].append(seconds)
    return spent, given


def medians(rounds: int, ways: Ways) -> tuple[dict[str, float], dict[str, Any]]:
    """The same, the median of the rounds."""
    spent, given = turns(rounds, ways)
    return {name: float(np.median(s)) for name, s in spent.items()}, given


def peak(work: Callable[[], Any]) -> float:
    """The most memory that was allocated at once by Python and NumPy, in MB."""
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / 1e6


def fit(sizes: Iterable[float], costs: Iterable[float]) -> float:
    """The exponent of ``cost ~ size^exponent``, by least squares on the logarithms.

    >>> round(fit([1, 2, 4, 8], [3, 12, 48, 192]), 12)
    2.0
    """
    return float(np.polyfit(np.log(np.array([*sizes], float)), np.log(np.array([*costs], float)), 1)[0])


# ------------------------------------------------------------------------------------------- what is there
def machine() -> str:
    """The processor, its cores, the versions, and that BLAS has one thread."""
    model, known = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if known.is_file():
        names = (s.partition(":")[2].strip() for s in known.read_text().splitlines() if s.startswith("model name"))
        model = next(names, model)
    blas: Any = np.show_config(mode="dicts")
    blas = blas["Build Dependencies"]["blas"]
    return (
        f"{model} ({platform.machine()}), {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__} ({blas['name']} {blas['version']}), one thread"
    )


def absent() -> list[str]:
    """The peers that are not installed."""
    modules = {"SymPy": "sympy", "python-flint": "flint", "torch": "torch", "JAX": "jax"}
    found = [name for name, module in modules.items() if importlib.util.find_spec(module) is None]
    return found if form() else [*found, "FORM"]


def form() -> str | None:
    """The path of FORM."""
    return shutil.which("form") or shutil.which("tform")


# ------------------------------------------------------------------------------------------------- scripts
def script(
    rows: Callable[[argparse.Namespace], Iterator[Any]],
    doc: str | None,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """What every script does when it is run: print its rows as they come, with ``--lines`` as JSON."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of which medians are taken (default 3)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: to see that it works")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    if options is not None:
        options(parser)
    asked = parser.parse_args()
    asked.rounds = 1 if asked.quick else asked.rounds
    if asked.lines:
        try:
            for row in rows(asked):
                print(as_json(row), flush=True)
        except BrokenPipeError:  # nobody reads them any more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        return
    print(machine() + (f"; not installed: {', '.join(absent())}" if absent() else ""))
    shown(rows(asked))
