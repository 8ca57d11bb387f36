"""How much each part of a head's scores counts: shares of its margin, and centred shares, what softmax sees.

Softmax does not see what is constant along the keys: ``softmax(S + c 1^T) = softmax(S)``. Both measures here drop
it: the margin is a difference of two keys, and centring takes from each row its mean over the allowed keys.
Source: own definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion
from symcircuits.model import Run
from symcircuits.values.evaluate import LISTED, Closure, closure, evaluate, reference, rounding_scale

__all__ = [
    "HeadScores", "centred", "centred_shares", "head_scores", "margin", "margin_shares",
    "share_columns",
]  # fmt: skip

Array = npt.NDArray[Any]
COMPOSITIONS = ("none", "Q", "K", "QK")


@dataclass(frozen=True, slots=True)
class HeadScores:
    """A head's scores by composition type: shares (None where undefined) and norms, as they are and centred.

    Scores are those before a soft cap and ALiBi, which terms add up to. ``margin``: the whole margin;
    ``softmax_invisible``: how many terms are constant along the keys (0 where a soft cap acts on the sum).
    """

    closure: Closure
    shares: dict[str, float | None]
    norms: dict[str, float]
    counts: dict[str, int]
    softmax_invisible: int
    margin: float
    centred_shares: dict[str, float | None]
    centred_norms: dict[str, float]


def head_scores(
    run: Run, expansion: Expansion, queries: Sequence[int] | None = None, listed: int = LISTED
) -> HeadScores:
    """Closure (up to ``listed`` terms one by one), shares and norms of a head's scores, from their expansion."""
    label = expansion.target.partition(":")[2]
    allowed = np.isfinite(run.scores[label])
    sums = evaluate(expansion, run).by_composition()
    seen = centred_shares(run, expansion, sums)
    return HeadScores(
        closure(expansion, run, listed),
        margin_shares(run, expansion, sums, queries),
        norms={c: frobenius(np.where(allowed, sums[c], 0)) if c in sums else 0.0 for c in COMPOSITIONS},
        counts={c: expansion.counts_by_composition().get(c, 0) for c in COMPOSITIONS},
        softmax_invisible=expansion.softmax_invisible().count,
        margin=margin(reference(expansion.target, run), run.patterns[label], allowed, queries),
        centred_shares={c: seen.get(c, None if None in seen.values() else 0.0) for c in COMPOSITIONS},
        centred_norms={c: frobenius(centred(sums[c], allowed)) if c in sums else 0.0 for c in COMPOSITIONS},
    )


def share_columns(heads: Mapping[str, HeadScores]) -> dict[str, list[Any]]:
    """Heads by composition type as columns: see :meth:`~symcircuits.explanation.explain.Explanation.score_columns`."""
    rows = [(h, c, s) for h, s in heads.items() for c in COMPOSITIONS if s.counts[c]]
    return {
        "head": [h for h, _, _ in rows],
        "composition": [c for _, c, _ in rows],
        "count": [s.counts[c] for _, c, s in rows],
        "share": [s.shares[c] for _, c, s in rows],
        "centred_share": [s.centred_shares[c] for _, c, s in rows],
        "norm": [s.norms[c] for _, c, s in rows],
        "centred_norm": [s.centred_norms[c] for _, c, s in rows],
    }


# ------------------------------------------------------------------------------------------------- margin
def margin(scores: Array, pattern: Array, allowed: Array, queries: Sequence[int] | None = None) -> float:
    """Score at the key with the largest pattern minus the mean over the query's other allowed keys, summed.

    Linear in ``scores [..., n, n]``. Queries with one allowed key are skipped; ties go to the lowest key. Source:
    own definition.

    >>> scores, allowed = np.array([[0.0, 0.0], [1.0, 3.0]]), np.tril(np.ones((2, 2), bool))
    >>> margin(scores, np.array([[1.0, 0.0], [0.1, 0.9]]), allowed)
    2.0
    """
    return _margin(scores, pattern, allowed, queries, -1)


def _margin(scores: Array, pattern: Array, allowed: Array, queries: Sequence[int] | None, sign: int) -> float:
    """Score at the best key plus ``sign`` times the mean over the other allowed keys, summed over queries."""
    n, total = scores.shape[-1], 0.0
    flat = (np.broadcast_to(a, scores.shape).reshape(-1, n, n) for a in (scores, pattern, allowed))
    for s, p, ok in zip(*flat, strict=True):
        for i in range(n) if queries is None else queries:
            keys = np.flatnonzero(ok[i])
            if len(keys) > 1:
                best = keys[np.argmax(p[i, keys])]
                total += float(s[i, best] + sign * s[i, keys[keys != best]].mean())
    return total


def margin_shares(
    run: Run, expansion: Expansion, sums: dict[str, Array], queries: Sequence[int] | None = None
) -> dict[str, float | None]:
    """Each sum's share of a head's margin; None for all where the total is below its own rounding bound."""
    label = expansion.target.partition(":")[2]
    pattern, allowed = run.patterns[label], np.isfinite(run.scores[label])
    parts = {c: margin(v, pattern, allowed, queries) for c, v in sums.items()}
    total = sum(parts.values())
    unit = float(np.finfo(run.dtype).eps) / 2  # of float32 itself, the product would be in float32 and overflow
    bound = 16 * unit * _margin(_size(run, expansion, sums), pattern, allowed, queries, +1)
    if not abs(total) > bound:
        return dict.fromkeys(COMPOSITIONS)
    return {c: parts.get(c, 0.0) / total for c in COMPOSITIONS}


def _size(run: Run, expansion: Expansion, sums: Mapping[Any, Array]) -> Array:
    """What rounding is relative to, entry by entry (see :class:`~symcircuits.values.evaluate.Closure`)."""
    return np.asarray(sum(np.abs(v) for v in sums.values()) + rounding_scale(expansion.target, run))


# ------------------------------------------------------------------------------------------------ centring
def centred(scores: Array, allowed: Array) -> Array:
    """Each row minus its mean over the allowed keys; entries that are not allowed are 0.

    ``C(S)_ij = S_ij - mean_{k allowed} S_ik``, for ``[..., n, n]``: linear in S, and 0 for what is constant along
    the keys. A query with one allowed key has a row of 0.

    >>> centred(np.array([[5.0, 9.0], [1.0, 3.0]]), np.tril(np.ones((2, 2), bool)))
    array([[ 0.,  0.],
           [-1.,  1.]])
    """
    kept = np.where(allowed, scores, 0)
    mean = kept.sum(axis=-1, keepdims=True) / np.maximum(np.sum(allowed, axis=-1, keepdims=True), 1)
    return np.asarray(np.where(allowed, kept - mean, 0))


def centred_shares(run: Run, expansion: Expansion, sums: Mapping[Any, Array]) -> dict[Any, float | None]:
    """Each sum's share of a head's centred scores; None for all where these are below their own rounding bound.

    ``share_c = <C(S_c), C(S)> / <C(S), C(S)>`` over all rows of tokens, with ``S = sum_c S_c`` and C as in
    :func:`centred`: the shares add up to 1, and what softmax does not see has share 0. A share may be negative or
    above 1, where parts work against each other.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2), biases=True), seed=1).run([1, 2, 3])
    >>> scores = sc.scores(run.model.architecture, "L1H0")
    >>> shares = centred_shares(run, scores, sc.evaluate(scores, run).by_composition())
    >>> list(shares), round(sum(shares.values()), 12)
    (['none', 'Q', 'K', 'QK'], 1.0)
    """
    allowed = np.isfinite(run.scores[expansion.target.partition(":")[2]])
    parts = {c: centred(v, allowed).astype(np.float64) for c, v in sums.items()}
    total = np.asarray(sum(parts.values(), np.zeros(allowed.shape)))
    bound = 16 * np.finfo(run.dtype).eps * np.where(allowed, _size(run, expansion, sums), 0)  # twice: centring
    length = frobenius(total)
    if not length > frobenius(bound):
        return dict.fromkeys(sums)
    unit = total / length
    return {c: float(np.sum(v * unit)) / length for c, v in parts.items()}
