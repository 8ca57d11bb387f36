"""Measures of terms: their norm, their part in a logit or a difference of two, their part in one score.

:func:`norm`, :func:`logit` and :func:`score_entry` make them; what they leave open (the last position, the
model's first choice of a token) is filled in by :meth:`Measure.on`, for an expansion and a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion
from symcircuits.core.text import argument, brief, flag, place, whole
from symcircuits.model import Run, Tensors
from symcircuits.values.evaluate import reference

__all__ = [
    "KINDS",
    "MEAN",
    "SECOND",
    "Kind",
    "Measure",
    "check_two",
    "kinds_of",
    "logit",
    "norm",
    "resolved",
    "score_entry",
]

Array = npt.NDArray[Any]

SECOND: Literal["second"] = "second"
MEAN: Literal["mean"] = "mean"


class Kind(NamedTuple):
    """A kind of measure: the targets that have it, how it is written and described, and what it reads of a term.

    ``reads``: ``token`` (one or two, at a position) or ``key`` (one, of a query), signed numbers; empty: sizes.
    """

    targets: tuple[str, ...]
    written: str
    said: str
    reads: str = ""


# A new kind is a row here, and a row in values/measured.py, which computes it.
KINDS: Final = {
    "norm": Kind(("logits", "stream", "readout", "scores"), "sc.norm()", "norm over all positions and outputs"),
    "masked norm": Kind(("scores",), "sc.norm(masked=True)", "norm over the entries that the mask leaves"),
    "logit": Kind(("logits",), "sc.logit(token)", "part in the logit of token {token} {at}", "token"),
    "logit difference": Kind(
        ("logits",), "sc.logit(token, against=other)", "part in logit[{token}] - logit[{against}] {at}", "token"
    ),
    "centred logit": Kind(
        ("logits",), 'sc.logit(token, against="mean")', "part in logit[{token}] less the mean of all logits {at}",
        "token",
    ),
    "direction": Kind(("readout",), "sc.logit(direction)", "part in what direction {token} reads {at}", "token"),
    "direction difference": Kind(
        ("readout",), "sc.logit(direction, against=other)", "part in what directions {token} - {against} read {at}",
        "token",
    ),
    "score entry": Kind(
        ("scores",), "sc.score_entry(query, key)", "part in the score of query {position} and key {key}{row}", "key"
    ),
}  # fmt: skip


def kinds_of(target: str) -> list[str]:
    """The measures for the terms of a target.

    >>> kinds_of("scores:L1H0")
    ['norm', 'masked norm', 'score entry']
    """
    return [name for name, kind in KINDS.items() if target.partition(":")[0] in kind.targets]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of terms; ``row`` None: each row of a batch by itself, or all rows if one number is wanted.

    ``kind``: one of ``KINDS``. ``position``: of the logit, or the query of a score. Values that are None but needed are
    filled in by :meth:`on`.

    >>> print(logit(7, against=3, position=2))
    part in logit[7] - logit[3] at position 2
    """

    kind: str
    row: int | None = None
    position: int | None = None
    key: int | None = None
    token: int | None = None
    against: int | Literal["second"] | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f" of row {self.row}"
        at = f"at position {self.position}{row}"
        return KINDS[self.kind].said.format(
            at=at, row=row, token=self.token, against=self.against, position=self.position, key=self.key
        )

    @property
    def signed(self) -> bool:
        """Whether terms have a signed number, and not only a size."""
        return bool(KINDS[self.kind].reads)

    @property
    def chosen(self) -> list[int]:
        """The tokens or directions, once filled in: none, one or two."""
        return [int(c) for c in (self.token, self.against) if c is not None]

    def on(self, expansion: Expansion, run: Run | Tensors, one_row: bool = False) -> Measure:
        """The same with everything left open filled in; raises ValueError on what does not exist.

        ``one_row``: one number per term is wanted, so for a batch a logit or a score needs a ``row``.
        """
        kind = (
            self.kind.replace("logit", "direction")
            if self.kind != "centred logit" and expansion.target.startswith("readout:")
            else self.kind
        )
        if kind not in KINDS or expansion.target.partition(":")[0] not in KINDS[kind].targets:
            given, choices = KINDS[self.kind].written, ", ".join(KINDS[k].written for k in kinds_of(expansion.target))
            raise ValueError(f"terms of {expansion.target} are not measured by {given}: choose {choices}")
        found = self if kind == self.kind else replace(self, kind=kind)
        if not found.signed:
            return found
        shape = run.tokens.shape if isinstance(run, Run) else run.shape
        if isinstance(run, Run) and found._is_given:
            return _placed(found, shape, one_row, reference(expansion.target, run).shape[-1])
        found = found.placed(shape, one_row)
        if KINDS[kind].reads == "token":
            return found._logit(expansion, run)
        found = found._score(expansion, run, shape[-1])
        if one_row and isinstance(run, Run):
            found._check_seen(expansion, run)
        return found

    @property
    def _is_given(self) -> bool:
        """Whether all its outputs are given as Python integers, so it can be cached by sizes alone."""
        chosen = type(self.token), type(self.against), type(self.position), type(self.row)
        return self.key is None and self.token is not None and {*chosen} <= {int, type(None)}

    def placed(self, shape: Sequence[int], one_row: bool = False) -> Measure:
        """With a row and a position that exist for tokens of this shape; without a batch axis there is no row."""
        rows = shape[0] if len(shape) == 2 else None
        row = None if self.row is None else place("row", self.row, 1 if rows is None else rows)
        if one_row and rows is not None and row is None:
            said = f"the run is a batch of {rows} rows, and one number per term is needed"
            raise ValueError(f"{argument('row')} is required: {said}")
        position = place("position", -1 if self.position is None else self.position, shape[-1])
        return self._with(row=None if rows is None else row, position=position)

    def _with(self, **known: Any) -> Measure:
        """The same with these filled in; itself if nothing changes."""
        return self if all(getattr(self, name) is value for name, value in known.items()) else replace(self, **known)

    def outputs(self, width: int) -> Measure:
        """With tokens (or directions), as far as given, that exist among ``width``, counted from 0, and differ."""
        what = "direction" if "direction" in self.kind else "token"
        token = None if self.token is None else place(what, self.token, width, negative=False)
        if self.against is None or self.against == SECOND:
            return self._with(token=token)
        against = place(f"the {what} against", self.against, width, negative=False)
        check_two(what, token, against)
        return self._with(token=token, against=against)

    def _logit(self, expansion: Expansion, run: Run | Tensors) -> Measure:
        """With the token, by default the first choice, and the one it is compared with."""
        left_open = ["token"] * (self.token is None) + ["against"] * (self.against == SECOND)
        what, needed = "direction" if "direction" in self.kind else "logit", ""
        if left_open:
            needed = f"{' and '.join(left_open)} {'are' if len(left_open) > 1 else 'is'} required"
        if isinstance(run, Tensors):
            if left_open:
                raise ValueError(f"{needed} for arrays of other libraries")
            reader = expansion.readout.sides[0][-1].branches[0].right[-1].symbol.argument
            return self.outputs(int(run.arrays[reader].shape[0]))
        values = reference(expansion.target, run)
        found = self.outputs(values.shape[-1])
        if not left_open:
            return found
        if values.ndim == 3 and self.row is None:
            raise ValueError(f"{needed} for all rows of a batch; or give a row")
        here = values[self.position] if self.row is None else values[self.row, self.position]
        token, against = found.token, found.against
        if token is None:  # for directions, the one with the largest absolute value
            token = int(np.argmax(np.abs(here) if what == "direction" else here))
        if against == SECOND:
            against = _largest_other(here, token, what)
        return replace(found, token=token, against=against).outputs(len(here))

    # ------------------------------------------------------------------------------ the chosen logit, of values
    def at(self, value: Array) -> tuple[float | None, float | None]:
        """Its value in an array ``[..., n, width]``: that of the first token, and that less the second (if any).

        >>> logit(1, against=0, position=2).at(np.array([[0, 0], [0, 0], [3.0, 5.0]]))
        (5.0, 2.0)
        """
        return self.of(value[..., self.chosen]) if self.chosen else (None, None)

    def of(self, entries: Array) -> tuple[float, float | None]:
        """The same, from the entries of the chosen tokens only, ``[..., n, tokens]``."""
        here = entries[self.position] if self.row is None else entries[self.row, self.position]
        return float(here[0]), None if self.against is None else float(here[0] - here[1])

    def _score(self, expansion: Expansion, run: Run | Tensors, n: int) -> Measure:
        """With the key, by default the one attended to most."""
        assert self.position is not None
        head = expansion.readout.head
        assert head is not None
        if isinstance(run, Tensors) or (self.row is None and np.ndim(run.tokens) == 2):
            if self.key is None:
                raise ValueError("key is required for all rows of a batch, and for arrays of other libraries")
            return replace(self, key=place("key", self.key, n))
        pattern = run.patterns[str(head)]
        pattern = pattern[self.position] if self.row is None else pattern[self.row, self.position]
        seen = int(np.argmax(np.abs(pattern))) if self.key is None else place("key", self.key, n)
        return replace(self, key=seen)

    def _check_seen(self, expansion: Expansion, run: Run) -> None:
        """Raise ValueError if the mask leaves no score."""
        head = expansion.readout.head
        assert head is not None
        mask = np.broadcast_to(run.masks[f"L{head.layer}"], run.patterns[str(head)].shape)
        if not mask[..., self.position, self.key][() if self.row is None else self.row]:
            raise ValueError(f"query {self.position} does not see key {self.key}: the mask leaves no score there")


@lru_cache(maxsize=64)
def _placed(by: Measure, shape: tuple[int, ...], one_row: bool, width: int) -> Measure:
    """For given outputs, a shape of tokens and a number of outputs: computed once."""
    return by.placed(shape, one_row).outputs(width)


def resolved(values: Any, by: Measure | None) -> Measure:
    """The measure that gives one number per term, filled in; ``by`` None: the norm. TypeError on anything else."""
    by = norm() if by is None else by
    if not isinstance(by, Measure):
        raise TypeError(f"by must be a measure (sc.norm(), sc.logit(...), sc.score_entry(...)), not {brief(by)}")
    return by.on(values.expansion, values.run, one_row=True)


def check_two(what: str, one: int | None, other: int | None) -> None:
    """Raise ValueError if the two tokens (or directions) of a difference are the same; None: not given."""
    if one is not None and one == other:
        of = "the logit of token" if what == "token" else what
        raise ValueError(f"the difference of {of} {one} with itself is 0; choose two {what}s")


def _largest_other(here: Array, first: int, what: str) -> int:
    """The index of the largest value other than a given one."""
    if len(here) < 2:
        raise ValueError(f"a difference needs two: the model has one {what.replace('logit', 'output token')}")
    values = np.array(here, np.float64)
    values[first] = -np.inf
    return int(np.argmax(values))


def norm(masked: bool = False) -> Measure:
    """Frobenius norm of a term over all positions and outputs; ``masked``: for scores, over what the mask leaves.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.scores(run.model.architecture, "L1H0"), run)
    >>> [block] = values.measure(sc.norm())
    >>> bool(np.allclose(block.values, [np.linalg.norm(value) for value in values]))
    True
    """
    flag("masked", masked)
    return Measure(kind="masked norm" if masked else "norm")


def logit(
    token: int | None = None,
    against: int | Literal["second", "mean"] | None = None,
    *,
    position: int = -1,
    row: int | None = None,
) -> Measure:
    """What a term adds to the logit of ``token`` at ``position``, less what it adds to that of ``against``.

    ``token`` None: the model's first choice there; ``against="second"``: the largest other; ``"mean"``: the mean of all
    logits. Differences do not change when one vector is added to every row of ``W_U``. ``row``: of a batch. For a
    :func:`~symcircuits.readout`, ``token`` and ``against`` are the numbers of its directions; ``token`` None is the one
    with the largest absolute value.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> [block] = values.measure(sc.logit(0, against=1))
    >>> bool(np.isclose(block.values.sum(), run.logits[-1, 0] - run.logits[-1, 1]))
    True
    """
    if isinstance(against, str) and against == MEAN:
        one = logit(token, position=position, row=row)
        return replace(one, kind="centred logit")
    second = isinstance(against, str) and against == SECOND
    return Measure(
        kind="logit" if against is None else "logit difference", row=None if row is None else whole("row", row),
        position=whole("position", position), token=None if token is None else whole("token", token),
        against=SECOND if second else None if against is None else whole("against", against),
    )  # fmt: skip


def score_entry(query: int = -1, key: int | None = None, *, row: int | None = None) -> Measure:
    """What a term adds to the score of one query and one key (scaled, before the mask); ``row``: of a batch.

    ``key`` None: the one attended to most.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.scores(run.model.architecture, "L1H0"), run)
    >>> [block] = values.measure(sc.score_entry(2, 1))
    >>> bool(np.isclose(block.values.sum(), run.scores["L1H0"][2, 1]))
    True
    """
    return Measure(
        kind="score entry", row=None if row is None else whole("row", row), position=whole("query", query),
        key=None if key is None else whole("key", key),
    )  # fmt: skip
