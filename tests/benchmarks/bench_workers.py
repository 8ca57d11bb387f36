"""Two workers beside one, in seconds of the clock; and a prompt of many in forward passes. Run it as a script.

    python tests/benchmarks/bench_workers.py [--rounds 3] [--model FOLDER] [--quick]

The peer is the same call without workers, in pairs one after the other; what both find must be the same. Prompts and
explanations are of the model in FOLDER (trained, 12 x 12), else of the small one that comes along.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import medians
from results import Row, beside

import symcircuits as sc
from symcircuits.zoo import path as small_model

PROMPTS = 16
LEAST = 0.95  # asked: times as fast as one
PASSES = 20.0  # asked: forward passes of a prompt


def clock(rounds: int, work: Callable[[Any], Any]) -> tuple[float, float]:
    """Seconds of the clock with one and with two workers, medians of pairs; what they give is the same."""
    spent: dict[Any, list[float]] = {None: [], 2: []}
    for _ in range(rounds):
        given = []
        for workers, seconds in spent.items():
            start = time.perf_counter()
            given.append(work(workers))
            seconds.append(time.perf_counter() - start)
        assert given[0] == given[1]
    return float(np.median(spent[None])), float(np.median(spent[2]))


def prompt_row(model: sc.Model, name: str, prompts: list[Any], rounds: int, limit: float | None) -> Row:
    """What a prompt of many costs, in forward passes."""
    ways = {"run": lambda: model.run(prompts[0]), "many": lambda: sc.explain_many(model, prompts)}
    seconds, _ = medians(rounds, ways)
    each = seconds["many"] / len(prompts)
    return Row(f"a prompt of {len(prompts)} of explain_many", name, "a forward pass, model.run", seconds["run"], each,
               each / seconds["run"], "passes", limit, True)  # fmt: skip


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Prompts, an explanation, a summary, a census, an export."""
    model = sc.load(small_model() if asked.model is None else asked.model)
    name, n = ("small" if asked.model is None else "trained 12x12"), 6 if asked.quick else 24
    rng, count = np.random.default_rng(0), 2 if asked.quick else PROMPTS
    prompts = [rng.integers(0, model.d_vocab, n).tolist() for _ in range(count)]
    yield prompt_row(model, name, prompts, asked.rounds, PASSES if asked.model else None)
    wide = sc.random_model(sc.attention_only((3, 3) if asked.quick else (12,) * 6), d_vocab=50, d_model=96, d_head=8)
    run, values = model.run(prompts[0]), sc.evaluate(sc.logits(wide), wide.run(list(range(16))))
    scores = sc.scores(sc.attention_only((3, 3, 1) if asked.quick else (12, 12, 12)), "L2H0")
    logits = sc.logits(sc.attention_only((3, 3) if asked.quick else (12,) * 8))

    def export(workers: Any) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return scores.export(f"{folder}/terms.csv", workers=workers).path.read_bytes()

    works: dict[str, Callable[[Any], Any]] = {
        f"explain_many, {count} prompts": lambda w: sc.explain_many(model, prompts, workers=w).json(),
        "explain": lambda w: sc.explain(run, workers=w).json(),
        f"summary of {values.expansion.count:,} terms": lambda w: values.summary(workers=w).json(),
        f"census of {logits.count:,} terms": lambda w: logits.census(workers=w).by_order(),
        f"export of {scores.count:,} rows": export,
    }
    for what, work in works.items():
        one, two = clock(asked.rounds, work)
        peer = "one worker (seconds of the clock)"
        yield beside(what, name if "explain" in what else "", peer, one, two, limit=None if asked.quick else LEAST)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--model", type=Path, help="a folder with a trained model")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
