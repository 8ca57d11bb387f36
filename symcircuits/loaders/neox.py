"""The layout of GPT-NeoX (and Pythia) in Hugging Face's transformers.

``gpt_neox.embed_in.weight [vocab_size, hidden_size]``, ``gpt_neox.layers.0.attention.query_key_value`` (for each head
its queries, keys and values: ``[heads, 3, d_head, ...]``), ``attention.dense``, ``input_layernorm``,
``post_attention_layernorm``, ``mlp.dense_h_to_4h``, ``mlp.dense_4h_to_h``, ``gpt_neox.final_layer_norm``, and the
unembedding ``embed_out.weight`` (in memory ``lm_head.weight``): weights ``[out, in]``. Attention and MLP read the same
stream if ``use_parallel_residual`` is true. Source: GPTNeoXForCausalLM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL, transformer
from symcircuits.loaders import huggingface as hf
from symcircuits.loaders.assembling import assemble, dropped_note, half_precision_note, mask_note
from symcircuits.loaders.config import Config
from symcircuits.loaders.files import Stored
from symcircuits.loaders.keys import read_keys
from symcircuits.loaders.layout import Layout
from symcircuits.model import Model, Settings
from symcircuits.model.checks import Axes

__all__ = ["NEOX"]

_BUFFERS = re.compile(r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$|\.rotary_emb\.inv_freq$")
_PREFIX = "gpt_neox."


def _recognises(names: Iterable[str]) -> bool:
    return any(re.search(r"^(gpt_neox\.)?(embed_in\.weight|layers\.\d+\.attention\.query_key_value)", n) for n in names)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    settings = read_keys(Config(config), ("gpt_neox",))
    layers, heads, d_model = hf.needed(settings, "num_hidden_layers", "num_attention_heads", "hidden_size")
    prefix = _PREFIX if any(n.startswith(_PREFIX) for n in stored.weights) else ""
    dropped = [n for n in stored.weights if _BUFFERS.search(n)]
    weights = {n: w for n, w in stored.weights.items() if n not in dropped}
    stored_head = "lm_head.weight" if "lm_head.weight" in weights else "embed_out.weight"
    head, notes = hf.unembedding(settings, weights, stored_head, f"{prefix}embed_in.weight")
    d_head = hf.head_size(d_model, heads)
    axes, biases = ({f"{prefix}{n}": a for n, a in kind.items()} for kind in _axes(layers))
    said = settings.flag("attention_bias", False)
    axes |= hf.biases_of(biases, weights, said, "attention_bias")
    axes |= {head: ("vocab_size", "hidden_size")} if head not in axes else {}
    known = ("hidden_size", "vocab_size", "intermediate_size")
    sizes = {key: size for key in known if (size := settings.size(key, 1)) is not None}
    hf.check_all(axes, weights, {**sizes, "3*hidden_size": 3 * d_model})
    paper = _to_paper({n.removeprefix(prefix): w for n, w in weights.items()}, layers, heads)
    paper["W_U"] = weights[head]
    dtypes = list(dict.fromkeys(stored.dtypes[n] for n in axes))
    notes += half_precision_note(dtypes)
    notes += dropped_note(dropped) + mask_note({n: stored.weights[n] for n in dropped})
    rotary = hf.rotary_of(settings, d_head)
    eps, act = hf.epsilon(settings, "layer_norm_eps"), hf.activation(settings, "hidden_act")
    rules = Settings(eps, act, rotary)
    parallel = settings.flag("use_parallel_residual", False) and layers > 0
    described = transformer(
        [heads] * layers, "rotary", norm="LN", mlps=layers > 0, parallel=parallel
    )  # fmt: skip
    return assemble(paper, described, hf.scales_of(described, d_head), rules, name=name, notes=notes, dtypes=dtypes)


def _axes(layers: int) -> tuple[dict[str, Axes], dict[str, Axes]]:
    """The weights that are always present, and the biases of attention."""
    axes: dict[str, Axes] = {"embed_in.weight": ("vocab_size", "hidden_size")}
    biases: dict[str, Axes] = {}
    inside: dict[str, Axes] = {
        "attention.query_key_value.weight": ("3*hidden_size", "hidden_size"),
        "attention.dense.weight": ("hidden_size", "hidden_size"),
        "mlp.dense_h_to_4h.weight": ("intermediate_size", "hidden_size"),
        "mlp.dense_h_to_4h.bias": ("intermediate_size",),
        "mlp.dense_4h_to_h.weight": ("hidden_size", "intermediate_size"),
        "mlp.dense_4h_to_h.bias": ("hidden_size",),
    }
    norms = ("input_layernorm", "post_attention_layernorm")
    inside |= {f"{norm}.{part}": ("hidden_size",) for norm in norms for part in ("weight", "bias")}
    for layer in range(layers):
        axes |= {f"layers.{layer}.{name}": names for name, names in inside.items()}
        biases[f"layers.{layer}.attention.query_key_value.bias"] = ("3*hidden_size",)
        biases[f"layers.{layer}.attention.dense.bias"] = ("hidden_size",)
    return axes | {f"final_layer_norm.{part}": ("hidden_size",) for part in ("weight", "bias")}, biases


def _to_paper(w: Mapping[str, Array], layers: int, heads: int) -> dict[str, Array]:
    paper = {"W_E": w["embed_in.weight"].T}
    paper |= {f"gain_{FINAL}": w["final_layer_norm.weight"], f"b_N_{FINAL}": w["final_layer_norm.bias"]}
    for layer in range(layers):
        at = f"layers.{layer}."
        for part in ("weight", "bias"):
            fused = w.get(f"{at}attention.query_key_value.{part}")
            if fused is not None:  # for each head its queries, keys and values
                by_head = fused.reshape(heads, 3, -1, *fused.shape[1:])
                for i, glyph in enumerate("QKV"):
                    rows = by_head[:, i].reshape(-1, *fused.shape[1:])
                    paper |= hf.heads_of(f"{'W' if part == 'weight' else 'b'}_{glyph}", layer, rows, heads)
        written = hf.heads_of("W_O", layer, w[f"{at}attention.dense.weight"].T, heads)
        paper |= {name: rows.T for name, rows in written.items()}
        if f"{at}attention.dense.bias" in w:
            paper[f"b_O_L{layer}"] = w[f"{at}attention.dense.bias"]
        for norm, label in (("input_layernorm", f"L{layer}"), ("post_attention_layernorm", f"M{layer}")):
            paper |= {f"gain_{label}": w[f"{at}{norm}.weight"], f"b_N_{label}": w[f"{at}{norm}.bias"]}
        for part, glyph in (("dense_h_to_4h", "in"), ("dense_4h_to_h", "out")):
            paper[f"W_{glyph}_L{layer}"] = w[f"{at}mlp.{part}.weight"]
            paper[f"b_{glyph}_L{layer}"] = w[f"{at}mlp.{part}.bias"]
    return paper


NEOX = Layout("GPT-NeoX", _recognises, _read)
