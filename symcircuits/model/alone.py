"""The frozen model with only some heads and one source kept, and the contribution of a path to it: a measured term.

With everything held fixed the stream is linear in each source, and every head acts once on its input. So the term of
a path ``p`` from a source is the alternating sum over the subsets S of its heads (Moebius inversion)

``term_p = sum_S (-1)^|p without S| X(only the heads of S and that source)``.

Nothing here multiplies a path out, or depends on how the algebra describes a model: it uses heads, names of sources
and the forward pass of :mod:`symcircuits.model.over_ring`. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from symcircuits.arrays.rings import Array, Ring, transpose
from symcircuits.core.architecture import Architecture
from symcircuits.model.over_ring import Frozen, frozen, queries_and_keys

__all__ = ["Alone", "subsets"]

_ARGUMENTS: Final = {"embed": "W_E", "pos": "P"}
_WRITTEN: Final = ("b_", "mlp_", "rest_")  # other sources, by the prefix of their argument names
_SIDES: Final = ("query", "key")


def subsets(heads: tuple[str, ...]) -> Iterator[tuple[int, frozenset[str]]]:
    """Every subset of some heads, with the sign of the number of missing heads.

    >>> [(sign, sorted(kept)) for sign, kept in subsets(("L0H1", "L1H0"))]
    [(1, []), (-1, ['L1H0']), (-1, ['L0H1']), (1, ['L0H1', 'L1H0'])]
    """
    for chosen in product((False, True), repeat=len(heads)):
        yield (-1) ** chosen.count(False), frozenset(h for h, kept in zip(heads, chosen, strict=True) if kept)


class Alone:
    """Frozen runs of an architecture over a ring with few heads and sources kept; ``matrices`` as in ``frozen``.

    ``remember``: each run is cached (small matrices, many terms). ``runs`` counts those computed.

    >>> from symcircuits.arrays.rings import Floats
    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import matrices_of, random_model
    >>> run = random_model(attention_only((2,))).run([3, 1, 4])
    >>> alone = Alone(run.model.architecture, matrices_of(run), Floats())
    >>> head = run.results["L0H1"] @ run.arrays["W_U"].T
    >>> bool(np.allclose(alone.term("logits", ["embed"], [["L0H1"]]), head)), alone.runs
    (True, 2)
    """

    def __init__(
        self, architecture: Architecture, matrices: Mapping[str, Any], ring: Ring, remember: bool = False
    ) -> None:
        self.architecture, self.matrices, self.ring, self.runs = architecture, matrices, ring, 0
        self._of_source: dict[str, Mapping[str, Any]] = {}
        self._made: dict[tuple[str, frozenset[str]], Frozen] | None = {} if remember else None
        self._paths: dict[Any, Array] | None = {} if remember else None

    def of_source(self, source: str) -> Mapping[str, Any]:
        """The matrices, with every other source set to zero; raises ValueError if the source does not exist."""
        if source not in self._of_source:
            own = {part.name: part.argument for part in self.architecture.parts}
            argument = own.get(source) or _ARGUMENTS.get(source) or source.replace("[", "_").removesuffix("]")
            sources = {n for n in self.matrices if n in own.values() or n in _ARGUMENTS.values()}
            sources |= {n for n in self.matrices if n.startswith(_WRITTEN)}
            if argument not in sources:
                raise ValueError(f"the model has no source {source}")
            off = {name: np.zeros_like(self.matrices[name]) for name in sources - {argument}}
            self._of_source = {source: {**self.matrices, **off}}  # for one source at a time
        return self._of_source[source]

    def run(self, source: str, kept: frozenset[str]) -> Frozen:
        """The frozen run with only these heads and this source."""
        if self._made is not None and (source, kept) in self._made:
            return self._made[source, kept]
        self.runs += 1
        found = frozen(self.architecture, self.of_source(source), self.ring, kept=kept)
        if self._made is not None:
            self._made[source, kept] = found
        return found

    def term(self, target: str, sources: Sequence[str], heads: Sequence[Sequence[object]]) -> Array:
        """The term of paths with these sources and heads: of ``logits``, ``stream``, ``readout:probe`` or scores.

        For scores, ``scale q k^T`` with the part of the query path in ``q`` and that of the key path in ``k``: the
        product is linear in each.
        """
        paths = [(source, tuple(map(str, through))) for source, through in zip(sources, heads, strict=True)]
        if target.partition(":")[0] != "scores":
            return self.path(target, "", *paths[0])
        head = self.architecture.head(target.partition(":")[2])
        queries, keys = (self.path(target, side, *path) for side, path in zip(_SIDES, paths, strict=True))
        raw = self.ring.matmul(queries, transpose(keys))
        return self.ring.times(self.matrices[f"scale_{head}"], raw) if self.architecture.scale else raw

    def path(self, target: str, side: str, source: str, heads: tuple[str, ...]) -> Array:
        """The contribution of one path to the target: the alternating sum."""
        key = target, side, source, heads
        if self._paths is not None and key in self._paths:
            return self._paths[key]
        total: Array | None = None
        for sign, kept in subsets(heads):
            value = self.ring.times(sign, self._read(target, side, source, kept))
            total = value if total is None else self.ring.add(total, value)
        assert total is not None
        if self._paths is not None:
            self._paths[key] = total
        return total

    def _read(self, target: str, side: str, source: str, kept: frozenset[str]) -> Array:
        found, (kind, _, which) = self.run(source, kept), target.partition(":")
        if kind == "scores":
            head, matrices = self.architecture.head(which), self.of_source(source)
            read = found.reads[f"L{head.layer}"]
            return queries_and_keys(self.architecture, matrices, self.ring, head, read)[side == "key"]
        if kind == "readout":
            return found.readouts[which]
        if kind == "logits":
            assert found.logits is not None
            return found.logits
        return found.streams[-1]
