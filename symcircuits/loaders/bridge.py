"""The layout of TransformerLens 4 (a native TransformerBridge): linear layers, with the config keys of TransformerLens.

``embed.weight [d_vocab, d_model]``, ``pos_embed.weight``, ``blocks.0.attn.q.weight [n_heads d_head, d_model]`` (heads
(concatenated), ``k``, ``v``, ``o.weight [d_model, n_heads d_head]``, ``blocks.0.ln1.weight``, ``mlp.in.weight
[d_mlp, d_model]``, ``mlp.gate``, ``mlp.out``, ``ln_final``, ``unembed.weight [d_vocab_out, d_model]``, each with its
``bias``. They are converted to the names and shapes of :mod:`~symcircuits.loaders.transformerlens` and read as those.
Source: the native model of TransformerLens 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.loaders.config import Config, check_kinds
from symcircuits.loaders.files import Stored
from symcircuits.loaders.layout import Layout, Unsupported
from symcircuits.loaders.transformerlens import TRANSFORMERLENS
from symcircuits.model import Model

__all__ = ["BRIDGE", "NATIVE", "renamed"]

NATIVE = "TransformerLensNative"  # the architecture in the config of a native bridge

_ENDS = {"embed.weight": "embed.W_E", "pos_embed.weight": "pos_embed.W_pos", "unembed.bias": "unembed.b_U"}
# Features that a native model ignores, whatever its config says, and the value that turns each off.
_UNREAD = {
    "use_attn_scale": True, "parallel_attn_mlp": False, "use_local_attn": False,
    "scale_attn_by_inverse_layer_idx": False, "rotary_scaling_factor": None,
}  # fmt: skip


def _recognises(names: Iterable[str]) -> bool:
    listed = list(names)
    older = any(re.search(r"\.W_[A-Z]", name) for name in listed)  # a file with both is one with the older names
    return not older and any(re.search(r"^(embed\.weight|blocks\.\d+\.attn\.q\.weight)$", name) for name in listed)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    settings = Config(config)
    check_kinds(settings)  # including the keys that a native model ignores
    _refuse_wrapped(config.get("architecture"))
    heads, shared = settings.size("n_heads", 1), settings.size("n_key_value_heads", 1)
    if heads is None:
        raise ValueError("n_heads is not in the config, and the weights alone do not tell it")
    inside = [n for n in stored.weights if re.search(r"\.mlp\.(in|gate)\.bias$", n)]
    if inside and settings.flag("gated_mlp", False) and any(stored.weights[n].any() for n in inside):
        what = "biases inside a gated MLP"
        raise Unsupported(
            f"this model has features that are not supported, so it is not run: {what} ({inside[0]})", (what,)
        )
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    names: dict[str, str] = {}
    for old, w in stored.weights.items():
        new, array = renamed(old, w, heads, shared or heads)
        if new in weights:
            raise ValueError(f"the file has the same weight under two names, {names[new]} and {old}")
        weights[new], dtypes[new], names[new] = array, stored.dtypes[old], old
    said, notes = _as_computed(config)
    model = TRANSFORMERLENS.read(Stored(weights, dtypes), said, name)
    return replace(model, notes=(*model.notes, *notes))


def _as_computed(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The config of a native model as it computes: ignored features are off, adjacent entries form rotary pairs."""
    if config.get("architecture") != NATIVE:
        return dict(config), []
    unread = [k for k, off in _UNREAD.items() if config.get(k) not in (None, off)]
    unread = [k for k in unread if k != "rotary_scaling_factor" or config[k] != 1]
    said = {**config, **{k: _UNREAD[k] for k in unread}, "rotary_adjacent_pairs": True}
    if config.get("use_attn_scale") is False:
        said["attn_scale"] = None
    shown = [f"{key}, which is {Config(config).shown(key)}" for key in unread]
    return said, [f"a native model of TransformerLens 4 ignores {what}" for what in shown]


def _refuse_wrapped(architecture: Any) -> None:
    """Raise on a bridge around another model: it has these names too, but stores some weights transposed."""
    if architecture not in (None, NATIVE):
        raise Unsupported(
            f"these are the weights of a bridge around a {architecture}, whose names do not tell how each is stored; "
            "load the live bridge (load(bridge)), or the files of that model in its own layout",
            (f"the stored weights of a bridge around a {architecture}",),
        )


def renamed(name: str, w: Array, heads: int, shared: int) -> tuple[str, Array]:
    """A weight under TransformerLens's older name and in its shape; one without such a name is unchanged."""
    if name in _ENDS:
        return _ENDS[name], w
    if name == "unembed.weight":
        return "unembed.W_U", w.T
    norm = re.fullmatch(r"(blocks\.\d+\.ln[12]|ln_final)\.(weight|bias)", name)
    if norm:
        return f"{norm[1]}.{'w' if norm[2] == 'weight' else 'b'}", w
    mlp = re.fullmatch(r"(blocks\.\d+\.mlp)\.(in|gate|out)\.(weight|bias)", name)
    if mlp:
        return f"{mlp[1]}.{'W' if mlp[3] == 'weight' else 'b'}_{mlp[2]}", w.T
    attention = re.fullmatch(r"(blocks\.\d+\.attn)\.([qkvo])\.(weight|bias)", name)
    if not attention:
        return name, w
    at, glyph, weight = attention[1], attention[2].upper(), attention[3] == "weight"
    if glyph == "O":
        return (f"{at}.W_O", _by_head(name, w.T, heads)) if weight else (f"{at}.b_O", w)
    count = shared if glyph in "KV" else heads
    under = "_" if count != heads else ""
    rows = _by_head(name, w, count)
    return f"{at}.{under}{'W' if weight else 'b'}_{glyph}", rows.swapaxes(1, 2) if weight else rows


def _by_head(name: str, rows: Array, count: int) -> Array:
    if rows.ndim == 0 or len(rows) % count:
        raise ValueError(f"{name} has shape {list(rows.shape)}, which {count} heads do not divide")
    return rows.reshape(count, len(rows) // count, *rows.shape[1:])


BRIDGE = Layout("TransformerLens 4", _recognises, _read)
