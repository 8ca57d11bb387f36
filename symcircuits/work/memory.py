"""How much memory is available, so work that needs more can fail before it starts."""

from __future__ import annotations

from pathlib import Path

__all__ = ["free_memory", "gigabytes"]


def free_memory() -> int | None:
    """The memory in bytes that is available without swapping; None if the system does not report it."""
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def gigabytes(count: int) -> str:
    """A number of bytes, in a readable unit.

    >>> gigabytes(20_000_000_000)
    '20.0 GB'
    """
    return f"{count / 1e9:,.1f} GB"
