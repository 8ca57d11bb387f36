"""Names that the text does not define: letters, streams, queries and keys, numbers of heads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from symcircuits.checking.environment import Environment
from symcircuits.checking.formula import Letter, RawFactor
from symcircuits.checking.quantities import placed
from symcircuits.checking.ranges import Ranges
from symcircuits.checking.roles import spelling_of, split_indices
from symcircuits.checking.syntax import Name
from symcircuits.checking.values import IDENTITY, Chain, Value, Word, letter_value, number
from symcircuits.core.architecture import FINAL, Head
from symcircuits.core.symbols import ANY_OWNER, labelled_by

__all__ = ["KnownNames", "text_is_rotation"]

_HEADED: Final = labelled_by("head", "group")
_LAYERED: Final = ("b_O", "mlp", "rest")
_NORMED: Final = labelled_by("norm")
_STREAMS: Final = ("x", "X", "r", "resid")
_IDENTITY: Final = ("I", "Id", "id")
_DIMENSION: Final = re.compile(r"d(?:_?\w+)?|n|N|n_ctx|H|T")
_OF_HEADS: Final = ("d_k", "d_h", "d_head", "d_qk", "d_q", "d_key", "d_heads", "dk", "dh", "dhead")


class KnownNames(Ranges):
    """The usual meaning of names."""

    def normed(self, node: Name) -> str:
        """The label of the norm whose output is ``Y^{L0}``, as derivations print it; empty for all other names."""
        labels = [p for s in node.scripts for p in s.parts]
        printed = node.text == "Y" and len(labels) == 1 and self.architecture.norm
        known = [f"L{layer}" for layer in range(self.architecture.n_layers)] + [FINAL] * self.architecture.unembed
        return labels[0] if printed and labels[0] in known and "Y" not in self.definitions else ""

    def _strict(self, node: Name) -> Value | None:
        """The value of a symbol as printed in text, a known name with a label in brackets; None for other names."""
        labels = [p for s in node.scripts for p in s.parts]
        text, _, owner = node.text.rpartition("_")
        known = self.names.knows(node.text) or (
            self.names.knows(text) and re.fullmatch(r"L\d+\w*|M\d+|final\w*|[QK]\w+", owner)
        )
        if not known or node.text in self.definitions or len(node.scripts) > 1 or len(labels) > 1:
            return None
        glyph = self.names.glyph(node.text)
        if labels and not re.fullmatch(r"[LlMmQqKk]\d\w*|[QK][Ll]\d+\w*|final\w*|\d+\.\d+", labels[0]):
            return None
        if not labels and glyph in (*_HEADED, *_LAYERED, *_NORMED, "r") and glyph != "C":
            return None
        return self._letter(node.text, labels[0] if labels else None, node.at)

    def _letter(self, name: str, label: str | None, at: int, row: str = "", col: str = "") -> Value:
        found = self.names.letter(name, label, at)
        if isinstance(found, str):
            return [Word(1, (found,), ())]
        if self.reading.weights == "linear" and found.glyph == "W_E":
            found = found.T
        if self.reading.columns and self.sizes.of(found)[0] == "token" and found.glyph not in ("A", "D"):
            found, row, col = found.T, col, row
        return letter_value(found, at, row, col)

    def _tokens(self, node: Name) -> Value:
        row = next((p for s in node.scripts for p in s.parts if p in self.roles.positions), "")
        return self._letter("t", None, node.at, row)

    def _usual(self, node: Name, env: Environment) -> Value:
        """The meaning of a name that the text does not define."""
        glyph, labels = self._glyph(node)
        positions = tuple(p for p in split_indices(labels) if p in self.roles.positions)
        turned = text_is_rotation(node) and (positions or (labels and not re.fullmatch(ANY_OWNER, labels[0])))
        if turned and self.architecture.positions == "rotary":
            return self._rotation(node, labels, env)
        if glyph and not (node.text in ("a", "r", "M") and glyph not in ("A",) and not self.names.knows(node.text)):
            return self._symbol(node, glyph, labels, positions, env)
        text = node.text
        if text in _IDENTITY:
            return list(IDENTITY)
        if text in _STREAMS or (text == "h" and positions) or re.fullmatch(r"[xXr]_?\d+", text):
            return self._stream(node, env)
        if text in ("q", "k", "v", "z") and labels:
            return self._side(node, labels, positions, env)
        if text == "a" and labels:
            return self._head_output(node, labels, env)
        if text == "H":
            return self._number_of_heads(node, env)
        if text == "sigma":
            return [Word(1, ("σ",), ())]
        if _DIMENSION.fullmatch(spelling_of(node)[0]) and text[:1] == "d":
            if spelling_of(node)[0] == "d":
                raise self.fault("d alone does not say which dimension: write d_head", node.at)
            return [Word(1, ("d" if spelling_of(node)[0] in _OF_HEADS else "δ",), ())]
        return self._letter(spelling_of(node)[0], labels[0] if labels else None, node.at)

    def _number_of_heads(self, node: Name, env: Environment) -> Value:
        """``H_1``, the number of heads of a layer, and its powers."""
        below = [p for s in node.scripts if s.kind == "sub" for p in s.parts]
        above = [p for s in node.scripts if s.kind == "super" for p in s.parts]
        if not below:
            if len(set(self.heads)) != 1:
                raise self.fault("H does not say which layer: write H_1", node.at)
            heads = self.heads[0]
        else:
            written = int(below[0]) if below[0].isdigit() else self._asked(below[0], "layer", env, node.at)
            first = 1 if below[0].isdigit() else self.reading.base
            layer = written.layer if isinstance(written, Head) else written - first
            if not 0 <= layer < self.architecture.n_layers:
                raise self.fault(f"there is no layer {below[0]}", node.at)
            heads = self.heads[layer]
        if above and not (len(above) == 1 and above[0].isdigit() and len(above[0]) < 3):
            raise self.fault("this power of a number of heads cannot be read", node.at)
        return number(heads ** int(above[0]) if above else heads)

    def _symbol(
        self, node: Name, glyph: str, labels: tuple[str, ...], positions: tuple[str, ...], env: Environment
    ) -> Value:
        at = node.at
        if glyph[:2] == "b_" or glyph == "P" or node.text == "mathbbm":
            self.noted.loose.add(at)
        own = tuple(p for p in labels if not any(q in self.roles.positions for q in split_indices((p,))))
        if glyph == "scale" and not own and node.text in ("scale", "s"):
            return [Word(1, ("/√d",), ())]
        name = next((n for n in (node.text, spelling_of(node)[0]) if self.names.glyph(n) == glyph), glyph)
        if not self.names.knows(name):
            name = next((n for n in ("OV", "QK", "W_pos") if self.names.glyph(n) == glyph), name)
        if glyph in _HEADED or glyph == "R" or glyph == "scale":
            head = self._head(own, env, at, glyph)
            row, col = (*positions, "", "")[:2] if glyph == "A" else ("", "")
            return self._closed(self._letter(name, head, at, row, col))
        if glyph in _LAYERED and (own or glyph != "rest"):
            return self._letter(name, self._layer_label(own, env, at), at)
        if glyph in _NORMED:
            label = own[0] if own else "?"
            if label == "?":
                return self._of_norm(glyph, at)
            return self._letter(name, label, at)
        if glyph == "r":
            return self._letter(name, own[0] if own else None, at)
        sliced = tuple(p for s in node.scripts if s.kind == "index" for p in s.parts)
        if glyph in ("P", "W_E", "W_U", "t", "X0") and own == sliced:
            row = positions[0] if positions else ""
            value = self._letter(name, None, at, row if glyph in ("P", "t", "X0") else "")
            return self._sliced(value, sliced, at) if sliced and not positions else value
        if glyph == "X0" and positions:
            return self._letter(name, None, at, positions[0])
        return self._letter(name, own[0] if own else None, at)

    def _closed(self, value: Value) -> Value:
        """An entry, where both ends of a chain are named."""
        return [
            w._replace(slots=(), entries=w.slots) if w.slots and w.slots[0].row and w.slots[0].col else w for w in value
        ]

    def _of_norm(self, glyph: str, at: int) -> Value:
        """A gain whose norm is inferred from its neighbours."""
        if not self.names.knows(glyph):
            self.names.letter(glyph, None, at)
        return letter_value(Letter(glyph, "?"), at)

    def _stream(self, node: Name, env: Environment) -> Value:
        row = next((p for s in node.scripts for p in split_indices(s.parts) if p in self.roles.positions), "")
        point = self.point(node, env)
        if point is None:
            if self.opaque:
                return self._turned(letter_value(Letter("Y"), node.at, row))
            point = 0 if self.architecture.n_layers <= 1 else None
        if point is None:
            written = self._asked("@layer", "layer", env, node.at)
            point = self._layer_of(written, node.at)
        return self._at_point(point, node.at, row)

    def _at_point(self, point: int, at: int, row: str = "") -> Value:
        if not 0 <= point <= self.architecture.n_layers:
            raise self.fault(f"there is no stream after {point} layers: the model has {self.architecture.n_layers}", at)
        return self._turned(placed(self.quantities.stream(point), at, row))

    def _turned(self, value: Value) -> Value:
        """A value with a row for each token, in the orientation of this reading."""
        return self.algebra.transposed(value, 0) if self.reading.columns else value

    def _side(self, node: Name, labels: tuple[str, ...], positions: tuple[str, ...], env: Environment) -> Value:
        own = tuple(p for p in labels if p not in self.roles.positions)
        head = self.head_called(self._head(own, env, node.at, "W_Q"), node.at)
        row = positions[0] if positions else ""
        if node.text in "qk":
            value = placed(self.quantities.side(head, node.text == "k"), node.at, row)
            if self.architecture.positions == "rotary":
                value = self._rotated(value, node.at, row, str(head))
            return self._turned(value)
        value = self.quantities.averaged(head) if node.text == "z" else self.quantities.values(head)
        return self._turned(placed(value, node.at, row))

    def _rotated(self, value: Value, at: int, row: str, head: str) -> Value:
        turn = Letter("R", f"{head}@{row}")
        return [
            w._replace(slots=tuple(Chain((*c.factors, RawFactor(turn, at)), c.row) for c in w.slots or ()))
            for w in value
        ]

    def _rotation(self, node: Name, labels: tuple[str, ...], env: Environment) -> Value:
        """``R_m``, or ``R_{n-m}``, which is ``R_m^T R_n``; both act on columns. ``R_{L1H0, i}`` acts on row i."""
        own = tuple(p for p in labels if re.fullmatch(ANY_OWNER, p)
                    or not set(re.findall(r"[a-z]", p)) <= self.roles.positions)  # fmt: skip
        head = self._head(own, env, node.at, "W_Q")
        part = next((p for p in labels if p not in own), "")
        pair = re.fullmatch(r"([a-z])-([a-z])", part)
        if pair:
            return letter_value(Letter("R", f"{head}@{pair[2]}-{pair[1]}"), node.at)
        value = letter_value(Letter("R", f"{head}@{part}"), node.at)
        rows = any(re.fullmatch(ANY_OWNER, p) for p in own)  # as the shaped expressions of the SymPy layer print it
        return value if rows and not self.reading.columns else self.algebra.transposed(value, node.at)

    def _head_output(self, node: Name, labels: tuple[str, ...], env: Environment) -> Value:
        head = self.head_called(self._head(labels, env, node.at, "A"), node.at)
        return self._turned(placed(self.quantities.head(head), node.at))

    def _sliced(self, value: Value, parts: Sequence[str], at: int) -> Value:
        """Rows and columns of a matrix in code: those of tokens are ``t M t^T``, all others the matrix itself."""
        t = Chain((RawFactor(Letter("t"), at),))
        out = []
        for w in value:
            if not w.slots or len(w.slots) != 1:
                raise self.fault("only matrices can be sliced", at)
            chain = w.slots[0]
            row, col = self.sizes.ends(chain)
            if parts and "token" in parts[0] and row == "input":
                chain = Chain(t.factors + chain.factors)
            if len(parts) > 1 and "token" in parts[1] and col == "input":
                chain = Chain(chain.factors + t.T.factors)
            out.append(w._replace(slots=(chain,)))
        return out


def text_is_rotation(node: Name) -> bool:
    """Whether a name is a rotation by its subscript: ``R_m``, ``R_{n-m}``."""
    return node.text == "R" and any(s.kind == "sub" for s in node.scripts)
