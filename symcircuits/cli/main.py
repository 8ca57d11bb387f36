"""The command line ``symcircuits COMMAND``; the commands are those of :mod:`symcircuits.cli.parser`.

Exit codes: 0 success, 1 a check failed, 2 bad input or a missing optional tool, 3 a budget ended the work. Results go
to standard output, progress and notes to standard error. Each command imports the heavy modules that it needs.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from symcircuits.core.version import VERSION

__all__ = ["main"]


class _Closed(io.TextIOBase):
    """A closed standard output: writing to it is an error."""

    def write(self, text: str) -> int:
        raise OSError("cannot write to standard output: it is closed")


class Terminated(KeyboardInterrupt):
    """SIGTERM ends the work like Ctrl-C: complete results are kept, and no partial files are left."""


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises Terminated meanwhile, unless another handler is installed."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    taken = hasattr(signal, "SIGTERM") and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if taken:
        try:
            signal.signal(signal.SIGTERM, end)
        except ValueError:  # only the main thread may set a handler
            taken = False
    try:
        yield
    finally:
        if taken:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if argv is None and "_ARGCOMPLETE" in os.environ:
        from symcircuits.cli.completion import complete
        from symcircuits.cli.parser import commands_of, parser_of

        parser = parser_of()
        complete(parser, commands_of(parser))
    with _terminable():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    command = "symcircuits"
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:  # print(..., file=None) would write to standard output
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # characters that it cannot encode are escaped
    try:
        try:
            words = _joined(sys.argv[1:] if argv is None else argv)
            if words == ["--version"]:  # asked by scripts, and needs nothing else
                print(f"symcircuits {VERSION}")
                return 0
            from symcircuits.cli.output import check_paths
            from symcircuits.cli.parser import parser_of, spelling_of
            from symcircuits.core.text import called_by

            if words[:1] == ["help"]:  # of a command, or of all
                words = [word for word in words[1:] if word != "help"] + ["--help"]
            parser = parser_of(words[0] if words else "")
            options = parser.parse_args(words)
            command = f"symcircuits {options.command}".strip()
            with (
                called_by(spelling_of(parser, options.command), ("symcircuits", *words))
                if options.command
                else nullcontext()
            ):
                check_paths(options)
                code: int = options.run(options)
        finally:
            sys.stdout.flush()  # here, to detect a closed pipe
        return code
    except BrokenPipeError:
        _drop_output()  # quiet when the reader has gone
        return 141
    except KeyboardInterrupt as fault:
        ended = isinstance(fault, Terminated)
        print("terminated" if ended else "interrupted", file=sys.stderr)
        return 143 if ended else 130
    except (ValueError, OSError, OverflowError, TypeError, MemoryError) as fault:
        if os.environ.get("SYMCIRCUITS_DEBUG"):
            raise
        from symcircuits.core.names import visible

        said = "\n".join(map(visible, _said(fault).split("\n")))  # a name in it may have any character
        print(f"{command}: error: {said}", file=sys.stderr)
        if isinstance(fault, OSError):
            _drop_output()
        return 2
    except AssertionError as fault:  # a step of a derivation failed
        print(f"{command}: a check failed: {fault}", file=sys.stderr)
        return 1


def _said(fault: Exception) -> str:
    """The message of an error; for an error of the operating system the file and the reason, without its number."""
    if isinstance(fault, MemoryError):
        return f"not enough memory ({fault})" if str(fault) else "not enough memory"
    if not isinstance(fault, OSError) or fault.strerror is None:
        return str(fault)
    if fault.filename is not None:
        return f"{fault.filename}: {fault.strerror}"
    full = fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return f"cannot write to standard output: {fault.strerror}" if full else fault.strerror


def _drop_output() -> None:
    """Discard what cannot be written to standard output: Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _joined(argv: Sequence[str]) -> list[str]:
    """``--heads -1,3`` as ``--heads=-1,3``: argparse then reads a value, and the error is about the value."""
    out: list[str] = []
    for word in argv:
        if out and out[-1].startswith("--") and "=" not in out[-1] and word[:1] == "-" and word[1:2].isdigit():
            out[-1] += "=" + word
        else:
            out.append(word)
    return out
