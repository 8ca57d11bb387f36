"""One walk over a program, in any algebra of values.

``value_l = skip * value_{l-1} + sum_b b(value_{l-1}) + sources``: the result of the walk depends on the algebra
only. Integers count terms, polynomials count them by order, matrices run the frozen forward pass, and marked
values split any of these by order and by which chosen heads and sources a path goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any, Final, NamedTuple, Protocol, TypeVar, final

from symcircuits.core.architecture import Head
from symcircuits.core.programs import Branch, Layer, Program, Source
from symcircuits.core.words import Factor, scalar_argument

__all__ = ["SIDE_BY_SIDE", "Algebra", "Counts", "Joints", "Mark", "Marked", "Matrices", "Walks", "walk"]

V = TypeVar("V")


class Algebra(Protocol[V]):
    """The operations of a walk on values: start from a source, go through a branch, add.

    An algebra may also have ``summands(branches, value)``: the values of the branches of a layer, some of them added
    up, if that is less work than one branch after the other.
    """

    def source(self, source: Source) -> V:
        """The value written by a source."""

    def branch(self, branch: Branch, value: V) -> V:
        """``left value right``."""

    def add(self, values: Sequence[V]) -> V:
        """The sum of one or more values."""


def walk(program: Program, algebra: Algebra[V], value: V | None = None) -> V | None:
    """Walk a program; None is the empty sum (a program in which nothing is written).

    ``value``: the value after earlier layers, if the walk starts in the middle.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import readout
    >>> walk(readout(attention_only((3, 3)), "logits").sides[0], Counts())
    16
    """
    for layer in program:
        summands: list[V] = []
        if value is not None:
            summands += [value] if layer.skip else []
            summands += _through(algebra, layer.branches, value)
        summands += [algebra.source(s) for s in layer.sources]
        value = algebra.add(summands) if summands else None
    return value


def _through(algebra: Any, branches: Sequence[Branch], value: V) -> list[V]:
    if branches and hasattr(algebra, "summands"):
        return list(algebra.summands(branches, value))
    return [algebra.branch(b, value) for b in branches]


@final
class Counts:
    """Integers: the number of terms."""

    __slots__ = ()

    def source(self, source: Source) -> int:
        """One term."""
        return 1

    def branch(self, branch: Branch, value: int) -> int:
        """As many terms as go in."""
        return value

    def add(self, values: Sequence[int]) -> int:
        """Their sum."""
        return sum(values)


@final
class Walks:
    """Walks of many programs in one algebra; common first layers (the same objects) are walked once.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import made_once, readout
    >>> with made_once():
    ...     sides = [readout(attention_only((3, 3)), f"scores:L1H{i}").sides[0] for i in range(3)]
    >>> list(map(Walks(Counts()).walk, sides))
    [4, 4, 4]
    """

    __slots__ = ("_algebra", "_known")

    def __init__(self, algebra: Algebra[Any]) -> None:
        self._algebra = algebra
        self._known: dict[tuple[int, int], tuple[int, Any, Any]] = {}

    def walk(self, program: Program) -> Any:
        """As :func:`walk`."""
        value, at = None, 0
        for layer in program[:-1]:
            found = self._known.get((at, id(layer)))
            if found is None:  # the layer is kept too, so that its id is not reused
                found = len(self._known) + 1, walk((layer,), self._algebra, value), layer
                self._known[at, id(layer)] = found
            at, value, _ = found
        return walk(program[-1:], self._algebra, value)


class Mark(NamedTuple):
    """What is recorded of a path: its order (number of heads) and a bit for each feature it has."""

    order: int
    bits: int


@dataclass(frozen=True, slots=True)
class Joints:
    """How the bits of pieces of a path join, if it matters which head directly follows which.

    ``width`` (0: bits are joined by "or" only) is the number of features. Bits ``0 .. width - 1`` are the features of
    a piece; bit ``width + i`` says that its last head is the first of pair i, bit ``2 width + i`` that its first head
    is the second of pair i. If such ends meet, the joined piece has bit i.

    >>> ends, starts = Joints(1).pair(0)
    >>> Joints(1).met(Joints(1).grown(0, ends), starts), Joints(1).met(Joints(1).grown(0, starts), ends)
    (1, 0)
    """

    width: int = 0

    def pair(self, i: int) -> tuple[int, int]:
        """The bits of the two heads of pair i."""
        return 1 << self.width + i, 1 << 2 * self.width + i

    def grown(self, bits: int, head: int) -> int:
        """A path with these bits (from its source on) goes through a head."""
        if not self.width:
            return bits | head
        return self.met(bits, head) | head & self._low << self.width

    def led(self, head: int, tail: int) -> int:
        """A head precedes the rest of a path."""
        if not self.width:
            return head | tail
        return self.met(head, tail) | head & self._low << 2 * self.width

    def met(self, bits: int, tail: int) -> int:
        """The features of a path joined from these two pieces."""
        if not self.width:
            return bits | tail
        return (bits | tail | (bits >> self.width & tail >> 2 * self.width)) & self._low

    @property
    def _low(self) -> int:
        return (1 << self.width) - 1


SIDE_BY_SIDE: Final = Joints()  # no feature depends on which head follows which


@final
class Marked:
    """Values split by :class:`Mark`: a formal sum ``sum_mark value_mark``, over any other algebra.

    ``heads`` and ``source_bits`` give the bits that a path gets from its heads and from its source, ``joints`` how
    bits are joined. Orders are counted up to ``most`` (None: no limit): with 1, whether there is a head; with 0,
    values that differ in order alone are added up.
    """

    __slots__ = ("base", "heads", "joints", "most", "source_bits")

    def __init__(
        self,
        base: Any,
        heads: Mapping[Head, int],
        source_bits: Callable[[Source], int],
        joints: Joints = SIDE_BY_SIDE,
        most: int | None = None,
    ) -> None:
        self.base, self.heads, self.source_bits, self.joints, self.most = base, heads, source_bits, joints, most

    def source(self, source: Source) -> dict[Mark, Any]:
        """The source's value under its mark."""
        bits, order = self.source_bits(source), 0
        if source.head is not None:
            bits, order = self.joints.grown(bits, self.heads.get(source.head, 0)), self._after(0)
        return {Mark(order, bits): self.base.source(source)}

    def branch(self, branch: Branch, value: dict[Mark, Any]) -> dict[Mark, Any]:
        """Every part goes through the branch and is marked by its head."""
        if branch.head is None:
            return {mark: self.base.branch(branch, part) for mark, part in value.items()}
        grown = self._grown(self.heads.get(branch.head, 0), value)
        return {mark: self.base.branch(branch, part) for mark, part in grown.items()}

    def summands(self, branches: Sequence[Branch], value: dict[Mark, Any]) -> list[dict[Mark, Any]]:
        """The values of the branches; heads with the same bits are added up, if the other algebra has ``summands``."""
        if not hasattr(self.base, "together"):
            return [self.branch(b, value) for b in branches]
        alike: dict[int, list[Branch]] = {}
        for b in branches:
            if b.head is not None:
                alike.setdefault(self.heads.get(b.head, 0), []).append(b)
        found = [self.branch(b, value) for b in branches if b.head is None]
        for bits, some in alike.items():
            grown = self._grown(bits, value)
            found.append(dict(zip(grown, self.base.together(some, list(grown.values())), strict=True)))
        return found

    def _grown(self, bits: int, value: dict[Mark, Any]) -> dict[Mark, Any]:
        """The parts by their marks after a head with these bits.

        Parts that get the same mark are added before the branch: it is linear, so this is cheaper.
        """
        parts: dict[Mark, list[Any]] = {}
        for mark, part in value.items():
            parts.setdefault(Mark(self._after(mark.order), self.joints.grown(mark.bits, bits)), []).append(part)
        return {mark: self._sum(same) for mark, same in parts.items()}

    def add(self, values: Sequence[dict[Mark, Any]]) -> dict[Mark, Any]:
        """Mark by mark."""
        parts: dict[Mark, list[Any]] = {}
        for value in values:
            for mark, part in value.items():
                parts.setdefault(mark, []).append(part)
        return {mark: self._sum(same) for mark, same in parts.items()}

    def _after(self, order: int) -> int:
        """The order of a path with one more head, as far as orders are counted."""
        return order + 1 if self.most is None or order < self.most else order

    def bits(self, layer: Layer) -> int:
        """All bits that the heads of a layer can set."""
        return reduce(or_, (self.heads.get(b.head, 0) for b in layer.branches if b.head is not None), 0)

    def whole(self, value: dict[Mark, Any]) -> dict[Mark, Any]:
        """The parts by the features of whole paths: how they end no longer matters."""
        if not self.joints.width:
            return value
        parts: dict[Mark, list[Any]] = {}
        for mark, part in value.items():
            parts.setdefault(Mark(mark.order, self.joints.met(mark.bits, 0)), []).append(part)
        return {mark: self._sum(same) for mark, same in parts.items()}

    def _sum(self, values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else self.base.add(values)


class MatrixRing(Protocol):
    """The operations of a ring of matrices that the walk uses (see :mod:`symcircuits.arrays.rings`)."""

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product, over leading axes too."""

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""

    def times(self, scalar: Any, a: Any) -> Any:
        """A scalar times a matrix."""

    def transpose(self, a: Any) -> Any:
        """The last two axes swapped."""


class Matrices:
    """Matrices over a ring: the walk is the frozen forward pass, exact where the ring is.

    ``matrices`` maps argument names (``W_V_L0H1``, ``A_L0H1``, ...) to arrays; biases are columns ``[d, 1]``.
    ``known``: values of sources that need no multiplication, by name (an embedding is a look-up of rows).
    """

    __slots__ = ("known", "matrices", "ring")

    def __init__(self, matrices: Mapping[str, Any], ring: MatrixRing, known: Mapping[str, Any] | None = None) -> None:
        self.matrices, self.ring, self.known = matrices, ring, known or {}

    def factor(self, factor: Factor) -> Any:
        """The array of a factor."""
        matrix = self.matrices[factor.symbol.argument]
        return self.ring.transpose(matrix) if factor.transposed else matrix

    def source(self, source: Source) -> Any:
        """The product of the source's factors and multipliers."""
        value = self.known[source.name] if source.name in self.known else self.chain(source.factors)
        return self.scaled(source.scales, value)

    def scaled(self, scales: Sequence[str], value: Any) -> Any:
        """The value times these scalars."""
        for name in scales:
            value = self.ring.times(self.matrices[scalar_argument(name)], value)
        return value

    def chain(self, factors: Sequence[Factor], value: Any = None) -> Any:
        """``value @ f1 @ f2 ...``."""
        for f in factors:
            value = self.factor(f) if value is None else self.ring.matmul(value, self.factor(f))
        return value

    def branch(self, branch: Branch, value: Any) -> Any:
        """``left value right``; the left factor is applied where it is narrow: a pattern in the head's value space."""
        cut = 0 if branch.head is None else len(branch.right) - 1
        value = self.chain(branch.right[:cut], value)
        for f in reversed(branch.left):
            value = self.ring.matmul(self.factor(f), value)
        return self.scaled(branch.scales, self.chain(branch.right[cut:], value))

    def back(self, branch: Branch, reader: Any) -> Any:
        """A reader, moved to before a branch: ``left^T reader right^T``, times the multipliers.

        The adjoint of :meth:`branch`, ``<reader, left value right> = <left^T reader right^T, value>``.
        """
        cut = 0 if branch.head is None else len(branch.right) - 1
        turned = self.ring.transpose
        for f in reversed(branch.right[cut:]):
            reader = self.ring.matmul(reader, turned(self.factor(f)))
        for f in branch.left:
            reader = self.ring.matmul(turned(self.factor(f)), reader)
        for f in reversed(branch.right[:cut]):
            reader = self.ring.matmul(reader, turned(self.factor(f)))
        return self.scaled(branch.scales, reader)

    def turned(self, head: Head | None, rows: Any) -> Any:
        """Queries or keys of a head as they meet: row i times ``R_i`` if positions are rotary, else unchanged."""
        rotations = self.matrices.get(f"R_{head}")
        return rows if rotations is None else self.ring.matmul(rows[..., :, None, :], rotations)[..., :, 0, :]

    def add(self, values: Sequence[Any]) -> Any:
        """Their sum, in pairs."""
        while len(values) > 1:  # adding one after the other, rounding would grow with their number
            pairs = [self.ring.add(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = [*pairs, *values[len(values) // 2 * 2 :]]
        return values[0]


_EMPTY: Final[dict[Mark, Any]] = {}


def walk_marked(
    program: Program, algebra: Marked, value: dict[Mark, Any] | None = None, needed: int = 0
) -> dict[Mark, Any]:
    """:func:`walk` in a marked algebra, by the marks of whole paths; the empty sum is the empty dict.

    ``needed``: the bits that every wanted path has. A part that lacks one which no later head sets is dropped at
    once, so the last factors (the unembedding) act only on what is wanted.
    """
    if not needed or algebra.joints.width:
        found = walk(program, algebra, value)
        return _EMPTY if found is None else algebra.whole(found)
    later = [*accumulate(map(algebra.bits, reversed(program)), or_, initial=0)]  # of the last layers, by how many
    for layer, to_come in zip(program, reversed(later[:-1]), strict=True):
        value = walk((layer,), algebra, value)
        value = {m: v for m, v in (value or _EMPTY).items() if not needed & ~(m.bits | to_come)}
    return value or _EMPTY
