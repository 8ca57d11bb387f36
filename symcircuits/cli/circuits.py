"""``symcircuits circuits``: what the heads of a model attend to and why, which compose, and their effect on loss."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import weight, whole
from symcircuits.cli.output import add_json, print_result, write
from symcircuits.cli.selection import add_seed
from symcircuits.cli.subject import load_model

if TYPE_CHECKING:
    from symcircuits.circuits.report import Circuits
    from symcircuits.work.progress import Progress

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "find what heads attend to and why, which heads compose, and their effect on the loss"
EXAMPLES = (
    "  symcircuits circuits MODEL --html circuits.html\n"
    "  symcircuits circuits step-0/ step-500/ step-2000/\n"
    "  symcircuits circuits MODEL --first 50256 --length 128 --json\n"
    "  symcircuits circuits MODEL --draws 100 --seed 1 --threshold 0.3"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a folder (or file) with weights and config.json; several are compared side by side",
    )
    parser.add_argument("--draws", type=whole(1), default=20, metavar="N", help="prompts of each kind (default 20)")
    parser.add_argument("--first", type=whole(0), default=0, metavar="T", help="first token of each prompt (default 0)")
    parser.add_argument(
        "--length", type=whole(2), metavar="N", help="tokens in the longest prompt (default: from the model)"
    )
    add_seed(parser)
    parser.add_argument(
        "--threshold",
        type=weight,
        default=0.4,
        metavar="X",
        help="least score for a head to be of a kind (default 0.4)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with graph and figures, which works offline")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Find the circuits, and print them, for several models side by side: 0."""
    from symcircuits.circuits.checkpoints import compared
    from symcircuits.work.files import check_writable
    from symcircuits.work.progress import Progress

    if options.html is not None:
        if len(options.models) > 1:
            raise ValueError(f"--html needs a single MODEL, not {len(options.models)}")
        check_writable(options.html)
    with Progress() as progress:
        if len(options.models) > 1:
            side = compared((path, _circuits(path, options, progress)) for path in options.models)
            print_result(side, options.json)
            return 0
        found = _circuits(options.models[0], options, progress)
    if options.html is not None:
        write(options.html, found.html())
    print_result(found, options.json)
    return 0


def _circuits(path: str, options: argparse.Namespace, progress: Progress) -> Circuits:
    from symcircuits.circuits.report import find_circuits

    return find_circuits(
        load_model(path), options.draws, first=options.first, seed=options.seed or 0, length=options.length,
        threshold=options.threshold, progress=progress.step,
    )  # fmt: skip
