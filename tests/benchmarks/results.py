"""What the tables of the benchmarks hold, one dataclass for each kind of line, and how they are printed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

__all__ = [
    "Accuracy",
    "Growth",
    "Row",
    "Summing",
    "as_json",
    "beside",
    "digest",
    "from_json",
    "many",
    "markdown",
    "shown",
]


@dataclass(frozen=True, slots=True)
class Row:
    """Our CPU seconds beside a peer's, the figure that is asked for, and our memory beyond the inputs.

    The figure is peer / ours (``x``) unless ``unit`` says what else; ``limit`` is what is asked of it, at least, or
    with ``most`` at most. Without a figure the peer is not installed, and the line says so.
    """

    title: ClassVar[str] = "Speed: CPU seconds, medians; MB that ours needs beyond its inputs"
    columns: ClassVar[tuple[str, ...]] = ("what", "size", "peer", "peer s", "ours s", "ratio", "asked", "MB", "note")
    widths: ClassVar[tuple[int, ...]] = (38, 16, 38, 8, 8, 13, 14, 6, 0)
    about: ClassVar[int] = 2  # cells that say what a line is about

    what: str
    size: str
    peer: str = ""
    theirs: float | None = None
    ours: float | None = None
    figure: float | None = None
    unit: str = "x"
    limit: float | None = None
    most: bool = False
    memory: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether what is asked is reached; empty where nothing is asked."""
        if self.limit is None:
            return ""
        if self.figure is None:
            return "no peer"
        if self.most:
            return "ok" if self.figure <= self.limit else "above"
        return "ok" if self.figure >= self.limit else "below"

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        ratio = f"{short(self.figure)} {self.unit}".replace(" x", "x")
        if self.figure is None:
            ratio = "not installed" if self.peer else ""
        asked = "" if self.limit is None else f"{'<=' if self.most else '>='} {self.limit:,g}: {self.verdict}"
        numbers = (short(self.theirs), short(self.ours), ratio.strip(), asked, short(self.memory))
        return self.what, self.size, self.peer, *numbers, self.note


def beside(what: str, size: str, peer: str, theirs: float | None, ours: float, **more: Any) -> Row:
    """A line whose figure is how many times as long the peer takes; None: it is not installed."""
    return Row(what, size, peer, theirs, ours, None if theirs is None else theirs / ours, **more)


@dataclass(frozen=True, slots=True)
class Growth:
    """How a cost grows: the fitted exponent, the lowest and highest of single rounds, and that of counted steps."""

    title: ClassVar[str] = "Growth: CPU seconds ~ size^exponent, fitted by least squares on the logarithms"
    columns: ClassVar[tuple[str, ...]] = ("what", "with", "from s", "to s", "exponent", "single rounds", "predicted")
    widths: ClassVar[tuple[int, ...]] = (34, 44, 8, 8, 9, 15, 0)
    about: ClassVar[int] = 1  # cells that say what a line is about

    what: str
    over: str
    first: float
    last: float
    exponent: float
    low: float
    high: float
    predicted: float

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        single = f"{self.low:.2f} to {self.high:.2f}"
        seconds = short(self.first), short(self.last)
        return self.what, self.over, *seconds, f"{self.exponent:.2f}", single, f"{round(self.predicted, 2) + 0.0:.2f}"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Sums of terms against the forward pass: error, as a part of the largest entry, and bound over error."""

    title: ClassVar[str] = "Accuracy: sum of terms against the forward pass; error / largest entry, and bound / error"
    columns: ClassVar[tuple[str, ...]] = (
        "size", "of", "type", "weights x", "models", "error", "highest", "bound / error", "least", "asked",
    )  # fmt: skip
    widths: ClassVar[tuple[int, ...]] = (12, 8, 8, 9, 6, 8, 8, 13, 7, 0)
    about: ClassVar[int] = 2  # cells that say what a line is about

    size: str
    of: str
    dtype: str
    scale: float
    models: int
    error: float | None
    highest: float | None
    ratio: float | None
    least: float | None
    limit: float | None = None
    outside: int = 0  # models whose numbers leave the range of the type, which is refused

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        asked = ""
        if self.limit is not None and self.ratio is not None:
            asked = f"< {self.limit:g}: {'ok' if self.ratio < self.limit else 'above'}"
        if self.outside:
            asked = f"{asked} {self.outside} refused: out of range".strip()
        errors = short(self.error), short(self.highest), short(self.ratio), short(self.least)
        return self.size, self.of, self.dtype, f"{self.scale:g}", str(self.models), *errors, asked


@dataclass(frozen=True, slots=True)
class Summing:
    """One way to add the terms: its error against their exact sum and the forward pass, and its CPU seconds."""

    title: ClassVar[str] = "Ways to add: error / largest entry, against the exact sum of the terms and the forward pass"
    columns: ClassVar[tuple[str, ...]] = (
        "size",
        "type",
        "weights x",
        "added",
        "exact sum",
        "forward pass",
        "CPU s",
        "x plain",
    )
    widths: ClassVar[tuple[int, ...]] = (12, 8, 9, 36, 10, 12, 8, 0)
    about: ClassVar[int] = 3  # cells that say what a line is about

    size: str
    dtype: str
    scale: float
    way: str
    exact: float
    forward: float
    seconds: float
    plain: float  # times the CPU seconds of plain adding

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        errors = short(self.exact), short(self.forward)
        return self.size, self.dtype, f"{self.scale:g}", self.way, *errors, short(self.seconds), f"{self.plain:.1f}"


@dataclass(frozen=True, slots=True)
class Digest:
    """The lines of :class:`Accuracy` of one size, in short: errors at scale 1, the least bound / error at any."""

    title: ClassVar[str] = (
        "Accuracy: sum of terms against the forward pass, as a part of the largest entry, with weights of scale 1 "
        "(median); bound / error there (median; asked: below 100), and the least at any weight scale"
    )
    columns: ClassVar[tuple[str, ...]] = (
        "size", "of", "error, float64", "bound / error", "least", "error, float32", "bound / error", "least",
    )  # fmt: skip
    widths: ClassVar[tuple[int, ...]] = (12, 8, 14, 13, 7, 14, 13, 0)
    about: ClassVar[int] = 1

    size: str
    of: str
    double: tuple[float | None, ...]
    single: tuple[float | None, ...]

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        return self.size, self.of, *(short(x) for x in self.double + self.single)


def digest(rows: Iterable[Accuracy]) -> list[Digest]:
    """The lines in short."""
    found: dict[tuple[str, str], dict[str, list[Accuracy]]] = {}
    for row in rows:
        found.setdefault((row.size, row.of), {}).setdefault(row.dtype, []).append(row)
    return [Digest(size, of, _worst(by["float64"]), _worst(by["float32"])) for (size, of), by in found.items()]


def _worst(rows: list[Accuracy]) -> tuple[float | None, ...]:
    one = next(row for row in rows if row.scale == 1)
    return one.error, one.ratio, min((row.least for row in rows if row.least is not None), default=None)


KINDS = {kind.__name__: kind for kind in (Row, Growth, Accuracy, Summing)}


def as_json(row: Any) -> str:
    """A line of a table as a line of JSON, with its kind."""
    return json.dumps({"kind": type(row).__name__, **asdict(row)})


def from_json(text: str) -> Any:
    """The line again."""
    fields = json.loads(text)
    return KINDS[fields.pop("kind")](**fields)


def short(number: float | None) -> str:
    """Three digits, whole from 100 on; empty for None.

    >>> [short(x) for x in (None, 0.0, 1234.5, 5.255, 0.0123, 1.5e-15)]
    ['', '0', '1,234', '5.25', '0.0123', '1.5e-15']
    """
    if number is None:
        return ""
    if abs(number) >= 100:
        return f"{number:,.0f}" if abs(number) < 1e6 else f"{number:.1e}"
    return f"{number:.3g}" if abs(number) >= 1e-3 or not number else f"{number:.2g}"


def many(count: int) -> str:
    """A number of terms: whole up to thousand millions.

    >>> many(4826809), many(13**12)
    ('4,826,809', '2.3e13')
    """
    return f"{count:,}" if count < 1e9 else f"{count:.1e}".replace("e+", "e")


def shown(rows: Iterable[Any], to: Any = None) -> list[Any]:
    """Print lines as they come (to a stream), each kind under a head of its own; all of them."""
    found: list[Any] = []
    for row in rows:
        before = found[-1] if found and type(found[-1]) is type(row) else None
        if before is None:
            print(f"\n{row.title}\n{_line(row.columns, row.widths)}", file=to)
        print(_line(_told(row, before), row.widths), file=to, flush=True)
        found.append(row)
    return found


def _told(row: Any, before: Any) -> tuple[str, ...]:
    """The cells of a line; what the line before it is about too is not said again."""
    cells: tuple[str, ...] = row.cells()
    if before is not None and before.cells()[: row.about] == cells[: row.about]:
        cells = ("",) * row.about + cells[row.about :]
    return cells


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return " ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def markdown(rows: Iterable[Any]) -> str:
    """The lines as tables in Markdown, one a kind, each below its title."""
    kinds: dict[Any, list[Any]] = {}
    for row in rows:
        kinds.setdefault(type(row), []).append(row)
    return "\n".join(f"{kind.title}:\n\n{_table(found)}" for kind, found in kinds.items())


def _table(rows: list[Any]) -> str:
    columns = rows[0].columns
    lines = [columns, ("---",) * len(columns)]
    lines += [_told(row, before) for before, row in zip([None, *rows], rows, strict=False)]
    return "".join("| " + " | ".join(cell.strip().replace("|", r"\|") for cell in cells) + " |\n" for cells in lines)
