"""Labels, text and LaTeX of whole blocks of terms: the strings of symbols are made once, and concatenated.

The word of a path is ``left_n .. left_1 source right_1 .. right_n``, a part for each head. Consecutive layers share a
list of their strings, and a side's strings are cached by path, since each occurs in many score terms. The output is
that of ``Term.label``, ``Term.text`` and ``Term.latex()``, which tests check. Own derivation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import Notation, of_tokens
from symcircuits.core.programs import Readout
from symcircuits.core.words import Factor, transpose
from symcircuits.tables.codes import Side, Split
from symcircuits.tables.wording import Fronts, Wording

__all__ = ["joined", "labels", "meetings", "pieces", "printed"]

FEW_KEYS = 8  # from this many terms of one query path on, joining them pays
REMEMBERED = 1 << 14  # paths of a side whose strings are cached


def labels(block: Any) -> list[str]:
    """The label of each term."""
    return _printer(block.expansion, None, "label").print(block)


def printed(block: Any, notation: Notation, style: str) -> list[str]:
    """Each term in a notation, as ``text`` or ``latex``."""
    return _printer(block.expansion, notation, style).print(block)


def joined(block: Any, notation: Notation | None, style: str, between: bytes, escape: Callable[[str], str]) -> bytes:
    """The output of :func:`printed` (without notation: :func:`labels`), in UTF-8, with a separator.

    ``escape`` is applied to each, or to its parts: it must not matter which.
    """
    return _printer(block.expansion, notation, style).joined(block, between, escape)


def pieces(block: Any, notation: Notation | None, style: str, escape: Callable[[str], str]) -> list[list[bytes]]:
    """The output of :func:`printed` (without notation: :func:`labels`), in UTF-8, or two lists of halves."""
    return _printer(block.expansion, notation, style).pieces(block, escape)


def meetings(block: Any, notation: Notation | None, style: str) -> Any:
    """For each term, a number for the way in which its two sides meet; its query path's string depends on it."""
    printer = _printer(block.expansion, notation, style)
    return printer.kinds(printer._codes(block)[1][0])


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
    word = Wording(readout, notation, style)
    one = len(sides) == 1
    kind = (_OneForm if one else _TwoForms) if notation.tensors else (_OneWord if one else _TwoWords)
    return kind(sides, word)


class _Printer:
    """Prints blocks; subclasses differ in ``_one`` and ``_weave``."""

    all_heads = False
    concatenates = True  # the string is that of the query path, then that of the key path

    def __init__(self, sides: list[Side], words: Wording | None = None) -> None:
        self.sides = sides
        self.known: list[dict[Any, dict[int, Any]]] = [{} for _ in sides]
        self.fronts: Fronts | None = None
        if words is not None:
            self.words = words
            self.fronts = Fronts(sides, words) if words.varies else None
        self.prepare()

    def prepare(self) -> None:
        """Make the strings of sources and heads."""

    def print(self, block: Any) -> list[str]:
        """The strings of a block, term by term."""
        bodies = self._bodies(block)
        if self.fronts is None:
            return bodies
        return [front + body for front, body in zip(self.fronts.of(block), bodies, strict=True)]

    def _bodies(self, block: Any) -> list[str]:
        codes = self._codes(block)
        if len(codes) == 1:
            return self.strings(0, [c.tolist() for c in codes[0]])
        kinds = self.kinds(codes[1][0])
        return self.weave(self._remembered(0, [*codes[0], kinds], kinds), self._remembered(1, codes[1], 0))

    def joined(self, block: Any, between: bytes, escape: Callable[[str], str]) -> bytes:
        """The strings of a block, joined by a separator; those of one query path are concatenated at once."""
        import numpy as np

        if self.concatenates and len(self.sides) == 2 and self.fronts is None:
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

    def pieces(self, block: Any, escape: Callable[[str], str]) -> list[list[bytes]]:
        """The strings of a block; two lists, if they are strings of a query path and of a key path."""
        if not self.concatenates or len(self.sides) == 1 or self.fronts is not None:
            return [[escape(s).encode() for s in self.print(block)]]
        query, key = self._codes(block)
        kinds = self.kinds(key[0])
        return [
            self._remembered(0, [*query, kinds], kinds, lambda s: escape(s).encode(), escape),
            self._remembered(1, key, 0, lambda s: escape(s).encode(), escape),
        ]

    def _codes(self, block: Any) -> list[list[Any]]:
        return [
            side.codes(heads, sources, self.all_heads)
            for side, heads, sources in zip(self.sides, block.heads, block.sources, strict=True)
        ]

    def kinds(self, starts: Any) -> Any:
        """For each term, how its two sides meet."""
        return starts * 0

    def _remembered(
        self, side: int, codes: list[Any], kinds: Any, form: Callable[[Any], Any] | None = None, name: Any = None
    ) -> list[Any]:
        """The strings of each term's path on a side, in the form of that name; made once per path."""
        joined = self.sides[side].joined(codes[: 1 + len(self.sides[side].segments)])
        if joined is None:
            found = self.strings(side, [c.tolist() for c in codes])
            return found if form is None else list(map(form, found))
        import numpy as np

        key = joined * self.count + kinds
        known = self.known[side].setdefault(name, {})
        if len(known) > REMEMBERED:
            known = self.known[side][name] = {}  # a new dict: another thread may use the old one
        keys = key.tolist()
        new = [k for k in set(keys) if k not in known]
        if new:
            wanted = np.array(new)
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
        """The strings of terms, from those of their sides."""
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
    """A path as a map of its source, ``(A (x) W) x``; as a product if it has no weights."""

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
    """Factors before the first that maps out of token space, that factor, and those after it."""
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
        """How key paths meet query paths, and the string between them for each source of the latter."""
        import numpy as np

        met = list(dict.fromkeys(what(s) for s in self.sides[1].splits))
        self.count = len(met)
        self.way = np.array([met.index(what(s)) for s in self.sides[1].splits])
        self.between = [[self.meeting(s, way) for way in met] for s in self.sides[0].splits]

    def meeting(self, query: Split, way: Any) -> str:
        """The string between the two sides."""
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
