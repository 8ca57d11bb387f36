"""Text in 80 columns, in text notation."""

from __future__ import annotations

from collections.abc import Collection
from textwrap import fill, wrap

from symcircuits.core.notation import ROW, Notation
from symcircuits.derivation.derive import Derivation, Step
from symcircuits.derivation.expressions import is_pathless
from symcircuits.derivation.multiplying import composition_of_term, softmax_invisible
from symcircuits.derivation.nodes import Expr, Family, Sum, SumOver
from symcircuits.derivation.printing.conventions import conventions
from symcircuits.derivation.printing.forms import Shown, shown_claims
from symcircuits.derivation.printing.layout import broken, joined, pieces
from symcircuits.derivation.printing.prose import plain, sentence
from symcircuits.derivation.printing.styles import TextStyle
from symcircuits.derivation.printing.words import PATHLESS, check_sentence, family_title, seal, subject, title

__all__ = ["derivation_text", "expr_text"]

WIDTH = 80
_UNBROKEN = "\N{NO-BREAK SPACE}"
_SHORT = 12  # room is kept at the right margin for a note of at most so many characters


_ROW = TextStyle()


def expr_text(expr: Expr, style: TextStyle = _ROW) -> str:
    """An expression on one line."""
    return joined(pieces(expr, style))


def _term_lines(term: Expr, style: TextStyle, sign: str, note: str) -> list[str]:
    """One term, with its sign and a note at the right margin; it goes on with ``@`` on further lines."""
    room = WIDTH - 6 - (len(note) + 2 if len(note) <= _SHORT else 0)
    parts = pieces(term, style)
    lines = broken(parts, room, len)
    if len(lines) > 1:
        lines = broken(parts, room - 4, len)  # room for what stands before the further lines
    out = ["    " + sign + joined(lines[0])]
    for line in lines[1:]:
        goes_on = line[0].joint.strip()
        out.append("        " + (f"{goes_on} " if goes_on else "") + joined(line))
    if note and len(out[0]) + 2 + len(note) <= WIDTH:
        out[0] = out[0].ljust(WIDTH - len(note)) + note
    elif note:
        out += [" " * 8 + line for line in wrap(note, WIDTH - 8)]
    return out


def _side_lines(expr: Expr, style: TextStyle, relation: str, complete: bool, marked: bool) -> list[str]:
    terms = expr.terms if isinstance(expr, Sum) else (expr,)
    lines: list[str] = []
    for i, term in enumerate(terms):
        sign = relation if not i else "+ "
        if is_pathless(term):
            lines += [f"    -- {PATHLESS}"] * isinstance(terms[0], Family)
            lines += _term_lines(term, style, sign, "" if isinstance(terms[0], Family) else f"[{PATHLESS}]")
        elif isinstance(term, Family):
            lines += _family_lines(term, style, sign, marked)
        else:
            note = composition_of_term(term) if complete else ""
            lines += _term_lines(term, style, sign, f"[{note}]" if note else "")
    return lines


def _family_lines(family: Family, style: TextStyle, sign: str, marked: bool) -> list[str]:
    """A family: its name and number of terms, then its members, with ``*`` at those that softmax does not see."""
    members = family.body.terms if isinstance(family.body, Sum) else (family.body,)
    name = family_title(family, family.order is None, len(members) > 1 or isinstance(members[0], SumOver))
    count = expr_text(family.count)
    lines = wrap(f"-- {name}: {count} term{'' if count == '1' else 's'}", WIDTH - 4, subsequent_indent="   ")
    lines = ["    " + line for line in lines]
    for i, member in enumerate(members):
        note = f"[{expr_text(member.count)}]" if isinstance(member, Family) and len(members) > 1 else ""
        if marked and softmax_invisible(member):
            note = f"* {note}".strip()
        lines += _term_lines(member, style, sign if not i else "+ ", note)
    return lines


def _claim_lines(claim: Shown, complete: bool, marked: bool) -> list[str]:
    style, (lhs, *sides) = TextStyle(claim.notation), claim.sides
    sign = f"{claim.relation} "
    one = "  " + f" {sign}".join(expr_text(side, style) for side in (lhs, *sides))
    if len(one) <= WIDTH and not complete:
        return [one]
    left = broken(pieces(lhs, style), WIDTH - 2, len)
    shown = (line for side in sides for line in _side_lines(side, style, sign, complete, marked))
    above = [("    @ " if i and line[0].joint.strip() == "@" else "  ") + joined(line) for i, line in enumerate(left)]
    return above + list(shown)


def _step_text(step: Step, notation: Notation, known: Collection[Expr]) -> str:
    head = _paragraph(f"Step {step.number} ({step.kind}). {step.reason}", notation)
    complete, marked = "terms" in step.check.also, "softmax" in step.check.also
    claims = shown_claims(step, notation, known)
    body = [line for claim in claims for line in _claim_lines(claim, complete, marked)]
    return "\n".join([head, "", *body, "", _paragraph(check_sentence(step.check), notation, "  ")])


def _paragraph(text: str, notation: Notation = ROW, indent: str = "", further: str | None = None) -> str:
    """A sentence in lines; a formula in it is not broken."""
    parts = [part.replace(" ", _UNBROKEN) if formula else part for formula, part in sentence(text, notation)]
    further = indent if further is None else further
    filled = fill("".join(parts), WIDTH, initial_indent=indent, subsequent_indent=further)
    return filled.replace(_UNBROKEN, " ")


def derivation_text(derivation: Derivation) -> str:
    """A derivation as text: title, conventions, steps with their checks, and a summary."""
    notation = derivation.notation
    name = plain(title(derivation), notation)
    blocks = [f"{name}\n{'=' * len(name)}", _paragraph(subject(derivation), notation)]
    blocks.append("\n".join(_paragraph(f"- {c}", notation, "", "  ") for c in conventions(derivation)))
    known: set[Expr] = set()
    for step in derivation.steps:
        blocks.append(_step_text(step, notation, known))
        known |= {side for claim in step.claims for side in claim.sides[1:]}
    blocks.append(_paragraph(seal(derivation), notation))
    return "\n\n".join(blocks) + "\n"
