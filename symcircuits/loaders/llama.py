"""The layout of LLaMA, Mistral, Qwen2, Granite and Gemma (the first) in Hugging Face's transformers.

``model.embed_tokens.weight [vocab_size, hidden_size]``, ``model.layers.0.self_attn.q_proj``, ``k_proj``, ``v_proj``
(concatenated heads, ``num_key_value_heads`` of them in the last two), ``o_proj``, ``input_layernorm.weight``,
``post_attention_layernorm.weight`` (RMS), ``mlp.gate_proj``, ``mlp.up_proj``, ``mlp.down_proj``,
``model.norm.weight``, ``lm_head.weight``: weights ``[out, in]``. Query head h uses key/value head
``h // (heads / key/value heads)``. Granite multiplies its embedding, its layers' outputs, its scores and its logits;
Gemma multiplies its embedding by sqrt(hidden_size), and stores the gain of a norm less 1. Source: LlamaForCausalLM,
MistralForCausalLM, Qwen2ForCausalLM, GraniteForCausalLM, GemmaForCausalLM.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL, transformer
from symcircuits.loaders import huggingface as hf
from symcircuits.loaders.assembling import assemble, dropped_note, half_precision_note
from symcircuits.loaders.config import Config, is_number
from symcircuits.loaders.files import Stored
from symcircuits.loaders.keys import read_keys, refuse
from symcircuits.loaders.layout import Layout
from symcircuits.model import Model, Settings
from symcircuits.model.checks import Axes

__all__ = ["LLAMA", "MULTIPLIERS", "activation_of", "multipliers_of", "number_of", "windows_of"]

MULTIPLIERS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier")  # of Granite
_KINDS = ("llama", "mistral", "qwen2", "granite", "gemma")
_BUFFERS = re.compile(r"rotary_emb\.inv_freq$")
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_GLYPHS = {"gate_proj": "gate", "up_proj": "in", "down_proj": "out"}


def _recognises(names: Iterable[str]) -> bool:
    return any(re.search(r"^model\.(embed_tokens\.weight|layers\.\d+\.self_attn\.q_proj\.weight)$", n) for n in names)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    settings = read_keys(Config(config), _KINDS)
    kind = settings.values["model_type"]
    gemma = kind == "gemma"
    layers, heads, d_model = hf.needed(settings, "num_hidden_layers", "num_attention_heads", "hidden_size")
    shared = settings.size("num_key_value_heads", 1) or heads
    if heads % shared:
        raise ValueError(f"num_key_value_heads is {shared}, which does not divide the {heads} heads")
    d_head = hf.head_size(d_model, heads, settings.size("head_dim", 1))
    dropped = [n for n in stored.weights if _BUFFERS.search(n)]
    weights = {n: w for n, w in stored.weights.items() if n not in dropped}
    head, notes = hf.unembedding(settings, weights, "lm_head.weight", "model.embed_tokens.weight")
    axes = _axes(layers) | _biases(settings, layers, weights)
    axes |= {head: ("vocab_size", "hidden_size")} if head not in axes else {}
    known = ("hidden_size", "vocab_size", "intermediate_size")
    sizes = {key: size for key in known if (size := settings.size(key, 1)) is not None}
    hf.check_all(axes, weights, {**sizes, "heads*head_dim": heads * d_head, "kv_heads*head_dim": shared * d_head})
    paper = _to_paper(weights, layers, heads, shared) | {"W_U": weights[head]}
    if gemma:
        paper |= {name: 1 + w.astype(np.float64) for name, w in paper.items() if name.startswith("gain_")}
    dtypes = list(dict.fromkeys(stored.dtypes[n] for n in axes))
    notes += half_precision_note(dtypes)
    notes += dropped_note(dropped)
    rotary = hf.rotary_of(settings, d_head)
    eps, act = hf.epsilon(settings, "rms_norm_eps"), activation_of(settings, gemma)
    rules = Settings(eps, act, rotary, windows_of(settings, layers))
    described = transformer(
        [heads] * layers, groups=[shared] * layers, norm="RMS", mlps=layers > 0, gated=layers > 0,
        positions="rotary",
    )  # fmt: skip
    scales, multipliers = hf.scales_of(described, d_head), multipliers_of(settings, layers, d_model)
    if kind == "granite":
        scales = dict.fromkeys(scales, number_of(settings, "attention_multiplier"))
    return assemble(
        paper, described, scales, rules, name=name, notes=notes, dtypes=dtypes, multipliers=multipliers
    )  # fmt: skip


def activation_of(config: Config, gemma: bool) -> str:
    """The activation by name; for Gemma, versions of the library read one key or the other, and "gelu" in two ways."""
    name, other = config.values["hidden_act"], config.values.get("hidden_activation")
    if gemma and ((other is not None and name != other) or name == "gelu"):
        raise ValueError(
            f"hidden_act is {config.shown('hidden_act')} and hidden_activation is {config.shown('hidden_activation')}: "
            "versions of transformers read one or the other; set both to the intended activation (not to gelu, "
            "which some versions read as gelu_pytorch_tanh)"
        )
    return hf.activation(config, "hidden_act")


def number_of(config: Config, key: str) -> float:
    """A multiplier."""
    value = config.values[key]
    if not is_number(value):
        raise ValueError(f"{key} in the config must be a number, not {config.shown(key)}")
    if key == "logits_scaling" and not value:
        raise ValueError("logits_scaling, the divisor of the logits, must not be 0")
    return float(value)


def multipliers_of(config: Config, layers: int, d_model: int) -> dict[str, float]:
    """The multipliers by name: Gemma's sqrt(hidden_size), or those of a Granite config."""
    kind = config.values["model_type"]
    if kind == "gemma":
        return {"m_E": math.sqrt(d_model)}
    if kind != "granite":
        return {}
    embedding, residual, divisor = (number_of(config, key) for key in MULTIPLIERS[:3])
    added = {f"r[{part}{layer}]": residual for layer in range(layers) for part in "LM"}
    return {"m_E": embedding, **added, "m_U": 1 / divisor}


def windows_of(config: Config, layers: int) -> tuple[int | None, ...]:
    """How many keys the queries of each layer see, None for all; empty if no layer has a window.

    All layers of a Mistral have its window: its class ignores ``layer_types``. In a Qwen2 the layers
    named by ``layer_types`` have one, or those from ``max_window_layers`` on, if ``use_sliding_window`` is true.
    Others have none.
    """
    kind, types = config.values["model_type"], config.values.get("layer_types")
    on = config.flag("use_sliding_window", False) if kind == "qwen2" else kind == "mistral"
    window = config.values["sliding_window"] if on else None
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(
            f"sliding_window must be a whole number of keys, or null, not {config.shown('sliding_window')}"
        )
    first = _first_with_window(config) if kind == "qwen2" else 0
    told = ["sliding_attention" if window is not None and i >= first else "full_attention" for i in range(layers)]
    types = told if types is None else types
    if not isinstance(types, list) or len(types) != layers or not {*types} <= {"full_attention", "sliding_attention"}:
        refuse({"another kind of attention": f"layer_types is {config.shown('layer_types')}"})
    if kind == "mistral" and types != told:
        said = f"layer_types is {config.shown('layer_types')}"
        refuse({"a window in some layers": f"{said}, which AutoModelForCausalLM uses and MistralForCausalLM ignores"})
    if "sliding_attention" not in types:
        return ()
    if window is None:
        refuse({"a window without a size": f"layer_types is {config.shown('layer_types')}"})
    return tuple(window if t == "sliding_attention" else None for t in types)


def _first_with_window(config: Config) -> int:
    first = config.values["max_window_layers"]
    if type(first) is not int or first < 0:
        raise ValueError(
            f"max_window_layers in the config must be a whole number, not {config.shown('max_window_layers')}"
        )
    return first


def _axes(layers: int) -> dict[str, Axes]:
    axes: dict[str, Axes] = {"model.embed_tokens.weight": ("vocab_size", "hidden_size")}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        axes[f"{at}self_attn.q_proj.weight"] = ("heads*head_dim", "hidden_size")
        axes |= {f"{at}self_attn.{p}_proj.weight": ("kv_heads*head_dim", "hidden_size") for p in "kv"}
        axes[f"{at}self_attn.o_proj.weight"] = ("hidden_size", "heads*head_dim")
        axes |= {f"{at}mlp.{p}.weight": ("intermediate_size", "hidden_size") for p in _PROJECTIONS[:2]}
        axes[f"{at}mlp.down_proj.weight"] = ("hidden_size", "intermediate_size")
        axes |= {f"{at}{norm}.weight": ("hidden_size",) for norm in ("input_layernorm", "post_attention_layernorm")}
    return axes | {"model.norm.weight": ("hidden_size",)}


def _biases(config: Config, layers: int, weights: Mapping[str, Array]) -> dict[str, Axes]:
    """Qwen2 has biases of queries, keys and values; Mistral none; the others those given by their config."""
    kind = config.values["model_type"]
    inner: dict[str, Axes] = {}
    output: dict[str, Axes] = {}
    mlp: dict[str, Axes] = {}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        inner[f"{at}self_attn.q_proj.bias"] = ("heads*head_dim",)
        inner |= {f"{at}self_attn.{p}_proj.bias": ("kv_heads*head_dim",) for p in "kv"}
        output[f"{at}self_attn.o_proj.bias"] = ("hidden_size",)
        mlp |= {f"{at}mlp.{p}.bias": ("intermediate_size",) for p in _PROJECTIONS[:2]}
        mlp[f"{at}mlp.down_proj.bias"] = ("hidden_size",)
    said = config.flag("attention_bias", False) or kind == "qwen2"
    if kind in ("llama", "granite", "gemma"):
        inner |= output
    found = hf.biases_of(inner, weights, said, "attention_bias")
    return found | hf.biases_of(mlp, weights, config.flag("mlp_bias", False), "mlp_bias")


def _to_paper(w: Mapping[str, Array], layers: int, heads: int, shared: int) -> dict[str, Array]:
    paper = {"W_E": w["model.embed_tokens.weight"].T, f"gain_{FINAL}": w["model.norm.weight"]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for part, initial in (("weight", "W"), ("bias", "b")):
            for glyph, count in (("q", heads), ("k", shared), ("v", shared)):
                rows = w.get(f"{at}self_attn.{glyph}_proj.{part}")
                if rows is not None:
                    grouped = count < heads
                    paper |= hf.heads_of(f"{initial}_{glyph.upper()}", layer, rows, count, grouped)
            for name, glyph in _GLYPHS.items():
                if f"{at}mlp.{name}.{part}" in w:
                    paper[f"{initial}_{glyph}_L{layer}"] = w[f"{at}mlp.{name}.{part}"]
        written = hf.heads_of("W_O", layer, w[f"{at}self_attn.o_proj.weight"].T, heads)
        paper |= {name: rows.T for name, rows in written.items()}
        if f"{at}self_attn.o_proj.bias" in w:
            paper[f"b_O_L{layer}"] = w[f"{at}self_attn.o_proj.bias"]
        paper[f"gain_L{layer}"] = w[f"{at}input_layernorm.weight"]
        paper[f"gain_M{layer}"] = w[f"{at}post_attention_layernorm.weight"]
    return paper


LLAMA = Layout("LLaMA", _recognises, _read)
