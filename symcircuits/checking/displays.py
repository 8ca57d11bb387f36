"""LaTeX displays in a text: where they are, and which characters of the text around them are read."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ENVIRONMENTS", "displays", "outside_prose"]

ENVIRONMENTS: Final = (
    r"(?:align|alignat|aligned|alignedat|gather|gathered|equation|eqnarray|multline|split|displaymath|math)"
)
_EDGE: Final = re.compile(rf"(\\begin\{{{ENVIRONMENTS}\*?\}}|\\\[)|(\\end\{{{ENVIRONMENTS}\*?\}}|\\\])|(\$\$)")


def outside_prose(source: str) -> list[bool] | None:
    """Which characters of a text with displays are read: not the prose around them, nor formulas in a sentence."""
    if "\\begin" not in source and "$$" not in source and "\\[" not in source:
        return None
    shown = [False] * len(source)
    last = 0
    spans = displays(source)
    if not spans:
        return None
    for start, end in [*spans, (len(source), len(source))]:
        for line in re.compile(r"[^\n]*\n?").finditer(source, last, start):
            if _is_formula(line[0]):
                shown[line.start() : min(line.end(), start)] = [True] * (min(line.end(), start) - line.start())
        shown[start:end] = [True] * (end - start)
        last = end
    return shown


def displays(source: str) -> list[tuple[int, int]]:
    """The start and end of each display."""
    spans: list[tuple[int, int]] = []
    depth, start, dollars = 0, 0, False
    for found in _EDGE.finditer(source):
        opens = found[1] or (found[3] and not dollars)
        dollars = not dollars if found[3] else dollars
        if opens:
            start = start if depth else found.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                spans.append((start, found.end()))
    return spans


def _is_formula(line: str) -> bool:
    """Whether a line between displays is a formula, not a sentence or a layout command."""
    bare = re.sub(r"\$[^$]*\$", " ", line)
    words = re.findall(r"(?<![\\A-Za-z_{^])[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+\*?(?:\{[^{}]*\})?", " ", bare))
    return ("=" in bare or "otimes" in bare) and len([w for w in words if w not in ("Id", "logits")]) < 3
