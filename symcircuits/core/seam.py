"""The methods whose work is done in a higher package, and the function that does it.

A term knows its word, and not SymPy; a result knows its numbers, and not how they are shown. Their methods look the
work up here when they are called, so that no package imports one that stands above it. A method that shows something
in a new way is a row in ``HIGHER`` and one line where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar, overload

__all__ = ["HIGHER", "function_called", "higher"]

T = TypeVar("T")

# method: the module (below symcircuits) and the function in it
HIGHER: Final = {
    "Architecture.families": "sympy_layer.families.families",
    "Term.as_expr": "sympy_layer.expressions.word_expr",
    "Term.matrix_expr": "sympy_layer.expressions.word_matrix",
    "Term.lambdify": "sympy_layer.lambdify.lambdify_word",
    "Expansion.exprs": "sympy_layer.expressions.words_symbols",
    "Expansion.as_expr": "sympy_layer.expressions.symbol_sum",
    "Expansion.matrix_expr": "sympy_layer.expressions.matrix_sum",
    "Expansion.sum_latex": "sympy_layer.expressions.sum_latex",
    "Expansion.lambdify": "sympy_layer.lambdify.lambdify_terms",
    "Expansion.blocks": "tables.blocks.blocks",
    "Expansion.census": "tables.census.census",
    "Expansion.export": "tables.export.export_terms",
    "Expansion.unfrozen": "core.unfrozen.unfrozen.unfrozen",
    "Expansion.latex": "derivation.printing.latex.expansion_display",
    "Expr.text": "derivation.printing.text.expr_text",
    "Derivation.statement": "derivation.printing.words.plain_statement",
    "Derivation.section": "derivation.printing.words.section",
    "Derivation.latex": "derivation.printing.latex.derivation_latex",
    "Derivation.display": "derivation.printing.latex.derivation_display",
    "Derivation.text": "derivation.printing.text.derivation_text",
    "Derivation.json": "derivation.printing.json_.derivation_json",
    "Derivation.save": "derivation.printing.formats.save_derivation",
    "Values.arrays": "values.term_values.arrays",
    "Values.blocks": "values.term_values.term_values",
    "Values.measure": "values.measured.measure",
    "Values.summary": "values.summary.summary",
    "Values.largest": "search.largest.largest",
    "Values.sample": "search.sample.sample",
    "Values.sum_of_squares": "search.squares.squares",
    "Values.loss_by_order": "circuits.losses.loss_by_order",
    "Values.loss_effects": "circuits.losses.loss_effects",
    "Values.transport": "circuits.transport.transport",
    "Values.weighted_pattern": "circuits.transport.weighted_pattern",
    "Checkpoints.text": "render.checkpoints.checkpoints_text",
    "Circuits.findings": "render.findings.findings",
    "Circuits.text": "render.findings.circuits_text",
    "Circuits.html": "render.circuits_page.circuits_html",
    "Circuits.json": "render.findings.circuits_json",
    "Invariances.text": "render.invariances.invariances_text",
    "Heads.text": "render.heads.heads_text",
    "LossByOrder.text": "render.losses.by_order_text",
    "LossEffects.text": "render.losses.effects_text",
    "Summary.text": "render.measures.summary_text",
    "Summary.json": "render.measures.summary_json",
    "Sample.text": "render.measures.sample_text",
    "Sample.line": "render.measures.sample_line",
    "Sample.json": "render.measures.sample_json",
    "Largest.text": "render.ranked.largest_text",
    "Largest.json": "render.ranked.largest_json",
    "Explanation.text": "render.explained.explanation_text",
    "Explanation.json": "render.explained.explanation_json",
    "Explanation.html": "render.html.explanation_html",
    "Averages.text": "render.averaged.averages_text",
    "Averages.json": "render.averaged.averages_json",
    "CompositionScores.text": "render.circuits.composition_text",
    "CompositionScores.json": "render.circuits.composition_json",
    "Circuit.text": "render.circuits.circuit_text",
    "Circuit.json": "render.circuits.circuit_json",
    "DiagonalScores.text": "render.circuits.diagonal_text",
    "DiagonalScores.json": "render.circuits.diagonal_json",
    "Report.text": "render.verified.report_text",
    "Proof.text": "render.verified.proof_text",
    "Comparison.text": "render.compared.comparison_text",
    "Comparison.json": "render.compared.comparison_json",
}


@overload
def higher(gives: type[T], method: str) -> Callable[..., T]: ...
@overload
def higher(gives: None, method: str) -> Callable[..., Any]: ...


def higher(gives: type[T] | None, method: str) -> Callable[..., Any]:
    """The function that does the work of a method; ``gives``: what it returns, for type checkers alone.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> "W_U" in higher(str, "Expansion.latex")(logits(attention_only((1,))))
    True
    """
    return function_called(gives, HIGHER[method])


def function_called(gives: type[T] | None, name: str) -> Callable[..., T]:
    """The function of that name below ``symcircuits``, imported when it is asked for.

    >>> function_called(str, "core.names.visible")("a")
    'a'
    """
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"symcircuits.{module}"), function)  # type: ignore[no-any-return]
