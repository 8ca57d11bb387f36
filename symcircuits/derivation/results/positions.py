"""Position embeddings in the stream, or in queries and keys only, and how many terms there are."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import attention_only, possible_biases
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Number, Product, Sum
from symcircuits.derivation.other_runs import CountIn
from symcircuits.derivation.results.registry import expansion, result

__all__: list[str] = []


@result(
    "numbers_of_terms",
    "How many terms there are",
    "Two layers of 12 heads: 169 terms; 338 of the logits and 676 of the scores with the position in the stream; "
    "196 of the scores with the position in queries and keys only.",
    "Path Expansion of Logits; Path Expansion of Attention Scores QK Circuit",
    chapter="Positions and biases",
    heads=(12, 12),
    names_model=False,
    conventions=("Every count is of terms that were listed, not of a formula.",),
)
def numbers_of_terms(frame: Frame) -> Iterator[Draft]:
    """Extension E6, and the counts of the paper."""
    one, twelve, two = Number(1), Number(12), Number(2)
    layer = Sum((one, twelve))
    both = Sum((one, one, twelve, twelve))
    queries = Sum((one, twelve, one))

    def claim(target: str, positions: str | None, formula: list[Expr], n: int) -> Claim:
        return Claim((CountIn(target, (12, 12), positions), Product(tuple(formula)), Number(n)))

    yield Draft(
        "counting",
        (claim("logits", None, [layer, layer], 169), claim("scores:L1H0", None, [layer, layer], 169)),
        "Logits: in each of two layers the stream or one of 12 heads. Scores of a second-layer head: on each of two "
        "sides the stream or one of 12 heads. The same number, and different things.",
        how="count",
    )
    yield Draft(
        "counting",
        (claim("logits", "standard", [two, layer, layer], 338), claim("scores:L1H0", "standard", [both, both], 676)),
        "The position embedding in the stream is a second source: every path starts from the token or from the "
        "position.",
        how="count",
    )
    yield Draft(
        "counting",
        (
            claim("logits", "shortformer", [layer, layer], 169),
            claim("scores:L1H0", "shortformer", [queries, queries], 196),
        ),
        "The position embedding in queries and keys only passes through no head below: one more path on each side, "
        "and none in the logits.",
        how="count",
    )
    yield _all_sources()


def _all_sources() -> Draft:
    """Two layers of two heads with everything that can be a source."""
    one, two = Number(1), Number(2)
    sources = len(possible_biases(attention_only((2, 2))))
    listed = CountIn("logits", (2, 2), "standard", True)
    three = Sum((one, two))
    by_entry: tuple[Expr, ...] = (Product((two, three, three)), Product((two, three)), Number(3), two, one, one)
    return Draft(
        "counting",
        (Claim((listed, Sum(by_entry), Number(31))),),
        f"Two layers of two heads, the position in the stream and all biases ({sources} names, of which those of "
        "queries and keys are in no logit): token and position, then `b_V` and `b_O` of each layer, then `b_U`; each "
        "source takes in the layers after it the stream or a head.",
        how="count",
    )


logits_positions = expansion(
    "logits_positions",
    "Logits, position in the stream",
    "The logits with the position embedding in the stream: a second source, twice as many terms.",
    chapter="Positions and biases",
    heads=(12, 12),
    positions="standard",
)


scores_positions = expansion(
    "scores_positions",
    "Scores, position in the stream",
    "Second-layer scores with the position embedding in the stream: a second source on each side.",
    chapter="Positions and biases",
    heads=(12, 12),
    target="scores:L1H0",
    positions="standard",
)


scores_shortformer = expansion(
    "scores_shortformer",
    "Scores, position in queries and keys only",
    "Second-layer scores with the position in queries and keys only: it passes through no head below.",
    chapter="Positions and biases",
    heads=(12, 12),
    target="scores:L1H0",
    positions="shortformer",
)
