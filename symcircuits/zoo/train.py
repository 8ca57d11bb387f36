"""Train the shipped `induction` model: `python -m symcircuits.zoo.train --out DIR`.

The model is a two-layer attention-only transformer with three heads a layer and "shortformer" positions: the
position embedding is added to the input of the queries and keys, and never to the values or the residual stream.

Data recipe. Every sequence fills the context of 32 positions. It begins with token 0, which occurs nowhere else.
Then come a random prefix, a random block, the same block again, and a random suffix. Prefix, block and suffix are
drawn without replacement from the other tokens, so each token of the second copy has exactly one earlier occurrence.
The block's length (2 to 15) and the prefix's length are drawn anew for each sequence: no fixed offset between
positions predicts the next token, whereas an induction head does. In most sequences the block may start so late that
the end of the context cuts the second copy short; this trains the late positions, too. The loss is the mean
cross-entropy of the next token: 95 % over the predictable part of the second copy and 5 % over all positions. All
draws come from local generators with fixed seeds.

Scores are measured on held-out sequences of the same recipe. Previous-token score: the mean attention-pattern weight
on the preceding position, over all positions but the first. Induction score: the mean weight on the position after
the earlier occurrence of the current token, over the second copy. The same script and PyTorch version give scores
within 0.05 of those recorded.
"""

import argparse
import dataclasses
import importlib
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from symcircuits.work.files import write_bytes, write_text

MIN_PERIOD, MAX_PERIOD = 2, 15
MIN_REPEAT, CUT_SHORT = 2, 0.7  # the fewest tokens of the second copy, and how many sequences may cut it short
REPEAT_WEIGHT = 0.95
HELD_OUT_SEED, HELD_OUT_SEQUENCES = 1_000_003, 1024

IntArray = npt.NDArray[np.int64]
Weights = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The model's dimensions and the optimiser's settings."""

    seed: int = 0
    steps: int = 2000
    batch: int = 128
    learning_rate: float = 8e-3
    weight_decay: float = 0.02
    warmup: int = 50
    n_layers: int = 2
    n_heads: int = 3
    d_model: int = 48
    d_head: int = 16
    d_vocab: int = 32
    n_ctx: int = 32
    pos_scale: float = 0.15

    def config(self) -> dict[str, Any]:
        """The model's `config.json`, in TransformerLens keys."""
        sizes = ("d_head", "d_model", "d_vocab", "n_ctx", "n_heads", "n_layers", "seed")
        fixed = {"attention_dir": "causal", "attn_only": True, "normalization_type": None, "use_attn_scale": True}
        varied = {name: getattr(self, name) for name in sizes}
        return dict(sorted({**fixed, **varied, "positional_embedding_type": "shortformer"}.items()))


@dataclasses.dataclass(frozen=True)
class Batch:
    """Token sequences, each one's block length, and which positions lie in the second copy."""

    tokens: IntArray
    period: IntArray
    second_copy: npt.NDArray[np.bool_]


def sample(rng: np.random.Generator, size: int, settings: Settings) -> Batch:
    """Draw `size` sequences: token 0, prefix, block, the block again, suffix."""
    room = settings.n_ctx - 1
    period = rng.integers(MIN_PERIOD, MAX_PERIOD + 1, size)
    kept = np.where(rng.random(size) < CUT_SHORT, MIN_REPEAT, period)
    prefix = rng.integers(0, room - period - kept + 1)
    distinct = 1 + rng.permuted(np.tile(np.arange(settings.d_vocab - 1), (size, 1)), axis=1)
    place = np.arange(room)[None, :]
    # From the second copy on, the sequence reads `distinct` again from one period earlier.
    source = place - period[:, None] * (place >= (prefix + period)[:, None])
    tokens = np.zeros((size, settings.n_ctx), dtype=np.int64)
    tokens[:, 1:] = np.take_along_axis(distinct, source, axis=1)
    second_copy = (place >= (prefix + period)[:, None]) & (place < (prefix + 2 * period)[:, None])
    return Batch(tokens, period, np.pad(second_copy, ((0, 0), (1, 0))))


def _sinusoids(torch: Any, settings: Settings) -> Any:
    """Cosines and sines of the position at d_model / 2 evenly spaced frequencies."""
    half = settings.d_model // 2
    frequency = torch.arange(1, half + 1) * (torch.pi / (half + 1))
    angle = torch.arange(settings.n_ctx)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], 1) * settings.pos_scale


def _initial_weights(torch: Any, settings: Settings) -> Weights:
    """Initial weights under TransformerLens names: sinusoidal positions, all else Gaussian."""
    generator = torch.Generator().manual_seed(settings.seed)

    def gaussian(*shape: int, scale: float) -> Any:
        return (torch.randn(*shape, generator=generator) * scale).requires_grad_()

    d, h, heads = settings.d_model, settings.d_head, settings.n_heads
    weights: Weights = {
        "embed.W_E": gaussian(settings.d_vocab, d, scale=d**-0.5),
        "pos_embed.W_pos": _sinusoids(torch, settings).requires_grad_(),
        "unembed.W_U": gaussian(d, settings.d_vocab, scale=d**-0.5),
    }
    for layer in range(settings.n_layers):
        for name in ("W_Q", "W_K", "W_V"):
            weights[f"blocks.{layer}.attn.{name}"] = gaussian(heads, d, h, scale=d**-0.5)
        weights[f"blocks.{layer}.attn.W_O"] = gaussian(heads, h, d, scale=(heads * h) ** -0.5)
    return weights


def forward(torch: Any, weights: Weights, tokens: Any, settings: Settings) -> tuple[Any, list[Any]]:
    """The logits, and each layer's attention patterns indexed [sequence, head, query, key]."""
    stream, positions = weights["embed.W_E"][tokens], weights["pos_embed.W_pos"]
    future = torch.ones(settings.n_ctx, settings.n_ctx, dtype=torch.bool).triu(1)
    patterns = []
    for layer in range(settings.n_layers):
        w_q, w_k, w_v, w_o = (weights[f"blocks.{layer}.attn.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O"))
        placed, inputs = (stream + positions)[:, None], stream[:, None]
        scores = (placed @ w_q) @ (placed @ w_k).transpose(-1, -2) / w_q.shape[-1] ** 0.5
        pattern = scores.masked_fill(future, float("-inf")).softmax(-1)
        stream = stream + (pattern @ (inputs @ w_v) @ w_o).sum(1)
        patterns.append(pattern)
    return stream @ weights["unembed.W_U"], patterns


def _predict(torch: Any, weights: Weights, batch: Batch, settings: Settings) -> tuple[Any, Any, Any, list[Any]]:
    """The next-token losses, which predictions are right, which are on the repeat, and the attention patterns."""
    tokens = torch.from_numpy(batch.tokens)
    logits, patterns = forward(torch, weights, tokens, settings)
    logits, following = logits[:, :-1], tokens[:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), following, reduction="none")
    # The first copy determines the next token wherever that and the current token lie in the second copy.
    repeat = torch.from_numpy(batch.second_copy[:, :-1] & batch.second_copy[:, 1:])
    return losses, logits.argmax(-1) == following, repeat, patterns


def train(torch: Any, settings: Settings, keep: Callable[[int, Weights], None] | None = None) -> Weights:
    """Train from scratch on one CPU thread; returns the weights as detached tensors.

    `keep` is called with the weights before the first step (0) and after every step.
    """
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    weights = _initial_weights(torch, settings)
    rng = np.random.default_rng(settings.seed)
    optimizer = torch.optim.AdamW(
        list(weights.values()), settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    # Linear warm-up, then a linear fall to zero.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / settings.warmup, 1 - step / settings.steps)
    )
    for step in range(settings.steps):
        if keep is not None:
            keep(step, {name: value.detach() for name, value in weights.items()})
        batch = sample(rng, settings.batch, settings)
        losses, _, repeat, _ = _predict(torch, weights, batch, settings)
        repeat_loss = losses[repeat].mean()
        loss = REPEAT_WEIGHT * repeat_loss + (1 - REPEAT_WEIGHT) * losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == settings.steps - 1:
            print(f"step {step:5d}  loss {loss.item():.3f}  loss on the repeat {repeat_loss.item():.3f}", flush=True)
    trained = {name: value.detach() for name, value in weights.items()}
    if keep is not None:
        keep(settings.steps, trained)
    return trained


def evaluate(torch: Any, weights: Weights, settings: Settings) -> dict[str, Any]:
    """Loss and accuracy on the repeat and each head's standard scores, on held-out sequences."""
    batch = sample(np.random.default_rng(HELD_OUT_SEED), HELD_OUT_SEQUENCES, settings)
    losses, correct, repeat, patterns = _predict(torch, weights, batch, settings)
    row, query = np.nonzero(batch.second_copy)
    key = query - batch.period[row] + 1
    heads = {}
    for layer, pattern in enumerate(patterns):
        for head in range(settings.n_heads):
            heads[f"{layer}.{head}"] = {
                "previous_token": round(float(pattern[:, head].diagonal(-1, 1, 2).mean()), 4),
                "induction": round(float(pattern[row, head, query, key].mean()), 4),
            }
    return {
        "seed": settings.seed,
        "steps": settings.steps,
        "torch": str(torch.__version__),
        "held_out_sequences": HELD_OUT_SEQUENCES,
        "repeat_loss": round(float(losses[repeat].mean()), 4),
        "repeat_accuracy": round(float(correct[repeat].float().mean()), 4),
        "heads": heads,
    }


def save(folder: pathlib.Path, weights: Weights, scores: dict[str, Any], settings: Settings) -> None:
    """Write `model.safetensors`, `config.json` and `scores.json` into the folder."""
    arrays = {name: np.ascontiguousarray(value.numpy(), dtype=np.float32) for name, value in weights.items()}
    write_bytes(folder / "model.safetensors", safetensors.numpy.save(arrays), of_model=True)
    for name, content in {"config.json": settings.config(), "scores.json": scores}.items():
        write_text(folder / name, json.dumps(content, indent=1) + "\n", of_model=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 for a request that cannot be met."""
    parser = argparse.ArgumentParser(prog="python -m symcircuits.zoo.train", description="Train the induction model.")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="folder for the trained model")
    parser.add_argument("--seed", type=int, default=Settings.seed, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="default: %(default)s")
    parser.add_argument(
        "--checkpoints",
        default="",
        metavar="0,200,500",
        help="steps after which the model is written to DIR/step-N too",
    )
    options = parser.parse_args(arguments)
    if options.seed < 0 or options.steps < 1:
        parser.error("--seed must be at least 0 and --steps at least 1")
    settings = Settings(seed=options.seed, steps=options.steps)
    asked = [word.strip() for word in options.checkpoints.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) <= options.steps for word in asked):
        parser.error(f"--checkpoints {options.checkpoints!r}: steps are numbers from 0 to {options.steps}")
    wanted = {int(word) for word in asked}
    try:
        torch: Any = importlib.import_module("torch")
        options.out.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()

        def keep(step: int, weights: Weights) -> None:
            if step in wanted:
                folder = options.out / f"step-{step}"
                folder.mkdir(exist_ok=True)
                save(folder, weights, evaluate(torch, weights, settings), settings)

        weights = train(torch, settings, keep)
        print(f"trained in {time.perf_counter() - start:.0f} s")
        scores = evaluate(torch, weights, settings)
        save(options.out, weights, scores, settings)
    except ImportError:
        print("error: training needs PyTorch, which is not installed: install the extra 'train'", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write to {options.out}: {error.strerror or error}", file=sys.stderr)
        return 2
    print(json.dumps(scores, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
