"""explain --prompts, --text, --tokenizer and --labels on the command line: what is printed, refused and left alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli import Cli, cli, refused

import symcircuits as sc
from symcircuits.explanation import one_prompt as prompt_sums
from symcircuits.zoo import path as zoo_path

__all__ = ["cli"]  # a fixture
MODEL = str(zoo_path())


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """A file with three prompts, in three forms."""
    path = tmp_path / "prompts.txt"
    path.write_text('0,7,19,3,7,19\n[0, 4, 5]\n\n{"tokens": [0, 8, 2, 8], "target": 2, "against": 9}\n')
    return str(path)


def test_prompts_are_averaged(cli: Cli, lines: str) -> None:
    found = sc.explain_many(sc.load(MODEL), lines)
    assert cli("explain", MODEL, "--prompts", lines).out == found.text() + "\n"
    assert cli("explain", MODEL, "--prompts", lines, "--top", "2").out == found.text(top=2) + "\n"
    data = cli("explain", MODEL, "--prompts", lines, "--json").json
    assert data == json.loads(json.dumps(found.json()))
    assert (data["prompts"], data["source"], data["ok"]) == (3, lines, True)


def test_the_choices_are_handed_on(cli: Cli, lines: str) -> None:
    words = ["--logit-difference", "26,3", "--position", "1", "--dtype", "float32", "--json"]
    found = sc.explain_many(sc.load(MODEL), lines, by=sc.logit(26, against=3, position=1), dtype="float32")
    assert cli("explain", MODEL, "--prompts", lines, *words).json == json.loads(json.dumps(found.json()))


def test_a_bad_line_is_refused_by_its_number(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("1,2\n3,99\n4,5\n")
    refused(cli("explain", MODEL, "--prompts", str(path)), f"{path}, line 2: token 99 at position 1 is out of range")
    left = cli("explain", MODEL, "--prompts", str(path), "--skip-bad")
    assert (left.code, left.err) == (0, "")
    assert "Left out: 1 invalid prompt:\n  line 2: token 99 at position 1" in left.out
    data = cli("explain", MODEL, "--prompts", str(path), "--skip-bad", "--json").json
    assert (data["prompts"], data["skipped"]["count"], data["skipped"]["first"][0]["prompt"]) == (2, 1, 2)
    refused(cli("explain", MODEL, "--prompts", str(tmp_path / "no.txt")), "prompts file not found")
    path.write_text("")
    refused(cli("explain", MODEL, "--prompts", str(path)), "there are no prompts in this file")
    path.write_text(",".join(["1"] * 33))
    refused(cli("explain", MODEL, "--prompts", str(path)), "line 1: 33 tokens are too many: the position table has 32")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--tokens", "1,2"], "--tokens is for a single prompt"),
        (["--text", "a"], "--text is for a single prompt"),
        (["--html", "page.html"], "--html is for a single prompt"),
        (["--reference", "r.npz"], "--reference is for a single prompt"),
        (["--head", "L0H0"], "--head is for a single prompt"),
        (["--queries", "0"], "--queries is for a single prompt"),
        (["--row", "1"], "--row is for a single prompt"),
        (["--max-terms", "9"], "--max-terms is for a single prompt"),
        (["--notation", "paper"], "--notation is for a single prompt"),
        (["--symbol", "A=P"], "--symbol is for a single prompt"),
        (["--readout", "probe.npy"], "--readout is for a single prompt"),
        (["--source", "f=feature.npy@1"], "--source is for a single prompt"),
        (["--sort", "contribution"], "--sort has no effect with --prompts, which does not list terms"),
        (["--top", "-1"], "--top: must be a whole number, 0 or more"),
    ],
)
def test_options_of_one_prompt_are_refused(
    cli: Cli, lines: str, words: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(cli("explain", MODEL, "--prompts", lines, *words), what)
    assert not (tmp_path / "page.html").exists()


def test_skip_bad_goes_with_prompts(cli: Cli) -> None:
    refused(cli("explain", MODEL, "--tokens", "1,2", "--skip-bad"), "--skip-bad has no effect without --prompts FILE")


def test_a_closure_that_fails_is_exit_code_1(cli: Cli, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    real = prompt_sums.closure
    monkeypatch.setattr(prompt_sums, "closure", lambda *a, **k: replace(real(*a, **k), passed=False))
    for more in ([], ["--json"]):
        ran = cli("explain", MODEL, "--prompts", lines, *more)
        assert ran.code == 1
    assert "FAIL: 3 prompts with a closure beyond its bound" in cli("explain", MODEL, "--prompts", lines).out


def test_an_interruption_prints_no_half(cli: Cli, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = prompt_sums.closure, list[int]()

    def interrupted(*a: Any, **k: Any) -> Any:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*a, **k)

    monkeypatch.setattr(prompt_sums, "closure", interrupted)
    ran = cli("explain", MODEL, "--prompts", lines)
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")
