"""Loading: every model of the data folder held to its recorded results, and every file that is refused."""

import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import symcircuits as sc
from symcircuits.loaders import LAYOUTS, Unsupported, from_arrays, load
from symcircuits.loaders.transformerlens import to_paper
from symcircuits.model import Model, Run, random_model

RANDOM = [
    "tl_plain_s0", "tl_bias_s1", "tl_3layer_s11", "tl_shortformer_s7", "tl_ln_s2", "tl_mlp_gelu_ln_s18", "tl_gqa_s9",
    "tl_rotary_s5",
]  # fmt: skip
TRACR = [
    "tracr_prev_1L", "tracr_induction_K_2L", "tracr_induction_K_2L_causal", "tracr_sameprev_QK_2L",
    "tracr_prevprev_V_2L", "tracr_frac_prevs_mlp",
]  # fmt: skip
TRAINED = ["induction_shortformer_h2_s3", "real_gbmi_indhead_finetuned_model_0"]
REFUSED: dict[str, tuple[str, ...]] = {}
ALL = [*RANDOM, *TRACR, *TRAINED]

# Largest difference over largest value: another order of the same float64 operations gives about 1e-14, of the
# float32 ones about 1e-6 (u = 6e-8 times the few dozen operations behind an entry). Seen: 6e-15 and 1.5e-6.
TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-6}


def reference(data: Path, name: str) -> dict[str, Any]:
    with np.load(data / name / "reference.npz") as arrays:
        return dict(arrays)


def agrees(mine: Any, recorded: Any, tolerance: float | None = None) -> bool:
    """Same shape, and close where the reference is neither masked with -inf nor with -1e30."""
    assert mine is not None
    assert mine.shape == recorded.shape
    allowed = recorded > -1e20
    bound = TOLERANCE[recorded.dtype] if tolerance is None else tolerance
    error = np.abs(np.asarray(mine, dtype=np.float64)[allowed] - recorded[allowed]).max()
    return bool(error <= bound * np.abs(recorded[allowed]).max())


def recorded_by_head(run: Run, key: str) -> Any:
    """What the run holds under one of TransformerLens's hook names, stacked as there."""
    if key == "ln_final.hook_normalized":
        x = run.streams[-1]  # before gain and bias
        return (x - x.mean(-1, keepdims=True)) * run.norms["final"][..., None]
    if key.endswith("hook_scale"):  # sigma; 1 / sigma here
        place = key.removesuffix(".hook_scale").replace("blocks.", "")
        label = {"ln1": "L", "ln2": "M"}.get(place.rpartition(".")[2], "final") + place.rpartition(".")[0]
        return 1 / run.norms[label][..., None]
    layer, kind = int(key.split(".")[1]), key.rpartition(".")[2]
    holds = {
        "hook_attn_scores": (run.scores, 1), "scores_premask": (run.scores, 1),
        "hook_pattern": (run.patterns, 1), "hook_result": (run.results, 2),
    }  # fmt: skip
    arrays, axis = holds[kind]
    return np.stack([arrays[str(head)] for head in run.model.architecture.layer_heads(layer)], axis=axis)


# ----------------------------------------------------------------------------------------- what it gives


@pytest.mark.parametrize("name", ALL)
def test_a_model_gives_all_that_its_reference_holds(data: Path, name: str) -> None:
    recorded, run = reference(data, name), load(data / name).run(reference(data, name)["tokens"])
    checked = {"tokens", "decoded", "residual_labels", "unembedded"}  # the last three: the next tests
    if "logits" in recorded:
        assert agrees(run.logits, recorded["logits"])
        checked.add("logits")
    for key in (k for k in recorded if k.startswith(("blocks.", "ln_final."))):
        assert agrees(recorded_by_head(run, key), recorded[key]), key
        checked.add(key)
    if "logits_float32" in recorded:
        assert agrees(run.model.run(recorded["tokens"], "float32").logits, recorded["logits_float32"])
        assert agrees(run.logits, recorded["logits_bfloat16"], 2**-8 * 8)  # bfloat16 has u = 2**-8
        checked |= {"logits_float32", "logits_bfloat16"}
    checked |= {k for k in recorded if k.startswith("comp/")}
    assert recorded.keys() == checked & recorded.keys()


@pytest.mark.parametrize("name", ALL)
def test_masked_entries_are_where_the_reference_has_them(data: Path, name: str) -> None:
    recorded = reference(data, name)
    run = load(data / name).run(recorded["tokens"])
    for key in (k for k in recorded if k.endswith(("hook_attn_scores", "scores_premask"))):
        assert np.array_equal(recorded_by_head(run, key) == -np.inf, recorded[key] < -1e20)
    for pattern in run.patterns.values():
        n = pattern.shape[-1]
        masked = np.triu(np.ones((n, n), dtype=bool), 1) & run.model.architecture.causal
        assert (pattern[..., masked] == 0).all()
        assert np.isfinite(pattern).all()


def test_a_compiled_program_with_mlps_computes_the_share_of_tokens_so_far(data: Path) -> None:
    recorded = reference(data, "tracr_frac_prevs_mlp")
    run = load(data / "tracr_frac_prevs_mlp").run(recorded["tokens"])
    output = json.loads(str(recorded["residual_labels"])).index("frac_prevs_29")
    assert np.allclose(run.streams[-1][:, 1:, output], recorded["unembedded"][:, 1:], rtol=0, atol=2e-6)
    assert json.loads(str(recorded["decoded"]))[1:] == [str(float(x)) for x in recorded["unembedded"][0, 1:]]
    assert set(run.mlps) == {"L0", "L1"}


@pytest.mark.parametrize("name", [name for name in TRACR if "mlp" not in name])
def test_a_compiled_program_computes_what_it_was_written_for(data: Path, name: str) -> None:
    recorded = reference(data, name)
    labels, decoded = (json.loads(str(recorded[key])) for key in ("residual_labels", "decoded"))
    run = load(data / name).run(recorded["tokens"])
    assert run.logits is None
    prefix = name.split("_")[1].replace("induction", "ind")
    output = [i for i, label in enumerate(labels) if label.rpartition("_")[0] == prefix]
    best = run.streams[-1][0][:, output].round(4).argmax(-1)  # where nothing is written there are values near 1e-8
    assert best.tolist() == recorded["unembedded"][0].tolist()
    words = [labels[output[i]].rpartition(":")[2] for i in best]
    assert words[1:] == decoded[1:]
    assert decoded[0] == "BOS"


@pytest.mark.parametrize("name", RANDOM)
def test_composition_scores_are_the_recorded_ones(data: Path, name: str) -> None:
    """They hold the conversion of W_OV and W_QK: a transpose dropped in either gives other numbers."""
    recorded, run = reference(data, name), load(data / name).run([0])
    for kind in "QKV":
        table = np.zeros_like(recorded[f"comp/{kind}"])
        for first in run.model.architecture.all_heads:
            for second in (h for h in run.model.architecture.all_heads if h.layer > first.layer):
                ov, qk = run.arrays[f"W_OV_{first}"], run.arrays[f"W_QK_{second}"]
                reader = {"Q": qk.T, "K": qk, "V": run.arrays[f"W_OV_{second}"]}[kind]
                norms = np.linalg.norm(reader) * np.linalg.norm(ov)
                table[first.layer, first.number, second.layer, second.number] = np.linalg.norm(reader @ ov) / norms
        assert agrees(table, recorded[f"comp/{kind}"])


def plain_transformerlens(folder: Path, tokens: Any) -> dict[str, Any]:
    """The forward pass in TransformerLens's convention, one einsum a step, on the file as it stands."""
    w = {k: v.astype(np.float64) for k, v in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    kind, n, groups = config["positional_embedding_type"], tokens.shape[1], config.get("n_key_value_heads")

    def normed(x: Any, label: str) -> Any:
        if config.get("normalization_type") is None:
            return x
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt(x.var(-1, keepdims=True) + config["eps"]) * w[f"{label}.w"] + w[f"{label}.b"]

    def act(x: Any) -> Any:
        erf = np.vectorize(math.erf)
        return {"relu": np.maximum(x, 0), "gelu": x * (1 + erf(x / np.sqrt(2))) / 2}[config["act_fn"]]

    if groups:
        w |= {
            k.replace("._", "."): np.repeat(v, config["n_heads"] // groups, axis=0) for k, v in w.items() if "._" in k
        }
    x, p = w["embed.W_E"][tokens], w.get("pos_embed.W_pos", np.zeros((1, 1)))[:n]
    x = x + p if kind == "standard" else x
    out = {}
    for layer in range(config["n_layers"]):
        at = f"blocks.{layer}.attn."
        bias = {b: w.get(at + b, np.zeros(1)) for b in ("b_Q", "b_K", "b_V", "b_O")}
        z = normed(x, f"blocks.{layer}.ln1")
        y = z + p if kind == "shortformer" else z
        q = np.einsum("bnd,hde->bnhe", y, w[at + "W_Q"]) + bias["b_Q"]
        k = np.einsum("bnd,hde->bnhe", y, w[at + "W_K"]) + bias["b_K"]
        v = np.einsum("bnd,hde->bnhe", z, w[at + "W_V"]) + bias["b_V"]
        if kind == "rotary":  # entry i with entry i + half, as complex numbers
            half = config["rotary_dim"] // 2
            turns = np.exp(1j * np.outer(np.arange(n), config["rotary_base"] ** (-np.arange(half) / half)))[:, None]
            q, k = (
                np.concatenate([z.real, z.imag, r[..., 2 * half :]], -1)
                for r in (q, k)
                for z in [(r[..., :half] + 1j * r[..., half : 2 * half]) * turns]
            )
        s = np.einsum("bnhe,bmhe->bhnm", q, k) / config.get("attn_scale", np.sqrt(config["d_head"]))
        if config["attention_dir"] == "causal":
            s[..., np.triu(np.ones((n, n), dtype=bool), 1)] = -np.inf
        a = np.exp(s - s.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        result = np.einsum("bhnm,bmhe,hed->bnhd", a, v, w[at + "W_O"])
        out |= {at + "hook_attn_scores": s, at + "hook_pattern": a, at + "hook_result": result}
        x = x + result.sum(2) + bias["b_O"]
        if not config.get("attn_only", True):
            mlp = {k: w[f"blocks.{layer}.mlp.{k}"] for k in ("W_in", "b_in", "W_out", "b_out")}
            x = x + act(normed(x, f"blocks.{layer}.ln2") @ mlp["W_in"] + mlp["b_in"]) @ mlp["W_out"] + mlp["b_out"]
    out["stream"] = x
    x = normed(x, "ln_final")
    if "unembed.W_U" in w:
        out["logits"] = x @ w["unembed.W_U"] + w.get("unembed.b_U", 0)
    return out


@pytest.mark.parametrize("name", ALL)
def test_a_model_is_the_plain_one_in_the_other_convention(data: Path, name: str) -> None:
    tokens = reference(data, name)["tokens"]
    run = load(data / name).run(tokens)
    for key, array in plain_transformerlens(data / name, tokens).items():
        mine = {"stream": run.streams[-1], "logits": run.logits}.get(key)
        assert agrees(recorded_by_head(run, key) if mine is None else mine, array), key


@pytest.mark.parametrize("name", [*ALL, *REFUSED])
def test_every_model_of_the_data_folder_is_loaded_or_refused_by_name(data: Path, name: str) -> None:
    if name not in REFUSED:
        assert load(data / name).name == name
        return
    with pytest.raises(
        Unsupported, match="this model has features that are not supported, so it is not run: "
    ) as error:
        load(data / name)
    assert error.value.features == REFUSED[name]
    assert all(feature in str(error.value) for feature in REFUSED[name])
    assert name in str(error.value)


def test_the_data_folder_is_all_tested(data: Path) -> None:
    folders = {p.name for p in data.iterdir() if (p / "model.safetensors").exists()}
    assert {*ALL, *REFUSED} <= folders
    assert (data / "real_gbmi_indhead_finetuned_model_0" / "LICENSE").exists()


def test_the_registry_of_layouts_is_tested() -> None:
    assert [layout.name for layout in LAYOUTS] == ["TransformerLens 4", "TransformerLens", "GPT-2", "GPT-NeoX", "LLaMA"]


# ------------------------------------------------------------------------------------ what was assumed


@pytest.mark.parametrize(
    ("name", "biases", "notes"),
    [
        ("tl_plain_s0", 0, ["b_V, b_Q, b_K of all heads, b_O of all layers, b_U are zero and are not sources"]),
        ("tl_bias_s1", 21, []),
        ("tl_3layer_s11", 22, []),
        ("tl_shortformer_s7", 21, []),
        ("induction_shortformer_h2_s3", 0, []),
    ],
)
def test_biases_that_are_zero_are_no_sources_and_are_listed(
    data: Path, name: str, biases: int, notes: list[str]
) -> None:
    model = load(data / name)
    assert (len(model.architecture.biases), list(model.notes)) == (biases, notes)


def test_single_biases_that_are_zero_are_listed_by_head(data: Path) -> None:
    weights, config = parts(data, "tl_bias_s1")
    weights["blocks.0.attn.b_V"][1] = 0
    weights["blocks.1.attn.b_O"][:] = 0
    weights["unembed.b_U"][:] = 0
    model = from_arrays(weights, config)
    assert model.notes == ("b_V of L0H1, b_O of L1, b_U are zero and are not sources",)
    assert {"b_V[L0H1]", "b_O[L1]", "b_U"}.isdisjoint(model.architecture.biases)
    assert len(model.architecture.biases) == 18
    tokens = reference(data, "tl_bias_s1")["tokens"]
    assert model.run(tokens).logits is not None
    weights["blocks.1.attn.b_O"][3] = 1e-300  # small is not zero
    assert "b_O[L1]" in from_arrays(weights, config).architecture.biases


def test_a_model_says_what_it_is(data: Path) -> None:
    model = load(data / "tracr_induction_K_2L")
    assert (model.d_model, model.d_vocab, model.d_vocab_out, model.n_context) == (21, 6, None, 7)
    assert (model.dtype, model.architecture.causal, model.architecture.unembed) == ("float32", False, False)
    assert model.notes[0] == "there is no unembedding, so there are no logits: the residual stream is expanded"
    assert model.score_scale == {"L0H0": pytest.approx(8**-0.5, rel=1e-15), "L1H0": pytest.approx(8**-0.5, rel=1e-15)}


# ------------------------------------------------------------------------------------ configs and shapes


def parts(data: Path, name: str = "tl_bias_s1") -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the config of a model, free to be changed."""
    weights = {k: v.copy() for k, v in load_file(data / name / "model.safetensors").items()}
    return weights, json.loads((data / name / "config.json").read_text())


def changed(data: Path, name: str = "tl_bias_s1", drop: tuple[str, ...] = (), **config: Any) -> Model:
    weights, given = parts(data, name)
    return from_arrays(weights, {k: v for k, v in {**given, **config}.items() if k not in drop}, name)


def same_scores(a: Model, b: Model, factor: float = 1.0) -> bool:
    one, two = a.run([1, 2, 3]).scores["L0H1"], b.run([1, 2, 3]).scores["L0H1"]
    allowed = np.isfinite(one)
    return bool(np.allclose(factor * one[allowed], two[allowed], rtol=1e-13, atol=0))


def test_the_score_scale_is_read(data: Path) -> None:
    base = load(data / "tl_bias_s1")
    for drop, config, factor in (
        (("attn_scale",), {}, 1.0),
        ((), {"attn_scale": -1}, 1.0),
        ((), {"attn_scale": None}, 1.0),
        (("attn_scale", "use_attn_scale"), {}, 1.0),
        ((), {"attn_scale": 8.0}, 0.25),
        ((), {"attn_scale": 1}, 2.0),
    ):
        model = changed(data, drop=drop, **config)
        assert same_scores(base, model, factor), (drop, config)
        assert model.architecture.scale
        assert ("divided by attn_scale" in " ".join(model.notes)) == (factor != 1)
    model = changed(data, use_attn_scale=False)
    assert same_scores(base, model, 2.0)
    assert (model.architecture.scale, model.score_scale) == (False, {})
    assert model.notes == ("use_attn_scale is false",)


def test_absent_keys_take_their_defaults(data: Path) -> None:
    weights, _ = parts(data)
    del weights["pos_embed.W_pos"]
    model = from_arrays(weights, {})
    assert model.architecture.heads == (3, 3)
    assert model.architecture.positions is None
    assert model.architecture.causal
    assert model.n_context is None
    assert model.notes == (
        "the config does not give a kind of position, so there is none",
        "the config does not give attention_dir, so attention is causal",
    )


def test_heads_may_differ_by_layer(data: Path) -> None:
    weights, config = parts(data)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        weights[f"blocks.0.attn.{name}"] = weights[f"blocks.0.attn.{name}"][:2]
    both = [from_arrays(weights, {**config, "n_heads": [2, 3]})]
    del config["n_heads"]
    both.append(from_arrays(weights, config))
    for model in both:
        assert model.architecture.heads == (2, 3)
        assert model.run([1, 2]).logits is not None


def test_a_layer_may_have_no_heads(data: Path) -> None:
    weights, config = parts(data)
    without = {k: v for k, v in weights.items() if not k.startswith("blocks.1.attn.") or k.endswith("b_O")}
    empty = {k: v[:0] if k.startswith("blocks.1.attn.") and not k.endswith("b_O") else v for k, v in weights.items()}
    for changed_weights in (without, empty):
        model = from_arrays(changed_weights, {**config, "n_heads": [3, 0]})
        assert model.architecture.heads == (3, 0)
        assert "b_O[L1]" in model.architecture.biases
        run = model.run([1, 2])
        assert np.allclose(run.streams[2] - run.streams[1], weights["blocks.1.attn.b_O"])


def test_no_layers_at_all() -> None:
    weights = {"embed.W_E": np.eye(3, 2), "unembed.W_U": np.ones((2, 4))}
    model = from_arrays(weights, {"n_layers": 0, "d_vocab_out": 4})
    assert model.architecture.heads == ()
    assert model.run([0, 2]).logits.tolist() == [[1] * 4, [0] * 4]


def test_buffers_are_dropped(data: Path) -> None:
    weights, config = parts(data)
    causal = np.tril(np.ones((12, 12), dtype=bool))
    buffers = {"blocks.0.attn.mask": causal, "blocks.0.attn.IGNORE": np.array(-1e5)}
    model = from_arrays(weights | buffers, config)
    dropped = "buffers that are not weights were dropped: blocks.0.attn.mask, blocks.0.attn.IGNORE"
    assert model.notes == (dropped,)
    prefix = causal | (np.arange(12) < 3)
    for mask in (prefix, causal & (np.arange(12) > 0), np.triu(causal, -3)):
        odd = from_arrays(weights | buffers | {"blocks.0.attn.mask": mask, "blocks.1.attn.mask": mask}, config)
        assert odd.notes[1].startswith("blocks.0.attn.mask (and 1 more) in the file is another mask than that of this")
    windows = {"use_local_attn": True, "window_size": 4, "attn_types": ["local", "global"]}
    near = from_arrays(weights | {"blocks.0.attn.mask": np.triu(causal, -3)}, config | windows)
    assert not [note for note in near.notes if "another mask" in note]
    assert any("another mask" in note for note in from_arrays(weights | buffers, config | windows).notes)
    odd = from_arrays(weights | {"blocks.0.attn.mask": prefix}, config)
    assert np.array_equal(odd.run([1, 2, 3, 4], mask=prefix[:4, :4]).masks["L1"], prefix[:4, :4])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"n_layers": 3}, "n_layers in the config is 3, but there are weights of 2 layers, up to blocks.1"),
        ({"n_layers": 1}, "n_layers in the config is 1, but there are weights of 2 layers, up to blocks.1"),
        ({"n_layers": 10**9}, "n_layers in the config is 1000000000, but there are weights of 2 layers"),
        ({"n_heads": 4}, r"W_Q has shape \[3, 16, 4\]; expected \[n_heads, d_model, d_head\] = \[4, 16, 4\], .* = 4"),
        ({"n_heads": [3, 2]}, r"blocks.1.attn.W_Q has shape \[3, 16, 4\]; .* the config says n_heads = 2"),
        ({"n_heads": [3]}, r"n_heads in the config must be .* one whole number for each of the 2 layers, not \[3\]"),
        ({"d_model": 20}, r"W_E has shape \[11, 16\]; expected \[d_vocab, d_model\] = \[11, 20\], .*says d_model = 20"),
        ({"d_head": 8}, r"W_Q has shape \[3, 16, 4\]; expected .* = \[3, 16, 8\], where the config says d_head = 8"),
        ({"d_vocab": 12}, r"embed.W_E has shape \[11, 16\]; expected .*, where the config says d_vocab = 12"),
        ({"d_vocab_out": 7}, r"unembed.W_U has shape \[16, 11\]; .* the config says d_vocab_out = 7"),
        ({"n_ctx": 5}, r"pos_embed.W_pos has shape \[12, 16\]; expected \[n_ctx, d_model\] = \[5, 16\], .*n_ctx = 5"),
        ({"positional_embedding_type": None}, "positional_embedding_type is null, which means no position, but there"),
        ({"n_layers": "2"}, 'n_layers in the config must be a whole number, 0 or more, not "2"'),
        ({"n_layers": True}, "n_layers in the config must be a whole number, 0 or more, not true"),
        ({"d_model": 16.0}, "d_model in the config must be a whole number, 1 or more, not 16.0"),
        ({"n_heads": -2}, "n_heads in the config must be a whole number, 0 or more, not -2"),
        ({"attention_dir": "sideways"}, 'attention_dir must be "causal" or "bidirectional", not "sideways"'),
        ({"attn_scale": 0}, "attn_scale, which scores are divided by, must be a positive number, not 0"),
        ({"attn_scale": "2"}, 'must be a positive number, not "2"'),
        ({"attn_scale": float("inf")}, "attn_scale in the config holds a number that is not finite, or too large: Inf"),
        ({"use_attn_scale": 1}, "use_attn_scale in the config must be true or false, not 1"),
        ({"attn_only": "yes"}, 'attn_only in the config must be true or false, not "yes"'),
        ({"attn_scores_soft_cap": "30"}, 'attn_scores_soft_cap in the config must be a number, not "30"'),
        ({"positional_embedding_type": 3}, 'type must be null, "standard", "shortformer", "rotary" or "alibi", not 3'),
        ({"use_qk_norm": True}, "use_qk_norm is true, but there is no weight such as blocks.0.attn.q_norm.w"),
        ({"use_local_attn": True}, "use_local_attn is true, but there is no window_size"),
        ({"use_local_attn": True, "window_size": 4, "attn_types": ["local"]}, 'must list "local" or "global" for each'),
        ({"rotary_dim": 3}, "rotary_dim in the config must be even, because entries rotate in pairs, not 3"),
        ({"rotary_base": 0}, "rotary_base in the config must be a positive number, not 0"),
        ({"positional_embedding_type": "rotary"}, "which means no table of positions, but there is a pos_embed.W_pos"),
        ({"novel_trick": 2.5}, "unknown keys, which may change .*: novel_trick = 2.5; remove"),
    ],
)  # fmt: skip
def test_a_config_that_is_wrong_or_contradicts_the_weights(data: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        changed(data, **config)
    assert not isinstance(error.value, Unsupported)


def test_windows_and_caps_are_read(data: Path) -> None:
    """What they do to a run is tested with the forward pass; here that they arrive."""
    local = {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]}
    model = changed(data, **local, attn_scores_soft_cap=5.0, output_logits_soft_cap=3)
    assert (model.settings.windows, model.settings.score_cap, model.settings.logit_cap) == ((2, None), 5.0, 3.0)
    run = model.run([1, 2, 3])
    assert run.patterns["L0H0"][2, 0] == 0 < run.patterns["L1H0"][2, 0]
    assert np.abs(run.logits).max() < 3
    report = sc.verify(model, [1, 2, 3, 4], targets=["logits", "scores:L1H0"])
    assert report.ok, report.text()


@pytest.mark.parametrize(
    "config",
    [
        {"rotary_scaling_factor": 1.0},
        {"rotary_scaling_factor": 1, "rotary_base_local": 77},
        {"rotary_base_local": 10000.0, "use_local_attn": True, "window_size": 100},
    ],
)
def test_what_does_not_scale_rotary_positions(data: Path, config: dict[str, Any]) -> None:
    weights, said = parts(data, "tl_rotary_s5")
    assert same_scores(from_arrays(weights, {**said, **config}), load(data / "tl_rotary_s5"))


def test_windows_belong_to_the_causal_mask(data: Path) -> None:
    local = {"use_local_attn": True, "window_size": 2, "attention_dir": "bidirectional"}
    model = changed(data, **local)
    assert model.settings.windows == ()
    assert any("windows (use_local_attn), part of the causal mask, have no effect" in note for note in model.notes)
    assert (model.run([1, 2, 3, 4]).patterns["L0H0"] > 0).all()


def test_alibi_is_read(data: Path) -> None:
    """With TransformerLens's slopes, in float32; the table of positions that its models hold all the same is unread."""
    weights, config = parts(data)
    model = from_arrays(weights, {**config, "positional_embedding_type": "alibi"})
    assert "pos_embed.W_pos is in the file, but unused in a model with ALiBi" in model.notes
    run, slopes = model.run([1, 2, 3]), [np.float64(np.float32(2 ** (-8 * h / 3))) for h in (1, 2, 3)]
    for head, slope in enumerate(slopes):
        added = run.scores[f"L0H{head}"] - run.products[f"L0H{head}"]
        assert np.allclose([added[2, 0], added[1, 0], added[1, 1]], [-2 * slope, -slope, 0], atol=1e-15)


def test_a_position_table_that_is_not_there(data: Path) -> None:
    weights, config = parts(data)
    del weights["pos_embed.W_pos"]
    with pytest.raises(ValueError, match=r'positional_embedding_type is "standard", but there is no pos_embed\.W_pos'):
        from_arrays(weights, config)
    with pytest.raises(ValueError, match="positional_embedding_type is not given, which means no position, but there"):
        changed(data, drop=("positional_embedding_type",))


@pytest.mark.parametrize(
    ("config", "features"),
    [
        ({"final_rms": True, "normalization_type": "LN"}, ("RMS normalization at the end",)),
        ({"original_architecture": "Olmo2ForCausalLM"}, ("normalization of the outputs of attention and MLPs",)),
        ({"rmsnorm_uses_offset": True}, ("an RMS gain counted from 1",)),
        ({"positional_embedding_type": "rotary", "use_NTK_by_parts_rope": True}, ("scaled rotary positions",)),
        ({"positional_embedding_type": "rotary", "rotary_scaling_factor": 8.0}, ("scaled rotary positions",)),
        (
            {"positional_embedding_type": "rotary", "rotary_base_local": 5, "use_local_attn": True, "window_size": 2},
            ("scaled rotary positions",),
        ),
        ({"positional_embedding_type": "alibi", "attention_dir": "bidirectional"}, ("ALiBi both ways",)),
        ({"positional_embedding_type": "relative_positional_bias"}, ("relative positions",)),
        ({"positional_embedding_type": "sinusoidal"}, ("another kind of position",)),
        ({"use_local_attn": None, "window_size": 4}, ("local (windowed) attention",)),
        ({"use_local_attn": None, "attn_types": ["local", "global"]}, ("local (windowed) attention",)),
        ({"use_normalization_before_and_after": True}, ("normalization after each block",)),
        ({"post_embedding_ln": True}, ("normalization after the embedding",)),
        ({"num_experts": 8, "experts_per_token": 2}, ("a mixture of experts",)),
        ({"load_in_4bit": True}, ("4-bit weights",)),
        ({"scale_embedding": True}, ("a scaled embedding",)),
        ({"use_attention_sinks": True}, ("attention sinks",)),
        (
            {"load_in_4bit": True, "post_embedding_ln": True},
            ("normalization after the embedding", "4-bit weights"),
        ),
    ],
)
def test_a_config_that_needs_what_is_not_built(data: Path, config: dict[str, Any], features: tuple[str, ...]) -> None:
    with pytest.raises(
        Unsupported, match="this model has features that are not supported, so it is not run: "
    ) as error:
        changed(data, **config)
    assert error.value.features == features
    assert any(key in str(error.value) for key in config)


@pytest.mark.parametrize(
    "config",
    [
        {"n_key_value_heads": 3},
        {"n_key_value_heads": None},
        {"use_local_attn": False, "window_size": 4, "attn_types": ["global", "global"]},
        {"attn_scores_soft_cap": 0.0, "output_logits_soft_cap": None},
        {"rotary_base": 5, "rotary_dim": None, "dtype": "torch.float64", "device": "cuda", "seed": 3, "n_params": 9},
        {"novel_trick": None, "another": False},
        {"d_vocab_out": -1, "n_heads": -1},
        {"final_rms": True, "original_architecture": "GPT2LMHeadModel"},
    ],
)
def test_what_changes_nothing_is_taken(data: Path, config: dict[str, Any]) -> None:
    same = changed(data, **config)
    assert same.architecture == load(data / "tl_bias_s1").architecture
    assert same_scores(same, load(data / "tl_bias_s1"))


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("blocks.1.ln1_post.w", "normalization after each block"),
        ("embed.ln.w", "normalization after the embedding"),
        ("blocks.0.mlp.ln.w", "normalization inside an MLP"),
        ("blocks.0.mlp.experts.0.W_in", "a mixture of experts"),
        ("blocks.0.attn.rel_pos_bias.weight", "relative positions"),
        ("blocks.0.attn.sinks", "attention sinks"),
        ("embed.token_type_embed.W_token_type", "token types"),
    ],
)
def test_weights_that_need_what_is_not_built(data: Path, name: str, feature: str) -> None:
    weights, config = parts(data)
    with pytest.raises(Unsupported, match="not supported") as error:
        from_arrays({**weights, name: np.ones(3)}, config)
    assert error.value.features == (feature,)
    assert name in str(error.value)


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_unembedding_is_the_embedding(data: Path, bias: bool) -> None:
    weights, config = parts(data)
    del weights["unembed.W_U"]
    if not bias:
        del weights["unembed.b_U"]
        assert not from_arrays(weights, config).architecture.unembed
    tied = from_arrays(weights, {**config, "tie_word_embeddings": True})
    untied = from_arrays({**weights, "unembed.W_U": weights["embed.W_E"].T.copy()}, config)
    assert np.abs(tied.run([1, 2, 3]).logits - untied.run([1, 2, 3]).logits).max() < 1e-12
    assert "the unembedding is the embedding (tied)" in tied.notes
    with pytest.raises(ValueError, match="d_vocab_out"):
        from_arrays(weights, {**config, "tie_word_embeddings": True, "d_vocab_out": 5})
    with pytest.raises(ValueError, match='tie_word_embeddings in the config must be true or false, not "yes"'):
        from_arrays(weights, {**config, "tie_word_embeddings": "yes"})


# ---------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks.0.attn.W_K": None}, "the file lacks 1 weight: blocks.0.attn.W_K$"),
        ({"unembed.W_U": None}, "the file lacks 1 weight: unembed.W_U$"),
        ({"embed.W_E": None}, "the file lacks 1 weight: embed.W_E$"),
        ({"blocks.0.attn.W_X": np.ones(2)}, "the file has 1 weight that it does not use: blocks.0.attn.W_X$"),
        ({"blocks.x.attn.W_Q": np.ones(2)}, "the file has 1 weight that it does not use: blocks.x.attn.W_Q$"),
        (
            {"blocks.1.attn.W_Q": None, "blocks.1.attn.q.weight": np.ones((12, 16))},
            "the file lacks 1 weight: blocks.1.attn.W_Q; it has these, which are unknown: blocks.1.attn.q.weight$",
        ),
        ({"embed.W_E": np.ones((16, 11))}, r"W_E has shape \[16, 11\]; .* says d_vocab = 11, d_model = 16; its"),
        ({"blocks.0.attn.W_Q": np.ones((3, 4, 16))}, r"W_Q has shape \[3, 4, 16\]; .*; its transpose would fit"),
        ({"blocks.0.attn.W_O": np.ones((3, 16, 4))}, r"W_O has shape \[3, 16, 4\]; expected .*; its transpose"),
        ({"blocks.0.attn.W_Q": np.ones((12, 16))}, r"blocks.0.attn.W_Q has shape \[12, 16\]; expected"),
        ({"blocks.1.attn.b_O": np.ones(17)}, r"blocks.1.attn.b_O has shape \[17\]; expected \[d_model\] = \[16\]"),
        ({"unembed.b_U": np.full(11, np.nan)}, r"unembed.b_U holds nan at \[0\] and 10 more such entries"),
        ({"embed.W_E": np.ones((11, 16), dtype=int)}, "embed.W_E holds int64; a weight must hold float16, float32"),
        ({"embed.W_E": np.ones((11, 16), dtype=">f8")}, "embed.W_E is stored in the other byte order"),
        ({"embed.W_E": [[1.0], [2.0, 3.0]]}, "embed.W_E cannot be read as an array"),
    ],
)  # fmt: skip
def test_weights_that_are_wrong_are_named(data: Path, change: dict[str, Any], message: str) -> None:
    weights, config = parts(data)
    weights.update(change)
    with pytest.raises(ValueError, match=message):
        from_arrays({name: w for name, w in weights.items() if w is not None}, config)


def test_weights_without_a_known_layout() -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown layout of weights: known are TransformerLens 4, .*; the first names are words.weight",
    ):
        from_arrays({"words.weight": np.ones((3, 2))}, {})
    with pytest.raises(ValueError, match="there are no weights at all"):
        from_arrays({}, {})
    with pytest.raises(ValueError, match="a config maps keys such as n_layers to values; this is a list"):
        from_arrays({}, [])  # type: ignore[arg-type]


def test_the_conversion_transposes_and_takes_heads_apart() -> None:
    rng = np.random.default_rng(0)
    w_q, w_k, w_v = (rng.standard_normal((3, 16, 4)) for _ in range(3))
    w_o, e, u = rng.standard_normal((3, 4, 16)), rng.standard_normal((11, 16)), rng.standard_normal((16, 7))
    at = "blocks.2.attn."
    there = {at + "W_Q": w_q, at + "W_K": w_k, at + "W_V": w_v, at + "W_O": w_o, at + "b_V": w_o[:, :, 0]}
    there |= {at + "b_O": u[:, 0], "embed.W_E": e, "unembed.W_U": u, "pos_embed.W_pos": e, "unembed.b_U": u[0]}
    here = to_paper(there)
    assert len(here) == 4 * 3 + 3 + 5
    for h in range(3):
        assert np.allclose(here[f"W_O_L2H{h}"] @ here[f"W_V_L2H{h}"], (w_v[h] @ w_o[h]).T)
        assert np.allclose(here[f"W_Q_L2H{h}"].T @ here[f"W_K_L2H{h}"], w_q[h] @ w_k[h].T)
        assert np.array_equal(here[f"b_V_L2H{h}"], w_o[h, :, 0])
    assert np.array_equal(here["W_E"], e.T)
    assert np.array_equal(here["W_U"], u.T)
    assert np.array_equal(here["W_pos"], e)
    assert np.array_equal(here["b_U"], u[0])
    assert np.array_equal(here["b_O_L2"], u[:, 0])


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """A model of its own, to be damaged."""
    place = tmp_path / "model"
    shutil.copytree(data / "tl_bias_s1", place)
    return place


def logits(path: Path) -> Any:
    return load(path).run([1, 2, 3]).logits


def test_a_model_is_loaded_from_a_folder_a_file_and_a_link(folder: Path, data: Path, tmp_path: Path) -> None:
    expected = logits(data / "tl_bias_s1")
    assert np.array_equal(logits(folder / "model.safetensors"), expected)
    (tmp_path / "link").symlink_to(folder)
    assert np.array_equal(logits(tmp_path / "link"), expected)
    assert np.array_equal(load(str(folder)).run([1, 2, 3]).logits, expected)
    assert load(folder / "model.safetensors").name == load(folder).name == "model"
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert load(folder / "other.safetensors").name == "other"


def test_npz_is_the_same_model(folder: Path, data: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(folder / "model.npz", **load_file(data / "tl_bias_s1" / "model.safetensors"))
        (folder / "model.safetensors").unlink(missing_ok=True)
        assert np.array_equal(logits(folder), logits(data / "tl_bias_s1"))
        assert np.array_equal(logits(folder / "model.npz"), logits(data / "tl_bias_s1"))


def bfloat16(w: Any) -> Any:
    """The upper half of each float32."""
    return (np.ascontiguousarray(w, dtype="<f4").view("<u4") >> 16).astype("<u2")


def test_half_precision_is_read_exactly(folder: Path, data: Path) -> None:
    weights = {k: v.astype(np.float32) for k, v in load_file(data / "tl_bias_s1" / "model.safetensors").items()}
    specs = {
        k: {"dtype": "bfloat16", "shape": list(v.shape), "data": bfloat16(v).tobytes()} for k, v in weights.items()
    }
    (folder / "model.safetensors").write_bytes(safetensors_bytes(specs))
    model = load(folder)
    exact = {k: (bfloat16(v).astype("<u4") << 16).view("<f4") for k, v in weights.items()}
    assert all(np.array_equal(model.weights[k], w) for k, w in to_paper(exact).items())
    assert model.dtype == "bfloat16"
    assert model.notes == ("weights stored as bfloat16 were read exactly and are computed with in float64",)
    assert np.array_equal(logits(folder), from_arrays(exact, parts(data)[1]).run([1, 2, 3]).logits)

    save_file({k: v.astype(np.float16) for k, v in weights.items()}, folder / "model.safetensors")
    model = load(folder)
    assert model.dtype == "float16"
    assert all(np.array_equal(model.weights[k], w.astype(np.float16)) for k, w in to_paper(weights).items())
    assert model.notes == ("weights stored as float16 were read exactly and are computed with in float64",)

    save_file(
        {k: v.astype(np.float16) if "embed" in k else v for k, v in weights.items()}, folder / "model.safetensors"
    )
    assert load(folder).dtype == "float16, float32"


def safetensors_bytes(specs: dict[str, dict[str, Any]]) -> bytes:
    """A safetensors file by hand, so that any dtype can be written and any header broken."""
    kinds = {"bfloat16": "BF16", "float64": "F64", "int64": "I64", "float8": "F8_E4M3", "bool": "BOOL"}
    header, blob = {}, b""
    for name, spec in specs.items():
        ends = [len(blob), len(blob) + len(spec["data"])]
        header[name] = {"dtype": kinds[spec["dtype"]], "shape": spec["shape"], "data_offsets": ends}
        blob += spec["data"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + blob


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) - 100]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "the file is cut off: its header promises .* bytes of weights, not "),
        (lambda raw: raw[:5], "this is not a safetensors file: it has only 5 bytes"),
        (lambda raw: b"", "this is not a safetensors file: it has only 0 bytes"),
        (lambda raw: raw[:200], "the file is cut off or damaged: its header should have .* bytes, and 192 follow"),
        (lambda raw: struct.pack("<Q", 2**60) + raw[8:], f"its header should have {2**60} bytes"),
        (lambda raw: b"\x80\x04\x95" + raw, "this is not a safetensors file: it does not begin with a header"),
        (lambda raw: b"<!DOCTYPE html>" + raw, "this is not a safetensors file: it does not begin with a header"),
        (lambda raw: b"PK\x03\x04" + raw, "this is not a safetensors file: it does not begin with a header"),
        (lambda raw: raw[:8] + b"{" * 100 + raw[108:], "this is not a safetensors file: its header cannot be read"),
        (lambda raw: raw + b"more", "this is not a whole safetensors file, or it is damaged"),
        (lambda raw: struct.pack("<Q", 9) + b'{"a": 1} ', "its header cannot be read"),
        (lambda raw: struct.pack("<Q", 2) + b"{}", "there are no weights at all"),
    ],
)
def test_a_damaged_safetensors_file(folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        load(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("position", range(0, 3000, 37))
def test_no_damage_gives_another_kind_of_error(folder: Path, position: int) -> None:
    """One byte changed: it loads, or the error is a ValueError that names the file."""
    file = folder / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[position] ^= 0x55
    file.write_bytes(raw)
    try:
        load(folder)
    except ValueError as error:
        message = str(error)
    else:
        message = str(folder)
    assert str(folder) in message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (("float8", [8], b"12345678"), "embed.W_E is stored as F8_E4M3, which is not supported; store it as float64, "),
        (("int64", [1], b"12345678"), "embed.W_E holds int64; a weight must hold"),
        (("bool", [1], b"\1"), "embed.W_E holds bool; a weight must hold"),
    ],
)
def test_a_safetensors_file_of_other_numbers(folder: Path, spec: tuple[str, list[int], bytes], message: str) -> None:
    kind, shape, raw = spec
    content = safetensors_bytes({"embed.W_E": {"dtype": kind, "shape": shape, "data": raw}})
    (folder / "model.safetensors").write_bytes(content)
    (folder / "config.json").write_text('{"n_layers": 0}')
    with pytest.raises(ValueError, match=message):
        load(folder)


def npz(folder: Path, **arrays: Any) -> Path:
    (folder / "model.safetensors").unlink(missing_ok=True)
    np.savez(folder / "model.npz", **arrays)
    return folder / "model.npz"


def test_an_npz_that_needs_pickle_is_refused(folder: Path) -> None:
    npz(folder, **{"embed.W_E": np.array([{"a": 1}], dtype=object)})
    with pytest.raises(ValueError, match=r"model.npz: embed.W_E needs pickle, which can run code; it is not read"):
        load(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "this is not a whole .npz file, or it is damaged"),
        (lambda raw: raw[:40], "this is not a whole .npz file, or it is damaged"),
        (lambda raw: b"", "this is not a whole .npz file, or it is damaged"),
        (lambda raw: b"hello" * 100, "this is not an .npz file, or it needs pickle; it is not read"),
        (
            lambda raw: raw[:300] + bytes(200) + raw[500:],
            r"this is not a whole .npz file, or it is damaged \(embed.W_E: Bad CRC-32",
        ),
    ],
)
def test_a_damaged_npz(folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file = npz(folder, **{"embed.W_E": np.random.default_rng(0).standard_normal((11, 16))})
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        load(folder)
    assert str(folder) in str(error.value)


def test_a_single_array_is_no_npz(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    np.save(folder / "array.npy", np.ones(3))
    (folder / "array.npy").rename(folder / "model.npz")
    with pytest.raises(ValueError, match=r"this is a single array, not an \.npz file of named arrays"):
        load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "config.json: this is not JSON"),
        (b"{'n_layers': 2}", "config.json: this is not JSON"),
        (b"\xff\xfe{}", "config.json: this is not JSON"),
        (b"[" * 100_000, "config.json: it is nested too deeply"),
        (b'{"n_layers": ' + b"9" * 6000 + b"}", "config.json: a number there has 6,000 digits"),
        (b'{"n_layers": 1, "n_layers": 2}', "config.json: 'n_layers' appears twice"),
        (b'{"rope": {"type": 1, "base": 2, "type": 1}}', "config.json: 'type' appears twice"),
        (b"[1, 2]", "config.json: a config is a JSON object with keys such as n_layers, not a list"),
        (b"null", "config.json: a config is a JSON object with keys such as n_layers, not a NoneType"),
    ],
)
def test_a_config_that_cannot_be_read(folder: Path, content: bytes, message: str) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(folder)


def make_both(folder: Path) -> Path:
    np.savez(folder / "model.npz", a=np.ones(1))
    return folder


def make_dangling(folder: Path) -> Path:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "gone")
    return folder


def without(name: str) -> Callable[[Path], Path]:
    def remove(folder: Path) -> Path:
        (folder / name).unlink()
        return folder

    return remove


def make_directory(name: str) -> Callable[[Path], Path]:
    def replace(folder: Path) -> Path:
        (folder / name).unlink()
        (folder / name).mkdir()
        return folder

    return replace


def no_model(folder: Path) -> Path:
    file = folder / "elsewhere" / "README.md"
    file.parent.mkdir()
    file.write_text("# A text with no config.json beside it")
    return file


def rename(name: str) -> Callable[[Path], Path]:
    return lambda folder: (folder / "model.safetensors").rename(folder / name)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: folder / "none", "none: there is no such file or folder$"),
        (lambda folder: folder / ("x" * 300), "cannot be read .File name too long"),
        (lambda folder: folder / "config.json" / "x", "there is no such file or folder|Not a directory"),
        (without("model.safetensors"), "there is no model.safetensors or model.npz in this folder"),
        (without("config.json"), "config.json: there is no such file or folder; a model needs its config.json next to"),
        (make_both, "there are both model.safetensors and model.npz; keep one of them"),
        (make_dangling, "model.safetensors: this link is broken: its target does not exist"),
        (make_directory("model.safetensors"), "model.safetensors: this is not a file"),
        (make_directory("config.json"), "config.json: this is not a file"),
        (
            rename("model.pkl"),
            r"model.pkl: weights are read from a file that ends in .*, and this one does not \(a pickle can run code",
        ),
        (
            rename("model"),
            r"model: weights are read from a file that ends in \.safetensors, \.npz, \.pt, \.pth, \.bin or "
            r"\.index\.json, and this one does not$",
        ),
        (no_model, r"README\.md: weights are read from a file that ends in .*, and this one does not$"),
        (lambda folder: folder / "config.json", r"config\.json: weights are read from a file that ends in .*\.bin"),
    ],
)
def test_paths_that_lead_to_no_model(folder: Path, prepare: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(prepare(folder))


def test_errors_of_a_model_name_the_path(folder: Path) -> None:
    (folder / "config.json").write_text('{"n_layers": 5, "positional_embedding_type": "standard"}')
    with pytest.raises(ValueError, match="n_layers in the config is 5") as error:
        load(folder)
    assert str(error.value).startswith(f"{folder}: ")


def test_a_random_model_survives_being_written_and_read(tmp_path: Path) -> None:
    """The conversion has an inverse, written out here."""
    from symcircuits.core.architecture import attention_only

    model = random_model(attention_only((2, 3), "standard", True), d_head=5, d_vocab_out=7)
    w, there = model.weights, {}
    for layer, count in enumerate((2, 3)):
        for glyph in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            there[f"blocks.{layer}.attn.{glyph}"] = np.stack([w[f"{glyph}_L{layer}H{h}"].T for h in range(count)])
        there[f"blocks.{layer}.attn.b_O"] = w[f"b_O_L{layer}"]
    there |= {"embed.W_E": np.ascontiguousarray(w["W_E"].T), "unembed.W_U": np.ascontiguousarray(w["W_U"].T)}
    there |= {"pos_embed.W_pos": w["W_pos"], "unembed.b_U": w["b_U"]}
    save_file({k: np.ascontiguousarray(v) for k, v in there.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"n_heads": [2, 3], "positional_embedding_type": "standard"}')
    again = load(tmp_path)
    assert again.architecture == model.architecture
    assert all(np.array_equal(again.weights[k], w[k]) for k in w)
    assert again.score_scale == pytest.approx(model.score_scale)
