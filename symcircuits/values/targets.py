"""The chosen logit or difference of two, and the sizes of sums of terms there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import Expansion
from symcircuits.core.text import place
from symcircuits.model import Run
from symcircuits.values.evaluate import Values, evaluate, reference

__all__ = [
    "Target",
    "by_degree",
    "read_target",
    "sized",
    "totals",
]

Array = npt.NDArray[Any]
MAX_DEGREE = 64  # of a model that is a polynomial, up to which its sums by degree are made


@dataclass(frozen=True, slots=True)
class Target:
    """The chosen logit: batch row, position (from 0) and output token; no token for a model without unembedding.

    ``value``: the logit, before a soft cap if logits have one (terms add up to that).
    ``readout``: the name of the attached readout that is looked at in place of the logits; ``token`` is then the
    number of one of its directions. ``against``: the second token of a logit difference, if one was chosen;
    ``difference``: logit[token] minus that.
    """

    row: int
    position: int
    token: int | None
    value: float | None
    against: int | None = None
    difference: float | None = None
    readout: str = ""

    @property
    def tokens(self) -> list[int]:
        """The output tokens that were chosen."""
        return [token for token in (self.token, self.against) if token is not None]

    def at(self, value: Array) -> tuple[float | None, float | None]:
        """The entries of the chosen logit and of the difference in an array ``[..., n, d_vocab_out]``."""
        return self.of(value[..., self.tokens]) if self.tokens else (None, None)

    def of(self, entries: Array) -> tuple[float, float | None]:
        """The same, from the entries of the chosen tokens alone, ``[..., n, tokens]``."""
        chosen = entries[self.row, self.position] if entries.ndim == 3 else entries[self.position]
        return float(chosen[0]), None if self.against is None else float(chosen[0] - chosen[1])


def read_target(run: Run, row: int, position: int, token: int | None, against: int | None, readout: str = "") -> Target:
    """The chosen logit, or difference of logits, or the same of a readout; ValueError on what does not exist."""
    if readout:
        return _read_readout(run, readout, row, position, token, against)
    shape = np.shape(run.tokens)
    row = place("row", row, shape[0] if len(shape) == 2 else 1)
    position = place("position", position, shape[-1])
    if run.logits is None:
        if token is not None or against is not None:
            raise ValueError("this model has no unembedding, so there is no logit of a token to look at")
        return Target(row, position, None, None)
    whole = reference("logits", run)
    logits = whole[row, position] if len(shape) == 2 else whole[position]
    token = int(np.argmax(logits)) if token is None else place("token", token, len(logits), negative=False)
    if against is None:
        return Target(row, position, token, float(logits[token]))
    against = place("the token against", against, len(logits), negative=False)
    if against == token:
        raise ValueError(f"the difference of the logit of token {token} with itself is 0; choose two tokens")
    return Target(
        row, position, token, float(logits[token]), against, difference=float(logits[token] - logits[against])
    )


def _read_readout(run: Run, name: str, row: int, position: int, direction: int | None, against: int | None) -> Target:
    """The chosen direction of a readout (that of the largest absolute value), or the difference of two."""
    shape, values = np.shape(run.tokens), run.readouts[name]
    row = place("row", row, shape[0] if len(shape) == 2 else 1)
    position = place("position", position, shape[-1])
    found = values[row, position] if len(shape) == 2 else values[position]
    chosen = int(np.argmax(np.abs(found))) if direction is None else place("direction", direction, len(found), False)
    if against is None:
        return Target(row, position, chosen, float(found[chosen]), readout=name)
    other = place("the direction against", against, len(found), negative=False)
    if other == chosen:
        raise ValueError(f"the difference of direction {chosen} with itself is 0; choose two directions")
    return Target(
        row, position, chosen, float(found[chosen]), other, difference=float(found[chosen] - found[other]), readout=name
    )


def sized(value: Array, target: Target) -> dict[str, Any]:
    """Norm, contribution and, where two tokens were chosen, difference of a sum of terms."""
    contribution, difference = target.at(value)
    found = {"norm": frobenius(value), "contribution": contribution}
    return found if target.against is None else {**found, "difference": difference}


def totals(values: Values, target: Target) -> dict[str, dict[Any, dict[str, Any]]]:
    """Size of the sum of the terms of each order and composition type.

    Of models that are polynomials, and to which nothing is attached, also by degree, patterns and MLPs multiplied out,
    up to a degree of ``MAX_DEGREE``.
    """
    e = values.expansion
    found = {
        "order": _sized_all(values.by_order(), e.counts_by_order(), target),
        "composition": _sized_all(values.by_composition(), e.counts_by_composition(), target),
    }
    degrees = by_degree(e, values.run, target)
    return found | {"degree": degrees} if degrees else found


def by_degree(expansion: Expansion, run: Run, target: Target) -> dict[Any, dict[str, Any]]:
    """Sizes by degree, of a model that is a polynomial of degree at most ``MAX_DEGREE``; of another none.

    None either where something is attached to the model.
    """
    architecture = expansion.architecture
    if not architecture.polynomial or architecture.attachments:
        return {}
    terms = expansion.unfrozen()
    if terms.max_degree > MAX_DEGREE:
        return {}
    return _sized_all(evaluate(terms, run).by_degree(), terms.counts_by_degree(), target)


def _sized_all(sums: Mapping[Any, Array], counts: Mapping[Any, int], target: Target) -> dict[Any, dict[str, Any]]:
    return {k: {"count": n, **sized(sums[k], target)} for k, n in counts.items()}
