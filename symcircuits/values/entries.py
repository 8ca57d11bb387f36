"""What every term adds to one logit, one difference of logits or one score."""

from __future__ import annotations

from symcircuits.values.engine import AtOnce, Engine, Ranges
from symcircuits.values.measure import Measure
from symcircuits.values.pairs import Pairs

__all__ = ["contributions", "entries"]


def contributions(values: Engine, by: Measure) -> Ranges:
    """What each term adds to a logit, or to a difference of two, ``[terms, ...]``; for a run by endings of paths.

    Method: :mod:`symcircuits.values.endings`. For arrays of other libraries one row of the unembedding reads one
    position.
    """
    assert by.position is not None
    return values.contributions(by.position, by.chosen)


def entries(values: Engine, by: Measure) -> Ranges:
    """One entry of each score term, ``s <q_p, k_r>``, ``[terms, ...]``; before the mask.

    For a run, one product ``[queries, d_head] [d_head, keys]`` for many query paths. Source: own derivation.
    """
    found = values.all_terms()
    if found is not None:
        return AtOnce(found.ordered(found.values[:, :, by.position, by.key]))
    return Pairs(values, values.arithmetic.entries_of_pairs(), (by.position, by.key)).numbers
