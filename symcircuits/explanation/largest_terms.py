"""The largest terms of what is taken apart, with their sizes; and what is not shown, as one sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symcircuits.core.expansion import Term
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import logit, norm
from symcircuits.values.summary import over_rows
from symcircuits.values.targets import Target, sized
from symcircuits.values.top import top as top_of
from symcircuits.work.progress import OnProgress

__all__ = ["SizedTerm", "columns", "largest", "remainder"]


@dataclass(frozen=True, slots=True)
class SizedTerm:
    """A term with its size: Frobenius norm over all tokens and outputs, contribution to the chosen logit.

    ``difference``: contribution to logit[token] - logit[against]; None where no second token was chosen.
    """

    term: Term
    norm: float
    contribution: float | None
    difference: float | None = None


def largest(values: Values, target: Target, top: int, sort: str, progress: OnProgress = None) -> tuple[SizedTerm, ...]:
    """The largest terms, by one pass over the numbers of all; ties keep the order of the expansion."""
    expansion, count = values.expansion, values.expansion.count
    row = target.row if np.ndim(values.run.tokens) == 2 else None
    measures = {"norm": norm()}
    if target.token is not None:
        measures["contribution"] = logit(target.token, position=target.position, row=row)
    if target.against is not None:
        measures["difference"] = logit(target.token, target.against, position=target.position, row=row)
    found: list[tuple[int, dict[str, float]]] = []
    for blocks in zip(*(values.measure(by) for by in measures.values()), strict=True):
        start = blocks[0].start
        sizes = dict(zip(measures, (over_rows(block.values) for block in blocks), strict=True))
        best = top_of([(start, sizes[sort])], top)
        found += [(i, {name: float(numbers[i - start]) for name, numbers in sizes.items()}) for i, _ in best]
        found = sorted(found, key=lambda one: (-abs(one[1][sort]), one[0]))[:top]
        if progress:
            progress("terms", start + len(sizes["norm"]), count)
    return tuple(
        SizedTerm(expansion[i], one["norm"], one.get("contribution"), one.get("difference")) for i, one in found
    )


def remainder(values: Values, shown: Sequence[SizedTerm], target: Target) -> dict[str, Any]:
    """What is not shown, as one sum: total minus the shown terms."""
    rest = np.array(values.total())
    for one in shown:
        rest -= values.value(one.term)
    count = values.expansion.count - len(shown)
    if not count:
        rest = np.zeros_like(rest)
    return {"count": count, **sized(rest, target)}


def columns(terms: Sequence[SizedTerm]) -> dict[str, list[Any]]:
    """Terms as columns of equal length: see :meth:`~symcircuits.explanation.explain.Explanation.columns`."""
    found: dict[str, list[Any]] = {
        "label": [s.term.label for s in terms],
        "order": [s.term.order for s in terms],
        "composition": [s.term.composition for s in terms],
        "source": [s.term.sources[0] for s in terms],
        "heads": [" ".join(map(str, s.term.heads[0])) for s in terms],
        "norm": [s.norm for s in terms],
        "contribution": [s.contribution for s in terms],
        "text": [s.term.text for s in terms],
    }
    if any(s.difference is not None for s in terms):
        found["difference"] = [s.difference for s in terms]
    return found
