"""Words as integers: a readout multiplied out letter by letter, in the order of its letters.

A letter is a matrix symbol, transposed or not, numbered from 1; a word is the number that its letters make in base
2^bits, in as many 64-bit limbs as needed. So the product of two sums is a shift and a bitwise or for each pair of
words, and like terms are equal integers. Multipliers commute, and one may occur twice in a word: their multiplicities
are the digits of separate integers, which are added. The score scale, in every word, is its first letter.

Nothing here knows what the result should be: the recursion is walked, left and right letters are attached, and
everything is added up. The enumeration is not used, so each can check the other. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from symcircuits.core.programs import Branch, Layer, Readout, Source, rotation
from symcircuits.core.walk import walk
from symcircuits.core.words import Factor, fuse, transpose

__all__ = ["Alphabet", "Group", "PackedSums", "Words", "gathered", "multiply_out"]

_PART = 1 << 15  # words that stay in the cache
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)  # odd numbers


class Alphabet:
    """The letters of a readout, and how many of them a 64-bit limb holds; its multipliers likewise.

    ``letters``: numbers by text, from 1. ``most``: how many multipliers a word can have.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import readout
    >>> alphabet = Alphabet(readout(attention_only((12, 12)), "scores:L1H0"))
    >>> len(alphabet.letters), alphabet.bits, alphabet.per_limb
    (53, 6, 10)
    """

    def __init__(self, readout: Readout) -> None:
        self.readout = readout
        self.factors: dict[str, Factor] = {}
        layers = [layer for side in readout.sides for layer in side]
        for number, side in enumerate(readout.sides):
            for part in (part for layer in side for part in _parts(layer)):
                self.factors |= {f.text: f for f in fuse(transpose(part) if number else part)}
        self.factors |= {f.text: f for f in self.turned}
        self.scale = f"scale[{readout.scale}]" if readout.scale else ""
        names = [*self.factors, self.scale] if self.scale else [*self.factors]
        self.letters = {name: code for code, name in enumerate(names, 1)}
        self.bits = max(len(names).bit_length(), 1)
        self.per_limb = 64 // self.bits
        brought = [[x.scales for x in layer.branches] + [x.scales for x in layer.sources] for layer in layers]
        self.multipliers = [*dict.fromkeys(name for layer in brought for scales in layer for name in scales)]
        self.most: int = sum(max(map(len, layer), default=0) for layer in brought)
        self.digit = max(self.most.bit_length(), 1)
        self.scalar_limbs = -(-len(self.multipliers) // (64 // self.digit))

    @property
    def turned(self) -> tuple[Factor, ...]:
        """The letters between the two sides of scores."""
        head = self.readout.head
        return rotation(self.readout.architecture, head) if head is not None else ()

    def word(self, factors: Iterable[Factor], multipliers: Iterable[str] = ()) -> Words:
        """A product, abbreviated as far as possible, as a sum of one word; the empty product is the empty word."""
        return self.spelled([self.letters[f.text] for f in fuse(factors)], multipliers)

    def spelled(self, codes: Sequence[int], multipliers: Iterable[str] = ()) -> Words:
        """The word of letters with these numbers."""
        import numpy as np

        limbs = [0] * self.limbs(len(codes))
        for place, code in enumerate(reversed(codes)):
            limbs[place // self.per_limb] |= code << place % self.per_limb * self.bits
        limbs += map(sum, zip([0] * self.scalar_limbs, *map(self.counted, multipliers), strict=True))
        return Words(self, {len(codes): tuple(np.array([n], np.uint64) for n in limbs)})

    def counted(self, multiplier: str) -> list[int]:
        """A multiplier that occurs once, as integers that add up."""
        limb, place = divmod(self.multipliers.index(multiplier), 64 // self.digit)
        return [1 << place * self.digit if i == limb else 0 for i in range(self.scalar_limbs)]

    def limbs(self, length: int) -> int:
        """Limbs of the letters of a word of that length."""
        return max(-(-length // self.per_limb), 1)


def _parts(layer: Layer) -> Iterator[tuple[Factor, ...]]:
    for source in layer.sources:
        yield from (source.left, source.core, source.right)
    for branch in layer.branches:
        yield from (branch.left, branch.right)


Group = tuple[Any, ...]  # words of one length: limbs of their letters, the last first, then of multipliers; arrays


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A sum of words with coefficient one, by length; a word that appears twice has coefficient two."""

    alphabet: Alphabet
    groups: dict[int, Group]

    @property
    def count(self) -> int:
        """Number of words."""
        return sum(int(g[0].size) for g in self.groups.values())

    def times(self, other: Words) -> Words:
        """The product: every word of this before every word of the other."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        for m in self.groups:
            for n in other.groups:
                pairs.setdefault(m + n, []).append((m, n))
        return Words(self.alphabet, {length: self._products(other, some) for length, some in sorted(pairs.items())})

    def _products(self, other: Words, lengths: Sequence[tuple[int, int]]) -> Group:
        """Every word of some lengths here followed by every one of other lengths there; products have one length."""
        import numpy as np

        factors = [(m, self.groups[m], n, other.groups[n]) for m, n in lengths]
        ends = np.cumsum([0, *(a[0].size * b[0].size for _, a, _, b in factors)]).tolist()
        limbs = self.alphabet.limbs(sum(lengths[0]))
        made = [_limbs(self.alphabet, limbs, *two) for two in factors]
        found: list[Any] = []
        for parts in zip(*made, strict=True):
            if all(y is None and (x == parts[0][0][:1]).all() for x, y, _ in parts):  # the same for all of them
                found.append(np.broadcast_to(parts[0][0][0], ends[-1]))
                continue
            found.append(np.empty(ends[-1], np.uint64))
            for (x, y, together), at, end in zip(parts, ends, ends[1:], strict=False):
                out = found[-1][at:end].reshape(x.size, -1)
                if y is None:
                    out[:] = x[:, None]
                else:
                    together(x[:, None], y, out=out)
        return tuple(found)

    @property
    def like_terms(self) -> int:
        """How many words are duplicates: 0 if all are different."""
        return sum(_equal(g) for g in self.groups.values())

    def same(self, other: Words) -> bool:
        """Whether two sums are the same words with the same multiplicities, in any order."""
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

    def less(self, other: Words) -> Words:
        """The words that occur here more often than in the other, and by how much."""
        found = {n: _less(g, other.groups[n]) if n in other.groups else g for n, g in self.groups.items()}
        return Words(self.alphabet, {n: g for n, g in found.items() if g[0].size})

    def texts(self) -> Iterator[str]:
        """Each word in text notation; symbols that meet only in a score are not abbreviated."""
        names = ["", *self.alphabet.letters]
        mask, digit = (1 << self.alphabet.bits) - 1, (1 << self.alphabet.digit) - 1
        per = 64 // self.alphabet.digit
        for length, group in self.groups.items():
            for limbs in zip(*(limb.tolist() for limb in group), strict=True):
                places = (divmod(place, self.alphabet.per_limb) for place in reversed(range(length)))
                letters = [names[limbs[i] >> at * self.alphabet.bits & mask] for i, at in places]
                scalars = limbs[self.alphabet.limbs(length) :]
                front = letters[:1] if letters[:1] == [self.alphabet.scale] else []
                for i, name in enumerate(self.alphabet.multipliers):
                    front += [name] * (scalars[i // per] >> i % per * self.alphabet.digit & digit)
                yield "".join(f"{s} * " for s in front) + " @ ".join(letters[letters[:1] == [self.alphabet.scale] :])


def _limbs(alphabet: Alphabet, count: int, m: int, a: Group, n: int, b: Group) -> Iterator[tuple[Any, Any, Any]]:
    """For each limb of the products: the parts of the first words and of the second (or None), and how to join them."""
    import numpy as np

    ends = len(a) - alphabet.scalar_limbs, len(b) - alphabet.scalar_limbs
    for i, x in enumerate(_shifted(alphabet, a[: ends[0]], m, n)[:count]):
        yield x, b[i] if i < ends[1] else None, np.bitwise_or
    for x, y in zip(a[ends[0] :], b[ends[1] :], strict=True):
        yield x, y, np.add


def _shifted(alphabet: Alphabet, group: Group, length: int, by: int) -> Group:
    """Words with room for that many letters after them."""
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


def gathered(alphabet: Alphabet, groups: dict[int, list[Group]]) -> Words:
    """The sum of groups of words, by their lengths."""
    import numpy as np

    return Words(
        alphabet,
        {
            n: g[0] if len(g) == 1 else tuple(map(np.concatenate, zip(*g, strict=True)))
            for n, g in sorted(groups.items())
        },
    )


def _less(one: Group, two: Group) -> Group:
    import numpy as np

    both = [np.concatenate(pair) for pair in zip(one, two, strict=True)]
    order = np.lexsort(both)
    both, sign = [limb[order] for limb in both], np.where(order < one[0].size, 1, -1)
    new = np.logical_or.reduce([np.diff(limb, prepend=~limb[:1]) != 0 for limb in both])
    firsts = np.flatnonzero(new)
    more = np.maximum(np.add.reduceat(sign, firsts), 0)
    return tuple(limb[firsts].repeat(more) for limb in both)


def _keys(group: Group) -> Any:
    """An integer for each word, equal for equal words; sorting 32 bits takes little more than half the time of 64."""
    import numpy as np

    found = np.empty(group[0].size, np.uint32)
    for at in range(0, found.size, _PART):  # pieces that fit in the cache
        part = slice(at, at + _PART)
        mixed = np.zeros_like(group[0][part])
        for limb, odd in zip(group, _MIX * (len(group) // 3 + 1), strict=False):
            mixed ^= limb[part] * np.uint64(odd)
        found[part] = mixed >> np.uint64(32)
    return found


def _equal(group: Group) -> int:
    """How many words of a group are duplicates."""
    import numpy as np

    key = _keys(group)
    ordered = np.sort(key)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    maybe = np.zeros(1 << 16, bool)
    maybe[twice >> 16] = True
    cuts = range(0, key.size, _PART)
    found = [np.flatnonzero(maybe[key[at : at + _PART] >> 16]) + at for at in cuts] if twice.size else []
    rows = np.concatenate([np.zeros(0, np.intp), *found])
    rows = rows[np.isin(key[rows], twice)]  # equal words have equal keys, so all of them are among these
    few = [limb[rows] for limb in group]
    order = np.lexsort(few)
    alike = np.logical_and.reduce([limb[order][1:] == limb[order][:-1] for limb in few])
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
        return self.alphabet.word(transpose(factors) if self.turned else factors, source.scales)

    def branch(self, branch: Branch, value: Words) -> Words:
        """The letters on the left and right, attached to every word."""
        left, right = (transpose(branch.right), transpose(branch.left)) if self.turned else (branch.left, branch.right)
        return self.alphabet.word(left, branch.scales).times(value).times(self.alphabet.word(right))

    def add(self, values: Sequence[Words]) -> Words:
        """Their sum."""
        groups: dict[int, list[Group]] = {}
        for value in values:
            for n, group in value.groups.items():
                groups.setdefault(n, []).append(group)
        return gathered(self.alphabet, groups)


def multiply_out(readout: Readout) -> Words:
    """A readout multiplied out layer by layer; for scores, every query word times every key word.

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
    front = alphabet.spelled([alphabet.letters[alphabet.scale]] if alphabet.scale else [])
    return front.times(first).times(alphabet.word(alphabet.turned)).times(second)
