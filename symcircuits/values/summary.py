"""The size of every term of an expansion, range by range, by any workers: the largest, and sums by order and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from itertools import pairwise as pairwise_of
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import amount, whole
from symcircuits.loaders.by_path import RunFile
from symcircuits.tables.blocks import COMPOSITIONS, OrderRun, composition_code, order_runs, range_of
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import Measure, resolved
from symcircuits.values.measured import Measuring
from symcircuits.values.top import joined, top
from symcircuits.work.pools import OutOfTime
from symcircuits.work.progress import OnProgress, told_by
from symcircuits.work.workers import WorkerPool, pairwise, pin, pinned

__all__ = ["Sum", "Summary", "summary"]

Array = npt.NDArray[Any]
PIECES = 64  # number of pieces, for any workers
FEWEST, MOST_EACH = 1 << 15, 1 << 18  # terms of a piece: fewer take some milliseconds
LOOK = 1 << 14  # terms whose numbers are collected
MOST = 10**13  # terms
MOST_LISTED = 10**6  # of the largest


@dataclass(frozen=True, slots=True)
class Sum:
    """For ``count`` terms: the sum of their sizes (signed, if they have a sign) and of their absolute values.

    >>> Sum(1, 2.0, 2.0) + Sum(1, -3.0, 3.0)
    Sum(count=2, total=-1.0, absolute=5.0)
    """

    count: int
    total: float
    absolute: float

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.count + other.count, self.total + other.total, self.absolute + other.absolute)


@dataclass(frozen=True, slots=True)
class _Part:
    """The result for a range: its largest, by number, and its sums by orders of each side and composition type."""

    top: tuple[tuple[int, float], ...]
    sums: Mapping[tuple[tuple[int, ...], str], Sum]


@dataclass(frozen=True, slots=True, repr=False)
class Summary(Shown):
    """The result of :func:`summary`. ``largest``: (number, size), by absolute size; ties in the order of the terms.

    ``measure``: what a size is; ``start`` and ``stop``: the terms looked at; ``reached``: the limit
    that ended the work there, if one did.
    """

    expansion: Expansion
    measure: Measure
    start: int
    stop: int
    largest: tuple[tuple[int, float], ...]
    sums: Mapping[tuple[tuple[int, ...], str], Sum]
    reached: str = ""

    @property
    def terms(self) -> list[tuple[Term, float]]:
        """The largest, as terms."""
        return [(self.expansion[number], size) for number, size in self.largest]

    def by_order(self) -> dict[int, Sum]:
        """Sums by order (both sides together)."""
        return self._by(lambda key: sum(key[0]))

    def by_composition(self) -> dict[str, Sum]:
        """Sums by composition type."""
        found = self._by(lambda key: key[1])
        return {c: found[c] for c in COMPOSITIONS if c in found}

    @property
    def total(self) -> Sum:
        """The sum over all."""
        return sum(self.sums.values(), Sum(0, 0.0, 0.0))

    def json(self) -> dict[str, Any]:
        """The same as plain data (schema in docs/json.md)."""
        return higher(dict, "Summary.json")(self)

    def _by(self, key: Callable[[Any], Any]) -> dict[Any, Sum]:
        found: dict[Any, Sum] = {}
        for orders, one in self.sums.items():
            found[key(orders)] = found.get(key(orders), Sum(0, 0.0, 0.0)) + one
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Remote:
    """The data from which a worker in another process makes values, which it caches."""

    run: RunFile
    expansion: Expansion
    measure: Measure


@dataclass(frozen=True, slots=True, eq=False)
class _Local:
    measuring: Measuring
    budget: Budget = field(default_factory=Budget)  # other processes are not waited for

    @property
    def expansion(self) -> Expansion:
        """The terms."""
        return self.measuring.values.expansion

    def in_time(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """The results until time is up."""
        for piece in pieces:
            if self.budget.late:
                raise OutOfTime
            yield piece


_Task = tuple[_Local | _Remote, int, int, int]


def summary(
    values: Values, by: Measure | None = None, *, top: int = 20, start: int = 0, stop: int | None = None,
    max_terms: int | None = None, max_seconds: float | None = None, workers: Any = None,
    progress: OnProgress | bool = None,
) -> Summary:  # fmt: skip
    """Sums of the sizes of a range of terms, and the largest of them; see :meth:`symcircuits.values.sums.Sums.summary`.

    The pieces depend on the work alone and their sums are added in pairs in a fixed order, so the result is the same,
    bit for bit, for any number of workers that compute alike.
    """
    expansion, run = values.expansion, values.run
    found_by = resolved(values, by)
    top, chosen = whole("top", top, 0), range_of(expansion, start, stop)
    start = chosen.start
    budget = Budget(max_terms=max_terms, max_seconds=max_seconds)
    planned = _planned(len(chosen), top, budget)
    with WorkerPool(workers) as crew, pinned():
        local = crew.here or not planned
        remote = None if local else _Remote(RunFile.of(run), expansion, found_by)
        source = remote or _Local(Measuring(values, found_by), budget)
        tasks = _tasks(source, start, start + planned, top)
        pieces = len(_cuts(expansion, start, start + planned)) + bool(planned)

        def sent() -> Callable[[_Task], _Task]:
            elsewhere = _Remote(RunFile.of(run), expansion, found_by)
            return lambda task: (elsewhere, *task[1:])

        parts = crew.results(_measured, tasks, budget.until, pieces=pieces, sent=sent)
        found = pairwise(_reported(parts, told_by(progress), planned, budget), partial(_joined, top)) or _Part((), {})
    if not sum(s.absolute for s in found.sums.values()) < float("inf"):
        raise ValueError("the sum of the sizes of the terms leaves the range of float64: scale the weights")
    reached = "" if budget.terms == len(chosen) else budget.ended()
    return Summary(expansion, found_by, start, start + budget.terms, found.top, sums=found.sums, reached=reached)


def _planned(total: int, top: int, budget: Budget) -> int:
    """How many of ``planned`` terms are looked at; raises if these, or the list of the largest, are too many."""
    planned = total if budget.max_terms is None else min(total, budget.max_terms)
    if planned >= MOST:
        raise ValueError(
            f"{amount(planned, 'term')} are too many to look at one by one: use largest or sample, or select some"
        )
    if min(top, planned) > MOST_LISTED:
        raise ValueError(
            f"the {min(top, planned):,} largest are too many to list ({MOST_LISTED:,} at most): measure gives the "
            "numbers of all terms in blocks"
        )
    return planned


def _cuts(expansion: Expansion, start: int, stop: int) -> range:
    """The ends of all pieces but the last; pieces of scores are larger, and consist of whole query paths.

    Each piece of scores computes the vectors of its keys again.
    """
    sides = expansion.sides
    each = min(max(FEWEST * (4 if len(sides) == 2 else 1), -(-(stop - start) // PIECES)), MOST_EACH)
    if len(sides) == 2:
        keys = max(1, sum(sides[1].counts.values()))
        each = max(1, each // keys) * keys if keys <= MOST_EACH else each
    return range((start // each + 1) * each, stop, each)


def _tasks(source: _Local | _Remote, start: int, stop: int, top: int) -> Iterator[tuple[str, _Task]]:
    """The pieces, one after the other."""
    if start < stop:
        for at, end in pairwise_of(chain([start], _cuts(source.expansion, start, stop), [stop])):
            yield f"terms {at:,} to {end - 1:,}", (source, at, end, top)


def _reported(parts: Iterator[_Part], progress: OnProgress, total: int, budget: Budget) -> Iterator[_Part]:
    """The parts until a limit is reached, each reported."""
    while not budget.ended():
        try:
            part = next(parts, None)
        except OutOfTime:
            return
        if part is None:
            return
        budget.terms += sum(s.count for s in part.sums.values())
        if progress:
            progress("terms", budget.terms, total)
        yield part


def _joined(k: int, a: _Part, b: _Part) -> _Part:
    keys = sorted({*a.sums, *b.sums})
    none = Sum(0, 0.0, 0.0)
    return _Part(joined(k, a.top, b.top), {key: a.sums.get(key, none) + b.sums.get(key, none) for key in keys})


# ------------------------------------------------------------------------------------------------ by a worker
@lru_cache(maxsize=2)
def _local(remote: _Remote) -> _Local:
    values = evaluate(remote.expansion, remote.run.run())
    return _Local(Measuring(values, remote.measure))


def _measured(task: _Task) -> _Part:
    """The result for the terms of a piece."""
    source, start, stop, k = task
    if isinstance(source, _Remote):
        pin()
        source = _local(source)
    sizes = _sizes(source, range(start, stop))
    if not np.isfinite(sizes).all():  # for a batch: each row is finite
        raise ValueError("the norm of a term over all rows leaves the range of float64: scale the weights")
    return _Part(top([(start, sizes)], k), _sums(source.expansion, sizes, start, stop))


def _sizes(source: _Local, terms: range) -> Array:
    """One number per term, in float64."""
    if prod(source.measuring.values.batch) == 1:  # as they are computed
        [whole] = source.measuring.blocks(len(terms), terms, source.in_time)
        return over_rows(whole.values)
    sizes = np.empty(len(terms))
    for block in source.measuring.blocks(LOOK, terms, source.in_time):
        at = block.start - terms.start
        sizes[at : at + len(block.values)] = over_rows(block.values)
    return sizes


def over_rows(numbers: Array) -> Array:
    """One number per term, ``[terms]``, in float64: norms of the rows of a batch as the norm over all of them."""
    wide = np.asarray(numbers, np.float64).reshape(len(numbers), -1)
    if wide.shape[1] == 1:
        return wide[:, 0]
    most = wide.max(1, initial=0.0)
    scaled = wide / np.where(most > 0, most, 1.0)[:, None]
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt((scaled**2).sum(1)) * most)


@np.errstate(over="ignore", invalid="ignore")
def _sums(expansion: Expansion, sizes: Array, start: int, stop: int) -> dict[tuple[tuple[int, ...], str], Sum]:
    """Sums by the orders of each side and composition type; overflow raises at the end."""
    parts: dict[tuple[int, ...], list[Array]] = {}
    at = 0
    for run in order_runs(expansion, start, stop):
        for orders, some in _by_orders(run, sizes[at : at + run.terms]):
            parts.setdefault(orders, []).append(some)
        at += run.terms
    found = {}
    for orders, alike in sorted(parts.items()):
        part = alike[0] if len(alike) == 1 else np.concatenate(alike)
        total = float(part.sum())
        absolute = np.abs(part, out=None if np.may_share_memory(part, sizes) else part)  # in place if it is a copy
        one = Sum(len(part), total, float(absolute.sum()))
        found[orders, COMPOSITIONS[composition_code(orders)]] = one
    return found


def _by_orders(run: OrderRun, sizes: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """The sizes of a run of terms by their orders: for scores, columns of query paths times key paths."""
    if not run.keys:
        yield (run.order,), sizes
        return
    period = sum(count for _, count in run.keys)
    first = min(-run.skip % period, len(sizes))  # the rest of a query path that began before
    whole = (len(sizes) - first) // period * period
    for key, part in (
        (run.skip % period, sizes[:first].reshape(1, -1)),
        (0, sizes[first : first + whole].reshape(-1, period)),
        (0, sizes[first + whole :].reshape(1, -1)),
    ):
        at = -key
        for order, count in run.keys:
            some = part[:, max(at, 0) : max(at + count, 0)]
            at += count
            if some.size:
                yield (run.order, order), some.reshape(-1)
