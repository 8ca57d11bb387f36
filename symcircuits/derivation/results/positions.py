"""Position embeddings in the stream, or in queries and keys only, and how many terms there are."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import attention_only, possible_biases
from symcircuits.core.programs import stream_program
from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Identity, Number, Product, Sum, Transposed
from symcircuits.derivation.other_runs import Changed, CountIn
from symcircuits.derivation.results.factors import head_factors
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import Named, NamedMatrix, Parentheses, Zero

__all__: list[str] = []


@result(
    "numbers_of_terms",
    "How many terms there are",
    "Two layers of 12 heads have 169 terms; with the position in the stream, the logits have 338 and the scores 676; "
    "with the position in queries and keys only, the scores have 196.",
    "Path Expansion of Logits; Path Expansion of Attention Scores QK Circuit",
    chapter="Positions and biases",
    heads=(12, 12),
    names_model=False,
    conventions=("Every count is the number of terms that were listed, not the value of a formula.",),
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
        "Logits: in each of two layers, the stream or one of 12 heads. Scores of a second-layer head: on each of two "
        "sides, the stream or one of 12 heads. The numbers are the same, but they count different things.",
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
        "A position embedding in queries and keys only does not pass through earlier heads: it gives one more path on "
        "each side, and none in the logits.",
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
        f"Two layers of two heads, with the position in the stream and all biases ({sources} names; those of queries "
        "and keys do not occur in the logits): token and position, then `b_V` and `b_O` of each layer, then `b_U`; in "
        "each layer after its source, a path takes the stream or a head.",
        how="count",
    )


# ----------------------------------------------------------------------------------------------- pointer arithmetic
def _position(token: str) -> tuple[str, str]:
    """The position of a token: a point of the unit circle."""
    return _cos(token), _cos(token).replace("cos", "sin")


def _cos(token: str) -> str:
    """``cos(alpha)``, ``cos(alpha*j)``, ``cos(alpha*(j + 1))``."""
    place = "" if token == "1" else f"*({token})" if " " in token else f"*{token}"
    return f"cos(alpha{place})"


def _row(token: str) -> Literal:
    return Literal((_position(token),))


def _column(token: str) -> Literal:
    return Literal(tuple((entry,) for entry in _position(token)))


def _turn(sign: str) -> Literal:
    """The rotation by one position, on or back."""
    cos, sin = _position("1")
    back = "-" if sign == "+" else ""
    on = "" if sign == "+" else "-"
    return Literal(((cos, back + sin), (on + sin, cos)))


_THREE = Literal((("1", "0"), ("0", "1"), ("-1", "0")))
_THREE_T = Literal((("1", "0", "-1"), ("0", "1", "0")))
_ON, _BACK = (Literal((("0", b), (a, "0"))) for a, b in (("1", "-1"), ("-1", "1")))


@result(
    "pointer_arithmetic",
    "Pointer arithmetic: a rotation moves a position by one",
    "If positions are points and a rotation moves each to the next, a rotated query matches the token after or before "
    "the one it names, and its score depends only on the distance; together with a head that copies positions, it "
    "becomes an induction head by Q-composition.",
    "Pointer Arithmetic with Positional Embeddings",
    chapter="Positions and biases",
    heading="Pointer arithmetic",
    heads=(1, 1),
    target="scores:L1H0",
    options={"positions": "standard"},
    conventions=(
        "Sinusoidal positions of one frequency: token `i` has the point `(cos alpha i, sin alpha i)`. With several "
        "frequencies the products add. `Q` is any orthogonal matrix, `p` and `r` are any two positions. The model "
        "with `(Q)` has no token content, and heads with these weights: `W_OV` of L0H0 is the identity, `W_QK` of "
        "L1H0 is `Q`.",
    ),
)
def pointer_arithmetic(frame: Frame) -> Iterator[Draft]:
    """Identity I32; exercises 2c and 2f of the paper's page of exercises."""
    yield Draft(
        "definition",
        (Claim((Product((_turn("+"), _column("j"))), _column("j + 1"))),
         Claim((Product((_turn("-"), _column("j"))), _column("j - 1")))),
        "A rotation by the angle of one token moves every position forward by one, its inverse backward.",
        how="exact",
    )  # fmt: skip
    cosine = [Literal(((_cos(distance),),)) for distance in ("j - i", "j - i + 1", "j - i - 1")]
    yield Draft(
        "identity",
        (
            Claim((Product((_row("i"), _column("j"))), cosine[0])),
            Claim((Product((_row("i"), _turn("+"), _column("j"))), cosine[1])),
            Claim((Product((_row("i"), _turn("-"), _column("j"))), cosine[2])),
        ),
        "So the product of two positions depends on their distance, and has its maximum, 1, where they are equal; "
        "with the rotation between them, the maximum is at `j = i - 1`, with its inverse at `j = i + 1` (up to whole "
        "turns). This is shown symbolically for all `i`, `j` and `alpha`.",
        how="exact",
    )
    turn, p, q = NamedMatrix("Q", "orthogonal"), NamedMatrix("p"), NamedMatrix("r")
    on = [Parentheses(Product((turn, x))) for x in (p, q)]
    yield Draft(
        "identity",
        (
            Claim((Product((Transposed(Product((turn, p))), on[1])), Product((Transposed(p), q)))),
            Claim((Product((Transposed(Product((turn, p))), turn, on[1])), Product((Transposed(p), turn, q)))),
        ),
        "The product depends only on the distance for every orthogonal matrix that moves positions forward: moving "
        "both tokens forward by one gives the same product, also with `Q` between them.",
    )
    yield from _pointers(frame, turn)


def _in_run(name: str, value: Expr) -> Named:
    """The weights ``W_O_L0H0`` of the changed model, ``W_O^L0H0 (Q)``."""
    letter, _, label = name[2:].partition("_")
    place = rf"\mathrm{{{label}}}\," if label else ""
    return Named(f"W_{letter}^{label}(Q)", f"W_{letter}^{{{place}(Q)}}", value, flips=True)


def _pointers(frame: Frame, turn: NamedMatrix) -> Iterator[Draft]:
    """The Q-composition term, in a model and in numbers."""
    a, position = Word((head_factors(frame, 0)["A"],)), Word(stream_program(frame.walked, 0)[0].sources[1].factors)
    values: dict[str, Expr] = {"W_E": Zero(), "W_Q_L1H0": Transposed(turn)}
    values |= dict.fromkeys(("W_O_L0H0", "W_V_L0H0", "W_K_L1H0"), Identity())
    weights = tuple((name, _in_run(name, value)) for name, value in values.items())
    copied = Word((*a.factors, *position.factors))
    scale = ("L1H0",)
    terms = [Product((x, turn, y.T), scale) for y in (position, copied) for x in (position, copied)]
    yield Draft(
        "definition",
        tuple(Claim((named, named.body)) for _, named in weights),
        "A model with the weights `(Q)`: tokens add nothing to the stream, the first head copies what it attends to, "
        "and the head of the second layer compares positions through `Q`.",
    )
    yield Draft(
        "distributing",
        (Claim((Changed("scores:L1H0", "Q", weights), Sum(tuple(terms)))),),
        "The scores of a head that reads positions through `Q`, after one that copies positions: four terms, of which "
        "the second is Q-composition. For each query, it looks up the position that the first head attended to, and "
        "matches the neighbouring one.",
    )
    there = Literal((("1", "0", "0"), ("0", "1", "0"), ("0", "1", "0")))
    beside = [
        Literal((("0", "1", "0"), ("-1", "0", "1"), ("-1", "0", "1"))),
        Literal((("0", "-1", "0"), ("1", "0", "-1"), ("1", "0", "-1"))),
    ]
    yield Draft(
        "definition",
        tuple(Claim((Product((there, _THREE, r, _THREE_T)), x)) for r, x in zip((_BACK, _ON), beside, strict=True)),
        "In numbers, with a quarter turn per token: a pattern in which the last token attends to the middle one, "
        "three positions, the rotation, and the positions again. Rotated backward, the score of the last token is "
        "largest at the token after the middle one, which followed an earlier copy, so the head is an induction head. "
        "Rotated forward, it is largest at the token before.",
        how="exact",
    )


logits_positions = expansion(
    "logits_positions",
    "Logits with the position in the stream",
    "The logits with the position embedding in the stream: a second source, twice as many terms.",
    chapter="Positions and biases",
    heads=(12, 12),
    positions="standard",
)


scores_positions = expansion(
    "scores_positions",
    "Scores with the position in the stream",
    "Second-layer scores with the position embedding in the stream: a second source on each side.",
    chapter="Positions and biases",
    heads=(12, 12),
    target="scores:L1H0",
    positions="standard",
)


scores_shortformer = expansion(
    "scores_shortformer",
    "Scores with the position in queries and keys only",
    "Second-layer scores with the position in queries and keys only: it does not pass through earlier heads.",
    chapter="Positions and biases",
    heads=(12, 12),
    target="scores:L1H0",
    positions="shortformer",
)
