"""``symcircuits check``: checks a formula or a derivation, and names the line and the mistake if it is wrong."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

from symcircuits.cli.output import add_json, print_json, print_marked, width
from symcircuits.cli.subject import add_notation, add_subject, subject_architecture, symbols_of
from symcircuits.core.text import brief

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "check a formula or a derivation, and name the line and the mistake if it is wrong"
EXAMPLES = (
    "  symcircuits check 'A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T' --heads 3,3\n"
    "  symcircuits check 'X0 @ W_U.T' MODEL\n"
    "  symcircuits check --file appendix.tex --heads 2,2\n"
    "  symcircuits check 'W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T' --heads 3,3 --convention transformerlens --json"
)

_STYLES: Final = {"Right:": "green", "Wrong": "bold red", "nearest right term:": "green"}


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument(
        "formula",
        metavar="FORMULA",
        nargs="?",
        help="a term, a sum or a derivation, as text, LaTeX or Python code (-: standard input); not with --file",
    )
    add_subject(parser)
    parser.add_argument("--file", metavar="FILE", help="read the formula or derivation from a file")
    parser.add_argument(
        "--target", metavar="T", help="logits, stream or scores:L1H0 (default: inferred from the formula)"
    )
    parser.add_argument(
        "--convention", choices=["paper", "row", "columns", "transformerlens"], default=None, metavar="NAME",
        help="convention of the formula: paper, row (the paper's shapes, a row for each token), columns (a column for "
        "each token) or transformerlens (default: try all, and say which one was used)",
    )  # fmt: skip
    parser.add_argument("--part", action="store_true", help="a sum is right if it is some of the terms, each once")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="a formula that is right only under a hypothesis, such as unscaled scores, counts as wrong",
    )
    add_notation(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check, and print the verdict: 0 if the formula is right."""
    from symcircuits.checking.check import check

    if options.file is not None and options.formula is not None:
        if options.model is not None or options.heads is not None:
            raise ValueError("give a FORMULA or --file, not both, and either --heads or a MODEL")
        options.model, options.formula = options.formula, None  # the only positional argument is the model
    if options.file is None and options.formula is None:
        raise ValueError("give a FORMULA, or --file FILE")
    if options.model is not None and os.path.exists(options.formula or "") and not os.path.exists(options.model):
        raise ValueError(f"the FORMULA comes first, then the MODEL: there is no {brief(options.model)}")
    architecture = subject_architecture(options)
    verdict = check(
        _formula(options), architecture, options.target, options.convention, part=options.part,
        notation=options.notation, symbols=symbols_of(options.symbol), strict=options.strict,
    )  # fmt: skip
    print_json(verdict.json()) if options.json else print_marked(verdict.text(width()), _STYLES)
    return 0 if verdict.right else 1


def _formula(options: argparse.Namespace) -> str:
    """The formula itself, or the text of a file or (``-``) of standard input, up to the longest that is read."""
    from symcircuits.checking.tokens import MAX_TEXT

    if options.file is not None:
        with open(options.file, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_TEXT + 1)
    given: str = options.formula
    if given != "-":
        return given
    if sys.stdin is None:
        raise ValueError("standard input is closed: give the formula itself instead of -")
    return sys.stdin.read(MAX_TEXT + 1)
