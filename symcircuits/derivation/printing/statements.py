"""What is stated of a derivation in a language of proofs: which claims are plain, and how each is written.

A plain claim is an equation of sums of products of matrices, of tensors that act, or of numbers of terms. Every plain
claim is stated for matrices of any sizes, all abbreviations and the recursion defined. A language whose table
(:mod:`symcircuits.derivation.printing.spelling`) has sums over heads states them for any numbers of heads ``H_1, H_2``,
the matrices of the heads of a layer being a family, ``A_1 h_1``; where it has none they are written out, for the
numbers of heads that the derivation was asked for. A rule for any head ``h`` is stated of arbitrary matrices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Space, Symbol, Word, scalar_argument
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.claims import Claim
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.expressions import is_recursion, rebuild, relabelled
from symcircuits.derivation.multiplying import ProductTerm, composition_of_word, multiply_out, orders_of_word
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

__all__ = ["Coverage", "Writer", "statements", "written_out"]

_ABBREVIATIONS = ("W_OV", "W_QK")
_NORMS = ("D", "C", "gain")  # symmetric: no transpose of them is written
# Spaces that are told apart by their types and are of one size.
_SAME_SIZE = {"normed_context": "context"} | dict.fromkeys(
    ("normed_model", "centred_model", "scaled_model", "attention_input", "normed_input"), "model"
)
_QK = ("raw_qk", "scaled_qk", "query", "key")
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
    counts: dict[str, None] = field(default_factory=dict)  # H_1, ...
    of_heads: dict[str, None] = field(default_factory=dict)  # definitions for every head of a layer
    groups: dict[str, None] = field(default_factory=dict)  # G_1, ...: the group of a head
    layers: dict[str, int] = field(default_factory=dict)  # of the indices of the sums around what is written

    def size(self, space: Space) -> str:
        kind = _SAME_SIZE.get(space.kind, space.kind)
        owner = "" if kind in _SAME_SIZE.values() else space.owner
        index, _ = _index(owner)
        owner = str(self.layers[index] + 1) if index in self.layers else owner  # heads of a layer are of one size
        kind = "qk" if kind in _QK else kind
        name = "_".join(re.findall(r"\w+", f"{kind} {owner}"))
        self.sizes[f"n_{name}"] = None
        return f"n_{name}"

    def letter(self, factor: Factor) -> str:
        """A matrix; declared where it is not defined, and so is what it abbreviates."""
        symbol, name = factor.symbol, _identifier(factor.symbol.argument)
        index, grouped = _index(symbol.label)
        if index in self.layers:
            return self.turned(self.of_head(symbol, index, grouped), factor.transposed)
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
        self.letters[name] = self.shape(symbol)
        return self.turned(name, factor.transposed)

    def shape(self, symbol: Symbol) -> str:
        return self.spelling.matrix.format(self.size(symbol.row.space), self.size(symbol.col.space))

    def of_head(self, symbol: Symbol, index: str, grouped: bool) -> str:
        """The matrix of the head that an index of a sum is: a family, of the layer, at that number."""
        layer = self.layers[index] + 1
        name, number = f"{symbol.glyph}_{layer}", index
        if symbol.entrywise or symbol.glyph in (*_NORMS, "R"):
            raise _NotPlain(f"{symbol.text} is of a head, and no plain matrix")
        if grouped:
            self.groups[f"G_{layer}"] = None
            number = f"(G_{layer} {index})"
        if not (symbol.glyph in _ABBREVIATIONS and symbol.parts):
            self.letters[name] = f"nat -> {self.shape(symbol)}"
        elif name not in self.defined:
            body = self.spelling.product(map(self.letter, symbol.parts))
            self.defined[name] = re.sub(rf"\b{index}\b", "h", body)
            self.of_heads[name] = None
        return f"({name} {number})"

    def over(self, expr: SumOver, written: Callable[[Expr], str], pattern: str | None) -> str:
        """A sum over the heads of a layer; what was an index outside is one after it."""
        if pattern is None:
            return written(written_out(expr, self.derivation))
        outside, number = dict(self.layers), f"H_{expr.layer + 1}"
        self.counts[number] = None
        self.layers[expr.index] = expr.layer
        body, self.layers = written(expr.body), outside
        return pattern.format(expr.index, number, body)

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
                return self.scaled(expr.scales, self.turned_product(expr.fused))
            case Spelled():
                return self.scaled(expr.word.scales, self.turned_product(expr.word.factors))
            case Product():
                parts = [p for f in expr.factors for p in (f.fused if isinstance(f, Word) and not f.scales else (f,))]
                return self.scaled(expr.scales, self.turned_product(parts))
            case Sum() if expr.terms:
                return self.spelling.joined(" + ", map(self.text, expr.terms))
            case SumOver():
                return self.over(expr, self.text, self.spelling.sum_over)
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
                return self.over(expr, self.operator, self.spelling.acts_over)
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
            case HeadCount() if self.derivation.form == "generic" and self.spelling.sum_over:
                self.counts[f"H_{expr.layer + 1}"] = None
                return f"H_{expr.layer + 1}"
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
                counted = expr.expr if self.spelling.sum_over else written_out(expr.expr, self.derivation)
                return self.list_of_terms([term.expr for term in multiply_out(counted) if _counts(expr, term)])
            case _:
                raise _NotPlain(f"it has a number of the kind {type(expr).__name__}")

    def list_of_terms(self, terms: list[Expr]) -> str:
        """How many they are: the length of a list, and of one for each head where a sum over heads is around it."""
        alone = [self.text(term) for term in terms if not isinstance(term, SumOver)]
        listed = [self.spelling.listed.format(self.spelling.between.join(alone))] if alone else []
        listed += [self.listed(term) for term in terms if isinstance(term, SumOver)]
        return self.spelling.joined(" + ", listed) if listed else "0"

    def listed(self, term: Expr) -> str:
        if isinstance(term, SumOver):
            return self.over(term, self.listed, self.spelling.sum_over)
        return self.spelling.listed.format(self.text(term))

    def turned_product(self, parts: Sequence[Factor | Expr]) -> str:
        """A product; where rotary positions stand in it, of what they turn: the matrix of each token is a family."""
        for at, factor in enumerate(parts[1:-1], 1):
            if self.spelling.rotary and isinstance(factor, Factor) and factor.symbol.glyph == "R":
                self.letters[factor.symbol.argument] = f"nat -> {self.shape(factor.symbol)}"
                left, right = self.turned_product(parts[:at]), self.turned_product(parts[at + 1 :])
                return self.spelling.rotary.format(factor.symbol.argument, left, right)
        return self.spelling.product(self.letter(f) if isinstance(f, Factor) else self.text(f) for f in parts)


def _identifier(name: str) -> str:
    return "_".join(re.findall(r"\w+", name))


def _index(label: str) -> tuple[str, bool]:
    """The index in a label, and whether the label is its group: ``h_1``, ``G(h_1)``."""
    grouped = label.startswith("G(")
    return (label[2:-1] if grouped else label), grouped


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


def _counts(count: CountOf, term: ProductTerm) -> bool:
    word = Word(term.factors)
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
