"""symcircuits: the algebra of transformer circuits, derived, verified and evaluated.

Every name is loaded when it is first used, so that ``import symcircuits`` stays fast and imports neither
SymPy nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "attention_only": "core.architecture",
    "transformer": "core.architecture",
    "Architecture": "core.architecture",
    "Head": "core.architecture",
    "IllTyped": "core.words",
    "Word": "core.words",
    "Expansion": "core.expansion",
    "Term": "core.terms",
    "expand": "core.expansion",
    "logits": "core.expansion",
    "scores": "core.expansion",
    "stream": "core.expansion",
    "check": "checking.check",
    "Verdict": "checking.verdict",
    "ReadError": "checking.parser",
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
    "evaluate": "values.evaluate",
    "blocks": "tables.blocks",
    "census": "tables.census",
    "TermBlock": "tables.blocks",
    "export_terms": "tables.export",
    "verify": "verification.verify",
    "derive": "derivation.derive",
    "theorem": "derivation.derive",
    "theorems": "derivation.derive",
    "explain": "explanation.explain",
    "explain_many": "explanation.many",
    "Notation": "core.notation",
    "compare_with_reference": "verification.reference",
    "remove_heads": "explanation.ablation",
    "remove_scores": "explanation.ablation",
    "unfrozen": "core.unfrozen.unfrozen",
    "largest": "search.largest",
    "squares": "search.squares",
    "sample": "search.sample",
    "term_sizes": "values.sizes",
    "norms": "values.norms",
    "contributions": "values.entries",
    "entries": "values.entries",
    "term_values": "values.term_values",
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
