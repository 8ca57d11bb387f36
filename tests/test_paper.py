"""LaTeX for papers: labelled equations in the width of the text, the checks in one sentence, no bitmap fonts."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import find_tool
from hypothesis import given
from hypothesis import strategies as st
from made import made
from strategies import architectures, examples
from test_cli import Cli, cli, refused

import symcircuits as sc
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.paper import WIDTHS, text_width

__all__ = ["cli"]  # a fixture

RICH: dict[str, Any] = {"norm": "LN", "mlps": True, "biases": True, "positions": "standard"}
TEXTS = {
    "logits": lambda: sc.derive(sc.attention_only((2, 2))),
    "scores": lambda: sc.derive(sc.attention_only((2, 2)), "scores:L1H0"),
    "generic scores": lambda: sc.derive(sc.attention_only((2, 2)), "scores:L1H0", "generic", notation="paper"),
    "features": lambda: sc.derive(sc.transformer((2, 2), **RICH), form="generic"),
    "source_gauge": lambda: sc.theorem("source_gauge"),
    "composition_scores": lambda: sc.theorem("composition_scores"),
}


def compiled(pdflatex: str, text: str, folder: Path) -> str:
    """The log of a document that compiles."""
    (folder / "page.tex").write_text(text, "utf-8")
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "page.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
    log = (folder / "page.log").read_text("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    return log


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.sampled(3)
def test_no_line_is_wider_than_the_text(tmp_path: Path, pdflatex: str, name: str, width: str) -> None:
    log = compiled(pdflatex, TEXTS[name]().paper(width, standalone=True), tmp_path)
    assert re.findall(r"Overfull \\hbox.*", log) == []
    assert "multiply defined" not in log


def test_an_overfull_line_would_be_seen(tmp_path: Path, pdflatex: str) -> None:
    page = TEXTS["logits"]().paper("article", standalone=True)
    narrow = page.replace("textwidth=345pt", "textwidth=200pt")
    assert "Overfull" in compiled(pdflatex, narrow, tmp_path)


@pytest.mark.parametrize("paper", [True, False])
def test_no_font_is_a_bitmap(tmp_path: Path, pdflatex: str, paper: bool) -> None:
    """Type 3 fonts are refused by publishers."""
    pdffonts = find_tool("pdffonts")
    derivation = TEXTS["features"]()
    compiled(pdflatex, derivation.paper(standalone=True) if paper else derivation.latex(standalone=True), tmp_path)
    fonts = subprocess.run([pdffonts, "page.pdf"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "Type 1" in fonts
    assert "Type 3" not in fonts


def said_once(derivation: Derivation, width: float) -> None:
    """A label for every claim, each once; nothing of a single check; everything that the page with checks proves."""
    text = derivation.paper(width, label="eq:x")
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert labels == [f"eq:x:{s.number}.{i}" for s in derivation.steps for i in range(1, len(s.claims) + 1)]
    for word in (
        "Checked:",
        "wn derivation",
        "Summary.",
        "requested for",
        "textcolor",
        r"\ast",
        "Every step",
        "listed in the steps",
    ):
        assert word not in text, word
    assert text.count("Every equation was checked by machine") == 1
    assert text.isascii()
    for opening in re.findall(r"\\begin\{(align(?:at)?)\}", text):
        assert text.count(rf"\begin{{{opening}}}") == text.count(rf"\end{{{opening}}}")


@examples(25)
@given(architectures(max_layers=2, max_heads=2, max_terms=40), st.sampled_from([230.0, 345.0, 500.0]), st.booleans())
def test_every_architecture(arch: Any, width: float, generic: bool) -> None:
    if not arch.unembed:
        return
    try:
        derivation = sc.derive(arch, form="generic" if generic else "enumerated")
    except ValueError as fault:  # heads of one layer that differ have no generic form
        if not generic or "generic" not in str(fault):
            raise
        return
    said_once(derivation, width)


@pytest.mark.parametrize("name", sc.theorems())
def test_every_theorem(name: str) -> None:
    said_once(made(name), 345.0)


def test_formulas_of_steps_and_claims() -> None:
    derivation = sc.derive(sc.attention_only((1,)))
    for step in derivation.steps:
        assert step.latex().startswith("\\begin{align")
        for claim in step.claims:
            assert "\\begin{align" not in claim.latex()
    assert derivation.steps[2].claim.latex() == r"\mathrm{logits} = X_{1}\,W_U^{\mathsf{T}}"
    assert r"\otimes" in derivation.steps[4].claim.latex("paper")
    with pytest.raises(ValueError, match="notation"):
        derivation.steps[2].latex("rows")


@pytest.mark.parametrize("bad", ["wide", "-3", 0, 199, 5000, float("nan"), True, None, "345 mm"])
def test_widths_that_cannot_be(bad: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        text_width(bad)


@pytest.mark.parametrize("bad", ["", "1a", "a}b", "a b", "\\x", 3])
def test_labels_that_cannot_be(bad: Any) -> None:
    with pytest.raises(ValueError, match="label must be a letter"):
        sc.derive(sc.attention_only((1,))).paper(label=bad)


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    words = ["derive", "--heads", "2,2", "--form", "generic", "--for", "paper", "--width", "two-column"]
    expected = sc.derive(sc.attention_only((2, 2)), form="generic").paper("two-column", label="eq:p")
    assert cli(*words, "--label", "eq:p").out.strip() == expected.strip()
    assert cli(*words, "--standalone", "-o", str(tmp_path / "a.tex")).code == 0
    assert (tmp_path / "a.tex").read_text("utf-8").startswith("\\documentclass")
    refused(cli(*words, "--format", "json"), "--for paper writes LaTeX; it cannot be used with --format json")
    refused(cli(*words[:5], "--width", "article"), "--width needs --for paper")
    refused(cli(*words[:-1], "wide"), "width must be article, neurips, two-column, or a number of pt, not 'wide'")
    refused(cli(*words, "--label", "a b"), "label must be a letter")
