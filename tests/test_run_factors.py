"""What the heads of a layer give together, against each by itself; and a run's arrays as products need them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.programs import readout
from symcircuits.values import factors as module
from symcircuits.values.factors import RunFactors, RunMatrices


@pytest.mark.parametrize("added", [2048, 5, 4, 1])
@pytest.mark.parametrize("tokens", [[3, 1, 4], [[3, 1, 4], [1, 5, 2]]])
@pytest.mark.parametrize("features", [{}, {"norm": "LN", "multipliers": ["r[L0]"]}, {"norm": "RMS", "groups": (1,)}])
def test_heads_of_a_layer_give_together_what_they_give_one_by_one(
    features: dict[str, Any], tokens: Any, added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sum over heads of A N(Y) W_V^T W_O^T``, of several values at a time, some of them alike in all rows."""
    monkeypatch.setattr(module, "ADDED", added)
    model = sc.random_model(sc.transformer((2,), **features), d_model=6, d_head=2, seed=1)
    run = model.run(tokens)
    [layer] = [layer for layer in readout(model.architecture, "stream").sides[0] if layer.branches]
    rng, batch = np.random.default_rng(0), np.shape(tokens)[:-1]
    values = [rng.standard_normal(shape) for shape in ((3, 6), (*batch, 3, 6), (3, 6))]
    matrices = RunMatrices(RunFactors(run), Floats(np.float64), {})
    found = matrices.together(layer.branches, values)
    assert len(found) == 3
    for value, total in zip(values, found, strict=True):
        read = value
        if "norm" in features:
            read = read - read.mean(-1, keepdims=True) if features["norm"] == "LN" else read
            read = read * run.arrays["gain_L0"] * run.norms["L0"][..., None]
        parts = []
        for head in ("L0H0", "L0H1"):
            w_v = run.arrays["W_V_L0G0" if "groups" in features else f"W_V_{head}"]
            parts.append(run.patterns[head] @ read @ w_v.T @ run.arrays[f"W_O_{head}"].T)
        wanted = sum(parts) * run.arrays.get("r_L0", 1)
        np.testing.assert_allclose(np.broadcast_to(total, wanted.shape), wanted, rtol=1e-12, atol=1e-13)


def test_what_norms_do_is_not_written_out() -> None:
    """Biases are columns; made once, what norms do is a diagonal or takes the mean away."""
    run = sc.random_model(sc.transformer((1,), norm="LN", biases=True), d_model=4, d_head=2, seed=1).run([1, 2])
    found = RunFactors(run)
    assert list(found) == list(run.arrays)
    assert len(found) == len(run.arrays)
    assert found["b_O_L0"].shape == (4, 1)
    assert found["W_U"] is run.arrays["W_U"]
    assert isinstance(found["D_L0"], Diagonal)
    assert found["D_L0"] is found["D_L0"]
    np.testing.assert_array_equal(found["D_L0"].entries, run.norms["L0"])
    np.testing.assert_array_equal(found["gain_L0"].entries, run.arrays["gain_L0"])
    assert isinstance(found["C"], Centring)
