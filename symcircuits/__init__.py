"""symcircuits: the algebra of transformer circuits, derived, verified and evaluated.

Every name is loaded when it is first used, so that ``import symcircuits`` stays fast and imports neither
SymPy nor NumPy. Type checkers read the imports below instead; a test checks that both have the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symcircuits.core.version import VERSION

if TYPE_CHECKING:
    from symcircuits.checking.check import check as check
    from symcircuits.circuits.circuit import circuit as circuit
    from symcircuits.circuits.composition import composition_scores as composition_scores
    from symcircuits.circuits.invariances import invariances as invariances
    from symcircuits.core.architecture import Architecture as Architecture
    from symcircuits.core.architecture import attention_only as attention_only
    from symcircuits.core.architecture import transformer as transformer
    from symcircuits.core.expansion import Expansion as Expansion
    from symcircuits.core.expansion import expand as expand
    from symcircuits.core.expansion import logits as logits
    from symcircuits.core.expansion import scores as scores
    from symcircuits.core.expansion import stream as stream
    from symcircuits.core.notation import Notation as Notation
    from symcircuits.core.terms import Term as Term
    from symcircuits.derivation.derive import derive as derive
    from symcircuits.derivation.derive import theorem as theorem
    from symcircuits.derivation.derive import theorems as theorems
    from symcircuits.explanation.ablation import remove_heads as remove_heads
    from symcircuits.explanation.ablation import remove_scores as remove_scores
    from symcircuits.explanation.explain import explain as explain
    from symcircuits.explanation.many import explain_many as explain_many
    from symcircuits.loaders import from_arrays as from_arrays
    from symcircuits.loaders import from_cache as from_cache
    from symcircuits.loaders import load as load
    from symcircuits.model import Model as Model
    from symcircuits.model import Run as Run
    from symcircuits.model import Settings as Settings
    from symcircuits.model import Tensors as Tensors
    from symcircuits.model import change_basis as change_basis
    from symcircuits.model import fold as fold
    from symcircuits.model import random_model as random_model
    from symcircuits.model import readout as readout
    from symcircuits.model import source as source
    from symcircuits.sympy_layer.reading import read as read
    from symcircuits.sympy_layer.streams import symbolic as symbolic
    from symcircuits.values.evaluate import evaluate as evaluate
    from symcircuits.values.isolate import isolate as isolate
    from symcircuits.values.measure import logit as logit
    from symcircuits.values.measure import norm as norm
    from symcircuits.values.measure import score_entry as score_entry
    from symcircuits.verification.reference import compare_with_reference as compare_with_reference
    from symcircuits.verification.verify import verify as verify

__version__ = VERSION

_HOME = {
    "attention_only": "core.architecture",
    "transformer": "core.architecture",
    "Architecture": "core.architecture",
    "Expansion": "core.expansion",
    "Term": "core.terms",
    "expand": "core.expansion",
    "logits": "core.expansion",
    "scores": "core.expansion",
    "stream": "core.expansion",
    "check": "checking.check",
    "symbolic": "sympy_layer.streams",
    "read": "sympy_layer.reading",
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
    "isolate": "values.isolate",
    "norm": "values.measure",
    "logit": "values.measure",
    "score_entry": "values.measure",
    "composition_scores": "circuits.composition",
    "invariances": "circuits.invariances",
    "circuit": "circuits.circuit",
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
}
__all__ = [
    "__version__",
    "attention_only",
    "transformer",
    "Architecture",
    "Expansion",
    "Term",
    "expand",
    "logits",
    "scores",
    "stream",
    "check",
    "symbolic",
    "read",
    "Model",
    "Run",
    "Settings",
    "Tensors",
    "random_model",
    "readout",
    "source",
    "change_basis",
    "fold",
    "load",
    "from_arrays",
    "from_cache",
    "evaluate",
    "isolate",
    "norm",
    "logit",
    "score_entry",
    "composition_scores",
    "invariances",
    "circuit",
    "verify",
    "derive",
    "theorem",
    "theorems",
    "explain",
    "explain_many",
    "Notation",
    "compare_with_reference",
    "remove_heads",
    "remove_scores",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any misspelt name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOME:
            raise AttributeError(f"module 'symcircuits' has no attribute {name!r}")
        value = getattr(import_module(f"symcircuits.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
