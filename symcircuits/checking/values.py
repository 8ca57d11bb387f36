"""Arithmetic of the values of formulas: sums of words, each a product of letters in one, two or three slots.

A word has a coefficient, score scales and *slots*. One slot: a matrix, a chain of letters. Two: a map ``A (x) W``,
with ``(A (x) W) x = A x W^T``. Three: ``A_q (x) A_k (x) W``, with ``(x, y) -> A_q x W y^T A_k^T``. No slot: a number.
``None`` instead of slots: the identity of any of these. A chain may have named rows and columns, as in ``x_j`` or
``A_{ij}``; one with both is an entry, a number. Sums are multiplied out; the work is counted before it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction as Rational
from typing import Final, NamedTuple

from symcircuits.checking.faults import ReadError, TooLong
from symcircuits.checking.formula import MAX_FACTORS, MAX_STEPS, MAX_WORDS, Letter, RawFactor
from symcircuits.checking.matching import Spelling

__all__ = ["Algebra", "Chain", "Sizes", "Value", "Word", "letter_value", "number"]

_MAX_TOTAL: Final = 10 * MAX_STEPS
_MAX_COEFFICIENT: Final = 10**18


class Chain(NamedTuple):
    """A product of letters; ``row`` and ``col`` are the names of its ends if they are indices."""

    factors: tuple[RawFactor, ...] = ()
    row: str = ""
    col: str = ""

    @property
    def T(self) -> Chain:
        """The transposed product."""
        return Chain(tuple(RawFactor(f.letter.T, f.at) for f in reversed(self.factors)), self.col, self.row)

    @property
    def letters(self) -> tuple[Letter, ...]:
        """The letters without their places."""
        return tuple(f.letter for f in self.factors)


class Word(NamedTuple):
    """One product: see above. ``entries`` are closed chains, numbers by which it is multiplied."""

    coefficient: Rational | int = 1
    scales: tuple[str, ...] = ()
    slots: tuple[Chain, ...] | None = ()
    entries: tuple[Chain, ...] = ()

    @property
    def at(self) -> int:
        """The place of its first letter."""
        places = [c.factors[0].at for c in (self.slots or ()) + self.entries if c.factors]
        return min(places, default=0)

    @property
    def rank(self) -> int | None:
        """The number of slots; None for the identity."""
        return None if self.slots is None else len(self.slots)

    @property
    def length(self) -> int:
        """The number of letters."""
        return sum(len(c.factors) for c in (self.slots or ()) + self.entries)


Value = list[Word]
IDENTITY: Final = [Word(1, (), None)]


def number(value: Rational | int) -> Value:
    """A number as a value."""
    return [Word(value)]


def letter_value(letter: Letter, at: int, row: str = "", col: str = "") -> Value:
    """A letter as a value."""
    return [Word(1, (), (Chain((RawFactor(letter, at),), row, col),))]


class Sizes:
    """The meanings of rows and columns of chains: ``token``, ``model``, ``input``, ``output``, or spaces of a head."""

    def __init__(self, spelling: Spelling, shared: dict[str, str]) -> None:
        self.spelling, self.shared = spelling, shared
        self._known: dict[Letter, tuple[str, str]] = {}

    def of(self, letter: Letter) -> tuple[str, str]:
        """Rows and columns of a letter."""
        found = self._known.get(letter)
        if found is None:
            row, col = self.spelling.size(letter)
            own = self.shared.get(letter.label, letter.label)
            headed = letter.glyph != "gain"  # all heads of a layer share the gains of queries and keys
            named = [f"{s} {own}" if headed and s in ("query", "value") else s for s in (row, col)]
            found = self._known[letter] = (named[0], named[1])
        return found

    def ends(self, chain: Chain) -> tuple[str, str]:
        """The rows of the first letter, the columns of the last; empty for the identity."""
        if not chain.factors:
            return "", ""
        return self.of(chain.factors[0].letter)[0], self.of(chain.factors[-1].letter)[1]

    def misfits(self, chain: Chain) -> int:
        """The number of neighbours that do not fit."""
        count, last = 0, ""
        for f in chain.factors:
            row, col = self.of(f.letter)
            count += bool(last) and row != last and not ("query" in (row, last) and row[:5] == last[:5])
            last = col
        return count


class Algebra:
    """The arithmetic, with its limits and the text for places of errors.

    ``columns``: streams have a column for each token, so a map acts as ``W x A^T``. ``flips``: weights are written as
    in TransformerLens, where ``(A (x) W) x`` is ``A x W``: a map then keeps ``W^T``, and all else is as in the paper.
    """

    def __init__(self, sizes: Sizes, source: str = "", columns: bool = False, flips: bool = False) -> None:
        self.sizes, self.source, self.columns, self.flips, self.steps = sizes, source, columns, flips, 0
        self.total = [0]  # the steps, over all readings

    def fault(self, message: str, at: int) -> ReadError:
        """An error at this place."""
        return ReadError(message, self.source, at)

    def count(self, words: int, letters: int, at: int) -> None:
        """Count work before it is done."""
        self.steps += words + letters // 10
        self.total[0] += words + letters // 10
        if self.steps > MAX_STEPS or self.total[0] > _MAX_TOTAL:
            raise TooLong("multiplying out the formula takes too many steps", self.source, at)

    def add(self, values: Iterable[Value], signs: Iterable[int], at: int) -> Value:
        """A sum."""
        out: Value = []
        for value, sign in zip(values, signs, strict=True):
            if len(out) + len(value) > MAX_WORDS:
                raise TooLong(f"the formula has more than {MAX_WORDS:,} products, the limit", self.source, at)
            if sign < 0:
                self.count(len(value), 0, at)
            out += value if sign > 0 else [w._replace(coefficient=-w.coefficient) for w in value]
        rank = max((w.rank or 0 for w in out), default=0)
        if rank > 1:  # beside a map, Id is the map that changes nothing
            out = [w._replace(slots=(Chain(),) * rank) if w.slots is None else w for w in out]
        return out

    def times(self, left: Value, right: Value, at: int, join: Callable[[Word, Word], Word] | None = None) -> Value:
        """A product, if it is not too long; ``join`` multiplies two words."""
        n, m = len(left), len(right)
        if n * m > MAX_WORDS:
            message = f"multiplied out, the formula up to here has {n * m:,} products; the limit is {MAX_WORDS:,}"
            raise TooLong(message, self.source, at)
        self.count(n * m, m * sum(w.length for w in left) + n * sum(w.length for w in right), at)
        words = [(join or self._beside)(a, b) for a in left for b in right]
        if max((w.length + len(w.scales) for w in words), default=0) > MAX_FACTORS:
            raise self.fault(f"the product has more than {MAX_FACTORS:,} factors, the limit", at)
        if any(abs(Rational(w.coefficient)) > _MAX_COEFFICIENT for w in words):
            raise self.fault(f"the coefficient is larger than {_MAX_COEFFICIENT:,}, the limit", at)
        return words

    def tensor(self, left: Value, right: Value, at: int, of: int = 2) -> Value:
        """A tensor product: the slots of the first, then those of the second; ``of``: the number of its factors."""
        if self.flips and of == 2:
            right = self.transposed(right, at)
        return self.times(left, right, at, lambda a, b: Word(
            a.coefficient * b.coefficient, a.scales + b.scales, _opened(a.slots) + _opened(b.slots),
            a.entries + b.entries))  # fmt: skip

    def transposed(self, value: Value, at: int) -> Value:
        """The transpose, slot by slot."""
        self.count(len(value), sum(w.length for w in value), at)
        return [w._replace(slots=w.slots and tuple(c.T for c in w.slots)) for w in value]

    def scaled(self, value: Value, scale: str) -> Value:
        """Times a scale; one and its inverse (``/name``) cancel."""
        inverse = scale[1:] if scale[0] == "/" else "/" + scale
        out = []
        for w in value:
            scales = list(w.scales)
            scales.remove(inverse) if inverse in scales else scales.append(scale)
            out.append(w._replace(scales=tuple(scales)))
        return out

    def _beside(self, a: Word, b: Word) -> Word:
        """The product of two adjacent words."""
        coefficient, scales, entries = a.coefficient * b.coefficient, a.scales + b.scales, a.entries + b.entries
        n, m = a.rank, b.rank
        slots: tuple[Chain, ...] | None
        if n is None or m is None:
            known = b.slots if n is None else a.slots
            return Word(coefficient, scales, known or None, entries)
        assert a.slots is not None
        assert b.slots is not None
        if not n or not m:
            slots = a.slots or b.slots
        elif n == m == 1:
            if a.slots[0].col and b.slots[0].row:
                raise self.fault("a column and a row that each have a position are multiplied here: "
                                 "their product is a matrix, not a number", b.at)  # fmt: skip
            chain = self._joined(a.slots[0], b.slots[0])
            if chain.row and chain.col and not self.sizes.misfits(chain):
                return Word(coefficient, scales, (), (*entries, chain))
            slots = (chain,)
        elif n == m:
            slots = tuple(map(self._joined, a.slots, b.slots))
        elif (n, m) == (2, 1):
            slots = self._applied(a.slots, b.slots[0])
        elif (n, m) == (1, 2):  # a matrix before a map acts on the weights: Id (x) is left out
            slots = (b.slots[0], self._joined(a.slots[0].T if self.flips else a.slots[0], b.slots[1]))
        else:
            raise self.fault("these cannot be multiplied: a tensor of three factors takes two arguments, (x, y)", b.at)
        return Word(coefficient, scales, slots, entries)

    @staticmethod
    def _joined(a: Chain, b: Chain) -> Chain:
        return Chain(a.factors + b.factors, a.row or b.row, b.col or a.col)

    def _applied(self, slots: tuple[Chain, ...], x: Chain) -> tuple[Chain, ...]:
        """A map applied to its argument, or multiplied by weights for which Id (x) was left out."""
        left, weights = slots
        row, col = self.sizes.ends(x)
        if "token" not in (row, col):
            return (left, self._joined(weights, x.T if self.flips else x))
        if col == "token" and (row != "token" or self.columns):
            return (self._joined(self._joined(weights, x), left.T),)
        return (self._joined(self._joined(left, x), weights.T),)

    def bilinear(self, value: Value, x: Value, y: Value, at: int) -> Value:
        """``(A_q (x) A_k (x) W)(x, y)``: ``A_q x W y^T A_k^T``."""

        def apply(w: Word, a: Word, b: Word) -> Word:
            if w.slots is None or len(w.slots) != 3 or not a.slots or not b.slots:
                raise self.fault("only a tensor of three factors takes two arguments, both matrices; write heads "
                                 "in brackets, W_OV[0, 1]", at)  # fmt: skip
            query, key, weights = w.slots
            left, right = self._rows(a.slots[0]), self._rows(b.slots[0])
            chain = self._joined(self._joined(query, left), weights)
            chain = self._joined(self._joined(chain, right.T), key.T)
            return Word(w.coefficient * a.coefficient * b.coefficient, w.scales + a.scales + b.scales, (chain,),
                        w.entries + a.entries + b.entries)  # fmt: skip

        out: Value = []
        for b in y:
            out += self.times(value, x, at, lambda w, a, b=b: apply(w, a, b))  # type: ignore[misc]
        return out

    def _rows(self, x: Chain) -> Chain:
        return x.T if self.columns and "token" in self.sizes.ends(x) else x

    def over_positions(self, value: Value, index: str) -> Value:
        """The sum over a position: chains with that index are joined there."""
        return [self._contracted(w, index) for w in value]

    def _contracted(self, word: Word, index: str) -> Word:
        chains = [*word.entries, *(word.slots or ())]
        found = [c for c in chains if index in (c.row, c.col)]
        rest = [c for c in chains if index not in (c.row, c.col)]
        if len(found) == 1 and found[0].row != found[0].col:
            one = found[0] if found[0].col == index else found[0].T
            ones = RawFactor(Letter("ones"), one.factors[0].at if one.factors else 0)
            made = Chain((*one.factors, ones), one.row)
        elif len(found) == 2 and all(c.row != c.col for c in found):
            a, b = found
            a = a if a.col == index else a.T
            b = b if b.row == index else b.T
            made = Chain(a.factors + b.factors, a.row, b.col)
        else:
            raise self.fault(f"the index {index} of this sum is {len(found)} times in one product, not once or twice",
                             word.at)  # fmt: skip
        closed, open_ = [c for c in rest if c.row and c.col], [c for c in rest if not (c.row and c.col)]
        if self.columns and made.row and not made.col:
            made = made.T
        if made.row and made.col:
            closed.append(made)
        else:
            open_.insert(0, made)
        while len(open_) > 1:  # a vector beside its factor
            a, b = open_[0], open_[1]
            if a.col and not a.row:
                a, b = b, a
            open_[:2] = [self._joined(a, b)]
        return Word(word.coefficient, word.scales, tuple(open_), tuple(closed))


def _opened(slots: tuple[Chain, ...] | None) -> tuple[Chain, ...]:
    return (Chain(),) if slots is None else slots
