"""The head-space tree: every path's value, in order, with prefixes shared and nothing else assumed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.algebra import Factor, scalar_argument
from symcircuits.architecture import Head
from symcircuits.model import matrices_of, random_model
from symcircuits.paths import Paths, path_factors, path_scales
from symcircuits.programs import Layer, Program, Source, readout
from symcircuits.rings import Floats
from symcircuits.tree import HeadTree
from symcircuits.walk import Mark, Matrices
from tests.strategies import cases


def unmarked(program: Program) -> Paths:
    return Paths(program, {}, {})


def weights_of(paths: Paths) -> dict[Mark, int]:
    return dict.fromkeys(paths.counts, 1)


def product(factors: tuple[Factor, ...], matrices: dict[str, Any]) -> Any:
    """The factors multiplied from left to right, in the stream's own width, nothing shared."""
    value = None
    for f in factors:
        matrix = matrices[f.symbol.argument]
        matrix = np.swapaxes(matrix, -1, -2) if f.transposed else matrix
        value = matrix if value is None else value @ matrix
    return value


@st.composite
def trees(draw: st.DrawFn) -> tuple[Program, dict[str, Any], tuple[int, ...]]:
    arch, target = draw(cases(max_terms=150))
    sizes = {k: draw(st.integers(1, 4)) for k in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    model = random_model(arch, **sizes, seed=draw(st.integers(0, 50)))
    batch = draw(st.sampled_from([(), (2,)]))
    tokens = np.random.default_rng(0).integers(0, sizes["d_vocab"], (*batch, draw(st.integers(1, 4))))
    run = model.run(tokens)
    return draw(st.sampled_from(readout(arch, target).sides)), matrices_of(run) | {"t": run.arrays["t"]}, batch


@given(trees())
def test_blocks_are_the_paths_in_order_with_their_values(tree: tuple[Program, dict[str, Any], tuple[int, ...]]) -> None:
    program, matrices, batch = tree
    paths = unmarked(program)
    seen = []
    for block, values in HeadTree(paths, Matrices(matrices, Floats()), batch).blocks(weights_of(paths)):
        assert len(block) == len(values) > 0
        assert len({p.heads for p in block}) == 1  # all sources of one chain of heads
        for path, value in zip(block, values, strict=True):
            wanted = product(path_factors(program, path), matrices)
            for scalar in path_scales(program, path):
                wanted = matrices[scalar_argument(scalar)] * wanted
            assert value.shape == batch + wanted.shape[-2:]
            np.testing.assert_allclose(value, np.broadcast_to(wanted, value.shape), rtol=1e-9, atol=1e-12)
        seen += block
    assert seen == list(paths.iterate(weights_of(paths)))
    assert len(seen) == sum(paths.counts.values())


def by_label(
    paths: Paths, weights: dict[Mark, int], matrices: dict[str, Any], batch: tuple[int, ...]
) -> dict[str, Any]:
    blocks = HeadTree(paths, Matrices(matrices, Floats()), batch).blocks(weights)
    return {path.label: value for block, values in blocks for path, value in zip(block, values, strict=True)}


@given(trees(), st.data())
def test_paths_without_weight_are_left_out(
    tree: tuple[Program, dict[str, Any], tuple[int, ...]], data: st.DataObject
) -> None:
    program, matrices, batch = tree
    heads = [b.head for layer in program for b in layer.branches if b.head]
    chosen = data.draw(st.sets(st.sampled_from(heads))) if heads else set()
    paths = Paths(
        program, dict.fromkeys(chosen, 1), {s.name: 2 * (s.kind == "embed") for layer in program for s in layer.sources}
    )
    weights = {mark: data.draw(st.integers(0, 1)) for mark in paths.counts}
    everything = by_label(paths, weights_of(paths), matrices, batch)
    kept = by_label(paths, weights, matrices, batch)
    assert list(kept) == [p.label for p in paths.iterate(weights)]
    for label, value in kept.items():
        np.testing.assert_allclose(value, everything[label], rtol=1e-12, atol=1e-14)


class Counted(Matrices):
    """Matrices that note which patterns are taken."""

    def factor(self, factor: Factor) -> Any:
        if factor.symbol.glyph == "A":
            self.known.setdefault("patterns", []).append(factor.symbol.label)  # type: ignore[attr-defined]
        return super().factor(factor)


def test_neighbours_share_their_prefix() -> None:
    """Each chain of heads costs one pattern product, and one more for each prefix that is not the neighbour's."""
    arch = sc.attention_only((2, 3, 2), "standard")
    matrices = Counted(matrices_of(random_model(arch).run([1, 2, 3])), Floats(), {})
    paths = unmarked(readout(arch, "logits").sides[0])
    blocks = list(HeadTree(paths, matrices, ()).blocks(weights_of(paths)))
    assert len(blocks) == 3 * 4 * 3
    order_one = 2 + 3 + 2
    order_two = 2 * 3 + 2 * 2 + 3 * 2 + (2 + 3)  # chains, and their first heads once for each run of neighbours
    order_three = 2 * 3 * 2 + 2 * 3 + 2
    assert len(matrices.known["patterns"]) == order_one + order_two + order_three


def test_a_pattern_acts_once_for_all_sources() -> None:
    arch = sc.attention_only((2,), "standard", ["b_V"])
    matrices = Counted(matrices_of(random_model(arch).run([1, 2])), Floats(), {})
    paths = unmarked(readout(arch, "logits").sides[0])
    blocks = list(HeadTree(paths, matrices, ()).blocks(weights_of(paths)))
    assert [len(b) for b, _ in blocks] == [2, 3, 3]
    assert matrices.known["patterns"] == ["L0H0", "L0H1"]


def test_a_readout_before_a_layer_of_heads_is_refused() -> None:
    program = readout(sc.attention_only((1, 1)), "logits").sides[0]
    early = (program[0], program[-1], program[1])
    with pytest.raises(NotImplementedError, match="readouts at the end of a program only"):
        HeadTree(unmarked(early), Matrices({}, Floats()), ())


def test_a_readout_in_the_middle_is_refused() -> None:
    program = readout(sc.attention_only((1,)), "logits").sides[0]
    with pytest.raises(NotImplementedError):
        HeadTree(unmarked((*program, program[1])), Matrices({}, Floats()), ())


def test_a_source_that_enters_a_head_elsewhere_is_refused() -> None:
    """A source inside a head is taken at its pattern only: anything else would be evaluated wrongly."""
    arch = sc.attention_only((1,), biases=["b_V"])
    program = readout(arch, "stream").sides[0]
    b_v = program[1].sources[0]
    bad = Source(b_v.name, b_v.core, (), b_v.right, Head(0, 0))  # its pattern is forgotten
    broken = (program[0], Layer(program[1].branches, (bad,)))
    run = random_model(arch).run([1, 2])
    tree = HeadTree(unmarked(broken), Matrices(matrices_of(run), Floats()), ())
    with pytest.raises(NotImplementedError, match=r"b_V\[L0H0\] does not enter L0H0 at its pattern"):
        list(tree.blocks(weights_of(tree.paths)))
