"""Checks of weights, with errors that name the weight, what was expected and what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.text import brief

__all__ = ["check_names", "check_shapes", "check_values", "float_type"]

_BLOCK = 2**22  # numbers checked at a time

# An axis is written "d_head" or, if its owner has a size of its own, "d_head of W_Q_L0H1": the first word is shown.
Axes = tuple[str, ...]


def float_type(given: Any) -> np.dtype[Any]:
    """The type of a forward pass (default: float64); raises ValueError if it is neither of the two.

    >>> float_type(None), float_type("float32")
    (dtype('float64'), dtype('float32'))
    """
    try:
        number = np.dtype(np.float64 if given is None else given)
    except (TypeError, ValueError):
        raise ValueError(f"the forward pass is computed in float64 or float32, not {brief(given)}") from None
    if number not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"the forward pass is computed in float64 or float32, not {number}")
    return number


def check_names(expected: Iterable[str], found: Iterable[str], where: str = "the model") -> None:
    """Check that every expected name and no other is there; ValueError lists the missing or unknown ones."""
    wanted, seen = dict.fromkeys(expected), dict.fromkeys(found)
    missing = [n for n in wanted if n not in seen]
    unknown = [n for n in seen if n not in wanted]
    if missing:
        also = f"; it has these, which are unknown: {_listed(unknown)}" if unknown else ""
        raise ValueError(f"{where} lacks {_count(missing)}: {_listed(missing)}{also}")
    if unknown:
        raise ValueError(f"{where} has {_count(unknown)} that it does not use: {_listed(unknown)}")


def _count(names: list[str]) -> str:
    return "1 weight" if len(names) == 1 else f"{len(names)} weights"


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def check_values(name: str, array: npt.NDArray[Any]) -> None:
    """Check that a weight holds finite floating-point numbers in the byte order of this machine; else ValueError."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ValueError(f"{name} holds {array.dtype}; a weight must hold float16, float32 or float64 numbers")
    if not array.dtype.isnative:
        raise ValueError(
            f"{name} is stored in the other byte order ({array.dtype.str}); "
            f"convert it with .astype({array.dtype.name!r})"
        )
    if 0 in array.shape:
        raise ValueError(f"{name} is empty: its shape is {list(array.shape)}")
    if not all(np.isfinite(part).all() for part in _blocks(array)):
        bad = ~np.isfinite(array)
        place = [int(i) for i in np.argwhere(bad)[0]]
        others = int(bad.sum()) - 1
        more = f" and {others} more such entries" if others else ""
        half = array.dtype.itemsize == 2 and np.isinf(array[tuple(place)])
        why = " (float16 ends at 65504: it may have overflowed when it was stored)" if half else ""
        raise ValueError(f"{name} holds {array[tuple(place)]} at {place}{more}; weights must be finite{why}")


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The parts of an array, some megabytes each, along its slowest axis."""
    if array.ndim == 0:
        yield array
        return
    slowest = int(np.argmax(np.abs(array.strides)))
    rows = np.moveaxis(array, slowest, 0)
    each = max(_BLOCK * len(rows) // array.size, 1)
    yield from (rows[start : start + each] for start in range(0, len(rows), each))


def check_shapes(
    axes: Mapping[str, Axes], weights: Mapping[str, npt.NDArray[Any]], given: Mapping[str, int], said: str = ""
) -> dict[str, int]:
    """Sizes of all axes; raises ValueError, naming the first weight whose shape does not fit.

    ``axes``: for every weight the names of its axes; ``given``: sizes given by ``said`` (the config), by the name
    of the axis or its first word. Any other size is that of the first weight that has it; ``d_model`` that of
    most weights.
    """
    sizes: dict[str, int] = dict(given)
    if "d_model" not in sizes and (size := _most_common("d_model", axes, weights)) is not None:
        sizes["d_model"] = size
    for name, names in axes.items():
        shape = weights[name].shape
        expected = [sizes.get(axis, given.get(_word(axis))) for axis in names]
        if not _fits(shape, expected):
            raise ValueError(_misfit(name, shape, names, expected, given, said))
        sizes.update(zip(names, shape, strict=True))
    return sizes


def _word(axis: str) -> str:
    return axis.partition(" ")[0]


def _most_common(axis: str, axes: Mapping[str, Axes], weights: Mapping[str, npt.NDArray[Any]]) -> int | None:
    votes = Counter(
        weights[name].shape[names.index(axis)]
        for name, names in axes.items()
        if axis in names and weights[name].ndim == len(names)
    )
    return votes.most_common(1)[0][0] if votes else None


def _fits(shape: tuple[int, ...], expected: list[int | None]) -> bool:
    return len(shape) == len(expected) and all(e in (None, n) for n, e in zip(shape, expected, strict=True))


def _misfit(
    name: str, shape: tuple[int, ...], axes: Axes, expected: list[int | None], given: Mapping[str, int], said: str
) -> str:
    words = [_word(a) for a in axes]
    sizes = ", ".join("any" if n is None else str(n) for n in expected)
    text = f"{name} has shape {list(shape)}; expected [{', '.join(words)}] = [{sizes}]"
    told = [given.get(axis, given.get(_word(axis))) for axis in axes]
    seen = shape if len(shape) == len(axes) else (-1,) * len(axes)
    blamed = [f"{w} = {n}" for w, n, m in zip(words, told, seen, strict=True) if n not in (None, m)]
    if said and blamed:
        text += f", where {said} says {', '.join(blamed)}"
    if len(shape) >= 2 and _fits((*shape[:-2], shape[-1], shape[-2]), expected):
        text += "; its transpose would fit" + ("" if len(shape) == 2 else " (the last two axes swapped)")
    return text
