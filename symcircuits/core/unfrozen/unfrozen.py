"""Nothing frozen: patterns without softmax and bilinear MLPs multiplied out as well, so terms are polynomials.

``unfrozen(expansion)`` is the sequence of all terms; each is a path in which the pattern of every head is replaced by
one of the masked score terms that sum to it, and a bilinear MLP by one of its entrywise products, recursively.
Source: own derivation; Pearce et al. 2024 for the bilinear MLP as a sum over pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import final

from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import ROW, Notation
from symcircuits.core.sequence import TermSequence
from symcircuits.core.text import amount, need, setting
from symcircuits.core.unfrozen.choices import Side, choices_of, degrees, max_degree
from symcircuits.core.unfrozen.terms import UnfrozenTerm, check_unfrozen
from symcircuits.core.walk import Mark

__all__ = ["Unfrozen", "UnfrozenTerm", "check_unfrozen", "still_held", "unfrozen"]


def still_held(architecture: Architecture) -> str:
    """What is held fixed when patterns and MLPs are multiplied out: ``nothing held fixed but MLPs and norms``.

    >>> import symcircuits as sc
    >>> still_held(sc.attention_only((1,), norm="LN", softmax=False))
    'nothing held fixed but norms'
    """
    held = ["patterns"] if architecture.softmax else []
    held += ["MLPs"] if architecture.mlps and not architecture.bilinear else []
    held += ["norms"] if architecture.norm or architecture.qk_norm else []
    return "nothing held fixed" + (f" but {' and '.join(held)}" if held else "")


@final
class Unfrozen(TermSequence[UnfrozenTerm]):
    """All terms of an expansion with its patterns and MLPs multiplied out: exactly counted, numbered by arithmetic.

    Order of terms, stable across versions: by the order of the path (of both sides), then in the order of the
    recursion, layer by layer; within one head the choices of its pattern come first. For scores query side major, key
    side minor.
    Conditions of the expansion apply to the path, not to the terms in its patterns.

    >>> import symcircuits as sc
    >>> arch = sc.transformer((1, 1), softmax=False, mlps=[0], bilinear=True)
    >>> terms = sc.logits(arch).unfrozen()
    >>> terms.count, terms.counts_by_degree()[16]
    (222, 6)
    >>> terms.index(terms[200])
    200
    """

    def __init__(self, expansion: Expansion) -> None:
        self.expansion, self.readout = expansion, expansion.readout

    @property
    def notation(self) -> Notation:
        """The notation in which terms are printed."""
        return self.expansion.notation

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The trees of each side, marked by the conditions of the selection."""
        choices = choices_of(self.architecture)
        return tuple(Side(choices, paths) for paths in self.expansion.sides)

    def marks(self) -> Iterator[tuple[tuple[Mark, ...], int]]:
        """The marks of the terms, by order, each with its number of terms."""
        marks = sorted((m for m, _ in self.expansion.marks()), key=lambda m: (sum(x.order for x in m), m))
        for each in marks:
            n = 1
            for side, mark in zip(self.sides, each, strict=True):
                n *= side.counts[mark]
            yield each, n

    # --------------------------------------------------------------------------------------------- counting
    def counts_by_degree(self) -> dict[int, int]:
        """Number of terms by degree, the number of sources in them."""
        return degrees(self.expansion)

    @property
    def max_degree(self) -> int:
        """The largest degree of a term of the whole expansion: it triples with every layer of heads."""
        return max_degree(self.readout)

    def __eq__(self, other: object) -> bool:
        """Whether it belongs to the same expansion."""
        return self.expansion == other.expansion if isinstance(other, Unfrozen) else NotImplemented

    def __hash__(self) -> int:
        return hash((Unfrozen, self.expansion))

    # ------------------------------------------------------------------------------------ terms and numbers
    def _at(self, i: int) -> UnfrozenTerm:
        for marks, n in self.marks():
            if i < n:
                return self._term(marks, i)
            i -= n
        raise AssertionError("a number below the count falls into a mark")

    def _term(self, marks: tuple[Mark, ...], index: int) -> UnfrozenTerm:
        trees = []
        for side, mark in zip(reversed(self.sides), reversed(marks), strict=True):
            index, last = divmod(index, side.counts[mark])
            trees.append(side.tree(mark, last))
        return UnfrozenTerm(self.readout, tuple(reversed(trees)), notation=self.notation)

    def __iter__(self) -> Iterator[UnfrozenTerm]:
        for marks, n in self.marks():
            for i in range(n):
                yield self._term(marks, i)

    def index(self, term: UnfrozenTerm) -> int:
        """The number of a term; raises ValueError if it is not in this expansion."""
        if not isinstance(term, UnfrozenTerm) or term.readout != self.readout:
            raise ValueError(f"{term!r} is not a term of this expansion ({self.target} of {self.architecture})")
        places = [side.rank(tree) for side, tree in zip(self.sides, term.trees, strict=True)]
        marks, number = tuple(mark for mark, _ in places), 0
        for each, n in self.marks():
            if each == marks:
                break
            number += n
        else:
            raise ValueError(f"{term.label} is not in this selection")
        within = 0
        for side, (mark, place) in zip(self.sides, places, strict=True):
            within = within * side.counts[mark] + place
        return number + within

    # ------------------------------------------------------------------------------------------------ shown
    def __repr__(self) -> str:
        chosen = "".join(f", {c}" for c in self.expansion.clauses)
        return f"<Unfrozen {self.target}{chosen}: {amount(self.count, 'term')} ({self.architecture})>"

    def written(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> Unfrozen:
        """The same terms in another notation, with other names for symbols; raises ValueError as ``Notation`` does."""
        return Unfrozen(self.expansion.written(notation, symbols))


def unfrozen(expansion: Expansion) -> Unfrozen:
    """The terms of an expansion with only the norms held fixed: patterns and bilinear MLPs are multiplied out.

    For models without softmax (``softmax=False``: ``A = mask * scores``, entry by entry, so the output of a layer is of
    degree 3 in its stream) and with bilinear MLPs (``((X W_in^T) * (X W_gate^T)) W_out^T``, degree 2). Patterns with a
    softmax and MLPs with an activation stay as they are, one symbol each. Raises ValueError if nothing
    can be multiplied out. Source: own derivation; Pearce et al. 2024 (bilinear MLPs).

    >>> import symcircuits as sc
    >>> arch = sc.attention_only((1,), softmax=False)
    >>> for term in sc.logits(arch).unfrozen():
    ...     print(term.degree, term.text)
    1 X0 @ W_U.T
    3 (mask[L0] * (scale[L0H0] * X0 @ W_QK[L0H0] @ X0.T)) @ X0 @ W_OV[L0H0].T @ W_U.T
    """
    need("unfrozen", expansion, Expansion)
    arch = expansion.architecture
    if not arch.polynomial:
        raise ValueError(
            f"in [{arch}] patterns come from a softmax and MLPs, if any, from an activation, which are not sums of "
            f"terms; describe a model with {setting('softmax', False)} or {setting('bilinear', True)}"
        )
    if arch.attachments:
        raise ValueError(f"with {arch.attachments[0]} attached, patterns and MLPs cannot be multiplied out: use expand")
    if any(c.kind == "sequence" for c in expansion.clauses):
        raise ValueError("terms with nothing held fixed cannot be selected by a sequence of heads; use through(...)")
    return Unfrozen(expansion)
