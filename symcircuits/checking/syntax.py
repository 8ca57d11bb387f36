"""The syntax of formulas, without meaning: the nodes that every front end makes and the meaning stage reads.

Front ends: :mod:`symcircuits.checking.grammar` (text and LaTeX), ``python_code`` (code), SymPy expressions. A node is
small, frozen and has its place: ``at`` counts characters of the source from 0. Only the meaning stage decides what a
name means, which head a script names, and what is a matrix or a number. Nodes may be nested deeper than Python
recurses, so nothing here, and nothing that reads nodes, is recursive (``repr`` and ``==`` of deep nodes are);
:func:`fold` goes through them from the leaves up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction as Rational
from typing import Literal, TypeVar

__all__ = [
    "BigSum", "Bound", "Call", "Document", "Equation", "Fraction", "Indexed", "Line", "Name", "Node", "Number",
    "Power", "Product", "Script", "Sum", "Text", "Transposed", "children", "fold", "nodes",
]  # fmt: skip

ScriptKind = Literal["sub", "super", "index"]
Operator = Literal["", ".", "x", "o"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Script:
    """A subscript (``sub``), superscript (``super``) or bracket (``index``), split at its commas.

    The parts are plain text without spaces, fonts and braces: ``^{(l, h)}`` gives ``("l", "h")``, ``_{OV}``
    ``("OV",)``, ``[0, 1, :, :]`` ``("0", "1", ":", ":")``, ``['w_o']`` ``("'w_o'",)``,
    ``^{h_1 \\to h_2}`` ``("h_1->h_2",)``, ``^{\\lfloor h/2 \\rfloor}`` and ``[h // 2]`` ``("h//2",)``,
    ``^{h \\bmod 2}`` and ``[h % 2]`` ``("h%2",)``, ``_{n-m}`` ``("n-m",)``. A transpose in a superscript is not one
    of the parts: it makes the name :class:`Transposed`.
    """

    kind: ScriptKind
    parts: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A symbol: ``text`` without fonts (``\\mathbf{x}`` is ``x``), accents in front (``\\tilde W``: ``tilde W``).

    Text and code keep ``W_OV``, ``X0`` and ``X_0`` as written; LaTeX gives ``W_{OV}`` as ``W`` with a subscript. The
    meaning stage treats the two as the same. ``model.W_V`` of code is ``W_V``; ``blocks.0.attn.W_V[1]`` is
    ``W_V`` with the bracket ``("0", "1")``.
    """

    text: str
    at: int
    scripts: tuple[Script, ...] = ()


@dataclass(frozen=True, slots=True)
class Number:
    """A number, exact: ``0.5`` is 1/2."""

    value: Rational
    at: int


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted string in an argument, as of ``einsum``."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Signed summands: ``a - b`` has the signs 1 and -1."""

    signs: tuple[int, ...]
    summands: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Product:
    """Factors in order. ``operator``: ``""`` side by side, ``@`` or ``*``; ``"."`` a dot; ``"x"`` a tensor product;
    ``"o"`` entrywise. A dot binds less than a tensor product, which binds less than adjacent factors.
    """

    operator: Operator
    factors: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Transposed:
    """``.T``, ``^T``, ``^\\top``, ``^\\intercal``, ``'`` on a matrix."""

    inner: Node
    at: int


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound variables and their range: ``names`` ``("h",)``, ``over`` ``"H_1|H_2"`` (``|`` for a union).

    Without a range ``over`` is empty; other ranges are ``"1..H"``, ``"0..H-1"``. ``\\text{heads } k`` binds ``k``
    without a range.
    """

    names: tuple[str, ...]
    over: str
    at: int


@dataclass(frozen=True, slots=True)
class BigSum:
    """``\\sum``, whose body ends before a plus or minus; or ``\\prod``, whose body is one factor (``product``)."""

    bounds: tuple[Bound, ...]
    body: Node
    at: int
    product: bool = False


@dataclass(frozen=True, slots=True)
class Fraction:
    """``\\frac{a}{b}``, ``a / b``."""

    numerator: Node
    denominator: Node
    at: int


@dataclass(frozen=True, slots=True)
class Power:
    """``d_head ** 0.5``, ``d^{1/2}``."""

    base: Node
    exponent: Node
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A name before arguments in parentheses: ``softmax(...)``, ``T(t)``, ``diag(\\gamma)``, ``einsum(...)``,
    ``FactoredMatrix(a, b)``; ``function`` may be another node, as of ``(A \\otimes B \\otimes W)(x, y)``.
    Keyword arguments of code are left out.
    """

    function: Node
    arguments: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Indexed:
    """An expression, not a name, with a bracket or subscript: ``(X W)[i, j]``, ``(X W)_{ij}``."""

    inner: Node
    script: Script
    at: int


Node = Name | Number | Text | Sum | Product | Transposed | BigSum | Fraction | Power | Call | Indexed


@dataclass(frozen=True, slots=True)
class Equation:
    """``a = b = c``: its sides in order; the first is None if the line starts with ``=``; one side without ``=``.

    ``let``: the text says that it is a definition (``Let``, ``where``, ``:=``; in code every assignment may be one).
    """

    sides: tuple[Node | None, ...]
    at: int
    let: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line as a person counts them, from 1: a line of text or code, a row of a display.

    ``continues``: it starts with a plus or minus and continues the last side of the line before.
    """

    number: int
    at: int
    equations: tuple[Equation, ...]
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """All lines, and the text that they are from (for errors)."""

    lines: tuple[Line, ...]
    source: str = ""


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, in order."""
    match node:
        case Sum():
            return node.summands
        case Product():
            return node.factors
        case Transposed() | Indexed():
            return (node.inner,)
        case BigSum():
            return (node.body,)
        case Fraction():
            return node.numerator, node.denominator
        case Power():
            return node.base, node.exponent
        case Call():
            return node.function, *node.arguments
        case _:
            return ()


def fold(root: Node, value_of: Callable[[Node, list[Value]], Value]) -> Value:
    """The value of a node from the values of its parts, at any depth.

    >>> depth = lambda node, inner: 1 + max(inner, default=0)
    >>> deep: Node = Name("X", 0)
    >>> for _ in range(100_000):
    ...     deep = Transposed(deep, 0)
    >>> fold(deep, depth)
    100001
    """
    done: list[Value] = []
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, opened = stack.pop()
        inner = children(node)
        if opened or not inner:
            values = done[len(done) - len(inner) :]
            del done[len(done) - len(inner) :]
            done.append(value_of(node, values))
        else:
            stack.append((node, True))
            stack += [(child, False) for child in reversed(inner)]
    return done[0]


def nodes(root: Node) -> Iterator[Node]:
    """Every node, each before its parts."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(children(node))
