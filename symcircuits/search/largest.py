"""The largest terms of an expansion, with a certificate: found by best-first search, proved by bounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import argument, mebibytes, whole
from symcircuits.model import Run
from symcircuits.search.best_first import Found, Search, Tree
from symcircuits.search.pairs import Pairs
from symcircuits.search.squares import Squares, squares_of
from symcircuits.search.trees import trees
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.finite import remedy
from symcircuits.values.measure import MEAN, Measure, logit, resolved
from symcircuits.values.together import OneOrTwo, are_apart, beside, joined
from symcircuits.values.unembedding import with_mean
from symcircuits.work.pools import OutOfTime
from symcircuits.work.progress import OnProgress, told_by

__all__ = ["LargeTerm", "Largest", "largest"]

Array = npt.NDArray[Any]
_TERM_BYTES = 1000  # of a listed term: its path, size and value
_FEW_BYTES = 2**26  # of listed terms, allowed whatever the memory of the search
_SIGNED = 32  # signed sums for the share of the listed terms, if it is estimated


@dataclass(frozen=True, slots=True)
class LargeTerm(OneOrTwo):
    """A term with its size, and its signed value (None for a norm).

    ``beside``: in a default ranking, the term through the same heads from positions; the numbers are for their sum.
    """

    term: Term
    size: float
    value: float | None
    beside: Term | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Largest(Shown):
    """The largest terms found, the largest first, and what is proved of all others.

    ``exact``: they are the largest; ``certain``: how many of them are, if the search ended early (``reached`` names
    the limit). ``bound``: no unlisted term is larger; ``rounding``: the accuracy of all sizes and comparisons.
    ``expansions``: partial paths expanded; ``looked``: terms computed; ``excluded``: terms never
    computed and proved to be no larger than the smallest listed one; ``open``: the others. ``total``: the sum
    of all terms (for norms: the norm of the sum), by the walk; ``listed``: the sum of the listed ones; ``remainder``:
    that of the unlisted ones. ``squares``: the sum of the squares of all terms; ``share``: the part of it in the listed
    terms. ``together``: terms from the token embedding and from positions are ranked in pairs, by their sums.
    """

    expansion: Expansion
    measure: Measure
    terms: tuple[LargeTerm, ...]
    exact: bool
    certain: int
    reached: str
    bound: float
    rounding: float
    expansions: int
    looked: int
    excluded: int
    open: int
    total: float
    listed: float
    remainder: float
    squares: Squares
    seconds: float
    together: bool = False

    @property
    def ranked(self) -> int:
        """How many are ranked: the terms, or, with ``together``, the sums of two and the other terms."""
        return self.looked + self.excluded + self.open

    @property
    def share(self) -> float | None:
        """The part of the sum of squares that is in the listed terms; None if all are 0."""
        held = sum(t.size * t.size for t in self.terms)
        return held / self.squares.value if 0 < self.squares.value < float("inf") else None

    def json(self) -> dict[str, Any]:
        """The result as plain data."""
        return higher(dict, "Largest.json")(self)


def largest(
    values: Values, k: int = 10, by: Measure | None = None, *, max_expansions: int | None = None,
    max_seconds: float | None = None, max_memory: int = 2**30, moments: bool | None = None,
    progress: OnProgress | bool = None,
) -> Largest:  # fmt: skip
    """The ``k`` largest terms of an expansion on a run, and a proof that no other is larger, without listing all.

    ``by`` None: for the logits of one prompt, by a measure that does not depend on how the model is written: the term
    in the first choice of the last position less the mean of all outputs, with terms from the token embedding and from
    positions as one; otherwise by norm.
    anything else by norm.

    Paths are grown from the readout back, best bound first. A suffix reads ``L X R`` of the stream. For
    every X that ends in head f, with values ``Y`` before its pattern and ``R_f = W_O^T R``::

        |L A_f Y R_f| <= | |L| |A_f| beta_f | ||R_f||_2         beta_f[t] = largest |Y[t]|, at most
        |L A_f Y R_f|^2 <= <L^T L (x) R_f R_f^T, K_f>          K_f = sum of vec(A_f Y) vec(A_f Y)^T

    The first is the triangle inequality, with ``beta_f`` by induction over layers from ``||W_O^{g T} W_V^{f T}||_2``;
    the second holds because every square is at most the sum of all (K_f is exact; computed if memory and time allow,
    see ``moments``). Bounds are enlarged by the effect of rounding (see :mod:`symcircuits.search.suffixes`), and values
    are computed in float64. Score terms are pairs of paths, and ``|<u, v>| <= |u| |v|`` (see
    :mod:`symcircuits.search.pairs`). Source: own derivation.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((4, 4, 4)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> found = values.largest(3, sc.logit(against="second"))
    >>> found.exact, len(found.terms), found.looked + found.excluded
    (True, 3, 125)
    >>> token, against = found.measure.chosen
    >>> brute = sorted(abs(value[-1, token] - value[-1, against]) for value in values)
    >>> bool(np.allclose([t.size for t in found.terms], brute[:-4:-1]))
    True
    """
    expansion = values.expansion
    k, budget = whole("k", k, 0), Budget(max_expansions=max_expansions, max_seconds=max_seconds, max_memory=max_memory)
    _check(k, expansion.count, max_memory)
    by, together = _default(values) if by is None else (by, False)
    measure = resolved(values, by)
    seen, read = with_mean(values, measure)
    seen = joined(seen) if together else seen
    with np.errstate(over="ignore", invalid="ignore"):  # a bound that overflows is infinite, which is still a bound
        found = _largest(read, seen.expansion, seen.run, budget, k, moments, told_by(progress))
    terms = tuple(replace(t, beside=beside(expansion, t.term)) for t in found.terms) if together else found.terms
    return replace(
        found, expansion=expansion, measure=measure, terms=terms, together=together,
        squares=replace(found.squares, by=str(measure)),
    )  # fmt: skip


def _default(values: Values) -> tuple[Measure | None, bool]:
    """The default measure of terms, and whether those of token and position count as one."""
    run, expansion = values.run, values.expansion
    if not isinstance(run, Run) or expansion.target != "logits" or (run.model.d_vocab_out or 0) < 2:
        return None, False
    if run.tokens.ndim > 1 and len(run.tokens) != 1:
        return None, False
    scaled = bool(run.arrays["m_E"]) if "m_E" in run.arrays else True  # an embedding times 0 cannot absorb positions
    row = None if run.tokens.ndim == 1 else 0
    return logit(against=MEAN, row=row), are_apart(expansion) and scaled


def _largest(
    measure: Measure, expansion: Expansion, run: Run, budget: Budget, k: int, moments: bool | None,
    progress: OnProgress,
) -> Largest:  # fmt: skip
    """Run the search, and collect what it proves."""
    found = trees(measure, expansion, run, budget, moments)
    searched, begun = _one_side if len(found) == 1 else _two_sides, True
    try:
        terms, unseen, unlisted, off, looked, still = searched(found, measure, run, expansion, k, progress)
    except OutOfTime:  # before any bound was known
        budget.ended()
        begun = False
        terms, unseen, unlisted, off, looked, still = (), float("inf"), 0.0, 0.0, 0, expansion.count
    if not all(t.size < float("inf") for t in terms):
        raise ValueError("there are terms so large that their norms leave the range of float64; scale the weights")
    least = terms[-1].size if len(terms) == min(k, expansion.count) and terms else -1.0
    least = float("inf") if not min(k, expansion.count) else least
    # A search that ended early has not looked at terms that only rounding separates.
    exact = unseen <= (least if budget.reached else least + 2 * off) or looked == expansion.count
    certain = len(terms) if exact else sum(t.size >= unseen for t in terms)
    open_ = 0 if exact else still
    sums, none = _sums(found, measure, run, expansion, terms), Squares(float("nan"), float("nan"), False, str(measure))
    squares = squares_of(measure, expansion, run, found, budget, _SIGNED) if begun else none
    total, listed, rest = sums
    return Largest(
        expansion, measure, terms, exact=exact, certain=certain, reached="" if exact else budget.reached,
        bound=max(unseen, unlisted), rounding=off, expansions=budget.expansions, looked=looked,
        excluded=expansion.count - looked - open_, open=open_, total=total, listed=listed, remainder=rest,
        squares=squares, seconds=time.monotonic() - budget.start,
    )  # fmt: skip


def _check(k: int, count: int, max_memory: int) -> None:
    if min(k, count) * _TERM_BYTES > max(max_memory, _FEW_BYTES):
        raise ValueError(
            f"the {min(k, count):,} largest terms need about {mebibytes(min(k, count) * _TERM_BYTES)}, and "
            f"{argument('max_memory')} is {mebibytes(max_memory)}: ask for fewer"
        )


_Searched = tuple[tuple[LargeTerm, ...], float, float, float, int, int]


def _one_side(
    found: tuple[Tree, ...], measure: Measure, run: Run, expansion: Expansion, k: int, progress: OnProgress
) -> _Searched:
    search = Search(found[0], k, progress)
    best: list[Found] = []
    while len(best) < k and (one := search.next()) is not None:
        best.append(one)
    rest = search.rest()
    best, rest = best + rest[: k - len(best)], rest[k - len(best) :]
    unlisted = max((one.size + one.off for one in rest), default=0.0)
    terms = tuple(
        LargeTerm(expansion._term(one.path), one.size, float(one.value.sum()) if measure.signed else None)
        for one in best
    )
    least = best[-1].size if best else 0.0
    still = search.open(least if len(best) == k else -1.0)
    return terms, search.unseen, unlisted, search.off, search.looked, still


def _two_sides(
    found: tuple[Tree, ...], measure: Measure, run: Run, expansion: Expansion, k: int, progress: OnProgress
) -> _Searched:
    pairs = Pairs(found, measure.kind, run, expansion, keep=k, progress=progress)
    pairs.run()
    terms = tuple(
        LargeTerm(expansion._term(q.path, key.path), size, value if measure.signed else None)
        for size, value, q, key in pairs.best
    )
    # Pairs seen and not listed are at most as large as the smallest listed one.
    least = terms[-1].size if terms else 0.0
    unlisted = least + pairs.off if pairs.looked > len(terms) else 0.0
    return terms, pairs.unseen, unlisted, pairs.off, pairs.looked, pairs.open()


def _sums(
    found: tuple[Tree, ...], measure: Measure, run: Run, expansion: Expansion, terms: Sequence[LargeTerm]
) -> tuple[float, float, float]:
    """The sum of all terms, of the listed ones, and of the others: numbers, or norms of sums."""
    if measure.signed and len(found) == 1:
        total, listed = float(found[0].total().sum()), float(sum(t.value or 0.0 for t in terms))
        return total, listed, total - listed if len(terms) < expansion.count else 0.0
    values = evaluate(expansion, run)
    whole = np.asarray(values.total(), np.float64)
    part = np.zeros_like(whole)
    for one in terms:
        part += values.value(one.term)
    rest = whole - part if len(terms) < expansion.count else np.zeros_like(whole)
    if not np.isfinite(part).all():
        raise ValueError(
            f"the sum of the largest terms leaves the range of {run.dtype}, in which the model was run; "
            f"{remedy(run.dtype)}"
        )
    if measure.kind == "score entry":
        at = (measure.position, measure.key) if measure.row is None else (measure.row, measure.position, measure.key)
        return float(whole[at]), float(part[at]), float(rest[at])
    if measure.kind == "masked norm":
        assert expansion.readout.head is not None
        whole, part, rest = (a * run.masks[f"L{expansion.readout.head.layer}"] for a in (whole, part, rest))
    return frobenius(whole), frobenius(part), frobenius(rest)
