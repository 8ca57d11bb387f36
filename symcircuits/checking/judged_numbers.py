"""Whether a number of terms is right: here, or for every number of heads as a polynomial."""

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
    """The part of a judge that looks at numbers of terms."""

    claim: Claim
    meaning: Meaning
    asked: Asked

    @abstractmethod
    def made(self, message: str, mistake: str | None, **more: Any) -> Verdict:
        """A verdict on something that is not an expansion."""

    @abstractmethod
    def right(self, message: str, where: tuple[str, ...] = (), target: str = "equation") -> Outcome:
        """Right, if need be under hypotheses."""

    def counted(self) -> Outcome:
        """How many terms there are: in all, of an order, of a composition type."""
        arch, kind, given = self.asked.architecture, self.claim.own, self.claim.side
        targets = [self.claim.target] if self.claim.target else arch.targets(arch.all_heads[-8:])
        counts = {target: number_of_terms(expand(arch, target), kind) for target in targets}
        found = {target: count for target, count in counts.items() if count is not None}
        if not found:
            raise self.meaning.fault(f"N_{kind[:20]} is not read: N, N_0, N_1, N_none, N_Q, ... are", self.claim.at)
        here, told = [t for t, count in found.items() if count == given], self.claim.counted
        heads = ", ".join(map(str, arch.heads))
        if told is None:
            if here:
                general = terms_polynomial(arch, here[0], kind)
                also = f"; for any numbers of heads it is {polynomial_text(general)}" if general else ""
                said = f"{given:,} is that number of terms of {here[0]}, with {heads} heads by layer{also}."
                return self.right(said, (), here[0])
            target, count = next(iter(found.items()))
            return self.miscounted(f"of {target} it is {count:,}, not {given:,}.", target)
        return self.counted_in_heads(told, found, here)

    def counted_in_heads(self, told: Count, found: dict[str, int], here: list[str]) -> Outcome:
        """A number in the numbers of heads, held against those of the targets, which have so many terms here."""
        arch, kind, wrong, of = self.asked.architecture, self.claim.own, "", next(iter(found))
        first = [] if self.asked.every else here  # where numbers are symbols, those that stand for them say nothing
        for target in dict.fromkeys((*first, *(t for t, count in found.items() if count), *found)):
            general = terms_polynomial(arch, target, kind)
            if general is None:
                continue
            general = diagonal(general) if told.along else general
            text, says = (polynomial_text(p, told.along) for p in (general, told.polynomial))
            if general == told.polynomial:
                return self.right(f"{says} is that number of terms of {target}, for every number of heads.", (), target)
            if not wrong:
                equal = numbers_where_equal(general, told.polynomial, told.along)
                but = f"; they are equal where {equal}, for example" if equal else ""
                wrong, of = f"of {target} it is {text}, not {says}{but}.", target
        if not wrong and here:  # not known as a polynomial: compared here alone
            heads = ", ".join(map(str, arch.heads))
            return self.right(f"{self.claim.side:,} is that number of terms of {here[0]}, with {heads} heads by layer.",
                              (), here[0])  # fmt: skip
        return self.miscounted(wrong or f"of {of} it is {found[of]:,}, not {self.claim.side:,}.", of)

    def miscounted(self, message: str, target: str) -> Outcome:
        """A number that is not that of the terms of a target."""
        return Outcome(self.made(message, "count", target=target), self.claim.at, 100)
