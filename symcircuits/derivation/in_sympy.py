"""Expressions of the generic form as SymPy's sums over heads, and claims held to those of :func:`symcircuits.symbolic`.

What is printed keeps its order, its tensors and the names of streams; SymPy's sums and products do not, they sort what
they hold. So the printed expression is made into SymPy's sums over noncommutative indexed letters, letter by letter,
its streams and its target being those of :class:`~symcircuits.sympy_layer.streams.Streams`, which knows neither the
expression nor the enumeration. Sides that are the same products under the same sums are equal for every number of
heads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from sympy import Add, IndexedBase, Mul, Poly, S, Sum, Symbol, sympify, transpose

from symcircuits.core.symbols import SHARED
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.claims import DerivationError
from symcircuits.derivation.definitions import norm_of, summands
from symcircuits.derivation.expressions import is_recursion
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.multiplying import count_polynomial
from symcircuits.derivation.nodes import (
    Apply,
    CountOf,
    Expr,
    Family,
    Identity,
    Product,
    Spelled,
    SumOver,
    Target,
    Tensor,
    Transposed,
)
from symcircuits.derivation.nodes import Sum as SumNode
from symcircuits.sympy_layer.canonical import SummedProduct, families_of
from symcircuits.sympy_layer.families import Families
from symcircuits.sympy_layer.letters import AsSymbols, IndexedLetter
from symcircuits.sympy_layer.streams import Streams

__all__ = ["InSymPy"]

Scope = Mapping[str, int]  # index -> the layer over whose heads it runs
_NOWHERE: Scope = {}
_GENERIC = re.compile(r"G\(([a-z](?:_\d+)?)\)|([a-z](?:_\d+)?)")  # the label of a generic head, or of its group
_SIDES = ("query", "key")  # of what is read as it stands, and transposed, in scores


class InSymPy:
    """Expressions of one derivation in the generic form, as SymPy has them.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.frames import make_frame
    >>> from symcircuits.derivation.definitions import layer_definition
    >>> frame = make_frame(attention_only((3, 3)), "logits", "generic")
    >>> InSymPy(frame).expr(layer_definition(frame, 1))
    X0 + Sum(A_L0[h_1]*X0*transpose(W_OV_L0[h_1]), (h_1, 0, H_1 - 1))
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.heads = tuple(Symbol(f"H_{n + 1}", integer=True, nonnegative=True) for n in range(frame.depth))
        given: Any = (*self.heads, *frame.walked.heads[frame.depth :])
        groups = frame.walked.groups  # where numbers of heads are symbols, every head stands for its own keys
        shared: Any = None if groups is None else (*self.heads, *groups[frame.depth :])
        self.architecture = replace(frame.walked, heads=given, groups=shared)
        self.form = AsSymbols()
        self.streams = Streams(self.architecture, self.form, frame.walked)
        self._products: dict[int, tuple[Expr, Counter[SummedProduct]]] = {}

    # ------------------------------------------------------------------------------------------------- claims
    def check(self, where: str, sides: Sequence[Expr]) -> None:
        """DerivationError where the sides are not the same products under the same sums over heads."""
        first = self.products(sides[0])
        for side in sides[1:]:
            other = self.products(side)
            if other != first:
                raise DerivationError(
                    f"{where} fails for symbolic numbers of heads: the two sides differ{_difference(other, first)}"
                )

    def check_families(self, where: str, families: Sequence[Family]) -> None:
        """DerivationError where a family has another number of terms, as a polynomial, than it says."""
        for family in families:
            found = Add(*(n * Mul(*(upper - lower + 1 for _, lower, upper in product.sums))
                          for product, n in self.products(family.body).items()))  # fmt: skip
            told = self.number(family.count)
            if not self._same(found, told):
                raise DerivationError(f"{where} fails: the family {family.composition} has {found} terms, not {told}")

    def check_counts(self, where: str, sides: Sequence[Expr], numbers: Sequence[Expr]) -> None:
        """DerivationError where the numbers are not one polynomial in the numbers of heads, that of the families.

        ``sides`` are as they are printed, ``numbers`` the same with terms counted.
        """
        found = [self.number(number) for number in numbers]
        found += [self._counted(side) for side in sides if isinstance(side, CountOf)]
        if not all(self._same(found[0], other) for other in found[1:]):
            shown = ", ".join(map(str, found))
            raise DerivationError(f"{where} fails: the sides are not the same polynomial in H_1, H_2, ...: {shown}")

    def number(self, expr: Expr) -> Any:
        """A counting expression in the symbols of the numbers of heads."""
        return sympify(count_polynomial(expr, lambda layer: self.heads[layer]))

    @cached_property
    def _families(self) -> Families:
        return Families(self.architecture, self.frame.expansion)

    def _counted(self, count: CountOf) -> Any:
        found = self._families
        found = found if count.order is None else found.order(count.order)
        return (found if count.composition is None else found.where(composition=count.composition)).count

    def _same(self, a: Any, b: Any) -> bool:
        return bool(Poly(a - b, *(self.heads or (Symbol("H_1"),))).is_zero)

    # ------------------------------------------------------------------------------------------------ products
    def products(self, expr: Expr) -> Counter[SummedProduct]:
        """An expression as its products under sums over heads; what ALiBi adds is one more."""
        if id(expr) not in self._products:  # the expression is kept, so that its id stays its own
            beside = [part for part in summands(expr) if isinstance(part, AlibiTerm)]
            beside += [AlibiTerm(str(self.frame.head))] * (isinstance(expr, Target) and self.frame.alibi)
            paths = [part for part in summands(expr) if not isinstance(part, AlibiTerm)]
            found = families_of(Add(*(self.expr(part) for part in paths)), self.frame.walked)
            found.update(SummedProduct((), ((str(one), -1, False),), ()) for one in beside)
            self._products[id(expr)] = expr, found
        return self._products[id(expr)][1]

    # --------------------------------------------------------------------------------------------- expressions
    def expr(self, expr: Expr, scope: Scope = _NOWHERE, turned: bool = False) -> Any:
        """The expression in SymPy; ``turned``: it stands in a transpose, so that in scores it is of the keys."""
        match expr:
            case Word():
                return self._product(expr.scales, expr.fused, scope, turned)
            case Spelled():
                return self._product(expr.word.scales, expr.word.factors, scope, turned)
            case Product():
                return self.form.product(expr.scales, [self.expr(f, scope, turned) for f in expr.factors])
            case SumNode():
                return Add(*(self.expr(t, scope, turned) for t in expr.terms))
            case SumOver():
                return self._over(expr, lambda inner: self.expr(expr.body, inner, turned), scope)
            case Transposed():
                return transpose(self.expr(expr.body, scope, not turned))
            case Family():
                return self.expr(expr.body, scope, turned)
            case Identity():
                return S.One
            case Target():
                return self.streams.target(expr.name)
            case Apply():
                sides = [turned, not turned]
                arguments = [self.expr(a, scope, side) for a, side in zip(expr.arguments, sides, strict=False)]
                return self._acted(expr.operator, arguments, scope)
            case _:
                raise TypeError(f"{type(expr).__name__} is not written in SymPy")

    def _acted(self, operator: Expr, x: list[Any], scope: Scope) -> Any:
        """What an operator makes of its argument (``A X W^T``), or of two (``A_q x W y^T A_k^T``)."""
        match operator:
            case Identity():
                return x[0]
            case Tensor():
                slots = [self.expr(slot, scope) for slot in operator.slots]
                if len(slots) == 2:
                    return Mul(slots[0], x[0], transpose(slots[1]))
                query, key, between = slots
                return Mul(query, x[0], between, transpose(Mul(key, x[1])))
            case Product():
                for f in reversed(operator.factors):
                    x = [self._acted(f, x, scope)]
                return self.form.product(operator.scales, x)
            case SumNode():
                return Add(*(self._acted(t, x, scope) for t in operator.terms))
            case SumOver():
                return self._over(operator, lambda inner: self._acted(operator.body, x, inner), scope)
            case _:
                raise TypeError(f"{type(operator).__name__} is not an operator")

    def _over(self, over: SumOver, body: Any, scope: Scope) -> Any:
        limits = (Symbol(over.index, integer=True, nonnegative=True), S.Zero, self.heads[over.layer] - 1)
        return Sum(body({**scope, over.index: over.layer}), limits)

    def _product(self, scales: Sequence[str], factors: Sequence[Factor], scope: Scope, turned: bool) -> Any:
        return self.form.product(scales, [self._factor(f, scope, turned) for f in factors])

    def _factor(self, factor: Factor, scope: Scope, turned: bool) -> Any:
        if is_recursion(factor):
            stream = self._read(factor, turned != factor.transposed)
            return transpose(stream) if factor.transposed else stream
        found = _GENERIC.fullmatch(factor.symbol.label)
        if found is None:
            return self.form.letter(factor)
        shared, name = bool(found[1]), found[1] or found[2]
        layer = scope.get(name, 0)  # a head without a sum stands for any head of any layer
        if name in scope and factor.symbol.glyph in SHARED and shared != self.frame.grouped(layer):
            raise DerivationError(f"{factor.text}: keys and values are those of a group where heads share them")
        letter = IndexedLetter(IndexedBase(f"{factor.symbol.glyph}_L{layer}", commutative=False),
                               Symbol(name, integer=True, nonnegative=True))  # fmt: skip
        return transpose(letter) if factor.marked else letter

    def _read(self, factor: Factor, of_keys: bool) -> Any:
        """A stream by the recursion, or what comes out of a norm by that stream; the indices of both sides differ."""
        glyph = factor.symbol.glyph
        if glyph != "Y":
            return self._stream(int(glyph[1:]), of_keys)
        read = norm_of(self.frame, factor.symbol.label)
        point = read.left[0].row.point or 0
        x = [*map(self.form.letter, read.left), self._stream(point, of_keys), *map(self.form.letter, read.right)]
        bias = [self.form.product((), map(self.form.letter, read.bias))] if read.bias else []
        return Add(self.form.product((), x), *bias)

    def _stream(self, layer: int, of_keys: bool) -> Any:
        found = self.streams.X[layer]
        if self.frame.head is None:
            return found
        side = _SIDES[of_keys]
        names = [(self.frame.index(n), self.frame.index(n, side)) for n in range(layer)]
        plain = {"integer": True, "nonnegative": True}
        return found.xreplace({Symbol(h, **plain): Symbol(i, **plain) for h, i in names})


def _difference(seen: Counter[SummedProduct], wanted: Counter[SummedProduct]) -> str:
    notes = []
    for title, products in (("missing", wanted - seen), ("extra", seen - wanted)):
        if products:
            more = f" and {len(products) - 1} more" if len(products) > 1 else ""
            notes.append(f"{title}: {next(iter(products)).text}{more}")
    return f" ({', '.join(notes)})" if notes else ""
