"""The defining expressions: the stream, layer by layer, and what each readout reads of it."""

from __future__ import annotations

from symcircuits.algebra import Factor, Word, transpose
from symcircuits.derivation.expressions import Expr, Product, Sum, Transposed, sandwich, stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.programs import Layer, Program, Source, stream_program

__all__ = ["layer_definition", "plus", "point", "readout_definition", "summands"]


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
    return plus([Word(s.factors) for s in stream_program(frame.walked, 0)[0].sources])


def layer_definition(frame: Frame, layer: int, side: str = "") -> Expr:
    """``X_l`` by ``X_{l-1}``: ``X + sum_h A^h (X W_V^{hT} + 1 b_V^{hT}) W_O^{hT} + 1 b_O^T``."""
    described = stream_program(frame.walked, layer)[layer]
    before = point(frame, layer - 1)
    terms = [before]
    for branch in described.branches:
        inside = [s for s in described.sources if s.head == branch.head]
        left, right = frame.named(branch.left, side), frame.named(branch.right, side)
        terms.append(frame.over_heads(layer - 1, _head(frame, before, left, right, inside, side), side))
    terms += [Word(s.factors) for s in described.sources if s.head is None]
    return plus(terms)


def _head(
    frame: Frame, before: Expr, left: tuple[Factor, ...], right: tuple[Factor, ...], inside: list[Source], side: str
) -> Expr:
    """``A X W_OV^T``, or ``A (X W_V^T + 1 b_V^T) W_O^T`` where the head has a value bias."""
    if not inside:
        return sandwich(left, before, right)
    biases: list[Expr] = [Word(frame.named(s.core, side)) for s in inside]
    return sandwich(left, plus([sandwich((), before, right[:1]), *biases]), right[1:])


def readout_definition(frame: Frame) -> Expr:
    """What the target reads: ``X_L W_U^T (+ 1 b_U^T)``, ``X_L``, or the scores of a head by ``X_{l-1}``."""
    sides = [_read(frame, program) for program in frame.expansion.readout.sides]
    scale = frame.expansion.readout.scale
    scales = (scale,) if scale else ()
    if len(sides) == 1:
        read, right, biases = sides[0]
        return plus([sandwich((), read, right), *biases])
    (x, w_q, b_q), (y, w_k, b_k) = sides
    if b_q or b_k:
        query, key = (plus([sandwich((), z, w), *b]) for z, w, b in sides)
        return Product((query, Transposed(key)), scales)
    if isinstance(x, Word) and isinstance(y, Word):
        return Word(x.factors + w_q + transpose(w_k) + transpose(y.factors), scales)
    return Product((x, Word(w_q + transpose(w_k)), Transposed(y)), scales)


def _read(frame: Frame, program: Program) -> tuple[Expr, tuple[Factor, ...], list[Expr]]:
    """What is read (the stream, and the position of a shortformer), the matrix that reads it, and biases."""
    rest: tuple[Layer, ...] = program[frame.depth + 1 :]
    read = point(frame, frame.depth)
    right: tuple[Factor, ...] = ()
    biases: list[Expr] = []
    for layer in rest:
        added: list[Expr] = [Word(s.factors) for s in layer.sources]
        if layer.branches:
            right, biases = layer.branches[0].right, added
        else:
            read = plus([read, *added])
    return read, right, biases
