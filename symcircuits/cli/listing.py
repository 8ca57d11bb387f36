"""Options that only print the values of another option: ``--list-theorems``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from symcircuits.cli.output import width

__all__ = ["add_listing"]

Rows = Callable[[], Sequence[tuple[str, str]]]


class _Listing(argparse.Action):
    """Prints the names with what each is, and exits with code 0."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, rows: Rows, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, const=True, default=False, help=help)
        self.rows = rows

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from symcircuits.render.tables import table

        print(table(self.rows(), ("name", "what it is"), width()))
        parser.exit(0)


def add_listing(parser: Any, option: str, rows: Rows, help: str) -> None:
    """Add an option that prints names with what each is; ``rows`` is called when the option is given."""
    parser.add_argument(option, action=_Listing, rows=rows, help=help)
