"""What cannot be said of a model is said, with the reason: a test for each kind of input, through the whole report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_cli import Cli, cli

import symcircuits as sc
from symcircuits.circuits.report import Circuits, find_circuits
from symcircuits.zoo import path

__all__ = ["cli"]  # a fixture
TWO = sc.attention_only((2, 2), "standard")


def model(arch: sc.Architecture = TWO, **sizes: int) -> sc.Model:
    return sc.random_model(arch, **{"d_vocab": 20, "d_model": 8, "d_head": 4, "n_context": 16, "seed": 1, **sizes})


def with_weights(**weights: Any) -> sc.Model:
    return replace(model(), weights={**model().weights, **weights})


def said(found: Circuits) -> str:
    """All sentences; no number of the result is not a number."""
    json.dumps(found.json(), allow_nan=False)
    assert "nan" not in found.text()
    assert found.html()
    return " ".join(found.findings)


def test_a_zero_head_has_no_score_and_no_copying() -> None:
    found = find_circuits(with_weights(W_O_L0H0=np.zeros((8, 4))), count=2)
    words = said(found)
    assert "2 pairs without a score: W_OV of L0H0 is zero, and a score would be 0 / 0" in words
    assert "It is unknown whether L0H0 copies: all eigenvalues of its OV circuit are 0" in words
    assert found.composition["K"]["L1H0", "L0H0"] is None
    assert found.copying["L0H0"].eigenvalue_positivity is None
    assert found.copying["L0H1"].eigenvalue_positivity is not None
    both = with_weights(W_O_L0H0=np.zeros((8, 4)), W_O_L1H1=np.zeros((8, 4)))
    assert "It is unknown whether L0H0, L1H1 copy" in said(find_circuits(both, count=2))


def test_eigenvalues_that_are_zero_up_to_rounding_have_no_positivity() -> None:
    reads, writes = np.zeros((4, 8)), np.zeros((8, 4))
    reads[0, 0], writes[1, 0] = 1, 1  # nilpotent: token 0 to output 1
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    ends = {"W_E": turned @ np.eye(8, 20), "W_U": np.eye(20, 8) @ turned.T}
    found = find_circuits(with_weights(W_V_L0H0=reads @ turned.T, W_O_L0H0=turned @ writes, **ends), count=2)
    assert "It is unknown whether L0H0 copies" in said(found)
    assert found.copying["L0H0"].eigenvalue_positivity is None


def test_tied_embeddings_are_two_matrices_that_agree() -> None:
    weights = model().weights["W_E"].T
    tied, copied = (find_circuits(with_weights(W_U=w), count=2) for w in (weights, weights.copy()))
    assert said(tied) == said(copied)
    note = "embedding and unembedding are tied, W_U = W_E^T: a head with W_OV = Id has positivity 1"
    assert all(note in found.json()["notes"] and note in found.html() for found in (tied, copied))
    assert note in " ".join(tied.text(1000).split())
    assert note not in find_circuits(model(), count=2).json()["notes"]
    for head, one in tied.copying.items():
        assert one.eigenvalue_positivity == pytest.approx(copied.copying[head].eigenvalue_positivity)


def test_half_precision_says_that_scores_are_of_rounded_weights(tmp_path: Path) -> None:
    shipped = sc.load(path())
    half = {name: array.astype(np.float16) for name, array in _stored().items()}
    save_file(half, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((Path(path()) / "config.json").read_text("utf-8"), "utf-8")
    found = find_circuits(sc.load(tmp_path), count=2)
    assert "L1H0 is an induction head" in said(found)
    assert "the file holds float16: scores are those of the rounded weights" in " ".join(found.json()["notes"])
    whole = find_circuits(shipped, count=2).composition["K"]["L1H0", "L0H2"]
    assert found.composition["K"]["L1H0", "L0H2"] == pytest.approx(whole, abs=1e-3)


def test_weights_of_no_file_are_not_said_to_stand_in_one() -> None:
    half = replace(model(), weights={n: w.astype(np.float16) for n, w in model().weights.items()}, dtype="")
    for notes in (sc.composition_scores(half, "K").notes, sc.circuit(half, "OV", "L0H0").notes):
        assert any(note.startswith("the weights are float16: ") for note in notes)
    assert sc.load(path()).stored == "the file holds float32"
    assert (model().stored, replace(sc.load(path()), name="copy").stored) == (
        "the weights are float64",
        "the weights are float32",
    )


def _stored() -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(Path(path()) / "model.safetensors"))


@pytest.mark.parametrize("sizes", [{"n_context": 6}, {"d_vocab": 4}, {"n_context": 2}])
def test_prompts_that_are_too_short_say_what_is_needed(sizes: dict[str, int]) -> None:
    found = find_circuits(model(**sizes), count=2)
    words = said(found)
    assert "It is unknown whether a head is an induction head: 2 periods of 3 tokens or more need 7 positions" in words
    assert found.heads["L1H0"].scores["induction"] is None
    assert ("No losses: two halves of 2 tokens or more do not fit the model." in words) == (sizes.get("n_context") == 2)


def test_a_length_that_does_not_fit_is_refused(cli: Cli) -> None:
    for length in (1, 17):
        with pytest.raises(ValueError, match=f"length must be 2 to 16 tokens, not {length}"):
            find_circuits(model(), count=2, length=length)
    ran = cli("circuits", str(path()), "--length", "4000")
    assert ran.code == 2
    assert "length must be 2 to" in ran.err
    short = find_circuits(model(), count=2, length=6)  # periods do not fit it
    assert "there are 6 and 20" in said(short)


def test_without_an_unembedding_there_is_no_loss_and_no_copying() -> None:
    words = said(find_circuits(model(sc.attention_only((2, 2), unembed=False)), count=2))
    assert "No losses: the model has no unembedding." in words
    assert "It is unknown whether heads copy: the model has no unembedding." in words


def test_norms_say_what_is_folded_and_what_is_left_out() -> None:
    found = find_circuits(model(sc.attention_only((2, 2), "standard", norm="LN", gains=True)), count=2)
    assert "With patterns and norms held fixed" in said(found)
    left_out = "gains and centring folded in; 1 / sigma, which differs from token to token, is left out"
    assert left_out in " ".join(found.json()["notes"])
    assert left_out in " ".join(found.text(1000).split())
    behind = find_circuits(model(sc.attention_only((2, 2), "shortformer", norm="LN", gains=True)), count=2)
    assert "K-composition has no scores: the gain of the norm L1 cannot be folded" in said(behind)


def test_with_one_layer_no_head_can_be_an_induction_head() -> None:
    words = said(find_circuits(model(sc.attention_only((2,), "standard")), count=2))
    assert words.startswith(
        "No head is an induction head. With heads in only one layer, no head can be one: an earlier head has to"
    )
    assert "No heads compose: no head comes before another." in words
    none = said(find_circuits(model(sc.attention_only(())), count=2))
    assert "No heads compose: no head comes before another." in none
