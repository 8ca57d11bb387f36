"""All results: importing this module registers every one."""

from __future__ import annotations

# Each module registers its results when it is imported.
from symcircuits.derivation.results import basis, heads, norms, polynomials, runs, scores
from symcircuits.derivation.results.registry import RESULTS, Result

__all__ = ["basis", "heads", "norms", "polynomials", "registered", "runs", "scores"]


def registered(name: str) -> Result:
    """A result by its name; ValueError lists the names where there is none."""
    if name not in RESULTS:
        raise ValueError(f"no result {name!r}; the results are {', '.join(sorted(RESULTS))}")
    return RESULTS[name]
