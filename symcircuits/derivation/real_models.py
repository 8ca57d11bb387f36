"""A real model for the claims of a result: random weights, run from the definition, softmax, norms and GeLU included.

Where a result has a recursion of its own, the expansion it ends in is held against the logits of such a run: what the
result holds fixed takes the values that this run has. Every size is the same, so that any letter fits anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array, Floats
from symcircuits.core.architecture import transformer
from symcircuits.derivation.nodes import Expr, Sign, Special, node
from symcircuits.derivation.values import Bindings, Instance
from symcircuits.model import Run, matrices_of, random_model

__all__ = ["SIZE", "TOLERANCE", "ModelLogits", "RealModel", "RealModelRun"]

SIZE = 5
TOLERANCE = 1e-10  # of the largest entry; rounding in float64 stays thousands of times below
_TOKENS = (3, 1, 4, 1, 0)


@dataclass(frozen=True, slots=True)
class RealModel:
    """Which model, in words and as options of ``transformer``, and what the letters of a result are in its run.

    ``letters``: the name of one of its matrices, or a function of the run.
    """

    words: str
    options: dict[str, Any]
    letters: Mapping[str, str | Callable[[Run], Array]] = field(default_factory=dict)

    def run(self, heads: tuple[int, ...], seed: int) -> RealModelRun:
        """A run of such a model with these heads."""
        arch = transformer(heads, **self.options)
        k = SIZE
        model = random_model(arch, d_vocab=k, d_model=k, d_head=k, d_mlp=k, n_context=k, seed=seed)
        run = model.run(list(_TOKENS))
        found = RealModelRun(arch, "logits", k, seed, trials=1)
        known = {**run.model.weights, **matrices_of(run)}
        letters = {
            name: np.asarray(known[what] if isinstance(what, str) else what(run)) for name, what in self.letters.items()
        }
        found.take(run, letters)
        return found


@node()
@dataclass(frozen=True, slots=True, repr=False)
class ModelLogits(Special):
    """The logits that the model itself computes: its own patterns, norms and activations."""

    def written(self) -> tuple[Sign | Expr, ...]:
        return (Sign("logits", r"\mathrm{logits}", glyph="logits"), Sign("(model)", r"^{(\text{model})}"))

    def value(self, at: Instance, bindings: Bindings) -> Array:
        if not isinstance(at, RealModelRun):
            raise TypeError("the logits of a model have a value on a run of it only")
        return at.logits


@dataclass
class RealModelRun(Instance):
    """An instance whose matrices are those of a run, and whose logits are what the model computed."""

    ring: Any = field(default_factory=Floats)

    def take(self, run: Run, letters: Mapping[str, Array]) -> None:
        """Take the matrices of the run, and the letters, in place of drawn ones."""
        assert run.logits is not None
        self.logits = run.logits
        self.drawn.update(matrices_of(run))
        self.drawn.update({f"a matrix called {name}": value for name, value in letters.items()})

    def centring(self) -> Array:
        """``Id - 1 1^T / k``."""
        return np.asarray(np.eye(self.k) - 1 / self.k)

    def agrees(self, a: Array, b: Array) -> bool:
        """Whether two matrices are equal up to rounding."""
        a, b = np.broadcast_arrays(a, b)
        return bool(abs(a - b).max() <= TOLERANCE * max(1.0, abs(a).max()))
