"""Sums of many arrays, and the sums of an expansion's terms, by the walk and never by a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any, Generic, TypeVar

from symcircuits.core.expansion import Expansion, Term, composition_of
from symcircuits.core.paths import Paths, path_branches
from symcircuits.core.walk import Mark, Matrices

__all__ = ["PairwiseSum", "Sums"]

A = TypeVar("A")


class PairwiseSum:
    """A running sum of arrays, added in pairs like a binary tree, so that rounding grows with log2 only.

    What sums round off is below what terms themselves do, so carrying it along would bring nothing nearer to a forward
    pass, at three times the cost (measured: ``tests/benchmarks/bench_accuracy.py``).
    """

    def __init__(self) -> None:
        self._levels: list[Any] = []
        self.count = 0

    def add(self, array: Any) -> None:
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
    def value(self) -> Any:
        """The sum so far."""
        left = [a for a in self._levels if a is not None]
        total = left[0]
        for a in left[1:]:
            total = a + total
        return total


class Sums(Generic[A]):
    """The sums of an expansion's terms, of any kind of arrays that can be added.

    Whoever has them says what the paths of a side add up to (:meth:`side`) and how a query meets a key.
    """

    expansion: Expansion
    matrices: Matrices

    def side(self, paths: Paths) -> dict[Mark, Any]:
        """The sums of the paths of a side's program, by mark."""
        raise NotImplementedError

    def met(self, query: Any, key: Any) -> A:
        """``scale q k^T``, turned where positions are rotary."""
        raise NotImplementedError

    def spread(self, value: Any) -> A:
        """A value with the batch axes of the tokens."""
        raise NotImplementedError

    def calm(self) -> AbstractContextManager[Any]:
        """While sums are made."""
        return nullcontext()

    def seen(self, value: A, what: Any) -> A:
        """A finished sum, of ``what``."""
        return value

    def _zero(self) -> A:
        raise NotImplementedError

    def value(self, term: Term) -> A:
        """The value of one term, computed by itself; ValueError when it is a term of another readout."""
        if term.readout != self.expansion.readout:
            raise ValueError(f"{term!r} is no term of {self.expansion.target} of [{self.expansion.architecture}]")
        sides = []
        for program, path in zip(term.readout.sides, term.paths, strict=True):
            value = self.matrices.source(path.source)
            for branch in path_branches(program, path):
                value = self.matrices.branch(branch, value)
            sides.append(value)
        return self.spread(sides[0] if len(sides) == 1 else self.met(*sides))

    def classes(self) -> Iterator[tuple[tuple[int, ...], A]]:
        """The sums of the terms of equal orders (one a side) and conditions, by the walk: (orders, sum)."""
        sides = [self.side(p) for p in self.expansion.sides]
        for marks, _ in self.expansion.marks():
            parts: list[Any] = [side[m] for side, m in zip(sides, marks, strict=True)]
            yield tuple(m.order for m in marks), self.spread(parts[0] if len(parts) == 1 else self.met(*parts))

    def total(self) -> A:
        """The sum of all terms, by the walk (at any depth; nothing is listed)."""
        total = PairwiseSum()
        with self.calm():
            for _, value in self.classes():
                total.add(value)
        return self.seen(total.value, "all terms") if total.count else self._zero()

    def by_order(self) -> dict[int, A]:
        """The sum of the terms of each order."""
        return dict(sorted(self._sums(sum, "order {}").items()))

    def by_composition(self) -> dict[str, A]:
        """The sum of the terms of each composition type."""
        sums = self._sums(composition_of, "composition {}")
        return {c: sums[c] for c in self.expansion.counts_by_composition()}

    def by_orders(self) -> dict[tuple[int, ...], A]:
        """The sum of the terms of each number of heads on each side: by (query, key) for scores, by (order,) else."""
        return dict(sorted(self._sums(tuple, "orders {}").items()))

    def by_source(self) -> dict[Any, A]:
        """The sum of the terms from each source, by its name; of scores by the names of (query, key).

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

    def _sums(self, key: Callable[[Any], Any], what: str) -> dict[Any, A]:
        sums: dict[Any, PairwiseSum] = {}
        with self.calm():
            for orders, value in self.classes():
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
