"""The largest terms against brute force: sizes, certificates, sums, squares, budgets; and bounds that must hold."""

import json
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from strategies import cases, examples, selections
from test_attachments import attached, ran, targets

import symcircuits as sc
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.cli.main import main
from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion
from symcircuits.model import Model, Run, random_model
from symcircuits.search.best_first import Search, Tree
from symcircuits.search.bounds import Bounds
from symcircuits.search.largest import Largest
from symcircuits.search.magnitudes import gamma, largest_row_sum, size_and_roundings, spectral
from symcircuits.search.squares import Squares
from symcircuits.search.trees import trees
from symcircuits.values.measure import Measure, kinds_of
from symcircuits.zoo import path
from tests.measures import measure_of

TOKENS: list[Any] = [[1, 2, 3, 4], [0], [[1, 2, 0], [3, 3, 4]]]


@st.composite
def searches(draw: st.DrawFn, max_terms: int = 150) -> tuple[Expansion, Run, Measure]:
    """An expansion, perhaps a selection of it, a run, and what is asked for."""
    arch, target = draw(cases(max_terms=max_terms))
    scale = draw(st.sampled_from([0.5, 1, 2]))
    model = sc.random_model(arch, d_vocab=5, d_model=6, d_head=2, seed=draw(st.integers(0, 99)), weight_scale=scale)
    tokens = draw(st.sampled_from(TOKENS))
    try:
        run = model.run(tokens, draw(st.sampled_from([None, None, "float32"])))
    except ValueError:  # without softmax numbers may grow beyond what there is
        reject()
    if max(float(np.abs(x).max()) for x in run.streams) > 1e30:
        reject()
    e = sc.expand(arch, target)
    for s in draw(st.lists(selections(arch, target), max_size=2)):
        e = s.select(e)
    kind = draw(st.sampled_from(kinds_of(target)))
    row = draw(st.integers(0, 1)) if np.ndim(tokens) == 2 else 0
    return e, run, measure_of(kind, draw(st.integers(0, np.shape(tokens)[-1] - 1)), row=row)


def sizes(found: Largest, run: Run) -> list[float]:
    """The size (with sign, where there is one) of every term, by brute force."""
    asked = found.measure
    out = []
    for value in sc.evaluate(found.expansion, run):
        wide = np.asarray(value, np.float64)
        if asked.kind == "norm":
            out.append(float(np.linalg.norm(wide)))
            continue
        if asked.kind == "masked norm":
            head = found.expansion.readout.head
            assert head is not None
            out.append(float(np.linalg.norm(np.where(run.masks[f"L{head.layer}"], wide, 0))))
            continue
        wide = wide if asked.row is None else wide[asked.row]
        row = wide[asked.position]
        column = asked.key if asked.kind == "score entry" else asked.token
        out.append(float(row[column] - (row[asked.against] if asked.against is not None else 0)))
    return out


def held_to_brute_force(found: Largest, run: Run, k: int) -> None:
    """Everything that an answer says is what the list of all terms says."""
    values = sizes(found, run)
    most = max(map(abs, values), default=0.0)
    tolerance = (1e-10 if run.dtype == np.float64 else 1e-4) * most
    best = sorted(map(abs, values), reverse=True)[:k]
    assert found.exact
    assert found.certain == len(found.terms) == len(best)
    assert np.allclose([t.size for t in found.terms], best, rtol=0, atol=tolerance)
    for one in found.terms:
        value = values[found.expansion.index(one.term)]
        assert abs((one.size if one.value is None else one.value) - value) <= tolerance
    listed = {t.term.label for t in found.terms}
    assert len(listed) == len(found.terms)
    others = [abs(v) for t, v in zip(found.expansion, values, strict=True) if t.label not in listed]
    assert max(others, default=0.0) <= found.bound + found.rounding + tolerance
    assert found.looked + found.excluded == found.expansion.count
    assert found.open == 0
    total = sum(v * v for v in values)
    allowed = 8 * found.squares.error + 100 * tolerance * most + 1e-9 * total
    assert abs(found.squares.value - total) <= allowed
    if found.measure.signed:
        assert abs(found.total - sum(values)) <= 100 * tolerance
        assert abs(found.listed + found.remainder - found.total) <= 100 * tolerance
    else:
        said, sums = (found.total, found.listed, found.remainder), norms_of_sums(found, run)
        assert np.allclose(said, sums, rtol=0, atol=100 * tolerance)


def norms_of_sums(found: Largest, run: Run) -> list[float]:
    """The norms of the sums of all terms, of the listed ones and of the others."""
    head = found.expansion.readout.head
    mask = run.masks[f"L{head.layer}"] if found.measure.kind == "masked norm" and head is not None else True
    values = [np.where(mask, np.asarray(v, np.float64), 0) for v in sc.evaluate(found.expansion, run)]
    listed = {found.expansion.index(t.term) for t in found.terms}
    parts = [
        values,
        [v for i, v in enumerate(values) if i in listed],
        [v for i, v in enumerate(values) if i not in listed],
    ]
    return [float(np.linalg.norm(sum(part))) if part else 0.0 for part in parts]


@examples(120)
@given(searches(), st.integers(0, 12), st.sampled_from([None, None, False]))
def test_the_largest_are_those_of_brute_force(case: Any, k: int, moments: bool | None) -> None:
    e, run, asked = case
    held_to_brute_force(sc.evaluate(e, run).largest(k, asked, moments=moments), run, k)


@examples(40)
@given(st.data(), attached())
def test_sources_and_readouts_of_ones_own(data: st.DataObject, arch: Any) -> None:
    run = ran(arch)
    e = sc.expand(arch, data.draw(st.sampled_from(targets(arch))))
    by = data.draw(st.sampled_from(kinds_of(e.target)[:2]))
    held_to_brute_force(sc.evaluate(e, run).largest(10, measure_of(by)), run, 10)


def model_and_run(heads: tuple[int, ...] = (3, 3, 3), scale: float = 1.0, **features: Any) -> Run:
    arch = sc.transformer(heads, **features)
    return sc.random_model(arch, d_model=10, d_head=3, seed=5, weight_scale=scale).run([1, 2, 3, 4, 5])


# ----------------------------------------------------------------------------------------- bounds hold
def behind(tree: Tree, found: Any, f: int) -> list[float]:
    """The sizes of all terms behind a suffix and a head, by expanding everything."""
    outer, ended = tree.expand(found, f)
    _, _, counts = tree.children(outer)
    return [one.size for one in ended] + [x for g in range(outer.limit) if counts[g] for x in behind(tree, outer, g)]


def check_bounds(tree: Tree, found: Any) -> int:
    """Every bound of every partial path against what is behind it; the number of bounds that were looked at."""
    pairwise, cols, counts = tree.children(found)
    looked = 0
    for f in range(found.limit):
        if not counts[f]:
            continue
        terms = behind(tree, found, f)
        assert len(terms) == counts[f]
        assert max(terms) <= pairwise[f]
        marks = tree.bounds.met(tree.wanted, found.mark)[0]
        if tree.bounds.moments is not None:
            mass, root = tree.bounds.mass(found, f, cols[f], marks)
            total = sum(x * x for x in terms)
            assert abs(mass - total) <= 1e-9 * total
            assert root >= np.sqrt(total)
        looked += 1 + check_bounds(tree, tree.expand(found, f)[0])
    return looked


@examples(60)
@given(searches(60))
def test_no_term_is_larger_than_a_bound_on_it(case: Any) -> None:
    e, run, asked = case
    for tree in trees(asked.on(e, run, one_row=True), e, run, Budget()):
        check_bounds(tree, tree.start()[0])


@pytest.mark.parametrize("by", ["norm", "logit difference"])
@pytest.mark.parametrize("which", ["largest", "moments", "pairwise"])
def test_a_bound_made_too_small_is_seen(monkeypatch: pytest.MonkeyPatch, by: str, which: str) -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture)
    tree = trees(measure_of(by).on(e, run), e, run, Budget())[0]
    assert check_bounds(tree, tree.start()[0]) == 7 * 3 + 9 * 3 - 9 + 3 * 8  # every chain of one to three heads
    if which == "pairwise":
        whole: Callable[..., Any] = Bounds.pairwise
        monkeypatch.setattr(Bounds, "pairwise", lambda *a: (0.3 * whole(*a)[0], whole(*a)[1]))
    else:
        made = getattr(tree.bounds, which)
        for array in made.values():
            array *= 0.3
        tree.bounds._met.clear()
    with pytest.raises(AssertionError):
        check_bounds(tree, tree.start()[0])


@pytest.mark.parametrize("target", ["logits", "scores:L2H1"])
def test_a_search_with_bounds_too_small_differs_from_brute_force(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    run = model_and_run(scale=1.5)
    e = sc.expand(run.model.architecture, target)
    held_to_brute_force(sc.evaluate(e, run).largest(20, sc.norm()), run, 20)
    whole: Callable[..., Any] = Tree.children
    monkeypatch.setattr(Tree, "children", lambda *a: (0.05 * whole(*a)[0], *whole(*a)[1:]))
    with pytest.raises(AssertionError):
        held_to_brute_force(sc.evaluate(e, run).largest(20, sc.norm(), moments=False), run, 20)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_spectral_norms_are_bounded_from_above_and_closely(a: int, b: int, seed: int) -> None:
    matrices = np.random.default_rng(seed).standard_normal((4, a, b)) * 10.0 ** np.arange(-3, 5, 2)[:, None, None]
    exact = np.linalg.norm(matrices, 2, axis=(1, 2))
    assert (spectral(matrices) >= exact).all()
    assert (spectral(matrices) <= 1.02 * exact).all()
    assert (spectral(np.zeros((2, a, b))) == 0).all()


def test_how_large_a_factor_is_and_how_often_it_rounds() -> None:
    """A diagonal matrix multiplies every number once; centring adds up a row, and subtracts."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((4, 7))
    size, roundings = size_and_roundings(matrix)
    assert size >= np.linalg.norm(np.abs(matrix), 2)
    assert roundings >= 7
    assert size_and_roundings(Diagonal(np.array([1.0, -3.0, 2.0]))) == (3.0, 1)
    centred, roundings = size_and_roundings(Centring(9))
    assert centred >= np.linalg.norm(np.abs(np.eye(9) - 1 / 9), 2)
    assert roundings >= 9 + 1
    rows = rng.standard_normal((2, 3, 5))
    assert np.abs(rows).sum(-1).max() <= largest_row_sum(rows) <= np.abs(rows).sum(-1).max() * (1 + 1e-14)


@pytest.mark.parametrize("side", ["query", "key"])
def test_pairs_of_a_selection_on_one_side(side: str) -> None:
    run = model_and_run()
    e = sc.scores(run.model.architecture, "L2H1")
    sequence = e.through_sequence("L0H0", "L1H1", side=side)
    composed = e.where("Q" if side == "query" else "K")
    for chosen in (e.through("L0H1", side), e.order(0, 1).through("L1H2", side), sequence, composed):
        assert chosen.count
        for by in ("norm", "score entry"):
            held_to_brute_force(sc.evaluate(chosen, run).largest(6, measure_of(by)), run, 6)


def test_rounding_grows_with_the_number_of_roundings() -> None:
    assert gamma(0) == 0
    assert gamma(1) == pytest.approx(np.finfo(np.float64).eps / 2, rel=1e-12, abs=0)
    assert gamma(100) > 100 * gamma(1)


def test_values_are_right_to_the_rounding_that_is_said() -> None:
    """Against arithmetic with more digits: the error that a search states is no smaller than the real one."""
    arch = sc.attention_only((2, 2, 2, 2), norm="LN", biases=True)
    run = sc.random_model(arch, d_model=24, d_head=6, seed=3, weight_scale=2.0).run([1, 2, 3, 4, 5, 6])
    e = sc.logits(arch)
    found = sc.evaluate(e, run).largest(30, sc.logit())
    exact = {name: np.asarray(run.arrays[name], np.longdouble) for name in run.arrays if name not in ("t", "C")}
    exact["C"] = np.eye(24, dtype=np.longdouble) - np.longdouble(1) / 24
    exact |= {n: np.diag(exact[n]) for n in exact if n.startswith("gain_")}
    for one in found.terms:
        value: Any = None
        for f in one.term.word.fused:
            names = list(f.symbol.parts) if f.symbol.parts and f.symbol.argument not in exact else []
            parts = [exact[p.symbol.argument].T if p.transposed else exact[p.symbol.argument] for p in names]
            matrix = parts[0] @ parts[1] if parts else exact[f.symbol.argument]
            matrix = matrix[:, None] if matrix.ndim == 1 else matrix
            matrix = matrix.T if f.transposed else matrix
            value = matrix if value is None else value @ matrix
        assert one.value is not None
        assert abs(float(value[-1, found.measure.token] - np.longdouble(one.value))) <= found.rounding
    assert 0 < found.rounding < 1e-9 * found.terms[0].size


# ------------------------------------------------------------------------------------------- a real model
def test_the_model_that_comes_along() -> None:
    model = sc.load(path())
    run = model.run([0, 7, 19, 3, 11, 26, 7, 19, 3, 11])
    e = sc.logits(model.architecture)
    for by in kinds_of("logits"):
        held_to_brute_force(sc.evaluate(e, run).largest(5, measure_of(by)), run, 5)
    for by in kinds_of("scores"):
        held_to_brute_force(sc.evaluate(sc.scores(model.architecture, "L1H0"), run).largest(7, measure_of(by)), run, 7)


@pytest.mark.parametrize("features", [{}, {"norm": "LN", "biases": True}, {"positions": "rotary"}])
@pytest.mark.sampled(2)
def test_thousands_of_terms(features: dict[str, Any]) -> None:
    run = model_and_run((5, 5, 5, 5), **features)
    e = sc.logits(run.model.architecture)
    held_to_brute_force(sc.evaluate(e, run).largest(100, sc.logit(against="second")), run, 100)
    s = sc.scores(run.model.architecture, "L2H3")
    for measure in (sc.score_entry(), sc.norm(), sc.norm(masked=True)):
        held_to_brute_force(sc.evaluate(s, run).largest(50, measure), run, 50)


# ----------------------------------------------------------------------------------------------- budgets
@pytest.mark.parametrize(
    "budget",
    [{"max_expansions": 3}, {"max_expansions": 0}, {"max_seconds": 0}, {"max_memory": 1}, {"max_expansions": 20}],
)
@pytest.mark.parametrize("target", ["logits", "scores:L3H0"])
def test_a_search_that_ends_early_says_what_it_has_proved(budget: dict[str, Any], target: str) -> None:
    run = model_and_run((4, 4, 4, 4), scale=2.0)
    e = sc.expand(run.model.architecture, target)
    found = sc.evaluate(e, run).largest(10, sc.norm(), **budget)
    assert not found.exact
    assert found.reached
    values = sorted((abs(v) for v in sizes(found, run)), reverse=True)
    assert found.looked + found.excluded + found.open == e.count
    assert found.open > 0
    assert [t.size for t in found.terms[: found.certain]] == pytest.approx(values[: found.certain])
    listed = {t.term.label for t in found.terms}
    others = [abs(v) for t, v in zip(e, sizes(found, run), strict=True) if t.label not in listed]
    assert max(others) <= found.bound
    # What was looked at and is larger is listed: the larger ones that are not are still open.
    least = found.terms[-1].size if len(found.terms) == 10 else -1.0
    seen = 0 if len(found.terms) == 10 else found.looked - len(found.terms)
    assert sum(v > least * (1 + 1e-9) for v in others) <= found.open + seen
    assert f"the search ended at {found.reached}" in " ".join(found.text().split())


def test_none_and_one_are_said_as_such() -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture)
    assert "- proved: this is the largest; no other of the" in sc.evaluate(e, run).largest(1).text()
    assert "- nothing is proved: no terms were requested" in sc.evaluate(e, run).largest(0).text()
    said = sc.evaluate(e, run).largest(5, max_memory=0).text()
    assert "the search ended at max_memory (0 bytes)" in said


@pytest.mark.parametrize("max_memory", [2**20, 2**18, 2**16, 2**14])
def test_second_moments_stay_within_the_memory(max_memory: int) -> None:
    run = model_and_run((3, 3, 3, 3))
    e = sc.logits(run.model.architecture)
    asked = sc.norm()
    made = []
    for chosen in (e, e.order(1, 2, 3), e.order(2).through("L1H0"), e.through_sequence("L0H0", "L1H1").where("V")):
        held = trees(asked, chosen, run, Budget(max_memory=max_memory))[0].bounds.moments
        made.append(held is not None)
        assert sum(a.nbytes for a in (held or {}).values()) <= max_memory
    assert all(made) or max_memory < 2**20
    assert any(made) == (max_memory > 2**14)


@pytest.mark.parametrize("heads", [(6, 6, 6, 6), (8, 8, 8, 8, 8)], ids=str)
@pytest.mark.parametrize("by", ["norm", "logit"])
@pytest.mark.sampled(2)
def test_a_search_counts_the_memory_that_it_takes(heads: tuple[int, ...], by: str) -> None:
    """What it counts is no less than what Python allocates for it, and no more than two and a half times that."""
    run = model_and_run(heads)
    e = sc.logits(run.model.architecture)
    budget = Budget(max_expansions=300)
    tree = trees(measure_of(by).on(e, run), e, run, budget)[0]
    made = tree.bytes
    assert made >= sum(a.nbytes for a in (tree.net.patterns, tree.net.reads, tree.net.writes, tree.values))
    search = Search(tree)
    assert budget.bytes == made
    tracemalloc.start()
    try:
        while search.next() is not None:
            pass
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= budget.bytes - made <= 2.5 * taken


@pytest.mark.parametrize("by", ["norm", "logit difference"])
def test_no_row_of_a_source_is_larger_than_is_said(by: str) -> None:
    """By the largest row of what it starts from the rounding error of a term is bounded."""
    run = model_and_run(positions="standard", biases=True, scale=3.0)
    e = sc.logits(run.model.architecture)
    tree = trees(measure_of(by).on(e, run), e, run, Budget())[0]
    rows = np.linalg.norm(tree.values, axis=-1).reshape(len(tree.values), -1).max(1)
    assert (rows <= tree.most).all()
    assert (tree.most <= rows * (1 + 1e-9)).all()


def test_both_sides_of_scores_are_taken_from() -> None:
    """Of 13^20 pairs some are found and some are certain after a few hundred partial paths."""
    run = sc.random_model(sc.attention_only((12,) * 11), d_model=24, d_head=4, seed=1, weight_scale=0.5).run(
        [1, 2, 3, 4]
    )
    found = sc.evaluate(sc.scores(run.model.architecture, "L10H3"), run).largest(
        20, sc.score_entry(), max_expansions=400
    )
    assert len(found.terms) == 20
    assert found.certain > 0
    assert {bool(t.term.heads[0]) for t in found.terms} == {bool(t.term.heads[1]) for t in found.terms} == {False, True}


def test_bounds_by_second_moments_save_work() -> None:
    """They are the sharper ones: where they are known fewer partial paths are expanded for the same answer."""
    for scale in (1.0, 2.0):
        run = model_and_run((4, 4, 4, 4), scale=scale)
        values = sc.evaluate(sc.logits(run.model.architecture), run)
        for by in (sc.norm(), sc.logit(1)):
            with_them, without = (values.largest(20, by, moments=moments) for moments in (None, False))
            assert [t.term for t in with_them.terms] == [t.term for t in without.terms]
            assert with_them.expansions < 0.7 * without.expansions


def test_progress_is_told() -> None:
    run = model_and_run((4, 4, 4))
    for most in (None, 1000):
        told: list[tuple[str, int, int]] = []
        found = sc.evaluate(sc.logits(run.model.architecture), run).largest(
            120, max_expansions=most, progress=lambda *said, told=told: told.append(said)
        )
        assert told[0] == ("partial paths", 0, most or 0)
        assert ("partial paths", found.expansions // 50 * 50, most or 0) in told


def test_more_expansions_prove_more() -> None:
    run = model_and_run((6, 6, 6), scale=1.5)
    e = sc.logits(run.model.architecture)
    answers = [sc.evaluate(e, run).largest(30, max_expansions=n) for n in (1, 5, 20, 60, 400)]
    assert [a.certain for a in answers] == sorted(a.certain for a in answers)
    assert [a.bound for a in answers] == sorted((a.bound for a in answers), reverse=True)
    assert answers[-1].exact
    assert not answers[0].exact


def test_many_equal_terms_and_terms_that_are_zero() -> None:
    """Heads that write nothing: all terms through them are 0, and as many as are asked for are given."""
    arch = sc.attention_only((2, 2))
    model = sc.random_model(arch, seed=2)
    weights = {n: np.zeros_like(w) if n.startswith("W_O") else w for n, w in model.weights.items()}
    run = sc.Model(arch, weights, model.score_scale).run([1, 2, 3])
    found = sc.evaluate(sc.logits(arch), run).largest(4, sc.logit())
    assert [t.size > 0 for t in found.terms] == [True, False, False, False]
    assert found.exact
    held_to_brute_force(found, run, 4)


def test_an_empty_selection_has_nothing_to_list() -> None:
    run = model_and_run()
    e = sc.logits(run.model.architecture).order(1).order(2)
    found = sc.evaluate(e, run).largest(4)
    assert (found.terms, found.exact, found.share, found.excluded) == ((), True, None, 0)
    assert "there are no terms" in found.text()


# ------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"by": sc.score_entry()}, "measured by"),
        ({"by": sc.norm(masked=True)}, "measured by"),
        ({"k": -1}, "k must be a whole number"),
        ({"k": 1.5}, "k must be a whole number"),
        ({"max_expansions": -1}, "max_expansions"),
        ({"max_seconds": -1}, "max_seconds"),
        ({"max_seconds": float("nan")}, "max_seconds"),
        ({"max_memory": "much"}, "max_memory"),
        ({"by": sc.logit(99)}, "token 99 does not exist"),
        ({"by": sc.logit(-1)}, "token -1 does not exist"),
        ({"by": sc.logit(against=-1)}, "the token against -1 does not exist"),
        ({"by": sc.logit(3, against=3)}, "is 0; choose two"),
        ({"by": sc.logit(position=5)}, "position 5 does not exist"),
        ({"by": sc.logit(row=1)}, "row 1 does not exist"),
    ],
)
def test_what_does_not_exist_is_refused(asked: dict[str, Any], said: str) -> None:
    run = model_and_run()
    with pytest.raises(ValueError, match=said):
        sc.evaluate(sc.logits(run.model.architecture), run).largest(**asked)


def test_a_key_that_is_masked_and_another_model_are_refused() -> None:
    run = model_and_run()
    with pytest.raises(ValueError, match="query 1 does not see key 3"):
        sc.evaluate(sc.scores(run.model.architecture, "L1H0"), run).largest(by=sc.score_entry(1, 3))
    with pytest.raises(ValueError, match="this expansion is of"):
        sc.evaluate(sc.logits(sc.attention_only((2,))), run).largest()
    with pytest.raises(TypeError, match="by must be a measure"):
        sc.evaluate(sc.logits(run.model.architecture), run).largest(by="norm")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a run"):
        sc.evaluate(sc.logits(run.model.architecture), run.model).largest()  # type: ignore[arg-type]


def test_terms_of_very_different_sizes() -> None:
    """Without softmax terms may be 10^90 times as large as others: no warning, and the same as brute force."""
    arch = sc.attention_only((1,) * 4, scale=False, causal=False, unembed=False, softmax=False)
    run, huge = (
        sc.random_model(arch, d_vocab=5, d_model=6, d_head=2, seed=8, weight_scale=w).run([1, 2, 3, 4]) for w in (2, 12)
    )
    found = sc.evaluate(sc.stream(arch), run).largest(3)
    assert [t.size for t in found.terms] == pytest.approx(sorted(sizes(found, run), reverse=True)[:3])
    assert found.exact
    with pytest.raises(ValueError, match="leave the range of float64"):
        sc.evaluate(sc.stream(arch), huge).largest(3)


def test_squares_that_are_no_number_are_said_to_be_none() -> None:
    run = model_and_run()
    found = replace(
        sc.evaluate(sc.logits(run.model.architecture), run).largest(3), squares=Squares(np.inf, 0.0, True, "")
    )
    assert found.share is None
    assert "the sum of the squares of all terms overflows float64" in " ".join(found.text().split())
    assert json.loads(json.dumps(found.json(), allow_nan=False))["squares"]["value"] is None


@pytest.mark.parametrize("factor", [1e100, 1e200, 1e-200])
def test_numbers_whose_squares_are_none_are_refused(factor: float) -> None:
    arch = sc.attention_only((2, 2))
    model = sc.random_model(arch)
    weights = {n: w * factor if n == "W_U" else w for n, w in model.weights.items()}
    run = sc.Model(arch, weights, model.score_scale).run([1, 2, 3])
    with pytest.raises(ValueError, match="leave the range of float64"):
        sc.evaluate(sc.logits(arch), run).largest()


def test_terms_with_nothing_held_fixed_are_not_searched() -> None:
    arch = sc.attention_only((1,), softmax=False)
    run = sc.random_model(arch).run([1, 2])
    values: Any = sc.evaluate(sc.logits(arch).unfrozen(), run)
    for name in ("largest", "sum_of_squares", "sample", "summary", "measure", "blocks", "by_order"):
        with pytest.raises(AttributeError, match=f"{name} needs terms with patterns held fixed"):
            getattr(values, name)
    assert not hasattr(values, "by_degrees")


def test_one_output_token_has_no_difference() -> None:
    run = sc.random_model(sc.attention_only((1,)), d_vocab_out=1).run([1, 2])
    with pytest.raises(ValueError, match="one output token"):
        sc.evaluate(sc.logits(run.model.architecture), run).largest(by=sc.logit(against="second"))


# --------------------------------------------------------------------------------------- words and command
def test_the_certificate_says_that_a_random_model_has_no_large_terms() -> None:
    run = model_and_run((8, 8, 8, 8), scale=2.0)
    found = sc.evaluate(sc.logits(run.model.architecture), run).largest(3, sc.logit(against="second"))
    said = " ".join(found.text().split())
    assert found.share is not None
    assert found.share < 0.1
    assert "almost nothing. The weight is spread over very many terms" in said
    assert "proved: these are the 3 largest; no other of the 6,561 terms is larger than" in said
    for width in (60, 100):
        assert max(map(len, found.text(width).split("\n"))) <= width


def test_estimated_squares_are_said_to_be_estimated() -> None:
    run = model_and_run((3, 3))
    found = sc.evaluate(sc.logits(run.model.architecture), run).largest(3, moments=False)
    assert re.search(r"which is estimated, as \S+ \+- \S+", " ".join(found.text().split()))


def test_the_command_with_a_readout(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    model = sc.load(path())
    probe = tmp_path / "probe.npy"
    np.save(probe, model.weights["W_U"][[26, 3]])
    words = ["--tokens", "0,7,19,3,11,26,7,19,3,11", "--readout", str(probe), "--by", "direction difference"]
    code, out, _ = command(capsys, str(path()), *words, "--token", "0", "--top", "2")
    assert code == 0
    assert "largest terms of readout:probe, by part in what directions 0 - 1 read at position 9" in " ".join(
        out.split()
    )
    assert "embed -> L1H2" in out


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code: Any = main(["largest", *words])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["--tokens", "0,7,19,3,11,26,7,19,3,11"]
    code, out, _ = command(capsys, str(path()), *tokens, "--by", "logit-difference", "--top", "3")
    assert code == 0
    assert "- proved: these are the 3 largest; no other of the 16 terms" in out
    code, out, _ = command(
        capsys, str(path()), *tokens, "--target", "scores:L1H0", "--by", "score entry", "--position", "9", "--key", "6",
        "--through", "L1H0", "--json",
    )  # fmt: skip
    assert (code, '"count": 0' in out) == (0, True)
    code, out, _ = command(
        capsys,
        str(path()),
        *tokens,
        "--through",
        "L0H2",
        "--order",
        "2",
        "--from-source",
        "embed",
        "--max-expansions",
        "0",
    )
    assert code == 3
    assert "the search ended at --max-expansions (0)" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --tokens"),
        (["--tokens", "1", "--order", "x"], "--order 'x'"),
        (["--tokens", "1", "--max-memory", "all"], "--max-memory"),
        (["--tokens", "1", "--sequence", "L0H0"], "two or more heads"),
        (["--tokens", "1", "--through", "L9H0"], "L9H0"),
        (["--tokens", "1", "--top", "-2"], "--top: must be"),
        (["--tokens", "1", "--token", "3"], "--token has no effect without --by: give --by MEASURE too"),
        (["--tokens", "1", "--by", "norm", "--token", "3"], "--token has no effect with --by 'norm'"),
        (["--tokens", "1", "--by", "logit", "--against", "3"], "--against has no effect with --by 'logit'"),
    ],
)
def test_the_command_refuses(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = command(capsys, str(path()), *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_search_that_was_ended_proves_nothing_by_rounding_alone() -> None:
    """Where rounding is larger than terms, a budget that is up has left larger ones unseen: that is no proof."""
    arch = sc.transformer((2, 1, 2, 1), mlps=True, gated=True, softmax=False)
    proved = 0
    for seed in range(60):
        model = random_model(arch, d_model=1, d_head=1, d_vocab=5, seed=seed, weight_scale=2.0)
        try:
            values = sc.evaluate(sc.logits(arch), model.run([0, 1, 2]))
            found = [values.largest(3, sc.logit(0, position=2), max_expansions=n) for n in (1, 2, 3, 5, 1000)]
        except ValueError as fault:
            assert "the range of float64" in str(fault)  # noqa: PT017
            continue
        sizes = sorted((abs(float(value[2, 0])) for value in values), reverse=True)[:3]
        for each in found:
            if each.exact:
                proved += 1
                assert [t.size for t in each.terms] == pytest.approx(sizes, rel=1e-6)
    assert proved


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
def test_signs_add_what_the_readout_adds(norm: Any) -> None:
    """More outputs than d_model, and a bias of the unembedding or the final norm: signed sums have all columns."""
    arch = sc.transformer((2, 2), norm=norm, biases=True, mlps=norm is not None)
    for sizes in ({"d_model": 4, "d_head": 2}, {"d_model": 1, "d_head": 1}):
        model = random_model(arch, d_vocab=5, d_vocab_out=9, seed=1, **sizes)
        if norm:
            model = model.with_(sc.readout(np.random.default_rng(0).normal(size=(7, sizes["d_model"])), normed=True))
        run = model.run([0, 1, 2])
        for target in ("logits", *(f"readout:{r.name}" for r in model.architecture.readings)):
            values = sc.evaluate(sc.expand(model.architecture, target), run)
            exact, drawn = values.sum_of_squares(), values.sum_of_squares(max_memory=0, samples=3000)
            assert exact.exact
            assert not drawn.exact
            assert abs(drawn.value - exact.value) < 6 * drawn.error + 1e-12 * exact.value
            assert values.largest(1, moments=False).exact


def test_by_a_centred_logit_against_brute_force_and_in_another_writing_of_the_model() -> None:
    run = model_and_run()
    weights = dict(run.model.weights)
    weights["W_U"] = weights["W_U"] + 3 * np.random.default_rng(5).standard_normal(run.model.d_model)
    other = replace(run.model, weights=weights).run(run.tokens)
    by, found = sc.logit(2, against="mean"), []
    for one in (run, other):
        values = sc.evaluate(sc.logits(one.model.architecture), one)
        brute = [float(value[-1, 2] - value[-1].mean()) for value in values]
        [block] = values.measure(by)
        np.testing.assert_allclose(block.values, brute, atol=1e-12)
        best = values.largest(5, by)
        assert best.exact
        np.testing.assert_allclose([t.size for t in best.terms], sorted(map(abs, brute), reverse=True)[:5])
        assert str(best.measure) == f"part in logit[2] less the mean of all logits at position {len(one.tokens) - 1}"
        assert values.sum_of_squares(by).value == pytest.approx(sum(x * x for x in brute))
        assert values.sample(50, by).bound >= sum(map(abs, brute)) - 1e-9
        assert [i for i, _ in values.summary(by, top=5).largest] == [values.expansion.index(t.term) for t in best.terms]
        found.append(best)
        assert "depends" not in best.text()
        assert "which does not affect probabilities" in values.largest(5, sc.logit(2)).text()
    assert [t.term.label for t in found[0].terms] == [t.term.label for t in found[1].terms]


# ---------------------------------------------------------------------------- what is ranked where nothing is asked for
def with_positions(**features: Any) -> Model:
    arch = sc.transformer((2, 2), positions="standard", **features)
    return sc.random_model(arch, d_vocab=9, d_model=8, d_head=4, seed=3)


def rewritten(model: Model) -> Model:
    """The same model: a vector from every token embedding to every position, another one on every row of W_U."""
    draws, weights = np.random.default_rng(2), dict(model.weights)
    u, v = draws.standard_normal((2, model.d_model))
    weights["W_E"] = weights["W_E"] + 5 * u[:, None] / model.multipliers.get("m_E", 1.0)
    weights["W_pos"] = weights["W_pos"] - 5 * u
    weights["W_U"] = weights["W_U"] + 5 * v
    return replace(model, weights=weights)


def paired(values: Any) -> dict[str, float]:
    """By brute force, the part in the chosen logit less the mean of all, of the terms through the same heads."""
    token, found = int(np.argmax(values.run.logits[-1])), dict[str, float]()
    for term in values.expansion:
        value = values.value(term)[-1]
        source, *heads = term.label.split(" -> ")
        name = "embed + pos" if source in ("embed", "pos") else source
        label = " -> ".join([name, *heads])
        found[label] = found.get(label, 0.0) + float(value[token] - value.mean())
    return found


@pytest.mark.parametrize("features", [{}, {"biases": True}, {"norm": "RMS", "mlps": True}, {"multipliers": ["m_E"]}])
def test_the_default_ranking_stays_however_the_model_is_written(features: dict[str, Any]) -> None:
    listed = []
    for model in (with_positions(**features), rewritten(with_positions(**features))):
        run = model.run([4, 1, 7, 2])
        values = sc.evaluate(sc.logits(model), run)
        brute = paired(values)
        best = values.largest(6)
        assert (best.exact, best.together, best.ranked) == (True, True, len(brute))
        ranked = sorted(brute, key=lambda label: -abs(brute[label]))
        assert [t.label for t in best.terms] == ranked[:6]
        np.testing.assert_allclose([t.value for t in best.terms], [brute[label] for label in ranked[:6]], atol=1e-11)
        assert best.bound >= abs(brute[ranked[6]]) - best.rounding
        assert best.total == pytest.approx(sum(brute.values()))
        assert best.squares.value == pytest.approx(sum(x * x for x in brute.values()))
        for one in best.terms:
            assert (one.beside is not None) == one.label.startswith("embed + pos")
            both = sum(values.value(term)[-1] for term in one.terms)
            assert one.value == pytest.approx(both[best.measure.token] - both.mean())
            assert one.text.count(" + ") == len(one.terms) - 1
        assert best.json()["together"]
        assert "depends" not in best.text()
        listed.append([t.label for t in best.terms])
        apart = values.largest(6, sc.logit(against="mean"))
        assert not apart.together
        assert "the split between token and position embedding" in " ".join(apart.text().split())
    assert listed[0] == listed[1]


def test_a_sum_that_leaves_positions_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_positions()
    values = sc.evaluate(sc.logits(model), model.run([4, 1, 7, 2]))
    right = [t.value for t in values.largest(3).terms]
    monkeypatch.setattr("symcircuits.search.largest.joined", lambda v: type(v)(v.expansion.from_source("embed"), v.run))
    assert not np.allclose([t.value for t in values.largest(3).terms], right)
    assert not np.allclose(right, [paired(values)[t.label] for t in values.largest(3).terms])


def test_where_there_is_no_one_logit_the_default_is_the_norm() -> None:
    model = with_positions()
    batch, one = model.run([[1, 2, 3], [4, 5, 6]]), model.run([[1, 2, 3]])
    assert str(sc.evaluate(sc.logits(model), batch).largest(2).measure) == "norm over all positions and outputs"
    row = sc.evaluate(sc.logits(model), one).largest(2)
    assert (row.measure.kind, row.measure.row, row.together) == ("centred logit", 0, True)
    single = sc.evaluate(sc.logits(model), model.run([1, 2, 3])).largest(2)
    assert [t.label for t in row.terms] == [t.label for t in single.terms]
    assert [t.value for t in row.terms] == pytest.approx([t.value for t in single.terms])
    tokens = sc.evaluate(sc.logits(model).from_source("embed"), model.run([1, 2, 3])).largest(2)
    assert (tokens.measure.kind, tokens.together) == ("centred logit", False)
    narrow = sc.random_model(sc.attention_only((2,)), d_vocab_out=1)
    assert sc.evaluate(sc.logits(narrow), narrow.run([1, 2])).largest(2).measure.kind == "norm"


@pytest.mark.parametrize(
    ("target", "same", "depends"),
    [
        ("logits", "other bases of the stream", "added to every row of W_U and the split between token and position"),
        ("stream", "rotations of the stream", "it depends on the basis of the stream and the split between token"),
        ("scores:L1H0", "other bases of the stream", "parts that are the same for all keys of a query"),
    ],
)
def test_every_answer_says_on_what_its_order_depends(target: str, same: str, depends: str) -> None:
    model = with_positions()
    run = model.run([4, 1, 7, 2])
    words = " ".join(sc.evaluate(sc.expand(model.architecture, target), run).largest(2, sc.norm()).text(1000).split())
    assert f"the ranking is the same under other bases inside heads and {same}" in words
    assert depends in words
    looked = sc.evaluate(sc.expand(model.architecture, target), run).summary(sc.norm(), top=2).text(1000)
    assert depends in " ".join(looked.split())
    normed = with_positions(norm="LN")
    text = sc.evaluate(sc.logits(normed), normed.run([1, 2])).largest(2).text(1000)
    assert "the ranking is the same under other bases inside heads\n" in text


def test_the_command_ranks_by_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, str(path()), "--tokens", "0,7,19,3,7", "--top", "2")
    words = " ".join(out.split())
    assert code == 0
    assert "less the mean of all logits at position 4" in words
    assert "the ranking is the same under other bases inside heads and other bases of the stream" in words
    assert "depends" not in words
    code, out, _ = command(capsys, str(path()), "--tokens", "0,7,19,3,7", "--top", "2", "--by", "norm")
    assert "by norm over all positions and outputs" in out
    assert "the ranking by 'centred logit' or 'logit difference' does not" in " ".join(out.split())
