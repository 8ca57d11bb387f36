"""Values of paths in arrays of any library: neighbours share their beginning, one step in head space per head.

Does the work of :mod:`symcircuits.values.siblings` by functions of the array API standard alone. Nothing is
overwritten, and nothing is kept from one pass to the next, so gradients pass through every pass by itself. The
heads of a layer that follow the same beginning are taken together, in one product each for virtual weights, patterns
and readout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from symcircuits.arrays.namespaces import Namespace
from symcircuits.core.architecture import Head
from symcircuits.core.paths import Path, Paths, path_branches
from symcircuits.core.programs import Branch, Source
from symcircuits.core.walk import Mark, Matrices
from symcircuits.values.engine import Piece, Room, Span, gathered

__all__ = ["TensorTree"]

_KEPT = 2**26  # numbers in readout matrices of heads that are cached during a pass
_TOGETHER = 2**22  # numbers in a block of values with more than one chain of heads

Chain = tuple[Head, ...]


class _Node(NamedTuple):
    branch: Branch
    z: Any  # [sources, ..., n, d_head]


class TensorTree:
    """One pass over the paths of a program, in the order of :class:`~symcircuits.core.paths.Paths`.

    ``shape``: that of the tokens, batch axes and ``n_context``. ``row``: the wanted position (None: all).
    """

    def __init__(
        self, paths: Paths, matrices: Matrices, ring: Namespace, shape: tuple[int, ...], row: int | None = None
    ) -> None:
        self.paths, self.matrices, self.ring, self.shape, self.batch = paths, matrices, ring, shape, shape[:-1]
        self.row = row
        self._branches = paths.branches
        self._layer_of = {h: i for i, heads in enumerate(paths.layer_heads) for h in heads}
        self._cols, self._rows, self._scales = paths.readout
        self._made: dict[tuple[Any, ...], Any] = {}
        self._kept = 0

    def pieces(
        self, weights: Mapping[Mark, int], span: Span, room: Room | None = None, narrow: bool = False
    ) -> Iterator[Piece]:
        """See :class:`symcircuits.values.engine.Side`; terms before the span are computed; nothing is overwritten."""
        span.enter()
        marks: list[Mark] = []
        blocks = self._blocks(weights, marks)
        first = next(blocks, None)
        if first is None:
            return
        blocks = itertools.chain([first], blocks)
        if room is not None and room.numbers:
            blocks = gathered(blocks, room.most(math.prod(first.shape[1:])), self.ring.xp.concat)
        for block in blocks:
            count = int(block.shape[0])
            yield Piece(marks[:count], block, False)
            del marks[:count]

    def _blocks(self, weights: Mapping[Mark, int], marks: list[Mark]) -> Iterator[Any]:
        """Values of neighbouring paths with weight, ``[paths, ..., n_context, width]``; their marks are appended."""
        stack: list[_Node] = []
        for chains in self._together(weights):
            sources = self.paths.sources_of(chains[0])
            named = [[self.paths.mark(Path(s, chain)) for s in sources] for chain in chains]
            rows = [[i for i, mark in enumerate(row) if weights.get(mark, 0)] for row in named]
            used = sorted({i for row in rows for i in row})
            if not used:
                continue
            if chains[0]:
                values = self._read(chains, self._through(stack, chains, sources, used))
            else:
                values = self.ring.xp.stack([self._direct(sources[i]) for i in used])
            if any(row != used for row in rows):
                at = [c * len(used) + used.index(i) for c, row in enumerate(rows) for i in row]
                values = self.ring.xp.stack([values[k, ...] for k in at])
            marks += [found[i] for found, row in zip(named, rows, strict=True) for i in row]
            yield values

    def _together(self, weights: Mapping[Mark, int]) -> Iterator[list[Chain]]:
        """Chains of heads in order, grouped if they differ only in the last head, within one layer."""
        group: list[Chain] = []
        for chain in self.paths.chains(weights):
            if group and not (len(group) < self._most(group[0]) and self._alike(group[0], chain)):
                yield group
                group = []
            group.append(chain)
        if group:
            yield group

    def _most(self, chain: Chain) -> int:
        """How many chains are computed together."""
        if len(chain) < 2:
            return 1
        width = self._shape((self._cols or self._branches[chain[-1]].right)[-1])[1]
        numbers = math.prod(self.shape) * max(width * len(self.paths.sources_of(chain)), self.shape[-1])
        return max(1, _TOGETHER // numbers)

    def _alike(self, first: Chain, second: Chain) -> bool:
        if len(first) != len(second) or first[:-1] != second[:-1]:
            return False
        a, b = (self._branches[chain[-1]] for chain in (first, second))
        same = self._layer_of[first[-1]] == self._layer_of[second[-1]] and a.left[1:] == b.left[1:]
        return same and a.scales == b.scales and self._shape(a.right[-1]) == self._shape(b.right[-1])

    def _shape(self, factor: Any) -> tuple[int, int]:
        """The shape of a weight as a factor."""
        shape = self.matrices.matrices[factor.symbol.argument].shape
        return (shape[-1], shape[-2]) if factor.transposed else (shape[-2], shape[-1])

    def _direct(self, source: Source) -> Any:
        value = self.matrices.source(source)
        for branch in path_branches(self.paths.program, Path(source)):
            value = self.matrices.branch(branch, value)
        return self._asked(self.ring.spread(value, self.batch))

    def _asked(self, value: Any) -> Any:
        """The wanted row of a matrix whose rows are positions."""
        return value if self.row is None else value[..., self.row : self.row + 1, :]

    # --------------------------------------------------------------------------------------- in head space
    def _through(self, stack: list[_Node], chains: list[Chain], sources: tuple[Source, ...], used: list[int]) -> Any:
        """The values of chains in their last heads, ``[chains, sources, ..., n, d]``, for the sources used."""
        beginning, xp = chains[0][:-1], self.ring.xp
        shared = 0
        while shared < min(len(stack), len(beginning)) and stack[shared].branch.head == beginning[shared]:
            shared += 1
        del stack[shared:]
        for head in beginning[shared:]:
            stack.append(self._step(stack[-1], self._branches[head]) if stack else self._start(head, sources))
        z = stack[-1].z if beginning else self._start(chains[0][0], sources).z
        if len(used) < len(sources):
            z = xp.stack([z[i, ...] for i in used])
        if not beginning:
            return xp.expand_dims(self._asked(z), axis=0)
        last = self._branches[chains[0][-1]]
        heads = tuple(chain[-1] for chain in chains)
        for f in reversed(last.left[1:]):
            z = self.ring.matmul(self.matrices.factor(f), z)
        z = xp.expand_dims(z, axis=0)
        link = self._kept_of(("link", beginning[-1], *heads), lambda h: self._link(beginning[-1], h))
        mix = self._kept_of(("mix", *heads), self._pattern)
        return self.matrices.scaled(last.scales, mix @ (z @ link) if self.row is None else (mix @ z) @ link)

    def _start(self, head: Head, sources: tuple[Source, ...]) -> _Node:
        """All sources of a first head, mapped into its value space and mixed by its pattern."""
        branch, rows = self._branches[head], []
        for s in sources:
            if s.head is None:
                row = self.matrices.chain(branch.right[:-1], self.matrices.source(s))
                for f in reversed(branch.left[1:]):
                    row = self.ring.matmul(self.matrices.factor(f), row)
            else:  # inside the head: after the norm, and before its pattern
                row = self.matrices.chain(s.core + s.right[:-1])
            rows.append(self.ring.spread(row, self.batch))
        z = self.ring.matmul(self.matrices.factor(branch.left[0]), self.ring.xp.stack(rows))
        return _Node(branch, self.matrices.scaled(branch.scales, z))

    def _step(self, node: _Node, branch: Branch) -> _Node:
        """One more head: the virtual weight, then the pattern."""
        before, head = node.branch.head, branch.head
        assert before is not None
        assert head is not None
        if ("step", before, head) not in self._made:
            self._made["step", before, head] = self._link(before, head)
        z = node.z @ self._made["step", before, head]
        for f in reversed(branch.left):
            z = self.ring.matmul(self.matrices.factor(f), z)
        return _Node(branch, self.matrices.scaled(branch.scales, z))

    def _link(self, before: Head, head: Head) -> Any:
        """``W_O^{f T} W_V^{h T}``, with the effect of h's norm on columns."""
        return self.matrices.chain(self._branches[before].right[-1:] + self._branches[head].right[:-1])

    def _pattern(self, head: Head) -> Any:
        return self._asked(self.ring.spread(self.matrices.factor(self._branches[head].left[0]), self.batch))

    def _columns(self, head: Head) -> Any:
        """``W_O^T`` times the reader of the stream."""
        return self.matrices.chain(self._branches[head].right[-1:] + self._cols)

    def _read(self, chains: list[Chain], z: Any) -> Any:
        """The readout of ``z [chains, sources, ..., n, d]``: ``[chains sources, ..., n, width]``."""
        heads = tuple(chain[-1] for chain in chains)
        value = z @ self._kept_of(("read", *heads), self._columns)
        value = self.ring.xp.reshape(value, (-1, *value.shape[2:]))
        for f in reversed(self._rows):
            scales = self.matrices.factor(f).entries[..., :, None]
            value = self._asked(scales) * value
        return self.matrices.scaled(self._scales, value)

    def _kept_of(self, key: tuple[Any, ...], make: Callable[[Head], Any]) -> Any:
        """Matrices of heads stacked, ``[heads, 1 .., rows, columns]``; cached while they are few."""
        if key in self._made:
            return self._made[key]
        heads = key[2:] if key[0] == "link" else key[1:]
        found = self.ring.xp.stack([make(h) for h in heads])
        middle = found.shape[1:-2] or (1,) * len(self.batch)
        found = self.ring.xp.reshape(found, (len(heads), 1, *middle, *found.shape[-2:]))
        size = math.prod(found.shape)
        if self._kept + size <= _KEPT:
            self._kept += size
            self._made[key] = found
        return found
