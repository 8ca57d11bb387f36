"""``symcircuits verify``: checks expansions against SymPy, over a prime field, and on a softmax model."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli.attachments import add_attachments, attachments_of
from symcircuits.cli.output import add_json, print_found, print_refused, print_result
from symcircuits.cli.prompt import add_prompt, prompt_of
from symcircuits.cli.selection import add_budgets, add_seed
from symcircuits.cli.subject import add_subject, described, subject_of

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "check expansions against SymPy, over a prime field, and on a softmax model"
EXAMPLES = (
    "  symcircuits verify --heads 3,3\n"
    "  symcircuits verify --heads 12,12,12 --max-terms 30000 --target scores:L2H0\n"
    "  symcircuits verify MODEL --tokens 1,2,3\n"
    "  symcircuits verify MODEL --reference recorded.npz\n"
    "  symcircuits verify --heads 2,2 --coq\n"
    "  symcircuits verify --heads 2,2 --lean\n"
    "  symcircuits verify --general"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_subject(parser)
    add_prompt(parser)
    parser.add_argument("--target", action="append", metavar="T", help="logits, stream or scores:L1H0; may be repeated")
    parser.add_argument(
        "--general", action="store_true", help="compile the proofs for any number of layers and heads (needs Coq)"
    )
    parser.add_argument("--coq", action="store_true", help="also prove the claims of the expansions (needs Coq)")
    parser.add_argument("--lean", action="store_true", help="also prove them with Lean (needs Lean 4 with Mathlib)")
    add_attachments(parser)
    add_seed(parser)
    add_budgets(parser, "terms", terms="most terms of one target to list (default 5000)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Verify, and print the report: 0 if all checks passed."""
    if options.general:
        return _general(options)
    from symcircuits.verification.lean import PROVED_BY_LEAN
    from symcircuits.verification.proofs import PROVED
    from symcircuits.verification.verify import MAX_TERMS, verify
    from symcircuits.work.progress import Progress

    if options.model is None and (options.readout is not None or options.source):
        raise ValueError("--readout and --source need a MODEL: they read its stream, or are a part of it")
    if options.model is None and (options.text is not None or options.tokenizer is not None):
        raise ValueError("--text needs a MODEL with a tokenizer.json: give --tokens for an architecture")
    if options.model is None and options.reference is not None:
        raise ValueError("--reference needs a MODEL, whose computation it was recorded from")
    _, attached = attachments_of(options)
    subject: Any = subject_of(options)
    tokens, compared = prompt_of(options, subject)
    if compared is not None and not compared.ok:
        return print_refused(compared, options.json)
    if attached:
        subject = subject.with_(*attached)
    with Progress() as progress:
        report = verify(
            subject, tokens, targets=options.target, seed=options.seed or 0, progress=progress.step,
            max_terms=MAX_TERMS if options.max_terms is None else options.max_terms, coq=options.coq, lean=options.lean,
        )  # fmt: skip
    print_found(report, compared, options.json)
    provers = (PROVED, PROVED_BY_LEAN)
    if report.ok and any(r.name in provers and (r.passed is None or r.details["left"]) for r in report.checks):
        return 2  # Coq or Lean did not run, or did not try every claim
    return 0 if report.ok else 1


def _general(options: argparse.Namespace) -> int:
    from symcircuits.verification.coq import check_general

    if options.model is not None or options.heads is not None:
        raise ValueError("--general is about all architectures: leave out MODEL and --heads")
    for prover in ("coq", "lean"):
        if getattr(options, prover):
            raise ValueError(f"--{prover} has no effect with --general, which compiles its own proofs")
    given = ("tokens", "text", "tokenizer", "reference", "target", "readout", "normed", "source", "seed", "max_terms")
    unused = [f"--{o.replace('_', '-')}" for o in given if getattr(options, o) not in (None, [])] + described(options)
    if unused:
        said = "--normed, --no-normed or --final-norm" if unused[0] == "--normed" else unused[0]
        raise ValueError(f"{said} has no effect with --general")
    report = check_general()
    print_result(report, options.json)
    return (0 if report.ok else 1) if report.available else 2
