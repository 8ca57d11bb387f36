"""SymPy expressions in canonical symbols, without abbreviations, and with sums over heads.

The body of a sum is the same for every head of its layer, so two expressions are equal for all numbers of heads
if they are the same products under the same sums (:func:`families_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any, Final, NamedTuple

from sympy import Add, IndexedBase, Mul, S, Sum, transpose

from symcircuits.core.architecture import Architecture
from symcircuits.core.text import many
from symcircuits.sympy_layer.letters import IndexedLetter, LetterSymbol, Names, Read

__all__ = ["MAX_POWER", "MAX_PRODUCTS", "CanonicalLetters", "Summed", "families_of", "multiplied_out"]

MAX_PRODUCTS: Final = 50_000  # multiplied out
MAX_POWER: Final = 1_000


class CanonicalLetters:
    """An expression in the canonical symbols: noncommutative, without abbreviations; each node is built once.

    ``symbolic``: it may contain sums over heads.
    """

    def __init__(self, names: Names, symbolic: bool) -> None:
        self.names, self.symbolic = names, symbolic
        self._made: dict[Any, Any] = {}
        self._counts: dict[Any, int] = {}

    def count(self, node: Any) -> int:
        """The number of products when it is multiplied out; raises ValueError if there are too many."""
        found = self._counts.get(node)
        if found is None:
            kind = type(node).__name__
            if kind in ("Add", "MatAdd"):
                found = sum(map(self.count, node.args))
            elif kind in ("Mul", "MatMul"):
                found = prod(map(self.count, node.args))
            elif kind in _POWERS:
                found = self.count(node.args[0]) ** _power(node)
            else:
                found = self.count(node.args[0]) if kind in (*_TRANSPOSES, "Sum") else 1
            if found > MAX_PRODUCTS:
                raise ValueError(
                    f"multiplied out, the expression has {many(found)} products or more; at most {MAX_PRODUCTS:,} are "
                    "read"
                )
            self._counts[node] = found
        return found

    def canonical(self, node: Any) -> Any:
        """The node in canonical symbols; ValueError names what cannot be read."""
        found = self._made.get(node)
        if found is None:
            found = self._made[node] = self._canonical(node)
        return found

    def _canonical(self, node: Any) -> Any:
        kind = type(node).__name__
        if kind in ("Add", "MatAdd"):
            return Add(*map(self.canonical, node.args))
        if kind in ("Mul", "MatMul", "Turned"):
            return Mul(*map(self.canonical, node.args))
        if kind in _TRANSPOSES:
            return transpose(self.canonical(node.args[0]))
        if kind in _POWERS:
            return Mul(*[self.canonical(node.args[0])] * _power(node))
        if getattr(node, "is_Rational", False):
            return node
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == "OneMatrix":
            ones = LetterSymbol("ones")
            return ones if node.shape[1] == 1 else transpose(ones)
        if self.symbolic and kind == "Sum":
            return Sum(self.canonical(node.args[0]), *node.args[1:])
        if self.symbolic and kind == "IndexedLetter":
            return self._of_any_head(node)
        if getattr(node, "is_Symbol", False) or kind in ("MatrixSymbol", "Indexed"):
            return Mul(*map(_letter, self.names.read(node)))
        raise ValueError(_unreadable(node))

    def _of_any_head(self, letter: Any) -> Any:
        """The symbol of any head of a layer, unabbreviated: its first head's, with the index."""
        parts = []
        for part in self.names.read(LetterSymbol(f"{letter.base}H0")):
            glyph, _, label = part.name.rstrip("]").partition("[")
            one = IndexedLetter(IndexedBase(f"{glyph}_{label[:-2]}", commutative=False), letter.indices[0])
            parts.append(transpose(one) if part.transposed else one)
        return Mul(*parts)


_TRANSPOSES: Final = ("transpose", "LetterTranspose", "Transpose")
_POWERS: Final = ("Pow", "MatPow", "LetterPower")
_CONSTANTS: Final = {"Identity": S.One, "ZeroMatrix": S.Zero}


def _letter(letter: Read) -> Any:
    symbol = LetterSymbol(letter.name)
    return transpose(symbol) if letter.transposed else symbol


def _power(node: Any) -> int:
    base, power = node.args
    if getattr(power, "is_Integer", False) and 1 <= power <= MAX_POWER:
        return int(power)
    raise ValueError(f"{_shown(node)} cannot be read: the power of {_shown(base)} must be a whole number from 1 to "
                     f"{MAX_POWER:,}")  # fmt: skip


def _unreadable(node: Any) -> str:
    if getattr(node, "is_Float", False):
        return f"{node} is a floating-point number; coefficients are exact: write Rational({str(node)!r})"
    if getattr(node, "is_infinite", False) or node in (S.NaN, S.ComplexInfinity):
        return f"{node} is not a finite number, and cannot be a coefficient"
    if isinstance(node, Sum) or type(node).__name__ == "IndexedLetter":
        return f"{_shown(node)} is for any number of heads: substitute numbers (subs), then doit()"
    return f"{_shown(node)} cannot be read: a formula consists of symbols, whole numbers, products, sums and transposes"


def _shown(node: Any) -> str:
    text = str(node) if len(node.args) < 20 else type(node).__name__
    return text if len(text) <= 60 else text[:57] + "..."


# ------------------------------------------------------------------------------------------ sums over heads
Summed = tuple[tuple[Any, ...], tuple[Any, ...]]  # a product of canonical symbols, and the limits of the sums over it


def multiplied_out(node: Any) -> list[Summed]:
    """Every product of an expression with sums over heads, products distributed over all sums, in order.

    >>> from sympy import Symbol, Sum, symbols
    >>> A, B = symbols("A B", commutative=False)
    >>> h, H = symbols("h H", integer=True)
    >>> multiplied_out(A * (B + Sum(A, (h, 0, H - 1))))
    [((), (A, B)), (((h, 0, H - 1),), (A, A))]
    """
    if node.is_Add:
        return [one for part in node.args for one in multiplied_out(part)]
    if isinstance(node, Sum):
        return [(limits + node.limits, factors) for limits, factors in multiplied_out(node.function)]
    if node.is_Pow and node.exp.is_Integer and node.exp > 0:
        parts: Sequence[Any] = [node.base] * int(node.exp)
    elif node.is_Mul:
        parts = node.args
    else:
        return [((), (node,))]
    found: list[Summed] = [((), ())]
    for part in parts:
        found = [(a[0] + b[0], a[1] + b[1]) for a in found for b in multiplied_out(part)]
    return found


class SummedProduct(NamedTuple):
    """A product of symbols under sums over heads, independent of the names of indices.

    ``scalars`` are sorted, ``letters`` in their order, with each index given by the number of its first symbol, and
    ``sums`` are the limits of the sums with that number; a sum whose index is on no symbol has the number -1.
    """

    scalars: tuple[str, ...]
    letters: tuple[tuple[str, int, bool], ...]
    sums: tuple[tuple[int, Any, Any], ...]

    @property
    def text(self) -> str:
        """The product on one line, its indices by their numbers: ``sum[0 = 0..H_1 - 1] A_L0[0] @ t @ W_E.T``."""
        over = "".join(f"sum[{'no letter' if n < 0 else n} = {a}..{b}] " for n, a, b in self.sums)
        scalars = "".join(f"{name} * " for name in self.scalars)
        names = (f"{name}{f'[{n}]' if n >= 0 else ''}{'.T' * turned}" for name, n, turned in self.letters)
        return over + scalars + " @ ".join(names)


def families_of(expression: Any, architecture: Architecture) -> Counter[SummedProduct]:
    """The products of an expression under their sums over heads, each with its coefficient; none is 0.

    Two expressions with the same result are equal for every number of heads and all matrices. Symbols with
    names of the architecture are unabbreviated, keys and values of groups as in ``architecture``. Raises ValueError
    on anything but symbols, whole numbers, products, sums and transposes.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.sympy_layer.families import families
    >>> from symcircuits.sympy_layer.streams import symbolic
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> arch = attention_only((H_1, H_2))
    >>> logits = symbolic(arch).logits
    >>> families_of(logits, arch) == families_of(families(arch, "logits").expr, arch), len(families_of(logits, arch))
    (True, 4)
    """
    canonical = CanonicalLetters(Names(architecture), symbolic=True).canonical(expression)
    found: Counter[SummedProduct] = Counter()
    for limits, factors in multiplied_out(canonical):
        coefficient, product = _product(limits, factors)
        found[product] += coefficient
    return Counter({product: n for product, n in found.items() if n})


def _product(limits: Sequence[Any], factors: Sequence[Any]) -> tuple[Any, SummedProduct]:
    """The coefficient of a product under sums, and the rest."""
    coefficient, scalars, letters = Fraction(1), list[str](), list[tuple[str, int, bool]]()
    numbers: dict[Any, int] = {}
    bounds = {index: (lower, upper) for index, lower, upper in limits}
    if len(bounds) < len(limits):
        raise ValueError(f"one index is bound by two sums of a product: {', '.join(str(limit[0]) for limit in limits)}")
    for factor in factors:
        if factor.is_Rational:
            coefficient *= Fraction(int(factor.p), int(factor.q))
            continue
        base, power = factor.as_base_exp()
        turned = isinstance(base, transpose)
        letter = base.args[0] if turned else base
        if letter.is_commutative:
            scalars += [str(letter)] * int(power)
            continue
        number, name = -1, str(letter)
        if isinstance(letter, IndexedLetter):
            index = letter.indices[0]
            number = numbers.setdefault(index, len(numbers)) if index in bounds else -1
            name = str(letter.base) if index in bounds else name
        letters += [(name, number, turned)] * int(power)
    sums = sorted(((numbers.get(index, -1), *bound) for index, bound in bounds.items()), key=str)
    return coefficient, SummedProduct(tuple(sorted(scalars)), tuple(letters), tuple(sums))
