"""Checks of claims: both sides are evaluated and found equal, before anything is a step.

A claim is checked on random matrices over a prime field, exactly (two sides that differ as polynomials of degree
d agree with probability at most ``d / p`` a draw: Schwartz, Zippel), each side as it is printed, abbreviations
included; a rule of the tensor product by its definition with indices; a number of terms by counting the terms of
the very expression, by the kernel's count, and by SymPy for every number of heads at once. A claim of the generic form
is also made into SymPy's sums over heads, for every number of heads (:mod:`symcircuits.derivation.in_sympy`). A claim
that fails is never a step: :class:`DerivationError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from symcircuits.core.expansion import expand
from symcircuits.core.rules import check_finished
from symcircuits.core.text import amount
from symcircuits.core.words import IllTyped, Word
from symcircuits.derivation.claims import HOW, KINDS, Check, Claim, DerivationError, Draft, Step
from symcircuits.derivation.expressions import is_recursion
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.indices import by_indices, rule_size
from symcircuits.derivation.multiplying import (
    Tally,
    composition_of_word,
    count_polynomial,
    counted,
    multiply_out,
    orders_of_word,
    softmax_invisible,
    tally,
)
from symcircuits.derivation.nodes import CountOf, Expr, Family, every_node
from symcircuits.derivation.values import Instance

if TYPE_CHECKING:
    from symcircuits.derivation.in_sympy import InSymPy

__all__ = ["ClaimChecker"]


class ClaimChecker:
    """Checks the claims of one derivation on the instances of its frame, with matrices drawn once."""

    kinds: tuple[str, ...] = KINDS

    def __init__(self, frame: Frame, seed: int = 0, trials: int = 2) -> None:
        self.frame, self.seed, self.trials = frame, seed, trials
        self._tallies: dict[int, tuple[Expr, Tally]] = {}

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """One instance for each choice of head counts."""
        k = self.frame.letters // 2 + 1
        f = self.frame
        return tuple(Instance(a, f.target, k, self.seed, self.trials) for a in f.instances)

    @cached_property
    def in_sympy(self) -> InSymPy:
        """The claims of the generic form as sums over heads in SymPy, for all numbers of heads at once."""
        from symcircuits.derivation.in_sympy import InSymPy  # SymPy takes a third of a second to import

        return InSymPy(self.frame)

    def check(self, draft: Draft, number: int) -> Step:
        """The step, if its claims hold; else :class:`DerivationError`."""
        name = f"step {number} ({draft.kind})"
        if draft.kind not in self.kinds or draft.how not in HOW or not draft.claims:
            raise ValueError(f"{name}: a draft needs claims, a kind of {self.kinds} and a check of {HOW}")
        for claim in draft.claims:
            if len(claim.sides) < 2:
                raise DerivationError(f"{name}: a claim needs two sides or more, and has {len(claim.sides)}")
            getattr(self, f"_check_{draft.how}")(name, claim, draft)
        return Step(number, draft.kind, draft.claims, draft.reason, self._record(draft))

    def _record(self, draft: Draft) -> Check:
        claims = len(draft.claims)
        given: tuple[str, ...] = ("symmetric",) if self.frame.norms or self.frame.normed else ()
        given += ("turned",) if self.frame.turned else ()
        counts = tuple(i.architecture.heads[: self.frame.depth] for i in self.instances) if self.frame.generic else ()
        groups = self._groups()
        if draft.how == "count":
            return Check("count", claims, head_counts=counts, also=("sympy",), groups=groups)
        if draft.how == "indices":
            size = rule_size(side for claim in draft.claims for side in claim.sides)
            return Check(
                "indices",
                claims,
                size // 2 + 1,
                self.trials,
                self.instances[0].ring.p,
                seed=self.seed,
                degree=size,
                given=given,
            )
        one = self.instances[0]
        also: tuple[str, ...] = ("terms",) if draft.complete else ()
        also += ("softmax",) if draft.softmax else ()
        if any(_families(side) for claim in draft.claims for side in claim.sides):
            also += ("families",)
        also += ("in sympy",) * (self._sums_in_sympy and self.frame.depth > 0)
        degree = self.frame.letters + self.frame.scalars + self.frame.turned
        return Check(
            "values",
            claims,
            k=one.k,
            trials=self.trials,
            prime=one.ring.p,
            seed=self.seed,
            degree=degree,
            head_counts=counts,
            also=also,
            given=given,
            groups=groups,
        )

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of key/value groups at the head counts of a generic claim, where heads share them."""
        frame = self.frame
        if not frame.generic or not any(map(frame.grouped, range(frame.depth))):
            return ()
        return tuple((i.architecture.groups or ())[: frame.depth] for i in self.instances)

    # --------------------------------------------------------------------------------------------- values
    def _check_values(self, name: str, claim: Claim, draft: Draft) -> None:
        if claim.relation != "=":
            raise DerivationError(f"{name} claims what is not an equation")
        for instance in self.instances:
            where = f"{name} fails" + self._at(instance)
            first = instance.value(claim.lhs)
            for side in claim.sides[1:]:
                if not instance.ring.equal(first, instance.value(side)):
                    raise DerivationError(f"{where}: the two sides differ{_difference(claim.lhs, side, instance)}")
            if draft.complete:
                self._check_terms(where, claim.rhs, instance)
            if draft.softmax:
                _check_softmax(where, instance.words(multiply_out(claim.rhs)), instance)
            for side in claim.sides:
                for family in _families(side):
                    _check_family(where, family, instance)

        if self._sums_in_sympy:
            self.in_sympy.check(name, claim.sides)
            for side in claim.sides:
                self.in_sympy.check_families(name, _families(side))

    @property
    def _sums_in_sympy(self) -> bool:
        """Whether claims are made into sums over heads in SymPy: those of the generic form."""
        return self.frame.generic

    def _at(self, instance: Instance) -> str:
        if not self.frame.generic:
            return ""
        return f" at head counts {instance.architecture.heads[: self.frame.depth]}"

    def _check_terms(self, where: str, expr: Expr, instance: Instance) -> None:
        """The expression's words are exactly those of the kernel's expansion, each once, each well typed."""
        scaled = bool(instance.readout.scale)
        words = instance.words(multiply_out(expr))
        for word in words:
            check_finished(word, scaled=scaled, multipliers=instance.architecture.multipliers)
        wrong = _word_difference(words, (term.word for term in expand(instance.architecture, instance.target)))
        if wrong:
            raise DerivationError(f"{where}: the terms are not those of the expansion{wrong}")

    # -------------------------------------------------------------------------------------------- indices
    def _check_indices(self, name: str, claim: Claim, draft: Draft) -> None:
        size = rule_size(side for claim in draft.claims for side in claim.sides)
        at = Instance(self.frame.walked, self.frame.target, size // 2 + 1, self.seed, self.trials)
        first = by_indices(claim.lhs, at)
        for side in claim.sides[1:]:
            if not np.array_equal(first, by_indices(side, at)):
                raise DerivationError(f"{name} fails: the two sides differ when summed over their indices")

    # ---------------------------------------------------------------------------------------------- count
    def _check_count(self, name: str, claim: Claim, draft: Draft) -> None:
        sides = [counted(s, self._tally(s.expr)) if isinstance(s, CountOf) else s for s in claim.sides]
        for instance in self.instances:
            seen = [count_polynomial(side, instance.heads) for side in sides]
            if len(set(seen)) > 1:
                raise DerivationError(f"{name} fails{self._at(instance)}: the numbers {seen} are not equal")
            if isinstance(claim.lhs, CountOf):
                kernel = _kernel_count(claim.lhs, instance)
                if kernel != seen[0]:
                    raise DerivationError(
                        f"{name} fails{self._at(instance)}: {amount(seen[0], 'term')}, the kernel has {kernel}"
                    )
        if self.frame.generic:
            self.in_sympy.check_counts(name, claim.sides, sides)

    def _tally(self, expr: Expr) -> Tally:
        """The tally of an expression, taken once (the expression is kept, so that its id stays its own)."""
        if id(expr) not in self._tallies:
            self._tallies[id(expr)] = (expr, tally(expr))
        return self._tallies[id(expr)][1]


def _kernel_count(count: CountOf, instance: Instance) -> int:
    chosen = expand(instance.architecture, instance.target)
    chosen = chosen if count.order is None else chosen.order(count.order)
    return (chosen if count.composition is None else chosen.where(composition=count.composition)).count


def _families(expr: Expr) -> list[Family]:
    """Every family inside an expression."""
    return [found for found in every_node(expr) if isinstance(found, Family)]


def _check_family(where: str, family: Family, instance: Instance) -> None:
    """Each word of a family has the family's composition type and order, and there are as many as it says."""
    words = instance.words(multiply_out(family.body))
    for word in words:
        seen, order = composition_of_word(word), sum(orders_of_word(word))
        if seen != family.composition or family.order not in (None, order):
            raise DerivationError(
                f"{where}: {word.text} is {seen} of order {order}, but stands in the family "
                f"{family.composition}" + ("" if family.order is None else f" of order {family.order}")
            )
    count = count_polynomial(family.count, instance.heads)
    if count != len(words):
        raise DerivationError(f"{where}: the family {family.composition} has {amount(len(words), 'term')}, not {count}")


def _check_softmax(where: str, words: Iterable[Word], instance: Instance) -> None:
    """What is marked is the same for every key where the rows of the patterns sum to one; nothing else is."""
    at = replace(instance, rows_sum_to_one=True)
    for word in words:
        value = at.value(word)
        if bool((value == value[..., :1]).all()) != softmax_invisible(word):
            marked = "marked" if softmax_invisible(word) else "not marked"
            raise DerivationError(f"{where}: {word.text} is {marked} as the same for every key, and its value differs")


def _difference(left: Expr, right: Expr, instance: Instance) -> str:
    """What stands on one side only, where both sides can be multiplied out to words."""
    try:
        a, b = (instance.words(multiply_out(side)) for side in (left, right))
    except (TypeError, IllTyped):
        try:
            b = instance.words(multiply_out(right))
            a = [t.word for t in expand(instance.architecture, instance.target)]
        except (TypeError, IllTyped):
            return ""
    if any(is_recursion(f) for w in a + b for f in w.factors):
        return ""
    return _word_difference(b, a)


def _word_difference(seen: Iterable[Word], wanted: Iterable[Word]) -> str:
    have, want = Counter(seen), Counter(wanted)
    notes = []
    for title, words in (("missing", want - have), ("extra", have - want)):
        listed = [w.text for w in words.elements()]
        if listed:
            more = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
            notes.append(f"{title}: {'; '.join(listed[:2])}{more}")
    return f" ({', '.join(notes)})" if notes else ""
