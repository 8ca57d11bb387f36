"""How wide a formula will be, in em of a 10 point font: estimated from its source, rather too wide than too narrow.

Only the commands that our own printer writes are known; TeX itself is not run.
"""

from __future__ import annotations

import re

__all__ = ["latex_width"]

_TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|[{}_^]|.", re.DOTALL)
_TEXT = re.compile(r"\\text\{[^{}]*\}")
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*?)\\end\{pmatrix\}", re.DOTALL)
_FRACTION = re.compile(r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}")
_COMMANDS = {
    r"\,": 0.17, r"\;": 0.28, r"\!": -0.17, r"\quad": 1.0, r"\qquad": 2.0, r"\ ": 0.33, r"\sum": 1.45, r"\prod": 1.3,
    r"\otimes": 1.23, r"\cdot": 0.72, r"\cdots": 1.2, r"\dots": 1.2, r"\mathbf": 0.0, r"\mathsf": 0.0,
    r"\small": 0.0, r"\bigl": 0.05, r"\bigr": 0.05, r"\limits": 0.0, r"\displaystyle": 0.0,
    r"\#": 0.83, r"\mathcal": 0.0, r"\left": 0.0, r"\right": 0.0,
}  # fmt: skip
_UPRIGHT = {r"\text": 0.88, r"\mathrm": 0.95}
_WIDE = {
    "W": 1.12, "N": 0.92, "K": 0.88, "V": 0.85, "U": 0.8, "D": 0.83, "M": 0.98, "Q": 0.8, "O": 0.78, "X": 0.86,
    "A": 0.76, "H": 0.86, "m": 0.84, "w": 0.72, "i": 0.34, "l": 0.32, "t": 0.38, " ": 0.0,
}  # fmt: skip


def latex_width(source: str) -> float:
    """The width of a formula in em.

    >>> latex_width("A^{h_1}") < latex_width(r"A^{\\\\mathrm{L0H1}}")
    True
    """
    matrices = [_matrix_width(found[1]) for found in _MATRIX.finditer(source)]
    source = _MATRIX.sub("", source)
    spaced = _TEXT.sub(lambda found: found[0].replace(" ", r"\ "), source)  # a space counts in text alone
    width, _ = _group(_TOKEN.findall(spaced), 0)
    return width + sum(matrices)


def _matrix_width(body: str) -> float:
    """A small matrix in its parentheses: the widest entry of every column, a fraction as wide as its wider part."""
    rows = [[_FRACTION.sub(_wider, cell) for cell in row.split("&")] for row in body.split(r"\\")]
    columns = zip(*rows, strict=True)
    return sum(max(map(latex_width, column)) + 1.0 for column in columns) + 1.0


def _wider(found: re.Match[str]) -> str:
    return max(found[1], found[2], key=latex_width)


def _group(tokens: list[str], at: int) -> tuple[float, int]:
    """The width of the tokens up to the closing brace, and where they end."""
    width = 0.0
    while at < len(tokens):
        token = tokens[at]
        if token == "}":
            return width, at + 1
        if token in "_^":
            scripts, at, limits = _scripts(tokens, at), _after_scripts(tokens, at), _is_limit(tokens, at)
            width += max(0.0, max(scripts) - 1.45) if limits else max(scripts) + 0.08
            continue
        if token in _UPRIGHT and at + 1 < len(tokens) and tokens[at + 1] == "{":
            inner, at = _group(tokens, at + 2)
            width += _UPRIGHT[token] * inner
            continue
        if token == "{":
            inner, at = _group(tokens, at + 1)
            width += inner
            continue
        width += _one(token)
        at += 1
    return width, at


def _is_limit(tokens: list[str], at: int) -> bool:
    return at > 0 and tokens[at - 1] in (r"\sum", r"\prod")


def _scripts(tokens: list[str], at: int) -> list[float]:
    """Widths of the sub- and superscript that start here, at script size."""
    found = []
    while at < len(tokens) and tokens[at] in "_^":
        inner, at = _argument(tokens, at + 1)
        found.append(0.75 * inner)
    return found


def _after_scripts(tokens: list[str], at: int) -> int:
    while at < len(tokens) and tokens[at] in "_^":
        _, at = _argument(tokens, at + 1)
    return at


def _argument(tokens: list[str], at: int) -> tuple[float, int]:
    if at < len(tokens) and tokens[at] == "{":
        return _group(tokens, at + 1)
    return (_one(tokens[at]), at + 1) if at < len(tokens) else (0.0, at)


def _one(token: str) -> float:
    if token.startswith("\\"):
        return _COMMANDS.get(token, 0.8)
    if token in "+-=":
        return 1.23
    if token in "()[],;.:|":
        return 0.42
    return _WIDE.get(token, 0.72 if token.isupper() else 0.56)
