"""The files of a model: ``config.json`` and its weights, in one file or in shards; nothing in them is executed."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.loaders.arrayfile import check_archive
from symcircuits.loaders.pickled import TORCH_FILES, read_torch
from symcircuits.loaders.stored import Stored
from symcircuits.loaders.strictjson import strict_json
from symcircuits.loaders.tensorfile import check_memory, mapped, open_safetensors, read_safetensors
from symcircuits.work.memory import free_memory, gigabytes

__all__ = [
    "Stored",
    "announced",
    "check_file",
    "files_of",
    "read_config",
    "read_model_files",
    "read_npz",
    "read_safetensors",
    "read_weights",
    "stamp_of",
]

WEIGHT_FILES = ("model.safetensors", "model.npz", "model.safetensors.index.json")
# Read only where none of the others is there: many folders hold the same weights twice.
OTHER_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "model.bin")
_INDEX = ".index.json"
_ENDINGS = (".safetensors", ".npz", ".pt", ".pth", ".bin", _INDEX)


def files_of(place: Path) -> list[Path]:
    """The files that a model may be read from: weights, and the config beside them."""
    folder = place if place.is_dir() else place.parent
    found = sorted(p for p in folder.iterdir() if p.name.endswith(_ENDINGS)) if place.is_dir() else [place]
    return [file for file in [*found, folder / "config.json"] if file.is_file()]


def stamp_of(place: Path) -> str:
    """Names, sizes and times of these files: another one where they may have changed."""
    return " ".join(f"{file.name}:{(at := file.stat()).st_size}:{at.st_mtime_ns}" for file in files_of(place))


def read_model_files(path: Path) -> tuple[Stored, dict[str, Any]]:
    """The weights and the config of a model: a folder that holds both, or the weight file beside its config.json.

    Raises ValueError that names the file and says what is wrong with it.
    """
    weights, config = _find(path)
    return read_weights(weights), read_config(config)


def announced(path: Path) -> str:
    """What reading a model takes, to be said before it starts; empty where its files are small, or no safetensors.

    Raises ValueError as :func:`read_model_files` does.
    """
    weights, _ = _find(path)
    index = read_config(weights).get("weight_map") if weights.name.endswith(_INDEX) else {"": weights.name}
    names = {n for n in index.values() if isinstance(n, str)} if isinstance(index, dict) else set()
    places = [weights.parent / name for name in names if Path(name).name == name and name.endswith(".safetensors")]
    files = [open_safetensors(place) for place in places if place.is_file()]
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
            found = _there(path, WEIGHT_FILES) or _there(path, OTHER_FILES)[:1]
            if not found:
                first, others = " or ".join(WEIGHT_FILES[:2]), ", ".join((*WEIGHT_FILES[2:], *OTHER_FILES))
                raise ValueError(f"{path}: there is no {first} in this folder (nor {others})")
            if len(found) > 1:
                raise ValueError(f"{path}: there are both {' and '.join(f.name for f in found)}; keep one of them")
            weights, folder = found[0], path
        else:
            weights, folder = path, path.parent
        for file in (weights, folder / "config.json"):
            check_file(file)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    return weights, folder / "config.json"


def _there(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists() or (folder / name).is_symlink()]


def check_file(file: Path) -> None:
    """ValueError where there is no file of that name."""
    if file.is_symlink() and not file.exists():
        raise ValueError(f"{file}: this link leads nowhere")
    if not file.exists():
        hint = "" if file.name != "config.json" else "; a model needs its config.json beside its weights"
        raise ValueError(f"{file}: there is no such file or folder{hint}")
    if not file.is_file():
        raise ValueError(f"{file}: this is no file")


def read_weights(path: Path) -> Stored:
    """The weights in a ``.safetensors`` or ``.npz`` file, of shards by their index, or (with torch) in a ``.pt`` file.

    ValueError on another kind of file, and on one without weights.
    """
    if path.name.endswith(_INDEX):
        return _read_shards(path)
    readers = {".safetensors": read_safetensors, ".npz": read_npz} | dict.fromkeys(TORCH_FILES, read_torch)
    if path.suffix not in readers:
        why = " (a pickle can run code, so none is read)" if path.suffix == ".pkl" else ""
        raise ValueError(f"{path}: weights are read from a .safetensors or .npz file, and this is neither{why}")
    stored = readers[path.suffix](path)
    if not stored.dtypes:
        raise ValueError(f"{path}: there are no weights at all")
    return stored


def _read_shards(index: Path) -> Stored:
    """The weights of all files that an index names, each in the one that it says."""
    shard_of = read_config(index).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(s, str) for s in shard_of.values()):
        raise ValueError(f"{index}: an index has a weight_map from the names of weights to the names of files")
    names = list(dict.fromkeys(shard_of.values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ValueError(f"{index}: {outside[0]!r} is no name of a file in this folder")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ValueError(f"{index}: {len(missing)} of its {len(names)} files are missing: {_listed(missing)}")
    paths = [index.parent / name for name in names]
    stays = False
    if all(path.suffix == ".safetensors" for path in paths):
        files = [open_safetensors(path) for path in paths]
        check_memory(files)
        stays = mapped(files)
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    lying = 0
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
    return Stored(weights, dtypes, lying)


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def read_config(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError when it is missing, not JSON, or not an object."""
    try:
        config = strict_json(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not JSON ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: a config is a JSON object with keys such as n_layers, not a {type(config).__name__}")
    return config


def _check_unpacked(path: Path, needed: int) -> None:
    """ValueError where what a file says it unpacks to is more than the memory that is free."""
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(f"{path}: it unpacks to {gigabytes(needed)}, and {gigabytes(free)} of memory are free")


def read_npz(path: Path) -> Stored:
    """The arrays of an ``.npz`` file; ValueError when it is damaged, of another kind, or needs pickle."""
    weights: dict[str, Array] = {}
    name = ""
    try:
        with path.open("rb") as file:  # np.load would leave a damaged file open
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError(f"{path}: this is a single array, not an .npz file of named arrays")
            with zipfile.ZipFile(path) as packed:
                _check_unpacked(path, sum(info.file_size for info in packed.infolist()))
                check_archive(packed)
            for name in arrays.files:
                array = arrays[name]
                if not isinstance(array, np.ndarray):
                    raise ValueError(f"{path}: {name} is no array")
                weights[name] = array
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if str(error).startswith(str(path)):
            raise
        if "pickle" in str(error):
            what = f"{name} needs pickle, which can run code" if name else "this is no .npz file, or it needs pickle"
            raise ValueError(f"{path}: {what}; it is not read") from error
        where = f" at {name}" if name else ""
        raise ValueError(f"{path}: this is not a whole .npz file, or it is damaged{where} ({error})") from error
    return Stored(weights, {name: array.dtype.name for name, array in weights.items()})
