"""Recorded activations beside our forward pass, and every layer as the sum of its parts: what agrees, what is seen."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.model import Rotary, Run
from symcircuits.values.closure import layer_closures, worst_closure
from symcircuits.verification.rows import check_layers

NAMES = [
    "tl_plain_s0", "tl_bias_s1", "tl_3layer_s11", "tl_shortformer_s7", "tl_ln_s2", "tl_mlp_gelu_ln_s18", "tl_gqa_s9",
    "tracr_frac_prevs_mlp", "tracr_induction_K_2L_causal", "induction_shortformer_h2_s3",
    "real_gbmi_indhead_finetuned_model_0", "tl_rms_gated_gqa_s3", "tl4_bridge_s4", "tl_alibi_capped_s21",
    "tl_rotary_part_s22",
]  # fmt: skip
MLP = "tl_mlp_gelu_ln_s18"


def recorded(data: Path, name: str) -> dict[str, Any]:
    with np.load(data / name / "reference.npz") as arrays:
        return dict(arrays)


# ------------------------------------------------------------------------------------------------ what agrees


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_model_agrees(data: Path, name: str) -> None:
    found = sc.compare_with_reference(sc.load(data / name), data / name / "reference.npz")
    assert found.ok, found.text()
    assert found.first is None
    known = {k for k in recorded(data, name) if k.startswith(("blocks.", "ln_final.")) or k == "logits"}
    assert {row.name for row in found.rows} == known
    assert set(found.unknown) == set(recorded(data, name)) - known - {"tokens"}
    assert len(found.layers) == found.run.model.architecture.n_layers


def everything(run: Run) -> dict[str, Any]:
    """All hooks that are known, from a run, by the definitions of TransformerLens."""
    arch, out = run.model.architecture, {"tokens": run.tokens, "logits": run.logits}
    for layer in range(arch.n_layers):
        at, heads = f"blocks.{layer}.", [str(h) for h in arch.layer_heads(layer)]
        out[f"{at}hook_resid_pre"] = run.streams[layer]
        out[f"{at}hook_attn_out"] = sum(run.results[h] for h in heads) + run.model.weights[f"b_O_L{layer}"]
        middle = out[f"{at}hook_resid_pre"] + out[f"{at}hook_attn_out"]
        out[f"{at}hook_resid_mid"], out[f"{at}hook_mlp_out"] = middle, run.mlps[f"L{layer}"]
        out[f"{at}hook_resid_post"] = run.streams[layer + 1]
        out[f"{at}attn.hook_attn_scores"] = np.stack([run.scores[h] for h in heads], axis=-3)
        out[f"{at}attn.hook_pattern"] = np.stack([run.patterns[h] for h in heads], axis=-3)
        out[f"{at}attn.hook_result"] = np.stack([run.results[h] for h in heads], axis=-2)
        reads = {"ln1": (f"L{layer}", run.streams[layer]), "ln2": (f"M{layer}", middle)}
        for norm, (label, x) in reads.items():
            out[f"{at}{norm}.hook_scale"] = 1 / run.norms[label][..., None]
            out[f"{at}{norm}.hook_normalized"] = (x - x.mean(-1, keepdims=True)) * run.norms[label][..., None]
    x, w = run.streams[-1], run.model.weights
    out["ln_final.hook_scale"] = 1 / run.norms["final"][..., None]
    z = (x - x.mean(-1, keepdims=True)) * run.norms["final"][..., None]
    out["ln_final.hook_normalized"] = z * w["gain_final"] + w["b_N_final"]  # some versions: after gain and bias
    return out | {"hook_embed": w["W_E"].T[run.tokens], "hook_pos_embed": np.stack([w["W_pos"][:9]] * 2)}


@pytest.fixture
def model(data: Path) -> Any:
    return sc.load(data / MLP)


@pytest.fixture
def arrays(data: Path, model: Any) -> dict[str, Any]:
    return everything(model.run(recorded(data, MLP)["tokens"]))


def test_every_hook_that_is_known(model: Any, arrays: dict[str, Any]) -> None:
    found = sc.compare_with_reference(model, arrays)
    assert found.ok, found.text()
    assert (len(found.rows), found.unknown) == (len(arrays) - 1, ())
    assert [row.name for row in found.rows][:3] == ["hook_embed", "hook_pos_embed", "blocks.0.hook_resid_pre"]
    assert found.rows[-1].name == "logits"
    places = list(dict.fromkeys(row.place for row in found.rows))
    assert places == ["embedding", "layer 0", "layer 1", "final norm", "logits"]


def test_a_file_of_either_kind_and_tokens_of_ones_own(model: Any, arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, tmp_path / "b.safetensors")
    for name in ("a.npz", "b.safetensors"):
        assert sc.compare_with_reference(model, tmp_path / name).ok
        assert sc.compare_with_reference(model, str(tmp_path / name), arrays["tokens"].tolist()).ok
    without = {k: v for k, v in arrays.items() if k != "tokens"}
    assert sc.compare_with_reference(model, without, arrays["tokens"]).ok
    one = {k: v[:1] for k, v in arrays.items()}  # one row of a batch is the same as no batch
    assert sc.compare_with_reference(model, one, arrays["tokens"][0]).ok


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_bound_follows_the_recorded_dtype(model: Any, arrays: dict[str, Any], dtype: str) -> None:
    coarse = {k: v if k == "tokens" else v.astype(dtype) for k, v in arrays.items()}
    found = sc.compare_with_reference(model, coarse)
    assert found.ok, found.text()
    fine = sc.compare_with_reference(model, arrays)
    assert all(a.bound > 1000 * b.bound for a, b in zip(found.rows, fine.rows, strict=True))  # type: ignore[operator]


def test_patterns_recorded_in_place_of_scores(model: Any, arrays: dict[str, Any]) -> None:
    """As a native model of TransformerLens 4 leaves them: compared as what they are, and only if they are the same."""
    scores, pattern = (f"blocks.1.attn.hook_{what}" for what in ("attn_scores", "pattern"))
    assert sc.compare_with_reference(model, {**arrays, scores: arrays[pattern]}).ok
    almost = arrays[pattern] + 1e-3
    found = sc.compare_with_reference(model, {**arrays, scores: almost})
    assert [row.name for row in found.rows if not row.passed] == [scores]
    found = sc.compare_with_reference(model, {**arrays, scores: almost, pattern: almost})
    assert [row.name for row in found.rows if not row.passed] == [scores, pattern]


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_a_run_in_half_precision_that_was_recorded_in_float32(data: Path, half: str) -> None:
    """As TransformerLens leaves one: every number one that the type holds, but norms of such numbers in float32."""
    model = replace(sc.load(data / "tl_ln_s2"), dtype=half)
    exact = recorded(data, "tl_ln_s2")
    reference = {k: rounded(v, half) if v.dtype.kind == "f" and "hook" in k else v for k, v in exact.items()}
    for key in [k for k in reference if "ln" in k]:
        reference[key] = np.asarray(reference[key] * np.float32(1 + 3e-5), np.float32)
    assert sc.compare_with_reference(model, reference).ok
    for dtype in ("float32", "float64", ""):  # whatever the weights are stored in: the recorded numbers tell it
        found = sc.compare_with_reference(replace(model, dtype=dtype), reference)
        assert found.ok, found.text()
        said = f"all numbers recorded as float32 are {half} numbers, so the run is assumed to be in {half}"
        assert said in " ".join(found.text().split())
        assert found.json()["notes"] == list(found.notes)
    fine = {k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in exact.items()}
    assert sc.compare_with_reference(model, fine).ok
    wrong = {**fine, "blocks.1.attn.hook_pattern": fine["blocks.1.attn.hook_pattern"] + np.float32(1e-3)}
    assert not sc.compare_with_reference(model, wrong).ok  # float32 numbers that the type cannot hold: no such run


@pytest.mark.parametrize(("kind", "wide"), [("bfloat16", "float64"), ("float16", "float64"), ("float32", "float64")])
def test_a_run_that_was_recorded_in_a_wider_type(model: Any, arrays: dict[str, Any], kind: str, wide: str) -> None:
    short = {k: v.astype(np.float32) if kind == "float32" else rounded(v, kind) for k, v in floats(arrays).items()}
    widened = {k: v.astype(wide) for k, v in short.items()}
    found = sc.compare_with_reference(model, {**arrays, **widened})
    assert found.ok, found.text()
    assert found.notes[0].startswith(f"all numbers recorded as {wide} are {kind} numbers")
    far = {
        k: v * {"float32": 1.01, "float16": 2.0, "bfloat16": 2.0}[kind] if k == "logits" else v
        for k, v in widened.items()
    }
    assert not sc.compare_with_reference(model, {**arrays, **far}).ok


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["tl_ln_s2", "tl_3layer_s11"])
def test_another_model_in_half_precision_is_told(data: Path, name: str, half: str) -> None:
    """A bound larger than the numbers themselves would call any model the recorded one."""
    model = replace(sc.load(data / name), dtype=half)
    other = sc.random_model(model.architecture, d_vocab=model.d_vocab, d_model=model.d_model, seed=9)
    tokens = np.arange(7) % model.d_vocab
    for subject, same in ((model, True), (other, False)):
        logits = rounded(subject.run(tokens).logits, half)
        found = sc.compare_with_reference(model, {"tokens": tokens, "logits": logits})
        assert found.ok is same, found.text()
    nothing = {"tokens": tokens, "logits": np.zeros_like(logits)}
    assert not sc.compare_with_reference(model, nothing).ok


def test_whole_numbers_tell_no_type(data: Path) -> None:
    """Of a compiled program all activations are whole numbers or simple fractions: the bound stays that of float32."""
    reference = recorded(data, "tracr_prevprev_V_2L")
    found = sc.compare_with_reference(sc.load(data / "tracr_prevprev_V_2L"), reference)
    assert found.ok
    assert found.notes == ()
    few = {"tokens": [1, 2], "blocks.0.hook_resid_pre": np.full((2, 16), 1 / 3, np.float32)}
    other = sc.random_model(sc.attention_only((1,)), d_vocab=5)
    assert sc.compare_with_reference(other, few).notes == ()


def floats(arrays: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in arrays.items() if v.dtype.kind == "f"}


def rounded(array: Any, half: str) -> Any:
    """float32 numbers that a type of two bytes holds."""
    if half == "float16":
        return array.astype(np.float16).astype(np.float32)
    bits = array.astype(np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize(
    ("name", "change", "first"),
    [
        ("tl_alibi_capped_s21", {"geometric_slopes": False}, "blocks.0.attn.hook_attn_scores"),
        ("tl_alibi_capped_s21", {"score_cap": 2.01}, "blocks.0.attn.hook_attn_scores"),
        ("tl_alibi_capped_s21", {"logit_cap": None}, "logits"),
        ("tl_alibi_capped_s21", {"windows": (4, 4)}, "blocks.1.attn.hook_attn_scores"),
        ("tl_alibi_capped_s21", {"activation": "silu"}, "blocks.0.hook_resid_post"),
        ("tl_rotary_part_s22", {"windows": (None, 3)}, "blocks.1.attn.hook_attn_scores"),
        ("tl_rotary_part_s22", {"rotary": Rotary(4, 501.0, True)}, "blocks.0.attn.hook_attn_scores"),
        ("tl_rotary_part_s22", {"rotary": Rotary(8, 500.0, True)}, "blocks.0.attn.hook_attn_scores"),
        ("tl_rotary_part_s22", {"eps": 1e-5}, "blocks.0.attn.hook_attn_scores"),
    ],
)
def test_a_setting_that_is_not_the_recorded_models_is_seen(
    data: Path, name: str, change: dict[str, Any], first: str
) -> None:
    model = sc.load(data / name)
    found = sc.compare_with_reference(
        replace(model, settings=replace(model.settings, **change)), data / name / "reference.npz"
    )
    assert found.first is not None
    assert found.first.name == first


# ---------------------------------------------------------------------------------------------- what is seen


@pytest.mark.parametrize("name", [
    "blocks.0.hook_resid_pre", "blocks.1.attn.hook_attn_scores", "blocks.1.ln2.hook_scale", "blocks.0.hook_attn_out",
    "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_result", "blocks.1.hook_mlp_out", "hook_pos_embed", "logits",
    "blocks.1.hook_resid_mid", "ln_final.hook_normalized", "blocks.1.ln1.hook_normalized",
])  # fmt: skip
def test_one_wrong_entry_of_any_array_is_seen(model: Any, arrays: dict[str, Any], name: str) -> None:
    wrong = arrays[name].copy()
    wrong.flat[-1] += 1e-6 * max(1, abs(wrong.flat[-1]))
    found = sc.compare_with_reference(model, {**arrays, name: wrong})
    assert not found.ok
    assert found.first is not None
    assert found.first.name == name
    assert [row.name for row in found.rows if not row.passed] == [name]
    assert f"1 array differs, the first in {found.first.place}: {name}" in " ".join(found.text().split())


def test_the_first_layer_that_differs_is_named(model: Any, arrays: dict[str, Any]) -> None:
    weights = dict(model.weights)
    weights["W_Q_L1H2"] = weights["W_Q_L1H2"] * 1.001
    other = sc.Model(model.architecture, weights, model.score_scale, settings=model.settings)
    found = sc.compare_with_reference(other, arrays)
    assert found.first is not None
    assert (found.first.place, found.first.name) == ("layer 1", "blocks.1.attn.hook_attn_scores")
    assert all(row.passed for row in found.rows if row.place == "layer 0")
    assert found.rows[-1].passed is False


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("logits", lambda a: a[:, :5], "its shape is [2, 5, 11]; the model's is [2, 9, 11]"),
        ("logits", lambda a: a.astype(str), "it holds <U32, not numbers"),
        ("logits", lambda a: np.where(a > 0, np.nan, a), "it holds numbers that are not finite"),
        ("logits", lambda a: (a * 1e5).astype("float16"), "finite; float16 ends at 65504, so it may have overflowed"),
        ("blocks.0.attn.hook_attn_scores", lambda a: np.where(a == -np.inf, 0, a), "scores where the model's mask"),
        ("blocks.0.attn.hook_attn_scores", lambda a: np.full_like(a, -np.inf), "it masks keys that the model allows"),
        ("blocks.1.attn.hook_attn_scores", lambda a: np.where(np.arange(9) < 2, -np.inf, a), "(padded tokens, or an"),
        ("blocks.1.attn.hook_attn_scores", lambda a: np.where(np.arange(9) < 2, -1e5, a), "it masks keys that the"),
        ("blocks.0.attn.hook_attn_scores", lambda a: np.where(a > 0, np.nan, a), "it holds numbers that are not"),
        ("blocks.0.attn.hook_pattern", lambda a: np.where(a > 0.5, np.nan, a), "it holds numbers that are not finite"),
    ],
)  # fmt: skip
def test_an_array_that_cannot_be_compared_differs(
    model: Any, arrays: dict[str, Any], name: str, change: Callable[[Any], Any], what: str
) -> None:
    with np.errstate(over="ignore"):
        wrong = change(arrays[name])
    found = sc.compare_with_reference(model, {**arrays, name: wrong})
    assert not found.ok
    assert found.first is not None
    assert found.first.name == name
    assert what in found.first.what
    assert what in " ".join(found.text(300).split())


def test_masked_scores_may_be_any_low_number(model: Any, arrays: dict[str, Any]) -> None:
    key = "blocks.0.attn.hook_attn_scores"
    for low in (-1e5, -1e30):
        assert sc.compare_with_reference(model, {**arrays, key: np.where(arrays[key] == -np.inf, low, arrays[key])}).ok


@pytest.mark.parametrize(
    ("change", "tokens", "message"),
    [
        ({"tokens": None}, None, "the reference does not hold tokens, so give those that it was recorded on"),
        ({}, [[1] * 9] * 2, r"the reference was recorded on other tokens: \[\[6, 9"),
        ({}, [1, 2, 3], r"the reference was recorded on tokens of shape \[2, 9\], not on these"),
    ],
)
def test_tokens_that_do_not_fit(
    model: Any, arrays: dict[str, Any], change: dict[str, Any], tokens: Any, message: str
) -> None:
    given = {k: v for k, v in {**arrays, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        sc.compare_with_reference(model, given, tokens)


def test_another_mask_is_seen(data: Path) -> None:
    weights, folder = dict(load_file(data / "tl_plain_s0" / "model.safetensors")), data / "tl_plain_s0"
    config = json.loads((folder / "config.json").read_text())
    other = sc.from_arrays(weights, {**config, "attention_dir": "bidirectional"})
    found = sc.compare_with_reference(other, folder / "reference.npz")
    assert found.first is not None
    assert found.first.what == "it masks keys that the model allows (padded tokens, or another mask)"
    back = everything_of_attention(other.run(recorded(data, "tl_plain_s0")["tokens"]))
    found = sc.compare_with_reference(sc.load(folder), back)
    assert found.first is not None
    assert found.first.what == "it has scores where the model's mask leaves none"
    assert not found.rows[1].passed  # the pattern


def everything_of_attention(run: Run) -> dict[str, Any]:
    heads = [str(h) for h in run.model.architecture.layer_heads(0)]
    scores, patterns = (np.stack([a[h] for h in heads], axis=-3) for a in (run.scores, run.patterns))
    return {"tokens": run.tokens, "blocks.0.attn.hook_attn_scores": scores, "blocks.0.attn.hook_pattern": patterns}


def test_names_from_a_file_cannot_speak_to_the_terminal(model: Any, arrays: dict[str, Any]) -> None:
    named = replace(model, name="evil\x1b[31m\nname")
    text = sc.compare_with_reference(named, {**arrays, "no\x1b[2Jne": np.ones(1)}).text()
    assert "\x1b" not in text
    assert r"evil\x1b[31m\nname" in text
    assert r"no\x1b[2Jne" in text


def test_a_reference_in_which_nothing_is_known(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no known array .*; it holds blocks.7.hook_resid_pre, foo"):
        sc.compare_with_reference(model, {"tokens": [1], "blocks.7.hook_resid_pre": [1.0], "foo": [2]})
    with pytest.raises(TypeError, match="a reference is the path of a file, or a mapping of arrays, not a list"):
        sc.compare_with_reference(model, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"none\.npz: there is no such file or folder"):
        sc.compare_with_reference(model, tmp_path / "none.npz")
    (tmp_path / "a.txt").write_text("logits")
    with pytest.raises(ValueError, match=r"a\.txt: a reference is read from a file that ends in \.safetensors, \.npz,"):
        sc.compare_with_reference(model, tmp_path / "a.txt")
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(ValueError, match=r"empty\.npz: there are no recorded arrays at all$"):
        sc.compare_with_reference(model, tmp_path / "empty.npz")


@pytest.mark.parametrize("method", ["open", "is_symlink"])  # of the file itself, and of what its folder holds
def test_a_reference_that_may_not_be_read(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    model = sc.random_model(sc.attention_only((1,)))
    (tmp_path / "recorded").write_text("logits")
    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(ValueError, match=r"recorded: cannot be read \(Permission denied\)$"):
        sc.compare_with_reference(model, tmp_path / "recorded")


# ------------------------------------------------------------------------------------ every layer is its parts


def broken(run: Run, **change: Any) -> Run:
    return replace(run, **{k: MappingProxyType(v) for k, v in change.items()})


def test_a_layer_is_the_sum_of_its_parts_and_a_wrong_part_is_seen(model: Any, data: Path) -> None:
    run = model.run(recorded(data, MLP)["tokens"])
    layers = layer_closures(run)
    assert [(c.target, c.summands, c.passed) for c in layers] == [("layer:0", 6, True), ("layer:1", 6, True)]
    doubled = {**run.results, "L1H0": run.results["L1H0"] + run.streams[1]}  # a result that holds the stream
    scaled = {**run.mlps, "L0": run.mlps["L0"] * (1 + 1e-9)}
    for change, first in ((broken(run, results=doubled), "layer:1"), (broken(run, mlps=scaled), "layer:0")):
        worst = worst_closure(layer_closures(change))
        assert worst is not None
        assert (worst.target, worst.passed) == (first, False)
        row = check_layers(change)
        assert row.passed is False
        assert f"{first.replace(':', ' ')}: the stream after it is not" in row.what
    assert worst_closure(()) is None


def test_verify_and_explain_have_the_row(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = sc.verify(model, [1, 2, 3], targets=["logits"])
    assert [c.passed for c in report.checks if c.name == "sum of parts"] == [True]
    assert not [c for c in sc.verify(sc.attention_only((1,)), targets=["logits"]).checks if c.name == "sum of parts"]
    found = sc.explain(model, [1, 2, 3])
    assert found.ok
    assert "each of 2: stream + heads + b_O + MLP" in found.text()
    assert [c["passed"] for c in found.json()["closure"]["layers"]] == [True, True]
    failed = replace(found, layers=(replace(found.layers[0], passed=False), found.layers[1]))
    assert not failed.ok
    assert "FAIL  layers" in failed.text()


# ---------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_the_command_line_compares_first(data: Path, capsys: Any, command: str) -> None:
    folder = data / "tl_ln_s2"
    words = [command, str(folder), "--reference", str(folder / "reference.npz")]
    words += ["--target", "logits"] if command == "verify" else ["--top", "2"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.index("our forward pass of tl_ln_s2") < text.index("\n" + command)
    assert "not compared, because not known here: comp/Q" in text
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reference"]["ok"] is True
    assert found["reference"]["arrays"][0]["name"] == "blocks.0.ln1.hook_scale"


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_nothing_is_said_about_a_model_that_is_another_one(data: Path, capsys: Any, command: str) -> None:
    words = [command, str(data / "tl_bias_s1"), "--reference", str(data / "tl_plain_s0" / "reference.npz")]
    assert main(words) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "the recorded model is a different one: 7 arrays differ, the first in layer 0: blocks.0.attn" in text
    assert command + " tl_bias_s1" not in text
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["ok"]) == ("symcircuits.reference/1", False)
    assert found["first"] == "blocks.0.attn.hook_attn_scores"


def test_the_command_line_needs_tokens_and_a_model(data: Path, capsys: Any) -> None:
    reference = str(data / "tl_bias_s1" / "reference.npz")
    assert main(["verify", "--heads", "2", "--reference", reference]) == 2
    assert "--reference needs a MODEL" in capsys.readouterr().err
    assert main(["explain", str(data / "tl_bias_s1")]) == 2
    said = capsys.readouterr().err
    assert "give --tokens 1,2,3, " in said
    assert "or a --reference FILE with tokens" in said
