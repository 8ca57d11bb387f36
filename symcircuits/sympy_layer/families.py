"""Expansions with symbolic numbers of heads: families of terms, each a product under sums over heads.

A family is the term of one generic head per layer (:meth:`symcircuits.core.architecture.Architecture.generic`), so its
label, order and composition type are those of the enumeration; its number of terms is a product of numbers of heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

from sympy import Add, Mul, S, Sum, latex

from symcircuits.core.architecture import Architecture, Head, as_head
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.programs import Branch, Source, readout
from symcircuits.core.symbols import READERS
from symcircuits.core.terms import composition_of
from symcircuits.core.text import amount
from symcircuits.core.walk import walk
from symcircuits.sympy_layer.letters import spelled
from symcircuits.sympy_layer.streams import generic_form, head_limits

__all__ = ["MAX_FAMILIES", "Families", "Family", "OfTerm", "families"]

MAX_FAMILIES: Final = 4_096  # up to this number they are listed
_SIDES: Final = {1: ("",), 2: ("query", "key")}


def families(architecture: Architecture, target: str) -> Families:
    """The families of a target of an architecture with symbolic numbers of heads; ValueError on an unknown target.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> families(attention_only((H_1, H_2)), "logits").count
    H_1*H_2 + H_1 + H_2 + 1
    """
    kind, _, label = target.partition(":") if isinstance(target, str) else ("", "", "")
    head = architecture.head(as_head(label)) if kind == "scores" and label else None
    return Families(architecture, Expansion(readout(architecture.generic(head), target)))


class OfTerm:
    """Objects with the type of a term."""

    __slots__ = ()
    term: Term

    @property
    def composition(self) -> str:
        """``none`` or ``V``; for scores ``none``, ``Q``, ``K`` or ``QK``."""
        return self.term.composition

    @property
    def order(self) -> int:
        """The number of heads, of both sides together."""
        return self.term.order

    @property
    def orders(self) -> tuple[int, ...]:
        """The number of heads of each side."""
        return self.term.orders


@final
@dataclass(frozen=True, slots=True)
class Family(OfTerm):
    """The terms through the same layers from the same source: one for every choice of heads.

    ``term`` is that of the first heads, which represents all.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> family = families(attention_only((H_1, H_2)), "scores:L1H0")[1]
    >>> family.label, family.composition, family.count
    ('embed | embed -> k_1', 'K', H_1)
    >>> family.expr
    Sum(scale_L1H0*t*transpose(W_E)*W_QK_L1H0*W_OV_L0[k_1]*W_E*transpose(t)*transpose(A_L0[k_1]), (k_1, 0, H_1 - 1))
    """

    architecture: Architecture
    term: Term

    @property
    def count(self) -> Any:
        """The number of its terms: a product of numbers of heads."""
        return Mul(*(S(self.architecture.heads[h.layer]) for path in self.term.heads for h in path))

    @property
    def label(self) -> str:
        """``embed -> h_1 -> h_2``; for scores ``embed -> q_1 | embed -> k_1``."""
        shown = []
        for limits, path in zip(self._limits, self.term.paths, strict=True):
            names = {Head(layer, 0).label: str(index) for layer, (index, _, _) in limits.items()}
            kind, bracket, label = path.source.name.rstrip("]").partition("[")
            source = f"{kind}[{names.get(label, label)}]" if bracket else path.source.name
            shown.append(" -> ".join([source, *(names[str(h)] for h in path.heads)]))
        return " | ".join(shown)

    @property
    def expr(self) -> Any:
        """The product under sums over its heads; with numbers of heads substituted, ``doit()`` gives the terms."""
        return self.as_expr()

    def as_expr(self, letters: str = "OV") -> Any:
        """The same with the symbols of ``"OV"``, or of ``"factors"``."""
        word, forms = self.term.word, [generic_form(limits, letters) for limits in self._limits]
        side, parts = 0, []
        for factor in spelled(word.factors, letters):
            parts.append(forms[side].letter(factor))
            if len(forms) == 2 and factor.symbol.glyph in READERS:
                side = 1
        pairs = zip(self._limits, self.term.heads, strict=True)
        over = [limits[h.layer] for limits, heads in pairs for h in heads]
        body = forms[0].product(word.scales, parts)
        return Sum(body, *over) if over else body

    @property
    def _limits(self) -> list[Any]:
        depth = self.term.readout.head.layer if self.term.readout.head is not None else self.architecture.n_layers
        return [head_limits(self.architecture, depth, side) for side in _SIDES[len(self.term.paths)]]

    def _sympy_(self) -> Any:
        return self.expr

    def _latex(self, printer: Any) -> str:
        return str(printer.doprint(self.expr))

    def __repr__(self) -> str:
        return f"<Family {self.label} ({self.composition}): {amount_of(self.count)}>"


def amount_of(count: Any) -> str:
    return amount(int(count), "term") if count.is_Integer else f"{count} terms"


class _Counted:
    """The algebra of numbers of paths by their order, in SymPy: the head of a layer counts as many as there are."""

    def __init__(self, heads: tuple[int, ...]) -> None:
        self.heads = heads

    def source(self, source: Source) -> dict[int, Any]:
        """One path, or one for every head inside which it enters."""
        return {0: S.One} if source.head is None else {1: S(self.heads[source.head.layer])}

    def branch(self, branch: Branch, value: dict[int, Any]) -> dict[int, Any]:
        """As many times as there are heads."""
        if branch.head is None:
            return value
        return {order + 1: n * self.heads[branch.head.layer] for order, n in value.items()}

    def add(self, values: Iterable[dict[int, Any]]) -> dict[int, Any]:
        """Order by order."""
        found: dict[int, list[Any]] = {}
        for value in values:
            for order, n in value.items():
                found.setdefault(order, []).append(n)
        return {order: Add(*numbers) for order, numbers in found.items()}


@final
class Families:
    """All families of a target, in the order of the terms of one head per layer; counts are SymPy expressions.

    ``architecture`` has the symbolic numbers of heads, ``generic`` is the expansion of one head per layer.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> e = logits(attention_only((H_1, H_2)))
    >>> e.count.subs({H_1: 12, H_2: 12}), e.counts_by_composition()
    (169, {'none': H_1 + H_2 + 1, 'V': H_1*H_2})
    >>> from sympy import expand
    >>> expand(e.expr.subs({H_1: 2, H_2: 3}).doit()) == logits(attention_only((2, 3))).expr
    True
    """

    def __init__(self, architecture: Architecture, generic: Expansion) -> None:
        self.architecture, self.generic = architecture, generic

    @property
    def target(self) -> str:
        """``logits``, ``stream``, ``scores:L1H0`` or ``readout:probe``."""
        return self.generic.target

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of all sides; those inside heads as for the first head."""
        return self.generic.sources

    # ------------------------------------------------------------------------------------------------ counting
    @property
    def count(self) -> Any:
        """The number of terms, as a SymPy expression in the numbers of heads."""
        return Add(*self.counts_by_composition().values())

    def counts_by_order(self) -> dict[int, Any]:
        """The number of terms of each order (heads, both sides together) that occurs."""
        return self._counts(sum)

    def counts_by_composition(self) -> dict[str, Any]:
        """The number of terms of each composition type that occurs."""
        found = self._counts(composition_of)
        return {c: found[c] for c in ("none", "V", "Q", "K", "QK") if c in found}

    def _counts(self, key: Any) -> dict[Any, Any]:
        found: dict[Any, list[Any]] = {}
        for orders, n in self._by_orders.items():
            found.setdefault(key(orders), []).append(n)
        return {k: Add(*found[k]) for k in sorted(found)}

    @cached_property
    def _by_orders(self) -> dict[tuple[int, ...], Any]:
        """The number of terms by the orders of the sides: for a selection added up, else by a walk at any depth."""
        if self.generic.clauses:
            found: dict[tuple[int, ...], list[Any]] = {}
            for family in self:
                found.setdefault(family.orders, []).append(family.count)
            return {orders: Add(*counts) for orders, counts in found.items()}
        algebra = _Counted(self.architecture.heads)
        sides = [walk(program, algebra) or {} for program in self.generic.readout.sides]
        short = self.generic.count <= MAX_FAMILIES
        whole: dict[tuple[int, ...], Any] = {(o,): n for o, n in sides[0].items()}
        if len(sides) == 2:
            whole = {(q, k): n * m for q, n in sides[0].items() for k, m in sides[1].items()}
        return {orders: n.expand() if short else n for orders, n in whole.items()}

    # ------------------------------------------------------------------------------------------------ families
    def __len__(self) -> int:
        return self.generic.count

    def __iter__(self) -> Iterator[Family]:
        if self.generic.count > MAX_FAMILIES:
            raise ValueError(
                f"{amount(self.generic.count, 'famil')[:-1]}ies are too many to list, more than {MAX_FAMILIES:,}: "
                "counts are available, and single families by their number"
            )
        return (Family(self.architecture, term) for term in self.generic)

    def __getitem__(self, index: int) -> Family:
        return Family(self.architecture, self.generic[index])

    def order(self, *orders: int) -> Families:
        """The families of the given order (or orders)."""
        return Families(self.architecture, self.generic.order(*orders))

    def where(self, composition: str | Iterable[str]) -> Families:
        """The families of the given composition type (or types)."""
        return Families(self.architecture, self.generic.where(composition))

    def at(self, counts: Mapping[Any, int]) -> Expansion:
        """The expansion with these numbers of heads, with the same selection; ``counts`` maps symbols to numbers.

        >>> from sympy import symbols
        >>> from symcircuits.core.architecture import attention_only
        >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
        >>> families(attention_only((H_1, H_2)), "logits").order(2).at({H_1: 3, H_2: 4}).count
        12
        """
        return Expansion(readout(self.architecture.at(counts), self.target), self.generic.clauses)

    # ------------------------------------------------------------------------------------------------ in SymPy
    @property
    def expr(self) -> Any:
        """The sum of the families as one expression; at numbers of heads, ``doit()`` gives the sum of the terms."""
        return self.as_expr()

    @property
    def exprs(self) -> list[Any]:
        """The families as expressions, in their order."""
        return [family.expr for family in self]

    def as_expr(self, letters: str = "OV") -> Any:
        """The sum with the symbols of ``"OV"``, or of ``"factors"``."""
        return Add(*(family.as_expr(letters) for family in self))

    def latex(self) -> str:
        """The sum in LaTeX, as SymPy prints sums over heads."""
        return " + ".join(latex(family.expr) for family in self) or "0"

    def _sympy_(self) -> Any:
        return self.expr

    def _latex(self, printer: Any) -> str:
        return self.latex()

    def _sympystr(self, printer: Any) -> str:
        return str(printer.doprint(self.expr))

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def __repr__(self) -> str:
        many = f"{len(self):,} famil{'y' if len(self) == 1 else 'ies'}"
        return f"<Families of {self.target}: {many}, {self.count} terms ({self.architecture})>"
