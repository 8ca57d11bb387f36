"""Our forward pass compared with a recorded one, array by array, in the order of the forward pass.

A reference is a file (``.npz`` or ``.safetensors``) or a mapping of arrays recorded by another program, under the
hook names of TransformerLens: only if they agree was the recorded model the one that is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.architecture import FINAL
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import need
from symcircuits.loaders.files import check_file, read_weights
from symcircuits.loaders.pickled import as_array
from symcircuits.model import Model, Run
from symcircuits.values.closure import layer_closures
from symcircuits.values.evaluate import Closure, rounding_scale
from symcircuits.verification.recorded_types import notes_of, runs_in, unit_of
from symcircuits.work.files import user_path

__all__ = ["Compared", "Comparison", "compare_with_reference"]

Array = npt.NDArray[Any]
_HALF = 2.0**-11  # the unit roundoff of float16; that of bfloat16 is larger
_LOW = -1e4  # a masked score is recorded as minus infinity, -1e30 or -1e5


@dataclass(frozen=True, slots=True)
class Compared:
    """One recorded array: error and bound of its worst entry; ``what`` is the fault if they cannot be compared."""

    name: str
    place: str
    error: float | None
    bound: float | None
    passed: bool
    what: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """The result of :func:`compare_with_reference`: ``rows`` in the order of the forward pass, ``unknown`` names.

    ``layers`` are the sums of parts of every layer (see :func:`~symcircuits.values.closure.layer_closures`), ``notes``
    what was inferred from the recorded numbers themselves.
    """

    model: str
    run: Run
    rows: tuple[Compared, ...]
    unknown: tuple[str, ...]
    layers: tuple[Closure, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every array agrees, and every layer is the sum of its parts."""
        return bool(self.rows) and all(r.passed for r in self.rows) and all(c.passed for c in self.layers)

    @property
    def first(self) -> Compared | None:
        """The first array of the forward pass that differs."""
        return next((row for row in self.rows if not row.passed), None)

    def json(self) -> dict[str, Any]:
        """The comparison as plain data (schema in docs/json.md)."""
        return higher(dict, "Comparison.json")(self)


def compare_with_reference(
    model: Model, reference: str | os.PathLike[str] | Mapping[str, Any], tokens: Any = None
) -> Comparison:
    """Compare our forward pass with recorded activations, array by array.

    ``reference``: a ``.npz`` or ``.safetensors`` file, or a mapping, with ``tokens`` (unless they are given here),
    ``logits`` and hook names of TransformerLens: ``blocks.0.hook_resid_pre``, ``hook_resid_mid``, ``hook_resid_post``,
    ``hook_attn_out``, ``hook_mlp_out``, ``attn.hook_attn_scores`` and ``attn.hook_pattern`` ``[batch, head, q, k]``,
    ``attn.hook_result [batch, n, head, d_model]``, ``ln1.hook_scale``, ``ln1.hook_normalized``, ``ln2``, ``ln_final``,
    ``hook_embed``, ``hook_pos_embed``. Scores are those before softmax: after a soft cap, with ALiBi's bias.
    ``bound = 64 u (1 + l) f`` with ``u`` the unit roundoff of the recorded numbers (for a model stored in half
    precision, and for numbers that a shorter type can all represent, that of the original run: see
    :mod:`symcircuits.verification.recorded_types`), ``l`` the number of layers before, ``f`` the size of what is
    rounded; it is empirical. In half precision it is at most half the largest number of the array (or ``4 u f``):
    beyond that any model would agree. Raises ValueError on an unreadable file, if tokens are missing or
    differ from these, and if no array is known.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((2,)))
    >>> recorded = {"tokens": [1, 2], "blocks.0.attn.hook_pattern": [[[1, 0], [0.4, 0.6]]] * 2}
    >>> found = compare_with_reference(model, recorded)
    >>> found.ok, found.first.name
    (False, 'blocks.0.attn.hook_pattern')
    """
    need("compare_with_reference", model, Model)
    arrays, dtypes = _recorded(reference)
    run = model.run(_tokens(arrays, tokens))
    rows: list[tuple[tuple[int, int], Compared]] = []
    unknown: list[str] = []
    ours = {name: found for name, a in arrays.items() if (found := _ours(_recorded_as(name, a, arrays), run))}
    known = {name: arrays[name] for name in ours}
    run_in = runs_in(known, dtypes)
    for name, recorded in arrays.items():
        if name in ours:
            kind = run_in.get(dtypes[name], dtypes[name])
            unit = unit_of(name, recorded, kind, model.dtype)
            rows.append((ours[name].order, _compared(name, recorded, dtypes[name], unit, ours[name])))
        elif name != "tokens":
            unknown.append(name)
    if not rows:
        names = ", ".join(unknown[:6]) or "only tokens"
        raise ValueError(
            f"the reference holds no known array (logits, blocks.0.attn.hook_pattern, ...); it holds {names}"
        )
    ordered = tuple(row for _, row in sorted(rows, key=lambda pair: (pair[0], pair[1].name)))
    return Comparison(model.name, run, ordered, tuple(unknown), layer_closures(run), notes=notes_of(run_in))


def _recorded_as(name: str, recorded: Array, arrays: Mapping[str, Array]) -> str:
    """The kind of an array: a native model of TransformerLens 4 may record its patterns instead of its scores."""
    pattern = name.replace("hook_attn_scores", "hook_pattern")
    if not name.endswith("attn.hook_attn_scores") or pattern not in arrays:
        return name
    numbers = all(array.dtype.kind in "fiu" for array in (recorded, arrays[pattern]))
    return pattern if numbers and np.array_equal(recorded, arrays[pattern]) else name


def _recorded(reference: Any) -> tuple[dict[str, Array], dict[str, str]]:
    if isinstance(reference, Mapping):
        found = {str(key): _array(str(key), value) for key, value in reference.items()}
        return {k: array for k, (array, _) in found.items()}, {k: dtype for k, (_, dtype) in found.items()}
    if not isinstance(reference, (str, os.PathLike)):
        raise TypeError(f"a reference is the path of a file, or a mapping of arrays, not a {type(reference).__name__}")
    place = user_path(reference)
    try:
        check_file(place)
    except OSError as error:  # e.g. in a folder without read permission
        raise ValueError(f"{place}: cannot be read ({error.strerror or error})") from error
    stored = read_weights(place, "a reference is", "recorded arrays")
    return dict(stored.weights), dict(stored.dtypes)


def _array(name: str, value: Any) -> tuple[Array, str]:
    try:
        return as_array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be read as an array ({error})") from None


def _tokens(arrays: Mapping[str, Array], given: Any) -> Any:
    recorded = arrays.get("tokens")
    if given is None:
        if recorded is None:
            raise ValueError("the reference does not hold tokens, so give those that it was recorded on")
        return recorded
    if recorded is not None:
        asked = np.asarray(given)
        if asked.shape != recorded.shape and (1, *asked.shape) != recorded.shape:
            raise ValueError(f"the reference was recorded on tokens of shape {list(recorded.shape)}, not on these")
        if not np.array_equal(asked.reshape(recorded.shape), recorded):
            raise ValueError(f"the reference was recorded on other tokens: {recorded.tolist()}")
    return given


# ------------------------------------------------------------------------------- our value of a recorded array
@dataclass(frozen=True, slots=True)
class _Ours:
    """Our values (several if versions record different things), the size of what is rounded, the compared rows."""

    order: tuple[int, int]
    place: str
    values: tuple[Array, ...]
    size: Array
    allowed: Array | None = None


_STAGES = (
    "hook_resid_pre", "ln1.hook_scale", "ln1.hook_normalized", "attn.hook_attn_scores", "attn.scores_premask",
    "attn.hook_pattern", "attn.hook_result", "hook_attn_out", "hook_resid_mid", "ln2.hook_scale", "ln2.hook_normalized",
    "hook_mlp_out", "hook_resid_post",
)  # fmt: skip


def _ours(name: str, run: Run) -> _Ours | None:
    """The run's value under that name; None if it has none."""
    layers = run.model.architecture.n_layers
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if block and int(block[1]) < layers and block[2] in _STAGES:
        layer, hook = int(block[1]), block[2]
        found = _in_block(run, layer, hook)
        return None if found is None else _Ours((layer, _STAGES.index(hook)), f"layer {layer}", *found)
    if name == "logits" and run.logits is not None:
        return _Ours((layers, 2), "logits", (run.logits,), rounding_scale("logits", run))
    if name in ("hook_embed", "hook_pos_embed"):
        found_array = run.arrays["X0"] if name == "hook_embed" else run.arrays.get("P")
        if found_array is None:
            return None
        array = np.broadcast_to(found_array, (*run.tokens.shape, found_array.shape[-1]))
        return _Ours((-1, 0), "embedding", (array,), _size(array))
    if name.startswith("ln_final.hook_"):
        found = _norm(run, FINAL, run.streams[-1], name.rpartition(".")[2])
        return None if found is None else _Ours((layers, 0), "final norm", *found)
    return None


Found = tuple[tuple[Array, ...], Array] | tuple[tuple[Array, ...], Array, Array | None]


def _in_block(run: Run, layer: int, hook: str) -> Found | None:
    before, after, mlp = run.streams[layer], run.streams[layer + 1], run.mlps.get(f"L{layer}")
    middle = after if mlp is None else after - mlp
    makers: dict[str, Callable[[], Found | None]] = {
        "hook_resid_pre": lambda: ((before,), _size(before)),
        "hook_resid_post": lambda: ((after,), _size(after)),
        "hook_resid_mid": lambda: ((middle,), _size(middle) + _size(after)),
        "hook_attn_out": lambda: ((middle - before,), _size(before) + _size(after) + _size(middle)),
        "hook_mlp_out": lambda: None if mlp is None else ((mlp,), _mlp_size(run, layer, mlp)),
        "attn.hook_result": lambda: _results(run, layer),
        "attn.hook_pattern": lambda: _patterns(run, layer),
    }
    if hook in makers:
        return makers[hook]()
    if hook.startswith("ln"):
        reads, label = (before, "L") if hook[2] == "1" else (before if run.model.architecture.parallel else middle, "M")
        return _norm(run, f"{label}{layer}", reads, hook.partition(".")[2])
    return _scores(run, layer)


def _heads(run: Run, layer: int, arrays: Callable[[str], Array], axis: int) -> Array | None:
    heads = [arrays(str(head)) for head in run.model.architecture.layer_heads(layer)]
    return np.stack(heads, axis=axis) if heads else None


def _scores(run: Run, layer: int) -> Found | None:
    scores = _heads(run, layer, lambda h: run.scores[h], -3)
    size = _heads(run, layer, lambda h: rounding_scale(f"scores:{h}", run) + _added(run, h), -3)
    return None if scores is None or size is None else ((scores,), size, run.masks[f"L{layer}"])


def _added(run: Run, label: str) -> Array | float:
    """The size of what is added between the products and the scores before softmax: by ALiBi or a mask."""
    if run.model.architecture.positions != "alibi" and (run.attended is None or run.attended.added is None):
        return 0.0
    seen = np.isfinite(run.scores[label])
    return np.abs(np.where(seen, run.scores[label], 0)) + np.abs(np.where(seen, run.products[label], 0))


def _patterns(run: Run, layer: int) -> Found | None:
    """A pattern changes by at most twice the change of a score in its row."""
    patterns, found = _heads(run, layer, lambda h: run.patterns[h], -3), _scores(run, layer)
    return None if patterns is None or found is None else ((patterns,), 1 + 2 * found[1].max(axis=-1, keepdims=True))


def _results(run: Run, layer: int) -> Found | None:
    arch, w = run.model.architecture, run.arrays

    def size(label: str) -> Array:
        shared = arch.key_value(arch.head(label))
        values = _read_size(run, f"L{layer}", run.streams[layer]) * _length(w[f"W_V_{shared}"])
        values = values + _length(w.get(f"b_V_{shared}", np.zeros(1)))
        return np.asarray(run.patterns[label] @ values * _length(w[f"W_O_{label}"]))

    results, sizes = _heads(run, layer, lambda h: run.results[h], -2), _heads(run, layer, size, -2)
    return None if results is None or sizes is None else ((results,), sizes)


def _norm(run: Run, label: str, reads: Array, hook: str) -> Found | None:
    """sigma of a norm, or the rows divided by it: before gain and bias, as in TransformerLens 3, or after."""
    arch, w = run.model.architecture, run.arrays
    if label not in run.norms or hook not in ("hook_scale", "hook_normalized"):
        return None
    inverse = run.norms[label][..., None]
    if hook == "hook_scale":
        return (1 / inverse,), _size(reads)
    rows = (reads - reads.mean(axis=-1, keepdims=True) if arch.norm == "LN" else reads) * inverse
    full = rows * w.get(f"gain_{label}", 1) + w.get(f"b_N_{label}", 0)
    return (rows, full), _size(reads) * inverse + _size(full)


def _mlp_size(run: Run, layer: int, mlp: Array) -> Array:
    arch, w, at = run.model.architecture, run.arrays, f"L{layer}"
    middle = run.streams[layer] if arch.parallel else run.streams[layer + 1] - mlp
    size = _read_size(run, f"M{layer}", middle)
    inner = 1 + size * _length(w[f"W_in_{at}"]) + _length(w.get(f"b_in_{at}", np.zeros(1)))
    if arch.gated:
        inner = inner * (1 + size * _length(w[f"W_gate_{at}"]) + _length(w.get(f"b_gate_{at}", np.zeros(1))))
    return np.asarray(inner * _length(w[f"W_out_{at}"])) + _size(mlp)


def _read_size(run: Run, label: str, stream: Array) -> Array:
    """The size of rows as read: through a norm, that of its summands."""
    size, w = _size(stream), run.arrays
    if not run.model.architecture.norm:
        return size
    gain = float(np.abs(w.get(f"gain_{label}", np.ones(1))).max())
    return size * run.norms[label][..., None] * gain + _length(w.get(f"b_N_{label}", np.zeros(1)))


def _size(rows: Array) -> Array:
    return np.asarray(np.linalg.norm(rows, axis=-1, keepdims=True))


def _length(matrix: Array) -> float:
    return float(np.linalg.norm(matrix))


# ------------------------------------------------------------------------------------------------ comparing
def _compared(name: str, recorded: Array, dtype: str, unit: float, ours: _Ours) -> Compared:
    def wrong(what: str) -> Compared:
        return Compared(name, ours.place, None, None, False, what=what)

    shape = ours.values[0].shape
    if recorded.dtype.kind not in "fiu":
        return wrong(f"it holds {recorded.dtype}, not numbers")
    if recorded.shape != shape and recorded.shape not in ((1, *shape), shape[:-1]):
        return wrong(f"its shape is {list(recorded.shape)}; the model's is {list(shape)}")
    theirs = recorded.reshape(shape).astype(np.float64)
    allowed = np.ones(shape, dtype=bool)
    if ours.allowed is not None:
        allowed = np.broadcast_to(ours.allowed, shape)
        if not name.endswith("premask") and (theirs[~allowed] > _LOW).any():
            return wrong("it has scores where the model's mask leaves none")
        if (
            name.endswith("hook_attn_scores")
            and (theirs[allowed] < _LOW).any()
            and ours.values[0][allowed].min() > _LOW
        ):
            return wrong("it masks keys that the model allows (padded tokens, or another mask)")
    if not np.isfinite(theirs[allowed]).all():
        return wrong(f"it holds numbers that are not finite{_overflow(dtype)}")
    bound = np.broadcast_to(64 * unit * (1 + max(ours.order[0], 0)) * ours.size, shape)[allowed]
    least = np.broadcast_to(4 * unit * ours.size, shape)[allowed]
    error, bound_there = min(
        _worst(theirs[allowed], v, np.minimum(bound, _telling(theirs[allowed], v, unit, least)))
        for v in (value[allowed] for value in ours.values)
    )[1:]
    return Compared(name, ours.place, error, bound_there, error <= bound_there)


def _telling(theirs: Array, value: Array, unit: float, least: Array) -> Array | float:
    """The largest bound that still tells models apart: in half precision half the largest number, or ``least``."""
    if unit < _HALF or not theirs.size:
        return np.inf
    return np.asarray(np.maximum(least, min(np.abs(theirs).max(), np.abs(value).max()) / 2))


def _worst(theirs: Array, value: Array, bound: Array) -> tuple[float, float, float]:
    """Ratio, error and bound of the entry with the largest ratio."""
    error = np.abs(theirs - value)
    ratio = np.where(error == 0, 0.0, error / np.maximum(bound, np.finfo(np.float64).tiny))
    worst = int(np.argmax(ratio))
    return float(ratio[worst]), float(error[worst]), float(bound[worst])


def _overflow(dtype: str) -> str:
    return "; float16 ends at 65504, so it may have overflowed" if dtype == "float16" else ""
