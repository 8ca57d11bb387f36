"""Programs: an architecture as the algebra sees it (sources, branches and layers), and what each readout reads.

A model with its patterns, norms and MLP outputs held fixed is a *program*: a list of layers, each a sum of branches
``X -> left X right`` plus sources, with or without the skip connection. Everything else (counting, enumerating,
evaluating, the SymPy recursion) walks this list. A new kind of source or branch is added here (and its
computation in :mod:`symcircuits.model`).

A frozen norm is ``LN(X) = D X C diag(gain) + 1 b_N^T``: ``D = diag(1 / sigma)`` is on the left, next to the stream
that it scales (it does not commute with patterns); centring and gain are on the right, and its bias is a source. It
maps to spaces that only its layer reads. Source: own derivation; the paper, "Handling Layer Normalization".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from symcircuits.core.architecture import FINAL, Architecture, Head, as_head
from symcircuits.core.attachments import Reading, norm_of, place_of
from symcircuits.core.text import brief
from symcircuits.core.words import Factor, Index, Space, Symbol

__all__ = [
    "Branch", "Layer", "Norm", "Program", "Readout", "Source", "embedding", "first_layer", "made", "made_once",
    "mask", "mlp_bias", "mlp_out", "mlp_readout", "norm", "pattern", "readout", "rotation", "stream_program", "weight",
]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """A constant written to the stream: ``left core right``, e.g. ``A^h (1 b_V^T) W_O^T``, times its multipliers.

    ``name`` is ``embed``, ``pos``, ``b_V[L0H1]``, ...; ``head`` the head inside which it enters, if any; ``scales``
    the multipliers that it carries.
    """

    name: str
    core: tuple[Factor, ...]
    left: tuple[Factor, ...] = ()
    right: tuple[Factor, ...] = ()
    head: Head | None = None
    scales: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Source {self.name}>"

    @property
    def kind(self) -> str:
        """The kind: ``embed``, ``pos``, ``b_V``, ``b_O``, ``b_Q``, ``b_K`` or ``b_U``; else the name of the source."""
        if self.own:
            return self.name
        return self.name.partition("[")[0]

    @property
    def own(self) -> bool:
        """Whether the user set it apart and named it."""
        return bool(self.core[0].symbol.own)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, in order."""
        return self.left + self.core + self.right

    @property
    def is_bias(self) -> bool:
        """Whether it is the same row for every token (its core is ``1 b^T``)."""
        return self.core[0].symbol.glyph == "ones"


@dataclass(frozen=True, slots=True)
class Branch:
    """A map ``X -> left X right``; ``head`` is the head it belongs to (None: a readout, which every path takes).

    The first factor of ``left`` is the pattern, if there is a head; the last of ``right`` writes from the value space.
    ``scales``: the multipliers that it contributes.
    """

    head: Head | None
    left: tuple[Factor, ...]
    right: tuple[Factor, ...]
    scales: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """A sum of branches and sources, with or without the skip connection."""

    branches: tuple[Branch, ...] = ()
    sources: tuple[Source, ...] = ()
    skip: bool = True


Program = tuple[Layer, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Readout:
    """The expanded target: one program for logits or the stream, two (query, key) for the scores of a head.

    ``target`` is ``"logits"``, ``"stream"``, ``"scores:L1H0"`` or ``"readout:probe"``; ``scale`` the label of the score
    scale, if any.
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
        return _read_head(self.target) if self.bilinear else None

    @property
    def bilinear(self) -> bool:
        """Whether it has a query and a key side."""
        return len(self.sides) == 2


@lru_cache(maxsize=4096)
def _read_head(target: str) -> Head:
    return as_head(target.partition(":")[2])


# ---------------------------------------------------------------------------------------------- symbols
# Points of the stream: 0 after the embedding, l + 1 after layer l. ``None`` on a constant, valid at every point.
_CONTEXT = Space("context")
_MODEL = Space("model")
_ONE = Space("one")


def _model(point: int, mlp: bool = False) -> Index:
    return Index(_MODEL, False, point, mlp)


def _bias(glyph: str, label: str, row: Index, context: Space = _CONTEXT) -> tuple[Factor, ...]:
    """``1 b^T``: the same row for every token."""
    ones = Symbol("ones", "", Index(context), Index(_ONE))
    return (Factor(ones), Symbol(glyph, label, row, Index(_ONE, True)).T)


def embedding() -> tuple[Factor, ...]:
    """``t W_E^T``, the token embedding, ``[n_context, d_model]``."""
    t = Symbol("t", "", Index(_CONTEXT, False, 0), Index(Space("vocab_in")))
    w_e = Symbol("W_E", "", _model(0), Index(Space("vocab_in"), True))
    return (Factor(t), w_e.T)


@dataclass(frozen=True, slots=True)
class Norm:
    """The frozen norm with that label, read at a point of the stream; without label, the stream itself.

    ``left`` is ``D``, ``right`` centring and gain, ``context`` and ``model`` the spaces of its output, ``bias`` the
    source ``1 b_N^T`` if there is one. A folded RMS norm has nothing on the right: its readers read the model space,
    scaled.
    """

    label: str
    left: tuple[Factor, ...] = ()
    right: tuple[Factor, ...] = ()
    context: Space = _CONTEXT
    model: Space = _MODEL
    bias: tuple[Factor, ...] = ()

    @property
    def symbol(self) -> Factor:
        """``Y[L0]``, the output of the norm, as one symbol."""
        model = self.right[-1].col if self.right else _model(self.left[0].row.point or 0)
        return Factor(Symbol("Y", self.label, self.left[0].row, model))


def norm(arch: Architecture, label: str, point: int) -> Norm:
    """``X -> D X C diag(gain)``, ``C = I - 1 1^T / d_model`` for LN only, the gain if the norm has one.

    >>> from symcircuits.core.architecture import attention_only
    >>> found = norm(attention_only((1,), norm="LN"), "L0", 0)
    >>> [f.text for f in found.left + found.right]
    ['D[L0]', 'C', 'gain[L0]']

    The label of the final norm applied elsewhere (``finalL0``) is that of its ``D``; gain and bias are ``final``'s.
    """
    if not arch.norm:
        return Norm("")
    own, context, mlp = norm_of(label), Space("normed_context", label), _within(arch, place_of(label))
    names = (["C"] if arch.norm == "LN" else []) + (["gain"] if own in arch.gains else [])
    normed = Space("normed_model" if names else "scaled_model", label)
    right: list[Factor] = []
    read = _MODEL
    for glyph in names:
        last = glyph == names[-1]
        leads = normed if last else Space("centred_model", label)
        sides = Index(leads, False, point), Index(read, True, point, mlp)
        right.append(Symbol(glyph, own if glyph == "gain" else "", *sides, branch=label if last else "").T)
        read = leads
    rows = Index(context, False, point), Index(_CONTEXT, True, point, mlp)
    left = Factor(Symbol("D", label, *rows, branch=label if right else ""))
    bias = _bias("b_N", own, Index(normed), context) if f"b_N[{own}]" in arch.biases else ()
    return Norm(label, (left,), tuple(right), context, normed, bias=bias)


def _within(arch: Architecture, label: str) -> bool:
    """Whether a reader with that label reads after the heads of a layer and before its MLP has written."""
    return label[:1] == "M" and not arch.parallel


@lru_cache(maxsize=4096)
def pattern(head: Head, read: Space = _CONTEXT) -> Symbol:
    """``A^h``, the attention pattern, ``[n_context, n_context]``: rows are queries, columns keys."""
    rows, cols = Index(_CONTEXT, False, head.layer + 1), Index(read, True, head.layer)
    return Symbol("A", head.label, rows, cols, branch=head.label)


def weight(arch: Architecture, glyph: str, head: Head) -> Symbol:
    """One of ``W_Q, W_K, W_V`` (``[d_head, d_model]``) or ``W_O`` (``[d_model, d_head]``) of a head.

    ``W_K`` and ``W_V`` carry the label of the head's key/value group, if there are groups.
    """
    at, shared = head.layer, arch.key_value(head)
    if glyph == "W_O":
        return Symbol("W_O", head.label, _model(at + 1), Index(Space("ov", shared), True), branch=head.label)
    read = norm(arch, arch.norm_label(at), at)
    if glyph == "W_V":
        return Symbol("W_V", shared, Index(Space("ov", shared)), Index(read.model, True, at))
    space = read.model
    if arch.positions == "shortformer":
        space = Space("normed_input" if read.right else "attention_input", read.label)
    joint = Space("raw_qk", shared) if arch.qk_norm else _joint(arch, shared, glyph[-1])
    row = Index(joint, glyph == "W_K")
    return Symbol(glyph, shared if glyph == "W_K" else head.label, row, Index(space, True, at))


def _joint(arch: Architecture, shared: str, side: str) -> Space:
    """The space in which a query meets a key; rotary positions map from one of queries to one of keys."""
    if arch.positions == "rotary":
        return Space("query" if side == "Q" else "key", shared)
    return Space("scaled_qk" if arch.qk_norm else "qk", shared)


def _qk_norm(arch: Architecture, head: Head, side: str, context: Space) -> Layer:
    """The norm of a head's queries (or keys): ``D`` of their rows, the gain of the layer's queries (or keys)."""
    label, shared = f"{side}{head.label if side == 'Q' else arch.key_value(head)}", arch.key_value(head)
    rows = Index(Space("normed_context", label), False, head.layer), Index(context, True, head.layer)
    d = Factor(Symbol("D", label, *rows, branch=label))
    spaces = Index(_joint(arch, shared, side), side == "K"), Index(Space("raw_qk", shared), side == "Q")
    return Layer((Branch(None, (d,), (Symbol("gain", f"{side}{head.layer}", *spaces, branch=label).T,)),), (), False)


def rotation(arch: Architecture, head: Head) -> tuple[Factor, ...]:
    """``R``, with ``q_i R_(j-i) k_j^T`` the score of query i and key j, if positions are rotary; else empty.

    It is one matrix per pair of tokens, ``R_i R_j^T``, and depends on j - i alone.
    """
    if arch.positions != "rotary":
        return ()
    shared = arch.key_value(head)
    row, col = Index(_joint(arch, shared, "Q"), True), Index(_joint(arch, shared, "K"))
    return (Factor(Symbol("R", head.label, row, col)),)


def mask(head: Head) -> Symbol:
    """``mask``, one where a query may attend to a key and zero elsewhere, ``[n_context, n_context]``."""
    return Symbol("mask", f"L{head.layer}", Index(_CONTEXT), Index(_CONTEXT))


def mlp_out(layer: int) -> Symbol:
    """``W_out`` of a layer's MLP, ``[d_model, d_mlp]``."""
    return Symbol("W_out", f"L{layer}", _model(layer + 1, mlp=True), Index(Space("mlp", f"L{layer}"), True))


def mlp_bias(layer: int) -> tuple[Factor, ...]:
    """``1 b_out^T`` of a layer's MLP."""
    return _bias("b_out", f"L{layer}", _model(layer + 1, mlp=True))


# --------------------------------------------------------------------------------------------- programs
def first_layer(arch: Architecture, n_layers: int) -> int:
    """The first layer that writes to the stream up to ``n_layers``: the split if that comes before, else 0."""
    return 0 if arch.split is None or arch.split > n_layers else arch.split


def stream_program(arch: Architecture, n_layers: int) -> Program:
    """The layers that write the residual stream up to ``n_layers``: embedding, then attention (and MLP) layers.

    If the stream is split into attached sources and the rest, these replace everything before the split.
    """
    start = first_layer(arch, n_layers)
    sources = [Source("embed", embedding(), scales=_there(arch, "m_E"))]
    if arch.positions == "standard":
        sources.append(Source("pos", (Factor(_position_symbol(_MODEL, _CONTEXT)),)))
    if arch.split == start:
        sources = _split(arch, "stream", start, start)
    sources += _own(arch, "added", start, start)
    layers = made(arch, start, lambda: [Layer((), tuple(sources), skip=False)])
    layers += [_block(arch, layer) for layer in range(start + len(layers) - 1, n_layers)]
    return tuple(layers[: n_layers - start + 1])


_MADE: ContextVar[dict[tuple[int, int | str], tuple[Architecture, Any]] | None] = ContextVar("made", default=None)


@contextmanager
def made_once() -> Iterator[None]:
    """Within this context, layers of a stream and expansions of a target are built once per architecture.

    A nested context shares the results of the outer one.

    >>> from symcircuits.core.architecture import attention_only
    >>> arch = attention_only((2, 2))
    >>> with made_once():
    ...     stream_program(arch, 1)[1] is stream_program(arch, 2)[1]
    True
    """
    token = _MADE.set({} if (made := _MADE.get()) is None else made)
    try:
        yield
    finally:
        _MADE.reset(token)


def made(arch: Architecture, key: int | str, make: Callable[[], T]) -> T:
    """An object of an architecture, built by ``make``; within :func:`made_once`, only the first time."""
    kept = _MADE.get()
    if kept is None:
        return make()
    if (id(arch), key) not in kept:  # the architecture is kept too, so that its id is not reused
        kept[id(arch), key] = (arch, make())
    found: T = kept[id(arch), key][1]
    return found


def _own(arch: Architecture, of: str, layer: int, point: int) -> list[Source]:
    """The attached sources of that kind, as they are written at a point of the stream."""
    sides = Index(_CONTEXT, False, point, mlp=True), _model(point, mlp=True)
    return [Source(p.name, (Factor(Symbol(p.name, "", *sides, own="part")),)) for p in arch.parts_of(of, layer)]


def _split(arch: Architecture, of: str, layer: int, point: int) -> list[Source]:
    """The sources into which the stream, or the output of an MLP, is split, and its rest."""
    label = f"{'M' if of == 'mlp' else 'L'}{layer}"
    rest = Symbol("rest", label, Index(_CONTEXT, False, point, mlp=True), _model(point, mlp=True))
    return [*_own(arch, of, layer, point), Source(rest.text, (Factor(rest),))]


def _position_symbol(space: Space, context: Space) -> Symbol:
    return Symbol("P", "", Index(context, False, 0), Index(space, False, 0))


def mlp_readout(arch: Architecture, layer: int) -> Readout:
    """The two sides of a bilinear MLP, read by ``W_in`` and by ``W_gate``: the stream, or that before the heads.

    >>> from symcircuits.core.architecture import transformer
    >>> [len(side) for side in mlp_readout(transformer((1,), mlps=True, bilinear=True), 0).sides]
    [3, 3]
    """
    program, point = _before_mlp(arch, layer)
    read = norm(arch, f"M{layer}" if arch.norm else "", point)
    sides = []
    for kind in ("in", "gate"):
        hidden = Index(Space("mlp", f"L{layer}"))
        col = Index(read.model, True, point, _within(arch, f"M{layer}"))
        w, more = Symbol(f"W_{kind}", f"L{layer}", hidden, col), tuple[Source, ...]()
        if f"b_{kind}[L{layer}]" in arch.biases:
            more = (Source(f"b_{kind}[L{layer}]", _bias(f"b_{kind}", f"L{layer}", hidden, read.context)),)
        sides.append((*program, _reading(read, w, more)))
    return Readout(arch, f"mlp:L{layer}", tuple(sides))


def _there(arch: Architecture, multiplier: str) -> tuple[str, ...]:
    """That multiplier, if the architecture has it."""
    return (multiplier,) if multiplier in arch.multipliers else ()


def _before_mlp(arch: Architecture, layer: int) -> tuple[Program, int]:
    """The program of the stream that a layer's MLP reads, and its point."""
    program = stream_program(arch, layer)
    return (program, layer) if arch.parallel else ((*program, _block(arch, layer, whole=False)), layer + 1)


def _block(arch: Architecture, layer: int, whole: bool = True) -> Layer:
    """One layer: its heads, and the sources that it adds (biases, also inside its heads, and its MLP's output).

    ``whole``: including what comes after the heads, the MLP and added sources.
    """
    branches, sources = [], []
    read, r = norm(arch, arch.norm_label(layer), layer), _there(arch, f"r[L{layer}]")
    for head in arch.layer_heads(layer):
        a, shared = Factor(pattern(head, read.context)), arch.key_value(head)
        w_v, w_o = weight(arch, "W_V", head).T, weight(arch, "W_O", head).T
        branches.append(Branch(head, (a, *read.left), (*read.right, w_v, w_o), r))
        if read.bias:
            sources.append(Source(f"b_N[L{layer}]", read.bias, (a,), (w_v, w_o), head, scales=r))
        if f"b_V[{shared}]" in arch.biases:
            core = _bias("b_V", shared, Index(Space("ov", shared)), read.context)
            sources.append(Source(f"b_V[{shared}]", core, (a,), (w_o,), head, scales=r))
    if f"b_O[L{layer}]" in arch.biases:
        sources.append(Source(f"b_O[L{layer}]", _bias("b_O", f"L{layer}", _model(layer + 1)), scales=r))
    if arch.parts_of("mlp", layer) and f"r[M{layer}]" in arch.multipliers:
        raise ValueError(
            f"the output of the MLP of layer {layer} has a multiplier, so it cannot be split into sources yet"
        )
    if whole and arch.parts_of("mlp", layer):
        sources += _split(arch, "mlp", layer, layer + 1)
    elif whole and layer in arch.mlps:
        sides = Index(_CONTEXT, False, layer + 1, mlp=True), _model(layer + 1, mlp=True)
        output = Symbol("mlp", f"L{layer}", *sides)
        sources.append(Source(output.text, (Factor(output),), scales=_there(arch, f"r[M{layer}]")))
    sources += _own(arch, "added", layer + 1, layer + 1) if whole else []
    return Layer(tuple(branches), tuple(sources))


def _reading(read: Norm, w: Symbol, more: tuple[Source, ...], scales: tuple[str, ...] = ()) -> Layer:
    """The last layer of a program: ``W^T`` reads the stream through a norm; further sources may be added."""
    sources: tuple[Source, ...] = ()
    if read.bias:
        sources = (Source(read.bias[-1].symbol.text, read.bias, (), (w.T,), scales=scales),)
    return Layer((Branch(None, read.left, (*read.right, w.T), scales),), (*sources, *more), skip=False)


def _side_program(arch: Architecture, head: Head, side: str) -> Program:
    """One side of a head's scores: the stream it reads, the position, then ``W_Q`` and ``b_Q`` (or K)."""
    program = stream_program(arch, head.layer)
    read, w = norm(arch, arch.norm_label(head.layer), head.layer), weight(arch, f"W_{side}", head)
    more: list[Source] = []
    if arch.positions == "shortformer":
        position = _position_symbol(w.col.space, read.context)
        if read.label:  # added to the output of the norm
            more.append(Source("pos", (Factor(position),), (), (w.T,)))
        else:
            program += (Layer((), (Source("pos", (Factor(position),)),)),)
    bias = f"b_{side}[{w.label}]"
    if bias in arch.biases:
        core = _bias(f"b_{side}", w.label, Index(w.row.space, side == "K"), read.context)
        more.append(Source(bias, core))
    last = (_qk_norm(arch, head, side, read.context),) if arch.qk_norm else ()
    return (*program, _reading(read, w, tuple(more)), *last)


def _read_by(arch: Architecture, reading: Reading) -> Readout:
    """An attached readout: ``X probe^T``, or ``D X C diag(gain) probe^T + 1 b_N^T probe^T`` through a norm.

    Through the final norm applied elsewhere it is the same, with the ``D`` of that place.
    """
    point, program = reading.layer, stream_program(arch, reading.layer)
    if reading.at == "mlp":
        program, point = _before_mlp(arch, reading.layer)
    read = norm(arch, reading.norm, point) if reading.norm else Norm("")
    row = Index(Space("readout", reading.name))
    mlp = reading.at == "mlp" and _within(arch, f"M{reading.layer}")
    probe = Symbol(reading.name, "", row, Index(read.model, True, point, mlp), own="read")
    return Readout(arch, f"readout:{reading.name}", ((*program, _reading(read, probe, ())),))


def readout(arch: Architecture, target: str) -> Readout:
    """The readout of that name: ``"logits"``, ``"stream"``, ``"scores:L1H0"``, ``"readout:probe"``; else ValueError.

    >>> from symcircuits.core.architecture import attention_only
    >>> len(readout(attention_only((3, 3)), "scores:L1H0").sides)
    2
    """
    kind, _, which = target.partition(":") if isinstance(target, str) else ("", "", "")
    if target == "stream":
        return Readout(arch, target, (stream_program(arch, arch.n_layers),))
    if target == "logits":
        if not arch.unembed:
            raise ValueError("this model has no unembedding, so it has no logits; expand the stream instead")
        read = norm(arch, FINAL, arch.n_layers)
        w_u = Symbol("W_U", "", Index(Space("vocab_out")), Index(read.model, True, arch.n_layers))
        more: tuple[Source, ...] = ()
        m_u = _there(arch, "m_U")
        if "b_U" in arch.biases:
            more = (Source("b_U", _bias("b_U", "", Index(Space("vocab_out")), read.context), scales=m_u),)
        return Readout(arch, target, ((*stream_program(arch, arch.n_layers), _reading(read, w_u, more, m_u)),))
    if kind == "scores" and which:
        head = arch.head(which)
        sides = (_side_program(arch, head, "Q"), _side_program(arch, head, "K"))
        return Readout(arch, f"scores:{head}", sides, head.label if arch.scale else "")
    if kind == "readout" and which:
        return _read_by(arch, arch.reading(which))
    own = "".join(f', "readout:{r.name}"' for r in arch.readings)
    what = brief(target)
    raise ValueError(f'unknown target {what}; the targets are "logits", "stream" and "scores:L1H0" (any head){own}')
