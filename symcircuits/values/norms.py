"""The Frobenius norms of all terms, none of which is formed: neither the vocabulary nor two positions at a time."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Head
from symcircuits.core.walk import Mark, Matrices
from symcircuits.values.blocks import Numbers, in_blocks
from symcircuits.values.evaluate import Values
from symcircuits.values.finite import quiet
from symcircuits.values.measure import Measure
from symcircuits.values.sibling_reads import blocks
from symcircuits.values.siblings import SiblingPaths, Span
from symcircuits.values.unembedding import Compact, compact

__all__ = ["Held", "norms", "side_blocks"]

_KEY_BYTES = 2**26  # what is made of key paths is held up to this size, else made again for each query path
_FEW_ROWS = 25  # rows of paths through a head, in widths of it, for which its triangle costs more than it saves
_KEYS = 256  # key paths of which something is made at a time
_MADE_BYTES = 2**24  # of what is made of them for masked norms
_BLOCK_BYTES = 2**22  # of the products of a block of queries with all keys


def norms(values: Values, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """The Frobenius norm of each term of a range, in the order of the expansion, ``[terms, ...]`` in float64.

    Of logits and of the stream ``|Z R|`` with ``Z [n_context, d_head]`` what a path has in its last head's values and
    ``R = W_O^T W_U^T = (Q L)^T``: ``|Z R| = |Z L^T|``, so the vocabulary does not enter. Of scores by Gram matrices,
    ``|Q K^T|^2 = <Q^T Q, K^T K>``, for all pairs of a block of query paths one product; a masked norm counts only the
    entries that the mask leaves, ``sum_i q_i (sum_j M_ij k_j^T k_j) q_i^T``. A norm is off by some ``sqrt(u)`` of
    ``|Q| |K|`` at most where a term nearly cancels. What lies before the range is passed over, not computed (of scores
    the last digits may differ by what is multiplied together). Source: own derivation.
    """
    span = Span(terms.start)
    masked = by.kind == "masked norm"
    pieces = _of_pairs(values, masked, span, terms) if values.expansion.readout.bilinear else _of_one_side(values, span)
    return in_blocks(values.expansion, values.run, "the norm", quiet(pieces), size, terms, span, np.float64)


# ------------------------------------------------------------------------------------------ logits, stream
def _of_one_side(values: Values, span: Span) -> Iterator[Array]:
    run, matrices = values.run, values.matrices
    if values.expansion.target == "logits":
        small = compact(values, [])
        if small is not None:
            matrices = _instead(matrices, small)
    fans = SiblingPaths(values.expansion.sides[0], matrices, values._batch, np.shape(run.tokens)[-1], span)
    corners: dict[Head, Array] = {}

    def corner(head: Head) -> Array:
        if head not in corners:
            cols = fans.cols(head)
            d, beside = len(cols), fans.paths.layer_heads[fans.paths._layer_of[head]]  # they are stacked: read alike
            if cols.shape[1] > d and fans.n * max(map(fans.paths_before, beside)) > _FEW_ROWS * d:
                known = bool(np.isfinite(cols).all())  # what is not a number has no triangle, and is refused below
                cols = np.asarray(np.linalg.qr(cols.T, mode="r")).T if known else np.full((d, d), np.nan, cols.dtype)
            corners[head] = cols
        return corners[head]

    for _, block in blocks(fans, values.expansion._weights, corner):
        yield _lengths(block)


def _instead(matrices: Matrices, small: Compact) -> Matrices:
    found: Any = ChainMap(dict(small.matrices), matrices.matrices)  # type: ignore[arg-type]
    return Matrices(found, matrices.ring, matrices.known)


def _lengths(block: Array) -> Array:
    """The Frobenius norms of ``[paths, batch, n, width]`` in float64, whatever the size of the numbers."""
    flat = block.reshape(*block.shape[:2], -1)
    wide = flat.astype(np.float64, copy=False)
    squared = np.einsum("pbi,pbi->pb", wide, wide)
    if bool(np.all((squared > 1e-200) & (squared < 1e200))):
        return np.asarray(np.sqrt(squared))
    most = np.abs(wide).max(-1, initial=0.0, keepdims=True)
    scaled = wide / np.where(most > 0, most, 1.0)
    return np.asarray(np.sqrt((scaled**2).sum(-1)) * most[..., 0])


# ------------------------------------------------------------------------------------------------- scores
def side_blocks(values: Values, side: int, weights: Any, span: Span | None = None) -> Iterator[tuple[Mark, Array]]:
    """Queries (side 0, scaled) or keys (1) of paths of one mark, turned, ``[paths, batch, n_context, d_head]``.

    Those before ``span`` are left out; what is ``inside`` of it then lies within the first that is given.
    """
    paths, span = values.expansion.sides[side], span or Span()
    fans = SiblingPaths(paths, values.matrices, values._batch, np.shape(values.run.tokens)[-1], span)
    begun = False  # from the first block on nothing is passed over: what is inside of the span is in that one
    for mark, block in blocks(fans, weights):
        if not begun:
            passed = min(len(block), span.inside // weights[mark])
            span.inside -= passed * weights[mark]
            if passed == len(block):
                continue
            begun, block = True, block[passed:]
        turned = values._turned(block)
        yield mark, turned if side else turned * values.scale


def _of_pairs(values: Values, masked: bool, span: Span, terms: range) -> Iterator[Array]:
    expansion, run = values.expansion, values.run
    head = expansion.readout.head
    assert head is not None
    mask = np.asarray(run.masks[f"L{head.layer}"], np.float64) if masked else None
    if mask is not None and (mask != 0).all():
        mask = None
    n = np.shape(run.tokens)[-1]
    d = run.arrays[f"W_Q_{head}"].shape[0]
    make: Any = _Grams()
    size = _KEYS
    if mask is not None:
        numbers = _MADE_BYTES // (8 * max(1, int(np.prod(values._batch))))
        if 2 * n > d + 1:  # n d (d + 1) multiplications a pair, not 2 n^2 d
            make, size = _MaskedGrams(mask), min(_KEYS, max(1, 2 * numbers // (n * d * (d + 1))))
        else:
            make, size = _Direct(mask), max(1, int(np.sqrt(numbers)) // n)
    keys = Held(values, make.key, size, terms)
    for mark, run_of in groupby(side_blocks(values, 0, expansion._weights, span), key=lambda found: found[0]):
        wanted = expansion._key_weights(mark)
        most = keys.most(wanted) if mask is None else min(size, keys.most(wanted))
        for queries in gathered((block for _, block in run_of), most):
            if span.inside:
                yield from _products(make, queries[:1], keys.of(wanted, span))
                queries = queries[1:]
            if len(queries):
                yield from _products(make, queries, keys.of(wanted))


def gathered(blocks: Iterator[Array], most: int) -> Iterator[Array]:
    """Blocks put together, or cut, to at most that many paths."""
    held: list[Array] = []
    count = 0
    for block in blocks:
        for at in range(0, len(block), most):
            part = block[at : at + most]
            if count + len(part) > most:
                yield np.concatenate(held)
                held, count = [], 0
            held.append(part)
            count += len(part)
    if held:
        yield np.concatenate(held)


def _products(make: Any, queries: Array, parts: Iterator[tuple[Array, Any]]) -> Iterator[Array]:
    """The norms of query paths times all key paths that go with them."""
    query, lengths = make.query(queries)
    if len(query) == 1:  # keys may be many: not put together
        for key, key_lengths in parts:
            yield make.norms(query, key)[0] * lengths * key_lengths
        return
    found = [make.norms(query, key) * lengths[:, None] * key_lengths for key, key_lengths in parts]
    whole = np.concatenate(found, axis=1) if len(found) > 1 else found[0]
    yield whole.reshape(-1, whole.shape[-1])


class Held:
    """What is made of the key paths, kept where it is small."""

    def __init__(self, values: Values, make: Any, size: int = _KEYS, terms: range | None = None) -> None:
        self.values, self.make, self.size = values, make, size
        self.terms = values.expansion.count if terms is None else terms.stop - terms.start
        self._held: dict[frozenset[Mark], list[tuple[Array, Any]]] = {}
        self._bytes = 0

    def most(self, wanted: dict[Mark, int]) -> int:
        """How many query paths are multiplied with these at a time: none beyond the terms that are wanted."""
        counts = self.values.expansion.sides[1].counts
        keys = max(1, sum(counts[m] for m in wanted))
        room = _BLOCK_BYTES // (8 * keys * max(1, int(np.prod(self.values._batch))))
        return max(1, min(room, -(-self.terms // keys)))

    def of(self, wanted: dict[Mark, int], span: Span | None = None) -> Iterator[tuple[Array, Any]]:
        """What is made of each ``size`` of the key paths with these marks, in order; from within a span on."""
        key = frozenset(wanted)
        if key in self._held:
            yield from self._held[key]
            return
        if span is not None:
            yield from self._within(wanted, span)
            return
        held: list[tuple[Array, Any]] | None = []
        blocks = (block for _, block in side_blocks(self.values, 1, wanted))
        for block in gathered(blocks, self.size):
            found = self.make(block)
            self._bytes += found[0].nbytes
            held = None if held is None or self._bytes > _KEY_BYTES else [*held, found]
            yield found
        if held is not None:
            self._held[key] = held

    def _within(self, wanted: dict[Mark, int], span: Span) -> Iterator[tuple[Array, Any]]:
        """From the first key path on that is not before a span; nothing is kept."""
        within = Span(span.inside)
        for block in gathered((block for _, block in side_blocks(self.values, 1, wanted, within)), self.size):
            span.inside = 0
            yield self.make(block)


def _unit(block: Array) -> tuple[Array, Array]:
    """``[paths, batch, n, d]`` divided by their largest numbers, and these, ``[paths, batch]``; in float64."""
    wide = block.astype(np.float64, copy=False)
    most = np.abs(wide).max((-1, -2), initial=0.0)
    return wide / np.where(most > 0, most, 1.0)[..., None, None], most


def _packed(outer: Array, cross: float) -> Array:
    """The upper triangle of symmetric matrices ``[..., d, d]``; what stands beside the diagonal times ``cross``."""
    d = outer.shape[-1]
    rows, cols = np.triu_indices(d)
    return np.asarray(outer[..., rows, cols] * np.where(rows == cols, 1.0, cross))


class _Grams:
    """``<Q^T Q, K^T K>``, the upper triangles only, what is beside the diagonal counted twice."""

    @staticmethod
    def _made(block: Array, cross: float) -> tuple[Array, Array]:
        unit, most = _unit(block)
        return _packed(unit.swapaxes(-1, -2) @ unit, cross), most

    def query(self, block: Array) -> tuple[Array, Array]:
        return self._made(block, 2.0)

    def key(self, block: Array) -> tuple[Array, Array]:
        return self._made(block, 1.0)

    @staticmethod
    def norms(query: Array, key: Array) -> Array:
        """``[queries, keys, batch]``."""
        squared = query.swapaxes(0, 1) @ key.transpose(1, 2, 0)
        return np.asarray(np.sqrt(np.maximum(squared, 0.0, where=~np.isnan(squared), out=squared))).transpose(1, 2, 0)


class _MaskedGrams(_Grams):
    """``sum_i <q_i^T q_i, sum_j M_ij k_j^T k_j>``: the sums over keys once for each key path."""

    def __init__(self, mask: Array) -> None:
        self.mask = mask

    @staticmethod
    def _outer(unit: Array, cross: float) -> Array:
        rows, cols = np.triu_indices(unit.shape[-1])
        found = unit[..., rows] * np.where(rows == cols, 1.0, cross)
        found *= unit[..., cols]
        return np.asarray(found)

    def query(self, block: Array) -> tuple[Array, Array]:
        unit, most = _unit(block)
        found = self._outer(unit, 2.0)
        return found.reshape(*found.shape[:2], -1), most

    def key(self, block: Array) -> tuple[Array, Array]:
        unit, most = _unit(block)
        found = self.mask @ self._outer(unit, 1.0)
        return found.reshape(*found.shape[:2], -1), most


class _Direct:
    """Each term formed and measured where the mask leaves it: for few positions, where this is less work."""

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def query(self, block: Array) -> tuple[Array, Array]:
        return _unit(block)

    key = query

    def norms(self, query: Array, key: Array) -> Array:
        """``[queries, keys, batch]``."""
        terms = query[:, None] @ key.swapaxes(-1, -2) * self.mask
        return np.asarray(np.sqrt(np.einsum("qkbij,qkbij->qkb", terms, terms)))
