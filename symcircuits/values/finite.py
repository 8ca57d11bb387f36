"""Terms and sums of terms that are not finite numbers: refused, naming the first term that is not."""

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
LOOKED = 2000  # terms that are looked at to name the first that is not a number


def remedy(dtype: Any) -> str:
    """What may be done where numbers leave the range of a type on the way.

    >>> remedy("float32"), remedy("float64")
    ('run in float64, or scale the weights', 'scale the weights')
    """
    return "run in float64, or scale the weights" if np.dtype(dtype).itemsize < 8 else "scale the weights"


def not_finite(expansion: Expansion, what: str, number: int, of: Any, remedy: str) -> ValueError:
    """That something of a term is not finite in the type ``of``, by the term's number and name."""
    return ValueError(
        f"{what} of term {number} ({expansion[number].label}) is not finite: numbers leave the range of {of} on the "
        f"way; {remedy}"
    )


def too_large(target: str, run: Run) -> str:
    """That terms of a target, or the bound of their sum, are not finite numbers, and what may be done."""
    whose = "of weights, readouts and sources" if run.model.architecture.attachments else "of the weights"
    more = "; try dtype float64" if run.dtype == np.float32 else ""
    return (
        f"the terms of {target.replace(':', ' ')}, or the bound of their sum, leave the range of {run.dtype}, so that "
        f"nothing can be said of them: numbers {whose} are too large{more}"
    )


def quiet(pieces: Iterator[T]) -> Iterator[T]:
    """Without warnings: what is not finite is refused by name, or given as it is.

    A product of finite matrices may warn of invalid values all the same: kernels of BLAS compute beside the matrix.
    """
    while True:
        with np.errstate(invalid="ignore", over="ignore"):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def finite(values: Any, what: str, value: Array) -> Array:
    """The value, a sum of terms of ``values``; ValueError where a number of it is none: of what, and which term is."""
    if np.isfinite(value).all():
        return value
    terms, named = getattr(values, "expansion", None) or values.terms, ""
    with np.errstate(over="ignore", invalid="ignore"):
        for i, one in enumerate(islice(values, LOOKED)):
            if not np.isfinite(one).all():
                named = f", nor is term {i:,} ({terms[i].label})"
                break
    raise ValueError(f"{what} is not finite{named}: {too_large(terms.target, values.run)}")
