"""A file written in parts that can be resumed: bytes in ``FILE.part``, a note of the complete rows beside them.

``FILE.part.json`` is written atomically. It holds a description of the file, the number of complete rows and of their
bytes, their checksum, and a checksum of itself. One process at a time works on a part. If one of the two is missing
(killed before the first note, or after the file got its name), the export starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from symcircuits.core.text import setting
from symcircuits.work.files import read_input

__all__ = ["Part", "State", "readable_size"]

_READ = 1 << 20
_SPARE = 1 << 20  # bytes of a disk left free


class State(NamedTuple):
    """``rows`` complete rows in ``size`` bytes with this CRC-32."""

    rows: int
    size: int
    crc: int


class Part:
    """The part of a file: created or resumed, appended to, noted, and finally given the file's name."""

    def __init__(self, path: Path, what: Mapping[str, Any], total: int) -> None:
        self.path, self.target = path, Path(os.path.realpath(path))
        self.total = total  # rows
        self.what = json.loads(json.dumps(what))  # as it will be read
        self.part = self.target.with_name(self.target.name + ".part")
        self.beside = self.target.with_name(self.target.name + ".part.json")
        self._half = self.beside.with_name(self.beside.name + ".new")  # only the owner of the part writes it
        self.state = State(0, 0, 0)
        self.size = 0
        self._file: Any = None

    @contextmanager
    def opened(self, resume: bool, header: bytes) -> Iterator[State]:
        """Open the part: a new one, or (``resume``) the existing one. Whatever happens, the complete rows are noted."""
        if not resume and self.part.exists():
            raise ValueError(
                f"an interrupted export of {self.path} exists: continue it with {setting('resume', True)}, or remove "
                f"{self.part.name} and {self.beside.name}"
            )
        kept = self._open()
        try:
            if kept is None:
                self.add(header, 0)
                self.note()
            else:
                self._take_up(kept)
        except BaseException:
            if kept is None:
                with suppress(OSError):
                    self._drop()
            self._close()
            raise
        try:
            yield self.state
        except BaseException:
            with suppress(OSError):
                self._save() if self.state.rows else self._drop()
            raise
        finally:
            self._close()

    def _open(self) -> State | None:
        """Open the part for this process alone; returns its complete rows, None if there is nothing."""
        with self._said():
            self._file = open(self.part, "r+b" if self.part.exists() else "x+b", buffering=0)  # noqa: SIM115
        try:
            self._lock()
            return self._kept() if self._noted() else None
        except BaseException:
            self._close()
            raise

    def _drop(self) -> None:
        """Remove a part without rows."""
        if self._file is not None:
            self.part.unlink(missing_ok=True)
            self._forget()

    def _forget(self) -> None:
        """Remove the note, complete or half written."""
        self.beside.unlink(missing_ok=True)
        self._half.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    # --------------------------------------------------------------------------------------------- resuming
    def _noted(self) -> bool:
        """Whether a note records the complete rows of the part; a part or a note without the other is ignored."""
        empty = not os.fstat(self._file.fileno()).st_size
        if not empty and self.beside.exists():
            return True
        with self._said():
            self._forget()
            self._cut()
        return False

    def _kept(self) -> State:
        """The complete rows by the note beside the part."""
        wrong = f"{self.beside} is not valid: "
        again = "; remove it and the part to start anew"
        try:
            found = json.loads(read_input(self.beside, "the note of an export"))
            said = found.pop("check")
            state = State(*(int(found[k]) for k in State._fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{wrong}it is not what an export writes{again}") from None
        if said != _digest(found):
            raise ValueError(f"{wrong}its checksum does not match, so it was changed{again}")
        if found["what"] != self.what:
            differs = _difference(found["what"], self.what)
            raise ValueError(f"{self.part} belongs to another export and cannot be continued: {differs}{again}")
        return state

    def _take_up(self, state: State) -> None:
        """Verify the bytes by their checksum; cut off bytes written after them."""
        crc, left = 0, state.size
        while left:
            read = self._file.read(min(left, _READ))
            if not read:
                break
            crc, left = zlib.crc32(read, crc), left - len(read)
        if left or crc != state.crc:
            raise ValueError(
                f"{self.part} is damaged: its {state.size:,} bytes are not those that were written; remove it and "
                f"{self.beside.name} to start anew"
            )
        self.state = state
        self._cut()

    def _cut(self) -> None:
        self._file.truncate(self.state.size)
        self._file.seek(self.state.size)

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not available on this system
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(self._file.fileno()), self.part.stat())
        except OSError:
            mine = False
        if not mine:  # or it was just finished, and the opened file is now the target itself
            raise OSError(f"another process is writing {self.part}")

    # ------------------------------------------------------------------------------------------------ adding
    def add(self, content: bytes, rows: int) -> None:
        """Append bytes of complete rows; raises OSError, in words, if the disk is full: earlier rows stay complete."""
        try:
            view = memoryview(content)
            while view:
                view = view[self._file.write(view) :]
        except OSError as fault:
            with suppress(OSError):
                self._cut()
            raise OSError(
                f"cannot write {self.part}: {fault.strerror or fault}; {self.state.rows:,} rows are written: free some "
                f"space, then rerun with {setting('resume', True)} to continue"
            ) from None
        crc = zlib.crc32(content, self.state.crc)
        self.state = State(self.state.rows + rows, self.state.size + len(content), crc)

    def note(self) -> None:
        """Record the rows complete by now, on disk: the record survives this process and the machine."""
        with self._said():
            self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        os.fsync(self._file.fileno())
        found = {"what": self.what, **self.state._asdict()}
        try:
            with self._half.open("w", encoding="utf-8") as note:
                note.write(json.dumps(found | {"check": _digest(found)}, indent=1) + "\n")
                note.flush()
                os.fsync(note.fileno())
            os.replace(self._half, self.beside)
        finally:
            self._half.unlink(missing_ok=True)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            if fault.strerror is None:
                raise
            raise OSError(f"cannot write {self.part}: {fault.strerror}") from None

    def needs(self, size: int) -> None:
        """Raise OSError if that many more bytes do not fit on the disk."""
        free = shutil.disk_usage(self.target.parent).free
        if size > free - _SPARE:
            raise OSError(
                f"cannot write {self.path}: about {readable_size(size)} are needed, and {readable_size(free)} are "
                f"free, of which {readable_size(_SPARE)} must stay free"
            )

    # ----------------------------------------------------------------------------------------------- the end
    def finish(self, assemble: Callable[[Path, Path], bool]) -> None:
        """Give the part the file's name, or the file that ``assemble`` makes from it."""
        made = self.target.with_name(self.target.name + ".part.new")
        try:
            with self._said():
                ready = made if assemble(self.part, made) else self.part
                self.size = ready.stat().st_size
                if self.target.exists():
                    os.chmod(ready, self.target.stat().st_mode & 0o7777)
                os.replace(ready, self.target)
                self._close()
                self.part.unlink(missing_ok=True)
                self._forget()
        finally:
            made.unlink(missing_ok=True)


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first difference between two descriptions, in words."""
    for key in new:
        if old.get(key) != new[key]:
            if isinstance(new[key], dict) and isinstance(old.get(key), dict):
                return f"{key}: {_difference(old[key], new[key])}"
            return f"{key} is {old.get(key)!r} there and {new[key]!r} here"
    return "it has fields that are unknown here"


def readable_size(n: int) -> str:
    """A number of bytes, in a readable unit.

    >>> readable_size(12), readable_size(2_300_000)
    ('12 bytes', '2.3 MB')
    """
    size = float(n)
    units = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:,.0f} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"
