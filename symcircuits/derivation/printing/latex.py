"""LaTeX: formulas that fit the page, derivations as fragments or documents, expansions for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape

from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import Notation
from symcircuits.core.text import amount
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.derive import Derivation, Step
from symcircuits.derivation.expressions import is_pathless
from symcircuits.derivation.multiplying import composition_of_term, softmax_invisible
from symcircuits.derivation.nodes import Expr, Family, Sum, SumOver
from symcircuits.derivation.printing.conventions import caption, conventions
from symcircuits.derivation.printing.forms import Shown, shown_claims
from symcircuits.derivation.printing.layout import Piece, broken, joined, pieces
from symcircuits.derivation.printing.prose import html_prose, prose
from symcircuits.derivation.printing.styles import RELATIONS, LatexStyle
from symcircuits.derivation.printing.widths import latex_width
from symcircuits.derivation.printing.words import (
    PATHLESS,
    check_sentence,
    family_title,
    seal,
    statement,
    subject,
    title,
)

__all__ = [
    "book_latex",
    "derivation_document",
    "derivation_html",
    "derivation_latex",
    "expansion_display",
    "expr_latex",
]

WIDTH = 45.0  # em of 10 pt on a text block of 160 mm, less a margin for the estimate
_NARROWEST = 12.0  # room for right-hand sides, below which they stand under the left one
_INDENT = 1.5  # of the further lines of a term
_LINES_UNDER_BRACE = 14
_WIDEST_COUNT = 14.0
_SHOWN_IN_NOTEBOOK = 40
COLOURS = {"none": "black", "V": "green!45!black", "Q": "blue!75!black", "K": "red!75!black", "QK": "violet!90!black"}

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[a4paper,textwidth=160mm,textheight=245mm]{geometry}
\usepackage{amsmath,amssymb,xcolor}
\setlength{\parindent}{0pt}
\emergencystretch=3em
\begin{document}
"""


_ROW = LatexStyle()


def expr_latex(expr: Expr, style: LatexStyle = _ROW) -> str:
    """An expression on one line (math mode, no delimiters)."""
    return joined(pieces(expr, style))


# --------------------------------------------------------------------------------------------------- claims
def _lines(parts: list[Piece], width: float) -> list[str]:
    """One term over as many lines as it needs; a product that goes on starts with a dot."""
    found = broken(parts, width, latex_width)
    if any(latex_width(joined(line)) > width - _INDENT for line in found[1:]):
        found = broken(parts, width - _INDENT, latex_width)
    out = []
    for i, line in enumerate(found):
        goes_on = line[0].joint == LatexStyle.matrix_joint and not line[0].acted_on
        mark = "" if not i else r"\qquad\cdot\, " if goes_on else r"\qquad{}"
        out.append(mark + joined(line))
    return out


def _coloured(content: str, composition: str) -> str:
    colour = COLOURS.get(composition, "black")
    return content if colour == "black" else rf"\textcolor{{{colour}}}{{{content}}}"


def _row_lines(expr: Expr, width: float, style: LatexStyle, complete: bool, marked: bool) -> list[str]:
    """The rows of a right-hand side: on one line if it fits, else a term a line, with its composition type."""
    if isinstance(expr, Sum) and all(isinstance(t, Family) or is_pathless(t) for t in expr.terms):
        return _family_rows(expr, width, style, marked)
    parts = pieces(expr, style)
    if not isinstance(expr, Sum) or (latex_width(joined(parts)) <= width and not complete):
        return _lines(parts, width)
    rows: list[str] = []
    beside = 8.2 if any(map(is_pathless, expr.terms)) else 4.2
    for i, term in enumerate(expr.terms):
        label = (PATHLESS if is_pathless(term) else composition_of_term(term)) if complete else ""
        lines = _lines(pieces(term, style), width - (beside if label else 1.2))
        lines[0] = ("{}+ " if i else "") + lines[0]
        lines = [_coloured(line, label) for line in lines]
        if label:
            note = _coloured(rf"\text{{{label}}}", label)
            lines[0] += rf" &\quad&{note}"
        rows += lines
    return rows


def _family_rows(expr: Sum, width: float, style: LatexStyle, marked: bool) -> list[str]:
    rows: list[str] = []
    for family in expr.terms:
        if isinstance(family, Family):
            rows += _one_family(family, width, style, marked, first=not rows)
        else:
            rows.append(rf"{{}}+ {expr_latex(family, style)} \quad\text{{{PATHLESS}}}")
    return rows


def _one_family(family: Family, width: float, style: LatexStyle, marked: bool, first: bool) -> list[str]:
    """A family's terms under braces, so many lines under each that a page can be broken between them."""
    members = family.body.terms if isinstance(family.body, Sum) else (family.body,)
    name, count = _family_label(family, len(members) > 1 or isinstance(members[0], SumOver))
    one_row = latex_width(name + count) <= 0.4 * width
    beside = (latex_width(name + count) if one_row else max(latex_width(name), latex_width(count))) + 2
    label = name + count if one_row else _two_rows(name, count)
    blocks: list[list[str]] = [[]]
    for i, member in enumerate(members):
        part = _member_lines(member, width - beside - 1.2, style, len(members) > 1, marked)
        part[0] = ("" if first and not i else "{}+ ") + part[0]
        if blocks[-1] and _height(blocks[-1] + part) > _LINES_UNDER_BRACE:
            blocks.append([])
        blocks[-1] += part
    rows = []
    for block in blocks:
        body = " \\\\".join("\n    &" + line for line in block)
        tail = label if block is blocks[0] else _two_rows(name, r"\text{continued}")
        braced = rf"\left.\begin{{aligned}}{body}" + "\n  " + rf"\end{{aligned}}\right\}}\;{tail}"
        rows.append(_coloured(braced, family.composition))
    return rows


def _height(lines: list[str]) -> int:
    """About how many lines high these are; a sum sign is as high as two."""
    return sum(2 if r"\sum" in line else 1 for line in lines)


def _family_label(family: Family, many: bool) -> tuple[str, str]:
    """The name of a family and its number of terms; a long formula is left to the counting step."""
    bilinear = family.order is None
    count = expr_latex(family.count)
    if latex_width(count) > _WIDEST_COUNT:
        count = _ROW.count_of(family.order, family.composition if bilinear else None)
    plural = "" if count == "1" else "s"
    return rf"\text{{{family_title(family, bilinear, many)}: }}", rf"{count}\text{{ term{plural}}}"


def _two_rows(first: str, second: str) -> str:
    return rf"\begin{{array}}{{@{{}}l@{{}}}}{first}\\{second}\end{{array}}"


def _member_lines(member: Expr, width: float, style: LatexStyle, noted: bool, marked: bool) -> list[str]:
    """One term of a family, with its own number of terms behind it where it stands for several, and its mark."""
    lines = _lines(pieces(member, style), width)
    notes = [f"[{expr_latex(member.count)}]"] if isinstance(member, Family) and noted else []
    notes += [r"\ast"] if marked and softmax_invisible(member) else []
    own = r"\quad" + r"\;".join(notes)
    if notes and latex_width(lines[-1] + own) <= width:
        lines[-1] += own
    elif notes:
        lines.append(rf"\qquad{own}")
    return lines


def _claim_rows(claim: Shown, complete: bool, marked: bool) -> list[str]:
    """The rows of an aligned display."""
    style, (lhs, *sides) = LatexStyle(claim.notation), claim.sides
    left = expr_latex(lhs, style)
    used = latex_width(left) + 1.3
    sign, rows = RELATIONS[claim.relation], []
    if used > WIDTH - _NARROWEST:
        return _claim_below(claim, style, complete, marked)
    if len(sides) > 1 and sum(latex_width(expr_latex(s, style)) + 2 for s in sides) + used <= WIDTH:
        return [f"{left} &{sign} " + f" {sign} ".join(expr_latex(s, style) for s in sides)]
    for i, side in enumerate(sides):
        lines = _row_lines(side, WIDTH - used, style, complete, marked)
        if lines[0].count("\n") > 2:  # several rows under one brace: the left-hand side stands above them
            lines.insert(0, "")
        rows.append((left if not i else "") + f" &{sign} " + lines[0])
        rows += [r"&\quad " + line for line in lines[1:]]
    return rows


def _claim_below(claim: Shown, style: LatexStyle, complete: bool, marked: bool) -> list[str]:
    """The rows of a claim whose left-hand side leaves no room beside it."""
    first, *further = _lines(pieces(claim.sides[0], style), WIDTH - 1)
    rows = ["&" + first, *("&\\quad " + line for line in further)]
    for side in claim.sides[1:]:
        lines = _row_lines(side, WIDTH - 3, style, complete, marked)
        rows.append(rf"&\quad {RELATIONS[claim.relation]} {lines[0]}")
        rows += [r"&\quad\quad " + line for line in lines[1:]]
    return rows


def _display(step: Step, notation: Notation, known: Collection[Expr]) -> str:
    complete, marked = "terms" in step.check.also, "softmax" in step.check.also
    claims = [_claim_rows(claim, complete, marked) for claim in shown_claims(step, notation, known)]
    if any(rows[0].startswith("&") for rows in claims):  # without a left column, which it would not share
        return "\n".join(map(_aligned, claims))
    return _aligned([row for rows in claims for row in rows])


def _aligned(rows: list[str]) -> str:
    # No page is broken after the first row or before the last.
    body = "".join(row + (" \\\\*" if i in (0, len(rows) - 2) else " \\\\") + "\n  " for i, row in enumerate(rows[:-1]))
    body += rows[-1]
    if any(r"&\quad&" in row for row in rows):
        return "\\begin{alignat*}{2}\n  " + body + "\n\\end{alignat*}"
    return "\\begin{align*}\n  " + body + "\n\\end{align*}"


# ------------------------------------------------------------------------------------------------ derivations
def derivation_latex(derivation: Derivation, standalone: bool = False) -> str:
    """A derivation as LaTeX: a fragment (amsmath, amssymb, xcolor), or a document for pdflatex."""
    if standalone:
        return derivation_document(derivation)
    return _body(derivation, rf"\textbf{{{prose(title(derivation))}}}")


def derivation_document(derivation: Derivation) -> str:
    """A derivation as a document for pdflatex."""
    body = _body(derivation, rf"{{\Large\bfseries {prose(title(derivation))}\par}}")
    return _PREAMBLE + body + "\\end{document}\n"


def _body(derivation: Derivation, heading: str) -> str:
    notation = derivation.notation

    def said(sentence: str) -> str:
        return prose(sentence, notation)

    blocks = [heading, said(subject(derivation)),
              r"\textit{Conventions.} " + " ".join(map(said, conventions(derivation)))]  # fmt: skip
    for step, display in _displays(derivation):
        head = rf"\textbf{{Step {step.number} ({step.kind}).}} {said(step.reason)}"
        check = rf"{{\footnotesize {said(check_sentence(step.check))}\par}}"
        blocks.append(f"{head}\n{display}\n{check}")
    blocks.append(rf"\textbf{{Seal.}} {said(seal(derivation))}")
    sloppy = r"\sloppy" if notation.symbols else ""  # names may be long, and are not broken
    return f"\\begingroup\\allowdisplaybreaks{sloppy}\n" + "\n\n\\medskip\\noindent\n".join(blocks) + "\n\n\\endgroup\n"


def book_latex(name: str, chapters: Mapping[str, Mapping[str, Derivation]]) -> str:
    """Derivations as one document with a table of contents: chapter -> heading -> derivation."""
    parts = [_PREAMBLE, rf"{{\LARGE\bfseries {prose(name)}\par}}", "\n\\tableofcontents\n"]
    for chapter, derivations in chapters.items():
        parts.append(f"\n\\clearpage\n\\section{{{prose(chapter)}}}\n")
        for heading, derivation in derivations.items():
            said = "" if derivation.result else f"\n\\noindent {prose(statement(derivation), derivation.notation)}"
            parts.append(_body(derivation, rf"\subsection{{{prose(heading)}}}" + said))
    return "\n".join(parts) + "\\end{document}\n"


def derivation_html(derivation: Derivation) -> str:
    """A derivation for a notebook, whose MathJax sets the formulas: what a document has, each display in a box.

    A formula that is wider than the cell scrolls in its box.
    """
    notation = derivation.notation
    blocks = [
        f"<p><strong>{escape(title(derivation))}</strong></p>",
        f"<p>{html_prose(subject(derivation), notation)}</p>",
        f"<p>{' '.join(html_prose(said, notation) for said in conventions(derivation))}</p>",
    ]
    for step, display in _displays(derivation):
        blocks += [
            f"<p><strong>Step {step.number} ({step.kind}).</strong> {html_prose(step.reason, notation)}</p>",
            f'<div style="overflow-x: auto; max-width: 100%">{escape(display, quote=False)}</div>',
            f"<p><small>{html_prose(check_sentence(step.check), notation)}</small></p>",
        ]
    return f"<div>{''.join(blocks)}<p>{html_prose(seal(derivation), notation)}</p></div>"


def _displays(derivation: Derivation) -> Iterator[tuple[Step, str]]:
    """Each step with its formulas; what an earlier step has as a right-hand side is not printed again."""
    known: set[Expr] = set()
    for step in derivation.steps:
        yield step, _display(step, derivation.notation, known)
        known |= {side for claim in step.claims for side in claim.sides[1:]}


def _caption(notation: Notation) -> str:
    """A last row of a notebook's display: the convention, and what is held fixed."""
    return rf"&\text{{{prose(caption(notation), notation)}}}"


# ------------------------------------------------------------------------------------------------- expansions
def expansion_display(expansion: Expansion) -> str:
    """An expansion for a notebook (MathJax): its terms with their composition types; beyond 40 the first, and dots."""
    n, target = expansion.count, _ROW.target(expansion.target)
    if not n:
        return rf"$\displaystyle {target}:\ \text{{no terms}}$"
    shown = expansion.head(n if n <= _SHOWN_IN_NOTEBOOK else 10)
    partial = expansion.clauses or n > len(shown)
    start = rf"\text{{from }}{target}:\quad &" if expansion.clauses else f"{target} &= "
    alibi = target[:1] == "S" and expansion.architecture.positions == "alibi" and not partial
    rows = [
        (start if not i else r"&\quad + ") + rf"{term.latex()} &&\text{{{term.composition}}}"
        for i, term in enumerate(shown)
    ]
    if partial:
        rest = r"&\quad + \cdots" if n > len(shown) else "&"
        rows.append(rf"{rest} &&\text{{{amount(n, 'term')}}}")
    if alibi:
        rows.append(rf"&\quad + {expr_latex(AlibiTerm(str(expansion.readout.head)))} &&\text{{{PATHLESS}}}")
    rows.append(_caption(expansion.notation))
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"
