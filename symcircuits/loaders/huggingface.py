"""What the layouts of Hugging Face have in common: keys of the config, heads in fused weights, tied unembeddings.

Which axis of a weight is which is said by the layout, never guessed from a shape: many of these matrices are square.
Every key of a config that is neither read nor known to be harmless is refused: it might change what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture, Head
from symcircuits.loaders.config import Config
from symcircuits.loaders.layout import Unsupported
from symcircuits.model import ACTIVATIONS, Rotary
from symcircuits.model.checks import Axes, check_names, check_shapes, check_values

__all__ = [
    "activation", "biases_of", "check_all", "check_keys", "epsilon", "head_size", "heads_of", "needed",
    "refuse", "rotary_of", "scales_of", "unembedding",
]  # fmt: skip

# Keys that say how a model was trained, stored or is called, but not what it computes.
_HARMLESS = {
    "_name_or_path", "_attn_implementation_autoset", "architectures", "attention_dropout", "attn_implementation",
    "attn_pdrop", "auto_map", "bos_token_id", "chunk_size_feed_forward", "classifier_dropout", "dtype", "embd_pdrop",
    "eos_token_id", "finetuning_task", "gradient_checkpointing", "hidden_dropout", "id2label", "initializer_range",
    "is_decoder", "keys_to_ignore_at_inference", "label2id", "max_window_layers", "model_type", "n_ctx",
    "name_or_path", "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type",
    "pruned_heads", "reorder_and_upcast_attn", "resid_pdrop", "return_dict", "sep_token_id", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params",
    "n_special", "output_past", "predict_special_tokens",
    "tie_word_embeddings", "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "unk_token_id",
    "use_bfloat16", "use_cache",
}  # fmt: skip

# Keys that need what is not built, when they are set, and what that is.
_FEATURES = {
    "add_cross_attention": "an encoder and a decoder",
    "is_encoder_decoder": "an encoder and a decoder",
    "quantization_config": "quantized weights",
    "use_sliding_window": "local (windowed) attention",
    "qk_norm": "normalized queries and keys",
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
}


def check_keys(config: Config, read: Iterable[str], model_types: tuple[str, ...]) -> None:
    """ValueError on keys that are not known, :class:`Unsupported` on a kind of model or a feature that is not built."""
    values, needs = config.values, dict[str, str]()
    kind = values.get("model_type")
    if kind is not None and kind not in model_types:
        needs[f"the computation of model_type {kind}"] = f"its names are those of {', '.join(model_types)}"
    needs |= {what: f"{key} is {config.shown(key)}" for key, what in _FEATURES.items() if values.get(key)}
    if needs:
        refuse(needs)
    known = {*read, *_HARMLESS, *_FEATURES}
    unset = [k for k, v in values.items() if v is None or v is False or (isinstance(v, (dict, list)) and not v)]
    unknown = [k for k in values if k not in known and k not in unset]
    if unknown:
        listed = ", ".join(f"{k} = {config.shown(k)}" for k in unknown)
        raise ValueError(
            f"the config has keys that are not known here and may change what the model computes: {listed}; "
            "remove them if they do not"
        )


def refuse(needs: Mapping[str, str]) -> None:
    """Raise :class:`Unsupported` with features and where each was seen."""
    seen = "; ".join(f"{feature} ({where})" for feature, where in needs.items())
    raise Unsupported(f"this model needs what is not built yet, so it is not run: {seen}", tuple(needs))


def needed(config: Config, *keys: str) -> list[int]:
    """Sizes that the weights alone do not tell; ValueError where one is not given."""
    found = []
    for key in keys:
        size = config.size(key, 1 if key not in ("n_layer", "num_hidden_layers") else 0)
        if size is None:
            raise ValueError(f"{key} is not in the config, and the weights alone do not tell it")
        found.append(size)
    return found


def head_size(size: int, heads: int, said: int | None = None) -> int:
    """The size of a head: what the config says, where it does, else ``size / heads``."""
    if said is None and size % heads:
        raise ValueError(f"{heads} heads do not divide the {size} dimensions of the stream")
    return said if said is not None else size // heads


def activation(config: Config, key: str, default: str) -> str:
    """The activation of the MLPs by name; :class:`Unsupported` for one that is not built."""
    name = config.values.get(key, default)
    if not isinstance(name, str) or name not in ACTIVATIONS:
        refuse({f"the activation {name}": f"{key} is {config.shown(key)}"})
    return str(name)


def epsilon(config: Config, key: str, default: float) -> float:
    """The eps of the norms."""
    value = config.values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{key} in the config must be a number from 0 on, not {config.shown(key)}")
    return float(value)


def check_all(axes: Mapping[str, Axes], weights: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """All weights are there and nothing else, finite, and in the shapes that the config tells."""
    check_names(axes, weights, "the file")
    for name in axes:
        check_values(name, weights[name])
    check_shapes(axes, weights, sizes, "the config")


def biases_of(axes: Mapping[str, Axes], weights: Mapping[str, Array], said: bool | None, key: str) -> dict[str, Axes]:
    """Biases that a config (under ``key``) says are there, or not; where it does not say (None), those that are there.

    ValueError where the weights say another thing, or some of them are missing.
    """
    there = [name for name in axes if name in weights]
    if said is False and there:
        raise ValueError(f"{key} is false, but there is a {there[0]}; set it to true, or remove the biases")
    if there and len(there) < len(axes):
        missing = [name for name in axes if name not in weights]
        raise ValueError(f"missing in the file: {', '.join(missing[:6])}; the other layers have such a bias")
    if said and not there and axes:
        raise ValueError(f"{key} is true, but there is no {next(iter(axes))}")
    return dict(axes) if there else {}


def heads_of(glyph: str, layer: int, rows: Array, count: int, group: bool = False) -> dict[str, Array]:
    """Rows ``[count d_head, ...]``, heads one after the other, as one array a head (or a group) by argument name."""
    owners = [f"L{layer}G{i}" if group else str(Head(layer, i)) for i in range(count)]
    return {f"{glyph}_{owner}": part for owner, part in zip(owners, np.split(rows, count), strict=True)}


def unembedding(
    config: Config, weights: dict[str, Array], head: str, embedding: str, default: bool
) -> tuple[str, list[str]]:
    """The name of the weight that unembeds, and a note where that is the embedding (tied).

    Of a tied model a head that is stored too is taken out of ``weights``, when it is the same; ValueError otherwise.
    """
    tied = config.flag("tie_word_embeddings", default)
    if not tied:
        if head not in weights:
            said = config.shown("tie_word_embeddings")
            raise ValueError(f"tie_word_embeddings is {said}, but there is no {head}")
        return head, []
    stored = weights.pop(head, None)
    if stored is not None and not np.array_equal(stored, weights.get(embedding, np.zeros(0))):
        raise ValueError(f"tie_word_embeddings is true, but {head} differs from {embedding}; set it to false")
    return embedding, ["the unembedding is the embedding (tied)"]


def scales_of(
    architecture: Architecture, d_head: int, by_layer: bool = False, weighted: bool = True
) -> dict[str, float]:
    """``1 / sqrt(d_head)`` (1, where not ``weighted``), over the layer's number counted from 1 where ``by_layer``."""
    divisor = math.sqrt(d_head) if weighted else 1.0
    heads = architecture.all_heads if architecture.scale else ()
    return {str(head): 1 / (divisor * (head.layer + 1 if by_layer else 1)) for head in heads}


def rotary_of(config: Config, d_head: int, share: float, share_key: str, base_key: str) -> Rotary:
    """Rotary positions, from ``rope_parameters`` of newer configs, else the older keys; entry i turns with i + dim / 2.

    Refused where the angles are scaled.
    """
    new = config.values.get("rope_parameters") or {}
    scaling = config.values.get("rope_scaling") or {}
    if not isinstance(new, Mapping) or not isinstance(scaling, Mapping):
        raise ValueError("rope_parameters and rope_scaling in the config must be objects, or null")
    kind = new.get("rope_type", scaling.get("rope_type", scaling.get("type", "default")))
    if kind != "default":
        refuse({"scaled rotary positions": f"their type is {kind}"})
    base = new.get("rope_theta", config.values.get(base_key, 10000.0))
    part = new.get("partial_rotary_factor", config.values.get(share_key, share))
    for value in (base, part):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"rotary positions need a base and a share that are positive, not {value!r}")
    return Rotary(int(d_head * part), float(base))
