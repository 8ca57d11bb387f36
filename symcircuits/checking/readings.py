"""The choices that a text may leave open: conventions, where counting starts, what a sum runs over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

__all__ = ["Reading", "readings_of", "variants"]

Weights = Literal["paper", "transformerlens", "linear"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a text.

    ``weights``: matrices in the paper's shapes, TransformerLens's, or as in PyTorch's layers (``linear``: the paper's,
    with the embedding ``[d_vocab, d_model]``). ``columns``: a stream has a column, not a row, for each token. ``base``:
    layers and heads given by numbers are counted from 1 or 0. ``spread``: a sum over heads without a range runs over
    all heads of the model, or (``False``) over those of one layer.
    """

    weights: Weights = "paper"
    columns: bool = False
    base: int = 0
    spread: bool = True

    @property
    def convention(self) -> str:
        """The name of the convention: ``paper``, ``columns``, ``transformerlens``, ``linear``."""
        return "columns" if self.columns and self.weights == "paper" else self.weights

    @property
    def text(self) -> str:
        """The convention in words."""
        if self.weights == "transformerlens":
            rows = "columns" if self.columns else "a row for each token"
            return f"TransformerLens's convention, {rows}, weights in its shapes"
        shapes = "weights as in PyTorch's layers" if self.weights == "linear" else "matrices in the paper's shapes"
        return f"columns, one for each token, {shapes}" if self.columns else f"the row convention, {shapes}"


_MATHS: Final = (Reading(), Reading(columns=True), Reading("transformerlens"), Reading("linear"),
                 Reading("transformerlens", columns=True), Reading("linear", columns=True))  # fmt: skip
_CODE: Final = (Reading("transformerlens"), Reading(), Reading("linear"), Reading(columns=True),
                Reading("transformerlens", columns=True), Reading("linear", columns=True))  # fmt: skip
_ASKED: Final = {"paper": _MATHS[:2], "row": _MATHS[:1], "columns": _MATHS[1:2],
                 "transformerlens": (Reading("transformerlens"), Reading("transformerlens", columns=True))}  # fmt: skip


def readings_of(convention: str | None, code: bool, theirs: bool = False) -> tuple[Reading, ...]:
    """The conventions to try, the likeliest first; ``theirs``: the text looks like TransformerLens.

    >>> [r.convention for r in readings_of("paper", False)], readings_of(None, True)[0].convention
    (['paper', 'columns'], 'transformerlens')
    """
    if convention is not None:
        return _ASKED[convention]
    return _ASKED["transformerlens"] if theirs else _CODE if code else _MATHS


def variants(reading: Reading, bases: bool, ranges: bool) -> Iterator[Reading]:
    """The same convention with each way to count, if numbers or ranges leave that open."""
    for base in (1, 0) if bases else (reading.base,):
        for spread in (True, False) if ranges else (True,):
            yield replace(reading, base=base, spread=spread)
