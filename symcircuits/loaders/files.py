"""The files of a model: ``config.json`` and its weights, in one file or in shards; nothing in them is executed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.core.text import amount
from symcircuits.loaders import arrayfile
from symcircuits.loaders.pickled import TORCH_FILES, read_torch
from symcircuits.loaders.stored import Stored
from symcircuits.loaders.strictjson import strict_json
from symcircuits.loaders.tensorfile import check_memory, mapped, open_safetensors, read_safetensors
from symcircuits.work.files import is_there, read_input, user_path
from symcircuits.work.memory import free_memory, gigabytes

__all__ = [
    "Stored",
    "announced",
    "check_file",
    "files_of",
    "model_name",
    "model_place",
    "read_config",
    "read_model_files",
    "read_npz",
    "read_safetensors",
    "read_weights",
    "stamp_of",
]

WEIGHT_FILES = ("model.safetensors", "model.npz", "model.safetensors.index.json")
# Read only if there is none of the others: many folders hold the same weights twice.
OTHER_FILES = (
    "pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "model.bin", "model_final.pth",
)  # fmt: skip
_INDEX = ".index.json"
_SUFFIXES = (".safetensors", ".npz", ".json", *TORCH_FILES)


def model_place(path: str | os.PathLike[str]) -> Path:
    """The folder or weight file given by the user; ``~`` is the home folder.

    A folder of the Hugging Face cache (``models--x--y``) stands for the snapshot that its ``refs/main`` names, or its
    only one. Raises ValueError if the snapshot is ambiguous, or if there is no such file or folder.
    """
    place = user_path(path)
    try:
        if not (is_there(place) or place.is_symlink()):
            raise ValueError(f"{place}: there is no such file or folder{_on_the_hub(os.fspath(path))}")
        above = (place / "snapshots").is_dir() and not _there(place, (*WEIGHT_FILES, *OTHER_FILES))
        return _snapshot(place) if above else place
    except OSError as error:
        raise ValueError(f"{place}: cannot be read ({error.strerror or error})") from error


def _snapshot(place: Path) -> Path:
    folder, main, named = place / "snapshots", place / "refs" / "main", ""
    there = sorted(one.name for one in folder.iterdir() if one.is_dir())
    if main.is_file():
        with main.open("rb") as file:
            named = file.read(200).decode("utf-8", "replace").strip()
    if named in there or (not named and len(there) == 1):
        return folder / (named or there[0])
    held = f"{len(there)} snapshots ({_listed(there) or 'none'})"
    why = f"refs/main names {named!r}, which is not there" if named else "there is no refs/main that names one"
    raise ValueError(f"{place}: it holds {held}, and {why}; give the folder of one of them")


def model_name(place: Path) -> str:
    """The name of a model: that of its weight file, unless it is a standard name; then that of its folder."""
    usual = {name.partition(".")[0] for name in (*WEIGHT_FILES, *OTHER_FILES)}
    if place.is_file() and place.stem not in usual:
        return place.stem
    folder = (place.parent if place.is_file() else place).resolve()
    return folder.parent.parent.name.rpartition("--")[2] if folder.parent.name == "snapshots" else folder.name


def _on_the_hub(name: str) -> str:
    """How to save a model, if a name may be one of the Hugging Face hub and not a path."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) or Path(name).suffix in _SUFFIXES:
        return ""
    saved = f'AutoModelForCausalLM.from_pretrained("{name}").save_pretrained("{name}")'
    lines = f"from transformers import AutoModelForCausalLM; {saved}"
    return f"; a model of that name on the Hugging Face hub is saved here by: {lines}"


_ENDINGS = (".safetensors", ".npz", *TORCH_FILES, _INDEX)


def files_of(place: Path) -> list[Path]:
    """The files that a model may be read from: weights, and the config beside them."""
    folder = place if place.is_dir() else place.parent
    found = sorted(p for p in folder.iterdir() if p.name.endswith(_ENDINGS)) if place.is_dir() else [place]
    return [file for file in [*found, folder / "config.json"] if file.is_file()]


def stamp_of(place: Path) -> str:
    """Names, sizes and times of these files; the key changes if they may have changed."""
    return " ".join(f"{file.name}:{(at := file.stat()).st_size}:{at.st_mtime_ns}" for file in files_of(place))


def read_model_files(path: Path) -> tuple[Stored, dict[str, Any]]:
    """The weights and the config of a model: from a folder with both, or a weight file with config.json beside it.

    Raises ValueError, naming the file and the fault.
    """
    weights, config = _find(path)
    return read_weights(weights), read_config(config)


def announced(path: Path) -> str:
    """The cost of reading a model, to report before the start; empty if its files are small, or not safetensors.

    Raises ValueError like :func:`read_model_files`.
    """
    weights, _ = _find(path)
    index = read_config(weights).get("weight_map") if weights.name.endswith(_INDEX) else {"": weights.name}
    names = {n for n in index.values() if isinstance(n, str)} if isinstance(index, dict) else set()
    places = [weights.parent / name for name in names if Path(name).name == name and name.endswith(".safetensors")]
    files = [open_safetensors(place) for place in places if os.path.isfile(place)]
    if not files or not mapped(files):
        return ""
    size, copied, free = sum(f.bytes_held for f in files), sum(f.bytes_copied(True) for f in files), free_memory()
    there = f" ({gigabytes(free)} are free)" if free is not None else ""
    return (
        f"{gigabytes(size)} of weights: they stay in the file, reading them takes {gigabytes(copied)} of memory{there}"
    )


def _find(path: Path) -> tuple[Path, Path]:
    try:
        if path.is_dir():
            found = _there(path, WEIGHT_FILES) or _there(path, OTHER_FILES)[:1] or sorted(path.glob("*_final.pth"))
            if not found:
                first, others = " or ".join(WEIGHT_FILES[:2]), ", ".join((*WEIGHT_FILES[2:], *OTHER_FILES))
                raise ValueError(f"{path}: there is no {first} in this folder (nor {others})")
            if len(found) > 1:
                raise ValueError(f"{path}: there are both {' and '.join(f.name for f in found)}; keep one of them")
            weights, folder = found[0], path
        else:
            weights, folder = path, path.parent
            check_file(weights)
            _check_ending(weights)  # before its config.json is looked for
        for file in (weights, folder / "config.json"):
            check_file(file)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    return weights, folder / "config.json"


def _there(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists() or (folder / name).is_symlink()]


def check_file(file: Path) -> None:
    """Raise ValueError if there is no file of that name."""
    if file.is_symlink() and not is_there(file):
        raise ValueError(f"{file}: this link is broken: its target does not exist")
    if not is_there(file):
        hint = "" if file.name != "config.json" else "; a model needs its config.json next to its weights"
        raise ValueError(f"{file}: there is no such file or folder{hint}")
    if not file.is_file():
        raise ValueError(f"{file}: this is not a file")


def read_weights(path: Path, subject: str = "weights are", held: str = "weights") -> Stored:
    """The weights in a ``.safetensors`` or ``.npz`` file, in shards by their index, or (with torch) in a ``.pt`` file.

    Raises ValueError on another kind of file, and on one without weights; ``subject`` and ``held`` are for messages.
    """
    if path.name.endswith(_INDEX):
        return _read_shards(path)
    _check_ending(path, subject)
    readers = {".safetensors": read_safetensors, ".npz": read_npz} | dict.fromkeys(TORCH_FILES, read_torch)
    stored = readers[path.suffix](path)
    if not stored.dtypes:
        raise ValueError(f"{path}: there are no {held} at all")
    return stored


def _check_ending(path: Path, subject: str = "weights are") -> None:
    if path.name.endswith(_INDEX) or path.suffix in _ENDINGS:
        return
    _check_readable(path)
    why = " (a pickle can run code, so none is read)" if path.suffix == ".pkl" else ""
    endings = f"{', '.join(_ENDINGS[:-1])} or {_INDEX}"
    raise ValueError(f"{path}: {subject} read from a file that ends in {endings}, and this one does not{why}")


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_shards(index: Path) -> Stored:
    """The weights of all files that an index names, each in the file that the index gives."""
    shard_of = read_config(index).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(s, str) for s in shard_of.values()):
        raise ValueError(f"{index}: an index has a weight_map from the names of weights to the names of files")
    names = list(dict.fromkeys(shard_of.values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ValueError(f"{index}: {outside[0]!r:.200} is not a name of a file in this folder")
    indices = [name for name in names if name.casefold().endswith(_INDEX)]
    if indices:
        raise ValueError(f"{index}: {indices[0]!r:.200} is an index, but must be a file of weights")
    paths = [index.parent / name for name in names]
    missing = [path.name for path in paths if not os.path.isfile(path)]  # False also for an invalid file name
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"{index}: {len(missing)} of its {amount(len(names), 'file')} {verb} missing: {_listed(missing)}"
        )
    stays = False
    if all(path.suffix == ".safetensors" for path in paths):
        files = [open_safetensors(path) for path in paths]
        check_memory(files)
        stays = mapped(files)
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    lying, notes = 0, list[str]()
    for path in paths:
        stored = open_safetensors(path).read(True) if stays else read_weights(path)
        lying += stored.mapped
        expected = {name for name, shard in shard_of.items() if shard == path.name}
        for what, wrong in (("lacks", expected - stored.weights.keys()), ("holds", stored.weights.keys() - expected)):
            if wrong:
                said = "what the index says is there" if what == "lacks" else "what the index does not name"
                raise ValueError(f"{path}: this file {what} {said}: {_listed(sorted(wrong))}")
        weights |= stored.weights
        dtypes |= stored.dtypes
        notes += stored.notes
    return Stored(weights, dtypes, lying, tuple(notes))


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(name[:200] for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


def read_config(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises ValueError if it is missing, not JSON, or not an object."""
    try:
        what = "an index of shards" if path.name.endswith(_INDEX) else "a config"
        config = strict_json(read_input(path, what).decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not JSON ({error})") from error
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: a config is a JSON object with keys such as n_layers, not a {type(config).__name__}")
    return config


def read_npz(path: Path) -> Stored:
    """The arrays of an ``.npz`` file; raises ValueError if it is damaged, of another kind, or needs pickle."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        if start == b"\x93NUMPY":
            raise ValueError(f"{path}: this is a single array, not an .npz file of named arrays")
        if start[:2] not in (b"PK", b""):
            raise ValueError(f"{path}: this is not an .npz file, or it needs pickle; it is not read")
        weights = arrayfile.read_npz(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        if "pickle" in str(error):
            name = str(error).partition(": ")[0]
            raise ValueError(f"{path}: {name} needs pickle, which can run code; it is not read") from error
        raise ValueError(f"{path}: this is not a whole .npz file, or it is damaged ({error})") from error
    return Stored(weights, {name: array.dtype.name for name, array in weights.items()})
