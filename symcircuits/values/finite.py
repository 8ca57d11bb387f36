"""Terms and sums that are not finite numbers: errors that name the first such term."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion
from symcircuits.model import Run

__all__ = ["finite", "not_finite", "quiet", "remedy", "too_large"]

Array = npt.NDArray[Any]
T = TypeVar("T")
LOOKED = 2000  # terms checked to name the first that is not finite


def remedy(dtype: Any) -> str:
    """What to do if intermediate numbers leave the range of a type.

    >>> remedy("float32"), remedy("float64")
    ('run in float64, or scale the weights', 'scale the weights')
    """
    return "run in float64, or scale the weights" if np.dtype(dtype).itemsize < 8 else "scale the weights"


def not_finite(expansion: Expansion, what: str, number: int, of: Any, remedy: str) -> ValueError:
    """The error for a term that is not finite in the type ``of``, by its number and name."""
    return ValueError(
        f"{what} of term {number} ({expansion[number].label}) is not finite: numbers leave the range of {of} during "
        f"the computation; {remedy}"
    )


def too_large(target: str, run: Run) -> str:
    """The message that terms of a target, or the bound of their sum, are not finite, and what to do."""
    whose = "of weights, readouts and sources" if run.model.architecture.attachments else "of the weights"
    more = "; try dtype float64" if run.dtype == np.float32 else ""
    return (
        f"the terms of {target.replace(':', ' ')}, or the bound of their sum, leave the range of {run.dtype}, so "
        f"they cannot be checked: numbers {whose} are too large{more}"
    )


def quiet(pieces: Iterator[T]) -> Iterator[T]:
    """A context without warnings: numbers that are not finite raise, or are returned unchecked.

    Even a product of finite matrices may warn of invalid values: kernels of BLAS compute beyond the matrix.
    """
    while True:
        with np.errstate(invalid="ignore", over="ignore"):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def finite(values: Any, what: str, value: Array) -> Array:
    """A sum of terms of ``values``; ValueError if a number in it is not finite, naming the sum and a term."""
    if np.isfinite(value).all():
        return value
    terms, named = getattr(values, "expansion", None) or values.terms, ""
    with np.errstate(over="ignore", invalid="ignore"):
        for i, one in enumerate(islice(values, LOOKED)):
            if not np.isfinite(one).all():
                named = f", nor is term {i:,} ({terms[i].label})"
                break
    raise ValueError(f"{what} is not finite{named}: {too_large(terms.target, values.run)}")
