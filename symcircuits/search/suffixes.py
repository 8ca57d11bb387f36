"""Partial paths, grown from the readout back: what they read of the stream, and bounds on all terms behind them.

A partial path is a suffix of heads. Everything before it enters linearly: the term of a path is ``L X R``, with X
the output of the source and the earlier heads, ``L [rows, n]`` the product of the patterns (and norms) of the suffix,
and ``R [d_model, width]`` that of its weights and of the readout. So a partial path is the pair (L, R), for one
logit a row and a column. Bounds on ``|L X R|`` for all X at once (Frobenius norm; |number| for one logit), for X that
ends in head f, with ``Y [n, d_head]`` its values before the pattern ``A_f``, ``R_f = O_f R`` and ``O_f = W_O^T``:

1. *Pairwise.* ``beta_f[t] >= |Y[t]|`` for every path into f, with
   ``beta_f[t] = max(sources |S[t] V_f|, max_g D[t] (|A_g| beta_g)[t] ||O_g V_f||_2)``; then ``|L A_f Y R_f| <= | |L|
   |A_f| beta_f | ||R_f||_2``. Proof, by induction over layers: ``|(A_g Y)[t] O_g V_f| <= sum_s |A_g[t,s]| |Y[s]|
   ||O_g V_f||``. Rows of patterns are positive and add up to 1, so no pattern enlarges a bound.
2. *Second moments.* ``K_f = sum over paths of vec(A_f Y) vec(A_f Y)^T``, exactly, layer by layer; then
   ``|L A_f Y R_f|^2 <= sum over paths of |L A_f Y R_f|^2 = <L^T L (x) R_f R_f^T, K_f>``.

The smaller of the two is used. Rounding: every product of computed numbers is off by at most ``gamma_k |a| |b|``, with
``gamma_k = k u / (1 - k u)`` and k the length of the sum; errors of L and R are tracked as numbers
(``off_rows``, ``off_cols``), sums of positive numbers are enlarged by a factor, and spectral norms are bounded from
above by ``tr(G^(2^k))^(1/2^k)``, G a Gram matrix. All is computed in float64, whatever the run's type.
Source: own derivation, proved in ``derivations/general/Largest.v`` but for rounding; Higham, "Accuracy and Stability of
Numerical Algorithms" (2002), section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Floats
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.architecture import Head
from symcircuits.core.paths import Paths
from symcircuits.core.programs import Branch, Source
from symcircuits.core.walk import Mark, Matrices
from symcircuits.core.words import Factor, scalar_argument
from symcircuits.model import Run
from symcircuits.search.magnitudes import UNIT, fewer_columns, gamma, largest_row_sum, size_and_roundings, spectral
from symcircuits.values.factors import RunFactors

__all__ = ["Functional", "Network"]

Array = npt.NDArray[Any]


class _Wide(Mapping[str, Any]):
    """A run's arrays in float64, for some rows of the batch."""

    def __init__(self, run: Run, row: int | None) -> None:
        self.run, self.row, self.factors, self.made = run, row, RunFactors(run), dict[str, Any]()
        self.batched = np.ndim(run.tokens) == 2

    def __getitem__(self, name: str) -> Any:
        if name not in self.made:
            self.made[name] = self._make(name)
        return self.made[name]

    def _make(self, name: str) -> Any:
        found = self.factors[name]
        if isinstance(found, Centring):
            return found
        rows = slice(None) if self.row is None or not self.batched else slice(self.row, self.row + 1)
        if isinstance(found, Diagonal):
            entries = found.entries.astype(np.float64)
            return Diagonal(entries[rows] if entries.ndim == 2 else entries)
        found = np.asarray(found, dtype=np.float64)
        return found[rows] if found.ndim == 3 and not name.startswith("R_") else found  # rotations are by position

    def __iter__(self) -> Iterator[str]:
        return iter(self.factors)

    def __len__(self) -> int:
        return len(self.factors)


@dataclass(frozen=True, slots=True)
class Functional:
    """What a suffix reads of the stream: ``X -> rows X cols``, with bounds on the errors of both.

    ``rows [batch, r, n]``, off by at most ``off_rows`` in every row's sum of absolute values; ``cols [d, m]``, off by
    at most ``off_cols`` in Frobenius norm. ``mark``: order (up to the one that matters) and bits of the suffix;
    ``limit``: how many of the first heads may precede it; ``layer``: the first layer of the suffix.
    """

    rows: Array
    cols: Array
    off_rows: float
    off_cols: float
    mark: Mark
    limit: int
    layer: int
    heads: tuple[int, ...] = ()

    @property
    def count(self) -> float:
        """The square root of the number of rows."""
        return float(np.sqrt(self.rows.shape[0] * self.rows.shape[1]))

    @property
    def row_sum(self) -> float:
        """A bound on the largest sum of absolute values of a row."""
        return largest_row_sum(self.rows) + self.off_rows

    @property
    def size(self) -> float:
        """A bound on the Frobenius norm of the columns."""
        return float(np.linalg.norm(self.cols)) * (1 + gamma(self.cols.size)) + self.off_cols


class Network:
    """A program on a run as arrays: heads in order, their inputs and outputs, sources, and the layer of each.

    ``rows``: the rows read; all arrays cover only the positions that can reach them (``tokens``). ``cap``: orders from
    this one on count as this one.
    """

    def __init__(self, paths: Paths, run: Run, row: int | None, rows: Array, cap: int) -> None:
        self.paths, self.cap, self.joints = paths, cap, paths.joints
        self.tokens = _reaching(paths, run, row, rows)
        wide = _Wide(run, row)
        self.batch = (run.tokens.shape[0] if row is None else 1) if np.ndim(run.tokens) == 2 else 1
        self.matrices = Matrices(wide, Floats(np.float64), {"embed": wide["X0"]})
        self.layers = [layer for layer in paths.program if not any(b.head is None for b in layer.branches)]
        self.readouts = paths.program[len(self.layers) :]
        if any(b.head is not None for layer in self.readouts for b in layer.branches):
            raise NotImplementedError("readouts are supported at the end of a program only")
        if any(not layer.skip for layer in self.layers[1:]):
            raise NotImplementedError("a layer without skip connection is supported at the start of a program only")
        self.d_model = run.model.d_model
        self.heads: list[Head] = []
        self.layer_of: list[int] = []
        self.small = False
        self.first: list[int] = []  # by layer: the number of heads before it
        self.sources: list[tuple[int, Source, Array, float]] = []  # layer, source, value [batch, n, d], error
        self.inside: dict[int, list[tuple[Source, Array, float]]] = {}
        parts: list[Any] = []
        for i, layer in enumerate(self.layers):
            self.first.append(len(self.heads))
            numbers = {}
            for branch in layer.branches:
                assert branch.head is not None
                numbers[branch.head] = len(self.heads)
                self.heads.append(branch.head)
                self.layer_of.append(i)
                parts.append(self._head(branch))
            for source in layer.sources:
                if source.head is None:
                    self.sources.append((i, source, *self.value(source)))
                else:
                    value = self.value(source, source.core + source.right[:-1])
                    self.inside.setdefault(numbers[source.head], []).append((source, *value))
        self.first.append(len(self.heads))
        self._stack(parts)

    def _head(self, branch: Branch) -> tuple[Array, Array | None, Array, float, Array]:
        """A head's pattern, the scales of its norm, ``V`` with its error, and ``O``."""
        pattern = self._tokens_of(self.matrices.factor(branch.left[0]))
        scales: Array | None = None
        for f in branch.left[1:]:
            entries = self.matrices.factor(f).entries[..., self.tokens]
            scales = entries if scales is None else scales * entries
        reads, off = self._scaled(branch.scales, *self._chain(branch.right[:-1]))
        return pattern, scales, reads, off, self.matrices.factor(branch.right[-1])

    def _tokens_of(self, pattern: Array) -> Array:
        chosen = pattern[..., self.tokens, :][..., self.tokens]
        return np.broadcast_to(chosen, (self.batch, *chosen.shape[-2:]))

    def _chain(self, factors: tuple[Factor, ...]) -> tuple[Array, float]:
        """A product of factors, and a bound on its error in Frobenius norm."""
        value = np.asarray(self.matrices.chain(factors))
        return value, self._off(factors)

    def _off(self, factors: tuple[Factor, ...]) -> float:
        if len(factors) < 2 or (len(factors) == 2 and factors[0].symbol.glyph == "ones"):
            return 0.0
        sizes = [size_and_roundings(self.matrices.factor(f)) for f in factors]
        return gamma(sum(k for _, k in sizes)) * float(np.prod([size for size, _ in sizes]))

    def _scaled(self, scales: tuple[str, ...], value: Array, off: float) -> tuple[Array, float]:
        """A source or value times its multipliers, and the error."""
        if not scales:
            return value, off
        most = float(np.prod([abs(float(self.matrices.matrices[scalar_argument(name)])) for name in scales]))
        size = float(np.linalg.norm(value))
        return np.asarray(self.matrices.scaled(scales, value)), most * (off + gamma(2 * len(scales)) * (size + off))

    def value(self, source: Source, factors: tuple[Factor, ...] | None = None) -> tuple[Array, float]:
        """The output of a source, ``[batch, n, width]``, at the relevant tokens, and its error.

        ``factors``: the factors to multiply, if it enters inside a head.
        """
        if factors is None and source.name in self.matrices.known:
            value, off = self.matrices.known[source.name], 0.0
        else:
            value, off = self._chain(source.factors if factors is None else factors)
        value, off = self._scaled(source.scales, value, off)
        value = value[..., self.tokens, :]
        return np.broadcast_to(value, (self.batch, *value.shape[-2:])), off

    def _stack(self, parts: list[Any]) -> None:
        """All heads in one array of each kind, the narrower ones padded with zeros."""
        n, count = len(self.tokens), len(parts)
        self.d_head = max((p[4].shape[0] for p in parts), default=1)
        self.patterns = np.zeros((count, self.batch, n, n))
        self.scales = np.ones((count, self.batch, n))
        self.reads = np.zeros((count, self.d_model, self.d_head))
        self.writes = np.zeros((count, self.d_head, self.d_model))
        self.off_reads = np.zeros(count)
        for i, (pattern, scales, reads, off, writes) in enumerate(parts):
            self.patterns[i], self.reads[i, :, : reads.shape[1]] = pattern, reads
            self.writes[i, : writes.shape[0]], self.off_reads[i] = writes, off
            if scales is not None:
                self.scales[i] = scales
        for number, found in self.inside.items():
            padded = [(s, np.pad(v, ((0, 0), (0, 0), (0, self.d_head - v.shape[-1]))), off) for s, v, off in found]
            self.inside[number] = padded
        grow = 1 + gamma(self.d_model * self.d_head)
        self.reads_norm, self.writes_norm = (np.linalg.norm(a, axis=(1, 2)) * grow for a in (self.reads, self.writes))
        self.reads_size, self.writes_size = spectral(self.reads), spectral(self.writes)
        self.pattern_sums = np.abs(self.patterns).sum(-1).max((1, 2), initial=0.0) * (1 + gamma(n))
        self.head_bits = [self.paths.head_bits.get(h, 0) for h in self.heads]

    # ------------------------------------------------------------------------------------------- marks
    def fold(self, order: int, bits: int) -> Mark:
        """A mark, with the order capped."""
        return Mark(min(order, self.cap), bits)

    def sums(self, base: Any) -> dict[Mark, Any]:
        """The walk over the stream's layers in an algebra, by capped marks of whole paths."""
        value: dict[Mark, Any] = {}
        for layer in self.layers:
            found = {mark: [part] for mark, part in value.items()}
            for branch in layer.branches:
                assert branch.head is not None
                entering: dict[Mark, list[Any]] = {}
                for mark, part in value.items():
                    entering.setdefault(self._after(mark, branch.head), []).append(part)
                for mark, parts in entering.items():
                    found.setdefault(mark, []).append(base.branch(branch, base.add(parts)))
            for source in layer.sources:
                mark = Mark(0, self.paths.source_bits(source))
                mark = mark if source.head is None else self._after(mark, source.head)
                found.setdefault(mark, []).append(base.source(source))
            value = {mark: base.add(parts) for mark, parts in found.items()}
        whole: dict[Mark, list[Any]] = {}
        for mark, part in value.items():
            whole.setdefault(Mark(mark.order, self.joints.met(mark.bits, 0)), []).append(part)
        return {mark: base.add(parts) for mark, parts in whole.items()}

    def _after(self, mark: Mark, head: Head) -> Mark:
        return self.fold(mark.order + 1, self.joints.grown(mark.bits, self.paths.head_bits.get(head, 0)))

    # -------------------------------------------------------------------------------------- functionals
    def read(
        self, rows: Array, chosen: list[int] | None, cols: Array | None, small: bool
    ) -> tuple[Functional, list[tuple[Source, Array, float]]]:
        """The functional ``X -> rows X[:, chosen] cols`` of the last layer's output, as one of the stream.

        And the terms of the sources in between, with bounds on their errors. ``chosen`` None: all columns; ``cols``
        None: the identity. ``small``: only Frobenius norms are needed, so the columns may be reduced
        (orthogonal maps keep lengths).
        """
        off_rows = off_cols = 0.0
        met = []
        for layer in reversed(self.readouts):
            for source in layer.sources:
                value, off = self.value(source)
                value = value if chosen is None else value[..., chosen]
                norms = float(np.linalg.norm(rows)), 1.0 if cols is None else float(np.linalg.norm(cols)) + off_cols
                off = norms[0] * norms[1] * (off + gamma(8 + 2 * sum(value.shape[-2:])) * float(np.linalg.norm(value)))
                off += float(np.linalg.norm(value)) * (norms[0] * off_cols + norms[1] * off_rows * rows.shape[-2])
                met.append((source, rows @ (value if cols is None else value @ cols), off))
            for branch in layer.branches:
                for f in branch.left:
                    entries = self.matrices.factor(f).entries[..., self.tokens]
                    most = float(np.abs(entries).max(initial=0.0))
                    off_rows = most * (off_rows + UNIT * (largest_row_sum(rows) + off_rows))
                    rows = rows * entries[..., None, :]
                for f in reversed(branch.right):
                    matrix = self.matrices.factor(f)
                    matrix = matrix if chosen is None else matrix[:, chosen]
                    if cols is None:
                        cols = matrix
                    else:
                        off_cols = self._off_product(matrix, cols, off_cols)
                        cols = np.asarray(matrix @ cols)
                    chosen = None
                cols, off_cols = self._scaled(branch.scales, np.asarray(cols), off_cols)
                cols, more = fewer_columns(np.asarray(cols)) if small else (np.asarray(cols), 0.0)
                off_cols += more
        cols = np.eye(self.d_model) if cols is None else cols
        rows = np.broadcast_to(rows, (self.batch, *rows.shape[-2:]))
        found = Functional(rows, cols, off_rows, off_cols, Mark(0, 0), limit=len(self.heads), layer=len(self.layers))
        return found, met

    def _off_product(self, matrix: Any, cols: Array, off: float) -> float:
        """The error of a factor of the readout times columns, in Frobenius norm."""
        size, k = size_and_roundings(matrix)
        return size * off + gamma(k) * size * (float(np.linalg.norm(cols)) + off)

    def through(self, found: Functional, f: int) -> tuple[Functional, Functional]:
        """What a suffix reads through one more head: from the head's values before its pattern, and from the stream."""
        pattern, n = self.patterns[f], len(self.tokens)
        rows, total = found.rows @ pattern, float(self.pattern_sums[f])
        off_rows = total * (found.off_rows + gamma(n) * found.row_sum)
        cols = self.writes[f] @ found.cols
        off_cols = self._off_written(f, found)
        mark = self.fold(found.mark.order + 1, self.joints.led(self.head_bits[f], found.mark.bits))
        limit, layer = self.first[self.layer_of[f]], self.layer_of[f]
        heads = (f, *found.heads)
        if self.small:
            cols, more = fewer_columns(cols)
            off_cols += more
        inner = Functional(
            rows, cols, off_rows=off_rows, off_cols=off_cols, mark=mark, limit=limit, layer=layer, heads=heads
        )
        most = float(np.abs(self.scales[f]).max(initial=0.0))
        outer_rows = rows * self.scales[f][:, None, :]
        outer_off = most * (off_rows + UNIT * inner.row_sum)
        read, size = self.reads[f], inner.size
        off = (float(self.reads_size[f]) + self.off_reads[f]) * off_cols
        off += (gamma(self.d_head) * float(self.reads_norm[f]) + self.off_reads[f]) * size
        return inner, Functional(
            outer_rows,
            read @ cols,
            off_rows=outer_off,
            off_cols=float(off),
            mark=mark,
            limit=limit,
            layer=layer,
            heads=heads,
        )

    def _off_written(self, f: Any, found: Functional) -> Any:
        """The error of ``O_f R``, for one head or for several."""
        return self.writes_size[f] * found.off_cols + gamma(self.d_model) * self.writes_norm[f] * found.size

    def apply(self, found: Functional, values: Array) -> Array:
        """``rows X cols`` for X of several sources ``[sources, batch, n, width]``: ``[sources, batch, r, m]``."""
        return np.asarray(found.rows @ (values @ found.cols))

    def off_applied(self, found: Functional, most: Any, off: Any) -> Any:
        """A bound on the error of that product, in Frobenius norm; ``most``: the largest norm of a row of X."""
        row_sum, size = found.row_sum, found.size
        k = gamma(len(self.tokens) + found.cols.shape[0])
        return found.count * (
            (k * row_sum * size + found.off_rows * size + row_sum * found.off_cols) * most + row_sum * size * off
        )


def _reaching(paths: Paths, run: Run, row: int | None, rows: Array) -> Array:
    """The positions that can reach the readout through some chain of patterns."""
    alive = np.any(rows != 0, axis=tuple(range(rows.ndim - 1)))
    heads = [b.head for layer in paths.program for b in layer.branches if b.head is not None]
    chosen = slice(None) if row is None or np.ndim(run.tokens) == 1 else row
    linked = np.zeros((len(alive),) * 2, bool)
    for head in heads:
        pattern = run.patterns[str(head)][chosen] if np.ndim(run.tokens) == 2 else run.patterns[str(head)]
        linked |= np.any(pattern.reshape(-1, *pattern.shape[-2:]) != 0, axis=0)
    while True:
        more = alive | np.any(linked[alive], axis=0)
        if np.array_equal(more, alive):
            return np.flatnonzero(alive)
        alive = more
