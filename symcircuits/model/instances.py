"""Models made rather than loaded: random ones, and a model after a change of basis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypedDict, Unpack

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.text import brief, finite, keywords, need, whole
from symcircuits.model.forward import Settings
from symcircuits.model.transformer import Model
from symcircuits.model.weights import weight_axes

__all__ = ["change_basis", "random_model"]


class Sizes(TypedDict, total=False):
    """Sizes of a random model: input and output vocabulary (None: the same), stream, head,
    context, and hidden layer of MLPs (None: 2 d_model)."""

    d_vocab: int
    d_model: int
    d_head: int
    d_vocab_out: int | None
    n_context: int
    d_mlp: int | None


_SIZES: Final[Sizes] = {
    "d_vocab": 11, "d_model": 16, "d_head": 4, "d_vocab_out": None, "n_context": 32, "d_mlp": None,
}  # fmt: skip


def random_model(
    architecture: Architecture,
    *,
    seed: int = 0,
    weight_scale: float = 1.0,
    score_scale: float | None = None,
    settings: Settings | None = None,
    **sizes: Unpack[Sizes],
) -> Model:
    """A float64 model with independent normal weights, scaled so that streams, scores and logits are of order 1.

    Embeddings, positions and biases have variance 1, other weights 1 / (number of inputs), and W_O (W_out) also
    1 / (number of heads, or MLPs, of the model); gains are near 1; standard deviations are multiplied by
    ``weight_scale``. Attached readouts get two directions, sources one row for all tokens. ``settings``: eps and
    activation. ``score_scale`` is one number for all heads, 1 / sqrt(d_head) when None. ``sizes``: ``d_vocab`` (11),
    ``d_model`` (16), ``d_head`` (4), ``d_vocab_out`` (d_vocab), ``n_context`` (32), ``d_mlp`` (2 d_model). The same
    arguments give the same model, another ``seed`` a different one.
    Raises ValueError on a size below 1, and on scales that are not finite numbers, TypeError on an unknown size.
    exist.

    >>> from symcircuits.core.architecture import attention_only
    >>> random_model(attention_only((2, 0), biases=True), d_model=3, d_head=5)
    <Model random, seed 0: attention-only, heads 2,0, biases, d_model 3, d_vocab 11, float64>
    """
    need("random_model", architecture, Architecture)
    keywords("random_model", sizes, _SIZES)
    if settings is not None:
        need("random_model(settings=)", settings, Settings)
    found, weight_scale = _sizes({**_SIZES, **sizes}), finite("weight_scale", weight_scale)
    rng = np.random.default_rng(whole("seed", seed, 0))
    weights = {}
    for name, axes in weight_axes(architecture).items():
        shape = tuple(found[axis.partition(" ")[0]] for axis in axes)
        weights[name] = weight_scale * _deviation(architecture, name, found) * rng.standard_normal(shape)
    scale = 1 / math.sqrt(found["d_head"]) if score_scale is None else finite("score_scale", score_scale)
    scales = {str(head): scale for head in architecture.all_heads} if architecture.scale else {}
    weights |= {name: 1 + w / 4 for name, w in weights.items() if name.startswith("gain_")}
    multipliers = {name: 0.5 + i / 8 for i, name in enumerate(sorted(architecture.multipliers)) if i != 4}
    multipliers |= dict.fromkeys(architecture.multipliers - multipliers.keys(), 1.75)  # none of them is 1
    d_model = found["d_model"]
    attached = {r.name: rng.standard_normal((2, d_model)) / math.sqrt(d_model) for r in architecture.readings}
    attached |= {p.name: rng.standard_normal((1, d_model)) for p in architecture.parts}
    more: dict[str, Any] = {"settings": settings or Settings(), "multipliers": multipliers, "attached": attached}
    return Model(architecture, weights, scales, f"random, seed {seed}", **more)


def _sizes(given: Sizes) -> dict[str, int]:
    """The sizes by the names of axes; raises ValueError on one below 1."""
    out = given["d_vocab"] if given["d_vocab_out"] is None else given["d_vocab_out"]
    hidden = 2 * whole("d_model", given["d_model"], 1) if given["d_mlp"] is None else given["d_mlp"]
    named = {
        "d_vocab": given["d_vocab"], "d_model": given["d_model"], "d_head": given["d_head"], "d_vocab_out": out,
        "n_ctx": given["n_context"], "d_mlp": hidden,
    }  # fmt: skip
    return {name: whole("n_context" if name == "n_ctx" else name, size, 1) for name, size in named.items()}


def _deviation(architecture: Architecture, name: str, sizes: Mapping[str, int]) -> float:
    """The standard deviation of a weight that keeps its output of order 1."""
    if name in ("W_E", "W_pos") or name.startswith(("b_", "gain_")):
        return 1.0
    if name.startswith("W_O_"):
        return 1 / math.sqrt(sizes["d_head"] * sum(architecture.heads))
    if name.startswith("W_out_"):
        return 1 / math.sqrt(sizes["d_mlp"] * len(architecture.mlps))
    return 1 / math.sqrt(sizes["d_model"])


def change_basis(
    model: Model, T: Any | None = None, head_bases: Mapping[str, tuple[Any | None, Any | None]] | None = None
) -> Model:
    """The same model in another basis of the stream and of the head spaces.

    ``T [d_model, d_model]`` maps a stream vector x to ``T x``: ``W_E, P, W_O, b_O`` write ``T`` times their previous
    output, and ``W_Q, W_K, W_V, W_U`` become ``W T^-1``. ``head_bases`` maps head labels to ``(R, S)``: ``W_Q, b_Q``
    become ``R W_Q, R b_Q``, ``W_K, b_K`` become ``R^-T W_K, R^-T b_K``; ``W_V, b_V`` become ``S W_V, S b_V`` and
    ``W_O`` becomes ``W_O S^-1``. None is the identity. Any invertible matrices leave logits, scores and every
    end-to-end term unchanged. Computed in float64. A norm depends on the basis: with norms, the stream cannot
    be changed. Raises ValueError in that case, on a wrong shape, a matrix that is not invertible, and a head that does
    not exist or shares its keys and values with others; if queries and keys are rotated or normed, only S can be
    given. Source: the paper, "Residual Stream" (no privileged basis).

    >>> from symcircuits.core.architecture import attention_only
    >>> model = random_model(attention_only((1,)), d_model=2)
    >>> moved = change_basis(model, T=[[2.0, 1.0], [0.0, 1.0]])
    >>> bool(np.allclose(model.run([0, 1]).logits, moved.run([0, 1]).logits))
    True
    """
    need("change_basis", model, Model)
    bases = {} if head_bases is None else head_bases
    if not isinstance(bases, Mapping) or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in bases.values()):
        raise TypeError(f"head_bases maps labels of heads to pairs (R, S) of matrices or None, not {brief(head_bases)}")
    weights = {name: np.asarray(w, dtype=np.float64) for name, w in model.weights.items()}
    attached = dict(model.attached)
    if T is not None:
        if model.architecture.norm:
            raise ValueError(
                "this model has norms, which depend on the basis of the stream (they centre and scale rows), so T "
                "would change what it computes; only the bases of its heads can be changed"
            )
        t, inverse = _invertible(T, model.d_model, "T")
        _change_stream(weights, t, inverse)
        readings = {r.name for r in model.architecture.readings}
        attached = {name: rows @ (inverse if name in readings else t.T) for name, rows in attached.items()}
    for label, (r, s) in bases.items():
        if r is not None and (model.architecture.positions == "rotary" or model.architecture.qk_norm):
            raise ValueError(
                f"queries and keys of {label} are rotated by positions, or normed, and so depend on their basis; "
                "only the basis of its values can be changed: (None, S)"
            )
        _change_head(weights, model.architecture.head(label), r, s)
    note = "the basis was changed"
    parts = model.architecture, weights, model.score_scale, model.name, (*model.notes, note)
    return Model(*parts, settings=model.settings, multipliers=model.multipliers, attached=attached)


def _change_stream(weights: dict[str, Array], t: Array, inverse: Array) -> None:
    for name, w in weights.items():
        if name == "W_E" or name.startswith(("W_O_", "b_O_", "W_out_", "b_out_")):
            weights[name] = t @ w
        elif name == "W_pos":
            weights[name] = w @ t.T
        elif name.startswith("W_"):
            weights[name] = w @ inverse


def _change_head(weights: dict[str, Array], head: Head, r: Any | None, s: Any | None) -> None:
    if f"W_K_{head}" not in weights:
        raise ValueError(f"{head} shares its keys and values with the other heads of its group, so its basis is theirs")
    names = (f"W_Q_{head}", f"b_Q_{head}"), (f"W_K_{head}", f"b_K_{head}"), (f"W_V_{head}", f"b_V_{head}")
    if r is not None:
        change, inverse = _invertible(r, len(weights[f"W_Q_{head}"]), f"R of {head}")
        _multiply(weights, names[0], change)
        _multiply(weights, names[1], inverse.T)
    if s is not None:
        change, inverse = _invertible(s, len(weights[f"W_V_{head}"]), f"S of {head}")
        _multiply(weights, names[2], change)
        weights[f"W_O_{head}"] = weights[f"W_O_{head}"] @ inverse


def _multiply(weights: dict[str, Array], names: tuple[str, ...], change: Array) -> None:
    weights.update({name: change @ weights[name] for name in names if name in weights})


def _invertible(matrix: Any, size: int, what: str) -> tuple[Array, Array]:
    """The matrix and its inverse; raises ValueError if there is none."""
    array = np.asarray(matrix, dtype=np.float64)
    if array.shape != (size, size):
        raise ValueError(f"{what} must be an invertible matrix of shape [{size}, {size}], not {list(array.shape)}")
    if not np.isfinite(array).all() or np.linalg.matrix_rank(array) < size:
        raise ValueError(f"{what} is not invertible, so it is not a change of basis")
    return array, np.linalg.inv(array)
