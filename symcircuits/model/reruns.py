"""Many edits of a run at once: each starts at the layer that it changes, and all share the same products.

The end of each at one position is computed, and nothing is recorded. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL, Head
from symcircuits.model.attached import arrays_of
from symcircuits.model.edits import before, check_pattern, end_of
from symcircuits.model.forward import Changes, Pass, Record, finite, product
from symcircuits.model.needs import Converted, check_run
from symcircuits.model.transformer import Run

__all__ = ["Edit", "rerun_each"]

_AT_ONCE: Final = 2**20  # numbers in the streams computed together
_ROWS: Final = 1024  # rows of these that go through an MLP together: its hidden layer is wide

Edit = tuple[Head, Array | None]  # a head, and the pattern that replaces its own; None: it adds nothing


def rerun_each(run: Run, edits: Sequence[tuple[str, Array | None]], target: str, position: int) -> Array:
    """The end of the model at a position after each edit by itself, ``[edits, ..., width]``; the rest is recomputed.

    An edit is a head's label and the pattern ``[..., n, n]`` that replaces the softmax of its scores, or None: the head
    then adds nothing to the stream. ``target``: ``"logits"`` (before their soft cap), ``"stream"`` (the last) or
    ``"readout:probe"``. Raises ValueError on a head that does not exist and on a pattern of another shape.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model, rerun
    >>> run = random_model(attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> found = rerun_each(run, [("L1H0", np.eye(3)), ("L0H0", None)], "logits", 2)
    >>> bool(np.allclose(found[0], rerun(run, patterns={"L1H0": np.eye(3)}).end[2])), found.shape
    (True, (2, 11))
    >>> bool(np.allclose(found[1], rerun(run, removed=["L0H0"]).end[2]))
    True
    """
    read: list[Edit] = []
    for label, pattern in edits:
        head = run.model.architecture.head(label)
        if pattern is not None:
            check_pattern(run, str(head), np.shape(pattern))
        read.append((head, pattern))
    check_run(run.model, run.tokens, run.dtype)
    order = sorted(range(len(read)), key=lambda i: (read[i][0].layer, read[i][1] is not None, read[i][0]))
    most = max(1, _AT_ONCE // max(1, run.streams[0].size))
    end = end_of(run, target)[..., position, :]
    found = np.empty((len(read), *end.shape), run.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # reported by finite, with the place
        for at in range(0, len(order), most):
            some = order[at : at + most]
            found[some] = end  # for edits that change nothing before it
            changed = _Reruns(run, target, position).ends([read[i] for i in some])
            if len(changed):
                found[some[: len(changed)]] = changed
    return found


class _Reruns(Pass):
    """Several reruns in progress, with an axis in front of those of the run."""

    def __init__(self, run: Run, target: str, position: int) -> None:
        model, n = run.model, run.tokens.shape[-1]
        w, scales = Converted(model.weights, run.dtype), {**model.score_scale, **model.multipliers}
        super().__init__(model.architecture, w, scales, model.settings, n)
        self.attached = arrays_of(model.architecture, model.attached, run.tokens.shape, run.dtype)
        self.attended, self.of = run.attended, run
        self.kind, _, self.readout = target.partition(":")
        self.position = range(n)[position]
        self.rows = slice(None)  # the positions still needed
        self.projected: Mapping[str, Array] = {}

    def ends(self, edits: Sequence[Edit]) -> Array:
        """The end at the position, for edits in the order of their layers; none may begin after the target's layer."""
        arch, last = self.architecture, self.architecture.n_layers - 1
        joining = {layer: [*some] for layer, some in groupby(edits, key=lambda edit: edit[0].layer)}
        stream = np.zeros((0, *self.of.streams[0].shape), self.of.dtype)
        for layer in range(min(joining), last + 1):
            if layer == last:
                self.rows = slice(self.position, self.position + 1)
            read = [stream]
            after = [self.attention(layer, stream)] if len(stream) else []
            if layer in joining:
                after.append(self.edited(layer, joining[layer]))
                read.append(np.broadcast_to(self.of.streams[layer], (len(after[-1]), *stream.shape[1:])))
            self.record = Record()
            stream = np.concatenate(after)
            if layer in arch.mlps:
                given = np.concatenate(read)[..., self.rows, :] if arch.parallel else stream
                self.read_out("mlp", layer, given)
                stream = stream + self.times(f"r[M{layer}]", self.mlp(layer, given))
            stream = finite(stream, f"the rows of the residual stream after layer {layer}")
            for part in arch.parts_of("added", layer + 1):
                added = np.broadcast_to(self.attached[part.argument], self.of.streams[0].shape)
                stream = stream + added[..., self.rows, :]
            self.read_out("stream", layer + 1, stream)
            if self.readout in self.record.readouts:
                return self.at_position(self.record.readouts[self.readout])
        if self.readout:
            return stream[:0, ..., 0, :]  # the target is before any of them
        stream = self.at_position(stream)[..., None, :]
        if self.kind == "stream" or not arch.unembed:
            return stream[..., 0, :]
        logits = self.times("m_U", self.affine(self.normed(stream, FINAL), "W_U", "b_U"))
        return finite(logits, "the logits")[..., 0, :]

    def at_position(self, x: Array) -> Array:
        """The rows at the position."""
        return np.asarray(x[..., 0 if self.rows.start is not None else self.position, :])

    def edited(self, layer: int, edits: Sequence[Edit]) -> Array:
        """The stream after the heads of a layer with these edits, each by itself."""
        removed = [str(head) for head, pattern in edits if pattern is None]
        where = np.eye(len(removed), dtype=bool).reshape(*(len(removed),) * 2, *(1,) * self.of.streams[0].ndim)
        changes = [Changes({}, dict(zip(removed, where, strict=True)))] if removed else []
        others = [(str(head), pattern) for head, pattern in edits if pattern is not None]
        for label, some in groupby(others, key=lambda edit: edit[0]):
            changes.append(Changes({label: np.stack([pattern for _, pattern in some]).astype(self.of.dtype)}))
        found = []
        for one in changes:
            self.record = before(self.of, layer)
            self.changes = Changes(one.given, one.removed, start=layer, before=self.record)
            found.append(super().attention(layer, self.of.streams[layer])[..., self.rows, :])
        return np.concatenate(found)

    def attention(self, layer: int, stream: Array) -> Array:
        """The stream after the heads of a layer, with one product for all their queries, keys and values."""
        self.record = Record()
        self.changes = Changes(start=-1, before=self.record)  # nothing is reused, and no scores are recorded
        heads, shared = self.architecture.layer_heads(layer), self.architecture.key_value
        after = stream[..., self.rows, :]
        if heads:
            read, values_of = self.read(layer, stream)
            names = [[f"W_Q_{head}" for head in heads], [f"W_K_{shared(head)}" for head in heads]]
            values = [f"W_V_{shared(head)}" for head in heads]
            if read is values_of:
                self.projected = self.project(read, [*names[0], *names[1], *values])
            else:
                self.projected = {**self.project(read, [*names[0], *names[1]]), **self.project(values_of, values)}
            allowed = self.allowed(layer, self.settings.windows[layer] if self.settings.windows else None)
            mixed = [
                self.attends(head, read, allowed)[..., self.rows, :]
                @ self.affine(values_of, f"W_V_{shared(head)}", f"b_V_{shared(head)}")
                for head in heads
            ]
            self.projected = {}
            outputs = np.concatenate([self.w[f"W_O_{head}"] for head in heads], axis=1)
            after = after + self.times(f"r[L{layer}]", product(np.concatenate(mixed, axis=-1), outputs))
        return after + self.times(f"r[L{layer}]", self.w[f"b_O_L{layer}"]) if f"b_O_L{layer}" in self.w else after

    def project(self, rows: Array, names: Sequence[str]) -> dict[str, Array]:
        """``x W^T`` for several weights."""
        names = [*dict.fromkeys(names)]
        weights = [self.w[name] for name in names]
        cuts = np.cumsum([len(weight) for weight in weights])[:-1]
        found = np.split(product(rows, np.concatenate(weights)), cuts, axis=-1)
        return dict(zip(names, found, strict=True))

    def affine(self, x: Array, weight: str, bias: str) -> Array:
        """``x W^T + 1 b^T``; the product is reused if it is known."""
        if weight not in self.projected:
            return super().affine(x, weight, bias)
        found = self.projected[weight]
        return found + self.w[bias] if bias in self.w else found

    def mlp(self, layer: int, stream: Array) -> Array:
        """The output of the MLP of a layer, some reruns at a time."""
        some = max(1, _ROWS * len(stream) // max(1, stream[..., 0].size))
        return np.concatenate(
            [super(_Reruns, self).mlp(layer, stream[at : at + some]) for at in range(0, len(stream), some)]
        )
