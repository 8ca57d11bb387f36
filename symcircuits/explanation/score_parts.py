"""A head's scores split: by composition type, by source of query and key, what softmax does not see, largest terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius, frobenius_each
from symcircuits.core.expansion import Expansion, Term, composition_of, expand
from symcircuits.core.paths import Paths
from symcircuits.core.programs import made
from symcircuits.core.text import amount, whole
from symcircuits.explanation.score_search import Bounded, bounded_heads
from symcircuits.explanation.scores import centred, centred_shares
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate, reference
from symcircuits.values.top import top as top_of

__all__ = [
    "ScoreParts", "ScoreTerm", "bounds_of_heads", "largest_score_terms", "lowest_orders", "score_parts",
    "score_term_columns",
]  # fmt: skip

Array = npt.NDArray[Any]
MOST = 10**13  # terms that are looked at
_ENTRIES = 2 * 10**8  # numbers that are looked at to find the largest score terms of a head
_FEW = 100  # terms that are formed without further thought
_EACH, _FORMED = 128, 3000  # terms that are formed at a time, and in all, where there are bounds of their sizes
_NOTHING = 1e-13  # of the largest norm: of the size of rounding
_ROUNDED = 1e-5  # by how much a term may be above its bound


@dataclass(frozen=True, slots=True, eq=False)
class ScoreParts:
    """A head's scores ``[..., n, n]`` as sums of parts; made by :func:`score_parts`.

    ``by_composition`` and ``by_source`` (kinds of source of query and key, ``("embed", "b_K")``) each add up to the
    scores before the mask (and before a soft cap and what ALiBi adds). ``invisible``: the sum of the terms that are
    constant along the keys, 0 where a soft cap acts on the scores (softmax then sees them); ``spread``: how far it is
    from constant, at most. ``shares_by_source``: centred shares; ``counts_by_source``: numbers of terms.
    """

    head: str
    allowed: npt.NDArray[np.bool_]
    by_composition: dict[str, Array]
    by_source: dict[tuple[str, str], Array]
    counts_by_source: dict[tuple[str, str], int]
    shares: dict[str, float | None]
    shares_by_source: dict[tuple[str, str], float | None]
    invisible: Array
    invisible_count: int
    spread: float


def score_parts(run: Run, head: str | tuple[int, int]) -> ScoreParts:
    """Split a head's scores by the walk; nothing is listed, so any depth will do.

    Each side is walked once, marked by the kind of its source:
    ``S = scale sum_{a, b} q_a k_b^T``, with ``q_a`` the queries from paths whose source is of kind a, ``k_b`` the keys
    from kind b. ValueError if the head does not exist. Source: own derivation.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2), biases=True), seed=1).run([1, 2, 3])
    >>> parts = score_parts(run, "L1H0")
    >>> sorted(parts.by_composition), len(parts.by_source), parts.invisible_count
    (['K', 'Q', 'QK', 'none'], 16, 28)
    >>> masked = np.where(parts.allowed, sum(parts.by_source.values()), -np.inf)
    >>> bool(np.allclose(masked, run.scores["L1H0"])), parts.spread < 1e-13
    (True, True)
    """
    label = str(run.model.architecture.head(head))
    expansion = expand(run.model.architecture, f"scores:{label}")
    values = evaluate(expansion, run)
    by_composition: dict[str, Array] = {}
    by_source: dict[tuple[str, str], Array] = {}
    counts: dict[tuple[str, str], int] = {}
    queries, keys = (_side(values, side) for side in (0, 1))
    for (q_order, q_kind), (n, query) in queries.items():
        for (k_order, k_kind), (m, key) in keys.items():
            value = np.broadcast_to(values.met(query, key), run.scores[label].shape)
            composition, pair = composition_of((q_order, k_order)), (q_kind, k_kind)
            by_composition[composition] = by_composition.get(composition, 0) + value
            by_source[pair] = by_source.get(pair, 0) + value
            counts[pair] = counts.get(pair, 0) + n * m
    unseen = expansion.softmax_invisible()
    unseen_count = unseen.count
    invisible = np.array(evaluate(unseen, run).total()) if unseen_count else np.zeros_like(run.patterns[label])
    return ScoreParts(
        label,
        np.isfinite(run.scores[label]),
        by_composition={c: by_composition[c] for c in expansion.counts_by_composition()},
        by_source=by_source,
        counts_by_source=counts,
        shares=centred_shares(run, expansion, by_composition),
        shares_by_source=centred_shares(run, expansion, by_source),
        invisible=invisible,
        invisible_count=unseen_count,
        spread=float(np.ptp(invisible, axis=-1).max(initial=0.0)),
    )


def _side(values: Values, side: int) -> Mapping[tuple[int, str], tuple[int, Array]]:
    """One side's queries or keys by whether a head is passed (0 or 1) and kind of source, with their numbers."""
    paths = values.expansion.sides[side]
    sources = [s for layer in paths.program for s in layer.sources]
    kinds = list(dict.fromkeys(s.kind for s in sources))
    marked = Paths(paths.program, {}, {s.name: 1 << kinds.index(s.kind) for s in sources})
    counts: dict[tuple[int, str], int] = {}
    for mark, n in marked.counts.items():
        key = (min(mark.order, 1), kinds[mark.bits.bit_length() - 1])
        counts[key] = counts.get(key, 0) + n
    sums = {(mark.order, kinds[mark.bits.bit_length() - 1]): v for mark, v in values.side(marked, most=1).items()}
    return {key: (n, np.asarray(sums[key])) for key, n in counts.items()}


# ---------------------------------------------------------------------------------------------- its terms
@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """A score term with its size: norm over allowed entries, norm and share of it when centred (None: undefined).

    ``softmax_invisible``: whether softmax does not see it (it sees every term where a soft cap acts on the scores).
    """

    term: Term
    norm: float
    centred_norm: float
    centred_share: float | None
    softmax_invisible: bool


def lowest_orders(expansion: Expansion, max_terms: int) -> Expansion:
    """The orders, from 0 on, that together stay within a number of terms; OverflowError from 10^13 terms on."""
    orders, total = [], 0
    for order, n in expansion.counts_by_order().items():
        total += n
        if total > max_terms:
            break
        orders.append(order)
    found = expansion if total <= max_terms else expansion.order(*orders)
    if found.count >= MOST:
        raise OverflowError(
            f"{amount(found.count, 'term')} of {expansion.target} are too many to look at one by one: give a smaller "
            "max_terms, or see largest of the values, which lists none"
        )
    return found


def largest_score_terms(
    run: Run, head: str | tuple[int, int], top: int = 10, max_terms: int = 20_000, bounded: Bounded | None = None
) -> tuple[tuple[ScoreTerm, ...], int]:
    """The largest terms of a head's scores, by centred norm, and how many were looked at (the lowest orders).

    ``bounded``: bounds of their sizes (see :func:`bounds_of_heads`), by which not all of them have to be formed.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> terms, looked_at = largest_score_terms(run, "L1H0", top=2)
    >>> looked_at, terms[0].centred_norm >= terms[1].centred_norm
    (9, True)
    """
    label, top = str(run.model.architecture.head(head)), whole("top", top, 0)
    expansion = expand(run.model.architecture, f"scores:{label}")
    looked, measuring = _looked_at(run, expansion, max_terms), _Centred(run, expansion)
    best = None if bounded is None else _by_bounds(bounded, measuring, looked.count, top)
    if best is None:
        sizes = [measuring(block) for _, block in evaluate(looked, run).blocks()]
        norms, parts, shares = (
            (np.concatenate(kind) for kind in zip(*sizes, strict=True)) if sizes else [np.zeros(0)] * 3
        )
        shown = np.where(parts > _NOTHING * norms.max(initial=0.0), parts, 0.0)  # of the size of rounding: none
        best = {i: (norms[i], parts[i], shares[i]) for i, _ in top_of([(0, shown)], top)}
    terms = []
    for i, (size, part, share) in best.items():
        term = looked[i]
        terms.append(
            ScoreTerm(
                term, float(size), float(part), centred_share=float(share) if measuring.defined else None,
                softmax_invisible=term.softmax_invisible,
            )
        )  # fmt: skip
    return tuple(terms), looked.count


def bounds_of_heads(run: Run, heads: Sequence[str], max_terms: int = 20_000) -> dict[str, Bounded]:
    """Bounds for the terms that :func:`largest_score_terms` looks at, of all these heads by one pass over paths.

    Heads without are searched by forming every term; see :func:`~symcircuits.explanation.score_search.bounded_heads`.
    """
    orders = {}
    for label in heads:
        looked = _looked_at(run, expand(run.model.architecture, f"scores:{label}"), max_terms)
        if looked.count > _FEW and [*looked.counts_by_order()] == [*range(n := len(looked.counts_by_order()))]:
            orders[label] = n - 1
    return bounded_heads(run, orders) if orders else {}


def _looked_at(run: Run, expansion: Expansion, max_terms: int) -> Expansion:
    """The terms of the lowest orders, as many as may be looked at."""
    entries = run.scores[expansion.target.partition(":")[2]].size
    most = min(whole("max_terms", max_terms, 0), max(_ENTRIES // entries, 1))
    key = f"{expansion.target}, of up to {most} terms"
    return made(expansion.architecture, key, lambda: lowest_orders(expansion, most))


class _Centred:
    """Norms of score terms over allowed entries, as they are and centred, and shares of the centred scores."""

    def __init__(self, run: Run, expansion: Expansion) -> None:
        self.allowed = np.isfinite(run.scores[expansion.target.partition(":")[2]])
        seen = centred(reference(expansion.target, run), self.allowed).astype(np.float64)
        length = frobenius(seen) or 1.0
        self._seen, self._length = seen / length, length
        shares = centred_shares(run, expansion, evaluate(expansion, run).by_composition())
        self.defined = None not in shares.values()

    def __call__(self, block: Array) -> tuple[Array, Array, Array]:
        """Of ``[terms, ..., n, n]``."""
        part = centred(block, self.allowed)
        shares = part.reshape(len(part), -1).astype(np.float64, copy=False) @ self._seen.ravel() / self._length
        return frobenius_each(np.where(self.allowed, block, 0)), frobenius_each(part), shares


def _by_bounds(
    bounded: Bounded, measuring: _Centred, count: int, top: int
) -> dict[int, tuple[float, float, float]] | None:
    """The largest, by number: formed in the order of their bounds, until no bound is above the last that is kept.

    None where that takes too many, or where some that are kept are of the size of rounding.
    """
    bounds, most = bounded.bounds
    if len(bounds) != count or not 0 < top < count:
        return None
    least = max(2 * _NOTHING, 8 * float(np.finfo(bounded.values.run.dtype).eps)) * most  # below it all is rounding
    order, done, found = np.argsort(-bounds, kind="stable"), 0, dict[int, tuple[float, float, float]]()
    while done < count:
        last = min((part for _, part, _ in found.values()), default=0.0) if len(found) == top else 0.0
        wanted = int(np.searchsorted(-bounds[order], -last * (1 - _ROUNDED), side="right")) if last else count
        if wanted <= done:
            return found if last > least else None
        if done >= _FORMED:
            return None
        numbers = order[done : min(wanted, done + (_EACH if done else 4 * top))]
        done += len(numbers)
        norms, parts, shares = (kind.tolist() for kind in measuring(bounded.formed(numbers)))
        found |= dict(zip(numbers.tolist(), zip(norms, parts, shares, strict=True), strict=True))
        best = sorted(found, key=lambda i: (-found[i][1], i))[:top]
        found = {i: found[i] for i in best}
    return found if min(part for _, part, _ in found.values()) > least else None


def score_term_columns(terms: Sequence[ScoreTerm]) -> dict[str, list[Any]]:
    """Score terms as columns: see :meth:`~symcircuits.explanation.explain.Explanation.score_columns`."""
    return {
        "label": [s.term.label for s in terms],
        "order": [s.term.order for s in terms],
        "composition": [s.term.composition for s in terms],
        "query_source": [s.term.sources[0] for s in terms],
        "key_source": [s.term.sources[1] for s in terms],
        "query_heads": [" ".join(map(str, s.term.heads[0])) for s in terms],
        "key_heads": [" ".join(map(str, s.term.heads[1])) for s in terms],
        "norm": [s.norm for s in terms],
        "centred_norm": [s.centred_norm for s in terms],
        "centred_share": [s.centred_share for s in terms],
        "softmax_invisible": [s.softmax_invisible for s in terms],
        "text": [s.term.text for s in terms],
    }
