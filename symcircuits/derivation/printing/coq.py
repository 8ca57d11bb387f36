"""A derivation as a file of Coq: every plain claim a lemma, proved for all sizes over any commutative ring.

A plain claim is an equation of sums of products of matrices. Each is proved by multiplying out both sides and comparing
their words (``claims.v``, which stands at the beginning of every file), all abbreviations and the recursion unfolded
down to weights and patterns. What is not plain is named in the file, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Space, Word, scalar_argument
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.expressions import is_recursion
from symcircuits.derivation.nodes import (
    Apply,
    Expr,
    Family,
    Identity,
    Product,
    Spelled,
    Sum,
    SumOver,
    Target,
    Tensor,
    Transposed,
)

__all__ = ["Coverage", "coverage", "derivation_coq"]

_TACTIC = Path(__file__).with_name("claims.v")
_ABBREVIATIONS = ("W_OV", "W_QK")
_NORMS = ("D", "C", "gain", "Y")


_HOW = {
    "count": "it counts terms", "indices": "it is a rule of the tensor product, by indices",
    "exact": "it is in numbers", "model": "it is of a run of a model",
}  # fmt: skip
_WHY: dict[type, str] = {
    Apply: "it applies maps, as tensors", Tensor: "it has tensors", SumOver: "it sums over any number of heads",
    Identity: "it has tensors",
}  # fmt: skip


class _NotPlain(ValueError):
    """What the format cannot say, and why."""


@dataclass(slots=True)
class Coverage:
    """The lemmas of a derivation by name, ``step3_1_2``; by ``step 3, claim 1`` what is defined, and why it is left."""

    lemmas: dict[str, str] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Writer:
    """What the formulas of a derivation are made of: sizes, letters with their shapes, numbers, definitions."""

    derivation: Derivation
    sizes: dict[str, None] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, None] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)

    def size(self, space: Space) -> str:
        kind = "model" if space.kind == "attention_input" else space.kind  # the position is added to the stream there
        name = "_".join(re.findall(r"\w+", f"{kind} {space.owner}"))
        self.sizes[f"n_{name}"] = None
        return f"n_{name}"

    def letter(self, factor: Factor) -> str:
        """A matrix; declared where it is not defined, and so is what it abbreviates."""
        symbol = factor.symbol
        if symbol.glyph in _NORMS:
            raise _NotPlain("it goes through a norm, whose matrices are symmetric")
        if symbol.glyph == "R":
            raise _NotPlain("rotary positions turn its rows")
        if symbol.label and not re.fullmatch(r"L\d+(?:[HG]\d+)?", symbol.label):
            raise _NotPlain(f"{symbol.text} is of any head")
        if symbol.glyph in _ABBREVIATIONS:
            return self.turned(self.product_of(symbol.glyph, symbol.label), factor.transposed)
        if symbol.glyph == "X0":
            if "X0" not in self.defined:
                self.defined["X0"] = self.product([self.letter(f) for f in embedding()])
            return self.turned("X0", factor.transposed)
        if is_recursion(factor):
            if symbol.argument not in self.defined:
                raise _NotPlain(f"{symbol.text} is not defined before it")
            return self.turned(symbol.argument, factor.transposed)
        self.letters[symbol.argument] = f"'M[R]_({self.size(symbol.row.space)}, {self.size(symbol.col.space)})"
        return self.turned(symbol.argument, factor.transposed)

    def product_of(self, glyph: str, label: str) -> str:
        name, arch = f"{glyph}_{label}", self.derivation.frame.walked
        if name not in self.defined:
            shared = arch.key_value(arch.head(label))
            first = f"W_{glyph[2]}_{label}" + ("^T" if glyph == "W_QK" else "")
            self.defined[name] = f"{first} *m W_{glyph[3]}_{shared}"
            for term, _ in self.derivation.frame.terms:  # where the parts stand with their shapes
                for f in term.word.factors:
                    if f.symbol.argument in (f"W_{glyph[2]}_{label}", f"W_{glyph[3]}_{shared}"):
                        self.letter(Factor(f.symbol))
        return name

    @staticmethod
    def turned(name: str, transposed: bool) -> str:
        return f"{name}^T" if transposed else name

    def number(self, scalar: str) -> str:
        self.numbers[scalar_argument(scalar)] = None
        return scalar_argument(scalar)

    def scaled(self, scales: tuple[str, ...], product: str) -> str:
        for scalar in reversed(scales):
            product = f"({self.number(scalar)} *: {product})"
        return product

    def text(self, expr: Expr) -> str:
        """An expression, every product and sum in parentheses; ValueError where it is not plain."""
        match expr:
            case Word():
                return self.scaled(expr.scales, self.product([self.letter(f) for f in expr.fused]))
            case Spelled():
                return self.scaled(expr.word.scales, self.product([self.letter(f) for f in expr.word.factors]))
            case Product():
                return self.scaled(expr.scales, self.product([self.text(f) for f in expr.factors]))
            case Sum() if expr.terms:
                return "(" + " + ".join(map(self.text, expr.terms)) + ")"
            case Transposed():
                return f"{self.text(expr.body)}^T"
            case Family():
                return self.text(expr.body)
            case Target():
                name = _name(expr)
                if name not in self.defined:
                    raise _NotPlain(f"{expr.name} is not defined before it")
                return name
            case AlibiTerm():
                rows = f"'M[R]_({self.size(Space('context'))}, {self.size(Space('context'))})"
                self.letters[f"alibi_{expr.head}"] = rows
                return f"alibi_{expr.head}"
            case _:
                raise _NotPlain(_WHY.get(type(expr), f"it has a {type(expr).__name__}"))

    @staticmethod
    def product(parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else "(" + " *m ".join(parts) + ")"


def _name(expr: Expr) -> str:
    """The name of a target, or of a recursion symbol that stands alone; else nothing."""
    if isinstance(expr, Target):
        return re.sub(r"\W", "_", expr.name)
    if isinstance(expr, Word) and len(expr.factors) == 1 and is_recursion(expr.factors[0]) and not expr.scales:
        return "" if expr.factors[0].transposed else expr.factors[0].symbol.argument
    return ""


def coverage(derivation: Derivation) -> Coverage:
    """Which claims are lemmas, with their statements, which are definitions, and which are neither, and why.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> found = coverage(derive(attention_only((1,)), "stream"))
    >>> found.defined["step 3, claim 1"], found.left["step 1, claim 2"]
    ('stream', 'W_OV[h] is of any head')
    """
    return _written(derivation)[0]


def _written(derivation: Derivation) -> tuple[Coverage, _Writer]:
    writer, found = _Writer(derivation), Coverage()
    for step in derivation.steps:
        for number, claim in enumerate(step.claims, 1):
            which = f"step {step.number}, claim {number}"
            try:
                if step.check.how != "values" or claim.relation != "=":
                    raise _NotPlain(_HOW.get(step.check.how, "it is an inequality"))
                name = _name(claim.lhs)
                if step.kind == "definition" and name and name not in writer.defined:
                    writer.defined[name] = writer.text(claim.rhs)
                    found.defined[which] = name
                    continue
                for part, (left, right) in enumerate(zip(claim.sides, claim.sides[1:], strict=False), 1):
                    statement = f"{writer.text(left)} = {writer.text(right)}"
                    found.lemmas[f"step{step.number}_{number}_{part}"] = statement
            except _NotPlain as reason:
                found.left[which] = str(reason)
    return found, writer


def derivation_coq(derivation: Derivation) -> str:
    """The derivation as one file that ``coqc`` compiles, in the row convention, whatever its notation is.

    It begins with the tactic, declares sizes, matrices and numbers, has the definitions and a lemma for each plain
    claim, and asks Coq what each assumes. A comment at the end names every claim that has no lemma.
    """
    found, writer = _written(derivation)
    unfolded = ", ".join(reversed(writer.defined)) or "id"
    lines = [_TACTIC.read_text("utf-8"), "Section Derivation.", "Variable R : comRingType."]
    lines += [f"Variables ({' '.join(writer.sizes)} : nat)."] if writer.sizes else []
    lines += [f"Variable {name} : {shape}." for name, shape in writer.letters.items()]
    lines += [f"Variables ({' '.join(writer.numbers)} : R)."] if writer.numbers else []
    lines += [f"Definition {name} := {body}." for name, body in writer.defined.items()]
    for name, statement in found.lemmas.items():
        lines += [f"Lemma {name} : {statement}.", f"Proof. unfold {unfolded}; claim. Qed."]
    lines += ["End Derivation.", *(f"Print Assumptions {name}." for name in found.lemmas)]
    lines += [f"(* {len(found.lemmas)} lemmas, {len(found.defined)} definitions. Not proved here:"]
    lines += [*(f"   {claim}: {reason}" for claim, reason in found.left.items()), "*)"]
    return "\n".join(lines) + "\n"
