"""Multiplying out: an expression as the list of its terms, and what is read from each term's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from symcircuits.core.rules import is_score, score_sides
from symcircuits.core.words import Factor, Word, transpose
from symcircuits.derivation.expressions import (
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Special,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
    times,
    wrap,
)

__all__ = [
    "Flat", "composition_of_word", "count_polynomial", "counted", "multiply_out", "multiply_out_operator",
    "orders_of_word", "softmax_invisible", "tally",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flat:
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
    def T(self) -> Flat:
        """The transpose."""
        return replace(self, factors=transpose(self.factors))

    def times(self, other: Flat) -> Flat:
        """The product, indices of both kept."""
        return Flat(self.indices + other.indices, self.scales + other.scales, self.factors + other.factors)

    @property
    def expr(self) -> Expr:
        """The term as an expression; the word's types are checked."""
        return wrap(Word(self.factors, self.scales), self.indices)


def multiply_out(expr: Expr) -> list[Flat]:
    """Every path term of a matrix expression, all products distributed over all sums, in reading order."""
    match expr:
        case Word():
            return [Flat((), expr.scales, expr.factors)]
        case Spelled():
            return multiply_out(expr.word)
        case Product():
            terms = [Flat((), expr.scales)]
            for factor in expr.factors:
                parts = multiply_out(factor)
                terms = [a.times(b) for a in terms for b in parts]
            return terms
        case Sum():
            return [flat for t in expr.terms for flat in multiply_out(t)]
        case SumOver():
            return [replace(f, indices=((expr.index, expr.layer), *f.indices)) for f in multiply_out(expr.body)]
        case Transposed():
            return [f.T for f in multiply_out(expr.body)]
        case Family():
            return multiply_out(expr.body)
        case Apply():
            return list(_applied(expr))
        case Special() if expr.pathless:
            return []
        case _:
            raise TypeError(f"{type(expr).__name__} is no matrix expression that can be multiplied out")


def _applied(expr: Apply) -> Iterator[Flat]:
    arguments = [multiply_out(a) for a in expr.arguments]
    for op in multiply_out_operator(expr.operator):
        for x in arguments[0]:
            first = Flat(op.indices + x.indices, op.scales + x.scales, op.factors + x.factors)
            if len(arguments) == 1:
                yield replace(first, factors=first.factors + op.right)
                continue
            # A bilinear operator keeps A_q on the left; W and A_k^T stand in `right`, y^T goes between them.
            cut = next((i for i, f in enumerate(op.right) if _from_context(f)), len(op.right))
            for y in arguments[1]:
                middle = Flat((), (), op.right[:cut]).times(y.T)
                yield first.times(middle).times(Flat((), (), op.right[cut:]))


def _from_context(factor: Factor) -> bool:
    return factor.symbol.row.space.kind in ("context", "normed_context")


def multiply_out_operator(expr: Expr) -> list[Flat]:
    """The terms of an operator, each ``X -> left X right`` (or with ``W, A_k^T`` as ``right``, bilinear)."""
    match expr:
        case Identity():
            return [Flat()]
        case Tensor(slots=slots):
            parts = [() if isinstance(s, Identity) else _slot(s) for s in slots]
            if len(parts) == 2:
                return [Flat((), (), parts[0], transpose(parts[1]))]
            return [Flat((), (), parts[0], parts[2] + transpose(parts[1]))]
        case Product():
            terms = [Flat((), expr.scales)]
            for factor in expr.factors:
                inner = multiply_out_operator(factor)
                terms = [
                    Flat(a.indices + b.indices, a.scales + b.scales, a.factors + b.factors, b.right + a.right)
                    for a in terms for b in inner
                ]  # fmt: skip
            return terms
        case Sum():
            return [flat for t in expr.terms for flat in multiply_out_operator(t)]
        case SumOver():
            return [
                replace(f, indices=((expr.index, expr.layer), *f.indices)) for f in multiply_out_operator(expr.body)
            ]
        case Family():
            return multiply_out_operator(expr.body)
        case _:
            raise TypeError(f"{type(expr).__name__} is no operator")


def _slot(slot: Expr) -> tuple[Factor, ...]:
    if not isinstance(slot, Word):
        raise TypeError(f"a tensor with {type(slot).__name__} in it cannot be multiplied out")
    return slot.factors


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
    match expr:
        case Number():
            return expr.value
        case HeadCount():
            return heads(expr.layer)
        case Sum():
            return sum((count_polynomial(t, heads) for t in expr.terms), 0)
        case Product():
            value = 1
            for f in expr.factors:
                value = value * count_polynomial(f, heads)
            return value
        case Elementary():
            coefficients = [1] + [0] * expr.order
            for layer in expr.layers:
                for k in range(expr.order, 0, -1):
                    coefficients[k] = coefficients[k] + heads(layer) * coefficients[k - 1]
            return coefficients[expr.order]
        case CountOf():
            return count_polynomial(counted(expr, tally(expr.expr)), heads)
        case Special():
            return expr.number()
        case _:
            raise TypeError(f"{type(expr).__name__} does not count")
