"""Which numbers stay under changes of the weights: the whole table, and that a changed model is seen."""

import json
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.circuits import invariances as module
from symcircuits.circuits.invariances import CHANGES, NUMBERS

STREAM, ROTATION, HEADS, SPLIT, OUTPUTS, CONSTANTS, ORDER = CHANGES
ALL = set(CHANGES)
# what does not stay, by number: from the definitions, not from the code
CHANGED = {
    "patterns": set[str](),
    "probabilities; loss": set[str](),
    "logits": {OUTPUTS},
    "value of a term": {SPLIT, OUTPUTS},
    "norm of a term of the logits": {SPLIT, OUTPUTS},
    "norm of a term of the stream": {STREAM, SPLIT},
    "part of a term in a logit": {SPLIT, OUTPUTS},
    "part of a term in a logit difference": {SPLIT},
    "part of a term in a logit less the mean": {SPLIT},
    "terms from the embedding, in a logit difference": {SPLIT},
    "embedding and position together, in a logit less the mean": set[str](),
    "terms through a head, in a logit difference": {CONSTANTS},
    "sums by order": {OUTPUTS, CONSTANTS},
    "sums by order, in a logit difference": {CONSTANTS},
    "parts of scores by composition, centred": {CONSTANTS},
    "composition score": {STREAM},
    "composition score, tight": {STREAM},
    "eigenvalues of W_U W_OV W_E": {SPLIT, OUTPUTS},
    "singular values of W_U W_OV W_E": {SPLIT, OUTPUTS},
    "eigenvalues of W_OV": set[str](),
    "singular values of W_OV": {STREAM},
    "pattern weighted by |v|": {HEADS, CONSTANTS},
    "pattern weighted by |W_O v|": {STREAM, CONSTANTS},
    "pattern weighted by the effect on a logit": {CONSTANTS},
}


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_table_is_that_of_the_definitions(seed: int) -> None:
    found = sc.invariances(seed)
    assert list(found.changed) == list(CHANGED) == list(NUMBERS)
    for number, changed in CHANGED.items():
        assert set(found.stays(number)) == ALL - changed, number
    sizes = [size for by_change in found.changed.values() for size in by_change.values()]
    assert all(size < 1e-11 or size > 1e-4 for size in sizes)  # none is near the line between


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_changes_the_model_is_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said, made = CHANGES[change]

    def wrong(model: sc.Model, draws: Any) -> Any:
        """The same, and one weight a little off."""
        other, names = made(model, draws)
        w = np.array(other.weights["W_K_L1H0"])
        w[0, 0] += 0.1
        return sc.Model(other.architecture, {**other.weights, "W_K_L1H0": w}, other.score_scale), names

    monkeypatch.setattr(module, "CHANGES", {change: (said, wrong)})
    found = sc.invariances()
    assert not found["patterns", change]
    assert not found["probabilities; loss", change]


def test_the_table_is_shown() -> None:
    found = sc.invariances()
    data = json.loads(json.dumps(found.json()))
    assert data["numbers"]["composition score"] == {change: change != STREAM for change in CHANGES}
    for width in (50, 100):
        assert max(map(len, found.text(width).splitlines())) <= width
    [row] = [line for line in found.text(100).splitlines() if line.startswith("composition score ")]
    assert row.split()[2:] == ["-", *["yes"] * 6]
    with pytest.raises((TypeError, ValueError), match="seed"):
        sc.invariances("x")  # type: ignore[arg-type]
