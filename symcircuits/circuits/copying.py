"""Copying and matching: three scores known by these names, each here under a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from symcircuits.circuits.chance import PositivityChance, positivity_chance
from symcircuits.circuits.spectrum import Spectrum
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown

__all__ = ["DEFINITIONS", "MEANS", "NOT_SUFFICIENT", "DiagonalScores", "diagonal_scores"]

DEFINITIONS: Final = {
    "eigenvalue_positivity": "sum of eigenvalues over sum of their moduli, from -1 to 1 (the paper's)",
    "positive_diagonal": "share of tokens whose entry with themselves is positive",
    "top_of_diagonal": "share of tokens whose entry with themselves is larger than all their other entries",
}
NOT_SUFFICIENT: Final = (
    "each is necessary and not sufficient: [[-1, 3], [-2, 4]] has eigenvalues 1 and 2, positivity 1, and gives its "
    "first token -1 with itself"
)
MEANS: Final = {  # the meaning of the counterexample in NOT_SUFFICIENT for an OV and for a QK circuit
    "copying": "an OV circuit with these entries lowers the logit of that token when it reads it",
    "matching": "in a QK circuit with these entries a query with that token attends to the other one",
}


@final
@dataclass(frozen=True, slots=True, repr=False)
class DiagonalScores(Shown):
    """``eigenvalue_positivity`` (None, with a ``reason``, if it is 0 / 0), ``positive_diagonal``, ``top_of_diagonal``.

    ``name``: ``copying`` or ``matching``. ``error``: the estimated error of positivity. ``tokens``: how many there are;
    ``ties``: for how many of them another entry equals a maximal diagonal one. ``DEFINITIONS`` defines
    each, ``by_chance`` has the values for random matrices.
    """

    name: str
    eigenvalue_positivity: float | None
    error: float | None
    positive_diagonal: float
    top_of_diagonal: float
    tokens: int
    ties: int
    chance: PositivityChance
    reason: str = ""

    @property
    def by_chance(self) -> dict[str, float]:
        """The means of the three for random matrices; for positivity ``chance`` has the spread."""
        return {
            "eigenvalue_positivity": self.chance.mean, "positive_diagonal": 0.5, "top_of_diagonal": 1 / self.tokens,
        }  # fmt: skip

    def json(self) -> dict[str, Any]:
        """The same as plain data."""
        return higher(dict, "DiagonalScores.json")(self)


def diagonal_scores(
    name: str, spectrum: Spectrum, diagonal: npt.NDArray[np.float64],
    above: npt.NDArray[np.int64], equal: npt.NDArray[np.int64],
) -> DiagonalScores:  # fmt: skip
    """The three scores, from a spectrum, a diagonal, and how many entries are above and equal to each entry of it.

    >>> spectrum = Spectrum(np.array([2, 1 + 0j]), 0, 3.0, 1.0, 0.0)
    >>> found = diagonal_scores("copying", spectrum, np.array([-1.0, 4.0]), np.array([1, 0]), np.array([0, 0]))
    >>> found.eigenvalue_positivity, found.positive_diagonal, found.top_of_diagonal
    (1.0, 0.5, 0.5)
    """
    return DiagonalScores(
        name=name, eigenvalue_positivity=spectrum.positivity, error=spectrum.error,
        positive_diagonal=float((diagonal > 0).mean()), top_of_diagonal=float(((above == 0) & (equal == 0)).mean()),
        tokens=len(diagonal), ties=int(((above == 0) & (equal > 0)).sum()), reason=spectrum.reason,
        chance=positivity_chance(len(spectrum.values)),
    )  # fmt: skip
