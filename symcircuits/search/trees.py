"""The partial paths that a search looks at, for each measure of terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.search.best_first import Read, Tree
from symcircuits.search.suffixes import Network
from symcircuits.values.measure import KINDS, Measure

__all__ = ["trees"]

Array = npt.NDArray[Any]
# The measures for which _read defines a readout, so their sizes have bounds.
BOUNDED = (
    "norm", "masked norm", "logit", "logit difference", "direction", "direction difference", "score entry",
)  # fmt: skip


def trees(
    measure: Measure, expansion: Expansion, run: Run, budget: Budget, moments: bool | None = None
) -> tuple[Tree, ...]:
    """The partial paths of each side, with their bounds, for a measure; within the memory and time of the budget."""
    if measure.kind not in BOUNDED:
        raise ValueError(
            f"sizes by {KINDS[measure.kind].written} have no bounds, so terms cannot be ranked or drawn by them: "
            "see measure and summary"
        )
    cap, most = _caps(expansion)

    def possible(mark: Mark) -> bool:
        return most is None or mark.order <= most

    found = []
    folded = [{Mark(min(m.order, cap), m.bits) for m in side.counts} for side in expansion.sides]
    for side, paths in enumerate(expansion.sides):
        read = _read(measure, expansion, run, side)
        net = Network(paths, run, measure.row, read.rows, cap)
        found.append(Tree(
            net, read, _wanted(expansion, side, folded), possible, budget, moments=moments,
            share=len(expansion.sides),
        ))  # fmt: skip
    return tuple(found)


def _wanted(expansion: Expansion, side: int, folded: list[set[Mark]]) -> Any:
    """Whether a path of a side with this mark is in a term of the selection."""
    if len(folded) == 1:
        return lambda mark: expansion.accepts((mark,))
    others = folded[1 - side]
    return lambda mark: any(expansion.accepts((mark, m) if side == 0 else (m, mark)) for m in others)


def _caps(expansion: Expansion) -> tuple[int, int | None]:
    """The order from which on orders do not matter, and the largest that may be wanted."""
    orders = [max(c.values) for c in expansion.clauses if c.kind == "order"]
    cap = max(orders, default=-1) + 1
    if any(c.kind == "composition" for c in expansion.clauses):
        cap = max(cap, 2)
    return cap, min(orders, default=None)


def _read(measure: Measure, expansion: Expansion, run: Run, side: int) -> Read:
    """The readout of a run for a measure on a side."""
    n, head = run.tokens.shape[-1], expansion.readout.head
    if measure.kind == "norm" and head is None:
        return Read(np.eye(n))
    if head is None:
        rows, chosen = np.zeros((1, n)), measure.chosen
        rows[0, measure.position] = 1
        return Read(rows, chosen, np.array([[1.0], [-1.0]])[: len(chosen)])
    scale = float(run.arrays[f"scale_{head}"]) if expansion.readout.scale and side == 0 else 1.0
    width = run.arrays[f"W_Q_{head}"].shape[0]
    if "norm" in measure.kind:
        return Read(np.eye(n), cols=scale * np.eye(width))
    at = measure.position if side == 0 else measure.key
    rows = np.zeros((1, n))
    rows[0, at] = 1
    turned = np.asarray(run.arrays[f"R_{head}"][at], np.float64) if f"R_{head}" in run.arrays else np.eye(width)
    return Read(rows, cols=scale * turned)
