"""The largest of many numbers, by absolute size; ties keep their order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["joined", "top"]

_GROUP = 64  # numbers whose largest is found first

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
    groups = len(sizes) // _GROUP
    if 0 < k <= groups // 4:  # the k-th largest of the group maxima is at most the k-th largest of all
        whole = sizes[: groups * _GROUP].reshape(groups, _GROUP)
        highest = np.maximum(whole.max(1), -whole.min(1))
        chosen = np.flatnonzero(highest >= _kth(highest, k))
        places = (chosen[:, None] * _GROUP + np.arange(_GROUP)).reshape(-1)
        places = np.concatenate([places, np.arange(groups * _GROUP, len(sizes))])
    else:
        places = np.arange(len(sizes))
    absolute = np.abs(sizes[places])
    if k < len(places):  # all that are not below the k-th, ties included
        places = places[absolute >= (_kth(absolute, k) if k else np.inf)]
    return joined(k, tuple((start + int(i), float(sizes[i])) for i in places))


def _kth(sizes: npt.NDArray[np.floating], k: int) -> float:
    """The k-th largest."""
    return float(np.partition(sizes, len(sizes) - k)[len(sizes) - k])
