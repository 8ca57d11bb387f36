"""What an engine of values supplies: the paths of one side in pieces, and the arithmetic of its arrays.

There are two. For a run (:mod:`symcircuits.values.siblings`, NumPy) pieces are written into reused memory, what is made
for one range is kept for the next, and what lies before a range is passed over. For arrays of other libraries
(:mod:`symcircuits.values.tensor_tree`) nothing is written to, and nothing is kept from one pass to the next, so that
derivatives go through. Whatever is asked of terms is written once, against what is here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.expansion import Expansion
from symcircuits.core.walk import Mark

__all__ = ["Arithmetic", "AtOnce", "Engine", "Meeting", "Piece", "Ranges", "Room", "Side", "Span", "gathered"]


class Piece(NamedTuple):
    """Neighbouring paths: their marks, ``values [paths, ..., n, width]``, and whether these are sure to be finite.

    Sure by the largest numbers that were multiplied; where it is not sure they may be finite all the same.
    """

    marks: Sequence[Mark]
    values: Any
    finite: bool


class Span:
    """How many terms, in their order, are still to be passed over; what lies before as a whole is not computed.

    ``inside``: how many lie before in what is computed first, because they belong together with others.
    """

    def __init__(self, start: int = 0) -> None:
        self.left, self.inside = start, 0

    def over(self, terms: int) -> bool:
        """Whether so many terms that come next are passed over; those that are not are entered by :meth:`enter`."""
        passed = 0 < terms <= self.left
        self.left -= terms if passed else 0
        return passed

    def enter(self) -> None:
        """From here on all is computed."""
        self.inside, self.left = self.inside + self.left, 0

    def part(self, terms: int, left: int) -> slice:
        """Which of so many terms, computed next, belong to a range of which so many are left."""
        passed = min(self.inside, terms)
        self.inside -= passed
        return slice(passed, min(terms, passed + left))


class Room:
    """Where values are written: fresh memory for each piece (``reused`` false), or the same again and again.

    ``numbers``: how many numbers a piece may have (0: no limit), one path at least; ``out``: memory that was given,
    ``[paths, ...]``, which limits the number of paths.
    """

    def __init__(self, numbers: int = 0, reused: bool = False, out: Array | None = None) -> None:
        self.numbers, self.reused = numbers, reused or out is not None
        self._paths = 0 if out is None else len(out)
        self._held = None if out is None else out.reshape(-1)

    def most(self, each: int) -> int:
        """The number of paths of so many numbers that a piece may have."""
        return self._paths or (max(1, self.numbers // max(1, each)) if self.numbers else sys.maxsize)

    def take(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Memory of that shape."""
        size = prod(shape)
        if not self.reused:
            return np.empty(shape, dtype)
        if self._held is None or self._held.size < size:
            self._held = np.empty(size, dtype)
        return self._held[:size].reshape(shape)


# Numbers of terms ``[terms, ...]`` from the start of a range on, or from what belongs together with it (the span says
# how far inside); asked for range after range. They may go beyond the end of the range.
Ranges = Callable[[range, Span], Iterator[Any]]


class AtOnce:
    """Ranges of the numbers of all terms, where these were made at once."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __call__(self, terms: range, span: Span) -> Iterator[Any]:
        """All of them, whatever the range."""
        span.enter()
        yield self.numbers


class Side(Protocol):
    """The paths of one side."""

    def pieces(
        self, weights: Mapping[Mark, int], span: Span, room: Room | None = None, narrow: bool = False
    ) -> Iterator[Piece]:
        """The paths with weight from ``span`` on, in order; a path counts as many terms as it has weight.

        ``room``: how many at a time, and where they may be written: what is given then holds until the next is asked
        for. ``narrow``: values of the same Frobenius norms, of fewer columns where that is less work.
        """


class Meeting(Protocol):
    """How query paths meet key paths. Both come as ``[paths, ..., n, d_head]``, turned, queries scaled."""

    keys: int  # key paths of which something is made at a time
    queries: int  # query paths that meet them at a time; 0: no limit

    def query(self, block: Any) -> Any:
        """What is made of some query paths."""

    def key(self, block: Any) -> Any:
        """What is made of some key paths, and kept where it is small."""

    def met(self, query: Any, key: Any) -> Any:
        """What each pair gives, ``[queries, keys, ...]``."""


class Arithmetic(Protocol):
    """What is done otherwise with arrays that are written to than with those of other libraries."""

    @property
    def kept(self) -> int:
        """Bytes of what is made of key paths that are kept, else it is made again for each query path."""

    def joined(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Arrays put together along an axis."""

    def flat(self, block: Any, shape: tuple[int, ...]) -> Any:
        """``block`` with other axes."""

    def bytes_of(self, made: Any) -> int:
        """The memory of what is made of key paths."""

    def packed(self, pieces: Iterable[Any], size: int, total: int, wide: bool) -> Iterator[Any]:
        """Pieces of numbers in blocks of ``size``, the last may be smaller; ``wide``: in float64 if it can be."""

    def lengths(self, block: Any) -> Any:
        """The Frobenius norms of matrices, whatever the size of the numbers."""

    def lengths_of_pairs(self, mask: Any) -> Meeting:
        """The norms of scores, of all entries (None) or of those where the mask is one."""

    def entries_of_pairs(self) -> Meeting:
        """The entries of scores of one query and one key position."""

    def scores_of_pairs(self, room: Room) -> Meeting:
        """Scores themselves, of one query path and many key paths, and whether they are sure to be finite."""


class Engine(Protocol):
    """Values of an expansion's terms, by its paths: what everything that is asked of terms is written against."""

    expansion: Expansion
    batch: tuple[int, ...]

    @property
    def arithmetic(self) -> Arithmetic:
        """How its arrays are computed with."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a term's value."""

    def paths(self, side: int, row: int | None = None) -> Side:
        """The paths of a side; ``row``: their values at one position alone."""

    def turned(self, rows: Any, row: int | None = None) -> Any:
        """Queries or keys as they meet; ``row``: those of one position."""

    def scaled(self, rows: Any) -> Any:
        """Times the score scale, where there is one."""

    def shorter(self) -> Engine:
        """Values of the same Frobenius norms, without the vocabulary where that is less."""

    def all_terms(self) -> Any:
        """The values of all terms as they are made, where that is little work; else None."""

    def contributions(self, position: int, chosen: list[int]) -> Ranges:
        """What each term adds to an output at a position, or to the difference of two."""

    def calm(self) -> AbstractContextManager[Any]:
        """No warnings: what is not finite is refused."""

    def mask(self) -> Any:
        """Of scores: one where a query may attend to a key, else zero; None where it may to all."""

    def look(self, what: str, values: Any, first: int) -> None:
        """ValueError, by the term's name, where something of the terms from ``first`` on is not finite."""

    def quiet(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """Without warnings where what is not finite is refused by name."""


def gathered(pieces: Iterable[Any], size: int, joined: Callable[[Sequence[Any]], Any]) -> Iterator[Any]:
    """Arrays put together, or cut, along their first axis to ``size`` each; the last may be smaller."""
    held: list[Any] = []
    count = 0
    for piece in pieces:
        at, length = 0, int(piece.shape[0])
        while at < length:
            end = min(at + size - count, length)
            held.append(piece if end - at == length else piece[at:end, ...])
            at, count = end, count + end - at
            if count == size:
                yield held[0] if len(held) == 1 else joined(held)
                held, count = [], 0
    if held:
        yield held[0] if len(held) == 1 else joined(held)
