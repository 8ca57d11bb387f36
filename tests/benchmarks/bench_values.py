"""The logits of all terms: values of every path beside peers, at five sizes. Run it as a script.

    python tests/benchmarks/bench_values.py [--rounds 3] [--sizes small,deep] [--quick]

Peers: an einsum over all paths, in NumPy and, where it is installed, in torch (layer by layer, so that a prefix is
shared by all paths that go on from it); the same in head space by hand, into one buffer; SymPy's ``lambdify``, one
function for the list of all terms (built and called) and one for each term (on a sample, for all); of the terms of
order 1 TransformerLens's ``stack_head_results``, unembedded; and the rate of the same run's dgemm (sgemm) at the
operations that the tree counts. The peers keep what they make but the one by hand; ours is streamed. Everybody's sum is
compared with the model's logits. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import measuring
import numpy as np
from measuring import medians, peak, timed
from peers import SIZES, Size, all_values, by_head, done, einsum_paths, stack_of_heads, torch
from results import Row, beside

import symcircuits as sc
from symcircuits.model import Run
from symcircuits.sympy_layer.lambdify import lambdify_words

WARM = 200  # times that the smallest model is run before it is timed
FULL = ("record", "small", "paper8", "paper12", "deep")
EINSUM = {"small": 1.8, "paper8": 4.5, "paper12": 4.5, "deep": 10.0}  # asked: times as fast
BY_HAND = {"paper8": 1.0, "paper12": 1.0}  # asked beside the same in head space by hand
GEMM = {"paper8": 64.0, "paper12": 64.0, "deep": 40.0}  # asked: percent of the rate of dgemm
LISTED = {"record": None, "small": None, "deep": 35.0}  # asked beside one lambdify of all terms
PAGE = 60.0  # asked: milliseconds of the page of the smallest model
STACKED = ("paper8", "deep")
SAMPLE = 50  # terms that are lambdified one by one, for all
SIDE = 1024  # of the matrices of dgemm


def sums_to_logits(run: Run, total: Any) -> None:
    """The peers compute the same: their sum is the model's logits."""
    room = 1e-10 if run.dtype == np.float64 else 1e-4
    assert np.abs(np.asarray(total) - run.logits).max() <= room * np.abs(run.logits).max()


def asked_beside() -> str:
    """The peer that the limits are about: torch, NumPy where it is not installed."""
    return "NumPy" if torch is None else "torch"


def tree_memory(size: Size, run: Run) -> float:
    """MB of what the whole tree of paths would take in head space."""
    return (size.terms - 1) * size.n * size.d_head * run.dtype.itemsize / 1e6


def values_of(size: Size, dtype: str, rounds: int) -> Iterator[Row]:
    """The rows of one size and type."""
    run = size.run(dtype)
    expansion = sc.logits(run.model.architecture)
    a = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(dtype)
    einsums = {name: einsum_paths(run, name) for name in ("NumPy", "torch")}
    ways: dict[str, Any] = {"ours": lambda: done(all_values(expansion, run)), "gemm": lambda: a @ a}
    by_hand = by_head(run)
    ways |= {"by hand": lambda: done(by_hand())}
    ways |= {name: work for name, work in einsums.items() if work is not None}
    seconds, given = medians(rounds, ways)
    sums_to_logits(run, sum(block.reshape(-1, *run.logits.shape).sum(0) for block in by_hand()))
    sums_to_logits(run, sum(block.sum(0) for block in all_values(expansion, run)))
    for name in einsums.keys() & given.keys():
        sums_to_logits(run, given[name].sum(0))
    del given
    what, memory = f"all {size.terms:,} logit terms, {dtype}", peak(ways["ours"])
    for name in einsums:
        limit = EINSUM.get(size.name) if dtype == "float64" and name == asked_beside() else None
        peer = f"einsum over all paths, {name}"
        yield beside(what, size.name, peer, seconds.get(name), seconds["ours"], limit=limit, memory=memory)
    hand = BY_HAND.get(size.name) if dtype == "float64" else None
    yield beside(what, size.name, "in head space by hand, NumPy", seconds["by hand"], seconds["ours"], limit=hand)
    if size.name == "record":  # no arithmetic to speak of
        yield from beside_lambdify(size, run, seconds["ours"], rounds)
        return
    rate = sum(size.steps().values()) / seconds["ours"] / (2 * SIDE**3 / seconds["gemm"])
    gemm, asked = "dgemm" if dtype == "float64" else "sgemm", GEMM.get(size.name) if dtype == "float64" else None
    note = f"{sum(size.steps().values()) / 1e9:.3g} GF counted; {gemm} {2e-9 * SIDE**3 / seconds['gemm']:.0f} GF/s"
    ours = seconds["ours"]
    yield Row("  share of its rate", size.name, gemm, None, ours, 100 * rate, "%", asked, note=note)
    if size.name == "deep" and dtype == "float64":
        tree = tree_memory(size, run)
        beyond = max(0.0, memory - tree)
        yield Row("  memory beyond the tree", size.name, "", figure=beyond, unit="MB", limit=16, most=True,
                  memory=memory, note=f"the tree would take {tree:.0f} MB")  # fmt: skip
    if dtype == "float64":
        yield from beside_lambdify(size, run, seconds["ours"], rounds)
        yield from beside_stack(size, run, rounds)


def beside_lambdify(size: Size, run: Run, ours: float, rounds: int) -> Iterator[Row]:
    """SymPy's lambdify: one list of all terms, and term by term on a sample."""
    if size.name not in (*LISTED, "tiny"):
        return
    expansion, what = sc.logits(run.model.architecture), f"all {size.terms:,} logit terms, float64"
    lambdify_words([expansion[0].word])  # SymPy is imported before the clock starts
    built, function = timed(lambda: lambdify_words(t.word for t in expansion))
    seconds, given = medians(rounds, {"calls": lambda: function(run.arrays)})
    sums_to_logits(run, sum(given["calls"]))
    limit = LISTED.get(size.name)
    note = f"built in {built:.3g} s, called in {seconds['calls']:.3g} s"
    yield beside(
        what,
        size.name,
        "one lambdify of the list, built, called",
        built + seconds["calls"],
        ours,
        limit=limit,
        note=note,
    )
    number = min(SAMPLE, size.terms)
    terms = [expansion[i] for i in np.linspace(0, size.terms - 1, number).astype(int)]
    one, functions = measuring.cpu(lambda: [t.lambdify() for t in terms])
    seconds, given = medians(rounds, {"calls": lambda: [f(**run.arrays) for f in functions]})
    calls, values = seconds["calls"], sc.evaluate(expansion, run)
    for term, value in zip(terms, given["calls"], strict=True):
        assert np.allclose(value, values.value(term), rtol=1e-9, atol=1e-12), term.label
    share = size.terms / number
    note = f"{number} of {size.terms:,}, for all: built in {one * share:.3g} s, called in {calls * share:.3g} s"
    yield beside(what, size.name, "one lambdify a term, built, called", (one + calls) * share, ours, note=note)


def beside_stack(size: Size, run: Run, rounds: int) -> Iterator[Row]:
    """What can be had of TransformerLens: heads one by one, order 1."""
    if size.name not in (*STACKED, "tiny"):
        return
    first = sc.logits(run.model.architecture).order(1)
    works = {name: stack_of_heads(run, name) for name in ("NumPy", "torch")}
    ways: dict[str, Any] = {"ours": lambda: done(all_values(first, run))}
    ways |= {name: work for name, work in works.items() if work is not None}
    seconds, given = medians(rounds, ways)
    wanted = np.concatenate([block.copy() for block in all_values(first, run)])
    for name in works.keys() & given.keys():
        assert np.abs(np.asarray(given[name]) - wanted).max() <= 1e-10 * np.abs(wanted).max()
    memory = peak(ways["ours"])
    for name in works:
        yield beside(f"the {first.count} of order 1", size.name, f"stack_head_results, unembedded, {name}",
                     seconds.get(name), seconds["ours"], memory=memory)  # fmt: skip


def from_model_to_numbers(size: Size, rounds: int) -> Iterator[Row]:
    """A small model: everything from the weights on, SymPy never imported."""
    model, tokens = size.model(), size.tokens()

    def work() -> None:
        run = model.run(tokens)
        done(all_values(sc.logits(model), run))

    before = "sympy" in sys.modules
    for _ in range(1 if size.name == "tiny" else WARM):  # so short that a process that has just begun would be seen
        work()
    seconds, _ = medians(max(rounds, 5), {"ours": work})
    assert before or "sympy" not in sys.modules
    ours = seconds["ours"]
    yield Row(f"all {size.terms} terms, from model to numbers", size.name, "", None, ours, 1000 * ours, "ms", 1.0, True,
              peak(work), "forward pass, patterns, all values; no SymPy")  # fmt: skip


def page(size: Size, rounds: int) -> Row:
    """The page of an explanation of a small model."""
    found = sc.explain(size.run())
    seconds, _ = medians(max(rounds, 5), {"explain": lambda: sc.explain(size.run()), "page": found.html})
    ours = seconds["page"]
    return Row("html() of its explanation", size.name, "explain", seconds["explain"], ours, 1000 * ours, "ms", PAGE,
               True, peak(found.html))  # fmt: skip


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Every size, in both types."""
    names = ["tiny"] if asked.quick else asked.sizes.split(",")
    if "record" in names or "tiny" in names:
        smallest = SIZES["tiny" if asked.quick else "record"]
        yield from from_model_to_numbers(smallest, asked.rounds)
        yield page(smallest, asked.rounds)
    for name in names:
        for dtype in ("float64", "float32")[: 1 if name == "record" else 2]:
            yield from values_of(SIZES[name], dtype, asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--sizes", default=",".join(FULL), help=f"some of {', '.join(FULL)}")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
