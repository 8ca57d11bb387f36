"""How far sums of terms are from the forward pass, beside the bound, over sizes and weight scales. Run it as a script.

    python tests/benchmarks/bench_accuracy.py [--seeds 12]

Random attention-only models; the terms of the logits and of one head of the last layer are added up (one by one up to
300 of them, else by order) and set against what the model computes. The table shows the bound over the error at the
worst entry: its median over the models, and its least (below 1 a right model would be refused). Nothing is asserted.
"""

from __future__ import annotations

import argparse

import numpy as np

import symcircuits as sc
from symcircuits.evaluation import closure

# heads, d_model, d_head, tokens
SIZES = (((2, 2), 16, 4, 8), ((8, 8), 64, 16, 32), ((4, 4, 4, 4), 128, 16, 64), ((12,) * 6, 96, 8, 32))
SCALES = (0.1, 1.0, 3.0)
VOCABULARY, LISTED = 100, 300


def ratios(size: tuple[tuple[int, ...], int, int, int], scale: float, dtype: str, seeds: int) -> dict[str, list[float]]:
    """Bound over error of each model, for the logits and for the scores of the last head."""
    heads, d_model, d_head, tokens = size
    arch = sc.attention_only(heads)
    targets = {"logits": sc.logits(arch), "scores": sc.scores(arch, arch.all_heads[-1])}
    found: dict[str, list[float]] = {name: [] for name in targets}
    for seed in range(seeds):
        model = sc.random_model(arch, d_vocab=VOCABULARY, d_model=d_model, d_head=d_head, seed=seed, weight_scale=scale)
        run = model.run(np.random.default_rng(seed).integers(0, VOCABULARY, tokens), dtype=dtype)
        for name, expansion in targets.items():
            closed = closure(expansion, run, listed=LISTED)
            if closed.error:
                found[name].append(closed.bound / closed.error)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="accuracy of sums of terms, beside the bound")
    parser.add_argument("--seeds", type=int, default=12, help="models of each size and scale (default 12)")
    seeds = parser.parse_args().seeds
    print(f"{'heads':<18} {'d_model':>7} {'scale':>5}  {'dtype':<8} {'logits: median':>14} {'least':>6}", end="")
    print(f" {'scores: median':>14} {'least':>6}")
    for size in SIZES:
        for scale in SCALES:
            for dtype in ("float64", "float32"):
                found = ratios(size, scale, dtype, seeds)
                cells = "".join(
                    f" {np.median(r):14.1f} {min(r):6.1f}" if r else f" {'no error':>14} {'':>6}"
                    for r in found.values()
                )
                print(f"{','.join(map(str, size[0])):<18} {size[1]:>7} {scale:>5}  {dtype:<8}{cells}", flush=True)


if __name__ == "__main__":
    main()
