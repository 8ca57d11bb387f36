"""A live model of TransformerLens with the activations of its run, as the tensors that they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from symcircuits.arrays.namespaces import Namespace, kind_of
from symcircuits.core.architecture import FINAL
from symcircuits.loaders.layout import Unsupported
from symcircuits.loaders.pickled import as_array
from symcircuits.loaders.transformerlens import BUFFERS, to_paper
from symcircuits.model import Model, Tensors, weight_axes
from symcircuits.model.attending import mask, rotations

__all__ = ["read_cached"]

_INSIDE = (
    "W_in_",
    "W_gate_",
    "W_out_",
    "b_in_",
    "b_gate_",
    "b_out_",
    "gain_M",
    "b_N_M",
)  # of MLPs, whose output is read


def read_cached(live: Any, model: Model, cache: Any, tokens: Any) -> Tensors:
    """What :func:`~symcircuits.loaders.from_cache` gives; ``model`` is the live one, loaded."""
    arch = model.architecture
    if arch.qk_norm:
        what = "normed queries and keys"
        raise Unsupported(f"the cache of a model with {what} is not read: give their D to sc.Tensors", (what,))
    weights = _weights(live, model)
    ring = kind_of("W_E", weights["W_E"])
    n = int(np.shape(tokens)[-1])
    hooks, activations = _activations(cache, model)
    arrays = weights | activations
    arrays |= {f"scale_{label}": scale for label, scale in model.score_scale.items()}
    arrays |= _constants(model, n, ring)
    try:
        return Tensors(arch, arrays, tokens)
    except ValueError as fault:
        name = str(fault).partition(" ")[0]
        if name not in hooks:
            raise
        raise ValueError(f"{fault} ({name} is made of {hooks[name]} of the cache)") from None


def _weights(live: Any, model: Model) -> dict[str, Any]:
    """The weights of the model itself, in the paper's shapes; held to those that were loaded."""
    found = dict(live.state_dict())
    if callable(getattr(live, "named_parameters", None)):
        found |= dict(live.named_parameters())  # those of state_dict have no derivatives
    if "embed.W_E" not in found:
        raise ValueError(
            "a cache is read with the names of TransformerLens 1 to 3 (embed.W_E, blocks.0.attn.W_Q); this model has "
            "others: give its tensors to sc.Tensors by their names there"
        )
    paper, weights = to_paper({n: w for n, w in found.items() if not n.endswith(BUFFERS)}), dict[str, Any]()
    for name in weight_axes(model.architecture):
        if name.startswith(_INSIDE):
            continue
        if name not in paper or not np.array_equal(as_array(paper[name])[0], model.weights[name]):
            raise ValueError(
                f"{name} of this model is not a tensor as it is stored (it was changed when it was read): give the "
                "tensors to sc.Tensors by name"
            )
        weights[name] = paper[name]
    return weights


def _activations(cache: Any, model: Model) -> tuple[dict[str, str], dict[str, Any]]:
    """The name in the cache of each array, and the arrays."""
    arch, hooks, found = model.architecture, dict[str, str](), dict[str, Any]()

    def take(names: Iterable[str], hook: str, made: Callable[[Any, str], Any]) -> None:
        whole = _cached(cache, hook)
        for name in names:
            try:
                hooks[name], found[name] = hook, made(whole, name)
            except IndexError:
                shape = list(getattr(whole, "shape", []))
                raise ValueError(
                    f"{hook} of the cache has shape {shape}, which has no {name}: is it of this model?"
                ) from None

    def pattern(whole: Any, name: str) -> Any:
        return whole[..., int(name.rpartition("H")[2]), :, :]

    for layer in range(arch.n_layers):
        if arch.heads[layer]:
            take([f"A_{h}" for h in arch.layer_heads(layer)], f"blocks.{layer}.attn.hook_pattern", pattern)
        if layer in arch.mlps:
            take([f"mlp_L{layer}"], f"blocks.{layer}.hook_mlp_out", lambda whole, _: whole)
        if arch.norm and arch.heads[layer]:
            take([f"D_L{layer}"], f"blocks.{layer}.ln1.hook_scale", lambda whole, _: 1 / whole[..., 0])
    if arch.norm and arch.unembed:
        take([f"D_{FINAL}"], "ln_final.hook_scale", lambda whole, _: 1 / whole[..., 0])
    return hooks, found


def _cached(cache: Any, name: str) -> Any:
    try:
        return cache[name]
    except KeyError:
        raise ValueError(f"the cache lacks {name}: run the model with run_with_cache, names_filter left out") from None
    except (TypeError, IndexError):
        raise TypeError(f"a cache has arrays by name, such as {name}; this is a {type(cache).__name__}") from None


def _constants(model: Model, n: int, ring: Namespace) -> dict[str, Any]:
    """What positions are, which no cache has: masks, and rotations."""
    arch, settings, found = model.architecture, model.settings, dict[str, Any]()
    for layer in range(arch.n_layers):
        window = settings.windows[layer] if settings.windows else None
        found[f"mask_L{layer}"] = ring.asarray(mask(n, arch.causal, window))
    if arch.positions == "rotary":
        for head in arch.all_heads:
            width = model.weights[f"W_Q_{head}"].shape[0]
            found[f"R_{head}"] = ring.asarray(rotations(n, width, settings.rotary))
    return found
