"""All modules of results: importing this one registers every result."""

from symcircuits.derivation import (
    results_basis,
    results_heads,
    results_norms,
    results_polynomials,
    results_runs,
    results_scores,
)

__all__ = [
    "results_basis", "results_heads", "results_norms", "results_polynomials", "results_runs", "results_scores",
]  # fmt: skip
