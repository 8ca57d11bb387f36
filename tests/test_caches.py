"""Caches of live models: what they say was computed is held against what the terms add up to.

The oracle is a model of two layers as TransformerLens runs it, in NumPy and by loops over rows; it shares no code with
the package.
"""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symcircuits as sc

LAYERS, HEADS, WIDTH, D_HEAD, VOCAB, N = 2, 3, 8, 4, 11, 6
TOKENS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
CONFIG = {
    "n_layers": LAYERS, "d_model": WIDTH, "n_heads": HEADS, "d_head": D_HEAD, "d_vocab": VOCAB, "n_ctx": 10,
    "attn_only": True, "normalization_type": None, "positional_embedding_type": "standard",
}  # fmt: skip
Hooks = Mapping[str, Callable[[Any], Any]]


def weights(norm: bool = False, positions: str = "standard") -> dict[str, Any]:
    """Weights under TransformerLens's names and in its shapes."""
    rng = np.random.default_rng(3)
    made = {"embed.W_E": rng.normal(size=(VOCAB, WIDTH)), "unembed.W_U": rng.normal(size=(WIDTH, VOCAB))}
    if positions in ("standard", "shortformer"):
        made["pos_embed.W_pos"] = rng.normal(size=(10, WIDTH))
    for layer in range(LAYERS):
        at = f"blocks.{layer}.attn."
        made |= {f"{at}W_{x}": rng.normal(size=(HEADS, WIDTH, D_HEAD)) / 3 for x in "QKV"}
        made |= {f"{at}b_{x}": rng.normal(size=(HEADS, D_HEAD)) for x in "QKV"}
        made |= {f"{at}W_O": rng.normal(size=(HEADS, D_HEAD, WIDTH)) / 3, f"{at}b_O": rng.normal(size=WIDTH)}
        if norm:
            made |= {f"blocks.{layer}.ln1.w": rng.normal(size=WIDTH), f"blocks.{layer}.ln1.b": rng.normal(size=WIDTH)}
    if norm:
        made |= {"ln_final.w": rng.normal(size=WIDTH), "ln_final.b": rng.normal(size=WIDTH)}
    return made


def config(norm: bool = False, positions: str = "standard") -> dict[str, Any]:
    turned = {"rotary_dim": D_HEAD} if positions == "rotary" else {}
    return CONFIG | {"normalization_type": "LN" if norm else None, "positional_embedding_type": positions} | turned


def softmax(scores: Any) -> Any:
    """Of a row; of one in which all is masked zeros, as TransformerLens has it."""
    if not np.isfinite(scores).any():
        return np.zeros(len(scores))
    made = np.exp(scores - scores.max())
    return made / made.sum()


def turned(rows: Any, places: Any) -> Any:
    out = rows.copy()
    for i, place in enumerate(places):
        for m in range(D_HEAD // 2):
            angle, a, b = place * 10_000 ** (-2 * m / D_HEAD), rows[i, m], rows[i, m + D_HEAD // 2]
            out[i, m] = a * math.cos(angle) - b * math.sin(angle)
            out[i, m + D_HEAD // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


def run_with_cache(
    w: Mapping[str, Any], tokens: Any, attended: Any = None, hooks: Hooks | None = None, positions: str = "standard"
) -> tuple[Any, dict[str, Any]]:
    """Logits and cache of a batch, row by row. ``attended [batch, n]``: 0 for padding."""
    hooks, rows = hooks or {}, []
    attended = np.ones(np.shape(tokens), int) if attended is None else np.asarray(attended)
    for row, there in zip(np.asarray(tokens), attended, strict=True):
        rows.append(one_row(w, row, there, hooks, positions))
    return np.stack([logits for logits, _ in rows]), {k: np.stack([c[k] for _, c in rows]) for k in rows[0][1]}


def one_row(w: Mapping[str, Any], tokens: Any, there: Any, hooks: Hooks, positions: str) -> tuple[Any, dict[str, Any]]:
    cache: dict[str, Any] = {}

    def seen(name: str, x: Any) -> Any:
        cache[name] = hooks[name](x.copy()) if name in hooks else x
        return cache[name]

    def normed(x: Any, name: str) -> Any:
        if f"{name}.w" not in w:
            return x
        x = x - x.mean(-1, keepdims=True)
        scale = seen(f"{name}.hook_scale", np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))
        return seen(f"{name}.hook_normalized", x / scale) * w[f"{name}.w"] + w[f"{name}.b"]

    n = len(tokens)
    places = np.maximum(np.cumsum(there) - 1, 0)
    x = seen("hook_embed", w["embed.W_E"][tokens])
    shifted = np.zeros((n, WIDTH))
    if "pos_embed.W_pos" in w:
        shifted = seen("hook_pos_embed", np.where(there[:, None], w["pos_embed.W_pos"][places], 0))
        x = x + shifted if positions == "standard" else x
    allowed = np.array([[k <= q and bool(there[k]) for k in range(n)] for q in range(n)])
    for layer in range(LAYERS):
        at = f"blocks.{layer}."
        x = seen(f"{at}hook_resid_pre", x)
        values = normed(x, f"{at}ln1")
        read = values + shifted if positions == "shortformer" else values
        all_scores, parts = [], {g: w[f"{at}attn.W_{g}"] for g in "QKVO"}
        for h in range(HEADS):
            q, k = (read @ parts[g][h] + w[f"{at}attn.b_{g}"][h] for g in "QK")
            q, k = (turned(q, places), turned(k, places)) if positions == "rotary" else (q, k)
            all_scores.append(np.where(allowed, q @ k.T / math.sqrt(D_HEAD), -np.inf))
        scores = seen(f"{at}attn.hook_attn_scores", np.stack(all_scores))
        pattern = seen(f"{at}attn.hook_pattern", np.stack([[softmax(r) for r in s] for s in scores]))
        mixed = [pattern[h] @ (values @ parts["V"][h] + w[f"{at}attn.b_V"][h]) for h in range(HEADS)]
        z = seen(f"{at}attn.hook_z", np.stack(mixed, axis=1))
        out = sum(z[:, h] @ parts["O"][h] for h in range(HEADS)) + w[f"{at}attn.b_O"]
        x = seen(f"{at}hook_resid_post", x + seen(f"{at}hook_attn_out", out))
    return normed(x, "ln_final") @ w["unembed.W_U"], cache


def live(w: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
    return SimpleNamespace(cfg=dict(said), state_dict=lambda: dict(w))


def total(arrays: Any, target: str = "logits") -> Any:
    return sc.evaluate(sc.expand(arrays.architecture, target), arrays).total()


LEFT = [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]
RIGHT = [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
KINDS = [(norm, positions) for norm in (False, True) for positions in ("standard", "shortformer", "rotary")]


@pytest.mark.parametrize(("norm", "positions"), KINDS)
@pytest.mark.parametrize("attended", [None, LEFT, RIGHT], ids=["whole", "left", "right"])
def test_padding_gives_the_right_numbers_or_is_refused(norm: bool, positions: str, attended: Any) -> None:
    w = weights(norm, positions)
    logits, cache = run_with_cache(w, TOKENS, attended, positions=positions)
    model = live(w, config(norm, positions))
    if attended is RIGHT and positions == "rotary":  # padded queries stand at one position, which R does not have
        with pytest.raises(ValueError, match=r"hook_attn_scores of the cache .* \[0, 4, 0\] .* padding shift it"):
            sc.from_cache(model, cache, TOKENS)
        return
    arrays = sc.from_cache(model, cache, TOKENS)
    assert abs(total(arrays) - logits).max() < 1e-11
    assert ("P" in arrays.arrays) == (attended is not None and positions != "rotary")
    for head in ("L0H1", "L1H2"):
        scores = cache[f"blocks.{head[1]}.attn.hook_attn_scores"][:, int(head[3])]
        made, there = total(arrays, f"scores:{head}"), np.isfinite(scores)
        assert abs(made - scores)[there].max() < 1e-11
        expansion = sc.scores(arrays.architecture, head)
        [block] = sc.evaluate(expansion, arrays).measure(sc.norm(masked=True), size=10**6)
        for value, norms in zip(sc.evaluate(expansion, arrays), block.values, strict=True):
            assert norms == pytest.approx(np.sqrt((np.where(there, value, 0) ** 2).sum((-2, -1))))


def changed(name: str, change: Callable[[Any], Any]) -> Any:
    return {name: change}


def zeroed(z: Any) -> Any:
    z[:, 1] = 0
    return z


HOOKS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("hook_embed", lambda x: x + 1, r"^hook_embed of the cache .* at \[0, 0\] it differs by .*are these the tokens"),
    (
        "blocks.0.hook_resid_pre",
        lambda x: x + 1,
        r"^blocks.0.hook_resid_pre of the cache .*did a hook add to the stream",
    ),
    (
        "blocks.1.hook_resid_pre",
        lambda x: x + 1,
        r"^blocks.1.hook_resid_pre of the cache .*did a hook add to the stream",
    ),
    ("blocks.0.attn.hook_z", zeroed, r"^blocks.0.attn.hook_z of the cache .* \(of L0H1; did a hook change it\?\)"),
    ("blocks.1.attn.hook_z", zeroed, r"^blocks.1.attn.hook_z of the cache .* \(of L1H1; did a hook change it\?\)"),
    ("blocks.1.hook_attn_out", lambda x: 2 * x, "^blocks.1.hook_attn_out of the cache .* an output of heads"),
    ("blocks.1.hook_resid_post", lambda x: x - 1, "^blocks.1.hook_resid_post of the cache"),
    ("blocks.1.attn.hook_attn_scores", lambda x: 2 * x, r"^blocks.1.attn.hook_attn_scores of the cache .*of L1H0"),
    ("blocks.1.ln1.hook_normalized", lambda x: 2 * x, "^blocks.1.attn.hook_"),
    ("ln_final.hook_normalized", lambda x: 2 * x, "^ln_final.hook_normalized of the cache"),
]


@pytest.mark.parametrize(("name", "change", "message"), HOOKS, ids=[name for name, _, _ in HOOKS])
@pytest.mark.parametrize("number", ["float64", "float32"])
def test_what_a_hook_changed_is_refused_by_name(
    name: str, change: Callable[[Any], Any], message: str, number: str
) -> None:
    w = {k: v.astype(number) for k, v in weights(norm=True).items()}
    _, cache = run_with_cache(w, TOKENS, hooks={name: change})
    cache = {k: v.astype(number) for k, v in cache.items()}
    with pytest.raises(ValueError, match=message):
        sc.from_cache(live(w, config(norm=True)), cache, TOKENS)
    logits, cache = run_with_cache(w, TOKENS)
    arrays = sc.from_cache(live(w, config(norm=True)), {k: v.astype(number) for k, v in cache.items()}, TOKENS)
    assert abs(total(arrays) - logits).max() < (1e-11 if number == "float64" else 1e-4)


@pytest.mark.parametrize("name", ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"])
def test_a_pattern_that_a_hook_changed_is_the_pattern_of_the_terms(name: str) -> None:
    logits, cache = run_with_cache(weights(), TOKENS, hooks={name: lambda x: x / 2})
    assert abs(total(sc.from_cache(live(weights(), config()), cache, TOKENS)) - logits).max() < 1e-11


@pytest.mark.parametrize(
    "hook", ["hook_embed", "blocks.0.hook_resid_pre", "blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
)
def test_one_comparison_tells_where_nothing_else_was_kept(hook: str) -> None:
    kept = ("blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern", "blocks.1.hook_resid_post", "hook_pos_embed")
    logits, cache = run_with_cache(weights(), TOKENS, LEFT)
    arrays = sc.from_cache(live(weights(), config()), {k: cache[k] for k in kept}, TOKENS)
    assert abs(total(arrays) - logits).max() < 1e-11
    assert not [k for k in arrays.arrays if k[:5] == "mask_"]  # what is 0 in a pattern may be masked, or small
    with pytest.raises(ValueError, match=r"blocks.1.hook_resid_post of the cache .* the stream or an output of heads"):
        sc.from_cache(live(weights(), config()), {k: cache[k] for k in kept[:3]}, TOKENS)
    _, cache = run_with_cache(weights(), TOKENS, hooks={hook: lambda x: 0 * x})
    with pytest.raises(ValueError, match=r"blocks.1.hook_resid_post of the cache contradicts the weights"):
        sc.from_cache(live(weights(), config()), {k: cache[k] for k in kept}, TOKENS)


def test_other_tokens_and_a_cache_that_lacks_the_end_are_refused() -> None:
    _, cache = run_with_cache(weights(), TOKENS)
    with pytest.raises(ValueError, match=r"hook_embed of the cache .*are these the tokens of the run"):
        sc.from_cache(live(weights(), config()), cache, (TOKENS + 1) % VOCAB)
    lacking = {k: v for k, v in cache.items() if k != "blocks.1.hook_resid_post"}
    with pytest.raises(
        ValueError, match=r"the cache lacks blocks.1.hook_resid_post: run the model with run_with_cache"
    ):
        sc.from_cache(live(weights(), config()), lacking, TOKENS)
    other = {k: v[:, :, :4] if k.endswith("hook_resid_post") else v for k, v in cache.items()}
    with pytest.raises(
        ValueError, match=r"hook_resid_post of the cache has shape \[2, 6, 4\]: does it belong to this model"
    ):
        sc.from_cache(live(weights(), config()), other, TOKENS)


@pytest.mark.parametrize("norm", [False, True])
def test_one_row_with_or_without_its_batch_axis(norm: bool) -> None:
    """TransformerLens gives tokens ``[n]`` a batch axis in the cache, and takes it away when it is asked to."""
    w, model = weights(norm), live(weights(norm), config(norm))
    logits, cache = run_with_cache(w, TOKENS[:1])
    bare = {k: v[0] for k, v in cache.items()}
    for given, tokens in ((cache, TOKENS[0]), (bare, TOKENS[0]), (cache, TOKENS[:1]), (bare, TOKENS[:1])):
        arrays = sc.from_cache(model, given, tokens)
        assert total(arrays).shape == (*tokens.shape, VOCAB)
        assert abs(total(arrays) - logits).max() < 1e-11


def test_heads_that_see_other_keys_have_no_mask() -> None:
    """A head from which one key was taken: its pattern is right, and what its mask is the layer's cannot say."""

    def knocked_out(scores: Any) -> Any:
        scores[1, 3:, 0] = -np.inf
        return scores

    logits, cache = run_with_cache(weights(), TOKENS, hooks={"blocks.1.attn.hook_attn_scores": knocked_out})
    arrays = sc.from_cache(live(weights(), config()), cache, TOKENS)
    assert abs(total(arrays) - logits).max() < 1e-11
    assert (
        next(sc.evaluate(sc.scores(arrays.architecture, "L0H1"), arrays).measure(sc.norm(masked=True))).values.min() > 0
    )
    with pytest.raises(ValueError, match="a masked norm needs mask_L1"):
        next(sc.evaluate(sc.scores(arrays.architecture, "L1H1"), arrays).measure(sc.norm(masked=True)))


@pytest.mark.parametrize("kept", [True, False])
def test_windows_are_in_the_masks_of_a_cache(kept: bool) -> None:
    """Of the scores where they were kept; else those of the config, layer by layer, where patterns fit them."""

    def near(scores: Any) -> Any:
        return np.where(np.triu(np.ones((N, N)), -1) > 0, scores, -np.inf)

    logits, cache = run_with_cache(weights(), TOKENS, hooks={"blocks.1.attn.hook_attn_scores": near})
    windows = {"use_local_attn": True, "window_size": 2, "attn_types": ["global", "local"]}
    cache = {k: v for k, v in cache.items() if kept or not k.endswith("hook_attn_scores")}
    arrays = sc.from_cache(live(weights(), config() | windows), cache, TOKENS)
    assert abs(total(arrays) - logits).max() < 1e-11
    assert np.array_equal(arrays.arrays["mask_L0"], np.tril(np.ones((N, N))))
    assert np.array_equal(arrays.arrays["mask_L1"], np.triu(np.tril(np.ones((N, N))), -1))
    if not kept:
        assert "mask_L1" not in sc.from_cache(live(weights(), config()), cache, TOKENS).arrays


def as_bridge(w: Mapping[str, Any]) -> dict[str, Any]:
    """The same weights as TransformerLens 4 keeps them."""
    made = {"embed.weight": w["embed.W_E"], "pos_embed.weight": w["pos_embed.W_pos"]}
    made["unembed.weight"] = w["unembed.W_U"].T
    for layer in range(LAYERS):
        at = f"blocks.{layer}.attn."
        for g in "QKV":
            made[f"{at}{g.lower()}.weight"] = np.concatenate([w[f"{at}W_{g}"][h].T for h in range(HEADS)])
            made[f"{at}{g.lower()}.bias"] = w[f"{at}b_{g}"].reshape(-1)
        made[f"{at}o.weight"] = np.concatenate([w[f"{at}W_O"][h] for h in range(HEADS)]).T
        made[f"{at}o.bias"] = w[f"{at}b_O"]
    for name in [n for n in w if ".ln1." in n or n.startswith("ln_final")]:
        made[name[:-1] + {"w": "weight", "b": "bias"}[name[-1]]] = w[name]
    return made


@pytest.mark.parametrize("norm", [False, True])
def test_the_cache_of_a_native_bridge(norm: bool) -> None:
    """TransformerLens 4 records its patterns in place of its scores."""
    w = weights(norm)
    logits, cache = run_with_cache(w, TOKENS)
    cache |= {k: cache[k.replace("attn_scores", "pattern")] for k in cache if k.endswith("hook_attn_scores")}
    model = live(as_bridge(w), config(norm) | {"architecture": "TransformerLensNative"})
    arrays = sc.from_cache(model, cache, TOKENS)
    assert abs(total(arrays) - logits).max() < 1e-11
    assert np.array_equal(arrays.arrays["mask_L1"], np.tril(np.ones((N, N))))
    _, cache = run_with_cache(w, TOKENS, hooks={"blocks.0.attn.hook_z": zeroed})
    with pytest.raises(ValueError, match=r"hook_z of the cache .*of L0H1"):
        sc.from_cache(model, cache, TOKENS)


# --------------------------------------------------------------------------------------- positions of each row
@pytest.mark.parametrize("positions", ["standard", "shortformer"])
def test_positions_of_each_row(positions: str) -> None:
    """``P [batch, n, d]`` gives every row what that row has by itself."""
    arch = sc.transformer((2, 2), positions, biases=["b_V", "b_Q"])
    model = sc.random_model(arch, seed=4, d_vocab=VOCAB)
    run = model.run(TOKENS)
    given = {k: v for k, v in run.arrays.items() if k not in ("X0", "t", "W_pos")}
    P = np.stack([model.weights["W_pos"][[0, 0, 0, 1, 2, 3]], model.weights["W_pos"][[5, 4, 3, 2, 1, 0]]])
    both = sc.Tensors(arch, {**given, "P": P}, TOKENS)
    for row in range(2):
        alone = {k: v[row] if k[:2] == "A_" else v for k, v in given.items()}
        one = sc.Tensors(arch, {**alone, "P": P[row]}, TOKENS[row])
        for target in ("logits", "stream", "scores:L1H1"):
            expansion = sc.expand(arch, target)
            for found, wanted in zip(sc.evaluate(expansion, both), sc.evaluate(expansion, one), strict=True):
                np.testing.assert_allclose(found[row], wanted, rtol=0, atol=1e-12)
            assert abs(total(both, target)[row] - total(one, target)).max() < 1e-11
            norms = [np.concatenate([b.values for b in sc.evaluate(expansion, r).measure()]) for r in (both, one)]
            np.testing.assert_allclose(norms[0][:, row], norms[1], rtol=1e-9, atol=1e-12)
        contributions = [
            np.concatenate([b.values for b in sc.evaluate(sc.logits(arch), r).measure(sc.logit(3, position=2))])
            for r in (both, one)
        ]
        np.testing.assert_allclose(contributions[0][:, row], contributions[1], rtol=0, atol=1e-12)
        entries = [
            np.concatenate([b.values for b in sc.evaluate(sc.scores(arch, "L1H0"), r).measure(sc.score_entry(4, 1))])
            for r in (both, one)
        ]
        np.testing.assert_allclose(entries[0][:, row], entries[1], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"P has shape \[3, 6, 16\]; expected \[2, 6, 16\] or \[6, 16\]"):
        sc.Tensors(arch, {**given, "P": np.zeros((3, 6, 16))}, TOKENS)
