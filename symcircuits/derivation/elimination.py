"""Elimination modulo a prime: ranks and inverses."""

from __future__ import annotations

import numpy as np

from symcircuits.rings import Array

__all__ = ["eliminated", "inverse"]


def inverse(matrices: Array, p: int) -> Array:
    """The inverses of matrices modulo p, one after the other."""
    k = matrices.shape[-1]
    found = []
    for matrix in matrices:
        reduced, rank = eliminated(np.concatenate([matrix, np.eye(k, dtype=np.int64)], -1), p, k)
        if rank < k:
            raise ValueError("a matrix that was drawn has no inverse; take another seed")
        found.append(reduced[:, k:])
    return np.stack(found)


def eliminated(matrix: Array, p: int, columns: int | None = None) -> tuple[Array, int]:
    """The reduced rows of a matrix modulo p, and its rank in the first ``columns`` columns."""
    rows, rank = matrix % p, 0
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
    return rows, rank
