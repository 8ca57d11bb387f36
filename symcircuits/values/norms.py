"""The Frobenius norms of all terms; for a run without forming any: neither vocabulary nor pairs of positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from symcircuits.values.engine import AtOnce, Engine, Ranges, Span
from symcircuits.values.measure import Measure
from symcircuits.values.pairs import Pairs
from symcircuits.values.run_arithmetic import lengths

__all__ = ["norms"]


def norms(values: Engine, by: Measure) -> Ranges:
    """The Frobenius norm of each term, ``[terms, ...]``; for a run in float64.

    For logits and the stream ``|Z R|`` with ``Z [n_context, d_head]`` a path's part in its last head's values and
    ``R = W_O^T W_U^T = (Q L)^T``: ``|Z R| = |Z L^T|``, so the vocabulary does not enter. For scores by Gram matrices,
    ``|Q K^T|^2 = <Q^T Q, K^T K>``, for all pairs of a block of query paths one product; a masked norm counts only the
    entries that the mask leaves, ``sum_i q_i (sum_j M_ij k_j^T k_j) q_i^T``. The error of a norm is at most some
    ``sqrt(u)`` of ``|Q| |K|`` if a term nearly cancels; for arrays of other libraries score terms are formed. Terms
    before a range are skipped, not computed (for scores the last digits may depend on the grouping of products).
    Source: own derivation.
    """
    mask, found = values.mask() if by.kind == "masked norm" else None, values.all_terms()
    if found is not None:
        return AtOnce(found.ordered(lengths(found.values if mask is None else found.values * mask)))
    if values.expansion.readout.bilinear:
        return Pairs(values, values.arithmetic.lengths_of_pairs(mask)).numbers
    short = values.shorter()
    paths, measured, weights = short.paths(0), short.arithmetic.lengths, values.expansion._weights

    def numbers(terms: range, span: Span) -> Iterator[Any]:
        return (measured(piece.values) for piece in paths.pieces(weights, span, narrow=True))

    return numbers
