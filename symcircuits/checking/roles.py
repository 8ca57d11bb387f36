"""The roles of the variables of a text, inferred from their places: positions, layers, numbers of heads, heads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from symcircuits.checking.syntax import BigSum, Bound, Document, Name, Node, children, nodes

__all__ = ["Roles", "spelling_of", "split_indices"]

_STREAMS: Final = ("x", "X", "r", "resid")
_OF_TOKENS: Final = (*_STREAMS, "q", "k", "v", "z", "o", "logits", "logit")  # names with a row for each token
_VARIABLE: Final = re.compile(r"[A-Za-z](?:_?\w{1,3})?'*")
_OPEN_RANGE: Final = re.compile(
    r"|\^?H|(?:all)?heads?|[1^]?\.\.(?![Hn]_)\w+|0\.\.(?![Hn]_)\w+-1|\d+\.\.\d+"
)  # not H_1, which says the layer


def spelling_of(node: Name) -> tuple[str, tuple[str, ...]]:
    """A name with the subscript that belongs to it, and its labels.

    >>> from symcircuits.checking.syntax import Script
    >>> spelling_of(Name("tilde W", 0, (Script("sub", ("U",), 0), Script("super", ("h",), 0))))
    ('tilde W_U', ('h',))
    """
    subs = [s.parts for s in node.scripts if s.kind == "sub"]
    text, labels = node.text, list[str]()
    for parts in subs:
        words = [p for p in parts[1:] if re.fullmatch(r"[a-z]{3,}", p)]
        text += "_" + ",".join([parts[0], *words]) if parts else ""
        labels += [p for p in parts[1:] if p not in words]
    for s in node.scripts:
        labels += s.parts if s.kind != "sub" else ()
    return text, tuple(labels)


class Roles:
    """The roles of the variables of a text: positions, layers, numbers of heads; all others are heads."""

    def __init__(self, document: Document) -> None:
        self.positions: set[str] = set()
        self.layers: set[str] = {"l", "L", "ell"}
        self.numbers: set[str] = set()
        self.counted = False  # whether layers or heads are given by numbers
        self.bounds: list[Bound] = []
        names = [n for line in document.lines for e in line.equations for side in e.sides if side is not None
                 for n in nodes(side)]  # fmt: skip
        for n in names:
            if isinstance(n, BigSum):
                self.bounds += n.bounds
                for b in n.bounds:
                    self.layers |= set(re.findall(r"H_([a-z])\b", b.over))
                    self.layers |= {*b.names, b.over[1:]} - {""} if b.over[:1] == "<" and b.over[1:2] != "=" else set()
                    self.counted |= n.product or bool(re.search(r"H[_^]?\(?\d|^\d+\.\.\d+$", b.over))
        self.both: dict[int, Bound] = {}  # m < l where the sum binds l as well, by the id of the bound as written
        for line in document.lines:
            for e in line.equations:
                self._bind_both([side for side in e.sides if side is not None])
        for _ in range(2):
            for n in names:
                if isinstance(n, Name):
                    self._name(n)
        self.positions -= self.layers

    def _bind_both(self, sides: list[Node]) -> None:
        """In ``m < l`` both are bound if nothing else in the equation says which layer l is."""
        free: set[str] = set()
        open_: list[tuple[Bound, str]] = []
        stack: list[tuple[Node, frozenset[str]]] = [(side, frozenset()) for side in sides]
        while stack:
            node, bound = stack.pop()
            if isinstance(node, BigSum):
                for b in node.bounds:
                    last = b.over[1:] if re.fullmatch(r"<[a-z](?:_?\w)?'*", b.over) else ""
                    free |= set(re.findall(r"H_([a-z])\b", b.over)) - bound - set(b.names)
                    if last and last not in bound:
                        open_.append((b, last))
                        bound |= {last}
                    bound |= set(b.names)
            parts = [p for s in node.scripts for p in s.parts] if isinstance(node, Name) else []
            labels = {x for p in parts for x in re.findall(r"[a-z](?:_?\d)?'*", p)}
            free |= labels - bound
            stack += [(child, bound) for child in children(node)]
        for b, last in open_:
            if last not in free:
                self.both[id(b)] = Bound((*b.names, last), "<", b.at)

    def _name(self, node: Name) -> None:
        for s in node.scripts:
            parts = s.parts
            if node.text in ("A", "alpha", "a", "e", "S", "s", "P", "E", "attn") and s.kind != "super":
                split = tuple(parts[0]) if len(parts) == 1 and re.fullmatch(r"[a-z]{2}", parts[0]) else parts
                if len(split) == 2 and all(re.fullmatch(r"[a-gi-km-z]|dst|src", p) for p in split):
                    self.positions |= set(split)
            elif node.text == "R" and s.kind == "sub":
                self.positions |= {x for p in parts for x in re.findall(r"(?<!\w)[a-z](?!\w)", p)}
            elif node.text in _OF_TOKENS and s.kind != "super" and len(parts) == 1:
                if re.fullmatch(r"[A-Za-z][+-]\d", parts[0]):
                    self.layers.add(parts[0][0])
                elif re.fullmatch(r"[a-kmnp-z]", parts[0]) and parts[0] not in self.layers:
                    self.positions.add(parts[0])
            if len(parts) == 2 and s.kind != "sub" and not set(parts) <= self.positions:
                if parts[0].isdigit() and (parts[1].isdigit() or _VARIABLE.fullmatch(parts[1])):
                    self.counted = True
                elif re.fullmatch(r"[a-z](?:[+-]\d)?'?", parts[0]) and re.fullmatch(r"[a-z]\w?'?", parts[1]):
                    self.layers.add(re.sub(r"[+-]\d", "", parts[0]))
                    self.numbers.add(parts[1])
            elif len(parts) == 1 and parts[0].isdigit() and node.text in ("A", "W", "W_OV"):
                self.counted = self.counted or s.kind == "super"

    def of(self, name: str) -> str:
        """The role of a variable."""
        for role in ("position", "layer", "number"):
            if name in getattr(self, role + "s"):
                return role
        return "head"

    @property
    def open_ranges(self) -> bool:
        """Whether a sum over heads has no range, or the same name for every range."""
        return any(_OPEN_RANGE.fullmatch(b.over) for b in self.bounds if any(self.of(n) == "head" for n in b.names))


def split_indices(parts: Sequence[str]) -> tuple[str, ...]:
    """Two adjacent indices, ``ij``, as two."""
    return tuple(q for p in parts for q in (p if re.fullmatch(r"[a-z]{2}", p) else (p,)))
