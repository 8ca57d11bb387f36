"""What ``largest``, ``summary`` and ``sample`` have in common: a model on tokens, its terms, and what measures them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symcircuits.cli.attachments import add_attachments, attachments_of
from symcircuits.cli.measure import add_measure, check_kind, measure_of
from symcircuits.cli.output import STOPPED, print_found, print_refused
from symcircuits.cli.prompt import add_dtype, add_prompt, check_prompt, prompt_of
from symcircuits.cli.selection import add_selection, selected
from symcircuits.cli.subject import add_model, default_target, load_model

if TYPE_CHECKING:
    from symcircuits.values.evaluate import Values
    from symcircuits.values.measure import Measure
    from symcircuits.verification.reference import Comparison
    from symcircuits.work.progress import OnProgress

__all__ = ["Ranked", "add_ranked", "answer"]


def add_ranked(parser: Any, default: str | None = "norm") -> None:
    """Options for the model, the tokens, the terms and their measure; ``default``: the measure if none is given."""
    add_model(parser)
    add_prompt(parser)
    parser.add_argument("--target", metavar="T", help="logits (default), stream, scores:L1H0 or readout:NAME")
    add_measure(parser, default)
    add_selection(parser)
    add_attachments(parser)
    add_dtype(parser)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The values of the chosen terms, and their measure; if ``compared`` is not ok, no work is done."""

    values: Values
    measure: Measure | None
    compared: Comparison | None


def answer(options: argparse.Namespace, ask: Callable[[Ranked, OnProgress], Any], ended: Callable[[Any], bool]) -> int:
    """Ask, and print the result: exit code 1 if a recorded run is of another model, 3 if a budget ended the work."""
    from symcircuits.work.progress import Progress

    request = _ranked(options)
    if request.compared is not None and not request.compared.ok:
        return print_refused(request.compared, options.json)
    with Progress() as progress:
        found = ask(request, progress.step)
    print_found(found, request.compared, options.json)
    return STOPPED if ended(found) else 0


def _ranked(options: argparse.Namespace) -> Ranked:
    """The request of the options; ValueError if they contradict one another."""
    from symcircuits.core.expansion import expand
    from symcircuits.values.evaluate import evaluate

    check_prompt(options)
    measure = measure_of(options)
    readout, attached = attachments_of(options)
    model = load_model(options.model)
    tokens, compared = prompt_of(options, model)
    model = model.with_(*attached)
    target = options.target
    if target is None and readout is not None:
        target = f"readout:{readout.name}"
    expansion = selected(expand(model.architecture, default_target(model.architecture, target)), options)
    if measure is not None:
        check_kind(options.by or options.by_default, expansion.target)
    return Ranked(evaluate(expansion, model.run(tokens, options.dtype)), measure, compared)
