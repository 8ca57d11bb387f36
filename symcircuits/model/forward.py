"""The forward pass of a transformer, written from its definition.

With one row per token: ``X_0 = t W_E^T + P``; a head reads ``Y = norm(X)`` (``X`` itself without norms), has
queries ``Y W_Q^T + 1 b_Q^T`` and keys ``Y W_K^T + 1 b_K^T`` (of ``Y + P`` if the position enters there only:
"shortformer"), scores ``scale q k^T``, the pattern ``A = softmax(scores)`` over the allowed keys, and adds
``A (Y W_V^T + 1 b_V^T) W_O^T``; a layer adds its heads and ``1 b_O^T``, then its MLP of ``norm(X)``; logits are
``norm(X) W_U^T + 1 b_U^T``. An LN is ``(x - mean) / sqrt(var + eps) * gain + b_N``, an RMS norm
``x / sqrt(mean of squares + eps) * gain``, row by row. Rotary positions rotate queries and keys, ALiBi adds
``-slope |i - j|`` to scores, soft caps are ``cap tanh(x / cap)``. Without softmax the pattern is the scores, 0 where
they are masked; a bilinear MLP is ``((x W_in^T) * (x W_gate^T)) W_out^T``, with biases. Multipliers: ``m_E`` times the
token embedding (not the position), ``r[L0]`` times what the heads of a layer and its b_O add, ``r[M0]`` times what its
MLP adds, ``m_U`` times the logits (before their soft cap).
Source: Elhage, Nanda, Olsson et al., "A Mathematical Framework for Transformer Circuits" (2021), "Transformer
Overview"; Press et al., "Shortformer" (2021), for the position in queries and keys only; Ba et al. (2016), Zhang and
Sennrich (2019) for the norms; Shazeer (2020) for gated MLPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array, PairwiseSum, transpose
from symcircuits.core.architecture import FINAL, Architecture, Head
from symcircuits.core.attachments import norm_of
from symcircuits.core.text import brief, shown
from symcircuits.model.attending import Attended, Rotary, alibi, alibi_slopes, check_seen, mask, rotate
from symcircuits.model.needs import dtype_of, embedded

__all__ = [
    "ACTIVATIONS", "BY_LABEL", "Changes", "Pass", "Record", "Settings", "capped", "finite", "forward", "pattern_of",
    "product", "softmax", "written_by",
]  # fmt: skip

Weights = Mapping[str, Array]
Scales = Mapping[str, float]


def _gelu(x: Array) -> Array:
    erf = np.asarray(np.frompyfunc(math.erf, 1, 1)(x / math.sqrt(2)), dtype=x.dtype)
    return np.asarray(x * (1 + erf) / 2)


def _gelu_tanh(x: Array, slope: float = math.sqrt(2 / math.pi)) -> Array:
    found = np.asarray(x * x)  # NumPy's x**3 takes as long as sixty products; the rest works in place
    np.multiply(found, 0.044715, out=found)
    np.add(found, 1, out=found)
    np.multiply(found, x, out=found)
    np.tanh(np.multiply(found, slope, out=found), out=found)
    np.add(found, 1, out=found)
    np.multiply(found, x, out=found)
    np.divide(found, 2, out=found)
    return found


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))  # never overflows


def _solu(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(x * (weights / weights.sum(axis=-1, keepdims=True)))


def _solu_ln(x: Array) -> Array:
    """SoLU followed by a norm without gain: its eps is that of TransformerLens, independent of the other norms."""
    y = _solu(x)
    y = y - y.mean(axis=-1, keepdims=True)
    return np.asarray(y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + 1e-5))


ACTIVATIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_fast": lambda x: _gelu_tanh(x, 0.7978845608),  # with these digits
    "gelu_pytorch_tanh": _gelu_tanh,
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "swish": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "solu": _solu,  # of a whole row: x softmax(x), Elhage et al. (2022), "Softmax Linear Units"
    "solu_ln": _solu_ln,  # likewise: gain and bias of the norm are part of its reader
    "identity": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the forward pass needs and the algebra does not.

    ``eps`` of the norms, the ``activation`` of the MLPs, the rotation of ``rotary`` positions, for each layer the
    ``windows`` (number of keys that a query sees; None: all; empty: no layer has one), soft caps ``cap tanh(x / cap)``
    on scores (``score_cap``, before the mask and ALiBi) and on logits (``logit_cap``). ``geometric_slopes``: ALiBi's
    slopes as computed by TransformerLens (see :func:`~symcircuits.model.attending.alibi_slopes`). Raises ValueError on
    an unknown activation, a negative eps or a cap that is not positive.

    >>> Settings(activation="silu").eps
    1e-05
    """

    eps: float = 1e-5
    activation: str = "gelu"
    rotary: Rotary = field(default_factory=Rotary)
    windows: tuple[int | None, ...] = ()
    score_cap: float | None = None
    logit_cap: float | None = None
    geometric_slopes: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {brief(self.activation)}; known are {', '.join(ACTIVATIONS)}")
        if isinstance(self.eps, bool) or not isinstance(self.eps, (int, float)) or not 0 <= self.eps < math.inf:
            seen = brief(self.eps)
            raise ValueError(f"eps, which a norm adds to the variance, must be a number, 0 or more, not {seen}")
        for name, cap in (("score_cap", self.score_cap), ("logit_cap", self.logit_cap)):
            if cap is not None and not 0 < cap < math.inf:
                raise ValueError(f"{name} must be a positive number, or None, not {shown(cap)}")


# The fields of a record that are keyed by label.
BY_LABEL: Final = ("scores", "patterns", "products", "results", "masks", "norms", "mlps", "readouts")


@dataclass(slots=True)
class Record:
    """The record of a forward pass; see :class:`~symcircuits.model.Run`."""

    logits: Array | None = None
    scores: dict[str, Array] = field(default_factory=dict)
    patterns: dict[str, Array] = field(default_factory=dict)
    products: dict[str, Array] = field(default_factory=dict)
    results: dict[str, Array] = field(default_factory=dict)
    masks: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    norms: dict[str, Array] = field(default_factory=dict)
    mlps: dict[str, Array] = field(default_factory=dict)
    streams: list[Array] = field(default_factory=list)
    readouts: dict[str, Array] = field(default_factory=dict)

    def close(self) -> Record:
        """Make every array read-only: changing one array of a record would not update the others."""
        labelled = (a for kind in BY_LABEL for a in getattr(self, kind).values())
        arrays: tuple[Any, ...] = (*labelled, *self.streams, self.logits)
        for array in arrays:
            if array is not None:
                array.flags.writeable = False
        return self


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a forward pass: patterns ``given`` by head, and where the output of heads is ``removed``.

    Patterns may have axes in front of those of the run, for several changes at once; ``removed``: booleans that
    broadcast against ``[..., n, d_model]``; ``written``: by head, what replaces its contribution to the stream.
    ``before``: the record of the pass without changes, whose first ``start`` layers are reused, and in the
    next layer the unchanged heads; after that only streams, patterns and outputs of the model are
    recorded.
    """

    given: Mapping[str, Array] = field(default_factory=dict)
    removed: Mapping[str, Array] = field(default_factory=dict)
    written: Mapping[str, Array] = field(default_factory=dict)
    start: int = 0
    before: Record | None = None


def forward(
    architecture: Architecture,
    w: Weights,
    scales: Scales,
    settings: Settings,
    tokens: npt.NDArray[np.int64],
    changes: Changes | None = None,
    attached: Weights | None = None,
    attended: Attended | None = None,
) -> Record:
    """Run the model on tokens ``[..., n]``, with changes if any; all weights have one dtype, also that of the record.

    ``scales``: the score scale of every head by its label, and the multipliers by name.
    ``attached``: the arrays of readouts and sources, by argument name. ``attended``: a mask that replaces the model's.

    Raises ValueError, with the place, if numbers leave the range of the dtype; and if a mask leaves a query no key.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # reported by finite, with the place
        pass_ = Pass(architecture, w, scales, settings, tokens.shape[-1])
        pass_.changes, pass_.attached, pass_.attended = changes or pass_.changes, attached or {}, attended
        pass_.record = pass_.changes.before or pass_.record
        return pass_.run(tokens).close()


def written_by(
    architecture: Architecture, w: Weights, scales: Scales, settings: Settings, head: Head, stream: Array,
    attended: Attended | None = None,
) -> Array:  # fmt: skip
    """What a head alone adds to a stream that it reads, ``[..., n, d_model]``, with a recomputed pattern."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # reported by finite, with the place
        pass_ = Pass(architecture, w, scales, settings, stream.shape[-2])
        pass_.attended = attended
        return pass_.written(head, stream)


def pattern_of(
    architecture: Architecture,
    settings: Settings,
    head: Head,
    products: Array,
    allowed: npt.NDArray[np.bool_],
    attended: Attended | None = None,
) -> Array:
    """The pattern that the model computes from scaled products ``[..., n, n]`` of queries and keys.

    Soft cap, ALiBi, numbers added by a mask, mask, softmax (or its replacement), in this order.
    """
    pass_ = Pass(architecture, {"W_E": products}, {}, settings, products.shape[-1])
    pass_.attended = attended
    return pass_.pattern(pass_.masked(head, products, allowed), allowed)


class Pass:
    """One forward pass in progress."""

    def __init__(self, architecture: Architecture, w: Weights, scales: Scales, settings: Settings, n: int) -> None:
        self.architecture, self.w, self.scales, self.settings = architecture, w, scales, settings
        self.record, self.n, self.changes = Record(), n, Changes()
        self.attached: Weights = {}
        self.attended: Attended | None = None
        self.positions = w["W_pos"][:n] if "W_pos" in w else np.zeros((), dtype_of(w))

    def run(self, tokens: npt.NDArray[np.int64]) -> Record:
        arch, record = self.architecture, self.record
        start = self.changes.start
        stream = self.reached(0, self.embedded(tokens)) if self.changes.before is None else record.streams[start]
        for layer in range(start, arch.n_layers):
            after = self.attention(layer, stream)
            if layer in arch.mlps:
                read = stream if arch.parallel else after
                self.read_out("mlp", layer, read)
                after = after + self.times(f"r[M{layer}]", self.mlp(layer, read))
            stream = self.reached(layer + 1, finite(after, f"the rows of the residual stream after layer {layer}"))
        if arch.unembed:
            logits = self.times("m_U", self.affine(self.normed(stream, FINAL), "W_U", "b_U"))
            logits = finite(logits, "the logits")
            record.logits = capped(logits, self.settings.logit_cap)
            if record.logits is not logits:
                record.products["logits"] = logits
        return record

    def embedded(self, tokens: npt.NDArray[np.int64]) -> Array:
        """The start of the stream."""
        stream = self.times("m_E", embedded(self.w, tokens))
        return stream + self.positions if self.architecture.positions == "standard" else stream

    def times(self, multiplier: str, x: Array) -> Array:
        """The multiplier of that name times an array; the array itself if there is no such multiplier."""
        value = self.scales.get(multiplier)
        return x if value is None else np.asarray(x * x.dtype.type(value))

    def reached(self, point: int, stream: Array) -> Array:
        """The stream at a point, after additions there; it is recorded, and its readouts are computed."""
        for part in self.architecture.parts_of("added", point):
            stream = stream + self.attached[part.argument]
        self.record.streams.append(stream)
        self.read_out("stream", point, stream)
        return stream

    def read_out(self, at: str, layer: int, stream: Array) -> None:
        """Compute the readouts at this place: ``Y probe^T``."""
        for reading in self.architecture.readings:
            if (reading.at, reading.layer) == (at, layer):
                read = self.normed(stream, reading.norm) if reading.norm else stream
                value = read @ transpose(self.attached[reading.argument])
                self.record.readouts[reading.name] = finite(value, f"the values of the readout {reading.name}")

    def normed(self, x: Array, label: str) -> Array:
        """The norm of every row; its ``1 / sigma`` is recorded."""
        if not self.architecture.norm:
            return x
        if self.architecture.norm == "LN":
            x = x - x.mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt((x * x).mean(axis=-1) + x.dtype.type(self.settings.eps))
        self.record.norms[label] = finite(inverse, f"the values of 1 / sigma of the norm {label}")
        x = x * inverse[..., None]
        own = norm_of(label)
        if f"gain_{own}" in self.w:
            x = x * self.w[f"gain_{own}"]
        return x + self.w[f"b_N_{own}"] if f"b_N_{own}" in self.w else x

    def attention(self, layer: int, stream: Array) -> Array:
        """The stream after the heads of a layer and its ``b_O``."""
        read, values_of = self.read(layer, stream)
        record, total = self.record, PairwiseSum()  # adding in order, rounding would grow with the number of heads
        total.add(stream)
        window = self.settings.windows[layer] if self.settings.windows else None
        record.masks[f"L{layer}"] = allowed = self.allowed(layer, window)
        for head in self.architecture.layer_heads(layer):
            if str(head) in self.changes.written:
                total.add(self.changes.written[str(head)])
                continue
            result = self.result(head, read, values_of, allowed)
            removed = self.changes.removed.get(str(head))
            total.add(result if removed is None else np.where(removed, result.dtype.type(0), result))
        after: Array = total.value
        return after + self.times(f"r[L{layer}]", self.w[f"b_O_L{layer}"]) if f"b_O_L{layer}" in self.w else after

    def read(self, layer: int, stream: Array) -> tuple[Array, Array]:
        """The inputs of the queries and keys of the heads of a layer, and of their values."""
        values_of = self.normed(stream, f"L{layer}")
        read = values_of + self.positions if self.architecture.positions == "shortformer" else values_of
        return read, values_of

    def written(self, head: Head, stream: Array) -> Array:
        """What one head adds to a stream that it reads."""
        window = self.settings.windows[head.layer] if self.settings.windows else None
        return self.result(head, *self.read(head.layer, stream), self.allowed(head.layer, window))

    def result(self, head: Head, read: Array, values_of: Array, allowed: npt.NDArray[np.bool_]) -> Array:
        """What a head adds to the stream, from the inputs of its queries and keys, and of its values."""
        name, shared, record = str(head), self.architecture.key_value(head), self.record
        given, again = self.changes.given.get(name), self.changes.before is not None
        known = again and head.layer == self.changes.start  # its input is unchanged
        if known and given is None:
            return record.results[name]
        if not known:
            own = self.attends(head, read, allowed)
            given = own if given is None else given
        assert given is not None
        record.patterns[name] = given
        values = self.affine(values_of, f"W_V_{shared}", f"b_V_{shared}")
        result = product(given @ values, self.w[f"W_O_{head}"])
        result = self.times(f"r[L{head.layer}]", result)
        if not again:
            record.results[name] = result
        return result

    def attends(self, head: Head, read: Array, allowed: npt.NDArray[np.bool_]) -> Array:
        """The pattern of a head from the inputs of its queries and keys; its scores are recorded."""
        scaled = finite(self.scores(head, read), f"the scores of {head}")
        scores = self.masked(head, scaled, allowed)
        if self.settings.score_cap is not None or self.adds:
            self.record.products[str(head)] = scaled
        if self.changes.before is None:
            self.record.scores[str(head)] = scores
        return self.pattern(scores, allowed)

    def allowed(self, layer: int, window: int | None) -> npt.NDArray[np.bool_]:
        """Which keys the queries of a layer attend to, ``[n, n]``, or with a mask for each row ``[batch, n, n]``."""
        if self.attended is None:
            return mask(self.n, self.architecture.causal, window)
        found = self.attended.within(self.architecture.causal, window)
        check_seen(found, layer, window)
        return found

    @property
    def adds(self) -> bool:
        """Whether anything is added to the scores."""
        return self.architecture.positions == "alibi" or (self.attended is not None and self.attended.added is not None)

    def masked(self, head: Head, products: Array, allowed: npt.NDArray[np.bool_]) -> Array:
        """Scores before softmax, from scaled products: soft-capped, with additions, -inf where masked."""
        scores = self.biased(head, capped(products, self.settings.score_cap))
        return np.where(allowed, scores, products.dtype.type(-np.inf))

    def pattern(self, scores: Array, allowed: npt.NDArray[np.bool_]) -> Array:
        """The weight of each key for each query, exactly 0 where masked."""
        return softmax(scores) if self.architecture.softmax else np.where(allowed, scores, scores.dtype.type(0))

    def mlp(self, layer: int, stream: Array) -> Array:
        """The output of the MLP of a layer: ``W_out act(W_in y)``, or ``W_out (act(W_gate y) * W_in y)`` with a gate.

        Its multiplier is applied later.
        """
        name = "identity" if self.architecture.bilinear else self.settings.activation
        read, activation = self.normed(stream, f"M{layer}"), ACTIVATIONS[name]
        inner = self.affine(read, f"W_in_L{layer}", f"b_in_L{layer}")
        if self.architecture.gated:
            inner = activation(self.affine(read, f"W_gate_L{layer}", f"b_gate_L{layer}")) * inner
        else:
            inner = activation(inner)
        self.record.mlps[f"L{layer}"] = self.affine(inner, f"W_out_L{layer}", f"b_out_L{layer}")
        return self.record.mlps[f"L{layer}"]

    def affine(self, x: Array, weight: str, bias: str) -> Array:
        """``x W^T + 1 b^T``, the second term if that bias exists."""
        found = product(x, self.w[weight])
        if bias in self.w:
            found += self.w[bias]
        return found

    def scores(self, head: Head, read: Array) -> Array:
        """``scale q k^T`` ``[..., n, n]``, not masked; rows are queries, columns keys."""
        shared = self.architecture.key_value(head)
        queries = self.affine(read, f"W_Q_{head}", f"b_Q_{head}")
        keys = self.affine(read, f"W_K_{shared}", f"b_K_{shared}")
        if self.architecture.qk_norm:
            queries, keys = self.scaled(queries, f"Q{head}"), self.scaled(keys, f"K{shared}")
        if self.architecture.positions == "rotary":
            queries, keys = rotate(queries, self.settings.rotary), rotate(keys, self.settings.rotary)
        raw: Array = queries @ transpose(keys)
        return raw * raw.dtype.type(self.scales[str(head)]) if self.architecture.scale else raw

    def scaled(self, rows: Array, label: str) -> Array:
        """The RMS norm of a head's queries or keys, with the gain of its layer; ``1 / sigma`` is recorded."""
        inverse = 1 / np.sqrt((rows * rows).mean(axis=-1) + rows.dtype.type(self.settings.eps))
        self.record.norms[label] = finite(inverse, f"the values of 1 / sigma of the norm {label}")
        layer = label.partition("L")[2].partition("H")[0].partition("G")[0]
        return np.asarray(rows * inverse[..., None] * self.w[f"gain_{label[0]}{layer}"])

    def biased(self, head: Head, scores: Array) -> Array:
        """The scores with the additions of ALiBi and a mask."""
        if self.attended is not None and self.attended.added is not None:
            scores = scores + self.attended.added.astype(scores.dtype)
        if self.architecture.positions != "alibi":
            return scores
        slope = alibi_slopes(self.architecture.heads[head.layer], self.settings.geometric_slopes)[head.number]
        return scores + alibi(slope, self.n, scores.dtype)


def product(rows: Array, weight: Array) -> Array:
    """``x W^T`` with the rows of all matrices stacked: one product, not one per matrix."""
    if rows.ndim == 2:
        return np.asarray(rows @ weight.T)
    return np.asarray(rows.reshape(-1, rows.shape[-1]) @ weight.T).reshape(*rows.shape[:-1], len(weight))


def capped(x: Array, cap: float | None) -> Array:
    """``cap tanh(x / cap)``; x without a soft cap."""
    return x if cap is None else np.asarray(cap * np.tanh(x / cap), dtype=x.dtype)


def softmax(scores: Array) -> Array:
    """Softmax over keys; the largest score of a row is subtracted first, so nothing overflows."""
    weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total: Array = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / total)


def finite(array: Array, what: str) -> Array:
    if not np.isfinite(array).all():
        more = "; try dtype float64" if array.dtype == np.float32 else ""
        raise ValueError(f"{what} leave the range of {array.dtype}: the weights are too large{more}")
    return array
