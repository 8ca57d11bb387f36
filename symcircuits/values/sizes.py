"""The size of every term of an expansion, range by range, by any workers: the largest, and sums by order and type."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.notation import amount
from symcircuits.core.seam import higher
from symcircuits.loaders import load
from symcircuits.loaders.by_path import RunFile, path_to_send
from symcircuits.model import Model, Run
from symcircuits.tables.blocks import COMPOSITIONS, TermBlock, blocks, numbers, whole
from symcircuits.tables.resumable import readable_size
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.finite import remedy
from symcircuits.values.measure import Asked, ask
from symcircuits.values.unembedding import Compact, compact
from symcircuits.work.pools import OutOfTime
from symcircuits.work.workers import Crew, pairwise, pin, pinned

__all__ = ["Sum", "TermSizes", "term_sizes"]

Array = npt.NDArray[Any]
EACH = 1 << 12  # terms of a range, at most
FEWEST = 1 << 6
HELD = 1 << 26  # bytes of the key vectors of a range
MOST = 10**13  # terms
MOST_LISTED = 10**6  # of the largest
_SCORES = 1 << 23  # bytes of score terms at a time


@dataclass(frozen=True, slots=True)
class Sum:
    """Of ``count`` terms: the sum of their sizes (signed, where they have a sign) and of the absolute values.

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
    """What a range gives: its largest, by number, and its sums by orders of each side and composition type."""

    top: tuple[tuple[int, float], ...]
    sums: Mapping[tuple[tuple[int, ...], str], Sum]


@dataclass(frozen=True, slots=True)
class TermSizes:
    """What :func:`term_sizes` found. ``largest``: (number, size), by absolute size; ties in the order of the terms.

    ``asked`` says what a size is; ``start`` and ``stop`` which terms were looked at; ``reached`` names the budget
    that ended it there, if one did.
    """

    expansion: Expansion
    asked: Asked
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

    def text(self, width: int = 100) -> str:
        """Sums and the largest, as tables that fit a terminal of that width."""
        return higher(str, "TermSizes.text")(self, width)

    def json(self) -> dict[str, Any]:
        """The same as plain data (schema in README)."""
        return higher(dict, "TermSizes.json")(self)

    def _by(self, key: Callable[[Any], Any]) -> dict[Any, Sum]:
        found: dict[Any, Sum] = {}
        for orders, one in self.sums.items():
            found[key(orders)] = found.get(key(orders), Sum(0, 0.0, 0.0)) + one
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Far:
    """From what a worker in another process makes values; it keeps what it made."""

    run: RunFile
    expansion: Expansion
    asked: Asked


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    values: Values
    asked: Asked
    small: Compact | None
    until: float | None  # when time is up

    @classmethod
    def of(cls, values: Values, asked: Asked, until: float | None = None) -> _Near:
        """With the unembedding made small where that pays, once for all ranges."""
        return cls(values, asked, compact(values, _chosen(asked)), until)


_Task = tuple[_Near | _Far, int, int, int]


def term_sizes(
    model: Model | str | os.PathLike[str],
    tokens: Any,
    expansion: Expansion,
    *,
    by: str = "norm",
    top: int = 20,
    start: int = 0,
    stop: int | None = None,
    row: int = 0,
    position: int = -1,
    token: int | None = None,
    against: int | None = None,
    key: int | None = None,
    dtype: Any = None,
    max_terms: int | None = None,
    max_seconds: float | None = None,
    max_memory: int | None = None,
    workers: Any = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> TermSizes:
    """The size of each of the terms ``start`` to ``stop``, computed one by one: the ``top`` largest, and sums.

    ``by``, ``row``, ``position``, ``token``, ``against`` and ``key`` as for
    :func:`~symcircuits.search.largest.largest`, which proves which are largest without a look at all. ``workers`` (and
    a path in place of the model) as for :func:`~symcircuits.explanation.many.explain_many`: each is given ranges of
    term numbers, and no arrays. The ranges depend on the work alone and their sums are added in pairs in one order, so
    that the result is the same, bit for bit, for any number of workers that compute alike. ``max_terms`` and
    ``max_seconds`` end the work: ``stop`` of the result says where, and the ``start`` of another call goes on there;
    ``max_memory`` (bytes) is for the key vectors of a range, which is the smaller for it. Raises ValueError on what
    does not exist, OverflowError that names the term where a size is no finite number, and where the terms are 10^13 or
    more. Source: own construction.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((2, 2)), d_vocab=9, seed=1)
    >>> found = sc.term_sizes(model, [1, 2, 3], sc.logits(model.architecture), by="logit", top=1, workers=2)
    >>> found.total.count, bool(abs(found.total.total - model.run([1, 2, 3]).logits[-1].max()) < 1e-12)
    (9, True)
    >>> found.largest == sc.term_sizes(model, [1, 2, 3], sc.logits(model.architecture), by="logit", top=1).largest
    True
    """
    if not isinstance(expansion, Expansion):
        raise TypeError(f"what is measured is an Expansion (see logits, scores, stream), not {expansion!r}")
    top, chosen = whole("top", top, 0), numbers(expansion, start, stop)
    start, total = chosen.start, chosen.stop - chosen.start
    planned = _planned(total, top, max_terms, max_seconds)
    until = None if max_seconds is None else time.monotonic() + max_seconds
    with Crew(workers) as crew, pinned():
        path = None if crew.here else path_to_send(model)
        run = (model if isinstance(model, Model) else load(model)).run(tokens, dtype)
        values = evaluate(expansion, run)  # refuses what does not go together, wherever the work is done
        asked = ask(expansion, run, by, row, position, token, against, key)
        source: _Near | _Far
        if path is None:
            source = _Near.of(values, asked, until)
        else:
            source = _Far(RunFile.of(path, run, dtype), expansion, asked)
        width = _width(run, expansion, max_memory)
        parts = crew.results(_measured, _tasks(source, start, start + planned, width, top), until)
        whole_part = pairwise(_told(parts, progress, planned), partial(_joined, top))
        found = whole_part or _Part((), {})
    if not sum(s.absolute for s in found.sums.values()) < float("inf"):
        raise OverflowError("the sum of the sizes of the terms leaves the range of float64; scale the weights")
    done = sum(s.count for s in found.sums.values())
    late = "" if done == planned else f"max_seconds ({max_seconds:g})"
    reached = "" if done == total else late or f"max_terms ({planned:,})"
    return TermSizes(expansion, asked, start, start + done, found.top, found.sums, reached)


def _planned(total: int, top: int, max_terms: int | None, max_seconds: float | None) -> int:
    """How many of so many terms are looked at; an error where that, or what is listed of them, is too much."""
    planned = total if max_terms is None else min(total, whole("max_terms", max_terms, 0))
    if planned >= MOST:
        raise OverflowError(
            f"{amount(planned, 'term')} are too many to look at one by one: see largest and sample, or choose some"
        )
    if min(top, planned) > MOST_LISTED:
        raise ValueError(
            f"the {min(top, planned):,} largest are too many to list ({MOST_LISTED:,} at most); norms, contributions "
            "and entries give the numbers of all terms in blocks"
        )
    if max_seconds is not None and not (isinstance(max_seconds, (int, float)) and max_seconds >= 0):
        raise ValueError(f"max_seconds must be a number from 0 on, not {max_seconds!r}")
    return planned


def _width(run: Run, expansion: Expansion, max_memory: int | None = None) -> int:
    """Terms of a range: of scores so many that their key vectors fit; the same whoever works."""
    held, head = HELD if max_memory is None else whole("max_memory", max_memory, 1), expansion.readout.head
    if head is None:
        return EACH
    each = run.tokens.size * run.arrays[f"W_Q_{head}"].shape[0] * run.dtype.itemsize
    if max_memory is not None and held < FEWEST * each:
        raise ValueError(
            f"max_memory {readable_size(held)} is not enough: the key vectors of {FEWEST} terms take "
            f"{readable_size(FEWEST * each)}"
        )
    return max(FEWEST, min(EACH, held // max(int(each), 1)))


def _tasks(source: _Near | _Far, start: int, stop: int, width: int, top: int) -> Iterator[tuple[str, _Task]]:
    for at in range(start, stop, width):
        end = min(at + width, stop)
        yield f"terms {at:,} to {end - 1:,}", (source, at, end, top)


def _told(parts: Iterator[_Part], progress: Any, total: int) -> Iterator[_Part]:
    """The parts until time is up, each told of."""
    done = 0
    while True:
        try:
            part = next(parts, None)
        except OutOfTime:
            return
        if part is None:
            return
        done += sum(s.count for s in part.sums.values())
        if progress:
            progress("terms", done, total)
        yield part


def _joined(top: int, a: _Part, b: _Part) -> _Part:
    largest = sorted((*a.top, *b.top), key=lambda one: (-abs(one[1]), one[0]))[:top]
    keys = sorted({*a.sums, *b.sums})
    none = Sum(0, 0.0, 0.0)
    return _Part(tuple(largest), {k: a.sums.get(k, none) + b.sums.get(k, none) for k in keys})


# ------------------------------------------------------------------------------------------------ by a worker
@lru_cache(maxsize=2)
def _near(far: _Far) -> _Near:
    return _Near.of(evaluate(far.expansion, far.run.run()), far.asked)


def _measured(task: _Task) -> _Part:
    """What the terms of a range give."""
    source, start, stop, top = task
    if isinstance(source, _Far):
        pin()
        source = _near(source)
    sizes = np.empty(stop - start)
    block = next(blocks(source.values.expansion, stop - start, start, stop))
    with np.errstate(all="ignore"):  # what is not finite is found below
        for i, size in enumerate(_sizes(source, block)):
            sizes[i] = size
            if source.until is not None and not i % 64 and time.monotonic() >= source.until:
                raise OutOfTime
    _check_finite(sizes, block, source.values.run)
    orders = np.stack(block.orders, 1).tolist()
    kinds = [COMPOSITIONS[c] for c in block.composition.tolist()]
    groups: dict[tuple[tuple[int, ...], str], list[float]] = {}
    for order, kind, size in zip(orders, kinds, sizes.tolist(), strict=True):
        groups.setdefault((tuple(order), kind), []).append(size)
    sums = {k: Sum(len(x), _sum(x), _sum(map(abs, x))) for k, x in sorted(groups.items())}
    best = np.argsort(-np.abs(sizes), kind="stable")[:top].tolist()
    return _Part(tuple((start + i, float(sizes[i])) for i in best), sums)


def _sum(sizes: Iterable[float]) -> float:
    """The sum, rounded once; infinite, and refused in the end, where it is none."""
    try:
        return math.fsum(sizes)
    except OverflowError:
        return float("inf")


def _check_finite(sizes: Array, block: TermBlock, run: Run) -> None:
    bad = np.flatnonzero(~np.isfinite(sizes))
    if bad.size:
        first = int(bad[0])
        raise OverflowError(
            f"term {block.start + first:,} ({block[first].label}) has the size {sizes[first]}: its value left the "
            f"numbers that this type can hold (and so did {amount(int(bad.size) - 1, 'more term')} of "
            f"{len(block):,}); {remedy(run.dtype)}"
        )


def _sizes(source: _Near, block: TermBlock) -> Iterator[float]:
    paths = [term.paths for term in block]
    values, asked = source.values, source.asked
    if len(block.heads) == 1:
        tokens, small = _chosen(asked), source.small
        for value in values.tree(0, small.matrices if small else {}).of([p[0] for p in paths]):
            same, entries = small.read(value) if small else (value, value[..., tokens])
            yield frobenius(same) if asked.by == "norm" else _entry(asked, entries)
        return
    keys = list(dict.fromkeys(p[1] for p in paths))
    vectors = dict(zip(keys, map(values._turned, values.tree(1).of(keys)), strict=True))
    queries = list(dict.fromkeys(p[0] for p in paths))
    turned = dict(zip(queries, map(values._turned, values.tree(0).of(queries)), strict=True))
    for query, group in groupby(paths, key=lambda p: p[0]):
        yield from _scores(source, turned[query] * values.scale, [vectors[p[1]] for p in group])


def _scores(source: _Near, query: Array, keys: Sequence[Array]) -> Iterator[float]:
    """Sizes of the score terms of one query path."""
    asked, run = source.asked, source.values.run
    if asked.by == "score entry":
        at = () if asked.row is None else (asked.row,)
        for k in keys:
            yield float(query[(*at, asked.position)] @ k[(*at, asked.key)])
        return
    head = source.values.expansion.readout.head
    mask = run.masks[f"L{head.layer}"] if asked.by == "masked norm" and head is not None else None
    each = max(1, _SCORES // max(query.nbytes // query.shape[-1] * query.shape[-2], 1))
    for i in range(0, len(keys), each):
        for value in query @ np.stack(keys[i : i + each]).swapaxes(-1, -2):
            yield frobenius(value if mask is None else np.where(mask, value, 0))


def _chosen(asked: Asked) -> list[int]:
    return [t for t in (asked.token, asked.against) if t is not None]


def _entry(asked: Asked, entries: Array) -> float:
    """A logit, or the difference of two, of the chosen row and position."""
    chosen = entries[asked.position] if asked.row is None else entries[asked.row, asked.position]
    return float(chosen[0] if asked.against is None else chosen[0] - chosen[1])
