"""The ranges of sums over heads and layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from symcircuits.checking.environment import Assigned, Environment
from symcircuits.checking.labels import Free, Labels
from symcircuits.checking.roles import split_indices
from symcircuits.checking.syntax import BigSum, Bound, Name, Node, nodes
from symcircuits.core.architecture import Head

__all__ = ["Ranges"]

_ALL_HEADS: Final = re.compile(r"|\^?H|heads?|allheads")
_HEADS_OF: Final = re.compile(r"(?:H|heads?)[_^]?\(?(\d+|[a-z])\)?")
_HOW_MANY: Final = r"(?:H|n_?[hH]|N_?[hH]|(?:n|N|num)_?heads?|\|H\|)"
_TO_THE_LAST: Final = re.compile(rf"(?:1|\^)\.\.{_HOW_MANY}|0\.\.{_HOW_MANY}-1")
_TO_THE_LAST_OF: Final = re.compile(r"1\.\.(?:H|n)_\(?(\d+|[a-gi-z])\)?|0\.\.(?:H|n)_\(?(\d+|[a-gi-z])\)?-1")
_HOW_MANY_LAYERS: Final = r"(?:L|[nN]_?[lL]|(?:n|N|num)_?layers?|[nN])"
_TO_THE_LAST_LAYER: Final = re.compile(rf"[1^]\.\.{_HOW_MANY_LAYERS}|0\.\.{_HOW_MANY_LAYERS}-1")


class Ranges(Labels):
    """The heads and layers of the ranges of sums, in order."""

    def layers_multiplied(self, bound: Bound) -> list[int]:
        """The numbers of the layers of a product, from left to right; ReadError if their order is not given."""
        base, layers = self.reading.base, self.architecture.n_layers
        found = re.fullmatch(r"([\w-]+)\.\.([\w-]+)", bound.over)
        ends = [_end_of(part, layers) for part in found.groups()] if found else [None]
        if None in ends or len(bound.names) != 1:
            raise self.fault("a product over layers needs an order: \\prod_{l=L}^{1}, with later layers "
                             "on the left", bound.at)  # fmt: skip
        first, last = (end for end in ends if end is not None)
        if min(first, last) < base or max(first, last) > layers - 1 + base:
            raise self.fault(f"there are no layers {first} to {last}, counted from {base}", bound.at)
        return list(range(first, last + 1) if first <= last else range(first, last - 1, -1))

    def _assignments(self, names: Sequence[tuple[str, Bound]], env: Environment, body: Node) -> Iterator[Environment]:
        if not names:
            yield env
            return
        name, bound = names[0]
        if any(self.roles.of(n) == "layer" and i for i, (n, _) in enumerate(names)):  # bind layers before their heads
            i = next(i for i, (n, _) in enumerate(names) if self.roles.of(n) == "layer")
            if self.roles.of(name) != "layer":
                names = [names[i], *names[:i], *names[i + 1 :]]
                name, bound = names[0]
        for value in self._range(name, bound, env, body):
            yield from self._assignments(names[1:], env.bind(name, value), body)

    def _range(self, name: str, bound: Bound, env: Environment, body: Node) -> list[Assigned]:
        if self.roles.of(name) == "layer":
            return list(self._layers_in(name, bound, env))
        named, alone = self._layers_named(name, body, env)
        values: list[Assigned] = []
        for part in bound.over.split("|") if not bound.over.startswith(("0..|", "1..|")) else [bound.over]:
            values += self._heads_in(part, bound, env, named, alone)
        return values

    def _layers_in(self, name: str, bound: Bound, env: Environment) -> range:
        """The numbers of the layers in a sum over layers, as the text counts them."""
        over, base, layers = bound.over, self.reading.base, self.architecture.n_layers
        if over[:1] == "<":  # l_1 < l_2, or l < m
            place = bound.names.index(name)
            first = base if not place else self._number_of(bound.names[place - 1], env, bound.at) + 1
            last = self._number_of(over[1:], env, bound.at) if over[1:] else layers + base
            return range(first, last)
        if over in ("", "layers") or _TO_THE_LAST_LAYER.fullmatch(over):
            if over[:1].isdigit() and int(over[0]) != base:
                raise self.fault(f"layers are counted from {base} in this reading", bound.at)
            return range(base, layers + base)
        if not (found := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", over)):
            raise self.fault(f"a sum over layers cannot run over {over!r}: write l=1 and L, or numbers", bound.at)
        first, last = int(found[1]), int(found[2])
        if first < base or last > layers - 1 + base:
            raise self.fault(f"there are no layers {first} to {last}, counted from {base}", bound.at)
        return range(first, last + 1)

    def _layers_named(self, name: str, body: Node, env: Environment) -> tuple[set[int | None], bool]:
        """The layers in the labels with a number of a head, ``(2, h)``, and whether the number is also used alone.

        None is a layer that is bound in the body.
        """
        inner = {n for sum_ in nodes(body) if isinstance(sum_, BigSum) for b in sum_.bounds for n in b.names}
        named: set[int | None] = set()
        alone = False
        for node in nodes(body):
            if not isinstance(node, Name):
                continue
            labels = [p for p in split_indices(self._glyph(node)[1]) if p != ":" and p not in self.roles.positions]
            if labels[:1] == [name]:
                alone = True
            elif labels[1:2] == [name]:
                if labels[0] in inner:
                    named.add(None)
                else:
                    named.add(self._layer_of(self._layer_written(labels[0], env, node.at), node.at))
        return named, alone

    def _heads_in(
        self, over: str, bound: Bound, env: Environment, named: set[int | None], alone: bool
    ) -> list[Head] | list[int]:
        """The values of a part of a range: heads, or numbers of heads if these are in several layers."""
        arch, base = self.architecture, self.reading.base
        own = _HEADS_OF.fullmatch(over) if not _ALL_HEADS.fullmatch(over) else None
        own = own or (_TO_THE_LAST_OF.fullmatch(over) if not _TO_THE_LAST.fullmatch(over) else None)
        if own:
            layer = next(g for g in own.groups() if g)
            written = int(layer) if layer.isdigit() else env.get(layer)
            if written is None:
                raise Free(layer, "layer")
            return list(arch.layer_heads(self._layer_of(written, bound.at)))
        counted = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", over)
        if not counted and not _ALL_HEADS.fullmatch(over) and not _TO_THE_LAST.fullmatch(over):
            raise self.fault(f"a sum over heads cannot run over {over!r}: write h \\in H_1, h=1 and H, or numbers",
                             bound.at)  # fmt: skip
        layers: list[int] = sorted(n for n in named if n is not None)
        if len(named) > 1 or None in named:
            if alone:
                raise self.fault("one variable is used for heads of several layers and for a single head: "
                                 "write the layer at each", bound.at)  # fmt: skip
            counts = {arch.heads[n] for n in (range(arch.n_layers) if None in named else layers)}
            if len(counts) > 1:
                raise self.fault("one variable cannot be used for heads of layers with different numbers of heads: "
                                 "write a sum for each layer", bound.at)  # fmt: skip
            numbers = range(counts.pop())
            return [n + base for n in (self._counted(counted, len(numbers), bound.at) if counted else numbers)]
        if not layers and arch.n_layers > 1 and (counted or not self.reading.spread) and self.before:
            layers = [self.before - 1]  # a summand of the stream before it
        if not layers and arch.n_layers > 1 and (counted or not self.reading.spread):
            layer_ = env.get("@layer")
            if layer_ is None:
                raise Free("@layer", "layer")
            layers = [self._layer_of(layer_, bound.at)]
        if not layers and arch.n_layers != 1:
            return list(arch.all_heads)
        heads = list(arch.layer_heads(layers[0] if layers else 0))
        return [heads[n] for n in self._counted(counted, len(heads), bound.at)] if counted else heads

    def _counted(self, found: re.Match[str], count: int, at: int) -> range:
        """The numbers ``1..3`` as indices of ``count`` heads, counted from 0."""
        first, last = int(found[1]), int(found[2])
        if (first, last) in ((0, count - 1), (1, count)):
            return range(count)
        base = self.reading.base
        if first < base or last >= count + base:
            raise self.fault(f"there are no heads {first} to {last} of {count}, counted from {base}", at)
        return range(first - base, last - base + 1)


def _end_of(written: str, layers: int) -> int | None:
    """An end of the range of a product over layers: a number, or ``L`` (``L-1``), the number of layers."""
    if re.fullmatch(r"\d{1,9}", written):
        return int(written)
    found = re.fullmatch(rf"{_HOW_MANY_LAYERS}(?:-(\d))?", written)
    return layers - int(found[1] or 0) if found else None
