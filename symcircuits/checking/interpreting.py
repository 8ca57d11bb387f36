"""Every way to read a text: readings, and ways to count layers, heads and omitted ranges."""

from __future__ import annotations

import re
from typing import Final

from symcircuits.checking.case import Asked
from symcircuits.checking.faults import ReadError, TooLong
from symcircuits.checking.formula import CONVENTIONS
from symcircuits.checking.one_reading import GENERAL, Attempt, Judged, attempt_of
from symcircuits.checking.reading import ReadText
from symcircuits.checking.readings import Reading, readings_of, variants
from symcircuits.checking.roles import Roles
from symcircuits.core.notation import as_notation
from symcircuits.core.text import setting

__all__ = ["Attempt", "attempts"]

_NUMBERED: Final = re.compile(r"[\[({]\s*\d+\s*[,.]\s*\d+|[A-Za-z]\}?\^\{?\(?\d")  # heads by their numbers
_LARGE: Final = 400  # products: above this the first reading that fits is kept
_LARGEST: Final = 4_000  # products: above this the first way to count is kept as well


def attempts(text: ReadText, asked: Asked, convention: str | None, own_notation: bool) -> list[Attempt]:
    """The text under every reading in which it can be read, the best first; else the ReadError of the likeliest."""
    roles = Roles(text.document)
    found: list[Attempt] = []
    total, long = [0], 0
    faults: list[ReadError] = []
    known: Judged = {}
    theirs = text.code and bool(re.search(r"\bmodel\.W_|\bmodel\.blocks\b", text.document.source))
    for reading in readings_of(convention, text.code and not text.strict, theirs):
        if reading.columns and (text.strict or (text.code and reading.weights == "transformerlens")):
            continue  # in code whose weights act on rows, a token is a row
        if not text.written and reading.weights != ("transformerlens" if convention == "transformerlens" else "paper"):
            continue
        ways = list(
            variants(
                reading, roles.counted or bool(roles.layers - {"l", "L", "ell"}) or _uses(roles), roles.open_ranges
            )
        )
        if text.code:
            ways = [w for w in ways if w.base == 0]
        elif asked.every and any(re.search(r"H_\(?\d", b.over) for b in roles.bounds):  # as its symbols are named
            ways = [w for w in ways if w.base == 1]
        best: list[Attempt] = []
        for way in ways:
            try:
                best.append(attempt_of(text, roles, way, _asked(asked, way, own_notation), total, known))
                if best[-1].right and best[-1].misfits == 0 and best[-1].words > _LARGEST:
                    break
            except TooLong as fault:
                faults.append(fault)
                long += 1
                if long > 1 and not found:
                    raise
            except ReadError as fault:
                faults.append(fault)
        if best:
            best.sort(key=lambda a: (not a.right, a.wrongs, a.misfits))  # a stable sort
            for one in best:
                one.lead = best[0]
            found += best
            if found[0].misfits == 0 and (found[0].words > _LARGE or (text.strict and found[0].right)):
                break
    if not found and not faults:  # no reading was tried
        raise ReadError(
            f"the names that symcircuits prints have a row for each token: {setting('convention', 'columns')} "
            "is for formulas with other names",
            text.document.source,
        )
    if not found:
        raise _likeliest(faults)
    ranked = _ranked(found, text)
    _of_more_heads(ranked[0], text, roles, _asked(asked, ranked[0].reading, own_notation))
    return ranked


def _of_more_heads(best: Attempt, text: ReadText, roles: Roles, asked: Asked) -> None:
    """Where a sum runs over the only head of a layer, also check the text with two heads there.

    With one head, a sum over heads and a free head cannot be told apart. A layer whose heads are named keeps its
    number of heads.
    """
    arch, source = asked.architecture, text.document.source
    named = {int(layer) for layer in re.findall(r"L(\d+)H\d", source)}
    named -= {int(k) - 1 for b in roles.bounds for k in re.findall(r"H_\(?(\d+)", b.over)}  # over all of these
    heads = tuple(2 if n == 1 and layer not in named else n for layer, n in enumerate(arch.heads))
    summed = any(roles.of(n) in ("head", "number") for b in roles.bounds for n in b.names)
    if not best.right or not summed or heads == arch.heads or arch.groups or _NUMBERED.search(source):
        return
    try:
        other = asked._replace(architecture=arch.resized(heads))
        found = attempt_of(text, roles, best.reading, other, [0], {}, max(arch.heads) < 2)
    except ValueError:  # with two heads it is ambiguous, or too long
        return
    wrong = found.wrong
    if wrong and wrong.verdict.mistake != "count" and not any(name[0] == "@" for name in found.free):
        said = ",".join(map(str, heads))
        best.outcomes = found.outcomes
        best.notes = (f"with one head in a layer this is right, but not for other numbers of heads, such as {said}",)
    elif not wrong and found.verdict.where != best.verdict.where:  # for other numbers only under a hypothesis
        best.outcomes = found.outcomes
    elif not wrong and min(heads) > 1:
        best.notes = tuple(GENERAL if "checked for" in note else note for note in best.notes)


def _uses(roles: Roles) -> bool:
    return bool(roles.numbers)


def _likeliest(faults: list[ReadError]) -> ReadError:
    """The error of the first reading, or of the reading that got furthest."""
    return max(faults, key=lambda f: (f is faults[0], f.position))


def _asked(asked: Asked, reading: Reading, own_notation: bool) -> Asked:
    convention = reading.convention if reading.convention in CONVENTIONS else "paper"
    notation = asked.notation
    if own_notation:
        notation = as_notation(CONVENTIONS[convention], notation.names)
    return asked._replace(convention=convention, notation=notation)


def _ranked(found: list[Attempt], text: ReadText) -> list[Attempt]:
    """Attempts whose products fit come first, then by how likely the reading is."""
    order = {id(a): i for i, a in enumerate(found)}

    def rank(one: Attempt) -> tuple[bool, int, int]:
        a = one.lead or one
        usual = a.reading.weights == "paper" or text.code
        trusted = a.misfits == 0 and (usual or a.anchored) and (a.right or not mixed(a))
        if text.code and not trusted and indexed:
            return (True, 0, order[id(one)])  # W_V[0, 1] is TransformerLens's
        unlikely = 3 if a.maps and not usual else 1
        return (not trusted, unlikely * a.misfits if (usual or a.anchored) and not mixed(a) else 1_000, order[id(one)])

    def mixed(a: Attempt) -> bool:
        return a.reading.columns and a.reading.weights != "paper"

    indexed = bool(re.search(r"W_\w+\[\d+, *\d+", text.document.source))

    return sorted(found, key=rank)
