"""Reads any formula into nodes, and single formulas, as written, into raw words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from symcircuits.checking.claims import claims_of
from symcircuits.checking.environment import Environment
from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import CONVENTIONS, MAX_WORDS, Formula, RawFactor, RawWord
from symcircuits.checking.grammar import read_document
from symcircuits.checking.labels import Free
from symcircuits.checking.matching import letters_of
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.names import Names
from symcircuits.checking.patterns import pattern
from symcircuits.checking.python_code import read_code
from symcircuits.checking.readings import Reading
from symcircuits.checking.roles import Roles
from symcircuits.checking.statements import Rows
from symcircuits.checking.sympy_nodes import sympy_node
from symcircuits.checking.syntax import Document, Equation, Line, Name, nodes
from symcircuits.checking.tokens import MAX_TEXT
from symcircuits.core.architecture import Architecture
from symcircuits.core.notation import Notation
from symcircuits.core.text import brief
from symcircuits.core.words import Word

__all__ = ["MAX_WORDS", "Formula", "ReadError", "ReadText", "read", "read_text", "word_of"]

_CODE: Final = re.compile(
    r"\bmodel\.|\bblocks\.\d+\.|\beinsum\(|FactoredMatrix\(|\btorch\.|\bnp\.|^[ \t]*[A-Za-z_]\w{2,} *=.*@|\['\w+'\]|"
    r"\*\*|\bnorm\(|^[ \t]*(?:def|import|from|for|return)\s", re.MULTILINE
)  # fmt: skip


_LOOP: Final = re.compile(
    r"\bsum\(.*\bfor\s+\w+(?:\s*,\s*\w+)*\s+in\b|^[ \t]*for \w+(?:, *\w+)* in [^\n]*:[ \t]*$", re.MULTILINE
)
_CALLED: Final = re.compile(r"\b(?:torch|np|numpy|jnp|einops|math)\.\w[\w.]*\(")  # code whatever names are in it
_PRINTED: Final = re.compile(r"\[[LlMm]\d|\bX_?0\b|\^|⊗|\(x\)|^[ \t]*(?:logits|stream|T|[SX])\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ReadText:
    """The lines of a text and its layout."""

    document: Document
    rows: Rows
    code: bool
    strict: bool  # written with the names and labels that are printed here
    written: bool = True  # whether it was text

    @property
    def rows_count(self) -> int:
        """The number of lines as a person counts them."""
        return len(self.rows.numbers) or 1

    @property
    def several(self) -> bool:
        """Whether there is more than one line."""
        return self.rows_count > 1

    def line(self, at: int) -> int:
        """The line of a place, counted from 1."""
        return self.rows.number(at)


def word_of(formula: Any) -> Word | None:
    """The word of a term, or the word itself; None for anything else."""
    word = formula if isinstance(formula, Word) else getattr(formula, "word", None)
    return word if isinstance(word, Word) else None


def read_text(formula: Any, notation: Notation, architecture: Architecture) -> ReadText:
    """The nodes of a text or SymPy expression."""
    if not isinstance(formula, str):
        node = sympy_node(formula)
        document = Document((Line(1, 0, (Equation((node,), 0),)),))
        return ReadText(document, Rows(), False, True, False)
    if not formula.strip():
        raise ReadError("the formula is empty")
    own = Names(architecture, notation).own
    code = len(formula) <= MAX_TEXT and is_code(formula)
    if code and (found := _read_code(formula)) is not None:
        return found
    document, rows = read_document(formula, own)
    return ReadText(document, rows, code, _as_printed(document))


def _as_printed(document: Document) -> bool:
    """Whether names and labels are those that are printed here."""
    return any(
        isinstance(n, Name) and (n.text == "X0" or any(s.kind == "index" and _is_label(s.parts) for s in n.scripts))
        for line in document.lines for e in line.equations for side in e.sides if side is not None
        for n in nodes(side)
    )  # fmt: skip


def _read_code(text: str) -> ReadText | None:
    """The lines of code; None if it is not Python after all."""
    try:
        document, rows = read_code(text), Rows()
    except SyntaxError:
        return None
    for number, line in enumerate(re.compile(r"[^\n]*\n?").finditer(text), 1):
        if line[0].strip() and not line[0].lstrip().startswith("#"):
            rows.add(line.start(), number)
    return ReadText(document, rows, True, _as_printed(document))


def is_code(text: str) -> bool:
    """Whether a text looks like Python code.

    >>> is_code("virtual = model.W_E @ model.W_U"), is_code("W_E^T W_Q^T W_K W_E"), is_code("logits = X0 W_U.T")
    (True, False, False)
    >>> is_code("logits = np.matmul(X0, W_U.T)")
    True
    """
    if "\\" in text:
        return False
    called = bool(_CALLED.search(text)) and not re.search(r"[\^⊗]", text)
    return called or bool(_LOOP.search(text)) or (not _PRINTED.search(text) and bool(_CODE.search(text)))


def _is_label(parts: tuple[str, ...]) -> bool:
    return len(parts) == 1 and bool(re.fullmatch(r"[LlMm]\d\w*|final\w*|[QK][Ll]?\d\w*", parts[0]))


def read(
    formula: Any, architecture: Architecture, convention: str = "paper", symbols: Mapping[str, str] | None = None
) -> Formula:
    """One formula as written: a string (text notation or LaTeX), a SymPy expression, or a word or term.

    ``convention`` is its convention, ``symbols`` are other names of symbols in it; the letters of the result are always
    in the paper's convention. Raises :class:`ReadError`, with the position, if it cannot be read.

    >>> from symcircuits.core.architecture import attention_only
    >>> arch = attention_only((2, 2))
    >>> [word] = read(r"A[L0H1] X_0^{} W_{OV}^{\\mathrm{L0H1}\\,\\mathsf{T}} @ W_U.T", arch).words
    >>> [f.letter.text for f in word.factors], word.factors[1].at
    (['A[L0H1]', 'X0', 'W_OV[L0H1].T', 'W_U.T'], 8)
    >>> len(read("(X0 + A[L0H0] @ X0 @ W_OV[L0H0].T) @ W_U.T", arch).words)
    2
    """
    if convention not in CONVENTIONS:
        raise ValueError(f'convention must be "paper" (or "row") or "transformerlens", not {brief(convention)}')
    notation = Notation(CONVENTIONS[convention], symbols or ())
    word = word_of(formula)
    if word is not None:
        factors = tuple(RawFactor(letter, i) for i, letter in enumerate(letters_of(word.fused)))
        return Formula((RawWord(1, word.scales, factors),))
    text = read_text(formula, notation, architecture)
    reading = Reading("transformerlens" if convention == "transformerlens" else "paper")
    meaning = Meaning(architecture, reading, notation, Roles(text.document), text.document.source, pattern_of=pattern)
    try:
        claims = claims_of(text.document, meaning, Environment({}), False)
    except Free as free:
        message = f"{free.name!r} is not the name of a {free.role}"
        if free.name[0] == "@":
            message = f"this symbol needs a label, of a {free.name[1:]}, e.g. A[L0H0] or b_O[L0]"
        raise ReadError(message, text.document.source, free.at) from None
    claim = claims[0]
    if len(claims) > 1 or claim.kind == "equal":
        raise ReadError("give only one formula here, alone or after logits =, stream = or S[L1H0] =",
                        text.document.source, claims[-1].at)  # fmt: skip
    return Formula(claim.found.words, claim.target)
