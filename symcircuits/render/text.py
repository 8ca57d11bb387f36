"""Text in 80 columns, in text notation."""

from __future__ import annotations

from collections.abc import Collection
from textwrap import fill, wrap

from symcircuits.algebra import Factor, Word
from symcircuits.derivation import Derivation, Step
from symcircuits.derivation.checks import Claim
from symcircuits.derivation.expressions import Expr, Family, Sign, Sum, SumOver
from symcircuits.derivation.flatten import composition_of_word, softmax_invisible
from symcircuits.render.layout import broken, joined, pieces
from symcircuits.render.words import check_sentence, conventions, family_title, seal, subject, title

__all__ = ["derivation_text", "expr_text"]

WIDTH = 80
_UNBROKEN = "\N{NO-BREAK SPACE}"
_SHORT = 12  # room is kept at the right margin for a note of at most so many characters


class TextStyle:
    """Leaves and joints in text notation."""

    matrix_joint = " @ "
    operator_joint = " "
    number_joint = " * "
    times = " * "
    scale_joint = " * "
    tensor = "(x)"
    comma = ","
    opening = "("
    closing = ")"
    transposed = ".T"
    identity = "Id"

    def factor(self, factor: Factor) -> str:
        """``W_OV[L0H1].T``."""
        return factor.text

    def sign(self, sign: Sign) -> str:
        """A sign of a special node."""
        return sign.text

    def power(self, exponent: int) -> str:
        """``^2``."""
        return f"^{exponent}"

    def scale(self, label: str) -> str:
        """``scale[L1H0]``."""
        return f"scale[{label}]"

    def sum_over(self, index: str, layer: int) -> str:
        """``sum[h_1=1..H_1]``."""
        return f"sum[{index}=1..{self.head_count(layer)}]"

    def target(self, name: str) -> str:
        """``logits``, or ``S[L1H0]`` for scores."""
        kind, _, head = name.partition(":")
        return f"S[{head}]" if head else kind

    def head_count(self, layer: int) -> str:
        """``H_1``."""
        return f"H_{layer + 1}"

    def elementary(self, order: int, layers: tuple[int, ...]) -> str:
        """``e_k(H_1, ..., H_L)``."""
        return f"e_{order}({self.head_count(layers[0])}, ..., {self.head_count(layers[-1])})"

    def count_of(self, order: int | None, composition: str | None) -> str:
        """``N``, ``N_2``, ``N_QK``."""
        return f"N_{composition}" if composition is not None else "N" if order is None else f"N_{order}"


_STYLE = TextStyle()


def expr_text(expr: Expr) -> str:
    """An expression on one line."""
    return joined(pieces(expr, _STYLE))


def _term_lines(term: Expr, sign: str, note: str) -> list[str]:
    """One term, with its sign and a note at the right margin; it goes on with ``@`` on further lines."""
    room = WIDTH - 6 - (len(note) + 2 if len(note) <= _SHORT else 0)
    parts = pieces(term, _STYLE)
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


def _composition(term: Expr) -> str:
    while isinstance(term, SumOver):
        term = term.body
    return composition_of_word(term) if isinstance(term, Word) else ""


def _side_lines(expr: Expr, relation: str, complete: bool, marked: bool) -> list[str]:
    terms = expr.terms if isinstance(expr, Sum) else (expr,)
    lines: list[str] = []
    for i, term in enumerate(terms):
        sign = relation if not i else "+ "
        if isinstance(term, Family):
            lines += _family_lines(term, sign, marked)
        else:
            note = _composition(term) if complete else ""
            lines += _term_lines(term, sign, f"[{note}]" if note else "")
    return lines


def _family_lines(family: Family, sign: str, marked: bool) -> list[str]:
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
        lines += _term_lines(member, sign if not i else "+ ", note)
    return lines


def _claim_lines(claim: Claim, known: Collection[Expr], complete: bool, marked: bool) -> list[str]:
    sides = [s for s in claim.sides[1:] if s not in known] or [claim.rhs]
    sign = f"{claim.relation} "
    one = "  " + f" {sign}".join(map(expr_text, (claim.lhs, *sides)))
    if len(one) <= WIDTH and not complete:
        return [one]
    left = broken(pieces(claim.lhs, _STYLE), WIDTH - 2, len)
    shown = (line for side in sides for line in _side_lines(side, sign, complete, marked))
    above = [("    @ " if i and line[0].joint.strip() == "@" else "  ") + joined(line) for i, line in enumerate(left)]
    return above + list(shown)


def _step_text(step: Step, known: Collection[Expr]) -> str:
    head = _paragraph(f"Step {step.number} ({step.kind}). {step.reason}")
    complete, marked = "terms" in step.check.also, "softmax" in step.check.also
    body = [line for claim in step.claims for line in _claim_lines(claim, known, complete, marked)]
    return "\n".join([head, "", *body, "", _paragraph(check_sentence(step.check), "  ")])


def _paragraph(sentence: str, indent: str = "", further: str | None = None) -> str:
    """A sentence in lines; a formula in it is not broken."""
    parts = sentence.split("`")
    parts[1::2] = [part.replace(" ", _UNBROKEN) for part in parts[1::2]]
    further = indent if further is None else further
    filled = fill("".join(parts), WIDTH, initial_indent=indent, subsequent_indent=further)
    return filled.replace(_UNBROKEN, " ")


def derivation_text(derivation: Derivation) -> str:
    """A derivation as text: title, conventions, steps with their checks, and the seal."""
    name = title(derivation)
    blocks = [f"{name}\n{'=' * len(name)}", _paragraph(subject(derivation))]
    blocks.append("\n".join(_paragraph(f"- {c}", "", "  ") for c in conventions(derivation)))
    known: set[Expr] = set()
    for step in derivation.steps:
        blocks.append(_step_text(step, known))
        known |= {side for claim in step.claims for side in claim.sides[1:]}
    blocks.append(_paragraph(seal(derivation)))
    return "\n\n".join(blocks) + "\n"
