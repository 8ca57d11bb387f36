"""What of a term is its size: its norm, its part in a logit or a difference of two, or in one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symcircuits.core.expansion import Expansion
from symcircuits.model import Run
from symcircuits.values.evaluate import reference
from symcircuits.values.targets import place, read_target

__all__ = ["Asked", "ask"]

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
    if not isinstance(expansion, Expansion):
        raise TypeError(f"an expansion such as logits(arch) is needed there, patterns held fixed, not {expansion!r}")
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
    if not run.masks[f"L{expansion.readout.head.layer}"][query, seen]:
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
