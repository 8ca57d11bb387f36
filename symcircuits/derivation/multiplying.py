"""Multiplying out: an expression as the list of its terms, and what is read from each term's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from symcircuits.core.rules import is_score, score_sides
from symcircuits.core.words import Factor, Word, transpose
from symcircuits.derivation.expressions import times, wrap
from symcircuits.derivation.nodes import (
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Rules,
    Special,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
    fold,
)

__all__ = [
    "ProductTerm", "composition_of_term", "composition_of_word", "count_polynomial", "counted", "multiply_out",
    "orders_of_word", "softmax_invisible", "tally",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProductTerm:
    """A product under sums over indices; ``right`` is used by operators ``X -> left X right`` alone."""

    indices: tuple[tuple[str, int], ...] = ()
    scales: tuple[str, ...] = ()
    factors: tuple[Factor, ...] = ()
    right: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.indices]
        if len(set(names)) < len(names):
            raise ValueError(f"one index is bound by two sums of a product: {', '.join(names)}")

    @property
    def T(self) -> ProductTerm:
        """The transpose."""
        return replace(self, factors=transpose(self.factors))

    def times(self, other: ProductTerm) -> ProductTerm:
        """The product (of operators: the other one acts first), indices of both kept."""
        return ProductTerm(
            self.indices + other.indices, self.scales + other.scales, self.factors + other.factors,
            other.right + self.right,
        )  # fmt: skip

    @property
    def expr(self) -> Expr:
        """The term as an expression; the word's types are checked. TypeError where it is a term of an operator."""
        if self.right:
            raise TypeError("a term of an operator is not a word")
        return wrap(Word(self.factors, self.scales), self.indices)


def multiply_out(expr: Expr) -> list[ProductTerm]:
    """Every path term of an expression, all products distributed over all sums, in reading order.

    Those of an operator are ``X -> left X right``; of a bilinear one ``right`` is ``W A_k^T``, between which y^T goes.
    """
    return fold(expr, TERMS, "multiplied out")


def _of_word(word: Word, _: object) -> list[ProductTerm]:
    return [ProductTerm((), word.scales, word.factors)]


def _of_product(product: Product, parts: list[list[ProductTerm]]) -> list[ProductTerm]:
    terms = [ProductTerm((), product.scales)]
    for part in parts:
        terms = [a.times(b) for a in terms for b in part]
    return terms


def _of_sum_over(over: SumOver, parts: list[list[ProductTerm]]) -> list[ProductTerm]:
    return [replace(f, indices=((over.index, over.layer), *f.indices)) for f in parts[0]]


def _of_tensor(tensor: Tensor, _: object) -> list[ProductTerm]:
    left, *middle, right = (() if isinstance(slot, Identity) else _slot(slot) for slot in tensor.slots)
    if not middle:
        return [ProductTerm((), (), left, transpose(right))]
    return [ProductTerm((), (), left, right + transpose(middle[0]))]


def _slot(slot: Expr) -> tuple[Factor, ...]:
    if not isinstance(slot, Word):
        raise TypeError(f"a tensor with {type(slot).__name__} in it cannot be multiplied out")
    return slot.factors


def _of_apply(_: object, parts: list[list[ProductTerm]]) -> list[ProductTerm]:
    operators, *arguments = parts
    return [flat for op in operators for x in arguments[0] for flat in _applied(op, x, arguments[1:])]


def _applied(op: ProductTerm, x: ProductTerm, others: list[list[ProductTerm]]) -> Iterator[ProductTerm]:
    first = ProductTerm(op.indices + x.indices, op.scales + x.scales, op.factors + x.factors)
    if not others:
        yield replace(first, factors=first.factors + op.right)
        return
    # A bilinear operator keeps A_q on the left; W and A_k^T stand in `right`, y^T goes between them.
    cut = next((i for i, f in enumerate(op.right) if _from_context(f)), len(op.right))
    for y in others[0]:
        middle = ProductTerm((), (), op.right[:cut]).times(y.T)
        yield first.times(middle).times(ProductTerm((), (), op.right[cut:]))


def _from_context(factor: Factor) -> bool:
    return factor.symbol.row.space.kind in ("context", "normed_context")


def _of_special(special: Special, _: object) -> list[ProductTerm]:
    if not special.pathless:
        raise TypeError(f"{type(special).__name__} cannot be multiplied out")
    return []


# A kind of node without a row cannot be multiplied out.
TERMS: Rules[list[ProductTerm]] = {
    Word: _of_word,
    Spelled: lambda spelled, _: _of_word(spelled.word, _),
    Product: _of_product,
    Sum: lambda _, parts: list(chain.from_iterable(parts)),
    SumOver: _of_sum_over,
    Transposed: lambda _, parts: [f.T for f in parts[0]],
    Family: lambda _, parts: parts[0],
    Identity: lambda *_: [ProductTerm()],
    Tensor: _of_tensor,
    Apply: _of_apply,
    Special: _of_special,
}


# ------------------------------------------------------------------------------- reading words, and counting
def orders_of_word(word: Word) -> tuple[int, ...]:
    """The number of heads (patterns) of a word, on the query and on the key side where it is a score."""
    if is_score(word):
        return tuple(sum(f.symbol.glyph == "A" for f in side.factors) for side in score_sides(word))
    return (sum(f.symbol.glyph == "A" for f in word.factors),)


def composition_of_word(word: Word) -> str:
    """The composition type, read from the word itself: ``none``, ``V``; ``none``, ``Q``, ``K``, ``QK``."""
    orders = orders_of_word(word)
    if len(orders) == 1:
        return "V" if orders[0] >= 2 else "none"
    return ("Q" if orders[0] else "") + ("K" if orders[1] else "") or "none"


def composition_of_term(term: Expr) -> str:
    """The composition type of a finished term, read from its word; nothing for other expressions."""
    while isinstance(term, SumOver):
        term = term.body
    return composition_of_word(term) if isinstance(term, Word) else ""


def softmax_invisible(expr: Expr) -> bool:
    """Whether a finished score term is the same for every key, read from its word.

    Its key side starts from a bias and goes through no norm, which scales every key by its own factor, and no rotary
    position turns it.
    """
    while isinstance(expr, (SumOver, Family)):
        expr = expr.body
    if not isinstance(expr, Word) or not is_score(expr):
        return False
    glyphs = {f.symbol.glyph for f in score_sides(expr)[1].factors}
    return "ones" in glyphs and "D" not in glyphs and not any(f.symbol.glyph == "R" for f in expr.factors)


Tally = Mapping[tuple[int, str, tuple[int, ...]], int]


def tally(expr: Expr) -> Tally:
    """How many terms there are of each order, composition type and layers of their indices, read from the words."""
    found: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
    for flat in multiply_out(expr):
        word = Word(flat.factors)
        layers = tuple(sorted(layer for _, layer in flat.indices))
        found[sum(orders_of_word(word)), composition_of_word(word), layers] += 1
    return found


def counted(count: CountOf, terms: Tally) -> Expr:
    """The number of terms that a :class:`CountOf` counts, as a polynomial in the head counts."""
    return Sum(
        tuple(
            times([Number(n), *map(HeadCount, layers)])
            for (order, composition, layers), n in terms.items()
            if count.order in (None, order) and count.composition in (None, composition)
        )
    )


def count_polynomial(expr: Expr, heads: Callable[[int], int]) -> int:
    """The value of a counting expression; ``heads(l)`` is ``H_l`` as a number (or a SymPy symbol)."""
    rules: Rules[int] = {
        Number: lambda number, _: number.value,
        HeadCount: lambda count, _: heads(count.layer),
        Sum: lambda _, parts: sum(parts, 0),
        Product: lambda _, parts: prod(parts),
        Elementary: lambda symmetric, _: _elementary(symmetric, heads),
        CountOf: lambda count, _: count_polynomial(counted(count, tally(count.expr)), heads),
        Special: lambda special, _: special.number(),
    }
    return fold(expr, rules, "counted")


def _elementary(symmetric: Elementary, heads: Callable[[int], int]) -> int:
    coefficients = [1] + [0] * symmetric.order
    for layer in symmetric.layers:
        for k in range(symmetric.order, 0, -1):
            coefficients[k] = coefficients[k] + heads(layer) * coefficients[k - 1]
    return coefficients[symmetric.order]
