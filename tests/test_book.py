"""The book of all results, its index, and that both are of what stands in derivations/."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made import everything

from symcircuits.derivation import book
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.derive import theorem, theorems
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.printing.widths import latex_width
from symcircuits.derivation.results.every import FAMILIES, entries, registered
from symcircuits.derivation.results.registry import CHAPTERS, Entry, expansion, result

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "derivations"
NAMES = [entry.name for entry in entries()]


OTHERS = {"recheck", "recheck_model", "recheck_exact", "prove"}  # the second evaluator, and what asks Coq


@pytest.fixture
def derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = everything()
    listed = [(entry, made[entry.name]) for entry in entries()]
    monkeypatch.setattr(book, "derivations", lambda: iter(listed))


def test_the_book_has_every_derivation_and_every_theorem() -> None:
    assert len(set(NAMES)) == len(NAMES)
    scripts = {path.stem for path in FOLDER.glob("*.py")} - OTHERS
    assert set(NAMES) == scripts == {path.stem for path in FOLDER.glob("*.tex")}
    assert set(theorems()) <= set(NAMES)
    headings = [entry.heading for entry in entries()]
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_book_derives_stands_in_the_folder(name: str) -> None:
    derivation = everything()[name]
    assert derivation.ok
    assert derivation.latex(standalone=True) == (FOLDER / f"{name}.tex").read_text("utf-8")
    source = (FOLDER / f"{name}.py").read_text("utf-8")
    assert source == book.script(next(entry for entry in entries() if entry.name == name))
    assert f"{name}.tex beside this file" in source
    assert ("sc.theorem(" in source) == (name in theorems())


@pytest.mark.parametrize("name", theorems())
def test_results_are_printed_in_every_format(name: str) -> None:
    derivation = everything()[name]
    text = derivation.text()
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Checked: ") == len(derivation.steps)
    assert derivation.latex().count("Every equation was checked by machine: ") == 1
    found = json.loads(json.dumps(derivation.json()))
    assert (found["result"], found["statement"], found["ok"]) == (name, derivation.statement, True)
    relations = {c.get("relation", "=") for s in found["steps"] for c in s["claims"]}
    assert relations == {c.relation for s in derivation.steps for c in s.claims}
    assert derivation._repr_html_().count("<small>Checked: ") == len(derivation.steps)
    assert "`" not in found["statement"] + "".join(s["reason"] for s in found["steps"])


def test_inequalities_are_printed_as_such() -> None:
    derivation = theorem("basis_freedom")
    assert "!= (T @ W_E).T" in derivation.text()
    assert r"\neq" in derivation.latex()
    assert r"\neq" in derivation._repr_html_()
    assert r"\le d_{\mathrm{head}}" in theorem("virtual_heads").latex()


def test_small_matrices_are_as_wide_as_they_are() -> None:
    """Widths in em: two columns of digits, and fractions, as pdflatex sets them (about 2.8 and 4)."""
    assert latex_width(r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}") == pytest.approx(3.5, abs=0.8)
    assert latex_width(r"\begin{pmatrix} \frac{1}{1 + e} & 0 \\ 0 & 1 \end{pmatrix}") < 8


# ------------------------------------------------------------------------------------------------------ the index
def test_the_index_is_of_the_same_objects(derived_once: None) -> None:
    written = (FOLDER / "README.md").read_text("utf-8")
    assert written == book.index()
    links = re.findall(r"\]\(([^)]+)\)", written)
    assert len(links) == 2 * len(NAMES)
    assert all((FOLDER / link).is_file() for link in links)
    rows = [line for line in written.splitlines() if line.startswith("| [")]
    assert len(rows) == len(NAMES)
    assert all(line.count(" | ") == 3 for line in rows)


def test_the_index_says_a_bound_that_holds() -> None:
    assert all(step.check.bound < 1e-12 for d in everything().values() for step in d.steps)


def held_to_the_folder(made: Path) -> None:
    written = sorted(path.name for path in made.iterdir())
    assert written == sorted(path.name for path in FOLDER.iterdir() if path.is_file() and path.stem not in OTHERS)
    assert all((made / name).read_bytes() == (FOLDER / name).read_bytes() for name in written)


def test_the_index_and_all_files_are_written(tmp_path: Path, derived_once: None) -> None:
    assert book.write_files(tmp_path) == tmp_path / "README.md"
    held_to_the_folder(tmp_path)


@pytest.mark.slow
def test_one_command_writes_the_index_and_all_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "symcircuits.derivation.book", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    held_to_the_folder(tmp_path)


# ----------------------------------------------------------------------------------------------- the list of entries
def test_entries_stand_in_the_order_of_chapters_and_files() -> None:
    chapters = [entry.chapter for entry in entries()]
    assert list(dict.fromkeys(chapters)) == list(CHAPTERS)
    assert chapters == sorted(chapters, key=CHAPTERS.index)
    for family in FAMILIES:
        named = {name: value.name for name, value in vars(family).items() if isinstance(value, Entry)}
        assert named
        assert all(name == own for name, own in named.items())
    assert all(entry.summary.endswith(".") and "\n" not in entry.summary for entry in entries())


@pytest.mark.parametrize("chapter", ["Heads", "Interventions"])
@pytest.mark.sampled(1)
def test_a_new_derivation_is_one_function_under_the_decorator(
    chapter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = everything()

    @result("novelty", "Something new", "The stream starts as the embedded tokens.", "Notation", chapter=chapter)
    def novelty(frame: Frame) -> Iterator[Draft]:
        x = frame.terms[0][1]
        yield Draft("identity", (Claim((x, x)),), "It is what it is.")

    monkeypatch.setattr(FAMILIES[-1], "novelty", novelty, raising=False)  # as if it stood in that file
    assert "novelty" in theorems()
    last = max(i for i, entry in enumerate(entries()) if entry.chapter == chapter)
    assert entries()[last] is novelty
    assert novelty.heading == "Something new"
    listed = [(entry, made.get(entry.name) or book.derived(entry)) for entry in entries()]
    monkeypatch.setattr(book, "derivations", lambda: iter(listed))
    rows = [line for line in book.index().splitlines() if line.startswith("| [")]
    assert "[novelty](novelty.py) ([tex](novelty.tex)) | The stream starts" in rows[last]
    assert "1 claim in 1 step: 1 mod p" in rows[last]
    headings = re.findall(r"\\subsection{(.*?)}\\label", book.book())
    assert headings[last] == "Something new"
    book.write_files(tmp_path)
    assert (tmp_path / "novelty.py").read_text("utf-8") == book.script(novelty)
    assert "Something new" in (tmp_path / "novelty.tex").read_text("utf-8")


def test_a_new_path_expansion_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = expansion("novelty", "Three heads", "The logits.", chapter="Two layers", heads=(1, 2), biases=["b_O"])
    monkeypatch.setattr(FAMILIES[0], "novelty", row, raising=False)
    assert row in entries()
    assert "novelty" not in theorems()
    assert book.derived(row).ok
    assert 'arch = sc.attention_only(heads=(1, 2), biases=["b_O"])' in book.script(row)


def test_an_unknown_chapter_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unknown chapter 'Tails': choose one of 'The tensor product', 'Zero and one layer', 'Heads'"
    ):
        expansion("novelty", "", "", chapter="Tails", heads=())


# ------------------------------------------------------------------------------------------------------- the book
def test_the_book_compiles_with_a_table_of_contents(tmp_path: Path, pdflatex: str, derived_once: None) -> None:
    made = book.write_book(tmp_path)
    assert made == tmp_path / "book.pdf"
    assert made.read_bytes().startswith(b"%PDF")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["book.pdf", "book.tex"]
    source = (tmp_path / "book.tex").read_text("utf-8")
    assert source.count(r"\tableofcontents") == 1
    assert source.count(r"\section{") == len(CHAPTERS)
    assert source.count(r"\subsection{") == source.count(r"\named{Proof}") == source.count(r"\checked{") == len(NAMES)
    for tool, command, wanted in (
        (
            "pdftotext",
            ["-l", "1", "-layout", str(made), "-"],
            r"(?s)symcircuits \d+\.\d+\.\d+, \d{4}-.*Basis freedom[ .]+\d+",
        ),
        ("pdfinfo", [str(made)], r"(?s)Title: +The algebra.*Author: +The symcircuits developers"),
        ("pdffonts", [str(made)], r"Type 1 "),
    ):
        if shutil.which(tool):
            said = subprocess.run([tool, *command], capture_output=True, text=True, check=True).stdout
            assert re.search(wanted, said)
            assert "Type 3" not in said
            assert int((re.search(r"Pages: +(\d+)", said) or ["", "80"])[1]) <= 80


def test_a_pdf_is_the_same_wherever_and_whenever_it_is_made(
    tmp_path: Path, pdflatex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "derivations", lambda: iter([(registered("copying"), theorem("copying"))]))
    made = []
    monkeypatch.setattr(book, "_PASSES", 2)
    for name, epoch in (("one", "86400"), ("two", "86400"), ("three", "172800")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        (tmp_path / name).mkdir()
        made.append(book.write_book(tmp_path / name).read_bytes())
    assert made[0] == made[1] != made[2]
    assert ", 1970-01-02}" in (tmp_path / "one" / "book.tex").read_text("utf-8")
    assert ", 1970-01-03}" in (tmp_path / "three" / "book.tex").read_text("utf-8")


def test_without_pdflatex_the_source_is_written(
    tmp_path: Path, derived_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"book\.tex is written, but not its PDF: pdflatex was not found.*apt"):
        book.write_book(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["book.tex"]


WIDE = r"\documentclass{article}\begin{document}\hbox to\textwidth{" + "\\rule{2\\textwidth}{1pt}}\\end{document}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            r"\documentclass{article}\begin{document}See \ref{nothing}.\end{document}",
            r"without what it cites.*Reference",
        ),
        (WIDE, r"1 line of .*too wide.*Overfull"),
        (r"\documentclass{article}\begin{document}\wrong", "pdflatex failed"),
    ],
)
def test_a_bad_page_is_an_error(
    tmp_path: Path, pdflatex: str, source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "book", lambda *_: source)
    with pytest.raises(book.BookError, match=message):
        book.write_book(tmp_path)
    assert not (tmp_path / "book.pdf").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> str:
        raise AssertionError("nothing is derived before the folder is looked at")

    monkeypatch.setattr(book, "book", never)
    with pytest.raises(OSError, match="does not exist"):
        book.write_book(tmp_path / "missing")
