"""The defining expressions: the stream, layer by layer, its norms, and what each readout reads of it."""

from __future__ import annotations

from symcircuits.core.architecture import FINAL
from symcircuits.core.programs import Layer, Norm, Program, Source, norm, rotation, stream_program
from symcircuits.core.words import Factor, Word, transpose
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.expressions import sandwich, scaled, stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Transposed

__all__ = [
    "layer_definition",
    "norm_definition",
    "norm_of",
    "plus",
    "point",
    "readout_definition",
    "summands",
    "with_alibi_term",
]


def plus(terms: list[Expr]) -> Expr:
    """The sum of one or more terms, nested sums opened."""
    flat = [t for term in terms for t in summands(term)]
    return flat[0] if len(flat) == 1 else Sum(tuple(flat))


def summands(expr: Expr) -> tuple[Expr, ...]:
    """The terms of a sum; anything else is one term."""
    return expr.terms if isinstance(expr, Sum) else (expr,)


def point(frame: Frame, layer: int) -> Expr:
    """The stream after ``layer`` layers: its symbol ``X_l``, or the sources ``X_0 (+ P)`` at the start."""
    if layer:
        return Word((stream_symbol(layer),))
    return plus([Word(s.factors, s.scales) for s in stream_program(frame.walked, 0)[0].sources])


def norm_of(frame: Frame, label: str) -> Norm:
    """The norm of that label."""
    return norm(frame.walked, label, frame.depth if label == FINAL else int(label[1:]))


def norm_definition(frame: Frame, label: str) -> Expr:
    """``Y = D X C gain + 1 b_N^T``: the output of a norm in terms of its input stream."""
    read = norm_of(frame, label)
    terms = [sandwich(read.left, point(frame, read.left[0].row.point or 0), read.right)]
    return plus([*terms, *([Word(read.bias)] if read.bias else [])])


def _read_at(frame: Frame, label: str, layer: int, opened: bool) -> Expr:
    """What a layer reads: the stream, or the output of a norm, as its symbol or as its definition."""
    if not frame.architecture.norm:
        return point(frame, layer)
    return norm_definition(frame, label) if opened else Word((norm_of(frame, label).symbol,))


def layer_definition(frame: Frame, layer: int, side: str = "", opened: bool = False) -> Expr:
    """``X_l`` by ``X_{l-1}``: ``X + sum_h A^h (X W_V^{hT} + 1 b_V^{hT}) W_O^{hT} + 1 b_O^T + mlp``.

    Each added part is preceded by its multiplier, if it has one. Heads read ``Y`` if there is a norm; ``opened``: with
    its definition in place of ``Y``.
    """
    described = stream_program(frame.walked, layer)[layer]
    before = point(frame, layer - 1)
    terms = [before]
    for branch in described.branches:
        inside = [s for s in described.sources if s.head == branch.head and s.kind != "b_N"]
        a, weights = frame.named(branch.left[:1], side), frame.named(branch.right[-2:], side)
        read = _read_at(frame, f"L{layer - 1}", layer - 1, opened)
        head = scaled(branch.scales, _head(frame, read, a, weights, inside, side))
        terms.append(frame.over_heads(layer - 1, head, side))
    terms += [Word(s.factors, s.scales) for s in described.sources if s.head is None]
    return plus(terms)


def _head(
    frame: Frame, read: Expr, left: tuple[Factor, ...], right: tuple[Factor, ...], inside: list[Source], side: str
) -> Expr:
    """``A X W_OV^T``, or ``A (X W_V^T + 1 b_V^T) W_O^T`` if the head has a value bias."""
    if not inside:
        return sandwich(left, read, right)
    biases: list[Expr] = [Word(frame.named(s.core, side)) for s in inside]
    return sandwich(left, plus([sandwich((), read, right[:1]), *biases]), right[1:])


def readout_definition(frame: Frame, opened: bool = False) -> Expr:
    """What the target reads: ``X_L W_U^T (+ 1 b_U^T)``, ``X_L``, or the scores of a head by ``X_{l-1}``.

    It reads ``Y`` if there is a norm; ``opened``: with its definition in place of ``Y``.
    """
    sides = [_read(frame, program, opened) for program in frame.expansion.readout.sides]
    scale = frame.expansion.readout.scale
    scales: tuple[str, ...] = (scale,) if scale else ()
    if len(sides) == 1:
        read, right, biases = sides[0]
        last = frame.expansion.readout.sides[0][-1]
        scales = last.branches[0].scales if right else ()
        return plus([scaled(scales, sandwich((), read, right)), *biases])
    return with_alibi_term(frame, _scores(frame, sides, scales))


def with_alibi_term(frame: Frame, expr: Expr) -> Expr:
    """The expression plus, for scores with ALiBi, its bias, which is not a path term."""
    return plus([expr, AlibiTerm(str(frame.head))]) if frame.alibi else expr


Read = tuple[Expr, tuple[Factor, ...], list[Expr]]


def _scores(frame: Frame, sides: list[Read], scales: tuple[str, ...]) -> Expr:
    """``s (X W_Q^T + 1 b_Q^T) R (X W_K^T + 1 b_K^T)^T``, queries and keys normed where they are."""
    (x, w_q, b_q), (y, w_k, b_k) = sides
    assert frame.head is not None
    turned, normed = rotation(frame.walked, frame.head), frame.architecture.qk_norm
    if normed or b_q or b_k:
        query, key = (plus([sandwich((), z, w), *b]) for z, w, b in sides)
        if normed:
            last = [program[-1].branches[0] for program in frame.expansion.readout.sides]
            query, key = (sandwich(b.left, z, b.right) for b, z in zip(last, (query, key), strict=True))
        if isinstance(query, Word) and isinstance(key, Word):
            return Word((*query.factors, *turned, *transpose(key.factors)), scales + query.scales + key.scales)
        return Product((query, *([Word(turned)] if turned else []), Transposed(key)), scales)
    middle = (*w_q, *turned, *transpose(w_k))
    if isinstance(x, Word) and isinstance(y, Word):
        return Word(x.factors + middle + transpose(y.factors), scales + x.scales + y.scales)
    return Product((x, Word(middle), Transposed(y)), scales)


def _read(frame: Frame, program: Program, opened: bool) -> Read:
    """What is read (the stream, and the position of a shortformer), the matrix that reads it, and biases."""
    rest: tuple[Layer, ...] = program[frame.depth + 1 :]
    if frame.head is not None and frame.architecture.qk_norm:
        rest = rest[:-1]  # the norm of queries or keys
    if not rest:
        return point(frame, frame.depth), (), []
    read = _read_at(frame, frame.norms[-1] if frame.norms else "", frame.depth, opened)
    right: tuple[Factor, ...] = ()
    biases: list[Expr] = []
    for layer in rest:
        right = layer.branches[0].right[-1:] if layer.branches else ()
        for source in layer.sources:
            if source.kind == "pos":
                read = plus([read, Word(source.core)])
            elif source.kind != "b_N":
                biases.append(Word(source.factors, source.scales))
    return read, right, biases
