"""The meaning of functions in formulas: softmax, norms, roots, einsum, and functions that a text defines."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from symcircuits.checking.environment import Environment
from symcircuits.checking.known_names import KnownNames
from symcircuits.checking.labels import Definition
from symcircuits.checking.quantities import placed
from symcircuits.checking.roles import split_indices
from symcircuits.checking.syntax import Call, Name, Node, Text
from symcircuits.checking.values import IDENTITY, Value, Word
from symcircuits.core.architecture import FINAL, Head

__all__ = ["Calls", "is_letter"]

_STREAMS: Final = ("x", "X", "r", "resid")
_NORMS: Final = ("LN", "RMSNorm", "LayerNorm")


class Calls(KnownNames):
    """The values of calls."""

    @abstractmethod
    def value(self, root: Node, env: Environment, depth: int = 0) -> Value:
        """The value of a node."""

    def _call(self, node: Call, env: Environment, depth: int) -> Value:
        function = node.function
        name = function.text if isinstance(function, Name) else ""
        arguments = node.arguments
        defined = self.definitions.get(name)
        if defined is not None and defined.called:
            return self._applied(defined, name, node, env, depth)
        if name == "einsum":
            return self._einsum(node, env, depth)
        if name in _NORMS and self.architecture.norm and len(arguments) == 1:
            return self._normed_stream(node, env)
        own = name in ("Attn", "attn") and defined is not None  # its definition is compared with the model by itself
        if own and len(arguments) == 1 and isinstance(arguments[0], Name):
            point = self.point(arguments[0], env) if arguments[0].text in ("x", "X") else None
            if point is not None and 0 <= point < self.architecture.n_layers:  # the heads that read it
                return self._turned(placed(self.quantities.attention(point), node.at))
        values = [self.value(a, env, depth + 1) for a in arguments]
        if not name or defined is not None or (len(values) == 2 and name not in ("FactoredMatrix", "inner")):
            if len(values) != 2:
                map_ = self.value(function, env, depth + 1)
                return self.algebra.times(map_, values[0], node.at) if values else map_
            return self.algebra.bilinear(self.value(function, env, depth + 1), values[0], values[1], node.at)
        if name == "FactoredMatrix" and len(values) == 2:
            return self.algebra.times(values[0], values[1], node.at)
        if name == "sqrt" and len(values) == 1:
            return self._root(values[0], node)
        if name == "inner" and len(values) == 2:
            turned = [self.algebra.transposed(values[i], node.at) for i in (0, 1)]
            pair = (turned[0], values[1]) if self.reading.columns else (values[0], turned[1])
            return self.algebra.times(*pair, node.at)
        if name == "diag" and len(values) == 1 and is_letter(values[0], "gain"):
            return values[0]
        if name in ("sigma", "rms", "std") and len(values) == 1:
            return [Word(1, (f"σ{self._norm_of(arguments[0], env)}",), ())]
        if name == "softmax" and values:
            return self._softmax(values[0], node)
        if name == "norm" and values:
            return [Word(1, (f"‖{node.at}‖",), ())]
        if name == "transpose" and values:
            return self.algebra.transposed(values[0], node.at)
        if name in env and isinstance(env[name], Head) and len(values) == 1:
            return self._turned(self.quantities.head(env[name], self._turned(values[0])))  # type: ignore[arg-type]
        if name == "h" and len(values) == 1:
            head = self._asked(name, "head", env, node.at)
            assert isinstance(head, Head)
            return self._turned(self.quantities.head(head, self._turned(values[0])))
        found = self.value(function, env, depth + 1) if isinstance(function, Name) else []
        return self.algebra.times(found, values[0], node.at) if values else found

    def _applied(self, defined: Definition, name: str, node: Call, env: Environment, depth: int) -> Value:
        """A function that the text defines, applied to its argument; its name is a head if the body uses it as one."""
        self.noted.used.add(name)
        before = {p: self.definitions.get(p) for p in defined.parts}
        for part, argument in zip(defined.parts, node.arguments, strict=False):
            if isinstance(argument, Name) and argument.text == part and not argument.scripts:
                continue
            self.definitions[part] = Definition(argument, ())
        value = self.value(defined.node, env, depth + 1)
        for part, old in before.items():
            if old is None:
                self.definitions.pop(part, None)
            else:
                self.definitions[part] = old
        return value

    def _root(self, value: Value, node: Call) -> Value:
        if (
            len(value) == 1
            and value[0].slots == ()
            and value[0].scales in (("d",), ("δ",))
            and value[0].coefficient == 1
        ):
            return [Word(1, ("√" + value[0].scales[0],), ())]
        raise self.fault("a root must be of a dimension, sqrt(d_head)", node.at)

    def _normed_stream(self, node: Call, env: Environment) -> Value:
        """``LN(X_1)``: the output of the norm that reads a stream, with its scale frozen."""
        [stream] = node.arguments
        point = self.point(stream, env) if isinstance(stream, Name) and stream.text in ("x", "X") else None
        if point is None or not isinstance(stream, Name):
            raise self.fault("a norm must be of a stream after a number of layers, e.g. LN(X_1)", node.at)
        layers = self.architecture.n_layers
        if not 0 <= point <= layers or (point == layers and not self.architecture.unembed):
            raise self.fault(f"no norm reads a stream after {point} layers: the model has {layers}", node.at)
        label = FINAL if point == layers else self.architecture.norm_label(point)
        row = next((p for s in stream.scripts for p in split_indices(s.parts) if p in self.roles.positions), "")
        return self._turned(placed(self.quantities.normed(label), node.at, row))

    def _norm_of(self, node: Node, env: Environment) -> str:
        """The norm that the sigma of a stream belongs to; ``!`` for something that is not a stream."""
        if isinstance(node, Name) and node.text in _STREAMS:
            point = self.point(node, env)
            if point == self.architecture.n_layers:
                return "final"
            if point is not None and point < self.architecture.n_layers and point > 0:
                return f"L{point}"
            if point is None:
                return ""
        return "!"

    def _softmax(self, value: Value, node: Call) -> Value:
        """The pattern of the head whose scores these are."""
        scripts = node.function.scripts if isinstance(node.function, Name) else ()
        if len(scripts) > 1 or any(s.kind != "sub" or len(s.parts) != 1 for s in scripts):
            raise self.fault("the only label of softmax is the index that it runs over", node.at)
        if len(node.arguments) != 1:
            raise self.fault("softmax takes only scores, without further arguments", node.at)
        return self.pattern_of(self, value, scripts[0].parts[0] if scripts else "", node.at)

    def _einsum(self, node: Call, env: Environment, depth: int) -> Value:
        """A chain of matrices, written with named indices; an index that all heads share is ignored."""
        pattern = next((a for a in node.arguments if isinstance(a, Text)), None)
        operands = [a for a in node.arguments if not isinstance(a, Text)]
        left, arrow, right = (pattern.text if pattern else "").partition("->")
        if not arrow or not operands:
            raise self.fault("einsum needs its pattern, e.g. 'h k m, h n k -> h m n'", node.at)
        rows = [_indices(part) for part in left.split(",")]
        wanted = _indices(right)
        if len(rows) != len(operands):
            raise self.fault(f"einsum has {len(operands)} matrices, but its pattern names {len(rows)}", node.at)
        shared = {
            i
            for i in wanted
            if sum(i in r for r in rows) >= 1 and len(wanted) > 2 and any(len(r) > 2 and r[0] == i for r in rows)
        }
        wanted = [i for i in wanted if i not in shared]
        edges = [
            ([i for i in r if i not in shared], self.value(o, env, depth + 1))
            for r, o in zip(rows, operands, strict=True)
        ]
        if len(wanted) != 2 or any(len(r) != 2 for r, _ in edges):
            raise self.fault("this einsum cannot be read: it is not a chain of matrices", node.at)
        at, out = wanted[0], list(IDENTITY)
        while edges:
            i = next((i for i, (r, _) in enumerate(edges) if at in r), None)
            if i is None:
                raise self.fault("this einsum cannot be read: it is not a chain of matrices", node.at)
            ends, value = edges.pop(i)
            out = self.algebra.times(out, value if ends[0] == at else self.algebra.transposed(value, node.at), node.at)
            at = ends[1] if ends[0] == at else ends[0]
        if at != wanted[1]:
            raise self.fault("this einsum cannot be read: it is not a chain of matrices", node.at)
        return out


def _indices(text: str) -> list[str]:
    words = text.split()
    return list(words[0]) if len(words) == 1 and len(words[0]) > 1 and "_" not in words[0] else words


def is_letter(value: Value, glyph: str) -> bool:
    return len(value) == 1 and bool(value[0].slots) and [f.letter.glyph for f in value[0].slots[0].factors] == [glyph]  # type: ignore[index]
