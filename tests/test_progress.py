"""Progress: a bar after the first second, where there is a terminal; or a function that is told."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.circuits.report import find_circuits
from symcircuits.cli.main import main
from symcircuits.work import progress
from symcircuits.work.progress import Progress, told_by
from symcircuits.zoo import path


class Terminal(io.StringIO):
    """Standard error that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds since the work began, which tests move."""
    now = [0.0]

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(progress, "time", Clock)
    return now


def screen(monkeypatch: pytest.MonkeyPatch, terminal: bool = True) -> Terminal:
    made = Terminal(terminal)
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_a_bar_is_shown_after_a_second_and_taken_away(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = screen(monkeypatch)
    with Progress() as shown:
        shown.step("terms", 1, 4)
        assert seen.getvalue() == ""
        clock[0] = 1.5
        shown.step("terms", 2, 4)
        assert "terms" in seen.getvalue()
        assert "2/4" in seen.getvalue()
        shown.step("heads", 3, 3)  # of another kind of work, which is done
        shown.step("prompts", 5, 0)  # it is not known how many there are
        assert "prompts: 5it" in seen.getvalue()
    assert seen.getvalue().endswith("\r")
    assert seen.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_quick_work_and_files_show_nothing(clock: list[float], monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    seen = screen(monkeypatch, terminal)
    with Progress() as shown:
        for i in range(10):
            clock[0] += 0.09 if terminal else 9
            shown.step("terms", i, 10)
    assert seen.getvalue() == ""


def test_python_may_ask_for_a_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every function that tells of its progress, where there is no terminal (as in a notebook) too."""
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    values = sc.evaluate(sc.logits(model), model.run([1, 2, 3]))

    def later() -> float:
        clock[0] += 1
        return clock[0]

    monkeypatch.setattr(progress.time, "monotonic", staticmethod(later))
    works: dict[str, Any] = {
        "logits": lambda p: sc.verify(model.architecture, progress=p),
        "writing terms": lambda p: sc.logits(model).export(tmp_path / "a.csv", progress=p),
        "draws": lambda p: values.sample(4, progress=p),
        "terms": lambda p: values.summary(progress=p),
        "scores": lambda p: sc.explain(model, [1, 2], progress=p),
        "prompts": lambda p: sc.explain_many(model, [[1, 2], [2, 3]], progress=p),
        "heads": lambda p: sc.explain(model, [1, 2]).html(progress=p),
        "composition scores": lambda p: find_circuits(model, 2, progress=p),
    }
    for what, work in works.items():
        seen = screen(monkeypatch, terminal=False)
        work(True)
        assert what in seen.getvalue(), what
        seen = screen(monkeypatch, terminal=False)
        work(False)
        assert seen.getvalue() == ""
        with pytest.raises(TypeError, match=r"progress must be True or a function of what, done and total, not 3"):
            work(3)


def test_the_function_that_is_given_is_told() -> None:
    told: list[Any] = []

    def tell(*said: Any) -> None:
        told.append(said)

    assert told_by(tell) is tell
    sc.verify(sc.attention_only((1,)), progress=tell)
    assert len(told) > 5
    assert all(0 < done <= total for _, done, total in told)


def test_circuits_tell_of_all_that_takes_long() -> None:
    told: list[tuple[str, int, int]] = []
    model = sc.load(path())
    found = find_circuits(model, 2, progress=lambda *said: told.append(said))
    last = {what: (done, total) for what, done, total in told}
    assert last == {
        "patterns of prompts": (7, 7), "what heads attend to": (6, 6), "why heads are of kind induction": (3, 3),
        "why heads are of kind duplicate-token": (1, 1), "copying": (6, 6), "composition scores": (3, 3),
        "effects of pairs": (len(found.effects), len(found.effects)), "matching": (3, 3),
    }  # fmt: skip
    assert len(told) == sum(total for _, total in last.values())


def test_the_command_shows_a_bar_in_a_terminal(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock[0] = 0.0

    def later() -> float:
        clock[0] += 1
        return clock[0]

    monkeypatch.setattr(progress.time, "monotonic", staticmethod(later))
    seen = screen(monkeypatch)
    assert main(["circuits", str(path()), "--draws", "2"]) == 0
    assert "composition scores" in seen.getvalue()
    assert seen.getvalue().split("\r")[-2].strip() == ""
    assert capsys.readouterr().out.startswith("circuits of induction")
