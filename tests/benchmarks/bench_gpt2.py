"""`explain` and its page at the size of GPT-2: time and memory, random weights, and growth. Run it as a script.

    python tests/benchmarks/bench_gpt2.py [--kinds attention-only,gpt2] [--dtypes float32,float64] [--layers 12]
                                           [--no-growth]

12 layers of 12 heads, d_model 768, d_head 64, vocabulary 50,257, 64 tokens. ``attention-only`` has nothing else
(TransformerLens's names); ``gpt2`` has norms, biases, positions and MLPs as well (GPT-2's names). The weights are made
and written to a folder first; every measurement is a process of its own, which loads them, runs the model, closes the
logits and the scores of every head, sums all terms by order and looks at every term of order 0 to 2 one by one; the
remainder is the exact sum of all others. Then the page is made. Beside `explain` stands a forward pass, beside the page
`explain`. How `explain` grows with layers and tokens, as many terms looked at as it does by default, is measured at a
third of the width. Nothing is asserted about time.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
from measuring import cpu, fit, medians, peak
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


def passes(model: Any, tokens: Any, dtype: str) -> tuple[float, Any]:
    """CPU seconds of a forward pass, the median of five, and the run."""
    spent, given = medians(5, {"pass": lambda: model.run(tokens, dtype)})
    return spent["pass"], given["pass"]


def measure(folder: Path, dtype: str, context: int, page: bool) -> dict[str, Any]:
    """Load and explain in this process; seconds, peak memory, what closed and how much was looked at."""
    start = time.perf_counter()
    model = sc.load(folder)
    loaded = time.perf_counter()
    logits = sc.logits(model)
    few = logits.order(0, 1, 2).count
    tokens = np.random.default_rng(2).integers(0, model.d_vocab, context)
    one, run = passes(model, tokens, dtype)
    begun = time.perf_counter()
    spent, found = cpu(lambda: sc.explain(run, max_terms=few))
    closures = [found.closure, *found.layers, *(h.closure for h in found.scores.values())]
    done = {
        "load": loaded - start,
        "explain": time.perf_counter() - begun,
        "cpu": spent,
        "pass": one,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "terms": logits.count,
        "looked": found.looked_at,
        "remainder": found.remainder["norm"],
        "closures": len(closures),
        "failed": sum(not c.passed for c in closures),
        "worst": max(c.error / c.bound for c in closures),
    }
    if not page:
        return done
    seconds, text = cpu(found.html)
    return {**done, "page": seconds, "bytes": len(text),
            "page_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}  # fmt: skip


def measured(kinds: list[str], dtypes: list[str], shape: Shape) -> Iterator[dict[str, Any]]:
    """One measurement a kind and dtype, each in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        for kind in kinds:
            folder = Path(place) / kind
            write_model(kind, shape, folder)
            for dtype in dtypes:
                page = dtype == "float32"
                command = [sys.executable, __file__, "--measure", str(folder), dtype, str(shape.tokens), str(int(page))]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                yield {"kind": kind, "dtype": dtype, **json.loads(found.stdout)}


def grown(quick: bool) -> Iterator[Row]:
    """How the time of ``explain`` grows, and what a run and it take in memory at the end."""
    base = Shape(2, 2, 8, 30, 4) if quick else Shape(12, 8, 256, 4000, 64)
    factors = (1, 2) if quick else (1, 2, 4)
    axes = {
        "layers": [base._replace(layers=(base.layers // 2) * k) for k in factors],
        "n": [base._replace(tokens=base.tokens * k * k) for k in factors],
    }
    for name, shapes in axes.items():
        spent = []
        for shape in shapes:
            with tempfile.TemporaryDirectory() as place:
                write_model("attention-only", shape, Path(place) / "model")
                model = sc.load(Path(place) / "model")
                tokens = np.random.default_rng(2).integers(0, model.d_vocab, shape.tokens)
                run = model.run(tokens, "float32")
                each, given = medians(1 if quick else 3, {"explain": partial(sc.explain, run)})
                spent.append(each["explain"])
            last = given["explain"]
        assert last.ok
        sizes = [getattr(shape, "tokens" if name == "n" else name) for shape in shapes]
        most = peak(partial(sc.explain, run))
        said = f"{name} {many(sizes[0])} to {many(sizes[-1])}"
        note = f"{spent[0]:.3g} to {spent[-1]:.3g} s; d {base.d}, {base.heads} heads a layer, n {base.tokens}, float32"
        limit = None if quick else GROWTH
        yield Row("explain grows with", said, "", None, spent[-1], fit(sizes, spent), "exponent", limit=limit,
                  most=True, memory=most, note=note)  # fmt: skip


GROWTH = 1.3
LIMITS = {"attention-only": 45, "gpt2": 80}  # forward passes that explain may take in float32
PAGE = 0.5  # of explain, that its page may take


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """A row or two a kind and dtype, and growth."""
    shape = Shape(2, 2, 8, 30, 4) if asked.quick else Shape(asked.layers)
    for found in measured(asked.kinds.split(","), asked.dtypes.split(","), shape):
        assert not found["failed"], f"{found['failed']} of {found['closures']} closures fail"
        note = (
            f"{found['explain']:.1f} s wall, loaded in {found['load']:.1f} s; {many(found['looked'])} of "
            f"{many(found['terms'])} terms one by one; {found['closures']} closures pass; MB in all"
        )
        kind, size, single = found["kind"], f"{shape.layers} x {shape.heads}, {found['dtype']}", "page" in found
        asks = single and not asked.quick
        yield Row(f"explain, {kind}", size, "a forward pass, model.run", found["pass"], found["cpu"],
                  found["cpu"] / found["pass"], "passes", limit=LIMITS[kind] if asks else None, most=True,
                  memory=1000 * found["gigabytes"], note=note)  # fmt: skip
        if single:
            note = f"{found['page'] / found['pass']:.3g} passes; {many(found['bytes'])} bytes; MB in all"
            yield Row(f"its page, {kind}", size, "explain", found["cpu"], found["page"], found["page"] / found["cpu"],
                      "of its time", limit=PAGE if asks else None, most=True, memory=1000 * found["page_gigabytes"],
                      note=note)  # fmt: skip
    if asked.growth:
        yield from grown(asked.quick)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--no-growth", dest="growth", action="store_false", help="leave out how explain grows")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1")))
    else:
        measuring.script(rows, __doc__, options)
