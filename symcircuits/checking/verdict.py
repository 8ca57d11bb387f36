"""The result of a check: right or wrong, which terms, which mistake; with its text, JSON and display."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from symcircuits.checking.formula import CONVENTIONS
from symcircuits.core.notation import ROW, Notation
from symcircuits.core.shown import Shown

__all__ = ["Found", "Outcome", "Texts", "Verdict"]


_HELD_FIXED: Final = "the attention patterns"


class Found(NamedTuple):
    """A term in a formula: its number in the expansion, counted from 0, label, composition type and text."""

    number: int
    label: str
    composition: str
    text: str


@dataclass(frozen=True, slots=True)
class Texts:
    """A number of terms, of which the first 20 are written out.

    >>> Texts(3000, ("X0 @ W_U.T",)).count, list(Texts(1, ("X0 @ W_U.T",)))
    (3000, ['X0 @ W_U.T'])
    """

    count: int = 0
    texts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def json(self) -> dict[str, Any]:
        """Count and texts."""
        return {"count": self.count, "texts": list(self.texts)}


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Shown):
    """The verdict on a formula: ``right`` or not, of which ``target``, and why. As a truth value: ``right``.

    ``terms`` are the right terms in it, ``mistake`` a stable word (None if right), ``message`` plain sentences,
    ``nearest`` the right term nearest to the first wrong one; ``missing``, ``extra`` and ``doubled`` have a ``count``
    and list the first 20; ``circuit``: it was read as products of weights only.

    ``line`` is the line of the first fault, counted from 1, of ``lines``; ``read`` says how the formula was read;
    ``where`` are the hypotheses under which it is right, if any.

    >>> verdict = Verdict(False, "logits", (), "transpose", "Wrong (transpose): ...", "X0 @ W_U.T")
    >>> bool(verdict), verdict.mistake, verdict.json()["schema"]
    (False, 'transpose', 'symcircuits.check/1')
    >>> verdict
    Read: the row convention, matrices in the paper's shapes; held fixed: the attention patterns
    Wrong (transpose): ...
    nearest right term: X0 @ W_U.T
    """

    right: bool
    target: str
    terms: tuple[Found, ...]
    mistake: str | None
    message: str
    nearest: str | None = None
    missing: Texts = field(default_factory=Texts)
    extra: Texts = field(default_factory=Texts)
    doubled: Texts = field(default_factory=Texts)
    notes: tuple[str, ...] = ()
    circuit: bool = False
    count: int = 0
    architecture: str = ""
    convention: str = "paper"
    notation: Notation = ROW
    line: int | None = None
    lines: int = 1
    read: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.right

    def json(self) -> dict[str, Any]:
        """The verdict as plain data (schema ``symcircuits.check/1``)."""
        return {
            "schema": "symcircuits.check/1", "architecture": self.architecture, "convention": self.convention,
            "notation": self.notation.json(), "held_fixed": _HELD_FIXED, "target": self.target, "count": self.count,
            "read": [*self.read], "right": self.right, "where": list(self.where), "line": self.line,
            "lines": self.lines, "mistake": self.mistake, "message": self.message, "circuit": self.circuit,
            "nearest": self.nearest,
            "terms": [t._asdict() for t in self.terms], "missing": self.missing.json(), "extra": self.extra.json(),
            "doubled": self.doubled.json(), "notes": list(self.notes),
        }  # fmt: skip

    def text(self, width: int = 100) -> str:
        """The verdict in lines of at most so many characters (except for a longer symbol)."""
        lines = _wrapped(f"Read: {self._conventions()}; held fixed: {_HELD_FIXED}", width)
        lines += _wrapped(self.message, width)
        if self.where:
            lines += _wrapped(f"where {' and '.join(self.where)}", width)
        if self.nearest is not None:
            lines += _wrapped(f"nearest right term: {self.nearest}", width)
        for name in ("missing", "doubled", "extra"):
            listed: Texts = getattr(self, name)
            if any(t not in self.message for t in listed):
                lines += [f"{name} ({listed.count:,}):"]
                lines += [line for t in listed for line in _wrapped(t, width, "  ")]
                lines += [f"  ... and {listed.count - len(listed.texts):,} more"] * (listed.count > len(listed.texts))
        lines += [line for n in self.notes for line in _wrapped(f"note: {n}", width)]
        return "\n".join(lines)

    def _conventions(self) -> str:
        """How the formula was read, and the notation of the right terms if it differs."""
        read = CONVENTIONS[self.convention]
        other = () if self.notation.name == read else (f"right terms in {self.notation.convention}",)
        return "; ".join((*(self.read or (Notation(read).convention,)), *other))

    def __repr__(self) -> str:
        return self.text()


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    from textwrap import wrap

    return wrap(text, max(width, 20), initial_indent=indent, subsequent_indent=indent + "  ",
                break_long_words=False, break_on_hyphens=False)  # fmt: skip


class Outcome(NamedTuple):
    """A verdict on one claim, the place of its fault, and its distance from right."""

    verdict: Verdict
    at: int
    cost: int = 0

    @property
    def right(self) -> bool:
        """Whether the claim is right."""
        return self.verdict.right
