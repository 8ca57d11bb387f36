"""Formulas of a derivation as displays of LaTeX that fit a page: broken into lines, typed, coloured, numbered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain

from symcircuits.core.notation import Notation
from symcircuits.derivation.claims import Claim, Step
from symcircuits.derivation.expressions import is_pathless
from symcircuits.derivation.multiplying import composition_of_term, softmax_invisible
from symcircuits.derivation.nodes import Expr, Family, Sum, SumOver
from symcircuits.derivation.printing.forms import Shown, shown_claim, shown_claims
from symcircuits.derivation.printing.layout import Piece, broken, joined, pieces
from symcircuits.derivation.printing.styles import RELATIONS, LatexStyle
from symcircuits.derivation.printing.widths import latex_width
from symcircuits.derivation.printing.words import PATHLESS, family_title

__all__ = ["Page", "claim_latex", "displays", "expr_latex", "step_display", "step_latex"]

WIDTH = 45.0  # em of 10 pt on a text block of 160 mm, less a margin for the estimate
_NARROWEST = 12.0  # room for right-hand sides, below which they stand under the left one
_INDENT = 1.5  # of the further lines of a term
_LINES_UNDER_BRACE = 14
_NARROW = 32.0  # a page that is narrower has no room for names beside braces
_WIDEST_COUNT = 14.0
COLOURS = {"none": "black", "V": "green!45!black", "Q": "blue!75!black", "K": "red!75!black", "QK": "violet!90!black"}


@dataclass(frozen=True, slots=True)
class Page:
    """What displays are set on: their width (em of 10 pt), whether types have colours, and how equations are labelled.

    Equations have numbers where ``label`` is not empty, the first of step 3 the label ``label:3.1``. On a narrow page
    the name of a family stands above its terms, and not beside a brace.
    """

    width: float = WIDTH
    colours: bool = True
    label: str = ""

    @property
    def narrow(self) -> bool:
        """Whether a brace and a name beside the terms would leave them too little room."""
        return self.width < _NARROW


_PAGE = Page()
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


def _coloured(content: str, composition: str, page: Page) -> str:
    colour = COLOURS.get(composition, "black") if page.colours else "black"
    return content if colour == "black" else rf"\textcolor{{{colour}}}{{{content}}}"


def _row_lines(expr: Expr, width: float, style: LatexStyle, complete: bool, marked: bool, page: Page) -> list[str]:
    """The rows of a right-hand side: on one line if it fits, else a term a line, with its composition type."""
    if isinstance(expr, Sum) and all(isinstance(t, Family) or is_pathless(t) for t in expr.terms):
        return _family_rows(expr, width, style, marked, page)
    parts = pieces(expr, style)
    if not isinstance(expr, Sum) or (latex_width(joined(parts)) <= width and not complete):
        return _lines(parts, width)
    rows: list[str] = []
    beside = 8.2 if any(map(is_pathless, expr.terms)) else 4.2
    for i, term in enumerate(expr.terms):
        label = (PATHLESS if is_pathless(term) else composition_of_term(term)) if complete else ""
        lines = _lines(pieces(term, style), width - (beside if label else 1.2))
        lines[0] = ("{}+ " if i else "") + lines[0]
        lines = [_coloured(line, label, page) for line in lines]
        if label:
            note = _coloured(rf"\text{{{label}}}", label, page)
            lines[0] += rf" &\quad&{note}"
        rows += lines
    return rows


def _family_rows(expr: Sum, width: float, style: LatexStyle, marked: bool, page: Page) -> list[str]:
    rows: list[str] = []
    for family in expr.terms:
        if isinstance(family, Family):
            rows += _one_family(family, width, style, marked, page, first=not rows)
        else:
            rows.append(rf"{{}}+ {expr_latex(family, style)} \quad\text{{{PATHLESS}}}")
    return rows


def _one_family(family: Family, width: float, style: LatexStyle, marked: bool, page: Page, first: bool) -> list[str]:
    """A family's terms under braces, so many lines under each that a page can be broken between them."""
    members = family.body.terms if isinstance(family.body, Sum) else (family.body,)
    name, count = _family_label(family, style, len(members) > 1 or isinstance(members[0], SumOver))
    one_row = latex_width(name + count) <= 0.4 * width
    beside = (latex_width(name + count) if one_row else max(latex_width(name), latex_width(count))) + 2
    beside = 0 if page.narrow else beside
    label = name + count if one_row else _two_rows(name, count)
    blocks: list[list[str]] = [[]]
    for i, member in enumerate(members):
        part = _member_lines(member, width - beside - 1.2, style, len(members) > 1, marked)
        part[0] = ("" if first and not i else "{}+ ") + part[0]
        if blocks[-1] and _height(blocks[-1] + part) > _LINES_UNDER_BRACE:
            blocks.append([])
        blocks[-1] += part
    if page.narrow:
        heading = family_title(family, family.order is None, len(members) > 1)
        return [rf"\text{{{heading}:}}", *chain.from_iterable(blocks)]
    rows = []
    for block in blocks:
        body = " \\\\".join("\n    &" + line for line in block)
        tail = label if block is blocks[0] else _two_rows(name, r"\text{continued}")
        braced = rf"\left.\begin{{aligned}}{body}" + "\n  " + rf"\end{{aligned}}\right\}}\;{tail}"
        rows.append(_coloured(braced, family.composition, page))
    return rows


def _height(lines: list[str]) -> int:
    """About how many lines high these are; a sum sign is as high as two."""
    return sum(2 if r"\sum" in line else 1 for line in lines)


def _family_label(family: Family, style: LatexStyle, many: bool) -> tuple[str, str]:
    """The name of a family and its number of terms; a long formula is left to the counting step."""
    bilinear = family.order is None
    count = expr_latex(family.count, style)
    if latex_width(count) > _WIDEST_COUNT:
        count = style.count_of(family.order, family.composition if bilinear else None)
    plural = "" if count == "1" else "s"
    return rf"\text{{{family_title(family, bilinear, many)}: }}", rf"{count}\text{{ term{plural}}}"


def _two_rows(first: str, second: str) -> str:
    return rf"\begin{{array}}{{@{{}}l@{{}}}}{first}\\{second}\end{{array}}"


def _member_lines(member: Expr, width: float, style: LatexStyle, noted: bool, marked: bool) -> list[str]:
    """One term of a family, with its own number of terms behind it where it stands for several, and its mark."""
    lines = _lines(pieces(member, style), width)
    notes = [f"[{expr_latex(member.count, style)}]"] if isinstance(member, Family) and noted else []
    notes += [r"\ast"] if marked and softmax_invisible(member) else []
    own = r"\quad" + r"\;".join(notes)
    if notes and latex_width(lines[-1] + own) <= width:
        lines[-1] += own
    elif notes:
        lines.append(rf"\qquad{own}")
    return lines


def _claim_rows(claim: Shown, complete: bool, marked: bool, page: Page) -> list[str]:
    """The rows of an aligned display."""
    style, (lhs, *sides) = LatexStyle(claim.notation), claim.sides
    left = expr_latex(lhs, style)
    used = latex_width(left) + 1.3
    sign, rows = RELATIONS[claim.relation], []
    if used > page.width - _NARROWEST:
        return _claim_below(claim, style, complete, marked, page)
    if len(sides) > 1 and sum(latex_width(expr_latex(s, style)) + 2 for s in sides) + used <= page.width:
        return [f"{left} &{sign} " + f" {sign} ".join(expr_latex(s, style) for s in sides)]
    for i, side in enumerate(sides):
        lines = _row_lines(side, page.width - used, style, complete, marked, page)
        if lines[0].count("\n") > 2:  # several rows under one brace: the left-hand side stands above them
            lines.insert(0, "")
        rows.append((left if not i else "") + f" &{sign} " + lines[0])
        rows += [r"&\quad " + line for line in lines[1:]]
    return rows


def _claim_below(claim: Shown, style: LatexStyle, complete: bool, marked: bool, page: Page) -> list[str]:
    """The rows of a claim whose left-hand side leaves no room beside it."""
    first, *further = _lines(pieces(claim.sides[0], style), page.width - 1)
    rows = ["&" + first, *("&\\quad " + line for line in further)]
    for side in claim.sides[1:]:
        lines = _row_lines(side, page.width - 3, style, complete, marked, page)
        rows.append(rf"&\quad {RELATIONS[claim.relation]} {lines[0]}")
        rows += [r"&\quad\quad " + line for line in lines[1:]]
    return rows


def displays(steps: Collection[Step], notation: Notation, page: Page = _PAGE) -> Iterator[tuple[Step, str]]:
    """Each step with its formulas; what an earlier step has as a right-hand side is not printed again."""
    known: set[Expr] = set()
    for step in steps:
        yield step, step_display(step, notation, known, page)
        known |= {side for claim in step.claims for side in claim.sides[1:]}


def step_display(step: Step, notation: Notation, known: Collection[Expr] = (), page: Page = _PAGE) -> str:
    """The formulas of a step; a right-hand side that is known is not printed again."""
    complete = "terms" in step.check.also
    marked = "softmax" in step.check.also and not page.label  # the marks are explained where the check is told
    claims = [_claim_rows(claim, complete, marked, page) for claim in shown_claims(step, notation, known)]
    if page.label:
        claims = [_numbered(rows, f"{page.label}:{step.number}.{i}") for i, rows in enumerate(claims, 1)]
    apart = bool(page.label) and _columns(claims) > page.width
    if apart or any(rows[0].startswith("&") for rows in claims):  # without a left column, which it would not share
        return "\n".join(_aligned(rows, page) for rows in claims)
    return _aligned([row for rows in claims for row in rows], page)


def _columns(claims: list[list[str]]) -> float:
    """The width of claims in one display: of their widest left-hand and their widest right-hand side."""
    if len(claims) == 1:
        return 0.0
    cells = [row.partition(" &") for rows in claims for row in rows if "\n" not in row]
    return max((latex_width(left) for left, _, _ in cells), default=0) + max(
        (latex_width(right.partition(r" \label")[0]) for _, _, right in cells), default=0
    )


def _numbered(rows: list[str], label: str) -> list[str]:
    """The rows of a claim, the last with its number."""
    return [*(rf"{row} \notag" for row in rows[:-1]), rf"{rows[-1]} \label{{{label}}}"]


def _aligned(rows: list[str], page: Page) -> str:
    # No page is broken after the first row or before the last.
    body = "".join(row + (" \\\\*" if i in (0, len(rows) - 2) else " \\\\") + "\n  " for i, row in enumerate(rows[:-1]))
    body += rows[-1]
    name, columns = ("alignat", "{2}") if any(r"&\quad&" in row for row in rows) else ("align", "")
    name += "" if page.label else "*"
    return f"\\begin{{{name}}}{columns}\n  {body}\n\\end{{{name}}}"


def step_latex(step: Step, notation: Notation) -> str:
    """The formulas of a step, as displays that fit a page."""
    return step_display(step, notation)


def claim_latex(claim: Claim, notation: Notation) -> str:
    """A claim on one line (math mode, no delimiters)."""
    shown = shown_claim(claim, notation)
    style = LatexStyle(shown.notation)
    return f" {RELATIONS[shown.relation]} ".join(expr_latex(side, style) for side in shown.sides)
