"""Checks that the config and the weights of TransformerLens's layout have the same features; raises if not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from symcircuits.arrays.rings import Array
from symcircuits.core.text import amount
from symcircuits.loaders.config import Config

__all__ = ["Features", "check_biases", "features_of"]

# A file may have none of these kinds; if it has one, every layer has it.
_ATTENTION_BIASES = ("attn.b_Q", "attn.b_K", "attn.b_V", "attn._b_K", "attn._b_V")
_LAYER_BIASES = ("attn.b_O", "ln1.b", "ln2.b", "mlp.b_in", "mlp.b_out", "mlp.W_gate")


@dataclass(frozen=True, slots=True)
class Features:
    """Features on which the config and the weights agree: heads of each layer, key/value heads if grouped, ..."""

    counts: tuple[int, ...]
    groups: tuple[int, ...] | None
    norm: str | None
    gain: bool
    mlps: bool
    gated: bool
    positions: str | None
    qk_norm: bool = False


def features_of(config: Config, weights: Mapping[str, Array]) -> Features:
    """The features; raises ValueError, naming one, if the config contradicts the weights."""
    counts = _head_counts(config, weights)
    norm, gain = _norm(config, weights)
    mlps = _mlps(config, weights)
    _check_positions(config, weights)
    gated = mlps and _gated(config, weights)
    if mlps and config.values.get("act_fn") is None:
        raise ValueError("act_fn, the activation of the MLPs, is not in the config, and there are MLPs")
    if config.flag("parallel_attn_mlp", False) and not mlps:
        raise ValueError("parallel_attn_mlp is true, but there are no MLPs")
    return Features(
        counts,
        _groups(config, weights, counts),
        norm=norm,
        gain=gain,
        mlps=mlps,
        gated=gated,
        positions=config.positions,
        qk_norm=_qk_norm(config, weights),
    )


def _qk_norm(config: Config, weights: Mapping[str, Array]) -> bool:
    """Whether heads apply a norm to their queries and keys."""
    there, said = _first(r"\.attn\.[qk]_norm\.", weights), config.flag("use_qk_norm", False)
    if there and not said:
        shown = config.shown("use_qk_norm")
        raise ValueError(f"use_qk_norm is {shown}, but there is a {there}; set it to true, or remove these weights")
    if said and not there and any(n.startswith("blocks.") for n in weights):
        raise ValueError("use_qk_norm is true, but there is no weight such as blocks.0.attn.q_norm.w")
    return said


def _head_counts(config: Config, weights: Mapping[str, Array]) -> tuple[int, ...]:
    """Heads of each layer: from the config if given there, else from the shapes."""
    layers = {int(found[1]) for n in weights if (found := re.match(r"blocks\.(\d+)\.", n))}
    n_layers = config.size("n_layers", 0)
    if n_layers is None:
        n_layers = len(layers)
    without = isinstance(config.values.get("n_heads"), (list, tuple)) or config.size("n_heads", 0) == 0
    if (layers and max(layers) >= n_layers) or (n_layers > len(layers) and not without):
        seen = f"weights of {amount(len(layers), 'layer')}" + (f", up to blocks.{max(layers)}" if layers else "")
        raise ValueError(f"n_layers in the config is {config.shown('n_layers')}, but there are {seen}")
    said = config.head_counts(n_layers)
    if said is not None:
        return said
    queries = [weights.get(f"blocks.{layer}.attn.W_Q") for layer in range(n_layers)]
    return tuple(1 if w is None or w.ndim != 3 else len(w) for w in queries)  # 1: the weight is reported later


def _first(pattern: str, names: Iterable[str]) -> str:
    return next((name for name in names if re.search(pattern, name)), "")


def _norm(config: Config, weights: Mapping[str, Array]) -> tuple[str | None, bool]:
    kind, gain = config.norm
    seen, there = config.shown("normalization_type"), _first(r"^(blocks\.\d+\.ln[12]|ln_final)\.", weights)
    if there and not gain:
        means = "no norm" if kind is None else "a norm without gain (folded into the weights)"
        raise ValueError(
            f"normalization_type is {seen}, which means {means}, but there is a {there}; "
            'set it to "LN" or "RMS", or remove the weights of the norms'
        )
    if gain and not there and any(n.startswith(("blocks.", "unembed.")) for n in weights):
        raise ValueError(
            f"normalization_type is {seen}, but there are no weights of norms such as ln_final.w; "
            f'a norm whose gain is folded into the weights is "{kind}Pre"'
        )
    if kind == "LN" and config.flag("uses_rms_norm", False):
        raise ValueError(f"normalization_type is {seen}, but uses_rms_norm is true; a norm is one of the two")
    return kind, gain


def _mlps(config: Config, weights: Mapping[str, Array]) -> bool:
    """Whether there are MLPs; by the weights, if the config does not say."""
    there, said = _first(r"\.mlp\.", weights), config.values.get("attn_only")
    if config.flag("attn_only", False) and there:
        raise ValueError(f"attn_only is true, but there is a {there}; set it to false, or remove the MLPs")
    if said is False and not there and any(n.startswith("blocks.") for n in weights):
        raise ValueError("attn_only is false, but there are no weights of MLPs such as blocks.0.mlp.W_in")
    return bool(there)


def _gated(config: Config, weights: Mapping[str, Array]) -> bool:
    there, said = _first(r"\.mlp\.W_gate$", weights), config.shown("gated_mlp")
    gated = config.flag("gated_mlp", False)
    if there and not gated:
        raise ValueError(f"gated_mlp is {said}, but there is a {there}; set it to true, or remove the gates")
    if gated and not there:
        raise ValueError(f"gated_mlp is {said}, but there is no weight of a gate such as blocks.0.mlp.W_gate")
    return gated


def _groups(config: Config, weights: Mapping[str, Array], counts: tuple[int, ...]) -> tuple[int, ...] | None:
    """Key/value heads of each layer, if the config gives a number and it is smaller than that of the heads."""
    count, there = config.size("n_key_value_heads", 1), _first(r"\._[Wb]_[KV]$", weights)
    if count is None:
        if there:
            said = config.shown("n_key_value_heads")
            raise ValueError(f"n_key_value_heads is {said}, but there is a {there}, which belongs to grouped heads")
        return None
    for layer, heads in enumerate(counts):
        if heads % count:
            raise ValueError(f"n_key_value_heads is {count}, which does not divide the {heads} heads of layer {layer}")
    return tuple(min(count, heads) for heads in counts)


def _check_positions(config: Config, weights: Mapping[str, Array]) -> None:
    said, there = config.shown("positional_embedding_type"), "pos_embed.W_pos" in weights
    table = config.positions in ("standard", "shortformer")
    if there and not table:
        means = "no position" if config.positions is None else "no table of positions"
        raise ValueError(
            f"positional_embedding_type is {said}, which means {means}, but there is a pos_embed.W_pos; "
            'set it to "standard" or "shortformer", or remove the weight'
        )
    if table and not there:
        raise ValueError(f"positional_embedding_type is {said}, but there is no pos_embed.W_pos")


def check_biases(weights: Mapping[str, Array], counts: tuple[int, ...]) -> None:
    """Raise ValueError if a kind of bias is in some of the layers that can have it, and not in others."""
    for kind in (*_ATTENTION_BIASES, *_LAYER_BIASES):
        names = [f"blocks.{layer}.{kind}" for layer, n in enumerate(counts) if n or kind in _LAYER_BIASES]
        missing = [name for name in names if name not in weights]
        if missing and len(missing) < len(names) and not (kind == "attn.b_O" and _of_empty_layers(missing, counts)):
            what = kind.rpartition(".")[2] if kind[:2] != "ln" else kind
            raise ValueError(
                f"missing in the file: {', '.join(missing)}; the other layers have a {what}, and a layer without one "
                "would be another model (put zeros there if that is meant)"
            )


def _of_empty_layers(names: list[str], counts: tuple[int, ...]) -> bool:
    return all(not counts[int(name.split(".")[1])] for name in names)
