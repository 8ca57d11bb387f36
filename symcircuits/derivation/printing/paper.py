"""A derivation as LaTeX for a paper: labelled equations in the width of its text, one sentence on what was checked."""

from __future__ import annotations

import re
from itertools import zip_longest
from math import ceil
from typing import Final

from symcircuits.core.notation import Notation
from symcircuits.core.text import brief, finite
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.conventions import conventions
from symcircuits.derivation.printing.displays import Page, displays
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.printing.proved import proved_sentence
from symcircuits.derivation.printing.widths import latex_width
from symcircuits.derivation.printing.words import checked_sentence, model_sentence, statement, title

__all__ = ["WIDTHS", "check_label", "paper_latex", "text_width"]

# The width of the text, in pt: LaTeX's article at 10 pt, the style of NeurIPS, a column of ICML and of ACL.
WIDTHS: Final = {"article": 345.0, "neurips": 397.48, "two-column": 234.87}
_LEAST, _MOST = 200.0, 2000.0  # pt; a narrower text has no room for one factor beside a left-hand side
_EM = 10.0  # pt, of 10 pt type
_MARGIN = 0.5  # em, as widths are estimated
_NUMBER = 3.0  # em, for the number of an equation
_INLINE = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)+)\$")
_DISPLAY = re.compile(r"(?s)\\begin\{align.*?\\end\{align(?:at)?\}")
_BREAKS = re.compile(r"=|\+|\\otimes|\\cdot ")  # where TeX may break a line within a formula
_UNSEEN = re.compile(r"\\begin\{align(?:at)?\}(?:\{2\})?|\\end\{align(?:at)?\}|\\label\{[^}]*\}|\\notag|^\*|\n")
_LABEL = re.compile(r"[A-Za-z][\w:.-]*")

_HEAD = r"""\documentclass[10pt]{article}
\usepackage[paperwidth=%(paper)spt,paperheight=290mm,textwidth=%(width)spt,textheight=245mm]{geometry}
\usepackage{amsmath,amssymb}
\begin{document}
"""
_NOT_FOR_PAPERS: Final = (
    (r" ?\(own derivation\)|; own derivation(?=[).])| Own derivation\b[^.]*\.", ""),
    (r"\b[Pp]aper, (?=\")", "Elhage et al. 2021, "),
)


def text_width(given: str | float) -> float:
    """The width of a text in pt, by its name or as a number; ValueError on any other name, and on too small a number.

    >>> text_width("neurips"), text_width(300), text_width("240pt")
    (397.48, 300.0, 240.0)
    """
    if isinstance(given, str) and given in WIDTHS:
        return WIDTHS[given]
    number = re.fullmatch(r"(\d+(?:\.\d+)?)(?:pt)?", given) if isinstance(given, str) else None
    if isinstance(given, str) and number is None:
        raise ValueError(f"width must be {', '.join(WIDTHS)}, or a number of pt, not {brief(given)}")
    points = float(number[1]) if number else finite("width", given)
    if not _LEAST <= points <= _MOST:
        raise ValueError(f"width must be between {_LEAST:g} and {_MOST:g} pt, not {points:g}")
    return points


def check_label(label: str) -> None:
    """ValueError on a label that LaTeX would not read as one."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise ValueError(f"label must be a letter followed by letters, digits and : . - _, not {brief(label)}")


def _check_width(formula: str, what: str, points: float, notation: Notation) -> None:
    """ValueError if custom names make a formula wider than the text; other formulas are broken into lines."""
    if not notation.symbols:
        return
    if formula.startswith("\\begin{align"):
        rows = [_UNSEEN.sub("", row).split("&") for row in formula.split("\\\\")]
        columns = zip_longest(*rows, fillvalue="")
        width = sum(max(map(latex_width, column)) for column in columns) + _NUMBER
    else:
        width = max(map(latex_width, _BREAKS.split(formula)))
    if width * _EM > points:
        longest = max(notation.names.items(), key=lambda given: len(given[1]))
        raise ValueError(
            f"{what} is about {ceil(width * _EM - points)} pt wider than a text of {points:g} pt: give {longest[0]} a "
            f"shorter name than {longest[1]!r}, or use a wider text"
        )


def paper_latex(
    derivation: Derivation, width: str | float = "article", label: str = "eq", standalone: bool = False
) -> str:
    """A derivation for a paper: a fragment that needs amsmath and amssymb, or a document of that width.

    Equations have numbers and labels, ``label:3.1`` the first of step 3; none is wider than the text. What each step's
    check said stands in one sentence at the end. ValueError on an invalid width or label.
    """
    points = text_width(width)
    check_label(label)
    page = Page(points / _EM - _MARGIN - _NUMBER, colours=False, label=label)
    notation = derivation.notation

    def said(sentence: str) -> str:
        for what, instead in _NOT_FOR_PAPERS:
            sentence = re.sub(what, instead, sentence)
        found = prose(sentence.strip(), notation)
        for formula in _INLINE.findall(found):
            _check_width(formula, f"the formula ${formula}$", points, notation)
        return found

    heading = rf"\paragraph{{{said(title(derivation).partition(': ')[0])}.}}"
    opening = [statement(derivation), model_sentence(derivation), *conventions(derivation)]
    blocks = [f"{heading} {' '.join(said(sentence) for sentence in opening if sentence)}"]
    for step, display in displays(derivation.steps, notation, page):
        for equations in _DISPLAY.findall(display):
            _check_width(equations, f"an equation of step {step.number}", points, notation)
        blocks.append(f"{said(step.reason)}\n{display}")
    blocks.append(said(f"{checked_sentence(derivation)} {proved_sentence(derivation)}"))
    body = "{\\sloppy\\allowdisplaybreaks\n" + "\n\n".join(blocks) + "\n\n}\n"
    if not standalone:
        return body
    return _HEAD % {"width": f"{points:g}", "paper": f"{points + 100:g}"} + body + "\\end{document}\n"
