"""The command line: what each command prints, its exit codes, what it refuses, and what it leaves alone."""

import dataclasses
import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.cli.parser import commands_of, parser_of
from symcircuits.derivation.derive import DerivationError
from symcircuits.tables.formats import COLUMNS
from symcircuits.verification.verify import Check, Report

Cli = Callable[..., "Ran"]
COMMANDS = ("derive", "verify", "count", "explain", "demo")
DATA = Path(__file__).parent / "data"
BIAS = str(DATA / "tl_bias_s1")


@dataclasses.dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object that was printed; numbers that JSON does not have are refused."""
        assert self.err == ""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs the command line in this process."""

    def run(*words: str) -> Ran:
        try:
            code: Any = main([str(w) for w in words])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    return run


def refused(ran: Ran, *parts: str) -> None:
    """Exit code 2, nothing on standard output, and one line that says what is wrong (and one where help is)."""
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.strip().splitlines()
    assert lines[0].startswith("symcircuits")
    assert "error: " in lines[0]
    assert all(line.startswith("See symcircuits") for line in lines[1:])
    assert len(lines) <= 2
    for part in parts:
        assert part in ran.err


# -------------------------------------------------------------------------------------------------- count
def test_count(cli: Cli) -> None:
    found = cli("count", "--heads", "12,12", "--json").json
    assert found == {
        "schema": "symcircuits.count/1", "architecture": "attention-only, heads 12,12", "target": "logits",
        "selection": [], "count": 169,
        "by_order": {"0": 1, "1": 24, "2": 144}, "by_composition": {"none": 25, "V": 144},
    }  # fmt: skip
    text = cli("count", "--heads", "12,12")
    assert (text.code, text.err) == (0, "")
    assert text.out.splitlines()[0] == "logits of attention-only, heads 12,12: 169 terms"
    for words in ("order 0 1", "order 2 144", "composition none 25", "composition V 144"):
        assert words in " ".join(text.out.split())


@pytest.mark.parametrize(
    ("words", "count", "by_composition"),
    [
        (["12,12", "--target", "scores:L1H0"], 169, {"none": 1, "Q": 12, "K": 12, "QK": 144}),
        (["12,12", "--target", "scores:L1H0", "--positions", "shortformer"], 196, None),
        (["12,12", "--target", "scores:L1H0", "--positions", "standard"], 676, None),
        (["12,12", "--positions", "standard"], 338, None),
        (["12,12", "--positions", "shortformer"], 169, None),
        (["3,3", "--positions", "standard", "--biases"], 53, None),
        (["3,3", "--biases"], 37, None),
        (["2,2", "--positions", "standard", "--biases"], 31, None),
        (["3,3", "--positions", "shortformer", "--biases"], 37, None),
        (["3,5"], 24, None),
        (["3,5", "--target", "scores:L1H4"], 16, {"none": 1, "Q": 3, "K": 3, "QK": 9}),
        (["3,5", "--target", "scores:L0H0"], 1, {"none": 1}),
        ([",".join(["12"] * 12)], 13**12, None),
        ([",".join(["12"] * 12), "--target", "scores:L11H11"], 13**22, None),
        (["none"], 1, {"none": 1}),
        (["None"], 1, {"none": 1}),
        ([" 3 , 3 "], 16, {"none": 7, "V": 9}),
        (["0,2"], 3, {"none": 3}),
        (["3,3", "--no-unembed"], 16, None),
        (["3,3", "--no-unembed", "--no-scale", "--target", "stream"], 16, None),
    ],
)
def test_known_counts(cli: Cli, words: list[str], count: int, by_composition: Any) -> None:
    found = cli("count", "--heads", *words, "--json").json
    assert found["count"] == count == sum(found["by_order"].values()) == sum(found["by_composition"].values())
    assert 0 not in [*found["by_order"].values(), *found["by_composition"].values()]
    if by_composition is not None:
        assert found["by_composition"] == by_composition
    if "--no-unembed" in words:
        assert found["target"] == "stream"


# ------------------------------------------------------------------------------------------------- derive
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
@pytest.mark.parametrize("form", ["enumerated", "generic"])
def test_derive_prints_what_the_library_gives(cli: Cli, target: str, form: str, tmp_path: Path) -> None:
    words = ["derive", "--heads", "2,2", "--target", target, "--form", form]
    derivation = sc.derive(sc.attention_only((2, 2)), target, form)
    latex = cli(*words)
    assert (latex.code, latex.err) == (0, "")
    assert latex.out.strip() == derivation.latex().strip()
    assert cli(*words, "--format", "text").out.strip() == derivation.text().strip()
    found = cli(*words, "--json").json
    assert found == cli(*words, "--format", "json").json == json.loads(json.dumps(derivation.json()))
    assert (found["target"], found["form"], found["ok"]) == (target, form, True)
    assert found["schema"].startswith("symcircuits.derivation/")
    out = tmp_path / "out.tex"
    written = cli(*words, "--standalone", "-o", str(out))
    assert (written.code, written.out, written.err) == (0, "", f"wrote {out}\n")
    assert out.read_text().strip() == derivation.latex(standalone=True).strip()
    assert out.read_text().endswith("\n")
    assert "\\documentclass" in out.read_text()


def test_derive_prints_a_theorem_by_its_name(cli: Cli, tmp_path: Path) -> None:
    found = sc.theorem("ablation")
    assert cli("derive", "--theorem", "ablation", "--format", "text").out.strip() == found.text().strip()
    assert cli("derive", "--theorem", "ablation", "--json").json["result"] == "ablation"
    assert cli("derive", "--theorem", "ablation").out.strip() == found.latex().strip()
    page = tmp_path / "page.tex"
    cli("derive", "--theorem", "ablation", "--standalone", "-o", str(page))
    assert page.read_text("utf-8") == found.latex(standalone=True)
    refused(cli("derive", "--theorem", "abelation"), "unknown result 'abelation': the nearest are ablation, ")
    refused(cli("derive"), "give --heads, a MODEL or --theorem NAME")
    for option in (["--heads", "2"], ["--norm", "LN"], ["--mlps"], ["--form", "generic"], ["--target", "stream"]):
        refused(cli("derive", "--theorem", "mlp", *option), f"{option[0]} cannot be used with --theorem")
    refused(cli("derive", "--theorem", "mlp", BIAS), "MODEL cannot be used with --theorem")


@pytest.mark.parametrize("form", ["enumerated", "generic"])
def test_derive_takes_norms_mlps_and_groups(cli: Cli, form: str) -> None:
    words = ["--heads", "4,2", "--norm", "LN", "--no-gains", "--mlps", "--key-value-heads", "2,2", "--form", form]
    arch = sc.transformer((4, 2), norm="LN", gains=False, mlps=True, groups=(2, 2))
    for target in ("logits", "scores:L1H0"):
        ran = cli("derive", *words, "--target", target, "--format", "text")
        assert ran.out.strip() == sc.derive(arch, target, form).text().strip()
    refused(cli("derive", "--heads", "4", "--key-value-heads", "3"), "must divide its 4 heads")


FEATURES = "--heads 1,2 --norm RMS --mlps --gated --parallel --multipliers all"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (FEATURES, {"norm": "RMS", "mlps": True, "gated": True, "parallel": True, "multipliers": True}),
        ("--heads 1,2 --no-softmax --mlps --bilinear", {"softmax": False, "mlps": True, "bilinear": True}),
        ("--heads 1,2 --qk-norm --positions rotary", {"qk_norm": True, "positions": "rotary"}),
        ("--heads 1,2 --multipliers m_E,r[L1]", {"multipliers": ["m_E", "r[L1]"]}),
        ("--heads 1,2 --mlps --multipliers r,m_U", {"mlps": True, "multipliers": ["r", "m_U"]}),
    ],
)
def test_features_are_described(cli: Cli, words: str, options: dict[str, Any]) -> None:
    """Every command that takes a described architecture means the same by its options."""
    arch = sc.transformer((1, 2), **options)
    counted = cli("count", *words.split(), "--json").json
    assert (counted["architecture"], counted["count"]) == (str(arch), sc.logits(arch).count)
    derived = cli("derive", *words.split(), "--format", "text")
    assert derived.out.strip() == sc.derive(arch).text().strip()
    assert f"verify {arch}" in " ".join(cli("verify", *words.split()).out.split())
    right = sc.logits(arch)[-1].text
    assert cli("check", right, *words.split()).code == 0
    assert cli("check", right.rpartition(" * ")[2].partition(" @ ")[2], *words.split()).code == 1


def test_the_terms_with_nothing_held_fixed_are_counted(cli: Cli) -> None:
    words = ("count", "--heads", "2,3", "--no-softmax", "--no-unembed")
    assert cli(*words).out.splitlines()[-1] == "with nothing held fixed (unfrozen): 84 terms"
    assert cli(*words, "--json").json["unfrozen"] == 84
    deep = ("count", "--heads", ",".join(["12"] * 9), "--no-softmax")
    assert cli(*deep).out.splitlines()[-1].endswith(": about 5.8e10848 terms")
    found = cli(*deep, "--json").json
    assert (found["unfrozen"], found["unfrozen_about"]) == (None, "about 5.8e10848")
    assert "unfrozen" not in cli("count", "--heads", "2,3", "--json").json


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("--multipliers m", "there is no multiplier 'm' here"),
        ("--multipliers ,", "there is no multiplier '' here"),
        ("--gated", "--gated has no effect without MLPs: give --mlps"),
        ("--no-gains", "--no-gains has no effect without norms"),
        ("--parallel", "--parallel has no effect without MLPs: give --mlps"),
    ],
)
def test_features_that_do_not_fit(cli: Cli, words: str, fault: str) -> None:
    refused(cli("count", "--heads", "2", *words.split()), fault)


@pytest.mark.parametrize("option", ["--gated", "--qk-norm", "--multipliers=all"])
def test_a_theorem_takes_no_features(cli: Cli, option: str) -> None:
    refused(cli("derive", "--theorem", "mlp", option), f"{option.partition('=')[0]} cannot be used with --theorem")


def test_derive_has_defaults(cli: Cli) -> None:
    assert cli("derive", "--heads", "1,1").out.strip() == sc.derive(sc.attention_only((1, 1))).latex().strip()
    stream = cli("derive", "--heads", "1,1", "--no-unembed", "--json").json
    assert stream["target"] == "stream"


def test_an_output_path_that_cannot_be_written(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out before the work is done, and an existing file stays whole."""

    def too_late(*_: object) -> None:
        raise AssertionError("the derivation was made before the path was looked at")

    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("whole")
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr("symcircuits.derivation.derive.derive", too_late)
        for path, why in (
            (tmp_path / "folder", "it is a folder"),
            (tmp_path / "missing" / "out", "does not exist"),
            (tmp_path / "file" / "out", "is not a folder"),
            ("", "is empty"),
        ):
            refused(cli("derive", "--heads", "1", "-o", str(path)), why)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("symcircuits.work.files.os.replace", full)
        refused(cli("derive", "--heads", "1", "-o", str(tmp_path / "file")), "No space left on device", "file")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "whole"


def test_a_derivation_that_fails_leaves_the_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise DerivationError("step 3 fails: the two sides differ")

    monkeypatch.setattr("symcircuits.derivation.derive.derive", fails)
    (tmp_path / "out").write_text("whole")
    ran = cli("derive", "--heads", "2,2", "-o", str(tmp_path / "out"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "symcircuits derive: a check failed: step 3 fails: the two sides differ\n"
    assert (tmp_path / "out").read_text() == "whole"


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["-o", "a.json"], "{"),
        (["-o", "a.txt"], "The logits"),
        (["-o", "a.tex"], "\\"),
        (["-o", "a"], "\\"),
        (["-o", "a.md"], "\\"),
        (["--format", "text", "-o", "a.json"], "The logits"),
        (["-o", "a.txt", "--json"], "{"),
        (["-o", "a.txt", "--format", "latex", "--standalone"], "\\documentclass"),
    ],
)
def test_the_ending_chooses_the_format_where_none_is_given(
    cli: Cli, words: list[str], begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("derive", "--heads", "1", *words).code == 0
    (written,) = tmp_path.iterdir()
    text = written.read_text("utf-8")
    assert [text.startswith(b) for b in ("{", "The logits")] == [begins == b for b in ("{", "The logits")]
    assert begins in text


# ------------------------------------------------------------------------------------------------- verify
def test_verify(cli: Cli) -> None:
    found = cli("verify", "--heads", "2,1", "--json").json
    assert found["schema"] == "symcircuits.verify/1"
    assert found["ok"] is True
    kinds = {c["name"].partition(":")[0] for c in found["checks"]}
    assert {"types", "same algebra", "same polynomial", "same transformer"} <= kinds
    for check in found["checks"]:
        assert {"name", "passed", "error", "bound"} <= check.keys()
        assert check["passed"] is True
        assert 0 <= check["error"] <= check["bound"]
    names = [c["name"] for c in found["checks"]]
    assert len(set(names)) == len(names)
    text = cli("verify", "--heads", "2,1", "--seed", "3")
    assert (text.code, text.err) == (0, "")
    assert "all checks passed" in text.out
    assert text.out.startswith("verify attention-only, heads 2,1")


def test_verify_some_targets_and_what_is_not_run(cli: Cli) -> None:
    words = ["verify", "--heads", "2,2", "--target", "logits", "--target", "scores:L1H1", "--max-terms", "9", "--json"]
    found = cli(*words).json
    assert {c["name"].partition(": ")[2] for c in found["checks"]} == {"logits", "scores of L1H1"}
    found = cli(*words[:-2], "3", "--json").json
    assert found["ok"] is True
    not_run = [c for c in found["checks"] if c["passed"] is None]
    assert not_run
    for check in not_run:
        assert check["what"].startswith("9 terms or more, the limit is 3")
        assert check["error"] is check["bound"] is None


def test_verify_a_model_on_tokens(cli: Cli) -> None:
    words = ["verify", BIAS, "--tokens", "1,2,3;4,5,6", "--target", "logits"]
    found = cli(*words, "--json").json
    assert (found["ok"], found["subject"]) == (True, "tl_bias_s1")
    assert cli("verify", str(DATA / "tracr_prev_1L")).code == 0


def test_a_check_that_fails_is_exit_code_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Check("types", "logits", False, 3, 0, "the fault")
    monkeypatch.setattr("symcircuits.verification.verify.verify", lambda *_, **__: Report("x", (row,), 0.1))
    ran = cli("verify", "--heads", "2")
    assert (ran.code, ran.err) == (1, "")
    assert "FAIL" in ran.out
    assert "1 row failed" in ran.out
    ran = cli("verify", "--heads", "2", "--json")
    assert ran.code == 1
    assert ran.json["ok"] is False
    assert ran.json["checks"][0]["passed"] is False


# ------------------------------------------------------------------------------------------------ explain
def test_explain_a_model_with_logits(cli: Cli) -> None:
    ran = cli("explain", BIAS, "--tokens", "1,2,3,4,5", "--top", "7", "--json")
    found, mine = ran.json, sc.explain(sc.load(BIAS), [1, 2, 3, 4, 5], top=7)
    assert ran.code == 0
    assert found == json.loads(json.dumps(mine.json()))
    assert found["closure"]["logits"].keys() >= {"error", "bound"}
    assert found["closure"]["stream"] is None
    heads = ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert list(found["closure"]["scores"]) == list(found["by_composition"]) == heads
    for head in heads:
        assert found["closure"]["scores"][head]["error"] <= found["closure"]["scores"][head]["bound"]
        assert list(found["by_composition"][head]) == ["none", "Q", "K", "QK"]
        assert all({"share", "norm"} <= v.keys() for v in found["by_composition"][head].values())
    assert found["by_order"].keys() == {"0", "1", "2"}
    assert len(mine.rows) == 7 < len(found["terms"])  # embedding and position in one row
    assert all({"label", "composition", "order", "norm"} <= t.keys() for t in found["terms"])
    assert found["remainder"]["count"] == 53 - len(found["terms"])
    assert found["remainder"]["norm"] > 0
    apart = cli("explain", BIAS, "--tokens", "1,2,3,4,5", "--top", "7", "--sort", "centred", "--json").json
    assert (len(apart["terms"]), apart["remainder"]["count"]) == (7, 53 - 7)
    assert found["target"].keys() == {"row", "position", "token", "value"}
    text = cli("explain", BIAS, "--tokens", "1,2,3,4,5", "--top", "7")
    assert (text.code, text.err, text.out.strip()) == (0, "", mine.text(100))


def test_explain_a_model_without_unembedding(cli: Cli) -> None:
    found = cli("explain", str(DATA / "tracr_induction_K_2L"), "--tokens", "4,0,1,2,0", "--json").json
    assert found["closure"]["logits"] is None
    assert found["closure"]["stream"]["error"] <= found["closure"]["stream"]["bound"]
    assert (found["target"]["token"], found["remainder"]["count"]) == (None, 0)


def test_explain_takes_its_choices(cli: Cli) -> None:
    words = ["--tokens", "1,2,3;4,5,6", "--position", "-2", "--token", "7", "--row", "1", "--sort", "contribution"]
    more = ["--top", "3", "--queries", "1,2", "--max-terms", "30", "--dtype", "float32", "--json"]
    found = cli("explain", BIAS, *words, *more).json
    run = sc.load(BIAS).run([[1, 2, 3], [4, 5, 6]], "float32")
    by = sc.logit(7, position=-2, row=1)
    mine = sc.explain(run, by=by, sort="contribution", top=3, queries=[1, 2], max_terms=30)
    assert found == json.loads(json.dumps(mine.json()))
    assert found["target"]["position"] == 1
    assert (found["sort"], found["looked_at"], len(found["terms"])) == ("contribution", 26, 3)
    one = cli("explain", BIAS, "--tokens", "5", "--json").json
    assert one["by_composition"]["L1H0"]["K"]["share"] is None


def test_a_closure_that_fails_is_exit_code_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sc.explain(sc.load(BIAS), [1, 2])
    broken = dataclasses.replace(found, closure=dataclasses.replace(found.closure, passed=False))
    monkeypatch.setattr("symcircuits.explanation.explain.explain", lambda *_, **__: broken)
    ran = cli("explain", BIAS, "--tokens", "1,2")
    assert ran.code == 1
    assert "FAIL" in ran.out
    assert cli("explain", BIAS, "--tokens", "1,2", "--json").json["ok"] is False


def test_explain_writes_a_page(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"<b>{i}\n" for i in range(11)))
    file = str(tmp_path / "report.html")
    words = ("--tokens", "1,2,3,4,5", "--logit-difference", "6,2", "--labels", str(tmp_path / "labels.txt"))
    ran = cli("explain", BIAS, *words, "--html", file, "--head", "L1H2")
    labels = [f"<b>{i}" for i in range(11)]
    mine = sc.explain(sc.load(BIAS), [1, 2, 3, 4, 5], by=sc.logit(6, against=2)).labelled(labels)
    assert (ran.code, ran.out, ran.err) == (0, mine.text() + "\n", f"wrote {file}\n")
    page, plain = Path(file).read_text("utf-8"), mine.html("L1H2")
    assert re.sub("<p>Command: .*?</p>", "", page) == plain != page  # the command that wrote it stands in its foot
    assert cli("explain", BIAS, *words, "--json").json["target"]["against"] == 2


def test_a_page_of_a_failing_closure_is_written_and_says_so(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = sc.explain(sc.load(BIAS), [1, 2])
    broken = dataclasses.replace(found, closure=dataclasses.replace(found.closure, passed=False))
    monkeypatch.setattr("symcircuits.explanation.explain.explain", lambda *_, **__: broken)
    assert cli("explain", BIAS, "--tokens", "1,2", "--html", str(tmp_path / "a.html")).code == 1
    assert "A CLOSURE FAILS" in (tmp_path / "a.html").read_text("utf-8")


def test_no_page_is_begun_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    words = ("explain", BIAS, "--tokens", "1,2", "--html")
    refused(cli(*words, str(tmp_path)), "it is a folder")
    refused(cli(*words, str(tmp_path / "no" / "a.html")), "does not exist")
    (tmp_path / "a.html").write_text("whole")
    refused(cli(*words, str(tmp_path / "a.html"), "--head", "L7H0"), "there is no head L7H0")
    refused(cli(*words, str(tmp_path / "a.html"), "--labels", str(tmp_path / "none")), "none: there is no such file")
    assert [f.name for f in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text() == "whole"


def test_demo_is_told_where_to_write(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("symcircuits.cli.demo.show", lambda folder: asked.append(folder) or 1)
    assert cli("demo", "--output", "there").code == 1
    assert cli("demo").code == 1
    assert asked == ["there", "symcircuits-demo"]


# ------------------------------------------------------------------------------------------- what is refused
HEADS = [
    ("-1,3", "the number of heads of layer 0 must be a whole number, 0 or more, not -1"),
    ("3,-2", "layer 1"),
    ("3.5", "'3.5' is not a whole number"),
    ("3,x", "'x' is not a whole number"),
    ("1e3", "'1e3' is not a whole number"),
    ("", '--heads is empty; write the heads of each layer, e.g. --heads 3,3, or "none" for zero layers'),
    ("  ", "--heads is empty"),
    ("3,,3", "--heads '3,,3': a number is missing between the commas"),
    ("3,", "a number is missing"),
    ("none,3", "'none' is not a whole number"),
    ("99999999999", "99,999,999,999 heads are too many to list; the limit is 100,000"),
    ("99999,99999", "too many to list"),
]


@pytest.mark.parametrize(("heads", "message"), HEADS)
def test_heads_that_there_cannot_be(cli: Cli, heads: str, message: str) -> None:
    for command in ("count", "derive", "verify"):
        for words in (["--heads", heads], ["--json", f"--heads={heads}"]):
            refused(cli(command, *words), message, f"symcircuits {command}: error: ")


TARGETS = [
    ("scores:L5H0", "there is no head L5H0: the model has 2 layers, counted from 0"),
    ("scores:L1H7", "there is no head L1H7: layer 1 has 3 heads, counted from 0"),
    ("scores:L1", "'L1' is not the name of a head"),
    ("scores", "unknown target 'scores'"),
    ("logit", "unknown target 'logit'; the targets are"),
]


@pytest.mark.parametrize(("target", "message"), TARGETS)
def test_targets_that_do_not_exist(cli: Cli, target: str, message: str) -> None:
    for command in ("count", "derive", "verify"):
        refused(cli(command, "--heads", "3,3", "--target", target), message)
    refused(cli("count", "--heads", "3,3", "--no-unembed", "--target", "logits"), "no unembedding")


def test_too_many_terms_to_list(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out.tex"
    ran = cli("derive", "--heads", "12,12,12,12", "-o", str(out))
    refused(ran, "28,561 terms", "generic")
    assert not out.exists()


TOKENS = [
    ("1,2,99", "token 99 at position 2 is out of range: the vocabulary has 11 tokens, 0 to 10"),
    ("1,2;3,11", "token 11 in row 1 at position 1 is out of range"),
    ("-1,2", "token -1 at position 0 is out of range"),
    ("1,-1", "token -1 at position 1 is out of range"),
    ("1.5", "'1.5' is not a whole number"),
    ("a", "'a' is not a whole number"),
    ("", "--tokens is empty; write whole numbers separated by commas, e.g. --tokens 1,2,3"),
    ("1,,2", "a number is missing between the commas"),
    ("1,2;", "a row is empty"),
    ("1,2;3", "the rows differ in length"),
    (",".join(["1"] * 13), "13 tokens are too many: the position table has 12 rows"),
    (str(10**30), "is out of range"),
    ("3, 1 4", "'1 4' is not a whole number"),
    *((t, "JSON list of token ids, [3, 1, 4], or of rows of") for t in ("[]", "[1, [2]]", "[1.0]", "[true]", "[1")),
]


def test_tokens_are_written_in_several_ways(cli: Cli) -> None:
    for ways in (["1,2,3", "1 2 3", "[1, 2, 3]"], ["1,2;3,4", "1 2; 3 4", "[[1, 2], [3, 4]]"]):
        first, *others = (cli("explain", BIAS, "--tokens", tokens, "--json").out for tokens in ways)
        assert len(first) > 100
        assert others == [first] * 2
    assert cli("explain", BIAS, "--tokens", "[[1, 2]]", "--json").json["tokens"] == [[1, 2]]


def test_help_is_a_command_too(cli: Cli) -> None:
    assert cli("help", "count").out == cli("count", "--help").out
    assert cli("help").out == cli("--help").out == cli("help", "help").out
    assert "symcircuits help COMMAND" in " ".join(cli("help").out.split())
    refused(cli("help", "cuont"), "cuont")


@pytest.mark.parametrize(("tokens", "message"), TOKENS)
def test_tokens_that_do_not_fit(cli: Cli, tokens: str, message: str) -> None:
    for command in ("explain", "verify"):
        for words in (["--tokens", tokens], ["--json", f"--tokens={tokens}"]):
            refused(cli(command, BIAS, *words), message)


def models(folder: Path) -> dict[str, tuple[str, str]]:
    """Paths of what is not a model, each with what is said about it."""
    (folder / "empty").mkdir()
    (folder / "text.txt").write_text("x")
    (folder / "cut").mkdir()
    (folder / "cut" / "config.json").write_bytes((Path(BIAS) / "config.json").read_bytes())
    (folder / "cut" / "model.safetensors").write_bytes((Path(BIAS) / "model.safetensors").read_bytes()[:-100])
    (folder / "contradicts").mkdir()
    config = json.loads((Path(BIAS) / "config.json").read_text()) | {"d_model": 17}
    (folder / "contradicts" / "config.json").write_text(json.dumps(config))
    (folder / "contradicts" / "model.safetensors").write_bytes((Path(BIAS) / "model.safetensors").read_bytes())
    (folder / "experts").mkdir()
    config = json.loads((Path(BIAS) / "config.json").read_text()) | {"num_experts": 8}
    (folder / "experts" / "config.json").write_text(json.dumps(config))
    (folder / "experts" / "model.safetensors").write_bytes((Path(BIAS) / "model.safetensors").read_bytes())
    return {
        "missing": (str(folder / "missing"), "there is no such file or folder"),
        "nothing": ("", "MODEL is empty"),
        "empty": (str(folder / "empty"), "there is no model.safetensors or model.npz in this folder"),
        "text": (str(folder / "text.txt"), "weights are read from a file that ends in .safetensors"),
        "cut": (str(folder / "cut"), "cut off"),
        "contradicts": (str(folder / "contradicts"), "17"),
        "not built": (
            str(folder / "experts"),
            "features that are not supported, so it is not run: a mixture of experts",
        ),
        "long": (str(folder / ("n" * 300)), "File name too long"),
        "under a file": (str(folder / "text.txt" / "model"), "text.txt"),
    }


def test_models_that_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    for path, message in models(tmp_path).values():
        refused(cli("explain", path, "--tokens", "1,2"), message)
        refused(cli("verify", path, "--json"), message)


OTHER = [
    (["count"], "give --heads, e.g. --heads 3,3, or a MODEL"),
    (["explain", BIAS], "give --tokens 1,2,3, --text or --prompts FILE, or a --reference FILE with tokens"),
    (["explain"], "required: MODEL"),
    (["verify"], "give --heads, e.g. --heads 3,3, or a MODEL"),
    (["verify", BIAS, "--heads", "2"], "give either --heads or a MODEL"),
    (["verify", BIAS, "--biases"], "--biases needs --heads"),
    (["verify", BIAS, "--no-scale"], "--no-scale needs --heads"),
    (["verify", BIAS, "--positions", "standard"], "--positions needs --heads"),
    (["verify", "--heads", "2", "--seed", "-1"], "argument --seed: must be a whole number, 0 or more, not '-1'"),
    (
        ["verify", "--heads", "2", "--max-terms", "-1"],
        "argument --max-terms: must be a whole number, 0 or more, not '-1'",
    ),
    (["verify", "--heads", "2", "--seed", "x"], "--seed: must be a whole number, 0 or more, not 'x'"),
    (["verify", "--heads", "2", "--tokens", "11"], "token 11 at position 0 is out of range"),
    (["derive", "--heads", "2", "--standalone", "--json"], "it cannot be used with --format json"),
    (["derive", "--heads", "2", "--standalone", "--format", "text"], "it cannot be used with --format text"),
    (["derive", "--heads", "2", "--standalone", "-o", "a.json"], "it cannot be used with -o a.json"),
    (["derive", "--heads", "2", "--json", "--format", "text"], "--json is the same as --format json"),
    (["derive", "--heads", "2", "--format", "latex", "--json"], "it cannot be used with --format latex"),
    (["derive", "--heads", "2", "--form", "short"], "choose from"),
    (["count", "--heads", "2", "--positions", "learned"], "choose from"),
    (["explain", BIAS, "--tokens", "1,2", "--position", "2"], "position 2 does not exist: there are 2"),
    (["explain", BIAS, "--tokens", "1,2", "--position", "1.5"], "--position: must be a whole number, not '1.5'"),
    (["explain", BIAS, "--tokens", "1,2", "--token", "nan"], "--token: must be a whole number, not 'nan'"),
    (["largest", BIAS, "--tokens", "1,2", "--key", "1.0"], "--key: must be a whole number, not '1.0'"),
    (["explain", BIAS, "--tokens", "1,2", "--token", "11"], "token 11 does not exist: there are 11"),
    (["explain", BIAS, "--tokens", "1,2", "--token", "-1"], "token -1 does not exist"),
    (["explain", BIAS, "--tokens", "1,2", "--row", "1"], "row 1 does not exist: there is 1"),
    (["explain", BIAS, "--tokens", "1,2", "--top", "-1"], "--top: must be a whole number, 0 or more, not '-1'"),
    (["explain", BIAS, "--tokens", "1,2", "--max-terms", "-1"], "--max-terms: must be a whole number"),
    (["explain", BIAS, "--tokens", "1,2", "--queries", ""], "--queries is empty"),
    (["explain", BIAS, "--tokens", "1,2", "--head", "L0H0"], "--head needs --html FILE"),
    (["explain", BIAS, "--tokens", "1,2", "--logit-difference", "3"], "give two tokens, e.g. 26,3"),
    (["explain", BIAS, "--tokens", "1,2", "--logit-difference", "3,x"], "'x' is not a whole number"),
    (["explain", BIAS, "--tokens", "1,2", "--logit-difference", "3,3"], "with itself is 0"),
    (["explain", BIAS, "--tokens", "1,2", "--logit-difference", "3,99"], "the token against 99 does not exist"),
    (["explain", BIAS, "--tokens", "1,2", "--logit-difference", "3,4", "--token", "4"], "is not the first of"),
    (["explain", BIAS, "--tokens", "1,2", "--sort", "difference"], "needs --logit-difference A,B"),
    (["explain", BIAS, "--tokens", "1,2", "--queries", "0,7"], "query 7 does not exist"),
    (["explain", BIAS, "--tokens", "1,2", "--dtype", "int8"], "choose from"),
    (["explain", str(DATA / "tracr_prev_1L"), "--tokens", "1,2", "--token", "0"], "no unembedding"),
    (["explain", str(DATA / "tracr_prev_1L"), "--tokens", "1,2", "--sort", "contribution"], "sort"),
]


@pytest.mark.parametrize(("words", "message"), OTHER)
def test_other_bad_input(cli: Cli, words: list[str], message: str) -> None:
    refused(cli(*words), message)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["demo", "-o", ""], "-o"),
        (["book", "--output="], "-o"),
        (["derive", "--heads", "2", "-o", ""], "-o"),
        (["terms", "--heads", "2", "-o", ""], "-o"),
        (["explain", "", "--tokens", "1"], "MODEL"),
        (["count", ""], "MODEL"),
        (["check", "X0", ""], "MODEL"),
        (["largest", BIAS, "--reference", ""], "--reference"),
        *((["explain", BIAS, "--tokens", "1", o, ""], o) for o in ("--html", "--labels", "--tokenizer", "--prompts")),
    ],
)
def test_an_empty_path_is_refused(
    cli: Cli, words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(cli(*words), f"{named} is empty: give the name of a file or folder")
    assert not list(tmp_path.iterdir())


def test_every_path_of_a_command_is_looked_at() -> None:
    """Options whose value is a file or folder are those that are checked, and those that attach arrays."""
    from symcircuits.cli.output import _READ, _WRITTEN

    parsers = next(iter(parser_of()._subparsers._group_actions)).choices.values()  # type: ignore[union-attr,attr-defined]
    paths = {a.dest for p in parsers for a in p._actions if str(a.metavar).endswith(("FILE", "DIR", "MODEL"))}
    assert paths == {*_READ, *_WRITTEN, "readout"}


@pytest.mark.parametrize(
    "words",
    [["explain", BIAS, "--tokens", "1", "--html", "-"], ["book", "-o", "-"], ["demo", "-o", "-"],
     ["terms", "--heads", "2", "-o", "-"]],
)  # fmt: skip
def test_a_file_cannot_be_standard_output(
    cli: Cli, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(cli(*words), f"{words[-2]} - is not standard output here: give a file name")
    assert not list(tmp_path.iterdir())
    assert cli("derive", "--heads", "1", "-o", "-").out == cli("derive", "--heads", "1").out


@pytest.mark.parametrize(
    "words",
    ["--by direction", "--by direction-difference", "--by masked-norm", "--by score-entry",
     "--by logit --target scores:L1H0", "--by direction --target scores:L1H0", "--by logit --target stream"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["largest", "summary", "sample"])
def test_what_terms_are_not_measured_by_is_said_in_the_words_of_by(cli: Cli, command: str, words: str) -> None:
    by, target = words.split()[1], words.partition(" --target ")[2] or "logits"
    ran = cli(command, BIAS, "--tokens", "1,2", *words.split())
    refused(ran, f"--by {by!r} does not apply to terms of {target}: choose norm")
    assert "sc." not in ran.err


MISSPELT = [
    (["coutn", "--heads", "3"], "unknown command 'coutn' (did you mean count?)"),
    (["explian", "x"], "unknown command 'explian' (did you mean explain?)"),
    (["count", "--haeds", "3"], "count has no option --haeds (did you mean --heads?)"),
    (["count", "--heads", "3", "--jsno"], "count has no option --jsno (did you mean --json?)"),
    (["derive", "--heads", "3", "--standalon=1"], "standalone"),
    (["explain", BIAS, "--tokens", "1", "--querys", "0"], "explain has no option --querys (did you mean --queries?)"),
    (["derive", "--heads", "3", "--output-file", "x"], "--output-file"),
]


@pytest.mark.parametrize(("words", "hint"), MISSPELT)
def test_what_was_meant(cli: Cli, words: list[str], hint: str) -> None:
    refused(cli(*words), hint)


def test_no_hint_where_nothing_is_near(cli: Cli) -> None:
    for words in (["zzz"], ["count", "--heads", "3", "--zzz"], ["count"]):
        assert "did you mean" not in cli(*words).err


@pytest.mark.parametrize(
    "words",
    [
        ["largest", BIAS, "--tokens", "1", "--max-seconds", "-1"],
        ["terms", "--heads", "3,3"],
        ["explain", "--tokens", "1", "--heads", "3,3"],
        ["explain", BIAS, "--tokens", "1", "--heads", "3,3"],
        ["verify", "--heads", "2", "--order", "1"],
        ["derive", "--heads", "2", "--form", "formt"],
    ],
)
def test_no_hint_where_no_option_is_misspelt(cli: Cli, words: list[str]) -> None:
    """Hints are not for words of messages, for options that are known, or for those of another command."""
    ran = cli(*words)
    refused(ran)
    assert "did you mean" not in ran.err


def test_a_misspelt_option_that_is_required_is_hinted_at(cli: Cli) -> None:
    refused(cli("terms", "--heads", "3", "--outptu=x"), "required: -o/--output (--outptu: did you mean --output?)")


def test_a_mistake_of_ours_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMCIRCUITS_DEBUG", "1")
    with pytest.raises(ValueError, match="layer 0"):
        main(["count", "--heads", "-1"])


def test_an_interruption(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("symcircuits.verification.verify.verify", interrupted)
    assert cli("verify", "--heads", "2") == Ran(130, "", "interrupted\n")


# --------------------------------------------------------------------------------------------------- help
def test_help_shows_examples_that_are_understood(cli: Cli) -> None:
    for command in COMMANDS:
        ran = cli(command, "--help")
        assert (ran.code, ran.err) == (0, "")
        said = ran.out.partition("examples:")[2].replace("\\\n      ", "")
        examples = re.findall(r"^  (symcircuits .*)$", said, re.M)
        assert len(examples) >= 2
        for example in examples:
            options = parser_of().parse_args(shlex.split(example)[1:])
            assert options.command == command
        assert ("--json" in ran.out) == (command != "demo")
    top = cli("--help")
    assert (top.code, top.err) == (0, "")
    assert all(f"    {c} " in top.out for c in COMMANDS)


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ([], *([c] for c in commands_of(parser_of()))):
        long = [line for line in cli(*command, "--help").out.splitlines() if len(line) > columns]
        assert not long, (command, long)


def test_what_a_command_does_not_take_is_said_with_who_does(cli: Cli) -> None:
    for words, said in [
        (
            ["verify", "--heads", "2", "--composition", "K"],
            "verify does not take --composition; count, terms, largest, ",
        ),
        (
            ["count", "--heads", "2", "--max-sec", "3"],
            "count does not take --max-seconds; terms, largest, summary and s",
        ),
        (["circuits", "M", "--tokens", "1"], "circuits does not take --tokens; verify, explain, largest, summary and "),
        (["explain", "M", "--key", "1"], "explain does not take --key; largest, summary and sample do"),
        (
            ["count", "--heads", "2", "--tokns", "1"],
            "count has no option --tokns (verify, explain, largest, summary and sample have --tokens)",
        ),
        (["count", "M", "--zzz"], "count has no option --zzz\n"),
        (
            ["terms", "M", "-o", "a.csv", "--topk", "3"],
            "terms has no option --topk (explain, largest and summary have --top)\n",
        ),
        (
            ["explain", "M", "--orders", "3"],
            "explain has no option --orders (count, terms, largest, summary and sample",
        ),
        (["explain", "M", "--threads", "3"], "explain has no option --threads\n"),
        (["largest", "M", "--sort-by", "3"], "largest has no option --sort-by (explain has --sort)\n"),
        (["count", "--compositon", "K", "M"], "count has no option --compositon (did you mean --composition?)\n"),
        (["hlep"], "unknown command 'hlep' (did you mean help?)\n"),
        (["Count"], "unknown command 'Count' (did you mean count?)\n"),
        (["count", "M", "N"], "unexpected argument 'N'"),
        (["--heads", "3,3"], "give a COMMAND before --heads: derive, verify, count, terms, check"),
        (["largest", "--composition", "K"], "required: MODEL\n"),
        (["terms", "--heads", "3,3"], "required: -o/--output\n"),
    ]:
        refused(cli(*words), said)


GROUPS = {
    "selection": {"--order", "--composition", "--through", "--sequence", "--from-source"},
    "prompt": {"--tokens", "--text", "--tokenizer", "--reference"},
    "logit": {"--token", "--against", "--position", "--row", "--logit-difference"},
    "architecture": {"--heads", "--positions", "--norm", "--mlps", "--key-value-heads", "--multipliers"},
    "attachments": {"--readout", "--normed", "--final-norm", "--source"},
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_command_has_all_options_of_a_group_or_none(group: str) -> None:
    """And each is the same option wherever it is: the same value is read, and the same help is shown."""
    seen: dict[str, set[Any]] = {}
    takers = []
    for name, parser in commands_of(parser_of()).items():
        found = {o: a for a in parser._actions for o in a.option_strings if o in GROUPS[group]}
        assert set(found) in (set(), GROUPS[group]), name
        takers += [name] * bool(found)
        for option, action in found.items():
            seen.setdefault(option, set()).add((action.help, action.metavar, action.dest, repr(action.default)))
    assert len(takers) > 2
    assert all(len(said) == 1 for said in seen.values()), seen


@pytest.mark.parametrize("command", ["largest", "summary", "sample", "explain"])
def test_a_logit_difference_is_a_token_against_another(cli: Cli, command: str) -> None:
    words = [command, BIAS, "--tokens", "1,2,3", "--json"]
    by = [] if command == "explain" else ["--by", "logit difference"]
    pair = ["--logit-difference", "2,5"]
    found = cli(*words, *pair).json
    assert found == cli(*words, *by, "--token", "2", "--against", "5").json == cli(*words, *by, *pair).json
    assert found != cli(*words, *by, "--token", "2", "--against", "6").json
    refused(cli(command, BIAS, "--tokens", "1", *pair, "--against", "4"), "--against 4 is not the second of")
    refused(cli(command, BIAS, "--tokens", "1", *pair, "--token", "4"), "--token 4 is not the first of")
    if by:
        refused(
            cli(command, BIAS, "--tokens", "1", *pair, "--by", "norm"), "--logit-difference has no effect with --by"
        )


def test_lists_on_request(cli: Cli) -> None:
    found = cli("derive", "--list-theorems")
    assert (found.code, found.err) == (0, "")
    assert {line.split()[0] for line in found.out.splitlines() if line[0] != " "} == {"name", *sc.theorems()}
    found = cli("terms", "--list-columns")
    assert (found.code, found.err) == (0, "")
    assert {line.split()[0] for line in found.out.splitlines() if line[0] != " "} == {"name", *COLUMNS}
    assert "--list-theorems lists all" in cli("derive", "--theorem", "x").err


def test_without_a_command(cli: Cli) -> None:
    ran = cli()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("usage: symcircuits")
    assert cli("--version") == Ran(0, f"symcircuits {sc.__version__}\n", "")


# ------------------------------------------------------------------------------------ processes and terminals
def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "symcircuits", *words]


def in_a_terminal(columns: int, *words: str, term: str = "dumb", code: int = 0) -> list[str]:
    """The lines of standard output when it is a terminal of so many columns; nothing may stand on standard error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    environment["TERM"] = term
    process = subprocess.Popen(
        command_line(*words), stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(ours)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, b"")
    return seen.decode().replace("\r\n", "\n").splitlines()


def plain(lines: list[str]) -> list[str]:
    """The lines without colour."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def test_tables_of_rich_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colour and rules where the terminal has them, no colour with NO_COLOR, the same words as in plain text."""
    pytest.importorskip("rich", reason="rich is not installed")
    words = ["verify", "--heads", "2", "--target", "logits"]
    shown = in_a_terminal(100, *words, term="xterm-256color")
    assert "\x1b[32mpass\x1b[0m" in "\n".join(shown)
    assert any(set(line) == {"\u2500"} for line in plain(shown))
    dumb = in_a_terminal(100, *words)
    in_words = [sorted(re.findall(r"[A-Za-z]{2,}", " ".join(lines))) for lines in (plain(shown), dumb)]
    assert in_words[0] == in_words[1]
    assert plain(dumb) == dumb
    for columns in (40, 60, 80, 100, 160):
        lines = plain(in_a_terminal(columns, "explain", BIAS, "--tokens", "1,2,3", term="xterm-256color"))
        assert max(map(len, lines)) <= columns
    piped = subprocess.run(command_line(*words), capture_output=True, timeout=60, text=True)
    assert "\x1b" not in piped.stdout
    assert "\u2500" not in piped.stdout


def test_verdicts_and_counts_in_a_terminal_with_rich() -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    for formula, start, colour, code in (("X0 @ W_U.T", "Right: ", "32", 0), ("A[L0H0] @ X0", "Wrong (", "1;31", 1)):
        words = ["check", formula, "--heads", "2", "--convention", "row", "--target", "logits"]
        shown = in_a_terminal(50, *words, term="xterm-256color", code=code)
        assert f"\x1b[{colour}m{start}" in "\n".join(shown)
        assert plain(shown) == in_a_terminal(50, *words, code=code)
        assert max(map(len, plain(shown))) <= 50
    counts = plain(in_a_terminal(50, "count", "--heads", "12,12", term="xterm-256color"))
    assert counts[0] == "logits of attention-only, heads 12,12: 169 terms"
    assert [line.split() for line in counts[-2:]] == [["composition", "none", "25"], ["composition", "V", "144"]]
    assert any(set(line) == {"\u2500"} for line in counts)


def test_a_failed_check_is_red() -> None:
    rich = pytest.importorskip("rich.console", reason="rich is not installed")
    from symcircuits.render.shown import parts_of
    from symcircuits.render.terminal import print_parts

    failed = Check("types", "logits", False, 1, 0, "what")
    console = rich.Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    print_parts(parts_of(Report("x", (failed,), 0.1)), console)
    assert "\x1b[1;31mFAIL\x1b[0m" in console.file.getvalue()
    assert "\x1b[1;31m1 row failed" in console.file.getvalue()


def test_all_fits_a_narrow_terminal() -> None:
    explain = in_a_terminal(60, "explain", BIAS, "--tokens", "1,2,3;4,5,6", "--top", "5")
    assert max(map(len, explain)) <= 60
    assert explain[0].startswith("explain tl_bias_s1: ")
    verify = in_a_terminal(60, "verify", "--heads", "3,3", "--target", "logits", "--target", "scores:L1H0")
    assert max(map(len, verify)) <= 60
    assert verify[0] == "verify attention-only, heads 3,3"
    count = in_a_terminal(60, "count", "--heads", ",".join(["12"] * 20))
    assert max(map(len, count)) <= 60


def test_a_wide_terminal_is_used() -> None:
    lines = in_a_terminal(150, "explain", BIAS, "--tokens", "1,2,3", "--top", "5")
    assert 100 < max(map(len, lines)) <= 150


@pytest.mark.parametrize("words", [["count", "--heads", "3,3"], ["count", "--help"], ["derive", "--heads", "2,2"]])
def test_a_closed_pipe_is_quiet(words: list[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command_line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # the reader has gone before the first word
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), errors) == (141, b"")


def test_a_full_disk_is_said_once() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            ran = subprocess.run(
                command_line("count", "--heads", "2"), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
                env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            )  # fmt: skip
        assert ran.returncode == 2
        assert ran.stderr.decode().splitlines() == [
            "symcircuits count: error: cannot write to standard output: No space left on device"
        ]


def _without(descriptor: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """The command, run by a shell that has closed a descriptor."""
    line = " ".join(map(shlex.quote, command_line(*words))) + f" {descriptor}>&-"
    return subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [["count", "--heads", "3,3"], ["derive", "--heads", "2,2"], ["--version"]])
def test_a_closed_standard_output_is_said(words: list[str]) -> None:
    ran = _without("1", *words)
    command = "symcircuits" if words[0] == "--version" else f"symcircuits {words[0]}"
    assert (ran.returncode, ran.stderr.decode()) == (
        2, f"{command}: error: cannot write to standard output: it is closed\n",
    )  # fmt: skip


@pytest.mark.parametrize("words", [["explain", BIAS, "--prompts", "-"], ["check", "-", "--heads", "2"]])
def test_a_closed_standard_input_is_said(words: list[str]) -> None:
    ran = _without("0", *words)
    assert ran.returncode == 2
    assert f"symcircuits {words[0]}: error: standard input is closed: give " in ran.stderr.decode()


def test_notes_stay_out_of_the_output_where_standard_error_is_closed(tmp_path: Path) -> None:
    words = ["terms", "--heads", "2,2", "--order", "7", "-o", str(tmp_path / "none.csv"), "--json"]
    assert "note: " in subprocess.run(command_line(*words), capture_output=True, timeout=60, check=True).stderr.decode()
    ran = _without("2", *words)
    assert (ran.returncode, json.loads(ran.stdout)["rows"]) == (0, 0)


def test_what_a_command_does_not_know_is_refused_under_its_name(cli: Cli) -> None:
    ran = cli("largest", "model", "--txt", "a")
    assert ran.err.startswith("symcircuits largest: error: largest has no option --txt (did you mean --text?)\n")
    assert ran.err.endswith("See symcircuits largest --help\n")
    assert cli("--nonsense").err.endswith("See symcircuits --help\n")


def test_a_process_exits_with_its_code() -> None:
    for words, code, out in ((["count", "--heads", "2"], 0, b"logits"), (["count", "--heads", "x"], 2, b"")):
        ran = subprocess.run(command_line(*words), capture_output=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout[:6]) == (code, out)
        assert b"Traceback" not in ran.stderr


# ---------------------------------------------------------------------------------------- the general theorem
@pytest.mark.parametrize(("available", "ok", "code"), [(False, False, 2), (True, True, 0), (True, False, 1)])
def test_the_general_theorem_has_the_exit_code_of_its_report(
    available: bool, ok: bool, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        def text(self, width: int) -> str:
            return "what was proved"

        def json(self) -> dict[str, bool]:
            return {"ok": ok}

    Found.available, Found.ok = available, ok  # type: ignore[attr-defined]
    monkeypatch.setattr("symcircuits.verification.coq.check_general", Found)
    assert main(["verify", "--general"]) == code
    assert capsys.readouterr().out == "what was proved\n"
    assert main(["verify", "--general", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"ok": ok}


def test_the_general_theorem_is_about_no_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--general", "--heads", "3,3"]) == 2
    assert "leave out MODEL and --heads" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["--tokens 1", "--reference a.npz", "--target logits", "--max-terms 3", "--max-terms 0", "--seed 0",
     "--readout a.npy", "--source a=a.npy@1", "--normed", "--no-normed", "--final-norm", "--biases", "--norm LN"],
)  # fmt: skip
def test_options_without_effect_on_the_general_theorem_are_refused(
    cli: Cli, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symcircuits.verification.coq.check_general", lambda: pytest.fail("it was compiled"))
    ran = cli("verify", "--general", *words.split())
    refused(ran, words.split()[0], " has no effect with --general")


# -------------------------------------------------------------------------------------------------- check
@pytest.mark.parametrize(
    ("formula", "code", "mistake"),
    [
        ("A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T", 0, None),
        ("A[L0H1] @ X0 @ W_OV[L0H1] @ W_U.T", 1, "transpose"),
        ("A[L0H1] @ X0 @ W_OV[L0H2].T @ W_U.T", 1, "wrong-head"),
    ],
)
def test_check(formula: str, code: int, mistake: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", formula, "--heads", "3,3", "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["right"], found["mistake"]) == ("symcircuits.check/1", not code, mistake)
    assert main(["check", formula, "--heads", "3,3"]) == code
    assert capsys.readouterr().out.splitlines()[1].startswith("Wrong" if code else "Right")


APPENDIX = r"""Some prose, with $X_0$ in it.
\begin{align*}
T &= (I \otimes W_U)\Big(I + \sum_{h=1}^{H} A^h \otimes W_{OV}^h\Big)(I \otimes W_E) \\
  &= I \otimes W_U W_E + \sum_{h=1}^{H} A^h \otimes W_U W_{OV}^h W_E
\end{align*}
"""


def test_check_reads_a_file_and_names_the_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "appendix.tex"
    file.write_text(APPENDIX)
    ran = cli("check", "--file", file, "--heads", "2", "--json")
    assert (ran.code, ran.json["line"], ran.json["lines"]) == (0, None, 2)
    file.write_text(APPENDIX.replace("W_U W_{OV}^h W_E", "W_U W_{OV}^{h\\,T} W_E"))
    ran = cli("check", "--file", file, "--heads", "2", "--json")
    assert (ran.code, ran.json["line"], ran.json["mistake"]) == (1, 2, "transpose")
    refused(cli("check", "--file", tmp_path / "none.tex", "--heads", "2"), "none.tex")
    refused(cli("check", "--heads", "2"), "give a FORMULA, or --file")
    refused(cli("check", "X0", BIAS, "--file", file), "not both")
    refused(cli("check", "X0", "--heads", "2", "--file", file), "give a FORMULA or --file, not both")
    refused(cli("check", BIAS, "X0 @ W_U.T"), "the FORMULA comes first, then the MODEL: there is no 'X0 @ W_U.T'")


def test_check_refuses_hypotheses_where_that_is_asked(cli: Cli) -> None:
    words = ["check", "X0 @ W_QK[L0H0] @ X0.T", "--heads", "1"]
    assert cli(*words).code == 0
    assert "the scores are unscaled" in cli(*words).out
    ran = cli(*words, "--strict", "--json")
    assert (ran.code, ran.json["mistake"]) == (1, "hypothesis")


@pytest.mark.parametrize("formula", ["", "A[L0H1", "A[L0H7] @ X0", "Q[L0H1] @ X0"])
def test_check_says_what_it_cannot_read(formula: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", formula, "--heads", "3,3"]) == 2
    ran = capsys.readouterr()
    assert ran.out == ""
    assert ran.err.startswith("symcircuits check: error: ")


def test_what_is_said_cannot_speak_to_the_terminal(cli: Cli, data: Path, tmp_path: Path) -> None:
    """A name of a folder, of a file to write or of what is not understood may hold anything."""
    folder = tmp_path / "a\x1b[31mb\n<b>$\\evil{%_#&"
    shutil.copytree(data / "tl_bias_s1", folder)
    page = tmp_path / "x\x1b[2J.html"
    for words, code in (
        (["explain", folder, "--tokens", "1,2", "--top", "1", "--html", page], 0),
        (["explain", folder, "--reference", folder / "reference.npz", "--top", "1"], 0),
        (["verify", folder, "--reference", folder / "reference.npz", "--target", "logits"], 0),
        (["explain", folder, "--tokens", "-1,2"], 2),
        (["derive", folder], 0),
    ):
        found = cli(*map(str, words))
        assert found.code == code, found.err
        assert "\x1b" not in found.out + found.err
    assert "\x1b" not in page.read_text("utf-8")
    assert "<b>$" not in page.read_text("utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["explain", BIAS, "--tokens", "1", "--tokens", "2"],
        ["explain", BIAS, "--tokens", "1", "--top", "3", "--top=3"],
        ["explain", BIAS, "--tokens", "1", "--readout", "a.npy", "--readout", "b.npy"],
        ["count", "--heads", "2", "--heads", "3"],
        ["derive", "--heads", "2", "-o", "a", "--output", "b"],
    ],
)
def test_an_option_that_is_given_twice_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "is given twice; it takes one value" in capsys.readouterr().err


def test_an_error_of_the_system_is_told_without_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Any) -> int:
        raise PermissionError(13, "Permission denied", "/a/file")

    monkeypatch.setattr("symcircuits.cli.count.run", run)
    assert main(["count", "--heads", "2"]) == 2
    assert capsys.readouterr().err == "symcircuits count: error: /a/file: Permission denied\n"
