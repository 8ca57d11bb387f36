"""Formats of derivations: a file and a row each; ``save``, the command line and the book know them by the row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import symcircuits as sc
from symcircuits.cli import main as cli
from symcircuits.core.seam import HIGHER, function_called
from symcircuits.derivation.printing.formats import FORMATS, Format

DERIVATION = sc.derive(sc.attention_only((1,)), symbols={"W_OV": "é"})


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_to_files_and_by_the_command_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = FORMATS[name]
    path = DERIVATION.save(tmp_path / f"page{chosen.suffix}")
    assert path.read_text("utf-8") == chosen.written(DERIVATION)
    words = ["derive", "--heads", "1", "--symbol", "W_OV=é", "--format", name]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == chosen.printed(DERIVATION) + "\n"
    assert (cli.main([*words, "--standalone"]) == 0) == chosen.standalone
    assert not chosen.standalone or capsys.readouterr().out == chosen.written(DERIVATION) + "\n"
    for function in (chosen.derivation, chosen.file, chosen.expansion, chosen.book):
        assert not function or callable(function_called(None, function))


def test_formats_are_what_the_methods_give() -> None:
    assert FORMATS["latex"].printed(DERIVATION) == DERIVATION.latex()
    assert FORMATS["latex"].written(DERIVATION) == DERIVATION.latex(standalone=True)
    assert FORMATS["text"].printed(DERIVATION) == FORMATS["text"].written(DERIVATION) == DERIVATION.text()
    for text in (FORMATS["json"].printed(DERIVATION), FORMATS["json"].written(DERIVATION)):
        assert json.loads(text) == DERIVATION.json()
    assert FORMATS["json"].printed(DERIVATION).isascii()
    assert "é" in FORMATS["json"].written(DERIVATION)
    expansion = sc.logits(sc.attention_only((1,)))
    assert FORMATS["latex"].displayed(expansion) == expansion.latex()
    assert FORMATS["latex"].expansion == HIGHER["Expansion.latex"]
    assert len({chosen.suffix for chosen in FORMATS.values()}) == len(FORMATS)


def test_a_format_is_one_file_and_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ModuleType("symcircuits.derivation.printing.outline")  # a file of the folder printing/
    exec(  # its content
        "def derivation_outline(derivation):\n    return ''.join(f'* {step.kind}\\n' for step in derivation.steps)",
        vars(file),
    )
    monkeypatch.setitem(sys.modules, file.__name__, file)
    row = Format(suffix=".outline", derivation="derivation.printing.outline.derivation_outline")
    monkeypatch.setitem(FORMATS, "outline", row)
    outline = "* definition\n* definition\n* definition\n* substitution\n"
    assert DERIVATION.save(tmp_path / "page.outline").read_text("utf-8").startswith(outline)
    assert cli.main(["derive", "--heads", "1", "--format", "outline"]) == 0
    assert capsys.readouterr().out.startswith(outline)
    with pytest.raises(SystemExit):
        cli.main(["derive", "--help"])
    assert "{latex,text,json,coq,lean,outline}" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"page\.pdf: the suffix is \.tex, \.txt, \.json, \.v, \.lean or \.outline$"):
        DERIVATION.save(tmp_path / "page.pdf")
    with pytest.raises(ValueError, match=r"a book cannot be written in the format \.outline"):
        row.bound("A book", {})
    with pytest.raises(ValueError, match=r"expansions cannot be displayed in the format \.outline"):
        row.displayed(sc.logits(sc.attention_only((1,))))
