"""That each thing has one place to be added: a layout, a command, a format, a statistic, a check, added by rows."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits import loaders
from symcircuits.cli import parser
from symcircuits.cli.main import main
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing import text
from symcircuits.derivation.printing.formats import FORMATS, Format
from symcircuits.loaders.layout import Layout
from symcircuits.loaders.stored import Stored
from symcircuits.model import Model
from symcircuits.values.engine import Engine, Ranges, Span
from symcircuits.values.measure import KINDS, Kind, Measure
from symcircuits.values.measured import MEASURES, Reduction


def test_a_weight_layout_is_a_file_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def recognises(names: Iterable[str]) -> bool:
        return any(name.startswith("toy.") for name in names)

    def read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
        weights = {n.removeprefix("toy."): w for n, w in stored.weights.items()}
        return Model(sc.attention_only((), None, scale=False), weights, name=name)

    arrays = {"toy.W_E": np.ones((2, 5)), "toy.W_U": np.ones((5, 2))}
    with pytest.raises(ValueError, match="unknown layout of weights"):
        sc.from_arrays(arrays, {})
    monkeypatch.setattr(loaders, "LAYOUTS", (*loaders.LAYOUTS, Layout("toy", recognises, read)))
    run = sc.from_arrays(arrays, {}).run([4])
    assert np.array_equal(sc.evaluate(sc.logits(run.model.architecture), run).total(), run.logits)


def test_a_command_is_a_file_and_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def add_options(one: Any) -> None:
        one.add_argument("--twice", action="store_true")

    def run(options: argparse.Namespace) -> int:
        print("hello " * (1 + options.twice))
        return 0

    module = SimpleNamespace(HELP="say hello", EXAMPLES="  symcircuits hello", add_options=add_options, run=run)
    monkeypatch.setitem(parser.COMMANDS, "hello", lambda: module)
    assert main(["hello", "--twice"]) == 0
    assert capsys.readouterr().out == "hello hello \n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "say hello" in capsys.readouterr().out


def test_a_format_of_derivations_is_a_function_and_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def headings(derivation: Derivation) -> str:
        return "".join(f"* {step.kind}\n" for step in derivation.steps)

    monkeypatch.setitem(FORMATS, "org", Format(suffix=".org", derivation="derivation.printing.text.headings"))
    monkeypatch.setattr(text, "headings", headings, raising=False)
    derivation = sc.derive(sc.attention_only((1,)))
    assert derivation.save(tmp_path / "a.org").read_text("utf-8").count("* ") == len(derivation.steps)
    assert main(["derive", "--heads", "1", "--format", "org"]) == 0
    assert capsys.readouterr().out.startswith("* ")


def test_a_statistic_of_terms_is_a_function_and_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of all entries of a term, on a run and in arrays of another library, by ``measure`` and ``summary``."""

    def sums(values: Engine, by: Measure) -> Ranges:
        paths, weights = values.paths(0), values.expansion._weights

        def numbers(terms: range, span: Span) -> Iterator[Any]:
            return (piece.values.sum(-1).sum(-1).reshape(len(piece.marks), -1) for piece in paths.pieces(weights, span))

        return numbers

    monkeypatch.setitem(KINDS, "sum", Kind(("logits", "stream"), "a sum", "sum of all entries"))
    monkeypatch.setitem(MEASURES, "sum", Reduction("the sum", sums))
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([[1, 2, 3], [4, 5, 6]])
    values, by = sc.evaluate(sc.logits(run.model), run), Measure(kind="sum")
    wanted = np.array([value.sum((-1, -2)) for value in values])
    for engine in (values, sc.evaluate(sc.logits(run.model), run.to(np.zeros(1)))):
        [block] = engine.measure(by)
        assert np.allclose(block.values, wanted)
    assert len(values.summary(Measure(kind="sum", row=1), top=3).terms) == 3
