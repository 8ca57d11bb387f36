"""The keys of a config of Hugging Face's transformers, as data: what each class reads, with its defaults.

``READ`` has a row for each key that the class of a ``model_type`` reads, with its value if the config has none.
``FIXED`` are keys with a single supported value, ``HARMLESS`` those that no logit depends on. Any other key raises
an error, even if it is false: it might change what is computed. ``tests/test_transformers.py`` compares all this with
the classes themselves.
Sources: the configuration and modeling files of these seven models, transformers 4.57 and 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from symcircuits.loaders.config import Config
from symcircuits.loaders.layout import Unsupported

__all__ = [
    "FIXED", "GENERATION", "HARMLESS", "NEEDED", "READ", "SYNONYMS", "TURNS", "TURNS_OF", "read_keys", "refuse",
]  # fmt: skip

NEEDED: Final = object()  # no default, and not determined by the weights: required in the config

# What each class reads, and its value if the config has none; None: determined by the weights or other keys.
_ROTARY: Final = dict.fromkeys(("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"))
_LLAMA: Final[dict[str, Any]] = {
    "num_hidden_layers": NEEDED, "num_attention_heads": NEEDED, "hidden_size": NEEDED, "intermediate_size": None,
    "vocab_size": None, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, **_ROTARY,
}  # fmt: skip
_BIASES: Final = {"attention_bias": False, "mlp_bias": False}
READ: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt2": {
        "n_layer": NEEDED, "n_head": NEEDED, "n_embd": NEEDED, "n_inner": None, "n_positions": None, "vocab_size": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True,
    },
    "gpt_neox": {
        "num_hidden_layers": NEEDED, "num_attention_heads": NEEDED, "hidden_size": NEEDED, "intermediate_size": None,
        "vocab_size": None, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
        "attention_bias": True, "tie_word_embeddings": False, "rotary_emb_base": None, "rotary_pct": None, **_ROTARY,
    },
    "llama": _LLAMA | _BIASES,
    "mistral": _LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096, "layer_types": None},
    "qwen2": _LLAMA | {
        "num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
        "layer_types": None,
    },
    "granite": _LLAMA | _BIASES | {
        "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0, "logits_scaling": 1.0,
    },
    "gemma": _LLAMA | {
        "num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": None,
        "attention_bias": False, "tie_word_embeddings": True,
    },
}  # fmt: skip
# The base of rotary positions, and the share of each head that rotates: where a class looks for them if they are not
# in rope_parameters (the first of these keys; another must agree), and their values if the config has none.
Turns = Mapping[str, tuple[tuple[str, ...], float]]
TURNS: Final[Turns] = {
    "rope_theta": (("rope_theta",), 10000.0), "partial_rotary_factor": (("partial_rotary_factor",), 1.0),
}  # fmt: skip
TURNS_OF: Final[Mapping[str, Turns]] = {
    "gpt_neox": {
        "rope_theta": (("rotary_emb_base", "rope_theta"), 10000.0),
        "partial_rotary_factor": (("rotary_pct", "partial_rotary_factor"), 0.25),
    },
}
_NULLABLE: Final = {"num_key_value_heads", "sliding_window"}  # for which null differs from an absent key

# Other names of keys that a class reads, from its attribute_map.
SYNONYMS: Final[Mapping[str, Mapping[str, str]]] = {
    "gpt2": {
        "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    },
}  # fmt: skip

# Keys with one supported value, unless the class reads them, and what another value needs. OFF: false, 0 or empty.
OFF: Final[tuple[Any, ...]] = (None, False, [], {})
_BOTH_WAYS, _DECODER, _LOCAL = "attention to later tokens", "an encoder and a decoder", "local (windowed) attention"
_NORMED, _EXPERTS, _TURNED = "normalized queries and keys", "a mixture of experts", "rotary positions of another kind"
FIXED: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "is_causal": ((True,), _BOTH_WAYS), "use_bidirectional_attention": (OFF, _BOTH_WAYS),
    "add_cross_attention": (OFF, _DECODER), "is_encoder_decoder": (OFF, _DECODER),
    "tie_encoder_decoder": (OFF, _DECODER), "cross_attention_hidden_size": (OFF, _DECODER),
    "use_sliding_window": (OFF, _LOCAL), "sliding_window": (OFF, _LOCAL),
    "layer_types": ((None, ["full_attention"]), "another kind of attention"),  # each kind once
    "qk_norm": (OFF, _NORMED), "use_qk_norm": (OFF, _NORMED), "qk_layernorm": (OFF, _NORMED),
    "num_experts": (OFF, _EXPERTS), "num_local_experts": (OFF, _EXPERTS),
    "use_mrope": (OFF, _TURNED), "rope_interleaved": (OFF, _TURNED), "alibi": (OFF, "ALiBi"),
    "quantization_config": (OFF, "quantized weights"), "pruned_heads": (OFF, "pruned heads"),
    "per_layer_config": (OFF, "other settings in some layers"),
}  # fmt: skip
# The same, for one class.
_FIXED_OF: Final[Mapping[str, Mapping[str, tuple[tuple[Any, ...], str]]]] = {
    "mistral": {"attention_bias": (OFF, "biases"), "mlp_bias": (OFF, "biases")},
    "qwen2": {"attention_bias": ((None, True), "queries, keys and values without biases"), "mlp_bias": (OFF, "biases")},
    "gemma": {"mlp_bias": (OFF, "biases")},
}

# How text is generated: written by to_dict() of transformers 4 and 5, and left in older files.
GENERATION: Final = frozenset({
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind",
    "bad_words_ids", "begin_suppress_tokens", "cache_config", "cache_implementation", "compile_config", "constraints",
    "continuous_batching_config", "decoder_start_token_id", "disable_compile", "diversity_penalty", "do_sample",
    "dola_layers", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff",
    "eta_cutoff", "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id", "forced_decoder_ids",
    "forced_eos_token_id", "generation_config", "guidance_scale", "is_assistant", "length_penalty", "low_memory",
    "max_cache_len", "max_length", "max_matching_ngram_size", "max_new_tokens", "max_time", "min_length",
    "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_logits", "output_scores", "penalty_alpha",
    "prefill_chunk_size", "prefix", "prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits",
    "repetition_penalty", "return_dict_in_generate", "sequence_bias", "speculation_type", "stop_strings",
    "suppress_tokens", "target_lookbehind", "temperature", "token_healing", "top_h", "top_k", "top_p", "typical_p",
    "use_cache", "use_mtp", "watermarking_config", "_from_model_config",
})  # fmt: skip

# How a model was trained (dropout is off when it is run), stored or named, and what other heads read.
HARMLESS: Final = GENERATION | {
    "activation_dropout", "attention_dropout", "attention_dropout_prob", "attention_probs_dropout_prob", "attn_dropout",
    "attn_pdrop", "classifier_dropout", "dropout", "embd_pdrop", "embedding_dropout", "hidden_dropout",
    "hidden_dropout_prob", "resid_dropout", "resid_pdrop", "residual_dropout", "summary_first_dropout",
    "summary_last_dropout",
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash",
    "_experts_implementation", "_experts_implementation_internal", "_flash_attn_2_enabled", "_name_or_path",
    "_num_labels", "_output_attentions", "architectures", "attn_implementation", "auto_map", "bos_token_id",
    "chunk_size_feed_forward", "dtype", "eos_token_id", "experts_implementation", "finetuning_task",
    "gradient_checkpointing", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "keys_to_ignore_at_inference", "label2id", "max_position_embeddings", "max_seq_len", "max_seq_length",
    "max_sequence_length", "max_window_layers", "model_max_length", "model_type", "n_ctx", "n_special", "name_or_path",
    "neftune_noise_alpha", "num_labels", "output_attentions", "output_hidden_states", "output_past", "pad_token_id",
    "predict_special_tokens", "pretraining_tp", "problem_type", "reorder_and_upcast_attn", "return_dict", "seq_length",
    "sep_token_id", "summary_activation", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "tf_legacy_loss", "tie_last_hidden_states", "tokenizer_class", "torch_dtype", "torchscript",
    "transformers.js_config", "transformers_version", "type_vocab_size", "unk_token_id", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "use_flash_attention", "use_flash_attn", "use_return_dict",
}  # fmt: skip


def read_keys(config: Config, kinds: tuple[str, ...]) -> Config:
    """Every key that the class of a config reads, and ``model_type``, each with its value.

    ``kinds``: the kinds of models with these names of weights. Raises ValueError on keys that are unknown, null where
    the class has another default, or contradictory; :class:`Unsupported` on unsupported features.
    """
    values, kind = config.values, config.values.get("model_type")
    if kind is None and len(kinds) > 1:
        raise ValueError("model_type is not in the config, and several kinds of models have these names of weights")
    kind = kinds[0] if kind is None else kind
    if kind not in kinds:
        refuse({f"the computation of model_type {kind}": f"its names are those of {', '.join(kinds)}"})
    rows, synonyms = READ[kind], SYNONYMS.get(kind, {})
    fixed = {**FIXED, **_FIXED_OF.get(kind, {})}
    others = [key for key in values if key not in rows and key not in synonyms]
    needs = {fixed[key][1]: f"{key} is {config.shown(key)}" for key in others if key in fixed and not _built(
        values[key], fixed[key][0])}  # fmt: skip
    if needs:
        refuse(needs)
    known = fixed.keys() | HARMLESS
    _refuse_unknown(
        config, [k for k in others if k not in known and values[k] is not None and values[k] not in ([], {})]
    )
    found = {key: values.get(key, default) for key, default in rows.items()}
    for other, key in synonyms.items():
        if values.get(other) is not None:
            if values.get(key, values[other]) != values[other]:
                said = f"{key} is {config.shown(key)} and {other}, another name of it, is {config.shown(other)}"
                raise ValueError(f"{said}; remove the one that is wrong")
            found[key] = values[other]
    for key, value in found.items():
        if value is None and rows[key] is not None and rows[key] is not False and key not in _NULLABLE:
            raise ValueError(f"{key} in the config is null, which a {kind} cannot read; remove it, or give its value")
    return Config({**{k: v for k, v in found.items() if v is not NEEDED}, "model_type": kind})


def _built(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is supported; for a list with one per layer, each kind once."""
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        value = value[:1]
    return any(value == one for one in allowed)


def _refuse_unknown(config: Config, unknown: list[str]) -> None:
    if unknown:
        listed = ", ".join(f"{key} = {config.shown(key)}" for key in unknown)
        raise ValueError(
            f"the config has unknown keys, which may change what the model computes: {listed}; "
            "remove them if they do not"
        )


def refuse(needs: Mapping[str, str]) -> None:
    """Raise :class:`Unsupported` with features and where each was found."""
    seen = "; ".join(f"{feature} ({where})" for feature, where in needs.items())
    raise Unsupported(f"this model has features that are not supported, so it is not run: {seen}", tuple(needs))
