"""``symcircuits book``: all derivations as one document."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli.subject import add_notation, notation_of
from symcircuits.core.names import visible

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "write all derivations as one document, and its PDF if pdflatex is installed"
EXAMPLES = "  symcircuits book -o book\n  symcircuits book -o book --notation transformerlens"


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument(
        "-o",
        "--output",
        default="symcircuits-book",
        metavar="DIR",
        help="folder for the book (default symcircuits-book)",
    )
    add_notation(parser)


def run(options: argparse.Namespace) -> int:
    """Write the book."""
    from symcircuits.derivation.book import write_book
    from symcircuits.work.files import make_folder

    notation = notation_of(options)
    print(f"wrote {visible(str(write_book(make_folder(options.output), notation)))}")
    return 0
