"""The paths of one program as integer arrays, in the order of :class:`~symcircuits.core.paths.Paths`.

The possible continuations of a path depend on the layer, the heads still to come, the marks so far and its possible
sources. Each such state has one table of all its endings, built once from the tables of later layers and copied
behind every beginning that leads to it. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from symcircuits.core.architecture import Head
from symcircuits.core.paths import Paths
from symcircuits.core.programs import Source
from symcircuits.core.walk import Mark

__all__ = ["Chunk", "PathTables", "Table", "smallest_type"]

MAX_ROWS = 1 << 15  # of one table
MAX_BYTES = 1 << 24  # of all tables kept


class State(NamedTuple):
    """What determines the endings of a path: order, next layer, heads to come, bits, bits of possible sources."""

    order: int
    layer: int
    left: int
    bits: int
    starts: tuple[int, ...]


class Table(NamedTuple):
    """Endings of paths, one per column: heads from some layer on (-1: skipped), the index of the source, all bits."""

    heads: Any
    sources: Any
    bits: Any

    @property
    def size(self) -> int:
        """Size of its arrays in bytes."""
        return int(self.heads.nbytes + self.sources.nbytes + (0 if self.bits is None else self.bits.nbytes))


class Chunk(NamedTuple):
    """Consecutive paths of one order: common first heads, then a table from a layer on, from column ``start``.

    ``names`` are the numbers of the sources by their index.
    """

    order: int
    prefix: tuple[tuple[int, int], ...]
    low: int
    table: Table
    names: Any
    start: int

    def __len__(self) -> int:
        return int(self.table.sources.size) - self.start

    def fill(self, heads: Any, sources: Any, first: int, last: int) -> None:
        """Write paths ``first`` to ``last`` of the chunk to columns of heads (which hold -1) and of sources."""
        for layer, number in self.prefix:
            heads[layer] = number
        first, last = first + self.start, last + self.start
        heads[self.low :] = self.table.heads[:, first:last]
        self.names.take(self.table.sources[first:last], out=sources, mode="clip")


def smallest_type(largest: int) -> Any:
    """The smallest signed NumPy type that holds -1 and this number."""
    import numpy as np

    return next(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64) if largest <= np.iinfo(t).max)


class PathTables:
    """The paths of a program with wanted marks, in chunks, from any number on.

    ``names`` are all sources by name; chunks contain their numbers in it.
    """

    def __init__(self, paths: Paths, wanted: Collection[Mark], names: Sequence[str]) -> None:
        self.paths, self.wanted = paths, frozenset(wanted)
        self.number = {name: i for i, name in enumerate(names)}
        heads = [h for layer in paths.layer_heads for h in layer]
        self.n_layers = 1 + max((h.layer for h in heads), default=-1)
        self.head_type = smallest_type(max((h.number for h in heads), default=0))
        self.source_type = smallest_type(len(names))
        self.marked = any(paths.head_bits.values()) or any(paths.name_bits.values())
        self._low = self._lowest()
        self._kept: dict[State, Table] = {}
        self._bytes = 0
        self._counted: dict[State, int] = {}

    def _lowest(self) -> list[int]:
        """For each layer of the program (and the end), the first model layer with heads from there on."""
        low = [self.n_layers]
        for heads in reversed(self.paths.layer_heads):
            low.append(heads[0].layer if heads else low[-1])
        return low[::-1]

    @property
    def count(self) -> int:
        """Number of wanted paths."""
        return sum(n for mark, n in self.paths.counts.items() if mark in self.wanted)

    # ------------------------------------------------------------------------------------------------ tables
    def _rows(self, state: State) -> int:
        found = self._counted.get(state)
        if found is None:
            tails = self.paths.tails(state.layer, state.left)
            found = sum(
                n for b, n in tails.items() for s in state.starts
                if Mark(state.order, self.paths.joints.met(state.bits, b) | s) in self.wanted
            )  # fmt: skip
            if len(self._counted) > 100_000:
                self._counted.clear()
            self._counted[state] = found
        return found

    def _groups(self, state: State) -> Iterator[tuple[int, list[int], State]]:
        """The heads that may come next, in order, grouped by equal continuation: layer, numbers, state behind."""
        for i in range(state.layer, len(self.paths.program)):
            numbers: list[int] = []
            behind: State | None = None
            for head in self.paths.layer_heads[i]:
                bits = self.paths.joints.grown(state.bits, self.paths.head_bits.get(head, 0))
                if behind is not None and bits != behind.bits:
                    yield i, numbers, behind
                    numbers = []
                behind = State(state.order, i + 1, state.left - 1, bits, state.starts)
                numbers.append(head.number)
            if behind is not None:
                yield i, numbers, behind
            if not self.paths.passable[i]:
                return

    def forget(self) -> None:
        """Drop the tables; they are rebuilt when needed."""
        self._kept.clear()
        self._bytes = 0

    def _table(self, state: State) -> Table:
        if self._bytes > MAX_BYTES:
            self.forget()
        stack = [state]
        while stack:
            top = stack[-1]
            lacking = [] if top in self._kept or not top.left else [
                sub for _, _, sub in self._groups(top) if sub not in self._kept and self._rows(sub)
            ]  # fmt: skip
            if lacking:
                stack += lacking
                continue
            stack.pop()
            if top not in self._kept:
                self._kept[top] = made = self._made(top)
                self._bytes += made.size
        return self._kept[state]

    def _empty(self, low: int, n: int) -> Table:
        import numpy as np

        heads = np.full((self.n_layers - low, n), -1, self.head_type)
        return Table(heads, np.empty(n, self.source_type), np.empty(n, np.int64) if self.marked else None)

    def _made(self, state: State) -> Table:
        table = self._empty(self._low[state.layer], self._rows(state))
        if not state.left:
            bits = self.paths.joints.met(state.bits, 0)
            places = [p for p, s in enumerate(state.starts) if Mark(state.order, bits | s) in self.wanted]
            table.sources[:] = places
            if table.bits is not None:
                table.bits[:] = [bits | state.starts[p] for p in places]
            return table
        at = 0
        for layer, numbers, behind in self._groups(state):
            if self._rows(behind):
                at = self._put(table, self._low[state.layer], at, layer, numbers, self._kept[behind])
        return table

    def _put(self, table: Table, low: int, at: int, layer: int, numbers: list[int], behind: Table) -> int:
        """Write ``numbers`` x ``behind`` from column ``at`` on; returns where they end."""
        import numpy as np

        shape = len(numbers), int(behind.sources.size)
        end = at + shape[0] * shape[1]
        own = self.paths.layer_heads[layer][0].layer
        after = table.heads.shape[0] - behind.heads.shape[0]
        table.heads[own - low, at:end].reshape(shape)[:] = np.array(numbers, self.head_type)[:, None]
        # All layers at once: an axis is split, which makes a view. Layer by layer would cost more than the copying if
        # there are thousands of layers.
        table.heads[after:, at:end].reshape(-1, *shape)[:] = behind.heads[:, None]
        table.sources[at:end].reshape(shape)[:] = behind.sources
        if table.bits is not None:
            table.bits[at:end].reshape(shape)[:] = behind.bits
        return end

    def _alike(self, layer: int, numbers: list[int], behind: State) -> tuple[int, Table]:
        """The table of heads that continue alike, with their own layer; and that layer."""
        ending = self._table(behind)
        low = self.paths.layer_heads[layer][0].layer
        table = self._empty(low, len(numbers) * ending.sources.size)
        self._put(table, low, 0, layer, numbers, ending)
        return low, table

    # ------------------------------------------------------------------------------------------------ chunks
    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """The wanted paths from number ``start`` on, in order."""
        skip = _Skip(start)
        for order in sorted({m.order for m in self.wanted if m in self.paths.counts}):
            if order == 0:
                bits = tuple(self.paths.source_bits(s) for s in self.paths.direct)
                state = State(0, len(self.paths.program), 0, 0, bits)
                yield from _unrolled(self._emit(state, (), self._numbers(self.paths.direct), skip))
                continue
            for layer, numbers, behind, sources in self._beginnings(order):
                yield from _unrolled(self._go_on(layer, numbers, behind, (), self._numbers(sources), skip))

    def _numbers(self, sources: tuple[Source, ...]) -> Any:
        import numpy as np

        return np.array([self.number[s.name] for s in sources], self.source_type)

    def _beginnings(self, order: int) -> Iterator[tuple[int, list[int], State, tuple[Source, ...]]]:
        """The first heads, in order, grouped by equal sources and bits."""
        for i, heads in enumerate(self.paths.layer_heads):
            before: tuple[int, tuple[Source, ...]] | None = None
            numbers: list[int] = []
            for head in (*heads, None):
                key = None if head is None else self._begins(head)
                if before is not None and (key is None or key[0] != before[0] or key[1] != before[1]):
                    starts = tuple(self.paths.source_bits(s) for s in before[1])
                    yield i, numbers, State(order, i + 1, order - 1, before[0], starts), before[1]
                    numbers = []
                before = key
                if head is not None:
                    numbers.append(head.number)

    def _begins(self, head: Head) -> tuple[int, tuple[Source, ...]]:
        return self.paths.joints.grown(0, self.paths.head_bits.get(head, 0)), self.paths.sources_of((head,))

    def _emit(self, state: State, prefix: tuple[tuple[int, int], ...], names: Any, skip: _Skip) -> _Chunks:
        """All endings of a state behind a beginning: at once if they are few, else head by head."""
        rows = self._rows(state)
        if skip.over(rows):
            return
        if rows <= MAX_ROWS or not state.left:
            yield Chunk(state.order, prefix, self._low[state.layer], self._table(state), names, start=skip.rest())
            return
        for layer, numbers, behind in self._groups(state):
            yield self._go_on(layer, numbers, behind, prefix, names, skip)

    def _go_on(
        self,
        layer: int,
        numbers: list[int],
        behind: State,
        prefix: tuple[tuple[int, int], ...],
        names: Any,
        skip: _Skip,
    ) -> _Chunks:
        """Heads that continue alike: at once if they are few, else one by one."""
        rows = len(numbers) * self._rows(behind)
        if skip.over(rows):
            return
        if rows <= MAX_ROWS:
            low, table = self._alike(layer, numbers, behind)
            yield Chunk(behind.order, prefix, low, table, names, start=skip.rest())
            return
        own = self.paths.layer_heads[layer][0].layer
        for number in numbers:
            yield self._emit(behind, (*prefix, (own, number)), names, skip)


_Chunks = Iterator["Chunk | _Chunks"]  # chunks, or nested iterators of chunks


def _unrolled(chunks: _Chunks) -> Iterator[Chunk]:
    """The flattened chunks, in order, at any depth: a program may have more layers than Python has frames."""
    stack = [chunks]
    while stack:
        found = next(stack[-1], None)
        if isinstance(found, Chunk):
            yield found
        elif found is None:
            stack.pop()
        else:
            stack.append(found)


class _Skip:
    """How many paths are still to be skipped."""

    def __init__(self, number: int) -> None:
        self.number = number

    def over(self, rows: int) -> bool:
        """Whether that many paths are skipped as a whole (also for zero)."""
        if self.number < rows:
            return False
        self.number -= rows
        return True

    def rest(self) -> int:
        """The number still to skip, which resets it."""
        number, self.number = self.number, 0
        return number
