"""What ``largest``, ``summary`` and ``sample`` have in common: a model on tokens, its terms, and what measures them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symcircuits.cli.attachments import add_attachments, attachments_of
from symcircuits.cli.numbers import whole
from symcircuits.cli.output import STOPPED, print_found, print_refused
from symcircuits.cli.prompt import add_dtype, add_tokens, compared_tokens
from symcircuits.cli.selection import add_selection, selected
from symcircuits.cli.subject import add_model, default_target, load_model

if TYPE_CHECKING:
    from symcircuits.values.evaluate import Values
    from symcircuits.values.measure import Measure
    from symcircuits.verification.reference import Comparison
    from symcircuits.work.progress import OnProgress

__all__ = ["Ranked", "add_ranked", "answer"]


def add_ranked(parser: Any, default: str | None = "norm") -> None:
    """Which terms of which model on which tokens, and what measures them; ``default``: where that is not said."""
    usual = "norm, the default" if default else "norm"
    add_model(parser)
    add_tokens(parser)
    parser.add_argument("--target", metavar="T", help="logits (default), stream, scores:L1H0 or readout:NAME")
    parser.add_argument(
        "--by", default=default, metavar="MEASURE",
        help=f"what makes a term large: {usual}, logit, 'logit difference', 'centred logit', of scores 'score entry' "
        "or 'masked norm', of a readout direction or 'direction difference'"
        + ("" if default else "; default: of the logits of one prompt 'centred logit', token and position embedding as "
        "one, of anything else norm"),
    )  # fmt: skip
    parser.add_argument("--position", type=whole(), help="position of the logit, or query (default: the last)")
    parser.add_argument("--key", type=whole(), help="key of the score (default: the one attended to most)")
    parser.add_argument("--token", type=whole(), help="output token, or direction of a readout (default: the largest)")
    parser.add_argument("--against", type=whole(), help="the other token of a difference (default: the largest other)")
    parser.add_argument("--row", type=whole(), help="batch row")
    add_selection(parser)
    add_attachments(parser)
    add_dtype(parser)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The values of the chosen terms, and what measures them; ``compared``: where it is not ok, nothing is done."""

    values: Values
    measure: Measure | None
    compared: Comparison | None


def answer(options: argparse.Namespace, ask: Callable[[Ranked, OnProgress], Any], ended: Callable[[Any], bool]) -> int:
    """Ask, and print what is found: exit code 1 where a recorded run is of another model, 3 where a budget ended it."""
    from symcircuits.work.progress import Progress

    request = _ranked(options)
    if request.compared is not None and not request.compared.ok:
        return print_refused(request.compared, options.json)
    with Progress() as progress:
        found = ask(request, progress.step)
    print_found(found, request.compared, options.json)
    return STOPPED if ended(found) else 0


def _ranked(options: argparse.Namespace) -> Ranked:
    """What the options say; ValueError on what does not go together."""
    from symcircuits.core.expansion import expand
    from symcircuits.values.evaluate import evaluate

    if options.tokens is None and options.reference is None:
        raise ValueError("give --tokens 1,2,3, or a --reference FILE that holds tokens")
    measure = _measure(options)
    readout, attached = attachments_of(options)
    model = load_model(options.model)
    tokens, compared = compared_tokens(options, model)
    model = model.with_(*attached)
    target = options.target
    if target is None and readout is not None:
        target = f"readout:{readout.name}"
    expansion = selected(expand(model.architecture, default_target(model.architecture, target)), options)
    if options.by is not None:
        _check_kind(options.by, expansion.target)
    return Ranked(evaluate(expansion, model.run(tokens, options.dtype)), measure, compared)


def _measure(options: argparse.Namespace) -> Measure | None:
    """What --by and the options beside it say, None where nothing is; ValueError where one of them has no effect."""
    from symcircuits.values.measure import logit, norm, score_entry

    if options.by is None:
        for name in ("row", "position", "token", "against", "key"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name} has no effect without --by: say by what terms are ranked")
        return None
    kind = options.by.replace("-", " ")
    if kind not in _USED:
        raise ValueError(f"--by is {', '.join(_USED)}, not {options.by!r}")
    for name in ("row", "position", "token", "against", "key"):
        if getattr(options, name) is not None and name not in _USED[kind]:
            raise ValueError(f"--{name} has no effect with --by {options.by!r}")
    if "norm" in kind:
        return norm(masked=kind == "masked norm")
    at = -1 if options.position is None else options.position
    if kind == "score entry":
        return score_entry(at, options.key, row=options.row)
    if kind == "centred logit":
        return logit(options.token, "mean", position=at, row=options.row)
    if "difference" not in kind:
        return logit(options.token, position=at, row=options.row)
    return logit(options.token, "second" if options.against is None else options.against, position=at, row=options.row)


def _check_kind(by: str, target: str) -> None:
    """ValueError where the terms of the target have no such measure; logit is a direction's name too, of a readout."""
    from symcircuits.values.measure import kinds_of

    kind, known = by.replace("-", " "), kinds_of(target)
    if kind not in known and not (target.startswith("readout:") and kind.replace("logit", "direction") in known):
        choices = ", ".join(f"'{k}'" if " " in k else k for k in known)
        raise ValueError(f"terms of {target} are not measured by --by {by!r}: choose {choices}")


_LOGIT = ("row", "position", "token")
_USED: dict[str, tuple[str, ...]] = {
    "norm": (),
    "masked norm": (),
    "logit": _LOGIT,
    "logit difference": (*_LOGIT, "against"),
    "centred logit": _LOGIT,
    "direction": _LOGIT,
    "direction difference": (*_LOGIT, "against"),
    "score entry": ("row", "position", "key"),
}
