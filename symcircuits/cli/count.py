"""``symcircuits count``: the number of terms, by order and composition type."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from symcircuits.cli.output import add_json, fitted, print_json, rich_console
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
    title = f"{expansion.target}{chosen} of {architecture}: {amount(expansion.count, 'term')}"
    note = ""
    if whole is not None:
        from symcircuits.core.unfrozen.unfrozen import still_held

        note = f"with {still_held(architecture)} (unfrozen): {amount(whole, 'term')}"
    _print(title, {"order": by_order, "composition": by_composition}, note)
    return 0


def _print(title: str, counts: Mapping[str, Mapping[Any, int]], note: str) -> None:
    """The counts: a table with rich in a terminal, where it is installed, else plain text."""
    console = rich_console()
    if console is not None:
        from symcircuits.render.tables import Titled
        from symcircuits.render.terminal import print_parts

        rows = [(f"{kind} {key}", f"{n:,}") for kind, found in counts.items() for key, n in found.items()]
        print_parts([Titled(title, ("", "terms"), rows, [1], notes=[note] if note else [])], console)
        return
    print(fitted(title))
    for kind, found in counts.items():
        size = max((len(f"{n:,}") for n in found.values()), default=0)
        for key, n in found.items():
            print(f"  {kind} {key!s:<5} {n:>{size},}")
    if note:
        print(fitted(note))


def _unfrozen_json(whole: int) -> dict[str, Any]:
    """The number of terms with nothing held fixed: exact if JSON readers can parse it, else approximate."""
    return {"unfrozen": whole} if whole < 10**300 else {"unfrozen": None, "unfrozen_about": many(whole)}
