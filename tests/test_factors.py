"""The heads of a layer at once: the same as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.core.walk import Matrices
from symcircuits.values.factors import RunFactors, RunMatrices


@given(architectures(max_layers=2, max_heads=4), st.booleans(), st.integers(0, 3))
def test_heads_together_as_one_after_the_other(arch: Architecture, batch: bool, wide: int) -> None:
    """Of values of one shape and of several, with and without batch axes, and of none."""
    run = sc.random_model(arch, seed=3).run([[3, 1, 4], [1, 5, 2]] if batch else [3, 1, 4])
    rng, d = np.random.default_rng(0), run.model.d_model
    values = [rng.standard_normal((3, d)), rng.standard_normal((3, d))]
    values += [rng.standard_normal(run.streams[0].shape) for _ in range(wide)]
    for layer in sc.expand(run.model, arch.end).readout.sides[0]:
        if not layer.branches:
            continue
        args = RunFactors(run), sc.evaluate(sc.expand(run.model, arch.end), run).matrices.ring
        found = RunMatrices(*args).together(layer.branches, values)
        one = Matrices(*args)
        wanted = [one.add([one.branch(b, value) for b in layer.branches]) for value in values]
        assert [a.shape for a in found] == [a.shape for a in wanted]
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11 * float(np.abs(other).max(initial=1)))
        assert RunMatrices(*args).together(layer.branches, []) == []


@pytest.mark.parametrize("changed", ["W_V", "W_O", "A"])
def test_every_head_keeps_its_own_weights(changed: str) -> None:
    """With one head's array set to zero, the layer gives what the other heads do."""
    run = sc.random_model(sc.attention_only((3,)), seed=2).run([1, 2, 3])
    layer = sc.logits(run.model).readout.sides[0][1]
    values, factors = [run.streams[0]], dict(RunFactors(run))
    matrices = sc.evaluate(sc.logits(run.model), run).matrices
    factors[f"{changed}_L0H1"] = np.zeros_like(factors[f"{changed}_L0H1"])
    [found] = RunMatrices(factors, matrices.ring).together(layer.branches, values)
    np.testing.assert_allclose(found, run.results["L0H0"] + run.results["L0H2"], atol=1e-12)
