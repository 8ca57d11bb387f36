"""Coq's list of all paths, as a third enumerator: compared with that of the package, path by path, in order.

``Listing.v`` proves that the list has every path once. Coq computes it for the numbers of heads below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from symcircuits.core.architecture import attention_only
from symcircuits.core.expansion import expand

__all__ = ["PAIRS", "PATHS", "differences", "questions"]

# Numbers of heads: for paths of the stream, and for pairs of paths of the scores of a head after these layers.
PATHS = ((3,), (2, 2), (3, 2), (2, 3, 1), (12, 12), (4, 1, 1, 2))
PAIRS = ((2,), (2, 1))


def _name(heads: tuple[int, ...]) -> str:
    return "_".join(map(str, heads))


def questions() -> list[str]:
    """The questions for Coq, each under its mark."""
    wide = ["Set Printing Width 1000000. Set Printing Depth 1000000."]
    lists = {heads: f"([:: {'; '.join(map(str, heads))}]%N)" for heads in PATHS + PAIRS}
    paths = [f"@lists paths_{_name(h)}\nEval vm_compute in listing {lists[h]}." for h in PATHS]
    pairs = [
        f"@lists pairs_{_name(h)}\nEval vm_compute in [seq (p, q) | p <- listing {lists[h]}, q <- listing {lists[h]}]."
        for h in PAIRS
    ]
    return wide + paths + pairs


def differences(answers: Mapping[str, str]) -> list[str]:
    """A sentence for every list of Coq that differs from the package's.

    >>> differences({})[0]
    'the paths of 3 heads: Coq gives no list'
    """
    found = [_difference(f"paths of {_counts(h)}", answers.get(f"paths_{_name(h)}"), _paths(h)) for h in PATHS]
    found += [
        _difference(f"pairs of paths of {_counts(h)}", answers.get(f"pairs_{_name(h)}"), _pairs(h)) for h in PAIRS
    ]
    return [fault for fault in found if fault]


def _counts(heads: tuple[int, ...]) -> str:
    return f"{','.join(map(str, heads))} heads"


def _paths(heads: tuple[int, ...]) -> list[Any]:
    return [[(h.layer, h.number) for h in term.paths[0].heads] for term in expand(attention_only(heads), "stream")]


def _pairs(heads: tuple[int, ...]) -> list[Any]:
    terms = expand(attention_only((*heads, 1)), f"scores:L{len(heads)}H0")
    return [tuple([(h.layer, h.number) for h in path.heads] for path in term.paths) for term in terms]


def _difference(what: str, answer: str | None, ours: list[Any]) -> str:
    if answer is None:
        return f"the {what}: Coq gives no list"
    shown = re.sub(r"%N|::", "", answer.partition("=")[2].partition("\n")[0]).replace(";", ",").strip()
    try:
        theirs = ast.literal_eval(shown)
    except (SyntaxError, ValueError):
        return f"the {what}: Coq's answer is not a list: {shown[:80]}"
    if theirs == ours:
        return ""
    if len(theirs) != len(ours):
        return f"the {what}: Coq lists {len(theirs)}, the package {len(ours)}"
    at = next(i for i, (one, other) in enumerate(zip(theirs, ours, strict=True)) if one != other)
    return f"the {what}: number {at} is {theirs[at]} in Coq and {ours[at]} in the package"
