"""Query paths times key paths, for any number of score terms: results for keys are cached if they are small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import Any

from symcircuits.core.walk import Mark
from symcircuits.values.engine import Engine, Meeting, Side, Span, gathered

__all__ = ["Pairs", "side_blocks"]

_BLOCK_BYTES = 2**21  # of the products of a block of queries with all keys


def side_blocks(
    values: Engine, side: int, weights: Mapping[Mark, int], span: Span | None = None, paths: Side | None = None,
    row: int | None = None,
) -> Iterator[tuple[Mark, Any]]:  # fmt: skip
    """Queries (side 0, scaled) or keys (1) of paths of one mark, rotated, ``[paths, ..., n_context, d_head]``.

    Those before ``span`` are left out; what is ``inside`` of it then lies within the first piece. ``paths``:
    the side, if it exists already; ``row``: compute only the values at that position.
    """
    span, begun = span or Span(), False
    for piece in (paths or values.paths(side)).pieces(weights, span):
        for mark, block in _by_mark(piece.marks, piece.values):
            if not begun:
                passed = min(int(block.shape[0]), span.inside // weights[mark])
                span.inside -= passed * weights[mark]
                if passed == block.shape[0]:
                    continue
                begun, block = True, block[passed:, ...]
            turned = values.turned(block, row)
            yield mark, turned if side else values.scaled(turned)


def _by_mark(marks: Sequence[Mark], block: Any) -> Iterator[tuple[Mark, Any]]:
    """Consecutive paths of one mark."""
    if marks.count(marks[0]) == len(marks):
        yield marks[0], block
        return
    at = 0
    for mark, alike in groupby(marks):
        end = at + sum(1 for _ in alike)
        yield mark, block[at:end, ...]
        at = end


class Pairs:
    """The pairs of query and key paths of the terms of scores, range after range.

    ``rows``: the positions of queries and keys that are needed (None: all).
    """

    def __init__(self, values: Engine, meeting: Meeting, rows: tuple[int | None, int | None] = (None, None)) -> None:
        self.values, self.meeting, self.rows = values, meeting, rows
        self._query_side = values.paths(0, rows[0])
        self._key_side: Side | None = None  # created with the keys, and dropped if they are cached
        self._held: dict[frozenset[Mark], list[Any]] = {}
        self._bytes = 0

    def numbers(self, terms: range, span: Span) -> Iterator[Any]:
        """A number for each term, ``[terms, ...]``: many query paths at a time."""
        joined = self.values.arithmetic.joined
        for mark, run_of in groupby(self._queries(span), key=lambda found: found[0]):
            wanted = self.values.expansion._key_weights(mark)
            for queries in gathered((block for _, block in run_of), self._most(wanted, terms), joined):
                if span.inside:
                    yield from self._products(queries[:1, ...], self._keys(wanted, span))
                    queries = queries[1:, ...]
                if queries.shape[0]:
                    yield from self._products(queries, self._keys(wanted))

    def each(self, span: Span) -> Iterator[Any]:
        """The results for each query path and some key paths, in order; or for some query paths and all key paths."""
        for mark, block in self._queries(span):
            wanted = self.values.expansion._key_weights(mark)
            keys = max(1, sum(self.values.expansion.sides[1].counts[m] for m in wanted))
            count, at, most = int(block.shape[0]), 0, self.meeting.queries or max(1, self.meeting.keys // keys)
            while at < count:
                together = 1 if span.inside else min(most, count - at)
                query = self.meeting.query(block[at, ...] if together == 1 else block[at : at + together, ...])
                for key in self._keys(wanted, span if span.inside else None):
                    yield self.meeting.met(query, key)
                at += together

    def _queries(self, span: Span) -> Iterator[tuple[Mark, Any]]:
        return side_blocks(self.values, 0, self.values.expansion._weights, span, self._query_side, self.rows[0])

    def _most(self, wanted: Mapping[Mark, int], terms: range) -> int:
        """How many query paths are combined with their key paths at a time: none beyond the wanted terms."""
        counts = self.values.expansion.sides[1].counts
        keys = max(1, sum(counts[m] for m in wanted))
        most = min(_BLOCK_BYTES // (8 * keys * max(1, prod(self.values.batch))), -(-(terms.stop - terms.start) // keys))
        return max(1, min(most, self.meeting.queries or most))

    def _products(self, queries: Any, keys: Iterator[Any]) -> Iterator[Any]:
        """The numbers of query paths and all key paths that combine with them."""
        query, arithmetic = self.meeting.query(queries), self.values.arithmetic
        if queries.shape[0] == 1:  # keys may be many: not concatenated
            for key in keys:
                yield self.meeting.met(query, key)[0, ...]
            return
        found = [self.meeting.met(query, key) for key in keys]
        whole = arithmetic.joined(found, 1) if len(found) > 1 else found[0]
        yield arithmetic.flat(whole, (int(whole.shape[0] * whole.shape[1]), *whole.shape[2:]))

    def _keys(self, wanted: Mapping[Mark, int], span: Span | None = None) -> Iterator[Any]:
        """The prepared key paths with these marks, in order; starting within a span."""
        name = frozenset(wanted)
        if name in self._held:
            yield from self._held[name]
            return
        arithmetic = self.values.arithmetic
        within, room = Span() if span is None else Span(span.inside), arithmetic.kept - self._bytes
        held: list[Any] | None = [] if span is None else None
        side = self._key_side or self.values.paths(1, self.rows[1])
        blocks = (block for _, block in side_blocks(self.values, 1, wanted, within, side, self.rows[1]))
        for block in gathered(blocks, self.meeting.keys, arithmetic.joined):
            if span is not None:
                span.inside = 0
            found = self.meeting.key(block)
            if held is not None:
                room -= arithmetic.bytes_of(found)
                held = None if room < 0 else [*held, found]
            yield found
        self._key_side = side if held is None else None
        if held is not None:
            self._held[name] = held
            self._bytes = arithmetic.kept - room
