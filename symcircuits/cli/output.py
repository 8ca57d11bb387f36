"""The output of commands: results as text or JSON, notes on standard error, files."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from symcircuits.core.names import visible

if TYPE_CHECKING:
    from symcircuits.verification.reference import Comparison

__all__ = [
    "PATHS",
    "STOPPED",
    "add_json",
    "check_paths",
    "fitted",
    "print_found",
    "print_json",
    "print_marked",
    "print_refused",
    "print_result",
    "rich_console",
    "width",
    "write",
]

STOPPED = 3  # the exit code where a budget ended the work


def add_json(parser: Any) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def print_json(data: Any) -> None:
    """One JSON object on standard output."""
    import json

    print(json.dumps(data, indent=1, allow_nan=False))


def width() -> int:
    """The width for text: that of the terminal, at least 40; 100 without a terminal."""
    if not sys.stdout.isatty():
        return 100
    import shutil

    return max(40, shutil.get_terminal_size((100, 24)).columns)


def fitted(line: str) -> str:
    """A line, wrapped if it does not fit the terminal."""
    if len(line) <= width():
        return line
    import textwrap

    return textwrap.fill(line, width(), subsequent_indent="  ", break_on_hyphens=False)


def print_found(found: Any, compared: Comparison | None, as_json: bool) -> None:
    """Print a report (or explanation), after the comparison with a reference."""
    if as_json:
        print_json(found.json() | ({} if compared is None else {"reference": compared.json()}))
        return
    if compared is not None:
        print_result(compared)
        print()
    print_result(found)


def print_result(found: Any, as_json: bool = False, **chosen: int) -> None:
    """Print a result as JSON, as tables with rich in a terminal if it is installed, else as plain text.

    ``chosen``: options of its text (``top=20``).
    """
    if as_json:
        print_json(found.json())
    elif (console := rich_console()) is None:
        print(found.text(width(), **chosen))
    else:
        from symcircuits.render.shown import parts_of
        from symcircuits.render.terminal import print_parts

        print_parts(parts_of(found, **chosen), console)


def print_marked(text: str, styles: Mapping[str, str]) -> None:
    """Text; in a terminal with rich, paragraphs that begin with a key of ``styles`` in that style."""
    console = rich_console()
    if console is None:
        print(text)
        return
    style = ""
    for line in text.split("\n"):
        if not line.startswith("  "):  # else it continues a paragraph
            style = next((name for start, name in styles.items() if line.startswith(start)), "")
        console.print(line, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def rich_console() -> Any:
    """A console of rich; None if standard output is not a terminal, or rich is not installed."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(width=width(), highlight=False)


def print_refused(compared: Comparison, as_json: bool) -> int:
    """Print the differences from the reference, which end the command: the model is another one."""
    print_result(compared, as_json)
    return 1


def write(path: str, text: str) -> None:
    """Write a file, completely or not at all, and print its name."""
    from symcircuits.work.files import write_text

    write_text(path, text)
    print(f"wrote {visible(str(path))}", file=sys.stderr)


# The arguments that are paths: files to write, and files to read.
_WRITTEN: Final = {"output": "-o", "html": "--html", "certificate": "--certificate"}
_READ: Final = {
    "model": "MODEL", "models": "MODEL", "reference": "--reference", "labels": "--labels", "tokenizer": "--tokenizer",
    "prompts": "--prompts", "file": "--file",
}  # fmt: skip
PATHS: Final = {*_WRITTEN, *_READ, "readout"}  # arguments that take the name of a file


def check_paths(options: Namespace) -> None:
    """ValueError or OSError, before any work, if a path is empty, or a file to write is also read or named twice."""
    given = {d: p for d in (*_WRITTEN, *_READ) if (p := getattr(options, d, None)) is not None}
    several: list[str] = given.pop("models", [])
    for dest, path in (*given.items(), *(("models", one) for one in several)):
        if not path:
            raise ValueError(f"{_WRITTEN.get(dest) or _READ[dest]} is empty: give the name of a file or folder")
    if options.command == "derive" and given.get("output") == "-":
        del given["output"]  # the only command that can print what it writes
    outputs = [(option, given[dest]) for dest, option in _WRITTEN.items() if dest in given]
    for option, path in outputs:
        if path == "-":
            raise ValueError(f"{option} - is not standard output here: give a file name (./- for a file called -)")
    if len(outputs) > 1:
        from itertools import combinations
        from pathlib import Path

        for (one, path), (other, same) in combinations(outputs, 2):
            if Path(path).resolve() == Path(same).resolve():
                raise ValueError(f"{other} and {one} are the same file, {path}: give two names")
    if outputs:
        from symcircuits.cli.attachments import attached_files
        from symcircuits.work.files import check_apart

        inputs = [*several, *(given[dest] for dest in _READ if dest in given)]
        for _, path in outputs:
            check_apart(path, [*inputs, *attached_files(options)])
