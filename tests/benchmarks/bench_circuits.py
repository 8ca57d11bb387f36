"""Composition scores of all pairs of heads, and a full circuit, beside their peers, in one run. Run it as a script.

    python tests/benchmarks/bench_circuits.py [--rounds 3] [--quick]

12 layers of 12 heads, d_model 768, d_head 64, random weights in float64: 9,504 pairs of each type. Peers: the products
of all pairs through d_head at the rate of the same run's dgemm; a plain loop over pairs with d_model x d_model products
(the matrices of heads made before the clock starts; timed on a sample, for all); TransformerLens's formula (both sides
collapsed by SVD, every ordered pair of heads), in NumPy, one later head at a time so that its memory does not grow. The
numbers of an OV circuit of 20,000 tokens stand beside the dgemm that would form it.
Everything is compared with the peers' numbers. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import measuring
import numpy as np
from measuring import cpu, medians, peak
from results import Row, beside

import symcircuits as sc
from symcircuits.circuits.chance import chance
from symcircuits.model import Model

SHAPES = ((12,) * 12, 768, 64)
QUICK = ((2, 2, 2), 32, 8)
SIDE = 1536  # of the matrices of dgemm
SAMPLE = 24  # pairs of the plain loop


def wholes(model: Model, kind: str) -> dict[str, tuple[Any, Any]]:
    """By head what the later side and the earlier side of a score are, d_model x d_model."""
    w, found = model.weights, {}
    for h in model.architecture.all_heads:
        qk, ov = w[f"W_Q_{h}"].T @ w[f"W_K_{h}"], w[f"W_O_{h}"] @ w[f"W_V_{h}"]
        found[str(h)] = {"Q": qk.T, "K": qk, "V": ov}[kind], ov
    return found


def collapsed(left: Any, right: Any) -> tuple[Any, Any, float]:
    """A product of thin matrices by SVD, as TransformerLens's FactoredMatrix: its left, its right side, its norm."""
    (ua, sa, va), (ub, sb, vb) = (np.linalg.svd(x, full_matrices=False) for x in (left, right))
    u, s, v = np.linalg.svd(sa[:, None] * va @ ub * sb)
    return ua @ u * s, s[:, None] * (v @ vb), float(np.sqrt((s**2).sum()))


def as_transformerlens(model: Model) -> Any:
    """K-composition of every ordered pair, zero where the first is not later."""
    w, heads = model.weights, model.architecture.all_heads
    later = [collapsed(w[f"W_Q_{h}"].T, w[f"W_K_{h}"]) for h in heads]
    earlier = [collapsed(w[f"W_O_{h}"], w[f"W_V_{h}"]) for h in heads]
    columns, norms = np.stack([left for left, _, _ in earlier]), np.array([norm for _, _, norm in earlier])
    found = np.zeros((len(heads), len(heads)))
    for i, (_, rows, norm) in enumerate(later):
        found[i] = np.linalg.norm(rows @ columns, axis=(1, 2)) / norm / norms
    return found * [[a.layer > b.layer for b in heads] for a in heads]


def gigaflops(rounds: int) -> float:
    """The rate of dgemm in this run."""
    a = np.random.default_rng(0).standard_normal((SIDE, SIDE))
    return float(np.median([2 * SIDE**3 / cpu(lambda: a @ a)[0] / 1e9 for _ in range(max(rounds, 3))]))


def composition(heads: tuple[int, ...], d_model: int, d_head: int, rounds: int) -> Iterator[Row]:
    """All pairs of all three types."""
    model = sc.random_model(sc.attention_only(heads), d_model=d_model, d_head=d_head, d_vocab=8)
    size = f"{len(heads)} x {heads[0]}, d {d_model}"
    pairs = sum(a * b for i, a in enumerate(heads) for b in heads[:i])
    labels, made = [str(h) for h in model.architecture.all_heads], wholes(model, "K")
    drawn = [(p.later, p.earlier) for p in sc.composition_scores(model, "K").pairs()]
    chosen = np.random.default_rng(0).integers(0, pairs, min(SAMPLE, pairs))
    sample = [drawn[i] for i in chosen]

    def loop() -> list[float]:
        norm, found = np.linalg.norm, []
        for later, earlier in sample:
            a, b = made[later][0], made[earlier][1]
            found.append(norm(a @ b) / norm(a) / norm(b))
        return found

    def all_three() -> Any:
        chance.cache_clear()  # random heads are drawn in each round
        return {kind: sc.composition_scores(model, kind).array.filled(0) for kind in "QKV"}

    seconds, given = medians(rounds, {"ours": all_three, "loop": loop})
    lens, other = medians(1, {"lens": lambda: as_transformerlens(model)})
    place = {label: i for i, label in enumerate(labels)}
    ours = given["ours"]["K"]
    assert np.allclose([ours[place[a], place[b]] for a, b in sample], given["loop"], rtol=1e-12, atol=0)
    assert np.allclose(ours, other["lens"], rtol=1e-10, atol=0)
    rate = gigaflops(rounds)
    floor = 3 * pairs * 2 * d_head * d_head * d_model / 1e9 / rate
    memory, what = peak(all_three), f"composition scores, {3 * pairs:,} pairs"
    took, asked = seconds["ours"], heads == SHAPES[0]
    yield Row(
        what, size, "dgemm", floor, took, figure=took / floor, unit="times as long", memory=memory,
        limit=3 if asked else None, most=True,
        note=f"products through d_head at {rate:.0f} GF/s; random heads drawn anew",
    )  # fmt: skip
    yield beside(
        what, size, "plain loop, d x d", 3 * seconds["loop"] * pairs / len(sample), took, limit=5 if asked else None,
        memory=memory,
        note=f"{len(sample)} of {pairs:,} pairs, for all",
    )  # fmt: skip
    yield beside(what, size, "TransformerLens's formula, NumPy", 3 * lens["lens"], took, memory=memory)
    yield Row("memory beyond the weights", size, figure=memory, unit="MB", limit=200, most=True, memory=memory)


def circuits(d_vocab: int, d_model: int, d_head: int, rounds: int) -> Iterator[Row]:
    """The numbers of a full OV circuit, beside the dgemm that would form it, and its largest entries."""
    model = sc.random_model(sc.attention_only((1,)), d_vocab=d_vocab, d_model=d_model, d_head=d_head)
    size = f"V {d_vocab:,}, d {d_model}"

    def numbers() -> Any:
        found = sc.circuit(model, "OV", "L0H0")
        return found.trace, found.norm, found.spectrum.positivity, found.svd.values, found

    seconds, given = medians(rounds, {"numbers": numbers, "top": lambda: sc.circuit(model, "OV", "L0H0").top(10)})
    largest, found = given["top"], given["numbers"][-1]
    above = sum(int((block > largest[-1].value * (1 + 1e-12)).sum()) for _, block in found._blocks(2**27))
    assert above == len(largest) - 1
    floor = 2 * d_vocab**2 * d_head / 1e9 / gigaflops(rounds)
    for what, took, work in (
        ("trace, norm, positivity, singular values", seconds["numbers"], numbers),
        ("the 10 largest of all entries", seconds["top"], lambda: sc.circuit(model, "OV", "L0H0").top(10)),
    ):
        yield beside(what, size, "dgemm, all entries", floor, took, memory=peak(work))


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """All lines."""
    heads, d_model, d_head = QUICK if asked.quick else SHAPES
    yield from composition(heads, d_model, d_head, asked.rounds)
    yield from circuits(50 if asked.quick else 20_000, d_model, d_head, asked.rounds)


if __name__ == "__main__":
    measuring.script(rows, __doc__)
