"""Streams, heads, scores and logits as SymPy expressions, not multiplied out; and witness 1, which multiplies them out.

Letters are noncommutative SymPy symbols with the names of the arguments (``A_L0H1``), transposes SymPy's own. The
paths, their orders and their composition types are found here from the letters alone: nothing of the fast
enumeration is used, so each can check the other. Source: paper, "Path Expansion" and Appendix "Notation".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, pairwise, takewhile
from typing import Any, NamedTuple, final

from sympy import ZZ, Add, Mul, OneMatrix, S, Sum, Symbol, Transpose, expand, lex, transpose
from sympy.polys.rings import PolyRing

from symcircuits.core.architecture import Architecture, Described, Head, architecture_of
from symcircuits.core.programs import (
    Branch,
    Layer,
    Program,
    Readout,
    Source,
    first_layer,
    readout,
    rotation,
    stream_program,
)
from symcircuits.core.symbols import SYMMETRIC
from symcircuits.core.text import place
from symcircuits.core.walk import walk
from symcircuits.core.words import Factor, Word, is_multiplier
from symcircuits.core.words import transpose as transposed_factors
from symcircuits.sympy_layer.letters import FORMS, AsIndexed, AsMatrices, AsSymbols, Form, Names, check_choice, spelled

__all__ = [
    "Streams", "SymbolicTerm", "generic_form", "head_limits", "multiply_out", "polynomial_terms", "read_terms",
    "recursion", "symbolic",
    "symbolic_terms", "tally", "word_tokens",
]  # fmt: skip

Key = tuple[tuple[str, ...], str, tuple[int, ...]]
Limits = tuple[Any, Any, Any]  # for a sum over the heads of a layer: its index, 0, and the last head


# ------------------------------------------------------------------------------------------ the recursion
class _Expressions:
    """The algebra of SymPy expressions: ``left X right``, a product that is not multiplied out.

    ``limits``: in these layers the single head represents any, and its output is under a sum.
    """

    def __init__(self, form: Form, limits: Mapping[int, Limits] | None = None) -> None:
        self.form, self.limits = form, limits or {}

    def source(self, source: Source) -> Any:
        """The product of its letters and multipliers."""
        return self._over(source.head, self.form.product(source.scales, self._letters(source.factors)))

    def branch(self, branch: Branch, value: Any) -> Any:
        """``left value right``, times its multipliers."""
        sides = self._letters(branch.left), self._letters(branch.right)
        return self._over(branch.head, self.form.product(branch.scales, [*sides[0], value, *sides[1]]))

    def _over(self, head: Head | None, value: Any) -> Any:
        limits = None if head is None else self.limits.get(head.layer)
        return value if limits is None else Sum(value, limits)

    def add(self, values: Sequence[Any]) -> Any:
        """Their sum."""
        return self.form.add(values)

    def _letters(self, factors: Iterable[Factor]) -> list[Any]:
        return [self.form.letter(f) for f in spelled(factors, self.form.spelling)]


def recursion(architecture: Architecture, target: str) -> Any:
    """The target as SymPy builds it layer by layer, not multiplied out, in the letters ``W_O, W_V, W_Q, W_K``.

    ``X_l = X_{l-1} + sum_h A^h X_{l-1} W_V^{hT} W_O^{hT}``, read by ``W_U^T``; for scores ``s Q transpose(K)`` with
    ``Q = X W_Q^T`` and ``K = X W_K^T``, transposed by SymPy. ``[n_context, d_vocab_out]`` for logits,
    ``[n_context, n_context]`` for scores, ``[n_context, d_model]`` for the stream, though the letters have no shape.
    Raises ValueError on an unknown target. Source: paper, "Attention Heads are Independent and Additive".

    >>> from symcircuits.core.architecture import attention_only
    >>> recursion(attention_only((1,)), "stream")
    A_L0H0*t*transpose(W_E)*transpose(W_V_L0H0)*transpose(W_O_L0H0) + t*transpose(W_E)
    """
    return _built(readout(architecture, target), [_Expressions(AsSymbols("factors"))] * 2)


def head_limits(architecture: Architecture, depth: int, side: str = "") -> dict[int, Limits]:
    """The sums over the heads of the first layers: ``(h_1, 0, H_1 - 1)``; ``q_1``, ``k_1`` on the sides of scores.

    >>> from sympy import Symbol
    >>> from symcircuits.core.architecture import attention_only
    >>> head_limits(attention_only((Symbol("H_1", integer=True), 3)), 2)
    {0: (h_1, 0, H_1 - 1), 1: (h_2, 0, 2)}
    """
    letter = {"query": "q", "key": "k"}.get(side, "h")
    names = [Symbol(f"{letter}_{layer + 1}", integer=True, nonnegative=True) for layer in range(depth)]
    return {layer: (name, S.Zero, S(architecture.heads[layer]) - 1) for layer, name in enumerate(names)}


def generic_form(limits: Mapping[int, Limits], letters: str) -> AsIndexed:
    """The form in which the single head of these layers represents any.

    >>> generic_form(head_limits(Architecture((3,)), 1), "OV").indices
    {0: h_1}
    """
    return AsIndexed(letters, {layer: index for layer, (index, _, _) in limits.items()})


def _built(target: Readout, algebras: Sequence[_Expressions]) -> Any:
    """The target, each side in its algebra; if ``W_QK`` is one letter, scores are built around it."""
    form = algebras[0].form
    scales = (target.scale,) if target.scale else ()
    turned = _rotation(target)
    if target.bilinear and form.spelling == "OV" and not turned:
        return form.product(scales, [form.add(list(_around_qk(target, algebras)))])
    found = [walk(program, algebra) for program, algebra in zip(target.sides, algebras, strict=False)]
    sides = [S.Zero if side is None else side for side in found]
    return form.scored(scales, sides, turned) if target.bilinear else sides[0]


def _around_qk(target: Readout, algebras: Sequence[_Expressions]) -> Iterator[Any]:
    """The summands of scores by the readers of query and key: ``X W_QK X^T``, ``1 b_Q^T W_K X^T``, ...

    Only the last factors are multiplied out, so ``W_Q^T W_K`` meets and is one letter; the streams are not.
    """
    form = algebras[0].form
    read = [walk(program[:-1], algebra) for program, algebra in zip(target.sides, algebras, strict=True)]
    query, key = (list(_summands(p[-1], value)) for p, value in zip(target.sides, read, strict=True))
    for q_scales, q_left, q_value, q_right in query:
        for k_scales, k_left, k_value, k_right in key:
            outside = [form.letter(f) for f in transposed_factors(k_left)]
            values = [*map(form.letter, q_left), *q_value]
            values += [form.letter(f) for f in spelled((*q_right, *transposed_factors(k_right)), form.spelling)]
            values += [*map(form.transposed, k_value), *outside]
            yield form.product((*q_scales, *k_scales), values)


Summand = tuple[tuple[str, ...], tuple[Factor, ...], list[Any], tuple[Factor, ...]]


def _summands(layer: Layer, value: Any) -> Iterator[Summand]:
    """The summands of a last layer, each as scales, letters, the incoming value (if any) and letters."""
    if value is not None:
        yield from ((b.scales, b.left, [value], b.right) for b in layer.branches)
    yield from ((s.scales, (), [], s.factors) for s in layer.sources)


def _rotation(target: Readout) -> tuple[Factor, ...]:
    """The factor where the query side meets the key side: ``R`` if positions are rotary."""
    return rotation(target.architecture, target.head) if target.head is not None else ()


# --------------------------------------------------------------------------------------------- the face of it
@final
class Streams:
    """The streams, heads, scores and logits of an architecture as SymPy expressions, none multiplied out.

    Made by :func:`symbolic`. ``letters`` and ``form`` determine how they are written. ``described``: the
    architecture with one head for each symbolic number of them, if it is not :meth:`Architecture.generic`.
    """

    def __init__(self, architecture: Architecture, form: Form, described: Architecture | None = None) -> None:
        self.architecture, self.form, self._given = architecture, form, described
        self._described = described or (architecture.generic() if architecture.symbolic else architecture)
        self._algebra = self._algebra_of(architecture.n_layers)

    def _algebra_of(self, depth: int, side: str = "") -> _Expressions:
        """The algebra in which the first layers are written; with symbolic numbers of heads, under sums."""
        if not self.architecture.symbolic:
            return _Expressions(self.form)
        limits = head_limits(self.architecture, depth, side)
        return _Expressions(generic_form(limits, self.letters), limits)

    @property
    def letters(self) -> str:
        """The set of symbols: ``"OV"`` or ``"factors"``."""
        return self.form.spelling

    @cached_property
    def X(self) -> tuple[Any, ...]:
        """The residual stream before the first layer, after it, ..., ``[n_context, d_model]`` each.

        If the stream is split into attached sources and a rest, those before that point are left out (None).

        >>> from symcircuits.core.architecture import attention_only
        >>> s = symbolic(attention_only((1,)))
        >>> s.X[1] - s.X[0]
        A_L0H0*t*transpose(W_E)*transpose(W_OV_L0H0)
        """
        n = self.architecture.n_layers
        found, value = [None] * first_layer(self.architecture, n), None
        for layer in stream_program(self._described, n):
            value = walk((layer,), self._algebra, value)
            found.append(value)
        return tuple(found)

    @property
    def stream(self) -> Any:
        """The stream after the last layer."""
        return self.X[-1]

    @cached_property
    def logits(self) -> Any:
        """``X_L W_U^T (+ 1 b_U^T)``, ``[n_context, d_vocab_out]``; raises ValueError without unembedding."""
        return self.target("logits")

    def scores(self, head: str | tuple[int, int]) -> Any:
        """The scores of a head, ``s X W_QK X^T``, ``[n_context, n_context]``.

        >>> from symcircuits.core.architecture import attention_only
        >>> symbolic(attention_only((1,))).scores("L0H0")
        scale_L0H0*t*transpose(W_E)*W_QK_L0H0*W_E*transpose(t)
        """
        return self.target(f"scores:{self.architecture.head(head)}")

    def target(self, name: str) -> Any:
        """A target by its name: ``"logits"``, ``"stream"``, ``"scores:L1H0"`` or ``"readout:probe"``."""
        if not self.architecture.symbolic:
            return _built(readout(self.architecture, name), [self._algebra] * 2)
        kind, _, label = name.partition(":")
        if kind != "scores":
            return _built(readout(self._described, name), [self._algebra])
        head = self.architecture.head(label)
        algebras = [self._algebra_of(head.layer, side) for side in ("query", "key")]
        return _built(readout(self._given or self.architecture.generic(head), name), algebras)

    def head(self, head: str | tuple[int, int]) -> Any:
        """What a head writes to the stream, ``A X W_OV^T`` and its biases, ``[n_context, d_model]``.

        >>> from symcircuits.core.architecture import attention_only
        >>> s = symbolic(attention_only((1, 1)), letters="factors")
        >>> expand(s.head("L1H0")) == expand(s.X[2] - s.X[1])
        True
        """
        found = self.architecture.head(head)
        return self._of_head(found, _Expressions(self.form))

    def heads(self, layer: int) -> list[Any]:
        """The output of each head of a layer (counted from 0), in order; for a symbolic number, only their sum."""
        number = self._number(layer)
        if self.architecture.symbolic:
            return [self._of_head(h, self._algebra) for h in self._described.layer_heads(number)]
        return [self.head(h) for h in self.architecture.layer_heads(number)]

    def others(self, layer: int) -> Any:
        """The output of a layer besides its heads: ``1 b_O^T``, its MLP, added sources; 0 if there is nothing.

        So ``expand(X[l + 1] - X[l] - sum(heads(l)) - others(l))`` is 0.

        >>> from symcircuits.core.architecture import transformer
        >>> symbolic(transformer((1,), mlps=True, biases=["b_O"])).others(0)
        mlp_L0 + ones*transpose(b_O_L0)
        """
        described, _ = self._layer(self._described, self._number(layer))
        values = [self._algebra.source(s) for s in described.sources if s.head is None]
        return self.form.add(values) if values else S.Zero

    @cached_property
    def symbols(self) -> Mapping[str, Any]:
        """The symbols of the streams and of the logits (or the stream) by name, to substitute or differentiate by.

        >>> from sympy import diff
        >>> from symcircuits.core.architecture import attention_only
        >>> s = symbolic(attention_only((1,)))
        >>> list(s.symbols)
        ['A_L0H0', 'W_E', 'W_OV_L0H0', 'W_U', 't']
        >>> diff(s.logits, s.symbols["A_L0H0"])
        t*transpose(W_E)*transpose(W_OV_L0H0)*transpose(W_U)
        """
        programs = [stream_program(self._described, self.architecture.n_layers)]
        programs += readout(self._described, self.architecture.end).sides
        layers = [layer for program in programs for layer in program]
        written: list[Branch | Source] = [b for layer in layers for b in layer.branches]
        written += [s for layer in layers for s in layer.sources]
        sides = [side for p in written for side in ((p.left, p.right) if isinstance(p, Branch) else (p.factors,))]
        form = self._algebra.form
        letters = [form.letter(f) for side in sides for f in spelled(side, form.spelling)]
        letters = [letter.args[0] if isinstance(letter, (transpose, Transpose)) else letter for letter in letters]
        letters += [form.scalar(name) for p in written for name in p.scales]
        named = {str(letter): letter for letter in letters if not isinstance(letter, OneMatrix)}
        return {name: named[name] for name in sorted(named)}

    def _number(self, layer: int) -> int:
        return place("layer", layer, self.architecture.n_layers, negative=False)

    def _of_head(self, head: Head, algebra: _Expressions) -> Any:
        arch = self.architecture.generic(head) if self.architecture.symbolic else self.architecture
        layer, value = self._layer(arch, head.layer)
        values = [algebra.branch(b, value) for b in layer.branches if b.head == head]
        return self.form.add([*values, *(algebra.source(s) for s in layer.sources if s.head == head)])

    def _layer(self, architecture: Architecture, layer: int) -> tuple[Layer, Any]:
        """A layer, and the stream that it reads."""
        first = first_layer(self.architecture, self.architecture.n_layers)
        if layer < first:
            raise ValueError(f"layer {layer} is not written out: the stream is split into sources at point {first}")
        return stream_program(architecture, layer + 1)[layer + 1 - first], self.X[layer]

    def __repr__(self) -> str:
        form = "matrix" if isinstance(self.form, AsMatrices) else "symbols"
        return f"<Streams of {self.architecture}: letters {self.letters!r}, form {form!r}>"


def symbolic(subject: Architecture | Described, letters: str = "OV", form: str = "symbols", **sizes: Any) -> Streams:
    """The streams, heads, scores and logits of an architecture (or model) as SymPy expressions, not multiplied out.

    ``letters``: ``"OV"`` writes ``W_OV`` and ``W_QK``, ``"factors"`` writes ``W_O``, ``W_V``, ``W_Q``, ``W_K``.
    ``form``: ``"symbols"``, noncommutative symbols, which ``sympy.expand`` multiplies out into the terms; or
    ``"matrix"``, shaped ``MatrixSymbol``s, whose sizes are positive integer symbols or those given (``n_context=7``).
    ``.X[l]`` are streams, ``.head("L1H0")`` the output of a head, ``.scores("L1H0")``, ``.logits``; ``.symbols`` the
    letters by name. With symbolic numbers of heads, heads are under a ``Sum`` over an index, ``A_L0[h_1]``, and
    ``doit()`` at numbers gives the letters of those heads. Raises ValueError on unknown ``letters`` or ``form``, on
    sizes for ``"symbols"``, which have none, and on matrices with symbolic numbers of heads.
    Source: paper, "Path Expansion".

    >>> from sympy import expand
    >>> from symcircuits.core.architecture import attention_only
    >>> s = symbolic(attention_only((2, 2)))
    >>> s.X[1]
    A_L0H0*t*transpose(W_E)*transpose(W_OV_L0H0) + A_L0H1*t*transpose(W_E)*transpose(W_OV_L0H1) + t*transpose(W_E)
    >>> len(expand(s.logits).args), len(expand(s.scores("L1H0")).args)
    (9, 9)
    """
    architecture = architecture_of("symbolic", subject, symbolic=True)
    if check_choice("form", form, FORMS) == "matrix":
        architecture_of("symbolic(..., form='matrix')", architecture)
        return Streams(architecture, AsMatrices(letters, sizes))
    if sizes:
        raise ValueError(f"symbols have no shape, so {', '.join(sizes)} has no effect: use form='matrix'")
    return Streams(architecture, AsSymbols(letters))


# ------------------------------------------------------------------------------------------- multiplied out
def multiply_out(expression: Any) -> Any:
    """The expression as a sum of products, by SymPy's ``expand`` alone (2,000 to 3,500 terms per second).

    >>> from sympy import symbols
    >>> A, B, X = symbols("A B X", commutative=False)
    >>> multiply_out((1 + A) * (1 + B) * X)
    A*B*X + A*X + B*X + X
    """
    return expand(expression)


# --------------------------------------------------------------------------------- reading SymPy's result
class SymbolicTerm(NamedTuple):
    """One term in SymPy's result: letters, scales, coefficient, and what follows from them.

    ``tokens`` are the letters in text notation, without abbreviations; ``orders`` the number of patterns (for scores
    on the query and on the key side), ``composition`` the type that follows; ``multiplicity`` is the coefficient, 1
    in every correct expansion.

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
        """The key for comparison: ``(scales and letters in order, composition, orders)``."""
        return self.scales + self.tokens, self.composition, self.orders


def read_terms(expression: Any, architecture: Architecture | None = None) -> list[SymbolicTerm]:
    """Every term of a SymPy sum of products, with the composition type read from its letters.

    Logits and stream: the order is the number of patterns left of the source, ``V`` from two on. Scores: the number of
    patterns left of the joint ``W_Q^T | W_K`` (query side) and right of it (key side); ``Q``, ``K``, ``QK``, ``none``.
    Abbreviations (``X0``, ``W_OV``, ``W_QK``) are expanded; with an ``architecture``, in which keys
    and values may belong to groups and sources have names, its letters are read too. Raises ValueError on anything but
    a sum of products of letters with whole coefficients, naming a letter that is unknown or that commutes.

    >>> from symcircuits.core.architecture import attention_only
    >>> terms = read_terms(multiply_out(recursion(attention_only((2, 1)), "scores:L1H0")))
    >>> sorted(t.composition for t in terms)
    ['K', 'K', 'Q', 'Q', 'QK', 'QK', 'QK', 'QK', 'none']
    """
    names = Names(architecture)
    letters: dict[Any, tuple[str, ...]] = {}
    return [_read_term(product, names, letters) for product in Add.make_args(expression) if product is not S.Zero]


def _read_term(product: Any, names: Names, letters: dict[Any, tuple[str, ...]]) -> SymbolicTerm:
    tokens: list[str] = []
    scales: list[str] = []
    multiplicity = 1
    for factor in Mul.make_args(product):
        found = letters.get(factor)
        if found is None:
            if factor.is_Integer:
                multiplicity *= int(factor)
                continue
            letters[factor] = found = _read_factor(factor, names, product)
        (tokens if not factor.is_commutative else scales).extend(found)
    orders = _orders(tuple(tokens))
    return SymbolicTerm(tuple(tokens), tuple(sorted(scales)), orders, _composition(orders), multiplicity)


def _read_factor(factor: Any, names: Names, product: Any) -> tuple[str, ...]:
    """A letter in text notation, without abbreviations; a power ``A**2`` is the letter twice."""
    if factor.is_Symbol:
        return tuple(letter.text for letter in names.read(factor))
    if isinstance(factor, transpose) and factor.args[0].is_Symbol:
        return tuple(letter.T.text for letter in reversed(names.read(factor.args[0])))
    if factor.is_Pow and factor.exp.is_Integer and factor.exp > 0:
        once = [t for part in Mul.make_args(factor.base) for t in _read_factor(part, names, product)]
        return tuple(once) * int(factor.exp)
    raise ValueError(f"cannot read {factor} in {product}: expected a product of symbols with a whole coefficient")


def _transposed(letter: str) -> str:
    """A letter's transpose; not marked for a symmetric matrix or a number."""
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
    """How many patterns precede everything else but norms."""
    front = takewhile(lambda t: t.startswith(("A[", "D[")) and not t.endswith(".T"), tokens)
    return sum(t.startswith("A[") for t in front)


def _flipped(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The letters of the transposed product."""
    return tuple(_transposed(t) for t in reversed(tokens))


def _composition(orders: tuple[int, ...]) -> str:
    """The composition type for the number of patterns of the word, or of each side of a score."""
    if len(orders) == 1:
        return "V" if orders[0] > 1 else "none"
    return {(False, False): "none", (True, False): "Q", (False, True): "K", (True, True): "QK"}[
        orders[0] > 0, orders[1] > 0
    ]


def symbolic_terms(architecture: Architecture, target: str) -> list[SymbolicTerm]:
    """Every term of a target: the recursion, multiplied out by SymPy and read from its result.

    There is no limit here: the caller decides whether the number of terms is worth the time.

    >>> from symcircuits.core.architecture import attention_only
    >>> len(symbolic_terms(attention_only((3, 3)), "logits"))
    16
    """
    return read_terms(multiply_out(recursion(architecture, target)), architecture)


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
    """The scales and letters of a word, without abbreviations, as in the keys of :func:`tally`.

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
        """The generator of a side; 1 if it is empty."""
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

    Keys are ``sorted`` scales and letters in text notation, without abbreviations, so a word has the key
    ``tuple(sorted(word_tokens(word)))``. The letters carry their layer, and their side of the word by the transpose,
    and each layer gives a path at most one: so they may commute, and SymPy multiplies out far faster. It detects a term
    that is dropped, doubled, made up, mislabelled, or has another letter, scale or transpose. It **cannot detect**
    the order of the letters: two swapped factors or layers in reverse pass; the noncommutative :func:`symbolic_terms`
    detects them. Raises ValueError on an unknown target. Source: our own observation.

    >>> from symcircuits.core.architecture import attention_only
    >>> polynomial_terms(attention_only((1,)), "logits")
    {('W_E.T', 'W_U.T', 't'): 1, ('A[L0H0]', 'W_E.T', 'W_O[L0H0].T', 'W_U.T', 'W_V[L0H0].T', 't'): 1}
    """
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
    for generator in ring.gens[start:]:  # the factors of every score term
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
