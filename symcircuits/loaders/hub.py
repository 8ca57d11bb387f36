"""The small models of TransformerLens's own hub (attn-only, gelu, solu), as written by their training code.

``config.json`` is that of the training: ``normalization`` for ``normalization_type``, ``shortformer_pos`` for the kind
of position, and training settings. The oldest (``*_old``) have other names and weights ``[out, in]``. The activation
``solu_ln`` has a norm inside the MLP, whose gain and bias are absorbed into its reader:
``W_out (z g + b) + b_out = (W_out diag(g)) z + (b_out + W_out b)``. Source: TransformerLens 3.9, where it loads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.loaders.config import Config
from symcircuits.loaders.layout import Unsupported
from symcircuits.loaders.stored import Stored
from symcircuits.model.checks import check_values

__all__ = ["as_described", "fold_inner_norms", "inner_norms", "newer_names"]

# Training settings; and the values that other keys must have to change nothing in the computation.
_TRAINING = {
    "batch_size", "batch_size_per_device", "batches_per_step", "beta1", "beta2", "betas", "checkpoint_every",
    "checkpoint_every_tokens", "checkpoint_scale", "data_seed", "dataset_name", "dataset_subset_name", "debug",
    "debug_batch", "debug_overfit", "fixed_init", "grad_norm_clip", "init_range", "initializer_scale_embed",
    "initializer_scale_global", "initializer_scale_hidden", "initializer_scale_unembed", "log_interval", "lr",
    "lr_hidden", "lr_schedule", "lr_vector", "max_steps", "max_tokens", "model_checkpoint_name", "save_checkpoints",
    "save_checkpoints_to_bfloat16", "shuffled_data", "store_init", "take_checkpoints", "tokens_per_step",
    "total_batch_size", "train_loss_ewma_beta", "truncate_tokens", "use_acc", "use_bfloat16", "use_bfloat16_matmul",
    "use_checkpoint_schedule", "use_float16", "version", "W_O_init_scale", "warmup_steps", "warmup_tokens",
    "weight_decay", "weight_init_scheme",
}  # fmt: skip
_MUST_BE: dict[str, Any] = {
    "control": 1, "neuron_scale": 1, "neuron_temp": 1, "factored_embed": False, "use_ET": False, "use_pos_resid": True,
    "right_multiply_matrices": True, "ln_eps": 1e-5,
}  # fmt: skip
_EPS = 1e-5  # of the norm inside an MLP with the activation solu_ln
OLD = "neel-solu-old"  # TransformerLens's name for the oldest layout


def as_described(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config in TransformerLens's own keys; one not written by that training code is returned unchanged.

    Raises ValueError if the two kinds of keys contradict each other.
    """
    if not {"normalization", "shortformer_pos"} & config.keys():
        return config
    settings, said = Config(config), dict(config)
    norm = said.pop("normalization", said.get("normalization_type"))
    if config.get("normalization_type", norm) != norm:
        seen = f"normalization is {settings.shown('normalization')}"
        raise ValueError(f"{seen}, but normalization_type is {settings.shown('normalization_type')}")
    position = "shortformer" if settings.flag("shortformer_pos", False) else "standard"
    said.pop("shortformer_pos", None)
    if config.get("positional_embedding_type", position) != position:
        seen = f"shortformer_pos is {settings.shown('shortformer_pos')}"
        raise ValueError(f"{seen}, but positional_embedding_type is {settings.shown('positional_embedding_type')}")
    said |= {"normalization_type": norm, "positional_embedding_type": position}
    for key, harmless in _MUST_BE.items():
        value = said.get(key, harmless)
        if isinstance(value, bool) != isinstance(harmless, bool) or value != harmless:
            raise ValueError(
                f"{key} in the config is {settings.shown(key)}, which may change what the model computes: "
                f"TransformerLens reads such a model as if it were {Config({key: harmless}).shown(key)}"
            )
    return {key: value for key, value in said.items() if key not in _TRAINING | _MUST_BE.keys()}


def newer_names(stored: Stored, config: Config) -> Stored:
    """The weights of the oldest layout under today's names and in today's shapes; others unchanged.

    In that layout norms have their own names, and weights are ``[out, in]`` up to 6 layers, the positions up to 8.
    """
    layers = config.size("n_layers", 0)
    old = any(re.match(r"blocks\.\d+\.norm[12]\.|norm\.", name) for name in stored.weights)
    if layers is None or not (old or config.values.get("architecture") == OLD):
        return stored
    weights, dtypes = dict[str, Array](), dict[str, str]()
    for name, w in stored.weights.items():
        new = re.sub(r"^ln\.", "ln_final.", name.replace("norm", "ln"))
        turned = layers <= 8 if new == "pos_embed.W_pos" else layers <= 6 and ".W_" in new
        weights[new] = w.swapaxes(-1, -2) if turned and w.ndim > 1 else w
        dtypes[new] = stored.dtypes[name]
    return replace(stored, weights=weights, dtypes=dtypes)


def inner_norms(weights: dict[str, Array], config: Config) -> dict[str, Array]:
    """Take gains and biases of norms inside MLPs out of ``weights``, if the activation has such a norm.

    Raises :class:`Unsupported` if its eps is not that of the activation.
    """
    if config.values.get("act_fn") != "solu_ln":
        return {}
    found = {name: weights.pop(name) for name in list(weights) if re.search(r"\.mlp\.ln\.[wb]$", name)}
    eps = config.settings.eps
    if eps != _EPS and any(".mlp." in name for name in weights):
        what = f"the activation solu_ln with eps {eps:g}"
        where = f"eps is {config.shown('eps')}, not 1e-05"
        raise Unsupported(
            f"this model has features that are not supported, so it is not run: {what} ({where})", (what,)
        )
    return found


def fold_inner_norms(paper: dict[str, Array], inner: Mapping[str, Array]) -> list[str]:
    """Absorb gains and biases of norms inside MLPs into their readers, under the paper's names; returns a note."""
    for name, w in inner.items():
        layer, part = name.split(".")[1], name[-1]
        read = paper[f"W_out_L{layer}"]
        if w.shape != (read.shape[1],):
            raise ValueError(f"{name} has shape {list(w.shape)}; the MLP has {read.shape[1]} neurons")
        check_values(name, w)
        if part == "b":
            bias = paper.get(f"b_out_L{layer}", np.zeros(len(read)))
            paper[f"b_out_L{layer}"] = bias.astype(np.float64) + read.astype(np.float64) @ w.astype(np.float64)
    for name, w in inner.items():
        if name[-1] == "w":
            layer = name.split(".")[1]
            paper[f"W_out_L{layer}"] = paper[f"W_out_L{layer}"].astype(np.float64) * w.astype(np.float64)
    return ["gains and biases of the norms inside MLPs are read as a part of W_out and b_out"] if inner else []
