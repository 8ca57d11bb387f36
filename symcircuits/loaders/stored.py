"""Weights as they stand in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symcircuits.arrays.rings import Array

__all__ = ["Stored"]


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Weights as they stand in a file, and the type of number each is stored in (``bfloat16`` is read as float32).

    ``mapped``: how many bytes of them lie in a file that is mapped, not copied.
    """

    weights: Mapping[str, Array]
    dtypes: Mapping[str, str]
    mapped: int = 0
