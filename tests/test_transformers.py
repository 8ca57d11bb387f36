"""The library transformers itself as the oracle: every key of every class varied, the same logits or a refusal.

The models are small ones of random weights, made here. `python3 go.py torch` brings transformers along.
"""

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import symcircuits as sc
from symcircuits.loaders import from_arrays
from symcircuits.loaders.keys import FIXED, GENERATION, HARMLESS, NEEDED, READ, SYNONYMS, TURNS, TURNS_OF
from tests.conftest import find_module

TOKENS = [1, 5, 3, 7, 2, 9, 4, 11, 0, 6, 8, 12]
# The largest difference of logits, as a share of the largest logit, that rounding explains (transformers takes norms
# and angles in float32); and the least that counts as another model.
SAME, OTHER = 1e-5, 1e-3

_SIZES = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 13,
    "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_SHARED = {**_SIZES, "num_key_value_heads": 2}
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 24, "n_positions": 16, "vocab_size": 13,
             "bos_token_id": 1, "eos_token_id": 2},
    "gpt_neox": {**_SIZES, "num_attention_heads": 2},
    "llama": _SHARED,
    "mistral": {**_SHARED, "sliding_window": None},
    "qwen2": _SHARED,
    "granite": {**_SHARED, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25,
                "logits_scaling": 2.0, "attention_bias": True, "mlp_bias": True},
    "gemma": {**_SHARED, "head_dim": 16},
}  # fmt: skip
ROTARY = [kind for kind in SMALL if kind != "gpt2"]


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The library, quiet and without the network; skipped where it is missing, unless it is required."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    find_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = find_module("transformers")
        library.logging.set_verbosity(library.logging.CRITICAL)
        library.logging.disable_progress_bar()
    return library


class Oracle:
    """A folder with a model of random weights as transformers saves it, and both readings of it under any config."""

    def __init__(self, transformers: Any, folder: Path, kind: str, said: dict[str, Any]) -> None:
        torch = find_module("torch")
        self.auto, self.torch, self.folder, self.kind = transformers.AutoModelForCausalLM, torch, folder, kind
        generator = torch.Generator().manual_seed(sum(map(ord, kind)))
        with quiet():
            model = self.auto.from_config(transformers.AutoConfig.for_model(kind, **said)).double().eval()
            with torch.no_grad():
                for name, w in model.named_parameters():
                    noise = torch.randn(w.shape, generator=generator, dtype=torch.float64)
                    gain = "norm" in name or ".ln_" in name
                    w.copy_(noise * (w.shape[-1] ** -0.5 if w.ndim > 1 else 0.4) + (gain and "bias" not in name))
            model.save_pretrained(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = load_file(folder / "model.safetensors")
        self.known: dict[str, Any] = {}
        self.base = self.theirs(self.config)

    def theirs(self, config: dict[str, Any]) -> Any:
        """The logits by transformers; None where it refuses or fails."""
        text = json.dumps(config, sort_keys=True)
        if text not in self.known:
            self.known[text] = self.computed(text)
        return self.known[text]

    def computed(self, text: str) -> Any:
        (self.folder / "config.json").write_text(text)
        try:
            with quiet(), self.torch.no_grad():
                model = self.auto.from_pretrained(
                    self.folder, dtype=self.torch.float64, attn_implementation="eager"
                ).eval()
                given = model(self.torch.tensor([TOKENS]))
                return (given[0] if isinstance(given, tuple) else given.logits)[0].numpy()
        except Exception:  # of many libraries
            return None

    def takes(self, config: dict[str, Any]) -> bool:
        """Whether the config is read here."""
        try:
            return bool(from_arrays(self.weights, config))
        except ValueError:
            return False

    def ours(self, config: dict[str, Any]) -> Any:
        """The logits here; None where the config is refused."""
        try:
            return from_arrays(self.weights, config).run(TOKENS).logits
        except ValueError:
            return None

    def off(self, found: Any, wanted: Any) -> float:
        """The largest difference, as a share of the largest logit."""
        return float(np.abs(found - wanted).max() / np.abs(wanted).max())

    def hold(self, change: dict[str, Any], config: dict[str, Any] | None = None) -> str:
        """``refused``, ``same`` or ``other``: another model than the unedited one, the same in both readings.

        ``wrong``, and more, where the readings differ, or what transformers cannot read is another model.
        """
        changed = {**(self.config if config is None else config), **change}
        changed = {key: value for key, value in changed.items() if value != ABSENT}
        mine = self.ours(changed)
        if mine is None:
            return "refused"
        wanted = self.theirs(changed)
        if wanted is None:  # it takes no whole number for a float
            wanted = self.theirs({k: float(v) if type(v) is int and k in change else v for k, v in changed.items()})
        if wanted is None:
            wanted = self.base
        if self.off(mine, wanted) > SAME:
            return f"wrong: {self.kind} with {change} is off by {self.off(mine, wanted):.2g}"
        return "other" if self.off(mine, self.base) > OTHER else "same"


ABSENT = "(absent)"  # the key is taken out


class quiet(warnings.catch_warnings):
    """Without the warnings of transformers, which would be errors here."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")


@pytest.fixture(scope="session")
def oracle(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """The oracle of each kind of model, made once."""
    made: dict[str, Oracle] = {}

    def of(kind: str) -> Oracle:
        if kind not in made:
            made[kind] = Oracle(transformers, tmp_path_factory.mktemp(kind), kind, SMALL[kind])
        return made[kind]

    return of


# ----------------------------------------------------------------------------------------------- unedited folders
@pytest.mark.parametrize("kind", SMALL)
def test_what_transformers_saves_is_read(transformers: Any, oracle: Callable[[str], Oracle], kind: str) -> None:
    asked = oracle(kind)
    assert asked.off(asked.ours(asked.config), asked.base) < SAME
    (asked.folder / "config.json").write_text(json.dumps(asked.config))
    assert np.array_equal(sc.load(asked.folder).run(TOKENS).logits, asked.ours(asked.config))
    with quiet():
        told = transformers.AutoConfig.from_pretrained(asked.folder).to_dict()
    assert np.array_equal(asked.ours(told), asked.ours(asked.config))


# ------------------------------------------------------------------------------------------ the table and the classes
@pytest.mark.parametrize("kind", SMALL)
def test_every_key_of_a_class_is_in_the_table_with_its_default(transformers: Any, kind: str) -> None:
    with quiet():
        config = transformers.AutoConfig.for_model(kind)
    known = {*READ[kind], *SYNONYMS.get(kind, {}), *FIXED, *HARMLESS}
    assert {field.name for field in fields(config)} <= known
    assert SYNONYMS.get(kind, {}) == type(config).attribute_map
    needed = {field.name: field.default for field in fields(config)}
    told = {key: value for key, value in READ[kind].items() if value is not None and value is not NEEDED}
    assert told == {key: needed[key] for key in told}
    if "rope_parameters" in READ[kind]:
        turns = {key: default for key, (_, default) in TURNS_OF.get(kind, TURNS).items()}
        said = {"partial_rotary_factor": 1.0, **config.rope_parameters}
        assert {key: said[key] for key in turns} == turns


def test_the_keys_of_generation_are_known(transformers: Any) -> None:
    assert set(transformers.GenerationConfig._get_default_generation_params()) <= GENERATION
    elsewhere = {"bos_token_id", "eos_token_id", "pad_token_id", "output_attentions", "output_hidden_states"}
    assert set(transformers.GenerationConfig().to_dict()) - elsewhere - {"transformers_version"} <= GENERATION


# Configs as transformers 4.57 writes them, of the same models: rotary positions in keys of their own, dtype as ever.
_OLD_ALL = {"dtype": "float64", "transformers_version": "4.57.1", "use_cache": True, "initializer_range": 0.02}
_OLD_LLAMA = {
    **_OLD_ALL, **_SHARED, "attention_dropout": 0.0, "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}  # fmt: skip
OLD: dict[str, dict[str, Any]] = {
    "gpt2": {
        **_OLD_ALL, **SMALL["gpt2"], "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "n_ctx": 16,
        "reorder_and_upcast_attn": False, "resid_pdrop": 0.1,
        "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
        "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "summary_use_proj": True, "_num_labels": 1, "gradient_checkpointing": False,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
    "gpt_neox": {
        **_OLD_ALL, **SMALL["gpt_neox"], "architectures": ["GPTNeoXForCausalLM"], "attention_bias": True,
        "attention_dropout": 0.0, "classifier_dropout": 0.1, "hidden_act": "gelu", "hidden_dropout": 0.0,
        "layer_norm_eps": 1e-05, "partial_rotary_factor": 0.25, "rope_scaling": None, "rope_theta": 10000,
        "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False, "use_parallel_residual": True,
    },
    "llama": {
        **_OLD_LLAMA, "architectures": ["LlamaForCausalLM"], "attention_bias": False, "head_dim": 8, "mlp_bias": False,
        "pretraining_tp": 1, "rope_scaling": None, "_name_or_path": "a/b", "is_llama_config": True,
        "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}, "unsloth_fixed": True,
        "unsloth_version": "2024.9", "max_sequence_length": 2048, "neftune_noise_alpha": 0.0,
    },
    "mistral": {**_OLD_LLAMA, "architectures": ["MistralForCausalLM"], "head_dim": None, "sliding_window": None},
    "qwen2": {
        **_OLD_LLAMA, "architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"] * 2,
        "max_window_layers": 28, "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
        "use_mrope": False,
    },
    "granite": {
        **_OLD_LLAMA, **SMALL["granite"], "architectures": ["GraniteForCausalLM"], "rope_scaling": None,
    },
    "gemma": {
        **_OLD_LLAMA, **SMALL["gemma"], "architectures": ["GemmaForCausalLM"], "attention_bias": False,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    },
}  # fmt: skip
# What to_dict() of transformers 4 adds to that.
TO_DICT_4: dict[str, Any] = {
    "return_dict": True, "output_hidden_states": False, "torchscript": False, "torch_dtype": "float64",
    "use_bfloat16": False, "tf_legacy_loss": False, "pruned_heads": {}, "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False, "is_decoder": False, "cross_attention_hidden_size": None, "add_cross_attention": False,
    "tie_encoder_decoder": False, "max_length": 20, "min_length": 0, "do_sample": False, "early_stopping": False,
    "num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
    "typical_p": 1.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "bad_words_ids": None, "num_return_sequences": 1, "output_scores": False,
    "return_dict_in_generate": False, "forced_bos_token_id": None, "forced_eos_token_id": None,
    "remove_invalid_values": False, "exponential_decay_length_penalty": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "finetuning_task": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "tokenizer_class": None, "prefix": None, "pad_token_id": None,
    "sep_token_id": None, "decoder_start_token_id": None, "task_specific_params": None, "problem_type": None,
    "_name_or_path": "", "_attn_implementation_autoset": True, "output_attentions": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", SMALL)
def test_configs_of_transformers_4_are_read(oracle: Callable[[str], Oracle], kind: str) -> None:
    """As it writes them, and as to_dict() says them; they are the models that the newer configs say."""
    for more in ({}, TO_DICT_4):
        config = {**OLD[kind], "model_type": kind, **more}
        assert oracle(kind).ours(config) is not None, more
        assert oracle(kind).hold({}, config) == "same"


# ---------------------------------------------------------------------------------------------------- every key varied
BARE = ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct", "partial_rotary_factor")
VALUES = [ABSENT, None, True, False, 0, 1, -1, 0.5, [], {}]
_ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "silu", "swish",
                "tanh", "sigmoid", "gelu_10", "solu"]  # fmt: skip
_TURNS: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 100.0}, {"rope_theta": 10000}, {"type": "default", "rope_theta": 1e4},
    {"type": "linear", "factor": 4.0, "rope_theta": 1e4}, {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "default", "type": "linear", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}, {"type": "su", "factor": 4.0},
    {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 8, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0},
    {"rope_type": "default", "factor": 4.0}, {"rope_type": None}, {"rope_type": "default", "rope_theta": None},
    {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_type": "default", "partial_rotary_factor": 1.0},
    {"rope_type": "default", "partial_rotary_factor": 0.25},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {"full_attention": {"rope_type": "default", "rope_theta": 100.0}},
]  # fmt: skip
_TYPES = [["full_attention", "sliding_attention"], ["sliding_attention"] * 2, ["full_attention"] * 2,
          ["full_attention"], ["chunked_attention"] * 2, ["attention"] * 2, "full_attention"]  # fmt: skip
MORE: dict[str, list[Any]] = {
    "hidden_act": _ACTIVATIONS, "activation_function": _ACTIVATIONS, "hidden_activation": _ACTIVATIONS,
    "rope_parameters": _TURNS, "rope_scaling": _TURNS, "rope_theta": [100.0, 10000], "rotary_emb_base": [100.0, 10000],
    "rotary_pct": [0.25, 1.0], "partial_rotary_factor": [0.25, 1.0], "sliding_window": [3, 100, 2.0],
    "max_window_layers": [3, 2.0], "n_head": [8, 3], "num_attention_heads": [8, 3], "n_embd": [16],
    "hidden_size": [16, 32], "head_dim": [8, 16], "num_key_value_heads": [4], "layer_types": _TYPES,
    "max_position_embeddings": [16, 12], "quantization_config": [{"bits": 4}], "pruned_heads": [{"0": [1]}],
    "per_layer_config": [{"0": {"rms_norm_eps": 0.5, "layer_norm_eps": 0.5, "layer_norm_epsilon": 0.5}}],
}  # fmt: skip
# The keys of which another value alone makes another model, in the config that transformers 5 saves and in that of 4
# (where more than one place says the same, another value in one of them is refused).
_GPT2 = {"activation_function", "layer_norm_epsilon", "n_head", "scale_attn_by_inverse_layer_idx", "scale_attn_weights"}
_NEOX = {"hidden_act", "layer_norm_eps", "num_attention_heads", "use_parallel_residual"}
_LLAMA = {"hidden_act", "rms_norm_eps"}
_GRANITE = _LLAMA | {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}
_NEW, _OLD = {"rope_parameters"}, {"rope_theta"}
OBEYED: dict[str, tuple[set[str], set[str]]] = {
    "gpt2": (_GPT2, _GPT2),
    "gpt_neox": (_NEOX | _NEW, _NEOX),
    "llama": (_LLAMA | _NEW, _LLAMA | _OLD),
    "mistral": (_LLAMA | _NEW | {"sliding_window"}, _LLAMA | _OLD | {"sliding_window"}),
    "qwen2": (_LLAMA | _NEW, _LLAMA | _OLD),
    "granite": (_GRANITE | _NEW, _GRANITE | _OLD),
    "gemma": (_LLAMA | _NEW, {"rms_norm_eps"} | _OLD),
}


@pytest.mark.parametrize("kind", SMALL)
def test_every_key_that_is_read_varied(oracle: Callable[[str], Oracle], kind: str) -> None:
    asked = oracle(kind)
    for era, config in enumerate((asked.config, {**OLD[kind], "model_type": kind})):
        read = sorted(set(READ[kind]) | SYNONYMS.get(kind, {}).keys())
        keys = read if era == 0 else [key for key in read if key in BARE]  # the others stand in both alike
        found = {key: [asked.hold({key: v}, config) for v in (*VALUES, *MORE.get(key, []))] for key in keys}
        assert [v for verdicts in found.values() for v in verdicts if v.startswith("wrong")] == []
        other = {key for key, verdicts in found.items() if "other" in verdicts}
        assert other == {key for key in OBEYED[kind][era] if key in keys}


@pytest.mark.parametrize("kind", SMALL)
def test_every_key_that_is_not_read_varied(oracle: Callable[[str], Oracle], kind: str) -> None:
    """What other classes read, and what is built one way: refused, or it changes nothing in either reading.

    What is taken here is asked of transformers all at once, and where it refuses that, in halves.
    """
    asked, sets = oracle(kind), list[dict[str, Any]]()
    keys = {key for other in READ.values() for key in other} | FIXED.keys()
    for key in sorted(keys - READ[kind].keys() - SYNONYMS.get(kind, {}).keys() - HARMLESS):
        values = [v for v in (*VALUES[1:], *MORE.get(key, [])) if asked.takes({**asked.config, key: v})]
        assert len(values) < len(VALUES) - 1, f"no value of {key} is refused"
        sets += [{} for _ in values[len(sets) :]]
        for change, value in zip(sets, values, strict=False):
            change[key] = value
    while sets:
        change = sets.pop()
        assert asked.hold(change) == "same", change
        if len(change) > 1 and asked.theirs({**asked.config, **change}) is None:  # it refuses some of them: which
            items = list(change.items())
            sets += [dict(items[: len(items) // 2]), dict(items[len(items) // 2 :])]


def together(oracle: Oracle, keys: dict[str, list[Any]], config: dict[str, Any]) -> dict[tuple[Any, ...], str]:
    """The verdict on every combination of these values."""
    found = {}
    for values in product(*keys.values()):
        shown = tuple(str(v) if isinstance(v, (dict, list)) else v for v in values)
        found[shown] = oracle.hold(dict(zip(keys, values, strict=True)), config)
    assert [v for v in found.values() if v.startswith("wrong")] == []
    return found


@pytest.mark.parametrize("kind", ROTARY)
def test_places_of_rotary_positions(oracle: Callable[[str], Oracle], kind: str) -> None:
    """Two places that say two things are refused; a type by either name is read."""
    asked = oracle(kind)
    bare = {key: value for key, value in asked.config.items() if key not in BARE}
    plain, turned = {"rope_type": "default", "rope_theta": 1e4}, {"rope_type": "default", "rope_theta": 100.0}
    scaled = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    places = [ABSENT, None, {}, plain, turned, scaled, {"type": "default"}]
    bases = [ABSENT, 10000, 100.0]
    found = together(asked, {"rope_parameters": places, "rope_scaling": places, "rope_theta": bases}, bare)
    assert found[str(plain), str(scaled), ABSENT] == found[str(scaled), ABSENT, ABSENT] == "refused"
    assert found[str(plain), str(turned), ABSENT] == found[str(turned), ABSENT, 10000] == "refused"
    assert found[str(turned), ABSENT, ABSENT] == found[str(turned), str(turned), 100.0] == "other"
    assert asked.hold({"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 1e4}}) == "refused"


def test_shares_of_neox(oracle: Callable[[str], Oracle]) -> None:
    asked = oracle("gpt_neox")
    bare = {key: value for key, value in asked.config.items() if key not in BARE}
    shares = [ABSENT, None, 0.25, 0.5, 1.0]
    inside = [ABSENT, {"rope_type": "default"}, {"rope_type": "default", "partial_rotary_factor": 0.5}]
    keys = {"rotary_pct": shares, "partial_rotary_factor": shares, "rope_parameters": inside}
    found = together(asked, keys, bare)
    assert found[0.25, 0.25, ABSENT] == found[ABSENT, 0.25, ABSENT] == "same"
    assert found[0.5, 0.5, ABSENT] == found[0.5, ABSENT, ABSENT] == found[0.5, 0.5, str(inside[2])] == "other"
    assert found[0.5, 0.25, ABSENT] == found[ABSENT, 0.5, ABSENT] == found[0.25, ABSENT, str(inside[2])] == "refused"
    bases = [ABSENT, 10000, 100.0]
    found = together(asked, {"rotary_emb_base": bases, "rope_theta": bases}, bare)
    assert found[100.0, 100.0] == "other"
    assert found[100.0, 10000] == found[ABSENT, 100.0] == "refused"


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "llama"])
def test_windows(oracle: Callable[[str], Oracle], kind: str) -> None:
    asked = oracle(kind)
    keys: dict[str, list[Any]] = {
        "sliding_window": [ABSENT, None, 3], "layer_types": [ABSENT, None, *_TYPES[:3]],
        "use_sliding_window": [ABSENT, True], "max_window_layers": [ABSENT, 0, 1],
    }  # fmt: skip
    found = together(asked, keys, asked.config)
    assert [verdict for verdict in found.values() if verdict == "same"]
    windows = {key for key, verdict in found.items() if verdict == "other"}
    assert bool(windows) == (kind != "llama")
    if kind == "qwen2":
        assert {(3, ABSENT, True, 1), (3, ABSENT, True, 0)} <= windows


def test_activations_of_gemma(oracle: Callable[[str], Oracle]) -> None:
    asked = oracle("gemma")
    names = [ABSENT, None, "gelu", "gelu_pytorch_tanh", "relu"]
    found = together(asked, {"hidden_act": names, "hidden_activation": names}, asked.config)
    assert found["relu", "relu"] == found["relu", ABSENT] == "other"
    assert found["gelu", "gelu"] == found["gelu_pytorch_tanh", "relu"] == found[ABSENT, "relu"] == "refused"


# ------------------------------------------------------------------------------------------- what no logit depends on
# Values that transformers takes, of harmless keys that have a type; of those whose name is one of its own, none.
TOLD: dict[str, Any] = {
    **dict.fromkeys((key for key in HARMLESS if "drop" in key or key in ("initializer_range", "temperature")), 0.9),
    **dict.fromkeys(("gradient_checkpointing", "is_decoder", "output_attentions", "output_hidden_states", "torchscript",
                     "return_dict", "summary_use_proj", "use_bfloat16", "is_llama_config"), True),
    **dict.fromkeys(("use_cache", "summary_proj_to_labels", "tie_last_hidden_states"), False),
    "architectures": ["odd"], "keys_to_ignore_at_inference": ["odd"],
    **dict.fromkeys(("dtype", "torch_dtype"), "float16"), "id2label": {"0": "odd"}, "label2id": {"odd": 0},
    **dict.fromkeys(("name_or_path", "_name_or_path", "summary_activation", "summary_type", "tokenizer_class",
                     "transformers_version", "unsloth_version", "finetuning_task", "prefix"), "odd"),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 3), "max_position_embeddings": 7,
    "max_new_tokens": 7, "pretraining_tp": 2, "problem_type": "regression", "auto_map": {},
    "task_specific_params": {"odd": 1}, "cache_implementation": "static", "compile_config": None,
    "watermarking_config": {}, "assistant_ensemble_weight": 0.5, "transformers.js_config": {"dtype": "q4"},
}  # fmt: skip
_INTERNAL = {"model_type", "use_return_dict", "attn_implementation", "experts_implementation", "generation_config",
             "reorder_and_upcast_attn"}  # the last runs in float32 alone  # fmt: skip


@pytest.mark.parametrize("kind", SMALL)
def test_harmless_keys_change_nothing(oracle: Callable[[str], Oracle], kind: str) -> None:
    """All of them at once, as far from their defaults as transformers takes them."""
    asked = oracle(kind)
    keys = HARMLESS - READ[kind].keys() - SYNONYMS.get(kind, {}).keys() - _INTERNAL
    keys = {key for key in keys if not key.startswith("_") or key in TOLD or key == "_num_labels"}
    assert len(keys) > 130
    for untyped in (7, False):
        change = {key: TOLD.get(key, untyped) for key in keys}
        change["num_labels"] = change["_num_labels"] = 1
        assert asked.off(asked.theirs({**asked.config, **change}), asked.base) < SAME
        assert asked.hold(change) == "same"
