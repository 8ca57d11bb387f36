"""What one head does from token to token, and from feature to feature: skip-trigrams, head loadings."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding
from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Number, Product, Sum, Transposed
from symcircuits.derivation.results.factors import head_factors, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Named, NamedMatrix, Parentheses, Rank, Scaled

__all__: list[str] = []


@result(
    "skip_trigrams",
    "The skip-trigrams of a head factorise, which causes bugs",
    "For a given source token, the effect of a head on destination and output is a product: how strongly the "
    "destination attends to the source, times the effect of the source on the output. A head that raises two such "
    "trigrams also raises the two mixed ones.",
    "Interpretation as Skip-Trigrams; Skip-Trigram Bugs",
    chapter="Zero and one layer",
    heading="Skip-trigrams",
    heads=(1,),
    conventions=(
        "`bold u` is any vector over tokens, one-hot for one source token; `bold w` is any vector, such as the "
        "weights that softmax computes from the scores of all destinations. `F` has a row for each destination and a "
        "column for each output.",
    ),
)
def skip_trigrams(frame: Frame) -> Iterator[Draft]:
    """Identity I11."""
    h, w_u, w_e = head_factors(frame, 0), read_by(frame), embedding()[1].T
    qk = Named("C_QK", "C_{QK}", Word((w_e.T, h["W_Q"].T, h["W_K"], w_e)))
    ov = Named("C_OV", "C_{OV}", Word((w_u, h["W_O"], h["W_V"], w_e)), flips=True)
    u, w = NamedMatrix("u", "vector"), NamedMatrix("w", "vector")
    done = Product((Transposed(u), Transposed(ov)))
    scores = Product((Parentheses(Product((qk, u))), Parentheses(done)))
    f = Named("F", "F", scores)
    yield Draft("definition", (Claim((qk, qk.body)), Claim((ov, ov.body))), "The two circuits of the head.")
    yield Draft(
        "definition",
        (Claim((f, f.body)),),
        "For one source: a column of scores, one for each destination, times a row of effects, one for each output.",
    )
    weighted = Product((w, Parentheses(done)))
    yield Draft(
        "identity",
        (Claim((Rank(f), Number(1)), "<="), Claim((Rank(weighted), Number(1)), "<=")),
        "So the table of one source has rank one, also if any weights replace the scores: a function of source, "
        "destination and output is a function of source and destination times a function of source and output.",
    )
    column, row = Literal((("2",), ("3",))), Literal((("5", "7"),))
    table, minor = Literal((("10", "14"), ("15", "21"))), Literal((("21", "-14"), ("-15", "10")))
    nothing = Literal((("0", "0"), ("0", "0")))
    yield Draft(
        "definition",
        (Claim((Product((column, row)), table)), Claim((Product((minor, table)), nothing))),
        "In numbers, with the source keep, the destinations in and at, and the outputs mind and bay: keep ... in mind "
        "has 10 and keep ... at bay has 21, and so keep ... in bay and keep ... at mind have 14 and 15. The second "
        "line says that the determinant is zero, as for every such table.",
        how="exact",
    )
    wanted, adjugate = Literal((("1", "0"), ("0", "2"))), Literal((("2", "0"), ("0", "1")))
    yield Draft(
        "counterexample",
        (Claim((Product((adjugate, wanted)), nothing), "!="),),
        "A table with only the two wanted trigrams has another determinant: no head of a one-layer model has it.",
        how="exact",
    )


@result(
    "head_loadings",
    "Head loadings: from feature to feature through a layer",
    "The contribution of a feature of one token to a feature of another through one layer is a sum over heads: its "
    "activation, times the attention between the two tokens, times an entry of the OV matrix between the two "
    "directions.",
    "own derivation, as in Kamath et al. 2025",
    chapter="Reading circuits",
    heading="Head loadings",
    heads=(2, 1),
    target="stream",
    conventions=(
        "A feature writes its activation, the number `a_1`, times its direction `bold v` into the row of the token "
        "`bold e`, a one-hot vector; `a_2`, `bold q` and `bold p` are those of another feature. The reading feature "
        "reads in the row of the token `bold f`, along `bold r`.",
    ),
)
def head_loadings(frame: Frame) -> Iterator[Draft]:
    """Extension E15."""
    e, f, v, r, p, q = (NamedMatrix(name, "vector") for name in "efvrpq")
    heads, late = [head_factors(frame, 0, i) for i in (0, 1)], head_factors(frame, 1)
    features = (("a_1", e, v), ("a_2", p, q))
    x = Named("X", "X", Sum(tuple(Scaled(a, Product((token, Transposed(way)))) for a, token, way in features)))
    yield Draft("definition", (Claim((x, x.body)),), "A stream of two features.")

    def acts(body: Expr, *through: tuple[Word, Word]) -> Product:
        for a, ov in through:
            body = Product((a, *(body.factors if isinstance(body, Product) else (body,)), ov.T))
        return body if isinstance(body, Product) else Product((body,))

    def loading(number: str, token: Expr, direction: Expr, *through: tuple[Word, Word]) -> Scaled:
        a = Word(tuple(x for one, _ in reversed(through) for x in one.factors))
        w = Word(tuple(x for _, one in reversed(through) for x in one.factors))
        return Scaled(number, Product((Parentheses(Product((Transposed(f), a, token))),
                                       Parentheses(Product((Transposed(direction), w.T, r))))))  # fmt: skip

    maps = [(Word((h["A"],)), Word((h["W_O"], h["W_V"]))) for h in (*heads, late)]
    read = Sum(tuple(Product((Transposed(f), *acts(x, one).factors, r)) for one in maps[:2]))
    yield Draft(
        "distributing",
        (Claim((read, Sum(tuple(loading(*feature, one) for one in maps[:2] for feature in features)))),),
        "What the reading feature receives through the heads: a loading for each feature and each head. The first "
        "parentheses are the attention from one token to the other, the second the effect of the head on the "
        "direction.",
    )
    ov = maps[0][1]
    yield Draft(
        "identity",
        (Claim((Product((Transposed(v), ov.T, r)), Product((Transposed(r), ov, v)))),),
        "The second is a number, so it may also be written in reverse: the reading direction, the OV matrix, the "
        "writing direction.",
    )
    through = maps[0], maps[2]
    both = Product((Transposed(f), *acts(x, *through).factors, r))
    yield Draft(
        "distributing",
        (Claim((both, Sum(tuple(loading(*feature, *through) for feature in features)))),),
        "Through two layers, the loadings are those of a virtual head, and there are as many as paths: their number "
        "grows with every layer between the two features.",
    )
