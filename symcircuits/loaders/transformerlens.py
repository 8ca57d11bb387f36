"""The layout of TransformerLens (versions 1 to 3, and its many descendants).

Names and shapes: ``embed.W_E [d_vocab, d_model]``, ``pos_embed.W_pos [n_ctx, d_model]``, ``blocks.0.attn.W_Q``,
``W_K``, ``W_V`` ``[n_heads, d_model, d_head]``, ``W_O [n_heads, d_head, d_model]``, ``b_Q``, ``b_K``, ``b_V``
``[n_heads, d_head]``, ``b_O [d_model]``, ``unembed.W_U [d_model, d_vocab_out]``, ``b_U [d_vocab_out]``. There rows
are vectors and weights multiply from the right; here they are in the paper's shapes: :func:`to_paper` is the one
place that converts. Source: HookedTransformerConfig and the components of TransformerLens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from symcircuits.architecture import Head, attention_only, possible_biases
from symcircuits.loaders.config import Config, refuse_unsupported
from symcircuits.loaders.files import Stored
from symcircuits.loaders.layout import Layout
from symcircuits.model import Model
from symcircuits.model.checks import Axes, check_names, check_shapes, check_values
from symcircuits.rings import Array

__all__ = ["TRANSFORMERLENS", "to_paper"]

_BUFFERS = (".mask", ".IGNORE")
_OPTIONAL = ("unembed.W_U", "unembed.b_U", "pos_embed.W_pos")


def to_paper(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights under TransformerLens's names and in its shapes, as argument names in the paper's shapes.

    Matrices are transposed, heads taken apart: ``W_OV`` here, ``W_O W_V``, is ``(W_V @ W_O)^T`` there, and
    ``W_QK``, ``W_Q^T W_K``, is ``W_Q @ W_K^T`` there. The position table and the biases stay as they are.

    >>> import numpy as np
    >>> there = {"embed.W_E": np.ones((11, 16)), "blocks.0.attn.W_O": np.ones((3, 4, 16))}
    >>> {name: w.shape for name, w in to_paper(there).items()}
    {'W_E': (16, 11), 'W_O_L0H0': (16, 4), 'W_O_L0H1': (16, 4), 'W_O_L0H2': (16, 4)}
    """
    paper: dict[str, Array] = {}
    for name, w in weights.items():
        glyph = name.rpartition(".")[2]
        if not name.startswith("blocks."):
            paper[glyph] = w.T if glyph in ("W_E", "W_U") else w
            continue
        layer = int(name.split(".")[1])
        if glyph == "b_O":
            paper[f"b_O_L{layer}"] = w
        else:
            paper.update({f"{glyph}_{Head(layer, i)}": part.T for i, part in enumerate(w)})
    return paper


def _recognises(names: Iterable[str]) -> bool:
    return any(name == "embed.W_E" or name.startswith("blocks.") for name in names)


def _read(stored: Stored, config: Mapping[str, Any], name: str) -> Model:
    dropped = [n for n in stored.weights if n.endswith(_BUFFERS)]
    weights = {n: w for n, w in stored.weights.items() if n not in dropped}
    settings = Config(config)
    refuse_unsupported(settings, weights)
    counts = _head_counts(settings, weights)
    weights = {n: w for n, w in weights.items() if not _of_no_head(n, w, counts)}
    check_positions(settings, weights)
    check_biases(weights, counts)
    axes = _axes(counts, weights, settings.positions is not None)
    check_names(axes, weights, "the file")
    for weight in axes:
        check_values(weight, weights[weight])
    sizes = check_shapes(axes, weights, _given(settings, counts), "the config")
    paper = to_paper(weights)
    possible = possible_biases(attention_only(counts, unembed="W_U" in paper))
    zero = [b for b in possible if _argument(b) in paper and not paper[_argument(b)].any()]
    for bias in zero:
        del paper[_argument(bias)]
    architecture = attention_only(
        counts,
        settings.positions,
        [b for b in possible if _argument(b) in paper],
        scale=settings.flag("use_attn_scale", True),
        causal=settings.causal,
        unembed="W_U" in paper,
    )
    scales = {}
    for head in architecture.all_heads if architecture.scale else ():
        scales[str(head)] = 1 / (settings.divisor or math.sqrt(sizes[_d_head(head.layer)]))
    d_heads = [sizes[_d_head(layer)] for layer, count in enumerate(counts) if count]
    dtypes = list(dict.fromkeys(stored.dtypes[n] for n in axes))
    notes = [*_notes(architecture.unembed, settings, dtypes, d_heads), *_zero_notes(zero, counts)]
    notes += _absent_notes(weights, counts)
    if dropped:
        notes.append(f"buffers that are no weights were dropped: {', '.join(dropped)}")
    return Model(architecture, paper, scales, name, tuple(notes), ", ".join(dtypes))


def _argument(bias: str) -> str:
    """``b_V[L0H1]`` as ``b_V_L0H1``."""
    return bias.replace("[", "_").removesuffix("]")


def _head_counts(config: Config, weights: Mapping[str, Array]) -> tuple[int, ...]:
    """Heads of each layer: as the config says, where it does, else as the shapes say."""
    layers = {int(found[1]) for n in weights if (found := re.match(r"blocks\.(\d+)\.", n))}
    n_layers = config.size("n_layers", 0)
    if n_layers is None:
        n_layers = len(layers)
    without = isinstance(config.values.get("n_heads"), (list, tuple)) or config.size("n_heads", 0) == 0
    if (layers and max(layers) >= n_layers) or (n_layers > len(layers) and not without):
        seen = f"weights of {len(layers)} layers" + (f", up to blocks.{max(layers)}" if layers else "")
        raise ValueError(f"n_layers in the config is {config.shown('n_layers')}, but there are {seen}")
    said = config.head_counts(n_layers)
    if said is not None:
        return said
    queries = [weights.get(f"blocks.{layer}.attn.W_Q") for layer in range(n_layers)]
    return tuple(1 if w is None or w.ndim != 3 else len(w) for w in queries)  # 1: it is missed or refused later


def _of_no_head(name: str, weight: Array, counts: tuple[int, ...]) -> bool:
    """Whether it is the empty weight of a layer that has no heads."""
    found = re.fullmatch(r"blocks\.(\d+)\.attn\.(W_[QKVO]|b_[QKV])", name)
    return found is not None and weight.size == 0 and counts[int(found[1])] == 0


def check_positions(config: Config, weights: Mapping[str, Array]) -> None:
    """The config and the weights agree on whether there is a position table, or ValueError."""
    said, there = config.shown("positional_embedding_type"), "pos_embed.W_pos" in weights
    if there and config.positions is None:
        raise ValueError(
            f"positional_embedding_type is {said}, which means no position, but there is a pos_embed.W_pos; "
            'set it to "standard" or "shortformer", or remove the weight'
        )
    if config.positions is not None and not there:
        raise ValueError(f"positional_embedding_type is {said}, but there is no pos_embed.W_pos")


def check_biases(weights: Mapping[str, Array], counts: tuple[int, ...]) -> None:
    """A kind of bias is in every layer that can have it or in none; else some are missing: ValueError."""
    for kind in ("b_Q", "b_K", "b_V", "b_O"):
        names = [f"blocks.{layer}.attn.{kind}" for layer, n in enumerate(counts) if n or kind == "b_O"]
        missing = [name for name in names if name not in weights]
        if missing and len(missing) < len(names) and not (kind == "b_O" and _of_empty_layers(missing, counts)):
            raise ValueError(
                f"missing in the file: {', '.join(missing)}; the other layers have a {kind}, and a layer without one "
                "would be another model (put zeros there if that is meant)"
            )


def _of_empty_layers(names: list[str], counts: tuple[int, ...]) -> bool:
    return all(not counts[int(name.split(".")[1])] for name in names)


def _d_head(layer: int) -> str:
    return f"d_head of layer {layer}"


def _axes(counts: tuple[int, ...], weights: Mapping[str, Array], positions: bool) -> dict[str, Axes]:
    """The weights that must be there, and those that may and are, with the names of their axes."""
    axes: dict[str, Axes] = {"embed.W_E": ("d_vocab", "d_model")}
    if positions:
        axes["pos_embed.W_pos"] = ("n_ctx", "d_model")
    for layer, count in enumerate(counts):
        at, heads, d_head = f"blocks.{layer}.attn.", f"n_heads of layer {layer}", _d_head(layer)
        if count:
            axes |= {f"{at}{w}": (heads, "d_model", d_head) for w in ("W_Q", "W_K", "W_V")}
            axes[f"{at}W_O"] = (heads, d_head, "d_model")
            axes |= {f"{at}{b}": (heads, d_head) for b in ("b_Q", "b_K", "b_V") if f"{at}{b}" in weights}
        if f"{at}b_O" in weights:
            axes[f"{at}b_O"] = ("d_model",)
    if "unembed.W_U" in weights or "unembed.b_U" in weights:
        axes["unembed.W_U"] = ("d_model", "d_vocab_out")
    if "unembed.b_U" in weights:
        axes["unembed.b_U"] = ("d_vocab_out",)
    return axes


def _given(config: Config, counts: tuple[int, ...]) -> dict[str, int]:
    """Sizes by the word of the config; head counts are the config's or those of W_Q."""
    words = ("d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx")
    given = {word: size for word in words if (size := config.size(word, 1)) is not None}
    if config.head_counts(len(counts)) is not None:
        given |= {f"n_heads of layer {layer}": count for layer, count in enumerate(counts)}
    return given


def _notes(unembed: bool, config: Config, dtypes: list[str], d_heads: list[int]) -> list[str]:
    notes = []
    if config.values.get("positional_embedding_type") is None:
        notes.append("the config names no kind of position, so there is none")
    if config.values.get("attention_dir") is None:
        notes.append("the config does not say attention_dir, so attention is causal")
    half = [t for t in dtypes if t in ("float16", "bfloat16")]
    if half:
        notes.append(f"weights stored as {' and '.join(half)} were read exactly and are computed with in float64")
    if not unembed:
        notes.append("there is no unembedding, so there are no logits: the residual stream is what is expanded")
    if not config.flag("use_attn_scale", True):
        notes.append("use_attn_scale is false")
    elif config.divisor is not None and any(config.divisor != math.sqrt(n) for n in d_heads):
        notes.append(f"scores are divided by attn_scale = {config.divisor:g}")
    return notes


def _absent_notes(weights: Mapping[str, Array], counts: tuple[int, ...]) -> list[str]:
    """Which kinds of bias the file has not, where it has others."""
    at = [f"blocks.{layer}.attn." for layer, n in enumerate(counts) if n]
    there = {kind: any(f"{a}{kind}" in weights for a in at) for kind in ("b_Q", "b_K", "b_V", "b_O") if at}
    there |= {"b_U": "unembed.b_U" in weights} if "unembed.W_U" in weights else {}
    absent = [kind for kind, found in there.items() if not found]
    return [f"the file has no {', '.join(absent)}"] if absent and len(absent) < len(there) else []


def _zero_notes(zero: list[str], counts: tuple[int, ...]) -> list[str]:
    """One sentence on biases that are all zero, kinds together: "b_Q, b_K of all heads are zero ..."."""
    possible = possible_biases(attention_only(counts))
    groups: dict[str, list[str]] = {}
    for kind in dict.fromkeys(name.partition("[")[0] for name in zero):
        names = [n for n in zero if n.partition("[")[0] == kind]
        owners = [n.partition("[")[2].removesuffix("]") for n in names]
        every = len(names) == sum(n.partition("[")[0] == kind for n in possible)
        whose = {"b_U": "", "b_O": " of all layers" if every else f" of {', '.join(owners)}"}
        where = whose.get(kind, " of all heads" if every else f" of {', '.join(owners)}")
        groups.setdefault(where, []).append(kind)
    if not zero:
        return []
    verb = "is zero and is no source" if len(zero) == 1 else "are zero and are no sources"
    return [", ".join(", ".join(kinds) + where for where, kinds in groups.items()) + f" {verb}"]


TRANSFORMERLENS = Layout("TransformerLens", _recognises, _read)
