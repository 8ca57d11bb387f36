"""What a claim is made of: a small expression tree over words, and the one way in which it is gone through.

A leaf is a :class:`~symcircuits.core.words.Word` (a typed product of matrix symbols, the recursion symbols ``X1``,
``X2``, ... among them), the readout's own symbol, an identity, or a number. Nodes are products, sums, sums over
the heads of a layer, transposes, tensors ``A (x) W`` (acting as ``X -> A X W^T``) with two or three slots, and
families: parts of a sum with their composition type and their number of terms. Everything that a derivation
prints is printed from such a tree, after both sides of the claim were evaluated and found equal.

A kind of node is a class under :func:`node`, which says which fields hold the expressions of which it is made. What
goes through expressions and means the same for all kinds uses :func:`parts`, :func:`mapped`, :func:`every_node` or
:func:`fold`; printing and evaluation, which say something else for each kind, match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from symcircuits.core.seam import higher
from symcircuits.core.words import Word

if TYPE_CHECKING:
    from symcircuits.arrays.rings import Array
    from symcircuits.derivation.values import Bindings, Instance

__all__ = [
    "NODES", "Apply", "CountOf", "Elementary", "Expr", "Family", "HeadCount", "Identity", "Number", "Product", "Sign",
    "Special", "Spelled", "Sum", "SumOver", "Target", "Tensor", "Transposed", "Written", "cut", "every_node", "fold",
    "mapped", "node", "parts", "with_parts",
]  # fmt: skip

T = TypeVar("T")
C = TypeVar("C", bound=type)

NODES: Final[dict[type, tuple[str, ...]]] = {Word: ()}  # every kind of node, and its fields that hold its parts


def node(*fields: str) -> Callable[[C], C]:
    """Register the class below as a kind of node; ``fields`` hold the expressions of which it is made."""

    def register(kind: C) -> C:
        NODES[kind] = fields
        return kind

    return register


def cut(text: str, width: int = 100) -> str:
    """A text cut to a width.

    >>> cut("X0 @ W_U.T", 9)
    'X0 @ W...'
    """
    return text if len(text) <= width else text[: width - 3] + "..."


def _shown(self: Any) -> str:
    """``<Sum X0 + P>``: the kind of node, and its text on one line, cut."""
    return f"<{type(self).__name__} {cut(higher(str, 'Expr.text')(self))}>"


@node()
@dataclass(frozen=True, slots=True)
class Spelled:
    """A word written out letter by letter, no abbreviation used: ``t W_E^T`` and not ``X_0``."""

    word: Word

    __repr__ = _shown


@node("factors")
@dataclass(frozen=True, slots=True)
class Product:
    """A product in order, with the scalars that stand before it; of operators, their composition."""

    factors: tuple[Expr, ...]
    scales: tuple[str, ...] = ()

    __repr__ = _shown


@node("terms")
@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of the listed terms."""

    terms: tuple[Expr, ...]

    __repr__ = _shown


@node("body")
@dataclass(frozen=True, slots=True)
class SumOver:
    """``sum_{h_l = 1}^{H_l} body``: the index ``h_1`` runs over the heads of layer ``layer`` (from 0)."""

    index: str
    layer: int
    body: Expr

    __repr__ = _shown


@node("body")
@dataclass(frozen=True, slots=True)
class Transposed:
    """The transpose of a matrix expression."""

    body: Expr

    __repr__ = _shown


@node()
@dataclass(frozen=True, slots=True)
class Identity:
    """The identity: a matrix in a slot of a tensor, else the identity operator."""

    __repr__ = _shown


@node("slots")
@dataclass(frozen=True, slots=True)
class Tensor:
    """``A (x) W``, acting as ``X -> A X W^T``; or ``A_q (x) A_k (x) W``: ``(x, y) -> A_q x W y^T A_k^T``."""

    slots: tuple[Expr, ...]

    __repr__ = _shown


@node("operator", "arguments")
@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to its argument, or a bilinear one to two."""

    operator: Expr
    arguments: tuple[Expr, ...]

    __repr__ = _shown


@node()
@dataclass(frozen=True, slots=True)
class Target:
    """The symbol of what is derived: ``logits``, ``stream`` or ``scores:L1H0``."""

    name: str

    __repr__ = _shown


@node("body")
@dataclass(frozen=True, slots=True)
class Family:
    """A part of a sum: its composition type, its order where all have one, and its number of terms (said of it)."""

    body: Expr
    composition: str
    count: Expr
    order: int | None = None

    def __repr__(self) -> str:
        return f"<Family {self.composition}: {_shown(self.body)}>"


@node()
@dataclass(frozen=True, slots=True)
class Number:
    """A whole number."""

    value: int

    __repr__ = _shown


@node()
@dataclass(frozen=True, slots=True)
class HeadCount:
    """``H_l``, the number of heads of layer ``layer`` (from 0)."""

    layer: int

    __repr__ = _shown


@node()
@dataclass(frozen=True, slots=True)
class Elementary:
    """``e_k(H_1, ..., H_L)``: the sum of the products of k different head counts."""

    order: int
    layers: tuple[int, ...]

    __repr__ = _shown


@node()
@dataclass(frozen=True, slots=True)
class CountOf:
    """The number of terms of a multiplied-out expression: all, of one order, or of one composition type."""

    expr: Expr
    order: int | None = None
    composition: str | None = None

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Sign:
    """What stands between the expressions of a :class:`Special`, in text and in LaTeX; a line may end before it.

    ``glyph``: it is a symbol that a notation may call otherwise.
    """

    text: str
    latex: str
    breaks: bool = False
    glyph: str = ""


class Special:
    """A node that knows its own value and how it is written: what results that are not path expansions speak of.

    Its parts are the expressions that stand in what is written.
    """

    __slots__ = ()
    __repr__ = _shown
    counts = False  # whether it is a number of things, not a matrix
    numeric = False  # whether it is one number made of matrices
    letter = False  # whether it is written as one letter
    pathless = False  # whether it is a summand beside the sum over paths

    def written(self) -> Written:
        """The signs and expressions of which it is written."""
        raise NotImplementedError

    def value(self, at: Instance, bindings: Bindings) -> Array:
        """The matrix that it stands for."""
        raise NotImplementedError

    def number(self) -> int:
        """How many it counts."""
        raise NotImplementedError

    def size(self, of: Callable[[Expr], int]) -> int:
        """The degree of its entries as polynomials; ``of`` is that of its parts."""
        return sum(map(of, parts(self)))


Expr = (
    Word | Spelled | Product | Sum | SumOver | Transposed | Identity | Tensor | Apply | Target | Family
    | Number | HeadCount | Elementary | CountOf | Special
)  # fmt: skip
Written = tuple[Sign | Expr, ...]  # how a special node is written


# ------------------------------------------------------------------------------------------ going through
def parts(expr: Expr) -> tuple[Expr, ...]:
    """The expressions of which an expression is made, in reading order.

    >>> parts(Product((Identity(), Sum((Number(1), Number(2))))))
    (<Identity Id>, <Sum 1 + 2>)
    """
    found: tuple[Expr, ...] = ()
    for field in _fields(expr):
        value = getattr(expr, field)
        found += value if isinstance(value, tuple) else (value,) if value is not None else ()
    return found


def with_parts(expr: Expr, new: Sequence[Expr]) -> Expr:
    """The same node made of other expressions, as many as it has.

    >>> with_parts(Product((Number(2), Number(3))), [Number(4), Number(5)])
    <Product 4 * 5>
    """
    changed: Any = expr
    changes: dict[str, Any] = {}
    at = 0
    for field in _fields(expr):
        value = getattr(expr, field)
        if isinstance(value, tuple):
            changes[field] = tuple(new[at : at + len(value)])
            at += len(value)
        elif value is not None:
            changes[field] = new[at]
            at += 1
    if at != len(new):
        raise ValueError(f"{type(expr).__name__} has {at} parts here, not {len(new)}")
    return replace(changed, **changes) if changes else expr


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every part changed; the very same where no part is.

    >>> mapped(Sum((Number(1), HeadCount(0))), lambda part: Number(7))
    <Sum 7 + 7>
    """
    old = parts(expr)
    if not old:
        return expr
    new = tuple(map(change, old))
    return expr if all(a is b for a, b in zip(old, new, strict=True)) else with_parts(expr, new)


def every_node(expr: Expr) -> Iterator[Expr]:
    """The expression and all that is inside it, each before its parts.

    >>> [type(found).__name__ for found in every_node(Transposed(Sum((Identity(), Number(1)))))]
    ['Transposed', 'Sum', 'Identity', 'Number']
    """
    todo = [expr]
    while todo:
        found = todo.pop()
        yield found
        todo += reversed(parts(found))


Rules = Mapping[type, Callable[[Any, list[T]], T]]


def fold(expr: Expr, rules: Rules[T], done: str) -> T:
    """What the rule of its kind makes of a node and of what its parts gave, from the leaves up.

    The rule of ``Special`` is that of all special nodes. TypeError says that a kind without a rule cannot be ``done``.

    >>> fold(Product((Number(2), Number(3))), {Number: lambda n, _: n.value, Product: lambda _, of: sum(of)}, "added")
    5
    """
    rule = rules.get(type(expr))
    if rule is None and isinstance(expr, Special):
        rule = rules.get(Special)
    if rule is None:
        raise TypeError(f"{type(expr).__name__} cannot be {done}")
    return rule(expr, [fold(part, rules, done) for part in parts(expr)])


def _fields(expr: Expr) -> tuple[str, ...]:
    try:
        return NODES[type(expr)]
    except KeyError:
        raise TypeError(f"{type(expr).__name__} is not a kind of node; register its class with @node") from None
