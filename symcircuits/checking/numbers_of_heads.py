"""Numbers in a text that are made of numbers of heads: how to recognise them, and whether two are equal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from symcircuits.checking.counting import Polynomial, diagonal
from symcircuits.checking.roles import spelling_of
from symcircuits.checking.syntax import BigSum, Fraction, Name, Node, Number, Power, Product, Sum, children, nodes

__all__ = ["COUNTED", "Count", "is_along", "is_count", "is_polynomial", "same_count"]

COUNTED: Final = re.compile(r"N(?:_\w+)?")  # a number of terms
_DEEP: Final = 20  # nested definitions


class Count(NamedTuple):
    """A number as a polynomial in the numbers of heads of the layers; ``along``: in ``H``, the same for all layers."""

    polynomial: Polynomial
    along: bool = False


def is_count(node: Node) -> bool:
    """Whether it is made only of numbers and numbers of heads, ``H_1``."""
    inner = list(nodes(node))
    plain = all(isinstance(n, (Number, Name, Sum, Product, Power)) for n in inner)
    names = [n for n in inner if isinstance(n, Name)]
    return plain and all(n.text == "H" for n in names)


def same_count(a: Count, b: Count) -> bool:
    """Whether two numbers are the same polynomial, in ``H`` if one of them is in ``H``."""
    along = a.along or b.along
    first, second = (one.polynomial if one.along or not along else diagonal(one.polynomial) for one in (a, b))
    return first == second


def is_polynomial(node: Node, defined: Mapping[str, Node], depth: int) -> bool:
    """Whether it is made of numbers and numbers of heads by sums, products and powers with plain exponents."""
    if isinstance(node, Name) and node.text != "H":
        inner = defined.get(spelling_of(node)[0])
        return inner is not None and depth < _DEEP and is_polynomial(inner, defined, depth + 1)
    below = node.denominator if isinstance(node, Fraction) else node.exponent if isinstance(node, Power) else None
    if not isinstance(node, (Number, Name, Sum, Product, Power, Fraction, BigSum)) or isinstance(below, Name):
        return False
    if below is not None and any(isinstance(n, Name) for n in nodes(below)):
        return False
    if isinstance(node, BigSum) and not all(name[:1] in ("l", "m") for b in node.bounds for name in b.names):
        return False  # a sum over heads has as many summands as there are heads
    return all(is_polynomial(child, defined, depth) for child in children(node))


def is_along(node: Node, defined: Mapping[str, Node], depth: int) -> bool:
    """Whether it has a number of heads without a layer, ``H``: then all layers have the same number."""
    for one in nodes(node):
        if isinstance(one, Name) and one.text == "H" and not any(s.kind == "sub" for s in one.scripts):
            return True
        inner = defined.get(spelling_of(one)[0]) if isinstance(one, Name) else None
        if inner is not None and depth < _DEEP and is_along(inner, defined, depth + 1):
            return True
    return False
