"""A run's arrays as the walk multiplies with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.model import Run

__all__ = ["RunFactors"]


class RunFactors(Mapping[str, Any]):
    """A run's arrays as products need them: biases as columns, the matrices of norms not written out."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        glyph, _, label = name.partition("_")
        if glyph not in ("D", "C", "gain"):  # the run says what is kept of these
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
