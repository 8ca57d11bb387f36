"""Elimination modulo a prime: ranks and inverses."""

from __future__ import annotations

import numpy as np

from symcircuits.arrays.rings import Array

__all__ = ["eliminated", "inverse", "inverses"]


def inverse(matrix: Array, p: int) -> Array | None:
    """The inverse of a matrix modulo p; None if there is none."""
    k = len(matrix)
    reduced, rank = eliminated(np.concatenate([matrix, np.eye(k, dtype=np.int64)], -1), p, k)
    return reduced[:, k:] if rank == k else None


def inverses(matrices: Array, p: int) -> Array:
    """The inverses of matrices modulo p, one after the other; raises ValueError if one has none."""
    found = [inverse(matrix, p) for matrix in matrices]
    there = [f for f in found if f is not None]
    if len(there) < len(found):
        raise ValueError("a random matrix is not invertible; take another seed")
    return np.stack(there)


def eliminated(matrix: Array, p: int, columns: int | None = None) -> tuple[Array, int]:
    """The reduced rows of a matrix modulo p, and its rank in the first ``columns`` columns."""
    rows, rank = matrix % p, 0
    rows = rows if p <= 2**31 else rows.astype(object)  # products of two elements must fit
    for col in range(rows.shape[1] if columns is None else columns):
        found = np.flatnonzero(rows[rank:, col])
        if not found.size:
            continue
        rows[[rank, rank + found[0]]] = rows[[rank + found[0], rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, col]), -1, p) % p
        others = rows[:, col].copy()
        others[rank] = 0
        rows = (rows - others[:, None] * rows[rank] % p) % p
        rank += 1
        if rank == len(rows):
            break
    return rows.astype(np.int64), rank
