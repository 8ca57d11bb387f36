"""Blocks of terms as rows of a table: CSV, JSON lines, and Arrow record batches.

Each format appends bytes to a file, block by block, so a file cut off after any block can be
continued there. CSV is RFC 4180 with newlines: a header, strings of formulas and labels in quotes; a cell that a
spreadsheet would take for a formula is prefixed with an apostrophe (the other formats keep every name unchanged).
Arrow batches are in its stream format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from symcircuits.core.expansion import Expansion
from symcircuits.core.text import brief
from symcircuits.tables.blocks import COMPOSITIONS, TermBlock
from symcircuits.tables.paths import smallest_type
from symcircuits.tables.weaving import Field, Weaver, numbers, sliced, woven

__all__ = ["COLUMNS", "DEFAULT", "FORMATS", "Column", "Rows", "columns_of", "rows_of"]

COLUMNS: Final = {
    "number": "the number of the term in its expansion, from 0",
    "order": "the number of heads on its path",
    "orders": "for scores the orders of the query path and of the key path, two columns; else the order",
    "composition": "the composition type: none or V; for scores none, Q, K or QK",
    "sources": "the source of the path; for scores two columns",
    "heads": "the head in each layer, -1 if skipped: one column per layer, for scores on each side",
    "label": "the path in words: embed -> L0H2 -> L1H0",
    "text": "the formula as text",
    "latex": "the formula in LaTeX",
}
DEFAULT: Final = ("number", "order", "composition", "label", "text")
PRINTED: Final = ("label", "text", "latex")
FORMATS: Final = ("csv", "jsonl", "arrow", "parquet")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``kind`` is ``integer``, ``word`` (never needs quotes) or ``string``.

    ``of``: what determines it in scores (see :class:`~symcircuits.tables.weaving.Field`).
    """

    name: str
    kind: str
    values: Callable[[TermBlock], Any]
    largest: int = 0
    of: str = "key"


def columns_of(expansion: Expansion, chosen: Sequence[str] = DEFAULT) -> list[Column]:
    """The columns of that name; raises ValueError on an unknown name.

    ``orders``, ``sources`` and ``heads`` (one per layer, -1 if skipped) are several columns; for scores their names
    start with ``query_`` and ``key_``.
    """
    for name in chosen:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
        if list(chosen).count(name) > 1:
            raise ValueError(f"the column {name} is given twice")
    if not chosen:
        raise ValueError(f"a table needs columns; choose from {', '.join(COLUMNS)}")
    found = [column for name in chosen for column in _columns(expansion, name)]
    if not found:
        raise ValueError(f"heads are one column per layer, and no layer comes before {expansion.target}: add a column")
    return found


def _columns(expansion: Expansion, name: str) -> Iterator[Column]:
    sides = ("query_", "key_") if len(expansion.sides) == 2 else ("",)
    if name == "number":
        yield Column(name, "integer", lambda b: b.numbers, expansion.count, "number")
    elif name == "order":
        yield Column(name, "integer", lambda b: b.order, 2 * expansion.architecture.n_layers)
    elif name == "composition":
        yield Column(name, "word", lambda b: list(map(COMPOSITIONS.__getitem__, b.composition.tolist())))
    elif name in PRINTED:
        method = {"label": "labels", "text": "texts", "latex": "latex"}[name]
        yield Column(name, "string", lambda b: getattr(b, method)(), of="both")
    else:
        for i, side in enumerate(sides):
            yield from _of_side(expansion, name, i, side)


def _of_side(expansion: Expansion, name: str, i: int, side: str) -> Iterator[Column]:
    of = "key" if i else "query"
    if name == "orders":
        yield Column(f"{side}order", "integer", lambda b: b.orders[i], expansion.architecture.n_layers, of)
    elif name == "sources":
        names = [s.name for s in expansion.sources]
        yield Column(f"{side}source", "string", lambda b: list(map(names.__getitem__, b.sources[i].tolist())), of=of)
    else:
        for layer, n in enumerate(expansion.architecture.heads):
            if any(h.layer == layer for heads in expansion.sides[i].layer_heads for h in heads[:1]):
                yield Column(f"{side}L{layer}", "integer", lambda b, at=layer: b.heads[i][:, at], n, of)  # type: ignore[misc]


class Rows(Protocol):
    """How blocks become bytes, and bytes a file; ``is_the_file``: the bytes are the file."""

    is_the_file: bool

    def header(self) -> bytes:
        """The bytes at the start."""

    def rows(self, block: TermBlock, most: int) -> Iterator[tuple[bytes, int]]:
        """A block in parts, each with its number of rows; the strings of at most ``most`` rows are made at once."""

    def width(self, block: TermBlock) -> float:
        """Bytes of a row, on average."""

    def assemble(self, part: Path, target: Path, note: Callable[[int], None]) -> bool:
        """Assemble the file from the bytes, if it is not those bytes already; returns whether it did."""


def rows_of(form: str, columns: list[Column], about: str) -> Rows:
    """The format of that name; ``about`` goes to the metadata of Arrow and Parquet files.

    Raises ValueError on an unknown format, or if pyarrow is needed and not installed.
    """
    if form == "csv":
        return _Csv(columns)
    if form == "jsonl":
        return _JsonLines(columns)
    if form in FORMATS:
        return _Arrow(columns, about, form)
    raise ValueError(f"there is no format {brief(form)}; the formats are {', '.join(FORMATS)}")


# Characters that a spreadsheet reads as the start of a formula; the last four as wide characters.
_FORMULAS: Final = tuple(c.encode() for c in ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"))


def _given(expansion: Expansion) -> bool:
    """Whether its rows contain user-supplied names: no other field starts like a formula."""
    return bool(expansion.architecture.parts or expansion.architecture.readings or expansion.notation.symbols)


def _defused(cells: list[bytes]) -> list[bytes]:
    """The starts of cells, none of which a spreadsheet runs as a formula."""
    return [b"'" + cell if cell.startswith(_FORMULAS) else cell for cell in cells]


def _meetings(column: Column) -> Callable[[TermBlock], Any] | None:
    return (lambda block: block.meetings(column.name)) if column.name in PRINTED else None


def _doubled(text: str) -> str:
    return text.replace('"', '""')


def _escaped(text: str) -> str:
    from json.encoder import encode_basestring

    return encode_basestring(text)[1:-1]


class _Csv:
    is_the_file = True
    end = b"\n"
    runs = True  # spreadsheets may run its cells

    def __init__(self, columns: list[Column]) -> None:
        self.columns = columns
        parts: list[bytes | Field] = []
        before = b""
        for i, column in enumerate(columns):
            parts += [before + self.opens(i), Field(column.of, partial(self._cells, column), _meetings(column))]
            before = self.closes(i)
        self.parts = [*parts, before + self.end]
        self._weaver = Weaver(self.parts)

    def header(self) -> bytes:
        return (",".join(c.name for c in self.columns) + "\n").encode()

    def opens(self, i: int) -> bytes:
        """The bytes before a field."""
        return (b"," if i else b"") + (b'"' if self.columns[i].kind == "string" else b"")

    def closes(self, i: int) -> bytes:
        """The bytes after it."""
        return b'"' if self.columns[i].kind == "string" else b""

    def rows(self, block: TermBlock, most: int) -> Iterator[tuple[bytes, int]]:
        found = self._weaver.rows(block, most)
        return ((self._one_by_one(b), len(b)) for b in sliced(block, most)) if found is None else found

    def _one_by_one(self, block: TermBlock) -> bytes:
        if len(self.columns) == 1 and self.columns[0].name in PRINTED and not self._guarded(block):
            first, last = self.opens(0), self.closes(0) + self.end
            return first + block.joined(self.columns[0].name, last + first, _ESCAPES[type(self)]) + last
        n, cells = len(block), list[list[bytes]]()
        for part in self.parts:
            cells += [[part] * n] if isinstance(part, bytes) else part.cells(block)
        return woven(cells, n)

    def _guarded(self, block: TermBlock) -> bool:
        return self.runs and _given(block.expansion)

    def _cells(self, column: Column, block: TermBlock) -> list[list[bytes]]:
        """The fields of a column, or two lists that together make them."""
        cells = _pieces(column, block, _ESCAPES[type(self)])
        if column.kind == "string" and self._guarded(block):
            cells[0] = _defused(cells[0])
        return cells

    def width(self, block: TermBlock) -> float:
        return len(self._one_by_one(block)) / len(block)

    def assemble(self, part: Path, target: Path, note: Callable[[int], None]) -> bool:
        return False


class _JsonLines(_Csv):
    end = b"}\n"
    runs = False

    def header(self) -> bytes:
        return b""

    def opens(self, i: int) -> bytes:
        quote = "" if self.columns[i].kind == "integer" else '"'
        return f'{", " if i else "{"}"{self.columns[i].name}": {quote}'.encode()

    def closes(self, i: int) -> bytes:
        return b"" if self.columns[i].kind == "integer" else b'"'


_ESCAPES: Final[dict[type, Callable[[str], str]]] = {_Csv: _doubled, _JsonLines: _escaped}
_SMALL = 1000  # smaller integers are looked up


def _pieces(column: Column, block: TermBlock, escape: Callable[[str], str]) -> list[list[bytes]]:
    """The fields of a column, or two lists that together make them."""
    if column.name in PRINTED:
        return block.pieces(column.name, escape)
    if column.of == "number":
        return numbers(block.start, len(block))
    values = column.values(block)
    if column.kind != "integer":
        known = {s: escape(s).encode() for s in set(values)}
    elif column.largest < _SMALL:
        values = values.tolist()
        known = {n: b"%d" % n for n in set(values)}
    else:
        return ["\n".join(map(str, values.tolist())).encode().split(b"\n")]
    return [list(map(known.__getitem__, values))]


class _Arrow:
    """Record batches one after the other; at the end an Arrow file or a Parquet file is made from them."""

    is_the_file = False

    def __init__(self, columns: list[Column], about: str, form: str) -> None:
        try:
            import pyarrow as pa
        except ImportError as fault:
            raise ValueError(
                f"a {form} file needs pyarrow, which is not installed (pip install 'symcircuits[arrow]'); "
                f"csv and jsonl need nothing: {fault}"
            ) from None
        self.columns, self.form, self.pa = columns, form, pa
        self.pool = {"memory_pool": pa.system_memory_pool()}  # which returns free memory
        fields = [pa.field(c.name, self._type(c), nullable=False) for c in columns]
        self.schema = pa.schema(fields, metadata={"symcircuits": about})

    def _type(self, column: Column) -> Any:
        import numpy as np

        if column.kind != "integer":
            return self.pa.string()
        if column.largest > np.iinfo(np.int64).max:
            return self.pa.string()  # too large for any integer type
        return self.pa.int64() if column.name == "number" else self.pa.from_numpy_dtype(smallest_type(column.largest))

    def header(self) -> bytes:
        return bytes(self.schema.serialize())

    def rows(self, block: TermBlock, most: int) -> Iterator[tuple[bytes, int]]:
        return ((bytes(self._batch(b).serialize(**self.pool)), len(b)) for b in sliced(block, most))

    def width(self, block: TermBlock) -> float:
        return float(self._batch(block).nbytes / len(block))

    def _batch(self, block: TermBlock) -> Any:
        arrays = [self._array(c, c.values(block)) for c in self.columns]
        return self.pa.record_batch(arrays, schema=self.schema)

    def _array(self, column: Column, values: Any) -> Any:
        kind = self._type(column)
        if column.kind == "integer":
            values = (
                list(map(str, values.tolist())) if kind == self.pa.string() else values.astype(kind.to_pandas_dtype())
            )
        return self.pa.array(values, kind, **self.pool)

    def assemble(self, part: Path, target: Path, note: Callable[[int], None]) -> bool:
        done = 0
        with self.pa.OSFile(str(part)) as source, self._writer(target) as writer:
            for batch in self.pa.ipc.open_stream(source, **self.pool):
                writer.write_batch(batch)
                done += batch.num_rows
                note(done)
        return True

    def _writer(self, target: Path) -> Any:
        if self.form == "arrow":
            return self.pa.ipc.new_file(str(target), self.schema)
        import pyarrow.parquet as pq

        return pq.ParquetWriter(str(target), self.schema, compression="zstd", **self.pool)
