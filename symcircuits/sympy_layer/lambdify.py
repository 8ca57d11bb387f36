"""Words and expansions as NumPy functions of named arrays.

A product of ``MatrixSymbol``s, whose names are Python identifiers, so ``lambdify`` keeps them, is printed by our
own printer. Its products and transposes act on the last two axes, so they accept batches. NumPy is imported
on use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from operator import add
from typing import Any, final

from symcircuits.core.text import amount
from symcircuits.core.words import Word, scalar_argument
from symcircuits.sympy_layer.arguments import Inputs, leading_axes
from symcircuits.sympy_layer.expressions import words_of
from symcircuits.sympy_layer.letters import AsMatrices, spelled

__all__ = ["ExpansionFunction", "TermFunction", "lambdify_terms", "lambdify_word", "lambdify_words"]


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
    """Add the symbols that a word needs, by argument name; None for a scale."""
    needed |= {scalar_argument(label): None for label in word.scales}
    for f in spelled(word.factors):
        for inner in f.symbol.entrywise:
            _collect(inner, needed)
        if not f.symbol.entrywise and f.symbol.argument not in needed:
            needed[f.symbol.argument] = f.symbol


def _compile(words: Sequence[Word]) -> tuple[Inputs, list[str], Callable[..., Any]]:
    """The arguments of the words, in order of first appearance, their sources, and one function for all."""
    from sympy import MatrixSymbol, Symbol, lambdify

    form = AsMatrices()
    needed: dict[str, Any] = {}
    for word in words:
        _collect(word, needed)
    letters = [Symbol(name) if symbol is None else form.matrix(symbol) for name, symbol in needed.items()]
    form.ones = MatrixSymbol("ones", form.size("n_context"), 1)  # an argument like the others, not created by SymPy
    expressions = [form.word(word) for word in words]
    printer = _printer()({"fully_qualified_modules": False})
    # Without the text of the expressions in its docstring, which takes SymPy twice as long as everything else.
    function = lambdify(letters, expressions, modules="numpy", printer=_printer(), docstring_limit=0)
    return Inputs(needed), [printer.doprint(e) for e in expressions], function


# ------------------------------------------------------------------------------- arguments and functions
@final
class TermFunction:
    """A term as a NumPy function of arrays in the paper's shapes, by name (``f(**run.arrays)``) or in order.

    ``arguments`` are the names that it needs, in order of first appearance; ``source`` the Python source that is run.
    ``t: [..., n_context, d_vocab]`` and the patterns ``A_L0H1: [..., n_context, n_context]`` may have leading batch
    axes; weights are ``W_E [d_model, d_vocab]``, ``W_OV [d_model, d_model]``, ...; biases ``[d]`` or ``[d, 1]``; a
    scale is a number. ``W_O`` and ``W_V`` may replace ``W_OV``, ``W_Q`` and ``W_K`` may replace ``W_QK``; arguments of
    other terms are ignored, so all arrays of a model may be passed. ``ones [n_context, 1]`` is created if it is not
    given, from ``n_context`` of any given ``A``, ``t`` or ``P``; a term that is the same row for every token,
    called without an array that determines ``n_context``, returns that one row ``[1, d]``. If ``t`` or a pattern has
    batch axes, needed or not, the value has them. The dtype of the arrays is kept.

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
        return TermFunction, (self._word,)  # rebuilt from the word: no source from a pickle is run

    def __call__(self, /, *values: Any, **arrays: Any) -> Any:
        """The value of the term, ``[..., rows, columns]``; arguments by name, or in the order of ``arguments``."""
        arrays |= _placed(values, arrays, self.arguments)
        value = _evaluate(self._function, self._inputs.bind(arrays))[0]
        return _spread(value, leading_axes(arrays))

    def __repr__(self) -> str:
        return f"<TermFunction of {', '.join(self.arguments)}: {self.source}>"


def lambdify_word(word: Word) -> TermFunction:
    """The word as a NumPy function of named arrays, through ``sympy.lambdify`` and our own printer.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> lambdify_word(Word(embedding()))(t=[[1, 0], [0, 1]], W_E=[[2.0, 3.0]]).tolist()
    [[2.0], [3.0]]
    """
    return TermFunction(word)


@final
class ExpansionFunction:
    """All terms of an expansion as one NumPy function of named arrays: the list of their values, or their sum.

    ``arguments`` are the names that it needs, in order of first appearance, ``sources`` the Python sources that are
    run, one per term. Arrays, batches, dtypes and errors are those of :class:`TermFunction`.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> values = lambdify_terms(stream(attention_only((1,))))
    >>> values.arguments, [v.tolist() for v in values(t=[[1.0]], W_E=[[2.0]], A_L0H0=[[1.0]], W_OV_L0H0=[[3.0]])]
    (('t', 'W_E', 'A_L0H0', 'W_OV_L0H0'), [[[2.0]], [[6.0]]])
    """

    __slots__ = ("_function", "_inputs", "_words", "arguments", "sources", "total")

    def __init__(self, words: tuple[Word, ...], total: bool = False) -> None:
        self._words, self.total = words, total
        self._inputs, self.sources, self._function = _compile(words)
        self.arguments: tuple[str, ...] = tuple(n for n in self._inputs.symbols if n != "ones")

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpansionFunction, (self._words, self.total)

    def __call__(self, /, *values: Any, **arrays: Any) -> Any:
        """The values of the terms in their order, each ``[..., rows, columns]``; or their sum."""
        arrays |= _placed(values, arrays, self.arguments)
        found = [_spread(v, leading_axes(arrays)) for v in _evaluate(self._function, self._inputs.bind(arrays))]
        return reduce(add, found) if self.total else found

    def __repr__(self) -> str:
        names = list(self.arguments)
        shown = names if len(names) <= 6 else [*names[:4], "...", names[-1]]
        what = "the sum of " if self.total else ""
        return f"<ExpansionFunction of {', '.join(shown)}: {what}{amount(len(self._words), 'term')}>"


def lambdify_terms(terms: Any, total: bool = False) -> ExpansionFunction:
    """An expansion (or a list of terms) as one function; raises ValueError if there are too many terms, or none.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> lambdify_terms(logits(attention_only((12, 12))), total=True)
    <ExpansionFunction of t, W_E, W_U, A_L0H0, ..., W_OV_L1H11: the sum of 169 terms>
    """
    words = tuple(words_of(terms, "a function"))
    if total and not words:
        raise ValueError("there are no terms, and a sum of no arrays has no shape")
    return ExpansionFunction(words, total)


def lambdify_words(words: Iterable[Word]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Many words as one function: from a mapping of named arrays to the list of their values, in order.

    One ``lambdify`` for all, about 0.3 ms per word rather than 1. Arguments and errors as in :class:`TermFunction`.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> values = lambdify_words(term.word for term in stream(attention_only((1,))))
    >>> [v.tolist() for v in values({"t": [[1.0]], "W_E": [[2.0]], "A_L0H0": [[1.0]], "W_OV_L0H0": [[3.0]]})]
    [[[2.0]], [[6.0]]]
    """
    return _OfMapping(ExpansionFunction(tuple(words)))


@final
class _OfMapping:
    """A function of named arrays as one of a mapping."""

    __slots__ = ("_function",)

    def __init__(self, function: ExpansionFunction) -> None:
        self._function = function

    def __call__(self, arrays: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = self._function(**arrays)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _OfMapping, (self._function,)


def _placed(values: tuple[Any, ...], arrays: Mapping[str, Any], arguments: tuple[str, ...]) -> dict[str, Any]:
    """Positional values, by name; raises TypeError if there are too many, or one is also given by name."""
    if len(values) > len(arguments):
        raise TypeError(f"{len(values)} arguments were given, but the term has {', '.join(arguments)}")
    placed = dict(zip(arguments, values, strict=False))
    twice = [name for name in placed if name in arrays]
    if twice:
        raise TypeError(f"{', '.join(twice)} is given twice, by position and by name")
    return placed


def _evaluate(function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """The results; one that is a view of an input (a word of one factor) is copied."""
    inputs = {id(v) for v in values}
    return [r.copy() if r.base is not None or id(r) in inputs else r for r in function(*values)]


def _spread(value: Any, leading: tuple[int, ...]) -> Any:
    """The value with the batch axes of the arguments, if it does not depend on them."""
    import numpy as np

    shape = (*leading, *value.shape[-2:])
    return value if value.shape == shape else np.array(np.broadcast_to(value, shape))
