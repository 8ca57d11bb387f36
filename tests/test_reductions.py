"""Norms, contributions, score entries and streamed scores of all terms, against `evaluate` term by term."""

import dataclasses
import itertools
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.core.expansion import Expansion, expand
from symcircuits.model import Run, random_model
from symcircuits.values import endings as term_entries
from symcircuits.values import engine, run_arithmetic
from symcircuits.values import pairs as pairs_module
from symcircuits.values import siblings as fans
from symcircuits.values import unembedding as compact
from tests.strategies import cases, examples, selections

pytestmark = pytest.mark.usefixtures("by_the_tree")

Array = npt.NDArray[Any]


@st.composite
def runs(draw: st.DrawFn, scores: bool | None = None) -> tuple[Expansion, Run]:
    """Any expansion, selected or not, and a run: every feature, batch axes or not, both types."""
    arch, target = draw(cases(max_terms=300).filter(lambda c: scores is None or c[1].startswith("scores") == scores))
    sizes = {k: draw(st.integers(1, 5)) for k in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    model = random_model(arch, **sizes, n_context=6, seed=draw(st.integers(0, 99)))
    n, batch = draw(st.integers(1, 6)), draw(st.sampled_from([(), (1,), (3,)]))
    tokens = np.random.default_rng(draw(st.integers(0, 99))).integers(0, sizes["d_vocab"], (*batch, n))
    expansion = expand(arch, target)
    for chosen in draw(st.lists(selections(arch, target), max_size=2)):
        expansion = chosen.select(expansion)
    try:
        return expansion, model.run(tokens, draw(st.sampled_from([np.float64, np.float64, np.float32])))
    except ValueError as fault:  # without softmax numbers grow with every layer
        if "leave the range of float32" in str(fault):
            reject()
        raise


def put_together(expansion: Expansion, blocks: Iterable[Any], batch: tuple[int, ...], size: int) -> Array:
    """The numbers of all terms; blocks are numbered and cut as those of `expansion.blocks()`."""
    found = list(blocks)
    starts = list(range(0, expansion.count, size))
    assert [b.start for b in found] == starts
    assert [len(b.values) for b in found] == [min(size, expansion.count - s) for s in starts]
    return np.concatenate([b.values for b in found]) if found else np.zeros((0, *batch))


def assert_alike(found: Array, wanted: Array, run: Run, size: Any) -> None:
    """Equal but for rounding of numbers of that size."""
    assert found.shape == wanted.shape
    eps = float(np.finfo(run.dtype).eps)
    assert np.all(np.abs(found - wanted) <= 2000 * eps * (1e-3 + np.abs(size)))


def listed(expansion: Expansion, run: Run) -> Array:
    """All terms by `evaluate`, in float64."""
    shape = sc.evaluate(expansion, run).total().shape
    values = [np.asarray(v, np.float64) for v in sc.evaluate(expansion, run)]
    return np.array(values).reshape(len(values), *shape)


def largest_of(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


# -------------------------------------------------------------------------------------------------- norms
@examples(80)
@given(runs(), st.integers(1, 40), st.booleans())
def test_norms_are_those_of_the_terms(drawn: tuple[Expansion, Run], size: int, masked: bool) -> None:
    expansion, run = drawn
    bilinear = expansion.readout.bilinear
    masked &= bilinear
    values = listed(expansion, run)
    if masked:
        assert expansion.readout.head is not None
        values = values * run.masks[f"L{expansion.readout.head.layer}"]
    batch = tuple(run.tokens.shape[:-1])
    found = put_together(expansion, sc.evaluate(expansion, run).measure(sc.norm(masked=masked), size=size), batch, size)
    assert found.dtype == np.float64
    wanted = np.linalg.norm(values, axis=(-1, -2))
    tolerance = largest_of(wanted)
    if bilinear:  # Gram matrices: squares, so that what nearly cancels is known to the root of a unit of |Q| |K| only
        most = bound_of_pairs(expansion, run)
        squares = np.abs(found**2 - wanted**2)
        assert found.shape == wanted.shape
        assert np.all(squares <= 2000 * float(np.finfo(run.dtype).eps) * (1e-6 + most**2))
        return
    assert_alike(found, wanted, run, tolerance + 1)


def bound_of_pairs(expansion: Expansion, run: Run) -> float:
    """The largest |Q| |K|."""
    values = sc.evaluate(expansion, run)
    most = 1.0
    for side, weights in enumerate((expansion._weights, dict.fromkeys(expansion.sides[1].counts, 1))):
        sizes = [
            np.linalg.norm(b, axis=(-1, -2)).max(initial=0) for _, b in pairs_module.side_blocks(values, side, weights)
        ]
        most *= max(sizes, default=0.0)
    return float(most)


def model_of(heads: tuple[int, ...] = (2, 3, 2), **more: Any) -> Run:
    sizes = {"d_vocab": 30, "d_model": 8, "d_head": 3} | more
    model = random_model(sc.attention_only(heads, "standard", ["b_V"]), **sizes, seed=2)
    return model.run(np.arange(9) % 7)


def test_masked_norms_both_ways_and_with_keys_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sums over keys, by single terms where heads are wide, and with nothing held."""
    for d_head in (2, 40):
        run = model_of(d_head=d_head)
        terms = sc.scores(run.model.architecture, "L2H1")
        wanted = np.linalg.norm(listed(terms, run) * run.masks["L2"], axis=(-1, -2))
        for held, block in ((2**26, 2**22), (0, 2**22), (0, 1), (2**26, 2**9)):
            monkeypatch.setattr(run_arithmetic, "_KEY_BYTES", held)
            monkeypatch.setattr(pairs_module, "_BLOCK_BYTES", block)
            found = np.concatenate([b.values for b in sc.evaluate(terms, run).measure(sc.norm(masked=True))])
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
            whole = np.concatenate([b.values for b in sc.evaluate(terms, run).measure()])
            assert np.all(whole >= wanted)
            assert whole.sum() > 1.01 * wanted.sum()


def test_norms_refuse_a_term_that_is_not_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above sees one wrong number: a pattern transposed, a triangle without what counts twice."""
    run = model_of()
    terms = sc.scores(run.model.architecture, "L2H1")
    wanted = np.linalg.norm(listed(terms, run), axis=(-1, -2))
    for module, name, wrong in (
        (run_arithmetic, "_packed", lambda outer, cross, right=run_arithmetic._packed: right(outer, 1.0)),
        (
            fans.SiblingPaths,
            "_step",
            lambda s, b, z, i, h, right=fans.SiblingPaths._step: right(s, b, z[:, ::-1], i, h),
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, wrong)
            found = np.concatenate([b.values for b in sc.evaluate(terms, run).measure()])
        assert np.abs(found - wanted).max() > 1e-3 * wanted.max()


def test_numbers_of_any_size() -> None:
    """Squares would leave the range; norms do not."""
    for scale in (1e-180, 1e180):
        model = random_model(sc.attention_only((2, 2)), d_vocab=30, d_model=6, d_head=3, seed=2)
        weights = {**model.weights, "W_U": model.weights["W_U"] * scale}
        run = dataclasses.replace(model, weights=weights).run([1, 2, 3])
        terms = sc.logits(model.architecture)
        plain = model.run([1, 2, 3])
        [found], [small] = sc.evaluate(terms, run).measure(), sc.evaluate(terms, plain).measure()
        np.testing.assert_allclose(found.values / scale, small.values, rtol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("stacked", "parts"), [(0, 1), (0, 4), (0, 3), (2**22, 4)])
def test_heads_of_different_widths_and_patterns_one_by_one(
    stacked: int, parts: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of large patterns, some at a time, meet the keys that they see: all of them where attention looks ahead."""
    monkeypatch.setattr(fans, "_STACKED", stacked)
    monkeypatch.setattr(fans, "_PARTS", parts)
    arch = sc.transformer((2, 2, 1), norm="RMS", biases=["b_O"], multipliers=["r[L0]", "r[L1]"], causal=causal)
    model = random_model(arch, d_vocab=9, d_model=5, d_head=3, seed=2)
    weights, rng = dict(model.weights), np.random.default_rng(0)
    weights |= {f"W_{kind}_L0H1": rng.normal(size=(2, 5)) for kind in "QKV"} | {"W_O_L0H1": rng.normal(size=(5, 2))}
    run = dataclasses.replace(model, weights=weights).run([[1, 2, 3, 4], [4, 4, 2, 0]])
    for terms in (sc.logits(arch), sc.scores(arch, "L2H0"), sc.logits(arch).through("L1H1")):
        [sizes] = sc.evaluate(terms, run).measure()
        np.testing.assert_allclose(sizes.values, np.linalg.norm(listed(terms, run), axis=(-1, -2)), rtol=1e-10)
        if not terms.readout.bilinear:
            for whole in (0, 1 << 12):
                monkeypatch.setattr(term_entries, "_MOST_WHOLE", whole)
                [found] = sc.evaluate(terms, run).measure(sc.logit(2))
                np.testing.assert_allclose(found.values, listed(terms, run)[..., -1, 2], rtol=1e-10, atol=1e-13)


# ------------------------------------------------------------------------------------------ contributions
@examples(80)
@given(runs(scores=False).filter(lambda d: d[0].target != "stream"), st.integers(1, 40), st.data())
def test_contributions_are_entries_of_the_terms(drawn: tuple[Expansion, Run], size: int, data: st.DataObject) -> None:
    expansion, run = drawn
    values = listed(expansion, run)
    position = data.draw(st.integers(-values.shape[-2], values.shape[-2] - 1))
    token = data.draw(st.integers(0, values.shape[-1] - 1))
    against = data.draw(st.sampled_from([None, *(i for i in range(values.shape[-1]) if i != token)]))
    wanted = values[..., position, token] - (0 if against is None else values[..., position, against])
    blocks = sc.evaluate(expansion, run).measure(sc.logit(token, against=against, position=position), size=size)
    found = put_together(expansion, blocks, tuple(run.tokens.shape[:-1]), size)
    assert_alike(found, wanted, run, largest_of(values))


@pytest.mark.parametrize("whole", [0, 30, 1 << 12])
@pytest.mark.parametrize("most", [1, 7, 40, 1 << 14])
def test_contributions_however_endings_are_cut(most: int, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whichever orders read their sources by themselves."""
    model = random_model(sc.attention_only((2, 3, 2, 2), "standard"), d_vocab=30, d_model=8, d_head=30, seed=2)
    run = model.run(np.arange(9) % 7)
    monkeypatch.setattr(term_entries, "_MOST_WHOLE", whole)
    terms = sc.logits(run.model.architecture)
    monkeypatch.setattr(term_entries, "_MOST", most)
    monkeypatch.setattr(term_entries, "_ENDING_BYTES", 2**30 if most > 7 else 0)
    wanted = listed(terms, run)[:, -3, 5]
    found = list(sc.evaluate(terms, run).measure(sc.logit(5, position=-3)))
    np.testing.assert_allclose(found[0].values, wanted, rtol=1e-11, atol=1e-14)
    assert [b.start for b in found] == [0]
    for block, numbers in zip(terms.blocks(50), sc.evaluate(terms, run).measure(sc.logit(5), size=50), strict=True):
        assert (block.start, len(block)) == (numbers.start, len(numbers.values))


@pytest.mark.parametrize("most", [0, 1 << 12])
def test_contributions_refuse_what_they_were_not(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings whose patterns act the other way round, or which read by another head, give other numbers."""
    run = model_of((2, 3, 2, 2))
    terms, behind = sc.logits(run.model.architecture), fans.SiblingPaths.behind
    wanted = listed(terms, run)[:, -1, 5]
    monkeypatch.setattr(term_entries, "_MOST_WHOLE", most)

    def error() -> float:
        [found] = sc.evaluate(terms, run).measure(sc.logit(5))
        return float(np.abs(found.values - wanted).max() / np.abs(wanted).max())

    def turned(self: Any, head: Any, alpha: Array, omega: Array) -> Any:
        return alpha @ self._pattern(head).swapaxes(-1, -2), behind(self, head, alpha, omega)[1]

    def another(self: Any, head: Any, alpha: Array, omega: Array) -> Any:
        other = next(h for layer in self.paths.layer_heads for h in layer if h != head)
        return behind(self, head, alpha, omega)[0], behind(self, other, alpha, omega)[1]

    assert error() < 1e-11
    for wrong in (turned, another):
        monkeypatch.setattr(fans.SiblingPaths, "behind", wrong)
        assert error() > 1e-3


@pytest.mark.parametrize("of", ["stream", "mlp", "added"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_readouts_and_sources_of_ones_own(of: str, dtype: Any) -> None:
    """Directions are what tokens are; a source may stand before, between and after the heads."""
    arch = sc.transformer((2, 2, 1), norm="RMS", mlps=[1], biases=["b_V", "b_U"])
    model = random_model(arch, d_vocab=12, d_model=5, d_head=3, seed=4)
    rng = np.random.default_rng(1)
    part = sc.source("feature", rng.normal(size=(4, 5)), of=of, layer=1)
    own = model.with_(part, sc.readout(rng.normal(size=(3, 5)), "probe", normed=False))
    run = own.run([1, 2, 3, 1], dtype)
    for target in ("readout:probe", "logits"):
        terms = expand(own.architecture, target)
        assert terms.from_source("feature").count
        values = listed(terms, run)
        [found], [sizes] = (
            sc.evaluate(terms, run).measure(sc.logit(2, against=0, position=1)),
            sc.evaluate(terms, run).measure(),
        )
        assert_alike(found.values, values[:, 1, 2] - values[:, 1, 0], run, largest_of(values))
        assert_alike(sizes.values, np.linalg.norm(values, axis=(-1, -2)), run, largest_of(values))
    pairs = sc.scores(own.architecture, "L2H0").from_source("feature")
    [found] = sc.evaluate(pairs, run).measure(sc.norm(masked=True))
    wanted = np.linalg.norm(listed(pairs, run) * run.masks["L2"], axis=(-1, -2))
    assert_alike(found.values, wanted, run, largest_of(wanted))


def test_the_unembedding_is_decomposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a run, and for other runs of the model; never for other weights."""
    model = random_model(sc.attention_only((2, 2)), d_vocab=30, d_model=6, d_head=3, seed=2)
    first, second = model.run([1, 2, 3]), model.run([4, 5])
    list(sc.evaluate(sc.logits(model.architecture), first).measure())
    other = dataclasses.replace(model, weights={**model.weights, "W_U": 2 * model.weights["W_U"]}).run([1, 2, 3])
    [wanted], [twice] = (sc.evaluate(sc.logits(model.architecture), run).measure() for run in (first, other))
    np.testing.assert_allclose(twice.values, 2 * wanted.values)
    monkeypatch.setattr(compact, "_triangle", None)
    for run in (first, second):
        assert len(next(sc.evaluate(sc.logits(model.architecture), run).measure()).values) == 9
    with pytest.raises(TypeError, match="NoneType"):
        list(sc.evaluate(sc.logits(model.architecture), model.run([1, 2, 3], np.float32)).measure())


@pytest.mark.parametrize("name", ["W_U", "b_U"])
def test_an_unembedding_that_is_written_to_is_another(name: str) -> None:
    """A model looks at the arrays that it was given, which somebody may train in place."""
    made = random_model(sc.attention_only((2, 2), biases=["b_U"]), d_vocab=30, d_model=6, d_head=3, seed=2)
    given_arrays = {n: np.array(a) for n, a in made.weights.items()}
    model = sc.Model(made.architecture, given_arrays, made.score_scale)
    terms, kept = sc.logits(model.architecture), []
    for _ in range(3):
        run = model.run([1, 2, 3])
        kept.append(run)  # what was found of it is kept for as long as it is
        for _ in range(2):
            [found] = sc.evaluate(terms, run).measure()
            np.testing.assert_allclose(found.values, [np.linalg.norm(v) for v in sc.evaluate(terms, run)])
        given_arrays[name][1] += 1.0


def test_deep_models_are_read_from_the_start_in_little_memory() -> None:
    """Terms nobody can list: the first of them come at once."""
    run = random_model(sc.attention_only((12,) * 12), d_vocab=20, d_model=16, d_head=2).run([1, 2, 3, 4])
    arch = run.model.architecture
    pairs = sc.scores(arch, "L11H0")
    for ask in (
        lambda: sc.evaluate(sc.logits(arch), run).measure(sc.logit(1), size=5000),
        lambda: sc.evaluate(sc.logits(arch).through("L3H1").order(6), run).measure(sc.logit(1), size=100),
        lambda: sc.evaluate(sc.logits(arch), run).measure(size=500),
        lambda: sc.evaluate(pairs, run).measure(size=500),
        lambda: sc.evaluate(pairs, run).measure(sc.norm(masked=True), size=500),
        lambda: sc.evaluate(pairs, run).measure(sc.score_entry(-1, 0), size=500),
    ):
        tracemalloc.start()
        first, second = itertools.islice(ask(), 2)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert second.start == len(first.values) > 0
        assert most < 100e6


# ------------------------------------------------------------------------------------------------- scores
@examples(80)
@given(runs(scores=True), st.integers(1, 40), st.data())
def test_score_entries(drawn: tuple[Expansion, Run], size: int, data: st.DataObject) -> None:
    expansion, run = drawn
    values, n = listed(expansion, run), run.tokens.shape[-1]
    i, j = data.draw(st.integers(-n, n - 1)), data.draw(st.integers(-n, n - 1))
    blocks = sc.evaluate(expansion, run).measure(sc.score_entry(i, j), size=size)
    found = put_together(expansion, blocks, tuple(run.tokens.shape[:-1]), size)
    assert_alike(found, values[..., i, j], run, largest_of(values))


# ---------------------------------------------------------------------------------------------- bad input
def large(dtype: Any) -> Run:
    """Heads of the first two layers that undo each other: the model computes small numbers, paths leave float32."""
    model = random_model(sc.attention_only((2, 2, 1)), d_vocab=9, d_model=4, d_head=2, seed=3)
    weights = dict(model.weights)
    for layer, size in ((0, 1e20), (1, 1e25)):
        for kind in "QKVO":
            weights[f"W_{kind}_L{layer}H1"] = weights[f"W_{kind}_L{layer}H0"]
        weights[f"W_O_L{layer}H0"] = weights[f"W_O_L{layer}H0"] * size
        weights[f"W_O_L{layer}H1"] = -weights[f"W_O_L{layer}H0"]
    return dataclasses.replace(model, weights=weights).run([1, 2, 3], dtype)


@pytest.mark.parametrize("n", [20, 40, 80])
def test_heads_of_a_layer_with_unlike_sources_are_read_alike(n: int) -> None:
    """One of them has a bias: more paths lead to it, for which a triangle may be worth while."""
    arch = sc.attention_only((2, 2), biases=["b_V[L0H1]"])
    run = random_model(arch, d_vocab=30, d_model=8, d_head=3, seed=1).run(np.arange(n) % 30)
    [found] = sc.evaluate(sc.logits(arch), run).measure()
    np.testing.assert_allclose(found.values, [np.linalg.norm(v) for v in sc.evaluate(sc.logits(arch), run)])


def test_one_head_of_a_layer_whose_readout_overflows_is_named() -> None:
    """What it writes is small all the same; its neighbour has a triangle."""
    model = random_model(sc.attention_only((2,)), d_vocab=30, d_model=8, d_head=3)
    w = {name: np.array(array) for name, array in model.weights.items()}
    w["W_V_L0H1"], w["W_O_L0H1"], w["W_U"] = w["W_V_L0H1"] / 1e250, w["W_O_L0H1"] * 1e200, w["W_U"] * 1e200
    run = sc.Model(model.architecture, w, model.score_scale).run(np.arange(100) % 30)
    terms = sc.logits(model.architecture)
    with pytest.raises(ValueError, match=r"the norm of term 2 \(embed -> L0H1\) is not finite"):
        list(sc.evaluate(terms, run).measure())
    assert len(next(sc.evaluate(terms.through("L0H0"), run).measure()).values) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_overflows_is_named() -> None:
    run, arch = large(np.float32), sc.attention_only((2, 2, 1))
    terms, pairs = sc.logits(arch), sc.scores(arch, "L2H0")
    with pytest.raises(ValueError, match=r"the norm of term \d+ \(embed -> L0H\d -> L1H\d\) is not finite.*float64"):
        list(sc.evaluate(terms, run).measure())
    with pytest.raises(ValueError, match=r"contribution of term \d+ \(embed -> L0H\d -> L1H\d\) is not finite"):
        list(sc.evaluate(terms, run).measure(sc.logit(0)))
    for ask in (
        lambda: sc.evaluate(pairs, run).measure(),
        lambda: sc.evaluate(pairs, run).measure(sc.norm(masked=True)),
    ):
        with pytest.raises(ValueError, match=r"the norm of term \d+ \(.*L\dH\d.*\) is not finite"):
            list(ask())
    with pytest.raises(ValueError, match=r"the score of term \d+ \(.*L\dH\d.*\) is not finite"):
        list(sc.evaluate(pairs, run).measure(sc.score_entry(-1, 0)))
    fine = large(np.float64)
    assert all(np.isfinite(b.values).all() for b in sc.evaluate(terms, fine).measure())


def test_only_terms_with_patterns_held_fixed() -> None:
    arch = sc.transformer((1, 1), softmax=False)
    run = random_model(arch, d_vocab=5, d_model=3, d_head=2).run([1, 2])
    terms: Any = sc.logits(arch).unfrozen()
    for by in (None, sc.logit(0), sc.score_entry(0, 0)):
        with pytest.raises(AttributeError, match="measure needs terms with patterns held fixed"):
            sc.evaluate(terms, run).measure(by)
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"takes a run .*, not 3"):
        sc.evaluate(sc.logits(arch), wrong).measure()


def test_bad_input() -> None:
    run = model_of()
    arch = run.model.architecture
    terms, pairs = sc.logits(arch), sc.scores(arch, "L2H1")
    for ask, said in (
        (lambda: sc.evaluate(terms, run).measure(sc.norm(masked=True)), "measured by sc.norm\\(masked=True\\)"),
        (lambda: sc.evaluate(terms, run).measure(size=0), "size must be a whole number, 1 or more, not 0"),
        (
            lambda: sc.evaluate(pairs, run).measure(sc.logit(0)),
            r"terms of scores:L2H1 are not measured by sc\.logit\(token\): choose sc\.norm\(\), "
            r"sc\.norm\(masked=True\), sc\.score_entry\(query, key\)$",
        ),
        (
            lambda: sc.evaluate(sc.stream(arch), run).measure(sc.logit(0)),
            r"terms of stream are not measured by sc\.logit\(token\): choose sc\.norm\(\)$",
        ),
        (lambda: sc.evaluate(terms, run).measure(sc.logit(30)), "token 30 does not exist: there are 30"),
        (lambda: sc.evaluate(terms, run).measure(sc.logit(0, against=True)), "against must be a whole number"),
        (lambda: sc.evaluate(terms, run).measure(sc.logit(0, position=9)), "position 9 does not exist"),
        (
            lambda: sc.evaluate(terms, run).measure(sc.score_entry(0, 0)),
            r"terms of logits are not measured by sc\.score_entry\(query, key\): choose sc\.norm\(\), sc\.logit",
        ),
        (lambda: sc.evaluate(pairs, run).measure(sc.score_entry(0, 9)), "key 9 does not exist"),
        (lambda: sc.evaluate(sc.logits(sc.attention_only((1,))), run).measure(), "expand model.architecture"),
    ):
        with pytest.raises(ValueError, match=said):
            ask()


# ------------------------------------------------------------------------------------------------- ranges
def all_of_them(expansion: Expansion, run: Run) -> list[Any]:
    """Every reduction that goes with an expansion, as a function of the range."""
    found = [lambda **span: sc.evaluate(expansion, run).measure(**span)]
    if expansion.readout.bilinear:
        found.append(lambda **span: sc.evaluate(expansion, run).measure(sc.norm(masked=True), **span))
        found.append(lambda **span: sc.evaluate(expansion, run).measure(sc.score_entry(-1, 0), **span))
    elif expansion.target != "stream":
        found.append(lambda **span: sc.evaluate(expansion, run).measure(sc.logit(0), **span))
    return found


def numbers(blocks: Iterable[Any]) -> tuple[list[int], list[Array]]:
    found = list(blocks)
    return [b.start + i for b in found for i in range(len(b.values))], [v for b in found for v in b.values]


@examples(60)
@given(runs(), st.data())
def test_a_range_is_the_slice_of_the_whole(case: tuple[Expansion, Run], data: st.DataObject) -> None:
    e, run = case
    start = data.draw(st.integers(0, e.count))
    stop = data.draw(st.integers(start, e.count))
    keys = data.draw(st.sampled_from([run_arithmetic._KEY_BYTES, 0]))  # held, or made again for each query path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_arithmetic, "_KEY_BYTES", keys)
        if not keys:
            patch.setattr(pairs_module, "_BLOCK_BYTES", 0)
        for reduction in all_of_them(e, run):
            whole = numbers(reduction())[1]
            places, values = numbers(reduction(start=start, stop=stop, size=7))
            assert places == list(range(start, stop))
            wanted = np.array(whole[start:stop]).reshape(len(values), *np.shape(run.tokens)[:-1])
            assert_alike(np.array(values).reshape(wanted.shape), wanted, run, 1 + np.abs(wanted))
            if not e.readout.bilinear:
                assert np.array_equal(np.array(values).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("orders", [(), (1,), (0, 2), (1, 3)])
@pytest.mark.parametrize("held", [2**26, 0])
@pytest.mark.sampled(4)
def test_a_range_begins_and_ends_anywhere(held: int, orders: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Query paths of unlike marks one after the other, of which the first is cut: no other is passed over."""
    monkeypatch.setattr(run_arithmetic, "_KEY_BYTES", held)
    run = random_model(sc.attention_only((2, 2), "standard", True), d_head=3, seed=3).run([1, 2, 3])
    e = sc.scores(run.model.architecture, "L1H1").through("L0H0")
    e = e.order(*orders) if orders else e
    assert e.count > 20
    for reduction in all_of_them(e, run):
        whole = np.array(numbers(reduction())[1])
        for start in range(e.count + 1):
            for stop in {start, min(start + 1, e.count), min(start + 5, e.count), e.count}:
                places, values = numbers(reduction(start=start, stop=stop, size=4))
                assert places == list(range(start, stop))
                np.testing.assert_allclose(np.array(values), whole[start:stop], rtol=1e-9, atol=1e-12)


def test_what_lies_before_a_range_is_not_computed() -> None:
    """13^7 logit terms and 13^6 score terms: a thousand at the very end, in no time."""
    run = sc.random_model(sc.attention_only((12,) * 7), d_model=12, d_head=2, seed=1).run([3, 1, 4])
    e = sc.logits(run.model.architecture)
    assert len(numbers(sc.evaluate(e, run).measure(sc.logit(1), start=e.count - 1000))[0]) == 1000
    [last] = list(sc.evaluate(e, run).measure(sc.logit(1), start=e.count - 1))
    assert np.isclose(last.values[0], sc.evaluate(e, run).value(e[-1])[-1, 1])
    assert len(numbers(sc.evaluate(e, run).measure(start=e.count // 2, stop=e.count // 2 + 100))[0]) == 100
    deep = sc.scores(run.model.architecture, "L5H0")  # each query path meets 13^5 key paths
    at = 3 * 13**5 - 10
    for blocks in (
        sc.evaluate(deep, run).measure(start=at, stop=at + 20),
        sc.evaluate(deep, run).measure(sc.score_entry(2, 1), start=at, stop=at + 20),
    ):
        places, values = numbers(blocks)
        assert places == list(range(at, at + 20))
    assert np.allclose(values, [sc.evaluate(deep, run).value(deep[i])[2, 1] for i in places])


@pytest.mark.parametrize("span", [(0, 17), (5, 4), (17, None), (-1, 3), (0.5, 3)])
def test_a_range_that_is_none_is_refused(span: tuple[Any, Any]) -> None:
    run = sc.random_model(sc.attention_only((3, 3)), seed=1).run([1, 2])
    e = sc.logits(run.model.architecture)
    assert e.count == 16
    for reduction in all_of_them(e, run):
        with pytest.raises(ValueError, match=r"are not a range of the 16 terms of logits|must be a whole number"):
            reduction(start=span[0], stop=span[1])
        assert list(reduction(start=16)) == list(reduction(start=3, stop=3)) == []


def test_ranges_that_overlap_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that passes over too little gives other numbers."""
    run = sc.random_model(sc.attention_only((3, 3)), seed=1).run([1, 2])
    e = sc.logits(run.model.architecture)
    right = numbers(sc.evaluate(e, run).measure(start=9))[1]
    monkeypatch.setattr(engine.Span, "enter", lambda self: setattr(self, "left", 0))
    assert not np.allclose(numbers(sc.evaluate(e, run).measure(start=9))[1], right)


def test_what_is_kept_of_one_unembedding_is_not_taken_for_another() -> None:
    """Runs that are there at once, with and without a bias, with other weights: each has the norms of its own terms."""
    runs = []
    for biases, seed in ((False, 0), (True, 0), (False, 1), (True, 1)):
        model = random_model(sc.attention_only((2, 1), biases=biases), d_vocab=60, d_model=6, d_head=2, seed=seed)
        runs.append(model.run([1, 2, 3]))
    for run in runs + runs:
        values = sc.evaluate(sc.logits(run.model.architecture), run)
        found = np.concatenate([block.values for block in values.measure()])
        wanted = [np.linalg.norm(value) for value in values]
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
