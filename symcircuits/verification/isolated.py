"""The row *isolated terms*: every term equals what the frozen model gives with only some heads kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from symcircuits.arrays.rings import PrimeField
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.text import amount
from symcircuits.model import frozen
from symcircuits.model.alone import Alone
from symcircuits.verification.prime_field import degrees, instance, sizes_for, word_values
from symcircuits.verification.result import Check
from symcircuits.verification.rows import NOTHING, draw_seed, frozen_value, named

__all__ = ["check_isolated"]

LISTED = 1_000  # up to this number, all terms of a target are measured
FIRST, DRAWN, HEADS = 10, 20, 4  # beyond: the first terms, and some at random with at most this many heads on a side


def check_isolated(
    group: Sequence[Expansion],
    seed: int = 0,
    limit: int = LISTED,
    terms: Callable[[Expansion], Iterable[Term]] = iter,
) -> Check:
    """Whether each term's word has the value measured by frozen runs with only its heads and its source kept.

    Over a prime field, so exactly, once: ``(degree / p)`` bounds a false pass. If all terms of a target are
    measured, their sum is also the whole run, so none is missing or duplicated.
    """
    ring, faults, seen, sampled, runs, most = PrimeField(), list[str](), 0, 0, 0, min(limit, LISTED)
    readouts = [e.readout for e in group]
    sizes, top, made = sizes_for(readouts), max(degrees(readouts)), dict[int, Alone]()
    for e, k in sorted(zip(group, sizes, strict=True), key=lambda pair: pair[1]):
        at = instance(e.architecture, k, draw_seed(seed, 200), ring)
        if k not in made:
            runs += sum(one.runs for one in made.values())
            made = {k: Alone(e.architecture, at.matrices, ring, remember=True)}
        chosen = list(terms(e) if e.count <= most else _some(e, seed, terms))
        total = ring.zeros((k, k))
        values = (value for block in word_values((t.word for t in chosen), at) for value in block)
        for term, value in zip(chosen, values, strict=True):
            measured = made[k].term(e.target, term.sources, term.heads)
            total = ring.add(total, measured)
            if not ring.equal(measured, value):
                faults.append(f"{e.target}: {term.label} is not {term.word.text}")
        faults += [] if chosen else [f"{e.target}: {NOTHING}"]
        seen, sampled = seen + len(chosen), sampled + len(chosen) * (e.count > most)
        whole = frozen_value(e.readout, frozen(e.architecture, at.matrices, ring))
        if e.count <= most and not ring.equal(total, whole):
            faults.append(f"{e.target}: the measured terms do not add up to the run with all heads and sources")
    runs += sum(one.runs for one in made.values())
    what = f"{amount(seen, 'term')} measured, exactly, by {amount(runs, 'frozen run')} with only some heads "
    what += "and one source kept"
    if sampled:
        what += f"; {sampled:,} of them a sample of targets with more than {most:,} terms"
    details = {
        "p": ring.p, "k": [min(sizes), max(sizes)], "degree": top, "trials": 1, "false_pass": top / ring.p,
        "runs": runs, "sampled": sampled, "seed": seed,
    }  # fmt: skip
    return Check(
        "isolated terms", named(group), not faults, len(faults), 0, what=faults[0] if faults else what, details=details
    )


def _some(e: Expansion, seed: int, terms: Callable[[Expansion], Iterable[Term]]) -> Iterator[Term]:
    """The first terms, and some with few heads on a side, drawn at random."""
    yield from islice(terms(e), FIRST)
    rng = np.random.default_rng(seed)
    orders = [order for order in e.counts_by_order() if order <= HEADS]
    for order in rng.choice(orders, DRAWN).tolist() if orders else ():
        some = e.order(order)
        yield some[int(rng.integers(0, min(some.count, 2**62)))]
