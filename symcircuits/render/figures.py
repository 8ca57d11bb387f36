"""What the figures of an explanation show, as plain data: for the page and for matplotlib alike.

Figures are of the row of tokens of the chosen logit. A heat map of scores or patterns has a row a query and a column a
key; ``shown`` says which entries the mask leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion, Term
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.score_parts import ScoreParts
from symcircuits.explanation.scores import centred
from symcircuits.explanation.sizes import SizedTerm
from symcircuits.values.by_position import Reads, by_position, moves
from symcircuits.values.evaluate import Values, evaluate, reference

__all__ = [
    "Bars", "HeatMap", "contribution_bars", "origin_map", "pattern_map", "removed_map", "row_of", "score_maps",
    "score_term_map", "source_maps", "term_map", "token_labels",
]  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """A matrix with names on its axes. ``largest``: the end of the colour scale; ``signed``: whether it has two."""

    title: str
    values: Array
    shown: npt.NDArray[np.bool_]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_name: str = "query"
    column_name: str = "key"
    largest: float = 1.0
    signed: bool = True

    def pooled(self, most: int) -> HeatMap:
        """A map of at most so many rows and columns: each cell the entry of its block with the largest size.

        >>> one = HeatMap("m", np.array([[1.0, -3.0], [2.0, 0.0]]), np.ones((2, 2), bool), ("a", "b"), ("c", "d"))
        >>> one.pooled(1).values, one.pooled(1).rows
        (array([[-3.]]), ('a … b',))
        """
        values, shown = np.where(self.shown, self.values, 0), self.shown
        names = [self.rows, self.columns]
        for axis in (0, 1):
            if len(names[axis]) <= most:
                continue
            starts, size = _blocks(len(names[axis]), most)
            values, shown = _in_blocks(values, axis, size), np.asarray(_in_blocks(shown, axis, size).any(axis + 1))
            places = np.abs(values).argmax(axis + 1, keepdims=True)  # of blocks that are filled up with zeros
            values = np.take_along_axis(values, places, axis + 1).squeeze(axis + 1)
            names[axis] = _block_names(names[axis], starts, size)
        return replace(self, values=values, shown=shown, rows=names[0], columns=names[1])


def _blocks(n: int, most: int) -> tuple[range, int]:
    """Where blocks of one size start, so that there are at most so many, and that size."""
    size = -(-n // most)
    return range(0, n, size), size


@lru_cache(maxsize=16)  # maps of one page have the same axes
def _block_names(names: tuple[str, ...], starts: range, size: int) -> tuple[str, ...]:
    return tuple(_block_name(names[s : s + size]) for s in starts)


def _block_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _in_blocks(values: Array, axis: int, size: int) -> Array:
    """An axis of a matrix as two, of blocks and of what is in each; the last block is filled up with zeros."""
    missing = [(0, -values.shape[i] % size if i == axis else 0) for i in (0, 1)]
    filled = np.pad(values, missing) if values.shape[axis] % size else values
    return filled.reshape(*values.shape[:axis], -1, size, *values.shape[axis + 1 :])


@dataclass(frozen=True, slots=True)
class Bars:
    """Contributions to a logit or a difference (``of``), one a bar; ``terms``: those of the first bars.

    The last two bars are the remainder and the whole.
    """

    of: str
    position: int
    labels: tuple[str, ...]
    values: tuple[float, ...]
    terms: tuple[SizedTerm, ...]


def row_of(found: Explanation, value: Array) -> Array:
    """The chosen row of tokens of an array with or without a batch axis, in float64."""
    row = found.measure.row
    chosen = value if row is None else value[row]
    return np.asarray(chosen, dtype=np.float64)


def token_labels(found: Explanation) -> tuple[str, ...]:
    """What stands on the axes: the label of the token at each position of the chosen row, or its number."""
    row = found.measure.row
    tokens = found.run.tokens if row is None else found.run.tokens[row]
    return tuple(found.labels.at(i, int(t)) for i, t in enumerate(tokens))


def _square(found: Explanation, title: str, value: Array, shown: Array | None = None, **more: Any) -> HeatMap:
    names = token_labels(found)
    mask = np.ones((len(names),) * 2, bool) if shown is None else np.asarray(row_of(found, shown), bool)
    kept = np.where(mask, row_of(found, value), 0)
    more = {"largest": float(np.abs(kept).max(initial=0.0)), **more}
    return HeatMap(title, kept, mask, names, names, **more)


# ------------------------------------------------------------------------------------------------ of a head
def _allowed(found: Explanation, head: str) -> Array:
    return np.isfinite(found.run.scores[head])


def pattern_map(found: Explanation, head: str) -> HeatMap:
    """The attention pattern of a head."""
    shown = _allowed(found, head)
    return _square(found, f"pattern of {head}", found.run.patterns[head], shown, largest=1.0, signed=False)


def removed_map(found: Explanation, head: str, removed: str, pattern: Array) -> HeatMap:
    """The pattern of a head when a part of its scores is removed."""
    title = f"pattern of {head} without {removed}"
    return _square(found, title, pattern, _allowed(found, head), largest=1.0, signed=False)


def score_maps(found: Explanation, parts: ScoreParts, centre: bool = True) -> list[HeatMap]:
    """A head's scores and their parts by composition type, all on one colour scale; of a model with soft caps or ALiBi
    the scores before these, and said so.

    ``centre``: each row minus its mean over the allowed keys (what softmax sees); else as they are, and what softmax
    does not see as one more map where there is something.
    """
    target, of = f"scores:{parts.head}", found.scores[parts.head].closure.of
    whole = np.where(parts.allowed, reference(target, found.run), 0)
    named = {f"scores of {parts.head}" + (f" ({of})" if of else ""): whole}
    named |= {f"composition {c}": v for c, v in parts.by_composition.items()} if len(parts.by_composition) > 1 else {}
    if not centre and parts.invisible_count:
        named["not seen by softmax"] = parts.invisible
    return _scaled(found, parts, {k: centred(v, parts.allowed) if centre else v for k, v in named.items()})


def source_maps(found: Explanation, parts: ScoreParts, most: int = 6) -> list[HeatMap]:
    """A head's centred scores by kind of source of query and key: those with any size, the largest first."""
    values = {f"{q} | {k}": centred(v, parts.allowed) for (q, k), v in parts.by_source.items()}
    sizes = {name: float(np.abs(row_of(found, v)).max(initial=0.0)) for name, v in values.items()}
    tiny = 1e-12 * max(sizes.values(), default=0.0)
    chosen = sorted((name for name in values if sizes[name] > tiny), key=lambda name: -sizes[name])[:most]
    return _scaled(found, parts, {name: values[name] for name in chosen})


def _scaled(found: Explanation, parts: ScoreParts, named: dict[str, Array]) -> list[HeatMap]:
    """Maps on one colour scale."""
    maps = [_square(found, title, value, parts.allowed) for title, value in named.items()]
    largest = max((m.largest for m in maps), default=0.0)
    return [replace(m, largest=largest) for m in maps]


def score_term_map(found: Explanation, term: Term, centre: bool = True) -> HeatMap:
    """One score term, centred (see :func:`score_maps`) or as it is."""
    head = str(term.readout.head)
    value = evaluate(Expansion(term.readout), found.run).value(term)
    shown = _allowed(found, head)
    return _square(found, term.label, centred(value, shown) if centre else value, shown)


# ------------------------------------------------------------------------------------------------- of terms
def _reader(found: Explanation, difference: bool, centred: bool) -> Array | None:
    """What reads the chosen logit, that less the mean, or the difference of two, from a row; None without logits."""
    own, chosen = found.readout, found.measure.chosen
    if difference and len(chosen) < 2:
        raise ValueError("no logit difference was chosen: use explain(..., by=logit(token, against=...))")
    if not chosen:
        return None
    reader = np.zeros(len(found.model.attached[own]) if own else found.model.d_vocab_out or 0)
    reader[chosen[0]] = 1
    if difference:
        reader[chosen[1]] -= 1
    elif centred:
        reader -= 1 / len(reader)
    return reader


def _read_name(found: Explanation, difference: bool, centred: bool) -> str:
    """What is read: ``logit[a]``, ``logit[a] - logit[b]``, ``logit[a] - mean``, ``probe[0]``, or, without logits, the
    patterns.
    """
    if found.readout:
        t, name = found.measure, found.readout
        first = f"{name}[{t.token}]" if len(found.model.attached[name]) > 1 else name
        return f"{first} - {name}[{t.against}]" if difference else first
    names = [f"logit[{found.labels.output(token)}]" for token in found.measure.chosen]
    if names and centred and not difference:
        return f"{names[0]} - mean"
    return " - ".join(names[: 2 if difference else 1]) or "product of patterns"


def _causal(found: Explanation) -> bool:
    """Whether nothing comes from a later position."""
    return found.model.architecture.causal and found.run.attended is None


def term_map(
    found: Explanation, term: Term | SizedTerm, difference: bool = False, *, centred: bool = False,
    reads: Reads | None = None,
) -> HeatMap:  # fmt: skip
    """Where a term (or two that are one row) comes from: its part at each position (row) that starts at each position
    (column).

    Of the chosen logit, of that less the mean of all (``centred``), or of the difference; without unembedding the
    product of the term's patterns. ``reads``: what maps of the same reading share, empty at first.
    """
    values, reader = evaluate(found.expansion, found.run), _reader(found, difference, centred)
    terms = term.terms if isinstance(term, SizedTerm) else (term,)
    value = _started(values, terms, reader, reads)
    names = {"row_name": "arrives at", "column_name": "starts at"}
    shown = np.tril(np.ones(value.shape, bool)) if _causal(found) else None
    return _square(found, term.label, value, shown, **names, signed=reader is not None)


def _started(values: Values, terms: Sequence[Term], reader: Array | None, reads: Reads | None) -> Array:
    """What of these terms starts where."""
    parts = [moves(values, t) if reader is None else by_position(values, t, reader, reads) for t in terms]
    return np.asarray(sum(parts[1:], parts[0]))


def origin_map(
    found: Explanation, terms: Sequence[SizedTerm], difference: bool = False, *, centred: bool = False,
    reads: Reads | None = None,
) -> HeatMap:  # fmt: skip
    """At the position of the chosen logit: the part of each term (row) that starts at each position (column).

    ``reads``: what maps of the same reading share, empty at first.
    """
    reads = {} if reads is None else reads
    values, reader = evaluate(found.expansion, found.run), _reader(found, difference, centred)
    names = token_labels(found)
    rows = [_started(values, s.terms, reader, reads) for s in terms]
    at = found.measure.position or 0
    value = np.array([row_of(found, r)[at] for r in rows]).reshape(-1, len(names))
    shown = np.ones(value.shape, bool)
    if _causal(found):
        shown[:, at + 1 :] = False
    title = f"{_read_name(found, difference, centred)} at position {at}"
    return HeatMap(
        title,
        value,
        shown=shown,
        rows=tuple(s.label for s in terms),
        columns=names,
        row_name="term",
        column_name="starts at",
        largest=float(np.abs(value).max(initial=0.0)),
        signed=reader is not None,
    )


def contribution_bars(
    found: Explanation, difference: bool = False, terms: Sequence[SizedTerm] | None = None, rest: Any = None, *,
    centred: bool = False,
) -> Bars:  # fmt: skip
    """The contributions of the shown terms, of the remainder and of all, to the chosen logit or the difference.

    ``centred``: to the logit less the mean of all.

    ``terms`` and ``rest``: fewer terms than all that are shown, and their remainder.
    """
    kind = "difference" if difference else "centred" if centred else "contribution"
    _reader(found, difference, centred)
    if found.measure.token is None:
        raise ValueError("this model has no unembedding: there is no logit to contribute to")
    chosen = found.terms if terms is None else tuple(terms)
    left = found.remainder if rest is None else rest
    whole = found.difference if difference else found.centred if centred else found.value
    labels = (*(s.label for s in chosen), f"remainder ({left['count']:,})", "all")
    values = (*(getattr(s, kind) for s in chosen), left[kind], whole)
    return Bars(_read_name(found, difference, centred), found.measure.position or 0, labels, values, chosen)
