"""README says what is true: every Python block and every command of its tour is run, and its output compared."""

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Document, Sybil
from sybil.example import Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from symcircuits.cli.main import main
from symcircuits.zoo import path

README = Path(__file__).parent.parent / "README.md"
# Seconds and rounding errors differ from machine to machine; everything else is compared to the letter.
VARIES = re.compile(r"\d(?:\.\d+)?e-1\d\b|\(\d+\.\d s\)")


def plain(text: str) -> list[str]:
    """The words: where a line is broken depends on the width of the numbers before it."""
    return VARIES.sub("#", text).split()


class Console:
    """Runs ``$ symcircuits ...`` and compares what it prints; MODEL stands for the model that the package ships."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, example: Example) -> str:
        command, _, expected = example.parsed.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "symcircuits", command
        self.capture.readouterr()
        code = main([str(path()) if a == "MODEL" else a for a in arguments])
        printed = self.capture.readouterr().out.replace(str(path()), "MODEL")
        assert code == 0
        return "" if plain(printed) == plain(expected) else f"{command} printed\n{printed}"


def examples(capture: pytest.CaptureFixture[str]) -> Iterator[Example]:
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS),
        CodeBlockParser("console", Console(capture)),
    ]
    document: Document = Sybil(parsers=parsers).parse(README)
    yield from document.examples()


def test_every_example_of_the_tour(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = set()
    for example in examples(capsys):
        example.evaluate()
        kinds.add(type(example.region.evaluator).__name__)
    assert kinds >= {"Console", "DocTestEvaluator"}, f"README lost its Python blocks or its commands: {kinds}"


def test_the_two_commands_stand_there() -> None:
    commands = re.findall(r"^python3 go\.py .*$", README.read_text("utf-8"), re.MULTILINE)
    assert commands == ["python3 go.py demo", "python3 go.py test"]
