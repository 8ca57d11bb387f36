"""Values of terms on a run: streamed by the head-space tree, summed by the walk, never by a list.

``evaluate(expansion, run)`` iterates over one array a term; its sums (total, by order, by composition, by any
selection) come from the walk in the algebra of marked matrices, at any depth. ``closure`` sets the sum against
what the model itself computed, with the bound that rounding allows.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final, overload
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.architecture import FINAL
from symcircuits.expansion import Expansion, Term, composition_of
from symcircuits.factors import RunFactors
from symcircuits.model import Run
from symcircuits.paths import Paths, path_branches
from symcircuits.polynomials import Unfrozen
from symcircuits.polynomials.values import UnfrozenValues
from symcircuits.rings import Floats
from symcircuits.tree import HeadTree
from symcircuits.walk import Mark, Matrices, walk_marked

__all__ = ["Closure", "PairwiseSum", "Values", "closure", "compare", "evaluate", "reference", "rounding_scale"]

Array = npt.NDArray[Any]
_KEY_BYTES = 2**28  # key vectors are held for all key paths up to this size, else made again for each query path
# Of each run the stream after so many layers of its program, by mark.
_STREAMS: WeakKeyDictionary[Run, tuple[int, dict[Mark, Any]]] = WeakKeyDictionary()
LISTED = 2000  # up to so many terms are added one by one in a closure; beyond, the walk's class sums


@final
class Values:
    """The values of an expansion's terms on a run; iterate for one array a term, in order.

    Arrays are ``[..., n_context, d_vocab_out]`` for logits, ``[..., n_context, d_model]`` for the stream and
    ``[..., n_context, n_context]`` for scores (scaled, before the mask), batch axes of the tokens leading.
    """

    def __init__(self, expansion: Expansion, run: Run) -> None:
        self.expansion, self.run = expansion, run
        known = {"embed": run.arrays["X0"]}
        self.matrices = Matrices(RunFactors(run), Floats(run.dtype), known)
        self._batch = tuple(np.shape(run.tokens)[:-1])

    def __len__(self) -> int:
        return len(self.expansion)

    def __repr__(self) -> str:
        return f"<Values of {self.expansion!r} on {self.run!r}>"

    def __iter__(self) -> Iterator[Array]:
        for _, values in self.blocks():
            yield from values

    def blocks(self, instead: Mapping[str, Array] | None = None) -> Iterator[tuple[list[Term], Array]]:
        """Neighbouring terms and their values, ``[terms, ..., n_context, width]``; a few megabytes at a time.

        ``instead``: matrices that stand in for the run's, by argument name (see :mod:`symcircuits.compact`).
        """
        term = self.expansion._term
        first = self._tree(0, instead or {}).blocks(self.expansion._weights)
        if not self.expansion.readout.bilinear:
            for paths, values in first:
                yield [term(p) for p in paths], values
            return
        keys = _Keys(self.expansion, self._tree(1), self._turned)
        for queries, values in first:
            for query, value in zip(queries, values, strict=True):
                value = self._turned(value) * self.scale
                for paths, key in keys.of(self.expansion.sides[0].mark(query)):
                    yield [term(query, p) for p in paths], value @ key.swapaxes(-1, -2)

    def value(self, term: Term) -> Array:
        """The value of one term, computed by itself; ValueError when it is a term of another readout."""
        if term.readout != self.expansion.readout:
            raise ValueError(f"{term!r} is no term of {self.expansion.target} of [{self.expansion.architecture}]")
        sides = []
        for program, path in zip(term.readout.sides, term.paths, strict=True):
            value = self.matrices.source(path.source)
            for branch in path_branches(program, path):
                value = self.matrices.branch(branch, value)
            sides.append(value)
        found = sides[0] if len(sides) == 1 else self.met(*sides)
        return np.broadcast_to(found, self._batch + found.shape[-2:])

    def _tree(self, side: int, instead: Mapping[str, Array] = MappingProxyType({})) -> HeadTree:
        matrices = self.matrices
        if instead:
            matrices = Matrices(ChainMap({**instead}, matrices.matrices), matrices.ring, matrices.known)  # type: ignore[arg-type]
        return HeadTree(self.expansion.sides[side], matrices, self._batch)

    def _turned(self, rows: Array) -> Array:
        return np.asarray(self.matrices.turned(self.expansion.readout.head, rows))

    def met(self, query: Array, key: Array) -> Array:
        """``scale q k^T``, turned where positions are rotary."""
        return np.asarray((self._turned(query) * self.scale) @ self._turned(key).swapaxes(-1, -2))

    @property
    def scale(self) -> Any:
        """The score scale; 1 where there is none."""
        label = self.expansion.readout.scale
        return self.matrices.matrices[f"scale_{label}"] if label else self.matrices.ring.asarray(1)  # type: ignore[attr-defined]

    # --------------------------------------------------------------------------------- sums, by the walk
    def classes(self) -> Iterator[tuple[tuple[int, ...], Array]]:
        """The sums of the terms of equal orders (one a side) and conditions, by the walk: (orders, sum)."""
        sides = [self.side(p) for p in self.expansion.sides]
        for marks, _ in self.expansion.marks():
            parts: list[Any] = [side[m] for side, m in zip(sides, marks, strict=True)]
            value = parts[0] if len(parts) == 1 else self.met(*parts)
            yield tuple(m.order for m in marks), np.broadcast_to(value, self._batch + value.shape[-2:])

    def side(self, paths: Paths) -> dict[Mark, Any]:
        """The sums of the paths of a side's program, by mark.

        The stream that all scores of a run read is walked once: what the last side saw of it is kept with the run.
        """
        algebra, program = paths.algebra(self.matrices), paths.program
        head = self.expansion.readout.head
        if head is None or any(paths.head_bits.values()) or any(paths.name_bits.values()):
            return walk_marked(program, algebra)
        done, value = _STREAMS.get(self.run, (0, {}))
        if done > head.layer + 1:
            done, value = 0, {}
        value = walk_marked(program[done : head.layer + 1], algebra, value or None)
        _STREAMS[self.run] = head.layer + 1, value
        return walk_marked(program[head.layer + 1 :], algebra, value)

    def total(self) -> Array:
        """The sum of all terms, by the walk (at any depth; nothing is listed)."""
        total = PairwiseSum()
        for _, value in self.classes():
            total.add(value)
        return total.value if total.count else self._zero()

    def by_order(self) -> dict[int, Array]:
        """The sum of the terms of each order."""
        return dict(sorted(self._sums(sum).items()))

    def by_composition(self) -> dict[str, Array]:
        """The sum of the terms of each composition type."""
        sums = self._sums(composition_of)
        return {c: sums[c] for c in self.expansion.counts_by_composition()}

    def _sums(self, key: Any) -> dict[Any, Array]:
        sums: dict[Any, PairwiseSum] = {}
        for orders, value in self.classes():
            sums.setdefault(key(orders), PairwiseSum()).add(value)
        return {k: s.value for k, s in sums.items()}

    def _zero(self) -> Array:
        n = np.shape(self.run.tokens)[-1]
        model = self.run.model
        width = {"logits": model.d_vocab_out, "stream": model.d_model}.get(self.expansion.target, n)
        return np.zeros((*self._batch, n, width or 0), dtype=self.run.dtype)


class _Keys:
    """The key vectors of all key paths that a query path of a given mark meets, in blocks."""

    def __init__(self, expansion: Expansion, tree: HeadTree, turned: Callable[[Array], Array]) -> None:
        self.expansion, self.tree, self.turned = expansion, tree, turned
        self._held: dict[Mark, list[tuple[list[Any], Array]]] = {}
        self._bytes = 0

    def of(self, query: Mark) -> Iterator[tuple[list[Any], Array]]:
        """Blocks of key paths and their vectors ``[paths, ..., n_context, d_head]``."""
        if query in self._held:
            yield from self._held[query]
            return
        held: list[tuple[list[Any], Array]] | None = []
        for paths, given in self.tree.blocks(self.expansion._key_weights(query)):
            values = self.turned(given)
            self._bytes += values.nbytes
            if held is not None and self._bytes <= _KEY_BYTES:
                held.append((paths, values))
            else:
                held = None
            yield paths, values
        if held is not None:
            self._held[query] = held


@overload
def evaluate(expansion: Expansion, run: Run) -> Values: ...
@overload
def evaluate(expansion: Unfrozen, run: Run) -> UnfrozenValues: ...
def evaluate(expansion: Expansion | Unfrozen, run: Run) -> Values | UnfrozenValues:
    """The values of the terms of an expansion on a run; ``.total()`` sums them without a list.

    Of an :func:`~symcircuits.unfrozen` expansion too (``.by_degree()`` gives its sums by degree). Raises ValueError
    when the expansion belongs to another architecture than the run's model.

    >>> import symcircuits as sc
    >>> arch = sc.attention_only((2, 2))
    >>> run = sc.random_model(arch, seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(arch), run)
    >>> len(list(values)), bool(abs(values.total() - run.logits).max() < 1e-12)
    (9, True)
    """
    kinds = (Expansion, Unfrozen)
    for given, kind, what in ((expansion, kinds, "an expansion"), (run, Run, "a run (see model.run)")):
        if not isinstance(given, kind):
            raise TypeError(f"evaluate(expansion, run): {what} is needed there, not {given!r}")
    if expansion.architecture != run.model.architecture:
        raise ValueError(
            f"this expansion is of [{expansion.architecture}], but the run is of a model that is "
            f"[{run.model.architecture}]; expand model.architecture"
        )
    return UnfrozenValues(expansion, run) if isinstance(expansion, Unfrozen) else Values(expansion, run)


# ---------------------------------------------------------------------------------------------- closure
class PairwiseSum:
    """A running sum of arrays, added in pairs like a binary tree, so that rounding grows with log2 only."""

    def __init__(self) -> None:
        self._levels: list[Array | None] = []
        self.count = 0

    def add(self, array: Array) -> None:
        """Take up one more array."""
        self.count += 1
        level = 0
        while level < len(self._levels) and self._levels[level] is not None:
            array = self._levels[level] + array
            self._levels[level] = None
            level += 1
        if level == len(self._levels):
            self._levels.append(None)
        self._levels[level] = array

    @property
    def value(self) -> Array:
        """The sum so far."""
        left = [a for a in self._levels if a is not None]
        total = left[0]
        for a in left[1:]:
            total = a + total
        return total


@dataclass(frozen=True, slots=True)
class Closure:
    """|sum of terms - model| against the bound that rounding allows, at the entry with the largest ratio.

    ``bound = 16 u (sum of |summands| + f)``, u the unit roundoff; f is ``|x_i||w_u|`` for logits,
    ``scale |q_i||k_j|`` for scores (see :func:`rounding_scale` for a small d_head), ``|x_i|`` for the stream. The
    constant is empirical, not proved. ``of`` says what of the model is compared where it is not what the model gives:
    ``pre-cap`` (before a soft cap) or ``before the addend`` (of ALiBi).
    """

    target: str
    error: float
    bound: float
    passed: bool
    summands: int
    listed: bool
    of: str = ""


def reference(target: str, run: Run) -> Array:
    """What the model itself computed for a target: logits, the stream, or a head's masked scores.

    Of a model with soft caps or ALiBi it is what these are applied to.
    """
    if target == "logits":
        logits = run.products.get("logits") if run.products else run.logits
        return run.logits if logits is None else logits  # type: ignore[return-value]
    if target == "stream":
        return run.streams[-1]
    label = target.partition(":")[2]
    return run.products.get(label, run.scores[label])


def _compared(target: str, run: Run) -> str:
    settings = run.model.settings
    if (settings.logit_cap if target == "logits" else settings.score_cap if target != "stream" else None) is not None:
        return "pre-cap"
    return "before the addend" if target.partition(":")[2] in run.products else ""


def rounding_scale(target: str, run: Run, fused: bool = False) -> Array:
    """The f of the bound: the size of the factors whose product is rounded, entry by entry.

    Where d_head is small against d_model (16 times or more), q and k are often small by cancellation, and carry the
    rounding of the products that made them: there f of scores is at least
    ``scale (|x_i||W_Q||k_j| + |q_i||x_j||W_K|) / 16`` (Frobenius norms of the weights). ``fused`` says that W_QK
    itself is multiplied with: f then is at least ``scale |x_i||W_QK||x_j| / 16``, at any size.
    """
    arrays, arch = run.arrays, run.model.architecture
    if target == "stream":
        return _norm(run.streams[-1])[..., None]
    if target == "logits":
        size = _read_size(run, FINAL, run.streams[-1])[..., None] * _norm(arrays["W_U"])
        return np.asarray(size * abs(_wide(arrays.get("m_U", np.ones(())))))
    label = target.partition(":")[2]
    head = arch.head(label)
    x = _read_size(run, f"L{head.layer}", run.streams[head.layer])
    read = _read(run, head.layer)
    w_q, w_k = arrays[f"W_Q_{label}"], arrays[f"W_K_{arch.key_value(head)}"]
    b_q, b_k = arrays.get(f"b_Q_{label}", 0), arrays.get(f"b_K_{arch.key_value(head)}", 0)
    q, k = _norm(read @ w_q.T + b_q), _norm(read @ w_k.T + b_k)
    if arch.qk_norm:  # queries and keys of unit size, times their gains
        gains = [float(np.abs(_wide(arrays[f"gain_{side}{head.layer}"])).max()) for side in "QK"]
        q = q * _wide(run.norms[f"Q{label}"]) * gains[0]
        k = k * _wide(run.norms[f"K{arch.key_value(head)}"]) * gains[1]
    size = _outer(q, k)
    if w_q.shape[1] >= 16 * w_q.shape[0]:
        size = np.maximum(size, (_outer(x, k) * _length(w_q) + _outer(q, x) * _length(w_k)) / 16)
    if fused:
        size = np.maximum(size, _outer(x, x) * _length(arrays[f"W_QK_{label}"]) / 16)
    return np.asarray(size * (abs(_wide(arrays[f"scale_{label}"])) if arch.scale else 1.0))


def _read(run: Run, layer: int) -> Array:
    """What the queries and keys of a layer are made of: its stream, normed, with the position where it enters there."""
    arrays, arch, read, label = run.arrays, run.model.architecture, run.streams[layer], f"L{layer}"
    if arch.norm:
        read = read - read.mean(axis=-1, keepdims=True) if arch.norm == "LN" else read
        read = read * run.norms[label][..., None] * arrays.get(f"gain_{label}", 1) + arrays.get(f"b_N_{label}", 0)
    return np.asarray(read + arrays["P"] if arch.positions == "shortformer" else read)


def _read_size(run: Run, label: str, stream: Array) -> Array:
    """The size of what is rounded when rows are read: their norm, through a norm that of its summands."""
    arrays, arch = run.arrays, run.model.architecture
    size = _norm(stream)
    if arch.norm:
        gain = float(np.abs(_wide(arrays.get(f"gain_{label}", np.ones(1)))).max())
        size = size * _wide(run.norms[label]) * gain + _norm(arrays.get(f"b_N_{label}", np.zeros(1)))
    if arch.positions == "shortformer" and label != FINAL:
        size = size + _norm(arrays["P"])
    return size


def _wide(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64)  # a norm squares: float32 would overflow where the model does not


def _norm(rows: Array) -> Array:
    return np.asarray(np.linalg.norm(_wide(rows), axis=-1))


def _length(matrix: Array) -> float:
    return float(np.linalg.norm(_wide(matrix)))


def _outer(rows: Array, cols: Array) -> Array:
    return np.asarray(rows[..., :, None] * cols[..., None, :])


def compare(target: str, run: Run, summands: Iterator[Array], listed: bool, fused: bool = False) -> Closure:
    """Add the summands pairwise and set the sum against the model's own value, entry by entry.

    ``fused``: see :func:`rounding_scale`. Nothing is taken on trust: no summand at all, an entry that is no finite
    number and a bound that is none fail.
    """
    model, of = np.asarray(reference(target, run)), _compared(target, run)
    total, size = PairwiseSum(), PairwiseSum()
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite fails below
        for value in summands:
            total.add(value)
            size.add(np.abs(value))
        zero = np.zeros(model.shape, dtype=run.dtype)
        summed, absolute = (total.value, size.value) if total.count else (zero, zero)
        unit = np.finfo(run.dtype).eps / 2
        bound = np.broadcast_to(16 * unit * (absolute + rounding_scale(target, run, fused)), model.shape)
        allowed = np.broadcast_to(_allowed(target, run), model.shape)
        error, bound = np.abs(summed - model)[allowed], bound[allowed]
    if not error.size:
        return Closure(target, 0.0, 0.0, False, total.count, listed, of)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    known = np.isfinite(error) & np.isfinite(bound)
    worst = int(np.argmax(np.where(known, ratio, np.inf)))
    passed = bool(total.count and np.all(known & (error <= bound)))
    return Closure(target, float(error[worst]), float(bound[worst]), passed, total.count, listed, of)


def _allowed(target: str, run: Run) -> Array:
    """The entries that are compared: all, but of scores only those that the mask leaves."""
    if not target.startswith("scores"):
        return np.ones((1, 1), bool)
    return run.masks[f"L{run.model.architecture.head(target.partition(':')[2]).layer}"]


def closure(expansion: Expansion, run: Run, listed: int = LISTED) -> Closure:
    """Whether the terms of a whole expansion add up to what the model computed, within rounding.

    Up to ``listed`` terms are evaluated one by one; beyond, the walk's sums by order are added.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> closure(sc.scores(run.model.architecture, "L1H0"), run).passed
    True
    """
    values = evaluate(expansion, run)
    if expansion.count <= listed:
        return compare(expansion.target, run, iter(values), True)
    return compare(expansion.target, run, (value for _, value in values.classes()), False)
