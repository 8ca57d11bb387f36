"""A head's scores split: by composition type, by source of query and key, what softmax does not see, largest terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion, Term, composition_of, expand
from symcircuits.core.paths import Paths
from symcircuits.core.text import amount, whole
from symcircuits.explanation.scores import centred, centred_shares
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate, reference
from symcircuits.values.top import top as top_of

__all__ = [
    "ScoreParts", "ScoreTerm", "largest_score_terms", "lowest_orders", "score_parts", "score_term_columns",
]  # fmt: skip

Array = npt.NDArray[Any]
MOST = 10**13  # terms that are looked at
_ENTRIES = 2 * 10**8  # numbers that are looked at to find the largest score terms of a head


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
    from kind b. ValueError on a head that is not there. Source: own derivation.

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
    invisible, unseen_count = np.array(evaluate(unseen, run).total()), unseen.count
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
    run: Run, head: str | tuple[int, int], top: int = 10, max_terms: int = 20_000
) -> tuple[tuple[ScoreTerm, ...], int]:
    """The largest terms of a head's scores, by centred norm, and how many were looked at (the lowest orders).

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> terms, looked_at = largest_score_terms(run, "L1H0", top=2)
    >>> looked_at, terms[0].centred_norm >= terms[1].centred_norm
    (9, True)
    """
    label, top = str(run.model.architecture.head(head)), whole("top", top, 0)
    expansion = expand(run.model.architecture, f"scores:{label}")
    allowed = np.isfinite(run.scores[label])
    looked = lowest_orders(expansion, min(whole("max_terms", max_terms, 0), max(_ENTRIES // allowed.size, 1)))
    seen = centred(reference(expansion.target, run), allowed).astype(np.float64)
    length = frobenius(seen)
    defined = None not in centred_shares(run, expansion, evaluate(expansion, run).by_composition()).values()
    norms, parts, shares = (np.zeros(looked.count) for _ in range(3))
    for start, block in evaluate(looked, run).blocks():
        part = centred(block, allowed)
        at = slice(start, start + len(block))
        norms[at], parts[at] = (_norms(a) for a in (np.where(allowed, block, 0), part))
        shares[at] = np.sum(part * (seen / (length or 1.0)), axis=tuple(range(1, part.ndim))) / (length or 1.0)
    shown = np.where(parts > 1e-13 * norms.max(initial=0.0), parts, 0.0)  # of the size of rounding: none
    best = ((looked[i], i) for i, _ in top_of([(0, shown)], top))
    return tuple(
        ScoreTerm(
            term, float(norms[i]), float(parts[i]), centred_share=float(shares[i]) if defined else None,
            softmax_invisible=term.softmax_invisible,
        )
        for term, i in best
    ), looked.count  # fmt: skip


def _norms(block: Any) -> Any:
    return np.array([frobenius(one) for one in block])


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
