"""``symcircuits largest``: the largest terms of a model on tokens, with a proof."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import whole
from symcircuits.cli.output import add_json
from symcircuits.cli.ranked import Ranked, add_ranked, answer
from symcircuits.cli.selection import add_budgets, add_top

if TYPE_CHECKING:
    from symcircuits.work.progress import OnProgress

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "find the largest terms of a model on tokens, and prove that no other term is larger"
EXAMPLES = (
    "  symcircuits largest MODEL --tokens 1,2,3 --by 'logit difference' --position 2 --top 100\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --by logit --token 7 --order 1,2 --through L0H1\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --position 2 --key 0\n"
    "  symcircuits largest MODEL --reference recorded.npz --top 1000 --max-seconds 60 --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_ranked(parser, default=None)
    add_top(parser)
    parser.add_argument("--max-expansions", type=whole(0), metavar="N", help="stop after this many partial paths")
    add_budgets(parser, "seconds", "memory")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Search, and print the result: 0 if it is proved, 3 if a budget ended the search before."""
    memory = {} if options.max_memory is None else {"max_memory": options.max_memory}

    def search(request: Ranked, progress: OnProgress) -> Any:
        return request.values.largest(
            options.top, request.measure, max_expansions=options.max_expansions, max_seconds=options.max_seconds,
            progress=progress, **memory,
        )  # fmt: skip

    return answer(options, search, lambda found: not found.exact)
