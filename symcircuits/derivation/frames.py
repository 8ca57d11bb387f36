"""What a derivation is written in: every head by its label, or one generic head a layer under a sum.

A :class:`Frame` gives the builders of steps the same questions to ask in both forms: the sum over the heads of a
layer, the terms, the architectures at which a claim is checked. The generic form walks an architecture with one
head a layer, whose label is ``h_1``, ``h_2``, ... (``q_1`` on the query side and ``k_1`` on the key side of
scores), so that both forms come from one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from symcircuits.algebra import Factor, Word
from symcircuits.architecture import Architecture, Head, attention_only
from symcircuits.derivation.expressions import Expr, HeadCount, SumOver, relabelled, times, wrap
from symcircuits.expansion import Expansion, Term, expand

__all__ = ["MAX_FAMILIES", "MAX_TERMS", "Frame", "make_frame"]

MAX_TERMS = 2_000
MAX_FAMILIES = 1_024
_INSTANCE_TERMS = 600  # a generic claim is checked at head counts with about this many terms at most
# Head counts at which generic claims are checked, repeated over the layers: none, one, equal, unequal; at most six.
_PATTERNS = ((0,), (1,), (2, 3), (3, 0), (0, 2, 1), (1, 0), (0, 1), (2, *(1,) * 9))
_INSTANCES = 6


@dataclass(frozen=True)
class Frame:
    """One derivation's architecture, target and form.

    ``walked`` is the architecture whose terms are listed: the given one, or one generic head a layer.
    ``depth`` is the number of layers that the target sees.
    """

    architecture: Architecture
    target: str
    form: str
    walked: Architecture
    depth: int

    @property
    def generic(self) -> bool:
        """Whether heads are generic, under sums."""
        return self.form == "generic"

    @property
    def head(self) -> Head | None:
        """The head whose scores are derived."""
        return self.expansion.readout.head

    @cached_property
    def expansion(self) -> Expansion:
        """The terms (families, in the generic form) as the kernel enumerates them."""
        return expand(self.walked, self.target)

    @cached_property
    def plain(self) -> bool:
        """Whether the token embedding is the only source."""
        return [s.name for s in self.expansion.sources] == ["embed"]

    def index(self, layer: int, side: str = "") -> str:
        """The generic head of a layer: ``h_1``; ``q_1`` and ``k_1`` on the sides of scores."""
        letter = {"query": "q", "key": "k"}.get(side, "h") if self.head is not None else "h"
        return f"{letter}_{layer + 1}"

    def _names(self, side: str) -> dict[str, str]:
        return {Head(layer, 0).label: self.index(layer, side) for layer in range(self.depth)} if self.generic else {}

    def named(self, factors: tuple[Factor, ...], side: str = "") -> tuple[Factor, ...]:
        """Factors of the walked architecture under the names of this form."""
        return relabelled(factors, self._names(side))

    def over_heads(self, layer: int, body: Expr, side: str = "") -> Expr:
        """The body, which speaks of the generic head of a layer, under the sum over that layer's heads."""
        return SumOver(self.index(layer, side), layer, body) if self.generic else body

    @cached_property
    def terms(self) -> tuple[tuple[Term, Expr], ...]:
        """Every term of the expansion with its expression: a word, or a word under sums over its heads."""
        return tuple((term, self._expression(term)) for term in self.expansion)

    def _expression(self, term: Term) -> Expr:
        word = term.word
        if not self.generic:
            return word
        sides = ("query", "key") if len(term.paths) == 2 else ("",)
        # The query side of a score ends where the head's own query/key space begins.
        cut = next((i + 1 for i, f in enumerate(word.factors[:-1]) if f.col.space.kind == "qk"), len(word.factors))
        factors = self.named(word.factors[:cut], sides[0]) + self.named(word.factors[cut:], sides[-1])
        indices = tuple(
            (self.index(h.layer, side), h.layer)
            for side, path in zip(sides, term.paths, strict=True)
            for h in reversed(path.heads)
        )
        return wrap(Word(factors, word.scales), indices)

    def label(self, term: Term) -> str:
        """A term's label under the names of this form: ``embed -> h_1 -> h_2``."""
        sides = ("query", "key") if len(term.paths) == 2 else ("",)
        shown = []
        for side, path in zip(sides, term.paths, strict=True):
            names = self._names(side)
            source = path.source.name
            for label, name in names.items():
                source = source.replace(f"[{label}]", f"[{name}]")
            shown.append(" -> ".join([source, *(names.get(h.label, h.label) for h in path.heads)]))
        return " | ".join(shown)

    def count(self, term: Term) -> Expr:
        """How many terms a generic term stands for: a product of head counts."""
        layers = sorted(h.layer for path in term.paths for h in path.heads)
        return times([HeadCount(layer) for layer in layers])

    @cached_property
    def biases(self) -> tuple[str, ...]:
        """The biases that occur, under the names of this form: ``b_V[h_1]`` is one that every head of layer 1 has."""
        names = {f"[{label}]": f"[{name}]" for label, name in self._names("").items()}
        found = [s.name.partition("[") for s in self.expansion.sources if s.is_bias]
        return tuple(kind + names.get(bracket + label, bracket + label) for kind, bracket, label in found)

    @cached_property
    def letters(self) -> int:
        """Number of letters of the longest word."""
        return max((len(term.word.factors) for term, _ in self.terms), default=1)

    @cached_property
    def instances(self) -> tuple[Architecture, ...]:
        """The architectures at which every claim is checked."""
        if not self.generic:
            return (self.architecture,)
        if self.depth == 0:
            return (self.walked,)
        limit = max(_INSTANCE_TERMS, 2 * self.expansion.count)
        chosen: dict[tuple[int, ...], Architecture] = {}
        for pattern in (self.architecture.heads[: self.depth], *_PATTERNS):
            counts = tuple(pattern[layer % len(pattern)] for layer in range(self.depth))
            sources = max(1, len(self.expansion.sources))
            size = (prod(1 + n for n in counts) * sources) ** (2 if self.head else 1)
            if counts not in chosen and (size <= limit or set(counts) <= {0, 1}):
                chosen[counts] = self._with_heads(counts)
        return tuple(chosen.values())[:_INSTANCES]

    def _with_heads(self, counts: tuple[int, ...]) -> Architecture:
        """The walked architecture with other numbers of heads; a bias that the generic head has, every head has."""
        w = self.walked
        heads = counts + w.heads[self.depth :]
        names = set()
        for bias in w.biases:
            kind, _, label = bias.rstrip("]").partition("[")
            layer = int(label[1 : label.index("H")]) if "H" in label else None
            if layer is None or layer >= self.depth:
                names.add(bias)
            else:
                names |= {f"{kind}[{Head(layer, i)}]" for i in range(counts[layer])}
        return attention_only(heads, w.positions, names, scale=w.scale, causal=w.causal, unembed=w.unembed)


def make_frame(arch: Architecture, target: str, form: str) -> Frame:
    """The frame of a derivation; ValueError where there is too much to print, with the number."""
    if form not in ("enumerated", "generic"):
        raise ValueError(f'form must be "enumerated" or "generic", not {form!r}')
    asked = expand(arch, target)
    _refuse_features(arch)
    target = asked.target
    depth = arch.n_layers if asked.readout.head is None else asked.readout.head.layer
    if form == "enumerated":
        if asked.count > MAX_TERMS:
            raise ValueError(
                f"the enumerated form would print {asked.count:,} terms, more than {MAX_TERMS:,}; "
                'use the generic form (form="generic", or --form generic), or derive a smaller model'
            )
        return Frame(arch, target, form, arch, depth)
    families = 2**depth if asked.readout.head is None else 4**depth
    if families > MAX_FAMILIES:
        raise ValueError(
            f"the generic form would print {families:,} families, more than {MAX_FAMILIES:,}: one for every set of "
            "layers" + (" on each side" if asked.readout.head else "") + "; derive a model with fewer layers"
        )
    return Frame(arch, target, form, _generic(arch, depth), depth)


def _generic(arch: Architecture, depth: int) -> Architecture:
    """One generic head in each of the first ``depth`` layers; the others as they are.

    Of the biases of those heads only ``b_V`` occurs in what is written to the stream.
    """
    heads = (1,) * depth + arch.heads[depth:]
    names = {b for b in arch.biases if not _of_lower_head(b, depth)}
    names |= {f"b_V[{Head(layer, 0)}]" for layer in range(depth) if _value_bias(arch, layer)}
    return attention_only(heads, arch.positions, names, scale=arch.scale, causal=arch.causal, unembed=arch.unembed)


def _refuse_features(architecture: Architecture) -> None:
    """Norms, MLPs and key/value groups are expanded and verified, but their derivations are not written yet."""
    there = ["norms"] if architecture.norm else []
    there += ["MLPs"] if architecture.mlps else []
    there += ["key/value groups"] if architecture.groups else []
    there += [f"{architecture.positions} positions"] if architecture.positions in ("rotary", "alibi") else []
    there += ["normed queries and keys"] if architecture.qk_norm else []
    if there:
        raise ValueError(
            f"a derivation with {', '.join(there)} is not built yet; expand(...) and verify(...) have them"
        )


def _value_bias(arch: Architecture, layer: int) -> bool:
    """Whether the generic head of a layer has ``b_V``: as its heads do, or where it has none all the others."""
    heads = arch.layer_heads(layer)
    have = {f"b_V[{h}]" in arch.biases for h in heads or arch.all_heads}
    if len(have) == 2:
        fault = (
            f"some heads of layer {layer} have b_V and some have not" if heads else
            f"layer {layer} has no heads, and elsewhere some heads have b_V and some have not"
        )  # fmt: skip
        raise ValueError(f'the generic form needs one kind of head a layer, but {fault}; use form="enumerated"')
    return True in have


def _of_lower_head(bias: str, depth: int) -> bool:
    label = bias.rstrip("]").partition("[")[2]
    return "H" in label and int(label[1 : label.index("H")]) < depth
