"""How many terms an expansion enumerates, by order and type; range by range, by any workers."""

from __future__ import annotations

from typing import Any

from symcircuits.core.expansion import Expansion
from symcircuits.tables.blocks import Census, range_of
from symcircuits.work.workers import WorkerPool, as_it_is

__all__ = ["census"]

EACH = 1 << 22  # terms in a worker's range


def census(expansion: Expansion, start: int = 0, stop: int | None = None, *, workers: Any = None) -> Census:
    """The terms from ``start`` to ``stop``, enumerated and counted by the heads that each goes through.

    Nothing is taken from ``expansion.counts_by_order()`` and similar methods, so the two check each other. ``workers``
    (see :class:`~symcircuits.work.workers.WorkerPool`) count ranges of terms; the counts do not depend on them.

    >>> import symcircuits as sc
    >>> e = sc.scores(sc.attention_only((12, 12, 12)), "L2H0")
    >>> found = e.census()
    >>> found.by_composition(), found.by_order() == e.counts_by_order()
    ({'none': 1, 'Q': 168, 'K': 168, 'QK': 28224}, True)
    """
    total = Census()
    if workers is None:
        for block in expansion.blocks(start=start, stop=stop):
            total += block.census()
        return total
    expansion.blocks()  # raises its errors early
    terms = range_of(expansion, start, stop)
    cuts = ((a, min(a + EACH, terms.stop)) for a in terms[::EACH])
    with WorkerPool(workers) as crew:
        tasks = ((f"terms {a:,} to {b - 1:,}", (expansion, a, b)) for a, b in cuts)
        for part in crew.results(_counted, tasks, pieces=-(-len(terms) // EACH), sent=lambda: as_it_is):
            total += part
    return total


def _counted(task: tuple[Expansion, int, int]) -> Census:
    return census(*task)
