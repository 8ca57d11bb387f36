"""Steps and their checks: what is claimed, why, and that both sides were evaluated and found equal.

A claim is checked on random matrices over a prime field, exactly (two sides that differ as polynomials of degree
d agree with probability at most ``d / p`` a draw: Schwartz, Zippel), each side as it is printed, abbreviations
included; a rule of the tensor product by its definition with indices; a number of terms by counting the terms of
the very expression, by the kernel's count, and by SymPy for every number of heads at once. A claim that fails is
never a step: :class:`DerivationError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from symcircuits.core.expansion import expand
from symcircuits.core.rules import check_finished
from symcircuits.core.seam import higher
from symcircuits.core.words import IllTyped, Word
from symcircuits.derivation.expressions import is_recursion
from symcircuits.derivation.flatten import (
    Tally,
    composition_of_word,
    count_polynomial,
    counted,
    multiply_out,
    orders_of_word,
    softmax_invisible,
    tally,
)
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.indices import by_indices, rule_size
from symcircuits.derivation.nodes import CountOf, Expr, Family, cut, every_node
from symcircuits.derivation.values import Instance

__all__ = ["KINDS", "Check", "Claim", "DerivationError", "Draft", "Laboratory", "Step"]

KINDS = ("definition", "substitution", "distributing", "mixed product", "collecting by composition type", "counting")
HOW = ("values", "indices", "count", "exact", "model")


class DerivationError(AssertionError):
    """A step whose check failed; the message names the step and what differed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``sides[0] = sides[1] = ...``; all are expressions. The relation may be ``!=`` or ``<=`` too."""

    sides: tuple[Expr, ...]
    relation: str = "="

    @property
    def lhs(self) -> Expr:
        """The left-hand side."""
        return self.sides[0]

    @property
    def rhs(self) -> Expr:
        """The last right-hand side."""
        return self.sides[-1]

    @property
    def text(self) -> str:
        """The claim on one line, in text notation."""
        return f" {self.relation} ".join(map(higher(str, "Expr.text"), self.sides))

    def __repr__(self) -> str:
        return f"<Claim {cut(self.text)}>"


@dataclass(frozen=True, slots=True)
class Draft:
    """A step before its check.

    ``how`` is what is evaluated: ``values`` (matrices over the prime field), ``indices`` (a rule of the tensor
    product, by its definition), ``count``, ``exact`` (by SymPy) or ``model`` (on a real run). ``complete`` says that
    the right-hand side lists every term of the expansion, which is then compared term by term; ``softmax`` that it
    marks those that softmax does not see.
    """

    kind: str
    claims: tuple[Claim, ...]
    reason: str
    how: str = "values"
    complete: bool = False
    softmax: bool = False

    def __repr__(self) -> str:
        return f"<Draft ({self.kind}): {cut(self.claims[-1].text, 80) if self.claims else 'no claim'}>"


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked of a step, and how: the outcome is always passed, for nothing else becomes a step."""

    how: str
    claims: int
    k: int = 0
    trials: int = 0
    prime: int = 0
    seed: int = 0
    degree: int = 0
    head_counts: tuple[tuple[int, ...], ...] = ()
    also: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    passed: bool = True

    @property
    def bound(self) -> float:
        """The largest probability with which a wrong claim passes; 0 where nothing is drawn at random."""
        return float(self.degree / self.prime) ** self.trials if self.prime else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One checked step of a derivation."""

    number: int
    kind: str
    claims: tuple[Claim, ...]
    reason: str
    check: Check

    @property
    def claim(self) -> Claim:
        """The (last) claim."""
        return self.claims[-1]

    def __repr__(self) -> str:
        outcome = "checked" if self.check.passed else "NOT checked"
        return f"<Step {self.number} ({self.kind}): {cut(self.claim.text, 60)}, {outcome}>"


class Laboratory:
    """Where the claims of one derivation are checked: the instances of its frame, with matrices drawn once."""

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

    def check(self, draft: Draft, number: int) -> Step:
        """The step, if its claims hold; else :class:`DerivationError`."""
        name = f"step {number} ({draft.kind})"
        if draft.kind not in self.kinds or draft.how not in HOW or not draft.claims:
            raise ValueError(f"{name}: a draft needs claims, a kind of {self.kinds} and a check of {HOW}")
        for claim in draft.claims:
            if len(claim.sides) < 2:
                raise DerivationError(f"{name} claims nothing: a claim has two sides or more")
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
            return Check("indices", claims, size // 2 + 1, self.trials, self.instances[0].ring.p, self.seed, size,
                         given=given)  # fmt: skip
        one = self.instances[0]
        also: tuple[str, ...] = ("terms",) if draft.complete else ()
        also += ("softmax",) if draft.softmax else ()
        if any(_families(side) for claim in draft.claims for side in claim.sides):
            also += ("families",)
        degree = self.frame.letters + self.frame.scalars + self.frame.turned
        return Check("values", claims, one.k, self.trials, one.ring.p, self.seed, degree, counts, also, given,
                     groups=groups)  # fmt: skip

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
        lab = Instance(self.frame.walked, self.frame.target, size // 2 + 1, self.seed, self.trials)
        first = by_indices(claim.lhs, lab)
        for side in claim.sides[1:]:
            if not np.array_equal(first, by_indices(side, lab)):
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
                    raise DerivationError(f"{name} fails{self._at(instance)}: {seen[0]} terms, the kernel has {kernel}")
        if self.frame.generic and not _same_polynomial(sides, self.frame.depth):
            raise DerivationError(f"{name} fails: the sides are not the same polynomial in H_1, H_2, ...")

    def _tally(self, expr: Expr) -> Tally:
        """The tally of an expression, taken once (the expression is kept, so that its id stays its own)."""
        if id(expr) not in self._tallies:
            self._tallies[id(expr)] = (expr, tally(expr))
        return self._tallies[id(expr)][1]


def _kernel_count(count: CountOf, instance: Instance) -> int:
    chosen = expand(instance.architecture, instance.target)
    chosen = chosen if count.order is None else chosen.order(count.order)
    return (chosen if count.composition is None else chosen.where(composition=count.composition)).count


def _same_polynomial(sides: Sequence[Expr], layers: int) -> bool:
    """SymPy: the sides are one polynomial in the head counts, so equal for every number of heads."""
    from sympy import ZZ
    from sympy.polys.rings import PolyRing

    ring = PolyRing([f"H_{layer + 1}" for layer in range(max(layers, 1))], ZZ)
    first, *others = (ring.zero + count_polynomial(side, lambda layer: ring.gens[layer]) for side in sides)
    return all(other == first for other in others)


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
        raise DerivationError(f"{where}: the family {family.composition} has {len(words)} terms, not {count}")


def _check_softmax(where: str, words: Iterable[Word], instance: Instance) -> None:
    """What is marked is the same for every key where the rows of the patterns sum to one; nothing else is."""
    lab = replace(instance, rows_sum_to_one=True)
    for word in words:
        value = lab.value(word)
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
