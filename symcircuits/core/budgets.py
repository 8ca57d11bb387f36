"""Limits on the work of a call, checked in its loops: whether one is reached, and which.

Results name the limit that ended them (``reached``, ``stopped``); messages use the caller's name for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from symcircuits.core.text import argument, mebibytes, seconds, whole

__all__ = ["Budget", "Ended", "told"]


class Ended(str):
    """The limit that ended some work, as results store it, independent of the caller.

    >>> Ended("max_terms", "7")
    'max_terms (7)'
    """

    name: str
    value: str

    def __new__(cls, name: str, value: str) -> Ended:
        made = super().__new__(cls, f"{name} ({value})")
        made.name, made.value = name, value
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.name, self.value


def told(ended: str) -> str:
    """The limit that ended some work, for a message: under the caller's name for it."""
    return f"{argument(ended.name)} ({ended.value})" if isinstance(ended, Ended) else ended


@dataclass(slots=True, kw_only=True)
class Budget:
    """Limits on some work (None: no limit), its use so far, and in ``reached`` the first limit that was reached.

    The work adds to ``terms``, ``expansions`` and ``bytes``; time starts when the object is made. Raises ValueError
    if a limit is not a whole number, 0 or more (``max_seconds``: not a number, 0 or more).

    >>> budget = Budget(max_terms=2, max_seconds=3600)
    >>> budget.ended()
    ''
    >>> budget.terms += 2
    >>> budget.ended()
    'max_terms (2)'
    """

    max_terms: int | None = None
    max_expansions: int | None = None
    max_seconds: float | None = None
    max_memory: int = 2**30
    start: float = field(default_factory=lambda: time.monotonic())
    terms: int = 0
    expansions: int = 0
    bytes: int = 0
    reached: str = ""

    def __post_init__(self) -> None:
        if self.max_terms is not None:
            self.max_terms = whole("max_terms", self.max_terms, 0)
        if self.max_expansions is not None:
            self.max_expansions = whole("max_expansions", self.max_expansions, 0)
        seconds("max_seconds", self.max_seconds)
        self.max_memory = whole("max_memory", self.max_memory, 0)

    @property
    def until(self) -> float | None:
        """The deadline, by :func:`time.monotonic`; None without a time limit."""
        return None if self.max_seconds is None else self.start + self.max_seconds

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return self.until is not None and time.monotonic() >= self.until

    def ended(self) -> str:
        """The limit reached, which stays the one that ended the work; empty if none is reached.

        Counts are checked before time: if both are reached, the count is reported.
        """
        if not self.reached:
            if self.max_terms is not None and self.terms >= self.max_terms:
                self.reached = Ended("max_terms", f"{self.max_terms:,}")
            elif self.max_expansions is not None and self.expansions >= self.max_expansions:
                self.reached = Ended("max_expansions", f"{self.max_expansions:,}")
            elif self.late:
                self.reached = Ended("max_seconds", f"{self.max_seconds:g}")
            elif self.bytes >= self.max_memory:
                self.reached = Ended("max_memory", mebibytes(self.max_memory))
        return self.reached
