"""Nodes of what a changed model gives: in another basis, at other tokens, without a head, in the runs of an algorithm.

Each knows its own value on an instance, from its definition and without the enumeration, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from symcircuits.arrays.rings import Array, transpose
from symcircuits.core.architecture import attention_only
from symcircuits.core.expansion import expand
from symcircuits.core.programs import embedding
from symcircuits.core.words import Word
from symcircuits.derivation.nodes import Expr, Sign, Special, Written, node
from symcircuits.derivation.specials import Inverse, NamedMatrix
from symcircuits.derivation.values import Bindings, Instance

__all__ = ["AtTokens", "Changed", "CountIn", "ImportanceRun", "Kept", "Rebased", "Without"]

Size = Callable[[Expr], int]
_CLOSE = Sign(")", r"\bigr)")


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Rebased(Special):
    """A target of the model whose stream is written in another basis: what writes times T, what reads times 1/T."""

    target: str
    basis: NamedMatrix

    def written(self) -> Written:
        return _run_of(self.target, "in the basis T", r"(T)")

    def value(self, at: Instance, bindings: Bindings) -> Array:
        t, inverse = self.basis.value(at, bindings), Inverse(self.basis).value(at, bindings)
        changed = {name: at.drawn[name] for head in at.architecture.all_heads for name in _weights(head.label)}
        changed |= {name: at.drawn[name] for name in ("W_E", "W_U")}
        m = at.ring.matmul
        writes = ("W_E", "W_O")
        new = {name: m(t, w) if name[:3] in writes else m(w, inverse) for name, w in changed.items()}
        return at.target_value(self.target, new)

    def size(self, of: Size) -> int:
        return 22


def _weights(label: str) -> list[str]:
    return [f"{glyph}_{label}" for glyph in ("W_Q", "W_K", "W_V", "W_O")]


def _run_of(target: str, text: str, latex: str) -> Written:
    kind, _, head = target.partition(":")
    symbol = Sign("S", "S", glyph="S") if head else Sign(kind, rf"\mathrm{{{kind}}}", glyph=kind)
    label, of = (f"[{head}]", rf"\mathrm{{{head}}}\,") if head else ("", "")
    return (symbol, Sign(label + (f" {text}" if " " in text else text), f"^{{{of}{latex}}}"))


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Changed(Special):
    """A target of the model with other matrices in place of some, ``(name, value)`` each; patterns held fixed.

    ``name`` is what the changed model is called.
    """

    target: str
    name: str
    changes: tuple[tuple[str, Expr], ...]

    def written(self) -> Written:
        return _run_of(self.target, f"({self.name})", rf"({self.name})")

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.target_value(self.target, {name: at.value(new, bindings) for name, new in self.changes})

    def size(self, of: Size) -> int:
        return 22


@node("tokens")
@dataclass(frozen=True, slots=True, repr=False)
class AtTokens(Special):
    """A target with other tokens, the patterns held fixed."""

    target: str
    tokens: Expr

    def written(self) -> Written:
        symbol = Sign(self.target, rf"\mathrm{{{self.target}}}", glyph=self.target)
        return (symbol, Sign("(", r"\bigl("), self.tokens, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.target_value(self.target, {"t": at.value(self.tokens, bindings)})

    def size(self, of: Size) -> int:
        return 12


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Without(Special):
    """A target where one head writes nothing, the patterns of all others held fixed."""

    target: str
    head: str

    def written(self) -> Written:
        return _run_of(self.target, f"without {self.head}", rf"\setminus\mathrm{{{self.head}}}")

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.target_value(self.target, {f"W_O_{self.head}": at.zero()})

    def size(self, of: Size) -> int:
        return 8


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Kept(Special):
    """A target where these heads alone write, all patterns held fixed; of scores those for queries, and for keys."""

    target: str
    sides: tuple[tuple[str, ...], ...]

    def written(self) -> Written:
        text = "|".join(",".join(side) or "none" for side in self.sides)
        sides = (",".join(rf"\mathrm{{{head}}}" for head in side) or r"\varnothing" for side in self.sides)
        return _run_of(self.target, f"({text})", f"({'|'.join(sides)})")

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.kept_value(self.target, self.sides)

    def size(self, of: Size) -> int:
        return 12


@node()
@dataclass(frozen=True, slots=True, repr=False)
class ImportanceRun(Special):
    """What run n of the term-importance algorithm gives: logits, the stream ``X_l`` or what a layer would add."""

    n: int
    what: str = "logits"
    layer: int = 0

    def written(self) -> Written:
        run = Sign(f"(run {self.n})", rf"^{{(\text{{run }}{self.n})}}")
        if self.what == "logits":
            return (Sign("logits", r"\mathrm{logits}", glyph="logits"), run)
        return (Sign(f"{self.what}{self.layer}", f"{self.what}_{{{self.layer}}}"), run)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        layers = range(at.architecture.n_layers)
        saved = [at.zero() for _ in layers]
        for _ in range(self.n):
            streams, outputs = [at.value(Word(embedding()))], []
            for layer in layers:
                outputs.append(_outputs(at, layer, streams[-1]))
                streams.append(at.ring.add(streams[-1], saved[layer]))
            saved = outputs
        if self.what == "X":
            return streams[self.layer]
        if self.what == "Y":
            return saved[self.layer - 1]
        return at.ring.matmul(streams[-1], transpose(at.drawn["W_U"]))

    def size(self, of: Size) -> int:
        return 12


def _outputs(at: Instance, layer: int, stream: Array) -> Array:
    """What the heads of a layer would write: ``sum_h A^h X W_V^T W_O^T``."""
    m, total = at.ring.matmul, at.zero()
    for h in at.labels(layer):
        values = m(stream, transpose(at.drawn[f"W_V_{h}"]))
        total = at.ring.add(total, m(m(at.drawn[f"A_{h}"], values), transpose(at.drawn[f"W_O_{h}"])))
    return total


@node()
@dataclass(frozen=True, slots=True, repr=False)
class CountIn(Special):
    """How many terms a target has, its words listed one by one and all different."""

    target: str
    heads: tuple[int, ...]
    positions: str | None = None
    biases: bool = False
    counts = True

    def written(self) -> Written:
        kind, _, head = self.target.partition(":")
        name = f"{kind}{f' of {head}' if head else ''}, heads {','.join(map(str, self.heads))}"
        name += (f", positions {self.positions}" if self.positions else "") + (", biases" if self.biases else "")
        return (Sign("N", "N", glyph="N"), Sign(f"[{name}]", rf"_{{\text{{{name}}}}}"))

    def number(self) -> int:
        arch = attention_only(self.heads, self.positions, self.biases)
        listed = [term.word for term in expand(arch, self.target)]
        if len(set(listed)) != len(listed):
            raise ValueError(f"{self.target}: a term is listed twice")
        return len(listed)
