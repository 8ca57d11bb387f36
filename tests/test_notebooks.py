"""What a notebook shows: tables of results, derivations, models; and that no result prints its arrays."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.circuits.report import find_circuits
from symcircuits.core.seam import HIGHER
from symcircuits.zoo import path

PROMPT = [0, 7, 19, 3, 11, 26, 7, 19, 3, 11]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A result of every kind that is shown as tables, by its class."""
    model = sc.load(path())
    run = model.run(PROMPT)
    values, by = sc.evaluate(sc.logits(model), run), sc.logit(26)
    found = [
        values, values.largest(3, by), values.sample(10, by), values.summary(by), values.loss_by_order(),
        values.loss_effects("head"), values.transport(sc.logits(model).through("L1H0")[0]), sc.explain(model, PROMPT),
        sc.explain_many(model, [PROMPT, PROMPT[:4]]), sc.verify(sc.attention_only((1,))), sc.check("X0 @ W_U.T", model),
        sc.remove_heads(run, "L0H2"), sc.remove_scores(run, "L1H0", "K"), sc.composition_scores(model, "K"),
        sc.circuit(model, "OV", "L1H0"), sc.invariances(), find_circuits(model, 2),
    ]  # fmt: skip
    return {type(each).__name__: each for each in found}


class Tags(HTMLParser):
    """The elements that are open, and the words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split() if self.open[-1] != "style" else []


def words_of(shown: str) -> list[str]:
    tags = Tags()
    tags.feed(shown)
    tags.close()
    assert tags.open == []
    return tags.words


def test_tables_hold_what_the_text_says(results: dict[str, Any]) -> None:
    """The same words, but for marks of points; captions say titles again, and some texts show more than a page."""
    for name, result in results.items():
        shown = {*words_of(result._repr_html_())}
        text = {word for word in result.text(10**5).split() if word not in ("-",)}
        assert len(text) > 5
        assert {word.rstrip(":;,.") for word in text} <= {word.rstrip(":;,.") for word in shown} | {""}, name


def test_no_result_prints_its_arrays(results: dict[str, Any]) -> None:
    for name, result in results.items():
        assert "array(" not in repr(result), name
        assert len(re.findall(r"\d\.\d{8,}", repr(result))) == 0, name


def test_most_kinds_are_tried(results: dict[str, Any]) -> None:
    kinds = {method.partition(".")[0] for method in HIGHER if method.endswith(".parts")}
    assert kinds - {*results} == {"Checkpoints", "Heads", "DiagonalScores", "GeneralReport", "Comparison"}


def test_models_and_runs() -> None:
    model = sc.random_model(sc.attention_only((2, 1), positions="standard"), seed=1)
    assert {"Architecture:", "attention-only", "2,", "1", "positions", "standard"} <= {
        *words_of(model.architecture._repr_html_())
    }
    assert {"Model", "d_model", f"{model.d_model}", "numbers,", "float64"} <= {*words_of(model._repr_html_())}
    run = model.run([[1, 2, 3], [3, 2, 1]])
    assert run.logits is not None
    first = int(np.argmax(run.logits[0, -1]))
    shown = words_of(run._repr_html_())
    assert shown[shown.index("next") + 1] == str(first)
    assert " ".join(shown).count("1 2 3 (row 0 of 2)") == 1


def test_names_are_text() -> None:
    model = sc.load(path())
    object.__setattr__(model, "name", "<script>\x1b")
    run = model.run(PROMPT)
    for shown in (model, run, sc.evaluate(sc.logits(model), run), find_circuits(model, 2)):
        assert "<script" not in shown._repr_html_()
        assert "\x1b" not in shown._repr_html_()


@pytest.mark.parametrize("tokens", [[[]], []])
def test_no_token_at_all(tokens: list[Any]) -> None:
    """An empty prompt is refused, or shown."""
    model = sc.load(path())
    try:
        run = model.run(tokens)
    except ValueError:
        return
    assert "Run" in words_of(run._repr_html_())
