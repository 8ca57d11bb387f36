"""The effect of terms on the loss: after each order, and by layer, head, pair of heads or term; patterns held fixed.

The paper's term importance ("Term Importance Analysis"): with all patterns held fixed, the logits are cut off after the
terms with 0, 1, 2, ... heads, and the loss is that of their softmax for the next token. Two algorithms, which must
agree: the sums of terms by order (:func:`loss_by_order`), and the paper's own, run by run (:func:`run_by_run`), which
uses no terms: in run k every head adds what it would have written in run k - 1, and in run 0 nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Floats
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.shown import Shown
from symcircuits.core.text import amount, brief, entries, place
from symcircuits.model import Run, pattern_without, rerun
from symcircuits.model.forward import capped
from symcircuits.model.over_ring import frozen, matrices_of
from symcircuits.values.evaluate import Unit, Values, evaluate

__all__ = [
    "GROUPS",
    "LossByOrder",
    "LossEffect",
    "LossEffects",
    "NextTokens",
    "loss_by_order",
    "loss_effects",
    "run_by_run",
]

Array = npt.NDArray[Any]
_SIDE_OF: Final = {"Q": 0, "K": 1}
MOST: Final = 20_000  # parts computed one by one


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LossByOrder(Shown):
    """The loss for the next token when the logits are cut off after each order; one number per prompt.

    ``by_prompt [orders, prompts]``: the mean over ``queries`` of ``-log p(next token)`` in nats, of ``p`` itself if
    ``unit`` is ``"probability"``, or of its logit less the mean of all (``"centred logit"``); the last row is the whole
    model's. ``counts``: terms of each order (for K and Q those of the scores of all heads, by the order of their key or
    query side);
    ``uniform``: the value for equal logits. A mean over prompts comes with its standard deviation over them.
    """

    unit: Unit
    counts: tuple[int, ...]
    by_prompt: Array
    queries: tuple[int, ...]
    uniform: float
    composition: str = "V"

    @property
    def after(self) -> tuple[float, ...]:
        """The mean over prompts after orders 0, 1, 2, ..."""
        return tuple(self.by_prompt.mean(1).tolist())

    @property
    def spread(self) -> tuple[float, ...]:
        """The standard deviation over prompts after orders 0, 1, 2, ..."""
        return tuple(self.by_prompt.std(1).tolist())

    @property
    def marginal(self) -> tuple[float, ...]:
        """What each order changes: order 0 compared with equal logits, others with the order before."""
        return tuple(np.diff([self.uniform, *self.after]).tolist())

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "unit": self.unit, "composition": self.composition, "uniform": self.uniform, "queries": list(self.queries),
            "prompts": self.by_prompt.shape[1], "terms": list(self.counts), "after": list(self.after),
            "spread": list(self.spread), "marginal": list(self.marginal),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class LossEffect:
    """The effect of some terms: ``alone``, added to the terms without a head; ``last``, added to all the others.

    Negative in nats, or positive in the other units: they help. ``name``: which terms; ``count``: how many.
    """

    name: str
    count: int
    alone: float
    last: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LossEffects(Shown):
    """The effects of all parts of one kind (``by``), in their order, and their references.

    ``direct``: the loss with only the terms without a head; ``model``: with all.
    """

    unit: Unit
    by: str
    parts: tuple[LossEffect, ...]
    direct: float
    model: float
    queries: tuple[int, ...]
    prompts: int

    def text(self, width: int = 100, top: int = 20) -> str:
        """A table; if there are many parts, the ``top`` with the largest effect when added last."""
        return self._text(width, top=top)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        parts = [{"name": p.name, "terms": p.count, "alone": p.alone, "last": p.last} for p in self.parts]
        return {"unit": self.unit, "by": self.by, "direct": self.direct, "model": self.model,
                "queries": list(self.queries), "prompts": self.prompts, "parts": parts}  # fmt: skip


def loss_by_order(
    values: Values, queries: Sequence[int] | None = None, unit: Unit = "nats", composition: str = "V"
) -> LossByOrder:
    """The implementation of :meth:`symcircuits.values.evaluate.Values.loss_by_order`."""
    judge = NextTokens(values, queries, unit)
    if values.expansion.clauses:
        raise ValueError(
            "the loss by order is for all terms of the logits, not for a selection: use values.loss_effects for what a "
            "selection changes"
        )
    if composition not in ("V", *_SIDE_OF):
        raise ValueError(f'composition must be "V", "Q" or "K", not {brief(composition)}')
    made = _cut_off(values) if composition == "V" else _cut_patterns(values, _SIDE_OF[composition])
    counts, found = zip(*((count, judge.of(logits)) for count, logits in made), strict=True)
    return LossByOrder(unit, counts, np.stack(found), judge.queries, uniform=judge.uniform, composition=composition)


def _cut_off(values: Values) -> Iterator[tuple[int, Array]]:
    """How many terms have each order, and the logits of the terms up to it, patterns held fixed."""
    sums, total = values.by_order(), np.zeros(())
    for order in range(max(sums) + 1):
        total = total + sums[order]
        yield values.expansion.order(order).count, total


def _cut_patterns(values: Values, side: int) -> Iterator[tuple[int, Array]]:
    """The same for patterns: the score terms of each order on one side, and the logits when scores end there.

    All patterns are made at once from the scores of the original run; values are recomputed through them.
    """
    run = values.run
    heads = [str(h) for h in run.model.architecture.all_heads]
    parts = {head: dict[int, list[Array]]() for head in heads}
    counts = dict[int, int]()
    for head in heads:
        scores = evaluate(expand(run.model.architecture, f"scores:{head}"), run)
        for orders, part in scores.classes():
            parts[head].setdefault(orders[side], []).append(part)
        for marks, count in scores.expansion.marks():
            counts[marks[side].order] = counts.get(marks[side].order, 0) + count
    for order in range(max(counts, default=0) + 1):
        given = {}
        for head, by_order in parts.items():
            left_out = [part for k, some in by_order.items() if k > order for part in some]
            if left_out:
                given[head] = pattern_without(run, head, np.asarray(sum(left_out)))
        edited = rerun(run, patterns={**run.patterns, **given})
        yield counts.get(order, 0), np.asarray(edited.products.get("logits", edited.logits))


def run_by_run(run: Run) -> Iterator[Array]:
    """The logits after orders 0, 1, 2, ..., by the paper's algorithm: runs with saved head outputs, patterns fixed.

    In run 0 no head adds anything; each records what it would write given the stream. In run k each adds
    what it would have written in run k - 1, so the logits of run k contain the terms of up to k heads. Norms and MLP
    outputs are held fixed too. It takes one run more than there are layers. Source: paper, "Term Importance Analysis".

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> [*_, last] = run_by_run(run)
    >>> bool(abs(last - run.logits).max() < 1e-12)
    True
    """
    architecture, matrices = run.model.architecture, matrices_of(run)
    nothing = np.zeros_like(run.streams[0])
    saved = {str(head): nothing for head in architecture.all_heads}
    for _ in range(sum(map(bool, architecture.heads)) + 1):
        found = frozen(architecture, matrices, Floats(run.dtype), added=saved)
        logits = np.asarray(found.logits)
        yield np.broadcast_to(logits, run.streams[0].shape[:-1] + logits.shape[-1:])
        saved = dict(found.results)


# ------------------------------------------------------------------------------------------------ of parts
def _by_layer(e: Expansion) -> Iterator[tuple[str, Expansion]]:
    for layer in range(e.architecture.n_layers):
        heads = [str(h) for h in e.architecture.layer_heads(layer)]
        if heads:
            yield f"L{layer}", e.through(heads)


def _by_head(e: Expansion) -> Iterator[tuple[str, Expansion]]:
    for head in e.architecture.all_heads:
        yield str(head), e.through(str(head))


def _by_pair(e: Expansion) -> Iterator[tuple[str, Expansion]]:
    for first, then in combinations(e.architecture.all_heads, 2):
        if first.layer < then.layer:
            yield f"{first} -> {then}", e.through(str(first)).through(str(then))


GROUPS: Final = {"layer": _by_layer, "head": _by_head, "pair": _by_pair}


def loss_effects(
    values: Values, by: str = "head", queries: Sequence[int] | None = None, unit: Unit = "nats"
) -> LossEffects:
    """The implementation of :meth:`symcircuits.values.evaluate.Values.loss_effects`."""
    judge = NextTokens(values, queries, unit)
    if not isinstance(by, str) or by not in (*GROUPS, "term"):
        raise ValueError(f"by must be 'layer', 'head', 'pair' or 'term', not {brief(by)}")
    selection, run = values.expansion, values.run
    whole = evaluate(expand(selection.architecture, "logits"), run)
    direct, full = evaluate(whole.expansion.order(0), run).total(), whole.total()
    before, after = judge.of(direct), judge.of(full)

    def effect(name: str, count: int, part: Array) -> LossEffect:
        alone, last = judge.of(direct + part) - before, after - judge.of(full - part)
        return LossEffect(name, count, float(alone.mean()), float(last.mean()))

    parts = list(_parts(values, by))
    if len(parts) > MOST:
        raise ValueError(
            f"{amount(len(parts), by)} are more than {MOST:,}: select some, e.g. .order(1) or .through(...)"
        )
    found = [effect(name, e.count, evaluate(e, run).total()) for name, e in parts if e.count]
    if by == "term":
        terms = ((b.start + i, value) for b in values.blocks() for i, value in enumerate(b.values))
        found = [effect(selection[number].label, 1, value) for number, value in terms]
    return LossEffects(unit, by, tuple(found), float(before.mean()), float(after.mean()), judge.queries, judge.prompts)


def _parts(values: Values, by: str) -> Iterator[tuple[str, Expansion]]:
    """The parts and their terms; none for single terms, which are read in blocks."""
    if by != "term":
        yield from GROUPS[by](values.expansion)
    elif values.expansion.count > MOST:
        raise _too_many(amount(values.expansion.count, "term"))


def _too_many(what: str) -> ValueError:
    return ValueError(f"{what} are more than {MOST:,}: select some, e.g. .order(1) or .through(...)")


class NextTokens:
    """The loss of each prompt for the next tokens of a run, over chosen queries."""

    def __init__(self, values: Values, queries: Sequence[int] | None, unit: Unit) -> None:
        run, target = values.run, values.expansion.target
        if target != "logits" or run.logits is None:
            raise ValueError(
                f"a loss needs the logits, but these are values of {target}"
                + (": the model has no unembedding" if run.logits is None else "")
            )
        if unit not in ("nats", "probability", "centred logit"):
            raise ValueError(f'unit must be "nats", "probability" or "centred logit", not {brief(unit)}')
        n = run.tokens.shape[-1]
        if n < 2:
            raise ValueError("a loss needs a next token: the run has one token")
        if run.tokens.max() >= run.logits.shape[-1]:
            raise ValueError(
                f"the next tokens of the run go up to {run.tokens.max()}, but the model has {run.logits.shape[-1]} "
                "outputs: they are not the same vocabulary"
            )
        asked = (
            range(n - 1)
            if queries is None
            else [place("queries", q, n) for q in entries("queries", queries, "positions")]
        )
        self.queries = tuple(sorted(set(asked)))
        if not self.queries or self.queries[-1] == n - 1:
            raise ValueError(f"queries must be positions whose next token is known, 0 to {n - 2}, and at least one")
        self.unit, self.cap = unit, run.model.settings.logit_cap
        tokens = run.tokens.reshape(-1, n)
        self.next, self.prompts = tokens[:, [q + 1 for q in self.queries]], len(tokens)
        self.shape = (-1, n, run.logits.shape[-1])
        width = run.logits.shape[-1]
        self.uniform = {"nats": float(np.log(width)), "probability": 1 / width, "centred logit": 0.0}[unit]

    def of(self, logits: Array) -> Array:
        """The mean over queries, for each prompt, in float64."""
        rows = np.asarray(logits).reshape(self.shape)[:, list(self.queries)].astype(np.float64)
        rows = capped(rows, self.cap)
        if self.unit == "centred logit":
            rows -= rows.mean(-1, keepdims=True)
            return np.asarray(np.take_along_axis(rows, self.next[..., None], -1)[..., 0].mean(-1))
        rows -= rows.max(-1, keepdims=True)
        said = np.take_along_axis(rows, self.next[..., None], -1)[..., 0] - np.log(np.exp(rows).sum(-1))
        return np.asarray((-said if self.unit == "nats" else np.exp(said)).mean(-1))
