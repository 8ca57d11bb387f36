"""What results are written of: the embedded tokens, the factors of a head, and these in another basis."""

from __future__ import annotations

from symcircuits.core.architecture import Head, attention_only
from symcircuits.core.programs import embedding, pattern, stream_program, weight
from symcircuits.core.words import Factor, Symbol, Word
from symcircuits.derivation.expressions import relabelled
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Transposed
from symcircuits.derivation.specials import Inverse, NamedMatrix, Parentheses

__all__ = ["embed", "head_factors", "ones", "read_by", "separate"]

_WRITES = ("W_E", "W_O")


def embed() -> Word:
    """``X_0 = t W_E^T``."""
    return Word(embedding())


def head_factors(frame: Frame, layer: int, index: int = 0, name: str = "") -> dict[str, Factor]:
    """``A``, ``W_Q``, ``W_K``, ``W_V`` and ``W_O`` of a head, under another name where one is given."""
    head = Head(layer, index)
    symbols: dict[str, Symbol] = {g: weight(frame.walked, g, head) for g in ("W_Q", "W_K", "W_V", "W_O")}
    symbols["A"] = pattern(head)
    names = {head.label: name} if name else {}
    return {glyph: relabelled((Factor(symbol),), names)[0] for glyph, symbol in symbols.items()}


def read_by(frame: Frame) -> Factor:
    """``W_U``."""
    last = frame.expansion.readout.sides[0][-1].branches[0].right
    return last[0].T


def ones() -> Word:
    """``1``, the column of ones."""
    return Word(stream_program(attention_only((1,), biases=["b_O"]), 1)[1].sources[-1].factors[:1])


def separate(factors: tuple[Factor, ...], basis: NamedMatrix | None = None) -> Product:
    """A product of single matrices, in the changed basis where one is given; its types are not looked at."""
    return Product(tuple(Word((f,)) if basis is None else _changed(f, basis) for f in factors))


def _changed(factor: Factor, basis: NamedMatrix) -> Expr:
    """``T W`` of what writes to the stream, ``W T^-1`` of what reads it (``W Q^T`` for an orthogonal Q)."""
    matrix = Word((Factor(factor.symbol),))
    back: Expr = Transposed(basis) if basis.kind == "orthogonal" else Inverse(basis)
    inside = Product((basis, matrix) if factor.symbol.glyph in _WRITES else (matrix, back))
    return Transposed(inside) if factor.transposed else Parentheses(inside)
