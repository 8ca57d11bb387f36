"""Reading the files of a model: ``config.json`` and one of ``model.safetensors``, ``model.npz``.

Nothing is executed: a pickle, and an array that needs one, is refused.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.rings import Array

__all__ = ["Stored", "read_config", "read_model_files", "read_npz", "read_safetensors"]

WEIGHT_FILES = ("model.safetensors", "model.npz")

# The number types of safetensors by what its reader calls them; BF16 has no NumPy type and is read by hand.
_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Weights as they stand in a file, and the type of number each is stored in (``bfloat16`` is read as float32)."""

    weights: Mapping[str, Array]
    dtypes: Mapping[str, str]


def read_model_files(path: Path) -> tuple[Stored, dict[str, Any]]:
    """The weights and the config of a model: a folder that holds both, or the weight file beside its config.json.

    Raises ValueError that names the file and says what is wrong with it.
    """
    weights, config = _find(path)
    return read_weights(weights), read_config(config)


def _find(path: Path) -> tuple[Path, Path]:
    try:
        if path.is_dir():
            found = [path / name for name in WEIGHT_FILES if (path / name).exists() or (path / name).is_symlink()]
            wanted = " or ".join(WEIGHT_FILES)
            if not found:
                raise ValueError(f"{path}: there is no {wanted} in this folder")
            if len(found) > 1:
                raise ValueError(f"{path}: there are both {' and '.join(WEIGHT_FILES)}; keep one of them")
            weights, folder = found[0], path
        else:
            weights, folder = path, path.parent
        for file in (weights, folder / "config.json"):
            _check_file(file)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    return weights, folder / "config.json"


def _check_file(file: Path) -> None:
    if file.is_symlink() and not file.exists():
        raise ValueError(f"{file}: this link leads nowhere")
    if not file.exists():
        hint = "" if file.name != "config.json" else "; a model needs its config.json beside its weights"
        raise ValueError(f"{file}: there is no such file or folder{hint}")
    if not file.is_file():
        raise ValueError(f"{file}: this is no file")


def read_weights(path: Path) -> Stored:
    """The weights in a ``.safetensors`` or ``.npz`` file; ValueError on another kind of file."""
    readers = {".safetensors": read_safetensors, ".npz": read_npz}
    if path.suffix not in readers:
        pickled = path.suffix in (".pt", ".pth", ".pkl", ".bin")
        why = " (a pickle can run code, so none is read)" if pickled else ""
        raise ValueError(f"{path}: weights are read from a .safetensors or .npz file, and this is neither{why}")
    return readers[path.suffix](path)


def read_config(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError when it is missing, not JSON, or not an object."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: this is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: a config is a JSON object with keys such as n_layers, not a {type(config).__name__}")
    return config


def read_safetensors(path: Path) -> Stored:
    """The tensors of a safetensors file.

    ``bfloat16`` is read exactly, as float32. Raises ValueError when the file is truncated or of another kind, and
    on a type of number that NumPy does not have.
    """
    import safetensors

    deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    _check_header(path, raw)
    try:
        tensors = deserialize(raw)
    except safetensors.SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing: ")
        raise ValueError(f"{path}: this is not a whole safetensors file, or it is damaged ({reason})") from error
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for name, tensor in tensors:
        weights[name], dtypes[name] = _array(path, name, tensor)
    return Stored(weights, dtypes)


def _check_header(path: Path, raw: bytes) -> None:
    """Say in plain words what the reader of safetensors would say in terms of its format."""
    if len(raw) < 8:
        raise ValueError(f"{path}: this is no safetensors file: it has only {len(raw)} bytes")
    length = int.from_bytes(raw[:8], "little")
    if raw[8:9] != b"{":
        raise ValueError(f"{path}: this is no safetensors file: it does not begin with a header")
    if length > len(raw) - 8:
        raise ValueError(
            f"{path}: the file is cut off or damaged: its header should have {length} bytes, and {len(raw) - 8} follow"
        )
    try:
        header = json.loads(raw[8 : 8 + length])
        ends = [int(v["data_offsets"][1]) for k, v in header.items() if k != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: this is no safetensors file: its header cannot be read ({error})") from error
    expected, seen = max(ends, default=0), len(raw) - 8 - length
    if seen < expected:
        raise ValueError(f"{path}: the file is cut off: its header promises {expected} bytes of weights, not {seen}")


def _array(path: Path, name: str, tensor: Mapping[str, Any]) -> tuple[Array, str]:
    kind, shape, data = tensor["dtype"], tensor["shape"], tensor["data"]
    if kind == "BF16":  # the upper half of a float32
        bits = np.frombuffer(data, dtype="<u2").astype("<u4") << 16
        return bits.view("<f4").astype(np.float32).reshape(shape), "bfloat16"
    if kind not in _NUMPY_TYPES:
        known = "float64, float32, float16 or bfloat16"
        raise ValueError(f"{path}: {name} is stored as {kind}, which is not read; store it as {known}")
    stored = np.frombuffer(data, dtype=_NUMPY_TYPES[kind])
    return stored.astype(stored.dtype.newbyteorder("=")).reshape(shape), stored.dtype.name


def read_npz(path: Path) -> Stored:
    """The arrays of an ``.npz`` file; ValueError when it is damaged, of another kind, or needs pickle."""
    weights: dict[str, Array] = {}
    name = ""
    try:
        with path.open("rb") as file:  # np.load would leave a damaged file open
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError(f"{path}: this is a single array, not an .npz file of named arrays")
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
