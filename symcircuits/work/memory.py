"""How much memory there is, so that what needs more says so before it starts."""

from __future__ import annotations

from pathlib import Path

__all__ = ["free_memory", "gigabytes"]


def free_memory() -> int | None:
    """The memory in bytes that can be had without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def gigabytes(count: int) -> str:
    """A number of bytes, for people.

    >>> gigabytes(20_000_000_000)
    '20.0 GB'
    """
    return f"{count / 1e9:,.1f} GB"
