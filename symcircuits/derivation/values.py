"""Values of expressions: every matrix an independent random k x k matrix over a prime field, exactly.

The recursion symbols ``X_l`` and the target take their values from the transformer's forward pass with patterns
given, written from its definition in :mod:`symcircuits.model`; everything else from the expression itself, as it
is printed: a word by its abbreviated factors, and ``X0``, ``W_OV`` and ``W_QK`` by what they mean here and not by
the product from which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from zlib import crc32

import numpy as np

from symcircuits.arrays.rings import Array, PrimeField, transpose
from symcircuits.core.architecture import Architecture, as_head, scalar_names
from symcircuits.core.programs import Readout, readout
from symcircuits.core.words import Factor, Symbol, Word, scalar_argument
from symcircuits.core.words import transpose as transposed
from symcircuits.derivation.expressions import relabelled
from symcircuits.derivation.multiplying import ProductTerm
from symcircuits.derivation.nodes import (
    Apply,
    Expr,
    Family,
    Identity,
    Number,
    Product,
    Special,
    Spelled,
    Sum,
    SumOver,
    Target,
    Tensor,
    Transposed,
)
from symcircuits.model import Frozen, frozen, matrix_names
from symcircuits.model.over_ring import queries_and_keys

__all__ = ["Instance"]

Bindings = Mapping[str, str]  # index -> label of the head it stands for
_EMPTY: Bindings = {}
_EMPTY_MATRICES: Mapping[str, Array] = {}


class _Drawn(dict[str, Array]):
    """Matrices by name, drawn when first asked for; the name and the seed alone decide what is drawn."""

    def __init__(
        self, ring: PrimeField, shape: tuple[int, ...], seed: int, given: Callable[[str, Array], Array] | None = None
    ) -> None:
        super().__init__()
        self.ring, self.shape, self.seed = ring, shape, seed
        self.given = given or (lambda name, matrix: matrix)

    def __missing__(self, name: str) -> Array:
        found = self.ring.random(self.shape, np.random.default_rng([self.seed, crc32(name.encode())]))
        self[name] = found = self.given(name, found)
        return found


@dataclass
class Instance:
    """One architecture with numbers of heads, and ``trials`` draws of all its matrices, ``[trials, k, k]``."""

    architecture: Architecture
    target: str
    k: int
    seed: int = 0
    trials: int = 2
    ring: PrimeField = field(default_factory=PrimeField)
    rows_sum_to_one: bool = False  # draw such patterns, and the ones with equal rows
    equal_ones: bool = False  # draw ones with equal rows
    tokens_sum_to_one: bool = False  # draw rows of t that do, as those of one-hot tokens do
    causal: bool = False  # draw patterns that are zero above the diagonal
    d_head: int = 0  # draw weights of heads with so many rows or columns, the others zero; 0: all

    def __post_init__(self) -> None:
        self.readout: Readout = readout(self.architecture, self.target)
        self.drawn = _Drawn(self.ring, (self.trials, self.k, self.k), self.seed, self._given)
        self._turns = _Drawn(self.ring, (self.trials, self.k, self.k, self.k), self.seed)
        self._scales = _Drawn(self.ring, (self.trials, 1, 1), self.seed)
        self._known: dict[str, Array] = {}

    # -------------------------------------------------------------------------------------------- symbols
    def heads(self, layer: int) -> int:
        """``H_l``."""
        return self.architecture.heads[layer]

    def labels(self, layer: int) -> list[str]:
        """The labels of the heads over which an index of that layer runs."""
        return [head.label for head in self.architecture.layer_heads(layer)]

    def identity(self) -> Array:
        """The identity matrices."""
        return np.broadcast_to(np.eye(self.k, dtype=np.int64), (self.trials, self.k, self.k))

    def centring(self) -> Array:
        """``Id - 1 1^T / k``, which subtracts from every row its mean."""
        return np.asarray((self.identity() - pow(self.k, -1, self.ring.p)) % self.ring.p)

    def symbol(self, symbol: Symbol, bindings: Bindings = _EMPTY) -> Array:
        """The matrix of a symbol; an index is replaced by the head it is bound to."""
        label = self._label(symbol.label, bindings)
        name = f"{symbol.glyph}_{label}" if label else symbol.glyph
        if name not in self._known:
            self._known[name] = self._make(symbol.glyph, label, name)
        return self._known[name]

    def _label(self, label: str, bindings: Bindings) -> str:
        """What a label stands for: an index for the head it is bound to, ``G(h_1)`` for that head's group."""
        if label[:2] == "G(":
            return self._shared(bindings.get(label[2:-1], label[2:-1]))
        return bindings.get(label, label)

    def _shared(self, label: str) -> str:
        """The label of the keys and values of a head, or of any head ``h``."""
        arch = self.architecture
        if label[:1] == "L":
            return arch.key_value(as_head(label))
        return label if arch.groups is None else f"G({label})"

    def _make(self, glyph: str, label: str, name: str) -> Array:
        m, drawn = self.ring.matmul, self.drawn
        match glyph:
            case "X0":
                return m(drawn["t"], transpose(drawn["W_E"]))
            case "W_OV":
                return m(drawn[f"W_O_{label}"], drawn[f"W_V_{self._shared(label)}"])
            case "W_QK":
                return m(transpose(drawn[f"W_Q_{label}"]), drawn[f"W_K_{self._shared(label)}"])
            case "Y":
                return self._forward.normed[label]
        if glyph[0] == "X" and glyph[1:].isdecimal():
            return self._forward.streams[int(glyph[1:])]
        return drawn[name]

    def _given(self, name: str, matrix: Array) -> Array:
        """A drawn matrix with what is given of it: causal, rows that sum to one, the width of a head."""
        kind = name[:3]
        if name == "C" or name[:2] == "D_" or name[:5] == "gain_":  # symmetric, and so no transpose is written
            return np.asarray(np.tril(matrix) + transpose(np.tril(matrix, -1)))
        if kind == "one" and (self.rows_sum_to_one or self.equal_ones):
            return np.broadcast_to(matrix[..., :1, :], matrix.shape)  # 1 times any row
        if name[:2] == "A_":
            matrix = np.tril(matrix) if self.causal else matrix
        if (name == "t" and self.tokens_sum_to_one) or (name[:2] == "A_" and self.rows_sum_to_one):
            first = (1 - matrix[..., 1:].sum(-1, keepdims=True)) % self.ring.p  # it makes up for the others
            matrix = np.concatenate([first, matrix[..., 1:]], -1)
        if self.d_head and kind in ("W_O", "W_V", "W_Q", "W_K", "b_V", "b_Q", "b_K"):
            kept = np.arange(self.k) < self.d_head
            matrix = matrix * (kept if kind == "W_O" else kept[:, None])
        return matrix

    @cached_property
    def _forward(self) -> Frozen:
        return self._run({})

    def kept_value(self, name: str, sides: tuple[tuple[str, ...], ...]) -> Array:
        """A target of runs in which these heads alone write; of scores those for queries, and those for keys."""
        runs = [self._run({}, kept) for kept in sides]
        kind, _, label = name.partition(":")
        if kind != "scores":
            logits, streams = runs[0].logits, runs[0].streams
            return streams[-1] if kind == "stream" or logits is None else logits
        head = self.architecture.head(label)
        read = (run.reads[f"L{head.layer}"] for run in runs)
        pairs = [queries_and_keys(self.architecture, self._matrices, self.ring, head, rows) for rows in read]
        scores = self.ring.matmul(pairs[0][0], transpose(pairs[1][1]))
        return self.scaled((label,), scores) if self.architecture.scale else scores

    @property
    def _matrices(self) -> dict[str, Array]:
        names = matrix_names(self.architecture)
        matrices = {scalar_argument(name): self._scales[name] for name in scalar_names(self.architecture)}
        matrices |= {name: self._turns[name] for name in names if name[:2] == "R_"}
        return matrices | {name: self.drawn[name] for name in names if name not in matrices}

    def _run(self, changed: Mapping[str, Array], kept: tuple[str, ...] | None = None) -> Frozen:
        return frozen(self.architecture, self._matrices | dict(changed), self.ring, kept=kept)

    def draws(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """What was drawn so far, by name: matrices ``[trials, k, k]``, and numbers ``[trials, 1, 1]``."""
        return dict(self.drawn), dict(self._scales)

    def alibi(self, head: str) -> Array:
        """``-m |i - j|`` with a slope m drawn for the head."""
        places = np.arange(self.k)
        distance = np.broadcast_to(abs(places[:, None] - places), (self.trials, self.k, self.k))
        return self.ring.times(self._scales[f"slope {head}"], -distance % self.ring.p)

    def rotated(self, head: str, rows: Array) -> Array:
        """Row i times the i-th matrix of ``R``."""
        return self.ring.matmul(rows[..., :, None, :], self._turns[f"R_{head}"])[..., :, 0, :]

    def factor(self, factor: Factor, bindings: Bindings = _EMPTY) -> Array:
        """The matrix of a factor, transposed where it is printed so."""
        matrix = self.symbol(factor.symbol, bindings)
        return transpose(matrix) if factor.marked else matrix

    def chain(self, factors: tuple[Factor, ...], bindings: Bindings = _EMPTY) -> Array:
        """The product of factors; where a query meets a key, ``R`` turns the rows of both."""
        return self._product(factors, bindings)

    def _product(self, parts: Iterable[Factor | Expr], bindings: Bindings) -> Array:
        """The product of factors and expressions; ``q R k^T`` has ``q_i R_i R_j^T k_j^T`` at i, j."""
        values: list[Array] = []
        queries: tuple[str, Array] | None = None
        for part in parts:
            if isinstance(part, Factor) and _is_turn(part):
                queries, values = (part.symbol.label, reduce(self.ring.matmul, values)), []
            else:
                factor = isinstance(part, Factor)
                values.append(self.factor(part, bindings) if factor else self.value(part, bindings))  # type: ignore[arg-type]
        value = reduce(self.ring.matmul, values)
        if queries is None:
            return value
        keys = self.rotated(queries[0], transpose(value))
        return self.ring.matmul(self.rotated(*queries), transpose(keys))

    def scaled(self, scales: tuple[str, ...], value: Array) -> Array:
        """The value times these scalars."""
        for label in scales:
            value = self.ring.times(self._scales[label], value)
        return value

    def zero(self) -> Array:
        """The empty sum."""
        return self.ring.zeros((self.trials, self.k, self.k))

    def target_value(self, name: str, changed: Mapping[str, Array] = _EMPTY_MATRICES) -> Array:
        """A target by the forward pass, with some of the matrices changed where asked."""
        forward = self._run(changed) if changed else self._forward
        kind, _, head = name.partition(":")
        if head and self.architecture.positions == "alibi":
            return self.ring.add(forward.scores[head], self.alibi(head))
        if head:
            return forward.scores[head]
        if kind == "stream":
            return forward.streams[-1]
        assert forward.logits is not None
        return forward.logits

    # ---------------------------------------------------------------------------------------- expressions
    def value(self, expr: Expr, bindings: Bindings = _EMPTY) -> Array:
        """The matrix that an expression stands for."""
        match expr:
            case Word():
                return self.scaled(expr.scales, self.chain(expr.fused, bindings))  # as it is printed
            case Spelled():
                return self.scaled(expr.word.scales, self.chain(expr.word.factors, bindings))
            case Product():
                return self.scaled(expr.scales, self._product(_opened(expr.factors), bindings))
            case Sum():
                return self._added([self.value(t, bindings) for t in expr.terms])
            case SumOver():
                return self._added([self.value(expr.body, b) for b in self._bound(expr, bindings)])
            case Transposed():
                return transpose(self.value(expr.body, bindings))
            case Family():
                return self.value(expr.body, bindings)
            case Apply():
                return self.act(expr.operator, [self.value(a, bindings) for a in expr.arguments], bindings)
            case Target():
                return self.target_value(expr.name)
            case Identity():
                return self.identity()
            case Number():
                return np.full((self.trials, 1, 1), expr.value % self.ring.p)
            case Special():
                return expr.value(self, bindings)
            case _:
                raise TypeError(f"{type(expr).__name__} cannot be evaluated to a matrix")

    def act(self, operator: Expr, x: list[Array], bindings: Bindings = _EMPTY) -> Array:
        """What an operator makes of its argument (``A X W^T``), or of two (``A_q x W y^T A_k^T``)."""
        match operator:
            case Identity():
                return x[0]
            case Tensor():
                if any(isinstance(s, Word) and any(map(_is_turn, s.factors)) for s in operator.slots):
                    return self._act_turned(operator, x, bindings)
                return self._act_tensor([self.value(s, bindings) for s in operator.slots], x)
            case Product():
                for f in reversed(operator.factors):
                    x = [self.act(f, x, bindings)]
                return self.scaled(operator.scales, x[0])
            case Sum():
                return self._added([self.act(t, x, bindings) for t in operator.terms])
            case SumOver():
                return self._added([self.act(operator.body, x, b) for b in self._bound(operator, bindings)])
            case Family():
                return self.act(operator.body, x, bindings)
            case _:
                raise TypeError(f"{type(operator).__name__} is not an operator")

    def _act_tensor(self, slots: list[Array], x: list[Array]) -> Array:
        m = self.ring.matmul
        if len(slots) == 2:
            return m(m(slots[0], x[0]), transpose(slots[1]))
        query, key, w = slots
        return m(m(m(query, x[0]), w), transpose(m(key, x[1])))

    def _act_turned(self, operator: Tensor, x: list[Array], bindings: Bindings) -> Array:
        """``(A_q (x) A_k (x) W R V)(x, y)``: rows of ``A_q x W`` and of ``A_k y V^T`` are turned before they meet."""
        query, key, between = operator.slots
        assert isinstance(between, Word)
        (at,) = (i for i, f in enumerate(between.factors) if _is_turn(f))
        reads = between.factors[:at], transposed(between.factors[at + 1 :])
        sides = []
        for slot, rows, right in zip((query, key), x, reads, strict=True):
            rows = self.ring.matmul(self.value(slot, bindings), rows)
            rows = self.ring.matmul(rows, self.chain(right, bindings)) if right else rows
            sides.append(self.rotated(between.factors[at].symbol.label, rows))
        return self.ring.matmul(sides[0], transpose(sides[1]))

    def _added(self, values: list[Array]) -> Array:
        total = self.zero()
        for v in values:
            total = self.ring.add(total, v)
        return total

    def _bound(self, over: SumOver, bindings: Bindings) -> list[Bindings]:
        return [{**bindings, over.index: label} for label in self.labels(over.layer)]

    # -------------------------------------------------------------------------------------------- as words
    def words(self, flats: list[ProductTerm]) -> list[Word]:
        """The words that multiplied-out terms stand for here, every index running over its heads."""
        found = []
        for flat in flats:
            choices: list[dict[str, str]] = [{}]
            for index, layer in flat.indices:
                choices = [
                    {**c, index: label, f"G({index})": self._shared(label)}
                    for c in choices for label in self.labels(layer)
                ]  # fmt: skip
            found += [Word(relabelled(flat.factors, c), flat.scales) for c in choices]
        return found


def _is_turn(factor: Factor) -> bool:
    return factor.symbol.glyph == "R"


def _opened(parts: tuple[Expr, ...]) -> Iterator[Factor | Expr]:
    """The parts of a product, words that turn rows letter by letter."""
    for part in parts:
        if isinstance(part, Word) and any(map(_is_turn, part.factors)):
            yield from part.fused
        else:
            yield part
