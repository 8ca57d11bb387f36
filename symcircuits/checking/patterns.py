"""The softmax of scores: the pattern of a head, if the argument is exactly the scores of that head."""

from __future__ import annotations

from typing import Final

from symcircuits.checking.comparing import UNSCALED, compared
from symcircuits.checking.finishing import finish
from symcircuits.checking.formula import Letter, RawFactor, RawWord
from symcircuits.checking.labels import Finding
from symcircuits.checking.matching import Matcher
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.mistakes import counterpart, mistake_between
from symcircuits.checking.values import Value, letter_value
from symcircuits.core.expansion import expand

__all__ = ["pattern"]

_MOST: Final = 5_000  # terms: the argument of a softmax is compared with scores of at most so many
_OWN: Final = ("Y", "t", "W_E", "W_QK", "W_Q", "W_K", "R", "b_Q", "b_K", "D", "C", "gain", "b_N", "ones")


def pattern(meaning: Meaning, value: Value, axis: str, at: int) -> Value:
    """The pattern of the head whose scores these are; a finding if they are not exactly its scores."""
    chains = [c for w in value for c in (*(w.slots or ()), *w.entries)]
    heads = {f.letter.label for c in chains for f in c.factors if f.letter.glyph in ("W_QK", "W_Q")}
    if len(heads) != 1:
        raise meaning.fault("softmax must be of the scores of one head", at)
    label = heads.pop()
    ends = {meaning.sizes.ends(c) for c in chains}
    if ends != {("token", "token")}:
        row, col = (x.split()[0] if x else "unknown" for x in next(iter(ends), ("", "")))
        message = ("the softmax is of a matrix without a row for each query and a column for each key: "
                   f"its rows are {row}, its columns {col}")  # fmt: skip
        misfits = sum(map(meaning.sizes.misfits, chains))
        meaning.findings += [Finding("pattern-side", message, at)] * (2 + misfits)  # other readings come first
        return letter_value(Letter("A", label), at)
    indices = {(c.row, c.col) for c in chains}
    row, col = next(iter(indices))
    if len({frozenset(x) for x in indices}) != 1 or bool(row) != bool(col) or (row and row == col):
        raise meaning.fault("the entries inside a softmax must all have the same two indices", at)
    if axis and not row:
        raise meaning.fault(f"the softmax over {axis} must be of entries, e.g. softmax_j(x_i W_QK x_j^T)", at)
    scores = _scores(meaning, label, any(f.letter.glyph == "Y" for c in chains for f in c.factors), at)
    before, first = list(meaning.findings), None
    for query, key in ((row, col), (col, row))[: 2 if row else 1]:
        meaning.findings = list(before)
        inside = finish(meaning, value, at, (query, key) if row else ())
        found = compared(inside.words, scores, meaning.sizes.spelling)
        if found.equal and len(meaning.findings) == len(before):
            meaning.noted.unscaled |= UNSCALED in found.where
            if axis and axis != key:
                message = f"the softmax runs over {axis}; {key} is the index of the keys"
                meaning.findings.append(Finding("pattern-side", message, at))
            made = letter_value(Letter("A", label), at, query, key)
            return [w._replace(slots=(), entries=w.slots or ()) for w in made] if row else made
        first = first or (found, meaning.findings)
    assert first is not None
    found, meaning.findings = first
    if len(meaning.findings) == len(before):
        mistake = "missing-terms" if found.missing else "extra-terms"
        if found.extra:
            (_, letters), _ = found.extra[0]
            spelling = meaning.sizes.spelling
            near = counterpart(letters, [k[1] for k, _ in found.missing] or [w.letters for w in scores], spelling)
            same = near is not None and any(k[1] == letters for k, _ in found.missing)
            if same or any(spelling.canonical(spelling.fuse(w.letters)) == letters for w in scores):
                mistake = "scale" if same else "doubled-factor" if len(value) == 1 else "extra-terms"
            else:
                mistake = mistake_between(letters, near, spelling) if near else "unknown"
        message = f"the argument of the softmax is not the scores of head {label}"
        meaning.findings += [Finding(mistake, message, at)] * (1 + sum(map(meaning.sizes.misfits, chains)))
    return letter_value(Letter("A", label), at)


def _scores(meaning: Meaning, label: str, opaque: bool, at: int) -> list[RawWord]:
    """All terms of the scores of a head; ``opaque``: of the scores of an arbitrary stream ``Y``."""
    expansion = expand(meaning.architecture, f"scores:{meaning.head_called(label, at)}")
    if expansion.count > _MOST:
        raise meaning.fault(f"the scores inside this softmax have {expansion.count:,} terms; at most {_MOST:,} are "
                            "compared", at)  # fmt: skip
    matcher = Matcher(expansion)
    out = []
    for term in expansion:
        letters = list(matcher.term_letters(term))
        if opaque:
            if letters[:2] == [Letter("t"), Letter("W_E", "", letters[1].transposed)]:
                letters[:2] = [Letter("Y")]
            if letters[-2:] == [Letter("W_E", "", letters[-2].transposed), Letter("t", "", True)]:
                letters[-2:] = [Letter("Y", "", True)]
            own = _OWN if meaning.architecture.positions == "standard" else (*_OWN, "P")
            if any(f.glyph not in own for f in letters):
                continue
        out.append(RawWord(1, term.word.scales, tuple(RawFactor(f, 0) for f in letters)))
    return out
