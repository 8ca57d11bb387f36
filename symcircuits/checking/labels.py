"""The head or layer that a label names, and the layers before a stream; free variables get a value.

A variable for a head or layer that no sum binds is *free*: :class:`Free` asks for its value, and the caller tries
every head that it may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from symcircuits.checking.environment import Assigned, Environment, Noted
from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import Letter
from symcircuits.checking.matching import Spelling
from symcircuits.checking.names import Names
from symcircuits.checking.quantities import Quantities
from symcircuits.checking.readings import Reading
from symcircuits.checking.roles import Roles
from symcircuits.checking.syntax import Name, Node
from symcircuits.checking.values import Algebra, Sizes, Value
from symcircuits.core.architecture import Architecture, Head, as_head
from symcircuits.core.notation import Notation
from symcircuits.core.symbols import SHARED

__all__ = ["Definition", "Finding", "Free", "Labels", "Together"]

_SPELLINGS: Final = {
    **{f"w{u}{x}": f"W_{x.upper()}" for u in ("_", "") for x in ("e", "u", "q", "k", "v", "o", "ov", "qk")},
    **{f"b{u}{x}": f"b_{x.upper()}" for u in ("_", "") for x in ("q", "k", "v", "o", "u")},
    "w_pos": "P", "w_p": "P", "w_pe": "P", "pe": "P", "e_pos": "P", "wpos": "P", "p": "P", "pos_embed": "P",
    "b_out": "b_O", "gamma": "gain", "alpha": "A", "w_unembed": "W_U", "w_embed": "W_E", "mathbbm": "ones",
}  # fmt: skip
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
)  # words for the kind of a matrix, not for its head
_LAYER_LABEL: Final = re.compile(r"L\d+")  # L1 in the label (L1, h), counted from 0 as in L1H0


class Free(Exception):
    """A free variable needs a value: a head, a layer, or the number of a head in its layer."""

    def __init__(self, name: str, role: str, at: int = 0) -> None:
        super().__init__(name)
        self.name, self.role, self.at = name, role, at


class Finding(NamedTuple):
    """A fault that does not depend on what the side is compared with."""

    mistake: str
    message: str
    at: int


class Together(NamedTuple):
    """The free variables of one equation: whether different ones are the same head.

    ``clashes``: whether one is a head that is also named by its label.
    """

    names: set[str]
    merged: bool
    clashes: bool
    at: int


class Definition(NamedTuple):
    """The definition of a name: ``parts`` are the variables of its labels or arguments."""

    node: Node
    parts: tuple[str, ...]
    called: bool = False
    before: Definition | None = None  # the meaning of the name inside its own definition


class Labels:
    """The meaning of the labels of one text under one reading, with its free variables assigned.

    ``pattern_of``: the value of a softmax (:mod:`symcircuits.checking.patterns`).
    """

    def __init__(
        self, architecture: Architecture, reading: Reading, notation: Notation, roles: Roles, source: str = "",
        *, pattern_of: Callable[..., Value],
    ) -> None:  # fmt: skip
        self.pattern_of = pattern_of
        flips = "transformerlens" if reading.weights == "transformerlens" else "row"
        self.architecture, self.reading, self.roles, self.source = architecture, reading, roles, source
        self.heads = architecture.heads  # the values of H_1, H_2, ...
        self.names = Names(architecture, Notation(flips, notation.symbols), source)
        spelling = Spelling(architecture)
        shared = {h.label: architecture.key_value(h) for h in architecture.all_heads}
        self.sizes = Sizes(spelling, shared)
        self.algebra = Algebra(self.sizes, source, reading.columns, flips == "transformerlens")
        self.quantities = Quantities(architecture, Algebra(self.sizes, source))
        self.definitions: dict[str, Definition] = {}
        self.findings: list[Finding] = []
        self.tokens: set[str] = {"t"}  # names of the input of the model
        self.opaque = False  # whether x is any stream
        self.before = 0  # the number of layers before the stream on the left-hand side
        self.every = False  # whether the question is for every number of heads
        self.generic: dict[str, Letter] = {}  # names of arbitrary patterns, weights or rows
        self.free: Mapping[str, Assigned] = {}  # the free variables
        self.together: list[Together] = []  # those of each equation
        self.nested = 1  # number of terms of the enclosing sums
        self.plain: list[int] = []  # places where the text defines W_OV or W_QK of a head correctly
        self.noted = Noted()

    def fault(self, message: str, at: int) -> ReadError:
        """An error at this place."""
        return ReadError(message, self.source, at)

    def _asked(self, name: str, role: str, env: Environment, at: int = 0) -> Assigned:
        """The value of a variable; ``l+1`` comes after ``l``, and in code layer -1 is the last."""
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
        """Record what a variable is used as; ReadError if it was used as something else."""
        before, _ = self.noted.roles.setdefault(name, (role, at))
        if {before, role} == {"layer", "number"}:
            raise self.fault(f"{name} is a layer in one place and the number of a head in another", at)

    def note(self, noted: Noted) -> None:
        """Add the records of a side."""
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
        """A number counted from the end, -1 for the last, as the text would write it."""
        if int(written) + count < 0:
            raise self.fault(f"there is no {what} {written}: there are {count}", at)
        return int(written) + count + self.reading.base

    def _remember(self, parts: Sequence[str], label: str, env: Environment) -> str:
        """Record how a head was written, to know whether different variables are the same head."""
        if all(env.get(p) is self.free.get(p) for p in parts):  # no sum binds it
            self.noted.named.setdefault(label, set()).add(tuple(parts))
        return label

    def together_in(self, names: set[str], at: int) -> Together:
        """The heads of the free variables of the equation that was read."""
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
            raise self.fault(f"{labels[0]} is a head, but a layer is expected here", at)
        return f"L{self._layer_of(written, at)}"

    def _layer_written(self, label: str, env: Environment, at: int) -> int:
        """The layer of a label of two parts, as the text counts layers."""
        if label.isdigit():
            return int(label)
        if _LAYER_LABEL.fullmatch(label):
            return int(label[1:]) + self.reading.base
        if label not in env and re.match(r"L_?\d+\D", label):
            raise self.fault(f"{label} cannot be read as the number of a layer: write (1, h) or L1", at)
        written = self._asked(label, "layer", env, at)
        if isinstance(written, Head):
            raise self.fault(f"{label} is a head, but the number of a layer is expected here", at)
        return written

    def _layer_of(self, written: Assigned, at: int) -> int:
        """The number of a layer, counted from 0."""
        layer = written.layer if isinstance(written, Head) else written - self.reading.base
        if not 0 <= layer < self.architecture.n_layers:
            raise self.fault(f"there is no layer {written}, counted from {self.reading.base}", at)
        return layer

    def _number_of(self, name: str, env: Environment, at: int) -> int:
        """The number of the layer that a variable names."""
        found = self._asked(name, "layer", env, at)
        if isinstance(found, Head):
            raise self.fault(f"{name} is a head, but the number of a layer is expected here", at)
        return found

    def _glyph(self, node: Name) -> tuple[str, tuple[str, ...]]:
        """The symbol that a name means, and its labels; an empty symbol if it is not one."""
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

    def _head(self, labels: tuple[str, ...], env: Environment, at: int, glyph: str) -> str:
        """The label of the head that a letter's labels name."""
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
                    raise self.fault("division by zero", at)
                group = n // by if found[2] == "//" else n % by
                letter = "G" if glyph in SHARED and f"L{head.layer}G{group}" in arch.key_values(head.layer) else "H"
                return f"L{head.layer}{letter}{group}"
            if found := re.fullmatch(r"G\((\w+)\)", first):
                return str(self._asked(found[1], "head", env, at))
            if _LAYER_LABEL.fullmatch(first) and first not in env:
                raise self.fault(f"{first} is a layer, but a head is expected here: write {first}H0", at)
            if not _VARIABLE.fullmatch(first) and not re.fullmatch(r"[a-z]{3,20}", first):
                return first  # the caller reports what is wrong with it
            value = self._asked(first, "head", env, at)
            return self._remember(parts, str(value) if isinstance(value, Head) else self._numbered(value, at), env)
        if any(re.fullmatch(r"[Ll]\d+[HhGg]\d+|\d+\.\d+", p) for p in parts):
            raise self.fault("a symbol has only one label, e.g. W_OV[L0H1]", at)
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
            raise self.fault(f"there is no head 0: heads are counted from {base}", at)
        index = self._layer_of(at_layer, at)
        return self._remember(parts, f"L{index}H{written - base}", env)

    def head_called(self, label: str, at: int) -> Head:
        """The head with this label; ReadError if there is none."""
        try:
            return self.architecture.head(label)
        except ValueError as fault:
            raise self.fault(str(fault), at) from None

    def _numbered(self, written: int, at: int) -> str:
        """A head given by one number: the layer if every layer has one head, the head if there is one layer."""
        arch, n = self.architecture, written - self.reading.base
        if n < 0:
            raise self.fault(f"there is no head or layer {written}, counted from {self.reading.base}", at)
        if arch.n_layers == 1:
            return f"L0H{n}"
        if max(arch.heads) == 1:
            return f"L{n}H0"
        raise self.fault(f"one number, {written}, does not say which head: write L0H{written} or (layer, head)", at)

    def point(self, node: Name, env: Environment) -> int | None:
        """The number of layers before a stream, if the name says it."""
        parts = [p for s in node.scripts for p in s.parts if p not in self.roles.positions]
        if not parts and (found := re.fullmatch(r"[xXr]_?(\d{1,9})", node.text)):
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
