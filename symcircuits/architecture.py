"""Architectures, described: sources, branches and layers, and what each readout reads.

A model with its patterns held fixed is a *program*: a list of layers, each a sum of branches
``X -> left X right`` plus sources, with or without the skip connection. Everything else (counting,
enumerating, evaluating, the SymPy recursion) walks this list. A new kind of source or branch is added here
(and its real computation in :mod:`symcircuits.model`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from symcircuits.algebra import Factor, Index, Space, Symbol
from symcircuits.notation import amount

__all__ = ["Architecture", "Branch", "Head", "Layer", "Readout", "Source", "as_head", "attention_only", "readout"]

POSITIONS = (None, "standard", "shortformer")
MAX_HEADS = 100_000  # a description lists its heads one by one
BIAS_KINDS = ("b_V", "b_O", "b_Q", "b_K", "b_U")
# The order of sources within one chain of heads, stable across versions.
SOURCE_ORDER = ("embed", "pos", *BIAS_KINDS)


class Head(NamedTuple):
    """A head by layer and number in its layer, counted from 0; sorts as (layer, number).

    >>> str(Head(0, 3)), Head(0, 10) > Head(0, 2)
    ('L0H3', True)
    """

    layer: int
    number: int

    @property
    def label(self) -> str:
        """The name: ``L0H3`` is the fourth head of the first layer."""
        return f"L{self.layer}H{self.number}"

    def __str__(self) -> str:
        return self.label


def as_head(head: str | tuple[int, int]) -> Head:
    """Read a head from ``"L1H4"``, ``"1.4"`` or ``(1, 4)``; ValueError otherwise.

    >>> as_head("1.4") == as_head((1, 4)) == as_head("L1H4")
    True
    """
    if isinstance(head, str):
        found = re.fullmatch(r"\s*(?:[Ll](\d+)[Hh](\d+)|(\d+)\.(\d+))\s*", head)
        if found:
            layer, index = (int(g) for g in found.groups() if g is not None)
            return Head(layer, index)
    elif isinstance(head, tuple) and len(head) == 2:
        with suppress(TypeError):
            layer, number = (operator.index(i) for i in head)
            if min(layer, number) >= 0 and not any(isinstance(i, bool) for i in head):
                return Head(layer, number)
    raise ValueError(f"{head!r} is not the name of a head; write L1H4, 1.4 or (1, 4), counted from 0")


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """What writes a constant to the stream: ``left core right``, e.g. ``A^h (1 b_V^T) W_O^T``.

    ``name`` is ``embed``, ``pos``, ``b_V[L0H1]``, ...; ``head`` the head inside which it enters, if any.
    """

    name: str
    core: tuple[Factor, ...]
    left: tuple[Factor, ...] = ()
    right: tuple[Factor, ...] = ()
    head: Head | None = None

    def __repr__(self) -> str:
        return f"<Source {self.name}>"

    @property
    def kind(self) -> str:
        """The kind: ``embed``, ``pos``, ``b_V``, ``b_O``, ``b_Q``, ``b_K`` or ``b_U``."""
        return self.name.partition("[")[0]

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, in order."""
        return self.left + self.core + self.right

    @property
    def is_bias(self) -> bool:
        """Whether it is the same row for every token."""
        return self.core[0].symbol.glyph == "ones"


@dataclass(frozen=True, slots=True)
class Branch:
    """A map ``X -> left X right``; ``head`` is the head it belongs to (None: a readout, which is no choice)."""

    head: Head | None
    left: tuple[Factor, ...]
    right: tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A sum of branches and sources, with or without the skip connection."""

    branches: tuple[Branch, ...] = ()
    sources: tuple[Source, ...] = ()
    skip: bool = True


Program = tuple[Layer, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Readout:
    """What is expanded: one program for logits or the stream, two (query, key) for the scores of a head.

    ``target`` is ``"logits"``, ``"stream"`` or ``"scores:L1H0"``; ``scale`` the label of the score scale, if any.
    """

    architecture: Architecture
    target: str
    sides: tuple[Program, ...]
    scale: str = ""

    def __repr__(self) -> str:
        return f"<Readout {self.target} of {self.architecture}>"

    @property
    def head(self) -> Head | None:
        """The head whose scores are read, if any."""
        return as_head(self.target.partition(":")[2]) if self.bilinear else None

    @property
    def bilinear(self) -> bool:
        """Whether it has a query and a key side."""
        return len(self.sides) == 2


@dataclass(frozen=True, slots=True, repr=False)
class Architecture:
    """An attention-only transformer, as far as its algebra goes; made by :func:`attention_only`.

    ``biases`` holds the names of the bias sources that are there.

    >>> arch = attention_only((2, 3), positions="shortformer")
    >>> arch.n_layers, str(arch.head("1.2")), str(arch)
    (2, 'L1H2', 'attention-only, heads 2,3, positions shortformer')
    """

    heads: tuple[int, ...]
    positions: str | None = None
    biases: frozenset[str] = frozenset()
    scale: bool = True
    causal: bool = True
    unembed: bool = True

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.heads)

    def layer_heads(self, layer: int) -> tuple[Head, ...]:
        """The heads of one layer (counted from 0)."""
        return tuple(Head(layer, i) for i in range(self.heads[layer]))

    @property
    def all_heads(self) -> tuple[Head, ...]:
        """Every head, sorted by (layer, index)."""
        return tuple(h for layer in range(self.n_layers) for h in self.layer_heads(layer))

    def head(self, head: str | tuple[int, int]) -> Head:
        """The head of that name; ValueError with what there is when it does not exist."""
        found = as_head(head)
        if found.layer >= self.n_layers:
            raise ValueError(
                f"there is no head {found}: the model has {amount(self.n_layers, 'layer')}, counted from 0"
            )
        if found.number >= self.heads[found.layer]:
            count = self.heads[found.layer]
            heads = amount(count, "head")
            raise ValueError(f"there is no head {found}: layer {found.layer} has {heads}, counted from 0")
        return found

    def __repr__(self) -> str:
        return f"<Architecture: {self}>"

    def __str__(self) -> str:
        heads = ",".join(map(str, self.heads)) or "none"
        extra = [f"positions {self.positions}"] if self.positions else []
        extra += ["biases"] if self.biases else []
        extra += [] if self.scale else ["no score scale"]
        extra += [] if self.causal else ["bidirectional"]
        extra += [] if self.unembed else ["no unembedding"]
        return f"attention-only, heads {heads}" + "".join(f", {e}" for e in extra)


def bias_names(heads: tuple[int, ...], unembed: bool = True) -> tuple[str, ...]:
    """The names of all bias sources that a model with these heads can have, in the order of sources."""
    labels = [Head(layer, i).label for layer, n in enumerate(heads) for i in range(n)]
    names = [f"b_V[{h}]" for h in labels] + [f"b_O[L{layer}]" for layer in range(len(heads))]
    names += [f"b_Q[{h}]" for h in labels] + [f"b_K[{h}]" for h in labels]
    return tuple(names + (["b_U"] if unembed else []))


def attention_only(
    heads: Iterable[int],
    positions: str | None = None,
    biases: bool | Iterable[str] = False,
    *,
    scale: bool = True,
    causal: bool = True,
    unembed: bool = True,
) -> Architecture:
    """Describe an attention-only transformer: heads per layer, position embedding, biases.

    ``positions``: None, ``"standard"`` (a second source in the stream) or ``"shortformer"`` (added to the
    input of queries and keys only). ``biases``: True for all, or the names (or kinds) of those that are there.
    ``scale``: whether scores carry one scalar scale per head. ``unembed=False``: a model without unembedding,
    whose stream is expanded. Raises ValueError on anything else. Source: paper, "Model Simplifications".

    >>> arch = attention_only(heads=(3, 3))
    >>> arch.n_layers, [str(h) for h in arch.layer_heads(1)]
    (2, ['L1H0', 'L1H1', 'L1H2'])
    """
    counts = _head_counts(heads)
    if positions not in POSITIONS:
        raise ValueError(f'positions must be None, "standard" or "shortformer", not {positions!r}')
    for name, flag in (("scale", scale), ("causal", causal), ("unembed", unembed)):
        if not isinstance(flag, bool):
            raise ValueError(f"{name} must be True or False, not {flag!r}")
    names = frozenset[str]() if biases is False else _biases(biases, bias_names(counts, unembed))
    return Architecture(counts, positions, names, scale, causal, unembed)


def _listed(values: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, (str, bytes)):
        try:
            return tuple(values)
        except TypeError:
            pass
    raise ValueError(f"{what}, not {values!r}")


def _head_counts(heads: Iterable[int]) -> tuple[int, ...]:
    counts: list[int] = []
    for layer, n in enumerate(_listed(heads, "heads must list the number of heads of each layer, e.g. (3, 3)")):
        try:
            count = operator.index(n)
        except TypeError:
            count = -1
        if count < 0 or isinstance(n, bool):
            raise ValueError(f"the number of heads of layer {layer} must be a whole number, 0 or more, not {n!r}")
        counts.append(count)
    if sum(counts) > MAX_HEADS:
        raise ValueError(f"{sum(counts):,} heads are too many to list; the limit is {MAX_HEADS:,} in all layers")
    return tuple(counts)


def _biases(biases: bool | Iterable[str], possible: tuple[str, ...]) -> frozenset[str]:
    if isinstance(biases, bool):
        return frozenset(possible if biases else ())
    names: set[str] = set()
    what = "biases must be True, False or the names of those that are there, e.g. b_V or b_V[L0H1]"
    for name in [biases] if isinstance(biases, str) else _listed(biases, what):
        found = {p for p in possible if name in (p, p.partition("[")[0])}
        if not found and name not in BIAS_KINDS:
            raise ValueError(f"there is no bias {name!r} here; the kinds are {', '.join(BIAS_KINDS)}, e.g. b_V[L0H1]")
        names |= found
    return frozenset(names)


# ---------------------------------------------------------------------------------------------- symbols
# Points of the stream: 0 after the embedding, l + 1 after layer l. ``None`` on a constant: it is at every point.
_ONE = Space("one")
_ONES = Symbol("ones", "", Index(Space("context")), Index(_ONE))


def _model(point: int, reader: bool = False) -> Index:
    return Index(Space("model"), reader, point)


def _bias(glyph: str, label: str, row: Index) -> tuple[Factor, ...]:
    """``1 b^T``: the same row for every token."""
    return (Factor(_ONES), Symbol(glyph, label, row, Index(_ONE, True)).T)


def embedding() -> tuple[Factor, ...]:
    """``t W_E^T``, the token embedding, ``[n_context, d_model]``."""
    t = Symbol("t", "", Index(Space("context"), False, 0), Index(Space("vocab_in")))
    w_e = Symbol("W_E", "", _model(0), Index(Space("vocab_in"), True))
    return (Factor(t), w_e.T)


def _position(arch: Architecture) -> Source:
    space = Space("attention_input" if arch.positions == "shortformer" else "model")
    return Source("pos", (Factor(Symbol("P", "", Index(Space("context"), False, 0), Index(space, False, 0))),))


def pattern(head: Head) -> Symbol:
    """``A^h``, the attention pattern, ``[n_context, n_context]``: rows are queries, columns keys."""
    context = Space("context")
    rows, cols = Index(context, False, head.layer + 1), Index(context, True, head.layer)
    return Symbol("A", head.label, rows, cols, branch=head.label)


def weight(arch: Architecture, glyph: str, head: Head) -> Symbol:
    """One of ``W_Q, W_K, W_V`` (``[d_head, d_model]``) or ``W_O`` (``[d_model, d_head]``) of a head."""
    label, at = head.label, head.layer
    if glyph == "W_O":
        return Symbol("W_O", label, _model(at + 1), Index(Space("ov", label), True), branch=label)
    if glyph == "W_V":
        return Symbol("W_V", label, Index(Space("ov", label)), _model(at, True))
    space = Space("attention_input" if arch.positions == "shortformer" else "model")
    return Symbol(glyph, label, Index(Space("qk", label), glyph == "W_K"), Index(space, True, at))


# --------------------------------------------------------------------------------------------- programs
def stream_program(arch: Architecture, n_layers: int) -> Program:
    """The layers that write the residual stream up to ``n_layers``: embedding, then attention layers."""
    sources = [Source("embed", embedding())]
    if arch.positions == "standard":
        sources.append(_position(arch))
    layers = [Layer((), tuple(sources), skip=False)]
    return tuple(layers + [_attention_layer(arch, layer) for layer in range(n_layers)])


def _attention_layer(arch: Architecture, layer: int) -> Layer:
    branches, sources = [], []
    for head in arch.layer_heads(layer):
        left, w_o = (Factor(pattern(head)),), weight(arch, "W_O", head)
        branches.append(Branch(head, left, (weight(arch, "W_V", head).T, w_o.T)))
        if f"b_V[{head}]" in arch.biases:
            core = _bias("b_V", head.label, Index(Space("ov", head.label)))
            sources.append(Source(f"b_V[{head}]", core, left, (w_o.T,), head))
    if f"b_O[L{layer}]" in arch.biases:
        sources.append(Source(f"b_O[L{layer}]", _bias("b_O", f"L{layer}", _model(layer + 1))))
    return Layer(tuple(branches), tuple(sources))


def _side_program(arch: Architecture, head: Head, side: str) -> Program:
    """One side of a head's scores: the stream it reads, the position, then ``W_Q`` and ``b_Q`` (or K)."""
    program = stream_program(arch, head.layer)
    if arch.positions == "shortformer":
        program += (Layer((), (_position(arch),)),)
    read = Branch(None, (), (weight(arch, f"W_{side}", head).T,))
    bias = f"b_{side}[{head}]"
    sources: tuple[Source, ...] = ()
    if bias in arch.biases:
        sources = (Source(bias, _bias(f"b_{side}", head.label, Index(Space("qk", head.label), side == "K"))),)
    return (*program, Layer((read,), sources, skip=False))


def readout(arch: Architecture, target: str) -> Readout:
    """The readout of that name: ``"logits"``, ``"stream"`` or ``"scores:L1H0"``; ValueError otherwise.

    >>> len(readout(attention_only((3, 3)), "scores:L1H0").sides)
    2
    """
    kind, _, which = target.partition(":") if isinstance(target, str) else ("", "", "")
    if target == "stream":
        return Readout(arch, target, (stream_program(arch, arch.n_layers),))
    if target == "logits":
        if not arch.unembed:
            raise ValueError("this model has no unembedding, so it has no logits; expand the stream instead")
        w_u = Symbol("W_U", "", Index(Space("vocab_out")), _model(arch.n_layers, True))
        sources: tuple[Source, ...] = ()
        if "b_U" in arch.biases:
            sources = (Source("b_U", _bias("b_U", "", Index(Space("vocab_out")))),)
        unembed = Layer((Branch(None, (), (w_u.T,)),), sources, skip=False)
        return Readout(arch, target, ((*stream_program(arch, arch.n_layers), unembed),))
    if kind == "scores" and which:
        head = arch.head(which)
        sides = (_side_program(arch, head, "Q"), _side_program(arch, head, "K"))
        return Readout(arch, f"scores:{head}", sides, head.label if arch.scale else "")
    raise ValueError(f'unknown target {target!r}; the targets are "logits", "stream" and "scores:L1H0" (any head)')
