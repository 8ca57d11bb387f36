"""Is a formula right: every right one is, every known mistake has its name, and nothing wrong is called right."""

import json
from itertools import groupby
from typing import Any

import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st
from worth import Truth

from symcircuits.checking.check import Verdict, check
from symcircuits.checking.formula import Letter
from symcircuits.checking.matching import Matcher, Spelling, circuit_forms, letters_of
from symcircuits.checking.mistakes import MISTAKES
from symcircuits.checking.reading import ReadError, read
from symcircuits.core.architecture import Architecture, attention_only, transformer
from symcircuits.core.expansion import Expansion, Term, expand, logits, scores, stream
from symcircuits.core.notation import Notation, letter_text, scale_text
from symcircuits.core.symbols import OF_TOKENS
from symcircuits.core.words import is_multiplier
from symcircuits.sympy_layer.streams import recursion
from tests.strategies import cases

PLAIN = attention_only((3, 3))
BIASED = attention_only((2, 2), "standard", True)
SHORT = attention_only((2, 2), "shortformer", True)
DEEP = attention_only((12,) * 12)


def in_their_words(text: str, arch: Architecture) -> str:
    """A sum in the paper's convention, written in TransformerLens's."""
    words = []
    for word in read(text, arch).words:
        front = "".join(f"{scale_text(s)} * " for s in word.scales)
        letters = Spelling(arch).fuse(word.letters)
        words.append(front + " @ ".join(letter_text(*f, Notation("transformerlens")) for f in letters))
    return " + ".join(words)


# -------------------------------------------------------------------------------------------------- right
@given(case=cases(max_terms=200, max_layers=3, max_heads=3), seed=st.integers(0, 10**6))
def test_every_term_is_right(case: tuple[Architecture, str], seed: int) -> None:
    arch, target = case
    expansion = expand(arch, target)
    assume(expansion.count)
    for number in {0, seed % expansion.count, expansion.count - 1}:
        term = expansion[number]
        front = "".join(f"{scale_text(s)} * " for s in term.word.scales)
        unfused = front + " @ ".join(f.text for f in term.word.factors)
        theirs = in_their_words(term.text, arch)
        written = [(term.text, "paper"), (unfused, "paper"), (term.latex(), "paper"), (term.expr, "paper"),
                   (term.matrix_expr(), "paper"),
                   (term, "paper"), (theirs, "transformerlens")]  # fmt: skip
        for formula, convention in written:
            verdict = check(formula, arch, target if target != "stream" else None, convention)
            assert verdict.right, verdict
            assert (verdict.target, verdict.mistake, verdict.nearest) == (target, None, None)
            [found] = verdict.terms
            assert (found.number, found.label, found.composition) == (number, term.label, term.composition)
            assert found.text == (theirs if convention == "transformerlens" else term.text)


@given(case=cases(max_terms=150, max_layers=3, max_heads=3), data=st.data())
def test_whole_sums_are_right_and_partial_sums_are_not(case: tuple[Architecture, str], data: st.DataObject) -> None:
    arch, target = case
    expansion = expand(arch, target)
    assume(expansion.count > 2)
    terms = data.draw(st.permutations(list(expansion)))
    text = " + ".join(t.text for t in terms)
    assert check(text, arch, target)
    assert check(in_their_words(text, arch), arch, target, "transformerlens")
    gone = data.draw(st.integers(1, min(4, len(terms) - 2)))
    partial = " + ".join(t.text for t in terms[gone:])
    verdict = check(partial, arch, target)
    assert (verdict.right, verdict.mistake, verdict.missing.count) == (False, "missing-terms", gone)
    missing = [t.text for t in sorted(terms[:gone], key=expansion.index)]
    assert list(verdict.missing) == missing
    assert check(partial, arch, target, part=True)
    doubled = check(f"{text} + {terms[0].text}", arch, target)
    assert not doubled
    assert doubled.mistake in ("extra-terms", "bias-per-head")
    assert list(doubled.doubled) == ["2 * " + terms[0].text]


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_sympy_sums_are_right(target: str) -> None:
    assert check(recursion(BIASED, target), BIASED, target)
    assert check(sympy.MatAdd(*(t.matrix_expr() for t in expand(BIASED, target))), BIASED)


def test_factored_forms_are_right() -> None:
    factored = (
        "(X0 + A[L1H0] @ X0 @ W_OV[L1H0].T"
        " + A[L0H0] @ X0 @ W_OV[L0H0].T + A[L1H0] @ (A[L0H0] @ X0 @ W_OV[L0H0].T) @ W_OV[L1H0].T) @ W_U.T"
    )
    assert check("logits = " + factored, attention_only((1, 1)))
    query = "(X0 + A[L0H0] @ X0 @ W_OV[L0H0].T)"
    both = f"scale[L1H0] * {query} @ W_Q[L1H0].T @ ({query} @ W_K[L1H0].T).T"
    verdict = check(both, attention_only((1, 1)))
    assert verdict.right
    assert verdict.message == "Right: these are all 4 terms of scores:L1H0, each once."


def test_a_left_hand_side_claims_the_whole() -> None:
    assert check("X0 @ W_U.T", PLAIN)
    verdict = check("logits = X0 @ W_U.T", PLAIN)
    assert (verdict.mistake, verdict.missing.count) == ("missing-terms", 15)


def test_a_left_hand_side_that_names_another_target_is_wrong() -> None:
    arch = attention_only((1, 1))
    for named, target, mistake in (
        ("S[L1H0]", "logits", "unknown"), ("stream", "logits", "unknown"), ("logits", "scores:L1H0", "unknown"),
        ("S[L0H0]", "scores:L1H0", "wrong-head"),
    ):  # fmt: skip
        formula = " + ".join(t.text for t in expand(arch, target))
        assert check(formula, arch, target).right
        verdict = check(f"{named} = {formula}", arch, target)
        assert (verdict.right, verdict.mistake) == (False, mistake), verdict
        assert "the left-hand side is" in verdict.message


def test_any_size_is_numbered_by_arithmetic() -> None:
    expansion = scores(DEEP, "L11H3")
    verdict = check(expansion[10**23].text, DEEP)  # with anything listed it would not end
    assert verdict.right
    assert verdict.terms[0].number == 10**23
    partial = check(expansion[7].text + " + " + expansion[10**20].text, DEEP)
    assert partial.mistake == "missing-terms"
    assert partial.missing.count == 13**22 - 2
    assert len(list(partial.missing)) == 20
    json.dumps(partial.json())


def test_unscaled_scores_are_right_and_said_so() -> None:
    verdict = check("X0 @ W_QK[L1H0] @ X0.T", PLAIN)
    assert verdict.right
    assert "read as unscaled" in verdict.notes[0]
    assert not check("scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T", PLAIN).notes
    assert not check("X0 @ W_QK[L1H0] @ X0.T", attention_only((3, 3), scale=False)).notes


# ----------------------------------------------------------------------------------------------- circuits
@pytest.mark.parametrize(
    ("written", "convention", "label"),
    [
        ("W_E.T @ W_QK[L1H0] @ W_E", "paper", "embed | embed"),
        ("W_E.T @ W_QK[L1H0] @ W_OV[L0H1] @ W_E", "paper", "embed | embed -> L0H1"),
        ("W_E.T @ W_OV[L0H1].T @ W_QK[L1H0] @ W_E", "paper", "embed -> L0H1 | embed"),
        ("W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T", "transformerlens", "embed | embed -> L0H1"),
        ("W_E @ OV[L0H1] @ QK[L1H0] @ W_E.T", "transformerlens", "embed -> L0H1 | embed"),
        ("W_E @ W_Q[L1H0] @ W_K[L1H0].T @ W_E.T", "transformerlens", "embed | embed"),
        ("W_U @ W_OV[L0H1] @ W_E", "paper", "embed -> L0H1"),
        ("W_U @ W_O[L0H1] @ W_V[L0H1] @ W_E", "paper", "embed -> L0H1"),
        ("W_E @ OV[L0H1] @ W_U", "transformerlens", "embed -> L0H1"),
        ("W_U @ W_OV[L1H0] @ W_OV[L0H1] @ W_E", "paper", "embed -> L0H1 -> L1H0"),
        ("W_OV[L1H0] @ W_OV[L0H1]", "paper", "embed -> L0H1 -> L1H0"),
        ("OV[L0H1] @ OV[L1H0]", "transformerlens", "embed -> L0H1 -> L1H0"),
        ("W_U @ W_E", "paper", "embed"),
        ("W_QK[L1H0]", "paper", "embed | embed"),
        ("W_QK[L1H0] @ W_OV[L0H1]", "paper", "embed | embed -> L0H1"),
        ("W_QK[L1H0].T @ W_OV[L0H1]", "paper", "embed -> L0H1 | embed"),  # the paper's Q-composition score
    ],
)
def test_circuits_are_recognised(written: str, convention: str, label: str) -> None:
    verdict = check(written, PLAIN, convention=convention)
    assert verdict.right, verdict
    assert verdict.circuit
    assert verdict.terms[0].label == label
    assert "the circuit of term" in verdict.message


@pytest.mark.parametrize("target", ["logits", "stream", "scores:L1H0", "scores:L0H1"])
@pytest.mark.parametrize("arch", [PLAIN, BIASED, SHORT])
def test_every_circuit_is_that_of_its_term(arch: Architecture, target: str) -> None:
    expansion = expand(arch, target)
    matcher = Matcher(expansion)
    for term in expansion:
        for form, _ in circuit_forms(matcher, term):
            found = matcher.circuit(form)
            assert found is not None
            assert found.term == term


@pytest.mark.parametrize(
    ("written", "arch"),
    [
        ("D[L1] @ D[QL1H0] @ X0 @ W_Q[L1H0].T @ gain[K1] @ gain[Q1] @ W_K[L1H0] @ X0.T @ D[KL1H0] @ D[L1]",
         transformer((0, 1), norm="RMS", gains=False, qk_norm=True)),
        ("ones @ b_K[L1H0].T @ b_Q[L1H0] @ ones.T", BIASED),
        ("A[L0H0] @ ones @ b_K[L1H0].T @ W_Q[L1H0] @ W_O[L0H0] @ b_V[L0H0] @ ones.T", BIASED),
        ("b_K[L1H0].T @ b_Q[L1H0]", BIASED),
        ("D[final] @ X0 @ C @ C @ gain[final] @ W_U.T", transformer((1,), norm="LN")),
        ("X0 @ W_Q[L0H0].T @ R[L0H0] @ R[L0H0].T @ W_K[L0H0] @ X0.T", transformer((1,), "rotary")),
        ("X0 @ W_U.T + A[L0H0] @ X0 @ W_U.T - A[L0H0] @ X0 @ W_U.T + A[L0H0] @ X0 @ W_OV[L0H0].T @ W_U.T",
         attention_only((1,))),
    ],
)  # fmt: skip
def test_what_is_equal_for_every_model_is_right_however_it_is_spelled(written: str, arch: Architecture) -> None:
    verdict = check(written, arch)
    assert verdict.right, verdict


def test_two_spellings_of_a_term_are_one_term() -> None:
    arch = attention_only((1, 1), None, True, scale=False)
    twice = "ones @ b_K[L1H0].T @ b_Q[L1H0] @ ones.T + ones @ b_Q[L1H0].T @ b_K[L1H0] @ ones.T"
    verdict = check(twice, arch)
    assert (verdict.mistake, verdict.doubled.count) == ("bias-per-head", 1)
    assert check(f"{twice} - ones @ b_Q[L1H0].T @ b_K[L1H0] @ ones.T", arch).right


# ------------------------------------------------------------------------------------ mistakes in the wild
TL = "transformerlens"
GAINED = transformer((0, 1), "rotary", qk_norm=True)
THROUGH_GAINS = expand(GAINED, "scores:L1H0")[0].text
MULTIPLIED = transformer((2,), biases=["b_O"], multipliers=True)
MISTAKEN: list[tuple[str, Any, str, str, str | None]] = [
    # 1: (A (x) W) x = A x W without the transpose
    ("A[L0H1] @ X0 @ W_OV[L0H1] @ W_U.T", PLAIN, "paper", "transpose", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ t @ W_E @ W_OV[L0H1] @ W_U", PLAIN, "paper", "transpose", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L1H0] @ A[L0H1] @ X0 @ W_OV[L0H1] @ W_OV[L1H0] @ W_U.T", PLAIN, "paper", "transpose",
     "A[L1H0] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H0].T @ W_U.T"),
    ("A[L0H1] @ X0 @ OV[L0H1].T @ W_U", PLAIN, TL, "transpose", "A[L0H1] @ X0 @ OV[L0H1] @ W_U"),
    ("W_U @ W_OV[L0H1] @ X0.T @ A[L0H1].T", PLAIN, "paper", "transpose", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    # 3: the transpose of W_OV in the K-composition circuit
    ("W_E @ QK[L1H0] @ OV[L0H1] @ W_E.T", PLAIN, TL, "transpose", "W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T"),
    ("W_E.T @ W_QK[L1H0] @ W_OV[L0H1].T @ W_E", PLAIN, "paper", "transpose", "W_E.T @ W_QK[L1H0] @ W_OV[L0H1] @ W_E"),
    ("X0 @ W_QK[L1H0] @ W_OV[L0H1].T @ X0.T @ A[L0H1].T", PLAIN, "paper", "transpose",
     "X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H1].T"),
    # 4: V-composition in reverse
    ("W_OV[L0H1] @ W_OV[L1H0]", PLAIN, "paper", "layer-order", "W_OV[L1H0] @ W_OV[L0H1]"),
    ("OV[L1H0] @ OV[L0H1]", PLAIN, TL, "layer-order", "OV[L0H1] @ OV[L1H0]"),
    ("W_U @ W_OV[L0H1] @ W_OV[L1H0] @ W_E", PLAIN, "paper", "layer-order", "W_U @ W_OV[L1H0] @ W_OV[L0H1] @ W_E"),
    ("A[L0H1] @ A[L1H0] @ X0 @ W_OV[L0H1].T @ W_OV[L1H0].T @ W_U.T", PLAIN, "paper", "layer-order",
     "A[L1H0] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H0].T @ W_U.T"),
    ("A[L1H0] @ A[L0H1] @ X0 @ W_OV[L1H0].T @ W_OV[L0H1].T @ W_U.T", PLAIN, "paper", "layer-order",
     "A[L1H0] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H0].T @ W_U.T"),
    ("A[L0H0] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L0H0].T @ W_U.T", PLAIN, "paper", "layer-order", None),
    ("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L0H1] @ X0.T", PLAIN, "paper", "layer-order", "X0 @ W_QK[L0H1] @ X0.T"),
    # 5: W_V @ W_O, the order of the other convention
    ("W_U @ W_V[L0H0] @ W_O[L0H0] @ W_E", PLAIN, "paper", "factor-order", "W_U @ W_O[L0H0] @ W_V[L0H0] @ W_E"),
    ("W_E @ W_O[L0H0] @ W_V[L0H0] @ W_U", PLAIN, TL, "factor-order", "W_E @ W_V[L0H0] @ W_O[L0H0] @ W_U"),
    ("W_V[L0H0] @ W_O[L0H0]", PLAIN, "paper", "factor-order", "W_O[L0H0] @ W_V[L0H0]"),
    ("W_U @ W_V[L1H0] @ W_O[L1H0] @ W_V[L0H0] @ W_O[L0H0] @ W_E", PLAIN, "paper", "factor-order",
     "W_U @ W_O[L1H0] @ W_V[L1H0] @ W_O[L0H0] @ W_V[L0H0] @ W_E"),
    ("A[L0H0] @ X0 @ W_O[L0H0].T @ W_V[L0H0].T @ W_U.T", PLAIN, "paper", "factor-order",
     "A[L0H0] @ X0 @ W_V[L0H0].T @ W_O[L0H0].T @ W_U.T"),
    ("W_E.T @ W_K[L1H0] @ W_Q[L1H0].T @ W_E", PLAIN, "paper", "query-key-swap",
     "W_E.T @ W_Q[L1H0].T @ W_K[L1H0] @ W_E"),
    # a gain crosses R, a multiplier stands before weights that do not bring it, circuits are mixed or claim the whole
    *((f"scale[L1H0] * D[QL1H0] @ X0 @ W_Q[L1H0].T @ {crossed} @ W_K[L1H0] @ X0.T @ D[KL1H0]", GAINED, "paper",
       mistake, THROUGH_GAINS) for crossed, mistake in (
        ("R[L1H0] @ gain[Q1] @ gain[K1]", "gain-order"), ("gain[Q1] @ gain[K1] @ R[L1H0]", "gain-order"),
        ("gain[Q1] @ gain[K1] @ R[L1H0].T", "gain-order"), ("gain[K1] @ R[L1H0] @ gain[Q1]", "gain-order"))),
    ("m_U * r[L0] * b_O[L0].T", MULTIPLIED, "paper", "scale", "r[L0] * b_O[L0].T"),
    ("m_U * r[L0] * W_OV[L0H0]", MULTIPLIED, "paper", "scale", "r[L0] * W_OV[L0H0]"),
    ("m_E * r[L0] * m_U * W_U @ W_OV[L0H0]", MULTIPLIED, "paper", "scale", "r[L0] * m_U * W_U @ W_OV[L0H0]"),
    ("logits = W_U @ W_OV[L0H1]", PLAIN, "paper", "dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("S[L1H0] = W_QK[L1H0] @ W_OV[L0H1]", PLAIN, "paper", "dropped-factor",
     "X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H1].T"),
    ("logits = W_U @ W_E + W_U @ W_OV[L0H0] @ W_E", PLAIN, "paper", "dropped-factor", "X0 @ W_U.T"),
    ("X_2 = W_OV[L1H0] @ W_OV[L0H0]", attention_only((1, 1), unembed=False), "paper", "dropped-factor",
     "A[L1H0] @ A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T"),
    ("W_E.T @ W_U.T + W_U @ W_E", PLAIN, "paper", "transpose", None),
    ("W_U @ W_E + W_OV[L0H0]", PLAIN, "paper", "transpose", None),
    ("W_OV[L0H0] + W_OV[L0H1].T", PLAIN, "paper", "transpose", None),
    ("W_U @ W_E + W_U @ W_E", PLAIN, "paper", "extra-terms", None),
    ("X0 - A[L0H0] @ W_OV[L0H0] + A[L0H0] @ W_OV[L0H0]", PLAIN, "paper", "transpose", None),
    # 7: the scale twice, missing, of another head, or where there is none
    ("scale[L1H0] * scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T", PLAIN, "paper", "scale",
     "scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T"),
    ("scale[L1H0] X0 W_QK[L1H0] X0.T + A[L0H0] X0 W_OV[L0H0].T W_QK[L1H0] X0.T", attention_only((1, 1)), "paper",
     "scale", "scale[L1H0] * A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ X0.T"),
    ("scale[L1H1] * X0 @ W_QK[L1H0] @ X0.T", PLAIN, "paper", "scale", "scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T"),
    ("scale[L1H1] * X0 @ W_U.T", PLAIN, "paper", "scale", "X0 @ W_U.T"),
    ("scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T", attention_only((3, 3), scale=False), "paper", "scale",
     "X0 @ W_QK[L1H0] @ X0.T"),
    # 9: a bias once per head
    ("2 * ones @ b_O[L0].T @ W_U.T", BIASED, "paper", "bias-per-head", None),
    ("ones @ b_U.T + ones @ b_U.T", BIASED, "paper", "bias-per-head", None),
    ("A[L0H1] @ ones @ b_O[L0].T @ W_U.T", BIASED, "paper", "bias-per-head", "ones @ b_O[L0].T @ W_U.T"),
    ("A[L0H0] @ ones @ b_V[L0H1].T @ W_O[L0H1].T @ W_U.T", BIASED, "paper", "bias-per-head",
     "A[L0H1] @ ones @ b_V[L0H1].T @ W_O[L0H1].T @ W_U.T"),
    ("(X0 + 2 * P) @ W_U.T", BIASED, "paper", "bias-per-head", None),
    # 15: the position in OV, or dropped
    ("A[L0H1] @ P @ W_OV[L0H1].T @ W_U.T", SHORT, "paper", "position-in-ov", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("P @ W_U.T", SHORT, "paper", "position-in-ov", "X0 @ W_U.T"),
    ("A[L0H1] @ P @ W_OV[L0H1].T @ W_QK[L1H0] @ X0.T", SHORT, "paper", "position-in-ov",
     "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_QK[L1H0] @ X0.T"),
    ("X0 @ W_QK[L1H0] @ W_OV[L0H1] @ P.T @ A[L0H1].T", SHORT, "paper", "position-in-ov",
     "X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H1].T"),
    ("W_pos @ OV[L0H1] @ W_U", SHORT, TL, "position-in-ov", None),
    ("X0 @ W_QK[L0H0] @ X0.T + P @ W_QK[L0H0] @ P.T", attention_only((1,), "shortformer"), "paper", "missing-terms",
     None),
    ("P @ W_U.T", PLAIN, "paper", "extra-terms", "X0 @ W_U.T"),
    ("ones @ b_O[L0].T @ W_U.T", PLAIN, "paper", "extra-terms", None),
    # 10: a bias forgotten
    ("X0 @ W_U.T + A[L0H0] @ X0 @ W_OV[L0H0].T @ W_U.T", attention_only((1,), None, ["b_V"]), "paper", "missing-terms",
     None),
    # 16: query and key swapped
    ("X0 @ W_QK[L1H0].T @ X0.T", PLAIN, "paper", "query-key-swap", "X0 @ W_QK[L1H0] @ X0.T"),
    ("X0 @ W_K[L1H0].T @ W_Q[L1H0] @ X0.T", PLAIN, "paper", "query-key-swap", "X0 @ W_QK[L1H0] @ X0.T"),
    ("W_E @ QK[L1H0].T @ W_E.T", PLAIN, TL, "query-key-swap", "W_E @ QK[L1H0] @ W_E.T"),
    ("X0 @ W_QK[L1H0].T @ W_OV[L0H1] @ X0.T @ A[L0H1].T", PLAIN, "paper", "query-key-swap",
     "X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H1].T"),
    ("A[L0H1] @ X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T", PLAIN, "paper", "query-key-swap", None),
    # 18: the paper's own slips
    ("A[L0H1].T @ X0 @ W_OV[L0H1].T @ W_QK[L1H0] @ W_OV[L0H2] @ X0.T @ A[L0H2]", PLAIN, "paper", "transpose",
     "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_QK[L1H0] @ W_OV[L0H2] @ X0.T @ A[L0H2].T"),
    ("X0 @ W_Q[L1H0] @ W_K[L1H0] @ X0.T", PLAIN, "paper", "transpose", "X0 @ W_QK[L1H0] @ X0.T"),
    ("X0.T @ W_QK[L1H0] @ X0", PLAIN, "paper", "transpose", "X0 @ W_QK[L1H0] @ X0.T"),
    # another head's matrix, a factor dropped or twice, another matrix
    ("A[L0H1] @ X0 @ W_OV[L0H2].T @ W_U.T", PLAIN, "paper", "wrong-head", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ X0 @ (W_O[L0H1] @ W_V[L0H2]).T @ W_U.T", PLAIN, "paper", "wrong-head",
     "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("X0 @ W_Q[L1H0].T @ W_K[L1H1] @ X0.T", PLAIN, "paper", "wrong-head", "X0 @ W_QK[L1H0] @ X0.T"),
    ("X0 @ W_OV[L0H1].T @ W_U.T", PLAIN, "paper", "dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ X0 @ W_U.T", PLAIN, "paper", "dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ W_OV[L0H1].T @ W_U.T", PLAIN, "paper", "dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ X0 @ W_V[L0H1].T @ W_U.T", PLAIN, "paper", "dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("A[L0H1] @ X0 @ W_OV[L0H1].T @ W_QK[L1H0] @ W_OV[L0H2] @ X0.T", PLAIN, "paper", "dropped-factor",
     "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_QK[L1H0] @ W_OV[L0H2] @ X0.T @ A[L0H2].T"),
    ("A[L0H1] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T", PLAIN, "paper", "doubled-factor",
     "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("X0 @ W_U.T @ W_U.T", PLAIN, "paper", "doubled-factor", "X0 @ W_U.T"),
    ("X0 @ W_U.T", attention_only((1,), unembed=False), "paper", "extra-factor", "X0"),
    ("X0 @ A[L0H1] @ W_OV[L0H1].T @ W_U.T", PLAIN, "paper", "factor-order", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"),
    ("W_U @ W_QK[L1H0] @ W_E", PLAIN, "paper", "wrong-matrix", "W_E.T @ W_QK[L1H0] @ W_E"),
    ("X0 @ W_U.T - A[L0H0] @ X0 @ W_OV[L0H0].T @ W_U.T", attention_only((1,)), "paper", "extra-terms", None),
    ("X0 - X0", PLAIN, "paper", "missing-terms", None),
    ("t @ t @ t @ t @ t @ t @ t @ t @ t @ t @ t @ t", PLAIN, "paper", "unknown", None),
]  # fmt: skip


@pytest.mark.parametrize(("written", "arch", "convention", "mistake", "nearest"), MISTAKEN)
def test_a_mistake_has_its_name(
    written: str, arch: Architecture, convention: str, mistake: str, nearest: str | None
) -> None:
    verdict = check(written, arch, convention=convention)
    assert not verdict.right
    assert verdict.mistake == mistake, verdict
    assert f"({mistake})" in verdict.message
    if nearest is not None:
        assert verdict.nearest == nearest
    if verdict.nearest is not None:
        assert check(verdict.nearest, arch, verdict.target, convention).right
    json.dumps(verdict.json(), allow_nan=False)
    assert check(written, arch, convention=convention) == verdict


def test_a_bias_appended_to_every_head_is_found_in_the_whole_sum() -> None:
    arch = attention_only((3,), None, ["b_O"])
    heads = " + ".join(f"(A[L0H{i}] @ X0 @ W_OV[L0H{i}].T + ones @ b_O[L0].T)" for i in range(3))
    verdict = check(f"logits = (X0 + {heads}) @ W_U.T", arch)
    assert verdict.mistake == "bias-per-head"
    assert list(verdict.doubled) == ["3 * ones @ b_O[L0].T @ W_U.T"]


@pytest.mark.parametrize("heads", [(2,), (2, 3)])
def test_a_direct_term_counted_once_a_head_is_not_a_bias(heads: tuple[int, ...]) -> None:
    """Its coefficient happens to be a number of heads; of positions, and biases, that is another mistake."""
    arch = attention_only(heads, "standard", ["b_U"])
    for times in (2, 3, 4):
        verdict = check(f"{times} * X0 @ W_U.T", arch)
        assert verdict.mistake == "extra-terms"
        assert f"occurs {times} times, not once." in verdict.message
        assert "per head" not in verdict.message
    assert check("2 * P @ W_U.T", arch).mistake == "bias-per-head"


def test_the_types_say_why() -> None:
    message = check("X0 @ W_QK[L1H0] @ W_OV[L0H1].T @ X0.T @ A[L0H1].T", PLAIN).message
    assert "W_QK[L1H0] @ W_OV[L0H1].T cannot be multiplied" in message
    assert "W_OV[L0H1].T should be W_OV[L0H1]" in message


def test_the_other_convention_and_the_other_target_are_noticed() -> None:
    verdict = check("W_E @ OV[L0H1] @ W_U".replace("OV", "W_OV"), PLAIN)
    assert (verdict.right, verdict.convention) == (True, "transformerlens")  # the one in which the products fit
    verdict = check("A[L0H1] @ X0 @ W_OV[L0H1]", PLAIN)
    assert verdict.mistake == "transpose"
    assert any('convention="transformerlens"' in n for n in verdict.notes)
    verdict = check("A[L0H1] @ X0 @ W_OV[L0H1].T", PLAIN, "logits")
    assert (verdict.mistake, verdict.nearest) == ("dropped-factor", "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T")
    assert any("for another target this is right (stream)" in n for n in verdict.notes)
    verdict = check("scores[L1H0] = X0 @ W_QK[L1H0] @ X0.T", PLAIN, "scores:L1H1")
    assert verdict.mistake == "wrong-head"
    assert any("left-hand side" in n for n in verdict.notes)


NORMED = transformer((2, 2), norm="LN", mlps=True)
TURNED = transformer((2, 2), "rotary", groups=(1, 1))
THROUGH_NORMS = (
    "D[final] @ A[L1H0] @ D[L1] @ A[L0H0] @ D[L0] @ X0 @ C @ gain[L0] @ W_OV[L0H0].T @ C @ gain[L1] @ W_OV[L1H0].T "
    "@ C @ gain[final] @ W_U.T"
)
SLIPS = [
    (NORMED, THROUGH_NORMS, "A[L1H0] @ D[L1]", "D[L1] @ A[L1H0]", "norm-side"),
    (NORMED, THROUGH_NORMS, "D[L0] @ X0", "X0 @ D[L0]", "norm-side"),
    (NORMED, THROUGH_NORMS, "C @ gain[L1]", "gain[L1] @ C", "gain-order"),
    (NORMED, THROUGH_NORMS, "gain[final] @ W_U.T", "W_U.T @ gain[final]", "gain-order"),
    (NORMED, THROUGH_NORMS, "gain[L0] @ W_OV[L0H0].T", "W_OV[L0H0].T @ gain[L0]", "gain-order"),
    (NORMED, THROUGH_NORMS, "D[L1]", "D[L0]", "wrong-norm"),
    (NORMED, THROUGH_NORMS, "gain[L1]", "gain[L0]", "wrong-norm"),
    (NORMED, THROUGH_NORMS, "D[L1] @ ", "", "dropped-factor"),
    (NORMED, THROUGH_NORMS, "@ X0 @ C ", "@ X0 ", "dropped-factor"),
    (NORMED, THROUGH_NORMS, "D[L1] @ ", "D[L1] @ D[L1] @ ", "doubled-factor"),
    (NORMED, "D[final] @ mlp[L0] @ C @ gain[final] @ W_U.T", "D[final] @ ", "", "dropped-factor"),
    (TURNED, "X0 @ W_Q[L1H1].T @ R[L1H1] @ W_K[L1G0] @ X0.T", "R[L1H1] @ ", "", "dropped-factor"),
    (TURNED, "X0 @ W_Q[L1H1].T @ R[L1H1] @ W_K[L1G0] @ X0.T", "R[L1H1]", "R[L1H0]", "wrong-head"),
    (TURNED, "X0 @ W_Q[L1H1].T @ R[L1H1] @ W_K[L1G0] @ X0.T", "X0 @ W_Q[L1H1].T @ R[L1H1]",
     "R[L1H1] @ X0 @ W_Q[L1H1].T", "factor-order"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "right", "part", "slip", "mistake"), SLIPS, ids=[f"{s[4]}: {s[3]}" for s in SLIPS])
def test_slips_with_norms_and_rotations(arch: Architecture, right: str, part: str, slip: str, mistake: str) -> None:
    assert check(right, arch).right
    assert right.count(part) == 1
    verdict = check(right.replace(part, slip), arch)
    assert (verdict.right, verdict.mistake) == (False, mistake), verdict
    assert verdict.nearest == right
    assert "Types: " in verdict.message


def test_a_rotation_that_stands_last_turns_nothing() -> None:
    arch = transformer((1,), "rotary", scale=False)
    right = expand(arch, "scores:L0H0")[0].text
    assert check(right, arch).right
    for wrong in (f"{right.replace('R[L0H0] @ ', '')} @ R[L0H0]", "X0 @ W_QK[L0H0] @ X0.T @ R[L0H0]"):
        verdict = check(wrong, arch, "scores:L0H0")
        assert (verdict.right, verdict.nearest) == (False, right)


# ------------------------------------------------------------------------------------------------ corrupted
def corrupt(data: st.DataObject, letters: list[Letter], arch: Architecture) -> tuple[str, list[Letter]]:
    """One random change."""
    i = data.draw(st.integers(0, len(letters) - 1))
    kind = data.draw(st.sampled_from(["turn", "drop", "double", "swap", "relabel", "insert", "reverse", "turn all"]))
    heads = [str(h) for h in arch.all_heads]
    if kind == "turn":
        letters = [*letters[:i], letters[i].T, *letters[i + 1 :]]
    elif kind == "drop" and len(letters) > 1:
        letters = letters[:i] + letters[i + 1 :]
    elif kind == "double":
        letters = [*letters[: i + 1], *letters[i:]]
    elif kind == "swap" and i:
        letters = [*letters[: i - 1], letters[i], letters[i - 1], *letters[i + 1 :]]
    elif kind == "relabel" and "H" in letters[i].label:
        side = letters[i].label.partition("L")[0]  # of the norm of a head's queries or keys: QL0H0
        other = Letter(letters[i].glyph, side + data.draw(st.sampled_from(heads)), letters[i].transposed)
        letters = [*letters[:i], other, *letters[i + 1 :]]
    elif kind == "insert" and heads:
        glyph = data.draw(st.sampled_from(["A", "W_OV", "W_QK", "W_Q", "W_O", "b_V"]))
        new = Letter(glyph, data.draw(st.sampled_from(heads)), data.draw(st.booleans()))
        letters = [*letters[:i], new, *letters[i:]]
    elif kind == "reverse":
        letters = letters[:i] + letters[i:][::-1]
    elif kind == "turn all":
        letters = [f.T if f.glyph == letters[i].glyph else f for f in letters]
    shared = {str(h): arch.key_value(h) for h in arch.all_heads}
    known = ("W_K", "W_V", "b_K", "b_V")  # a head's label there is read as its group's
    return kind, [f._replace(label=shared.get(f.label, f.label)) if f.glyph in known else f for f in letters]


@given(case=cases(max_terms=300, max_layers=3, max_heads=3), data=st.data())
def test_a_corrupted_word_is_right_only_where_it_is_worth_another_term(
    case: tuple[Architecture, str], data: st.DataObject
) -> None:
    arch, target = case
    expansion = expand(arch, target)
    assume(expansion.count)
    term = expansion[data.draw(st.integers(0, expansion.count - 1))]
    letters = list(letters_of(term.word.fused))
    if data.draw(st.booleans()):
        letters = list(Spelling(arch).unfuse(letters))
    kinds = []
    for _ in range(data.draw(st.integers(1, 3))):
        kind, letters = corrupt(data, letters, arch)
        kinds.append(kind)
    numbers = tuple(x for x in term.word.scales if is_multiplier(x))
    scales = data.draw(st.sampled_from([term.word.scales, (), numbers, numbers[1:], term.word.scales * 2]))
    front = "".join(f"{scale_text(s)} * " for s in scales)
    text = front + " @ ".join(f.text for f in letters)
    verdict = check(text, arch, target, "row")
    assert verdict.right == Truth(arch, target).right(text), verdict
    assert not verdict.circuit or not any(f.glyph in OF_TOKENS for f in letters)
    assert verdict.right == (verdict.mistake is None)
    if not verdict.right:
        check_the_advice(verdict, arch, target)
    if kinds == ["turn"] and not verdict.right and scales == term.word.scales and len(letters) > 1:
        assert verdict.mistake in ("transpose", "query-key-swap"), verdict


def check_the_advice(verdict: Verdict, arch: Architecture, target: str) -> None:
    """A wrong verdict names a known mistake, and its nearest term is right."""
    assert verdict.mistake in MISTAKES
    assert verdict.text(60).splitlines()
    json.dumps(verdict.json(), allow_nan=False)
    if verdict.nearest is not None:
        assert check(verdict.nearest, arch, target, "row").right


def _product(text: str) -> list[str]:
    return text.rpartition(" * ")[2].split(" @ ")


def _diagonals_sorted(text: str) -> list[str]:
    """The letters, neighbours of one diagonal kind in one order."""
    letters = [letter.removesuffix(".T") if letter[:2] in ("D[", "ga") else letter for letter in _product(text)]
    runs = groupby(letters, lambda letter: letter.partition("[")[0] if letter[:2] in ("D[", "ga") else letter)
    return [letter for _, run in runs for letter in sorted(run)]


def _flipped(text: str) -> str:
    return text.removesuffix(".T") if text.endswith(".T") else f"{text}.T"


@given(case=cases(max_terms=100, max_layers=2, max_heads=3), data=st.data())
def test_one_wrong_word_in_a_sum_is_found(case: tuple[Architecture, str], data: st.DataObject) -> None:
    arch, target = case
    expansion = expand(arch, target)
    assume(expansion.count > 1)
    texts = [t.text for t in expansion]
    i = data.draw(st.integers(0, len(texts) - 1))
    _, letters = corrupt(data, list(letters_of(expansion[i].word.fused)), arch)
    front = "".join(f"{scale_text(s)} * " for s in expansion[i].word.scales)
    wrong = front + " @ ".join(f.text for f in letters)
    assume(wrong != texts[i])
    assume("C @ C" not in wrong)  # centring twice is centring
    assume(_diagonals_sorted(wrong) != _diagonals_sorted(texts[i]))  # diagonal matrices commute
    whole = front + " @ ".join(_flipped(text) for text in reversed([f.text for f in letters]))
    assume("ones" not in wrong or whole != texts[i])  # b^T W b is its own transpose, with the same vector on both sides
    verdict = check(" + ".join([*texts[:i], wrong, *texts[i + 1 :]]), arch, target, "row")
    assert not verdict.right
    assert texts[i] in list(verdict.missing) or verdict.mistake == "scale"
    if wrong not in texts:
        assert list(verdict.extra) == [" @ ".join(f.text for f in Spelling(arch).fuse(letters)) if not front else
                                       front + " @ ".join(f.text for f in Spelling(arch).fuse(letters))]  # fmt: skip


def test_a_rotation_the_other_way_round_is_wrong() -> None:
    """``R.T`` turns by i - j: it stands in a transposed score alone."""
    arch = attention_only((1,), "rotary", biases=["b_Q", "b_K"], scale=False)
    for term in expand(arch, "scores:L0H0"):
        assert check(term.text, arch).right
        assert not check(term.text.replace("R[L0H0]", "R[L0H0].T"), arch).right


# ---------------------------------------------------------------------------------------------- the verdict
def test_the_verdict_as_text_and_json() -> None:
    verdict = check("A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T", PLAIN)
    right = "Right: this is term 2 of 16 (counted from 0) of logits: embed -> L0H1, none."
    convention = "the row convention, matrices in the paper's shapes"
    assert verdict.text(120).splitlines() == [f"Read: {convention}; held fixed: the attention patterns", right]
    assert verdict.json() == {
        "schema": "symcircuits.check/1", "architecture": "attention-only, heads 3,3", "convention": "paper",
        "read": [convention], "where": [], "line": None, "lines": 1,
        "target": "logits", "count": 16, "right": True, "mistake": None, "circuit": False, "nearest": None,
        "notation": {"name": "row", "convention": convention, "symbols": {}},
        "held_fixed": "the attention patterns", "message": right,
        "terms": [{"number": 2, "label": "embed -> L0H1", "composition": "none",
                   "text": "A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T"}],
        "missing": {"count": 0, "texts": []}, "extra": {"count": 0, "texts": []},
        "doubled": {"count": 0, "texts": []}, "notes": [],
    }  # fmt: skip


def test_own_names_and_another_notation() -> None:
    names = {"W_OV": "M", "A": "P", "scale": "sigma"}
    verdict = check("logits = X0 @ W_U.T + P[L0H1] @ X0 @ M[L0H1].T @ W_U.T", PLAIN, symbols=names)
    assert (verdict.mistake, verdict.missing.count) == ("missing-terms", 14)
    assert next(iter(verdict.missing)) == "P[L0H0] @ X0 @ M[L0H0].T @ W_U.T"
    wrong = check("sigma[L1H0] * X0 @ W_QK[L1H0] @ M[L0H1].T @ X0.T @ P[L0H1].T", PLAIN, symbols=names)
    assert wrong.nearest == "sigma[L1H0] * X0 @ W_QK[L1H0] @ M[L0H1] @ X0.T @ P[L0H1].T"
    assert "M[L0H1].T should be M[L0H1]" in wrong.message
    maps = check("A[L0H1] @ X0 @ W_OV[L0H1] @ W_U.T", PLAIN, notation="paper")
    assert maps.nearest == "(A[L0H1] (x) W_U @ W_OV[L0H1] @ W_E) t"
    assert "right terms in the paper's notation, (A (x) W) x = A x W^T" in maps.text(1000)
    assert check("A[L0H1] @ X0 @ OV[L0H1] @ W_U", PLAIN, convention="transformerlens", notation="row").terms[
        0
    ].text == ("A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T")
    assert check("B[L0H1] @ A_p @ W_OV[L0H1].T @ W_U.T", BIASED, symbols={"A": "B", "P": "A_p"})
    with pytest.raises(ValueError, match="A cannot be printed as 'P': so is P"):
        check("P[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T", BIASED, symbols={"A": "P"})
    with pytest.raises(ValueError, match="notation must be one of row, paper, transformerlens, not 'column'"):
        check("X0 @ W_U.T", PLAIN, notation="column")


@pytest.mark.parametrize("width", [20, 60, 100])
def test_text_fits_its_width(width: int) -> None:
    deep = scores(DEEP, "L11H3")[10**23].text.replace("X0 @", "P @", 1)
    for formula, arch in ((deep, DEEP), ("X0 @ W_U.T + X0 @ W_QK[L0H0] @ X0.T", PLAIN)):
        lines = check(formula, arch).text(width).splitlines()
        assert all(len(line) <= width or " " not in line.strip() for line in lines)


def test_long_lists_are_cut() -> None:
    whole = " + ".join(t.text.replace("W_U.T", "W_U") for t in logits(attention_only((6, 6))))
    verdict = check(whole, attention_only((6, 6)), convention="paper")
    assert (verdict.extra.count, len(list(verdict.extra)), verdict.missing.count) == (49, 20, 49)
    assert "... and 29 more" in verdict.text()


@pytest.mark.slow
def test_large_sums_are_checked() -> None:
    arch = attention_only((8, 8, 8))
    expansion: Expansion = scores(arch, "L2H0")
    text = " + ".join(t.text for t in expansion)
    assert check(text, arch)
    wrong = check(text.replace("W_OV[L0H1].T", "W_OV[L0H1]"), arch)
    assert wrong.mistake == "transpose"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="takes an architecture"):
        check("X0", (3, 3))
    with pytest.raises(ValueError, match="unknown target"):
        check("X0", PLAIN, "loss")
    with pytest.raises(ValueError, match="no head L7H0"):
        check("X0", PLAIN, "scores:L7H0")
    with pytest.raises(ValueError, match="convention must be"):
        check("X0", PLAIN, convention="mine")
    with pytest.raises(ReadError):
        check("", PLAIN)
    with pytest.raises(ValueError, match="no unembedding"):
        check("X0", attention_only((1,), unembed=False), "logits")


class HasArchitecture:
    architecture = PLAIN


def test_a_model_stands_for_its_architecture() -> None:
    term: Term = stream(PLAIN)[3]
    assert check(term, HasArchitecture()).terms[0].number == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Id", "Id is not the circuit of a term of logits. The nearest is term 0, embed: W_E.T is missing"),
        ("Id + A[L1H0]", "Id is not a term of stream. The nearest is term 0, embed: X0 is missing."),
        ("W_U - Id", "Id is not the circuit of a term of logits."),
        ("X_1 = X0 - I", "Id is not part of the other side."),
        ("A^h = I", "Id is not part of the other side. The nearest there is A[L1H0]."),
    ],
)
def test_an_identity_alone_is_named_as_a_wrong_product(text: str, says: str) -> None:
    verdict = check(text, PLAIN)
    assert not verdict.right
    assert says in verdict.message
    assert "a word needs at least one factor" not in verdict.message


@pytest.mark.parametrize(
    ("text", "said"), [("0.5 * X0 @ W_U.T", "1/2"), ("X0 @ W_U.T * 1.5", "3/2"), (r"\frac{1}{3} X_0 W_U^T", "1/3")]
)
def test_a_coefficient_that_is_not_whole_is_named(text: str, said: str) -> None:
    with pytest.raises(ReadError, match=f"the coefficient {said} of this product is not a whole number"):
        check(text, PLAIN)
