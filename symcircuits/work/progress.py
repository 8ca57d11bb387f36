"""A progress line on standard error, for work over a second, when it is a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Self

__all__ = ["OnProgress", "Progress"]

# What is called now and then with what is being done, how much of it is done, and how much there is (0: not known).
OnProgress = Callable[[str, int, int], None] | None

_LONGEST = 80


class Progress:
    """Shows what is being done after the first second; silent where standard error is not a terminal."""

    def __init__(self) -> None:
        self._start = self._shown = time.monotonic()
        self._wide = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wide:
            sys.stderr.write("\r" + " " * self._wide + "\r")
            sys.stderr.flush()

    def note(self, text: str) -> None:
        """Say what has just been done."""
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._start > 1 and now - self._shown > 0.1:
            seconds = f" ({now - self._start:.0f} s)"
            line = text[: max(_columns() - 1 - len(seconds), 0)] + seconds  # a line that wraps cannot be taken back
            sys.stderr.write("\r" + line.ljust(self._wide))
            sys.stderr.flush()
            self._wide, self._shown = max(self._wide, len(line)), now

    def step(self, what: str, done: int, total: int) -> None:
        """Say how much of some work is done, as a bar where it is known how much there is."""
        if not total:
            self.note(f"{what}: {done:,}")
            return
        filled = 20 * done // total
        self.note(f"{what} [{'#' * filled}{'.' * (20 - filled)}] {done:,}/{total:,}")


def _columns() -> int:
    """The width of the terminal that the line is written to, at most 80; 80 where it does not say."""
    try:
        return min(os.get_terminal_size(sys.stderr.fileno()).columns or _LONGEST, _LONGEST)
    except (OSError, ValueError):
        return _LONGEST
