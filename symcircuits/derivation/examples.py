"""Small examples in exact numbers: matrices, a tiny model, layer norm and GeLU, each computed by SymPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symcircuits.derivation.nodes import Sign, Special, Written, node

__all__ = ["Elementwise", "Literal", "TinyModel", "TwoLayers"]

_CLOSE = Sign(")", r"\bigr)")


@node()
@dataclass(frozen=True, slots=True, repr=False)
class Literal(Special):
    """A small matrix of exact numbers, each entry as text that SymPy reads, such as ``2/(1+e)``."""

    rows: tuple[tuple[str, ...], ...]

    def written(self) -> Written:
        from sympy import latex

        text = ", ".join("[" + ", ".join(row) + "]" for row in self.rows)
        rows = r" \\ ".join(" & ".join(map(latex, row)) for row in self.exact().tolist())
        return (Sign(f"[{text}]", rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"),)

    def exact(self) -> Any:
        """The matrix in SymPy."""
        from sympy import E, Matrix, sympify

        return Matrix([[sympify(entry.replace("^", "**"), locals={"e": E}) for entry in row] for row in self.rows])


@node("tokens", "patterns")
@dataclass(frozen=True, slots=True, repr=False)
class TinyModel(Special):
    """``f(x) = x + softmax*(x x^T) x``: one layer, one head, every weight the identity, two tokens.

    With ``patterns`` the pattern is that of other tokens, held fixed.
    """

    tokens: Literal
    patterns: Literal | None = None

    def written(self) -> Written:
        if self.patterns is None:
            return (Sign("f(", r"f\bigl("), self.tokens, _CLOSE)
        given = Sign(" | ", r"\;\big|\;"), Sign("A", "A", glyph="A"), Sign(" of ", r"\text{ of }")
        return (Sign("f(", r"f\bigl("), self.tokens, *given, self.patterns, _CLOSE)

    def exact(self) -> Any:
        """The value in SymPy, from the definition of causal attention."""
        x = self.tokens.exact()
        return x + _attention((self.patterns or self.tokens).exact()) * x


@node("tokens")
@dataclass(frozen=True, slots=True, repr=False)
class TwoLayers(Special):
    """``f(x)`` of two layers of one head, every weight the identity, or of the same without its first head.

    Without it the second layer keeps its pattern (``held``), or computes it from the stream that it now reads.
    """

    tokens: Literal
    without: bool = False
    held: bool = False

    def written(self) -> Written:
        run = ("", "") if not self.without else (
            ("(without L0H0, A held)", r"^{(\setminus\mathrm{L0H0},\,A\text{ held})}") if self.held else
            ("(without L0H0, A anew)", r"^{(\setminus\mathrm{L0H0},\,A\text{ anew})}")
        )  # fmt: skip
        return (Sign(f"f{run[0]}(", rf"f{run[1]}\bigl("), self.tokens, _CLOSE)

    def exact(self) -> Any:
        """The value in SymPy, from the definition of causal attention."""
        x = self.tokens.exact()
        full = x + _attention(x) * x
        stream = x if self.without else full
        read = full if self.held else stream
        return stream + _attention(read) * stream


def _attention(x: Any) -> Any:
    """``softmax*(x x^T)``, causal: the weight of key j is one over the sum of ``exp(score k - score j)``."""
    from sympy import Matrix, exp, factor, together

    s, n = x * x.T, x.rows

    def weight(i: int, j: int) -> Any:
        return 1 / sum(exp(factor(together(s[i, k] - s[i, j]))) for k in range(i + 1)) if j <= i else 0

    return Matrix(n, n, weight)


@node("body")
@dataclass(frozen=True, slots=True, repr=False)
class Elementwise(Special):
    """``LN`` of every row, without gain and bias, with any epsilon, or ``gelu`` of every entry: by definition."""

    name: str
    body: Literal

    def written(self) -> Written:
        return (Sign(f"{self.name}(", rf"\mathrm{{{self.name}}}\bigl("), self.body, _CLOSE)

    def exact(self) -> Any:
        """The value in SymPy."""
        from sympy import Matrix, Symbol, erf, sqrt

        x = self.body.exact()
        if self.name == "gelu":
            return x.applyfunc(lambda z: z * (1 + erf(z / sqrt(2))) / 2)
        rows = []
        for row in x.tolist():
            mean = sum(row) / len(row)
            variance = sum((z - mean) ** 2 for z in row) / len(row)
            rows.append([(z - mean) / sqrt(variance + Symbol("epsilon")) for z in row])
        return Matrix(rows)
