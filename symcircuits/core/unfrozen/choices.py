"""Paths with patterns and MLP outputs multiplied out as well: counted and numbered by arithmetic.

Without softmax the pattern of a head is a sum of masked score terms, and the output of a bilinear MLP is a sum of
entrywise products. So a term of the logits is a path with a choice for every head on it, and for its source if
that is an MLP: which pair of terms, chosen recursively to the end. A *tree* is such a path with its choices. The
number of trees of a path is a product, so the walk counts them and a number identifies its tree, at any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.expansion import Expansion
from symcircuits.core.paths import Path, Paths
from symcircuits.core.programs import Branch, Readout, Source, mlp_readout, readout, stream_program
from symcircuits.core.walk import Mark, walk, walk_marked

__all__ = ["Choices", "Pair", "Side", "Tree", "Trees", "choices_of", "convolved", "degrees", "max_degree"]


class Tree(NamedTuple):
    """A path, and the terms chosen for its patterns and its source.

    ``patterns``: for each head of the path (query tree, key tree), or None if its pattern is held fixed.
    ``inside``: the same for a source that is a bilinear MLP; None for any other source, and for its ``b_out``.
    """

    path: Path
    patterns: tuple[Pair | None, ...] = ()
    inside: Pair | None = None

    @property
    def degree(self) -> int:
        """Number of sources in it: its own, and those in its patterns and in ``inside``."""
        pairs = [p for p in (*self.patterns, self.inside) if p is not None]
        return (self.inside is None) + sum(tree.degree for pair in pairs for tree in pair)


Pair = tuple[Tree, Tree]


class Step(NamedTuple):
    """One summand of a layer that leads to a mark: through a branch or from a source, and the mass behind it."""

    what: Branch | Source | None
    before: Mark | None
    mass: int


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The algebra of counts in which a head, or a bilinear MLP, counts as many trees as it has choices."""

    choices: Choices

    def source(self, source: Source) -> int:
        return self.choices.of_source(source) * self.choices.of_head(source.head)

    def branch(self, branch: Branch, value: int) -> int:
        return value * self.choices.of_head(branch.head)

    def add(self, values: Sequence[int]) -> int:
        return sum(values)


class Side:
    """The trees of one program, by mark: counted after every layer, and numbered by what the last layer adds first.

    Within a mark: trees from before the layer, then its heads in order (the choices of the pattern before those of
    the value that it moves), then its sources.
    """

    def __init__(self, choices: Choices, paths: Paths, known: Sequence[dict[Mark, int]] = ()) -> None:
        self.choices, self.paths = choices, paths
        algebra, value = paths.algebra(_Numbers(choices)), known[-1] if known else dict[Mark, int]()
        self.tables: list[dict[Mark, int]] = [*known]  # of the first layers, if already counted
        for layer in paths.program[len(known) :]:
            value = walk_marked((layer,), algebra, value or None)
            self.tables.append(dict(sorted(value.items())))

    @property
    def counts(self) -> dict[Mark, int]:
        """Number of trees of each mark."""
        return self.tables[-1]

    @property
    def total(self) -> int:
        """Number of trees."""
        return sum(self.counts.values())

    def _steps(self, layer: int, mark: Mark) -> Iterator[Step]:
        """The last steps of trees of that mark, in order."""
        here = self.paths.program[layer]
        before = self.tables[layer - 1] if layer else {}
        if here.skip and mark in before:
            yield Step(None, mark, before[mark])
        for branch in here.branches:
            for earlier, n in before.items():
                if self._after(branch.head, earlier) == mark:
                    yield Step(branch, earlier, n * self.choices.of_head(branch.head))
        for source in here.sources:
            if self._after(source.head, Mark(0, self.paths.source_bits(source))) == mark:
                yield Step(source, None, self.choices.of_source(source) * self.choices.of_head(source.head))

    def _after(self, head: Head | None, mark: Mark) -> Mark:
        if head is None:
            return mark
        return Mark(mark.order + 1, mark.bits | self.paths.head_bits.get(head, 0))

    def tree(self, mark: Mark, index: int) -> Tree:
        """The tree with that number among those of a mark."""
        heads: list[Head] = []
        patterns: list[Pair | None] = []
        for layer in reversed(range(len(self.paths.program))):
            for step in self._steps(layer, mark):
                if index < step.mass:
                    break
                index -= step.mass
            if step.what is None:
                continue
            if step.what.head is not None:
                chosen, index = divmod(index, step.mass // self.choices.of_head(step.what.head))
                heads.append(step.what.head)
                patterns.append(self.choices.pattern(step.what.head, chosen))
            if isinstance(step.what, Source):
                path = Path(step.what, tuple(reversed(heads)))
                return Tree(path, tuple(reversed(patterns)), self.choices.inside(step.what, index))
            assert step.before is not None
            mark = step.before
        raise AssertionError("every tree starts from a source")

    def rank(self, tree: Tree) -> tuple[Mark, int]:
        """The mark of a tree and its number among those of that mark; raises ValueError if it is not one of them."""
        heads, source = list(tree.path.heads), tree.path.source
        patterns = dict(zip(heads, tree.patterns, strict=True))
        mark: Mark | None = None
        number = 0
        for layer, here in enumerate(self.paths.program):
            if mark is None:
                if source not in here.sources:
                    continue
                found: Branch | Source | None = source
                after = self._after(source.head, Mark(0, self.paths.source_bits(source)))
                number = self.choices.inside_rank(source, tree.inside)
            else:
                found = next((b for b in here.branches if b.head in heads or b.head is None), None)
                after = self._after(found.head if found else None, mark)
            if found is not None and found.head is not None:
                of_one = self.choices.of_source(source) if mark is None else self.tables[layer - 1][mark]
                number += self.choices.pattern_rank(found.head, patterns[found.head]) * of_one
            number += self._mass_before(layer, after, found, mark)
            mark = after
        if mark is None:
            raise ValueError(f"the path {tree.path.label} is not in this expansion")
        return mark, number

    def _mass_before(self, layer: int, after: Mark, found: Branch | Source | None, before: Mark | None) -> int:
        """The mass of the steps before the one that a tree takes."""
        mass = 0
        for step in self._steps(layer, after):
            if step.what == found and (isinstance(found, Source) or step.before == before):
                return mass
            mass += step.mass
        raise ValueError("no such step in this expansion")


@dataclass(frozen=True, slots=True)
class Trees:
    """The two sides of the scores of a head, or of a bilinear MLP, whose pairs are its choices."""

    readout: Readout
    sides: tuple[Side, Side]
    more: int = 0  # choices other than pairs: b_out

    @property
    def total(self) -> int:
        """Number of choices."""
        return self.sides[0].total * self.sides[1].total + self.more


class Choices:
    """The choices for heads and MLPs of an architecture; computed once for each (see :func:`choices_of`)."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self._heads: dict[Head, Trees] = {}
        self._mlps: dict[str, Trees] = {}
        self._stream: list[dict[Mark, int]] = []

    def head(self, head: Head) -> Trees:
        """The choices of a head's pattern: the pairs of its scores."""
        if head not in self._heads:
            self._heads[head] = self._trees(readout(self.architecture, f"scores:{head}"), head.layer)
        return self._heads[head]

    def mlp(self, name: str) -> Trees:
        """The choices for the output of a bilinear MLP: ``mlp[L0]``."""
        if name not in self._mlps:
            layer = _layer_of(name)
            more = int(f"b_out[L{layer}]" in self.architecture.biases)
            self._mlps[name] = self._trees(mlp_readout(self.architecture, layer), layer, more)
        return self._mlps[name]

    def _trees(self, target: Readout, layer: int, more: int = 0) -> Trees:
        """The two sides, which both begin with the stream before a layer; that part is counted once for all."""
        known = self._before(layer)
        first, second = (Side(self, Paths(program, {}, {}), known) for program in target.sides)
        return Trees(target, (first, second), more)

    def _before(self, layer: int) -> list[dict[Mark, int]]:
        if len(self._stream) <= layer:
            known = self._before(layer - 1) if layer else []
            self._stream = Side(self, Paths(stream_program(self.architecture, layer), {}, {}), known).tables
        return self._stream[: layer + 1]

    # --------------------------------------------------------------------------------------------- numbers
    def of_head(self, head: Head | None) -> int:
        """The number of choices for a head's pattern; one if it is held fixed or there is none."""
        return 1 if head is None or self.architecture.softmax else self.head(head).total

    def of_source(self, source: Source) -> int:
        """The number of choices for a source: more than one if it is a bilinear MLP."""
        return self.mlp(source.name).total if self._opens(source) else 1

    def _opens(self, source: Source) -> bool:
        return source.kind == "mlp" and self.architecture.bilinear

    def pattern(self, head: Head, index: int) -> Pair | None:
        """The choice with that number for a head's pattern."""
        return None if self.architecture.softmax else _pair(self.head(head), index)

    def inside(self, source: Source, index: int) -> Pair | None:
        """The choice with that number for a source."""
        return _pair(self.mlp(source.name), index) if self._opens(source) else None

    def pattern_rank(self, head: Head, pair: Pair | None) -> int:
        """The number of a choice for a head's pattern."""
        return 0 if pair is None else _pair_rank(self.head(head), pair)

    def inside_rank(self, source: Source, pair: Pair | None) -> int:
        """The number of a choice for a source; ``b_out`` of a bilinear MLP is the last."""
        if not self._opens(source):
            return 0
        trees = self.mlp(source.name)
        return trees.total - 1 if pair is None else _pair_rank(trees, pair)


@lru_cache(maxsize=16)
def choices_of(architecture: Architecture) -> Choices:
    """The choices of an architecture, counted once."""
    return Choices(architecture)


def _layer_of(name: str) -> int:
    """The layer of an MLP by the name of its source: ``mlp[L0]``."""
    return int(name.partition("L")[2].rstrip("]"))


def _pair(trees: Trees, index: int) -> Pair | None:
    first, second = trees.sides
    if index >= first.total * second.total:
        return None  # b_out
    a, b = divmod(index, second.total)
    return _in_order(first, a), _in_order(second, b)


def _in_order(side: Side, index: int) -> Tree:
    for mark, n in side.counts.items():
        if index < n:
            return side.tree(mark, index)
        index -= n
    raise IndexError("index out of range")


def _pair_rank(trees: Trees, pair: Pair) -> int:
    a, b = (_place(side, tree) for side, tree in zip(trees.sides, pair, strict=True))
    return a * trees.sides[1].total + b


def _place(side: Side, tree: Tree) -> int:
    mark, number = side.rank(tree)
    return number + sum(n for m, n in side.counts.items() if m < mark)


# ------------------------------------------------------------------------------------------------ degrees
class _Degrees:
    """The algebra of counts by degree, the number of sources of a tree."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self._known: dict[str, dict[int, int]] = {}

    def source(self, source: Source) -> dict[int, int]:
        value = {1: 1}
        if source.kind == "mlp" and self.architecture.bilinear:
            layer = _layer_of(source.name)
            value = dict(self._pairs(source.name, mlp_readout(self.architecture, layer)))
            if f"b_out[L{layer}]" in self.architecture.biases:
                value[1] = value.get(1, 0) + 1
        return value if source.head is None else self._through(source.head, value)

    def branch(self, branch: Branch, value: dict[int, int]) -> dict[int, int]:
        return value if branch.head is None else self._through(branch.head, value)

    def _through(self, head: Head, value: dict[int, int]) -> dict[int, int]:
        if self.architecture.softmax:
            return value
        return convolved(self._pairs(str(head), readout(self.architecture, f"scores:{head}")), value)

    def _pairs(self, name: str, target: Readout) -> dict[int, int]:
        if name not in self._known:
            query, key = (self.of(Paths(side, {}, {})) for side in target.sides)
            self._known[name] = convolved(_summed(query.values()), _summed(key.values()))
        return self._known[name]

    def add(self, values: Sequence[dict[int, int]]) -> dict[int, int]:
        return _summed(values)

    def of(self, paths: Paths) -> dict[Mark, dict[int, int]]:
        return walk_marked(paths.program, paths.algebra(self))


@dataclass(frozen=True, slots=True)
class _Highest:
    """The (max, +) algebra: the largest degree."""

    architecture: Architecture
    known: dict[str, int]

    def source(self, source: Source) -> int:
        opens = source.kind == "mlp" and self.architecture.bilinear
        value = self._pairs(source.name, mlp_readout(self.architecture, _layer_of(source.name))) if opens else 1
        return value + self._through(source.head)

    def branch(self, branch: Branch, value: int) -> int:
        return value + self._through(branch.head)

    def add(self, values: Sequence[int]) -> int:
        return max(values)

    def _through(self, head: Head | None) -> int:
        if head is None or self.architecture.softmax:
            return 0
        return self._pairs(str(head), readout(self.architecture, f"scores:{head}"))

    def _pairs(self, name: str, target: Readout) -> int:
        if name not in self.known:
            self.known[name] = self.of(target)
        return self.known[name]

    def of(self, target: Readout) -> int:
        return sum(walk(program, self) or 0 for program in target.sides)


def max_degree(target: Readout) -> int:
    """The largest degree of a tree of a readout; cheap at any depth."""
    return _Highest(target.architecture, {}).of(target)


def _summed(values: Iterable[dict[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for value in values:
        for degree, n in value.items():
            total[degree] = total.get(degree, 0) + n
    return total


def convolved(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    """Products of values with a degree: degrees add."""
    total: dict[int, int] = {}
    for i, x in a.items():
        for j, y in b.items():
            total[i + j] = total.get(i + j, 0) + x * y
    return total


def degrees(expansion: Expansion) -> dict[int, int]:
    """Number of trees of each degree in a selection, by the walk."""
    algebra = _Degrees(expansion.architecture)
    sides = [algebra.of(paths) for paths in expansion.sides]
    total: dict[int, int] = {}
    for marks, _ in expansion.marks():
        value = sides[0][marks[0]]
        if len(marks) == 2:
            value = convolved(value, sides[1][marks[1]])
        total = _summed([total, value])
    return dict(sorted(total.items()))
