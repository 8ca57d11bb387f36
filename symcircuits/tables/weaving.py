"""Rows of a block put together: path by path if the same key paths follow each query path, else row by row.

For scores, a row consists of its number, the fields of the query path, and those of the key path (with the order of
the query path: the order and type of the term). So the strings of all key paths are made once for an order, those of
a query path once for all its terms, and the rows of a query path are combined at once. Own derivation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from symcircuits.tables.blocks import Span, TermBlock, composition_codes

__all__ = ["Field", "Weaver", "numbers", "sliced", "woven"]

FEW_KEYS = 8  # from this many terms of one query path on, joining them pays
MOST_KEYS = 1 << 15  # key paths whose strings are cached
TIMES = 4  # at most this many times the terms of a block, or the rows made at once
PART = 1 << 17  # bytes: smaller pieces are joined; larger ones exceed the processor's cache
_LOW: Final = [b"%03d" % n for n in range(1000)]


class Field(NamedTuple):
    """A field of a row: ``of`` says what determines it, ``number``, ``query``, ``key``, or ``both`` in this order.

    ``cells`` gives its strings for a block; for ``both``, those of the query path and those of the key path (or one
    list that cannot be separated); ``meetings`` numbers, for these, where that of a query path may change too.
    """

    of: str
    cells: Callable[[TermBlock], list[list[bytes]]]
    meetings: Callable[[TermBlock], Any] | None = None


@dataclass(frozen=True, slots=True)
class _Slot:
    """Adjacent fields that the same thing determines; empty: nothing does."""

    of: str
    parts: list[bytes | Field]

    def strings(self, block: TermBlock) -> list[bytes]:
        """Its strings for each term of a block."""
        place = -1 if self.of == "key" else 0
        found = [[p] * len(block) if isinstance(p, bytes) else p.cells(block)[place] for p in self.parts]
        return found[0] if len(found) == 1 else list(map(b"".join, zip(*found, strict=True)))


class _Pattern(NamedTuple):
    """The rows of all key paths: by slot, their strings; ``cuts``, where those of a query path may change."""

    cuts: list[int]
    fixed: list[list[bytes]]


class Weaver:
    """Makes the rows of blocks path by path, if that is possible and pays."""

    def __init__(self, parts: Iterable[bytes | Field]) -> None:
        self.slots: list[_Slot] = []
        self.fields: list[Field] = []
        for part in parts:
            if isinstance(part, Field):
                self.fields.append(part)
                for of in ("query", "key") if part.of == "both" else (part.of,):
                    self._put(of, part)
            elif part:
                self._put("", part)
        self.pair = [slot.of for slot in self.slots] == ["query", "key"]
        self._patterns: dict[Any, _Pattern] = {}
        self._parted = True

    def _put(self, of: str, part: bytes | Field) -> None:
        """Append a field: to the last slot, if the same thing determines both or nothing determines one of them."""
        last = self.slots[-1] if self.slots else None
        if last is None or "number" in (last.of, of) or (last.of != of and last.of and of):
            self.slots.append(_Slot(of, [part]))
        else:
            self.slots[-1] = _Slot(last.of or of, [*last.parts, part])

    def rows(self, block: TermBlock, most: int) -> Iterator[tuple[bytes, int]] | None:
        """The rows of a block in parts of at most ``most`` rows; None: they must be made one by one."""
        held = min(TIMES * min(len(block), most), MOST_KEYS)
        patterns = [self._pattern(block, span, held) for span in block.spans] if self._pays(block, held) else []
        if not patterns or None in patterns:
            return None
        runs = [
            (at, key, n, pattern.fixed)
            for span, pattern in zip(block.spans, patterns, strict=True) if pattern is not None
            for at, key, n in _runs(span, pattern.cuts, most)
        ]  # fmt: skip
        first = _taken(block, [at for at, *_ in runs])
        texts = [slot.strings(first) if slot.of == "query" else [b""] * len(runs) for slot in self.slots]
        return _gathered(
            (self._run(block.start + at, key, n, fixed, query), n)
            for (at, key, n, fixed), *query in zip(runs, *texts, strict=True)
        )

    def _run(self, start: int, key: int, n: int, fixed: list[list[bytes]], query: list[bytes]) -> bytes:
        """The rows of ``n`` terms of one query path, from its strings by slot."""
        if self.pair:
            return query[0] + query[0].join(fixed[1][key : key + n])
        columns: list[list[bytes]] = []
        for slot, strings, text in zip(self.slots, fixed, query, strict=True):
            if slot.of == "number":
                columns += numbers(start, n)
            else:
                columns.append([text] * n if slot.of == "query" else strings[key : key + n])
        return woven(columns, n)

    def _pays(self, block: TermBlock, held: int) -> bool:
        """Whether a block consists of runs of key paths that are neither too few nor too many."""
        periods = {_name(block, span): span.keys.period for span in block.spans}
        return (
            self._parted
            and sum(s.end - s.at for s in block.spans) == len(block)
            and min(periods.values()) >= FEW_KEYS
            and sum(periods.values()) <= held
        )

    def _pattern(self, block: TermBlock, span: Span, held: int) -> _Pattern | None:
        """The rows of a span's key paths after query paths of its order; None if fields cannot be separated."""
        import numpy as np

        name = _name(block, span)
        if name in self._patterns:
            return self._patterns[name]
        every = _all_keys(block, span)
        self._parted = all(len(f.cells(every)) == 2 for f in self.fields if f.of == "both")
        if not self._parted:
            return None
        if sum(p.cuts[-1] for p in self._patterns.values()) + len(every) > held:
            self._patterns.clear()
        changed = np.zeros(len(every) + 1, bool)
        changed[-1] = True
        for field in self.fields:
            if field.meetings is not None:
                kinds = field.meetings(every)
                changed[1:-1] |= kinds[1:] != kinds[:-1]
        fixed = [slot.strings(every) if slot.of in ("key", "") else [] for slot in self.slots]
        found = self._patterns[name] = _Pattern(np.flatnonzero(changed).tolist(), fixed)
        return found


def _name(block: TermBlock, span: Span) -> tuple[Any, int]:
    """The key of a span's pattern: which key paths, and the order of its query paths."""
    return span.keys.wanted, int(block.orders[0][span.at])


def _runs(span: Span, cuts: list[int], most: int) -> Iterator[tuple[int, int, int]]:
    """The terms of one query path after another, cut where its strings may change: index, key path, how many."""
    at, key = span.at, span.key
    while at < span.end:
        n = min(cuts[bisect_right(cuts, key)] - key, span.end - at, most)
        yield at, key, n
        at, key = at + n, (key + n) % span.keys.period


def _gathered(parts: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Small parts joined."""
    held: list[bytes] = []
    size = rows = 0
    for content, n in parts:
        held.append(content)
        size, rows = size + len(content), rows + n
        if size >= PART:
            yield b"".join(held), rows
            held, size, rows = [], 0, 0
    if held:
        yield b"".join(held), rows


def sliced(block: TermBlock, most: int) -> Iterator[TermBlock]:
    """A block in blocks of at most that many terms."""
    if len(block) <= most:
        yield block
        return
    for a in range(0, len(block), most):
        part = _taken(block, slice(a, a + most))
        yield replace(part, start=block.start + a)


def _taken(block: TermBlock, rows: list[int] | slice) -> TermBlock:
    """Some terms of a block."""
    heads, sources, orders = (tuple(a[rows] for a in arrays) for arrays in (block.heads, block.sources, block.orders))
    return TermBlock(block.expansion, block.start, heads, sources, orders, composition=block.composition[rows])


def _all_keys(block: TermBlock, span: Span) -> TermBlock:
    """All key paths of a span after its first query path."""
    import numpy as np

    n, keys = span.keys.period, span.keys
    first = _taken(block, [span.at])
    heads, sources, orders = (np.repeat(a[0], n, axis=0) for a in (first.heads, first.sources, first.orders))
    both = orders, keys.orders[:n]
    return TermBlock(
        block.expansion, 0, (heads, keys.heads[:, :n].T), (sources, keys.sources[:n]), both,
        composition=composition_codes(both),
    )  # fmt: skip


def numbers(start: int, count: int) -> list[list[bytes]]:
    """The digits of consecutive numbers: all but the last three, and these.

    >>> [a + b for a, b in zip(*numbers(998, 4), strict=True)]
    [b'998', b'999', b'1000', b'1001']
    """
    high: list[bytes] = []
    at, end = start, start + count
    while at < end:
        stop = min(end, at - at % 1000 + 1000)
        high += [b"%d" % (at // 1000) if at >= 1000 else b""] * (stop - at)
        at = stop
    low = (_LOW * (2 + count // 1000))[start % 1000 :][:count]
    if start < 1000:
        low[: 1000 - start] = [b"%d" % n for n in range(start, min(end, 1000))]
    return [high, low]


def woven(columns: list[list[bytes]], n: int) -> bytes:
    """Row by row, one item of each column.

    >>> woven([[b"a", b"b"], [b"1", b"2"]], 2)
    b'a1b2'
    """
    items = [b""] * (n * len(columns))
    for i, column in enumerate(columns):
        items[i :: len(columns)] = column
    return b"".join(items)
