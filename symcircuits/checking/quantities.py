"""Intermediate results of a model as sums of words: streams, outputs of heads and layers, queries and keys."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from symcircuits.checking.formula import RawFactor
from symcircuits.checking.matching import letters_of
from symcircuits.checking.values import Algebra, Chain, Value, Word
from symcircuits.core.architecture import FINAL, Architecture, Head
from symcircuits.core.programs import Branch, Layer, Source, norm, readout, stream_program
from symcircuits.core.words import Factor

__all__ = ["Quantities", "placed"]


class Quantities:
    """Values in row form, in the paper's convention, made on demand; they have no places."""

    def __init__(self, architecture: Architecture, algebra: Algebra) -> None:
        self.architecture, self.algebra = architecture, algebra
        self._streams: dict[int, Value] = {}

    def stream(self, point: int) -> Value:
        """The residual stream after a number of layers."""
        if point not in self._streams:
            layer = stream_program(self.architecture, point)[-1]
            before = self.stream(point - 1) if layer.skip else []
            self._streams[point] = self._after(layer, before)
        return self._streams[point]

    def normed(self, label: str) -> Value:
        """The output of the norm before the attention of a layer, ``L1``, or before the unembedding, ``final``."""
        point = self.architecture.n_layers if label == FINAL else int(label[1:])
        made = norm(self.architecture, label, point)
        through = self._through(Branch(None, made.left, made.right), self.stream(point))
        return through + ([Word(1, (), (_chain(made.bias),))] if made.bias else [])

    def head(self, head: Head, stream: Value | None = None) -> Value:
        """What a head adds to the stream; ``stream``: its input, if that is not the model's."""
        layer = stream_program(self.architecture, head.layer + 1)[-1]
        read = self.stream(head.layer) if stream is None else stream
        out: Value = []
        for branch in layer.branches:
            out += self._through(branch, read) if branch.head == head else []
        return out + [_source(s) for s in layer.sources if s.head == head]

    def averaged(self, head: Head) -> Value:
        """The values of a head averaged by its pattern, before ``W_O``."""
        return [w._replace(slots=(Chain(w.slots[0].factors[:-1]),)) for w in self.head(head) if w.slots]

    def values(self, head: Head) -> Value:
        """The values of a head, before its pattern."""
        return [w._replace(slots=(Chain(w.slots[0].factors[1:]),)) for w in self.averaged(head) if w.slots]

    def attention(self, layer: int, stream: Value | None = None) -> Value:
        """What the heads of a layer add, with the bias of the layer."""
        found = stream_program(self.architecture, layer + 1)[-1]
        heads = [w for h in self.architecture.layer_heads(layer) for w in self.head(h, stream)]
        return heads + [_source(s) for s in found.sources if s.name[:3] == "b_O"]

    def side(self, head: Head, side: int) -> Value:
        """The queries (0) or keys (1) of a head."""
        program = readout(self.architecture, f"scores:{head}").sides[side]
        value: Value = []
        for layer in program:
            value = self._after(layer, value)
        return value

    @cached_property
    def logits(self) -> Value:
        """The logits."""
        value: Value = []
        for layer in readout(self.architecture, "logits").sides[0]:
            value = self._after(layer, value)
        return value

    def _after(self, layer: Layer, value: Value) -> Value:
        out = list(value) if layer.skip else []
        for branch in layer.branches:
            out += self._through(branch, value)
        return out + [_source(s) for s in layer.sources]

    def _through(self, branch: Branch, value: Value) -> Value:
        left = [Word(1, branch.scales, (_chain(branch.left),))]
        return self.algebra.times(self.algebra.times(left, value, 0), [Word(1, (), (_chain(branch.right),))], 0)


def _chain(factors: Iterable[Factor]) -> Chain:
    return Chain(tuple(RawFactor(letter, 0) for letter in letters_of(factors)))


def _source(source: Source) -> Word:
    return Word(1, source.scales, (_chain(source.factors),))


def placed(value: Value, at: int, row: str = "") -> Value:
    """The same value with all letters at one place and its rows named."""
    out = []
    for w in value:
        assert w.slots is not None
        chains = tuple(Chain(tuple(RawFactor(f.letter, at) for f in c.factors), row) for c in w.slots)
        out.append(w._replace(slots=chains))
    return out
