"""Derivations: every step is checked, and a step that is corrupted in any way is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.core import programs
from symcircuits.core import words as algebra
from symcircuits.core.words import Factor, IllTyped, Word
from symcircuits.derivation import claim_checker as checker_module
from symcircuits.derivation import definitions as definitions_module
from symcircuits.derivation import other_runs as other_runs_module
from symcircuits.derivation import steps as steps_module
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import KINDS
from symcircuits.derivation.derive import Claim, DerivationError, Draft, Step, theorem, theorems
from symcircuits.derivation.examples import Elementwise, Literal, TinyModel, TwoLayers
from symcircuits.derivation.expressions import relabelled
from symcircuits.derivation.frames import MAX_FAMILIES, MAX_TERMS, make_frame
from symcircuits.derivation.multiplying import composition_of_word, multiply_out
from symcircuits.derivation.nodes import (
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Special,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
)
from symcircuits.derivation.other_runs import AtTokens, Changed, CountIn, ImportanceRun, Rebased, Without
from symcircuits.derivation.printing.layout import is_number
from symcircuits.derivation.real_models import ModelLogits
from symcircuits.derivation.result_checker import ResultChecker
from symcircuits.derivation.results.every import registered
from symcircuits.derivation.specials import (
    Beside,
    Difference,
    HeadWidth,
    Inverse,
    Masked,
    NamedMatrix,
    Parentheses,
    Rank,
    Ratio,
    Scaled,
    SquaredNorm,
    Trace,
)
from symcircuits.derivation.steps import path_expansion

FORMS = ("enumerated", "generic")
SHAPES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((), {}),
    ((0,), {}),
    ((3,), {}),
    ((3, 3), {}),
    ((2, 0, 1), {}),
    ((2, 2), {"scale": False}),
    ((2, 1), {"positions": "standard"}),
    ((1, 2), {"positions": "shortformer"}),
    ((2, 2), {"biases": True, "positions": "standard"}),
    ((2, 1), {"biases": True, "positions": "shortformer"}),
    ((2, 2), {"biases": ["b_V"]}),
    ((2, 2), {"biases": ["b_Q"], "scale": False}),
    ((2, 2), {"biases": ["b_O", "b_K", "b_U"]}),
    ((5, 1), {"causal": False}),
    ((1, 1, 1), {"biases": ["b_K"]}),
    ((2, 1, 2), {"positions": "shortformer"}),
    ((1, 1, 2), {"positions": "standard", "biases": ["b_Q", "b_V"]}),
    ((3, 0), {"biases": True}),
    ((0, 2), {"biases": ["b_V", "b_K[L1H1]"]}),
    ((2, 2), {"biases": ["b_Q[L0H0]", "b_K[L0H1]"]}),
]


def targets(heads: tuple[int, ...]) -> list[str]:
    """Logits, stream, and the scores of the last head of each layer."""
    return ["logits", "stream", *(f"scores:L{n}H{h - 1}" for n, h in enumerate(heads) if h)]


# ------------------------------------------------------------------------------------------- what is derived


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("heads", "options"), SHAPES)
@pytest.mark.sampled(6)
def test_every_architecture_is_derived(heads: tuple[int, ...], options: dict[str, Any], form: str) -> None:
    arch = sc.attention_only(heads, **options)
    for target in targets(heads):
        derivation = sc.derive(arch, target, form=form)
        assert derivation.ok
        assert all(isinstance(step, Step) and step.check.passed for step in derivation.steps)
        assert [step.number for step in derivation.steps] == list(range(1, len(derivation.steps) + 1))
        if form == "enumerated":
            assert derivation.frame.expansion.count == sc.expand(arch, target).count


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_the_record_has_16_terms_each(target: str) -> None:
    derivation = sc.derive(sc.attention_only((3, 3)), target)
    everything = next(s for s in derivation.steps if "terms" in s.check.also).claim.rhs
    assert isinstance(everything, Sum)
    order = ["none", "V", "Q", "K", "QK"].index  # of those of scores; a stable sort leaves logits as they are
    terms = list(sc.expand(sc.attention_only((3, 3)), target))
    terms = sorted(terms, key=lambda term: order(term.composition)) if target.startswith("scores") else terms
    assert list(everything.terms) == [term.word for term in terms]
    assert len(everything.terms) == 16


def test_all_kinds_of_steps_occur() -> None:
    for form in FORMS:
        derivation = sc.derive(sc.attention_only((3, 3)), form=form)
        assert {step.kind for step in derivation.steps} == set(KINDS)


def test_generic_families_and_counts() -> None:
    derivation = sc.derive(sc.attention_only((3, 3)), form="generic")
    families = derivation.json()["families"]
    assert [(f["label"], f["count"]["text"], f["composition"]) for f in families] == [
        ("embed", "1", "none"),
        ("embed -> h_1", "H_1", "none"),
        ("embed -> h_2", "H_2", "none"),
        ("embed -> h_1 -> h_2", "H_1 * H_2", "V"),
    ]
    assert families[3]["text"] == (
        "sum[h_2=1..H_2] sum[h_1=1..H_1] A[h_2] @ A[h_1] @ X0 @ W_OV[h_1].T @ W_OV[h_2].T @ W_U.T"
    )
    scores = sc.derive(sc.attention_only((3, 3)), "scores:L1H0", form="generic").json()["families"]
    assert [(f["composition"], f["count"]["text"]) for f in scores] == [
        ("none", "1"), ("K", "H_1"), ("Q", "H_1"), ("QK", "H_1^2"),
    ]  # fmt: skip


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_generic_logits_have_a_family_for_every_set_of_layers(layers: int) -> None:
    derivation = sc.derive(sc.attention_only((2,) * layers), form="generic")
    assert len(derivation.json()["families"]) == 2**layers
    counts = {c for s in derivation.steps for c in s.check.head_counts}
    if layers:
        assert (0,) * layers in counts
        assert layers == 1 or any(len(set(c)) > 1 for c in counts)


def test_the_generic_form_does_not_depend_on_the_heads() -> None:
    left, right = (sc.derive(sc.attention_only(h), form="generic") for h in ((3, 3), (1, 12)))
    assert [s.claims for s in left.steps] == [s.claims for s in right.steps]


@pytest.mark.parametrize("layers", [5, pytest.param(7, marks=pytest.mark.slow)])
def test_deep_generic_form(layers: int) -> None:
    derivation = sc.derive(sc.attention_only((12,) * layers), form="generic")
    assert derivation.ok
    assert len(derivation.json()["families"]) == 2**layers


def test_the_bound_is_that_of_schwartz_and_zippel() -> None:
    derivation = sc.derive(sc.attention_only((3, 3)), "scores:L1H0")
    check = derivation.steps[4].check
    assert (check.degree, check.k, check.trials, check.prime) == (13, 7, 2, 2**31 - 1)  # 12 letters and the scale
    assert check.bound == (13 / (2**31 - 1)) ** 2


def test_another_seed_gives_the_same_steps() -> None:
    arch = sc.attention_only((2, 2), biases=True)
    assert [s.claims for s in sc.derive(arch).steps] == [s.claims for s in sc.derive(arch, seed=7).steps]


# --------------------------------------------------------------------------------------------- what is refused


def test_too_much_to_print_is_refused_with_the_number() -> None:
    with pytest.raises(ValueError, match=r'2,197 terms.*form="generic"'):
        sc.derive(sc.attention_only((12, 12, 12)))
    with pytest.raises(ValueError, match="2,048 families"):
        sc.derive(sc.attention_only((1,) * 11), form="generic")
    with pytest.raises(ValueError, match=r"4,096 families.*on each side"):
        sc.derive(sc.attention_only((1,) * 7), "scores:L6H0", form="generic")
    assert (MAX_TERMS, MAX_FAMILIES) == (2_000, 1_024)


def test_bad_arguments() -> None:
    arch = sc.attention_only((3, 3))
    with pytest.raises(ValueError, match='form must be "enumerated" or "generic"'):
        sc.derive(arch, form="short")
    with pytest.raises(ValueError, match="no head L2H0"):
        sc.derive(arch, "scores:L2H0")
    with pytest.raises(ValueError, match="no unembedding"):
        sc.derive(sc.attention_only((1,), unembed=False))
    with pytest.raises(ValueError, match="some heads of layer 0 have b_V"):
        sc.derive(sc.attention_only((2,), biases=["b_V[L0H1]"]), form="generic")
    assert sc.derive(sc.attention_only((2,), biases=["b_V[L0H1]"])).ok


# ------------------------------------------------------------------------------------- corruptions are refused


def raw(factors: tuple[Factor, ...], scales: tuple[str, ...] = ()) -> Word:
    """A word whose types are not checked: what the value check must refuse by itself."""
    word = object.__new__(Word)
    object.__setattr__(word, "factors", factors)
    object.__setattr__(word, "scales", scales)
    return word


def corrupted_word(word: Word) -> Iterator[tuple[str, Expr]]:
    f, heads = word.factors, {"L0H0": "L0H1", "L0H1": "L0H0", "L1H0": "L1H1", "h_1": "h_2", "q_1": "k_1", "k_1": "q_1"}
    for i, factor in enumerate(f):
        if factor.symbol.glyph not in algebra.SYMMETRIC:
            yield "transpose", raw((*f[:i], factor.T, *f[i + 1 :]), word.scales)
        if len(f) > 1:
            yield "drop a factor", raw((*f[:i], *f[i + 1 :]), word.scales)
        yield "double a factor", raw((*f[:i], factor, *f[i:]), word.scales)
        label = heads.get(factor.symbol.label)
        if label:
            other = relabelled((factor,), {factor.symbol.label: label})
            yield "another head", raw((*f[:i], *other, *f[i + 1 :]), word.scales)
    for i in range(len(f) - 1):
        yield "swap", raw((*f[:i], f[i + 1], f[i], *f[i + 2 :]), word.scales)
    if word.scales:
        yield "forget the scale", raw(f)
        yield "scale twice", raw(f, word.scales * 2)


def corrupted(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """Every way to spoil an expression in one place."""
    match expr:
        case Word():
            yield from corrupted_word(expr)
        case Spelled():
            yield from ((what, Spelled(w)) for what, w in corrupted_word(expr.word) if isinstance(w, Word))
        case Sum():
            for i, term in enumerate(expr.terms):
                yield "drop a term", Sum((*expr.terms[:i], *expr.terms[i + 1 :]))
                yield "double a term", Sum((*expr.terms[:i], term, *expr.terms[i:]))
                for what, t in corrupted(term):
                    yield what, Sum((*expr.terms[:i], t, *expr.terms[i + 1 :]))
        case Product():
            for i in range(0 if is_number(expr) else len(expr.factors) - 1):
                f = expr.factors
                yield "reorder", replace(expr, factors=(*f[:i], f[i + 1], f[i], *f[i + 2 :]))
            for i, factor in enumerate(expr.factors):
                for what, g in corrupted(factor):
                    yield what, replace(expr, factors=(*expr.factors[:i], g, *expr.factors[i + 1 :]))
            if expr.scales:
                yield "forget the scale", replace(expr, scales=())
        case Family():
            kinds = ("none", "V", "Q", "K", "QK")
            yield from (("mislabel", replace(expr, composition=k)) for k in kinds if k != expr.composition)
            yield "wrong count", replace(expr, count=Sum((expr.count, Number(1))))
            if expr.order is not None:
                yield "wrong order", replace(expr, order=expr.order + 1)
            yield from ((what, replace(expr, body=b)) for what, b in corrupted(expr.body))
        case SumOver() | Transposed():
            yield "leave out", expr.body
            yield from ((what, replace(expr, body=b)) for what, b in corrupted(expr.body))
        case Tensor():
            for i, slot in enumerate(expr.slots):
                if isinstance(slot, Word):
                    yield "forget a slot", Tensor((*expr.slots[:i], Identity(), *expr.slots[i + 1 :]))
                    for what, w in corrupted_word(slot):
                        assert isinstance(w, Word)
                        yield what, Tensor((*expr.slots[:i], w, *expr.slots[i + 1 :]))
            yield "swap slots", Tensor((expr.slots[1], expr.slots[0], *expr.slots[2:]))
        case Apply():
            yield from ((what, replace(expr, operator=o)) for what, o in corrupted(expr.operator))
        case Number():
            yield "wrong count", Number(expr.value + 1)
        case HeadCount():
            yield "wrong count", Sum((expr, Number(1)))
        case Elementary():
            yield "wrong count", replace(expr, order=expr.order - 1)
        case CountOf():
            yield "another order", CountOf(expr.expr, order=9)
        case Special():
            yield from corrupted_special(expr)


def corrupted_special(expr: Special) -> Iterator[tuple[str, Expr]]:
    match expr:
        case Beside():
            yield "swap", Beside((expr.parts[1], expr.parts[0], *expr.parts[2:]))
            yield "drop a part", Beside(expr.parts[1:])
        case Parentheses() | Masked() | Scaled() | SquaredNorm() | Rank() | Trace():
            yield from ((what, replace(expr, body=b)) for what, b in corrupted(expr.body))
            if isinstance(expr, Scaled):
                yield "leave out", expr.body
        case Ratio():
            yield from ((what, replace(expr, above=a)) for what, a in corrupted(expr.above))
            yield from ((what, replace(expr, below=b)) for what, b in corrupted(expr.below))
            yield "upside down", Ratio(expr.below, expr.above)
        case Difference():
            yield from ((what, replace(expr, left=a)) for what, a in corrupted(expr.left))
            yield from ((what, replace(expr, right=b)) for what, b in corrupted(expr.right))
            yield "turned round", Difference(expr.right, expr.left)
            yield "a sum", Sum((expr.left, expr.right))
        case Changed():
            for i in range(len(expr.changes)):
                yield "another change", replace(expr, changes=(*expr.changes[:i], *expr.changes[i + 1 :]))
        case AtTokens():
            yield from ((what, replace(expr, tokens=t)) for what, t in corrupted(expr.tokens))
            yield "another target", replace(expr, target="stream")
        case Inverse():
            yield "leave out", expr.of
        case NamedMatrix():
            yield (
                "another letter",
                replace(expr, name=expr.name + "2", kind="" if expr.kind in ("centring", "shift") else expr.kind),
            )
        case Rebased():
            yield "another target", replace(expr, target="stream")
        case Without():
            yield "another head", replace(expr, head="L1H1")
        case ImportanceRun():
            layer = {"X": 3 - expr.layer, "Y": expr.layer % 3 + 1}
            wrong = replace(expr, n=expr.n - 1 or 2) if expr.what == "logits" else replace(expr, layer=layer[expr.what])
            yield "another run", wrong
        case CountIn():
            yield "another model", replace(expr, heads=(3, 4))
            yield "another target", replace(expr, target="scores:L0H0")
        case Literal():
            (first, *rest), *rows = expr.rows
            yield "another entry", Literal(((first + "+1", *rest), *rows))
        case Elementwise():
            for what, b in corrupted(expr.body):
                assert isinstance(b, Literal)
                yield what, replace(expr, body=b)
        case TwoLayers():
            yield "the other pattern", replace(expr, held=not expr.held)
            yield "with the head", replace(expr, without=not expr.without)
        case TinyModel():
            for what, t in corrupted(expr.tokens):
                assert isinstance(t, Literal)
                yield what, replace(expr, tokens=t)
            if expr.patterns is not None:
                yield "patterns computed", replace(expr, patterns=None)


def spoiled(draft: Draft, tries: int) -> Iterator[tuple[str, Draft]]:
    """Corrupted drafts: for every kind of corruption, some of the places where it can be done."""
    chosen = random.Random(draft.reason)
    for n, claim in enumerate(draft.claims):
        for side in range(len(claim.sides)):
            ways: dict[str, list[Expr]] = {}
            for what, expr in corrupted(claim.sides[side]):
                if expr != claim.sides[side]:
                    ways.setdefault(what, []).append(expr)
            for what, exprs in ways.items():
                for expr in chosen.sample(exprs, min(tries, len(exprs))):
                    sides = (*claim.sides[:side], expr, *claim.sides[side + 1 :])
                    yield what, replace(draft, claims=(*draft.claims[:n], Claim(sides), *draft.claims[n + 1 :]))


def refusal(checker: ClaimChecker, draft: Draft, number: int) -> str:
    """Why a draft is refused; empty where it is taken."""
    try:
        checker.check(draft, number)
    except (DerivationError, IllTyped) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("heads", "target", "options"),
    [
        ((3, 3), "logits", {}),
        ((3, 3), "scores:L1H0", {}),
        ((2, 2), "logits", {"biases": True, "positions": "standard"}),
        ((2, 2), "scores:L1H0", {"biases": True, "positions": "shortformer"}),
    ],
)
@pytest.mark.sampled(5)
def test_every_corruption_is_refused(heads: tuple[int, ...], target: str, options: dict[str, Any], form: str) -> None:
    frame = make_frame(sc.attention_only(heads, **options), target, form)
    checker = ClaimChecker(frame)
    seen: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for number, draft in enumerate(path_expansion(frame), 1):
        for what, wrong in spoiled(draft, tries=2):
            message = refusal(checker, wrong, number)
            assert message, f"step {number} ({draft.kind}) took: {what} in {wrong.claims}"
            assert f"step {number} ({draft.kind})" in message or "Rule" in message
            seen[draft.kind].add(what)
    common = {"transpose", "drop a factor", "swap", "another head"}
    assert all(common <= seen[k] for k in KINDS if k not in ("counting", "mixed product"))
    assert {"mislabel", "wrong count", "drop a term", "double a term"} <= seen["collecting by composition type"]
    assert {"wrong count", "another order"} & seen["counting"]
    if "scores" in target:
        assert all("forget the scale" in seen[k] for k in KINDS if k not in ("counting", "mixed product"))


def test_the_error_names_what_differs() -> None:
    frame = make_frame(sc.attention_only((3, 3)), "logits", "enumerated")
    draft = next(d for d in path_expansion(frame) if d.complete)
    checker = ClaimChecker(frame)
    terms = draft.claims[0].rhs
    assert isinstance(terms, Sum)
    short = replace(draft, claims=(Claim((draft.claims[0].lhs, Sum(terms.terms[:-1]))),))
    with pytest.raises(DerivationError, match=r"step 7 \(distributing\) fails.*missing: A\[L1H2\] @ A\[L0H2\] @ X0"):
        checker.check(short, 7)
    long = replace(draft, claims=(Claim((draft.claims[0].lhs, Sum((*terms.terms, terms.terms[0])))),))
    with pytest.raises(DerivationError, match=r"extra: X0 @ W_U\.T"):
        checker.check(long, 7)


def test_a_draft_without_a_claim_is_refused() -> None:
    checker = ClaimChecker(make_frame(sc.attention_only((1,)), "logits", "enumerated"))
    with pytest.raises(DerivationError, match=r"step 1 \(definition\): a claim needs two sides or more, and has 1"):
        checker.check(Draft("definition", (Claim((Number(1),)),), ""), 1)
    for wrong in (Draft("definition", (), ""), Draft("guess", (Claim((Number(1),) * 2),), "")):
        with pytest.raises(ValueError, match="a draft needs claims, a kind of"):
            checker.check(wrong, 1)


def test_derive_raises_where_a_definition_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = definitions_module.layer_definition

    def wrong(frame: Any, layer: int, side: str = "") -> Expr:
        expr = right(frame, layer, side)
        return Sum(expr.terms[1:]) if isinstance(expr, Sum) and layer == 2 else expr

    monkeypatch.setattr(steps_module, "layer_definition", wrong)
    with pytest.raises(DerivationError, match=r"step 2 \(definition\) fails"):
        sc.derive(sc.attention_only((3, 3)))


def test_derive_raises_where_a_count_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module.counts, "by_order", lambda frame, order: Number(order + 1))
    with pytest.raises(DerivationError, match=r"collecting by composition type\) fails at head counts"):
        sc.derive(sc.attention_only((3, 3)), form="generic")


def test_the_misprint_of_the_paper_is_refused() -> None:
    """``A_q^T x W y A_k`` does not equal ``(A_q (x) A_k (x) W)(x, y)``."""
    frame = make_frame(sc.attention_only((3, 3)), "scores:L1H0", "generic")
    draft = next(d for d in path_expansion(frame) if "misprint" in d.reason or "paper prints" in d.reason)
    form, right = draft.claims[1].sides
    assert isinstance(right, Word)
    f = right.factors
    wrong = raw((f[0].T, *f[1:-1], f[-1].T))
    with pytest.raises(DerivationError, match="summed over their indices"):
        ClaimChecker(frame).check(replace(draft, claims=(Claim((form, wrong)),)), 7)


# ---------------------------------------------------------------------------- results that are not path expansions

# Steps where a corrupted claim may hold: maps of tokens and of streams in either order, what acts on the ones, an
# inverse on either side, a projection that is its own transpose, norms of a transpose or of what is rotated, factors in
# another cyclic order in a trace, an identity head before or after any other, numbers in another order, a matrix and
# its adjugate.
ALSO_TRUE = {
    ("concatenated_heads", 1),
    ("layer_norm", 2),
    ("layer_norm", 5),
    ("virtual_heads", 2),
    ("bias_collapse", 3),
    ("basis_freedom", 1),
    ("basis_freedom", 9),
    ("composition_scores", 3),
    ("convolution", 4),
    ("head_loadings", 2),
    ("head_loadings", 4),
    ("skip_trigrams", 4),
    ("tensor_product", 3),
    ("copying", 2),
    ("eigenvalue_tricks", 2),
    ("frobenius_not_cyclic", 1),
    ("identity_heads", 1),
    ("identity_heads", 3),
    ("identity_heads", 4),
    ("source_gauge", 11),
}


def checker_of(name: str, **changes: Any) -> tuple[ResultChecker, tuple[Draft, ...]]:
    entry = registered(name)
    assert entry.result is not None
    found, frame = replace(entry.result, **changes), entry.frame
    drafts = tuple(found.steps(frame))
    return ResultChecker(frame, drafts, found.given, real_model=found.real_model), drafts


@pytest.mark.parametrize("name", theorems())
def test_every_result_is_checked(name: str) -> None:
    derivation = theorem(name)
    assert derivation.ok
    assert derivation.statement.endswith(".")
    assert derivation.section
    assert repr(derivation).startswith(f"<Derivation of {name}: ")
    assert [s.claims for s in theorem(name, seed=5).steps] == [s.claims for s in derivation.steps]
    assert all(step.check.bound < 1e-12 for step in derivation.steps)


@pytest.mark.parametrize("name", theorems())
@pytest.mark.sampled(7)
def test_every_corruption_of_a_result_is_refused(name: str) -> None:
    checker, drafts = checker_of(name)
    seen = 0
    for number, draft in enumerate(drafts, 1):
        equations = tuple(claim for claim in draft.claims if claim.relation == "=")
        if (name, number) in ALSO_TRUE:
            continue
        for what, wrong in spoiled(replace(draft, claims=equations), tries=2):
            message = refusal(checker, wrong, number)
            assert message, f"step {number} ({draft.kind}) took: {what} in {wrong.claims}"
            seen += 1
    assert seen >= 12


@pytest.mark.parametrize("name", sorted({name for name, _ in ALSO_TRUE}))
def test_a_step_with_many_true_claims_refuses_wrong_ones(name: str) -> None:
    checker, drafts = checker_of(name)
    for number in sorted(n for other, n in ALSO_TRUE if other == name):
        refused = [what for what, wrong in spoiled(drafts[number - 1], tries=2) if refusal(checker, wrong, number)]
        assert {"transpose", "another letter", "double a factor", "leave out", "another entry"} & set(refused)


@pytest.mark.parametrize(
    ("name", "given", "step"),
    [
        ("virtual_heads", ("causal", "narrow heads"), 2),
        ("virtual_heads", ("rows sum to one", "narrow heads"), 3),
        ("virtual_heads", ("rows sum to one", "causal"), 4),
        ("bias_collapse", (), 3),
        ("source_gauge", ("rows sum to one",), 2),
        ("source_gauge", ("equal ones", "one-hot tokens"), 4),
        ("query_key_biases", ("narrow heads",), 3),
        ("query_key_biases", ("equal ones",), 6),
    ],
)
def test_what_is_given_is_needed(name: str, given: tuple[str, ...], step: int) -> None:
    checker, drafts = checker_of(name, given=given)
    for number, draft in enumerate(drafts[:step], 1):
        assert bool(refusal(checker, draft, number)) == (number == step)


def test_inequalities_are_refused_where_they_do_not_hold() -> None:
    checker, drafts = checker_of("basis_freedom")
    for number, draft in enumerate(drafts, 1):
        if draft.kind == "counterexample":
            for claim in draft.claims:
                same = replace(draft, claims=(Claim((claim.lhs, claim.lhs), "!="),))
                assert "it is not true that" in refusal(checker, same, number)
                assert refusal(checker, replace(draft, claims=(replace(claim, relation="="),)), number)
    heads, drafts = checker_of("virtual_heads")
    pattern = drafts[2].claims[0].rhs
    wide = replace(drafts[3], claims=(Claim((Rank(pattern), HeadWidth()), "<="),))
    assert "rank(A[h]) <= d_head" in refusal(heads, wide, 4)
    exact, drafts = checker_of("linearity")
    example = next(d for d in drafts if d.kind == "counterexample")
    once = example.claims[0].rhs
    assert refusal(exact, replace(example, claims=(Claim((once, once), "!="),)), 5)
    frame = make_frame(sc.attention_only((1,)), "logits", "enumerated")
    with pytest.raises(DerivationError, match="claims what is not an equation"):
        ClaimChecker(frame).check(Draft("definition", (Claim((HeadCount(0), Number(9)), "<="),), "", "values"), 1)


def test_every_pair_of_ranks_is_what_the_width_of_a_head_allows() -> None:
    checker, drafts = checker_of("virtual_heads")
    for claim in drafts[3].claims:
        for value in checker.instances[0].value(claim.lhs).ravel():
            assert value == 2  # of random heads of width 2 as large as it can be


def test_a_wrong_algorithm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = other_runs_module._outputs
    monkeypatch.setattr(other_runs_module, "_outputs", lambda at, layer, x: right(at, layer, x) if layer else at.zero())
    with pytest.raises(DerivationError, match=r"step 1 \(definition\) fails"):
        theorem("term_importance")


def test_what_a_real_model_does_is_checked() -> None:
    for name, number in (("layer_norm", 8), ("mlp", 3)):
        checker, drafts = checker_of(name)
        draft = drafts[number - 1]
        assert (draft.how, draft.kind) == ("model", "identity")
        assert not refusal(checker, draft, number)
        total = draft.claims[0].rhs
        assert isinstance(total, Sum)
        for i in range(len(total.terms)):
            short = replace(
                draft, claims=(Claim((draft.claims[0].lhs, Sum((*total.terms[:i], *total.terms[i + 1 :])))),)
            )
            assert "the two sides differ on a model with" in refusal(checker, short, number)
        assert "what is not an equation" in refusal(
            checker, replace(draft, claims=(replace(draft.claims[0], relation="!="),)), 1
        )
        check = theorem(name).steps[number - 1].check
        assert (check.how, check.bound, check.k) == ("model", 0.0, 5)
        text = " ".join(theorem(name).text().split())
        assert "the two sides agree in float64 up to rounding" in text
        assert "1 on a real model, up to rounding" in text


def test_a_scale_on_the_side_of_the_destination_is_seen_on_a_real_model() -> None:
    checker, drafts = checker_of("layer_norm")
    total = drafts[7].claims[0].rhs
    assert isinstance(total, Sum)
    term = total.terms[1]
    assert isinstance(term, Product)
    d_f, a, d_1, *rest = term.factors
    moved = Sum((total.terms[0], Product((d_f, d_1, a, *rest)), *total.terms[2:]))
    wrong = replace(drafts[7], claims=(Claim((drafts[7].claims[0].lhs, moved)),))
    assert refusal(checker, wrong, 8)


def test_the_logits_of_a_model_have_a_value_on_its_run_only() -> None:
    checker, _ = checker_of("layer_norm")
    with pytest.raises(TypeError, match="on a run of it only"):
        checker.instances[0].value(ModelLogits())


def test_ablation_with_patterns_computed_anew_gives_another_number() -> None:
    """The weights that the text states, from floating point alone."""
    derivation = theorem("ablation")
    step = derivation.steps[-2]
    x = np.array([[1.0], [0.0]])

    def attention(y: Any) -> Any:
        weights = np.tril(np.exp(y @ y.T))
        return weights / weights.sum(-1, keepdims=True)

    held, anew = attention(x + attention(x) @ x)[1, 0], attention(x)[1, 0]
    assert f"weight {held:.2f} if the pattern is held fixed" in step.reason
    assert f"weight {anew:.1f} if it is recomputed" in step.reason
    for claim, weight in zip(step.claims, (held, anew), strict=True):
        assert isinstance(claim.rhs, Literal)
        np.testing.assert_allclose(np.array(claim.rhs.exact().evalf(), dtype=float), [[2.0], [weight]])
    assert derivation.steps[-1].check.how == "exact"
    assert derivation.steps[-1].claim.relation == "!="


def test_the_counterexamples_of_copying_have_the_scores_that_are_said() -> None:
    steps = theorem("copying").steps

    def score(matrix: list[list[int]]) -> float:
        values = np.linalg.eigvals(np.array(matrix, dtype=float))
        return float(values.sum().real / abs(values).sum())

    np.testing.assert_allclose(np.sort(np.linalg.eigvals([[-1.0, 3.0], [-2.0, 4.0]])), [1, 2])
    assert score([[-1, 3], [-2, 4]]) == pytest.approx(1)
    assert "[[-1, 3], [-2, 4]]" in steps[2].claims[0].text
    assert "the eigenvalues 1 and 2, so its score is 1" in steps[2].reason
    assert "[[1, -3], [3, 1]]" in steps[4].claim.text
    modulus = abs(np.linalg.eigvals([[1.0, -3.0], [3.0, 1.0]]))[0]
    assert f"modulus {modulus:.2f}: the score is {score([[1, -3], [3, 1]]):.2f}" in steps[4].reason


def test_a_composition_score_is_the_root_of_what_is_derived() -> None:
    """The ratio of the first step, from floating-point matrices, against the scores that the package prints."""
    model = sc.random_model(sc.attention_only((1, 1)), d_model=7, d_head=3)
    w = model.weights
    o, v = w["W_O_L0H0"], w["W_V_L0H0"]
    qk, later = w["W_Q_L1H0"].T @ w["W_K_L1H0"], w["W_O_L1H0"] @ w["W_V_L1H0"]
    for kind, read in (("Q", qk.T), ("K", qk), ("V", later)):
        whole = read @ o @ v
        ratio = np.trace(whole.T @ whole) / (np.trace(read.T @ read) * np.trace((o @ v).T @ (o @ v)))
        found = sc.composition_scores(model, kind)["L1H0", "L0H0"]
        assert found == pytest.approx(np.sqrt(ratio))


def test_the_augmented_form_on_numbers() -> None:
    """``[X 1] Omega [X 1]^T`` are the scores of a model with biases, and the rank is that of a head."""
    run = sc.random_model(sc.attention_only((1,), biases=["b_Q", "b_K"]), d_model=7, d_head=3).run([3, 1, 4, 1])
    w = run.model.weights
    q, k = (np.column_stack([w[f"W_{x}_L0H0"], w[f"b_{x}_L0H0"]]) for x in "QK")
    omega, stream = q.T @ k, np.column_stack([run.streams[0], np.ones(4)])
    assert omega.shape == (8, 8)
    assert np.linalg.matrix_rank(omega) == 3
    scores = run.model.score_scale["L0H0"] * stream @ omega @ stream.T
    np.testing.assert_allclose(
        np.tril(scores), np.tril(np.where(np.isfinite(run.scores["L0H0"]), run.scores["L0H0"], 0))
    )


def test_an_unknown_result_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match="unknown result 'abelation': the nearest are ablation, "):
        theorem("abelation")


def test_the_numbers_of_terms_of_the_paper() -> None:
    text = " ".join(theorem("numbers_of_terms").text().split())
    for said in ("= 169", "= 338", "= 676", "= 196", "= 31"):
        assert said in text


# ------------------------------------------------------------------------------------------- the expressions


@pytest.mark.parametrize("form", FORMS)
def test_the_factored_form_multiplies_out_to_the_terms(form: str) -> None:
    for heads, target, options in [
        ((3, 3), "logits", {}),
        ((3, 3), "scores:L1H0", {}),
        ((2, 2), "stream", {"biases": True}),
    ]:
        derivation = sc.derive(sc.attention_only(heads, **options), target, form=form)
        last = derivation.steps[-1]
        assert last.kind == "mixed product"
        for side in last.claim.sides[1:]:
            found = sorted(Word(f.factors, f.scales).text for f in multiply_out(side))
            assert found == sorted(
                Word(f.factors, f.scales).text for _, e in derivation.frame.terms for f in multiply_out(e)
            )


def test_composition_is_read_from_the_word() -> None:
    for target in ("logits", "scores:L1H0"):
        for term in sc.expand(sc.attention_only((2, 2), biases=True, positions="shortformer"), target):
            assert composition_of_word(term.word) == term.composition


# ---------------------------------------------------------------------------------------- indices bound by sums


@pytest.mark.parametrize("options", [{"positions": "shortformer"}, {"biases": ["b_Q"]}, {"biases": ["b_K"]}])
@pytest.mark.parametrize("layers", [2, 3, 4])
@pytest.mark.sampled(3)
def test_queries_and_keys_have_indices_of_their_own(layers: int, options: dict[str, Any]) -> None:
    arch = sc.attention_only((1,) * layers, **options)
    derivation = sc.derive(arch, f"scores:L{layers - 1}H0", form="generic")
    put_in = [
        s for s in derivation.steps if s.kind == "substitution" and s.reason.startswith("Substitute the definition")
    ]
    assert [s.reason.split("`")[1] for s in put_in] == [f"X{n}" for n in range(layers - 1, 0, -1)]
    for step in put_in:
        for flat in multiply_out(step.claim.rhs):
            word = Word(flat.factors)
            cut = next(i for i, f in enumerate(word.factors) if f.col.space.kind == "qk") + 1
            for letter, factors in (("q", word.factors[:cut]), ("k", word.factors[cut:])):
                labels = {f.symbol.label for f in factors if f.symbol.glyph in ("A", "W_O", "W_V")}
                assert all(label.startswith(f"{letter}_") for label in labels), word.text


def test_an_index_is_not_bound_twice() -> None:
    word = make_frame(sc.attention_only((1,)), "logits", "generic").terms[1][1]
    assert isinstance(word, SumOver)
    with pytest.raises(ValueError, match="one index is bound by two sums of a product: h_1, h_1"):
        multiply_out(SumOver("h_1", 0, word))


# ------------------------------------------------------------------------- what is printed is what is evaluated


def wrong_abbreviations() -> Iterator[Any]:
    right = algebra._abbreviation

    def transposed(glyph: str) -> Any:
        def wrong(a: Factor, b: Factor) -> Factor | None:
            found = right(a, b)
            return found.T if found is not None and found.symbol.glyph == glyph else found

        return wrong

    def other_head(a: Factor, b: Factor) -> Factor | None:
        found = right(a, b)
        other = {"L0H0": "L0H1", "L1H0": "L1H1", "h_1": "h_2", "q_1": "k_1", "h": "g"}
        return None if found is None else relabelled((found,), other)[0]

    def other_glyph(a: Factor, b: Factor) -> Factor | None:
        found = right(a, b)
        glyphs = {"W_OV": "W_QK", "W_QK": "W_OV", "X0": "P"}
        return found and Factor(replace(found.symbol, glyph=glyphs[found.symbol.glyph]), found.transposed)

    for glyph in ("X0", "W_OV", "W_QK"):
        yield pytest.param(transposed(glyph), glyph, id=f"transposed-{glyph}")
    yield pytest.param(other_head, "W_OV", id="other-head")
    yield pytest.param(other_glyph, "X0", id="other-glyph")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("wrong", "glyph"), list(wrong_abbreviations()))
def test_a_wrong_abbreviation_is_refused(wrong: Any, glyph: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = ["scores:L1H0"] if glyph == "W_QK" else ["logits", "scores:L1H0"]
    monkeypatch.setattr(algebra, "_abbreviation", wrong)
    for target in targets:
        with pytest.raises(DerivationError, match=r"step [1-4] \(definition|step 4 \(substitution"):
            sc.derive(sc.attention_only((2, 2)), target, form=form)


def test_every_use_of_an_abbreviation_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that goes wrong only in long products, long after the step that defines it."""
    right = algebra.fuse

    def wrong(factors: Any) -> tuple[Factor, ...]:
        fused = right(factors)
        ov = [i for i, f in enumerate(fused) if f.symbol.glyph == "W_OV"]
        return fused if len(ov) < 2 else (*fused[: ov[1]], fused[ov[1]].T, *fused[ov[1] + 1 :])

    monkeypatch.setattr(algebra, "fuse", wrong)
    with pytest.raises(DerivationError, match=r"step 7 \(distributing\) fails"):
        sc.derive(sc.attention_only((2, 2)))


def forget_the_scale(patch: pytest.MonkeyPatch) -> None:
    right = programs.Readout
    patch.setattr(programs, "Readout", lambda arch, target, sides, scale="": right(arch, target, sides))


def drop_sources(patch: pytest.MonkeyPatch, kind: str) -> None:
    """Layers lose their sources of one kind."""
    right = programs._block

    def wrong(arch: sc.Architecture, layer: int) -> programs.Layer:
        found = right(arch, layer)
        return replace(found, sources=tuple(s for s in found.sources if s.kind != kind))

    patch.setattr(programs, "_block", wrong)


def drop_output_biases(patch: pytest.MonkeyPatch) -> None:
    drop_sources(patch, "b_O")


def positions_on_queries_only(patch: pytest.MonkeyPatch) -> None:
    right = programs._side_program

    def wrong(arch: sc.Architecture, head: Any, side: str) -> programs.Program:
        found = right(arch, head, side)
        return found if side == "Q" else tuple(x for x in found if not any(s.kind == "pos" for s in x.sources))

    patch.setattr(programs, "_side_program", wrong)


def add_positions_to_values(patch: pytest.MonkeyPatch) -> None:
    right = programs.stream_program

    def wrong(arch: sc.Architecture, n_layers: int) -> programs.Program:
        return right(replace(arch, positions="standard"), n_layers)

    for module in (programs, definitions_module, steps_module):
        patch.setattr(module, "stream_program", wrong)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("corrupt", "target", "step"),
    [
        (forget_the_scale, "scores:L1H0", 3),
        (drop_output_biases, "logits", 2),
        (drop_output_biases, "scores:L1H0", 2),
        (positions_on_queries_only, "scores:L1H0", 3),
        (add_positions_to_values, "logits", 2),
    ],
)
@pytest.mark.sampled(6)
def test_a_wrong_description_of_the_architecture_is_refused(
    corrupt: Any, target: str, step: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arch = sc.attention_only((2, 2), "shortformer", biases=True)
    assert sc.derive(arch, target, form=form).ok
    corrupt(monkeypatch)
    with pytest.raises(DerivationError, match=rf"step {step} \(definition\) fails"):
        sc.derive(arch, target, form=form)


# ---------------------------------------------------------------------------------- biases of the generic heads


def test_a_layer_without_heads_takes_the_kind_of_the_others() -> None:
    arch = sc.attention_only((3, 0), biases=True)
    derivation = sc.derive(arch, form="generic")
    labels = [f["label"] for f in derivation.json()["families"]]
    assert "b_V[h_2] -> h_2" in labels
    assert labels == [
        f["label"] for f in sc.derive(sc.attention_only((3, 2), biases=True), form="generic").json()["families"]
    ]
    assert derivation.json()["architecture"]["biases"] == ["b_V[h_1]", "b_O[L0]", "b_V[h_2]", "b_O[L1]", "b_U"]
    assert "b_V[h_1], b_O[L0], b_V[h_2], b_O[L1], b_U, and no others" in " ".join(derivation.text().split())
    none = sc.derive(sc.attention_only((2, 0), biases=["b_O"]), form="generic")
    assert "Biases in the formulas: b_O[L0], b_O[L1], and no others." in " ".join(none.text().split())


def test_a_layer_without_heads_among_unlike_ones_is_refused() -> None:
    arch = sc.attention_only((1, 0, 1), biases=["b_V[L0H0]"])
    with pytest.raises(ValueError, match="layer 1 has no heads, and elsewhere some heads have b_V and some have not"):
        sc.derive(arch, form="generic")
    assert sc.derive(sc.attention_only((1, 1), biases=["b_V[L0H0]"]), form="generic").ok


@pytest.mark.parametrize(
    ("bias", "target"),
    [("b_Q[L0H0]", "logits"), ("b_K[L0H0]", "logits"), ("b_K[L0H0]", "scores:L1H0"), ("b_V[L1H0]", "scores:L1H0")],
)
def test_only_biases_that_occur_matter(bias: str, target: str) -> None:
    derivation = sc.derive(sc.attention_only((2, 2), biases=[bias]), target, form="generic")
    plain = sc.derive(sc.attention_only((2, 2)), target, form="generic")
    assert [s.claims for s in derivation.steps] == [s.claims for s in plain.steps]
    assert "No bias occurs in the formulas." in " ".join(derivation.text().split())


# -------------------------------------------------------------------------------------- what softmax does not see


@pytest.mark.parametrize("form", FORMS)
def test_terms_that_softmax_does_not_see_are_marked(form: str) -> None:
    arch = sc.attention_only((3, 1), "standard", biases=True)
    derivation = sc.derive(arch, "scores:L1H0", form=form)
    entries = derivation.json()["families" if form == "generic" else "terms"]
    for entry, term in zip(entries, derivation.frame.expansion, strict=True):
        assert entry["softmax_invisible"] == term.softmax_invisible
    if form == "enumerated":
        assert (sum(e["softmax_invisible"] for e in entries), len(entries)) == (65, 169)
    step = next(s for s in derivation.steps if s.kind.startswith("collecting"))
    assert "softmax does not see them" in step.reason
    assert "softmax" in step.check.also
    assert derivation.latex().count(r"\ast") == sum(e["softmax_invisible"] for e in entries)
    plain = sc.derive(sc.attention_only((3, 1), "standard"), "scores:L1H0", form=form)
    assert not any("softmax does not" in s.reason or "softmax" in s.check.also for s in plain.steps)
    assert "softmax_invisible" not in sc.derive(arch, form=form).json()["families" if form == "generic" else "terms"][0]


@pytest.mark.parametrize("wrong", [lambda expr: False, lambda expr: True])
def test_a_wrong_mark_is_refused(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "softmax_invisible", wrong)
    with pytest.raises(DerivationError, match="marked as the same for every key, and its value differs"):
        sc.derive(sc.attention_only((2, 1), biases=["b_V"]), "scores:L1H0")


# ----------------------------------------------------------------------------------------------------- in a shell


def test_objects_show_themselves_in_a_line() -> None:
    derivation = sc.derive(sc.attention_only((3, 3)), "scores:L1H0")
    step = derivation.steps[5]
    assert repr(step) == (
        "<Step 6 (collecting by composition type): "
        "S[L1H0] = scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T + scale[L1..., checked>"
    )
    assert repr(step.claim).startswith("<Claim S[L1H0] = scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T + ")
    assert repr(derivation.steps[6].claims[0]) == "<Claim N_none = 1>"
    for form in FORMS:
        for step in sc.derive(sc.attention_only((3, 3), biases=True), "scores:L1H0", form=form).steps:
            shown = [step, *step.claims, *(side for claim in step.claims for side in claim.sides)]
            assert all(len(repr(x)) <= 140 and "\n" not in repr(x) for x in shown)
    frame = make_frame(sc.attention_only((2,)), "logits", "enumerated")
    assert repr(next(iter(path_expansion(frame)))) == "<Draft (definition): W_OV[h] = W_O[h] @ W_V[h]>"
    assert repr(Sum((Number(1), HeadCount(0)))) == "<Sum 1 + H_1>"
    assert repr(Family(Number(2), "QK", Number(1))) == "<Family QK: <Number 2>>"
