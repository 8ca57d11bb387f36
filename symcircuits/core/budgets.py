"""What some work may use, asked in its loops: is it used up, and by what.

Results name the budget that ended them (``reached``, ``stopped``); messages call it what the caller calls it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from symcircuits.core.text import argument, mebibytes, seconds, whole

__all__ = ["Budget", "Ended", "told"]


class Ended(str):
    """The budget that ended some work, as results hold it, whoever asked.

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
    """The budget that ended some work, for a message: by the name that the caller gives to it."""
    return f"{argument(ended.name)} ({ended.value})" if isinstance(ended, Ended) else ended


@dataclass(slots=True, kw_only=True)
class Budget:
    """Limits of some work (None: none), what it has used of them, and in ``reached`` the first that was seen to be met.

    The work adds to ``terms``, ``expansions`` and ``bytes``; time begins when the budget is made. Raises ValueError
    where a limit is not a whole number, 0 or more, or not seconds.

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
        """When time is up, of :func:`time.monotonic`; None where there is no end of it."""
        return None if self.max_seconds is None else self.start + self.max_seconds

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return self.until is not None and time.monotonic() >= self.until

    def ended(self) -> str:
        """The limit that is met, and stays the one that ended the work; empty where none is.

        Counts go before time: what is done when time is up was ended by its count.
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
