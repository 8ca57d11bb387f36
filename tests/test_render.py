"""What derivations print: golden files, pages that compile without an overfull line, files written whole."""

from __future__ import annotations

import html
import io
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.cli.main import main
from symcircuits.core import words as algebra
from symcircuits.core.notation import Notation
from symcircuits.core.words import Word
from symcircuits.derivation.nodes import Apply, Family, Identity, Number, Product, Sum, SumOver, Tensor, Transposed
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.layout import Piece, broken, joined
from symcircuits.derivation.printing.prose import plain, prose
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.printing.widths import latex_width
from symcircuits.model import frozen, matrices_of, random_model

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
RESULTS = sorted(p for p in (ROOT / "derivations").glob("*.py") if p.stem[:7] not in ("recheck", "prove"))

# name: heads, target, form, other options. A missing golden file fails; SYMCIRCUITS_GOLDEN=1 writes them all.
CASES: dict[str, tuple[tuple[int, ...], str, str, dict[str, Any]]] = {
    "logits_3_3": ((3, 3), "logits", "enumerated", {}),
    "scores_3_3": ((3, 3), "scores:L1H0", "enumerated", {}),
    "logits_generic": ((3, 3), "logits", "generic", {}),
    "scores_generic": ((3, 3), "scores:L1H0", "generic", {}),
    "stream_biases": ((1, 2), "stream", "enumerated", {"biases": True}),
    "logits_biases_generic": ((2, 2), "logits", "generic", {"biases": True, "positions": "standard"}),
    "scores_shortformer_generic": ((2, 2), "scores:L1H0", "generic", {"biases": ["b_V"], "positions": "shortformer"}),
    "scores_shortformer": ((1, 1), "scores:L1H0", "enumerated", {"biases": True, "positions": "shortformer"}),
    "zero_layers": ((), "logits", "enumerated", {}),
    "logits_layer_norm": ((2,), "logits", "enumerated", {"norm": "LN"}),
    "scores_layer_norm": ((1, 1), "scores:L1H0", "enumerated", {"norm": "LN"}),
    "logits_mlps_rms_norm": ((2, 2), "logits", "generic", {"norm": "RMS", "mlps": True, "biases": ["b_O"]}),
    "logits_groups": ((4,), "logits", "enumerated", {"groups": (2,), "biases": ["b_V"]}),
    "logits_multipliers": ((1, 1), "logits", "enumerated", {"biases": ["b_O"], "mlps": [0], "multipliers": True}),
    "scores_rotary": ((1, 1), "scores:L1H0", "enumerated", {"positions": "rotary", "biases": ["b_Q"]}),
    "scores_alibi_generic": ((2, 2), "scores:L1H0", "generic", {"positions": "alibi"}),
    "scores_normed_queries": ((1, 1), "scores:L1H0", "enumerated", {"qk_norm": True, "groups": (1, 1)}),
    "scores_groups_generic": ((4, 4), "scores:L1H2", "generic", {"groups": (2, 2), "biases": ["b_V", "b_K"]}),
}


@cache
def derived(name: str) -> sc.derivation.Derivation:  # type: ignore[name-defined]
    heads, target, form, options = CASES[name]
    return sc.derive(sc.transformer(heads, **options), target, form=form)


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
        ((2, 2), "scores:L1H0", "generic", {"norm": "LN", "biases": True, "positions": "shortformer"}),
        ((3, 3), "scores:L1H0", "enumerated", {"norm": "LN", "mlps": True, "positions": "standard"}),
        ((4, 2, 2), "logits", "generic", {"norm": "RMS", "gains": False, "mlps": True, "groups": (2, 1, 1)}),
        ((99,), "logits", "enumerated", {}),
    ],
)
@pytest.mark.sampled(5)
def test_documents_compile_without_overfull_lines(
    tmp_path: Path, pdflatex: str, heads: tuple[int, ...], target: str, form: str, options: dict[str, Any]
) -> None:
    derivation = sc.derive(sc.transformer(heads, **options), target, form=form)
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


def without_numbers(latex: str) -> str:
    """With labels in place of the numbers as which they are printed."""
    return re.sub(r"\\labelled\{(\w+)\}\{(?:[^{}]|\{\w*\})*\}", r"\\mathrm{\1}", latex)


@pytest.mark.parametrize("name", CASES)
def test_every_term_and_every_check_is_printed(name: str) -> None:
    derivation = derived(name)
    text, latex = derivation.text(), without_numbers(derivation.latex())
    flat = re.sub(r"\s+(?:\[[A-Zn]\w*\])?\s*", " ", text)
    for term in derivation.json()["families" if derivation.form == "generic" else "terms"]:
        assert re.sub(r"\s+", " ", term["text"]) in flat or len(term["text"]) > 60
        assert term["latex"] in latex or len(term["latex"]) > 250
    assert text.count("Checked: ") == len(derivation.steps)
    assert text.count("Every step was checked") == latex.count("Every equation was checked by machine: ") == 1
    assert "Checked: " not in latex
    assert not re.search(r"Seal|Summary", latex)
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
@pytest.mark.sampled(8)
def test_a_derivation_prints_what_stands_beside_it(path: Path) -> None:
    source = path.read_text("utf-8")
    assert not re.search(r"symcircuits\.\w+ import|from symcircuits|import symcircuits\.", source), "public names only"
    derivation = runpy.run_path(str(path))["derivation"]
    assert derivation.ok
    assert derivation.latex(standalone=True) == path.with_suffix(".tex").read_text("utf-8")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
@pytest.mark.sampled(5)
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
    assert small.count("\\\\") == 16  # a row a term, and what they stand in
    assert (
        r"&\text{In the row convention, matrices in the paper's shapes. Held fixed: the attention patterns.}" in small
    )
    assert small.count(r"\text{V}") == 9
    large = sc.logits(sc.attention_only((12,) * 12))._repr_latex_()
    assert r"\text{23,298,085,122,481 terms}" in large
    assert large.count("\\\\") == 11
    assert r"\text{from }" in sc.scores(sc.attention_only((3, 3)), "L1H0").where(composition="K")._repr_latex_()
    empty = sc.logits(sc.attention_only((1,))).order(5)._repr_latex_()
    assert empty.startswith(r"$\displaystyle")
    assert r"\textcolor" not in small + large


def test_another_head_of_the_layer_of_the_scores_keeps_its_label() -> None:
    latex = sc.derive(sc.attention_only((1, 2), biases=True), "scores:L1H0", form="generic").latex()
    assert r"b_K^{\labelled{L1H0}{h_{2}}}" in latex
    assert r"b_K^{\mathrm{L1H1}}" in latex
    assert latex.count(r"\providecommand{\labelled}[2]{#2}") == 1
    assert r"\labelled" not in sc.derive(sc.attention_only((1, 2)), "scores:L1H0").latex()


def test_a_derivation_shows_as_its_document() -> None:
    """Reasons, formulas and checks, those of the LaTeX; each display in a box that scrolls."""
    derivation = derived("scores_generic")
    shown, document = derivation._repr_html_(), derivation.latex()
    displays = re.findall(r"\\begin\{align.*?\\end\{align\w*\*\}", document, re.DOTALL)
    boxes = re.findall(r'<div style="overflow-x: auto; max-width: 100%">(.*?)</div>', shown, re.DOTALL)
    assert html.unescape("\n".join(boxes)) == re.sub(r"\\labelled\{\w+\}", "", "\n".join(displays))
    assert "h_{2}" in boxes[-1]
    assert "L1H0" not in "".join(boxes)
    assert shown.count("Checked: ") == len(boxes) == len(derivation.steps)
    assert r"\textcolor" in shown
    assert "<script" not in sc.derive(sc.attention_only((1,)), symbols={"A": "<script>"})._repr_html_()


# ------------------------------------------------------------------------------------------------------- files


def test_a_derivation_is_saved_by_suffix(tmp_path: Path) -> None:
    derivation = derived("zero_layers")
    assert derivation.save(tmp_path / "a.tex").read_text("utf-8") == derivation.latex(standalone=True)
    assert derivation.save(str(tmp_path / "a.txt")).read_text("utf-8") == derivation.text()
    assert json.loads(derivation.save(tmp_path / "a.json").read_text("utf-8")) == derivation.json()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.tex", "a.txt"]
    with pytest.raises(ValueError, match=r"suffix is \.tex, \.txt, \.json, \.v or \.lean"):
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
    assert prose(r"100% of a_b & \x{} # $1 ~ ^") == (
        r"100\% of a\_b \& \textbackslash{}x\{\} \# \$1 \textasciitilde{} \textasciicircum{}"
    )
    assert prose('`A X W_OV^T` of "h" ("g")') == r"$A\,X\,W_{OV}^{\mathsf{T}}$ of ``h'' (``g'')"
    assert prose("`h_1 = 1`, `b_V[h_1]`, `b_O[L0]`") == r"$h_1 = 1$, $b_V^{h_{1}}$, $b_O^{\mathrm{L0}}$"
    assert prose("`A 1 = 1`, `+ 1 b_V^T`") == r"$A\,\mathbf{1} = \mathbf{1}$, $+ \mathbf{1}\,b_V^{\mathsf{T}}$"


@pytest.mark.parametrize(
    ("formula", "theirs", "own", "latex"),
    [
        ("A X W_OV^T", "A X OV", "P X M^T", r"P\,X\,M^{\mathsf{T}}"),
        ("W_OV = W_O W_V", "OV = W_V W_O", "M = W_O W_V", r"M = W_O\,W_V"),
        ("W_QK = W_Q^T W_K", "QK = W_Q W_K^T", "W_QK = W_Q^T W_K", r"W_{QK} = W_Q^{\mathsf{T}} W_K"),
        ("W_U = W_E^T", "W_U^T = W_E", "W_U = W_E^T", r"W_U = W_E^{\mathsf{T}}"),
        ("W_E^T W_QK W_E", "W_E QK W_E^T", "W_E^T W_QK W_E", r"W_E^{\mathsf{T}} W_{QK} W_E"),
        ("Id + sum A (x) W_OV", "Id + sum A (x) OV", "Id + sum P (x) M", r"\mathrm{Id} + \sum  P \otimes  M"),
        ("s (X W_Q^T + 1 b_Q^T)", "s (X W_Q + 1 b_Q)", "sigma (X W_Q^T + u b_Q^T)",
         r"{\sigma} (X\,W_Q^{\mathsf{T}} + u\,b_Q^{\mathsf{T}})"),
        ("(A_q (x) W)(x, y) = A_q x W^T", "(A_q (x) W)(x, y) = A_q x W^T", "(P[q] (x) W)(x, y) = P[q] x W^T",
         r"(P^{q} \otimes  W)(x, y) = P^{q} x\,W^{\mathsf{T}}"),
        ("A_k^T", "A_k^T", "P[k]^T", r"P^{k\,\mathsf{T}}"),
        ("b_V[h_1]", "b_V[h_1]", "b_V[h_1]", r"b_V^{h_{1}}"),
        ("h_1 = 1", "h_1 = 1", "h_1 = 1", "h_1 = 1"),
        ("W_Q T^-1", "W_Q^T T^-1", "W_Q T^-1", r"W_Q\,T^{-1}"),
        ("A 1 = 1", "A 1 = 1", "P u = u", r"P\,u = u"),
    ],
)  # fmt: skip
def test_formulas_of_sentences_in_a_notation(formula: str, theirs: str, own: str, latex: str) -> None:
    names = Notation("row", {"A": "P", "W_OV": "M", "scale": "sigma", "ones": "u"})
    assert plain(f"`{formula}`") == formula
    assert plain(f"so `{formula}` holds", Notation("transformerlens")) == f"so {theirs} holds"
    assert plain(f"`{formula}`", names) == own
    assert prose(f"`{formula}`", names) == f"${latex}$"


def test_names_in_sentences_are_text() -> None:
    nasty = Notation("row", {"A": "`$x_1%", "W_OV": r"\input{/etc/passwd}"})
    assert plain("maps `X` to `A X W_OV^T`, `A`", nasty) == (r'maps X to "`$x_1%" X "\\input{/etc/passwd}"^T, "`$x_1%"')
    shown = prose("`A X W_OV^T`", nasty)
    name = r"{\text{\textbackslash{}input\{/etc/passwd\}}}"
    assert shown == r"${\text{\`{}\$x\_1\%}}\,X\," + name + r"^{\mathsf{T}}$"


# --------------------------------------------------------------------- what is printed, read and computed again


Env = dict[str, str]  # index -> label of the head it stands for
Reading = Callable[[Env], Any]  # a matrix, a number, or a map of matrices


@dataclass(frozen=True)
class Map:
    """A map of one or two matrices; ``Id`` is one, and as a slot of a tensor the identity matrix."""

    act: Callable[..., Any]

    def __add__(self, other: Map) -> Map:
        return Map(lambda *x: self.act(*x) + other.act(*x))

    def __rmul__(self, number: float) -> Map:
        return Map(lambda *x: number * self.act(*x))


def tensor(slots: list[Any], right: bool) -> Map:
    """``X -> A X W^T`` (``A X W`` where weights act from the right), or ``(x, y) -> A_q x W y^T A_k^T``."""
    a, *rest = ((lambda x: x) if isinstance(s, Map) else (lambda x, s=s: s @ x) for s in slots)
    if len(rest) == 1:
        w = slots[1]
        return Map(lambda x: a(x) @ w) if right and not isinstance(w, Map) else Map(lambda x: rest[0](a(x).T).T)
    k, w = rest
    return Map(lambda x, y: a(x) @ w(k(y).T))


def juxtaposed(f: Any, x: Any) -> Any:
    """A map applied to what stands after it, or two maps composed."""
    assert isinstance(f, Map), "only a map is written before its argument without a sign"
    return Map(lambda *y: f.act(x.act(*y))) if isinstance(x, Map) else f.act(*x) if isinstance(x, tuple) else f.act(x)


def multiplied(a: Any, b: Any, sign: str) -> Any:
    return a * b if sign == "*" else a @ b


class Reader:
    """Reads text notation by itself and computes it on the arrays of a real run.

    ``tight`` says whether a map binds its argument more tightly than ``@`` does: what is printed must mean the
    same either way, so that no reader can take it for something else. ``right``: the weights are TransformerLens's.
    """

    TOKEN = re.compile(r"\s*(sum\[\w+=1\.\.H_\d+\]|\(x\)|\.T|[-+@*(),]|[A-Za-z]\w*(?:\[(?:\w+|G\(\w+\))\])?)")

    def __init__(self, run: Any, tight: bool, right: bool = False) -> None:
        self.arch, self.arrays, self.tight, self.right = run.model.architecture, matrices_of(run), tight, right
        self.frozen = frozen(self.arch, self.arrays, Floats())
        self.weights = run.model.weights
        if right:
            self.arrays = {name: a.T if name[:2] in ("W_", "b_") else a for name, a in self.arrays.items()}

    def read(self, text: str) -> Reading:
        found, at = [], 0
        while at < len(text.rstrip()):
            match = self.TOKEN.match(text, at)
            assert match, f"cannot read {text[at:]!r}"
            found.append(match[1])
            at = match.end()
        self.tokens = found
        reading = self.total()
        assert not self.tokens, f"left over: {self.tokens}"
        return reading

    def taken(self, *tokens: str) -> bool:
        if self.tokens and self.tokens[0] in tokens:
            self.tokens.pop(0)
            return True
        return False

    def total(self) -> Reading:
        terms = [self.term()]
        while self.taken("+"):
            terms.append(self.term())
        return lambda env: reduce(lambda a, b: a + b, (t(env) for t in terms))

    def term(self) -> Reading:
        if self.tokens[0].startswith("sum["):
            index, layer = re.fullmatch(r"sum\[(\w+)=1\.\.H_(\d+)\]", self.tokens.pop(0)).groups()  # type: ignore[union-attr]
            body = self.term()
            labels = [h.label for h in self.arch.layer_heads(int(layer) - 1)]
            return lambda env: reduce(lambda a, b: a + b, (body({**env, index: label}) for label in labels))
        slots = [self.product()]
        while self.taken("(x)"):
            slots.append(self.product())
        return slots[0] if len(slots) == 1 else lambda env: tensor([s(env) for s in slots], self.right)

    def product(self) -> Reading:
        parts, signs = [self.factor()], []
        while self.tokens and self.tokens[0] not in ("+", ")", ",", "(x)"):
            signs.append(self.tokens.pop(0) if self.tokens[0] in ("@", "*") else "")
            parts.append(self.term() if self.tokens[0].startswith("sum[") else self.factor())
        return lambda env: self.combined([p(env) for p in parts], signs)

    def combined(self, values: list[Any], signs: list[str]) -> Any:
        """One kind of joint first, then the other; a map acts on what stands to its right."""
        for applies in (True, False) if self.tight else (False, True):
            done, left = [values[-1]], []
            for value, sign in zip(reversed(values[:-1]), reversed(signs), strict=True):
                if (sign == "") != applies:
                    done.insert(0, value)
                    left.insert(0, sign)
                else:
                    done[0] = juxtaposed(value, done[0]) if applies else multiplied(value, done[0], sign)
            values, signs = done, left
        return values[0]

    def factor(self) -> Reading:
        if self.taken("("):
            inside = [self.total()]
            while self.taken(","):
                inside.append(self.total())
            assert self.taken(")")
            several = len(inside) > 1
            reading: Reading = (lambda env: tuple(x(env) for x in inside)) if several else inside[0]
        else:
            reading = partial(self.named, self.tokens.pop(0))
        return (lambda env: reading(env).T) if self.taken(".T") else reading

    def named(self, name: str, env: Env) -> Any:
        glyph, _, label = name.rstrip("]").partition("[")
        label = self.group(env.get(label[2:-1], label[2:-1])) if label[:2] == "G(" else env.get(label, label)
        get = lambda g: self.arrays[f"{g}_{label}" if label else g]  # noqa: E731
        match glyph:
            case "Id":
                return Map(lambda x: x)
            case "logits":
                return self.frozen.logits
            case "stream":
                return self.frozen.streams[-1]
            case "S":
                return self.frozen.scores[label]
            case "X0":
                return get("t") @ (get("W_E") if self.right else get("W_E").T)
            case "W_OV" if not self.right:
                return get("W_O") @ self.arrays[f"W_V_{self.group(label)}"]
            case "W_QK" if not self.right:
                return get("W_Q").T @ self.arrays[f"W_K_{self.group(label)}"]
            case "OV" if self.right:
                return self.arrays[f"W_V_{self.group(label)}"] @ get("W_O")
            case "QK" if self.right:
                return get("W_Q") @ self.arrays[f"W_K_{self.group(label)}"].T
            case "Y":
                return self.normed(label)
        return self.frozen.streams[int(glyph[1:])] if re.fullmatch(r"X\d+", glyph) else get(glyph)

    def group(self, head: str) -> str:
        return self.arch.key_value(self.arch.head(head))

    def normed(self, label: str) -> Any:
        """What comes out of a norm, from its definition: centred, over the deviation, times the gain, plus the bias."""
        x = self.frozen.streams[-1 if label == "final" else int(label[1:])]
        x = x - x.mean(-1, keepdims=True) if self.arch.norm == "LN" else x
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        x = x * self.weights[f"gain_{label}"] if f"gain_{label}" in self.weights else x
        return x + self.weights[f"b_N_{label}"] if f"b_N_{label}" in self.weights else x


PRINTED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((), {}),
    ((2, 3), {}),
    ((2, 2), {"biases": True, "positions": "standard"}),
    ((1, 2), {"biases": True, "positions": "shortformer"}),
    ((2, 1, 1), {"positions": "shortformer", "scale": False}),
    ((1, 1, 2), {"biases": ["b_K"]}),
    ((2, 1), {"biases": ["b_V"]}),
    ((1, 1), {"biases": ["b_O", "b_U", "b_Q"]}),
    ((2, 2), {"norm": "LN"}),
    ((2, 1), {"norm": "LN", "biases": True, "mlps": True, "positions": "standard"}),
    ((1, 2), {"norm": "RMS", "gains": ["L0", "final"], "positions": "shortformer", "mlps": [0], "parallel": True}),
    ((1, 1), {"norm": "RMS", "gains": False, "positions": "shortformer", "biases": ["b_K", "b_V"]}),
    ((4, 2), {"groups": (2, 1), "biases": True}),
    ((2, 4), {"groups": (1, 2), "norm": "LN", "mlps": True}),
]


@pytest.mark.parametrize("tight", [True, False])
@pytest.mark.parametrize("notation", ["row", "paper", "transformerlens"])
@pytest.mark.parametrize("form", ["enumerated", "generic"])
@pytest.mark.parametrize(("heads", "options"), PRINTED)
@pytest.mark.sampled(12)
def test_what_is_printed_is_the_transformer(
    heads: tuple[int, ...], options: dict[str, Any], form: str, notation: str, tight: bool
) -> None:
    """Every printed equation, read from its text alone, on the weights and patterns of a real run."""
    arch = sc.transformer(heads, **options)
    run = random_model(arch, d_model=6, d_head=3, d_vocab=5).run([3, 1, 4, 1])
    reader = Reader(run, tight, notation == "transformerlens")
    probe = np.random.default_rng(1).standard_normal((4, 6))
    any_head = {"h": "L0H0", "g": "L1H0", "q": "L0H0", "k": "L0H0"}
    last = len(heads) - 1
    for target in ["logits", "stream", *([f"scores:L{last}H0"] if heads else [])]:
        for step in sc.derive(arch, target, form=form, notation=notation).json()["steps"]:
            if step["kind"] == "counting" or (not heads and "any head" in step["reason"]):
                continue
            for claim in step["claims"]:
                values = [reader.read(side["text"])(any_head) for side in claim["sides"]]
                values = [v.act(probe) if isinstance(v, Map) else v for v in values]
                for value in values[1:]:
                    np.testing.assert_allclose(value, values[0], rtol=1e-9, atol=1e-9)


def test_the_reader_sees_what_is_ambiguous() -> None:
    arch = sc.attention_only((1,), biases=True)
    run = random_model(arch, d_model=5, d_head=5, d_vocab=5).run([3, 1, 4, 1, 2])
    text = "(Id (x) W_U) ones @ b_O[L0].T"
    with pytest.raises(ValueError, match="matmul"):
        Reader(run, True).read(text)({})
    good = "(Id (x) W_U) (ones @ b_O[L0].T)"
    values = [Reader(run, tight).read(good)({}) for tight in (True, False)]
    np.testing.assert_allclose(*values)
    other = "(Id (x) W_U) X0 @ (X0).T"
    a, b = (Reader(run, tight).read(other)({}) for tight in (True, False))
    assert abs(a - b).max() > 0.1


LETTER = re.compile(
    r"(s|A|t|P|X_0|D|C|M|m_[EU]|r|R_\{j-i\}|\\Gamma|\\mathbf\{1\}|[Wb]_\{?[A-Z]+\}?)"
    r"(?:\^\{(?:\\mathrm\{(\w+)\}|(\w)_\{(\d+)\}|(G)\((\w)_\{(\d+)\}\))?(?:\\,)?(\\mathsf\{T\})?\})?"
)


def latex_read(latex: str) -> str:
    """The text notation of a term in LaTeX, sums left out, read letter by letter."""
    latex = re.sub(r"\\sum_\{[^=]*=1\}\^\{H_\{\d+\}\}", "", latex)
    left = LETTER.sub("", latex).replace(r"\,", "").strip()
    assert not left, f"cannot read {left!r}"
    out = []
    names = {"s": "scale", r"\mathbf{1}": "ones", "X_0": "X0", r"\Gamma": "gain", "M": "mlp", "R_{j-i}": "R"}
    for glyph, head, letter, layer, group, other, number, turned in LETTER.findall(latex):
        name = names.get(glyph, glyph.replace("{", "").replace("}", ""))
        label = head or (f"{letter}_{layer}" if letter else f"G({other}_{number})" if group else "")
        out.append(name + (f"[{label}]" if label else "") + (".T" if turned else ""))
    numbers = [i for i, letter in enumerate(out) if re.fullmatch(r"scale\[\w+\]|m_[EU]|r\[\w+\]", letter)]
    assert numbers == list(range(len(numbers)))
    return " * ".join([*out[: len(numbers)], " @ ".join(out[len(numbers) :])])


@pytest.mark.parametrize("name", CASES)
def test_latex_says_what_the_text_says(name: str) -> None:
    derivation = derived(name)
    for term in derivation.json()["families" if derivation.form == "generic" else "terms"]:
        assert latex_read(term["latex"]) == re.sub(r"sum\[\w+=1\.\.H_\d+\] ", "", term["text"])


def test_latex_has_the_brackets_of_the_text() -> None:
    x = Word(sc.logits(sc.attention_only((1,)))[0].word.factors[:2])
    op = Tensor((Identity(), Word((algebra.Symbol("W_U", "", x.col, x.col).T,)).T))
    applied = Apply(op, (x,))
    assert expr_text(Product((applied, Transposed(applied)))) == "((Id (x) W_U) X0) @ ((Id (x) W_U) X0).T"
    assert expr_latex(Product((applied, Transposed(applied)))) == (
        r"\bigl(\bigl(\mathrm{Id} \otimes W_U\bigr)\,X_0\bigr)\,\bigl(\bigl(\mathrm{Id} \otimes W_U\bigr)\,X_0\bigr)"
        r"^{\mathsf{T}}"
    )
    assert expr_text(Apply(op, (SumOver("h_1", 0, x),))) == "(Id (x) W_U) (sum[h_1=1..H_1] X0)"
    assert expr_text(Product((SumOver("h_1", 0, op), op))) == "(sum[h_1=1..H_1] Id (x) W_U) (Id (x) W_U)"


# ------------------------------------------------------------------------------------------------- true sentences


@pytest.mark.parametrize(
    ("heads", "options", "target", "form", "said", "unsaid"),
    [
        ((3, 3), {}, "logits", "enumerated", ["every formula is linear in what enters the stream",
            "elementary symmetric polynomial", "A X W_OV^T"], ["X W_QK X^T", "no scale", "a wrong claim that"]),
        ((3, 3), {}, "scores:L1H0", "enumerated", ["the scores are bilinear", "s X W_QK X^T", "a wrong claim passes"],
            ["every formula is linear", "elementary", "head counts listed in the steps"]),
        ((3, 3), {"positions": "shortformer"}, "scores:L1H0", "generic",
            ["s Y W_QK Y^T", "Y = X + P", "before its layer plus the position embedding P",
             "at the head counts listed in the steps, where a claim that is wrong there passes"], ["X W_QK X^T"]),
        ((3, 3), {"scale": False}, "scores:L1H0", "enumerated", ["are X W_QK X^T", "carry no scale"],
            ["The score scale"]),
        ((3, 3), {"positions": "standard"}, "logits", "generic", ["A path starts from one of the sources"],
            ["elementary symmetric polynomial", "Y = X + P", "value bias"]),
        ((6, 6), {"biases": True}, "logits", "enumerated",
            ["A (X W_V^T + 1 b_V^T) W_O^T", "k - 1 for a value bias", "and adds its bias",
             "linear in what enters the stream and in b_U",
             "12 of kind b_V, 2 of kind b_O, 1 of kind b_U"],
            ["elementary symmetric polynomial", "A X W_OV^T"]),
        ((2, 1), {"biases": ["b_V[L0H0]"]}, "logits", "enumerated",
            ["A X W_OV^T, or to A (X W_V^T + 1 b_V^T) W_O^T if it has a value bias"], []),
        ((2, 1), {"biases": ["b_K"]}, "scores:L1H0", "enumerated",
            ["s (X W_Q^T) (X W_K^T + 1 b_K^T)^T", "Terms marked * are the same for every key"], ["b_Q^T"]),
        ((2, 1), {"biases": ["b_K"]}, "scores:L0H0", "enumerated",
            ["Nothing is held fixed", "There is no position embedding, no layer norm and no MLP"],
            ["rows of every pattern", "Held fixed", "a head maps"]),
    ],
)  # fmt: skip
def test_sentences_are_true_of_the_model(
    heads: tuple[int, ...], options: dict[str, Any], target: str, form: str, said: list[str], unsaid: list[str]
) -> None:
    text = " ".join(sc.derive(sc.attention_only(heads, **options), target, form=form).text().split())
    assert [s for s in said if s not in text] == []
    assert [s for s in unsaid if s in text] == []


@pytest.mark.parametrize("name", CASES)
def test_everything_is_printed_in_ascii(name: str) -> None:
    derivation = derived(name)
    assert derivation.text().isascii()
    assert json.dumps(derivation.json(), ensure_ascii=False).isascii()
    assert derivation.latex(standalone=True).isascii()


def test_text_prints_where_the_output_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["derive", "--heads", "2,2", "--form", "generic", "--biases", "--target", "scores:L1H0", "--format"]
    for kind in ("text", "json", "latex"):
        printed = io.BytesIO()
        out = io.TextIOWrapper(printed, encoding="ascii", errors="strict", write_through=True)
        monkeypatch.setattr(sys, "stdout", out)
        assert main([*words, kind]) == 0
        out.flush()
        assert b"Notation" in printed.getvalue()
