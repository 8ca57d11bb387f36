"""The row *every head*: where one head of a layer represents the others, the checks that every single head still gets.

Its number of terms, its first terms and its last (types, names and numbers), and over a prime field whether its
walk equals the forward pass. The number of terms is also checked by a witness: a forward pass in which every matrix
is the number 1, which adds one for each term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from symcircuits.arrays.rings import PrimeField
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.expansion import Expansion
from symcircuits.core.programs import Readout, made_once, readout
from symcircuits.core.rules import check_finished
from symcircuits.core.text import amount
from symcircuits.core.walk import Counts, Walks
from symcircuits.core.words import IllTyped
from symcircuits.model import frozen
from symcircuits.verification.names import misnamed
from symcircuits.verification.prime_field import degrees, instance, sizes_for, walked, walks
from symcircuits.verification.result import Check
from symcircuits.verification.rows import TRIALS, draw_seed, frozen_value
from symcircuits.work.progress import OnProgress

__all__ = ["check_every_head"]

NAME = "every head"
FIRST = 4  # first terms of a head that are checked, besides the last
WORK = 1_000_000  # heads of earlier layers checked in listing terms; beyond it only some heads list terms
MANY = 10_000  # from this number of heads on, one trial is made
EACH = 500  # heads between two progress reports


def check_every_head(
    architecture: Architecture,
    heads: Sequence[Head],
    standing: Sequence[Head],
    seed: int = 0,
    progress: OnProgress = None,
) -> Check:
    """Whether each of these heads has the terms that it claims; ``standing``: the heads checked by all other rows.

    >>> from symcircuits.core.architecture import attention_only
    >>> arch = attention_only((2, 2))
    >>> check_every_head(arch, arch.all_heads, arch.all_heads[::2]).passed
    True
    """
    with made_once():
        targets = [readout(architecture, f"scores:{h}") for h in heads]
        faults = list(_miscounted(architecture, targets))
        trials = TRIALS if len(heads) < MANY else 1
        faults += _differing(architecture, targets, seed, trials, progress)
        chosen = targets[:: _stride(targets)]
        for i, target in enumerate(chosen):
            faults += _misspelled(target)
            if progress and not i % EACH:
                progress(f"{NAME}: terms of {target.target}", i, len(chosen))
        ring, top, sizes = PrimeField(), max(degrees(targets)), sizes_for(targets)
    words = "its" if len(chosen) == len(targets) else f"of {amount(len(chosen), 'head')} among them the"
    stand = ", ".join(map(str, standing[:3])) + (f", ... ({len(standing)} heads)" if len(standing) > 3 else "")
    whole = "represent their layers" if len(standing) > 1 else "represents its layer"
    what = (
        f"each of {amount(len(heads), 'head')}: as many terms as the forward pass in ones, {words} first terms and the "
        "last typed, named and numbered as their words say, forward pass = walk, exactly"
        + (f"; in the other rows {stand} {whole}" if standing else "")
    )
    details = {
        "p": ring.p, "k": [min(sizes), max(sizes)], "degree": top, "trials": trials,
        "false_pass": (top / ring.p) ** trials, "seed": seed, "sampled": [str(h) for h in standing],
    }  # fmt: skip
    named = f"scores of {heads[0]} ... {heads[-1]} ({amount(len(heads), 'head')})"
    return Check(NAME, named, not faults, len(faults), 0, what=faults[0] if faults else what, details=details)


def _miscounted(architecture: Architecture, targets: Sequence[Readout]) -> Iterator[str]:
    """Heads whose walk does not count as many terms as the definition has, where every matrix and number is 1."""
    ring, walk = PrimeField(), Walks(Counts()).walk
    names = instance(architecture, 1, 0, ring).matrices
    forward = frozen(architecture, {name: np.ones_like(value) for name, value in names.items()}, ring)
    for target in targets:
        count = 1
        for side in target.sides:
            count *= walk(side) or 0
        wanted = int(frozen_value(target, forward).item())
        if count % ring.p != wanted:
            yield f"{target.target} has {amount(count, 'term')} by the walk, by the forward pass in ones {wanted:,}" + (
                f" (modulo {ring.p})" if count >= ring.p else ""
            )


def _differing(
    architecture: Architecture, targets: Sequence[Readout], seed: int, trials: int, progress: OnProgress
) -> Iterator[str]:
    """Heads whose walk differs from the forward pass, over the prime field."""
    ring, sizes = PrimeField(), sizes_for(targets)
    for trial, k in product(range(trials), sorted(set(sizes))):
        at = instance(architecture, k, draw_seed(seed, trial), ring)
        forward, shared = frozen(architecture, at.matrices, ring), walks(at)
        for i, (target, size) in enumerate(zip(targets, sizes, strict=True)):
            if size == k and not np.array_equal(frozen_value(target, forward), walked(target, at, shared)):
                yield f"{target.target}: the walk differs from the forward pass"
            if progress and not i % EACH:
                progress(f"{NAME}: forward pass and walk of {target.target}, trial {trial + 1}", i, len(targets))


def _stride(targets: Sequence[Readout]) -> int:
    """One head out of how many is checked, to keep the work below its limit."""
    work = sum(1 + sum(len(layer.branches) for side in t.sides for layer in side) for t in _some(targets))
    return 1 + work * len(targets) // (WORK * len(_some(targets)))


def _some(targets: Sequence[Any]) -> Sequence[Any]:
    """About a hundred of them, at equal distances."""
    return targets[:: 1 + len(targets) // 100]


def _misspelled(target: Readout) -> Iterator[str]:
    """The faults of the first terms of a head, and its last."""
    e = Expansion(target)
    numbers = dict.fromkeys([*range(min(FIRST, e.count)), e.count - 1])
    listed = list(islice(e, FIRST))
    for i in numbers:
        try:
            term = e[i]
            check_finished(term.word, scaled=e.architecture.scale, multipliers=e.architecture.multipliers)
            yield from (f"{e.target}, term {i}: {fault}" for fault in misnamed(e, i, term, whole=False))
            if i < len(listed) and listed[i] != term:
                yield f"{e.target}, term {i}: another is listed there"
        except (IllTyped, IndexError) as fault:
            yield f"{e.target}, term {i}: {fault}"
