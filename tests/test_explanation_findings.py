"""The sentences on a page of explain: made from its numbers, each with evidence in the page."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures, examples

import symcircuits as sc
from symcircuits.explanation.explain import Explanation
from symcircuits.render.explanation_findings import findings_of
from symcircuits.render.html_heads import head_changes, removals_of
from symcircuits.zoo import path

PROMPT = [0, 7, 19, 3, 11, 26, 7, 19, 3, 11]


def said_of(found: Explanation) -> list[str]:
    return [one.said for one in findings_of(found, lambda: head_changes(found, removals_of(found), []))]


def near(text: str, value: float) -> bool:
    """Is the number that is printed that number, to its four digits?"""
    return bool(np.isclose(float(text), value, rtol=1e-3, atol=1e-12))


def test_the_numbers_are_those_of_the_run() -> None:
    model = sc.load(path())
    run = model.run(PROMPT)
    assert run.logits is not None
    found = sc.explain(run)
    terms, orders, look, removal = said_of(found)
    row = run.logits[-1]
    logit, whole, rest = re.findall(r"is (\S+), (\S+) above .* add (\S+)\.", terms)[0]
    assert near(logit, row[26])
    named = re.findall(r"(embed(?: -> \w+)*) \((\S+)\)", terms)
    values = {term.label: value[-1, 26] - value[-1].mean() for term, value in zip(
        sc.logits(model), sc.evaluate(sc.logits(model), run), strict=True)}  # fmt: skip
    assert [label for label, _ in named] == sorted(values, key=lambda label: -abs(values[label]))[:3]
    assert all(near(number, values[label]) for label, number in named)
    assert near(whole, row[26] - row.mean())
    assert near(rest, row[26] - row.mean() - sum(values[label] for label, _ in named))
    assert "the other 13 terms together add" in terms
    by_order = sc.evaluate(sc.logits(model), run).by_order()
    for order, number in re.findall(r"through (\d) heads? ([^ ,]+?)[,.](?: |$)", orders):
        assert near(number, by_order[int(order)][-1, 26] - by_order[int(order)][-1].mean())
    pattern = run.patterns["L1H0"][-1]
    assert f"position {int(pattern.argmax())} (26), with weight {pattern.max():.2f}" in look
    assert f"K-composition makes {100 * (found.scores['L1H0'].shares['K'] or 0):.0f} %." in look
    gone = sc.remove_heads(run, "L0H2")
    whole, frozen = re.findall(
        r"one by one, L0H2 changes the logit itself most: by (\S+); with .* by (\S+)\. ", removal
    )[0]
    assert removal.endswith("The rest comes from what then changes: patterns of later heads.")
    assert near(whole, gone.change[-1, 26])
    assert near(frozen, gone.value_part[-1, 26])
    others = [abs(sc.remove_heads(run, head).change[-1, 26]) for head in run.patterns]
    assert abs(gone.change[-1, 26]) == pytest.approx(max(others))


def test_differences_readouts_and_streams() -> None:
    model = sc.random_model(sc.attention_only((2, 2), "standard"), seed=3)
    two = said_of(sc.explain(model, [1, 4, 2], by=sc.logit(5, against=7)))
    assert two[0].startswith("The difference between the logit of token 5 at position 2 and the logit of token 7 is ")
    assert " changes the difference most: by " in two[-1]
    probe = model.with_(sc.readout(np.ones(model.d_model), "probe")).run([1, 4, 2])
    read = said_of(sc.explain(sc.evaluate(sc.expand(probe.model, "readout:probe"), probe)))
    assert read[0].startswith("The value of readout probe at position 2 is ")
    stream = sc.random_model(sc.attention_only((1,), unembed=False), seed=3)
    assert said_of(sc.explain(stream, [1, 2])) == []
    assert "No number was chosen" in sc.explain(stream, [1, 2]).html()


def test_what_was_misleading() -> None:
    """A number below the mean, terms of either sign, no weights without softmax, no choice of keys, no response."""
    model = sc.load(path())
    below = sc.explain(model, [PROMPT, PROMPT[::-1]], by=sc.logit(26, row=1))
    terms = said_of(below)[0]
    assert below.centred is not None
    assert below.centred < 0
    assert " below the mean of all outputs" in terms
    sizes = [abs(float(row.centred or 0)) for row in below.rows]
    assert sizes[0] == max(sizes)
    assert all(row.label in terms for row in below.rows[:3])
    raw = sc.random_model(sc.attention_only((2, 2), softmax=False), seed=3)
    assert not any("looks most" in said for said in said_of(sc.explain(raw, [1, 2, 3])))
    small = sc.random_model(sc.attention_only((2, 2)), seed=3)
    assert not any("looks most" in said for said in said_of(sc.explain(small, [1])))
    alone = said_of(sc.explain(sc.random_model(sc.attention_only((2,)), seed=1), [1, 2, 3]))
    assert not any("The rest" in said for said in alone)
    normed = said_of(sc.explain(sc.random_model(sc.transformer((2,), norm="LN"), seed=2), [1, 2, 3, 4]))[-1]
    assert "patterns of later heads" not in normed
    assert "MLPs" not in normed
    by_norm = said_of(sc.explain(small, [1, 2, 3], sort="norm"))
    assert re.fullmatch(r"The logit of token \d+ at position 2 is \S+\.", by_norm[0])
    assert said_of(sc.explain(small, [1, 2, 3], top=0))[0].count("largest") == 0
    one = said_of(sc.explain(sc.random_model(sc.attention_only((1,)), d_vocab=1, seed=1), [0, 0]))
    assert "0 above the mean of all outputs" in one[0]


@examples(25)
@given(architectures(max_layers=2, max_heads=2, max_terms=100), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_every_page_has_the_evidence(arch: Any, tokens: list[int]) -> None:
    page = sc.explain(sc.random_model(arch, seed=1, d_vocab=4), tokens).html()
    section = page.partition('<h2 id="findings">')[2].partition("</section>")[0]
    for name in re.findall(r'href="#(.*?)"', section):
        assert f'<h2 id="{name}">' in page
    assert "nan" not in section
    assert "None" not in section
