"""A result as text or as HTML for a notebook, both from the titled tables that it is made into once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symcircuits.core.seam import HIGHER, higher
from symcircuits.render.markup import Markup, el, table
from symcircuits.render.tables import UNBROKEN, Titled, plain_text

if TYPE_CHECKING:
    from symcircuits.core.shown import Shown

__all__ = ["html_of", "parts_of", "text_of"]

# Notebooks have colours of their own, light or dark: none is set here. Numbers stand below each other.
_STYLE = """
.symcircuits table { border-collapse: collapse; margin: .2em 0 .6em; }
.symcircuits .box { overflow-x: auto; max-width: 100%; }
.symcircuits caption { display: none; }
.symcircuits th, .symcircuits td { text-align: left; vertical-align: top; padding: .15em .7em .15em 0; }
.symcircuits tbody th { font-weight: 400; }
.symcircuits thead th { font-weight: 600; border-bottom: 1px solid; }
.symcircuits .n { text-align: right; font-variant-numeric: tabular-nums; }
.symcircuits p, .symcircuits ul { margin: .2em 0; max-width: 60em; }
"""


def parts_of(result: Shown, **chosen: object) -> Sequence[Titled]:
    """The titled tables of a result: those of its class, or of the first class above it that has some."""
    name = next(name for cls in type(result).__mro__ if (name := f"{cls.__name__}.parts") in HIGHER)
    return higher(list, name)(result, **chosen)


def text_of(result: Shown, width: int = 100, **chosen: object) -> str:
    """The tables one below the other."""
    return plain_text(parts_of(result, **chosen), width)


def html_of(result: Shown) -> str:
    """The tables for a notebook, with a style that keeps the notebook's own colours."""
    return el("div", Markup(f"<style>{_STYLE}</style>"), *map(_part, parts_of(result)), class_="symcircuits")


def _part(part: Titled) -> Markup:
    inside = []
    if part.title:
        inside.append(el("p", el("strong", _blanks(part.title))))
    if part.points:
        inside.append(el("ul", *(el("li", _blanks(p.strip().removeprefix("- "))) for p in part.points)))
    if part.header:
        inside.append(table(part, None))
    inside += [el("p", _blanks(note)) for note in part.notes]
    return el("div", *inside)


def _blanks(text: str) -> str:
    return text.replace(UNBROKEN, " ")
