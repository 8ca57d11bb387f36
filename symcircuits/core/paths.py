"""The paths of one program: counted, numbered and iterated in order, by arithmetic.

A path is a source and the heads it goes through. Order of paths, stable across versions: by number of heads,
then heads as (layer, index) tuples, then source. Paths are weighted by their :class:`~symcircuits.core.walk.Mark`
(weight 0: left out), so one ranking serves every selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

from symcircuits.core.architecture import SOURCE_ORDER, Head
from symcircuits.core.programs import Branch, Program, Source
from symcircuits.core.walk import SIDE_BY_SIDE, Joints, Mark, Marked, walk_marked
from symcircuits.core.words import Factor

__all__ = ["Path", "Paths", "path_branches", "path_factors", "path_scales"]

T = TypeVar("T")
Weights = Mapping[Mark, int]
BitCounts = dict[int, int]


class Path(NamedTuple):
    """A source and the heads it goes through, earliest first (including the head it enters in, if any)."""

    source: Source
    heads: tuple[Head, ...] = ()

    @property
    def order(self) -> int:
        """Number of heads."""
        return len(self.heads)

    @property
    def label(self) -> str:
        """``embed -> L0H1 -> L1H0``."""
        return " -> ".join([self.source.name, *map(str, self.heads)])


class Paths:
    """All paths of a program, each with its mark (order, and the bits of its heads and source)."""

    def __init__(
        self, program: Program, heads: Mapping[Head, int], sources: Mapping[str, int], joints: Joints = SIDE_BY_SIDE
    ) -> None:
        self.program, self.head_bits, self.name_bits, self.joints = program, heads, sources, joints
        self.layer_heads = [tuple(b.head for b in layer.branches if b.head is not None) for layer in program]
        self.passable = [layer.skip or any(b.head is None for b in layer.branches) for layer in program]
        for layer in program:
            if layer.skip + sum(b.head is None for b in layer.branches) > 1:
                raise ValueError("a layer may be passed in one way only: by the skip connection or by one readout")

    @property
    def heads(self) -> set[Head]:
        """The heads that its paths may go through."""
        return {head for heads in self.layer_heads for head in heads}

    @cached_property
    def branches(self) -> dict[Head, Branch]:
        """The branch of each head."""
        return {b.head: b for layer in self.program for b in layer.branches if b.head is not None}

    @cached_property
    def readout(self) -> tuple[tuple[Factor, ...], tuple[Factor, ...], tuple[str, ...]]:
        """What the program does after its last heads: factors on the right, factors on the left, multipliers."""
        right, left, scales = tuple[Factor, ...](), tuple[Factor, ...](), tuple[str, ...]()
        for layer in self.program:
            unmarked = [b for b in layer.branches if b.head is None]
            if right and not unmarked:
                raise NotImplementedError("in head space readouts are taken at the end of a program only")
            if unmarked:
                right += unmarked[0].right
                left = unmarked[0].left + left
                scales += unmarked[0].scales
        return right, left, scales

    def source_bits(self, source: Source) -> int:
        """The bits of a source, by its name."""
        return self.name_bits.get(source.name, 0)

    def marked(self, base: object) -> dict[Mark, object]:
        """The walk over another algebra, split by mark."""
        return walk_marked(self.program, self.algebra(base))

    def algebra(self, base: object, most: int | None = None) -> Marked:
        """The values of another algebra, split by mark, with orders counted up to ``most`` (None: no limit)."""
        return Marked(base, self.head_bits, self.source_bits, self.joints, most)

    @cached_property
    def counts(self) -> dict[Mark, int]:
        """Number of paths of each mark, by a marked walk over integers; heads with the same bits are taken together."""
        found: dict[Mark, int] = {}
        for layer, passable, tally in zip(self.program, self.passable, self._tallies, strict=True):
            before, found = found, dict(found) if passable else {}
            for bits, n in tally.items():
                for mark, count in before.items():
                    _add(found, Mark(mark.order + 1, self.joints.grown(mark.bits, bits)), n * count)
            for source in layer.sources:
                _add(found, self._begun(source), 1)
        if not self.joints.width:
            return found
        whole: dict[Mark, int] = {}
        for mark, count in found.items():
            _add(whole, Mark(mark.order, self.joints.met(mark.bits, 0)), count)
        return whole

    def _begun(self, source: Source) -> Mark:
        """The mark of a path that consists of its source and the head this enters in."""
        bits = self.source_bits(source)
        if source.head is None:
            return Mark(0, bits)
        return Mark(1, self.joints.grown(bits, self.head_bits.get(source.head, 0)))

    def mark(self, path: Path) -> Mark:
        """The mark of a path."""
        bits = self.source_bits(path.source)
        for head in path.heads:
            bits = self.joints.grown(bits, self.head_bits.get(head, 0))
        return Mark(len(path.heads), self.joints.met(bits, 0))

    # ------------------------------------------------------------------------------- first steps
    @cached_property
    def direct(self) -> tuple[Source, ...]:
        """The sources of the paths through no head."""
        return self._reaching(len(self.program))

    def _reaching(self, end: int) -> tuple[Source, ...]:
        """Sources that are in the stream before layer ``end`` without going through a head, in order."""
        found: list[Source] = []
        for layer, passable in zip(self.program[:end], self.passable[:end], strict=True):
            found = (found if passable else []) + [s for s in layer.sources if s.head is None]
        return tuple(sorted(found, key=_source_rank))

    @cached_property
    def _starts(self) -> dict[Head, tuple[Source, ...]]:
        """For each head, the sources of the paths that have it as their first head."""
        starts = {}
        for i, heads in enumerate(self.layer_heads):
            before = self._reaching(i) if heads else ()
            for head in heads:
                inside = [s for s in self.program[i].sources if s.head == head]
                starts[head] = tuple(sorted([*before, *inside], key=_source_rank)) if inside else before
        return starts

    def sources_of(self, heads: tuple[Head, ...]) -> tuple[Source, ...]:
        """The sources of the paths with these heads, in order."""
        return self._starts.get(heads[0], ()) if heads else self.direct

    @cached_property
    def _start_bits(self) -> dict[Head, BitCounts]:
        found: dict[Head, BitCounts] = {}
        seen: dict[tuple[Source, ...], BitCounts] = {}
        for head, sources in self._starts.items():
            if sources not in seen:
                seen[sources] = _tally(self.source_bits(s) for s in sources)
            found[head] = seen[sources]
        return found

    # ----------------------------------------------------------------------------------- counting suffixes
    @cached_property
    def _tails(self) -> dict[int, list[BitCounts]]:
        """``_tails[r][i]``: how many ways (by bits) there are to choose r heads in the layers from i on.

        :meth:`tails` computes each r on demand: deep models have more of them than are used.
        """
        found: list[BitCounts] = [{0: 1}]
        for passable in reversed(self.passable):
            found.append(found[-1] if passable else {})
        return {0: found[::-1]}

    @cached_property
    def _tallies(self) -> list[BitCounts]:
        return [_tally(self.head_bits.get(h, 0) for h in heads) for heads in self.layer_heads]

    def tails(self, layer: int, left: int) -> BitCounts:
        """How many ways (by bits) there are to choose ``left`` heads in the layers from ``layer`` on."""
        known = self._tails
        if left not in known:
            for r in range(left):
                if r + 1 not in known:  # threads may compute one twice, with the same result
                    known[r + 1] = self._one_more(known[r])
        return known[left][layer]

    def _one_more(self, fewer: list[BitCounts]) -> list[BitCounts]:
        """``_tails[r + 1]``, of ``_tails[r]``."""
        found: list[BitCounts] = [{}]
        for i in reversed(range(len(self.program))):
            skipped = found[-1] if self.passable[i] else {}
            here = dict(skipped) if self._tallies[i] else skipped
            for bits, n in self._tallies[i].items():
                for b, c in fewer[i + 1].items():
                    joined = self.joints.led(bits, b)
                    here[joined] = here.get(joined, 0) + n * c
            found.append(here)
        return found[::-1]

    def _mass(self, order: int, bits: int, starts: BitCounts, layer: int, left: int, weights: Weights) -> int:
        """Weight of all paths that continue from here: ``left`` more heads in the layers from ``layer`` on."""
        return sum(
            n * m * weights.get(Mark(order, self.joints.met(bits, b) | c), 0)
            for b, n in self.tails(layer, left).items()
            for c, m in starts.items()
        )

    def _choices(self, order: int, heads: tuple[Head, ...], weights: Weights) -> Iterator[tuple[Head, int]]:
        """The heads that may come next, in order, each with the weight of the paths through it."""
        bits = 0
        for h in heads:
            bits = self.joints.grown(bits, self.head_bits.get(h, 0))
        layer = self._layer_of[heads[-1]] + 1 if heads else 0
        left = order - len(heads) - 1
        for i in range(layer, len(self.program)):
            if self.tails(i + 1, left):
                for head in self.layer_heads[i]:
                    starts = self._start_bits[heads[0] if heads else head]
                    grown = self.joints.grown(bits, self.head_bits.get(head, 0))
                    mass = self._mass(order, grown, starts, i + 1, left, weights)
                    if mass:
                        yield head, mass
            if heads and not self.passable[i]:
                return

    @cached_property
    def _layer_of(self) -> dict[Head, int]:
        return {h: i for i, heads in enumerate(self.layer_heads) for h in heads}

    def _order_masses(self, weights: Weights) -> list[tuple[int, int]]:
        masses: dict[int, int] = {}
        for mark, n in self.counts.items():
            masses[mark.order] = masses.get(mark.order, 0) + n * weights.get(mark, 0)
        return sorted((order, mass) for order, mass in masses.items() if mass)

    # ---------------------------------------------------------------------------------- numbers and paths
    def unrank(self, index: int, weights: Weights) -> tuple[Path, int]:
        """The path that contains weight number ``index``, and the offset within that path's own weight."""
        order, index = _fall(index, self._order_masses(weights))
        heads: tuple[Head, ...] = ()
        while len(heads) < order:
            head, index = _fall(index, self._choices(order, heads, weights))
            heads += (head,)
        paths = ((p, weights.get(self.mark(p), 0)) for p in (Path(s, heads) for s in self.sources_of(heads)))
        return _fall(index, paths)

    def rank(self, path: Path, weights: Weights) -> int:
        """The weight of all paths before this one; raises ValueError if the path itself has no weight."""
        if path.source not in self.sources_of(path.heads) or not weights.get(self.mark(path), 0):
            raise ValueError(f"the path {path.label} is not in this expansion")
        total = sum(mass for order, mass in self._order_masses(weights) if order < path.order)
        for i, chosen in enumerate(path.heads):
            for head, mass in self._choices(path.order, path.heads[:i], weights):
                if head == chosen:
                    break
                total += mass
            else:
                raise ValueError(f"the path {path.label} is not in this expansion")
        for source in self.sources_of(path.heads):
            if source == path.source:
                break
            total += weights.get(self.mark(Path(source, path.heads)), 0)
        return total

    def chains(self, weights: Weights) -> Iterator[tuple[Head, ...]]:
        """The chains of heads of the paths with weight, in order, in constant memory."""
        for order, _ in self._order_masses(weights):
            yield from self._extend(order, (), weights)

    def _extend(self, order: int, heads: tuple[Head, ...], weights: Weights) -> Iterator[tuple[Head, ...]]:
        if len(heads) == order:
            yield heads
            return
        for head, _ in self._choices(order, heads, weights):
            yield from self._extend(order, (*heads, head), weights)

    def iterate(self, weights: Weights) -> Iterator[Path]:
        """The paths with weight, in order, in constant memory."""
        for heads in self.chains(weights):
            for source in self.sources_of(heads):
                path = Path(source, heads)
                if weights.get(self.mark(path), 0):
                    yield path


def path_factors(program: Program, path: Path) -> tuple[Factor, ...]:
    """The factors of a path's word: ``L X R``."""
    factors = path.source.factors
    for branch in path_branches(program, path):
        factors = branch.left + factors + branch.right
    return factors


def path_scales(program: Program, path: Path) -> tuple[str, ...]:
    """The multipliers of a path's word."""
    return path.source.scales + tuple(s for branch in path_branches(program, path) for s in branch.scales)


def path_branches(program: Program, path: Path) -> list[Branch]:
    """The branches that a path takes after its source, in order."""
    entry = next(i for i, layer in enumerate(program) if path.source in layer.sources)
    chosen = set(path.heads if path.source.head is None else path.heads[1:])
    taken = (_taken(layer.branches, chosen) for layer in program[entry + 1 :])
    return [branch for branch in taken if branch is not None]


def _taken(branches: tuple[Branch, ...], chosen: set[Head]) -> Branch | None:
    """The branch that a path takes in a layer: its head's, or the readout's, or None (skip)."""
    return next((b for b in branches if b.head in chosen), next((b for b in branches if b.head is None), None))


def _source_rank(source: Source) -> int:
    kind = "mlp" if source.own or source.kind == "rest" else source.kind  # in the order of the program
    return SOURCE_ORDER.index(kind) if kind in SOURCE_ORDER else len(SOURCE_ORDER)


def _add(counts: dict[Mark, int], mark: Mark, n: int) -> None:
    counts[mark] = counts.get(mark, 0) + n


def _tally(bits: Iterator[int]) -> BitCounts:
    counts: BitCounts = {}
    for b in bits:
        counts[b] = counts.get(b, 0) + 1
    return counts


def _fall(index: int, masses: Iterable[tuple[T, int]]) -> tuple[T, int]:
    """The item whose mass contains ``index``, and the offset of the index within it."""
    for item, mass in masses:
        if index < mass:
            return item, index
        index -= mass
    raise IndexError("index out of range")
