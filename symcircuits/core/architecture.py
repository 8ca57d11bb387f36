"""Descriptions of architectures: which heads, norms, MLPs, positions and biases a transformer has.

This module holds the features; :mod:`symcircuits.core.programs` says what each does to the algebra, and
:mod:`symcircuits.model` computes it with real numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypedDict, Unpack

from symcircuits.core.attachments import FINAL, Part, Reading, check_attachments
from symcircuits.core.names import fields_html
from symcircuits.core.text import amount, as_whole, brief, flag, keywords, many, not_taken, shown, whole
from symcircuits.core.words import scalar_order

__all__ = [
    "FINAL", "Architecture", "AttentionFeatures", "Described", "Features", "Head", "architecture_of", "as_head",
    "attention_only", "possible_biases", "possible_multipliers", "scalar_names", "transformer",
]  # fmt: skip

POSITIONS = (None, "standard", "shortformer", "rotary", "alibi")
NORMS = (None, "LN", "RMS")
MAX_HEADS = 100_000  # a description lists its heads one by one
# The kinds of bias that are sources of their own; those inside an MLP are part of what it writes.
SOURCE_BIASES = ("b_N", "b_V", "b_O", "b_Q", "b_K", "b_U")
BIAS_KINDS = (*SOURCE_BIASES, "b_in", "b_gate", "b_out")
# The order of sources within one chain of heads, stable across versions.
SOURCE_ORDER = ("embed", "pos", "mlp", *SOURCE_BIASES)


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
    """Read a head from ``"L1H4"``, ``"1.4"`` or ``(1, 4)``; raises ValueError on anything else.

    >>> as_head("1.4") == as_head((1, 4)) == as_head("L1H4")
    True
    """
    if isinstance(head, str):
        if (found := _named(head)) is not None:
            return found
    elif isinstance(head, tuple) and len(head) == 2:
        numbers = [number for number in map(as_whole, head) if number is not None and 0 <= number < 10**9]
        if len(numbers) == 2:
            return Head(*numbers)
    raise ValueError(f"{shown(head)} is not the name of a head; write L1H4, 1.4 or (1, 4), counted from 0")


@lru_cache(maxsize=1024)
def _named(label: str) -> Head | None:
    found = re.fullmatch(r"\s*(?:[Ll]([0-9]{1,9})[Hh]([0-9]{1,9})|([0-9]{1,9})\.([0-9]{1,9}))\s*", label)
    if not found:
        return None
    layer, index = (int(g) for g in found.groups() if g is not None)
    return Head(layer, index)


@dataclass(frozen=True, slots=True, repr=False)
class Architecture:
    """The architecture of a transformer, as the algebra needs it; see :func:`attention_only`, :func:`transformer`.

    ``heads``: the number of heads of each layer, an integer or a SymPy integer symbol. With symbols the architecture
    describes one head of each such layer, which stands for any number of them (``biases`` names the first head's).
    ``biases``: the names of the biases present; ``gains``: the labels of the norms that have a gain; ``mlps``: the
    layers that have an MLP; ``groups``: the number of key/value heads of each layer (None: one per head);
    ``multipliers``: the names of the multipliers present; ``capped``: whether a soft cap acts on scores (taken from
    the settings of a :class:`~symcircuits.Model`).

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
    norm: str | None = None
    gains: frozenset[str] = frozenset()
    mlps: frozenset[int] = frozenset()
    gated: bool = False
    parallel: bool = False
    groups: tuple[int, ...] | None = None
    qk_norm: bool = False
    softmax: bool = True
    bilinear: bool = False
    multipliers: frozenset[str] = frozenset()
    readings: tuple[Reading, ...] = ()
    parts: tuple[Part, ...] = ()
    capped: bool = field(default=False, compare=False)  # the terms are the same

    @property
    def shift_invariant(self) -> bool:
        """Whether softmax ignores what is the same for every key; False with a soft cap and without softmax.

        >>> [attention_only((1,), capped=capped).shift_invariant for capped in (False, True)]
        [True, False]
        """
        return self.softmax and not self.capped

    @property
    def polynomial(self) -> bool:
        """Whether patterns or MLPs can be multiplied out as well (see ``expansion.unfrozen()``)."""
        return not self.softmax or self.bilinear

    @property
    def end(self) -> str:
        """The target at the end of the model: its logits, or its stream if it has no unembedding."""
        return "logits" if self.unembed else "stream"

    def targets(self, heads: Iterable[Head]) -> list[str]:
        """All targets: the end, the scores of these heads, and the readouts.

        >>> arch = attention_only((1, 2), unembed=False)
        >>> arch.targets(arch.layer_heads(1))
        ['stream', 'scores:L1H0', 'scores:L1H1']
        """
        return [self.end, *(f"scores:{h}" for h in heads), *(f"readout:{r.name}" for r in self.readings)]

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.heads)

    @property
    def symbolic(self) -> bool:
        """Whether the number of heads of a layer is a SymPy symbol or an expression of symbols."""
        return any(as_whole(n) is None for n in self.heads)

    def at(self, counts: Mapping[Any, int]) -> Architecture:
        """The architecture with numbers in place of symbols; a bias of one head of a layer is given to every head.

        ``counts`` maps symbols to numbers. Raises ValueError if a number of heads is still not a whole number.

        >>> from sympy import symbols
        >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
        >>> attention_only((H_1, H_2), biases=["b_V"]).at({H_1: 2, H_2: 1}) == attention_only((2, 1), biases=["b_V"])
        True
        """
        given: list[Any] = list(self.heads)  # anything but a number is a SymPy object, with subs
        heads = [n if as_whole(n) is not None else n.subs(counts) for n in given]
        for layer, n in enumerate(heads):
            if as_whole(n) is None or n < 0:
                raise ValueError(
                    f"layer {layer} has {brief(str(n))} heads: give a whole number, 0 or more, for every symbol"
                )
        return self.resized(_head_counts(heads))

    def generic(self, head: Head | None = None) -> Architecture:
        """One head in every layer, standing for all of them; in the layer of ``head``, as many as that head needs.

        Raises ValueError if some heads of a layer have a bias and some do not.
        """
        found = [1 if as_whole(n) is None or n else 0 for n in self.heads]
        if head is not None:
            found[head.layer] = max(found[head.layer], head.number + 1)
        return self.resized(tuple(found))

    def resized(self, heads: tuple[int, ...]) -> Architecture:
        """The same with other numbers of heads; a bias of one head of a layer is given to every head.

        Raises ValueError if some heads of a layer have a bias and some do not.

        >>> sorted(attention_only((1, 1), biases=["b_V"]).resized((1, 2)).biases)
        ['b_V[L0H0]', 'b_V[L1H0]', 'b_V[L1H1]']
        """
        names = set[str]()
        for name in self.biases:
            kind, _, label = name.rstrip("]").partition("[")
            layer, of_head, _ = label[1:].partition("H")
            if not of_head:
                names.add(name)
                continue
            count = self.heads[int(layer)]
            told = sum(other.startswith(f"{kind}[L{layer}H") for other in self.biases)
            if as_whole(count) is not None and told != count:
                raise ValueError(
                    f"some heads of layer {layer} have {kind} and some do not, so no head can stand for all"
                )
            names |= {f"{kind}[L{layer}H{i}]" for i in range(heads[int(layer)])}
        return replace(self, heads=heads, biases=frozenset(names))

    def layer_heads(self, layer: int) -> tuple[Head, ...]:
        """The heads of one layer (counted from 0); raises ValueError if their number is symbolic."""
        count = as_whole(self.heads[layer])
        if count is None:
            raise ValueError(_not_counted("listing heads", layer, self.heads[layer]))
        return tuple(Head(layer, i) for i in range(count))

    @property
    def all_heads(self) -> tuple[Head, ...]:
        """Every head, sorted by (layer, index)."""
        return tuple(h for layer in range(self.n_layers) for h in self.layer_heads(layer))

    def head(self, head: str | tuple[int, int]) -> Head:
        """The head with that name; raises ValueError, naming the heads there are, if it does not exist."""
        found = as_head(head)
        if found.layer >= self.n_layers:
            raise ValueError(
                f"there is no head {found}: the model has {amount(self.n_layers, 'layer')}, counted from 0"
            )
        count = as_whole(self.heads[found.layer])  # a symbolic one may be any
        if count is not None and found.number >= count:
            heads = amount(count, "head")
            raise ValueError(f"there is no head {found}: layer {found.layer} has {heads}, counted from 0")
        return found

    def key_value(self, head: Head) -> str:
        """The label shared by a head's keys and values: the head's own, or that of its group, ``L0G1``.

        Query head i of H uses key/value head floor(i / (H / H_kv)).
        """
        if self.groups is None or self.groups[head.layer] == self.heads[head.layer]:
            return head.label
        return f"L{head.layer}G{head.number * self.groups[head.layer] // self.heads[head.layer]}"

    def key_values(self, layer: int) -> tuple[str, ...]:
        """The labels of the key/value heads of a layer."""
        return tuple(dict.fromkeys(self.key_value(h) for h in self.layer_heads(layer)))

    def norm_label(self, layer: int) -> str:
        """The label of the norm that a layer's attention reads through; empty if there are no norms."""
        return f"L{layer}" if self.norm else ""

    @property
    def norm_labels(self) -> tuple[str, ...]:
        """The labels of all norms: ``L0`` before attention, ``M0`` before the MLP, ``final``."""
        if not self.norm:
            return ()
        layers = [f"L{layer}" for layer in range(self.n_layers)] + [f"M{layer}" for layer in sorted(self.mlps)]
        return tuple(layers + ([FINAL] if self.unembed else []))

    @property
    def scale_labels(self) -> tuple[str, ...]:
        """The labels of all ``1 / sigma`` of rows of the stream: one per norm, and one per readout of the final norm.

        >>> transformer((1,), norm="LN").attached(Reading("lens", 0, norm="finalL0")).scale_labels
        ('L0', 'final', 'finalL0')
        """
        return tuple(dict.fromkeys((*self.norm_labels, *(r.norm for r in self.readings if r.norm))))

    def some_heads(self, heads: str | tuple[int, int] | Iterable[str | tuple[int, int]]) -> tuple[Head, ...]:
        """One or more heads by name, sorted, each once; raises ValueError if one is unknown or none is given."""
        one = isinstance(heads, str) or (isinstance(heads, tuple) and all(hasattr(x, "__index__") for x in heads))
        several = isinstance(heads, Iterable) and not one
        found = {self.head(h) for h in (heads if several else [heads])}  # type: ignore[arg-type]
        if not found:
            raise ValueError("give one or more heads, e.g. L0H1, not an empty list")
        return tuple(sorted(found))

    def attached(self, *found: Reading | Part) -> Architecture:
        """This architecture with more attached readouts and sources; raises ValueError if they do not fit it.

        >>> arch = attention_only((2, 2)).attached(Reading("probe", 2), Part("feature 12", 1))
        >>> [r.name for r in arch.readings], arch.split, [p.name for p in arch.parts_of("stream", 1)]
        (['probe'], 1, ['feature 12'])
        """
        readings = (*self.readings, *(f for f in found if isinstance(f, Reading)))
        parts = (*self.parts, *(f for f in found if isinstance(f, Part)))
        check_attachments(readings, parts, self.n_layers, self.mlps, self.norm_labels)
        return replace(self, readings=readings, parts=parts)

    @property
    def attachments(self) -> tuple[Reading | Part, ...]:
        """All attached readouts and sources."""
        return (*self.readings, *self.parts)

    @property
    def split(self) -> int | None:
        """The point at which the stream is split into sources and the rest; None if it is not split."""
        return next((p.layer for p in self.parts if p.of == "stream"), None)

    def parts_of(self, of: str, layer: int) -> tuple[Part, ...]:
        """The sources of kind ``of`` at a layer (a point of the stream, or the layer of an MLP)."""
        return tuple(p for p in self.parts if (p.of, p.layer) == (of, layer))

    def reading(self, name: str) -> Reading:
        """The readout with that name; raises ValueError, naming the readouts there are, if it does not exist."""
        for found in self.readings:
            if found.name == name:
                return found
        known = ", ".join(r.name for r in self.readings)
        more = f"; the readouts: {known}" if known else ": none is attached to the model"
        raise ValueError(f"there is no readout {brief(name)}{more}")

    def __repr__(self) -> str:
        return f"<Architecture: {self}>"

    def _repr_html_(self) -> str:
        kind, *more = str(self).split(", ")
        heads = ", ".join(map(str, self.heads)) or "none"
        features = ", ".join(word for word in more if not word.startswith("heads ") and not word.isdigit())
        return fields_html(f"Architecture: {kind}", {"layers": self.n_layers, "heads": heads, "features": features})

    def __str__(self) -> str:
        heads = ",".join(map(str, self.heads)) or "none"
        extra = [f"key/value heads {','.join(map(str, self.groups))}"] if self.groups else []
        extra += [f"positions {self.positions}"] if self.positions else []
        extra += [f"{self.norm} norm" + ("" if self.gains else " without gain")] if self.norm else []
        extra += ["normed queries and keys"] if self.qk_norm else []
        extra += [] if self.softmax else ["no softmax"]
        extra += ["soft-capped scores"] if self.capped else []
        extra += [self._mlp_words()] if self.mlps else []
        extra += ["biases"] if self.biases else []
        extra += [self._multiplier_words()] if self.multipliers else []
        extra += [] if self.scale else ["no score scale"]
        extra += [] if self.causal else ["bidirectional"]
        extra += [] if self.unembed else ["no unembedding"]
        extra += [str(one) for one in self.attachments]
        return f"{'transformer' if self.mlps else 'attention-only'}, heads {heads}" + "".join(f", {e}" for e in extra)

    def _multiplier_words(self) -> str:
        possible = {*possible_multipliers(self)}
        if self.multipliers == possible:
            return "multipliers"
        layers = {m for m in possible if m[0] == "r"}
        names = sorted(self.multipliers, key=scalar_order)
        shown = dict.fromkeys("r" if m in layers and self.multipliers >= layers else m for m in names)
        return f"multipliers {' '.join(shown)}"

    def _mlp_words(self) -> str:
        where = "" if len(self.mlps) == self.n_layers else f" in layers {','.join(map(str, sorted(self.mlps)))}"
        kind = "bilinear " if self.bilinear else "gated " if self.gated else ""
        return kind + ("parallel " if self.parallel else "") + f"MLPs{where}"


class Described(Protocol):
    """An object with an architecture: a model, or arrays of other libraries."""

    @property
    def architecture(self) -> Architecture:
        """Its architecture."""
        ...


def architecture_of(call: str, subject: Architecture | Described, symbolic: bool = False) -> Architecture:
    """The architecture passed to a call, or that of the model passed to it; raises TypeError on anything else.

    ``symbolic``: numbers of heads may be symbols; otherwise symbols raise ValueError.

    >>> architecture_of("logits", attention_only((2, 2)))
    <Architecture: attention-only, heads 2,2>
    """
    found = getattr(subject, "architecture", subject)
    if not isinstance(found, Architecture):
        raise not_taken(call, subject, ["Architecture", "Model"])
    if not symbolic:
        for layer, n in enumerate(found.heads):
            if as_whole(n) is None:
                raise ValueError(_not_counted(call.partition("(")[0], layer, n))
    return found


def _not_counted(call: str, layer: int, n: Any) -> str:
    return f"{call} needs numbers of heads, and layer {layer} has {n}: give architecture.at({{{n}: 2, ...}})"


def possible_biases(architecture: Architecture) -> tuple[str, ...]:
    """The names of all biases that a model like this can have, in the order of sources.

    >>> possible_biases(attention_only((1,)))
    ('b_V[L0H0]', 'b_O[L0]', 'b_Q[L0H0]', 'b_K[L0H0]', 'b_U')
    """
    layers = range(architecture.n_layers)
    heads = [h.label for h in architecture.all_heads]
    shared = [label for layer in layers for label in architecture.key_values(layer)]
    names = [f"b_N[{label}]" for label in architecture.norm_labels if architecture.norm == "LN"]
    names += [f"b_V[{label}]" for label in shared] + [f"b_O[L{layer}]" for layer in layers]
    names += [f"b_Q[{h}]" for h in heads] + [f"b_K[{label}]" for label in shared]
    names += ["b_U"] if architecture.unembed else []
    kinds = ("b_in", "b_gate", "b_out") if architecture.gated else ("b_in", "b_out")
    return tuple(names + [f"{kind}[L{layer}]" for kind in kinds for layer in sorted(architecture.mlps)])


def possible_multipliers(architecture: Architecture) -> tuple[str, ...]:
    """The names of all multipliers that a model like this can have.

    ``m_E`` of the token embedding, ``r[L0]`` of the output of a layer's attention, ``r[M0]`` of the output of its MLP,
    ``m_U`` of the logits.

    >>> possible_multipliers(transformer((2, 2), mlps=[1]))
    ('m_E', 'r[L0]', 'r[L1]', 'r[M1]', 'm_U')
    """
    layers = range(architecture.n_layers)
    names = [f"r[L{layer}]" for layer in layers] + [f"r[M{layer}]" for layer in architecture.mlps]
    last = ["m_U"] if architecture.unembed else []
    return tuple(sorted(["m_E", *names, *last], key=scalar_order))


def scalar_names(architecture: Architecture) -> tuple[str, ...]:
    """The scalars of a model: the label of every head if scores carry a scale, and its multipliers.

    >>> scalar_names(attention_only((1,), multipliers=["m_E"]))
    ('L0H0', 'm_E')
    """
    scales = [head.label for head in architecture.all_heads] if architecture.scale else []
    return (*scales, *sorted(architecture.multipliers, key=scalar_order))


class AttentionFeatures(TypedDict, total=False):
    """The features of :func:`attention_only` besides heads, positions and biases, each with its default.

    - ``scale`` (True): scores carry a scale, one scalar per head. ``causal`` (True): a query sees itself and earlier
      tokens; otherwise attention is bidirectional. ``unembed`` (True): without it the stream is expanded.
    - ``norm`` (None): ``"LN"`` (centre, divide by the standard deviation) or ``"RMS"`` (divide by the root mean
      square), before every attention, every MLP and the unembedding. ``gains`` (True): which norms have a gain, by
      label (``L0``, ``M0``, ``final``); True for all, False for none (folded).
    - ``groups`` (None: one per head): the number of key/value heads of each layer, which divides its number of
      heads. ``qk_norm`` (False): every head applies an RMS norm, with the gain of its layer, to its queries and keys.
    - ``softmax`` (True): without it the pattern is the masked scores themselves, and expands with only the norms held
      fixed (``expansion.unfrozen()``). ``capped`` (False): a soft cap acts on the scores before softmax, which then
      depends on every term (taken from a model's settings).
    - ``multipliers`` (False): True for all, or the names (or kinds: ``"r"``) of the numbers that multiply the token
      embedding (``m_E``; never the position embedding), what the heads of a layer and its b_O add (``r[L0]``), what its
      MLP adds (``r[M0]``) and the logits (``m_U``).
    """

    scale: bool
    causal: bool
    unembed: bool
    norm: str | None
    gains: bool | Iterable[str]
    groups: Iterable[int] | None
    qk_norm: bool
    softmax: bool
    multipliers: bool | Iterable[str]
    capped: bool


class Features(AttentionFeatures, total=False):
    """The features of :func:`transformer`: those of :class:`AttentionFeatures`, and those of MLPs.

    ``mlps`` (False): the layers that have an MLP, True for all; the output of an MLP is a source of its own. ``gated``
    (False): MLPs have a gate; ``parallel`` (False): they read the same stream as attention; ``bilinear`` (False):
    they are gated without activation, ``((X W_in^T) * (X W_gate^T)) W_out^T``, and expand like scores without softmax.
    """

    mlps: bool | Iterable[int]
    gated: bool
    parallel: bool
    bilinear: bool


_DEFAULTS: Final[Features] = {
    "scale": True, "causal": True, "unembed": True, "norm": None, "gains": True, "groups": None, "qk_norm": False,
    "softmax": True, "multipliers": False, "capped": False, "mlps": False, "gated": False, "parallel": False,
    "bilinear": False,
}  # fmt: skip
_FLAGS: Final = ("scale", "causal", "unembed", "gated", "parallel", "qk_norm", "softmax", "bilinear", "capped")


def attention_only(
    heads: Iterable[int],
    positions: str | None = None,
    biases: bool | Iterable[str] = False,
    **features: Unpack[AttentionFeatures],
) -> Architecture:
    """Describe an attention-only transformer: heads per layer, position embedding, biases, features of attention.

    ``positions``: None, ``"standard"`` (a second source in the stream), ``"shortformer"`` (added to the input of
    queries and keys only), ``"rotary"`` (queries and keys are rotated: ``W_Q^T R_(j-i) W_K``) or ``"alibi"`` (a bias,
    which is not a path term, is added to scores). ``biases``: True for all, or the names (or kinds) of those present.
    ``features``: ``scale, causal, unembed, norm, gains, groups, qk_norm, softmax, multipliers, capped``, with the
    meanings and defaults of :class:`AttentionFeatures`. Raises ValueError on any other value, TypeError on an unknown
    feature. Source: paper, "Model Simplifications".

    >>> arch = attention_only(heads=(3, 3), scale=False)
    >>> arch.n_layers, [str(h) for h in arch.layer_heads(1)]
    (2, ['L1H0', 'L1H1', 'L1H2'])
    """
    for name in features:
        if name in _DEFAULTS and name not in AttentionFeatures.__annotations__:
            raise ValueError(
                f"an attention-only transformer has no MLPs, so {name} has no meaning: describe it with "
                "transformer(heads, mlps=True)"
            )
    keywords("attention_only", features, AttentionFeatures.__annotations__)
    return transformer(heads, positions, biases, **features)


def transformer(
    heads: Iterable[int],
    positions: str | None = None,
    biases: bool | Iterable[str] = False,
    **features: Unpack[Features],
) -> Architecture:
    """Describe a transformer: heads per layer, positions, biases, norms, MLPs, key/value groups.

    ``positions`` and ``biases`` as in :func:`attention_only`. ``features``: ``mlps, gated, parallel, bilinear`` and
    those of attention, with the meanings and defaults of :class:`Features` and :class:`AttentionFeatures`. Raises
    ValueError on any other value, TypeError on an unknown feature. Source: Ba et al. 2016 and Zhang and
    Sennrich 2019 for the norms, Ainslie et al. 2023 for groups, Pearce et al. 2024 for bilinear MLPs; the paper,
    "Handling Layer Normalization" and "MLP Layers".

    >>> str(transformer((2, 2), norm="LN", mlps=True))
    'transformer, heads 2,2, LN norm, MLPs'
    >>> transformer((2, 2), nrom="LN")
    Traceback (most recent call last):
    TypeError: transformer does not take 'nrom': did you mean 'norm'?
    """
    counts = _head_counts(heads)
    keywords("transformer", features, _DEFAULTS)
    if any(as_whole(n) is None for n in counts):
        if features.get("groups") is not None:
            raise ValueError("key/value groups need numbers of heads: give numbers, or no groups")
        described = transformer([1 if as_whole(n) is None else n for n in counts], positions, biases, **features)
        return replace(described, heads=counts)
    told: Features = {**_DEFAULTS, **features}
    _check_features(positions, told)
    layers = _mlp_layers(told["mlps"], len(counts))
    _check_together(positions, told, layers)
    plain = Architecture(
        counts, positions, scale=told["scale"], causal=told["causal"], unembed=told["unembed"], norm=told["norm"],
        mlps=layers, gated=told["gated"] or told["bilinear"], parallel=told["parallel"],
        groups=_groups(told["groups"], counts), qk_norm=told["qk_norm"], softmax=told["softmax"],
        bilinear=told["bilinear"], capped=told["capped"],
    )  # fmt: skip
    plain = replace(plain, multipliers=_multipliers(told["multipliers"], possible_multipliers(plain)))
    named = frozenset[str]() if biases is False else _biases(biases, possible_biases(plain))
    return replace(plain, biases=named, gains=_gains(told["gains"], plain))


def _check_features(positions: Any, features: Features) -> None:
    """Raise ValueError if a choice or a flag has an invalid value."""
    if positions not in POSITIONS:
        known = 'None, "standard", "shortformer", "rotary" or "alibi"'
        raise ValueError(f"positions must be {known}, not {shown(positions)}")
    if features["norm"] not in NORMS:
        raise ValueError(f'norm must be None, "LN" or "RMS", not {shown(features["norm"])}')
    values: dict[str, Any] = {**features}
    for name in _FLAGS:
        flag(name, values[name])


def _check_together(positions: str | None, features: Features, layers: frozenset[int]) -> None:
    """Raise ValueError if features contradict each other."""
    if not layers and (features["gated"] or features["parallel"] or features["bilinear"]):
        word = "bilinear" if features["bilinear"] else "gated" if features["gated"] else "parallel"
        raise ValueError(f"{word} describes MLPs, but there are none (see mlps)")
    if positions == "alibi" and not features["softmax"]:
        raise ValueError("ALiBi needs a softmax: what it adds to scores is not a path term")
    if features["capped"] and not features["softmax"]:
        raise ValueError("a soft cap on scores needs a softmax, but there is none")


def _gains(gains: bool | Iterable[str], plain: Architecture) -> frozenset[str]:
    possible = plain.norm_labels
    if isinstance(gains, bool):
        return frozenset(possible if gains else ())
    names = frozenset(_listed(gains, 'gains must be True, False or the labels of norms, e.g. "L0" or "final"'))
    for name in names:
        if name not in possible:
            known = ", ".join(possible) if possible else "none, because norm is None"
            raise ValueError(f"there is no norm {name!r} here; the norms are {known}")
    return names


def _mlp_layers(mlps: bool | Iterable[int], n_layers: int) -> frozenset[int]:
    if isinstance(mlps, bool):
        return frozenset(range(n_layers) if mlps else ())
    layers = _listed(mlps, "mlps must be True, False or the layers that have an MLP, e.g. [0, 1]")
    for layer in layers:
        number = as_whole(layer)
        if number is None or not 0 <= number < n_layers:
            raise ValueError(f"mlps lists layers of the model, 0 to {n_layers - 1}, not {shown(layer)}")
    return frozenset(int(layer) for layer in layers)


def _groups(groups: Iterable[int] | None, counts: tuple[int, ...]) -> tuple[int, ...] | None:
    if groups is None:
        return None
    found = _listed(groups, "groups must list the number of key/value heads of each layer, e.g. (2, 2)")
    if len(found) != len(counts):
        raise ValueError(f"key/value heads are listed for {amount(len(found), 'layer')}, but heads for {len(counts)}")
    for layer, (g, n) in enumerate(zip(found, counts, strict=True)):
        of_group = as_whole(g)
        if of_group is None or of_group < 0 or (n % of_group if of_group else n):
            raise ValueError(
                f"the number of key/value heads of layer {layer} must divide its {n} heads, not be {shown(g)}"
            )
    whole_groups = tuple(int(g) for g in found)
    return None if whole_groups == counts else whole_groups


def _listed(values: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, (str, bytes)):
        try:
            return tuple(values)
        except TypeError:
            pass
    raise ValueError(f"{what}, not {brief(values)}")


def _head_counts(heads: Iterable[int]) -> tuple[int, ...]:
    counts: list[int] = []
    for layer, n in enumerate(_listed(heads, "heads must list the number of heads of each layer, e.g. (3, 3)")):
        if getattr(n, "free_symbols", ()):
            _check_symbolic(layer, n)
            counts.append(n)
        else:
            counts.append(whole(f"the number of heads of layer {layer}", n, 0))
    total = sum(n for n in counts if as_whole(n) is not None)
    if total > MAX_HEADS:
        raise ValueError(f"{many(total)} heads are too many to list; the limit is {MAX_HEADS:,} in all layers")
    return tuple(counts)


def _check_symbolic(layer: int, n: Any) -> None:
    """Raise ValueError if a symbolic number of heads is not known to be an integer, or cannot be 0 or more."""
    if n.is_integer is not True:
        known = "is not known to be" if n.is_integer is None else "is not"
        raise ValueError(
            f"the number of heads of layer {layer}, {brief(str(n))}, {known} a whole number: make its symbols with "
            "sympy.symbols(..., integer=True, nonnegative=True)"
        )
    if n.is_negative:
        raise ValueError(f"the number of heads of layer {layer}, {brief(str(n))}, is negative")


def _biases(biases: bool | Iterable[str], possible: tuple[str, ...]) -> frozenset[str]:
    if isinstance(biases, bool):
        return frozenset(possible if biases else ())
    names: set[str] = set()
    what = "biases must be True, False or the names of those that are there, e.g. b_V or b_V[L0H1]"
    for name in [biases] if isinstance(biases, str) else _listed(biases, what):
        found = {p for p in possible if name in (p, p.partition("[")[0])}
        if not found and name not in BIAS_KINDS:
            kinds = dict.fromkeys(p.partition("[")[0] for p in possible) or ["b_O", "b_U"]
            raise ValueError(f"there is no bias {name!r} here; the kinds are {', '.join(kinds)}, e.g. b_V[L0H1]")
        names |= found
    return frozenset(names)


def _multipliers(multipliers: bool | Iterable[str], possible: tuple[str, ...]) -> frozenset[str]:
    if isinstance(multipliers, bool):
        return frozenset(possible if multipliers else ())
    names: set[str] = set()
    what = "multipliers must be True, False or the names of those that are there, e.g. m_E, r or r[L0]"
    for name in [multipliers] if isinstance(multipliers, str) else _listed(multipliers, what):
        found = {p for p in possible if name in (p, p.partition("[")[0])}
        if not found and name != "r":
            known = ", ".join(possible)
            raise ValueError(f"there is no multiplier {name!r} here; they are {known} (r: those of all layers)")
        names |= found
    return frozenset(names)
