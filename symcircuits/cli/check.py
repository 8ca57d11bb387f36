"""``symcircuits check``: is a formula right, and if not, which mistake is it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from symcircuits.cli.output import add_json, print_json, width
from symcircuits.cli.subject import add_notation, add_subject, subject_architecture, symbols_of

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "check a formula: is it right, and if not, which mistake is it"
EXAMPLES = (
    "  symcircuits check 'A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T' --heads 3,3\n"
    "  symcircuits check 'X0 @ W_U.T' MODEL\n"
    "  symcircuits check 'W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T' --heads 3,3 --convention transformerlens --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument("formula", metavar="FORMULA", help="a term or a sum, as text or LaTeX (-: standard input)")
    add_subject(parser)
    parser.add_argument(
        "--target", metavar="T", help="logits, stream or scores:L1H0 (default: inferred from the formula)"
    )
    parser.add_argument(
        "--convention", choices=["paper", "row", "transformerlens"], default="paper",
        help="of the formula and of the answer: the paper's shapes (paper, row: the same) or TransformerLens's",
    )  # fmt: skip
    parser.add_argument("--part", action="store_true", help="a sum is right when it is some of the terms, each once")
    add_notation(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check, and print the verdict: 0 where the formula is right."""
    from symcircuits.checking.check import check

    architecture = subject_architecture(options)
    verdict = check(
        _formula(options.formula), architecture, options.target, options.convention, part=options.part,
        notation=options.notation, symbols=symbols_of(options.symbol),
    )  # fmt: skip
    print_json(verdict.json()) if options.json else print(verdict.text(width()))
    return 0 if verdict.right else 1


def _formula(given: str) -> str:
    """The formula itself, or (``-``) what standard input holds, up to the longest that is read."""
    if given != "-":
        return given
    if sys.stdin is None:
        raise ValueError("standard input is closed: give the formula itself in place of -")
    from symcircuits.checking.parser import MAX_TEXT

    return sys.stdin.read(MAX_TEXT + 1)
