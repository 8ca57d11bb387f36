"""NumPy's ``.npy`` and ``.npz`` files and other archives of arrays: everything they say is verified before use.

Memory: an array is allocated only if the file has the bytes for it. An archive unpacks to ``FREE_SIZE`` bytes, or to
``MOST_RATIO`` times its own size if that is more, and never to more than the free memory. The CRC-32 of every record
in an archive is compared, and names must be unique.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.work.memory import free_memory, gigabytes

__all__ = ["check_records", "check_size", "read_npy", "read_npz"]

FREE_SIZE: Final = 2**28
MOST_RATIO: Final = 32
MOST_HEADER: Final = 10_000  # bytes, as in NumPy
MOST_AXES: Final = 32
_FOLDER: Final = 0x10  # in the attributes of a record
_CHUNK: Final = 2**20
_NUMBERS: Final = re.compile(r"[<>|=]?[?biufcSU][0-9]{0,9}")
_LONG: Final = re.compile(r"(?<=[0-9])L(?=[,)])")  # how Python 2 marked a size
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OverflowError, struct.error)


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz`` file by name; raises ValueError if it is invalid, OSError if it cannot be read.

    Names, sizes and headers of all arrays are checked before the first is unpacked.
    """
    found: dict[str, Array] = {}
    with _said(), zipfile.ZipFile(path) as packed:
        members = {info.filename.removesuffix(".npy"): info for info in _checked(packed, path.stat().st_size)}
        for name, info in members.items():
            if not info.filename.endswith(".npy"):
                raise ValueError(f"{name} is not an array")
            with _said(name), packed.open(info) as file:
                _header(file, info.file_size, exact=True)
        for name, info in members.items():
            with _said(name), packed.open(info) as file:
                found[name] = read_npy(file, info.file_size, exact=True)
                file.read()  # reading to the end compares the CRC-32
    return found


def check_records(path: Path) -> bool:
    """Read every record of a zip archive and compare its CRC-32; returns False if the file is not an archive.

    Raises ValueError, naming the faulty record.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    with _said(), zipfile.ZipFile(path) as packed:
        for info in _checked(packed, path.stat().st_size):
            with _said(info.filename), packed.open(info) as file:
                while file.read(_CHUNK):
                    pass
    return True


def check_size(needed: int, size: int) -> None:
    """Raise ValueError if a file of ``size`` bytes unpacks to more than is allowed, or to more than is free."""
    if needed > max(FREE_SIZE, MOST_RATIO * size):
        raise ValueError(
            f"it unpacks to {needed:,} bytes, which is more than {MOST_RATIO} times its size ({size:,} bytes); "
            "store the arrays uncompressed"
        )
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(f"it unpacks to {gigabytes(needed)}, and {gigabytes(free)} of memory are free")


def read_npy(file: IO[bytes], size: int, exact: bool = False) -> Array:
    """The array in a ``.npy`` file of ``size`` bytes; ``exact``: nothing may follow it. ValueError if it is invalid."""
    shape, fortran, dtype = _header(file, size, exact)
    if not exact:
        check_size(math.prod(shape) * dtype.itemsize, size)
    try:
        array: Array = np.empty(math.prod(shape), dtype)
    except MemoryError:
        raise ValueError(f"there is too little memory for its {math.prod(shape) * dtype.itemsize:,} bytes") from None
    raw, done = array.view(np.uint8), 0
    while done < len(raw):
        read = file.read(min(_CHUNK, len(raw) - done))
        if not read:
            raise ValueError("its numbers are cut off")
        raw[done : done + len(read)] = np.frombuffer(read, np.uint8)
        done += len(read)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)


# ------------------------------------------------------------------------------------------------ headers
def _header(file: IO[bytes], size: int, exact: bool) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type in a header, once the file has that many bytes; the file is then at the data."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY":
        raise ValueError("it is not a .npy file")
    width = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}.get(start[6:8])
    if width is None:
        raise ValueError(f"it is of version {'.'.join(map(str, start[6:8]))} of the format, which is not supported")
    length = int.from_bytes(file.read(width), "little")
    text = file.read(length) if length <= MOST_HEADER else b""
    if len(text) != length:
        raise ValueError(f"its header should have {length:,} bytes (at most {MOST_HEADER:,}), and {len(text):,} follow")
    shape, fortran, dtype = _promised(text)
    promised, there = math.prod(shape) * dtype.itemsize, size - 8 - width - length
    if promised > there or (exact and promised < there):
        raise ValueError(f"its header promises {promised:,} bytes of numbers, not {there:,}")
    return shape, fortran, dtype


def _promised(text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        said = ast.literal_eval(_LONG.sub("", text.decode("latin-1").strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("its header is not a description of an array") from None
    if not isinstance(said, dict) or set(said) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header must have the keys descr, fortran_order and shape, and no others")
    shape, fortran, descr = said["shape"], said["fortran_order"], said["descr"]
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**62 for n in shape):
        raise ValueError("the shape in its header is not a tuple of sizes")
    if len(shape) > MOST_AXES or type(fortran) is not bool:
        raise ValueError(f"its header has more than {MOST_AXES} axes, or no order of them")
    if "O" in str(descr):
        raise ValueError("it holds Python objects, which need pickle")
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) and _NUMBERS.fullmatch(descr) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or not dtype.itemsize:
        raise ValueError(f"the type in its header is neither a number nor text: {str(descr)[:40]!r}")
    return shape, fortran, dtype


def _checked(packed: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    """The records of an archive, without unpacking any."""
    records, seen = packed.infolist(), set[str]()
    for info in records:
        if info.filename in seen:
            raise ValueError(f"{info.filename.removesuffix('.npy')} appears twice")
        seen.add(info.filename)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} uses an unsupported compression")
        if info.external_attr & _FOLDER:  # torch then reads nothing and leaves the memory uninitialised
            raise ValueError(f"{info.filename} is marked as a folder")
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise ValueError(f"{info.filename} has two sizes, {info.compress_size:,} and {info.file_size:,} bytes")
        if info.comment:  # no writer of arrays writes one; a damaged length would hide the records after it
            raise ValueError(f"{info.filename} has a comment")
    check_size(sum(info.file_size for info in records), size)
    return records


@contextmanager
def _said(name: str = "") -> Iterator[None]:
    """A context in which errors of the readers of archives become ValueErrors with the name of the record."""
    try:
        yield
    except (ValueError, *_BROKEN) as fault:
        where = f"{name}: " if name else ""
        raise ValueError(f"{where}{str(fault) or 'it is cut off'}") from None
