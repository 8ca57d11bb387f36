"""The book in LaTeX: each derivation a theorem with its hypotheses, its proof in checked steps, and remarks.

What an earlier result has is cited by the number of its step, and conventions are said once. What was checked of the
steps stands in one sentence at the end of each proof; how claims are checked is in the introduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from symcircuits.core.text import amount
from symcircuits.core.version import VERSION
from symcircuits.derivation.claims import Step
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.nodes import Expr
from symcircuits.derivation.printing.citations import Citations, Place, repeats_terms, shown_by_next
from symcircuits.derivation.printing.conventions import LABELS, START, consequence, fixed, notation_clauses
from symcircuits.derivation.printing.displays import step_display
from symcircuits.derivation.printing.introduction import introduction
from symcircuits.derivation.printing.numbering import MACRO, numbered, numbering
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.printing.proved import proved_sentence
from symcircuits.derivation.printing.words import given_words, model_sentence, section, statement

__all__ = ["Part", "book_latex"]

_LONG = 70  # letters of a reason that is not given twice
AUTHOR: Final = "The symcircuits developers"
_HEAD = r"""\documentclass[10pt]{article}
\usepackage[a4paper,textwidth=160mm,textheight=250mm]{geometry}
\usepackage{amsmath,amssymb,xcolor}
\usepackage[colorlinks,linkcolor=blue!50!black,urlcolor=blue!50!black,bookmarksnumbered]{hyperref}
\hypersetup{pdftitle={%(title)s},pdfauthor={%(author)s},pdfsubject={symcircuits %(version)s}}
\setlength{\parindent}{0pt}
\emergencystretch=3em
\newcounter{step}[subsection]
\renewcommand{\thestep}{\thesubsection.\arabic{step}}
\renewcommand{\theHstep}{\thesubsection.\arabic{step}}
%(macro)s
\newcommand{\result}{\textbf{Theorem~\thesubsection.} }
\newcommand{\named}[1]{\par\smallskip\noindent\textit{#1.} }
\newcommand{\nextstep}[2]{\refstepcounter{step}\label{#1}\textbf{\thestep} (\textit{#2}). }
\newcommand{\step}[2]{\par\smallskip\noindent\nextstep{#1}{#2}}
\newcommand{\checked}[1]{\par\smallskip\noindent{\small #1\hfill$\square$\par}}
\begin{document}
\setlength{\abovedisplayskip}{4pt plus 2pt minus 2pt}\setlength{\belowdisplayskip}{4pt plus 2pt minus 2pt}
\setlength{\abovedisplayshortskip}{3pt plus 2pt}\setlength{\belowdisplayshortskip}{3pt plus 2pt}
\title{%(title)s}
\author{%(author)s}
\date{symcircuits %(version)s, %(date)s}
\maketitle
\tableofcontents
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A derivation of a book: the name of its file, its heading, and itself."""

    name: str
    heading: str
    derivation: Derivation


def book_latex(title: str, chapters: Mapping[str, Sequence[Part]], date: str = "") -> str:
    """Derivations as one document, chapter by chapter, with an introduction, bookmarks and references between them."""
    head = _HEAD % {
        "macro": MACRO,
        "title": prose(title),
        "author": AUTHOR,
        "version": VERSION,
        "date": date or r"\today",
    }
    every = [part for parts in chapters.values() for part in parts]
    blocks = [head]
    if every:
        blocks.append(introduction([part.derivation for part in every]))
    writer = _Writer(every[0].derivation.notation.name) if every else None
    for chapter, parts in chapters.items():
        blocks.append(f"\\section{{{prose(chapter)}}}\n")
        blocks += [writer.result(part, every) for part in parts if writer is not None]
    return "\n".join(blocks) + "\\end{document}\n"


class _Writer:
    """Writes the results of a book one after the other, and knows what the earlier ones have."""

    def __init__(self, notation: str) -> None:
        self.citations = Citations()
        self.said = {f"{START[notation]}.", LABELS}  # sentences on notation; the introduction has the first
        self.reasons: dict[str, Place] = {}  # where each was given first

    def result(self, part: Part, every: Sequence[Part]) -> str:
        """A result: statement, hypotheses, notation that is new, proof and remarks."""
        derivation = part.derivation
        sloppy = r"\sloppy" if derivation.notation.symbols else ""  # names may be long, and are not broken

        def said(sentences: Iterable[str]) -> str:
            return " ".join(prose(sentence, derivation.notation) for sentence in sentences)

        blocks = [
            f"\\begingroup\\allowdisplaybreaks{sloppy}",
            rf"\subsection{{{prose(part.heading)}}}\label{{result:{part.name}}}",
            rf"\result\textsl{{{said([statement(derivation)])}}}{_where(part)}",
            r"\named{Hypotheses}" + _lettered(map(said, ([line] for line in _hypotheses(derivation)))),
        ]
        clauses = [*notation_clauses(derivation), *numbering(derivation)]
        new = [clause for clause in clauses if clause not in self.said]
        self.said |= set(new)
        blocks += [r"\named{Notation}" + said(new)] if new else []
        blocks += [r"\named{Proof}" + self._proof(part)]
        blocks += [r"\named{Remarks}" + " ".join([said(_remarks(derivation)), *_relatives(part, every)]).strip()]
        self.citations.take(part.name, derivation.steps)
        return numbered("\n".join(blocks), derivation) + "\n\\par\\endgroup\n"

    def _proof(self, part: Part) -> str:
        steps, notation = part.derivation.steps, part.derivation.notation
        known: set[Expr] = set()
        blocks: list[str] = []
        run_in = True  # whether the step stands in the line of what is before it: the first, and cited ones
        for i, step in enumerate(steps):
            after = steps[i + 1] if i + 1 < len(steps) else None
            places = [self.citations.places(claim) for claim in step.claims]
            fresh = tuple(claim for claim, found in zip(step.claims, places, strict=True) if not found)
            by = _by(dict.fromkeys(place for found in places for place in found))
            macro = r"\nextstep" if run_in and (not fresh or not i) else r"\step"
            head = rf"{macro}{{step:{part.name}:{step.number}}}{{{step.kind}}}"
            listed = repeats_terms(step, steps[:i])
            reason = self._reason(part, step)
            if not fresh:
                body = f"This is {by}."
            elif after is not None and shown_by_next(step, after):
                body = f"{reason} The sum stands in {_ref((part.name, after.number))}."
            elif listed is not None:
                file = prose(f"{part.name}.tex")
                again = f"These are the terms of {_ref((part.name, listed.number))}, a map for each; "
                body = f"{reason} {again}the file {file} has them written out."
            else:
                new = replace(step, claims=fresh)
                body = f"{reason}{f' (See also {by}.)' if by else ''}\n{step_display(new, notation, known)}"
            blocks.append(head + body)
            run_in = not fresh
            known |= {side for claim in step.claims for side in claim.sides[1:]}
        return "\n".join(blocks) + "\n" + rf"\checked{{{prose(_checked(part.derivation), notation)}}}"

    def _reason(self, part: Part, step: Step) -> str:
        """Why a step holds; a long reason that an earlier step has is cited."""
        first = self.reasons.setdefault(step.reason, (part.name, step.number))
        if first != (part.name, step.number) and len(step.reason) > _LONG:
            return f"As in {_ref(first)}."
        return prose(step.reason, part.derivation.notation)


def _where(part: Part) -> str:
    """Where the sum of a path expansion stands."""
    found = [step for step in part.derivation.steps if "families" in step.check.also]
    return f" The sum is {_ref((part.name, found[-1].number))}." if found and part.derivation.result is None else ""


_WAYS: Final = {
    "values": "by values", "indices": "by indices", "count": "by counting", "exact": "exactly", "model": "on a model",
}  # fmt: skip


def _checked(derivation: Derivation) -> str:
    """How many claims were checked in which way, where, and with which error."""
    checks = [step.check for step in derivation.steps]
    ways = [(said, sum(c.claims for c in checks if c.how == how)) for how, said in _WAYS.items()]
    counts = dict.fromkeys(c for check in checks if check.prime for c in check.head_counts if c)
    groups = dict.fromkeys(c for check in checks if check.prime for c in check.groups if c)
    at = f" at head counts {_tuples(counts)}" + (f", in {_tuples(groups)} groups" if groups else "") if counts else ""
    given = dict.fromkeys(given_words(c) for c in checks if c.given)
    at += "".join(f"; random matrices modulo `p`{said}" for said in given)
    error = max((c.bound for c in checks if c.prime), default=0.0)
    numbers = ", ".join(
        f"{amount(n, 'claim') if not i else n} {how}" for i, (how, n) in enumerate(w for w in ways if w[1])
    )
    said = f"Checked: {numbers}{at}" + (f"; error at most `{error:.1e}`." if error else ".")
    return " ".join(filter(None, (said, proved_sentence(derivation))))


def _tuples(found: Iterable[tuple[int, ...]]) -> str:
    return ", ".join("(" + ",".join(map(str, c)) + ")" for c in found)


def _hypotheses(derivation: Derivation) -> list[str]:
    """Which model is meant, what is held fixed, and what is given of the matrices."""
    result = derivation.result
    given = {"rows sum to one": "The rows of every pattern sum to one.", "causal": "Patterns are causal.",
             "one-hot tokens": "The rows of `t` sum to one."}  # fmt: skip
    more = [given[name] for name in (result.given if result else ()) if name in given]
    return [line for line in (model_sentence(derivation), *fixed(derivation), *more) if line]


def _remarks(derivation: Derivation) -> list[str]:
    said = section(derivation)
    paper = "" if said.startswith("own derivation") or "own derivation" in said else "In the paper: "
    return [line for line in (consequence(derivation), f"{paper}{said[0].upper()}{said[1:]}.") if line]


def _relatives(part: Part, every: Sequence[Part]) -> list[str]:
    """The result of the same target of the same kind of model, its heads listed where these are generic, or the other
    way round."""
    frame = part.derivation.frame
    same = [
        other.name for other in every
        if other.name != part.name and part.derivation.result is None and other.derivation.result is None
        and other.derivation.frame.architecture == frame.architecture and other.derivation.target == frame.target
    ]  # fmt: skip
    words = "With every head listed it is" if frame.generic else "For any numbers of heads it is"
    return [rf"{words} Theorem~\ref{{result:{name}}}." for name in same]


def _lettered(items: Iterable[str]) -> str:
    found = list(items)
    if len(found) == 1:
        return found[0]
    return "\n".join(f"({letter})~{item}" for letter, item in zip("abcdefghij", found, strict=False))


def _ref(place: Place) -> str:
    return rf"\ref{{step:{place[0]}:{place[1]}}}"


def _by(places: Iterable[Place]) -> str:
    """References to steps: ``1.2.1, 1.2.3 and 1.3.2``."""
    found = [_ref(place) for place in places]
    return " and ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)
