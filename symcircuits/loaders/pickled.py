"""Reading files of ``torch.save``, by torch itself and without running code: only tensors are read.

torch is optional (extra ``torch``). Versions before 2.6 still run code in crafted files
(CVE-2025-32434), and are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.loaders.arrayfile import check_records, check_size
from symcircuits.loaders.stored import Stored

__all__ = ["TORCH_FILES", "as_array", "read_torch"]

TORCH_FILES = (".pt", ".pth", ".bin")
_INSIDE = ("state_dict", "model_state_dict", "model")  # where a training script puts the weights
_DEEPEST = 4  # levels of such names
_SAFER = "weights in a .safetensors file need neither"


def read_torch(path: Path) -> Stored:
    """The tensors of a file of ``torch.save``; ValueError without torch, and if the file holds anything else."""
    torch = _torch(path)
    notes = _checked(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # torch raises its own kinds, and those of pickle and zipfile
        reason = re.split(r"[\n.]", str(error).strip())[0]
        raise ValueError(
            f"{path}: torch reads no tensors from this file ({reason or type(error).__name__}); a file that needs more "
            f"than weights_only=True could run code, and is not read; {_SAFER}"
        ) from error
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    named = _named_tensors(path, found)
    _check_size(path, sum(t.numel() * t.element_size() for t in named.values() if hasattr(t, "numel")))
    for name, tensor in named.items():
        if not _is_tensor(tensor):
            raise ValueError(f"{path}: {name} is a {type(tensor).__name__}, not a tensor")
        if str(name) in weights:  # such as 1 and "1"
            raise ValueError(f"{path}: {name} appears twice")
        try:
            weights[str(name)], dtypes[str(name)] = as_array(tensor)
        except (TypeError, ValueError, RuntimeError) as error:  # sparse, quantized, without values
            raise ValueError(f"{path}: {name} cannot be read as an array ({error})") from error
    return Stored(weights, dtypes, notes=notes)


def _checked(path: Path) -> tuple[str, ...]:
    """Compare the checksums in a file, which torch ignores; returns notes, one if it has none."""
    try:
        _check_size(path, path.stat().st_size)
        if check_records(path):
            return ()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: this is not a whole file of torch.save, or it is damaged ({error})") from error
    return (f"{path.name} is of the old form of torch.save, which has no checksum: damage to its numbers is not seen",)


def _check_size(path: Path, needed: int) -> None:
    """Raise ValueError if tensors need more memory than the file has (by repeated numbers), or than is free."""
    try:
        check_size(needed, path.stat().st_size)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _named_tensors(path: Path, found: Any) -> Mapping[Any, Any]:
    """The tensors by name in the object that a training script saved; ValueError says what is there instead."""
    for _ in range(_DEEPEST):
        if not isinstance(found, Mapping):
            raise ValueError(f"{path}: this file holds a {type(found).__name__}, not named tensors")
        if not found or any(map(_is_tensor, found.values())):
            return found
        held = {key: inner for key, inner in found.items() if isinstance(inner, Mapping)}
        usual = [key for key in _INSIDE if key in held]
        inside = usual or [key for key, inner in held.items() if any(map(_is_tensor, inner.values()))]
        if len(inside) != 1:
            listed = ", ".join(f"{key!s:.40} (a {type(inner).__name__})" for key, inner in list(found.items())[:8])
            raise ValueError(
                f"{path}: several entries of this file may be the weights: {listed}; save the tensors by "
                "name alone (state_dict())"
            )
        found = found[inside[0]]
    raise ValueError(f"{path}: this file holds no tensors by name, {_DEEPEST} levels deep")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")


def as_array(tensor: Any) -> tuple[Array, str]:
    """A tensor (of torch, or any object that becomes an array) as an array, and the type it is stored in."""
    tensor = tensor.detach() if hasattr(tensor, "detach") else tensor
    tensor = tensor.cpu() if hasattr(tensor, "cpu") else tensor
    dtype = str(getattr(tensor, "dtype", "")).rpartition(".")[2]
    if dtype == "bfloat16":
        tensor = tensor.float() if hasattr(tensor, "float") else tensor
        return np.asarray(tensor).astype(np.float32), "bfloat16"
    array = np.asarray(tensor)
    return array, array.dtype.name


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"{path}: reading this file needs torch, which is not installed (pip install 'symcircuits[torch]'): "
            f"a pickle can run code, and torch can read the tensors alone; {_SAFER}"
        ) from error
    version = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if version is None or (int(version[1]), int(version[2])) < (2, 6):
        raise ValueError(
            f"{path}: torch {torch.__version__} is not used to read this file: before 2.6 weights_only=True can still "
            f"run code (CVE-2025-32434); {_SAFER}"
        )
    return torch
