"""The layouts of Hugging Face, held to what the transformers library computed on small random models."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import symcircuits as sc
from symcircuits.loaders import LAYOUTS, Unsupported, from_arrays
from symcircuits.loaders.keys import READ
from symcircuits.model import Model

GPT2 = ["hf_gpt2", "hf_gpt2_by_layer"]
ROTARY = ["hf_neox", "hf_neox_serial", "hf_llama", "hf_mistral", "hf_qwen2", "hf_granite", "hf_gemma"]


def parts(data: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the config of a model, free to be changed."""
    weights = {k: v.copy() for k, v in load_file(data / name / "model.safetensors").items()}
    return weights, json.loads((data / name / "config.json").read_text())


def reference(data: Path, name: str) -> dict[str, Any]:
    with np.load(data / name / "reference.npz") as arrays:
        return dict(arrays)


# ------------------------------------------------------------------------------------------------- GPT-2


@pytest.mark.parametrize("name", GPT2)
@pytest.mark.sampled(1)
def test_gpt2_computes_what_transformers_computes(data: Path, name: str) -> None:
    model = sc.load(data / name)
    recorded = reference(data, name)
    found = sc.compare_with_reference(model, data / name / "reference.npz")
    assert found.ok, found.text()
    assert len(found.rows) == 6
    assert np.abs(model.run(recorded["tokens"]).logits - recorded["logits"]).max() < 1e-12
    report = sc.verify(model, [1, 2, 3], targets=["logits", "scores:L1H0"])
    assert report.ok, report.text()
    before_gain = {k: v for k, v in recorded.items() if "normalized" not in k}  # a folded norm has none
    assert sc.compare_with_reference(sc.fold(model), before_gain).ok


def logits(weights: dict[str, Any], config: dict[str, Any]) -> Any:
    return from_arrays(weights, config).run([3, 1, 4]).logits


def test_gpt2_with_and_without_prefix_head_and_buffers(data: Path) -> None:
    weights, config = parts(data, "hf_gpt2")
    expected = logits(weights, config)
    bare = {k.removeprefix("transformer."): v for k, v in weights.items()}
    buffers = {"h.0.attn.bias": np.ones((1, 1, 12, 12)), "h.1.attn.masked_bias": np.array(-1e4)}
    with_head = {**weights, "lm_head.weight": weights["transformer.wte.weight"]}
    for stored in (bare, bare | buffers, with_head):
        assert np.array_equal(logits(stored, config), expected)
    dropped = "buffers that are not weights were dropped: h.0.attn.bias, h.1.attn.masked_bias"
    assert dropped in from_arrays(bare | buffers, config).notes
    assert any(
        "h.0.attn.bias in the file is another mask" in note for note in from_arrays(bare | buffers, config).notes
    )
    causal = {"h.0.attn.bias": np.tril(np.ones((12, 12), np.uint8))[None, None]}
    assert not any("another mask" in note for note in from_arrays(bare | causal, config).notes)
    assert "the unembedding is the embedding (tied)" in from_arrays(weights, config).notes
    untied = {**config, "tie_word_embeddings": False}
    assert np.array_equal(logits(with_head, untied), expected)
    assert not np.allclose(logits({**weights, "lm_head.weight": np.ones((11, 8))}, untied), expected)


def test_gpt2_square_weights_are_taken_by_layout(data: Path) -> None:
    """c_proj and c_fc are square in one of the models; their transposes give another one."""
    weights, config = parts(data, "hf_gpt2_by_layer")
    expected = logits(weights, config)
    for name in ("h.0.attn.c_proj.weight", "h.1.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"):
        full = f"transformer.{name}"
        assert weights[full].shape == (8, 8)
        assert not np.allclose(logits({**weights, full: weights[full].T.copy()}, config), expected)
    fused = "transformer.h.0.attn.c_attn.weight"
    message = r"c_attn.weight has shape \[24, 8\]; expected \[n_embd, 3\*n_embd\] = \[8, 24\].*its transpose would fit"
    with pytest.raises(ValueError, match=message):
        logits({**weights, fused: weights[fused].T.copy()}, config)


def test_gpt2_scales(data: Path) -> None:
    weights, config = parts(data, "hf_gpt2")
    assert from_arrays(weights, config).score_scale == dict.fromkeys(("L0H0", "L0H1", "L1H0", "L1H1"), 0.5)
    unscaled = from_arrays(weights, {**config, "scale_attn_weights": False})
    assert unscaled.architecture.scale is False
    both = from_arrays(weights, {**config, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True})
    assert both.score_scale == {"L0H0": 1.0, "L0H1": 1.0, "L1H0": 0.5, "L1H1": 0.5}


def test_gpt2_without_layers(data: Path) -> None:
    weights, config = parts(data, "hf_gpt2")
    bare = {k: v for k, v in weights.items() if ".h." not in k}
    assert from_arrays(bare, {**config, "n_layer": 0}).architecture.heads == ()


@pytest.mark.parametrize(
    ("config", "weights", "message"),
    [
        ({"n_head": None}, {}, "n_head is not in the config, and the weights alone do not tell it"),
        ({"n_head": 3}, {}, "3 heads do not divide the 8 dimensions of the stream"),
        ({"n_layer": 1}, {}, "the file has 12 weights that it does not use: transformer.h.1.attn"),
        ({"n_layer": 3}, {}, "the file lacks 12 weights: transformer.h.2.attn.c_attn.weight"),
        ({"n_inner": None}, {}, r"mlp.c_fc.weight has shape \[8, 12\]; .* = \[8, 32\].*n_inner = 32"),
        ({"vocab_size": 12}, {}, r"wte.weight has shape \[11, 8\]; .*says vocab_size = 12"),
        ({"tie_word_embeddings": False}, {}, "tie_word_embeddings is false, but there is no lm_head.weight"),
        ({}, {"lm_head.weight": np.ones((11, 8))}, "tie_word_embeddings is true, but lm_head.weight differs from"),
        ({"layer_norm_epsilon": -1}, {}, "layer_norm_epsilon in the config must be a number, 0 or more, not -1"),
        ({"novel_trick": 2}, {}, "unknown keys, which may change .*: novel_trick = 2; remove"),
        ({"novel_trick": 0}, {}, "unknown keys, which may change .*: novel_trick = 0; remove"),
        ({}, {"transformer.h.0.attn.c_attn.bias": None}, "the file lacks 1 weight: transformer.h.0.attn.c_attn.bias"),
        ({}, {"transformer.h.0.crossattention.c_attn.weight": np.ones(3)}, "has 1 weight that it does not use"),
        ({}, {"transformer.wpe.weight": np.full((12, 8), np.nan)}, r"wpe.weight holds nan at \[0, 0\]"),
    ],
)  # fmt: skip
def test_gpt2_that_is_wrong(data: Path, config: dict[str, Any], weights: dict[str, Any], message: str) -> None:
    stored, given = parts(data, "hf_gpt2")
    changed = {k: v for k, v in {**stored, **weights}.items() if v is not None}
    with pytest.raises(ValueError, match=message) as error:
        from_arrays(changed, {k: v for k, v in {**given, **config}.items() if v is not None})
    assert not isinstance(error.value, Unsupported)


@pytest.mark.parametrize(
    ("config", "feature"),
    [
        ({"activation_function": "gelu_10"}, "the activation gelu_10"),
        ({"add_cross_attention": True}, "an encoder and a decoder"),
        ({"model_type": "gpt_bigcode"}, "the computation of model_type gpt_bigcode"),
        ({"quantization_config": {"bits": 4}}, "quantized weights"),
    ],
)
def test_gpt2_that_needs_what_is_not_built(data: Path, config: dict[str, Any], feature: str) -> None:
    weights, given = parts(data, "hf_gpt2")
    with pytest.raises(Unsupported, match="not supported") as error:
        from_arrays(weights, {**given, **config})
    assert error.value.features == (feature,)


def test_keys_that_are_not_set_are_taken(data: Path) -> None:
    weights, config = parts(data, "hf_gpt2")
    more = {"novel_trick": None, "third": [], "fourth": {}, "n_ctx": 12, "_name_or_path": "x", "alibi": False}
    assert np.array_equal(logits(weights, {**config, **more}), logits(weights, config))
    with pytest.raises(ValueError, match=r"unknown keys, .*: other = false"):  # it may be true by default
        logits(weights, {**config, "other": False})


# -------------------------------------------------------------------------------------- rotary positions


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.sampled(3)
def test_a_rotary_model_computes_what_transformers_computes(data: Path, name: str) -> None:
    model, recorded = sc.load(data / name), reference(data, name)
    found = sc.compare_with_reference(model, data / name / "reference.npz")
    assert found.ok, found.text()
    assert len(found.rows) == 6
    assert np.abs(model.run(recorded["tokens"]).logits - recorded["logits"]).max() < 1e-12
    expected = {"hf_neox": (2, 1e4), "hf_neox_serial": (4, 1e4), "hf_gemma": (4, 1e4)}.get(name, (2, 1e4))
    turns = model.settings.rotary
    assert ((turns.dim, turns.base), turns.adjacent) == (expected, False)
    report = sc.verify(model, [1, 2, 3], targets=["logits", "scores:L1H0"])
    assert report.ok, report.text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf_neox", "transformer, heads 2,2, positions rotary, LN norm, parallel MLPs, biases"),
        ("hf_neox_serial", "transformer, heads 2,2, positions rotary, LN norm, MLPs, biases"),
        ("hf_llama", "transformer, heads 4,4, key/value heads 2,2, positions rotary, RMS norm, gated MLPs"),
        ("hf_mistral", "transformer, heads 4,4, key/value heads 2,2, positions rotary, RMS norm, gated MLPs"),
        ("hf_qwen2", "transformer, heads 4,4, key/value heads 2,2, positions rotary, RMS norm, gated MLPs, biases"),
    ],
)
def test_what_the_models_are(data: Path, name: str, words: str) -> None:
    model = sc.load(data / name)
    assert str(model.architecture) == words
    assert any("tied" in note for note in model.notes) == (name == "hf_qwen2")


def test_buffers_and_other_names_of_the_unembedding(data: Path) -> None:
    weights, config = parts(data, "hf_neox")
    expected = logits(weights, config)
    other = {("lm_head.weight" if k == "embed_out.weight" else k): v for k, v in weights.items()}
    other["gpt_neox.layers.0.attention.bias"] = np.ones((1, 1, 12, 12), dtype=bool)
    other["gpt_neox.layers.0.attention.masked_bias"] = np.array(-1e9)
    other["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = np.ones(1)
    assert np.array_equal(logits(other, config), expected)
    weights, config = parts(data, "hf_llama")
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(1)}
    assert np.array_equal(logits({**weights, **buffers}, config), logits(weights, config))


def test_a_size_of_heads_of_its_own(data: Path) -> None:
    weights, config = parts(data, "hf_llama")
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn."
        for name, heads in (("q_proj", 4), ("k_proj", 2), ("v_proj", 2)):
            weights[f"{at}{name}.weight"] = np.ones((heads * 6, 8))
        weights[f"{at}o_proj.weight"] = np.ones((8, 24))
    model = from_arrays(weights, {**config, "head_dim": 6})
    assert model.weights["W_K_L0G1"].shape == (6, 8)
    assert model.score_scale["L0H0"] == pytest.approx(6**-0.5)


def test_llama_with_all_biases(data: Path) -> None:
    weights, config = parts(data, "hf_llama")
    sizes = {"q_proj": 8, "k_proj": 4, "v_proj": 4, "o_proj": 8, "gate_proj": 12, "up_proj": 12, "down_proj": 8}
    for name, size in sizes.items():
        for layer in range(2):
            block = "self_attn" if name[1:] == "_proj" else "mlp"
            weights[f"model.layers.{layer}.{block}.{name}.bias"] = np.arange(1.0, size + 1)
    model = from_arrays(weights, {**config, "attention_bias": True, "mlp_bias": True})
    assert np.array_equal(model.weights["b_Q_L0H1"], [3, 4])
    assert np.array_equal(model.weights["b_K_L1G1"], [3, 4])
    assert {"b_O[L0]", "b_gate[L1]", "b_in[L0]", "b_out[L1]"} <= model.architecture.biases


@pytest.mark.parametrize(
    ("name", "config", "weights", "message"),
    [
        ("hf_llama", {"model_type": None}, {}, "not in the config, and several kinds of models have these names"),
        ("hf_llama", {"num_key_value_heads": 3}, {}, "num_key_value_heads is 3, which does not divide the 4 heads"),
        ("hf_llama", {"num_key_value_heads": 4}, {}, r"k_proj.weight has shape \[4, 8\]; .*kv_heads\*head_dim = 8"),
        ("hf_llama", {"num_attention_heads": None}, {}, "num_attention_heads is not in the config"),
        ("hf_llama", {"attention_bias": True}, {}, "attention_bias is true, but there is no .*q_proj.bias"),
        ("hf_llama", {"mlp_bias": True}, {}, "mlp_bias is true, but there is no .*gate_proj.bias"),
        ("hf_qwen2", {"use_sliding_window": True, "sliding_window": 0}, {}, "sliding_window must be a whole number"),
        ("hf_qwen2", {"max_window_layers": -1}, {}, "max_window_layers in the config must be a whole number, not -1"),
        ("hf_qwen2", {}, {"model.layers.1.self_attn.k_proj.bias": None}, "missing in the file: .*1.self_attn.k_proj"),
        ("hf_qwen2", {"tie_word_embeddings": False}, {}, "tie_word_embeddings is false, but there is no lm_head"),
        ("hf_neox", {"attention_bias": False}, {}, "attention_bias is false, but there is a .*query_key_value.bias"),
        ("hf_neox", {"intermediate_size": 13}, {}, r"dense_h_to_4h.weight has shape \[12, 8\].*intermediate_size = 13"),
        ("hf_neox", {"rope_parameters": 3}, {}, "rope_parameters in the config must be an object"),
        ("hf_neox", {"rope_parameters": {"rope_theta": 0}}, {}, "rotary positions need a base and a share"),
        ("hf_neox", {"num_hidden_layers": 1}, {}, "weights that it does not use: gpt_neox.layers.1"),
        ("hf_mistral", {"some_key": 1.5}, {}, "unknown keys, .*: some_key = 1.5"),
    ],
)  # fmt: skip
def test_rotary_models_that_are_wrong(
    data: Path, name: str, config: dict[str, Any], weights: dict[str, Any], message: str
) -> None:
    stored, given = parts(data, name)
    changed = {k: v for k, v in {**stored, **weights}.items() if v is not None}
    with pytest.raises(ValueError, match=message) as error:
        from_arrays(changed, {k: v for k, v in {**given, **config}.items() if v is not None})
    assert not isinstance(error.value, Unsupported)


@pytest.mark.parametrize(
    ("name", "config", "feature"),
    [
        ("hf_llama", {"model_type": "gemma2"}, "the computation of model_type gemma2"),
        ("hf_granite", {"model_type": "granitemoe"}, "the computation of model_type granitemoe"),
        ("hf_llama", {"rope_scaling": {"type": "linear"}, "rope_parameters": None}, "scaled rotary positions"),
        ("hf_llama", {"rope_parameters": {"rope_type": "llama3"}}, "scaled rotary positions"),
        ("hf_llama", {"hidden_act": "gelu_10"}, "the activation gelu_10"),
        ("hf_llama", {"use_sliding_window": True}, "local (windowed) attention"),
        ("hf_llama", {"sliding_window": 4}, "local (windowed) attention"),
        ("hf_gemma", {"layer_types": ["sliding_attention"] * 2}, "another kind of attention"),
        ("hf_mistral", {"layer_types": ["full_attention", "sliding_attention"]}, "a window in some layers"),
        ("hf_qwen2", {"attention_bias": False}, "queries, keys and values without biases"),
        ("hf_qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "a window without a size"),
        ("hf_llama", {"layer_types": ["full_attention", "chunked_attention"]}, "another kind of attention"),
    ],
)  # fmt: skip
def test_rotary_models_that_need_what_is_not_built(data: Path, name: str, config: dict[str, Any], feature: str) -> None:
    stored, given = parts(data, name)
    with pytest.raises(Unsupported) as error:
        from_arrays(stored, {k: v for k, v in {**given, **config}.items() if v is not None})
    assert error.value.features == (feature,)


def test_windows(data: Path) -> None:
    """A query sees so many keys, itself among them; a window that is wide enough changes nothing."""
    weights, config = parts(data, "hf_mistral")
    assert np.array_equal(logits(weights, {**config, "sliding_window": 12}), logits(weights, config))
    model = from_arrays(weights, {**config, "sliding_window": 2})
    pattern = model.run([1, 2, 3, 4]).patterns["L0H0"]
    assert (pattern > 0).tolist() == np.triu(np.tri(4, dtype=bool), -1).tolist()
    default = {k: v for k, v in config.items() if k != "sliding_window"}
    assert from_arrays(weights, default).settings.windows == (4096, 4096)
    none = {**config, "sliding_window": None, "layer_types": ["full_attention"] * 2}
    assert from_arrays(weights, none).settings.windows == ()


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        ({"use_sliding_window": False, "sliding_window": 2}, ()),
        ({"sliding_window": 2, "max_window_layers": 1}, (None, 2)),
        ({"sliding_window": 2, "max_window_layers": 0}, (2, 2)),
        ({"max_window_layers": 0}, (4096, 4096)),
        ({"sliding_window": 2}, ()),  # the first 28 have none
        ({"sliding_window": None, "max_window_layers": 0}, ()),
        (
            {"sliding_window": 2, "max_window_layers": 0, "layer_types": ["full_attention", "sliding_attention"]},
            (None, 2),
        ),
    ],
)
def test_windows_of_qwen2(data: Path, said: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    weights, config = parts(data, "hf_qwen2")
    bare = {k: v for k, v in config.items() if k not in ("layer_types", "sliding_window", "max_window_layers")}
    assert from_arrays(weights, {**bare, "use_sliding_window": True, **said}).settings.windows == windows


# -------------------------------------------------------------------------------------------- all layouts


def layouts_of(names: list[str]) -> list[str]:
    return [layout.name for layout in LAYOUTS if layout.recognises(names)]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("hf_gpt2", "GPT-2"), ("hf_neox", "GPT-NeoX"), ("hf_llama", "LLaMA"), ("hf_qwen2", "LLaMA"),
        ("tl_ln_s2", "TransformerLens"),
    ],
)  # fmt: skip
def test_a_layout_is_told_by_names_and_by_one_alone(data: Path, name: str, layout: str) -> None:
    assert layouts_of(list(parts(data, name)[0])) == [layout]


@pytest.mark.parametrize("name", [*GPT2, *ROTARY])
def test_every_layer_is_the_sum_of_its_parts(data: Path, name: str) -> None:
    report = sc.verify(sc.load(data / name), [3, 1, 4], targets=["logits"])
    assert report.ok, report.text()
    assert [c.passed for c in report.checks if c.name == "sum of parts"] == [True]


def shuffled(layer: int) -> Callable[[dict[str, Any]], None]:
    def shuffle(weights: dict[str, Any]) -> None:
        name = f"gpt_neox.layers.{layer}.attention.query_key_value.weight"
        weights[name] = weights[name].reshape(2, 3, 4, 8).swapaxes(0, 1).reshape(24, 8)  # GPT-2's order

    return shuffle


def test_another_order_of_fused_weights_is_another_model(data: Path) -> None:
    weights, config = parts(data, "hf_neox")
    expected = reference(data, "hf_neox")["logits"][0, :1]
    assert np.allclose(from_arrays(weights, config).run([3]).logits, expected, atol=1e-12)
    shuffled(0)(weights)
    assert not np.allclose(from_arrays(weights, config).run([3]).logits, expected, atol=1e-3)


def test_the_reference_tells_a_wrong_reading(data: Path) -> None:
    model = sc.load(data / "hf_gpt2")
    swapped = dict(model.weights)
    swapped["W_Q_L0H0"], swapped["W_K_L0H0"] = swapped["W_K_L0H0"], swapped["W_Q_L0H0"]
    wrong = Model(model.architecture, swapped, model.score_scale, settings=model.settings)
    found = sc.compare_with_reference(wrong, data / "hf_gpt2" / "reference.npz")
    assert found.first is not None
    assert found.first.name == "blocks.0.attn.hook_pattern"
    assert re.search(r"the first in layer 0: blocks\.0\.attn\.hook_pattern", " ".join(found.text().split()))


# ------------------------------------------------------------------------------------------- keys of configs
PLAIN, SCALED = {"rope_type": "default", "rope_theta": 1e4}, {"type": "yarn", "factor": 4.0}


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize(
    "said",
    [
        {"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        {"rope_parameters": {**PLAIN, "type": "linear"}},
        {"rope_parameters": PLAIN, "rope_scaling": {**SCALED, "original_max_position_embeddings": 16}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, "rope_scaling": PLAIN},
        {"rope_parameters": PLAIN, "rope_theta": 100.0},
        {"rope_parameters": {**PLAIN, "factor": 4.0}},
        {"rope_parameters": {"full_attention": PLAIN}},
        {"partial_rotary_factor": 0.75},
        {"is_causal": False},
        {"is_causal": None},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"per_layer_config": {"0": {"rms_norm_eps": 0.5}}},
    ],
)
def test_what_the_class_reads_otherwise_is_refused(data: Path, name: str, said: dict[str, Any]) -> None:
    weights, config = parts(data, name)
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        from_arrays(weights, {**config, **said})


@pytest.mark.parametrize("name", ["hf_llama", "hf_mistral", "hf_qwen2", "hf_granite", "hf_gemma"])
def test_only_neox_turns_a_part_of_each_head(data: Path, name: str) -> None:
    weights, config = parts(data, name)
    for inside, whole in ((0.5, False), (1.0, True)):
        said = {**config, "rope_parameters": {**config["rope_parameters"], "partial_rotary_factor": inside}}
        if whole:
            assert np.array_equal(logits(weights, said), logits(weights, config))
        else:
            with pytest.raises(Unsupported, match="a part of each head"):
                from_arrays(weights, said)


def test_a_config_of_neox_as_older_versions_save_it(data: Path) -> None:
    """The share and the base stand there twice: they must agree, and one alone must be what all versions read."""
    weights, config = parts(data, "hf_neox")
    bare = {key: value for key, value in config.items() if key != "rope_parameters"}
    old = {"rotary_pct": 0.5, "partial_rotary_factor": 0.5, "rotary_emb_base": 1e4, "rope_theta": 10000}
    more = {"type_vocab_size": 2, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0, "rope_scaling": None}
    assert np.array_equal(logits(weights, {**bare, **old, **more}), logits(weights, config))
    for said in ({"rotary_pct": 0.25}, {"partial_rotary_factor": 0.25}, {"rope_theta": 500}, {"rotary_emb_base": 500}):
        with pytest.raises(ValueError, match="set both to the intended value"):
            from_arrays(weights, {**bare, **old, **said})
    with pytest.raises(ValueError, match=r"partial_rotary_factor in the config is 0.5, and what a newer .* is 0.25"):
        from_arrays(weights, {**bare, "partial_rotary_factor": 0.5})


def test_other_names_of_sizes(data: Path) -> None:
    weights, config = parts(data, "hf_gpt2")
    assert np.array_equal(logits(weights, {**config, "hidden_size": 8}), logits(weights, config))
    renamed = {("num_attention_heads" if key == "n_head" else key): value for key, value in config.items()}
    assert np.array_equal(logits(weights, renamed), logits(weights, config))
    with pytest.raises(ValueError, match="n_head is 2 and num_attention_heads, another name of it, is 4; remove"):
        from_arrays(weights, {**config, "num_attention_heads": 4})


@pytest.mark.parametrize("name", [*GPT2, *ROTARY])
def test_null_is_not_the_default(data: Path, name: str) -> None:
    """Where the default is true, or a number, a class takes null for false or fails."""
    weights, config = parts(data, name)
    rows = READ[config["model_type"]]
    strict = [
        k
        for k, v in rows.items()
        if v is not None and v is not False and k not in ("num_key_value_heads", "sliding_window")
    ]
    assert len(strict) > 4
    for key in strict:
        with pytest.raises(ValueError, match=f"{key} in the config is null"):
            from_arrays(weights, {**config, key: None})


def test_generation_and_training_keys_change_nothing(data: Path) -> None:
    weights, config = parts(data, "hf_llama")
    more = {
        "max_length": 20, "temperature": 0.6, "top_k": 50, "top_p": 0.9, "num_beams": 1, "do_sample": True,
        "_num_labels": 2, "is_llama_config": True, "transformers.js_config": {"dtype": "q4"}, "unsloth_fixed": True,
        "max_sequence_length": 2048, "unsloth_version": "2024.9", "neftune_noise_alpha": 0.0, "rope_interleaved": False,
        "use_mrope": False, "pruned_heads": {}, "torchscript": False, "tie_encoder_decoder": False,
    }  # fmt: skip
    assert np.array_equal(logits(weights, {**config, **more}), logits(weights, config))


def test_the_docs_name_the_keys_that_are_read() -> None:
    text = (Path(__file__).parent.parent / "docs" / "loading.md").read_text(encoding="utf-8")
    shared = set.intersection(*(set(rows) for kind, rows in READ.items() if kind not in ("gpt2", "gpt_neox")))
    named = {key for rows in READ.values() for key in rows} - (shared - {"rope_theta"})
    sizes = {"n_layer", "n_head", "n_embd", "n_inner", "n_positions"}
    usual = {"activation_function", "layer_norm_epsilon", "layer_norm_eps", "tie_word_embeddings"}
    assert [key for key in sorted(named - sizes - usual) if f"`{key}`" not in text] == []


# ------------------------------------------------------------------------------------------- multipliers
def test_granite_has_its_multipliers(data: Path) -> None:
    """Embedding, residual and score multipliers multiply, logits_scaling divides."""
    model = sc.load(data / "hf_granite")
    layers = dict.fromkeys(("r[L0]", "r[M0]", "r[L1]", "r[M1]"), 0.375)
    assert model.multipliers == {"m_E": 3.0, **layers, "m_U": 0.25}
    assert set(model.score_scale.values()) == {0.3125}
    assert "multipliers in front of terms: m_E 3, r[L0] 0.375" in " ".join(sc.explain(model, [1, 2]).assumptions)


def test_gemma_scales_its_embedding_and_counts_gains_from_one(data: Path) -> None:
    model, (weights, _) = sc.load(data / "hf_gemma"), parts(data, "hf_gemma")
    assert model.multipliers == {"m_E": 4.0}
    assert np.array_equal(model.weights["gain_final"], 1 + weights["model.norm.weight"])
    assert model.weights["W_Q_L0H0"].shape == (4, 16)  # the size of a head is not hidden_size / heads
    assert set(model.score_scale.values()) == {0.5}


@pytest.mark.parametrize(
    ("change", "there"),
    [
        ({}, {"m_E", "m_U", "r[L0]", "r[L1]", "r[M0]", "r[M1]"}),
        ({"embedding_multiplier": 1.0}, {"m_U", "r[L0]", "r[L1]", "r[M0]", "r[M1]"}),
        ({"residual_multiplier": 1, "logits_scaling": 1}, {"m_E"}),
        ({"embedding_multiplier": None, "residual_multiplier": None, "logits_scaling": None}, set()),
    ],
)
def test_a_multiplier_of_one_adds_no_letter(data: Path, change: dict[str, Any], there: set[str]) -> None:
    weights, config = parts(data, "hf_granite")
    given = {k: v for k, v in {**config, **change}.items() if k not in change or change[k] is not None}
    model = from_arrays(weights, given)
    assert model.architecture.multipliers == there
    assert from_arrays(weights, {**given, "attention_multiplier": 2}).score_scale["L0H0"] == 2.0


def test_each_multiplier_of_granite_is_seen(data: Path) -> None:
    weights, config = parts(data, "hf_granite")
    expected = logits(weights, config)
    for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"):
        assert abs(logits(weights, {**config, key: 2 * config[key]}) - expected).max() > 1e-3, key
    assert abs(logits(weights, {**config, "attention_multiplier": 1}) - expected).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("hf_llama", {"residual_multiplier": 0.5}, "unknown keys, .*: residual_multiplier = 0.5"),
        ("hf_llama", {"embedding_multiplier": 1.0}, "unknown keys, .*: embedding_multiplier = 1.0"),
        ("hf_gemma", {"logits_scaling": 8}, "unknown keys, .*: logits_scaling = 8"),
        ("hf_granite", {"mlp_multiplier": 2.0}, "unknown keys, .*: mlp_multiplier = 2.0"),
        ("hf_granite", {"logit_scale": 2.0}, "unknown keys, .*: logit_scale = 2.0"),
        ("hf_granite", {"logits_scaling": 0}, "logits_scaling, the divisor of the logits, must not be 0"),
        ("hf_granite", {"residual_multiplier": True}, "residual_multiplier in the config must be a number, not true"),
        ("hf_granite", {"embedding_multiplier": "3"}, 'embedding_multiplier in the config must be a number, not "3"'),
        ("hf_gemma", {"use_bidirectional_attention": True}, "later tokens .use_bidirectional_attention is true"),
        ("hf_gemma", {"hidden_act": "gelu"}, "versions of transformers read one or the other; set both"),
        ("hf_gemma", {"hidden_activation": "gelu"}, "versions of transformers read one or the other; set both"),
        ("hf_gemma", {"head_dim": None}, "head_dim in the config is null, which a gemma cannot read"),
        ("hf_gemma", {"final_logit_softcapping": 30.0}, "unknown keys, .*: final_logit_softcapping = 30.0"),
    ],
)
def test_multipliers_that_are_not_known(data: Path, name: str, change: dict[str, Any], message: str) -> None:
    weights, config = parts(data, name)
    with pytest.raises(ValueError, match=message):
        from_arrays(weights, {**config, **change})


@pytest.mark.parametrize("both", ["relu", "gelu_pytorch_tanh"])
def test_the_activation_of_gemma_where_both_keys_agree(data: Path, both: str) -> None:
    weights, config = parts(data, "hf_gemma")
    model = from_arrays(weights, {**config, "hidden_act": both, "hidden_activation": both})
    assert model.settings.activation == both
    with pytest.raises(ValueError, match="some versions read as gelu_pytorch_tanh"):
        from_arrays(weights, {**config, "hidden_act": "gelu", "hidden_activation": "gelu"})
    neither = {k: v for k, v in config.items() if k != "hidden_act"}
    assert from_arrays(weights, neither).settings.activation == "gelu_pytorch_tanh"
