"""The introduction of the book: what is held fixed, conventions, how steps were checked and how to check them again."""

from __future__ import annotations

from collections.abc import Sequence

from symcircuits.core.names import escaped
from symcircuits.core.notation import Notation
from symcircuits.core.text import amount
from symcircuits.core.version import VERSION
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.conventions import LABELS, NUMBERED, START
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.real_models import TOLERANCE

__all__ = ["introduction"]


def introduction(derivations: Sequence[Derivation]) -> str:
    """The introduction to these derivations; its numbers are counted in them."""
    parts = {
        "": _what(derivations),
        "What is held fixed": _fixed(),
        "Conventions": _conventions(derivations[0].notation.name),
        "How each step was checked": _checks(derivations),
        "How to check it again": _again(),
    }
    notation = derivations[0].notation
    out = [r"\section*{Introduction}\addcontentsline{toc}{section}{Introduction}"]
    for name, sentences in parts.items():
        head = rf"\paragraph{{{name}.}} " if name else ""
        out.append(head + " ".join(_set(sentence, notation) for sentence in sentences) + "\n")
    return "\n".join(out)


def _what(derivations: Sequence[Derivation]) -> list[str]:
    steps = [step for derivation in derivations for step in derivation.steps]
    claims = sum(step.check.claims for step in steps)
    return [
        'The identities of "A Mathematical Framework for Transformer Circuits" (Elhage et al. 2021, here: the paper) '
        "and exact extensions of them, derived from the definition of a transformer: "
        f"{amount(len(derivations), 'result')}, {amount(claims, 'claim')} in {amount(len(steps), 'step')}.",
        f"This text was written by symcircuits {VERSION} from the expressions that were checked: no formula is "
        "displayed before both sides of its claim were evaluated and found equal, and none is typed beside the claim; "
        "formulas in sentences are read back and computed by the tests of symcircuits.",
    ]


def _fixed() -> list[str]:
    return [
        "Attention patterns depend on the tokens through a softmax, which does not multiply out. Here they are given "
        "matrices, held fixed; so are, where a model has them, the scale of every token in a norm (`D`) and what its "
        "MLPs write. With these held fixed a transformer is linear in what enters its stream, and its logits and "
        "scores are sums over paths.",
        "What a result holds fixed is in its hypotheses, each by its name. Where patterns are computed anew, or "
        "nothing is held fixed, the result says so.",
    ]


def _conventions(notation: str) -> list[str]:
    return [
        f"{START[notation]}.",
        LABELS,
        f"{NUMBERED[:-1]}, so that `X_0` is what the first layer reads, and layer `l` has `H_l` heads.",
        "The order of a term is the number of heads of its path. Terms stand by their order; terms of scores by their "
        "composition type: none, Q, K, QK.",
        "Results are numbered like their sections, and steps inside them: a number of three parts names a step. "
        "A claim that an earlier step has is cited by the number of that step. Letters such as `T`, `F` or `Y` that a "
        "result defines are its own.",
    ]


def _checks(derivations: Sequence[Derivation]) -> list[str]:
    checks = [step.check for derivation in derivations for step in derivation.steps]

    def claims(how: str) -> str:
        return amount(sum(check.claims for check in checks if check.how == how), "claim")

    drawn = [check for check in checks if check.prime]
    trials = sorted({check.trials for check in drawn})
    return [
        f"By values ({claims('values')}): every matrix is drawn at random, patterns too, over the integers modulo the "
        f"prime `p = {drawn[0].prime}`, and both sides are evaluated as they are printed, on {trials[0]} draws. Two "
        "sides that differ as polynomials of degree `d` agree on one draw with probability at most `d/p` (Schwartz and "
        f"Zippel), and on all draws, for any claim of this book, with at most `{max(c.bound for c in drawn):.1e}`. "
        "Matrices have more than half as many rows as the longest product has factors: smaller ones satisfy "
        "identities of their own. Where numbers of heads are symbols, the numbers at which a claim was checked stand "
        "at the end of the proof. Where all terms are listed, they were compared with the enumeration, one by one.",
        f"By indices ({claims('indices')}): rules of the tensor product, on such draws, summed over their indices "
        "from the definition.",
        f"By counting ({claims('count')}): terms were listed and counted; for symbolic numbers of heads both sides are "
        "one polynomial (SymPy).",
        f"Exactly ({claims('exact')}): small examples and symbols, by SymPy.",
        f"On a model ({claims('model')}): the sum is what a transformer with random weights computes, run from its "
        f"definition, up to rounding (`{TOLERANCE:.0e}` of the largest entry).",
        "A counterexample is a claim that two sides differ, checked the same way.",
    ]


def _again() -> list[str]:
    return [
        "Every result has a file in the folder derivations of symcircuits, NAME.py, and beside it NAME.tex; "
        "|python -m symcircuits.derivation.book derivations| derives all of them anew.",
        "A second evaluator, |python derivations/recheck.py derivations/*.tex|, which imports nothing of symcircuits, "
        "reads the printed formulas and evaluates them with its own transformer and its own matrices.",
        "A certificate (|symcircuits derive --certificate FILE|) holds every claim as an expression, with the matrices "
        "that were drawn and the values of both sides; recheck.py reads it too.",
        "Plain claims become lemmas of Coq (|symcircuits derive --format coq|), proved for matrices of any shapes over "
        "any commutative ring; the path expansion itself is proved for all numbers of layers and heads (the folder "
        "derivations/general).",
    ]


def _set(text: str, notation: Notation) -> str:
    """A sentence in LaTeX; what stands between bars is a command."""
    parts = text.split("|")
    return "".join(rf"\texttt{{{escaped(part)}}}" if i % 2 else prose(part, notation) for i, part in enumerate(parts))
