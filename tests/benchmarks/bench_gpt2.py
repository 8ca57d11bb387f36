"""`explain` at the size of GPT-2: time and memory of a whole explanation, random weights. Run it as a script.

    python tests/benchmarks/bench_gpt2.py [--kinds attention-only,gpt2] [--dtypes float32,float64] [--layers 12]

12 layers of 12 heads, d_model 768, d_head 64, vocabulary 50,257, 64 tokens. ``attention-only`` has nothing else
(TransformerLens's names); ``gpt2`` has norms, biases, positions and MLPs as well (GPT-2's names). The weights are made
and written to a folder first; every measurement is a process of its own, which loads them, runs the model, closes the
logits and the scores of every head, sums all terms by order and looks at every term of order 0 to 2 one by one; the
remainder is the exact sum of all others. Nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
from results import Row, many
from safetensors.numpy import save_file

import symcircuits as sc


class Shape(NamedTuple):
    """The sizes of a model, and of the context."""

    layers: int = 12
    heads: int = 12
    d: int = 768
    vocabulary: int = 50_257
    tokens: int = 64


KINDS = ("attention-only", "gpt2")
Weights = dict[str, Any]


def random_arrays(seed: int, spread: float = 0.02) -> Any:
    """A maker of normal float32 arrays."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)


def attention_only(shape: Shape) -> tuple[Weights, dict[str, Any]]:
    """Random weights of a model of heads alone, under TransformerLens's names, and its config."""
    layers, heads, d, vocabulary, _ = shape
    made, d_head = random_arrays(0), d // heads
    weights = {"embed.W_E": made(vocabulary, d), "unembed.W_U": made(d, vocabulary)}
    for layer in range(layers):
        weights |= {f"blocks.{layer}.attn.W_{kind}": made(heads, d, d_head) for kind in "QKV"}
        weights[f"blocks.{layer}.attn.W_O"] = made(heads, d_head, d)
    return weights, {"n_layers": layers, "n_heads": heads, "d_model": d, "d_head": d_head, "attn_only": True}


def gpt2(shape: Shape) -> tuple[Weights, dict[str, Any]]:
    """Random weights of a model like GPT-2 in every part, under its names, and its config."""
    layers, heads, d, vocabulary, tokens = shape
    made = random_arrays(1)

    def affine(name: str, rows: int, columns: int) -> Weights:
        return {f"{name}.weight": made(rows, columns), f"{name}.bias": made(columns)}

    def norm(name: str) -> Weights:
        return {f"{name}.weight": 1 + made(d), f"{name}.bias": made(d)}

    weights = {"wte.weight": made(vocabulary, d), "wpe.weight": made(tokens, d), **norm("ln_f")}
    for layer in range(layers):
        at = f"h.{layer}."
        weights |= norm(f"{at}ln_1") | affine(f"{at}attn.c_attn", d, 3 * d) | affine(f"{at}attn.c_proj", d, d)
        weights |= norm(f"{at}ln_2") | affine(f"{at}mlp.c_fc", d, 4 * d) | affine(f"{at}mlp.c_proj", 4 * d, d)
    sizes = {"n_layer": layers, "n_head": heads, "n_embd": d, "vocab_size": vocabulary, "n_positions": tokens}
    return weights, {"model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, **sizes}


def write_model(kind: str, shape: Shape, folder: Path) -> None:
    """A folder with model.safetensors and config.json."""
    weights, config = (attention_only if kind == "attention-only" else gpt2)(shape)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def measure(folder: Path, dtype: str, context: int) -> dict[str, Any]:
    """Load and explain in this process; seconds, peak memory, what closed and how much was looked at."""
    start = time.perf_counter()
    model = sc.load(folder)
    loaded = time.perf_counter()
    logits = sc.logits(model)
    few = logits.order(0, 1, 2).count
    tokens = np.random.default_rng(2).integers(0, model.d_vocab, context)
    found = sc.explain(model.run(tokens, dtype), max_terms=few)
    closures = [found.closure, *found.layers, *(h.closure for h in found.scores.values())]
    return {
        "load": loaded - start,
        "explain": time.perf_counter() - loaded,
        "cpu": time.process_time(),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "terms": logits.count,
        "looked": found.looked_at,
        "remainder": found.remainder["norm"],
        "closures": len(closures),
        "failed": sum(not c.passed for c in closures),
        "worst": max(c.error / c.bound for c in closures),
    }


def measured(kinds: list[str], dtypes: list[str], shape: Shape) -> Iterator[dict[str, Any]]:
    """One measurement a kind and dtype, each in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        for kind in kinds:
            folder = Path(place) / kind
            write_model(kind, shape, folder)
            for dtype in dtypes:
                command = [sys.executable, __file__, "--measure", str(folder), dtype, str(shape.tokens)]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                yield {"kind": kind, "dtype": dtype, **json.loads(found.stdout)}


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """A row a kind and dtype."""
    shape = Shape(2, 2, 8, 30, 4) if asked.quick else Shape(asked.layers)
    for found in measured(asked.kinds.split(","), asked.dtypes.split(","), shape):
        assert not found["failed"], f"{found['failed']} of {found['closures']} closures fail"
        note = (
            f"loaded in {found['load']:.1f} s; {many(found['looked'])} of {many(found['terms'])} terms one by one; "
            f"{found['closures']} closures pass"
        )
        size = f"{shape.layers} x {shape.heads}, {found['dtype']}"
        yield Row(f"explain, {found['kind']}", size, "", None, found["cpu"], found["explain"], "s wall",
                  memory=1000 * found["gigabytes"], note=f"{note}; MB in all")  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--layers", type=int, default=12)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
    else:
        measuring.script(rows, __doc__, options)
