"""Terms and expansions as SymPy expressions: in noncommutative symbols, or in shaped matrices.

The output here is the product of a checked word, and the sum of such products; SymPy multiplies nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Final

from symcircuits.core.text import amount, setting
from symcircuits.core.words import Word
from symcircuits.sympy_layer.letters import AsMatrices, AsSymbols, Form

__all__ = [
    "MAX_TERMS",
    "matrix_sum",
    "sum_latex",
    "symbol_sum",
    "word_expr",
    "word_matrix",
    "words_of",
    "words_symbols",
]

MAX_TERMS: Final = 50_000  # in one expression or function


def word_expr(word: Word, letters: str = "OV") -> Any:
    """The word as a product of noncommutative SymPy symbols, in its order, scales and multipliers as numbers.

    ``letters``: ``"OV"`` writes ``W_OV`` and ``W_QK``, ``"factors"`` their factors. Raises ValueError on any other,
    and on a word that contains an entrywise product, which only matrices can express.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> term = logits(attention_only((1,)))[1]
    >>> word_expr(term.word)
    A_L0H0*t*transpose(W_E)*transpose(W_OV_L0H0)*transpose(W_U)
    """
    return AsSymbols(letters).word(word)


def word_matrix(word: Word, letters: str = "OV", sizes: Mapping[str, Any] | None = None) -> Any:
    """The word as a SymPy ``MatMul`` of ``MatrixSymbol``s, in its order, its scalars in front.

    ``X0`` is written ``t W_E^T``, ``ones`` is ``OneMatrix(n_context, 1)``. Sizes are the positive integer symbols
    ``n_context``, ``d_model``, ``d_vocab``, ``d_vocab_out``, ``d_head_L0H1``, or those given in ``sizes`` (``d_head``
    means that of every head). If positions are rotary the sides of a score are inside ``Turned(M, R)``: row i of
    ``M`` times the i-th matrix of ``R``. With given sizes SymPy itself rejects a product that does not fit; with
    symbolic ones it does not, which is why words have types of their own. The shape is that of the target:
    ``(n_context, d_vocab_out)``, ``(n_context, n_context)`` or ``(n_context, d_model)``. Raises ValueError on an
    unknown or impossible size, and on unknown ``letters``. Source: SymPy's matrix expressions.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> word_matrix(Word(embedding())), word_matrix(Word(embedding()), "OV", {"n_context": 7, "d_model": 16}).shape
    (t*W_E.T, (7, 16))
    """
    return AsMatrices(letters, sizes).word(word)


def sum_latex(terms: Any) -> str:
    """The sum of the terms in LaTeX, each as it prints itself, on one line; raises ValueError if there are too many.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> print(sum_latex(stream(attention_only((1,)))))
    X_0 + A^{\\mathrm{L0H0}}\\,X_0\\,W_{OV}^{\\mathrm{L0H0}\\,\\mathsf{T}}
    """
    _check_count(terms, "an expression")
    return " + ".join(term.latex() for term in terms) or "0"


def words_of(terms: Any, what: str = "an expression") -> Iterable[Word]:
    """The words of terms; raises ValueError if there are more than fit in one expression (or function)."""
    _check_count(terms, what)
    return (term.word for term in terms)


def _check_count(terms: Any, what: str) -> None:
    found = getattr(terms, "count", None)
    count = found if isinstance(found, int) else len(terms) if isinstance(terms, Sized) else 0
    if count > MAX_TERMS:
        raise ValueError(
            f"{amount(count, 'term')} are too many for {what}, which holds at most {MAX_TERMS:,}: select some, for "
            f"example {setting('order', 2, 'expansion.order(2)')}, or evaluate(expansion, run).total() for their sum"
        )


def words_symbols(terms: Any, letters: str = "OV") -> list[Any]:
    """The terms as products of noncommutative symbols, in their order; see :func:`word_expr`.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> words_symbols(stream(attention_only((1,))))
    [t*transpose(W_E), A_L0H0*t*transpose(W_E)*transpose(W_OV_L0H0)]
    """
    return _each(terms, AsSymbols(letters))


def symbol_sum(terms: Any, letters: str = "OV") -> Any:
    """The sum of the terms as one expression in noncommutative symbols, equal to ``sympy.expand`` of the target.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> symbol_sum(stream(attention_only((1,))), "factors")
    A_L0H0*t*transpose(W_E)*transpose(W_V_L0H0)*transpose(W_O_L0H0) + t*transpose(W_E)
    """
    form = AsSymbols(letters)
    return form.add(_each(terms, form))


def matrix_sum(terms: Any, letters: str = "OV", sizes: Mapping[str, Any] | None = None) -> Any:
    """The sum of the terms as one ``MatAdd``, in their order; sizes and errors as in :func:`word_matrix`.

    Raises ValueError without terms, because such a sum has no shape.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> matrix_sum(stream(attention_only((1,))), sizes={"n_context": 7}).shape
    (7, d_model)
    """
    form = AsMatrices(letters, sizes)
    found = _each(terms, form)
    if not found:
        raise ValueError("there are no terms, and a sum of no matrices has no shape")
    return form.add(found)


def _each(terms: Any, form: Form) -> list[Any]:
    return [form.word(word) for word in words_of(terms)]
