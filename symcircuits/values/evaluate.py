"""Values of terms on a run: streamed by the head-space tree, summed by the walk, never by a list.

``evaluate(expansion, run)`` iterates over one array per term; its sums (total, by order, by composition, by any
selection) come from the walk in the algebra of marked matrices, at any depth. ``closure`` compares the sum with
what the model itself computed, within the bound for rounding.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, overload
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Floats, PairwiseSum
from symcircuits.core.architecture import Head
from symcircuits.core.expansion import Expansion
from symcircuits.core.paths import Paths
from symcircuits.core.programs import first_layer
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import need
from symcircuits.core.unfrozen.unfrozen import Unfrozen
from symcircuits.core.walk import Mark, Matrices, walk_marked
from symcircuits.model import Run, Tensors
from symcircuits.values.all_paths import MadeTerms, Plan, order_of, plan_of
from symcircuits.values.endings import read_at
from symcircuits.values.engine import AtOnce, Ranges, Span
from symcircuits.values.factors import RunFactors, RunMatrices
from symcircuits.values.finite import finite, not_finite, quiet, remedy
from symcircuits.values.rounding import rounding_scale
from symcircuits.values.run_arithmetic import RunArithmetic
from symcircuits.values.sibling_reads import SiblingSide
from symcircuits.values.siblings import LayerArrays, SiblingPaths
from symcircuits.values.sums import Sums
from symcircuits.values.tensor_values import TensorValues
from symcircuits.values.unembedding import compact
from symcircuits.values.unfrozen import UnfrozenValues

if TYPE_CHECKING:
    from symcircuits.circuits.losses import LossByOrder, LossEffects
    from symcircuits.circuits.transport import Transport
    from symcircuits.core.terms import Term
    from symcircuits.values.measure import Measure

__all__ = [
    "Closure",
    "PairwiseSum",
    "Values",
    "closure",
    "compare",
    "evaluate",
    "reference",
    "rounding_scale",
]

Array = npt.NDArray[Any]
Unit = Literal["nats", "probability", "centred logit"]


class _Stream(NamedTuple):
    """A stream by mark, as far as it was walked: where the program starts, and the bits of the sources by layer."""

    start: int
    bits: tuple[tuple[int, ...], ...]
    value: dict[Mark, Any]


# By run: by how far orders are counted, and whether sources have bits.
_STREAMS: WeakKeyDictionary[Run, dict[tuple[int | None, bool], list[_Stream]]] = WeakKeyDictionary()
_STREAM_BYTES = 2**26  # of these are cached, and always one
# By run: arrays of its small layers, by their heads.
_LAYERS: WeakKeyDictionary[Run, dict[tuple[Head, ...], LayerArrays]] = WeakKeyDictionary()
# By run: the plans for all paths of the sides of a target, with the results of the layers of the stream.
_PLANS: WeakKeyDictionary[Run, dict[str, tuple[tuple[Plan, ...], dict[int, Array]]]] = WeakKeyDictionary()
_PLAN_BYTES = 2**20  # of these are cached
_AT_ONCE = 2**12  # numbers of all terms, up to which they are computed at once
_COMPARED = 2**17  # entries compared at a time
LISTED = 2000  # number of terms up to which a closure adds them one by one; beyond, it adds the walk's sums by type


@final
class Values(Sums[Array], Shown):
    """The values of an expansion's terms on a run; iteration gives one array per term, in order.

    Arrays are ``[..., n_context, d_vocab_out]`` for logits, ``[..., n_context, d_model]`` for the stream and
    ``[..., n_context, n_context]`` for scores (scaled, before the mask), batch axes of the tokens leading. Single
    values are returned unchecked, also if they leave the range of their type; sums are checked.
    ``instead``: matrices that replace the run's, by argument name (see :mod:`symcircuits.values.unembedding`).
    ``apart``: sums go through the heads of a layer one after the other, not through all at once.
    """

    def __init__(
        self, expansion: Expansion, run: Run, instead: Mapping[str, Array] = MappingProxyType({}), apart: bool = False
    ) -> None:
        self.expansion, self.run, self.instead, self.apart = expansion, run, instead, apart
        self.batch = run.tokens.shape[:-1]
        self._streams: dict[int, Array] = {}  # for small models, the output of all paths before the readout

    def __len__(self) -> int:
        return len(self.expansion)

    def __repr__(self) -> str:
        return f"<Values of {self.expansion!r} on {self.run!r}>"

    def __iter__(self) -> Iterator[Array]:
        for values in higher(None, "Values.arrays")(self):
            yield from values

    @cached_property
    def matrices(self) -> Matrices:  # type: ignore[override]
        """The run's arrays, with replacements."""
        known, instead = {"embed": self.run.arrays["X0"]}, {**self.instead}
        factors: Any = ChainMap(instead, RunFactors(self.run)) if instead else RunFactors(self.run)  # type: ignore[arg-type]
        return (Matrices if self.apart else RunMatrices)(factors, Floats(self.run.dtype), known)

    # ------------------------------------------------------------------------- an engine (see values.engine)
    def fans(self, side: int, span: Span | None = None) -> SiblingPaths:
        """The paths of a side in head space, from ``span`` on."""
        kept = None if self.instead.keys() - {"W_U", "b_U"} else _LAYERS.setdefault(self.run, {})
        n = np.shape(self.run.tokens)[-1]
        return SiblingPaths(self.expansion.sides[side], self.matrices, self.batch, n, span=span, kept=kept)

    def paths(self, side: int, row: int | None = None) -> SiblingSide:
        """The paths of a side in pieces; ``row``: only their values at that position."""
        plans = None if self.expansion.clauses else self._plans()
        plan = None if plans is None else plans[side]._replace(scale=None)
        return SiblingSide(self.fans(side), row, order_of(self.expansion, side), plan, self._streams)

    @cached_property
    def arithmetic(self) -> RunArithmetic:
        """The arithmetic of NumPy."""
        head = self.expansion.readout.head
        d_head = 0 if head is None else self.run.arrays[f"W_Q_{head}"].shape[0]
        return RunArithmetic(self.shape, self.run.dtype, d_head)

    def shorter(self) -> Values:
        """Values of the same norms, without the vocabulary if that is less work."""
        small = compact(self, [])
        return self if small is None else Values(self.expansion, self.run, {**self.instead, **small.matrices})

    def contributions(self, position: int, chosen: list[int]) -> Ranges:
        """What each term adds to an output at a position, or to the difference of two: by endings of paths."""
        if (found := self.all_terms()) is not None:
            return AtOnce(found.ordered(_chosen(found.values, position, chosen)))
        ranges, order = read_at(self.fans(0), self.expansion._weights, position, chosen), order_of(self.expansion, 0)

        def numbers(terms: range, span: Span) -> Iterator[Array]:
            plans = None if order is None else self._plans()
            made = None if plans is None else plans[0].made(self._streams)
            if plans is None or made is None:
                yield from ranges(terms, span)
                return
            span.enter()
            yield MadeTerms(made, plans[0].places).ordered(_chosen(made, position, chosen))

        return numbers

    def all_terms(self) -> MadeTerms | None:
        """The values of all terms of a small model; None if they are many. Called with warnings off.

        For few terms the calls for pieces would take longer than the numbers.
        """
        if self.expansion.clauses or (plans := self._plans()) is None:
            return None
        first, second = plans[0], plans[-1]
        n, two = self.run.tokens.shape[-1], len(plans) == 2
        if self.expansion.count * first.rows * (n if two else first.width) > _AT_ONCE:
            return None
        queries, keys = first.made(self._streams), second.made(self._streams) if two else None
        if queries is None or not two:
            return None if queries is None else MadeTerms(queries, first.places)
        if keys is None:
            return None
        pairs = self.turned(queries)[:, None] @ self.turned(keys).swapaxes(-1, -2)
        return MadeTerms(pairs.reshape(-1, *pairs.shape[2:]), second.pairs)

    def _plans(self) -> tuple[Plan, ...] | None:
        """The plans for all paths of each side: cached with the run for small models, unless matrices are replaced."""
        kept = {} if self.instead else _PLANS.setdefault(self.run, {})
        found = kept.get(self.expansion.target)
        if found is not None:
            self._streams = found[1]
            return found[0]
        plans: list[Plan] = []
        for side in range(len(self.expansion.sides)):
            order = order_of(self.expansion, side)
            plan = None if order is None else plan_of(self.fans(side), order)
            if plan is None:
                return None
            plans.append(plan)
        if self.expansion.readout.scale:
            plans[0] = plans[0]._replace(scale=self.scaled(np.ones((), self.run.dtype)))
        if len(plans) == 2:
            plans[1] = plans[1]._replace(pairs=plans[1].pairs_of(plans[0]))
        made = tuple(plans)
        if sum(plan.nbytes for plan in plans) <= _PLAN_BYTES:
            kept[self.expansion.target] = made, self._streams
        return made

    def mask(self) -> Array | None:
        """Where a query may attend to a key; None if it may attend to all."""
        head = self.expansion.readout.head
        mask = np.asarray(self.run.masks[f"L{head.layer}"], np.float64) if head is not None else None
        return None if mask is None or (mask != 0).all() else mask

    def look(self, what: str, values: Array, first: int) -> None:
        """Raise ValueError, naming the term, if a number of the terms from ``first`` on is not finite."""
        good = np.isfinite(values)
        if np.count_nonzero(good) < good.size:
            number = first + int(np.argmin(good.reshape(len(good), -1).all(1)))
            raise not_finite(self.expansion, what, number, self.run.dtype, remedy(self.run.dtype))

    def quiet(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """A context without warnings: numbers that are not finite raise, naming the term."""
        return quiet(pieces)

    def spread(self, value: Array) -> Array:
        """A value with the batch axes of the run."""
        return _spread(value, self.batch + value.shape[-2:])

    # ------------------------------------------------------------------------------------------- in loss
    def loss_by_order(
        self, queries: Sequence[int] | None = None, unit: Unit = "nats", composition: str = "V"
    ) -> LossByOrder:
        """The loss when the logits are cut off after orders 0, 1, 2, ..., with patterns held fixed.

        ``loss_k = mean over queries of -log softmax(sum of the terms of up to k heads)[next token]``, in nats;
        ``unit="probability"``: the probability itself; ``"centred logit"``: the logit of the next token less the mean
        of all, which equals that with ``W_U`` centred, and is additive over orders. ``queries``: positions that count
        (default: all but the last, whose next token is unknown). A batch is a set of prompts: a mean and its spread. A
        soft cap acts on each sum. Adding one vector to every row of W_U has no effect. ``composition="K"`` (or
        ``"Q"``) cuts off patterns instead of logits: every head's scores keep the terms with up to k heads on their
        key (query) side, all patterns are computed from these at once, and values go through them whole. Raises
        ValueError on a selection, on a target other than the logits and on queries without a next token. Source: paper,
        "Term Importance Analysis".

        >>> import symcircuits as sc
        >>> from symcircuits.zoo import path
        >>> run = sc.load(path("induction")).run([0, 7, 3, 9, 5, 7, 3, 9, 5])
        >>> found = sc.evaluate(sc.logits(run.model), run).loss_by_order(queries=[5, 6, 7])
        >>> found.counts, [round(loss, 2) for loss in found.after]
        ((1, 6, 9), [3.53, 0.0, 0.0])
        """
        return higher(None, "Values.loss_by_order")(self, queries, unit, composition)  # type: ignore[no-any-return]

    def loss_effects(self, by: str = "head", queries: Sequence[int] | None = None, unit: Unit = "nats") -> LossEffects:
        """The change of the loss by the terms of each layer, head, pair of heads, or by each term, patterns held fixed.

        ``by``: ``"layer"``, ``"head"``, ``"pair"`` (terms through both) or ``"term"``; for a selection only its terms
        count, e.g. ``sc.logits(model).order(1)``. Each part is added to the terms without a head (``alone``), and
        removed from all terms (``last``): the two differ if parts overlap. ``queries``, ``unit`` and errors are as in
        :meth:`loss_by_order`. Source: paper, "Term Importance Analysis".

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 1)), seed=1).run([1, 2, 3])
        >>> [part.name for part in sc.evaluate(sc.logits(run.model), run).loss_effects("pair").parts]
        ['L0H0 -> L1H0', 'L0H1 -> L1H0']
        """
        return higher(None, "Values.loss_effects")(self, by, queries, unit)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------- where and what
    def transport(self, term: Term) -> Transport:
        """A term as selection times transport: where it looks, and what it carries from there to every output.

        ``term = S T``; ``S [..., n, n]`` is the product of its patterns (and of the ``D`` of norms), ``T [..., n,
        width]`` the rest, one row per source token. ``found.at(query, key)`` is the effect of one token on all outputs,
        ``found.by_source(query)`` that of all of them. Raises ValueError on a score term and on a term of another
        expansion. Source: paper, "Path Expansion".

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> values = sc.evaluate(sc.logits(run.model), run)
        >>> term = values.expansion.through_sequence("L0H1", "L1H0")[0]
        >>> found = values.transport(term)
        >>> bool(abs(found.by_source(2).sum(0) - values.value(term)[2]).max() < 1e-12)
        True
        """
        return higher(None, "Values.transport")(self, term)  # type: ignore[no-any-return]

    def weighted_pattern(self, head: str | tuple[int, int], by: str = "effect", of: Measure | None = None) -> Array:
        """A head's pattern, each entry weighted by the size of what it carries: ``[..., n, n]``, rows are queries.

        ``by="value"``: ``A_ij |v_j|`` (the length of the value vector), ``"output"``: ``A_ij |W_O v_j|``; both depend
        on how the weights of the same model are written (see
        ``symcircuits.circuits.transport.NOT_INVARIANT``). ``"effect"``: ``A_ij`` times what ``W_O v_j`` adds directly
        to the logit chosen by ``of``, less the mean over all outputs, or to the difference of two; it does not depend
        on that.
        ``of``: :func:`~symcircuits.logit` (default: the model's first choice at the last position; for a batch it needs
        a row). Norms before the readout are held fixed. Raises ValueError on a head or an output that does
        not exist. Source: paper, "Analyzing a Two-Layer Model" (value-weighted patterns).

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> values = sc.evaluate(sc.logits(run.model), run)
        >>> values.weighted_pattern("L1H0", of=sc.logit(3, against=1)).shape
        (3, 3)
        """
        return higher(None, "Values.weighted_pattern")(self, head, by, of)  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------- sums, by the walk
    def side(self, paths: Paths, most: int | None = None, needed: int = 0) -> dict[Mark, Any]:
        """The sums of the paths of a side's program, by mark, with orders counted up to ``most`` (None: no limit).

        The stream that all scores of a run read is walked once: the part walked for the last side, if its sources had
        the same bits, is cached with the run, unless matrices are replaced.
        """
        algebra, program = paths.algebra(self.matrices, most), paths.program
        head = self.expansion.readout.head
        if head is None or self.instead or self.apart or any(paths.head_bits.values()) or paths.joints.width:
            return walk_marked(program, algebra, needed=needed)
        start = first_layer(self.expansion.architecture, head.layer)
        length = head.layer - start + 1  # layers of the program that write the stream
        bits = tuple(tuple(map(paths.source_bits, layer.sources)) for layer in program[:length])
        known = _STREAMS.setdefault(self.run, {}).setdefault((most, any(map(any, bits))), [])
        before = (seen for seen in [*known] if seen.start == start and seen.bits == bits[: len(seen.bits)])
        seen = max(before, key=lambda one: len(one.bits), default=_Stream(start, (), {}))
        value = walk_marked(program[len(seen.bits) : length], algebra, seen.value or None)
        if len(seen.bits) < length:
            size = sum(np.asarray(part).nbytes for part in value.values())
            known[: max(0, len(known) + 1 - _STREAM_BYTES // max(1, size))] = []  # the oldest are dropped
            known.append(_Stream(start, bits, value))
        return walk_marked(program[length:], algebra, value)

    def total(self) -> Array:
        """The sum of all terms; if it is not finite, computed again with heads that may cancel one after the other."""
        try:
            return super().total()
        except ValueError:
            if self.apart:
                raise
            return Values(self.expansion, self.run, self.instead, apart=True).total()

    def calm(self) -> AbstractContextManager[Any]:
        """A context without warnings: numbers that are not finite raise."""
        return np.errstate(over="ignore", invalid="ignore")

    def seen(self, value: Array, what: Any) -> Array:
        """A sum with finite numbers; otherwise raises ValueError, naming the first term that is not finite."""
        return finite(self, f"the sum of {what}", value)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of a term's value: batch axes of the tokens, ``n_context``, width."""
        n, target = np.shape(self.run.tokens)[-1], self.expansion.target
        width = self.run.model.d_model if target == "stream" else n
        if target == "logits":  # the width of the replacement of W_U, if there is one
            width = len(self.instead["W_U"] if "W_U" in self.instead else self.run.arrays["W_U"])
        elif target.startswith("readout:"):
            width = reference(target, self.run).shape[-1]
        return *self.batch, n, width

    def _zero(self) -> Array:
        return np.zeros(self.shape, self.run.dtype)


@overload
def evaluate(expansion: Expansion, run: Run) -> Values: ...
@overload
def evaluate(expansion: Unfrozen, run: Run) -> UnfrozenValues: ...
@overload
def evaluate(expansion: Expansion, run: Tensors) -> TensorValues: ...
def evaluate(expansion: Expansion | Unfrozen, run: Run | Tensors) -> Values | UnfrozenValues | TensorValues:
    """The values of the terms of an expansion on a run; ``.total()`` sums them without a list.

    ``run``: a run, or :class:`~symcircuits.Tensors` (arrays of PyTorch, JAX or CuPy, and so are the values). Also
    accepts an ``expansion.unfrozen()`` (``.by_degree()`` gives its sums by degree), on a run. Raises
    ValueError if the expansion belongs to another architecture than the run's model.

    >>> import symcircuits as sc
    >>> arch = sc.attention_only((2, 2))
    >>> run = sc.random_model(arch, seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(arch), run)
    >>> len(list(values)), bool(abs(values.total() - run.logits).max() < 1e-12)
    (9, True)
    """
    need("evaluate(expansion, run)", expansion, Expansion, Unfrozen)
    need("evaluate(expansion, run)", run, Run, Tensors)
    architecture = run.architecture if isinstance(run, Tensors) else run.model.architecture
    if expansion.architecture is not architecture and expansion.architecture != architecture:
        raise ValueError(
            f"this expansion is of [{expansion.architecture}], but the run is of a model that is "
            f"[{architecture}]; expand model.architecture"
        )
    if isinstance(run, Tensors):
        if isinstance(expansion, Unfrozen):
            raise TypeError("with nothing held fixed, terms are evaluated on a run (model.run), not on Tensors")
        return TensorValues(expansion, run)
    return UnfrozenValues(expansion, run) if isinstance(expansion, Unfrozen) else Values(expansion, run)


# ---------------------------------------------------------------------------------------------- closure
@dataclass(frozen=True, slots=True)
class Closure:
    """|sum of terms - model| compared with the bound for rounding, at the entry with the largest ratio.

    ``bound = 16 u (sum of |summands| + f)``, u the unit roundoff; f is ``|x_i||w_u|`` for logits,
    ``scale |q_i||k_j|`` for scores (see :func:`rounding_scale` for a small d_head), ``|x_i|`` for the stream. The
    constant is empirical, not proved. A bound other than 0 is at least the smallest normal number of the type,
    below which numbers have fewer digits. ``of`` says which value of the model is compared if it is not its output:
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

    For a model with soft caps or ALiBi, the value before these.
    """
    if target == "logits":
        logits = run.products.get("logits") if run.products else run.logits
        return run.logits if logits is None else logits  # type: ignore[return-value]
    if target == "stream":
        return run.streams[-1]
    if target.startswith("readout:"):
        return run.readouts[target.partition(":")[2]]
    label = target.partition(":")[2]
    return run.products.get(label, run.scores[label])


def _compared(target: str, run: Run) -> str:
    settings = run.model.settings
    if target.startswith("readout:"):
        return ""
    if (settings.logit_cap if target == "logits" else settings.score_cap if target != "stream" else None) is not None:
        return "pre-cap"
    return "before the addend" if target.partition(":")[2] in run.products else ""


def compare(
    target: str, run: Run, summands: Iterable[Array], listed: bool, fused: bool = False, scale: Array | None = None
) -> Closure:
    """Add the summands pairwise and compare the sum with the model's own value, entry by entry.

    ``fused``: see :func:`rounding_scale`; ``scale``: its result, if known. Nothing is assumed: no
    summands, an entry that is not a finite number and a bound that is not a number all fail.
    """
    model, of = np.asarray(reference(target, run)), _compared(target, run)
    each = max(1, _COMPARED // max(1, model.shape[-1])) if model.ndim == 2 else max(1, model.shape[-2])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # numbers that are not finite fail below
        allowed = _spread(_allowed(target, run), model.shape)
        blocks = []  # few enough rows to stay in the cache, up to the last column compared
        for at in range(0, model.shape[-2], each):
            rows = (..., slice(at, at + each), slice(None))
            blocks.append((*rows[:2], slice(0, last_seen(allowed[rows]))))
        sums = [(PairwiseSum(), PairwiseSum()) for _ in blocks]
        count, found = 0, list[_Worst]()
        for value in summands:
            count += 1
            spread = _spread(value, model.shape)
            for rows, (total, size) in zip(blocks, sums, strict=True):
                total.add(spread[rows])
                size.add(np.abs(spread[rows]))
        scale = _spread(rounding_scale(target, run, fused) if scale is None else scale, model.shape)
        nothing = np.zeros((), run.dtype)
        for rows, (total, size) in zip(blocks, sums, strict=True):
            summed, absolute = (total.value, size.value) if count else (nothing, nothing)
            found.append(_worst(summed - model[rows], absolute + scale[rows], allowed[rows], run.dtype))
    compared = [one for one in found if one.entries]
    if not compared:
        return Closure(target, 0.0, 0.0, False, count, listed=listed, of=of)
    worst = max(compared, key=lambda one: one.ratio)  # the first of these
    passed = bool(count and all(one.passed for one in compared))
    return Closure(target, worst.error, worst.bound, passed, count, listed=listed, of=of)


def last_seen(allowed: npt.NDArray[np.bool_]) -> int:
    """The number of columns up to the last one used by a row of ``[..., rows, n]``, at least one."""
    return int(np.max(np.nonzero(allowed.any(axis=tuple(range(allowed.ndim - 1))))[0], initial=0)) + 1


class _Worst(NamedTuple):
    """For some compared entries: the largest ratio of error and bound, those two, whether all pass."""

    entries: int
    ratio: float
    error: float
    bound: float
    passed: bool


def _worst(off: Array, size: Array, allowed: Array, dtype: np.dtype[Any]) -> _Worst:
    """The errors of sums, and the size of what was rounded, at the compared entries."""
    bound = 16 * (np.finfo(dtype).eps / 2) * size
    bound = np.where(bound > 0, np.maximum(bound, np.finfo(dtype).tiny), bound)
    error, bound = np.abs(off)[allowed], np.broadcast_to(bound, off.shape)[allowed]
    if not error.size:
        return _Worst(0, 0.0, 0.0, 0.0, True)
    known = np.isfinite(error) & np.isfinite(bound)
    ratio = np.where(known, np.where(error == 0, 0.0, error / bound), np.inf)
    at = int(np.argmax(ratio))
    passed = bool(np.all(known & (error <= bound)))
    return _Worst(error.size, float(ratio[at]), error=float(error[at]), bound=float(bound[at]), passed=passed)


def _chosen(found: Array, position: int, chosen: list[int]) -> Array:
    """One output of ``[terms, batch, n, width]`` at a position, or the difference of two."""
    first, *others = [found[:, :, position, one] for one in chosen]
    return np.asarray(first - others[0] if others else first)


def _spread(array: Array, shape: tuple[int, ...]) -> Array:
    """An array reshaped to that shape, if it does not have it already."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _allowed(target: str, run: Run) -> Array:
    """The compared entries: all; for scores those that the mask leaves."""
    if not target.startswith("scores"):
        return np.ones((1, 1), bool)
    return run.masks[f"L{run.model.architecture.head(target.partition(':')[2]).layer}"]


def closure(
    expansion: Expansion, run: Run, listed: int = LISTED, summed: Iterable[Array] | None = None,
    scale: Array | None = None,
) -> Closure:  # fmt: skip
    """Whether the terms of a whole expansion add up to what the model computed, within rounding.

    Up to ``listed`` terms are evaluated one by one; beyond, the walk's sums are added, split by type of
    composition. Terms may cancel in these sums, whose sizes then hide some of the rounding: if they do not
    close, and there are no more than ``LISTED`` terms, the bound is still that of the terms, so the result does not
    depend on ``listed``. ``summed`` (the sums by type of composition) and ``scale`` (:func:`rounding_scale`) may be
    passed if they are known. Raises ValueError if terms, or the bound, leave the range of floating
    point: that decides nothing about the expansion.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> closure(sc.scores(run.model.architecture, "L1H0"), run).passed
    True
    """
    values = evaluate(expansion, run)
    by_type = (value for _, value in values.classes(expansion.typed)) if summed is None else [*summed]
    is_listed = expansion.count <= listed
    found = compare(expansion.target, run, values if is_listed else by_type, is_listed, scale=scale)
    if not found.passed and listed < expansion.count <= LISTED:
        by_term = compare(expansion.target, run, values, True, scale=scale)
        found = by_term if np.isfinite([by_term.error, by_term.bound]).all() else found
    model = np.asarray(reference(expansion.target, run))
    known = np.isfinite([found.error, found.bound]).all()
    if not known and np.isfinite(model[_spread(_allowed(expansion.target, run), model.shape)]).all():
        finite(values, "the bound of the sum of all terms", np.asarray(np.inf))  # names a term that is not finite
    return found
