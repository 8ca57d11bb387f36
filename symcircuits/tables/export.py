"""Terms written to a file, in any number: streamed, resumable, complete or absent.

Rows go to ``FILE.part``; beside it ``FILE.part.json`` records what they are, how many bytes hold how many complete
rows, and a checksum. Bytes after these, left by an interruption, are cut off on resuming, so no row is lost or
doubled. When all rows are written the file gets its name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Unpack

from symcircuits.core.budgets import Budget, told
from symcircuits.core.expansion import Expansion, Limits
from symcircuits.core.notation import Notation
from symcircuits.core.text import amount, argument, keywords, many, need, setting
from symcircuits.tables.blocks import BLOCK, range_of
from symcircuits.tables.formats import DEFAULT, FORMATS, Rows, columns_of, rows_of
from symcircuits.tables.resumable import Part, readable_size
from symcircuits.work.files import check_writable, user_path
from symcircuits.work.pools import OutOfTime
from symcircuits.work.progress import OnProgress, told_by
from symcircuits.work.workers import WorkerPool

__all__ = ["Exported", "export_terms"]

MOST = 10**13  # rows
MEMORY: Final = 160 << 20  # bytes beyond the interpreter and its imports
FIXED: Final = 48 << 20  # of these, for tables and strings of paths
BUFFER: Final = 3 << 20  # bytes of rows made at once; larger buffers spend more on fresh pages than on the rows
KEPT: Final = 24 << 20
FEWEST = 64  # terms of a block
CHECKPOINT = 1.0  # seconds between two notes of the complete rows
SAMPLED = 17  # terms from which the size of a file is estimated


@dataclass(frozen=True, slots=True)
class Exported:
    """The outcome of an export: ``rows`` of ``total`` rows are written; ``stopped`` names the limit that ended it.

    >>> Exported(Path("terms.csv"), 1000, 4096, 51234, "max_terms (1,000)").complete
    False
    """

    path: Path
    rows: int
    total: int
    size: int
    stopped: str = ""

    @property
    def complete(self) -> bool:
        """Whether the file exists, with every row."""
        return not self.stopped

    def text(self) -> str:
        """The outcome, in a sentence."""
        if self.complete:
            return f"wrote {self.path}: {amount(self.rows, 'term')}, {readable_size(self.size)}"
        return (
            f"stopped at {told(self.stopped)}: {self.rows:,} of {amount(self.total, 'term')} written to "
            f"{self.path}.part; rerun with {setting('resume', True)} to continue"
        )


def export_terms(
    expansion: Expansion,
    path: str | Path,
    columns: str | Sequence[str] = DEFAULT,
    *,
    start: int = 0,
    stop: int | None = None,
    resume: bool = False,
    progress: OnProgress | bool = None,
    workers: Any = None,
    **limits: Unpack[Limits],
) -> Exported:
    """Write the terms ``start`` to ``stop`` to a ``.csv``, ``.jsonl``, ``.arrow`` or ``.parquet`` file, in order.

    ``columns``: one or more of number, order, orders, composition, sources, heads, label, text, latex. ``resume``
    continues an interrupted export (or starts it). ``limits``
    (:class:`~symcircuits.core.expansion.Limits`): rows in this call, memory, seconds; when one is reached, complete
    rows are kept and the result says so. ``workers`` (see
    :class:`~symcircuits.work.workers.WorkerPool`) make the bytes of ``.csv`` and ``.jsonl`` rows, and one writer writes
    them in order: the file is the same, and any number of workers can resume it. Each then has ``max_memory`` for
    itself, and a few blocks per worker wait to be written. A plain number has no effect: sending rows costs as much as
    making them. Raises OverflowError from 10^13 rows on, OSError if the disk
    is full or too small, ValueError on invalid arguments; before the work starts, if possible. Arrow and Parquet
    need pyarrow (extra ``arrow``).

    >>> import tempfile, symcircuits as sc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scores = sc.scores(sc.attention_only((1, 1)), "L1H0")
    ...     found = export_terms(scores, folder + "/terms.csv", ["number", "label"])
    ...     print(found.path.read_text(), end="")
    number,label
    0,"embed | embed"
    1,"embed | embed -> L0H0"
    2,"embed -> L0H0 | embed"
    3,"embed -> L0H0 | embed -> L0H0"
    """
    keywords("export", limits, Limits.__annotations__)
    memory = MEMORY if (given := limits.get("max_memory")) is None else given
    budget = Budget(max_terms=limits.get("max_terms"), max_seconds=limits.get("max_seconds"), max_memory=memory)
    need("export", expansion, Expansion)
    start, end = (chosen := range_of(expansion, start, stop)).start, chosen.stop
    total = end - start
    form, columns = _format(path), (columns,) if isinstance(columns, str) else tuple(columns)
    what = _described(expansion, form, columns, start, start + total)
    rows = rows_of(form, columns_of(expansion, columns), json.dumps(what))
    WorkerPool.check(workers)
    if workers is not None and not rows.is_the_file:
        raise ValueError(f"workers make the rows of .csv and .jsonl files; a .{form} file is written by one process")
    part = Part(user_path(path), what, total)
    try:
        with part.opened(resume, rows.header()) as state:
            left = total - state.rows
            planned = left if budget.max_terms is None else min(budget.max_terms, left)
            if planned >= MOST:
                raise OverflowError(
                    f"{many(planned)} terms are too many to write, one row per term: select some ({argument('order')}, "
                    f"{argument('through')}, ...), a range, or a limit"
                )
            width = _width(expansion, rows, start, start + total)
            room = int(width * planned)
            part.needs(room if rows.is_the_file else 2 * room + state.size)
            size = _block_size(budget.max_memory, width)
            job = _Job(expansion, rows, part, budget, told_by(progress) or _silent, total=total)
            with WorkerPool(None if isinstance(workers, int) else workers) as crew:
                made = job.made(crew, start, start + state.rows + planned, size, (form, columns))
                stopped = job.write(made) or job.finish()
    except KeyboardInterrupt as fault:
        written = f"{part.state.rows:,} of {amount(total, 'term')} written"
        fault.add_note(f"{written}; rerun with {setting('resume', True)} to continue")
        raise
    return Exported(user_path(path), part.state.rows, total, part.size, stopped)


def _silent(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def _formatted(task: tuple[Expansion, str, tuple[str, ...], int, int]) -> tuple[bytes, int]:
    """The bytes of the rows of a range of terms, made by a worker."""
    expansion, form, columns, start, stop = task
    block = next(expansion.blocks(stop - start, start=start, stop=stop))
    parts = _formatter(expansion, expansion.notation, form, columns).rows(block, len(block))
    return b"".join(content for content, _ in parts), len(block)


@lru_cache(maxsize=2)
def _formatter(expansion: Expansion, notation: Notation, form: str, columns: tuple[str, ...]) -> Rows:
    return rows_of(form, columns_of(expansion, columns), "")


class _Job:
    """The work itself: from blocks to bytes to the part, then to the file."""

    def __init__(self, expansion: Expansion, rows: Rows, part: Part, budget: Budget, progress: Any, total: int) -> None:
        self.expansion, self.rows, self.part = expansion, rows, part
        self.budget, self.progress, self.total = budget, progress, total

    def made(
        self, crew: WorkerPool, start: int, end: int, size: int, form: tuple[str, tuple[str, ...]]
    ) -> Iterator[tuple[bytes, int]]:
        """The bytes of the terms not yet written, and the number of these terms; by workers, or here."""
        if self.budget.max_seconds is not None:
            size = min(size, BLOCK >> 3)  # so the time is checked often
        at = start + self.part.state.rows
        if crew.alone:
            layers = sum(len(side.program) for side in self.expansion.sides)
            wide = size * max(1, min(BLOCK, BUFFER // max(layers, 1)) // size)
            for block in self.expansion.blocks(wide, start=at, stop=end):
                yield from self.rows.rows(block, size)
            return
        cuts = ((a, min(a + size, end)) for a in range(at, end, size))
        tasks = ((f"terms {a:,} to {b - 1:,}", (self.expansion, *form, a, b)) for a, b in cuts)
        yield from crew.results(_formatted, tasks)

    def write(self, made: Iterator[tuple[bytes, int]]) -> str:
        """Write the rows as they are made; returns the limit that ended it, if one did."""
        noted = time.monotonic()
        for content, count in made:
            if self.budget.ended():
                break
            self.part.add(content, count)
            self.budget.terms += count
            self.progress("writing terms", self.part.state.rows, self.total)
            if time.monotonic() - noted > CHECKPOINT:
                self.part.note()
                noted = time.monotonic()
        self.part.note()
        return "" if self.part.state.rows == self.total else self.budget.ended()

    def finish(self) -> str:
        """Give the file its name, assembling it from the part if it is not the part itself."""

        def note(done: int) -> None:
            self.progress("making the file", done, self.total)
            if self.budget.late:
                raise OutOfTime

        try:
            self.part.finish(lambda part, target: self.rows.assemble(part, target, note))
        except OutOfTime:
            return self.budget.ended()
        return ""


def _format(path: str | Path) -> str:
    check_writable(path)
    target = user_path(path)
    if target.exists() and not target.is_file():
        raise OSError(f"cannot write {target}: it is not a regular file, so an export cannot be renamed to it")
    form = target.suffix.lstrip(".").lower()
    if form not in FORMATS:
        *most, last = (f".{name}" for name in FORMATS)
        raise ValueError(f"{target.name}: the file name must end in {', '.join(most)} or {last}")
    return form


def _described(expansion: Expansion, form: str, columns: tuple[str, ...], start: int, stop: int) -> dict[str, Any]:
    """The description of an export, as plain data: everything that determines the contents of the file."""
    return {
        "schema": "symcircuits.terms/1", "architecture": _plain(expansion.architecture), "target": expansion.target,
        "conditions": sorted(map(str, expansion.clauses)), "notation": expansion.notation.json(),
        "format": form, "columns": list(columns), "start": start, "stop": stop,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Descriptions (dataclasses), sets and tuples as dicts and lists, recursively."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (frozenset, tuple)):
        return [_plain(one) for one in (sorted(value) if isinstance(value, frozenset) else value)]
    return value


def _width(expansion: Expansion, rows: Rows, start: int, stop: int) -> float:
    """Bytes of a row, from terms at equal distances; rounded up by a tenth."""
    count = min(SAMPLED, stop - start)
    if not count:
        return 0.0
    at = [start + (stop - start - 1) * i // max(count - 1, 1) for i in range(count)]
    return 1.1 * sum(rows.width(next(expansion.blocks(1, start=i))) for i in at) / count


def _block_size(max_memory: int, width: float) -> int:
    """The number of terms whose rows fit in memory: each as strings, joined, and encoded."""
    row = 4 * width + 400
    size = int((max_memory - FIXED) // row)
    if size < FEWEST:
        least = FIXED + int(FEWEST * row)
        raise ValueError(
            f"{argument('max_memory')} {readable_size(max_memory)} is not enough: this export takes at least "
            f"{readable_size(least)}"
        )
    bytes(KEPT)  # freed at once, untouched: from now on glibc's allocator keeps that much for the next block
    return min(size, BLOCK, max(int(BUFFER / max(width, 1)), FEWEST))
