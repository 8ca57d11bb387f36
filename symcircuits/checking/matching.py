"""Finds the term of an expansion that a product of letters is: its path from the letters, its number by arithmetic.

A *circuit* is the middle of a term, without tokens and patterns, e.g. ``W_E.T @ W_QK[L1H0] @ W_OV[L0H1] @ W_E``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, final

from symcircuits.checking.formula import Letter
from symcircuits.core.architecture import Architecture, Head, as_head
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.paths import Path, path_factors
from symcircuits.core.programs import Source, rotation
from symcircuits.core.symbols import LETTERS, OF_TOKENS, READERS, SYMMETRIC
from symcircuits.core.words import Factor, scalar_order

__all__ = [
    "Letters", "Match", "Matcher", "Spelling", "circuit_forms", "letters_of",
    "multipliers_of_weights", "of_tokens_in", "sources_named", "transpose",
]  # fmt: skip

Letters = tuple[Letter, ...]

_PAIRS = {
    ("t", False, "W_E", True): ("X0", False), ("W_E", False, "t", True): ("X0", True),
    ("W_O", False, "W_V", False): ("W_OV", False), ("W_V", True, "W_O", True): ("W_OV", True),
    ("W_Q", True, "W_K", False): ("W_QK", False), ("W_K", True, "W_Q", False): ("W_QK", True),
    ("R", False, "R", True): ("R", False),  # R is R_i R_j^T
}  # fmt: skip
_DIAGONAL = ("D", "gain")
_HEADED = ("W_O", "W_Q")  # of a head, while keys and values may belong to a group
_PARTS = {fused: ((a, ta), (b, tb)) for (a, ta, b, tb), fused in _PAIRS.items() if a != "R"}


class Match(NamedTuple):
    """A term, and a note on the form in which it was written.

    ``forms``: the orientations in which a circuit may be read, with the meanings of its rows and columns.
    """

    term: Term
    note: str = ""
    forms: frozenset[tuple[str, ...]] = frozenset()


def is_reader(letter: Letter, sides: str) -> bool:
    """Whether a query (Q) or key (K) side may end with this letter: its matrix, its bias, or the gain of its norm."""
    return (letter.glyph in READERS and letter.glyph[-1] in sides) or (
        letter.glyph == "gain" and letter.label[0] in sides
    )


def letters_of(factors: Iterable[Factor]) -> Letters:
    """The names of typed factors."""
    return tuple(Letter(f.symbol.glyph, f.symbol.label, f.marked) for f in factors)


def transpose(letters: Sequence[Letter]) -> Letters:
    """The transposed product."""
    return tuple(letter.T for letter in reversed(letters))


def _place(letter: Letter) -> tuple[int, str]:
    """The order of a diagonal matrix among its neighbours: those of queries first, those of keys last."""
    return {"Q": 0, "K": 2}.get(letter.label[:1], 1), letter.label


def _scalar_turned(letters: Letters) -> Letters:
    """The same value in another spelling: ``b_Q.T @ b_K``, a number, as ``b_K.T @ b_Q``; empty if there is none."""
    start = next((i for i, f in enumerate(letters) if f.glyph[:2] == "b_" and f.transposed), len(letters))
    end = next((i for i in range(len(letters) - 1, start, -1) if _is_column(letters[i])), start)
    return (*letters[:start], *transpose(letters[start : end + 1]), *letters[end + 1 :]) if end > start else ()


def _is_column(letter: Letter) -> bool:
    return letter.glyph[:2] == "b_" and not letter.transposed


@final
class Spelling:
    """The abbreviations of an architecture's letters: ``X0``, ``W_OV``, ``W_QK``.

    >>> from symcircuits.core.architecture import attention_only
    >>> spelled = Letter("W_V", "L0H1", True), Letter("W_O", "L0H1", True)
    >>> [f.text for f in Spelling(attention_only((2,))).fuse(spelled)]
    ['W_OV[L0H1].T']
    """

    def __init__(self, architecture: Architecture) -> None:
        self._turned = architecture.positions == "rotary"  # then R is between W_Q and W_K, which do not meet
        self._shared = {h.label: architecture.key_value(h) for h in architecture.all_heads}
        self._own = {p.name: ("token", "model") for p in architecture.parts}
        self._own |= {r.name: ("readout", "model") for r in architecture.readings}

    def fuse(self, letters: Iterable[Letter]) -> Letters:
        """Abbreviate wherever possible: ``t @ W_E.T`` as ``X0``, ``W_O @ W_V`` as ``W_OV``."""
        out: list[Letter] = []
        for b in self.unfuse(letters, ("W_QK",)) if self._turned else letters:
            pair = self._pair(out[-1], b) if out else None
            if pair is None:
                out.append(b)
            else:
                out[-1] = pair
        return tuple(out)

    def _pair(self, a: Letter, b: Letter) -> Letter | None:
        fused = _PAIRS.get((a.glyph, a.transposed, b.glyph, b.transposed))
        if fused is None or (self._turned and fused[0] == "W_QK"):
            return None
        if a.glyph == "R":
            return Letter("R", a.label) if a.label == b.label else None
        head, other = (a, b) if a.glyph in _HEADED else (b, a)  # the head's own letter first
        if self._shared.get(head.label, "") != other.label:
            return None
        return Letter(fused[0], head.label, fused[1])

    @staticmethod
    def canonical(letters: Iterable[Letter]) -> Letters:
        """One spelling for products that are equal for every model: diagonal matrices commute, and ``C C = C``.

        >>> swapped = Letter("W_Q", "L0H0", True), Letter("gain", "K0"), Letter("gain", "Q0")
        >>> [f.text for f in Spelling.canonical(swapped)]
        ['W_Q[L0H0].T', 'gain[Q0]', 'gain[K0]']
        """
        letters = tuple(letters)
        if not any(f.glyph in SYMMETRIC for f in letters):
            return letters
        out: list[Letter] = []
        for f in letters:
            if f.glyph == "C" and out and out[-1].glyph == "C":
                continue
            at = len(out)
            while f.glyph in _DIAGONAL and at and out[at - 1].glyph == f.glyph and _place(f) < _place(out[at - 1]):
                at -= 1
            out.insert(at, f)
        return tuple(out)

    def sizes(self, letters: Letters) -> tuple[str, ...]:
        """The meanings of the rows and columns of a product; empty if the sizes of two neighbours do not fit.

        >>> from symcircuits.core.architecture import attention_only
        >>> spelling = Spelling(attention_only((1,)))
        >>> spelling.sizes((Letter("X0"), Letter("W_U", "", True))), spelling.sizes((Letter("X0"), Letter("W_U")))
        (('token', 'output'), ())
        """
        found = [self.size(f) for f in letters]
        fits = all(a[1] == b[0] for a, b in pairwise(found))
        return (found[0][0], found[-1][1]) if fits else ()

    def size(self, letter: Letter) -> tuple[str, str]:
        """The meanings of the rows and columns of a letter."""
        if letter.glyph == "Y":  # any stream
            return ("model", "token") if letter.transposed else ("token", "model")
        known = LETTERS.get(letter.glyph)
        row, col = (known.axes if known else None) or self._own.get(letter.glyph, ("model", "model"))
        if letter.glyph == "gain" and letter.label[:1] in ("Q", "K"):
            row = col = "query"
        return (col, row) if letter.transposed else (row, col)

    def unfuse(self, letters: Iterable[Letter], glyphs: tuple[str, ...] = ("X0", "W_OV", "W_QK")) -> Letters:
        """Write abbreviations out."""
        out: list[Letter] = []
        for f in letters:
            parts = _PARTS.get((f.glyph, f.transposed)) if f.glyph in glyphs else None
            shared = self._shared.get(f.label, f.label)
            out += [Letter(g, f.label if g in _HEADED else shared, t) for g, t in parts] if parts else [f]
        return tuple(out)


def sources_named(letters: Iterable[Letter]) -> list[str]:
    """The names of the sources that occur in the letters, in order."""
    names: list[str] = []
    for f in letters:
        if f.glyph in ("X0", "t", "W_E"):
            names.append("embed")
        elif f.glyph == "P":
            names.append("pos")
        elif f.glyph[:2] == "b_" or f.glyph in ("mlp", "rest"):
            names.append(f.glyph + (f"[{f.label}]" if f.label else ""))
    return list(dict.fromkeys(names))


@final
class Matcher:
    """Terms of one expansion by their letters (abbreviated, in the paper's convention)."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion, self.readout = expansion, expansion.readout
        programs = self.readout.sides
        self.spelling = Spelling(expansion.architecture)
        self.sources: list[dict[str, list[Source]]] = [{} for _ in programs]
        for named, program in zip(self.sources, programs, strict=True):
            for s in (s for layer in program for s in layer.sources):
                named.setdefault(s.name, []).append(s)
        self._heads = [{h for heads in side.layer_heads for h in heads} for side in expansion.sides]
        self._paths: dict[tuple[int, Letters], Path | None] = {}

    def make(self, paths: tuple[Path, ...]) -> Term | None:
        """The term of these paths, if the expansion has it."""
        term = Term(self.readout, paths)
        return term if all(self.is_path(i, p) for i, p in enumerate(paths)) else None

    def is_path(self, side: int, path: Path) -> bool:
        """Whether a side has this path."""
        layers = [h.layer for h in path.heads]
        return (
            path.source in self.expansion.sides[side].sources_of(path.heads)
            and all(a < b for a, b in pairwise(layers))
            and all(h in self._heads[side] for h in path.heads)
        )

    def knows(self, side: int, head: Head) -> bool:
        """Whether the paths of a side can go through this head."""
        return head in self._heads[side]

    def source(self, side: int, name: str, heads: tuple[Head, ...]) -> Source | None:
        """The source of that name from which a path through these heads may start."""
        found = self.sources[side].get(name, [])
        inside = [s for s in found if s.head is not None and s.head in heads[:1]]
        return next(iter(inside or [s for s in found if s.head is None]), None)

    def side_letters(self, side: int, path: Path) -> Letters:
        """The letters of one side's path, readout included."""
        return self.spelling.fuse(letters_of(path_factors(self.readout.sides[side], path)))

    def term_letters(self, term: Term) -> Letters:
        """The letters of a term."""
        sides = [self.side_letters(i, p) for i, p in enumerate(term.paths)]
        return self.spelling.fuse(sides[0] if len(sides) == 1 else (*sides[0], *self.turned, *transpose(sides[1])))

    def term(self, letters: Letters) -> Term | None:
        """The term that a product of these letters in this order is, if it is one."""
        if not self.readout.bilinear:
            path = self._path(0, letters)
            return self.make((path,)) if path else None
        return self._score(letters) or self._score(_scalar_turned(letters))

    def _score(self, letters: Letters) -> Term | None:
        letters = self.spelling.canonical(self.spelling.unfuse(letters, ("W_QK",)))
        middle = self.turned
        joints = [
            i for i in range(1, len(letters) - len(middle))
            if letters[i : i + len(middle)] == middle
            and is_reader(letters[i - 1], "Q") and is_reader(letters[i + len(middle)], "K")
        ]  # fmt: skip
        if len(joints) != 1:
            return None
        query = self._path(0, letters[: joints[0]])
        key = self._path(1, transpose(letters[joints[0] + len(middle) :]))
        return self.make((query, key)) if query and key else None

    @property
    def turned(self) -> Letters:
        """The letters between query and key: R if positions are rotary, else none."""
        head = self.readout.head
        return letters_of(rotation(self.expansion.architecture, head)) if head is not None else ()

    def _path(self, side: int, letters: Letters) -> Path | None:
        if (side, letters) not in self._paths:
            self._paths[side, letters] = self._read_path(side, letters)
        return self._paths[side, letters]

    def _read_path(self, side: int, letters: Letters) -> Path | None:
        """The path with these letters: heads from the patterns in front, the source from what follows."""
        n = next((i for i, f in enumerate(letters) if f.glyph not in ("A", "D")), len(letters))
        own = [f.glyph for f in letters[n : n + 1] if not f.label and f.glyph in self.sources[side]]
        names = own or sources_named(letters[n : n + 2])
        heads = tuple(as_head(f.label) for f in reversed(letters[:n]) if f.glyph == "A")
        source = self.source(side, names[0], heads) if names else None
        if source is None:
            return None
        path = Path(source, heads)
        same = self.spelling.canonical
        if not self.is_path(side, path) or same(self.side_letters(side, path)) != same(letters):
            return None
        return path

    # ----------------------------------------------------------------------------------------------- circuits
    def circuit(self, letters: Letters) -> Match | None:
        """The term that has these letters as its circuit, if there is one."""
        if not letters:  # an identity alone
            return None
        same = self.spelling.canonical
        ways = {same(letters)}
        if _is_column(letters[0].T) and _is_column(letters[-1]):  # a number is its own transpose
            ways.add(same(transpose(letters)))
        for rows in (True, False):
            given = letters if rows else transpose(letters)
            paths = self._circuit_paths(given)
            term = self.make(paths) if paths else None
            if term is None:
                continue
            notes = [note for form, note in circuit_forms(self, term) if same(form) in ways]
            if notes:
                return Match(term, notes[0], frozenset((note, *self.spelling.sizes(letters)) for note in notes))
        return None

    def _circuit_paths(self, letters: Letters) -> tuple[Path, ...] | None:
        if not self.readout.bilinear:
            path = self._circuit_path(0, letters)
            return (path,) if path else None
        letters = self.spelling.unfuse(letters, ("W_QK",))
        readers = [i for i, f in enumerate(letters) if f.glyph in READERS]
        if len(readers) != 2:
            return None
        query = self._circuit_path(0, letters[: readers[0] + 1])
        key = self._circuit_path(1, transpose(letters[readers[1] :]))
        return (query, key) if query and key else None

    def _circuit_path(self, side: int, letters: Letters) -> Path | None:
        names = sources_named(letters)
        heads = tuple(as_head(f.label) for f in letters if f.glyph in ("W_OV", "W_O"))
        if names:
            source = self.source(side, names[0], heads)
            return Path(source, heads) if source else None
        of_tokens = (s for named in self.sources[side].values() for s in named if not s.is_bias and s.name != "pos")
        return next((p for p in (Path(s, heads) for s in of_tokens) if self.is_path(side, p)), None)


def multipliers_of_weights(letters: Letters, architecture: Architecture) -> tuple[str, ...]:
    """The multipliers that the letters of a circuit bring, in order: ``W_E`` brings ``m_E``, ``W_OV[L0H1]`` ``r[L0]``.

    The letters at its ends may be left out, and their multipliers with them.
    """
    found = []
    for f in letters:
        layer = f"r[{f.label.partition('H')[0]}]"
        brought = {"W_E": "m_E", "W_OV": layer, "W_O": layer, "b_O": layer, "W_U": "m_U", "b_U": "m_U"}
        found += [name for name in (brought.get(f.glyph, ""),) if name in architecture.multipliers]
    return tuple(sorted(found, key=scalar_order))


def of_tokens_in(architecture: Architecture) -> frozenset[str]:
    """The letters that are not part of a circuit: all with a row for each token, except positions."""
    return frozenset({*OF_TOKENS, *(part.name for part in architecture.parts)})


def circuit_forms(matcher: Matcher, term: Term) -> list[tuple[Letters, str]]:
    """The ways to write the circuit of a term: with and without embedding and unembedding, transposed or not."""
    of_tokens = of_tokens_in(term.readout.architecture)
    inner = tuple(f for f in matcher.spelling.unfuse(matcher.term_letters(term), ("X0",)) if f.glyph not in of_tokens)
    starts = [inner, inner[1:]] if inner and inner[0].glyph == "W_E" else [inner]
    if term.readout.bilinear:
        bare = [f[:-1] if f[-1].glyph == "W_E" else f for f in starts]
        forms = [(f, "") for f in dict.fromkeys((*starts, *bare)) if f]
        if inner and inner[0].glyph == inner[-1].glyph == "W_E" and len({bool(p.heads) for p in term.paths}) == 2:
            forms.append((transpose(inner[1:-1]), "transposed, as in the paper's composition scores"))
        return forms
    bare = [f[:-1] for f in starts if f and f[-1].glyph == "W_U"]
    heads = [_without_norm(f) for f in bare]  # as in a composition score: what one head reads of another
    rows = [
        f for f in dict.fromkeys((*starts, *bare, *heads)) if f and (len(f) > 1 or f[0].glyph not in ("W_E", "W_U"))
    ]
    return [(f, "as it acts on rows, [in, out]") for f in rows] + [
        (transpose(f), "as the paper prints it, [out, in]") for f in rows
    ]


def _without_norm(letters: Letters) -> Letters:
    """The circuit without the norm after its last weight."""
    end = len(letters)
    while end and letters[end - 1].glyph in ("C", "gain"):
        end -= 1
    return letters[:end]
