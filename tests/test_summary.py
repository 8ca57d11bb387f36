"""The parts of a summary: how terms are cut into pieces, put into rows by order, and added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases, selections

import symcircuits as sc
from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion
from symcircuits.values import summary as module
from symcircuits.values.measured import Measuring
from symcircuits.values.summary import Sum, over_rows
from symcircuits.work.pools import OutOfTime


@st.composite
def drawn(draw: st.DrawFn) -> Expansion:
    """Of any architecture, selected or not."""
    arch, target = draw(cases(max_terms=200))
    expansion: Expansion = sc.expand(arch, target)
    for chosen in draw(st.lists(selections(arch, target), max_size=2)):
        expansion = chosen.select(expansion)
    return expansion


@given(drawn(), st.data())
def test_sums_are_those_of_the_terms_of_a_range(expansion: Expansion, data: st.DataObject) -> None:
    """By the number of heads of each side, and the type of composition: term by term it is the same."""
    start = data.draw(st.integers(0, expansion.count))
    stop = data.draw(st.integers(start, expansion.count))
    sizes = np.random.default_rng(start).integers(-9, 10, stop - start).astype(np.float64)
    given_sizes, wanted = sizes.copy(), dict[Any, Sum]()
    for number, size in zip(range(start, stop), sizes.tolist(), strict=True):
        term = expansion[number]
        key = tuple(len(path.heads) for path in term.paths), term.composition
        wanted[key] = wanted.get(key, Sum(0, 0.0, 0.0)) + Sum(1, size, abs(size))
    assert module._sums(expansion, sizes, start, stop) == wanted
    np.testing.assert_array_equal(sizes, given_sizes)


# ------------------------------------------------------------------------------------------------------ pieces
def cut(source: Any, start: int, stop: int) -> list[tuple[int, int]]:
    found = []
    for name, (of, at, end, top) in module._tasks(source, start, stop, 7):
        assert (of, top) == (source, 7)
        assert name == f"terms {at:,} to {end - 1:,}"
        found.append((at, end))
    return found


def source_of(expansion: Expansion) -> Any:
    run = sc.random_model(expansion.architecture, d_model=2, d_head=1).run([1, 2])
    return module._Local(Measuring(sc.evaluate(expansion, run), sc.norm().on(expansion, run)))


def test_terms_are_cut_where_whoever_works_cuts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """At multiples of a size that the work alone says: a share, within its limits."""
    source = source_of(sc.logits(sc.attention_only((3, 3))))  # 16 terms
    assert cut(source, 0, 16) == [(0, 16)]
    assert cut(source, 3, 16) == [(3, 16)]
    assert cut(source, 3, 3) == cut(source, 16, 16) == []
    monkeypatch.setattr(module, "FEWEST", 3)
    assert cut(source, 0, 16) == [(0, 3), (3, 6), (6, 9), (9, 12), (12, 15), (15, 16)]
    assert cut(source, 4, 12) == [(4, 6), (6, 9), (9, 12)]
    assert cut(source, 6, 7) == [(6, 7)]
    monkeypatch.setattr(module, "PIECES", 3)  # 6 of 16 each, and 4 of 10
    assert cut(source, 0, 16) == [(0, 6), (6, 12), (12, 16)]
    assert cut(source, 5, 15) == [(5, 8), (8, 12), (12, 15)]
    monkeypatch.setattr(module, "MOST_EACH", 5)
    assert cut(source, 0, 16) == [(0, 5), (5, 10), (10, 15), (15, 16)]


def test_score_terms_are_cut_between_query_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys few enough: pieces are four times as large, in whole query paths, one at least."""
    source = source_of(sc.scores(sc.attention_only((3, 1)), "L1H0"))  # 4 query paths, each with 4 key paths
    assert cut(source, 0, 16) == [(0, 16)]
    for fewest, pieces in ((1, [(0, 4), (4, 8), (8, 12), (12, 16)]), (2, [(0, 8), (8, 16)]), (3, [(0, 12), (12, 16)])):
        monkeypatch.setattr(module, "FEWEST", fewest)
        assert cut(source, 0, 16) == pieces
    monkeypatch.setattr(module, "MOST_EACH", 7)
    assert cut(source, 0, 16) == [(0, 4), (4, 8), (8, 12), (12, 16)]
    monkeypatch.setattr(module, "MOST_EACH", 4)
    assert cut(source, 2, 9) == [(2, 4), (4, 8), (8, 9)]
    monkeypatch.setattr(module, "MOST_EACH", 3)
    assert cut(source, 0, 8) == [(0, 3), (3, 6), (6, 8)]


def test_too_many_terms_are_refused_and_no_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 10^13 on, as is said; and more than a million are not listed."""
    assert module._planned(10**13 - 1, 10**6, Budget()) == 10**13 - 1
    for total, top in ((10**13, 1), (10**13 - 1, 10**6 + 1)):
        with pytest.raises(ValueError, match="too many to"):
            module._planned(total, top, Budget())
    monkeypatch.setattr(module, "MOST", 100)
    monkeypatch.setattr(module, "MOST_LISTED", 10)
    assert module._planned(99, 10, Budget()) == 99
    assert module._planned(1000, 10, Budget(max_terms=99)) == 99
    assert module._planned(8, 10**9, Budget()) == module._planned(1000, 10**9, Budget(max_terms=8)) == 8
    assert module._planned(5, 3, Budget(max_terms=7)) == 5
    for total, budget in ((100, Budget()), (1000, Budget(max_terms=100))):
        with pytest.raises(ValueError, match=r"^100 terms are too many to look at one by one: use largest or sample"):
            module._planned(total, 10, budget)
    for total, top in ((99, 11), (11, 12)):
        with pytest.raises(ValueError, match=r"^the 11 largest are too many to list \(10 at most\): measure gives"):
            module._planned(total, top, Budget())


# ------------------------------------------------------------------------------------------------- putting together
def part(*sizes: float, key: Any = ((0,), "none"), start: int = 0) -> module._Part:
    return module._Part(
        tuple((start + i, size) for i, size in enumerate(sizes)),
        {key: Sum(len(sizes), sum(sizes), sum(map(abs, sizes)))},
    )


def test_parts_are_added_key_by_key() -> None:
    found = module._joined(2, part(1.0, -5.0), part(3.0, key=((1,), "V"), start=2))
    assert found.top == ((1, -5.0), (2, 3.0))
    assert found.sums == {((0,), "none"): Sum(2, -4.0, 6.0), ((1,), "V"): Sum(1, 3.0, 3.0)}
    again = module._joined(1, found, part(2.0, -4.0, start=3))
    assert again.top == ((1, -5.0),)
    assert again.sums == {((0,), "none"): Sum(4, -6.0, 12.0), ((1,), "V"): Sum(1, 3.0, 3.0)}


def test_each_part_is_reported_until_the_budget_is_used_up() -> None:
    seen: list[tuple[Any, ...]] = []
    budget = Budget(max_terms=3)
    parts = iter([part(1.0, 2.0), part(3.0), part(4.0)])
    assert len([*module._reported(parts, lambda *now: seen.append(now), 9, budget)]) == 2
    assert (seen, budget.terms) == ([("terms", 2, 9), ("terms", 3, 9)], 3)
    assert [*parts] == [part(4.0)]
    assert [*module._reported(iter([]), None, 9, Budget())] == []

    def late() -> Any:
        yield part(1.0)
        raise OutOfTime

    assert [*module._reported(late(), None, 9, Budget())] == [part(1.0)]


def test_norms_of_rows_are_put_together_whatever_their_size() -> None:
    assert over_rows(np.array([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]])).tolist() == [5.0, 0.0, 13.0]
    assert over_rows(np.array([[[2.0, 3.0], [6.0, 0.0]]])).tolist() == [7.0]
    np.testing.assert_allclose(over_rows(np.array([[3e200, 4e200], [3e-200, 4e-200]])), [5e200, 5e-200], rtol=1e-15)
    assert over_rows(np.array([[1.7e308, 1.7e308]])).tolist() == [np.inf]
    one = over_rows(np.array([[-3.0], [2.0]], np.float32))  # of one row what has a sign keeps it
    assert one.tolist() == [-3.0, 2.0]
    assert one.dtype == np.float64


@pytest.mark.parametrize("look", [1, 3, 1 << 14])
def test_sizes_of_a_batch_are_those_over_its_rows(look: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many terms are looked at at a time."""
    monkeypatch.setattr(module, "LOOK", look)
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([[1, 2], [3, 4]])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    source = module._Local(Measuring(values, sc.norm().on(values.expansion, run)))
    wanted = [float(np.linalg.norm(value)) for value in values]
    for start, stop in ((0, 9), (2, 9), (3, 8)):
        found = module._sizes(source, range(start, stop))
        np.testing.assert_allclose(found, wanted[start:stop], rtol=1e-12)


def test_a_summary_gives_its_sums_by_order_and_by_type() -> None:
    """In the order of each, of both sides together; the total is over all."""
    run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2])
    values = sc.evaluate(sc.scores(run.model.architecture, "L1H0"), run)
    found = values.summary(top=3)
    sizes = [float(np.linalg.norm(value)) for value in values]
    by_order, by_type = dict[int, list[float]](), dict[str, list[float]]()
    for term, size in zip(values.expansion, sizes, strict=True):
        by_order.setdefault(sum(len(path.heads) for path in term.paths), []).append(size)
        by_type.setdefault(term.composition, []).append(size)
    assert list(found.by_order()) == [0, 1, 2]
    assert list(found.by_composition()) == ["none", "Q", "K", "QK"]
    pairs = [(sizes, found.total)]
    pairs += [(some, found.by_order()[order]) for order, some in by_order.items()]
    pairs += [(some, found.by_composition()[kind]) for kind, some in by_type.items()]
    for wanted, seen in pairs:
        assert seen.count == len(wanted)
        assert np.isclose(seen.total, sum(wanted), rtol=1e-12)
        assert seen.absolute == seen.total
    assert (found.start, found.stop, found.reached) == (0, 9, "")
    some = values.summary(top=3, start=2, max_terms=4)
    assert (some.start, some.stop, some.reached, some.total.count) == (2, 6, "max_terms (4)", 4)
    assert [number for number, _ in some.largest] == sorted(range(2, 6), key=lambda i: -sizes[i])[:3]
    assert values.summary(start=5, max_terms=4).reached == ""
    assert values.summary(max_terms=0).total == Sum(0, 0.0, 0.0)
