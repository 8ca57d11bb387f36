"""The symbols of a model, by name and label, and the errors for symbols that it does not have."""

from __future__ import annotations

import difflib
import re
from typing import Final, NoReturn

from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import Letter
from symcircuits.core.architecture import Architecture, as_head
from symcircuits.core.notation import ROW, Notation, name_of
from symcircuits.core.symbols import ANY_OWNER, FLIPPED, LETTERS, SHARED, SHORT_NAMES, SYMMETRIC, labelled_by
from symcircuits.core.text import amount, setting
from symcircuits.core.words import scalar_order

__all__ = ["Names"]

_LABELLED: Final = labelled_by("head", "group")
_PLAIN: Final = tuple(n for n in labelled_by("") if LETTERS[n].axes and n != "Y")  # Y is only for derivations
_OF_LAYER: Final = ("b_O", "mlp")
_OF_NORM: Final = labelled_by("norm")
_NUMBERS: Final = tuple(
    n for n in labelled_by("") if not LETTERS[n].axes
)  # multipliers without a label; those of layers are r[L0] and r[M0]
_ALIASES: Final = {"s": "scale", "X_0": "X0", r"\Gamma": "gain", "Gamma": "gain", "M": "mlp", "ALiBi": "alibi"}
_THEIR_NAMES: Final = {short: glyph for glyph, short in SHORT_NAMES.items()} | {"W_pos": "P"}


class Names:
    """The symbols of one model in one notation, with an error for any other symbol.

    ``own`` finds the other names of symbols, as they are printed in text and in LaTeX.
    """

    def __init__(self, architecture: Architecture, notation: Notation = ROW, source: str = "") -> None:
        self.architecture, self.notation, self.source = architecture, notation, source
        theirs = _THEIR_NAMES if notation.flips else {}
        self._attached = {one.name for one in architecture.attachments}
        given = (*notation.names, *self._attached)
        self._own = {printed: glyph for glyph in given for printed in name_of(glyph, notation)}
        known = [*_LABELLED, *_PLAIN, "b_O", *(["mlp"] if architecture.mlps else [])]
        known += ["rest"] if _rests(architecture) else []
        known += _OF_NORM if architecture.norm else ["D", "gain"] if architecture.qk_norm else []
        without = {
            "C": architecture.norm == "LN",
            "R": architecture.positions == "rotary",
            "alibi": architecture.positions == "alibi",
        }
        known = [n for n in known if without.get(n, True)]
        known += dict.fromkeys(name.partition("[")[0] for name in sorted(architecture.multipliers))
        aliases = {a: n for a, n in _ALIASES.items() if n in known}
        self._known = {n: n for n in known} | aliases | theirs | self._own
        longest = "|".join(re.escape(n) for n in sorted(self._own, key=len, reverse=True))
        self.own = re.compile(rf"(?:{longest})(?![A-Za-z0-9_])") if longest else None

    def fault(self, message: str, at: int) -> NoReturn:
        """Raise a ReadError at this place."""
        raise ReadError(message, self.source, at)

    def knows(self, name: str) -> bool:
        """Whether this is the name of a symbol, with any label."""
        return name in self._known

    def glyph(self, name: str) -> str:
        """The symbol with this name; empty if there is none."""
        return self._known.get(name, "")

    def letter(self, name: str, label: str | None, at: int) -> Letter | str:
        """The letter with this name and label, in the paper's convention, or the label of a scale.

        ReadError if there is no such symbol.
        """
        glyph, label = self._glyph(name, label, at)
        if glyph == "scale":
            return self._head(label, at)
        if glyph in _NUMBERS:
            return glyph
        if glyph == "r":
            return self._multiplier(label, at)
        if glyph in SHARED:
            label = self._shared(label, at)
        elif glyph in _LABELLED:
            label = self._head(label, at)
        elif glyph in _OF_LAYER:
            label = self._layer(glyph, label, at)
        elif glyph in _OF_NORM:
            label = self._norm(glyph, label, at)
        elif glyph == "rest":
            label = self._rest(label, at)
        return Letter(glyph, label, self.notation.flips and glyph in FLIPPED and glyph not in SYMMETRIC)

    def _glyph(self, name: str, label: str | None, at: int) -> tuple[str, str]:
        plain = name if name in self._own else name.replace("{", "").replace("}", "")
        found = re.fullmatch(rf"(\w+?)_({ANY_OWNER})", plain)  # a Python identifier: W_OV_L0H1
        if found and label is None:
            plain, label = found.groups()
        glyph = self._known.get(plain)
        if glyph is None:
            self._unknown(plain, at)
        alone = glyph in _PLAIN + _NUMBERS or glyph in self._attached
        if alone and label is not None:
            self.fault(f"{plain} has no label", at)
        if not alone and not label:
            layered = (*_OF_LAYER, *_OF_NORM, "rest", "r")
            example = f"{plain}[L0], of a layer" if glyph in layered else f"{plain}[L0H0], of a head"
            self.fault(f"{plain} needs a label, e.g. {example}", at)
        return glyph, label or ""

    def _unknown(self, name: str, at: int) -> NoReturn:
        shown = name if len(name) <= 40 else name[:40] + "..."
        if not self.notation.flips and name in ("OV", "QK"):
            self.fault(f"unknown symbol {name!r}: here it is W_{name}; {name} is TransformerLens's "
                       f"({setting('convention', 'transformerlens')})", at)  # fmt: skip
        near = difflib.get_close_matches(name[:40], list(self._known), 1, 0.5)
        alike = [k for k in self._known if sorted(k.lower().replace("_", "")) == sorted(name.lower().replace("_", ""))]
        hint = (alike or near)[:1]
        if name == "alibi":
            self.fault("this model adds no ALiBi to its scores", at)
        if name == "mask":
            self.fault("a mask occurs only in terms with patterns multiplied out (unfrozen), which cannot be checked: "
                       "with patterns held fixed, write the pattern of the head, A[L0H0]", at)  # fmt: skip
        if re.fullmatch(r"X_?\d{1,9}", name):
            self.fault(f"{name} is the stream after some layers; write it out in terms of X0", at)
        hints = f"did you mean {hint[0]}?" if hint else f"choose from {', '.join(sorted(self._known))}"
        self.fault(f"unknown symbol {shown!r}; {hints}", at)

    def _head(self, label: str, at: int) -> str:
        try:
            return str(self.architecture.head(label[:40]))
        except ValueError as fault:
            self.fault(str(fault), at)

    def _shared(self, label: str, at: int) -> str:
        """The label of keys and values: a group, or the group of a head."""
        found = re.fullmatch(r"[Ll](\d{1,9})[Gg](\d{1,9})", label)
        if not found:
            return self.architecture.key_value(as_head(self._head(label, at)))
        layer, name = int(found[1]), f"L{int(found[1])}G{int(found[2])}"
        groups = self.architecture.key_values(layer) if layer < self.architecture.n_layers else ()
        if name not in groups:
            known = f"layer {layer} has {', '.join(groups)}" if groups else "there is no such layer"
            self.fault(f"there are no keys and values {name}: {known}", at)
        return name

    def _layer(self, glyph: str, label: str, at: int) -> str:
        found = re.fullmatch(r"[Ll](\d{1,9})", label)
        if not found:
            self.fault(f"{label[:40]!r} is not the name of a layer; write {glyph}[L0]", at)
        if int(found[1]) >= self.architecture.n_layers:
            layers = amount(self.architecture.n_layers, "layer")
            self.fault(f"there is no layer {label}: the model has {layers}, counted from 0", at)
        return f"L{int(found[1])}"

    def _multiplier(self, label: str, at: int) -> str:
        known = sorted((m for m in self.architecture.multipliers if m[0] == "r"), key=scalar_order)
        found = next((m for m in known if m[2:-1].lower() == label.lower()), None)
        if found is None:
            self.fault(f"there is no multiplier r[{label[:40]}]; there are {', '.join(known)}", at)
        return found

    def _rest(self, label: str, at: int) -> str:
        known = _rests(self.architecture)
        if label.upper() not in known:
            there = " and ".join(f"rest[{k}]" for k in known)
            self.fault(f"unknown rest {label[:40]!r}; this model has {there}", at)
        return label.upper()

    def _norm(self, glyph: str, label: str, at: int) -> str:
        read = {r.norm for r in self.architecture.readings}
        labels = self.architecture.scale_labels if glyph == "D" else self.architecture.norm_labels
        known = [name for name in labels if name[0] != "M" or name in read]
        if self.architecture.qk_norm and glyph != "b_N":
            known += _qk_norms(self.architecture, glyph)
        found = next((name for name in known if name.lower() == label.lower()), None)
        if found is None:
            self.fault(f"{label[:40]!r} is not the name of a norm; write {glyph}[...] with {' or '.join(known)}", at)
        return found


def _rests(architecture: Architecture) -> list[str]:
    """The labels of what is left beside attached sources: of the stream, ``L1``, or of an MLP, ``M1``."""
    letters = {"stream": "L", "mlp": "M"}
    return list(dict.fromkeys(f"{letters[p.of]}{p.layer}" for p in architecture.parts if p.of in letters))


def _qk_norms(architecture: Architecture, glyph: str) -> list[str]:
    """The labels of the norms of queries and keys: of a layer's gains, or of a head's (a group's) rows."""
    if glyph == "gain":
        return [f"{side}{layer}" for layer in range(architecture.n_layers) for side in "QK"]
    heads = architecture.all_heads
    return [f"Q{h}" for h in heads] + [*dict.fromkeys(f"K{architecture.key_value(h)}" for h in heads)]
