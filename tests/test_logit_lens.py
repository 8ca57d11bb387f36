"""Readouts through the final norm at any place: the logit lens, held to the norm written out by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.cli.main import main
from symcircuits.core import attachments, programs
from symcircuits.core.attachments import Reading
from symcircuits.core.rules import check_finished
from symcircuits.core.words import IllTyped, Word
from symcircuits.model import Arrays, Model, Run, frozen, matrices_of
from symcircuits.values.evaluate import closure, evaluate
from symcircuits.verification.rows import check_polynomial

SIZES = {"d_model": 6, "d_head": 3, "d_vocab": 5, "n_context": 8}
TOKENS = [3, 1, 4, 1]
DATA = Path(__file__).parent / "data" / "tl_ln_s2"
CASES = {
    "LN": {"norm": "LN"},
    "LN with biases": {"norm": "LN", "biases": True, "positions": "standard"},
    "LN without gains": {"norm": "LN", "gains": False, "biases": ["b_N", "b_U"]},
    "LN without gains and biases": {"norm": "LN", "gains": False},
    "LN, other gains": {"norm": "LN", "gains": ["L0", "M1"], "biases": ["b_N[L1]", "b_O"]},
    "LN, gain of the final norm alone": {"norm": "LN", "gains": ["final"], "biases": ["b_N[final]"]},
    "RMS": {"norm": "RMS"},
    "RMS without gains": {"norm": "RMS", "gains": False},
    "RMS with biases": {"norm": "RMS", "biases": True, "positions": "rotary"},
    "parallel": {"norm": "LN", "biases": True, "parallel": True},
    "gated, groups": {"norm": "RMS", "gated": True, "groups": (1, 2)},
    "shortformer, multipliers": {"norm": "LN", "biases": True, "positions": "shortformer", "multipliers": True},
    "normed queries": {"norm": "RMS", "qk_norm": True},
}
PLACES = [(0, "stream"), (1, "stream"), (2, "stream"), (None, "stream"), (0, "mlp"), (1, "mlp")]


def model_of(**more: Any) -> Model:
    """A random model of two layers with MLPs, whose gains, biases and eps are far from 1 and 0."""
    model = sc.random_model(sc.transformer((2, 2), mlps=True, **more), seed=3, **SIZES)
    rng = np.random.default_rng(5)
    moved = {n: rng.normal(size=w.shape) + 0.5 for n, w in model.weights.items() if n[:4] in ("gain", "b_N_")}
    return replace(model, weights={**model.weights, **moved}, settings=replace(model.settings, eps=0.03))


def with_lens(model: Model, layer: int | None = 1, at: str = "stream") -> Model:
    return model.with_(sc.readout(model.weights["W_U"], "lens", layer, normed="final", at=at))


def read_at(run: Run, layer: int | None, at: str) -> Any:
    """The rows that are read there: of the stream, or with the heads of the layer where its MLP reads."""
    arch, layer = run.model.architecture, len(run.streams) - 1 if layer is None else layer
    rows = run.streams[layer]
    if at == "mlp" and not arch.parallel:
        r = run.model.multipliers.get(f"r[L{layer}]", 1.0)
        rows = rows + run.results[f"L{layer}H0"] + run.results[f"L{layer}H1"]
        rows = rows + r * run.model.weights.get(f"b_O_L{layer}", 0.0)
    return rows


def by_hand(model: Model, rows: Any, directions: Any) -> Any:
    """The final norm of rows, number by number, times directions."""
    w, out = model.weights, []
    for row in rows:
        mean = math.fsum(row) / len(row) if model.architecture.norm == "LN" else 0.0
        centred = [x - mean for x in row]
        sigma = math.sqrt(math.fsum(x * x for x in centred) / len(row) + model.settings.eps)
        gain, bias = w.get("gain_final", np.ones(len(row))), w.get("b_N_final", np.zeros(len(row)))
        normed = [x / sigma * g + b for x, g, b in zip(centred, gain, bias, strict=True)]
        out.append([math.fsum(x * v for x, v in zip(normed, vector, strict=True)) for vector in directions])
    return np.array(out)


# ---------------------------------------------------------------------------------------------- what it is
@pytest.mark.parametrize(("layer", "at"), PLACES)
@pytest.mark.parametrize("case", CASES)
def test_the_terms_add_up_to_the_final_norm_of_the_rows_there(case: str, layer: int | None, at: str) -> None:
    model = with_lens(model_of(**CASES[case]), layer, at)
    run, terms = model.run(TOKENS), sc.expand(model.architecture, "readout:lens")
    right = by_hand(model, read_at(run, layer, at), model.weights["W_U"])
    assert np.abs(run.readouts["lens"] - right).max() < 1e-12
    assert np.abs(evaluate(terms, run).total() - right).max() < 1e-12
    assert np.abs(sum(evaluate(terms, run)) - right).max() < 1e-12
    assert closure(terms, run).passed
    assert np.abs(frozen(model.architecture, matrices_of(run), Floats()).readouts["lens"] - right).max() < 1e-12


@pytest.mark.parametrize("case", ["LN with biases", "RMS without gains", "parallel", "shortformer, multipliers"])
@pytest.mark.sampled(2)
def test_all_rows_of_verify_hold(case: str) -> None:
    model = model_of(**CASES[case])
    for number, (layer, at) in enumerate(PLACES):
        model = model.with_(sc.readout(model.weights["W_U"], f"lens {number}", layer, normed="final", at=at))
    targets = [f"readout:{r.name}" for r in model.architecture.readings]
    report = sc.verify(model, TOKENS, targets=targets)
    assert report.ok, report.text()
    assert sc.verify(model.architecture, targets=targets).ok


def test_at_the_end_it_is_what_comes_out_of_the_final_norm() -> None:
    model = model_of(norm="LN", biases=True)
    w_u = model.weights["W_U"]
    own = with_lens(model, None).with_(sc.readout(w_u, "end", 2, normed="final"), sc.readout(w_u, "out", normed=True))
    run = own.run(TOKENS)
    for name in ("lens", "end"):
        assert own.architecture.reading(name).norm == "final"
        assert np.array_equal(run.readouts[name], run.readouts["out"])
    assert np.allclose(run.readouts["lens"] + model.weights["b_U"], run.logits)  # b_U is no part of a readout


def test_the_multiplier_and_the_cap_of_logits_are_no_part_of_it() -> None:
    model = model_of(norm="RMS", multipliers=["m_U"])
    model = replace(model, settings=replace(model.settings, logit_cap=2.0))
    run = with_lens(model, None).run(TOKENS)
    assert np.allclose(2.0 * np.tanh(model.multipliers["m_U"] * run.readouts["lens"] / 2.0), run.logits)
    assert not any(t.word.scales for t in sc.expand(run.model.architecture, "readout:lens"))


def test_it_changes_nothing_else_that_a_run_has() -> None:
    model = model_of(norm="LN", biases=True)
    plain, own = model.run(TOKENS), with_lens(model).run(TOKENS)
    assert np.array_equal(plain.logits, own.logits)
    assert set(own.norms) - set(plain.norms) == {"finalL1"}
    assert all(np.array_equal(plain.norms[label], own.norms[label]) for label in plain.norms)
    sigma = 1 / np.sqrt(own.streams[1].var(axis=-1) + 0.03)
    assert np.allclose(own.norms["finalL1"], sigma)
    assert np.allclose(own.arrays["D_finalL1"], np.diag(sigma))
    assert not np.allclose(own.norms["finalL1"], own.norms["final"])


def test_batches_of_tokens_have_a_sigma_for_each_row() -> None:
    model = with_lens(model_of(norm="LN", biases=True))
    tokens = [[0, 1, 2], [3, 4, 0]]
    run, terms = model.run(tokens), sc.expand(model.architecture, "readout:lens")
    for i, row in enumerate(tokens):
        assert np.allclose(run.readouts["lens"][i], model.run(row).readouts["lens"])
    assert np.allclose(evaluate(terms, run).total(), run.readouts["lens"])


@pytest.mark.parametrize("norm", ["LN", "RMS"])
def test_a_folded_model_has_the_same_lens_by_its_own_weights(norm: str) -> None:
    model = model_of(norm=norm, biases=["b_N", "b_U"] if norm == "LN" else ["b_U"])
    with pytest.raises(ValueError, match=r"the readout 'lens' reads through a norm: fold .* that include the gain"):
        sc.fold(with_lens(model))
    folded = sc.fold(model)
    assert not folded.architecture.gains
    ours, theirs = (with_lens(m).run(TOKENS).readouts["lens"] for m in (model, folded))
    shift = model.weights["W_U"] @ model.weights["b_N_final"] if norm == "LN" else 0.0  # b_U of the folded model has it
    assert np.allclose(theirs + shift, ours)


def test_types_and_letters_of_a_term() -> None:
    arch = with_lens(model_of(norm="LN", biases=["b_N", "b_O"])).architecture
    terms = sc.expand(arch, "readout:lens")
    texts = [t.text for t in terms]
    assert "D[finalL1] @ ones @ b_O[L0].T @ C @ gain[final] @ lens.T" in texts
    assert "ones @ b_N[final].T @ lens.T" in texts
    assert terms.from_source("b_N[final]").count == 1
    first = terms[0]
    assert first.text == "D[finalL1] @ X0 @ C @ gain[final] @ lens.T"
    assert first.latex().startswith(r"D^{\mathrm{finalL1}}\,X_0\,C\,\Gamma^{\mathrm{final}}")
    assert first.written("paper").text == "(D[finalL1] (x) lens @ gain[final] @ C @ W_E) t"
    assert first.written("transformerlens").text == first.text
    assert first.matrix_expr(n_context=4, n_directions=5).shape == (4, 5)
    run = with_lens(model_of(norm="LN", biases=["b_N", "b_O"])).run(TOKENS)
    values = evaluate(terms, run)
    for term in terms:
        assert np.allclose(term.lambdify()(**run.arrays), values.value(term))


# --------------------------------------------------------------------------------------- what must not pass
def both() -> Model:
    """A lens, and what the final norm and that of the layer make at their own places."""
    model = model_of(norm="LN", biases=["b_N", "b_O"])
    w_u = model.weights["W_U"]
    others = [sc.readout(w_u, "last", normed=True), sc.readout(w_u, "there", 1, normed=True)]
    return with_lens(model).with_(*others, sc.readout(w_u, "mid", 1, normed="final", at="mlp"))


@pytest.mark.parametrize(
    ("array", "instead"),
    [
        ("D_finalL1", "D_final"), ("D_finalL1", "D_finalM1"), ("D_finalL1", "D_L0"), ("gain_final", "gain_L1"),
        ("b_N_final", "b_N_L1"), ("read_lens", "read_last"),
    ],
)  # fmt: skip
def test_another_array_does_not_close(array: str, instead: str) -> None:
    model = both()
    model = replace(model, attached={**model.attached, "last": model.attached["last"][::-1]})
    run, terms = model.run(TOKENS), sc.expand(model.architecture, "readout:lens")
    norms = {**run.norms, array[2:]: run.norms[instead[2:]]} if array[:2] == "D_" else run.norms
    wrong = replace(run, arrays=Arrays({array: run.arrays[instead]}, {}, run.arrays), norms=norms)
    assert closure(terms, run).passed
    assert not closure(terms, wrong).passed


def test_corrupted_programs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    arch, norm = both().architecture, programs.norm

    def row() -> bool | None:
        return check_polynomial([sc.expand(arch, "readout:lens")]).passed

    assert row()
    for wrong in ("final", "L1", "finalM1"):  # the D of another norm, or its gain and bias too
        monkeypatch.setattr(programs, "norm", lambda a, label, point, wrong=wrong: norm(
            a, wrong if label == "finalL1" else label, point))  # fmt: skip
        assert row() is False, wrong
    monkeypatch.setattr(programs, "norm", norm)
    monkeypatch.setattr(programs, "norm_of", lambda label: "L1" if label == "finalL1" else attachments.norm_of(label))
    assert row() is False


def test_types_refuse_other_norms() -> None:
    arch = both().architecture
    lens, last, there = (sc.expand(arch, f"readout:{name}")[0].word for name in ("lens", "last", "there"))
    check_finished(lens), check_finished(last), check_finished(there)
    d, middle, gain, probe = lens.factors[0], lens.factors[1:-2], lens.factors[-2], lens.factors[-1]
    for other in (last, there):
        with pytest.raises(IllTyped, match="do not belong together"):
            check_finished(Word((other.factors[0], *middle, gain, probe)))
        with pytest.raises(IllTyped):
            Word((d, *middle, other.factors[-2], probe))
        with pytest.raises(IllTyped):
            Word((d, *middle, gain, other.factors[-1]))


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize("norm", ["LN", "RMS"])
@pytest.mark.sampled(2)
def test_check_reads_its_terms_and_names_a_wrong_norm(norm: str, gains: bool) -> None:
    model = model_of(norm=norm, gains=gains, biases=["b_O"])
    arch = with_lens(model).with_(sc.readout(model.weights["W_U"], "mid", 1, normed="final", at="mlp")).architecture
    for target in ("readout:lens", "readout:mid"):
        expansion = sc.expand(arch, target)
        for i, term in enumerate(expansion):
            for text in (term.text, term.latex()):
                found = sc.check(text, arch)
                assert found.right, found.text()
                assert found.terms[0].number == i
        assert sc.check(" + ".join(t.text for t in expansion), arch).right
    for wrong in ("final", "L1", "finalM1"):
        found = sc.check(sc.expand(arch, "readout:lens")[0].text.replace("finalL1", wrong), arch)
        assert not found.right
        assert found.mistake == "wrong-norm"
        assert "should be D[finalL1]" in found.message
    with pytest.raises(ValueError, match=r"'finalL0' is not the name of a norm; write D\[...\] with .*finalL1"):
        sc.check("D[finalL0] @ X0 @ lens.T", arch)
    if gains:
        with pytest.raises(ValueError, match=r"'finalL1' is not the name of a norm; write gain"):
            sc.check("D[finalL1] @ X0 @ gain[finalL1] @ lens.T", arch)


def test_the_types_that_check_names_are_those_of_the_norm_that_is_meant() -> None:
    """C and gain[final] stand in several norms: the sentence is about what is wrong, not about which of them is."""
    arch = both().architecture
    message = sc.check("D[final] @ X0 @ C @ gain[final] @ lens.T", arch).message
    assert "D[final] on the left meets gain[final] (of finalL1) on the right" in message
    assert "both are vectors" not in message


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (Reading("lens", 1, norm="L0"), "the norm read there is L1 or finalL1, not L0"),
        (Reading("lens", 1, norm="final"), "the norm read there is L1 or finalL1, not final"),
        (Reading("lens", 2, norm="finalL2"), "the norm read there is final, not finalL2"),
        (Reading("lens", 1, "mlp", "finalL1"), "the norm read there is M1 or finalM1, not finalL1"),
        (Reading("lens", 1, norm="final1"), "there is no norm final1"),
        (Reading("lens", 3, norm="finalL3"), "0 to 2, not 3"),
    ],
)
def test_a_norm_that_is_not_there_is_refused(reading: Reading, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sc.transformer((1, 1), norm="LN", mlps=True).attached(reading)


def test_a_model_without_final_norm_has_no_lens() -> None:
    directions = np.ones(6)
    bare = sc.random_model(sc.transformer((1, 1), norm="RMS", unembed=False), **SIZES)
    with pytest.raises(ValueError, match="there is no norm final to read through; normed=False"):
        bare.with_(sc.readout(directions, layer=1, normed="final"))
    plain = sc.random_model(sc.attention_only((1, 1)), **SIZES)
    with pytest.raises(ValueError, match='normed="final", but the model has no norms'):
        plain.with_(sc.readout(directions, layer=1, normed="final"))
    model = sc.random_model(sc.transformer((1, 1), norm="RMS"), **SIZES)
    with pytest.raises(ValueError, match='or normed="final"'):
        model.with_(sc.readout(directions, layer=1))


# ------------------------------------------------------------------------------------- explain, files, command line
def test_explain_takes_it_apart(tmp_path: Path) -> None:
    model = model_of(norm="LN", biases=True)
    lens = sc.readout(model.weights["W_U"], "lens", 1, normed="final")
    run = model.with_(lens).run(TOKENS)
    found = sc.explain(sc.evaluate(sc.expand(run.model.architecture, "readout:lens"), run), by=sc.logit(2))
    assert found.ok
    right = by_hand(model, found.run.streams[1], model.weights["W_U"])
    assert found.value == pytest.approx(right[-1, 2])
    assert "readout lens at point 1, after the final norm taken there (finalL1)" in " ".join(found.assumptions)
    path = tmp_path / "terms.csv"
    sc.expand(with_lens(model).architecture, "readout:lens").export(path)
    assert "D[finalL1] @ X0 @ C @ gain[final] @ lens.T" in path.read_text("utf-8")


def test_it_is_an_option_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = sc.load(DATA)
    np.save("unembedding.npy", model.weights["W_U"])
    words = [str(DATA), "--tokens", "3,1,4,1", "--readout", "lens=unembedding.npy@1", "--final-norm", "--json"]
    assert main(["explain", *words, "--token", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    right = by_hand(model, model.run(TOKENS).streams[1], model.weights["W_U"])
    assert found["of"] == "readout:lens"
    assert found["target"]["value"] == pytest.approx(right[-1, 2])
    assert main(["verify", *words, "--target", "readout:lens"]) == 0
    assert all(row["passed"] is not False for row in json.loads(capsys.readouterr().out)["checks"])
    with pytest.raises(SystemExit):
        main(["explain", *words, "--normed"])
    assert "not allowed with argument" in capsys.readouterr().err
