"""The forward pass once more with something changed: patterns given, outputs of heads removed; all else computed anew.

What comes out is not a :class:`~symcircuits.model.Run`: its terms would not add up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.model.forward import BY_LABEL, Changes, Record
from symcircuits.model.transformer import Run, _run

__all__ = ["Edited", "rerun"]


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """What an edited forward pass gives: logits (None without unembedding), streams, patterns by head.

    ``products``: as of a :class:`~symcircuits.model.Run`, what score terms (and, under ``logits``, logit terms) add up
    to where that is not what the model gives; ``readouts`` by name.
    """

    logits: Array | None
    streams: tuple[Array, ...]
    patterns: Mapping[str, Array]
    products: Mapping[str, Array]
    readouts: Mapping[str, Array]

    @property
    def end(self) -> Array:
        """The logits, or the last stream of a model without unembedding."""
        return self.streams[-1] if self.logits is None else self.logits


def rerun(run: Run, *, patterns: Mapping[str, Array] | None = None, removed: Iterable[str] = ()) -> Edited:
    """The forward pass of a run on its tokens, with edits; what comes after the first of them is computed anew.

    ``patterns``: by head label the pattern ``[..., n, n]`` to use in place of the softmax of the head's scores;
    ``removed``: labels of heads that add nothing to the stream. Raises ValueError on a head that is not there and
    on a pattern of another shape.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> run = random_model(attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> edited = rerun(run, removed=["L0H0"])
    >>> bool(np.array_equal(edited.streams[1], run.streams[0])), edited.logits.shape
    (True, (3, 11))
    """
    given = {}
    for label, pattern in (patterns or {}).items():
        shape = run.patterns[str(run.model.architecture.head(label))].shape
        if np.shape(pattern) != shape:
            raise ValueError(f"the pattern of {label} must have shape {list(shape)}, not {list(np.shape(pattern))}")
        given[str(run.model.architecture.head(label))] = np.array(pattern, dtype=run.dtype)
    labels = {str(run.model.architecture.head(label)) for label in removed}
    start = min((run.model.architecture.head(label).layer for label in (*given, *labels)), default=0)
    changes = Changes(given, labels, start, _before(run, start) if start else None)
    found = _run(run.model, run.tokens, run.dtype, changes, run.attended)
    return Edited(found.logits, found.streams, found.patterns, found.products, found.readouts)


def _before(run: Run, layer: int) -> Record:
    """What the first layers of a run left; what comes after is computed anew, and stands in the place of what was."""
    found = Record(streams=list(run.streams[: layer + 1]))
    for kind in BY_LABEL:
        getattr(found, kind).update(getattr(run, kind))
    return found
