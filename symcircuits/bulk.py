"""Labels, text and LaTeX of whole blocks of terms: the strings of symbols are made once, and put together.

The word of a path is ``left_n .. left_1 source right_1 .. right_n``, a part for each head. Consecutive layers share a
list of their strings, and a side's strings are remembered by path, since each occurs in many score terms. What is
printed is what ``Term.label``, ``Term.text`` and ``Term.latex()`` print; tests hold the two together. Own derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from symcircuits.algebra import Factor, fuse, transpose
from symcircuits.architecture import Head
from symcircuits.expansion import Expansion
from symcircuits.notation import SIGNS, Notation, of_tokens
from symcircuits.programs import Program, Readout, Source, rotation

__all__ = ["Side", "Split", "joined", "labels", "printed"]

SEGMENT = 1 << 12  # strings of consecutive layers that are listed
FEW_KEYS = 8  # terms of one query path from which on it pays to join them
REMEMBERED = 1 << 14  # paths of a side whose strings are kept


def labels(block: Any) -> list[str]:
    """The label of each term."""
    return _printer(block.expansion, None, "label").print(block)


def printed(block: Any, notation: Notation, style: str) -> list[str]:
    """Each term in a notation, as ``text`` or ``latex``."""
    return _printer(block.expansion, notation, style).print(block)


def joined(block: Any, notation: Notation | None, style: str, between: bytes, escape: Callable[[str], str]) -> bytes:
    """What :func:`printed` gives (without notation: :func:`labels`), in UTF-8, with something between two of them.

    ``escape`` is applied to each, or to parts of which it consists: it must not matter to which.
    """
    return _printer(block.expansion, notation, style).joined(block, between, escape)


def _printer(expansion: Expansion, notation: Notation | None, style: str) -> _Printer:
    found = expansion.printers.get((notation, style))
    if found is None:
        names = tuple(s.name for s in expansion.sources)
        found = expansion.printers[notation, style] = _made(expansion.readout, names, notation, style)
    printer: _Printer = found
    return printer


def _made(readout: Readout, names: tuple[str, ...], notation: Notation | None, style: str) -> _Printer:
    sides = [Side(program, names) for program in readout.sides]
    if notation is None:
        return _Labels(sides)
    word = _Words(readout, notation, style)
    one = len(sides) == 1
    kind = (_OneForm if one else _TwoForms) if notation.tensors else (_OneWord if one else _TwoWords)
    return kind(sides, word)


# ----------------------------------------------------------------------------------------- paths as codes
class Split(NamedTuple):
    """A source taken apart: what stands before and behind it there, and what is read from all paths behind heads."""

    source: Source
    left: tuple[Factor, ...]
    core: tuple[Factor, ...]
    right: tuple[Factor, ...]
    outer_left: tuple[Factor, ...]
    outer_right: tuple[Factor, ...]


def _split(program: Program, source: Source) -> Split:
    entry = next(i for i, layer in enumerate(program) if source in layer.sources)
    left, right, outer_left, outer_right = source.left, source.right, tuple[Factor, ...](), tuple[Factor, ...]()
    after = program[entry + 1 :]
    if not any(b.head is not None for layer in after for b in layer.branches):
        right, outer_right = (), right  # nothing comes between
    for i, layer in enumerate(after):
        for b in layer.branches:
            if b.head is None:
                outer_left, outer_right = b.left + outer_left, outer_right + b.right
                if any(c.head is not None for later in after[i:] for c in later.branches):
                    raise ValueError("a readout before a layer of heads cannot be printed in blocks")
    return Split(source, left, source.core, right, outer_left, outer_right)


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
        """The place in ``splits`` of sources by number (-1: it depends on the head), and by number and head."""
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
        """The place in ``splits`` of each path, and its heads by layer, without that in which a source enters."""
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
        """The place in ``splits`` and the code in each segment of paths; without the head that a source enters in."""
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
        """One number for each path; None where int64 does not suffice."""
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
    ) -> _Strand:
        """A part of what is printed of each path: strings of its source, of its heads before and behind that."""
        parts = []
        for segment in self.segments:
            left, right = [""], [""]
            for layer in segment:
                heads = [Head(layer, n) for n in self.numbers[layer]]
                a, b = ["", *map(before, heads)], ["", *map(after, heads)]
                left = [x + old for x in a for old in left]
                right = [old + y for y in b for old in right]
            parts.append((left, right))
        return _Strand([core(s) for s in self.splits], parts)


class _Strand(NamedTuple):
    """Strings by the code of the source, and by the code of each segment before and behind."""

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


# ---------------------------------------------------------------------------------------------- strings
class _Words:
    """Strings of factors in a notation."""

    def __init__(self, readout: Readout, notation: Notation, style: str) -> None:
        self.signs, self.notation = SIGNS[style], notation
        self.front = self.signs.scale(readout.scale, notation) + self.signs.times if readout.scale else ""
        head = readout.head
        self.turned = rotation(readout.architecture, head) if head is not None else ()

    def product(self, factors: Iterable[Factor]) -> str:
        """A product."""
        return self.signs.joint.join(self.signs.factor(f, self.notation) for f in fuse(factors))

    def first(self, factors: Iterable[Factor]) -> str:
        """A product with something to come."""
        text = self.product(factors)
        return text + self.signs.joint if text else ""

    def last(self, factors: Iterable[Factor]) -> str:
        """A product behind something."""
        text = self.product(factors)
        return self.signs.joint + text if text else ""

    def slot(self, text: str) -> str:
        """A product to which nothing came; the identity where it is empty."""
        return text.removesuffix(self.signs.joint) or self.signs.identity


class _Printer:
    """Prints blocks; ``_one`` and ``_weave`` are what the printers differ in."""

    all_heads = False
    concatenates = True  # what is printed is that of the query path, then that of the key path

    def __init__(self, sides: list[Side], words: _Words | None = None) -> None:
        self.sides = sides
        self.known: list[dict[Any, dict[int, Any]]] = [{} for _ in sides]
        if words is not None:
            self.words = words
        self.prepare()

    def prepare(self) -> None:
        """Make the strings of sources and heads."""

    def print(self, block: Any) -> list[str]:
        """The strings of a block, term by term."""
        codes = self._codes(block)
        if len(codes) == 1:
            return self.strings(0, [c.tolist() for c in codes[0]])
        kinds = self.kinds(codes[1][0])
        return self.weave(self._remembered(0, [*codes[0], kinds], kinds), self._remembered(1, codes[1], 0))

    def joined(self, block: Any, between: bytes, escape: Callable[[str], str]) -> bytes:
        """The strings of a block with something between them; those of one query path are put together in one go."""
        import numpy as np

        if self.concatenates and len(self.sides) == 2:
            query, key = self._codes(block)
            kinds = self.kinds(key[0])
            query.append(kinds)
            starts = 1 + np.flatnonzero(np.logical_or.reduce([c[1:] != c[:-1] for c in query]))
            starts = np.concatenate([[0], starts])
            if len(starts) * FEW_KEYS < len(kinds):
                keys = self._remembered(1, key, 0, lambda s: escape(s).encode(), escape)
                ends = [*starts[1:].tolist(), len(kinds)]
                strings = [escape(s).encode() for s in self.strings(0, [c[starts].tolist() for c in query])]
                return between.join([
                    s + (between + s).join(keys[a:b]) for s, a, b in zip(strings, starts.tolist(), ends, strict=True)
                ])  # fmt: skip
        return between.join([escape(s).encode() for s in self.print(block)])

    def _codes(self, block: Any) -> list[list[Any]]:
        return [
            side.codes(heads, sources, self.all_heads)
            for side, heads, sources in zip(self.sides, block.heads, block.sources, strict=True)
        ]

    def kinds(self, starts: Any) -> Any:
        """For each term, in which way its two sides meet."""
        return starts * 0

    def _remembered(
        self, side: int, codes: list[Any], kinds: Any, form: Callable[[Any], Any] | None = None, name: Any = None
    ) -> list[Any]:
        """The strings of each term's path on a side, in a form with that name; those of each path are made once."""
        joined = self.sides[side].joined(codes[: 1 + len(self.sides[side].segments)])
        if joined is None:
            found = self.strings(side, [c.tolist() for c in codes])
            return found if form is None else list(map(form, found))
        import numpy as np

        key = joined * self.count + kinds
        known = self.known[side].setdefault(name, {})
        if len(known) > REMEMBERED:
            known.clear()
        keys = key.tolist()
        new = set(keys) - known.keys()
        if new:
            wanted = np.fromiter(new, np.int64)
            order = np.argsort(key, kind="stable")
            rows = order[np.searchsorted(key, wanted, sorter=order)]
            strings = self.strings(side, [c[rows].tolist() for c in codes])
            known.update(zip(wanted.tolist(), strings if form is None else map(form, strings), strict=True))
        return list(map(known.__getitem__, keys))

    count = 1  # ways in which two sides meet

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        """The strings of paths of a side, by their codes."""
        raise NotImplementedError

    def weave(self, query: list[Any], key: list[Any]) -> list[str]:
        """The strings of terms, of those of their sides."""
        return [q + k for q, k in zip(query, key, strict=True)]


class _Labels(_Printer):
    all_heads = True

    def prepare(self) -> None:
        self.strands = [
            s.strand(lambda part: part.source.name, lambda head: "", lambda head: f" -> {head}") for s in self.sides
        ]

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        found = self.strands[side].strings(codes[: len(self.strands[side].parts) + 1])
        return [s + " | " for s in found] if side == 0 and len(self.sides) == 2 else found


class _OneWord(_Printer):
    """A path as a product."""

    def prepare(self) -> None:
        side, w = self.sides[0], self.words
        self.strand = side.strand(
            lambda s: w.product(s.left + s.core + s.right),
            lambda h: w.first(side.branches[h].left), lambda h: w.last(side.branches[h].right),
        )  # fmt: skip
        self.outer = [(w.front + w.first(s.outer_left), w.last(s.outer_right)) for s in side.splits]

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        outer = self.outer
        return [
            outer[c][0] + s + outer[c][1] for c, s in zip(codes[0], self.strand.strings(codes), strict=True)
        ]  # fmt: skip


class _OneForm(_Printer):
    """A path as a map of its source, ``(A (x) W) x``; as a product where it has no weights."""

    def prepare(self) -> None:
        side, w = self.sides[0], self.words
        branches = side.branches
        self.left = side.strand(
            lambda s: w.first(_at_source(s.left + s.core)[0]), lambda h: w.first(branches[h].left), lambda h: ""
        )
        self.right = side.strand(
            lambda s: w.first(transpose(_at_source(s.left + s.core)[2] + s.right)),
            lambda h: w.first(transpose(branches[h].right)), lambda h: "",
        )  # fmt: skip
        self.outer = [(w.first(s.outer_left), w.first(transpose(s.outer_right))) for s in side.splits]
        self.source = [w.product((_at_source(s.left + s.core)[1],)) for s in side.splits]
        self.alone = [w.product(s.outer_left + s.left + s.core + s.right + s.outer_right) for s in side.splits]

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        w, signs = self.words, self.words.signs
        found = []
        for c, a, b in zip(codes[0], self.left.strings(codes), self.right.strings(codes), strict=True):
            left, right = self.outer[c]
            body = self.alone[c]
            if right or b:
                slots = w.slot(left + a) + signs.tensor + w.slot(right + b)
                body = signs.opening + slots + signs.closing + signs.acts + self.source[c]
            found.append(w.front + body)
        return found


def _at_source(factors: tuple[Factor, ...]) -> tuple[tuple[Factor, ...], Factor, tuple[Factor, ...]]:
    """Factors before the first that leads out of the tokens, that factor, and those behind it."""
    i = next(i for i, f in enumerate(factors) if not of_tokens(f.col.space.kind))
    return factors[:i], factors[i], factors[i + 1 :]


class _TwoWords(_Printer):
    """A pair of paths as a product: query path, what they meet in, key path transposed."""

    def prepare(self) -> None:
        (q, k), w = self.sides, self.words
        self.query = q.strand(
            lambda s: w.product(s.left + s.core + s.right),
            lambda h: w.first(q.branches[h].left), lambda h: w.last(q.branches[h].right),
        )  # fmt: skip
        self.key = k.strand(
            lambda s: w.product(transpose(s.left + s.core + s.right)),
            lambda h: w.first(transpose(k.branches[h].right)), lambda h: w.last(transpose(k.branches[h].left)),
        )  # fmt: skip
        self.ends = [w.last(transpose(s.outer_left)) for s in k.splits]
        self.starts = [w.front + w.first(s.outer_left) for s in q.splits]
        self._meetings(lambda s: s.outer_right)

    def _meetings(self, what: Callable[[Split], Any]) -> None:
        """The ways in which key paths meet query paths, and what stands between for each of the latter's sources."""
        import numpy as np

        met = list(dict.fromkeys(what(s) for s in self.sides[1].splits))
        self.count = len(met)
        self.way = np.array([met.index(what(s)) for s in self.sides[1].splits])
        self.between = [[self.meeting(s, way) for way in met] for s in self.sides[0].splits]

    def meeting(self, query: Split, way: Any) -> str:
        """What stands between the two sides."""
        middle = self.words.product(query.outer_right + self.words.turned + transpose(way))
        joint = self.words.signs.joint
        return joint + middle + joint if middle else joint

    def kinds(self, starts: Any) -> Any:
        return self.way[starts]

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        if side == 1:
            return [s + self.ends[c] for c, s in zip(codes[0], self.key.strings(codes), strict=True)]
        *paths, kinds = codes
        found = zip(codes[0], kinds, self.query.strings(paths), strict=True)
        return [self.starts[c] + s + self.between[c][kind] for c, kind, s in found]


class _TwoForms(_TwoWords):
    """A pair of paths as a map of its sources, ``(A_q (x) A_k (x) W)(x, y)``."""

    concatenates = False

    def prepare(self) -> None:
        (q, k), w = self.sides, self.words
        self.lefts = [
            side.strand(
                lambda s: w.first(_at_source(s.left + s.core)[0]),
                lambda h, b=side.branches: w.first(b[h].left), lambda h: "",  # type: ignore[misc]
            )
            for side in (q, k)
        ]  # fmt: skip
        self.query = q.strand(
            lambda s: w.first(_at_source(s.left + s.core)[2] + s.right),
            lambda h: "", lambda h: w.first(q.branches[h].right),
        )  # fmt: skip
        self.key = k.strand(
            lambda s: w.first(transpose(_at_source(s.left + s.core)[2] + s.right)),
            lambda h: w.first(transpose(k.branches[h].right)), lambda h: "",
        )  # fmt: skip
        self.outer = [[w.first(s.outer_left) for s in side.splits] for side in (q, k)]
        self.source = [[w.product((_at_source(s.left + s.core)[1],)) for s in side.splits] for side in (q, k)]
        self._meetings(lambda s: s.outer_right)

    def meeting(self, query: Split, way: Any) -> str:
        return self.words.first(query.outer_right + self.words.turned + transpose(way))

    def strings(self, side: int, codes: list[list[int]]) -> list[Any]:
        w, signs = self.words, self.words.signs
        paths = codes[: 1 + len(self.sides[side].segments)]
        outer, source = self.outer[side], self.source[side]
        lefts = [w.slot(outer[c] + s) for c, s in zip(codes[0], self.lefts[side].strings(paths), strict=True)]
        if side == 1:
            middles = self.key.strings(paths)
            opens = signs.closing + signs.opening
            return [
                (left + signs.tensor, middle, opens, signs.comma + source[c] + signs.closing)
                for left, middle, c in zip(lefts, middles, codes[0], strict=True)
            ]  # fmt: skip
        middles = [
            s + self.between[c][kind]
            for c, kind, s in zip(codes[0], codes[-1], self.query.strings(paths), strict=True)
        ]  # fmt: skip
        return [
            (w.front + signs.opening + left + signs.tensor, middle, source[c])
            for left, middle, c in zip(lefts, middles, codes[0], strict=True)
        ]  # fmt: skip

    def weave(self, query: list[Any], key: list[Any]) -> list[str]:
        slot = self.words.slot
        return [
            a + b + slot(c + d) + e + f + g
            for (a, c, f), (b, d, e, g) in zip(query, key, strict=True)
        ]  # fmt: skip
