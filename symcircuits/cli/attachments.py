"""Readouts and sources as options of the command line: ``--readout probe.npy@2``, ``--source NAME=FILE@LAYER``."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING, Any, Final

from symcircuits.cli.numbers import numbers
from symcircuits.core.text import amount
from symcircuits.work.files import is_there, user_path

if TYPE_CHECKING:
    from symcircuits.model import Attachment

__all__ = ["add_attachments", "attached_files", "attachments_of", "read_array"]

_PLACE: Final = re.compile(r"(?s)(.+?)(?:@([0-9]+)(?::([a-z]+))?)?")
_READOUT: Final = "write [NAME=]FILE[@LAYER[:mlp]], e.g. --readout probe.npy or --readout neuron=row.npy@1:mlp"
_SOURCE: Final = "write NAME=FILE@LAYER[:mlp|:added], e.g. --source 'feature 12=feature.npy@1'"


def add_attachments(parser: Any) -> None:
    """``--readout``, ``--normed``, ``--no-normed``, ``--final-norm`` and ``--source``."""
    group = parser.add_argument_group("readouts and sources")
    group.add_argument(
        "--readout", metavar="FILE", help="directions (.npy, [d_model] or [k, d_model]) that read the stream instead "
        "of the unembedding: [NAME=]FILE[@LAYER[:mlp]] (default: at the end)",
    )  # fmt: skip
    norms = group.add_mutually_exclusive_group()
    norms.add_argument(
        "--normed", action=argparse.BooleanOptionalAction,
        help="the readout reads the output of the norm there, or not; required if the model has norms",
    )  # fmt: skip
    norms.add_argument(
        "--final-norm", dest="normed", action="store_const", const="final",
        help="the readout reads the stream there through the final norm, as a logit lens does",
    )  # fmt: skip
    group.add_argument(
        "--source", action="append", default=[], metavar="NAME=FILE@LAYER",
        help="a part of the stream (.npy, [d_model] or [n, d_model]) as a separate source; @LAYER:mlp: of the output "
        "of that MLP, @LAYER:added: added to the model; may be repeated",
    )  # fmt: skip


def attachments_of(options: argparse.Namespace) -> tuple[Attachment | None, list[Attachment]]:
    """The readout, if given, and everything to attach to the model; a ValueError names the option at fault."""
    from symcircuits.model import readout, source

    given, found = list[Any](), None
    for text in options.source:
        name, sign, rest = text.partition("=")
        match = _PLACE.fullmatch(rest)
        if not sign or match is None or match[2] is None or match[3] not in (None, "stream", "mlp", "added"):
            raise ValueError(f"--source {text!r}: {_SOURCE}")
        array = _array_of("--source", text, match[1])
        given.append(source(name, array, numbers(match[2], "--source")[0], of=match[3] or "stream"))
    if options.readout is not None:
        name, sign, rest = options.readout.partition("=")
        match = _PLACE.fullmatch(rest if sign else name)
        if match is None or match[3] not in (None, "mlp", "stream"):
            raise ValueError(f"--readout {options.readout!r}: {_READOUT}")
        layer = None if match[2] is None else numbers(match[2], "--readout")[0]
        array, at = _array_of("--readout", options.readout, match[1]), match[3] or "stream"
        found = readout(array, name if sign else "probe", layer, normed=options.normed, at=at)
        given.append(found)
    elif options.normed is not None:
        raise ValueError("--normed, --no-normed and --final-norm have no effect without --readout FILE")
    return found, given


def attached_files(options: argparse.Namespace) -> list[str]:
    """The files that ``--readout`` and ``--source`` name."""
    given = [*getattr(options, "source", []), getattr(options, "readout", None) or ""]
    matches = [_PLACE.fullmatch(text.partition("=")[2] or text) for text in given]
    return [match[1] for match in matches if match is not None]


def _array_of(option: str, text: str, path: str) -> Any:
    """The array in the file that an option names; if there is no file, the error says how the option was read."""
    if is_there(user_path(path)):
        return read_array(path)
    read = "" if path == text else f" (of {option} {text!r}: FILE is the part after the first = and before @LAYER)"
    raise ValueError(f"{option}: there is no file {path!r}{read}")


def read_array(path: str) -> Any:
    """The array in a ``.npy`` file, or the only one in an ``.npz``; ValueError for other files."""
    from symcircuits.loaders.arrayfile import read_npy, read_npz
    from symcircuits.work.files import check_input, reading

    place = user_path(path)
    check_input(place, "an array")
    with reading(place) as file:
        try:
            if file.read(4) != b"PK\x03\x04":
                file.seek(0)
                return read_npy(file, os.fstat(file.fileno()).st_size)
            found = read_npz(place)
            if len(found) != 1:
                raise ValueError(f"it has {amount(len(found), 'array')} ({', '.join(list(found)[:6])}), not one")
            return next(iter(found.values()))
        except ValueError as fault:
            foreign = "pickle" in str(fault) or "not a .npy" in str(fault)
            said = "it is not an .npy file, or has Python objects in it" if foreign else fault
            raise ValueError(f"{path}: cannot be read as an array of numbers (.npy): {said}") from None
