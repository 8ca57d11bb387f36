"""Symbolic numbers of heads: families of terms are the enumeration at every number, and wrong sums are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import symcircuits as sc
from symcircuits.checking.counting import interpolated, terms_polynomial
from symcircuits.checking.faults import ReadError
from symcircuits.core.architecture import Architecture
from symcircuits.derivation.frames import COMPOSITIONS
from symcircuits.derivation.multiplying import count_polynomial
from symcircuits.sympy_layer.families import Families
from symcircuits.sympy_layer.letters import LetterSymbol
from symcircuits.sympy_layer.reading import TypedFamily

H = sp.symbols("H_1:4", integer=True, nonnegative=True)
PLAIN = sc.attention_only(H[:2])
FEATURES: list[dict[str, Any]] = [
    {},
    {"positions": "standard", "biases": True},
    {"positions": "shortformer", "norm": "LN", "biases": True, "gains": ["L0"]},
    {"positions": "rotary", "biases": ["b_V", "b_K"]},
    {"norm": "RMS", "qk_norm": True, "biases": ["b_Q", "b_O"], "multipliers": True},
    {"norm": "LN", "mlps": [0], "biases": True, "scale": False, "multipliers": ["m_E", "r"]},
]


def index(name: str) -> Any:
    return sp.Symbol(name, integer=True, nonnegative=True)


@examples(30)
@given(
    st.sampled_from(FEATURES),
    st.lists(st.integers(0, 3), min_size=2, max_size=2),
    st.sampled_from(["logits", "stream", "scores:L1H0", "scores:L1H2"]),
    st.sampled_from(["OV", "factors"]),
    st.booleans(),
)
def test_families_at_numbers_are_the_enumeration(
    features: dict[str, Any], numbers: list[int], target: str, letters: str, mixed: bool
) -> None:
    numbers[1] = max(numbers[1], 3) if target == "scores:L1H2" else max(numbers[1], 1)
    arch = sc.transformer((H[0], numbers[1]) if mixed else H[:2], **features)
    at = dict(zip(H, numbers, strict=False))
    listed = sc.expand(sc.transformer(numbers, **features), target)
    families: Any = sc.expand(arch, target)
    assert families.at(at) == listed
    assert sp.S(families.count).subs(at) == listed.count
    for ours, theirs in (
        (families.counts_by_order(), listed.counts_by_order()),
        (families.counts_by_composition(), listed.counts_by_composition()),
    ):
        assert {k: n for k, v in ours.items() if (n := sp.S(v).subs(at))} == theirs
    wanted = listed.as_expr(letters)
    assert sp.expand(families.as_expr(letters).subs(at).doit()) == wanted
    nested = sc.symbolic(arch, letters).target(target)
    assert sp.expand(nested.subs(at).doit()) == wanted
    assert [(f.coefficient, f.label, f.count, f.term) for f in sc.read(nested, arch)] == [
        (1, f.label, f.count, f.term) for f in families
    ]
    assert [f.term for f in sc.read(families, arch)] == [f.term for f in families]


def test_two_layers_have_the_counts_of_the_paper() -> None:
    e: Any = sc.logits(PLAIN)
    assert e.count.subs(dict.fromkeys(H[:2], 12)) == 169
    assert e.counts_by_composition() == {"none": 1 + H[0] + H[1], "V": H[0] * H[1]}
    scores: Any = sc.scores(PLAIN, "L1H0")
    assert scores.counts_by_composition() == {"none": 1, "Q": H[0], "K": H[0], "QK": H[0] ** 2}
    assert scores.where(composition="QK").count == H[0] ** 2
    assert [f.label for f in e.order(1)] == ["embed -> h_1", "embed -> h_2"]
    assert e.order(1).at({H[0]: 3, H[1]: 4}) == sc.logits(sc.attention_only((3, 4))).order(1)
    assert (len(e), e[3].order, e[3].orders) == (4, 2, (2,))


def test_counts_are_there_at_any_depth() -> None:
    many = sp.symbols("H_1:25", integer=True, nonnegative=True)
    e: Any = sc.logits(sc.attention_only(many))

    @cache  # what is nested stands in it more than once
    def with_twelve(x: Any) -> int:
        parts = map(with_twelve, x.args)
        return 12 if x.is_Symbol else int(x) if x.is_Integer else sum(parts) if x.is_Add else prod(parts)

    assert with_twelve(e.count) == 13**24
    assert e[2**23].order > 1
    with pytest.raises(ValueError, match="16,777,216 families are too many to list"):
        list(e)


def test_streams_are_nested_sums_over_heads() -> None:
    s = sc.symbolic(PLAIN)
    assert [len(x.atoms(sp.Sum)) for x in s.X] == [0, 1, 2]
    [outer] = [x for x in s.X[2].args if isinstance(x, sp.Sum) and x.has(sp.Sum) and x.function.has(sp.Sum)]
    assert outer.limits == ((index("h_2"), 0, H[1] - 1),)
    assert not s.X[1].args[1].is_commutative
    for layer in (0, 1):
        assert sp.expand(s.X[layer + 1] - (s.X[layer] + sum(s.heads(layer)) + s.others(layer))) == 0
    assert s.head("L1H7").free_symbols >= {LetterSymbol("A_L1H7")}
    assert str(index("q_1")) in str(s.scores("L1H0"))


def test_indices_become_the_letters_of_heads() -> None:
    a = sc.symbolic(PLAIN).X[1].args[1].function.args[0]
    assert str(a) == "A_L0[h_1]"
    assert a.subs(index("h_1"), 3) == LetterSymbol("A_L0H3")
    with pytest.raises(ValueError, match="heads are counted from 0, not -1"):
        a.subs(index("h_1"), -1)
    with pytest.raises(ValueError, match="symbol without shape"):
        sp.lambdify([index("h_1")], a * a)


def test_families_in_latex_and_pickled() -> None:
    e: Any = sc.logits(PLAIN)
    assert sp.latex(e[1]) == (
        r"\sum_{h_{1}=0}^{H_{1} - 1} A^{h_{1}} t W_E^{\mathsf{T}} W_{OV}^{h_{1}\,\mathsf{T}} W_U^{\mathsf{T}}"
    )
    assert sp.latex(e) == " + ".join(sp.latex(f) for f in e)
    assert sp.sympify(e) == e.expr == sum(e.exprs)
    assert sp.sstr(e) == str(e.expr)
    again = pickle.loads(pickle.dumps(e))
    assert again.expr == e.expr
    assert pickle.loads(pickle.dumps(PLAIN)) == PLAIN
    assert isinstance(e, Families)


# ----------------------------------------------------------------------------------------- derivations
@pytest.mark.parametrize("target", ["logits", "scores:L1H3", "stream"])
@pytest.mark.parametrize("features", FEATURES[:2])
@pytest.mark.sampled(3)
def test_generic_derivations_are_of_these_families(target: str, features: dict[str, Any]) -> None:
    arch = sc.transformer(H[:2], **features)
    derivation, families = sc.derive(arch, target, form="generic"), list(sc.expand(arch, target))
    assert derivation.ok
    if ":" in target:  # score terms are listed by type
        families.sort(key=lambda family: COMPOSITIONS.index(family.composition))
    terms = [term for term, _ in derivation.frame.terms]
    assert [derivation.frame.label(term) for term in terms] == [f.label for f in families]
    assert [term.composition for term in terms] == [f.composition for f in families]
    counts = [count_polynomial(derivation.frame.count(term), lambda layer: H[layer]) for term in terms]
    assert counts == [f.count for f in families]
    assert r"\sum" in derivation.latex()
    assert "H_1" in derivation.text()


def test_an_enumerated_derivation_needs_numbers() -> None:
    with pytest.raises(ValueError, match='use form="generic"'):
        sc.derive(PLAIN)


# --------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("count", "says"),
    [
        (sp.Symbol("H_1"), "'H_1', is not known to be a whole number: make its symbols with"),
        (sp.Symbol("x", integer=False, real=True), "'x', is not a whole number"),
        (H[0] / 2, "'H_1/2', is not known to be a whole number"),
        (sp.Symbol("n", integer=True, negative=True), "'n', is negative"),
        (sp.Float(2), "must be a whole number"),
        (sp.oo, "must be a whole number"),
        (sp.Rational(1, 2), "must be a whole number"),
        (sp.Integer(-1), "must be a whole number, 0 or more"),
    ],
)
def test_what_is_not_a_number_of_heads_is_refused(count: Any, says: str) -> None:
    with pytest.raises(ValueError, match=r"the number of heads of layer 1") as fault:
        sc.attention_only((2, count))
    assert says in str(fault.value)


def test_expressions_of_integers_and_sympy_s_numbers_are_counts() -> None:
    assert sc.attention_only((sp.Integer(2), 3)) == sc.attention_only((2, 3))
    e: Any = sc.logits(sc.attention_only((2 * H[0] + 1,)))
    assert e.count == 2 * H[0] + 2
    assert e.at({H[0]: 1}).count == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda: sc.random_model(PLAIN),
        lambda: sc.verify(PLAIN),
        lambda: sc.symbolic(PLAIN, form="matrix"),
        lambda: PLAIN.all_heads,
    ],
)
def test_what_needs_numbers_says_so(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"needs numbers of heads, and layer 0 has H_1: give architecture.at\("):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: PLAIN.at({H[0]: 2}), "layer 1 has 'H_2' heads"),
        (lambda: PLAIN.at({H[0]: 2, H[1]: -1}), "layer 1 has '-1' heads"),
        (lambda: PLAIN.at({H[0]: 0.5, H[1]: 1}), "layer 0 has '0.5.*' heads"),
        (lambda: sc.attention_only(H[:2], groups=(1, 1)), "groups need numbers"),
        (lambda: sc.scores(sc.attention_only((H[0], 3)), "L1H7"), "there is no head L1H7"),
        (lambda: sc.expand(PLAIN, "loggits"), "unknown target"),
        (lambda: sc.logits(sc.attention_only((H[0], 2), biases=["b_V[L1H1]"])), "some heads of layer 1 have b_V"),
    ],
)
def test_other_wrong_numbers_are_refused(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


F: Any = [f.expr for f in sc.logits(PLAIN)]
QK: Any = sc.scores(PLAIN, "L1H0")[3].expr  # type: ignore[attr-defined]
HS = index("h_1"), index("h_2")


def crossed() -> Any:
    """Query and key heads exchanged on ``W_OV`` alone."""
    numbers, letters = QK.function.args_cnc()
    q, k = index("q_1"), index("k_1")
    letters = [x.xreplace({q: k, k: q}) if "W_OV" in str(x) else x for x in letters]
    return sp.Sum(sp.Mul(*numbers, *letters), *QK.limits)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: sp.Sum(F[1].function, (HS[0], 0, H[1] - 1)), "goes from 0 to H_2 - 1: the heads of layer 0"),
        (lambda: sp.Sum(F[1].function, (HS[0], 1, H[0])), "goes from 1 to H_1"),
        (lambda: F[1].function, "summed over no index"),
        (lambda: sp.Sum(F[1], (HS[1], 0, H[1] - 1)), "summed over h_1, h_2: it goes through 1 head,"),
        (lambda: sp.Sum(F[3].function.subs(HS[1], HS[0]), F[3].limits[0]), "summed over h_1: it goes through 2 heads"),
        (lambda: sp.Sum(F[0], (HS[0], 0, H[0] - 1)), "summed over h_1: it goes through 0 heads"),
        (crossed, "that is on all its symbols"),
        (lambda: sp.Sum(QK.function.subs(index("k_1"), index("q_1")), QK.limits[0]), "summed over q_1"),
        (lambda: sc.symbolic(PLAIN).head("L0H0"), "summed over no index"),
        (lambda: sc.symbolic(PLAIN).head("L0H2"), "there is no head L0H2"),
        (lambda: F[1].replace(lambda x: isinstance(x, sp.transpose) and "W_OV" in str(x), lambda x: x.args[0]),
         r"W_E.T @ W_O\[L0H0\] cannot be multiplied"),
        (lambda: 0.5 * F[1], "floating-point"),
    ],
)  # fmt: skip
def test_a_wrong_sum_is_refused(wrong: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sc.read(wrong(), PLAIN)


def test_sums_are_read_whatever_their_indices_are_called() -> None:
    i, j = sp.symbols("i j", integer=True)
    renamed = QK.xreplace({index("q_1"): i, index("k_1"): j})
    [found] = sc.read(2 * renamed + QK - QK / 2, PLAIN)
    assert isinstance(found, TypedFamily)
    assert (str(found.coefficient), found.composition, found.count, found.orders) == ("5/2", "QK", H[0] ** 2, (1, 1))
    assert found.family in list(sc.scores(PLAIN, "L1H0"))
    assert repr(found).startswith("<TypedFamily embed -> q_1 | embed -> k_1 (QK): 5/2 * scale[L1H0]")
    assert (found.target, found.order, found.label) == ("scores:L1H0", 2, "embed -> q_1 | embed -> k_1")
    assert sc.read(renamed - QK, PLAIN) == []


def test_sums_with_numbers_are_not_read_unevaluated() -> None:
    with pytest.raises(ValueError, match=r"substitute numbers .subs., then doit"):
        sc.read(F[1].subs(H[0], 3), sc.attention_only((3, 3)))
    assert len(sc.read(F[1].subs(H[0], 3).doit(), sc.attention_only((3, 3)))) == 3


def test_a_description_of_one_head_stands_for_all() -> None:
    arch: Architecture = sc.attention_only((H[0], 2), biases=True)
    assert arch.symbolic
    assert arch.generic() == sc.attention_only((1, 1), biases=True)
    assert arch.generic(arch.head("L0H5")) == sc.attention_only((6, 1), biases=True)
    assert arch.at({H[0]: 4}) == sc.attention_only((4, 2), biases=True)
    assert str(arch) == "attention-only, heads H_1,2, biases"


# ------------------------------------------------------------------------- formulas for every number of heads
TARGETS = ["logits", "stream", "scores:L1H0"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("features", FEATURES[:2])
@pytest.mark.sampled(2)
def test_what_sympy_prints_is_right_for_every_number_of_heads(target: str, features: dict[str, Any]) -> None:
    arch = sc.attention_only(H[:2], **features)
    expansion = sc.expand(arch, target)
    for formula in (sp.latex(expansion), sp.latex(sc.symbolic(arch).target(target)), expansion, expansion.expr):
        verdict = sc.check(formula, arch, target)
        assert verdict.right, verdict
        assert f"all {expansion.count} terms" in verdict.message
        assert [t.label for t in verdict.terms] == [f.label for f in expansion]
        assert [t.composition for t in verdict.terms] == [f.composition for f in expansion]
        assert any(note.startswith("right for every H_1") for note in verdict.notes)
    for i, family in enumerate(expansion):
        found = sc.check(family, arch, target)
        assert found.right, found
        assert [t.number for t in found.terms] == [i]
        assert not sc.check(2 * family.expr, arch, target).right


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(1)
def test_a_generic_derivation_is_right_for_every_number_of_heads(target: str) -> None:
    text = sc.derive(PLAIN, target, form="generic").latex()
    verdict = sc.check(text, PLAIN)
    assert verdict.right, verdict
    assert any(note.startswith("right for every H_1, H_2") for note in verdict.notes)
    lines = [n for n, line in enumerate(text.split("\n")) if r"\sum_{h_{1}=1}^{H_{1}}" in line or "k_{1}=1" in line]
    wrong = text.split("\n")
    wrong[lines[-1]] = wrong[lines[-1]].replace("_{1}=1}^{H_{1}}", "_{1}=1}^{H_{2}}", 1)
    with suppress(ReadError):
        assert not sc.check("\n".join(wrong), PLAIN).right


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r"X_0 + \sum_{h \in H_1} X_0 = 3 X_0", "H_1 = 3"),
        (r"X_0 + \sum_{h \in H_1} X_0 = (1 + H_1) X_0 + X_0", ""),
        ("N = 12", "it is H_1 H_2 + H_1 + H_2 + 1, not 12; they are equal for example where H_1 = 1, H_2 = 5"),
        ("N = 3 H_1 + 2 H_2", "it is H_1 H_2 + H_1 + H_2 + 1, not 3 H_1 + 2 H_2"),
        ("N_QK = 4", "for scores:L1H0 it is H_1^2, not 4; they are equal for example where H_1 = 2"),
        # These agree at the two choices of numbers of heads that were compared once, and differ elsewhere.
        ("N_1 = H_1 + H_2 + (H_1 - 2) (H_1 - 5)", "for logits it is H_1 + H_2, not H_1^2 - 6 H_1 + H_2 + 10"),
        (r"N_1 = H_1 + H_2 + (H_2 - 3) (H_2 - 9)", "for logits it is H_1 + H_2, not H_2^2"),
        (r"X_0 + \sum_{h \in H_1} (H_1 - 2) X_0 = X_0", "H_1 = 3"),
        ("H_1 + H_2 = 5", "but not for all"),
        (r"X_2 = X_1 + \sum_{h \in H_1} A^h X_1 W_{OV}^{h T}", "H_1 = 2, H_2 = 3"),
        ("X1 = X0 + A[L0H0] X0 W_OV[L0H0].T + A[L0H1] X0 W_OV[L0H1].T", "missing"),
        ("logits = X0 W_U.T", "missing"),
        (r"T = X_0 W_U^T + \sum_{h \in H_1 \cup H_2} A^h X_0 W_{OV}^{h T} W_U^T", "missing"),
    ],
)
def test_what_is_so_for_some_numbers_of_heads_is_wrong(text: str, says: str) -> None:
    verdict = sc.check(text, PLAIN)
    assert not verdict.right, verdict
    assert says in str(verdict).replace("\n  ", " ")


@pytest.mark.parametrize(
    ("text", "right", "says"),
    [
        ("N_QK = 4", True, "4 is the number of such terms of scores:L1H0, with 2, 2 heads by layer; for any numbers of "
         "heads it is H_1^2."),
        ("N_QK = H_1^2", True, "H_1^2 is the number of such terms of scores:L1H0, for every number of heads."),
        ("N_QK = 2 H_1", False, "for scores:L1H0 it is H_1^2, not 2 H_1; they are equal for example where H_1 = 2."),
        ("N = (1 + H)^2", True, "H^2 + 2 H + 1 is the number of such terms of logits, for every number of heads."),
        (r"N = \prod_l (1 + H_l)", True, "H_1 H_2 + H_1 + H_2 + 1 is the number of such terms of logits"),
        # once: at 4, 8
        ("N_1 = H_1 + H_2 + (H_1 - 2) (H_1 - 4)", False, "they are equal for example where H_1 = 2, H_2 = 1"),
        ("N_1 = H_1 + H_2 + (H - 2) (H - 4)", False, "for logits it is 2 H, not H^2 - 4 H + 8"),
        ("(1 + H_1) (1 + H_2) = 1 + H_1 + H_2 + H_1 H_2", True, "both sides are the same number."),
        ("(1 + H_1)^2 = 1 + 4 H_1", False, "not for all: H_1^2 + 2 H_1 + 1 and 4 H_1 + 1"),
        ("(1 + H)^2 = 1 + H_1 + H_2 + H_1 H_2", True, "both sides are the same number."),
    ],
)  # fmt: skip
def test_numbers_of_terms_are_compared_as_polynomials(text: str, right: bool, says: str) -> None:
    verdict = sc.check(text, sc.attention_only((2, 2)))
    assert (verdict.right, says in verdict.message) == (right, True), verdict


@examples(30)
@given(st.dictionaries(st.tuples(*[st.integers(0, 2)] * 2), st.fractions(-3, 3, max_denominator=4).filter(bool)))
def test_a_polynomial_is_found_from_its_values(given_: dict[tuple[int, int], Fraction]) -> None:
    def value(heads: tuple[int, ...]) -> Any:
        return sum((n * heads[0] ** a * heads[1] ** b for (a, b), n in given_.items()), Fraction(0))

    assert interpolated(value, [(0, 2, 5), (1, 2, 3)]) == given_
    assert interpolated(value, [range(100), range(100)]) is None  # too many points


@pytest.mark.parametrize("kind", ["", "0", "1", "2", "none", "Q", "K", "QK", "V"])
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_numbers_of_terms_are_the_polynomials_of_the_families(target: str, kind: str) -> None:
    arch = sc.attention_only((2, 3), biases=["b_V", "b_O"])
    found = terms_polynomial(arch, target, kind)
    families = sc.expand(sc.attention_only(H[:2], biases=["b_V", "b_O"]), target)
    if kind.isdigit():
        families = families.order(int(kind))
    elif kind:
        try:
            families = families.where(composition=kind)
        except ValueError:
            assert not found
            return
    expected = sp.Poly(families.count, *H[:2]).as_dict()
    assert found == {e: Fraction(int(n)) for e, n in expected.items() if n}


def test_where_numbers_of_heads_are_written_it_is_said_at_which_it_was_checked() -> None:
    verdict = sc.check(r"X_1 = X_0 + \sum_{h=1}^{2} A^h X_0 W_{OV}^{h T}", sc.attention_only(H[:1]))
    assert "right for every" not in str(verdict)
    assert verdict.notes[-1] == "checked only for H_1 = 2"
    # One head more than are named tells all of them from these.
    assert sc.check("A[L0H1] X0 W_OV[L0H1].T", PLAIN).message.startswith("Right: this is a term of family 1 of 4")


@pytest.mark.parametrize(
    ("text", "heads", "general"),
    [
        (r"X_0 + \sum_{h \in H_1} X_0 = 3 X_0", (2,), False),
        (r"X_1 = X_0 + \sum_{h \in H_1} A^h X_0 W_{OV}^{h T}", (2,), True),
        (r"\sum_{g \in H_1} \sum_{h \in H_1} \sum_{k \in H_1} A^g A^h A^k X_0 "
         r"= \sum_{k \in H_1} \sum_{h \in H_1} \sum_{g \in H_1} A^g A^h A^k X_0", (2,), False),
        (r"\sum_{g \in H_1} \sum_{h \in H_1} A^g A^h X_0 = \sum_{h \in H_1} \sum_{g \in H_1} A^g A^h X_0", (2,), True),
    ],
)  # fmt: skip
def test_numbers_of_heads_decide_all_others_only_where_they_do(
    text: str, heads: tuple[int, ...], general: bool
) -> None:
    verdict = sc.check(text, sc.attention_only(heads))
    assert verdict.right, verdict
    assert any("every number of heads" in note for note in verdict.notes) == general
