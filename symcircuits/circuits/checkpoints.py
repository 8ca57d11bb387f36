"""The same numbers for several models side by side, such as checkpoints of one training run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symcircuits.circuits.report import Circuits
from symcircuits.core.shown import Shown

__all__ = ["Checkpoint", "Checkpoints", "compared"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of one model.

    ``induction`` and ``previous``: the head with the highest score of that kind, and the score (None if the prompts
    show none); ``k_share``: the part of that induction score that is lost without composition K of the head's scores,
    0 to 1 (None if no head is an induction head); ``pair``: the K pair furthest above chance, with score and z (None
    if no pair has any); ``losses``: nats after orders 0, 1, ...; ``heads``: how many of each kind.
    """

    name: str
    induction: tuple[str, float] | None
    previous: tuple[str, float] | None
    k_share: float | None
    pair: tuple[str, str, float, float] | None
    losses: tuple[float, ...] | None
    heads: dict[str, int]

    def json(self) -> dict[str, Any]:
        """As plain data."""
        best = {"induction": self.induction, "previous_token": self.previous}
        return {
            "model": self.name,
            **{kind: None if one is None else {"head": one[0], "mean": one[1]} for kind, one in best.items()},
            "k_share": self.k_share,
            "k_pair": self.pair and dict(zip(("later", "earlier", "score", "z"), self.pair, strict=True)),
            "loss_by_order": None if self.losses is None else list(self.losses),
            "heads": self.heads,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Checkpoints(Shown):
    """The rows, in the order of the models."""

    rows: tuple[Checkpoint, ...]

    def json(self) -> dict[str, Any]:
        """As plain data (schema in docs/json.md)."""
        return {"schema": "symcircuits.checkpoints/1", "models": [row.json() for row in self.rows]}


def compared(found: Iterable[tuple[str, Circuits]]) -> Checkpoints:
    """The circuits of several models side by side, under the names given; only these numbers are kept for each.

    >>> import symcircuits as sc
    >>> from symcircuits.circuits.report import find_circuits
    >>> from symcircuits.zoo import path
    >>> model = sc.load(path("induction"))
    >>> [row] = compared([("trained", find_circuits(model, count=4))]).rows
    >>> row.previous[0], row.pair[:2], round(row.k_share, 1)
    ('L0H2', ('L1H0', 'L0H2'), 1.0)
    """
    return Checkpoints(tuple(_row(name, circuits) for name, circuits in found))


def _row(name: str, found: Circuits) -> Checkpoint:
    induction = _best(found, "induction")
    causes = None if induction is None else found.causes.get(induction[0])
    k = None if causes is None else next((p for p in causes.parts if p.by == "composition" and p.name == "K"), None)
    share = (
        None if causes is None or causes.score <= 0 else (0.0 if k is None else max(0.0, 1 - k.without / causes.score))
    )
    known = [p for p in found.composition["K"].pairs() if p.z is not None and p.score is not None]
    top = max(known, key=lambda p: p.z or 0.0, default=None)
    kinds = [kind for head in found.heads.heads.values() for kind in head.kinds]
    return Checkpoint(
        name, induction, _best(found, "previous-token"), share,
        pair=None if top is None else (top.later, top.earlier, top.score or 0.0, top.z or 0.0),
        losses=None if found.losses is None else found.losses.after,
        heads={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
    )  # fmt: skip


def _best(found: Circuits, kind: str) -> tuple[str, float] | None:
    known = {h: s.mean for h, head in found.heads.heads.items() if (s := head.scores[kind]) is not None}
    best = max(known, key=lambda h: known[h], default=None)
    return None if best is None else (best, known[best])
