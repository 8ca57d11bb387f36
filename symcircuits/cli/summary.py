"""``symcircuits summary``: measures all terms of a model on tokens: sums of sizes, and the largest."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.output import add_json
from symcircuits.cli.prompt import add_workers, workers_of
from symcircuits.cli.ranked import Ranked, add_ranked, answer
from symcircuits.cli.selection import add_budgets, add_range, add_top

if TYPE_CHECKING:
    from symcircuits.work.progress import OnProgress

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "measure all terms of a model on tokens: sums of sizes, and the largest terms"
EXAMPLES = (
    "  symcircuits summary MODEL --tokens 1,2,3 --by logit --token 7 --workers 4\n"
    "  symcircuits summary MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --key 0 --top 5\n"
    "  symcircuits summary MODEL --tokens 1,2,3 --start 4096 --max-seconds 600 --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_ranked(parser)
    add_top(parser)
    add_range(parser)
    add_budgets(parser, "terms", "seconds")
    add_workers(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure all terms, and print the summary: 3 if a budget ended it."""

    def look(request: Ranked, progress: OnProgress) -> Any:
        with workers_of(options) as workers:
            return request.values.summary(
                request.measure, top=options.top, start=options.start, stop=options.stop, max_terms=options.max_terms,
                max_seconds=options.max_seconds, workers=workers, progress=progress,
            )  # fmt: skip

    return answer(options, look, lambda found: bool(found.reached))
