"""Interventions: heads removed, and the term-importance algorithm."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.text import amount
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus
from symcircuits.derivation.examples import Literal, TwoLayers
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Target
from symcircuits.derivation.other_runs import AtTokens, ImportanceRun, Without
from symcircuits.derivation.results.factors import embed, head_factors, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Difference, Named, NamedMatrix

__all__: list[str] = []


@result(
    "ablation",
    "Removing a head removes the terms through it",
    "Removing a head while the patterns are held fixed removes exactly the terms whose path goes through it; with "
    "recomputed patterns it does not.",
    "Term Importance Analysis; pattern-preserving ablation in the 2022 paper on induction heads",
    chapter="Interventions",
    heading="Removing a head",
    heads=(2, 2),
    conventions=(
        "The run without a head sets the output of that head to zero and keeps the patterns of all other heads. If "
        "patterns are recomputed, they change too: this gives another result, as the last steps show.",
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
            f"Without {head}: a path through a head that writes nothing is zero, and no other path changes.",
        )
        yield Draft(
            "identity",
            (Claim((target, plus([removed, *through]))),),
            f"So removing {head} changes the logits by minus the {amount(len(through), 'term')} through it.",
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
        "Now the pattern of the second layer is recomputed. The smallest model: two layers of one head, every weight "
        "the identity, two tokens in one dimension: each layer maps `x` to `x + A x`, with `A` the causal softmax of "
        "`x x^T`. Without L0H0, the second token attends to the first with weight 0.68 if the pattern is held fixed, "
        "and with weight 0.5 if it is recomputed.",
        how="exact",
    )
    yield Draft(
        "counterexample",
        (Claim((anew, held), "!="),),
        "So removing a head and letting later patterns respond is not the same as removing the terms through it: the "
        "output of the head also influenced the attention of later heads.",
        how="exact",
    )


@result(
    "path_patching",
    "Patching paths replaces their terms",
    "With the patterns held fixed, running other tokens along some paths and the original tokens along all others "
    "changes the logits by the difference of the terms of these paths, so effects of sets of paths add up; patching "
    "the output of a head patches every path through it.",
    "own derivation, as in Goldowsky-Dill et al. 2023",
    chapter="Interventions",
    heading="Path patching",
    heads=(2, 1),
    conventions=(
        "`u` are the other tokens, `U` is their stream, and `Y` is what the head of the second layer reads if one "
        "path is patched. `F`, `G` and `J` are the logits of three patched runs. The patterns are those of the "
        "original tokens.",
    ),
)
def path_patching(frame: Frame) -> Iterator[Draft]:
    """Extension E18."""
    target, u, x = Target("logits"), NamedMatrix("u"), embed()
    w_u, w_e_t = Word((read_by(frame).T,)), Word(x.factors[1:])
    (kept, moved), late = ([head_factors(frame, 0, i) for i in (0, 1)], head_factors(frame, 1))
    other = Named("U", "U", Product((u, w_e_t)))
    yield Draft("definition", (Claim((other, other.body)),), "The initial stream of the other tokens.")

    def logits(read: Expr, clean: Expr = x) -> Product:
        """The head of the second layer reads a patched stream, the unembedding the clean one beside it."""
        stream = Sum((clean, _acts(kept, x), _acts(moved, x), _acts(late, read)))
        return Product((stream, w_u))

    y = Named("Y", "Y", Sum((x, _acts(kept, x), _acts(moved, other))))
    f = Named("F", "F", logits(y))
    virtual, alone = ((moved, late), (late,))
    yield Draft(
        "definition",
        (Claim((y, y.body)), Claim((f, f.body))),
        "One path is patched, the one through L0H1 and L1H0: only the output of L0H1 that L1H0 reads is that of the "
        "other tokens.",
    )
    yield Draft(
        "identity",
        (Claim((f, _exchanged(target, [virtual], other, w_u))),),
        "The logits change by the term of the path for the other tokens minus the same term for the original ones.",
    )
    g = Named("G", "G", logits(Sum((other, _acts(kept, x), _acts(moved, x)))))
    j = Named("J", "J", logits(Sum((other, _acts(kept, x), _acts(moved, other)))))
    yield Draft(
        "identity",
        (
            Claim((g, g.body, _exchanged(target, [alone], other, w_u))),
            Claim((j, j.body, _exchanged(target, [virtual, alone], other, w_u))),
            Claim((Sum((j, target)), Sum((f, g)))),
        ),
        "Another path, from the tokens directly to L1H0, and both paths: the effects add up, that is, `J` minus the "
        "logits is the sum of the other two changes.",
    )
    whole = Product((Sum((x, _acts(kept, x), _acts(moved, other), _acts(late, y))), w_u))
    yield Draft(
        "identity",
        (Claim((whole, _exchanged(target, [virtual, (moved,)], other, w_u))),),
        "Patching the output of L0H1 for everything that reads it patches both paths through it.",
    )
    paths = [(), (kept,), (moved,), (late,), (kept, late), (moved, late)]
    yield Draft(
        "identity",
        (Claim((AtTokens("logits", u), _exchanged(target, paths, other, w_u))),),
        "Patching all paths is the same as running the other tokens with the patterns of the original ones.",
    )


Heads = tuple[dict[str, Factor], ...]


def _acts(head: dict[str, Factor], read: Expr) -> Product:
    return Product((Word((head["A"],)), read, Word((head["W_V"].T, head["W_O"].T))))


def _exchanged(total: Expr, paths: list[Heads], other: Expr, w_u: Word) -> Expr:
    """The total, with the terms of these paths taken away and put in again at the other stream."""
    for path in paths:
        left = [Word(tuple(h["A"] for h in reversed(path)))] if path else []
        right = tuple(f for h in path for f in (h["W_V"].T, h["W_O"].T)) + w_u.factors
        own = Word((*(f for w in left for f in w.factors), *embed().factors, *right))
        total = Sum((Difference(total, own), Product((*left, other, Word(right)))))
    return total


@result(
    "term_importance",
    "The term-importance algorithm truncates the sum over paths",
    "Run `n` of the paper's algorithm gives the sum of all terms that go through fewer than `n` heads, and so run "
    "`L + 1` of a model with `L` layers gives its logits.",
    "Term Importance Analysis",
    chapter="Interventions",
    heading="Term importance",
    heads=(2, 1, 2),
    form="generic",
    conventions=("`Y_l` is what layer `l` would add in a run, `X_l` the stream after it; run 1 adds nothing.",),
)
def term_importance(frame: Frame) -> Iterator[Draft]:
    """Identity I21."""
    target, depth = Target("logits"), frame.depth
    claims = []
    for layer in range(1, depth + 1):
        h = head_factors(frame, layer - 1, name=f"h_{layer}")
        read = ImportanceRun(2, "X", layer - 1)
        would = Product((Word((h["A"],)), read, Word((h["W_V"].T, h["W_O"].T))))
        claims += [
            Claim((ImportanceRun(2, "Y", layer), frame.over_heads(layer - 1, would))),
            Claim((ImportanceRun(2, "X", layer), Sum((read, ImportanceRun(1, "Y", layer))))),
        ]
    w_u = Word((read_by(frame).T,))
    yield Draft(
        "definition",
        (*claims, Claim((ImportanceRun(2), Product((ImportanceRun(2, "X", depth), w_u))))),
        "The algorithm, here run 2: the patterns are forced, each head's output is computed and saved, and the output "
        "saved in the previous run is added to the stream.",
    )
    orders: dict[int, list[Expr]] = {}
    for term, expr in frame.terms:
        orders.setdefault(term.order, []).append(expr)
    yield Draft(
        "identity", (Claim((ImportanceRun(1), plus(orders[0]))),), "Run 1 adds no head: order 0, the direct path."
    )
    for n in range(2, depth + 2):
        yield Draft(
            "identity",
            (Claim((ImportanceRun(n), plus([ImportanceRun(n - 1), *orders[n - 1]]))),),
            f"Run {n} adds to run {n - 1} every path through exactly {n - 1} of the layers: the difference of "
            f"two runs is the sum of the terms of order {n - 1}.",
        )
    everything = plus([expr for order in sorted(orders) for expr in orders[order]])
    yield Draft(
        "collecting by composition type",
        (Claim((target, ImportanceRun(depth + 1))), Claim((target, everything))),
        f"With {depth} layers no path goes through more than {depth} heads, so run {depth + 1} gives the logits.",
    )
