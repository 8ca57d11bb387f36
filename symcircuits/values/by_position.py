"""The origin of a term of logits or stream: its value split by the position that it starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Term
from symcircuits.core.paths import path_branches, path_scales
from symcircuits.core.words import Factor
from symcircuits.values.evaluate import Values

__all__ = ["Reads", "by_position", "moves"]

Array = npt.NDArray[Any]
Reads = dict[tuple[Factor, ...], Array]  # a reader, moved before the last matrices of terms


def moves(values: Values, term: Term) -> Array:
    """The product of the patterns left of a term's source, ``[..., n, n]``; the identity if there are none.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> term = sc.logits(run.model.architecture).order(2)[0]
    >>> found = moves(sc.evaluate(sc.logits(run.model.architecture), run), term)
    >>> bool(np.array_equal(found, run.patterns["L1H0"] @ run.patterns["L0H0"]))
    True
    """
    program, path = term.readout.sides[0], term.paths[0]
    left = [f for b in reversed(path_branches(program, path)) for f in b.left] + list(path.source.left)
    tokens = np.shape(values.run.tokens)
    found = values.matrices.chain(left) if left else np.eye(tokens[-1], dtype=values.run.dtype)
    return np.broadcast_to(found, (*tokens, tokens[-1]))


def by_position(values: Values, term: Term, reader: Array, reads: Reads | None = None) -> Array:
    """A term ``L X R`` read by ``w [width]``, split by position: ``L_ij (X R w)_j``, ``[..., n, n]``.

    Row i is the position that it arrives at, column j the one where it starts; rows sum to ``value(term) @ w``.
    ``reads``: a cache of this reader for further terms of the same values, empty at first.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> term, w = values.expansion[3], np.eye(11)[4]
    >>> bool(np.allclose(by_position(values, term, w).sum(-1), values.value(term) @ w))
    True
    """
    program, path = term.readout.sides[0], term.paths[0]
    read = np.asarray(reader, dtype=values.run.dtype)[:, None]
    right = [*path.source.right, *(f for b in path_branches(program, path) for f in b.right)]
    known = values.matrices.known.get(path.source.name)
    factors = (*(path.source.core if known is None else ()), *right)
    reads = {} if reads is None else reads
    for i in reversed(range(len(factors))):
        if factors[i:] in reads:
            read = reads[factors[i:]]
            continue
        matrix = values.matrices.factor(factors[i])
        places = np.flatnonzero(read)
        if isinstance(matrix, np.ndarray) and 2 * len(places) < len(read):  # some rows of an unembedding
            matrix, read = matrix[:, places], read[places]
        read = reads[factors[i:]] = np.asarray(matrix @ read)
    read = read if known is None else known @ read
    read = values.matrices.scaled(path_scales(program, path), read)
    return np.asarray(moves(values, term) * read.swapaxes(-1, -2))
