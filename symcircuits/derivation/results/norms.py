"""Norms: what folds into the weights, and the scale that does not."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import attention_only
from symcircuits.core.programs import stream_program
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Elementwise, Literal
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Transposed
from symcircuits.derivation.real_models import ModelLogits, RealModel
from symcircuits.derivation.results.factors import embed, head_factors, read_by
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import Named, NamedMatrix, Parentheses

__all__: list[str] = []


_C = NamedMatrix("C", "centring")


def _word(*factors: Factor) -> Word:
    return Word(factors)


_X = Literal((("1", "2", "6"), ("0", "3", "0")))


_D = Literal((("1/sqrt(14/3 + epsilon)", "0"), ("0", "1/sqrt(2 + epsilon)")))


_CENTRE = Literal((("2/3", "-1/3", "-1/3"), ("-1/3", "2/3", "-1/3"), ("-1/3", "-1/3", "2/3")))


_NORM_LETTERS = {
    f"{letter}_{number}": f"{glyph}_{label}"
    for letter, glyph in (("D", "D"), ("G", "gain"))
    for number, label in (("1", "L0"), ("2", "L1"), ("f", "final"))
}


@result(
    "layer_norm",
    "Layer norm in the expansion",
    "With the scale of every token held fixed, the expansion also applies with layer norm: centring and gain fold "
    "into the matrices that read the stream, and the scale remains as `D_l` on the source side of the pattern.",
    "Handling Layer Normalization",
    chapter="Norms, MLPs and grouped queries",
    heading="Layer norm",
    summary="Layer norm in the expansion: what folds into weights, and the scale that stays on the source side.",
    heads=(1, 1),
    given=("rows sum to one",),
    conventions=(
        "Held fixed: the attention patterns and, of every norm, the scale of each token: `D_l` is diagonal, `1/sqrt(v "
        "+ eps)` with `v` the variance of each token before layer `l` and `eps` the epsilon of the norm, and `D_f` "
        "that of the norm before the unembedding. `C` subtracts from every row its mean, `G` is the diagonal gain, "
        "and `b_N` is the bias of a norm. Terms through different norms carry different scales, so their sizes are "
        "not comparable. Scores are written without their scale. There is no position embedding and no MLP.",
    ),
    real_model=RealModel("a model with real layer norms and softmax patterns", {"norm": "LN"}, _NORM_LETTERS),
)
def layer_norm(frame: Frame) -> Iterator[Draft]:
    """Identities I28, extensions E3 and E4."""
    yield Draft(
        "definition",
        (Claim((Elementwise("LN", _X), Product((_D, _X, _CENTRE)))),),
        "Layer norm is a product: subtracting the mean of every row multiplies by `C` on the right, and dividing "
        "every row by `sqrt(v + eps)`, with `v` its variance, multiplies by `D` on the left. Here this is computed "
        "from the definition for two tokens in three dimensions and any epsilon; the gain then multiplies on the "
        "right.",
        how="exact",
    )
    projection = (Claim((_C, Transposed(_C))), Claim((_C, Product((_C, _C)))))
    yield Draft("definition", projection, "Centring is a projection.")
    yield from _folding(head_factors(frame, 0))
    yield from _two_layers(frame)
    yield _not_folded(head_factors(frame, 0))


def _not_folded(h: dict[str, Factor]) -> Draft:
    """The scale stays where it is."""
    a, d, ones = _word(h["A"]), NamedMatrix("D_1", "diagonal"), _ones()
    return Draft(
        "counterexample",
        (Claim((Product((a, d)), Product((d, a))), "!="), Claim((Product((a, d, ones)), ones), "!=")),
        "The scale does not commute with a pattern: it belongs to the source side. Moreover, a constant source then "
        "differs between tokens, so biases do not collapse into one.",
    )


def _ones() -> Word:
    return _word(stream_program(attention_only((1,), biases=["b_O"]), 1)[1].sources[-1].factors[0])


def _folding(h: dict[str, Factor]) -> Iterator[Draft]:
    """Gain, centring and the bias of a norm, folded into a head that reads its output."""
    x, v, g, d = embed(), _word(h["W_V"]), NamedMatrix("G", "diagonal"), NamedMatrix("D_1", "diagonal")
    folded = Product((v, g, _C))
    yield Draft(
        "identity",
        (Claim((Product((d, x, _C, g, v.T)), Product((d, x, Transposed(folded))))),),
        "Centring and gain fold into the matrix that reads the stream: first the gain, then the centring, on the "
        "reading side.",
    )
    yield Draft(
        "counterexample", (Claim((folded, Product((v, _C, g))), "!="),), "The other order gives another matrix."
    )
    b, a, ov = NamedMatrix("b_N", flips=True), _word(h["A"]), _word(h["W_O"], h["W_V"])
    moved = Product((a, _ones(), Transposed(b), ov.T))
    yield Draft(
        "identity",
        (Claim((moved, Product((_ones(), Transposed(Product((ov, b))))))),),
        "The bias of the norm is a source like a value bias, multiplied by `W_OV`; it is left out below.",
    )


def _two_layers(frame: Frame) -> Iterator[Draft]:
    """Two layers of one head and the final norm, expanded; and the scores of the second layer."""
    heads, w_u = [head_factors(frame, layer) for layer in (0, 1)], read_by(frame)
    d = [NamedMatrix(f"D_{i}", "diagonal") for i in "12f"]
    g = [NamedMatrix(f"G_{i}", "diagonal") for i in "12f"]
    a = [_word(x["A"]) for x in heads]
    ov = [_word(x["W_O"], x["W_V"]) for x in heads]
    fold = [Named(f"V_{i + 1}", f"V_{i + 1}", Product((w, g[i], _C)), flips=True) for i, w in enumerate(ov)]
    last = Named("V_f", "V_f", Product((_word(w_u), g[2], _C)), flips=True)
    x = embed()
    y1 = Named("Y_1", "Y_1", Sum((x, Product((a[0], d[0], x, _C, g[0], ov[0].T)))))
    y2 = Named("Y_2", "Y_2", Sum((y1, Product((a[1], d[1], y1, _C, g[1], ov[1].T)))))
    y = Named("Y", "Y", Product((d[2], y2, _C, g[2], _word(w_u.T))))
    yield Draft(
        "definition",
        tuple(Claim((name, name.body)) for name in (y1, y2, y, *fold, last)),
        "Two layers of one head, each with a norm before it, and a norm before the unembedding; `Y` are the logits. "
        "`V_1`, `V_2` and `V_f` are the matrices with gain and centring folded in.",
    )
    v = [Transposed(f) for f in (*fold, last)]
    terms: list[Expr] = [
        Product((d[2], x, v[2])),
        Product((d[2], a[0], d[0], x, v[0], v[2])),
        Product((d[2], a[1], d[1], x, v[1], v[2])),
        Product((d[2], a[1], d[1], a[0], d[0], x, v[0], v[1], v[2])),
    ]
    yield Draft(
        "distributing",
        (Claim((y, Sum(tuple(terms)))),),
        "The same paths as without norms: `A` becomes `A D_l`, reading matrices are folded, and `D_f` multiplies "
        "everything from the left.",
    )
    yield Draft(
        "identity",
        (Claim((ModelLogits(), Sum(tuple(terms)))),),
        "In a transformer: the sum equals the logits of a model with layer norms, with the patterns and the scales of "
        "its own run held fixed.",
        how="model",
    )
    yield _normed_scores(heads[1], d[1], g[1], y1)


def _normed_scores(head: dict[str, Factor], d: NamedMatrix, g: NamedMatrix, y1: Named) -> Draft:
    """The scores of a head that reads a norm of the stream, on both sides."""
    q, k = (_word(head[glyph]) for glyph in ("W_Q", "W_K"))
    norm = Product((d, y1, _C, g))
    qk = Product((Transposed(Product((q, g, _C))), Parentheses(Product((k, g, _C)))))
    raw = Product((*norm.factors, q.T, k, Transposed(norm)))
    return Draft(
        "identity",
        (Claim((raw, Product((d, y1, *qk.factors, Transposed(y1), d)))),),
        "Scores: the scale of the query is on the left, that of the key on the right, and the rest folds into `W_QK`.",
    )


logits_layer_norm = expansion(
    "logits_layer_norm",
    "Logits through layer norms",
    "The logits of two layers of any number of heads through layer norms, with the scale of every token held fixed.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    norm="LN",
    biases=["b_N"],
)


scores_layer_norm = expansion(
    "scores_layer_norm",
    "Scores through layer norms",
    "The scores of a second-layer head through layer norms: the query's scale on the left, the key's on the right.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    target="scores:L1H0",
    norm="LN",
)


scores_normed_queries = expansion(
    "scores_normed_queries",
    "Scores with normed queries and keys",
    "The scores of a second-layer head with normed queries and keys and their biases.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    target="scores:L1H0",
    biases=["b_Q", "b_K"],
    qk_norm=True,
)


logits_rms_norm = expansion(
    "logits_rms_norm",
    "Logits through RMS norms",
    "The logits of two layers of any number of heads through RMS norms, which do not centre.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    norm="RMS",
)
