"""The expansion is the only one: each of its terms is an alternating sum of runs with some heads removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from symcircuits.core.expansion import expand
from symcircuits.core.terms import Term
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus
from symcircuits.derivation.frames import COMPOSITIONS, Frame
from symcircuits.derivation.nodes import Expr, Sum, Target
from symcircuits.derivation.other_runs import Kept
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Difference, Named, NamedMatrix

__all__: list[str] = []

Heads = tuple[str, ...]


def _subsets(heads: Heads) -> Iterator[Heads]:
    """All subsets, the largest first."""
    for size in reversed(range(len(heads) + 1)):
        yield from combinations(heads, size)


def _alternating(signed: Iterable[tuple[bool, Expr]]) -> Expr:
    """Expressions with their signs (True: plus), in order; the first has a plus."""
    (_, total), *rest = signed
    for positive, expr in rest:
        total = Sum((*total.terms, expr) if isinstance(total, Sum) else (total, expr)) if positive else (
            Difference(total, expr)
        )  # fmt: skip
    return total


@result(
    "uniqueness",
    "The path expansion is the only one, and each of its terms can be measured",
    "The term of a path is the alternating sum of the runs in which only some of its heads are kept; so if matrices "
    "for paths add up to every such run, over the paths that remain in it, they are the terms.",
    "own derivation (Moebius inversion over the heads of a path)",
    chapter="Interventions",
    heading="No other expansion",
    heads=(2, 1),
    conventions=(
        "A target with heads in brackets is that of a run in which only these heads write to the stream, with the "
        "patterns of the model; if no head does, it has the sign of the empty set (in text the word none). For "
        "scores, the heads kept for the queries are listed before the bar, those kept for the keys after it.",
    ),
)
def uniqueness(frame: Frame) -> Iterator[Draft]:
    """Extension E26."""
    terms = {tuple(h.label for h in term.paths[0].heads): expr for term, expr in frame.terms}
    heads = tuple(h.label for h in frame.architecture.all_heads)

    def left(kept: Heads) -> Expr:
        return plus([expr for path, expr in terms.items() if set(path) <= set(kept)])

    yield Draft(
        "distributing",
        (Claim((Target("logits"), plus(list(terms.values())))),),
        "The sum over paths.",
        complete=True,
    )
    yield Draft(
        "identity",
        tuple(Claim((Kept("logits", (kept,)), left(kept))) for kept in reversed(list(_subsets(heads)))),
        "If only some heads write, the terms through the others are zero and no other term changes: the paths that "
        "remain are those all of whose heads are kept.",
    )
    yield Draft(
        "identity",
        tuple(Claim((expr, _measured("logits", path))) for path, expr in terms.items()),
        "So the run that keeps the heads of a path contains the terms of all its subpaths, and the runs that keep "
        "fewer heads subtract these: every term can be measured without multiplying anything out.",
    )
    yield from _any_family()
    yield from _not_of_the_whole(terms)
    yield from _scores(frame)


def _measured(target: str, path: Heads) -> Expr:
    runs = _subsets(path)
    return _alternating(((len(path) - len(kept)) % 2 == 0, Kept(target, (kept,))) for kept in runs)


def _any_family() -> Iterator[Draft]:
    """Any matrices, and what they add up to."""
    f, f_a, f_b, f_c = (NamedMatrix(name) for name in ("F", "F_a", "F_b", "F_c"))
    sums = {"G": f, "G_a": plus([f, f_a]), "G_b": plus([f, f_b]), "G_c": plus([f, f_a, f_b, f_c])}
    g = {name: Named(name, name, body) for name, body in sums.items()}
    yield Draft(
        "definition",
        tuple(Claim((g[name], body)) for name, body in sums.items()),
        "No other matrices have this property. Let `F` be any matrices, one for the path through no head, and one "
        "each for those through head `a`, through head `b`, and (`F_c`) through both; let `G` be their sums if no "
        "head is kept, one of them, and (`G_c`) both.",
    )
    measured = _alternating([(True, g["G_c"]), (False, g["G_a"]), (False, g["G_b"]), (True, g["G"])])
    yield Draft(
        "identity",
        (
            Claim((f, g["G"])),
            Claim((f_a, Difference(g["G_a"], g["G"]))),
            Claim((f_b, Difference(g["G_b"], g["G"]))),
            Claim((f_c, measured)),
        ),
        "Then the sums determine the matrices. If the sums are those runs, the matrices are alternating sums of runs, "
        "which are the terms. For longer paths it is the same inversion, head by head; for all numbers of layers and "
        "heads it is proved in Coq, in Unique.v.",
    )


def _not_of_the_whole(terms: dict[Heads, Expr]) -> Iterator[Draft]:
    """The whole alone does not decide."""
    m, (first, second, *rest) = NamedMatrix("J"), terms.values()
    other = Difference(Sum((first, m, second)), m)
    yield Draft(
        "identity",
        (Claim((Target("logits"), plus([other, *rest]))),),
        "The logits of the model alone do not determine them: any matrix may be added to one term and subtracted from "
        "another.",
    )
    yield Draft(
        "counterexample",
        (Claim((Kept("logits", ((),)), Sum((first, m))), "!="),),
        "But then runs without heads no longer equal the remaining part of the sum.",
    )


def _scores(frame: Frame) -> Iterator[Draft]:
    """The same on each side."""
    target = "scores:L1H0"
    found = list(expand(frame.architecture, target))
    terms: list[Term] = sorted(found, key=lambda term: COMPOSITIONS.index(term.composition))
    sides = {term: tuple(tuple(h.label for h in path.heads) for path in term.paths) for term in terms}

    def measured(query: Heads, key: Heads) -> Expr:
        pairs = [(q, k) for q in _subsets(query) for k in _subsets(key)]
        full = len(query) + len(key)
        return _alternating(((full - len(q) - len(k)) % 2 == 0, Kept(target, (q, k))) for q, k in pairs)

    yield Draft(
        "distributing",
        (Claim((Target(target), plus([term.word for term in terms]))),),
        "Scores are a sum over pairs of paths, and depend separately on what the queries read and on what the keys "
        "read.",
    )
    yield Draft(
        "identity",
        tuple(Claim((term.word, measured(*paths))) for term, paths in sides.items()),
        "So the same applies to each side, with the heads kept for the queries and those kept for the keys: a term of "
        "type none, Q, K or QK is a sum of one, two, two or four runs.",
    )
