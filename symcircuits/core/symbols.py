"""The glyphs of the formulas: one row per glyph, with everything that other modules need to know of it.

A letter is the glyph of a :class:`~symcircuits.core.words.Symbol`: ``W_OV`` of ``W_OV[L0H1]``. Its spaces and its
place in a word are set where it is built, in :mod:`symcircuits.core.programs`. A new letter is a new row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

__all__ = [
    "ABBREVIATIONS", "ANY_OWNER", "FLIPPED", "LATEX", "LETTERS", "MEANINGS", "OF_TOKENS", "OWNERS", "READERS",
    "SHARED", "SHORT_NAMES", "SOMETIMES", "SYMMETRIC", "Letter", "labelled_by",
]  # fmt: skip

Owner = Literal["", "head", "group", "layer", "norm"]
Axis = Literal["token", "input", "output", "model", "query", "value", "hidden", "one"]


OWNERS: Final[dict[Owner, str]] = {  # the contents of a letter's brackets, as a regular expression
    "": "", "head": r"L\d+H\d+", "group": r"L\d+[HG]\d+", "layer": r"[LM]\d+",
    "norm": r"(?:[LM]\d+|final(?:[LM]\d+)?|[QK](?:\d+|L\d+[HG]\d+))",
}  # fmt: skip
ANY_OWNER: Final = f"{OWNERS['group']}|{OWNERS['norm']}"  # the longest first: L0 begins L0H1


class Letter(NamedTuple):
    """A letter of the formulas.

    ``latex``: its LaTeX, without label. ``axes``: what its rows and its columns are; empty for a number.
    ``label``: the contents of its brackets: nothing, a head, a head or the group that shares it, a layer, a norm.
    ``meaning``: in a few words, for errors. ``flips``: TransformerLens stores the transpose. ``symmetric``: equal to
    its transpose. ``of_tokens``: it belongs to a run on tokens and not to the weights, so no circuit contains it.
    ``reads``: it reads the stream for a query or a key. ``always``: it may occur in the formulas of every model, so
    its name is never free. ``parts``: the product that it abbreviates. ``short``: its name in TransformerLens.
    """

    latex: str
    axes: tuple[Axis, Axis] | None = None
    label: Owner = ""
    meaning: str = ""
    flips: bool = False
    symmetric: bool = False
    of_tokens: bool = False
    reads: bool = False
    always: bool = True
    parts: tuple[str, ...] = ()
    short: str = ""


LETTERS: Final[dict[str, Letter]] = {
    # belongs to a run on tokens
    "A": Letter(latex="A", axes=("token", "token"), label="head", meaning="attention pattern", of_tokens=True),
    "t": Letter(latex="t", axes=("token", "input"), meaning="tokens, one-hot", of_tokens=True),
    "P": Letter(latex="P", axes=("token", "model"), meaning="position embedding", always=False),
    "ones": Letter(latex=r"\mathbf{1}", axes=("token", "one"), of_tokens=True),
    "X0": Letter(latex="X_0", axes=("token", "model"), of_tokens=True, parts=("t", "W_E")),
    "Y": Letter(latex="Y", axes=("token", "model")),
    # weights
    "W_E": Letter(latex="W_E", axes=("model", "input"), meaning="token embedding", flips=True),
    "W_U": Letter(latex="W_U", axes=("output", "model"), meaning="unembedding", flips=True),
    "W_Q": Letter(latex="W_Q", axes=("query", "model"), label="head", flips=True, reads=True),
    "W_K": Letter(latex="W_K", axes=("query", "model"), label="group", flips=True, reads=True),
    "W_V": Letter(latex="W_V", axes=("value", "model"), label="group", flips=True),
    "W_O": Letter(latex="W_O", axes=("model", "value"), label="head", flips=True),
    "W_OV": Letter(
        latex="W_{OV}", axes=("model", "model"), label="head",
        meaning="W_O @ W_V", flips=True, parts=("W_O", "W_V"), short="OV",
    ),
    "W_QK": Letter(
        latex="W_{QK}", axes=("model", "model"), label="head",
        meaning="W_Q.T @ W_K", reads=True, parts=("W_Q", "W_K"), short="QK",
    ),
    # norms, MLPs, positions
    "D": Letter(
        latex="D", axes=("token", "token"), label="norm",
        meaning="1 / sigma of the norm, diagonal", symmetric=True, of_tokens=True, always=False,
    ),
    "C": Letter(latex="C", axes=("model", "model"), meaning="I - 1 1^T / d_model", symmetric=True, always=False),
    "gain": Letter(
        latex=r"\Gamma", axes=("model", "model"), label="norm",
        meaning="gain of the norm, diagonal", symmetric=True, always=False,
    ),
    "mlp": Letter(
        latex="M", axes=("token", "model"), label="layer",
        meaning="what the MLP writes", of_tokens=True, always=False,
    ),
    "rest": Letter(
        latex=r"\mathrm{rest}", axes=("token", "model"), label="layer",
        meaning="the rest of the stream, or of the MLP's output",
        of_tokens=True, always=False,
    ),
    "b_N": Letter(latex="b_N", axes=("model", "one"), label="norm", flips=True, always=False),
    "R": Letter(
        latex="R_{j-i}", axes=("query", "query"), label="head",
        meaning="the rotation of each row", always=False,
    ),
    "alibi": Letter(
        latex=r"\mathrm{alibi}", axes=("token", "token"), label="head",
        meaning="what ALiBi adds to scores", of_tokens=True, always=False,
    ),
    # biases
    "b_V": Letter(latex="b_V", axes=("value", "one"), label="group", flips=True),
    "b_O": Letter(latex="b_O", axes=("model", "one"), label="layer", flips=True),
    "b_Q": Letter(latex="b_Q", axes=("query", "one"), label="head", flips=True, reads=True),
    "b_K": Letter(latex="b_K", axes=("query", "one"), label="group", flips=True, reads=True),
    "b_U": Letter(latex="b_U", axes=("output", "one"), flips=True),
    # numbers and masks
    "scale": Letter(latex="s", label="head", meaning="score scale"),
    "mask": Letter(
        latex=r"\mathcal{M}", axes=("token", "token"), label="layer",
        meaning="which keys a query may attend to: 1 or 0", always=False,
    ),
    "m_E": Letter(latex="m_E", always=False),
    "m_U": Letter(latex="m_U", always=False),
    "r": Letter(latex="r", label="layer", always=False),
    # inside an MLP
    "W_in": Letter(latex=r"W_{\mathrm{in}}", axes=("hidden", "model"), label="layer", flips=True, always=False),
    "W_gate": Letter(latex=r"W_{\mathrm{gate}}", axes=("hidden", "model"), label="layer", flips=True, always=False),
    "W_out": Letter(latex=r"W_{\mathrm{out}}", axes=("model", "hidden"), label="layer", flips=True, always=False),
    "b_in": Letter(latex=r"b_{\mathrm{in}}", axes=("hidden", "one"), label="layer", flips=True, always=False),
    "b_gate": Letter(latex=r"b_{\mathrm{gate}}", axes=("hidden", "one"), label="layer", flips=True, always=False),
    "b_out": Letter(latex=r"b_{\mathrm{out}}", axes=("model", "one"), label="layer", flips=True, always=False),
}  # fmt: skip


def _where(holds: Callable[[Letter], object]) -> tuple[str, ...]:
    return tuple(name for name, letter in LETTERS.items() if holds(letter))


def labelled_by(*owners: Owner) -> tuple[str, ...]:
    """The letters with such a label in brackets.

    >>> labelled_by("group")
    ('W_K', 'W_V', 'b_V', 'b_K')
    """
    return _where(lambda letter: letter.label in owners)


LATEX: Final = {name: letter.latex for name, letter in LETTERS.items()}
MEANINGS: Final = {name: letter.meaning for name, letter in LETTERS.items() if letter.meaning}
SYMMETRIC: Final = _where(lambda letter: letter.symmetric)  # their transpose is not marked
# TransformerLens keeps rows as tokens too, but every weight transposed; W_QK is the same in both.
FLIPPED: Final = frozenset(_where(lambda letter: letter.flips))
SHORT_NAMES: Final = {name: letter.short for name, letter in LETTERS.items() if letter.short}
SOMETIMES: Final = frozenset(_where(lambda letter: not letter.always))  # the name is free in a model without it
OF_TOKENS: Final = _where(lambda letter: letter.of_tokens)  # not in circuits
READERS: Final = _where(lambda letter: letter.reads)  # read the stream for a query or a key
SHARED: Final = labelled_by("group")  # labelled by the group of heads, if there are groups
ABBREVIATIONS: Final = {name: letter.parts for name, letter in LETTERS.items() if letter.parts}
