"""Terms as integer arrays in blocks: any expansion, in its own order, from any number, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from symcircuits.core.architecture import Head
from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import Notation
from symcircuits.core.paths import Path
from symcircuits.core.terms import Term, readout_notation
from symcircuits.core.text import amount, argument, as_whole, many, need, shown, whole
from symcircuits.core.walk import Mark
from symcircuits.tables.paths import Chunk, PathTables, smallest_type

__all__ = ["COMPOSITIONS", "Census", "OrderRun", "TermBlock", "blocks", "composition_code", "order_runs", "range_of"]

COMPOSITIONS: Final = ("none", "V", "Q", "K", "QK")  # by code
BLOCK = 1 << 16
MAX_KEYS = 1 << 16  # key paths kept at once; more are streamed for each query path
MAX_KEY_SETS = 8  # different selections of key paths kept
FEW = 64
MAX_CLAUSES = 62  # conditions of a selection: one bit of an int64 each


class KeyPaths(NamedTuple):
    """A selection of key paths (by marks), repeated until a block and one more period are full."""

    wanted: frozenset[Mark]
    period: int
    heads: Any
    sources: Any
    orders: Any

    def runs(self) -> tuple[tuple[int, int], ...]:
        """The orders of one period, and how many key paths have each."""
        import numpy as np

        orders = self.orders[: self.period]
        ends = [*(1 + np.flatnonzero(orders[1:] != orders[:-1])).tolist(), self.period]
        return tuple((int(orders[a]), b - a) for a, b in pairwise([0, *ends]))


class Span(NamedTuple):
    """Terms ``at`` to ``end`` of a block: the same key paths, from ``key`` on, after one query path after another."""

    at: int
    end: int
    key: int
    keys: KeyPaths


@dataclass(frozen=True, slots=True, eq=False)
class TermBlock:
    """Consecutive terms of an expansion, from number ``start`` on, as arrays of small integers, one entry per term.

    For each side (one, or query and key): ``heads[side] [n, layers]`` the head in each layer, -1 if it is skipped;
    ``sources[side] [n]`` the index of the source in ``expansion.sources``; ``orders[side] [n]``. ``composition [n]``
    is an index in ``COMPOSITIONS``. Arrays are read-only: they may be views shared with other blocks. ``spans``: where
    the same key paths are repeated.

    >>> import symcircuits as sc
    >>> block = next(sc.scores(sc.attention_only((2, 2)), "L1H0").blocks())
    >>> len(block), block.heads[1].T.tolist(), block.composition.tolist()
    (9, [[-1, 0, 1, -1, 0, 1, -1, 0, 1]], [0, 3, 3, 2, 4, 4, 2, 4, 4])
    >>> block.labels()[5], block[5].composition, block.numbers[5:].tolist()
    ('embed -> L0H0 | embed -> L0H1', 'QK', [5, 6, 7, 8])
    """

    expansion: Expansion
    start: int
    heads: tuple[Any, ...]
    sources: tuple[Any, ...]
    orders: tuple[Any, ...]
    composition: Any
    spans: tuple[Span, ...] = ()

    def __len__(self) -> int:
        return int(self.composition.size)

    def __repr__(self) -> str:
        return f"<TermBlock: terms {self.start:,} to {self.start + len(self):,} of {self.expansion!r}>"

    @property
    def order(self) -> Any:
        """The order of each term, both sides together, ``[n]``."""
        total = self.orders[0]
        return total if len(self.orders) == 1 else total + self.orders[1]

    @property
    def numbers(self) -> Any:
        """The number of each term, ``[n]``: int64, or Python integers if those are too small."""
        import numpy as np

        end = self.start + len(self)
        if end > np.iinfo(np.int64).max:
            return np.array(range(self.start, end), object)
        return np.arange(self.start, end, dtype=np.int64)

    def __getitem__(self, i: int) -> Term:
        """Term ``i`` of the block."""
        number = as_whole(i)
        if number is None:
            raise TypeError(f"the terms of a block are numbered by whole numbers, not {shown(i)}")
        if not -len(self) <= number < len(self):
            raise IndexError(f"term {many(number)} of the block does not exist: it has {amount(len(self), 'term')}")
        paths = []
        for side in range(len(self.heads)):
            heads = tuple(Head(layer, int(n)) for layer, n in enumerate(self.heads[side][number]) if n >= 0)
            name = self.expansion.sources[int(self.sources[side][number])].name
            start = next(s for s in self.expansion.sides[side].sources_of(heads) if s.name == name)
            paths.append(Path(start, heads))
        return Term(self.expansion.readout, tuple(paths), notation=self.expansion.notation)

    def __iter__(self) -> Iterator[Term]:
        return (self[i] for i in range(len(self)))

    def labels(self) -> list[str]:
        """The label of each term, ``embed -> L0H1 | embed``."""
        from symcircuits.tables.printing import labels

        return labels(self)

    def texts(self, notation: str | Notation | None = None) -> list[str]:
        """The text of each term, in the expansion's notation or another."""
        from symcircuits.tables.printing import printed

        return printed(self, self._notation(notation), "text")

    def latex(self, notation: str | Notation | None = None) -> list[str]:
        """Each term in LaTeX, in the expansion's notation or another."""
        from symcircuits.tables.printing import printed

        return printed(self, self._notation(notation), "latex")

    def joined(self, what: str, between: bytes = b"\n", escape: Callable[[str], str] = str) -> bytes:
        """All of ``label``, ``text`` or ``latex`` in UTF-8, with a separator: faster than one by one.

        ``escape`` is applied to parts of them, so it must treat every character separately.
        """
        from symcircuits.tables.printing import joined

        return joined(self, None if what == "label" else self.expansion.notation, what, between, escape)

    def pieces(self, what: str, escape: Callable[[str], str] = str) -> list[list[bytes]]:
        """As :meth:`joined`, but term by term: one list, or two whose items, put together, make the strings."""
        from symcircuits.tables.printing import pieces

        return pieces(self, None if what == "label" else self.expansion.notation, what, escape)

    def meetings(self, what: str) -> Any:
        """Numbers ``[n]``, different if the first of two lists of :meth:`pieces` may differ for one query path."""
        from symcircuits.tables.printing import meetings

        return meetings(self, None if what == "label" else self.expansion.notation, what)

    def _notation(self, notation: str | Notation | None) -> Notation:
        return self.expansion.notation if notation is None else readout_notation(self.expansion.readout, notation)

    def census(self) -> Census:
        """The number of terms of each order and type, counted from the heads themselves."""
        import numpy as np

        layers = max(side.shape[1] for side in self.heads)
        kind = smallest_type((layers + 1) ** len(self.heads))
        found = [(side.T >= 0).view(np.int8).sum(0, dtype=kind) for side in self.heads]
        width = 1 + int(found[-1].max(initial=0))
        key = found[0] if len(found) == 1 else found[0] * kind.type(width) + found[1]
        counts = np.bincount(key)
        places = [int(p) for p in counts.nonzero()[0]]
        return Census({(p,) if len(found) == 1 else divmod(p, width): int(counts[p]) for p in places})


class Census:
    """The number of terms for each combination of orders (of the sides), and so for each order and type."""

    __slots__ = ("by_orders",)

    def __init__(self, by_orders: dict[tuple[int, ...], int] | None = None) -> None:
        self.by_orders = dict(sorted((by_orders or {}).items()))

    @property
    def count(self) -> int:
        """Number of terms."""
        return sum(self.by_orders.values())

    def by_order(self) -> dict[int, int]:
        """Number of terms of each order that occurs."""
        return self._by(sum)

    def by_composition(self) -> dict[str, int]:
        """Number of terms of each composition type that occurs."""
        found = self._by(composition_code)
        return {COMPOSITIONS[c]: found[c] for c in sorted(found)}

    def _by(self, key: Any) -> dict[int, int]:
        found: dict[int, int] = {}
        for orders, n in self.by_orders.items():
            found[key(orders)] = found.get(key(orders), 0) + n
        return dict(sorted(found.items()))

    def __add__(self, other: Census) -> Census:
        keys = {**self.by_orders, **other.by_orders}
        return Census({k: self.by_orders.get(k, 0) + other.by_orders.get(k, 0) for k in keys})

    def __eq__(self, other: object) -> bool:
        return self.by_orders == other.by_orders if isinstance(other, Census) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<Census of {amount(self.count, 'term')}: orders {self.by_order()}, compositions {self.by_composition()}>"
        )


def composition_code(orders: tuple[int, ...]) -> int:
    """The index in ``COMPOSITIONS`` of the type of a term with these orders."""
    if len(orders) == 1:
        return int(orders[0] >= 2)
    q, k = int(orders[0] > 0), int(orders[1] > 0)
    return 2 * q + 3 * k - q * k


def composition_codes(orders: tuple[Any, ...]) -> Any:
    """The same for many terms, ``[n]``."""
    if len(orders) == 1:
        return (orders[0] >= 2).astype("int8")
    q, k = ((o > 0).view("int8") for o in orders)
    return 2 * q + 3 * k - q * k


def blocks(expansion: Expansion, size: int = BLOCK, start: int = 0, stop: int | None = None) -> Iterator[TermBlock]:
    """The terms ``start`` to ``stop`` of an expansion in blocks of ``size`` (the last may be smaller), in its order.

    Works for any selection at any depth; the block, not the number of terms, bounds the memory. Ranges split the work:
    the blocks of ``start=a, stop=b`` and ``start=b, stop=c`` are the terms of ``start=a, stop=c``. Raises ValueError
    if it is not a range of terms, TypeError if it is not an Expansion. Source: own derivation.

    >>> import symcircuits as sc
    >>> deep = sc.logits(sc.attention_only((12,) * 12)).through("L3H7")
    >>> block = next(deep.blocks(1000, start=10**12))
    >>> block.start, block.labels()[0] == deep[10**12].label, block.heads[0].shape
    (1000000000000, True, (1000, 12))
    """
    need("blocks", expansion, Expansion)
    _not_too_many(expansion)
    size, terms = whole("size", size, 1), range_of(expansion, start, stop)
    return _blocks(expansion, size, terms.start, terms.stop)


def _not_too_many(expansion: Expansion) -> None:
    if len(expansion.clauses) > MAX_CLAUSES:
        raise ValueError(f"blocks take at most {MAX_CLAUSES} conditions; this expansion has {len(expansion.clauses)}")


def range_of(expansion: Expansion, start: int, stop: int | None) -> range:
    """The numbers from ``start`` to ``stop`` (None: the end); raises ValueError if they are not numbers of terms.

    >>> import symcircuits as sc
    >>> range_of(sc.logits(sc.attention_only((2, 2))), 4, None)
    range(4, 9)
    """
    first, last = whole("start", start, 0), expansion.count if stop is None else whole("stop", stop, 0)
    if not first <= last <= expansion.count:
        raise ValueError(
            f"{argument('start')} {many(first)} and {argument('stop')} {many(last)} are not a range of the "
            f"{amount(expansion.count, 'term')} of {expansion.target}, counted from 0"
        )
    return range(first, last)


def _blocks(expansion: Expansion, size: int, start: int, stop: int) -> Iterator[TermBlock]:
    if start >= stop:
        return
    maker = _Maker(expansion, min(size, stop - start))
    wide = min(size, stop - start)
    canvas, at = maker.canvas(wide), 0
    for piece in maker.pieces(start):
        done, rows = 0, len(piece)
        while done < rows:
            n = min(rows - done, wide - at)
            piece.fill(canvas, at, done, done + n)
            at, done = at + n, done + n
            if at == wide:
                yield canvas.block(expansion, start)
                start += wide
                if start >= stop:
                    return
                wide = min(size, stop - start)
                canvas, at = maker.canvas(wide), 0


class OrderRun(NamedTuple):
    """Consecutive terms, ``terms`` of them, by their orders alone.

    For one side: all of ``order``. For scores: query paths of ``order``, each times the same key paths, whose orders
    are in ``keys`` as runs (order, length); starting at the pair ``skip``.
    """

    order: int
    terms: int
    keys: tuple[tuple[int, int], ...] = ()
    skip: int = 0


def order_runs(expansion: Expansion, start: int, stop: int) -> Iterator[OrderRun]:
    """The orders of the terms of a range, in their order, without listing the terms.

    >>> import symcircuits as sc
    >>> for run in order_runs(sc.scores(sc.attention_only((2, 2)), "L1H0"), 1, 9):
    ...     print(run)
    OrderRun(order=0, terms=2, keys=((0, 1), (1, 2)), skip=1)
    OrderRun(order=1, terms=6, keys=((0, 1), (1, 2)), skip=0)
    """
    at = start
    runs = _runs_by_order(expansion, start) if _alike(expansion) else _runs_by_path(expansion, start)
    while at < stop:
        run = next(runs)
        yield run._replace(terms=min(run.terms, stop - at))
        at += run.terms


def _alike(expansion: Expansion) -> bool:
    """Whether all paths of one order combine with the same key paths: no condition distinguishes them."""
    bits = (bit for side in expansion.sides for bits in (side.head_bits, side.name_bits) for bit in bits.values())
    return len(expansion.sides) == 1 or not any(bits)


def _runs_by_order(expansion: Expansion, start: int) -> Iterator[OrderRun]:
    """By arithmetic."""
    at = 0
    for order, terms in expansion.sides[0]._order_masses(expansion._weights):
        skip, at = max(start - at, 0), at + terms
        if skip >= terms:
            continue
        keys: tuple[tuple[int, int], ...] = ()
        if len(expansion.sides) == 2:
            wanted, counts = sorted(expansion._key_weights(Mark(order, 0))), expansion.sides[1].counts
            keys = tuple((m.order, counts[m]) for m in wanted if counts[m])
        yield OrderRun(order, terms - skip, keys, skip % sum(n for _, n in keys) if keys else 0)


def _runs_by_path(expansion: Expansion, start: int) -> Iterator[OrderRun]:
    """By the tables of paths."""
    _not_too_many(expansion)
    return (piece.orders() for piece in _Maker(expansion, 1).pieces(start))


class _Canvas(NamedTuple):
    """The arrays of a block being filled: heads ``[layers, n]``, sources and orders of each side."""

    heads: tuple[Any, ...]
    sources: tuple[Any, ...]
    orders: tuple[Any, ...]
    spans: list[Span]

    def block(self, expansion: Expansion, start: int) -> TermBlock:
        composition = composition_codes(self.orders)
        for array in (*self.heads, *self.sources, *self.orders, composition):
            array.flags.writeable = False
        heads = tuple(h.T for h in self.heads)
        return TermBlock(
            expansion, start, heads, self.sources, self.orders, composition=composition, spans=tuple(self.spans)
        )


class _One(NamedTuple):
    """A chunk of one side; for scores, with the query path that precedes all of it."""

    side: int
    chunk: Chunk
    query: tuple[Any, int, int] | None = None  # heads, source, order

    def __len__(self) -> int:
        return len(self.chunk)

    def orders(self) -> OrderRun:
        order, n = self.chunk.order, len(self.chunk)
        return OrderRun(order, n) if self.query is None else OrderRun(self.query[2], n, ((order, n),))

    def fill(self, canvas: _Canvas, at: int, first: int, last: int) -> None:
        to = slice(at, at + last - first)
        canvas.orders[self.side][to] = self.chunk.order
        self.chunk.fill(canvas.heads[self.side][:, to], canvas.sources[self.side][to], first, last)
        if self.query is not None:
            heads, canvas.sources[0][to], canvas.orders[0][to] = self.query
            canvas.heads[0][:, to] = heads[:, None]


class _Pairs(NamedTuple):
    """Query paths of one order times a selection of key paths, starting at the pair ``skip``."""

    order: int
    heads: Any
    sources: Any
    keys: KeyPaths
    skip: int

    def __len__(self) -> int:
        return int(self.sources.size) * self.keys.period - self.skip

    def orders(self) -> OrderRun:
        return OrderRun(self.order, len(self), self.keys.runs(), self.skip)

    def fill(self, canvas: _Canvas, at: int, first: int, last: int) -> None:
        to, period = slice(at, at + last - first), self.keys.period
        query, key = divmod(first + self.skip, period)
        span = slice(key, key + last - first)
        for row, column in zip(canvas.heads[1], self.keys.heads, strict=True):
            row[to] = column[span]
        canvas.sources[1][to], canvas.orders[1][to] = self.keys.sources[span], self.keys.orders[span]
        canvas.orders[0][to] = self.order
        for row, column in zip(canvas.heads[0], self.heads, strict=True):
            _spread(row[to], column[query:], period, key)
        _spread(canvas.sources[0][to], self.sources[query:], period, key)
        canvas.spans.append(Span(to.start, to.stop, key, self.keys))


def _spread(out: Any, values: Any, period: int, skip: int) -> None:
    """Write each value ``period`` times, the first one ``skip`` times less."""
    n = out.size
    if period < FEW:
        out[:] = values[: (skip + n - 1) // period + 1].repeat(period)[skip : skip + n]
        return
    done = min(period - skip, n) if skip else 0
    out[:done] = values[0]
    used, whole = int(skip > 0), (n - done) // period
    end = done + whole * period
    out[done:end].reshape(whole, period)[:] = values[used : used + whole, None]
    if end < n:
        out[end:] = values[used + whole]


class _Maker:
    """Makes the pieces that blocks consist of."""

    def __init__(self, expansion: Expansion, size: int) -> None:
        self.expansion, self.size = expansion, size
        self.names = [s.name for s in expansion.sources]
        self.first = PathTables(expansion.sides[0], [m for m, n in expansion._weights.items() if n], self.names)
        self._key_sets: dict[frozenset[Mark], tuple[PathTables, KeyPaths | None]] = {}

    def canvas(self, n: int) -> _Canvas:
        import numpy as np

        tables = [self.first] if len(self.expansion.sides) == 1 else [self.first, self._key_tables(frozenset())]
        heads = tuple(np.full((t.n_layers, n), -1, t.head_type) for t in tables)
        sources = tuple(np.empty(n, t.source_type) for t in tables)
        return _Canvas(heads, sources, tuple(np.empty(n, smallest_type(t.n_layers)) for t in tables), [])

    def pieces(self, start: int) -> Iterator[_One | _Pairs]:
        """The terms from number ``start`` on, as chunks of one side or as products of the two."""
        if len(self.expansion.sides) == 1:
            yield from (_One(0, chunk) for chunk in self.first.chunks(start))
            return
        weights = self.expansion._weights
        path, skip = self.expansion.sides[0].unrank(start, weights)
        number = self.expansion.sides[0].rank(path, {m: 1 for m, n in weights.items() if n})
        for chunk in self.first.chunks(number):
            yield from self._pairs(chunk, skip)
            skip = 0

    def _pairs(self, chunk: Chunk, skip: int) -> Iterator[_One | _Pairs]:
        """The query paths of a chunk, grouped by their marks, times the key paths that combine with them."""
        import numpy as np

        n, bits = len(chunk), chunk.table.bits
        heads = np.full((self.first.n_layers, n), -1, self.first.head_type)
        sources = np.empty(n, self.first.source_type)
        chunk.fill(heads, sources, 0, n)
        cuts = [0, n]
        if bits is not None:
            bits = bits[chunk.start :]
            cuts = [0, *(1 + np.flatnonzero(bits[1:] != bits[:-1])).tolist(), n]
        for a, b in pairwise(cuts):
            tables, keys = self._keys(Mark(chunk.order, 0 if bits is None else int(bits[a])))
            if keys is not None:
                yield _Pairs(chunk.order, heads[:, a:b], sources[a:b], keys, skip)
            else:
                for i in range(a, b):
                    query = heads[:, i], sources[i], chunk.order
                    yield from (_One(1, after, query) for after in tables.chunks(skip))
                    skip = 0
            skip = 0

    def _keys(self, query: Mark) -> tuple[PathTables, KeyPaths | None]:
        """The key paths that combine with query paths of a mark: their tables, and all of them if they are few."""
        wanted = frozenset(self.expansion._key_weights(query))
        found = self._key_sets.get(wanted)
        if found is None:
            while len(self._key_sets) >= MAX_KEY_SETS:
                self._key_sets.pop(next(iter(self._key_sets)))
            tables = self._key_tables(wanted)
            found = self._key_sets[wanted] = tables, self._held(tables) if tables.count <= MAX_KEYS else None
        return found

    def _key_tables(self, wanted: frozenset[Mark]) -> PathTables:
        return PathTables(self.expansion.sides[1], wanted, self.names)

    def _held(self, tables: PathTables) -> KeyPaths:
        import numpy as np

        n, at = tables.count, 0
        heads = np.full((tables.n_layers, n), -1, tables.head_type)
        sources, orders = np.empty(n, tables.source_type), np.empty(n, smallest_type(tables.n_layers))
        for chunk in tables.chunks():
            to = slice(at, at + len(chunk))
            chunk.fill(heads[:, to], sources[to], 0, len(chunk))
            orders[to] = chunk.order
            at += len(chunk)
        tables.forget()
        times = -(-(n + self.size) // n)
        return KeyPaths(tables.wanted, n, *(np.tile(a, times)[..., : n + self.size] for a in (heads, sources, orders)))
