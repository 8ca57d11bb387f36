"""How symbols and words are written: one table of glyphs, and three notations.

``row``: streams with one row per token, matrices in the paper's shapes, ``A X W_OV^T``. ``transformerlens``: the
same with weights in TransformerLens's shapes, which are the transposes, ``A X W_OV``. ``paper``: the matrices of
``row``, words written as maps of their sources, ``(A (x) W_OV) X``. All three print the same checked word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from symcircuits.core.names import (
    HEAD,
    INDICES,
    MARK,
    MARKS,
    OTHER,
    RESULTS,
    Name,
    called,
    check_other,
    relabelled,
    spelled,
)
from symcircuits.core.symbols import ABBREVIATIONS, FLIPPED, LATEX, SHORT_NAMES, SOMETIMES
from symcircuits.core.text import brief, shown
from symcircuits.core.words import Factor, Symbol, Word, fuse, is_multiplier, transpose

__all__ = [
    "NOTATIONS", "ROW", "Form", "Notation", "as_notation", "factor_latex",
    "factor_text", "form", "glyphs_of", "latex_label", "name_of", "printed_like", "scale_latex",
    "scale_text", "symbol_called", "symbol_latex", "text_label", "transpose_mark", "word_latex", "word_text",
]  # fmt: skip

NOTATIONS: Final = ("row", "paper", "transformerlens")
_CONVENTIONS: Final = {
    "row": "the row convention, matrices in the paper's shapes",
    "paper": "the paper's notation, (A (x) W) x = A x W^T and (A_q (x) A_k (x) W)(x, y) = A_q x W y^T A_k^T",
    "transformerlens": "TransformerLens's convention, a row for each token, weights in its shapes",
}


@dataclass(frozen=True, slots=True)
class Notation:
    """A notation, and other names for symbols: ``row``, ``paper`` or ``transformerlens``; ``{"W_OV": "M"}``.

    A name is text, never markup: letters and digits with one subscript after ``_``, and Greek letters spelled out, are
    set as mathematics; every other character prints as itself. Symbols that are not matrices can be renamed too
    (``logits``, ``S``, indices, heads, the transpose mark: :mod:`symcircuits.core.names`). Raises ValueError on an
    unknown notation or symbol, on a name that cannot be printed, and if two symbols would be printed alike.

    >>> notation = Notation("transformerlens", {"W_OV": "M", "A": "Omega"})
    >>> notation.name, notation.names
    ('transformerlens', {'A': 'Omega', 'W_OV': 'M'})
    >>> Notation("row", {"W_OV": "W_V"})
    Traceback (most recent call last):
    ValueError: W_OV cannot be printed as 'W_V': so is W_V; give one of the two another name
    """

    name: str = "row"
    symbols: Mapping[str, str] | tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in NOTATIONS:
            raise ValueError(f"notation must be one of {', '.join(NOTATIONS)}, not {brief(self.name)}")
        names = _pairs(self.symbols)
        object.__setattr__(self, "symbols", names)
        for glyph, own in names:
            try:
                check_other(glyph, own) if glyph in OTHER else spelled(own)
            except ValueError as fault:
                raise ValueError(f"{glyph}: {fault}") from None
        self.fitting(set(LATEX) - SOMETIMES)

    @property
    def names(self) -> dict[str, str]:
        """The names given by the user, by symbol."""
        return dict(self.symbols)

    @property
    def convention(self) -> str:
        """The convention, in a few words."""
        return _CONVENTIONS[self.name]

    @property
    def flips(self) -> bool:
        """Whether weights are printed as their transposes."""
        return self.name == "transformerlens"

    @property
    def tensors(self) -> bool:
        """Whether words are printed as maps of their sources."""
        return self.name == "paper"

    @property
    def products(self) -> Notation:
        """The notation that writes matrix products as products: itself, but ``row`` for ``paper``."""
        return Notation("row", self.symbols) if self.tensors else self

    def fitting(self, glyphs: Iterable[str], others: Iterable[str] = ()) -> Notation:
        """Itself, if no symbol is printed like another of these or like one of these words; else raises ValueError."""
        given = self.names
        known = {glyph: _default(glyph, self.name) for glyph in glyphs if glyph not in given}
        known |= {word: Name(word, word) for word in others}
        for glyph, own in given.items():
            name = called(glyph, own) if glyph in OTHER else spelled(own)
            if name is None or (glyph in OTHER and glyph == own):
                continue
            for other, printed in known.items():
                if name.text == printed.text or _bare(name.latex) == _bare(printed.latex):
                    raise ValueError(
                        f"{glyph} cannot be printed as {own!r}: so is {other}; give one of the two another name"
                    )
            known[glyph] = name
        return self

    def json(self) -> dict[str, object]:
        """Name, convention and given names, as plain data."""
        return {"name": self.name, "convention": self.convention, "symbols": self.names}


def _pairs(symbols: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The given names in the order of their symbols; every symbol must exist."""
    try:
        names = dict(symbols)
    except (TypeError, ValueError):
        raise ValueError(f'symbols map names to names, e.g. {{"W_OV": "M"}}, not {shown(symbols)}') from None
    for glyph in names:
        if glyph not in LATEX and glyph not in OTHER:
            import difflib

            known = (*LATEX, *OTHER)
            near = difflib.get_close_matches(str(glyph), known, 1, 0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"there is no symbol {glyph!r}; {hint}the symbols are {', '.join(known)}")
    return tuple(sorted(names.items()))


def _bare(latex: str) -> str:
    """LaTeX without commands that change only the typeface."""
    return re.sub(r"\\(?:mathrm|text)|\\ |[{}]", "", latex)


def _default(glyph: str, notation: str) -> Name:
    text = SHORT_NAMES.get(glyph, glyph) if notation == "transformerlens" else glyph
    if glyph in RESULTS:
        return Name(glyph, RESULTS[glyph])
    if glyph in INDICES:
        return Name(glyph, glyph)
    if re.fullmatch(r"X\d+", glyph) and glyph not in LATEX:
        return Name(text, f"X_{{{glyph[1:]}}}")  # X1, X2, ... are the streams after that many layers
    if glyph not in LATEX:
        return spelled(glyph)  # a readout or source named by the user
    return Name(text, LATEX[glyph])


def symbol_called(name: str) -> bool:
    """Whether a symbol of the algebra is printed with that name in text notation.

    >>> symbol_called("W_OV"), symbol_called("probe")
    (True, False)
    """
    return name in LATEX or name in SHORT_NAMES.values()


def printed_like(name: str) -> str:
    """The symbol of the algebra that is printed like a given name, if any; raises ValueError on an invalid name.

    >>> printed_like("M"), printed_like("probe")
    ('mlp', '')
    """
    own = spelled(name)
    for glyph in (*LATEX, *SHORT_NAMES.values(), "W_pos"):
        printed = _default(glyph, "row") if glyph in LATEX else Name(glyph, glyph)
        if own.text == printed.text or _bare(own.latex) == _bare(printed.latex):
            return glyph
    return ""


ROW: Final = Notation()


def as_notation(notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> Notation:
    """A notation by its name, with other names for symbols if given; raises ValueError as :class:`Notation`.

    >>> as_notation("paper", {"A": "Psi"})
    Notation(name='paper', symbols=(('A', 'Psi'),))
    """
    if isinstance(notation, Notation):
        return Notation(notation.name, notation.names | dict(_pairs(symbols))) if symbols else notation
    return Notation(notation, symbols or ())


@lru_cache(maxsize=4096)
def name_of(glyph: str, notation: Notation = ROW) -> Name:
    """A symbol as it is printed, without label and transpose."""
    given = notation.names.get(glyph)
    if given is None:
        return _default(glyph, notation.name)
    return (called(glyph, given) if glyph in OTHER else None) or spelled(given)


def transpose_mark(notation: Notation = ROW) -> str:
    """The mark of a transpose in LaTeX, without the ``^``.

    >>> transpose_mark(Notation("row", {"T": "top"}))
    '\\\\top'
    """
    return MARKS[notation.names.get(MARK, MARK)]


def glyphs_of(factors: Iterable[Factor]) -> set[str]:
    """The symbols that may occur in a formula with these factors, abbreviations included."""
    seen = {f.symbol.glyph for f in factors}
    return seen | {glyph for glyph, parts in ABBREVIATIONS.items() if seen & {*parts}}


# ------------------------------------------------------------------------------------------ symbols and words
def latex_label(label: str, notation: Notation = ROW) -> str:
    """A label in LaTeX: ``\\mathrm{L0H1}``; a generic head, ``h_1`` or ``h``, or its group, ``G(h_1)``, in italics."""
    if label[:2] == "G(":
        return f"G({latex_label(label[2:-1], notation)})"
    letter, _, number = label.partition("_")
    if letter.islower() and len(letter) == 1:
        return name_of(letter, notation).latex + (f"_{{{number}}}" if number else "")
    return rf"\mathrm{{{relabelled(label, notation.names.get(HEAD))}}}"


def text_label(label: str, notation: Notation = ROW) -> str:
    """A label in text notation: indices and heads as the notation writes them.

    >>> notation = Notation("row", {"h": "a", "L0H1": "1.2"})
    >>> text_label("G(h_1)", notation), text_label("L2H0", notation), text_label("final", notation)
    ('G(a_1)', '3.1', 'final')
    """
    if label[:2] == "G(":
        return f"G({text_label(label[2:-1], notation)})"
    letter, under, number = label.partition("_")
    if letter in INDICES:
        return name_of(letter, notation).text + under + number
    return relabelled(label, notation.names.get(HEAD))


def glyph_latex(glyph: str, notation: Notation = ROW) -> str:
    """A glyph in LaTeX; ``X1``, ``X2``, ... are the streams after that many layers."""
    return name_of(glyph, notation).latex


def symbol_latex(symbol: Symbol, transposed: bool = False, notation: Notation = ROW) -> str:
    """A symbol in LaTeX, e.g. ``W_{OV}^{\\mathrm{L0H1}\\,\\mathsf{T}}``: label and transpose share one superscript."""
    return letter_latex(symbol.glyph, symbol.label, transposed, notation)


def letter_latex(glyph: str, label: str, transposed: bool, notation: Notation = ROW) -> str:
    """A symbol in LaTeX by its glyph and label."""
    transposed ^= notation.flips and glyph in FLIPPED
    scripts = ([latex_label(label, notation)] if label else []) + ([transpose_mark(notation)] if transposed else [])
    return glyph_latex(glyph, notation) + ("^{" + r"\,".join(scripts) + "}" if scripts else "")


def factor_latex(factor: Factor, notation: Notation = ROW) -> str:
    """A factor in LaTeX; an entrywise product in parentheses."""
    if factor.symbol.entrywise:
        return _entrywise(factor, notation, _LATEX)
    return symbol_latex(factor.symbol, factor.marked, notation)


def letter_text(glyph: str, label: str, transposed: bool, notation: Notation = ROW) -> str:
    """A symbol in text notation: ``W_OV[L0H1].T``; for TransformerLens ``OV[L0H1]``."""
    transposed ^= notation.flips and glyph in FLIPPED
    shown = f"[{text_label(label, notation)}]" if label else ""
    return name_of(glyph, notation).text + shown + (".T" if transposed else "")


def factor_text(factor: Factor, notation: Notation = ROW) -> str:
    """A factor in text notation; an entrywise product in parentheses."""
    if factor.symbol.entrywise:
        return _entrywise(factor, notation, _TEXT)
    return letter_text(factor.symbol.glyph, factor.symbol.label, factor.marked, notation)


def scale_latex(label: str, notation: Notation = ROW) -> str:
    """The score scale of a head in LaTeX, ``s^{\\mathrm{L1H0}}``, or a multiplier, ``r^{\\mathrm{L0}}``."""
    if is_multiplier(label):
        glyph, _, owner = label.rstrip("]").partition("[")
        return name_of(glyph, notation).latex + (f"^{{{latex_label(owner, notation)}}}" if owner else "")
    return rf"{name_of('scale', notation).latex}^{{{latex_label(label, notation)}}}"


def scale_text(label: str, notation: Notation = ROW) -> str:
    """The score scale of a head in text notation, ``scale[L1H0]``, or a multiplier, ``r[L0]``."""
    if is_multiplier(label):
        glyph, bracket, owner = label.partition("[")
        return name_of(glyph, notation).text + bracket + owner
    return f"{name_of('scale', notation).text}[{text_label(label, notation)}]"


def product_latex(factors: Iterable[Factor], notation: Notation = ROW) -> str:
    """A product in LaTeX."""
    return r"\,".join(factor_latex(f, notation) for f in factors)


class Form(NamedTuple):
    """A word as a map of its sources: ``(A (x) W) x`` or, of two, ``(A_q (x) A_k (x) W)(x, y)``.

    The slots are patterns (of query and key, if there are two sources) and weights; an empty slot is the identity.
    ``(A (x) W) x = A x W^T`` and ``(A_q (x) A_k (x) W)(x, y) = A_q x W y^T A_k^T``. Source: paper, "Notation", and
    "Path Expansion of Attention Scores QK Circuit", with the transposes corrected.
    """

    slots: tuple[tuple[Factor, ...], ...]
    sources: tuple[Factor, ...]


def form(word: Word, notation: Notation) -> Form | None:
    """The map that a word is, in a notation of maps; None if it is printed as a product.

    It is a product if no weights follow its source (``X1``, ``A 1``), or if it has no source.
    """
    if not notation.tensors or not of_tokens(word.factors[0].row.space.kind):
        return None
    factors = word.factors
    outside = [i for i, f in enumerate(factors) if not of_tokens(f.col.space.kind)]
    if not outside:
        return None
    start, end = outside[0], outside[-1] + 1
    left, middle, right = factors[:start], factors[start + 1 : end], transpose(factors[end + 1 :])
    if end < len(factors):  # the factor at `end` is the source of the keys, transposed
        return Form((left, right, fuse(middle)), (factors[start], factors[end].T))
    return Form((left, fuse(transpose(middle))), (factors[start],)) if middle else None


def of_tokens(kind: str) -> bool:
    """Whether a space has one dimension per token."""
    return "context" in kind


class _Signs(NamedTuple):
    """The separators between symbols, and the form of symbols, in one format."""

    factor: Callable[[Factor, Notation], str]
    scale: Callable[[str, Notation], str]
    joint: str
    times: str
    tensor: str
    opening: str
    closing: str
    acts: str
    comma: str
    identity: Callable[[Notation], str]
    entrywise: tuple[str, str, str]  # opening, separator, closing
    transposed: Callable[[Notation], str]  # the mark of its transpose


_TEXT = _Signs(
    factor_text,
    scale_text,
    joint=" @ ",
    times=" * ",
    tensor=" (x) ",
    opening="(",
    closing=")",
    acts=" ",
    comma=", ",
    identity=lambda notation: name_of("Id", notation).text,
    entrywise=("(", " * ", ")"),
    transposed=lambda notation: ".T",
)
_LATEX = _Signs(
    factor_latex,
    scale_latex,
    joint=r"\,",
    times=r"\,",
    tensor=r" \otimes ",
    opening=r"\bigl(",
    closing=r"\bigr)",
    acts=r"\,",
    comma=r",\; ",
    identity=lambda notation: name_of("Id", notation).latex,
    entrywise=(r"\left(", r"\odot ", r"\right)"),
    transposed=lambda notation: f"^{{{transpose_mark(notation)}}}",
)

SIGNS: Final = {"text": _TEXT, "latex": _LATEX}


def _entrywise(factor: Factor, notation: Notation, signs: _Signs) -> str:
    """``(mask[L0] * (X0 @ W_QK[L0H0] @ X0.T))``: each word of several factors in parentheses."""
    opening, times, closing = signs.entrywise
    words = []
    for word in factor.symbol.entrywise:
        alone = len(word.fused) == 1 and not word.scales
        text = _written(word, notation, signs)
        words.append(text if alone else opening + text + closing)
    return opening + times.join(words) + closing + (signs.transposed(notation) if factor.marked else "")


def _written(word: Word, notation: Notation, signs: _Signs) -> str:
    def product(factors: Iterable[Factor]) -> str:
        return signs.joint.join(signs.factor(f, notation) for f in factors) or signs.identity(notation)

    found = form(word, notation)
    if found is None:
        body = product(word.fused)
    else:
        body = signs.opening + signs.tensor.join(map(product, found.slots)) + signs.closing
        sources = signs.comma.join(product((source,)) for source in found.sources)
        one = len(found.sources) == 1
        body += signs.acts + sources if one else signs.opening + sources + signs.closing
    return signs.times.join([*(signs.scale(label, notation) for label in word.scales), body])


def word_latex(word: Word, notation: Notation = ROW) -> str:
    """A word in LaTeX, with abbreviations, the scale in front."""
    return _written(word, notation, _LATEX)


def word_text(word: Word, notation: Notation = ROW) -> str:
    """A word in text notation, with abbreviations, the scale in front."""
    return _written(word, notation, _TEXT)
