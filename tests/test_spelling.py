"""Names that a user gives: printed as they are, never as markup, and refused where that cannot be."""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symcircuits.core import names
from symcircuits.core.names import escaped, spelled, visible

NASTY = [
    r"\input{/etc/passwd}", "$x_1%", "a_b^c~#&{}", r"\write18{id}", "%", "}", "{", "\\", "x--y", "<<a>>", "``q''", '"',
    "a  b", "W_", "_W", "W__O", "^^41", "?`", "é", "Ž_õ", "Ωmega", "中", "a|b", "'", r"\end{document}", "A B", "@",
    "W[h]",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "latex"),
    [
        ("M", "M", "M"), ("W_E", "W_E", "W_E"), ("W_OV", "W_OV", "W_{OV}"), ("W_12", "W_12", "W_{12}"),
        ("W_out", "W_out", r"W_{\mathrm{out}}"), ("W_OUT", "W_OUT", r"W_{\mathrm{OUT}}"),
        ("W_ab", "W_ab", r"W_{\mathrm{ab}}"), ("a" * 40, "a" * 40, rf"\mathrm{{{'a' * 40}}}"),
        ("att", "att", r"\mathrm{att}"), ("A2", "A2", r"\mathrm{A2}"),
        ("Omega", "Omega", r"\Omega"), ("omega_0", "omega_0", r"\omega_0"), ("W_Psi", "W_Psi", r"W_{\Psi}"),
        ("Ω", '"Ω"', r"\Omega"), ("omicron", "omicron", r"\mathrm{omicron}"),
        ("$x_1%", '"$x_1%"', r"\text{\$x\_1\%}"), ("é", '"é"', r"\text{\'{e}}"), ("ï", '"ï"', r"\text{\" {\i{}}}"),
        ("中", '"中"', r"\text{$\langle$U+4E2D$\rangle$}"),
        ('a"b\\', r'"a\"b\\"', r"\text{a\symbol{34}b\textbackslash{}}"),
        ("a\u00a0b", r'"a\xa0b"', r"\text{a$\langle$U+00A0$\rangle$b}"),
    ],
)  # fmt: skip
def test_names(name: str, text: str, latex: str) -> None:
    assert spelled(name) == (text, latex.replace('\\" ', '\\"'))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must not be empty"), (" ", "must not be empty"), (" a", "nor start or end with a space"),
        ("a\n", "nor start or end with a space"), ("a\nb", r"no control characters; .* has U\+000A"),
        ("\x1b[2J", r"U\+001B"), ("a\u202eb", r"U\+202E"), ("a\x00", r"U\+0000"), ("a\u200db", r"U\+200D"),
        ("\ud800", r"U\+D800"), ("\u2028x", "start or end|2028"), ("a" * 41, "at most 40 characters.* has 41"),
        ("L0H1", "the label of a head or layer"), ("L0", "the label of a head"), ("h_1", "an index of heads"),
        ("h", "an index of heads"),
        ("q_2", "an index of heads"), ("X_3", "a stream"), ("X12", "a stream"), ("X", "a stream"), ("Y_1", "a stream"),
        ("N_Q", "something else"), ("H_1", "something else"), ("T", "something else"), ("W", "something else"),
        ("x", "something else"), ("logits", "something else"),
        ("Id", "something else"), ("S", "something else"), ("12", "a number"), ("1.5", "a number"), ("1", "a number"),
    ],
)  # fmt: skip
def test_names_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spelled(name)


@pytest.mark.parametrize("name", [3, None, b"M", ["M"]])
def test_a_name_is_a_string(name: object) -> None:
    with pytest.raises(ValueError, match="is a string, not"):
        spelled.__wrapped__(name)


# What may stand in the LaTeX of a name: letters and digits, a few signs that mean nothing, and these commands.
_SAFE = re.compile(
    r"""(?: [A-Za-z0-9/:;.*+=@()\[\]'`] | [-',?!]\{\} | \\[_%&#${} ]
          | \\text(?:backslash|asciicircum|asciitilde|less|greater|bar)\{\} | \\symbol\{34\} | \\`\{\}
          | \\[`'^~="urHvc.]\{(?:[A-Za-z]|\\[ij]\{\})\} | \\(?:ss|ae|AE|oe|OE|o|O|l|L|i|S|P|pounds)\{\}
          | \$\\[A-Za-z]+\$ | \$\\langle\$U\+[0-9A-F]+\$\\rangle\$ )*""",
    re.VERBOSE,
)
_MATH = re.compile(
    r"(?:[A-Za-z]|\\[A-Za-z]+|\\mathrm\{\w+\})(?:_(?:\w|\{(?:[A-Za-z0-9]+|\\[A-Za-z]+|\\mathrm\{\w+\})\}))?"
)


@given(st.text(min_size=1, max_size=40))
@example(r"\input{/etc/passwd}")
@example("$x_1%")
@example("a_b^c~#&{}")
def test_every_name_is_harmless_or_refused(name: str) -> None:
    try:
        found = spelled(name)
    except ValueError:
        return
    assert found.latex.isascii()
    inner = re.fullmatch(r"\\text\{(.*)\}", found.latex)
    assert _SAFE.fullmatch(inner[1]) if inner else _MATH.fullmatch(found.latex), found.latex
    assert found.text.isprintable()
    assert re.fullmatch(r'[A-Za-z]\w*|"(?:[^"\\]|\\.)*"', found.text)


@given(st.text(max_size=60))
def test_every_sentence_is_harmless(text: str) -> None:
    shown = escaped(text)
    assert shown.isascii()
    bare = re.sub(r"\\[_%&#${}]|\$\\\w+\$|\$\\langle\$|\$\\rangle\$", "", shown)
    assert not set("%&#$^~") & set(re.sub(r"\\[`'^~=\".urHvc]\{", "{", bare))
    assert set(re.findall(r"\\([a-zA-Z]+)", bare)) <= {
        "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "ss", "ae", "AE",
        "oe", "OE", "o", "O", "l", "L", "i", "j", "S", "P", "pounds", "u", "r", "H", "v", "c",
    }  # fmt: skip


# Few characters, so that pairs come close to each other.
_CLOSE = st.text("aOVW_{}\\\\$1 éeΩ-\u0301\u00a0", min_size=1, max_size=6)


@given(_CLOSE, _CLOSE)
@example("W_OV", "W_{OV}")
@example("ab", "a b")
@example("a\u00a0b", r"a\xa0b")
@example("Omega", "Ω")
def test_two_names_are_printed_differently(a: str, b: str) -> None:
    try:
        first, second = spelled(a), spelled(b)
    except ValueError:
        return
    if first != second:  # else the same, or one accent in two encodings
        assert first.text != second.text
        assert first.latex != second.latex or "Ω" in a + b  # the letter and its name; a notation refuses both at once


def test_what_does_not_print_is_shown_by_its_number() -> None:
    assert visible("a\x1b[2J\u202e中é") == r"a\x1b[2J\u202e中é"
    assert visible(r"plain \x1b") == r"plain \x1b"


DOCUMENT = "\\documentclass{article}%s\\usepackage{amsmath}\\begin{document}\\pagestyle{empty}\n%s\n\\end{document}\n"


@pytest.mark.parametrize("encoding", ["\\usepackage[T1]{fontenc}", ""])
def test_latex_shows_the_characters(tmp_path: Path, pdflatex: str, encoding: str) -> None:
    lines = [rf"$A^{{L}}\,{spelled(name).latex}^{{L}}$ \par {escaped(name)}\par" for name in NASTY]
    page = tmp_path / "names.tex"
    page.write_text(DOCUMENT % (encoding, "\n".join(lines)), "utf-8")
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", page.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-1500:]
    if not shutil.which("pdftotext") or not encoding:
        return
    command = ["pdftotext", "-layout", "names.pdf", "-"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.decode("utf-8")
    flat = re.sub(r"\s+", "", shown).replace("’", "'").replace("‘", "`").replace("∼", "~")
    assert "root:" not in flat
    for name in (r"\input{/etc/passwd}", "$x_1%", "a_b^c~#&{}", r"\write18{id}", r"\end{document}", "x--y", "W[h]"):
        assert flat.count(name.replace("^", "ˆ").replace("~", "˜")) + flat.count(name) >= 2, (name, flat)


def test_greek_letters_have_the_names_that_unicode_gives_them() -> None:
    """They are written out, so that the start need not look them up."""
    for letter, name in names._GREEK.items():
        case = "SMALL" if name.islower() else "CAPITAL"
        assert unicodedata.lookup(f"GREEK {case} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}") == letter
    assert len(names._GREEK) == 34
