"""Runs with a mask in place of the model's own: they, and all that is made of them, held to a plain pass by loops."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import plain
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import Edits, featured_models, heads_of_models
from strategies import examples

import symcircuits as sc
from symcircuits.explanation.score_parts import score_parts
from symcircuits.loaders.by_path import RunFile
from symcircuits.model import Model, rerun
from symcircuits.render.figures import term_map
from symcircuits.values.closure import layer_closures
from symcircuits.values.evaluate import closure
from symcircuits.zoo import path

N = 5
NONE = Edits()
few = examples(20)  # each is a plain pass by loops
TOKENS = np.array([[3, 1, 4, 1, 5], [2, 6, 5, 3, 5]])


def prefix(n: int, long: int) -> Any:
    """Both ways within the first tokens, causal after them."""
    return np.array([[k <= q or (k < long and q < long) for k in range(n)] for q in range(n)])


def left(n: int, pads: int) -> Any:
    """Causal without the first tokens, which see themselves alone."""
    return np.array([[k == q or (pads <= k <= q) for k in range(n)] for q in range(n)])


def documents(n: int, first: int) -> Any:
    """Causal within each of two documents."""
    return np.array([[k <= q and (k < first) == (q < first) for k in range(n)] for q in range(n)])


@st.composite
def masks(draw: st.DrawFn, n: int = N) -> Any:
    """Truth values in which every query is left a key: itself, so that no window leaves it alone."""
    kind, at = draw(st.sampled_from([prefix, left, documents, None])), draw(st.integers(1, n - 1))
    if kind is not None:
        return kind(n, at)
    drawn = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    return np.array(drawn).reshape(n, n) | np.eye(n, dtype=bool)


def close(a: Any, b: Any, size: Any = 1.0) -> bool:
    """Within rounding of the largest number, and of what was added to get it."""
    largest = max(
        float(np.max(np.abs(np.where(np.isfinite(x), x, 0)), initial=0)) for x in (np.asarray(b), np.asarray(size))
    )
    return bool(np.all(np.abs(np.asarray(a) - b) <= 1e-10 * (1 + largest)))


# --------------------------------------------------------------------------------------------- an independent pass
class Pass(plain._Forward):
    """The plain pass of ``plain`` with a mask for its own: allowed keys, and what is added to the scores."""

    def __init__(self, model: Model, tokens: Any, mask: Any, edits: Edits = NONE) -> None:
        super().__init__(model, tokens, edits)
        self.mask = np.asarray(mask)

    def head(self, layer: int, i: int, reads: Any, values: Any) -> Any:
        """As there, but with the scores masked here."""
        before = plain.seen
        plain.seen = lambda *given: self.seen(*given)  # type: ignore[assignment]
        try:
            return super().head(layer, i, reads, values)
        finally:
            plain.seen = before

    def seen(self, model: Model, layer: int, i: int, sums: Any) -> Any:
        """What softmax sees, entry by entry."""
        both = replace(model.architecture, causal=False)
        n, window = len(sums), model.settings.windows[layer] if model.settings.windows else None
        free = replace(model.settings, windows=())
        out = SEEN(Loose(both, free), layer, i, sums)
        for q in range(n):
            for k in range(n):
                near = window is None or (q - k < window if model.architecture.causal else abs(q - k) < window)
                allowed = self.mask[q, k] if self.mask.dtype == bool else self.mask[q, k] > -1e300
                out[q, k] = out[q, k] if near and allowed else -np.inf
                if self.mask.dtype != bool and out[q, k] > -np.inf:
                    out[q, k] += self.mask[q, k]
        return out


SEEN = plain.seen


class Loose:
    """What ``plain.seen`` reads of a model, without its mask."""

    def __init__(self, architecture: Any, settings: Any) -> None:
        self.architecture, self.settings = architecture, settings


def passed(model: Model, tokens: Any, mask: Any, edits: Edits = NONE) -> plain.Pass:
    return Pass(model, tokens, mask, edits).run()


@few
@given(featured_models(60), st.data())
def test_a_run_with_a_mask_is_the_plain_pass_with_it(model: Model, data: st.DataObject) -> None:
    given_masks = np.stack([data.draw(masks()), data.draw(masks())])
    run = model.run(TOKENS, mask=given_masks)
    one = model.run(TOKENS[0], mask=given_masks[0])
    for row in range(2):
        wanted = passed(model, TOKENS[row], given_masks[row])
        end = run.streams[-1] if run.logits is None else run.logits
        assert close(end[row], wanted.end)
        for head in run.scores:
            there = np.isfinite(wanted.scores[head])
            assert np.array_equal(np.isfinite(run.scores[head][row]), there)
            assert close(run.scores[head][row][there], wanted.scores[head][there])
            assert close(run.patterns[head][row], wanted.patterns[head])
            assert not run.patterns[head][row][~there].any()
    assert close(one.streams[-1], run.streams[-1][0])
    again = pickle.loads(pickle.dumps(run))
    assert np.array_equal(again.streams[-1], run.streams[-1])


@few
@given(featured_models(60), st.data())
def test_terms_add_up_on_a_run_with_a_mask(model: Model, data: st.DataObject) -> None:
    given_masks = np.stack([data.draw(masks()), data.draw(masks())])
    additive = data.draw(st.booleans()) and model.architecture.softmax
    mask = np.where(given_masks, np.arange(2 * N * N).reshape(2, N, N) % 3 - 1.0, -np.inf) if additive else given_masks
    run = model.run(TOKENS, mask=mask)
    arch = model.architecture
    expansions = [sc.logits(arch) if arch.unembed else sc.stream(arch), *(sc.scores(arch, h) for h in arch.all_heads)]
    for expansion in expansions:
        if expansion.count <= 120:
            assert closure(expansion, run).passed
    assert all(c.passed for c in layer_closures(run))
    wanted = passed(model, TOKENS[1], mask[1])
    assert close((run.streams[-1] if run.logits is None else run.logits)[1], wanted.end)


@few
@given(heads_of_models(30), st.data())
def test_what_is_made_of_a_run_with_a_mask(case: tuple[Model, str], data: st.DataObject) -> None:
    """Masked norms, centred parts, entries, removals: each by its definition, with the mask of the run."""
    model, head = case
    both = np.stack([data.draw(masks()), data.draw(masks())])
    run, expansion = model.run(TOKENS, mask=both), sc.scores(model.architecture, head)
    allowed = np.isfinite(run.scores[head])
    values = list(sc.evaluate(expansion, run))
    for r in (run, run.to(np)):
        norms = np.concatenate([b.values for b in sc.evaluate(expansion, r).measure(sc.norm(masked=True))])
        for value, found in zip(values, norms, strict=True):
            assert np.allclose(found, np.sqrt((np.where(allowed, value, 0) ** 2).sum((-2, -1))), rtol=1e-6, atol=1e-9)
    parts = score_parts(run, head)
    assert np.array_equal(parts.allowed, allowed)
    squares = sc.evaluate(expansion, run).sum_of_squares(sc.norm(masked=True))
    total = sum((np.where(allowed, value, 0) ** 2).sum() for value in values)
    if squares.exact:
        assert squares.value == pytest.approx(total, rel=1e-8, abs=1e-12)
    best = sc.evaluate(expansion, run).largest(3, sc.norm(masked=True))
    sizes = sorted((np.sqrt((np.where(allowed, v, 0) ** 2).sum()) for v in values), reverse=True)
    assert [t.size for t in best.terms] == pytest.approx(sizes[:3], rel=1e-8, abs=1e-12)
    row = data.draw(st.integers(0, 1))
    unseen = np.argwhere(~allowed[row])
    if len(unseen):
        q, k = (int(i) for i in unseen[0])
        with pytest.raises(ValueError, match=f"query {q} does not see key {k}"):
            sc.evaluate(expansion, run).largest(1, sc.score_entry(q, k, row=row))


@few
@given(heads_of_models(30), st.data())
def test_removals_are_reruns_with_the_mask(case: tuple[Model, str], data: st.DataObject) -> None:
    model, head = case
    additive = data.draw(st.booleans()) and model.architecture.softmax
    bare = data.draw(masks())
    mask = np.where(bare, np.arange(N * N).reshape(N, N) % 4 - 1.5, -np.inf) if additive else bare
    run, tokens = model.run(TOKENS[0], mask=mask), TOKENS[0]
    end = run.streams[-1] if run.logits is None else run.products.get("logits", run.logits)
    assert close(rerun(run).streams[-1], run.streams[-1])
    gone = sc.remove_heads(run, head)
    assert close(gone.change + end, passed(model, tokens, mask, Edits(removed=(head,))).sums, end)
    part = sc.remove_scores(run, head, "none")
    left_over = run.products.get(head, run.scores[head]) - part.scores
    pattern = plain.pattern_of(model, Pass(model, tokens, mask).seen(model, int(head[1]), int(head[3:]), left_over))
    assert close(part.pattern, pattern, run.patterns[head])
    edited = passed(model, tokens, mask, Edits(patterns={head: pattern}))
    assert close(part.recomputed + end, edited.sums, end)


def test_arrays_of_a_run_have_its_mask() -> None:
    """Terms multiplied out to the end, and lambdified, take the mask of each row."""
    arch = sc.transformer(heads=(1, 1), softmax=False, mlps=[0], bilinear=True)
    run = sc.random_model(arch, seed=1).run(TOKENS, mask=np.stack([prefix(N, 3), left(N, 2)]))
    whole = sc.logits(arch).unfrozen()
    assert close(sc.evaluate(whole, run).total(), run.logits)
    values = sc.evaluate(whole, run)
    for i in range(0, whole.count, 23):
        assert close(whole[i].lambdify()(**run.arrays), values.value(whole[i]))
    assert run.arrays["mask_L0"].shape == run.masks["L0"].shape == (2, N, N)


def test_an_explanation_with_a_mask() -> None:
    model = sc.random_model(sc.transformer((2, 2), "standard", norm="LN", mlps=[0]), seed=3)
    mask = np.where(prefix(N, 3), np.arange(N) / 4, -np.inf)
    found = sc.explain(model.run(TOKENS[0], mask=mask), top=3)
    assert found.ok
    assert np.array_equal(found.run.logits, model.run(TOKENS[0], mask=mask).logits)
    assert "attention: by the mask that was given, in place of the model's own" in found.text(200)
    assert "numbers that the mask adds to scores are not terms" in found.text(200)
    assert found.html() == sc.explain(model.run(TOKENS[0], mask=mask), top=3, workers=2).html()
    moved = term_map(found, sc.logits(model.architecture).order(1)[0])
    assert moved.shown.all()
    assert "mask" not in sc.explain(model, TOKENS[0]).text(200)
    with pytest.raises(ValueError, match="a run with its own mask cannot be sent to workers in other processes"):
        RunFile.of(sc.load(path()).run(range(5), mask=prefix(5, 3)))


# ------------------------------------------------------------------------------------------------ what is given
@pytest.fixture(scope="module")
def model() -> Model:
    return sc.random_model(sc.transformer((2, 2), "standard"), seed=2)


def test_the_same_mask_in_other_words(model: Model) -> None:
    causal = np.tril(np.ones((N, N), bool))
    own = model.run(TOKENS).logits
    added = np.where(causal, 0.0, -np.inf)
    for mask in (
        causal,
        causal.tolist(),
        added,
        np.stack([causal] * 2),
        np.where(causal, 0, np.finfo("f4").min).astype("f4"),
    ):
        run = model.run(TOKENS, mask=mask)
        assert np.array_equal(run.logits, own)
        assert not run.products
    assert model.run(TOKENS).attended is None
    constant = model.run(TOKENS, mask=added + 2.5)  # softmax does not see it
    assert close(constant.logits, own)
    assert closure(sc.scores(model.architecture, "L1H0"), constant).of == "before the addend"


def test_a_mask_as_a_tensor(model: Model) -> None:
    torch = pytest.importorskip("torch")
    causal = torch.ones(N, N).tril().bool()
    low = torch.zeros(N, N).masked_fill(~causal, torch.finfo(torch.bfloat16).min).to(torch.bfloat16)
    for mask in (causal, low, torch.zeros(N, N).masked_fill(~causal, -torch.inf)):
        assert np.array_equal(model.run(TOKENS, mask=mask).logits, model.run(TOKENS).logits)


def test_windows_stay() -> None:
    arch = sc.attention_only((1, 1))
    model = sc.random_model(arch, seed=1, settings=sc.model.Settings(windows=(None, 2)))
    run = model.run(TOKENS[0], mask=prefix(N, 3))
    assert np.array_equal(run.masks["L0"], prefix(N, 3))
    assert np.array_equal(run.masks["L1"], prefix(N, 3) & np.triu(np.ones((N, N), bool), -1))


CAUSAL = np.tril(np.ones((N, N), bool))
BAD: list[tuple[Any, str]] = [
    (np.ones((4, 4), bool), r"the mask has shape \[4, 4\]; expected \[5, 5\] or \[2, 5, 5\]$"),
    (np.ones((3, N, N), bool), r"the mask has shape \[3, 5, 5\]; expected \[5, 5\] or \[2, 5, 5\]$"),
    (np.ones((2, N), bool), r"shape \[2, 5\]; expected .* padding\[:, None, :\] & causal"),
    (CAUSAL.astype(int), r"this one holds int64; if 1 means that a key is seen, give mask.astype\(bool\)"),
    (CAUSAL.astype(complex), "booleans .* or numbers that are added to scores; this one holds complex128$"),
    (CAUSAL.astype(str), "this one holds <U5$"),
    ([[True], [True, False]], "this is a list, and cannot be read"),
    (np.where(CAUSAL, np.nan, 0), r"the mask holds nan at \[0, 0\]; numbers added to scores: finite, or -inf"),
    (np.where(CAUSAL, 0, np.inf), r"the mask holds inf at \[0, 1\]; numbers added to scores: finite, or -inf"),
    (CAUSAL & (np.arange(N) > 0), r"the mask leaves no key to query 0: .* mask\[..., i, i\] = True"),
    (np.stack([CAUSAL, CAUSAL & (np.arange(N) > 1)]), "the mask leaves no key to query 0 of row 1: "),
    (np.full((N, N), -np.inf), "the mask leaves no key to query 0: "),
]


@pytest.mark.parametrize(("mask", "message"), BAD, ids=range(len(BAD)))
def test_what_is_no_mask_is_refused(model: Model, mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.run(TOKENS, mask=mask)


def test_a_mask_that_goes_with_no_such_model() -> None:
    bare = sc.random_model(sc.transformer((1,), softmax=False))
    with pytest.raises(ValueError, match="a mask can add numbers to scores only before a softmax, and this model has"):
        bare.run(TOKENS, mask=np.where(CAUSAL, 1.0, -np.inf))
    some = sc.random_model(sc.attention_only((1,)))
    for far, number in ((-1e300, "float32"), (1e308, "float64")):
        with pytest.raises(ValueError, match=rf"the mask adds numbers as large as .* leave the range of {number}"):
            some.run(TOKENS, number, mask=np.where(CAUSAL, 0.0, far))
    low = some.run(TOKENS, "float32", mask=np.where(CAUSAL, 0.0, -1e9))  # a number that is added, and no mask
    assert np.array_equal(low.logits, some.run(TOKENS, "float32").logits)
    assert low.masks["L0"].all()
    assert sc.explain(some.run(TOKENS, mask=np.where(CAUSAL, 0.0, -1e9))).ok
    near = sc.random_model(sc.attention_only((1, 1)), settings=sc.model.Settings(windows=(None, 2)))
    with pytest.raises(ValueError, match="leaves no key to query 4 in the window of layer 1, 2 keys"):
        near.run(TOKENS, mask=CAUSAL & (np.arange(N) < 3))


def test_a_mask_cannot_be_changed_from_outside(model: Model) -> None:
    for mask in (CAUSAL.copy(), np.where(CAUSAL, 0.5, -np.inf)):
        run = model.run(TOKENS, mask=mask)
        kept = np.array(run.logits)
        mask[:] = 1
        assert np.array_equal(rerun(run).logits, kept)
        assert not any(m.flags.writeable for m in run.masks.values())
        assert run.attended is not None
        assert not run.attended.allowed.flags.writeable
