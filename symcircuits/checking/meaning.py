"""Turns syntax into values under one reading: the meaning of every name, script, sum and function.

A definition in the text overrides the usual meaning of a name (:mod:`symcircuits.checking.known_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction as Rational
from itertools import islice
from typing import Final

from symcircuits.checking.calls import Calls, is_letter
from symcircuits.checking.environment import Assigned, Environment
from symcircuits.checking.faults import TooLong
from symcircuits.checking.formula import MAX_WORDS, Letter, RawFactor
from symcircuits.checking.labels import Definition, Finding
from symcircuits.checking.quantities import placed
from symcircuits.checking.roles import spelling_of
from symcircuits.checking.syntax import (
    BigSum,
    Call,
    Fraction,
    Indexed,
    Name,
    Node,
    Number,
    Power,
    Product,
    Script,
    Sum,
    Text,
    Transposed,
    children,
)
from symcircuits.checking.values import IDENTITY, Chain, Value, Word, letter_value, number

__all__ = ["Meaning"]

_MAX_NESTED: Final = 40
_USE: Final = 50  # steps counted for each use of a defined name
_LAYER_LABEL: Final = re.compile(r"L\d+")  # L1 in the label (L1, h), counted from 0 as in L1H0


class Meaning(Calls):
    """Computes the values of the nodes of one text under one reading, with its free variables assigned."""

    def value(self, root: Node, env: Environment, depth: int = 0) -> Value:
        """The value of a node."""
        if depth > _MAX_NESTED:
            raise self.fault(f"sums and functions are nested more than {_MAX_NESTED} deep here", root.at)
        done: list[Value] = []
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, opened = stack.pop()
            if isinstance(node, (BigSum, Call)):
                done.append(
                    self._big_sum(node, env, depth) if isinstance(node, BigSum) else self._call(node, env, depth)
                )
                continue
            if isinstance(node, Power) or (isinstance(node, Product) and node.operator == "o"):
                done.append(
                    self._power(node, env, depth) if isinstance(node, Power) else self._entrywise(node, env, depth)
                )
                continue
            inner = children(node)
            if inner and not opened:
                stack.append((node, True))
                stack += [(child, False) for child in reversed(inner)]
                continue
            values = done[len(done) - len(inner) :]
            del done[len(done) - len(inner) :]
            done.append(self._plain(node, values, env, depth))
        return done[0]

    def _plain(self, node: Node, values: list[Value], env: Environment, depth: int) -> Value:
        match node:
            case Name():
                return self._name(node, env, depth)
            case Number():
                return number(node.value)
            case Sum():
                return self.algebra.add(self._for_every_token(values), node.signs, node.at)
            case Product():
                return self._product(node, values)
            case Transposed():
                return self.algebra.transposed(values[0], node.at)
            case Fraction():
                return self._divided(values[0], values[1], node)
            case Indexed():
                return self._indexed(values[0], node.script)
        if isinstance(node, Text):
            raise self.fault("unknown character '\"': no symbol of this model has that name in quotes", node.at)
        raise self.fault("this is not expected here", node.at)

    def _for_every_token(self, values: list[Value]) -> list[Value]:
        """Summands; a bias is repeated for every token if it is added to a value with a row (or column) for each."""
        alone = [v for v in values if len(v) == 1 and v[0].rank == 1 and self._is_bias(v[0].slots)]
        chains = [w.slots[0] for v in values if v not in alone for w in v if w.slots and w.rank == 1]
        others = {self.sizes.ends(c) for c in chains}
        names = {(c.row, c.col) for c in chains}
        row_name, col_name = next(iter(names)) if len(names) == 1 else ("", "")
        known = len(others) == len(names) == 1 and not (row_name and col_name)
        ends = next(iter(others)) if known else ("", "")
        if not alone or "token" not in ends or ends == ("token", "token"):
            return values
        columns = ends[1] == "token"
        out: list[Value] = []
        for value in values:
            if value in alone:
                [word] = value
                [chain] = word.slots or ()
                row = chain if self.sizes.ends(chain)[0] == "one" else chain.T
                if self.sizes.ends(row) == ("one", ends[0] if columns else ends[1]):
                    ones = RawFactor(Letter("ones"), word.at)
                    row = Chain((ones, *row.factors), row_name or col_name)  # of the same token
                    value = [word._replace(slots=(row.T if columns else row,))]
            out.append(value)
        return out

    def _is_bias(self, slots: tuple[Chain, ...] | None) -> bool:
        """Whether it is only a vector whose orientation was not written."""
        factors = slots[0].factors if slots else ()
        return len(factors) == 1 and factors[0].at in self.noted.loose and factors[0].letter.glyph[:2] == "b_"

    def _product(self, node: Product, values: list[Value]) -> Value:
        values = [self._column_of_ones(node, values, i) for i in range(len(values))]
        out = values[0]
        for value, factor in zip(values[1:], node.factors[1:], strict=True):
            if _is_one(factor) and self._have_one(out, 1):
                value = letter_value(Letter("ones", "", True), factor.at)  # as SymPy prints a row of ones
            out = (
                self.algebra.tensor(out, value, factor.at, len(values))
                if node.operator == "x"
                else self.algebra.times(out, value, factor.at)
            )
        return out

    def _column_of_ones(self, node: Product, values: list[Value], i: int) -> Value:
        """A factor; ``1`` before rows is a column of ones, as SymPy prints it: ``1 b^T``, the same for every token."""
        before_rows = i + 1 < len(values) and node.operator != "x" and self._have_one(values[i + 1], 0)
        if before_rows and _is_one(node.factors[i]) and not isinstance(node.factors[i], Transposed):
            return letter_value(Letter("ones"), node.factors[i].at)
        return values[i]

    def _have_one(self, value: Value, end: int) -> bool:
        """Whether all its words are rows (``end`` 0), or columns (1)."""
        chains = [w.slots[0] if w.rank == 1 and w.slots else None for w in value]
        return bool(chains) and all(c is not None and self.sizes.ends(c)[end] == "one" for c in chains)

    def _divided(self, above: Value, below: Value, node: Fraction) -> Value:
        if len(below) != 1 or below[0].slots or below[0].entries or not below[0].coefficient:
            raise self.fault("can divide only by a number: sqrt(d_head), as the score scale, or the sigma of a norm",
                             node.denominator.at)  # fmt: skip
        out = self.algebra.times(above, number(Rational(1) / Rational(below[0].coefficient)), node.at)
        if any(scale in ("δ", "√δ") for scale in below[0].scales):
            message = "the score scale is 1 / sqrt(d_head), not of another dimension"
            self.findings.append(Finding("scale", message, node.denominator.at))
        for scale in below[0].scales:
            out = self.algebra.scaled(out, scale[1:] if scale[0] == "/" else "/" + scale)
        return out

    def _power(self, node: Power, env: Environment, depth: int) -> Value:
        exponent = self.value(node.exponent, env, depth + 1)
        base = self.value(node.base, env, depth + 1)
        power = Rational(exponent[0].coefficient) if len(exponent) == 1 and not exponent[0].slots else None
        if power is not None and len(base) == 1 and base[0].slots == () and len(base[0].scales) == 1:
            scale = base[0].scales[0]
            if abs(power) == Rational(1, 2) and scale in ("d", "δ") and base[0].coefficient == 1:
                return [Word(1, ("√" + scale,) if power > 0 else ("/√" + scale,), ())]
            if power == -1:
                return [Word(1, ("/" + scale,), ())]
        if power is not None and power.denominator == 1 and 1 <= power <= 100:
            out = base
            for _ in range(int(power) - 1):
                out = self.algebra.times(out, base, node.at)
            return out
        raise self.fault("a power or superscript cannot be read here; for a transpose write ^{T} or .T", node.at)

    def _entrywise(self, node: Product, env: Environment, depth: int) -> Value:
        """``gamma o x``: a gain times the stream that it scales."""
        values = [self.value(f, env, depth + 1) for f in node.factors]
        gains = [is_letter(v, "gain") for v in values]
        if len(values) == 2 and any(gains):
            gain, x = (values[0], values[1]) if gains[0] else (values[1], values[0])
            ends = {self.sizes.ends(w.slots[0])[1] for w in x if w.slots}
            columns = ends == {"token"} or (self.reading.columns and "token" in ends)
            return self.algebra.times(gain, x, node.at) if columns else self.algebra.times(x, gain, node.at)
        raise self.fault("an entrywise product must be of a gain and what it scales", node.at)

    def _indexed(self, value: Value, script: Script) -> Value:
        """Named rows and columns of a value that is not a name."""
        parts = script.parts
        if script.kind == "super":
            raise self.fault("parentheses cannot have a label", script.at)
        if script.kind == "sub" and any(p.isdigit() for p in parts):
            raise self.fault("parentheses cannot have a number as subscript: write the layer at the symbol", script.at)
        if len(parts) == 1 and re.fullmatch(r"[a-z]{2}", parts[0]):
            parts = tuple(parts[0])
        if script.kind == "index" and any(not p.isalpha() or len(p) > 1 for p in parts):
            return self._sliced(value, parts, script.at)
        out = []
        for w in value:
            if not w.slots or len(w.slots) != 1:
                raise self.fault("indices must belong to a matrix", script.at)
            chain = w.slots[0]
            row, col = parts[0], parts[1] if len(parts) > 1 else ""
            if len(parts) == 1 and self.reading.columns:
                row, col = "", parts[0]
            named = Chain(chain.factors, row, col)
            out.append(w._replace(slots=(), entries=(*w.entries, named)) if row and col else w._replace(slots=(named,)))
        return out

    def _big_product(self, node: BigSum, env: Environment, depth: int) -> Value:
        """A product over layers, the first of its range on the left."""
        [bound] = node.bounds[:1]
        if len(node.bounds) != 1 or any(self.roles.of(name) != "layer" for name in bound.names):
            raise self.fault("a product sign must run over layers", bound.at)
        out: Value = list(IDENTITY)
        layers: Iterable[int] = range(self.reading.base, self.architecture.n_layers + self.reading.base)
        of_numbers = bound.over in ("", "layers")  # their order does not matter
        for layer in layers if of_numbers else self.layers_multiplied(bound):
            factor = self.value(node.body, env.bind(bound.names[0], layer), depth + 1)
            if of_numbers and any(w.slots != () for w in factor):
                layers = self.layers_multiplied(bound)  # an error: an order is needed
            out = self.algebra.times(out, factor, node.at)
        return out

    def _big_sum(self, node: BigSum, env: Environment, depth: int) -> Value:
        if node.product:
            return self._big_product(node, env, depth)
        bounds = [self.roles.both.get(id(bound), bound) for bound in node.bounds]
        names = [(name, bound) for bound in bounds for name in bound.names]
        positions = [name for name, _ in names if self.roles.of(name) == "position"]
        others = [(name, bound) for name, bound in names if name not in positions]
        for name, bound in names:
            if not re.fullmatch(r"[A-Za-z](?:_?\w+)?'*", name):
                raise self.fault(f"cannot read the range of this sum, {name}: write h \\in H_1, or h=1 and H",
                                 bound.at)  # fmt: skip
        assignments = list(islice(self._assignments(others, env, node.body), MAX_WORDS + 1))
        before, self.nested = self.nested, self.nested * max(len(assignments), 1)
        if self.nested > MAX_WORDS:
            raise TooLong(f"these sums have more than {MAX_WORDS:,} terms, the limit", self.source, node.at)
        values: list[Value] = []
        for assigned in assignments:
            value = self.value(node.body, assigned, depth + 1)
            for name in positions:
                value = self.algebra.over_positions(value, name)
            values.append(value)
        self.nested = before
        return self.algebra.add(values, [1] * len(values), node.at)

    def defined(self, node: Name, env: Environment, depth: int) -> Value | None:
        """The value of a name that the text defines; None for other names."""
        text, labels = spelling_of(node)
        if labels and (named := f"{text}[{','.join(labels)}]") in self.definitions:
            text, labels = named, ()
        found = self.definitions.get(text)
        if found is None or found.called:
            return None
        self.noted.used.add(text)
        self.algebra.count(_USE, 0, node.at)
        bound = env
        own = labels
        if found.parts and len(found.parts) <= len(labels):
            own = labels[len(found.parts) :]
            for part, label in zip(found.parts, labels, strict=False):
                if part != label or part in env:
                    assigned = self._assigned(label, env)
                    if assigned is not None:
                        bound = bound.bind(part, assigned)
        self._put(text, found.before)
        value = self.value(found.node, bound, depth + 1)
        self._put(text, found)
        if any(p in self.roles.positions or not re.fullmatch(r"\w+", p) for p in own):
            value = self._indexed(value, Script("index", own, node.at))
        return value

    def _put(self, name: str, definition: Definition | None) -> None:
        if definition is None:
            self.definitions.pop(name, None)
        else:
            self.definitions[name] = definition

    def _assigned(self, label: str, env: Environment) -> Assigned | None:
        """The head or number that a label means."""
        if label in env:
            return env[label]
        if re.fullmatch(r"[Ll]\d+[Hh]\d+|\d+\.\d+", label):
            return self.head_called(label, 0)
        if label.isdigit():
            return int(label)
        if _LAYER_LABEL.fullmatch(label):
            return int(label[1:]) + self.reading.base
        return self._asked(label, self.roles.of(label), env)

    def _name(self, node: Name, env: Environment, depth: int) -> Value:
        if not node.scripts or all(s.kind == "index" for s in node.scripts):
            strict = self._strict(node)
            if strict is not None:
                return strict
        found = self.defined(node, env, depth)
        if found is not None:
            return found
        if node.text in self.tokens and node.text != "t":
            return self._tokens(node)
        if self.generic and (letter := self.generic.get(spelling_of(node)[0])) is not None:
            return self._turned(letter_value(letter, node.at)) if letter.glyph == "Y" else letter_value(letter, node.at)
        if label := self.normed(node):
            return self._turned(placed(self.quantities.normed(label), node.at))
        return self._usual(node, env)


def _is_one(node: Node) -> bool:
    """Whether it is the number 1, or ``(1)^T``."""
    inner = node.inner if isinstance(node, Transposed) else node
    return isinstance(inner, Number) and inner.value == 1
