"""Words as MathML: the same symbols, labels and transposes as the word has, and nothing that breaks a page."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases

from symcircuits.core import notation
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.symbols import LATEX
from symcircuits.derivation.printing.mathml import latex_mathml, word_mathml

CORE = {
    "math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "mtext", "mspace", "msub", "msup", "msubsup",
}  # fmt: skip


def read(element: ET.Element) -> str:
    """A symbol as text notation: ``W_OV[L0H1].T``."""
    if element.tag in ("msub", "msup", "msubsup"):
        base, *scripts = element
        names = "".join(base.itertext())
        below = "".join(scripts.pop(0).itertext()) if element.tag != "msup" else ""
        above = ["".join(e.itertext()) for e in scripts[0].iter() if e.tag in ("mi", "mn")] if scripts else []
        turned = above[-1:] == ["T"]
        label = "".join(above[:-1] if turned else above)
        name = names + (below if below.isdigit() or names == "R" else f"_{below}" if below else "")
        name = {"Γ": "gain", "M": "mlp"}.get(name, "R" if name.startswith("R") else name)
        return name + (f"[{label}]" if label else "") + (".T" if turned else "")
    return "".join(element.itertext())


def text_of(math: ET.Element) -> str:
    """A formula as text notation."""
    row = math[0][0]
    symbols = [read(e) for e in (row if row.tag == "mrow" else [row]) if e.tag != "mspace"]
    scales = [s for s in symbols if s.startswith(("s[", "r[")) or s in ("m_E", "m_U")]
    product = " @ ".join(
        s.replace("1.T", "ones.T") if s == "1.T" else "ones" if s == "1" else s for s in symbols[len(scales) :]
    )
    return "".join(f"{'scale' + s[1:] if s[0] == 's' else s} * " for s in scales) + product


@given(cases(max_terms=120), st.data())
def test_a_formula_reads_as_the_word(case: tuple[Architecture, str], data: st.DataObject) -> None:
    expansion = expand(*case)
    word = expansion[data.draw(st.integers(0, expansion.count - 1))].word
    math = ET.fromstring(word_mathml(word))
    assert {e.tag for e in math.iter()} <= CORE
    assert text_of(math) == word.text == math.get("alttext")
    note = math.find("semantics/annotation")
    assert note is not None
    assert note.text == notation.word_latex(word)


@pytest.mark.parametrize("glyph", LATEX)
def test_every_glyph_is_drawn(glyph: str) -> None:
    drawn = latex_mathml(notation.glyph_latex(glyph))
    assert "mtext" not in drawn  # what is not known would stand as text
    assert "\\" not in drawn
    ET.fromstring(drawn)


@pytest.mark.parametrize(
    ("latex", "mathml"),
    [
        (r"\mathbf{1}", '<mn class="bf">1</mn>'),
        (r"\mathsf{T}", '<mi class="sf" mathvariant="normal">T</mi>'),
        (r"D^{\mathrm{L10}}", "<msup><mi>D</mi><mi>L10</mi></msup>"),
        (r"X_{12}", "<msub><mi>X</mi><mn>12</mn></msub>"),
        (r"h^{2}_{1}", "<msubsup><mi>h</mi><mn>1</mn><mn>2</mn></msubsup>"),
        (r"\gamma_1", "<msub><mi>γ</mi><mn>1</mn></msub>"),
        (r"\nothing", "<mtext>nothing</mtext>"),
        (r"\mathrm{<b>&}", "<mi>&lt;b&gt;&amp;</mi>"),
        ("<", "<mo>&lt;</mo>"),
        ("_1", "<msub><mrow/><mn>1</mn></msub>"),
    ],
)
def test_pieces(latex: str, mathml: str) -> None:
    assert latex_mathml(latex) == mathml


@given(st.text(st.sampled_from(r"ab1_^{}\ <&,") | st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_text_gives_well_formed_elements(latex: Any) -> None:
    ET.fromstring(f"<p>{latex_mathml(latex)}</p>")
