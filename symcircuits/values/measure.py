"""What of a term is its size: its norm, its part in a logit or a difference of two, or in one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion
from symcircuits.core.given import need
from symcircuits.core.text import place
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.search.best_first import Tree
from symcircuits.values.evaluate import reference
from symcircuits.values.targets import read_target

__all__ = ["Asked", "ask", "trees"]

Array = npt.NDArray[Any]
KINDS = {
    "logits": ("norm", "logit", "logit difference"),
    "stream": ("norm",),
    "readout": ("norm", "direction", "direction difference"),
    "scores": ("norm", "masked norm", "score entry"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What terms are measured by; ``row`` None: over all rows of the batch."""

    by: str
    row: int | None = None
    position: int | None = None
    key: int | None = None
    token: int | None = None
    against: int | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f" of row {self.row}"
        return {
            "norm": "norm over all positions and outputs",
            "masked norm": "norm over the entries that the mask leaves",
            "logit": f"part in the logit of token {self.token} at position {self.position}{row}",
            "logit difference": f"part in logit[{self.token}] - logit[{self.against}] at position {self.position}{row}",
            "direction": f"part in what direction {self.token} reads at position {self.position}{row}",
            "direction difference": f"part in what directions {self.token} - {self.against} read at position "
            f"{self.position}{row}",
            "score entry": f"part in the score of query {self.position} and key {self.key}{row}",
        }[self.by]

    @property
    def signed(self) -> bool:
        """Whether terms have a number with a sign, and not only a size."""
        return "norm" not in self.by


def ask(
    expansion: Expansion, run: Run, by: str, row: int, position: int, token: int | None, against: int | None,
    key: int | None,
) -> Asked:  # fmt: skip
    """What is asked for, completed and checked; ValueError on what does not exist."""
    need("what is asked of terms, patterns held fixed,", expansion, Expansion)
    kind, _, name = expansion.target.partition(":")
    if by not in KINDS[kind]:
        known = ", ".join(f'"{k}"' for k in KINDS[kind])
        raise ValueError(f"terms of {expansion.target} are measured by {known}, not {by!r}")
    foreign: dict[str, Any] = {} if by == "score entry" else {"key": key}
    foreign |= {} if "logit" in by or "direction" in by else {"token": token}
    foreign |= {} if "difference" in by else {"against": against}
    foreign |= {"row": row or None, "position": None if position == -1 else position} if "norm" in by else {}
    for word, value in foreign.items():
        if value is not None:
            raise ValueError(f"{word} says nothing where terms are measured by {by!r}; leave it out")
    batched = np.ndim(run.tokens) == 2
    if "norm" in by:
        return Asked(by)
    if kind in ("logits", "readout"):
        readout = name if kind == "readout" else ""
        if "difference" in by and against is None:
            token, against = _second(run, row, position, token, readout)
        target = read_target(run, row, position, token, against, readout)
        return Asked(by, target.row if batched else None, target.position, None, target.token, target.against)
    n = run.tokens.shape[-1]
    at = place("row", row, run.tokens.shape[0]) if batched else None
    query = place("position", position, n)
    patterns = run.patterns[expansion.target.partition(":")[2]]
    pattern = patterns[query] if at is None else patterns[at, query]
    seen = int(np.argmax(np.abs(pattern))) if key is None else place("key", key, n)
    assert expansion.readout.head is not None
    mask = np.broadcast_to(run.masks[f"L{expansion.readout.head.layer}"], patterns.shape)
    if not (mask if at is None else mask[at])[query, seen]:
        raise ValueError(f"query {query} does not see key {seen}: the mask leaves no score there")
    return Asked(by, at, query, seen)


def _second(run: Run, row: int, position: int, token: int | None, readout: str) -> tuple[int, int]:
    """A token (the first choice, if none is given) and the largest other; of a readout the same of directions."""
    target = read_target(run, row, position, token, None, readout)
    assert target.token is not None
    values = np.array(run.readouts[readout] if readout else reference("logits", run), np.float64)
    values = values[target.row, target.position] if values.ndim == 3 else values[target.position]
    if len(values) < 2:
        raise ValueError(f"there is one {'direction' if readout else 'output token'} only, so there is no difference")
    values[target.token] = -np.inf
    return target.token, int(np.argmax(values))


# -------------------------------------------------------------------------------------------------- trees
def trees(
    asked: Asked, expansion: Expansion, run: Run, max_memory: int = 2**30, moments: bool | None = None,
    until: float | None = None,
) -> tuple[Tree, ...]:  # fmt: skip
    """The partial paths of each side, with their bounds, for what is asked; time for the bounds ends at ``until``."""
    cap, most = _caps(expansion)

    def possible(mark: Mark) -> bool:
        return most is None or mark.order <= most

    found = []
    folded = [{Mark(min(m.order, cap), m.bits) for m in side.counts} for side in expansion.sides]
    for side, paths in enumerate(expansion.sides):
        found.append(Tree(
            paths, run, asked.row, *_read(asked, expansion, run, side), _wanted(expansion, side, folded), possible, cap,
            max_memory // len(expansion.sides), moments, until,
        ))  # fmt: skip
    return tuple(found)


def _wanted(expansion: Expansion, side: int, folded: list[set[Mark]]) -> Any:
    """Whether a path of a side with this mark is in a term of the selection."""
    if len(folded) == 1:
        return lambda mark: expansion.accepts((mark,))
    others = folded[1 - side]
    return lambda mark: any(expansion.accepts((mark, m) if side == 0 else (m, mark)) for m in others)


def _caps(expansion: Expansion) -> tuple[int, int | None]:
    """The order from which on orders do not matter, and the largest that may be wanted."""
    orders = [max(c.values) for c in expansion.clauses if c.kind == "order"]
    cap = max(orders, default=-1) + 1
    if any(c.kind == "composition" for c in expansion.clauses):
        cap = max(cap, 2)
    return cap, min(orders, default=None)


def _read(asked: Asked, expansion: Expansion, run: Run, side: int) -> tuple[Array, list[int] | None, Array | None]:
    """Rows, chosen columns and their weights."""
    n, head = run.tokens.shape[-1], expansion.readout.head
    if asked.by == "norm" and head is None:
        return np.eye(n), None, None
    if head is None:
        rows, chosen = np.zeros((1, n)), [c for c in (asked.token, asked.against) if c is not None]
        rows[0, asked.position] = 1
        return rows, chosen, np.array([[1.0], [-1.0]])[: len(chosen)]
    scale = float(run.arrays[f"scale_{head}"]) if expansion.readout.scale and side == 0 else 1.0
    width = run.arrays[f"W_Q_{head}"].shape[0]
    if "norm" in asked.by:
        return np.eye(n), None, scale * np.eye(width)
    at = asked.position if side == 0 else asked.key
    rows = np.zeros((1, n))
    rows[0, at] = 1
    turned = np.asarray(run.arrays[f"R_{head}"][at], np.float64) if f"R_{head}" in run.arrays else np.eye(width)
    return rows, None, scale * turned
