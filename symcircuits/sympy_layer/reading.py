"""Any SymPy expression of a model, read as typed terms: multiplied out by SymPy, each product typed by the word rules.

Letters of either set are read: noncommutative symbols from any source, ``MatrixSymbol``s, or heads of
a layer (``A_L0[3]``). An expression that cannot be typed raises ValueError, naming the part at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Any, Final

from sympy import Add, Mul, S, expand, sympify, transpose
from sympy.core.sympify import SympifyError

from symcircuits.core.architecture import Architecture, Described, Head, architecture_of
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.paths import Path, path_factors
from symcircuits.core.programs import Program, Source, made_once, readout, rotation, stream_program
from symcircuits.core.rules import check_finished, is_score, score_sides
from symcircuits.core.symbols import READERS
from symcircuits.core.text import amount, brief
from symcircuits.core.words import (
    Factor,
    IllTyped,
    Word,
    contraction_fault,
    product,
    scalar_order,
)
from symcircuits.core.words import Symbol as TypedSymbol
from symcircuits.sympy_layer.canonical import CanonicalLetters, multiplied_out
from symcircuits.sympy_layer.families import Family, OfTerm
from symcircuits.sympy_layer.letters import IndexedLetter, LetterSymbol, Names, Read, letter_named

__all__ = ["TypedFamily", "TypedTerm", "read"]

MAX_TYPINGS: Final = 4_096  # per product


@dataclass(frozen=True, slots=True)
class TypedTerm(OfTerm):
    """A product of an expression, typed: the model's term, its coefficient, and the product as it was read.

    ``coefficient`` is a whole number, or a :class:`~fractions.Fraction`; ``word`` is the product as it was read; for
    unscaled scores it lacks the scale that ``term`` has.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import scores
    >>> arch = attention_only((1, 1))
    >>> term = read(3 * scores(arch, "L1H0")[1], arch)[0]
    >>> term.coefficient, term.composition, term.orders, term.label
    (3, 'K', (0, 1), 'embed | embed -> L0H0')
    """

    coefficient: int | Fraction
    term: Term
    word: Word

    @property
    def target(self) -> str:
        """``logits``, ``stream``, ``scores:L1H0`` or ``readout:probe``."""
        return self.term.readout.target

    @property
    def label(self) -> str:
        """``embed -> L0H1 -> L1H0``; for scores ``query path | key path``."""
        return self.term.label

    @property
    def count(self) -> Any:
        """How many terms it represents: 1, or the number of terms of a family."""
        return 1

    @property
    def text(self) -> str:
        """The product in text notation, preceded by its coefficient."""
        return f"{self.coefficient} * {self.word.text}" if self.coefficient != 1 else self.word.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label} ({self.composition}): {self.text}>"


@dataclass(frozen=True, slots=True, repr=False)
class TypedFamily(TypedTerm):
    """Products under sums over heads, typed: the family of their terms; ``term`` is that of the first heads.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.sympy_layer.streams import symbolic
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> arch = attention_only((H_1, H_2))
    >>> [(f.composition, f.label, f.count) for f in read(symbolic(arch).scores("L1H0"), arch)][1:3]
    [('K', 'embed | embed -> k_1', H_1), ('Q', 'embed -> q_1 | embed', H_1)]
    """

    family: Family

    @property
    def label(self) -> str:
        """``embed -> h_1 -> h_2``; for scores ``embed -> q_1 | embed -> k_1``."""
        return self.family.label

    @property
    def count(self) -> Any:
        """The number of its terms, in the numbers of heads."""
        return self.family.count


def read(expression: Any, subject: Architecture | Described) -> list[TypedTerm]:
    """The typed terms of a SymPy expression of a model, multiplied out or not, in the order of their expansion.

    ``expression`` may use ``W_OV`` and ``W_QK`` or their factors, the symbols of :func:`symbolic`,
    other noncommutative symbols of these names, or ``MatrixSymbol`` objects; it may also be a term or an expansion.
    Scores may all lack their scale. SymPy multiplies it out, and every product is typed by the rules of words
    (:mod:`symcircuits.core.rules`), looked up among the terms of the architecture and compared letter by letter.

    Returns :class:`TypedTerm` objects; with symbolic numbers of heads :class:`TypedFamily` objects, for products
    under sums over all heads of a layer (``Sum(..., (h_1, 0, H_1 - 1))``).

    Raises ValueError (:class:`~symcircuits.core.words.IllTyped` if a product breaks a rule) with the name of what
    cannot be typed: a symbol that is unknown, or that commutes although order matters, a floating-point number, an
    infinity, a function, a wrong transpose; or if there is too much to multiply out. TypeError if it is not an
    expression. Source: own derivation; paper, "Path Expansion".

    >>> from sympy import symbols, transpose
    >>> from symcircuits.core.architecture import attention_only
    >>> A, t, E, O, QK = symbols("A_L0H0 t W_E W_OV_L0H0 W_QK_L1H0", commutative=False)
    >>> X0 = t * transpose(E)
    >>> X1 = X0 + A * X0 * transpose(O)
    >>> for term in read(X1 * QK * transpose(X1), attention_only((1, 1))):
    ...     print(f"{term.composition:5}{term.label}")
    none embed | embed
    K    embed | embed -> L0H0
    Q    embed -> L0H0 | embed
    QK   embed -> L0H0 | embed -> L0H0
    """
    architecture = architecture_of("read(expression, subject)", subject, symbolic=True)
    letters = CanonicalLetters(Names(architecture), architecture.symbolic)
    try:
        letters.count(given := _expression(expression))
        canonical = letters.canonical(given)
        if architecture.symbolic:
            return _read_families(canonical, architecture)
        multiplied = expand(canonical)
    except RecursionError:
        raise ValueError("the expression is nested too deeply to be read") from None
    typing = _typing(architecture)
    found = [typing.term(*_taken_apart(one)) for one in Add.make_args(multiplied) if one is not S.Zero]
    return sorted(found, key=typing.place)


def _expression(given: Any) -> Any:
    if isinstance(given, str):
        raise TypeError("read takes a SymPy expression, not a text: check(formula, architecture) reads texts")
    try:
        return sympify(given, strict=True)
    except (SympifyError, TypeError):
        raise TypeError(f"read takes a SymPy expression, a term or an expansion, not {brief(given)}") from None


def _taken_apart(one: Any) -> tuple[int | Fraction, tuple[str, ...], tuple[Read, ...]]:
    """A product of canonical letters: its coefficient, its scalars and its letters in order."""
    coefficient, scalars, letters = Fraction(1), list[str](), list[Read]()
    for factor in Mul.make_args(one):
        if factor.is_Rational:
            coefficient *= Fraction(int(factor.p), int(factor.q))
            continue
        base, power = factor.as_base_exp()
        for part in list(Mul.make_args(base)) * int(power):
            turned = isinstance(part, transpose)
            name = part.args[0].name if turned else part.name
            if part.is_commutative:
                scalars.append(name)
            elif not (letters and name[:2] == "R[" and turned and letters[-1] == Read(name)):  # R R^T is one R
                letters.append(Read(name, turned))
    return _plain(coefficient), tuple(scalars), tuple(letters)


def _plain(coefficient: Fraction) -> int | Fraction:
    return int(coefficient) if coefficient.denominator == 1 else coefficient


# ------------------------------------------------------------------------------------------ sums over heads
Places = dict[Any, set[tuple[int, int]]]  # by index: the sides and layers in which it occurs


def _read_families(canonical: Any, architecture: Architecture) -> list[TypedTerm]:
    """The typed families of an expression: each head of a product under a sum over all heads of its layer."""
    found: dict[tuple[str, int], TypedTerm] = {}
    for limits, factors in multiplied_out(canonical):
        if S.Zero in factors:
            continue
        scored = [head for head in (_scored(f, architecture) for f in factors) if head is not None]
        letters, places = _first_heads(factors, architecture)
        typing = _typing(architecture.generic(scored[0] if scored else None))
        typed = typing.term(*_taken_apart(Mul(*letters)))
        _check_sums(typed, limits, places, architecture)
        place = typing.place(typed)
        before = found[place].coefficient if place in found else 0
        found[place] = replace(typed, coefficient=_plain(Fraction(before + typed.coefficient)))
    return [
        TypedFamily(one.coefficient, one.term, one.word, Family(architecture, one.term))
        for _, one in sorted(found.items(), key=lambda item: item[0])
        if one.coefficient
    ]


def _scored(factor: Any, architecture: Architecture) -> Head | None:
    """The head whose query or key a letter is, if any."""
    letter = factor.args[0] if isinstance(factor, transpose) else factor
    named = letter_named(letter.name) if isinstance(letter, LetterSymbol) else None
    return architecture.head(named.label) if named is not None and named.glyph in READERS else None


def _first_heads(factors: Sequence[Any], architecture: Architecture) -> tuple[list[Any], Places]:
    """The factors with the first head of a layer in place of any, and where each index occurred."""
    letters, places, side = list[Any](), Places(), 0
    for factor in factors:
        turned = isinstance(factor, transpose)
        letter = factor.args[0] if turned else factor
        if isinstance(letter, IndexedLetter):
            glyph, _, label = str(letter.base).rpartition("_")
            places.setdefault(letter.indices[0], set()).add((side, int(label.rpartition("L")[2])))
            letter = LetterSymbol(f"{glyph}[{label}H0]")
        elif _scored(factor, architecture) is not None:
            side = 1  # from here on the keys
        letters.append(transpose(letter) if turned else letter)
    return letters, places


def _check_sums(typed: TypedTerm, limits: Sequence[Any], places: Places, architecture: Architecture) -> None:
    """Raise ValueError if the heads of a product are not each summed over, once, from the first head to the last."""
    over = {index: (lower, upper) for index, lower, upper in limits}
    wanted = sorted((side, h.layer) for side, heads in enumerate(typed.term.heads) for h in heads)
    found = sorted(place for stood in places.values() for place in stood)
    if len(over) < len(limits) or found != wanted or len(places) != len(wanted) or places.keys() != over.keys():
        shown = ", ".join(str(index) for index, *_ in limits) or "no index"
        raise ValueError(
            f"{typed.text} (each head the first of its layer) is summed over {shown}: it goes through "
            f"{amount(len(wanted), 'head')}, and each needs a sum over an index that is on all its symbols, and on "
            "those alone; for given heads, give numbers of heads too"
        )
    for index, stood in places.items():
        [(_, layer)] = stood
        if over[index] != (0, S(architecture.heads[layer]) - 1):
            raise ValueError(
                f"the sum over {index} goes from {over[index][0]} to {over[index][1]}: the heads of layer {layer} are "
                f"0 to {S(architecture.heads[layer]) - 1}"
            )


# ------------------------------------------------------------------------------------------------- typing
class _Typing:
    """The typed symbols of an architecture by their names, and its terms by their words."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self._expansions: dict[str, Expansion] = {}
        self._scalars = {name: name for name in sorted(architecture.multipliers, key=scalar_order)}
        if architecture.scale:
            self._scalars |= {f"scale[{head}]": head.label for head in architecture.all_heads}

    @cached_property
    def symbols(self) -> dict[str, list[TypedSymbol]]:
        """Every symbol that may occur in a term; under some names (``C``, ``ones``) there are several."""
        arch, found = self.architecture, dict[str, dict[TypedSymbol, None]]()
        seen: dict[int, Any] = {}
        with made_once():
            for program in self._programs():
                for layer in program:
                    if id(layer) not in seen:
                        seen[id(layer)] = layer
                        branches = (f for b in layer.branches for f in (*b.left, *b.right))
                        for f in chain(branches, (f for s in layer.sources for f in s.factors)):
                            found.setdefault(f.symbol.text, {})[f.symbol] = None
        for head in arch.all_heads:
            for f in rotation(arch, head):
                found.setdefault(f.symbol.text, {})[f.symbol] = None
        return {name: list(symbols) for name, symbols in found.items()}

    def _programs(self) -> Iterator[Program]:
        arch = self.architecture
        yield stream_program(arch, arch.n_layers)
        for target in arch.targets(arch.all_heads):
            yield from readout(arch, target).sides

    def term(self, coefficient: int | Fraction, scalars: tuple[str, ...], letters: tuple[Read, ...]) -> TypedTerm:
        """The typed term of a product; raises ValueError if it is not one."""
        if not letters:
            raise ValueError(f"{coefficient if not scalars else ' * '.join(scalars)} alone is not a matrix")
        names = tuple(sorted(map(self._scalar, scalars), key=scalar_order))
        return TypedTerm(coefficient, *self._typed(letters, names))

    def place(self, typed: TypedTerm) -> tuple[str, int]:
        """The sort key of typed terms: their target, their number in its expansion."""
        return typed.target, self._expansion(typed.target).index(typed.term)

    def _expansion(self, target: str) -> Expansion:
        if target not in self._expansions:
            self._expansions[target] = Expansion(readout(self.architecture, target))
        return self._expansions[target]

    def _scalar(self, name: str) -> str:
        if name not in self._scalars:
            there = ", ".join(islice(self._scalars, 8)) + ", ..." * (len(self._scalars) > 8)
            raise ValueError(f"{name} is not a scale or multiplier of {self.architecture}; it has {there or 'none'}")
        return self._scalars[name]

    def _typed(self, letters: Sequence[Read], scales: tuple[str, ...]) -> tuple[Term, Word]:
        """The term and the word of these letters, if the rules accept it; otherwise raises the first fault found."""
        options = [[Factor(s, way) for s in self._named(letter.name) for way in letter.ways] for letter in letters]
        reached = [options[0]]
        for one in options[1:]:
            fitting = [f for f in one if any(not contraction_fault(p.col, f.row) for p in reached[-1])]
            if not fitting:
                product((reached[-1][0], one[0]))
            reached.append(fitting)
        fault: ValueError | None = None
        for factors in islice(_chains(reached), MAX_TYPINGS):
            try:
                word = check_finished(Word(factors, scales), multipliers=self.architecture.multipliers)
            except IllTyped as refused:
                fault = fault or refused
                continue
            term = self._found(word)
            if term is not None:
                return term, word
            fault = ValueError(f"{word.text} is typed correctly, but is not a term of {self.architecture}")
        assert fault is not None
        raise fault

    def _named(self, name: str) -> list[TypedSymbol]:
        found = self.symbols.get(name)
        if found is None:
            named = letter_named(name)
            if named is not None and "H" in named.label:
                self.architecture.head(named.label.lstrip("QK"))  # raises, with the heads there are
            raise ValueError(f"{name} is not a symbol of {self.architecture}")
        return found

    # ------------------------------------------------------------------------------------------ terms by words
    def _found(self, word: Word) -> Term | None:
        """The term that a finished word is: each side is compared letter by letter."""
        target, sides = self._target(word)
        asked = self._expansion(target).readout
        paths = [self._path(target, i, program, side) for i, (program, side) in
                 enumerate(zip(asked.sides, sides, strict=True))]  # fmt: skip
        whole = [path for path in paths if path is not None]
        if len(whole) < len(paths):
            return None
        return Term(asked, tuple(whole))

    def _target(self, word: Word) -> tuple[str, tuple[Word, ...]]:
        if is_score(word):
            query, key = score_sides(word)
            owner = [f.symbol.label for f in query.factors if f.symbol.glyph in ("W_Q", "b_Q")][-1]
            return f"scores:{owner}", (query, key)
        kind, owner = word.col.space.kind, word.col.space.owner
        return {"vocab_out": "logits", "readout": f"readout:{owner}"}.get(kind, "stream"), (word,)

    def _path(self, target: str, side: int, program: Program, word: Word) -> Path | None:
        """The path of a side: the patterns in front name its heads, and the factors after them its source."""
        factors = word.factors
        n = next((i for i, f in enumerate(factors) if f.symbol.glyph not in ("A", "D")), len(factors))
        heads = tuple(self.architecture.head(f.symbol.label) for f in reversed(factors[:n]) if f.symbol.glyph == "A")
        for source in self._sources(target, side).get(factors[n].symbol.text, ()):
            if source.head in (None, *heads[:1]) and factors[n : n + len(source.core)] == source.core:
                path = Path(source, heads)
                if path_factors(program, path) == factors:
                    return path
        return None

    def _sources(self, target: str, side: int) -> dict[str, list[Source]]:
        key = (target, side)
        if key not in self._by_core:
            named: dict[str, list[Source]] = {}
            for layer in self._expansion(target).readout.sides[side]:
                for source in layer.sources:
                    named.setdefault(source.core[0].symbol.text, []).append(source)
            self._by_core[key] = named
        return self._by_core[key]

    @cached_property
    def _by_core(self) -> dict[tuple[str, int], dict[str, list[Source]]]:
        return {}


def _chains(options: Sequence[Sequence[Factor]]) -> Iterator[tuple[Factor, ...]]:
    """Every choice of one factor for each place with which neighbours contract, the first choices first."""
    last = options[-1]
    for factor in last:
        if len(options) == 1:
            yield (factor,)
            continue
        before = [f for f in options[-2] if not contraction_fault(f.col, factor.row)]
        if before:
            yield from ((*rest, factor) for rest in _chains((*options[:-2], before)))


@lru_cache(maxsize=8)
def _typing(architecture: Architecture) -> _Typing:
    return _Typing(architecture)
