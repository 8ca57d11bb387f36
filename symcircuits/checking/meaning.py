"""Syntax under one reading becomes values: what every name, script, sum and function stands for.

A head or layer that is named by a variable which no sum binds is *free*: :class:`Free` asks for it, and whoever reads
the text tries every head it may be. What a text defines beats the usual meaning of a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction as Rational
from itertools import islice
from typing import Final, NamedTuple

from symcircuits.checking.environment import Assigned, Environment, Noted
from symcircuits.checking.faults import ReadError, TooLong
from symcircuits.checking.formula import MAX_WORDS, Letter, RawFactor
from symcircuits.checking.matching import Spelling
from symcircuits.checking.names import Names
from symcircuits.checking.quantities import Quantities, placed
from symcircuits.checking.readings import Reading
from symcircuits.checking.syntax import (
    BigSum,
    Bound,
    Call,
    Document,
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
    nodes,
)
from symcircuits.checking.values import IDENTITY, Algebra, Chain, Sizes, Value, Word, letter_value, number
from symcircuits.core.architecture import FINAL, Architecture, Head, as_head
from symcircuits.core.notation import Notation
from symcircuits.core.symbols import ANY_OWNER, SHARED, labelled_by

__all__ = ["Definition", "Finding", "Free", "Meaning", "Roles", "Together", "spelling_of"]

PatternOf = Callable[["Meaning", Value, str, int], Value]  # of scores, an axis, and where they stand

_HEADED: Final = labelled_by("head", "group")
_LAYERED: Final = ("b_O", "mlp", "rest")
_NORMED: Final = labelled_by("norm")
_SPELLINGS: Final = {
    **{f"w{u}{x}": f"W_{x.upper()}" for u in ("_", "") for x in ("e", "u", "q", "k", "v", "o", "ov", "qk")},
    **{f"b{u}{x}": f"b_{x.upper()}" for u in ("_", "") for x in ("q", "k", "v", "o", "u")},
    "w_pos": "P", "w_p": "P", "w_pe": "P", "pe": "P", "e_pos": "P", "wpos": "P", "p": "P", "pos_embed": "P",
    "b_out": "b_O", "gamma": "gain", "alpha": "A", "w_unembed": "W_U", "w_embed": "W_E", "mathbbm": "ones",
}  # fmt: skip
_STREAMS: Final = ("x", "X", "r", "resid")
_OF_TOKENS: Final = (*_STREAMS, "q", "k", "v", "z", "o", "logits", "logit")  # what has a row for each token
_IDENTITY: Final = ("I", "Id", "id")
_VARIABLE: Final = re.compile(r"[A-Za-z](?:_?\w{1,3})?'*")
_ADJECTIVES: Final = (
    "attn",
    "attention",
    "circuit",
    "comp",
    "direct",
    "eff",
    "effective",
    "full",
    "heads",
    "total",
    "virtual",
)  # words that say what kind of matrix it is, not of which head
_DIMENSION: Final = re.compile(r"d(?:_?\w+)?|n|N|n_ctx|H|T")
_OF_HEADS: Final = ("d_k", "d_h", "d_head", "d_qk", "d_q", "d_key", "d_heads", "dk", "dh", "dhead")
_NORMS: Final = ("LN", "RMSNorm", "LayerNorm")
_MAX_NESTED: Final = 40
_USE: Final = 50  # steps that the use of a defined name counts for
_ALL_HEADS: Final = re.compile(r"|\^?H|heads?|allheads")
_HEADS_OF: Final = re.compile(r"(?:H|heads?)[_^]?\(?(\d+|[a-z])\)?")
_HOW_MANY: Final = r"(?:H|n_?[hH]|N_?[hH]|(?:n|N|num)_?heads?|\|H\|)"
_TO_THE_LAST: Final = re.compile(rf"(?:1|\^)\.\.{_HOW_MANY}|0\.\.{_HOW_MANY}-1")
_TO_THE_LAST_OF: Final = re.compile(r"1\.\.(?:H|n)_\(?(\d+|[a-gi-z])\)?|0\.\.(?:H|n)_\(?(\d+|[a-gi-z])\)?-1")
_HOW_MANY_LAYERS: Final = r"(?:L|[nN]_?[lL]|(?:n|N|num)_?layers?|[nN])"
_TO_THE_LAST_LAYER: Final = re.compile(rf"[1^]\.\.{_HOW_MANY_LAYERS}|0\.\.{_HOW_MANY_LAYERS}-1")
_OPEN_RANGE: Final = re.compile(
    r"|\^?H|(?:all)?heads?|[1^]?\.\.(?![Hn]_)\w+|0\.\.(?![Hn]_)\w+-1|\d+\.\.\d+"
)  # not H_1, which says of which layer
_LAYER_LABEL: Final = re.compile(r"L\d+")  # L1 in the label (L1, h), counted from 0 as in L1H0


class Free(Exception):
    """A variable that nothing binds: a head, a layer, or the number of a head in its layer."""

    def __init__(self, name: str, role: str, at: int = 0) -> None:
        super().__init__(name)
        self.name, self.role, self.at = name, role, at


class Finding(NamedTuple):
    """What is wrong whatever it is compared with."""

    mistake: str
    message: str
    at: int


class Together(NamedTuple):
    """The free variables of one equation: whether different ones stand for one head.

    ``clashes``: whether one stands for a head that is called by its label as well.
    """

    names: set[str]
    merged: bool
    clashes: bool
    at: int


class Definition(NamedTuple):
    """What a name was said to be: ``parts`` are the variables of its labels or arguments."""

    node: Node
    parts: tuple[str, ...]
    called: bool = False
    before: Definition | None = None  # what the name stood for in its own definition


def spelling_of(node: Name) -> tuple[str, tuple[str, ...]]:
    """What a name is told by, its subscript with it, and its labels.

    >>> spelling_of(Name("tilde W", 0, (Script("sub", ("U",), 0), Script("super", ("h",), 0))))
    ('tilde W_U', ('h',))
    """
    subs = [s.parts for s in node.scripts if s.kind == "sub"]
    text, labels = node.text, list[str]()
    for parts in subs:
        words = [p for p in parts[1:] if re.fullmatch(r"[a-z]{3,}", p)]
        text += "_" + ",".join([parts[0], *words]) if parts else ""
        labels += [p for p in parts[1:] if p not in words]
    for s in node.scripts:
        labels += s.parts if s.kind != "sub" else ()
    return text, tuple(labels)


# ------------------------------------------------------------------------------------------------------- roles
class Roles:
    """What the variables of a text stand for: positions, layers, numbers of heads; all others for heads."""

    def __init__(self, document: Document) -> None:
        self.positions: set[str] = set()
        self.layers: set[str] = {"l", "L", "ell"}
        self.numbers: set[str] = set()
        self.counted = False  # whether layers or heads are given by numbers
        self.bounds: list[Bound] = []
        names = [n for line in document.lines for e in line.equations for side in e.sides if side is not None
                 for n in nodes(side)]  # fmt: skip
        for n in names:
            if isinstance(n, BigSum):
                self.bounds += n.bounds
                for b in n.bounds:
                    self.layers |= set(re.findall(r"H_([a-z])\b", b.over))
                    self.layers |= {*b.names, b.over[1:]} - {""} if b.over[:1] == "<" and b.over[1:2] != "=" else set()
                    self.counted |= bool(re.search(r"H[_^]?\(?\d|^\d+\.\.\d+$", b.over))
        for _ in range(2):
            for n in names:
                if isinstance(n, Name):
                    self._name(n)
        self.positions -= self.layers

    def _name(self, node: Name) -> None:
        for s in node.scripts:
            parts = s.parts
            if node.text in ("A", "alpha", "a", "e", "S", "s", "P", "E", "attn") and s.kind != "super":
                split = tuple(parts[0]) if len(parts) == 1 and re.fullmatch(r"[a-z]{2}", parts[0]) else parts
                if len(split) == 2 and all(re.fullmatch(r"[a-gi-km-z]|dst|src", p) for p in split):
                    self.positions |= set(split)
            elif node.text == "R" and s.kind == "sub":
                self.positions |= {x for p in parts for x in re.findall(r"(?<!\w)[a-z](?!\w)", p)}
            elif node.text in _OF_TOKENS and s.kind != "super" and len(parts) == 1:
                if re.fullmatch(r"[A-Za-z][+-]\d", parts[0]):
                    self.layers.add(parts[0][0])
                elif re.fullmatch(r"[a-kmnp-z]", parts[0]) and parts[0] not in self.layers:
                    self.positions.add(parts[0])
            if len(parts) == 2 and s.kind != "sub" and not set(parts) <= self.positions:
                if parts[0].isdigit() and (parts[1].isdigit() or _VARIABLE.fullmatch(parts[1])):
                    self.counted = True
                elif re.fullmatch(r"[a-z](?:[+-]\d)?'?", parts[0]) and re.fullmatch(r"[a-z]\w?'?", parts[1]):
                    self.layers.add(re.sub(r"[+-]\d", "", parts[0]))
                    self.numbers.add(parts[1])
            elif len(parts) == 1 and parts[0].isdigit() and node.text in ("A", "W", "W_OV"):
                self.counted = self.counted or s.kind == "super"

    def of(self, name: str) -> str:
        """The role of a variable."""
        for role in ("position", "layer", "number"):
            if name in getattr(self, role + "s"):
                return role
        return "head"

    @property
    def open_ranges(self) -> bool:
        """Whether a sum over heads leaves its range out, or calls it all the same."""
        return any(_OPEN_RANGE.fullmatch(b.over) for b in self.bounds if any(self.of(n) == "head" for n in b.names))


# ----------------------------------------------------------------------------------------------------- meaning
class Meaning:
    """The values of the nodes of one text under one reading, with its free variables assigned.

    ``pattern_of``: what a softmax of a value is (:mod:`symcircuits.checking.patterns`).
    """

    def __init__(
        self, architecture: Architecture, reading: Reading, notation: Notation, roles: Roles, source: str = "",
        *, pattern_of: PatternOf,
    ) -> None:  # fmt: skip
        self.pattern_of = pattern_of
        flips = "transformerlens" if reading.weights == "transformerlens" else "row"
        self.architecture, self.reading, self.roles, self.source = architecture, reading, roles, source
        self.heads = architecture.heads  # how many heads H_1, H_2, ... are
        self.names = Names(architecture, Notation(flips, notation.symbols), source)
        spelling = Spelling(architecture)
        shared = {h.label: architecture.key_value(h) for h in architecture.all_heads}
        self.sizes = Sizes(spelling, shared)
        self.algebra = Algebra(self.sizes, source, reading.columns, flips == "transformerlens")
        self.quantities = Quantities(architecture, Algebra(self.sizes, source))
        self.definitions: dict[str, Definition] = {}
        self.findings: list[Finding] = []
        self.tokens: set[str] = {"t"}  # the names of what the model is applied to
        self.opaque = False  # whether x stands for itself
        self.before = 0  # after how many layers the stream is that stands on the left
        self.every = False  # whether it is asked for every number of heads
        self.generic: dict[str, Letter] = {}  # names that stand for any pattern, weights or rows
        self.free: Mapping[str, Assigned] = {}  # the free variables
        self.together: list[Together] = []  # those that each equation asked for
        self.nested = 1  # terms of the sums around
        self.plain: list[int] = []  # where the text defines W_OV or W_QK of a head as it is
        self.noted = Noted()

    def fault(self, message: str, at: int) -> ReadError:
        """An error at this place."""
        return ReadError(message, self.source, at)

    # ------------------------------------------------------------------------------------------------- nodes
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
        raise self.fault("this cannot stand here", node.at)

    def _for_every_token(self, values: list[Value]) -> list[Value]:
        """Summands, a bias for every token where it is added to what has a row (or a column) for each."""
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
        """Whether it is a vector whose orientation was not written, and nothing else."""
        factors = slots[0].factors if slots else ()
        return len(factors) == 1 and factors[0].at in self.noted.loose and factors[0].letter.glyph[:2] == "b_"

    def _product(self, node: Product, values: list[Value]) -> Value:
        out = values[0]
        for value, factor in zip(values[1:], node.factors[1:], strict=True):
            if isinstance(factor, Number) and factor.value == 1 and self._ends_in_one(out):
                value = letter_value(Letter("ones", "", True), factor.at)  # as SymPy prints a row of ones
            out = (
                self.algebra.tensor(out, value, factor.at, len(values))
                if node.operator == "x"
                else self.algebra.times(out, value, factor.at)
            )
        return out

    def _ends_in_one(self, value: Value) -> bool:
        """Whether all of it are columns."""
        chains = [w.slots[0] if w.rank == 1 and w.slots else None for w in value]
        return bool(chains) and all(c is not None and self.sizes.ends(c)[1] == "one" for c in chains)

    def _divided(self, above: Value, below: Value, node: Fraction) -> Value:
        if len(below) != 1 or below[0].slots or below[0].entries or not below[0].coefficient:
            raise self.fault("only numbers divide: the score scale as sqrt(d_head), or the sigma of a norm",
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
        raise self.fault("a power or superscript cannot be read here; ^{T} and .T transpose", node.at)

    def _entrywise(self, node: Product, env: Environment, depth: int) -> Value:
        """``gamma o x``: a gain times what it scales."""
        values = [self.value(f, env, depth + 1) for f in node.factors]
        gains = [_is_letter(v, "gain") for v in values]
        if len(values) == 2 and any(gains):
            gain, x = (values[0], values[1]) if gains[0] else (values[1], values[0])
            ends = {self.sizes.ends(w.slots[0])[1] for w in x if w.slots}
            columns = ends == {"token"} or (self.reading.columns and "token" in ends)
            return self.algebra.times(gain, x, node.at) if columns else self.algebra.times(x, gain, node.at)
        raise self.fault("an entrywise product is read only of a gain and what it scales", node.at)

    def _indexed(self, value: Value, script: Script) -> Value:
        """Named rows and columns of what is not a name."""
        parts = script.parts
        if script.kind == "super":
            raise self.fault("a label cannot stand on parentheses", script.at)
        if script.kind == "sub" and any(p.isdigit() for p in parts):
            raise self.fault("a number below parentheses cannot be read: write the layer at the symbol", script.at)
        if len(parts) == 1 and re.fullmatch(r"[a-z]{2}", parts[0]):
            parts = tuple(parts[0])
        if script.kind == "index" and any(not p.isalpha() or len(p) > 1 for p in parts):
            return self._sliced(value, parts, script.at)
        out = []
        for w in value:
            if not w.slots or len(w.slots) != 1:
                raise self.fault("indices stand on a matrix", script.at)
            chain = w.slots[0]
            row, col = parts[0], parts[1] if len(parts) > 1 else ""
            if len(parts) == 1 and self.reading.columns:
                row, col = "", parts[0]
            named = Chain(chain.factors, row, col)
            out.append(w._replace(slots=(), entries=(*w.entries, named)) if row and col else w._replace(slots=(named,)))
        return out

    def _sliced(self, value: Value, parts: Sequence[str], at: int) -> Value:
        """Rows and columns taken of a matrix in code: those of tokens are ``t M t^T``, all others the matrix itself."""
        t = Chain((RawFactor(Letter("t"), at),))
        out = []
        for w in value:
            if not w.slots or len(w.slots) != 1:
                raise self.fault("only matrices are sliced", at)
            chain = w.slots[0]
            row, col = self.sizes.ends(chain)
            if parts and "token" in parts[0] and row == "input":
                chain = Chain(t.factors + chain.factors)
            if len(parts) > 1 and "token" in parts[1] and col == "input":
                chain = Chain(chain.factors + t.T.factors)
            out.append(w._replace(slots=(chain,)))
        return out

    # ------------------------------------------------------------------------------------------------- sums
    def _big_sum(self, node: BigSum, env: Environment, depth: int) -> Value:
        names = [(name, bound) for bound in node.bounds for name in bound.names]
        positions = [name for name, _ in names if self.roles.of(name) == "position"]
        others = [(name, bound) for name, bound in names if name not in positions]
        for name, bound in names:
            if not re.fullmatch(r"[A-Za-z](?:_?\w+)?'*", name):
                raise self.fault(f"what this sum runs over cannot be read, {name}: write h \\in H_1, or h=1 and H",
                                 bound.at)  # fmt: skip
        assignments = list(islice(self._assignments(others, env, node.body), MAX_WORDS + 1))
        before, self.nested = self.nested, self.nested * max(len(assignments), 1)
        if self.nested > MAX_WORDS:
            raise TooLong(
                f"these sums have more than {MAX_WORDS:,} terms, the most that are read", self.source, node.at
            )
        values: list[Value] = []
        for assigned in assignments:
            value = self.value(node.body, assigned, depth + 1)
            for name in positions:
                value = self.algebra.over_positions(value, name)
            values.append(value)
        self.nested = before
        return self.algebra.add(values, [1] * len(values), node.at)

    def _assignments(self, names: Sequence[tuple[str, Bound]], env: Environment, body: Node) -> Iterator[Environment]:
        if not names:
            yield env
            return
        name, bound = names[0]
        if any(self.roles.of(n) == "layer" and i for i, (n, _) in enumerate(names)):  # layers before their heads
            i = next(i for i, (n, _) in enumerate(names) if self.roles.of(n) == "layer")
            if self.roles.of(name) != "layer":
                names = [names[i], *names[:i], *names[i + 1 :]]
                name, bound = names[0]
        for value in self._range(name, bound, env, body):
            yield from self._assignments(names[1:], env.bind(name, value), body)

    def _range(self, name: str, bound: Bound, env: Environment, body: Node) -> list[Assigned]:
        if self.roles.of(name) == "layer":
            return list(self._layers_in(name, bound, env))
        named, alone = self._layers_named(name, body, env)
        values: list[Assigned] = []
        for part in bound.over.split("|") if not bound.over.startswith(("0..|", "1..|")) else [bound.over]:
            values += self._heads_in(part, bound, env, named, alone)
        return values

    def _layers_in(self, name: str, bound: Bound, env: Environment) -> range:
        """The numbers of the layers that a sum over layers runs over, as they are written."""
        over, base, layers = bound.over, self.reading.base, self.architecture.n_layers
        if over[:1] == "<":  # l_1 < l_2, or l < m
            place = bound.names.index(name)
            first = base if not place else self._number_of(bound.names[place - 1], env, bound.at) + 1
            last = self._number_of(over[1:], env, bound.at) if over[1:] else layers + base
            return range(first, last)
        if over in ("", "layers") or _TO_THE_LAST_LAYER.fullmatch(over):
            if over[:1].isdigit() and int(over[0]) != base:
                raise self.fault(f"layers are counted from {base} in this reading", bound.at)
            return range(base, layers + base)
        if not (found := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", over)):
            raise self.fault(f"a sum over layers cannot run over {over!r}: write l=1 and L, or numbers", bound.at)
        first, last = int(found[1]), int(found[2])
        if first < base or last > layers - 1 + base:
            raise self.fault(f"there are no layers {first} to {last}, counted from {base}", bound.at)
        return range(first, last + 1)

    def _number_of(self, name: str, env: Environment, at: int) -> int:
        """The number of a layer by its variable."""
        found = self._asked(name, "layer", env, at)
        if isinstance(found, Head):
            raise self.fault(f"{name} is a head, where the number of a layer stands", at)
        return found

    def _layers_named(self, name: str, body: Node, env: Environment) -> tuple[set[int | None], bool]:
        """The layers in whose labels a number of a head stands, ``(2, h)``, and whether it stands alone too.

        None stands for a layer that is bound in the body.
        """
        inner = {n for sum_ in nodes(body) if isinstance(sum_, BigSum) for b in sum_.bounds for n in b.names}
        named: set[int | None] = set()
        alone = False
        for node in nodes(body):
            if not isinstance(node, Name):
                continue
            labels = [p for p in _split(self._glyph(node)[1]) if p != ":" and p not in self.roles.positions]
            if labels[:1] == [name]:
                alone = True
            elif labels[1:2] == [name]:
                if labels[0] in inner:
                    named.add(None)
                else:
                    named.add(self._layer_of(self._layer_written(labels[0], env, node.at), node.at))
        return named, alone

    def _layer_written(self, label: str, env: Environment, at: int) -> int:
        """The layer of a label of two parts, counted as the text counts."""
        if label.isdigit():
            return int(label)
        if _LAYER_LABEL.fullmatch(label):
            return int(label[1:]) + self.reading.base
        if label not in env and re.match(r"L_?\d+\D", label):
            raise self.fault(f"{label} cannot be read as the number of a layer: write (1, h) or L1", at)
        written = self._asked(label, "layer", env, at)
        if isinstance(written, Head):
            raise self.fault(f"{label} is a head, where the number of a layer stands", at)
        return written

    def _heads_in(
        self, over: str, bound: Bound, env: Environment, named: set[int | None], alone: bool
    ) -> list[Head] | list[int]:
        """What a part of a range is: heads, or numbers of heads where they stand for heads of several layers."""
        arch, base = self.architecture, self.reading.base
        own = _HEADS_OF.fullmatch(over) if not _ALL_HEADS.fullmatch(over) else None
        own = own or (_TO_THE_LAST_OF.fullmatch(over) if not _TO_THE_LAST.fullmatch(over) else None)
        if own:
            layer = next(g for g in own.groups() if g)
            written = int(layer) if layer.isdigit() else env.get(layer)
            if written is None:
                raise Free(layer, "layer")
            return list(arch.layer_heads(self._layer_of(written, bound.at)))
        counted = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", over)
        if not counted and not _ALL_HEADS.fullmatch(over) and not _TO_THE_LAST.fullmatch(over):
            raise self.fault(f"a sum over heads cannot run over {over!r}: write h \\in H_1, h=1 and H, or numbers",
                             bound.at)  # fmt: skip
        layers: list[int] = sorted(n for n in named if n is not None)
        if len(named) > 1 or None in named:
            if alone:
                raise self.fault("one variable stands for heads of several layers and for a head alone: "
                                 "write the layer at each", bound.at)  # fmt: skip
            counts = {arch.heads[n] for n in (range(arch.n_layers) if None in named else layers)}
            if len(counts) > 1:
                raise self.fault("one variable cannot stand for heads of layers with different numbers of heads: "
                                 "write a sum for each layer", bound.at)  # fmt: skip
            numbers = range(counts.pop())
            return [n + base for n in (self._counted(counted, len(numbers), bound.at) if counted else numbers)]
        if not layers and arch.n_layers > 1 and (counted or not self.reading.spread) and self.before:
            layers = [self.before - 1]  # what is added to the stream before it
        if not layers and arch.n_layers > 1 and (counted or not self.reading.spread):
            layer_ = env.get("@layer")
            if layer_ is None:
                raise Free("@layer", "layer")
            layers = [self._layer_of(layer_, bound.at)]
        if not layers and arch.n_layers != 1:
            return list(arch.all_heads)
        heads = list(arch.layer_heads(layers[0] if layers else 0))
        return [heads[n] for n in self._counted(counted, len(heads), bound.at)] if counted else heads

    def _counted(self, found: re.Match[str], count: int, at: int) -> range:
        """The numbers ``1..3`` as places among so many heads, counted from 0."""
        first, last = int(found[1]), int(found[2])
        if (first, last) in ((0, count - 1), (1, count)):
            return range(count)
        base = self.reading.base
        if first < base or last >= count + base:
            raise self.fault(f"there are no heads {first} to {last} of {count}, counted from {base}", at)
        return range(first - base, last - base + 1)

    def _layer_of(self, written: Assigned, at: int) -> int:
        """The number of a layer, counted from 0."""
        layer = written.layer if isinstance(written, Head) else written - self.reading.base
        if not 0 <= layer < self.architecture.n_layers:
            raise self.fault(f"there is no layer {written}, counted from {self.reading.base}", at)
        return layer

    # ------------------------------------------------------------------------------------------------- names
    def defined(self, node: Name, env: Environment, depth: int) -> Value | None:
        """The value that the text gave a name, if it did."""
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
        """The head or number that a label is."""
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

    def normed(self, node: Name) -> str:
        """The label of the norm out of which ``Y^{L0}`` comes, as derivations print it; empty for all other names."""
        labels = [p for s in node.scripts for p in s.parts]
        printed = node.text == "Y" and len(labels) == 1 and self.architecture.norm
        known = [f"L{layer}" for layer in range(self.architecture.n_layers)] + [FINAL] * self.architecture.unembed
        return labels[0] if printed and labels[0] in known and "Y" not in self.definitions else ""

    def _strict(self, node: Name) -> Value | None:
        """A symbol as it is printed in text: a known name, with the label of a head, layer or norm in brackets."""
        labels = [p for s in node.scripts for p in s.parts]
        text, _, owner = node.text.rpartition("_")
        known = self.names.knows(node.text) or (
            self.names.knows(text) and re.fullmatch(r"L\d+\w*|M\d+|final\w*|[QK]\w+", owner)
        )
        if not known or node.text in self.definitions or len(node.scripts) > 1 or len(labels) > 1:
            return None
        glyph = self.names.glyph(node.text)
        if labels and not re.fullmatch(r"[LlMmQqKk]\d\w*|[QK][Ll]\d+\w*|final\w*|\d+\.\d+", labels[0]):
            return None
        if not labels and glyph in (*_HEADED, *_LAYERED, *_NORMED, "r") and glyph != "C":
            return None
        return self._letter(node.text, labels[0] if labels else None, node.at)

    def _letter(self, name: str, label: str | None, at: int, row: str = "", col: str = "") -> Value:
        found = self.names.letter(name, label, at)
        if isinstance(found, str):
            return [Word(1, (found,), ())]
        if self.reading.weights == "linear" and found.glyph == "W_E":
            found = found.T
        if self.reading.columns and self.sizes.of(found)[0] == "token" and found.glyph not in ("A", "D"):
            found, row, col = found.T, col, row
        return letter_value(found, at, row, col)

    def _tokens(self, node: Name) -> Value:
        row = next((p for s in node.scripts for p in s.parts if p in self.roles.positions), "")
        return self._letter("t", None, node.at, row)

    def _glyph(self, node: Name) -> tuple[str, tuple[str, ...]]:
        """The symbol that a name stands for, and its labels; no symbol where it is not one."""
        text, labels = node.text, [p for s in node.scripts if s.kind != "sub" for p in s.parts]
        below = [p for s in node.scripts if s.kind == "sub" for p in s.parts]
        quoted = [p for p in labels if p[:1] in "'\""]
        if quoted:  # first['w_o']
            return self._known(quoted[0].strip("'\"")), (text, *[p for p in labels if p not in quoted])
        if below:
            joined = self._known(f"{text}_{below[0]}")
            if joined:
                return joined, (*below[1:], *labels)
        return self._known(text), (*below, *labels)

    def _known(self, name: str) -> str:
        glyph = self.names.glyph(name)
        if glyph:
            return glyph
        usual = _SPELLINGS.get(name.lower(), "")
        if name not in (name.lower(), name.upper()) and name[2:] not in ("pos", "PE", "embed", "unembed", "out"):
            return ""
        return usual if name.lower() != "p" or name == "P" else ""

    def _usual(self, node: Name, env: Environment) -> Value:
        """What a name stands for where the text does not define it."""
        glyph, labels = self._glyph(node)
        positions = tuple(p for p in _split(labels) if p in self.roles.positions)
        turned = text_is_rotation(node) and (positions or (labels and not re.fullmatch(ANY_OWNER, labels[0])))
        if turned and self.architecture.positions == "rotary":
            return self._rotation(node, labels, env)
        if glyph and not (node.text in ("a", "r", "M") and glyph not in ("A",) and not self.names.knows(node.text)):
            return self._symbol(node, glyph, labels, positions, env)
        text = node.text
        if text in _IDENTITY:
            return list(IDENTITY)
        if text in _STREAMS or (text == "h" and positions) or re.fullmatch(r"[xX]_?\d+", text):
            return self._stream(node, env)
        if text in ("q", "k", "v", "z") and labels:
            return self._side(node, labels, positions, env)
        if text == "a" and labels:
            return self._head_output(node, labels, env)
        if text == "H":
            return self._number_of_heads(node, env)
        if text == "sigma":
            return [Word(1, ("σ",), ())]
        if _DIMENSION.fullmatch(spelling_of(node)[0]) and text[:1] == "d":
            if spelling_of(node)[0] == "d":
                raise self.fault("d alone does not say which dimension: write d_head", node.at)
            return [Word(1, ("d" if spelling_of(node)[0] in _OF_HEADS else "δ",), ())]
        return self._letter(spelling_of(node)[0], labels[0] if labels else None, node.at)

    def _number_of_heads(self, node: Name, env: Environment) -> Value:
        """``H_1``, how many heads a layer has, and its powers."""
        below = [p for s in node.scripts if s.kind == "sub" for p in s.parts]
        above = [p for s in node.scripts if s.kind == "super" for p in s.parts]
        if not below:
            if len(set(self.heads)) != 1:
                raise self.fault("H does not say of which layer: write H_1", node.at)
            heads = self.heads[0]
        else:
            written = int(below[0]) if below[0].isdigit() else self._asked(below[0], "layer", env, node.at)
            first = 1 if below[0].isdigit() else self.reading.base
            layer = written.layer if isinstance(written, Head) else written - first
            if not 0 <= layer < self.architecture.n_layers:
                raise self.fault(f"there is no layer {below[0]}", node.at)
            heads = self.heads[layer]
        if above and not (len(above) == 1 and above[0].isdigit() and len(above[0]) < 3):
            raise self.fault("this power of a number of heads cannot be read", node.at)
        return number(heads ** int(above[0]) if above else heads)

    def _symbol(
        self, node: Name, glyph: str, labels: tuple[str, ...], positions: tuple[str, ...], env: Environment
    ) -> Value:
        at = node.at
        if glyph[:2] == "b_" or glyph == "P" or node.text == "mathbbm":
            self.noted.loose.add(at)
        own = tuple(p for p in labels if not any(q in self.roles.positions for q in _split((p,))))
        if glyph == "scale" and not own and node.text in ("scale", "s"):
            return [Word(1, ("/√d",), ())]
        name = next((n for n in (node.text, spelling_of(node)[0]) if self.names.glyph(n) == glyph), glyph)
        if not self.names.knows(name):
            name = next((n for n in ("OV", "QK", "W_pos") if self.names.glyph(n) == glyph), name)
        if glyph in _HEADED or glyph == "R" or glyph == "scale":
            head = self._head(own, env, at, glyph)
            row, col = (*positions, "", "")[:2] if glyph == "A" else ("", "")
            return self._closed(self._letter(name, head, at, row, col))
        if glyph in _LAYERED and (own or glyph != "rest"):
            return self._letter(name, self._layer_label(own, env, at), at)
        if glyph in _NORMED:
            label = own[0] if own else "?"
            if label == "?":
                return self._of_norm(glyph, at)
            return self._letter(name, label, at)
        if glyph == "r":
            return self._letter(name, own[0] if own else None, at)
        sliced = tuple(p for s in node.scripts if s.kind == "index" for p in s.parts)
        if glyph in ("P", "W_E", "W_U", "t", "X0") and own == sliced:
            row = positions[0] if positions else ""
            value = self._letter(name, None, at, row if glyph in ("P", "t", "X0") else "")
            return self._sliced(value, sliced, at) if sliced and not positions else value
        if glyph == "X0" and positions:
            return self._letter(name, None, at, positions[0])
        return self._letter(name, own[0] if own else None, at)

    def _closed(self, value: Value) -> Value:
        """An entry, where both ends of a chain are named."""
        return [
            w._replace(slots=(), entries=w.slots) if w.slots and w.slots[0].row and w.slots[0].col else w for w in value
        ]

    def _of_norm(self, glyph: str, at: int) -> Value:
        """A gain whose norm is told by what stands beside it."""
        if not self.names.knows(glyph):
            self.names.letter(glyph, None, at)
        return letter_value(Letter(glyph, "?"), at)

    def _head(self, labels: tuple[str, ...], env: Environment, at: int, glyph: str) -> str:
        """The label of the head that the labels of a letter name."""
        arch, base = self.architecture, self.reading.base
        parts = [p for p in labels if p not in _ADJECTIVES or p in env]
        said = ("@head", *[p for p in labels if p in _ADJECTIVES and p not in env])
        parts = [p for p in parts if p != ":"]
        if not parts:
            if sum(arch.heads) == 1:
                return str(arch.all_heads[0])
            label = str(self._asked("@head", "head", env, at))
            return self._remember(said, label, env) if len(said) > 1 else label
        first = parts[0]
        if len(parts) == 1:
            if re.fullmatch(r"[Ll]\d+[HhGg]\d+", first):
                return self._remember(parts, first, env)
            if re.fullmatch(r"\d+\.\d+", first):
                return str(as_head(first))
            if first.isdigit():
                return self._remember(parts, self._numbered(int(first), at), env)
            if found := re.fullmatch(r"(\w+'*)(//|%)(\d+)", first):
                head = self._asked(found[1], "head", env, at)
                if not isinstance(head, Head):
                    raise self.fault(f"{first} is not the name of a head", at)
                n, by = head.number, int(found[3])
                if not by:
                    raise self.fault("a division by zero", at)
                group = n // by if found[2] == "//" else n % by
                letter = "G" if glyph in SHARED and f"L{head.layer}G{group}" in arch.key_values(head.layer) else "H"
                return f"L{head.layer}{letter}{group}"
            if found := re.fullmatch(r"G\((\w+)\)", first):
                return str(self._asked(found[1], "head", env, at))
            if _LAYER_LABEL.fullmatch(first) and first not in env:
                raise self.fault(f"{first} is a layer, where a head stands: write {first}H0", at)
            if not _VARIABLE.fullmatch(first) and not re.fullmatch(r"[a-z]{3,20}", first):
                return first  # an error will say what is wrong with it
            value = self._asked(first, "head", env, at)
            return self._remember(parts, str(value) if isinstance(value, Head) else self._numbered(value, at), env)
        if any(re.fullmatch(r"[Ll]\d+[HhGg]\d+|\d+\.\d+", p) for p in parts):
            raise self.fault("a second label: a symbol has one, e.g. W_OV[L0H1]", at)
        layer, number_ = parts[0], parts[1]
        if len(parts) > 2:
            raise self.fault(f"a head has a layer and a number, not {len(parts)} labels", at)
        at_layer = self._layer_written(layer, env, at)
        if re.fullmatch(r"-\d{1,9}", number_):
            count = arch.heads[self._layer_of(at_layer, at)]
            return f"L{self._layer_of(at_layer, at)}H{self._from_end(number_, count, 'head', at) - base}"
        written = int(number_) if number_.isdigit() else self._asked(number_, "number", env, at)
        if isinstance(written, Head):
            if written.layer != self._layer_of(at_layer, at):
                raise self.fault(f"{number_} is a head of layer {written.layer + base}, not of layer "
                                 f"{at_layer}: write a variable for each layer", at)  # fmt: skip
            return self._remember(parts, str(written), env)
        start = 0 if any(s.isdigit() and int(s) == 0 for s in (layer, number_)) else base
        if layer.isdigit() and number_.isdigit() and start != base:
            raise self.fault(f"there is no number 0 where heads are counted from {base}", at)
        index = self._layer_of(at_layer, at)
        return self._remember(parts, f"L{index}H{written - base}", env)

    def head_called(self, label: str, at: int) -> Head:
        """The head of that label; ReadError where there is none."""
        try:
            return self.architecture.head(label)
        except ValueError as fault:
            raise self.fault(str(fault), at) from None

    def _numbered(self, written: int, at: int) -> str:
        """A head by one number: of its layer where every layer has one head, its own where there is one layer."""
        arch, n = self.architecture, written - self.reading.base
        if n < 0:
            raise self.fault(f"there is no number {written}, counted from {self.reading.base}", at)
        if arch.n_layers == 1:
            return f"L0H{n}"
        if max(arch.heads) == 1:
            return f"L{n}H0"
        raise self.fault(f"one number, {written}, does not say which head: write L0H{written} or (layer, head)", at)

    def _asked(self, name: str, role: str, env: Environment, at: int = 0) -> Assigned:
        """What a variable stands for; ``l+1`` comes after ``l``, and in code layer -1 is the last."""
        if name not in env:
            if role == "layer" and re.fullmatch(r"-\d{1,9}", name):
                return self._from_end(name, self.architecture.n_layers, "layer", at)
            if found := re.fullmatch(r"([^\W\d]\w*'*)([+-]\d{1,9})", name):
                value = self._asked(found[1], role, env, at)
                if isinstance(value, Head):
                    raise self.fault(f"{found[1]} is a head, so {name} does not say which", at)
                return value + int(found[2])
            if not re.fullmatch(r"@?[^\W\d]\w*'*", name):
                raise self.fault(f"{name[:40]!r} does not say which {'head' if role == 'number' else role}", at)
            raise Free(name, role, at)
        self._as(name, role, at)
        return env[name]

    def _as(self, name: str, role: str, at: int) -> None:
        """Note what a variable is asked for; ReadError where it was asked for something else."""
        before, _ = self.noted.roles.setdefault(name, (role, at))
        if {before, role} == {"layer", "number"}:
            raise self.fault(f"{name} stands for a layer in one place and for the number of a head in another", at)

    def note(self, noted: Noted) -> None:
        """Add what was noted of a side."""
        own = self.noted
        for name, (role, at) in noted.roles.items():
            self._as(name, role, at)
        for label, ways in noted.named.items():
            own.named.setdefault(label, set()).update(ways)
        own.used |= noted.used
        own.streams |= noted.streams
        own.loose |= noted.loose
        own.unscaled |= noted.unscaled

    def _from_end(self, written: str, count: int, what: str, at: int) -> int:
        """A number counted from the last, -1, as it would be written."""
        if int(written) + count < 0:
            raise self.fault(f"there is no {what} {written}: there are {count}", at)
        return int(written) + count + self.reading.base

    def _remember(self, parts: Sequence[str], label: str, env: Environment) -> str:
        """Keep how a head was written, to tell whether different variables stand for one head."""
        if all(env.get(p) is self.free.get(p) for p in parts):  # no sum binds it
            self.noted.named.setdefault(label, set()).add(tuple(parts))
        return label

    def together_in(self, names: set[str], at: int) -> Together:
        """How the free variables of the equation that was read stand for heads."""
        free = [{way: not self.free.keys().isdisjoint(way) for way in ways} for ways in self.noted.named.values()]
        merged = any(len(ways) > 1 and any(ways.values()) for ways in free)
        return Together(names, merged, any(set(ways.values()) == {True, False} for ways in free), at)

    def _layer_label(self, labels: tuple[str, ...], env: Environment, at: int) -> str:
        if labels and re.fullmatch(r"[LlMm]\d+|[^\W\d]{3,}", labels[0]):
            return labels[0]
        if not labels:
            if self.architecture.n_layers == 1:
                return "L0"
            return f"L{self._layer_of(self._asked('@layer', 'layer', env, at), at)}"
        written = int(labels[0]) if labels[0].isdigit() else self._asked(labels[0], "layer", env, at)
        if isinstance(written, Head):
            raise self.fault(f"{labels[0]} is a head, where a layer stands", at)
        return f"L{self._layer_of(written, at)}"

    # ----------------------------------------------------------------------------------------- what a run has
    def point(self, node: Name, env: Environment) -> int | None:
        """After how many layers a stream is meant, where it says so; -1 for one of its own."""
        parts = [p for s in node.scripts for p in s.parts if p not in self.roles.positions]
        if not parts and (found := re.fullmatch(r"[xX]_?(\d{1,9})", node.text)):
            return int(found[1])
        if not parts:
            return None
        part = parts[0]
        if part in ("L", "n_L", "final", "n_layers"):
            return self.architecture.n_layers
        if part.isdigit():
            return int(part)
        if found := re.fullmatch(r"([A-Za-z])([+-]\d)?", part):
            self.noted.streams.add(found[1])
            value = self._asked(found[1], "layer", env, node.at)
            number_ = value.layer + self.reading.base if isinstance(value, Head) else value
            return number_ + int(found[2] or 0)
        raise self.fault(f"{part} is not the number of a layer", node.at)

    def _stream(self, node: Name, env: Environment) -> Value:
        row = next((p for s in node.scripts for p in _split(s.parts) if p in self.roles.positions), "")
        point = self.point(node, env)
        if point is None:
            if self.opaque:
                return self._turned(letter_value(Letter("Y"), node.at, row))
            point = 0 if self.architecture.n_layers <= 1 else None
        if point is None:
            written = self._asked("@layer", "layer", env, node.at)
            point = self._layer_of(written, node.at)
        return self._at_point(point, node.at, row)

    def _at_point(self, point: int, at: int, row: str = "") -> Value:
        if not 0 <= point <= self.architecture.n_layers:
            raise self.fault(f"there is no stream after {point} layers: the model has {self.architecture.n_layers}", at)
        return self._turned(placed(self.quantities.stream(point), at, row))

    def _turned(self, value: Value) -> Value:
        """What has a row for each token, as this reading has it."""
        return self.algebra.transposed(value, 0) if self.reading.columns else value

    def _side(self, node: Name, labels: tuple[str, ...], positions: tuple[str, ...], env: Environment) -> Value:
        own = tuple(p for p in labels if p not in self.roles.positions)
        head = self.head_called(self._head(own, env, node.at, "W_Q"), node.at)
        row = positions[0] if positions else ""
        if node.text in "qk":
            value = placed(self.quantities.side(head, node.text == "k"), node.at, row)
            if self.architecture.positions == "rotary":
                value = self._rotated(value, node.at, row, str(head))
            return self._turned(value)
        value = self.quantities.averaged(head) if node.text == "z" else self.quantities.values(head)
        return self._turned(placed(value, node.at, row))

    def _rotated(self, value: Value, at: int, row: str, head: str) -> Value:
        turn = Letter("R", f"{head}@{row}")
        return [
            w._replace(slots=tuple(Chain((*c.factors, RawFactor(turn, at)), c.row) for c in w.slots or ()))
            for w in value
        ]

    def _rotation(self, node: Name, labels: tuple[str, ...], env: Environment) -> Value:
        """``R_m``, or ``R_{n-m}``, which is ``R_m^T R_n``; both act on columns. ``R_{L1H0, i}`` acts on row i."""
        own = tuple(p for p in labels if re.fullmatch(ANY_OWNER, p)
                    or not set(re.findall(r"[a-z]", p)) <= self.roles.positions)  # fmt: skip
        head = self._head(own, env, node.at, "W_Q")
        part = next((p for p in labels if p not in own), "")
        pair = re.fullmatch(r"([a-z])-([a-z])", part)
        if pair:
            return letter_value(Letter("R", f"{head}@{pair[2]}-{pair[1]}"), node.at)
        value = letter_value(Letter("R", f"{head}@{part}"), node.at)
        rows = any(re.fullmatch(ANY_OWNER, p) for p in own)  # as the shaped expressions of the SymPy layer print it
        return value if rows and not self.reading.columns else self.algebra.transposed(value, node.at)

    def _head_output(self, node: Name, labels: tuple[str, ...], env: Environment) -> Value:
        head = self.head_called(self._head(labels, env, node.at, "A"), node.at)
        return self._turned(placed(self.quantities.head(head), node.at))

    # ---------------------------------------------------------------------------------------------- functions
    def _call(self, node: Call, env: Environment, depth: int) -> Value:
        function = node.function
        name = function.text if isinstance(function, Name) else ""
        arguments = node.arguments
        defined = self.definitions.get(name)
        if defined is not None and defined.called:
            return self._applied(defined, name, node, env, depth)
        if name == "einsum":
            return self._einsum(node, env, depth)
        if name in _NORMS and self.architecture.norm and len(arguments) == 1:
            return self._normed_stream(node, env)
        values = [self.value(a, env, depth + 1) for a in arguments]
        if not name or defined is not None or (len(values) == 2 and name not in ("FactoredMatrix", "inner")):
            if len(values) != 2:
                map_ = self.value(function, env, depth + 1)
                return self.algebra.times(map_, values[0], node.at) if values else map_
            return self.algebra.bilinear(self.value(function, env, depth + 1), values[0], values[1], node.at)
        if name == "FactoredMatrix" and len(values) == 2:
            return self.algebra.times(values[0], values[1], node.at)
        if name == "sqrt" and len(values) == 1:
            return self._root(values[0], node)
        if name == "inner" and len(values) == 2:
            turned = [self.algebra.transposed(values[i], node.at) for i in (0, 1)]
            pair = (turned[0], values[1]) if self.reading.columns else (values[0], turned[1])
            return self.algebra.times(*pair, node.at)
        if name == "diag" and len(values) == 1 and _is_letter(values[0], "gain"):
            return values[0]
        if name in ("sigma", "rms", "std") and len(values) == 1:
            return [Word(1, (f"σ{self._norm_of(arguments[0], env)}",), ())]
        if name == "softmax" and values:
            return self._softmax(values[0], node)
        if name == "norm" and values:
            return [Word(1, (f"‖{node.at}‖",), ())]
        if name == "transpose" and values:
            return self.algebra.transposed(values[0], node.at)
        if name in env and isinstance(env[name], Head) and len(values) == 1:
            return self._turned(self.quantities.head(env[name], self._turned(values[0])))  # type: ignore[arg-type]
        if name == "h" and len(values) == 1:
            head = self._asked(name, "head", env, node.at)
            assert isinstance(head, Head)
            return self._turned(self.quantities.head(head, self._turned(values[0])))
        found = self.value(function, env, depth + 1) if isinstance(function, Name) else []
        return self.algebra.times(found, values[0], node.at) if values else found

    def _applied(self, defined: Definition, name: str, node: Call, env: Environment, depth: int) -> Value:
        """A function that the text defined: its argument is put in, and its name is a head where the body has it so."""
        self.noted.used.add(name)
        before = {p: self.definitions.get(p) for p in defined.parts}
        for part, argument in zip(defined.parts, node.arguments, strict=False):
            if isinstance(argument, Name) and argument.text == part and not argument.scripts:
                continue
            self.definitions[part] = Definition(argument, ())
        value = self.value(defined.node, env, depth + 1)
        for part, old in before.items():
            if old is None:
                self.definitions.pop(part, None)
            else:
                self.definitions[part] = old
        return value

    def _root(self, value: Value, node: Call) -> Value:
        if (
            len(value) == 1
            and value[0].slots == ()
            and value[0].scales in (("d",), ("δ",))
            and value[0].coefficient == 1
        ):
            return [Word(1, ("√" + value[0].scales[0],), ())]
        raise self.fault("only the root of a dimension, sqrt(d_head), is read", node.at)

    def _normed_stream(self, node: Call, env: Environment) -> Value:
        """``LN(X_1)``: what comes out of the norm that reads a stream; its scale is frozen."""
        [stream] = node.arguments
        point = self.point(stream, env) if isinstance(stream, Name) and stream.text in ("x", "X") else None
        if point is None or not isinstance(stream, Name):
            raise self.fault("a norm is read of a stream after a number of layers, LN(X_1)", node.at)
        layers = self.architecture.n_layers
        if not 0 <= point <= layers or (point == layers and not self.architecture.unembed):
            raise self.fault(f"no norm reads a stream after {point} layers: the model has {layers}", node.at)
        label = FINAL if point == layers else self.architecture.norm_label(point)
        row = next((p for s in stream.scripts for p in _split(s.parts) if p in self.roles.positions), "")
        return self._turned(placed(self.quantities.normed(label), node.at, row))

    def _norm_of(self, node: Node, env: Environment) -> str:
        """Which norm the sigma of a stream belongs to; ``!`` for something that is not a stream."""
        if isinstance(node, Name) and node.text in _STREAMS:
            point = self.point(node, env)
            if point == self.architecture.n_layers:
                return "final"
            if point is not None and point < self.architecture.n_layers and point > 0:
                return f"L{point}"
            if point is None:
                return ""
        return "!"

    def _softmax(self, value: Value, node: Call) -> Value:
        """The pattern of the head whose scores these are."""
        scripts = node.function.scripts if isinstance(node.function, Name) else ()
        if len(scripts) > 1 or any(s.kind != "sub" or len(s.parts) != 1 for s in scripts):
            raise self.fault("of the labels of softmax only the index that it runs over is read", node.at)
        if len(node.arguments) != 1:
            raise self.fault("softmax is read of scores alone, without further arguments", node.at)
        return self.pattern_of(self, value, scripts[0].parts[0] if scripts else "", node.at)

    def _einsum(self, node: Call, env: Environment, depth: int) -> Value:
        """A chain of matrices, written by the names of their indices; an index that all heads share is left aside."""
        pattern = next((a for a in node.arguments if isinstance(a, Text)), None)
        operands = [a for a in node.arguments if not isinstance(a, Text)]
        left, arrow, right = (pattern.text if pattern else "").partition("->")
        if not arrow or not operands:
            raise self.fault("einsum needs its pattern, e.g. 'h k m, h n k -> h m n'", node.at)
        rows = [_indices(part) for part in left.split(",")]
        wanted = _indices(right)
        if len(rows) != len(operands):
            raise self.fault(f"einsum has {len(operands)} matrices, but its pattern names {len(rows)}", node.at)
        shared = {
            i
            for i in wanted
            if sum(i in r for r in rows) >= 1 and len(wanted) > 2 and any(len(r) > 2 and r[0] == i for r in rows)
        }
        wanted = [i for i in wanted if i not in shared]
        edges = [
            ([i for i in r if i not in shared], self.value(o, env, depth + 1))
            for r, o in zip(rows, operands, strict=True)
        ]
        if len(wanted) != 2 or any(len(r) != 2 for r, _ in edges):
            raise self.fault("only an einsum that is a chain of matrices is read", node.at)
        at, out = wanted[0], list(IDENTITY)
        while edges:
            i = next((i for i, (r, _) in enumerate(edges) if at in r), None)
            if i is None:
                raise self.fault("only an einsum that is a chain of matrices is read", node.at)
            ends, value = edges.pop(i)
            out = self.algebra.times(out, value if ends[0] == at else self.algebra.transposed(value, node.at), node.at)
            at = ends[1] if ends[0] == at else ends[0]
        if at != wanted[1]:
            raise self.fault("only an einsum that is a chain of matrices is read", node.at)
        return out


def _indices(text: str) -> list[str]:
    words = text.split()
    return list(words[0]) if len(words) == 1 and len(words[0]) > 1 and "_" not in words[0] else words


def text_is_rotation(node: Name) -> bool:
    """Whether a name is a rotation by its subscript: ``R_m``, ``R_{n-m}``."""
    return node.text == "R" and any(s.kind == "sub" for s in node.scripts)


def _is_letter(value: Value, glyph: str) -> bool:
    return len(value) == 1 and bool(value[0].slots) and [f.letter.glyph for f in value[0].slots[0].factors] == [glyph]  # type: ignore[index]


def _split(parts: Sequence[str]) -> tuple[str, ...]:
    """Two indices that stand side by side as two."""
    return tuple(q for p in parts for q in (p if re.fullmatch(r"[a-z]{2}", p) else (p,)))
