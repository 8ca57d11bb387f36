"""Mutants of right formulas, judged by numbers of their own: `check` says right where the value is, only there."""

import pytest
from worth import Mutant, Truth, mutants

from symcircuits.checking.check import check
from symcircuits.checking.faults import ReadError


def judged(mutant: Mutant, target: str | None) -> tuple[bool, str]:
    """Whether a mutant is called right, and of which target."""
    convention = "transformerlens" if mutant.theirs else "paper"
    try:
        verdict = check(mutant.formula, mutant.truth.arch, target, convention, part=mutant.part)
    except ReadError:
        return False, mutant.truth.target
    return verdict.right, verdict.target


def disagreements(seed: int, count: int) -> list[str]:
    """The mutants of which `check` and their values say different things."""
    wrong = []
    for mutant in mutants(seed, count):
        right, _ = judged(mutant, mutant.truth.target)
        if right != mutant.right:
            wrong.append(f"called {'right' if right else 'wrong'}: {mutant}")
        right, target = judged(mutant, None)  # of the target that the formula itself speaks of
        if right and target != mutant.truth.target:
            left, text = mutant.formula != mutant.text and "=" in mutant.formula, mutant.text
            right = not Truth(mutant.truth.arch, target).right(text, left, mutant.theirs, mutant.part)
            wrong += [f"called right of {target}: {mutant}"] if right else []
        elif target == mutant.truth.target and right != mutant.right:
            wrong.append(f"called {'right' if right else 'wrong'} without target: {mutant}")
    return wrong


@pytest.mark.parametrize("seed", range(36))
@pytest.mark.sampled(12)
def test_mutants_are_right_where_their_value_is(seed: int) -> None:
    assert disagreements(seed, 10) == []
