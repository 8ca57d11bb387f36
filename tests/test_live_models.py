"""Models in memory (anything with state_dict() and cfg), and the layout of TransformerLens 4."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import symcircuits as sc
from symcircuits.loaders import Unsupported, from_arrays


class Tensor:
    """What a tensor of torch is to the loader: its array is the one that training changes."""

    def __init__(self, array: Any) -> None:
        self.array, self.dtype = array, f"torch.{array.dtype}"

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array

    def new_tensor(self, values: Any) -> "Tensor":
        return Tensor(np.array(values))

    def long(self) -> "Tensor":
        return self


class Live:
    """A stand-in for a HookedTransformer or a TransformerBridge."""

    def __init__(self, folder: Path, cfg: Any = None) -> None:
        self.weights = {k: v.copy() for k, v in load_file(folder / "model.safetensors").items()}
        config = json.loads((folder / "config.json").read_text())
        self.cfg = SimpleNamespace(to_dict=lambda: config) if cfg is None else cfg(config)

    def state_dict(self) -> dict[str, Tensor]:
        masks = {"blocks.0.attn.mask": np.ones((12, 12), dtype=bool), "blocks.0.attn.IGNORE": np.array(-np.inf)}
        masks = {} if "embed.weight" in self.weights else masks
        return {k: Tensor(v) for k, v in {**self.weights, **masks}.items()}


@pytest.mark.parametrize("name", ["tl_bias_s1", "tl_ln_s2", "tl_rms_gated_gqa_s3", "tl4_bridge_s4"])
def test_a_live_model_is_the_one_in_its_file(data: Path, name: str) -> None:
    model, stored = sc.load(Live(data / name)), sc.load(data / name)
    assert model.architecture == stored.architecture
    assert np.array_equal(model.run([1, 2, 3]).logits, stored.run([1, 2, 3]).logits)
    assert sc.compare_with_reference(model, data / name / "reference.npz").ok


def test_the_config_of_a_live_model_in_any_shape(data: Path) -> None:
    expected = sc.load(data / "tl_ln_s2").run([1, 2]).logits
    for cfg in (lambda c: c, lambda c: SimpleNamespace(**c), lambda c: SimpleNamespace(to_dict=lambda: c)):
        model = sc.load(Live(data / "tl_ln_s2", cfg))
        assert np.array_equal(model.run([1, 2]).logits, expected)
        assert model.name == "model"
    named = Live(data / "tl_ln_s2", lambda c: {**c, "model_name": "attn-only-2l"})
    assert sc.load(named).name == "attn-only-2l"


def test_training_on_does_not_change_what_was_loaded(data: Path) -> None:
    live = Live(data / "tl_ln_s2")
    model = sc.load(live)
    before = model.run([1, 2]).logits
    for array in live.weights.values():
        array += 1
    assert np.array_equal(model.run([1, 2]).logits, before)


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (
            SimpleNamespace(state_dict=dict),
            r"a model with state_dict\(\) and cfg \(or config\), not a SimpleNamespace",
        ),
        (SimpleNamespace(cfg={}), r"a model with state_dict\(\) and cfg \(or config\), not a SimpleNamespace"),
        (3, r"or a model with state_dict\(\) and cfg \(or config\), not 3;"),
    ],
)
def test_what_is_no_live_model(thing: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        sc.load(thing)


def test_a_live_model_that_is_refused(data: Path) -> None:
    with pytest.raises(Unsupported, match="a mixture of experts"):
        sc.load(Live(data / "tl_ln_s2", lambda c: {**c, "num_experts": 4}))
    with pytest.raises(ValueError, match="the cfg of this model is a int, which has no keys to read"):
        sc.load(Live(data / "tl_ln_s2", lambda c: 3))
    with pytest.raises(ValueError, match="there are no weights at all"):
        sc.load(SimpleNamespace(state_dict=dict, cfg={}))
    with pytest.raises(TypeError, match=r"state_dict\(\) of this model gives a list, not weights by name"):
        sc.load(SimpleNamespace(state_dict=list, cfg={}))


# -------------------------------------------------------------------------- the layout of TransformerLens 4


def parts(data: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    weights = {k: v.copy() for k, v in load_file(data / "tl4_bridge_s4" / "model.safetensors").items()}
    return weights, json.loads((data / "tl4_bridge_s4" / "config.json").read_text())


def test_the_bridge_computes_what_was_recorded(data: Path) -> None:
    model = sc.load(data / "tl4_bridge_s4")
    recorded = np.load(data / "tl4_bridge_s4" / "reference.npz")
    assert np.abs(model.run(recorded["tokens"]).logits - recorded["logits"]).max() < 1e-12
    assert str(model.architecture) == "transformer, heads 2,2, positions standard, LN norm, MLPs, biases"
    report = sc.verify(model, [1, 2, 3], targets=["logits", "scores:L1H0"])
    assert report.ok, report.text()


@pytest.mark.parametrize(
    "said",
    [
        {"use_attn_scale": False, "attn_scale": 7.0},
        {"parallel_attn_mlp": True},
        {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "local"]},
        {"scale_attn_by_inverse_layer_idx": True},
    ],
)
def test_what_a_native_model_does_not_look_at(data: Path, said: dict[str, Any]) -> None:
    """As recorded with TransformerLens 4.3: its own model computes the same with these keys as without."""
    weights, config = parts(data)
    recorded = np.load(data / "tl4_bridge_s4" / "reference.npz")
    native, other = (
        from_arrays(weights, {**config, **said, "architecture": a}) for a in (config["architecture"], None)
    )
    assert np.abs(native.run(recorded["tokens"]).logits - recorded["logits"]).max() < 1e-12
    assert np.abs(other.run(recorded["tokens"]).logits - recorded["logits"]).max() > 1e-3
    key = next(iter(said))
    note = f"a native model of TransformerLens 4 ignores {key}, which is {json.dumps(said[key])}"
    assert note in native.notes
    assert note not in other.notes


def test_rotary_pairs_of_a_native_model_are_neighbours(data: Path) -> None:
    weights, config = parts(data)
    del weights["pos_embed.weight"]
    said = {**config, "positional_embedding_type": "rotary", "rotary_adjacent_pairs": False}
    model = from_arrays(weights, said)
    assert model.settings.rotary.adjacent
    assert not any("ignores" in note for note in model.notes)
    scaled = from_arrays(weights, {**said, "rotary_scaling_factor": 4.0})
    assert scaled.settings.rotary == model.settings.rotary
    assert "a native model of TransformerLens 4 ignores rotary_scaling_factor, which is 4.0" in scaled.notes
    assert not from_arrays(weights, {**said, "architecture": None}).settings.rotary.adjacent


def test_square_weights_of_the_bridge_are_taken_by_layout(data: Path) -> None:
    weights, config = parts(data)
    expected = from_arrays(weights, config).run([1, 2, 3]).logits
    for name in ("blocks.0.attn.q.weight", "blocks.0.attn.o.weight", "blocks.1.attn.v.weight"):
        assert weights[name].shape == (8, 8)
        turned = from_arrays({**weights, name: weights[name].T.copy()}, config).run([1, 2, 3]).logits
        assert not np.allclose(turned, expected)


def test_grouped_keys_and_values_of_the_bridge(data: Path) -> None:
    weights, config = parts(data)
    for layer in range(2):
        for glyph in "kv":
            for part in ("weight", "bias"):
                name = f"blocks.{layer}.attn.{glyph}.{part}"
                weights[name] = weights[name][:4]
    model = from_arrays(weights, {**config, "n_key_value_heads": 1})
    assert model.architecture.groups == (1, 1)
    assert np.array_equal(model.weights["W_K_L0G0"], weights["blocks.0.attn.k.weight"])


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        ({"n_heads": None}, {}, "n_heads is not in the config, and the weights alone do not tell it"),
        ({"n_heads": 3}, {}, r"blocks.0.attn.\w.\w+ has shape \[8.*\], which 3 heads do not divide"),
        ({}, {"blocks.0.attn.novel.weight": np.ones(2)}, "that it does not use: blocks.0.attn.novel.weight"),
        ({}, {"blocks.0.ln1.w": np.ones(8)}, "the same weight under two names, blocks.0.ln1.weight and blocks.0.ln1.w"),
        ({}, {"blocks.0.attn.W_Q": np.ones((2, 8, 4))}, "but there is no pos_embed.W_pos"),
        ({}, {"blocks.1.mlp.in.weight": None}, "the file lacks 1 weight: blocks.1.mlp.W_in"),
    ],
)  # fmt: skip
def test_a_bridge_that_is_wrong(data: Path, config: dict[str, Any], change: dict[str, Any], message: str) -> None:
    weights, given = parts(data)
    changed = {k: v for k, v in {**weights, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        from_arrays(changed, {**given, **config})


def test_biases_inside_a_gated_mlp_of_the_bridge_are_refused(data: Path) -> None:
    weights, config = parts(data)
    gates = {f"blocks.{layer}.mlp.gate.weight": np.ones((12, 8)) for layer in range(2)}
    with pytest.raises(Unsupported, match=r"biases inside a gated MLP \(blocks"):
        from_arrays({**weights, **gates}, {**config, "gated_mlp": True})
    plain = {k: v for k, v in {**weights, **gates}.items() if not k.endswith("mlp.in.bias")}
    assert from_arrays(plain, {**config, "gated_mlp": True}).architecture.gated


# ------------------------------------------------------------------ bridges around a model of Hugging Face
WRAPPED = [
    "gemma", "gemma_folded", "gpt2", "gpt2_by_layer", "gpt2_folded", "granite", "granite_folded", "llama",
    "llama_folded", "mistral", "neox", "neox_serial", "qwen2",
]  # fmt: skip


class Wrapped:
    """A stand-in for a bridge around a model; its logits are those that TransformerLens 4.3 gave (in float32)."""

    def __init__(self, data: Path, name: str) -> None:
        self.weights = load_file(data / "tl4_wrapped" / f"{name}.safetensors")
        told = json.loads((data / "tl4_wrapped" / f"{name}.json").read_text())
        self.cfg, self.recorded, self.ran = dict(told["cfg"]), told["logits"], list[Any]()
        self.inside = told["inside"]
        self.original_model = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: self.inside))

    def state_dict(self) -> dict[str, Tensor]:
        return {k: Tensor(v) for k, v in self.weights.items()}

    def __call__(self, tokens: Tensor) -> Tensor:
        self.ran.append(tokens.array.tolist())
        return Tensor(np.array([self.recorded[",".join(map(str, row))] for row in tokens.array], np.float32))


def test_all_wrapped_models_are_looked_at(data: Path) -> None:
    assert sorted(WRAPPED) == sorted(p.stem for p in (data / "tl4_wrapped").glob("*.json"))


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_bridge_computes_what_it_computed(data: Path, name: str) -> None:
    live = Wrapped(data, name)
    model = sc.load(live)
    assert live.ran == [[[1, 4, 7, 10, 2]]]
    for tokens, logits in live.recorded.items():
        found = model.run([int(t) for t in tokens.split(",")]).logits
        assert np.abs(found - np.array(logits)).max() < 1e-6 * np.abs(logits).max() + 1e-6
    assert sc.explain(model, [1, 2, 3, 4, 5]).ok


class Weight(np.ndarray[Any, Any]):
    """An array of which tensors of tokens are made, as of one of torch."""

    def new_tensor(self, values: Any) -> Tensor:
        return Tensor(np.array(values))


class OfArrays(Wrapped):
    """The same with weights that are arrays, which a cache is read with."""

    number = "float64"

    def state_dict(self) -> dict[str, Any]:
        return {k: v.astype(self.number).view(Weight) for k, v in self.weights.items()}


def cache_of(run: Any) -> dict[str, Any]:
    """What TransformerLens 4 records of a bridge: embeddings and outputs have their multipliers in them."""
    model, arrays = run.model, run.arrays
    times = model.multipliers.get
    made: dict[str, Any] = {"hook_embed": arrays["X0"] * times("m_E", 1.0)}
    for layer in range(model.architecture.n_layers):
        at = f"blocks.{layer}."
        heads = model.architecture.layer_heads(layer)
        made[f"{at}attn.hook_pattern"] = np.stack([run.patterns[str(h)] for h in heads])
        made[f"{at}attn.hook_attn_scores"] = np.stack([run.scores[str(h)] for h in heads])
        made[f"{at}ln1.hook_scale"] = 1 / run.norms[f"L{layer}"][..., None]
        made[f"{at}hook_mlp_out"] = arrays[f"mlp_L{layer}"] * times(f"r[M{layer}]", 1.0)
        made[f"{at}hook_resid_pre"], made[f"{at}hook_resid_post"] = run.streams[layer], run.streams[layer + 1]
    return {**made, "ln_final.hook_scale": 1 / run.norms["final"][..., None]}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("number", ["float64", "float32"])
def test_a_cache_of_a_wrapped_bridge(data: Path, name: str, number: str) -> None:
    """Multipliers of Granite and Gemma, Gemma's gains less 1, and float64 runs with steps in float32."""
    live = OfArrays(data, name)
    live.number, tokens = number, [1, 4, 7, 10, 2]
    run = sc.load(live).run(tokens)
    cache = {k: v.astype(number) for k, v in cache_of(run).items()}
    rounds = 0.0 if "gpt2" in name else 1e-8  # what rotations and norms in float32 leave of a float64 run
    cache |= {k: v * (1 + rounds) for k, v in cache.items() if k.endswith("attn_scores")}
    arrays = sc.from_cache(live, cache, tokens)
    off = 1e-11 if number == "float64" else 1e-4
    assert np.abs(sc.evaluate(sc.logits(arrays.architecture), arrays).total() - run.logits).max() < off
    for at in ("hook_embed", "blocks.0.hook_mlp_out", "blocks.1.hook_resid_post", "blocks.1.attn.hook_attn_scores"):
        with pytest.raises(ValueError, match="of the cache contradicts the weights, tokens and patterns"):
            sc.from_cache(live, {**cache, at: (1.01 * cache[at]).astype(number)}, tokens)


def test_a_window_that_the_bridges_config_leaves_out(data: Path) -> None:
    live = Wrapped(data, "mistral")
    assert "sliding_window" not in live.cfg
    assert sc.load(live).settings.windows == (3, 3)


def test_multipliers_that_no_key_of_a_bridge_holds(data: Path) -> None:
    live = Wrapped(data, "granite")
    assert sc.load(live).multipliers["r[L0]"] == 0.5
    assert sc.load(Wrapped(data, "gemma")).multipliers == {"m_E": pytest.approx(np.sqrt(8))}
    for key, value in {"embedding_multiplier": 2.0, "residual_multiplier": 1.0, "attention_multiplier": 0.5}.items():
        other = Wrapped(data, "granite")
        other.inside[key] = value
        with pytest.raises(ValueError, match="the live model computes other logits than its weights and config say"):
            sc.load(other)
    live.inside["attention_multiplier"] = 0.0
    with pytest.raises(ValueError, match="attention_multiplier in the config must be a positive number, not 0"):
        sc.load(live)


def test_square_weights_that_are_stored_turned_are_not_guessed(data: Path) -> None:
    live = Wrapped(data, "gpt2_by_layer")
    for name in ("attn.o", "mlp.in", "mlp.out", "attn.q"):
        assert live.weights[f"blocks.0.{name}.weight"].shape == (8, 8)
        other = Wrapped(data, "gpt2_by_layer")
        other.weights[f"blocks.0.{name}.weight"] = other.weights[f"blocks.0.{name}.weight"].T.copy()
        with pytest.raises(ValueError, match="the live model computes other logits than its weights and config say"):
            sc.load(other)


@pytest.mark.parametrize(
    ("key", "value"),
    [("layer_norm_epsilon", 0.01), ("activation_function", "gelu"), ("scale_attn_by_inverse_layer_idx", False)],
)
def test_a_config_that_is_not_the_live_models_is_found(data: Path, key: str, value: Any) -> None:
    live = Wrapped(data, "gpt2_by_layer")
    live.inside[key] = value
    with pytest.raises(ValueError, match=r"other logits .* \(off by .*; the largest is .*\): it may"):
        sc.load(live)


def test_a_live_model_that_cannot_be_run(data: Path) -> None:
    live = Wrapped(data, "gpt2")
    live.recorded = {}
    with pytest.raises(ValueError, match="the live model could not be run to check what was read from it: KeyError"):
        sc.load(live)
    live.recorded = {"1,4,7,10,2": [[0.0]]}
    with pytest.raises(ValueError, match="the live model gives no logits of its 11 output tokens"):
        sc.load(live)


def test_wrapped_bridges_that_are_refused(data: Path) -> None:
    live = Wrapped(data, "gpt2")
    live.cfg["architecture"] = "OPTForCausalLM"
    with pytest.raises(Unsupported, match=r"a bridge around a OPTForCausalLM cannot be read: .* GPT2LMHeadModel, "):
        sc.load(live)
    live = Wrapped(data, "llama")
    live.inside["rope_parameters"] = {"rope_type": "llama3", "factor": 8.0}
    with pytest.raises(Unsupported, match="scaled rotary positions"):
        sc.load(live)
    live = Wrapped(data, "llama")
    live.inside["novelty"] = 3
    with pytest.raises(ValueError, match=r"unknown keys, .*: novelty = 3"):
        sc.load(live)
    live.original_model = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"without the config of that model \(original_model.config\)"):
        sc.load(live)


def test_stored_weights_of_a_wrapped_bridge_are_not_guessed(data: Path) -> None:
    live = Wrapped(data, "gpt2")
    with pytest.raises(Unsupported, match="the weights of a bridge around a GPT2LMHeadModel, whose names do not tell"):
        from_arrays(live.weights, live.cfg)
    inner = {f"transformer.{n}._original_component.weight": np.ones((2, 2)) for n in ("wte", "h.0.attn.c_attn")}
    with pytest.raises(Unsupported, match=r"wte._original_component.weight is one of the inner names of a bridge"):
        from_arrays(inner, {"n_layer": 1})


def test_a_scaling_of_angles_by_one_is_none(data: Path) -> None:
    plain = sc.load(Live(data / "tl_rotary_s5"))
    scaled = sc.load(Live(data / "tl_rotary_s5", lambda c: {**c, "rotary_scaling_factor": 1.0}))
    assert np.array_equal(scaled.run([1, 2, 3]).logits, plain.run([1, 2, 3]).logits)
    with pytest.raises(Unsupported, match=r"scaled rotary positions \(rotary_scaling_factor is 8.0\)"):
        sc.load(Live(data / "tl_rotary_s5", lambda c: {**c, "rotary_scaling_factor": 8.0}))
