"""Derivations: every step is checked, and a step that is corrupted in any way is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.algebra import Factor, IllTyped, Word
from symcircuits.derivation import Claim, DerivationError, Draft, Step
from symcircuits.derivation import definitions as definitions_module
from symcircuits.derivation import steps as steps_module
from symcircuits.derivation.checks import KINDS, Laboratory
from symcircuits.derivation.expressions import (
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
    relabelled,
)
from symcircuits.derivation.flatten import composition_of_word, multiply_out
from symcircuits.derivation.frames import MAX_FAMILIES, MAX_TERMS, make_frame
from symcircuits.derivation.steps import path_expansion
from symcircuits.render.layout import is_number

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
]


def targets(heads: tuple[int, ...]) -> list[str]:
    """Logits, stream, and the scores of the last head of each layer."""
    return ["logits", "stream", *(f"scores:L{n}H{h - 1}" for n, h in enumerate(heads) if h)]


# ------------------------------------------------------------------------------------------- what is derived


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("heads", "options"), SHAPES)
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
    assert list(everything.terms) == [term.word for term in sc.expand(sc.attention_only((3, 3)), target)]
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


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 4, 5])
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


def test_deep_generic_form() -> None:
    derivation = sc.derive(sc.attention_only((12,) * 7), form="generic")
    assert derivation.ok
    assert len(derivation.json()["families"]) == 128


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


def refusal(laboratory: Laboratory, draft: Draft, number: int) -> str:
    """Why a draft is refused; empty where it is taken."""
    try:
        laboratory.check(draft, number)
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
def test_every_corruption_is_refused(heads: tuple[int, ...], target: str, options: dict[str, Any], form: str) -> None:
    frame = make_frame(sc.attention_only(heads, **options), target, form)
    laboratory = Laboratory(frame)
    seen: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for number, draft in enumerate(path_expansion(frame), 1):
        for what, wrong in spoiled(draft, tries=2):
            message = refusal(laboratory, wrong, number)
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
    laboratory = Laboratory(frame)
    terms = draft.claims[0].rhs
    assert isinstance(terms, Sum)
    short = replace(draft, claims=(Claim((draft.claims[0].lhs, Sum(terms.terms[:-1]))),))
    with pytest.raises(DerivationError, match=r"step 7 \(distributing\) fails.*missing: A\[L1H2\] @ A\[L0H2\] @ X0"):
        laboratory.check(short, 7)
    long = replace(draft, claims=(Claim((draft.claims[0].lhs, Sum((*terms.terms, terms.terms[0])))),))
    with pytest.raises(DerivationError, match=r"extra: X0 @ W_U\.T"):
        laboratory.check(long, 7)


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
        Laboratory(frame).check(replace(draft, claims=(Claim((form, wrong)),)), 7)


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
