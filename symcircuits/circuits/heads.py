"""The kinds of heads by what they attend to: previous token, induction, duplicate token, fixed offset, first token.

Each kind has one definition, a mean of attention weights over chosen (query, key) pairs of many random prompts, and
none applies to attention that does not depend on the defining property. Kinds about position must show on repeats
*and* on the control; kinds about content must show on repeats and *not* at the same pairs of the control. So a
head that attends 11 back, whatever is there, is not an induction head on repeats of 12 tokens. Source: paper, "How
Induction Heads Work"; Olsson et al. 2022, "In-context Learning and Induction Heads" (prefix matching); control and
thresholds: own construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.circuits.prompts import Prompts
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.shown import Shown
from symcircuits.core.text import finite
from symcircuits.model import Model
from symcircuits.work.progress import OnProgress, each_told

__all__ = ["DEFINITIONS", "PAIRS", "HeadKinds", "HeadScore", "Heads", "as_shares", "find_heads", "weight_on"]

Array = npt.NDArray[Any]
Allowed = npt.NDArray[np.bool_]

# kind: definition of its score, in words
DEFINITIONS: Final = {
    "previous-token": "mean weight on the token before; the smaller of the means over repeats and over the control",
    "induction": "mean weight on the tokens after all earlier copies of the query's token, on repeats (prefix "
    "matching), compared with the weight at the same positions of the control; if it is not well above equal weights "
    "on the other tokens of a period, also with that on the token before the query and its copies, to which a head "
    "that only prefers some tokens to others attends as much",
    "duplicate-token": "mean weight on all earlier copies of the query's token, in periods of shuffled order, compared "
    "with the weight at the same positions of the control",
    "fixed-offset": "mean weight on the token d before (or after it, where queries see that), for the d (not the token "
    "before) that gets most, up to half of the longest prompt; the smaller of the means over repeats and over the "
    "control",
    "first-token": "mean weight on the first token, queries from position 2; the smaller of the means over repeats "
    "and over the control",
    "copy-suppression": "how far the head lowers the logits of tokens that it attends to, on repeats: minus the sum "
    "over pairs of weight times direct effect, over the sum of their sizes; the eigenvalues of its OV circuit must be "
    "as negative, and the logits must be lowered by 1 or more",
}
CERTAIN: Final = 3.5  # standard deviations
SPREAD: Final = 0.5  # of a weight on one case, at most: weights are from 0 to 1
TIMES: Final = 2  # times the score of equal weights: on short prompts a smaller lead can be chance


@dataclass(frozen=True, slots=True)
class HeadScore:
    """A score of a head: the mean over prompts and its standard deviation.

    ``equal``: the score of equal weights on all keys that the mask allows; ``control``: for a kind of content, the
    mean on the same pairs of the control; ``opposite``: for induction, the mean on repeats for keys with the token
    before the query's, instead of the one after it; ``others``: the score of equal weights on the other tokens of a
    period; ``cases``: for a kind of content, how many tokens of periods were drawn: with few of them a head that
    prefers some tokens to others attends to the right ones by chance; ``by_period``: for a kind of content the mean by
    length of period, if the mask lets queries see the relevant keys.
    """

    mean: float
    spread: float
    equal: float
    control: float | None = None
    opposite: float | None = None
    others: float | None = None
    cases: int | None = None
    by_period: Mapping[int, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """The mean with periods of the length at which it is smallest."""
        return min(self.by_period.values(), default=self.mean)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        beside = {"control": self.control, "opposite": self.opposite, "others": self.others, "cases": self.cases}
        known = {name: value for name, value in beside.items() if value is not None}
        by_period = {"by_period": {str(n): x for n, x in self.by_period.items()}} if self.by_period else {}
        return {"mean": self.mean, "spread": self.spread, "equal": self.equal, **known, **by_period}

    def shows(self, threshold: float) -> bool:
        """Whether it is high enough at every length, above equal weights, and above the scores it is compared with.

        Above by half the threshold, and by more than means of that many cases differ by chance: weights are from 0 to
        1, so a mean of n has a standard deviation of at most 0.5 / sqrt(n).
        """
        enough = min(self.mean, self.least) >= threshold and self.mean >= TIMES * self.equal
        margin = max(threshold / 2, CERTAIN * SPREAD / math.sqrt(self.cases) if self.cases else 0.0)

        def above(one: float | None) -> bool:
            return one is None or self.mean - one >= margin

        return (
            enough
            and above(self.control)
            and (above(self.others) or (above(self.opposite) and self.mean >= (self.others or 0)))
        )


@dataclass(frozen=True, slots=True)
class HeadKinds:
    """The scores of a head, by kind (None if the prompts do not show it), and its kinds.

    ``offset``: the fixed offset with the most weight, key minus query: negative to the left; ``stripe``: for induction,
    the mean weight on the token after the *nearest* earlier copy; ``shuffled``: that after all earlier copies in
    periods of shuffled order, where other tokens precede them (a head that matches more than its own token has less).
    """

    head: str
    kinds: tuple[str, ...]
    scores: Mapping[str, HeadScore | None]
    offset: int | None
    stripe: float | None
    shuffled: float | None = None

    def json(self) -> dict[str, Any]:
        """As plain data."""
        scores = {kind: None if score is None else score.json() for kind, score in self.scores.items()}
        return {"kinds": list(self.kinds), "scores": scores, "offset": self.offset, "stripe": self.stripe,
                "shuffled": self.shuffled}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Heads(Shown):
    """What all heads of a model attend to, by label. ``threshold``: the score from which on a head is of a kind."""

    heads: Mapping[str, HeadKinds]
    prompts: Prompts
    threshold: float

    def __getitem__(self, head: str) -> HeadKinds:
        return self.heads[head]

    def of_kind(self, kind: str) -> list[str]:
        """The labels of the heads of a kind."""
        return [label for label, head in self.heads.items() if kind in head.kinds]


def find_heads(model: Model, prompts: Prompts, threshold: float = 0.4, progress: OnProgress = None) -> Heads:
    """The scores and kinds of all heads on these prompts.

    A head is of a kind if its score is at least ``threshold`` and at least twice that of equal weights; a kind of
    content must also exceed its control by half the threshold, and be at least ``threshold`` with periods of each
    length. If two offsets tie, the nearer one is named. Kinds for which the prompts are too short have no score.
    ``progress`` is called as work is done.

    >>> import symcircuits as sc
    >>> from symcircuits.circuits.prompts import draw_prompts
    >>> from symcircuits.zoo import path
    >>> model = sc.load(path("induction"))
    >>> found = find_heads(model, draw_prompts(model, count=4))
    >>> found.of_kind("induction"), found.of_kind("previous-token")
    (['L1H0', 'L1H1', 'L1H2'], ['L0H2'])
    """
    if not 0 < finite("threshold", threshold) <= 1:
        raise ValueError(f"threshold must be a weight, above 0 and up to 1, not {threshold}")
    seen = _Seen(model, prompts, progress)
    every = each_told("what heads attend to", model.architecture.all_heads, progress)
    heads = {str(head): _kinds_of(seen, head, threshold) for head in every}
    return Heads(heads, prompts, threshold)


class _Seen:
    """The patterns of a model on its prompts; under the name of a layer (``L0``), equal weights on the allowed keys."""

    def __init__(self, model: Model, prompts: Prompts, progress: OnProgress) -> None:
        self.prompts, self.causal = prompts, model.architecture.causal
        families = [prompts.control, *prompts.repeated.values(), *prompts.shuffled.values()]
        made = [(tokens, _patterns(model, tokens)) for tokens in each_told("patterns of prompts", families, progress)]
        (_, self.control), *others = made
        self.repeated, self.shuffled = others[: len(prompts.repeated)], others[len(prompts.repeated) :]

    # ------------------------------------------------------------------------------------------- by position
    def positional(self, name: str, back: int) -> Array | None:
        """The weight ``back`` before the query (negative: after it), on keys from 1 on (0 is a kind of its own)."""
        return self.smaller(
            name, lambda a: np.diagonal(a, -back, -2, -1)[:, 1:].mean(-1) if a.shape[-1] > abs(back) + 1 else None
        )

    def first(self, name: str) -> Array | None:
        """The weight on the first token; the next query, for which it is the previous token, does not count."""
        return self.smaller(name, lambda a: a[:, 2:, 0].mean(-1) if a.shape[-1] > 2 else None)

    def smaller(self, name: str, weight: Callable[[Array], Array | None]) -> Array | None:
        """The weights of each prompt of repeats or of the control, whichever has the smaller mean."""
        repeats = [found for _, patterns in self.repeated if (found := weight(patterns[name])) is not None]
        control = weight(self.control[name])
        families = [control] if control is not None else []
        families += [np.concatenate(repeats)] if repeats else []
        return min(families, key=lambda each: each.mean(), default=None)

    # -------------------------------------------------------------------------------------------- by content
    def content(self, name: str, kind: str, pairs: Callable[[Array], Allowed]) -> tuple[Array | None, Array | None]:
        """The weight on chosen pairs of each prompt, and on the same pairs of the control; None without repeats."""
        found, controls = [], []
        for tokens, patterns in self.shuffled if kind == "duplicate-token" else self.repeated:
            wanted = pairs(tokens)
            found.append(weight_on(patterns[name], wanted))
            other = self.prompts.control[:, : tokens.shape[-1]]
            n = other.shape[-1]
            controls.append(self.without_copies(name, wanted[:, :n, :n], _after_copies(other) | _copies(other)))
        return (np.concatenate(found), np.concatenate(controls)) if found else (None, None)

    def by_period(self, each: Array | None, equal: Array | None) -> dict[int, float]:
        """The mean for each length of periods, except lengths at which a mask hides all relevant keys."""
        periods = list(self.prompts.repeated)
        if each is None or equal is None:
            return {}
        means, seen = (one.reshape(len(periods), -1).mean(1).tolist() for one in (each, equal))
        return {period: mean for period, mean, even in zip(periods, means, seen, strict=True) if even}

    def after_copies_shuffled(self, name: str) -> float | None:
        """The mean weight after all earlier copies in periods of shuffled order."""
        found = [weight_on(patterns[name], _after_copies(tokens)) for tokens, patterns in self.shuffled]
        return float(np.concatenate(found).mean()) if found else None

    def opposite(self, name: str) -> float:
        """The mean weight on keys with the token before the query's, over queries with an earlier copy."""
        found = [
            weight_on(patterns[name], _like_the_one_before(tokens) & _after_copies(tokens).any(-1, keepdims=True))
            for tokens, patterns in self.repeated
        ]
        return float(np.concatenate(found).mean())

    def without_copies(self, name: str, wanted: Allowed, by_chance: Allowed) -> Array:
        """The weight on the same pairs of the control, over queries for which none of them is a pair by chance."""
        wanted = wanted & ~(wanted & by_chance).any(-1, keepdims=True)
        known, n = wanted.any((-1, -2)), wanted.shape[-1]
        return weight_on(self.control[name][known, :n, :n], wanted[known])


def _patterns(model: Model, tokens: Array) -> dict[str, Array]:
    run, n = model.run(tokens), tokens.shape[-1]
    equal = {
        layer: np.broadcast_to(mask / np.maximum(mask.sum(-1, keepdims=True), 1), (len(tokens), n, n))
        for layer, mask in run.masks.items()
    }
    found = {head: as_shares(model.architecture, pattern) for head, pattern in run.patterns.items()}
    return {**found, **equal}


def as_shares(architecture: Architecture, pattern: Array) -> Array:
    """A pattern whose rows sum to one: without softmax ``|A_ij| / sum_j |A_ij|``, as weights have any size and sign.

    >>> from symcircuits.core.architecture import attention_only
    >>> as_shares(attention_only((1,), softmax=False), np.array([[3.0, -1.0], [0.0, 0.0]])).tolist()
    [[0.75, 0.25], [0.0, 0.0]]
    """
    if architecture.softmax:
        return pattern
    size = np.abs(pattern)
    total = size.sum(-1, keepdims=True)
    return np.asarray(size / np.where(total, total, 1))


def _kinds_of(seen: _Seen, head: Head, threshold: float) -> HeadKinds:
    label, layer = str(head), f"L{head.layer}"
    offset = _offset(seen, label)
    positional = {
        "previous-token": lambda name: seen.positional(name, 1),
        "fixed-offset": lambda name: None if offset is None else seen.positional(name, -offset),
        "first-token": seen.first,
    }
    scores: dict[str, HeadScore | None] = {}
    for kind in (k for k in DEFINITIONS if k in positional or k in PAIRS):
        if kind in positional:
            scores[kind] = _score(positional[kind](label), positional[kind](layer))
        else:
            each, control = seen.content(label, kind, PAIRS[kind])
            equal, _ = seen.content(layer, kind, PAIRS[kind])
            score = _score(each, equal, control)
            scores[kind] = score and replace(score, by_period=seen.by_period(each, equal), cases=seen.prompts.cases)
    if (score := scores["induction"]) is not None:
        others = float(np.mean([1 / (period - 1) for period in seen.prompts.repeated]))
        scores["induction"] = replace(score, opposite=seen.opposite(label), others=others)
    kinds = tuple(kind for kind, score in scores.items() if score is not None and score.shows(threshold))
    nearest, _ = seen.content(label, "induction", _after_nearest)
    stripe = None if nearest is None else float(nearest.mean())
    return HeadKinds(label, kinds, scores, offset, stripe, shuffled=seen.after_copies_shuffled(label))


def _score(each: Array | None, equal: Array | None, control: Array | None = None) -> HeadScore | None:
    """A score from the weights of all prompts; None if they show nothing."""
    if each is None or equal is None:
        return None
    if control is not None and not control.size:
        return None  # every query has copies by chance: the vocabulary is too small
    beside = None if control is None else float(control.mean())
    return HeadScore(float(each.mean()), float(each.std()), float(equal.mean()), beside)


def _offset(seen: _Seen, head: str) -> int | None:
    """The offset, other than one back, with the most weight, up to half of the longest prompt; forward if allowed."""
    most = seen.control[head].shape[-1] // 2
    found = {back: seen.positional(head, back) for back in range(0 if seen.causal else -most, most + 1) if back != 1}
    means = {back: each.mean() for back, each in found.items() if each is not None}
    return -max(means, key=lambda back: (means[back], -abs(back))) if means else None


def _copies(tokens: Array) -> Allowed:
    """For each query the earlier copies of its token except the first of the prompt, ``[prompts, n, n]``."""
    same = (tokens[:, :, None] == tokens[:, None, :]) & np.tri(tokens.shape[-1], k=-1, dtype=bool)
    same[..., 0] = False
    return np.asarray(same)


def _after_copies(tokens: Array) -> Allowed:
    """For each query the keys after earlier copies of its token: ``t_{j-1} = t_i``, ``j <= i``."""
    same = _copies(tokens)
    return np.concatenate([np.zeros_like(same[..., :1]), same[..., :-1]], axis=-1)


def _like_the_one_before(tokens: Array) -> Allowed:
    """For each query the keys with the token before it, ``t_j = t_{i-1}``, ``j < i``: that one and its copies."""
    same = (tokens[:, :, None] == tokens[:, None, :]) & np.tri(tokens.shape[-1], dtype=bool)
    same[..., 0] = False
    return np.concatenate([np.zeros_like(same[:, :1]), same[:, :-1]], axis=1)


def _after_nearest(tokens: Array) -> Allowed:
    """For each query the key after the nearest earlier copy of its token."""
    after = _after_copies(tokens)
    last = after.shape[-1] - 1 - np.argmax(after[..., ::-1], axis=-1)
    return np.asarray(after & (np.arange(after.shape[-1]) == last[..., None]))


PAIRS: Final[Mapping[str, Callable[[Array], Allowed]]] = {"induction": _after_copies, "duplicate-token": _copies}


def weight_on(pattern: Array, wanted: Allowed) -> Array:
    """The weight on chosen pairs, ``[prompts]``: its mean over the queries that have some."""
    queries = wanted.any(-1)
    return np.asarray(np.where(wanted, pattern, 0).sum((-1, -2)) / np.maximum(queries.sum(-1), 1))
