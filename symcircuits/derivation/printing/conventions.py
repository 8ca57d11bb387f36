"""What every page states: the convention of its formulas, what is held fixed, and what symbols mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from symcircuits.core.names import HEAD, MARK
from symcircuits.core.notation import Notation
from symcircuits.derivation.printing.features import features

if TYPE_CHECKING:  # explain has a caption too, and needs no derivation
    from symcircuits.derivation.derive import Derivation
    from symcircuits.derivation.frames import Frame
    from symcircuits.derivation.results.registry import Result

__all__ = [
    "LABELS",
    "NUMBERED",
    "START",
    "caption",
    "consequence",
    "conventions",
    "fixed",
    "notation_clauses",
    "own_symbols",
]

_MAP = "(A (x) W) X = A X W^T"
_SCORES = "(A_q (x) A_k (x) W)(x, y) = A_q x W y^T A_k^T"
START = {
    "row": "Row convention: a stream `X` has one row for each token",
    "paper": (
        "The paper's notation: a stream `X` has one row for each token, matrices have the paper's shapes and act on "
        f"columns, and a map `A (x) W` of patterns and weights (`Id` is the identity) acts by `{_MAP}`"
    ),
    "transformerlens": (
        "TransformerLens's convention: a stream `X` has one row for each token, and weights act from the right, in "
        "TransformerLens's shapes, the transposes of the paper's (`W_E` is `[d_vocab, d_model]`, `W_Q`, `W_K` and "
        "`W_V` are `[d_model, d_head]`, `W_O` is `[d_head, d_model]`, `W_U` is `[d_model, d_vocab]`, biases are rows); "
        "a map `A (x) W` acts by `(A (x) W) X = A X W`"
    ),
}
LABELS: Final = "Heads are called by their labels, counted from 0: L0H2 is the third head of the first layer."
NUMBERED: Final = "Layers in formulas are numbered from 1: `X_l` is the stream after `l` layers."
_SPOKEN = {"X0": "X_0", "scale": "s", "ones": "1"}  # how sentences name symbols that the text notation spells out


def caption(notation: Notation) -> str:
    """The convention and what is held fixed, in a line below formulas that stand alone."""
    convention = notation.convention
    for formula in ("(A (x) W) x = A x W^T", _SCORES):
        convention = convention.replace(formula, f"`{formula}`")
    names = f"; {own_symbols(notation)}" if own_symbols(notation) else ""
    return f"In {convention}{names}. Held fixed: the attention patterns."


def own_symbols(notation: Notation) -> str:
    """Which symbols are renamed: ``M stands for W_OV``; also how labels and transposes are written."""
    named = [glyph for glyph in notation.names if glyph not in (HEAD, MARK)]
    said = [f"`{_SPOKEN.get(glyph, glyph)}` stands for {glyph}" for glyph in named]
    if HEAD in notation.names:
        said.append(f"the second head of the first layer is written {notation.names[HEAD]}")
    if notation.names.get(MARK, MARK) != MARK:
        said.append("`^T` marks a transpose")
    return ", ".join(said)


def conventions(derivation: Derivation) -> list[str]:
    """What a reader needs to know: conventions, and what is held fixed."""
    frame, result, notation = derivation.frame, derivation.result, derivation.notation
    own = list(result.conventions) if result else []
    held_fixed = [] if any(map(_fixes, own)) else [_held_fixed(frame, result)]
    return ["; ".join(_rows(frame, notation)) + ".", *held_fixed, *own, *_of_symbols(derivation)]


def _fixes(line: str) -> bool:
    """Whether a convention of a result says what is held fixed, in place of its model's."""
    return "held fixed:" in line.lower()


def notation_clauses(derivation: Derivation) -> list[str]:
    """Conventions except for what is held fixed, each in one sentence: for a book, which states each once.

    Its introduction says how layers are numbered, and the model line how many heads they have.
    """
    own = [line for line in derivation.result.conventions if not _fixes(line)] if derivation.result else []
    symbols = [line for line in _of_symbols(derivation) if not line.startswith(NUMBERED[:-1])]
    rows = [f"{clause[0].upper()}{clause[1:]}." for clause in _rows(derivation.frame, derivation.notation)]
    return [*rows, *own, *symbols]


def _of_symbols(derivation: Derivation) -> list[str]:
    frame, result, notation = derivation.frame, derivation.result, derivation.notation
    lines = _of_model(frame, notation) if result is None or result.names_model else []
    if frame.head is None and derivation.speaks_of_scores:
        lines.append("The score scale `s` (usually `1/sqrt(d_head)`) is one scalar for each head, applied once.")
    if own_symbols(notation):
        lines.append(f"Names of symbols: {own_symbols(notation)}.")
    return lines


def _of_model(frame: Frame, notation: Notation) -> list[str]:
    """How layers and heads of the model are named, its score scale, biases and positions."""
    lines, counted = [], "" if HEAD in notation.names else ", counted from 0"
    if frame.generic and frame.depth:
        names = "index `h_l` runs"
        if frame.head is not None:
            names = "indices `h_l`, `q_l` (on the query side) and `k_l` (on the key side) run"
        lines.append(
            f"Layers are numbered from 1 and layer `l` has `H_l` heads; the {names} from 1 to `H_l`. "
            f"A given head is called by its label{counted}: L0H0 is the first head of the first layer, "
            "`h_1 = 1`."
        )
    elif frame.depth or frame.head is not None:
        labels = LABELS.replace(", counted from 0", counted)
        lines += [labels, NUMBERED[:-1] + _head_counts(frame.architecture.heads[: frame.depth]) + "."]
    if frame.head is not None:
        lines.append("The score scale `s` (usually `1/sqrt(d_head)`) is one scalar, applied once."
                     if frame.expansion.readout.scale else "The scores of this model carry no scale.")  # fmt: skip
    if frame.biases and notation.tensors:
        lines.append("Biases are separate sources, columns that act on `1`, the column of ones: "
                     "`(Id (x) b) 1 = 1 b^T` is the same row for every token.")  # fmt: skip
    elif frame.biases:
        lines.append("Biases are separate sources; `1 b^T`, with `1` the column of ones, is the same row for "
                     "every token.")  # fmt: skip
    lines += features(frame)
    if frame.architecture.positions in ("standard", "shortformer"):
        where = "the stream" if frame.architecture.positions == "standard" else "the input of queries and keys only"
        where += ", after the norm" if where[4] == "i" and frame.norms else ""
        lines.append(f"`P` is the position embedding; it is added to {where}.")
    return lines


def _rows(frame: Frame, notation: Notation) -> list[str]:
    """The convention, and how a head of this model acts in it, in clauses."""
    said = [START[notation.name]]
    if frame.head is not None and notation.name != "row":
        said.append(f"a map of two streams acts by `{_SCORES}`")
    group = "[G(h)]" if frame.architecture.groups else ""
    own, read = "[h]" if group else "", "Y" if frame.norms else "X"
    if frame.norms:
        said.append("`Y` is the output of a norm")
    if frame.depth:
        said += [f"a head maps `{read}` to {_head_map(frame, notation)}", f"`W_OV{own} = W_O{own} W_V{group}`"]
    if frame.head is not None:
        shifted = frame.architecture.positions == "shortformer"
        stream = read if not shifted else "Z" if frame.norms else "Y"
        where = [] if frame.turned or frame.normed else [f"`W_QK{own} = W_Q{own}^T W_K{group}`"]
        where += [f"`{stream} = {read} + P`"] if shifted else []
        score = _scores(frame, stream, notation) + (f", with {' and '.join(where)}" if where else "")
        said.append(f"the scores of {frame.head} are {score} (rows are queries, columns keys)")
    return said


def _scores(frame: Frame, stream: str, notation: Notation) -> str:
    """The formula of the scores in terms of the stream that they read."""
    scale = "s " if frame.expansion.readout.scale else ""
    kinds = {name.partition("[")[0] for name in frame.biases}
    alibi = f" + alibi[{frame.head}]" * frame.alibi
    if not kinds & {"b_Q", "b_K"} and not frame.turned and not frame.normed:
        qk = f"(Id (x) Id (x) W_QK)({stream}, {stream})" if notation.tensors else f"{stream} W_QK {stream}^T"
        return f"`{scale}{qk}{alibi}`"
    sides = []
    for x in "QK":
        read = f"(Id (x) W_{x}) {stream}" if notation.tensors else f"{stream} W_{x}^T"
        bias = f"(Id (x) b_{x}) 1" if notation.tensors else f"1 b_{x}^T"
        side = f"({read} + {bias})" if f"b_{x}" in kinds else f"({read})"
        sides.append(f"(D {side} gain)" if frame.normed else side)
    return f"`{scale}{sides[0]} {'R ' * frame.turned}{sides[1]}^T{alibi}`"


def _head_map(frame: Frame, notation: Notation) -> str:
    """How earlier heads map a stream: with a value bias, without one, or both kinds."""
    biased = {
        f"b_V[{frame.walked.key_value(h)}]" in frame.walked.biases
        for layer in range(frame.depth) for h in frame.walked.layer_heads(layer)
    }  # fmt: skip
    x = "Y" if frame.norms else "X"
    shown = {False: f"`A {x} W_OV^T`", True: f"`A ({x} W_V^T + 1 b_V^T) W_O^T`"}
    if notation.tensors:
        shown = {False: f"`(A (x) W_OV) {x}`", True: f"`(A (x) W_O) ((Id (x) W_V) {x} + (Id (x) b_V) 1)`"}
    if len(biased) == 2:
        return f"{shown[False]}, or to {shown[True]} if it has a value bias"
    return shown[True in biased]


def _held_fixed(frame: Frame, result: Result | None) -> str:
    """What is held fixed, and what the formulas are linear in."""
    without = _listed(_absent(frame, result is None or result.names_model))
    if result is not None:
        return f"Held fixed: the attention patterns `A`; {without}."
    held = _fixed_by(frame)
    if not held:
        return f"Nothing is held fixed: the formulas contain no attention pattern. There is {without}."
    return f"Held fixed: {_listed(held)}, and so {_linear(frame)}" + (f"; {without}." if without else ".")


def fixed(derivation: Derivation) -> list[str]:
    """What is held fixed, and what the model does not have, each in a sentence: the hypotheses of a book."""
    frame, result = derivation.frame, derivation.result
    own = [line for line in result.conventions if _fixes(line)] if result else []
    if own:
        return own
    held = _fixed_by(frame) if result is None else ["the attention patterns `A`"]
    said = [f"Held fixed: {what}." for what in held] or ["Nothing is held fixed: the formulas contain no pattern."]
    absent = _listed(_absent(frame, result is None or result.names_model))
    return [*said, f"There is {absent}."] if absent else said


def consequence(derivation: Derivation) -> str:
    """What the formulas of a path expansion are linear in, if something is held fixed; otherwise an empty string."""
    said = _linear(derivation.frame) if derivation.result is None and _fixed_by(derivation.frame) else ""
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _absent(frame: Frame, named: bool) -> list[str]:
    arch = frame.architecture
    inside = {"rotary": "rotary positions only in the patterns", "alibi": "ALiBi only in the patterns"}
    where = "" if frame.turned or frame.alibi else arch.positions or ""
    absent = [inside.get(where, "no position embedding")]
    absent = absent if named and arch.positions not in ("standard", "shortformer") else []
    absent += [] if frame.norms else ["no layer norm"]
    absent += [] if frame.mlps else ["no MLP before it" if arch.mlps else "no MLP"]
    return absent


def _fixed_by(frame: Frame) -> list[str]:
    """What a path expansion holds fixed."""
    arch, patterns = frame.architecture, "the attention patterns `A`"
    if frame.head is None:
        makers = ["score scale"] * arch.scale + ["mask"] * arch.causal + ["softmax"] * arch.softmax
        patterns += f" (with everything that determines them: {_listed(makers)})"
    held = [patterns] if frame.depth else []
    held += ["the scale of every token in every norm (`D`)"] if frame.norms else []
    held += ["the scale of every query and key (`D`)"] if frame.normed else []
    return held + (["the output of every MLP"] if frame.mlps else [])


def _linear(frame: Frame) -> str:
    if frame.head is not None:
        but = ", except for the ALiBi bias," if frame.alibi else ""
        linear = "linear in what enters the query side, and linear in what enters the key side"
        return f"the scores{but} are bilinear: {linear}"
    after = [name for name in ("b_N[final]", "b_U") if name in frame.biases]
    return "every formula is linear in what enters the stream" + "".join(f" and in `{name}`" for name in after)


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[:-1] else words)


def _head_counts(heads: tuple[int, ...]) -> str:
    """What the symbols ``H_l`` stand for here."""
    values = ", ".join(f"`H_{i} = {n}`" for i, n in enumerate(heads, 1))
    return f"; layer `l` has `H_l` heads, here {values}" if heads else ""
