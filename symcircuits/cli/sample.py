"""``symcircuits sample``: the sum of the sizes of all terms, estimated from random draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import whole
from symcircuits.cli.output import add_json
from symcircuits.cli.ranked import Ranked, add_ranked, answer
from symcircuits.cli.selection import add_budgets, add_seed

if TYPE_CHECKING:
    from symcircuits.work.progress import OnProgress

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "estimate the sum of the sizes of all terms of a model on tokens, with its error, from random draws"
EXAMPLES = (
    "  symcircuits sample MODEL --tokens 1,2,3 --by 'logit difference' --draws 5000\n"
    "  symcircuits sample MODEL --tokens 1,2,3 --target scores:L1H0 --weights uniform --seed 7 --max-seconds 60 --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_ranked(parser)
    parser.add_argument(
        "--draws", type=whole(0), default=1000, metavar="K", help="number of terms to draw (default 1000)"
    )
    parser.add_argument(
        "--weights", choices=["bound", "uniform"], default="bound",
        help="draw terms with larger bounds more often (bound, the default), or all equally often (uniform)",
    )  # fmt: skip
    add_seed(parser)
    add_budgets(parser, "seconds", "memory")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Draw terms, and print the estimate: 3 if a budget ended it."""
    memory = {} if options.max_memory is None else {"max_memory": options.max_memory}

    def draw(request: Ranked, progress: OnProgress) -> Any:
        return request.values.sample(
            options.draws, request.measure, seed=options.seed or 0, weights=options.weights,
            max_seconds=options.max_seconds, progress=progress, **memory,
        )  # fmt: skip

    return answer(options, draw, lambda found: bool(found.reached))
