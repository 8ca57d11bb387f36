"""The values of all terms, in the order of the expansion, streamed through one buffer that stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.expansion import Expansion
from symcircuits.core.text import amount, whole
from symcircuits.tables.blocks import range_of
from symcircuits.values.blocks import Numbers
from symcircuits.values.evaluate import Values
from symcircuits.values.finite import quiet, remedy
from symcircuits.values.norms import Held, side_blocks
from symcircuits.values.sibling_reads import Room, largest_number, pieces
from symcircuits.values.siblings import Span
from symcircuits.values.tensor_reductions import term_values_in
from symcircuits.values.tensor_values import TensorValues

__all__ = ["arrays", "term_values"]

_Found = tuple[Any, bool]  # values, and whether they are sure to be finite
_BLOCK_BYTES = 2**20  # of values at a time: small, so that they are read while they are in the cache
_FRESH = 2**18  # numbers of a block that is kept


def term_values(
    values: Values | TensorValues, *, size: int | None = None, out: Array | None = None, start: int = 0,
    stop: int | None = None,
) -> Iterator[Numbers]:  # fmt: skip
    """The values of a range of terms; see :meth:`symcircuits.values.sums.Sums.blocks`."""
    expansion = values.expansion
    most, terms = None if size is None else whole("size", size, 1), range_of(expansion, start, stop)
    span = Span(terms.start)
    if isinstance(values, TensorValues):
        if out is not None:
            raise ValueError("out is for a run of NumPy; in Tensors every block is an array of its own")
        span.enter()  # what lies before is made too
        return _cut(expansion, ((block.values, True) for block in term_values_in(values, most)), terms, span)
    found = _of_scores if expansion.readout.bilinear else _of_one_side
    room = _room(values, most, None if out is None else _fitting(out, values, most))
    return quiet(_cut(expansion, found(values, room, span), terms, span))


def arrays(values: Values) -> Iterator[Array]:
    """The values of all terms, ``[terms, ..., n_context, width]``, each block in memory of its own, finite or not."""
    found = _of_scores if values.expansion.readout.bilinear else _of_one_side
    return quiet((block for block, _ in found(values, Room(_FRESH), Span())))


def _cut(expansion: Expansion, blocks: Iterator[_Found], terms: range, span: Span) -> Iterator[Numbers]:
    """Blocks of values from ``span`` on as those of a range; what is not a number is refused by the term's name."""
    at = terms.start
    for values, finite in blocks if terms else ():
        passed = min(span.inside, values.shape[0])
        span.inside -= passed
        found = values[passed : min(values.shape[0], passed + terms.stop - at), ...]
        if found.shape[0]:
            if not finite:
                _check(expansion, at, found)
            yield Numbers(at, found)
            at += found.shape[0]
        if at == terms.stop:
            return


def _fitting(out: Any, values: Values, size: int | None) -> Array:
    """An array that the values of a term fit into, as it was given; ValueError where they do not."""
    run, each = values.run, values.shape
    said = f"[terms, {', '.join(map(str, each))}] of {run.dtype}"
    if not isinstance(out, np.ndarray) or out.dtype != run.dtype or out.shape[1:] != each or not len(out):
        what = f"{list(out.shape)} of {out.dtype}" if isinstance(out, np.ndarray) else repr(out)
        raise ValueError(f"out is an array {said}, one term or more, not {what}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out is an array that can be written to and whose numbers follow each other (C order)")
    if size is not None and size > len(out):
        raise ValueError(f"out has room for {amount(len(out), 'term')}, and size={size} asks for more")
    return out if size is None else out[:size]


def _room(values: Values, size: int | None, out: Array | None) -> Room:
    numbers = max(1, size) * prod(values.shape) if size else _BLOCK_BYTES // values.run.dtype.itemsize
    return Room(numbers, True, out)


def _of_one_side(values: Values, room: Room, span: Span) -> Iterator[_Found]:
    shape = values.shape
    for piece in pieces(values.fans(0, span), values.expansion._weights, room=room):
        yield piece.values.reshape(len(piece.marks), *shape), piece.finite


def _of_scores(values: Values, room: Room, span: Span) -> Iterator[_Found]:
    run, shape = values.run, values.shape
    keys = Held(values, _turned_round, room.most(prod(shape)))
    for mark, queries in side_blocks(values, 0, values.expansion._weights, span):
        wanted = values.expansion._key_weights(mark)
        for query in queries:
            safe = float(np.finfo(run.dtype).max) / max(1.0, 2 * query.shape[-1] * largest_number(query))
            for key, largest in keys.of(wanted):
                tile = room.take((*key.shape[:2], *shape[-2:]), run.dtype)
                yield np.matmul(query, key, out=tile).reshape(len(key), *shape), largest < safe


def _turned_round(keys: Array) -> tuple[Array, float]:
    """Keys as columns, ``[paths, batch, d_head, n]``, one after the other in memory: so their products are fastest."""
    return np.ascontiguousarray(keys.swapaxes(-1, -2)), largest_number(keys)


def _check(expansion: Expansion, start: int, found: Array) -> None:
    """ValueError, which names the term, where a number is not finite."""
    good = np.isfinite(found).reshape(len(found), -1).all(1)
    if not good.all():
        number = start + int(np.argmin(good))
        raise ValueError(
            f"the value of term {number} ({expansion[number].label}) is not finite: numbers leave the range of "
            f"{found.dtype} on the way; {remedy(found.dtype)}"
        )
