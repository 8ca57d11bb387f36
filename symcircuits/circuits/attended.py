"""The effect of heads on the logits of the tokens that they attend to: copying them, or suppressing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from symcircuits.circuits.heads import Heads, HeadScore
from symcircuits.circuits.transport import DirectEffects, written_rows
from symcircuits.core.expansion import expand
from symcircuits.model import Model, Run
from symcircuits.values.evaluate import Values, evaluate

__all__ = ["SUPPRESSION", "effect_on_attended", "with_suppression"]

Array = npt.NDArray[Any]
SUPPRESSION: Final = "copy-suppression"
LEAST: Final = 1.0  # by how much, in logits, a query's tokens must be lowered on average: less has hardly any effect


class OnAttended(NamedTuple):
    """For each prompt: the sign of direct effects on attended tokens, -1 to 1; that for equal weights; the mean sum."""

    signed: Array
    equal: Array
    logits: Array


def effect_on_attended(values: Values, head: str, direct: DirectEffects | None = None) -> OnAttended:
    """A head's direct effect on the logits of the tokens that it attends to.

    ``sum_ij A_ij e_ij / sum_ij |A_ij e_ij|`` over keys from 1 on, with ``e_ij`` what ``W_O v_j`` adds directly to the
    logit of the token at j less the mean over all outputs: 1 if the head only raises what it attends to, -1 if it
    only lowers it; ``logits``: the mean over queries of ``sum_j A_ij e_ij``. Norms before the logits are held fixed.
    ``direct``: the part that all heads share, if already computed. Source: own construction.
    """
    run = values.run
    direct = DirectEffects(values) if direct is None else direct
    mask = np.asarray(run.masks[f"L{values.expansion.architecture.head(head).layer}"], bool)
    pattern = run.patterns[head]
    even = np.broadcast_to(mask / np.maximum(mask.sum(-1, keepdims=True), 1), pattern.shape)
    pattern, even = direct.weights(pattern), direct.weights(even)
    n = run.tokens.shape[-1]
    found = []
    for own, rows, *weights in zip(
        run.tokens.reshape(-1, n), _each(written_rows(run, head)), _each(pattern), _each(even), strict=True
    ):
        effect = np.einsum("jj->j", direct.read(rows, own)).copy()  # the effect of each token on its own logit
        effect[0] = 0
        found.append((*(_signed(one, effect) for one in weights), float((weights[0] @ effect).mean())))
    return OnAttended(*map(np.array, zip(*found, strict=True)))


def _each(array: Array) -> Array:
    """The matrices of all prompts, one after the other."""
    return array.reshape(-1, *array.shape[-2:])


def _signed(weights: Array, effect: Array) -> float:
    size = float((np.abs(weights) @ np.abs(effect)).sum())
    return float((weights @ effect).sum()) / size if size else 0.0


def with_suppression(found: Heads, model: Model, positivity: Mapping[str, float | None]) -> Heads:
    """The same heads with their scores of copy suppression: minus :func:`effect_on_attended`, on repeats.

    A head is of this kind if that is at least the threshold, the eigenvalues of its OV circuit are as negative
    (``positivity``), and logits are lowered by 1 or more on average over queries. No score without an unembedding, or
    with another vocabulary.
    """
    heads, outputs = dict(found.heads), model.d_vocab_out
    run: Run | None = None
    prompts = found.prompts
    tokens = prompts.repeated[max(prompts.repeated)] if prompts.repeated else prompts.control
    if outputs is not None and outputs >= model.d_vocab and tokens.shape[1] > 1:
        run = model.run(tokens)
        values = evaluate(expand(model.architecture, "logits"), run)
        direct = DirectEffects(values)
    for label, head in heads.items():
        score, kinds = None, head.kinds
        if run is not None:
            seen = effect_on_attended(values, label, direct)
            score = HeadScore(-float(seen.signed.mean()), float(seen.signed.std()), -float(seen.equal.mean()))
            known = positivity.get(label)
            strong = seen.logits.mean() <= -LEAST and known is not None and -known >= found.threshold
            kinds = (*kinds, SUPPRESSION) if strong and score.mean >= found.threshold else kinds
        heads[label] = replace(head, kinds=kinds, scores={**head.scores, SUPPRESSION: score})
    return replace(found, heads=heads)
