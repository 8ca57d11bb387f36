"""Finished words: rules 2 and 3; rule 1 (products) is in :mod:`symcircuits.core.words`.

Source: own derivation from the definition of the transformer.

2. words: a finished word is ``L X R``; read outward from X, the branches named on the left and on the right
   are the same, in the same order;
3. scores: rule 2 on the query side and on the key side, one W_QK, not transposed, between them, one scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symcircuits.core.words import Factor, IllTyped, Space, Word, fuse, is_multiplier, multipliers_of, transpose, unfuse

__all__ = ["check_finished", "is_score", "score_sides"]

# Readers behind a norm: the word must start where that norm writes.
_THROUGH_NORM = ("normed_model", "normed_input", "scaled_model", "attention_input")
_CONTEXTS = ("context", "normed_context")
_JOINTS = ("qk", "scaled_qk", "query", "key")  # spaces in which a query meets a key
# Where a finished word that is not a score may end.
_ENDS = ("model", "vocab_out", "readout")


def _names(factors: Iterable[Factor], outward: int) -> list[tuple[str, str, str]]:
    """The branches named by factors, each with its factor as written and as quoted, from the right or the left.

    ``outward``: -1 or 1. If the label of the factor is not that of the branch, the quotation has both.
    """
    named = [(p.symbol, f.text) for f in factors for p in unfuse((f,)) if p.symbol.branch]
    said = [(s.branch, text, text if s.branch == s.label else f"{text} (of {s.branch})") for s, text in named]
    return said[::outward]


def _check_sides(factors: tuple[Factor, ...], side: str = "") -> None:
    """Rule 2 on ``L X R``: the branches named left and right of X agree, read outward from X."""
    where, factors = f" on the {side} side" if side else "", fuse(factors)  # abbreviated, as people write words
    core = next((i for i, f in enumerate(factors) if f.col.space.kind not in _CONTEXTS), len(factors))
    if factors[0].row.space.kind not in _CONTEXTS or factors[0].row.reader:
        raise IllTyped(
            f"{' @ '.join(f.text for f in factors)} is not a finished word{where}: it must start at the context "
            f"(from patterns or a source), but {factors[0].text} offers {factors[0].row}. "
            "Rule 2 (words): L X R with X a source.", 2, factors[0].text,
        )  # fmt: skip
    if core == len(factors):
        raise IllTyped(
            f"{' @ '.join(f.text for f in factors)} is not a finished word{where}: it holds patterns only. "
            "Rule 2 (words): L X R with X a source.", 2, factors[0].text,
        )  # fmt: skip
    left, right = _names(factors[:core], -1), _names(factors[core:], 1)
    for i in range(max(len(left), len(right))):
        a, b = left[i] if i < len(left) else ("",) * 3, right[i] if i < len(right) else ("",) * 3
        if a[0] == b[0]:
            continue
        seen = (
            f"{a[2]} on the left meets {b[2]} on the right" if a[0] and b[0]
            else f"{(a[2] or b[2])} on the {'left' if a[0] else 'right'} has no partner on the other side"
        )  # fmt: skip
        raise IllTyped(
            f"the two sides of {factors[core].text} do not belong together{where}: {seen} "
            f"(number {i + 1} read outward from {factors[core].text}). Rule 2 (words): the branches named on "
            "the left (patterns, norms) and on the right (W_OV or W_O, gains) are the same, in the same order.",
            2, a[1], b[1],
        )  # fmt: skip
    reader = unfuse(factors)[-1]
    read, start = reader.row.space, factors[0]
    if read.kind in _THROUGH_NORM and read.owner and start.row.space != Space("normed_context", read.owner):
        raise IllTyped(
            f"{reader.text} reads{where} through the norm {read.owner}, so the word must start with D[{read.owner}], "
            f"but it starts with {start.text}. Rule 2 (words): the branches named on the left (patterns, norms) and on "
            "the right are the same, in the same order.", 2, start.text, reader.text,
        )  # fmt: skip


def score_sides(word: Word) -> tuple[Word, Word]:
    """Split a score word at its one ``W_QK`` into the query side and the (transposed) key side (rule 3).

    Both end in the head's query/key space: ``... W_Q.T`` or ``1 b_Q.T``, and ``... W_K.T`` or ``1 b_K.T``. For rotary
    positions ``R`` is between them, which maps from the one to the other.
    """
    factors = tuple(f for f in word.factors if f.symbol.glyph != "R")
    joints = [i for i, f in enumerate(factors[:-1]) if f.col.space.kind in _JOINTS]
    if len(joints) != 1:
        raise IllTyped(
            f"{word.text} has {len(joints)} places where a query meets a key; a score has exactly one W_QK "
            "(or W_Q.T @ W_K, or a query or key bias in its place). Rule 3 (scores).", 3,
        )  # fmt: skip
    cut = joints[0] + 1
    query, key = factors[cut - 1], factors[cut]
    if query.col.reader:
        raise IllTyped(
            f"query and key are swapped: {query.text} is left of {key.text}, which makes W_QK transposed. "
            "Rule 3 (scores): the query side is on the left, the key side on the right.",
            3, query.text, key.text,
        )  # fmt: skip
    turns = [(i, f) for i, f in enumerate(word.factors) if f.symbol.glyph == "R"]
    owner = _owner(Word(factors[:cut]))
    if any(i != cut or f.symbol.label != owner for i, f in turns):
        turn = turns[-1][1]
        raise IllTyped(
            f"{turn.text} is not where the queries of {owner} meet keys. Rule 3 (scores): rotary "
            "positions turn a head's queries and keys once, R between W_Q.T and W_K.", 3, query.text, turn.text,
        )  # fmt: skip
    return Word(factors[:cut]), Word(transpose(factors[cut:]))


def _owner(query: Word) -> str:
    """The head whose queries they are."""
    labels = [f.symbol.label for f in query.factors if f.symbol.glyph in ("W_Q", "b_Q")]
    return labels[-1] if labels else query.col.space.owner


def is_score(word: Word) -> bool:
    """Whether a query meets a key in the word."""
    return any(f.col.space.kind in _JOINTS for f in word.factors[:-1])


def check_finished(
    word: Word, *, scaled: bool | None = None, ends: Sequence[str] = _ENDS, multipliers: Iterable[str] | None = None
) -> Word:
    """Return the word if it is a finished term (rules 2 and 3), else raise :class:`IllTyped`.

    ``scaled`` says whether the architecture has a score scale, ``multipliers`` lists its multipliers (None: either is
    accepted, but a scalar that occurs must occur as often as it should); ``ends`` lists the kinds of space in which a
    word that is not a score may end.
    """
    _check_multipliers(word, frozenset(word.scales if multipliers is None else multipliers))
    scales = tuple(s for s in word.scales if not is_multiplier(s))
    if not is_score(word):
        _check_sides(word.factors)
        if word.col.space.kind not in ends:
            raise IllTyped(
                f"{word.text} is not a finished word: it must end in the model space (the stream) or the output "
                f"vocabulary (the logits), but {word.fused[-1].text} offers {word.col}. Rule 2 (words): L X R.",
                2, "", word.fused[-1].text,
            )  # fmt: skip
        if word.col.space.kind == "model" and word.row.space.kind != "context":
            raise IllTyped(
                f"{word.text} is not a finished word: it starts with {word.fused[0].text}, the norm of a reader of the "
                "stream, but it ends in the stream. Rule 2 (words): L X R.", 2, word.fused[0].text,
            )  # fmt: skip
        reader = word.factors[-1].row.space
        if word.col.space.kind == "readout" and reader.kind == "model" and word.row.space.kind != "context":
            raise IllTyped(
                f"{word.text} is not a finished word: it starts with {word.fused[0].text}, a norm, but "
                f"{word.factors[-1].text} reads without a norm. Rule 2 (words): L X R.", 2, word.fused[0].text,
            )  # fmt: skip
        if scales:
            raise IllTyped(f"{word.text}: a score scale precedes a word that is not a score. Rule 3 (scores).", 3)
        return word
    query, key = score_sides(word)
    _check_sides(query.factors, "query")
    _check_sides(key.factors, "key")
    owner = _owner(query)
    for f in query.factors:
        if f.symbol.glyph == "D" and f.symbol.label[:1] == "Q" and f.symbol.label[1:] != owner:
            raise IllTyped(
                f"{f.text} scales the queries of another head than {owner}, whose scores these are. Rule 3 (scores): a "
                "head's queries go through their own norm.", 3, f.text,
            )  # fmt: skip
    wanted = None if scaled is None else ((owner,) if scaled else ())
    if scales not in (((), (owner,)) if wanted is None else (wanted,)):
        seen = " * ".join(f"scale[{s}]" for s in scales) or "no scale"
        expected = "not occur (this architecture has none)" if scaled is False else f"occur once, scale[{owner}]"
        raise IllTyped(
            f"{word.text} carries {seen}; the score scale of {owner} must {expected}. "
            "Rule 3 (scores): one scalar scale per head, applied once.", 3, seen,
        )  # fmt: skip
    return word


def _check_multipliers(word: Word, there: frozenset[str]) -> None:
    seen = tuple(s for s in word.scales if is_multiplier(s))
    wanted = multipliers_of(word.factors, there)
    if seen != wanted:
        raise IllTyped(
            f"{word.text} carries {' * '.join(seen) or 'no multiplier'}; its symbols require "
            f"{' * '.join(wanted) or 'none'}. Rule 2 (words): a multiplier occurs once for every symbol that requires "
            "it.", 2, " * ".join(seen),
        )  # fmt: skip
