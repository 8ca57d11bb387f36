"""Witness 1, SymPy: the recursion of the residual stream, multiplied out by SymPy, every term read from its result.

Letters are noncommutative SymPy symbols with the names of the arguments (``A_L0H1``), transposes SymPy's own. The
paths, their orders and their composition types are found here from the letters alone: nothing of the fast
enumeration is used, so that each can check the other. Source: paper, "Path Expansion" and Appendix "Notation".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import compress, pairwise, takewhile
from typing import Any, NamedTuple

from symcircuits.core.architecture import Architecture
from symcircuits.core.programs import Branch, Program, Readout, Source, readout, rotation
from symcircuits.core.symbols import SYMMETRIC
from symcircuits.core.walk import walk
from symcircuits.core.words import Factor, Word, is_multiplier, scalar_argument

__all__ = [
    "SymbolicTerm", "multiply_out", "polynomial_terms", "read_terms", "recursion", "symbolic_terms", "tally",
    "word_tokens",
]  # fmt: skip

Key = tuple[tuple[str, ...], str, tuple[int, ...]]


# ------------------------------------------------------------------------------------------ the recursion
class _Expressions:
    """The algebra of SymPy expressions: ``left X right``, a product that is not multiplied out.

    Symmetric matrices (norms) are letters without a transpose; where SymPy itself transposes one, it is dropped on
    reading.
    """

    def __init__(self) -> None:
        self._letters: dict[Factor, Any] = {}

    def letter(self, factor: Factor) -> Any:
        """The noncommutative symbol of a factor, transposed by SymPy where it is."""
        found = self._letters.get(factor)
        if found is None:
            from sympy import Symbol, transpose

            own = factor.symbol.own  # a name that somebody gave stands as it is written
            found = Symbol(factor.symbol.text if own else factor.symbol.argument, commutative=False)
            self._letters[factor] = found = transpose(found) if factor.marked else found
        return found

    def source(self, source: Source) -> Any:
        """The product of its letters and multipliers."""
        return self._product(source.factors, 1, (), source.scales)

    def branch(self, branch: Branch, value: Any) -> Any:
        """``left value right``, times its multipliers."""
        return self._product(branch.left, value, branch.right, branch.scales)

    def add(self, values: Sequence[Any]) -> Any:
        """Their sum."""
        from sympy import Add

        return Add(*values)

    def _product(self, left: Iterable[Factor], value: Any, right: Iterable[Factor], scales: Iterable[str]) -> Any:
        from sympy import Mul, Symbol

        scalars = [Symbol(scalar_argument(name)) for name in scales]
        return Mul(*scalars, *map(self.letter, left), value, *map(self.letter, right))


def recursion(architecture: Architecture, target: str) -> Any:
    """The target as SymPy builds it up layer by layer, not multiplied out.

    ``X_l = X_{l-1} + sum_h A^h X_{l-1} W_V^{hT} W_O^{hT}``, read by ``W_U^T``; for scores ``s Q transpose(K)`` with
    ``Q = X W_Q^T`` and ``K = X W_K^T``, where SymPy does the transposing. ``[n_context, d_vocab_out]`` for logits,
    ``[n_context, n_context]`` for scores, ``[n_context, d_model]`` for the stream, though the letters have no shape.
    Raises ValueError on an unknown target. Source: paper, "Attention Heads are Independent and Additive".

    >>> from symcircuits.core.architecture import attention_only
    >>> recursion(attention_only((1,)), "stream")
    A_L0H0*t*transpose(W_E)*transpose(W_V_L0H0)*transpose(W_O_L0H0) + t*transpose(W_E)
    """
    return _recursion(readout(architecture, target))


def _recursion(target: Readout) -> Any:
    from sympy import Mul, S, Symbol, transpose

    algebra = _Expressions()
    sides = [S.Zero if side is None else side for side in (walk(p, algebra) for p in target.sides)]
    if not target.bilinear:
        return sides[0]
    scale = Symbol(f"scale_{target.scale}") if target.scale else S.One
    turned = [algebra.letter(f) for f in _rotation(target)]
    return Mul(scale, sides[0], *turned, transpose(sides[1]))


def _rotation(target: Readout) -> tuple[Factor, ...]:
    """What stands where the query side meets the key side: ``R`` where positions are rotary."""
    return rotation(target.architecture, target.head) if target.head is not None else ()


def multiply_out(expression: Any) -> Any:
    """The expression as a sum of products, by SymPy's ``expand`` alone (2,000 to 3,500 terms a second).

    >>> from sympy import symbols
    >>> A, B, X = symbols("A B X", commutative=False)
    >>> multiply_out((1 + A) * (1 + B) * X)
    A*B*X + A*X + B*X + X
    """
    from sympy import expand

    return expand(expression)


# --------------------------------------------------------------------------------- reading SymPy's result
class SymbolicTerm(NamedTuple):
    """One term as it stands in SymPy's result: letters, scales, coefficient, and what they say.

    ``tokens`` are the letters in text notation, nothing abbreviated; ``orders`` the number of patterns (for scores
    on the query and on the key side), ``composition`` the type that follows; ``multiplicity`` is the coefficient, 1
    in every right expansion.

    >>> from sympy import Symbol, symbols
    >>> A, B, C = symbols("A_L1H0 A_L0H1 t", commutative=False)
    >>> term, = read_terms(A * B * C)
    >>> term.text, term.orders, term.composition
    ('A[L1H0] @ A[L0H1] @ t', (2,), 'V')
    """

    tokens: tuple[str, ...]
    scales: tuple[str, ...]
    orders: tuple[int, ...]
    composition: str
    multiplicity: int = 1

    @property
    def text(self) -> str:
        """The product in text notation, e.g. ``scale[L1H0] * t @ W_E.T @ W_Q[L1H0].T @ ...``."""
        return "".join(f"{s} * " for s in self.scales) + " @ ".join(self.tokens)

    @property
    def key(self) -> Key:
        """What is compared: ``(scales and letters in order, composition, orders)``."""
        return self.scales + self.tokens, self.composition, self.orders


def read_terms(expression: Any) -> list[SymbolicTerm]:
    """Every term of a SymPy sum of products, its composition type read off its letters.

    Logits and stream: the order is the number of patterns left of the source, ``V`` from two on. Scores: the number of
    patterns left of the joint ``W_Q^T | W_K`` (query side) and right of it (key side); ``Q``, ``K``, ``QK``, ``none``.
    Raises ValueError on what is not a sum of products of letters with whole coefficients.

    >>> from symcircuits.core.architecture import attention_only
    >>> terms = read_terms(multiply_out(recursion(attention_only((2, 1)), "scores:L1H0")))
    >>> sorted(t.composition for t in terms)
    ['K', 'K', 'Q', 'Q', 'QK', 'QK', 'QK', 'QK', 'none']
    """
    from sympy import Add, S

    letters: dict[Any, tuple[str, ...]] = {}
    return [_read_term(product, letters) for product in Add.make_args(expression) if product is not S.Zero]


def _read_term(product: Any, letters: dict[Any, tuple[str, ...]]) -> SymbolicTerm:
    from sympy import Mul

    tokens: list[str] = []
    scales: list[str] = []
    multiplicity = 1
    for factor in Mul.make_args(product):
        found = letters.get(factor)
        if found is None:
            if factor.is_Integer:
                multiplicity *= int(factor)
                continue
            letters[factor] = found = _read_letter(factor, product)
        (tokens if not factor.is_commutative else scales).extend(found)
    orders = _orders(tuple(tokens))
    return SymbolicTerm(tuple(tokens), tuple(sorted(scales)), orders, _composition(orders), multiplicity)


def _read_letter(factor: Any, product: Any) -> tuple[str, ...]:
    """A letter in text notation; a power ``A**2`` is the letter twice."""
    from sympy import Mul, transpose

    if factor.is_Symbol:
        return (_text(factor.name),)
    if isinstance(factor, transpose) and factor.args[0].is_Symbol:
        return (_transposed(_text(factor.args[0].name)),)
    if factor.is_Pow and factor.exp.is_Integer and factor.exp > 0:
        once = [t for part in Mul.make_args(factor.base) for t in _read_letter(part, product)]
        return tuple(once) * int(factor.exp)
    raise ValueError(f"cannot read {factor} in {product}: expected a product of letters with a whole coefficient")


@cache
def _text(argument: str) -> str:
    """The argument name ``W_OV_L0H1`` in text notation: ``W_OV[L0H1]``."""
    return re.sub(r"_([LM]\d+(?:[HG]\d+)?|final(?:[LM]\d+)?|[QK](?:\d+|L\d+[HG]\d+))$", r"[\1]", argument)


def _transposed(letter: str) -> str:
    """A letter's transpose; the mark is not written where the matrix is symmetric, or where it is a number."""
    if letter.partition("[")[0] in SYMMETRIC or is_multiplier(letter):
        return letter
    return letter.removesuffix(".T") if letter.endswith(".T") else letter + ".T"


_MEETS = ("W_Q[", "b_Q[", "W_K[", "b_K[")


def _orders(tokens: tuple[str, ...]) -> tuple[int, ...]:
    """The number of patterns outside the source: of the whole word, or on either side of the joint of a score."""
    tokens = tuple(t for t in tokens if not t.startswith(("R[", "gain[Q", "gain[K")))
    pairs = enumerate(pairwise(tokens), 1)
    joint = next((i for i, (a, b) in pairs if a.startswith(_MEETS) and b.startswith(_MEETS)), None)
    if joint is None:
        return (_patterns(tokens),)
    return (_patterns(tokens[:joint]), _patterns(_flipped(tokens[joint:])))


def _patterns(tokens: tuple[str, ...]) -> int:
    """How many patterns come before anything else but norms."""
    front = takewhile(lambda t: t.startswith(("A[", "D[")) and not t.endswith(".T"), tokens)
    return sum(t.startswith("A[") for t in front)


def _flipped(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The letters of the transposed product."""
    return tuple(_transposed(t) for t in reversed(tokens))


def _composition(orders: tuple[int, ...]) -> str:
    """What the number of patterns of the word, or of each side of a score, is called."""
    if len(orders) == 1:
        return "V" if orders[0] > 1 else "none"
    return {(False, False): "none", (True, False): "Q", (False, True): "K", (True, True): "QK"}[
        orders[0] > 0, orders[1] > 0
    ]


def symbolic_terms(architecture: Architecture, target: str) -> list[SymbolicTerm]:
    """Every term of a target: the recursion, multiplied out by SymPy and read from its result.

    There is no limit here: the caller decides whether the number of terms is worth the wait.

    >>> from symcircuits.core.architecture import attention_only
    >>> len(symbolic_terms(attention_only((3, 3)), "logits"))
    16
    """
    return read_terms(multiply_out(recursion(architecture, target)))


def tally(terms: Iterable[SymbolicTerm]) -> Counter[Key]:
    """The terms as a multiset, for comparison: key ``(scales and letters, composition, orders)``.

    >>> from symcircuits.core.architecture import attention_only
    >>> tally(symbolic_terms(attention_only((), unembed=False), "stream"))
    Counter({(('t', 'W_E.T'), 'none', (0,)): 1})
    """
    found: Counter[Key] = Counter()
    for term in terms:
        found[term.key] += term.multiplicity
    return found


def word_tokens(word: Word) -> tuple[str, ...]:
    """The scales and letters of a word, nothing abbreviated, as they stand in the keys of :func:`tally`.

    >>> from symcircuits.core.programs import embedding
    >>> word_tokens(Word(embedding()))
    ('t', 'W_E.T')
    """
    return tuple(sorted(map(_scalar, word.scales))) + tuple(f.text for f in word.factors)


def _scalar(name: str) -> str:
    return name if is_multiplier(name) else f"scale[{name}]"


# ------------------------------------------------------------------- a second witness, for larger sizes
class _Polynomials:
    """The algebra of SymPy's sparse polynomials: one commuting generator for each side of each branch and source.

    And one for each multiplier.
    """

    def __init__(self, ring: Any, generators: dict[tuple[str, ...], Any]) -> None:
        self.ring, self.generators = ring, generators

    def letter(self, factors: Iterable[Factor]) -> Any:
        """The generator of a side; 1 where there is nothing."""
        name = tuple(f.text for f in factors)
        return self.generators[name] if name else self.ring.one

    def source(self, source: Source) -> Any:
        """Its generator, times those of its multipliers."""
        return self._scaled(source.scales, self.letter(source.factors))

    def branch(self, branch: Branch, value: Any) -> Any:
        """``value`` times the generators of both sides and of the multipliers."""
        return self._scaled(branch.scales, value * (self.letter(branch.left) * self.letter(branch.right)))

    def _scaled(self, scales: Iterable[str], value: Any) -> Any:
        for name in scales:
            value = value * self.generators[(name,)]
        return value

    def add(self, values: Sequence[Any]) -> Any:
        """Their sum."""
        return self.ring.add(*values)


def _sides_of(program: Program) -> Iterator[tuple[str, ...]]:
    for layer in program:
        yield from (tuple(f.text for f in s.factors) for s in layer.sources)
        yield from (tuple(f.text for f in side) for b in layer.branches for side in (b.left, b.right) if side)
        yield from ((name,) for s in layer.sources for name in s.scales)
        yield from ((name,) for b in layer.branches for name in b.scales)


def polynomial_terms(architecture: Architecture, target: str) -> dict[tuple[str, ...], int]:
    """Every term of a target as an unordered set of letters, with its coefficient, by SymPy's ``polys.rings``.

    Keys are ``sorted`` scales and letters in text notation, nothing abbreviated, so that a word has the key
    ``tuple(sorted(word_tokens(word)))``. The letters carry their layer, and their side of the word by the transpose,
    and each layer gives a path at most one: so they may commute, and SymPy multiplies out far faster. It sees a term
    that is dropped, doubled, made up, mislabelled, or has another letter, scale or transpose. What it **cannot see** is
    the order of the letters: two swapped factors or layers in reverse pass; the noncommutative :func:`symbolic_terms`
    sees them. Raises ValueError on an unknown target. Source: our own observation.

    >>> from symcircuits.core.architecture import attention_only
    >>> polynomial_terms(attention_only((1,)), "logits")
    {('W_E.T', 'W_U.T', 't'): 1, ('A[L0H0]', 'W_E.T', 'W_O[L0H0].T', 'W_U.T', 'W_V[L0H0].T', 't'): 1}
    """
    from sympy import ZZ, Symbol, lex
    from sympy.polys.rings import PolyRing

    asked = readout(architecture, target)
    names = [dict.fromkeys(_sides_of(program)) for program in asked.sides]
    scales: list[tuple[str, ...]] = [(f"scale[{asked.scale}]",)] if asked.scale else []
    scales += [tuple(f.text for f in _rotation(asked))] if _rotation(asked) else []
    letters = [*names[0], *(_flipped(name) for side in names[1:] for name in side), *scales]
    ring = PolyRing([Symbol(f"x{i}") for i in range(len(letters))], ZZ, lex)
    total, start = ring.one, 0
    for program, side in zip(asked.sides, names, strict=True):
        generators = dict(zip(side, ring.gens[start:], strict=False))
        value = walk(program, _Polynomials(ring, generators))
        total, start = total * (ring.zero if value is None else value), start + len(side)
    for generator in ring.gens[start:]:  # what every score term has
        total *= generator
    found: dict[tuple[str, ...], int] = {}
    for monomial, coefficient in total.items():
        key = tuple(sorted(_letters_of(monomial, letters)))
        found[key] = found.get(key, 0) + int(coefficient)
    return found


def _letters_of(monomial: tuple[int, ...], letters: list[tuple[str, ...]]) -> Iterator[str]:
    for letter, power in zip(compress(letters, monomial), filter(None, monomial), strict=True):
        for token in letter:
            yield from [token] * power
