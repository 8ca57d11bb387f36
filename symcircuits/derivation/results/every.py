"""All modules of results: importing this one registers every result."""

from symcircuits.derivation.results import basis as results_basis
from symcircuits.derivation.results import heads as results_heads
from symcircuits.derivation.results import norms as results_norms
from symcircuits.derivation.results import polynomials as results_polynomials
from symcircuits.derivation.results import runs as results_runs
from symcircuits.derivation.results import scores as results_scores

__all__ = [
    "results_basis", "results_heads", "results_norms", "results_polynomials", "results_runs", "results_scores",
]  # fmt: skip
