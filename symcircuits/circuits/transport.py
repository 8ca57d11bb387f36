"""Where a term looks and what it carries: selection and transport, whose product it is; and weighted patterns.

A term of the logits or the stream is ``S T``: the selection ``S [n, n]``, a pattern or a product of patterns (with
the ``D`` of norms), and the transport ``T [n, width]``, its output if all of ``S`` is on one token. So the
effect of token j on query i is ``S_ij T_j``, on every output. Source: paper, "Path Expansion" (``A ⊗ W``: which token,
and what).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Floats, transpose
from symcircuits.core.architecture import Head
from symcircuits.core.paths import path_branches
from symcircuits.core.shown import Shown
from symcircuits.core.terms import Term
from symcircuits.core.text import brief, need, place
from symcircuits.core.words import Factor
from symcircuits.model import Run, frozen, matrices_of
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import Measure, logit

__all__ = ["NOT_INVARIANT", "DirectEffects", "Transport", "transport", "weighted_pattern", "written_rows"]

Array = npt.NDArray[Any]
_CONTEXT: Final = ("context", "normed_context")

# for each weighting: the changes of the weights that change the numbers although the model stays the same
NOT_INVARIANT: Final = {
    "value": "bases inside the head (W_V -> G W_V, W_O -> W_O G^-1) and of the stream, GL(d_model)",
    "output": "bases of the stream, GL(d_model); rotations of it leave the lengths as they are",
    "effect": "",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Transport(Shown):
    """A term taken apart: ``selection [..., n, n]`` and ``transport [..., n, width]``; ``value`` is their product.

    Rows of the selection are queries, columns the source tokens.
    """

    term: Term
    selection: Array
    transport: Array

    @property
    def value(self) -> Array:
        """The term, ``[..., n, width]``."""
        return np.asarray(self.selection @ self.transport)

    def at(self, query: int, key: int) -> Array:
        """The effect of the token at ``key`` on every output at ``query``, ``[..., width]``."""
        n = self.selection.shape[-1]
        i, j = place("query", query, n), place("key", key, n)
        return np.asarray(self.selection[..., i, j, None] * self.transport[..., j, :])

    def by_source(self, query: int) -> Array:
        """The term at a query, split by source token, ``[..., n, width]``: the parts add up to it."""
        i = place("query", query, self.selection.shape[-1])
        return np.asarray(self.selection[..., i, :, None] * self.transport)


def transport(values: Values, term: Term) -> Transport:
    """The implementation of :meth:`symcircuits.values.evaluate.Values.transport`."""
    need("transport", term, Term)
    if term.readout != values.expansion.readout:
        raise ValueError(f"{term!r} is not a term of {values.expansion.target} of [{values.expansion.architecture}]")
    if len(term.paths) == 2:
        raise ValueError(f"a score term has a query side and a key side, and no transport: {term.label}")
    matrices, [path], [program] = values.matrices, term.paths, term.readout.sides
    n = values.run.tokens.shape[-1]
    inside = [_of_tokens(f) for f in path.source.factors]
    cut = inside.index(False) if False in inside else len(inside)
    selection = matrices.chain(path.source.factors[:cut], np.eye(n, dtype=values.run.dtype))
    rows = matrices.chain(path.source.factors[cut:]) if cut else matrices.source(path.source)
    rows = matrices.scaled(path.source.scales, rows) if cut else rows
    for branch in path_branches(program, path):
        rows = matrices.scaled(branch.scales, matrices.chain(branch.right, rows))
        for factor in reversed(branch.left):
            selection = matrices.factor(factor) @ selection
    return Transport(
        term,
        values.seen(selection, f"the selection of {term.label}"),
        values.seen(rows, f"the transport of {term.label}"),
    )


def _of_tokens(factor: Factor) -> bool:
    return factor.col.space.kind in _CONTEXT


def weighted_pattern(
    values: Values, head: str | tuple[int, int], by: str = "effect", of: Measure | None = None
) -> Array:
    """The implementation of :meth:`symcircuits.values.evaluate.Values.weighted_pattern`."""
    run = values.run
    found = values.expansion.architecture.head(head)
    need("weighted_pattern(of=)", of, Measure, type(None))
    if not isinstance(by, str) or by not in NOT_INVARIANT:
        raise ValueError(f"by must be 'value', 'output' or 'effect', not {brief(by)}")
    if of is not None and by != "effect":
        raise ValueError(f"of={of} has no effect with by={by!r}: lengths are over all outputs")
    label = str(found)
    pattern = run.patterns[label]
    if by == "value":
        return np.asarray(pattern * np.linalg.norm(_value_rows(run, found), axis=-1)[..., None, :])
    written = written_rows(run, label)
    if by == "output":
        return np.asarray(pattern * np.linalg.norm(written, axis=-1)[..., None, :])
    return _effects(values, pattern, written, logit() if of is None else of)


def written_rows(run: Run, head: str) -> Array:
    """The output of a head for every token, if all of its pattern were on it: ``m W_O v_j``, ``[..., n, d_model]``."""
    found = run.model.architecture.head(head)
    written, scale = _value_rows(run, found) @ transpose(run.arrays[f"W_O_{found}"]), f"r_L{found.layer}"
    return np.asarray(written * run.arrays[scale] if scale in run.arrays else written)


def _value_rows(run: Run, head: Head) -> Array:
    """``v_j``, with the value bias."""
    arch = run.model.architecture
    shared = arch.key_value(head)
    rows = _read(run, head.layer) @ transpose(run.arrays[f"W_V_{shared}"])
    return np.asarray(rows + run.arrays[f"b_V_{shared}"] if f"b_V[{shared}]" in arch.biases else rows)


class DirectEffects:
    """The direct effect on outputs of rows written to the last stream: norms before the logits held fixed.

    Reads only the outputs that are needed, and their mean over all.
    """

    def __init__(self, values: Values) -> None:
        if len(values.expansion.sides) == 2 or values.expansion.target == "stream":
            raise ValueError(f"an effect is on logits or on a readout, not on {values.expansion.target}")
        self.matrices = values.matrices
        [self._branch] = values.expansion.sides[0].program[-1].branches
        self._outputs = self.matrices.factor(self._branch.right[-1])  # [d, outputs]
        self._mean = np.asarray(self._outputs).mean(-1, keepdims=True)

    def read(self, written: Array, outputs: Sequence[int] | Array) -> Array:
        """What rows ``[..., d_model]`` add to these outputs, less the mean over all: ``[..., outputs]``."""
        before = self.matrices.chain(self._branch.right[:-1], written)
        chosen = np.asarray(self._outputs)[:, outputs] - self._mean
        return np.asarray(self.matrices.scaled(self._branch.scales, before @ chosen))

    def weights(self, pattern: Array) -> Array:
        """A pattern, with its rows times the scales of the last norm."""
        for factor in reversed(self._branch.left):
            pattern = self.matrices.factor(factor) @ pattern
        return pattern


def _effects(values: Values, pattern: Array, written: Array, of: Measure) -> Array:
    direct = DirectEffects(values)
    of = of.on(values.expansion, values.run, one_row=True)
    if not of.chosen:
        raise ValueError(f"an effect is on a logit or a difference of two (sc.logit), not {of}")
    read = direct.read(written, of.chosen)
    chosen = read[..., 0] - (read[..., 1] if len(of.chosen) == 2 else 0)
    return np.asarray(direct.weights(pattern) * chosen[..., None, :])


def _read(run: Run, layer: int) -> Array:
    """The input of the heads of a layer: the stream, or the output of its norm."""
    if not run.model.architecture.norm:
        return run.streams[layer]
    normed = frozen(run.model.architecture, matrices_of(run), Floats(run.dtype)).normed
    return np.asarray(normed[f"L{layer}"])
