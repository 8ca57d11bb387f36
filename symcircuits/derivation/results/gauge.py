"""Changes of the weights that leave the model as it is: where a source begins, what is added to every logit."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding, stream_program
from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Target, Transposed
from symcircuits.derivation.other_runs import Changed
from symcircuits.derivation.results.factors import embed, head_factors, ones, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Difference, Named, NamedMatrix, Parentheses, SquaredNorm, Trace

__all__: list[str] = []

_TARGETS = ("stream", "scores:L0H0", "scores:L1H0", "logits")


@result(
    "source_gauge",
    "Terms by source depend on the split between token and position embedding",
    "A vector added to every token embedding and subtracted from every position changes no stream, score or logit, "
    "but changes every term by source; a vector added to every row of `W_U` changes all logits of a token by the same "
    "amount.",
    "own derivation",
    chapter="Positions and biases",
    heading="The split between sources",
    heads=(1, 1),
    options={"positions": "standard"},
    given=("rows sum to one", "one-hot tokens"),
    conventions=(
        "`c` and `z` are any vectors and `1` is a column of ones of the required length. The rows of every pattern "
        "sum to one, and so do those of the tokens `t`, which are one-hot. `C` subtracts from every row its mean. A "
        "target with `(c)` or `(z)` is that of the model with the changed matrices, run with the same patterns.",
    ),
)
def source_gauge(frame: Frame) -> Iterator[Draft]:
    """Extension E25."""
    t, w_e_t = embedding()
    t_word, p = Word((t,)), Word(stream_program(frame.walked, 0)[0].sources[1].factors)
    one, c = ones(), NamedMatrix("c")
    constant = Product((one, Transposed(c)))
    e = Named("W_E^(c)", "W_E^{(c)}", Sum((Word((w_e_t.T,)), Product((c, one.T)))), flips=True)
    n = Named("P^(c)", "P^{(c)}", Difference(p, constant))
    x = Product((t_word, Transposed(e)))
    yield Draft(
        "definition",
        (Claim((e, e.body)), Claim((n, n.body))),
        "A vector is added to the embedding of every token, and subtracted from every row of the position embedding.",
    )
    yield Draft(
        "identity",
        (Claim((x, Sum((embed(), constant)))), Claim((Sum((x, n)), Sum((embed(), p))))),
        "The initial stream of every token then gains the same vector; the positions compensate for it.",
    )
    changes = (("W_E", e), ("P", n))
    yield Draft(
        "identity",
        tuple(Claim((Changed(name, "c", changes), Target(name))) for name in _TARGETS),
        "So it is the same model: the stream, the scores of every head (which determine the patterns) and the logits "
        "are unchanged.",
    )
    yield from _terms(frame, e, n, p)
    yield from _unembedding(frame, one)


def _terms(frame: Frame, e: Expr, n: Expr, p: Word) -> Iterator[Draft]:
    """What becomes of the terms by source."""
    x = Product((Word(embed().factors[:1]), Transposed(e)))
    one, c = ones(), NamedMatrix("c")
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    u = read_by(frame).T
    paths = [((), ()), *(((a["A"],), (a["W_V"].T, a["W_O"].T)) for a in (h, g))]
    paths.append(((g["A"], h["A"]), (h["W_V"].T, h["W_O"].T, g["W_V"].T, g["W_O"].T)))

    def through(body: Expr, i: int) -> Expr:
        left, right = paths[i]
        return Product((*([Word(left)] if left else []), body, Word((*right, u))))

    def word(source: Word, i: int) -> Word:
        left, right = paths[i]
        return Word((*left, *source.factors, *right, u))

    def constant_through(i: int) -> Expr:
        return Product((one, Transposed(c), Word((*paths[i][1], u))))

    every = range(len(paths))
    yield Draft(
        "distributing",
        tuple(Claim((through(x, i), Sum((word(embed(), i), constant_through(i))))) for i in every),
        "But every term that starts from the token changes, by the same row for every token (`A 1 = 1`): the direct "
        "path, the two heads, and the virtual head. The change is as large as one chooses `c`.",
    )
    yield Draft(
        "distributing",
        tuple(Claim((through(n, i), Difference(word(p, i), constant_through(i)))) for i in every),
        "Those that start from the position change by the opposite amount.",
    )
    yield Draft(
        "identity",
        tuple(Claim((through(Sum((x, n)), i), through(Sum((embed(), p)), i))) for i in every),
        "Token and position together do not change: a path with both its sources is a property of the model.",
    )
    yield Draft(
        "counterexample",
        tuple(Claim((SquaredNorm(word(embed(), i)), SquaredNorm(through(x, i))), "!=") for i in every),
        "So the size of a term by source, and any ranking by it, depends on how the embedding was split, and says "
        "nothing about the model.",
    )
    qk = Word((h["W_Q"].T, h["W_K"]))
    yield Draft(
        "counterexample",
        (
            Claim((Product((x, qk, Transposed(x))), Word((*embed().factors, *qk.factors, *embed().T.factors))), "!="),
            Claim((Product((x, qk, Transposed(n))), Word((*embed().factors, *qk.factors, *p.T.factors))), "!="),
        ),
        "The same is true of scores: the terms of two tokens, or of a token and a position, change.",
    )
    ov = Word((u.T, h["W_O"], h["W_V"]))
    yield Draft(
        "counterexample",
        (Claim((Trace(Product((ov, e))), Trace(Word((*ov.factors, embed().factors[1].T)))), "!="),),
        "And of circuits from tokens to logits: the trace of an OV circuit, the sum of its eigenvalues, changes.",
    )


def _unembedding(frame: Frame, one: Word) -> Iterator[Draft]:
    """One vector added to every row of the unembedding."""
    z, centred = NamedMatrix("z"), NamedMatrix("C", "centring")
    w_u = read_by(frame)
    w = Named("W_U^(z)", "W_U^{(z)}", Sum((Word((w_u,)), Product((one, Transposed(z))))), flips=True)
    changed = Changed("logits", "z", (("W_U", w),))
    last = Word((stream_symbol(2),))
    yield Draft("definition", (Claim((w, w.body)),), "Now a vector is added to every row of the unembedding.")
    yield Draft(
        "identity",
        (
            Claim((changed, Sum((Target("logits"), Product((last, z, one.T)))))),
            Claim((Product((changed, centred)), Product((Target("logits"), centred)))),
        ),
        "It adds one number to all logits of a token: the differences between logits do not change, and neither do "
        "the probabilities and the logits minus their mean.",
    )
    direct, new = Word((*embed().factors, w_u.T)), Product((embed(), Transposed(w)))
    yield Draft(
        "identity",
        (Claim((Product((Parentheses(new), centred)), Product((direct, centred)))),),
        "The same is true term by term, here for the direct path: the effect of a term on a difference of logits, or "
        "on the logits minus their mean, is a property of the model.",
    )
    yield Draft(
        "counterexample",
        (Claim((new, direct), "!="), Claim((SquaredNorm(new), SquaredNorm(direct)), "!=")),
        "Its effect on one logit is not, and neither is its norm.",
    )
