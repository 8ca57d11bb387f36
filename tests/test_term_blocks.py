"""Terms in blocks are the terms of the expansion: the same, in the same order, from any number on, printed alike."""

import importlib
import itertools
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from strategies import cases, selections, term_count

import symcircuits as sc
from symcircuits.core.architecture import transformer
from symcircuits.core.expansion import Expansion
from symcircuits.tables.blocks import COMPOSITIONS, OrderRun, TermBlock, order_runs
from symcircuits.tables.paths import PathTables, smallest_type

ROOT = Path(__file__).parent.parent
blocks_module = importlib.import_module("symcircuits.tables.blocks")
tables_module = importlib.import_module("symcircuits.tables.paths")
bulk_module = importlib.import_module("symcircuits.tables.printing")
census_module = importlib.import_module("symcircuits.tables.census")


def drawn(data: DataObject, max_terms: int) -> Expansion:
    """Any target of any architecture, under up to three conditions."""
    arch, target = data.draw(cases(max_terms=max_terms))
    expansion = sc.expand(arch, target)
    for chosen in data.draw(st.lists(selections(arch, target), max_size=3)):
        expansion = chosen.select(expansion)
    return expansion


def held_to_terms(block: TermBlock, terms: list[sc.Term], first: int) -> None:
    """Every array of a block against the terms that it should hold."""
    sources = [s.name for s in block.expansion.sources]
    assert block.numbers.tolist() == list(range(first, first + len(terms)))
    for i, term in enumerate(terms):
        assert block[i] == term
        assert tuple(int(o[i]) for o in block.orders) == term.orders
        assert int(block.order[i]) == term.order
        assert COMPOSITIONS[block.composition[i]] == term.composition
        for side, path in enumerate(term.paths):
            assert sources[block.sources[side][i]] == path.source.name
            chosen = {layer: n for layer, n in enumerate(block.heads[side][i].tolist()) if n >= 0}
            assert chosen == {h.layer: h.number for h in path.heads}


@given(st.data())
def test_blocks_are_the_terms_in_order(data: DataObject) -> None:
    expansion = drawn(data, 400)
    size = data.draw(st.integers(1, 500))
    first = 0
    for block in expansion.blocks(size):
        held_to_terms(block, expansion[first : first + size], first)
        first += len(block)
    assert first == expansion.count
    found = [t for block in expansion.blocks(size) for t in block]
    assert found == list(expansion)


@given(st.data())
def test_blocks_with_small_tables_are_the_same(data: DataObject) -> None:
    """Tables, and the key paths that are held at once, of any size: what depends on them is speed alone."""
    expansion = drawn(data, 300)
    start = data.draw(st.integers(0, expansion.count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables_module, "MAX_ROWS", data.draw(st.integers(1, 20)))
        patch.setattr(tables_module, "MAX_BYTES", data.draw(st.sampled_from([0, 1 << 20])))
        patch.setattr(blocks_module, "MAX_KEYS", data.draw(st.integers(0, 5)))
        patch.setattr(blocks_module, "MAX_KEY_SETS", data.draw(st.integers(1, 3)))
        patch.setattr(blocks_module, "FEW", data.draw(st.sampled_from([1, 3, 64])))
        found = [t for block in expansion.blocks(13, start=start) for t in block]
    assert found == list(expansion)[start:]


@given(st.data())
def test_ranges_join(data: DataObject) -> None:
    expansion = drawn(data, 2000)
    cuts = sorted(data.draw(st.lists(st.integers(0, expansion.count), max_size=4)))
    size = data.draw(st.integers(1, 200))
    whole = [b.numbers for b in expansion.blocks(size)]
    parts = [
        b for a, z in itertools.pairwise([0, *cuts, expansion.count]) for b in expansion.blocks(size, start=a, stop=z)
    ]  # fmt: skip
    assert [n for b in parts for n in b.numbers.tolist()] == [n for b in whole for n in b.tolist()]
    for side in range(len(expansion.sides)):
        found = [row for b in parts for row in zip(b.heads[side].tolist(), b.sources[side].tolist(), strict=True)]
        expected = [
            row for b in expansion.blocks(10**6)
            for row in zip(b.heads[side].tolist(), b.sources[side].tolist(), strict=True)
        ]  # fmt: skip
        assert found == expected


def orders_of(run: OrderRun) -> list[tuple[int, ...]]:
    """The orders of each side of each term of a run, one by one."""
    if not run.keys:
        return [(run.order,)] * run.terms
    keys = [key for key, count in run.keys for _ in range(count)]
    return [(run.order, keys[i % len(keys)]) for i in range(run.skip, run.skip + run.terms)]


@pytest.mark.parametrize("held", [0, 1 << 16])
@given(data=st.data())
def test_order_runs_are_the_orders_of_the_terms(held: int, data: DataObject) -> None:
    """Of any selection, from any term to any other; with key paths held or streamed."""
    e = drawn(data, 300)
    a, b = sorted((data.draw(st.integers(0, e.count)), data.draw(st.integers(0, e.count))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("symcircuits.tables.blocks"), "MAX_KEYS", held)
        found = [orders for run in order_runs(e, a, b) for orders in orders_of(run)]
    assert found == [e[i].orders for i in range(a, b)]


def test_order_runs_at_any_depth() -> None:
    """Some trillions of terms are a few runs; a selection of them is reached at once."""
    whole = sc.scores(sc.attention_only((12,) * 8), "L7H0")
    assert sum(run.terms for run in order_runs(whole, 0, whole.count)) == whole.count
    assert len(list(order_runs(whole, 0, whole.count))) == 8
    part = whole.through("L3H7")
    at = part.count // 3
    assert [o for run in order_runs(part, at, at + 50) for o in orders_of(run)] == [
        part[at + i].orders for i in range(50)
    ]


@given(st.data(), st.sampled_from(["row", "paper", "transformerlens"]), st.sampled_from([None, {"A": "Omega"}]))
def test_blocks_are_printed_as_terms_are(data: DataObject, notation: str, symbols: dict[str, str] | None) -> None:
    expansion = drawn(data, 250).written(notation, symbols)
    size = data.draw(st.integers(1, 300))
    labels, texts, latex = list[str](), list[str](), list[str]()
    for block in expansion.blocks(size):
        labels += block.labels()
        texts += block.texts()
        latex += block.latex()
    assert labels == [t.label for t in expansion]
    assert texts == [t.text for t in expansion]
    assert latex == [t.latex() for t in expansion]


@pytest.mark.parametrize("few", [1, 4, 64])
@pytest.mark.parametrize("size", [1, 3, 10, 1000])
@pytest.mark.sampled(5)
def test_every_beginning(monkeypatch: pytest.MonkeyPatch, few: int, size: int) -> None:
    """From every term on, however blocks cut the keys of a query; query paths with other marks go with other keys."""
    monkeypatch.setattr(blocks_module, "FEW", few)
    whole = sc.scores(sc.transformer((2, 2), "standard", ["b_V"]), "L1H0")
    for expansion in (whole, whole.through("L0H1"), whole.through("L0H1").from_source("pos").order(1, 2)):
        terms = list(expansion)
        for start in range(len(terms)):
            assert [t for b in expansion.blocks(size, start=start) for t in b] == terms[start:]


def test_another_notation_may_be_asked_for() -> None:
    expansion = sc.scores(sc.attention_only((2, 1)), "L1H0")
    block = next(expansion.blocks())
    assert block.texts("paper") == [t.written("paper").text for t in expansion]
    assert block.latex("transformerlens") == [t.written("transformerlens").latex() for t in expansion]
    with pytest.raises(ValueError, match="notation must be one of"):
        block.texts("mine")


@pytest.mark.parametrize("what", ["label", "text", "latex"])
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
@pytest.mark.parametrize("notation", ["row", "paper"])
def test_strings_in_one_and_in_pieces_are_those_of_the_terms(what: str, target: str, notation: str) -> None:
    architecture = sc.transformer((2, 1), "standard", norm="LN")
    expansion = sc.expand(architecture, target).written(notation, {"A": "Omega"})
    wanted = [{"label": t.label, "text": t.text, "latex": t.latex()}[what] for t in expansion]
    (block,) = expansion.blocks()
    assert block.joined(what).decode() == "\n".join(wanted)
    assert block.joined(what, b"; ", str.upper).decode() == "; ".join(wanted).upper()
    assert [b"".join(parts).decode() for parts in zip(*block.pieces(what), strict=True)] == wanted
    assert [b"".join(p).decode() for p in zip(*block.pieces(what, str.lower), strict=True)] == [
        w.lower() for w in wanted
    ]


def test_strings_of_many_layers_and_codes_beyond_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    expansion = sc.scores(sc.transformer((3,) * 40, biases=["b_V", "b_K"]), "L39H1")
    start = expansion.count // 3
    block = next(expansion.blocks(20, start=start))
    terms = [expansion[i] for i in range(start, start + 20)]
    assert block.labels() == [t.label for t in terms]
    assert block.texts() == [t.text for t in terms]
    assert block.numbers.dtype == object
    assert block.numbers.tolist() == list(range(start, start + 20))
    monkeypatch.setattr(bulk_module, "REMEMBERED", 0)
    small = sc.scores(sc.attention_only((2, 2)), "L1H0")
    assert [s for b in small.blocks(2) for s in b.texts()] == [t.text for t in small]


@pytest.mark.parametrize("heads", [(1,) * 150, (0, 0, 7), (130, 2), (33_000,)], ids=["deep", "empty", "int16", "int32"])
def test_unusual_shapes(heads: tuple[int, ...]) -> None:
    expansion = sc.logits(sc.attention_only(heads))
    for start in (0, expansion.count // 2, expansion.count - 3)[:: 1 if max(heads) < 200 else 2]:
        block = next(expansion.blocks(3, start=start))
        assert list(block) == [expansion[i] for i in range(start, start + 3)]
        assert block.labels() == [expansion[i].label for i in range(start, start + 3)]
    assert block.heads[0].dtype == smallest_type(max(heads) - 1)


def test_sequences_of_heads() -> None:
    for expansion in (
        sc.logits(sc.attention_only((2, 2, 2))).through_sequence("L0H1", "L2H0"),
        sc.scores(sc.attention_only((2, 2, 2, 1)), "L3H0").through_sequence("L0H1", "L2H0").through("L1H1"),
    ):
        assert expansion.count
        for start in range(expansion.count):
            assert [t for b in expansion.blocks(5, start=start) for t in b] == list(expansion)[start:]


def test_more_conditions_than_there_are_bits_are_refused() -> None:
    expansion = sc.logits(sc.attention_only((2, 2)))
    for _ in range(62):
        expansion = expansion.through("L0H1")
    assert [t for b in expansion.blocks() for t in b] == list(expansion)
    with pytest.raises(ValueError, match="blocks take at most 62 conditions; this expansion has 63"):
        expansion.through("L0H1").blocks()


def test_a_selection_that_is_one_in_billions_is_found_at_once() -> None:
    expansion = sc.logits(sc.attention_only((12,) * 12))
    for layer in range(11):
        expansion = expansion.through(f"L{layer}H{layer}")
    (block,) = expansion.blocks()
    assert len(block) == expansion.count == 13
    assert block.labels() == [t.label for t in expansion]


def test_nothing_is_made_of_nothing() -> None:
    expansion = sc.logits(sc.attention_only((2, 2)))
    assert list(expansion.order(7).blocks()) == []
    assert list(expansion.blocks(start=9)) == list(expansion.blocks(start=3, stop=3)) == []
    assert expansion.order(7).census().count == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, "size must be a whole number, 1 or more, not 0"),
        ({"size": 2.5}, "size must be a whole number"),
        ({"start": -1}, "start must be a whole number, 0 or more, not -1"),
        ({"stop": True}, "stop must be a whole number"),
        ({"start": 4}, "start 4 and stop 3 are not a range of the 3 terms of logits, counted from 0"),
        ({"stop": 4}, "start 0 and stop 4 are not a range of the 3 terms of logits"),
        ({"start": 2, "stop": 1}, "start 2 and stop 1 are not a range of the 3 terms of logits"),
    ],
)
def test_wrong_numbers_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sc.logits(sc.attention_only((2,))).blocks(**options)  # type: ignore[arg-type]


def test_what_is_no_expansion_is_refused() -> None:
    with pytest.raises(TypeError, match="blocks takes an expansion"):
        blocks_module.blocks(sc.attention_only((2,)))


def test_a_block_of_any_size_holds_what_there_is() -> None:
    expansion = sc.scores(sc.attention_only((2, 2)), "L1H0")
    (block,) = expansion.blocks(10**15)
    assert list(block) == list(expansion)
    assert [block[i] for i in range(-9, 9)] == 2 * list(expansion)
    for beyond in (9, -10):
        with pytest.raises(IndexError):
            block[beyond]
    with pytest.raises(TypeError, match="numbered by whole numbers, not a slice"):
        block[1:3]  # type: ignore[index]


def test_what_is_remembered_is_not_shipped() -> None:
    expansion = sc.scores(sc.attention_only((3, 3)), "L1H0")
    small = len(pickle.dumps(expansion))
    texts = next(expansion.blocks()).texts()
    assert expansion.printers
    assert len(pickle.dumps(expansion)) < small + 5000
    again = pickle.loads(pickle.dumps(expansion))
    assert next(again.blocks()).texts() == texts


def test_blocks_are_printed_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_module, "REMEMBERED", 20)
    expansion = sc.scores(sc.attention_only((4, 4, 4)), "L2H0")
    texts = [t.text for t in expansion]
    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda b: b.texts(), expansion.blocks(37)))
        assert [t for part in found for t in part] == texts


def test_a_table_counts_all_its_bytes() -> None:
    heads, sources, bits = np.zeros((3, 4), np.int8), np.zeros(4, np.int16), np.zeros(4, np.int64)
    assert tables_module.Table(heads, sources, None).size == 12 + 8
    assert tables_module.Table(heads, sources, bits).size == 12 + 8 + 32


def test_arrays_are_read_only() -> None:
    for block in sc.scores(sc.attention_only((2, 2)), "L1H0").blocks(4):
        for array in (*block.heads, *block.sources, *block.orders, block.composition):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


@given(st.data())
def test_census_is_what_is_counted(data: DataObject) -> None:
    expansion = drawn(data, None if data.draw(st.booleans()) else 3000)
    if expansion.count > 200_000:
        expansion = expansion.order(0, 1)
    found = expansion.census()
    assert found.count == expansion.count
    assert found.by_order() == expansion.counts_by_order()
    assert found.by_composition() == expansion.counts_by_composition()
    assert found.by_orders == expansion.counts_by_orders()
    middle = expansion.count // 2
    assert expansion.census(start=0, stop=middle) + expansion.census(start=middle) == found


def test_census_counts_what_is_there() -> None:
    """It looks at the heads: a block that lacks a term, or has another in its place, is counted otherwise."""
    expansion = sc.scores(transformer((2, 2)), "L1H0")
    (block,) = expansion.blocks()
    assert block.census().by_orders == expansion.counts_by_orders()
    less = TermBlock(
        expansion, 0, tuple(h[1:] for h in block.heads), tuple(s[1:] for s in block.sources),
        tuple(o[1:] for o in block.orders), block.composition[1:],
    )  # fmt: skip
    assert less.census() != block.census()
    heads = np.array(block.heads[0])
    heads[0, 0] = 1
    other = TermBlock(expansion, 0, (heads, block.heads[1]), block.sources, block.orders, block.composition)
    assert other.census() != block.census()
    assert "9 terms" in repr(block.census())


def test_the_oracle_counts_the_same() -> None:
    arch = transformer((3, 3, 3), positions="standard", biases=True, norm="LN", mlps=True)
    for target in ("logits", "scores:L2H1"):
        assert sum(map(len, sc.expand(arch, target).blocks())) == term_count(arch, target)


MEASURED = """
import resource
import numpy
import symcircuits as sc
from symcircuits.tables import printing as bulk
from symcircuits.tables import blocks as term_blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
twelve = sc.attention_only((12,) * 12)
for e in (
    sc.logits(twelve), sc.logits(twelve).through("L3H4").through("L9H0"), sc.scores(twelve, "L11H0"),
    sc.scores(twelve, "L11H0").through("L5H5", "query").order(7, 9).from_source("embed"),
):
    start = e.count // 3
    assert e.census(start=start, stop=start + 300_000).count == 300_000
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


def test_memory_does_not_depend_on_the_number_of_terms() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200e6


@pytest.mark.parametrize("who", [1, 3, "processes"])
def test_a_census_by_workers_is_the_same(who: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    from symcircuits.tables import census as term_census
    from symcircuits.work.workers import processes

    monkeypatch.setattr(term_census, "EACH", 1000)
    e = sc.scores(sc.attention_only((3, 3, 3)), "L2H0").through("L0H1")
    workers = processes(2) if isinstance(who, str) else who
    assert e.census(workers=workers) == e.census()
    assert e.census(start=7, stop=103, workers=workers) == e.census(start=7, stop=103)
    assert e.census(start=9, stop=9, workers=workers).count == 0
    with pytest.raises(ValueError, match="stop must be a whole number"):
        e.census(start=0, stop=-1, workers=workers)


def test_the_ranges_of_a_census_are_each_term_once_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what workers are given, and what is said of it where one fails."""
    names = []

    class Pool:
        def __init__(self, _: object) -> None: ...
        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None: ...
        def results(self, job: Any, tasks: Any, **_: Any) -> Any:
            for name, task in tasks:
                names.append(name)
                yield job(task)

    monkeypatch.setattr(census_module, "EACH", 4)
    monkeypatch.setattr(census_module, "WorkerPool", Pool)
    expansion = sc.scores(sc.attention_only((2, 2)), "L1H0")
    found = census_module.census(expansion, workers=1)
    assert names == ["terms 0 to 3", "terms 4 to 7", "terms 8 to 8"]
    assert found.by_order() == census_module.census(expansion).by_order() == {0: 1, 1: 4, 2: 4}


def test_blocks_at_more_layers_than_python_has_frames() -> None:
    expansion = sc.logits(sc.attention_only((1,) * 700)).order(600)
    number = expansion.count // 2
    block = next(expansion.blocks(1, start=number))
    assert block[0].text == expansion[number].text


def test_tables_of_many_layers_are_joined_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in Python do not grow with the layers of a table: at 2,000 layers they were most of the time."""
    calls: list[int] = []
    right = PathTables._put

    def put(self: PathTables, *how: Any) -> int:
        events: list[str] = []
        sys.setprofile(lambda frame, event, what: events.append(event))
        try:
            return right(self, *how)
        finally:
            sys.setprofile(None)
            calls.append(len(events))

    expansion = sc.logits(sc.attention_only((1,) * 400)).order(1, 2)
    monkeypatch.setattr(PathTables, "_put", put)
    block = next(expansion.blocks(1000, start=500))
    assert [block[i].label for i in (0, 999)] == [expansion[i].label for i in (500, 1499)]
    assert calls
    assert max(calls) < 50
