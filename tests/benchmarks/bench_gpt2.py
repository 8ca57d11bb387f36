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
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import symcircuits as sc

HEADS, D, VOCABULARY, TOKENS = 12, 768, 50_257, 64
KINDS = ("attention-only", "gpt2")
Weights = dict[str, Any]


def random_arrays(seed: int, spread: float = 0.02) -> Any:
    """A maker of normal float32 arrays."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)


def attention_only(layers: int) -> tuple[Weights, dict[str, Any]]:
    """Random weights of a model of heads alone, under TransformerLens's names, and its config."""
    made, d_head = random_arrays(0), D // HEADS
    weights = {"embed.W_E": made(VOCABULARY, D), "unembed.W_U": made(D, VOCABULARY)}
    for layer in range(layers):
        weights |= {f"blocks.{layer}.attn.W_{kind}": made(HEADS, D, d_head) for kind in "QKV"}
        weights[f"blocks.{layer}.attn.W_O"] = made(HEADS, d_head, D)
    return weights, {"n_layers": layers, "n_heads": HEADS, "d_model": D, "d_head": d_head, "attn_only": True}


def gpt2(layers: int) -> tuple[Weights, dict[str, Any]]:
    """Random weights of a model like GPT-2 in every part, under its names, and its config."""
    made = random_arrays(1)

    def affine(name: str, rows: int, columns: int) -> Weights:
        return {f"{name}.weight": made(rows, columns), f"{name}.bias": made(columns)}

    def norm(name: str) -> Weights:
        return {f"{name}.weight": 1 + made(D), f"{name}.bias": made(D)}

    weights = {"wte.weight": made(VOCABULARY, D), "wpe.weight": made(TOKENS, D), **norm("ln_f")}
    for layer in range(layers):
        at = f"h.{layer}."
        weights |= norm(f"{at}ln_1") | affine(f"{at}attn.c_attn", D, 3 * D) | affine(f"{at}attn.c_proj", D, D)
        weights |= norm(f"{at}ln_2") | affine(f"{at}mlp.c_fc", D, 4 * D) | affine(f"{at}mlp.c_proj", 4 * D, D)
    sizes = {"n_layer": layers, "n_head": HEADS, "n_embd": D, "vocab_size": VOCABULARY, "n_positions": TOKENS}
    return weights, {"model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, **sizes}


def write_model(kind: str, layers: int, folder: Path) -> None:
    """A folder with model.safetensors and config.json."""
    weights, config = (attention_only if kind == "attention-only" else gpt2)(layers)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def measure(folder: Path, dtype: str) -> dict[str, Any]:
    """Load and explain in this process; seconds, peak memory, what closed and how much was looked at."""
    start = time.perf_counter()
    model = sc.load(folder)
    loaded = time.perf_counter()
    logits = sc.logits(model.architecture)
    few = logits.order(0, 1, 2).count
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, TOKENS)
    found = sc.explain(model, tokens, dtype=dtype, max_terms=few)
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


def measured(kinds: list[str], dtypes: list[str], layers: int) -> Iterator[dict[str, Any]]:
    """One measurement a kind and dtype, each in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        for kind in kinds:
            folder = Path(place) / kind
            write_model(kind, layers, folder)
            for dtype in dtypes:
                command = [sys.executable, __file__, "--measure", str(folder), dtype]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                yield {"kind": kind, "dtype": dtype, **json.loads(found.stdout)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "DTYPE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(Path(asked.measure[0]), asked.measure[1])))
        return
    print(f"{asked.layers} layers of {HEADS} heads, d_model {D}, vocabulary {VOCABULARY:,}, {TOKENS} tokens")
    print(
        "model           dtype    load s  explain s   CPU s  peak GB   terms in all  looked at  closures  worst/bound"
    )
    for row in measured(asked.kinds.split(","), asked.dtypes.split(","), asked.layers):
        closed = f"{row['closures']} hold" if not row["failed"] else f"{row['failed']} FAIL"
        print(
            f"{row['kind']:15} {row['dtype']:7} {row['load']:7.1f} {row['explain']:10.1f} {row['cpu']:7.1f} "
            f"{row['gigabytes']:8.2f}  "
            f"{row['terms']:13.4g} {row['looked']:10,}  {closed:>8} {row['worst']:12.2f}"
        )


if __name__ == "__main__":
    main()
