"""How the cost of values, sums by order, norms and enumeration grows: fitted exponents. Run it as a script.

    python tests/benchmarks/bench_growth.py [--rounds 3] [--only values,sums,norms,terms] [--quick]

One size is varied, the others held; over at least four sizes the exponent of ``seconds ~ size^exponent`` is fitted by
least squares on the logarithms, to the medians of the rounds and to each round by itself (the spread). Beside it stands
the same fit to the steps that the algorithm counts at these sizes (:func:`values_steps` and its like), which is what is
predicted where arithmetic is all there is. Layers and heads multiply the number of terms, so where every term is
visited the cost is set against that number. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import measuring
import numpy as np
from measuring import fit, turns
from peers import Size, all_values, done
from results import Growth, many

import symcircuits as sc

Work = Callable[[], Any]


# ------------------------------------------------------------------------------------- what is done, and its steps
def values_of(size: Size) -> Work:
    """The logits of all terms, streamed."""
    run = size.run()
    expansion = sc.logits(run.model.architecture)
    return lambda: done(all_values(expansion, run))


def values_steps(size: Size) -> float:
    """Of the head-space tree."""
    return sum(size.steps().values())


def sums_of(size: Size) -> Work:
    """All sums by order."""
    run = size.run()
    expansion = sc.logits(run.model.architecture)
    return lambda: sc.evaluate(expansion, run).by_order()


def sums_steps(size: Size) -> float:
    """Of the walk: what enters layer l has l + 1 orders; each goes through every head, each is unembedded."""
    n, d, h = size.n, size.d_model, size.d_head
    through = sum((layer + 1) * heads for layer, heads in enumerate(size.heads))
    return through * (4 * n * d * h + 2 * n * n * h) + (len(size.heads) + 1) * 2 * n * d * size.d_vocab


def norms_of(size: Size) -> Work:
    """The norm of every logit term; the vocabulary is dealt with once for a model, before the clock starts."""
    run = size.run()
    expansion = sc.logits(run.model.architecture)
    return lambda: [None for _ in sc.evaluate(expansion, run).measure()]


def norms_steps(size: Size) -> float:
    """Of the same tree, read by a triangle ``d_head x d_head`` of each head in place of the vocabulary.

    The triangle is made of ``W_O^T W_U^T``, W_U with no more rows than columns (see
    :mod:`symcircuits.values.unembedding`).
    """
    n, d, h, counted, heads = size.n, size.d_model, size.d_head, size.steps(), sum(size.heads)
    width = min(d, size.d_vocab)
    made = heads * (2 * h * d * width + 2 * width * h * h)
    read = (size.terms - 1) * (2 * n * h * h + 2 * n * h)
    return counted["first"] + counted["links"] + counted["steps"] + made + read + 2 * n * d * width


def terms_of(size: Size) -> Work:
    """All terms as integers with their types, counted (scores of a head above these layers)."""
    expansion = sc.scores(sc.attention_only((*size.heads, 1)), f"L{len(size.heads)}H0")
    return lambda: expansion.census()


def terms_steps(size: Size) -> float:
    """A term, a step."""
    return size.terms**2


# --------------------------------------------------------------------------------------------------- over what
class Axis(NamedTuple):
    """What is varied: its name, the sizes, and the number that each is measured by."""

    name: str
    sizes: list[Size]
    at: list[float]


def over(name: str, base: Size, **given: list[Any]) -> Axis:
    """Sizes that differ in one field."""
    [(field, values)] = given.items()
    return Axis(name, [replace(base, **{field: v}) for v in values], [float(v) for v in values])


def by_terms(name: str, base: Size, heads: list[tuple[int, ...]], power: int = 1) -> Axis:
    """Sizes that differ in layers or heads, measured by the number of terms."""
    sizes = [replace(base, heads=h) for h in heads]
    return Axis(name, sizes, [float(s.terms**power) for s in sizes])


WORKS: dict[str, tuple[str, Callable[[Size], Work], Callable[[Size], float]]] = {
    "values": ("values of all terms", values_of, values_steps),
    "sums": ("all sums by order", sums_of, sums_steps),
    "norms": ("norms of all terms", norms_of, norms_steps),
    "terms": ("terms as integers, with types", terms_of, terms_steps),
}


def axes(kind: str, quick: bool) -> list[Axis]:
    """What is varied for one kind of work; at least four sizes each."""
    s = 1 if quick else 8  # how large
    two = Size("", (s,) * 2, 25 * s, 16 * s, 2 * s, 8 * s)
    wide = [two.d_model * k for k in (1, 2, 4, 8)]
    if kind == "terms":
        small = [(1,) * k for k in range(1, 5)], [(k, k) for k in range(1, 5)]
        layers, heads = small if quick else ([(3,) * k for k in range(4, 8)], [(k,) * 3 for k in (8, 12, 16, 24)])
        return [by_terms("terms, by layers", two, layers, 2), by_terms("terms, by heads", two, heads, 2)]
    if kind == "sums":
        deep = replace(two, heads=(s,) * (2 if quick else 4))
        counts = [1, 2, 3, 4] if quick else [2, 4, 8, 16]
        return [
            Axis("layers", [replace(two, heads=(max(s // 2, 1),) * k * (1 if quick else 2)) for k in counts],
                 [float(k) for k in counts]),
            Axis("heads", [replace(deep, heads=(k,) * len(deep.heads)) for k in counts], [float(k) for k in counts]),
            over("n", deep, n=[deep.n * k for k in (1, 2, 4, 8)]), over("d_model", deep, d_model=wide),
            over("V", deep, d_vocab=[deep.d_vocab * k for k in (1, 2, 4, 8, 16)]),
        ]  # fmt: skip
    layers, heads = [(max(s // 2, 1),) * k for k in range(1 if quick else 2, 5 if quick else 7)], [1, 2, 3, 4]
    return [
        by_terms("terms, by layers", two, layers),
        by_terms("terms, by heads", two, [(k * max(s // 2, 1),) * (2 if quick else 3) for k in heads]),
        over("n", two, n=[two.n * k for k in (1, 2, 4, 8)]), over("d_model", two, d_model=wide),
        over("V", two, d_vocab=[two.d_vocab * k for k in (1, 4, 16, 64)]),
    ]  # fmt: skip


def growth(what: str, make: Callable[[Size], Work], steps: Callable[[Size], float], axis: Axis, rounds: int) -> Growth:
    """One line: every size in turn, several rounds."""
    works = {str(i): make(size) for i, size in enumerate(axis.sizes)}
    for work in works.values():
        work()  # what is kept for the next time is made before the clock starts
    spent, _ = turns(rounds, works)
    seconds = np.array([spent[name] for name in works])
    single = [fit(axis.at, column) for column in seconds.T]
    middle = np.median(seconds, axis=1)
    predicted = fit(axis.at, [steps(size) for size in axis.sizes])
    ends = f"{many(int(axis.at[0]))} to {many(int(axis.at[-1]))}"
    said = f"{axis.name}, {ends} ({held(axis)})"
    exponent = fit(axis.at, middle)
    return Growth(what, said, float(middle[0]), float(middle[-1]), exponent, min(single), max(single), predicted)


def held(axis: Axis) -> str:
    """What is not varied."""
    first, last = axis.sizes[0], axis.sizes[-1]
    heads = f"{len(first.heads)} x {first.heads[0]} heads" if first.heads == last.heads else ""
    if not heads and len(first.heads) == len(last.heads):
        heads = f"{len(first.heads)} layers"
    elif not heads:
        heads = f"{first.heads[0]} heads a layer"
    return heads


def rows(asked: argparse.Namespace) -> Iterator[Growth]:
    """Every kind of work along every axis."""
    for kind in asked.only.split(",") if asked.only else WORKS:
        what, make, steps = WORKS[kind]
        for axis in axes(kind, asked.quick):
            yield growth(what, make, steps, axis, asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--only", help=f"some of {', '.join(WORKS)}")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
