"""A run's arrays in the form that the walk multiplies, with the heads of a layer at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.programs import Branch
from symcircuits.core.walk import Matrices
from symcircuits.core.words import Factor
from symcircuits.model import Run

__all__ = ["RunFactors", "RunMatrices"]

Array = npt.NDArray[Any]
ADDED = 2048  # summands of one product: BLAS may add them in order, so larger sums are split and added in pairs


class RunFactors(Mapping[str, Any]):
    """A run's arrays in the form that products need: biases as columns, structured matrices for norms."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        glyph, _, label = name.partition("_")
        if glyph not in ("D", "C", "gain"):  # the run determines what is cached of these
            array = self._run.arrays[name]
            return array[:, None] if array.ndim == 1 else array
        if name not in self._made:
            self._made[name] = self._make(glyph, label, name)
        return self._made[name]

    def _make(self, glyph: str, label: str, name: str) -> Any:
        if glyph == "D":
            return Diagonal(self._run.norms[label])
        return Centring(self._run.model.d_model) if glyph == "C" else Diagonal(self._run.arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.arrays)

    def __len__(self) -> int:
        return len(self._run.arrays)


@final
class RunMatrices(Matrices):
    """Matrices of floating-point numbers: the joint output of heads of a layer is one product for all of them."""

    __slots__ = ()

    def together(self, branches: Sequence[Branch], values: Sequence[Array]) -> list[Array]:
        """For each value the sum over the heads: ``[A^1 Y W_V^1T, A^2 Y W_V^2T, ...] [W_O^1, W_O^2, ...]^T``.

        Values of one shape go through together. ``Y`` is the output of the norm, computed once for all heads.
        """
        first = branches[0]
        if first.head is None or len({(b.left[1:], b.right[:-2], b.scales) for b in branches}) > 1:
            return [self.add([self.branch(b, value) for b in branches]) for value in values]
        patterns, w_v, w_o = ([self.factor(f) for f in some] for some in zip(*map(_chosen, branches), strict=True))
        into, out = np.concatenate(w_v, axis=-1), np.concatenate(w_o, axis=-2)
        found: dict[int, Array] = {}
        for shape in dict.fromkeys(value.shape for value in values):
            places = [i for i, value in enumerate(values) if value.shape == shape]
            rows = (1,) * (patterns[0].ndim - len(shape))  # for a batch whose rows are still equal
            stack = np.stack([values[i].reshape(*rows, *shape) for i in places])
            inside = _product(self.chain(first.right[:-2], stack), into)
            for factor in reversed(first.left[1:]):
                inside = self.ring.matmul(self.factor(factor), inside)
            each = np.split(inside, np.cumsum([w.shape[-1] for w in w_v[:-1]]), axis=-1)
            mixed = np.concatenate([a @ one for a, one in zip(patterns, each, strict=True)], axis=-1)
            parts = [slice(k, k + ADDED) for k in range(0, max(len(out), 1), ADDED)]
            total = self.add([_product(mixed[..., part], out[part]) for part in parts])
            found |= dict(zip(places, self.scaled(first.scales, total), strict=True))
        return [found[i] for i in range(len(values))]


def _chosen(branch: Branch) -> tuple[Factor, Factor, Factor]:
    """The pattern of a head, and its maps into and out of its value space."""
    return branch.left[0], branch.right[-2], branch.right[-1]


def _product(rows: Array, matrix: Array) -> Array:
    """All rows times a matrix, as one product."""
    return (rows.reshape(-1, len(matrix)) @ matrix).reshape(*rows.shape[:-1], matrix.shape[-1])
