"""The row *same page*: the LaTeX printed for an expansion, read back, gives the words that were checked.

The reader here shares nothing with the printer: it has its own table of glyphs and its own rules of the notations,
and uses the architecture only for which heads share keys and values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.text import amount
from symcircuits.core.words import Word
from symcircuits.verification.result import Check
from symcircuits.verification.rows import NOTHING, named

__all__ = ["check_page", "printed_terms", "read_term"]

Letter = tuple[str, bool]  # the name of an argument, and whether it is transposed
Read = tuple[Counter[str], tuple[Letter, ...]]  # numbers in front, and the product

NOTATIONS: Final = ("row", "paper", "transformerlens")
LISTED: Final = 500  # up to this number, all terms of a target are printed and read
SPREAD: Final = 50  # beyond: this many, spread evenly over all
WHOLE: Final = 40  # up to this number of terms the display of a notebook has all of them
_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_NAME = rf"(?:\\mathbf\{{1\}}|\\Gamma|[A-Za-z])(?:_(?:{_GROUP}|[A-Za-z0-9]))?"
_TOKEN: Final = re.compile(rf"\\bigl\(|\\bigr\)|\\otimes|\\mathrm\{{Id\}}|,|({_NAME})(?:\^({_GROUP}))?|\S")
_SPACE: Final = re.compile(r"\\[,;](?![^{]*\})")
_GLYPHS: Final = {
    "W_{OV}": "W_OV", "W_{QK}": "W_QK", "X_0": "X0", r"\mathbf{1}": "ones", r"\Gamma": "gain", "M": "mlp",
    "R_{j-i}": "R",
}  # fmt: skip
_ROW = re.compile(r"(?:(.*?)&= |&\\quad \+ )(.*?) ?&&\\text\{([^{}]*)\}")


class Unread(ValueError):
    """The printed text is not a term."""


def read_term(latex: str, architecture: Architecture, notation: str) -> Read:
    """A printed term as a product of letters, without abbreviations, in the row convention.

    >>> from symcircuits.core.architecture import attention_only
    >>> latex = r"\\bigl(A^{\\mathrm{L0H0}} \\otimes W_U\\bigr)\\,P"
    >>> read_term(latex, attention_only((1,)), "paper")[1]
    (('A_L0H0', False), ('P', False), ('W_U', True))
    """
    tokens = list(_TOKEN.finditer(_SPACE.sub(" ", latex)))
    numbers: Counter[str] = Counter()
    while tokens and tokens[0][1] and (number := _number(tokens[0][1], tokens[0][2] or "")):
        numbers[number] += 1
        del tokens[0]
    if not tokens or tokens[0][0] != r"\bigl(":
        return numbers, _product(tokens, architecture, notation)
    end = next((i for i, token in enumerate(tokens) if token[0] == r"\bigr)"), 0)
    slots = [_product(part, architecture, notation) for part in _split(tokens[1:end], r"\otimes")]
    rest = tokens[end + 1 :]
    if rest and rest[0][0] == r"\bigl(" and rest[-1][0] == r"\bigr)":
        rest = rest[1:-1]
    sources = [_product(part, architecture, notation) for part in _split(rest, ",")]
    if (len(slots), len(sources)) == (2, 1):
        return numbers, (*slots[0], *sources[0], *_turned(slots[1]))
    if (len(slots), len(sources)) == (3, 2):
        return numbers, (*slots[0], *sources[0], *slots[2], *_turned(sources[1]), *_turned(slots[1]))
    raise Unread(f"{len(slots)} slots act on {len(sources)} sources")


def _number(name: str, script: str) -> str:
    """The name of a score scale or multiplier; empty for a matrix."""
    label, turned = _script(script)
    if turned or name not in ("s", "r", "m_E", "m_U"):
        return ""
    return label if name == "s" else f"r[{label}]" if name == "r" else name


def _script(script: str) -> tuple[str, bool]:
    """The label in a superscript, and whether it marks a transpose."""
    label = re.sub(r"\\mathsf\{T\}|\\mathrm|\\,|[{}\s]", "", script)
    return label, r"\mathsf{T}" in script


def _split(tokens: Sequence[re.Match[str]], mark: str) -> Iterator[list[re.Match[str]]]:
    part: list[re.Match[str]] = []
    for token in tokens:
        if token[0] == mark:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _product(tokens: Sequence[re.Match[str]], architecture: Architecture, notation: str) -> tuple[Letter, ...]:
    found: list[Letter] = []
    if [token[0] for token in tokens] == [r"\mathrm{Id}"]:
        return ()
    for token in tokens:
        if not token[1]:
            raise Unread(f"{token[0]} occurs in a product")
        label, turned = _script(token[2] or "")
        glyph = _GLYPHS.get(token[1], re.sub(r"\\mathrm|[{}]", "", token[1]))
        if notation == "transformerlens" and (glyph[:2] == "b_" or (glyph[:2] == "W_" and glyph != "W_QK")):
            turned = not turned  # its weights are the transposes of ours
        letters = _spelled(glyph, label, architecture)
        found += _turned(letters) if turned else letters
    if not found:
        raise Unread("an empty product")
    return tuple(found)


def _spelled(glyph: str, label: str, architecture: Architecture) -> tuple[Letter, ...]:
    """A symbol, or the product that it abbreviates."""
    if glyph == "X0":
        return ("t", False), ("W_E", True)
    if glyph in ("W_OV", "W_QK"):
        shared = architecture.key_value(architecture.head(label))
        first, second = (f"W_{glyph[2]}_{label}", f"W_{glyph[3]}_{shared}")
        return (first, glyph == "W_QK"), (second, False)
    return ((f"{glyph}_{label}" if label else glyph, False),)


def _turned(letters: Iterable[Letter]) -> tuple[Letter, ...]:
    """The transpose of a product; symmetric matrices have no transpose mark."""
    same = ("D_", "C", "gain_", "R_")
    return tuple((name, not turned and not name.startswith(same)) for name, turned in reversed(tuple(letters)))


def held(word: Word) -> Read:
    """A word, in the same form."""
    return Counter(word.scales), tuple((f.symbol.argument, f.marked) for f in word.factors)


def printed_terms(expansion: Expansion, terms: Sequence[Term], notation: str) -> Iterator[tuple[str, str]]:
    """The printed form of some terms, each with its type: from the display of a notebook if it has them all."""
    if len(terms) == expansion.count <= WHOLE:
        kind, _, label = expansion.target.partition(":")
        target = rf"S^{{\mathrm{{{label}}}}}" if label else rf"\mathrm{{{kind}}}"
        for row in expansion.written(notation).latex().split("\\\\\n"):
            found = _ROW.search(row.removeprefix("\\begin{align*}\n"))
            if found and (found[1] or "").strip() in ("", target) and found[3] != "not a path term":
                yield found[2], found[3]
    else:
        yield from ((term.written(notation).latex(), term.composition) for term in terms)


def check_page(
    group: Sequence[Expansion],
    printed: Callable[[Expansion, Sequence[Term], str], Iterable[tuple[str, str]]] = printed_terms,
) -> Check:
    """Whether the printed terms, in three notations, are read back as the words that were checked, with their types."""
    if group[0].architecture.attachments:
        return Check("same page", named(group), None, None, None, what="names of attachments are not read")
    faults, seen, sampled = list[str](), 0, 0
    for e in group:
        spread = range(0, e.count, e.count // SPREAD) if e.count > LISTED else ()
        terms = [e[i] for i in spread] if spread else list(e)
        for notation in NOTATIONS:
            rows = list(printed(e, terms, notation))
            faults += [f"{e.target}: {notation}: {amount(len(rows), 'term')} printed"] * (len(rows) != len(terms))
            for term, (latex, composition) in zip(terms, rows, strict=False):
                faults += _fault(term, latex, composition, notation)
        faults += [] if terms else [f"{e.target}: {NOTHING}"]
        seen, sampled = seen + len(terms), sampled + len(terms) * (e.count > LISTED)
    what = f"LaTeX of {amount(seen, 'term')}, read back in each of three notations, gives their words and types"
    what += f"; {sampled:,} of them a sample" if sampled else ""
    return Check("same page", named(group), not faults, len(faults), 0, what=faults[0] if faults else what)


def _fault(term: Term, latex: str, composition: str, notation: str) -> list[str]:
    try:
        read = read_term(latex, term.readout.architecture, notation)
    except ValueError as fault:
        return [f"{term.label}: {latex} cannot be read in notation {notation}: {fault}"]
    if read != held(term.word):
        return [f"{term.label}: {latex} in notation {notation} is not {term.word.text}"]
    return [] if composition == term.composition else [f"{term.label} is printed as of type {composition}"]
