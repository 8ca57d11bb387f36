"""What is printed of a derivation: the symbols of its formulas, and the other letters that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from symcircuits.core.notation import glyphs_of
from symcircuits.core.words import Factor, Word, is_multiplier
from symcircuits.derivation.claims import Step
from symcircuits.derivation.nodes import Sign, Special, Spelled, Target, every_node

__all__ = ["symbols_used"]


def symbols_used(steps: Iterable[Step]) -> tuple[set[str], set[str]]:
    """The symbols (``scale`` where a score scale or scores stand, multipliers) and the letters of special nodes."""
    factors: set[Factor] = set()
    glyphs: set[str] = set()
    words: set[str] = set()
    sides = (side for step in steps for claim in step.claims for side in claim.sides)
    for expr in (found for side in sides for found in every_node(side)):
        word = expr.word if isinstance(expr, Spelled) else expr
        if isinstance(word, Word):
            factors.update(word.factors)
        if isinstance(expr, Target) and ":" in expr.name:
            glyphs.add("scale")
        scales = getattr(word, "scales", ())
        glyphs.update(s.partition("[")[0] if is_multiplier(s) else "scale" for s in scales)
        for sign in expr.written() if isinstance(expr, Special) else ():
            if isinstance(sign, Sign):
                glyphs.update([sign.glyph] if sign.glyph else ())
                words.update([] if sign.glyph else re.findall(r"[A-Za-z]\w*", sign.text))
    return glyphs | glyphs_of(factors), words
