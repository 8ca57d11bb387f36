"""A file that grows by parts: what is whole is noted, held to its checksum, and kept whatever comes in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symcircuits.tables import resumable
from symcircuits.tables.resumable import Part, State, readable_size


def part(folder: Path, total: int = 9, **what: Any) -> Part:
    return Part(folder / "a.csv", {"of": "terms", **what}, total)


def whole(part_: Path, target: Path) -> bool:
    """The part itself is the file."""
    return False


def interrupted(made: Part, header: bytes, content: bytes = b"", rows: int = 0) -> None:
    """A fault after so many rows, which a part does not hide."""

    def work() -> None:
        with made.opened(False, header):
            made.add(content, rows)
            raise KeyError

    with pytest.raises(KeyError):
        work()


def test_what_was_noted_is_taken_up_and_what_was_not_is_cut_off(tmp_path: Path) -> None:
    with part(tmp_path).opened(False, b"head\n") as state:
        assert state == (0, 5, resumable.zlib.crc32(b"head\n"))
    first = part(tmp_path)
    with first.opened(True, b"other\n"):
        first.add(b"one\n", 1)
        first.note()
        first.add(b"two\nthree\n", 2)
        noted = json.loads(first.beside.read_text())
    assert (noted["rows"], noted["size"]) == (1, 9)
    assert first.part.read_bytes() == b"head\none\ntwo\nthree\n"
    again = part(tmp_path)
    with again.opened(True, b"") as state:
        assert state == again.state == State(1, 9, resumable.zlib.crc32(b"head\none\n"))
        again.add(b"2\n", 1)
        again.finish(whole)
    assert (tmp_path / "a.csv").read_bytes() == b"head\none\n2\n"
    assert again.size == 11
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_fault_leaves_what_is_whole_noted_and_nothing_where_no_row_is(tmp_path: Path) -> None:
    for rows in (0, 1):
        made = part(tmp_path)
        interrupted(made, b"head\n", b"row\n" * rows, rows)
        assert made.part.exists() == made.beside.exists() == (rows == 1)
    with part(tmp_path).opened(True, b"") as state:
        assert (state.rows, state.size) == (1, 9)


@pytest.mark.parametrize("place", [0, 3, 4, 7, 8, 9])
def test_every_byte_is_held_to_the_checksum(tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes are read at a time."""
    monkeypatch.setattr(resumable, "_READ", 4)
    made = part(tmp_path)
    interrupted(made, b"0123456789", rows=1)
    with part(tmp_path).opened(True, b""):
        pass
    content = bytearray(made.part.read_bytes())
    content[place] ^= 1
    made.part.write_bytes(content)
    with (
        pytest.raises(ValueError, match="its 10 bytes are not those that were written"),
        part(tmp_path).opened(True, b""),
    ):
        pass
    if place:  # of an empty part nothing is whole
        made.part.write_bytes(content[:place])
        with pytest.raises(ValueError, match="is damaged"), part(tmp_path).opened(True, b""):
            pass


@pytest.mark.parametrize("check", ["", "0" * 64, "f" * 64])
def test_a_note_with_another_checksum_is_refused(tmp_path: Path, check: str) -> None:
    """Whether it sorts before or after the right one."""
    made = part(tmp_path)
    interrupted(made, b"head\n", rows=1)
    made.beside.write_text(json.dumps(json.loads(made.beside.read_text()) | {"check": check}))
    with pytest.raises(ValueError, match="its checksum does not match"), part(tmp_path).opened(True, b""):
        pass


class Slow:
    """A file that writes at most three bytes at a time, and fails after so many."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, content: Any) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        done = self.file.write(content[: min(3, self.room)])
        self.room -= done
        return int(done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_what_is_written_piece_by_piece_is_written_whole_or_taken_back(tmp_path: Path) -> None:
    made = part(tmp_path)
    with made.opened(False, b"head\n"):
        made._file = Slow(made._file, 12)
        made.add(b"0123456\n", 1)
        with pytest.raises(OSError, match="No space left on device; 1 rows are written"):
            made.add(b"0123456\n", 1)
        assert made.state.size == 13
        assert made.part.read_bytes() == b"head\n0123456\n"


def test_room_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = part(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=resumable._SPARE + 10))
    made.needs(10)
    with pytest.raises(OSError, match=r"about 11 bytes are needed, and 1\.0 MB are free, of which 1\.0 MB must"):
        made.needs(11)


def test_the_first_thing_that_differs_is_named(tmp_path: Path) -> None:
    interrupted(part(tmp_path, a={"b": 1, "c": 2}), b"head\n", rows=1)
    for what, said in (
        ({"a": {"b": 1, "c": 3}}, "a: c is 2 there and 3 here"),
        ({"a": 5}, "a is {.*} there and 5 here"),
    ):
        with pytest.raises(ValueError, match=said), part(tmp_path, **what).opened(True, b""):
            pass
    with pytest.raises(ValueError, match="it has fields that are unknown here"), part(tmp_path).opened(True, b""):
        pass


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (10**6, "1.0 MB"),
        (2 * 10**9, "2.0 GB"), (10**18, "1.0 EB"), (10**21, "1,000.0 EB"), (5 * 10**24, "5,000,000.0 EB"),
    ],
)  # fmt: skip
def test_sizes_for_people(size: int, said: str) -> None:
    assert readable_size(size) == said
