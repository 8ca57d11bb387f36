"""What a book need not print again: claims that an earlier result has, and sums that stand beside them already."""

from __future__ import annotations

from collections.abc import Sequence

from symcircuits.derivation.claims import Claim, Step
from symcircuits.derivation.multiplying import multiply_out
from symcircuits.derivation.nodes import Expr, Family, Sum, every_node
from symcircuits.derivation.specials import Named

__all__ = ["Citations", "repeats_terms", "shown_by_next"]

Place = tuple[str, int]  # the name of a result, and the number of one of its steps
MOST_AGAIN = 8  # terms of a sum that stands there already are printed again as tensors, where they are not more


class Citations:
    """Where every claim of a book stands first.

    A claim ``a = b = c`` is known where ``a = b`` and ``a = c`` are: the very same expressions, in an earlier result.
    Claims with names that one result defines for itself stay with it.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, Expr, Expr], Place] = {}

    def places(self, claim: Claim) -> tuple[Place, ...]:
        """The steps that have a claim, in the order of the book; none where it is new."""
        pairs = [(claim.relation, claim.lhs, side) for side in claim.sides[1:]]
        if any(pair not in self._places for pair in pairs):
            return ()
        return tuple(dict.fromkeys(self._places[pair] for pair in pairs))

    def take(self, name: str, steps: Sequence[Step]) -> None:
        """Take the claims of a result, for those that come after it."""
        for step in steps:
            for claim in step.claims:
                if any(isinstance(found, Named) for side in claim.sides for found in every_node(side)):
                    continue
                for side in claim.sides[1:]:
                    self._places.setdefault((claim.relation, claim.lhs, side), (name, step.number))


def shown_by_next(step: Step, after: Step | None) -> bool:
    """Whether the next step prints the sum that a step ends in, in its families: both list all terms."""
    if after is None or len(step.claims) != 1 or len(after.claims) != 1:
        return False
    rhs, families = step.claim.rhs, after.claim.rhs
    collected = isinstance(families, Sum) and any(isinstance(term, Family) for term in families.terms)
    return collected and "terms" in step.check.also and "terms" in after.check.also and rhs in after.claim.sides


def repeats_terms(step: Step, before: Sequence[Step]) -> Step | None:
    """The step that lists the terms which a step has once more as tensors, where they are many."""
    listed = [other for other in before if "families" in other.check.also]
    if step.kind != "mixed product" or step.check.how != "values" or not listed:
        return None
    return listed[-1] if len(multiply_out(step.claim.rhs)) > MOST_AGAIN else None
