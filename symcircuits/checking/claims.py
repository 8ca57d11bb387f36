"""What the lines of a text claim, under one reading and with its free variables assigned.

A claim is one side of an equation, compared with a target of the model or with the side before it, or standing alone.
A definition that another line uses is not a claim; a definition that is not used is the formula to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction as Rational
from typing import Final, Literal, NamedTuple

from symcircuits.checking.counting import interpolated, polynomial_text
from symcircuits.checking.environment import Environment, Known, Noted
from symcircuits.checking.faults import ReadError, TooLong
from symcircuits.checking.finishing import Finished, finish
from symcircuits.checking.formula import Letter
from symcircuits.checking.head_counts import degrees_of
from symcircuits.checking.labels import Definition, Finding
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.norm_ratios import grouped, norm_ratio, parted, same_up_to_transposes
from symcircuits.checking.numbers_of_heads import COUNTED, Count, is_along, is_count, is_polynomial, same_count
from symcircuits.checking.roles import spelling_of
from symcircuits.checking.syntax import (
    BigSum,
    Call,
    Document,
    Equation,
    Indexed,
    Name,
    Node,
    Product,
    children,
    nodes,
)
from symcircuits.checking.values import Value

__all__ = ["Claim", "Side", "claims_of"]

_LOGITS: Final = ("T", "logits", "ell", "Logits", "logit")
_HEADS_ADD: Final = ("Attn", "attn")  # functions: what the heads of a layer add
_MAPS: Final = ("T", "C_QK")  # names of maps
_SCORES: Final = re.compile(r"C_QK|S|scores|Scores|E|attn_scores")


class Claim(NamedTuple):
    """``kind``: ``target`` of the model; ``equal`` to another side; ``bare``, standing alone; ``count`` of terms."""

    kind: Literal["target", "equal", "bare", "count"]
    at: int
    found: Finished
    findings: tuple[Finding, ...]
    target: str | None = None
    against: Finished | None = None
    own: str = ""
    side: int = 0
    counted: Count | None = None  # a number as a polynomial in the numbers of heads
    generic: Mapping[str, Letter] = {}  # names that stand for anything, and their letters


class Side(NamedTuple):
    """A side of an equation, as read: its raw words and what is wrong with them, or why it cannot be read.

    ``order`` are the positions of rows and columns of entries, ``open`` the free positions; ``number`` is the
    value of a number of heads here, ``counted`` the value for all numbers of heads.
    """

    found: Finished | None
    findings: tuple[Finding, ...] = ()
    order: tuple[str, ...] = ()
    open: frozenset[str] = frozenset()
    fault: ReadError | None = None
    number: int = 0
    counted: Count | None = None
    noted: Noted | None = None


_NOTHING: Final = Finished((), 0, frozenset(), False, True)


class _Left(NamedTuple):
    """The meaning of a left-hand side: a target, a new name with its parts, or something with a known meaning."""

    kind: Literal["target", "own", "known"]
    text: str = ""
    parts: tuple[str, ...] = ()
    called: bool = False


def claims_of(
    document: Document, meaning: Meaning, env: Environment, code: bool = False, sides: Known[Side] | None = None
) -> list[Claim]:
    """The claims of a text, in order; ReadError where a side cannot be read in this way.

    ``sides``: the sides that were read before under the same reading, for other heads.
    """
    reader = _Reader(meaning, env, code, sides or Known())
    meaning.free = env.free
    for equation in reader.defined_elsewhere([e for line in document.lines for e in line.equations]):
        reader.define(equation)  # wherever it is in the text
    for line in document.lines:
        for equation in line.equations:
            meaning.noted.named = {}
            env.looked_up.clear()
            reader.equation(equation)
            meaning.together.append(meaning.together_in(env.looked_up & env.free.keys(), equation.at))
    used = [c for c in reader.claims if c.kind == "bare" and c.own in meaning.noted.used]
    meaning.plain = [c.at for c in used if _is_plain(c, meaning)]
    # If there are no other claims, check what each name stands for in the end, as in resid = resid + ...
    return [c for c in reader.claims if c not in used] or reader.claims[-1:]


class _Reader:
    def __init__(self, meaning: Meaning, env: Environment, code: bool, sides: Known[Side]) -> None:
        self.meaning, self.env, self.code, self.sides = meaning, env, code, sides
        self.claims: list[Claim] = []
        self.open: frozenset[str] = frozenset()  # the free positions, where they are named
        self.order: tuple[str, ...] = ()  # the positions of rows and columns of entries, where they are named

    def equation(self, equation: Equation) -> None:
        """One equation, or a formula without an equals sign."""
        first, *rest = equation.sides
        self.order, self.open = (), frozenset()
        self.scopes(equation)
        if first is None or any(side is None for side in rest):
            raise self.meaning.fault("a formula is missing here", equation.at)
        if not rest:
            self.claim("bare", first)
            return
        sides: list[Node] = [side for side in rest if side is not None]
        self.order = self.positions(first)
        self.open = frozenset(self.order)
        if isinstance(first, Name) and COUNTED.fullmatch(spelling_of(first)[0]) and not self.code:
            names = [side for side in sides if isinstance(side, Name) and COUNTED.fullmatch(spelling_of(side)[0])]
            for name in (first, *names):  # N_Q = N_K = H_1
                self.count(name, [side for side in sides if side not in names])
            if len(names) == len(sides):
                raise self.meaning.fault("a number of terms must be a number", names[-1].at)
            return
        if not self.code and all(map(is_count, (first, *sides))):
            self.numbers(first, sides)
            return
        left = self.left(first, equation.let or self.code)
        stream = first if isinstance(first, Name) and self.is_stream(first) and not self.code else None
        self.meaning.before = (self.meaning.point(stream, self.env) or 0) if stream else 0
        self.meaning.generic = _generic(first, self.meaning) if isinstance(first, Call) else {}
        if left.kind == "target":
            for i, side in enumerate(sides):
                named = self.claim("target", side, target=left.text, own="".join(left.parts))
                if named is None and i:
                    raise self.meaning.fault("a formula is missing here", side.at)
            return
        if left.kind == "own":
            self.own(left, sides)
            return
        before = self.finished(first)
        for side in sides:
            before = self.equal(side, before)

    def scopes(self, equation: Equation) -> None:
        """ReadError where a head or layer that a sum binds is used outside that sum in the same equation."""
        if self.sides.get(id(equation), self.env) is not None:
            return
        sides = [side for side in equation.sides if side is not None]
        of = self.meaning.roles.of
        bound = {n for side in sides for node in nodes(side) if isinstance(node, BigSum)
                 for b in node.bounds for n in b.names if n[0].isalpha() and of(n) != "position"}  # fmt: skip
        stack: list[tuple[Node, frozenset[str]]] = [(side, frozenset()) for side in sides if bound]
        while stack:
            node, inside = stack.pop()
            if isinstance(node, BigSum):
                inside |= {n for b in node.bounds for n in b.names}
            labels = {p for s in node.scripts for p in s.parts} if isinstance(node, Name) else set()
            if loose := (labels & bound) - inside:
                raise self.meaning.fault(f"{min(loose)} is used outside the sum over it", node.at)
            stack += [(child, inside) for child in children(node)]
        self.sides.put(id(equation), self.env, set(), Side(None))

    def defined_elsewhere(self, equations: list[Equation]) -> Iterator[Equation]:
        """Explicit definitions, and definitions of names that a line before them uses."""
        used, left = set[str](), set[str]()
        for equation in equations:
            name = self.own_name(equation)
            if equation.let or (name in used and name not in left):
                yield equation
            if self.code:
                continue
            left.add(name)
            for node in (n for side in equation.sides[1:] if side is not None for n in nodes(side)):
                found = node.function if isinstance(node, Call) else node
                used |= {spelling_of(found)[0]} if isinstance(found, Name) else set()

    def own_name(self, equation: Equation) -> str:
        """The new name that an equation defines; empty if it does not define one."""
        first = equation.sides[0]
        called = isinstance(first, Call) and isinstance(first.function, Name) and first.function.text in _HEADS_ADD
        name = first.function if called and isinstance(first, Call) else first
        if not isinstance(name, Name) or len(equation.sides) < 2 or name.text in _LOGITS:
            return ""
        text = spelling_of(name)[0]
        known = self.is_stream(name) or bool(self.meaning._glyph(name)[0]) or _SCORES.fullmatch(text)
        return "" if known and not called else text

    def define(self, equation: Equation) -> None:
        """Read a definition before anything that uses it."""
        first, *rest = equation.sides
        if isinstance(first, (Name, Call)) and rest and rest[0] is not None:
            left = self.left(first, True)
            if left.kind == "own":
                self.meaning.definitions[left.text] = Definition(rest[0], _variables(left.parts))

    # ------------------------------------------------------------------------------------------------ sides
    def finished(self, node: Node) -> tuple[Finished, tuple[Finding, ...]]:
        """The raw words of a side, and what is wrong with the side in itself; kept if it was read before."""
        meaning, env = self.meaning, self.env
        key = id(node), self.order, self.open, meaning.before, meaning.opaque, *meaning.generic.items()
        side = self.sides.get(key, env)
        if side is None:
            others = set(env.looked_up)
            env.looked_up.clear()
            before, meaning.noted = meaning.noted, Noted()
            try:
                side = self.read(node)
            except TooLong:
                raise
            except ReadError as fault:
                side = Side(None, fault=fault)
            finally:
                noted, meaning.noted = meaning.noted, before
            side = side._replace(noted=noted)
            self.sides.put(key, env, env.looked_up, side)
            env.looked_up.update(others)
        if side.noted is not None:
            meaning.note(side.noted)
        if side.found is None:
            raise side.fault or self.meaning.fault("a formula is missing here", node.at)
        self.order, self.open = side.order, side.open
        return side.found, side.findings

    def read(self, node: Node) -> Side:
        """A side that was not read before."""
        self.meaning.findings = []
        value: Value = self.meaning.value(node, self.env)
        self.order = self.order if len(self.order) == 2 else _order_of(value)
        self.leftover(value, node)
        found = finish(self.meaning, value, node.at, self.order)
        return Side(found, tuple(self.meaning.findings), self.order, self.open)

    def positions(self, left: Node | None) -> tuple[str, ...]:
        """The positions that the left-hand side names."""
        parts: list[str] = []
        if isinstance(left, Indexed):
            parts = list(left.script.parts)
        elif isinstance(left, Name):
            parts = _positions(left)
        elif isinstance(left, Call) and isinstance(left.function, Name):
            parts = _positions(left.function)
            if not set(parts) & self.meaning.roles.positions:  # h(x_i) is the row of token i
                parts = [p for a in left.arguments if isinstance(a, Name) for p in _positions(a)]
        known = self.meaning.roles.positions
        if isinstance(left, Indexed):  # the subscript of brackets is a position, even if it is used nowhere else
            known = known | {q for p in parts for q in _letters(p) if len(q) == 1 and q.isalpha()}
        return tuple(q for p in parts for q in _letters(p) if q in known)

    def leftover(self, value: Value, node: Node) -> None:
        """ReadError where the free positions are not those of the left-hand side, or differ between terms."""
        for w in value:
            left = frozenset(p for c in (*w.entries, *(w.slots or ())) for p in (c.row, c.col) if p)
            if left and self.open and left != self.open:
                said, found = (" and ".join(sorted(x)) for x in (self.open, left))
                raise self.meaning.fault(f"the free position here is {found}, not {said}", w.at or node.at)
            self.open = self.open or left

    def claim(
        self, kind: Literal["target", "bare"], node: Node, target: str | None = None, own: str = ""
    ) -> Claim | None:
        """A side that is compared with the model."""
        if composition := norm_ratio(node):
            return self.composition(*composition, own)
        found, findings = self.finished(node)
        if found.maps and target and own not in _MAPS:
            findings += (Finding("dropped-factor", (
                f"this is a map that is not applied to anything, but {target} is the result on the tokens"),
                node.at),)  # fmt: skip
        self.claims.append(Claim(kind, node.at, found, findings, target, None, own))
        return self.claims[-1]

    def equal(
        self, node: Node, before: tuple[Finished, tuple[Finding, ...]], own: str = ""
    ) -> tuple[Finished, tuple[Finding, ...]]:
        """A side that is compared with the one before it."""
        found, findings = self.finished(node)
        if found.maps != before[0].maps:
            findings += (Finding("tensor-dropped", (
                "one side is a map, the other a matrix: patterns and weights act on different indices, so the product "
                "sign (x) is required"), node.at),)  # fmt: skip
        if None not in (found.turned, before[0].turned) and found.turned != before[0].turned:
            findings += (Finding("transpose", (
                "one side has a row for each token, the other a column: one is transposed"), node.at),)  # fmt: skip
        generic = self.meaning.generic
        claim = Claim("equal", node.at, found, before[1] + findings, None, before[0], own, generic=generic)
        self.claims.append(claim)
        return found, findings

    def own(self, left: _Left, sides: list[Node]) -> None:
        """A name that the text defines: its meaning, and the claims of its sides."""
        old = self.meaning.definitions.get(left.text)
        again = old is not None and old.node is sides[0]  # it was defined before, at this place
        parts = left.parts if left.called else _variables(left.parts)
        definition = old if again and old else Definition(sides[0], parts, left.called, old)
        if left.called and left.parts:
            self.meaning.definitions[left.text] = definition
            self.called(left, sides)
            return
        try:  # on a right side the name has its earlier meaning: resid = resid + ...
            if len(sides) == 1:
                self.claim("bare", sides[0], own=left.text)
                return
            before = self.finished(sides[0])
        finally:
            self.meaning.definitions[left.text] = definition
        self.claims.append(Claim("bare", sides[0].at, *before, None, None, left.text))
        for i, side in enumerate(sides[1:], 1):
            before = self.equal(side, before)
            self.claims.append(Claim("bare", side.at, *before, None, None, left.text, i))

    def called(self, left: _Left, sides: list[Node]) -> None:
        """A function of a stream: its effect on a stream ``Y`` that stands for itself."""
        self.meaning.opaque, before = True, self.meaning.opaque
        try:
            for i, side in enumerate(sides):
                found, findings = self.finished(side)
                self.claims.append(Claim("bare", side.at, found, findings, None, None, "", i))
        finally:
            self.meaning.opaque = before

    def composition(self, above: Node, below: list[Node], own: str) -> Claim | None:
        """A composition score: the norm of a product over the norms of its factors."""
        found, findings = self.finished(above)
        factors = list(above.factors) if isinstance(above, Product) else [above]
        values = [self.finished(f)[0] for f in below]
        wanted = [self.finished(f)[0] for f in factors]
        if not same_up_to_transposes(values, wanted) and not grouped(values, found):
            findings += (
                Finding("wrong-matrix", "the norms below the line are not those of the factors above it", above.at),
            )
        elif part := parted(found):
            findings += (Finding("dropped-factor", (
                f"a composition score uses the whole W_QK = W_Q.T @ W_K and W_OV = W_O @ W_V: {part[0]} is here "
                f"without {part[1]}"), above.at),)  # fmt: skip
        self.claims.append(Claim("bare", above.at, found, findings, None, None, own))
        return self.claims[-1]

    def count(self, left: Name, sides: list[Node]) -> None:
        """Numbers of terms: ``N_1 = H_1 + H_2 = 4``."""
        kind = spelling_of(left)[0].partition("_")[2]
        for side in sides:
            total = self.counts(side)
            target = next((c.target for c in reversed(self.claims) if c.target), None)
            self.claims.append(Claim("count", side.at, _NOTHING, (), target, None, kind, total.number, total.counted))

    def numbers(self, first: Node, sides: list[Node]) -> None:
        """Numbers of heads: ``H_1 + H_2 = 4``."""
        before = self.counts(first)
        for side in sides:
            here, wrong = self.counts(side), tuple[Finding, ...]()
            if here.number != before.number:
                wrong = (Finding("count", f"it is {before.number:,}, not {here.number:,}", side.at),)
            elif here.counted and before.counted and not same_count(here.counted, before.counted):
                shown = " and ".join(polynomial_text(*one) for one in (before.counted, here.counted))
                said = f"these are equal for these numbers of heads, but not for all: {shown}"
                wrong = (Finding("count", said, side.at),)
            before = here
            self.claims.append(Claim("equal", side.at, _NOTHING, wrong, None, _NOTHING))

    def counts(self, node: Node) -> Side:
        """The value of a side with numbers of heads, here and for all numbers of heads."""
        key, env = ("counts", id(node)), self.env
        side = self.sides.get(key, env)
        if side is None:
            others = set(env.looked_up)
            env.looked_up.clear()
            side = Side(None, number=self.number(node), counted=self.polynomial(node))
            self.sides.put(key, env, env.looked_up, side)
            env.looked_up.update(others)
        return side

    def polynomial(self, node: Node) -> Count | None:
        """A number as a polynomial in the numbers of heads; None for a plain number if the model's are given.

        None too if it is not made of numbers of heads by sums, products and powers.
        """
        names = [n for n in nodes(node) if isinstance(n, Name)]
        definitions = {name: d.node for name, d in self.meaning.definitions.items()}
        if not (names or self.meaning.every) or not is_polynomial(node, definitions, 0):
            return None
        given = self.meaning.architecture.heads
        degrees = degrees_of(node, len(given), definitions)
        if is_along(node, definitions, 0):
            points = [range(1, sum(degrees) + 2)]
            found = interpolated(lambda n: self.number(node, tuple(n[0] * bool(g) for g in given)), points)
            return Count(found, along=True) if found is not None else None
        points = [range(1, d + 2) if n else range(1) for d, n in zip(degrees, given, strict=True)]
        found = interpolated(lambda heads: self.number(node, heads), points)
        return Count(found) if found is not None else None

    def number(self, node: Node, heads: tuple[int, ...] | None = None) -> int:
        """The value of an expression in numbers of heads; ``heads``: other numbers than the model's."""
        meaning = self.meaning
        meaning.heads, before = heads or meaning.heads, meaning.heads
        try:
            value = meaning.value(node, self.env)
        finally:
            meaning.heads = before
        if any(w.slots or w.entries or w.scales for w in value):
            raise self.meaning.fault("a number of terms must be a number", node.at)
        total = sum(Rational(w.coefficient) for w in value)
        if total.denominator != 1:
            raise self.meaning.fault("a number of terms must be a whole number", node.at)
        return int(total)

    # --------------------------------------------------------------------------------------------- left sides
    def left(self, node: Node, defines: bool) -> _Left:
        """The meaning of a left-hand side."""
        if isinstance(node, Indexed) and isinstance(node.inner, Call):  # head(x)_i
            node = node.inner
        if isinstance(node, Call) and isinstance(node.function, Name):
            return self.applied(node, node.function)
        if not isinstance(node, Name):
            return _Left("known")
        text, labels = spelling_of(node)
        own = tuple(p for p in labels if p not in self.meaning.roles.positions)
        if node.text in _LOGITS and (text in _LOGITS or set(_positions(node)) <= self.meaning.roles.positions):
            return _Left("target", "logits", ("T",) if node.text == "T" else ())
        if text == "stream":
            return _Left("target", "stream")
        if _SCORES.fullmatch(text) and not (self.code and not own):
            if any(len(p) > 2 and p.isalpha() for p in own) or (not own and labels):
                return _Left("own", text)
            head = self.meaning._head(own, self.env, node.at, "W_Q")
            parts = ("C_QK",) if text == "C_QK" else ()  # it may be only the weights
            return _Left("target", f"scores:{self.meaning.head_called(head, node.at)}", parts)
        if self.is_stream(node) and not defines:
            point = self.meaning.point(node, self.env)
            if point == self.meaning.architecture.n_layers and point:
                return _Left("target", "stream")
            return _Left("known") if point is not None else _Left("own", text)
        if (text in self.meaning.definitions or self.meaning.normed(node)) and not defines:
            return _Left("known")
        entry = any(q in self.meaning.roles.positions for p in _positions(node) for q in (p, *p))
        if entry and not self.is_stream(node) and node.text not in ("A", "q", "k", "v"):
            return _Left("own", text, own)  # entries of a new name, s_{ij}
        if own and not _variables(own):
            text += "[" + ",".join(own) + "]"
        glyph, rest = self.meaning._glyph(node)
        if glyph and not defines and node.text[:5] not in ("tilde", "hat W") and "->" not in "".join(rest):
            return _Left("known")
        return _Left("own", text, own)

    def is_stream(self, node: Name) -> bool:
        """Whether a name is the stream after some number of layers."""
        stream = node.text in ("x", "X") or (node.text in ("r", "resid") and not self.meaning.names.knows(node.text))
        return bool(stream and node.scripts) or bool(re.fullmatch(r"[xXr]_?\d+", node.text))

    def applied(self, node: Call, function: Name) -> _Left:
        """``T(t)``, ``h(x)``, ``Attn(X)``."""
        arguments = [a.text for a in node.arguments if isinstance(a, Name)]
        if function.text in _LOGITS:
            for argument in arguments:
                self.meaning.tokens.add(argument)
            return _Left("target", "logits")
        if function.text in (*_HEADS_ADD, "LN", "MLP"):
            return _Left("own", function.text)
        if len(arguments) == len(node.arguments) == 1:
            return _Left("own", function.text, tuple(arguments), called=True)
        return _Left("known")


def _is_plain(claim: Claim, meaning: Meaning) -> bool:
    """Whether a definition defines ``W_OV`` or ``W_QK`` of a head."""
    words = [meaning.sizes.spelling.fuse(w.letters) for w in claim.found.words]
    if len(words) != 1 or len(words[0]) != 1 or claim.findings:
        return False
    [letter] = words[0]
    turned = letter.glyph == "W_OV" and meaning.algebra.flips
    return letter.glyph in ("W_OV", "W_QK") and letter.transposed == turned


def _generic(left: Call, meaning: Meaning) -> dict[str, Letter]:
    """Of ``(A_q (x) A_k (x) W)(x, y)``: names for any patterns, any weights and any rows."""
    if isinstance(left.function, Name) or len(left.arguments) != 2:
        return {}
    found: dict[str, Letter] = {}
    for argument in left.arguments:
        if not isinstance(argument, Name) or argument.scripts or meaning.names.knows(argument.text):
            return {}
        found[argument.text] = Letter("Y", argument.text)
    slots = left.function.factors if isinstance(left.function, Product) and left.function.operator == "x" else ()
    for i, slot in enumerate(slots):
        if isinstance(slot, Name) and slot.text not in ("I", "Id") and not meaning.names.knows(spelling_of(slot)[0]):
            found[spelling_of(slot)[0]] = Letter("A" if i < 2 else "W_OV", slot.text + "".join(_positions(slot)))
    return found


def _letters(part: str) -> tuple[str, ...]:
    return tuple(part) if re.fullmatch(r"[a-z]{2}", part) else (part,)


def _order_of(value: Value) -> tuple[str, ...]:
    """The positions of rows and columns of entries."""
    return next(((c.row, c.col) for w in value for c in (*w.entries, *(w.slots or ())) if c.row and c.col), ())


def _variables(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of a defined name that are variables."""
    return tuple(p for p in parts if re.fullmatch(r"[a-z](?:_?\w{1,2})?'*", p))


def _positions(node: Name) -> list[str]:
    return [p for s in node.scripts for p in s.parts]
