"""The command ``symcircuits largest``: the largest terms of a model on tokens, with their certificate."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from symcircuits.cli import attachments as attaching
from symcircuits.cli import commands as does

if TYPE_CHECKING:
    from symcircuits.core.expansion import Expansion
    from symcircuits.model import Model
    from symcircuits.values.evaluate import Values
    from symcircuits.values.measure import Measure
    from symcircuits.verification.reference import Comparison

__all__ = ["EXAMPLES", "Request", "add_measure_options", "add_options", "largest", "read_request"]

EXAMPLES = (
    "  symcircuits largest MODEL --tokens 1,2,3 --by 'logit difference' --position 2 --count 100\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --by logit --token 7 --order 1,2 --through L0H1\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --position 2 --key 0\n"
    "  symcircuits largest MODEL --reference recorded.npz --count 1000 --max-seconds 60 --json"
)


def add_measure_options(parser: Any) -> None:
    """What says of which terms of which model on which tokens, and what their sizes are; beside the tokens."""
    parser.add_argument("model", metavar="MODEL", help="a folder (or file) with weights and config.json")
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    parser.add_argument(
        "--by", default="norm", metavar="SIZE",
        help="what makes a term large: norm (default), logit, 'logit difference', of scores 'score entry' or "
        "'masked norm', of a readout direction or 'direction difference'",
    )  # fmt: skip
    parser.add_argument("--position", type=int, help="position of the logit, or query (default: the last)")
    parser.add_argument("--key", type=int, help="key of the score (default: the one attended to most)")
    parser.add_argument("--token", type=int, help="output token, or direction of a readout (default: the largest)")
    parser.add_argument("--against", type=int, help="the other token of a difference (default: the largest other)")
    parser.add_argument("--row", type=int, help="batch row")
    parser.add_argument("--order", metavar="1,2", help="only terms of these orders")
    parser.add_argument("--through", action="append", default=[], metavar="L0H1", help="only terms through this head")
    parser.add_argument(
        "--sequence", action="append", default=[], metavar="L0H1,L1H0",
        help="only terms in which these heads follow directly on one another",
    )  # fmt: skip
    parser.add_argument(
        "--from-source", action="append", default=[], metavar="embed", help="only terms from this source"
    )
    attaching.add_options(parser)
    parser.add_argument("--dtype", choices=["float64", "float32"], help="run the model in this type (default float64)")


class Request(NamedTuple):
    """What these options say: the model with what is attached, tokens, terms, and how their sizes are taken."""

    model: Model
    tokens: Any
    compared: Comparison | None  # where it is not ok, nothing else is said
    expansion: Expansion
    measure: Measure

    def values(self, dtype: Any) -> Values:
        """The values of these terms, on the model run in a type."""
        from symcircuits.values.evaluate import evaluate

        return evaluate(self.expansion, self.model.run(self.tokens, dtype))


def read_request(options: argparse.Namespace) -> Request:
    """Read the options of :func:`add_measure_options`; ValueError on what does not go together."""
    from symcircuits.core.expansion import expand

    if options.tokens is None and options.reference is None:
        raise ValueError("give --tokens 1,2,3, or a --reference FILE that holds tokens")
    orders = None if options.order is None else does._numbers(options.order, "--order")
    own, sources = attaching.read_options(options)
    model = does._load(options.model)
    tokens, compared = does._compared(options, model)
    if own is not None or sources:
        model = model.with_(*sources, *([] if own is None else [own]))
    target = options.target or (f"readout:{own.name}" if own is not None else "")
    target = target or ("logits" if model.architecture.unembed else "stream")
    expansion = expand(model.architecture, target)
    expansion = expansion if orders is None else expansion.order(*orders)
    for head in options.through:
        expansion = expansion.through(head)
    for heads in options.sequence:
        expansion = expansion.through_sequence(*(h.strip() for h in heads.split(",")))
    for source in options.from_source:
        expansion = expansion.from_source(source)
    if not expansion:
        print("note: 0 terms meet these conditions", file=sys.stderr)
    return Request(model, tokens, compared, expansion, _measure(options))


def _measure(options: argparse.Namespace) -> Measure:
    """What --by and the options beside it say; ValueError where one of them has no effect."""
    from symcircuits.values.measure import logit, norm, score_entry

    given = {name: getattr(options, name) for name in ("row", "position", "token", "against", "key")}
    used: dict[str, set[str]] = {"norm": set(), "masked norm": set(), "score entry": {"row", "position", "key"}}
    read = used.get(options.by, {"row", "position", "token"} | ({"against"} if "difference" in options.by else set()))
    for name, value in given.items():
        if value is not None and name not in read:
            raise ValueError(f"--{name} has no effect with --by {options.by!r}")
    at = -1 if options.position is None else options.position
    if "norm" in options.by:
        return norm(masked=options.by == "masked norm")
    if options.by == "score entry":
        return score_entry(at, options.key, row=options.row)
    if options.by not in ("logit", "logit difference", "direction", "direction difference"):
        raise ValueError(f"--by is norm, 'masked norm', logit, 'logit difference' or 'score entry', not {options.by!r}")
    if "difference" not in options.by:
        return logit(options.token, position=at, row=options.row)
    return logit(options.token, "second" if options.against is None else options.against, position=at, row=options.row)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_measure_options(parser)
    parser.add_argument("--count", type=int, default=20, metavar="K", help="how many terms (default 20)")
    parser.add_argument("--max-expansions", type=int, metavar="N", help="end the search after so many partial paths")
    parser.add_argument(
        "--max-seconds", "--timeout", type=float, metavar="S", help="end the search after so many seconds"
    )
    parser.add_argument("--max-memory", type=float, default=1024, metavar="MIB", help="of the search (default 1024)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def largest(options: argparse.Namespace) -> int:
    """Run the command: 0 where the answer is proved, 1 where a budget ended the search before."""
    from symcircuits.work.progress import Progress

    if not 0 <= options.max_memory < 2**40:
        raise ValueError(f"--max-memory must be a number of MiB from 0 on, not {options.max_memory:g}")
    request = read_request(options)
    if request.compared is not None and not request.compared.ok:
        return does._print_refused(request.compared, options.json)
    with Progress() as progress:
        found = request.values(options.dtype).largest(
            options.count, request.measure, max_expansions=options.max_expansions, max_seconds=options.max_seconds,
            max_memory=int(options.max_memory * 2**20), progress=progress.step,
        )  # fmt: skip
    does._print_found(found, request.compared, options.json)
    return 0 if found.exact else 1
