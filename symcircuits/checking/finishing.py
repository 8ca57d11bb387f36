"""Turns values into raw words in row form: applies maps to the tokens, turns columns, orients vectors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from symcircuits.checking.formula import Letter, RawFactor, RawWord
from symcircuits.checking.labels import Finding
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.values import Chain, Value, Word
from symcircuits.core.architecture import Architecture, Head, as_head
from symcircuits.core.symbols import READERS

__all__ = ["Finished", "finish"]

_FINAL = "final"


class Finished(NamedTuple):
    """Raw words, how badly their sizes fit, and the meaning of their rows and columns."""

    words: tuple[RawWord, ...]
    misfits: int
    ends: frozenset[tuple[str, str]]
    maps: bool  # whether it was a map, which is applied to the tokens here
    unscaled: bool
    turned: bool | None = None  # whether it had a column for each token; None if unknown


def finish(meaning: Meaning, value: Value, at: int, order: tuple[str, ...] = ()) -> Finished:
    """The raw words of a value; ReadError if it is not a matrix. ``order``: the positions of rows and columns."""
    sizes = meaning.sizes
    maps = any(w.rank in (2, 3) for w in value)
    rank = max((w.rank or 0 for w in value), default=0)
    chains = [_turned_ones(meaning, _chain(meaning, w, rank, at)) for w in value]
    alone = [len(c.factors) == 1 and c.factors[0].at in meaning.noted.loose for c in chains]  # biases
    if all(bool(c.row) != bool(c.col) or x for c, x in zip(chains, alone, strict=True)):  # one token is a row
        chains = [c.T if c.col else c for c in chains]
    rows = {sizes.ends(c)[0] for c in chains}
    chains = [_broadcast(meaning, c, "token" in rows) for c in chains]
    chains = _alike(meaning, chains)
    words, misfits = [], 0
    ends = frozenset(sizes.ends(c) for c in chains)
    turn = all(col == "token" and row != "token" for row, col in ends) and meaning.reading.columns
    for word, chain in zip(value, chains, strict=True):
        swapped = bool(order) and (chain.col, chain.row) == order != (chain.row, chain.col)
        chain = _rotated(chain.T if turn or swapped else chain)
        chain = _gains(meaning.architecture, chain)
        scales, left = _scales(meaning, word, chain)
        chain = Chain((*left, *chain.factors), chain.row, chain.col)
        misfits += sizes.misfits(chain) + bool(len(word.slots or ()) > 1 and rank == 1)
        if word.coefficient != int(word.coefficient):
            raise meaning.fault(f"the coefficient {word.coefficient} of this product is not a whole number", word.at)
        words.append(RawWord(int(word.coefficient), scales, chain.factors))
    if turn:
        ends = frozenset((col, row) for row, col in ends)
    misfits += max(0, len(ends) - 1) + len(meaning.findings)
    named = any(c.row or c.col for c in chains)
    columns = turn if not named and any((row == "token") != (col == "token") for row, col in ends) else None
    return Finished(tuple(words), misfits, ends, maps, not any(w.scales for w in words), turned=columns)


def _chain(meaning: Meaning, word: Word, rank: int, at: int) -> Chain:
    """One chain of a word: a map is applied to the tokens, an entry is replaced by its matrix."""
    slots, entries = word.slots, word.entries
    if slots is None:
        if rank not in (2, 3):
            return Chain()
        slots = (Chain(),) * rank
    t = Chain((RawFactor(Letter("t"), max(word.at, at)),))
    joined = [c for c in entries if c.factors]
    if rank > 1 and len(slots) == 1:  # weights or tokens that were not made a map
        chain = slots[0]
        meaning.findings.append(Finding("tensor-dropped", (
            "a map and a matrix are added: patterns and weights act on different indices, so the product sign (x) is "
            "required"), word.at))  # fmt: skip
    elif len(slots) == 2:
        chain = Chain(slots[0].factors + t.factors + slots[1].T.factors)
    elif len(slots) == 3:
        query, key, weights = slots
        chain = Chain(query.factors + t.factors + weights.factors + t.T.factors + key.T.factors)
    elif len(slots) == 1:
        chain = slots[0]
    elif len(joined) == 1:
        return joined[0]
    else:
        raise meaning.fault("a matrix is expected, not a number or a scale alone", at or word.at)
    for entry in joined:  # a number times a matrix
        chain = Chain(chain.factors + entry.factors, chain.row, chain.col)
    return chain


def _turned_ones(meaning: Meaning, chain: Chain) -> Chain:
    """Ones written without their orientation, as a row where they follow a column."""
    factors = list(chain.factors)
    for i, f in enumerate(factors[1:], 1):
        before = factors[i - 1].letter
        if f.letter == Letter("ones") and f.at in meaning.noted.loose and meaning.sizes.of(before)[1] == "one":
            factors[i] = f._replace(letter=f.letter.T)
    return chain._replace(factors=tuple(factors))


def _broadcast(meaning: Meaning, chain: Chain, tokens: bool) -> Chain:
    """Vectors as the rows or columns that fit; a vector that is added becomes the same row for every token."""
    loose = [i for i, f in enumerate(chain.factors) if f.at in meaning.noted.loose and f.letter.glyph[:2] == "b_"]
    ones = {i for i, f in enumerate(chain.factors) if f.letter.glyph == "ones"}
    loose = [i for i in loose if ones.isdisjoint((i - 1, i + 1))]  # a vector beside 1 is already written as meant
    if not loose:
        return chain
    sizes, best = meaning.sizes, chain
    for i in loose:
        turned = RawFactor(best.factors[i].letter.T, best.factors[i].at)
        other = best._replace(factors=(*best.factors[:i], turned, *best.factors[i + 1 :]))
        both = [_with_ones(meaning, c, tokens) for c in (best, other)]
        best = min((best, other), key=lambda c: (sizes.misfits(both[(best, other).index(c)]), c is other))
    return _with_ones(meaning, best, tokens)


def _alike(meaning: Meaning, chains: list[Chain]) -> list[Chain]:
    """Vectors that stand alone, oriented like those that they are added to."""
    ends = Counter(meaning.sizes.ends(c) for c in chains if len(c.factors) > 1)
    if not ends:
        return chains
    usual = ends.most_common(1)[0][0]

    def turned(c: Chain) -> Chain:
        alone = len(c.factors) == 1 and c.factors[0].at in meaning.noted.loose
        return c.T if alone and meaning.sizes.ends(c) == usual[::-1] else c

    return [turned(c) for c in chains]


def _with_ones(meaning: Meaning, chain: Chain, tokens: bool) -> Chain:
    out: list[RawFactor] = []
    last = ""
    for f in chain.factors:
        row, col = meaning.sizes.of(f.letter)
        if row == "one" and (last == "token" or (not out and tokens)):
            out.append(RawFactor(Letter("ones"), f.at))
        elif row == "token" and last == "one":
            out.append(RawFactor(Letter("ones", "", True), f.at))
        out.append(f)
        last = col
    if last == "one" and tokens and meaning.reading.columns and not chain.col:
        out.append(RawFactor(Letter("ones", "", True), chain.factors[-1].at))
    return Chain(tuple(out), chain.row, chain.col)


def _rotated(chain: Chain) -> Chain:
    """``R_m`` of a query and ``R_n^T`` of a key as the one rotation between them."""
    out: list[RawFactor] = []
    for f in chain.factors:
        before = out[-1] if out else None
        if f.letter.glyph == "R" and "@" in f.letter.label:
            head, _, which = f.letter.label.partition("@")
            first, _, second = which.partition("-")
            if second:
                turned = f.letter.transposed
                flips = (first, second) == (chain.col, chain.row)
                out.append(RawFactor(Letter("R", head, turned != flips), f.at))
                continue
            if before and before.letter.glyph == "R" and "@" in before.letter.label and f.letter.transposed:
                other = before.letter.label.partition("@")[2]
                if not before.letter.transposed and {other, which} == {chain.row, chain.col}:
                    out[-1] = RawFactor(Letter("R", head, other != chain.row), f.at)
                    continue
        out.append(f)
    return Chain(tuple(out), chain.row, chain.col)


def _gains(arch: Architecture, chain: Chain) -> Chain:
    """The norm of a gain, inferred from what reads it."""
    if all(f.letter.label != "?" for f in chain.factors):
        return chain
    out = list(chain.factors)
    for i, f in enumerate(out):
        if f.letter.label != "?":
            continue
        near = [out[j].letter for j in (i + 1, i - 1, i + 2, i - 2) if 0 <= j < len(out)]
        found = next((_norm_read_by(arch, x) for x in near if _norm_read_by(arch, x)), _FINAL)
        out[i] = RawFactor(Letter(f.letter.glyph, found), f.at)
    return Chain(tuple(out), chain.row, chain.col)


def _norm_read_by(arch: Architecture, letter: Letter) -> str:
    if letter.glyph in ("W_U", "b_U"):
        return _FINAL
    if letter.glyph in ("W_Q", "W_K", "W_V", "W_QK", "W_OV"):
        return arch.norm_label(int(re.findall(r"\d+", letter.label)[0]))
    return ""


def _scales(meaning: Meaning, word: Word, chain: Chain) -> tuple[tuple[str, ...], tuple[RawFactor, ...]]:
    """The scales of a word by their labels, and the norms that were written as division by sigma."""
    scales: list[str] = []
    left: list[RawFactor] = []
    for scale in word.scales:
        if scale == "/√d":
            scales.append(_head_read(meaning, chain) or "?")
        elif scale[:2] == "/σ":
            label = scale[2:] or _FINAL
            left.append(RawFactor(Letter("D", label), chain.factors[0].at if chain.factors else 0))
        elif scale.strip("/√") in ("d", "δ") or scale[:1] in "σ‖" or scale[:2] == "/‖":
            meaning.findings.append(Finding("scale", "the score scale is 1 / sqrt(d_head), once", word.at))
        else:
            scales.append(scale)
    return tuple(scales), tuple(left)


def _head_read(meaning: Meaning, chain: Chain) -> str:
    """The head whose query meets a key in a chain of letters."""
    labels = [f.letter.label for f in chain.factors if f.letter.glyph in READERS and "G" not in f.letter.label]
    return labels[0] if labels else ""


def heads_of(words: Sequence[RawWord]) -> set[Head]:
    """The heads that occur in words."""
    found = {f.letter.label for w in words for f in w.factors}
    return {as_head(x) for x in found if re.fullmatch(r"L\d+H\d+", x)}
