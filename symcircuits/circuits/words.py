"""The typed words of circuits: maps on columns, as in the paper, in the letters of expansions.

Every word made here is checked by the rules of products, so a wrongly transposed matrix, one of another head or one
of a later layer raises; numbers and formulas are both made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from symcircuits.core.architecture import FINAL, Architecture, Head
from symcircuits.core.notation import ROW, Notation, word_latex, word_text
from symcircuits.core.programs import embedding, norm, rotation, weight
from symcircuits.core.words import Factor, Index, Space, Symbol, Word, transpose

__all__ = [
    "HEAD_SPACES", "end_factors", "half", "norms_dropped", "ov_word", "position_side", "product_of", "qk_word",
    "score_formula", "score_left", "start_factor",
]  # fmt: skip

HEAD_SPACES: Final = ("ov", "qk", "raw_qk", "scaled_qk", "query", "key")  # the narrow ones


def norms_dropped(arch: Architecture) -> Architecture:
    """The same architecture without norms of the stream: weights read it as stored.

    >>> from symcircuits.core.architecture import attention_only
    >>> norms_dropped(attention_only((1,), norm="LN")).norm_labels
    ()
    """
    return replace(arch, norm=None, gains=frozenset(), biases=frozenset(b for b in arch.biases if b[:3] != "b_N"))


def ov_word(arch: Architecture, head: Head) -> tuple[Factor, ...]:
    """``W_O W_V`` of a head, with centring and gain of the norm before its values.

    >>> from symcircuits.core.architecture import attention_only
    >>> [f.text for f in ov_word(attention_only((1,), norm="LN"), Head(0, 0))]
    ['W_O[L0H0]', 'W_V[L0H0]', 'gain[L0]', 'C']
    """
    read = norm(arch, arch.norm_label(head.layer), head.layer)
    return (Factor(weight(arch, "W_O", head)), Factor(weight(arch, "W_V", head)), *transpose(read.right))


def half(arch: Architecture, head: Head, side: str) -> tuple[Factor, ...]:
    """``W_Q^T`` (or ``W_K^T``) of a head as it reads the stream: after its norm, with the gain of normed queries."""
    return (*norm(arch, arch.norm_label(head.layer), head.layer).right, *_side(arch, head, side))


def qk_word(arch: Architecture, head: Head) -> tuple[Factor, ...]:
    """``W_Q^T W_K`` of a head: with the rotation in between, gains of normed queries and keys, the norm on both sides.

    >>> from symcircuits.core.architecture import attention_only
    >>> [f.text for f in qk_word(attention_only((1,), "rotary", norm="RMS"), Head(0, 0))]
    ['gain[L0]', 'W_Q[L0H0].T', 'R[L0H0]', 'W_K[L0H0]', 'gain[L0]']
    """
    return (*half(arch, head, "Q"), *rotation(arch, head), *transpose(half(arch, head, "K")))


def _side(arch: Architecture, head: Head, side: str) -> tuple[Factor, ...]:
    """``W_Q^T`` (or ``W_K^T``), and the gain of normed queries (or keys)."""
    factors = (Factor(weight(arch, f"W_{side}", head)).T,)
    if not arch.qk_norm:
        return factors
    shared = arch.key_value(head)
    joint = {"Q": "query", "K": "key"}[side] if arch.positions == "rotary" else "scaled_qk"
    spaces = Index(Space(joint, shared), side == "K"), Index(Space("raw_qk", shared), side == "Q")
    label = f"{side}{head.label if side == 'Q' else shared}"
    return (*factors, Symbol("gain", f"{side}{head.layer}", *spaces, branch=label).T)


def start_factor(start: str) -> tuple[Factor, ...]:
    """The start of a circuit: ``W_E``, the position table ``P^T``, or nothing for the stream itself."""
    if start == "embed":
        return (embedding()[1].T,)
    return (_position(Space("model")).T,) if start == "pos" else ()


def position_side(arch: Architecture, head: Head, side: str) -> tuple[Factor, ...]:
    """``P W_Q^T`` (or ``P W_K^T``) of a shortformer layer: positions enter there, after the norm, and nowhere else."""
    read = Factor(weight(arch, f"W_{side}", head))
    return (_position(read.col.space), *_side(arch, head, side))


def _position(space: Space) -> Factor:
    return Factor(Symbol("P", "", Index(Space("context"), False, 0), Index(space, False, 0)))


def end_factors(arch: Architecture) -> tuple[Factor, ...]:
    """``W_U``, with gain and centring of the final norm."""
    read = norm(arch, FINAL, arch.n_layers)
    w_u = Symbol("W_U", "", Index(Space("vocab_out")), Index(read.model, True, arch.n_layers))
    return (Factor(w_u), *transpose(read.right))


def product_of(*parts: Sequence[Factor]) -> Word:
    """The checked product of these parts; raises IllTyped if they do not fit."""
    return Word(tuple(factor for part in parts for factor in part))


# -------------------------------------------------------------------------------------------- composition scores
def score_left(arch: Architecture, kind: str, later: Head) -> tuple[Factor, ...]:
    """The left side of a composition score: ``W_QK^T`` (Q), ``W_QK`` (K) or ``W_OV`` (V) of the later head.

    >>> from symcircuits.core.architecture import attention_only
    >>> [f.text for f in score_left(attention_only((1, 1)), "Q", Head(1, 0))]
    ['W_K[L1H0].T', 'W_Q[L1H0]']
    """
    if kind == "V":
        return ov_word(arch, later)
    return transpose(qk_word(arch, later)) if kind == "Q" else qk_word(arch, later)


def score_formula(
    arch: Architecture, kind: str, heads: tuple[Head, Head] | None, notation: Notation = ROW, latex: bool = False
) -> str:
    """A composition score, as text or as LaTeX: for two given heads, or for any, ``h_2`` after ``h_1``.

    >>> from symcircuits.core.architecture import attention_only
    >>> score_formula(attention_only((1, 1)), "K", None)
    '|W_QK[h_2] @ W_OV[h_1]| / (|W_QK[h_2]| |W_OV[h_1]|)'
    """
    if heads is None:
        arch = Architecture((1, 1), "rotary" if arch.positions == "rotary" else None)  # valid for any heads
    later, earlier = heads or (Head(1, 0), Head(0, 0))
    left, right = score_left(arch, kind, later), ov_word(arch, earlier)

    def norm_of(*parts: Sequence[Factor]) -> str:
        word = product_of(*parts)
        printed = word_latex(word, notation) if latex else word_text(word, notation)
        for label, name in (("L1H0", "h_2"), ("L0H0", "h_1")) if heads is None else ():
            printed = printed.replace(rf"\mathrm{{{label}}}" if latex else label, name)
        return rf"\bigl\lVert {printed} \bigr\rVert_F" if latex else f"|{printed}|"

    above, below = norm_of(left, right), (norm_of(left), norm_of(right))
    return rf"\frac{{{above}}}{{{below[0]}\,{below[1]}}}" if latex else f"{above} / ({below[0]} {below[1]})"
