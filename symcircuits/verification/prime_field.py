"""Exact instances: every matrix of an architecture a random k x k matrix over a prime field.

Two formulas in noncommuting letters that agree on such an instance are the same formula, except with a
probability bounded by the Schwartz-Zippel lemma: (degree / p) for each independent trial; the same, that is, on
k x k matrices. For what k may hide see :func:`size_for`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.elimination import inverse
from symcircuits.arrays.rings import PrimeField, transpose
from symcircuits.core.architecture import Architecture, scalar_names
from symcircuits.core.programs import Branch, Layer, Program, Readout, Source, made_once, readout, rotation
from symcircuits.core.walk import Matrices, Walks
from symcircuits.core.words import Factor, Index, Symbol, Word, scalar_argument
from symcircuits.model import matrix_names

__all__ = [
    "Instance", "change_of_basis", "degree", "degrees", "instance", "longest", "size_for", "sizes_for",
    "symbols", "walked", "walks", "word_values",
]  # fmt: skip

Array = npt.NDArray[Any]
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class _Longest:
    """The (max, +) algebra: the number of letters of the longest word, with multipliers if they count."""

    multipliers: bool = False

    def source(self, source: Source) -> int:
        return len(source.factors) + self.multipliers * len(source.scales)

    def branch(self, branch: Branch, value: int) -> int:
        return len(branch.left) + value + len(branch.right) + self.multipliers * len(branch.scales)

    def add(self, values: Sequence[int]) -> int:
        return max(values)


def longest(target: Readout, shared: Walks | None = None) -> int:
    """The number of letters of the longest word of a readout, ``W_OV`` and ``W_QK`` written out."""
    shared = shared or Walks(_Longest())
    return sum(shared.walk(side) or 0 for side in target.sides) + _turned(target)


def _turned(target: Readout) -> bool:
    """Whether there is an R where a query meets a key."""
    return target.head is not None and bool(rotation(target.architecture, target.head))


def sizes_for(targets: Sequence[Readout]) -> list[int]:
    """:func:`size_for` of many readouts."""
    shared = Walks(_Longest())
    return [longest(target, shared) // 2 + 1 for target in targets]


def degrees(targets: Sequence[Readout]) -> list[int]:
    """:func:`degree` of many readouts."""
    shared = Walks(_Longest(True))
    return [degree(target, shared) for target in targets]


def degree(target: Readout, shared: Walks | None = None) -> int:
    """The degree of a readout as a polynomial in the entries: letters of the longest word, and its scalars.

    ``R`` counts twice: it is ``R_i R_j^T``.
    """
    shared = shared or Walks(_Longest(True))
    letters = sum(shared.walk(side) or 0 for side in target.sides)
    return letters + bool(target.scale) + 2 * _turned(target)


def size_for(target: Readout) -> int:
    """The size k: more than half the length D of the longest word, k = floor(D / 2) + 1.

    So no polynomial identity without transposes can hide a difference: k x k matrices satisfy none of degree below 2k
    (Amitsur and Levitzki). This does not cover letters that occur both plain and transposed, as in scores: there are
    identities with transposes of degree 2k - 2 (Kostant and Rowen: the standard polynomial of matrices ``a - a^T``),
    which equals D if D is even; only k > D would exclude them all. They are sums of many words (``(2k - 2)!`` orders of
    ``2k - 2`` letters, each plain and transposed), unlike the difference left by one wrong term, and roles, types and
    names of terms are checked separately.
    """
    return longest(target) // 2 + 1


def symbols(program: Program) -> dict[str, Symbol]:
    """All matrix symbols of a program, by argument name."""
    factors: list[Factor] = []
    for layer in program:
        factors += [f for b in layer.branches for f in b.left + b.right]
        factors += [f for s in layer.sources for f in s.factors]
    return {f.symbol.argument: f.symbol for f in factors}


@dataclass(frozen=True, slots=True)
class Instance:
    """Random matrices over a ring for every symbol of some readouts, and a random number for every scalar.

    ``basis`` is the new basis of the stream, after a :func:`change_of_basis`.
    """

    ring: PrimeField
    k: int
    symbols: Mapping[str, Symbol]
    matrices: Mapping[str, Array]
    basis: Array | None = None


@lru_cache(maxsize=8)
def _all_symbols(architecture: Architecture) -> dict[str, Symbol]:
    found: dict[str, Symbol] = {}
    seen: dict[int, Layer] = {}
    with made_once():
        for target in architecture.targets(architecture.all_heads):
            for side in readout(architecture, target).sides:
                new = [layer for layer in side if id(layer) not in seen]
                seen |= {id(layer): layer for layer in new}
                found |= symbols(tuple(new))
    return found


def instance(architecture: Architecture, k: int, seed: int, ring: PrimeField | None = None) -> Instance:
    """Draw an instance for every matrix of an architecture, and a number for every score scale and multiplier.

    Every matrix: those that its programs name, and those that the model reads even if no program names them.
    """
    ring, rng = ring or PrimeField(), np.random.default_rng(seed)
    found = _all_symbols(architecture)
    scalars = [scalar_argument(name) for name in scalar_names(architecture)]
    names = {*found, *matrix_names(architecture)} - {*scalars}
    matrices = {name: ring.random((k, k, k) if name.startswith("R_") else (k, k), rng) for name in sorted(names)}
    matrices |= {name: ring.random((), rng) for name in scalars}
    return Instance(ring, k, found, matrices)


def walks(at: Instance) -> Walks:
    """Walks of many readouts on an instance."""
    return Walks(Matrices(at.matrices, at.ring))


def walked(target: Readout, at: Instance, shared: Walks | None = None) -> Array:
    """The walk of a readout on an instance; ``shared``: with others, by :func:`walks`."""
    shared = shared or walks(at)
    algebra = Matrices(at.matrices, at.ring)
    sides = [shared.walk(side) for side in target.sides]
    zero = at.ring.zeros((at.k, at.k))
    values = [zero if s is None else s for s in sides]
    if len(values) == 2:
        query, key = (algebra.turned(target.head, v) for v in values)
        values = [at.ring.matmul(query, transpose(key))]
    value: Array = values[0]
    return at.ring.times(at.matrices[f"scale_{target.scale}"], value) if target.scale else value


def word_values(words: Iterable[Word], at: Instance) -> Iterator[Array]:
    """The values of words, multiplied out letter by letter: ``[words, k, k]``, a few thousand at a time."""
    table: dict[str, int] = {}
    letters: list[Array] = []
    for name in at.symbols:  # R is not among these: it is not a letter of a side
        for key, matrix in ((name, at.matrices[name]), (name + ".T", transpose(at.matrices[name]))):
            table[key] = len(letters)
            letters.append(matrix)
    stack = np.stack(letters) if letters else np.zeros((0, at.k, at.k), np.int64)
    rest = iter(words)
    while chunk := list(islice(rest, _CHUNK)):
        values = np.empty((len(chunk), at.k, at.k), np.int64)
        lengths: dict[int, list[int]] = {}
        for i, word in enumerate(chunk):
            lengths.setdefault(len(word.factors), []).append(i)
        for where in lengths.values():
            values[where] = _products([chunk[i].factors for i in where], table, stack, at)
        for i, word in enumerate(chunk):
            for s in word.scales:
                values[i] = at.ring.times(at.matrices[scalar_argument(s)], values[i])
        yield values


def _products(words: list[tuple[Factor, ...]], table: Mapping[str, int], stack: Array, at: Instance) -> Array:
    """Words of one length, multiplied out from the left; if positions are rotary, rows are rotated at the joint."""
    joint = {i for factors in words for i, f in enumerate(factors) if f.symbol.glyph == "R"}
    if not joint:
        spelled = np.array([[_letter(f, table) for f in factors] for factors in words])
        value: Array = stack[spelled[:, 0]]
        for column in spelled.T[1:]:
            value = at.ring.matmul(value, stack[column])
        return value
    out = []
    for factors in words:  # R is at a different place in each
        (cut,) = (i for i, f in enumerate(factors) if f.symbol.glyph == "R")
        matrix = at.matrices[factors[cut].symbol.argument]
        sides = factors[:cut], tuple(f.T for f in reversed(factors[cut + 1 :]))
        query, key = (_products([side], table, stack, at)[0] for side in sides)
        query, key = (at.ring.matmul(rows[:, None, :], matrix)[:, 0, :] for rows in (query, key))
        out.append(at.ring.matmul(query, transpose(key)))
    return np.stack(out)


def _letter(factor: Factor, table: Mapping[str, int]) -> int:
    return table[factor.symbol.argument + (".T" if factor.transposed else "")]


def change_of_basis(at: Instance, seed: int) -> Instance:
    """The instance after a random invertible change of basis of the stream and of every head space.

    By type: a vector index is multiplied by the basis, a reader by its inverse. The query/key input of a
    shortformer layer changes with the stream, and so does the output of a norm: frozen, centring and gain are maps
    like any other. Context and vocabularies, which have a distinguished basis, do not change. So logits and scores are
    unchanged, and a value ``X`` of the stream becomes ``X basis^T``.
    """
    rng = np.random.default_rng(seed)
    bases: dict[str, tuple[Array, Array]] = {}

    def acts(index: Index) -> Array | None:
        kind, owner = index.space.kind, index.space.owner
        if kind not in _BASES:
            return None
        name = _BASES[kind] or f"{kind} {owner}"
        if name not in bases:
            bases[name] = _invertible(at, rng)
        basis, undone = bases[name]
        return transpose(undone) if index.reader else basis

    matrices = dict(at.matrices)
    for name, symbol in at.symbols.items():
        left, right = acts(symbol.row), acts(symbol.col)
        if left is not None:
            matrices[name] = at.ring.matmul(left, matrices[name])
        if right is not None:
            matrices[name] = at.ring.matmul(matrices[name], transpose(right))
    return Instance(at.ring, at.k, at.symbols, matrices, bases["stream"][0])


# Spaces with a basis: the stream's, or (empty) one per owner.
_STREAM = ("model", "attention_input", "normed_model", "centred_model", "scaled_model", "normed_input")
_BASES = {**dict.fromkeys(_STREAM, "stream"), "qk": "", "ov": ""}


def _invertible(at: Instance, rng: np.random.Generator) -> tuple[Array, Array]:
    while True:
        matrix = at.ring.random((at.k, at.k), rng)
        found = inverse(matrix, at.ring.p)
        if found is not None:
            return matrix, found
