"""The row *same names*: the names and numbers of a term agree with its word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import numpy as np

from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.rules import is_score, score_sides
from symcircuits.core.text import amount
from symcircuits.core.walk import Counts, walk
from symcircuits.core.words import Factor, Word
from symcircuits.verification.result import Check
from symcircuits.verification.rows import MAX_TERMS, NOTHING, named

__all__ = ["check_names", "misnamed", "read_paths"]

SAMPLE = 200  # terms per target whose number is looked up both ways
WORK = 2_000_000  # total number of heads in these look-ups: for very wide layers fewer terms are drawn
_SOURCES = {"t": "embed", "P": "pos"}


def read_paths(word: Word) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The source and the heads (earliest first) of each side, read from the symbols of a word alone.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import scores
    >>> read_paths(scores(attention_only((2, 1)), "L1H0")[1].word)
    (('embed', ()), ('embed', ('L0H0',)))
    """
    return tuple(_read_side(side.factors) for side in (score_sides(word) if is_score(word) else (word,)))


def _read_side(factors: Sequence[Factor]) -> tuple[str, tuple[str, ...]]:
    left = list(takewhile(lambda f: f.symbol.glyph in ("A", "D"), factors))
    heads = [f.symbol.label for f in left if f.symbol.glyph == "A"]
    core = factors[len(left)].symbol
    if core.own:
        return core.glyph, tuple(reversed(heads))
    source = _SOURCES.get(core.glyph) or (factors[len(left) + 1].symbol.text if core.glyph == "ones" else core.text)
    return source, tuple(reversed(heads))


def check_names(
    group: Sequence[Expansion],
    seed: int = 0,
    limit: int = MAX_TERMS,
    terms: Callable[[Expansion], Iterable[Term]] = iter,
) -> Check:
    """Whether labels, orders, counts and numbers agree with the words; above the limit on a random sample."""
    faults: list[str] = []
    listed, sampled = 0, 0
    for e in group:
        whole = e.count <= limit
        if e.count != _counted(e):
            faults.append(f"{e.target}: it claims {amount(e.count, 'term')}, the walk counts {_counted(e):,}")
        seen: Counter[Any] = Counter()
        for i, term in _chosen(e, seed, whole, terms):
            faults += [f"{e.target}, term {i}: {fault}" for fault in misnamed(e, i, term, whole)]
            seen[term.composition, term.order] += 1
        total = sum(seen.values())
        listed, sampled = listed + total * whole, sampled + total * (not whole)
        faults += [] if total else [f"{e.target}: {NOTHING}"]
        faults += [f"{e.target}: {f}" for f in _miscounted(e, seen)] if whole else []
    what = [f"{amount(listed, 'term')} listed"] if listed else []
    what += [f"{sampled:,} drawn at random"] if sampled else []
    message = " and ".join(what) + ": paths, labels, orders, counts and numbers agree with the words"
    return Check(
        "same names",
        named(group),
        not faults,
        len(faults),
        0,
        what=faults[0] if faults else message,
        details={"seed": seed},
    )


def _counted(e: Expansion) -> int:
    """The number of terms by the walk in plain integers, side by side."""
    total = 1
    for side in e.readout.sides:
        total *= walk(side, Counts()) or 0
    return total


def _chosen(
    e: Expansion, seed: int, whole: bool, terms: Callable[[Expansion], Iterable[Term]]
) -> Iterator[tuple[int, Term]]:
    if whole:
        yield from enumerate(terms(e))
        return
    rng = np.random.default_rng(seed)
    heads = sum(len(layer.branches) for side in e.readout.sides for layer in side)
    for _ in range(max(min(SAMPLE, WORK // max(heads, 1)), 1)):
        digits = rng.integers(0, 2**32, size=4).tolist()
        i = sum(int(d) << 32 * n for n, d in enumerate(digits)) % e.count
        with suppress(IndexError):  # a wrong count, reported by itself, may give a number without a term
            yield i, e[i]


def misnamed(e: Expansion, i: int, term: Term, whole: bool) -> Iterator[str]:
    """The faults in one term's names."""
    read = read_paths(term.word)
    held = tuple((p.source.name, tuple(map(str, p.heads))) for p in term.paths)
    label = " | ".join(" -> ".join([source, *heads]) for source, heads in read)
    if held != read or term.label != label:
        yield f"it is labelled {term.label}, but its word {term.word.text} is {label}"
    if term.orders != tuple(len(heads) for _, heads in read) or term.order != sum(term.orders):
        yield f"{label} is said to have orders {term.orders}"
    if term.composition != _composition([len(heads) for _, heads in read]):
        yield f"{label} is said to be of type {term.composition}"
    if term.softmax_invisible != (e.architecture.shift_invariant and _constant_along_keys(term.word, read)):
        yield f"{label} is {'not ' * (not term.softmax_invisible)}said to be invisible to softmax"
    if (not whole or i % (e.count // SAMPLE + 1) == 0) and not _found(e, i, term):
        yield f"{label} is not found under its number"


def _constant_along_keys(word: Word, read: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    """Whether softmax ignores a score: its key side is a bias that goes only through patterns, whose rows sum to 1."""
    if len(read) != 2 or not read[1][0].startswith("b_"):
        return False
    turned = any(f.symbol.glyph == "R" for f in word.factors)
    return not turned and all(f.symbol.glyph != "D" for f in score_sides(word)[1].factors)


def _composition(orders: Sequence[int]) -> str:
    if len(orders) == 1:
        return "V" if orders[0] > 1 else "none"
    return {(False, False): "none", (True, False): "Q", (False, True): "K"}.get((orders[0] > 0, orders[1] > 0), "QK")


def _found(e: Expansion, i: int, term: Term) -> bool:
    """Whether a number belongs to a term, looked up both ways (a wrong number may belong to none)."""
    try:
        return e[i] == term and e.index(term) == i
    except (IndexError, ValueError):
        return False


def _miscounted(e: Expansion, seen: Counter[Any]) -> Iterator[str]:
    """Counts of an expansion that differ from those of its terms."""
    by_order: Counter[int] = Counter()
    by_type: Counter[str] = Counter()
    for (composition, order), n in seen.items():
        by_order[order] += n
        by_type[composition] += n
    if sum(seen.values()) != e.count:
        yield f"it claims {amount(e.count, 'term')}, but lists {sum(seen.values()):,}"
    if dict(by_order) != e.counts_by_order() or dict(by_type) != e.counts_by_composition():
        yield "the counts by order or composition type are not those of its terms"
