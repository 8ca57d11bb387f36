"""Bounds on partial paths against their formulas, by loops over heads and over paths: no smaller, and hardly larger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import symcircuits as sc
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.budgets import Budget
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.search import bounds as module
from symcircuits.search.best_first import Search, Tree
from symcircuits.search.magnitudes import fewer_columns, largest_row_sum, size_and_roundings, spectral
from symcircuits.search.pairs import Pairs, pair_sizes
from symcircuits.search.suffixes import Functional
from symcircuits.search.trees import trees
from symcircuits.values.measure import Measure
from symcircuits.work.pools import OutOfTime

Array = npt.NDArray[Any]
WIDER = 0.021  # spectral norms are bounded within two percent


def tree_of(
    target: str = "logits", by: Measure | None = None, tokens: Any = (3, 1, 4, 1), order: int | None = None, **more: Any
) -> Tree:
    arch = sc.transformer((2, 3, 1), norm="LN", biases=True, multipliers=["r[L1]"], **more)
    run: Run = sc.random_model(arch, d_model=6, d_head=2, d_vocab=7, seed=3).run(tokens)
    expansion = sc.expand(arch, target)
    expansion = expansion if order is None else expansion.order(order)
    asked = (sc.norm() if by is None else by).on(expansion, run, one_row=True)
    return trees(asked, expansion, run, Budget())[0]


def entering(tree: Tree, h: int) -> list[Array]:
    """What each source writes into a head's values, before its pattern: ``[batch, n, d_head]``."""
    net = tree.net
    scale = net.scales[h][..., None]
    by_stream = [(value @ net.reads[h]) * scale for at, _, value, _ in net.sources if at < net.layer_of[h]]
    return by_stream + [value for _, value, _ in net.inside.get(h, [])]


def paths_into(tree: Tree, h: int) -> dict[int, list[Array]]:
    """The values of all paths into a head, behind its pattern, by order (heads up to this one)."""
    net, found = tree.net, dict[int, list[Array]]()
    found[1] = [net.patterns[h] @ value for value in entering(tree, h)]
    for g in range(net.first[net.layer_of[h]]):
        link = net.writes[g] @ net.reads[h]
        for order, values in paths_into(tree, g).items():
            through = [net.patterns[h] @ ((value @ link) * net.scales[h][..., None]) for value in values]
            found.setdefault(order + 1, []).extend(through)
    return found


def by_formula(tree: Tree) -> tuple[list[Array], list[Array]]:
    """For each head, ``max(sources, max over heads)`` of the rows' norms, and the same with sums."""
    net, largest, sums = tree.net, list[Array](), list[Array]()
    for h in range(len(net.heads)):
        norms = [np.linalg.norm(value, axis=-1) for value in entering(tree, h)]
        most, total = np.max(norms, axis=0), np.sum(norms, axis=0)
        for g in range(net.first[net.layer_of[h]]):
            size = np.linalg.norm(net.writes[g] @ net.reads[h], 2)
            most = np.maximum(most, size * largest[g] * np.abs(net.scales[h]))
            total = total + size * sums[g] * np.abs(net.scales[h])
        largest.append((np.abs(net.patterns[h]) @ most[..., None])[..., 0])
        sums.append((np.abs(net.patterns[h]) @ total[..., None])[..., 0])
    return largest, sums


def hardly_above(found: Any, wanted: Any, wider: float) -> None:
    assert np.shape(found) == np.shape(wanted)
    assert np.all(np.asarray(found) >= np.asarray(wanted) * (1 - 1e-12))
    assert np.all(np.asarray(found) <= np.asarray(wanted) * (1 + wider) + 1e-13)


@pytest.mark.parametrize("target", ["logits", "scores:L2H0"])
@pytest.mark.parametrize("tokens", [(3, 1, 4, 1), [[3, 1, 4, 1], [5, 2, 6, 5]]])
def test_bounds_are_those_of_the_formulas(target: str, tokens: Any) -> None:
    tree = tree_of(target, tokens=tokens)
    found, (largest, sums) = tree.bounds, by_formula(tree)
    [mark] = found.counts
    depth = len(tree.net.layers)
    for h in range(len(tree.net.heads)):
        every = [value for values in paths_into(tree, h).values() for value in values]
        assert found.counts[mark][h] == len(every)
        hardly_above(found.largest[mark][h], largest[h], depth * WIDER)
        hardly_above(found.sums[mark][h], sums[h], depth * WIDER)
        assert np.all(found.largest[mark][h] * (1 + 1e-12) >= [np.linalg.norm(value, axis=-1) for value in every])


@pytest.mark.parametrize("chunk", [2**19, 50, 1])
@pytest.mark.parametrize("order", [None, 2])
def test_second_moments_are_sums_over_all_paths(order: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By order where orders are asked for; rounding is allowed little beside them."""
    monkeypatch.setattr(module, "_CHUNK", chunk)
    tree = tree_of(order=order)
    found, n = tree.bounds, len(tree.net.tokens)
    assert found.moments is not None
    for h in range(len(tree.net.heads)):
        by_mark: dict[Mark, list[Array]] = {}
        for length, values in paths_into(tree, h).items():
            if order is None or length <= order:
                by_mark.setdefault(tree.net.fold(length, 0), []).extend(values)
        assert {mark for mark in found.counts if found.counts[mark][h]} == set(by_mark)
        for mark, values in by_mark.items():
            wanted = sum(np.einsum("xtb,xsa->xbtsa", value, value) for value in values)
            shape = found.moments[mark][h].shape
            assert shape == (1, 2, n * n, 2)
            size = float(np.linalg.norm(wanted))
            np.testing.assert_allclose(found.moments[mark][h], wanted.reshape(shape), atol=1e-12 * size)
            assert found.sizes[mark][h] == pytest.approx(size, rel=1e-10)
            assert 0 < found.off_moments[mark][h] < 1e-10 * size


@pytest.mark.parametrize("by", [None, sc.logit(1, position=3)])
def test_what_a_suffix_reads_of_a_head_is_bounded_by_rows_and_columns(by: Measure | None) -> None:
    """``| |L| rows | ||O_f R||_2`` of the largest, ``sum |L| rows ||O_f R||_2`` of the sums."""
    tree = tree_of(by=by)
    net, found = tree.net, tree.bounds
    suffix, _ = tree.expand(tree.root, 5)
    for read in (tree.root, suffix):
        _, counts, largest, sums = found.met(tree.wanted, read.mark)
        [mark] = found.counts
        assert counts == found.counts[mark]
        np.testing.assert_array_equal(largest, found.largest[mark])
        np.testing.assert_array_equal(sums, found.sums[mark])
        pairwise, cols = found.pairwise(read, largest)
        summed = found.summed(read, sums)
        assert len(pairwise) == len(cols) == len(summed) == read.limit
        for f in range(read.limit):
            written = net.writes[f] @ read.cols
            np.testing.assert_allclose(cols[f], written, atol=1e-12)
            size, rows = np.linalg.norm(written, 2), np.abs(read.rows)
            hardly_above(pairwise[f], np.linalg.norm(rows @ largest[f][..., None]) * size, WIDER)
            hardly_above(summed[f], np.sum(rows @ sums[f][..., None]) * size, WIDER)


@pytest.mark.parametrize("by", [None, sc.logit(1, position=3), sc.logit(1, against=2, position=2)])
def test_squares_behind_a_head_are_those_of_all_paths(by: Measure | None) -> None:
    """And the bound on their root is no wider than rounding makes it."""
    tree = tree_of(by=by)
    suffix, _ = tree.expand(tree.root, 5)
    for read in (tree.root, suffix):
        marks = tree.bounds.met(tree.wanted, read.mark)[0]
        for f in range(read.limit):
            cols = tree.net.writes[f] @ read.cols
            every = [value for values in paths_into(tree, f).values() for value in values]
            total = sum(float(np.sum((read.rows @ value @ cols) ** 2)) for value in every)
            squares, root = tree.bounds.mass(read, f, cols, marks)
            assert squares == pytest.approx(total, rel=1e-9)
            whole = sum(float(tree.bounds.sizes[mark][f]) for mark in marks)
            wide = float(np.linalg.norm(read.rows) * np.linalg.norm(cols)) * np.sqrt(whole)
            assert np.sqrt(total) <= root <= np.sqrt(total + 1e-10 * wide**2) + 1e-10 * wide


def test_errors_of_rows_and_columns_widen_the_bounds() -> None:
    """``off_rows`` a row's sum of absolute values, ``off_cols`` a Frobenius norm: as much as they can do."""
    tree = tree_of()
    net, found, root = tree.net, tree.bounds, tree.root
    [mark] = found.counts
    largest, sums = found.largest[mark], found.sums[mark]
    off = Functional(root.rows, root.cols, 0.5, 0.25, root.mark, root.limit, root.layer)
    pairwise, summed = found.pairwise(off, largest)[0], found.summed(off, sums)
    rows, n = np.abs(root.rows), len(net.tokens)
    for f in range(root.limit):
        size = np.linalg.norm(net.writes[f] @ root.cols, 2) + 0.25 * np.linalg.norm(net.writes[f], 2)
        one = np.linalg.norm(rows @ largest[f][..., None]) + np.sqrt(n) * 0.5 * largest[f].max()
        hardly_above(pairwise[f], one * size, WIDER)
        hardly_above(summed[f], (np.sum(rows @ sums[f][..., None]) + n * 0.5 * sums[f].sum()) * size, WIDER)
    for f in range(root.limit):
        cols = net.writes[f] @ root.cols
        squares, root_of = found.mass(off, f, cols, [mark])
        norm_rows, norm_cols = np.linalg.norm(root.rows), np.linalg.norm(cols)
        off_cols = 0.25 * np.linalg.norm(net.writes[f], 2)
        wrong = np.sqrt(n) * 0.5 * (norm_cols + off_cols) + norm_rows * off_cols
        hardly_above(root_of, np.sqrt(squares) + np.sqrt(found.sizes[mark][f]) * wrong, WIDER)


def test_errors_of_sources_and_of_weights_are_carried_from_layer_to_layer() -> None:
    """As they can be multiplied at most: second moments by the square of what heads do to values."""
    tree = tree_of()
    net, n = tree.net, len(tree.net.tokens)
    net.sources = [(at, source, value, 0.125) for at, source, value, _ in net.sources]
    net.inside = {h: [(source, value, 0.25) for source, value, _ in some] for h, some in net.inside.items()}
    net.off_reads = np.full(len(net.heads), 0.0625)
    found, off_moments = module.Bounds(net, lambda mark: True, True, Budget()), list[float]()
    [mark] = found.counts
    for h in range(len(net.heads)):
        scale, reads = np.abs(net.scales[h]).max(), np.linalg.norm(net.reads[h])
        here, norms = 0.0, list[Array]()
        for at, _, value, _ in net.sources:
            if at < net.layer_of[h]:
                wide = np.linalg.norm(value, axis=-1).max() + 0.125
                off = scale * (0.0625 * wide + 0.125 * reads)
                read = (value @ net.reads[h]) * net.scales[h][..., None]
                wrong = off * np.sqrt(n)
                here += (2 * np.linalg.norm(read) + wrong) * wrong
                norms.append(np.linalg.norm(read, axis=-1) + off)
        for _, value, _ in net.inside.get(h, []):
            wrong = 0.25 * np.sqrt(n)
            here += (2 * np.linalg.norm(value) + wrong) * wrong
            norms.append(np.linalg.norm(value, axis=-1) + 0.25)
        most = np.max(norms, axis=0)
        for g in range(net.first[net.layer_of[h]]):
            size = np.linalg.norm(net.writes[g] @ net.reads[h], 2) + 0.0625 * np.linalg.norm(net.writes[g], 2)
            more = 2 * size * 0.0625 * np.linalg.norm(net.writes[g]) * found.sizes[mark][g]
            here += scale**2 * (size**2 * off_moments[g] + more)
            most = np.maximum(most, size * found.largest[mark][g] * np.abs(net.scales[h]))
        pattern = np.abs(net.patterns[h])
        off_moments.append(here * pattern.sum(-1).max() * pattern.sum(-2).max())
        hardly_above(found.off_moments[mark][h], off_moments[h], 6 * WIDER)
        hardly_above(found.largest[mark][h], (pattern @ most[..., None])[..., 0], WIDER)


def test_no_bound_is_made_when_time_is_up() -> None:
    tree = tree_of()
    with pytest.raises(OutOfTime):
        module.Bounds(tree.net, lambda mark: True, True, Budget(max_seconds=0))


# -------------------------------------------------------------------------------------------- suffixes grown
def test_a_suffix_through_one_more_head_is_a_product_more() -> None:
    """Of rows with the pattern and the norm, of columns with what the head writes and reads; errors are carried on."""
    tree = tree_of(by=sc.logit(1, position=3))
    net, root = tree.net, tree.root
    off = Functional(root.rows, root.cols, 0.5, 0.25, root.mark, root.limit, root.layer)
    for f in range(root.limit):
        for found, wrong_rows, wrong_cols in ((root, 0.0, 0.0), (off, 0.5, 0.25)):
            inner, outer = net.through(found, f)
            written = net.writes[f] @ root.cols
            np.testing.assert_allclose(inner.rows, root.rows @ net.patterns[f], atol=1e-14)
            np.testing.assert_allclose(inner.cols, written, atol=1e-14)
            np.testing.assert_allclose(outer.rows, inner.rows * net.scales[f][:, None, :], atol=1e-14)
            np.testing.assert_allclose(outer.cols, net.reads[f] @ written, atol=1e-13)
            for one in (inner, outer):
                assert (one.mark.order, one.heads, one.layer) == (0, (f,), net.layer_of[f])
                assert one.limit == net.first[net.layer_of[f]]
            rows = wrong_rows * np.abs(net.patterns[f]).sum(-1).max()
            cols = wrong_cols * np.linalg.norm(net.writes[f], 2)
            hardly_above(inner.off_rows, rows, WIDER)
            hardly_above(inner.off_cols, cols, WIDER)
            hardly_above(outer.off_rows, rows * np.abs(net.scales[f]).max(), WIDER)
            hardly_above(outer.off_cols, cols * np.linalg.norm(net.reads[f], 2), 2.1 * WIDER)
            assert min(inner.off_rows, inner.off_cols, outer.off_rows, outer.off_cols) > 0


def test_what_is_read_of_a_source_is_right_to_what_is_said() -> None:
    """``rows X cols``, and how far errors of rows, of columns and of X can move it."""
    tree = tree_of()
    net, root, n = tree.net, tree.root, len(tree.net.tokens)
    read = Functional(root.rows, root.cols, 0.5, 0.25, root.mark, root.limit, root.layer)
    row_sum = float(np.abs(root.rows).sum(-1).max()) + 0.5
    assert read.count == pytest.approx(np.sqrt(n))
    hardly_above(read.row_sum, row_sum, 1e-12)
    hardly_above(read.size, np.linalg.norm(root.cols) + 0.25, 1e-12)
    values = np.random.default_rng(0).standard_normal((3, 1, n, net.d_model))
    for value, found in zip(values, net.apply(read, values), strict=True):
        np.testing.assert_allclose(found, root.rows @ value @ root.cols, atol=1e-13)
    size = float(np.linalg.norm(root.cols))
    for most, off in ((2.0, 0.0), (0.0, 0.1), (2.0, 0.1)):
        exact = np.sqrt(n) * ((0.5 * (size + 0.25) + row_sum * 0.25) * most + row_sum * (size + 0.25) * off)
        hardly_above(net.off_applied(read, most, off), exact, 1e-12)


def test_arrays_of_a_program_are_those_of_the_run() -> None:
    """What heads read and write, and how large it is at most; heads of one layer are before those of the next."""
    tree = tree_of(tokens=[[3, 1, 4, 1], [5, 2, 6, 5]])
    net = tree.net
    assert (net.batch, net.d_head, net.first, net.layer_of) == (2, 2, [0, 0, 2, 5, 6], [1, 1, 2, 2, 2, 3])
    assert [str(head) for head in net.heads] == ["L0H0", "L0H1", "L1H0", "L1H1", "L1H2", "L2H0"]
    hardly_above(net.reads_norm, np.linalg.norm(net.reads, axis=(1, 2)), 1e-13)
    hardly_above(net.writes_norm, np.linalg.norm(net.writes, axis=(1, 2)), 1e-13)
    hardly_above(net.reads_size, np.linalg.norm(net.reads, 2, axis=(1, 2)), WIDER)
    hardly_above(net.writes_size, np.linalg.norm(net.writes, 2, axis=(1, 2)), WIDER)
    hardly_above(net.pattern_sums, np.ones(6), 1e-13)
    for found, of in ((net.reads_norm, net.reads), (net.writes_norm, net.writes)):
        assert np.all(found > np.linalg.norm(of, axis=(1, 2)))  # by what rounding can do
    assert np.all((net.off_reads > 0) & (net.off_reads < 1e-13 * net.reads_norm))


def test_what_is_no_product_is_exact() -> None:
    """Embeddings, positions and biases as they stand, and weights that are read through no norm."""
    arch = sc.attention_only((2, 1), "standard", biases=["b_O", "b_V"])
    run = sc.random_model(arch, d_model=6, d_head=2, seed=3).run([3, 1, 4])
    expansion = sc.logits(arch)
    net = trees(sc.norm().on(expansion, run, one_row=True), expansion, run, Budget())[0].net
    assert [source.name for _, source, _, _ in net.sources] == ["embed", "pos", "b_O[L0]", "b_O[L1]"]
    assert [off for *_, off in net.sources] == [0.0] * 4
    assert net.off_reads.tolist() == [0.0] * 3
    assert [off for some in net.inside.values() for *_, off in some] == [0.0] * 3


def test_a_product_of_the_readout_rounds() -> None:
    """And carries on the error of what it is multiplied by, as the factor can enlarge it."""
    net = tree_of().net
    rng = np.random.default_rng(0)
    matrix, cols = rng.standard_normal((4, 7)), rng.standard_normal((7, 3))
    size, whole = float(np.linalg.norm(matrix)), float(np.linalg.norm(cols))
    assert 2.0**-53 * size * whole < net._off_product(matrix, cols, 0.0) < 1e-13 * size * whole
    hardly_above(net._off_product(matrix, cols, 0.5), 0.5 * size, 1e-12)


# ------------------------------------------------------------------------------------------------- magnitudes
def test_columns_are_made_fewer_where_they_are_more_than_rows() -> None:
    """With the same lengths of what is read; what that rounds is said."""
    rng = np.random.default_rng(0)
    for rows, columns in ((3, 3), (4, 3), (3, 1)):
        cols = rng.standard_normal((rows, columns))
        found, off = fewer_columns(cols)
        assert found is cols
        assert off == 0.0
    cols = rng.standard_normal((3, 7))
    found, off = fewer_columns(cols)
    assert found.shape == (3, 3)
    np.testing.assert_allclose(found @ found.T, cols @ cols.T, atol=1e-13)
    assert 2.0**-53 * np.linalg.norm(cols) < off < 1e-12 * np.linalg.norm(cols)


def test_sizes_of_factors_are_no_larger_than_they_need_be() -> None:
    """Frobenius norms of matrices, the largest entry of a diagonal, two of what takes the mean away."""
    matrix = np.random.default_rng(0).standard_normal((4, 7))
    size, roundings = size_and_roundings(matrix)
    hardly_above(size, np.linalg.norm(matrix), 1e-13)
    assert roundings == 14
    assert size_and_roundings(matrix.T)[1] == 14
    assert size_and_roundings(Centring(9)) == (2.0, 22)
    assert size_and_roundings(Diagonal(np.array([[0.5, -2.0]]))) == (2.0, 1)
    hardly_above(largest_row_sum(matrix), np.abs(matrix).sum(-1).max(), 1e-13)
    for shape in ((2, 5, 3), (2, 3, 5), (2, 1, 4), (2, 4, 1)):
        matrices = np.random.default_rng(1).standard_normal(shape)
        hardly_above(spectral(matrices), np.linalg.norm(matrices, 2, axis=(1, 2)), 0.02)


# ------------------------------------------------------------------------------------------------------ pairs
def some_pairs(by: Measure, keep: int = 2, positions: str | None = None) -> Pairs:
    """Of the scores of a head of the second layer, before any path has been taken."""
    run = sc.random_model(sc.attention_only((3, 2), positions), d_model=6, d_head=2, seed=3).run([3, 1, 4])
    expansion = sc.scores(run.model.architecture, "L1H0")
    asked = by.on(expansion, run, one_row=True)
    return Pairs(trees(asked, expansion, run, Budget()), asked.kind, run, expansion, keep)


def test_sizes_of_pairs_are_those_of_their_products() -> None:
    """Of a query with several keys, and of a key with several queries."""
    pairs = some_pairs(sc.norm())
    rng = np.random.default_rng(0)
    one, many, mask = rng.standard_normal((1, 3, 2)), rng.standard_normal((4, 1, 3, 2)), np.tril(np.ones((3, 3)))
    for side in (0, 1):
        products = [one[0] @ other[0].T if side == 0 else other[0] @ one[0].T for other in many]
        for by, wanted in (
            ("norm", [np.linalg.norm(product) for product in products]),
            ("masked norm", [np.linalg.norm(product * mask) for product in products]),
        ):
            np.testing.assert_allclose(pair_sizes(by, pairs.run_, pairs.expansion, one, many, side), wanted)
        rows = [float((one[:, :1] * other[:, :1]).sum()) for other in many]
        entries = pair_sizes("score entry", pairs.run_, pairs.expansion, one[:, :1], many[:, :, :1], side)
        np.testing.assert_allclose(entries, rows)


@pytest.mark.parametrize("positions", [None, "rotary"])
def test_paths_are_taken_the_largest_first_with_their_errors(positions: str | None) -> None:
    pairs = some_pairs(sc.norm(), positions=positions)
    for side in pairs.sides:
        assert (side.done, side.bound) == (False, np.inf)
        sizes = list[float]()
        while side.take():
            found, value = side.found[-1], side.values[-1]
            assert side.sizes[-1] == pytest.approx((found.size + found.off) * side.stretch, rel=1e-15, abs=0)
            np.testing.assert_allclose(np.linalg.norm(value), found.size, rtol=1e-12)  # rotations keep lengths
            assert not np.allclose(value, found.value) or positions is None
            sizes.append(found.size)
            assert side.top == max(side.sizes)
            assert side.off == max(one.off for one in side.found)
            assert side.bound <= (found.size + side.off) * side.stretch
        assert sizes == sorted(sizes, reverse=True)
        assert (side.done, side.bound, len(sizes)) == (True, 0.0, 4)
        assert 1.0 <= side.stretch < 1 + 1e-8
    assert pairs.unseen == 0.0


def test_an_error_of_either_path_moves_the_size_of_a_pair() -> None:
    """By as much as the other is large: ``|u| off_v + |v| off_u``, and what the product rounds."""
    pairs = some_pairs(sc.norm(), keep=9)
    this, other = pairs.sides
    for side in (this, other):
        while side.take():
            pass
    for off, off_other in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.25), (0.5, 0.25)):
        pairs.off = 0.0
        this.found[-1] = replace(this.found[-1], off=off)
        other.found = [replace(found, off=off_other) for found in other.found]
        pairs._meet(0)
        wanted = max(this.sizes[-1] * off_other + size * off for size in other.sizes)
        hardly_above(pairs.off, wanted, 1e-12)
        assert pairs.off > wanted
    assert pairs.looked == 16
    best = pairs.best
    assert len(best) == 9
    assert [size for size, *_ in best] == sorted((size for size, *_ in best), reverse=True)
    assert {query.path for _, _, query, _ in best} == {this.found[-1].path}


def test_pairs_that_are_open_are_those_that_may_be_larger() -> None:
    """All before any was looked at; of those with a path that was taken, as many as are not ruled out."""
    pairs = some_pairs(sc.norm(), keep=2)
    assert pairs.open() == pairs.expansion.count == 16
    pairs.run()
    sizes = sorted((float(np.linalg.norm(value)) for value in sc.evaluate(pairs.expansion, pairs.run_)), reverse=True)
    np.testing.assert_allclose([size for size, *_ in pairs.best], sizes[:2], rtol=1e-12)
    assert pairs.open() == 0
    assert pairs.unseen <= pairs.best[-1][0]
    early = some_pairs(sc.norm(), keep=16)
    for side in early.sides:
        side.take()
    early._meet(0)
    assert early.looked == 1
    assert early.open() == 15


# ------------------------------------------------------------------------------------------------- the search
@pytest.mark.parametrize("most", [0, 1, 2, 7])
def test_each_partial_path_that_is_expanded_is_counted_once(most: int) -> None:
    """The empty one first; with one source and no bias each gives one term."""
    run = sc.random_model(sc.attention_only((3, 3, 3)), d_model=6, d_head=2, seed=3).run([3, 1, 4])
    values = sc.evaluate(sc.logits(run.model.architecture), run)
    found = values.largest(20, max_expansions=most)
    assert (found.expansions, found.looked, len(found.terms)) == (most, most, most)
    assert found.reached == f"max_expansions ({most})"
    assert found.looked + found.excluded + found.open == 64
    whole = values.largest(64)
    assert (whole.expansions, whole.looked, whole.open, whole.reached) == (64, 64, 0, "")


def test_a_path_is_given_when_nothing_open_can_be_larger() -> None:
    """One after the other; what was looked at and not given is the rest, the largest first."""
    tree = tree_of(by=sc.logit(1, position=3))
    search, sizes = Search(tree), list[float]()
    total = tree.count
    while len(sizes) < 5:
        one = search.next()
        assert one is not None
        sizes.append(one.size)
        assert search.bound <= one.size
        assert search.unseen <= one.size
        rest = [found.size for found in search.rest()]
        assert rest == sorted(rest, reverse=True)
        assert all(size <= one.size for size in rest)
        assert search.looked == len(sizes) + len(rest)
        assert search.open(-1.0) == total - search.looked
        assert search.open(one.size) == 0
    assert sizes == sorted(sizes, reverse=True)
    while (one := search.next()) is not None:
        sizes.append(one.size)
    assert (len(sizes), search.looked, search.bound, search.unseen, search.rest()) == (total, total, 0.0, 0.0, [])


def test_of_so_many_that_are_asked_for_the_others_are_left_out() -> None:
    """Not pushed where as many larger ones are known; the largest bound of these is kept."""
    every, few = Search(tree_of(by=sc.logit(1, position=3))), Search(tree_of(by=sc.logit(1, position=3)), 3)
    best = [one.size for one in iter(every.next, None)]
    found = [few.next() for _ in range(3)]
    assert [one.size for one in found if one is not None] == best[:3]
    assert 0 < few.left <= best[2]
    assert few.unseen <= best[2]
    assert few.looked < every.looked


@pytest.mark.parametrize(("target", "by"), [("logits", sc.norm()), ("logits", sc.logit(1)), ("scores:L1H0", sc.norm()),
                                            ("scores:L1H0", sc.score_entry(2, 1))])  # fmt: skip
def test_where_all_terms_are_listed_nothing_is_left(target: str, by: Measure) -> None:
    """Not what is left of rounding."""
    run = sc.random_model(sc.attention_only((3, 3)), d_model=6, d_head=2, seed=3).run([3, 1, 4])
    values = sc.evaluate(sc.expand(run.model.architecture, target), run)
    found = values.largest(1000, by)
    assert len(found.terms) == 16
    assert found.remainder == 0.0
    assert found.listed == pytest.approx(found.total, rel=1e-12)
    assert values.largest(15, by).remainder != 0.0
