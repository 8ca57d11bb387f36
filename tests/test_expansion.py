"""Expansions against a plain enumeration from the definition: terms, order, numbers, selections; and bad input."""

import json
import pathlib
import pickle
import random
import tracemalloc
from collections import Counter, deque
from functools import reduce
from itertools import islice, pairwise
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    Row,
    Selection,
    all_targets,
    architectures,
    cases,
    examples,
    oracle,
    selections,
    targets,
    term_count,
    unseen_by_softmax,
)

import symcircuits as sc
from symcircuits.core.architecture import Architecture, Head, attention_only
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.expansion import Expansion, Term, composition_of, expand, logits, scores, stream
from symcircuits.core.paths import Path
from symcircuits.core.sequence import MAX_LISTED, TermSequence
from symcircuits.core.words import is_multiplier
from symcircuits.model import random_model
from symcircuits.values.evaluate import evaluate

TWELVE = attention_only((12,) * 12)
PATHS_OF_TWELVE = 23_298_085_122_481  # 13^12


def held_to(e: Expansion, rows: list[Row]) -> None:
    """Everything that an expansion says is what the oracle's rows say."""
    terms = list(e)
    assert Counter(t.text for t in terms) == Counter(r.text for r in rows)
    assert [t.text for t in terms] == [r.text for r in rows]
    assert [t.label for t in terms] == [r.label for r in rows]
    assert e.count == len(e) == len(rows)
    assert bool(e) == bool(rows)
    by_order = Counter(sum(r.orders) for r in rows)
    assert list(e.counts_by_order().items()) == sorted(by_order.items())
    assert list(e.counts_by_orders().items()) == sorted(Counter(r.orders for r in rows).items())
    by_composition = Counter(r.composition for r in rows)
    assert e.counts_by_composition() == by_composition
    assert list(e.counts_by_composition()) == [c for c in ("none", "V", "Q", "K", "QK") if c in by_composition]
    assert [e[i] for i in range(len(rows))] == terms
    assert [e.index(t) for t in terms] == list(range(len(rows)))


# --------------------------------------------------------------------------------------- the whole expansion
@examples(100)
@given(cases(max_terms=300))
def test_every_term_is_the_oracle_s(case: tuple[Architecture, str]) -> None:
    arch, target = case
    held_to(expand(arch, target), oracle(arch, target))


@examples(20)
@given(cases(max_terms=2000))
def test_terms_in_order_up_to_two_thousand(case: tuple[Architecture, str]) -> None:
    arch, target = case
    e, rows = expand(arch, target), oracle(arch, target)
    assert [t.text for t in e] == [r.text for r in rows]
    assert e.count == len(rows)


@given(cases(max_terms=150))
def test_a_term_says_what_the_oracle_says(case: tuple[Architecture, str]) -> None:
    arch, target = case
    for term, row in zip(expand(arch, target), oracle(arch, target), strict=True):
        assert term.orders == row.orders
        assert term.order == sum(row.orders)
        assert term.composition == row.composition
        assert term.sources == tuple(r.source for r in row.routes)
        assert term.heads == tuple(r.heads for r in row.routes)
        assert term.softmax_invisible == (target.startswith("scores") and unseen_by_softmax(row, arch))
        scaled = any(not is_multiplier(s) for s in term.word.scales)
        assert (term.word.text, scaled) == (row.text, target.startswith("scores") and arch.scale)
        whole = f"<Term {row.label} ({row.composition}): {row.text}>"
        assert repr(term) == (whole if len(row.text) <= 200 else f"<Term {row.label}>")


@given(st.data(), architectures(max_layers=12, max_heads=12, max_terms=None))
def test_counts_of_large_architectures(data: st.DataObject, arch: Architecture) -> None:
    target = data.draw(targets(arch, None))
    e, count = expand(arch, target), term_count(arch, target)
    assert e.count == count
    for found in (e.counts_by_order(), e.counts_by_orders(), e.counts_by_composition()):
        assert sum(found.values()) == count
        assert all(found.values())
    assert sum(e.order(k).count for k in e.counts_by_order()) == count
    assert [e.order(k).count for k in e.counts_by_order()] == list(e.counts_by_order().values())
    assert {c: e.where(composition=c).count for c in e.counts_by_composition()} == e.counts_by_composition()


@given(st.lists(st.integers(0, 12), max_size=12))
def test_logits_by_order_are_elementary_symmetric_polynomials(heads: list[int]) -> None:
    polynomial = reduce(lambda p, h: [a + h * b for a, b in zip([*p, 0], [0, *p], strict=True)], heads, [1])
    found = logits(attention_only(heads)).counts_by_order()
    assert found == {k: n for k, n in enumerate(polynomial) if n}
    assert sum(found.values()) == prod(1 + h for h in heads)


# ------------------------------------------------------------------------------------------------ selections
@examples(150)
@given(st.data(), cases(max_terms=150))
def test_selections_filter_the_oracle(data: st.DataObject, case: tuple[Architecture, str]) -> None:
    arch, target = case
    chosen: list[Selection] = data.draw(st.lists(selections(arch, target), min_size=1, max_size=4))
    every, e = oracle(arch, target), expand(arch, target)
    for s in chosen:
        e = s.select(e)
    kept = [r for r in every if all(s.meets(r) for s in chosen)]
    held_to(e, kept)
    texts = {r.text for r in kept}
    for term in expand(arch, target):
        assert (term in e) == (term.text in texts)
        if term not in e:
            with pytest.raises(ValueError, match="is not in this expansion"):
                e.index(term)


@given(st.data(), cases(max_terms=100))
def test_the_order_of_conditions_does_not_matter(data: st.DataObject, case: tuple[Architecture, str]) -> None:
    chosen = data.draw(st.lists(selections(*case), min_size=2, max_size=3))
    first = reduce(lambda e, s: s.select(e), chosen, expand(*case))
    second = reduce(lambda e, s: s.select(e), chosen[::-1] + chosen, expand(*case))
    assert list(first) == list(second)


@given(cases(max_terms=100))
def test_each_kind_of_selection_splits_the_whole(case: tuple[Architecture, str]) -> None:
    e = expand(*case)
    assert sorted(e.index(t) for k in e.counts_by_order() for t in e.order(k)) == list(range(e.count))
    assert sorted(e.index(t) for c in e.counts_by_composition() for t in e.where(c)) == list(range(e.count))
    for side in ("query", "key") if len(e.sides) == 2 else ("either",):
        own = {t.sources[("either", "query", "key").index(side) - 1 if side != "either" else 0] for t in e}
        assert sum(e.from_source(name, side).count for name in own) == e.count


def test_names_that_select() -> None:
    e = scores(attention_only((2, 2), "standard", True), "L1H0")
    assert e.order(0, 2).count == e.order(0).count + e.order(2).count
    assert e.where(["Q", "K"]).count == e.where("Q").count + e.where(composition="K").count
    for head in ("L0H1", "l0h1", "0.1", (0, 1), Head(0, 1)):
        assert list(e.through(head)) == list(e.through("L0H1"))
    either, both = e.through("L0H1").count, e.through("L0H1", "query").through("L0H1", side="key").count
    assert either == e.through("L0H1", "query").count + e.through("L0H1", "key").count - both
    assert e.from_source("b_V").count == e.from_source(["b_V[L0H0]", "b_V[L0H1]"]).count
    assert " ".join(s.name for s in e.sources) == "embed pos b_V[L0H0] b_V[L0H1] b_O[L0] b_Q[L1H0] b_K[L1H0]"
    assert e.softmax_invisible().count == 40
    assert all(t.softmax_invisible for t in e.softmax_invisible())


def test_counts_are_in_order_whatever_comes_first() -> None:
    arch = attention_only((1, 1), None, True)
    assert list(logits(arch).from_source(["b_V", "b_O"]).counts_by_order().items()) == [(0, 2), (1, 3), (2, 1)]
    e = scores(arch, "L1H0").from_source(["b_V", "b_O"])
    assert list(e.counts_by_orders()) == sorted(e.counts_by_orders())
    assert list(e.counts_by_composition()) == ["none", "Q", "K", "QK"]


def test_empty_selections() -> None:
    e = logits(attention_only((2, 2)))
    two_of_a_layer = e.through("L0H0").through("L0H1")
    for nothing in (e.order(3), e.order(0).where("V"), two_of_a_layer, e.order(1).through("L1H1").order(2)):
        assert (nothing.count, len(nothing), list(nothing), bool(nothing)) == (0, 0, [], False)
        assert nothing.counts_by_order() == nothing.counts_by_composition() == nothing.counts_by_orders() == {}
        assert e[0] not in nothing
        assert nothing[:] == nothing.head() == []
        for i in (0, -1):
            with pytest.raises(IndexError, match="this expansion has 0 term"):
                nothing[i]
    s = scores(attention_only((2, 2, 2)), "L1H0")
    assert s.through("L2H0").count == s.through("L1H1").count == s.softmax_invisible().count == 0
    assert scores(attention_only((0, 2)), "L1H0").where("Q").count == 0


def test_expansions_are_equal_when_target_and_conditions_are() -> None:
    arch, again = attention_only((2, 2)), attention_only((2, 2))
    e = scores(arch, "L1H0").order(1).through("L0H1", "key")
    same = scores(again, (1, 0)).through((0, 1), side="key").order(1).order(1)
    assert e == same
    assert hash(e) == hash(same)
    assert len({e, same, scores(arch, "L1H0")}) == 2
    others = [
        scores(arch, "L1H0"),
        scores(arch, "L1H0").order(1),
        scores(arch, "L1H0").order(1).through("L0H1", "query"),
        scores(arch, "L1H0").order(1).through("L0H1"),
        scores(arch, "L1H0").order(2).through("L0H1", "key"),
        scores(arch, "L1H1").order(1).through("L0H1", "key"),
        scores(attention_only((2, 3)), "L1H0").order(1).through("L0H1", "key"),
        logits(arch).order(1).through("L0H1"),
    ]
    for other in (*others, list(e), "scores:L1H0", None):
        assert e != other
    assert len(set(others)) == len(others)


def test_a_head_or_source_may_be_asked_for_on_each_side_and_twice() -> None:
    """Conditions are met separately: one on the query side is not met by the key side, nor by another condition."""
    e = scores(attention_only((2, 2), "standard"), "L1H0")
    both = e.through("L0H1", "query").through("L0H1", "key")
    assert [t.label for t in both] == [f"{q} -> L0H1 | {k} -> L0H1" for q in ("embed", "pos") for k in ("embed", "pos")]
    assert list(both.through("L0H1")) == list(both.through("L0H1").through("L0H1", "key")) == list(both)
    named = e.from_source("pos", "query").from_source("pos", "key").from_source("pos").order(0)
    assert [t.label for t in named] == ["pos | pos"]
    assert [t.label for t in e.from_source("pos").from_source("embed").order(0)] == ["embed | pos", "pos | embed"]


# -------------------------------------------------------------------------------------------- known answers
def test_two_layers_of_twelve() -> None:
    arch = attention_only((12, 12))
    e = logits(arch)
    assert e.count == 169
    assert e.counts_by_order() == {0: 1, 1: 24, 2: 144}
    assert e.counts_by_composition() == {"none": 25, "V": 144}
    s = scores(arch, "L1H0")
    assert s.count == 169
    assert s.counts_by_composition() == {"none": 1, "Q": 12, "K": 12, "QK": 144}
    assert s.counts_by_orders() == {(0, 0): 1, (0, 1): 12, (1, 0): 12, (1, 1): 144}
    assert s.counts_by_order() == {0: 1, 1: 24, 2: 144}


@pytest.mark.parametrize(
    ("heads", "positions", "biases", "target", "count"),
    [
        ((12, 12), None, False, "logits", 169),
        ((12, 12), None, False, "scores:L1H5", 169),
        ((3, 5), None, False, "logits", 24),
        ((3, 5), None, False, "scores:L1H0", 16),
        ((3, 5), None, False, "scores:L0H0", 1),
        ((3, 3), None, False, "scores:L1H0", 16),
        ((2, 3, 1), None, False, "scores:L2H0", 144),
        ((12, 12), "standard", False, "logits", 338),
        ((12, 12), "standard", False, "scores:L1H0", 676),
        ((12, 12), "shortformer", False, "logits", 169),
        ((12, 12), "shortformer", False, "scores:L1H0", 196),
        ((3, 3), "standard", True, "logits", 53),
        ((3, 3), "standard", True, "stream", 52),
        ((2, 2), "standard", True, "logits", 31),
        ((3, 3), "shortformer", True, "logits", 37),
        ((2, 2), "standard", True, "scores:L1H0", 100),
        ((3, 3), "standard", True, "scores:L1H0", 169),
        ((12, 1), "standard", True, "scores:L1H0", 1600),
        ((3, 3), "shortformer", True, "scores:L1H0", 100),
        ((12,) * 12, None, False, "logits", PATHS_OF_TWELVE),
        ((12,) * 12, None, False, "scores:L11H11", 13**22),
        ((), None, False, "logits", 1),
        ((), None, False, "stream", 1),
        ((), "standard", True, "logits", 3),
        ((0, 0), "standard", False, "logits", 2),
    ],
)
def test_known_counts(heads: tuple[int, ...], positions: Any, biases: bool, target: str, count: int) -> None:
    arch = attention_only(heads, positions, biases)
    assert expand(arch, target).count == term_count(arch, target) == count


def test_twelve_layers_of_twelve_by_order() -> None:
    by_order = logits(TWELVE).counts_by_order()
    assert list(by_order.values())[:4] == [1, 144, 9_504, 380_160]
    assert by_order == {k: comb(12, k) * 12**k for k in range(13)}
    assert scores(TWELVE, "L11H0").counts_by_composition() == {
        "none": 1,
        "Q": 13**11 - 1,
        "K": 13**11 - 1,
        "QK": (13**11 - 1) ** 2,
    }


@pytest.mark.parametrize("n", [2, 3, 12])
def test_with_position_and_biases_by_the_recursion(n: int) -> None:
    arch = attention_only((n,) * 4, "standard", True)
    count = 2
    for layer in range(4):
        assert scores(arch, (layer, 0)).count == (count + 1) ** 2
        count = (1 + n) * count + n + 1
    assert (stream(arch).count, logits(arch).count) == (count, count + 1)
    assert scores(arch, "L1H0").count == (3 * n + 4) ** 2


def test_score_terms_that_softmax_cannot_see() -> None:
    e = scores(attention_only((3, 3), "standard", True), "L1H0")
    assert (e.softmax_invisible().count, e.count) == (65, 169)
    assert {t.paths[1].source.kind for t in e.softmax_invisible()} == {"b_V", "b_O", "b_K"}
    assert e.from_source(["b_V", "b_O", "b_K"], side="key").count == 65


def test_a_path_through_a_bias_inside_a_head() -> None:
    e = logits(attention_only((1, 1), None, True))
    shown = [(t.label, t.order, t.composition, t.text) for t in e.from_source("b_V")]
    assert shown == [
        ("b_V[L0H0] -> L0H0", 1, "none", "A[L0H0] @ ones @ b_V[L0H0].T @ W_O[L0H0].T @ W_U.T"),
        ("b_V[L1H0] -> L1H0", 1, "none", "A[L1H0] @ ones @ b_V[L1H0].T @ W_O[L1H0].T @ W_U.T"),
        (
            "b_V[L0H0] -> L0H0 -> L1H0",
            2,
            "V",
            "A[L1H0] @ A[L0H0] @ ones @ b_V[L0H0].T @ W_O[L0H0].T @ W_OV[L1H0].T @ W_U.T",
        ),
    ]
    assert e.through("L0H0").count + logits(attention_only((0, 1), None, True)).count == e.count


def test_heads_sort_as_numbers() -> None:
    labels = [t.label for t in logits(attention_only((12,))).order(1)]
    assert labels == [f"embed -> L0H{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("orders", "composition"),
    [((0,), "none"), ((1,), "none"), ((2,), "V"), ((3,), "V"),
     ((0, 0), "none"), ((1, 0), "Q"), ((0, 1), "K"), ((2, 0), "Q"), ((0, 3), "K"), ((1, 1), "QK")],
)  # fmt: skip
def test_composition_of(orders: tuple[int, ...], composition: str) -> None:
    assert composition_of(orders) == composition


# ------------------------------------------------------------------------------ numbers at any size, laziness
UNEVEN = attention_only((12, 0, 7, 12, 1, 12, 12, 12, 5, 12, 12, 12), None, ["b_O", "b_V"])
ALL_BIASES = attention_only((12,) * 12, "standard", True)
LARGE = [
    logits(TWELVE),
    logits(ALL_BIASES).order(5).through("L3H7"),
    stream(UNEVEN).where("V").from_source("b_O"),
    scores(TWELVE, "L11H11"),
    scores(attention_only((12,) * 12, "shortformer", True), "L11H3").where("QK").through("L5H1", "key"),
    scores(ALL_BIASES, "L9H0").softmax_invisible().order(6, 7).through((8, 2), "query"),
]


@pytest.mark.parametrize("e", LARGE, ids=lambda e: e.target)
def test_numbers_and_terms_at_any_size(e: Expansion) -> None:
    rng = random.Random(e.count)
    numbers = [0, 1, e.count // 2, e.count - 2, e.count - 1, *(rng.randrange(e.count) for _ in range(15))]
    terms = [e[i] for i in numbers]
    assert [e.index(t) for t in terms] == numbers
    assert [e[i - e.count] for i in numbers[5:10]] == terms[5:10]
    keys = [[(p.order, p.heads, ("embed", "pos", "b_V", "b_O", "b_Q", "b_K", "b_U").index(p.source.kind), p.source.name)
             for p in t.paths] for t in (e[i] for i in sorted(numbers))]  # fmt: skip
    assert all(a < b for a, b in pairwise(keys) if a != b)
    assert [e[i] for i in range(40)] == list(islice(e, 40)) == e.head(40)
    assert len(e.head()) == 10


def test_the_last_of_13_to_the_22() -> None:
    e = scores(TWELVE, "L11H11")
    last = " -> ".join(["embed", *(f"L{layer}H11" for layer in range(11))])
    assert e[-1].label == e[e.count - 1].label == f"{last} | {last}"
    assert e[13**11].label == "embed -> L0H0 | embed"
    assert e[13**11 - 1].label == f"embed | {last}"


@pytest.mark.parametrize("e", [logits(TWELVE), scores(TWELVE, "L11H0")], ids=["logits", "scores"])
def test_iteration_is_lazy(e: Expansion) -> None:
    tracemalloc.start()
    try:
        assert next(iter(e)).order == 0
        start = tracemalloc.get_traced_memory()[0]
        last = deque(islice(e, 1000), maxlen=1)
        peak = tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()
    assert list(last) == [e[999]]
    assert peak < 1_000_000


def test_counting_lists_nothing() -> None:
    """It ends: nobody lists 13^22 terms."""
    assert expand(TWELVE, "logits").count == PATHS_OF_TWELVE
    assert expand(TWELVE, "scores:L11H0").count == 13**22


# -------------------------------------------------------------------------------------------------- slices
@given(st.slices(16))
def test_slices_are_those_of_a_list(s: slice) -> None:
    e = logits(attention_only((3, 3)))
    assert e[s] == list(e)[s]


def test_how_many_terms_can_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_LISTED == 10_000_000
    assert len(logits(attention_only((9,) * 7))) == 10**7
    with pytest.raises(OverflowError, match="10,000,002 terms"):
        len(logits(attention_only((9,) * 7 + (0,), None, ["b_U", "b_O[L7]"])))
    with pytest.raises(OverflowError, match="10,000,001 terms"):
        len(logits(attention_only((9,) * 7, None, ["b_U"])))
    monkeypatch.setattr("symcircuits.core.sequence.MAX_LISTED", 5)
    e = logits(attention_only((3, 3)))
    for s, n in (
        (slice(5), 5),
        (slice(3, 8), 5),
        (slice(None, None, 4), 4),
        (slice(13, 0, -3), 5),
        (slice(-5, None), 5),
    ):
        assert len(e[s]) == n
    for s in (slice(6), slice(None, None, 3), slice(None, None, -3), slice(-6, None)):
        with pytest.raises(OverflowError, match="this slice has too many terms to list; iterate, or select first"):
            e[s]


def test_slices_of_what_is_too_long() -> None:
    e = logits(TWELVE)
    assert [t.label for t in e[-2:]] == [e[-2].label, e[-1].label]
    assert e[:: 10**13] == [e[0], e[10**13], e[2 * 10**13]]
    for s in (slice(None), slice(MAX_LISTED + 1), slice(None, None, -1)):
        with pytest.raises(OverflowError, match="too many terms to list"):
            e[s]


def test_numbers_at_the_ends() -> None:
    e = scores(attention_only((2, 2)), "L1H0")
    assert e[-e.count] == e[0]
    assert e[-1] == e[e.count - 1]
    with pytest.raises(TypeError, match="numbered by whole numbers, not True"):
        e[True]
    assert e.head(0) == []
    for n in (e.count, e.count + 1, 10 * e.count, -e.count - 1, -10 * e.count):
        with pytest.raises(IndexError, match=f"term {n} does not exist: this expansion has 9 terms"):
            e[n]


# ------------------------------------------------------------------------------------------------ bad input
SMALL = attention_only((2, 2), None, ["b_V"])
E, S = logits(SMALL), scores(SMALL, "L1H1")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: E[9.0], TypeError, "terms are numbered by whole numbers, not 9.0"),
        (lambda: E["1"], TypeError, "terms are numbered by whole numbers, not '1'"),
        (lambda: E[E.count], IndexError, r"term 17 does not exist: this expansion has 17 terms$"),
        (lambda: E[-E.count - 1], IndexError, "term -18 does not exist"),
        (lambda: logits(TWELVE)[13**12], IndexError, "has 23,298,085,122,481 term"),
        (lambda: len(logits(TWELVE)), OverflowError, r"23,298,085,122,481 terms are too many to list: use \.count"),
        (lambda: list(logits(TWELVE)), OverflowError, r"too many to list.*e\[i\].*\.order\(2\).*\.total\(\)"),
        (lambda: E.order(-1), ValueError, "an order must be a whole number, 0 or more, not -1"),
        (lambda: E.order(1, 1.0), ValueError, "0 or more, not 1.0"),
        (lambda: E.order("1"), ValueError, "0 or more, not '1'"),
        (lambda: E.order(True), ValueError, "0 or more, not True"),
        (lambda: E.where("Q"), ValueError, "unknown composition 'Q' of logits: choose one of none, V"),
        (lambda: S.where("V"), ValueError, "unknown composition 'V' of scores:L1H1: choose one of none,"),
        (lambda: S.where(["Q", "KQ"]), ValueError, "unknown composition 'KQ' of"),
        (lambda: E.through("L2H0"), ValueError, "there is no head L2H0: the model has 2 layers, counted from 0"),
        (lambda: E.through("L0H2"), ValueError, r"there is no head L0H2: layer 0 has 2 heads, counted from 0"),
        (lambda: E.through("H1"), ValueError, r"'H1' is not the name of a head; write L1H4, 1.4 or \(1, 4\)"),
        (lambda: E.through("L0H0", "query"), ValueError, "side 'query' of logits .*only scores have sides"),
        (lambda: E.from_source("embed", side="key"), ValueError, "side 'key' of logits does not exist"),
        (lambda: S.through("L0H0", "both"), ValueError, 'side \'both\' of scores:L1H1 .*"key" or "either"'),
        (
            lambda: E.from_source("pos"),
            ValueError,
            r"no source 'pos' in logits; the sources are embed, b_V\[",
        ),
        (lambda: E.from_source(["embed", "b_V[L9H9]"]), ValueError, r"no source 'b_V\[L9H9\]'"),
        (lambda: S.from_source("b_V[L1H0]"), ValueError, r"no source 'b_V\[L1H0\]' in scores:L1H1"),
        (lambda: E.from_source([]), ValueError, r"give the name of a source, e\.g\. .*'embed'.*, or several, not \[\]"),
        (lambda: E.from_source(3), ValueError, "give the name of a source, .*, or several, not 3"),
        (lambda: S.where(()), ValueError, r"give a composition type, e\.g\. where.*, or several, not \(\)"),
        (lambda: E.softmax_invisible(), ValueError, "only score terms meet a softmax, those of logits do not"),
        (lambda: E.index("embed"), ValueError, "'embed' is not a term of this expansion"),
        (lambda: E.index(S[0]), ValueError, r"is not a term of this expansion \(logits of attention-only, heads 2,2"),
        (lambda: E.head(-1), ValueError, "n must be a whole number, 0 or more, not -1"),
        (lambda: E.head(2.0), ValueError, "n must be a whole number, 0 or more, not 2.0"),
        (lambda: E.head(True), ValueError, "n must be a whole number, 0 or more, not True"),
        (lambda: expand("logits", "logits"), TypeError, "expand takes an architecture .* not 'logits'"),
        (lambda: expand(SMALL, "score"), ValueError, "unknown target 'score'; the targets are"),
        (lambda: scores(SMALL, "L2H0"), ValueError, "there is no head L2H0"),
        (lambda: logits(attention_only((1,), unembed=False)), ValueError, "no unembedding.*expand the stream"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_foreign_terms_are_refused() -> None:
    for other in (logits(attention_only((2, 2)))[3], stream(SMALL)[0], scores(SMALL, "L1H0")[0], None, 3):
        assert other not in E
        assert other not in S
    one = E[-1]
    source, heads = one.paths[0]
    for wrong in (heads[::-1], heads + heads, (Head(0, 5), heads[1]), (Head(9, 0),)):
        forged = Term(one.readout, (Path(source, wrong),))
        assert forged not in E
        with pytest.raises(ValueError, match="is not in this expansion"):
            E.index(forged)
    for paths in ((), S[0].paths[:1], S[0].paths * 2):
        with pytest.raises(ValueError, match="argument 2 is"):
            Term(S.readout, paths).text  # noqa: B018
    inside = E.from_source("b_V[L1H0]")[0]
    assert Term(E.readout, (Path(inside.paths[0].source, (Head(1, 1),)),)) not in E


def test_shown() -> None:
    assert repr(E.order(1).through("L0H0")) == (
        "<Expansion of logits, order 1, through L0H0: 2 terms (attention-only, heads 2,2, biases)>"
    )
    side = S.from_source("b_V", side="key").order(1, 2)
    assert "from_source b_V[L0H0] or b_V[L0H1] on the key side, order 1 or 2" in repr(side)
    assert repr(logits(TWELVE)).startswith("<Expansion of logits: 23,298,085,122,481 terms (attention-only")
    assert repr(S) == "<Expansion of scores:L1H1: 25 terms (attention-only, heads 2,2, biases)>"
    assert (E.target, E.architecture.heads) == ("logits", (2, 2))


def test_a_term_too_long_to_be_shown_shows_its_path() -> None:
    short, long = logits(TWELVE).order(2)[-1], logits(TWELVE)[-1]
    assert repr(short) == f"<Term embed -> L10H11 -> L11H11 (V): {short.text}>"
    assert repr(long) == f"<Term {long.label}>"
    assert len(long.text) > 200 > len(short.text)


def test_terms_are_values() -> None:
    """Equal, hashable and unchangeable; as there are many of them, without a dictionary."""
    one, again = S[3], scores(attention_only((2, 2), None, ["b_V"]), "L1H1")[3]
    assert one == again
    assert len({one, again, S[4]}) == 2
    with pytest.raises(AttributeError):
        one.paths = S[4].paths  # type: ignore[misc]
    assert not hasattr(one, "__dict__")
    assert not any(hasattr(clause, "__dict__") for clause in S.order(1).clauses)


def test_every_target_of_a_small_architecture() -> None:
    arch = attention_only((2, 1, 2), "standard", True)
    for target in all_targets(arch):
        rows = oracle(arch, target)
        e = expand(arch, target)
        assert [t.text for t in e] == [r.text for r in rows]
        assert e.target == target


@given(cases(max_terms=400), st.data())
def test_through_several_heads_is_through_any_of_them(case: tuple[Architecture, str], data: st.DataObject) -> None:
    arch, target = case
    if not arch.all_heads:
        return
    heads = data.draw(st.lists(st.sampled_from(arch.all_heads), min_size=1, max_size=3))
    chosen = {(h.layer, h.number) for h in heads}
    wanted = [r.label for r in oracle(arch, target) if any(chosen & set(route.heads) for route in r.routes)]
    found = expand(arch, target).through([str(h) for h in heads])
    assert found.count == len(wanted)
    assert [t.label for t in found] == wanted
    assert [found.index(t) for t in found] == list(range(len(wanted)))


def test_softmax_does_not_see_what_is_the_same_for_every_key() -> None:
    """What a term is said to be, beside its value on a run, where biases also go through heads."""
    for arch in (
        attention_only((1, 1, 1), "standard", True),
        attention_only((1, 1, 1), "standard", True, norm="LN"),
        attention_only((1, 1, 1), "rotary", True),
        attention_only((1, 1, 1), None, True, qk_norm=True),
    ):
        run = random_model(arch, d_model=5, d_head=3, seed=3).run([3, 1, 4, 1])
        expansion = scores(arch, "L2H0")
        seen = {True: 0, False: 0}
        for term, value in zip(expansion, evaluate(expansion, run), strict=True):
            constant = bool(np.allclose(value, value[:, :1], rtol=0, atol=1e-12 * np.abs(value).max()))
            assert term.softmax_invisible == constant, term
            assert (term in expansion.softmax_invisible()) == constant
            seen[constant] += 1
        assert seen[False]
        assert bool(seen[True]) == (arch.positions != "rotary" and not arch.qk_norm)


def test_a_term_is_the_same_in_every_notation() -> None:
    """Equal terms print differently; a name that another symbol of the model has is refused, and only such a one."""
    term = logits(attention_only((1,), "standard"))[1]
    other = logits(attention_only((1,), "standard")).written("transformerlens", {"W_OV": "M"})[1]
    assert (term == other, hash(term) == hash(other), term.text == other.text) == (True, True, False)
    with pytest.raises(TypeError):  # by name only, so that terms with fields of their own can be made of it
        Term(term.readout, term.paths, other.notation)  # type: ignore[misc]
    assert Term(term.readout, term.paths, notation=other.notation).text == other.text
    with pytest.raises(ValueError, match="W_OV cannot be printed as 'P': so is P"):
        term.written("row", {"W_OV": "P"})
    assert logits(attention_only((1,)))[1].written("row", {"W_OV": "P"}).text == "A[L0H0] @ X0 @ P[L0H0].T @ W_U.T"


# ------------------------------------------------------------------------------------------ heads in sequence
def test_a_sequence_is_of_neighbours_only() -> None:
    e = logits(attention_only((2, 2, 2)))
    near, far = e.through_sequence("L0H0", "L2H1"), e.through("L0H0").through("L2H1")
    assert [t.label for t in near] == ["embed -> L0H0 -> L2H1"]
    assert far.count == 3
    whole = e.through_sequence("L0H0", "L1H1", (2, 0))
    assert [t.label for t in whole] == ["embed -> L0H0 -> L1H1 -> L2H0"]
    assert str(whole.clauses[0]) == "sequence L0H0 -> L1H1"
    assert "sequence L0H0 -> L1H1, sequence L1H1 -> L2H0" in repr(whole)


def test_a_sequence_of_three_on_a_side_of_scores() -> None:
    e = scores(attention_only((2, 2, 2, 1)), "L3H0")
    found = e.through_sequence("L0H0", "L1H1", "L2H0", side="key")
    assert found.count == 27
    assert all(t.heads[1] == (Head(0, 0), Head(1, 1), Head(2, 0)) for t in found)


@pytest.mark.parametrize("heads", [[], ["L0H0"], ["L1H0", "L0H0"], ["L0H0", "L0H1"], ["L0H0", "L0H0"]])
def test_no_sequence_is_refused(heads: list[str]) -> None:
    with pytest.raises(ValueError, match="two or more heads, each in a later layer"):
        logits(attention_only((2, 2))).through_sequence(*heads)


def test_a_long_sequence_on_either_side_is_refused() -> None:
    with pytest.raises(ValueError, match="needs its side"):
        scores(attention_only((1, 1, 1, 1)), "L3H0").through_sequence("L0H0", "L1H0", "L2H0")


def test_a_sequence_with_nothing_held_fixed_is_refused() -> None:
    e = logits(attention_only((1, 1), softmax=False))
    with pytest.raises(ValueError, match="sequence"):
        e.through_sequence("L0H0", "L1H0").unfrozen()


@pytest.mark.parametrize(
    ("target", "heads", "said"),
    [
        ("scores:L2H0", ("L0H1", "L2H0"), "no path of scores:L2H0 goes through L2H0: .* heads of layers 0 to 1"),
        ("scores:L1H0", ("L0H1", "L1H0"), "no path of scores:L1H0 goes through L1H0: .* heads of layer 0"),
        ("scores:L0H0", ("L0H0", "L1H0"), "no path of scores:L0H0 goes through L0H0: its paths go through no head"),
        ("readout:probe", ("L0H0", "L2H0"), "no path of readout:probe goes through L2H0: .* heads of layers 0 to 1"),
    ],
)
def test_a_sequence_that_no_path_has_is_refused(target: str, heads: tuple[str, ...], said: str) -> None:
    e = expand(attention_only((2, 2, 2)).attached(Reading("probe", 2)), target)
    with pytest.raises(ValueError, match=said):
        e.through_sequence(*heads)


def test_a_sequence_before_the_split_is_refused() -> None:
    e = logits(attention_only((2, 2, 2)).attached(Part("feature", 1)))
    assert e.through_sequence("L1H0", "L2H0").count == 2
    with pytest.raises(ValueError, match="no path of logits goes through L0H0: its paths go through heads of layers 1"):
        e.through_sequence("L0H0", "L1H0")


# ------------------------------------------------------------------------------------------------- nothing in it
NOTHING = {
    "a head that is not earlier": lambda arch: scores(arch, "L1H0").through("L2H0"),
    "more heads than layers": lambda arch: logits(arch).order(9),
    "of the stream": lambda arch: sc.stream(arch).order(9),
    "no head before": lambda arch: scores(arch, "L0H0").where("QK"),
    "two conditions that exclude each other": lambda arch: logits(arch).where("V").order(1),
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("select", NOTHING.values(), ids=NOTHING)
def test_an_empty_expansion_is_zero_or_nothing_everywhere(select: Any, batch: bool, tmp_path: pathlib.Path) -> None:
    arch = sc.transformer((2, 2, 1), norm="LN", mlps=True, biases=True)
    model, tokens = sc.random_model(arch, seed=1), [[1, 2], [2, 1]] if batch else [1, 2, 3]
    e, run = select(arch), model.run(tokens)
    whole = sc.evaluate(expand(arch, e.target), run).total()
    for found in (sc.evaluate(e, run), sc.evaluate(e, run.to(np.zeros(1)))):
        assert found.total().shape == whole.shape
        assert not found.total().any()
        assert found.by_order() == found.by_composition() == {}
        assert list(found) == []
    for rows in (
        sc.evaluate(e, run).measure(),
        sc.evaluate(e, run).blocks(),
        e.blocks(),
        e,
        sc.evaluate(e, run.to(np.zeros(1))).measure(),
    ):
        assert list(rows) == []
    assert (e.count, len(e), e.head(), e[0:3], e.census().count) == (0, 0, [], [], 0)
    assert (e.counts_by_order(), e.counts_by_composition()) == ({}, {})
    for answer in (
        sc.evaluate(e, run).largest(),
        sc.evaluate(e, run).sample(10),
        sc.evaluate(e, model.run(tokens)).summary(),
    ):
        json.dumps(answer.json(), allow_nan=False)
        assert answer.text()
    assert sc.evaluate(e, run).sum_of_squares().value == 0
    assert e.latex()
    assert repr(e)
    for form in ("csv", "jsonl"):
        assert e.export(tmp_path / f"a.{form}").rows == 0
    if e.target == "logits":
        assert list(sc.evaluate(e, run).measure(sc.logit(0))) == []
    if e.readout.bilinear:
        assert list(sc.evaluate(e, run).measure(sc.score_entry(1, 0))) == []
        assert not sc.remove_scores(run, e.target.partition(":")[2], e).distance.any()


@pytest.mark.parametrize("missing", ["marks", "_at", "__iter__", "index"])
def test_a_sequence_without_one_of_its_four_methods_is_not_made(missing: str) -> None:
    methods: dict[str, Any] = {name: lambda self, *_: None for name in ("marks", "_at", "__iter__", "index")}
    whole: Any = type("Whole", (TermSequence,), methods)
    whole()
    del methods[missing]
    half: Any = type("Half", (TermSequence,), methods)
    with pytest.raises(TypeError, match=missing):
        half()


def test_an_expansion_is_the_same_when_it_is_unpacked() -> None:
    e = scores(attention_only((2, 2), "standard"), "L1H0").through("L0H1").written("paper")
    next(e.blocks()).labels()  # something is remembered to print it
    other = pickle.loads(pickle.dumps(e))
    assert other == e
    assert [t.text for t in other] == [t.text for t in e]
    assert (other.count, other.printers) == (e.count, {})


def test_the_bit_of_a_source_marks_its_paths() -> None:
    e = logits(attention_only((2, 1), "standard", True)).through("L0H1")
    for name in ("embed", "pos", "b_V[L0H1]"):
        found, bit = e._marked_by_source(name, 0)
        marked = sum(n for mark, n in found.sides[0].counts.items() if mark.bits & bit)
        assert marked == sum(p.source.name == name for p in e.sides[0].iterate(dict.fromkeys(e.sides[0].counts, 1)))
        assert found.count == sum(t.sources == (name,) for t in e) > 0
