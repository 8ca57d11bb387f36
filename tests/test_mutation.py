"""Mutation testing itself: which mutants are made, what is reported, and that a run leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from mutation import mutate
from mutation.mutate import (
    Kind,
    Mutant,
    Quickest,
    Result,
    Sample,
    Tried,
    annotations,
    definition,
    read_diff,
    read_kernel,
    report,
    wanted,
)  # fmt: skip

TESTS = Path(__file__).parent
KERNEL = read_kernel(mutate.KERNEL.read_text("utf-8"))


# --------------------------------------------------------------------------------------- which mutants
def test_types_are_left_as_they_are() -> None:
    source = "class C:\n    x: A | B = 1 | 2\n\n    def f(self, y: A | B = 1 | 2, *z: A | B) -> A | B:\n"
    source += "        return 1 | 2\n"
    spans, seen = annotations(source), []
    for number, line in enumerate(source.splitlines(), 1):
        for found in re.finditer(r"\w \| \w", line):
            inside = any(begin <= (number, found.start() + 2) < end for begin, end in spans)
            seen.append((found[0], inside))
    assert seen == [("A | B" if inside else "1 | 2", inside) for _, inside in seen]
    assert [inside for _, inside in seen] == [True, False, True, False, True, True, False]


@pytest.mark.parametrize(
    ("operator", "made"),
    [
        ("core/ReplaceBinaryOperator_Add_Sub", True),
        ("core/ReplaceBinaryOperator_Add_Pow", False),
        ("core/ReplaceBinaryOperator_BitOr_BitXor", True),
        ("core/ReplaceUnaryOperator_Delete_Not", True),
        ("core/ReplaceUnaryOperator_USub_UAdd", False),
        ("core/ReplaceComparisonOperator_Eq_LtE", True),
        ("core/ReplaceComparisonOperator_Eq_Is", False),
        ("core/ReplaceComparisonOperator_Is_IsNot", True),
        ("core/ReplaceComparisonOperator_IsNot_Lt", False),
        ("core/NumberReplacer", True),
        ("core/RemoveDecorator", True),
    ],
)
def test_operators(operator: str, made: bool) -> None:
    assert wanted(operator) is made


def test_a_diff_is_read() -> None:
    diff = (
        "--- mutation diff ---\n--- asymcircuits/m.py\n+++ bsymcircuits/m.py\n@@ -1,3 +1,3 @@\n"
        " def f(a):\n-    return a - 1\n-\n-# a comment\n+    return a + 1\n "
    )
    assert read_diff(diff) == ("return a - 1", "return a + 1")


def test_the_place_of_a_line() -> None:
    source = (
        "x = 1\n@d\nclass C:\n    @e(\n    1)\n    def f(self):\n        def g():\n            return 1\n\n    y = 2\n"
    )
    places = ["", "C", "C", "C.f", "C.f", "C.f", "C.f.g", "C.f.g", "C", "C"]
    assert [definition(source, line) for line in range(1, 11)] == places


def test_a_sample_is_drawn_again_by_its_seed() -> None:
    drawn = Sample(30, 1).of("core/walk", 200)
    assert len(drawn) == 30
    assert drawn <= set(range(200))
    assert drawn == Sample(30, 1).of("core/walk", 200)
    assert drawn not in (Sample(30, 2).of("core/walk", 200), Sample(30, 1).of("core/paths", 200))
    assert Sample(30, 1).of("core/walk", 7) == set(range(7))
    assert Sample(29, 1).of("core/walk", 200) < drawn


def test_the_quickest_tests_of_each_file_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mutate.TIMES.write_text('{"b::slow": 3.0, "b::quick": 0.1, "a::x": 9.0}', "utf-8")
    items = [SimpleNamespace(nodeid=name, path=name[0]) for name in ("b::slow", "b::quick", "a::x", "a::new")]
    Quickest().pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["b::quick", "b::slow", "a::new", "a::x"]


def test_what_killed_mutants_is_run_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By mutants a second, so that a slow test of few mutants does not stand before a quick one of many."""
    monkeypatch.chdir(tmp_path)
    mutate.TIMES.write_text('{"a::x": 0.1, "b::slow": 3.0, "b::quick": 0.2}', "utf-8")
    items = [SimpleNamespace(nodeid=name, path=name[0]) for name in ("a::x", "b::slow", "b::quick")]
    for name, failed in (("b::slow", True), ("b::slow", True), ("b::quick", True), ("a::x", False)):
        Quickest().pytest_runtest_logreport(SimpleNamespace(nodeid=name, failed=failed))
    Quickest().pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["b::quick", "b::slow", "a::x"]


# ------------------------------------------------------------------------------------------- the report
ONE, TWO = Mutant("m", "f", "a < b", 'a <= "b"', 3), Mutant("m", "g", "x = 1", "x = 2", 9)


def test_survivors_are_counted_unless_they_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [Result(ONE, "survived"), Result(TWO, "survived"), Result(TWO, "timed out"), Result(TWO, "killed")]
    found = {"m": Tried(outcomes, 9)}
    elsewhere = Kind("elsewhere", "not looked at", (Mutant("other", "f", "a", "b"),))
    assert report(found, [elsewhere]) == 2
    shown = capsys.readouterr().out
    assert re.search(r"^all +9 +4 +1 +1 +2$", shown, re.MULTILINE)
    assert 'symcircuits/m.py:3 in f\n- a < b\n+ a <= "b"\n' in shown
    assert "elsewhere" not in shown
    assert report(found, [Kind("bounds", "never equal", (ONE._replace(line=0),))]) == 1
    shown = capsys.readouterr().out
    assert "Accepted, bounds: never equal (1)\nsymcircuits/m.py:3 in f\n" in shown
    assert "Survivors without a reason (1)\nsymcircuits/m.py:9 in g\n" in shown
    assert report(found, [Kind("all", "why", (ONE, TWO))]) == 0
    assert "without a reason" not in capsys.readouterr().out


def test_what_is_killed_at_last_need_not_be_accepted_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    accepted = [Kind("bounds", "never equal", (ONE, TWO))]
    for there, entries in ((1, [ONE, TWO]), (2, [ONE])):  # what is not in a sample may be alive
        assert report({"m": Tried([Result(ONE, "killed")], there)}, accepted) == 0
        listed = "\n".join(m.entry for m in entries)
        title = f"No survivors any more, to be taken out of kernel.toml (bounds) ({len(entries)})"
        assert capsys.readouterr().out.endswith(f"{title}\n{listed}\n")


def test_an_entry_is_read_as_it_is_printed() -> None:
    text = "[modules]\nm = ['t.py']\n[[accepted]]\nkind = 'k'\nreason = 'r'\nmutants = [\n"
    kernel = read_kernel(text + ONE.entry + "\n" + TWO.entry + "\n]\n")
    assert [m.key for m in kernel.accepted[0].mutants] == [ONE.key, TWO.key]
    assert kernel.modules == {"m": ("t.py",)}


def test_what_is_accepted_is_of_the_kernel_and_has_a_reason() -> None:
    keys = [m.key for kind in KERNEL.accepted for m in kind.mutants]
    assert len(keys) == len(set(keys))
    assert {key[0] for key in keys} <= set(KERNEL.modules)
    assert all(kind.reason and kind.mutants for kind in KERNEL.accepted)
    assert all(m.was != m.now for kind in KERNEL.accepted for m in kind.mutants)
    for test in (t for own in KERNEL.modules.values() for t in own):
        for place in (word for word in test.split() if word != "--deselect"):
            file, _, name = place.partition("::")
            assert name.partition("[")[0] in (TESTS.parent / file).read_text("utf-8")


def test_what_is_accepted_is_there_to_be_mutated() -> None:
    """An entry of lines that were changed since says nothing: it is to be taken out, or tried again."""
    for mutant in (m for kind in KERNEL.accepted for m in kind.mutants):
        source = (TESTS.parent / "symcircuits" / f"{mutant.module}.py").read_text("utf-8")
        was, lines = set(mutant.was.splitlines()), [line.strip() for line in source.splitlines()]
        assert was <= set(lines), mutant.entry
        assert mutant.inside in {definition(source, i) for i, line in enumerate(lines, 1) if line in was}, mutant.entry


def test_the_page_names_the_kinds_of_survivors() -> None:
    text = (TESTS.parent / "docs" / "mutation.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| \d+ \| ([^|]+) \|$", text, re.MULTILINE)
    assert rows == [(kind.name, kind.reason) for kind in KERNEL.accepted]


# ---------------------------------------------------------------------------------------- whole runs
def project(folder: Path, test: str, accepted: str = "") -> Path:
    """A small project with one module, one test and the command."""
    files = {
        "symcircuits/__init__.py": "",
        "symcircuits/small.py": "def least(a: int, b: int | float) -> int:\n    return a if a < b else b\n",
        "tests/test_small.py": f"from symcircuits.small import least\n\n\ndef test_least():\n    {test}\n",
        "tests/mutation/mutate.py": Path(mutate.__file__).read_text("utf-8"),
        "tests/mutation/kernel.toml": "[modules]\nsmall = ['tests/test_small.py']\n" + accepted,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def started(folder: Path, temporary: Path, *options: str) -> subprocess.Popen[str]:
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "tests/mutation/mutate.py", *options]
    env = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


ACCEPTED = """[[accepted]]
kind = 'equal'
reason = 'of two equal numbers either is the least'
mutants = [
  { module = "small", inside = "least", was = "return a if a < b else b", now = "return a if a <= b else b" },
]
"""
GONE = "No survivors any more, to be taken out of kernel.toml (equal) (1)"
# a test that tells one of two equal numbers from the other
STRICT = "assert (least(1, 2), least(2, 1)) == (1, 1) and type(least(1, 1.0)) is float"
WEAK = "6        6        0          0         6\n\nSurvivors without a reason (6)\nsymcircuits/small.py:2"


KILLING = "assert (least(1, 2), least(2, 1)) == (1, 1)"
EQUAL = "Accepted, equal: of two equal numbers either is the least (1)"


@pytest.mark.parametrize(
    ("test", "options", "code", "said"),
    [
        (KILLING, "", 0, EQUAL),
        (STRICT, "", 0, GONE),
        (STRICT, "--new", 0, EQUAL),
        (KILLING, "--sample 4 --seed 3", 0, "all                             6        4"),
        ("assert least(1, 1) == 1", "", 1, WEAK),
        ("assert least(1, 2) == 2", "", 2, "the tests must pass before mutants are tried on them."),
    ],
    ids=["gap accepted", "no gap", "not tried again", "sample", "gaps", "wrong from the start"],
)
def test_a_run(tmp_path: Path, test: str, options: str, code: int, said: str) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")
    folder = project(tmp_path / "project", test, ACCEPTED if code == 0 else "")
    before = content(folder)
    process = started(folder, tmp_path / "temporary", *options.split())
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    assert said in out + err
    assert content(folder) == before
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="there the clock alone bounds a mutant")
@pytest.mark.parametrize(
    ("test", "said"),
    [("while least(1, 2): pass", "mutate: out of time"), ("assert len(bytes(8 << 30)) == 1", "MemoryError")],
    ids=["time", "memory"],
)
def test_a_mutant_that_never_ends_is_ended(tmp_path: Path, test: str, said: str) -> None:
    folder = project(tmp_path, test)
    command = [sys.executable, "tests/mutation/mutate.py", "--against", "small", "--seconds", "2"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert said in done.stdout


def test_the_tests_are_never_run_on_another_copy(tmp_path: Path) -> None:
    folder, other = project(tmp_path / "one", "assert least(1, 2) == 1"), project(tmp_path / "two", "pass")
    command = [sys.executable, "tests/mutation/mutate.py", "--against", "small"]
    for path, code in ((folder, 0), (other, 2)):
        env = {**os.environ, "PYTHONPATH": str(path)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("instead of the copy in" in done.stderr) == (code == 2)


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")
    note = tmp_path / "number of the process"
    endless = f"""assert least(1, 2) == 1
    import os, pathlib, time
    if "mutants" in os.getcwd():
        pathlib.Path({str(note)!r}).write_text(str(os.getpid()))
        time.sleep(600)
"""
    folder = project(tmp_path / "project", endless)
    before = content(folder)
    process = started(folder, tmp_path / "temporary")
    assert within(60, lambda: note.exists() and note.read_text() != "")
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert content(folder) == before
    assert list((tmp_path / "temporary").iterdir()) == []
    assert within(10, lambda: not running(int(note.read_text())))


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def running(number: int) -> bool:
    """Whether the process is there and no mere entry that nobody has asked about."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{number}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
