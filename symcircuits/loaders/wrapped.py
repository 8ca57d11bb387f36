"""Live bridges of TransformerLens 4 around a model of Hugging Face's transformers: GPT-2, GPT-NeoX, LLaMA and its kin.

Their state dict has the names of a native bridge (:mod:`~symcircuits.loaders.bridge`), with every change that the
bridge made to its weights (folded norms, centred weights). For GPT-2 the weights that are ``Conv1D``, ``attn.o``,
``mlp.in`` and ``mlp.out``, stay ``[in, out]``; ``q``, ``k`` and ``v`` are linear layers. Settings missing from the
bridge's own config (windows, the rotary part of a head) are in the config of the model inside, which is read like that
of a file, as are the multipliers of Granite and Gemma; Gemma's gains are stored less 1. Since names and shapes do not
show these things, the result is compared with the logits of the live model on a few tokens. Source: TransformerLens
4.3, transformers 5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture
from symcircuits.loaders import huggingface as hf
from symcircuits.loaders.bridge import BRIDGE, NATIVE, renamed
from symcircuits.loaders.config import Config
from symcircuits.loaders.keys import read_keys
from symcircuits.loaders.layout import Unsupported
from symcircuits.loaders.llama import activation_of, multipliers_of, number_of, windows_of
from symcircuits.loaders.pickled import as_array
from symcircuits.loaders.stored import Stored
from symcircuits.model import Model

__all__ = ["check_computes", "is_wrapped", "older_names", "read_wrapped", "runs_in_float32"]

_TOKENS = 5  # tokens on which the result is compared with the live model
# Allowed error of logits, relative to the largest, by the type of the weights: a transposed weight, another
# activation or eps exceed it by far, rounding stays far below. In float64 too transformers has its RMS norms and
# rotations in float32.
_OFF = {"float64": 1e-4, "float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
_GAIN = re.compile(r"(^|\.)ln(1|2|_final)\.weight$")
Keys = dict[str, Any]  # of a config, under TransformerLens's names


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of model: its ``model_type``, what its config says, which weights are stored transposed."""

    model_types: tuple[str, ...]
    say: Callable[[Config], Keys]
    turned: str = r"(?!)"


def is_wrapped(config: Mapping[str, Any], names: list[str]) -> bool:
    """Whether the config and names are those of a bridge around another model."""
    return config.get("architecture") not in (None, NATIVE) and BRIDGE.recognises(names)


def read_wrapped(stored: Stored, config: Mapping[str, Any], inside: Any, name: str) -> Model:
    """From the state dict of a bridge and the config of the model inside it (an object with ``to_dict()``).

    Raises :class:`Unsupported` for a kind of model whose storage of weights is unknown, ValueError without its config.
    """
    architecture = config["architecture"]
    if not isinstance(architecture, str) or architecture not in _KINDS:
        what = f"a bridge around a {architecture}"
        raise Unsupported(
            f"{what} cannot be read: how its weights are stored is known for {', '.join(_KINDS)}; weights in one of "
            "the layouts that are known can be given to from_arrays",
            (what,),
        )
    said = inside.to_dict() if callable(getattr(inside, "to_dict", None)) else None
    if not isinstance(said, Mapping):
        raise ValueError(
            f"this is a bridge around a {architecture} without the config of that model (original_model.config), which "
            "has what the config of the bridge lacks"
        )
    kind = _KINDS[architecture]
    settings = read_keys(Config(said), kind.model_types)
    turned = {n: w.T if re.search(kind.turned, n) else w for n, w in stored.weights.items()}
    if "gemma" in kind.model_types:  # its gains are stored less 1
        turned = {n: 1 + w.astype(np.float64) if _GAIN.search(n) else w for n, w in turned.items()}
    return _multiplied(BRIDGE.read(Stored(turned, stored.dtypes), kind.say(settings), name), settings)


def _multiplied(model: Model, config: Config) -> Model:
    """With the multipliers of a Granite or Gemma, for which TransformerLens has no key."""
    numbers = multipliers_of(config, model.architecture.n_layers, model.d_model)
    numbers = {symbol: number for symbol, number in numbers.items() if number != 1}
    architecture = replace(model.architecture, multipliers=frozenset(numbers))
    return replace(model, architecture=architecture, multipliers=numbers) if numbers else model


def older_names(live: Any, tensors: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """The tensors of a live bridge under TransformerLens's older names and in its shapes, uncopied.

    Tensors without such a name are left out. Raises ValueError if the names are not those of a bridge.
    """
    if not BRIDGE.recognises(tensors):
        raise ValueError(
            "a cache is read with the names of TransformerLens (embed.W_E and blocks.0.attn.W_Q, or embed.weight and "
            "blocks.0.attn.q.weight); this model has others: give its tensors to sc.Tensors by their names there"
        )
    kind = _KINDS.get(_architecture(live))
    heads, shared = (
        max(architecture.heads, default=1),
        max(map(len, map(architecture.key_values, range(architecture.n_layers))), default=1),
    )
    found = {}
    for name, w in _full_gains(tensors, kind).items():
        new, tensor = renamed(name, w.T if kind is not None and re.search(kind.turned, name) else w, heads, shared)
        if new != name:
            found[new] = tensor
    return found


def _full_gains(tensors: Mapping[str, Any], kind: _Kind | None) -> Mapping[str, Any]:
    """The tensors with the gains that multiply: Gemma's are stored less 1."""
    if kind is None or "gemma" not in kind.model_types:
        return tensors
    return {n: 1 + w if _GAIN.search(n) else w for n, w in tensors.items()}


def runs_in_float32(live: Any) -> bool:
    """Whether a live model computes some steps in float32, whatever its type: rotations and norms of bridges."""
    return _architecture(live) in _KINDS.keys() - {"GPT2LMHeadModel"}


def _architecture(live: Any) -> str:
    config = getattr(live, "cfg", None)
    return str(config.get("architecture") if isinstance(config, Mapping) else getattr(config, "architecture", None))


# ----------------------------------------------------------------------- configs, with the keys of TransformerLens
def _gpt2(config: Config) -> Keys:
    layers, heads, size = hf.needed(config, "n_layer", "n_head", "n_embd")
    return {
        "n_layers": layers, "n_heads": heads, "d_model": size, "d_head": hf.head_size(size, heads),
        "d_vocab": config.size("vocab_size", 1), "n_ctx": config.size("n_positions", 1),
        "d_mlp": config.size("n_inner", 1) or 4 * size, "normalization_type": "LN",
        "act_fn": hf.activation(config, "activation_function"),
        "eps": hf.epsilon(config, "layer_norm_epsilon"),
        "positional_embedding_type": "standard", "use_attn_scale": config.flag("scale_attn_weights", False),
        "scale_attn_by_inverse_layer_idx": config.flag("scale_attn_by_inverse_layer_idx", False),
    }  # fmt: skip


def _neox(config: Config) -> Keys:
    layers, heads, size = hf.needed(config, "num_hidden_layers", "num_attention_heads", "hidden_size")
    d_head = hf.head_size(size, heads)
    return {
        "n_layers": layers, "n_heads": heads, "d_model": size, "d_head": d_head,
        "d_vocab": config.size("vocab_size", 1), "d_mlp": config.size("intermediate_size", 1),
        "act_fn": hf.activation(config, "hidden_act"), "normalization_type": "LN",
        "eps": hf.epsilon(config, "layer_norm_eps"),
        "parallel_attn_mlp": config.flag("use_parallel_residual", False),
        **_rotary(config, d_head),
    }  # fmt: skip


def _llama(config: Config) -> Keys:
    layers, heads, size = hf.needed(config, "num_hidden_layers", "num_attention_heads", "hidden_size")
    d_head = hf.head_size(size, heads, config.size("head_dim", 1))
    windows = windows_of(config, layers)
    shown = [w for w in windows if w is not None]
    gemma, granite = (config.values.get("model_type") == kind for kind in ("gemma", "granite"))
    scaled = {"attn_scale": _inverse(number_of(config, "attention_multiplier"))} if granite else {}
    local = {"use_local_attn": True, "window_size": shown[0],
             "attn_types": ["global" if w is None else "local" for w in windows]} if shown else {}  # fmt: skip
    return {
        "n_layers": layers, "n_heads": heads, "d_model": size, "d_head": d_head,
        "n_key_value_heads": config.size("num_key_value_heads", 1) or heads,
        "d_vocab": config.size("vocab_size", 1), "d_mlp": config.size("intermediate_size", 1), "gated_mlp": True,
        "act_fn": activation_of(config, gemma), "normalization_type": "RMS",
        "eps": hf.epsilon(config, "rms_norm_eps"), **local, **scaled,
        **_rotary(config, d_head),
    }  # fmt: skip


def _inverse(multiplier: float) -> float:
    """The divisor of the scores; raises ValueError if it is not a positive number."""
    if not multiplier > 0:
        raise ValueError(f"attention_multiplier in the config must be a positive number, not {multiplier:g}")
    return 1 / multiplier


def _rotary(config: Config, d_head: int) -> Keys:
    found = hf.rotary_of(config, d_head)
    return {"positional_embedding_type": "rotary", "rotary_dim": found.dim, "rotary_base": found.base}


_KINDS = {
    "GPT2LMHeadModel": _Kind(("gpt2",), _gpt2, r"\.(attn\.o|mlp\.in|mlp\.out)\.weight$"),
    "GPTNeoXForCausalLM": _Kind(("gpt_neox",), _neox),
    "LlamaForCausalLM": _Kind(("llama",), _llama),
    "MistralForCausalLM": _Kind(("mistral",), _llama),
    "Qwen2ForCausalLM": _Kind(("qwen2",), _llama),
    "GraniteForCausalLM": _Kind(("granite",), _llama),
    "GemmaForCausalLM": _Kind(("gemma",), _llama),
}


# ------------------------------------------------------------------------------- comparison with the live model
def _unembedded(hidden: Array, model: Model) -> Array:
    end = hidden.astype(np.float64) @ np.asarray(model.weights["W_U"], np.float64).T
    return np.asarray(end * model.multipliers.get("m_U", 1.0))


def check_computes(live: Any, tensor: Any, model: Model) -> None:
    """Raise ValueError if, on a few tokens, a live model and the model read from it have different logits.

    ``tensor``: one of its weights; the tensor of tokens is made on its device.
    """
    tokens = [(3 * i + 1) % model.d_vocab for i in range(min(_TOKENS, model.n_context or _TOKENS))]
    try:
        given = live(tensor.new_tensor([tokens]).long())
        hidden = getattr(given, "last_hidden_state", None)  # a base model, whose unembedding is the embedding
        end, _ = as_array(getattr(given, "logits", given) if hidden is None else hidden)
        logits = end if hidden is None else _unembedded(end, model)
    except Exception as fault:
        raise ValueError(
            f"the live model could not be run to check what was read from it: {type(fault).__name__}: {fault!s:.200}"
        ) from fault
    mine = model.run([tokens]).logits
    if mine is None or logits.shape != mine.shape:
        raise ValueError(f"the live model gives no logits of its {model.d_vocab_out} output tokens for a row of tokens")
    off, largest = float(np.abs(logits - mine).max()), float(np.abs(mine).max())
    if not off <= _OFF.get(model.dtype, _OFF["bfloat16"]) * largest:
        raise ValueError(
            f"the live model computes other logits than its weights and config say (off by {off:.2g}; the largest is "
            f"{largest:.2g}): it may be in training mode (dropout), have hooks that change something, or need "
            "unsupported features; call eval() and reset its hooks"
        )
