"""The largest of many numbers, by absolute size; ties keep their order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["joined", "top"]

Numbered = tuple[tuple[int, float], ...]


def top(blocks: Iterable[tuple[int, npt.NDArray[np.floating]]], k: int) -> Numbered:
    """The ``k`` largest of blocks (number of the first, sizes), as (number, size); in constant memory.

    >>> top([(0, np.array([1.0, -3.0])), (2, np.array([3.0, 2.0]))], 3)
    ((1, -3.0), (2, 3.0), (3, 2.0))
    """
    found: Numbered = ()
    for start, sizes in blocks:
        found = joined(k, found, _of_block(start, sizes, k))
    return found


def joined(k: int, *parts: Numbered) -> Numbered:
    """The ``k`` largest of several such lists."""
    return tuple(heapq.nsmallest(k, (one for part in parts for one in part), key=lambda one: (-abs(one[1]), one[0])))


def _of_block(start: int, sizes: npt.NDArray[np.floating], k: int) -> Numbered:
    absolute = np.abs(sizes)
    if k < len(sizes):  # all that are not below the k-th, so that ties are all there
        least = np.partition(absolute, len(sizes) - k)[len(sizes) - k] if k else np.inf
        places: Iterator[int] | range = iter(np.flatnonzero(absolute >= least).tolist())
    else:
        places = range(len(sizes))
    return joined(k, tuple((start + i, float(sizes[i])) for i in places))
