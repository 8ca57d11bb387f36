"""Finds the right term nearest to a wrong one, and names the mistake between them.

Candidates are the terms whose paths the letters suggest: the heads of the patterns, of the OV matrices, of both. The
nearest is the one with the fewest changes; the changes say what the mistake was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from symcircuits.checking.formula import Letter
from symcircuits.checking.matching import Letters, Matcher, Spelling, circuit_forms, sources_named, transpose
from symcircuits.core import words as algebra
from symcircuits.core.architecture import Architecture, Head, as_head, possible_biases
from symcircuits.core.expansion import Term
from symcircuits.core.paths import Path
from symcircuits.core.programs import readout, rotation
from symcircuits.core.rules import check_finished
from symcircuits.core.symbols import ABBREVIATIONS, READERS, SYMMETRIC
from symcircuits.core.words import Factor, IllTyped, Symbol, Word

__all__ = [
    "MISTAKES", "Counterpart", "Edit", "Nearest", "counterpart", "mistake_between", "mistake_of", "nearest",
    "nearest_terms", "type_fault",
]  # fmt: skip

# All names of mistakes, the most specific first; the order decides if several apply.
MISTAKES: Final = (
    "tensor-dropped", "pattern-side", "position-in-ov", "bias-per-head", "norm-side", "gain-order", "rotation-sign",
    "layer-order", "query-key-swap", "wrong-head", "wrong-norm", "transpose", "wrong-matrix", "factor-order",
    "doubled-factor", "dropped-factor", "extra-factor", "scale", "extra-terms", "missing-terms", "count", "hypothesis",
    "unknown",
)  # fmt: skip
_LONGEST: Final = 250  # letters: the nearest term is searched for words of at most so many
_TURN, _RELABEL, _CHANGE, _MISSING, _EXTRA, _ORDER = 100, 100, 200, 100, 110, 100
_LIGHT = 30  # cost of all letters of norms, which are often left out together


class Edit(NamedTuple):
    """One change.

    ``kind`` is ``turn``, ``relabel``, ``change``, ``missing``, ``extra``, ``order``, ``whole`` or ``sides``.
    """

    kind: str
    given: Letter | None = None
    right: Letter | None = None


class Nearest(NamedTuple):
    """The nearest right term, as written, and the changes that lead to it."""

    term: Term
    letters: Letters
    edits: tuple[Edit, ...]
    cost: int

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources in it."""
        return self.term.sources

    @property
    def heads(self) -> set[Head]:
        """The heads on its path."""
        return {h for heads in self.term.heads for h in heads}


class Counterpart(NamedTuple):
    """The right product nearest to a wrong one that is not a whole term, and the changes to it."""

    letters: Letters
    edits: tuple[Edit, ...]
    cost: int

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources in it."""
        return tuple(sources_named(self.letters))

    @property
    def heads(self) -> set[Head]:
        """The heads on its path."""
        return set(_heads(self.letters, ("A", "W_OV", "W_O")))


class _Where(NamedTuple):
    """What else identifies a mistake: whether there are two sides, the spelling, and the heads on the paths."""

    bilinear: bool
    spelling: Spelling
    knows: Callable[[Head], bool]


# ------------------------------------------------------------------------------------------------- distance
@lru_cache(maxsize=1 << 16)
def _replacement(given: Letter, right: Letter) -> tuple[int, str]:
    """The cost of replacing one letter by another, and the kind of that change."""
    turned = _TURN * (given.transposed != right.transposed)
    if given.name == right.name:
        return turned, "turn" if turned else ""
    if given.glyph == right.glyph:
        return turned + _RELABEL + 5 * (given.glyph == "A"), "relabel"
    swapped = {given.glyph, right.glyph} == {"P", "X0"}
    return turned + _RELABEL if swapped else _CHANGE, "change"


def _aligned(given: Letters, right: Letters) -> tuple[int, tuple[Edit, ...]]:
    """The cheapest changes from one product to the other, letter by letter."""
    missing = [_LIGHT if b.glyph in SYMMETRIC else _MISSING for b in right]
    rows = [[sum(missing[:j]) for j in range(len(right) + 1)]]
    for i, a in enumerate(given, 1):
        row = [i * _EXTRA]
        for j, b in enumerate(right, 1):
            put = rows[i - 1][j - 1] + _replacement(a, b)[0]
            row.append(min(put, rows[i - 1][j] + _EXTRA, row[j - 1] + missing[j - 1]))
        rows.append(row)
    edits: list[Edit] = []
    i, j = len(given), len(right)
    while i or j:
        if i and j and rows[i][j] == rows[i - 1][j - 1] + _replacement(given[i - 1], right[j - 1])[0]:
            kind = _replacement(given[i - 1], right[j - 1])[1]
            edits += [Edit(kind, given[i - 1], right[j - 1])] if kind else []
            i, j = i - 1, j - 1
        elif j and rows[i][j] == rows[i][j - 1] + missing[j - 1]:
            edits.append(Edit("missing", None, right[j - 1]))
            j -= 1
        else:
            edits.append(Edit("extra", given[i - 1]))
            i -= 1
    return rows[-1][-1], tuple(reversed(edits))


def _distance(given: Letters, right: Letters) -> tuple[int, tuple[Edit, ...]]:
    """The smallest change: letter by letter, another order of the same letters, or the whole transposed."""
    found = _aligned(given, right)
    names = [f.name for f in given], [f.name for f in right]
    if found[0] > _ORDER and names[0] != names[1] and Counter(names[0]) == Counter(names[1]):
        left_over = Counter(given) - Counter(right)
        turned = tuple(Edit("turn", f, f.T) for f in given if left_over[f] > 0)
        reordered = _ORDER + 5 + _TURN * len(turned), (Edit("order"), *turned)
        found = min(found, reordered, key=lambda f: f[0])
    if found[0] > _ORDER and given == transpose(right):
        found = min(found, (_ORDER + 50, (Edit("whole"),)), key=lambda f: f[0])
    return found


# ----------------------------------------------------------------------------------------------- candidates
def _heads(letters: Letters, glyphs: tuple[str, ...]) -> list[Head]:
    return list(dict.fromkeys(as_head(f.label) for f in letters if f.glyph in glyphs and "G" not in f.label))


def _chains(letters: Letters) -> Iterator[tuple[Head, ...]]:
    """The chains of heads in the patterns, in the OV matrices, in either or in both."""
    left, right = _heads(letters, ("A",)), _heads(letters, ("W_OV", "W_O", "W_V", "b_V"))
    for heads in (left + right, left, right, [h for h in left if h in right]):
        for order in (heads, heads[::-1]):
            by_layer = {h.layer: h for h in order}
            yield tuple(by_layer[layer] for layer in sorted(by_layer))


def _paths(matcher: Matcher, side: int, letters: Letters) -> list[Path]:
    """The paths of one side that the letters suggest."""
    sources = matcher.sources[side]
    names = dict.fromkeys((*sources_named(letters), "embed", "pos"))
    named = [source for n in names for source in sources.get(n, ())]
    found: dict[str, Path] = {}
    for chain in _chains(letters):
        for source in named:
            later = chain if source.head is None else (source.head, *(h for h in chain if h > source.head))
            for heads in (later, tuple(h for h in later if matcher.knows(side, h))):
                path = Path(source, heads)
                if matcher.is_path(side, path):
                    found[path.label] = path
        found |= {s.name: Path(s, ()) for s in named if matcher.is_path(side, Path(s, ()))}
    return list(found.values())


def _candidates(matcher: Matcher, letters: Letters, circuit: bool) -> Iterator[Term]:
    if not matcher.readout.bilinear:
        yield from (t for p in _paths(matcher, 0, letters) if (t := matcher.make((p,))))
        return
    for given in (letters, transpose(letters)):
        for start, end in _cuts(given):
            parts = given[:end], transpose(given[start:])
            best = [_best_paths(matcher, i, part, circuit) for i, part in enumerate(parts)]
            yield from (t for q in best[0] for k in best[1] if (t := matcher.make((q, k))))


def _cuts(letters: Letters) -> list[tuple[int, int]]:
    """The places where the query side may end and the key side start: around W_QK, or anywhere without one."""
    readers = [i for i, f in enumerate(letters) if f.glyph in READERS]
    if readers:
        middle = [(i, i + 1) for i in readers] if len(readers) != 2 else [(readers[1], readers[0] + 1)]
        return [(start, end) for start, end in middle]
    step = max(1, len(letters) // 12)
    return [(i, i) for i in range(0, len(letters) + 1, step)]


def _best_paths(matcher: Matcher, side: int, letters: Letters, circuit: bool) -> list[Path]:
    paths = _paths(matcher, side, letters)
    if len(paths) <= 3 or circuit:
        return paths[:8]
    return sorted(paths, key=lambda p: _distance(matcher.spelling.fuse(letters), matcher.side_letters(side, p))[0])[:3]


def _forms(matcher: Matcher, term: Term, given: Letters, circuit: bool) -> Iterator[tuple[Letters, Letters]]:
    """Ways to write the term, each with the given letters in the same abbreviations."""
    forms = [f for f, _ in circuit_forms(matcher, term)] if circuit else [matcher.term_letters(term)]
    for form in [f for f in forms if _ends(f) == _ends(given)] or forms:
        yield given, form
        written = {f.glyph for f in given}
        spelled = tuple(w for w, parts in ABBREVIATIONS.items() if written & {*parts})
        if spelled:
            yield matcher.spelling.unfuse(given, spelled), matcher.spelling.unfuse(form, spelled)


def _ends(letters: Letters) -> int:
    """The number of embeddings and unembeddings in a circuit."""
    return sum(f.glyph in ("W_E", "W_U") for f in letters)


def nearest(matcher: Matcher, letters: Letters, circuit: bool = False) -> Nearest | None:
    """The right term with the fewest changes; None if none is near.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> wrong = Letter("A", "L0H0"), Letter("X0"), Letter("W_OV", "L0H0"), Letter("W_U", "", True)
    >>> found = nearest(Matcher(logits(attention_only((2,)))), wrong)
    >>> found.term.label, found.edits[0].kind
    ('embed -> L0H0', 'turn')
    """
    if len(letters) > _LONGEST:
        return None
    if matcher.readout.bilinear and not circuit and (swapped := _sides_swapped(matcher, letters)):
        return swapped
    best: tuple[tuple[int, int], Nearest] | None = None
    for term in {t.label: t for t in _candidates(matcher, letters, circuit)}.values():
        number = matcher.expansion.index(term)
        for given, form in _forms(matcher, term, letters, circuit):
            cost, edits = _distance(given, form)
            if edits and (best is None or (cost, number) < best[0]):
                spelled = any(e.kind == "order" for e in edits)  # then the mistake is in the order
                best = (cost, number), Nearest(term, form if spelled else matcher.spelling.fuse(form), edits, cost)
    return best[1] if best and best[1].cost <= 250 + 40 * len(letters) else None


def _sides_swapped(matcher: Matcher, letters: Letters) -> Nearest | None:
    """The term whose patterns are the given ones with query side and key side swapped."""
    n = next((i for i, f in enumerate(letters) if f.glyph not in ("A", "D")), len(letters))
    m = next((i for i, f in enumerate(reversed(letters)) if f.glyph not in ("A", "D")), len(letters))
    if (not n and not m) or n + m >= len(letters):
        return None
    end = len(letters) - m
    moved = (*transpose(letters[end:]), *letters[n:end], *transpose(letters[:n]))
    term = matcher.term(moved)
    return None if term is None else Nearest(term, matcher.term_letters(term), (Edit("sides"),), _ORDER)


# ---------------------------------------------------------------------------------------------------- names
def mistake_of(matcher: Matcher, letters: Letters, found: Nearest | None) -> str:
    """The name of the mistake, a stable word."""
    architecture = matcher.expansion.architecture
    strangers = [n for n in sources_named(letters) if _strange(architecture, n)]
    if strangers:
        return "extra-terms"
    if _position_in_ov(matcher, letters):
        return "position-in-ov"
    if found is None:
        return "unknown"
    where = _Where(matcher.readout.bilinear, matcher.spelling,
                   lambda head: any(matcher.knows(i, head) for i in range(len(matcher.sources))))  # fmt: skip
    return min({_kind(where, letters, found, edit) for edit in found.edits}, key=MISTAKES.index)


def nearest_terms(matcher: Matcher, letters: Letters) -> Iterator[Letters]:
    """The letters of the terms that some weights suggest."""
    for term in {t.label: t for t in _candidates(matcher, letters, True)}.values():
        yield matcher.term_letters(term)


def counterpart(letters: Letters, right: Iterable[Letters], spelling: Spelling) -> Counterpart | None:
    """The nearest of some right products, in the spelling of the wrong one.

    >>> from symcircuits.core.architecture import attention_only
    >>> wrong, right = (Letter("W_OV", "L0H0"),), (Letter("W_OV", "L0H0", True),)
    >>> [e.kind for e in counterpart(wrong, [right], Spelling(attention_only((1,)))).edits]
    ['turn']
    """
    if len(letters) > _LONGEST:
        return None
    best: Counterpart | None = None
    for form in right:
        written = {f.glyph for f in (*letters, *form)}
        ways = [(letters, form)]
        spelled = tuple(w for w, parts in ABBREVIATIONS.items() if written & {*parts})
        if spelled:
            ways.append((spelling.unfuse(letters, spelled), spelling.unfuse(form, spelled)))
        for given, other in ways:
            cost, edits = _distance(given, other)
            if edits and (best is None or cost < best.cost):
                order = any(e.kind == "order" for e in edits)
                best = Counterpart(other if order else spelling.fuse(other), edits, cost)
    return best if best and best.cost <= 250 + 40 * len(letters) else None


def mistake_between(letters: Letters, found: Counterpart, spelling: Spelling) -> str:
    """The name of the mistake between a product and the right one."""
    bilinear = any(f.glyph in READERS for f in found.letters)
    where = _Where(bilinear, spelling, lambda head: True)
    return min({_kind(where, letters, found, edit) for edit in found.edits}, key=MISTAKES.index)


def _strange(architecture: Architecture, source: str) -> bool:
    """Whether the model does not have such a source."""
    if source == "pos":
        return architecture.positions is None
    mlps = [f"mlp[L{layer}]" for layer in architecture.mlps if not architecture.parts_of("mlp", layer)]
    if source.startswith("rest["):
        return False  # a source that the model lacks is not read
    return source != "embed" and source not in architecture.biases and source not in mlps


def _position_in_ov(matcher: Matcher, letters: Letters) -> bool:
    """Whether the position is used like the stream, although it enters only queries and keys."""
    if matcher.expansion.architecture.positions != "shortformer" or all(f.glyph != "P" for f in letters):
        return False
    if not matcher.readout.bilinear:
        return True
    cut = next((i for i, f in enumerate(letters) if f.glyph in READERS), len(letters))
    sides = letters[:cut], letters[cut:]
    return any({"P"} < {f.glyph for f in s} and any(f.glyph in ("W_OV", "W_O", "W_V", "A") for f in s) for s in sides)


def _kind(where: _Where, letters: Letters, found: Nearest | Counterpart, edit: Edit) -> str:
    given, right = edit.given, edit.right
    if edit.kind == "turn":
        if given and given.glyph == "R":
            return "rotation-sign"
        return "query-key-swap" if given and given.glyph == "W_QK" else "transpose"
    if edit.kind == "sides":
        return "query-key-swap"
    if edit.kind == "whole":
        return "query-key-swap" if where.bilinear else "transpose"
    if edit.kind == "order":
        spelled = where.spelling.unfuse
        return _order_kind(spelled(letters), spelled(found.letters))
    bias = [n for n in found.sources if n[:3] in ("b_V", "b_O")]
    if edit.kind == "relabel":
        assert given is not None
        assert right is not None
        if right.glyph in ("D", "gain", "b_N"):
            return "wrong-norm"
        inside = any(n == f"b_V[{right.label}]" for n in bias)
        return "bias-per-head" if inside and given.glyph in ("A", "b_V", "W_O") else "wrong-head"
    if edit.kind == "missing":
        return "dropped-factor"
    if edit.kind == "change" or given is None:
        return "wrong-matrix"
    return _extra_kind(where, letters, found, given, bias)


def _extra_kind(
    where: _Where, letters: Letters, found: Nearest | Counterpart, given: Letter, bias: Sequence[str]
) -> str:
    in_given, in_right = (Counter(f.name for f in ls) for ls in (letters, found.letters))
    if in_given[given.name] > in_right[given.name] > 0:
        return "doubled-factor"
    if given.glyph not in ("A", "W_OV", "W_O", "W_V") or "G" in given.label:
        return "extra-factor"
    head = as_head(given.label)
    if given.glyph == "A" and f"b_O[L{head.layer}]" in bias:
        return "bias-per-head"
    others = found.heads
    late = not where.knows(head)
    if late or (head not in others and any(h.layer == head.layer for h in others)):
        return "layer-order"
    return "extra-factor"


def _order_kind(letters: Letters, right: Letters) -> str:
    """The kind of a wrong order, abbreviations written out: of the heads, of the sides, or of other factors."""

    def sides(ls: Letters) -> list[Counter[tuple[str, str]]]:
        cut = next((i for i, f in enumerate(ls) if f.glyph in READERS), len(ls))
        return [Counter(f.name for f in part if f.glyph != "R") for part in (ls[:cut], ls[cut:])]

    def heads(ls: Letters, glyph: str) -> list[str]:
        return [f.label for f in ls if f.glyph == glyph]

    def order(ls: Letters, glyphs: tuple[str, ...]) -> list[tuple[str, str]]:
        return [f.name for f in ls if f.glyph in glyphs]

    if order(letters, READERS) and (sides(letters) != sides(right) or order(letters, READERS) != order(right, READERS)):
        return "query-key-swap"
    if any(heads(letters, g) != heads(right, g) for g in ("A", "W_O", "W_V")):
        return "layer-order"
    if order(letters, ("A", "D")) != order(right, ("A", "D")) or _crossed(letters) != _crossed(right):
        return "norm-side"
    if order(letters, ("C", "gain")) and order(letters, _GAINED) != order(right, _GAINED):
        return "gain-order"
    return "factor-order"


_GAINED: Final = ("C", "gain", "R", "W_Q", "W_K", "W_V", "W_U")


def _crossed(letters: Letters) -> list[str]:
    """On which side of the sources the norms are."""
    return ["D" if f.glyph == "D" else "X" for f in letters if f.glyph in ("D", "X0", "t", "P", "ones", "mlp")]


# ---------------------------------------------------------------------------------------------------- types
def type_fault(architecture: Architecture, letters: Letters, scales: tuple[str, ...], circuit: bool) -> str:
    """Why a product does not fit the types; empty if it does.

    >>> from symcircuits.core.architecture import attention_only
    >>> wrong = Letter("W_QK", "L1H0"), Letter("W_OV", "L0H0", True)
    >>> print(type_fault(attention_only((1, 1)), wrong, (), True)[:53])
    W_QK[L1H0] @ W_OV[L0H0].T cannot be multiplied: W_QK[
    """
    labels = {f.label for f in letters if f.glyph in READERS}
    heads = frozenset(str(h) for h in architecture.all_heads if {str(h), architecture.key_value(h)} & labels)
    symbols = _symbols(architecture, heads)
    chains: list[tuple[Factor, ...]] = [()]
    for f in Spelling(architecture).unfuse(letters):
        ways = [Factor(s, f.transposed) for s in symbols.get(f.name, ())]
        ways += [w.T for w in ways if f.glyph in SYMMETRIC]
        if not ways:
            return ""
        chains = _led_on(chains, ways)
    return min((_fault_of(chain, scales, circuit) for chain in chains), key=bool)


def _led_on(chains: list[tuple[Factor, ...]], ways: list[Factor]) -> list[tuple[Factor, ...]]:
    """The typed products with one more letter, one for each of its readings that fits a product.

    C and a gain have several readings, one for each norm. If none fits, the first product continues with a reading that
    has the same reader, if there is one.
    """
    fits = [(c, w) for w in ways for c in chains if not c or not algebra.contraction_fault(c[-1].col, w.row)]
    if fits:
        return [(*c, w) for w, c in {w: c for c, w in reversed(fits)}.items()][::-1]
    first = chains[0]
    return [(*first, min(ways, key=lambda w: w.row.reader == first[-1].col.reader))]


def _fault_of(typed: tuple[Factor, ...], scales: tuple[str, ...], circuit: bool) -> str:
    """Why a typed product does not fit the types; empty if it does."""
    try:
        word = Word(algebra.fuse(typed), scales)
        if not circuit:
            check_finished(word)
    except IllTyped as fault:
        return str(fault)
    return ""


@lru_cache(maxsize=8)
def _symbols(architecture: Architecture, heads: frozenset[str]) -> dict[tuple[str, str], tuple[Symbol, ...]]:
    """The typed symbols of a model with every possible source; some have one for each place."""
    biases = frozenset(possible_biases(replace(architecture, unembed=True)))
    full = replace(architecture, positions=architecture.positions or "standard", biases=biases, unembed=True)
    programs = list(readout(full, "logits").sides)
    for head in sorted(heads) or [str(h) for h in full.all_heads[:1]]:
        programs += readout(full, f"scores:{head}").sides
    for reading in architecture.readings:
        programs += readout(full, f"readout:{reading.name}").sides
    found: dict[tuple[str, str], dict[Symbol, None]] = {}
    for layer in (layer for program in programs for layer in program):
        factors = [f for s in layer.sources for f in s.factors]
        factors += [f for b in layer.branches for f in b.left + b.right]
        for f in factors:
            found.setdefault((f.symbol.glyph, f.symbol.label), {})[f.symbol] = None
    for f in (f for head in full.all_heads for f in rotation(full, head)):
        found[f.symbol.glyph, f.symbol.label] = {f.symbol: None}
    return {name: tuple(symbols) for name, symbols in found.items()}
