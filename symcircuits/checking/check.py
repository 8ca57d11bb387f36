"""Is my derivation right? Formulas and whole derivations, read as written, are compared with the terms of a model.

A text is read in every way that it may be meant. Of the readings in which its products fit, the likeliest is kept, and
the answer says which one it is. Then every line is judged, and the first wrong line is shown with its mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from symcircuits.checking.case import Asked, Case
from symcircuits.checking.comparing import ROWS_SUM, UNSCALED
from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import CONVENTIONS
from symcircuits.checking.head_counts import is_one_product, needed, needed_by_sums, numbers_for, of_families
from symcircuits.checking.interpreting import Attempt, attempts
from symcircuits.checking.reading import ReadText, read, read_text, word_of
from symcircuits.checking.readings import Reading
from symcircuits.checking.roles import Roles
from symcircuits.checking.verdict import Found, Texts, Verdict
from symcircuits.core.architecture import Architecture, Described, architecture_of
from symcircuits.core.names import OTHER
from symcircuits.core.notation import as_notation, word_text
from symcircuits.core.text import amount, as_whole, brief

__all__ = ["Found", "ReadError", "Texts", "Verdict", "check"]

_HINTED: Final = 200  # products: another target is tried for formulas of at most so many
_CONVENTIONS: Final = (None, "paper", "row", "columns", "transformerlens")


def check(
    formula: Any,
    subject: Architecture | Described,
    target: str | None = None,
    convention: str | None = None,
    *,
    part: bool = False,
    notation: str | None = None,
    symbols: Mapping[str, str] | None = None,
    strict: bool = False,
) -> Verdict:
    """Whether a formula or a derivation is right: text, LaTeX, Python code, a SymPy expression, a term.

    ``subject`` is an architecture or a model; ``target`` ``"logits"``, ``"stream"`` or ``"scores:L1H0"``, by default
    inferred from the formula. One product is right when it is a term; a sum when it is all terms, each once (with
    ``part=True`` when it is some of them). Weights alone, such as ``W_E.T @ W_QK[L1H0] @ W_E``, are right when they are
    the circuit of a term; a sum of them when they are circuits of terms, each once, all in the same orientation. A
    left-hand side (``logits =``, ``T =``, ``S[L1H0] =``) names all terms with their tokens and patterns. Of several
    lines (a LaTeX display, lines of text, chains of ``=``) each is compared with the model and with the line before;
    ``verdict.line`` is the first wrong one, counted from 1. Products that are equal for every model count as the same:
    diagonal matrices commute, ``C @ C`` is ``C``, a number ``b_Q.T @ b_K`` is its own transpose.

    If numbers of heads are symbols (``attention_only((H_1, H_2))``), a formula is right when it is right for every
    number of heads; ``verdict.notes`` say how that was decided, or for which numbers it was checked. Its terms are
    families.

    ``convention`` is the convention of the formula: ``"paper"`` (maps, and matrices in the paper's shapes), ``"row"``
    (the same, a row for each token), ``"columns"`` (a column for each token) or ``"transformerlens"``, where ``OV`` is
    ``W_V @ W_O``; by default all are tried, and ``verdict.read`` says which one was used, and how defined names,
    variables for heads and sums over heads were read. A formula that is right only under a hypothesis (rows of patterns
    sum to one, unscaled scores, terms left out that softmax does not see) counts as right, with the hypothesis in
    ``verdict.where``; with ``strict`` it counts as wrong. ``notation`` prints the right terms of the answer in another
    notation; ``symbols`` are other names for symbols, in the formula and in the answer.

    Raises :class:`~symcircuits.checking.faults.ReadError`, with the position, where the formula cannot be read, and
    ValueError on an unknown target, convention, notation or symbol. Source: paper, "Path Expansion"; conventions as in
    TransformerLens.

    >>> from symcircuits.core.architecture import attention_only
    >>> arch = attention_only((3, 3))
    >>> check("X0 @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H1].T", arch)
    Read: the row convention, matrices in the paper's shapes; held fixed: the attention patterns
    Right: this is term 2 of 16 (counted from 0) of scores:L1H0: embed | embed -> L0H1, K.
    where the scores are unscaled
    note: no score scale is written, so these are read as unscaled scores; the model's have scale[L1H0]
    >>> slip = "W_E @ QK[L1H0] @ OV[L0H1] @ W_E.T"
    >>> check(slip, arch, convention="transformerlens").nearest
    'W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T'
    >>> lines = r"T &= Id \\otimes W_U W_E + \\sum_h A^h \\otimes W_U W_{OV}^h W_E \\\\ &= Id \\otimes W_U W_E"
    >>> verdict = check(lines, attention_only((2,)))
    >>> verdict.right, verdict.line, verdict.mistake
    (False, 2, 'missing-terms')
    """
    architecture = architecture_of("check(formula, subject)", subject, symbolic=True)
    if convention not in _CONVENTIONS:
        raise ValueError(f'convention must be "paper", "row", "columns" or "transformerlens", not {brief(convention)}')
    printed = as_notation(notation or CONVENTIONS[convention or "paper"], symbols)
    other = [name for name in printed.names if name in OTHER]
    if other:
        raise ValueError(
            f"check accepts other names only for matrices: leave out that of {', '.join(other)}, and write it "
            "as symcircuits does (logits, S, h_1, L0H1, ^T)"
        )
    asked = Asked(architecture, target, convention or "paper", part, printed)
    if architecture.symbolic:
        return _strictly(_for_all_counts(formula, asked, convention, notation is None), strict)
    word = word_of(formula)
    if word is not None:
        case = Case(read(formula, architecture, convention or "paper", symbols), asked)
        return _strictly(_where(case), strict)
    return _strictly(_checked(read_text(formula, printed, architecture), asked, convention, notation is None), strict)


def _checked(text: ReadText, asked: Asked, convention: str | None, own_notation: bool) -> Verdict:
    """The verdict on a text."""
    found = attempts(text, asked, convention, own_notation)
    verdict = _told(found, text, asked, convention)
    target = asked.target
    if not verdict.right and target is not None and found[0].words <= _HINTED:
        own = attempts(text, asked._replace(target=None), convention, own_notation)[0]
        if own.right and own.verdict.target != target:
            hint = f"for another target this is right ({own.verdict.target})"
            verdict = replace(verdict, notes=(*verdict.notes, hint))
    return verdict


# ------------------------------------------------------------------------------------- symbolic numbers of heads
def _for_all_counts(formula: Any, asked: Asked, convention: str | None, own_notation: bool) -> Verdict:
    """The verdict on a formula where numbers of heads are symbols, from numbers that decide all others if there are."""
    architecture = asked.architecture
    if (word := word_of(formula)) is not None:
        formula = word_text(word, asked.notation)
    formula = formula._sympy_() if hasattr(formula, "_sympy_") else formula
    if isinstance(formula, str):
        document = read_text(formula, asked.notation, architecture.generic()).document
        one = is_one_product(document)
        need = needed(document, Roles(document), architecture, asked.target)
    else:
        read_text(_at(formula, _ones(architecture)), asked.notation, architecture.generic())  # or an error
        one = type(formula).__name__ not in ("Add", "MatAdd")
        need = needed_by_sums(formula, architecture, asked.target)
    asked = asked._replace(part=asked.part or one)  # one product under sums is one family, as one product is one term

    def at(numbers: Mapping[Any, int]) -> Verdict:
        here = asked._replace(architecture=architecture.at(numbers), every=True)
        return _checked(read_text(_at(formula, numbers), asked.notation, here.architecture), here, convention,
                        own_notation)  # fmt: skip

    counts = numbers_for(architecture, need)
    tried = counts[:1] or numbers_for(architecture, need._replace(plain=True))
    if not tried:
        raise ValueError(f"cannot find numbers of heads that decide this for {architecture}: choose them with "
                         "architecture.at({...})")  # fmt: skip
    first = found = at(tried[0])
    if ROWS_SUM in first.where:  # what is left of a pattern may occur once per head
        counts = numbers_for(architecture, need._replace(plain=False))
    decided = bool(counts) and need.every
    for numbers in counts[1:]:
        if not found.right:
            break
        tried.append(numbers)
        found = at(numbers)
        decided = decided and _without_numbers(found) == _without_numbers(first)  # right for the same reason
    return of_families(first if found.right else found, architecture, tried if found.right else tried[-1:], decided)


def _without_numbers(verdict: Verdict) -> tuple[str, str, tuple[str, ...]]:
    return verdict.target, re.sub(r"[\d,]+", "", verdict.message), verdict.where


def _at(formula: Any, counts: Mapping[Any, int]) -> Any:
    """A formula at numbers of heads: SymPy's sums are written out; a text stays as it is."""
    return formula.subs(counts).doit() if hasattr(formula, "subs") else formula


def _ones(architecture: Architecture) -> dict[Any, int]:
    """One for every symbol."""
    given: list[Any] = list(architecture.heads)
    return {symbol: 1 for n in given if as_whole(n) is None for symbol in n.free_symbols}


def _where(case: Case) -> Verdict:
    verdict = case.verdict()
    return replace(verdict, where=(UNSCALED,)) if case.unscaled and verdict.right else verdict


def _strictly(verdict: Verdict, strict: bool) -> Verdict:
    """The verdict; with ``strict``, wrong where it is right only under a hypothesis."""
    if not strict or not verdict.right or not verdict.where:
        return verdict
    message = f"Wrong (hypothesis): right only where {' and '.join(verdict.where)}, which is not allowed with strict."
    return replace(verdict, right=False, mistake="hypothesis", message=message)


def _told(found: list[Attempt], text: ReadText, asked: Asked, convention: str | None) -> Verdict:
    """The verdict of the first attempt, with its line and reading, and what another reading would say."""
    best = found[0]
    verdict = best.verdict
    several = text.several
    if not verdict.right:
        line = text.line(best.at)
        verdict = replace(verdict, line=line)
        if several:
            message = verdict.message.replace("Wrong (", f"Wrong in line {line} (", 1)
            verdict = replace(verdict, message=message)
    elif several and len(best.outcomes) > 1:
        last = verdict.message.removeprefix("Right: ")
        verdict = replace(verdict, message=f"Right: all {amount(text.rows_count, 'line')} are right; the last: {last}")
    notes = [*verdict.notes, *best.notes]
    for other in found[1:]:
        if other.right != best.right and (other.misfits == 0 or other.right):
            notes.append(_other(other, best, convention))
    return replace(verdict, notes=tuple(dict.fromkeys(notes)), read=best.read, lines=text.rows_count)


def _other(other: Attempt, best: Attempt, convention: str | None) -> str:
    """What another reading says."""
    says = "right" if other.right else f"wrong ({other.verdict.mistake})"
    told: Reading = other.reading
    if told.convention != best.reading.convention:
        how = f"read in {told.text}," if told.convention not in _CONVENTIONS else (
            f'in the other convention, convention="{told.convention}",')  # fmt: skip
        return f"{how} this is {says}"
    if told.base != best.reading.base:
        return f"with layers and heads counted from {told.base} this is {says}"
    return f"with sums over heads that run over {'all layers' if told.spread else 'one layer'} this is {says}"
