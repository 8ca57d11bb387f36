"""How far sums of terms are from the forward pass, beside the bound, over sizes and weight scales. Run it as a script.

    python tests/benchmarks/bench_accuracy.py [--seeds 6] [--sizes record,deep] [--rounds 3] [--quick]

Random attention-only models; the terms of the logits and of one head of the last layer are added up (one by one up to
7,000 of them, else by order) and set against what the model computes. Shown are, at the entry nearest to its bound,
the error as a part of the largest entry and the bound over the error: the median over the models, and the worst (a
bound below the error would refuse a right model). At scale 1 the median is to stay under 100. Weights that take numbers
out of the range of the type are refused by the package, which is counted.

Then ways to add the same terms, and what each costs: one after the other, in pairs (what the package does), with the
rounding of every sum carried along (Neumaier's idea by Knuth's two-sum, on arrays) and, of float32, in float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import measuring
import numpy as np
from measuring import medians
from peers import SIZES, Size, all_values
from results import Accuracy, Summing

import symcircuits as sc
from symcircuits.arrays.rings import PairwiseSum
from symcircuits.values.evaluate import closure, reference

FULL = (SIZES["record"], SIZES["small"], SIZES["paper8"], SIZES["deep"], Size("12 x 12", (12,) * 12, 100, 96, 8, 32))
SCALES, TYPES = (0.1, 1.0, 10.0, 100.0), ("float64", "float32")
LISTED, LIMIT = 7_000, 100.0
ADDED = ("small", "paper8", "deep")  # where the ways to add are compared


# --------------------------------------------------------------------------------- against the forward pass
def accuracy(size: Size, dtype: str, scale: float, seeds: int) -> Iterator[Accuracy]:
    """The rows of one size, type and scale: logits, and scores of the last head."""
    found: dict[str, list[tuple[float, float]]] = {"logits": [], "scores": []}
    outside = 0
    for seed in range(seeds):
        model = size.model(seed, scale)
        arch = model.architecture
        try:
            run = model.run(size.tokens(seed), dtype=dtype)
            closed = {
                "logits": closure(sc.logits(arch), run, listed=LISTED),
                "scores": closure(sc.scores(arch, arch.all_heads[-1]), run, listed=LISTED),
            }
        except ValueError as refused:
            if "leave the range" not in str(refused):
                raise
            outside += 1
            continue
        for of, c in closed.items():
            assert c.passed, f"{size.name} {dtype} weights x {scale} seed {seed}: {c}"
            if c.error:
                known = np.asarray(reference(c.target, run), np.float64)
                largest = float(np.abs(known[np.isfinite(known)]).max())
                found[of].append((c.error / largest, c.bound / c.error))
    for of, pairs in found.items():
        errors, ratios = [e for e, _ in pairs], [r for _, r in pairs]
        middle = [float(np.median(x)) if x else None for x in (errors, ratios)]
        yield Accuracy(size.name, of, dtype, scale, seeds, middle[0], max(errors, default=None), middle[1],
                       min(ratios, default=None), LIMIT if scale == 1 else None, outside)  # fmt: skip


# ------------------------------------------------------------------------------------------- ways to add
def plain(terms: list[Any]) -> Any:
    """One after the other."""
    total = np.array(terms[0])
    for term in terms[1:]:
        total += term
    return total


def in_pairs(terms: list[Any]) -> Any:
    """As the package adds."""
    total = PairwiseSum()
    for term in terms:
        total.add(term)
    return total.value


def compensated(terms: list[Any]) -> Any:
    """What every sum rounds off is added up by itself, and put back at the end.

    >>> float(compensated([np.array(1.0), np.array(1e100), np.array(1.0), np.array(-1e100)]))
    2.0
    """
    total = np.array(terms[0])
    lost = np.zeros_like(total)
    new, of_term, of_total = np.empty_like(total), np.empty_like(total), np.empty_like(total)
    for term in terms[1:]:
        np.add(total, term, out=new)
        np.subtract(new, total, out=of_term)  # what came in of the term, and of the sum so far
        np.subtract(new, of_term, out=of_total)
        np.subtract(total, of_total, out=of_total)
        np.subtract(term, of_term, out=of_term)
        of_total += of_term
        lost += of_total
        total, new = new, total
    return total + lost


def widened(terms: list[Any]) -> Any:
    """One after the other in float64."""
    total = terms[0].astype(np.float64)
    for term in terms[1:]:
        total += term
    return total.astype(terms[0].dtype)


WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "plain": plain, "pairwise": in_pairs, "compensated": compensated, "in float64": widened,
}  # fmt: skip


def summing(size: Size, dtype: str, scale: float, rounds: int) -> Iterator[Summing]:
    """The rows of one size: every way, against the exact sum of the terms and against the forward pass."""
    run = size.model(0, scale).run(size.tokens(), dtype=dtype)
    terms = [v for block in all_values(sc.logits(run.model.architecture), run) for v in block.copy()]
    exact = np.zeros(terms[0].shape, np.longdouble)
    for term in terms:
        exact += term
    largest = float(np.abs(exact).max())
    ways = {name: way for name, way in WAYS.items() if dtype == "float32" or name != "in float64"}
    seconds, given = medians(rounds, {name: lambda way=way: way(terms) for name, way in ways.items()})  # type: ignore[misc]
    for name in ways:
        errors = [float(np.abs(given[name] - other).max()) / largest for other in (exact, run.logits)]
        yield Summing(size.name, dtype, scale, name, *errors, seconds[name], seconds[name] / seconds["plain"])


def rows(asked: argparse.Namespace) -> Iterator[Accuracy | Summing]:
    """Every size, type and scale; then the ways to add."""
    sizes = {size.name: size for size in ((SIZES["tiny"],) if asked.quick else FULL)}
    chosen = sizes if asked.sizes is None or asked.quick else {n: sizes[n] for n in asked.sizes.split(",")}
    for size in chosen.values():
        for dtype in TYPES:
            for scale in (1.0, 1e6) if asked.quick else SCALES:
                yield from accuracy(size, dtype, scale, 2 if asked.quick else asked.seeds)
    for size in chosen.values():
        if asked.quick or size.name in ADDED:
            for dtype in TYPES:
                yield from summing(size, dtype, 1.0, asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--seeds", type=int, default=6, help="models of each size and scale (default 6)")
    parser.add_argument("--sizes", help=f"some of {', '.join(size.name for size in FULL)}")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
