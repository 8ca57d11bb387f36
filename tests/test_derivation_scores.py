"""Derivations of scores with rotary positions, ALiBi, normed queries and keys: what they claim, and what is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.core.rules import check_finished
from symcircuits.core.words import IllTyped, Word, transpose
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import readout_definition
from symcircuits.derivation.derive import DerivationError
from symcircuits.derivation.frames import Frame, make_frame
from symcircuits.derivation.multiplying import multiply_out, softmax_invisible
from symcircuits.derivation.nodes import Expr, Product, Sum, Target, Transposed
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.values import Instance
from symcircuits.model.attending import alibi_slopes

FORMS = ("enumerated", "generic")
SCORES = "scores:L1H0"


def frame(form: str = "enumerated", **options: Any) -> Frame:
    return make_frame(sc.attention_only((2, 2), **options), SCORES, form)


def flat(derivation: Any) -> str:
    return " ".join(derivation.text().split())


def refused(where: Frame, wrong: Expr) -> None:
    """The claim that the scores are this fails; that they are what they are by definition holds."""
    checker, target = ClaimChecker(where), Target(SCORES)
    checker.check(Draft("definition", (Claim((target, readout_definition(where))),), ""), 1)
    with pytest.raises(DerivationError, match="the two sides differ"):
        checker.check(Draft("definition", (Claim((target, wrong)),), ""), 1)


# ------------------------------------------------------------------------------------------------- is it right
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"positions": "rotary"},
        {"positions": "rotary", "biases": True},
        {"positions": "rotary", "qk_norm": True, "scale": False},
        {"positions": "rotary", "qk_norm": True, "biases": ["b_Q", "b_K", "b_V"], "norm": "LN"},
        {"positions": "alibi"},
        {"positions": "alibi", "biases": True, "qk_norm": True},
        {"positions": "alibi", "norm": "RMS", "groups": (1, 2)},
        {"qk_norm": True},
        {"qk_norm": True, "biases": True, "positions": "shortformer"},
        {"qk_norm": True, "positions": "standard", "groups": (1, 1), "multipliers": True},
    ],
)
@pytest.mark.parametrize("head", ["L0H1", "L1H0"])
@pytest.mark.sampled(9)
def test_scores_are_derived(head: str, options: dict[str, Any], form: str) -> None:
    arch = sc.attention_only((2, 2), **options)
    derivation = sc.derive(arch, f"scores:{head}", form)
    assert derivation.ok
    listed = next(s for s in derivation.steps if "terms" in s.check.also).claim.rhs
    words = [f.expr for f in multiply_out(listed)]
    assert len(words) == len(derivation.frame.terms)
    if form == "enumerated":
        assert set(words) == {t.word for t in sc.scores(arch, head)}
    assert max(map(len, derivation.text().splitlines())) <= 80
    for notation in ("paper", "transformerlens"):
        assert derivation.written(notation).latex().count("Every equation was checked by machine: ") == 1
    last = [line for line in derivation.text().splitlines() if f"alibi[{head}]" in line]
    assert bool(last) == (options.get("positions") == "alibi")


def test_many_terms_go_by_the_factored_form() -> None:
    for options in ({"positions": "rotary"}, {"positions": "alibi"}, {"qk_norm": True}):
        derivation = sc.derive(sc.attention_only((10, 2), **options), SCORES)
        assert [s.kind for s in derivation.steps].count("distributing") == 1
        assert derivation.ok


# ------------------------------------------------------------------------------------------------ rotary
def test_rows_are_turned_on_both_sides() -> None:
    """At i, j the value of ``q R k^T`` is ``q_i R_i R_j^T k_j^T``, in whole numbers modulo p."""
    at = Instance(sc.attention_only((1, 1), "rotary"), SCORES, 4, trials=1)
    x = Word(sc.stream(at.architecture)[0].word.factors)
    q, k = (at.drawn[f"W_{g}_L1H0"][0].astype(object) for g in "QK")
    r, rows = at._turns["R_L1H0"][0].astype(object), at.value(x)[0].astype(object)
    wanted = [[(rows[i] @ q.T @ r[i]) @ (rows[j] @ k.T @ r[j]) % at.ring.p for j in range(4)] for i in range(4)]
    word = sc.scores(sc.attention_only((1, 1), "rotary", scale=False), "L1H0")[0].word
    assert np.array_equal(at.value(word)[0], np.array(wanted))
    parts = Product((Word(word.factors[:3]), Word(word.factors[3:4]), Transposed(Word(transpose(word.factors[4:])))))
    assert np.array_equal(at.value(parts)[0], np.array(wanted))


def test_a_rotation_that_is_missing_is_seen() -> None:
    where = frame(positions="rotary", biases=["b_Q"])
    right = readout_definition(where)
    assert isinstance(right, Product)
    refused(where, Product((right.factors[0], right.factors[2]), right.scales))
    word = sc.scores(sc.attention_only((2, 2), "rotary"), "L1H0")[0].word
    with pytest.raises(IllTyped):
        Word(tuple(f for f in word.factors if f.symbol.glyph != "R"), word.scales)


def test_the_rotation_of_another_head_is_seen() -> None:
    where = frame(positions="rotary")
    others = sc.scores(sc.attention_only((2, 2), "rotary", groups=(1, 1)), "L1H1")[0].word
    turned = next(f for f in others.factors if f.symbol.glyph == "R")
    right = readout_definition(where)
    assert isinstance(right, Word)
    at = Instance(where.architecture, SCORES, 5)
    other = next(f for f in sc.scores(where.architecture, "L1H1")[0].word.factors if f.symbol.glyph == "R")
    assert turned.symbol.label == other.symbol.label == "L1H1"
    assert not np.array_equal(at.rotated("L1H0", at.identity()), at.rotated("L1H1", at.identity()))


def test_a_page_with_rotations_says_what_they_are() -> None:
    derivation = sc.derive(sc.attention_only((2, 2), "rotary"), SCORES, "generic")
    said = flat(derivation)
    for words in (
        "the scores of L1H0 are s (X W_Q^T) R (X W_K^T)^T (rows are queries, columns keys)",
        "R[L1H0] stands between queries and keys, and rotates the rows of both: for query i and key j q R k^T is "
        "q_i R_i R_j^T k_j^T, and R_i R_j^T depends only on j - i.",
        "they are rotated according to their positions, by R between them",
        "(in R one for each token)",
    ):
        assert words in said
    assert "W_QK[" not in said
    assert "only in the patterns" not in said
    assert "rotary positions" in derivation.statement
    assert r"R_{j-i}^{\labelled{L1H0}{h_{2}}}" in derivation.latex()
    assert "ALiBi only in the patterns" in flat(sc.derive(sc.attention_only((1,), "alibi")))


def test_softmax_sees_a_turned_bias() -> None:
    derivation = sc.derive(sc.attention_only((1, 1), "rotary", ["b_K", "b_O"]), SCORES)
    assert not any(softmax_invisible(expr) for _, expr in derivation.frame.terms)
    plain = sc.derive(sc.attention_only((1, 1), "alibi", ["b_K", "b_O"]), SCORES)
    assert any(softmax_invisible(expr) for _, expr in plain.frame.terms)
    assert "Terms marked `*`" in plain.latex() or "Terms marked" in flat(plain)


# ------------------------------------------------------------------------------------------------- ALiBi
@pytest.mark.parametrize("form", FORMS)
def test_the_alibi_term_stands_in_every_step_and_is_counted_in_none(form: str) -> None:
    derivation = sc.derive(sc.attention_only((2, 2), "alibi"), SCORES, form)
    of_scores = [s for s in derivation.steps if any(c.lhs == Target(SCORES) for c in s.claims)]
    for step in of_scores:
        for claim in step.claims:
            for side in claim.sides[1:]:
                assert isinstance(side, Sum)
                assert side.terms[-1] == AlibiTerm("L1H0")
                assert side.terms.count(AlibiTerm("L1H0")) == 1
    assert len(of_scores) > 4
    counted = next(s for s in derivation.steps if s.kind == "counting")
    assert counted.claims[-1].text.endswith("= 9" if form == "enumerated" else "(1 + H_1)^2")
    said = flat(derivation)
    assert "alibi[L1H0] is, for query i and key j, -m |i - j|, with m the slope of the head." in said
    assert "-- not a path term + alibi[L1H0]" in said
    assert "the scores, except for the ALiBi bias, are bilinear" in said
    assert "plus the ALiBi bias, which is not a path term" in derivation.statement
    label = r"\labelled{L1H0}{h_{2}}" if form == "generic" else r"\mathrm{L1H0}"
    assert rf"{{\mathrm{{alibi}}^{{{label}}}}} \quad\text{{not a path term}}" in derivation.latex()


@pytest.mark.parametrize("wrong", ["missing", "twice", "of another head"])
def test_a_wrong_alibi_term_is_seen(wrong: str) -> None:
    where = frame(positions="alibi")
    right = readout_definition(where)
    assert isinstance(right, Sum)
    body, alibi = right.terms
    changed = {"missing": body, "twice": Sum((body, alibi, alibi)), "of another head": Sum((body, AlibiTerm("L1H1")))}
    refused(where, changed[wrong])


def test_the_alibi_term_is_what_the_model_adds() -> None:
    """On a real model: the scores less the sum of the terms are ``-m |i - j|``."""
    run = sc.random_model(sc.attention_only((2, 3), "alibi", True), seed=2).run([3, 1, 4, 1, 5])
    for head in run.model.architecture.all_heads:
        total = sc.evaluate(sc.scores(run.model.architecture, str(head)), run).total()
        slope = alibi_slopes(run.model.architecture.heads[head.layer])[head.number]
        places, allowed = np.arange(5), np.isfinite(run.scores[str(head)])
        alibi = -slope * abs(places[:, None] - places)
        np.testing.assert_allclose((run.scores[str(head)] - total)[allowed], alibi[allowed], atol=1e-12)


def test_the_alibi_term_of_an_instance_has_its_shape() -> None:
    at = Instance(sc.attention_only((1, 1), "alibi"), SCORES, 4, trials=1)
    found = at.value(AlibiTerm("L1H0"))[0].astype(object)
    slope = -found[0, 1] % at.ring.p
    assert slope
    assert all(found[i, j] == -slope * abs(i - j) % at.ring.p for i in range(4) for j in range(4))
    assert expr_latex(AlibiTerm("L1H0")) == r"{\mathrm{alibi}^{\mathrm{L1H0}}}"


def test_a_notebook_shows_the_alibi_term() -> None:
    expansion = sc.scores(sc.attention_only((1, 1), "alibi"), "L1H0")
    assert r"\text{not a path term}" in expansion.latex()
    for other in (
        expansion.where("K"),
        sc.logits(expansion.architecture),
        sc.scores(sc.attention_only((1, 1)), "L1H0"),
    ):
        assert "not a path term" not in other.latex()


# --------------------------------------------------------------------------------------- normed queries and keys
@pytest.mark.parametrize("glyph", ["D", "gain"])
def test_a_norm_that_is_missing_is_seen(glyph: str) -> None:
    where = frame(qk_norm=True)
    right = readout_definition(where)
    assert isinstance(right, Word)
    texts = [f.text for f in right.factors]
    assert [t for t in texts if t[0] in "Dg"] == ["D[QL1H0]", "gain[Q1]", "gain[K1]", "D[KL1H0]"]
    kept = Word(tuple(f for f in right.factors if f.symbol.glyph != glyph), right.scales)
    with pytest.raises(IllTyped, match="Rule 2"):  # as a term; as a product it is well typed
        check_finished(Word(tuple(f for f in sc.scores(where.architecture, "L1H0")[0].word.factors
                                  if f.symbol.glyph != glyph), right.scales))  # fmt: skip
    refused(where, kept)
    biased = frame(qk_norm=True, biases=["b_Q", "b_K"])
    defined = readout_definition(biased)
    assert isinstance(defined, Product)
    if glyph == "D":
        refused(biased, Product(defined.factors[1:], defined.scales))


def test_a_page_with_normed_queries_says_what_the_letters_are() -> None:
    arch = sc.attention_only((2, 2), qk_norm=True, groups=(1, 1))
    derivation = sc.derive(arch, "scores:L1H1")
    said = flat(derivation)
    for words in (
        "D[QL1H1] and D[KL1G0] are diagonal: for each token 1/sqrt(v + eps), with v the mean square of its query",
        "gain[Q1] and gain[K1] are the gains of their layer",
        "the scale of every query and key (D)",
        "they go through norms of their own",
        "(those of norms symmetric)",
    ):
        assert words in said, words
    assert "normed queries and keys" in derivation.statement
    assert "D[Q" not in flat(sc.derive(arch))
