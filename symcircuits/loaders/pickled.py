"""Reading what ``torch.save`` wrote, by torch itself and without running code: only tensors are taken.

torch is optional (extra ``torch``). Versions before 2.6 run code in files that are made for it even so
(CVE-2025-32434), and are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.loaders.stored import Stored

__all__ = ["TORCH_FILES", "as_array", "read_torch"]

TORCH_FILES = (".pt", ".pth", ".bin")
_INSIDE = ("state_dict", "model_state_dict", "model")  # where a training script puts the weights
_SAFER = "weights in a .safetensors file need neither"


def read_torch(path: Path) -> Stored:
    """The tensors of a file of ``torch.save``; ValueError without torch, and where the file holds anything else."""
    torch = _torch(path)
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
    for key in _INSIDE:
        inner = found.get(key) if isinstance(found, Mapping) else None
        found = inner if isinstance(inner, Mapping) else found
    if not isinstance(found, Mapping):
        raise ValueError(f"{path}: this file holds a {type(found).__name__}, not named tensors")
    weights: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for name, tensor in found.items():
        if not hasattr(tensor, "detach"):
            raise ValueError(f"{path}: {name} is a {type(tensor).__name__}, not a tensor")
        weights[str(name)], dtypes[str(name)] = as_array(tensor)
    return Stored(weights, dtypes)


def as_array(tensor: Any) -> tuple[Array, str]:
    """A tensor (of torch, or what turns into an array) as an array, and the type it is stored in."""
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
            f"{path}: reading this file takes torch, which is not installed (pip install 'symcircuits[torch]'): "
            f"a pickle can run code, and torch can read the tensors alone; {_SAFER}"
        ) from error
    version = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if version is None or (int(version[1]), int(version[2])) < (2, 6):
        raise ValueError(
            f"{path}: torch {torch.__version__} is not used to read this file: before 2.6 weights_only=True can still "
            f"run code (CVE-2025-32434); {_SAFER}"
        )
    return torch
