"""The sum of the terms through each head, for all heads by one walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, final

from symcircuits.core.architecture import Head
from symcircuits.core.programs import Branch, Source
from symcircuits.core.text import shown
from symcircuits.core.walk import Matrices, walk
from symcircuits.values.factors import RunMatrices
from symcircuits.values.sums import Sums

__all__ = ["through_each_head"]

A = TypeVar("A")
_Split = tuple[Any, dict[Head, Any]]


@final
class _Through:
    """Values with the sum of all paths and the sum of those through each head."""

    __slots__ = ("base",)

    def __init__(self, base: Matrices) -> None:
        self.base = base

    def source(self, source: Source) -> _Split:
        """A source inside a head goes through it."""
        value = self.base.source(source)
        return value, {} if source.head is None else {source.head: value}

    def branch(self, branch: Branch, value: _Split) -> _Split:
        """Everything that goes through a head's branch goes through that head."""
        [found] = self.summands([branch], value)
        return found

    def summands(self, branches: Sequence[Branch], value: _Split) -> list[_Split]:
        """The sum of branches; the parts through earlier heads go through all of them at once, if possible."""
        whole, parts = value
        each = [(b.head, self.base.branch(b, whole)) for b in branches]
        values, base = list(parts.values()), self.base
        if isinstance(base, RunMatrices):
            moved = base.together(branches, values)
        else:
            moved = [base.add([base.branch(b, v) for b in branches]) for v in values]
        new = {head: one for head, one in each if head is not None}
        return [(base.add([one for _, one in each]), dict(zip(parts, moved, strict=True)) | new)]

    def add(self, values: Sequence[_Split]) -> _Split:
        """Head by head."""
        parts: dict[Head, list[Any]] = {}
        for _, split in values:
            for head, part in split.items():
                parts.setdefault(head, []).append(part)
        return self.base.add([whole for whole, _ in values]), {h: self.base.add(same) for h, same in parts.items()}


def through_each_head(values: Sums[A]) -> Iterator[tuple[Head, A]]:
    """For every head on a path the sum of the terms of logits (or stream) through it, ``[..., n_context, width]``.

    Equal to ``evaluate(expansion.through(head), run).total()``, and to minus the change on removing the head with
    patterns held fixed; a term through two heads counts for both. Nothing is listed, and only the parts of the stream
    are kept, ``[heads, ..., n_context, d_model]``: the unembedding reads one after the other. Raises ValueError on
    scores, on selections and if a sum is not finite. Source: own derivation.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 1), biases=True), seed=1).run([1, 2, 3])
    >>> logits = sc.logits(run.model.architecture)
    >>> import numpy as np
    >>> for head, value in through_each_head(sc.evaluate(logits, run)):
    ...     assert np.allclose(value, sc.evaluate(logits.through(head), run).total())
    """
    expansion = values.expansion
    if expansion.readout.bilinear or expansion.clauses:
        what = "whole logits or a whole stream"
        raise ValueError(f"terms through each head are summed for {what}, not {shown(expansion)}")
    (program,) = expansion.readout.sides
    reading = program[-1:] if expansion.target == "logits" else ()  # no term goes through a head there
    with values.calm():
        found = walk(program[: len(program) - len(reading)], _Through(values.matrices))
    parts = {} if found is None else found[1]
    for head in sorted(parts):  # a head before the split of the stream is on no path
        value = parts[head]
        for layer in reading:
            with values.calm():
                value = values.matrices.branch(layer.branches[0], value)
        yield head, values.seen(values.spread(value), f"the terms through {head}")
