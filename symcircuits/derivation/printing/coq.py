"""A derivation as a file of Coq: every plain claim a lemma, proved for all sizes over any commutative ring.

A plain claim is an equation of sums of products of matrices, of tensors that act, or of numbers of terms. Each is
proved by multiplying out both sides and comparing their words (``claims.v``, which stands at the beginning of every
file), all abbreviations and the recursion unfolded down to weights and patterns. Sums over heads are Coq's, over any
numbers of heads ``H_1, H_2, ...``: the matrices of the heads of a layer are a family, ``A_1 h_1``. A rule for any head
``h`` is proved for arbitrary matrices in its place. D, C and gain are any symmetric matrices, R any matrix for each
token. What is not plain is named in the file, with the reason.
"""

from __future__ import annotations

from pathlib import Path

from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.spelling import Spelling
from symcircuits.derivation.printing.statements import Coverage, statements

__all__ = ["COQ", "coverage", "derivation_coq", "module", "tactic"]

COQ = Spelling(
    matrix="'M[R]_({0}, {1})",
    one="1%:M",
    transposed="{0}^T",
    times=" *m ",
    scaled="({0} *: {1})",
    identity="Id",
    acts_plus=" \\oplus ",
    after=" \\after ",
    acts_scaled="({0} \\times {1})",
    acts_alike="forall X, {0} X = {1} X",
    numbers_equal="({0} = {1})%N",
    listed="(size [:: {0}])",
    between="; ",
    elementary="(elementary {0} [:: {1}])",
    sum_over="(\\sum_(0 <= {0} < {1}) {2})",
    acts_over="(over_acts {1} (fun {0} => {2}))",
    rotary="(between {0} {1} {2})",
)

_TACTIC = Path(__file__).with_name("claims.v")


def coverage(derivation: Derivation) -> Coverage:
    """Which claims are lemmas, with their statements, which are definitions, and which are neither, and why.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> found = coverage(derive(attention_only((1,)), "stream"))
    >>> found.defined["step 3, claim 1"], found.lemmas["step1_2_1"], found.left
    ('stream', 'W_OV_h = (W_O_h *m W_V_h)', {})
    """
    return statements(derivation, COQ)[0]


def tactic() -> str:
    """What stands at the beginning of every file: how a claim is proved."""
    return _TACTIC.read_text("utf-8")


def derivation_coq(derivation: Derivation) -> str:
    """The derivation as one file that ``coqc`` compiles, in the row convention, whatever its notation is.

    It begins with the tactic, declares sizes, matrices and numbers, has the definitions and a lemma for each plain
    claim, and asks Coq what each assumes. A comment at the end names every claim that has no lemma.
    """
    return tactic() + module(derivation)


def module(derivation: Derivation) -> str:
    """The same without the tactic, which stands before it or is imported."""
    found, writer = statements(derivation, COQ)
    unfolded = ", ".join(reversed(writer.defined)) or "id"
    lines = ["Section Derivation.", "Variable R : comRingType."]
    lines += [f"Variables ({' '.join(writer.sizes)} : nat)."] if writer.sizes else []
    lines += [f"Variables ({' '.join(writer.counts)} : nat)."] if writer.counts else []
    lines += [f"Variables ({' '.join(writer.groups)} : nat -> nat)."] if writer.groups else []
    lines += [f"Variable {name} : {shape}." for name, shape in writer.letters.items()]
    lines += [f"Hypothesis symmetric_{name} : {name}^T = {name}." for name in writer.symmetric]
    lines += [f"Variables ({' '.join(writer.numbers)} : R)."] if writer.numbers else []
    for name, body in writer.defined.items():
        lines.append(f"Definition {name}{' (h : nat)' if name in writer.of_heads else ''} := {body}.")
    for name, statement in found.lemmas.items():
        lines += [f"Lemma {name} : {statement}.", f"Proof. unfold {unfolded}; claim. Qed."]
    lines += ["End Derivation.", *(f"Print Assumptions {name}." for name in found.lemmas)]
    lines += [f"(* {len(found.lemmas)} lemmas, {len(found.defined)} definitions. Not proved here:"]
    lines += [*(f"   {claim}: {reason}" for claim, reason in found.left.items()), "*)"]
    return "\n".join(lines) + "\n"
