"""What results are written of: the embedded tokens, and the factors of a head."""

from __future__ import annotations

from symcircuits.core.architecture import Head
from symcircuits.core.programs import embedding, pattern, weight
from symcircuits.core.words import Factor, Symbol, Word
from symcircuits.derivation.expressions import relabelled
from symcircuits.derivation.frames import Frame

__all__ = ["embed", "head_factors", "read_by"]


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
