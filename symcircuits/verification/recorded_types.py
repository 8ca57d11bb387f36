"""The number type of recorded activations, determined from the numbers themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["notes_of", "runs_in", "unit_of"]

Array = npt.NDArray[Any]
_OF_NORMS = re.compile(r"ln(1|2|_final)\.hook_")
_TELLING = 16  # nonzero numbers needed to determine a type
_SHORTER = {"float64": ("bfloat16", "float16", "float32"), "float32": ("bfloat16", "float16")}
_UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def runs_in(arrays: Mapping[str, Array], dtypes: Mapping[str, str]) -> dict[str, str]:
    """For each wider type in which arrays are recorded, the shorter type of the run that produced them, if it was one.

    >>> third = np.float32(1) / np.arange(3, 40, dtype=np.float32)
    >>> half = third.astype(np.float16).astype(np.float32)
    >>> runs_in({"a": half}, {"a": "float32"}), runs_in({"a": third}, {"a": "float32"})
    ({'float32': 'float16'}, {})
    """
    return {dtype: told for dtype in _SHORTER if (told := _run_in(arrays, dtypes, dtype))}


def unit_of(name: str, recorded: Array, dtype: str, stored: str) -> float:
    """The unit roundoff of the recorded numbers.

    A run in half precision also leaves float32 numbers: norms are computed in float32 from a stream in half precision,
    and a file format without bfloat16 stores it widened. So for a model whose weights are ``stored`` in half precision
    these have its unit: the outputs of norms, and float32 numbers that it can all represent.
    """
    half = next((t for t in ("bfloat16", "float16") if t in stored.split(", ")), None)
    if dtype == "float32" and half is not None and (_OF_NORMS.search(name) or _holds(half, recorded)):
        return _UNITS[half]
    return _UNITS.get(dtype, 2.0**-53)


def _run_in(arrays: Mapping[str, Array], dtypes: Mapping[str, str], dtype: str) -> str:
    """The shorter type of a run whose numbers were recorded in a wider one (``dtype``); empty if there was none.

    The type can represent all numbers recorded so (except norms, which are computed in a wider type), and its
    last bit is used: whole numbers and simple fractions, which every type can represent, are inconclusive.
    """
    stream = [a for name, a in arrays.items() if dtypes[name] == dtype and not _OF_NORMS.search(name)]
    for kind in _SHORTER[dtype]:
        if all(_holds(kind, array) for array in stream):
            bits = [_last_bits(kind, array) for array in stream]
            count = sum(there for _, there in bits)
            if count >= _TELLING and sum(odd for odd, _ in bits) >= count / 8:
                return kind
    return ""


def _last_bits(kind: str, array: Array) -> tuple[int, int]:
    """How many numbers use the last bit of that type, and how many are not 0."""
    with np.errstate(over="ignore"):
        numbers = array[np.isfinite(array) & (array != 0)].astype("float16" if kind == "float16" else "float32")
    bits = numbers.view(np.uint16 if kind == "float16" else np.uint32)
    return int(((bits >> (16 if kind == "bfloat16" else 0)) & 1).sum()), bits.size


def notes_of(run_in: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"all numbers recorded as {dtype} are {kind} numbers, so the run is assumed to be in {kind}, with its bound"
        for dtype, kind in run_in.items()
    )


def _holds(half: str, array: Array) -> bool:
    """Whether a shorter type can represent every one of these numbers."""
    with np.errstate(over="ignore"):
        single = array.astype(np.float32 if half != "float16" else np.float16)
    if not np.array_equal(single, array, equal_nan=True):
        return False
    return half != "bfloat16" or not (np.ascontiguousarray(single).view(np.uint32) & 0xFFFF).any()
