"""Which numbers stay under changes of the weights: the whole table, and that a changed model is seen."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.circuits import invariances as module
from symcircuits.circuits.invariances import CHANGES, NUMBERS
from symcircuits.explanation.explain import Explanation

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
    "norm of a score term": {SPLIT},
    "part of a term in a score": {SPLIT},
    "pattern without a part of the scores": {CONSTANTS},
    "change without a head, in a logit difference": {CONSTANTS},
    "loss after each order": {CONSTANTS},
    "entries of W_U W_E": {SPLIT, OUTPUTS},
    "entries and diagonal of W_U W_OV W_E": {SPLIT, OUTPUTS},
    "entries of W_E^T W_QK W_E": {SPLIT},
    "entries and diagonal of the circuit of K-composition": {SPLIT},
    "eigenvalues of the circuit of K-composition": {SPLIT},
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


# -------------------------------------------------------------------------------------- what reports rank by
def moved(model: sc.Model, seed: int = 0) -> sc.Model:
    """The same model, written in another way: something is taken from positions, and added to tokens and outputs."""
    rng, weights = np.random.default_rng(seed), dict(model.weights)
    shift, up = rng.standard_normal((2, model.d_model))
    weights |= {
        "W_E": weights["W_E"] + 3 * shift[:, None],
        "W_pos": weights["W_pos"] - 3 * shift,
        "W_U": weights["W_U"] + 3 * up,
    }
    return dataclasses.replace(model, weights=weights)


def ranks(found: Explanation) -> list[str]:
    return [row.label for row in found.rows]


def test_a_report_ranks_by_what_stays_however_the_weights_are_written() -> None:
    model = sc.random_model(sc.attention_only((2, 2), "standard"), seed=3)
    other, tokens = moved(model), [1, 4, 2, 4]
    choice = int(model.run(tokens).logits[-1].argmax())
    assert choice == int(other.run(tokens).logits[-1].argmax())  # a softmax says the same
    for by in (None, sc.logit(choice), sc.logit(choice, against=3)):
        one, two = (sc.explain(m, tokens, by=by) for m in (model, other))
        kind = "centred" if by is None or by.against is None else "difference"
        assert one.sort == two.sort == kind
        assert ranks(one) == ranks(two)
        sizes = [[getattr(row, kind) for row in found.rows] for found in (one, two)]
        assert np.allclose(*sizes, atol=1e-12)
        assert "from token and position embedding together" in one.assumptions[-1]
        assert "depends on" not in one.assumptions[-1]
    for asked in ("norm", "contribution", "centred"):
        one, two = (sc.explain(m, tokens, sort=asked) for m in (model, other))
        assert ranks(one) != ranks(two), asked
        assert "depends on" in one.assumptions[-1]


def test_a_row_of_two_terms_has_the_sizes_of_their_sum() -> None:
    run = sc.random_model(sc.attention_only((2, 2), "standard", biases=("b_V",)), seed=3).run([1, 4, 2])
    found, values = sc.explain(run, top=100), sc.evaluate(sc.logits(run.model), run)
    assert sorted(t.label for row in found.rows for t in row.terms) == sorted(t.label for t in values.expansion)
    assert {row.label.partition(" ->")[0] for row in found.rows} >= {"embed + pos", "b_V[L0H0]"}
    for row in found.rows:
        value = sum(values.value(term) for term in row.terms)
        at = value[-1]  # type: ignore[index]
        sizes = np.linalg.norm(value), at[found.measure.token], at[found.measure.token] - at.mean()
        assert np.allclose((row.norm, row.contribution, row.centred), sizes)
        assert row.text == " + ".join(term.text for term in row.terms)
    assert sum(row.centred or 0 for row in found.rows) == pytest.approx(found.centred)


def test_what_cannot_be_ranked_so_is_refused() -> None:
    bare = sc.random_model(sc.attention_only((1,), "standard", unembed=False), seed=3)
    with pytest.raises(ValueError, match="centred"):
        sc.explain(bare, [1, 2], sort="centred")
    assert "which depends on the basis of the stream" in sc.explain(bare, [1, 2]).assumptions[-1]
