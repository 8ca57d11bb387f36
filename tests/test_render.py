"""What derivations print: golden files, pages that compile without an overfull line, files written whole."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.derivation.expressions import Family, Identity, Number, Product, Sum, SumOver, Tensor
from symcircuits.render.latex import expr_latex, prose
from symcircuits.render.layout import Piece, broken, joined
from symcircuits.render.text import expr_text
from symcircuits.render.widths import latex_width

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
RESULTS = sorted((ROOT / "derivations").glob("*.py"))

# name: heads, target, form, other options. A missing golden file fails; SYMCIRCUITS_GOLDEN=1 writes them all.
CASES: dict[str, tuple[tuple[int, ...], str, str, dict[str, Any]]] = {
    "logits_3_3": ((3, 3), "logits", "enumerated", {}),
    "scores_3_3": ((3, 3), "scores:L1H0", "enumerated", {}),
    "logits_generic": ((3, 3), "logits", "generic", {}),
    "scores_generic": ((3, 3), "scores:L1H0", "generic", {}),
    "stream_biases": ((1, 2), "stream", "enumerated", {"biases": True}),
    "logits_biases_generic": ((2, 2), "logits", "generic", {"biases": True, "positions": "standard"}),
    "scores_shortformer": ((1, 1), "scores:L1H0", "enumerated", {"biases": True, "positions": "shortformer"}),
    "zero_layers": ((), "logits", "enumerated", {}),
}


def derived(name: str) -> sc.derivation.Derivation:  # type: ignore[name-defined]
    heads, target, form, options = CASES[name]
    return sc.derive(sc.attention_only(heads, **options), target, form=form)


# ------------------------------------------------------------------------------------------------ golden files


@pytest.mark.parametrize("name", CASES)
def test_golden_text(name: str) -> None:
    compare(GOLDEN / f"{name}.txt", derived(name).text())


@pytest.mark.parametrize("name", ["scores_3_3", "logits_generic", "zero_layers"])
def test_golden_latex(name: str) -> None:
    compare(GOLDEN / f"{name}.tex", derived(name).latex())


@pytest.mark.parametrize("name", ["logits_generic"])
def test_golden_json(name: str) -> None:
    compare(GOLDEN / f"{name}.json", json.dumps(derived(name).json(), indent=1, ensure_ascii=False) + "\n")


def compare(path: Path, printed: str) -> None:
    if os.environ.get("SYMCIRCUITS_GOLDEN") == "1":
        path.write_text(printed, "utf-8", newline="\n")
    assert printed == path.read_text("utf-8")


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.glob("*.*")} <= set(CASES)


# ------------------------------------------------------------------------------------------------------ pages


@pytest.mark.parametrize("name", CASES)
def test_text_fits_80_columns(name: str) -> None:
    assert max(map(len, derived(name).text().splitlines())) <= 80


@pytest.mark.parametrize(
    ("heads", "target", "form", "options"),
    [
        *CASES.values(),
        ((12, 12), "logits", "enumerated", {}),
        ((12, 2), "scores:L1H1", "enumerated", {}),
        ((1,) * 9, "logits", "enumerated", {}),  # chains of nine heads
        ((5,) * 6, "logits", "generic", {}),
        ((5,) * 4, "scores:L3H2", "generic", {}),
        ((2, 2, 2), "scores:L2H0", "generic", {"biases": True, "positions": "shortformer"}),
        ((2, 3, 4), "logits", "generic", {"biases": ["b_O", "b_V"]}),
        ((99,), "logits", "enumerated", {}),
    ],
)
def test_documents_compile_without_overfull_lines(
    tmp_path: Path, pdflatex: str, heads: tuple[int, ...], target: str, form: str, options: dict[str, Any]
) -> None:
    derivation = sc.derive(sc.attention_only(heads, **options), target, form=form)
    assert max(map(len, derivation.text().splitlines())) <= 80
    compiled(pdflatex, derivation.save(tmp_path / "page.tex"), tmp_path)


def test_a_fragment_compiles_with_plain_amsmath(tmp_path: Path, pdflatex: str) -> None:
    fragment = derived("scores_3_3").latex()
    assert r"\documentclass" not in fragment
    page = tmp_path / "page.tex"
    page.write_text(
        "\\documentclass{article}\\usepackage[margin=20mm]{geometry}\\usepackage{amsmath,amssymb,xcolor}\n"
        "\\begin{document}\n" + fragment + "\\end{document}\n",
        "utf-8",
    )
    compiled(pdflatex, page, tmp_path)


def compiled(pdflatex: str, page: Path, folder: Path) -> None:
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "-output-directory", "."]
    done = subprocess.run([*command, str(page)], cwd=folder, capture_output=True, timeout=120)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    assert re.findall(r"Overfull \\hbox.*", log) == []
    assert re.findall(r"LaTeX Warning.*", log) == []


def test_composition_types_are_named_and_not_only_coloured() -> None:
    latex = derived("scores_3_3").latex()
    for name in ("no composition (none)", "Q-composition", "K-composition", "QK-composition"):
        assert latex.count(rf"\text{{{name}") == 1
    for kind, n in (("none", 1), ("Q", 3), ("K", 3), ("QK", 9)):
        assert len(re.findall(rf"\\text{{{kind}}}", latex)) == n
    assert r"\textcolor" in latex


@pytest.mark.parametrize("name", CASES)
def test_every_term_and_every_check_is_printed(name: str) -> None:
    derivation = derived(name)
    text, latex = derivation.text(), derivation.latex()
    flat = re.sub(r"\s+(?:\[[A-Zn]\w*\])?\s*", " ", text)
    for term in derivation.json()["families" if derivation.form == "generic" else "terms"]:
        assert re.sub(r"\s+", " ", term["text"]) in flat or len(term["text"]) > 60
        assert term["latex"] in latex or len(term["latex"]) > 250
    assert text.count("Checked: ") == latex.count("Checked: ") == len(derivation.steps)
    assert text.count("Every step was checked") == latex.count("Every step was checked") == 1
    assert "2147483647" in text


def test_printing_is_deterministic() -> None:
    command = [sys.executable, "-c", (
        "import symcircuits as sc; "
        "print(sc.derive(sc.attention_only((2, 2), biases=True), 'scores:L1H0', form='generic').latex(standalone=True))"
    )]  # fmt: skip
    pages = {
        subprocess.run(
            command, cwd=ROOT, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1


# -------------------------------------------------------------------------------------------- derivations/*.py


def test_there_are_derivations() -> None:
    names = {path.stem for path in RESULTS}
    assert {"logits_two_layers", "scores_second_layer", "logits_generic", "scores_generic"} <= names
    assert {path.stem for path in (ROOT / "derivations").glob("*.tex")} == names


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_derivation_prints_what_stands_beside_it(path: Path) -> None:
    source = path.read_text("utf-8")
    assert not re.search(r"symcircuits\.\w+ import|from symcircuits|import symcircuits\.", source), "public names only"
    derivation = runpy.run_path(str(path))["derivation"]
    assert derivation.ok
    assert derivation.latex(standalone=True) == path.with_suffix(".tex").read_text("utf-8")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_derivation_compiles(path: Path, tmp_path: Path, pdflatex: str) -> None:
    compiled(pdflatex, path.with_suffix(".tex"), tmp_path)


def test_a_derivation_runs_as_a_program(tmp_path: Path) -> None:
    copy = tmp_path / "logits_generic.py"
    copy.write_text((ROOT / "derivations" / "logits_generic.py").read_text("utf-8"), "utf-8")
    done = subprocess.run(
        [sys.executable, str(copy)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode, done.stdout) == (0, "logits_generic.tex\n"), done.stderr
    beside = ROOT / "derivations" / "logits_generic.tex"
    assert copy.with_suffix(".tex").read_bytes() == beside.read_bytes()


# ------------------------------------------------------------------------------------------------------- json


@pytest.mark.parametrize("name", CASES)
def test_json(name: str) -> None:
    derivation = derived(name)
    found = json.loads(json.dumps(derivation.json()))
    assert found["schema"] == "symcircuits.derivation/1"
    assert found["ok"] is True
    terms = found["families" if derivation.form == "generic" else "terms"]
    for term, entry in zip(derivation.frame.expansion, terms, strict=True):
        assert entry["composition"] == term.composition
        assert entry["order"] == term.order
        if derivation.form == "enumerated":
            assert (entry["label"], entry["text"], entry["latex"]) == (term.label, term.text, term.latex())
        assert entry.get("orders", [term.order]) == list(term.orders)
    assert found["count"] == (None if derivation.form == "generic" else len(terms))
    for step in found["steps"]:
        assert step["check"]["passed"] is True
        assert 0 <= step["check"]["bound"] < 1e-12
        assert all(len(claim["sides"]) >= 2 for claim in step["claims"])
        assert "`" not in step["reason"] + step["check"]["sentence"]


# ------------------------------------------------------------------------------------------------- notebooks


def test_expansions_show_as_latex() -> None:
    small = sc.logits(sc.attention_only((3, 3)))._repr_latex_()
    assert small.startswith("\\begin{align*}")
    assert small.count("\\\\") == 15
    assert small.count(r"\text{V}") == 9
    large = sc.logits(sc.attention_only((12,) * 12))._repr_latex_()
    assert r"\text{23,298,085,122,481 terms}" in large
    assert large.count("\\\\") == 10
    assert r"\text{from }" in sc.scores(sc.attention_only((3, 3)), "L1H0").where(composition="K")._repr_latex_()
    empty = sc.logits(sc.attention_only((1,))).order(5)._repr_latex_()
    assert empty.startswith(r"$\displaystyle")
    assert r"\textcolor" not in small + large


def test_derivations_show_as_latex() -> None:
    shown = derived("scores_generic")._repr_latex_()
    assert shown.startswith("\\begin{align*}")
    assert shown.count("\\begin") == shown.count("\\end") == 1
    assert r"\mathbf{N}" not in shown
    assert "Step 11" in shown


# ------------------------------------------------------------------------------------------------------- files


def test_a_derivation_is_saved_by_suffix(tmp_path: Path) -> None:
    derivation = derived("zero_layers")
    assert derivation.save(tmp_path / "a.tex").read_text("utf-8") == derivation.latex(standalone=True)
    assert derivation.save(str(tmp_path / "a.txt")).read_text("utf-8") == derivation.text()
    assert json.loads(derivation.save(tmp_path / "a.json").read_text("utf-8")) == derivation.json()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.tex", "a.txt"]
    with pytest.raises(ValueError, match=r"suffix is \.tex, \.txt or \.json"):
        derivation.save(tmp_path / "a.pdf")


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot write .*missing"):
        derived("zero_layers").save(tmp_path / "missing" / "a.tex")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"cannot write .*a\.txt: No space left"):
        derived("zero_layers").save(path)
    assert path.read_text("utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


# ------------------------------------------------------------------------------------------------------ layout


def test_lines_are_broken_before_terms_then_between_factors() -> None:
    parts = [Piece("aaa"), Piece("bbb", 1, " @ "), Piece("+ ccc", 0, " "), Piece("ddd", 1, " @ ")]
    assert [joined(line) for line in broken(parts, 40, len)] == ["aaa @ bbb + ccc @ ddd"]
    assert [joined(line) for line in broken(parts, 14, len)] == ["aaa @ bbb", "+ ccc @ ddd"]
    assert [joined(line) for line in broken(parts, 6, len)] == ["aaa", "bbb", "+ ccc", "ddd"]
    assert broken(parts[:1], 1, len) == [parts[:1]]


def test_expressions_are_grouped_as_they_are_evaluated() -> None:
    word = sc.logits(sc.attention_only((1,)))[1].word
    two = Sum((Number(1), Number(2)))
    assert expr_text(Product((two, two, Number(3)))) == "(1 + 2)^2 * 3"
    assert expr_text(Sum((Number(5), Number(-2)))) == "5 - 2"
    assert expr_text(Tensor((Identity(), Identity()))) == "Id (x) Id"
    assert expr_text(SumOver("h_1", 0, Sum((word, word)))).startswith("sum[h_1=1..H_1] (A[L0H0] @ X0")
    assert expr_latex(Sum(())) == "0"
    assert expr_text(Family(word, "none", Number(1))) == word.text


def test_widths_are_about_those_of_tex() -> None:
    # measured with TeX, in em of 10 pt
    assert latex_width(r"A^{\mathrm{L0H1}}") == pytest.approx(2.68, rel=0.1)
    assert latex_width(r"s^{\mathrm{L1H0}}") == pytest.approx(2.40, rel=0.1)
    assert latex_width(r"X_0\,W_U^{\mathsf{T}}") == pytest.approx(3.09, rel=0.1)
    assert latex_width(r"A^{g}\,A^{h} \otimes W_{OV}^{g}\,W_{OV}^{h}") == pytest.approx(8.58, rel=0.1)
    assert latex_width(r"\bigl(1 + H_{1}\bigr)\,\bigl(1 + H_{2}\bigr)") == pytest.approx(8.0, rel=0.1)


def test_prose_escapes_what_is_no_formula() -> None:
    assert prose(r"100% of a_b & \x{} # $1 ~ ^") == (r"100\% of a\_b \& \textbackslash{}x\{\} \# \$1 \~{} \^{}")
    assert prose("`A X W_OV^T` of “h”") == r"$A\,X\,W_{OV}^{\mathsf{T}}$ of ``h''"
