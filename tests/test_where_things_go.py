"""That each thing has one place to be added: a weight layout and a command, added here by one row each."""

import argparse
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits import loaders
from symcircuits.cli import parser
from symcircuits.cli.main import main
from symcircuits.loaders.layout import Layout
from symcircuits.loaders.stored import Stored
from symcircuits.model import Model


def test_a_weight_layout_is_a_file_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def recognises(names: Iterable[str]) -> bool:
        return any(name.startswith("toy.") for name in names)

    def read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
        weights = {n.removeprefix("toy."): w for n, w in stored.weights.items()}
        return Model(sc.attention_only((), None, scale=False), weights, name=name)

    arrays = {"toy.W_E": np.ones((2, 5)), "toy.W_U": np.ones((5, 2))}
    with pytest.raises(ValueError, match="no layout that is known"):
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
