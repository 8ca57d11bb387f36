"""HTML that escapes by itself (every text of a page passes through :func:`el`), titled tables, sections, filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from symcircuits.core.expansion import Term
from symcircuits.core.words import Word
from symcircuits.derivation.printing.mathml import word_mathml
from symcircuits.explanation.labels import printable
from symcircuits.render.tables import Titled

__all__ = ["FAULTS", "Markup", "box", "el", "filters", "formula", "join", "marks", "optional", "section", "table"]

_LONGEST = 2000  # characters of one text: a name or a note may be of any length
FAULTS = (ValueError, ArithmeticError, MemoryError, OSError, RuntimeError)  # for which a part of a page is left out
_VOID = {"meta", "input", "br", "link"}

Value = str | int | float | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def _text(child: str) -> str:
    return child if isinstance(child, Markup) else escape(printable(child, _LONGEST), quote=True)


def el(name: str, /, *children: str, **attributes: Value) -> Markup:
    """An element. Children that are not :class:`Markup` are text, and escaped; so is every attribute.

    An underscore at the end of an attribute's name is dropped, others become hyphens; False and None leave it out, True
    writes the name alone.

    >>> el("p", "a < b", el("b", "c"), class_="x", aria_label='"')
    '<p class="x" aria-label="&quot;">a &lt; b<b>c</b></p>'
    """
    said = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            bare = key.rstrip("_").replace("_", "-")
            said += f" {bare}" if value is True else f' {bare}="{escape(_safe(str(value)), quote=True)}"'
    inside = "".join(map(_text, children))
    return Markup(f"<{name}{said}>" + ("" if name in _VOID else f"{inside}</{name}>"))


def _safe(value: str) -> str:
    """An attribute without what cannot be written in a file: single surrogates."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Elements and texts in a row."""
    return Markup(_text(between).join(map(_text, parts)))


def formula(word: Word) -> Markup:
    """The formula of a word, on a line of its own."""
    return el("div", Markup(word_mathml(word)), class_="formula")


def box(inside: str, label: str) -> Markup:
    """A box that scrolls sideways by itself, reachable by keyboard."""
    return el("div", inside, class_="box", role="region", aria_label=label, tabindex=0)


def table(shown: Titled, head: int | None = 0, attributes: Sequence[Mapping[str, Value]] = ()) -> Markup:
    """A titled table in a box; the column ``head`` names the rows, each of which may have attributes."""
    numbers = set(shown.right)
    classes = ["n" if i in numbers else None for i in range(len(shown.header))]
    cells = [el("th", h, scope="col", class_=c) for h, c in zip(shown.header, classes, strict=True)]
    rows = []
    for row, more in zip(shown.rows, attributes or [{}] * len(shown.rows), strict=True):
        made = [
            el("th", cell, scope="row") if i == head else el("td", cell, class_=c)
            for i, (cell, c) in enumerate(zip(row, classes, strict=True))
        ]
        rows.append(el("tr", *made, **more))
    inside = (el("caption", el("span", shown.title)), el("thead", el("tr", *cells)), el("tbody", *rows))
    return box(el("table", *inside), shown.title)


def section(name: str, title: str, *inside: str) -> Markup:
    """A section of the page with a heading, which the contents list."""
    return el("section", el("h2", title, id=name), *inside)


def marks(term: Term, *beside: Term) -> dict[str, Any]:
    """What the filters look at, as attributes of a row; ``beside``: terms of other sources that are in the same row."""
    return {
        "data_heads": " ".join(dict.fromkeys(str(h) for side in term.heads for h in side)),
        "data_order": str(term.order), "data_composition": term.composition,
        "data_source": " ".join(dict.fromkeys(s for t in (term, *beside) for s in t.sources)),
    }  # fmt: skip


def filters(name: str, terms: Sequence[Term], total: str | None = None) -> Markup:
    """The filters of a table of terms; they appear where the page can run its script."""
    choices = {
        "heads": [str(h) for h in sorted({h for t in terms for side in t.heads for h in side})],
        "order": [str(k) for k in sorted({t.order for t in terms})],
        "composition": [c for c in ("none", "V", "Q", "K", "QK") if any(t.composition == c for t in terms)],
        "source": list(dict.fromkeys(s for t in terms for s in t.sources)),
    }
    inside = []
    for key, values in choices.items():
        options = [el("option", "all", value=""), *(el("option", v, value=v) for v in values)]
        inside.append(el("label", "head" if key == "heads" else key, el("select", *options, name=key)))
    end = (el("button", "show all", type="button"), el("output", role="status"))
    return el(
        "fieldset", el("legend", "Show only"), *inside, *end, data_filter=name, data_sum=total, hidden=True,
        class_="controls",
    )  # fmt: skip


def optional(what: str, make: Callable[[], Markup], left_out: list[str]) -> Markup:
    """A part of a page; if it cannot be made, for example for lack of memory, a line says so and the rest is written.

    >>> def part() -> Markup:
    ...     raise MemoryError("9 GB are needed")
    >>> optional("a figure", part, left := [])
    '<p class="fails">a figure could not be made: 9 GB are needed</p>'
    >>> left
    ['a figure: 9 GB are needed']
    """
    try:
        return make()
    except FAULTS as fault:
        why = str(fault).partition("\n")[0] or type(fault).__name__
        left_out.append(f"{what}: {why}")
        return el("p", f"{what} could not be made: {why}", class_="fails")
