"""Reading tokens: whole numbers in ``[n]`` or ``[batch, n]``, or an error that names the invalid one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.text import amount, as_whole, brief

__all__ = ["read_tokens"]

_SHAPES = "tokens are whole numbers in a list or array of shape [n] or [batch, n]"


def read_tokens(tokens: Any, d_vocab: int, n_context: int | None = None) -> npt.NDArray[np.int64]:
    """The tokens as an int64 array ``[n]`` or ``[batch, n]``.

    ``tokens``: a list, a list of equally long lists, an array, or an object with ``__array__`` (a tensor).
    ``n_context``: the length of the position table, if there is one. Raises ValueError with the invalid
    value, its place (counted from 0) and what is allowed.

    >>> read_tokens([[3, 1], [0, 2]], d_vocab=4).shape
    (2, 2)
    >>> read_tokens([3, 4], d_vocab=4)
    Traceback (most recent call last):
    ValueError: token 4 at position 1 is out of range: the vocabulary has 4 tokens, 0 to 3
    """
    rows = tokens if _is_sequence(tokens) else _as_array(tokens)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "O" and rows.ndim:
        rows = rows.tolist()
    if isinstance(rows, np.ndarray):
        _check_array(tokens, rows)
        values = rows
    else:
        values = _from_lists(rows)
    wrong = np.argwhere((values < 0) | (values >= d_vocab))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        allowed = "1 token, 0" if d_vocab == 1 else f"{d_vocab} tokens, 0 to {d_vocab - 1}"
        raise ValueError(f"token {values[place]} {_place(place)} is out of range: the vocabulary has {allowed}")
    n = values.shape[-1]
    if n_context is not None and n > n_context:
        raise ValueError(
            f"{n} tokens are too many: the position table has {amount(n_context, 'row')} (n_ctx = {n_context})"
        )
    return values.astype(np.int64)


def _as_array(tokens: Any) -> npt.NDArray[Any]:
    """Anything but a list as an array; also a tensor on another device, or of a type that NumPy lacks."""
    try:
        return np.asarray(tokens)
    except (TypeError, ValueError, RuntimeError) as fault:  # raised by torch for a device, a gradient, bfloat16
        kind = f"{type(tokens).__name__} of {getattr(tokens, 'dtype', 'no type')}"
        whole = not re.search("float|bool|complex", kind)
        if whole and all(callable(getattr(tokens, name, None)) for name in ("detach", "cpu")):
            return np.asarray(tokens.detach().cpu())
        raise ValueError(f"{_SHAPES}; this is a {kind}, and cannot be read: {fault!s:.200}") from None


def _is_sequence(tokens: Any) -> bool:
    return isinstance(tokens, Sequence) and not isinstance(tokens, (str, bytes)) and not hasattr(tokens, "__array__")


def _place(place: tuple[int, ...]) -> str:
    return f"in row {place[0]} at position {place[1]}" if len(place) == 2 else f"at position {place[0]}"


def _check_array(tokens: Any, values: npt.NDArray[Any]) -> None:
    """Raise ValueError on an array that is not ``[n]`` or ``[batch, n]`` of integers."""
    if not hasattr(tokens, "__array__") or (values.ndim == 0 and values.dtype.kind not in "iu"):
        raise ValueError(f"{_SHAPES}, such as [3, 1, 4], not {brief(tokens)}")
    if values.ndim == 0:
        raise ValueError(f"{_SHAPES}; {values.item()} is a single number: write [{values.item()}]")
    if values.ndim > 2:
        raise ValueError(f"{_SHAPES}; this array has {values.ndim} axes, shape {list(values.shape)}")
    if values.size == 0:
        raise ValueError(f"there are no tokens (shape {list(values.shape)}); at least one is needed")
    if values.dtype.kind not in "iu":
        place = _first_not_whole(values)
        raise ValueError(
            f"{_SHAPES}; this array holds {values.dtype}, such as {values[place]} {_place(place)}; "
            "convert it to integers if its entries are whole numbers"
        )


def _first_not_whole(values: npt.NDArray[Any]) -> tuple[int, ...]:
    """The place of the first entry that is not a whole number, or of the first entry."""
    wrong = np.argwhere(values != np.floor(values)).tolist() if values.dtype.kind == "f" else []
    return tuple(wrong[0]) if wrong else (0,) * values.ndim


def _entries(tokens: Sequence[Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    for i, row in enumerate(tokens):
        if _is_row(row):
            yield from (((i, j), value) for j, value in enumerate(row))
        else:
            yield (i,), row


def _is_row(x: Any) -> bool:
    return _is_sequence(x) or (hasattr(x, "__array__") and getattr(x, "ndim", 0) > 0)


def _from_lists(tokens: Sequence[Any]) -> npt.NDArray[Any]:
    """Lists as an array, with every entry checked (NumPy alone would read True as 1 and 1.5 as a float)."""
    nested = [_is_row(row) for row in tokens]
    lengths = [len(row) if deep else None for row, deep in zip(tokens, nested, strict=True)]
    if not lengths or (any(nested) and max(n or 0 for n in lengths) == 0):
        raise ValueError("there are no tokens (the list is empty); at least one is needed")
    for i, n in enumerate(lengths):
        if n != lengths[0]:
            first, other = (
                f"row {k} has {amount(lengths[k] or 0, 'token')}" if nested[k] else f"entry {k} is not a row"
                for k in (0, i)
            )
            raise ValueError(f"{_SHAPES}; the rows differ in length: {first}, {other}")
    values = np.empty((len(lengths),) if lengths[0] is None else (len(lengths), lengths[0]), dtype=object)
    for place, value in _entries(tokens):
        values[place] = _whole(value, place)
    return values


def _whole(value: Any, place: tuple[int, ...]) -> int:
    """An entry as a whole number; None for a boolean, a float, a text or a further list."""
    if _is_row(value):
        raise ValueError(f"{_SHAPES}; there is a third axis {_place(place)}")
    number = as_whole(value)
    if number is None:
        kind = type(value).__name__
        raise ValueError(f"{brief(value)} {_place(place)} is not a token: {_SHAPES}, and this is a {kind}")
    return number
