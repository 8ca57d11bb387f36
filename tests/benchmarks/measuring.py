"""How the benchmarks measure: CPU seconds in turns, and memory. BLAS is set to one thread before NumPy is imported."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["cpu", "medians", "peak"]


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def peak(work: Callable[[], Any]) -> float:
    """The most memory that was allocated at once, in MB."""
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / 1e6


def medians(rounds: int, ways: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Median CPU seconds of each way, taking turns, and what each gives."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    given: dict[str, Any] = {}
    for _ in range(rounds):
        for name, work in ways.items():
            seconds, given[name] = cpu(work)
            spent[name].append(seconds)
    return {name: float(np.median(s)) for name, s in spent.items()}, given
