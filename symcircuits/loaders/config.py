"""The config of TransformerLens: the meaning of its keys, and which of them need unsupported features.

Any key that is neither read nor listed here as harmless raises an error: it might change what the model computes.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symcircuits.core.text import brief
from symcircuits.loaders.layout import Unsupported
from symcircuits.model import ACTIVATIONS, Rotary, Settings

__all__ = ["Config", "check_kinds", "refuse_unsupported"]

_READ = {
    "n_layers", "n_heads", "d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx", "attention_dir", "use_attn_scale",
    "attn_scale", "positional_embedding_type", "normalization_type", "attn_only", "n_key_value_heads",
    "attn_scores_soft_cap", "output_logits_soft_cap", "use_local_attn", "window_size", "attn_types", "eps", "act_fn",
    "rotary_dim", "rotary_base", "rotary_adjacent_pairs", "use_qk_norm",
    "softmax",  # of this package: false if patterns are the masked scores
    "d_mlp", "gated_mlp", "parallel_attn_mlp", "scale_attn_by_inverse_layer_idx", "uses_rms_norm", "final_rms",
}  # fmt: skip

# Keys that need an unsupported feature when they are set (true, or a number or list), and that feature.
_FEATURE_KEYS = {
    "use_normalization_before_and_after": "normalization after each block",
    "post_embedding_ln": "normalization after the embedding",
    "rmsnorm_uses_offset": "an RMS gain counted from 1",
    "num_experts": "a mixture of experts",
    "experts_per_token": "a mixture of experts",
    "load_in_4bit": "4-bit weights",
    "quantization_method": "quantized weights",
    "clip_qkv": "clipped queries, keys and values",
    "use_logn_attn": "a score scale by position",
    "use_dynamic_ntk_rope": "scaled rotary positions",
    "use_yarn_rope": "scaled rotary positions",
    "qk_norm_after_rope": "normalized queries and keys",
    "scale_embedding": "a scaled embedding",
    "per_layer_head_dim": "a head size by layer",
    "per_layer_num_key_value_heads": "a number of key/value heads by layer",
    "use_attention_sinks": "attention sinks",
    "attention_sinks": "attention sinks",
    "relative_attention_max_distance": "relative positions",
    "relative_attention_num_buckets": "relative positions",
    "decoder_start_token_id": "an encoder and a decoder",
    "is_stateful": "a state",
    "is_audio_model": "audio input",
    "is_visual_model": "image input",
    "is_multimodal": "image input",
}

# Keys that scale the angles of rotary positions when they are set.
_SCALED_ANGLES = (
    "use_NTK_by_parts_rope", "rotary_scaling_factor", "rotary_scaling_type", "rotary_base_local",
    "use_dynamic_ntk_rope", "use_yarn_rope",
)  # fmt: skip
# Architectures that TransformerLens computes differently, without any other key that says so.
_NORMED_AFTER = ("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM")
# Keys that have no effect in a model without rotation, or none at all.
_HARMLESS = {
    "architecture", "attn_implementation", "checkpoint_index", "checkpoint_label_type", "checkpoint_value", "comment",
    "default_prepend_bos", "description", "device", "dtype", "eps_attr", "from_checkpoint", "init_mode",
    "init_weights", "initializer_range", "license", "model_name", "name", "notes", "n_devices", "n_params",
    "original_architecture", "rotary_base_local",
    "rotary_scaling_factor", "rotary_scaling_type", "seed", "source", "tie_word_embeddings", "tokenizer_name",
    "tokenizer_prepends_bos", "trust_remote_code", "ungroup_grouped_query_attention", "use_NTK_by_parts_rope",
    "NTK_by_parts_low_freq_factor", "NTK_by_parts_high_freq_factor", "NTK_by_parts_factor", "NTK_original_ctx_len",
    "use_attn_in", "use_attn_result", "use_hook_mlp_in", "use_hook_tokens", "use_split_qkv_input", "weight_init_mode",
    "layer_norm_folding", "train_seq_length", "norm_topk_prob", "yarn_factor", "yarn_attention_factor",
    "yarn_beta_fast", "yarn_beta_slow", "yarn_original_max_position_embeddings", "yarn_truncate",
    "yarn_global_attn_only", "tokenizer_appends_eos", "default_padding_side", "split_attention_weights",
    "rotary_interleaved_cos_sin",
}  # fmt: skip

# Weights that need an unsupported feature, by a part of their names.
_FEATURE_WEIGHTS = {
    r"\.ln\d_post\.": "normalization after each block",
    r"^embed\.ln|^ln_embed|^embed_ln": "normalization after the embedding",
    r"\.mlp\.ln\.": "normalization inside an MLP",
    r"\.mlp\.(experts|router|W_gate\.)": "a mixture of experts",
    r"rel_pos|alibi": "relative positions",
    r"sink": "attention sinks",
    r"token_type": "token types",
    r"^(encoder|decoder)\.|cross_attn": "an encoder and a decoder",
}

_FLAGS = (
    "attn_only", "final_rms", "gated_mlp", "parallel_attn_mlp", "rotary_adjacent_pairs",
    "scale_attn_by_inverse_layer_idx", "softmax", "tie_word_embeddings", "use_attn_scale", "use_local_attn",
    "use_qk_norm", "uses_rms_norm",
)  # fmt: skip
_SIZES = (
    "d_head", "d_mlp", "d_model", "d_vocab", "d_vocab_out", "n_ctx", "n_key_value_heads", "n_layers", "rotary_dim",
    "window_size",
)  # fmt: skip
_SHOWN = 80  # characters shown of a value
_POSITIONS = (None, "standard", "shortformer", "rotary", "alibi")


_NORMS = {"LN": ("LN", True), "LNPre": ("LN", False), "RMS": ("RMS", True), "RMSPre": ("RMS", False)}


@dataclass(frozen=True, slots=True)
class Config:
    """A config, read key by key; ValueError names the key, the allowed values and the value found.

    No key may hold, at any depth, a number that is not finite or too large for float64.
    """

    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        for key, value in self.values.items():
            if not _finite(value):
                what = "a number that is not finite, or too large"
                raise ValueError(f"{key} in the config holds {what}: {self.shown(key)}")

    def shown(self, key: str) -> str:
        """The value of a key in JSON, shortened if it is long, or "not given"."""
        text = json.dumps(self.values[key], default=lambda v: brief(v)) if key in self.values else "not given"
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def size(self, key: str, least: int) -> int | None:
        """A whole number; None if it is absent, null or -1 (TransformerLens's "not set")."""
        value = self.values.get(key)
        if value is None or (type(value) in (int, float) and value == -1):
            return None
        if type(value) is not int or value < least:
            raise ValueError(f"{key} in the config must be a whole number, {least} or more, not {self.shown(key)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false; the default if it is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{key} in the config must be true or false, not {self.shown(key)}")
        return default if value is None else value

    def head_counts(self, n_layers: int) -> tuple[int, ...] | None:
        """Heads of each layer, from one number or a list with one for each; None if not given."""
        value = self.values.get("n_heads")
        if not isinstance(value, (list, tuple)):
            size = self.size("n_heads", 0)
            return None if size is None else (size,) * n_layers
        if len(value) != n_layers or not all(type(n) is int and n >= 0 for n in value):
            wanted = f"one whole number for each of the {n_layers} layers"
            raise ValueError(f"n_heads in the config must be a whole number, or {wanted}, not {self.shown('n_heads')}")
        return tuple(value)

    @property
    def norm(self) -> tuple[str | None, bool]:
        """The norm (``LN``, ``RMS`` or None), and whether it has a gain (and an LN its bias) that is not folded."""
        value = self.values.get("normalization_type")
        if value is not None and (not isinstance(value, str) or value not in _NORMS):
            seen = self.shown("normalization_type")
            raise ValueError(f'normalization_type must be null, "LN", "LNPre", "RMS" or "RMSPre", not {seen}')
        return _NORMS[value] if value is not None else (None, False)

    @property
    def settings(self) -> Settings:
        """Checked settings: ``eps`` of the norms, activation ``act_fn`` of the MLPs, rotary positions, soft caps."""
        eps = self.values.get("eps")
        if eps is not None and not (is_number(eps) and eps >= 0):
            raise ValueError(f"eps in the config must be a number, 0 or more, not {self.shown('eps')}")
        activation = self.values.get("act_fn")
        known = isinstance(activation, str) and activation in ACTIVATIONS
        caps = (self.cap("attn_scores_soft_cap"), self.cap("output_logits_soft_cap"))
        return Settings(
            1e-5 if eps is None else float(eps), activation if known else "gelu",  # type: ignore[arg-type]
            self.rotary, (), *caps, geometric_slopes=True,
        )  # fmt: skip

    @property
    def rotary(self) -> Rotary:
        """The rotation: ``rotary_dim`` (a whole head if not given), base, which entries form pairs."""
        base = self.values.get("rotary_base")
        if base is not None and not (is_number(base) and base > 0):
            raise ValueError(f"rotary_base in the config must be a positive number, not {self.shown('rotary_base')}")
        dim = self.size("rotary_dim", 0)
        if dim is not None and dim % 2:
            raise ValueError(f"rotary_dim in the config must be even, because entries rotate in pairs, not {dim}")
        return Rotary(dim, 10_000.0 if base is None else float(base), self.flag("rotary_adjacent_pairs", False))

    def windows(self, n_layers: int) -> tuple[int | None, ...]:
        """How many keys the queries of each layer see, None for all; empty if no layer is local."""
        local, kinds = self.flag("use_local_attn", False), self.values.get("attn_types")
        size = self.size("window_size", 1)
        if not local or not self.causal:  # the window is a part of the causal mask
            return ()
        if size is None:
            raise ValueError("use_local_attn is true, but there is no window_size")
        kinds = ["local"] * n_layers if kinds is None else kinds
        if not isinstance(kinds, (list, tuple)) or len(kinds) != n_layers or not {*kinds} <= {"local", "global"}:
            wanted = f'"local" or "global" for each of the {n_layers} layers'
            raise ValueError(f"attn_types in the config must list {wanted}, not {self.shown('attn_types')}")
        return tuple(size if kind == "local" else None for kind in kinds)

    @property
    def positions(self) -> str | None:
        """``standard``, ``shortformer``, ``rotary``, ``alibi`` or None."""
        value = self.values.get("positional_embedding_type")
        if value not in _POSITIONS:
            seen, known = self.shown("positional_embedding_type"), '"standard", "shortformer", "rotary" or "alibi"'
            raise ValueError(f"positional_embedding_type must be null, {known}, not {seen}")
        return value

    @property
    def causal(self) -> bool:
        """Whether attention is causal (the default) or bidirectional."""
        value = self.values.get("attention_dir")
        if value not in (None, "causal", "bidirectional"):
            raise ValueError(f'attention_dir must be "causal" or "bidirectional", not {self.shown("attention_dir")}')
        return value != "bidirectional"

    @property
    def divisor(self) -> float | None:
        """The divisor of the scores; None for sqrt(d_head) (absent, null or -1)."""
        value = self.values.get("attn_scale")
        if value is None or value == -1:
            return None
        if not (is_number(value) and value > 0):
            seen = self.shown("attn_scale")
            raise ValueError(f"attn_scale, which scores are divided by, must be a positive number, not {seen}")
        return float(value)

    def cap(self, key: str) -> float | None:
        """A soft cap, a positive number; None if it is off (-1 in TransformerLens)."""
        value = self.values.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"{key} in the config must be a number, not {self.shown(key)}")
        return float(value) if value is not None and value > 0 else None


def is_number(value: Any) -> bool:
    """Whether a value of a config is a number in the range of float64, and not a boolean.

    >>> is_number(2), is_number(0.5), is_number(True), is_number(float("inf")), is_number(10**400)
    (True, True, False, False, False)
    """
    largest = sys.float_info.max
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def refuse_unsupported(config: Config, weights: Iterable[str]) -> None:
    """Raise :class:`Unsupported` with every unsupported feature that the config or the weights need.

    Raises ValueError on an unknown key of the config.
    """
    check_kinds(config)
    names = list(weights)
    needs: dict[str, list[str]] = {}
    for feature, evidence in (*_from_config(config, names), *_from_weights(names)):
        needs.setdefault(feature, []).append(evidence)
    if needs:
        seen = "; ".join(f"{feature} ({', '.join(where[:2])})" for feature, where in needs.items())
        raise Unsupported(f"this model has features that are not supported, so it is not run: {seen}", tuple(needs))
    unknown = [
        k for k, v in config.values.items()
        if k not in _READ | _HARMLESS | _FEATURE_KEYS.keys() and v is not None and v is not False
    ]  # fmt: skip
    if unknown:
        listed = ", ".join(f"{k} = {config.shown(k)}" for k in unknown)
        raise ValueError(
            f"the config has unknown keys, which may change what the model computes: {listed}; "
            "remove them if they do not"
        )


def check_kinds(config: Config) -> None:
    """Raise ValueError if a key has an invalid value, whether or not this model uses it."""
    for key in _FLAGS:
        config.flag(key, False)
    for key in _SIZES:
        config.size(key, 0 if key in ("n_layers", "rotary_dim") else 1)
    _ = config.norm, config.causal, config.divisor, config.settings
    if not isinstance(config.values.get("positional_embedding_type"), str):
        _ = config.positions  # raises unless it is a string, which may name an unsupported feature
    kinds = config.values.get("attn_types")
    if kinds is not None and not (isinstance(kinds, (list, tuple)) and {*map(type, kinds)} <= {str}):
        raise ValueError(f'attn_types in the config must list "local" or "global", not {config.shown("attn_types")}')
    for key in ("act_fn", "architecture", "original_architecture"):
        if not isinstance(config.values.get(key), (str, type(None))):
            raise ValueError(f"{key} in the config must be a string, or null, not {config.shown(key)}")
    for key in (*_FEATURE_KEYS, *_SCALED_ANGLES):
        if isinstance(config.values.get(key), (str, list, tuple, dict)) and not config.values[key]:
            raise ValueError(f"{key} in the config must be true or false, a number, or null, not {config.shown(key)}")


def _finite(value: Any) -> bool:
    """Whether all numbers in a value, at any depth, are in the range of float64."""
    levels = [value]
    while levels:
        one = levels.pop()
        if isinstance(one, (list, tuple)):
            levels += one
        elif isinstance(one, Mapping):
            levels += one.values()
        elif (type(one) is int and abs(one) > sys.float_info.max) or (type(one) is float and not math.isfinite(one)):
            return False
    return True


def _from_config(config: Config, names: list[str]) -> list[tuple[str, str]]:
    values, found = config.values, []

    def said(key: str) -> str:
        return f"{key} is {config.shown(key)}"

    if values.get("final_rms") and values.get("normalization_type") not in (None, "RMS", "RMSPre"):
        found.append(("RMS normalization at the end", said("final_rms")))
    activation = values.get("act_fn")
    if any(".mlp." in n for n in names) and isinstance(activation, str) and activation not in ACTIVATIONS:
        found.append((f"the activation {activation}", said("act_fn")))
    position = values.get("positional_embedding_type")
    if isinstance(position, str) and position not in _POSITIONS:
        relative = position == "relative_positional_bias"
        what = "relative positions" if relative else "another kind of position"
        found.append((what, said("positional_embedding_type")))
    if position == "rotary":
        found += [("scaled rotary positions", said(key)) for key in _SCALED_ANGLES if _scales_angles(config, key)]
    if values.get("original_architecture") in _NORMED_AFTER:
        found.append(("normalization of the outputs of attention and MLPs", said("original_architecture")))
    if position == "alibi" and values.get("attention_dir") == "bidirectional":
        found.append(("ALiBi both ways", said("attention_dir")))
    if values.get("use_local_attn") is None:
        found += [("local (windowed) attention", said(k)) for k in ("window_size", "attn_types") if values.get(k)]
    found += [(feature, said(key)) for key, feature in _FEATURE_KEYS.items() if values.get(key)]
    return found


def _scales_angles(config: Config, key: str) -> bool:
    """Whether a key changes the angles of rotary positions: not a factor of 1, nor a base that no layer uses."""
    value = config.values.get(key)
    if key == "rotary_scaling_factor":
        return value is not None and value is not False and value != 1
    if key == "rotary_base_local":
        return bool(value) and config.flag("use_local_attn", False) and value != config.rotary.base
    return bool(value)


def _from_weights(names: list[str]) -> list[tuple[str, str]]:
    return [
        (feature, name) for pattern, feature in _FEATURE_WEIGHTS.items() for name in names if re.search(pattern, name)
    ]
