"""Nodes of results that are not path expansions: matrices with names, side by side, masked, inverted; their numbers.

Each knows its own value on an instance, from its definition and without the enumeration, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from symcircuits.arrays.elimination import eliminated
from symcircuits.arrays.elimination import inverses as inverse_of
from symcircuits.arrays.rings import Array, transpose
from symcircuits.derivation.nodes import Expr, Sign, Special, Written, node
from symcircuits.derivation.values import Bindings, Instance

__all__ = [
    "Beside", "Difference", "Entrywise", "HeadWidth", "Inverse", "Kronecker", "Masked", "Named", "NamedMatrix",
    "Parentheses", "Rank", "Ratio", "Scaled", "SquaredNorm", "Trace", "Vectorised", "Zero",
]  # fmt: skip

Size = Callable[[Expr], int]
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


@node("left", "right")
@dataclass(frozen=True, slots=True, repr=False)
class Kronecker(Special):
    """The Kronecker product of two matrices: blocks ``left[i, a] right``."""

    left: Expr
    right: Expr

    def written(self) -> Written:
        return (Sign("kron(", r"\mathrm{kron}\bigl("), self.left, Sign(", ", r",\;"), self.right, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        a, w = (at.value(side, bindings) for side in (self.left, self.right))
        blocks = at.ring.times(a[:, :, None, :, None], w[:, None, :, None, :])
        return np.asarray(blocks).reshape(at.trials, at.k**2, at.k**2)


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Vectorised(Special):
    """A matrix as one column: its rows one after the other, or its columns."""

    body: Expr
    by: str = "rows"

    def written(self) -> Written:
        return (Sign(f"vec_{self.by}(", rf"\mathrm{{vec}}_{{\text{{{self.by}}}}}\bigl("), self.body, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        value = at.value(self.body, bindings)
        value = value if self.by == "rows" else transpose(value)
        return value.reshape(at.trials, at.k**2, 1)


@node("left", "right")
@dataclass(frozen=True, slots=True, repr=False)
class Difference(Special):
    """``left - right``; a sum on the right stands in parentheses."""

    left: Expr
    right: Expr

    def written(self) -> Written:
        return (self.left, Sign(" - ", " - ", breaks=True), self.right)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return np.asarray((at.value(self.left, bindings) - at.value(self.right, bindings)) % at.ring.p)

    def size(self, of: Size) -> int:
        return max(of(self.left), of(self.right))


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class SquaredNorm(Special):
    """The sum of the squares of all entries."""

    body: Expr
    numeric = True

    def written(self) -> Written:
        return (Sign("||", r"\bigl\|"), self.body, Sign("||^2", r"\bigr\|^{2}"))

    def value(self, at: Instance, bindings: Bindings) -> Array:
        squares = at.value(self.body, bindings) ** 2 % at.ring.p
        return np.asarray(squares.sum((-2, -1), keepdims=True) % at.ring.p)

    def size(self, of: Size) -> int:
        return 2 * of(self.body)


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Trace(Special):
    """The sum of the diagonal."""

    body: Expr
    numeric = True

    def written(self) -> Written:
        return (Sign("Tr(", r"\mathrm{Tr}\bigl("), self.body, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        diagonals = np.trace(at.value(self.body, bindings), axis1=-2, axis2=-1)
        return np.asarray(diagonals[:, None, None] % at.ring.p)

    def size(self, of: Size) -> int:
        return 2 * of(self.body)  # traces of degree d need matrices of size d: smaller ones satisfy more identities


@node("above", "below")
@dataclass(frozen=True, slots=True, repr=False)
class Ratio(Special):
    """One number divided by another, ``above / (below)``."""

    above: Expr
    below: Expr
    numeric = True

    def written(self) -> Written:
        return (self.above, Sign(" / (", r"\,\big/\,\bigl(", breaks=True), self.below, _CLOSE)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.ring.times(at.value(self.above, bindings), inverse_of(at.value(self.below, bindings), at.ring.p))

    def size(self, of: Size) -> int:
        return 2 * (of(self.above) + of(self.below))  # two of them are equal where their cross products are


# ------------------------------------------------------------------------------------------- changes of basis
@node()
@dataclass(frozen=True, slots=True, repr=False)
class NamedMatrix(Special):
    """A matrix with a name; of kind ``orthogonal`` (``Q^T Q = Id``), ``diagonal``, ``centring``, or any matrix.

    A ``vector`` is a column, and what stands beside it is zero; a ``shift`` moves every row down by one.
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
        return (Sign(self.name, rf"{{\mathbf{{{self.name}}}}}" if self.kind == "vector" else f"{{{self.name}}}"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        if self.kind == "centring":
            return at.centring()
        if self.kind == "shift":
            return np.broadcast_to(np.eye(at.k, k=-1, dtype=np.int64), (at.trials, at.k, at.k))
        drawn = at.drawn[f"a matrix called {self.name}"]
        if self.kind == "diagonal":
            return drawn * np.eye(at.k, dtype=np.int64)
        if self.kind == "vector":
            return np.asarray(drawn * (np.arange(at.k) == 0))
        if self.kind != "orthogonal":
            return drawn
        return _once(at, f"an orthogonal matrix called {self.name}", lambda: _cayley(at, drawn))

    def size(self, of: Size) -> int:
        return 1


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Zero(Special):
    """The matrix of zeros."""

    def written(self) -> Written:
        return (Sign("0", "0"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.zero()

    def size(self, of: Size) -> int:
        return 1


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Inverse(Special):
    """The inverse of a matrix with a name."""

    of: NamedMatrix

    def written(self) -> Written:
        return (Sign(f"{self.of.name}^-1", rf"{self.of.name}^{{-1}}"),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        name = f"the inverse of a {self.of.kind} matrix called {self.of.name}"
        return _once(at, name, lambda: inverse_of(self.of.value(at, bindings), at.ring.p))

    def size(self, of: Size) -> int:
        return 1


def _cayley(at: Instance, matrix: Array) -> Array:
    """The orthogonal matrix that Cayley's map makes of any matrix."""
    skew = (matrix - transpose(matrix)) % at.ring.p
    plus, minus = ((at.identity() + sign * skew) % at.ring.p for sign in (1, -1))
    return at.ring.matmul(minus, inverse_of(plus, at.ring.p))


def _once(at: Instance, name: str, make: Callable[[], Array]) -> Array:
    """What is made, kept beside the drawn matrices: inverses take long."""
    if name not in at.drawn:
        at.drawn[name] = make()
    return at.drawn[name]


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
