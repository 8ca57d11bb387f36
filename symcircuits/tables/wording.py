"""Strings of factors and of scalars in a notation, as parts for printing terms in bulk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symcircuits.core.architecture import Head
from symcircuits.core.notation import SIGNS, Notation
from symcircuits.core.programs import Readout, rotation
from symcircuits.core.words import Factor, fuse, scalar_order
from symcircuits.tables.codes import Side

__all__ = ["Fronts", "Wording"]


class Wording:
    """Strings of factors in a notation."""

    def __init__(self, readout: Readout, notation: Notation, style: str) -> None:
        self.signs, self.notation = SIGNS[style], notation
        self.scale = (readout.scale,) if readout.scale else ()
        self.varies = bool(readout.architecture.multipliers)  # the scalars in front differ from term to term
        self.front = "" if self.varies else self.scalars(self.scale)
        head = readout.head
        self.turned = rotation(readout.architecture, head) if head is not None else ()

    def scalars(self, scales: tuple[str, ...]) -> str:
        """Scalars in front of a product."""
        found = sorted(scales, key=scalar_order)
        return "".join(self.signs.scale(s, self.notation) + self.signs.times for s in found)

    def product(self, factors: Iterable[Factor]) -> str:
        """A product."""
        return self.signs.joint.join(self.signs.factor(f, self.notation) for f in fuse(factors))

    def first(self, factors: Iterable[Factor]) -> str:
        """A product with more to come on the right."""
        text = self.product(factors)
        return text + self.signs.joint if text else ""

    def last(self, factors: Iterable[Factor]) -> str:
        """A product after another."""
        text = self.product(factors)
        return self.signs.joint + text if text else ""

    def slot(self, text: str) -> str:
        """A product that is complete; the identity if it is empty."""
        return text.removesuffix(self.signs.joint) or self.signs.identity(self.notation)


class Fronts:
    """The scalars in front of terms whose sources and heads carry multipliers, those of both sides together."""

    def __init__(self, sides: list[Side], words: Wording) -> None:
        import numpy as np

        self.sides, self.words = sides, words
        self.kinds: list[tuple[str, ...]] = [()]
        self.tables = []
        for side in sides:
            layers = []
            for layer, numbers in enumerate(side.numbers):
                scales = [(), *(side.branches[Head(layer, n)].scales for n in numbers)]
                self.kinds += [s for s in dict.fromkeys(scales) if s not in self.kinds]
                layers.append(np.array([self.kinds.index(s) for s in scales]))
            self.tables.append(layers)

    def of(self, block: Any) -> list[str]:
        """For each term of a block; made once for those with the same sources and multipliers."""
        import numpy as np

        columns = []
        for side, tables, heads, sources in zip(self.sides, self.tables, block.heads, block.sources, strict=True):
            start, layers = side.columns(heads, sources, False)
            columns += [start, *(table[c + 1] for table, c in zip(tables, layers, strict=True))]
        rows, back = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)
        strings = [self._string(row) for row in rows.tolist()]
        return [strings[i] for i in back.reshape(-1).tolist()]

    def _string(self, row: list[int]) -> str:
        scales: tuple[str, ...] = self.words.scale
        at = 0
        for side, tables in zip(self.sides, self.tables, strict=True):
            scales += side.splits[row[at]].scales
            for kind in row[at + 1 : at + 1 + len(tables)]:
                scales += self.kinds[kind]
            at += 1 + len(tables)
        return self.words.scalars(scales)
