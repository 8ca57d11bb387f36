"""The paths of one program: order, numbers, weights, words."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import KINDS, architectures, cases, examples, group, oracle

from symcircuits.core.architecture import Architecture, Head, attention_only
from symcircuits.core.paths import Path, Paths, path_branches, path_factors, path_scales
from symcircuits.core.programs import Branch, Layer, Program, Source, readout
from symcircuits.core.walk import Counts, Joints, Mark
from symcircuits.core.words import Factor, Index, Space, Symbol


class Ones(dict[Mark, int]):
    """Every path once."""

    def get(self, key: Any, default: Any = None) -> Any:
        return 1


def unmarked(program: Program) -> Paths:
    return Paths(program, {}, {})


@given(cases(max_terms=400))
def test_paths_in_order(case: tuple[Architecture, str]) -> None:
    arch, target = case
    for i, program in enumerate(readout(arch, target).sides):
        paths = unmarked(program)
        expected = list(dict.fromkeys(r.routes[i] for r in oracle(arch, target)))
        found = list(paths.iterate(Ones()))
        assert [(p.source.name, p.heads, p.label, p.order) for p in found] == [
            (r.source, r.heads, r.label, len(r.heads)) for r in expected
        ]
        assert [paths.rank(p, Ones()) for p in found] == list(range(len(found)))
        assert [paths.unrank(n, Ones()) for n in range(len(found))] == [(p, 0) for p in found]
        assert list(paths.chains(Ones())) == list(dict.fromkeys(p.heads for p in found))
        assert paths.direct == tuple(p.source for p in found if not p.heads)
        assert paths.heads == {head for layer in program for b in layer.branches if (head := b.head) is not None}
        for heads in {p.heads for p in found}:
            assert paths.sources_of(heads) == tuple(p.source for p in found if p.heads == heads)
        with pytest.raises(IndexError):
            paths.unrank(len(found), Ones())


@examples(60)
@given(st.data(), cases(max_terms=200))
def test_weighted_numbers(data: st.DataObject, case: tuple[Architecture, str]) -> None:
    """Any weight for any mark (none: 0): a path's number is the weight of all that stands before it."""
    arch, target = case
    program = readout(arch, target).sides[-1]
    marked = {h: 1 << data.draw(st.integers(0, 2)) for h in arch.all_heads if data.draw(st.booleans())}
    source_bits = {kind: data.draw(st.sampled_from([0, 1, 8])) for kind in KINDS}
    sources = [s for layer in program for s in layer.sources]
    paths = Paths(program, marked, {s.name: source_bits[s.kind] for s in sources if source_bits[s.kind]})
    drawn = {mark: data.draw(st.integers(-3, 3)) for mark in sorted(paths.counts)}
    weights: Mapping[Mark, int] = {mark: weight for mark, weight in drawn.items() if weight >= 0}
    every = list(unmarked(program).iterate(Ones()))
    number = 0
    kept = []
    for p in every:
        bits = source_bits[p.source.kind]
        for h in p.heads:
            bits |= marked.get(h, 0)
        assert paths.mark(p) == Mark(len(p.heads), bits)
        weight = weights.get(Mark(len(p.heads), bits), 0)
        if weight:
            kept.append(p)
            assert paths.rank(p, weights) == number
            assert [paths.unrank(number + i, weights) for i in range(weight)] == [(p, i) for i in range(weight)]
        else:
            with pytest.raises(ValueError, match="is not in this expansion"):
                paths.rank(p, weights)
        number += weight
    assert list(paths.iterate(weights)) == kept
    assert sum(n * weights.get(mark, 0) for mark, n in paths.counts.items()) == number
    with pytest.raises(IndexError, match="index out of range"):
        paths.unrank(number, weights)


def test_marks_and_names_that_nothing_is_said_of_count_nothing() -> None:
    program = readout(attention_only((2, 1), "standard"), "stream").sides[0]
    paths = Paths(program, {Head(0, 1): 1}, {"pos": 2})
    assert sorted(paths.counts) == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
    chosen = {Mark(1, 3): 2, Mark(2, 0): 1, Mark(0, 2): 0}
    found = list(paths.iterate(chosen))
    assert [p.label for p in found] == ["pos -> L0H1", "embed -> L0H0 -> L1H0"]
    assert [paths.rank(p, chosen) for p in found] == [0, 2]
    assert [paths.unrank(n, chosen) for n in range(3)] == [(found[0], 0), (found[0], 1), (found[1], 0)]
    for other in unmarked(program).iterate(Ones()):
        if other not in found:
            with pytest.raises(ValueError, match="is not in this expansion"):
                paths.rank(other, chosen)
    for nothing in ({}, {Mark(0, 2): 0}):
        assert list(paths.iterate(nothing)) == []


@given(cases(max_terms=400), st.integers(0, 3), st.booleans())
def test_paths_are_counted_as_a_walk_counts_them(case: tuple[Architecture, str], every: int, paired: bool) -> None:
    """Mark by mark and in the same order: of all paths, of chosen heads and sources, of heads that follow directly."""
    arch, target = case
    heads = {h: 1 << i for i, h in enumerate(arch.all_heads) if i % 3 < every}
    names = {"embed": 2, "pos": 1, "b_O[L0]": 4} if every else {}
    if paired:
        heads, names = {h: 1 << 1 + h.layer % 2 for h in heads}, {}
    for program in readout(arch, target).sides:
        paths = Paths(program, heads, names, Joints(1 if paired else 0))
        assert [*paths.counts.items()] == [*paths.marked(Counts()).items()]


def test_a_feature_of_source_and_heads_is_one_feature() -> None:
    """Bits that a source shares with its heads, and heads with each other, choose the weight by being there."""
    program = readout(attention_only((2, 2, 1), "standard", True), "stream").sides[0]
    heads = {Head(0, 0): 1, Head(1, 0): 1, Head(1, 1): 2, Head(2, 0): 3}
    names = {s.name: {"embed": 1, "pos": 2, "b_V": 3}.get(s.kind, 0) for layer in program for s in layer.sources}
    paths = Paths(program, heads, names)
    weights = {Mark(order, bits): 5 * order + bits for order in range(4) for bits in range(4)}
    number = 0
    for p in unmarked(program).iterate(Ones()):
        bits = names[p.source.name]
        for h in p.heads:
            bits |= heads.get(h, 0)
        weight = 5 * len(p.heads) + bits
        assert paths.mark(p) == Mark(len(p.heads), bits)
        if weight:
            assert paths.rank(p, weights) == number
            assert paths.unrank(number, weights) == (p, 0)
            assert paths.unrank(number + weight - 1, weights) == (p, weight - 1)
        number += weight
    assert number == sum(n * weights[mark] for mark, n in paths.counts.items())


@given(architectures(max_layers=12, max_heads=12, max_terms=None), st.randoms(use_true_random=False))
def test_numbers_of_deep_programs(arch: Architecture, rng: random.Random) -> None:
    program = readout(arch, "stream").sides[0]
    paths = Paths(
        program,
        dict.fromkeys(arch.all_heads[::3], 1),
        {s.name: 2 * (s.kind == "b_O") for layer in program for s in layer.sources},
    )
    weights = {mark: 1 + (mark.order + mark.bits) % 3 for mark in paths.counts}
    total = sum(n * weights[mark] for mark, n in paths.counts.items())
    for number in (0, total - 1, *(rng.randrange(total) for _ in range(5))):
        path, inside = paths.unrank(number, weights)
        assert 0 <= inside < weights[paths.mark(path)]
        assert paths.rank(path, weights) + inside == number


def test_of_deep_programs_no_more_is_counted_than_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings with many heads, of which nobody asks, are not made: at 2,000 layers all of them took 800 MB."""
    made: list[int] = []
    right = Paths._one_more
    monkeypatch.setattr(Paths, "_one_more", lambda self, fewer: made.append(1) or right(self, fewer))
    paths, ones = unmarked(readout(attention_only((1,) * 300), "logits").sides[0]), Ones()
    two = Path(next(s for s in paths.direct if s.name == "embed"), (Head(7, 0), Head(290, 0)))
    assert paths.unrank(paths.rank(two, ones), ones) == (two, 0)
    assert len(made) == 1  # with one head more behind the first
    assert paths.tails(299, 2) == {0: 1}  # the last two layers
    assert paths.tails(300, 2) == {}
    assert len(made) == 2


def _written_out(arch: Architecture, head: str) -> str:
    layer, number = head[1:].split("H")
    return f"W_V[{group(arch, int(layer), int(number))}].T @ W_O[{head}].T"


@given(cases(max_terms=150))
def test_words_of_paths(case: tuple[Architecture, str]) -> None:
    arch, target = case
    for i, program in enumerate(readout(arch, target).sides):
        routes = list(dict.fromkeys(r.routes[i] for r in oracle(arch, target)))
        for path, route in zip(unmarked(program).iterate(Ones()), routes, strict=True):
            text = " @ ".join(f.text for f in path_factors(program, path))
            written_out = [f if "OV" not in f else _written_out(arch, f[5:-3]) for f in route.factors]
            assert text == " @ ".join(written_out).replace("X0", "t @ W_E.T")


def test_walks_of_marked_paths() -> None:
    program = readout(attention_only((3, 3)), "logits").sides[0]
    paths = Paths(program, {Head(0, 1): 1}, {s.name: 2 for layer in program for s in layer.sources})
    assert paths.marked(Counts()) == paths.counts
    assert paths.counts == {Mark(0, 2): 1, Mark(1, 2): 5, Mark(1, 3): 1, Mark(2, 2): 6, Mark(2, 3): 3}


def test_labels() -> None:
    program = readout(attention_only((2, 2)), "logits").sides[0]
    paths = [p.label for p in unmarked(program).iterate(Ones())]
    assert paths[0] == "embed"
    assert paths[3] == "embed -> L1H0"
    assert paths[-1] == "embed -> L0H1 -> L1H1"


def test_paths_that_are_not_there() -> None:
    program = readout(attention_only((2, 2), None, True), "logits").sides[0]
    paths = unmarked(program)
    embed, b_v = (
        next(s for layer in program for s in layer.sources if s.name == name) for name in ("embed", "b_V[L1H0]")
    )
    b_o = next(s for layer in program for s in layer.sources if s.name == "b_O[L1]")
    wrong = [
        Path(embed, (Head(1, 0), Head(0, 0))),
        Path(embed, (Head(0, 0), Head(0, 1))),
        Path(embed, (Head(0, 0), Head(0, 0))),
        Path(embed, (Head(0, 0), Head(2, 0))),
        Path(embed, (Head(2, 0),)),
        Path(b_v, (Head(1, 1),)),
        Path(b_v),
        Path(b_v, (Head(0, 0), Head(1, 0))),
        Path(b_o, (Head(1, 0),)),
    ]
    for path in wrong:
        with pytest.raises(ValueError, match=r"the path .* is not in this expansion") as caught:
            paths.rank(path, Ones())
        assert path.label in str(caught.value)
    assert paths.rank(Path(b_v, (Head(1, 0),)), Ones()) > paths.rank(Path(embed, (Head(1, 0),)), Ones())
    assert paths.sources_of((Head(7, 0),)) == ()


# --------------------------------------------------------------------- programs that no architecture has yet
def letter(name: str) -> tuple[Factor, ...]:
    return (Factor(Symbol(name, "", Index(Space("context")), Index(Space("context"), True))),)


def layer(number: int, heads: int, *sources: Source, skip: bool = True, readout: bool = False) -> Layer:
    branches = [Branch(Head(number, i), letter(f"a{number}{i}"), letter(f"w{number}{i}")) for i in range(heads)]
    return Layer((*branches, *([Branch(None, (), letter(f"r{number}"))] if readout else [])), sources, skip)


def by_hand(program: Program) -> list[tuple[int, tuple[Head, ...], str]]:
    """Every path, by going through the layers."""
    found: list[tuple[str, tuple[Head, ...]]] = []
    for step in program:
        ahead = [(s, (*heads, b.head)) for s, heads in found for b in step.branches if b.head is not None]
        passed = found if step.skip or any(b.head is None for b in step.branches) else []
        found = passed + ahead + [(s.name, () if s.head is None else (s.head,)) for s in step.sources]
    return sorted((len(heads), heads, name) for name, heads in found)


NAMES = ("embed", "pos", "b_V", "b_O", "other", "zz")  # in alphabet no order, in rank as they stand


@pytest.mark.parametrize(
    "program",
    [
        (),
        (layer(0, 2),),
        (layer(0, 2, Source("embed", letter("x"))), layer(1, 2)),
        (layer(0, 0, Source("embed", letter("x"))), layer(1, 2, skip=False), layer(2, 2)),
        (layer(0, 0, Source("embed", letter("x"))), layer(1, 2), layer(2, 3, skip=False), layer(3, 1)),
        (layer(0, 0, Source("embed", letter("x"))), layer(1, 2, skip=False, readout=True), layer(2, 1, skip=False)),
        (layer(0, 1, Source("embed", letter("x"))), layer(1, 0, Source("pos", letter("y")), skip=False), layer(2, 2)),
        (layer(0, 1, Source("embed", letter("x"))), layer(1, 1, Source("pos", letter("y")), skip=False), layer(2, 2)),
        (layer(0, 0, Source("embed", letter("x"))), layer(1, 0, skip=False), layer(2, 2, Source("pos", letter("y")))),
        (
            layer(0, 0, Source("pos", letter("x"))),
            layer(1, 1, Source("embed", letter("y"), head=Head(1, 0))),
            layer(2, 1),
        ),
        (layer(0, 2, Source("b_V", letter("b"), head=Head(0, 1))), layer(1, 1), layer(2, 1, skip=False)),
    ],
    ids=str,
)
def test_layers_with_and_without_skip(program: Program) -> None:
    paths = unmarked(program)
    found = list(paths.iterate(Ones()))
    assert [(p.order, p.heads, p.source.name) for p in found] == by_hand(program)
    assert sum(paths.counts.values()) == len(found)
    assert [paths.rank(p, Ones()) for p in found] == list(range(len(found)))
    assert [paths.unrank(n, Ones())[0] for n in range(len(found))] == found


def test_sources_sort_by_kind_then_by_layer() -> None:
    sources = [
        Source(name, letter(name)) for name in ("zz", "b_O[L1]", "other", "pos", "b_O[L0]", "b_V[L0H0]", "embed")
    ]
    paths = unmarked((layer(0, 0, *sources), layer(1, 1)))
    order = ["embed", "pos", "b_V[L0H0]", "b_O[L1]", "b_O[L0]", "zz", "other"]
    assert [s.name for s in paths.direct] == order
    assert [s.name for s in paths.sources_of((Head(1, 0),))] == order


def test_what_is_set_apart_stands_where_mlps_stand() -> None:
    """Sources with names of one's own, and the rest they leave, between positions and biases."""

    def own(name: str) -> Source:
        symbol = letter("x")[0].symbol
        return Source(name, (Factor(Symbol(name, "", symbol.row, symbol.col, own="part")),))

    sources = [Source(name, letter(name)) for name in ("b_O[L0]", "rest[L0]", "mlp[L0]", "pos", "embed")]
    paths = unmarked((layer(0, 0, sources[0], own("b_mine"), *sources[1:]), layer(1, 1)))
    assert [s.name for s in paths.direct] == ["embed", "pos", "b_mine", "rest[L0]", "mlp[L0]", "b_O[L0]"]


def test_multipliers_of_a_path_are_those_of_its_source_and_its_branches() -> None:
    source, plain = Source("embed", letter("x"), scales=("m_E",)), Source("pos", letter("y"))
    branches = [Branch(Head(i, 0), letter("a"), letter("w"), (f"r[L{i}]",)) for i in range(2)]
    last = Layer((Branch(None, (), (), ("m_U",)),), skip=False)
    program = (Layer((), (source, plain)), *(Layer((branch,)) for branch in branches), last)
    assert path_scales(program, Path(source, (Head(0, 0), Head(1, 0)))) == ("m_E", "r[L0]", "r[L1]", "m_U")
    assert path_scales(program, Path(source, (Head(1, 0),))) == ("m_E", "r[L1]", "m_U")
    assert path_scales(program, Path(plain)) == ("m_U",)


def test_a_layer_is_passed_in_one_way() -> None:
    for step in (layer(0, 1, readout=True), Layer((Branch(None, (), ()), Branch(None, (), ())), skip=False)):
        with pytest.raises(ValueError, match="a layer may be passed in one way only"):
            unmarked((step,))
    unmarked((layer(0, 1, skip=False, readout=True),))


def test_words_of_sources_inside_heads() -> None:
    inside = Source("b_V[L1H0]", letter("b"), letter("a10"), letter("w"), Head(1, 0))
    program = (layer(0, 1), layer(1, 2, inside), layer(2, 1), layer(3, 1, skip=False, readout=True))
    path = Path(inside, (Head(1, 0), Head(2, 0)))
    assert " ".join(f.text for f in path_factors(program, path)) == "a20 a10 b w w20 r3"
    assert " ".join(f.text for f in path_factors(program, Path(inside, (Head(1, 0), Head(3, 0))))) == "a30 a10 b w w30"
    assert [b.head for b in path_branches(program, path)] == [Head(2, 0), None]
    assert [b.head for b in path_branches(program, Path(inside, (Head(1, 0), Head(3, 0))))] == [Head(3, 0)]
