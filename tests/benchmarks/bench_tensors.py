"""CPU time in arrays of other libraries beside NumPy's own way, in the same run. Run it as a script.

    python tests/benchmarks/bench_tensors.py [--rounds 3] [--sizes deep,paper8] [--quick]

All values (added up), all sums by order, and the contributions of all terms to one logit, on a run and on the same run
in arrays of NumPy through the array API standard, of PyTorch and of JAX, where they are installed (PyTorch with
array-api-compat). One thread each; medians over rounds that take turns; the sums of all are compared with the model's
logits. The peer is the run itself: below 1x the library takes longer.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import measuring
import numpy as np
from measuring import medians
from peers import SIZES, Size
from results import Row, beside

import symcircuits as sc
from symcircuits.core.expansion import Expansion

FULL = ("record", "small", "paper8", "deep")


def values(expansion: Expansion, given: Any) -> Any:
    """Every term's values, added up."""
    total = 0
    for block in sc.evaluate(expansion, given).blocks():
        total = total + block.values.sum(0)
    return total


def sums(expansion: Expansion, given: Any) -> Any:
    """The sums by order, added up."""
    return sum(sc.evaluate(expansion, given).by_order().values())


def parts(expansion: Expansion, given: Any) -> Any:
    """What all terms add to a logit, added up."""
    return sum(block.values.sum(0) for block in sc.evaluate(expansion, given).measure(sc.logit(0)))


def libraries() -> dict[str, Any]:
    """Those that are compared; None for one that is not here."""
    found: dict[str, Any] = {"NumPy, by the standard": np}
    for name, modules in (("PyTorch", ("torch", "array_api_compat")), ("JAX", ("jax.numpy",))):
        try:
            found[name], *_ = [importlib.import_module(module) for module in modules]
        except ImportError:
            found[name] = None
    if found["PyTorch"] is not None:
        found["PyTorch"].set_num_threads(1)
    if found["JAX"] is not None:
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    return found


def of_size(size: Size, rounds: int) -> Iterator[Row]:
    """The rows of one size."""
    run = size.run()
    terms, known = sc.logits(run.model.architecture), libraries()
    given = {"a run": run} | {n: run.to(lib, dtype="float64") for n, lib in known.items() if lib is not None}
    for what, work in (("values", values), ("sums by order", sums), ("parts in a logit", parts)):
        ways: dict[str, Callable[[], Any]] = {name: lambda g=g, w=work: w(terms, g) for name, g in given.items()}  # type: ignore[misc]
        for way in ways.values():
            way()  # once: weights are moved, JAX compiles
        seconds, found = medians(rounds, ways)
        wanted = run.logits[-1, 0] if work is parts else run.logits
        for name in given:
            assert np.abs(np.asarray(found[name]) - wanted).max() <= 1e-11 * np.abs(run.logits).max(), name
        for name in known:
            said = f"{what} in arrays of {name}"
            if name in given:
                yield beside(said, size.name, "a run", seconds["a run"], seconds[name])
            else:
                yield Row(said, size.name, "a run", seconds["a run"])


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Every size."""
    for name in ("tiny",) if asked.quick else asked.sizes.split(","):
        yield from of_size(SIZES[name], asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--sizes", default="deep", help=f"some of {', '.join(FULL)}")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
