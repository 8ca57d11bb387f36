"""The shipped model: its files, its shapes, and its induction circuit recomputed in plain NumPy."""

import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import symcircuits as sc
from symcircuits import zoo
from symcircuits.zoo import train

Array = npt.NDArray[np.float64]
FILES = ("config.json", "model.safetensors", "scores.json")
RETRAIN = os.environ.get("SYMCIRCUITS_RETRAIN") == "1" and importlib.util.find_spec("torch") is not None


def read_json(name: str, folder: pathlib.Path | None = None) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(((folder or zoo.path()) / name).read_text())
    return content


def read_weights() -> dict[str, Array]:
    """The tensors, read by hand from the safetensors layout: header length, JSON header, data."""
    raw = (zoo.path() / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    weights = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32"
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            weights[name] = np.frombuffer(raw[start:end], "<f4").reshape(entry["shape"]).astype(np.float64)
    return weights


def repeated_sequences(size: int = 400) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Token 0, prefix, block, the same block, suffix; with each block's length and a mask of the second copies."""
    config, rng = read_json("config.json"), np.random.default_rng(20_211_222)
    tokens = np.zeros((size, config["n_ctx"]), dtype=np.int64)
    second = np.zeros(tokens.shape, dtype=np.bool_)
    periods = rng.integers(3, 15, size)
    for row, period in enumerate(periods):
        prefix = rng.integers(0, config["n_ctx"] - 2 * period)
        fresh = rng.permutation(np.arange(1, config["d_vocab"]))
        sequence = np.concatenate([[0], fresh[: prefix + period], fresh[prefix:]])
        tokens[row] = sequence[: config["n_ctx"]]
        second[row, 1 + prefix + period : 1 + prefix + 2 * period] = True
    return tokens, periods, second


def run(weights: dict[str, Array], tokens: npt.NDArray[np.int64]) -> tuple[Array, list[Array]]:
    """The logits and each layer's patterns [sequence, head, query, key], with shortformer positions."""
    stream, length = weights["embed.W_E"][tokens], tokens.shape[1]
    future = np.triu(np.ones((length, length), dtype=np.bool_), 1)
    patterns = []
    for layer in range(2):
        w_q, w_k, w_v, w_o = (weights[f"blocks.{layer}.attn.W_{letter}"] for letter in "QKVO")
        placed = (stream + weights["pos_embed.W_pos"][:length])[:, None]
        scores = (placed @ w_q) @ np.swapaxes(placed @ w_k, -1, -2) / np.sqrt(w_q.shape[-1])
        scores = np.where(future, -np.inf, scores)
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        stream = stream + (pattern @ (stream[:, None] @ w_v) @ w_o).sum(1)
        patterns.append(pattern)
    return stream @ weights["unembed.W_U"], patterns


def best(scores: dict[str, Any], layer: int, kind: str) -> float:
    return max(float(value[kind]) for head, value in scores["heads"].items() if head.startswith(f"{layer}."))


def test_files_exist_and_are_small() -> None:
    assert sum((zoo.path() / name).stat().st_size for name in FILES) < 200_000
    assert sorted(entry.name for entry in zoo.path().iterdir()) == sorted(FILES)


def test_path_names_the_known_models() -> None:
    assert zoo.path() == zoo.path("induction")
    with pytest.raises(ValueError, match=r"'nope'.*induction"):
        zoo.path("nope")


def test_config_keys_and_shapes() -> None:
    config = read_json("config.json")
    layers, heads, vocab, context = (config[key] for key in ("n_layers", "n_heads", "d_vocab", "n_ctx"))
    d, d_head = config["d_model"], config["d_head"]
    assert (layers, heads) == (2, 3)
    assert config["attention_dir"] == "causal"
    assert config["attn_only"] is config["use_attn_scale"] is True
    assert config["normalization_type"] is None
    assert config["positional_embedding_type"] == "shortformer"
    expected: dict[str, tuple[int, ...]] = {
        "embed.W_E": (vocab, d),
        "pos_embed.W_pos": (context, d),
        "unembed.W_U": (d, vocab),
    }
    for layer in range(layers):
        expected |= {f"blocks.{layer}.attn.W_{letter}": (heads, d, d_head) for letter in "QKV"}
        expected[f"blocks.{layer}.attn.W_O"] = (heads, d_head, d)
    assert {name: value.shape for name, value in read_weights().items()} == expected


def test_recorded_scores_show_an_induction_circuit() -> None:
    scores = read_json("scores.json")
    assert best(scores, 0, "previous_token") > 0.6
    assert best(scores, 1, "induction") > 0.8
    assert scores["repeat_accuracy"] > 0.97
    assert scores["seed"] == read_json("config.json")["seed"]


def test_recorded_scores_agree_with_the_weights() -> None:
    scores = read_json("scores.json")
    tokens, periods, second = repeated_sequences()
    logits, patterns = run(read_weights(), tokens)
    row, query = np.nonzero(second)
    key = query - periods[row] + 1
    np.testing.assert_array_equal(tokens[row, key - 1], tokens[row, query])
    for layer, pattern in enumerate(patterns):
        for head in range(pattern.shape[1]):
            recorded = scores["heads"][f"{layer}.{head}"]
            previous = np.diagonal(pattern[:, head], -1, 1, 2).mean()
            assert previous == pytest.approx(recorded["previous_token"], abs=0.05)
            assert pattern[row, head, query, key].mean() == pytest.approx(recorded["induction"], abs=0.05)
    predictable = second[:, :-1] & second[:, 1:]
    correct = logits[:, :-1].argmax(-1) == tokens[:, 1:]
    assert correct[predictable].mean() > 0.97


def test_training_without_pytorch_exits_with_a_plain_sentence(tmp_path: pathlib.Path) -> None:
    blocked = "import sys; sys.modules['torch'] = None; from symcircuits.zoo import train; sys.exit(train.main())"
    command = [sys.executable, "-c", blocked, "--out", str(tmp_path / "model")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: training needs PyTorch, which is not installed: install the extra 'train'\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("steps", ["-1", "9", "1,x", "1.5"])
def test_checkpoints_are_steps_of_the_training(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.main(["--out", "nowhere", "--steps", "8", f"--checkpoints={steps}"])
    assert f"--checkpoints {steps!r}: steps are numbers from 0 to 8" in capsys.readouterr().err


def test_checkpoints_are_written_while_it_trains(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    assert train.main(["--out", str(tmp_path), "--steps", "3", "--checkpoints", "0,2,3"]) == 0
    weights = {step: sc.load(tmp_path / f"step-{step}").weights["W_E"] for step in (0, 2, 3)}
    assert not np.array_equal(weights[0], weights[2])
    assert not np.array_equal(weights[2], weights[3])
    assert np.array_equal(weights[3], sc.load(tmp_path).weights["W_E"])


@pytest.mark.skipif(not RETRAIN, reason="retrains for minutes: needs PyTorch and SYMCIRCUITS_RETRAIN=1")
def test_retraining_reproduces_the_scores(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "symcircuits.zoo.train", "--out", str(tmp_path)]
    subprocess.run(command, check=True)
    recorded, again = read_json("scores.json"), read_json("scores.json", tmp_path)
    for head, values in recorded["heads"].items():
        assert again["heads"][head] == pytest.approx(values, abs=0.05)
    assert again["repeat_accuracy"] == pytest.approx(recorded["repeat_accuracy"], abs=0.05)
