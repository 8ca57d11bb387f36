"""Claims of the generic form as SymPy's sums over heads: equal to the symbolic layer's, and corrupted ones not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sympy as sp
from test_derivation import refusal, spoiled

import symcircuits as sc
from symcircuits.core.words import IllTyped
from symcircuits.derivation import claim_checker
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import Claim, DerivationError, Draft
from symcircuits.derivation.frames import make_frame
from symcircuits.derivation.in_sympy import InSymPy
from symcircuits.derivation.nodes import CountOf, Number, Sum, SumOver
from symcircuits.derivation.steps import path_expansion
from symcircuits.sympy_layer.canonical import families_of

H_1, H_2 = sp.symbols("H_1 H_2", integer=True, nonnegative=True)

CASES: list[tuple[Any, str, dict[str, Any]]] = [
    ((3, 3), "logits", {}),
    ((2, 2, 2), "stream", {}),
    ((3, 3), "scores:L1H0", {}),
    ((2, 2), "scores:L1H0", {"biases": True, "positions": "shortformer"}),
    ((4, 4), "scores:L1H2", {"groups": (2, 2), "biases": ["b_V", "b_K"]}),
    ((2, 2), "scores:L1H1", {"positions": "alibi"}),
    ((2, 2), "scores:L1H0", {"positions": "rotary", "qk_norm": True, "norm": "LN", "biases": True}),
    ((2, 2), "logits", {"norm": "RMS", "mlps": True, "biases": ["b_O"], "multipliers": True}),
    ((0, 2), "logits", {}),
    ((), "logits", {}),
]


def drafts(heads: Any, target: str, options: dict[str, Any]) -> Iterator[tuple[InSymPy, int, Draft]]:
    frame = make_frame(sc.transformer(heads, **options), target, "generic")
    held = InSymPy(frame)
    yield from ((held, n, draft) for n, draft in enumerate(path_expansion(frame), 1) if draft.how == "values")


def check(held: InSymPy, n: int, draft: Draft) -> None:
    for claim in draft.claims:
        held.check(f"step {n}", claim.sides)
        for side in claim.sides:
            held.check_families(f"step {n}", claim_checker._families(side))


@pytest.mark.parametrize(("heads", "target", "options"), CASES)
def test_claims_are_the_sums_of_the_symbolic_layer(heads: Any, target: str, options: dict[str, Any]) -> None:
    seen = 0
    for held, n, draft in drafts(heads, target, options):
        check(held, n, draft)
        seen += len(draft.claims)
    assert seen >= 4


@pytest.mark.parametrize(("heads", "target", "options"), [c for c in CASES[:6] if len(c[0]) == 2])
def test_every_corruption_is_refused_by_sympy_alone(heads: Any, target: str, options: dict[str, Any]) -> None:
    """Without matrices and without numbers of heads; counts and types of families are checked beside."""
    seen = set()
    for held, n, draft in drafts(heads, target, options):
        for what, wrong in spoiled(draft, tries=1):
            if what in ("mislabel", "wrong order"):
                continue
            with pytest.raises((DerivationError, IllTyped, ValueError)):
                check(held, n, wrong)
            seen.add(what)
    assert {"transpose", "drop a factor", "swap", "another head", "drop a term", "double a term", "leave out"} <= seen
    assert "wrong count" in seen


def test_what_holds_at_the_numbers_of_heads_that_are_tried_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one head a sum over heads too many is not seen by matrices; it is by sums."""
    frame = make_frame(sc.attention_only((1, 1)), "logits", "generic")
    checker = ClaimChecker(frame)
    ones = tuple(i for i in checker.instances if set(i.architecture.heads) == {1})
    assert [i.architecture.heads for i in ones] == [(1, 1)]
    monkeypatch.setitem(checker.__dict__, "instances", ones)
    n, draft = next((n, d) for n, d in enumerate(path_expansion(frame), 1) if d.kind == "substitution")
    claim = draft.claims[0]
    wrong = replace(draft, claims=(Claim((*claim.sides[:-1], SumOver("g", 1, claim.rhs))),))
    message = refusal(checker, wrong, n)
    assert "fails for symbolic numbers of heads: the two sides differ (missing: " in message
    assert "extra: sum[no letter = 0..H_2 - 1] " in message
    monkeypatch.setattr(ClaimChecker, "_sums_in_sympy", False)
    assert not refusal(checker, wrong, n)


def test_a_wrong_polynomial_is_refused() -> None:
    frame = make_frame(sc.attention_only((2, 3)), "logits", "generic")
    checker = ClaimChecker(frame)
    (draft,) = [d for d in path_expansion(frame) if d.how == "count"]
    total = draft.claims[-1]
    assert isinstance(total.lhs, CountOf)
    held = InSymPy(frame)
    held.check_counts("step", total.sides, total.sides)
    with pytest.raises(DerivationError, match=r"step fails: the sides are not the same polynomial in H_1, H_2"):
        held.check_counts("step", total.sides, [Sum((total.sides[1], Number(1)))])
    checker.check(draft, 1)


def test_own_symbols_of_numbers_of_heads_and_the_letters_agree() -> None:
    arch = sc.attention_only((H_1, H_2))
    held = InSymPy(make_frame(arch, "scores:L1H0", "generic"))
    s = sc.symbolic(arch)
    terms = [e for _, e in held.frame.terms]
    assert families_of(s.scores("L1H0"), arch) == families_of(sp.Add(*map(held.expr, terms)), arch)
    assert families_of(s.logits, arch) != families_of(s.logits.xreplace({H_1: H_2}), arch)
