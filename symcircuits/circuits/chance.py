"""Composition scores by chance: those of random heads of the same shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["SEED", "Chance", "PositivityChance", "Shapes", "chance", "positivity_chance"]

Array = npt.NDArray[np.float64]
SEED: Final = 20211222
# Number of samples: 1,000 (z to some percent) unless that takes many seconds; within these bounds.
_NUMBERS, _FEWEST, _ENOUGH, _MOST = 1 << 23, 200, 1_000, 10_000
_AT_ONCE: Final = 1 << 20  # numbers
_WIDEST, _EIGENVALUES = 64, 1 << 19


class Shapes(NamedTuple):
    """The shapes of a pair: ``A [left, middle]`` of rank at most ``later``, ``B [write, right]`` of rank ``earlier``.

    ``middle`` is less than ``write`` if a norm centres the input of ``A``.
    """

    left: int
    middle: int
    write: int
    right: int
    later: int
    earlier: int


@dataclass(frozen=True, slots=True)
class Chance:
    """The score of random heads of these shapes: mean and standard deviation over ``samples``, drawn with ``seed``.

    ``about``: ``1 / sqrt(d_model)``, which the mean approaches in large models.
    """

    shapes: Shapes
    mean: float
    std: float
    samples: int
    seed: int = SEED

    @property
    def about(self) -> float:
        """``1 / sqrt(d_model)``."""
        return 1 / math.sqrt(self.shapes.write)


@lru_cache(maxsize=256)
def chance(shapes: Shapes) -> Chance:
    """Scores ``|A B| / (|A| |B|)`` of factors with independent normal entries, sampled once for each shape.

    With ``A = L M^T`` and ``B = W V^T`` only triangles are drawn: those of ``L``, ``M`` and ``V`` by QR have the
    distribution found by Bartlett, and the directions that ``M`` spans may be taken to be the first ones, so for ``W``
    the first rows are drawn, and for the rest a triangle. Source: Bartlett (1933) for the triangles; the rest is an own
    derivation. The paper asks for "the empirical expected amount for random matrices of the same shapes".

    >>> found = chance(Shapes(64, 64, 64, 64, 16, 16))
    >>> round(found.mean, 2), found.about
    (0.12, 0.125)
    """
    each = 2 * shapes.later**2 + 3 * shapes.earlier**2  # numbers of one sample, at most
    samples = max(_FEWEST, min(_MOST, _NUMBERS // each), min(_ENOUGH, 4 * _NUMBERS // each))
    draws, scores = np.random.default_rng(SEED), []
    step = max(_AT_ONCE // each, 1)
    for at in range(0, samples, step):
        scores.append(_scores(draws, min(step, samples - at), shapes))
    found = np.concatenate(scores)
    return Chance(shapes, float(found.mean()), float(found.std(ddof=1)), samples)


@dataclass(frozen=True, slots=True)
class PositivityChance:
    """Eigenvalue positivity of random matrices ``[width, width]``: its spread; the mean is 0 by symmetry."""

    width: int
    std: float
    samples: int
    seed: int = SEED
    mean: float = 0.0


@lru_cache(maxsize=64)
def positivity_chance(width: int) -> PositivityChance:
    """Positivity of matrices with independent normal entries (Ginibre), the paper's reference (footnote 17).

    For a circuit as narrow as ``width`` in a large vocabulary; if the vocabulary is not much larger than d_model,
    random heads spread up to 1.4 times as much. Above a width of 64 the spread of width 64 is extrapolated as 1 /
    width.

    >>> found = positivity_chance(4)
    >>> found.mean, round(found.std, 1)
    (0.0, 0.4)
    """
    size = min(width, _WIDEST)
    samples = min(max(_EIGENVALUES // size**2, 200), 2_000)
    matrices = np.random.default_rng(SEED).standard_normal((samples, size, size))
    moduli = np.abs(np.linalg.eigvals(matrices)).sum(1)
    scores = np.trace(matrices, axis1=1, axis2=2) / moduli
    return PositivityChance(width, float(np.sqrt((scores**2).mean())) * size / width, samples)


def _scores(draws: np.random.Generator, count: int, shapes: Shapes) -> Array:
    left = _triangles(draws, count, shapes.left, shapes.later)
    middle = _triangles(draws, count, shapes.middle, shapes.later)
    right = _triangles(draws, count, shapes.right, shapes.earlier).swapaxes(1, 2)
    seen = draws.standard_normal((count, middle.shape[1], shapes.earlier))
    unseen = _triangles(draws, count, shapes.write - middle.shape[1], shapes.earlier)
    a = left @ middle.swapaxes(1, 2)
    reached, rest = seen @ right, unseen @ right
    norms = np.sqrt(_squares(a) * (_squares(reached) + _squares(rest)))
    return np.asarray(np.sqrt(_squares(a @ reached)) / norms)


def _triangles(draws: np.random.Generator, count: int, rows: int, columns: int) -> Array:
    """R of the QR of ``count`` normal matrices ``[rows, columns]``."""
    least = min(rows, columns)
    found = np.triu(draws.standard_normal((count, least, columns)), 1)
    diagonal = np.arange(least)
    found[:, diagonal, diagonal] = np.sqrt(draws.chisquare(rows - diagonal, (count, least)))
    return np.asarray(found)


def _squares(matrices: Array) -> Array:
    return np.asarray(np.einsum("tij,tij->t", matrices, matrices))
