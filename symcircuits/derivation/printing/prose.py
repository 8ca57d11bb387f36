"""Sentences with short formulas between backticks, in one notation: for text, and for LaTeX.

The formulas are written in the row convention, ``A X W_OV^T``. In TransformerLens's convention a weight stands for its
transpose, and a product of weights alone is turned round; symbols with other names are replaced by these. Everything
outside backticks is text and never markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Final, NamedTuple

from symcircuits.core.names import HEAD, INDICES, RESULTS, Name, escaped, relabelled
from symcircuits.core.notation import ROW, Notation, latex_label, name_of, text_label, transpose_mark
from symcircuits.core.symbols import FLIPPED, SHORT_NAMES, SYMMETRIC

__all__ = ["html_prose", "plain", "prose", "sentence"]

_MATH: Final = (
    (r"\(x\)", r"\\otimes "), (r"\bsum\b", r"\\sum "), (r"\bId\b", r"\\mathrm{Id}"),
    (r"sqrt\(d_head\)", r"\\sqrt{d_{\\mathrm{head}}}"),
    (r"sqrt\(v \+ eps\)", r"\\sqrt{v + \\epsilon}"), (r"\beps\b", r"\\epsilon"), (r"\b(\w)_(\w{2,})\b", r"\1_{\2}"),
    (r"(\d) x (\d)", r"\1\\times \2"), (r"(\d)e-0*(\d+)", r"\1\\cdot10^{-\2}"), (r"\b1 (?=b)", r"\\mathbf{1}\\,"),
    (r"^1$", r"\\mathbf{1}"), (r"^(\w) 1 = 1$", r"\1\\,\\mathbf{1} = \\mathbf{1}"), (r"(?<=\) )1\b", r"\\mathbf{1}"),
    (r"\^-1", r"^{-1}"), (r"\bX(\d+)\b", r"X_{\1}"), (r"\bgain\b", r"\\Gamma"), (r"\b(alpha|cos|sin)\b", r"\\\1"),
    (r"\bmlp\b", "M"), (r"\bbold (\w)", r"\\mathbf{\1}"), (r"(?<=\w) (?=\w)", r"\\,"),
)  # fmt: skip
_LETTER: Final = re.compile(r"([A-Za-z]\w*|\b1\b)(\[[\w()]+\])?(\^T\b)?")
_RUN: Final = re.compile(r"(?:(?:[A-Za-z]\w*|\b1\b)(?:\[[\w()]+\])?(?:\^T\b)? ?)+")  # letters side by side
_ONES: Final = re.compile(r"^1$|\b1 b|^A 1 = 1$")  # formulas in which 1 is the column of ones
_STAND_IN: Final = 0xA000  # a letter for each replaced symbol while the formula is set, so that no name is ever read
_SPOKEN: Final = {
    "X_0": "X0",
    "s": "scale",
    "1": "ones",
}  # symbols that sentences name otherwise than the text notation
_ALSO_FLIPPED: Final = ("b", "b_N", "W_I", "W_M", "V_1", "V_2", "V_f")  # letters of sentences and of results
# Phrases about the side on which a matrix stands, and their wording in TransformerLens's convention.
_SAID: Final = {
    "transposed on the query side": "transposed on the key side",
    "Tensors multiply slot by slot": "Tensors multiply slot by slot, weights in the order in which they act",
    "the reading matrix times the writing matrix": "the writing matrix times the reading matrix",
    "with the transpose of `W_OV` changes": "with `W_OV` not transposed changes",
    "the columns that read the values of one head": "the rows that read the values of one head",
}


class _Letter(NamedTuple):
    """A symbol of a sentence: ``W_OV[h]^T``."""

    name: str
    label: str = ""
    transposed: bool = False

    @property
    def flips(self) -> bool:
        return self.name in FLIPPED or self.name in _ALSO_FLIPPED

    @property
    def turns(self) -> bool:
        """Whether it stands as well in the product turned round: transposed where weights are flipped, or symmetric."""
        return (self.flips and self.transposed) or self.name in SYMMETRIC

    @property
    def T(self) -> _Letter:
        return self if self.name in SYMMETRIC else self._replace(transposed=not self.transposed)


def plain(text: str, notation: Notation = ROW) -> str:
    """A sentence as text, without the marks around its formulas.

    >>> print(plain("a head maps `X` to `A X W_OV^T`", Notation("transformerlens", {"A": "P"})))
    a head maps X to P X OV
    """
    return "".join(part for _, part in sentence(text, notation))


def sentence(text: str, notation: Notation = ROW) -> list[tuple[bool, str]]:
    """The parts of a sentence as text, each with whether it is a formula."""
    return [
        (formula, _in_text(part, notation) if formula else _heads(part, notation))
        for formula, part in _parts(text, notation)
    ]


def prose(text: str, notation: Notation = ROW) -> str:
    """A sentence in LaTeX: what stands between backticks is set as a formula, everything else is escaped."""
    return "".join(
        _in_latex(part, notation) if formula else _words(part, notation) for formula, part in _parts(text, notation)
    )


def html_prose(text: str, notation: Notation = ROW) -> str:
    r"""A sentence in HTML, its formulas in LaTeX for MathJax; any other dollar sign stays text.

    >>> print(html_prose("`A` is < 1 $"))
    $A$ is &lt; 1 <span>$</span>
    """
    return "".join(
        escape(_in_latex(part, notation), quote=False)
        if formula
        else escape(_heads(part, notation)).replace("$", "<span>$</span>")
        for formula, part in _parts(text, notation)
    )


def _words(text: str, notation: Notation) -> str:
    """Words, with the quotation marks of TeX, and heads as the notation writes them."""
    return escaped(re.sub(r'"([^"]*)"', r"``\1''", _heads(text, notation)))


def _heads(text: str, notation: Notation) -> str:
    return relabelled(text, notation.names.get(HEAD))


def _parts(text: str, notation: Notation) -> list[tuple[bool, str]]:
    """What stands between backticks and around them, in the words of the notation, each with whether it does."""
    for ours, theirs in _SAID.items() if notation.flips else ():
        text = text.replace(ours, theirs)
    return [(i % 2 == 1, part) for i, part in enumerate(text.split("`"))]


# --------------------------------------------------------------------------------------------------- formulas
def _in_text(formula: str, notation: Notation) -> str:
    def name(letter: _Letter) -> str:
        return SHORT_NAMES.get(letter.name, letter.name) if notation.flips else letter.name

    def label(written: str) -> str:
        return f"[{text_label(written[1:-1], notation)}]" if written else ""

    return _translated(formula, notation, name, lambda own: own.text, label).replace("bold ", "")


def _in_latex(formula: str, notation: Notation) -> str:
    """A short formula, written in plain text, as inline mathematics."""
    names: list[str] = []

    def stand_in(own: Name) -> str:
        names.append(own.latex)
        return chr(_STAND_IN + len(names) - 1)

    formula = _translated(formula, notation, lambda letter: letter.name, stand_in, str)
    mark = transpose_mark(notation)
    formula = re.sub(r"\[([\w()]+)\](\^T\b)?", lambda found: _superscript(found, notation), formula)
    formula = re.sub(r"\^T\b", lambda _: f"^{{{mark}}}", formula)
    for pattern, replacement in _MATH:
        formula = re.sub(pattern, replacement, formula)
    for i, latex in enumerate(names):
        formula = formula.replace(chr(_STAND_IN + i), latex if len(latex) == 1 else f"{{{latex}}}")
    return f"${formula}$"


def _superscript(found: re.Match[str], notation: Notation) -> str:
    return f"^{{{latex_label(found[1], notation)}" + (rf"\,{transpose_mark(notation)}}}" if found[2] else "}")


def _translated(
    formula: str,
    notation: Notation,
    name: Callable[[_Letter], str],
    own_name: Callable[[Name], str],
    labelled: Callable[[str], str],
) -> str:
    """The formula with the letters of a notation: of weights the transposes, own names in the place of others."""
    if notation.name != "transformerlens" and not notation.symbols:
        return formula
    runs = list(_RUN.finditer(formula))
    read = [_flipped(run[0], notation) for run in runs]
    turnable = [any(f.flips for f in letters) and all(f.turns for f in letters) for letters in read]
    out, at = [], 0
    for run, letters, turns in zip(runs, read, turnable, strict=True):
        if turns and (all(turnable) or formula[: run.start()].endswith("(x) ")):
            letters = [letter.T for letter in reversed(letters)]
        shown = []
        for letter in letters:
            own = _own_name(letter, notation, bool(_ONES.search(formula)))
            label = letter.label if not own or "_" not in letter.name else letter.label or own[1]
            shown.append((own_name(own[0]) if own else name(letter)) + labelled(label) + "^T" * letter.transposed)
        space = " " if run[0].endswith(" ") else ""
        out.append(formula[at : run.start()] + " ".join(shown) + space)
        at = run.end()
    return "".join(out) + formula[at:]


def _flipped(run: str, notation: Notation) -> list[_Letter]:
    letters = [_Letter(f[1], f[2] or "", f[3] is not None) for f in _LETTER.finditer(run)]
    return [letter.T if notation.flips and letter.flips else letter for letter in letters]


def _own_name(letter: _Letter, notation: Notation, ones: bool) -> tuple[Name, str] | None:
    """The name that was given to a symbol, if there is one, and the label that its spoken form had: ``A_q``."""
    glyph = _SPOKEN.get(letter.name, letter.name)
    if glyph == "ones" and not ones:
        return None
    label = ""
    base, _, below = letter.name.partition("_")
    counted = base in RESULTS or (base in INDICES and re.fullmatch(r"\d+|l", below))
    if below and counted and base in notation.names:  # h_1, H_l, N_QK
        own = name_of(base, notation)
        return Name(
            f"{own.text}_{below}", (f"{{{own.latex}}}" if "_" in own.latex else own.latex) + f"_{{{below}}}"
        ), ""
    if letter.name.startswith("A_"):
        glyph, label = "A", f"[{letter.name[2:]}]"
    return (name_of(glyph, notation), label) if glyph in notation.names else None
