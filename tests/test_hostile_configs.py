"""Every key of every layout's config given what it cannot be: ValueError that names the key, or the same model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from symcircuits.loaders import config as keys
from symcircuits.loaders import from_arrays

HOSTILE: tuple[Any, ...] = (
    [], {}, [1], {"a": 1}, "x", "", "1", True, False, 0, -3, 2.5, 10**400, -(10**400), 1e300, float("nan"),
    float("inf"), float("-inf"), [[1]], [None], [float("nan")], (1, 2), object(), b"x", 1j,
)  # fmt: skip
LAYOUTS = ("tl_bias_s1", "tl_rotary_s5", "tl_mlp_gelu_ln_s18", "tl4_bridge_s4", "hf_gpt2", "hf_llama", "hf_neox")
OWN = keys._READ | keys._FEATURE_KEYS.keys()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.sampled(3)
def test_no_value_of_a_key_breaks_the_reading(data: Path, name: str) -> None:
    weights = load_file(data / name / "model.safetensors")
    config = json.loads((data / name / "config.json").read_text())
    right = from_arrays(weights, config).run([1, 2, 3])
    for key in sorted({*config, *(OWN if name.startswith("tl") else ())}):
        for value in HOSTILE:
            try:
                found = from_arrays(weights, {**config, key: value})
            except ValueError as fault:
                said = str(fault)
            else:
                assert takes(key, value) or np.array_equal(found.run([1, 2, 3]).streams[-1], right.streams[-1])
                assert takes(key, value) or key not in OWN or not name.startswith("tl"), (key, value)
                continue
            assert len(said) < 700, (key, value, said)
            assert key in said or key in SEEN_IN_WEIGHTS, (key, value, said)


# Of these it is said what cannot be (a weight of another size, another kind of model), and not the key.
SEEN_IN_WEIGHTS = ("n_heads", "d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx", "d_mlp", "rotary_dim",
                   "num_attention_heads", "n_head", "n_embd", "num_key_value_heads", "model_type", "n_layer",
                   "num_hidden_layers", "architecture", "rope_parameters", "gated_mlp")  # fmt: skip


def takes(key: str, value: Any) -> bool:
    """Whether a value is one that the key may have."""
    number = type(value) in (int, float)
    if (key, type(value)) in (("act_fn", str), ("attn_types", list)):
        return value in ("x", "", "1", [])  # without MLPs, or without windows, nothing looks at it
    if type(value) is bool or (number and not value):
        return True  # of flags, and of what is off where it is 0
    if key in ("eps", "rotary_base", "attn_scale", "attn_scores_soft_cap", "output_logits_soft_cap"):
        return number
    return number and key in ("layer_norm_epsilon", "rms_norm_eps", "layer_norm_eps", "rope_theta", "window_size")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("normalization_type", [], 'normalization_type must be null, "LN", "LNPre", "RMS" or "RMSPre", not []'),
        ("eps", 10**400, "eps in the config holds a number that is not finite, or too large: 1000"),
        ("eps", float("nan"), "eps in the config holds a number that is not finite, or too large: NaN"),
        ("novel", {"a": [float("inf")]}, "novel in the config holds a number that is not finite, or too large"),
        ("gated_mlp", "no", 'gated_mlp in the config must be true or false, not "no"'),
        ("attn_types", [1], 'attn_types in the config must list "local" or "global", not [1]'),
        ("act_fn", ["gelu"], 'act_fn in the config must be a string, or null, not ["gelu"]'),
        ("clip_qkv", [], "clip_qkv in the config must be true or false, a number, or null, not []"),
    ],
)
def test_the_key_and_what_it_holds_are_named(data: Path, key: str, value: Any, message: str) -> None:
    weights = load_file(data / "tl_bias_s1" / "model.safetensors")
    config = json.loads((data / "tl_bias_s1" / "config.json").read_text())
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as fault:
        from_arrays(weights, {**config, key: value})
    assert len(str(fault.value)) < 200
