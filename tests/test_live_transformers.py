"""Live models of Hugging Face's transformers, of random weights: loaded, and held to what they compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.loaders import Unsupported
from tests.conftest import find_module

torch = find_module("torch")
tf = find_module("transformers")

TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6]]
SIZES = {
    "vocab_size": 11, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {
    "vocab_size": 11,
    "n_positions": 16,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
NEOX = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0, "attention_multiplier": 0.3}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("LMHeadModel", GPT2),
    "GPTNeoX": ("ForCausalLM", NEOX),
    "Llama": ("ForCausalLM", SIZES),
    "Mistral": ("ForCausalLM", {**SIZES, "sliding_window": 3}),
    "Qwen2": ("ForCausalLM", SIZES),
    "Granite": ("ForCausalLM", {**SIZES, **GRANITE}),
    "Gemma": ("ForCausalLM", {**SIZES, "head_dim": 4}),
}


def made(kind: str, head: str | None = None, **more: Any) -> Any:
    """A model of transformers in float64, every weight of it random, also those that it sets to 0 or 1."""
    torch.manual_seed(1)
    usual, sizes = KINDS[kind]
    model = getattr(tf, f"{kind}{usual if head is None else head}")(getattr(tf, f"{kind}Config")(**{**sizes, **more}))
    model = model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return model


def logits_of(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.double().numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_a_live_model(kind: str) -> None:
    live = made(kind)
    model = sc.load(live)
    off = 1e-12 if kind == "GPT2" else 2e-6  # the others have RMS norms and rotations in float32, in float64 too
    assert np.abs(model.run(TOKENS).logits - logits_of(live)).max() < off * np.abs(logits_of(live)).max()
    report = sc.verify(model, TOKENS[0][:3], targets=["logits"], max_terms=30)
    assert report.ok, report.text()


@pytest.mark.parametrize(("dtype", "off"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_in_other_types(dtype: str, off: float) -> None:
    live = made("Llama").to(getattr(torch, dtype))
    model, theirs = sc.load(live), logits_of(live)
    assert model.dtype == dtype
    assert np.abs(model.run(TOKENS).logits - theirs).max() < off * np.abs(theirs).max()


@pytest.mark.parametrize("kind", ["GPT2", "Llama", "Granite", "Gemma"])
def test_base_models_whose_unembedding_is_tied(kind: str) -> None:
    more = {} if kind in ("GPT2", "Gemma") else {"tie_word_embeddings": True}
    whole = made(kind, **more)
    model = sc.load(whole.base_model)
    assert "the unembedding is the embedding (tied)" in model.notes
    assert np.abs(model.run(TOKENS).logits - logits_of(whole)).max() < 2e-6 * np.abs(logits_of(whole)).max()


@pytest.mark.parametrize("kind", ["GPTNeoX", "Llama", "Mistral", "Qwen2"])
def test_base_models_without_an_unembedding(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"a {kind}Model has no unembedding, .*; load the model with its head"):
        sc.load(made(kind, "Model", tie_word_embeddings=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.parametrize("wrap", [lambda m: torch.compile(m), lambda m: torch.nn.DataParallel(m)])
def test_what_stands_around_a_model(wrap: Callable[[Any], Any]) -> None:
    live = made("GPT2")
    for wrapped in (wrap(live), torch.nn.DataParallel(wrap(live))):
        assert np.array_equal(sc.load(wrapped).run(TOKENS).logits, sc.load(live).run(TOKENS).logits)


def test_weights_are_copied_and_named() -> None:
    live = made("GPT2")
    live.config.name_or_path = "openai-community/gpt2"
    model = sc.load(live)
    before = model.run(TOKENS).logits
    with torch.no_grad():
        live.transformer.wte.weight += 1
    assert np.array_equal(model.run(TOKENS).logits, before)
    assert model.name == "gpt2"


def test_a_model_that_computes_something_else() -> None:
    live = made("GPT2")
    live.train()
    with pytest.raises(ValueError, match=r"computes other logits .* training mode \(dropout\)"):
        sc.load(live)
    live.eval()
    live.transformer.h[0].register_forward_hook(lambda module, given, out: out * 1.1)
    with pytest.raises(ValueError, match="computes other logits than its weights and config say"):
        sc.load(live)


def test_kinds_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no lm_head\.weight"):
        sc.load(made("Llama", "ForSequenceClassification"))
    with pytest.raises(Unsupported, match="scaled rotary positions"):
        sc.load(made("Llama", rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}))
    bert = tf.BertModel(tf.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    with pytest.raises(ValueError, match="unknown layout of weights"):
        sc.load(bert)
    with pytest.raises(TypeError, match=r"a model with state_dict\(\) and cfg \(or config\), not a Linear;"):
        sc.load(torch.nn.Linear(2, 2))
    with torch.device("meta"):
        elsewhere = tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2))
    with pytest.raises(ValueError, match="cannot be read as an array"):
        sc.load(elsewhere)


def test_calls_that_take_no_live_model_say_what_to_do() -> None:
    live = made("GPT2")
    for call in (sc.verify, sc.logits, sc.stream, sc.fold, sc.derive, sc.explain, sc.random_model):
        with pytest.raises(
            TypeError, match=r"not a GPT2LMHeadModel; a live model is read by symcircuits\.load"
        ) as fault:
            call(live, *([TOKENS] if call is sc.explain else []))
        assert len(str(fault.value)) < 200
        assert "\n" not in str(fault.value)
