"""Composition scores: how much of a head's input was written by another head, for all pairs of heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.circuits.chance import Chance, Shapes, chance
from symcircuits.circuits.factoring import Numbers, factored, triangle
from symcircuits.circuits.words import norms_dropped, ov_word, score_formula, score_left
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.notation import Notation, as_notation
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import brief, flag, need, whole
from symcircuits.model import Model

__all__ = ["FAR", "INVARIANT", "KINDS", "CompositionScores", "Pair", "checked_offset", "composition_scores"]

Array = npt.NDArray[np.float64]
KINDS: Final = ("Q", "K", "V")
FAR: Final = 3.0  # standard deviations from which on a score differs from chance
INVARIANT: Final = (
    "the same under rotations of the stream, O(d_model), and under any change of basis inside a head; not under other "
    "changes of the basis of the stream, GL(d_model), which leave the model as it is: not comparable between models"
)
_ROUNDED: Final = 2.0**-36  # relative to its factors: rounding changes larger products in the fifth digit at most


class Pair(NamedTuple):
    """One pair of heads: labels, score, z and ``tight``; None, with a ``reason``, if there is no score.

    ``chance``: ``"above"``, ``"below"``, or ``"at"`` if the score is within three standard deviations of chance.
    """

    later: str
    earlier: str
    score: float | None
    z: float | None
    tight: float | None
    chance: str | None
    reason: str


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class CompositionScores(Shown):
    """The result of :func:`composition_scores`: ``scores["L1H0", "L0H2"]``, the later head first; None without a score.

    ``array``, ``z`` and ``tight`` are masked arrays ``[heads, heads]``, rows later heads and columns earlier heads in
    the order of ``labels``: masked if there is no score, so sums and means leave those out, and ``filled(0)``
    is an ordinary array. ``tight``: the norm of the product relative to its maximum for these singular values,
    ``sqrt(sum s_i(A)^2 s_i(B)^2)``, so aligned heads have 1. ``z``: standard deviations from the mean of random
    heads of the same shapes, negative below it. ``baselines``: those random heads, for each combination of shapes.
    ``notes``: what was assumed, in sentences.
    """

    model: Model
    kind: str
    array: np.ma.MaskedArray[Any, Any]
    z: np.ma.MaskedArray[Any, Any]
    tight: np.ma.MaskedArray[Any, Any]
    baselines: tuple[Chance, ...]
    offset: int | None
    folded: bool
    notes: tuple[str, ...]
    nulls: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (side, label): why there is no score

    def __getitem__(self, heads: tuple[str, str]) -> float | None:
        if not isinstance(heads, tuple) or len(heads) != 2:
            raise TypeError(f'scores are for two heads, the later first: scores["L1H0", "L0H2"], not {brief(heads)}')
        later, earlier = self._place(heads[0]), self._place(heads[1])
        return _number(self.array, later, earlier)

    @property
    def labels(self) -> tuple[str, ...]:
        """The heads, in the order of rows and columns."""
        return tuple(str(head) for head in self.model.architecture.all_heads)

    @property
    def convention(self) -> str:
        """The notation of the formula, in a few words."""
        return as_notation("row").convention

    @property
    def baseline(self) -> Chance | None:
        """The random heads, if all pairs have the same shapes; None if there are none, or several shapes."""
        return self.baselines[0] if len(self.baselines) == 1 else None

    def _place(self, head: str | tuple[int, int]) -> int:
        found = self.model.architecture.head(head)
        return sum(self.model.architecture.heads[: found.layer]) + found.number

    def reason(self, later: str, earlier: str) -> str:
        """Why two heads have no score, in a sentence; empty if they have one."""
        architecture = self.model.architecture
        a, b = architecture.head(later), architecture.head(earlier)
        if b.layer >= a.layer:
            same = "in the layer of" if a.layer == b.layer else "after"
            return f"{b} is {same} {a}: a head reads what heads of earlier layers wrote, and nothing else"
        return self.nulls.get(("later", str(a)), "") or self.nulls.get(("earlier", str(b)), "")

    def pairs(self) -> Iterator[Pair]:
        """All pairs whose second head is earlier, in the order of heads."""
        labels, heads = self.labels, self.model.architecture.all_heads
        for i, later in enumerate(heads):
            for j, earlier in enumerate(heads):
                if earlier.layer >= later.layer:
                    break
                score, z, tight = (_number(numbers, i, j) for numbers in (self.array, self.z, self.tight))
                where = None if z is None else "above" if z >= FAR else "below" if z <= -FAR else "at"
                reason = self.reason(labels[i], labels[j]) if score is None else ""
                yield Pair(labels[i], labels[j], score, z, tight, chance=where, reason=reason)

    def table(self) -> list[dict[str, Any]]:
        """The pairs as rows with names, for another library's tables (``pandas.DataFrame``)."""
        return [pair._asdict() for pair in self.pairs()]

    def formula(self, later: str | None = None, earlier: str | None = None, *, notation: str | Notation = "row") -> str:
        """The formula in text notation: for any heads, ``h_2`` after ``h_1``, or for two given ones, with their norms.

        ``notation``: ``row`` and ``paper`` have the paper's matrices, ``transformerlens`` its transposes.
        """
        return self._formula(later, earlier, notation, latex=False)

    def latex(self, later: str | None = None, earlier: str | None = None, *, notation: str | Notation = "row") -> str:
        """The same as LaTeX (math mode, no delimiters)."""
        return self._formula(later, earlier, notation, latex=True)

    def _formula(self, later: str | None, earlier: str | None, notation: str | Notation, latex: bool) -> str:
        architecture = _seen(self.model.architecture, self.folded)
        if (later is None) != (earlier is None):
            raise ValueError("give both heads, the later first, or neither")
        heads = None
        if later is not None and earlier is not None:
            heads = architecture.head(later), architecture.head(earlier)
            if heads[1].layer >= heads[0].layer:
                raise ValueError(self.reason(later, earlier))
        return score_formula(architecture, self.kind, heads, as_notation(notation).products, latex)

    def text(self, width: int = 100, top: int = 20) -> str:
        """The formula, the scores by chance, and the pairs furthest from it, as a table that fits that width."""
        return self._text(width, top=top)

    def json(self) -> dict[str, Any]:
        """The result as plain data (schema in docs/json.md)."""
        return higher(dict, "CompositionScores.json")(self)


def composition_scores(model: Model, kind: str, *, offset: int | None = None, fold: bool = True) -> CompositionScores:
    """The paper's composition scores of all pairs of heads, compared with chance.

    ``kind``: ``"Q"``, ``|W_QK^T W_OV| / (|W_QK| |W_OV|)`` with ``W_QK`` of the later head and ``W_OV`` of the earlier;
    ``"K"`` the same with ``W_QK``, ``"V"`` with ``W_OV`` of the later head; Frobenius norms. ``fold``: weights are
    taken as they read the stream after a norm, ``W diag(gain) C`` (``C`` centres, for LN), without its ``1 /
    sigma``, which differs from token to token; without ``fold`` as stored, as in TransformerLens.
    If a gain cannot be folded (positions that enter after it) there is no score, and ``reason`` says why.
    ``offset``: for rotary positions, key minus query: ``W_QK`` is then ``W_Q^T R_offset W_K`` (default 0: a
    token and itself).

    Scores are invariant under rotations of the stream and of head spaces, but not under other changes of its basis, so
    they are not comparable between models. A score is not an effect: it says that weights are aligned, and not that
    anything uses them. Products are formed through d_head only, with triangles of QR instead of Gram matrices. Computed
    in float64, whatever the file's type. Raises ValueError on another kind, on an offset without rotary positions, and
    on that of a later key in causal attention. Source: paper, "Analyzing a Two-Layer Model", and for ``tight`` von
    Neumann's trace inequality.

    >>> import symcircuits as sc
    >>> from symcircuits.zoo import path
    >>> scores = sc.composition_scores(sc.load(path()), "K")
    >>> round(scores["L1H0", "L0H2"], 3), scores["L0H2", "L1H0"]
    (0.284, None)
    >>> print(scores.reason("L0H2", "L1H0"))
    L1H0 is after L0H2: a head reads what heads of earlier layers wrote, and nothing else
    """
    need("composition_scores", model, Model)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown composition {brief(kind)}: choose 'Q', 'K' or 'V'")
    flag("fold", fold)
    step = checked_offset(model.architecture, offset, turned=kind != "V")
    return _Scoring(model, kind, step, fold).scores(offset is not None)


def checked_offset(architecture: Architecture, offset: int | None, turned: bool = True) -> int:
    """The offset of rotary positions, key minus query; raises ValueError without them, or if it is invalid."""
    if offset is None:
        return 0
    if architecture.positions != "rotary" or not turned:
        why = "V-composition does not depend on positions" if turned is False else "the positions of this model are not"
        raise ValueError(f"offset applies to rotary positions, which rotate queries and keys; {why}")
    number = whole("offset", offset)
    if architecture.causal and number > 0:
        raise ValueError(
            f"offset is key minus query, and a causal query sees no later key: it must be 0 or less, not {number}"
        )
    return number


def _seen(architecture: Architecture, fold: bool) -> Architecture:
    return architecture if fold else norms_dropped(architecture)


class _Thin(NamedTuple):
    """One side of the products of a layer's heads, over its norm: rows of later heads, columns of earlier ones."""

    matrix: Array
    starts: list[int]
    squares: list[Array]  # squares of singular values over their norm, the largest first
    shapes: Sequence[tuple[int, ...]]


@final
class _Scoring:
    """Scores of one kind, layer by layer: all earlier heads are kept; later heads, one layer at a time."""

    def __init__(self, model: Model, kind: str, offset: int, fold: bool) -> None:
        self.model, self.kind, self.offset, self.fold = model, kind, offset, fold
        self.architecture = _seen(model.architecture, fold)
        self.numbers = Numbers(model, offset, scaled=True)
        self.nulls: dict[tuple[str, str], str] = {}

    def scores(self, offset_given: bool) -> CompositionScores:
        layers = [self.architecture.layer_heads(layer) for layer in range(self.architecture.n_layers)]
        first = np.cumsum([0, *map(len, layers)])
        size = int(first[-1])
        score, tight, z = np.zeros((3, size, size))
        there, spread = np.zeros((2, size, size), bool)
        found = dict[Shapes, Chance]()
        read: list[_Thin | None] = []
        for at, heads in enumerate(layers):
            later = self._later(heads) if heads and any(read) else None
            for before, earlier in enumerate(read):
                if later is None or earlier is None:
                    continue
                part = np.ix_(range(first[at], first[at + 1]), range(first[before], first[before + 1]))
                score[part], tight[part] = _norms(later, earlier), _bounds(later, earlier)
                usable = [np.array([bool(s[0]) for s in side.squares]) for side in (later, earlier)]
                there[part] = np.outer(*usable)
                z[part], spread[part] = self._z(score[part], later, earlier, found)
            read.append(self._earlier(heads) if at + 1 < len(layers) and heads else None)
        tight = np.divide(score, tight, out=np.zeros_like(tight), where=tight > 0)
        masked = [_masked(score, there), _masked(z, there & spread), _masked(tight, there)]
        given = self.offset if offset_given or (self.architecture.positions == "rotary" and self.kind != "V") else None
        return CompositionScores(
            model=self.model, kind=self.kind, array=masked[0], z=masked[1], tight=masked[2],
            baselines=tuple(found.values()), offset=given, folded=self.fold, notes=self._notes(), nulls=self.nulls,
        )  # fmt: skip

    def _later(self, heads: tuple[Head, ...]) -> _Thin:
        """``|A B| = |R M B|`` where ``A = L M`` and ``R`` is the triangle of ``L``: the rows ``R M / |R M|``."""
        rows, why = [], self._not_folded(heads)
        shapes = []
        for head in heads:
            left, core, right, size = factored(score_left(self.architecture, self.kind, head), self.numbers)
            upper = triangle(left) if core is None else triangle(left) @ core
            norm = frobenius(found := upper @ right.T)
            name = "W_OV" if self.kind == "V" else "W_QK"
            self._judge("later", head, name, why or self._zero(norm, size, left))
            rows.append(found / norm if ("later", str(head)) not in self.nulls else np.zeros_like(found))
            shapes.append((*self._sides(), left.shape[1]))
        return _thin(rows, shapes, 0)

    def _earlier(self, heads: tuple[Head, ...]) -> _Thin:
        """The columns ``W R^T / |W R^T|`` of ``B = W V``, ``R`` the triangle of ``V^T``."""
        columns, shapes = [], []
        for head in heads:
            left, _, right, size = factored(ov_word(self.architecture, head), self.numbers)
            norm = frobenius(found := left @ triangle(right).T)
            self._judge("earlier", head, "W_OV", self._zero(norm, size, left))
            columns.append(found / norm if ("earlier", str(head)) not in self.nulls else np.zeros_like(found))
            shapes.append((left.shape[1],))
        return _thin(columns, shapes, 1)

    def _zero(self, norm: float, size: float, thin: Array) -> str:
        """Why a norm gives no ratio: it is 0, or not larger than its rounding error; empty if it gives one."""
        if norm == 0:
            return "zero"
        return "zero up to rounding" if norm <= _ROUNDED * thin.shape[1] * size else ""

    def _judge(self, side: str, head: Head, name: str, why: str) -> None:
        if why:
            said = f"{name} of {head} is {why}, and a score would be 0 / 0" if why.startswith("zero") else why
            self.nulls[side, str(head)] = said

    def _not_folded(self, heads: tuple[Head, ...]) -> str:
        arch = self.architecture
        label = arch.norm_label(heads[0].layer) if heads else ""
        if self.kind == "V" or arch.positions != "shortformer" or label not in arch.gains:
            return ""
        return (
            f"the gain of the norm {label} cannot be folded: positions enter queries and keys after it (shortformer), "
            "so W_QK does not read one stream"
        )

    def _sides(self) -> tuple[int, int]:
        """The numbers of dimensions of the outer and the inner side of ``A``: one less if an LN centres."""
        d = self.model.d_model
        reads = d - (self.architecture.norm == "LN" and d > 1)
        return (d if self.kind == "V" else reads), reads

    def _z(
        self, score: Array, later: _Thin, earlier: _Thin, found: dict[Shapes, Chance]
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Standard deviations from chance, pair by pair; and whether there are any: in one dimension all score 1."""
        mean, std = np.zeros((2, *score.shape))
        d, (_, reads) = self.model.d_model, self._sides()
        for i, (left, middle, of_later) in enumerate(later.shapes):
            for j, (of_earlier,) in enumerate(earlier.shapes):
                shapes = Shapes(left, middle, write=d, right=reads, later=of_later, earlier=of_earlier)
                if shapes not in found:
                    found[shapes] = chance(shapes)
                mean[i, j], std[i, j] = found[shapes].mean, found[shapes].std
        spread = std > 1e-9
        return np.divide(score - mean, std, out=np.zeros_like(score), where=spread), spread

    def _notes(self) -> tuple[str, ...]:
        arch, lines = self.model.architecture, list[str]()
        if arch.n_layers < 2:
            lines.append("no head comes before another: the model has fewer than two layers")
        if arch.norm and self.fold:
            lines.append(
                f"weights are those that read behind the norms ({arch.norm}), gains"
                f"{' and centring' if arch.norm == 'LN' else ''} folded in; 1 / sigma, which differs from token to "
                "token, is left out"
            )
        elif arch.norm:
            lines.append(f"weights are as they are stored: gains and centring of the {arch.norm} norms are left out")
        if arch.positions == "rotary" and self.kind != "V":
            lines.append(f"rotary positions: W_QK is W_Q^T R W_K for a key {self.offset} from its query")
        if arch.qk_norm and self.kind != "V":
            lines.append("the gains of normed queries and keys are folded in; their 1 / sigma is left out")
        if arch.positions == "shortformer" and self.kind != "V":
            lines.append("positions are added to queries and keys only (shortformer): the score is for the stream")
        if arch.groups:
            lines.append("heads of one group share their keys and values")
        if arch.mlps:
            lines.append("scores leave out the effect of an MLP between two heads")
        if "float16" in self.model.dtype:
            lines.append(f"{self.model.stored}: scores are those of the rounded weights")
        return tuple(lines)


def _thin(parts: list[Array], shapes: Sequence[tuple[int, ...]], axis: int) -> _Thin:
    starts = np.cumsum([0, *(part.shape[axis] for part in parts[:-1])]).tolist()
    squares = [np.linalg.eigvalsh(part @ part.T if axis == 0 else part.T @ part)[::-1].clip(0) for part in parts]
    return _Thin(np.concatenate(parts, axis), starts, squares, shapes)


def _norms(later: _Thin, earlier: _Thin) -> Array:
    """The norm of the product of every pair."""
    product = later.matrix @ earlier.matrix
    np.multiply(product, product, out=product)
    sums = np.add.reduceat(np.add.reduceat(product, earlier.starts, axis=1), later.starts, axis=0)
    return np.asarray(np.sqrt(sums))


def _bounds(later: _Thin, earlier: _Thin) -> Array:
    """The maximum for each: ``sum s_i(A)^2 s_i(B)^2``, singular values in order."""
    least = min(min(map(len, side.squares)) for side in (later, earlier))
    if all(len(s) == least for side in (later, earlier) for s in side.squares):
        return np.asarray(np.sqrt(np.array(later.squares) @ np.array(earlier.squares).T))
    pairs = [[sum(x * y for x, y in zip(a, b, strict=False)) for b in earlier.squares] for a in later.squares]
    return np.asarray(np.sqrt(np.array(pairs)))


def _number(numbers: np.ma.MaskedArray[Any, Any], i: int, j: int) -> float | None:
    return None if np.ma.getmaskarray(numbers)[i, j] else float(numbers.data[i, j])


def _masked(numbers: Array, there: npt.NDArray[np.bool_]) -> np.ma.MaskedArray[Any, Any]:
    found = np.ma.MaskedArray(np.where(there, numbers, 0.0), mask=~there, fill_value=0.0)
    found.data.flags.writeable = False
    found.flags.writeable = False
    return found
