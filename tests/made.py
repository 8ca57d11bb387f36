"""Every result of the book, derived once for all tests of a process."""

from __future__ import annotations

from functools import cache

from symcircuits.derivation import book
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.results.every import entries


@cache
def made(name: str) -> Derivation:
    """The checked derivation of an entry."""
    return book.derived(next(entry for entry in entries() if entry.name == name))


def everything() -> dict[str, Derivation]:
    """The derivations of all entries, in the order of the book."""
    return {entry.name: made(entry.name) for entry in entries()}
