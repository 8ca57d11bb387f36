"""What a result is shown as: titled tables, once for every format; as plain text that fits a width; numbers in it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

__all__ = [
    "NARROWEST",
    "UNBROKEN",
    "Titled",
    "measured",
    "nats",
    "number",
    "paragraph",
    "plain_text",
    "signed",
    "table",
]

UNBROKEN = "\N{NO-BREAK SPACE}"  # it is in no text that is shown: what does not print is escaped
NARROWEST = 40  # room for the last column, below which it stands under its row


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


def signed(value: float) -> str:
    """A change: as :func:`number`, with its sign.

    >>> signed(1234.5), signed(-3.2e-15), signed(0)
    ('+1234', '-3.2e-15', '0')
    """
    return ("+" if value > 0 else "") + number(value)


def nats(value: float, sign: str = "") -> str:
    """A loss for a sentence: three digits after the point while it has few before it; ``sign="+"``: with its sign.

    >>> nats(0.98765), nats(-1e-9, "+"), nats(3.2e20)
    ('0.988', '+0.000', '3.2e+20')
    """
    shown = f"{value:{sign}.3f}" if abs(value) < 1e5 else f"{value:{sign}.3g}"
    return shown.replace("-0.000", f"{sign}0.000")


def measured(value: float, error: float) -> str:
    """A number and its standard error, both to the second digit of the error after the point, or whole.

    >>> measured(1085.08, 141.2), measured(0.0331456, 0.00012), measured(3e121, 1.5e120)
    ('1,085 +- 141', '0.03315 +- 0.00012', '3e+121 +- 1.5e+120')
    """
    if not 0 < error < float("inf") or not max(abs(value), error) < 1e15 or error < 1e-9:
        return f"{number(value)} +- {number(error, 2)}"
    digits = max(1 - math.floor(math.log10(error)), 0)
    return f"{value:,.{digits}f} +- {error:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Titled:
    """A part of a result: a title and points, a table, and notes below it; any of them may be missing.

    ``right``: the columns of numbers. A cell may be markup already, for a page. A point keeps the blanks before it.
    """

    title: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    right: Sequence[int] = ()
    _: KW_ONLY
    points: Sequence[str] = ()
    notes: Sequence[str] = ()

    def text(self, width: int) -> str:
        """As plain text; nothing, where nothing is in it.

        >>> print(Titled("Sizes", ["", "terms"], [["all", "16"]], [1], points=["  - of one prompt"]).text(60))
        Sizes
          - of one prompt
             terms
        all     16
        """
        lines = [paragraph(line, width) for line in (self.title, *self.points) if line]
        lines += [table(self.rows, self.header, width, self.right)] if self.header else []
        return "\n".join([*lines, *(paragraph(note, width) for note in self.notes)])


def plain_text(parts: Iterable[Titled], width: int) -> str:
    """The parts one below the other, an empty line between two."""
    return "\n\n".join(text for part in parts if (text := part.text(width)))


def paragraph(text: str, width: int) -> str:
    """Wrapped text, as far in as its first line; a blank that must not break a line is given as ``UNBROKEN``."""
    further = " " * (len(text) - len(text.lstrip(" ")) + 2)
    return textwrap.fill(text, width, subsequent_indent=further, break_on_hyphens=False).replace(UNBROKEN, " ")


def table(rows: Sequence[Sequence[str]], header: Sequence[str], width: int = 100, right: Sequence[int] = ()) -> str:
    """Rows under a header, columns aligned (those in ``right`` to the right), within a width.

    Where there is too little room the last column stands on lines of its own below its row, and then the widest
    columns of text are wrapped between words; columns of numbers never are. Where even that does not fit, each row is
    its texts, and below them its numbers, each with the head of its column.

    >>> print(table([["a", "10"], ["bcd", "2"]], ["x", "n"], right=[1]))
    x     n
    a    10
    bcd   2
    """
    cells = [list(header), *(list(r) for r in rows)]
    sizes = [max(len(r[i]) for r in cells) for i in range(len(header))]
    last = len(header) - 1
    below = last not in right and width - _taken(sizes[:-1]) < min(sizes[-1], NARROWEST)
    columns = range(last if below else last + 1)
    least = {i: max(len(word) for r in cells for word in ["", *r[i].split(" ")]) for i in columns if i not in right}
    sizes = _shrink(sizes[: len(columns)], least, width)
    if _taken(sizes) - 2 > width:
        return _one_by_one(cells, columns, right, width)
    lines: list[str] = []
    for n, row in enumerate(cells):
        wrapped = [[row[i]] if i in right else _wrap(row[i], sizes[i]) or [""] for i in columns]
        for k in range(max(len(w) for w in wrapped)):
            parts = [w[k] if k < len(w) else "" for w in wrapped]
            aligned = [p.rjust(s) if i in right else p.ljust(s) for i, p, s in zip(columns, parts, sizes, strict=True)]
            lines.append("  ".join(aligned).rstrip())
        if below and n:
            lines += [f"    {line}" for line in _wrap(row[-1], width - 4)]
    return "\n".join(lines).replace(UNBROKEN, " ")


def _one_by_one(cells: Sequence[Sequence[str]], columns: range, right: Sequence[int], width: int) -> str:
    """For too little room: of each row its texts, below them its numbers, each with the head of its column."""
    header, *rows = cells
    lines: list[str] = []
    for row in rows:
        numbers = [f"{header[i]} {row[i]}".strip().replace(" ", UNBROKEN) for i in columns if i in right and row[i]]
        lines += _wrap("  ".join(row[i] for i in columns if i not in right and row[i]), width)
        for more in ("  ".join(numbers), *row[len(columns) :]):
            lines += [f"    {line}" for line in _wrap(more, width - 4)]
    return "\n".join(lines).replace(UNBROKEN, " ")


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False)


def _taken(sizes: Sequence[int]) -> int:
    """The room that columns take, with the two blanks after each."""
    return sum(sizes) + 2 * len(sizes)


def _shrink(sizes: Sequence[int], least: Mapping[int, int], width: int) -> list[int]:
    """The sizes of the columns, the widest of text first made smaller until they fit, down to its longest word."""
    found = list(sizes)
    while _taken(found) - 2 > width and (wide := [i for i, size in least.items() if found[i] > size]):
        found[max(wide, key=lambda i: found[i])] -= 1
    return found
