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
    "HeadScores", "centred", "centred_shares", "head_scores", "margin", "share_columns",
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
    target, label = expansion.target, expansion.target.partition(":")[2]
    allowed, counts = np.isfinite(run.scores[label]), expansion.counts_by_composition()
    sums, scale = evaluate(expansion, run).by_composition(), rounding_scale(target, run)
    closed = closure(expansion, run, listed, sums.values(), scale)
    weights = _margin_weights(run.patterns[label], allowed, queries)
    seen = {c: centred(v, allowed) for c, v in sums.items()}
    size = _size(sums, scale)
    shares = _shares_of_margin(sums, weights, 16 * _unit(run) * _weighed(np.abs(weights), size))
    centred_shares = _shares_of_centred(seen, 32 * _unit(run) * np.where(allowed, size, 0))
    undefined = None if None in centred_shares.values() else 0.0
    return HeadScores(
        closed,
        shares,
        norms={c: frobenius(np.where(allowed, sums[c], 0)) if c in sums else 0.0 for c in COMPOSITIONS},
        counts={c: counts.get(c, 0) for c in COMPOSITIONS},
        softmax_invisible=expansion.softmax_invisible().count,
        margin=_weighed(weights, reference(target, run)),
        centred_shares={c: centred_shares.get(c, undefined) for c in COMPOSITIONS},
        centred_norms={c: frobenius(seen[c]) if c in seen else 0.0 for c in COMPOSITIONS},
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
    return _weighed(_margin_weights(pattern, allowed, queries), scores)


def _margin_weights(pattern: Array, allowed: Array, queries: Sequence[int] | None) -> Array:
    """The W, ``[..., n, n]`` in float64, with ``margin = sum_ij W_ij S_ij``: 1 at the best key, less the mean of the
    others, 0 where nothing is allowed or counted."""
    allowed = np.broadcast_to(allowed, pattern.shape)
    best = np.argmax(np.where(allowed, pattern, -np.inf), axis=-1, keepdims=True) if pattern.size else None
    others = allowed.sum(axis=-1, keepdims=True) - 1
    counted = others > 0
    if queries is not None:
        chosen = np.zeros((pattern.shape[-2], 1), bool)
        chosen[list(queries)] = True
        counted = counted & chosen
    weights = np.where(allowed & counted, -1.0 / np.maximum(others, 1), 0.0)
    if best is not None:
        np.put_along_axis(weights, best, np.where(counted, 1.0, 0.0), axis=-1)
    return weights


def _weighed(weights: Array, scores: Array) -> float:
    """``sum_ij W_ij S_ij`` over the entries that have a weight: others may be minus infinity."""
    return float(np.sum(np.where(weights != 0, scores, 0) * weights))


def _shares_of_margin(sums: Mapping[str, Array], weights: Array, bound: float) -> dict[str, float | None]:
    """Each sum's share of a head's margin; None for all where the total is below its own rounding bound."""
    parts = {c: _weighed(weights, v) for c, v in sums.items()}
    total = sum(parts.values())
    if not abs(total) > bound:
        return dict.fromkeys(COMPOSITIONS)
    return {c: parts.get(c, 0.0) / total for c in COMPOSITIONS}


def _unit(run: Run) -> float:
    """The unit roundoff; of float32 itself, products would be in float32 and overflow."""
    return float(np.finfo(run.dtype).eps) / 2


def _size(sums: Mapping[Any, Array], scale: Array) -> Array:
    """What rounding is relative to, entry by entry (see :class:`~symcircuits.values.evaluate.Closure`)."""
    return np.asarray(sum(np.abs(v) for v in sums.values()) + scale)


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
    size = _size(sums, rounding_scale(expansion.target, run))
    return _shares_of_centred(
        {c: centred(v, allowed) for c, v in sums.items()}, 32 * _unit(run) * np.where(allowed, size, 0)
    )


def _shares_of_centred(centred_sums: Mapping[Any, Array], bound: Array) -> dict[Any, float | None]:
    """The same, of what is centred already; ``bound``: of each entry, twice that of a sum, as centring rounds too."""
    parts = {c: v.astype(np.float64, copy=False) for c, v in centred_sums.items()}
    total = np.asarray(sum(parts.values(), np.zeros(bound.shape)))
    length = frobenius(total)
    if not length > frobenius(bound):
        return dict.fromkeys(parts)
    unit = total / length
    return {c: float(np.sum(v * unit)) / length for c, v in parts.items()}
