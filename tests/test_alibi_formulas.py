"""What ALiBi adds to scores, in formulas and derivations: read where the model has it, once, of its own head."""

import pytest

import symcircuits as sc
from symcircuits.checking.faults import ReadError

ARCH = sc.attention_only((2, 2), positions="alibi")
LEFT_OUT = "what ALiBi adds to the scores is left out"


@pytest.mark.parametrize(
    "text",
    [
        "alibi[L1H0]",
        "S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T + alibi[L1H0]",
        r"S^{\mathrm{L1H0}} = s^{\mathrm{L1H0}} X_{1} W_{QK}^{\mathrm{L1H0}} X_{1}^{\mathsf{T}} "
        r"+ {\mathrm{alibi}^{\mathrm{L1H0}}}",
        "S[L1H0] = alibi[L1H0] + scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T",
        r"S^h = \frac{1}{\sqrt{d_{head}}} X_1 W_{QK}^h X_1^T + \mathrm{ALiBi}^h",
        r"S^h = s X_1 W_{QK}^h X_1^T - m_h |i - j|",
        r"S^h_{ij} = s x_i W_{QK}^h x_j^T - m_h \left| i - j \right|",
        r"S^h = - m_h \lvert i - j \rvert + s X_1 W_{QK}^h X_1^T",
    ],
)
def test_what_alibi_adds_is_read(text: str) -> None:
    verdict = sc.check(text, ARCH)
    assert (verdict.right, verdict.where) == (True, ()), verdict


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T - alibi[L1H0]", "extra-terms"),
        ("S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T + 2 alibi[L1H0]", "extra-terms"),
        ("S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T + alibi[L1H1]", "wrong-head"),
        ("S[L1H0] = scale[L1H0] * (X1 @ W_QK[L1H0] @ X1.T + alibi[L1H0])", "scale"),
        ("logits = X2 @ W_U.T + alibi[L1H0]", "extra-terms"),
        (r"S^h = s X_1 W_{QK}^h X_1^T + m_h |i - j|", "extra-terms"),
        (r"S^h = s X_1 W_{QK}^{h T} X_1^T - m_h |i - j|", "query-key-swap"),
        ("S[L1H0] = scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T + alibi[L1H0]", "missing-terms"),
        ("2 alibi[L1H0]", "extra-terms"),
    ],
)
def test_wrong_ones_are_refused(text: str, mistake: str) -> None:
    verdict = sc.check(text, ARCH)
    assert (verdict.right, verdict.mistake) == (False, mistake), verdict


def test_a_model_without_it_has_no_such_symbol() -> None:
    for text in ("alibi[L1H0]", "S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T + alibi[L1H0]"):
        with pytest.raises(ReadError, match="this model adds no ALiBi to its scores"):
            sc.check(text, sc.attention_only((2, 2)))


def test_scores_without_it_are_right_under_that_hypothesis() -> None:
    verdict = sc.check("S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T", ARCH)
    assert (verdict.right, verdict.where) == (True, (LEFT_OUT,))
    assert not sc.check("S[L1H0] = scale[L1H0] * X1 @ W_QK[L1H0] @ X1.T", ARCH, strict=True).right
    assert sc.check(sc.scores(ARCH, "L1H0").latex(), ARCH).where == ()  # the terms, and not the scores


def test_sides_of_an_equation_have_it_alike() -> None:
    right = "X0 W_QK[L1H0] X0.T + alibi[L1H0] = alibi[L1H0] + X0 W_QK[L1H0] X0.T"
    assert sc.check(right, ARCH).right
    assert not sc.check(right + " + alibi[L1H0]", ARCH).right


@pytest.mark.parametrize("form", ["enumerated", "generic"])
def test_printed_derivations_are_checked_whole(form: str) -> None:
    derivation = sc.derive(sc.attention_only((1, 1), positions="alibi"), "scores:L1H0", form=form)
    text = derivation.latex()
    assert r"\mathrm{alibi}" in text
    assert sc.check(text, sc.attention_only((1, 1), positions="alibi")).right
    for step in derivation.steps:
        for claim in step.claims:
            if "alibi" in claim.text:
                assert sc.check(claim.text, sc.attention_only((1, 1), positions="alibi")).right
                wrong = claim.text.replace("+ alibi[L1H0]", "- alibi[L1H0]", 1)
                assert not sc.check(wrong, sc.attention_only((1, 1), positions="alibi")).right


def test_a_scaled_alibi_bias_names_the_scale() -> None:
    found = sc.check("S[L1H0] = scale[L1H0] * (X1 @ W_QK[L1H0] @ X1.T + alibi[L1H0])", ARCH)
    assert "alibi[L1H0] is multiplied by scale[L1H0], but it is added after scaling." in found.message
