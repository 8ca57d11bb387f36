"""Checks that the terms of a cache add up to what the cache says was computed; raises, naming an array, if not.

Runs the forward pass of the definition in float64, with patterns, norms and MLP outputs as recorded, and compares it
with the cache layer by layer. Changes by a hook, shifts by padding, and other tokens show up as differences.
Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array, transpose
from symcircuits.core.architecture import FINAL, Head
from symcircuits.loaders.pickled import as_array
from symcircuits.model import Model, Tensors
from symcircuits.model.attending import alibi, alibi_slopes, rotate

__all__ = ["LOW", "check_computed"]

LOW = -1e4  # a masked score is recorded as minus infinity, -1e30 or -1e5
_UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_TF32 = 2.0**-11  # an accelerator may multiply float32 numbers with this precision


def check_computed(model: Model, tensors: Tensors, recorded: Callable[..., Array | None], steps: str = "") -> None:
    """Raise ValueError, naming the first array of a cache that differs from the sum of the terms of ``tensors``.

    ``recorded(name, axes, needed)``: an array of the cache in float64, or None if it is missing (ValueError if it is
    needed); ``axes`` counts the axes after the batch. The stream after the last layer is needed; scores, ``hook_z``,
    the outputs of layers and that of the final norm are compared if present. Row by row,
    ``|difference| <= (16 u + 240 v) f``, with u the unit roundoff of the recorded numbers, v that of the type in which
    products are added up, and f the size of what is rounded: for a row x times a matrix W the root of
    ``sum x_i^2 |W_i|^2``. ``steps``: the type of some steps of the run, if it is less precise than the recorded one.
    The constants are empirical.
    """
    dtype = str(getattr(tensors.ring.dtype, "name", tensors.ring.dtype)).rpartition(".")[2]
    device = str(tensors.ring.device or "cpu").partition(":")[0]
    unit = max(_UNITS.get(dtype, _UNITS["float64"]), _UNITS.get(steps, 0.0))
    unit = _TF32 if dtype == "float32" and device != "cpu" else unit
    _Pass(model, tensors, recorded, 16 * unit + 240 * min(unit, _UNITS["float32"])).run()


@dataclass(slots=True)
class _Pass:
    """The pass in progress. ``size``: the size of the summands of the stream, row by row, ``[..., n, 1]``."""

    model: Model
    tensors: Tensors
    recorded: Callable[..., Array | None]
    off: float
    size: Any = 0.0  # an array after the start

    def run(self) -> None:
        arch, layers = self.model.architecture, self.model.architecture.n_layers
        tokens = as_array(self.tensors.embedded)[0].astype(np.float64) * self.times("m_E")
        self.size = _rows(tokens)
        x = self.held("hook_embed", 2, tokens, needed=not layers, why="are these the tokens of the run?")
        positions = self.positions()
        if arch.positions == "standard":
            x, self.size = x + positions, self.size + _rows(positions)
        for layer in range(layers):
            at = f"blocks.{layer}."
            x = self.held(f"{at}hook_resid_pre", 2, x, why="did a hook add to the stream?")
            added, size = self.attention(layer, x, positions) if arch.heads[layer] else (np.zeros_like(x), 0.0)
            if f"b_O_L{layer}" in self.model.weights:
                bias = self.weight(f"b_O_L{layer}")
                added, size = added + bias, size + np.linalg.norm(bias)
            factor = self.times(f"r[L{layer}]")
            before, added, self.size = self.size, factor * added, abs(factor) * size
            added = self.held(f"{at}hook_attn_out", 2, added, why="did a hook change an output of heads?")
            x, self.size = x + added, before + self.size
            if layer in arch.mlps:
                out = self.array(f"mlp_L{layer}") * self.times(f"r[M{layer}]")
                x, self.size = x + out, self.size + _rows(out)
            why = "did a hook change the stream or an output of heads?"
            x = self.held(f"{at}hook_resid_post", 2, x, needed=layer == layers - 1, why=why)
        if arch.norm and arch.unembed:
            self.final(x)

    # ------------------------------------------------------------------------------------------- the numbers
    def times(self, symbol: str) -> float:
        """A multiplier of the model, which the recorded values include."""
        return self.model.multipliers.get(symbol, 1.0)

    def weight(self, name: str) -> Array:
        return self.model.weights[name].astype(np.float64)

    def array(self, name: str) -> Array:
        return as_array(self.tensors.arrays[name])[0].astype(np.float64)

    def positions(self) -> Array:
        """The positions in use, as in the terms; 0 if there are none."""
        if "P" in self.tensors.arrays:
            return self.array("P")
        return self.weight("W_pos")[: self.tensors.shape[-1]] if "W_pos" in self.model.weights else np.zeros(1)

    def normed(self, x: Array, label: str) -> tuple[Array, Array]:
        """Rows after a norm, before its gain and after it."""
        arch, weights = self.model.architecture, self.model.weights
        if not arch.norm:
            return x, x
        x = x - x.mean(axis=-1, keepdims=True) if arch.norm == "LN" else x
        scales = self.array(f"D_{label}")
        scaled = x * scales[..., None]
        full = scaled * self.weight(f"gain_{label}") if f"gain_{label}" in weights else scaled
        return scaled, full + self.weight(f"b_N_{label}") if f"b_N_{label}" in weights else full

    def attention(self, layer: int, x: Array, positions: Array) -> tuple[Array, Any]:
        """The output of the heads of a layer, and its size; scores and head outputs are compared."""
        scaled, values_of = self.normed(x, f"L{layer}")
        stretch = self.array(f"D_L{layer}")[..., None] if self.model.architecture.norm else 1.0
        cancelled = np.maximum(
            _ratio(self.size * stretch, _rows(scaled)), 1.0
        )  # rounding of terms that cancel in the stream
        read = values_of + positions if self.model.architecture.positions == "shortformer" else values_of
        total: Array = np.zeros_like(x)
        size: Any = 0.0
        names = [f"blocks.{layer}.attn.hook_{what}" for what in ("attn_scores", "pattern", "z")]
        scores, patterns, mixed = (self.recorded(name, 3) for name in names)
        if scores is not None and patterns is not None and np.array_equal(scores, patterns):
            scores = None  # a native model of TransformerLens 4 records its patterns instead of its scores
        for head in self.model.architecture.layer_heads(layer):
            if scores is not None:
                self.scores(head, read, cancelled, scores, names[0])
            values, of_values = self.affine(values_of, "V", self.model.architecture.key_value(head), cancelled)
            pattern = self.array(f"A_{head}")
            z, of_z = pattern @ values, np.abs(pattern) @ of_values
            if mixed is not None:
                z = self.compare(
                    names[2], mixed, mixed[..., head.number, :], z, of_z, f"of {head}; did a hook change it?"
                )
                of_z = _rows(z)
            w_o = self.weight(f"W_O_{head}")
            total = total + z @ w_o.T
            size = size + (of_z * np.linalg.norm(w_o) if mixed is None else _rows(z * np.linalg.norm(w_o, axis=0)))
        return total, size

    def affine(self, rows: Array, glyph: str, label: str, cancelled: Array) -> tuple[Array, Array]:
        """``rows W^T + 1 b^T``, and the size of what is rounded in it."""
        w = self.weight(f"W_{glyph}_{label}")
        bias = self.weight(f"b_{glyph}_{label}") if f"b_{glyph}_{label}" in self.model.weights else np.zeros(len(w))
        return rows @ w.T + bias, _rows(rows * np.linalg.norm(w, axis=0)) * cancelled + np.linalg.norm(bias)

    def scores(self, head: Head, read: Array, cancelled: Array, recorded: Array, name: str) -> None:
        """Scores before softmax, where they are not masked."""
        model, settings = self.model, self.model.settings
        q, of_q = self.affine(read, "Q", str(head), cancelled)
        k, of_k = self.affine(read, "K", model.architecture.key_value(head), cancelled)
        if model.architecture.positions == "rotary":
            q, k = rotate(q, settings.rotary), rotate(k, settings.rotary)
        scale = abs(model.score_scale.get(str(head), 1.0))
        made = q @ transpose(k) * model.score_scale.get(str(head), 1.0)
        size = scale * (of_q * transpose(_rows(k)) + _rows(q) * transpose(of_k))
        if settings.score_cap is not None:
            made = settings.score_cap * np.tanh(made / settings.score_cap)
        if model.architecture.positions == "alibi":
            slope = alibi_slopes(model.architecture.heads[head.layer], settings.geometric_slopes)[head.number]
            made = made + alibi(slope, made.shape[-1])
            size = size + np.abs(alibi(slope, made.shape[-1]))
        theirs = recorded[..., head.number, :, :]
        seen = theirs > LOW
        made, theirs = np.where(seen, made, 0.0), np.where(seen, theirs, 0.0)
        self.compare(
            name,
            recorded,
            theirs[..., None],
            made[..., None],
            size[..., None],
            f"of {head}; did a hook change it, or padding shift it?",
        )

    def final(self, x: Array) -> None:
        """The output of the final norm, before or after its gain, depending on the version."""
        name, either = "ln_final.hook_normalized", self.normed(x, FINAL)
        found = self.recorded(name, 2)
        if found is None or found.shape != x.shape:
            return
        nearer = min(either, key=lambda made: float(np.abs(made - found).max()))
        size = self.size * self.array(f"D_{FINAL}")[..., None] * np.maximum(_ratio(_rows(nearer), _rows(either[0])), 1)
        self.compare(name, found, found, nearer, size + _rows(nearer), "did a hook change it?")

    # ------------------------------------------------------------------------------------------- comparing
    def held(self, name: str, axes: int, ours: Array, *, needed: bool = False, why: str) -> Array:
        """Our rows, or those of the cache if it has them and they agree; the size is then that of the latter."""
        found = self.recorded(name, axes, needed)
        if found is None:
            return ours
        self.compare(name, found, found, ours, self.size, why)
        self.size = _rows(found)
        return found

    def compare(self, name: str, whole: Array, theirs: Array, ours: Array, size: Any, why: str) -> Array:
        """The cache's rows, if no row differs by more than rounding allows; otherwise raises ValueError."""
        if theirs.shape != ours.shape:
            raise ValueError(
                f"{name} of the cache has shape {list(whole.shape)}: does it belong to this model and these tokens?"
            )
        error, bound = _rows(theirs - ours)[..., 0], np.broadcast_to(self.off * size, (*ours.shape[:-1], 1))[..., 0]
        wrong = ~(error <= bound)  # and values that are not finite
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name} of the cache contradicts the weights, tokens and patterns: at {list(place)} it differs "
                f"by {error[place]:.2g}, and rounding allows {bound[place]:.2g} ({why})"
            )
        return theirs


def _rows(x: Array) -> Array:
    return np.asarray(np.linalg.norm(x, axis=-1, keepdims=True))


def _ratio(a: Any, b: Any) -> Array:
    """``a / b``, 0 where both are 0."""
    return np.asarray(a / np.maximum(b, np.finfo(np.float64).tiny))
