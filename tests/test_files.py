"""Writing a file: whole or not at all, and nothing left behind."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from symcircuits.work import files
from symcircuits.work.files import check_writable, make_folder, write_text


def test_a_new_file(tmp_path: Path) -> None:
    target = tmp_path / "out.tex"
    assert write_text(target, "α\nβ\n") == target
    assert target.read_bytes() == "α\nβ\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["out.tex"]
    assert write_text(str(target), "") == target  # a name as text, and an empty file
    assert target.read_bytes() == b""


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            write_text(tmp_path / f"{mask}", "x")
        finally:
            assert os.umask(before) == mask  # it was not changed
        assert stat.S_IMODE((tmp_path / f"{mask}").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_an_existing_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "out"
    target.write_text("old and longer")
    target.chmod(mode)
    write_text(target, "new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.parametrize("of_model", [False, True])
def test_a_read_only_file_is_not_replaced(tmp_path: Path, of_model: bool) -> None:
    """Of whatever user: a new file in its place would be as good as writing to it."""
    target, link = tmp_path / "out.tex", tmp_path / "link.tex"
    target.write_text("kept")
    target.chmod(0o444)
    link.symlink_to(target)
    for path in (target, link):
        with pytest.raises(PermissionError, match=r"cannot write .*: it is read-only; choose another name, or make it"):
            write_text(path, "new", of_model)
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("kept", 0o444)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.tex", "out.tex"]
    target.chmod(0o644)
    write_text(link, "new", of_model)
    assert target.read_text() == "new"


def test_a_name_that_is_as_long_as_names_may_be(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".tex")
    write_text(target, "x")
    assert target.read_text() == "x"


def test_a_name_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_text("out", "x")
    assert (tmp_path / "out").read_text() == "x"


def test_through_a_link_the_file_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real", tmp_path / "link"
    link.symlink_to(real)
    for text in ("made", "written over"):  # first the link leads to nothing yet
        write_text(link, text)
        assert link.is_symlink()
        assert real.read_text() == text
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["link", "real", "there"]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    before = os.stat(os.devnull)
    write_text(os.devnull, "x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert os.stat(os.devnull).st_ino == before.st_ino


CANNOT = [
    ("", "the name of the file to write is empty"),
    ("folder", "it is a folder"),
    ("missing/out", "missing does not exist"),
    ("file/out", "file is not a folder"),
    ("file/deep/out", "cannot write"),
    ("loop", "cannot write loop: the link leads back to itself"),
    ("n" * 300, "cannot write .*: File name too long"),
]


@pytest.mark.parametrize(("name", "message"), CANNOT)
@pytest.mark.parametrize("call", [write_text, lambda path, _: check_writable(path)], ids=["write", "check"])
def test_a_path_that_cannot_be_written(tmp_path: Path, monkeypatch: Any, call: Any, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("whole")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    if (call is not write_text) and name in ("loop", "n" * 300):
        return  # found out only by writing
    with pytest.raises(OSError, match=message):
        call(name, "new")
    assert (tmp_path / "file").read_text() == "whole"
    assert sorted(tmp_path.rglob("*")) == before


def test_check_writable_writes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    (tmp_path / "old").write_text("whole")
    check_writable(tmp_path / "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "whole"


@pytest.mark.parametrize("step", ["replace", "chmod"])
@pytest.mark.parametrize("there", [True, False])
def test_when_it_fails_the_old_file_is_whole_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, there: bool
) -> None:
    target = tmp_path / "out"
    if there:
        target.write_text("old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, step, fails)
    with pytest.raises(OSError, match=r"cannot write .*out: No space left on device"):
        write_text(target, "new")
    assert [p.name for p in tmp_path.iterdir()] == (["out"] if there else [])
    assert not there or target.read_text() == "old"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    (tmp_path / "out").write_text("old")

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(files.os, "replace", fails)
    with pytest.raises(fault):
        write_text(tmp_path / "out", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "old"


def test_text_that_no_file_can_hold_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(target, "x" * 100_000 + "\ud800")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_is_made_or_refused(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "file").write_text("here")
    with pytest.raises(FileExistsError, match="it is a file, not a folder"):
        make_folder(tmp_path / "file")
    with pytest.raises(OSError, match="cannot create the folder"):
        make_folder(tmp_path / "file" / "below")
