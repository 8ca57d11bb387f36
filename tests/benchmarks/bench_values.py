"""CPU time of the logits of all terms: `evaluate` beside two peers, in the same run. Run it as a script.

    python tests/benchmarks/bench_values.py [--rounds 3] [--size small|deep]

All three make every term's logits and add them up; their sums are compared with the model's logits. The peers: plain
NumPy, each path by itself, head by head, through ``einsum``; and one function by SymPy's ``lambdify`` of the list of
all terms (calls; what it costs to build is printed beside it). One thread each; medians over rounds that take turns.
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import symcircuits as sc
from symcircuits.export import lambdify_words
from symcircuits.model import Run, random_model

SIZES: dict[str, dict[str, Any]] = {
    "small": {"heads": (4, 4, 4), "d_vocab": 50, "d_model": 64, "d_head": 16, "n": 32},
    "deep": {"heads": (8, 8, 8, 8), "d_vocab": 200, "d_model": 128, "d_head": 16, "n": 64},
}


def by_evaluate(run: Run) -> Any:
    """Every term's logits by the package, streamed."""
    total = np.zeros_like(run.logits)
    for value in sc.evaluate(sc.logits(run.model.architecture), run):
        total += value
    return total


def by_einsum(run: Run) -> Any:
    """Every path by itself: the residual stream or one head in each layer, then the unembedding."""
    arrays, heads = run.arrays, run.model.architecture.heads
    total = np.zeros_like(run.logits)
    choices = [[None, *(f"L{layer}H{i}" for i in range(n))] for layer, n in enumerate(heads)]
    for path in itertools.product(*choices):
        x = arrays["X0"]
        for head in filter(None, path):
            x = np.einsum("qk,km,dm->qd", arrays[f"A_{head}"], x, arrays[f"W_OV_{head}"], optimize=ORDER)
        total += np.einsum("nd,vd->nv", x, arrays["W_U"], optimize=True)
    return total


ORDER = ["einsum_path", (0, 1), (0, 1)]  # the pattern first; so that no time goes into looking for an order


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", choices=SIZES, default="deep")
    asked = parser.parse_args()
    size = SIZES[asked.size]
    widths = {name: size[name] for name in ("d_vocab", "d_model", "d_head")}
    model = random_model(sc.attention_only(size["heads"]), **widths)
    run = model.run(np.random.default_rng(0).integers(0, size["d_vocab"], size["n"]))
    terms = sc.logits(model.architecture)
    for head in model.architecture.all_heads:  # products of weights are made before the clock starts
        _ = run.arrays[f"W_OV_{head}"]
    built, function = cpu(lambda: lambdify_words(t.word for t in terms))
    ways: dict[str, Callable[[], Any]] = {
        "evaluate": lambda: by_evaluate(run),
        "einsum, path by path": lambda: by_einsum(run),
        "one list-lambdify": lambda: sum(function(run.arrays)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    errors = dict.fromkeys(ways, 0.0)
    for _ in range(asked.rounds):
        for name, work in ways.items():
            spent, total = cpu(work)
            seconds[name].append(spent)
            errors[name] = max(errors[name], float(np.abs(total - run.logits).max()))
    ours = float(np.median(seconds["evaluate"]))
    print(f"{asked.size}: {size}, {terms.count:,} terms; CPU seconds, one thread, medians of {asked.rounds} rounds")
    print(f"{'':22}{'CPU s':>9}{'ratio':>8}{'lowest':>9}{'highest':>9}{'|error|':>10}")
    for name, spent in seconds.items():
        middle = float(np.median(spent))
        print(
            f"{name:22}{middle:9.3f}{middle / ours:8.1f}{min(spent):9.3f}{max(spent):9.3f}{errors[name]:10.1e}"
        )  # fmt: skip
    print(f"{'  and to build it':22}{built:9.3f}{built / ours:8.1f}")
    both = built + float(np.median(seconds["one list-lambdify"]))
    print(f"{'  both together':22}{both:9.3f}{both / ours:8.1f}")


if __name__ == "__main__":
    main()
