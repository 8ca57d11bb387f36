"""A derivation as a file of Coq: every plain claim a lemma, proved for all sizes over any commutative ring.

A plain claim is an equation of sums of products of matrices, of tensors that act, or of numbers of terms. Each is
proved by multiplying out both sides and comparing their words (``claims.v``, which stands at the beginning of every
file), all abbreviations and the recursion unfolded down to weights and patterns. Sums over heads are written out, for
the numbers of heads that the derivation was asked for; a rule for any head ``h`` is proved for arbitrary matrices in
its place. D, C and gain are any symmetric matrices. What is not plain is named in the file, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Space, Word, scalar_argument
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.claims import Claim
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.expressions import is_recursion, rebuild, relabelled
from symcircuits.derivation.multiplying import composition_of_word, multiply_out, orders_of_word
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
    Spelled,
    Sum,
    SumOver,
    Target,
    Tensor,
    Transposed,
    every_node,
    mapped,
)
from symcircuits.derivation.printing.spelling import Spelling

__all__ = ["COQ", "Coverage", "Writer", "coverage", "derivation_coq", "module", "statements", "tactic", "written_out"]

COQ = Spelling(
    matrix="'M[R]_({0}, {1})",
    one="1%:M",
    transposed="{0}^T",
    times=" *m ",
    scaled="({0} *: {1})",
    identity="Id",
    acts_plus=" \\oplus ",
    after=" \\after ",
    acts_scaled="({0} \\times {1})",
    acts_alike="forall X, {0} X = {1} X",
    numbers_equal="({0} = {1})%N",
    listed="(size [:: {0}])",
    between="; ",
    elementary="(elementary {0} [:: {1}])",
)

_TACTIC = Path(__file__).with_name("claims.v")
_ABBREVIATIONS = ("W_OV", "W_QK")
_NORMS = ("D", "C", "gain")  # symmetric: no transpose of them is written
# Spaces that are told apart by their types and are of one size.
_SAME_SIZE = {"normed_context": "context"} | dict.fromkeys(
    ("normed_model", "centred_model", "scaled_model", "attention_input", "normed_input"), "model"
)
_QK = ("raw_qk", "scaled_qk")
_SAID = ("symmetric", "turned")  # what is given and is a hypothesis here, or seen at the letters
_HOW = {"exact": "it is in numbers", "model": "it is of a run of a model"}


class _NotPlain(ValueError):
    """What the format cannot say, and why."""


@dataclass(slots=True)
class Coverage:
    """The lemmas of a derivation by name, ``step3_1_2``; by ``step 3, claim 1`` what is defined, and why it is left."""

    lemmas: dict[str, str] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Writer:
    """What the formulas of a derivation are made of: sizes, letters with their shapes, numbers, definitions."""

    derivation: Derivation
    spelling: Spelling
    symmetric: dict[str, None] = field(default_factory=dict)
    sizes: dict[str, None] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, None] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)

    def size(self, space: Space) -> str:
        kind = _SAME_SIZE.get(space.kind, space.kind)
        owner = "" if kind in _SAME_SIZE.values() else space.owner
        kind = "qk" if kind in _QK else kind
        name = "_".join(re.findall(r"\w+", f"{kind} {owner}"))
        self.sizes[f"n_{name}"] = None
        return f"n_{name}"

    def letter(self, factor: Factor) -> str:
        """A matrix; declared where it is not defined, and so is what it abbreviates."""
        symbol, name = factor.symbol, _identifier(factor.symbol.argument)
        if "_" in symbol.label:
            raise _NotPlain(f"{symbol.text} stands outside the sum that its index is of")
        if symbol.glyph == "R":
            raise _NotPlain("rotary positions turn its rows")
        if symbol.entrywise:
            raise _NotPlain("it has products entry by entry")
        if symbol.glyph in _ABBREVIATIONS and symbol.parts:
            if name not in self.defined:
                self.defined[name] = self.spelling.product(map(self.letter, symbol.parts))
            return self.turned(name, factor.transposed)
        if symbol.glyph == "X0":
            if "X0" not in self.defined:
                self.defined["X0"] = self.spelling.product(map(self.letter, embedding()))
            return self.turned("X0", factor.transposed)
        if is_recursion(factor):
            if name not in self.defined:
                raise _NotPlain(f"{symbol.text} is not defined before it")
            return self.turned(name, factor.transposed)
        if symbol.glyph in _NORMS:
            self.symmetric[name] = None
            factor = Factor(symbol)
        self.letters[name] = self.spelling.matrix.format(self.size(symbol.row.space), self.size(symbol.col.space))
        return self.turned(name, factor.transposed)

    def turned(self, name: str, transposed: bool) -> str:
        return self.spelling.transposed.format(name) if transposed else name

    def number(self, scalar: str) -> str:
        self.numbers[scalar_argument(scalar)] = None
        return scalar_argument(scalar)

    def scaled(self, scales: tuple[str, ...], product: str) -> str:
        for scalar in reversed(scales):
            product = self.spelling.scaled.format(self.number(scalar), product)
        return product

    def text(self, expr: Expr) -> str:
        """An expression, every product and sum in parentheses; ValueError where it is not plain."""
        match expr:
            case Word():
                return self.scaled(expr.scales, self.spelling.product(map(self.letter, expr.fused)))
            case Spelled():
                return self.scaled(expr.word.scales, self.spelling.product(map(self.letter, expr.word.factors)))
            case Product():
                return self.scaled(expr.scales, self.spelling.product(map(self.text, expr.factors)))
            case Sum() if expr.terms:
                return self.spelling.joined(" + ", map(self.text, expr.terms))
            case SumOver():
                return self.text(written_out(expr, self.derivation))
            case Transposed():
                return self.spelling.transposed.format(self.text(expr.body))
            case Family():
                return self.text(expr.body)
            case Apply():
                return f"({self.operator(expr.operator)} {self.arguments(expr.arguments)})"
            case Target():
                name = _name(expr)
                if name not in self.defined:
                    raise _NotPlain(f"{expr.name} is not defined before it")
                return name
            case AlibiTerm():
                self.letters[f"alibi_{expr.head}"] = self.spelling.matrix.format(*[self.size(Space("context"))] * 2)
                return f"alibi_{expr.head}"
            case _:
                raise _NotPlain(f"it has a {type(expr).__name__}")

    def side(self, expr: Expr) -> tuple[str, str]:
        """A side of a claim, and what it is: a matrix, what acts, or a number."""
        if isinstance(expr, (Number, HeadCount, Elementary, CountOf)):
            return "number", self.numeral(expr)
        if isinstance(expr, Tensor) or (isinstance(expr, Product) and any(isinstance(f, Tensor) for f in expr.factors)):
            return "acts", self.operator(expr)
        try:
            return "matrix", self.text(expr)
        except _NotPlain:
            if isinstance(expr, (Sum, Product)) and not any(isinstance(e, Word) for e in every_node(expr)):
                return "number", self.numeral(expr)
            raise

    def statement(self, left: tuple[str, str], right: tuple[str, str]) -> str:
        """What the lemma of an equation states."""
        if (left[0] == "number") != (right[0] == "number"):
            raise _NotPlain("it equates a number and what is none")
        if left[0] == "number":
            return self.spelling.numbers_equal.format(left[1], right[1])
        if left[0] == "acts" == right[0]:
            return self.spelling.acts_alike.format(left[1], right[1])
        return f"{left[1]} = {right[1]}"

    def arguments(self, given: tuple[Expr, ...]) -> str:
        return self.text(given[0]) if len(given) == 1 else f"({', '.join(map(self.text, given))})"

    def operator(self, expr: Expr) -> str:
        """What acts on a stream, or on two: tensors, their sums, and one after the other."""
        match expr:
            case Identity():
                return self.spelling.identity
            case Tensor():
                one = self.spelling.one
                *sides, last = ((one if isinstance(slot, Identity) else self.text(slot)) for slot in expr.slots)
                return f"({' '.join(['tensor' if len(sides) == 1 else 'tensor3', *sides, last])})"
            case Sum():
                return self.spelling.joined(self.spelling.acts_plus, map(self.operator, expr.terms))
            case SumOver():
                return self.operator(written_out(expr, self.derivation))
            case Family():
                return self.operator(expr.body)
            case Product():
                found = self.spelling.joined(self.spelling.after, map(self.operator, expr.factors))
                for scalar in reversed(expr.scales):
                    found = self.spelling.acts_scaled.format(self.number(scalar), found)
                return found
            case _:
                raise _NotPlain(f"it has a {type(expr).__name__} that acts")

    def numeral(self, expr: Expr) -> str:
        """A number of terms, heads counted as the derivation was asked for."""
        match expr:
            case Number():
                return str(expr.value)
            case HeadCount():
                return str(self.derivation.frame.architecture.heads[expr.layer])
            case Sum():
                return self.spelling.joined(" + ", map(self.numeral, expr.terms))
            case Product() if not expr.scales:
                return self.spelling.joined(" * ", map(self.numeral, expr.factors))
            case Elementary():
                heads = [self.numeral(HeadCount(layer)) for layer in expr.layers]
                return self.spelling.elementary.format(expr.order, self.spelling.between.join(heads))
            case CountOf():
                words = [w for w in _words(expr.expr, self.derivation) if _counts(expr, w)]
                return self.spelling.listed.format(self.spelling.between.join(map(self.text, words)))
            case _:
                raise _NotPlain(f"it has a number of the kind {type(expr).__name__}")


def _identifier(name: str) -> str:
    return "_".join(re.findall(r"\w+", name))


def written_out(expr: Expr, derivation: Derivation) -> Expr:
    """The expression with every sum over heads written out, for the numbers of heads that were asked for."""
    architecture = derivation.frame.architecture
    if isinstance(expr, SumOver):
        terms: list[Expr] = []
        for head in architecture.layer_heads(expr.layer):
            names = {expr.index: head.label}
            shared = {**names, f"G({expr.index})": architecture.key_value(head)}
            shared |= {} if architecture.groups else {expr.index: architecture.key_value(head)}

            def leaf(word: Word, _: bool, names: dict[str, str] = names, shared: dict[str, str] = shared) -> Expr:
                scales = tuple(names.get(s, s) for s in word.scales)
                return Word(relabelled(word.factors, names, shared), scales)

            body = written_out(rebuild(expr.body, leaf), derivation)
            terms += body.terms if isinstance(body, Sum) else [body]
        if not terms:
            raise _NotPlain(f"layer {expr.layer + 1} has no heads")
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))
    if isinstance(expr, Sum):
        parts = [written_out(t, derivation) for t in expr.terms]
        opened = [
            p.terms if isinstance(p, Sum) and isinstance(t, SumOver) else (p,)
            for p, t in zip(parts, expr.terms, strict=True)
        ]
        return Sum(tuple(chain.from_iterable(opened)))
    return mapped(expr, lambda part: written_out(part, derivation))


def _words(expr: Expr, derivation: Derivation) -> list[Word]:
    """The words of a sum, multiplied out, each once for every head that its sums run over."""
    found = [flat.expr for flat in multiply_out(written_out(expr, derivation))]
    return [word for word in found if isinstance(word, Word)]


def _counts(count: CountOf, word: Word) -> bool:
    if count.order is not None and sum(orders_of_word(word)) != count.order:
        return False
    return count.composition in (None, composition_of_word(word))


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
    >>> found.defined["step 3, claim 1"], found.lemmas["step1_2_1"], found.left
    ('stream', 'W_OV_h = (W_O_h *m W_V_h)', {})
    """
    return statements(derivation, COQ)[0]


def statements(derivation: Derivation, spelling: Spelling) -> tuple[Coverage, Writer]:
    """What is stated of a derivation in a language, and what the statements are made of."""
    writer, found = Writer(derivation, spelling), Coverage()
    claims = {f"step {s.number}, claim {i}": (s, c) for s in derivation.steps for i, c in enumerate(s.claims, 1)}
    defining = {which: c for which, (s, c) in claims.items() if s.kind == "definition" and _name(c.lhs)}
    while any(_defines(which, claim, writer, found) for which, claim in defining.items()):
        pass  # a definition may be used a step before it stands
    for which, (step, claim) in claims.items():
        if which in found.defined:
            continue
        try:
            if (given := [g for g in step.check.given if g not in _SAID]) and step.check.how != "indices":
                raise _NotPlain(f"it may need what is given: {', '.join(given)}")
            if step.check.how in _HOW or claim.relation != "=":
                raise _NotPlain(_HOW.get(step.check.how, "it is an inequality"))
            sides = [writer.side(side) for side in claim.sides]
            for part, (left, right) in enumerate(pairwise(sides), 1):
                name = "step" + "_".join([*re.findall(r"\d+", which), str(part)])
                found.lemmas[name] = writer.statement(left, right)
        except _NotPlain as reason:
            found.left[which] = str(reason)
    return found, writer


def _defines(which: str, claim: Claim, writer: Writer, found: Coverage) -> bool:
    """Whether a claim defines what is not defined yet, by what is."""
    name = _name(claim.lhs)
    if name in writer.defined:
        return False
    try:
        writer.defined[name] = writer.text(claim.rhs)
    except _NotPlain:
        return False
    found.defined[which] = name
    return True


def tactic() -> str:
    """What stands at the beginning of every file: how a claim is proved."""
    return _TACTIC.read_text("utf-8")


def derivation_coq(derivation: Derivation) -> str:
    """The derivation as one file that ``coqc`` compiles, in the row convention, whatever its notation is.

    It begins with the tactic, declares sizes, matrices and numbers, has the definitions and a lemma for each plain
    claim, and asks Coq what each assumes. A comment at the end names every claim that has no lemma.
    """
    return tactic() + module(derivation)


def module(derivation: Derivation) -> str:
    """The same without the tactic, which stands before it or is imported."""
    found, writer = statements(derivation, COQ)
    unfolded = ", ".join(reversed(writer.defined)) or "id"
    lines = ["Section Derivation.", "Variable R : comRingType."]
    lines += [f"Variables ({' '.join(writer.sizes)} : nat)."] if writer.sizes else []
    lines += [f"Variable {name} : {shape}." for name, shape in writer.letters.items()]
    lines += [f"Hypothesis symmetric_{name} : {name}^T = {name}." for name in writer.symmetric]
    lines += [f"Variables ({' '.join(writer.numbers)} : R)."] if writer.numbers else []
    lines += [f"Definition {name} := {body}." for name, body in writer.defined.items()]
    for name, statement in found.lemmas.items():
        lines += [f"Lemma {name} : {statement}.", f"Proof. unfold {unfolded}; claim. Qed."]
    lines += ["End Derivation.", *(f"Print Assumptions {name}." for name in found.lemmas)]
    lines += [f"(* {len(found.lemmas)} lemmas, {len(found.defined)} definitions. Not proved here:"]
    lines += [*(f"   {claim}: {reason}" for claim, reason in found.left.items()), "*)"]
    return "\n".join(lines) + "\n"
