"""Values of terms: numbers for each of them; and their sums, by the walk and never by a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from symcircuits.arrays.rings import PairwiseSum
from symcircuits.core.expansion import Expansion, Term, composition_of
from symcircuits.core.paths import Paths, path_branches
from symcircuits.core.seam import higher
from symcircuits.core.text import need
from symcircuits.core.walk import Mark, Matrices, walk_marked
from symcircuits.work.progress import OnProgress

if TYPE_CHECKING:
    from symcircuits.search.largest import Largest
    from symcircuits.search.sample import Sample
    from symcircuits.search.squares import Squares
    from symcircuits.values.blocks import Numbers
    from symcircuits.values.measure import Measure
    from symcircuits.values.summary import Summary

__all__ = ["Sums"]

A = TypeVar("A")


class Sums(Generic[A]):
    """The sums of an expansion's terms, for any kind of arrays that can be added.

    Subclasses define the kind of arrays; see :class:`symcircuits.values.engine.Engine`.
    """

    expansion: Expansion
    matrices: Matrices

    def side(self, paths: Paths, most: int | None = None, needed: int = 0) -> dict[Mark, Any]:
        """The sums of the paths of a side's program, by mark, with orders counted up to ``most`` (None: no limit).

        ``needed``: the bits that every wanted path has.
        """
        return walk_marked(paths.program, paths.algebra(self.matrices, most), needed=needed)

    def turned(self, rows: Any, row: int | None = None) -> Any:
        """Queries or keys as they meet, rotated if positions are rotary; ``row``: only those of that position."""
        if self.expansion.architecture.positions != "rotary":
            return rows
        head = self.expansion.readout.head
        if row is None:
            return self.matrices.turned(head, rows)
        return rows @ self.matrices.matrices[f"R_{head}"][row, :, :]

    def scaled(self, rows: Any) -> Any:
        """Times the score scale, if there is one."""
        label = self.expansion.readout.scale
        return self.matrices.ring.times(self.matrices.matrices[f"scale_{label}"], rows) if label else rows

    def met(self, query: Any, key: Any) -> A:
        """``scale q k^T``, rotated if positions are rotary."""
        found: A = self.scaled(self.turned(query)) @ self.matrices.ring.transpose(self.turned(key))
        return found

    def spread(self, value: Any) -> A:
        """A value with the batch axes of the tokens."""
        raise NotImplementedError

    def calm(self) -> AbstractContextManager[Any]:
        """A context for computing sums."""
        return nullcontext()

    def seen(self, value: A, what: Any) -> A:
        """A finished sum; ``what`` describes it."""
        return value

    def _zero(self) -> A:
        raise NotImplementedError

    # ------------------------------------------------------------------------------ single terms
    def blocks(
        self, *, size: int | None = None, out: Any = None, start: int = 0, stop: int | None = None
    ) -> Iterator[Numbers]:
        """The values of all terms, ``[terms, ..., n_context, width]``, in blocks that share one buffer.

        For logits and the stream in head space: ``Z (W_U W_O^h)^T`` with ``Z [n_context, d_head]``, for heads
        that follow the same path in one product each for virtual weights, patterns and readout; for scores (scaled,
        before the mask; width ``n_context``) ``s Q_p K_r^T`` for a query path and many key paths at once.

        **A block is valid until the next is requested**: copy what you keep. A block has up to ``size`` terms (None:
        about a MiB, at least one term), and ends where a group of paths does. ``out``, an array of the run's dtype and
        of ``[size, ..., n_context, width]``: where the values are written. Memory beyond the buffer holds the paths in
        head space, one stack of beginnings, and ``W_U W_O^h`` of the heads, up to 256 MiB. With
        :class:`~symcircuits.Tensors` every block is an array of its own, and there is no ``out``. ``start`` and
        ``stop`` select a range of terms, by number. Raises ValueError on an ``out`` that does not fit, an invalid range
        of terms and, naming it, a term that is not finite. Source: own derivation.

        >>> import numpy as np
        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> total = np.zeros_like(run.logits)
        >>> for block in sc.evaluate(sc.logits(run.model.architecture), run).blocks():
        ...     total += block.values.sum(0)
        >>> bool(np.allclose(total, run.logits))
        True
        """
        return higher(None, "Values.blocks")(self, size=size, out=out, start=start, stop=stop)  # type: ignore[no-any-return]

    def measure(
        self, by: Measure | None = None, *, size: int = 1 << 16, start: int = 0, stop: int | None = None
    ) -> Iterator[Numbers]:
        """A number for every term, in their order: its norm, its part in a logit or a difference, or in one score.

        ``by``: :func:`~symcircuits.norm` (None), :func:`~symcircuits.logit`, :func:`~symcircuits.score_entry`. In
        blocks of ``size`` numbered as those of ``expansion.blocks()``, ``[terms, ...]`` with the batch axes of the
        tokens (without, if ``by`` names a row). No term is formed: neither the vocabulary nor two positions at a time.
        ``start`` and ``stop`` select a range of terms; earlier terms are skipped, so work can be split (for scores the
        last digits may depend on the grouping of products; with :class:`~symcircuits.Tensors` they are computed and
        dropped). Raises ValueError on what does not exist and, naming it, on a term that is not finite. Method:
        :mod:`symcircuits.values.norms`, :mod:`symcircuits.values.entries`.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> [block] = sc.evaluate(sc.logits(run.model.architecture), run).measure(sc.logit(0))
        >>> block.start, len(block.values), bool(abs(block.values.sum() - run.logits[-1, 0]) < 1e-12)
        (0, 9, True)
        """
        return higher(None, "Values.measure")(self, by, size=size, start=start, stop=stop)  # type: ignore[no-any-return]

    def summary(
        self, by: Measure | None = None, *, top: int = 20, start: int = 0, stop: int | None = None,
        max_terms: int | None = None, max_seconds: float | None = None, workers: Any = None,
        progress: OnProgress | bool = None,
    ) -> Summary:  # fmt: skip
        """The size of each term of a range: the ``top`` largest, and sums by order and composition type; for a run.

        ``by`` as in :meth:`measure`; for a batch norms are over all rows, and a logit or score needs a row.
        ``workers``: a number, an executor or a function that makes one (see
        :func:`~symcircuits.explain_many`); each gets ranges of term numbers, and no arrays; other processes
        read the model from the path that it was loaded from. The result is the same, bit for bit, for any number of
        workers that compute alike. ``max_terms`` and ``max_seconds`` end the work: ``stop`` of the result says where,
        and ``start`` of another call continues there. ``progress``: True for a bar, or a function
        called with ``(what, done, total)`` now and then. Raises
        ValueError on what does not exist, on a term that is not finite, naming it, and from 10^13 terms on.
        Source: own construction.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> found = sc.evaluate(sc.logits(run.model.architecture), run).summary(sc.logit(), top=1, workers=2)
        >>> found.total.count, bool(abs(found.total.total - run.logits[-1].max()) < 1e-12), len(found.largest)
        (9, True, 1)
        """
        found: Summary = higher(None, "Values.summary")(
            self, by, top=top, start=start, stop=stop, max_terms=max_terms, max_seconds=max_seconds, workers=workers,
            progress=progress,
        )  # fmt: skip
        return found

    def largest(
        self, k: int = 10, by: Measure | None = None, *, max_expansions: int | None = None,
        max_seconds: float | None = None, max_memory: int = 2**30, moments: bool | None = None,
        progress: OnProgress | bool = None,
    ) -> Largest:  # fmt: skip
        """The ``k`` largest terms, and a proof that no other is larger, without listing all; for a run.

        ``by`` as in :meth:`summary`; None means, for the logits of one prompt, the logit of the first choice less
        the mean of all, with token and position embedding as one, which does not depend on how the model is written.
        ``max_expansions`` (partial paths), ``max_seconds`` and ``max_memory`` (bytes) end
        the search; the result then says what is proved. ``moments``: whether second moments are used for the bounds
        (None: if memory and time allow). ``progress``: True for a bar, or a function
        called with ``(what, done, total)`` now and then. Raises
        ValueError on what does not exist, and if a size is not finite. Method: :mod:`symcircuits.search.largest`.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((4, 4, 4)), seed=1).run([1, 2, 3])
        >>> found = sc.evaluate(sc.logits(run.model.architecture), run).largest(3, sc.logit(against="second"))
        >>> found.exact, len(found.terms), found.looked + found.excluded
        (True, 3, 125)
        """
        found: Largest = higher(None, "Values.largest")(
            self, k, by, max_expansions=max_expansions, max_seconds=max_seconds, max_memory=max_memory,
            moments=moments, progress=progress,
        )  # fmt: skip
        return found

    def sample(
        self, k: int = 1000, by: Measure | None = None, *, seed: int = 0, weights: str = "bound",
        max_seconds: float | None = None, max_memory: int = 2**30,
        progress: OnProgress | bool = None,
    ) -> Sample:  # fmt: skip
        """Draw ``k`` terms at random, and estimate the sum of the sizes of all, with its standard error; for a run.

        ``by`` as in :meth:`summary`. ``weights``: ``"bound"`` (large terms are likelier, by bounds) or ``"uniform"``.
        ``max_seconds`` ends it with the draws made so far; work that needs more than ``max_memory`` (bytes) raises.
        Raises ValueError on what does not exist, and, naming the term, if a size is not finite. Method:
        :mod:`symcircuits.search.sample`.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((3, 3, 3)), seed=1).run([1, 2, 3])
        >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
        >>> found = values.sample(400, sc.logit())
        >>> bool(abs(found.estimate - values.summary(sc.logit()).total.absolute) < 4 * found.error)
        True
        """
        found: Sample = higher(None, "Values.sample")(
            self, k, by, seed=seed, weights=weights, max_seconds=max_seconds, max_memory=max_memory, progress=progress
        )
        return found

    def sum_of_squares(
        self, by: Measure | None = None, *, samples: int = 64, seed: int = 0, max_memory: int = 2**30
    ) -> Squares:
        """The sum of the squares of the sizes of all terms, at any depth, without listing them; for a run.

        Exact if the second moments of all heads fit into ``max_memory`` (bytes), else estimated by ``samples``
        random signs. ``by`` as in :meth:`summary`. Raises ValueError on what does not exist, and if the sum is not
        finite. Method: :mod:`symcircuits.search.squares`.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
        >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
        >>> found = values.sum_of_squares()
        >>> found.exact, bool(abs(found.value - sum((value**2).sum() for value in values)) < 1e-9)
        (True, True)
        """
        found: Squares = higher(None, "Values.sum_of_squares")(
            self, by, samples=samples, seed=seed, max_memory=max_memory
        )
        return found

    # ----------------------------------------------------------------------------------------------- sums
    def value(self, term: Term) -> A:
        """The value of one term; raises ValueError if it belongs to another readout, or is not finite."""
        need("value", term, Term)
        if term.readout != self.expansion.readout:
            raise ValueError(f"{term!r} is not a term of {self.expansion.target} of [{self.expansion.architecture}]")
        sides = []
        with self.calm():
            for program, path in zip(term.readout.sides, term.paths, strict=True):
                value = self.matrices.source(path.source)
                for branch in path_branches(program, path):
                    value = self.matrices.branch(branch, value)
                sides.append(value)
            found = self.spread(sides[0] if len(sides) == 1 else self.met(*sides))
        return self.seen(found, f"the term {term.label}")

    def classes(self, most: int | None = None) -> Iterator[tuple[tuple[int, ...], A]]:
        """The sums of the terms of equal orders (one per side) and conditions, by the walk: (orders, sum).

        Orders are counted up to ``most``, or as far as the selection needs (None: no limit). Parts without wanted
        terms are dropped before the last layer, so the unembedding acts only on what is wanted.
        """
        counted = self.expansion.counted
        most = None if most is None or counted is None else max(most, counted)
        needed = self.expansion.features if len(self.expansion.sides) == 1 else 0
        with self.calm():
            sides = [self.side(p, most, needed) for p in self.expansion.sides]
        for marks in product(*sides):
            if self.expansion.accepts(marks):
                with self.calm():
                    parts: list[Any] = [side[m] for side, m in zip(sides, marks, strict=True)]
                    found = self.spread(parts[0] if len(parts) == 1 else self.met(*parts))
                yield tuple(m.order for m in marks), found

    def total(self) -> A:
        """The sum of all terms, by the walk (at any depth, without listing)."""
        total = PairwiseSum()
        with self.calm():
            for _, value in self.classes(0):
                total.add(value)
        return self.seen(total.value, "all terms") if total.count else self._zero()

    def by_order(self) -> dict[int, A]:
        """The sum of the terms of each order."""
        return dict(sorted(self._sums(sum, "order {}").items()))

    def by_composition(self) -> dict[str, A]:
        """The sum of the terms of each composition type."""
        sums = self._sums(composition_of, "composition {}", self.expansion.typed)
        return {c: sums[c] for c in self.expansion.counts_by_composition()}

    def by_orders(self) -> dict[tuple[int, ...], A]:
        """The sum of the terms of each number of heads on each side: by (query, key) for scores, else by (order,)."""
        return dict(sorted(self._sums(tuple, "orders {}").items()))

    def by_source(self) -> dict[Any, A]:
        """The sum of the terms from each source, by its name; for scores by the names of (query, key).

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2, 2), biases=["b_V"]), seed=1).run([1, 2, 3])
        >>> sums = sc.evaluate(sc.logits(run.model.architecture), run).by_source()
        >>> list(sums), bool(abs(sum(sums.values()) - run.logits).max() < 1e-12)
        (['embed', 'b_V[L0H0]', 'b_V[L0H1]', 'b_V[L1H0]', 'b_V[L1H1]'], True)
        """
        with self.calm():
            return self._by_source()

    def _by_source(self) -> dict[Any, A]:
        sides = [self._side_by_source(i) for i in range(len(self.expansion.sides))]
        sums: dict[Any, PairwiseSum] = {}
        for names in product(*sides):
            for marks in product(*(side[name] for side, name in zip(sides, names, strict=True))):
                if self.expansion.accepts(marks):
                    parts: list[Any] = [s[name][mark] for s, name, mark in zip(sides, names, marks, strict=True)]
                    total = sums.setdefault(names[0] if len(names) == 1 else names, PairwiseSum())
                    total.add(self.spread(parts[0] if len(parts) == 1 else self.met(*parts)))
        return {key: self.seen(total.value, f"source {key}") for key, total in sums.items()}

    def _sums(self, key: Callable[[Any], Any], what: str, most: int | None = None) -> dict[Any, A]:
        sums: dict[Any, PairwiseSum] = {}
        with self.calm():
            for orders, value in self.classes(most):
                sums.setdefault(key(orders), PairwiseSum()).add(value)
        return {k: self.seen(s.value, what.format(k)) for k, s in sums.items()}

    def _side_by_source(self, side: int) -> dict[str, dict[Mark, Any]]:
        """The sums of the paths of a side from each source, by mark."""
        found = {}
        for name in dict.fromkeys(s.name for s in self.expansion._side_sources(side)):
            marked, bit = self.expansion._marked_by_source(name, side)
            sums = self.side(marked.sides[side])
            found[name] = {Mark(m.order, m.bits ^ bit): v for m, v in sums.items() if m.bits & bit}
        return found
