"""Subscripts, superscripts and ranges of sums as plain text: without fonts, spaces and braces, split at commas."""

from __future__ import annotations

import re
from typing import Final

from symcircuits.checking.syntax import Bound
from symcircuits.core.symbols import ANY_OWNER

__all__ = ["bounds_of", "parts_of", "plain", "split_transposes"]

_FACES: Final = re.compile(r"\\(?:mathrm|mathbf|mathcal|mathsf|mathit|mathbb|mathtt|boldsymbol|bm|operatorname|textrm"
                           r"|textbf|textit|texttt|textsf|text|rm|bf|it|sf|tt|cal)(?![A-Za-z])\*?")  # fmt: skip
_SPACES: Final = re.compile(r"\\[,;:!>]|\\quad|\\qquad|~|\\ ")
_WORDS: Final = (  # first the label beside what a page prints for it, as in \labelled{L1H0}{h_{2}}
    (re.compile(r"\\labelled\s*\{([^{}]*)\}\s*\{(?:[^{}]|\{[^{}]*\})*\}"), r"\1"),
    (re.compile(r"\\(?:to|rightarrow|mapsto|longrightarrow)(?![A-Za-z])|→"), "->"),
    (re.compile(r"\\lfloor\s*(.*?)/(.*?)\s*\\rfloor"), r"\1//\2"),
    (re.compile(r"\\lfloor\s*\\frac\s*\{(.*?)\}\s*\{(.*?)\}\s*\\rfloor"), r"\1//\2"),
    (re.compile(r"\\(?:bmod|mod|%)(?![A-Za-z])|\bmod\b"), "%"),
    (re.compile(r"\\cup(?![A-Za-z])|∪"), "|"),
    (re.compile(r"\\in(?![A-Za-z])|∈|(?<=\s)in(?=\s)"), "∈"),
    (re.compile(r"\\(?:leq?|leqslant)(?![A-Za-z])|≤"), "<="),
    (re.compile(r"\\(?:c?dots|ldots)(?![A-Za-z])|…|\.{3}"), ".."),
    (re.compile(r"\\prime(?![A-Za-z])"), "'"),
    (re.compile(r"\\ell(?![A-Za-z])"), "l"),
    (re.compile(r"\\(?:left|right|limits|nolimits)(?![A-Za-z])"), ""),
    (re.compile(r"\\\\"), ","),
    (re.compile(r"\\substack(?![A-Za-z])"), ""),
)
_OWNED: Final = re.compile(rf"\s*([A-Za-z]\w*)\s+({ANY_OWNER})\s*")
_TRANSPOSE: Final = re.compile(r"\\(?:top|intercal|transp)(?![A-Za-z])|\\(?:mathsf|mathrm|mathtt|text)\s*\{\s*T\s*\}|"
                               r"⊤|ᵀ|\\mathsf\s+T(?![A-Za-z])|(?<![A-Za-z\\_])T(?![A-Za-z0-9_])|"
                               r"(?<=[a-z])(?<![A-Za-z\\][a-z])T(?=\s*$)")  # fmt: skip


def split_transposes(text: str) -> tuple[str, int]:
    """A superscript without its transposes, and their number.

    >>> split_transposes(r"\\mathrm{L0H1}\\,\\mathsf{T}"), split_transposes("T"), split_transposes("h")
    (('\\\\mathrm{L0H1}\\\\,', 1), ('', 1), ('h', 0))
    """
    rest, count = _TRANSPOSE.subn("", text)
    return rest, count


def plain(text: str) -> str:
    """A script as plain text.

    >>> plain(r"\\lfloor h/2 \\rfloor"), plain(r"h_1 \\to h_2"), plain(r"h \\bmod 2"), plain(r"\\text{eff}")
    ('h//2', 'h_1->h_2', 'h%2', 'eff')
    >>> plain(r"\\labelled{L1H0}{h_{2}}"), plain(r"\\labelled{QL1H0}{\\mathrm{Q}h_{2}}")
    ('L1H0', 'QL1H0')
    """
    if "\\" in text or not text.isalnum():
        for pattern, word in _WORDS:
            text = pattern.sub(word, text)
        text = _SPACES.sub(" ", _FACES.sub(" ", text))
        text = re.sub(r"[\s{}$]", "", text)
    return text


def parts_of(text: str) -> tuple[str, ...]:
    """A script split at its commas, except those in brackets; parentheses around the whole are left out.

    A label after a space is a separate part: SymPy prints a symbol named ``W_OV_L0H1`` as ``W_{OV L0H1}``.

    >>> parts_of("OV L0H1"), parts_of("(l, h)"), parts_of("0, 1, :, :"), parts_of("tokens[-1], tokens"), parts_of("")
    (('OV', 'L0H1'), ('l', 'h'), ('0', '1', ':', ':'), ('tokens[-1]', 'tokens'), ())
    """
    if " " in text and (named := _OWNED.fullmatch(text)):
        return named[1], named[2]
    text = plain(text)
    if text[:1] == "(" and text[-1:] == ")" and "(" not in text[1:]:
        text = text[1:-1]
    if "[" not in text and "(" not in text:
        return tuple(part for part in text.split(",") if part)
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return tuple(part for part in (*parts, text[start:]) if part)


def bounds_of(below: str, above: str, at: int) -> tuple[Bound, ...]:
    """The variables and ranges of a sum sign, from the text below and above it.

    >>> [b.names + (b.over,) for b in bounds_of(r"h \\in H_1 \\cup H_2", "", 0)]
    [('h', 'H_1|H_2')]
    >>> [b.names + (b.over,) for b in bounds_of("h=1", "H", 0) + bounds_of(r"\\text{heads } k", "", 0)]
    [('h', '1..H'), ('k', '')]
    >>> [b.names + (b.over,) for b in bounds_of(r"q,k \\in H_1", "", 0) + bounds_of(r"a \\in H_1, b \\in H_2", "", 0)]
    [('q', 'k', 'H_1'), ('a', 'H_1'), ('b', 'H_2')]
    >>> [b.names + (b.over,) for b in bounds_of(r"\\substack{0 \\leq g \\leq H_1 - 1\\\\1 \\leq h \\leq H}", "", 0)]
    [('g', '0..H_1-1'), ('h', '1..H')]
    >>> [b.names + (b.over,) for b in bounds_of("l_1 < l_2", "", 0) + bounds_of("m<l", "", 0)]
    [('l_1', 'l_2', '<'), ('m', '<l')]
    """
    text = re.sub(r"\\text\s*\{\s*(?:all\s+)?heads?\s*\}|\bheads?\s+(?=\w)", "", below) if "head" in below else below
    found, waiting = [], list[str]()
    text = re.sub(r"=(\d+),\.\.,", r"=\1..", plain(text))
    for part in parts_of(text) or parts_of(below):
        if both := re.fullmatch(r"([01])<=([A-Za-z]\w*'*)<=(H.*)", part):  # as SymPy prints several sums in one
            found.append(Bound((*waiting, both[2]), f"{both[1]}..{both[3]}", at))
            waiting = []
            continue
        if "<" in part and re.fullmatch(r"[a-z](?:_?\w)?'*(?:<[a-z](?:_?\w)?'*)+", part):  # layers in order
            names = tuple(part.split("<"))
            alike = len({name[0] for name in names}) == 1  # in l_1 < l_2 both are bound, in m < l only the first
            found.append(Bound((*waiting, *(names if alike else names[:-1])), "<" if alike else "<" + names[-1], at))
            waiting = []
            continue
        for sign in ("∈", "<=", "<", "="):
            if sign in part:
                name, _, over = part.partition(sign)
                over = sign + over if sign[0] == "<" else over
                if sign == "=" and ".." not in over:
                    over = f"{over}..{plain(above)}" if above else f"={over}"
                elif above:
                    over += f"^{plain(above)}"
                found.append(Bound((*waiting, name), over, at))
                waiting = []
                break
        else:
            waiting.append(part)
    if waiting:
        found.append(Bound(tuple(waiting), f"^..{plain(above)}" if above else "", at))
    return tuple(found)
