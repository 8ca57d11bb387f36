"""What a reading of the end of a run reads of the stream before it, with everything held fixed: one backward walk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.values.evaluate import Values

__all__ = ["ReadBack"]

Array = npt.NDArray[Any]


class ReadBack:
    """Readers ``R [k, ..., n_context, width]`` of the end of a run, moved back through its layers.

    A number ``<R, end>`` is linear in what each head writes, with patterns (and everything else held fixed) given:
    ``G_(l-1) = G_l + sum_h A^{h T} G_l W_O^h W_V^h`` (with the scales of rows and columns), starting at ``R W_U``,
    gives ``<G_l, Y>``: what ``Y``, written to the stream by layer l, adds to it, on all paths at once. Source: own
    derivation (the adjoint of the walk).

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> reader = np.zeros((1, 3, 11))
    >>> reader[0, 2, 5] = 1                       # logit 5 at position 2
    >>> found = ReadBack(values, reader).of("L0H1", run.results["L0H1"])
    >>> whole = sc.evaluate(values.expansion.through("L0H1"), run).total()
    >>> bool(np.isclose(found[0], whole[2, 5]))
    True
    """

    def __init__(self, values: Values, readers: Array) -> None:
        self.values = values
        self._paths, self._readers = values.expansion.sides[0], len(readers)
        self._after: list[Array | None] = []  # for each layer of the program, the reader of the stream after it
        found: Array | None = np.asarray(readers, values.run.dtype)
        with values.calm():
            for layer in reversed(self._paths.program):
                self._after.append(found)
                if found is not None:
                    parts = [found] if layer.skip else []
                    parts += [values.matrices.back(branch, found) for branch in layer.branches]
                    found = values.matrices.add(parts) if parts else None
        self._after.reverse()

    def of(self, head: str, written: Array) -> Array:
        """What an output ``[..., n_context, d_model]`` of a head adds to each reading, ``[..., k]``.

        0 if no path leads from there to the end; axes in front of those of the run are kept. Raises ValueError if it is
        not finite.
        """
        at = self._layer_of(head)
        shape = written.shape[: written.ndim - len(self.values.batch) - 2]
        reader = None if at is None else self._after[at]
        if reader is None:
            return np.zeros((*shape, self._readers))
        reader = np.broadcast_to(reader, (self._readers, *self.values.batch, *reader.shape[-2:]))
        wide = reader.reshape(self._readers, -1).astype(np.float64, copy=False)
        with self.values.calm():
            found = written.reshape(*shape, -1).astype(np.float64, copy=False) @ wide.T
        return self.values.seen(np.asarray(found), f"the terms through {head}")

    def of_pattern(self, head: str, pattern: Array) -> Array:
        """The same for the output of a head with another pattern ``[..., n, n]``, including its own sources."""
        at, name = self._layer_of(head), self.values.expansion.architecture.head(head)
        if at is None:
            return np.zeros((*pattern.shape[: pattern.ndim - len(self.values.batch) - 2], self._readers))
        run, layer = self.values.run, self._paths.program[at]
        matrices = Values(self.values.expansion, run, {**self.values.instead, f"A_{head}": pattern}).matrices
        (branch,) = (b for b in layer.branches if b.head == name)
        with self.values.calm():
            own = [matrices.source(s) for s in layer.sources if s.head == name]
            return self.of(head, matrices.add([matrices.branch(branch, run.streams[name.layer]), *own]))

    def _layer_of(self, head: str) -> int | None:
        """The layer of the program that a head is in, if paths go through it."""
        return self._paths._layer_of.get(self.values.expansion.architecture.head(head))
