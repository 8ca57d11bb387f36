"""symcircuits: the algebra of transformer circuits, derived, verified and evaluated.

Every name is loaded when it is first used, so that ``import symcircuits`` stays fast and imports neither
SymPy nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "attention_only": "architecture",
    "transformer": "architecture",
    "Architecture": "architecture",
    "Head": "architecture",
    "IllTyped": "algebra",
    "Word": "algebra",
    "Expansion": "expansion",
    "Term": "terms",
    "expand": "expansion",
    "logits": "expansion",
    "scores": "expansion",
    "stream": "expansion",
    "check": "checking",
    "Verdict": "verdicts",
    "ReadError": "reading",
    "Model": "model",
    "Run": "model",
    "Settings": "model",
    "Tensors": "model",
    "random_model": "model",
    "readout": "model",
    "source": "model",
    "change_basis": "model",
    "fold": "model",
    "load": "loaders",
    "from_arrays": "loaders",
    "from_cache": "loaders",
    "evaluate": "evaluation",
    "blocks": "term_blocks",
    "census": "term_census",
    "TermBlock": "term_blocks",
    "export_terms": "term_export",
    "verify": "verification",
    "derive": "derivation",
    "theorem": "derivation",
    "theorems": "derivation",
    "explain": "explanation",
    "explain_many": "averages",
    "Notation": "notation",
    "compare_with_reference": "recorded",
    "remove_heads": "interventions",
    "remove_scores": "interventions",
    "unfrozen": "polynomials",
    "largest": "ranking",
    "squares": "square_sums",
    "sample": "sampling",
    "term_sizes": "measured",
    "norms": "term_norms",
    "contributions": "term_entries",
    "entries": "term_entries",
    "term_values": "value_blocks",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symcircuits' has no attribute {name!r}")
    value = getattr(import_module(f"symcircuits.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
