"""The logits are linear in the tokens where the patterns are held fixed, and not where they are not."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus
from symcircuits.derivation.examples import Literal, TinyModel
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Target
from symcircuits.derivation.other_runs import AtTokens
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import NamedMatrix, Scaled

__all__: list[str] = []


_X = Literal((("1", "0"), ("0", "1")))


_TWICE = Literal((("2", "0"), ("0", "2")))


@result(
    "linearity",
    "Linear in the tokens with the patterns held fixed, and not otherwise",
    "With the patterns held fixed, the logits are linear in the tokens; with patterns computed from the tokens they "
    "are not, as two tokens in two dimensions show.",
    "OV and QK Independence (The Freezing Attention Patterns Trick)",
    chapter="Heads",
    heading="Linear with the patterns held fixed",
    heads=(1, 1),
    conventions=(
        "Held fixed: the attention patterns `A`, except where the text says that they are computed from the tokens; "
        "no position embedding, no layer norm and no MLP.",
        "`u` and `v` are any two arrays in place of the one-hot tokens `t`, `a` and `b` any two numbers.",
    ),
)
def linearity(frame: Frame) -> Iterator[Draft]:
    """Identity I10."""
    u, v = NamedMatrix("u"), NamedMatrix("v")
    terms = [expr for _, expr in frame.terms]
    yield Draft(
        "distributing",
        (Claim((Target("logits"), plus(terms))),),
        "The sum over paths: with the patterns held fixed, the tokens occur once in every term, inside `X_0 = t "
        "W_E^T`.",
        complete=True,
    )
    at_u = plus([_replaced(expr, u) for expr in terms])
    both = AtTokens("logits", Sum((Scaled("a", u), Scaled("b", v))))
    yield Draft(
        "substitution", (Claim((AtTokens("logits", u), at_u)),), "The same with other tokens, the same patterns."
    )
    parts = (Scaled("a", AtTokens("logits", u)), Scaled("b", AtTokens("logits", v)))
    yield Draft("identity", (Claim((both, Sum(parts))),), "So the logits are linear in the tokens.")
    yield from _not_linear()


def _not_linear() -> Iterator[Draft]:
    """The counterexample, in exact numbers."""
    once = Literal((("2", "0"), ("1/(1+e)", "1 + e/(1+e)")))
    twice = Literal((("4", "0"), ("2/(1+e^4)", "2 + 2*e^4/(1+e^4)")))
    f = [Claim((TinyModel(_X), once)), Claim((TinyModel(_TWICE), twice))]
    yield Draft(
        "definition",
        tuple(f),
        "Now the patterns are computed from the tokens. The smallest model: one layer, one head, every weight the "
        "identity, two tokens in two dimensions: `f` maps `x` to `x + A x`, with `A` the causal softmax of `x x^T`.",
        how="exact",
    )
    doubled = Scaled("2", TinyModel(_X))
    yield Draft(
        "counterexample",
        (Claim((TinyModel(_TWICE), doubled), "!="),),
        "It is not linear: twice the tokens do not give twice the result, because the second token then attends to "
        "itself more strongly.",
        how="exact",
    )
    yield Draft(
        "identity",
        (Claim((TinyModel(_TWICE, _X), doubled)),),
        "With the pattern of the first tokens held fixed, twice the tokens give twice the result.",
        how="exact",
    )


def _replaced(expr: Expr, tokens: NamedMatrix) -> Expr:
    """A term with other tokens in the place of ``t``."""
    assert isinstance(expr, Word)
    at = next(i for i, f in enumerate(expr.factors) if f.symbol.glyph == "t")
    before: tuple[Factor, ...] = expr.factors[:at]
    return Product(((Word(before),) if before else ()) + (tokens, Word(expr.factors[at + 1 :])))
