"""The small models of TransformerLens's hub as they lie there, beside what TransformerLens 3.9 computes of them.

``tests/data/hub``: configs as the training code wrote them, weights of random numbers under the names that it saved,
and tokens and logits of ``HookedTransformer`` in float64, its config and (of those called ``old``) its weights read by
TransformerLens's own conversions of such files.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.loaders import Unsupported, from_arrays

NAMES = ("attn_only", "attn_only_shortformer", "gelu", "solu", "solu_pre", "solu_old", "solu_old_8")


def parts(data: Path, name: str) -> tuple[dict[str, Any], dict[str, Any], Any, Any]:
    with np.load(data / "hub" / f"{name}.npz") as held:
        weights = dict(held)
    config = json.loads((data / "hub" / f"{name}.json").read_text())
    return weights, config, weights.pop("/tokens"), weights.pop("/logits")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(3)
def test_what_transformerlens_computes(data: Path, name: str) -> None:
    weights, config, tokens, logits = parts(data, name)
    masks = {"blocks.0.attn.mask": np.ones((10, 10), dtype=bool), "blocks.0.attn.IGNORE": np.array(-1e5)}
    for given in (weights, {**weights, **masks}):
        model = from_arrays(given, config)
        assert np.abs(model.run(tokens).logits - logits).max() < 1e-12
    assert model.architecture.positions == ("shortformer" if "shortformer" in name else "standard")
    report = sc.verify(model, tokens[0, :3], targets=["logits"], max_terms=50)
    assert report.ok, report.text()


@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_hub(torch: Any, data: Path, name: str, tmp_path: Path) -> None:
    weights, _, tokens, logits = parts(data, name)
    file = "SoLU_1L_v9_final.pth" if "old" in name else "model_final.pth"
    torch.save({k: torch.tensor(v) for k, v in weights.items()}, tmp_path / file)
    shutil.copy(data / "hub" / f"{name}.json", tmp_path / "config.json")
    model = sc.load(tmp_path)
    assert np.abs(model.run(tokens).logits - logits).max() < 1e-12
    assert model.name == tmp_path.name if file == "model_final.pth" else sc.load(tmp_path / file).name == file[:-4]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gelu", {"normalization_type": "LNPre"}, 'normalization is "LN", but normalization_type is "LNPre"'),
        ("gelu", {"positional_embedding_type": "shortformer"}, "shortformer_pos is false, but positional_embedding"),
        ("gelu", {"shortformer_pos": 1}, "shortformer_pos in the config must be true or false, not 1"),
        ("gelu", {"neuron_temp": 2.0}, "neuron_temp in the config is 2.0, which may change what the model computes"),
        ("gelu", {"neuron_scale": True}, "neuron_scale in the config is true, which may change"),
        ("gelu", {"ln_eps": 1e-6}, "ln_eps in the config is 1e-06, which may change"),
        ("solu_old", {"factored_embed": True}, "factored_embed in the config is true"),
        ("solu_old", {"use_pos_resid": False}, "use_pos_resid in the config is false, which may change"),
        ("gelu", {"temperature": 3}, "temperature = 3"),
        ("gelu", {"normalization": "Batch"}, 'normalization_type must be null, "LN"'),
        ("solu", {"eps": 1e-3}, r"the activation solu_ln with eps 0.001 \(eps is 0.001, not 1e-05\)"),
        ("solu", {"act_fn": "gelu"}, "normalization inside an MLP"),
    ],
)  # fmt: skip
def test_what_would_be_another_model(data: Path, name: str, change: dict[str, Any], message: str) -> None:
    weights, config, _, _ = parts(data, name)
    with pytest.raises(ValueError, match=message):
        from_arrays(weights, {**config, **change})


def test_keys_of_the_training_alone_are_not_known(data: Path) -> None:
    """In a config of TransformerLens's own they are not keys, and might mean anything."""
    weights, config, tokens, logits = parts(data, "gelu")
    own = {k: config[k] for k in ("n_layers", "d_model", "d_head", "n_heads", "n_ctx", "d_vocab", "d_mlp", "act_fn")}
    own |= {"normalization_type": "LN", "positional_embedding_type": "standard"}
    assert np.abs(from_arrays(weights, own).run(tokens).logits - logits).max() < 1e-12
    with pytest.raises(ValueError, match=r"control = 1\.0"):
        from_arrays(weights, {**own, "control": 1.0})


def test_norms_inside_mlps(data: Path) -> None:
    weights, config, tokens, logits = parts(data, "solu")
    model = from_arrays(weights, config)
    assert model.settings.activation == "solu_ln"
    assert "gains and biases of the norms inside MLPs are read as a part of W_out and b_out" in model.notes
    without = {k: w for k, w in weights.items() if not k.endswith("mlp.b_out")}
    zero = {**weights, **{k: np.zeros_like(w) for k, w in weights.items() if k.endswith("mlp.b_out")}}
    same = [from_arrays(given, config).run(tokens).logits for given in (without, zero)]
    assert np.array_equal(*same)
    assert np.abs(same[0] - logits).max() > 1e-2
    with pytest.raises(ValueError, match=r"blocks\.1\.mlp.ln.w has shape \[3\]; the MLP has 12 neurons"):
        from_arrays({**weights, "blocks.1.mlp.ln.w": np.ones(3)}, config)
    with pytest.raises(ValueError, match=r"mlp\.ln\.b"):
        from_arrays({**weights, "blocks.1.mlp.ln.b": np.full(12, np.nan)}, config)
    with pytest.raises(Unsupported) as error:
        from_arrays(weights, {**config, "eps": 0.1})
    assert error.value.features == ("the activation solu_ln with eps 0.1",)
