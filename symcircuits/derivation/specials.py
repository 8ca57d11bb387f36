"""Nodes of results that are no path expansion: matrices side by side, other runs of a model, changes of basis.

Each knows its own value on an instance, from its definition and without the enumeration, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from symcircuits.arrays.elimination import eliminated
from symcircuits.arrays.elimination import inverses as inverse_of
from symcircuits.arrays.rings import Array, transpose
from symcircuits.core.architecture import attention_only
from symcircuits.core.expansion import expand
from symcircuits.core.programs import embedding
from symcircuits.core.words import Word
from symcircuits.derivation.nodes import Expr, Sign, Special, node
from symcircuits.derivation.values import Bindings, Instance

__all__ = [
    "AtTokens",
    "Beside",
    "CountIn",
    "Entrywise",
    "HeadWidth",
    "ImportanceRun",
    "Inverse",
    "Letter",
    "Masked",
    "Named",
    "Parentheses",
    "Rank",
    "Rebased",
    "Scaled",
    "SquaredNorm",
    "Without",
]  # fmt: skip

Size = Callable[[Expr], int]
Written = tuple[Sign | Expr, ...]
_OPEN, _CLOSE = Sign("(", r"\bigl("), Sign(")", r"\bigr)")


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Named(Special):
    """A name for an expression, defined in the step where it first stands.

    ``flips``: it is a matrix that reads a column, so that TransformerLens's convention names its transpose;
    ``glyph``: it is called like this symbol, whatever that is called.
    """

    text: str
    latex: str
    body: Expr
    flips: bool = False
    glyph: str = ""
    letter = True

    def written(self) -> Written:
        return (Sign(self.text, f"{{{self.latex}}}", glyph=self.glyph),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.value(self.body, bindings)

    def size(self, of: Size) -> int:
        return of(self.body)


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Parentheses(Special):
    """An expression in parentheses."""

    body: Expr

    def written(self) -> Written:
        return (_OPEN, self.body, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.value(self.body, bindings)


@node("parts")
@dataclass(frozen=True, slots=True, repr=False)
class Beside(Special):
    """Matrices side by side, ``[a | b | ...]``."""

    parts: tuple[Expr, ...]
    letter = True

    def written(self) -> Written:
        out: list[Sign | Expr] = [Sign("[", r"\bigl[\,")]
        for i, part in enumerate(self.parts):
            out += [Sign(" | ", r"\;\big|\;", breaks=True)] * bool(i) + [part]
        return (*out, Sign("]", r"\,\bigr]"))

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return np.concatenate([at.value(part, bindings) for part in self.parts], -1)

    def size(self, of: Size) -> int:
        return max(map(of, self.parts))


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Scaled(Special):
    """A scalar times an expression: a number, or a letter."""

    scalar: str
    body: Expr

    def written(self) -> Written:
        return (Sign(f"{self.scalar} * ", rf"{self.scalar}\,"), self.body)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        value = at.value(self.body, bindings)
        return at.ring.times(int(self.scalar), value) if self.scalar.isdecimal() else at.scaled((self.scalar,), value)

    def size(self, of: Size) -> int:
        return 1 + of(self.body)


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Masked(Special):
    """The entries above the diagonal put to zero: ``M o (...)``, with M the causal mask of zeros and ones."""

    body: Expr

    def written(self) -> Written:
        return (Sign("M o (", r"M\odot\bigl("), self.body, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return np.tril(at.value(self.body, bindings))


@node("left", "right")
@dataclass(frozen=True, slots=True, repr=False)
class Entrywise(Special):
    """The product of two matrices of one shape, entry by entry: ``(a o b)``."""

    left: Expr
    right: Expr

    def written(self) -> Written:
        return (_OPEN, self.left, Sign(" o ", r"\odot ", breaks=True), self.right, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.ring.times(at.value(self.left, bindings), at.value(self.right, bindings))


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class SquaredNorm(Special):
    """The sum of the squares of all entries."""

    body: Expr

    def written(self) -> Written:
        return (Sign("||", r"\bigl\|"), self.body, Sign("||^2", r"\bigr\|^{2}"))

    def value(self, at: Instance, bindings: Bindings) -> Array:
        squares = at.value(self.body, bindings) ** 2 % at.ring.p
        return np.asarray(squares.sum((-2, -1), keepdims=True) % at.ring.p)

    def size(self, of: Size) -> int:
        return 2 * of(self.body)


# ------------------------------------------------------------------------------------------- changes of basis
@node()
@dataclass(frozen=True, slots=True, repr=False)
class Letter(Special):
    """A matrix with a name; of kind ``orthogonal`` (``Q^T Q = Id``), ``diagonal``, ``centring``, or any matrix.

    ``flips``: as of :class:`Named`.
    """

    name: str
    kind: str = ""
    flips: bool = False
    letter = True

    @property
    def symmetric(self) -> bool:
        """Whether it is its own transpose."""
        return self.kind in ("diagonal", "centring")

    def written(self) -> Written:
        return (Sign(self.name, f"{{{self.name}}}"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        if self.kind == "centring":
            return at.centring()
        drawn = at.drawn[f"a matrix called {self.name}"]
        if self.kind == "diagonal":
            return drawn * np.eye(at.k, dtype=np.int64)
        if self.kind != "orthogonal":
            return drawn
        skew = (drawn - transpose(drawn)) % at.ring.p
        plus, minus = ((at.identity() + sign * skew) % at.ring.p for sign in (1, -1))
        return at.ring.matmul(minus, inverse_of(plus, at.ring.p))  # Cayley

    def size(self, of: Size) -> int:
        return 1


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Inverse(Special):
    """The inverse of a matrix with a name."""

    of: Letter

    def written(self) -> Written:
        return (Sign(f"{self.of.name}^-1", rf"{self.of.name}^{{-1}}"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return inverse_of(self.of.value(at, bindings), at.ring.p)

    def size(self, of: Size) -> int:
        return 1


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Rebased(Special):
    """A target of the model whose stream is written in another basis: what writes times T, what reads times 1/T."""

    target: str
    basis: Letter

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
    name = f"S[{head}]" if head else kind
    symbol = rf"S^{{\mathrm{{{head}}}\,{latex}}}" if head else rf"\mathrm{{{kind}}}^{{{latex}}}"
    return (Sign(f"{name} {text}" if " " in text else name + text, symbol),)


# ----------------------------------------------------------------------------------------- other runs of a model
@node("tokens")
@dataclass(frozen=True, slots=True, repr=False)
class AtTokens(Special):
    """A target with other tokens, the patterns held fixed."""

    target: str
    tokens: Expr

    def written(self) -> Written:
        return (Sign(f"{self.target}(", rf"\mathrm{{{self.target}}}\bigl("), self.tokens, _CLOSE)

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
class ImportanceRun(Special):
    """What run n of the term-importance algorithm gives: logits, the stream ``X_l`` or what a layer would add."""

    n: int
    what: str = "logits"
    layer: int = 0

    def written(self) -> Written:
        glyph = self.what if self.what == "logits" else f"{self.what}{self.layer}"
        latex = rf"\mathrm{{{glyph}}}" if self.what == "logits" else f"{self.what}_{{{self.layer}}}"
        return (Sign(f"{glyph}(run {self.n})", rf"{latex}^{{(\text{{run }}{self.n})}}"),)

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


# ------------------------------------------------------------------------------------------------------ numbers
@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Rank(Special):
    """The rank of a matrix."""

    body: Expr

    def written(self) -> Written:
        return (Sign("rank(", r"\mathrm{rank}\bigl("), self.body, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        ranks = [eliminated(matrix, at.ring.p)[1] for matrix in at.value(self.body, bindings)]
        return np.array(ranks)[:, None, None]

    def size(self, of: Size) -> int:
        return 4 * of(self.body)  # a minor of rank d_head + 1 at most 4


@node()
@dataclass(frozen=True, slots=True, repr=False)
class HeadWidth(Special):
    """``d_head``, the width of a head."""

    def written(self) -> Written:
        return (Sign("d_head", r"d_{\mathrm{head}}"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return np.full((at.trials, 1, 1), at.d_head)


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
        where = {None: "no position", "standard": "position in stream", "shortformer": "position in q, k"}
        kind, _, head = self.target.partition(":")
        name = f"{kind}{f' of {head}' if head else ''}, {where[self.positions]}" + (", biases" if self.biases else "")
        return (Sign(f"N[{name}]", rf"N_{{\text{{{name}}}}}"),)

    def number(self) -> int:
        arch = attention_only(self.heads, self.positions, self.biases)
        listed = [term.word for term in expand(arch, self.target)]
        if len(set(listed)) != len(listed):
            raise ValueError(f"{self.target}: a term is listed twice")
        return len(listed)
