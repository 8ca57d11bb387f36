"""Options for the measure of a term: the kind, the token, the position, the token to compare with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from symcircuits.cli.numbers import numbers, whole

if TYPE_CHECKING:
    from symcircuits.values.measure import Measure

__all__ = ["USED", "add_logit", "add_measure", "check_kind", "logit_options", "measure_of"]


def add_logit(parser: Any) -> None:
    """``--position``, ``--token``, ``--against``, ``--logit-difference`` and ``--row``: which logit."""
    group = parser.add_argument_group("which logit")
    group.add_argument(
        "--position", type=whole(), metavar="N", help="position of the logit, or query (default: the last)"
    )
    group.add_argument(
        "--token", type=whole(), metavar="T", help="output token, or direction of a readout (default: the largest)"
    )
    group.add_argument(
        "--against", type=whole(), metavar="T",
        help="second token of a difference (default, for a measure that needs one: the largest other token)",
    )  # fmt: skip
    group.add_argument("--logit-difference", metavar="A,B", help="two tokens, the same as --token A --against B")
    group.add_argument("--row", type=whole(), metavar="N", help="batch row")


def add_measure(parser: Any, default: str | None = "norm") -> None:
    """``--by``, ``--key`` and which logit: the measure of terms; ``default``: the kind if --by is not given."""
    usual = "norm (default)" if default else "norm"
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--by", metavar="MEASURE",
        help=f"the size of a term: {usual}, logit, 'logit difference' or 'centred logit'; for scores 'score entry' or "
        "'masked norm'; for a readout direction or 'direction difference'"
        + ("" if default else "; default: for the logits of one prompt 'centred logit', with token and position "
        "embedding as one, else norm"),
    )  # fmt: skip
    parser.set_defaults(by_default=default)
    group.add_argument(
        "--key", type=whole(), metavar="N", help="key of the score (default: the one with the most attention)"
    )
    add_logit(parser)


def logit_options(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """The token, and the second one of a difference; ValueError if they contradict ``--logit-difference``."""
    if options.logit_difference is None:
        return options.token, options.against
    two = numbers(options.logit_difference, "--logit-difference")
    if len(two) != 2:
        raise ValueError(f"--logit-difference {options.logit_difference!r}: give two tokens, e.g. 26,3")
    if options.token not in (None, two[0]):
        raise ValueError(f"--token {options.token} is not the first of --logit-difference {options.logit_difference}")
    if options.against not in (None, two[1]):
        raise ValueError(
            f"--against {options.against} is not the second of --logit-difference {options.logit_difference}"
        )
    return two[0], two[1]


def measure_of(options: argparse.Namespace) -> Measure | None:
    """The measure of --by and its options, None if none is given; ValueError if one of them has no effect."""
    from symcircuits.values.measure import logit, norm, score_entry

    token, against = logit_options(options)
    given = {"row": options.row, "position": options.position, "token": token, "against": against, "key": options.key}
    if options.by is None and options.logit_difference is not None:
        options.by = "logit difference"
    by = options.by or options.by_default
    if by is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"--{name} has no effect without --by: give --by MEASURE too")
        return None
    kind = by.replace("-", " ")
    if kind not in USED:
        raise ValueError(f"unknown measure --by {by!r}: choose {', '.join(map(_quoted, USED))}")
    for name, value in given.items():
        if value is not None and name not in USED[kind]:
            option = "logit-difference" if getattr(options, name) is None else name
            raise ValueError(f"--{option} has no effect with --by {by!r}")
    if "norm" in kind:
        return norm(masked=kind == "masked norm")
    at = -1 if options.position is None else options.position
    if kind == "score entry":
        return score_entry(at, options.key, row=options.row)
    if kind == "centred logit":
        return logit(token, "mean", position=at, row=options.row)
    if "difference" not in kind:
        return logit(token, position=at, row=options.row)
    return logit(token, "second" if against is None else against, position=at, row=options.row)


def check_kind(by: str, target: str) -> None:
    """ValueError if terms of the target do not have the measure; for a readout, logit is a name of direction too."""
    from symcircuits.values.measure import kinds_of

    kind, known = by.replace("-", " "), kinds_of(target)
    if kind not in known and not (target.startswith("readout:") and kind.replace("logit", "direction") in known):
        choices = ", ".join(map(_quoted, known))
        raise ValueError(f"--by {by!r} does not apply to terms of {target}: choose {choices}")


def _quoted(kind: str) -> str:
    """A kind as a shell reads it."""
    return f"'{kind}'" if " " in kind else kind


_LOGIT: Final = ("row", "position", "token")
USED: Final[dict[str, tuple[str, ...]]] = {
    "norm": (),
    "masked norm": (),
    "logit": _LOGIT,
    "logit difference": (*_LOGIT, "against"),
    "centred logit": _LOGIT,
    "direction": _LOGIT,
    "direction difference": (*_LOGIT, "against"),
    "score entry": ("row", "position", "key"),
}
