"""What a claim is made of: a small expression tree over words, and how it is multiplied out.

A leaf is a :class:`~symcircuits.core.words.Word` (a typed product of matrix symbols, the recursion symbols ``X1``,
``X2``, ... among them), the readout's own symbol, an identity, or a number. Nodes are products, sums, sums over
the heads of a layer, transposes, tensors ``A (x) W`` (acting as ``X -> A X W^T``) with two or three slots, and
families: parts of a sum with their composition type and their number of terms. Everything that a derivation
prints is printed from such a tree, after both sides of the claim were evaluated and found equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from symcircuits.core.seam import higher
from symcircuits.core.symbols import SHARED
from symcircuits.core.words import Factor, Index, Space, Symbol, Word

if TYPE_CHECKING:
    from symcircuits.arrays.rings import Array
    from symcircuits.derivation.values import Bindings, Instance

__all__ = [
    "Apply", "CountOf", "Elementary", "Expr", "Family", "HeadCount", "Identity", "Number", "Product", "Sign", "Special",
    "Spelled", "Sum", "SumOver", "Target", "Tensor", "Transposed", "cut", "is_pathless", "is_recursion", "parts_of",
    "rebuild", "relabelled", "sandwich", "scaled", "stream_symbol", "substitute", "times", "wrap",
]  # fmt: skip


def cut(text: str, width: int = 100) -> str:
    """A text cut to a width.

    >>> cut("X0 @ W_U.T", 9)
    'X0 @ W...'
    """
    return text if len(text) <= width else text[: width - 3] + "..."


def _shown(self: Any) -> str:
    """``<Sum X0 + P>``: the kind of node, and its text on one line, cut."""
    return f"<{type(self).__name__} {cut(higher(str, 'Expr.text')(self))}>"


@dataclass(frozen=True, slots=True)
class Spelled:
    """A word written out letter by letter, no abbreviation used: ``t W_E^T`` and not ``X_0``."""

    word: Word

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Product:
    """A product in order, with the scalars that stand before it; of operators, their composition."""

    factors: tuple[Expr, ...]
    scales: tuple[str, ...] = ()

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of the listed terms."""

    terms: tuple[Expr, ...]

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class SumOver:
    """``sum_{h_l = 1}^{H_l} body``: the index ``h_1`` runs over the heads of layer ``layer`` (from 0)."""

    index: str
    layer: int
    body: Expr

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Transposed:
    """The transpose of a matrix expression."""

    body: Expr

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity: a matrix in a slot of a tensor, else the identity operator."""

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Tensor:
    """``A (x) W``, acting as ``X -> A X W^T``; or ``A_q (x) A_k (x) W``: ``(x, y) -> A_q x W y^T A_k^T``."""

    slots: tuple[Expr, ...]

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to its argument, or a bilinear one to two."""

    operator: Expr
    arguments: tuple[Expr, ...]

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Target:
    """The symbol of what is derived: ``logits``, ``stream`` or ``scores:L1H0``."""

    name: str

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Family:
    """A part of a sum: its composition type, its order where all have one, and its number of terms."""

    body: Expr
    composition: str
    count: Expr
    order: int | None = None

    def __repr__(self) -> str:
        return f"<Family {self.composition}: {_shown(self.body)}>"


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number."""

    value: int

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class HeadCount:
    """``H_l``, the number of heads of layer ``layer`` (from 0)."""

    layer: int

    __repr__ = _shown


@dataclass(frozen=True, slots=True)
class Elementary:
    """``e_k(H_1, ..., H_L)``: the sum of the products of k different head counts."""

    order: int
    layers: tuple[int, ...]

    __repr__ = _shown


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
    """A node that knows its own value and how it is written: what results that are no path expansion speak of."""

    __slots__ = ()
    __repr__ = _shown
    counts = False  # whether it is a number of things, not a matrix
    letter = False  # whether it is written as one letter
    pathless = False  # whether it is a summand beside the sum over paths

    def written(self) -> tuple[Sign | Expr, ...]:
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
        return sum(of(part) for part in self.written() if not isinstance(part, Sign))


Expr = (
    Word | Spelled | Product | Sum | SumOver | Transposed | Identity | Tensor | Apply | Target | Family
    | Number | HeadCount | Elementary | CountOf | Special
)  # fmt: skip


# ------------------------------------------------------------------------------------------------- making
def stream_symbol(layer: int) -> Factor:
    """``X_l``, the recursion symbol of the stream after ``layer`` layers, ``[n_context, d_model]``."""
    return Factor(Symbol(f"X{layer}", "", Index(Space("context"), False, layer), Index(Space("model"), False, layer)))


def is_recursion(factor: Factor) -> bool:
    """Whether it is a stream ``X_l``, or ``Y``, which comes out of a norm: what a definition is substituted for."""
    glyph = factor.symbol.glyph
    return glyph == "Y" or (glyph[0] == "X" and glyph[1:].isdecimal() and not factor.symbol.parts)


def sandwich(left: tuple[Factor, ...], body: Expr, right: tuple[Factor, ...], scales: tuple[str, ...] = ()) -> Expr:
    """``left body right``: one word where the body is a word, else a product.

    >>> x1 = Word((stream_symbol(1),))
    >>> sandwich((), x1, (), ("L1H0",)).text
    'scale[L1H0] * X1'
    """
    if isinstance(body, Word):
        return Word(left + body.factors + right, scales + body.scales)
    parts = ((Word(left),) if left else ()) + (body,) + ((Word(right),) if right else ())
    return Product(parts, scales) if len(parts) > 1 or scales else body


def scaled(scales: tuple[str, ...], body: Expr) -> Expr:
    """The expression times scalars: they join those that a word or product has; nothing is done where there is none.

    >>> scaled(("m_U",), Word((stream_symbol(1),))).text
    'm_U * X1'
    """
    if isinstance(body, (Word, Product)) and scales:
        return replace(body, scales=scales + body.scales)
    return Product((body,), scales) if scales else body


def relabelled(
    factors: tuple[Factor, ...], names: Mapping[str, str], shared: Mapping[str, str] | None = None
) -> tuple[Factor, ...]:
    """The factors with labels, and the owners of their spaces, renamed.

    ``shared`` has the new labels of what a group of heads has in common, keys and values; the same where it is None.
    """
    if not names:
        return factors
    shared = names if shared is None else shared
    return tuple(Factor(_renamed(f.symbol, names, shared), f.transposed) for f in factors)


def _renamed(symbol: Symbol, names: Mapping[str, str], shared: Mapping[str, str]) -> Symbol:
    own = shared if symbol.glyph in SHARED else names
    sides = symbol.row, symbol.col
    if symbol.label not in own and not any(i.space.owner in shared for i in sides):
        return symbol
    row, col = (
        replace(i, space=replace(i.space, owner=shared[i.space.owner])) if i.space.owner in shared else i for i in sides
    )
    branch, parts = names.get(symbol.branch, symbol.branch), relabelled(symbol.parts, names, shared)
    return replace(symbol, label=own.get(symbol.label, symbol.label), branch=branch, row=row, col=col, parts=parts)


def times(factors: list[Expr]) -> Expr:
    """A product of numbers: plain numbers multiplied and put first, ones dropped."""
    flat = [f for factor in factors for f in (factor.factors if isinstance(factor, Product) else (factor,))]
    number = prod(f.value for f in flat if isinstance(f, Number))
    rest: list[Expr] = [f for f in flat if not isinstance(f, Number)]
    if number == 0 or not rest:
        return Number(number)
    rest = rest if number == 1 else [Number(number), *rest]
    return rest[0] if len(rest) == 1 else Product(tuple(rest))


def wrap(body: Expr, indices: tuple[tuple[str, int], ...]) -> Expr:
    """The body under sums over these indices ``(name, layer)``, the first outermost."""
    for index, layer in reversed(indices):
        body = SumOver(index, layer, body)
    return body


def rebuild(expr: Expr, leaf: Callable[[Word, bool], Expr], transposed: bool = False) -> Expr:
    """The expression with every word replaced by ``leaf(word, transposed)``: whether it stands in a transpose."""
    match expr:
        case Word():
            return leaf(expr, transposed)
        case Product():
            return replace(expr, factors=tuple(rebuild(f, leaf, transposed) for f in expr.factors))
        case Sum():
            return Sum(tuple(rebuild(t, leaf, transposed) for t in expr.terms))
        case Transposed():
            return Transposed(rebuild(expr.body, leaf, not transposed))
        case SumOver() | Family():
            return replace(expr, body=rebuild(expr.body, leaf, transposed))
        case _:
            return expr


def substitute(expr: Expr, layer: int, definition: Callable[[bool], Expr]) -> Expr:
    """``X_l`` replaced by its definition; ``definition(transposed)`` gives it for each occurrence.

    ``transposed`` says how the occurrence stands in the whole expression, not in its word alone: in scores the
    transposed stream is that of the keys, also where the transpose is taken of a sum around it.
    """
    glyph = stream_symbol(layer).symbol.glyph

    def leaf(word: Word, turned: bool) -> Expr:
        parts: list[Expr] = []
        run: list[Factor] = []
        for f in word.factors:
            if f.symbol.glyph != glyph:
                run.append(f)
                continue
            parts += [Word(tuple(run))] if run else []
            body = definition(f.transposed != turned)
            parts.append(Transposed(body) if f.transposed else body)
            run = []
        if not parts:
            return word
        if len(parts) == 1 and not run and not word.scales:
            return parts[0]
        return Product(tuple(parts + ([Word(tuple(run))] if run else [])), word.scales)

    return rebuild(expr, leaf)


def is_pathless(expr: Expr) -> bool:
    """Whether it is a summand beside the sum over paths."""
    return isinstance(expr, Special) and expr.pathless


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """The expressions of which an expression is made."""
    match expr:
        case Sum():
            return expr.terms
        case Product():
            return expr.factors
        case SumOver() | Transposed() | Family():
            return (expr.body,)
        case Apply():
            return (expr.operator, *expr.arguments)
        case _:
            return ()
