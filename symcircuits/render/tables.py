"""Plain aligned tables that fit a width, and numbers in them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

__all__ = ["UNBROKEN", "measured", "number", "paragraph", "table"]

UNBROKEN = "\N{NO-BREAK SPACE}"  # it is in no text that is shown: what does not print is escaped
_NARROWEST = 40  # room for the last column, below which it stands under its row
_SHORTEST = 6


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table: short, never misleading: ``-`` for None, exponents where they are needed.

    >>> number(None), number(0), number(1234.5), number(3.2e-15)
    ('-', '0', '1234', '3.2e-15')
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:.{digits}g}" if 1e-3 <= abs(value) < 10**digits else f"{value:.2g}"


def measured(value: float, error: float) -> str:
    """A number and its standard error, both to the second digit of the error after the point, or whole.

    >>> measured(1085.08, 141.2), measured(0.0331456, 0.00012), measured(3e121, 1.5e120)
    ('1,085 +- 141', '0.03315 +- 0.00012', '3e+121 +- 1.5e+120')
    """
    if not 0 < error < float("inf") or not max(abs(value), error) < 1e15 or error < 1e-9:
        return f"{number(value)} +- {number(error, 2)}"
    digits = max(1 - math.floor(math.log10(error)), 0)
    return f"{value:,.{digits}f} +- {error:,.{digits}f}"


def paragraph(text: str, width: int, indent: str = "") -> str:
    """Wrapped text; a blank that must not break a line is given as ``UNBROKEN``."""
    filled = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
    return filled.replace(UNBROKEN, " ")


def table(rows: Sequence[Sequence[str]], header: Sequence[str], width: int = 100, right: Sequence[int] = ()) -> str:
    """Rows under a header, columns aligned (those in ``right`` to the right), within a width.

    Where there is too little room the last column stands on lines of its own below its row, and then the widest
    columns of text are wrapped; columns of numbers never are.

    >>> print(table([["a", "10"], ["bcd", "2"]], ["x", "n"], right=[1]))
    x     n
    a    10
    bcd   2
    """
    cells = [list(header), *(list(r) for r in rows)]
    sizes = [max(len(r[i]) for r in cells) for i in range(len(header))]
    last = len(header) - 1
    below = last not in right and width - _taken(sizes[:-1]) < min(sizes[-1], _NARROWEST)
    columns = range(last if below else last + 1)
    sizes = _shrink(sizes[: len(columns)], [i for i in columns if i not in right], width)
    lines: list[str] = []
    for n, row in enumerate(cells):
        wrapped = [[row[i]] if i in right else _wrap(row[i], sizes[i]) or [""] for i in columns]
        for k in range(max(len(w) for w in wrapped)):
            parts = [w[k] if k < len(w) else "" for w in wrapped]
            aligned = [p.rjust(s) if i in right else p.ljust(s) for i, p, s in zip(columns, parts, sizes, strict=True)]
            lines.append("  ".join(aligned).rstrip())
        if below and n:
            lines += [f"    {line}" for line in _wrap(row[-1], width - 4)]
    return "\n".join(lines)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False)


def _taken(sizes: Sequence[int]) -> int:
    """The room that columns take, with the two blanks after each."""
    return sum(sizes) + 2 * len(sizes)


def _shrink(sizes: list[int], text: Sequence[int], width: int) -> list[int]:
    """The sizes of the columns, those of text made smaller, the widest first, until they fit."""
    sizes = list(sizes)
    while text and _taken(sizes) - 2 > width:
        widest = max(text, key=lambda i: sizes[i])
        if sizes[widest] <= _SHORTEST:
            break
        sizes[widest] -= 1
    return sizes
