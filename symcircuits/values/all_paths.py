"""All paths of a small program at once, layer by layer: there a path takes less time than the calls that lead to it.

The paths before a layer are one array ``[batch, n, paths, d_model]``; all heads of the layer read all of them by one
product, and what they write are further paths. In the end they are put into the order of the expansion, which is kept
by architecture. Source: own construction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.paths import Path, Paths
from symcircuits.core.programs import Branch
from symcircuits.core.walk import Mark
from symcircuits.values.siblings import SiblingPaths

__all__ = ["Order", "all_paths", "order_of"]

_MOST_PATHS = 1 << 10  # of a side
_MOST = 1 << 22  # multiplications of all paths in a layer or readout


class Order(NamedTuple):
    """Where the paths of a program, as they are made, stand in its order, and their marks in that order."""

    places: npt.NDArray[np.intp]
    marks: list[Mark]


_ORDERS: WeakKeyDictionary[Paths, Order | None] = WeakKeyDictionary()


def order_of(expansion: Expansion, side: int) -> Order | None:
    """The order of the paths of one side, where no condition looks at them and they are few; else None.

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
    """Made once for an architecture."""
    paths = expand(architecture, target).sides[side]
    made = {(id(path.source), path.heads): i for i, path in enumerate(_made(paths))}
    wanted = [*paths.iterate(dict.fromkeys(paths.counts, 1))]
    places = [made[id(path.source), path.heads] for path in wanted]
    return Order(np.array(places, np.intp), [paths.mark(path) for path in wanted])


def _made(paths: Paths) -> list[Path]:
    """The paths in the order in which :func:`all_paths` makes them."""
    found: list[Path] = []
    for layer, passable in zip(paths.program, paths.passable, strict=True):
        through = [Path(p.source, (*p.heads, b.head)) for b in layer.branches if b.head is not None for p in found]
        new = [Path(s, () if s.head is None else (s.head,)) for s in layer.sources]
        found = [*(found if passable else []), *through, *new]
    return found


def all_paths(fans: SiblingPaths, order: Order, streams: dict[int, Array] | None = None) -> Array | None:
    """What every path gives, ``[paths, batch, n, width]``, in their order; None where that is more than a little work.

    No condition looks at these paths. ``streams``: what the layers of the stream gave for another side of a target.
    """
    last = fans.matrices.factor(fans.readout[-1]) if fans.readout else None
    width, d = (fans.d_head, 1) if last is None else last.shape[::-1]
    if len(order.places) * fans.rows_of_batch * fans.n * d * width > _MOST:
        return None
    length = 1 + max((i for i, heads in enumerate(fans.paths.layer_heads) if heads), default=-1)
    streams = {} if streams is None else streams
    x = streams.get(length)
    for i, layer in enumerate(fans.paths.program):
        if x is not None and i < length and length in streams:
            continue
        parts = [x] if x is not None and layer.skip else []
        if x is not None:
            parts += [_read(fans, branch, x) for branch in layer.branches if branch.head is None]
            if fans.paths.layer_heads[i]:
                if (through := _through(fans, i, x)) is None:
                    return None
                parts.append(through)
        parts += [fans.flat(np.asarray(fans.matrices.source(s)))[:, :, None] for s in layer.sources]
        x = np.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
        if i == length - 1:
            streams[length] = x
    return None if x is None else x.transpose(2, 0, 1, 3)[order.places]


def _through(fans: SiblingPaths, i: int, x: Array) -> Array | None:
    """What the heads of a layer write, of each all paths before."""
    batch, n, paths, d = x.shape
    patterns, reads, writes = fans.layer(i)
    heads, _, d_head = reads.shape
    if patterns is None or x.size * heads * d_head * (2 + n // d) > _MOST:
        return None
    inside = x.reshape(batch, 1, n * paths, d) @ reads
    mixed = patterns @ inside.reshape(batch, heads, n, paths * d_head)
    written = mixed.reshape(batch, heads, n * paths, d_head) @ writes
    return np.asarray(written.reshape(batch, heads, n, paths, d).swapaxes(1, 2).reshape(batch, n, heads * paths, d))


def _read(fans: SiblingPaths, branch: Branch, x: Array) -> Array:
    """What a readout makes of all paths."""
    for f in branch.right:
        factor = fans.matrices.factor(f)
        if isinstance(factor, np.ndarray):
            x = (x.reshape(-1, len(factor)) @ factor).reshape(*x.shape[:-1], factor.shape[-1])
        else:
            x = x @ factor
    for f in branch.left:
        x = x * fans.matrices.factor(f).entries[..., None, None]
    return np.asarray(fans.matrices.scaled(branch.scales, x))
