"""The row *same words*: every printed term, letter by letter in order, against the recursion multiplied out.

It is used if there are more terms than SymPy is given. It reads the text of the terms as in files and in
``terms``, and compares it with the result of :mod:`symcircuits.verification.packed_words`, which is independent of
the enumeration: it walks the recursion and adds up the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from symcircuits.core.expansion import Expansion
from symcircuits.verification.packed_words import multiply_out
from symcircuits.verification.prime_field import longest
from symcircuits.verification.printed_words import Printed, WordReader, printed
from symcircuits.verification.result import Check
from symcircuits.verification.rows import NOTHING, left_out, named

__all__ = ["MAX_LETTERS", "MAX_WORDS", "check_words"]

NAME = "same words"
MAX_WORDS = 150_000  # terms of one target
# Letters of all targets together. This limits time and memory, and is counted so that the same is checked on
# every machine: three million take half a second, and each letter at most 48 bytes (a limb in six copies).
MAX_LETTERS = 3_000_000
BLOCK = 1 << 14  # terms read at once


def _printed(e: Expansion) -> Iterable[Printed]:
    return printed(e.blocks(BLOCK))


def check_words(
    group: Sequence[Expansion],
    limits: tuple[int, int] = (0, MAX_WORDS),
    lines: Callable[[Expansion], Iterable[Printed]] = _printed,
) -> Check | None:
    """Whether the terms, as printed, are the words of the recursion multiplied out, with the same multiplicities.

    ``limits``: it is used for targets with more terms than the first, and at most as many as the second. None if no
    target has more than the first.

    >>> import symcircuits as sc
    >>> check_words([sc.scores(sc.attention_only((12, 12)), "L1H0")]).details
    {'terms': 169, 'not_looked_at': []}
    """
    sized = [e for e in group if e.count > limits[0]]
    chosen, left = _affordable(sized, limits[1])
    if not chosen:
        return _too_many(sized, limits[1]) if sized else None
    seen, differing, faults = 0, 0, list[str]()
    for e in chosen:
        count, wrong, found = _compared(e, lines)
        seen, differing = seen + count, differing + wrong
        faults += [f"{e.target}: {fault}" for fault in found]
    what = (
        f"the recursion multiplied out in integers: {seen:,} words, the same as printed, letter by letter in order, "
        "with the same multipliers and types"
    ) + left_out(left)
    details = {"terms": seen, "not_looked_at": [e.target for e in left]}
    return Check(NAME, named(chosen), not differing, differing, 0, what=faults[0] if faults else what, details=details)


def _affordable(sized: Sequence[Expansion], most: int) -> tuple[list[Expansion], list[Expansion]]:
    """The targets that are checked, in their order, and those that are too large."""
    chosen, left, letters = list[Expansion](), list[Expansion](), 0
    for e in sized:
        cost = e.count * longest(e.readout) if e.count <= most else MAX_LETTERS + 1
        fits = letters + cost <= MAX_LETTERS
        (chosen if fits else left).append(e)
        letters += cost * fits
    return chosen, left


def _too_many(sized: Sequence[Expansion], most: int) -> Check:
    smallest = min(sized, key=lambda e: e.count)
    what = f"{smallest.count:,} terms or more, the limit is {most:,}"
    if smallest.count <= most:
        what = f"{smallest.count * longest(smallest.readout):,} letters or more, the limit is {MAX_LETTERS:,}"
    return Check(NAME, named(sized), None, None, None, what=what)


def _compared(e: Expansion, lines: Callable[[Expansion], Iterable[Printed]]) -> tuple[int, int, list[str]]:
    """How many words were multiplied out, how many terms and words differ, and examples."""
    right = multiply_out(e.readout)
    if not right.count:
        return 0, 1, [NOTHING]
    reader = WordReader(right.alphabet)
    found = reader.words(lines(e))
    faults, differing = reader.faults, reader.unread + reader.mistyped
    if not right.same(found):
        missing, extra = right.less(found), found.less(right)
        differing += missing.count + extra.count
        faults = [*faults, *(f"not multiplied out: {text}" for text in islice(extra.texts(), 1))]
        faults += [f"missing here: {text}" for text in islice(missing.texts(), 1)]
    elif reader.uneven:  # the words are right, but listed under other orders and types
        differing += reader.uneven
        faults = [*faults, "lines are in another block than their orders and types"]
    return right.count, differing, faults
