"""Values, sums and reductions in arrays of another library: array-api-strict, which has the standard alone."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.arrays.namespaces import Namespace, namespace_of
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.expansion import Expansion, expand
from symcircuits.model import Run, Tensors, random_model
from symcircuits.values.by_head import through_each_head
from symcircuits.values.engine import Span
from symcircuits.values.evaluate import closure
from symcircuits.values.tensor_tree import TensorTree
from tests.strategies import cases, examples, selections

Other = xp.Device("device1")


@st.composite
def runs(draw: st.DrawFn, scores: bool | None = None, max_terms: int = 150) -> tuple[Expansion, Run]:
    """Any expansion, selected or not, and a run: every feature, batch axes or not."""
    drawn = cases(max_terms=max_terms)
    arch, target = draw(drawn.filter(lambda c: scores is None or c[1].startswith("scores") == scores))
    sizes = {k: draw(st.integers(1, 5)) for k in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    model = random_model(arch, **sizes, n_context=5, seed=draw(st.integers(0, 99)))
    shape = (*draw(st.sampled_from([(), (1,), (3,)])), draw(st.integers(1, 5)))
    expansion = expand(arch, target)
    for chosen in draw(st.lists(selections(arch, target), max_size=2)):
        expansion = chosen.select(expansion)
    return expansion, model.run(np.random.default_rng(draw(st.integers(0, 99))).integers(0, sizes["d_vocab"], shape))


def there(run: Run) -> Tensors:
    return run.to(xp, device=Other)


def numbers(array: Any) -> Any:
    """As NumPy's; it is on the device and of the type that was asked for."""
    assert array.device == Other
    assert array.dtype == xp.float64
    return np.asarray(xp.asarray(array, device=xp.Device("CPU_DEVICE")))


def assert_alike(found: Any, wanted: Any, size: Any, times: float = 2000) -> None:
    assert found.shape == np.shape(wanted)
    assert np.all(np.abs(found - wanted) <= times * float(np.finfo(np.float64).eps) * (1e-3 + np.abs(size)))


def size_of(expansion: Expansion, run: Run) -> float:
    """What rounding is measured by: the largest number of any term, and of the whole."""
    return max([float(np.abs(v).max(initial=0)) for v in sc.evaluate(expansion, run)], default=0.0) * len(expansion)


# ------------------------------------------------------------------------------------------ values and sums
@examples(100)
@given(runs())
def test_every_term_is_the_one_of_numpy(drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    values = sc.evaluate(expansion, there(run))
    seen = 0
    for i, (found, wanted) in enumerate(zip(values, sc.evaluate(expansion, run), strict=True)):
        size = np.abs(wanted).max(initial=0)
        assert_alike(numbers(found), wanted, size)
        if i % 5 == 0:
            assert_alike(numbers(values.value(expansion[i])), wanted, size)
        seen += 1
    assert seen == len(values) == expansion.count
    for side, paths in enumerate(expansion.sides):
        weights = expansion._weights if side == 0 else dict.fromkeys(paths.counts, 1)
        pieces = list(values.paths(side).pieces(weights, Span()))
        assert [m for p in pieces for m in p.marks] == [paths.mark(path) for path in paths.iterate(weights)]
        assert all(p.values.shape[0] == len(p.marks) for p in pieces)
    blocks = list(sc.evaluate(expansion, there(run)).blocks(size=7))
    assert all(b.values.shape[0] <= 7 for b in blocks)
    assert together(iter(blocks)).shape[0] == seen


@examples(100)
@given(runs())
def test_every_sum_is_the_one_of_numpy(drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    ours, theirs, size = sc.evaluate(expansion, there(run)), sc.evaluate(expansion, run), size_of(expansion, run)
    assert_alike(numbers(ours.total()), theirs.total(), size)
    for name in ("by_order", "by_composition", "by_orders", "by_source"):
        found, wanted = getattr(ours, name)(), getattr(theirs, name)()
        assert list(found) == list(wanted)
        for key, value in found.items():
            assert_alike(numbers(value), wanted[key], size)


@given(runs(scores=False))
def test_terms_through_each_head(drawn: tuple[Expansion, Run]) -> None:
    whole, run = expand(drawn[0].architecture, drawn[0].target), drawn[1]
    size = size_of(whole, run)
    wanted = dict(through_each_head(sc.evaluate(whole, run)))
    found = dict(through_each_head(sc.evaluate(whole, there(run))))
    assert list(found) == list(wanted)
    for head, value in found.items():
        assert_alike(numbers(value), wanted[head], size)


def test_readouts_and_sources_of_ones_own() -> None:
    model = random_model(sc.attention_only((2, 2)), seed=3)
    own = model.with_(sc.source("part", np.ones((3, 16)), layer=1), sc.readout(np.eye(16)[:2], "probe"))
    run = own.run([1, 2, 3])
    for target in ("logits", "readout:probe", "scores:L1H0"):
        expansion = expand(own.architecture, target)
        for found, wanted in zip(sc.evaluate(expansion, there(run)), sc.evaluate(expansion, run), strict=True):
            assert_alike(numbers(found), wanted, np.abs(wanted).max())
    terms = expand(own.architecture, "readout:probe")
    [found] = sc.evaluate(terms, there(run)).measure(sc.logit(1, against=0))
    [wanted] = sc.evaluate(terms, run).measure(sc.logit(1, against=0))
    assert_alike(numbers(found.values), wanted.values, 1)
    assert sc.evaluate(terms.order(7), there(run)).total().shape == (3, 2)


# ----------------------------------------------------------------------------------------------- reductions
def together(blocks: Any) -> Any:
    found = [(b.start, numbers(b.values).copy()) for b in blocks]
    starts = np.cumsum([0, *(len(v) for _, v in found)])[:-1]
    assert [start for start, _ in found] == starts.tolist()
    return np.concatenate([v for _, v in found]) if found else np.zeros(0)


def test_neighbours_of_which_not_all_sources_are_chosen() -> None:
    """From one source through a head, from another through its neighbours, never from the first: by weights."""
    run = random_model(sc.attention_only((2, 3), "standard", ["b_V"]), seed=3).run([[1, 2, 3]])
    terms = sc.logits(run.model.architecture)
    paths, values = terms.through("L1H1").from_source("pos").from_source("b_V").sides[0], sc.evaluate(terms, there(run))
    wanted = {"pos": {"L1H0", "L1H2"}, "b_V": {"L1H1"}}
    chosen = [p for p in paths.iterate(dict.fromkeys(paths.counts, 1)) if len(p.heads) == 2]
    marks = {paths.mark(p) for p in chosen if str(p.heads[-1]) in wanted.get(p.source.kind, ())}
    tree = TensorTree(paths, values.matrices, values.ring, (1, 3))
    wanted_paths = [p for p in chosen if paths.mark(p) in marks]
    pieces = list(tree.pieces(dict.fromkeys(marks, 1), Span()))
    assert [mark for piece in pieces for mark in piece.marks] == [paths.mark(p) for p in wanted_paths]
    blocks = [piece.values[i, ...] for piece in pieces for i in range(len(piece.marks))]
    seen = list(zip(wanted_paths, blocks, strict=True))
    assert {p.source.kind for p, _ in seen} == {"pos", "b_V"}
    for path, value in seen:
        assert_alike(numbers(value), sc.evaluate(terms, run).value(terms._term(path)), 1)


@examples(60)
@given(runs(), st.integers(1, 40), st.booleans())
def test_norms(drawn: tuple[Expansion, Run], size: int, masked: bool) -> None:
    expansion, run = drawn
    masked &= expansion.readout.bilinear
    values = [np.asarray(v) for v in sc.evaluate(expansion, run)]
    if masked and expansion.readout.head is not None:
        values = [v * run.masks[f"L{expansion.readout.head.layer}"] for v in values]
    blocks = list(sc.evaluate(expansion, there(run)).measure(sc.norm(masked=masked), size=size))
    assert [b.values.shape[0] for b in blocks[:-1]] == [size] * (len(blocks) - 1)
    found = together(iter(blocks))
    if values:
        assert_alike(found, np.array([np.linalg.norm(v, axis=(-2, -1)) for v in values]), size_of(expansion, run))
    else:
        assert len(found) == 0


@pytest.mark.parametrize("number", [np.float16, np.longdouble])
def test_norms_in_types_that_nothing_is_decomposed_in(number: Any) -> None:
    run = random_model(sc.attention_only((2, 2), biases=True), d_vocab=30, d_model=6, d_head=2).run([1, 2, 3])
    for target in ("logits", "scores:L1H0"):
        expansion = expand(run.model.architecture, target)
        [found], [wanted] = (list(sc.evaluate(expansion, r).measure()) for r in (run.to(np.zeros(1, number)), run))
        assert found.values.dtype == number
        np.testing.assert_allclose(found.values, wanted.values, rtol=0.02, atol=0.02)


@examples(60)
@given(runs(scores=True), st.integers(1, 40), st.data())
def test_entries_and_all_score_terms(drawn: tuple[Expansion, Run], size: int, data: st.DataObject) -> None:
    expansion, run = drawn
    n = run.tokens.shape[-1]
    i, j = (data.draw(st.integers(0, n - 1)) for _ in range(2))
    wanted = [np.asarray(v) for v in sc.evaluate(expansion, run)]
    values = together(sc.evaluate(expansion, there(run)).blocks(size=size))
    entries = together(sc.evaluate(expansion, there(run)).measure(sc.score_entry(i, j - n), size=size))
    assert len(entries) == len(values) == len(wanted)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(wanted))] * 2)))
    some = list(sc.evaluate(expansion, there(run)).blocks(size=size, start=start, stop=stop))
    assert sum(block.values.shape[0] for block in some) == stop - start
    for block in some:
        assert np.array_equal(numbers(block.values), values[block.start : block.start + block.values.shape[0]])
    if wanted:
        assert_alike(values, np.array(wanted), size_of(expansion, run))
        assert_alike(entries, np.array([v[..., i, j] for v in wanted]), size_of(expansion, run))


def test_heads_of_different_widths() -> None:
    """Neighbours that cannot be put one above the other."""
    made = random_model(sc.attention_only((2, 3), "standard", ["b_V", "b_Q"]), d_model=6, d_head=3, seed=4)
    w = {name: np.array(array) for name, array in made.weights.items()}
    for name, width in (("L0H0", 1), ("L1H1", 2), ("L1H2", 5)):
        w |= {f"W_{k}_{name}": np.resize(w[f"W_{k}_{name}"], (width, 6)) for k in "QKV"}
        w |= {f"b_{k}_{name}": np.resize(w[f"b_{k}_{name}"], width) for k in "VQ"}
        w[f"W_O_{name}"] = np.resize(w[f"W_O_{name}"], (6, width))
    run = sc.Model(made.architecture, w, made.score_scale).run([[1, 2, 3], [4, 5, 6]])
    for target in ("logits", "stream", "scores:L1H2"):
        terms = expand(made.architecture, target)
        wanted = np.array([sc.evaluate(terms, run).value(term) for term in terms])
        assert_alike(together(sc.evaluate(terms, there(run)).blocks(size=4)), wanted, np.abs(wanted).max())
        lengths = np.linalg.norm(wanted, axis=(-2, -1))
        assert_alike(together(sc.evaluate(terms, there(run)).measure()), lengths, lengths.max())


def test_entries_are_turned_by_both_positions() -> None:
    arch = sc.attention_only((2, 2), "rotary", biases=["b_Q", "b_K"])
    run = random_model(arch, d_head=4, seed=5).run([1, 2, 3, 4])
    terms = sc.scores(arch, "L1H0")
    wanted = np.array(list(sc.evaluate(terms, run)))
    for i, j in ((0, 0), (3, 0), (0, 3), (2, 1), (3, 3)):
        found = together(sc.evaluate(terms, there(run)).measure(sc.score_entry(i, j)))
        assert_alike(found, wanted[:, i, j], np.abs(wanted).max())


@examples(60)
@given(runs(scores=False), st.integers(1, 40), st.data())
def test_contributions(drawn: tuple[Expansion, Run], size: int, data: st.DataObject) -> None:
    expansion, run = drawn
    if expansion.target != "logits":
        return
    width, n = run.model.d_vocab_out or 0, run.tokens.shape[-1]
    token = data.draw(st.integers(0, width - 1))
    others = [i for i in range(width) if i != token]
    against, position = data.draw(st.sampled_from([None, *others])), data.draw(st.integers(-n, n - 1))
    rows = [np.asarray(v)[..., position, :] for v in sc.evaluate(expansion, run)]
    wanted = [r[..., token] - (0 if against is None else r[..., against]) for r in rows]
    found = together(sc.evaluate(expansion, there(run)).measure(sc.logit(token, against, position=position), size=size))
    assert len(found) == len(wanted)
    if wanted:
        assert_alike(found, np.array(wanted), size_of(expansion, run))


@given(runs(), st.integers(1, 9), st.data())
def test_ranges_of_terms(drawn: tuple[Expansion, Run], size: int, data: st.DataObject) -> None:
    expansion, run = drawn
    start = data.draw(st.integers(0, expansion.count))
    stop = data.draw(st.integers(start, expansion.count))
    asked: list[Any] = [lambda r, **k: sc.evaluate(expansion, r).measure(**k)]
    if expansion.readout.bilinear:
        asked.append(lambda r, **k: sc.evaluate(expansion, r).measure(sc.score_entry(-1, 0), **k))
    elif expansion.target == "logits":
        asked.append(lambda r, **k: sc.evaluate(expansion, r).measure(sc.logit(0), **k))
    for reduce in asked:
        whole = [numbers(b.values) for b in reduce(there(run))]
        blocks = list(reduce(there(run), size=size, start=start, stop=stop))
        assert [b.start for b in blocks] == list(range(start, stop, size))
        assert [b.values.shape[0] for b in blocks] == [min(size, stop - s) for s in range(start, stop, size)]
        if blocks:
            found = np.concatenate([numbers(b.values) for b in blocks])
            assert_alike(found, np.concatenate(whole)[start:stop], size_of(expansion, run))
        with pytest.raises(ValueError, match="are not a range of the"):
            reduce(there(run), start=expansion.count + 1)


# ------------------------------------------------------------------------------------------ arrays as they are
@pytest.fixture(scope="module")
def run() -> Run:
    arch = sc.transformer((2, 2), "standard", norm="LN", mlps=[0], biases=True, multipliers=True)
    return random_model(arch, seed=1).run([[1, 2, 3], [4, 5, 6]])


def given_arrays(run: Run, **changed: Any) -> dict[str, Any]:
    """A run's arrays by name, as somebody may have them; what is changed in place of others, None left out."""
    found = {name: xp.asarray(np.array(array)) for name, array in run.arrays.items()} | changed
    return {name: array for name, array in found.items() if array is not None}


def test_arrays_by_name_are_as_good_as_a_run(run: Run) -> None:
    arch = run.model.architecture
    plain = {name: float(run.arrays[name]) for name in ("scale_L1H0", "m_E", "r_L1", "m_U")}
    vectors = {f"D_{label}": xp.asarray(np.array(scales)) for label, scales in run.norms.items()}
    without = {"X0": None, "t": None, "P": None, "ones": None, "C": None}
    for arrays, tokens in (
        (given_arrays(run), None),
        (given_arrays(run, **vectors, **plain), None),
        (given_arrays(run, **without), run.tokens),
        (given_arrays(run, **without), xp.asarray(np.array(run.tokens))),
        (given_arrays(run, X0=None, W_E=None), None),
    ):
        if "W_E" not in arrays:
            arrays["W_E"] = given_arrays(run)["W_E"]
        tensors = Tensors(arch, arrays, tokens)
        assert repr(tensors).startswith("<Tensors of transformer, heads 2,2, positions standard, LN norm")
        for target in ("logits", "scores:L1H0"):
            values = sc.evaluate(expand(arch, target), tensors)
            wanted = sc.evaluate(expand(arch, target), run).total()
            assert_alike(np.asarray(values.total()), wanted, np.abs(wanted).max())
    assert "Values of <Expansion of scores:L1H0" in repr(values)


def test_only_what_is_needed_has_to_be_there(run: Run) -> None:
    arch = run.model.architecture
    arrays = given_arrays(run, W_U=None, b_U=None, D_final=None, W_Q_L0H0=None)
    tensors = Tensors(arch, arrays)
    assert sc.evaluate(sc.stream(arch), tensors).total().shape == (2, 3, 16)
    with pytest.raises(ValueError, match="terms of logits need missing arrays: D_final, W_U, b_U"):
        sc.evaluate(sc.logits(arch), tensors)
    with pytest.raises(ValueError, match="terms of scores:L0H0 need missing arrays: W_Q_L0H0"):
        sc.evaluate(sc.scores(arch, "L0H0"), tensors)
    bare = Tensors(arch, given_arrays(run, X0=None, t=None))
    with pytest.raises(ValueError, match=r"missing arrays: t \(W_E needs tokens; X0 replaces both\)"):
        sc.evaluate(sc.logits(arch), bare)


def test_masked_norms_need_the_mask(run: Run) -> None:
    arch = run.model.architecture
    with pytest.raises(ValueError, match=r"a masked norm needs mask_L1 \[n, n\] among the arrays"):
        next(
            sc.evaluate(sc.scores(arch, "L1H0"), Tensors(arch, given_arrays(run, mask_L1=None))).measure(
                sc.norm(masked=True)
            )
        )
    with pytest.raises(ValueError, match=r"measured by sc\.norm"):
        sc.evaluate(sc.logits(arch), there(run)).measure(sc.norm(masked=True))


def nan_in(array: Any) -> Any:
    changed = np.array(array)
    changed[1, 2] = np.nan
    return xp.asarray(changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: {"W_U": np.asarray(w["W_U"])}, "W_U is an array of NumPy, but the others are of array_api_strict"),
        (lambda w: {"W_U": xp.astype(w["W_U"], xp.float32)}, "W_U holds float32, but the others hold float64: convert"),
        (lambda w: {"A_L0H1": xp.asarray(w["A_L0H1"], device=Other)}, r"A_L0H1 is on .*device1.*: move it there first"),
        (lambda w: {"W_U": nan_in(w["W_U"])}, r"W_U holds a number that is not finite, at \[1, 2\]"),
        (lambda w: {"W_V_L0H0": w["W_V_L0H0"].mT}, r"W_V_L0H0 has shape \[16, 4\]; .*its transpose would fit"),
        (
            lambda w: {"A_L0H0": w["A_L0H0"][:1, :, :]},
            r"A_L0H0 has shape \[1, 3, 3\]; expected \[2, 3, 3\] or \[3, 3\]",
        ),
        (
            lambda w: {"mlp_L0": w["mlp_L0"][..., :-1]},
            r"mlp_L0 has shape \[2, 3, 15\]; expected \[2, 3, 16\] or \[3, 16\]",
        ),
        (lambda w: {"D_L0": w["D_L0"][..., :2]}, r"D_L0 has shape \[2, 3, 2\]; expected \[2, 3\] or \[2, 3, 3\]"),
        (lambda w: {"D_L0": xp.ones((2, 3, 3), dtype=xp.float64)}, "D_L0, a matrix, must be diagonal"),
        (lambda w: {"m_E": w["b_U"]}, r"m_E has shape \[11\]; expected \[\]"),
        (lambda w: {"b_V_L0H9": w["b_U"]}, r"\[transformer, .*\] does not use 'b_V_L0H9'; names are those of"),
        (lambda w: {"W_E": [1.0]}, "W_E must be an array of PyTorch, JAX, CuPy or another library, not list"),
        (lambda w: {"W_E": xp.ones((2, 2), dtype=xp.int64)}, "W_E must hold floating-point numbers, not int64"),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(run: Run, change: Any, message: str) -> None:
    arrays = given_arrays(run)
    with pytest.raises((ValueError, TypeError), match=message):
        Tensors(run.model.architecture, {**arrays, **change(arrays)})


def test_what_is_no_set_of_arrays(run: Run) -> None:
    arch, arrays = run.model.architecture, given_arrays(run)
    with pytest.raises(TypeError, match=r"Tensors takes an architecture \(see attention_only\), not"):
        Tensors(arrays, arch)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="arrays come by name, such as W_E and A_L0H0, not as list"):
        Tensors(arch, [arrays])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there are no arrays"):
        Tensors(arch, {})
    with pytest.raises(ValueError, match="the arrays do not determine the number of tokens: give tokens"):
        Tensors(arch, {"W_E": arrays["W_E"]})
    with pytest.raises(ValueError, match="token 11 at position 1 is out of range"):
        Tensors(arch, arrays, [1, 11])
    with pytest.raises(ValueError, match="tokens must be whole numbers, not "):
        Tensors(arch, arrays, xp.ones((3,), dtype=xp.float64))
    with pytest.raises(ValueError, match="W_E is needed, and is not among the arrays"):
        Tensors(arch, {"W_U": arrays["W_U"]}, [1, 2])
    with pytest.raises(ValueError, match=r"W_E has shape \[3\]; expected \[d_model, d_vocab\]"):
        Tensors(arch, {**arrays, "W_E": xp.ones((3,))}, [1, 2])  # before tokens are held to it
    with pytest.raises(ValueError, match=r"W_pos has shape \[\]; expected \[n_ctx, d_model\]"):
        Tensors(arch, {**arrays, "W_pos": xp.asarray(1.0)}, [1, 2])
    with pytest.raises(AttributeError, match="Tensors have no attribute 'novel'"):
        Tensors(arch, arrays).novel  # noqa: B018


# ------------------------------------------------------------------------------------- where a run goes to
def test_a_run_goes_to_the_library_device_and_type_of_an_array(run: Run) -> None:
    arch = run.model.architecture
    for like, dtype in (
        (xp.ones((1,), dtype=xp.float32, device=Other), xp.float32),
        (np.ones(1, np.float32), np.float32),
    ):
        total = sc.evaluate(sc.logits(arch), run.to(like)).total()
        assert (total.dtype, total.device) == (dtype, like.device)
        here = xp.asarray(total, device=xp.Device("CPU_DEVICE")) if dtype is xp.float32 else total
        assert np.abs(np.asarray(here) - run.logits).max() < 1e-4
    assert run.to(xp).ring.dtype == xp.float64
    assert run.to(xp, dtype="float32").ring.dtype == xp.float32
    assert run.to(np, dtype=np.float32).ring.dtype == np.float32
    again = run.to(xp)
    assert again.arrays["W_U"] is again.arrays["W_U"]
    assert "W_U" in again.arrays
    assert set(again.arrays) == set(run.arrays)
    assert len(again.arrays) == len(run.arrays)


@pytest.mark.parametrize(
    ("like", "more", "message"),
    [
        (3, {}, "like must be an array of PyTorch, JAX, CuPy or another library, not int"),
        (math, {}, "math is not a library of arrays: give torch, jax.numpy, cupy, or an array"),
        (np.ones(2, int), {}, "values are floating-point numbers, and int64 is not such a type"),
        (xp, {"dtype": "int32"}, "values are floating-point numbers, and int32 is not such a type"),
        (xp, {"dtype": "float7"}, "array_api_strict has no type 'float7'"),
        (xp, {"device": "cuda"}, "array_api_strict has no device 'cuda'"),
        (np.array(["a"]), {}, "not such a type"),
    ],
)  # fmt: skip
def test_a_run_does_not_go_there(run: Run, like: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        run.to(like, **more)


def test_without_array_api_compat_it_is_said_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "array_api_compat", None)  # importing it fails
    strict = run.to(xp)  # this library says itself which it is
    assert sc.evaluate(sc.logits(run.model.architecture), strict).total().shape == run.logits.shape  # type: ignore[union-attr]

    class Tensor:
        dtype, shape = "torch.float32", (1,)

    Tensor.__module__ = "torch"
    with pytest.raises(ValueError, match=r"arrays of torch are read by array-api-compat.*'symcircuits\[arrays\]'"):
        run.to(Tensor())


def test_the_ring_of_matrices() -> None:
    ring = namespace_of(xp)
    a = ring.asarray(np.arange(6.0).reshape(2, 3))
    diagonal, centring = Diagonal(ring.asarray([1, 2, 3])), Centring(3)
    dense = {
        id(m): np.asarray(np.diag([1.0, 2.0, 3.0]) if m is diagonal else np.eye(3) - 1 / 3)
        for m in (diagonal, centring)
    }
    for m in (diagonal, centring):
        assert np.allclose(np.asarray(ring.matmul(a, m)), np.asarray(a) @ dense[id(m)])
        assert np.allclose(np.asarray(ring.matmul(m, ring.transpose(a))), dense[id(m)] @ np.asarray(a).T)
        assert ring.transpose(m) is m
        for other in (diagonal, centring):
            assert np.allclose(np.asarray(ring.matmul(m, other)), dense[id(m)] @ dense[id(other)])
    assert np.allclose(np.asarray(ring.add(ring.times(2.0, a), ring.zeros((2, 3)))), 2 * np.asarray(a))
    assert ring.holds(a)
    assert not any(ring.holds(x) for x in (3, [1.0], np.ones(2), ring.xp.asarray([1], device=Other), Path()))
    assert str(ring) == f"array_api_strict, float64 on {xp.Device('CPU_DEVICE')}"


def test_an_array_that_a_device_does_not_take() -> None:
    def refuses(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("out of memory")

    ring = Namespace(SimpleNamespace(__name__="torch", asarray=refuses), "cuda:0", np.dtype(np.float64))
    with pytest.raises(ValueError, match=r"PyTorch, float64 on cuda:0 takes no array of shape \[2, 3\]: out of memory"):
        ring.asarray(np.ones((2, 3)))


# -------------------------------------------------------------------------------------- what is not finite
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_what_is_not_finite_is_said() -> None:
    arch = sc.attention_only((2, 2))
    run = random_model(arch, seed=1, weight_scale=1e11).run([1, 2, 3])
    tensors, logits, scores = run.to(xp, dtype="float32"), sc.logits(arch), sc.scores(arch, "L1H0")
    values = sc.evaluate(logits, tensors)
    with pytest.raises(
        ValueError, match=r"the sum of all terms of logits is not finite at \[0, 0\]: numbers leave the"
    ):
        values.total()
    with pytest.raises(ValueError, match="the sum of order 1 of logits is not finite"):
        values.by_order()
    with pytest.raises(ValueError, match="the sum of source embed of logits is not finite"):
        values.by_source()
    with pytest.raises(ValueError, match=r"the value of term 1 \(embed -> L0H0\) is not finite: numbers leave"):
        list(values)
    with pytest.raises(ValueError, match="the sum of the term embed -> L0H1 -> L1H1 of logits is not finite"):
        values.value(logits[8])
    with pytest.raises(ValueError, match="the value of term 0 "):
        list(sc.evaluate(scores, tensors).blocks())
    for numbered, what in (
        (sc.evaluate(logits, tensors).measure(), "the norm"),
        (sc.evaluate(logits, tensors).measure(sc.logit(0)), "the contribution"),
        (sc.evaluate(scores, tensors).measure(sc.score_entry(0, 0)), "the score"),
    ):
        with pytest.raises(ValueError, match=rf"{what} of term \d"):
            list(numbered)
    huge = random_model(arch, seed=1, weight_scale=1e40).weights
    with pytest.raises(ValueError, match="X0 leaves the range of array_api_strict, float32"):
        sc.evaluate(logits, _moved(huge, arch)).total()


def _moved(weights: Any, arch: sc.Architecture) -> Tensors:
    """A run of a model whose embedding is too large for float32 (and everything else small)."""
    small = random_model(arch, seed=1, weight_scale=1e-3).weights
    model = sc.Model(arch, {**small, "W_E": weights["W_E"]}, random_model(arch).score_scale)
    quiet = sc.Model(arch, {n: w * (0 if n[:4] == "W_Q_" else 1) for n, w in model.weights.items()}, model.score_scale)
    return quiet.run([1, 2, 3]).to(xp, dtype="float32")


def test_what_is_not_looked_at_is_not_said(run: Run) -> None:
    arch, arrays = run.model.architecture, given_arrays(run)
    tensors = Tensors(arch, {**arrays, "W_U": nan_in(arrays["W_U"])}, finite=False)
    assert bool(xp.any(xp.isnan(sc.evaluate(sc.logits(arch), tensors).total())))
    assert len(list(sc.evaluate(sc.logits(arch), tensors))) == sc.logits(arch).count


# --------------------------------------------------------------------------------------- what needs a run
@pytest.mark.parametrize(
    "asked",
    [
        lambda e, t: sc.evaluate(e, t).largest(3),
        lambda e, t: sc.evaluate(e, t).sum_of_squares(),
        lambda e, t: sc.evaluate(e, t).sample(3),
        lambda e, t: sc.remove_heads(t, "L0H0"),
        lambda e, t: sc.remove_scores(t, "L1H0", "K"),
        lambda e, t: closure(e, t),
        lambda e, t: sc.evaluate(e, t).run,
    ],
)
def test_what_needs_a_run_says_so(asked: Any) -> None:
    arch = sc.attention_only((2, 2))
    tensors = random_model(arch).run([1, 2, 3]).to(xp)
    with pytest.raises(TypeError, match=r"a run \(see model.run\).*; Tensors have arrays only"):
        asked(sc.logits(arch), tensors)


def test_expansions_that_do_not_belong(run: Run) -> None:
    arch = sc.attention_only((2, 2))
    tensors = random_model(arch).run([1, 2, 3]).to(xp)
    with pytest.raises(
        ValueError, match=r"this expansion is of \[attention-only, heads 1\], but the run is of a model"
    ):
        sc.evaluate(sc.logits(sc.attention_only((1,))), tensors)
    with pytest.raises(ValueError, match="is not a term of logits"):
        sc.evaluate(sc.logits(arch), tensors).value(sc.scores(arch, "L1H0")[0])
    poly = sc.transformer((1, 1), softmax=False)
    with pytest.raises(TypeError, match="with nothing held fixed, terms are evaluated on a run"):
        sc.evaluate(sc.logits(poly).unfrozen(), random_model(poly).run([1]).to(xp))
    for token in (99, -1):
        with pytest.raises(ValueError, match=f"token {token} does not exist"):
            sc.evaluate(sc.logits(arch), tensors).measure(sc.logit(token))
    with pytest.raises(ValueError, match=r"not measured by sc\.logit"):
        sc.evaluate(sc.stream(arch), tensors).measure(sc.logit(0))
    with pytest.raises(ValueError, match=r"not measured by sc\.score_entry"):
        sc.evaluate(sc.logits(arch), tensors).measure(sc.score_entry(0, 0))
    with pytest.raises(ValueError, match="with Tensors every block is an array of its own"):
        sc.evaluate(sc.logits(arch), tensors).blocks(out=np.empty((1, 3, 11)))
