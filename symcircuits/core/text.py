"""Whole numbers that somebody gives, to count something or to choose one of several: what is one, and what is said.

NumPy's integers are whole numbers, and so is a tensor with one integer; a truth value, a float, a text is not.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

from symcircuits.core.notation import many

__all__ = ["as_whole", "place", "seconds", "shown", "whole"]

_LONGEST = 120  # characters of what is repeated in a message


def as_whole(value: Any) -> int | None:
    """The whole number that a value is; None where it is none.

    >>> as_whole(3), as_whole(True), as_whole(1.0), as_whole("1")
    (3, None, None, None)
    """
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of floats has __index__, and only says so here
        return None


def whole(name: str, value: Any, least: int) -> int:
    """The value as a whole number; ValueError where it is none, or less than the least.

    >>> whole("top", -1, 0)
    Traceback (most recent call last):
    ValueError: top must be a whole number, 0 or more, not -1
    """
    number = as_whole(value)
    if number is None or number < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, not {shown(value)}")
    return number


def place(name: str, value: Any, size: int, negative: bool = True) -> int:
    """The number of one of ``size`` things, from 0 or (where ``negative``) from the end; ValueError if it is not there.

    Positions, queries, keys and rows may be counted from the end; tokens, directions and layers may not.

    >>> place("position", -1, 10)
    9
    >>> place("token", -1, 10, negative=False)
    Traceback (most recent call last):
    ValueError: token -1 does not exist: there are 10, counted from 0
    """
    number = as_whole(value)
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {shown(value)}")
    if not (-size if negative else 0) <= number < size:
        raise ValueError(f"{name} {shown(value)} does not exist: there are {size}, counted from 0")
    return number % size


def seconds(name: str, value: Any) -> None:
    """ValueError where a time is neither None nor a number of seconds from 0 on."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0):
        raise ValueError(f"{name} must be seconds, 0 or more, not {shown(value)}")


def shown(value: Any) -> str:
    """What was given, for a message: not longer than a line, and a number of thousands of digits by its size.

    >>> shown("x" * 1000)[:5], shown(10**5000)
    ("'xxxx", 'about 1.0e5000')
    """
    number = as_whole(value)
    if number is not None and abs(number) >= 10**18:
        return "-" * (number < 0) + many(abs(number))
    try:
        text = repr(value) if number is None else str(number)
    except ValueError:  # Python prints no number of more than 4,300 digits
        text = f"a {type(value).__name__} with such a number in it"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
