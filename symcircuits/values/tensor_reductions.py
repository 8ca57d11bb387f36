"""A number for every term in arrays of the library that somebody uses, and the values of all terms in blocks.

What :mod:`symcircuits.values.norms`, ``entries`` and ``term_values`` give on a run: the same numbers, blocks and
errors. All stays where the arrays are, in their type; terms are formed in blocks that are let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from symcircuits.arrays.namespaces import Namespace
from symcircuits.values.blocks import Numbers
from symcircuits.values.measure import Measure
from symcircuits.values.tensor_values import TensorValues, gathered

__all__ = ["contributions_in", "entries_in", "norms_in", "term_values_in"]

_KEYS = 2**12  # key paths of which one row meets a query path at a time


def norms_in(values: TensorValues, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """:func:`~symcircuits.values.norms.norms`: each term is formed, logits without the vocabulary."""
    if values.expansion.readout.bilinear:
        mask = _mask(values) if by.kind == "masked norm" else None
        return _numbered(values, "the norm", _of_pairs(values, mask), size, terms)
    found = TensorValues(values.expansion, values.tensors, _without_vocabulary(values))
    pieces = (_length(block, found.ring) for _, block in found.pieces())
    return _numbered(found, "the norm", pieces, size, terms)


def _of_pairs(values: TensorValues, mask: Any) -> Iterator[Any]:
    for _, keys in values.pairs():
        block = values.met_turned(*keys)
        yield _length(block if mask is None else block * mask, values.ring)


def _mask(values: TensorValues) -> Any:
    """One where a query may attend to a key, else zero."""
    head = values.expansion.readout.head
    assert head is not None
    name = f"mask_L{head.layer}"
    if name not in values.tensors.arrays:
        raise ValueError(
            f"a masked norm needs {name} [n, n] among the arrays: 1 where a query may attend to a key, else 0"
        )
    return values.tensors.arrays[name]


def _length(block: Any, ring: Namespace) -> Any:
    """Frobenius norms of matrices, whatever the size of the numbers."""
    xp = ring.xp
    most = xp.max(xp.abs(block), axis=(-2, -1), keepdims=True)
    one, none = xp.ones_like(most), most == 0
    scaled = block / xp.where(none, one, most)
    squared = xp.sum(scaled * scaled, axis=(-2, -1), keepdims=True)
    length = xp.sqrt(xp.where(none, one, squared)) * most  # a root of 0 has no derivative
    return length[..., 0, 0]


def _without_vocabulary(values: TensorValues) -> dict[str, Any]:
    """Of logits ``W_U`` and ``b_U`` by the triangle T of ``[W_U, b_U] = Q T``, which is as long and smaller."""
    arrays, xp = values.tensors.arrays, values.ring.xp
    if values.expansion.target != "logits" or not hasattr(xp, "linalg"):
        return {}
    w_u, d = arrays["W_U"], arrays["W_U"].shape[1]
    biased = "b_U" in values.expansion.architecture.biases
    whole = xp.concat([w_u, arrays["b_U"][:, None]], axis=1) if biased else w_u
    if whole.shape[0] <= whole.shape[1]:
        return {}
    if xp.finfo(values.ring.dtype).bits not in (32, 64):  # no library makes one of other types
        return {}
    triangle = xp.linalg.qr(whole)[1]
    if not _leads_back(values, whole, triangle):
        return {}
    return {"W_U": triangle[:, :d]} | ({"b_U": triangle[:, d:]} if biased else {})


def _leads_back(values: TensorValues, whole: Any, triangle: Any) -> bool:
    """Whether derivatives go through a triangle, if there are any: they divide by what stands on its diagonal."""
    if getattr(whole, "requires_grad", None) is False:
        return True
    if not values.tensors.finite:  # nothing can be looked at
        return False
    xp = values.ring.xp
    sizes = xp.abs(xp.linalg.diagonal(triangle))
    return bool(xp.min(sizes) > float(xp.finfo(values.ring.dtype).eps) ** 0.5 * xp.max(sizes))


def contributions_in(values: TensorValues, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """:func:`~symcircuits.values.entries.contributions`: one row of the unembedding, or a difference of two."""
    arrays, instead = values.tensors.arrays, dict[str, Any]()
    biased = values.expansion.target == "logits" and "b_U" in values.expansion.architecture.biases
    for name in (values.reader, "b_U") if biased else (values.reader,):
        rows = [arrays[name][i, ...] for i in by.chosen]
        row = rows[0] if len(rows) == 1 else rows[0] - rows[1]
        instead[name] = row[None, None] if name == "b_U" else row[None, :]
    found = TensorValues(values.expansion, values.tensors, instead)
    return _numbered(
        found, "the contribution", (block[..., 0, 0] for _, block in found.pieces(row=by.position)), size, terms
    )


def entries_in(values: TensorValues, by: Measure, size: int, terms: range) -> Iterator[Numbers]:
    """:func:`~symcircuits.values.entries.entries`: a query's row times the keys' rows."""
    total = values.ring.xp.sum
    found = values.pairs(_KEYS, (by.position, by.key))
    pieces = (total(query[..., 0, :] * keys[..., 0, :], axis=-1) for _, (query, keys) in found)
    return _numbered(values, "the score", pieces, size, terms)


def term_values_in(values: TensorValues, size: int | None) -> Iterator[Numbers]:
    """:func:`~symcircuits.values.term_values.term_values`: every block is an array of its own here."""
    start = 0
    blocks: Iterable[Any] = (block for _, block in values.pieces(size))
    if size is not None and not values.expansion.readout.bilinear:
        blocks = gathered(blocks, size, values.ring.xp)
    for block in blocks:
        values.look("the value", block, start)
        yield Numbers(start, block)
        start += int(block.shape[0])


def _numbered(values: TensorValues, what: str, pieces: Iterable[Any], size: int, terms: range) -> Iterator[Numbers]:
    """Blocks of the numbers of a range of terms."""
    start = terms.start
    for block in gathered(_within(pieces, terms), size, values.ring.xp):
        values.look(what, block, start)
        yield Numbers(start, block)
        start += int(block.shape[0])


def _within(pieces: Iterable[Any], terms: range) -> Iterator[Any]:
    """Of pieces from the first term on what belongs to a range of terms."""
    at = 0
    for piece in pieces if terms else ():
        end = at + int(piece.shape[0])
        if end > terms.start:
            yield piece[max(terms.start - at, 0) : min(terms.stop, end) - at, ...]
        at = end
        if at >= terms.stop:
            return
