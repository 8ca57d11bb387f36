"""``symcircuits terms``: the terms of an expansion, or of a selection of it, written to a file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from symcircuits.cli.listing import add_listing
from symcircuits.cli.output import STOPPED, add_json, fitted, print_json
from symcircuits.cli.prompt import add_workers, workers_of
from symcircuits.cli.selection import add_budgets, add_range, add_selection, selected
from symcircuits.cli.subject import (
    add_notation,
    add_subject,
    add_target,
    default_target,
    notation_of,
    subject_architecture,
)

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "write the terms of an expansion to a table of any length: CSV, JSON lines, Arrow or Parquet"
EXAMPLES = (
    "  symcircuits terms --heads 12,12 -o terms.csv\n"
    "  symcircuits terms --heads 12,12,12 --target scores:L2H0 --composition K --columns heads -o k.parquet\n"
    "  symcircuits terms MODEL --through L0H2 --columns label,latex -o terms.jsonl --max-seconds 60\n"
    "  symcircuits terms MODEL --through L0H2 --columns label,latex -o terms.jsonl --resume"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_subject(parser)
    add_target(parser)
    add_selection(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="output file: .csv, .jsonl, .arrow or .parquet"
    )
    parser.add_argument(
        "--columns", metavar="A,B",
        help="any of number, order, orders, composition, sources, heads, label, text, latex (default number,order,"
        "composition,label,text)",
    )  # fmt: skip
    add_listing(parser, "--list-columns", _columns, "list the columns, with what each contains, and exit")
    add_range(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted export to this file")
    add_budgets(parser, "terms", "seconds", "memory")
    add_workers(parser)
    add_notation(parser)
    add_json(parser)


def _columns() -> list[tuple[str, str]]:
    from symcircuits.tables.formats import COLUMNS

    return list(COLUMNS.items())


def run(options: argparse.Namespace) -> int:
    """Write the terms: 3 if a budget ended it."""
    from symcircuits.core.expansion import expand
    from symcircuits.work.progress import Progress

    architecture = subject_architecture(options)
    expansion = expand(architecture, default_target(architecture, options.target)).written(notation_of(options))
    expansion = selected(expansion, options)
    columns = None if options.columns is None else [c.strip() for c in options.columns.split(",")]
    with workers_of(options) as workers, Progress() as progress:
        try:
            found = expansion.export(
                options.output, columns, start=options.start, stop=options.stop, resume=options.resume,
                max_terms=options.max_terms, max_seconds=options.max_seconds, max_memory=options.max_memory,
                workers=workers, progress=progress.step,
            )  # fmt: skip
        except KeyboardInterrupt as fault:
            progress.__exit__()
            print("\n".join(getattr(fault, "__notes__", [])), file=sys.stderr)
            raise
    if options.json:
        print_json({
            "schema": "symcircuits.export/1", "file": str(found.path), "complete": found.complete, "rows": found.rows,
            "total": found.total, "bytes": found.size, "stopped": found.stopped or None,
        })  # fmt: skip
    else:
        print(fitted(found.text()), file=sys.stdout if found.complete else sys.stderr)
    return 0 if found.complete else STOPPED
