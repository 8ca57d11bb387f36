"""Why a head attends where it does: what its pattern loses without each part of its scores.

A head's scores are a sum of terms; each part (a composition type, the terms through an earlier head on one side, a
source) is removed from them, the softmax is recomputed, and the head's score of its kind is measured again. A part
that is large but changes nothing is not a cause. Source: paper, "How Induction Heads Work" (K-composition with a head
of the layer before); the removal: :func:`symcircuits.remove_scores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from symcircuits.circuits.heads import PAIRS, as_shares, weight_on
from symcircuits.circuits.prompts import Prompts
from symcircuits.core.expansion import Expansion, expand
from symcircuits.model import Model, Run, pattern_without
from symcircuits.values.evaluate import evaluate

__all__ = ["Cause", "Causes", "find_causes"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of a head's scores, and the head's score of its kind when that part is removed.

    ``by``: ``composition``, ``head`` or ``source``; ``side``: for a head or a source ``query`` or ``key``; ``terms``:
    how many.
    """

    by: str
    name: str
    side: str
    terms: int
    without: float

    @property
    def text(self) -> str:
        """The part in words."""
        if self.by == "composition":
            return f"composition {self.name}"
        return f"terms from {self.name} on the {self.side} side" if self.by == "source" else (
            f"terms through {self.name} on the {self.side} side")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of a head's pattern: its score of a kind with all of its scores (``score``), and without each part."""

    head: str
    kind: str
    score: float
    parts: tuple[Cause, ...]

    def largest(self, by: str) -> Cause | None:
        """The part of a kind whose removal leaves least; None if there is none."""
        return min((p for p in self.parts if p.by == by), key=lambda p: p.without, default=None)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        parts = [
            {"by": p.by, "name": p.name, "side": p.side or None, "terms": p.terms, "without": p.without}
            for p in self.parts
        ]
        return {"head": self.head, "kind": self.kind, "score": self.score, "parts": parts}


def find_causes(model: Model, head: str, prompts: Prompts, kind: str = "induction") -> Causes:
    """What the score of a head, on the prompts with the longest period, loses without each part of its scores.

    ``kind``: ``"induction"`` or ``"duplicate-token"``. Parts are those of one composition type, those through each
    earlier head on each side, and those from each source on each side; they overlap, and need not add up. Raises
    ValueError if the prompts have no repeats.

    >>> import symcircuits as sc
    >>> from symcircuits.circuits.prompts import draw_prompts
    >>> from symcircuits.zoo import path
    >>> model = sc.load(path("induction"))
    >>> found = find_causes(model, "L1H0", draw_prompts(model, count=4))
    >>> found.score > 0.9, found.largest("composition").name, found.largest("head").text
    (True, 'K', 'terms through L0H2 on the key side')
    """
    family = prompts.repeated if kind == "induction" else prompts.shuffled
    if not family:
        raise ValueError(f"there are no repeats to look at: {prompts.missing}")
    run = model.run(family[max(family)])
    label = str(model.architecture.head(head))
    wanted = PAIRS[kind](run.tokens)
    parts = [
        Cause(by, name, side, part.count, _score(run, label, part, wanted))
        for by, name, side, part in _parts(expand(model.architecture, f"scores:{label}"))
    ]
    return Causes(label, kind, _mean(run, run.patterns[label], wanted), tuple(parts))


def _score(run: Run, head: str, part: Expansion, wanted: Any) -> float:
    return _mean(run, pattern_without(run, head, evaluate(part, run).total()), wanted)


def _mean(run: Run, pattern: Any, wanted: Any) -> float:
    return float(weight_on(as_shares(run.model.architecture, pattern), wanted).mean())


def _parts(scores: Expansion) -> Iterator[tuple[str, str, str, Expansion]]:
    """All parts that have terms: by composition, by earlier head and side, by source and side."""
    arch = scores.architecture
    for composition in ("none", "Q", "K", "QK"):
        if (part := scores.where(composition)).count:
            yield "composition", composition, "", part
    for side in ("query", "key"):
        for head in arch.all_heads:
            if head.layer < scores.readout.head.layer and (part := scores.through(str(head), side)).count:  # type: ignore[union-attr]
                yield "head", str(head), side, part
        for source in scores.sources:
            if (part := scores.from_source(source.name, side)).count:
                yield "source", source.name, side, part
