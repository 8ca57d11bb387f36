"""The layout of TransformerLens (versions 1 to 3, and its many descendants).

Names and shapes: ``embed.W_E [d_vocab, d_model]``, ``pos_embed.W_pos [n_ctx, d_model]``, ``blocks.0.attn.W_Q``,
``W_K``, ``W_V`` ``[n_heads, d_model, d_head]``, ``W_O [n_heads, d_head, d_model]``, ``b_Q``, ``b_K``, ``b_V``
``[n_heads, d_head]``, ``b_O [d_model]``, ``unembed.W_U [d_model, d_vocab_out]``, ``b_U [d_vocab_out]``; grouped
``_W_K``, ``_W_V``, ``_b_K``, ``_b_V`` (``n_key_value_heads`` in place of ``n_heads``); norms ``blocks.0.ln1.w``,
``ln1.b``, ``ln2``, ``ln_final``; MLPs ``blocks.0.mlp.W_in``, ``W_gate`` ``[d_model, d_mlp]``,
``W_out [d_mlp, d_model]``, ``b_in``, ``b_out``. There rows are vectors and weights multiply from the right; here they
are in the paper's shapes: :func:`to_paper` is the one place that converts. Source: HookedTransformerConfig and the
components of TransformerLens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL, Architecture, Head, transformer
from symcircuits.loaders.agreement import Features, check_biases, features_of
from symcircuits.loaders.assembling import assemble, dropped_note, half_precision_note, mask_note
from symcircuits.loaders.config import Config, refuse_unsupported
from symcircuits.loaders.files import Stored
from symcircuits.loaders.hub import as_described, fold_inner_norms, inner_norms, newer_names
from symcircuits.loaders.layout import Layout
from symcircuits.model import Model
from symcircuits.model.checks import Axes, check_names, check_shapes, check_values

__all__ = ["BUFFERS", "TRANSFORMERLENS", "to_paper"]

BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos", ".alibi")
_POSITION = "positional_embedding_type"
_NORM_GLYPHS = {"w": "gain", "b": "b_N"}


def to_paper(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights under TransformerLens's names and in its shapes, as argument names in the paper's shapes.

    Matrices are transposed, heads separated: ``W_OV`` here, ``W_O W_V``, is ``(W_V @ W_O)^T`` there, and
    ``W_QK``, ``W_Q^T W_K``, is ``W_Q @ W_K^T`` there. The position table and the vectors stay as they are.

    >>> import numpy as np
    >>> there = {"embed.W_E": np.ones((11, 16)), "blocks.0.attn.W_O": np.ones((3, 4, 16))}
    >>> {name: w.shape for name, w in to_paper(there).items()}
    {'W_E': (16, 11), 'W_O_L0H0': (16, 4), 'W_O_L0H1': (16, 4), 'W_O_L0H2': (16, 4)}
    """
    paper: dict[str, Array] = {}
    for name, w in weights.items():
        *place, part, glyph = name.split(".")
        layer = int(place[1]) if place else 0
        if part == "ln_final":
            paper[f"{_NORM_GLYPHS[glyph]}_{FINAL}"] = w
        elif not place:
            paper[glyph] = w.T if glyph in ("W_E", "W_U") else w
        elif part in ("q_norm", "k_norm"):
            paper[f"gain_{part[0].upper()}{layer}"] = w
        elif part in ("ln1", "ln2"):
            paper[f"{_NORM_GLYPHS[glyph]}_{'L' if part == 'ln1' else 'M'}{layer}"] = w
        elif part == "mlp" or glyph == "b_O":
            paper[f"{glyph}_L{layer}"] = w.T if w.ndim == 2 else w
        elif glyph[0] == "_":
            paper.update({f"{glyph[1:]}_L{layer}G{i}": part.T if part.ndim == 2 else part for i, part in enumerate(w)})
        else:
            paper.update({f"{glyph}_{Head(layer, i)}": part.T if part.ndim == 2 else part for i, part in enumerate(w)})
    return paper


def _recognises(names: Iterable[str]) -> bool:
    return any(name == "embed.W_E" or name.startswith("blocks.") for name in names)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    settings = Config(as_described(config))
    weights, dtypes_of, taken = _prepared(newer_names(stored, settings), settings)
    inner = inner_norms(weights, settings)
    refuse_unsupported(settings, weights)
    found = features_of(settings, weights)
    weights = {n: w for n, w in weights.items() if not _of_no_head(n, w, found.counts)}
    check_biases(weights, found.counts)
    axes = _axes(found, weights)
    check_names(axes, weights, "the file")
    for weight in axes:
        check_values(weight, weights[weight])
    sizes = check_shapes(axes, weights, _given(settings, found), "the config")
    paper = to_paper(_with_groups(weights, found))
    notes = fold_inner_norms(paper, inner)
    described = transformer(
        found.counts, found.positions, groups=found.groups, norm=found.norm, gains=found.gain, mlps=found.mlps,
        gated=found.gated, parallel=settings.flag("parallel_attn_mlp", False) and found.mlps, causal=settings.causal,
        scale=_scaled(settings), unembed="W_U" in paper, qk_norm=found.qk_norm, softmax=settings.flag("softmax", True),
        bilinear=found.gated and settings.values.get("act_fn") == "identity",
    )  # fmt: skip
    dtypes = list(dict.fromkeys(dtypes_of[n] for n in axes))
    notes += [*_notes(settings, described, dtypes, sizes), *_move_gated_biases(paper, described)]
    notes += taken
    if described.causal:  # a bidirectional model has the buffer too, unused
        notes += mask_note(
            {n: w for n, w in stored.weights.items() if n.endswith(BUFFERS)}, settings.windows(len(found.counts))
        )
    scales = _scales(settings, described, sizes)
    rules = replace(settings.settings, windows=settings.windows(len(found.counts)))
    return assemble(paper, described, scales, rules, name=name, notes=notes, dtypes=dtypes)


def _prepared(stored: Stored, config: Config) -> tuple[dict[str, Array], dict[str, str], list[str]]:
    """Weights without buffers, with a tied unembedding, their types, and notes on both."""
    dropped = [n for n in stored.weights if n.endswith(BUFFERS)]
    unread = [n for n in ("pos_embed.W_pos",) if n in stored.weights and config.values.get(_POSITION) == "alibi"]
    weights = {n: w for n, w in stored.weights.items() if n not in dropped + unread}
    dtypes, notes = dict(stored.dtypes), list[str]()
    if config.flag("tie_word_embeddings", False) and "unembed.W_U" not in weights and "embed.W_E" in weights:
        weights["unembed.W_U"], dtypes["unembed.W_U"] = weights["embed.W_E"].T, dtypes["embed.W_E"]
        notes.append("the unembedding is the embedding (tied)")
    notes += dropped_note(dropped) + [f"{n} is in the file, but unused in a model with ALiBi" for n in unread]
    return weights, dtypes, notes


def _of_no_head(name: str, weight: Array, counts: tuple[int, ...]) -> bool:
    """Whether it is the empty weight of a layer that has no heads."""
    found = re.fullmatch(r"blocks\.(\d+)\.attn\.(W_[QKVO]|_W_[KV]|b_[QKV]|_b_[KV])", name)
    return found is not None and weight.size == 0 and counts[int(found[1])] == 0


def _d_head(layer: int) -> str:
    return f"d_head of layer {layer}"


# ------------------------------------------------------------------------------------------ required weights
def _axes(found: Features, weights: Mapping[str, Array]) -> dict[str, Axes]:
    """The required weights, and the optional ones present, with the names of their axes."""
    axes: dict[str, Axes] = {"embed.W_E": ("d_vocab", "d_model")}
    if found.positions in ("standard", "shortformer"):
        axes["pos_embed.W_pos"] = ("n_ctx", "d_model")
    for layer, count in enumerate(found.counts):
        block = f"blocks.{layer}."
        if count:
            axes |= _attention_axes(f"{block}attn.", layer, found, weights)
        if f"{block}attn.b_O" in weights:
            axes[f"{block}attn.b_O"] = ("d_model",)
        if found.mlps:
            axes |= _mlp_axes(f"{block}mlp.", layer, found.gated, weights)
        if found.gain:
            axes |= _norm_axes([f"{block}ln1", *([f"{block}ln2"] if found.mlps else [])], found, weights)
    if "unembed.W_U" in weights or "unembed.b_U" in weights:
        axes["unembed.W_U"] = ("d_model", "d_vocab_out")
        axes |= _norm_axes(["ln_final"], found, weights) if found.gain else {}
    if "unembed.b_U" in weights:
        axes["unembed.b_U"] = ("d_vocab_out",)
    return axes


def _attention_axes(at: str, layer: int, found: Features, weights: Mapping[str, Array]) -> dict[str, Axes]:
    heads, d_head = f"n_heads of layer {layer}", _d_head(layer)
    axes: dict[str, Axes] = {f"{at}W_Q": (heads, "d_model", d_head), f"{at}W_O": (heads, d_head, "d_model")}
    if f"{at}b_Q" in weights:
        axes[f"{at}b_Q"] = (heads, d_head)
    axes |= {f"{at}{side}_norm.w": (d_head,) for side in "qk"} if found.qk_norm else {}
    for kind in "KV":
        under = "_" if f"{at}_W_{kind}" in weights else ""  # grouped, or per head, as in some files
        stored = weights.get(f"{at}{under}W_{kind}")
        few = found.groups and (under or (stored is not None and len(stored) == found.groups[layer]))
        owners = f"n_key_value_heads of layer {layer}" if few else heads
        axes[f"{at}{under}W_{kind}"] = (owners, "d_model", d_head)
        if f"{at}{under}b_{kind}" in weights:
            axes[f"{at}{under}b_{kind}"] = (owners, d_head)
    return axes


def _mlp_axes(at: str, layer: int, gated: bool, weights: Mapping[str, Array]) -> dict[str, Axes]:
    size = f"d_mlp of layer {layer}"
    axes: dict[str, Axes] = {f"{at}W_in": ("d_model", size), f"{at}W_out": (size, "d_model")}
    axes |= {f"{at}W_gate": ("d_model", size)} if gated else {}
    biases: dict[str, Axes] = {f"{at}b_in": (size,), f"{at}b_out": ("d_model",)}
    return axes | {name: names for name, names in biases.items() if name in weights}


def _norm_axes(names: list[str], found: Features, weights: Mapping[str, Array]) -> dict[str, Axes]:
    """The gain of each norm, and the bias of an LN if present."""
    biases = [f"{n}.b" for n in names if found.norm == "LN" and f"{n}.b" in weights]
    return dict.fromkeys((*(f"{n}.w" for n in names), *biases), ("d_model",))


def _given(config: Config, found: Features) -> dict[str, int]:
    """Sizes by their config keys; head counts are the config's or those of W_Q."""
    words = ("d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx", "d_mlp")
    given = {word: size for word in words if (size := config.size(word, 1)) is not None}
    if config.head_counts(len(found.counts)) is not None:
        given |= {f"n_heads of layer {layer}": count for layer, count in enumerate(found.counts)}
    groups = found.groups or ()
    return given | {f"n_key_value_heads of layer {layer}": count for layer, count in enumerate(groups)}


# --------------------------------------------------------------------------------------- the model
def _with_groups(weights: Mapping[str, Array], found: Features) -> dict[str, Array]:
    """Keys and values of groups under the names ``_W_K``, ..., those of separate heads under ``W_K``, ...

    Raises ValueError if the keys or values of a group, stored for each of its heads, differ.
    """
    changed: dict[str, Array] = {}
    for name, w in weights.items():
        owned = re.fullmatch(r"(blocks\.(\d+)\.attn\.)_?([Wb]_[KV])", name)
        if found.groups is None or owned is None:
            changed[name] = w
            continue
        at, layer, glyph = owned[1], int(owned[2]), owned[3]
        count, heads = found.groups[layer], found.counts[layer]
        if len(w) != count:
            each = heads // count
            if not np.array_equal(w, np.repeat(w[::each], each, axis=0)):
                raise ValueError(
                    f"n_key_value_heads is {count}, but {name} differs within groups of {each} heads; "
                    "remove the key if every head has its own keys and values"
                )
            w = w[::each]
        changed[f"{at}_{glyph}" if count != heads else f"{at}{glyph}"] = w
    return changed


def _move_gated_biases(paper: dict[str, Array], architecture: Architecture) -> list[str]:
    """TransformerLens adds b_in of a gated MLP after the product with the gate: this is ``W_out b_in`` in b_out."""
    moved = []
    for layer in sorted(architecture.mlps) if architecture.gated else ():
        b_in = paper.pop(f"b_in_L{layer}", np.zeros(0))
        if b_in.any():
            w_out = paper[f"W_out_L{layer}"].astype(np.float64)
            paper[f"b_out_L{layer}"] = paper.get(f"b_out_L{layer}", 0) + w_out @ b_in.astype(np.float64)
            moved.append(f"L{layer}")
    where = ", ".join(moved)
    return [f"b_in of {where}, added after the gate, is read as a part of b_out (W_out b_in)"] if moved else []


def _scaled(config: Config) -> bool:
    return config.flag("use_attn_scale", True) or config.flag("scale_attn_by_inverse_layer_idx", False)


def _scales(config: Config, architecture: Architecture, sizes: Mapping[str, int]) -> dict[str, float]:
    """One over the divisor of the scores: sqrt(d_head) or attn_scale, times the layer's number if configured."""
    by_layer, scales = config.flag("scale_attn_by_inverse_layer_idx", False), {}
    for head in architecture.all_heads if architecture.scale else ():
        divisor = config.divisor or math.sqrt(sizes[_d_head(head.layer)])
        divisor = divisor if config.flag("use_attn_scale", True) else 1.0
        scales[str(head)] = 1 / (divisor * (head.layer + 1 if by_layer else 1))
    return scales


def _notes(config: Config, architecture: Architecture, dtypes: list[str], sizes: Mapping[str, int]) -> list[str]:
    notes, values = [], config.values
    if values.get("positional_embedding_type") is None:
        notes.append("the config does not give a kind of position, so there is none")
    if values.get("attention_dir") is None:
        notes.append("the config does not give attention_dir, so attention is causal")
    if architecture.norm and values.get("eps") is None:
        notes.append(f"the config does not give eps of the norms, so it is {config.settings.eps:g}")
    notes += half_precision_note(dtypes)
    if not architecture.unembed:
        notes.append("there is no unembedding, so there are no logits: the residual stream is expanded")
    d_heads = [sizes[_d_head(layer)] for layer, count in enumerate(architecture.heads) if count]
    if not config.flag("use_attn_scale", True):
        notes.append("use_attn_scale is false")
    elif config.divisor is not None and any(config.divisor != math.sqrt(n) for n in d_heads):
        notes.append(f"scores are divided by attn_scale = {config.divisor:g}")
    if config.flag("use_local_attn", False) and not architecture.causal:
        notes.append("attention is bidirectional, so windows (use_local_attn), part of the causal mask, have no effect")
    if config.flag("scale_attn_by_inverse_layer_idx", False):
        notes.append("scores of layer l (counted from 0) are also divided by l + 1")
    return notes


TRANSFORMERLENS = Layout("TransformerLens", _recognises, _read)
