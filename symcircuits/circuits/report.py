"""The circuits of a model: what its heads attend to and why, what composes, what copies, and the effects on the loss.

Weights are shown with runs: a composition score says that weights are aligned, and is shown with the change of the
loss without the terms of that pair. Source: paper, "Analyzing a Two-Layer Model".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symcircuits.circuits.attended import with_suppression
from symcircuits.circuits.causes import Causes, find_causes
from symcircuits.circuits.circuit import circuit
from symcircuits.circuits.composition import CompositionScores, Pair, composition_scores
from symcircuits.circuits.fewer_tokens import of_tokens, same_ov_spectrum, same_qk_spectrum, some_tokens
from symcircuits.circuits.heads import Heads, find_heads
from symcircuits.circuits.losses import LossByOrder, NextTokens, loss_by_order
from symcircuits.circuits.prompts import draw_prompts
from symcircuits.core.expansion import expand
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import need
from symcircuits.model import Model, Run, pattern_without, rerun, with_outputs
from symcircuits.values.evaluate import evaluate
from symcircuits.work.progress import OnProgress, each_told, told_by

__all__ = ["Circuits", "PairEffect", "find_circuits"]

SIDES: Final = {"Q": "query", "K": "key"}
LOOKED_AT: Final = 10  # pairs of each kind, those furthest from chance, whose effect is computed
EXPLAINED: Final = 6  # heads of a kind of content whose causes are computed, those with the highest scores


@dataclass(frozen=True, slots=True)
class PairEffect:
    """A composition score and its effect: the change of the loss without the terms of that pair, in nats.

    ``kind`` Q or K: those terms are removed from the later head's scores, and everything after is recomputed; V: the
    terms of the logits through both heads are left out, patterns held fixed. ``effect`` is None if there is no loss.
    """

    kind: str
    pair: Pair
    effect: float | None


@dataclass(frozen=True, slots=True)
class Diagonal:
    """Three scores of a full circuit: positivity of its eigenvalues, share of a positive diagonal, of a top diagonal.

    None means no value: 0 / 0, or, for the last, a vocabulary too large to compute every entry; the second is then
    computed for some tokens (:func:`symcircuits.circuits.fewer_tokens.some_tokens`). See
    :class:`symcircuits.circuits.copying.DiagonalScores`: all three are necessary and not sufficient.
    """

    eigenvalue_positivity: float | None
    positive_diagonal: float
    top_of_diagonal: float | None
    eigenvalues: tuple[complex, ...] = field(default=(), repr=False)

    def json(self) -> dict[str, float | None]:
        """The three as plain data."""
        return {"eigenvalue_positivity": self.eigenvalue_positivity, "positive_diagonal": self.positive_diagonal,
                "top_of_diagonal": self.top_of_diagonal}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Circuits(Shown):
    """The result of :func:`find_circuits`.

    ``heads``: what heads attend to; ``causes``: why, for heads with a kind of content; ``composition``: by Q, K, V;
    ``effects``: for the pairs furthest from chance; ``copying``: for each head's OV circuit, ``matching``: for the
    K-composition circuit of the pairs furthest above chance; ``losses``: after each order, over the second half of
    ``[first, half, half]`` (None, with the reason in ``no_losses``, if there are none).
    """

    model: Model
    heads: Heads
    causes: Mapping[str, Causes]
    composition: Mapping[str, CompositionScores]
    effects: tuple[PairEffect, ...]
    copying: Mapping[str, Diagonal]
    matching: Mapping[tuple[str, str], Diagonal]
    losses: LossByOrder | None
    no_losses: str

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings, in sentences with numbers."""
        return higher(tuple, "Circuits.findings")(self)

    def html(self) -> str:
        """One page with graph, matrices and patterns; it works offline."""
        return higher(str, "Circuits.html")(self)

    def json(self) -> dict[str, Any]:
        """The result as plain data (schema in docs/json.md)."""
        return higher(dict, "Circuits.json")(self)


def find_circuits(
    model: Model, count: int = 20, *, first: int = 0, seed: int = 0, length: int | None = None, threshold: float = 0.4,
    progress: OnProgress | bool = None,
) -> Circuits:  # fmt: skip
    """What the heads of a model attend to and why, what composes and what copies, with the effects on the loss.

    On ``count`` random prompts of each kind, all beginning with the token ``first`` (for GPT-2 50256): repeats of three
    periods, periods in another order each time, and a control without repeats, up to ``length`` tokens. A head is of a
    kind if its score is at least ``threshold`` (see :mod:`symcircuits.circuits.heads`). Composition scores are shown
    with the effect of the pair. ``progress(what, done, total)`` is called as work is done; True shows a bar.
    Raises ValueError on a token or a length that the model does not have. Source: paper, "Two-Layer Attention-Only
    Transformers"; prompts and control: own construction.

    >>> import symcircuits as sc
    >>> from symcircuits.zoo import path
    >>> found = find_circuits(sc.load(path("induction")), count=4)
    >>> found.heads["L1H0"].kinds, found.composition["K"]["L1H0", "L0H2"] > 0.28
    (('induction',), True)
    """
    need("find_circuits", model, Model)
    told, prompts = told_by(progress), draw_prompts(model, count, first, seed, length)
    bare = with_outputs(model, [0])  # patterns and scores need no vocabulary
    heads = find_heads(bare, prompts, threshold, told)
    causes: dict[str, Causes] = {}
    for kind in ("induction", "duplicate-token"):
        found = sorted(heads.of_kind(kind), key=lambda h: -_mean(heads, h, kind))[:EXPLAINED]
        new = each_told(f"why heads are of kind {kind}", [head for head in sorted(found) if head not in causes], told)
        causes |= {head: find_causes(bare, head, prompts, kind) for head in new}
    diagonals, every = _Diagonals(model), [str(head) for head in model.architecture.all_heads]
    copying = {h: c for h in each_told("copying", every, told) if (c := diagonals.of("OV", h)) is not None}
    heads = with_suppression(heads, model, {h: c.eigenvalue_positivity for h, c in copying.items()})
    composition = {kind: composition_scores(model, kind) for kind in each_told("composition scores", "QKV", told)}
    run, why = _loss_run(model, prompts.twice, prompts.half)
    losses = None
    if run is not None:
        losses = loss_by_order(evaluate(expand(model.architecture, "logits"), run), prompts.known)
    worth = _Worth(run, prompts.known) if run is not None else None
    furthest = [(kind, pair) for kind, scores in composition.items() for pair in _furthest(scores)]
    effects = tuple(
        PairEffect(kind, pair, None if worth is None else worth.of(kind, pair.later, pair.earlier))
        for kind, pair in each_told("effects of pairs", furthest, told)
    )
    above = [p for p in _furthest(composition["K"]) if p.chance == "above"]
    matching = {
        (p.later, p.earlier): diagonals.of("QK", p.later, p.earlier) for p in each_told("matching", above, told)
    }
    return Circuits(
        model=model, heads=heads, causes=causes, composition=composition, effects=effects, copying=copying,
        matching={pair: found for pair, found in matching.items() if found is not None}, losses=losses, no_losses=why,
    )  # fmt: skip


class _Diagonals:
    """The scores of full circuits of one model, over all tokens or, for a large vocabulary, over some."""

    def __init__(self, model: Model) -> None:
        self.model, self.few = model, of_tokens(model, some_tokens(model))
        self.whole = self.few is model
        self._spectra = {"OV": same_ov_spectrum, "QK": same_qk_spectrum}
        self._made: dict[str, Model] = {}

    def of(self, kind: str, head: str, key: str | None = None) -> Diagonal | None:
        """For one circuit; None if its rows and columns are not the same tokens."""
        if kind == "OV" and self.model.d_vocab_out != self.model.d_vocab:
            return None
        named = () if key is None else key
        made = circuit(self.few, kind, head, key=named)
        if kind not in self._made:
            self._made[kind] = self.model if self.whole else self._spectra[kind](self.model)
        spectrum = (made if self.whole else circuit(self._made[kind], kind, head, key=named)).spectrum
        top = float((made.copying() if kind == "OV" else made.matching()).top_of_diagonal) if self.whole else None
        values = tuple(map(complex, spectrum.values))
        return Diagonal(spectrum.positivity, float((made.diagonal > 0).mean()), top, eigenvalues=values)


def _mean(heads: Heads, head: str, kind: str) -> float:
    score = heads[head].scores[kind]
    return 0.0 if score is None else score.mean


def _furthest(scores: CompositionScores) -> list[Pair]:
    """The pairs that are not at chance, the furthest from it, in the order of heads."""
    known = [p for p in scores.pairs() if p.z is not None and p.chance != "at"]
    best = sorted(known, key=lambda p: -abs(p.z or 0.0))[:LOOKED_AT]
    return [p for p in known if p in best]


def _loss_run(model: Model, tokens: Any, half: int) -> tuple[Run | None, str]:
    """The run for losses; or None and why there is none."""
    if half < 2:
        return None, "no losses: two halves of 2 tokens or more do not fit the model"
    if model.d_vocab_out is None:
        return None, "no losses: the model has no unembedding"
    if model.d_vocab_out < model.d_vocab:
        return None, f"no losses: {model.d_vocab_out} outputs are not the {model.d_vocab} input tokens"
    return model.run(tokens), ""


class _Worth:
    """The effects of pairs on the loss of a run."""

    def __init__(self, run: Run, queries: range) -> None:
        self.run = run
        self.logits = evaluate(expand(run.model.architecture, "logits"), run)
        self.judge = NextTokens(self.logits, queries, "nats")
        self.whole = self.logits.total()
        self.loss = self.judge.of(self.whole).mean()

    def of(self, kind: str, later: str, earlier: str) -> float:
        """The loss without the terms of the pair, less the loss with them."""
        arch = self.run.model.architecture
        if kind == "V":
            part = evaluate(self.logits.expansion.through(earlier).through(later), self.run).total()
            return float(self.judge.of(self.whole - part).mean() - self.loss)
        part = evaluate(expand(arch, f"scores:{later}").through(earlier, SIDES[kind]), self.run).total()
        edited = rerun(self.run, patterns={later: pattern_without(self.run, later, part)})
        found = edited.products.get("logits", edited.logits)
        return float(self.judge.of(np.asarray(found)).mean() - self.loss)
