"""Strict JSON of configs, indices and headers: unique keys, limited nesting and limited digits."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["strict_json"]

MOST_DIGITS: Final = 400  # a float64 has at most 309 before its point


def strict_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError if it is invalid, or if an object has a key twice.

    With two values for one key, the intended one would be unknown.

    >>> strict_json('{"n_layers": 2}')
    {'n_layers': 2}
    >>> strict_json('{"n_layers": 2, "n_layers": 1}')
    Traceback (most recent call last):
    ValueError: 'n_layers' appears twice
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names: set[str] = set()
        twice = next(key for key, _ in pairs if key in names or names.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r} appears twice")
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number there has {len(digits):,} digits")
    return int(digits)
