"""Norms, MLPs and key/value groups in TransformerLens's layout: read as they are meant, contradictions refused."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import symcircuits as sc
from symcircuits.core.architecture import Head
from symcircuits.loaders import Unsupported, from_arrays
from symcircuits.model import ACTIVATIONS, Model

LN, MLP, GQA, PLAIN = "tl_ln_s2", "tl_mlp_gelu_ln_s18", "tl_gqa_s9", "tl_bias_s1"


def parts(data: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the config of a model, free to be changed."""
    weights = {k: v.copy() for k, v in load_file(data / name / "model.safetensors").items()}
    return weights, json.loads((data / name / "config.json").read_text())


def stream_after(model: Model, tokens: list[int]) -> Any:
    return model.run(tokens).streams[-1]


# ------------------------------------------------------------------------------------------------ norms


@pytest.mark.parametrize("kind", ["LN", "RMS"])
def test_a_folded_norm_is_one_without_gain(data: Path, kind: str) -> None:
    weights, config = parts(data, LN)
    bare = {k: v for k, v in weights.items() if ".ln1." not in k and not k.startswith("ln_final")}
    model = from_arrays(bare, {**config, "normalization_type": f"{kind}Pre"})
    assert (model.architecture.norm, model.architecture.gains) == (kind, frozenset())
    with_gain = {k: np.ones(16) for k in weights if k.endswith(("ln1.w", "ln_final.w"))}
    same = from_arrays(bare | with_gain, {**config, "normalization_type": kind})
    assert same.architecture.gains == {"L0", "L1", "final"}
    assert np.array_equal(same.run([1, 2, 3]).logits, model.run([1, 2, 3]).logits)
    x = model.run([1, 2, 3]).streams[0]
    x = x - x.mean(-1, keepdims=True) if kind == "LN" else x
    assert np.allclose(model.run([1, 2, 3]).norms["L0"], 1 / np.sqrt((x * x).mean(-1) + 1e-5), rtol=1e-14)


def test_eps_is_read_and_said_where_it_is_not_given(data: Path) -> None:
    weights, config = parts(data, LN)
    model = from_arrays(weights, {**config, "eps": 0.5})
    assert model.settings.eps == 0.5
    x = model.run([4]).streams[0]
    assert model.run([4]).norms["L0"] == pytest.approx(1 / np.sqrt(x.var(-1) + 0.5), rel=1e-14)
    del config["eps"]
    assert from_arrays(weights, config).notes == ("the config does not give eps of the norms, so it is 1e-05",)
    with pytest.raises(ValueError, match="eps in the config holds a number that is not finite, or too large: NaN"):
        from_arrays(weights, {**config, "eps": float("nan")})
    for eps in (-1.0, "small", True):
        with pytest.raises(ValueError, match="eps in the config must be a number, 0 or more, not"):
            from_arrays(weights, {**config, "eps": eps})


def test_norm_biases_that_are_zero_are_no_sources(data: Path) -> None:
    weights, config = parts(data, LN)
    weights["blocks.0.ln1.b"][:] = 0
    model = from_arrays(weights, config)
    assert model.notes == ("b_N of L0 is zero and is not a source",)
    assert {"b_N[L1]", "b_N[final]"} <= model.architecture.biases
    for name in [k for k in weights if k.endswith((".ln1.b", "ln_final.b"))]:
        del weights[name]
    model = from_arrays(weights, config)
    assert model.notes == ("the file has no b_N",)
    assert not [b for b in model.architecture.biases if b.startswith("b_N")]


@pytest.mark.parametrize(
    ("name", "config", "drop", "message"),
    [
        (LN, {"normalization_type": None}, "", "normalization_type is null, which means no norm, but there is a .*ln"),
        (LN, {"normalization_type": "LNPre"}, "", 'type is "LNPre", which means a norm without gain .folded into'),
        (LN, {"normalization_type": "Batch"}, "", 'must be null, "LN", "LNPre", "RMS" or "RMSPre", not "Batch"'),
        (LN, {"normalization_type": "RMS"}, "", "that it does not use: .*blocks.0.ln1.b"),
        (LN, {"uses_rms_norm": True}, "", 'normalization_type is "LN", but uses_rms_norm is true'),
        (LN, {}, "blocks.0.ln1.w", "the file lacks 1 weight: blocks.0.ln1.w"),
        (LN, {}, "ln_final.w", "the file lacks 1 weight: ln_final.w"),
        (LN, {}, "blocks.1.ln1.b", "missing in the file: blocks.1.ln1.b; the other layers have a ln1.b"),
        (PLAIN, {"normalization_type": "LN"}, "", 'normalization_type is "LN", but there are no weights of norms'),
        (PLAIN, {"normalization_type": "RMS"}, "", 'whose gain is folded into the weights is "RMSPre"'),
        (MLP, {"attn_only": True}, "", "attn_only is true, but there is a blocks.0.mlp.W_in"),
        (MLP, {"act_fn": None}, "", "act_fn, the activation of the MLPs, is not in the config"),
        (MLP, {"d_mlp": 21}, "", r"mlp.W_in has shape \[16, 20\]; expected .* = \[16, 21\], .*says d_mlp = 21"),
        (MLP, {"gated_mlp": True}, "", "gated_mlp is true, but there is no weight of a gate"),
        (MLP, {}, "blocks.1.mlp.W_out", "the file lacks 1 weight: blocks.1.mlp.W_out"),
        (MLP, {}, "blocks.1.mlp.b_in", "missing in the file: blocks.1.mlp.b_in; the other layers have a b_in"),
        (MLP, {}, "blocks.0.ln2.w", "the file lacks 1 weight: blocks.0.ln2.w"),
        (PLAIN, {"attn_only": False}, "", "attn_only is false, but there are no weights of MLPs"),
        (PLAIN, {"parallel_attn_mlp": True}, "", "parallel_attn_mlp is true, but there are no MLPs"),
        (GQA, {"n_key_value_heads": None}, "", "n_key_value_heads is null, but there is a .*_W_K, which belongs to"),
        (GQA, {"n_key_value_heads": 4}, "", "n_key_value_heads is 4, which does not divide the 6 heads of layer 0"),
        (GQA, {"n_key_value_heads": 3}, "", r"_W_K has shape \[2, 16, 4\]; .*config says n_key_value_heads = 3"),
        (GQA, {}, "blocks.1.attn._b_K", "missing in the file: blocks.1.attn._b_K"),
        (PLAIN, {"n_key_value_heads": 1}, "", "n_key_value_heads is 1, but blocks.0.attn.W_K differs within groups"),
    ],
)  # fmt: skip
def test_a_feature_of_one_and_not_of_the_other_is_refused(
    data: Path, name: str, config: dict[str, Any], drop: str, message: str
) -> None:
    weights, given = parts(data, name)
    with pytest.raises(ValueError, match=message) as error:
        from_arrays({k: v for k, v in weights.items() if k != drop}, {**given, **config})
    assert not isinstance(error.value, Unsupported)


# ------------------------------------------------------------------------------------------------- MLPs


def gated(data: Path, b_in: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    weights, config = parts(data, MLP)
    rng = np.random.default_rng(5)
    for layer in range(2):
        at = f"blocks.{layer}.mlp."
        weights[at + "W_gate"] = rng.standard_normal((16, 20))
        weights[at + "b_in"] = rng.standard_normal(20) if b_in else np.zeros(20)
    return weights, {**config, "gated_mlp": True, "act_fn": "silu"}


@pytest.mark.parametrize("b_in", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_gated_mlp_is_transformerlens_own(data: Path, b_in: bool, parallel: bool) -> None:
    """There b_in is added after the product with the gate."""
    weights, config = gated(data, b_in)
    model = from_arrays(weights, {**config, "parallel_attn_mlp": parallel})
    assert (model.architecture.gated, model.architecture.parallel) == (True, parallel)
    assert any("b_in of L0, L1, added after the gate" in n for n in model.notes) is b_in
    run, at = model.run([3, 1, 4]), "blocks.1."
    before = run.streams[1] if parallel else run.streams[2] - run.mlps["L1"]
    centred = before - before.mean(-1, keepdims=True)
    read = centred / np.sqrt(before.var(-1, keepdims=True) + 1e-5) * weights[at + "ln2.w"] + weights[at + "ln2.b"]
    gate = read @ weights[at + "mlp.W_gate"]
    inner = gate / (1 + np.exp(-gate)) * (read @ weights[at + "mlp.W_in"]) + weights[at + "mlp.b_in"]
    assert np.allclose(
        run.mlps["L1"], inner @ weights[at + "mlp.W_out"] + weights[at + "mlp.b_out"], rtol=0, atol=1e-12
    )


def test_a_gate_without_activation_is_a_bilinear_mlp(data: Path) -> None:
    weights, config = gated(data, b_in=True)
    model = from_arrays(weights, {**config, "act_fn": "identity", "softmax": False})
    assert (model.architecture.bilinear, model.architecture.softmax) == (True, False)
    run = model.run([3, 1, 4])
    terms = sc.logits(model.architecture).order(0).unfrozen()
    assert terms.counts_by_order().keys() == {0}
    total = sc.evaluate(sc.logits(model.architecture).unfrozen(), run).total()
    assert np.allclose(total, run.logits, rtol=1e-9, atol=1e-9 * abs(run.logits).max())
    assert from_arrays(weights, config).architecture.bilinear is False
    with pytest.raises(ValueError, match="softmax in the config must be"):
        from_arrays(weights, {**config, "softmax": "no"})


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu"])
def test_every_activation_of_transformerlens_is_known(data: Path, name: str) -> None:
    weights, config = parts(data, MLP)
    assert from_arrays(weights, {**config, "act_fn": name}).settings.activation == name
    assert name in ACTIVATIONS


def test_an_activation_that_is_not_built_is_refused_by_name(data: Path) -> None:
    weights, config = parts(data, MLP)
    with pytest.raises(Unsupported, match=r"the activation xielu \(act_fn is") as error:
        from_arrays(weights, {**config, "act_fn": "xielu"})
    assert error.value.features == ("the activation xielu",)
    plain, said = parts(data, PLAIN)
    assert from_arrays(plain, {**said, "act_fn": "xielu"}).architecture.mlps == frozenset()  # no MLP: not used


def test_mlps_are_there_where_the_config_does_not_say(data: Path) -> None:
    weights, config = parts(data, MLP)
    del config["attn_only"]
    assert from_arrays(weights, config).architecture.mlps == {0, 1}


# ---------------------------------------------------------------------------------- key/value groups, scale


def test_keys_and_values_of_groups(data: Path) -> None:
    weights, config = parts(data, GQA)
    model = from_arrays(weights, config)
    assert np.array_equal(model.weights["W_K_L1G1"], weights["blocks.1.attn._W_K"][1].T)
    assert np.array_equal(model.weights["b_V_L0G0"], weights["blocks.0.attn._b_V"][0])
    assert model.architecture.key_value(Head(0, 2)) == "L0G0"
    assert model.architecture.key_value(Head(0, 3)) == "L0G1"


def test_groups_stored_for_every_head_are_the_same_model(data: Path) -> None:
    weights, config = parts(data, GQA)
    each = {k.replace("._", "."): np.repeat(v, 3, axis=0) if "._" in k else v for k, v in weights.items()}
    once = {k.replace("._", "."): v for k, v in weights.items()}
    expected = from_arrays(weights, config)
    for stored in (each, once):
        model = from_arrays(stored, config)
        assert model.architecture == expected.architecture
        assert np.array_equal(model.run([1, 2, 3]).logits, expected.run([1, 2, 3]).logits)
    own = from_arrays(each, {k: v for k, v in config.items() if k != "n_key_value_heads"})
    assert own.architecture.groups is None
    assert np.allclose(own.run([1, 2, 3]).logits, expected.run([1, 2, 3]).logits, rtol=1e-13)
    as_many = from_arrays(
        {re.sub("([Wb]_[KV])", r"_\1", k): v for k, v in each.items()},
        {**config, "n_key_value_heads": 6},
    )
    assert as_many.architecture.groups is None
    assert np.array_equal(as_many.weights["W_K_L0H5"], own.weights["W_K_L0H5"])


def test_scores_may_be_divided_by_the_number_of_the_layer(data: Path) -> None:
    weights, config = parts(data, PLAIN)
    plain = from_arrays(weights, config)
    model = from_arrays(weights, {**config, "scale_attn_by_inverse_layer_idx": True})
    assert model.score_scale == {h: s / (2 if h[1] == "1" else 1) for h, s in plain.score_scale.items()}
    assert "scores of layer l (counted from 0) are also divided by l + 1" in model.notes
    without = from_arrays(weights, {**config, "scale_attn_by_inverse_layer_idx": True, "use_attn_scale": False})
    assert without.score_scale["L0H0"] == 1
    assert without.score_scale["L1H2"] == 0.5


def test_what_is_held_fixed_is_said(data: Path) -> None:
    found = sc.explain(sc.load(data / MLP), [1, 2, 3])
    assert found.assumptions[0] == (
        "held fixed: the attention pattern of every head, 1 / sigma of every norm, the output of every MLP, at their "
        "values on these tokens"
    )
    assert found.ok


@pytest.mark.parametrize("name", [LN, MLP, GQA, "tracr_frac_prevs_mlp"])
@pytest.mark.sampled(2)
def test_their_expansions_verify(data: Path, name: str) -> None:
    model = sc.load(data / name)
    first = "logits" if model.architecture.unembed else "stream"
    report = sc.verify(model, [1, 2, 3, 0], targets=[first, "scores:L1H0"])
    assert report.ok, report.text()
    assert math.isfinite(max(c.error for c in report.checks if c.error is not None))


def test_gelu_fast_has_the_digits_that_it_is_published_with() -> None:
    x = np.linspace(-4, 4, 9)
    published = 0.5 * x * (1 + np.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))
    assert np.abs(ACTIVATIONS["gelu_fast"](x) - published).max() < 1e-15
    assert np.abs(ACTIVATIONS["gelu_new"](x) - published).max() > 1e-13
