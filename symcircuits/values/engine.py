"""The interface of an engine of values: the paths of one side in pieces, and the arithmetic of its arrays.

There are two. For a run (:mod:`symcircuits.values.siblings`, NumPy) pieces are written into reused memory, results
for one range are kept for the next, and terms before a range are skipped. For arrays of other libraries
(:mod:`symcircuits.values.tensor_tree`) nothing is overwritten, and nothing is kept from one pass to the next, so
gradients pass through. Every operation on terms is written once, against this interface.
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
    """Neighbouring paths: their marks, ``values [paths, ..., n, width]``, and whether these are known to be finite.

    Known from the largest numbers multiplied; values not known to be finite may still be.
    """

    marks: Sequence[Mark]
    values: Any
    finite: bool


class Span:
    """How many terms, in their order, are still to be skipped; groups that lie before as a whole are not computed.

    ``inside``: how many lie before the range in the first group computed, because the group is computed together.
    """

    def __init__(self, start: int = 0) -> None:
        self.left, self.inside = start, 0

    def over(self, terms: int) -> bool:
        """Whether the next ``terms`` terms are skipped; a group that is not skipped is entered by :meth:`enter`."""
        passed = 0 < terms <= self.left
        self.left -= terms if passed else 0
        return passed

    def enter(self) -> None:
        """Stop skipping: from here on everything is computed."""
        self.inside, self.left = self.inside + self.left, 0

    def part(self, terms: int, left: int) -> slice:
        """Which of the terms computed next belong to a range, given how many of it are left."""
        passed = min(self.inside, terms)
        self.inside -= passed
        return slice(passed, min(terms, passed + left))


class Room:
    """Where values are written: fresh memory for each piece (``reused`` false), or the same again and again.

    ``numbers``: how many numbers a piece may have (0: no limit), at least one path; ``out``: memory given by the
    caller, ``[paths, ...]``, which limits the number of paths.
    """

    def __init__(self, numbers: int = 0, reused: bool = False, out: Array | None = None) -> None:
        self.numbers, self.reused = numbers, reused or out is not None
        self._paths = 0 if out is None else len(out)
        self._held = None if out is None else out.reshape(-1)

    def most(self, each: int) -> int:
        """How many paths of that many numbers a piece may have."""
        return self._paths or (max(1, self.numbers // max(1, each)) if self.numbers else sys.maxsize)

    def take(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Memory of that shape."""
        size = prod(shape)
        if not self.reused:
            return np.empty(shape, dtype)
        if self._held is None or self._held.size < size:
            self._held = np.empty(size, dtype)
        return self._held[:size].reshape(shape)


# Numbers of terms ``[terms, ...]`` from the start of a range on, or from the start of its first group (the span says
# how far inside), requested range after range. They may go beyond the end of the range.
Ranges = Callable[[range, Span], Iterator[Any]]


class AtOnce:
    """Ranges of the numbers of all terms, computed at once."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __call__(self, terms: range, span: Span) -> Iterator[Any]:
        """All of them, for any range."""
        span.enter()
        yield self.numbers


class Side(Protocol):
    """The paths of one side."""

    def pieces(
        self, weights: Mapping[Mark, int], span: Span, room: Room | None = None, narrow: bool = False
    ) -> Iterator[Piece]:
        """The paths with weight from ``span`` on, in order; a path counts as many terms as its weight.

        ``room``: how many at a time, and where they may be written: a piece is valid until the next is
        requested. ``narrow``: values of the same Frobenius norms, with fewer columns if that is less work.
        """


class Meeting(Protocol):
    """How query paths combine with key paths. Both are ``[paths, ..., n, d_head]``, rotated, queries scaled."""

    keys: int  # key paths prepared at a time
    queries: int  # query paths combined with them at a time; 0: no limit

    def query(self, block: Any) -> Any:
        """Prepare some query paths."""

    def key(self, block: Any) -> Any:
        """Prepare some key paths; the result is cached if it is small."""

    def met(self, query: Any, key: Any) -> Any:
        """The result for each pair, ``[queries, keys, ...]``."""


class Arithmetic(Protocol):
    """The operations that differ between arrays that are written to and those of other libraries."""

    @property
    def kept(self) -> int:
        """Bytes of prepared key paths to cache; beyond, they are prepared again for each query path."""

    def joined(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Arrays concatenated along an axis."""

    def flat(self, block: Any, shape: tuple[int, ...]) -> Any:
        """``block`` with other axes."""

    def bytes_of(self, made: Any) -> int:
        """The memory of prepared key paths."""

    def packed(self, pieces: Iterable[Any], size: int, total: int, wide: bool) -> Iterator[Any]:
        """Pieces of numbers in blocks of ``size``, the last may be smaller; ``wide``: in float64 if possible."""

    def lengths(self, block: Any) -> Any:
        """The Frobenius norms of matrices, without overflow or underflow."""

    def lengths_of_pairs(self, mask: Any) -> Meeting:
        """The norms of scores, over all entries (None) or over those where the mask is one."""

    def entries_of_pairs(self) -> Meeting:
        """The entries of scores for one query and one key position."""

    def scores_of_pairs(self, room: Room) -> Meeting:
        """Scores themselves, for one query path and many key paths, and whether they are known to be finite."""


class Engine(Protocol):
    """Values of an expansion's terms, by its paths: the interface for every operation on terms."""

    expansion: Expansion
    batch: tuple[int, ...]

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of its arrays."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a term's value."""

    def paths(self, side: int, row: int | None = None) -> Side:
        """The paths of a side; ``row``: only their values at that position."""

    def turned(self, rows: Any, row: int | None = None) -> Any:
        """Queries or keys as they meet; ``row``: only those of that position."""

    def scaled(self, rows: Any) -> Any:
        """Times the score scale, if there is one."""

    def shorter(self) -> Engine:
        """Values of the same Frobenius norms, without the vocabulary if that is less work."""

    def all_terms(self) -> Any:
        """The values of all terms at once, if that is little work; else None."""

    def contributions(self, position: int, chosen: list[int]) -> Ranges:
        """What each term adds to an output at a position, or to the difference of two."""

    def calm(self) -> AbstractContextManager[Any]:
        """A context without warnings: numbers that are not finite raise."""

    def mask(self) -> Any:
        """For scores: one where a query may attend to a key, else zero; None if it may attend to all."""

    def look(self, what: str, values: Any, first: int) -> None:
        """Raise ValueError, naming the term, if a number of the terms from ``first`` on is not finite."""

    def quiet(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """A context without warnings, because numbers that are not finite raise, naming the term."""


def gathered(pieces: Iterable[Any], size: int, joined: Callable[[Sequence[Any]], Any]) -> Iterator[Any]:
    """Arrays concatenated or cut along their first axis to ``size`` each; the last may be smaller."""
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
