"""A sequence of terms, exactly counted and indexed by arithmetic: the base of every expansion, at any depth."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from symcircuits.core.architecture import Architecture
from symcircuits.core.programs import Readout
from symcircuits.core.terms import composition_of
from symcircuits.core.text import amount, as_whole, many, shown, whole
from symcircuits.core.walk import Mark

__all__ = ["MAX_LISTED", "TermSequence"]

T = TypeVar("T")
MAX_LISTED = 10_000_000


class TermSequence(ABC, Generic[T]):
    """Terms in an order that is stable across versions: their number, and each by its number, without a list.

    A term belongs to marks, one per side, which carry its orders; terms with the same marks are counted together.
    """

    readout: Readout

    @abstractmethod
    def marks(self) -> Iterator[tuple[tuple[Mark, ...], int]]:
        """The marks of the terms, each with its number of terms."""

    @abstractmethod
    def _at(self, i: int) -> T:
        """The term with that number, from 0 to ``count - 1``."""

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    @abstractmethod
    def index(self, term: T) -> int:
        """The number of a term; raises ValueError if it is not in this expansion."""

    @property
    def architecture(self) -> Architecture:
        """The expanded architecture."""
        return self.readout.architecture

    @property
    def target(self) -> str:
        """``logits``, ``stream``, ``scores:L1H0`` or ``readout:probe``."""
        return self.readout.target

    # --------------------------------------------------------------------------------------------- counting
    @cached_property
    def count(self) -> int:
        """Exact number of terms."""
        return sum(self._numbers.values())

    def counts_by_order(self) -> dict[int, int]:
        """Number of terms of each order (number of heads of the path, both sides together) that occurs."""
        return self._counts_by(lambda orders: sum(orders))

    def counts_by_composition(self) -> dict[str, int]:
        """Number of terms of each composition type of the path that occurs."""
        return dict(self._compositions)

    def counts_by_orders(self) -> dict[tuple[int, ...], int]:
        """Number of terms by the order of each side, e.g. by (query, key)."""
        return self._counts_by(lambda orders: orders)

    @cached_property
    def _compositions(self) -> dict[str, int]:
        """Number of terms of each composition type; computed once."""
        found = self._counts_by(composition_of)
        return {c: found[c] for c in ("none", "V", "Q", "K", "QK") if c in found}

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        """Number of terms by the order of each side; computed once."""
        found: dict[tuple[int, ...], int] = {}
        for marks, n in self.marks():
            orders = tuple(m.order for m in marks)
            found[orders] = found.get(orders, 0) + n
        return found

    def _counts_by(self, key: Callable[[tuple[int, ...]], Any]) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for orders, n in self._numbers.items():
            k = key(orders)
            found[k] = found.get(k, 0) + n
        return dict(sorted(found.items()))

    def __len__(self) -> int:
        if self.count > MAX_LISTED:
            raise OverflowError(
                f"{amount(self.count, 'term')} are too many to list: use .count for the number, e[i], a selection "
                "such as .order(2), iteration with a limit, or evaluate(...).total() for sums"
            )
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    # ------------------------------------------------------------------------------------ terms and numbers
    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            chosen = range(self.count)[index]
            if chosen and (chosen[-1] - chosen[0]) // chosen.step >= MAX_LISTED:
                raise OverflowError("this slice has too many terms to list; iterate, or select first")
            return [self[i] for i in chosen]
        i = as_whole(index)
        if i is None:
            raise TypeError(f"terms are numbered by whole numbers, not {shown(index)}")
        if not -self.count <= i < self.count:
            raise IndexError(f"term {many(i)} does not exist: this expansion has {amount(self.count, 'term')}")
        return self._at(i % self.count)

    def __contains__(self, term: object) -> bool:
        try:
            self.index(term)  # type: ignore[arg-type]
        except ValueError:
            return False
        return True

    def head(self, n: int = 10) -> list[T]:
        """The first n terms."""
        return list(islice(self, min(whole("n", n, 0), sys.maxsize)))
