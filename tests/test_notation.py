"""How symbols and words are written in LaTeX."""

import re

import pytest
from hypothesis import given
from strategies import cases

from symcircuits.algebra import Factor, Word, fuse
from symcircuits.architecture import Architecture, Head, attention_only
from symcircuits.expansion import expand, logits, scores, stream
from symcircuits.notation import (
    factor_latex,
    glyph_latex,
    latex_label,
    product_latex,
    scale_latex,
    symbol_latex,
    word_latex,
)
from symcircuits.programs import embedding, pattern, weight

ARCH = attention_only((2, 2), "standard", True)


def test_symbols() -> None:
    a = pattern(Head(0, 11))
    assert latex_label("L0H11") == r"\mathrm{L0H11}"
    assert symbol_latex(a) == r"A^{\mathrm{L0H11}}"
    assert symbol_latex(a, True) == factor_latex(a.T) == r"A^{\mathrm{L0H11}\,\mathsf{T}}"
    assert factor_latex(Factor(a)) == symbol_latex(a, False)
    assert scale_latex("L1H0") == r"s^{\mathrm{L1H0}}"
    w_u = logits(ARCH)[0].word.factors[-1]
    assert (factor_latex(w_u), factor_latex(w_u.T)) == (r"W_U^{\mathsf{T}}", "W_U")
    assert product_latex([Factor(a), w_u]) == r"A^{\mathrm{L0H11}}\,W_U^{\mathsf{T}}"
    assert product_latex([]) == ""
    assert [factor_latex(f) for f in embedding()] == ["t", r"W_E^{\mathsf{T}}"]
    for glyph in ("W_Q", "W_K", "W_V", "W_O"):
        assert symbol_latex(weight(ARCH, glyph, Head(1, 0))) == glyph + r"^{\mathrm{L1H0}}"


def test_generic_heads_and_streams() -> None:
    assert [latex_label(label) for label in ("h", "h_1", "h_12", "L0")] == ["h", "h_{1}", "h_{12}", r"\mathrm{L0}"]
    assert [glyph_latex(glyph) for glyph in ("X0", "X1", "X12", "P")] == ["X_0", "X_{1}", "X_{12}", "P"]


@pytest.mark.parametrize(
    ("latex", "word"),
    [
        (r"X_0\,W_U^{\mathsf{T}}", logits(ARCH)[0].word),
        (r"P\,W_U^{\mathsf{T}}", logits(ARCH)[1].word),
        (r"\mathbf{1}\,b_O^{\mathrm{L0}\,\mathsf{T}}\,W_U^{\mathsf{T}}", logits(ARCH)[2].word),
        (r"\mathbf{1}\,b_U^{\mathsf{T}}", logits(ARCH).from_source("b_U")[0].word),
        (
            r"A^{\mathrm{L1H0}}\,A^{\mathrm{L0H1}}\,X_0\,W_{OV}^{\mathrm{L0H1}\,\mathsf{T}}\,W_{OV}^{\mathrm{L1H0}\,\mathsf{T}}",
            stream(ARCH).through("L0H1").through("L1H0")[0].word,
        ),
        (
            r"A^{\mathrm{L0H0}}\,\mathbf{1}\,b_V^{\mathrm{L0H0}\,\mathsf{T}}\,W_O^{\mathrm{L0H0}\,\mathsf{T}}",
            stream(ARCH).from_source("b_V")[0].word,
        ),
        (
            r"s^{\mathrm{L1H0}}\,X_0\,W_{QK}^{\mathrm{L1H0}}\,W_{OV}^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}\,"
            r"A^{\mathrm{L0H0}\,\mathsf{T}}",
            scores(ARCH, "L1H0").where("K")[0].word,
        ),
        (
            r"s^{\mathrm{L1H0}}\,\mathbf{1}\,b_Q^{\mathrm{L1H0}\,\mathsf{T}}\,b_K^{\mathrm{L1H0}}\,\mathbf{1}^{\mathsf{T}}",
            scores(ARCH, "L1H0").from_source("b_Q").from_source("b_K")[0].word,
        ),
        (
            r"\mathbf{1}\,b_Q^{\mathrm{L0H0}\,\mathsf{T}}\,W_K^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}",
            scores(attention_only((1,), None, True, scale=False), "L0H0").from_source("b_Q")[0].word,
        ),
    ],
)
def test_words(latex: str, word: Word) -> None:
    assert word_latex(word) == latex
    assert word_latex(Word(fuse(word.factors), word.scales)) == latex


@given(cases(max_terms=100))
def test_latex_says_what_the_text_says(case: tuple[Architecture, str]) -> None:
    """The LaTeX of every term, turned into text notation, is its text."""
    for term in expand(*case):
        assert term.latex() == word_latex(term.word)
        text = term.latex().replace(r"\mathbf{1}", "ones").replace("X_0", "X0").replace(r"\,\mathsf{T}}", "}^T")
        text = text.replace(r"^{\mathsf{T}}", "^T").replace(r"\,", " @ ").replace("{OV}", "OV").replace("{QK}", "QK")
        text = text.replace(r"\Gamma", "gain").replace("R_{j-i}", "R").replace("M^", "mlp^")
        text = re.sub(r"\^\{\\mathrm\{(\w+)\}\}", r"[\1]", text).replace("^T", ".T")
        assert re.sub(r"^s\[(\w+)\] @", r"scale[\1] *", text) == term.text


def test_every_letter_can_be_written() -> None:
    for target in ("logits", "scores:L1H1"):
        for term in expand(ARCH, target):
            assert "_" not in re.sub(r"_(\w|\{\w+\})", "", word_latex(term.word))
