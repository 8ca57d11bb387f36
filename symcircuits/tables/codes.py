"""The paths of one side as codes of their source and layers, with which anything made of parts can be looked up.

The word of a path is ``left_n .. left_1 source right_1 .. right_n``, a part for each head, inside the factors of the
readout. Consecutive layers share a list of the combinations of their parts. Own derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from symcircuits.core.architecture import Head
from symcircuits.core.programs import Program, Source
from symcircuits.core.words import Factor

__all__ = ["Side", "Split", "Strand"]

SEGMENT = 1 << 12  # listed strings of consecutive layers


class Split(NamedTuple):
    """A source taken apart: its factors on the left and on the right, and those of the readout around the heads."""

    source: Source
    left: tuple[Factor, ...]
    core: tuple[Factor, ...]
    right: tuple[Factor, ...]
    outer_left: tuple[Factor, ...]
    outer_right: tuple[Factor, ...]
    scales: tuple[str, ...]


def _split(program: Program, source: Source) -> Split:
    entry = next(i for i, layer in enumerate(program) if source in layer.sources)
    left, right, outer_left, outer_right = source.left, source.right, tuple[Factor, ...](), tuple[Factor, ...]()
    scales = source.scales
    after = program[entry + 1 :]
    if not any(b.head is not None for layer in after for b in layer.branches):
        right, outer_right = (), right  # nothing comes between
    for i, layer in enumerate(after):
        for b in layer.branches:
            if b.head is None:
                outer_left, outer_right = b.left + outer_left, outer_right + b.right
                scales += b.scales
                if any(c.head is not None for later in after[i:] for c in later.branches):
                    raise ValueError("a readout before a layer of heads cannot be printed in blocks")
    return Split(source, left, source.core, right, outer_left, outer_right=outer_right, scales=scales)


class Side:
    """The paths of one side as codes: of the source (with the head inside which it enters), and of layers."""

    def __init__(self, program: Program, names: tuple[str, ...]) -> None:
        self.program = program
        self.splits = [_split(program, s) for layer in program for s in layer.sources]
        self.branches = {b.head: b for layer in program for b in layer.branches if b.head is not None}
        heads = list(self.branches)
        self.numbers: list[list[int]] = [[] for _ in range(1 + max((h.layer for h in heads), default=-1))]
        for h in heads:
            self.numbers[h.layer].append(h.number)
        self.inside = any(s.source.head is not None for s in self.splits)
        self._alone, self._within = self._look_up(names)
        self.segments = self._segments()

    def _look_up(self, names: tuple[str, ...]) -> tuple[Any, dict[tuple[int, Head], int]]:
        """The index in ``splits`` of sources by number (-1: it depends on the head), and by number and head."""
        import numpy as np

        place = {name: i for i, name in enumerate(names)}
        alone, within = np.full(len(names), -1, np.int64), dict[tuple[int, Head], int]()
        for i, s in enumerate(self.splits):
            if s.source.head is None:
                alone[place[s.source.name]] = i
            else:
                within[place[s.source.name], s.source.head] = i
        return alone, within

    def _segments(self) -> list[range]:
        """Layers in runs, earliest first, whose strings can be listed."""
        found: list[range] = []
        size = SEGMENT + 1
        for layer, numbers in enumerate(self.numbers):
            size *= len(numbers) + 1
            if size > SEGMENT:
                found.append(range(layer, layer))
                size = len(numbers) + 1
            found[-1] = range(found[-1].start, layer + 1)
        return found

    def columns(self, heads: Any, sources: Any, all_heads: bool) -> tuple[Any, list[Any]]:
        """The index in ``splits`` of each path, and its heads by layer, without the head in which a source enters."""
        import numpy as np

        start = self._alone[sources]
        inside = np.flatnonzero(start < 0)
        if not inside.size:
            return start, list(heads.T)
        first = (heads[inside] >= 0).argmax(1)
        number = heads[inside, first]
        wide = 1 + max(map(max, filter(None, self.numbers)))
        key = (sources[inside].astype(np.int64) * len(self.numbers) + first) * wide + number
        keys, back = np.unique(key, return_inverse=True)
        known = [
            self._within[k // wide // len(self.numbers), Head(k // wide % len(self.numbers), k % wide)]
            for k in map(int, keys)
        ]
        start[inside] = np.array(known)[back]
        if all_heads:
            return start, list(heads.T)
        trimmed = np.array(heads)
        trimmed[inside, first] = -1
        return start, list(trimmed.T)

    def codes(self, heads: Any, sources: Any, all_heads: bool) -> list[Any]:
        """The index in ``splits`` and the code in each segment of paths; without the head in which a source enters."""
        import numpy as np

        start, columns = self.columns(heads, sources, all_heads)
        found = [start]
        for segment in self.segments:
            code = np.zeros(len(start), np.int64)
            for layer in reversed(segment):
                code *= len(self.numbers[layer]) + 1
                code += columns[layer]
                code += 1
            found.append(code)
        return found

    def joined(self, codes: list[Any]) -> Any:
        """One number for each path; None if int64 is too small."""
        sizes = [len(self.splits), *(self._size(s) for s in self.segments)]
        total = codes[0].copy()
        whole = sizes[0]
        for code, size in zip(codes[1:], sizes[1:], strict=True):
            total += code * whole
            whole *= size
            if whole >= 1 << 50:
                return None
        return total

    def _size(self, segment: range) -> int:
        size = 1
        for layer in segment:
            size *= len(self.numbers[layer]) + 1
        return size

    def strand(
        self, core: Callable[[Split], str], before: Callable[[Head], str], after: Callable[[Head], str]
    ) -> Strand:
        """A printed part of each path: strings of its source, and of its heads before and after that."""
        parts = []
        for segment in self.segments:
            left, right = [""], [""]
            for layer in segment:
                heads = [Head(layer, n) for n in self.numbers[layer]]
                a, b = ["", *map(before, heads)], ["", *map(after, heads)]
                left = [x + old for x in a for old in left]
                right = [old + y for y in b for old in right]
            parts.append((left, right))
        return Strand([core(s) for s in self.splits], parts)


class Strand(NamedTuple):
    """Strings by the code of the source, and by the code of each segment before and after."""

    core: list[str]
    parts: list[tuple[list[str], list[str]]]

    def strings(self, codes: Sequence[list[int]]) -> list[str]:
        """The strings of paths."""
        core = self.core
        found = [core[c] for c in codes[0]]
        for (left, right), code in zip(self.parts, codes[1:], strict=True):
            if not any(left):
                found = [s + right[c] for s, c in zip(found, code, strict=True)]
            elif not any(right):
                found = [left[c] + s for s, c in zip(found, code, strict=True)]
            else:
                found = [left[c] + s + right[c] for s, c in zip(found, code, strict=True)]
        return found
