"""How many terms there are, as formulas in the head counts ``H_1, H_2, ...``."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb, prod

from symcircuits.core.programs import Program
from symcircuits.derivation.expressions import times
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Elementary, Expr, HeadCount, Number, Product, Sum

__all__ = ["by_composition", "by_order", "elementary", "total"]

_SHORT = 4  # layers of a program (embedding and readout among them) up to which numbers are written by order
_WRITTEN_OUT = 6  # an elementary symmetric polynomial with more products is written e_k(...)


def add(terms: list[Expr]) -> Expr:
    """A sum of numbers: nested sums opened, equal terms collected, zeros dropped."""
    flat = [t for term in terms for t in (term.terms if isinstance(term, Sum) else (term,))]
    found: Counter[Expr] = Counter()
    for t in flat:
        factors = t.factors if isinstance(t, Product) else (t,)
        coefficient = prod(f.value for f in factors if isinstance(f, Number))
        found[times([f for f in factors if not isinstance(f, Number)])] += coefficient
    one = Number(1)
    rest: list[Expr] = [times([Number(n), t]) for t, n in found.items() if n and t != one]
    if found[one] > 0:
        rest.insert(0, Number(found[one]))
    elif found[one] < 0:
        rest.append(Number(found[one]))
    return Number(0) if not rest else rest[0] if len(rest) == 1 else Sum(tuple(rest))


def elementary(order: int, layers: tuple[int, ...]) -> Expr:
    """``e_k`` of the head counts of these layers, written out where it is short."""
    if order > len(layers) or order < 0:
        return Number(0)
    if comb(len(layers), order) > _WRITTEN_OUT:
        return Elementary(order, layers)
    return add([times([HeadCount(layer) for layer in chosen]) for chosen in combinations(layers, order)])


def _entries(frame: Frame, program: Program) -> list[tuple[Expr, int, tuple[int, ...]]]:
    """Where sources enter: how many, their order (1 inside a head) and the layers that come after."""
    found: list[tuple[Expr, int, tuple[int, ...]]] = []
    for i, layer in enumerate(program):
        after = tuple(range(i, frame.depth))
        outside = sum(s.head is None for s in layer.sources)
        found += [(Number(outside), 0, after)] if outside else []
        for n in Counter(s.kind for s in layer.sources if s.head is not None).values():
            # As many as heads: a formula in H_l. As many as happen to have that bias: a number.
            every = frame.generic or n == sum(b.head is not None for b in layer.branches)
            found.append((HeadCount(i - 1) if every else Number(n), 1, after))
    return found


def _side_order(frame: Frame, program: Program, order: int) -> Expr:
    found: list[Expr] = []
    for n, own, after in _entries(frame, program):
        symmetric = elementary(order - own, after)
        found += [times([n, t]) for t in (symmetric.terms if isinstance(symmetric, Sum) else (symmetric,))]
    return add(found)


def _side_total(frame: Frame, program: Program) -> Expr:
    return add(
        [
            times([n, *(Sum((Number(1), HeadCount(layer))) for layer in after)])
            for n, _, after in _entries(frame, program)
        ]
    )


def by_order(frame: Frame, order: int) -> Expr:
    """Number of terms of an order, for one-sided targets: ``e_k(H_1, ..., H_L)`` for one source."""
    return _side_order(frame, frame.expansion.readout.sides[0], order)


def by_composition(frame: Frame, composition: str) -> Expr:
    """Number of score terms of a composition type: with d direct of c paths a side, ``(c - d)`` go through a head."""
    factors = []
    for program, letter in zip(frame.expansion.readout.sides, "QK", strict=True):
        direct = _side_order(frame, program, 0)
        if letter in composition:
            factors.append(_through_heads(frame, program, direct))
        else:
            factors.append(direct)
    return times(factors)


def _through_heads(frame: Frame, program: Program, direct: Expr) -> Expr:
    """Number of paths of a side through some head: by order where that is short, else all but the direct ones."""
    layers = len(program)
    if layers <= _SHORT:
        return add([_side_order(frame, program, order) for order in range(1, layers)])
    minus = Number(-direct.value) if isinstance(direct, Number) else times([Number(-1), direct])
    return add([_side_total(frame, program), minus])


def total(frame: Frame) -> Expr:
    """Number of all terms: ``prod_l (1 + H_l)`` for one source, one such factor a side for scores."""
    return times([_side_total(frame, program) for program in frame.expansion.readout.sides])
