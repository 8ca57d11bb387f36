"""Completion by the Tab key: what a shell is told, and that bash, zsh and fish understand the script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import Cli, cli, refused

import symcircuits as sc
from symcircuits.tables.formats import COLUMNS

__all__ = ["cli"]  # a fixture
SHELLS = ("bash", "zsh", "fish")


def completed(line: str, folder: Path) -> set[str]:
    """What the program answers to a shell whose line is completed, by the protocol of argcomplete."""
    pytest.importorskip("argcomplete", reason="argcomplete is not installed")
    answer = folder / "answer"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    asked["_ARGCOMPLETE_STDOUT_FILENAME"] = str(answer)
    words = [sys.executable, "-m", "symcircuits"]
    done = subprocess.run(words, env=os.environ | asked, cwd=folder, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"")
    return {word.strip() for word in answer.read_text().split("\n")}


def test_commands_options_and_values(tmp_path: Path) -> None:
    assert completed("symcircuits c", tmp_path) == {"count", "check", "circuits", "completion"}
    assert completed("symcircuits verify --to", tmp_path) == {"--tokens", "--tokenizer"}
    assert completed("symcircuits derive --form ", tmp_path) == {"enumerated", "generic"}
    assert completed("symcircuits derive --theorem ", tmp_path) == set(sc.theorems())
    assert completed("symcircuits terms --columns number,l", tmp_path) == {"number,label", "number,latex"}
    assert completed("symcircuits terms --columns ", tmp_path) == set(COLUMNS)
    assert completed("symcircuits he", tmp_path) == {"help"}
    assert completed("symcircuits help co", tmp_path) == {"count", "completion"}
    assert completed("symcircuits count --composition K,Q", tmp_path) == {"K,Q", "K,QK"}
    assert completed("symcircuits summary m --by n", tmp_path) == {"norm"}
    assert completed("symcircuits verify --target l", tmp_path) == {"logits"}


def test_files_stand_where_files_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "formula.tex").write_text("")
    files = {"model/", "formula.tex", "answer"}
    for words in ("count ", "check X --file ", "circuits ", "explain m --labels ", "verify m --readout "):
        assert {word for word in completed(f"symcircuits {words}", tmp_path) if word[:1] != "-"} >= files - {"answer"}
    for words in ("count --heads ", "largest m --token ", "derive --symbol "):
        assert not completed(f"symcircuits {words}", tmp_path) & files


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_understands_the_script(cli: Cli, shell: str, tmp_path: Path) -> None:
    pytest.importorskip("argcomplete", reason="argcomplete is not installed")
    found = cli("completion", shell)
    assert (found.code, found.err) == (0, "")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(found.out)
    subprocess.run([shell, "-n", str(script)], check=True, timeout=60)
    script.write_text("if then")
    assert subprocess.run([shell, "-n", str(script)], capture_output=True, timeout=60).returncode != 0


def test_without_argcomplete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    refused(cli("completion", "bash"), "completion needs the package argcomplete: pip install 'symcircuits[terminal]'")


def test_another_shell_is_refused(cli: Cli) -> None:
    refused(cli("completion", "csh"), "invalid choice: 'csh'")
