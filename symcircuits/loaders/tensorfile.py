"""Reading safetensors files: the header is verified before use, weights are read one by one.

The file is mapped and every weight copied out of it, so reading needs the memory of the weights once, and a model
does not change with its file. Large files (over 1 GiB in all) stay mapped, and need no memory of their own: the
system reads what is used, and the file must not change while its model is in use. Source: the format's own
specification (an eight-byte length, a JSON header, bytes without holes or overlaps).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.text import amount
from symcircuits.loaders.stored import Stored
from symcircuits.loaders.strictjson import strict_json
from symcircuits.work.memory import free_memory, gigabytes

__all__ = ["TensorFile", "check_memory", "mapped", "open_safetensors", "read_safetensors"]

MAX_HEADER = 100_000_000  # bytes, as in the format's own reader
MAX_AXES = 32
MAPPED = 2**30  # files with more bytes than this are mapped, not copied

# The number types by their names in the format; BF16, which NumPy lacks, is widened to float32.
_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int  # in bytes after the header
    end: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A safetensors file whose header was read and verified."""

    path: Path
    entries: Mapping[str, _Entry]
    start: int

    @property
    def bytes_held(self) -> int:
        """The memory that its weights take when read."""
        return sum((e.end - e.start) * (2 if e.dtype == "BF16" else 1) for e in self.entries.values())

    def bytes_copied(self, stays: bool) -> int:
        """The memory needed if the file stays mapped: for the weights that must be widened."""
        return (
            sum(2 * (e.end - e.start) for e in self.entries.values() if e.dtype == "BF16") if stays else self.bytes_held
        )

    def read(self, stays: bool = False) -> Stored:
        """All weights, copied out of the file one by one; or, if it stays mapped, as views of it."""
        weights: dict[str, Array] = {}
        dtypes: dict[str, str] = {}
        try:
            with self.path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for name, entry in self.entries.items():
                start, end = self.start + entry.start, self.start + entry.end
                where = memoryview(content)[start:end] if stays else content[start:end]
                weights[name], dtypes[name] = _array(entry, where)
            if not stays:
                content.close()
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        lying = sum(e.end - e.start for e in self.entries.values() if e.dtype != "BF16") if stays else 0
        return Stored(weights, dtypes, lying)


def read_safetensors(path: Path) -> Stored:
    """The tensors of a safetensors file; ``bfloat16`` is read exactly, as float32.

    Raises ValueError if the file is truncated, damaged, hostile or of another kind, on a number type that NumPy
    lacks, and if there is too little memory.
    """
    file = open_safetensors(path)
    check_memory([file])
    return file.read(mapped([file]))


def open_safetensors(path: Path) -> TensorFile:
    """Read and check the header; nothing else is read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(9)
            length = int.from_bytes(start[:8], "little")
            _check_start(path, start, length, size)
            raw = start[8:] + file.read(length - 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    entries = _entries(path, raw)
    _check_places(path, entries, size - 8 - length)
    return TensorFile(path, entries, 8 + length)


def _check_start(path: Path, start: bytes, length: int, size: int) -> None:
    if size < 8:
        raise ValueError(f"{path}: this is not a safetensors file: it has only {amount(size, 'byte')}")
    if start[8:9] != b"{":
        raise ValueError(f"{path}: this is not a safetensors file: it does not begin with a header")
    if length > size - 8:
        raise ValueError(
            f"{path}: the file is cut off or damaged: its header should have {length} bytes, and {size - 8} follow"
        )
    if length > MAX_HEADER:
        raise ValueError(f"{path}: its header has {length:,} bytes; the format allows {MAX_HEADER:,}")


def _entries(path: Path, raw: bytes) -> dict[str, _Entry]:
    try:
        header = strict_json(raw.decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError(f"it is a {type(header).__name__}")
        return {name: _entry(name, said) for name, said in header.items() if name != "__metadata__"}
    except ValueError as error:
        raise ValueError(f"{path}: this is not a safetensors file: its header cannot be read ({error})") from error


def _entry(name: str, said: Any) -> _Entry:
    def whole(values: Any) -> bool:
        return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)

    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise ValueError(f"{name!r} must have a dtype, a shape and data_offsets")
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or not whole(shape) or len(shape) > MAX_AXES:
        raise ValueError(f"{name!r} has no valid dtype and shape")
    if not whole(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{name!r} has data_offsets that are not a start and an end")
    return _Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _check_places(path: Path, entries: Mapping[str, _Entry], there: int) -> None:
    """Check that every weight has the bytes of its shape, without gaps or overlaps, and that all bytes exist."""
    place = 0
    for name, e in sorted(entries.items(), key=lambda pair: (pair[1].start, pair[1].end)):
        if e.start != place:
            what = "overlaps the one before" if e.start < place else f"leaves {e.start - place} bytes before it unused"
            raise ValueError(f"{path}: this is not a whole safetensors file, or it is damaged: {name} {what}")
        each = _bytes_of(path, name, e.dtype)
        if e.end - e.start != math.prod(e.shape) * each:
            raise ValueError(
                f"{path}: the header is damaged: {name} {list(e.shape)} of {e.dtype} takes {math.prod(e.shape) * each} "
                f"bytes, and the file gives it {e.end - e.start}"
            )
        place = e.end
    if there < place:
        raise ValueError(f"{path}: the file is cut off: its header promises {place} bytes of weights, not {there}")
    if there > place:
        raise ValueError(
            f"{path}: this is not a whole safetensors file, or it is damaged: "
            f"{amount(there - place, 'byte')} at its end belong to no weight"
        )


def _bytes_of(path: Path, name: str, dtype: str) -> int:
    if dtype in _NUMPY_TYPES:
        return np.dtype(_NUMPY_TYPES[dtype]).itemsize
    if dtype == "BF16":
        return 2
    known = "float64, float32, float16 or bfloat16"
    raise ValueError(f"{path}: {name} is stored as {dtype}, which is not supported; store it as {known}")


def _array(entry: _Entry, data: bytes | memoryview) -> tuple[Array, str]:
    if entry.dtype == "BF16":  # the upper half of a float32
        bits = np.frombuffer(data, dtype="<u2").astype("<u4")
        bits <<= 16
        return bits.view("<f4").astype(np.float32, copy=False).reshape(entry.shape), "bfloat16"
    stored = np.frombuffer(data, dtype=_NUMPY_TYPES[entry.dtype])
    native = stored.astype(stored.dtype.newbyteorder("="), copy=False)
    return native.reshape(entry.shape), stored.dtype.name


def mapped(files: Sequence[TensorFile]) -> bool:
    """Whether the weights of these files are mapped and not copied, because they are large."""
    return sum(file.bytes_held for file in files) > MAPPED


def check_memory(files: Sequence[TensorFile]) -> None:
    """Raise ValueError, with the memory that the weights need, if that is more than is free."""
    needed, free = sum(file.bytes_copied(mapped(files)) for file in files), free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{files[0].path}: reading these weights takes {gigabytes(needed)} of memory; {gigabytes(free)} are free"
        )
