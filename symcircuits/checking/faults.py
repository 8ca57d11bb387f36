"""Errors of reading: what cannot be read, and where."""

from __future__ import annotations

from typing import Final

__all__ = ["ReadError"]

_SHOWN: Final = 56  # characters of the text that an error shows


class ReadError(ValueError):
    """A formula cannot be read: what is wrong, where, and the place with a mark under it.

    ``position`` counts characters of the text from 0 (of a SymPy expression: its factors); ``place`` is two lines.

    >>> fault = ReadError("what is this?", "X0 @ %", 5)
    >>> print(fault)
    what is this? (position 5)
      X0 @ %
           ^
    """

    def __init__(self, message: str, source: str = "", position: int = 0) -> None:
        self.position = position
        self.place = _place(source, position) if source.strip() else ""
        where = f" (position {position})" if source else ""
        super().__init__(message + where + (f"\n{self.place}" if self.place else ""))


class TooLong(ReadError):
    """A formula takes too much work to multiply out."""


def _place(source: str, at: int) -> str:
    start = source.rfind("\n", 0, at) + 1
    end = source.find("\n", at) if "\n" in source[at:] else len(source)
    first = max(start, at - _SHOWN // 2)
    line = "".join(c if c.isprintable() else "?" for c in source[first : min(end, first + _SHOWN)])
    before, after = "..." if first > start else "", "..." if end > first + _SHOWN else ""
    return f"  {before}{line}{after}\n  {' ' * (len(before) + at - first)}^"
