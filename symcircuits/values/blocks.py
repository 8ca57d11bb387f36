"""Numbers of terms in blocks, in the order of the expansion; a number that is not finite raises, naming its term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from symcircuits.values.engine import Engine, Span

__all__ = ["BLOCK", "Numbers", "in_blocks", "within"]

BLOCK = 1 << 16  # as in expansion.blocks()


class Numbers(NamedTuple):
    """``values[i]`` belongs to term ``start + i`` of the expansion; batch axes of the tokens follow."""

    start: int
    values: Any


def in_blocks(
    values: Engine, what: str, pieces: Iterable[Any], size: int, terms: range, span: Span, wide: bool = False
) -> Iterator[Numbers]:
    """Pieces ``[terms, ...]`` of any length as blocks of ``size`` terms, the last may be smaller; in the run's type.

    ``span`` began with ``terms.start``; ``wide``: in float64, for a run. Raises ValueError, naming the term, if a
    number is not finite.
    """
    start = terms.start
    for block in values.arithmetic.packed(within(pieces, terms, span), size, terms.stop - terms.start, wide):
        values.look(what, block, start)
        yield Numbers(start, values.arithmetic.flat(block, (int(block.shape[0]), *values.batch)))
        start += int(block.shape[0])


def within(pieces: Iterable[Any], terms: range, span: Span) -> Iterator[Any]:
    """The part of pieces, begun by a span, that belongs to its range; what is ``inside`` before it is left out."""
    left = terms.stop - terms.start
    for piece in pieces if terms else ():
        part = span.part(int(piece.shape[0]), left)
        count = part.stop - part.start
        if count > 0:
            yield piece if count == piece.shape[0] else piece[part, ...]
            left -= count
        if not left:
            return
