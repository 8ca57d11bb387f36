"""Words as integers: a readout multiplied out letter by letter, and enumerated terms as the same integers.

A letter is a matrix symbol, transposed or not, and has a number from 1 on; a word is the number that its letters make
in base 2^bits, in as many 64-bit limbs as it takes. So the product of two sums is a shift and a bitwise or for each
pair of words, and like terms are equal integers. Nothing here knows what the result should be: the recursion is walked
as it is, left and right letters are put on, and everything is added up. Scalars (score scales, multipliers) are nott
letters: they follow from the letters of a word. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from symcircuits.core.architecture import Head
from symcircuits.core.programs import Branch, Readout, Source, rotation
from symcircuits.core.walk import walk
from symcircuits.core.words import Factor, fuse, transpose
from symcircuits.tables.blocks import TermBlock
from symcircuits.tables.codes import Side, Split

__all__ = ["Alphabet", "PackedSums", "Words", "multiply_out", "words_of"]

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)  # odd numbers


class Alphabet:
    """The letters of a readout, and how many of them a 64-bit limb holds.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import readout
    >>> alphabet = Alphabet(readout(attention_only((12, 12)), "scores:L1H0"))
    >>> len(alphabet.letters), alphabet.bits, alphabet.per_limb
    (52, 6, 10)
    """

    def __init__(self, readout: Readout) -> None:
        self.readout = readout
        turned = self.turned
        found: dict[str, int] = {}
        for number, program in enumerate(readout.sides):
            for layer in program:
                parts = [s.factors for s in layer.sources] + [p for b in layer.branches for p in (b.left, b.right)]
                for part in parts:
                    for f in fuse(part) if number == 0 else fuse(transpose(part)):
                        found.setdefault(f.text, len(found) + 1)
        for f in turned:
            found.setdefault(f.text, len(found) + 1)
        self.letters = found
        self.bits = max(len(found).bit_length(), 1)
        self.per_limb = 64 // self.bits

    @property
    def turned(self) -> tuple[Factor, ...]:
        """What stands between the two sides of scores."""
        head = self.readout.head
        return rotation(self.readout.architecture, head) if head is not None else ()

    def codes(self, factors: Iterable[Factor]) -> list[int]:
        """The numbers of letters, of a product abbreviated as far as it can be."""
        return [self.letters[f.text] for f in fuse(factors)]

    def word(self, factors: Iterable[Factor]) -> Words:
        """A product as a sum of one word; the empty product is the empty word."""
        import numpy as np

        codes = self.codes(factors)
        limbs = [0] * self.limbs(len(codes))
        for place, code in enumerate(reversed(codes)):
            limbs[place // self.per_limb] |= code << place % self.per_limb * self.bits
        return Words(self, {len(codes): tuple(np.array([n], np.uint64) for n in limbs)})

    def limbs(self, length: int) -> int:
        """Limbs of a word of so many letters."""
        return max(-(-length // self.per_limb), 1)


Group = tuple[Any, ...]  # words of one length: their limbs, the last letters first, each an array


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A sum of words with coefficient one, by length; a word that stands there twice has coefficient two."""

    alphabet: Alphabet
    groups: dict[int, Group]

    @property
    def count(self) -> int:
        """Number of words."""
        return sum(int(g[0].size) for g in self.groups.values())

    def times(self, other: Words) -> Words:
        """The product: every word of this before every word of the other."""
        groups: dict[int, list[Group]] = {}
        for m, a in self.groups.items():
            for n, b in other.groups.items():
                groups.setdefault(m + n, []).append(_product(self.alphabet, m, a, n, b))
        return _gathered(self.alphabet, groups)

    @property
    def like_terms(self) -> int:
        """How many words stand there once more: 0 where all are different."""
        return sum(_equal(g) for g in self.groups.values())

    def same(self, other: Words) -> bool:
        """Whether two sums are the same words, each as often, in whatever order."""
        import numpy as np

        if {n: g[0].size for n, g in self.groups.items()} != {n: g[0].size for n, g in other.groups.items()}:
            return False
        for n, group in self.groups.items():
            one, two = (np.lexsort(g) if len(g) > 1 else None for g in (group, other.groups[n]))
            for a, b in zip(group, other.groups[n], strict=True):
                x, y = (np.sort(a), np.sort(b)) if one is None else (a[one], b[two])
                if not np.array_equal(x, y):
                    return False
        return True


def _product(alphabet: Alphabet, m: int, a: Group, n: int, b: Group) -> Group:
    import numpy as np

    shifted, rows, columns = _shifted(alphabet, a, m, n), a[0].size, b[0].size
    if not n:  # the empty word
        return tuple(np.repeat(x, columns) for x in a)
    out = []
    for i in range(alphabet.limbs(m + n)):
        limb = np.empty((rows, columns), np.uint64)
        if i < len(b):
            np.bitwise_or(shifted[i][:, None], b[i][None, :], out=limb)
        else:
            limb[:] = shifted[i][:, None]
        out.append(limb.reshape(-1))
    return tuple(out)


def _shifted(alphabet: Alphabet, group: Group, length: int, by: int) -> Group:
    """Words with room for so many letters behind them."""
    import numpy as np

    whole, part = divmod(by, alphabet.per_limb)
    out = [np.zeros_like(group[0]) for _ in range(max(alphabet.limbs(length + by), whole + len(group)))]
    low, high = np.uint64(part * alphabet.bits), np.uint64((alphabet.per_limb - part) * alphabet.bits)
    mask = np.uint64((1 << alphabet.per_limb * alphabet.bits) - 1)
    for i, limb in enumerate(group):
        out[i + whole] |= (limb << low) & mask
        if part and i + whole + 1 < len(out):
            out[i + whole + 1] |= limb >> high
    return tuple(out)


def _gathered(alphabet: Alphabet, groups: dict[int, list[Group]]) -> Words:
    import numpy as np

    return Words(
        alphabet,
        {
            n: g[0] if len(g) == 1 else tuple(map(np.concatenate, zip(*g, strict=True)))
            for n, g in sorted(groups.items())
        },
    )


def _equal(group: Group) -> int:
    """How many words of a group stand there once more."""
    import numpy as np

    key = group[0].copy()
    for limb, odd in zip(group[1:], _MIX * (len(group) // 3 + 1), strict=False):
        key ^= limb * np.uint64(odd)
    key.sort()
    if not (key[1:] == key[:-1]).any():
        return 0  # equal words have equal keys
    order = np.lexsort(group)
    alike = np.logical_and.reduce([g[order][1:] == g[order][:-1] for g in group])
    return int(alike.sum())


@final
class PackedSums:
    """Sums of words, an algebra of the walk; ``turned``: of the transposed recursion, ``right^T value left^T``."""

    __slots__ = ("alphabet", "turned")

    def __init__(self, alphabet: Alphabet, turned: bool = False) -> None:
        self.alphabet, self.turned = alphabet, turned

    def source(self, source: Source) -> Words:
        """The source's word."""
        parts = (fuse(source.left), fuse(source.core), fuse(source.right))
        factors = tuple(f for part in parts for f in part)
        return self.alphabet.word(transpose(factors) if self.turned else factors)

    def branch(self, branch: Branch, value: Words) -> Words:
        """What stands left and right, put on every word."""
        sides = (transpose(branch.right), transpose(branch.left)) if self.turned else (branch.left, branch.right)
        left, right = map(self.alphabet.word, sides)
        return left.times(value).times(right)

    def add(self, values: Sequence[Words]) -> Words:
        """Their sum."""
        groups: dict[int, list[Group]] = {}
        for value in values:
            for n, group in value.groups.items():
                groups.setdefault(n, []).append(group)
        return _gathered(self.alphabet, groups)


def multiply_out(readout: Readout) -> Words:
    """Everything that a readout is, multiplied out layer by layer; of scores, every query word times every key word.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import readout
    >>> words = multiply_out(readout(attention_only((12, 12)), "scores:L1H0"))
    >>> words.count, words.like_terms
    (169, 0)
    """
    alphabet = Alphabet(readout)
    nothing = Words(alphabet, {})
    first = walk(readout.sides[0], PackedSums(alphabet)) or nothing
    if not readout.bilinear:
        return first
    second = walk(readout.sides[1], PackedSums(alphabet, True)) or nothing
    return first.times(alphabet.word(alphabet.turned)).times(second)


# ------------------------------------------------------------------------------- terms as the same integers
def words_of(blocks: Iterable[TermBlock], alphabet: Alphabet) -> Words:
    """The words of enumerated terms, in the letters of :func:`multiply_out`: of the same readout, the same sum.

    >>> import symcircuits as sc
    >>> e = sc.scores(sc.attention_only((12, 12)), "L1H0")
    >>> words_of(e.blocks(), Alphabet(e.readout)).same(multiply_out(e.readout))
    True
    """
    import numpy as np

    groups: dict[int, list[Group]] = {}
    spellers: list[_Speller] = []
    for block in blocks:
        if not spellers:
            names = tuple(s.name for s in block.expansion.sources)
            programs = enumerate(block.expansion.readout.sides)
            spellers = [_Speller(alphabet, Side(program, names), i == 1) for i, program in programs]
        sides = [s.letters(block.heads[i], block.sources[i]) for i, s in enumerate(spellers)]
        between = [np.full(len(block), code) for code in alphabet.codes(alphabet.turned)]
        columns = [*sides[0], *between, *(sides[1] if len(sides) == 2 else [])]
        for n, group in _packed(alphabet, columns).items():
            groups.setdefault(n, []).append(group)
    return _gathered(alphabet, groups)


def _packed(alphabet: Alphabet, columns: list[Any]) -> dict[int, Group]:
    """Letters by place (0: none) as words, by length."""
    import numpy as np

    lengths = sum((c > 0).astype(np.int64) for c in columns)
    limbs = [np.zeros(len(lengths), np.uint64) for _ in range(alphabet.limbs(int(lengths.max())))]
    bits, top = np.uint64(alphabet.bits), np.uint64((alphabet.per_limb - 1) * alphabet.bits)
    mask = np.uint64((1 << alphabet.per_limb * alphabet.bits) - 1)
    for column in columns:
        there = column > 0
        for i in reversed(range(len(limbs))):
            carried = limbs[i - 1] >> top if i else column.astype(np.uint64)
            limbs[i] = np.where(there, (limbs[i] << bits) & mask | carried, limbs[i])
    found = {}
    for n in np.unique(lengths).tolist():
        rows = lengths == n
        found[n] = tuple(limb[rows] for limb in limbs[: alphabet.limbs(n)])
    return found


class _Speller:
    """The letters of paths of a side, by place; of the key side, of the transposed words."""

    def __init__(self, alphabet: Alphabet, side: Side, turned: bool) -> None:
        self.alphabet, self.side, self.turned = alphabet, side, turned

    def letters(self, heads: Any, sources: Any) -> list[Any]:
        start, columns = self.side.columns(heads, sources, False)
        layers = range(len(columns))
        left = [c for layer in reversed(layers) for c in self._of_layer(layer, columns[layer], "left")]
        right = [c for layer in layers for c in self._of_layer(layer, columns[layer], "right")]
        parts = [[self._product(f) for f in self._of(s)] for s in self.side.splits]
        outer_left, core, outer_right = (self._of_source([p[i] for p in parts], start) for i in range(3))
        if not self.turned:
            return [*outer_left, *left, *core, *right, *outer_right]
        turned_left = [c for layer in reversed(layers) for c in self._of_layer(layer, columns[layer], "right")]
        turned_right = [c for layer in layers for c in self._of_layer(layer, columns[layer], "left")]
        return [*outer_right, *turned_left, *core, *turned_right, *outer_left]

    def _of(self, split: Split) -> tuple[tuple[Factor, ...], ...]:
        return split.outer_left, (*split.left, *fuse(split.core), *fuse(split.right)), split.outer_right

    def _product(self, factors: tuple[Factor, ...]) -> list[int]:
        return self.alphabet.codes(transpose(factors) if self.turned else factors)

    def _of_source(self, codes: list[list[int]], start: Any) -> list[Any]:
        import numpy as np

        width = max(map(len, codes), default=0)
        table = np.array([c + [0] * (width - len(c)) for c in codes], np.int64).reshape(len(codes), width)
        return [table[start, i] for i in range(width)]

    def _of_layer(self, layer: int, column: Any, which: str) -> list[Any]:
        import numpy as np

        heads = [Head(layer, n) for n in self.side.numbers[layer]]
        codes = [[], *(self._product(getattr(self.side.branches[h], which)) for h in heads)]
        width = max(map(len, codes))
        table = np.array([c + [0] * (width - len(c)) for c in codes], np.int64)
        return [table[column + 1, i] for i in range(width)]
