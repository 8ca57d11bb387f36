"""Attention layers without skip connections: every path takes a head in each layer."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Transposed
from symcircuits.derivation.results.factors import embed, head_factors, ones, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Named, NamedMatrix, Parentheses

__all__: list[str] = []


@result(
    "without_skip",
    "Without the residual stream, only paths of full length remain",
    "Attention layers without skip connections are a sum over paths that take a head in every layer, plus one "
    "constant row for all biases; these paths are the terms of the highest order of the model with the stream.",
    "Virtual Attention Heads; Dong et al. 2021, Theorem 2.1",
    chapter="Two layers",
    heading="Without the residual stream",
    heads=(2, 2),
    given=("rows sum to one",),
    conventions=(
        "`Y_1` and `Y_2` are the outputs of two layers of two heads without skip connections; the vectors `bold c` "
        "and `bold z` are the biases of the layers, and `1` is the column of ones.",
    ),
)
def without_skip(frame: Frame) -> Iterator[Draft]:
    """Extension E13."""
    first, second = ([head_factors(frame, layer, i) for i in (0, 1)] for layer in (0, 1))
    one, b, c, x = ones(), NamedMatrix("c", "vector"), NamedMatrix("z", "vector"), embed()

    def layer(heads: list[dict[str, Factor]], read: Expr, bias: NamedMatrix) -> Sum:
        return Sum((*(_acts(h, read) for h in heads), Product((one, Transposed(bias)))))

    y1 = Named("Y_1", "Y_1", layer(first, x, b))
    y2 = Named("Y_2", "Y_2", layer(second, y1, c))
    yield Draft(
        "definition",
        (Claim((y1, y1.body)), Claim((y2, y2.body))),
        "Two layers, each the sum of its heads and a bias, without its input.",
    )
    pairs = [(g, h) for g in second for h in first]
    paths = [Word((g["A"], h["A"], *x.factors, h["W_V"].T, h["W_O"].T, g["W_V"].T, g["W_O"].T)) for g, h in pairs]
    ov = [Word((g["W_V"].T, g["W_O"].T)) for g in second]
    through = [Product((Word((g["A"], *one.factors)), Transposed(b), w)) for g, w in zip(second, ov, strict=True)]
    yield Draft(
        "distributing",
        (Claim((y2, Sum((*paths, *through, Product((one, Transposed(c))))))),),
        "Multiplied out: a term for every pair of heads, and the terms of the first layer's bias through the heads of "
        "the second.",
    )
    row = Sum((*(Product((Transposed(b), w)) for w in ov), Transposed(c)))
    yield Draft(
        "identity",
        (Claim((y2, Sum((*paths, Product((one, Parentheses(row))))))),),
        "Patterns whose rows sum to one pass a constant row on unchanged, `A 1 = 1`: all biases amount to one row, "
        "the same for every token, and one path for every pair of heads remains, each with a pattern whose rows sum "
        "to one.",
    )
    u = Word((read_by(frame).T,))
    highest = [expr for term, expr in frame.terms if term.order == 2]
    yield Draft(
        "distributing",
        (Claim((Product((Parentheses(Sum(tuple(paths))), u)), plus(highest))),),
        "In the model with the stream, the same paths are the terms of order 2, the last of 3 orders; that model "
        "keeps the others too, and so does not lose the identity of its tokens.",
    )


def _acts(h: dict[str, Factor], read: Expr) -> Product:
    return Product((Word((h["A"],)), read, Word((h["W_V"].T, h["W_O"].T))))
