"""Numbers on the command line; errors name the option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["memory", "numbers", "seconds", "tokens", "weight", "whole"]

_DIGITS: Final = 4000  # of a number; Python reads no more than 4,300
_LONGEST: Final = 60  # characters of a value that a message shows
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def whole(least: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes a whole number, ``least`` or more if given.

    >>> whole(0)("12")
    12
    """

    def read(text: str) -> int:
        fault = _fault(text.strip())
        if "digits" in fault:
            raise argparse.ArgumentTypeError(fault)
        if fault or (least is not None and int(text) < least):
            said = "" if least is None else f", {least} or more"
            raise argparse.ArgumentTypeError(f"must be a whole number{said}, not {_shown(text)}")
        return int(text)

    return read


def _fault(text: str) -> str:
    """Why a text is not a whole number; "" if it is."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return f"{_shown(text)} is not a whole number"
    if len(text) > _DIGITS:
        return f"the number has {len(text):,} digits, more than the limit of {_DIGITS:,}"
    return ""


def _shown(text: str) -> str:
    """A value for a message of one line."""
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}... ({len(text):,} characters)"


def seconds(text: str) -> float:
    """The type of an option that takes seconds, 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, not {_shown(text)}")
    return found


def weight(text: str) -> float:
    """The type of an option that takes an attention weight, above 0 and up to 1.

    >>> weight("0.4")
    0.4
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise argparse.ArgumentTypeError(f"must be a weight, above 0 and up to 1, not {_shown(text)}")
    return found


def memory(text: str) -> int:
    """The type of an option that takes an amount of memory: bytes, or a number with a unit.

    >>> memory("200MB"), memory("1.5GiB"), memory("4096")
    (200000000, 1610612736, 4096)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or not float(match[1]) * unit < 2**63:
        raise argparse.ArgumentTypeError(f"must be an amount of memory such as 200MB or 1.5GiB, not {_shown(text)}")
    return int(float(match[1]) * unit)


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers separated by commas; a ValueError names the option and the invalid number."""
    if not text.strip():
        raise ValueError(f"{option} is empty; write whole numbers separated by commas, e.g. {option} 1,2,3")
    found = []
    for word in text.split(","):
        seen = word.strip()
        fault = _fault(seen) if seen else "a number is missing between the commas"
        if fault:
            raise ValueError(f"{option} {_shown(text)}: {fault}")
        found.append(int(seen))
    return found


def tokens(text: str) -> Any:
    """Token ids: ``1,2,3``, ``1 2 3`` or a JSON list; the rows of a batch are separated by ``;``, or a list of lists.

    >>> tokens("3,1,4"), tokens("3 1 4"), tokens("[3, 1, 4]"), tokens("3 1; 4 1"), tokens("[[3, 1], [4, 1]]")
    ([3, 1, 4], [3, 1, 4], [3, 1, 4], [[3, 1], [4, 1]], [[3, 1], [4, 1]])
    """
    if text.lstrip().startswith("["):
        return _listed(text)
    parts = text.split(";")
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise ValueError(f"--tokens {text!r}: a row is empty")
    rows = [numbers(_spaced(row), "--tokens") for row in parts]
    return rows if len(rows) > 1 else rows[0]


def _listed(text: str) -> Any:
    """A JSON list of token ids, or of rows of them."""
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    rows = found if isinstance(found, list) and found and isinstance(found[0], list) else [found]
    if not all(isinstance(row, list) and row and all(type(n) is int for n in row) for row in rows):
        raise ValueError(f"--tokens {_shown(text)} is not a JSON list of token ids, [3, 1, 4], or of rows of them")
    return found


def _spaced(row: str) -> str:
    """Numbers separated by blanks, separated by commas instead."""
    return row if "," in row else ",".join(row.split()) or row
