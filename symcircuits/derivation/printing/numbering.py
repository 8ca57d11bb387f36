"""One numbering of layers in a formula: labels are printed as symbolic numbers of heads count layers, from 1."""

from __future__ import annotations

import re
from typing import Final

from symcircuits.derivation.derive import Derivation

__all__ = ["MACRO", "numbered", "numbering"]

MACRO: Final = r"\providecommand{\labelled}[2]{#2}"  # a label, and how it is printed
_LABEL: Final = re.compile(r"\\mathrm\{([QKM]?)(?:L(\d+)(?:[HG](\d+))?|(?<=[QKM])(\d+))\}")


def numbered(latex: str, derivation: Derivation, labelled: bool = True) -> str:
    """Labels as symbolic head counts number layers, from 1: ``(1)`` for L0, and ``h_2`` for the head L1H0 of scores.

    The label stands beside what is printed, ``\\labelled{L0}{(1)}``, where it is wanted.
    """
    frame = derivation.frame
    if not _has_numbers(derivation):
        return latex

    def printed(found: re.Match[str]) -> str:
        kind, layer, head, alone = found.groups()
        label = found[0][len(r"\mathrm{") : -1]
        number = int(layer or alone) + 1
        if head is not None and (frame.head is None or int(layer) != frame.head.layer):
            return found[0]
        if frame.head is not None and "H" in label and int(head) != frame.head.number:  # another head of its layer
            return found[0]
        shown = f"({number})" if head is None else f"h_{{{number}}}" if "H" in label else f"G(h_{number})"
        upright = rf"\mathrm{{{kind}}}" if kind else ""
        return (rf"\labelled{{{label}}}" if labelled else "") + f"{{{upright}{shown}}}"

    return _LABEL.sub(printed, latex)


def numbering(derivation: Derivation) -> list[str]:
    """What is said of numbered labels, where there are any."""
    frame = derivation.frame
    if not _has_numbers(derivation):
        return []
    own = bool(frame.norms or frame.mlps or frame.multipliers or any(name[:3] == "b_O" for name in frame.biases))
    said = ["What belongs to a layer has its number in parentheses, counted from 1 like the heads."] if own else []
    if frame.head is not None:
        number = frame.head.layer + 1
        said.append(f"In formulas {frame.head} is `h_{number}`, a head of layer {number}.")
    return said


def _has_numbers(derivation: Derivation) -> bool:
    """Whether heads are counted by symbols, so that formulas have numbers of layers."""
    return derivation.frame.generic and derivation.frame.depth > 0 and derivation.result is None
