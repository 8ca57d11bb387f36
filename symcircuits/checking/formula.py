"""A formula as a sum of raw words: coefficient, score scales, letters with their places; types are not checked.

This makes it possible to read a wrong formula and explain what is wrong with it. Letters are always in the paper's
convention, words in row form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from symcircuits.core.notation import letter_text
from symcircuits.core.symbols import SYMMETRIC

__all__ = ["CONVENTIONS", "MAX_FACTORS", "MAX_STEPS", "MAX_WORDS", "Formula", "Letter", "RawFactor", "RawWord"]

MAX_FACTORS: Final = 1_000  # of one word
MAX_WORDS: Final = 20_000  # products after multiplying out
MAX_STEPS: Final = 600_000  # of multiplying out
# The notation in which the products of each convention are printed: a map, as the paper prints it, acts on its source.
CONVENTIONS: Final = {"paper": "row", "row": "row", "columns": "row", "transformerlens": "transformerlens"}


class Letter(NamedTuple):
    """A matrix symbol by name, transposed or not, in the paper's convention: ``W_OV[L0H1].T``."""

    glyph: str
    label: str = ""
    transposed: bool = False

    @property
    def text(self) -> str:
        """Text notation."""
        return letter_text(*self)

    @property
    def T(self) -> Letter:
        """The transpose; a symmetric matrix is its own."""
        return Letter(self.glyph, self.label, not self.transposed and self.glyph not in SYMMETRIC)

    @property
    def name(self) -> tuple[str, str]:
        """Glyph and label, without the transpose."""
        return self.glyph, self.label


class RawFactor(NamedTuple):
    """A letter and its place in the text."""

    letter: Letter
    at: int


class RawWord(NamedTuple):
    """One product as it was written, not checked."""

    coefficient: int
    scales: tuple[str, ...]
    factors: tuple[RawFactor, ...]

    @property
    def letters(self) -> tuple[Letter, ...]:
        """The factors without their positions."""
        return tuple(f.letter for f in self.factors)

    @property
    def at(self) -> int:
        """The place of its first factor."""
        return self.factors[0].at if self.factors else 0

    @property
    def T(self) -> RawWord:
        """The transposed product."""
        flipped = tuple(RawFactor(f.letter.T, f.at) for f in reversed(self.factors))
        return RawWord(self.coefficient, self.scales, flipped)


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of raw words, and the target that its left-hand side named, if it had one."""

    words: tuple[RawWord, ...]
    target: str | None = None
