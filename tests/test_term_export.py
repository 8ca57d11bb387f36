"""Exports hold every term once, whatever happens on the way; what cannot be is refused before the work."""

import csv
import errno
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from strategies import cases, selections

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.core import budgets
from symcircuits.core.attachments import Part as sc_part
from symcircuits.core.attachments import Reading
from symcircuits.core.expansion import Expansion, expand
from symcircuits.tables import weaving
from symcircuits.tables.export import Exported
from symcircuits.tables.formats import COLUMNS, columns_of, rows_of
from symcircuits.tables.resumable import Part, readable_size
from symcircuits.zoo import path as model_path

ROOT = Path(__file__).parent.parent
export_module = importlib.import_module("symcircuits.tables.export")
FORMATS = ["csv", "jsonl", "arrow", "parquet"]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, each noted."""
    monkeypatch.setattr(export_module, "BLOCK", 100)
    monkeypatch.setattr(export_module, "CHECKPOINT", -1.0)


def scores() -> Expansion:
    return sc.scores(sc.transformer((3, 3, 2), positions="standard", biases=["b_V", "b_K"]), "L2H1")


def needs(form: str) -> None:
    if form in ("arrow", "parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: Arrow and Parquet are not tested")


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, by libraries that know nothing of us."""
    form = path.suffix[1:]
    if form == "csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [
                {k: int(v) if v.lstrip("-").isdigit() else v for k, v in row.items()} for row in csv.DictReader(file)
            ]
    if form == "jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if form == "arrow":
        import pyarrow as pa

        with pa.OSFile(str(path)) as source:
            rows: list[dict[str, Any]] = pa.ipc.open_file(source).read_all().to_pylist()
            return rows
    import pyarrow.parquet as pq

    rows = pq.read_table(str(path)).to_pylist()
    return rows


def expected(expansion: Expansion, number: int) -> dict[str, Any]:
    """A row, from the term itself."""
    term = expansion[number]
    row = {"number": number, "order": term.order, "composition": term.composition, "label": term.label}
    row |= {"text": term.text, "latex": term.latex()}
    for i, side in enumerate(("query_", "key_") if len(term.paths) == 2 else ("",)):
        row |= {f"{side}order": term.orders[i], f"{side}source": term.sources[i]}
        below = term.readout.head.layer if term.readout.head is not None else term.readout.architecture.n_layers
        for layer in range(below):
            if term.readout.architecture.heads[layer]:
                row[f"{side}L{layer}"] = next((h.number for h in term.heads[i] if h.layer == layer), -1)
    return row


@pytest.mark.parametrize("form", FORMATS)
def test_every_column_of_every_term(tmp_path_factory: pytest.TempPathFactory, form: str) -> None:
    needs(form)

    @given(st.data())
    def check(data: DataObject) -> None:
        arch, target = data.draw(cases(max_terms=150))
        expansion = sc.expand(arch, target)
        for chosen in data.draw(st.lists(selections(arch, target), max_size=2)):
            expansion = chosen.select(expansion)
        expansion = expansion.written(data.draw(st.sampled_from(["row", "paper"])), {"X0": 'x"0', "A": "α\\"})
        columns = [c for c in COLUMNS if c not in ("order", "orders")]
        columns += [data.draw(st.sampled_from(["order", "orders"]))]
        start = data.draw(st.integers(0, expansion.count))
        file = tmp_path_factory.mktemp("terms") / f"terms.{form}"
        found = expansion.export(file, columns, start=start)
        assert found.complete
        assert found.rows == expansion.count - start
        assert found.size == file.stat().st_size
        names = [c.name for c in columns_of(expansion, columns)]
        rows = [{n: row[n] for n in names} for row in (expected(expansion, i) for i in range(start, expansion.count))]
        assert read(file) == rows

    check()


def test_a_layer_without_heads_has_no_column() -> None:
    arch = sc.attention_only((0, 2, 0, 1))
    assert [c.name for c in columns_of(sc.logits(arch), ["heads"])] == ["L1", "L3"]
    assert [c.name for c in columns_of(sc.scores(arch, "L3H0"), ["heads"])] == ["query_L1", "key_L1"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("column", ["label", "text", "latex"])
@pytest.mark.sampled(5)
def test_one_column_alone(tmp_path: Path, form: str, column: str) -> None:
    """Written by another way, whole runs of terms at once; not where another column follows."""
    needs(form)
    for notation in ("row", "paper"):
        expansion = sc.scores(sc.transformer((2, 2, 1), "standard", ["b_V", "b_K"]), "L2H0").written(
            notation, {"A": 'a"\\b'}
        )
        wanted = [{column: expected(expansion, i)[column], "number": i} for i in range(expansion.count)]
        expansion.export(tmp_path / f"a.{form}", [column])
        assert read(tmp_path / f"a.{form}") == [{column: row[column]} for row in wanted]
        expansion.export(tmp_path / f"b.{form}", [column, "number"])
        assert read(tmp_path / f"b.{form}") == wanted


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_by_path_are_those_of_the_terms(tmp_path: Path, form: str) -> None:
    """In any blocks and parts, few or many key paths, whatever decides the columns."""

    @given(st.data())
    def check(data: DataObject) -> None:
        arch, target = data.draw(cases(max_terms=200).filter(lambda case: case[1].startswith("scores")))
        expansion = sc.expand(arch, target)
        for chosen in data.draw(st.lists(selections(arch, target), max_size=2)):
            expansion = chosen.select(expansion)
        expansion = expansion.written(data.draw(st.sampled_from(["row", "paper"])), {"X0": 'x"0', "A": "α\\"})
        chosen = data.draw(st.permutations([c for c in COLUMNS if c != "orders"]))[: data.draw(st.integers(1, 8))]
        start, size = data.draw(st.integers(0, expansion.count)), data.draw(st.integers(1, 300))
        columns = columns_of(expansion, ["number"] if chosen == ["heads"] else chosen)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(weaving, "FEW_KEYS", 1)
            patch.setattr(weaving, "TIMES", data.draw(st.sampled_from([1, 1000])))
            patch.setattr(weaving, "MOST_KEYS", data.draw(st.sampled_from([20, 1 << 15])))
            patch.setattr(weaving, "PART", data.draw(st.sampled_from([1, 300])))
            rows, content = rows_of(form, columns, ""), b""
            for block in expansion.blocks(size, start=start):
                parts = list(rows.rows(block, data.draw(st.integers(1, 40))))
                assert sum(n for _, n in parts) == len(block)
                content += b"".join(part for part, _ in parts)
        (tmp_path / f"a.{form}").write_bytes(rows.header() + content)
        wanted = [{c.name: expected(expansion, i)[c.name] for c in columns} for i in range(start, expansion.count)]
        assert read(tmp_path / f"a.{form}") == wanted

    check()


def test_where_a_query_path_meets_its_key_paths_in_two_ways(tmp_path: Path) -> None:
    """``b_K`` is read behind ``W_K``, so what stands between the two sides changes within the rows of a query path."""
    for arch in (sc.transformer((4, 4, 1), "shortformer"), sc.transformer((4, 4, 1), "standard", ["b_Q", "b_K"])):
        expansion = sc.scores(arch, "L2H0")
        rows = rows_of("csv", columns_of(expansion, ["number", "text", "order"]), "")
        (block,) = expansion.blocks()
        parts = list(rows.rows(block, 1 << 16))
        assert len(block.spans) > 1
        (tmp_path / "a.csv").write_bytes(rows.header() + b"".join(part for part, _ in parts))
        wanted = [{"number": i, "text": t.text, "order": t.order} for i, t in enumerate(expansion)]
        assert read(tmp_path / "a.csv") == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_beyond_int64(tmp_path: Path, form: str) -> None:
    needs(form)
    deep = sc.scores(sc.attention_only((12,) * 12), "L11H3")
    start = 10**24
    deep.export(tmp_path / f"a.{form}", ["number", "label"], start=start, stop=start + 3)
    rows = read(tmp_path / f"a.{form}")
    assert [int(r["number"]) for r in rows] == [start, start + 1, start + 2]
    assert [r["label"] for r in rows] == [deep[start + i].label for i in range(3)]


# --------------------------------------------------------------------------- interrupted, and taken up again
class Stop(BaseException):
    """What ends the work from outside."""


def interrupt_at(rows: int, fault: BaseException) -> Any:
    def step(what: str, done: int, total: int) -> None:
        if done >= rows and what == "writing terms":
            raise fault

    return step


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", [KeyboardInterrupt, Stop, MemoryError])
@pytest.mark.sampled(5)
def test_what_was_interrupted_is_taken_up(tmp_path: Path, form: str, fault: type[BaseException]) -> None:
    needs(form)
    expansion, file, whole = scores(), tmp_path / f"a.{form}", tmp_path / f"whole.{form}"
    expansion.export(whole)
    for rows in (1, 1000, 1500, 10**9):
        if rows == 10**9:
            assert expansion.export(file, resume=True).complete
            break
        with pytest.raises(fault) as seen:
            expansion.export(file, resume=True, progress=interrupt_at(rows, fault()))
        if fault is KeyboardInterrupt:
            assert "rerun with resume=True to continue" in seen.value.__notes__[0]
        assert not file.exists()
        kept = json.loads((tmp_path / f"a.{form}.part.json").read_text())
        assert kept["rows"] >= min(rows, 100)
    assert read(file) == read(whole)
    assert form in ("arrow", "parquet") or file.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([file.name, whole.name])


KILLED = """
import importlib, os, signal, sys
import symcircuits as sc
module = importlib.import_module("symcircuits.tables.export")
module.BLOCK, module.CHECKPOINT = 100, float(sys.argv[3])
def step(what, done, total):
    if done >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
scores = sc.scores(sc.transformer((3, 3, 2), positions="standard", biases=["b_V", "b_K"]), "L2H1")
scores.export(sys.argv[1], resume=True, progress=step)
"""


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("checkpoint", ["-1", "1000"], ids=["noted", "not noted"])
@pytest.mark.sampled(4)
def test_a_process_is_killed(tmp_path: Path, form: str, checkpoint: str) -> None:
    needs(form)
    expansion, file = scores(), tmp_path / f"a.{form}"
    command = [sys.executable, "-c", KILLED, str(file), "1200", checkpoint]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = json.loads((tmp_path / f"a.{form}.part.json").read_text())
    assert kept["rows"] == (1100 if checkpoint == "-1" else 0)
    assert (tmp_path / f"a.{form}.part").stat().st_size > kept["size"]
    expansion.export(file, resume=True)
    expansion.export(tmp_path / f"whole.{form}")
    assert read(file) == read(tmp_path / f"whole.{form}")
    assert form in ("arrow", "parquet") or file.read_bytes() == (tmp_path / f"whole.{form}").read_bytes()


def test_killed_when_all_is_written_but_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    with monkeypatch.context() as patch:
        patch.setattr(Part, "finish", lambda self, assemble: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            scores().export(file)
    assert not file.exists()
    assert scores().export(file, resume=True).rows == scores().count
    assert len(read(file)) == scores().count


def test_killed_between_the_name_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has its name, and the note that all is whole is still there: it is not in the way."""
    file, note = tmp_path / "a.csv", tmp_path / "a.csv.part.json"
    finish = Part.finish

    def kept(self: Part, assemble: Any) -> None:
        content = note.read_bytes()
        finish(self, assemble)
        note.write_bytes(content)

    for resume in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(Part, "finish", kept)
            scores().export(file)
        assert note.exists()
        assert scores().export(file, resume=resume).complete
        assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def left(folder: Path) -> Path:
    """An interrupted export of 1,000 rows."""
    file = folder / "a.csv"
    assert not scores().export(file, max_terms=1000).complete
    return file


def test_without_resume_nothing_is_overwritten(tmp_path: Path) -> None:
    file = left(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"an interrupted export of .*a.csv exists: continue it with resume=True, or remove",
    ):
        scores().export(file)


CORRUPT: dict[str, Any] = {
    "rows": lambda note: note | {"rows": 900},
    "bytes": lambda note: note | {"size": note["size"] - 10},
    "another check": lambda note: note | {"check": "0" * 64},
    "no check": lambda note: {k: v for k, v in note.items() if k != "check"},
    "no numbers": lambda note: note | {"crc": "x"},
    "a list": lambda note: [note],
}


@pytest.mark.parametrize("corrupt", CORRUPT.values(), ids=CORRUPT)
def test_a_corrupted_note_is_refused(tmp_path: Path, corrupt: Any) -> None:
    file = left(tmp_path)
    beside, part = tmp_path / "a.csv.part.json", tmp_path / "a.csv.part"
    before = part.read_bytes()
    beside.write_text(json.dumps(corrupt(json.loads(beside.read_text()))))
    changed = beside.read_text()
    with pytest.raises(ValueError, match=r"a.csv.part.json is not valid: .* remove it and the part to start anew"):
        scores().export(file, resume=True)
    assert (part.read_bytes(), beside.read_text()) == (before, changed)


def test_a_note_cut_off_is_refused(tmp_path: Path) -> None:
    file = left(tmp_path)
    beside = tmp_path / "a.csv.part.json"
    beside.write_text(beside.read_text()[:40])
    with pytest.raises(ValueError, match="it is not what an export writes"):
        scores().export(file, resume=True)


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_damaged_part_is_refused(tmp_path: Path, damage: str) -> None:
    file, part = left(tmp_path), tmp_path / "a.csv.part"
    content = part.read_bytes()
    part.write_bytes(content[:500] + b"X" + content[501:] if damage == "changed" else content[:-1])
    note = (tmp_path / "a.csv.part.json").read_text()
    with pytest.raises(ValueError, match=r"a.csv.part is damaged"):
        scores().export(file, resume=True)
    assert (tmp_path / "a.csv.part.json").read_text() == note


def test_what_stands_behind_the_whole_rows_is_cut_off(tmp_path: Path) -> None:
    file = left(tmp_path)
    with (tmp_path / "a.csv.part").open("ab") as part:
        part.write(b'5000,2,QK,"half a li')
    scores().export(file, resume=True)
    assert [r["number"] for r in read(file)] == list(range(scores().count))


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("gone", ["a.csv.part", "a.csv.part.json"])
def test_half_of_an_interrupted_export_is_begun_anew(tmp_path: Path, gone: str, resume: bool) -> None:
    """A part without a note was killed before the first, a note without a part is stale: both are new work."""
    file = left(tmp_path)
    (tmp_path / gone).unlink()
    if gone == "a.csv.part.json" and not resume:  # what may be another process's is not thrown away unasked
        with pytest.raises(ValueError, match=r"an interrupted export of .*a\.csv exists"):
            scores().export(file)
        return
    assert scores().export(file, resume=resume).complete
    assert [r["number"] for r in read(file)] == list(range(scores().count))
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


KILLED_AT_EVERY_LINE = """
import importlib, os, sys
from pathlib import Path
import symcircuits as sc
from symcircuits.tables import resumable as parts
module = importlib.import_module("symcircuits.tables.export")
module.BLOCK, module.CHECKPOINT = 80, -1.0
folder, form, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
scores = sc.scores(sc.attention_only((3, 2, 1)), "L2H0")
scores.export(folder / f"whole.{form}")
whole = (folder / f"whole.{form}").read_bytes()

def killed_at(line, file):
    seen = 0
    def step(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != parts.__file__:
            return None
        seen += event == "line"
        if seen >= line:
            os._exit(9)
        return step
    sys.settrace(step)
    scores.export(file, resume=True)
    os._exit(0)

done, line, states = False, 0, set()
while not done:
    line += every
    file = folder / str(line) / f"a.{form}"
    file.parent.mkdir()
    for _ in range(2):  # what was killed, taken up and killed at the same place, is taken up too
        child = os.fork()
        if not child:
            killed_at(line, file)
        done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if done:
            break
    states.add(tuple(sorted(p.name for p in file.parent.iterdir())))
    found = scores.export(file, resume=True)
    assert found.complete and file.read_bytes() == whole, line
    assert [p.name for p in file.parent.iterdir()] == [file.name], (line, list(file.parent.iterdir()))
print(line, *sorted({name for state in states for name in state}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("form", "every"), [("csv", 6), ("csv", 1), ("jsonl", 1), ("parquet", 1)])
@pytest.mark.sampled(1)
def test_killed_at_every_line_it_is_taken_up(tmp_path: Path, form: str, every: int) -> None:
    """At each line of the module that writes the part, twice: the file is that of an export that was left alone."""
    needs(form)
    command = [sys.executable, "-c", KILLED_AT_EVERY_LINE, str(tmp_path), form, str(every)]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # it forks
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=os.environ | one)
    assert done.returncode == 0, done.stderr
    lines, *names = done.stdout.split()
    assert int(lines) > 100
    assert {f"a.{form}", f"a.{form}.part", f"a.{form}.part.json", f"a.{form}.part.json.new"} <= {*names}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e, file: e.order(1, 2).export(file, resume=True), "conditions is"),
        (lambda e, file: e.written("paper").export(file, resume=True), "notation: name is 'row' there"),
        (lambda e, file: e.export(file, ["label"], resume=True), "columns is"),
        (lambda e, file: e.export(file, stop=1200, resume=True), "stop is 2256 there and 1200 here"),
        (
            lambda e, file: sc.scores(sc.attention_only((3, 3, 2)), "L2H1").export(file, resume=True),
            "architecture: positions is 'standard' there and None here",
        ),
    ],
)
def test_another_export_is_not_taken_up(tmp_path: Path, change: Any, words: str) -> None:
    file = left(tmp_path)
    with pytest.raises(ValueError, match=f"belongs to another export and cannot be continued: {words}"):
        change(scores(), file)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"

    def meddle(what: str, done: int, total: int) -> None:
        with pytest.raises(OSError, match=r"another process is writing .*a.csv.part"):
            scores().export(file, resume=True)

    assert scores().export(file, progress=meddle).complete
    assert len(read(file)) == scores().count


# ----------------------------------------------------------------------- attached readouts and sources
OWN_NAMES = ["=cmd|' /C calc'!A0", "+plus", "-x", "@SUM(1)", "feature 12", "\uff1d1", 'a"=', "probe"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("target", ["logits", "scores:L1H0", "readout:=read"])
def test_attached_sources_and_readouts_are_exported(tmp_path: Path, form: str, target: str) -> None:
    """Names stand there as they are; in CSV no cell begins like a formula, which a spreadsheet would run."""
    needs(form)
    read_at = Reading("=read", 2)
    arch = sc.attention_only((2, 2)).attached(read_at, *(sc_part(name, 1) for name in OWN_NAMES))
    expansion, file, whole = expand(arch, target), tmp_path / f"a.{form}", tmp_path / f"whole.{form}"
    columns = ["number", "sources", "label", "text", "latex"]
    expansion.export(whole, columns)
    assert not expansion.export(file, columns, max_terms=7).complete
    assert expansion.export(file, columns, resume=True).complete
    rows = read(file)
    assert rows == read(whole)
    block = next(expansion.blocks())
    exact = {"label": block.labels(), "text": block.texts(), "latex": block.latex()}
    exact |= {k: [expansion.sources[i].name for i in block.sources[n].tolist()] for n, k in enumerate(sources_of(rows))}
    for column, cells in exact.items():
        said = [row[column] for row in rows]
        begins = [cell[0] in "=+-@\t\r\uff1d" for cell in cells]
        assert not any(cell[0] in "=+-@\t\r\uff1d" for cell in said) or form != "csv"
        wanted = ["'" * (form == "csv" and risky) + cell for cell, risky in zip(cells, begins, strict=True)]
        assert said == wanted
    assert form != "csv" or "'=cmd" in file.read_text()


def sources_of(rows: list[dict[str, Any]]) -> list[str]:
    return [column for column in rows[0] if column.endswith("source")]


@pytest.mark.parametrize("column", ["label", "text", "latex"])
def test_one_column_of_names_is_defused_too(tmp_path: Path, column: str) -> None:
    arch = sc.attention_only((2,)).attached(sc_part("=1+1", 0), sc_part("other", 0))
    file = tmp_path / "a.csv"
    sc.logits(arch).export(file, column)
    cells = [row[column] for row in read(file)]
    assert len(cells) == 9
    assert not any(cell.startswith("=") for cell in cells)
    assert (column == "label") == any(cell.startswith("'=") for cell in cells)


# ------------------------------------------------------------------------------------------------- budgets
def test_max_terms_holds(tmp_path: Path) -> None:
    file, n = tmp_path / "a.csv", scores().count
    found = scores().export(file, max_terms=250)
    assert (found.rows, found.total, found.stopped, found.complete) == (250, n, "max_terms (250)", False)
    assert found.text().startswith(f"stopped at max_terms (250): 250 of {n:,} terms written to {file}.part")
    assert scores().export(file, max_terms=250, resume=True).rows == 500
    assert scores().export(file, max_terms=0, resume=True).rows == 500
    assert scores().export(file, max_terms=n, resume=True).complete
    assert [r["number"] for r in read(file)] == list(range(n))


def test_timeout_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a hundredth of a second with each look, whatever else the machine does."""
    file, times = tmp_path / "a.csv", count(0, 0.01)
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: next(times)))
    deep = sc.logits(sc.attention_only((12,) * 12)).order(3, 4)
    found = deep.export(file, max_seconds=0.5)
    assert found.stopped == "max_seconds (0.5)"
    assert 0 < found.rows < deep.count
    again = deep.export(file, resume=True, max_seconds=0)
    assert again.rows == found.rows


def test_timeout_while_a_parquet_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("parquet")
    file = tmp_path / "a.parquet"
    now = [0.0]
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def step(what: str, done: int, total: int) -> None:
        now[0] += what == "making the file"

    found = scores().export(file, progress=step, max_seconds=1)
    assert (found.stopped, found.rows) == ("max_seconds (1)", scores().count)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet.part", "a.parquet.part.json"]
    assert scores().export(file, resume=True).complete
    assert len(read(file)) == scores().count


MEASURED = """
import resource, sys
import symcircuits as sc
from symcircuits.tables import printing as bulk
from symcircuits.tables import export as term_export
from symcircuits.tables import formats as term_rows
from symcircuits import zoo
import numpy
if sys.argv[1].endswith("parquet"):
    import pyarrow.parquet
    pyarrow.array(["a"])  # imports pandas where that is there
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for expansion in (sc.scores(sc.attention_only((12,) * 12), "L11H0"), sc.scores(sc.attention_only((12,) * 4), "L3H0")):
    term_export.export_terms(expansion, sys.argv[1], start=10**6, stop=10**6 + 150000, max_memory=int(sys.argv[2]))
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.sampled(1)
def test_memory_holds(tmp_path: Path, form: str) -> None:
    needs(form)
    budget = 80_000_000
    command = [sys.executable, "-c", MEASURED, str(tmp_path / f"a.{form}"), str(budget)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < budget


# ------------------------------------------------------------------------------ refused before the work starts
DEEP = sc.logits(sc.attention_only((12,) * 12))


@pytest.mark.parametrize(
    ("expansion", "name", "options", "fault", "words"),
    [
        (DEEP, "a.csv", {}, OverflowError, "23,298,085,122,481 terms are too many to write"),
        (DEEP.order(5, 6), "a.csv", {}, OSError, r"cannot write .*a.csv: about [\d.]+ [GT]B are needed, and .* free"),
        (DEEP, "a.txt", {}, ValueError, "a.txt: the file name must end in .csv, .jsonl, .arrow or .parquet"),
        (DEEP, "no/a.csv", {}, OSError, "the folder .*no does not exist"),
        (DEEP, "a.csv", {"columns": ["name"]}, ValueError, "there is no column 'name'; the columns are number, order"),
        (DEEP, "a.csv", {"columns": ["text", "text"]}, ValueError, "the column text is given twice"),
        (DEEP, "a.csv", {"columns": []}, ValueError, "a table needs columns"),
        (sc.scores(sc.attention_only((1,)), "L0H0"), "a.csv", {"columns": "heads"}, ValueError, "no layer comes"),
        (DEEP, "a.csv", {"max_terms": -1}, ValueError, "max_terms must be a whole number, 0 or more, not -1"),
        (DEEP, "a.csv", {"max_seconds": -1}, ValueError, "max_seconds must be seconds"),
        (DEEP, "a.csv", {"max_seconds": float("nan")}, ValueError, "max_seconds must be seconds"),
        (DEEP, "a.csv", {"start": -1}, ValueError, "start must be a whole number"),
        (DEEP.order(1), "a.csv", {"start": 145}, ValueError, "start 145 and stop 144 are not a range of the 144 terms"),
        (DEEP, "a.csv", {"start": 5, "stop": 3}, ValueError, "start 5 and stop 3 are not a range of the 23,298,085"),
        (DEEP.order(1), "a.csv", {"stop": 145}, ValueError, "start 0 and stop 145 are not a range of the 144 terms"),
        (DEEP, "a.csv", {"columns": "lable"}, ValueError, "there is no column 'lable'"),
        (
            DEEP.order(1), "a.csv", {"max_memory": 10**6}, ValueError,
            "max_memory 1.0 MB is not enough: this export takes at least",
        ),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, expansion: Any, name: str, options: Any, fault: type[Exception], words: str) -> None:
    with pytest.raises(fault, match=words):
        expansion.export(tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_an_expansion_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="export takes an expansion"):
        export_module.export_terms("logits", tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_range_ends_where_the_terms_end_and_a_column_is_a_name(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    assert DEEP.order(0, 1).export(file, "number", start=143, stop=145).rows == 2
    assert file.read_text().split() == ["number", "143", "144"]
    assert DEEP.order(1).export(file, start=144).rows == 0


def test_many_terms_with_a_limit_are_not_refused(tmp_path: Path) -> None:
    assert DEEP.export(tmp_path / "a.csv", max_terms=300).rows == 300


def test_room_for_what_is_still_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    free = shutil._ntuple_diskusage(10**9, 10**9, 1_100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    with pytest.raises(OSError, match=r"about \d+\.\d kB are needed, and 1.1 MB are free, of which 1.0 MB must"):
        scores().export(file)
    assert list(tmp_path.iterdir()) == []
    assert scores().export(file, stop=100).complete


def test_the_room_that_a_file_takes_is_told_within_a_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    size = scores().export(file).path.stat().st_size
    free = shutil._ntuple_diskusage(10**9, 10**9, 1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    with pytest.raises(OSError, match="are needed") as refused:
        scores().export(tmp_path / "b.csv")
    told = re.search(r"about ([\d.]+) kB are needed", str(refused.value))
    assert told is not None
    assert size <= 1000 * float(told[1]) <= 1.25 * size


def test_folders_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OSError, match="it is a folder"):
        scores().export(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to("/dev/null")
    with pytest.raises(OSError, match="it is not a regular file"):
        scores().export(tmp_path / "b.csv")


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ValueError, match=r"needs pyarrow, which is not installed \(pip install 'symcircuits\[arrow\]'\)"
    ):
        scores().export(tmp_path / f"a.{form}")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------- faults of disks
def test_a_full_disk_is_said_and_what_is_whole_is_kept(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk that fills up."""
    file = tmp_path / "a.csv"
    program = f"""
import resource, importlib
import symcircuits as sc
importlib.import_module("symcircuits.tables.export").BLOCK = 100
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
scores = sc.scores(sc.transformer((3, 3, 2), positions="standard", biases=["b_V", "b_K"]), "L2H1")
scores.export({str(file)!r})
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"OSError: cannot write {file}.part: File too large; ")
    assert said.endswith("rows are written: free some space, then rerun with resume=True to continue")
    kept = json.loads((tmp_path / "a.csv.part.json").read_text())
    assert kept["rows"] > 0
    assert (tmp_path / "a.csv.part").stat().st_size == kept["size"] < 100_000
    assert scores().export(file, resume=True).complete
    assert [r["number"] for r in read(file)] == list(range(scores().count))


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(file: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"cannot write .*a.csv.part: No space left on device"):
        scores().export(tmp_path / "a.csv")


def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.csv"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link.csv").symlink_to(real)
    scores().export(tmp_path / "link.csv", ["label"])
    assert (tmp_path / "link.csv").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert len(read(real)) == scores().count


# ------------------------------------------------------------------------------------------- the command line
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "a.csv")
    asked = ["terms", "--heads", "3,3,2", "--target", "scores:L2H0", "--through", "L1H0,L1H2", "--composition", "K,QK"]
    asked += ["--order", "1,2,3", "--from-source", "embed", "--notation", "paper", "--symbol", "A=Omega", "-o", file]
    assert main([*asked, "--columns", "number,text"]) == 0
    said = capsys.readouterr()
    expansion = sc.scores(sc.attention_only((3, 3, 2)), "L2H0").through(["L1H0", "L1H2"]).order(1, 2, 3)
    expansion = expansion.where(["K", "QK"]).from_source("embed").written("paper", {"A": "Omega"})
    assert said.out.startswith(f"wrote {file}: {expansion.count} terms, ")
    assert [r["text"] for r in read(Path(file))] == [t.text for t in expansion]


def test_the_command_stops_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["terms", str(model_path()), "--target", "scores:L1H0", "-o", str(tmp_path / "a.jsonl"), "--json"]
    assert main([*asked, "--max-terms", "7"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "symcircuits.export/1"
    assert (said["complete"], said["rows"], said["total"], said["stopped"]) == (False, 7, 25, "max_terms (7)")
    assert main(asked) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    assert main([*asked, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True
    assert len(read(tmp_path / "a.jsonl")) == 25


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give --heads, e.g. --heads 3,3, or a MODEL"),
        (["--heads", "3", "MODEL"], "give either --heads or a MODEL, not both: --heads '3' and MODEL '"),
        (["MODEL", "--biases"], "--biases needs --heads"),
        (["--heads", "12,12,12,12,12,12,12,12,12,12,12,12"], "terms are too many to write"),
        (["--heads", "3", "--max-memory", "all"], "--max-memory: must be an amount of memory such as 200MB"),
        (["--heads", "3", "--max-memory", "1MB"], "is not enough: this export takes at least"),
        (["--heads", "3", "--through", "L1H0"], "there is no head L1H0"),
        (["--heads", "3", "--composition", "Q"], "unknown composition 'Q' of logits"),
        (["--heads", "3", "--order", "x"], "--order 'x': 'x' is not a whole number"),
    ],
)
def test_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    given = [str(model_path()) if o == "MODEL" else o for o in options]
    try:
        code: Any = main(["terms", *given, "-o", str(tmp_path / "a.csv")])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert code == 2
    assert said.err.startswith("symcircuits terms: error: ")
    assert words in said.err
    assert list(tmp_path.iterdir()) == []


def test_no_terms_are_a_file_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["terms", "--heads", "3", "--order", "5", "-o", str(tmp_path / "a.csv")]) == 0
    assert "the selection is empty" in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_text() == "number,order,composition,label,text\n"


@pytest.mark.parametrize(
    ("how", "code", "said_of_it", "more"),
    [(signal.SIGINT, 130, "interrupted", []), (signal.SIGTERM, 143, "terminated", []),
     (signal.SIGTERM, 143, "terminated", ["--workers", "1"])],
)  # fmt: skip
@pytest.mark.sampled(1)
def test_an_end_from_outside_leaves_what_can_be_taken_up(
    tmp_path: Path, how: signal.Signals, code: int, said_of_it: str, more: list[str]
) -> None:
    file, part = tmp_path / "a.csv", tmp_path / "a.csv.part"
    asked = [sys.executable, "-m", "symcircuits", "terms", "--heads", "12,12,12,12", "--target", "scores:L3H0"]
    asked += ["--columns", "number", "-o", str(file)]
    process = subprocess.Popen([*asked, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while (not part.exists() or part.stat().st_size < 10_000) and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert f"of 4,826,809 terms written; rerun with --resume to continue\n{said_of_it}\n" in said
    assert not file.exists()
    subprocess.run([*asked, "--resume"], cwd=ROOT, check=True, capture_output=True, timeout=300)
    with file.open() as lines:
        assert next(lines) == "number\n"
        numbers = 0
        for numbers, line in enumerate(lines, 1):
            assert int(line) == numbers - 1
    assert numbers == 4_826_809


def test_sizes_are_said() -> None:
    assert [readable_size(n) for n in (0, 999, 1000, 10**13, 10**22)] == [
        "0 bytes", "999 bytes", "1.0 kB", "10.0 TB", "10,000.0 EB",
    ]  # fmt: skip
    assert Exported(Path("a"), 1, 1, 1).text() == "wrote a: 1 term, 1 bytes"


# ------------------------------------------------------------------------------------------ sizes that are planned
def test_so_many_rows_are_refused_and_no_fewer(tmp_path: Path) -> None:
    """From 10^13 on; what is left of fewer is a matter of the disk."""
    with pytest.raises(OverflowError, match=r"^10,000,000,000,000 terms are too many to write"):
        DEEP.export(tmp_path / "a.csv", max_terms=10**13)
    for limits in ({"max_terms": 10**13 - 1}, {"stop": 10**13 - 1}):
        with pytest.raises(OSError, match=r"\d [TP]B are needed"):
            DEEP.export(tmp_path / "a.csv", **limits)
    assert list(tmp_path.iterdir()) == []


def test_the_width_of_rows_is_measured_at_even_distances(tmp_path: Path) -> None:
    """A tenth more than the mean: of all where they are few, else of some, the first and the last among them."""
    expansion = sc.logits(sc.attention_only((3, 3, 3)))
    rows = rows_of("csv", columns_of(expansion, ["label", "number"]), "{}")
    expansion.export(tmp_path / "a.csv", ["label", "number"])
    widths = [len(line) for line in (tmp_path / "a.csv").read_bytes().splitlines(keepends=True)[1:]]
    assert export_module._width(expansion, rows, 5, 5) == 0.0
    assert export_module._width(expansion, rows, 3, 12) == pytest.approx(1.1 * sum(widths[3:12]) / 9)
    assert widths[0] < widths[1]
    assert export_module._width(expansion, rows, 0, 2) == pytest.approx(1.1 * (widths[0] + widths[1]) / 2)
    assert export_module._width(expansion, rows, 63, 64) == pytest.approx(1.1 * widths[63])
    some = [3 + 60 * i // 16 for i in range(17)]
    assert some[-1] == 63
    assert export_module._width(expansion, rows, 3, 64) == pytest.approx(1.1 * sum(widths[i] for i in some) / 17)


def test_terms_of_a_block_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 at least, else what it would take is said; and no more than are made at once anyway."""
    monkeypatch.setattr(export_module, "BLOCK", 1 << 16)
    least = export_module.FIXED + 64 * (4 * 100 + 400)
    assert export_module._block_size(least, 100.0) == 64
    assert export_module._block_size(least + 64 * 800, 100.0) == 128
    assert export_module._block_size(least + 800 - 1, 100.0) == 64
    with pytest.raises(ValueError, match=f"at least {readable_size(least)}$"):
        export_module._block_size(least - 1, 100.0)
    assert export_module._block_size(1 << 40, 100.0) == (3 << 20) // 100
    assert export_module._block_size(1 << 40, 1.0) == export_module._block_size(1 << 40, 0.0) == 1 << 16
    assert export_module._block_size(1 << 40, float(1 << 30)) == 64
