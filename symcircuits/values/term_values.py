"""The values of all terms, in the order of the expansion; for a run streamed through one buffer that stays in cache."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.text import amount, whole
from symcircuits.tables.blocks import range_of
from symcircuits.values.blocks import Numbers
from symcircuits.values.engine import Engine, Room, Span
from symcircuits.values.evaluate import Values
from symcircuits.values.finite import quiet
from symcircuits.values.pairs import Pairs
from symcircuits.values.tensor_values import TensorValues

__all__ = ["arrays", "term_values"]

_Found = tuple[Any, bool]  # values, and whether they are known to be finite
_BLOCK_BYTES = 2**20  # of values at a time: small enough to be read from the cache
_FRESH = 2**18  # numbers of a block whose memory is reused


def term_values(
    values: Values | TensorValues, *, size: int | None = None, out: Array | None = None, start: int = 0,
    stop: int | None = None,
) -> Iterator[Numbers]:  # fmt: skip
    """The values of a range of terms; see :meth:`symcircuits.values.sums.Sums.blocks`."""
    most, terms = None if size is None else whole("size", size, 1), range_of(values.expansion, start, stop)
    if isinstance(values, TensorValues):
        if out is not None:
            raise ValueError("out needs a run (NumPy); with Tensors every block is an array of its own")
    elif most is None and out is None:
        with values.calm():
            found = values.all_terms()
        if found is not None:
            return _part(values, found.ordered(found.values), terms)
    span, each = Span(terms.start), prod(values.shape)
    if isinstance(values, TensorValues):
        room = Room(most * max(1, each) if most else 0)
    else:
        numbers = most * each if most else _BLOCK_BYTES // values.run.dtype.itemsize
        room = Room(numbers, True, None if out is None else _fitting(out, values, most))
    return values.quiet(_cut(values, _found(values, room, span), terms, span))


def _part(values: Values, found: Array, terms: range) -> Iterator[Numbers]:
    """A range of all terms, as one block."""
    if terms:
        part = found[terms.start : terms.stop].reshape(len(terms), *values.batch, *found.shape[2:])
        values.look("the value", part, terms.start)
        yield Numbers(terms.start, part)


def arrays(values: Values) -> Iterator[Array]:
    """The values of all terms, ``[terms, ..., n_context, width]``, each block in memory of its own, finite or not."""
    return quiet((block for block, _ in _found(values, Room(_FRESH), Span())))


def _found(values: Engine, room: Room, span: Span) -> Iterator[_Found]:
    if values.expansion.readout.bilinear:
        return Pairs(values, values.arithmetic.scores_of_pairs(room)).each(span)
    flat, shape = values.arithmetic.flat, values.shape
    pieces = values.paths(0).pieces(values.expansion._weights, span, room)
    return ((flat(piece.values, (len(piece.marks), *shape)), piece.finite) for piece in pieces)


def _cut(values: Engine, blocks: Iterator[_Found], terms: range, span: Span) -> Iterator[Numbers]:
    """Blocks of values from ``span`` on, cut to a range; a number that is not finite raises, naming the term."""
    at = terms.start
    for block, finite in blocks if terms else ():
        found = block[span.part(int(block.shape[0]), terms.stop - at), ...]
        if found.shape[0]:
            if not finite:
                values.look("the value", found, at)
            yield Numbers(at, found)
            at += found.shape[0]
        if at == terms.stop:
            return


def _fitting(out: Any, values: Values, size: int | None) -> Array:
    """An array that the values of a term fit into, unchanged; raises ValueError if they do not."""
    run, each = values.run, values.shape
    said = f"[terms, {', '.join(map(str, each))}] of {run.dtype}"
    if not isinstance(out, np.ndarray) or out.dtype != run.dtype or out.shape[1:] != each or not len(out):
        what = f"{list(out.shape)} of {out.dtype}" if isinstance(out, np.ndarray) else repr(out)
        raise ValueError(f"out must be an array {said}, for one or more terms, not {what}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be a writable array, contiguous in C order")
    if size is not None and size > len(out):
        raise ValueError(f"out has room for {amount(len(out), 'term')}, but size={size} needs more")
    return out if size is None else out[:size]
