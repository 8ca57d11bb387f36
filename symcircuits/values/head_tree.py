"""Values of chosen paths by the head-space tree, one small matrix product a path.

A path that ends in head h contributes ``Z W_O^T`` with ``Z: [n_context, d_head]``; one more head costs
``Z (W_O^{f T} W_V^{h T})``, a ``d_head x d_head`` product, and a pattern. Neighbours share what they begin with:
only the stack of the current path is held. All sources of a chain of heads are one axis of Z,
``[..., n_context, sources, d_head]`` (token first: every step is one product).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.architecture import Head
from symcircuits.core.paths import Path, Paths, path_branches
from symcircuits.core.programs import Branch, Program, Source
from symcircuits.core.walk import Matrices
from symcircuits.core.words import Factor

__all__ = ["HeadTree", "readout_of"]

Array = npt.NDArray[Any]
# Read-out matrices of single heads, W_U W_O^h, are kept up to this size in all; beyond it they are made as needed.
_KEPT_BYTES = 2**28


@dataclass(slots=True)
class _Node:
    branch: Branch
    z: Array  # [..., n, sources, d_head]


def readout_of(program: Program) -> tuple[tuple[Factor, ...], tuple[Factor, ...], tuple[str, ...]]:
    """What a program does after its last heads: factors to the right, factors to the left, multipliers."""
    right: tuple[Factor, ...] = ()
    left: tuple[Factor, ...] = ()
    scales: tuple[str, ...] = ()
    for layer in program:
        unmarked = [b for b in layer.branches if b.head is None]
        if right and not unmarked:
            raise NotImplementedError("in head space readouts are taken at the end of a program only")
        if unmarked:
            right += unmarked[0].right
            left = unmarked[0].left + left
            scales += unmarked[0].scales
    return right, left, scales


class HeadTree:
    """The values of paths of one program on one run."""

    def __init__(self, paths: Paths, matrices: Matrices, batch: tuple[int, ...]) -> None:
        self.paths, self.matrices, self.batch = paths, matrices, batch
        self._branches = {b.head: b for layer in paths.program for b in layer.branches if b.head is not None}
        self._readout, self._rows, self._scales = readout_of(paths.program)
        self._links: dict[tuple[Head, Head], Array] = {}
        self._reads: dict[Head, Array] = {}
        self._read_bytes = 0

    def of(self, paths: Iterable[Path]) -> Iterator[Array]:
        """The values of some paths, ``[..., n_context, width]``; in the order of the expansion they share the most."""
        stack: list[_Node] = []
        for heads, group in groupby(paths, key=lambda p: p.heads):
            sources = self.paths.sources_of(heads)
            places = {s: i for i, s in enumerate(sources)}
            keep = [places[p.source] for p in group]
            yield from self._direct(sources, keep) if not heads else self._through(stack, heads, sources, keep)

    def _direct(self, sources: tuple[Source, ...], keep: list[int]) -> Array:
        values = []
        for i in keep:
            value = self.matrices.source(sources[i])
            for branch in path_branches(self.paths.program, Path(sources[i])):
                value = self.matrices.branch(branch, value)
            values.append(self._spread(value))
        return np.stack(values)

    def _scaled(self, value: Array) -> Array:
        """What the readout does to rows (its norm, its multiplier)."""
        for f in reversed(self._rows):
            value = self.matrices.factor(f) @ value
        return np.asarray(self.matrices.scaled(self._scales, value))

    def _spread(self, value: Array) -> Array:
        """A source's value with the batch axes of the run."""
        return np.broadcast_to(value, self.batch + value.shape[-2:])

    def _through(
        self, stack: list[_Node], heads: tuple[Head, ...], sources: tuple[Source, ...], keep: list[int]
    ) -> Array:
        shared = 0
        while shared < min(len(stack), len(heads)) and stack[shared].branch.head == heads[shared]:
            shared += 1
        del stack[shared:]
        for head in heads[shared:]:
            stack.append(self._step(stack[-1], self._branches[head]) if stack else self._start(head, sources))
        top = stack[-1]
        z = top.z if keep == list(range(top.z.shape[-2])) else top.z[..., keep, :]
        return self._scaled(np.moveaxis(self._read(top.branch, z), -2, 0))

    def _start(self, head: Head, sources: tuple[Source, ...]) -> _Node:
        """All sources of a first head, taken into its value space and mixed by its pattern."""
        branch = self._branches[head]
        rows = []
        for s in sources:
            if s.head is None:
                row = self.matrices.chain(branch.right[:-1], self.matrices.source(s))
                for f in reversed(branch.left[1:]):
                    row = self.matrices.factor(f) @ row
                rows.append(row)
            elif s.left == branch.left[:1] and s.right[-1:] == branch.right[-1:] and s.scales == branch.scales:
                rows.append(self.matrices.chain(s.core + s.right[:-1]))  # it enters after the norm
            else:
                raise NotImplementedError(f"source {s.name} does not enter {head} at its pattern")
        z = np.stack([self._spread(r) for r in rows], axis=-2)
        return self._node(branch, branch.left[:1], z)

    def _node(self, branch: Branch, left: tuple[Factor, ...], z: Array) -> _Node:
        return _Node(branch, self.matrices.scaled(branch.scales, self._mix(left, z)))

    def _step(self, node: _Node, branch: Branch) -> _Node:
        """One more head: the virtual weight ``W_O^{f T} W_V^{h T}``, then the pattern."""
        before, head = node.branch.head, branch.head
        assert before is not None
        assert head is not None
        link = self._links.get((before, head))
        if link is None:
            link = self.matrices.chain(node.branch.right[-1:] + branch.right[:-1])
            self._links[before, head] = link
        return self._node(branch, branch.left, node.z @ link)

    def _mix(self, left: tuple[Factor, ...], z: Array) -> Array:
        shape = z.shape
        flat = z.reshape(*shape[:-2], shape[-2] * shape[-1])
        for f in reversed(left):
            flat = self.matrices.factor(f) @ flat
        return flat.reshape(shape)

    def _read(self, branch: Branch, z: Array) -> Array:
        head = branch.head
        assert head is not None
        if head in self._reads:
            return z @ self._reads[head]
        out = branch.right[-1:]
        if not self._readout:
            return np.asarray(z @ self.matrices.factor(out[0]))
        width = self.matrices.factor(self._readout[-1]).shape[-1]
        size = z.shape[-1] * width * z.itemsize
        if self._read_bytes + size > _KEPT_BYTES:
            return self.matrices.chain(out + self._readout, z)  # type: ignore[no-any-return]
        self._read_bytes += size
        self._reads[head] = self.matrices.chain(out + self._readout)
        return self._read(branch, z)
