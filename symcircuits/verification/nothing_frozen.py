"""The rows of ``verify`` for polynomial models: the terms multiplied out, against a pass that computes everything.

The forward pass gets tokens, weights, masks and frozen norms; it computes patterns and bilinear MLPs itself. Over the
prime field it is compared, entry by entry, with the sums by degree of the walk and with the words of the listed terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import PrimeField, transpose
from symcircuits.core.architecture import scalar_names
from symcircuits.core.expansion import Expansion
from symcircuits.core.programs import Readout
from symcircuits.core.text import amount
from symcircuits.core.unfrozen.unfrozen import Unfrozen, UnfrozenTerm, check_unfrozen
from symcircuits.core.walk import Matrices
from symcircuits.core.words import Factor, IllTyped, Word, scalar_argument
from symcircuits.model import Run, frozen, matrix_names
from symcircuits.values.evaluate import evaluate, reference, rounding_scale
from symcircuits.values.unfrozen import sums_by_degree
from symcircuits.verification.result import Check

__all__ = ["check_nothing_frozen", "check_unfrozen_types", "expands"]

Array = npt.NDArray[Any]
Terms = Callable[[Unfrozen], Iterable[UnfrozenTerm]]
SIZE = 4  # size of the matrices: the identity is entrywise, and valid for any size
LISTED = 1_000  # terms listed per target: their words are long


def expands(group: Sequence[Expansion]) -> bool:
    """Whether these models are polynomials, partly or fully, without attachments."""
    architecture = group[0].architecture
    return architecture.polynomial and not architecture.attachments


def _named(group: Sequence[Expansion]) -> str:
    first = group[0].target.replace(":", " of ", 1)
    return first + (f" and {amount(len(group) - 1, 'head')} more" if len(group) > 1 else "")


def check_unfrozen_types(group: Sequence[Expansion], limit: int, terms: Terms = iter) -> Check:
    """Whether the rules accept every listed word, and every word inside it."""
    seen, faults = 0, list[str]()
    for e in group:
        each = e.unfrozen()
        for i, term in enumerate(terms(each)) if each.count <= min(limit, LISTED) else ():
            seen += 1
            try:
                check_unfrozen(term.word, e.architecture)
            except IllTyped as fault:
                faults.append(str(fault))
            if each.index(term) != i:
                faults.append(f"{term.label} is not found under its number")
    name = "nothing frozen: types"
    if not seen:
        return Check(name, _named(group), None, None, None, what=f"more terms than {min(limit, LISTED):,}")
    what = f"{amount(seen, 'word')} with patterns and MLPs multiplied out, accepted by the rules of types"
    return Check(name, _named(group), not faults, len(faults), 0, what=faults[0] if faults else what)


def check_nothing_frozen(group: Sequence[Expansion], run: Run, seed: int, limit: int, terms: Terms = iter) -> Check:
    """Whether the pass that computes patterns and MLPs is the sum of the terms: exactly, and on the real model."""
    ring, faults = PrimeField(), list[str]()
    differing, listed, degree, worst = 0, 0, 0, 0.0
    for e in group:
        each = e.unfrozen()
        matrices = _drawn(e, ring, int(np.random.SeedSequence([seed, 7]).generate_state(1)[0]))
        model = _value(e.readout, frozen(e.architecture, matrices, ring, computed=True))
        graded = sums_by_degree(each, Matrices(matrices, ring))
        walk = _summed(graded.values(), ring)
        degree = max([degree, *graded])
        if not np.array_equal(walk, model):
            faults.append(f"{e.target}: the walk differs from the forward pass")
        if each.count <= min(limit, LISTED):
            try:
                values = [_word_value(term.word, matrices, ring) for term in terms(each)]
            except IllTyped as fault:
                values = []
                faults.append(f"{e.target}: a term is not a word: {fault}")
            listed += len(values)
            total = _summed(values, ring)
            differing += int(np.count_nonzero(total != model))
            faults += [f"{e.target}: the sum of the terms differs from the forward pass"] * bool((total != model).any())
        worst = max(worst, apart := _apart(each, run))
        close = apart <= np.sqrt(np.finfo(run.dtype).eps)
        faults += [] if close else [f"{e.target}: the sum of all degrees differs from the model"]
    some = f" = sum of {listed:,} listed terms" if listed else ""
    what = (
        f"forward pass = walk{some} with patterns and MLPs multiplied out, exactly, degree up to {degree}; and on the "
        f"model up to rounding ({worst:.1g} of the size of the parts)"
    )
    details = {"p": ring.p, "k": SIZE, "degree": degree, "listed": listed, "seed": seed}
    message = faults[0] if faults else what
    return Check("nothing frozen", _named(group), not faults, differing, 0, what=message, details=details)


def _apart(each: Unfrozen, run: Run) -> float:
    """The largest |sum of all degrees - model| over the sum of the sizes of the parts at that entry.

    A row passes up to the square root of the unit roundoff: products of products may cancel, and each carries the
    rounding of all its parts, so no bound near the unit roundoff is valid for all; a missing term or
    a wrong factor changes far more, and the prime field detects any.
    """
    parts = list(evaluate(each, run).degrees().values())
    model = np.asarray(reference(each.target, run))
    size = np.asarray(sum(map(np.abs, parts)) + rounding_scale(each.target, run))
    head = each.expansion.readout.head
    seen = np.ones((1, 1), bool) if head is None else run.masks[f"L{head.layer}"]
    error = np.abs(np.asarray(sum(parts)) - np.where(seen, model, 0))
    return float(np.max(np.where(seen, error / np.maximum(size, np.finfo(run.dtype).tiny), 0), initial=0.0))


def _drawn(e: Expansion, ring: PrimeField, seed: int) -> dict[str, Array]:
    """Random values for every matrix that the pass reads: weights, tokens, masks, frozen norms; numbers for scales."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    scalars = {scalar_argument(name) for name in scalar_names(e.architecture)}
    for name in matrix_names(e.architecture, computed=True):
        shape: tuple[int, ...] = () if name in scalars else (SIZE, SIZE)
        found[name] = ring.random((SIZE, *shape) if name.startswith("R_") else shape, rng)
    return found


def _value(target: Readout, found: Any) -> Array:
    if target.head is not None:
        return np.asarray(found.scores[str(target.head)])
    return np.asarray(found.logits if target.target == "logits" else found.streams[-1])


def _summed(values: Iterable[Array], ring: PrimeField) -> Array:
    total = ring.zeros((SIZE, SIZE))
    for value in values:
        total = ring.add(total, value)
    return total


def _word_value(word: Word, matrices: Mapping[str, Array], ring: PrimeField) -> Array:
    """A word multiplied out from the left, entrywise products first; rows rotated if positions are rotary."""

    def product(factors: Sequence[Factor]) -> Array:
        value = _letter(factors[0], matrices, ring)
        for f in factors[1:]:
            value = ring.matmul(value, _letter(f, matrices, ring))
        return value

    joints = [i for i, f in enumerate(word.factors) if f.symbol.glyph == "R"]
    if joints:
        turn = matrices[word.factors[joints[0]].symbol.argument]
        sides = word.factors[: joints[0]], tuple(f.T for f in reversed(word.factors[joints[0] + 1 :]))
        query, key = (ring.matmul(product(side)[:, None, :], turn)[:, 0, :] for side in sides)
        value = ring.matmul(query, transpose(key))
    else:
        value = product(word.factors)
    for label in word.scales:
        value = ring.times(matrices[scalar_argument(label)], value)
    return value


def _letter(factor: Factor, matrices: Mapping[str, Array], ring: PrimeField) -> Array:
    symbol = factor.symbol
    if symbol.entrywise:
        first, second = (_word_value(w, matrices, ring) for w in symbol.entrywise)
        value = ring.times(first, second)
    else:
        value = matrices[symbol.argument]
    return transpose(value) if factor.transposed else value
