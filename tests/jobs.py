"""Work that tests give to other processes, which import this file alone: the tests' own would take each a second."""

import os
import signal
import time
from pathlib import Path
from typing import Any


def dies_once(place: str) -> str:
    """The place, where it was begun before."""
    try:
        Path(place).touch(exist_ok=False)
    except FileExistsError:
        return place
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def dies_at_three(i: int) -> int:
    if i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def lacks(_: Any) -> None:
    raise ModuleNotFoundError("No module named 'symcircuits'", name="symcircuits")


def wrong(_: Any) -> None:
    raise ValueError("that is wrong")


def marks(task: tuple[float, str]) -> str:
    """Sleep, then leave a mark."""
    seconds, mark = task
    time.sleep(seconds)
    Path(mark).touch()
    return mark
