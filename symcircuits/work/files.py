"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["check_writable", "make_folder", "write_bytes", "write_text"]


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError, in words, where :func:`write_text` cannot write: a folder, or no folder to write in.

    For a command to find out before its work rather than after it; nothing is written.
    """
    target = Path(path)
    if not os.fspath(path):
        raise FileNotFoundError("the name of the file to write is empty")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"cannot write {target}: it is a folder")
        if not target.parent.exists():
            raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist")
        if not target.parent.is_dir():
            raise NotADirectoryError(f"cannot write {target}: {target.parent} is no folder")
    except OSError as fault:
        if fault.strerror is None:
            raise
        raise OSError(f"cannot write {target}: {fault.strerror}") from None


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write text, in UTF-8, as :func:`write_bytes` writes."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write to a temporary name in the same folder, then rename: an existing file stays whole on failure.

    An existing file keeps its permissions; through a link the file it leads to is written. What is no file, such as
    ``/dev/stdout``, is written to as it is. Raises OSError, in words, where it cannot be written.
    """
    check_writable(path)
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(target)), content)
    except BrokenPipeError:
        raise
    except OSError as fault:
        raise OSError(f"cannot write {target}: {fault.strerror or fault}") from None
    return target


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made with those above it where it is not there; OSError, in words, where a file is in its place."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"cannot write to {folder}: it is a file, not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise OSError(f"cannot make the folder {folder}: {fault.strerror}") from None
    return folder


def _replace(target: Path, content: bytes) -> None:
    if target.is_symlink():
        raise OSError("the link leads in a circle")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
