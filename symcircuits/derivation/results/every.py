"""All derivations of the book, in its order."""

from __future__ import annotations

from difflib import get_close_matches

from symcircuits.core.text import setting, shown
from symcircuits.derivation.results import (
    basis,
    biases,
    circuits,
    gauge,
    groups,
    heads,
    interventions,
    layers,
    linearity,
    mlps,
    no_skip,
    norms,
    notation,
    one_layer,
    pieces,
    polynomials,
    positions,
    scores,
    tokens,
    uniqueness,
)
from symcircuits.derivation.results.registry import CHAPTERS, Entry

__all__ = ["FAMILIES", "entries", "registered"]

# In the order of the book; in a chapter, entries stand as they do in these files.
FAMILIES = (
    notation, one_layer, heads, linearity, basis, layers, no_skip, circuits, pieces, tokens, gauge, positions, biases,
    scores, norms, mlps, groups, polynomials, interventions, uniqueness,
)  # fmt: skip


def entries() -> tuple[Entry, ...]:
    """Every entry of the book, in its order."""
    found = [value for family in FAMILIES for value in vars(family).values() if isinstance(value, Entry)]
    return tuple(sorted(found, key=lambda entry: CHAPTERS.index(entry.chapter)))


def registered(name: str) -> Entry:
    """The entry of a result that is not a path expansion, by its name; else ValueError, with the nearest names."""
    found = {entry.name: entry for entry in entries() if entry.result is not None}
    if name not in found:
        near = ", ".join(get_close_matches(str(name)[:40], sorted(found), 3, 0))
        all_names = setting("list_theorems", True, "symcircuits.theorems()")
        raise ValueError(f"unknown result {shown(name)}: the nearest are {near} ({all_names} lists all)")
    return found[name]
