"""explain: a model on tokens, as a sum of its terms: what was held fixed, closure, sizes, totals, remainder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.architecture import SOURCE_BIASES, Architecture
from symcircuits.closing import layer_closures
from symcircuits.evaluation import Closure, Values, closure, evaluate, rounding_scale
from symcircuits.expansion import Expansion, Term, expand
from symcircuits.model import Model, Run
from symcircuits.notation import ROW, Notation, as_notation

__all__ = ["Explanation", "HeadScores", "SizedTerm", "explain", "margin", "margin_shares"]

Array = npt.NDArray[Any]
MAX_TERMS = 20_000  # terms that are looked at one by one; the orders above are in the remainder
COMPOSITIONS = ("none", "Q", "K", "QK")


@dataclass(frozen=True, slots=True)
class SizedTerm:
    """A term with its size: Frobenius norm over all tokens and outputs, and contribution to the chosen logit."""

    term: Term
    norm: float
    contribution: float | None


@dataclass(frozen=True, slots=True)
class HeadScores:
    """A head's scores by composition type: share of the margin (None where undefined) and norm of each sum."""

    closure: Closure
    shares: dict[str, float | None]
    norms: dict[str, float]
    counts: dict[str, int]
    softmax_invisible: int


@dataclass(frozen=True, slots=True)
class Target:
    """The chosen logit: batch row, position (from 0) and output token; no token for a model without unembedding."""

    row: int
    position: int
    token: int | None
    value: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What :func:`explain` found; ``.text()`` and ``.json()`` show it."""

    model: Model
    run: Run
    expansion: Expansion
    target: Target
    assumptions: tuple[str, ...]
    closure: Closure
    scores: dict[str, HeadScores]
    totals: dict[str, dict[Any, dict[str, Any]]]
    terms: tuple[SizedTerm, ...]
    sort: str
    looked_at: int
    remainder: dict[str, Any] = field(default_factory=dict)
    layers: tuple[Closure, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every closure is within its bound."""
        parts = (self.closure, *self.layers, *(h.closure for h in self.scores.values()))
        return all(part.passed for part in parts)

    def json(self) -> dict[str, Any]:
        """The explanation as plain data (schema in README)."""
        from symcircuits.render.explained import explanation_json

        return explanation_json(self)

    def text(self, width: int = 100) -> str:
        """The explanation as tables that fit a terminal of that width."""
        from symcircuits.render.explained import explanation_text

        return explanation_text(self, width)

    def __repr__(self) -> str:
        return self.text()  # what a notebook shows


def explain(
    model: Model,
    tokens: Any,
    *,
    position: int = -1,
    token: int | None = None,
    row: int = 0,
    top: int = 20,
    sort: str = "norm",
    queries: Sequence[int] | None = None,
    max_terms: int = MAX_TERMS,
    dtype: Any = None,
    notation: str | Notation = ROW,
    symbols: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Explanation:
    """Run a model on tokens and take its logits (the stream, without unembedding) and scores apart.

    ``position``, ``token``, ``row``: the logit whose contributions are shown (last position, the model's first
    choice, first row). ``top``: how many terms are shown, largest first by ``sort`` (``"norm"`` or
    ``"contribution"``). ``queries``: the query positions of the margin (all). Above ``max_terms`` terms the orders
    that do not fit are not looked at one by one: they are in the remainder, whose sum is exact. ``notation`` and
    ``symbols``: how terms are printed (see :class:`~symcircuits.notation.Notation`). Raises ValueError on bad tokens
    or choices.

    >>> import symcircuits as sc
    >>> found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3], top=3)
    >>> found.ok, len(found.terms), found.remainder["count"]
    (True, 3, 6)
    """
    if not isinstance(model, Model):
        raise TypeError(f"explain takes a model (see load and from_arrays), not {type(model).__name__}")
    chosen_notation = as_notation(notation, symbols)
    run, architecture = model.run(tokens, dtype), model.architecture
    if sort not in ("norm", "contribution") or (sort == "contribution" and not architecture.unembed):
        raise ValueError(f'sort is "norm" or, for a model with logits, "contribution", not {sort!r}')
    for name, number in (("top", top), ("max_terms", max_terms)):
        if isinstance(number, bool) or not hasattr(number, "__index__") or number < 0:
            raise ValueError(f"{name} must be a whole number, 0 or more, not {number!r}")
    target = _target(run, row, position, token)
    chosen = _queries(run, queries)
    expansion = expand(architecture, "logits" if architecture.unembed else "stream").written(chosen_notation)
    values = evaluate(expansion, run)
    totals = _totals(values, target)
    looked = _looked_at(expansion, max_terms)
    shown = _largest(evaluate(looked, run), target, top, sort, progress)
    heads = architecture.all_heads
    scores = {}
    for i, head in enumerate(heads):
        scores[str(head)] = _head_scores(run, expand(architecture, f"scores:{head}"), chosen)
        if progress:
            progress("scores", i + 1, len(heads))
    return Explanation(
        model, run, expansion, target, _assumptions(model, run), closure(expansion, run), scores, totals, shown,
        sort, looked.count, _remainder(values, shown, target), layer_closures(run),
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- what is asked
def _target(run: Run, row: int, position: int, token: int | None) -> Target:
    shape = np.shape(run.tokens)
    row = _place("row", row, shape[0] if len(shape) == 2 else 1)
    position = _place("position", position, shape[-1])
    if run.logits is None:
        if token is not None:
            raise ValueError("this model has no unembedding, so there is no logit of a token to look at")
        return Target(row, position, None, None)
    logits = run.logits[row, position] if len(shape) == 2 else run.logits[position]
    token = int(np.argmax(logits)) if token is None else _place("token", token, len(logits), negative=False)
    return Target(row, position, token, float(logits[token]))


def _place(name: str, i: int, size: int, negative: bool = True) -> int:
    if isinstance(i, bool) or not hasattr(i, "__index__"):
        raise ValueError(f"{name} must be a whole number, not {i!r}")
    i = int(i)
    if not (-size if negative else 0) <= i < size:
        raise ValueError(f"{name} {i} does not exist: there are {size}, counted from 0")
    return i % size


def _queries(run: Run, queries: Sequence[int] | None) -> list[int]:
    n = np.shape(run.tokens)[-1]
    return list(range(n)) if queries is None else sorted({_place("query", q, n) for q in queries})


def _assumptions(model: Model, run: Run) -> tuple[str, ...]:
    architecture = model.architecture
    lines = [_held_sentence(architecture)]
    lines.append(f"computed in {run.dtype}; the file holds {model.dtype}")
    lines.append(_position_sentence(architecture))
    direction = "causal (a query sees itself and what is before)" if architecture.causal else "bidirectional"
    lines.append(f"attention: {direction}")
    lines.append(_scale_sentence(model))
    lines += _feature_sentences(model)
    if architecture.biases:
        kinds = sorted({b.partition("[")[0] for b in architecture.biases})
        sources = [kind for kind in kinds if kind in SOURCE_BIASES]
        lines += [f"biases are sources of their own: {', '.join(sources)}"] if sources else []
    return (*lines, *model.notes)


def _feature_sentences(model: Model) -> list[str]:
    """What norms, MLPs, groups, windows and caps mean for the terms."""
    architecture, settings, lines = model.architecture, model.settings, []
    if architecture.norm:
        lines.append(
            f"norms: {architecture.norm}, {'with' if architecture.gains else 'without'} gain; terms through different "
            "norms carry different scales, so that their sizes are not comparable"
        )
    if architecture.mlps:
        kind = f"{settings.activation}, gated" if architecture.gated else settings.activation
        lines.append(f"MLPs: {kind}; what each writes is a source of its own")
    if architecture.groups:
        lines.append(f"key/value heads by layer: {', '.join(map(str, architecture.groups))}")
    if any(w is not None for w in settings.windows):
        lines.append(f"window of keys by layer: {', '.join('all' if w is None else str(w) for w in settings.windows)}")
    for cap, what in ((settings.score_cap, "scores"), (settings.logit_cap, "logits")):
        lines += [f"{what} have a soft cap of {cap:g}: terms sum to the {what} before it"] if cap is not None else []
    return lines


def _held_sentence(architecture: Architecture) -> str:
    held = ["the attention pattern of every head"]
    held += ["1 / sigma of every norm"] if architecture.norm or architecture.qk_norm else []
    held += ["what every MLP writes"] if architecture.mlps else []
    values = "its value" if len(held) == 1 else "their values"
    return f"held fixed: {', '.join(held)}, at {values} on these tokens"


def _position_sentence(architecture: Architecture) -> str:
    return {
        None: "no position embedding",
        "standard": "the position embedding is a source of the stream, pos",
        "shortformer": "the position embedding enters queries and keys only (shortformer): pos is in no logit term",
        "rotary": "rotary positions turn queries and keys: scores hold W_Q^T R_(j-i) W_K",
        "alibi": "ALiBi adds -slope |i - j| to scores; it is no path term: score terms sum to the scores without it",
    }[architecture.positions]


def _scale_sentence(model: Model) -> str:
    if not model.architecture.scale:
        return "scores carry no scale"
    scales = sorted(set(model.score_scale.values()))
    return "score scale: " + (f"{scales[0]:.6g}" if len(scales) == 1 else "one a head") if scales else "no heads"


# ------------------------------------------------------------------------------------- logits (or stream)
def _looked_at(expansion: Expansion, max_terms: int) -> Expansion:
    """The orders, from 0 on, that together stay within the limit."""
    orders, total = [], 0
    for order, n in expansion.counts_by_order().items():
        total += n
        if total > max_terms:
            break
        orders.append(order)
    return expansion if total <= max_terms else expansion.order(*orders)


def _norm(value: Array) -> float:
    """Frobenius norm, in float64 and free of overflow on the way."""
    largest = float(np.abs(value).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(value.astype(np.float64) / largest))


def _entry(value: Array, target: Target) -> float | None:
    """The entry of the chosen logit."""
    if target.token is None:
        return None
    at = (target.row, target.position, target.token) if value.ndim == 3 else (target.position, target.token)
    return float(value[at])


def _totals(values: Values, target: Target) -> dict[str, dict[Any, dict[str, Any]]]:
    """Norm and contribution of the sum of the terms of each order and composition type."""
    e = values.expansion

    def sized(sums: Mapping[Any, Array], counts: Mapping[Any, int]) -> dict[Any, dict[str, Any]]:
        return {
            k: {"count": n, "norm": _norm(sums[k]), "contribution": _entry(sums[k], target)} for k, n in counts.items()
        }

    return {
        "order": sized(values.by_order(), e.counts_by_order()),
        "composition": sized(values.by_composition(), e.counts_by_composition()),
    }


def _largest(
    values: Values, target: Target, top: int, sort: str, progress: Callable[[str, int, int], None] | None
) -> tuple[SizedTerm, ...]:
    """The largest terms, by one pass over all values; ties keep the order of the expansion."""
    found: list[SizedTerm] = []
    done, count = 0, values.expansion.count
    for terms, block in values.blocks():
        found += [SizedTerm(t, _norm(value), _entry(value, target)) for t, value in zip(terms, block, strict=True)]
        done += len(terms)
        if len(found) > 4 * top + 1000:
            found = _best(found, top, sort)
        if progress:
            progress("terms", done, count)
    return tuple(_best(found, top, sort))


def _best(found: list[SizedTerm], top: int, sort: str) -> list[SizedTerm]:
    key = (lambda s: -s.norm) if sort == "norm" else (lambda s: -abs(s.contribution or 0.0))
    return sorted(found, key=key)[:top]


def _remainder(values: Values, shown: Sequence[SizedTerm], target: Target) -> dict[str, Any]:
    """What is not shown, as one sum: total minus the shown terms."""
    rest = np.array(values.total())
    for sized in shown:
        rest -= values.value(sized.term)
    count = values.expansion.count - len(shown)
    if not count:
        return {"count": 0, "norm": 0.0, "contribution": None if target.token is None else 0.0}
    return {"count": count, "norm": _norm(rest), "contribution": _entry(rest, target)}


# ------------------------------------------------------------------------------------------------- scores
def _head_scores(run: Run, expansion: Expansion, queries: Sequence[int]) -> HeadScores:
    values = evaluate(expansion, run)
    masked = run.scores[expansion.target.partition(":")[2]]
    allowed = np.isfinite(masked)
    sums = values.by_composition()
    norms = {c: _norm(np.where(allowed, sums[c], 0)) if c in sums else 0.0 for c in COMPOSITIONS}
    counts = {c: expansion.counts_by_composition().get(c, 0) for c in COMPOSITIONS}
    shares = margin_shares(run, expansion, sums, queries)
    return HeadScores(closure(expansion, run), shares, norms, counts, expansion.softmax_invisible().count)


def margin(scores: Array, pattern: Array, allowed: Array, queries: Sequence[int] | None = None) -> float:
    """Score at the key with the largest pattern minus the mean over the query's other allowed keys, summed.

    Linear in ``scores [..., n, n]``. Queries with one allowed key are skipped; ties go to the lowest key. Source:
    own definition.

    >>> scores, allowed = np.array([[0.0, 0.0], [1.0, 3.0]]), np.tril(np.ones((2, 2), bool))
    >>> margin(scores, np.array([[1.0, 0.0], [0.1, 0.9]]), allowed)
    2.0
    """
    return _margin(scores, pattern, allowed, queries, -1)


def _margin(scores: Array, pattern: Array, allowed: Array, queries: Sequence[int] | None, sign: int) -> float:
    """Score at the best key plus ``sign`` times the mean over the other allowed keys, summed over queries."""
    n, total = scores.shape[-1], 0.0
    flat = (np.broadcast_to(a, scores.shape).reshape(-1, n, n) for a in (scores, pattern, allowed))
    for s, p, ok in zip(*flat, strict=True):
        for i in range(n) if queries is None else queries:
            keys = np.flatnonzero(ok[i])
            if len(keys) > 1:
                best = keys[np.argmax(p[i, keys])]
                total += float(s[i, best] + sign * s[i, keys[keys != best]].mean())
    return total


def margin_shares(
    run: Run, expansion: Expansion, sums: dict[str, Array], queries: Sequence[int] | None = None
) -> dict[str, float | None]:
    """Each sum's share of a head's margin; None for all where the total is below its own rounding bound."""
    label = expansion.target.partition(":")[2]
    pattern, allowed = run.patterns[label], np.isfinite(run.scores[label])
    parts = {c: margin(v, pattern, allowed, queries) for c, v in sums.items()}
    total = sum(parts.values())
    size = sum(np.abs(v) for v in sums.values()) + rounding_scale(expansion.target, run)
    bound = 16 * np.finfo(run.dtype).eps / 2 * _margin(size, pattern, allowed, queries, +1)
    if not abs(total) > bound:
        return dict.fromkeys(COMPOSITIONS)
    return {c: parts.get(c, 0.0) / total for c in COMPOSITIONS}
