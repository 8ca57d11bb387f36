"""What every path of a run adds to one output, or to a difference of two: two vectors per ending, one dot per path.

From the readout back each ending ``h_j .. h_k`` of a path is two vectors, ``alpha_(j-1) = alpha_j A_j`` (with the
norm's scale) and ``omega_(j-1) = W_V^T W_O^T omega_j``, begun with ``e_i`` and ``w_token - w_against``; with the
beginning's ``Z [n_context, d_head]`` the term is ``alpha Z (W_O^T omega)``. Endings are shared by all beginnings.
Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.arrays.structured import Diagonal
from symcircuits.core.paths import Path, path_branches
from symcircuits.core.programs import Source
from symcircuits.core.walk import Mark
from symcircuits.values.engine import Ranges, Span
from symcircuits.values.siblings import SiblingPaths, Siblings

__all__ = ["read_at"]

T = TypeVar("T")

_MOST_WHOLE = 1 << 12  # paths of an order that read their sources directly
_MOST = 1 << 14  # paths combined with a beginning at a time
_ENDING_BYTES = 2**26  # of cached endings of paths


def read_at(fans: SiblingPaths, weights: Mapping[Mark, int], position: int, chosen: list[int]) -> Ranges:
    """The entry of each path with weight at a position, for an output or the difference of two, ``[paths, batch]``."""
    entry = _Entry(fans, position, chosen)
    return lambda terms, span: entry.at(span).paths(weights)


class Endings(NamedTuple):
    """All chains of some number of heads from a layer on, in order, as they act on positions and on the stream."""

    alpha: Array  # [batch, endings, n]
    omega: Array  # [endings, d_model]


class _Kept(Generic[T]):
    """A cache of limited size in bytes: when it is full everything is dropped."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, ...], T] = {}
        self._bytes = 0

    def keep(self, key: tuple[int, ...], made: T, size: int) -> None:
        """Add an entry."""
        if self._bytes > _ENDING_BYTES:
            self.of.clear()
            self._bytes = 0
        self._bytes += size
        self.of[key] = made


class _Entry:
    """One entry of the readout of a program, and the endings of paths that lead to it."""

    def __init__(self, fans: SiblingPaths, position: int, chosen: list[int]) -> None:
        self.fans, self.position, self.chosen = fans, position, chosen
        self._endings: _Kept[Endings] = _Kept()
        self._written: _Kept[Array] = _Kept()

    def at(self, span: Span) -> _Entry:
        """The same from a span on, sharing the cached endings."""
        found = copy(self)
        found.fans = self.fans.at(span)
        return found

    def paths(self, weights: Mapping[Mark, int]) -> Iterator[Array]:
        """The entries of the paths with weight, ``[paths, batch]``, in order."""
        fans = self.fans
        for order in fans.orders(weights):
            if order == 0:
                kept, _ = fans.kept_direct(weights)
                sources = fans.paths.direct
                for k in range(len(sources)) if kept is None else kept:
                    yield self.direct(sources[k])[None]
                continue
            whole = self.whole(order)
            if whole is not None:
                yield whole
                continue
            for fan in fans.fans(order, weights, max(1, _MOST // fans.rows_of_batch)):
                found = self.met(fan)
                if not fans.plain:
                    kept, _ = fans.kept(fan, weights)
                    found = found if kept is None else found[kept]
                yield found

    def direct(self, source: Source) -> Array:
        """The entry of a source through no head, ``[batch]``: only one row and one column are computed."""
        fans, i, scale = self.fans, self.position, np.ones(())
        branches = path_branches(fans.paths.program, Path(source))
        factors = [f for branch in branches for f in branch.right]
        known = fans.matrices.known.get(source.name)
        left = [f for branch in branches for f in branch.left]
        factors = factors if known is not None else [*source.factors, *factors]
        while known is None:
            first = fans.matrices.factor(factors.pop(0))
            if isinstance(first, Diagonal):
                scale = scale * first.entries[..., i]
            else:
                known = first
        for f in left:
            scale = scale * fans.matrices.factor(f).entries[..., i]
        row = np.asarray(known[..., i : i + 1, :])
        if not factors:
            found = self._difference(row)
        else:
            found = fans.matrices.chain(factors[:-1], row) @ self._difference(fans.matrices.factor(factors[-1]))
        found = fans.matrices.scaled([*source.scales, *(s for b in branches for s in b.scales)], found[..., 0] * scale)
        return np.broadcast_to(found, fans.batch).reshape(fans.rows_of_batch)

    def _difference(self, value: Array) -> Array:
        found = value[..., self.chosen[0]]
        return np.asarray(found if len(self.chosen) == 1 else found - value[..., self.chosen[1]])

    def endings(self, layer: int, left: int) -> Endings:
        """The endings through ``left`` heads from a layer of the program on."""
        found = self._endings.of.get((layer, left))
        if found is None:
            found = self._made(layer, left) if left else self._none()
            self._endings.keep((layer, left), found, found.alpha.nbytes + found.omega.nbytes)
        return found

    def _none(self) -> Endings:
        fans = self.fans
        alpha = np.zeros((fans.rows_of_batch, 1, fans.n), fans.dtype)
        alpha[:, 0, self.position] = fans.row_scale[:, self.position]
        *before, last = fans.readout
        omega = self._difference(fans.matrices.factor(last))[:, None]
        for f in reversed(before):
            omega = fans.matrices.factor(f) @ omega
        return Endings(alpha, np.asarray(omega).T)

    def _made(self, layer: int, left: int) -> Endings:
        fans, alphas, omegas = self.fans, list[Array](), list[Array]()
        for i in fans.layers(layer):
            if fans.paths.layer_heads[i] and fans.count(i + 1, left - 1):
                after = self.endings(i + 1, left - 1)
                for head in fans.paths.layer_heads[i]:
                    alpha, omega = fans.behind(head, *after)
                    alphas.append(alpha)
                    omegas.append(omega)
        return Endings(np.concatenate(alphas, axis=1), np.concatenate(omegas))

    def whole(self, order: int) -> Array | None:
        """The entry of all paths of an order, ``[paths, batch]``, each an ending that reads a source directly.

        None if they are too many for that: then a beginning in head space is computed once for all endings. Also None
        if heads have sources of their own, or some paths are left out.
        """
        fans, heads = self.fans, self.fans.paths.layer_heads
        first = [h for i, some in enumerate(heads) if fans.count(i + 1, order - 1) for h in some]
        sources = fans.paths.sources_of((first[0],)) if first else ()
        alike = all(fans.paths.sources_of((h,)) == sources for h in first)
        if not fans.plain or not alike or any(s.head is not None for s in sources):
            return None
        start = next(i for i, some in enumerate(heads) if some)
        if not 0 < fans.count(start, order) <= min(_MOST_WHOLE, fans.d_head * len(first)):
            return None
        fans.span.enter()
        alpha, omega = self.endings(start, order)
        found = [(alpha @ fans.flat(fans.matrices.source(s)) * omega).sum(-1) for s in sources]
        return np.stack(found).transpose(2, 0, 1).reshape(-1, fans.rows_of_batch)

    def met(self, fan: Siblings) -> Array:
        """The entry of all paths of a fan, ``[paths, batch]``, in order."""
        batch, heads, n, sources, d = fan.z.shape
        after = self.endings(fan.layer + 1, fan.left)
        count = len(after.omega)
        # The axis of d_head comes first, so the sum adds long rows.
        z = fan.z.transpose(0, 4, 1, 3, 2).reshape(batch, d * heads * sources, n)
        found = (z @ after.alpha.swapaxes(-1, -2)).reshape(batch, d, heads, sources, count)
        found *= self._read(fan, after).reshape(d, heads, 1, count)
        total = np.asarray(found.sum(1))  # [batch, heads, sources, endings]
        return total.transpose(1, 3, 2, 0).reshape(-1, batch)

    def _read(self, fan: Siblings, after: Endings) -> Array:
        """The endings applied to the values of a fan's heads, ``W_O^T omega``: the same for all beginnings."""
        key = (fan.layer, fan.left, *fan.heads)
        found = self._written.of.get(key)
        if found is None:
            writes = self.fans.layer(fan.layer).writes
            writes = writes if len(fan.heads) == len(writes) else writes[fan.heads]
            found = np.asarray(writes.swapaxes(0, 1).reshape(-1, writes.shape[-1]) @ after.omega.T)
            self._written.keep(key, found, found.nbytes)
        return found
