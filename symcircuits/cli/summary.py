"""``symcircuits summary``: every term of a model on tokens: sums of their sizes, and the largest."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli.numbers import whole
from symcircuits.cli.output import STOPPED, add_json, print_found, print_refused
from symcircuits.cli.prompt import add_workers, workers_of
from symcircuits.cli.ranked import add_ranked, ranked
from symcircuits.cli.selection import add_budgets, add_range

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "look at every term of a model on tokens: sums of their sizes, and the largest"
EXAMPLES = (
    "  symcircuits summary MODEL --tokens 1,2,3 --by logit --token 7 --workers 4\n"
    "  symcircuits summary MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --key 0 --top 5\n"
    "  symcircuits summary MODEL --tokens 1,2,3 --start 4096 --max-seconds 600 --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_ranked(parser)
    parser.add_argument("--top", type=whole(0), default=20, metavar="K", help="show the K largest (default 20)")
    add_range(parser)
    add_budgets(parser, "terms", "seconds")
    add_workers(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Look at every term, and print the summary: 3 where a budget ended it."""
    from symcircuits.work.progress import Progress

    request = ranked(options)
    if request.compared is not None and not request.compared.ok:
        return print_refused(request.compared, options.json)
    with workers_of(options) as workers, Progress() as progress:
        found = request.values.summary(
            request.measure, top=options.top, start=options.start, stop=options.stop, max_terms=options.max_terms,
            max_seconds=options.max_seconds, workers=workers, progress=progress.step,
        )  # fmt: skip
    print_found(found, request.compared, options.json)
    return STOPPED if found.reached else 0
