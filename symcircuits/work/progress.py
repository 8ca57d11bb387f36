"""Progress of work: calls of a function, or a tqdm bar in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

__all__ = ["OnProgress", "Progress", "each_told", "told_by"]

Item = TypeVar("Item")

# Called now and then with the kind of work, how much of it is done, and how much there is (0: not known).
OnProgress = Callable[[str, int, int], None] | None

_DELAY = 1.0  # seconds before anything is shown


def told_by(given: OnProgress | bool) -> OnProgress:
    """The function that receives progress: the given one, or for True a bar; raises TypeError on anything else.

    >>> told_by(None) is None, told_by(False) is None, callable(told_by(True))
    (True, True, True)
    """
    if given is True:
        return Progress(anywhere=True).step
    if given is not None and given is not False and not callable(given):
        raise TypeError(f"progress must be True or a function of what, done and total, not {given!r}")
    return given or None


def each_told(what: str, items: Iterable[Item], told: OnProgress) -> Iterator[Item]:
    """The items one after the other; ``progress`` is called for each when its work is done.

    >>> heard = []
    >>> list(each_told("letters", "ab", lambda what, done, total: heard.append((what, done, total)))), heard
    (['a', 'b'], [('letters', 1, 2), ('letters', 2, 2)])
    """
    known = list(items)
    for done, item in enumerate(known, 1):
        yield item
        if told:
            told(what, done, len(known))


class Progress:
    """A bar after the first second, if standard error is a terminal; ``anywhere``: also in a notebook and a file.

    Several kinds of work, one after another, have one bar at a time. A bar is removed when its work is done.
    """

    def __init__(self, anywhere: bool = False) -> None:
        self._anywhere = anywhere
        self._start = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def step(self, what: str, done: int, total: int) -> None:
        """Report how much of some work is done; ``total`` is 0 if the amount is unknown."""
        if time.monotonic() - self._start < _DELAY or not (self._anywhere or sys.stderr.isatty()):
            return
        if self._bar is not None and self._bar.total != (total or None):
            self._close()
        if self._bar is None:
            from tqdm.auto import tqdm  # imported after the first second, because it takes a while

            shown = {"file": sys.stderr, "leave": False, "dynamic_ncols": True}
            self._bar = tqdm(desc=what, initial=done, total=total or None, **shown)
        self._bar.set_description(what, refresh=False)
        self._bar.update(done - self._bar.n)
        if total and done >= total:
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
