"""Heads in pieces, and heads mixed: singular vectors, terms by singular values, talking heads."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Number, Product, Sum, Target, Transposed
from symcircuits.derivation.results.factors import embed, head_factors, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import HeadWidth, Named, NamedMatrix, Parentheses, Rank, Scaled

__all__: list[str] = []


@result(
    "singular_vectors",
    "What a head reads and writes: the singular vectors of its OV matrix",
    "With a singular value decomposition of the OV matrix, a head reads the stream along its right singular vectors, "
    "scales what it reads by the singular values, and writes it along its left ones.",
    "Attention Heads as Information Movement, footnote on reading and writing subspaces",
    chapter="Reading circuits",
    heading="What a head reads and writes",
    heads=(1,),
    conventions=(
        "`W` is a matrix with a singular value decomposition, which every real OV matrix has: `P` and `Q` are "
        "orthogonal, `D` is diagonal, and the columns of `P` and `Q` are the left and the right singular vectors; `W` "
        "acts on rows by its transpose.",
    ),
)
def singular_vectors(frame: Frame) -> Iterator[Draft]:
    """Identity I31."""
    p, q, d = NamedMatrix("P", "orthogonal"), NamedMatrix("Q", "orthogonal"), NamedMatrix("D", "diagonal")
    w = Named("W", "W", Product((p, d, Transposed(q))))
    a, x = Word((head_factors(frame, 0)["A"],)), embed()
    yield Draft("definition", (Claim((w, w.body)),), "The decomposition.")
    yield Draft(
        "identity",
        (
            Claim((Product((w, q)), Product((p, d)))),
            Claim((Product((Transposed(w), p)), Product((q, d)))),
            Claim((Product((Transposed(w), w, q)), Product((q, d, d)))),
        ),
        "The matrix maps right singular vectors to left ones, times the singular values, and its transpose maps them "
        "back; right singular vectors are the eigenvectors of the transpose times the matrix, with the squared "
        "singular values as eigenvalues.",
    )
    read = Parentheses(Product((a, x, q)))
    yield Draft(
        "identity",
        (Claim((Product((a, x, Transposed(w))), Product((read, d, Transposed(p))))),),
        "So the head reads the coordinates of the moved stream along the right singular vectors (in parentheses), and "
        "writes multiples of the left ones. Directions with singular value zero are neither read nor written: at most "
        "`d_head` others remain.",
    )


@result(
    "singular_pieces",
    "A term is a sum of rank-one pieces",
    "Each singular value of a QK or OV matrix gives a piece of every term that contains the matrix: scores are sums "
    "of products of two numbers, one from the query and one from the key, and a term has at most `d_head` pieces.",
    "own derivation, as in Merullo et al. 2024 and Franco and Crovella 2024",
    chapter="Reading circuits",
    heading="Terms by singular values",
    heads=(1, 1),
    options={"scale": False},
    conventions=(
        "`a_1` and `a_2` are two singular values, `bold u` and `bold p` left, `bold v` and `bold q` right singular "
        "vectors; more are added in the same way. Orthogonality is not used: the result applies to any sum of "
        "products of a column and a row. Scores are written without a scale.",
    ),
)
def singular_pieces(frame: Frame) -> Iterator[Draft]:
    """Extension E17."""
    u, p, v, q = (NamedMatrix(name, "vector") for name in "upvq")
    pieces = [Scaled("a_1", Product((u, Transposed(v)))), Scaled("a_2", Product((p, Transposed(q))))]
    w = Named("W", "W", Sum(tuple(pieces)))
    h, x, w_u = head_factors(frame, 0), embed(), Word((read_by(frame),))
    a, ov = Word((h["A"],)), Word((h["W_O"], h["W_V"]))
    yield Draft("definition", (Claim((w, w.body)),), "A matrix with two singular values.")

    def each(left: Expr, right: tuple[Expr, ...]) -> Sum:
        """Two pieces; ``right`` is what stands behind the row of each, transposed in the pieces."""
        return Sum(tuple(
            Scaled(name, Product((Parentheses(Product((left, one))), Transposed(Product((*right, other))))))
            for name, one, other in (("a_1", u, v), ("a_2", p, q))
        ))  # fmt: skip

    moved = Word((*a.factors, *x.factors, *ov.T.factors))
    yield Draft(
        "distributing",
        (
            Claim((Product((x, w, x.T)), each(x, (x,)))),
            Claim((Product((x, w, Transposed(moved))), each(x, (moved,)))),
        ),
        "As the QK matrix of a head: the scores of the tokens, and the term of K-composition with an earlier head. "
        "Each piece is a number from the query times a number from the key.",
    )
    acted = Sum(tuple(
        Scaled(name, Product((Parentheses(Product((a, x, other))), Transposed(Product((w_u, one))))))
        for name, one, other in (("a_1", u, v), ("a_2", p, q))
    ))  # fmt: skip
    yield Draft(
        "distributing",
        (Claim((Product((a, x, Transposed(w), w_u.T)), acted)),),
        "As the OV matrix of a head, in the logits: the component of the moved stream along a right singular vector, "
        "for each token, times the effect of the left one on the logits.",
    )
    yield Draft(
        "identity",
        tuple(Claim((Rank(Product((Parentheses(Product((x, one))), Transposed(Product((x, other)))))), Number(1)), "<=")
              for one, other in ((u, v), (p, q))),
        "Every piece has rank at most one.",
    )  # fmt: skip


@result(
    "talking_heads",
    "Talking heads are heads with mixed matrices",
    "Mixing the patterns of the heads of a layer after the softmax is the same as mixing their OV matrices, and "
    "mixing their scores before the softmax is the same as mixing their QK matrices; the mixed matrices have a larger "
    "rank.",
    "Related Work: Recent Architectural Changes; Shazeer et al. 2020",
    chapter="Heads",
    heading="Talking heads",
    heads=(2,),
    options={"scale": False},
    given=("narrow heads",),
    conventions=(
        "`a_1`, `a_2`, `b_1` and `b_2` are any numbers, the weights with which two heads are mixed. Scores are "
        "written without a scale.",
    ),
)
def talking_heads(frame: Frame) -> Iterator[Draft]:
    """Identity I30."""
    heads, x = [head_factors(frame, 0, i) for i in (0, 1)], embed()
    a = [Word((h["A"],)) for h in heads]
    ov, qk = [Word((h["W_O"], h["W_V"])) for h in heads], [Word((h["W_Q"].T, h["W_K"])) for h in heads]

    def mixed(weights: tuple[str, str], parts: list[Word]) -> Sum:
        return Sum(tuple(Scaled(weight, part) for weight, part in zip(weights, parts, strict=True)))

    patterns = [
        Named(f"A_{n}", f"A_{n}", mixed((f"{letter}_1", f"{letter}_2"), a)) for n, letter in ((1, "a"), (2, "b"))
    ]
    yield Draft(
        "definition",
        tuple(Claim((pattern, pattern.body)) for pattern in patterns),
        "The pattern of each head is a mixture of both patterns, after the softmax.",
    )
    values = [mixed((f"a_{n}", f"b_{n}"), ov) for n in (1, 2)]
    unmixed = Sum(tuple(Product((pattern, x, Transposed(w))) for pattern, w in zip(a, values, strict=True)))
    written = Sum(tuple(Product((pattern, x, w.T)) for pattern, w in zip(patterns, ov, strict=True)))
    yield Draft(
        "identity",
        (Claim((written, unmixed)),),
        "The output of the layer is that of heads with the original patterns, each with a mixture of the OV matrices. "
        "So all results of this book apply, with these matrices in place of `W_OV`.",
    )
    scores = [Target(f"scores:L0H{i}") for i in (0, 1)]
    weighted = mixed(("a_1", "a_2"), qk)
    yield Draft(
        "identity",
        (Claim((Sum((Scaled("a_1", scores[0]), Scaled("a_2", scores[1]))), Product((x, weighted, x.T)))),),
        "Scores that are mixed before the softmax are the scores of one mixed QK matrix.",
    )
    yield Draft(
        "identity",
        tuple(Claim((Rank(m), Scaled("2", HeadWidth())), "<=") for m in (values[0], weighted)),
        "Each mixture passes through the dimensions of both heads.",
    )
    yield Draft(
        "counterexample",
        tuple(Claim((Rank(m), HeadWidth()), "!=") for m in (values[0], weighted)),
        "It does not fit into the dimensions of one: no single head of this width has such a matrix.",
    )
