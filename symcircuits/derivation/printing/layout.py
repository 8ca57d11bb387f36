"""An expression as pieces that may be broken into lines, for any format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from symcircuits.core.notation import Notation
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.nodes import (
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Sign,
    Special,
    Spelled,
    Sum,
    SumOver,
    Target,
    Tensor,
    Transposed,
)
from symcircuits.derivation.printing.forms import shown

__all__ = ["Piece", "Style", "broken", "joined", "pieces"]

# How willingly a line is broken before a piece, the smaller the better: before a term, then between factors, and
# two levels deeper for everything inside parentheses.
TERM, FACTOR, DEEPER, NONE = 0, 1, 2, 99


@dataclass(frozen=True, slots=True)
class Piece:
    """A string that is never broken; ``before`` is the level of a break before it, ``joint`` what joins it else.

    ``acted_on``: it is what the map before it acts on, and no factor.
    """

    text: str
    before: int = NONE
    joint: str = ""
    acted_on: bool = False


class Style(Protocol):
    """How one format writes leaves and joints, in one notation."""

    notation: Notation
    matrix_joint: str
    operator_joint: str
    number_joint: str
    times: str
    scale_joint: str
    tensor: str
    comma: str
    opening: str
    closing: str
    transposed: str
    identity: str

    def factor(self, factor: Factor) -> str:
        """A matrix symbol, transposed or not."""

    def sign(self, sign: Sign) -> str:
        """What stands between the parts of a special node."""

    def power(self, exponent: int) -> str:
        """What follows a factor that stands several times."""

    def scale(self, label: str) -> str:
        """The score scale of a head."""

    def sum_over(self, index: str, layer: int) -> str:
        """The sign of a sum over the heads of a layer."""

    def target(self, name: str) -> str:
        """The symbol of what is derived."""

    def head_count(self, layer: int) -> str:
        """``H_l``."""

    def elementary(self, order: int, layers: tuple[int, ...]) -> str:
        """``e_k(H_1, ..., H_L)``."""

    def count_of(self, order: int | None, composition: str | None) -> str:
        """The symbol of a number of terms."""


def is_number(expr: Expr) -> bool:
    """Whether an expression counts."""
    match expr:
        case Number() | HeadCount() | Elementary() | CountOf():
            return True
        case Sum():
            return all(map(is_number, expr.terms))
        case Product():
            return all(map(is_number, expr.factors))
        case Special():
            return expr.counts or expr.numeric
        case _:
            return False


def is_operator(expr: Expr) -> bool:
    """Whether an expression is a map of streams."""
    match expr:
        case Identity() | Tensor():
            return True
        case Sum():
            return any(map(is_operator, expr.terms))
        case Product():
            return any(map(is_operator, expr.factors))
        case SumOver() | Family():
            return is_operator(expr.body)
        case _:
            return False


def pieces(expr: Expr, style: Style) -> list[Piece]:
    """The pieces of an expression as the style's notation shows it, in reading order."""
    return _pieces(shown(expr, style.notation), style)


def _pieces(expr: Expr, style: Style) -> list[Piece]:
    match expr:
        case Word():
            return _word(expr.scales, expr.fused, style)
        case Spelled():
            return _word(expr.word.scales, expr.word.factors, style)
        case Product():
            return _product(expr, style)
        case Sum():
            return _sum(expr, style)
        case SumOver():
            body = _grouped(expr.body, style, isinstance(expr.body, Sum))
            return [Piece(style.sum_over(expr.index, expr.layer)), *_after(body, FACTOR, " ")]
        case Transposed():
            inner = _grouped(expr.body, style, not (isinstance(expr.body, Special) and expr.body.letter))
            return [*inner[:-1], replace(inner[-1], text=inner[-1].text + style.transposed)]
        case Tensor():
            return _tensor(expr, style)
        case Apply():
            return _apply(expr, style)
        case Family():
            return _pieces(expr.body, style)
        case Special():
            return _special(expr, style)
        case _:
            return [Piece(_leaf(expr, style))]


def _special(expr: Special, style: Style) -> list[Piece]:
    out: list[Piece] = []
    for part in expr.written():
        if isinstance(part, Sign):
            text = style.sign(part)
            goes_on = text.lstrip() if part.breaks else text  # a line does not start with a space
            out.append(Piece(goes_on, DEEPER if part.breaks else NONE, text[: len(text) - len(goes_on)]))
        else:
            out += _after(_deeper(_pieces(part, style)), NONE, "")
    return _after(out, NONE, "")


def _leaf(expr: Expr, style: Style) -> str:
    match expr:
        case Identity():
            return style.identity
        case Target():
            return style.target(expr.name)
        case Number():
            return f"{expr.value:,}" if abs(expr.value) > 9_999 else str(expr.value)
        case HeadCount():
            return style.head_count(expr.layer)
        case Elementary():
            return style.elementary(expr.order, expr.layers)
        case CountOf():
            return style.count_of(expr.order, expr.composition)
        case _:
            raise TypeError(f"{type(expr).__name__} cannot be written")


def _after(parts: list[Piece], before: int, joint: str) -> list[Piece]:
    """The pieces as a continuation: how the first may be broken off, and what joins it."""
    return [replace(parts[0], before=before, joint=joint), *parts[1:]]


def _word(scales: tuple[str, ...], factors: tuple[Factor, ...], style: Style) -> list[Piece]:
    out = [Piece(style.scale(s), FACTOR, style.scale_joint) for s in scales]
    out += [Piece(style.factor(f), FACTOR, style.matrix_joint) for f in factors]
    if scales:
        out[len(scales)] = replace(out[len(scales)], joint=style.scale_joint, before=NONE)
    return _after(out, NONE, "")


def _deeper(parts: list[Piece]) -> list[Piece]:
    return [p if p.before == NONE else replace(p, before=p.before + DEEPER) for p in parts]


def _grouped(expr: Expr, style: Style, group: bool) -> list[Piece]:
    """The pieces, in parentheses where asked."""
    inner = _pieces(expr, style)
    if not group:
        return inner
    inner = _deeper(inner)
    inner[0] = replace(inner[0], text=style.opening + inner[0].text)
    inner[-1] = replace(inner[-1], text=inner[-1].text + style.closing)
    return inner


def _product(expr: Product, style: Style) -> list[Piece]:
    if is_number(expr):
        return _number_product(expr, style)
    operators = is_operator(expr)
    joint = style.operator_joint if operators else style.matrix_joint
    out = [Piece(style.scale(s), FACTOR, style.scale_joint) for s in expr.scales]
    for i, factor in enumerate(expr.factors):
        last = i == len(expr.factors) - 1
        needs = isinstance(factor, (Sum, Tensor)) or (isinstance(factor, SumOver) and (operators or not last))
        needs = needs or (isinstance(factor, Apply) and len(expr.factors) > 1)
        first = len(out) == len(expr.scales)
        out += _after(_grouped(factor, style, needs), NONE if first else FACTOR, style.scale_joint if first else joint)
    return _after(out, NONE, "")


def _number_product(expr: Product, style: Style) -> list[Piece]:
    """Equal factors as a power: ``(1 + H_1)^2``."""
    out: list[Piece] = []
    for factor, power in Counter(expr.factors).items():
        part = _grouped(factor, style, isinstance(factor, Sum))
        if power > 1:
            part = [*part[:-1], replace(part[-1], text=part[-1].text + style.power(power))]
        both = bool(out) and isinstance(factor, Number)
        out += _after(part, FACTOR, style.times if both else style.number_joint)
    return _after(out, NONE, "")


def _sum(expr: Sum, style: Style) -> list[Piece]:
    if not expr.terms:
        return [Piece("0")]
    out: list[Piece] = []
    for term in expr.terms:
        negative = isinstance(term, Number) and term.value < 0
        part = _pieces(Number(-term.value) if negative and isinstance(term, Number) else term, style)
        sign = "- " if negative else "+ "
        if out:
            part = [replace(part[0], text=sign + part[0].text, before=TERM, joint=" "), *part[1:]]
        elif negative:
            part = [replace(part[0], text=sign + part[0].text), *part[1:]]
        out += part
    return out


def _tensor(expr: Tensor, style: Style) -> list[Piece]:
    out: list[Piece] = []
    for slot in expr.slots:
        part = _deeper(_grouped(slot, style, isinstance(slot, Sum)))
        if out:
            part = [replace(part[0], text=f"{style.tensor} {part[0].text}", before=FACTOR, joint=" "), *part[1:]]
        out += part
    return out


def _apply(expr: Apply, style: Style) -> list[Piece]:
    """An operator before its argument, which stands in parentheses unless it is one letter."""
    operator = _grouped(expr.operator, style, isinstance(expr.operator, (Sum, Tensor, SumOver)))
    if len(expr.arguments) == 1:
        argument = expr.arguments[0]
        one = isinstance(argument, Word) and len(argument.scales + argument.fused) == 1
        one = one or (isinstance(argument, Special) and argument.letter)
        first, *rest = _after(_grouped(argument, style, not one), FACTOR, style.operator_joint)
        return [*operator, replace(first, acted_on=True), *rest]
    parts = [_grouped(a, style, False) for a in expr.arguments]
    parts[0] = [replace(parts[0][0], text=style.opening + parts[0][0].text), *parts[0][1:]]
    parts[0][-1] = replace(parts[0][-1], text=parts[0][-1].text + style.comma)
    parts[-1] = [*parts[-1][:-1], replace(parts[-1][-1], text=parts[-1][-1].text + style.closing)]
    inside = [p for i, part in enumerate(parts) for p in _after(part, TERM, " " if i else "")]
    return operator + _after(_deeper(inside), FACTOR, "")


# ---------------------------------------------------------------------------------------------------- lines
def joined(parts: list[Piece]) -> str:
    """The pieces on one line."""
    return "".join((p.joint if i else "") + p.text for i, p in enumerate(parts))


def broken(parts: list[Piece], width: float, measure: Callable[[str], float]) -> list[list[Piece]]:
    """The pieces in lines of at most that width, broken before terms where possible, else between factors."""
    if measure(joined(parts)) <= width:
        return [parts]
    for level in sorted({p.before for p in parts[1:]} - {NONE}):
        chunks = _split(parts, level)
        if len(chunks) > 1:
            return _filled(chunks, width, measure)
    return [parts]


def _split(parts: list[Piece], level: int) -> list[list[Piece]]:
    chunks: list[list[Piece]] = []
    for p in parts:
        if p.before <= level or not chunks:
            chunks.append([])
        chunks[-1].append(p)
    return chunks


def _filled(chunks: list[list[Piece]], width: float, measure: Callable[[str], float]) -> list[list[Piece]]:
    """Chunks put on lines one after the other; a chunk that is wider than a line is broken further."""
    lines: list[list[Piece]] = []
    for chunk in chunks:
        if lines and measure(joined(lines[-1] + chunk)) <= width:
            lines[-1] = lines[-1] + chunk
        elif measure(joined(chunk)) <= width:
            lines.append(chunk)
        else:
            lines += broken(chunk, width, measure)
        last = chunk is chunks[-1] and lines[-1] is chunk and len(lines) > 1
        if last and measure(joined(chunk)) < width / 6:
            _share(lines)
    return lines


def _share(lines: list[list[Piece]]) -> None:
    """Move the last factor of the line before a very short last line down to it."""
    before = _split(lines[-2], FACTOR)
    if len(before) > 2 and lines[-1][0].before == FACTOR == before[-1][0].before:
        lines[-2:] = [[p for chunk in before[:-1] for p in chunk], before[-1] + lines[-1]]
