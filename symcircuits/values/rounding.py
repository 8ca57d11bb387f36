"""The size of what is rounded: the f of the bound ``16 u (sum of |summands| + f)`` of a closure, entry by entry."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.core.architecture import FINAL, Head
from symcircuits.core.attachments import norm_of
from symcircuits.model import Run

__all__ = ["rounding_scale"]

Array = npt.NDArray[Any]
ROUNDINGS = 6  # in the output of a layer: norm, values, their average, output, sum of heads, sum with the stream
OF_NORM = {"LN": 3, "RMS": 1}  # before rows are read: mean, difference, scale; the scale alone
SMALL = 4  # d_head up to which all of a head's values, queries or keys may cancel; d_model, all that it writes


class _Rows(NamedTuple):
    """The size of the roundings in rows of the stream at a point, and the part of it that a norm hides."""

    size: Array  # [..., n]
    hidden: Array  # [..., n]: 1 / sigma times its excess over the row that is read


_CARRIED: WeakKeyDictionary[Run, tuple[_Rows, ...]] = WeakKeyDictionary()


def rounding_scale(target: str, run: Run, fused: bool = False) -> Array:
    """The f of the bound: the size of the factors whose product is rounded, entry by entry.

    A row of the stream may be small by cancellation: outputs of layers are rounded when they are written, so |x_i| is
    at least 6 sixteenths of ``(sum over the layers before of |x_l|^2 + sum over heads of r^2)^(1/2)``, with r the
    output of a head, including what cancels in its values (see :func:`_written`), and what heads make of earlier
    roundings (see :func:`_passed_on`). Before an LN |x_i| is that of the row with its mean. q and k may be small by
    cancellation too, and carry the rounding of the rows that they read: ``|q_i|`` is increased by ``(|x_i| - |x_i -
    mean|) / sigma |W_Q| / sqrt(d_model)``, for what cancelled there in an arbitrary direction, ``|k_j|`` likewise, and
    f by ``16 u`` times the product of both errors; and f of scores is at least ``scale (|x_i||W_Q||k_j| +
    |q_i||x_j||W_K|) l / 16`` (Frobenius norms of the weights), l the number of layers before; if d_head is small (4 or
    less, so all of a query may cancel, or a sixteenth of d_model or less) one more for the products, and 3 for an LN, 1
    for an RMS norm. ``fused``: W_QK itself is a factor; f is then at least ``scale |x_i||W_QK||x_j| / 16``, at any
    size. Attached sources and the rest of the stream may be far larger than their sum: the size of a row of the stream
    is then at least that of the largest row of each of them, added.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a bound that is not finite raises
        return _scale(target, run, fused)


def _scale(target: str, run: Run, fused: bool) -> Array:
    arrays, arch = run.arrays, run.model.architecture
    if target == "stream":
        return np.asarray(_carried(run)[-1].size + _apart(run, arch.n_layers))[..., None]
    if target == "logits":
        size = _read_size(run, FINAL, arch.n_layers)[..., None] * _norm(arrays["W_U"])
        return np.asarray(size * abs(float(arrays.get("m_U", 1.0))))
    label = target.partition(":")[2]
    if target.startswith("readout:"):
        return _readout_size(run, label)
    size = _product_size(run, arch.head(label), fused)
    return np.asarray(size * (abs(_wide(arrays[f"scale_{label}"])) if arch.scale else 1.0))


def _product_size(run: Run, head: Head, fused: bool) -> Array:
    """The size for ``q k^T``, without the score scale."""
    arrays, arch, label = run.arrays, run.model.architecture, str(head)
    x = _read_size(run, f"L{head.layer}", head.layer)
    read = _read(run, head.layer)
    w_q, w_k = arrays[f"W_Q_{label}"], arrays[f"W_K_{arch.key_value(head)}"]
    b_q, b_k = arrays.get(f"b_Q_{label}", 0), arrays.get(f"b_K_{arch.key_value(head)}", 0)
    q, k = _norm(read @ w_q.T + b_q), _norm(read @ w_k.T + b_k)
    if arch.parts:
        more = _apart(run, head.layer)
        more = _through(run, f"L{head.layer}", more) if arch.norm else more
        q, k = q + more * _length(w_q), k + more * _length(w_k)
    lengths, hidden = [_length(w_q), _length(w_k)], _carried(run)[head.layer].hidden
    made = [x * length for length in lengths]
    cancelled = [hidden * _gain(run, head, w_q), hidden * _gain(run, head, w_k)] if hidden.any() else [hidden] * 2
    if arch.qk_norm:  # queries and keys of unit size, times their gains
        gains = [float(np.abs(_wide(arrays[f"gain_{side}{head.layer}"])).max()) for side in "QK"]
        unit = [_wide(run.norms[f"Q{label}"]) * gains[0], _wide(run.norms[f"K{arch.key_value(head)}"]) * gains[1]]
        (q, k), made, cancelled = ([a * unit[0], b * unit[1]] for a, b in ((q, k), made, cancelled))
    small = len(w_q) <= SMALL or w_q.shape[1] >= 16 * len(w_q)
    steps = head.layer + (1 + OF_NORM.get(arch.norm or "", 0) if small else 0)
    both = [np.maximum(c, m * (steps / 16)) for c, m in zip(cancelled, made, strict=True)]
    u = float(np.finfo(run.dtype).eps) / 2
    rounded = (both[0] * 16 * u, both[1])  # q and k may consist of rounding errors
    size = _outers((q, k), rounded, *([(cancelled[0], k), (q, cancelled[1])] if hidden.any() else []))
    if steps:
        least = _outers((made[0] * (steps / 16), k), (q * (steps / 16), made[1]), rounded)
        size = np.maximum(size, least, out=size)
    if fused:
        size = np.maximum(size, _outer(x, x) * _length(arrays[f"W_QK_{label}"]) / 16)
    return size


def _carried(run: Run) -> tuple[_Rows, ...]:
    """For every point of the stream, from the start on; roundings are independent, so squares add up."""
    if run not in _CARRIED:
        rows = [_rows(run, 0, _norm(run.streams[0]))]
        total = rows[0].size
        for layer in range(run.model.architecture.n_layers):
            after = _norm(run.streams[layer + 1])
            passed_on, written = _passed_on(run, layer, total), _written(run, layer, rows[-1])
            total = np.hypot(np.hypot(np.hypot(total, passed_on), after), written)
            rows.append(_rows(run, layer + 1, np.maximum(after, total * ROUNDINGS / 16)))
        _CARRIED[run] = tuple(rows)
    return _CARRIED[run]


def _rows(run: Run, point: int, size: Array) -> _Rows:
    stream, norm = run.streams[point], run.model.architecture.norm
    read = _norm(stream - stream.mean(axis=-1, keepdims=True)) if norm == "LN" else _norm(stream)
    inverse = _inverse(run, f"L{point}") if f"L{point}" in run.norms else np.ones(1)
    return _Rows(size, np.maximum(size - read, 0) * inverse)


def _written(run: Run, layer: int, read: _Rows) -> Array:
    """The size of the output of a layer, ``[..., n]``: the root of the sum of squares over its heads and its MLP.

    That of a head is ``|result_i| + sum_j |A_ij| y_j |W_O| / sqrt(d_head)``, with y what cancelled in the rows that its
    values come from, times ``|W_V| / sqrt(d_model)``; if d_head is small the values themselves may cancel, if
    d_model is small the whole output of the head, and y is at least ``(|x_j||W_V| + |b_V|) / 6``, the rounding of that
    product.
    """
    arrays, arch, at = run.arrays, run.model.architecture, f"L{layer}"
    mlp = _norm(run.mlps[at]) * abs(float(arrays.get(f"r_M{layer}", 1))) if at in run.mlps else 0.0
    total, whole = np.asarray(mlp), _through(run, at, read.size) if arch.norm else read.size
    for head in arch.layer_heads(layer):
        shared = arch.key_value(head)
        w_v, w_o = arrays[f"W_V_{shared}"], arrays[f"W_O_{head}"]
        size, values = _norm(run.results[str(head)]), np.zeros(1)
        if min(w_v.shape) <= SMALL:
            values = (whole * _length(w_v) + _length(arrays.get(f"b_V_{shared}", np.zeros(1)))) / ROUNDINGS
        if read.hidden.any():
            values = np.maximum(values, read.hidden * _gain(run, head, w_v))
        if values.any():
            out = _length(w_o) / np.sqrt(len(w_v)) * abs(float(arrays.get(f"r_{at}", 1)))
            size = size + (np.abs(run.patterns[str(head)]) @ values[..., None])[..., 0] * out
        total = np.hypot(total, size)
    return total


def _passed_on(run: Run, layer: int, before: Array) -> Array:
    """What the heads of a layer make of the roundings in their rows, which may have any direction.

    ``(sum_h sum_j (A_ij before_j |W_O W_V|)^2 / d_model)^(1/2)``, through the norm times ``1 / sigma`` and gain.
    """
    arrays, arch, at = run.arrays, run.model.architecture, f"L{layer}"
    total, r = np.zeros(1), abs(float(arrays.get(f"r_{at}", 1)))
    rows, most = _unit(before * _inverse(run, at) if arch.norm else before)
    for head in arch.layer_heads(layer):
        (w_o, out), (w_v, into) = (
            _unit(_wide(arrays[f"W_O_{head}"])),
            _unit(_wide(arrays[f"W_V_{arch.key_value(head)}"]) * _wide(arrays.get(f"gain_{at}", np.ones(1)))),
        )
        length = np.sqrt(max(float(((w_o.T @ w_o) * (w_v @ w_v.T)).sum()), 0.0) / w_v.shape[1])
        pattern, largest = _unit(_wide(run.patterns[str(head)]))
        read = np.sqrt((pattern**2 @ (rows**2)[..., None])[..., 0])
        total = np.hypot(total, read * length * largest * most * out * into * r)
    return total


def _unit(array: Array) -> tuple[Array, float]:
    """An array scaled so that its squares do not overflow, and the factor that was removed."""
    most = float(np.abs(array).max(initial=0.0)) or 1.0
    return np.asarray(array / most), most


def _gain(run: Run, head: Head, weight: Array) -> float:
    """How much a head's weight, times the gain of its norm, lengthens a row of any direction: ``|W| / sqrt(d)``."""
    gain = run.arrays.get(f"gain_L{head.layer}")
    return _length(weight if gain is None else _wide(weight) * gain) / float(np.sqrt(weight.shape[1]))


def _readout_size(run: Run, name: str) -> Array:
    """``|x_i||w|`` of a readout; for the MLP's input the size is that after the heads of its layer."""
    reading = run.model.architecture.reading(name)
    size = _carried(run)[reading.layer].size + _apart(run, reading.layer)
    if reading.at == "mlp" and not run.model.architecture.parallel:
        size = size + sum(_norm(run.results[str(h)]) for h in run.model.architecture.layer_heads(reading.layer))
    size = _through(run, reading.norm, size) if reading.norm else size
    return np.asarray(size[..., None] * _norm(run.arrays[reading.argument]))


def _read(run: Run, layer: int) -> Array:
    """The input of the queries and keys of a layer: its stream, normed, with the position if it enters there."""
    arrays, arch, read, label = run.arrays, run.model.architecture, run.streams[layer], f"L{layer}"
    if arch.norm:
        read = read - read.mean(axis=-1, keepdims=True) if arch.norm == "LN" else read
        read = read * run.norms[label][..., None] * arrays.get(f"gain_{label}", 1) + arrays.get(f"b_N_{label}", 0)
    return np.asarray(read + arrays["P"] if arch.positions == "shortformer" else read)


def _read_size(run: Run, label: str, point: int) -> Array:
    """The size of what is rounded when rows are read: their norm; through a norm, that of its summands."""
    arrays, arch = run.arrays, run.model.architecture
    size = _carried(run)[point].size + _apart(run, point)
    size = _through(run, label, size) if arch.norm else size
    if arch.positions == "shortformer" and label != FINAL:
        size = size + _norm(arrays["P"])
    return size


def _apart(run: Run, point: int) -> Any:
    """The excess of attached sources at a point, each by its largest row, over the rows of the stream."""
    parts = [p for p in run.model.architecture.parts if p.layer + (p.of == "mlp") <= point]
    if not parts:
        return 0.0
    size = sum(_norm(run.arrays[p.argument]).max(axis=-1, keepdims=True) for p in parts)
    return np.maximum(size - _norm(run.streams[point]), 0.0)


def _through(run: Run, label: str, size: Array) -> Array:
    """The size of rows after a norm: times its ``1 / sigma`` and largest gain, and the size of its bias."""
    own = norm_of(label)
    gain = float(np.abs(_wide(run.arrays.get(f"gain_{own}", np.ones(1)))).max())
    inverse = _inverse(run, label)
    return np.asarray(size * inverse * gain + _norm(run.arrays.get(f"b_N_{own}", np.zeros(1))))


def _inverse(run: Run, label: str) -> Array:
    """``1 / sigma`` of a norm; 0 for an LN of one number, which less itself is exactly 0."""
    nothing = run.model.architecture.norm == "LN" and run.model.d_model == 1
    return np.zeros_like(run.norms[label], np.float64) if nothing else _wide(run.norms[label])


def _wide(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64)  # norms square: float32 would overflow although the model does not


def _norm(rows: Array) -> Array:
    """In float64 (squares would overflow float32 although the model does not), without a wide copy."""
    size = np.asarray(np.sqrt(np.einsum("...i,...i->...", rows, rows, dtype=np.float64)))
    if np.isinf(size).any():  # only its square may be too large
        most = np.maximum(_wide(np.abs(rows).max(axis=-1)), 1.0)
        scaled = rows / most[..., None]
        size = np.asarray(most * np.sqrt(np.einsum("...i,...i->...", scaled, scaled)))
    return size


def _length(matrix: Array) -> float:
    return float(np.linalg.norm(_wide(matrix)))


def _outers(*pairs: tuple[Array, Array]) -> Array:
    """The sum of outer products ``[..., n, m]``, as one product."""
    rows, cols = (np.stack(np.broadcast_arrays(*some), axis=-1) for some in zip(*pairs, strict=True))
    return np.asarray(rows @ cols.swapaxes(-1, -2))


def _outer(rows: Array, cols: Array) -> Array:
    return np.asarray(rows[..., :, None] * cols[..., None, :])
