"""The arguments of lambdified terms: the arrays needed, their shapes, and the faults of those given.

NumPy is imported on use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from symcircuits.core.symbols import LETTERS, MEANINGS, OWNERS
from symcircuits.core.text import amount
from symcircuits.core.words import Symbol
from symcircuits.sympy_layer.letters import shape_of

__all__ = ["Inputs", "leading_axes"]

_BATCHED: Final = ("t", "A", "D", "mlp", "rest", "part", "mask")
# Every array that a model can supply; any other name is a mistake.
_KNOWN: Final = re.compile(
    "|".join(name + f"_{OWNERS[letter.label]}" * bool(letter.label) for name, letter in LETTERS.items())
    + r"|W_pos|(read|part)_\w+"  # attached sources and readouts
)
_MEANING: Final = MEANINGS | {"read": "readout, a direction in each row", "part": "source"}


def _sort(symbol: Symbol) -> str:
    """The glyph, or the kind of an attachment: ``read`` or ``part``."""
    return symbol.own or symbol.glyph


class Inputs:
    """The arrays that a function needs by name (None: a scale), and how given arrays become its values."""

    __slots__ = ("symbols",)

    def __init__(self, symbols: Mapping[str, Symbol | None]) -> None:
        self.symbols = dict(symbols)

    def bind(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The values in order, checked; see :class:`TermFunction`."""
        self._refuse_unknown(arrays)
        used = self._used(arrays)
        values = {name: _array(name, arrays[name], symbol) for name, symbol in used.items()}
        _share_dtype(values)
        sizes = _check_shapes(used, values)
        if "ones" in self.symbols and "ones" not in values:
            values["ones"] = _ones(sizes.get("n_context") or _context_of(arrays), values)
        found = []
        for name, symbol in self.symbols.items():
            if symbol is None:
                found.append(_number(name, arrays[name]))
            elif name in values:
                found.append(values[name])
            else:
                first, second = symbol.parts
                left = values[first.symbol.argument]
                found.append((left.swapaxes(-1, -2) if first.transposed else left) @ values[second.symbol.argument])
        return found

    def _used(self, arrays: Mapping[str, Any]) -> dict[str, Symbol]:
        """The matrices taken from the given arrays; raises TypeError if some are missing."""
        used: dict[str, Symbol] = {}
        missing = []
        for name, symbol in self.symbols.items():
            parts = {f.symbol.argument: f.symbol for f in symbol.parts} if symbol else {}
            if name in arrays:
                used |= {name: symbol} if symbol else {}
            elif parts and parts.keys() <= arrays.keys():
                used |= parts
            elif name != "ones":
                missing.append(_described(name, symbol) + (f", or both {' and '.join(parts)}" if parts else ""))
        if missing:
            raise TypeError(f"missing {amount(len(missing), 'argument')}: " + "; ".join(missing))
        return used

    def _refuse_unknown(self, arrays: Mapping[str, Any]) -> None:
        unknown = [name for name in arrays if not _KNOWN.fullmatch(name)]
        if unknown:
            close = difflib.get_close_matches(unknown[0], self.symbols, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            names = ", ".join(n for n in self.symbols if n != "ones")
            raise TypeError(f"there is no argument {', '.join(map(repr, unknown))}{hint}; the arguments are {names}")


def _described(name: str, symbol: Symbol | None) -> str:
    """``A_L0H1 [..., n_context, n_context] (attention pattern)``."""
    if symbol is None:
        return f"{name}, a number ({'score scale' if name.startswith('scale') else 'multiplier'})"
    meaning = _MEANING.get(_sort(symbol))
    return f"{name} {_words(symbol)}" + (f" ({meaning})" if meaning else "")


def _words(symbol: Symbol) -> str:
    if symbol.glyph == "R":
        return "[n_context, d_head, d_head]"
    return f"[{'..., ' if _sort(symbol) in _BATCHED else ''}{', '.join(shape_of(symbol))}]"


def _array(name: str, value: Any, symbol: Symbol) -> Any:
    """The value as an array; a bias or ``ones`` of one axis becomes a column, a gain of one axis a diagonal matrix."""
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError as fault:
        raise ValueError(f"{_described(name, symbol)} is not an array: {fault}") from None
    if array.dtype.kind in "SUMm":
        raise ValueError(f"{_described(name, symbol)} must hold numbers, not {array.dtype}")
    if array.ndim == 1 and symbol.glyph == "gain":
        return np.diag(array)
    return array[:, None] if array.ndim == 1 and shape_of(symbol)[1] == "1" else array


def _number(name: str, value: Any) -> Any:
    """A scale as a plain number, so it does not widen the dtype of the arrays."""
    import numpy as np

    if np.ndim(value) or np.asarray(value).dtype.kind in "SUMm" or value is None:
        raise ValueError(f"{name} must be one number, not {'an array' if np.ndim(value) else repr(value)}")
    return value.item() if hasattr(value, "item") else value


def _share_dtype(values: dict[str, Any]) -> None:
    """Integers (one-hot ``t``) take the floating dtype of the others, so float32 stays float32.

    If all are integers they become int64, in which small ones cannot overflow.
    """
    import numpy as np

    floating = [v.dtype for v in values.values() if v.dtype.kind not in "biu"]
    common = np.result_type(*floating) if floating else np.dtype(np.int64)
    for name, v in values.items():
        if v.dtype.kind in "biu":
            values[name] = v.astype(common, copy=False)


def _ones(n: int, values: Mapping[str, Any]) -> Any:
    import numpy as np

    return np.ones((n, 1), dtype=np.result_type(*(v.dtype for v in values.values())))


def _context_of(arrays: Mapping[str, Any]) -> int:
    """``n_context`` from any pattern, ``t``, ``X0`` or ``P`` among the given arrays; 1 if it is unknown."""
    import numpy as np

    for name in [*(n for n in arrays if n.startswith("A_")), "t", "X0", "P"]:
        if name in arrays and np.ndim(arrays[name]) >= 2:
            return int(np.shape(arrays[name])[-2])
    return 1


# ---------------------------------------------------------------------------------------- shapes
def _check_shapes(symbols: Mapping[str, Symbol], arrays: Mapping[str, Any]) -> dict[str, int]:
    """The sizes by name; ValueError names the argument whose shape does not fit the others."""
    shapes = {name: _checked_rows(name, tuple(a.shape), symbols[name]) for name, a in arrays.items()}
    for name, shape in shapes.items():
        batched = _sort(symbols[name]) in _BATCHED
        if len(shape) < 2 or (len(shape) > 2 and not batched):
            rest = {n: s for n, s in shapes.items() if n != name and len(s) >= 2}
            more = "" if batched else "; only t and A have leading axes"
            _refuse(name, symbols, shape, _majority(symbols, rest), more)
    if not _fits(symbols, shapes):
        _blame(symbols, shapes)
    _check_leading({n: s[:-2] for n, s in shapes.items() if len(s) > 2})
    return _majority(symbols, shapes)


def _checked_rows(name: str, shape: tuple[int, ...], symbol: Symbol) -> tuple[int, ...]:
    """The shape; for rotations, that of one row's: they are ``[n_context, d_head, d_head]``."""
    if symbol.glyph != "R":
        return shape
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"{_described(name, symbol)} must have shape [n_context, d_head, d_head], not {list(shape)}")
    return shape[1:]


def _blame(symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[int, ...]]) -> NoReturn:
    """Raise for the argument whose transpose would fit everything, else for the first that the majority contradicts."""
    for name, s in shapes.items():
        turned = {**shapes, name: (*s[:-2], s[-1], s[-2])}
        if _fits(symbols, turned):
            _refuse(name, symbols, s, _majority(symbols, turned), "; its transpose would fit")
    sizes = _majority(symbols, shapes)
    wrong = next(n for n, s in shapes.items() if _expected(symbols[n], sizes) != s[-2:])
    more = "; its transpose would fit" if _expected(symbols[wrong], sizes) == shapes[wrong][:-3:-1] else ""
    for size, n in dict.fromkeys(_said(symbols[wrong], shapes[wrong])):
        others = (o for o, s in shapes.items() if o != wrong and (size, sizes[size]) in _said(symbols[o], s))
        other = next(others, None)
        more += f"; {size} is {sizes[size]} in {other}" if other and n != sizes[size] else ""
    _refuse(wrong, symbols, shapes[wrong], sizes, more)


def _expected(symbol: Symbol, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[d] for d in shape_of(symbol))


def _said(symbol: Symbol, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    """The sizes by name in a shape."""
    return list(zip(shape_of(symbol), shape[-2:], strict=True))


def _fits(symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    sizes = _majority(symbols, shapes)
    return all(_expected(symbols[n], sizes) == s[-2:] for n, s in shapes.items())


def _check_leading(leading: Mapping[str, tuple[int, ...]]) -> None:
    import numpy as np

    try:
        np.broadcast_shapes(*leading.values())
    except ValueError:
        seen = ", ".join(f"{n} {list(s)}" for n, s in leading.items())
        raise ValueError(f"the leading (batch) axes of these arguments do not fit together: {seen}") from None


def _majority(symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """For each size the number that most arguments give it; the first, if there are several."""
    votes: dict[str, dict[int, int]] = {}
    for name, shape in shapes.items():
        for size, n in dict.fromkeys(_said(symbols[name], shape)):
            tally = votes.setdefault(size, {})
            tally[n] = tally.get(n, 0) + 1
    return {size: max(tally, key=lambda n: tally[n]) for size, tally in votes.items()} | {"1": 1}


def _refuse(
    name: str, symbols: Mapping[str, Symbol], shape: tuple[int, ...], sizes: Mapping[str, int], more: str
) -> NoReturn:
    numbers = ", ".join(str(sizes.get(d, "?")) for d in shape_of(symbols[name]))
    dots = "..., " if _sort(symbols[name]) in _BATCHED else ""
    raise ValueError(f"{_described(name, symbols[name])} must have shape [{dots}{numbers}], not {list(shape)}{more}")


def leading_axes(arrays: Mapping[str, Any]) -> tuple[int, ...]:
    """The batch axes of all arguments that may have some (``t`` and patterns), used by the term or not."""
    import numpy as np

    named = (name for name in arrays if name.partition("_")[0] in _BATCHED)  # others may be computed on demand
    batched = {name: np.shape(arrays[name])[:-2] for name in named}
    try:
        return np.broadcast_shapes(*batched.values())
    except ValueError:
        seen = ", ".join(f"{list(axes)} of {name}" for name, axes in batched.items())
        raise ValueError(f"the batch axes of the arguments do not go together: {seen}") from None
