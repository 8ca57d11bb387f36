"""A model, or its run on tokens, by the path and digest of its files, to send to workers instead of arrays."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from symcircuits.loaders import load
from symcircuits.loaders.files import files_of, model_place, stamp_of
from symcircuits.model import Model, Run
from symcircuits.work.files import is_there

__all__ = ["ModelFile", "RunFile", "code", "digests_of"]

_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The path of a model, the SHA-256 of its files, and that of the code of symcircuits that is to read it.

    >>> ModelFile.at("no/such/model")
    Traceback (most recent call last):
    ValueError: no/such/model: there is no such file or folder
    """

    path: str
    digest: str
    code: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> ModelFile:
        """For the files as they are now."""
        place = model_place(path)
        return cls(str(place.parent.resolve() / place.name), _digest(place), code())

    @classmethod
    def of(cls, model: Model) -> ModelFile:
        """For a model that is unchanged since it was read from its file; raises ValueError otherwise."""
        if not model.path:
            changed = ", without readouts and sources of your own" if model.architecture.attachments else ""
            raise ValueError(
                "workers in other processes read the model from its file: load it from the path of its folder (sc.load)"
                f"{changed}, or give a number of threads"
            )
        if stamp_of(Path(model.path)) != model.stamp:
            raise ValueError(f"{model.path}: this model has changed since it was loaded: load it again")
        return cls.at(model.path)

    def model(self) -> Model:
        """The model, read once in each process; raises OSError if its files have changed or cannot be read.

        Raises OSError if this is another version of symcircuits.
        """
        if self.code != code():
            raise OSError("a worker has another version of symcircuits than the sender of the work; install the same")
        with _LOCK:
            return _read(self.path, self.digest)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A model on tokens, by the model's path and digest; it is run once in each process."""

    model: ModelFile
    tokens: tuple[Any, ...]
    dtype: str | None

    @classmethod
    def of(cls, run: Run) -> RunFile:
        """What is sent instead of a run; raises ValueError if its model differs from that in its file."""
        file = ModelFile.of(run.model)
        if run.attended is not None:
            raise ValueError("a run with its own mask cannot be sent to workers in other processes: use threads")
        if not run.original:
            raise ValueError(
                "workers in other processes run the model themselves, and this run is a modified copy: give a "
                "number of threads"
            )
        return cls(file, _tuples(run.tokens.tolist()), run.dtype.name)

    def run(self) -> Run:
        """The run; raises as :meth:`ModelFile.model`."""
        return _run(self)


@lru_cache(maxsize=2)
def _run(file: RunFile) -> Run:
    return file.model.model().run(file.tokens, file.dtype)


def _tuples(tokens: Any) -> Any:
    return tuple(map(_tuples, tokens)) if isinstance(tokens, list) else tokens


@lru_cache(maxsize=1)
def code() -> str:
    """SHA-256 of the names and contents of this package's modules, which may differ within one version number."""
    folder, total = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).parts):
        total.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return total.hexdigest()


@lru_cache(maxsize=2)
def _read(path: str, digest: str) -> Model:
    place = Path(path)
    if not is_there(place):
        raise OSError(f"{place}: a worker does not find this model; it must lie at the same place for every worker")
    if _digest(place) != digest:
        raise OSError(f"{place}: the file has changed since the work started")
    return load(place)


def _digest(place: Path) -> str:
    """SHA-256 of the names and contents of the weights, and of the config beside them."""
    total = hashlib.sha256()
    for name, each in _digests(place).items():
        total.update(f"{name}\0{each}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _digests(place: Path) -> dict[str, str]:
    found = {}
    for file in files_of(place):
        with file.open("rb") as content:
            found[file.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def digests_of(model: Model) -> dict[str, str]:
    """SHA-256 of each file of a model, as sha256sum prints it; empty for a model that differs from its file."""
    place = Path(model.path)
    try:
        return dict(_digests_once(place, model.stamp)) if model.path and stamp_of(place) == model.stamp else {}
    except OSError:  # the files are gone
        return {}


@lru_cache(maxsize=8)
def _digests_once(place: Path, stamp: str) -> dict[str, str]:
    """Cached by the stamp of the files: further pages of a model do not read them again."""
    return _digests(place)
