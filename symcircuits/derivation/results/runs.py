"""Results about runs of a model: biases that collapse, heads removed, the term-importance algorithm, linearity."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Factor, Word, transpose
from symcircuits.derivation.checks import Claim, Draft
from symcircuits.derivation.definitions import layer_definition, plus, readout_definition
from symcircuits.derivation.examples import Literal, TinyModel, TwoLayers
from symcircuits.derivation.expressions import stream_symbol, wrap
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, SumOver, Target, Transposed
from symcircuits.derivation.results.heads import head_factors, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import AtTokens, Letter, Named, Run, Scaled, Without

__all__: list[str] = []


def _stripped(expr: Expr) -> tuple[tuple[tuple[str, int], ...], Word]:
    """A term without the sums over its heads, and those sums."""
    indices = []
    while isinstance(expr, SumOver):
        indices.append((expr.index, expr.layer))
        expr = expr.body
    assert isinstance(expr, Word)
    return tuple(indices), expr


def _from_bias(expr: Expr) -> bool:
    return any(f.symbol.glyph == "ones" for f in _stripped(expr)[1].factors)


def _without_patterns(expr: Expr) -> Expr:
    """A term that starts from a bias, the patterns before ``1 b^T`` left out."""
    indices, word = _stripped(expr)
    return wrap(Word(tuple(f for f in word.factors if f.symbol.glyph != "A")), indices)


def _column(expr: Expr) -> Expr:
    """The column ``W ... b`` of a term ``1 b^T ...``."""
    indices, word = _stripped(expr)
    return wrap(Word(transpose(word.factors[1:])), indices)


@result(
    "bias_collapse",
    "All biases are one bias of the logits",
    "Where the rows of every pattern sum to one, all value and output biases together with the one of the unembedding "
    "are one bias of the logits, the same at every token.",
    "Notation (no biases); own derivation",
    heads=(2, 2),
    form="generic",
    given=("rows sum to one",),
    options={"biases": ["b_V[L0H0]", "b_V[L0H1]", "b_V[L1H0]", "b_V[L1H1]", "b_O", "b_U"]},
    conventions=("The rows of every pattern sum to one, as those of a softmax do.",),
)
def bias_collapse(frame: Frame) -> Iterator[Draft]:
    """Extension E1."""
    target, terms = Target("logits"), [expr for _, expr in frame.terms]
    streams = [Claim((Word((stream_symbol(n),)), layer_definition(frame, n))) for n in (1, 2)]
    yield Draft(
        "definition",
        (*streams, Claim((target, readout_definition(frame)))),
        "Each layer adds what its heads write, value biases inside them, and its output bias.",
    )
    yield Draft(
        "distributing",
        (Claim((target, plus(terms))),),
        "The sum over paths; each bias is a source of its own.",
        complete=True,
    )
    biased = [expr for expr in terms if _from_bias(expr)]
    ones = Word((next(f for f in _stripped(biased[0])[1].factors if f.symbol.glyph == "ones"),))
    h, g = (head_factors(frame, layer, name="hg"[layer])["A"] for layer in (0, 1))
    yield Draft(
        "identity",
        tuple(Claim((Word((a, *ones.factors)), ones)) for a in (h, g)),
        "A pattern whose rows sum to one maps the column of ones to itself, for any heads `h`, `g`.",
    )
    direct = [expr for expr in terms if not _from_bias(expr)]
    flat = [_without_patterns(expr) for expr in biased]
    yield Draft(
        "substitution",
        (Claim((target, plus([*direct, *flat]))),),
        "So no pattern is left in a term that starts from a bias.",
    )
    bias = Named("v_logits", r"v_{\mathrm{logits}}", Sum(tuple(_column(expr) for expr in flat)), flips=True)
    yield Draft(
        "collecting by composition type",
        (Claim((bias, bias.body)), Claim((target, plus([*direct, Product((ones, Transposed(bias)))])))),
        "Every one of them is `1` times a row: one bias of the logits, and else the logits of a model without biases.",
    )
    yield _layer_by_layer(frame, bias)


def _layer_by_layer(frame: Frame, bias: Named) -> Draft:
    """The same bias, carried through the layers: ``v_l = v_(l-1) + sum_h (W_OV v_(l-1) + W_O b_V) + b_O``."""
    program = frame.expansion.readout.sides[0]
    claims, v = [], None
    for layer in (1, 2):
        body: list[Expr] = [v] if v is not None else []
        for branch in program[layer].branches:
            w = Word(frame.named(branch.right)).T
            body += [] if v is None else [frame.over_heads(layer - 1, Product((w, v)))]
        for source in program[layer].sources:
            column = Word(transpose(frame.named(source.factors)[(2 if source.head else 1) :]))
            body.append(frame.over_heads(layer - 1, column) if source.head else column)
        v = Named(f"v{layer}", f"v_{{{layer}}}", plus(body), flips=True)
        claims.append(Claim((v, v.body)))
    assert v is not None
    b_u = Word((program[-1].sources[0].factors[1].T,))
    return Draft(
        "identity",
        (*claims, Claim((bias, Sum((Product((Word((read_by(frame),)), v)), b_u))))),
        "The same bias layer by layer: each layer passes on what it is given, through every `W_OV`, and adds its own.",
    )


# --------------------------------------------------------------------------------------------------- ablation
@result(
    "ablation",
    "Removing a head removes the terms through it",
    "Removing a head while the patterns are held fixed takes away exactly the terms whose path goes through it; with "
    "patterns computed anew it does not.",
    "Term Importance Analysis; pattern-preserving ablation in the 2022 paper on induction heads",
    heads=(2, 2),
    conventions=(
        "The run without a head sets what that head writes to zero and takes the patterns of all other heads "
        "as they were. Where patterns are computed anew, they change too: that is another number, as the last "
        "steps show.",
    ),
)
def ablation(frame: Frame) -> Iterator[Draft]:
    """Identity I22."""
    target = Target("logits")
    yield Draft(
        "distributing",
        (Claim((target, plus([expr for _, expr in frame.terms]))),),
        "The sum over paths.",
        complete=True,
    )
    for head in ("L0H1", "L1H0"):
        through = [e for term, e in frame.terms if any(h.label == head for path in term.paths for h in path.heads)]
        others = [expr for _, expr in frame.terms if expr not in through]
        removed = Without("logits", head)
        yield Draft(
            "identity",
            (Claim((removed, plus(others))),),
            f"Without {head}: a path through a head that writes nothing is zero, and no other changes.",
        )
        yield Draft(
            "identity",
            (Claim((target, plus([removed, *through]))),),
            f"So removing {head} changes the logits by minus the {len(through)} terms through it.",
        )
    yield from _patterns_anew()


_COLUMN = Literal((("1",), ("0",)))


def _patterns_anew() -> Iterator[Draft]:
    """The counterexample, in exact numbers."""
    held, anew = (TwoLayers(_COLUMN, without=True, held=held) for held in (True, False))
    kept, new = (Literal((("2",), (entry,))) for entry in ("1/(1+e^(-3/4))", "1/2"))
    yield Draft(
        "definition",
        (Claim((held, kept)), Claim((anew, new))),
        "Now the pattern of the second layer is computed anew. The smallest model: two layers of one head, every "
        "weight the identity, two tokens in one dimension: each layer maps `x` to `x + A x`, with `A` the causal "
        "softmax of `x x^T`. Without L0H0 the second token attends to the first with weight 0.68 where the pattern is "
        "held, and with weight 0.5 where it is computed anew.",
        how="exact",
    )
    yield Draft(
        "counterexample",
        (Claim((anew, held), "!="),),
        "So removing a head and letting later patterns follow does not take away the terms through it: what the head "
        "wrote also moved the attention of later heads.",
        how="exact",
    )


# ------------------------------------------------------------------------------------------- term importance
@result(
    "term_importance",
    "The term-importance algorithm cuts off the sum over paths",
    "Run `n` of the paper's algorithm gives the sum of all terms that go through fewer than `n` heads, and so run "
    "`L + 1` of a model with `L` layers gives its logits.",
    "Term Importance Analysis",
    heads=(2, 1, 2),
    form="generic",
    conventions=("`Y_l` is what layer `l` would add in a run, `X_l` the stream that it leaves; run 1 adds nothing.",),
)
def term_importance(frame: Frame) -> Iterator[Draft]:
    """Identity I21."""
    target, depth = Target("logits"), frame.depth
    claims = []
    for layer in range(1, depth + 1):
        h = head_factors(frame, layer - 1, name=f"h_{layer}")
        read = Run(2, "X", layer - 1)
        would = Product((Word((h["A"],)), read, Word((h["W_V"].T, h["W_O"].T))))
        claims += [
            Claim((Run(2, "Y", layer), frame.over_heads(layer - 1, would))),
            Claim((Run(2, "X", layer), Sum((read, Run(1, "Y", layer))))),
        ]
    w_u = Word((read_by(frame).T,))
    yield Draft(
        "definition",
        (*claims, Claim((Run(2), Product((Run(2, "X", depth), w_u))))),
        "The algorithm, here run 2: the patterns are forced, each head's output is computed and saved, and "
        "what is added to the stream is the output saved in the run before.",
    )
    orders: dict[int, list[Expr]] = {}
    for term, expr in frame.terms:
        orders.setdefault(term.order, []).append(expr)
    yield Draft("identity", (Claim((Run(1), plus(orders[0]))),), "Run 1 adds no head: order 0, the direct path.")
    for n in range(2, depth + 2):
        yield Draft(
            "identity",
            (Claim((Run(n), plus([Run(n - 1), *orders[n - 1]]))),),
            f"Run {n} adds to run {n - 1} every path through exactly {n - 1} of the layers: the difference of "
            f"two runs is what order {n - 1} does.",
        )
    everything = plus([expr for order in sorted(orders) for expr in orders[order]])
    yield Draft(
        "collecting by composition type",
        (Claim((target, Run(depth + 1))), Claim((target, everything))),
        f"With {depth} layers no path goes through more than {depth} heads, so that run {depth + 1} gives the logits.",
    )


# ------------------------------------------------------------------------------------------------- linearity
_X = Literal((("1", "0"), ("0", "1")))
_TWICE = Literal((("2", "0"), ("0", "2")))


@result(
    "linearity",
    "Linear in the tokens with the patterns held fixed, and not without",
    "With the patterns held fixed the logits are linear in the tokens; with patterns computed from the tokens they "
    "are not, as two tokens in two dimensions show.",
    "OV and QK Independence (The Freezing Attention Patterns Trick)",
    heads=(1, 1),
    conventions=(
        "Held fixed: the attention patterns `A`, except where the text says that they are those of the tokens; no "
        "position embedding, no layer norm and no MLP.",
        "`u` and `v` are any two arrays in place of the one-hot tokens `t`, `a` and `b` any two numbers.",
    ),
)
def linearity(frame: Frame) -> Iterator[Draft]:
    """Identity I10."""
    u, v = Letter("u"), Letter("v")
    terms = [expr for _, expr in frame.terms]
    yield Draft(
        "distributing",
        (Claim((Target("logits"), plus(terms))),),
        "The sum over paths: with the patterns held fixed, the tokens stand in every term once, inside "
        "`X_0 = t W_E^T`.",
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
        "Now the patterns are those of the tokens. The smallest model: one layer, one head, every weight the "
        "identity, two tokens in two dimensions: `f` maps `x` to `x + A x`, with `A` the causal softmax of "
        "`x x^T`.",
        how="exact",
    )
    doubled = Scaled("2", TinyModel(_X))
    yield Draft(
        "counterexample",
        (Claim((TinyModel(_TWICE), doubled), "!="),),
        "It is not linear: twice the tokens do not give twice the result, since the second token then attends "
        "to itself more strongly.",
        how="exact",
    )
    yield Draft(
        "identity",
        (Claim((TinyModel(_TWICE, _X), doubled)),),
        "With the pattern of the first tokens held fixed, twice the tokens give twice the result.",
        how="exact",
    )


def _replaced(expr: Expr, tokens: Letter) -> Expr:
    """A term with other tokens in the place of ``t``."""
    assert isinstance(expr, Word)
    at = next(i for i, f in enumerate(expr.factors) if f.symbol.glyph == "t")
    before: tuple[Factor, ...] = expr.factors[:at]
    return Product(((Word(before),) if before else ()) + (tokens, Word(expr.factors[at + 1 :])))
