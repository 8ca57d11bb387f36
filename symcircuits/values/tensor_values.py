"""Values of terms, and their sums, in arrays of the library that somebody uses: PyTorch, JAX, CuPy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, final

from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.paths import Paths
from symcircuits.core.walk import Mark, Matrices, walk_marked
from symcircuits.core.words import scalar_argument
from symcircuits.model import TensorFactors, Tensors
from symcircuits.values.sums import Sums
from symcircuits.values.tensor_tree import TensorTree

__all__ = ["TensorValues", "gathered"]

_KEY_NUMBERS = 2**26  # of key vectors, which are held up to so many, else made again for each query path
_TOGETHER = 2**20  # numbers in what a query path and key paths make in one product, unless it is told


class _Embedded(Mapping[str, Any]):
    """``{"embed": X0}``, looked up anew each time: a derivative goes through a look-up once."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Any:
        if name != "embed":
            raise KeyError(name)
        return self._tensors.embedded

    def __contains__(self, name: object) -> bool:
        return name == "embed"

    def __iter__(self) -> Iterator[str]:
        yield "embed"

    def __len__(self) -> int:
        return 1


@final
class TensorValues(Sums[Any]):
    """The values of an expansion's terms; iterate for one array a term, in order.

    Arrays are of the library, device and type of ``tensors``, in the shapes of
    :class:`~symcircuits.values.evaluate.Values`; so are its sums. Raises ValueError, by name, where an array is
    missing, and where a value or sum is not finite. ``instead``: matrices that stand in for others, by argument name.
    """

    def __init__(
        self, expansion: Expansion, tensors: Tensors, instead: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.expansion, self.tensors, self.ring = expansion, tensors, tensors.ring
        self.batch = tensors.shape[:-1]
        _check_there(expansion, tensors, instead)
        self.matrices = Matrices(TensorFactors(tensors, instead), self.ring, _Embedded(tensors))

    def __len__(self) -> int:
        return len(self.expansion)

    @property
    def run(self) -> Any:
        """There is none: TypeError."""
        return self.tensors.model

    def __repr__(self) -> str:
        return f"<Values of {self.expansion!r} in {self.tensors!r}>"

    def __iter__(self) -> Iterator[Any]:
        for terms, values in self._termwise():
            yield from (values[i, ...] for i in range(len(terms)))

    def _termwise(self) -> Iterator[tuple[list[Term], Any]]:
        """Neighbouring terms and their values, ``[terms, ..., n_context, width]``."""
        make, start = self.expansion._term, 0
        for sides, values in self.pieces():
            terms = [make(*paths) for paths in sides]
            self.look("the value", values, start)
            yield terms, values
            start += len(terms)

    def pieces(
        self, together: int | None = None, row: int | None = None
    ) -> Iterator[tuple[list[tuple[Any, ...]], Any]]:
        """The same with the paths of the terms, and not looked at; ``together``: see :meth:`pairs`.

        ``row``: of terms of one side, the position that is asked for.
        """
        first = self.paths(0, self.expansion._weights, row)
        if not self.expansion.readout.bilinear:
            for paths, values in first:
                yield [(p,) for p in paths], values
            return
        for queries, keys in self.pairs(together):
            yield queries, self.met_turned(*keys)

    def pairs(
        self, together: int | None = None, rows: tuple[int | None, int | None] = (None, None)
    ) -> Iterator[tuple[list[tuple[Any, ...]], tuple[Any, Any]]]:
        """Of scores: the pairs of paths, a query's vectors ``[..., n, d_head]``, keys' ``[keys, ..., n, d_head]``.

        Both turned, the query's scaled; ``together``: how many key paths at a time; ``rows``: of which positions.
        """
        held: dict[frozenset[Mark], list[tuple[list[Any], Any]]] = {}
        n, room = self.tensors.shape[-1], _KEY_NUMBERS
        together = together or max(1, _TOGETHER // (n * n * math.prod(self.batch)))
        for queries, values in self.paths(0, self.expansion._weights, rows[0]):
            for i, query in enumerate(queries):
                wanted = self.expansion._key_weights(self.expansion.sides[0].mark(query))
                name = frozenset(wanted)
                vector = self.scaled(self.turned(values[i, ...], rows[0]))
                kept: list[tuple[list[Any], Any]] | None = [] if name not in held else None
                for paths, keys in held.get(name) or self._keys(wanted, together, rows[1]):
                    yield [(query, p) for p in paths], (vector, keys)
                    room -= 0 if kept is None else math.prod(keys.shape)
                    kept = None if kept is None or room < 0 else [*kept, (paths, keys)]
                if kept is not None:
                    held[name] = kept

    def paths(self, side: int, weights: Mapping[Mark, int], row: int | None = None) -> Iterator[tuple[list[Any], Any]]:
        """The paths of a side with weight, in blocks, and their values; ``row``: at one position alone."""
        tree = TensorTree(self.expansion.sides[side], self.matrices, self.ring, self.tensors.shape, row)
        yield from tree.blocks(weights)

    def _keys(self, wanted: Mapping[Mark, int], together: int, row: int | None) -> Iterator[tuple[list[Any], Any]]:
        """Key paths and their vectors, some at a time."""
        names: list[Any] = []
        found = (self._named(names, *block) for block in self.paths(1, wanted, row))
        for vectors in gathered(found, together, self.ring.xp):
            count = int(vectors.shape[0])
            yield names[:count], self.turned(vectors, row)
            del names[:count]

    @staticmethod
    def _named(names: list[Any], paths: list[Any], values: Any) -> Any:
        names += paths
        return values

    # ------------------------------------------------------------------------------------- what sums need
    def side(self, paths: Paths, most: int | None = None, needed: int = 0) -> dict[Mark, Any]:
        """The sums of the paths of a side's program, by mark, with orders counted up to ``most`` (None: all)."""
        return walk_marked(paths.program, paths.algebra(self.matrices, most), needed=needed)

    def spread(self, value: Any) -> Any:
        """A value with the batch axes of the tokens."""
        return self.ring.spread(value, self.batch)

    def turned(self, rows: Any, row: int | None = None) -> Any:
        """Queries or keys as they meet; ``row``: those of one position."""
        head = self.expansion.readout.head
        if row is None or self.expansion.architecture.positions != "rotary":
            return self.matrices.turned(head, rows) if row is None else rows
        return rows @ self.matrices.matrices[f"R_{head}"][row, :, :]

    def scaled(self, rows: Any) -> Any:
        """Times the score scale, where there is one."""
        label = self.expansion.readout.scale
        return self.ring.times(self.matrices.matrices[f"scale_{label}"], rows) if label else rows

    def met(self, query: Any, key: Any) -> Any:
        """``scale q k^T``, turned where positions are rotary."""
        return self.met_turned(self.scaled(self.turned(query)), self.turned(key))

    def met_turned(self, query: Any, key: Any) -> Any:
        """``q k^T``."""
        return query @ self.ring.transpose(key)

    def seen(self, value: Any, what: Any) -> Any:
        """A sum, all of whose numbers are finite; else ValueError."""
        if self.tensors.finite and not self.ring.finite(value):
            raise ValueError(
                f"the sum of {what} of {self.expansion.target} is not finite at {self.ring.place(value)}: numbers "
                f"leave the range of {self.ring} on the way; use a wider type, or scale the weights"
            )
        return value

    def look(self, what: str, values: Any, start: int) -> None:
        """ValueError, by the term's name, where something of the terms from ``start`` on is not finite."""
        if self.tensors.finite and not self.ring.finite(values):
            number = start + self.ring.place(values)[0]
            raise ValueError(
                f"{what} of term {number} ({self.expansion[number].label}) is not finite: numbers leave the range "
                f"of {self.ring} on the way; use a wider type, or scale the weights"
            )

    @property
    def reader(self) -> str:
        """The argument name of the matrix that reads the stream, ``W_U`` or that of an attached readout."""
        return self.expansion.readout.sides[0][-1].branches[0].right[-1].symbol.argument

    @property
    def width(self) -> int:
        """The size of the last axis of a value."""
        if self.expansion.readout.bilinear:
            return int(self.tensors.shape[-1])
        if self.expansion.target == "stream":
            return self.tensors.d_model
        rows: int = self.matrices.matrices[self.reader].shape[0]
        return rows

    def _zero(self) -> Any:
        return self.ring.zeros((*self.tensors.shape, self.width))


def gathered(pieces: Iterable[Any], size: int, xp: Any) -> Iterator[Any]:
    """Arrays put together, or cut, along their first axis to ``size`` each; the last may be smaller."""
    held: list[Any] = []
    count = 0
    for piece in pieces:
        at = 0
        while at < piece.shape[0]:
            held.append(piece[at : min(at + size - count, piece.shape[0]), ...])
            at += int(held[-1].shape[0])
            count += int(held[-1].shape[0])
            if count == size:
                yield held[0] if len(held) == 1 else xp.concat(held, axis=0)
                held, count = [], 0
    if held:
        yield held[0] if len(held) == 1 else xp.concat(held, axis=0)


def _check_there(expansion: Expansion, tensors: Tensors, instead: Mapping[str, Any]) -> None:
    """ValueError that lists what the terms need and nobody gave."""
    made = {"C", "ones"} | ({"P"} if "W_pos" in tensors.arrays else set())
    if tensors.from_tokens:
        made |= {"t", "W_E"}
    needed: dict[str, None] = {}
    for layer in (layer for side in expansion.readout.sides for layer in side):
        factors = [f for b in layer.branches for f in b.left + b.right] + [f for s in layer.sources for f in s.factors]
        needed |= dict.fromkeys(f.symbol.argument for f in factors)
        scalars = [s for b in layer.branches for s in b.scales] + [s for one in layer.sources for s in one.scales]
        needed |= dict.fromkeys(scalar_argument(s) for s in scalars)
    head = expansion.readout.head
    if expansion.readout.scale:
        needed[f"scale_{expansion.readout.scale}"] = None
    if head is not None and expansion.architecture.positions == "rotary":
        needed[f"R_{head}"] = None
    missing = [n for n in needed if n not in made and n not in instead and n not in tensors.arrays]
    if missing:
        listed = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        what = f"{listed} (W_E goes with tokens; X0 stands for both)" if "t" in missing else listed
        raise ValueError(f"terms of {expansion.target} need what is not among the arrays: {what}")
