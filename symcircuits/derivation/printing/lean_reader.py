"""What a file of Lean states, read back as the text that is printed: the writer of the file is not asked.

Formulas are read as Lean reads them, by what binds closer, into trees. The trees are compared with what is printed as
those of Coq are (:mod:`symcircuits.derivation.printing.coq_reader`), and can be evaluated: that is a witness where no
Lean is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.coq_reader import TURNED, Reading, elementary_value, misread, printed_letter

__all__ = ["Formula", "as_text", "definitions", "formula", "misstated", "theorems"]

_TOKEN = re.compile(r"\s*(\+ₒ|\.length|[()\[\],:∀=+*•∘ᵀ]|(?:(?!ᵀ)[\w.])+)")
# what stands between two operands: how close it binds, and whether it takes its right side first
_INFIX = {"=": (50, False), "+": (65, False), "+ₒ": (65, False), "*": (70, False), "•": (73, True), "∘": (90, True)}
_ENDS = {"", ")", "]", ",", ":", ".length", "ᵀ", *_INFIX}
_ARROWS = {"+": "+", "+ₒ": "+", "*": "@", "•": "*", "∘": "", "=": "="}


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula: a letter, a sign between parts, or ``ᵀ``, ``apply``, ``pair``, ``list``, ``length``, ``∀``, ``()``."""

    sign: str
    parts: tuple[Formula, ...] = ()

    @property
    def tensor(self) -> bool:
        """Whether it is a tensor, or one that is applied."""
        return self.sign == "apply" and self.parts[0].sign in ("tensor", "tensor3")


def formula(lean: str) -> Formula:
    """A formula of Lean as Lean reads it: ``•`` binds closer than ``*``, and ``*`` than ``+``.

    ValueError where it cannot be read.

    >>> read = formula("A * X0 + c • A * X1ᵀ")
    >>> read.sign, [part.sign for part in read.parts], [part.sign for part in read.parts[1].parts]
    ('+', ['*', '*'], ['•', 'ᵀ'])
    """
    tokens = _TOKEN.findall(lean)
    if "".join(tokens) != re.sub(r"\s", "", lean):
        raise ValueError(f"cannot read {lean!r} as a formula of Lean")
    reader = _Reader(tokens)
    found = reader.read(0)
    if reader.at < len(tokens):
        raise ValueError(f"cannot read {lean!r}: {tokens[reader.at]!r} stands where it should end")
    return found


@dataclass(slots=True)
class _Reader:
    tokens: list[str]
    at: int = 0

    def take(self, wanted: str = "") -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else "the end"
        if wanted and token != wanted:
            raise ValueError(f"a formula of Lean has {token!r} where {wanted!r} should stand")
        self.at += 1
        return token

    def ahead(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def read(self, least: int) -> Formula:
        if self.ahead() == "∀":
            self.take()
            bound = self.take()
            self.take(",")
            return Formula("∀", (Formula(bound), self.read(0)))
        found = self.applied()
        while self.ahead() in _INFIX and _INFIX[self.ahead()][0] >= least:
            sign = self.take()
            binds, right_first = _INFIX[sign]
            other = self.read(binds if right_first else binds + 1)
            same = found.sign == sign and not right_first and sign != "="
            found = Formula(sign, (*found.parts, other) if same else (found, other))
        return found

    def applied(self) -> Formula:
        parts = [self.atom()]
        while self.ahead() not in _ENDS:
            parts.append(self.atom())
        return parts[0] if len(parts) == 1 else Formula("apply", tuple(parts))

    def atom(self) -> Formula:
        token = self.take()
        if token == "(":
            found = self.enclosed()
        elif token == "[":
            found = Formula("list", tuple(self.several("]")))
            if self.ahead() == ".length":
                self.take()
                found = Formula("length", found.parts)
        elif token in _ENDS or token == "the end":
            raise ValueError(f"a formula of Lean has {token!r} where an operand should stand")
        else:
            found = Formula(token)
        while self.ahead() == "ᵀ":
            self.take()
            found = Formula("ᵀ", (found,))
        return found

    def enclosed(self) -> Formula:
        inside = list(self.several(")", ":"))
        if self.tokens[self.at - 1] == ":":  # the type of what stands before
            while self.take() != ")":
                pass
        if len(inside) == 1:
            return Formula("()", (inside[0],)) if inside[0].sign in _INFIX else inside[0]
        return Formula("pair", tuple(inside))

    def several(self, *ends: str) -> Iterator[Formula]:
        while True:
            yield self.read(0)
            if self.ahead() in ends:
                self.take()
                return
            self.take(",")


def as_text(lean: str) -> str:
    """A formula of Lean as it is printed in text, without spaces and parentheses.

    >>> as_text("((tensor A_L0H0 (W_U * W_OV_L0H0)) t)"), as_text("W_OVᵀ = (A + B)ᵀ")
    ('A[L0H0]xW_U@W_OV[L0H0]t', 'W_OV.T=A+B~T')
    """
    return _text(formula(lean))


def _text(read: Formula) -> str:
    parts = [_text(part) for part in read.parts]
    if read.sign in _ARROWS:
        return _ARROWS[read.sign].join(parts)
    if read.tensor:
        slots = {"tensor": 3, "tensor3": 4}[read.parts[0].sign]
        return "x".join(parts[1:slots]) + "".join(parts[slots:])
    match read.sign:
        case "()" | "apply":
            return f"{parts[1]}*{''.join(parts[2:])}" if parts[0] == "scaled" else "".join(parts)
        case "pair":
            return ",".join(parts)
        case "ᵀ":
            return parts[0] + (".T" if not read.parts[0].parts else TURNED)
        case "∀":
            left, right = read.parts[1].parts
            bound = read.parts[0]
            return f"{_text(_before(left, bound))}={_text(_before(right, bound))}"
        case "id" | "identity":
            return "Id"
    return printed_letter(read.sign)


def _before(applied: Formula, last: Formula) -> Formula:
    """What is applied to a bound letter."""
    if applied.sign != "apply" or applied.parts[-1] != last:
        raise ValueError(f"what holds for every {last.sign} is not said of something that acts on it")
    return applied.parts[0] if len(applied.parts) == 2 else Formula("apply", applied.parts[:-1])


def _listed(lean: str) -> list[str]:
    """The terms that are counted in a statement."""
    return [_text(term) for side in formula(lean).parts for found in _lists(side) for term in found.parts]


def _lists(read: Formula) -> Iterator[Formula]:
    if read.sign == "length":
        yield read
    for part in read.parts:
        yield from _lists(part)


def _values(lean: str) -> list[int]:
    """The numbers on both sides of an equation of numbers."""
    return [_value(side) for side in formula(lean).parts]


def _value(read: Formula) -> int:
    match read.sign:
        case "length":
            return len(read.parts)
        case "+":
            return sum(map(_value, read.parts))
        case "*":
            return prod(map(_value, read.parts))
        case "()":
            return _value(read.parts[0])
        case "apply" if read.parts[0].sign == "elementary":
            _, order, heads = read.parts
            return elementary_value(_value(order), map(_value, heads.parts))
    return int(read.sign)


_LEAN = Reading(lambda lean, _: as_text(lean), _listed, lambda lean, _: _values(lean), any_heads=False)


def theorems(text: str) -> dict[str, str]:
    """What each theorem of a file states, by its name, on one line."""
    found = re.findall(r"^theorem (step\w+) :\s+(.*?)\s+:=\s+by\b", text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(statement.split()) for name, statement in found}


def definitions(text: str) -> dict[str, str]:
    """What each notation of a file means, by its name, on one line."""
    found = re.findall(r'^local notation "(\w+)" =>\s+(.*?)\n(?=\S|\n)', text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(body.split()) for name, body in found}


def misstated(derivation: Derivation, text: str) -> list[str]:
    """A sentence for every theorem and notation of a file that says something else than the claim that it is of.

    What is assumed beside that D, C and gain are symmetric has a sentence too.

    >>> import symcircuits as sc
    >>> from symcircuits.derivation.printing.lean import derivation_lean
    >>> text = derivation_lean(sc.derive(sc.attention_only((1,)), "stream"))
    >>> misstated(sc.derive(sc.attention_only((1,)), "stream"), text)
    []
    >>> wrong = text.replace("theorem step4_1_1 : stream = ", "theorem step4_1_1 : X0 = ")
    >>> misstated(sc.derive(sc.attention_only((1,)), "stream"), wrong)
    ['step4_1_1 states X0 = X1, which is not what is printed']
    """
    meant = [(name, body, "") for name, body in definitions(text).items()]
    return [*_assumed(text), *misread(derivation, meant, theorems(text).items(), _LEAN)]


def _assumed(text: str) -> Iterator[str]:
    """A sentence for each theorem with something before its colon, and for what is assumed, but symmetry of norms."""
    for name in re.findall(r"^(?:theorem|lemma|axiom) (\w+)", text, re.MULTILINE):
        if name not in theorems(text):
            yield f"{name} is not a theorem that is only stated"
    for name, kind in re.findall(r"^variable \((\w[\w\s]*) : ([^)]*)\)$", text, re.MULTILINE):
        symmetric = re.fullmatch(r"(D_\w+|C|gain_\w+)ᵀ = \1", kind)
        if not (symmetric or kind == "R" or re.fullmatch(r"Matrix \w+ \w+ R", kind)):
            yield f"{name} is assumed, {kind}, which no claim says"
