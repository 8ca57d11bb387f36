"""Results in a terminal with rich (extra ``terminal``): bold titles, ruled tables, colour for what passed or failed.

The same titled tables as in plain text. rich knows whether the terminal takes colour (``NO_COLOR``, ``TERM``), and how
wide a character is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from symcircuits.render.tables import NARROWEST, Titled, paragraph, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["print_parts"]

_STYLES: Final = {
    "pass": "green", "proved": "green", "FAIL": "bold red", "FAILED": "bold red", "not run": "yellow",
}  # fmt: skip

_GAP: Final = 3  # what rich puts between two columns


def print_parts(parts: Iterable[Titled], console: Console) -> None:
    """Print the parts one below the other, an empty line between two; a table that is too wide is plain text."""
    width = console.width
    for n, part in enumerate(p for p in parts if p.title or p.points or p.header or p.notes):
        if n:
            console.print()
        if part.title:
            _say(console, paragraph(part.title, width), _title_style(part))
        for point in part.points:
            _say(console, paragraph(point, width))
        if part.header:
            found = _table(part, width)
            if found is None:
                _say(console, table(part.rows, part.header, width, part.right))
            else:
                console.print(found)
        for note in part.notes:
            _say(console, paragraph(note, width))


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _title_style(part: Titled) -> str:
    """Titles are bold, and a last line that says what checks came to is in its colour."""
    if part.title.startswith("all checks passed"):
        return "bold green"
    return "bold red" if part.title.partition(" (")[0].endswith("failed") else "bold"


def _table(part: Titled, width: int) -> Table | None:
    """The table; None where a column would be narrower than it can be read at."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    least = [_least(part, i) for i in range(len(part.header))]
    if sum(least) + _GAP * (len(least) - 1) > width:
        return None
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for i, head in enumerate(part.header):
        right = i in part.right
        found.add_column(Text(head), justify="right" if right else "left", no_wrap=right, min_width=least[i])
    for row in part.rows:
        found.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return found


def _least(part: Titled, i: int) -> int:
    """The width that a column needs: of numbers all of it, of text its longest word, of the last some words."""
    cells = [row[i] for row in (part.header, *part.rows)]
    longest = max(map(len, cells))
    if i in part.right:
        return longest
    word = max(len(word) for cell in cells for word in cell.split(" "))
    return max(word, min(longest, NARROWEST)) if i == len(part.header) - 1 else word
