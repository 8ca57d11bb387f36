"""Numbers of terms in blocks, as they stand in the expansion; what is not a number is refused by the term's name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.expansion import Expansion
from symcircuits.model import Run
from symcircuits.values.finite import remedy
from symcircuits.values.siblings import Span

__all__ = ["BLOCK", "Numbers", "in_blocks"]

BLOCK = 1 << 16  # as in expansion.blocks()


class Numbers(NamedTuple):
    """``values[i]`` belongs to term ``start + i`` of the expansion; batch axes of the tokens follow."""

    start: int
    values: Array


def in_blocks(
    expansion: Expansion, run: Run, what: str, pieces: Iterable[Array], size: int, terms: range, span: Span,
    dtype: Any = None,
) -> Iterator[Numbers]:  # fmt: skip
    """Pieces ``[terms, batch]`` of any length as blocks of ``size`` terms, the last may be smaller; of the run's type.

    ``span`` began with ``terms.start``: what is ``inside`` of it is left out of the first pieces. Raises ValueError,
    which names the term, where a number is not finite.
    """
    start, at = terms.start, 0
    canvas, batch = None, np.shape(run.tokens)[:-1]
    rows = int(np.prod(batch))
    for piece in pieces if terms else ():
        done = min(span.inside, len(piece))
        span.inside -= done
        while done < len(piece) and start < terms.stop:
            if canvas is None:
                canvas = np.empty((min(size, terms.stop - start), rows), dtype or run.dtype)
            n = min(len(piece) - done, len(canvas) - at)
            canvas[at : at + n] = piece[done : done + n]
            at, done = at + n, done + n
            if at == len(canvas):
                yield Numbers(start, _checked(expansion, run, what, start, canvas).reshape(at, *batch))
                start, at, canvas = start + at, 0, None
        if start == terms.stop:
            return


def _checked(expansion: Expansion, run: Run, what: str, start: int, values: Array) -> Array:
    good = np.isfinite(values).all(axis=1)
    if not good.all():
        number = start + int(np.argmin(good))
        raise ValueError(
            f"{what} of term {number} ({expansion[number].label}) is not finite ({values[number - start].tolist()}): "
            f"numbers leave the range of {run.dtype} on the way; {remedy(run.dtype)}"
        )
    return values
