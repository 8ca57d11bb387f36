"""Values of terms with nothing held fixed, and their sums by degree, by the walk; on a run, or over any ring."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Floats, transpose
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.paths import Paths, path_branches
from symcircuits.core.programs import Branch, Program, Readout, Source
from symcircuits.core.unfrozen.choices import Pair, Tree, choices_of
from symcircuits.core.unfrozen.terms import UnfrozenTerm
from symcircuits.core.unfrozen.unfrozen import Unfrozen
from symcircuits.core.walk import Mark, Matrices, walk_marked
from symcircuits.model import Run
from symcircuits.values.factors import RunFactors
from symcircuits.values.finite import finite

__all__ = ["UnfrozenValues", "sums_by_degree"]

Array = npt.NDArray[Any]
Graded = dict[int, Array]
_OF_FIXED_PATTERNS = (
    "blocks", "measure", "summary", "largest", "sample", "sum_of_squares", "by_order", "by_composition", "by_source",
)  # fmt: skip
_HELD_BYTES = 2**28  # parts of patterns and of MLPs that are cached for other terms


class _Joints:
    """The product of two sides: of query and key, or of the inputs of an MLP's ``W_in`` and of its gate."""

    def __init__(self, matrices: Matrices) -> None:
        self.matrices, self.ring = matrices, matrices.ring

    def at(self, name: str) -> Any:
        return self.matrices.matrices[name]

    def scores(self, target: Readout, query: Array, key: Array) -> Array:
        """``scale q k^T``, rotated if positions are rotary."""
        query, key = (self.matrices.turned(target.head, rows) for rows in (query, key))
        raw: Array = self.ring.matmul(query, transpose(key))
        return self.times(self.at(f"scale_{target.scale}"), raw) if target.scale else raw

    def masked(self, head: Head, scores: Array) -> Array:
        """The pattern, or a part of it: the scores where a query may attend, else 0."""
        return self.times(self.at(f"mask_L{head.layer}"), scores)

    def times(self, a: Array, b: Array) -> Array:
        """The product, entry by entry."""
        return self.ring.times(a, b)  # type: ignore[no-any-return]

    def written(self, target: Readout, hidden: Array) -> Array:
        """The output of an MLP, from its inside."""
        return self.ring.matmul(hidden, transpose(self.at(f"W_out_{_layer(target)}")))  # type: ignore[no-any-return]

    def bias(self, target: Readout) -> Array:
        """``1 b_out^T``."""
        return self.ring.matmul(self.at("ones"), transpose(self.at(f"b_out_{_layer(target)}")))  # type: ignore[no-any-return]


def _layer(target: Readout) -> str:
    return target.target.partition(":")[2]


@final
class UnfrozenValues:
    """The values of such terms on a run; iteration gives one array per term, in order. Shapes as in ``evaluate``.

    Methods that measure, rank or sort terms belong to :class:`~symcircuits.values.evaluate.Values` (AttributeError
    here).
    """

    def __init__(self, terms: Unfrozen, run: Run) -> None:
        self.terms, self.run = terms, run
        self._matrices = Matrices(RunFactors(run), Floats(run.dtype), {"embed": run.arrays["X0"]})
        self._joints = _Joints(self._matrices)
        self._batch = tuple(np.shape(run.tokens)[:-1])
        self._held: dict[tuple[str, Pair], Array] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.terms)

    def __repr__(self) -> str:
        return f"<Values of {self.terms!r} on {self.run!r}>"

    if not TYPE_CHECKING:  # hidden from type checkers

        def __getattr__(self, name: str) -> Any:
            if name in _OF_FIXED_PATTERNS:
                raise AttributeError(
                    f"{name} needs terms with patterns held fixed (see logits, scores, stream); these terms have "
                    "nothing held fixed: iterate over their values, or use total and by_degree"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Array]:
        for term in self.terms:
            yield self.value(term)

    def value(self, term: UnfrozenTerm) -> Array:
        """The value of one term; raises ValueError if it belongs to another readout."""
        if term.readout != self.terms.expansion.readout:
            raise ValueError(f"{term!r} is not a term of {self.terms.target} of [{self.terms.architecture}]")
        return self._spread(self._joined(term.readout, term.trees))

    def by_degree(self) -> dict[int, Array]:
        """The sum of the terms of each degree, by the walk, without listing; raises ValueError if one is not finite."""
        return {d: finite(self, f"the sum of the terms of degree {d}", v) for d, v in self.degrees().items()}

    def degrees(self) -> dict[int, Array]:
        """The same, unchecked."""
        with np.errstate(over="ignore", invalid="ignore"):
            return {d: self._spread(v) for d, v in sums_by_degree(self.terms, self._matrices).items()}

    def total(self) -> Array:
        """The sum of all terms, by the walk; 0 without terms. Raises ValueError if it is not finite."""
        parts = list(self.degrees().values())
        return finite(self, "the sum of all terms", np.asarray(sum(parts[1:], parts[0]))) if parts else self._zero()

    def _zero(self) -> Array:
        target = self.terms.expansion.readout
        whole = self.run.scores[str(target.head)] if target.head is not None else self.run.logits
        return np.zeros_like(self.run.streams[-1] if target.target == "stream" or whole is None else whole)

    def _spread(self, value: Array) -> Array:
        return np.broadcast_to(value, self._batch + value.shape[-2:])

    # ------------------------------------------------------------------------------------------- one term
    def _joined(self, target: Readout, trees: Sequence[Tree]) -> Array:
        sides = [self._side(program, tree) for program, tree in zip(target.sides, trees, strict=True)]
        return sides[0] if len(sides) == 1 else self._joints.scores(target, *sides)

    def _side(self, program: Program, tree: Tree) -> Array:
        """One side: its patterns and its source replace those of the run."""
        patterns, known = dict[str, Any](), dict[str, Any](self._matrices.known)
        for head, pair in zip(tree.path.heads, tree.patterns, strict=True):
            if pair is not None:
                patterns[f"A_{head}"] = self._pattern(head, pair)
        source = tree.path.source
        if source.kind == "mlp" and self.terms.architecture.bilinear:
            known[source.name] = self._mlp(source, tree.inside)
        factors: Any = ChainMap(patterns, self._matrices.matrices)  # type: ignore[arg-type]
        matrices = Matrices(factors, self._matrices.ring, known)
        value = matrices.source(source)
        for branch in path_branches(program, tree.path):
            value = matrices.branch(branch, value)
        return np.asarray(value)

    def _pattern(self, head: Head, pair: Pair) -> Array:
        target = choices_of(self.terms.architecture).head(head).readout
        return self._kept(str(head), pair, lambda: self._joints.masked(head, self._joined(target, pair)))

    def _mlp(self, source: Source, pair: Pair | None) -> Array:
        target = choices_of(self.terms.architecture).mlp(source.name).readout
        return (
            self._joints.bias(target) if pair is None else self._kept(source.name, pair, lambda: self._in(target, pair))
        )

    def _in(self, target: Readout, pair: Pair) -> Array:
        first, second = (self._side(program, tree) for program, tree in zip(target.sides, pair, strict=True))
        return self._joints.written(target, self._joints.times(first, second))

    def _kept(self, name: str, pair: Pair, make: Callable[[], Array]) -> Array:
        key = (name, pair)
        if key in self._held:
            return self._held[key]
        value = make()
        self._bytes += value.nbytes
        if self._bytes <= _HELD_BYTES:
            self._held[key] = value
        return value


# ------------------------------------------------------------------------------------------ sums, by the walk
def sums_by_degree(terms: Unfrozen, matrices: Matrices) -> Graded:
    """The sums of the terms of each degree over any ring, without listing them; empty without terms."""
    walk, expansion, sums = _GradedWalk(terms.architecture, matrices), terms.expansion, Graded()
    values = [walk.of(paths) for paths in expansion.sides]
    for marks, _ in expansion.marks():
        part = values[0][marks[0]]
        if len(marks) == 2:
            part = walk.scores(expansion.readout, part, values[1][marks[1]])
        sums = walk.add([sums, part])
    return dict(sorted(sums.items()))


class _GradedWalk:
    """The algebra of matrices by degree: patterns and MLPs are computed from the stream, part by part."""

    def __init__(self, architecture: Architecture, matrices: Matrices) -> None:
        self.architecture, self.matrices, self.joints = architecture, matrices, _Joints(matrices)
        self.choices = choices_of(architecture)
        self._patterns: dict[Head, Graded] = {}
        self._mlps: dict[str, Graded] = {}

    def of(self, paths: Paths) -> dict[Mark, Graded]:
        return walk_marked(paths.program, paths.algebra(self))

    def _plain(self, program: Program) -> Graded:
        """The sum over all marks of a program."""
        return self.add(list(self.of(Paths(program, {}, {})).values()))

    def scores(self, target: Readout, query: Graded, key: Graded) -> Graded:
        return self._multiplied(query, key, lambda q, k: self.joints.scores(target, q, k))

    def pattern(self, head: Head) -> Graded:
        if head not in self._patterns:
            target = self.choices.head(head).readout
            query, key = map(self._plain, target.sides)
            scores = self.scores(target, query, key)
            self._patterns[head] = {d: self.joints.masked(head, v) for d, v in scores.items()}
        return self._patterns[head]

    def mlp(self, name: str) -> Graded:
        if name not in self._mlps:
            trees = self.choices.mlp(name)
            first, second = map(self._plain, trees.readout.sides)
            hidden = self._multiplied(first, second, self.joints.times)
            found = {d: self.joints.written(trees.readout, v) for d, v in hidden.items()}
            self._mlps[name] = self.add([found, *([{1: self.joints.bias(trees.readout)}] if trees.more else [])])
        return self._mlps[name]

    def source(self, source: Source) -> Graded:
        if source.kind == "mlp" and self.architecture.bilinear:
            return self._scaled(source, self.mlp(source.name))
        if source.head is None or self.architecture.softmax:
            return {1: self.matrices.source(source)}
        moved = self.matrices.chain(source.left[1:] + source.core + source.right)
        return self._scaled(source, self._multiplied(self.pattern(source.head), {1: moved}, self.matrices.ring.matmul))

    def _scaled(self, of: Source | Branch, value: Graded) -> Graded:
        """Times the multipliers of a source or branch."""
        return {d: self.matrices.scaled(of.scales, v) for d, v in value.items()} if of.scales else value

    def branch(self, branch: Branch, value: Graded) -> Graded:
        if branch.head is None or self.architecture.softmax:
            return {d: self.matrices.branch(branch, v) for d, v in value.items()}
        inner = Branch(None, branch.left[1:], branch.right, branch.scales)
        moved = {d: self.matrices.branch(inner, v) for d, v in value.items()}
        return self._multiplied(self.pattern(branch.head), moved, self.matrices.ring.matmul)

    def add(self, values: Sequence[Graded]) -> Graded:
        return self._gathered((d, part) for value in values for d, part in value.items())

    def _multiplied(self, a: Graded, b: Graded, product: Callable[[Array, Array], Array]) -> Graded:
        """A product of values with degrees: degrees add."""
        return self._gathered((i + j, product(x, y)) for i, x in a.items() for j, y in b.items())

    def _gathered(self, parts: Iterable[tuple[int, Array]]) -> Graded:
        total = Graded()
        for degree, part in parts:
            total[degree] = self.matrices.ring.add(total[degree], part) if degree in total else part
        return total
