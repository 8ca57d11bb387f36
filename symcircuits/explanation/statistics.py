"""Mean, standard deviation, smallest and largest of numbers that come one at a time; the numbers are not kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

__all__ = ["Running", "Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How some numbers are spread: how many, mean, standard deviation (divided by ``count``), smallest, largest.

    Of no numbers all but ``count`` are None.
    """

    count: int = 0
    mean: float | None = None
    std: float | None = None
    least: float | None = None
    most: float | None = None

    def json(self) -> dict[str, Any]:
        """As plain data: ``count, mean, std, min, max``."""
        return {"count": self.count, "mean": self.mean, "std": self.std, "min": self.least, "max": self.most}


@final
class Running:
    """Welford's running mean and deviation; a few numbers are held, however many come.

    With ``d = x - mean_(n-1)``: ``mean_n = mean_(n-1) + d / n`` and ``S_n = sqrt(S_(n-1)^2 + d^2 (n - 1) / n)``, the
    root of the sum of squared deviations, by ``hypot``, so that no square overflows; ``std = S_n / sqrt(n)``. Source:
    Welford 1962, "Note on a method for calculating corrected sums of squares and products".

    >>> running = Running()
    >>> for x in (1e9 + 1, 1e9 + 2, 1e9 + 3, None):
    ...     running.add(x)
    >>> running.spread.count, running.spread.mean - 1e9, round(running.spread.std ** 2, 12)
    (3, 2.0, 0.666666666667)
    """

    __slots__ = ("_count", "_least", "_mean", "_most", "_root")

    def __init__(self) -> None:
        self._count, self._mean, self._root = 0, 0.0, 0.0
        self._least, self._most = math.inf, -math.inf

    def add(self, x: float | None) -> None:
        """Take up one more number; None (not defined) is left out, and not counted."""
        if x is None:
            return
        self._count += 1
        n, off = self._count, x - self._mean
        self._mean += off / n
        self._root = math.hypot(self._root, off * math.sqrt((n - 1) / n))
        self._least, self._most = min(self._least, x), max(self._most, x)

    @property
    def spread(self) -> Spread:
        """What is known so far."""
        if not self._count:
            return Spread()
        mean = min(max(self._mean, self._least), self._most)  # not outside by rounding
        return Spread(self._count, mean, self._root / math.sqrt(self._count), self._least, self._most)
