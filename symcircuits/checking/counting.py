"""Numbers of terms as polynomials in the numbers of heads, found exactly from their values at enough points.

A polynomial whose degree in ``H_l`` is at most ``d_l`` is determined by its values where each ``H_l`` takes ``d_l + 1``
values: with all but one variable fixed, a non-zero polynomial has at most ``d_l`` zeros in that one, so two polynomials
that agree on the grid agree everywhere, one variable after the other. A number of terms has degree at most 1 in each
``H_l`` for each side, since a path goes through at most one head of a layer (or starts in one); a number in a text has
the degree that is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Final

from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, expand

__all__ = [
    "MAX_POINTS", "Polynomial", "diagonal", "interpolated", "number_of_terms", "numbers_where_equal",
    "polynomial_text", "terms_polynomial",
]  # fmt: skip

MAX_POINTS: Final = 4_096  # where a polynomial is evaluated
_SEARCHED: Final = 1_000  # numbers of heads that are tried for an example

Polynomial = Mapping[tuple[int, ...], Fraction]  # exponents of H_1, H_2, ... -> coefficient; never 0


def interpolated(value: Callable[[tuple[int, ...]], int], points: Sequence[Sequence[int]]) -> Polynomial | None:
    """The polynomial with these values, of degree less than the number of ``points`` in each variable.

    None if there are more than MAX_POINTS points.

    >>> interpolated(lambda heads: (1 + heads[0]) * heads[1], [(0, 1), (2, 3)])
    {(0, 1): Fraction(1, 1), (1, 1): Fraction(1, 1)}
    """
    if prod(map(len, points)) > MAX_POINTS:
        return None
    found = _along(value, (), list(points))
    return {exponents: found[exponents] for exponents in sorted(found)}


def _along(value: Callable[[tuple[int, ...]], int], at: tuple[int, ...], points: list[Sequence[int]]) -> Polynomial:
    """The polynomial in the remaining variables, with the first ones fixed."""
    if not points:
        n = Fraction(value(at))
        return {(): n} if n else {}
    first, rest = points[0], points[1:]
    inner = [_along(value, (*at, x), rest) for x in first]
    found: dict[tuple[int, ...], Fraction] = {}
    for exponents in {e for one in inner for e in one}:
        values = [one.get(exponents, Fraction(0)) for one in inner]
        for power, coefficient in enumerate(_through(first, values)):
            if coefficient:
                found[(power, *exponents)] = coefficient
    return found


def _through(xs: Sequence[int], values: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial in one variable with these values, by Lagrange interpolation."""
    total = [Fraction(0)] * len(xs)
    for i, x in enumerate(xs):
        basis, below = [Fraction(1)], 1
        for j, other in enumerate(xs):
            if j != i:
                basis = [a - other * b for a, b in zip([Fraction(0), *basis], [*basis, Fraction(0)], strict=True)]
                below *= x - other
        total = [t + values[i] * b / below for t, b in zip(total, basis, strict=True)]
    return total


def number_of_terms(expansion: Expansion, kind: str) -> int | None:
    """The number of terms: all, of an order, or of a composition type; None for an unknown kind."""
    if not kind:
        return expansion.count
    if kind.isdigit():
        return expansion.order(int(kind)).count
    if kind in ("none", "Q", "K", "QK", "V"):
        with suppress(ValueError):
            return expansion.where(composition=kind).count
    return None


def terms_polynomial(architecture: Architecture, target: str, kind: str) -> Polynomial | None:
    """The number of terms of a target as a polynomial in the numbers of heads; a layer without heads stays empty.

    Where heads share keys and values, the number of groups stays as it is. None if some heads of a layer have a bias
    and some do not, or if the model has too many layers.

    >>> from symcircuits.core.architecture import attention_only
    >>> polynomial_text(terms_polynomial(attention_only((2, 2)), "scores:L1H0", "Q"))
    'H_1'
    """
    here = expand(architecture, target)
    head = here.readout.head
    depth = architecture.n_layers if head is None else head.layer
    given = architecture.heads
    groups = architecture.groups or given
    more = len(here.readout.sides) + 1
    points: list[Sequence[int]] = []
    for layer, (n, g) in enumerate(zip(given, groups, strict=True)):
        if layer >= depth or not n:
            points.append([n])
        else:  # the same number of groups, each of two heads or more
            points.append(range(more) if n == g else [g * (i + 2) for i in range(more)])

    def value(heads: tuple[int, ...]) -> int:
        shared = tuple(h if n == g else g for h, n, g in zip(heads, given, groups, strict=True))
        found = replace(architecture.resized(heads), groups=None if shared == heads else shared)
        return number_of_terms(expand(found, target), kind) or 0

    try:
        return interpolated(value, points)
    except ValueError:
        return None


def diagonal(polynomial: Polynomial) -> Polynomial:
    """The same if all layers have the same number of heads, ``H``: a polynomial in one variable.

    >>> diagonal({(1, 0): Fraction(1), (0, 1): Fraction(1), (1, 1): Fraction(1)})
    {(1,): Fraction(2, 1), (2,): Fraction(1, 1)}
    """
    found: dict[tuple[int, ...], Fraction] = {}
    for exponents, n in polynomial.items():
        found[(sum(exponents),)] = found.get((sum(exponents),), Fraction(0)) + n
    return {exponents: n for exponents, n in sorted(found.items()) if n}


def polynomial_text(polynomial: Polynomial, along: bool = False) -> str:
    """The polynomial as text: ``H_1 H_2 + 2 H_1 + 1``; ``along``: in ``H``, the number of heads of every layer.

    >>> polynomial_text({(0, 0): Fraction(1), (1, 2): Fraction(-2)}), polynomial_text({(2,): Fraction(1)}, True)
    ('-2 H_1 H_2^2 + 1', 'H^2')
    """
    shown = ""
    for exponents, n in sorted(polynomial.items(), key=lambda item: (-sum(item[0]), [-e for e in item[0]])):
        powers = [("H" if along else f"H_{i + 1}") + f"^{e}" * (e > 1) for i, e in enumerate(exponents) if e]
        factors = ([] if abs(n) == 1 and powers else [str(abs(n))]) + powers
        sign = ("-" if n < 0 else "") if not shown else (" - " if n < 0 else " + ")
        shown += sign + " ".join(factors)
    return shown or "0"


def numbers_where_equal(a: Polynomial, b: Polynomial, along: bool = False) -> str:
    """Small numbers of heads for which two polynomials have the same value, as text; empty if none was found.

    >>> numbers_where_equal({(2, 0): Fraction(1)}, {(0, 0): Fraction(4)})
    'H_1 = 2'
    """
    size = max((len(e) for e in (*a, *b)), default=0)
    used = [i for i in range(size) if any(e[i : i + 1] not in ((), (0,)) for e in (*a, *b))]
    for n, values in enumerate(product(range(1, 10), repeat=len(used))):
        at = dict(zip(used, values, strict=True))
        if n > _SEARCHED:
            break
        if _at(a, at) == _at(b, at):
            return ", ".join(f"{'H' if along else f'H_{i + 1}'} = {v}" for i, v in at.items())
    return ""


def _at(polynomial: Polynomial, values: Mapping[int, int]) -> Fraction:
    return sum(
        (n * prod(values.get(i, 1) ** e for i, e in enumerate(exponents)) for exponents, n in polynomial.items()),
        Fraction(0),
    )
