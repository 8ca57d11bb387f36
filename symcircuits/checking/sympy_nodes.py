"""SymPy expressions as nodes: sums and products as in SymPy, with positions that number the factors."""

from __future__ import annotations

from fractions import Fraction as Rational
from typing import Any, Final

from symcircuits.checking.faults import ReadError
from symcircuits.checking.syntax import Name, Node, Number, Product, Sum, Transposed

__all__ = ["sympy_node"]

_MAX_POWER: Final = 1_000
_MAX_COEFFICIENT: Final = 10**18
_SCALES: Final = ("scale", "s", "r", "m")


def sympy_node(expression: Any) -> Node:
    """The node of a SymPy expression, without recursion; ReadError if it is not a sum of products of matrices.

    >>> from sympy import MatrixSymbol
    >>> node = sympy_node(MatrixSymbol("X0", 2, 2) * MatrixSymbol("W_U", 3, 2).T)
    >>> type(node).__name__, node.factors[0].text
    ('Product', 'X0')
    """
    from sympy import Basic

    if not isinstance(expression, Basic):
        raise TypeError(
            f"a formula is a string, a SymPy expression, or a term or word, not {type(expression).__name__}"
        )
    done: list[Node] = []
    stack: list[tuple[Any, bool]] = [(expression, False)]
    count = 0
    while stack:
        part, opened = stack.pop()
        inner = _opened(part, count)
        if inner is None:
            done.append(_leaf(part, count))
            count += 1
        elif not opened:
            stack.append((part, True))
            stack += [(one, False) for one in reversed(inner)]
        else:
            nodes = tuple(done[len(done) - len(inner) :])
            del done[len(done) - len(inner) :]
            done.append(_joined(part, nodes))
    return done[0]


def _joined(part: Any, nodes: tuple[Node, ...]) -> Node:
    kind, at = type(part).__name__, nodes[0].at
    if kind in ("Transpose", "transpose", "LetterTranspose"):
        return Transposed(nodes[0], at)
    if len(nodes) == 1:
        return nodes[0]
    return Sum((1,) * len(nodes), nodes, at) if kind in ("Add", "MatAdd") else Product("", nodes, at)


def _opened(part: Any, at: int) -> list[Any] | None:
    """The parts of an expression, in order; None for a symbol or number."""
    kind = type(part).__name__
    if kind in ("Add", "MatAdd", "Mul", "MatMul", "Turned"):
        return list(part.args)
    if kind in ("Transpose", "transpose", "LetterTranspose"):
        return [part.args[0]]
    if kind in ("Pow", "MatPow", "LetterPower"):
        base, exponent = part.args
        if not (getattr(exponent, "is_Integer", False) and 1 <= int(exponent) <= _MAX_POWER):
            raise ReadError(f"the power {_cut(part)} (factor {at}) cannot be read", "", at)
        return [base] * int(exponent)
    return None


def _leaf(part: Any, at: int) -> Node:
    kind = type(part).__name__
    if getattr(part, "is_Integer", False):
        if abs(int(part)) > _MAX_COEFFICIENT:
            raise ReadError(f"a coefficient is larger than {_MAX_COEFFICIENT:,}, the limit", "", at)
        return Number(Rational(int(part)), at)
    if kind == "OneMatrix":
        ones = Name("ones", at)
        return Transposed(ones, at) if part.shape[1] != 1 else ones
    if kind == "MatrixSymbol" or getattr(part, "is_Symbol", False):
        name = str(part.name)
        scale = name.split("_")[0] in _SCALES or name in _SCALES
        if getattr(part, "is_commutative", False) and not scale:
            raise ReadError(f"{_cut(part)} is a commuting Symbol, so SymPy has lost the order of the factors; use "
                            "MatrixSymbol or Symbol(..., commutative=False)", "", at)  # fmt: skip
        return Name(name, at)
    raise ReadError(f"{_cut(part)} (factor {at}, {kind}) cannot be read", "", at)


def _cut(part: Any) -> str:
    try:
        text = str(part) if len(part.args) < 20 else type(part).__name__
    except RecursionError:
        text = type(part).__name__
    return text if len(text) <= 60 else text[:57] + "..."
