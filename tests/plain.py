"""A transformer with edits, by loops and from the definition; it shares no code with the package.

For one row of tokens. Everything is by head label; ``Edits`` says what is done to the forward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from strategies import Row, oracle

from symcircuits.model import Model


@dataclass(frozen=True)
class Edits:
    """``patterns``: used instead of the softmax of the scores; ``removed``: heads that add nothing."""

    patterns: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """What a forward pass gives: its end (logits, or the stream without unembedding), scores, patterns, factors."""

    end: Any
    scores: dict[str, Any]
    patterns: dict[str, Any]
    factors: dict[str, Any]


def softmax(scores: Any) -> Any:
    """Row by row."""
    return np.array([np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in scores])


def forward(model: Model, tokens: Any, edits: Edits = Edits()) -> Pass:
    """The forward pass of one row of tokens."""
    arch, w, n = model.architecture, model.weights, len(tokens)
    x = np.array([w["W_E"][:, t] for t in tokens])
    f: dict[str, Any] = {"X0": x, "ones": np.ones((n, 1))}
    if arch.positions:
        f["P"] = w["W_pos"][:n]
        x = x + f["P"] if arch.positions == "standard" else x
    scores, patterns = {}, {}
    for layer, count in enumerate(arch.heads):
        read = x + f["P"] if arch.positions == "shortformer" else x
        written = np.zeros_like(x)
        for i in range(count):
            h = f"L{layer}H{i}"
            bias = {b: w.get(f"b_{b}_{h}", 0.0) for b in "QKV"}
            q, k = read @ w[f"W_Q_{h}"].T + bias["Q"], read @ w[f"W_K_{h}"].T + bias["K"]
            s = np.array([[np.dot(a, b) for b in k] for a in q]) * model.score_scale.get(h, 1.0)
            if arch.causal:
                s[np.triu_indices(n, 1)] = -np.inf
            scores[h] = s
            patterns[h] = edits.patterns.get(h, softmax(s))
            if h not in edits.removed:
                written = written + patterns[h] @ (x @ w[f"W_V_{h}"].T + bias["V"]) @ w[f"W_O_{h}"].T
            f |= {f"{m}[{h}]": w[f"{m}_{h}"] for m in ("W_Q", "W_K", "W_V", "W_O")}
            f |= {f"W_QK[{h}]": w[f"W_Q_{h}"].T @ w[f"W_K_{h}"], f"W_OV[{h}]": w[f"W_O_{h}"] @ w[f"W_V_{h}"]}
            f |= {f"b_{b}[{h}]": w[f"b_{b}_{h}"][:, None] for b in "QKV" if f"b_{b}_{h}" in w}
            f |= {f"A[{h}]": patterns[h], f"scale[{h}]": model.score_scale.get(h, 1.0)}
        x = x + written
        if f"b_O_L{layer}" in w:
            x = x + w[f"b_O_L{layer}"]
            f[f"b_O[L{layer}]"] = w[f"b_O_L{layer}"][:, None]
    if arch.unembed:
        f["W_U"] = w["W_U"]
        x = x @ w["W_U"].T + w.get("b_U", 0.0)
        if "b_U" in w:
            f["b_U"] = w["b_U"][:, None]
    return Pass(x, scores, patterns, f)


def value_of(text: str, factors: Mapping[str, Any]) -> Any:
    """What a term is by its text: the product of its factors, from left to right."""
    front, _, product = text.rpartition(" * ")
    matrices = (factors[x.removesuffix(".T")].T if x.endswith(".T") else factors[x] for x in product.split(" @ "))
    value = functools.reduce(np.matmul, matrices)
    return value * factors[front] if front else value


def score_rows(model: Model, passed: Pass, head: str) -> list[tuple[Row, Any]]:
    """Every score term of a head with its value, before the mask."""
    return [(row, value_of(row.text, passed.factors)) for row in oracle(model.architecture, f"scores:{head}")]


def centred(value: Any, allowed: Any) -> Any:
    """Each row minus its mean over the allowed keys, one entry after the other."""
    found = np.zeros(value.shape)
    for i, row in enumerate(value):
        keys = [j for j in range(len(row)) if allowed[i, j]]
        mean = sum(row[j] for j in keys) / len(keys)
        for j in keys:
            found[i, j] = row[j] - mean
    return found
