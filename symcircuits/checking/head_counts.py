"""The numbers of heads for which a verdict on a text is valid.

Consider a text whose sums run over all heads of a layer, compared with another or with the model. For given numbers of
heads ``H_1, H_2, ...`` it is a sum of words: products of letters that are labelled by heads. Let ``d_l`` be the most
heads of layer ``l`` in one product, where numbers of heads count like heads. The sum does not change when the heads of
a layer are permuted, except those that the text calls by name. So the coefficient of a word depends only on which of
its labels are equal to one another or to the named ones. If each layer has ``d_l`` heads besides the named ones, every
such pattern occurs; the model's own words have at most two labels of a layer, one on each side.

1. Each index labels a letter in every product of its sum, and no number of heads is a factor. Then a word determines
   its indices in each of the products that give it: its coefficient is the number of these products, for every ``H``.
   Two sums are equal for every ``H`` if they are equal for one with ``H_l >= max(d_l, 2)`` besides the named heads.
   Fewer heads give fewer patterns, and no new ones.
2. Otherwise an index that labels no letter, or a number of heads, multiplies the coefficient by ``H_l``: it is a
   polynomial of degree at most ``d_l`` in each ``H_l``. It is 0 for every ``H`` if it is 0 where each ``H_l`` takes
   ``d_l + 1`` values from there on (:mod:`symcircuits.checking.counting`). If the numbers of heads of several
   layers contain the same symbol, the degrees in it are added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any, Final, NamedTuple

from symcircuits.checking.roles import Roles, spelling_of
from symcircuits.checking.syntax import (
    BigSum,
    Document,
    Name,
    Node,
    Number,
    Power,
    Sum,
    children,
    nodes,
)
from symcircuits.checking.verdict import Found, Verdict
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.text import as_whole

__all__ = [
    "MAX_COUNTS",
    "Needed",
    "degrees_of",
    "is_one_product",
    "needed",
    "needed_by_sums",
    "numbers_for",
    "of_families",
]

MAX_COUNTS: Final = 32  # choices of numbers of heads that are tried
_OF_MODEL: Final = 2  # most heads of a layer in one of the model's own words
_STREAM: Final = re.compile(r"[xX](?:_?(\d+))?(?:_?[a-z]+)?|(?:r|resid|[qkvzoaY])(?:_\w+)?")  # streams
_OF_LAYER: Final = re.compile(r"(?:[01]\.\.)?H[_^]?\(?(\d+)\)?(?:-1)?")
_NAMED: Final = re.compile(r"L(\d+)H(\d+)")
_NUMBERED: Final = re.compile(r"[\[({]\s*\d+\s*[,.]\s*(\d+)|[A-Za-z]\}?\^\{?\(?(\d+)")  # heads by their numbers
_NUMBERS: Final = re.compile(r"\d+\.\.\d+|=.*")  # a range that ends at a number
_GROUPED: Final = re.compile(r"\\bmod|//|\\lfloor|%\s*\d")
_VARIABLE: Final = re.compile(r"[a-z](?:_?\w)?'*")


class Needed(NamedTuple):
    """The number of heads that each layer needs so that all families of terms are distinct.

    ``degrees`` are the numbers of heads of a layer in one product; ``plain``: nothing is multiplied by a number of
    heads; ``every``: no range and no label depends on the number of heads.
    """

    heads: tuple[int, ...]
    degrees: tuple[int, ...]
    plain: bool
    every: bool = True


def needed(
    document: Document, roles: Roles, architecture: Architecture, target: str | None = None, base: int = 1
) -> Needed:
    """The heads that a text needs, from its sums, streams and labels. ``base``: that of ``H_1``.

    >>> from symcircuits.checking.grammar import read_document
    >>> from symcircuits.core.architecture import attention_only
    >>> document, _ = read_document(r"X_0 + \\\\sum_{h \\\\in H_1} X_0 = 3 X_0")
    >>> needed(document, Roles(document), attention_only((2, 2)))
    Needed(heads=(1, 1), degrees=(1, 0), plain=False, every=True)
    """
    layers = architecture.n_layers
    sides = [(e, side) for line in document.lines for e in line.equations for side in e.sides if side is not None]
    defined = {spelling_of(e.sides[0])[0]: e.sides[1] for e, _ in sides if isinstance(e.sides[0], Name)
               and len(e.sides) > 1 and e.sides[1] is not None}  # fmt: skip
    own = [0] * layers
    free, plain = 0, True
    for equation, side in sides:
        for layer, n in enumerate(_degree(side, layers, defined, frozenset(), base)):
            own[layer] = max(own[layer], n)
        bound = {n for s in equation.sides if s is not None for x in nodes(s) if isinstance(x, BigSum)
                 for b in x.bounds for n in b.names}  # fmt: skip
        labels = {p for x in nodes(side) if isinstance(x, Name) for s in x.scripts for p in s.parts}
        variables = {p for p in labels - bound if _VARIABLE.fullmatch(p) and roles.of(p) in ("head", "number")}
        free = max(free, len(variables))
        plain = plain and (_is_count(side) or _every_index_stands(side, roles))
    named = [0] * layers
    for layer, number in _NAMED.findall(f"{document.source} {target or ''}"):
        if int(layer) < layers:
            named[int(layer)] = max(named[int(layer)], int(number) + 1)
    numbered = [int(n) for pair in _NUMBERED.findall(document.source) for n in pair if n]
    most = max(numbered, default=-1) + 1
    own = [max(n, 1) for n in own] if any(named) or most else own
    heads = tuple(max(max(n, most) + n_own + free, 1) for n_own, n in zip(own, named, strict=True))
    source = document.source
    ranges = [b.over for b in roles.bounds if any(roles.of(n) in ("head", "number") for n in b.names)]
    counted = any(_NUMBERS.fullmatch(over) for over in ranges) or _GROUPED.search(source) is not None
    return Needed(heads, tuple(own), plain, not counted)


def _degree(node: Node, layers: int, defined: dict[str, Any], inside: frozenset[str], base: int) -> tuple[int, ...]:
    """The most heads of each layer in one product; numbers of heads count like heads."""
    below = [_degree(child, layers, defined, inside, base) for child in children(node)]
    if isinstance(node, Name):
        text, _ = spelling_of(node)
        if text in defined and text not in inside:
            return _degree(defined[text], layers, defined, inside | {text}, base)
        if node.text == "H":
            powers = [int(p) for s in node.scripts if s.kind == "super" for p in s.parts if p.isdigit()]
            which = [int(p) for s in node.scripts if s.kind == "sub" for p in s.parts if p.isdigit()]
            return _at(layers, which[0] - base if which else None, powers[0] if powers else 1)
        stream = _STREAM.fullmatch(text)
        last = (int(stream[1]) if stream[1] else layers) if stream else 0
        return tuple(int(layer < last) for layer in range(layers))
    if isinstance(node, BigSum) and node.product:
        return tuple(layers * n for n in below[0])
    if isinstance(node, BigSum):
        for bound in node.bounds:
            own = _OF_LAYER.fullmatch(bound.over)
            times = len(bound.names)
            below.append(_at(layers, int(own[1]) - base if own else None, times))
    if isinstance(node, Sum):
        return tuple(max(column) for column in zip(*below, strict=True))
    if isinstance(node, Power) and isinstance(node.exponent, Number) and node.exponent.value.denominator == 1:
        return tuple(n * max(1, int(node.exponent.value)) for n in below[0])
    return tuple(sum(column) for column in zip(*below, strict=True)) if below else (0,) * layers


def degrees_of(node: Node, layers: int, defined: Mapping[str, Node]) -> tuple[int, ...]:
    """The most heads, and numbers of heads, of each layer in one product; ``defined``: names by their nodes.

    >>> from symcircuits.checking.grammar import read_document
    >>> document, _ = read_document("(1 + H_1)^2 H_2 + H_1")
    >>> degrees_of(document.lines[0].equations[0].sides[0], 2, {})
    (2, 1)
    """
    return _degree(node, layers, dict(defined), frozenset(), 1)


def _at(layers: int, layer: int | None, n: int) -> tuple[int, ...]:
    return tuple(n if layer in (None, i) else 0 for i in range(layers))


def _is_count(node: Node) -> bool:
    """Whether it contains only numbers of heads: these are compared at other numbers already."""
    names = [n for n in nodes(node) if isinstance(n, Name)]
    return all(n.text == "H" for n in names) and not any(isinstance(n, BigSum) for n in nodes(node))


def _every_index_stands(root: Node, roles: Roles) -> bool:
    """Whether each index occurs in every product of its sum, and a number of heads nowhere."""
    for node in nodes(root):
        if isinstance(node, Name) and node.text == "H" and node.scripts:
            return False
        if isinstance(node, BigSum):
            names = [n for b in node.bounds for n in b.names if roles.of(n) != "position"]
            if not all(roles.of(n) == "layer" or _stands(n, node.body) for n in names):
                return False
    return True


def _stands(name: str, node: Node) -> bool:
    """Whether an index occurs in every product."""
    if isinstance(node, Name):
        return any(name in re.findall(r"[A-Za-z]+(?:_?\d+)?'*", p) for s in node.scripts for p in s.parts)
    if isinstance(node, Sum):
        return all(_stands(name, one) for one in node.summands)
    return any(_stands(name, one) for one in children(node))


def is_one_product(document: Document) -> bool:
    """Whether it is a single product, under any sums.

    >>> from symcircuits.checking.grammar import read_document
    >>> [is_one_product(read_document(text)[0]) for text in (r"\\sum_h A^h X_0", "X_0 + P", "X_1 = X_0")]
    [True, False, False]
    """
    sides = [side for line in document.lines for e in line.equations for side in e.sides if side is not None]
    return len(sides) == 1 and not any(isinstance(node, Sum) for node in nodes(sides[0]))


def numbers_for(architecture: Architecture, need: Needed) -> list[dict[Any, int]]:
    """Numbers for the symbols of an architecture that decide a text; the first choice is shown.

    Several choices if numbers of heads multiply products: for each symbol one value more than its degree. In the first
    choice all numbers are different. Empty if there would be more than :data:`MAX_COUNTS` choices, or if the numbers of
    heads are not polynomials in their symbols.

    >>> from sympy import symbols
    >>> from symcircuits.core.architecture import attention_only
    >>> H_1, H_2 = symbols("H_1 H_2", integer=True, nonnegative=True)
    >>> need = Needed((1, 1), (1, 0), plain=False)
    >>> [tuple(at.values()) for at in numbers_for(attention_only((H_1, H_2)), need)]
    [(2, 3), (3, 3)]
    """
    given: list[Any] = list(architecture.heads)
    wanted = {layer: max(n, _OF_MODEL) for layer, n in enumerate(need.heads) if as_whole(given[layer]) is None}
    symbols = sorted({s for layer in wanted for s in given[layer].free_symbols}, key=str)
    least: dict[Any, int] = {}
    for i, symbol in enumerate(symbols):
        own = [(given[layer], n) for layer, n in wanted.items() if symbol in given[layer].free_symbols]
        start = next(
            (v for v in range(i + 2, 200) if all(_large(n, dict.fromkeys(n.free_symbols, v), w) for n, w in own)), 0
        )
        if not start:
            return []
        least[symbol] = max(start, *(v + 1 for v in least.values())) if least else start
    more = dict.fromkeys(symbols, 0)
    if not need.plain:
        for layer in wanted:
            for symbol in given[layer].free_symbols:
                polynomial = given[layer].as_poly(symbol)
                if polynomial is None:
                    return []
                more[symbol] += need.degrees[layer] * int(polynomial.degree())
    values = product(*(range(least[s], least[s] + more[s] + 1) for s in symbols))
    found = [dict(zip(symbols, one, strict=True)) for one in islice(values, MAX_COUNTS + 1)]
    fits = all(_large(given[layer], at, n) for at in found for layer, n in wanted.items())
    return found if fits and len(found) <= MAX_COUNTS else []


def _large(count: Any, at: Mapping[Any, int], wanted: int) -> bool:
    """Whether a number of heads is a whole number for this choice, and large enough."""
    number = as_whole(count.subs(at))
    return number is not None and number >= wanted


def needed_by_sums(expression: Any, architecture: Architecture, target: str | None = None) -> Needed:
    """The heads that a SymPy expression with sums over heads needs."""
    own: list[Any] = list(architecture.heads)
    counted = {s for n in own if as_whole(n) is None for s in n.free_symbols}
    names = " ".join([str(s) for s in expression.free_symbols] + [target or ""])
    most = max((int(n) + 1 for _, n in _NAMED.findall(names)), default=0)
    degree, plain = _degree_of(expression, counted)
    layers = architecture.n_layers
    return Needed((most + max(degree, 1),) * layers, (degree,) * layers, plain)


def _degree_of(expression: Any, counted: set[Any]) -> tuple[int, bool]:
    """The number of sums over heads and numbers of heads in one product, and whether each index is in all of its sum.

    >>> from sympy import Sum, symbols
    >>> h, g, H = symbols("h g H", integer=True)
    >>> _degree_of(Sum(h * H, (h, 0, H - 1)), {H}), _degree_of(Sum(h + 1, (h, 0, H - 1)), {H})
    ((2, False), (1, False))
    """
    kind = type(expression).__name__
    if expression in counted:
        return 1, False
    if kind == "Sum":
        degree, plain = _degree_of(expression.function, counted)
        stand = all(_stands_in(limit[0], expression.function) for limit in expression.limits)
        return degree + len(expression.limits), plain and stand
    inner = [_degree_of(arg, counted) for arg in expression.args]
    plain = all(p for _, p in inner)
    degrees = [d for d, _ in inner]
    if kind in ("Pow", "MatPow", "LetterPower") and getattr(expression.args[1], "is_Integer", False):
        return degrees[0] * abs(int(expression.args[1])), plain
    return (max if kind in ("Add", "MatAdd") else sum)(degrees or [0]), plain


def _stands_in(index: Any, expression: Any) -> bool:
    """Whether an index occurs in every product."""
    if type(expression).__name__ in ("Add", "MatAdd"):
        return all(_stands_in(index, arg) for arg in expression.args)
    if type(expression).__name__ == "Indexed" or not expression.args or "Letter" in type(expression).__name__:
        return index in expression.free_symbols
    return any(_stands_in(index, arg) for arg in expression.args)


def of_families(
    verdict: Verdict, architecture: Architecture, counts: Sequence[Mapping[Any, int]], decided: bool
) -> Verdict:
    """A verdict for given numbers of heads as one on families of terms, which says what was decided and how."""
    shown = "; ".join(", ".join(f"{symbol} = {n}" for symbol, n in at.items()) for at in counts)
    names = ", ".join(str(symbol) for symbol in counts[0])
    kept = [n for n in verdict.notes if not n.startswith("checked for")]
    if not verdict.right:
        return replace(verdict, architecture=str(architecture), notes=(*kept, f"for these numbers of heads: {shown}"))
    if not decided:
        shown = shown.replace("; ", " and ")
        return replace(verdict, architecture=str(architecture), notes=(*kept, f"checked only for {shown}"))
    note = f"right for every {names}: decided by {shown}, because no product has more heads of one layer"
    if len(counts) > 1:
        note = f"right for every {names}: decided by {len(counts)} choices, with more values of each than its degree"
    if verdict.target != "equation" and verdict.count:
        families: Any = expand(architecture, verdict.target)
        generic = [_family_of(term.label) for term in verdict.terms]
        by_label = {_family_of(family.term.label): (i, family) for i, family in enumerate(families)}
        here = [by_label[label] for label in dict.fromkeys(generic) if label in by_label]
        terms = tuple(Found(i, f.label, f.composition, str(f.expr)) for i, f in here)
        message = verdict.message
        if len(verdict.terms) == verdict.count:
            message = message.replace(f"all {verdict.count:,} terms", f"all {families.count} terms")
        elif len(terms) == 1:
            [(i, one)] = here
            whole = int(one.count.subs(counts[0])) == len(verdict.terms)
            what = "this is" if whole else "this is a term of"
            message = (f"Right: {what} family {i:,} of {len(families):,} (counted from 0) of {verdict.target}: "
                       f"{one.label}, {one.composition}.")  # fmt: skip
        return replace(verdict, architecture=str(architecture), terms=terms, message=message, notes=(*kept, note))
    return replace(verdict, architecture=str(architecture), notes=(*kept, note))


def _family_of(label: str) -> str:
    """The label of the term, of the first heads, that represents a family."""
    return re.sub(r"(L\d+H)\d+", r"\g<1>0", label)
