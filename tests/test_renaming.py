"""Other names for what is no matrix: results, counts, indices, labels of heads, the mark of a transpose."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made import made
from test_cli import Cli, cli, refused
from test_paper import compiled

import symcircuits as sc
from symcircuits.core.names import HEAD, MARKS, OTHER
from symcircuits.core.symbols import LATEX
from symcircuits.derivation.derive import Derivation

__all__ = ["cli"]  # a fixture
RECHECK = Path(__file__).parents[1] / "derivations" / "recheck.py"
NAMES = {
    "T": "top", "S": "Z", "logits": "ell", "stream": "state", "Id": "I", "H": "n_heads", "N": "n_terms", "h": "w",
    "q": "u", "k": "v", "L0H1": "(1,2)",
}  # fmt: skip
DEFAULTS = {
    "T": r"mathsf\{T\}", "S": r"(?<![A-Za-z{_\\])S\^\{\\mathrm", "logits": r"mathrm\{logits\}", "Id": r"mathrm\{Id\}",
    "H": r"(?<![A-Za-z{])H_", "N": r"(?<![A-Za-z{])N_", "h": r"(?<![A-Za-z\\])h_", "L0H1": r"L\dH\d", "q": r"\bq_\{",
    "k": r"\bk_\{", "stream": r"mathrm\{stream\}",
}  # fmt: skip
SHOWN = {
    "logits": lambda: sc.derive(sc.attention_only((2, 2))),
    "generic": lambda: sc.derive(sc.attention_only((2, 2)), form="generic"),
    "scores": lambda: sc.derive(sc.attention_only((2, 2)), "scores:L1H0"),
    "generic scores": lambda: sc.derive(sc.attention_only((2, 2)), "scores:L1H0", "generic"),
    "features": lambda: sc.derive(
        sc.transformer((2, 2), norm="LN", mlps=True, biases=True, positions="standard"), form="generic"
    ),
}


@pytest.mark.parametrize("notation", ["row", "paper", "transformerlens"])
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.sampled(7)
def test_nothing_keeps_the_name_that_it_had(name: str, notation: str) -> None:
    plain = SHOWN[name]().written(notation).latex()
    found = SHOWN[name]().written(notation, NAMES).latex()
    seen = {key for key, default in DEFAULTS.items() if re.search(default, plain)}
    assert "L0H1" in seen
    assert len(seen) > 3
    assert {key for key, default in DEFAULTS.items() if re.search(default, found)} == set()
    assert (r"\top" in found) == ("T" in seen)
    assert "(1,1)" in found  # L0H0, counted from 1


@pytest.mark.parametrize("notation", ["row", "paper", "transformerlens"])
@pytest.mark.sampled(1)
def test_every_theorem_is_printed_with_other_names(tmp_path: Path, pdflatex: str, notation: str) -> None:
    """And it compiles; a name that the theorem uses itself is refused, and left out here."""
    pages = []
    for name in sc.theorems():
        found = made(name)
        own = dict(NAMES)
        while True:
            try:
                pages.append(found.written(notation, own).latex())
                break
            except ValueError as fault:
                del own[str(fault).partition(" cannot be printed")[0]]  # a KeyError on any other fault
        assert len(own) >= len(NAMES) - 3
    preamble = found.latex(standalone=True).partition("\\begin{document}")[0]
    compiled(pdflatex, preamble + "\\begin{document}\n" + "\n\n".join(pages) + "\\end{document}\n", tmp_path)


def test_text_and_terms_have_the_names_too() -> None:
    found = SHOWN["generic scores"]().written("row", NAMES).text()
    assert "sum[u_1=1..n_heads_1]" in found
    assert "Z[(2,1)]" in found
    assert "L1H0" not in found.replace("L0H1", "")
    term = sc.scores(sc.attention_only((2, 2)), "L1H0").where("K").written("row", {"L0H1": "0.1", "T": "dagger"})[0]
    assert term.latex().endswith(r"X_0^{\dagger}\,A^{\mathrm{0.0}\,\dagger}")
    assert term.text.startswith("scale[1.0] * X0")
    assert term.label == "embed | embed -> L0H0"  # what calls take


@pytest.mark.parametrize("key", NAMES)
def test_one_other_name_is_told(key: str) -> None:
    """A reader of the page is told of it, as is the second evaluator, which then reads no claim and refutes none."""
    page = SHOWN["generic scores"]().written("row", {key: NAMES[key]}).latex()
    assert "Names of symbols: " in page


@pytest.mark.parametrize("names", [{key: name} for key, name in NAMES.items()])
@pytest.mark.sampled(5)
def test_the_second_evaluator_refutes_no_other_name(names: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.tex"
    SHOWN["generic"]().written("row", names).save(page)
    ran = subprocess.run([sys.executable, RECHECK, page], capture_output=True, text=True, timeout=60)
    assert re.search(r"^0 confirmed, 0 refuted, 0 defined, [1-9]\d* not read$", ran.stdout, re.M), ran.stdout


@pytest.mark.parametrize("key", OTHER)
def test_check_refuses_them_in_words(key: str) -> None:
    own = NAMES.get(key, "z")
    said = f"check accepts other names only for matrices: leave out that of {key}, and write it as symcircuits does"
    with pytest.raises(ValueError, match=said):
        sc.check("X0 @ W_U.T", sc.attention_only((2,)), symbols={key: own})
    assert key not in LATEX


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"T": "t^"}, "the mark of a transpose is one of T, top, t, intercal, prime, dagger"),
        ({"h": "x"}, "index h can be called one of a, c, n"),
        ({"h": "ab"}, "index h can be called one of"),
        ({"L0H1": "1"}, "written with the number of its layer, then its own"),
        ({"L0H1": "3.1"}, "written with the number of its layer"),
        ({"L0H1": "0_1"}, "letters, digits and"),
        ({"L0H1": "{0}1"}, "letters, digits and"),
        ({"S": "X_1"}, "it stands for a stream"),
        ({"logits": "W_U"}, "logits cannot be printed as 'W_U': so is W_U"),
        ({"logits": "Z", "W_OV": "Z"}, "cannot be printed as 'Z'"),
        ({"h": "a", "q": "a"}, "q cannot be printed as 'a': so is h"),
        ({"Q": "a"}, "there is no symbol 'Q'"),
        ({"S": 3}, "S: the name of a symbol is a string"),
        ({"L0H1": 3}, "not 3"),
        ({"h": 3}, "not 3"),
    ],
)
def test_names_that_cannot_be(names: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        SHOWN["generic scores"]().written("row", names)


def test_every_mark_compiles(tmp_path: Path, pdflatex: str) -> None:
    pages = [SHOWN["logits"]().written("row", {"T": mark}).latex() for mark in MARKS]
    preamble = SHOWN["logits"]().latex(standalone=True).partition("\\begin{document}")[0]
    compiled(pdflatex, preamble + "\\begin{document}\n" + "\n\n".join(pages) + "\\end{document}\n", tmp_path)
    assert len(set(pages)) == len(MARKS)


def test_the_command_line(cli: Cli) -> None:
    words = ["derive", "--heads", "2,2", "--for", "paper", "--symbol", "T=top", "--symbol", "L0H1=1.2"]
    found = cli(*words)
    assert found.code == 0
    assert found.out.strip() == sc.derive(sc.attention_only((2, 2)), symbols={"T": "top", HEAD: "1.2"}).paper().strip()
    shown = cli("check", "X0 @ W_U.T", "--heads", "2", "--symbol", "S=Z")
    refused(shown, "check accepts other names only for matrices")


# -------------------------------------------------------------------------------------------------- too long a name
def test_a_name_too_long_for_the_paper_is_refused_in_words() -> None:
    found = SHOWN["logits"]().written("row", {"W_OV": "KfrxsKIhDrgYcsaNQafA"})
    said = (
        r"is about \d+ pt wider than a text of 234.87 pt: give W_OV a shorter name than 'KfrxsKIhDrgYcsaNQafA', or use"
    )
    with pytest.raises(ValueError, match=said):
        found.paper("two-column")
    assert found.paper("article")
    with pytest.raises(ValueError, match=r"the formula \$.*\$ is about"):
        SHOWN["logits"]().written("row", {"W_U": "M" * 40}).paper("two-column")


@pytest.mark.parametrize("own", ["VvUTGBGQmt", "W" * 6, "%W-%W-%W-", "mmmmmmmmmmmm"])
@pytest.mark.parametrize("width", ["two-column", "article"])
@pytest.mark.parametrize("name", ["logits", "generic scores"])
@pytest.mark.sampled(5)
def test_what_is_not_refused_fits(tmp_path: Path, pdflatex: str, own: str, width: str, name: str) -> None:
    found: Derivation = SHOWN[name]()
    for glyph in ("W_OV", "A"):
        try:
            page = found.written("row", {glyph: own}).paper(width, standalone=True)
        except ValueError:  # refused, which is tested above
            continue
        assert re.findall(r"Overfull \\hbox.*", compiled(pdflatex, page, tmp_path)) == []
