"""Composition scores in a text: the norm of a product over the norms of its factors."""

from __future__ import annotations

from typing import Final

from symcircuits.checking.finishing import Finished
from symcircuits.checking.syntax import Call, Fraction, Name, Node, nodes

__all__ = ["grouped", "norm_ratio", "parted", "same_up_to_transposes"]

_OF_HEADS: Final = {"W_Q", "W_K", "W_V", "W_O", "W_QK", "W_OV", "R", "gain", "C"}
_PARTNERS: Final = {"W_Q": "W_K", "W_K": "W_Q", "W_O": "W_V", "W_V": "W_O"}


def norm_ratio(node: Node) -> tuple[Node, list[Node]] | None:
    """The numerator and the factors of ``norm(a b) / (norm(a) norm(b))``, or of ``norm(a b) / norm(a) / norm(b)``."""
    below: list[Node] = []
    above = node
    while isinstance(above, Fraction):
        below = [*(n for n in nodes(above.denominator) if isinstance(n, Call)), *below]
        above = above.numerator
    if not below or not all(map(_is_norm, (above, *below))):
        return None
    assert isinstance(above, Call)
    return above.arguments[0], [n.arguments[0] for n in below if isinstance(n, Call)]


def _is_norm(node: Node) -> bool:
    return (
        isinstance(node, Call)
        and isinstance(node.function, Name)
        and node.function.text == "norm"
        and bool(node.arguments)
    )


def parted(found: Finished) -> tuple[str, str] | None:
    """A factor of a matrix of two, and the missing other factor; None if all are whole, or not of heads."""
    for word in found.words:
        glyphs = [letter.glyph for letter in word.letters]
        if not {*glyphs} <= _OF_HEADS:
            continue
        for glyph in glyphs:
            if glyph in _PARTNERS and glyphs.count(glyph) > glyphs.count(_PARTNERS[glyph]):
                return glyph, _PARTNERS[glyph]
    return None


def grouped(values: list[Finished], whole: Finished) -> bool:
    """Whether a product of two is the whole, as in ``norm(q k o v) / (norm(q k) norm(o v))``."""
    if len(values) != 2 or any(len(value.words) != 1 for value in (*values, whole)):
        return False
    (first,), (second,), (all_,) = values[0].words, values[1].words, whole.words
    letters = {(*a.letters, *b.letters) for a in (first, first.T) for b in (second, second.T)}
    letters |= {(*b.letters, *a.letters) for a in (first, first.T) for b in (second, second.T)}
    return all_.letters in letters


def same_up_to_transposes(values: list[Finished], wanted: list[Finished]) -> bool:
    def key(found: Finished) -> frozenset[object]:
        return frozenset(frozenset((w.letters, w.T.letters)) for w in found.words)

    return sorted(map(hash, map(key, values))) == sorted(map(hash, map(key, wanted)))
