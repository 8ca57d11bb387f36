"""What every path adds to one logit, one difference of logits or one score: two vectors a suffix, one dot a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.arrays.structured import Diagonal
from symcircuits.core.expansion import Expansion
from symcircuits.core.paths import Path, path_branches
from symcircuits.core.programs import Source
from symcircuits.core.text import place
from symcircuits.values.blocks import Numbers, in_blocks
from symcircuits.values.evaluate import Values
from symcircuits.values.finite import quiet
from symcircuits.values.measure import Measure
from symcircuits.values.norms import Held, side_blocks
from symcircuits.values.siblings import SiblingPaths, Siblings, Span

__all__ = ["contributions", "entries"]

_MOST_WHOLE = 1 << 12  # paths of an order that read their sources themselves
_MOST = 1 << 14  # paths that are met with a beginning at a time
_ENDING_BYTES = 2**26  # of endings of paths that are kept


def contributions(values: Values, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """What each term of a range adds to a logit, or to a difference of two, ``[terms, ...]`` in the run's type.

    From the readout back each ending ``h_j .. h_k`` of a path is two vectors, ``alpha_(j-1) = alpha_j A_j`` (with the
    norm's scale) and ``omega_(j-1) = W_V^T W_O^T omega_j``, begun with ``e_i`` and ``w_token - w_against``; with the
    beginning's ``Z [n_context, d_head]`` the term is ``alpha Z (W_O^T omega)``. Endings are shared by all beginnings.
    Source: own derivation.
    """
    assert by.position is not None
    span = Span(terms.start)
    n = np.shape(values.run.tokens)[-1]
    fans = SiblingPaths(values.expansion.sides[0], values.matrices, values._batch, n, span)
    entry = _Entry(fans, by.position, by.chosen)
    pieces = quiet(_paths(entry, values.expansion))
    return in_blocks(values.expansion, values.run, "the contribution", pieces, size, terms, span)


def _chosen(expansion: Expansion, token: int, against: int | None, width: int) -> list[int]:
    """The token (or direction of a readout), and the one against it, if there is one."""
    what = "direction" if expansion.target.startswith("readout:") else "token"
    first = place(what, token, width, negative=False)
    return [first] if against is None else [first, place(f"the {what} against", against, width, negative=False)]


class Endings(NamedTuple):
    """All chains of so many heads from a layer on, in order, as they act: on positions and on the stream."""

    alpha: Array  # [batch, endings, n]
    omega: Array  # [endings, d_model]


class _Entry:
    """One entry of the readout of a program, and the endings of paths that lead to it."""

    def __init__(self, fans: SiblingPaths, position: int, chosen: list[int]) -> None:
        self.fans, self.position, self.chosen = fans, position, chosen
        self._endings: dict[tuple[int, int], Endings] = {}
        self._written: dict[tuple[int, ...], Array] = {}
        self._bytes = self._written_bytes = 0

    def direct(self, source: Source) -> Array:
        """The entry of a source through no head, ``[batch]``: of one row and one column, nothing else is made."""
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
        key = layer, left
        if key not in self._endings:
            found = self._made(layer, left) if left else self._none()
            if self._bytes > _ENDING_BYTES:
                self._endings.clear()
                self._bytes = 0
            self._bytes += found.alpha.nbytes + found.omega.nbytes
            self._endings[key] = found
        return self._endings[key]

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
        """The entry of all paths of an order, ``[paths, batch]``: each an ending that reads a source itself.

        None where they are too many for that: a beginning in head space is made once for all endings. None too where
        heads have sources of their own, or some paths are left out.
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
        # The axis of d_head first: then it is summed by adding long rows.
        z = fan.z.transpose(0, 4, 1, 3, 2).reshape(batch, d * heads * sources, n)
        found = (z @ after.alpha.swapaxes(-1, -2)).reshape(batch, d, heads, sources, count)
        found *= self._read(fan, after).reshape(d, heads, 1, count)
        total = np.asarray(found.sum(1))  # [batch, heads, sources, endings]
        return total.transpose(1, 3, 2, 0).reshape(-1, batch)

    def _read(self, fan: Siblings, after: Endings) -> Array:
        """What endings read of the values of a fan's heads, ``W_O^T omega``: the same for all beginnings."""
        key = (fan.layer, fan.left, *fan.heads)
        if key not in self._written:
            writes = self.fans.layer(fan.layer).writes
            writes = writes if len(fan.heads) == len(writes) else writes[fan.heads]
            found = np.asarray(writes.swapaxes(0, 1).reshape(-1, writes.shape[-1]) @ after.omega.T)
            if self._written_bytes > _ENDING_BYTES:
                self._written.clear()
                self._written_bytes = 0
            self._written_bytes += found.nbytes
            self._written[key] = found
        return self._written[key]


def _paths(entry: _Entry, expansion: Expansion) -> Iterator[Array]:
    fans, weights = entry.fans, expansion._weights
    for order in fans.orders(weights):
        if order == 0:
            kept, _ = fans.kept_direct(weights)
            sources = fans.paths.direct
            for k in range(len(sources)) if kept is None else kept:
                yield entry.direct(sources[k])[None]
            continue
        whole = entry.whole(order)
        if whole is not None:
            yield whole
            continue
        for fan in fans.fans(order, weights, max(1, _MOST // fans.rows_of_batch)):
            found = entry.met(fan)
            if not fans.plain:
                kept, _ = fans.kept(fan, weights)
                found = found if kept is None else found[kept]
            yield found


# ------------------------------------------------------------------------------------------- score entries
def entries(values: Values, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """One entry of each score term of a range, ``s <q_p, k_r>``, ``[terms, ...]`` in the run's type; before the mask.

    One product ``[queries, d_head] [d_head, keys]`` for many query paths. Source: own derivation.
    """
    assert by.position is not None
    assert by.key is not None
    span = Span(terms.start)
    pieces = quiet(_entries(values, by.position, by.key, span, terms))
    return in_blocks(values.expansion, values.run, "the score", pieces, size, terms, span)


def _entries(values: Values, position: int, key: int, span: Span, terms: range) -> Iterator[Array]:
    def taken(block: Array) -> tuple[Any, None]:
        return np.ascontiguousarray(block[:, :, key].transpose(1, 2, 0)), None  # [batch, d_head, keys]

    keys = Held(values, taken, terms=terms)
    for mark, queries in side_blocks(values, 0, values.expansion._weights, span):
        wanted = values.expansion._key_weights(mark)
        most, at = keys.most(wanted), 0
        while at < len(queries):
            within = span if span.inside else None
            many = 1 if within else most
            query, at = queries[at : at + many, :, position].swapaxes(0, 1), at + many
            parts = ((query @ k).transpose(1, 2, 0) for k, _ in keys.of(wanted, within))
            if many == 1:  # keys may be many: not put together
                yield from (part[0] for part in parts)
                continue
            found = np.concatenate(list(parts), axis=1)
            yield found.reshape(-1, found.shape[-1])
