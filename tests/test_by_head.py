"""The terms through each head, all heads by one walk, held to one selection for each and to the forward pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.values.by_head import through_each_head


@given(architectures(max_layers=3, max_heads=3), st.booleans())
def test_through_each_head_as_by_selections(arch: Architecture, batch: bool) -> None:
    run = sc.random_model(arch, seed=1).run([[3, 1, 4], [1, 5, 2]] if batch else [3, 1, 4])
    expansion = sc.expand(arch, "logits" if arch.unembed else "stream")
    found = dict(through_each_head(sc.evaluate(expansion, run)))
    assert list(found) == list(arch.all_heads)
    for head, value in found.items():
        wanted = sc.evaluate(expansion.through(head), run).total()
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-11 * (1 + np.abs(wanted).max()))


def test_heads_before_a_split_stream_are_on_no_path() -> None:
    model = sc.random_model(sc.transformer((2, 2), mlps=True, biases=True), d_vocab=9, seed=1)
    parted = model.with_(sc.source("feature", np.linspace(-1, 1, model.d_model), 1))
    run, logits = parted.run([1, 2, 3]), sc.logits(parted.architecture)
    found = dict(through_each_head(sc.evaluate(logits, run)))
    assert [str(head) for head in found] == ["L1H0", "L1H1"]
    for head, value in found.items():
        np.testing.assert_allclose(value, sc.evaluate(logits.through(head), run).total(), rtol=0, atol=1e-12)
    many = sc.explain_many(parted, [[1, 2, 3], [4, 5]])
    assert many.ok
    assert list(many.totals["head"]) == ["L1H0", "L1H1"]


def test_removing_a_head_takes_its_terms_away() -> None:
    run = sc.random_model(sc.attention_only((2, 2), biases=True), seed=2).run([1, 2, 3])
    for head, value in through_each_head(sc.evaluate(sc.logits(run.model.architecture), run)):
        np.testing.assert_allclose(-value, sc.remove_heads(run, head).value_part, rtol=0, atol=1e-12)


def test_what_has_no_terms_through_heads_alone_is_refused() -> None:
    run = sc.random_model(sc.attention_only((2, 2)), seed=2).run([1, 2, 3])
    arch = run.model.architecture
    for expansion in (sc.scores(arch, "L1H0"), sc.logits(arch).order(1)):
        with pytest.raises(ValueError, match="for whole logits or a whole stream"):
            list(through_each_head(sc.evaluate(expansion, run)))
