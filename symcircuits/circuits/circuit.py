"""Full circuits, OV and QK, alone and composed, as factored objects, multiplied out only on request."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.circuits.composition import checked_offset
from symcircuits.circuits.copying import DiagonalScores, diagonal_scores
from symcircuits.circuits.factoring import Factored, Numbers, factored
from symcircuits.circuits.spectrum import SingularValues, Spectrum, singular_values, spectrum
from symcircuits.circuits.words import (
    end_factors,
    half,
    ov_word,
    position_side,
    product_of,
    start_factor,
)
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.notation import Notation, as_notation, word_latex, word_text
from symcircuits.core.programs import rotation
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import brief, entries, mebibytes, need, place, whole
from symcircuits.core.words import Factor, Word, transpose
from symcircuits.model import Model

__all__ = ["STARTS", "Circuit", "TokenPair", "circuit"]

Array = npt.NDArray[np.float64]
STARTS: Final = {"embed": "token", "pos": "position", "stream": "stream"}
_MEMORY: Final = 2**27  # bytes of entries computed at a time
_ORDERS: Final = ("largest", "smallest", "absolute")


class TokenPair(NamedTuple):
    """An entry of a circuit: its row, its column, its value."""

    row: int
    column: int
    value: float


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Circuit(Shown):
    """A circuit, made by :func:`circuit`: a matrix ``[rows, columns]`` that is stored as its factors.

    ``word`` is its checked formula, as a map on columns. ``axes`` names rows and columns: in the paper's
    notation those of an OV circuit are output and input tokens, in the other two input and output tokens; those of a QK
    circuit are query and key tokens in all. ``circuit[3, 5]`` is one entry.
    """

    model: Model
    kind: str
    heads: tuple[Head, ...]
    query: tuple[Head, ...]
    key: tuple[Head, ...]
    axes: tuple[str, str]
    word: Word
    thin: Factored
    notation: Notation
    notes: tuple[str, ...]

    # ---------------------------------------------------------------------------------------------- how it is written
    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.thin.left), len(self.thin.right)

    @property
    def width(self) -> int:
        """The narrowest dimension that it passes through, an upper bound on its rank."""
        inner = () if self.thin.core is None else self.thin.core.shape
        return int(min(*self.shape, self.thin.left.shape[1], self.thin.right.shape[1], *inner))

    @property
    def convention(self) -> str:
        """The side on which the matrix acts, in a few words."""
        if self.kind == "QK":
            return "rows are queries, columns are keys, in every notation"
        return "a map on columns, as in the paper" if self.notation.tensors else "a map on rows, the paper's transposed"

    @property
    def invariant(self) -> str:
        """The changes of the weights, with the model unchanged, that leave these numbers unchanged, in a sentence."""
        arch = self.model.architecture
        if any("stream" in axis for axis in self.axes):
            return "the same under any change of basis inside a head; it depends on the basis of the stream"
        stays = "inside heads (norms fix that of the stream)" if arch.norm else "of the stream and inside heads"
        not_where = []
        if any("output" in axis for axis in self.axes):
            not_where.append("a vector is added to every row of W_U, which leaves probabilities as they are")
        if arch.positions == "standard":
            not_where.append("a vector is moved from every token embedding to every position, which leaves logits")
        return f"the same under any change of basis {stays}" + "".join(f"; not where {one}" for one in not_where)

    @property
    def formula(self) -> str:
        """Its formula in text notation."""
        return word_text(self._printed, self.notation.products)

    def latex(self) -> str:
        """Its formula as LaTeX (math mode, no delimiters), in its notation."""
        return word_latex(self._printed, self.notation.products)

    @property
    def _printed(self) -> Word:
        return self.word.T if self.kind != "QK" and not self.notation.tensors else self.word

    def written(self, notation: str | Notation) -> Circuit:
        """The same circuit in another notation: ``paper`` (a map on columns), ``row`` or ``transformerlens`` (on rows).

        An OV circuit is then the transposed matrix, and a QK circuit the same one.
        """
        found = as_notation(notation)
        if self.kind == "QK" or found.tensors == self.notation.tensors:
            return replace(self, notation=found)
        left, core, right, size = self.thin
        turned = Factored(right, None if core is None else core.T, left, size)
        return replace(self, notation=found, thin=turned, axes=(self.axes[1], self.axes[0]))

    def text(self, width: int = 100, top: int = 0, labels: Sequence[str] | None = None) -> str:
        """Its formula and its numbers, as tables that fit that width; ``top``: with that many of its largest entries.

        ``labels``: a name for every entry of the vocabulary.
        """
        return self._text(width, top=top, labels=labels)

    def json(self, top: int = 0) -> dict[str, Any]:
        """The same as plain data (schema in docs/json.md)."""
        return higher(dict, "Circuit.json")(self, top)

    def __repr__(self) -> str:
        (rows, columns), (row, column) = self.shape, self.axes
        return f"<Circuit {self.formula}: {rows} {row}s x {columns} {column}s, rank {self.width} or less>"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    # ---------------------------------------------------------------------------------------------------- its entries
    @cached_property
    def _rows(self) -> Array:
        """``left core``."""
        return self.thin.left if self.thin.core is None else self.thin.left @ self.thin.core

    def __getitem__(self, at: tuple[int, int]) -> float:
        if not isinstance(at, tuple) or len(at) != 2:
            raise TypeError(f"an entry is selected by its row and its column, circuit[3, 5], not {brief(at)}")
        return float(self.block([at[0]], [at[1]])[0, 0])

    def block(self, rows: Iterable[int] | None = None, columns: Iterable[int] | None = None) -> Array:
        """Some rows and columns, ``[rows, columns]``: all rows, or all columns, if not given.

        Raises ValueError on indices that do not exist, and if neither is given: the whole is :meth:`array`.
        """
        if rows is None and columns is None:
            raise ValueError("give rows or columns; array() is the whole circuit")
        left = self._rows if rows is None else self._rows[self._places("row", rows)]
        right = self.thin.right if columns is None else self.thin.right[self._places("column", columns)]
        return left @ right.T

    def _places(self, axis: str, numbers: Iterable[int]) -> list[int]:
        size = self.shape[axis == "column"]
        return [place(axis, number, size, negative=False) for number in entries(f"{axis}s", numbers, "whole numbers")]

    def array(self, max_memory: int = 2**30) -> Array:
        """All of it, multiplied out; raises ValueError if that takes more than ``max_memory`` bytes."""
        needed = 8 * self.shape[0] * self.shape[1]
        if needed > whole("max_memory", max_memory, 0):
            raise ValueError(
                f"the whole circuit needs {mebibytes(needed)}, and max_memory is {mebibytes(max_memory)}: take rows "
                "(block), the largest entries (top), or raise max_memory"
            )
        return self._rows @ self.thin.right.T

    def top(self, k: int = 10, by: str = "largest", max_memory: int = _MEMORY) -> tuple[TokenPair, ...]:
        """The ``k`` largest entries (``by="smallest"``: smallest, ``"absolute"``: of largest absolute value).

        Every entry is computed, in blocks of rows, within ``max_memory`` bytes. Ties are in the order of rows and
        columns.
        """
        k = whole("k", k, 0)
        if not isinstance(by, str) or by not in _ORDERS:
            raise ValueError(f"by must be one of {', '.join(_ORDERS)}, not {brief(by)}")
        found: list[TokenPair] = []
        for start, block in self._blocks(max_memory):
            keys = np.asarray(_key(by, block)).reshape(-1)
            least = _key(by, found[-1].value) if k and len(found) == k else -np.inf
            chosen = np.flatnonzero(keys > least)  # entries equal to known ones come after them
            if k and len(chosen) > 4 * k:
                kth = np.partition(keys[chosen], len(chosen) - k)[len(chosen) - k]
                chosen = chosen[keys[chosen] >= kth]
            places = zip(*np.unravel_index(chosen[: None if k else 0], block.shape), strict=True)
            found += [TokenPair(start + int(i), int(j), float(block[i, j])) for i, j in places]
            found = heapq.nsmallest(k, found, key=lambda pair: (-_key(by, pair.value), pair.row, pair.column))
        return tuple(found)

    def _blocks(self, max_memory: int) -> Iterable[tuple[int, Array]]:
        """Blocks of rows, each (and one more like it) within that many bytes, but at least one row."""
        each = max(whole("max_memory", max_memory, 0) // (24 * max(self.shape[1], 1)), 1)
        for start in range(0, self.shape[0], each):
            yield start, self._rows[start : start + each] @ self.thin.right.T

    # ---------------------------------------------------------------------------------------------------- its numbers
    @property
    def norm(self) -> float:
        """Its Frobenius norm: invariant under rotations of the basis of tokens, not under scaling of tokens."""
        return frobenius(self.svd.values)

    @cached_property
    def svd(self) -> SingularValues:
        """Its singular values and directions, in blocks; a direction inside a block of several raises ValueError."""
        return singular_values(self.thin)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Its eigenvalues, their sum and positivity; raises ValueError if rows and columns are of different kinds."""
        self._square("eigenvalues")
        return spectrum(self.thin)

    @property
    def eigenvalues(self) -> npt.NDArray[np.complex128]:
        """Its eigenvalues, the largest modulus first, as many as its narrowest dimension: the others are 0."""
        return self.spectrum.values

    @property
    def trace(self) -> float:
        """The sum of its diagonal, which equals that of its eigenvalues."""
        return self.spectrum.trace

    @property
    def diagonal(self) -> Array:
        """The entry of every token with itself."""
        self._square("a diagonal")
        return np.asarray(np.einsum("ij,ij->i", self._rows, self.thin.right))

    @property
    def diagonal_rank(self) -> npt.NDArray[np.int64]:
        """For every token, how many others score higher with it than it does itself: 0 if it ranks first.

        For an OV circuit these are outputs for this input, for a QK circuit keys for this query. Every entry is
        computed, in blocks of rows.
        """
        return self._ranks[0]

    @cached_property
    def _ranks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For every token, how many entries are above its diagonal one, and how many others are equal to it."""
        self._square("a diagonal")
        by_rows = self if self.kind == "QK" or not self.notation.tensors else self.written("row")
        above, equal = np.zeros((2, self.shape[0]), np.int64)
        for start, block in by_rows._blocks(_MEMORY):
            part = slice(start, start + len(block))
            own = block[np.arange(len(block)), np.arange(start, start + len(block))][:, None]
            above[part], equal[part] = (block > own).sum(1), (block == own).sum(1) - 1
        return above, equal

    def copying(self) -> DiagonalScores:
        """Three scores of an OV circuit to the logits, all known as "copying"; raises ValueError for QK circuits.

        None of them proves that a head copies: they are necessary for it, and not sufficient (see the docs).
        """
        return self._scored("copying", self.kind != "QK", "matching")

    def matching(self) -> DiagonalScores:
        """The same three for a QK circuit: whether tokens match themselves, as in induction by K-composition."""
        return self._scored("matching", self.kind == "QK", "copying")

    def _scored(self, name: str, fits: bool, other: str) -> DiagonalScores:
        if not fits:
            raise ValueError(f"a circuit of kind {self.kind} has no {name}: see {other}")
        diagonal = self.diagonal
        return diagonal_scores(name, self.spectrum, diagonal, *self._ranks)

    def _square(self, what: str) -> None:
        """Raise ValueError if rows and columns are of different kinds, so a diagonal has no meaning."""
        things = [axis.rpartition(" ")[2] for axis in self.axes]
        if things[0] != things[1]:
            raise ValueError(
                f"{what} needs rows and columns of one kind; here they are {self.axes[0]}s and {self.axes[1]}s"
            )
        if self.shape[0] != self.shape[1]:
            raise ValueError(
                f"{what} needs as many rows as columns; here there are {self.shape[0]} {self.axes[0]}s and "
                f"{self.shape[1]} {self.axes[1]}s"
            )
        if what == "a diagonal" and things[0] == "stream":
            raise ValueError("the stream has no distinguished basis, so its diagonal has no meaning: see eigenvalues")


def _key(by: str, value: Any) -> Any:
    """The sort key of an entry: larger for earlier ones."""
    return value if by == "largest" else -value if by == "smallest" else abs(value)


# ------------------------------------------------------------------------------------------------------ how it is made
_Heads = str | tuple[int, int] | Sequence[str | tuple[int, int]]


def circuit(
    model: Model, kind: str, *heads: str | tuple[int, int], query: _Heads = (), key: _Heads = (),
    start: str | tuple[str, str] = "embed", end: str = "logits", offset: int | None = None,
) -> Circuit:  # fmt: skip
    """A full circuit of a head, or of heads that compose, as a factored object.

    ``kind``: ``"OV"`` for one head, ``W_U W_OV W_E``, or for a chain, the latest first, ``W_U W_OV^{h_2} W_OV^{h_1}
    W_E`` (a virtual head); ``"QK"`` for one head, ``W_E^T W_QK W_E``, with chains before its query, its key or both
    (``query``, ``key``: the latest first): ``circuit(model, "QK", h_2, key=h_1)`` is ``W_E^T W_QK^{h_2} W_OV^{h_1}
    W_E``; ``"direct"``, without heads, ``W_U W_E``, the bigram table. ``start``: ``"embed"``, ``"pos"`` (the position
    table) or ``"stream"`` (nothing: the bare matrices); for a QK circuit also a pair, for the query and the key.
    ``end`` of an OV circuit: ``"logits"`` or ``"stream"``. ``offset``: for rotary positions, key minus query (default
    0).

    Norms are folded in, without their ``1 / sigma``; multipliers and the score scale are left out, as
    ``notes`` say. Shapes are the paper's; ``written("row")`` has the transposed OV circuit. The formula is a checked
    word. Computed in float64. Raises ValueError if heads do not exist or are not in the order of their layers, if
    there is no unembedding to end at, or no positions to start from. Source: paper, "Splitting Attention Head terms
    into Query-Key and Output-Value Circuits", "Path Expansion of Attention Scores QK Circuit", "Virtual Attention
    Heads".

    >>> import symcircuits as sc
    >>> from symcircuits.zoo import path
    >>> model = sc.load(path())
    >>> sc.circuit(model, "OV", "L1H0")
    <Circuit W_U @ W_OV[L1H0] @ W_E: 32 output tokens x 32 input tokens, rank 16 or less>
    >>> matching = sc.circuit(model, "QK", "L1H0", key="L0H2")
    >>> matching.formula, round(matching.spectrum.positivity, 2)
    ('W_E.T @ W_QK[L1H0] @ W_OV[L0H2] @ W_E', 0.99)
    >>> matching.svd.direction(0)[0].shape
    (32,)
    """
    need("circuit", model, Model)
    if not isinstance(kind, str) or kind not in ("OV", "QK", "direct"):
        raise ValueError(f"unknown circuit {brief(kind)}: choose 'OV', 'QK' or 'direct'")
    arch = model.architecture
    chain = tuple(arch.head(head) for head in heads)
    if bool(chain) == (kind == "direct"):
        raise ValueError(
            "the direct path goes through no heads: use 'OV' for a circuit of heads" if chain
            else f'give the head of the circuit, for example circuit(model, "{kind}", "L0H0")'
        )  # fmt: skip
    made = (_qk if kind == "QK" else _ov)(arch, chain, start, end, (query, key))
    step = checked_offset(arch, offset, turned=kind == "QK")
    return Circuit(
        model=model, kind=kind, heads=chain, query=made.query, key=made.key, axes=made.axes, word=made.word,
        thin=factored(made.word.factors, Numbers(model, step)), notation=as_notation("paper"),
        notes=_notes(model, kind, step, made),
    )  # fmt: skip


class _Made(NamedTuple):
    word: Word
    axes: tuple[str, str]
    query: tuple[Head, ...] = ()
    key: tuple[Head, ...] = ()


def _ov(arch: Architecture, chain: tuple[Head, ...], start: Any, end: str, sides: tuple[Any, Any]) -> _Made:
    if any(not isinstance(side, tuple) or side for side in sides):
        raise ValueError("query and key are chains of QK circuits: for an OV circuit give the heads, the latest first")
    if not isinstance(end, str) or end not in ("logits", "stream"):
        raise ValueError(f'end must be "logits" or "stream", not {brief(end)}')
    if end == "logits" and not arch.unembed:
        raise ValueError(
            "this model has no unembedding, so no circuit ends at the logits: "
            'end="stream" gives its output in the stream'
        )
    _check_chain(chain)
    _check_start(arch, start)
    if start == "pos" and arch.positions == "shortformer":
        raise ValueError("positions enter queries and keys only (shortformer), so no value contains them")
    if not chain and "stream" in (start, end):
        raise ValueError("the direct path is W_U W_E: without one of its ends nothing is multiplied")
    values = [ov_word(arch, head) for head in chain]
    first = end_factors(arch) if end == "logits" else ()
    axes = ("output token" if end == "logits" else "output stream"), f"input {STARTS[start]}"
    return _Made(product_of(first, *values, start_factor(start)), axes)


def _qk(arch: Architecture, chain: tuple[Head, ...], start: Any, end: str, sides: tuple[Any, Any]) -> _Made:
    if len(chain) > 1:
        raise ValueError(
            "a QK circuit has one head; heads that compose with its query or key are given by query= and key="
        )
    if not isinstance(end, str) or end != "logits":
        raise ValueError("end applies to OV circuits: a QK circuit has a query and a key side (see start)")
    [head] = chain
    starts = start if isinstance(start, tuple) else (start, start)
    if len(starts) != 2:
        raise ValueError(f"start must be one name, or a pair for query and key, not {brief(start)}")
    parts, chains = [], []
    for side, given, of in zip("QK", sides, starts, strict=True):
        _check_start(arch, of)
        one = isinstance(given, str) or (isinstance(given, tuple) and given and isinstance(given[0], int))
        before = tuple(arch.head(h) for h in ([given] if one else entries("query and key", given, "heads")))
        _check_chain((head, *before))
        parts.append(_read_by(arch, head, side, before, of))
        chains.append(before)
    word = product_of(parts[0], rotation(arch, head), transpose(parts[1]))
    axes = f"query {STARTS[starts[0]]}", f"key {STARTS[starts[1]]}"
    return _Made(word, axes, query=chains[0], key=chains[1])


def _read_by(arch: Architecture, head: Head, side: str, before: tuple[Head, ...], start: str) -> tuple[Factor, ...]:
    """One side of a QK circuit, from its start to ``W_Q^T`` (or ``W_K^T``), as rows."""
    if start == "pos" and arch.positions == "shortformer":
        if before:
            raise ValueError("positions enter queries and keys only (shortformer), so no head before them moves them")
        return position_side(arch, head, side)
    moved = [factor for earlier in reversed(before) for factor in transpose(ov_word(arch, earlier))]
    return (*transpose(start_factor(start)), *moved, *half(arch, head, side))


def _check_start(arch: Architecture, start: Any) -> None:
    if not isinstance(start, str) or start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, not {brief(start)}")
    if start == "pos" and arch.positions not in ("standard", "shortformer"):
        raise ValueError("this model has no position table to start from")


def _check_chain(chain: tuple[Head, ...]) -> None:
    """Raise ValueError if a head does not precede the one that reads it."""
    for later, earlier in pairwise(chain):
        if earlier.layer >= later.layer:
            same = "in the same layer as" if earlier.layer == later.layer else "after"
            raise ValueError(
                f"{earlier} is {same} {later}, which cannot read what it writes: give the latest head first, and each "
                "in an earlier layer than the one before"
            )


def tied(model: Model) -> str:
    """The effect of tied embeddings on copying, in a sentence; empty if ``W_U`` is not ``W_E^T``.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> tied(random_model(attention_only((1,))))
    ''
    """
    u, e = model.weights.get("W_U"), model.weights["W_E"].T
    if u is None or not np.array_equal(u[:1], e[:1]) or not np.array_equal(u, e):  # the first row is compared first
        return ""
    return "embedding and unembedding are tied, W_U = W_E^T: a head with W_OV = Id has positivity 1"


def _notes(model: Model, kind: str, offset: int, made: _Made) -> tuple[str, ...]:
    arch, lines = model.architecture, list[str]()
    if arch.norm:
        lines.append(f"the norms ({arch.norm}) are folded in, but for 1 / sigma, which differs from token to token")
    if kind == "QK" and arch.scale:
        lines.append("the score scale is left out")
    if kind == "QK" and arch.positions == "rotary":
        lines.append(f"rotary positions: R is that of a key {offset} from its query")
    if kind == "QK" and arch.qk_norm:
        lines.append("of normed queries and keys the gains are in it, and 1 / sigma is left out")
    if arch.multipliers:
        lines.append(f"multipliers are left out: {', '.join(sorted(arch.multipliers))}")
    if arch.positions == "standard" and "token" in made.axes[0] + made.axes[1]:
        lines.append('positions are a source of their own: start="pos" has their circuit')
    if made.word.row.space.kind == "vocab_out" and (said := tied(model)):
        lines.append(said)
    if arch.biases:
        lines.append("biases are sources of their own, and in no circuit")
    if "float16" in model.dtype:
        lines.append(f"{model.stored}: the numbers are those of the rounded weights")
    return tuple(lines)
