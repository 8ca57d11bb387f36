"""What is read off circuits: composition scores, eigenvalues and traces, norms, copying."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Word, transpose
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Number, Product, Sum, Target, Transposed
from symcircuits.derivation.other_runs import Rebased
from symcircuits.derivation.results.factors import head_factors, read_by, separate
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Inverse, Named, NamedMatrix, Parentheses, Ratio, Scaled, SquaredNorm, Trace

__all__ = ["composition_score", "compositions", "in_basis_t"]

_T, _Q, _R, _S = NamedMatrix("T"), NamedMatrix("Q", "orthogonal"), NamedMatrix("R"), NamedMatrix("S")
Factors = tuple[Factor, ...]


# --------------------------------------------------------------------------------------------- composition scores
@result(
    "composition_scores",
    "Composition scores: what they consist of and depend on",
    "The three composition scores are ratios of Frobenius norms, computed from small products by traces; they do not "
    "depend on the bases inside heads or on rotations of the stream, but they do depend on other changes of its "
    "basis, which leave the model the same: scores of two models cannot be compared.",
    "Analyzing a Two-Layer Model",
    chapter="Reading circuits",
    heading="Composition scores",
    heads=(1, 1),
    conventions=(
        "A composition score is the Frobenius norm of a product over the product of the norms; the squares are used "
        "here because they contain no roots. `Tr` is the trace, the sum of the diagonal. `T`, `R` and `S` are any "
        "invertible matrices, `Q` is any orthogonal one; in the basis `T`, a matrix that writes to the stream is "
        "multiplied by `T` and one that reads from it by the inverse.",
    ),
)
def composition_scores(frame: Frame) -> Iterator[Draft]:
    """Identity I16."""
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    pairs = compositions(h, g)
    yield Draft(
        "definition",
        tuple(Claim((composition_score(a, b), _by_traces(a, b))) for a, b in pairs),
        "The squares of the scores of Q-, K- and V-composition of L1H0 with L0H0, and the same expressed by traces: "
        "the square of a Frobenius norm is the trace of the matrix times its transpose.",
    )
    yield Draft(
        "identity",
        tuple(Claim((SquaredNorm(Word(a + b)), Trace(_small(a, b)))) for a, b in pairs),
        "The computation is small: the factors, taken in pairs, give matrices of size `d_head`, and none of the size "
        "of the stream has to be formed.",
    )
    yield Draft(
        "identity",
        tuple(Claim((composition_score(a, b), composition_score(_turned(a), _turned(b)))) for a, b in pairs),
        "A rotation of the stream does not change the scores.",
    )
    yield Draft("identity", tuple(_inside(h, g)), "Neither do other bases inside the heads, `R` for queries and keys, "
                                                  "`S` for values: the scores consist of `W_QK` and `W_OV`, which do "
                                                  "not change.")  # fmt: skip
    yield Draft(
        "identity",
        (Claim((Rebased("logits", _T), Target("logits"))), Claim((Rebased("scores:L1H0", _T), Target("scores:L1H0")))),
        "In any other basis of the stream, the model is the same: same logits, same attention scores.",
    )
    yield Draft(
        "counterexample",
        tuple(
            Claim((composition_score(a, b), composition_score(in_basis_t(a), in_basis_t(b))), "!=") for a, b in pairs
        ),
        "But its composition scores are different: the ratio changes, not only the norms. So a score is a statement "
        "about a model in one basis, up to rotation, and scores of two models cannot be compared.",
    )


Side = tuple[Expr, ...]


def compositions(h: dict[str, Factor], g: dict[str, Factor]) -> list[tuple[Factors, Factors]]:
    """What is multiplied in Q-, K- and V-composition: ``W_QK`` (transposed, or not) or ``W_OV``, and ``W_OV``."""
    qk, ov = (g["W_Q"].T, g["W_K"]), (h["W_O"], h["W_V"])
    return [(transpose(qk), ov), (qk, ov), ((g["W_O"], g["W_V"]), ov)]


def _as_expr(side: Factors | Product) -> Expr:
    return side if isinstance(side, Product) else Word(side)


def composition_score(a: Factors | Product, b: Factors | Product) -> Ratio:
    """The square of a composition score: ``||a b||^2 / (||a||^2 ||b||^2)``."""
    both = Product((*a.factors, *b.factors)) if isinstance(a, Product) and isinstance(b, Product) else None
    whole = both if both is not None else Word((*a, *b))  # type: ignore[misc]
    return Ratio(SquaredNorm(whole), Product((SquaredNorm(_as_expr(a)), SquaredNorm(_as_expr(b)))))


def _by_traces(a: Factors, b: Factors) -> Ratio:
    def squared(x: Factors) -> Trace:
        return Trace(separate((*transpose(x), *x)))

    return Ratio(squared((*a, *b)), Product((squared(a), squared(b))))


def _small(a: Factors, b: Factors) -> Product:
    """``(a_1^T a_1) (a_2 b_1) (b_2 b_2^T) (a_2 b_1)^T``."""
    meet = separate((a[1], b[0]))
    return Product(
        (
            Parentheses(separate((a[0].T, a[0]))),
            Parentheses(meet),
            Parentheses(separate((b[1], b[1].T))),
            Transposed(meet),
        )
    )


def _turned(x: Factors) -> Product:
    return separate(x, _Q)


def in_basis_t(x: Factors) -> Product:
    """Factors in the basis ``T`` of the stream."""
    return separate(x, _T)


def _inside(h: dict[str, Factor], g: dict[str, Factor]) -> Iterator[Claim]:
    """The scores with the factors of both heads in other bases."""

    def values(x: dict[str, Factor]) -> Product:
        o, v = Word((x["W_O"],)), Word((x["W_V"],))
        return Product((Parentheses(Product((o, Inverse(_S)))), Parentheses(Product((_S, v)))))

    q, k = Word((g["W_Q"],)), Word((g["W_K"],))
    query, key = Product((_R, q)), Product((Transposed(Inverse(_R)), k))
    sides = Product((Transposed(key), Parentheses(query))), Product((Transposed(query), Parentheses(key))), values(g)
    for (a, b), new in zip(compositions(h, g), sides, strict=True):
        yield Claim((composition_score(a, b), composition_score(new, values(h))))


# ----------------------------------------------------------------------------------------------------- eigenvalues
@result(
    "eigenvalue_tricks",
    "The eigenvalues of a circuit are those of a small matrix",
    "A product and a cyclic permutation of its factors have the same eigenvalues except for zeros, so those of a "
    "circuit of the size of the vocabulary can be computed from a matrix of size `d_head`.",
    "Working with Low-Rank Matrices",
    chapter="Reading circuits",
    heading="Eigenvalue tricks",
    heads=(1, 1),
    conventions=(
        "`F` is the OV circuit of L0H0, from tokens to logits, and `B` the matrix of size `d_head` with its factors "
        "permuted cyclically; `Tr` is the trace, the sum of the diagonal, and so the sum of the eigenvalues. `a` and "
        "`b` are any matrices.",
    ),
)
def eigenvalue_tricks(frame: Frame) -> Iterator[Draft]:
    """Identity I23."""
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    w_u, w_e = read_by(frame), embedding()[1].T
    reads, writes = (h["W_V"], w_e), (w_u, h["W_O"])
    f, b = Named("F", "F", Word((*writes, *reads))), Named("B", "B", separate((*reads, *writes)))
    yield Draft(
        "definition",
        (Claim((f, f.body)), Claim((b, b.body))),
        "A circuit, which has as many rows as there are tokens, and its factors permuted cyclically, which give a "
        "matrix of size `d_head`.",
    )
    x, y = NamedMatrix("a"), NamedMatrix("b")
    yield Draft(
        "identity",
        (Claim((Trace(Product((x, y))), Trace(Product((y, x))))),),
        "In a trace of two factors, either may come first, whatever their shapes: both traces are the sum over all "
        "`i` and `j` of `a_ij b_ji`.",
    )
    yield Draft(
        "identity",
        tuple(Claim((Trace(_power(f, n)), Trace(_power(b, n)))) for n in (1, 2, 3, 4)),
        "So the traces of all powers agree, here up to the fourth. The trace of a power is the sum of the powers of "
        "the eigenvalues, and these sums determine the characteristic polynomial (Newton's identities): the two "
        "polynomials agree up to a power of the variable.",
    )
    left, right = separate(reads), separate(writes)
    yield Draft(
        "identity",
        (
            Claim((Product((Parentheses(left), f)), Product((b, Parentheses(left))))),
            Claim((Product((f, Parentheses(right))), Product((Parentheses(right), b)))),
        ),
        "Eigenvectors are mapped to each other. If `v` is an eigenvector of `F`, the first line says that the values "
        "that the head reads from `v` (in parentheses) form an eigenvector of `B` with the same eigenvalue; if `w` is "
        "an eigenvector of `B`, the second line says that the output that the head writes from `w` is an eigenvector "
        "of `F`. Such a vector can be zero only if the eigenvalue is.",
    )
    qk, seen = (g["W_Q"].T, g["W_K"]), (w_e, w_e.T)
    virtual = (w_u, g["W_O"], g["W_V"], h["W_O"], h["W_V"], w_e)
    match = (w_e.T, *qk, h["W_O"], h["W_V"], w_e)
    yield Draft(
        "identity",
        (
            Claim((Trace(Word((w_e.T, *qk, w_e))), Trace(separate((g["W_K"], *seen, g["W_Q"].T))))),
            Claim((Trace(Word(virtual)), Trace(separate((*virtual[2:], *virtual[:2]))))),
            Claim((Trace(Word(match)), Trace(separate((h["W_V"], *seen, *qk, h["W_O"]))))),
        ),
        "The same for the QK circuit, a virtual head and K-composition: the cycle is cut where it is narrowest.",
    )
    yield Draft(
        "counterexample",
        (Claim((Trace(separate((*reads, *writes))), Trace(separate((*reversed(reads), *writes)))), "!="),),
        "Only cyclic permutations are allowed: exchanging two neighbours gives another trace.",
    )


def _power(expr: Expr, n: int) -> Expr:
    return expr if n == 1 else Product((expr,) * n)


# ----------------------------------------------------------------------------------------------------------- norms
_FIRST = Literal((("1", "1"), ("1", "1")))
_SECOND = Literal((("1", "1"), ("-1", "-1")))
_OTHER = Literal((("2", "2"), ("-2", "-2")))
_NOTHING = Literal((("0", "0"), ("0", "0")))


@result(
    "frobenius_not_cyclic",
    "The Frobenius norm is not cyclic",
    "The factors of a product may be permuted cyclically in a trace, but not in a Frobenius norm; the norm of a "
    "product is computed from small matrices in another way.",
    "Analyzing a Two-Layer Model; the correction in the comments",
    chapter="Reading circuits",
    heads=(1, 1),
    conventions=("`Tr` is the trace, the sum of the diagonal. `a` and `b` are any matrices.",),
)
def frobenius_not_cyclic(frame: Frame) -> Iterator[Draft]:
    """Identity I24, and the paper's erratum."""
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    word = (g["W_Q"].T, g["W_K"], h["W_O"], h["W_V"])
    orders = [word[n:] + word[:n] for n in (1, 3)]
    a, b = NamedMatrix("a"), NamedMatrix("b")
    small = Product((Parentheses(Product((Transposed(a), a))), Parentheses(Product((b, Transposed(b))))))
    yield Draft(
        "identity",
        (Claim((SquaredNorm(Product((a, b))), Trace(small))),),
        "The square of the norm of a product, from two matrices whose size is the inner dimension.",
    )
    yield Draft(
        "identity",
        (Claim((Trace(separate(word)), *(Trace(separate(order)) for order in orders))),),
        "In a trace, the factors of K-composition may be permuted cyclically.",
    )
    yield Draft(
        "counterexample",
        tuple(Claim((SquaredNorm(separate(word)), SquaredNorm(separate(order))), "!=") for order in orders),
        "In a norm they may not. The first version of the paper's diagram of composition was computed in this way, "
        "and was corrected: the two products on the right do not measure composition, but how far the later head's "
        "queries are built from what the earlier head moved.",
    )
    yield Draft(
        "definition",
        (Claim((Product((_FIRST, _SECOND)), _NOTHING)), Claim((Product((_SECOND, _FIRST)), _OTHER))),
        "The smallest example: one order gives zero, with norm 0, the other a matrix of norm 4; both have trace 0.",
        how="exact",
    )


# --------------------------------------------------------------------------------------------------------- copying
_M = Literal((("-1", "3"), ("-2", "4")))
_N = Literal((("1", "-3"), ("3", "1")))


@result(
    "copying",
    "Positive eigenvalues are necessary but not sufficient for copying",
    "The sum of the eigenvalues of an OV circuit is its trace, the sum of the effects of every token on its own "
    "logit: it is positive if every token raises its own logit, but all eigenvalues can be positive although a token "
    "lowers its own logit.",
    "Detecting Copying Behavior",
    chapter="Reading circuits",
    heading="Copying",
    heads=(1,),
    conventions=(
        "`F` is the OV circuit of L0H0, from tokens to logits; an entry on its diagonal is the effect of an attended "
        "token on its own logit. `Tr` is the trace, the sum of the diagonal. `V` is any invertible matrix, `J` is any "
        "matrix. The copying score is the sum of the eigenvalues over the sum of their moduli.",
    ),
)
def copying(frame: Frame) -> Iterator[Draft]:
    """Identity I19."""
    h = head_factors(frame, 0)
    w_u, w_e = read_by(frame), embedding()[1].T
    f = Named("F", "F", Word((w_u, h["W_O"], h["W_V"], w_e)))
    small = separate((h["W_V"], w_e, w_u, h["W_O"]))
    yield Draft(
        "definition",
        (Claim((f, f.body)), Claim((Trace(f), Trace(small)))),
        "The OV circuit; its trace is that of a matrix of size `d_head`.",
    )
    v, j = NamedMatrix("V"), NamedMatrix("J")
    yield Draft(
        "identity",
        (Claim((Trace(Product((v, j, Inverse(v)))), Trace(j))),),
        "A trace is the same in every basis. With `J` the Jordan form, which has the eigenvalues on its diagonal, it "
        "is their sum, whether or not the matrix has a basis of eigenvectors. So if every token raises its own logit, "
        "the sum of the eigenvalues is positive, and so is the score: the condition is necessary.",
    )
    three, two = Literal((("3",), ("2",))), Literal((("1",), ("1",)))
    yield Draft(
        "definition",
        (Claim((Product((_M, three)), three)), Claim((Product((_M, two)), Scaled("2", two)))),
        "It is not sufficient. This matrix of two tokens has the eigenvalues 1 and 2, so its score is 1, the largest "
        "possible.",
        how="exact",
    )
    row, column = Literal((("1", "0"),)), Literal((("1",), ("0",)))
    yield Draft(
        "counterexample",
        (Claim((Product((row, _M, column)), Literal((("-1",),)))), Claim((Trace(_M), Number(3)))),
        "Yet the first token lowers its own logit: the entry on the diagonal is -1. The trace is 3, as it must be, "
        "because the second token compensates for the first. (The eigenvectors are not orthogonal.)",
        how="exact",
    )
    ten = Literal((("10", "0"), ("0", "10")))
    yield Draft(
        "counterexample",
        (Claim((Sum((Product((_N, _N)), ten)), Scaled("2", _N))),),
        "Nor does the score have to be 1 if every token raises its own logit: here both do, and the square of an "
        "eigenvalue plus 10 is twice the eigenvalue, so they are a complex pair with real part 1 and modulus 3.16: "
        "the score is 0.32.",
        how="exact",
    )
