"""The commands ``symcircuits sample`` and ``symcircuits sizes``: sums over all terms, estimated or one by one."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli import commands as does
from symcircuits.cli import largest as largest_command

__all__ = ["SAMPLE", "SIZES", "add_sample_options", "add_sizes_options", "sample", "sizes"]

STOPPED = 3  # the exit code where a budget ended the work

SAMPLE = (
    "  symcircuits sample MODEL --tokens 1,2,3 --by 'logit difference' --draws 5000\n"
    "  symcircuits sample MODEL --tokens 1,2,3 --target scores:L1H0 --weights uniform --seed 7 --timeout 60 --json"
)
SIZES = (
    "  symcircuits sizes MODEL --tokens 1,2,3 --by logit --token 7 --workers 4\n"
    "  symcircuits sizes MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --key 0 --count 5\n"
    "  symcircuits sizes MODEL --tokens 1,2,3 --start 4096 --timeout 600 --json"
)


def add_sample_options(parser: Any) -> None:
    """The options of ``sample``."""
    largest_command.add_measure_options(parser)
    parser.add_argument(
        "--draws", "--max-terms", type=int, default=1000, metavar="K", help="terms to draw (default 1000)"
    )
    parser.add_argument(
        "--weights", choices=["bound", "uniform"], default="bound",
        help="terms of larger bounds are likelier (bound, the default), or all are as likely (uniform)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same terms (default 0)")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop drawing after so many seconds")
    parser.add_argument(
        "--max-memory", type=float, default=1024, metavar="MIB", help="for what is drawn (default 1024)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def sample(options: argparse.Namespace) -> int:
    """Estimate the sum of the sizes of all terms."""
    from symcircuits.work.progress import Progress

    request = largest_command.read_request(options)
    if request.compared is not None and not request.compared.ok:
        return does._print_refused(request.compared, options.json)
    with Progress() as progress:
        found = request.values(options.dtype).sample(
            options.draws, request.measure, seed=options.seed, weights=options.weights, max_seconds=options.timeout,
            max_memory=_bytes(options.max_memory), progress=progress.step,
        )  # fmt: skip
    does._print_found(found, request.compared, options.json)
    return STOPPED if found.reached else 0


def add_sizes_options(parser: Any) -> None:
    """The options of ``sizes``, but those of workers."""
    largest_command.add_measure_options(parser)
    parser.add_argument("--count", type=int, default=20, metavar="K", help="show the K largest (default 20)")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="the number of the first term (default 0)")
    parser.add_argument("--stop", type=int, metavar="N", help="the number behind the last term (default: all)")
    parser.add_argument("--max-terms", type=int, metavar="N", help="stop after so many terms")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop after so many seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def sizes(options: argparse.Namespace) -> int:
    """Look at every term, one by one."""
    from symcircuits.cli.prompts import crew
    from symcircuits.work.progress import Progress

    request = largest_command.read_request(options)
    if request.compared is not None and not request.compared.ok:
        return does._print_refused(request.compared, options.json)
    split = options.workers is not None or options.scheduler is not None
    if split and request.model.architecture.attachments:
        raise ValueError(
            "--workers and --scheduler read the model from its files; --readout and --source are not there"
        )
    with crew(options) as workers, Progress() as progress:
        found = request.values(options.dtype).summary(
            request.measure, top=options.count, start=options.start, stop=options.stop, max_terms=options.max_terms,
            max_seconds=options.timeout, workers=workers, progress=progress.step,
        )  # fmt: skip
    does._print_found(found, request.compared, options.json)
    return STOPPED if found.reached else 0


def _bytes(given: float) -> int:
    if not 0 <= given < 2**40:
        raise ValueError(f"--max-memory must be a number of MiB from 0 on, not {given:g}")
    return int(given * 2**20)
