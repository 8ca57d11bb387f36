"""Printed terms read as packed words: lines of text split at their signs, letters looked up, all at once.

A line consists of scalars, each followed by `` * ``, and letters separated by `` @ ``. Names are compared as the
integers that their bytes make. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from symcircuits.core.notation import factor_text, scale_text
from symcircuits.core.words import fuse
from symcircuits.tables.blocks import COMPOSITIONS, TermBlock
from symcircuits.verification.packed_words import Alphabet, Group, Words, gathered

__all__ = ["Printed", "WordReader", "printed"]

_SPACE, _TIMES, _AT, _LINE = b" *@\n"
_MIX = 0x9E3779B97F4A7C15  # an odd number
_TYPES = np.array([COMPOSITIONS.index(name) for name in ("none", "K", "Q", "QK")])


class Printed(NamedTuple):
    """Printed terms, one per line with its end, and their claimed orders (per side) and types."""

    text: bytes
    orders: tuple[Any, ...]
    composition: Any


def printed(blocks: Iterable[TermBlock]) -> Iterator[Printed]:
    """Terms as they are written to files."""
    for block in blocks:
        yield Printed(block.joined("text") + b"\n", block.orders, block.composition)


class _Name(NamedTuple):
    """The meaning of a name in the text: numbers of letters (two if it abbreviates them), or a multiplier, counted."""

    codes: tuple[int, ...]
    counted: list[int]
    scalar: bool


def _known(alphabet: Alphabet) -> dict[bytes, _Name]:
    """All names that may occur in the text."""
    once = [0] * alphabet.scalar_limbs
    factors, found = alphabet.factors.values(), dict[bytes, _Name]()
    for f in factors:
        found[factor_text(f).encode()] = _Name((alphabet.letters[f.text],), once, False)
    for a, b in ((a, b) for a in factors if a.symbol.glyph == "W_Q" for b in factors if b.symbol.glyph == "W_K"):
        if len(short := fuse((a, b))) == 1:  # a joint of query and key
            found[factor_text(short[0]).encode()] = _Name(tuple(alphabet.letters[f.text] for f in (a, b)), once, False)
    if alphabet.scale:
        found[scale_text(alphabet.readout.scale).encode()] = _Name((alphabet.letters[alphabet.scale],), once, True)
    return found | {scale_text(m).encode(): _Name((), alphabet.counted(m), True) for m in alphabet.multipliers}


class WordReader:
    """Reads printed terms as words, in the letters of an alphabet; counts those that are unreadable or wrong.

    ``unread``: lines with something that is not a letter of the readout, or not in its place.
    ``mistyped``: lines whose number of patterns (plain ones on the query side, transposed ones on the key side) differs
    from their orders, or contradicts their type. ``uneven``: by how many lines blocks have more or fewer than they
    have orders and types, which are then not compared. ``faults``: an example of each.

    >>> import symcircuits as sc
    >>> from symcircuits.verification.packed_words import multiply_out
    >>> e = sc.scores(sc.attention_only((12, 12)), "L1H0")
    >>> right = multiply_out(e.readout)
    >>> WordReader(right.alphabet).words(printed(e.blocks())).same(right)
    True
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.unread, self.mistyped, self.uneven, self.faults = 0, 0, 0, list[str]()
        known = _known(alphabet)
        # A name that contains a sign with its spaces is read as a different name, which no user can give.
        signs = sorted((name for name in known if b" @ " in name or b" * " in name), key=len, reverse=True)
        self.others = {name: b"\1%d" % i for i, name in enumerate(signs)}
        names = [self.others.get(name, name) for name in known]
        self.width = -(-max(map(len, names)) // 8)
        padded = b"".join(name.ljust(8 * self.width, b"\0") for name in names)
        parts = list(np.frombuffer(padded, "<u8").reshape(len(names), -1).T)
        order = np.argsort(_mixed(parts))
        self.parts = [part[order] for part in parts]
        self.mixed = _mixed(self.parts)
        if (self.mixed[1:] == self.mixed[:-1]).any():
            raise ValueError("two letters cannot be told apart by their mixed bytes: choose another odd number")
        rows = [(names[i], list(known.values())[i]) for i in order.tolist()]
        self.lengths = np.array([len(name) for name, _ in rows])
        self.sizes = np.array([len(row.codes) for _, row in rows])
        self.codes = [np.array([[0, 0, *row.codes][-place] for _, row in rows], np.uint64) for place in (1, 2)]
        self.scalar = np.array([row.scalar for _, row in rows])
        self.counted = [np.array([row.counted[i] for _, row in rows], np.uint64) for i in range(alphabet.scalar_limbs)]
        self.pattern = np.array([name.startswith(b"A[") * (1 + name.endswith(b".T")) for name, _ in rows])

    def words(self, blocks: Iterable[Printed]) -> Words:
        """The words of all readable lines, as a sum."""
        groups: dict[int, list[Group]] = {}
        for block in blocks:
            for length, group in self._read(block):
                groups.setdefault(length, []).append(group)
        return gathered(self.alphabet, groups)

    def _read(self, block: Printed) -> Iterator[tuple[int, Group]]:
        text = block.text
        self.uneven += abs(text.count(b"\n") - len(block.composition))
        if not text:
            return
        for name, other in self.others.items():
            text = text.replace(name, other)
        names, right, first = self._names(text)
        right = np.logical_and.reduceat(right, first)
        if self.alphabet.multipliers:  # more of them would carry over to the next digit
            right &= np.add.reduceat(self.sizes[names] == 0, first) <= self.alphabet.most
        self._count(text, ~right, "cannot read", "unread")
        if len(first) == len(block.composition):
            self._count(text, right & self._mistyped(block, names, first), "it has another order or type", "mistyped")
        lengths, limbs = self._packed(names, first)
        limbs = [*limbs, *(np.add.reduceat(counted[names], first) for counted in self.counted)]
        for n in np.unique(lengths[right]).tolist():
            rows = right & (lengths == n)
            kept = [*range(self.alphabet.limbs(n)), *range(len(limbs) - self.alphabet.scalar_limbs, len(limbs))]
            yield n, tuple(limbs[i][rows] for i in kept)

    def _names(self, text: bytes) -> tuple[Any, Any, Any]:
        """The parts between signs: the places of the names, and whether each is one; the first of each line."""
        data = np.frombuffer(text, np.uint8)
        signs = np.flatnonzero((data == _AT) | (data == _TIMES) | (data == _LINE))
        sign = data[signs]
        inner = (sign != _LINE) & ((data[signs - 1] != _SPACE) | (data[np.minimum(signs + 1, len(data) - 1)] != _SPACE))
        signs, sign = signs[~inner], sign[~inner]
        ends = signs - (sign != _LINE)
        starts = np.concatenate([[0], signs[:-1] + 1 + (sign[:-1] != _LINE)])
        lengths = ends - starts
        longer = np.ndarray((len(text),), "<u8", text + b"\0" * (8 * self.width + 8), strides=(1,))
        parts = []
        for i in range(self.width):
            inside = np.clip(lengths - 8 * i, 0, 8)
            parts.append(longer[np.minimum(starts + 8 * i, len(text) - 1)] & _MASKS[inside])
        places = np.minimum(np.searchsorted(self.mixed, _mixed(parts)), len(self.mixed) - 1)
        right = lengths == self.lengths[places]
        for part, known in zip(parts, self.parts, strict=True):
            right &= part == known[places]
        right &= self.scalar[places] == (sign == _TIMES)
        right[1:] &= (sign[1:] != _TIMES) | (sign[:-1] != _AT)  # scalars precede all letters
        return places, right, np.concatenate([[0], np.flatnonzero(sign == _LINE)[:-1] + 1])

    def _packed(self, names: Any, first: Any) -> tuple[Any, list[Any]]:
        """The lengths of words, and the limbs of their letters."""
        per, bits = self.alphabet.per_limb, self.alphabet.bits
        sizes = self.sizes[names]
        done, lengths = np.cumsum(sizes), np.add.reduceat(sizes, first)
        behind = np.repeat(np.cumsum(lengths), np.diff(first, append=len(names))) - done
        limbs = [np.zeros(len(first), np.uint64) for _ in range(self.alphabet.limbs(int(lengths.max())))]
        for k, codes in enumerate(self.codes):  # the last letters of names first
            code = codes[names]
            limb, place = np.divmod(behind + k, per)
            value = code << (place * bits).astype(np.uint64)
            for i, found in enumerate(limbs):
                found |= np.bitwise_or.reduceat(np.where(limb == i, value, np.uint64(0)), first)
        return lengths, limbs

    def _mistyped(self, block: Printed, names: Any, first: Any) -> Any:
        """The lines whose orders or type differ from those claimed."""
        patterns = self.pattern[names]
        found = [np.add.reduceat(patterns == kind, first) for kind in (1, 2)]
        wrong = np.zeros(len(first), bool)
        for has, said in zip(found, [*block.orders, 0 * found[1]], strict=False):
            wrong |= has != said
        two = len(block.orders) == 2
        return wrong | (block.composition != (_TYPES[2 * (found[0] > 0) + (found[1] > 0)] if two else found[0] >= 2))

    def _count(self, text: bytes, lines: Any, what: str, where: str) -> None:
        if count := int(lines.sum()):
            setattr(self, where, getattr(self, where) + count)
            line = text.split(b"\n")[int(lines.argmax())].decode()
            self.faults.append(f"{what}: {line}")


_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def _mixed(parts: list[Any]) -> Any:
    total = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        total = (total ^ part) * np.uint64(_MIX)
        total ^= total >> np.uint64(29)
    return total
