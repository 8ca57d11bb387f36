"""The size of what is rounded: the f of the bound ``16 u (sum of |summands| + f)`` of a closure, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.architecture import FINAL
from symcircuits.core.attachments import norm_of
from symcircuits.model import Run

__all__ = ["rounding_scale"]

Array = npt.NDArray[Any]


def rounding_scale(target: str, run: Run, fused: bool = False) -> Array:
    """The f of the bound: the size of the factors whose product is rounded, entry by entry.

    q and k may be small by cancellation, and carry the rounding of the stream that they are made of, a sum with a
    step for each layer before, and where d_head is small (4 or less, where all of a query may cancel, or a sixteenth
    of d_model or less) that of the products: f of scores is at least
    ``scale (|x_i||W_Q||k_j| + |q_i||x_j||W_K|) l / 16`` (Frobenius norms of the weights), l the number of layers
    before, and one more where d_head is small. ``fused`` says that W_QK itself is multiplied with: f then is at least
    ``scale |x_i||W_QK||x_j| / 16``, at any size. Attached sources and what is left beside them may be far larger
    than the stream that they add up to: the size of a row of the stream is then at least that of the largest row of
    each of them, added.
    """
    arrays, arch = run.arrays, run.model.architecture
    if target == "stream":
        return np.asarray(_norm(run.streams[-1]) + _apart(run, arch.n_layers))[..., None]
    if target == "logits":
        size = _read_size(run, FINAL, arch.n_layers)[..., None] * _norm(arrays["W_U"])
        return np.asarray(size * abs(float(arrays.get("m_U", 1.0))))
    label = target.partition(":")[2]
    if target.startswith("readout:"):
        return _readout_size(run, label)
    head = arch.head(label)
    x = _read_size(run, f"L{head.layer}", head.layer)
    read = _read(run, head.layer)
    w_q, w_k = arrays[f"W_Q_{label}"], arrays[f"W_K_{arch.key_value(head)}"]
    b_q, b_k = arrays.get(f"b_Q_{label}", 0), arrays.get(f"b_K_{arch.key_value(head)}", 0)
    q, k = _norm(read @ w_q.T + b_q), _norm(read @ w_k.T + b_k)
    if arch.parts:
        more = _apart(run, head.layer)
        more = _through(run, f"L{head.layer}", more) if arch.norm else more
        q, k = q + more * _length(w_q), k + more * _length(w_k)
    made = [x * _length(w_q), x * _length(w_k)]
    if arch.qk_norm:  # queries and keys of unit size, times their gains
        gains = [float(np.abs(_wide(arrays[f"gain_{side}{head.layer}"])).max()) for side in "QK"]
        unit = [_wide(run.norms[f"Q{label}"]) * gains[0], _wide(run.norms[f"K{arch.key_value(head)}"]) * gains[1]]
        (q, k), made = (q * unit[0], k * unit[1]), [made[0] * unit[0], made[1] * unit[1]]
    size = _outer(q, k)
    small = len(w_q) <= 4 or w_q.shape[1] >= 16 * len(w_q)
    steps = head.layer + int(small)
    if steps:
        size = np.maximum(size, (_outer(made[0], k) + _outer(q, made[1])) * steps / 16)
    if fused:
        size = np.maximum(size, _outer(x, x) * _length(arrays[f"W_QK_{label}"]) / 16)
    return np.asarray(size * (abs(_wide(arrays[f"scale_{label}"])) if arch.scale else 1.0))


def _readout_size(run: Run, name: str) -> Array:
    """``|x_i||w|`` of a readout: of the MLP's input by what its layer has, which is what it is made of."""
    reading = run.model.architecture.reading(name)
    size = _norm(run.streams[reading.layer]) + _apart(run, reading.layer)
    if reading.at == "mlp" and not run.model.architecture.parallel:
        size = size + sum(_norm(run.results[str(h)]) for h in run.model.architecture.layer_heads(reading.layer))
    size = _through(run, reading.norm, size) if reading.norm else size
    return np.asarray(size[..., None] * _norm(run.arrays[reading.argument]))


def _read(run: Run, layer: int) -> Array:
    """What the queries and keys of a layer are made of: its stream, normed, with the position where it enters there."""
    arrays, arch, read, label = run.arrays, run.model.architecture, run.streams[layer], f"L{layer}"
    if arch.norm:
        read = read - read.mean(axis=-1, keepdims=True) if arch.norm == "LN" else read
        read = read * run.norms[label][..., None] * arrays.get(f"gain_{label}", 1) + arrays.get(f"b_N_{label}", 0)
    return np.asarray(read + arrays["P"] if arch.positions == "shortformer" else read)


def _read_size(run: Run, label: str, point: int) -> Array:
    """The size of what is rounded when rows are read: their norm, through a norm that of its summands."""
    arrays, arch = run.arrays, run.model.architecture
    size = _norm(run.streams[point]) + _apart(run, point)
    size = _through(run, label, size) if arch.norm else size
    if arch.positions == "shortformer" and label != FINAL:
        size = size + _norm(arrays["P"])
    return size


def _apart(run: Run, point: int) -> Any:
    """By how much attached sources in the stream at a point, each by its largest row, are larger than its rows."""
    parts = [p for p in run.model.architecture.parts if p.layer + (p.of == "mlp") <= point]
    if not parts:
        return 0.0
    size = sum(_norm(run.arrays[p.argument]).max(axis=-1, keepdims=True) for p in parts)
    return np.maximum(size - _norm(run.streams[point]), 0.0)


def _through(run: Run, label: str, size: Array) -> Array:
    """The size of rows after a norm: times its ``1 / sigma`` and largest gain, and the size of its bias."""
    own = norm_of(label)
    gain = float(np.abs(_wide(run.arrays.get(f"gain_{own}", np.ones(1)))).max())
    return np.asarray(size * _wide(run.norms[label]) * gain + _norm(run.arrays.get(f"b_N_{own}", np.zeros(1))))


def _wide(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64)  # a norm squares: float32 would overflow where the model does not


def _norm(rows: Array) -> Array:
    """In float64: a norm squares, and float32 would overflow where the model does not; without a wide copy."""
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", rows, rows, dtype=np.float64)))


def _length(matrix: Array) -> float:
    return float(np.linalg.norm(_wide(matrix)))


def _outer(rows: Array, cols: Array) -> Array:
    return np.asarray(rows[..., :, None] * cols[..., None, :])
