"""Asking Lean: missing, older, without Mathlib, out of time, refusing, assuming more. A program stands in for Lean."""

import sys
from pathlib import Path

import pytest

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.verification import lean
from symcircuits.verification.compilers import answer
from symcircuits.verification.lean import LeanCompiler, check_lean

# It answers as Lean does: `LEAN_SAYS` is what it does with the file that it is given.
STAND_IN = """#!{python}
import os, re, sys, time
says = os.environ.get("LEAN_SAYS", "")
*_, last = sys.argv
if last == "--version":
    version = "4.9.0" if says == "older" else "4.24.0"
    print(f"Lean (version {{version}}, x86_64-unknown-linux-gnu, commit 0123456789ab, Release)")
    sys.exit()
text = open(last, encoding="utf-8").read()
if says == "without Mathlib":
    print(f"{{last}}:1:0: error: unknown module prefix 'Mathlib'")
    sys.exit(1)
if "theorem" not in text:
    sys.exit()
if says == "slow":
    time.sleep(60)
if says == "refuses":
    line = text[: text.index("theorem step4_1_1")].count("\\n") + 1
    print(f"{{last}}:{{line - 2}}:0: warning: something is not used")
    print(f"{{last}}:{{line}}:60: error: unsolved goals\\nX1 = X0")
    print(f"{{last}}:{{line + 9}}:60: error: another")
    sys.exit(1)
for name in re.findall(r"#print axioms (\\w+)", text):
    if says == "skips" and name == "step1_1_1":
        continue
    axioms = "[propext,\\n Classical.choice,\\n Quot.sound]"
    if says == "assumes" and name == "step4_1_1":
        axioms = "[propext, sorryAx]"
    clean = name == "step1_1_1"
    said = "does not depend on any axioms" if clean else f"depends on axioms: {{axioms}}"
    print(f"'Symcircuits.{{name}}' {{said}}")
"""
ARCHITECTURE = sc.attention_only((1,))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path, with a stand-in for Lean."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "lean"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_every_theorem_is_proved(path: Path) -> None:
    (row,) = check_lean(ARCHITECTURE, ["logits"])
    assert (row.name, row.passed, row.details["left"], row.details["lean"]) == ("proved by Lean", True, {}, "4.24.0")
    assert row.what.startswith(
        f"{len(row.details['proved'])} claims proved and 2 definitions, for matrices of any sizes"
    )
    assert row.what.endswith("over any commutative ring (Lean 4.24.0); none is left")


@pytest.mark.parametrize(
    ("says", "passed", "what"),
    [
        ("older", None, "not compiled: Lean 4.9.0 is older than 4.12, which the file is written for"),
        ("without Mathlib", None, "not compiled: Lean has no Mathlib here ("),
        ("slow", None, "not compiled: Lean has not ended after 2 seconds"),
        ("refuses", False, "step 4, claim 1 is not proved: "),
        (
            "assumes",
            False,
            "Lean says of 16 of 17 theorems that they assume only its own axioms; others assume sorryAx",
        ),
        ("skips", False, "Lean says of 16 of 17 theorems that they assume only its own axioms"),
    ],
)
def test_what_lean_says_otherwise(
    path: Path, monkeypatch: pytest.MonkeyPatch, says: str, passed: bool | None, what: str
) -> None:
    monkeypatch.setenv("LEAN_SAYS", says)
    (row,) = check_lean(ARCHITECTURE, ["logits"], seconds=2 if says == "slow" else 60)
    assert row.passed is passed
    assert row.what.startswith(what)
    if says == "refuses":
        assert "error: unsolved goals X1 = X0" in row.what
        assert "another" not in row.what
        assert "warning" not in row.what


def test_without_lean_the_row_says_that_nothing_was_compiled_and_the_exit_status_is_2(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path / "lean").unlink()
    assert main(["verify", "--heads", "1", "--lean", "--target", "stream"]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "not run proved by Lean - - stream: not compiled: Lean is not installed; install it with elan" in shown
    assert "1 row not run" in shown


def test_the_row_of_verify(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["verify", "--heads", "1", "--lean", "--target", "stream"]
    assert main(words) == 0
    assert "(Lean 4.24.0); none is left" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("LEAN_SAYS", "refuses")
    assert main(words) == 1
    assert main(["verify", "--general", "--lean"]) == 2
    assert "--lean has no effect with --general" in capsys.readouterr().err
    monkeypatch.delenv("LEAN_SAYS")
    assert main(["verify", "--heads", "1,1", "--positions", "rotary", "--lean", "--target", "scores:L0H0"]) == 2
    assert "(rotary positions turn its rows)" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="lean must be True or False, not 1"):
        sc.verify(ARCHITECTURE, lean=1)  # type: ignore[arg-type]


def test_in_a_lake_project_lake_is_asked(path: Path, tmp_path: Path) -> None:
    lake = path / "lake"
    lake.write_text(f"#!{sys.executable}\nimport os, sys\nos.execv({str(path / 'lean')!r}, sys.argv[2:])\n")
    lake.chmod(0o755)
    compiler = LeanCompiler.found(tmp_path)
    assert compiler is not None
    assert compiler.command == (str(path / "lean"),)
    (tmp_path / "lakefile.toml").touch()
    compiler = LeanCompiler.found(tmp_path)
    assert compiler is not None
    assert compiler.command == (str(lake), "env", "lean")
    (row,) = check_lean(ARCHITECTURE, ["stream"])
    assert row.passed


def test_a_file_that_states_something_else_is_not_given_to_lean(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = lean.derivation_lean
    monkeypatch.setattr(lean, "derivation_lean", lambda d: right(d).replace("_1 : stream = X1 ", "_1 : X0 = X1 ", 1))
    monkeypatch.setattr(LeanCompiler, "unusable", lambda self, seconds: "")
    monkeypatch.setattr(LeanCompiler, "compile", lambda self, *given: pytest.fail("it was compiled"))
    (row,) = check_lean(ARCHITECTURE, ["stream"])
    assert row.passed is False
    assert row.what.startswith("the file for Lean states something else in 1 place: step4_1_1 states X0 = X1, which")


def test_too_many_terms_are_not_given_to_lean(path: Path) -> None:
    (row,) = check_lean(sc.attention_only((12, 12)), ["logits"])
    assert (row.passed, row.what) == (
        None, "not compiled: Lean is given at most 100 terms of a target, and there are 169",
    )  # fmt: skip


def test_what_takes_too_long_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """Else the call would wait for the pipe that a program of the program holds open, and that one would go on."""
    inner = "import time; time.sleep(5); open('late', 'w')"
    outer = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', {inner!r}])"
    assert answer([sys.executable, "-c", outer], tmp_path, 1) == ("", "it takes more than 1 seconds", True)
    assert not (tmp_path / "late").exists()
