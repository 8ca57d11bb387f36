"""How leaves and joints are written, in text notation and in LaTeX, in one notation."""

from __future__ import annotations

from symcircuits.core.names import HEAD, RESULTS, relabelled, spelled
from symcircuits.core.notation import (
    ROW,
    Notation,
    factor_latex,
    factor_text,
    latex_label,
    name_of,
    scale_latex,
    scale_text,
    text_label,
    transpose_mark,
)
from symcircuits.core.words import Factor, quoted
from symcircuits.derivation.nodes import Sign

__all__ = ["RELATIONS", "LatexStyle", "TextStyle"]

RELATIONS = {"=": "=", "!=": r"\neq", "<=": r"\le"}


class TextStyle:
    """Leaves and joints in text notation."""

    matrix_joint = " @ "
    operator_joint = " "
    number_joint = " * "
    times = " * "
    scale_joint = " * "
    tensor = "(x)"
    comma = ","
    opening = "("
    closing = ")"
    transposed = ".T"

    def __init__(self, notation: Notation = ROW) -> None:
        self.notation = notation
        self.identity = self._name("Id")

    def factor(self, factor: Factor) -> str:
        """``W_OV[L0H1].T``."""
        return factor_text(factor, self.notation)

    def sign(self, sign: Sign) -> str:
        """A sign of a special node."""
        return self._name(sign.glyph) if sign.glyph else relabelled(sign.text, self.notation.names.get(HEAD))

    def power(self, exponent: int) -> str:
        """``^2``."""
        return f"^{exponent}"

    def scale(self, label: str) -> str:
        """``scale[L1H0]``."""
        return scale_text(label, self.notation)

    def sum_over(self, index: str, layer: int) -> str:
        """``sum[h_1=1..H_1]``."""
        return f"sum[{text_label(index, self.notation)}=1..{self.head_count(layer)}]"

    def target(self, name: str) -> str:
        """``logits``, ``S[L1H0]`` for scores, or ``readout[probe]``."""
        kind, _, head = name.partition(":")
        if kind == "readout":
            return f"readout[{quoted(head)}]"
        return f"{self._name('S')}[{text_label(head, self.notation)}]" if head else self._name(kind)

    def head_count(self, layer: int) -> str:
        """``H_1``."""
        return f"{self._name('H')}_{layer + 1}"

    def elementary(self, order: int, layers: tuple[int, ...]) -> str:
        """``e_k(H_1, ..., H_L)``."""
        return f"e_{order}({self.head_count(layers[0])}, ..., {self.head_count(layers[-1])})"

    def count_of(self, order: int | None, composition: str | None) -> str:
        """``N``, ``N_2``, ``N_QK``."""
        below = order if composition is None else composition
        return self._name("N") + ("" if below is None else f"_{below}")

    def _name(self, glyph: str) -> str:
        return name_of(glyph, self.notation).text


class LatexStyle:
    """Leaves and joints in LaTeX."""

    matrix_joint = r"\,"
    operator_joint = r"\,"
    number_joint = r"\,"
    times = r"\cdot "
    scale_joint = r"\,"
    tensor = r"\otimes"
    comma = r",\;"
    opening = r"\bigl("
    closing = r"\bigr)"

    def __init__(self, notation: Notation = ROW) -> None:
        self.notation = notation
        self.identity = self._name("Id")
        self.transposed = f"^{{{transpose_mark(notation)}}}"

    def factor(self, factor: Factor) -> str:
        """A matrix symbol, transposed or not."""
        return factor_latex(factor, self.notation)

    def sign(self, sign: Sign) -> str:
        """A sign of a special node."""
        if not sign.glyph:
            return relabelled(sign.latex, self.notation.names.get(HEAD))
        name = self._name(sign.glyph)
        return name if sign.glyph in RESULTS and sign.glyph not in self.notation.names else f"{{{name}}}"

    def power(self, exponent: int) -> str:
        """``^{2}``."""
        return f"^{{{exponent}}}"

    def scale(self, label: str) -> str:
        """The score scale of a head."""
        return scale_latex(label, self.notation)

    def sum_over(self, index: str, layer: int) -> str:
        """``\\sum_{h_1=1}^{H_1}``."""
        return rf"\sum_{{{latex_label(index, self.notation)}=1}}^{{{self.head_count(layer)}}}"

    def target(self, name: str) -> str:
        """``\\mathrm{logits}``, ``S^{...}`` for scores, ``\\mathrm{readout}^{...}`` with the name as it is printed."""
        kind, _, head = name.partition(":")
        if kind == "readout":
            return rf"\mathrm{{readout}}^{{{spelled(head).latex}}}"
        return rf"{self._name('S')}^{{{latex_label(head, self.notation)}}}" if head else self._name(kind)

    def head_count(self, layer: int) -> str:
        """``H_1``."""
        return rf"{self._base('H')}_{{{layer + 1}}}"

    def elementary(self, order: int, layers: tuple[int, ...]) -> str:
        """``e_k(H_1,\\dots,H_L)``."""
        return rf"e_{{{order}}}({self.head_count(layers[0])},\dots,{self.head_count(layers[-1])})"

    def count_of(self, order: int | None, composition: str | None) -> str:
        """``N``, ``N_{2}``, ``N_{\\mathrm{QK}}``."""
        if composition is not None:
            return rf"{self._base('N')}_{{\mathrm{{{composition}}}}}"
        return self._name("N") if order is None else rf"{self._base('N')}_{{{order}}}"

    def _name(self, glyph: str) -> str:
        return name_of(glyph, self.notation).latex

    def _base(self, glyph: str) -> str:
        """A name that an index follows: in braces where it has one of its own."""
        name = self._name(glyph)
        return f"{{{name}}}" if "_" in name else name
