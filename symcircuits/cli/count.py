"""``symcircuits count``: the number of terms, by order and composition type."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli.output import add_json, fitted, print_json
from symcircuits.cli.selection import add_selection, selected
from symcircuits.cli.subject import add_subject, add_target, default_target, subject_architecture
from symcircuits.core.text import amount, many

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "count the terms of an expansion, exactly"
EXAMPLES = (
    "  symcircuits count --heads 12,12\n"
    "  symcircuits count --heads 12,12 --target scores:L1H0 --positions shortformer --json\n"
    "  symcircuits count MODEL --through L0H2 --order 2"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_subject(parser)
    add_target(parser)
    add_selection(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Count, and print the counts."""
    from symcircuits.core.expansion import expand

    architecture = subject_architecture(options)
    expansion = selected(expand(architecture, default_target(architecture, options.target)), options)
    by_order, by_composition = expansion.counts_by_order(), expansion.counts_by_composition()
    whole = expansion.unfrozen().count if architecture.polynomial and not architecture.attachments else None
    if options.json:
        print_json({
            "schema": "symcircuits.count/1", "architecture": str(architecture), "target": expansion.target,
            "selection": [str(clause) for clause in expansion.clauses],
            "count": expansion.count, "by_order": by_order, "by_composition": by_composition,
            **({} if whole is None else _unfrozen_json(whole)),
        })  # fmt: skip
        return 0
    chosen = "".join(f", {clause}" for clause in expansion.clauses)
    print(fitted(f"{expansion.target}{chosen} of {architecture}: {amount(expansion.count, 'term')}"))
    for kind, counts in (("order", by_order), ("composition", by_composition)):
        size = max((len(f"{n:,}") for n in counts.values()), default=0)
        for key, n in counts.items():
            print(f"  {kind} {key!s:<5} {n:>{size},}")
    if whole is not None:
        from symcircuits.core.unfrozen.unfrozen import still_held

        print(fitted(f"with {still_held(architecture)} (unfrozen): {amount(whole, 'term')}"))
    return 0


def _unfrozen_json(whole: int) -> dict[str, Any]:
    """The number of terms with nothing held fixed: exact if JSON readers can parse it, else approximate."""
    return {"unfrozen": whole} if whole < 10**300 else {"unfrozen": None, "unfrozen_about": many(whole)}
