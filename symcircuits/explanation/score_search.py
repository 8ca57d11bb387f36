"""The largest score terms of several heads: bounds of all of them from one pass over the paths of the stream.

A term ``s Q_p K_r^T`` has, centred, at most the size ``s |Q_p| |K_r - mean|`` (Frobenius norms; the mean over keys is
one vector, which centring does not see, and the mean over the allowed keys is nearest to them). What a path has in its
last head's values is ``Z [n, d_head]``, and ``|Z R|^2 = <Z^T Z, R R^T>`` with ``R = W_O^T W_Q^T``: so the sizes of a
path's queries for all heads are one product of small matrices. Where the other side is a path through no head, or both
through one, the bound is ``s |Q (K - mean)^T|`` itself, ``|Z R L^T|^2 = <Z^T Z, R L^T L R^T>``. Terms are formed in the
order of these bounds until no bound is above the last one that is kept. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import expand
from symcircuits.core.paths import path_branches
from symcircuits.core.programs import made_once
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.siblings import SiblingPaths

__all__ = ["Bounded", "bounded_heads"]

Array = npt.NDArray[Any]
_SLACK: Final = 1e-5  # of rounding in bounds, in float32
_TOGETHER = 16  # fans of a layer that are read together
_MOST_BYTES = 2**29  # of what is kept of heads


@dataclass(slots=True, eq=False)
class Bounded:
    """The score terms of a head up to an order, with bounds of their sizes.

    ``sizes[side][k]``: of the paths of a side with k heads in their order, of keys less their mean; ``whole[k]``: of
    keys as they are; ``rows``: queries and keys that are known.
    """

    values: Values
    orders: int
    sizes: tuple[list[Array], list[Array]]
    whole: list[Array] = field(default_factory=list)
    rows: dict[tuple[int, int], Array] = field(default_factory=dict)  # by side and number of the path
    pairs: dict[tuple[int, int], Array] = field(default_factory=dict)  # by the heads on each side: [queries, keys]

    @property
    def bounds(self) -> tuple[Array, float]:
        """Of every term, in the order of the terms: its centred norm; and the largest norm of any, not centred."""
        found = []
        for k, queries in enumerate(self.sizes[0]):
            keys = enumerate(self.sizes[1][: self.orders - k + 1])
            known = (self.pairs.get((k, j), np.multiply.outer(queries, sizes)) for j, sizes in keys)
            found.append(np.concatenate([*known], axis=1).ravel())
        most = max(float(queries.max(initial=0.0)) for queries in self.sizes[0])
        most *= max(float(keys.max(initial=0.0)) for keys in self.whole)
        return self._scale * np.concatenate(found), self._scale * most

    @property
    def _scale(self) -> float:
        label = self.values.expansion.readout.scale
        return abs(float(self.values.matrices.matrices[f"scale_{label}"])) if label else 1.0

    def formed(self, numbers: Array) -> Array:
        """The values of some terms, by number."""
        keys = [sum(len(s) for s in self.sizes[1][: self.orders - k + 1]) for k in range(self.orders + 1)]
        ends = np.cumsum([len(a) * n for a, n in zip(self.sizes[0], keys, strict=True)])
        orders = np.searchsorted(ends, numbers, side="right")
        starts = np.concatenate([[0], ends])
        before = np.cumsum([0, *(len(a) for a in self.sizes[0])])
        queries, others = [], []
        for number, k in zip(numbers.tolist(), orders.tolist(), strict=True):
            place, key = divmod(number - int(starts[k]), keys[k])
            queries.append(self._path(0, int(before[k]) + place))
            others.append(self._path(1, key))
        found = self.values.met(np.stack(queries), np.stack(others))
        return np.asarray(found).reshape(len(numbers), *self.values.shape)

    def _path(self, side: int, number: int) -> Array:
        """The queries or keys of the path of a side with a number, ``[batch, n, d_head]``."""
        key = side, number
        if key not in self.rows:
            paths, matrices = self.values.expansion.sides[side], self.values.matrices
            path, _ = paths.unrank(number, dict.fromkeys(paths.counts, 1))
            value = matrices.source(path.source)
            for branch in path_branches(paths.program, path):
                value = matrices.branch(branch, value)
            value = self.values.spread(np.asarray(value))
            self.rows[key] = value.reshape(-1, *value.shape[-2:])
        return self.rows[key]


def bounded_heads(run: Run, orders: Mapping[str, int]) -> dict[str, Bounded]:
    """Bounds for the terms of each head with up to so many heads on both sides together, of heads that have any.

    There are none where queries are scaled row by row (norms), where the stream is split into attached sources, where
    too much would be kept and where a size is not finite.
    """
    arch = run.model.architecture
    if arch.split is not None:
        return {}
    with made_once(), np.errstate(over="ignore", invalid="ignore"):
        begun = {label: _begun(evaluate(expand(arch, f"scores:{label}"), run), orders[label]) for label in orders}
        found = {label: one for label, one in begun.items() if one is not None}
        if not found or _bytes(run, found) > _MOST_BYTES:
            return {}
        reads = _Reads(found)
        for one in found.values():
            if arch.positions != "rotary":
                one.pairs[0, 0] = np.stack([[_product(q, k) for k in _direct(one)[1]] for q in _direct(one)[0]])
        for order in range(1, max(one.orders for one in found.values()) + 1):
            reads.first() if order == 1 else reads.add(order)
    return {label: one for label, one in found.items() if _finite(one)}


def _finite(one: Bounded) -> bool:
    return all(np.isfinite(s).all() for sizes in (*one.sizes, one.whole) for s in sizes)


def _bytes(run: Run, heads: Mapping[str, Bounded]) -> int:
    """What is kept: of every head before, what each head reads of it, and queries and keys of the paths through it."""
    arch = run.model.architecture
    deepest = max(arch.head(label).layer for label in heads)
    before = sum(arch.heads[:deepest])
    sources = len(next(iter(heads.values())).values.expansion.sides[0].direct)
    d = next(iter(heads.values())).values.arithmetic.d_head
    rows = run.tokens.size * sources if any(one.orders for one in heads.values()) else 0
    return 2 * len(heads) * before * d * (d + rows) * run.dtype.itemsize


def _begun(values: Values, orders: int) -> Bounded | None:
    """With the paths through no head."""
    sides = [values.fans(side) for side in (0, 1)]
    if any(side.scales_rows or not side.plain for side in sides):
        return None
    rows = [np.stack([side.direct(s) for s in side.paths.direct]) for side in sides]
    found = Bounded(values, orders, ([_norms(rows[0])], [_norms(_moved(values, rows[1]))]), [_norms(rows[1])])
    found.rows.update({(side, i): one for side in (0, 1) for i, one in enumerate(rows[side])})
    return found


def _product(queries: Array, keys: Array) -> float:
    """``|Q K^T|`` of one path each, over all rows of a batch together."""
    return float(np.linalg.norm(np.asarray(queries @ keys.swapaxes(-1, -2), np.float64)))


def _norms(rows: Array) -> Array:
    """Of ``[paths, batch, n, d]``, in float64."""
    wide = rows.reshape(len(rows), -1).astype(np.float64)
    return np.asarray(np.sqrt(np.einsum("pi,pi->p", wide, wide)))


def _moved(values: Values, rows: Array) -> Array:
    """Keys less their mean over positions, batch row by batch row; as they are where rotary positions turn each."""
    turned = values.expansion.architecture.positions == "rotary"
    return rows if turned else np.asarray(rows - rows.mean(axis=-2, keepdims=True))


class _Reads:
    """Sizes of queries and keys of all heads, by one pass over the paths of the deepest for each order."""

    def __init__(self, heads: Mapping[str, Bounded]) -> None:
        there = [item for item in heads.items() if item[1].orders]
        self.heads = dict(sorted(there, key=lambda item: -_layer(item[1])))  # the deepest first
        self._fans: dict[str, SiblingPaths] = {}
        self._of: dict[int, tuple[_Readers, _Readers]] = {}  # by layer of the program: of Grams, of centred ones
        sides = [[one.values.fans(side) for side in (0, 1)] for one in self.heads.values()]
        self._chains = [np.asarray(side.matrices.chain(side.readout)) for two in sides for side in two]

    def first(self) -> None:
        """The paths through one head: what a head reads of them is kept, and its sizes are those of what is kept."""
        deepest = next(iter(self.heads))
        fans = self._fans.setdefault(deepest, self.heads[deepest].values.fans(0))
        for fan in fans.fans(1, {Mark(1, 0): 1}):
            z = fan.z.transpose(1, 3, 0, 2, 4)  # [heads, sources, batch, n, d_head]
            for label, links in self._links(fans, fan.layer, 1).items():
                _keep(self.heads[label], [link[fan.heads] for link in links], z)
        for one in self.heads.values():
            _first_sizes(one)

    def add(self, order: int) -> None:
        """The paths through so many heads, two or more."""
        there = {label: one for label, one in self.heads.items() if one.orders >= order}
        deepest = next(iter(there))
        fans = self._fans.setdefault(deepest, there[deepest].values.fans(0))
        slots: list[_Slot] = []
        waiting: dict[int, list[_Slot]] = {}
        for fan in fans.fans(order, {Mark(order, 0): 1}):
            number = fans.paths.layer_heads[fan.layer][0].layer
            if fan.layer not in self._of:
                self._of[fan.layer] = self._readers(fans, fan.layer)
            slots.append(_Slot(number, *_grams(fan.z.transpose(1, 3, 0, 2, 4))))
            alike = waiting.setdefault(fan.layer, [])
            alike.append(slots[-1])
            whole = len(fan.heads) == len(fans.paths.layer_heads[fan.layer])
            if not whole or len(alike) == _TOGETHER:
                self._read(waiting.pop(fan.layer)[: len(alike) - (not whole)], fan.layer, None)
                self._read(alike[-1:] if not whole else [], fan.layer, fan.heads)
        for layer, alike in waiting.items():
            self._read(alike, layer, None)
        self._deal(there, slots)

    def _links(self, fans: SiblingPaths, layer: int, orders: int) -> dict[str, tuple[Array, Array]]:
        """``W_O^T`` times what queries and keys of a head read of the stream: ``[heads of the layer, d_head, d_head]``.

        d_head of the heads of that layer, and of this head; by label, of heads after it with as many orders or more.
        """
        number, writes = fans.paths.layer_heads[layer][0].layer, fans.layer(layer).writes
        places = [i for i, one in enumerate(self.heads.values()) if _layer(one) > number and one.orders >= orders]
        if not places:
            return {}
        chains = [self._chains[i] for place in places for i in (2 * place, 2 * place + 1)]
        cuts = np.cumsum([chain.shape[1] for chain in chains])[:-1]
        read = writes.reshape(-1, writes.shape[-1]) @ np.concatenate(chains, axis=1)  # one product, and not one a head
        found = np.split(read.reshape(*writes.shape[:2], -1), cuts, axis=-1)
        labels = [*self.heads]
        return {labels[place]: (found[2 * i], found[2 * i + 1]) for i, place in enumerate(places)}

    def _readers(self, fans: SiblingPaths, layer: int) -> tuple[_Readers, _Readers]:
        """What is met with Gram matrices, and with those of centred values: of heads with paths through two or more."""
        links, writes = self._links(fans, layer, 2), fans.layer(layer).writes
        plain: list[Array] = []
        centred: list[Array] = []
        nothing = np.zeros((*writes.shape[:2], 1), writes.dtype)
        for label, one in self._further().items():
            query, key = links.get(label, (nothing, nothing))
            others = _others(one) if label in links else [[nothing[0, :1]] * len(rows) for rows in _direct(one)]
            plain += [_squared(query), _squared(key), *(_squared(query @ row.T) for row in others[1])]
            centred += [_squared(key), *(_squared(key @ row.T) for row in others[0])]
        return _Readers.of(np.stack(plain, axis=1)), _Readers.of(np.stack(centred, axis=1))

    def _further(self) -> dict[str, Bounded]:
        """The heads of which paths through two or more are looked at."""
        return {label: one for label, one in self.heads.items() if one.orders > 1}

    def _read(self, slots: Sequence[_Slot], layer: int, places: list[int] | None) -> None:
        """The sizes of the paths of some fans of a layer, which takes the place of their Gram matrices."""
        if not slots:
            return
        cuts = np.cumsum([slot.plain.shape[1] for slot in slots])[:-1]
        for name, readers in zip(("plain", "centred"), self._of[layer], strict=True):
            gram = np.concatenate([getattr(slot, name) for slot in slots], axis=1)
            found = _lengths(gram, readers if places is None else readers.some(places))
            for slot, part in zip(slots, np.split(found, cuts, axis=1), strict=True):
                setattr(slot, name, part.reshape(-1, part.shape[-1]))

    def _deal(self, there: Mapping[str, Bounded], slots: Sequence[_Slot]) -> None:
        """To each head what it reads of the paths before it."""
        at, kept = [0, 0], dict[int, tuple[Array, Array]]()
        for label, one in self._further().items():
            layer, (queries, keys) = _layer(one), map(len, _direct(one))
            if label in there:
                if layer not in kept:
                    some = [slot for slot in slots if slot.layer < layer]
                    none = np.zeros((0, 2**16))
                    kept[layer] = (
                        np.concatenate([slot.plain for slot in some]) if some else none,
                        np.concatenate([slot.centred for slot in some]) if some else none,
                    )
                plain, less = (
                    kept[layer][0][:, at[0] : at[0] + 2 + keys],
                    kept[layer][1][:, at[1] : at[1] + 1 + queries],
                )
                order = len(one.whole)
                one.sizes[0].append(plain[:, 0])
                one.whole.append(plain[:, 1])
                rotary = one.values.expansion.architecture.positions == "rotary"
                one.sizes[1].append(plain[:, 1] if rotary else less[:, 0])
                if not rotary:
                    one.pairs[order, 0], one.pairs[0, order] = plain[:, 2:], less[:, 1:].T
            at = [at[0] + 2 + keys, at[1] + 1 + queries]


@dataclass(slots=True, eq=False)
class _Slot:
    """Of a fan: the layer of its heads, and ``[heads, sources, d_head^2]``, later ``[paths, readers]``."""

    layer: int
    plain: Array
    centred: Array


def _layer(one: Bounded) -> int:
    head = one.values.expansion.readout.head
    assert head is not None
    return head.layer


def _direct(one: Bounded) -> list[list[Array]]:
    """Queries and keys of the paths through no head, of each path ``[batch, n, d_head]``; keys less their mean."""
    counts = [len(side.direct) for side in one.values.expansion.sides]
    queries, keys = ([one.rows[side, i] for i in range(counts[side])] for side in (0, 1))
    return [queries, [_moved(one.values, key) for key in keys]]


def _others(one: Bounded) -> list[list[Array]]:
    """The same as triangles, ``L^T L`` the same: ``[d_head, d_head]``, or fewer rows."""
    flat = [[row.reshape(-1, row.shape[-1]) for row in rows] for rows in _direct(one)]
    return [[np.asarray(np.linalg.qr(x, mode="r") if len(x) > x.shape[1] else x) for x in rows] for rows in flat]


def _keep(one: Bounded, links: Sequence[Array], z: Array) -> None:
    """Queries and keys of paths through one head."""
    for side, link in enumerate(links):
        rows = z.reshape(*z.shape[:2], -1, z.shape[-1]) @ link[:, None]
        rows = rows.reshape(-1, *z.shape[2:4], rows.shape[-1])
        at = sum(s == side for s, _ in one.rows)
        one.rows.update({(side, at + i): row for i, row in enumerate(rows)})


def _first_sizes(one: Bounded) -> None:
    """Sizes of the paths through one head, and of products with these, from the queries and keys that are kept."""
    direct = _direct(one)
    queries, keys = (
        np.stack([row for (s, i), row in one.rows.items() if s == side and i >= len(rows)] or [rows[0][:0]])
        for side, rows in enumerate(direct)
    )
    if not queries.size:
        queries, keys = queries[:0], keys[:0]
    less = _moved(one.values, keys) if keys.size else keys
    one.sizes[0].append(_norms(queries))
    one.whole.append(_norms(keys))
    one.sizes[1].append(_norms(less))
    if one.values.expansion.architecture.positions != "rotary":
        one.pairs[1, 0] = _met(queries, _others(one)[1])
        one.pairs[0, 1] = _met(less, _others(one)[0]).T
        if one.orders > 1:
            one.pairs[1, 1] = _of_rows(queries, less)


def _met(rows: Array, others: Sequence[Array]) -> Array:
    """``|Q K^T|`` of paths ``[paths, batch, n, d]`` and others, ``[paths, others]``, with what rounding may take."""
    sizes, d = _norms(rows), rows.shape[-1]
    found = np.zeros((len(rows), len(others)))
    for i, other in enumerate(others):
        slack = d * float(np.finfo(rows.dtype).eps) * _norms(other[None])[0]
        found[:, i] = _norms(rows @ other.T) + slack * sizes
    return found


def _of_rows(queries: Array, keys: Array) -> Array:
    """``|Q K^T|`` of the paths through one head, ``[queries, keys]``; of keys less their mean."""
    flat = [rows.reshape(len(rows), -1, rows.shape[-1]) for rows in (queries, keys)]
    grams = [(rows.swapaxes(-1, -2) @ rows).reshape(1, len(rows), -1) for rows in flat]
    found: Array = _lengths(grams[0], _Readers.of(grams[1]))[0]
    return found


def _grams(z: Array) -> tuple[Array, Array]:
    """``Z^T Z`` of ``[heads, sources, batch, n, d_head]``, and of Z less its mean: ``[heads, sources, d_head^2]``."""
    held, sources, batch, n, d = z.shape
    flat, less = (x.reshape(held, sources, batch * n, d) for x in (z, z - z.mean(axis=-2, keepdims=True)))
    found, centred = ((x.swapaxes(-1, -2) @ x).reshape(held, sources, d * d) for x in (flat, less))
    return found, centred


def _squared(links: Array) -> Array:
    """``R R^T``, ``[heads, d_head^2]``."""
    return np.asarray(links @ links.swapaxes(-1, -2)).reshape(len(links), -1)


class _Readers(NamedTuple):
    """Matrices ``R R^T``, ``[heads, readers, d_head^2]``, and their sizes."""

    squared: Array
    sizes: Array

    @staticmethod
    def of(squared: Array) -> _Readers:
        """With their sizes."""
        return _Readers(squared, np.sqrt(np.einsum("hri,hri->hr", squared, squared)))

    def some(self, heads: list[int]) -> _Readers:
        """Of some heads."""
        return _Readers(self.squared[heads], self.sizes[heads])


def _lengths(gram: Array, readers: _Readers) -> Array:
    """``<Z^T Z, R R^T>^(1/2)``, ``[heads, paths, readers]``, with what rounding may have taken from it."""
    found = gram @ readers.squared.swapaxes(-1, -2)
    room = np.sqrt(np.einsum("hpi,hpi->hp", gram, gram))[..., None] * readers.sizes[:, None, :]
    return np.asarray(np.sqrt(np.maximum(found, 0.0) + _SLACK * room), np.float64)
