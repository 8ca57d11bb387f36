"""Results about models in which nothing need be held fixed: attention without softmax, bilinear MLPs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Transposed
from symcircuits.derivation.real_models import ModelLogits, RealModel
from symcircuits.derivation.results.factors import embed, head_factors, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Entrywise, Masked, Named, NamedMatrix, Parentheses, Scaled

__all__: list[str] = []


@result(
    "bilinear_mlp",
    "A bilinear MLP is a sum over pairs of paths",
    "The output of a bilinear MLP is a sum over ordered pairs of the paths that it reads, so no part of it is held "
    "fixed.",
    "Additional Intuition: MLP Layers",
    chapter="Nothing held fixed",
    heading="Bilinear MLPs",
    summary="A bilinear MLP in the expansion: a sum over ordered pairs of paths, with nothing held fixed.",
    heads=(1,),
    conventions=(
        "`W_I`, `W_G` and `W_M` are the matrices with which the MLP reads the stream directly, reads it for its gate, "
        "and writes to it. The dot in a circle, a small o in plain text, is the product entry by entry. Held fixed: "
        "the attention patterns. There is no position embedding and no layer norm.",
    ),
    real_model=RealModel(
        "a model with a bilinear MLP and softmax patterns",
        {"mlps": True, "bilinear": True},
        {
            "W_I": "W_in_L0",
            "W_G": "W_gate_L0",
            "W_M": "W_out_L0",
        },
    ),
)
def bilinear_mlp(frame: Frame) -> Iterator[Draft]:
    """Extension E11; Pearce et al. 2024, "Bilinear MLPs enable weight-based mechanistic interpretability"."""
    w_i, w_g, w_m = (NamedMatrix(name, flips=True) for name in ("W_I", "W_G", "W_M"))
    h, w_u = head_factors(frame, 0), Word((read_by(frame).T,))
    paths = [embed(), Word((h["A"], *embed().factors, h["W_V"].T, h["W_O"].T))]
    y = Named("Y", "Y", Sum(tuple(paths)))
    inside = Entrywise(_read(y, w_i), _read(y, w_g))
    yield Draft(
        "definition",
        (Claim((y, y.body)), Claim((Named("m", "m", inside), inside))),
        "The MLP reads the stream after the head twice, and multiplies the two results entry by entry.",
    )
    pairs = [Entrywise(_read(a, w_i), _read(b, w_g)) for a, b in product(paths, repeat=2)]
    yield Draft(
        "distributing",
        (Claim((inside, Sum(tuple(pairs)))),),
        "The product entry by entry is linear in each side: a term for every ordered pair of paths.",
    )
    a, b = paths
    swapped = Entrywise(_read(y, w_g), _read(y, w_i))
    both = Sum((pairs[1], pairs[2]))
    yield Draft(
        "identity",
        (Claim((inside, swapped)), Claim((both, Sum((pairs[2], Entrywise(_read(b, w_g), _read(a, w_i))))))),
        "It is the same with the two matrices exchanged, so only the sum of a pair and its mirror image matters: for "
        "`S` paths there are `S (S + 1) / 2` such sums.",
    )
    written: list[Expr] = [Product((pair, Transposed(w_m), w_u)) for pair in pairs]
    yield Draft(
        "identity",
        (Claim((ModelLogits(), Sum((*(Product((path, w_u)) for path in paths), *written)))),),
        "In a transformer: two paths that do not enter the MLP and four pairs that do add up to the logits of a model "
        "with a bilinear MLP.",
        how="model",
    )
    yield from _quadratic(y, w_i, w_g)


def _quadratic(y: Expr, w_i: NamedMatrix, w_g: NamedMatrix) -> Iterator[Draft]:
    """Twice the stream gives four times the output."""
    inside, two = Entrywise(_read(y, w_i), _read(y, w_g)), Sum((y, y))
    doubled = Entrywise(_read(two, w_i), _read(two, w_g))
    yield Draft(
        "counterexample",
        (Claim((doubled, Sum((inside, inside))), "!="),),
        "It is not linear: twice the stream does not give twice the output.",
    )
    yield Draft("identity", (Claim((doubled, Scaled("4", inside))),), "Twice the stream gives four times the output.")


def _read(x: Expr, w: NamedMatrix) -> Product:
    return Product((x, Transposed(w)))


@result(
    "attention_without_softmax",
    "Attention without softmax is a sum over triples of paths",
    "If the pattern is the masked scores themselves, the output of a head is a sum over triples of the paths that it "
    "reads: one for the query, one for the key, one for the value; nothing is held fixed.",
    "Attention Heads as Information Movement",
    chapter="Nothing held fixed",
    heading="Attention without softmax",
    summary="Attention without softmax: a sum over triples of paths, nothing held fixed.",
    heads=(1, 1),
    conventions=(
        "`M` is the causal mask, zero above the diagonal and one elsewhere; the dot in a circle, a small o in plain "
        "text, is the product entry by entry. Nothing is held fixed: attention patterns are not given, but written "
        "out. Scores are written without their scale. There is no position embedding, no layer norm and no MLP.",
    ),
    options={"softmax": False, "scale": False},
    real_model=RealModel("a model without softmax", {"softmax": False, "scale": False}),
)
def attention_without_softmax(frame: Frame) -> Iterator[Draft]:
    """Extension E12."""
    first, second = (head_factors(frame, layer) for layer in (0, 1))
    w_u = Word((read_by(frame).T,))
    x0 = embed()
    qk = [Word((h["W_Q"].T, h["W_K"])) for h in (first, second)]
    ov = [Word((h["W_V"].T, h["W_O"].T)) for h in (first, second)]
    a0 = Masked(Product((x0, qk[0], x0.T)))
    p0 = Named("A_1", "A_1", a0)
    yield Draft(
        "definition",
        (Claim((p0, a0)),),
        "The pattern of the first-layer head: its masked scores. Its rows do not sum to one.",
    )
    moved = Product((p0, x0, ov[0]))
    x1 = Named("Y", "Y", Sum((x0, moved)))
    a1 = Masked(Product((x1, qk[1], Transposed(x1))))
    p1 = Named("A_2", "A_2", a1)
    yield Draft("definition", (Claim((x1, x1.body)), Claim((p1, a1))), "The stream after it, and the next pattern.")
    paths: list[Expr] = [x0, moved]
    keys: list[Expr] = [x0.T, Transposed(moved)]
    scores = [Masked(Product((q, qk[1], k))) for k, q in product(keys, paths)]
    yield Draft(
        "distributing",
        (Claim((p1, Sum(tuple(scores)))),),
        "The mask acts linearly, entry by entry, so the pattern is the sum of the masked terms of the scores: none, "
        "Q, K and QK.",
    )
    triples: list[Expr] = [Product((Parentheses(a), v, ov[1])) for a, v in product(scores, paths)]
    yield Draft(
        "distributing",
        (Claim((Product((p1, x1, ov[1])), Sum(tuple(triples)))),),
        "The output of the second-layer head: a term for every query path, key path and value path.",
    )
    direct = [Product((path, w_u)) for path in paths]
    yield Draft(
        "identity",
        (Claim((ModelLogits(), Sum((*direct, *(Product((t, w_u)) for t in triples))))),),
        "In a transformer without softmax, with nothing held fixed: ten terms, of degrees 1, 3, 5, 7 and 9 in the "
        "embeddings of the tokens.",
        how="model",
    )
    yield from _cubic(x0, qk[0], ov[0], moved)


def _cubic(x0: Word, qk: Word, ov: Word, moved: Expr) -> Iterator[Draft]:
    """Twice the stream gives eight times the output."""
    two = Sum((x0, x0))
    doubled = Product((Parentheses(Masked(Product((two, qk, Transposed(two))))), two, ov))
    yield Draft(
        "counterexample",
        (Claim((doubled, Sum((moved, moved))), "!="),),
        "A head is not linear: twice the stream does not give twice the output.",
    )
    yield Draft(
        "identity",
        (Claim((doubled, Scaled("8", moved))),),
        "It is cubic: twice the stream gives eight times the output.",
    )
