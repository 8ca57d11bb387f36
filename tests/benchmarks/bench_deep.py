"""Sums and largest terms of expansions that nobody can list, beside their peers, in one run. Run it as a script.

    python tests/benchmarks/bench_deep.py [--rounds 3] [--model FOLDER] [--small] [--only sums|largest]

Sums: all order sums of 12 layers x 12 heads, in forward passes: this package's `model.run`, and a bare NumPy forward
pass that keeps nothing. Largest terms: of the model in FOLDER (trained, 12 x 12), expansions and time; and on random
models that can be enumerated, beside brute force over all terms by the head-space tree, with which they must agree.
CPU seconds, one thread each, medians over rounds that take turns; memory as NumPy allocates it (tracemalloc).
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

import argparse
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import cpu, medians, peak

import symcircuits as sc
from symcircuits.model import Model, Run, random_model

TWELVE = sc.attention_only((12,) * 12)


def bare_forward(model: Model, tokens: Any) -> Callable[[], Any]:
    """The forward pass with weights stacked by layer beforehand: one product for all heads, nothing kept."""
    w, heads = model.weights, model.architecture.heads
    stacked = []
    for layer, n in enumerate(heads):
        names = [f"L{layer}H{i}" for i in range(n)]
        qkv = np.concatenate([w[f"W_{m}_{h}"] for m in "QKV" for h in names]).T.copy()
        stacked.append((n, qkv, np.concatenate([w[f"W_O_{h}"].T for h in names])))
    w_u, scale = w["W_U"].T.copy(), model.score_scale["L0H0"]
    masked = np.triu(np.full((len(tokens),) * 2, -np.inf), 1)

    def run() -> Any:
        x = w["W_E"].T[tokens]
        for n, qkv, out in stacked:
            q, k, v = (x @ qkv).reshape(len(tokens), 3, n, -1).transpose(1, 2, 0, 3)
            s = q @ k.swapaxes(-1, -2) * scale + masked
            np.exp(s - s.max(-1, keepdims=True), out=s)
            s /= s.sum(-1, keepdims=True)
            x = x + (s @ v).swapaxes(0, 1).reshape(len(tokens), -1) @ out
        return x @ w_u

    return run


ROW = "{:44}{:>10}{:>12}{:>8}{:>9}  {}"


def say(what: str, seconds: float, peer: float | None, ratio: float | None, memory: float, note: str) -> None:
    """One row of the table."""
    shown = ("-" if peer is None else f"{peer:.3f}", "-" if ratio is None else f"{ratio:.2f}")
    print(ROW.format(what, f"{seconds:.3f}", *shown, f"{memory:.0f}", note), flush=True)


# -------------------------------------------------------------------------------------------------- sums
def sums(rounds: int, d: int, d_head: int, n: int, vocabulary: int) -> None:
    """All 13 order sums against forward passes."""
    model = random_model(TWELVE, d_vocab=vocabulary, d_model=d, d_head=d_head)
    tokens = np.random.default_rng(0).integers(0, vocabulary, n)
    run, expansion, bare = model.run(tokens), sc.logits(TWELVE), bare_forward(model, tokens)
    seconds, given = medians(rounds, {
        "run": lambda: model.run(tokens), "bare": bare, "orders": lambda: sc.evaluate(expansion, run).by_order(),
    })  # fmt: skip
    size = np.abs(run.logits).max()
    assert np.abs(given["bare"] - run.logits).max() < 1e-12 * size
    error = float(np.abs(sum(given["orders"].values()) - run.logits).max() / size)
    assert len(given["orders"]) == 13
    assert error < 1e-13
    memory, what = peak(lambda: sc.evaluate(expansion, run).by_order()), f"13 order sums, d {d}, d_head {d_head}, n {n}"
    for name, limit in (("run", "limit 8"), ("bare", "")):
        note = f"forward passes ({'model.run' if name == 'run' else 'bare'}) {limit}; error {error:.0e}"
        say(what, seconds["orders"], seconds[name], seconds["orders"] / seconds[name], memory, note)
    seconds, given = medians(1, {"signs": lambda: sc.squares(expansion, run, by="logit", samples=32, max_memory=0)})
    found = given["signs"]
    note = f"32 signed walks: {found}"
    say("  sum of squares, estimated", seconds["signs"], None, None, 0, note)


# ----------------------------------------------------------------------------------------- largest terms
def brute(run: Run, by_token: int, against: int) -> Any:
    """|part in the logit difference at the last position but one| of every path, by the head-space tree."""
    expansion = sc.logits(run.model.architecture)
    values = sc.evaluate(expansion, run)
    both = {"W_U": run.arrays["W_U"][[by_token]] - run.arrays["W_U"][[against]]}
    found = np.empty(expansion.count)
    start = 0
    for _, block in values.blocks(both):
        found[start : start + len(block)] = np.abs(block[:, -2, 0])
        start += len(block)
    return found


def against_brute_force(rounds: int, heads: tuple[int, ...], scale: float) -> None:
    """A random model that can be enumerated."""
    model = random_model(sc.attention_only(heads), d_vocab=50, d_model=64, d_head=8, weight_scale=scale, seed=1)
    run = model.run(np.random.default_rng(0).integers(0, 50, 16))
    expansion = sc.logits(model.architecture)
    ask = {"by": "logit difference", "position": -2}
    first = sc.largest(expansion, run, 1000, **ask)
    assert first.exact
    token, against = first.asked.token, first.asked.against
    assert token is not None
    assert against is not None
    seconds, given = medians(rounds, {
        "ours": lambda: sc.largest(expansion, run, 1000, **ask), "brute": lambda: brute(run, token, against),
    })  # fmt: skip
    best = np.sort(given["brute"])[:-1001:-1]
    assert np.allclose([t.size for t in first.terms], best, rtol=1e-10, atol=1e-14)
    squared = float((given["brute"] ** 2).sum())
    assert abs(first.squares.value - squared) <= 1e-12 * squared
    memory = peak(lambda: sc.largest(expansion, run, 1000, **ask))
    note = f"brute force over {expansion.count:,}; {first.expansions:,} expansions, {100 * (first.share or 0):.3g}%"
    what = f"largest 1000, random {'x'.join(map(str, heads))}, scale {scale}"
    say(what, seconds["ours"], seconds["brute"], seconds["ours"] / seconds["brute"], memory, note + " covered, equal")


def random_large(scale: float) -> None:
    """A random model whose weight is spread: the largest terms are proved, and say little."""
    run = random_model(TWELVE, d_vocab=40, d_model=96, d_head=8, weight_scale=scale, seed=1).run(list(range(16)))
    expansion = sc.logits(TWELVE)
    seconds, found = cpu(lambda: sc.largest(expansion, run, 10, by="logit difference", position=-2, max_seconds=60))
    said = "proved" if found.exact else f"{found.certain} proved"
    note = f"{said}; {found.expansions:,} expansions, {100 * (found.share or 0):.3g}% covered"
    say(f"largest 10, random 12 x 12, scale {scale}", seconds, None, None, 0, note)


def trained(rounds: int, folder: Path) -> None:
    """The trained model: 13^12 paths from each of two sources."""
    model = sc.load(folder)
    with np.load(folder / "reference.npz") as recorded:
        run = model.run(recorded["tokens"][0])
    expansion = sc.logits(model.architecture)
    forward = medians(rounds, {"run": lambda: model.run(run.tokens)})[0]["run"]
    for k, limit in ((10, None), (100, 300), (1000, 2500), (10_000, None)):
        work = lambda k=k: sc.largest(expansion, run, k, by="logit difference", position=-2)  # noqa: E731
        seconds, given = medians(rounds if k < 10_000 else 1, {"ours": work})
        found = given["ours"]
        assert found.exact
        assert limit is None or found.expansions <= limit
        limit_note = "" if limit is None else f" (limit {limit:,})"
        note = f"forward passes; {found.expansions:,} expansions{limit_note}, {100 * (found.share or 0):.4g}% covered"
        what = f"largest {k:,} of {expansion.count:,}"
        say(what, seconds["ours"], forward, seconds["ours"] / forward, peak(work) if k <= 100 else 0, note)
    pairs = sc.scores(model.architecture, f"L{model.architecture.n_layers - 1}H5")
    seconds, given = medians(rounds, {"ours": lambda: sc.largest(pairs, run, 20, by="score entry", position=-2)})
    found = given["ours"]
    assert found.exact
    note = f"forward passes; {found.expansions:,} expansions, {100 * (found.share or 0):.4g}% covered"
    what = f"largest 20 of {pairs.count:.1e} score terms"
    say(what, seconds["ours"], forward, seconds["ours"] / forward, 0, note)
    seconds, given = medians(
        rounds, {"squares": lambda: sc.squares(expansion, run, by="logit difference", position=-2)}
    )
    say("  sum of squares, exact", seconds["squares"], forward, seconds["squares"] / forward, 0, str(given["squares"]))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a folder with a trained model and reference.npz")
    parser.add_argument("--small", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--only", choices=["sums", "largest"])
    asked = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, NumPy {np.__version__}, one thread; CPU s, medians")
    print(ROW.format("", "CPU s", "peer CPU s", "ratio", "MB", "peer and what was found"))
    if asked.only != "largest":
        sums(asked.rounds, 128, 16, 32, 100)
        if not asked.small:
            sums(asked.rounds, 768, 64, 64, 1000)
    if asked.only != "sums":
        against_brute_force(asked.rounds, (8, 8, 8, 8), 0.5)
        if not asked.small:
            against_brute_force(1, (8,) * 6, 0.5)
            against_brute_force(1, (8,) * 6, 1.0)
        for scale in (1.0, 1.5, 2.5):
            random_large(scale)
        if asked.model is not None:
            trained(asked.rounds, asked.model)


if __name__ == "__main__":
    main()
