"""How symbols and words are written: one table of glyphs for text and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable

from symcircuits.algebra import Factor, Symbol, Word

__all__ = ["amount", "factor_latex", "latex_label", "symbol_latex", "word_latex"]

_GLYPHS = {
    "A": "A", "t": "t", "P": "P", "ones": r"\mathbf{1}", "X0": "X_0",
    "W_E": "W_E", "W_U": "W_U", "W_Q": "W_Q", "W_K": "W_K", "W_V": "W_V", "W_O": "W_O",
    "W_OV": "W_{OV}", "W_QK": "W_{QK}",
    "D": "D", "C": "C", "gain": r"\Gamma", "mlp": "M", "b_N": "b_N", "R": "R_{j-i}",
    "b_V": "b_V", "b_O": "b_O", "b_Q": "b_Q", "b_K": "b_K", "b_U": "b_U",
}  # fmt: skip


def latex_label(label: str) -> str:
    """A head or layer label in LaTeX: ``\\mathrm{L0H1}``; a generic head, ``h_1`` or ``h``, in italics."""
    letter, _, number = label.partition("_")
    if letter.islower() and len(letter) == 1:
        return letter + (f"_{{{number}}}" if number else "")
    return rf"\mathrm{{{label}}}"


def glyph_latex(glyph: str) -> str:
    """A glyph in LaTeX; ``X1``, ``X2``, ... are the streams after so many layers."""
    return f"X_{{{glyph[1:]}}}" if glyph[0] == "X" and glyph not in _GLYPHS else _GLYPHS[glyph]


def symbol_latex(symbol: Symbol, transposed: bool = False) -> str:
    """A symbol in LaTeX, e.g. ``W_{OV}^{\\mathrm{L0H1}\\,\\mathsf{T}}``: label and transpose share one superscript."""
    scripts = ([latex_label(symbol.label)] if symbol.label else []) + ([r"\mathsf{T}"] if transposed else [])
    return glyph_latex(symbol.glyph) + ("^{" + r"\,".join(scripts) + "}" if scripts else "")


def factor_latex(factor: Factor) -> str:
    """A factor in LaTeX."""
    return symbol_latex(factor.symbol, factor.marked)


def scale_latex(label: str) -> str:
    """The score scale of a head in LaTeX: ``s^{\\mathrm{L1H0}}``."""
    return rf"s^{{{latex_label(label)}}}"


def product_latex(factors: Iterable[Factor]) -> str:
    """A product in LaTeX."""
    return r"\,".join(factor_latex(f) for f in factors)


def word_latex(word: Word) -> str:
    """A word in LaTeX, abbreviations used, the scale in front."""
    return r"\,".join([scale_latex(s) for s in word.scales] + [product_latex(word.fused)])


def amount(n: int, thing: str) -> str:
    """A number of things in words.

    >>> amount(1, "term"), amount(2197, "term")
    ('1 term', '2,197 terms')
    """
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"
