"""CPU time in arrays of other libraries beside NumPy's own way, in the same run. Run it as a script.

    python tests/benchmarks/bench_tensors.py [--rounds 5] [--size record|small|deep|paper]

All values (added up), all sums by order, and the contributions of all terms to one logit, on a run and on the same run
in arrays of NumPy through the array API standard, of PyTorch and of JAX, where they are installed. One thread each;
medians over rounds that take turns; the sums of all are compared with the model's logits.
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import medians

import symcircuits as sc
from symcircuits.expansion import Expansion
from symcircuits.model import random_model

SIZES: dict[str, dict[str, Any]] = {
    "record": {"heads": (3, 3), "d_vocab": 32, "d_model": 48, "d_head": 16, "n": 10},
    "small": {"heads": (4, 4, 4), "d_vocab": 50, "d_model": 64, "d_head": 16, "n": 32},
    "deep": {"heads": (8, 8, 8, 8), "d_vocab": 200, "d_model": 128, "d_head": 16, "n": 64},
    "paper": {"heads": (8, 8), "d_vocab": 5000, "d_model": 256, "d_head": 32, "n": 128},
}


def values(expansion: Expansion, given: Any) -> Any:
    """Every term's values, added up."""
    total = 0
    for block in sc.term_values(expansion, given):
        total = total + block.values.sum(0)
    return total


def sums(expansion: Expansion, given: Any) -> Any:
    """The sums by order, added up."""
    return sum(sc.evaluate(expansion, given).by_order().values())


def parts(expansion: Expansion, given: Any) -> Any:
    """What all terms add to a logit, added up."""
    return sum(block.values.sum(0) for block in sc.contributions(expansion, given, token=0))


def libraries() -> dict[str, Any]:
    """Those that are here."""
    found = {"NumPy, by the standard": np}
    for name, module in (("PyTorch", "torch"), ("JAX", "jax.numpy")):
        try:
            found[name] = importlib.import_module(module)
        except ImportError:
            print(f"{name} is not installed")
    if "PyTorch" in found:
        found["PyTorch"].set_num_threads(1)
    if "JAX" in found:
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=SIZES, default="small")
    asked = parser.parse_args()
    size = SIZES[asked.size]
    model = random_model(
        sc.attention_only(size["heads"]), **{k: size[k] for k in ("d_vocab", "d_model", "d_head")}, n_context=size["n"]
    )
    run = model.run(np.random.default_rng(0).integers(0, size["d_vocab"], size["n"]))
    terms, given = sc.logits(model.architecture), {"a run": run}
    given |= {name: run.to(library, dtype="float64") for name, library in libraries().items()}
    print(f"{asked.size}: {size}, {terms.count:,} terms; CPU seconds, one thread, medians of {asked.rounds} rounds")
    print(f"{'':18}{'':24}{'CPU s':>10}{'ratio':>8}{'|error|':>10}")
    for what, work in (("all values", values), ("sums by order", sums), ("contributions", parts)):
        ways: dict[str, Callable[[], Any]] = {name: lambda g=g, w=work: w(terms, g) for name, g in given.items()}  # type: ignore[misc]
        for way in ways.values():
            way()  # once: weights are moved, JAX compiles
        spent, found = medians(asked.rounds, ways)
        wanted = run.logits[-1, 0] if work is parts else run.logits
        for name, seconds in spent.items():
            error = float(np.abs(np.asarray(found[name]) - wanted).max())
            print(f"{what:18}{name:24}{seconds:10.5f}{seconds / spent['a run']:8.2f}{error:10.1e}")


if __name__ == "__main__":
    main()
