"""An expression as a notation shows it: the checked expression, rearranged for printing and not changed in value.

In the paper's notation a word, or a product around a sum, is a map applied to what it starts from. In
TransformerLens's, where a printed weight is the transpose of ours, ``(W_U W_OV)^T`` is written ``W_OV W_U``, and a map
``A (x) W`` carries the transposed ``W``: ``(A (x) W) X = A X W``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from symcircuits.core.notation import Notation, form
from symcircuits.core.symbols import FLIPPED
from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Step
from symcircuits.derivation.nodes import (
    Apply,
    Expr,
    Family,
    Identity,
    Product,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
    mapped,
    parts,
)
from symcircuits.derivation.specials import Difference, Named, NamedMatrix, Parentheses, Rank, SquaredNorm, Trace

__all__ = ["Shown", "shown", "shown_claim", "shown_claims"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A claim as it is printed: its sides, their relation, and the notation in which they stand."""

    sides: tuple[Expr, ...]
    relation: str
    notation: Notation


def shown_claims(step: Step, notation: Notation, known: Collection[Expr] = ()) -> list[Shown]:
    """The claims of a step for printing; a right-hand side that is known is not repeated.

    How maps act, what abbreviations mean, and what is one and the same map is said by products.
    """
    return [shown_claim(claim, notation, known, step.check.how == "indices") for claim in step.claims]


def shown_claim(claim: Claim, notation: Notation, known: Collection[Expr] = (), rule: bool = False) -> Shown:
    """A claim for printing; a right-hand side that is known is not repeated, and a ``rule`` is said by products."""
    sides = (claim.lhs, *([s for s in claim.sides[1:] if s not in known] or [claim.rhs]))
    rule = rule or any(isinstance(side, Spelled) for side in claim.sides)
    rule = rule or (notation.tensors and len({shown(side, notation) for side in sides}) < len(sides))
    if notation.flips and _turns(*claim.sides):
        sides = tuple(_turned(side) for side in sides)
    return Shown(sides, claim.relation, notation.products if rule else notation)


def shown(expr: Expr, notation: Notation) -> Expr:
    """The expression as the notation shows it."""
    if notation.tensors:
        return _as_map(expr, notation)
    return _right_acting(expr) if notation.flips else expr


# ------------------------------------------------------------------------------------------ maps (the paper)
def _as_map(expr: Expr, notation: Notation) -> Expr:
    match expr:
        case Word():
            return _word_map(expr, notation)
        case Product():
            return _product_map(expr, notation)
        case Tensor():
            return expr
        case Apply():
            return replace(expr, arguments=tuple(_as_map(argument, notation) for argument in expr.arguments))
        case _:
            return mapped(expr, lambda part: _as_map(part, notation))


def _word_map(word: Word, notation: Notation) -> Expr:
    found = form(word, notation)
    if found is None:
        return word
    slots = Tensor(tuple(Word(slot) if slot else Identity() for slot in found.slots))
    operator = Product((slots,), word.scales) if word.scales else slots
    return Apply(operator, tuple(Word((source,)) for source in found.sources))


def _product_map(product: Product, notation: Notation) -> Expr:
    """``A (...) W^T`` as ``(A (x) W) (...)``, and ``s (...) W_QK (...)^T`` as ``s (Id (x) Id (x) W_QK)(..., ...)``."""
    parts = product.factors
    at = next((i for i, part in enumerate(parts) if _of_tokens(part) and not _is_pattern(part)), len(parts))
    left, right = parts[:at], parts[at + 1 :]
    default = replace(product, factors=tuple(_as_map(f, notation) for f in parts))
    if not right or not all(isinstance(part, NamedMatrix) or _is_pattern(part) for part in left):
        return default
    body = parts[at]
    arguments: tuple[Expr, ...] = ()
    match right:
        case (Word() as w, Transposed(body=y)) if not left and not _of_tokens(w) and _of_tokens(y):
            operator, arguments = Tensor((Identity(), Identity(), w)), (y,)
        case _:
            weights = [_column(part) for part in reversed(right)]
            if None in weights:
                return default
            before, body = _parted(body)
            slots = (_joined([*left, *before]), _joined([w for w in weights if w is not None]))
            operator = Tensor(slots)
    scaled = Product((operator,), product.scales) if product.scales else operator
    return Apply(scaled, tuple(_as_map(a, notation) for a in (body, *arguments)))


def _parted(body: Expr) -> tuple[tuple[Word, ...], Expr]:
    """The patterns before the source of a word that is nothing more, and that source."""
    if not isinstance(body, Word) or len(body.factors) < 2 or not _is_pattern(Word(body.factors[:-1])):
        return (), body
    return (Word(body.factors[:-1]),), Word(body.factors[-1:])


def _column(part: Expr) -> Expr | None:
    """The transpose of what stands to the right of a stream, if it is a matrix of weights."""
    match part:
        case Word() if all("context" not in i.space.kind for i in (part.row, part.col)):
            return part.T
        case Transposed(body=body) if not _of_tokens(body):
            return body
        case NamedMatrix() if part.symmetric:
            return part
        case _:
            return None


def _joined(parts: Sequence[Expr]) -> Expr:
    return Identity() if not parts else parts[0] if len(parts) == 1 else Product(tuple(parts))


def _is_pattern(expr: Expr) -> bool:
    """Whether it is a product of patterns."""
    return isinstance(expr, Word) and all("context" in i.space.kind for f in expr.factors for i in (f.row, f.col))


def _of_tokens(expr: Expr) -> bool:
    """Whether an expression has a row for each token."""
    match expr:
        case Word():
            return "context" in expr.row.space.kind
        case Sum():
            return bool(expr.terms) and _of_tokens(expr.terms[0])
        case Product():
            return any(map(_of_tokens, expr.factors))
        case SumOver() | Family() | Named():
            return _of_tokens(expr.body)
        case Apply():
            return _of_tokens(expr.arguments[0])
        case Difference():
            return _of_tokens(expr.left)
        case _:
            return False


# --------------------------------------------------------------------------- right-multiplying (TransformerLens)
def _right_acting(expr: Expr) -> Expr:
    match expr:
        case Transposed() if _turns(expr.body):
            return _right_acting(_turned(expr.body))
        case Named() | NamedMatrix() if expr.flips:
            return Transposed(replace(expr, flips=False))
        case Rank() | SquaredNorm() | Trace() if _turns(expr.body):
            return replace(expr, body=_right_acting(_turned(expr.body)))
        case Tensor(slots=(a, w)):
            return Tensor((a, w.T if isinstance(w, Word) else w))
        case Product():
            return replace(expr, factors=tuple(map(_factor, expr.factors)))
        case _:
            return mapped(expr, _right_acting)


def _factor(expr: Expr) -> Expr:
    """A factor of a product; one that was transposed as a whole stays together."""
    found = _right_acting(expr)
    several = isinstance(found, Product) or (isinstance(found, Word) and len(found.fused) > 1)
    return Parentheses(found) if several and isinstance(expr, Transposed) else found


def _turns(*exprs: Expr) -> bool:
    """Whether the transposes are the natural things to print: all can be turned, and weights stand in one."""
    return all(map(_can_turn, exprs)) and any(map(_has_weights, exprs))


def _can_turn(expr: Expr) -> bool:
    match expr:
        case Word():
            return not expr.scales and all(f.symbol.glyph in FLIPPED for f in expr.fused)
        case Spelled():
            return all(f.symbol.glyph in FLIPPED for f in expr.word.factors)
        case Named():
            return expr.flips
        case NamedMatrix():
            return expr.flips or expr.symmetric
        case Product():
            return not expr.scales and all(map(_can_turn, expr.factors))
        case Sum() | SumOver() | Transposed() | Parentheses():
            return all(map(_can_turn, parts(expr)))
        case _:
            return False


def _has_weights(expr: Expr) -> bool:
    """Whether there is anything but symmetric matrices in an expression that can be turned."""
    if isinstance(expr, NamedMatrix):
        return expr.flips
    return any(map(_has_weights, parts(expr))) if parts(expr) else True


def _turned(expr: Expr) -> Expr:
    """The transpose of an expression that can be turned."""
    match expr:
        case Word():
            return expr.T
        case Spelled():
            return Spelled(expr.word.T)
        case Product():
            return Product(tuple(map(_turned, reversed(expr.factors))))
        case Sum() | SumOver() | Parentheses():
            return mapped(expr, _turned)
        case Transposed():
            return expr.body
        case Named() | NamedMatrix():
            return replace(expr, flips=False)
        case _:
            raise TypeError(f"the transpose of {type(expr).__name__} cannot be printed")
