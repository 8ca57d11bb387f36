"""Compilers of proofs: a file is written in a folder of its own and compiled, and what is said of it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Said", "answer", "compiled", "in_short"]

_MOST = 600  # characters of what is wrong


class Said(NamedTuple):
    """What a compiler prints, what is wrong (empty if nothing is), and whether it was ended, having taken too long."""

    output: str
    fault: str
    late: bool = False


def compiled(
    command: Sequence[str], scratch: Path, name: str, text: str, seconds: float, folder: Path | None = None
) -> Said:
    """Write a file in ``scratch`` and compile it, in a folder (by default there); it is ended after some seconds."""
    (scratch / name).write_text(text, "utf-8")
    return answer([*command, os.fspath(scratch / name if folder else name)], folder or scratch, seconds)


def answer(command: Sequence[str], folder: Path, seconds: float) -> Said:
    """What a program prints; it is ended after some seconds, with all that it has started.

    >>> import sys
    >>> answer([sys.executable, "-c", "print(2 + 2)"], Path.cwd(), 60)
    Said(output='4\\n', fault='', late=False)
    """
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException as fault:
            _end(process)
            if not isinstance(fault, subprocess.TimeoutExpired):
                raise
            process.communicate()
            return Said("", f"it takes more than {seconds:g} seconds", late=True)
    said = in_short(errors if errors.strip() else output)
    return Said(output, "" if process.returncode == 0 else said or f"{command[0]} ended with {process.returncode}")


def in_short(fault: str) -> str:
    """What is wrong, on one line that is not too long."""
    return " ".join(fault.split())[:_MOST]


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and what it has started, which is in a session of its own."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
