"""Judges a number of terms: for the given numbers of heads, or for all as a polynomial."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from symcircuits.checking.case import Asked
from symcircuits.checking.claims import Claim
from symcircuits.checking.counting import (
    diagonal,
    number_of_terms,
    numbers_where_equal,
    polynomial_text,
    terms_polynomial,
)
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.numbers_of_heads import Count
from symcircuits.checking.verdict import Outcome, Verdict
from symcircuits.core.expansion import expand

__all__ = ["JudgedNumbers"]


class JudgedNumbers:
    """The part of a judge that checks numbers of terms."""

    claim: Claim
    meaning: Meaning
    asked: Asked

    @abstractmethod
    def made(self, message: str, mistake: str | None, **more: Any) -> Verdict:
        """A verdict on a claim that is not about an expansion."""

    @abstractmethod
    def right(self, message: str, where: tuple[str, ...] = (), target: str = "equation") -> Outcome:
        """Right, possibly under hypotheses."""

    def counted(self) -> Outcome:
        """Compare a number of terms: in all, of an order, or of a composition type."""
        arch, kind, given = self.asked.architecture, self.claim.own, self.claim.side
        targets = [self.claim.target] if self.claim.target else arch.targets(arch.all_heads[-8:])
        counts = {target: number_of_terms(expand(arch, target), kind) for target in targets}
        found = {target: count for target, count in counts.items() if count is not None}
        if not found:
            raise self.meaning.fault(
                f"unknown number of terms N_{kind[:20]}: write N, N_0, N_1, N_none, N_Q, ...", self.claim.at
            )
        here, told = [t for t, count in found.items() if count == given], self.claim.counted
        heads = ", ".join(map(str, arch.heads))
        if told is None:
            if here:
                general = terms_polynomial(arch, here[0], kind)
                also = f"; for any numbers of heads it is {polynomial_text(general)}" if general else ""
                said = f"{given:,} is the number of such terms of {here[0]}, with {heads} heads by layer{also}."
                return self.right(said, (), here[0])
            target, count = next(iter(found.items()))
            return self.miscounted(f"for {target} it is {count:,}, not {given:,}.", target)
        return self.counted_in_heads(told, found, here)

    def counted_in_heads(self, told: Count, found: dict[str, int], here: list[str]) -> Outcome:
        """Compare a polynomial in numbers of heads with the targets' numbers of terms; ``here``: equal for these."""
        arch, kind, wrong, of = self.asked.architecture, self.claim.own, "", next(iter(found))
        first = [] if self.asked.every else here  # for symbolic numbers, one choice proves nothing
        for target in dict.fromkeys((*first, *(t for t, count in found.items() if count), *found)):
            general = terms_polynomial(arch, target, kind)
            if general is None:
                continue
            general = diagonal(general) if told.along else general
            text, says = (polynomial_text(p, told.along) for p in (general, told.polynomial))
            if general == told.polynomial:
                return self.right(
                    f"{says} is the number of such terms of {target}, for every number of heads.", (), target
                )
            if not wrong:
                equal = numbers_where_equal(general, told.polynomial, told.along)
                but = f"; they are equal for example where {equal}" if equal else ""
                wrong, of = f"for {target} it is {text}, not {says}{but}.", target
        if not wrong and here:  # the polynomial is not known: compared only for these numbers of heads
            heads = ", ".join(map(str, arch.heads))
            said = f"{self.claim.side:,} is the number of such terms of {here[0]}, with {heads} heads by layer."
            return self.right(said, (), here[0])
        return self.miscounted(wrong or f"for {of} it is {found[of]:,}, not {self.claim.side:,}.", of)

    def miscounted(self, message: str, target: str) -> Outcome:
        """A number that differs from the number of terms of a target."""
        return Outcome(self.made(message, "count", target=target), self.claim.at, 100)
