"""Words handed on: as shaped SymPy matrix expressions, and as NumPy functions of named arrays.

A product is built directly (``MatMul(*factors)``), so that SymPy neither reorders nor merges it, of ``MatrixSymbol``s
whose names are Python identifiers, so that ``lambdify`` keeps them; it is printed by a printer of our own, whose
products and transposes act on the last two axes and so are right on batches. SymPy and NumPy are imported on use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, final

from symcircuits.core.text import as_whole, shown
from symcircuits.core.words import Factor, Symbol, Word, scalar_argument, unfuse
from symcircuits.sympy_layer.arguments import SIZES, Inputs, leading_axes, shape_of

__all__ = ["TermFunction", "lambdify_word", "lambdify_words", "word_expr"]


# ------------------------------------------------------------------------------- SymPy matrix expressions
def word_expr(word: Word, sizes: Mapping[str, Any] | None = None) -> Any:
    """The word as a SymPy ``MatMul`` of ``MatrixSymbol``s, in its order, its scalars in front.

    ``W_OV`` and ``W_QK`` stay one symbol each, ``X0`` is written ``t W_E^T``, ``ones`` is ``OneMatrix(n_context, 1)``.
    Sizes are the symbols ``n_context``, ``d_model``, ``d_vocab``, ``d_vocab_out``, ``d_head_L0H1``, or those given in
    ``sizes`` (``d_head`` stands for every head). Where positions are rotary the sides of a score stand inside
    ``Turned(M, R)``: row i of ``M`` times the i-th matrix of ``R``. With given sizes SymPy itself refuses a product
    that does not fit; with symbolic ones it does not, which is why words are checked by types of their own. The shape
    is that of the target: ``(n_context, d_vocab_out)``, ``(n_context, n_context)`` or ``(n_context, d_model)``. Raises
    ValueError on an unknown or impossible size. Source: SymPy's matrix expressions.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> word_expr(Word(embedding())), word_expr(Word(embedding()), {"n_context": 7, "d_model": 16}).shape
    (t*W_E.T, (7, 16))
    """
    from sympy import OneMatrix

    given = _given_sizes(sizes or {})
    return _expression(word, given, OneMatrix(_dimension("n_context", given), 1))


def _expression(word: Word, given: Mapping[str, Any], ones: Any) -> Any:
    from sympy import HadamardProduct, MatMul, Symbol

    scales = [Symbol(scalar_argument(label)) for label in word.scales]
    factors, matrices = _written(word), []
    for f in factors:
        if f.symbol.entrywise:
            matrix = HadamardProduct(*(_expression(w, given, ones) for w in f.symbol.entrywise))
        else:
            matrix = ones if f.symbol.glyph == "ones" else _matrix(f.symbol, given)
        matrices.append(matrix.T if f.marked else matrix)
    cut = next((i for i, f in enumerate(factors) if f.symbol.glyph == "R"), None)
    if cut is not None:
        key = [m.T for m in reversed(matrices[cut + 1 :])]
        query, keys = (_turned()(MatMul(*side), matrices[cut]) for side in (matrices[:cut], key))
        matrices = [query, keys.T]
    return matrices[0] if len(matrices) == 1 and not scales else MatMul(*scales, *matrices)


@cache
def _turned() -> Any:
    """The class of ``Turned(M, R)``: row i of a matrix times the i-th matrix of ``R [n_context, d_head, d_head]``."""
    from sympy import MatrixExpr

    class Turned(MatrixExpr):  # type: ignore[misc]
        matrix = property(lambda self: self.args[0])
        rotations = property(lambda self: self.args[1])
        shape = property(lambda self: self.args[0].shape)

        def __new__(cls, matrix: Any, rotations: Any) -> Any:
            return super().__new__(cls, matrix, rotations)

        def _numpycode(self, printer: Any) -> str:
            rows, rotations = printer.parenthesize_matrix(self.matrix), printer._print(self.rotations)
            return f"({rows}[..., None, :] @ {rotations})[..., 0, :]"

        def _sympystr(self, printer: Any) -> str:
            return f"Turned({printer._print(self.matrix)}, {printer._print(self.rotations)})"

        def _latex(self, printer: Any) -> str:
            return rf"\left({printer._print(self.matrix)}\right)_{{i}} {printer._print(self.rotations)}_{{i}}"

    return Turned


def _written(word: Word) -> list[Factor]:
    """The factors as they are exported: ``W_OV`` and ``W_QK`` fused, ``X0`` written out."""
    return [g for f in word.fused for g in (unfuse((f,)) if f.symbol.glyph == "X0" else (f,))]


def _matrix(symbol: Symbol, given: Mapping[str, Any]) -> Any:
    from sympy import MatrixSymbol

    return MatrixSymbol(symbol.argument, *(_dimension(name, given) for name in shape_of(symbol)))


def _dimension(name: str, given: Mapping[str, Any]) -> Any:
    from sympy import Integer, Symbol

    if name == "1":
        return Integer(1)
    kind = name.rpartition("_")[0]
    found = given.get(name, given.get(kind) if kind in ("d_head", "d_mlp") else None)
    return Symbol(name, integer=True, positive=True) if found is None else found


def _given_sizes(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The given sizes, checked: known names, whole numbers from 1 on (or SymPy's whole symbols)."""
    known = sorted({size for size in SIZES.values() if size != "1"})
    for name, value in sizes.items():
        if name not in known and not re.fullmatch(r"d_head_L\d+[HG]\d+|d_mlp_L\d+", name):
            raise ValueError(f"there is no size {name!r}; the sizes are {', '.join(known)}, d_head_L0H1, ...")
        number = as_whole(value)
        if (number is None or number < 1) and getattr(value, "is_integer", None) is not True:
            raise ValueError(f"size {name} must be a whole number from 1 on, not {shown(value)}")
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

        def _print_HadamardProduct(self, expr: Any) -> str:
            return "(" + "*".join(self.parenthesize_matrix(m) for m in expr.args) + ")"

        def _print_Transpose(self, expr: Any) -> str:
            return f"{self.parenthesize_matrix(expr.arg)}.swapaxes(-1, -2)"

        def parenthesize_matrix(self, expr: Any) -> str:
            text = str(self._print(expr))
            return f"({text})" if expr.is_MatMul or expr.is_MatAdd else text

    return BatchPrinter


def _collect(word: Word, needed: dict[str, Any]) -> None:
    """Add what a word needs, by argument name: its symbols, None for a scale."""
    needed |= {scalar_argument(label): None for label in word.scales}
    for f in _written(word):
        for inner in f.symbol.entrywise:
            _collect(inner, needed)
        if not f.symbol.entrywise and f.symbol.argument not in needed:
            needed[f.symbol.argument] = f.symbol


def _compile(words: Sequence[Word]) -> tuple[Inputs, list[str], Callable[..., Any]]:
    """What the words need, in order of first appearance, their sources, and one function for all."""
    from sympy import MatrixSymbol, Symbol, lambdify

    needed: dict[str, Any] = {}
    for word in words:
        _collect(word, needed)
    ones = MatrixSymbol("ones", _dimension("n_context", {}), 1)
    letters = [
        ones if name == "ones" else Symbol(name) if symbol is None else _matrix(symbol, {})
        for name, symbol in needed.items()
    ]
    expressions = [_expression(word, {}, ones) for word in words]
    printer = _printer()({"fully_qualified_modules": False})
    # Without the text of the expressions in its docstring, which takes SymPy twice as long as all the rest.
    function = lambdify(letters, expressions, modules="numpy", printer=_printer(), docstring_limit=0)
    return Inputs(needed), [printer.doprint(e) for e in expressions], function


# ------------------------------------------------------------------------------- arguments and functions
@final
class TermFunction:
    """A term as a NumPy function of arrays in the paper's shapes, by name (``f(**run.arrays)``) or in order.

    ``arguments`` are the names that it needs, in order of first appearance; ``source`` the Python text that is run.
    ``t: [..., n_context, d_vocab]`` and the patterns ``A_L0H1: [..., n_context, n_context]`` may have leading batch
    axes; weights are ``W_E [d_model, d_vocab]``, ``W_OV [d_model, d_model]``, ...; biases ``[d]`` or ``[d, 1]``; a
    scale is a number. ``W_O`` and ``W_V`` may stand in for ``W_OV``, ``W_Q`` and ``W_K`` for ``W_QK``; arguments of
    other terms are ignored, so that one can pass all arrays of a model. ``ones [n_context, 1]`` is made where it is not
    given, from ``n_context`` of any ``A``, ``t`` or ``P`` that is given; a term that is the same row for every token,
    called with nothing that tells ``n_context``, returns that one row ``[1, d]``. Where ``t`` or a pattern is given
    with batch axes, needed or not, the value has them. The dtype of the arrays is kept.

    Raises TypeError on missing and on unknown names, ValueError on a wrong shape.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> term = logits(attention_only((1,)))[1].lambdify()
    >>> term.arguments
    ('A_L0H0', 't', 'W_E', 'W_OV_L0H0', 'W_U')
    >>> print(term.source)
    A_L0H0 @ t @ W_E.swapaxes(-1, -2) @ W_OV_L0H0.swapaxes(-1, -2) @ W_U.swapaxes(-1, -2)
    >>> term(A_L0H0=[[1, 0], [0.5, 0.5]], t=[[1, 0], [0, 1]], W_E=[[1, 3]], W_OV_L0H0=[[2]], W_U=[[1], [10]])
    array([[ 2., 20.],
           [ 4., 40.]])
    """

    __slots__ = ("_function", "_inputs", "_word", "arguments", "source")

    def __init__(self, word: Word) -> None:
        self._word = word
        self._inputs, [self.source], self._function = _compile([word])
        self.arguments: tuple[str, ...] = tuple(n for n in self._inputs.symbols if n != "ones")

    def __reduce__(self) -> tuple[Any, ...]:
        return TermFunction, (self._word,)  # made again of the word: no text of a pickle is run

    def __call__(self, /, *values: Any, **arrays: Any) -> Any:
        """The value of the term, ``[..., rows, columns]``; arguments by name, or in the order of ``arguments``."""
        if len(values) > len(self.arguments):
            raise TypeError(f"{len(values)} arguments were given, but the term has {', '.join(self.arguments)}")
        placed = dict(zip(self.arguments, values, strict=False))
        twice = [name for name in placed if name in arrays]
        if twice:
            raise TypeError(f"{', '.join(twice)} is given twice, in its place and by name")
        arrays |= placed
        value = _evaluate(self._function, self._inputs.bind(arrays))[0]
        return _spread(value, leading_axes(arrays))

    def __repr__(self) -> str:
        return f"<TermFunction of {', '.join(self.arguments)}: {self.source}>"


def lambdify_word(word: Word) -> TermFunction:
    """The word as a NumPy function of named arrays, through ``sympy.lambdify`` and a printer of our own.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> lambdify_word(Word(embedding()))(t=[[1, 0], [0, 1]], W_E=[[2.0, 3.0]]).tolist()
    [[2.0], [3.0]]
    """
    return TermFunction(word)


@final
class _WordsFunction:
    """What :func:`lambdify_words` gives."""

    __slots__ = ("_function", "_inputs", "_words")

    def __init__(self, words: tuple[Word, ...]) -> None:
        self._words = words
        self._inputs, _, self._function = _compile(words)

    def __call__(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The values of the words, in order."""
        found = _evaluate(self._function, self._inputs.bind(arrays))
        leading = leading_axes(arrays)
        return [_spread(value, leading) for value in found]

    def __reduce__(self) -> tuple[Any, ...]:
        return _WordsFunction, (self._words,)


def lambdify_words(words: Iterable[Word]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Many words as one function: from a mapping of named arrays to the list of their values, in order.

    One ``lambdify`` for all, about 0.3 ms a word rather than 1. Arguments and errors as in :class:`TermFunction`.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> values = lambdify_words(term.word for term in stream(attention_only((1,))))
    >>> [v.tolist() for v in values({"t": [[1.0]], "W_E": [[2.0]], "A_L0H0": [[1.0]], "W_OV_L0H0": [[3.0]]})]
    [[[2.0]], [[6.0]]]
    """
    return _WordsFunction(tuple(words))


def _evaluate(function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """The results; one that is a view of an input (a word of one factor) is copied."""
    inputs = {id(v) for v in values}
    return [r.copy() if r.base is not None or id(r) in inputs else r for r in function(*values)]


def _spread(value: Any, leading: tuple[int, ...]) -> Any:
    """The value with the batch axes of the arguments, where it does not depend on them."""
    import numpy as np

    shape = (*leading, *value.shape[-2:])
    return value if value.shape == shape else np.array(np.broadcast_to(value, shape))
