"""Values of tensor expressions by the definition with indices, to check the rules by which tensors act and multiply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from symcircuits.core.words import Word
from symcircuits.derivation.nodes import Apply, Expr, Product, Sum, Tensor, parts
from symcircuits.derivation.values import Instance

__all__ = ["by_indices", "rule_size"]


def rule_size(sides: Iterable[Expr]) -> int:
    """Number of letters of the longest product in a rule."""
    return max(map(_letters, sides))


def _letters(expr: Expr) -> int:
    match expr:
        case Word():
            return len(expr.factors)
        case Sum():
            return max(map(_letters, expr.terms))
        case _:
            return sum(map(_letters, parts(expr)))


def by_indices(expr: Expr, at: Instance) -> Any:
    """The entries of an expression from the definition of the tensor product, in Python's whole numbers.

    ``(A (x) W)[(i, o), (a, b)] = A[i, a] W[o, b]`` acts on the rows of X written one after the other;
    ``(A_q (x) A_k (x) W)(x, y)[i, j] = sum_{a b c d} A_q[i, a] A_k[j, d] x[a, b] W[b, c] y[d, c]``.
    """
    p, n = at.ring.p, at.trials * at.k**2
    match expr:
        case Apply(operator=Tensor(slots=(q, k, w)), arguments=(x, y)):
            slots = [at.value(slot).astype(object) for slot in (q, k, w)]
            square = (at.trials, at.k, at.k)
            given = [by_indices(argument, at).reshape(square) for argument in (x, y)]
            return (np.einsum("tia,tjd,tbc,tab,tdc->tij", *slots, *given, optimize=True) % p).reshape(n)
        case Apply(operator=operator, arguments=(x,)):
            vector = by_indices(x, at).reshape(at.trials, at.k**2, 1)
            return ((_kronecker(operator, at) @ vector) % p).reshape(n)
        case Tensor() | Product(factors=(Tensor(), *_)):
            return _kronecker(expr, at)
        case _:
            return at.value(expr).astype(object).reshape(n)


def _kronecker(operator: Expr, at: Instance) -> Any:
    """The Kronecker matrices of an operator, ``[trials, k*k, k*k]``."""
    if isinstance(operator, Product):
        total = _kronecker(operator.factors[0], at)
        for f in operator.factors[1:]:
            total = (total @ _kronecker(f, at)) % at.ring.p
        return total
    if not isinstance(operator, Tensor) or len(operator.slots) != 2:
        raise TypeError("only tensors with two slots, and their products, have a Kronecker matrix here")
    a, w = (at.value(s).astype(object) for s in operator.slots)
    size = at.k**2
    return (np.einsum("tia,tob->tioab", a, w) % at.ring.p).reshape(at.trials, size, size)
