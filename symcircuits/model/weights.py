"""The weights of an architecture, with their shapes, and all inputs of a frozen forward pass."""

from __future__ import annotations

from symcircuits.core.architecture import Architecture, scalar_names
from symcircuits.core.words import scalar_argument
from symcircuits.model.checks import Axes

__all__ = ["matrix_names", "weight_axes"]


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


def matrix_names(architecture: Architecture, computed: bool = False) -> tuple[str, ...]:
    """The names of all inputs of :func:`~symcircuits.model.over_ring.frozen`; scales and multipliers are scalars.

    ``computed``: as there; masks and the weights of bilinear MLPs instead of patterns and MLP outputs.

    >>> from symcircuits.core.architecture import attention_only
    >>> matrix_names(attention_only((1,)))
    ('t', 'W_E', 'W_Q_L0H0', 'W_K_L0H0', 'W_V_L0H0', 'W_O_L0H0', 'W_U', 'A_L0H0', 'scale_L0H0')
    """
    opened = computed and architecture.bilinear
    inside = () if opened else ("W_in_", "W_gate_", "W_out_", "b_in_", "b_gate_", "b_out_", "gain_M", "b_N_M")
    read = {f"{glyph}_{r.norm}" for r in architecture.readings for glyph in ("gain", "b_N", "D") if r.norm[:1] == "M"}
    names = (n for n in weight_axes(architecture) if not n.startswith(inside) or n in read)
    weights = ["P" if n == "W_pos" else n for n in names]
    labels = [str(head) for head in architecture.all_heads]
    given = [f"A_{label}" for label in labels]
    if computed and not architecture.softmax:
        given = [f"mask_L{layer}" for layer in range(architecture.n_layers)]
    given += [f"D_{label}" for label in architecture.scale_labels if opened or label[0] != "M" or f"D_{label}" in read]
    if architecture.qk_norm:
        given += [f"D_Q{label}" for label in labels]
        given += [f"D_K{label}" for layer in range(architecture.n_layers) for label in architecture.key_values(layer)]
    given += ["C"] if architecture.norm == "LN" else []
    apart = sorted({p.layer for p in architecture.parts if p.of == "mlp"})
    given += [] if opened else [f"mlp_L{layer}" for layer in sorted(architecture.mlps) if layer not in apart]
    given += [f"rest_M{layer}" for layer in apart] + [one.argument for one in architecture.attachments]
    given += [] if architecture.split is None else [f"rest_L{architecture.split}"]
    given += [f"R_{label}" for label in labels] if architecture.positions == "rotary" else []
    given += map(scalar_argument, scalar_names(architecture))
    return ("t", *weights, *given, *(["ones"] if architecture.biases else []))


def _head_axes(head: str, shared: str) -> dict[str, Axes]:
    qk, ov = f"d_head of queries and keys of {shared}", f"d_head of values of {shared}"
    matrices = {"W_Q_" + head: (qk, "d_model"), "W_K_" + shared: (qk, "d_model"), "W_V_" + shared: (ov, "d_model")}
    biases = {"b_Q_" + head: (qk,), "b_K_" + shared: (qk,), "b_V_" + shared: (ov,)}
    return {**matrices, "W_O_" + head: ("d_model", ov), **biases}


def _mlp_axes(layer: str, gated: bool) -> dict[str, Axes]:
    """``W_in [d_mlp, d_model]``, its gate likewise, ``W_out [d_model, d_mlp]``."""
    size = f"d_mlp of {layer}"
    inward = ("in", "gate") if gated else ("in",)
    axes: dict[str, Axes] = {f"W_{kind}_{layer}": (size, "d_model") for kind in inward}
    axes |= {f"b_{kind}_{layer}": (size,) for kind in inward}
    return {**axes, f"W_out_{layer}": ("d_model", size), f"b_out_{layer}": ("d_model",)}
