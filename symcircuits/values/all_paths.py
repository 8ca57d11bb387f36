"""All paths of a small program at once, layer by layer, because Python calls would cost more than the numbers.

The paths before a layer are one array ``[batch, n, paths, d_model]``; all heads of the layer read all of them in one
product, and their outputs are further paths. At the end they are put into the order of the expansion, which is cached
by architecture. The list of arrays to multiply is a plan, cached by run, with the results of the layers of the stream.
Source: own construction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.paths import Path, Paths
from symcircuits.core.programs import Branch
from symcircuits.core.walk import Mark
from symcircuits.values.siblings import LayerArrays, SiblingPaths

__all__ = ["MadeTerms", "Order", "Plan", "all_paths", "order_of", "plan_of"]

_MOST_PATHS = 1 << 10  # per side
_MOST = 1 << 22  # multiplications of all paths in a layer or readout


class Order(NamedTuple):
    """The positions of the paths of a program, in order of computation, in its own order, and their marks in that."""

    places: npt.NDArray[np.intp]
    marks: list[Mark]


_ORDERS: WeakKeyDictionary[Paths, Order | None] = WeakKeyDictionary()


def order_of(expansion: Expansion, side: int) -> Order | None:
    """The order of the paths of one side, if no condition applies to them and they are few; else None.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> order_of(logits(attention_only((1, 1))), 0).places.tolist()
    [0, 1, 2, 3]
    """
    paths = expansion.sides[side]
    if paths not in _ORDERS:
        few = not expansion.clauses and sum(paths.counts.values()) <= _MOST_PATHS
        _ORDERS[paths] = _order(expansion.architecture, expansion.target, side) if few else None
    return _ORDERS[paths]


@lru_cache(maxsize=64)
def _order(architecture: Architecture, target: str, side: int) -> Order:
    """Computed once for an architecture."""
    paths = expand(architecture, target).sides[side]
    made = {(id(path.source), path.heads): i for i, path in enumerate(_made(paths))}
    wanted = [*paths.iterate(dict.fromkeys(paths.counts, 1))]
    places = [made[id(path.source), path.heads] for path in wanted]
    return Order(np.array(places, np.intp), [paths.mark(path) for path in wanted])


def _made(paths: Paths) -> list[Path]:
    """The paths in the order in which :func:`all_paths` computes them."""
    found: list[Path] = []
    for layer, passable in zip(paths.program, paths.passable, strict=True):
        through = [Path(p.source, (*p.heads, b.head)) for b in layer.branches if b.head is not None for p in found]
        new = [Path(s, () if s.head is None else (s.head,)) for s in layer.sources]
        found = [*(found if passable else []), *through, *new]
    return found


class MadeTerms(NamedTuple):
    """Terms ``[terms, batch, n, width]`` as computed, and the position of each in their order (None: the same)."""

    values: Array
    places: npt.NDArray[np.intp] | None

    def ordered(self, numbers: Array) -> Array:
        """The result for each term, in the order of the terms."""
        return numbers if self.places is None else numbers[self.places]


class Reading(NamedTuple):
    """A branch without a head, for all paths: matrices from the right, scales of rows, scalars."""

    right: tuple[Any, ...]
    rows: tuple[Array, ...]
    scalars: tuple[Array, ...]


class Step(NamedTuple):
    """A layer of a program: whether paths skip it, its readers, its heads, its sources side by side."""

    skip: bool
    reads: tuple[Reading, ...]
    heads: LayerArrays | None
    sources: Array | None  # [batch, n, sources, d_model]


class Plan(NamedTuple):
    """The arrays from which all paths of a side are computed, in the order of multiplication; it holds no terms.

    ``stream``: how many layers write the stream, which both sides of a target share. ``rows`` (those of a batch
    together) and ``width`` of the readout, times ``scale``. ``work``: the most multiplications of a layer or readout.
    """

    places: npt.NDArray[np.intp] | None  # None: in their order
    paths: int
    steps: tuple[Step, ...]
    stream: int
    rows: int
    width: int
    work: int
    scale: Array | None = None
    pairs: npt.NDArray[np.intp] | None = None  # for key paths, see :meth:`pairs_of`

    def pairs_of(self, queries: Plan) -> npt.NDArray[np.intp] | None:
        """The positions of pairs of query paths with these key paths, as computed: each query path with all keys."""
        if self.places is None and queries.places is None:
            return None
        first, second = (np.arange(plan.paths) if plan.places is None else plan.places for plan in (queries, self))
        return np.asarray(np.add.outer(first * self.paths, second).ravel())

    @property
    def nbytes(self) -> int:
        """Its memory besides the weights, including the results of the layers of the stream."""
        held = [a for step in self.steps for a in (*(step.heads or ()), step.sources) if a is not None]
        stream = max(a.shape[-1] * a.itemsize for step in self.steps if (a := step.sources) is not None)
        return int(sum(a.nbytes for a in held) + self.paths * self.rows * stream)

    def made(self, streams: dict[int, Array]) -> Array | None:
        """The value of every path, ``[paths, batch, n, width]``, as computed; None if that is too much work.

        The path with number i is at ``places[i]``.
        """
        if self.work > _MOST:
            return None
        x = streams.get(self.stream)
        for step in self.steps[0 if x is None else self.stream :]:
            parts = []
            if x is not None:
                parts = [x] if step.skip else []
                parts += [_read(one, x) for one in step.reads]
                if step.heads is not None:
                    parts.append(_through(step.heads, x))
            if step.sources is not None:
                parts.append(step.sources)
            x = np.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
            if step is self.steps[self.stream - 1]:
                x.flags.writeable = False  # it is reused
                streams[self.stream] = x
        if x is None:
            return None
        return (x if self.scale is None else x * self.scale).transpose(2, 0, 1, 3)


def plan_of(fans: SiblingPaths, order: Order) -> Plan | None:
    """The plan for all paths of a side, if no condition applies to any; None if that is too much work."""
    last = fans.matrices.factor(fans.readout[-1]) if fans.readout else None
    width, d = (fans.d_head, 1) if last is None else last.shape[::-1]
    rows = fans.rows_of_batch * fans.n
    work, steps, paths = len(order.places) * rows * d * width, list[Step](), 0
    if work > _MOST:
        return None
    for i, layer in enumerate(fans.paths.program):
        heads = fans.layer(i) if fans.paths.layer_heads[i] and paths else None
        if heads is not None:
            count, d, d_head = heads.reads.shape
            work = max(work, paths * rows * d * count * d_head * (2 + fans.n // d))
            if heads.patterns is None or work > _MOST:
                return None
        reads = tuple(_reading(fans, branch) for branch in layer.branches if branch.head is None) if paths else ()
        sources = [fans.flat(np.asarray(fans.matrices.source(s))) for s in layer.sources]
        steps.append(Step(layer.skip, reads, heads, np.stack(sources, axis=2) if sources else None))
        through = len(fans.paths.layer_heads[i]) + len(reads) + layer.skip
        paths = paths * through + len(sources)
    stream = 1 + max((i for i, heads in enumerate(fans.paths.layer_heads) if heads), default=-1)
    width = width if last is not None else next(s.sources.shape[-1] for s in steps if s.sources is not None)
    places = None if np.array_equal(order.places, np.arange(len(order.places))) else order.places
    return Plan(places, paths, tuple(steps), stream=stream, rows=rows, width=width, work=work)


def _reading(fans: SiblingPaths, branch: Branch) -> Reading:
    matrices = fans.matrices
    return Reading(
        tuple(map(matrices.factor, branch.right)),
        tuple(np.asarray(matrices.factor(f).entries[..., None, None]) for f in branch.left),
        tuple(np.asarray(matrices.scaled([name], np.ones((), fans.dtype))) for name in branch.scales),
    )


def all_paths(fans: SiblingPaths, order: Order, streams: dict[int, Array] | None = None) -> Array | None:
    """The value of every path, ``[paths, batch, n, width]``, in their order; None if that is too much work.

    No condition applies to these paths. ``streams``: the results of the stream's layers for another side of a target.
    """
    plan = plan_of(fans, order)
    found = None if plan is None else plan.made({} if streams is None else streams)
    return found if found is None else found[order.places]


def _through(layer: LayerArrays, x: Array) -> Array:
    """The output of the heads of a layer for all paths before it."""
    batch, n, paths, d = x.shape
    heads, _, d_head = layer.reads.shape
    inside = x.reshape(batch, 1, n * paths, d) @ layer.reads
    mixed = layer.patterns @ inside.reshape(batch, heads, n, paths * d_head)
    written = mixed.reshape(batch, heads, n * paths, d_head) @ layer.writes
    return np.asarray(written.reshape(batch, heads, n, paths, d).swapaxes(1, 2).reshape(batch, n, heads * paths, d))


def _read(read: Reading, x: Array) -> Array:
    """The readout of all paths."""
    for factor in read.right:
        if isinstance(factor, np.ndarray):
            x = (x.reshape(-1, len(factor)) @ factor).reshape(*x.shape[:-1], factor.shape[-1])
        else:
            x = x @ factor
    for scale in (*read.rows, *read.scalars):
        x = x * scale
    return x
