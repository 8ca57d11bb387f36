"""The answer of ``verify``: rows, and the report made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from symcircuits.core.shown import Shown

__all__ = ["Check", "Report"]


@dataclass(frozen=True, slots=True)
class Check:
    """One row of a report: what was checked, and the outcome.

    ``passed`` is None if the check was not run (``what`` says why). ``error`` and ``bound``: number of terms or
    entries that differ, and 0, for exact checks; the entry with the largest ratio for those in floating point.
    ``details``: sizes, seeds, and for checks over the prime field ``false_pass``, the Schwartz-Zippel bound.
    """

    name: str
    target: str
    passed: bool | None
    error: float | None
    bound: float | None
    what: str
    details: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The row as plain data."""
        error, bound = (x if x is None or math.isfinite(x) else None for x in (self.error, self.bound))
        return {
            "name": f"{self.name}: {self.target}", "passed": self.passed, "error": error, "bound": bound,
            "what": self.what, "details": self.details,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Report(Shown):
    """The outcome of :func:`verify`: ``ok`` only if every check that was run passed; the others say why not."""

    subject: str
    checks: tuple[Check, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every check that was run passed (and some were run)."""
        ran = [c for c in self.checks if c.passed is not None]
        return bool(ran) and all(c.passed for c in ran)

    def json(self) -> dict[str, Any]:
        """The report as plain data."""
        checks = [c.json() for c in self.checks]
        return {"schema": "symcircuits.verify/1", "subject": self.subject, "ok": self.ok, "checks": checks}
