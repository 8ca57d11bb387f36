"""How much each part of a head's scores counts: shares of its margin, and centred shares, what softmax sees.

Softmax does not see what is constant along the keys: ``softmax(S + c 1^T) = softmax(S)``. Both measures here drop
it: the margin is a difference of two keys, and centring takes from each row its mean over the allowed keys.
Source: own definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius_each
from symcircuits.core.expansion import Expansion
from symcircuits.model import Run
from symcircuits.values.evaluate import LISTED, Closure, closure, evaluate, last_seen, reference, rounding_scale

__all__ = [
    "HeadScores", "centred", "centred_shares", "margin", "scores_of_heads", "share_columns",
]  # fmt: skip

Array = npt.NDArray[Any]
COMPOSITIONS = ("none", "Q", "K", "QK")
_TOGETHER = 2**18  # numbers of the parts of scores that are held at once
_ROWS = 2**18  # numbers of these that are looked at together


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


def scores_of_heads(
    run: Run, expansions: Sequence[Expansion], queries: Sequence[int] | None = None, listed: int = LISTED
) -> list[HeadScores]:
    """Closure (up to ``listed`` terms one by one), shares and norms of the scores of heads of a layer.

    ``expansions``: of each head; small arrays are computed with together, large ones one by one.
    """
    if not expansions:
        return []
    each = run.scores[_label(expansions[0])].size
    most = max(1, _TOGETHER // (len(COMPOSITIONS) * max(1, each)))
    some = (expansions[at : at + most] for at in range(0, len(expansions), most))
    return [one for alike in some for one in _together(run, alike, queries, listed)]


def _label(expansion: Expansion) -> str:
    return expansion.target.partition(":")[2]


def _together(
    run: Run, expansions: Sequence[Expansion], queries: Sequence[int] | None, listed: int
) -> list[HeadScores]:
    """The same of heads whose arrays are held at once."""
    labels, shape = [_label(e) for e in expansions], run.scores[_label(expansions[0])].shape
    sums = [evaluate(e, run).by_composition() for e in expansions]
    scales = [rounding_scale(e.target, run) for e in expansions]
    closed = [closure(e, run, listed, s.values(), scale) for e, s, scale in zip(expansions, sums, scales, strict=True)]
    counts, scores = [e.counts_by_composition() for e in expansions], [run.scores[label] for label in labels]
    patterns, models = [run.patterns[label] for label in labels], [reference(e.target, run) for e in expansions]
    spread = [[np.broadcast_to(one, shape) for one in each] for each in (scales, models)]
    chosen, tally = _chosen(shape[-2], queries), _Tally(_unit(run))
    each = max(1, _ROWS // max(1, len(sums[0]) * len(labels) * (prod(shape) // max(1, shape[-2]))))
    for at in range(0, max(1, shape[-2]), each):  # so few rows that what is made of them stays in the cache
        rows = (..., slice(at, at + each), slice(None))
        allowed = np.isfinite(np.stack([one[rows] for one in scores]))  # [heads, ..., rows, n]
        seen = slice(0, last_seen(allowed))  # keys after the last that a query sees count for nothing
        allowed, rows = allowed[..., seen], (..., rows[1], seen)
        given, of_model, scale = (np.stack([one[rows] for one in some]) for some in (patterns, spread[1], spread[0]))
        parts = np.stack([[s[c][rows] for s in sums] for c in sums[0]])  # [compositions, heads, ..., rows, n]
        tally.add(parts, scale, allowed, _margin_weights(given, allowed, chosen[at : at + each]), of_model)
    found, margins = tally.found(), tally.margins
    return [
        HeadScores(
            closed[i],
            counts={c: counts[i].get(c, 0) for c in COMPOSITIONS},
            softmax_invisible=expansions[i].softmax_invisible().count,
            margin=float(margins[i]),
            **{name: _named([*sums[0]], numbers[:, i].tolist()) for name, numbers in found.items()},
        )
        for i in range(len(expansions))
    ]


def _named(compositions: Sequence[str], numbers: Sequence[float]) -> dict[str, Any]:
    """Numbers by composition, 0 where there is no such term; None where they are not defined (not numbers)."""
    defined = numbers[0] == numbers[0]
    known = dict(zip(compositions, numbers, strict=True)) if defined else {}
    return {c: known.get(c, 0.0 if defined else None) for c in COMPOSITIONS}


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


class _Tally:
    """What is asked of the parts of scores of some heads, added up over blocks of their rows."""

    def __init__(self, unit: float) -> None:
        self._unit = unit
        self.margins: Any = 0.0  # [heads]
        self._weighed: Any = 0.0  # [parts, heads]
        self._bound: Any = 0.0  # [heads]
        self._norms: list[Any] = [0.0, 0.0]  # of parts as they are and centred, [parts, heads]
        self._lengths: list[Any] = [0.0, 0.0]  # of their centred sum and of its bound, [heads]
        self._met: list[tuple[Array, Array]] = []  # of each block, <part, sum> / |sum|, and |sum| there

    def add(self, parts: Array, scale: Array, allowed: Array, weights: Array, model: Array) -> None:
        """Some rows of parts ``[parts, heads, ..., rows, n]``, the scale of their rounding, and those of the model."""
        size, seen = np.abs(parts).sum(0) + scale, centred(parts, allowed)
        self.margins = self.margins + _weighed(weights, model)
        self._weighed = self._weighed + _weighed(weights, parts)
        self._bound = self._bound + _weighed(np.abs(weights), size)
        norms = frobenius_each(np.where(allowed, parts, 0), 2), frobenius_each(seen, 2)
        self._norms = [np.hypot(before, norm) for before, norm in zip(self._norms, norms, strict=True)]
        met, *lengths = _met_centred(seen, 32 * self._unit * np.where(allowed, size, 0))
        self._lengths = [np.hypot(before, length) for before, length in zip(self._lengths, lengths, strict=True)]
        self._met.append((met, lengths[0]))

    def found(self) -> dict[str, Array]:
        """Of each part of each head, ``[parts, heads]``."""
        return {
            "shares": _shares_of_margin(self._weighed, 16 * self._unit * self._bound),
            "centred_shares": _shares_of_centred(self._met, *self._lengths),
            "norms": self._norms[0],
            "centred_norms": self._norms[1],
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
    weights = _margin_weights(pattern, allowed, _chosen(pattern.shape[-2], queries))
    return float(_weighed(weights[None], np.asarray(scores)[None])[0])


def _chosen(n: int, queries: Sequence[int] | None) -> npt.NDArray[np.bool_]:
    """Which queries count: those (None: all), ``[n, 1]``."""
    chosen = np.full((n, 1), queries is None)
    if queries is not None:
        chosen[list(queries)] = True
    return chosen


def _margin_weights(pattern: Array, allowed: Array, chosen: npt.NDArray[np.bool_]) -> Array:
    """The W, ``[..., n, n]`` in float64, with ``margin = sum_ij W_ij S_ij``: 1 at the best key, less the mean of the
    others, 0 where nothing is allowed or counted."""
    allowed = np.broadcast_to(allowed, pattern.shape)
    best = np.argmax(np.where(allowed, pattern, -np.inf), axis=-1, keepdims=True) if pattern.size else None
    others = allowed.sum(axis=-1, keepdims=True) - 1
    counted = (others > 0) & chosen
    weights = np.where(allowed & counted, -1.0 / np.maximum(others, 1), 0.0)
    if best is not None:
        np.put_along_axis(weights, best, np.where(counted, 1.0, 0.0), axis=-1)
    return weights


def _weighed(weights: Array, scores: Array) -> Array:
    """``sum_ij W_ij S_ij`` of each head, over the entries that have a weight: others may be minus infinity.

    ``weights [heads, ..., n, n]``, ``scores`` the same, with an axis of parts in front or without.
    """
    taken = np.where(weights != 0, scores, 0) * weights
    return np.asarray(taken.sum(axis=tuple(range(1 - weights.ndim, 0))))


def _shares_of_margin(parts: Array, bound: Array) -> Array:
    """Each part's share ``[parts, heads]`` of a head's margin; not a number where that is below its rounding bound."""
    total = parts.sum(0)
    return np.asarray(parts / np.where(np.abs(total) > bound, total, np.nan))


def _unit(run: Run) -> float:
    """The unit roundoff; of float32 itself, products would be in float32 and overflow."""
    return float(np.finfo(run.dtype).eps) / 2


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
    allowed, parts = np.isfinite(run.scores[_label(expansion)]), np.stack([*sums.values()])
    size = np.abs(parts).sum(0) + rounding_scale(expansion.target, run)
    bound = 32 * _unit(run) * np.where(allowed, size, 0)
    met, *lengths = _met_centred(centred(parts, allowed)[:, None], bound[None])
    found = _shares_of_centred([(met, lengths[0])], *lengths)[:, 0].tolist()
    return {c: None if share != share else share for c, share in zip(sums, found, strict=True)}


def _met_centred(parts: Array, bound: Array) -> tuple[Array, Array, Array]:
    """``<part, sum> / |sum|`` of centred parts ``[parts, heads, ..., rows, n]``, ``|sum|``, and that of its bound.

    ``bound``: of each entry, twice that of a sum, as centring rounds too.
    """
    wide, axes = parts.astype(np.float64, copy=False), tuple(range(2 - parts.ndim, 0))
    total = wide.sum(0)
    length = frobenius_each(total, 1)
    unit = np.where(length > 0, length, 1.0).reshape(-1, *(1,) * len(axes))
    return np.asarray((wide * (total / unit)).sum(axis=axes)), length, frobenius_each(bound, 1)


def _shares_of_centred(met: Sequence[tuple[Array, Array]], length: Array, bound: Array) -> Array:
    """Of each part ``[parts, heads]`` by what blocks of rows gave; not a number where it is not defined."""
    defined = np.where(length > bound, length, np.nan)
    return np.asarray(sum(part * (of / defined) for part, of in met) / defined)
