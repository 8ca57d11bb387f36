"""User-supplied files: read up to a size limit, written completely or not at all, and never over a model's files."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

__all__ = [
    "LIMITS",
    "check_apart",
    "check_input",
    "check_writable",
    "is_there",
    "make_folder",
    "read_input",
    "reading",
    "user_path",
    "write_bytes",
    "write_text",
]

# The maximum size in bytes of a file that is read whole, by kind; as Python objects JSON takes up to 40 times that.
LIMITS: Final[dict[str, int]] = {
    "a config": 2**24,
    "an index of shards": 2**26,
    "a list of labels": 2**26,
    "a tokenizer.json": 2**26,
    "the note of an export": 2**24,
}
_WEIGHTS: Final = (".safetensors", ".npz", ".npy", ".pt", ".pth", ".bin", ".index.json")
_BESIDE: Final = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model",
)  # fmt: skip


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path as the user wrote it, with ``~`` for the home folder; raises ValueError if that user is unknown.

    >>> user_path("~/models") == Path.home() / "models"
    True
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{path}: the home folder of this user is not known") from None


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether a file or folder has this name; raises OSError if this cannot be determined.

    From Python 3.14 on ``Path.exists`` returns False if a folder may not be read or a name is too long.

    >>> is_there("/"), is_there("/no/such/file")
    (True, False)
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError:  # a null character
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise
    return True


def check_input(path: str | os.PathLike[str], what: str) -> None:
    """Raise ValueError if this is not an ordinary file: a folder, or a device or pipe, which may never end."""
    file = Path(path)
    try:
        if not is_there(file):
            raise ValueError(f"{file}: there is no such file")
        if file.is_dir():
            raise ValueError(f"{file}: this is a folder, not {what}")
        if not file.is_file():
            raise ValueError(f"{file}: this is a device or a pipe, which may never end; {what} is read from a file")
    except OSError as fault:
        raise ValueError(f"{file}: cannot be read ({fault.strerror or fault})") from None


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to read from; ValueError names it if it cannot be opened, or if a read fails.

    >>> with reading("no/such/file") as file:
    ...     file.read()
    Traceback (most recent call last):
    ValueError: no/such/file: cannot be read (No such file or directory)
    """
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as fault:
        raise ValueError(f"{path}: cannot be read ({fault.strerror or fault})") from None


def read_input(path: str | os.PathLike[str], what: str) -> bytes:
    """The contents of an ordinary file, of a kind in :data:`LIMITS`; raises ValueError if it is larger than its limit.

    >>> read_input("/dev/zero", "a config")
    Traceback (most recent call last):
    ValueError: /dev/zero: this is a device or a pipe, which may never end; a config is read from a file
    """
    check_input(path, what)
    most = LIMITS[what]
    with reading(path) as file:
        size = max(os.fstat(file.fileno()).st_size, 0)
        content = b"" if size > most else file.read(most + 1)
    size = max(size, len(content))
    if size > most:
        raise ValueError(f"{path}: this file has {size:,} bytes; {what} has {most:,} at most")
    return content


# ------------------------------------------------------------------------------------------------------- writing
def check_apart(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raise OSError if the file to write is an input, or belongs to a model that is an input, by any name or link.

    ``inputs``: files, and folders (or weight files) of models.
    """
    target = Path(output)
    if not target.is_file():
        return
    for given in map(Path, inputs):
        folder = given if given.is_dir() else given.parent
        for file in (given, *_model_files(folder)):
            if file.is_file() and target.samefile(file):
                this = "this file" if file == target else f"it is {file}, which"
                raise OSError(f"cannot write {target}: {this} is read; choose another name")


def _model_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (f for f in folder.iterdir() if f.name.casefold() in _BESIDE or _holds_weights(f))


def _holds_weights(path: Path) -> bool:
    return path.name.casefold().endswith(_WEIGHTS)


def _check_no_model(target: Path) -> None:
    """Raise OSError if the output would take the name of a model's file: of weights, or of a file beside them."""
    for place in (target, Path(os.path.realpath(target))):
        if _holds_weights(place):
            raise OSError(f"cannot write {target}: {place.name} is a name of weights; choose another name")
        if place.name.casefold() in _BESIDE and any(map(_holds_weights, _model_files(place.parent))):
            raise OSError(f"cannot write {target}: {place.name} belongs to the model in {place.parent}")


def check_writable(path: str | os.PathLike[str], of_model: bool = False) -> None:
    """Raise OSError, in words, if :func:`write_text` could not write: a folder, a read-only file, no folder.

    Lets a command find out before its work rather than after it; nothing is written. Only functions that make models
    overwrite a file of a model (``of_model``).
    """
    target = user_path(path)
    if not os.fspath(path):
        raise FileNotFoundError("the name of the file to write is empty")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"cannot write {target}: it is a folder")
        if not target.parent.exists():
            raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist")
        if not target.parent.is_dir():
            raise NotADirectoryError(f"cannot write {target}: {target.parent} is not a folder")
        if target.is_file() and _protected(target):
            raise PermissionError(f"cannot write {target}: it is read-only; choose another name, or make it writable")
        if not of_model:
            _check_no_model(target)
    except OSError as fault:
        if fault.strerror is None:
            raise
        raise OSError(f"cannot write {target}: {fault.strerror}") from None


def _protected(target: Path) -> bool:
    """Whether nobody, or not this user, may write to a file; replacing it would circumvent that."""
    return not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK)


def write_text(path: str | os.PathLike[str], text: str, of_model: bool = False) -> Path:
    """Write text, in UTF-8, as :func:`write_bytes` writes."""
    return write_bytes(path, text.encode("utf-8"), of_model)


def write_bytes(path: str | os.PathLike[str], content: bytes, of_model: bool = False) -> Path:
    """Write to a temporary name in the same folder, then rename: an existing file stays whole on failure.

    An existing file keeps its permissions; a link is followed. Anything that is not a regular file, such as
    ``/dev/stdout``, is written to directly. Raises OSError, in words, if it cannot be written.
    """
    check_writable(path, of_model)
    target = user_path(path)
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
    """The folder, created with its parents if missing; raises OSError, in words, if a file is in its place."""
    folder = user_path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"cannot write to {folder}: it is a file, not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise OSError(f"cannot create the folder {folder}: {fault.strerror}") from None
    return folder


def _replace(target: Path, content: bytes) -> None:
    if target.is_symlink():
        raise OSError("the link leads back to itself")
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
