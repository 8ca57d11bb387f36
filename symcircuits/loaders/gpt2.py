"""The layout of GPT-2 in Hugging Face's transformers.

``wte.weight [vocab_size, n_embd]``, ``wpe.weight [n_positions, n_embd]``, ``h.0.ln_1``, ``h.0.ln_2``, ``ln_f``
(``weight``, ``bias``), ``h.0.attn.c_attn`` (queries, keys and values concatenated), ``h.0.attn.c_proj``,
``h.0.mlp.c_fc``, ``h.0.mlp.c_proj``: weights ``[in, out]``, the transpose of a linear layer's. With or
without the prefix ``transformer.``; ``lm_head.weight`` is absent if it is the embedding. Source: GPT2LMHeadModel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

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

__all__ = ["GPT2"]

_BUFFERS = re.compile(r"\.attn\.(bias|masked_bias)$")


def _recognises(names: Iterable[str]) -> bool:
    return any(re.search(r"^(transformer\.)?(wte\.weight|h\.\d+\.attn\.c_attn\.weight)$", name) for name in names)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    settings = read_keys(Config(config), ("gpt2",))
    layers, heads, d_model = hf.needed(settings, "n_layer", "n_head", "n_embd")
    prefix = "transformer." if any(n.startswith("transformer.") for n in stored.weights) else ""
    dropped = [n for n in stored.weights if _BUFFERS.search(n)]
    weights = {n: w for n, w in stored.weights.items() if n not in dropped}
    head, notes = hf.unembedding(settings, weights, "lm_head.weight", f"{prefix}wte.weight")
    d_head = hf.head_size(d_model, heads)
    axes = {f"{prefix}{n}": a for n, a in _axes(layers).items()}
    axes |= {head: ("vocab_size", "n_embd")} if head not in axes else {}
    known = ("n_embd", "n_positions", "vocab_size", "n_inner")
    sizes = {key: size for key in known if (size := settings.size(key, 1)) is not None}
    hf.check_all(axes, weights, {"n_inner": 4 * d_model, **sizes, "3*n_embd": 3 * d_model})
    paper = _to_paper({n.removeprefix(prefix): w for n, w in weights.items()}, layers, heads)
    paper["W_U"] = weights[head]
    weighted = settings.flag("scale_attn_weights", False)
    by_layer = settings.flag("scale_attn_by_inverse_layer_idx", False)
    described = transformer([heads] * layers, "standard", norm="LN", mlps=layers > 0, scale=weighted or by_layer)
    dtypes = list(dict.fromkeys(stored.dtypes[n] for n in axes))
    notes += half_precision_note(dtypes)
    notes += ["scores of layer l (counted from 0) are also divided by l + 1"] if by_layer else []
    notes += dropped_note(dropped) + mask_note({n: stored.weights[n] for n in dropped})
    scales = hf.scales_of(described, d_head, by_layer, weighted)
    act = hf.activation(settings, "activation_function")
    rules = Settings(hf.epsilon(settings, "layer_norm_epsilon"), act)
    return assemble(paper, described, scales, rules, name=name, notes=notes, dtypes=dtypes)


def _axes(layers: int) -> dict[str, Axes]:
    axes: dict[str, Axes] = {"wte.weight": ("vocab_size", "n_embd"), "wpe.weight": ("n_positions", "n_embd")}
    inside: dict[str, Axes] = {
        "attn.c_attn.weight": ("n_embd", "3*n_embd"), "attn.c_attn.bias": ("3*n_embd",),
        "attn.c_proj.weight": ("n_embd", "n_embd"), "attn.c_proj.bias": ("n_embd",),
        "mlp.c_fc.weight": ("n_embd", "n_inner"), "mlp.c_fc.bias": ("n_inner",),
        "mlp.c_proj.weight": ("n_inner", "n_embd"), "mlp.c_proj.bias": ("n_embd",),
    }  # fmt: skip
    inside |= {f"{norm}.{part}": ("n_embd",) for norm in ("ln_1", "ln_2") for part in ("weight", "bias")}
    for layer in range(layers):
        axes |= {f"h.{layer}.{name}": names for name, names in inside.items()}
    return axes | {"ln_f.weight": ("n_embd",), "ln_f.bias": ("n_embd",)}


def _to_paper(w: Mapping[str, Array], layers: int, heads: int) -> dict[str, Array]:
    paper = {"W_E": w["wte.weight"].T, "W_pos": w["wpe.weight"]}
    paper |= {f"gain_{FINAL}": w["ln_f.weight"], f"b_N_{FINAL}": w["ln_f.bias"]}
    for layer in range(layers):
        at = f"h.{layer}."
        fused = np.split(w[f"{at}attn.c_attn.weight"].T, 3), np.split(w[f"{at}attn.c_attn.bias"], 3)
        for glyph, weight, bias in zip("QKV", *fused, strict=True):
            paper |= hf.heads_of(f"W_{glyph}", layer, weight, heads) | hf.heads_of(f"b_{glyph}", layer, bias, heads)
        written = hf.heads_of("W_O", layer, w[f"{at}attn.c_proj.weight"], heads)
        paper |= {name: rows.T for name, rows in written.items()} | {f"b_O_L{layer}": w[f"{at}attn.c_proj.bias"]}
        for norm, label in (("ln_1", f"L{layer}"), ("ln_2", f"M{layer}")):
            paper |= {f"gain_{label}": w[f"{at}{norm}.weight"], f"b_N_{label}": w[f"{at}{norm}.bias"]}
        for part, glyph in (("c_fc", "in"), ("c_proj", "out")):
            paper[f"W_{glyph}_L{layer}"] = w[f"{at}mlp.{part}.weight"].T
            paper[f"b_{glyph}_L{layer}"] = w[f"{at}mlp.{part}.bias"]
    return paper


GPT2 = Layout("GPT-2", _recognises, _read)
