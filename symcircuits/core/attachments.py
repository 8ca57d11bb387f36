"""What is attached to an architecture: readouts (directions that read the stream) and sources (parts set apart).

This module holds the descriptions, without numbers; the arrays belong to a model
(:mod:`symcircuits.model.attached`), and :mod:`symcircuits.core.programs` says what each does to the algebra.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from symcircuits.core.names import visible
from symcircuits.core.notation import printed_like, symbol_called
from symcircuits.core.text import as_whole, setting, shown
from symcircuits.core.words import argument_of

__all__ = ["FINAL", "OF", "Part", "Reading", "check_attachments", "check_name", "label_at", "norm_of", "place_of"]

FINAL: Final = "final"  # the label of the norm before the unembedding
# The final norm applied at another place: its centring, gain and bias, with the ``1 / sigma`` of the rows there.
_ELSEWHERE: Final = rf"{FINAL}([LM]\d+)"
AT: Final = ("stream", "mlp")  # what a readout reads
OF: Final = ("stream", "mlp", "added")  # what a source is a part of
# Names of sources that exist without being attached, and names that text notation would read as something else.
_SOURCES: Final = ("embed", "pos", "mlp", "rest")
_LABELLED: Final = r".*_(?:[LM]\d+(?:[HG]\d+)?|final(?:[LM]\d+)?|[QK]\d+(?:[HG]\d+)?)"


def label_at(layer: int, at: str, n_layers: int, final: bool = False) -> str:
    """The label of the norm at a place: at point ``layer`` of the stream, or before the MLP of that layer.

    ``final``: of the final norm taken there, whose own place is the last point.

    >>> label_at(1, "stream", 2), label_at(1, "mlp", 2), label_at(1, "stream", 2, final=True)
    ('L1', 'M1', 'finalL1')
    >>> label_at(2, "stream", 2), label_at(2, "stream", 2, final=True)
    ('final', 'final')
    """
    if at == "stream" and layer == n_layers:
        return FINAL
    return f"{FINAL if final else ''}{'M' if at == 'mlp' else 'L'}{layer}"


def norm_of(label: str) -> str:
    """The norm whose gain and bias belong to that label.

    >>> norm_of("L1"), norm_of("finalL1")
    ('L1', 'final')
    """
    return FINAL if re.fullmatch(_ELSEWHERE, label) else label


def place_of(label: str) -> str:
    """The place whose rows it scales: the label of the norm there.

    >>> place_of("M1"), place_of("finalM1")
    ('M1', 'M1')
    """
    found = re.fullmatch(_ELSEWHERE, label)
    return found[1] if found else label


@dataclass(frozen=True, slots=True)
class Reading:
    """A readout: at ``"stream"`` of point ``layer``, or at the input of that layer's MLP; through which norm.

    ``norm`` is the label of the norm whose output is read: that of the place (``L1``, ``M1``, ``final``), or the final
    norm applied there (``finalL1``, ``finalM1``; see :func:`label_at`). Empty: the stream without a norm.

    >>> str(Reading("probe", 2))
    'readout probe at point 2'
    """

    name: str
    layer: int
    at: str = "stream"
    norm: str = ""

    @property
    def argument(self) -> str:
        """The name of its array in a run: ``read_probe``."""
        return f"read_{argument_of(self.name)}"

    def __str__(self) -> str:
        place = f"point {self.layer}" if self.at == "stream" else f"the MLP of layer {self.layer}"
        elsewhere = norm_of(self.norm) != self.norm
        norm = f"the final norm taken there ({self.norm})" if elsewhere else f"its norm ({self.norm})"
        return f"readout {visible(self.name)} at {place}" + (f", after {norm}" if self.norm else "")


@dataclass(frozen=True, slots=True)
class Part:
    """A source set apart: part ``of`` the stream at point ``layer`` or of the output of that layer's MLP, or added.

    >>> str(Part("feature 12", 1, "mlp"))
    'source feature 12 of the MLP of layer 1'
    """

    name: str
    layer: int
    of: str = "stream"

    @property
    def argument(self) -> str:
        """The name of its array in a run: ``part_feature_12``."""
        return f"part_{argument_of(self.name)}"

    def __str__(self) -> str:
        where = {"stream": f"of the stream at point {self.layer}", "mlp": f"of the MLP of layer {self.layer}"}
        return f"source {visible(self.name)} {where.get(self.of, f'added at point {self.layer}')}"


def check_name(name: str) -> str:
    """Raise ValueError, with the reason, if a readout or source cannot have that name.

    Any text of at most 40 printing characters is allowed, unless a symbol of the algebra is printed like it; markup
    is printed unchanged and never interpreted.

    >>> check_name("feature 12")
    'feature 12'
    """
    like = printed_like(name)  # raises if it cannot be printed at all
    if not name.isprintable():
        raise ValueError(f"the name of a readout or source must print; {name!r} does not")
    base, label, _ = name.partition("[")
    if label and base.isidentifier() and (base in _SOURCES or symbol_called(base)):
        raise ValueError(f"{name!r} cannot be the name of a readout or source: every model has one of that name")
    if like or name in _SOURCES:
        raise ValueError(f"{name!r} cannot be the name of a readout or source: {like or name} has that name already")
    if re.fullmatch(_LABELLED, name):
        raise ValueError(
            f"{name!r} cannot be the name of a readout or source: it ends like a label, and would be read as a "
            "symbol of that head, layer or norm"
        )
    return name


def check_attachments(
    readings: Sequence[Reading],
    parts: Sequence[Part],
    n_layers: int,
    mlps: Collection[int],
    norms: Sequence[str],
) -> None:
    """Raise ValueError, with the name and the reason, if a readout or source does not fit an architecture."""
    names: dict[str, str] = {}
    found: tuple[Reading | Part, ...] = (*readings, *parts)
    for one in found:
        check_name(one.name)
        argument = argument_of(one.name)
        if argument in names:
            alike = "" if names[argument] == one.name else f" ({names[argument]!r} and {one.name!r} are too similar)"
            raise ValueError(f"two readouts or sources are called {one.name!r}{alike}; give one of them another name")
        names[argument] = one.name
        of_mlp = (one.at if isinstance(one, Reading) else one.of) == "mlp"
        last = n_layers - 1 if of_mlp else n_layers
        layer = as_whole(one.layer)
        if layer is None or not 0 <= layer <= last:
            what = "its layer is one of the model" if of_mlp else "its layer is a point of the stream"
            raise ValueError(f"{one.name!r}: {what}, 0 to {last}, not {shown(one.layer)}")
        if of_mlp and one.layer not in mlps:
            raise ValueError(f"{one.name!r}: layer {one.layer} has no MLP")
    for reading in readings:
        if not reading.norm:
            continue
        if norm_of(reading.norm) not in norms:
            raise ValueError(f"{reading.name!r}: there is no norm {norm_of(reading.norm)} to read through; "
                             f"{setting('normed', False)} reads the stream as it stands")  # fmt: skip
        there = [label_at(reading.layer, reading.at, n_layers, final) for final in (False, True)]
        if reading.norm not in there:
            known = " or ".join(dict.fromkeys(there))
            raise ValueError(f"{reading.name!r}: the norm read there is {known}, not {reading.norm}")
    points = sorted({p.layer for p in parts if p.of == "stream"})
    if len(points) > 1:
        raise ValueError(
            f"the stream is split at points {', '.join(map(str, points))}: it can be split at one point only, because "
            "what is before it is cut off there"
        )
