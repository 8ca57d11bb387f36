"""What is printed of a derivation: the symbols of its formulas, and the other letters that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from symcircuits.core.notation import glyphs_of
from symcircuits.core.words import Factor, Word, is_multiplier
from symcircuits.derivation.checks import Step
from symcircuits.derivation.expressions import Expr, Sign, Special, Spelled, Target, Tensor, parts_of

__all__ = ["printed"]


def printed(steps: Iterable[Step]) -> tuple[set[str], set[str]]:
    """The symbols (``scale`` where a score scale or scores stand, multipliers) and the letters of special nodes."""
    factors: set[Factor] = set()
    glyphs: set[str] = set()
    words: set[str] = set()
    stack: list[Expr] = [side for step in steps for claim in step.claims for side in claim.sides]
    while stack:
        expr = stack.pop()
        word = expr.word if isinstance(expr, Spelled) else expr
        if isinstance(word, Word):
            factors.update(word.factors)
        if isinstance(expr, Target) and ":" in expr.name:
            glyphs.add("scale")
        scales = getattr(word, "scales", ())
        glyphs.update(s.partition("[")[0] if is_multiplier(s) else "scale" for s in scales)
        if isinstance(expr, Special):
            for part in expr.written():
                if isinstance(part, Sign):
                    glyphs.update([part.glyph] if part.glyph else ())
                    words.update([] if part.glyph else re.findall(r"[A-Za-z]\w*", part.text))
                else:
                    stack.append(part)
        stack += expr.slots if isinstance(expr, Tensor) else parts_of(expr)
    return glyphs | glyphs_of(factors), words
