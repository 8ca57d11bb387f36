"""Which weights an architecture has, and in which shapes."""

from __future__ import annotations

from symcircuits.core.architecture import Architecture
from symcircuits.model.checks import Axes

__all__ = ["weight_axes"]


def weight_axes(architecture: Architecture) -> dict[str, Axes]:
    """The weights of an architecture by argument name, each with the names of its axes.

    >>> from symcircuits.core.architecture import attention_only
    >>> weight_axes(attention_only((0,), "standard"))
    {'W_E': ('d_model', 'd_vocab'), 'W_pos': ('n_ctx', 'd_model'), 'W_U': ('d_vocab_out', 'd_model')}
    """
    axes: dict[str, Axes] = {"W_E": ("d_model", "d_vocab")}
    if architecture.positions in ("standard", "shortformer"):
        axes["W_pos"] = ("n_ctx", "d_model")
    for head in architecture.all_heads:
        axes |= _head_axes(head.label, architecture.key_value(head))
    for layer in range(architecture.n_layers):
        axes[f"b_O_L{layer}"] = ("d_model",)
        if layer in architecture.mlps:
            axes |= _mlp_axes(f"L{layer}", architecture.gated)
    for label in architecture.norm_labels:
        axes |= {f"{glyph}_{label}": ("d_model",) for glyph in ("gain", "b_N")}
    for layer in range(architecture.n_layers) if architecture.qk_norm else ():
        axes |= {f"gain_{side}{layer}": (f"d_head of queries and keys of L{layer}",) for side in "QK"}
    if architecture.unembed:
        axes |= {"W_U": ("d_vocab_out", "d_model"), "b_U": ("d_vocab_out",)}
    there = {b.replace("[", "_").removesuffix("]") for b in architecture.biases}
    there |= {f"gain_{label}" for label in architecture.gains}
    there |= {name for name in axes if name.startswith(("gain_Q", "gain_K"))}
    return {name: names for name, names in axes.items() if name[:2] == "W_" or name in there}


def _head_axes(head: str, shared: str) -> dict[str, Axes]:
    qk, ov = f"d_head of queries and keys of {shared}", f"d_head of values of {shared}"
    matrices = {"W_Q_" + head: (qk, "d_model"), "W_K_" + shared: (qk, "d_model"), "W_V_" + shared: (ov, "d_model")}
    biases = {"b_Q_" + head: (qk,), "b_K_" + shared: (qk,), "b_V_" + shared: (ov,)}
    return {**matrices, "W_O_" + head: ("d_model", ov), **biases}


def _mlp_axes(layer: str, gated: bool) -> dict[str, Axes]:
    """``W_in [d_mlp, d_model]``, its gate alike, ``W_out [d_model, d_mlp]``."""
    size = f"d_mlp of {layer}"
    inward = ("in", "gate") if gated else ("in",)
    axes: dict[str, Axes] = {f"W_{kind}_{layer}": (size, "d_model") for kind in inward}
    axes |= {f"b_{kind}_{layer}": (size,) for kind in inward}
    return {**axes, f"W_out_{layer}": ("d_model", size), f"b_out_{layer}": ("d_model",)}
