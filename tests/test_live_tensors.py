"""Tensors of PyTorch and arrays of JAX: values and sums as NumPy has them, and derivatives through all of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from safetensors.numpy import load_file
from strategies import examples

import symcircuits as sc
from symcircuits.core.expansion import Expansion, expand
from symcircuits.loaders import Unsupported
from symcircuits.model import Run, Tensors, random_model
from symcircuits.values.by_head import through_each_head
from tests.test_tensors import assert_alike, runs, size_of

once = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def numbers(array: Any, dtype: Any) -> Any:
    assert array.dtype == dtype
    return np.asarray((array.detach() if hasattr(array, "detach") else array).tolist()).reshape(array.shape)


def compare(expansion: Expansion, run: Run, tensors: Tensors, dtype: Any, times: float) -> None:
    """All that there is, of a library, beside NumPy in float64; ``times``: how often the unit of float64 is allowed."""
    ours, theirs, size = sc.evaluate(expansion, tensors), sc.evaluate(expansion, run), size_of(expansion, run)
    for i, (found, wanted) in enumerate(zip(ours, theirs, strict=True)):
        assert_alike(numbers(found, dtype), wanted, size, times)
        if i % 5 == 0:
            assert_alike(numbers(ours.value(expansion[i]), dtype), wanted, size, times)
    assert_alike(numbers(ours.total(), dtype), theirs.total(), size, times)
    for name in ("by_order", "by_composition", "by_orders", "by_source"):
        found, wanted = getattr(ours, name)(), getattr(theirs, name)()
        assert list(found) == list(wanted)
        for key, value in found.items():
            assert_alike(numbers(value, dtype), wanted[key], size, times)
    asked = [lambda r: sc.evaluate(expansion, r).measure(size=7)]
    if expansion.readout.bilinear:
        asked += [
            lambda r: sc.evaluate(expansion, r).measure(sc.norm(masked=True)),
            lambda r: sc.evaluate(expansion, r).measure(sc.score_entry(-1, 0)),
        ]
        asked += [lambda r: (b._replace(values=1 * b.values) for b in sc.evaluate(expansion, r).blocks(size=3))]
    elif expansion.target == "logits":
        last = (run.model.d_vocab_out or 1) - 1
        asked += [lambda r: sc.evaluate(expansion, r).measure(sc.logit(0, against=last or None), size=7)]
    for reduce in asked:
        found = [numbers(b.values, dtype) for b in reduce(tensors)]
        wanted = [np.array(b.values, np.float64) for b in reduce(run)]
        if wanted:
            assert_alike(np.concatenate(found), np.concatenate(wanted), max(size, 1.0), times)


# --------------------------------------------------------------------------------------------------- PyTorch
@once
@given(runs(max_terms=60))
def test_torch_in_float64(torch: Any, drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    compare(expansion, run, run.to(torch.zeros(1, dtype=torch.float64)), torch.float64, 1e8)  # norms by Gram matrices


@once
@given(runs(max_terms=60))
def test_torch_in_float32(torch: Any, drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    compare(expansion, run, run.to(torch, dtype="float32"), torch.float32, 1e12)


def tensors_of(torch: Any, run: Run) -> dict[str, Any]:
    return {name: torch.tensor(np.array(array)) for name, array in run.arrays.items()}


@pytest.fixture(scope="module")
def run() -> Run:
    arch = sc.transformer((2, 2), "standard", norm="LN", mlps=[0], biases=True)
    return random_model(arch, seed=1, d_vocab=5, d_model=6, d_head=2).run([[1, 2, 3]])


TRAINED = ("W_E", "W_pos", "W_V_L0H0", "W_O_L0H0", "W_V_L1H1", "W_U", "gain_L0", "b_V_L0H0", "A_L0H0", "D_L1", "mlp_L0")


@pytest.mark.parametrize("what", ["value", "total", "order", "head", "listed", "norm", "contribution", "scores"])
def test_derivatives_of_torch_are_those_of_finite_differences(torch: Any, run: Run, what: str) -> None:
    arch, logits = run.model.architecture, sc.logits(run.model.architecture)
    fixed = {k: v for k, v in tensors_of(torch, run).items() if k not in ("X0", "t", "P")}
    fixed["D_L1"] = torch.tensor(np.array(run.norms["L1"]))
    names = [*TRAINED, "W_Q_L1H0"] if what == "scores" else TRAINED
    weights = [fixed[name].clone().requires_grad_() for name in names]
    term = next(t for t in logits.through("L0H0").order(2) if t.label == "embed -> L0H0 -> L1H1")
    head = sc.scores(arch, "L1H0")

    def made(*given: Any) -> Any:
        tensors = Tensors(arch, {**fixed, **dict(zip(names, given, strict=True))}, run.tokens)
        values = sc.evaluate(logits, tensors)
        if what == "value":
            return values.value(term)
        if what == "total":
            return values.total()
        if what == "order":
            return values.by_order()[2]
        if what == "head":
            return dict(through_each_head(values))[arch.head("L0H0")]
        if what == "listed":
            return sum((i + 1) * value for i, value in enumerate(values))
        if what == "norm":
            return torch.cat([b.values for b in sc.evaluate(logits.order(2), tensors).measure()])
        if what == "contribution":
            return torch.cat([b.values for b in sc.evaluate(logits, tensors).measure(sc.logit(3, against=0))])
        return sc.evaluate(head, tensors).by_composition()["QK"]

    assert torch.autograd.gradcheck(made, weights, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=what != "value")
    assert sum(bool(w.grad is None) for w in weights) == len(weights)  # gradcheck leaves none behind
    made(*weights).sum().backward()
    assert any(w.grad is not None and float(w.grad.abs().max()) > 0 for w in weights)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("how", ["full", "twins", "dead", "small"])
def test_derivatives_of_norms_by_an_unembedding_of_any_rank(torch: Any, run: Run, how: str, finite: bool) -> None:
    """Its triangle has a small diagonal, by which a derivative through it would divide."""
    w_u = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if how == "twins":
        w_u[:, 3], w_u[:, 5] = w_u[:, 0].clone(), w_u[:, 1].clone()
    if how in ("dead", "small"):
        w_u[:, 2] *= {"dead": 0.0, "small": 1e-20}[how]
    arch = sc.transformer(
        (2, 2), "standard", norm="LN", mlps=[0], biases=sorted(run.model.architecture.biases - {"b_U"})
    )
    fixed = {k: v for k, v in tensors_of(torch, run).items() if k not in ("X0", "t", "P", "b_U")}

    def measured(w_u: Any, direct: bool) -> Any:
        tensors = Tensors(arch, {**fixed, "W_U": w_u}, run.tokens, finite=finite)
        if direct:
            return torch.stack([value.norm(dim=(-2, -1)) for value in sc.evaluate(sc.logits(arch), tensors)])
        return torch.cat([b.values for b in sc.evaluate(sc.logits(arch), tensors).measure()])

    found = []
    for direct in (False, True):
        leaf = w_u.clone().requires_grad_()
        value = measured(leaf, direct)
        value.sum().backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*(f[0] for f in found))
    torch.testing.assert_close(*(f[1] for f in found))


def test_the_norm_of_a_term_that_is_zero_has_a_derivative(torch: Any, run: Run) -> None:
    """A root of 0 has none, and would make no number of every weight's: it is 0, as that of torch's own norm."""
    arch = run.model.architecture
    arrays = {k: v for k, v in tensors_of(torch, run).items() if k not in ("X0", "t")}
    arrays["W_V_L0H0"] = torch.zeros_like(arrays["W_V_L0H0"])
    arrays["b_Q_L1H0"] = torch.zeros_like(arrays["b_Q_L1H0"])
    arrays = {k: v.requires_grad_() for k, v in arrays.items()}
    tensors = Tensors(arch, arrays, run.tokens)
    for blocks in (
        sc.evaluate(sc.logits(arch), tensors).measure(), sc.evaluate(sc.scores(arch, "L1H0"), tensors).measure(),
        sc.evaluate(sc.scores(arch, "L1H0"), tensors).measure(sc.norm(masked=True)),
    ):  # fmt: skip
        sum(b.values.sum() for b in blocks).backward(retain_graph=True)
        assert all(bool(torch.isfinite(v.grad).all()) for v in arrays.values() if v.grad is not None)
    assert float(arrays["W_V_L0H1"].grad.abs().max()) > 0


def test_a_derivative_can_be_taken_of_one_term_after_another(torch: Any, run: Run) -> None:
    """Nothing that a derivative went through is used again: PyTorch would refuse it."""
    arch = run.model.architecture
    arrays = {k: v.requires_grad_() for k, v in tensors_of(torch, run).items() if k not in ("X0", "t")}
    values = sc.evaluate(sc.logits(arch), Tensors(arch, arrays, torch.tensor(run.tokens)))
    for term in list(sc.logits(arch))[::4]:
        values.value(term).sum().backward()
    values.total().sum().backward()
    first = arrays["W_E"].grad.clone()
    values.total().sum().backward()
    assert float((arrays["W_E"].grad - first).abs().max()) > 0
    for target in ("scores:L1H0", "scores:L1H1"):
        sc.evaluate(expand(arch, target), Tensors(arch, arrays, run.tokens)).total().sum().backward()


def test_nothing_leaves_the_device(torch: Any, run: Run) -> None:
    """On a device that has no numbers every copy to another place fails."""
    arch = run.model.architecture
    arrays = {k: v.to("meta") for k, v in tensors_of(torch, run).items()}
    with pytest.raises(ValueError, match=r"cannot tell here whether numbers are finite .* give finite=False"):
        Tensors(arch, arrays)
    tensors = Tensors(arch, {k: v for k, v in arrays.items() if k != "X0"}, arrays["t"].argmax(-1), finite=False)
    assert sc.evaluate(sc.logits(arch), tensors).total().device.type == "meta"
    for expansion in (sc.logits(arch), sc.scores(arch, "L1H0")):
        found = sc.evaluate(expansion, tensors)
        assert all(value.device.type == "meta" for value in found)
        assert {v.device.type for v in found.by_order().values()} == {"meta"}
        assert all(b.values.device.type == "meta" for b in sc.evaluate(expansion, tensors).measure())
    with pytest.raises(ValueError, match="A_L0H1 is on cpu, but the others are on meta: move it there first"):
        Tensors(arch, {**arrays, "A_L0H1": torch.zeros(1, 3, 3, dtype=torch.float64)}, finite=False)
    with pytest.raises(ValueError, match="PyTorch has no device 'nowhere'"):
        run.to(torch, device="nowhere")
    with pytest.raises(ValueError, match="A_L0H1 is an array of NumPy, but the others are of PyTorch"):
        Tensors(arch, {**tensors_of(torch, run), "A_L0H1": run.patterns["L0H1"]})


def test_half_precision_stays_as_it_is(torch: Any, run: Run) -> None:
    values = sc.evaluate(sc.logits(run.model.architecture), run.to(torch, dtype=torch.bfloat16))
    assert values.total().dtype == torch.bfloat16
    assert float(abs(values.total().double() - torch.tensor(np.array(run.logits))).max()) < 0.5
    run = random_model(run.model.architecture, seed=1, d_vocab=30, d_model=6, d_head=2).run([[1, 2, 3]])
    for target in ("logits", "scores:L1H0"):
        expansion = expand(run.model.architecture, target)
        for number in (torch.bfloat16, torch.float16):
            [found], [wanted] = (list(sc.evaluate(expansion, r).measure()) for r in (run.to(torch, dtype=number), run))
            assert found.values.dtype == number
            np.testing.assert_allclose(found.values.double().numpy(), wanted.values, rtol=0.1, atol=0.1)


def test_gradients_are_not_asked_for_unless_they_are(torch: Any, run: Run) -> None:
    assert not sc.evaluate(sc.logits(run.model.architecture), run.to(torch)).total().requires_grad


# ------------------------------------------------------------------------- live models and what they cached
class Live:
    """A stand-in for a HookedTransformer whose weights are tensors of torch."""

    def __init__(self, torch: Any, folder: Path, **changed: Any) -> None:
        stored = load_file(folder / "model.safetensors")
        self.parameters = {k: torch.tensor(v.astype(np.float64), requires_grad=True) for k, v in stored.items()}
        config = json.loads((folder / "config.json").read_text()) | changed
        self.cfg = SimpleNamespace(to_dict=lambda: config)
        self.buffers = {"blocks.0.attn.mask": torch.ones(12, 12, dtype=torch.bool)}
        self.buffers["blocks.0.attn.IGNORE"] = torch.tensor(-np.inf)

    def state_dict(self) -> dict[str, Any]:
        return {k: v.detach() for k, v in {**self.parameters, **self.buffers}.items()}

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return iter(self.parameters.items())


def recorded(torch: Any, folder: Path) -> tuple[Any, Any, Any]:
    """Logits, cache and tokens, as ``run_with_cache`` gave them; patterns, where scores alone were kept, of these."""
    kept = dict(np.load(folder / "reference.npz"))
    for name in [n for n in kept if n.endswith("hook_attn_scores")]:
        weights = np.exp(kept[name] - kept[name].max(-1, keepdims=True))
        kept.setdefault(name.replace("hook_attn_scores", "hook_pattern"), weights / weights.sum(-1, keepdims=True))
    cache = {k: torch.tensor(v) for k, v in kept.items() if "hook_" in k}
    end = f"blocks.{_last(kept)}.hook_resid_post"
    cache.setdefault(end, torch.tensor(kept[end] if end in kept else _end(folder, kept)))
    return torch.tensor(kept["logits"]), cache, torch.tensor(kept["tokens"])


def _last(kept: dict[str, Any]) -> int:
    return max(int(name.split(".")[1]) for name in kept if name.startswith("blocks."))


def _end(folder: Path, kept: dict[str, Any]) -> Any:
    """The stream after the last layer, which was not kept: of the results of heads and outputs of MLPs that were."""
    w, tokens = load_file(folder / "model.safetensors"), kept["tokens"]
    shortformer = "shortformer" in (folder / "config.json").read_text()
    x = w["embed.W_E"].astype(np.float64)[tokens]
    x = x + w["pos_embed.W_pos"][: tokens.shape[-1]] if "pos_embed.W_pos" in w and not shortformer else x
    for layer in range(_last(kept) + 1):
        x = x + kept[f"blocks.{layer}.attn.hook_result"].sum(axis=-2) + w.get(f"blocks.{layer}.attn.b_O", 0)
        x = x + kept.get(f"blocks.{layer}.hook_mlp_out", 0)
    return x


CACHED = (
    "tl_plain_s0",
    "tl_bias_s1",
    "tl_ln_s2",
    "tl_rms_gated_gqa_s3",
    "tl_rotary_s5",
    "tl_shortformer_s7",
    "tl_3layer_s11",
)


@pytest.mark.parametrize("name", CACHED)
def test_a_live_model_and_its_cache(torch: Any, data: Path, name: str) -> None:
    logits, cache, tokens = recorded(torch, data / name)
    live = Live(torch, data / name)
    arrays = sc.from_cache(live, cache, tokens)
    values = sc.evaluate(sc.logits(arrays.architecture), arrays)
    assert float(abs(values.total() - logits).detach().max()) < 1e-9
    values.total().sum().backward()
    for wanted in ("embed.W_E", "blocks.0.attn.W_O", "unembed.W_U"):
        assert float(live.parameters[wanted].grad.abs().max()) > 0
    head = f"L{arrays.architecture.n_layers - 1}H0"
    scores = sc.evaluate(sc.scores(arrays.architecture, head), arrays).total()
    n = tokens.shape[-1]
    seen = torch.tril(torch.ones(n, n, dtype=torch.bool))
    recorded_scores = cache[f"blocks.{head[1]}.attn.hook_attn_scores"][:, 0]
    assert float(abs(scores - recorded_scores).detach()[:, seen].max()) < 1e-9
    assert next(
        sc.evaluate(sc.scores(arrays.architecture, head), arrays).measure(sc.norm(masked=True))
    ).values.requires_grad


def test_a_cache_without_its_batch_axis(torch: Any, data: Path) -> None:
    logits, cache, tokens = recorded(torch, data / "tl_ln_s2")
    arrays = sc.from_cache(Live(torch, data / "tl_ln_s2"), {k: v[0] for k, v in cache.items()}, tokens[0])
    assert float(abs(sc.evaluate(sc.logits(arrays.architecture), arrays).total() - logits[0]).detach().max()) < 1e-9


def test_what_is_cached_otherwise_is_refused(torch: Any, data: Path) -> None:
    _, cache, tokens = recorded(torch, data / "tl_ln_s2")
    live = Live(torch, data / "tl_ln_s2")
    for name in ("blocks.1.attn.hook_pattern", "ln_final.hook_scale"):
        with pytest.raises(ValueError, match=f"the cache lacks {name}: run the model with run_with_cache"):
            sc.from_cache(live, {k: v for k, v in cache.items() if k != name}, tokens)
    with pytest.raises(
        ValueError,
        match=r"A_L0H0 has shape \[2, 9, 9\]; expected \[1, 9, 9\] or \[9, 9\] \(A_L0H0 is made from blocks.0",
    ):
        sc.from_cache(live, cache, tokens[:1])
    with pytest.raises(ValueError, match=r"the others hold float64.* \(A_L0H0 is made from blocks.0.attn.hook_p"):
        sc.from_cache(live, {k: v.float() if "pattern" in k else v for k, v in cache.items()}, tokens)
    foreign = SimpleNamespace(cfg=live.cfg, state_dict=lambda: {f"model.{k}": v for k, v in live.state_dict().items()})
    with pytest.raises(ValueError, match="unknown layout of weights"):
        sc.from_cache(foreign, cache, tokens)
    changed = Live(torch, data / "tl_ln_s2")
    trained = {k: v + 1 if k == "unembed.W_U" else v for k, v in changed.parameters.items()}
    changed.named_parameters = lambda: iter(trained.items())  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="W_U of this model is not a tensor as it is stored"):
        sc.from_cache(changed, cache, tokens)
    few = {k: v[:, :1] if "pattern" in k else v for k, v in cache.items()}
    with pytest.raises(ValueError, match=r"hook_pattern of the cache has shape \[2, 1, 9, 9\], which has no A_L0H1"):
        sc.from_cache(live, few, tokens)
    for model, name in ((3, "int"), (sc.load(live), "Model")):
        with pytest.raises(TypeError, match=f"from_cache takes the live model of TransformerLens itself .* not {name}"):
            sc.from_cache(model, cache, tokens)
    for odd in ([1], None):
        with pytest.raises(TypeError, match=f"a cache has arrays by name, .* this is a {type(odd).__name__}"):
            sc.from_cache(live, odd, tokens)


def test_a_cache_of_normed_queries_and_keys_is_refused(torch: Any, data: Path) -> None:
    live = Live(torch, data / "tl_rotary_s5", use_qk_norm=True, normalization_type="RMS")
    width = live.parameters["blocks.0.attn.W_Q"].shape[-1]
    d_model, layers = (
        live.parameters["embed.W_E"].shape[1],
        sorted({k.split(".")[1] for k in live.parameters if "blocks" in k}),
    )
    more = {f"blocks.{layer}.attn.{s}_norm.w": torch.ones(width).double() for layer in layers for s in "qk"}
    more |= {f"blocks.{layer}.ln1.w": torch.ones(d_model).double() for layer in layers} | {
        "ln_final.w": torch.ones(d_model).double()
    }
    live.parameters |= more
    with pytest.raises(Unsupported, match="the cache of a model with normed queries and keys is not read"):
        sc.from_cache(live, {}, [[1, 2]])


# ------------------------------------------------------------------------------------------------------- JAX
@pytest.fixture
def wide(jax: Any) -> Iterator[Any]:
    """JAX with float64."""
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", False)


@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs(max_terms=12))
def test_jax(wide: Any, drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    compare(expansion, run, run.to(wide.numpy), wide.numpy.float64, 1e8)


def test_jax_without_float64_says_what_it_makes(jax: Any, run: Run) -> None:
    with pytest.raises(
        ValueError, match=r"JAX made float32 of float64; it needs jax_enable_x64 .* ask for dtype='float32'"
    ):
        sc.evaluate(sc.logits(run.model.architecture), run.to(jax.numpy, dtype=jax.numpy.float64)).total()
    found = sc.evaluate(sc.logits(run.model.architecture), run.to(jax.numpy, dtype="float32")).total()
    assert np.abs(np.asarray(found) - run.logits).max() < 1e-4


def test_jax_compiles_and_differentiates(wide: Any, run: Run) -> None:
    arch, logits = run.model.architecture, sc.logits(run.model.architecture)
    arrays = {k: wide.numpy.asarray(np.array(v)) for k, v in run.arrays.items()}

    def total(w_o: Any, finite: bool = False) -> Any:
        return sc.evaluate(logits, Tensors(arch, {**arrays, "W_O_L0H0": w_o}, finite=finite)).total()

    assert np.abs(wide.jit(total)(arrays["W_O_L0H0"]) - run.logits).max() < 1e-12
    grad = wide.grad(lambda w: (total(w) ** 2).sum())(arrays["W_O_L0H0"])
    step = np.zeros(grad.shape)
    step[1, 0] = 1e-6
    rise = [float((total(arrays["W_O_L0H0"] + sign * step) ** 2).sum()) for sign in (1, -1)]
    assert float(grad[1, 0]) == pytest.approx((rise[0] - rise[1]) / 2e-6, rel=1e-5)
    with pytest.raises(ValueError, match=r"cannot tell here whether numbers are finite .* give finite=False"):
        wide.jit(lambda w: total(w, True))(arrays["W_O_L0H0"])
