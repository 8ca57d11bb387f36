"""The values of all score terms of a head: one product for a query path and many key paths, in one buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symcircuits.evaluation import Values
from symcircuits.expansion import Expansion
from symcircuits.model import Run
from symcircuits.numbered import Numbers, held_fixed
from symcircuits.rings import Array
from symcircuits.term_blocks import whole
from symcircuits.term_norms import Held, quiet, side_blocks

__all__ = ["score_values"]

_TILE_BYTES = 2**20  # of values at a time: small, so that they are read while they are in the cache


def score_values(expansion: Expansion, run: Run, *, size: int | None = None) -> Iterator[Numbers]:
    """The values of all score terms (scaled, before the mask), ``[terms, ..., n_context, n_context]``, in blocks.

    ``s Q_p [K_1; K_2; ...]^T`` for a query path and ``size`` key paths at a time (None: about a MiB of values) is one
    product. **The blocks share one buffer**: a block holds until the next is asked for; copy what is kept. Blocks end
    where the key paths of a query path end, and memory does not grow with the number of terms. Raises ValueError on
    what does not go together or is no score, and, by name, on a term that is not finite. Source: own derivation.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> terms = sc.scores(run.model.architecture, "L1H0")
    >>> largest = [float(abs(v).max()) for block in sc.score_values(terms, run) for v in block.values]
    >>> bool(np.allclose(largest, [abs(v).max() for v in sc.evaluate(terms, run)]))
    True
    """
    values = held_fixed(expansion, run)
    if not expansion.readout.bilinear:
        raise ValueError(f"score_values is about scores of a head, not about {expansion.target}")
    return quiet(_tiles(values, size if size is None else whole("size", size, 1)))


def _tiles(values: Values, size: int | None) -> Iterator[Numbers]:
    expansion, run = values.expansion, values.run
    n, batch = np.shape(run.tokens)[-1], int(np.prod(values._batch))
    size = size or max(1, _TILE_BYTES // (n * n * batch * run.dtype.itemsize))
    keys, buffer, start = Held(values, lambda block: (block, None), size), np.empty(0, run.dtype), 0
    for mark, queries in side_blocks(values, 0, expansion._weights):
        wanted = expansion._key_weights(mark)
        for query in queries:
            for key, _ in keys.of(wanted):
                shape = (batch, len(key) * n, n)
                if buffer.size < np.prod(shape):
                    buffer = np.empty(int(np.prod(shape)), run.dtype)
                out = buffer[: np.prod(shape)].reshape(shape)
                yield Numbers(start, _tile(expansion, start, query, key, out).reshape(len(key), *values._batch, n, n))
                start += len(key)


def _tile(expansion: Expansion, start: int, query: Array, key: Array, out: Array) -> Array:
    """``[keys, batch, n, n]``: of each batch row one product ``[keys n, d] [d, n]``, seen the other way round."""
    count, batch, n, d = key.shape
    np.matmul(key.swapaxes(0, 1).reshape(batch, count * n, d), query.swapaxes(-1, -2), out=out)
    found = out.reshape(batch, count, n, n).transpose(1, 0, 3, 2)
    # A sum is finite where all are, but for overflow of the sum itself: only then is each looked at.
    if not np.isfinite(out.sum()) and not np.isfinite(out).all():
        number = start + int(np.argmin(np.isfinite(found).all((1, 2, 3))))
        raise ValueError(
            f"the value of term {number} ({expansion[number].label}) is not finite: numbers leave the range of "
            f"{out.dtype} on the way; run in float64, or scale the weights"
        )
    return found
