"""A live model of TransformerLens with the activations of a run, as its own tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.namespaces import Namespace, kind_of
from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL
from symcircuits.core.words import scalar_argument
from symcircuits.loaders.cache_checks import LOW, check_computed
from symcircuits.loaders.layout import Unsupported
from symcircuits.loaders.pickled import as_array
from symcircuits.loaders.transformerlens import BUFFERS, to_paper
from symcircuits.loaders.wrapped import older_names, runs_in_float32
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
)  # for MLPs, whose output is read


def read_cached(live: Any, model: Model, cache: Any, tokens: Any) -> Tensors:
    """The result of :func:`~symcircuits.loaders.from_cache`; ``model`` is the live one, loaded."""
    arch = model.architecture
    if arch.qk_norm:
        what = "normed queries and keys"
        raise Unsupported(f"the cache of a model with {what} is not read: give their D to sc.Tensors", (what,))
    weights = _weights(live, model)
    ring = kind_of("W_E", weights["W_E"])
    recorded = _Recorded(cache, tuple(np.shape(tokens)))
    hooks, activations = _activations(recorded, model)
    arrays = weights | {name: _of_norm(name, array, ring) for name, array in activations.items()}
    arrays |= {f"scale_{label}": scale for label, scale in model.score_scale.items()}
    arrays |= {scalar_argument(symbol): number for symbol, number in model.multipliers.items()}
    arrays |= _rotations(model, recorded.rows[-1], ring)
    arrays |= _positions(recorded, model)
    arrays |= {name: ring.asarray(seen) for name, seen in _masks(recorded, model).items()}
    try:
        found = Tensors(arch, arrays, tokens)
    except ValueError as fault:
        name = str(fault).partition(" ")[0]
        if name not in hooks:
            raise
        raise ValueError(f"{fault} ({name} is made from {hooks[name]} of the cache)") from None
    check_computed(model, found, recorded.numbers, "float32" if runs_in_float32(live) else "")
    return found


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The contents of a cache, with the batch axes of the tokens, whose shape is ``rows``."""

    cache: Any
    rows: tuple[int, ...]

    def get(self, name: str, axes: int, needed: bool = True) -> Any:
        """The tensor of that name with ``axes`` axes of its own; for one row the batch axis is that of the tokens."""
        try:
            whole = self.cache[name]
        except KeyError:
            if not needed:
                return None
            raise ValueError(
                f"the cache lacks {name}: run the model with run_with_cache, names_filter left out"
            ) from None
        except (TypeError, IndexError):
            raise TypeError(
                f"a cache has arrays by name, such as {name}; this is a {type(self.cache).__name__}"
            ) from None
        shape, more = tuple(getattr(whole, "shape", ())), len(self.rows) - 1 + axes
        if len(shape) == more + 1 and shape[0] == 1:
            return whole[0]
        return whole[None] if len(shape) == more - 1 and self.rows[:-1] == (1,) else whole

    def numbers(self, name: str, axes: int, needed: bool = False) -> Array | None:
        """The same in NumPy, in float64, cut off from gradients."""
        found = self.get(name, axes, needed)
        return None if found is None else as_array(found)[0].astype(np.float64)


def _weights(live: Any, model: Model) -> dict[str, Any]:
    """The weights of the model itself, in the paper's shapes, compared with those that were loaded."""
    found = _with_derivatives(live)
    if "embed.W_E" not in found:
        found = older_names(live, found, model.architecture)
    paper, weights = to_paper({n: w for n, w in found.items() if not n.endswith(BUFFERS)}), dict[str, Any]()
    for name in weight_axes(model.architecture):
        if name.startswith(_INSIDE):
            continue
        if name not in paper or not _same(as_array(paper[name])[0], model.weights[name]):
            raise ValueError(
                f"{name} of this model is not a tensor as it is stored (it was changed when it was read): give the "
                "tensors to sc.Tensors by name"
            )
        weights[name] = paper[name]
    return weights


def _same(tensor: Array, read: Array) -> bool:
    """Whether a weight is the one that was read; for Gemma's gains, 1 plus the stored number, rounded to its type."""
    return np.array_equal(tensor, read) or (
        tensor.shape == read.shape and np.array_equal(tensor, read.astype(tensor.dtype))
    )


def _with_derivatives(live: Any) -> dict[str, Any]:
    """The state dict with the parameters themselves: the state dict's own tensors have no gradients.

    A bridge has its parameters under other names, so they are matched by the addresses of their data.
    """
    found, named = dict(live.state_dict()), getattr(live, "named_parameters", None)
    parameters = dict(named()) if callable(named) else {}
    lie = {_place(p): p for p in parameters.values() if hasattr(p, "data_ptr")}
    return {n: parameters.get(n, lie.get(_place(w), w) if hasattr(w, "data_ptr") else w) for n, w in found.items()}


def _place(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), str(tensor.device)


def _activations(recorded: _Recorded, model: Model) -> tuple[dict[str, str], dict[str, Any]]:
    """The name in the cache of each array, and the arrays."""
    arch, hooks, found = model.architecture, dict[str, str](), dict[str, Any]()

    def take(names: Iterable[str], hook: str, axes: int, made: Callable[[Any, str], Any]) -> None:
        whole = recorded.get(hook, axes)
        for name in names:
            try:
                hooks[name], found[name] = hook, made(whole, name)
            except IndexError:
                shape = list(getattr(whole, "shape", []))
                raise ValueError(
                    f"{hook} of the cache has shape {shape}, which has no {name}: does it belong to this model?"
                ) from None

    def pattern(whole: Any, name: str) -> Any:
        return whole[..., int(name.rpartition("H")[2]), :, :]

    def output(whole: Any, name: str) -> Any:
        """Divided by its multiplier, which the recorded values include."""
        factor = model.multipliers.get(f"r[M{name.removeprefix('mlp_L')}]", 1.0)
        return whole if factor == 1 else whole / factor

    for layer in range(arch.n_layers):
        if arch.heads[layer]:
            take([f"A_{h}" for h in arch.layer_heads(layer)], f"blocks.{layer}.attn.hook_pattern", 3, pattern)
        if layer in arch.mlps:
            take([f"mlp_L{layer}"], f"blocks.{layer}.hook_mlp_out", 2, output)
        if arch.norm and arch.heads[layer]:
            take([f"D_L{layer}"], f"blocks.{layer}.ln1.hook_scale", 2, lambda whole, _: 1 / whole[..., 0])
    if arch.norm and arch.unembed:
        take([f"D_{FINAL}"], "ln_final.hook_scale", 2, lambda whole, _: 1 / whole[..., 0])
    return hooks, found


def _of_norm(name: str, array: Any, ring: Namespace) -> Any:
    """The ``D`` of a model in half precision, in its type: norms are computed in float32 there."""
    half = ring.xp.finfo(ring.dtype).bits == 16
    return ring.xp.astype(array, ring.dtype) if half and name[:2] == "D_" else array


def _rotations(model: Model, n: int, ring: Namespace) -> dict[str, Any]:
    """Rotations, which no cache has. Padding shifts all positions of a row equally, which no score depends on."""
    arch = model.architecture
    if arch.positions != "rotary":
        return {}
    widths = {f"R_{head}": len(model.weights[f"W_Q_{head}"]) for head in arch.all_heads}
    return {name: ring.asarray(rotations(n, width, model.settings.rotary)) for name, width in widths.items()}


def _positions(recorded: _Recorded, model: Model) -> dict[str, Any]:
    """``P``, if the cache says that it is not the first rows of the table, as with padding on the left."""
    table = model.weights.get("W_pos")
    used = None if table is None else recorded.numbers("hook_pos_embed", 2)
    if table is None or used is None or np.array_equal(used, np.broadcast_to(table[: used.shape[-2]], used.shape)):
        return {}
    return {"P": recorded.get("hook_pos_embed", 2)}


def _masks(recorded: _Recorded, model: Model) -> Mapping[str, npt.NDArray[np.bool_]]:
    """Which keys each query attended to, by the scores of the cache; else the model's mask, if the patterns fit it.

    A layer whose heads have different masks, or whose mask cannot be determined, gets none.
    """
    arch, settings, found = model.architecture, model.settings, dict[str, npt.NDArray[np.bool_]]()
    for layer in (layer for layer, heads in enumerate(arch.heads) if heads):
        at = f"blocks.{layer}.attn."
        patterns, scores = recorded.numbers(f"{at}hook_pattern", 3), recorded.numbers(f"{at}hook_attn_scores", 3)
        if patterns is None:
            continue
        if scores is not None and scores.shape == patterns.shape and not np.array_equal(scores, patterns):
            seen = scores > LOW
            if (seen == seen[..., :1, :, :]).all():
                seen = seen[..., 0, :, :]
                found[f"mask_L{layer}"] = seen[0] if (seen == seen[:1]).all() and seen.ndim > 2 else seen
            continue
        window = settings.windows[layer] if settings.windows else None
        allowed = mask(recorded.rows[-1], arch.causal, window)
        if allowed.shape == patterns.shape[-2:] and ((patterns != 0) == allowed).all():
            found[f"mask_L{layer}"] = allowed
    return found
