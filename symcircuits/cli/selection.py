"""Selections of terms as options: by order, composition type, heads and sources; ranges, budgets, seeds."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from symcircuits.cli.numbers import memory, numbers, seconds, whole
from symcircuits.core.expansion import Expansion

__all__ = ["add_budgets", "add_range", "add_seed", "add_selection", "add_top", "selected"]


def add_selection(parser: Any) -> None:
    """``--order``, ``--composition``, ``--through``, ``--sequence``, ``--from-source``."""
    group = parser.add_argument_group("which terms")
    group.add_argument("--order", metavar="0,1", help="only terms of these orders")
    group.add_argument("--composition", metavar="K,QK", help="only terms of these composition types")
    group.add_argument(
        "--through",
        action="append",
        default=[],
        metavar="L0H1",
        help="only terms through this head; for scores also query:L0H1 or key:L0H1; may be repeated",
    )
    group.add_argument(
        "--sequence", action="append", default=[], metavar="L0H1,L1H0",
        help="only terms with these heads directly one after another; for scores also query:... or key:...; may be "
        "repeated",
    )  # fmt: skip
    group.add_argument(
        "--from-source",
        action="append",
        default=[],
        metavar="embed",
        help="only terms from this source; may be repeated",
    )


def add_range(parser: Any) -> None:
    """``--start`` and ``--stop``."""
    parser.add_argument("--start", type=whole(0), default=0, metavar="N", help="number of the first term (default 0)")
    parser.add_argument("--stop", type=whole(0), metavar="N", help="number after the last term (default: all)")


def add_budgets(parser: Any, *budgets: str, terms: str = "stop after this many terms") -> None:
    """``--max-terms``, ``--max-seconds``, ``--max-memory``, those in ``budgets``; exit 3 if one ends the work.

    ``terms``: the help of ``--max-terms``, if it does not end the work.
    """
    if "terms" in budgets:
        parser.add_argument("--max-terms", type=whole(0), metavar="N", help=terms)
    if "seconds" in budgets:
        parser.add_argument("--max-seconds", type=seconds, metavar="S", help="stop after this many seconds")
    if "memory" in budgets:
        parser.add_argument(
            "--max-memory", type=memory, metavar="200MB", help="limit of memory, not counting Python and its libraries"
        )


def add_top(parser: Any) -> None:
    """``--top``."""
    parser.add_argument("--top", type=whole(0), default=20, metavar="N", help="number of terms to show (default 20)")


def add_seed(parser: Any) -> None:
    """``--seed``; None, which means 0, if it is not given."""
    parser.add_argument("--seed", type=whole(0), metavar="N", help="seed of the random draws (default 0)")


def selected(expansion: Expansion, options: argparse.Namespace) -> Expansion:
    """The terms that meet every condition; a note on standard error if there are none."""
    found = expansion
    if options.order is not None:
        found = found.order(*numbers(options.order, "--order"))
    if options.composition is not None:
        found = found.where([c.strip() for c in options.composition.split(",")])
    for text in options.through:
        side, heads = _sided(text)
        found = found.through(heads, side)
    for text in options.sequence:
        side, heads = _sided(text)
        found = found.through_sequence(*heads, side=side)
    for sources in options.from_source:
        found = found.from_source([s.strip() for s in sources.split(",")])
    if not found:
        print("note: the selection is empty: no term meets all conditions", file=sys.stderr)
    return found


def _sided(text: str) -> tuple[str, list[str]]:
    """The side, if given, and the heads: ``L0H1,L1H0``, ``query:L0H1,L1H0``."""
    side, sign, heads = text.rpartition(":")
    return side.strip() if sign else "either", [h.strip() for h in heads.split(",")]
