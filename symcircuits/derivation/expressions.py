"""Making expressions: streams, products around a body, sums over heads, products of numbers, substitution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from symcircuits.core.symbols import SHARED
from symcircuits.core.words import Factor, Index, Space, Symbol, Word
from symcircuits.derivation.nodes import Expr, Number, Product, Special, SumOver, Transposed, mapped

__all__ = [
    "is_pathless", "is_recursion", "rebuild", "relabelled", "sandwich", "scaled", "stream_symbol", "substitute",
    "times", "wrap",
]  # fmt: skip


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
    if isinstance(expr, Word):
        return leaf(expr, transposed)
    turned = transposed != isinstance(expr, Transposed)
    return mapped(expr, lambda part: rebuild(part, leaf, turned))


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
