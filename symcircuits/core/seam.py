"""The methods whose work is done in a higher package, and the functions that do it.

A term knows its word but not SymPy; a result knows its numbers but not how they are printed. Their methods look the
function up here when they are called, so no package imports a higher one. A new way of printing something is a row
in ``HIGHER`` and one line in its class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar, overload

__all__ = ["HIGHER", "function_called", "higher"]

T = TypeVar("T")

# method: the module (below symcircuits) and the function in it
HIGHER: Final = {
    "Shown.text": "render.shown.text_of",
    "Shown.html": "render.shown.html_of",
    "Values.parts": "render.described.values_parts",
    "Verdict.parts": "render.described.verdict_parts",
    "HeadRemoval.parts": "render.removed.head_removal_parts",
    "ScoreRemoval.parts": "render.removed.score_removal_parts",
    "Transport.parts": "render.removed.transport_parts",
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
    "Derivation.paper": "derivation.printing.paper.paper_latex",
    "Step.latex": "derivation.printing.displays.step_latex",
    "Claim.latex": "derivation.printing.displays.claim_latex",
    "Derivation.html": "derivation.printing.latex.derivation_html",
    "Derivation.text": "derivation.printing.text.derivation_text",
    "Derivation.json": "derivation.printing.json_.derivation_json",
    "Derivation.certificate": "derivation.printing.certificate.certificate",
    "Derivation.save_certificate": "derivation.printing.certificate.save_certificate",
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
    "Checkpoints.parts": "render.checkpoints.checkpoints_parts",
    "Circuits.findings": "render.findings.findings",
    "Circuits.parts": "render.findings.circuits_parts",
    "Circuits.html": "render.circuits_page.circuits_html",
    "Circuits.json": "render.findings.circuits_json",
    "Invariances.parts": "render.invariances.invariances_parts",
    "Heads.parts": "render.heads.heads_parts",
    "LossByOrder.parts": "render.losses.by_order_parts",
    "LossEffects.parts": "render.losses.effects_parts",
    "Summary.parts": "render.measures.summary_parts",
    "Summary.json": "render.measures.summary_json",
    "Sample.parts": "render.measures.sample_parts",
    "Sample.line": "render.measures.sample_line",
    "Sample.json": "render.measures.sample_json",
    "Largest.parts": "render.ranked.largest_parts",
    "Largest.json": "render.ranked.largest_json",
    "Explanation.parts": "render.explained.explanation_parts",
    "Explanation.json": "render.explained.explanation_json",
    "Explanation.html": "render.html.explanation_html",
    "Averages.parts": "render.averaged.averages_parts",
    "Averages.json": "render.averaged.averages_json",
    "CompositionScores.parts": "render.circuits.composition_parts",
    "CompositionScores.json": "render.circuits.composition_json",
    "Circuit.parts": "render.circuits.circuit_parts",
    "Circuit.json": "render.circuits.circuit_json",
    "DiagonalScores.parts": "render.circuits.diagonal_parts",
    "DiagonalScores.json": "render.circuits.diagonal_json",
    "Report.parts": "render.verified.report_parts",
    "GeneralReport.parts": "render.verified.proof_parts",
    "Comparison.parts": "render.compared.comparison_parts",
    "Comparison.json": "render.compared.comparison_json",
}


@overload
def higher(gives: type[T], method: str) -> Callable[..., T]: ...
@overload
def higher(gives: None, method: str) -> Callable[..., Any]: ...


def higher(gives: type[T] | None, method: str) -> Callable[..., Any]:
    """The function that does the work of a method; ``gives``: its return type, for type checkers only.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> "W_U" in higher(str, "Expansion.latex")(logits(attention_only((1,))))
    True
    """
    return function_called(gives, HIGHER[method])


def function_called(gives: type[T] | None, name: str) -> Callable[..., T]:
    """The function of that name in ``symcircuits``, imported on demand.

    >>> function_called(str, "core.names.visible")("a")
    'a'
    """
    module, _, function = name.rpartition(".")
    found = sys.modules.get(f"symcircuits.{module}") or import_module(f"symcircuits.{module}")
    return getattr(found, function)  # type: ignore[no-any-return]
