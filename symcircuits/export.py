"""Words handed on: as shaped SymPy matrix expressions, and as NumPy functions of named arrays.

A product is built directly (``MatMul(*factors)``), so that SymPy neither reorders nor merges it, of ``MatrixSymbol``s
whose names are Python identifiers, so that ``lambdify`` keeps them; it is printed by a printer of our own, whose
products and transposes act on the last two axes and so are right on batches. SymPy and NumPy are imported on use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn, final

from symcircuits.algebra import Factor, Index, Symbol, Word, unfuse

__all__ = ["TermFunction", "lambdify_word", "lambdify_words", "word_expr"]

Shape = tuple[str, ...]

_SIZES: Final = {
    "context": "n_context",
    "model": "d_model",
    "attention_input": "d_model",
    "vocab_in": "d_vocab",
    "vocab_out": "d_vocab_out",
    "qk": "d_head",
    "ov": "d_head",
    "one": "1",
}
_BATCHED: Final = ("t", "A")
# Every array that a model can hand over; what is none of these is a mistake.
_KNOWN: Final = re.compile(r"(t|X0|W_E|W_U|W_pos|P|b_U|ones)|(A|W_[QKVO]|W_OV|W_QK|b_[VQK]|scale)_L\d+H\d+|b_O_L\d+")
_MEANING: Final = {
    "t": "tokens, one-hot",
    "W_E": "token embedding",
    "W_U": "unembedding",
    "P": "position embedding",
    "A": "attention pattern",
    "W_OV": "W_O @ W_V",
    "W_QK": "W_Q.T @ W_K",
    "scale": "score scale",
}


# ------------------------------------------------------------------------------- SymPy matrix expressions
def _size(index: Index) -> str:
    """The name of an index's size: ``d_model``, ``d_head_L0H1``, or ``1``."""
    name = _SIZES[index.space.kind]
    return f"{name}_{index.space.owner}" if index.space.owner else name


def _shape(symbol: Symbol) -> Shape:
    return (_size(symbol.row), _size(symbol.col))


def word_expr(word: Word, sizes: Mapping[str, Any] | None = None) -> Any:
    """The word as a SymPy ``MatMul`` of ``MatrixSymbol``s, in its order, the scale in front.

    ``W_OV`` and ``W_QK`` stay one symbol each, ``X0`` is written ``t W_E^T``, ``ones`` is ``OneMatrix(n_context, 1)``.
    Sizes are the symbols ``n_context``, ``d_model``, ``d_vocab``, ``d_vocab_out``, ``d_head_L0H1``, or those given in
    ``sizes`` (``d_head`` stands for every head). With given sizes SymPy itself refuses a product that does not fit;
    with symbolic ones it does not, which is why words are checked by types of their own. The shape is that of the
    target: ``(n_context, d_vocab_out)``, ``(n_context, n_context)`` or ``(n_context, d_model)``. Raises ValueError on
    an unknown or impossible size. Source: SymPy's matrix expressions.

    >>> from symcircuits.algebra import Word
    >>> from symcircuits.architecture import embedding
    >>> word_expr(Word(embedding())), word_expr(Word(embedding()), {"n_context": 7, "d_model": 16}).shape
    (t*W_E.T, (7, 16))
    """
    from sympy import OneMatrix

    given = _given_sizes(sizes or {})
    return _expression(word, given, OneMatrix(_dimension("n_context", given), 1))


def _expression(word: Word, given: Mapping[str, Any], ones: Any) -> Any:
    from sympy import MatMul, Symbol

    scales = [Symbol(f"scale_{label}") for label in word.scales]
    matrices = []
    for f in _written(word):
        matrix = ones if f.symbol.glyph == "ones" else _matrix(f.symbol, given)
        matrices.append(matrix.T if f.transposed else matrix)
    return matrices[0] if len(matrices) == 1 and not scales else MatMul(*scales, *matrices)


def _written(word: Word) -> list[Factor]:
    """The factors as they are exported: ``W_OV`` and ``W_QK`` fused, ``X0`` written out."""
    return [g for f in word.fused for g in (unfuse((f,)) if f.symbol.glyph == "X0" else (f,))]


def _matrix(symbol: Symbol, given: Mapping[str, Any]) -> Any:
    from sympy import MatrixSymbol

    return MatrixSymbol(symbol.argument, *(_dimension(name, given) for name in _shape(symbol)))


def _dimension(name: str, given: Mapping[str, Any]) -> Any:
    from sympy import Integer, Symbol

    if name == "1":
        return Integer(1)
    found = given.get(name, given.get("d_head") if name.startswith("d_head_") else None)
    return Symbol(name, integer=True, positive=True) if found is None else found


def _given_sizes(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The given sizes, checked: known names, whole numbers from 1 on (or SymPy's whole symbols)."""
    known = sorted({size for size in _SIZES.values() if size != "1"})
    for name, value in sizes.items():
        if name not in known and not re.fullmatch(r"d_head_L\d+H\d+", name):
            raise ValueError(f"there is no size {name!r}; the sizes are {', '.join(known)}, d_head_L0H1, ...")
        whole = hasattr(value, "__index__") and not isinstance(value, bool) and value >= 1
        if not whole and getattr(value, "is_integer", None) is not True:
            raise ValueError(f"size {name} must be a whole number from 1 on, not {value!r}")
    return dict(sizes)


# ------------------------------------------------------------------------------------------ NumPy source
@cache
def _printer() -> Any:
    """SymPy's NumPy printer, with products and transposes over the last two axes."""
    from sympy import S
    from sympy.printing.numpy import NumPyPrinter

    class BatchPrinter(NumPyPrinter):  # type: ignore[misc]
        def _print_MatMul(self, expr: Any) -> str:
            scalar, matrices = expr.as_coeff_matrices()
            product = " @ ".join(self.parenthesize_matrix(m) for m in matrices)
            return product if scalar is S.One else f"{self._print(scalar)}*({product})"

        def _print_MatPow(self, expr: Any) -> str:
            base, power = expr.args
            if not (power.is_Integer and power > 0):
                raise NotImplementedError(f"cannot print the power {expr}")
            return "(" + " @ ".join([self.parenthesize_matrix(base)] * int(power)) + ")"

        def _print_Transpose(self, expr: Any) -> str:
            return f"{self.parenthesize_matrix(expr.arg)}.swapaxes(-1, -2)"

        def parenthesize_matrix(self, expr: Any) -> str:
            text = str(self._print(expr))
            return f"({text})" if expr.is_MatMul or expr.is_MatAdd else text

    return BatchPrinter


def _compile(words: Sequence[Word]) -> tuple[_Inputs, list[str], Callable[..., Any]]:
    """What the words need, in order of first appearance, their sources, and one function for all."""
    from sympy import MatrixSymbol, Symbol, lambdify

    needed: dict[str, Any] = {}
    for word in words:
        needed |= {f"scale_{label}": None for label in word.scales}
        needed |= {f.symbol.argument: f.symbol for f in _written(word) if f.symbol.argument not in needed}
    ones = MatrixSymbol("ones", _dimension("n_context", {}), 1)
    letters = [
        ones if name == "ones" else Symbol(name) if symbol is None else _matrix(symbol, {})
        for name, symbol in needed.items()
    ]
    expressions = [_expression(word, {}, ones) for word in words]
    printer = _printer()({"fully_qualified_modules": False})
    function = lambdify(letters, expressions, modules="numpy", printer=_printer())
    return _Inputs(needed), [printer.doprint(e) for e in expressions], function


# ------------------------------------------------------------------------------- arguments and functions
@final
class TermFunction:
    """A term as a NumPy function of named arrays: call it with keywords, in the paper's shapes.

    ``arguments`` are the names that it needs, in order of first appearance; ``source`` the Python text that is run.
    ``t: [..., n_context, d_vocab]`` and the patterns ``A_L0H1: [..., n_context, n_context]`` may have leading batch
    axes; weights are ``W_E [d_model, d_vocab]``, ``W_OV [d_model, d_model]``, ...; biases ``[d]`` or ``[d, 1]``; a
    scale is a number. ``W_O`` and ``W_V`` may stand in for ``W_OV``, ``W_Q`` and ``W_K`` for ``W_QK``; arguments of
    other terms are ignored, so that one can pass all arrays of a model. ``ones [n_context, 1]`` is made where it is not
    given, from ``n_context`` of any ``A``, ``t`` or ``P`` that is given; a term that is the same row for every token,
    called with nothing that tells ``n_context``, returns that one row ``[1, d]``. The dtype of the arrays is kept.

    Raises TypeError on missing and on unknown names, ValueError on a wrong shape.

    >>> from symcircuits.architecture import attention_only
    >>> from symcircuits.expansion import logits
    >>> term = logits(attention_only((1,)))[1].lambdify()
    >>> term.arguments
    ('A_L0H0', 't', 'W_E', 'W_OV_L0H0', 'W_U')
    >>> print(term.source)
    A_L0H0 @ t @ W_E.swapaxes(-1, -2) @ W_OV_L0H0.swapaxes(-1, -2) @ W_U.swapaxes(-1, -2)
    >>> term(A_L0H0=[[1, 0], [0.5, 0.5]], t=[[1, 0], [0, 1]], W_E=[[1, 3]], W_OV_L0H0=[[2]], W_U=[[1], [10]])
    array([[ 2., 20.],
           [ 4., 40.]])
    """

    __slots__ = ("_function", "_inputs", "arguments", "source")

    def __init__(self, source: str, inputs: _Inputs, function: Callable[..., Any]) -> None:
        self.source, self._inputs, self._function = source, inputs, function
        self.arguments: tuple[str, ...] = tuple(n for n in inputs.symbols if n != "ones")

    def __call__(self, /, **arrays: Any) -> Any:
        """The value of the term, ``[..., rows, columns]``."""
        return _evaluate(self._function, self._inputs.bind(arrays))[0]

    def __repr__(self) -> str:
        return f"<TermFunction of {', '.join(self.arguments)}: {self.source}>"


def lambdify_word(word: Word) -> TermFunction:
    """The word as a NumPy function of named arrays, through ``sympy.lambdify`` and a printer of our own.

    >>> from symcircuits.algebra import Word
    >>> from symcircuits.architecture import embedding
    >>> lambdify_word(Word(embedding()))(t=[[1, 0], [0, 1]], W_E=[[2.0, 3.0]]).tolist()
    [[2.0], [3.0]]
    """
    inputs, sources, function = _compile([word])
    return TermFunction(sources[0], inputs, function)


def lambdify_words(words: Iterable[Word]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Many words as one function: from a mapping of named arrays to the list of their values, in order.

    One ``lambdify`` for all, about 0.3 ms a word rather than 8. Arguments and errors as in :class:`TermFunction`.

    >>> from symcircuits.architecture import attention_only
    >>> from symcircuits.expansion import stream
    >>> values = lambdify_words(term.word for term in stream(attention_only((1,))))
    >>> [v.tolist() for v in values({"t": [[1.0]], "W_E": [[2.0]], "A_L0H0": [[1.0]], "W_OV_L0H0": [[3.0]]})]
    [[[2.0]], [[6.0]]]
    """
    inputs, _, function = _compile(list(words))
    return lambda arrays: _evaluate(function, inputs.bind(arrays))


def _evaluate(function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """The results; one that is a view of an input (a word of one factor) is copied."""
    inputs = {id(v) for v in values}
    return [r.copy() if r.base is not None or id(r) in inputs else r for r in function(*values)]


class _Inputs:
    """What a function needs by name (None: a scale), and how given arrays become its values."""

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
        """The matrices that are taken from the given arrays; TypeError when some are missing."""
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
            raise TypeError(f"missing {len(missing)} argument(s): " + "; ".join(missing))
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
        return f"{name}, a number (score scale)"
    meaning = _MEANING.get(symbol.glyph)
    return f"{name} {_words(symbol)}" + (f" ({meaning})" if meaning else "")


def _words(symbol: Symbol) -> str:
    return f"[{'..., ' if symbol.glyph in _BATCHED else ''}{', '.join(_shape(symbol))}]"


def _array(name: str, value: Any, symbol: Symbol) -> Any:
    """The value as an array; a bias or ``ones`` of one axis becomes a column."""
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError as fault:
        raise ValueError(f"{_described(name, symbol)} is no array: {fault}") from None
    if array.dtype.kind in "SUMm":
        raise ValueError(f"{_described(name, symbol)} must hold numbers, not {array.dtype}")
    return array[:, None] if array.ndim == 1 and _shape(symbol)[1] == "1" else array


def _number(name: str, value: Any) -> Any:
    """A scale as a plain number, so that it does not widen the dtype of the arrays."""
    import numpy as np

    if np.ndim(value) or np.asarray(value).dtype.kind in "SUMm" or value is None:
        raise ValueError(f"{name} must be one number, not {'an array' if np.ndim(value) else repr(value)}")
    return value.item() if hasattr(value, "item") else value


def _share_dtype(values: dict[str, Any]) -> None:
    """Whole numbers (one-hot ``t``) take the floating dtype of the others, so that float32 stays float32.

    Where all are whole they become int64, in which small ones cannot overflow.
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
    """``n_context`` as told by any pattern, ``t``, ``X0`` or ``P`` among the given arrays; 1 where nothing tells it."""
    import numpy as np

    for name in [*(n for n in arrays if n.startswith("A_")), "t", "X0", "P"]:
        if name in arrays and np.ndim(arrays[name]) >= 2:
            return int(np.shape(arrays[name])[-2])
    return 1


# ---------------------------------------------------------------------------------------- shapes
def _check_shapes(symbols: Mapping[str, Symbol], arrays: Mapping[str, Any]) -> dict[str, int]:
    """The sizes by name; ValueError names the argument whose shape does not fit the others."""
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    for name, shape in shapes.items():
        batched = symbols[name].glyph in _BATCHED
        if len(shape) < 2 or (len(shape) > 2 and not batched):
            rest = {n: s for n, s in shapes.items() if n != name and len(s) >= 2}
            more = "" if batched else "; only t and A have leading axes"
            _refuse(name, symbols, shape, _majority(symbols, rest), more)
    if not _fits(symbols, shapes):
        _blame(symbols, shapes)
    _check_leading({n: s[:-2] for n, s in shapes.items() if len(s) > 2})
    return _majority(symbols, shapes)


def _blame(symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[int, ...]]) -> NoReturn:
    """Refuse the argument whose transpose would mend everything, else the first that the majority contradicts."""
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
    return tuple(sizes[d] for d in _shape(symbol))


def _said(symbol: Symbol, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    """The sizes by name that a shape gives."""
    return list(zip(_shape(symbol), shape[-2:], strict=True))


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
    """For each size the number that most arguments give it, the first of several."""
    votes: dict[str, dict[int, int]] = {}
    for name, shape in shapes.items():
        for size, n in dict.fromkeys(_said(symbols[name], shape)):
            tally = votes.setdefault(size, {})
            tally[n] = tally.get(n, 0) + 1
    return {size: max(tally, key=lambda n: tally[n]) for size, tally in votes.items()} | {"1": 1}


def _refuse(
    name: str, symbols: Mapping[str, Symbol], shape: tuple[int, ...], sizes: Mapping[str, int], more: str
) -> NoReturn:
    numbers = ", ".join(str(sizes.get(d, "?")) for d in _shape(symbols[name]))
    dots = "..., " if symbols[name].glyph in _BATCHED else ""
    raise ValueError(f"{_described(name, symbols[name])} must have shape [{dots}{numbers}], not {list(shape)}{more}")
