"""A transformer with its weights, and its forward pass, written from the definition.

With a row per token: ``X_0 = t W_E^T + P``; a head has queries ``X W_Q^T + 1 b_Q^T`` and keys
``X W_K^T + 1 b_K^T`` (of ``X + P`` instead, where the position enters there only: "shortformer"), scores
``scale q k^T``, the pattern ``A = softmax(scores)`` over the allowed keys, and adds
``A (X W_V^T + 1 b_V^T) W_O^T``; a layer adds its heads and ``1 b_O^T``; logits are ``X W_U^T + 1 b_U^T``.
Source: Elhage, Nanda, Olsson et al., "A Mathematical Framework for Transformer Circuits" (2021), "Transformer
Overview"; Press et al., "Shortformer" (2021), for the position in queries and keys only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.architecture import Architecture, Head
from symcircuits.model.checks import Axes, check_names, check_shapes, check_values
from symcircuits.model.tokens import read_tokens
from symcircuits.rings import Array, transpose

__all__ = ["Arrays", "Model", "Run", "weight_axes"]


def weight_axes(architecture: Architecture) -> dict[str, Axes]:
    """The weights of an architecture by argument name, each with the names of its axes.

    >>> from symcircuits.architecture import attention_only
    >>> weight_axes(attention_only((0,), "standard"))
    {'W_E': ('d_model', 'd_vocab'), 'W_pos': ('n_ctx', 'd_model'), 'W_U': ('d_vocab_out', 'd_model')}
    """
    axes: dict[str, Axes] = {"W_E": ("d_model", "d_vocab")}
    if architecture.positions is not None:
        axes["W_pos"] = ("n_ctx", "d_model")
    for head in architecture.all_heads:
        qk, ov = f"d_head of queries and keys of {head}", f"d_head of values of {head}"
        axes |= {f"W_Q_{head}": (qk, "d_model"), f"W_K_{head}": (qk, "d_model")}
        axes |= {f"W_V_{head}": (ov, "d_model"), f"W_O_{head}": ("d_model", ov)}
        biases = {"b_Q": qk, "b_K": qk, "b_V": ov}
        axes |= {f"{b}_{head}": (size,) for b, size in biases.items() if f"{b}[{head}]" in architecture.biases}
    for layer in range(architecture.n_layers):
        if f"b_O[L{layer}]" in architecture.biases:
            axes[f"b_O_L{layer}"] = ("d_model",)
    if architecture.unembed:
        axes["W_U"] = ("d_vocab_out", "d_model")
    if "b_U" in architecture.biases:
        axes["b_U"] = ("d_vocab_out",)
    return axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Model:
    """A transformer: its architecture and its weights, in the shapes of the paper.

    ``weights``: ``W_E [d_model, d_vocab]``, ``W_pos [n_ctx, d_model]`` (a row per position), ``W_Q_L0H1``,
    ``W_K_L0H1``, ``W_V_L0H1`` ``[d_head, d_model]``, ``W_O_L0H1 [d_model, d_head]``, ``W_U [d_vocab_out, d_model]``
    and the biases ``b_Q_L0H1``, ``b_K_L0H1``, ``b_V_L0H1`` ``[d_head]``, ``b_O_L0 [d_model]``, ``b_U [d_vocab_out]``
    that the architecture has. ``score_scale``: for every head the number its scores are multiplied with (empty
    where the architecture has no scale). ``notes``: what was assumed or dropped, in sentences. ``dtype``: the
    type of the numbers in the file. Raises ValueError when a weight is missing, unknown, of the wrong shape, not
    of floating-point numbers, or not finite. The arrays are not copied, and cannot be written to through the model.

    >>> from symcircuits.model import random_model
    >>> from symcircuits.architecture import attention_only
    >>> model = random_model(attention_only((3, 3)), d_vocab=11, d_model=16, d_head=4)
    >>> model.weights["W_O_L0H1"].shape, model.run([1, 2, 3]).logits.shape
    ((16, 4), (3, 11))
    """

    architecture: Architecture
    weights: Mapping[str, Array]
    score_scale: Mapping[str, float] = field(default_factory=dict)
    name: str = "model"
    notes: tuple[str, ...] = ()
    dtype: str = ""

    def __post_init__(self) -> None:
        axes = weight_axes(self.architecture)
        check_names(axes, self.weights)
        arrays = {name: np.asarray(self.weights[name]).view() for name in axes}
        for name, array in arrays.items():
            check_values(name, array)
            array.flags.writeable = False
        check_shapes(axes, arrays, {})
        labels = [str(head) for head in self.architecture.all_heads] if self.architecture.scale else []
        check_names(labels, self.score_scale, "score_scale")
        scales = {label: float(self.score_scale[label]) for label in labels}
        for label, scale in scales.items():
            if not math.isfinite(scale):
                raise ValueError(f"the score scale of {label} is {scale}; it must be a finite number")
        types = dict.fromkeys(array.dtype.name for array in arrays.values())
        for name, value in (
            ("weights", MappingProxyType(arrays)),
            ("score_scale", MappingProxyType(scales)),
            ("notes", tuple(self.notes)),
            ("dtype", self.dtype or ", ".join(types)),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.architecture, dict(self.weights), dict(self.score_scale), self.name, self.notes, self.dtype)
        return Model, parts

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.architecture}, d_model {self.d_model}, d_vocab {self.d_vocab}, {self.dtype}>"

    @property
    def d_model(self) -> int:
        """Size of the residual stream."""
        return int(self.weights["W_E"].shape[0])

    @property
    def d_vocab(self) -> int:
        """Number of input tokens."""
        return int(self.weights["W_E"].shape[1])

    @property
    def d_vocab_out(self) -> int | None:
        """Number of output tokens; None for a model without unembedding."""
        return self.weights["W_U"].shape[0] if "W_U" in self.weights else None

    @property
    def n_context(self) -> int | None:
        """Length of the position table; None where there is none (any number of tokens works)."""
        return self.weights["W_pos"].shape[0] if "W_pos" in self.weights else None

    def run(self, tokens: Any, dtype: npt.DTypeLike | None = None) -> Run:
        """The forward pass, recorded.

        ``tokens``: whole numbers in ``[n]`` or ``[batch, n]``. ``dtype``: float64 (also when None, whatever the
        file holds) or float32. Raises ValueError on tokens that do not fit (it names the one), on another dtype,
        and where numbers leave the range of ``dtype``.

        >>> from symcircuits.model import random_model
        >>> from symcircuits.architecture import attention_only
        >>> random_model(attention_only((1,))).run([[0, 1], [2, 3]]).patterns["L0H0"][:, 0]
        array([[1., 0.],
               [1., 0.]])
        """
        number = np.dtype(np.float64 if dtype is None else dtype)
        if number not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"the forward pass is computed in float64 or float32, not {number}")
        return _forward(self, read_tokens(tokens, self.d_vocab, self.n_context), number)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run:
    """A recorded forward pass; made by :meth:`Model.run`. ``...`` is the batch axis, if the tokens have one.

    ``logits [..., n, d_vocab_out]`` (None without unembedding); by head label ``scores [..., n, n]`` (scaled;
    masked entries are -inf), ``patterns [..., n, n]`` (rows are queries; masked entries are exactly 0) and
    ``results [..., n, d_model]``, what the head adds to the stream, with its b_V and without b_O; ``streams``,
    the residual stream ``[..., n, d_model]`` at points 0 to n_layers; ``arrays``, all that a term of an expansion
    needs, by argument name. A record: nothing in it can be written to (copy an array to change it).

    >>> from symcircuits.model import random_model
    >>> from symcircuits.architecture import attention_only
    >>> run = random_model(attention_only((2,))).run([0, 1, 2])
    >>> total = run.streams[0] + run.results["L0H0"] + run.results["L0H1"]
    >>> bool(np.allclose(total, run.streams[1]))
    True
    """

    model: Model
    tokens: npt.NDArray[np.int64]
    dtype: np.dtype[Any]
    logits: Array | None
    scores: Mapping[str, Array]
    patterns: Mapping[str, Array]
    streams: tuple[Array, ...]
    results: Mapping[str, Array]
    arrays: Arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return _forward, (self.model, self.tokens, self.dtype)  # the same numbers, computed again

    def __repr__(self) -> str:
        return f"<Run of {self.model.name} on tokens {list(self.tokens.shape)}, {self.dtype}>"


class Arrays(Mapping[str, Array]):
    """Everything a term needs, by argument name, in one dtype; what is derived is made when it is asked for.

    The weights and biases, ``A_L0H1 [..., n, n]``, ``scale_L1H0 []``, ``ones [n, 1]``, ``P [n, d_model]`` (the
    rows of W_pos in use), ``t [..., n, d_vocab]`` (one-hot), ``X0 = t W_E^T``, ``W_OV_L0H1 = W_O W_V`` and
    ``W_QK_L1H0 = W_Q^T W_K`` ``[d_model, d_model]``. KeyError on another name.
    """

    __slots__ = ("_made", "_makers")

    def __init__(self, known: Mapping[str, Array], makers: Mapping[str, Callable[[], Array]]) -> None:
        self._made = dict(known)
        self._makers = dict(makers)

    def __getitem__(self, name: str) -> Array:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._made, *self._makers)))

    def __len__(self) -> int:
        return len(self._made.keys() | self._makers.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._makers

    def __repr__(self) -> str:
        return f"Arrays({', '.join(self)})"


def _forward(model: Model, tokens: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> Run:
    arch, w = model.architecture, {k: v.astype(dtype, copy=False) for k, v in model.weights.items()}
    scores: dict[str, Array] = {}
    patterns: dict[str, Array] = {}
    results: dict[str, Array] = {}
    allowed = _allowed(arch, tokens.shape[-1])
    positions = w["W_pos"][: tokens.shape[-1]] if arch.positions is not None else np.zeros((), dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # reported by _finite, with the place
        stream = transpose(w["W_E"])[tokens]
        if arch.positions == "standard":
            stream = stream + positions
        streams = [stream]
        for layer in range(arch.n_layers):
            read = stream + positions if arch.positions == "shortformer" else stream
            after = stream
            for head in arch.layer_heads(layer):
                raw = _finite(_scores(model, w, head, read), f"the scores of {head}")
                scores[str(head)] = np.where(allowed, raw, dtype.type(-np.inf))
                patterns[str(head)] = _softmax(scores[str(head)])
                values = _affine(stream, w[f"W_V_{head}"], w.get(f"b_V_{head}"))
                results[str(head)] = (patterns[str(head)] @ values) @ transpose(w[f"W_O_{head}"])
                after = after + results[str(head)]
            stream = after + w[f"b_O_L{layer}"] if f"b_O_L{layer}" in w else after
            streams.append(_finite(stream, f"the residual stream after layer {layer}"))
        logits = _finite(_affine(stream, w["W_U"], w.get("b_U")), "the logits") if arch.unembed else None
    arrays = _arrays(model, w, tokens, patterns)
    for array in (*scores.values(), *patterns.values(), *results.values(), *streams, logits):
        if array is not None:
            array.flags.writeable = False  # a record: what is changed here would not change the rest
    by_head = [MappingProxyType(recorded) for recorded in (scores, patterns, results)]
    return Run(model, tokens, dtype, logits, by_head[0], by_head[1], tuple(streams), by_head[2], arrays)


def _affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """``x W^T + 1 b^T``."""
    product: Array = x @ transpose(weight)
    return product if bias is None else product + bias


def _scores(model: Model, w: Mapping[str, Array], head: Head, read: Array) -> Array:
    """``scale q k^T`` ``[..., n, n]``, not masked; rows are queries, columns keys."""
    queries = _affine(read, w[f"W_Q_{head}"], w.get(f"b_Q_{head}"))
    keys = _affine(read, w[f"W_K_{head}"], w.get(f"b_K_{head}"))
    raw: Array = queries @ transpose(keys)
    return raw * raw.dtype.type(model.score_scale[str(head)]) if model.architecture.scale else raw


def _allowed(architecture: Architecture, n: int) -> npt.NDArray[np.bool_]:
    """Which keys (columns) a query (row) attends to: itself and what is before it, or all."""
    every = np.ones((n, n), dtype=bool)
    return np.tril(every) if architecture.causal else every


def _softmax(scores: Array) -> Array:
    """Softmax over keys; the largest score of a row is subtracted first, so that nothing overflows."""
    weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total: Array = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / total)


def _finite(array: Array, what: str) -> Array:
    if not np.isfinite(array).all():
        more = "; try dtype float64" if array.dtype == np.float32 else ""
        raise ValueError(f"{what} leave the range of {array.dtype}: the weights are too large{more}")
    return array


def _arrays(
    model: Model, w: Mapping[str, Array], tokens: npt.NDArray[np.int64], patterns: Mapping[str, Array]
) -> Arrays:
    dtype = w["W_E"].dtype
    known: dict[str, Array] = {**w, "ones": np.ones((tokens.shape[-1], 1), dtype)}
    known |= {f"A_{label}": pattern for label, pattern in patterns.items()}
    known |= {f"scale_{label}": np.asarray(scale, dtype) for label, scale in model.score_scale.items()}
    if "W_pos" in w:
        known["P"] = w["W_pos"][: tokens.shape[-1]]

    def one_hot() -> Array:
        t = np.zeros((*tokens.shape, model.d_vocab), dtype)
        np.put_along_axis(t, tokens[..., None], 1, axis=-1)
        return t

    def product(left: Array, right: Array) -> Callable[[], Array]:
        return lambda: left @ right

    makers: dict[str, Callable[[], Array]] = {"t": one_hot, "X0": lambda: transpose(w["W_E"])[tokens]}
    for head in model.architecture.all_heads:
        makers[f"W_OV_{head}"] = product(w[f"W_O_{head}"], w[f"W_V_{head}"])
        makers[f"W_QK_{head}"] = product(transpose(w[f"W_Q_{head}"]), w[f"W_K_{head}"])
    return Arrays(known, makers)
