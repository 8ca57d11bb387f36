"""Values of sibling paths in head space, with nothing but the program assumed."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.core.architecture import Head
from symcircuits.core.paths import Path, Paths, path_factors, path_scales
from symcircuits.core.programs import Layer, Program, Source, readout
from symcircuits.core.walk import Mark, Matrices
from symcircuits.core.words import Factor, scalar_argument
from symcircuits.model import matrices_of, random_model
from symcircuits.values.engine import Span
from symcircuits.values.factors import RunFactors
from symcircuits.values.sibling_reads import pieces
from symcircuits.values.siblings import SiblingPaths
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
def trees(draw: st.DrawFn) -> tuple[Program, dict[str, Any], Any, tuple[int, ...]]:
    """A side's program, all matrices written out, a run's own, and batch axes."""
    arch, target = draw(cases(max_terms=150))
    sizes = {k: draw(st.integers(1, 4)) for k in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    model = random_model(arch, **sizes, seed=draw(st.integers(0, 50)))
    batch = draw(st.sampled_from([(), (2,)]))
    tokens = np.random.default_rng(0).integers(0, sizes["d_vocab"], (*batch, draw(st.integers(1, 4))))
    run = model.run(tokens)
    return (
        draw(st.sampled_from(readout(arch, target).sides)),
        matrices_of(run) | {"t": run.arrays["t"]},
        RunFactors(run),
        batch,
    )


def of_all(paths: Paths, weights: dict[Mark, int], matrices: Any, batch: tuple[int, ...], n: int) -> list[Any]:
    """The values of the paths with weight: those that differ in their last head together."""
    found = []
    for piece in pieces(SiblingPaths(paths, matrices, batch, n), weights):
        assert len(piece.marks) == len(piece.values) > 0
        assert piece.finite
        found += [v.reshape(*batch, *v.shape[-2:]) for v in piece.values]
    return found


@given(tree=trees())
def test_values_are_the_products_of_the_factors(
    tree: tuple[Program, dict[str, Any], Any, tuple[int, ...]],
) -> None:
    program, matrices, factors, batch = tree
    paths, n = unmarked(program), matrices["t"].shape[-2]
    values = of_all(paths, weights_of(paths), Matrices(factors, Floats()), batch, n)
    for path, value in zip(paths.iterate(weights_of(paths)), values, strict=True):
        wanted = product(path_factors(program, path), matrices)
        for scalar in path_scales(program, path):
            wanted = matrices[scalar_argument(scalar)] * wanted
        assert value.shape == batch + wanted.shape[-2:]
        np.testing.assert_allclose(value, np.broadcast_to(wanted, value.shape), rtol=1e-9, atol=1e-12)
    assert len(values) == sum(paths.counts.values())


@given(tree=trees(), data=st.data())
def test_paths_without_weight_are_left_out(
    tree: tuple[Program, dict[str, Any], Any, tuple[int, ...]], data: st.DataObject
) -> None:
    program, matrices, factors, batch = tree
    heads = [b.head for layer in program for b in layer.branches if b.head]
    chosen = data.draw(st.sets(st.sampled_from(heads))) if heads else set()
    paths = Paths(
        program, dict.fromkeys(chosen, 1), {s.name: 2 * (s.kind == "embed") for layer in program for s in layer.sources}
    )
    weights = {mark: data.draw(st.integers(0, 1)) for mark in paths.counts}
    ring, n = Matrices(factors, Floats()), matrices["t"].shape[-2]
    everything = dict(
        zip(
            [p.label for p in paths.iterate(weights_of(paths))],
            of_all(paths, weights_of(paths), ring, batch, n),
            strict=True,
        )
    )
    kept = [p.label for p in paths.iterate(weights)]
    for label, value in zip(kept, of_all(paths, weights, ring, batch, n), strict=True):
        np.testing.assert_allclose(value, everything[label], rtol=1e-12, atol=1e-14)


def test_narrower_heads_with_sources_of_their_own() -> None:
    """A value bias enters a head at its pattern, in head space, where some heads have fewer dimensions than others."""
    arch = sc.transformer((2, 2), norm="RMS", biases=["b_V"])
    model = random_model(arch, d_vocab=9, d_model=5, d_head=3, seed=2)
    rng, narrow = np.random.default_rng(0), dict(model.weights)
    for head in ("L0H1", "L1H0"):
        narrow |= {f"W_{kind}_{head}": rng.normal(size=(2, 5)) for kind in "QKV"}
        narrow |= {f"W_O_{head}": rng.normal(size=(5, 2)), f"b_V_{head}": rng.normal(size=2)}
    run = dataclasses.replace(model, weights=narrow).run([[1, 2, 3], [4, 4, 2]])
    paths, written = unmarked(readout(arch, "logits").sides[0]), matrices_of(run) | {"t": run.arrays["t"]}
    found = of_all(paths, weights_of(paths), Matrices(RunFactors(run), Floats()), (2,), 3)
    wanted = [product(path_factors(paths.program, path), written) for path in paths.iterate(weights_of(paths))]
    assert len(found) == len(wanted) > 9
    for value, one in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, np.broadcast_to(one, value.shape), rtol=1e-9, atol=1e-12)


def test_paths_through_no_head_that_lie_before_are_passed_over() -> None:
    """Each counts as many terms as it has weight; one that a range begins within is not passed over."""
    arch = sc.attention_only((1,), "standard", ["b_O"])
    run = random_model(arch, seed=1).run([1, 2])
    paths = unmarked(readout(arch, "logits").sides[0])
    [mark] = {paths.mark(Path(source)) for source in paths.direct}
    assert len(paths.direct) == 3
    for start, kept, inside in ((0, None, 0), (1, None, 1), (2, [1, 2], 0), (5, [2], 1), (6, [], 0), (7, [], 1)):
        span = Span(start)
        found, marks = SiblingPaths(paths, Matrices(RunFactors(run), Floats()), (), 2, span).kept_direct({mark: 2})
        assert (found, marks) == (kept, [mark] * len([0, 1, 2] if kept is None else kept))
        assert (span.left, span.inside) == (0, inside)


def test_a_readout_before_a_layer_of_heads_is_refused() -> None:
    program = readout(sc.attention_only((1, 1)), "logits").sides[0]
    early = (program[0], program[-1], program[1])
    with pytest.raises(NotImplementedError, match="readouts are taken at the end of a program only"):
        of_all(unmarked(early), {}, Matrices({}, Floats()), (), 1)


def test_a_readout_in_the_middle_is_refused() -> None:
    program = readout(sc.attention_only((1,)), "logits").sides[0]
    with pytest.raises(NotImplementedError):
        of_all(unmarked((*program, program[1])), {}, Matrices({}, Floats()), (), 1)


def test_a_source_that_enters_a_head_elsewhere_is_refused() -> None:
    """A source inside a head is taken at its pattern only: anything else would be evaluated wrongly."""
    arch = sc.attention_only((1,), biases=["b_V"])
    program = readout(arch, "stream").sides[0]
    b_v = program[1].sources[0]
    bad = Source(b_v.name, b_v.core, (), b_v.right, Head(0, 0))  # its pattern is forgotten
    broken = (program[0], Layer(program[1].branches, (bad,)))
    run = random_model(arch).run([1, 2])
    matrices = Matrices(matrices_of(run), Floats())
    with pytest.raises(NotImplementedError, match=r"b_V\[L0H0\] does not enter L0H0 at its pattern"):
        of_all(unmarked(broken), weights_of(unmarked(broken)), matrices, (), 2)
