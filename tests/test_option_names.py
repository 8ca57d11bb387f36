"""Messages call arguments what the caller calls them: options on the command line, their own names in Python."""

import ast
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import BIAS, DATA, Cli, cli, refused

import symcircuits as sc
from symcircuits.cli.parser import _options, commands_of, parser_of
from symcircuits.core.budgets import Ended, told

__all__ = ["cli"]  # a fixture
PACKAGE = Path(sc.__file__).parent
COMMANDS = commands_of(parser_of())
NORMS = str(DATA / "tl_ln_s2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "probe.npy", np.ones(16))
    return tmp_path


# -------------------------------------------------------------------------------- one message, two callers
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("count --heads 4,4 --key-value-heads 2", "key/value heads are listed for 1 layer, but heads for 2"),
        ("count --heads 2 --through query:L0H0", "side 'query' of logits does not exist: only scores have sides"),
        (f"summary {BIAS} --tokens 1 --start 99", "--start 99 and --stop "),
        ("terms --heads 2 -o FOLDER/a.csv --stop 4", "--start 0 and --stop 4 are not a range of the 3 terms of logits"),
        ("terms --heads 99,99,99,99,99,99,99 -o FOLDER/a.csv", "select some (--order, --through, ...), a range, or a"),
        (f"largest {BIAS} --tokens 1;2 --by logit", "--row is required: the run is a batch of 2 rows"),
        (f"sample {BIAS} --tokens 1 --target readout:x", "no readout 'x': none is attached to the model"),
        ("derive --heads 300,300", "use the generic form (--form generic), or derive a smaller model"),
        ("check OV[L0H0] --heads 2 --convention paper", "OV is TransformerLens's (--convention transformerlens)"),
        ("terms --heads 2 -o FOLDER/a.csv --max-memory 1", "--max-memory 1 bytes is not enough: this export takes"),
        (f"sample {BIAS} --tokens 1 --draws 99999999 --max-memory 1MB", "and --max-memory is 0.954 MiB: draw fewer"),
        ("verify --heads 99,99,99,99,99,99,99 --max-terms 99999999999999999", "too many to list: give a smaller --max"),
        (f"explain {NORMS} --tokens 1 --readout FOLDER/probe.npy", "--normed (the output of the norm final) or"),
        (f"explain {NORMS} --tokens 1 --readout FOLDER/probe.npy", "as it stands), or --final-norm (the final"),
        (f"explain {BIAS} --tokens 1 --readout FOLDER/probe.npy --normed", "'probe': --normed, but the model has no"),
        (f"largest {BIAS} --tokens 1 --readout FOLDER/probe.npy --final-norm", "'probe': --final-norm, but the model"),
    ],
)  # fmt: skip
def test_the_command_line_is_told_of_its_options(cli: Cli, folder: Path, words: str, message: str) -> None:
    ran = cli(*words.replace("FOLDER", str(folder)).split(" "))
    assert ran.code in (1, 2)
    assert message in " ".join((ran.out + ran.err).split())


def test_python_is_told_of_its_arguments(folder: Path) -> None:
    plain, normed = sc.attention_only((2,)), sc.load(NORMS)
    run = sc.random_model(plain).run([1])
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: sc.derive(sc.attention_only((300, 300))), 'use the generic form (form="generic"), or'),
        (lambda: sc.logits(plain).export(folder / "a.csv", max_memory=1), "max_memory 1 bytes is not enough"),
        (lambda: sc.evaluate(sc.logits(plain), run).sample(99999999, max_memory=1), "max_memory is 1 byte: draw"),
        (lambda: normed.with_(sc.readout(np.ones(16))), 'normed=False (the stream as it stands), or normed="final"'),
        (lambda: sc.logits(plain).export(folder / "a.csv", stop=4), "start 0 and stop 4 are not a range of"),
        (lambda: sc.logits(plain).where([]), "give a composition type, e.g. where(composition='K'), or several"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            call()
        assert "--" not in str(caught.value)
    with pytest.raises(ValueError, match=re.escape('OV is TransformerLens\'s (convention="transformerlens")')):
        sc.check("OV[L0H0]", plain, convention="paper")


def test_a_budget_is_called_what_the_caller_calls_it(cli: Cli, tmp_path: Path) -> None:
    words = ["terms", "--heads", "2,2", "-o", str(tmp_path / "a.csv"), "--max-terms", "2"]
    ran = cli(*words)
    assert ran.code == 3
    said = " ".join(ran.err.split())
    assert said.startswith("stopped at --max-terms (2): 2 of 9 terms written to ")
    assert said.endswith("rerun with --resume to continue")
    refused(cli(*words), "continue it with --resume, or remove a.csv.part")
    with pytest.raises(ValueError, match="continue it with resume=True, or remove"):
        sc.logits(sc.attention_only((2, 2))).export(tmp_path / "a.csv")
    assert cli(*words, "--resume", "--json").json["stopped"] == "max_terms (2)"  # as in Python: data, and no message
    words = ["summary", BIAS, "--tokens", "1", "--max-terms", "2"]
    assert "  - --max-terms (2) reached; --start 2 continues from there\n" in cli(*words).out
    assert cli(*words, "--json").json["reached"] == "max_terms (2)"
    run = sc.random_model(sc.attention_only((2,))).run([1])
    found = sc.evaluate(sc.logits(run.model.architecture), run).summary(max_terms=2)
    assert "  - max_terms (2) reached; start 2 continues from there\n" in found.text()
    assert found.reached == "max_terms (2)"


def test_a_budget_that_ended_work_is_pickled() -> None:
    found = pickle.loads(pickle.dumps(Ended("max_terms", "2")))
    assert found == told(found) == told("max_terms (2)") == "max_terms (2)"
    assert isinstance(found, Ended)


# ------------------------------------------------------------------------------------- every option of every command
BASE = {
    "derive": "--heads 2,2", "verify": "--heads 1 --max-terms 5", "count": "--heads 2,2",
    "terms": "--heads 2,2 -o FOLDER/a.csv", "check": "X0 --heads 2,2", "explain": f"{BIAS} --tokens 1,2",
    "largest": f"{BIAS} --tokens 1,2", "summary": f"{BIAS} --tokens 1,2", "sample": f"{BIAS} --tokens 1,2",
    "book": "-o FOLDER/book", "demo": "-o FOLDER/demo", "circuits": f"{BIAS} --draws 2",
    "completion": "fish",
}  # fmt: skip
BAD = ("", "-1", "nan", "1", "L9H9", "9" * 5000, "x@" + "9" * 5000, "a=b@99999999999")
WORK = {"derive", "verify", "book", "demo", "circuits"}  # commands that take long where a value is not refused
LONG = {
    "--workers",
    "--scheduler",
    "--output",
}  # options whose values start processes, wait for a network, or are files


def options_with_a_value(command: str) -> list[str]:
    actions = COMMANDS[command]._actions
    return [a.option_strings[-1] for a in actions if a.option_strings and a.nargs != 0 and not a.choices]


def names_in_python(command: str) -> re.Pattern[str]:
    """What no message of a command may hold: an argument's name where it is not written as the option is."""
    names = {a.dest for a in COMMANDS[command]._actions}
    snakes = "|".join(sorted(n for n in names if "_" in n)) or "(?!)"
    return re.compile(rf"\b(?:{snakes})\b|\b(?:{'|'.join(sorted(names))})=")


@pytest.mark.parametrize("command", BASE)
def test_no_message_of_a_command_speaks_python(
    cli: Cli, folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = names_in_python(command)
    monkeypatch.chdir(folder)  # some values name a file that is written
    for option in set(options_with_a_value(command)) - LONG:
        for value in BAD[:3] if command in WORK else BAD:
            words = BASE[command].replace("FOLDER", str(folder)).split(" ")
            if option in words:
                del words[words.index(option) : words.index(option) + 2]
            ran = cli(command, *words, f"{option}={value}")
            said = ran.err.replace(value, "") if value else ran.err
            assert ran.code in (0, 1, 2, 3)
            assert not python.search(said), said
            for ours in ("Exceeds the limit", "set_int_max_str_digits", "invalid read value", "Errno"):
                assert ours not in said
    assert set(BASE) == set(COMMANDS)


def test_the_pattern_sees_python() -> None:
    assert names_in_python("terms").search("max_terms (0) reached")
    assert names_in_python("terms").search("the same again with resume=True goes on")
    assert not names_in_python("terms").search("--max-terms (0) reached; --resume goes on")


@pytest.mark.parametrize("digits", [4001, 5000])
def test_a_number_of_thousands_of_digits_is_refused_in_a_line(cli: Cli, folder: Path, digits: int) -> None:
    long = "9" * digits
    said = f"the number has {digits:,} digits, more than the limit of 4,000"
    for words in (
        ["explain", BIAS, "--tokens", "1", "--top", long], ["explain", BIAS, "--tokens", f"1,{long}"],
        ["explain", BIAS, "--tokens", "1", "--position", f"-{long[1:]}"], ["count", "--heads", long],
        ["count", "--heads", "2", "--order", f"0,{long}"], ["summary", BIAS, "--tokens", "1", "--start", long],
        ["terms", "--heads", "2", "-o", "a.csv", "--workers", long],
    ):  # fmt: skip
        ran = cli(*words)
        refused(ran, said)
        assert len(ran.err) < 400
    for option in ("--source", "--readout"):
        refused(cli("explain", BIAS, "--tokens", "1", option, f"a={folder / 'probe.npy'}@{long}"), option, said)


def test_only_the_command_line_names_options() -> None:
    """Elsewhere a message asks what the caller calls an argument (core.text), and writes no option."""
    options = {o for parser in COMMANDS.values() for o in _options(parser) if o.startswith("--")}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        holders = (ast.FunctionDef, ast.ClassDef, ast.Module)
        docs = {
            id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, holders) and isinstance(n.body[0], ast.Expr)
        }
        texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        said = {o for n in texts if id(n) not in docs for o in re.findall(r"--[a-z][a-z-]*", n.value)}
        # a program of its own, and the page of the book that says how to make it again
        if path.parent.name != "cli" and path.name not in ("train.py", "introduction.py"):
            found += [f"{path.name}: {option}" for option in sorted(said & options)]
    assert found == []


# ------------------------------------------------------------------------------------------------- sides of scores
def test_heads_of_a_side_of_scores(cli: Cli) -> None:
    words = ["count", "--heads", "2,2,2,2", "--target", "scores:L3H0"]
    refused(cli(*words, "--sequence", "L0H0,L1H0,L2H0"), 'more than two heads needs its side, "query" or "key"')
    scores = sc.scores(sc.attention_only((2, 2, 2, 2)), "L3H0")
    for side in ("query", "key"):
        found = cli(*words, "--sequence", f"{side}:L0H0,L1H0,L2H0", "--json").json["count"]
        assert found == scores.through_sequence("L0H0", "L1H0", "L2H0", side=side).count
        found = cli(*words, "--through", f"{side}: L0H0, L1H1", "--json").json["count"]
        assert found == scores.through(["L0H0", "L1H1"], side).count
    refused(cli(*words, "--through", "left:L0H0"), "side 'left' of scores:L3H0 does not exist")
