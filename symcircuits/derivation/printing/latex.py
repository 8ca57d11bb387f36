"""Derivations as fragments and documents of LaTeX, and derivations and expansions for notebooks."""

from __future__ import annotations

from html import escape

from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import Notation
from symcircuits.core.text import amount
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.conventions import caption, conventions
from symcircuits.derivation.printing.displays import displays, expr_latex
from symcircuits.derivation.printing.numbering import MACRO, numbered, numbering
from symcircuits.derivation.printing.prose import html_prose, prose
from symcircuits.derivation.printing.proved import proved_sentence
from symcircuits.derivation.printing.styles import LatexStyle
from symcircuits.derivation.printing.words import PATHLESS, check_sentence, checked_sentence, seal, subject, title

__all__ = ["derivation_document", "derivation_html", "derivation_latex", "expansion_display"]

_SHOWN_IN_NOTEBOOK = 40

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,textwidth=160mm,textheight=245mm]{geometry}
\usepackage{amsmath,amssymb,xcolor}
\setlength{\parindent}{0pt}
\emergencystretch=3em
\begin{document}
"""


# ------------------------------------------------------------------------------------------------ derivations
def derivation_latex(derivation: Derivation, standalone: bool = False) -> str:
    """A derivation as LaTeX: a fragment (amsmath, amssymb, xcolor), or a document for pdflatex."""
    if standalone:
        return derivation_document(derivation)
    return _body(derivation, rf"\textbf{{{prose(title(derivation), derivation.notation)}}}")


def derivation_document(derivation: Derivation) -> str:
    """A derivation as a document for pdflatex."""
    body = _body(derivation, rf"{{\Large\bfseries {prose(title(derivation), derivation.notation)}\par}}")
    return _PREAMBLE + body + "\\end{document}\n"


def _body(derivation: Derivation, heading: str) -> str:
    notation = derivation.notation

    def said(sentence: str) -> str:
        return prose(sentence, notation)

    lines = [*conventions(derivation), *numbering(derivation)]
    blocks = [heading, said(subject(derivation)), r"\textit{Conventions.} " + " ".join(map(said, lines))]
    for step, display in displays(derivation.steps, notation):
        blocks.append(rf"\textbf{{Step {step.number} ({step.kind}).}} {said(step.reason)}" + f"\n{display}")
    checks = [checked_sentence(derivation), proved_sentence(derivation)]
    blocks.append(rf"{{\small {' '.join(map(said, filter(None, checks)))}\hfill$\square$\par}}")
    sloppy = r"\sloppy" if notation.symbols else ""  # names may be long, and cannot be broken
    body = numbered("\n\n\\medskip\\noindent\n".join(blocks), derivation)
    macro = MACRO if r"\labelled" in body else ""
    return f"\\begingroup\\allowdisplaybreaks{sloppy}{macro}\n{body}\n\n\\endgroup\n"


def derivation_html(derivation: Derivation) -> str:
    """A derivation for a notebook (MathJax): the content of a document, with each display in a box.

    A formula that is wider than the cell scrolls in its box.
    """
    notation, lines = derivation.notation, [*conventions(derivation), *numbering(derivation)]
    blocks = [
        f"<p><strong>{html_prose(title(derivation), notation)}</strong></p>",
        f"<p>{html_prose(subject(derivation), notation)}</p>",
        f"<p>{' '.join(html_prose(said, notation) for said in lines)}</p>",
    ]
    for step, display in displays(derivation.steps, notation):
        blocks += [
            f"<p><strong>Step {step.number} ({step.kind}).</strong> {html_prose(step.reason, notation)}</p>",
            f'<div style="overflow-x: auto; max-width: 100%">{escape(display, quote=False)}</div>',
            f"<p><small>{html_prose(check_sentence(step.check), notation)}</small></p>",
        ]
    body = numbered("".join(blocks), derivation, labelled=False)
    return f"<div>{body}<p>{html_prose(seal(derivation), notation)}</p></div>"


def _caption(notation: Notation) -> str:
    """A last row of a notebook's display: the convention, and what is held fixed."""
    return rf"&\text{{{prose(caption(notation), notation)}}}"


# ------------------------------------------------------------------------------------------------- expansions
def expansion_display(expansion: Expansion) -> str:
    """An expansion for a notebook (MathJax): its terms with their composition types; beyond 40 the first, and dots."""
    style = LatexStyle(expansion.notation)
    n, target = expansion.count, style.target(expansion.target)
    if not n:
        return rf"$\displaystyle {target}:\ \text{{no terms}}$"
    shown = expansion.head(n if n <= _SHOWN_IN_NOTEBOOK else 10)
    partial = expansion.clauses or n > len(shown)
    start = rf"\text{{from }}{target}:\quad &" if expansion.clauses else f"{target} &= "
    alibi = expansion.readout.bilinear and expansion.architecture.positions == "alibi" and not partial
    rows = [
        (start if not i else r"&\quad + ") + rf"{term.latex()} &&\text{{{term.composition}}}"
        for i, term in enumerate(shown)
    ]
    if partial:
        rest = r"&\quad + \cdots" if n > len(shown) else "&"
        rows.append(rf"{rest} &&\text{{{amount(n, 'term')}}}")
    if alibi:
        rows.append(rf"&\quad + {expr_latex(AlibiTerm(str(expansion.readout.head)), style)} &&\text{{{PATHLESS}}}")
    rows.append(_caption(expansion.notation))
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"
