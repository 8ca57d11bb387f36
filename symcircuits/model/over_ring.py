"""The forward pass with patterns, norms and MLP outputs given, over any ring: only sums and products of matrices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array, Ring, transpose
from symcircuits.core.architecture import FINAL, Architecture, Head
from symcircuits.core.attachments import norm_of
from symcircuits.core.words import scalar_argument
from symcircuits.model.transformer import Run
from symcircuits.model.weights import matrix_names

__all__ = ["Frozen", "frozen", "matrices_of", "queries_and_keys"]


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """The result of :func:`frozen`: streams at points 0 to n_layers, logits (or None), scores and results by head.

    ``normed``: the output of each norm, by its label; of those inside MLPs only if a readout reads
    there. ``readouts``: the values of attached readouts by name; ``reads``: by layer, the inputs of queries and keys.
    """

    streams: tuple[Array, ...]
    logits: Array | None
    scores: Mapping[str, Array]
    results: Mapping[str, Array]
    normed: Mapping[str, Array] = field(default_factory=dict)
    readouts: Mapping[str, Array] = field(default_factory=dict)
    reads: Mapping[str, Array] = field(default_factory=dict)


def matrices_of(run: Run) -> dict[str, Array]:
    """The arrays with which :func:`frozen` repeats a run with its own patterns, norms and MLP outputs.

    Biases are columns ``[d, 1]``, gains diagonal matrices.

    >>> import numpy as np
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> from symcircuits.arrays.rings import Floats
    >>> run = random_model(attention_only((2, 2), biases=True)).run([3, 1, 4])
    >>> bool(np.allclose(frozen(run.model.architecture, matrices_of(run), Floats()).logits, run.logits))
    True
    """
    found = {name: run.arrays[name] for name in matrix_names(run.model.architecture)}
    found |= {name: array[:, None] for name, array in found.items() if name.startswith("b_")}
    return found | {name: np.diag(array) for name, array in found.items() if name.startswith("gain_")}


def frozen(
    architecture: Architecture, matrices: Mapping[str, Any], ring: Ring, computed: bool = False,
    added: Mapping[str, Array] | None = None, kept: Collection[str] | None = None,
) -> Frozen:  # fmt: skip
    """The forward pass of the definition with attention patterns, norms and MLP outputs held fixed, over a ring.

    ``X_0 = t W_E^T (+ P)``; heads and logits read ``Y = D X C^T gain^T + 1 b_N^T`` if there is a norm (no ``C`` in
    an RMS norm), else ``Y = X``; scores ``scale (Y W_Q^T + 1 b_Q^T)(Y W_K^T + 1 b_K^T)^T``, of ``Y + P`` in their two
    factors if positions is "shortformer", with row i of each times ``R_i`` if it is "rotary", neither masked nor
    put through a softmax; a head adds
    ``A (Y W_V^T + 1 b_V^T) W_O^T``, a layer ``1 b_O^T`` and its ``mlp`` too; logits ``Y W_U^T + 1 b_U^T``. Multipliers
    multiply ``t W_E^T`` (``m_E``), what the heads of a layer and its b_O add (``r_L0``), its ``mlp`` (``r_M0``) and
    the logits (``m_U``).

    ``computed``: patterns without softmax are computed, ``A = mask * scores`` entry by entry, and so are the outputs of
    bilinear MLPs, ``((Y W_in^T + 1 b_in^T) * (Y W_gate^T + 1 b_gate^T)) W_out^T + 1 b_out^T``; only norms are fixed.

    ``added``: by head label, what replaces the head's output in the stream; ``results`` still holds its own
    output, from the stream that it reads. ``kept``: the heads to keep, by label; all others
    add nothing, and have neither scores nor results.

    A stream split into attached sources is their sum plus the ``rest``; so is an ``mlp``; a source
    added at a point is added there; readouts compute ``Y probe^T``.

    ``matrices``, by argument name: ``t [n, d_vocab]``, ``W_E [d_model, d_vocab]``, ``P [n, d_model]``, ``A_L0H1
    [n, n]``, ``W_Q_L0H1 [d_head, d_model]`` and the like, ``R_L0H1 [n, d_head, d_head]``, scalars ``scale_L0H1`` and
    the multipliers, ``ones [n, 1]``, and the biases as columns, ``b_V_L0H1 [d_head, 1]``. Shapes are not checked
    beyond what a product requires: every matrix may be k by k. A bias is used only if ``architecture.biases``
    has it. Raises ValueError if a matrix is missing.

    >>> import numpy as np
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.arrays.rings import PrimeField
    >>> field, rng = PrimeField(), np.random.default_rng(0)
    >>> x = {name: field.random((2, 2), rng) for name in ("t", "W_E", "W_U")}
    >>> logits = frozen(attention_only(()), x, field).logits
    >>> field.equal(logits, field.asarray(x["t"].astype(object) @ x["W_E"].T @ x["W_U"].T))
    True
    """
    pass_ = (_Computed if computed else _Pass)(architecture, matrices, ring)
    stream = pass_.times("m_E", pass_.through(pass_.at("t"), "W_E"))
    if architecture.positions == "standard":
        stream = ring.add(stream, pass_.at("P"))
    stream = pass_.reached(0, stream)
    streams, scores, results, reads = [stream], {}, {}, {}
    for layer in range(architecture.n_layers):
        normed = pass_.normed(stream, f"L{layer}")
        read = ring.add(normed, pass_.at("P")) if architecture.positions == "shortformer" else normed
        reads[f"L{layer}"], after = read, stream
        for head in architecture.layer_heads(layer):
            if kept is not None and str(head) not in kept:
                continue
            scores[str(head)] = pass_.scores(head, read)
            result = pass_.result(head, normed, pass_.pattern(head, scores[str(head)]))
            results[str(head)] = pass_.times(f"r[L{layer}]", result)
            after = ring.add(after, (results if added is None else added)[str(head)])
        if f"b_O[L{layer}]" in architecture.biases:
            after = ring.add(after, pass_.times(f"r[L{layer}]", pass_.through(pass_.at("ones"), f"b_O_L{layer}")))
        read = stream if architecture.parallel else after
        pass_.read_out("mlp", layer, read)
        if layer in architecture.mlps:
            after = ring.add(after, pass_.times(f"r[M{layer}]", pass_.mlp(layer, read)))
        stream = pass_.reached(layer + 1, after)
        streams.append(stream)
    logits = None
    if architecture.unembed:
        logits = pass_.times("m_U", pass_.affine(pass_.normed(stream, FINAL), "W_U", "b_U", "b_U"))
    return Frozen(
        tuple(streams), logits, scores, results, normed=pass_.seen, readouts=pass_.readouts, reads=reads
    )  # fmt: skip


def queries_and_keys(
    architecture: Architecture, matrices: Mapping[str, Any], ring: Ring, head: Head, read: Array
) -> tuple[Array, Array]:
    """The queries and the keys of a head that reads these rows, as in :func:`frozen`: normed and rotated.

    >>> import numpy as np
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.arrays.rings import Floats
    >>> arch = attention_only((1,))
    >>> w = {"W_Q_L0H0": np.array([[2.0]]), "W_K_L0H0": np.array([[3.0]])}
    >>> queries, keys = queries_and_keys(arch, w, Floats(), arch.head("L0H0"), np.array([[1.0], [5.0]]))
    >>> queries.T.tolist(), keys.T.tolist()
    ([[2.0, 10.0]], [[3.0, 15.0]])
    """
    return _Pass(architecture, matrices, ring).queries_and_keys(head, read)


@dataclass(frozen=True, slots=True)
class _Pass:
    architecture: Architecture
    matrices: Mapping[str, Any]
    ring: Ring
    seen: dict[str, Array] = field(default_factory=dict)  # the output of each norm
    readouts: dict[str, Array] = field(default_factory=dict)

    def at(self, name: str) -> Array:
        if name not in self.matrices:
            raise ValueError(f"the frozen forward pass needs {name}, which is not among the matrices")
        return self.ring.asarray(self.matrices[name])

    def times(self, multiplier: str, x: Array) -> Array:
        """The multiplier of that name times a matrix; the matrix itself if there is no such multiplier."""
        there = multiplier in self.architecture.multipliers
        return self.ring.times(self.at(scalar_argument(multiplier)), x) if there else x

    def through(self, x: Array, name: str) -> Array:
        """``x M^T``."""
        return self.ring.matmul(x, transpose(self.at(name)))

    def affine(self, x: Array, weight: str, bias: str, source: str) -> Array:
        """``x W^T + 1 b^T``, the second term if the architecture has that bias."""
        product = self.through(x, weight)
        if source not in self.architecture.biases:
            return product
        return self.ring.add(product, self.through(self.at("ones"), bias))

    def normed(self, x: Array, label: str) -> Array:
        """``D x C^T gain^T + 1 b_N^T``, with the parts that the norm has."""
        arch = self.architecture
        if not arch.norm:
            return x
        x = self.ring.matmul(self.at(f"D_{label}"), x)
        x = self.through(x, "C") if arch.norm == "LN" else x
        own = norm_of(label)
        x = self.through(x, f"gain_{own}") if own in arch.gains else x
        if f"b_N[{own}]" in arch.biases:
            x = self.ring.add(x, self.through(self.at("ones"), f"b_N_{own}"))
        self.seen[label] = x
        return x

    def reached(self, point: int, stream: Array) -> Array:
        """The stream at a point: split into sources and the rest, with additions, and read."""
        if self.architecture.split == point:
            stream = self.sum_of(f"rest_L{point}", "stream", point)
        for part in self.architecture.parts_of("added", point):
            stream = self.ring.add(stream, self.at(part.argument))
        self.read_out("stream", point, stream)
        return stream

    def sum_of(self, rest: str, of: str, layer: int) -> Array:
        """The sum of the parts and the rest."""
        total = self.at(rest)
        for part in self.architecture.parts_of(of, layer):
            total = self.ring.add(total, self.at(part.argument))
        return total

    def read_out(self, at: str, layer: int, stream: Array) -> None:
        """Compute the readouts at this place."""
        for reading in self.architecture.readings:
            if (reading.at, reading.layer) == (at, layer):
                read = self.normed(stream, reading.norm) if reading.norm else stream
                self.readouts[reading.name] = self.through(read, reading.argument)

    def scores(self, head: Head, read: Array) -> Array:
        queries, keys = self.queries_and_keys(head, read)
        raw = self.ring.matmul(queries, transpose(keys))
        return self.ring.times(self.at(f"scale_{head}"), raw) if self.architecture.scale else raw

    def queries_and_keys(self, head: Head, read: Array) -> tuple[Array, Array]:
        """The two factors of the scores of a head."""
        shared = self.architecture.key_value(head)
        queries = self.affine(read, f"W_Q_{head}", f"b_Q_{head}", f"b_Q[{head}]")
        keys = self.affine(read, f"W_K_{shared}", f"b_K_{shared}", f"b_K[{shared}]")
        if self.architecture.qk_norm:
            queries = self.scaled(queries, f"Q{head}", f"Q{head.layer}")
            keys = self.scaled(keys, f"K{shared}", f"K{head.layer}")
        if self.architecture.positions == "rotary":
            queries, keys = self.turned(queries, head), self.turned(keys, head)
        return queries, keys

    def scaled(self, rows: Array, label: str, gain: str) -> Array:
        """``D rows gain^T``."""
        return self.through(self.ring.matmul(self.at(f"D_{label}"), rows), f"gain_{gain}")

    def turned(self, rows: Array, head: Head) -> Array:
        """Row i times the i-th matrix of ``R [n, d_head, d_head]``."""
        return self.ring.matmul(rows[..., :, None, :], self.at(f"R_{head}"))[..., :, 0, :]

    def pattern(self, head: Head, scores: Array) -> Array:
        """The pattern of a head: given."""
        return self.at(f"A_{head}")

    def mlp(self, layer: int, stream: Array) -> Array:
        """The output of the MLP of a layer: given, or the sum of attached sources and its rest."""
        apart = self.architecture.parts_of("mlp", layer)
        return self.sum_of(f"rest_M{layer}", "mlp", layer) if apart else self.at(f"mlp_L{layer}")

    def result(self, head: Head, stream: Array, pattern: Array) -> Array:
        shared = self.architecture.key_value(head)
        values = self.affine(stream, f"W_V_{shared}", f"b_V_{shared}", f"b_V[{shared}]")
        return self.through(self.ring.matmul(pattern, values), f"W_O_{head}")


@dataclass(frozen=True, slots=True)
class _Computed(_Pass):
    """The pass that computes polynomials: patterns without softmax, bilinear MLPs."""

    def pattern(self, head: Head, scores: Array) -> Array:
        if self.architecture.softmax:
            return self.at(f"A_{head}")
        return self.ring.times(self.at(f"mask_L{head.layer}"), scores)

    def mlp(self, layer: int, stream: Array) -> Array:
        if not self.architecture.bilinear:
            return self.at(f"mlp_L{layer}")
        y = self.normed(stream, f"M{layer}")
        inner, gate = (self.affine(y, f"W_{k}_L{layer}", f"b_{k}_L{layer}", f"b_{k}[L{layer}]") for k in ("in", "gate"))
        hidden = self.ring.times(inner, gate)
        out = self.through(hidden, f"W_out_L{layer}")
        if f"b_out[L{layer}]" not in self.architecture.biases:
            return out
        return self.ring.add(out, self.through(self.at("ones"), f"b_out_L{layer}"))
