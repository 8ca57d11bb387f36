"""Sums and largest terms of expansions that nobody can list, beside their peers, in one run. Run it as a script.

    python tests/benchmarks/bench_deep.py [--rounds 3] [--model FOLDER] [--small] [--only sums|largest] [--quick]

Sums: all order sums of 12 layers x 12 heads, in forward passes: this package's `model.run`, and a bare NumPy forward
pass that keeps nothing. Largest terms: of the model in FOLDER (trained, 12 x 12), expansions and time; and on random
models that can be enumerated, beside brute force over all terms by the head-space tree, with which they must agree.
CPU seconds of one thread, medians over rounds that take turns; memory as NumPy allocates it (tracemalloc).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import cpu, medians, peak
from peers import Size
from results import Row, beside, many

import symcircuits as sc
from symcircuits.model import Model, Run
from symcircuits.values.evaluate import Values
from symcircuits.values.term_values import arrays

TWELVE = (12,) * 12


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


def in_passes(what: str, size: str, peer: str, theirs: float, ours: float, **more: Any) -> Row:
    """A line that says how many forward passes the work takes."""
    return Row(what, size, peer, theirs, ours, ours / theirs, "passes", **more)


# -------------------------------------------------------------------------------------------------- sums
def sums(size: Size, rounds: int, limit: float | None) -> Iterator[Row]:
    """All order sums against forward passes; the sum of squares of all terms."""
    model, tokens = size.model(), size.tokens()
    run, bare = model.run(tokens), bare_forward(model, tokens)
    expansion = sc.logits(model)
    work = lambda: sc.evaluate(expansion, run).by_order()  # noqa: E731
    seconds, given = medians(rounds, {"run": lambda: model.run(tokens), "bare": bare, "orders": work})
    largest = np.abs(run.logits).max()
    assert np.abs(given["bare"] - run.logits).max() < 1e-12 * largest
    error = float(np.abs(sum(given["orders"].values()) - run.logits).max() / largest)
    assert len(given["orders"]) == len(size.heads) + 1
    assert error < 1e-13
    what, ours = f"{len(size.heads) + 1} sums by order of {many(expansion.count)} terms", seconds["orders"]
    note, memory = f"d {size.d_model}, d_head {size.d_head}, n {size.n}; sum off by {error:.0e}", peak(work)
    yield in_passes(what, size.name, "a forward pass, model.run", seconds["run"], ours,
                    limit=limit, most=True, memory=memory, note=note)  # fmt: skip
    yield in_passes(what, size.name, "a forward pass, bare NumPy", seconds["bare"], ours, memory=memory)
    signs = lambda: sc.evaluate(expansion, run).sum_of_squares(sc.logit(), samples=32, max_memory=0)  # noqa: E731
    seconds["signs"], found = cpu(signs)
    yield in_passes("  sum of squares, 32 signed walks", size.name, "a forward pass, model.run",
                    seconds["run"], seconds["signs"], note=str(found))  # fmt: skip


# ----------------------------------------------------------------------------------------- largest terms
def brute(run: Run, by_token: int, against: int) -> Any:
    """|part in the logit difference at the last position but one| of every path, by the head-space tree."""
    expansion = sc.logits(run.model.architecture)
    both = {"W_U": run.arrays["W_U"][[by_token]] - run.arrays["W_U"][[against]]}
    found = np.empty(expansion.count)
    start = 0
    for block in arrays(Values(expansion, run, both)):
        found[start : start + len(block)] = np.abs(block[:, -2, 0])
        start += len(block)
    return found


def against_brute_force(size: Size, scale: float, rounds: int) -> Iterator[Row]:
    """A random model that can be enumerated."""
    run = size.model(1, scale).run(size.tokens())
    expansion = sc.logits(run.model.architecture)
    ask = {"by": sc.logit(against="second", position=-2)}
    k = min(1000, size.terms)
    work = lambda: sc.evaluate(expansion, run).largest(k, **ask)  # noqa: E731
    first = work()
    assert first.exact
    token, against = first.measure.token, first.measure.against
    assert token is not None
    assert against is not None
    seconds, given = medians(rounds, {"ours": work, "brute": lambda: brute(run, token, against)})
    best = np.sort(given["brute"])[: -k - 1 : -1]
    assert np.allclose([t.size for t in first.terms], best, rtol=1e-10, atol=1e-14)
    squared = float((given["brute"] ** 2).sum())
    assert abs(first.squares.value - squared) <= 1e-12 * squared
    note = f"equal; {first.expansions:,} expansions, {100 * (first.share or 0):.3g}% of the squares; weights x {scale}"
    yield beside(f"largest {k:,} of {many(expansion.count)} terms", size.name, "brute force, head-space tree",
                 seconds["brute"], seconds["ours"], memory=peak(work), note=note)  # fmt: skip


def random_large(size: Size, scale: float) -> Iterator[Row]:
    """A random model whose weight is spread: the largest terms are proved, and say little."""
    run = size.model(1, scale).run(size.tokens())
    expansion = sc.logits(run.model.architecture)
    forward = medians(1, {"run": lambda: run.model.run(run.tokens)})[0]["run"]
    seconds, found = cpu(
        lambda: sc.evaluate(expansion, run).largest(10, sc.logit(against="second", position=-2), max_seconds=60)
    )
    said = "proved" if found.exact else f"{found.certain} proved"
    share = 100 * (found.share or 0)
    note = f"{said}; {found.expansions:,} expansions, {share:.3g}% of the squares; weights x {scale}"
    yield in_passes(f"largest 10 of {many(expansion.count)} terms", size.name, "a forward pass, model.run",
                    forward, seconds, note=note)  # fmt: skip


def trained(folder: Path | None, rounds: int) -> Iterator[Row]:
    """The trained model: 13^12 paths from each of two sources."""
    name = "trained 12x12"
    if folder is None:
        yield Row("largest terms of a trained model", name, figure=None, note="not measured: it takes --model FOLDER")
        return
    model = sc.load(folder)
    with np.load(folder / "reference.npz") as recorded:
        run = model.run(recorded["tokens"][0])
    expansion = sc.logits(model)
    forward = medians(rounds, {"run": lambda: model.run(run.tokens)})[0]["run"]
    ask = {"by": sc.logit(against="second", position=-2)}
    for k, limit in ((10, None), (100, 150), (1000, 1300), (10_000, None)):
        work = lambda k=k: sc.evaluate(expansion, run).largest(k, **ask)  # noqa: E731
        seconds, given = medians(rounds if k < 10_000 else 1, {"ours": work})
        found = given["ours"]
        assert found.exact
        note = f"{seconds['ours'] / forward:.0f} passes; {100 * (found.share or 0):.4g}% of the squares"
        yield Row(f"largest {k:,} of {many(expansion.count)} terms", name, "a forward pass, model.run",
                  forward, seconds["ours"], found.expansions, "expansions", limit, True,
                  peak(work) if k <= 100 else None, note)  # fmt: skip
    pairs = sc.scores(model, f"L{model.architecture.n_layers - 1}H5")
    ways = {
        "pairs": lambda: sc.evaluate(pairs, run).largest(20, sc.score_entry(-2)),
        "squares": lambda: sc.evaluate(expansion, run).sum_of_squares(**ask),
    }
    seconds, given = medians(rounds, ways)
    found = given["pairs"]
    assert found.exact
    note = f"{seconds['pairs'] / forward:.0f} passes; {100 * (found.share or 0):.4g}% of the squares"
    yield Row(f"largest 20 of {many(pairs.count)} score terms", name, "a forward pass, model.run", forward,
              seconds["pairs"], found.expansions, "expansions", note=note)  # fmt: skip
    yield in_passes("  sum of squares of all, exact", name, "a forward pass, model.run", forward,
                    seconds["squares"], note=str(given["squares"]))  # fmt: skip


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Sums, then largest terms."""
    if asked.quick:
        few = Size("3 x 3 layers", (3, 3, 3), 20, 16, 4, 8)
        yield from sums(few, 1, None)
        yield from against_brute_force(few, 0.5, 1)
        yield from trained(None, 1)
        return
    if asked.only != "largest":
        yield from sums(Size("12 x 12 layers", TWELVE, 100, 128, 16, 32), asked.rounds, None)
        if not asked.small:
            yield from sums(Size("12 x 12 layers", TWELVE, 1000, 768, 64, 64), asked.rounds, 4)
    if asked.only == "sums":
        return
    yield from against_brute_force(Size("8 x 4 layers", (8,) * 4, 50, 64, 8, 16), 0.5, asked.rounds)
    if not asked.small:
        for scale in (0.5, 1.0):
            yield from against_brute_force(Size("8 x 6 layers", (8,) * 6, 50, 64, 8, 16), scale, 1)
    for scale in (1.0, 1.5, 2.5):
        yield from random_large(Size("12 x 12 layers", TWELVE, 40, 96, 8, 16), scale)
    yield from trained(asked.model, asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--model", type=Path, help="a folder with a trained model and reference.npz")
    parser.add_argument("--small", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--only", choices=["sums", "largest"])


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
