"""Biases of values, outputs and the unembedding: separate sources, and all of them together one bias."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Word, transpose
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import layer_definition, plus, readout_definition
from symcircuits.derivation.expressions import stream_symbol, wrap
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, SumOver, Target, Transposed
from symcircuits.derivation.results.factors import head_factors, read_by
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import Named

__all__: list[str] = []


logits_biases = expansion(
    "logits_biases",
    "Logits with biases",
    "The logits of two layers with value, output and unembedding biases: each bias is a separate source.",
    chapter="Positions and biases",
    heads=(2, 2),
    biases=True,
)


def _stripped(expr: Expr) -> tuple[tuple[tuple[str, int], ...], Word]:
    """A term without the sums over its heads, and those sums."""
    indices = []
    while isinstance(expr, SumOver):
        indices.append((expr.index, expr.layer))
        expr = expr.body
    assert isinstance(expr, Word)
    return tuple(indices), expr


def _from_bias(expr: Expr) -> bool:
    return any(f.symbol.glyph == "ones" for f in _stripped(expr)[1].factors)


def _without_patterns(expr: Expr) -> Expr:
    """A term that starts from a bias, the patterns before ``1 b^T`` left out."""
    indices, word = _stripped(expr)
    return wrap(Word(tuple(f for f in word.factors if f.symbol.glyph != "A")), indices)


def _column(expr: Expr) -> Expr:
    """The column ``W ... b`` of a term ``1 b^T ...``."""
    indices, word = _stripped(expr)
    return wrap(Word(transpose(word.factors[1:])), indices)


@result(
    "bias_collapse",
    "All biases are one bias of the logits",
    "If the rows of every pattern sum to one, all value and output biases, together with that of the unembedding, "
    "amount to one bias of the logits, the same for every token.",
    "Notation (no biases); own derivation",
    chapter="Positions and biases",
    heads=(2, 2),
    form="generic",
    given=("rows sum to one",),
    options={"biases": ["b_V[L0H0]", "b_V[L0H1]", "b_V[L1H0]", "b_V[L1H1]", "b_O", "b_U"]},
    conventions=("The rows of every pattern sum to one, as those of a softmax do.",),
)
def bias_collapse(frame: Frame) -> Iterator[Draft]:
    """Extension E1."""
    target, terms = Target("logits"), [expr for _, expr in frame.terms]
    streams = [Claim((Word((stream_symbol(n),)), layer_definition(frame, n))) for n in (1, 2)]
    yield Draft(
        "definition",
        (*streams, Claim((target, readout_definition(frame)))),
        "Each layer adds the outputs of its heads, which include the value biases, and its output bias.",
    )
    yield Draft(
        "distributing",
        (Claim((target, plus(terms))),),
        "The sum over paths; each bias is a separate source.",
        complete=True,
    )
    biased = [expr for expr in terms if _from_bias(expr)]
    ones = Word((next(f for f in _stripped(biased[0])[1].factors if f.symbol.glyph == "ones"),))
    h, g = (head_factors(frame, layer, name="hg"[layer])["A"] for layer in (0, 1))
    yield Draft(
        "identity",
        tuple(Claim((Word((a, *ones.factors)), ones)) for a in (h, g)),
        "A pattern whose rows sum to one maps the column of ones to itself, for any heads `h` and `g`.",
    )
    direct = [expr for expr in terms if not _from_bias(expr)]
    flat = [_without_patterns(expr) for expr in biased]
    yield Draft(
        "substitution",
        (Claim((target, plus([*direct, *flat]))),),
        "So no pattern remains in a term that starts from a bias.",
    )
    bias = Named("v_logits", r"v_{\mathrm{logits}}", Sum(tuple(_column(expr) for expr in flat)), flips=True)
    yield Draft(
        "collecting by composition type",
        (Claim((bias, bias.body)), Claim((target, plus([*direct, Product((ones, Transposed(bias)))])))),
        "Each of them is `1` times a row: together they are one bias of the logits, and the rest are the logits of a "
        "model without biases.",
    )
    yield _layer_by_layer(frame, bias)


def _layer_by_layer(frame: Frame, bias: Named) -> Draft:
    """The same bias, carried through the layers: ``v_l = v_(l-1) + sum_h (W_OV v_(l-1) + W_O b_V) + b_O``."""
    program = frame.expansion.readout.sides[0]
    claims, v = [], None
    for layer in (1, 2):
        body: list[Expr] = [v] if v is not None else []
        for branch in program[layer].branches:
            w = Word(frame.named(branch.right)).T
            body += [] if v is None else [frame.over_heads(layer - 1, Product((w, v)))]
        for source in program[layer].sources:
            column = Word(transpose(frame.named(source.factors)[(2 if source.head else 1) :]))
            body.append(frame.over_heads(layer - 1, column) if source.head else column)
        v = Named(f"v{layer}", f"v_{{{layer}}}", plus(body), flips=True)
        claims.append(Claim((v, v.body)))
    assert v is not None
    b_u = Word((program[-1].sources[0].factors[1].T,))
    return Draft(
        "identity",
        (*claims, Claim((bias, Sum((Product((Word((read_by(frame),)), v)), b_u))))),
        "The same bias layer by layer: each layer passes on the previous bias, also through every `W_OV`, and adds "
        "its own.",
    )
