"""Headers of NumPy's ``.npy`` files, checked before they are believed: no array is made for more than is there."""

from __future__ import annotations

import math
import zipfile
import zlib
from typing import IO, Any, Final

import numpy as np

__all__ = ["check_archive", "check_header"]

_READERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_header(file: IO[bytes], size: int) -> None:
    """ValueError where a header promises more bytes than the ``size`` of the file leaves for them.

    What is no such file, or holds Python objects, is left to the reader. The file stands after the header then.
    """
    read = _READERS.get(np.lib.format.read_magic(file))
    if read is None:
        return
    shape, _, dtype = read(file)
    promised, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if not dtype.hasobject and promised > there:
        raise ValueError(f"its header promises {promised:,} bytes of numbers, not {there:,}")


def check_archive(packed: zipfile.ZipFile) -> None:
    """:func:`check_header` of every array in an ``.npz`` file; the ValueError names the one at fault.

    An array that cannot be unpacked is left to the reader.
    """
    for info in packed.infolist():
        if info.filename.endswith(".npy"):
            try:
                with packed.open(info) as file:
                    check_header(file, info.file_size)
            except ValueError as fault:
                raise ValueError(f"{info.filename.removesuffix('.npy')}: {fault}") from None
            except (zipfile.BadZipFile, zlib.error, EOFError):
                continue
