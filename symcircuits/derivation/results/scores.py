"""Scores with what acts in queries and keys alone: their biases, rotary positions, ALiBi."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus, readout_definition
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Product, Sum, Target, Transposed
from symcircuits.derivation.results.factors import embed, head_factors
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import Beside, HeadWidth, Named, NamedMatrix, Rank

__all__: list[str] = []


scores_query_key_biases = expansion(
    "scores_query_key_biases",
    "Scores with query and key biases",
    "Scores with query and key biases, and the terms that softmax cannot see.",
    chapter="Positions and biases",
    heads=(2, 2),
    target="scores:L1H0",
    biases=["b_Q", "b_K"],
)


@result(
    "query_key_biases",
    "Query and key biases in one matrix per head",
    "With query and key biases the scores are four terms, of which softmax sees two; together they are one bilinear "
    "form, of rank at most `d_head`, on the stream extended by a column of ones.",
    "Notation (no biases); own derivation, the augmented matrix as in Franco and Crovella's code",
    chapter="Positions and biases",
    heading="Query and key biases in one matrix",
    summary="Query and key biases: which terms softmax does not see, and one matrix per head that contains them.",
    heads=(1,),
    target="scores:L0H0",
    given=("equal ones", "narrow heads"),
    options={"biases": ["b_Q", "b_K"]},
    conventions=(
        "`X_0` is what the head reads; for a head of a later layer it is the stream before its layer. `C` subtracts "
        "from every row its mean: on the right of the scores it acts on the keys of each query.",
    ),
)
def query_key_biases(frame: Frame) -> Iterator[Draft]:
    """Extension E2."""
    target, head = Target(frame.target), head_factors(frame, 0)
    terms = dict(zip(("none", "key", "query", "both"), (expr for _, expr in frame.terms), strict=True))
    yield Draft(
        "definition",
        (Claim((target, readout_definition(frame))),),
        "The scores, before mask and softmax, of queries and keys with biases.",
    )
    yield Draft(
        "distributing",
        (Claim((target, plus(list(terms.values())))),),
        "Multiplied out: query with key; query with key bias; query bias with key; bias with bias.",
        complete=True,
    )
    mean = NamedMatrix("C", "centring")
    seen = [Product((terms[name], mean)) for name in ("none", "query")]
    yield Draft(
        "identity",
        (Claim((Product((target, mean)), Sum(tuple(seen)))),),
        "The terms with the key bias are the same for every key: subtracting from the scores of each query their mean "
        "over the keys, which does not change the softmax, removes them.",
    )
    (ones, b_q), (_, b_k) = (side[-1].sources[0].core for side in frame.expansion.readout.sides)
    q, k = (Beside((Word((head[w],)), Word((b.T,)))) for w, b in (("W_Q", b_q), ("W_K", b_k)))
    omega = Named("Omega", r"\Omega", Product((Transposed(q), k)))
    stream = Beside((embed(), Word((ones,))))
    yield Draft(
        "definition",
        (Claim((omega, omega.body)),),
        "Each bias is appended to its matrix as one more column: the result has one row and one column more than "
        "`W_QK`.",
    )
    yield Draft(
        "identity",
        (Claim((target, Product((stream, omega, Transposed(stream)), (str(frame.head),)))),),
        "With a column of ones appended to the stream, the scores are one bilinear form.",
    )
    yield Draft(
        "identity",
        (Claim((Rank(omega), HeadWidth()), "<="),),
        "Queries and keys meet in `d_head` dimensions, with or without biases.",
    )


scores_rotary = expansion(
    "scores_rotary",
    "Scores with rotary positions",
    "The scores of a second-layer head with rotary positions, which rotate its queries and keys.",
    chapter="Positions and biases",
    heads=(2, 2),
    target="scores:L1H0",
    positions="rotary",
)


scores_alibi = expansion(
    "scores_alibi",
    "Scores with ALiBi",
    "The scores of a second-layer head with the ALiBi bias, which is not a path term.",
    chapter="Positions and biases",
    heads=(2, 2),
    target="scores:L1H0",
    positions="alibi",
)
