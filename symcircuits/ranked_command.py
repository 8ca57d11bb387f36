"""The command ``symcircuits largest``: the largest terms of a model on tokens, with their certificate."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits import attaching
from symcircuits import commands as does

__all__ = ["EXAMPLES", "add_options", "largest"]

EXAMPLES = (
    "  symcircuits largest MODEL --tokens 1,2,3 --by 'logit difference' --position 2 --count 100\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --by logit --token 7 --order 1,2 --through L0H1\n"
    "  symcircuits largest MODEL --tokens 1,2,3 --target scores:L1H0 --by 'score entry' --position 2 --key 0\n"
    "  symcircuits largest MODEL --reference recorded.npz --count 1000 --max-seconds 60 --json"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument("model", metavar="MODEL", help="a folder (or file) with weights and config.json")
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    parser.add_argument(
        "--by", default="norm", metavar="SIZE",
        help="what makes a term large: norm (default), logit, 'logit difference', of scores 'score entry' or "
        "'masked norm', of a readout direction or 'direction difference'",
    )  # fmt: skip
    parser.add_argument("--count", type=int, default=20, metavar="K", help="how many terms (default 20)")
    parser.add_argument("--position", type=int, default=-1, help="position of the logit, or query (default: the last)")
    parser.add_argument("--key", type=int, help="key of the score (default: the one attended to most)")
    parser.add_argument("--token", type=int, help="output token, or direction of a readout (default: the largest)")
    parser.add_argument("--against", type=int, help="the other token of a difference (default: the largest other)")
    parser.add_argument("--row", type=int, default=0, help="batch row")
    parser.add_argument("--order", metavar="1,2", help="only terms of these orders")
    parser.add_argument("--through", action="append", default=[], metavar="L0H1", help="only terms through this head")
    parser.add_argument(
        "--sequence", action="append", default=[], metavar="L0H1,L1H0",
        help="only terms in which these heads follow directly on one another",
    )  # fmt: skip
    parser.add_argument(
        "--from-source", action="append", default=[], metavar="embed", help="only terms from this source"
    )
    parser.add_argument("--max-expansions", type=int, metavar="N", help="end the search after so many partial paths")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="end the search after so many seconds")
    parser.add_argument("--max-memory", type=float, default=1024, metavar="MIB", help="of the search (default 1024)")
    attaching.add_options(parser)
    parser.add_argument("--dtype", choices=["float64", "float32"], help="run the model in this type (default float64)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def largest(options: argparse.Namespace) -> int:
    """Run the command: 0 where the answer is proved, 1 where a budget ended the search before."""
    from symcircuits.expansion import expand
    from symcircuits.progress import Progress
    from symcircuits.ranking import largest

    if options.tokens is None and options.reference is None:
        raise ValueError("give --tokens 1,2,3, or a --reference FILE that holds tokens")
    if not options.max_memory >= 0:
        raise ValueError(f"--max-memory must be a number of MiB from 0 on, not {options.max_memory:g}")
    orders = None if options.order is None else does._numbers(options.order, "--order")
    own, sources = attaching.read_options(options)
    model = does._load(options.model)
    tokens, compared = does._compared(options, model)
    if compared is not None and not compared.ok:
        return does._print_refused(compared, options.json)
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
    with Progress() as progress:
        found = largest(
            expansion, model.run(tokens, options.dtype), options.count, by=options.by, row=options.row,
            position=options.position, token=options.token, against=options.against, key=options.key,
            max_expansions=options.max_expansions, max_seconds=options.max_seconds,
            max_memory=int(options.max_memory * 2**20), progress=progress.note,
        )  # fmt: skip
    does._print_found(found, compared, options.json)
    return 0 if found.exact else 1
