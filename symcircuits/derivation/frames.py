"""What a derivation is written in: every head by its label, or one generic head a layer under a sum.

A :class:`Frame` gives the builders of steps the same questions to ask in both forms: the sum over the heads of a
layer, the terms, the architectures at which a claim is checked. The generic form walks an architecture with one
head a layer, whose label is ``h_1``, ``h_2``, ... (``q_1`` on the query side and ``k_1`` on the key side of
scores), so that both forms come from one kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from symcircuits.core.architecture import FINAL, Architecture, Head, as_head
from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.core.rules import score_sides
from symcircuits.core.text import setting, shown
from symcircuits.core.words import Factor, Word, is_multiplier, scalar_order
from symcircuits.derivation.expressions import relabelled, times, wrap
from symcircuits.derivation.nodes import Expr, HeadCount, SumOver

__all__ = ["COMPOSITIONS", "MAX_FAMILIES", "MAX_TERMS", "Frame", "make_frame"]

COMPOSITIONS = ("none", "V", "Q", "K", "QK")  # in the order in which terms are printed

MAX_TERMS = 2_000
MAX_FAMILIES = 1_024
_INSTANCE_TERMS = 600  # a generic claim is checked at head counts with about this many terms at most
# Head counts at which generic claims are checked, repeated over the layers: none, one, equal, unequal; at most six.
_PATTERNS = ((0,), (1,), (2, 3), (3, 0), (0, 2, 1), (1, 0), (0, 1), (2, *(1,) * 9))
_GROUPED = ((4,), (4, 1))  # with groups also so many heads: two groups of two
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

    def grouped(self, layer: int) -> bool:
        """Whether heads of a layer share their keys and values."""
        groups = self.architecture.groups
        return groups is not None and groups[layer] != self.architecture.heads[layer]

    def _names(self, side: str) -> dict[str, str]:
        return {Head(layer, 0).label: self.index(layer, side) for layer in range(self.depth)} if self.generic else {}

    def _shared(self, side: str) -> dict[str, str]:
        """The names of what a generic head's keys and values have: its own, or that of its group, ``G(h_1)``."""
        names = self._names(side)
        return {h: f"G({name})" if self.grouped(as_head(h).layer) else name for h, name in names.items()}

    def named(self, factors: tuple[Factor, ...], side: str = "") -> tuple[Factor, ...]:
        """Factors of the walked architecture under the names of this form."""
        return relabelled(factors, self._names(side), self._shared(side))

    def named_for(self, factors: tuple[Factor, ...], head: Head, name: str) -> tuple[Factor, ...]:
        """Factors of one head of the walked architecture as those of any head of that name."""
        label = self.walked.key_value(head)
        shared = f"G({name})" if self.architecture.groups is not None else name
        return relabelled(factors, {head.label: name}, {label: shared})

    @cached_property
    def norms(self) -> tuple[str, ...]:
        """The labels of the norms that the target goes through."""
        if not self.architecture.norm:
            return ()
        last = {"logits": (FINAL,), "stream": ()}.get(self.target, (f"L{self.depth}",))
        return (*(f"L{layer}" for layer in range(self.depth)), *last)

    @cached_property
    def gains(self) -> tuple[str, ...]:
        """Those of them that have a gain."""
        return tuple(label for label in self.norms if label in self.architecture.gains)

    @cached_property
    def mlps(self) -> tuple[int, ...]:
        """The layers whose MLPs are sources of the target."""
        return tuple(layer for layer in range(self.depth) if layer in self.architecture.mlps)

    def over_heads(self, layer: int, body: Expr, side: str = "") -> Expr:
        """The body, which speaks of the generic head of a layer, under the sum over that layer's heads."""
        return SumOver(self.index(layer, side), layer, body) if self.generic else body

    @cached_property
    def terms(self) -> tuple[tuple[Term, Expr], ...]:
        """Every term of the expansion with its expression: a word, or a word under sums over its heads.

        As in the enumeration, but for scores by composition type first, as they are collected: none, Q, K, QK.
        """
        found = sorted(self.expansion, key=lambda term: COMPOSITIONS.index(term.composition) if self.head else 0)
        return tuple((term, self._expression(term)) for term in found)

    def _expression(self, term: Term) -> Expr:
        word = term.word
        if not self.generic:
            return word
        sides = ("query", "key") if len(term.paths) == 2 else ("",)
        # The query side of a score ends where the head's own query/key space begins.
        cut = len(score_sides(word)[0].factors) if self.head is not None else len(word.factors)
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
            source = self._source(path.source.name, side)
            shown.append(" -> ".join([source, *(names.get(h.label, h.label) for h in path.heads)]))
        return " | ".join(shown)

    def _source(self, name: str, side: str = "") -> str:
        """The name of a source under the names of this form: ``b_V[h_1]``."""
        names = self._shared(side) if name[:3] in ("b_V", "b_K") else self._names(side)
        kind, bracket, label = name.rstrip("]").partition("[")
        return f"{kind}[{names.get(label, label)}]" if bracket else name

    def count(self, term: Term) -> Expr:
        """How many terms a generic term stands for: a product of head counts."""
        layers = sorted(h.layer for path in term.paths for h in path.heads)
        return times([HeadCount(layer) for layer in layers])

    @cached_property
    def biases(self) -> tuple[str, ...]:
        """The biases that occur, under the names of this form: ``b_V[h_1]`` is one that every head of layer 1 has."""
        return tuple(dict.fromkeys(self._source(s.name) for s in self.expansion.sources if s.is_bias))

    @cached_property
    def letters(self) -> int:
        """Number of letters of the longest word."""
        return max((len(term.word.factors) for term, _ in self.terms), default=1)

    @property
    def turned(self) -> bool:
        """Whether rotary positions turn the queries and keys that are derived."""
        return self.head is not None and self.architecture.positions == "rotary"

    @property
    def alibi(self) -> bool:
        """Whether ALiBi adds to what is derived."""
        return self.head is not None and self.architecture.positions == "alibi"

    @property
    def normed(self) -> bool:
        """Whether the queries and keys that are derived go through a norm."""
        return self.head is not None and self.architecture.qk_norm

    @cached_property
    def scalars(self) -> int:
        """Number of scalars of the word that has most."""
        return max((len(term.word.scales) for term, _ in self.terms), default=0)

    @cached_property
    def multipliers(self) -> tuple[str, ...]:
        """The multipliers that occur."""
        found = {s for term, _ in self.terms for s in term.word.scales if is_multiplier(s)}
        return tuple(sorted(found, key=scalar_order))

    @cached_property
    def instances(self) -> tuple[Architecture, ...]:
        """The architectures at which every claim is checked."""
        if not self.generic:
            return (self.architecture,)
        if self.depth == 0:
            return (self.walked,)
        limit = max(_INSTANCE_TERMS, 2 * self.expansion.count)
        chosen: dict[tuple[int, ...], Architecture] = {}
        patterns = (*(_GROUPED if any(map(self.grouped, range(self.depth))) else ()), *_PATTERNS)
        given = () if self.architecture.symbolic else (self.architecture.heads[: self.depth],)
        for pattern in (*given, *patterns):
            counts = tuple(pattern[layer % len(pattern)] for layer in range(self.depth))
            sources = max(1, len(self.expansion.sources))
            size = (prod(1 + n for n in counts) * sources) ** (2 if self.head else 1)
            if counts not in chosen and (size <= limit or set(counts) <= {0, 1}):
                chosen[counts] = self.with_heads(counts)
        return tuple(chosen.values())[:_INSTANCES]

    def with_heads(self, counts: tuple[int, ...]) -> Architecture:
        """The walked architecture with other numbers of heads; a bias that the generic head has, every head has."""
        w = self.walked
        heads = counts + w.heads[self.depth :]
        groups = self.architecture.groups
        if groups is not None:
            groups = tuple(self._groups(layer, n) for layer, n in enumerate(counts)) + groups[self.depth :]
        found = replace(w, heads=heads, groups=groups)
        names = set()
        for bias in w.biases:
            kind, layer = bias.partition("[")[0], _layer_of(bias)
            if layer is None or layer >= self.depth:
                names.add(bias)
            else:
                names |= {f"{kind}[{label}]" for label in found.key_values(layer)}
        return replace(found, biases=frozenset(names))

    def _groups(self, layer: int, n: int) -> int:
        """A number of groups for n heads of a layer: as given, or as many as there can be of heads that share."""
        given = self.architecture.groups
        if given is None or not self.grouped(layer):
            return n
        if n == self.architecture.heads[layer]:
            return given[layer]
        return next((g for g in range(n // 2, 0, -1) if n % g == 0), n)


def make_frame(arch: Architecture, target: str, form: str) -> Frame:
    """The frame of a derivation; ValueError where there is too much to print, with the number."""
    if form not in ("enumerated", "generic"):
        raise ValueError(f'form must be "enumerated" or "generic", not {shown(form)}')
    if arch.symbolic and form == "enumerated":
        raise ValueError(
            "the enumerated form lists heads, and their numbers are symbols: "
            f"use {setting('form', 'generic')}, or give numbers (architecture.at)"
        )
    asked: Any = expand(arch, target)
    described = arch
    if arch.symbolic:  # families of terms: those of one head a layer
        asked, described = asked.generic, asked.generic.architecture
    target = asked.target
    depth = arch.n_layers if asked.readout.head is None else asked.readout.head.layer
    if form == "enumerated":
        if asked.count > MAX_TERMS:
            raise ValueError(
                f"the enumerated form would print {asked.count:,} terms, more than {MAX_TERMS:,}; "
                f"use the generic form ({setting('form', 'generic')}), or derive a smaller model"
            )
        return Frame(arch, target, form, arch, depth)
    families = 2**depth if asked.readout.head is None else 4**depth
    if families > MAX_FAMILIES:
        raise ValueError(
            f"the generic form would print {families:,} families, more than {MAX_FAMILIES:,}: one for every set of "
            "layers" + (" on each side" if asked.readout.head else "") + "; derive a model with fewer layers"
        )
    return Frame(arch, target, form, _generic(described, depth), depth)


def _generic(arch: Architecture, depth: int) -> Architecture:
    """One generic head in each of the first ``depth`` layers; the others as they are.

    Of the biases of those heads only ``b_V`` occurs in what is written to the stream.
    """
    heads = (1,) * depth + arch.heads[depth:]
    groups = None if arch.groups is None else (1,) * depth + arch.groups[depth:]
    names = {b for b in arch.biases if (layer := _layer_of(b)) is None or layer >= depth}
    names |= {f"b_V[{Head(layer, 0)}]" for layer in range(depth) if _value_bias(arch, layer)}
    return replace(arch, heads=heads, groups=None if groups == heads else groups, biases=frozenset(names))


def _value_bias(arch: Architecture, layer: int) -> bool:
    """Whether the generic head of a layer has ``b_V``: as its heads do, or where it has none all the others."""
    heads = arch.layer_heads(layer)
    have = {f"b_V[{arch.key_value(h)}]" in arch.biases for h in heads or arch.all_heads}
    if len(have) == 2:
        fault = (
            f"some heads of layer {layer} have b_V and some have not" if heads else
            f"layer {layer} has no heads, and elsewhere some heads have b_V and some have not"
        )  # fmt: skip
        use = setting("form", "enumerated")
        raise ValueError(f"the generic form needs one kind of head per layer, but {fault}; use {use}")
    return True in have


def _layer_of(bias: str) -> int | None:
    """The layer of the head, or group of heads, that a bias belongs to; None of other biases."""
    found = re.search(r"\[L(\d+)[HG]", bias)
    return int(found[1]) if found else None
