"""Compares two sums of raw words as polynomials: equal, equal under a stated hypothesis, or where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from symcircuits.checking.formula import Letter, RawWord
from symcircuits.checking.matching import Letters, Spelling
from symcircuits.core.words import is_multiplier, scalar_order

__all__ = [
    "INVISIBLE",
    "NO_ALIBI",
    "NO_NORMS",
    "ROWS_SUM",
    "UNSCALED",
    "Difference",
    "compared",
    "place_of",
    "polynomial",
    "rows_summed",
]

ROWS_SUM: Final = "the rows of the attention patterns sum to one"
INVISIBLE: Final = "terms that softmax does not see are left out"
NO_NORMS: Final = "the norms are frozen and folded, so their effect is left out"
NO_ALIBI: Final = "what ALiBi adds to the scores is left out"
UNSCALED: Final = "the scores are unscaled"

Key = tuple[tuple[str, ...], Letters]


class Difference(NamedTuple):
    """What one sum has in excess and what it lacks, with the hypotheses under which nothing else differs."""

    extra: tuple[tuple[Key, int], ...]
    missing: tuple[tuple[Key, int], ...]
    where: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not self.extra and not self.missing


def polynomial(
    words: Iterable[RawWord], spelling: Spelling, summed: bool = False, scaled: bool = True
) -> dict[Key, int]:
    """Coefficients by scales and letters, in one spelling; words that cancel are left out."""
    found: Counter[Key] = Counter()
    for word in words:
        letters = rows_summed(word.letters) if summed else word.letters
        letters = spelling.canonical(spelling.fuse(letters))
        scales = word.scales if scaled else tuple(s for s in word.scales if is_multiplier(s))
        found[tuple(sorted(scales, key=scalar_order)), letters] += word.coefficient
    return {key: n for key, n in found.items() if n}


def rows_summed(letters: Sequence[Letter]) -> Letters:
    """``A 1 = 1`` substituted.

    >>> [f.text for f in rows_summed((Letter("A", "L1H0"), Letter("A", "L0H0"), Letter("ones")))]
    ['ones']
    """
    out: list[Letter] = []
    for f in letters:
        if f.glyph == "A" and f.transposed and out and out[-1] == Letter("ones", "", True):
            continue
        while f == Letter("ones") and out and out[-1].glyph == "A" and not out[-1].transposed:
            out.pop()
        out.append(f)
    return tuple(out)


def compared(given: Sequence[RawWord], right: Sequence[RawWord], spelling: Spelling) -> Difference:
    """The difference of two sums; hypotheses are tried in order, the weakest first."""
    scaled = _scaled(given) or not _scaled(right)
    first: Difference | None = None
    for summed in (False, True):
        a, b = (polynomial(words, spelling, summed, scaled) for words in (given, right))
        extra = [(k, n - b.get(k, 0)) for k, n in a.items() if n > b.get(k, 0) or (n < 0 and n != b.get(k, 0))]
        missing = [(k, n - a.get(k, 0)) for k, n in b.items() if n > a.get(k, 0) and n > 0]
        where = ((ROWS_SUM,) if summed else ()) + (() if scaled else (UNSCALED,))
        found = Difference(tuple(extra), tuple(missing), where)
        if found.equal and a == b:
            return found
        first = first or found
    assert first is not None
    return first


def _scaled(words: Iterable[RawWord]) -> bool:
    """Whether a score scale is written anywhere."""
    return any(not is_multiplier(s) for w in words for s in w.scales)


def place_of(
    words: Sequence[RawWord], wrong: Letters, right: Letters, spelling: Spelling
) -> tuple[int, tuple[int, ...]] | None:
    """The place of the product with these letters: its first letter that differs from the right ones.

    With it the places of all letters around that one: if they come from several lines, they were joined wrongly.
    """
    for word in words:
        if spelling.fuse(word.letters) != wrong and spelling.canonical(spelling.fuse(word.letters)) != wrong:
            continue
        spelled = [(letter, f.at) for f in word.factors for letter in spelling.unfuse((f.letter,))]
        if not right or not spelled:
            return word.at, (word.at,)
        other = spelling.unfuse(right)
        if sorted(letter for letter, _ in spelled) == sorted(other):
            first = next((i for i, (f, _) in enumerate(spelled) if f != other[i]), 0)
            return spelled[first][1], tuple(at for _, at in spelled)
        matcher = SequenceMatcher(None, [letter for letter, _ in spelled], list(other), autojunk=False)
        for tag, i, end, *_ in matcher.get_opcodes():
            if tag != "equal":
                about = spelled[max(0, i - 1) if tag == "insert" else i : max(end, i + 1)] or spelled[-1:]
                return spelled[min(i, len(spelled) - 1)][1], tuple(at for _, at in about)
        return word.at, (word.at,)
    return None
