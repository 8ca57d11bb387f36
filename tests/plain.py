"""A transformer with edits, by loops and from the definition; it shares no code with the package.

For one row of tokens. Everything is by head label; ``Edits`` says what is done to the forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from strategies import Row, architectures, group, oracle, term_count

from symcircuits.model import Model, Rotary, Settings, random_model


@dataclass(frozen=True)
class Edits:
    """``patterns``: used instead of the softmax of the scores; ``removed``: heads that add nothing.

    ``norms`` (``1 / sigma`` of every row, by label) and ``mlps`` (what they write, by layer): used instead of what the
    forward pass computes.
    """

    patterns: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    norms: Mapping[str, Any] = field(default_factory=dict)
    mlps: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """What a forward pass gives: its end, scores, patterns, the factors of its terms, and what can be held fixed.

    ``end``: the logits, or the stream without unembedding. ``sums`` and ``score_sums``: the end and the scores before
    soft caps and ALiBi, which is what terms add up to; ``scores`` are those that softmax sees.
    """

    end: Any
    sums: Any
    scores: dict[str, Any]
    score_sums: dict[str, Any]
    patterns: dict[str, Any]
    factors: dict[str, Any]
    norms: dict[str, Any]
    mlps: dict[int, Any]

    def frozen(self, removed: tuple[str, ...] = (), **patterns: Any) -> Edits:
        """Everything held at its value here, but for these patterns and heads."""
        return Edits(self.patterns | patterns, removed, self.norms, self.mlps)


def softmax(scores: Any) -> Any:
    """Row by row."""
    return np.array([np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in scores])


def pattern_of(model: Model, scores: Any) -> Any:
    """What a head makes of its scores: their softmax, or where there is none the scores themselves, 0 if masked."""
    return softmax(scores) if model.architecture.softmax else np.where(np.isfinite(scores), scores, 0.0)


def slope(i: int, n: int, geometric: bool) -> float:
    """ALiBi's slope of head i of n."""
    power = max(p for p in (1, 2, 4, 8, 16) if p <= n)
    if geometric:
        first = np.float32(2 ** (-8 / n))
        return float(first * np.float32(float(first) ** i))
    return float(2 ** (-8 * (i + 1) / power) if i < power else 2 ** (-8 * (2 * (i - power) + 1) / (2 * power)))


def seen(model: Model, layer: int, i: int, sums: Any) -> Any:
    """The scores that softmax sees, entry by entry: soft cap, ALiBi, mask."""
    arch, settings, n = model.architecture, model.settings, len(sums)
    window = settings.windows[layer] if settings.windows else None
    out = np.full((n, n), -np.inf)
    for q in range(n):
        for k in range(n):
            if (arch.causal and k > q) or (window is not None and abs(q - k) >= window):
                continue
            s = (
                sums[q, k]
                if settings.score_cap is None
                else settings.score_cap * math.tanh(sums[q, k] / settings.score_cap)
            )
            if arch.positions == "alibi":
                number = np.float32 if settings.geometric_slopes else np.float64  # in which the product is taken
                steep = number(slope(i, arch.heads[layer], settings.geometric_slopes))
                s = s - float(steep * number(abs(q - k)))
            out[q, k] = s
    return out


def rotation(model: Model, at: int, size: int) -> Any:
    """The matrix by which a query or key at a position is multiplied from the right."""
    turns, out = model.settings.rotary, np.eye(size)
    dim = size - size % 2 if turns.dim is None else turns.dim
    for m in range(dim // 2):
        a, b = (2 * m, 2 * m + 1) if turns.adjacent else (m, m + dim // 2)
        angle = at * turns.base ** (-2 * m / dim)
        out[a, a] = out[b, b] = math.cos(angle)
        out[a, b], out[b, a] = math.sin(angle), -math.sin(angle)
    return out


ACTIVATE = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + math.exp(min(-x, 700.0))),  # beyond it is 0 to the last digit
}


@st.composite
def featured_models(draw: st.DrawFn, max_terms: int = 120, **sizes: Any) -> Model:
    """Any model with few terms: every feature of architectures, and every setting of the forward pass."""
    arch = draw(architectures(max_layers=3, max_heads=3, max_terms=max_terms))
    windows = tuple(draw(st.sampled_from([None, 1, 2, 3])) for _ in arch.heads) if draw(st.booleans()) else ()
    rotary = Rotary(draw(st.sampled_from([None, 2, 4])), 50.0, draw(st.booleans()))
    caps = [draw(st.sampled_from([None, None, 2.0])) for _ in range(2)]
    caps[0] = caps[0] if arch.softmax else None
    eps, activation = draw(st.sampled_from([1e-5, 1e-2])), draw(st.sampled_from(sorted(ACTIVATE)))
    settings = Settings(eps, activation, rotary, windows, *caps, geometric_slopes=draw(st.booleans()))
    scale, seed = draw(st.sampled_from([0.5, 1.0, 1.5])), draw(st.integers(0, 99))
    return random_model(arch, seed=seed, weight_scale=scale, settings=settings, **sizes)


@st.composite
def heads_of_models(draw: st.DrawFn, max_terms: int = 120) -> tuple[Model, str]:
    """Any model that has heads, and one of them whose scores have few terms."""
    model = draw(featured_models(max_terms))
    few = [str(h) for h in model.architecture.all_heads]
    few = [h for h in few if term_count(model.architecture, f"scores:{h}") <= 40 * max_terms]
    assume(few)
    return model, draw(st.sampled_from(few))


class _Forward:
    """One forward pass under way; ``f`` holds the factors of terms by their text."""

    def __init__(self, model: Model, tokens: Any, edits: Edits) -> None:
        self.model, self.edits, self.n = model, edits, len(tokens)
        self.arch, self.w = model.architecture, model.weights
        self.x = np.array([self.w["W_E"][:, t] for t in tokens])
        self.f: dict[str, Any] = {"X0": self.x, "ones": np.ones((self.n, 1))}
        self.f |= {"W_U": self.w["W_U"]} if self.arch.unembed else {}
        self.f |= {"b_U": self.w["b_U"][:, None]} if "b_U" in self.w else {}
        self.out = Pass(None, None, {}, {}, {}, self.f, {}, {})
        if self.arch.positions in ("standard", "shortformer"):
            self.f["P"] = self.w["W_pos"][: self.n]
        self.f |= model.multipliers
        self.x = self.times("m_E", self.x)
        if self.arch.positions == "standard":
            self.x = self.x + self.f["P"]

    def times(self, multiplier: str, x: Any) -> Any:
        """An array times that multiplier, where there is one."""
        return self.model.multipliers.get(multiplier, 1.0) * x

    def named(self, *names: str) -> list[Any]:
        """Weights by glyph and label; a bias that is not there is 0."""
        for name in names:
            glyph, _, label = name.partition("[")
            array = self.w.get(f"{glyph}_{label[:-1]}")
            if array is not None:
                self.f[name] = array[:, None] if glyph[0] == "b" else array
        return [self.w.get(name.replace("[", "_").rstrip("]"), 0.0) for name in names]

    def scaled(self, rows: Any, label: str) -> Any:
        """Every row over the root of the mean of its squares."""
        eps = self.model.settings.eps
        inverse = np.array([1 / math.sqrt(math.fsum(v * v for v in row) / len(row) + eps) for row in rows])
        self.out.norms[label] = self.edits.norms.get(label, inverse)
        self.f[f"D[{label}]"] = np.diag(self.out.norms[label])
        return rows * np.array(self.out.norms[label])[:, None]

    def normed(self, rows: Any, label: str) -> Any:
        if self.arch.norm is None:
            return rows
        if self.arch.norm == "LN":
            d = rows.shape[1]
            self.f["C"] = np.array([[(i == j) - 1 / d for j in range(d)] for i in range(d)])
            rows = np.array([row - math.fsum(row) / d for row in rows])
        rows = self.scaled(rows, label)
        if f"gain_{label}" in self.w:
            self.f[f"gain[{label}]"] = np.diag(self.w[f"gain_{label}"])
            rows = rows * self.w[f"gain_{label}"]
        return rows + self.named(f"b_N[{label}]")[0]

    def head(self, layer: int, i: int, reads: Any, values: Any) -> Any:
        """What a head adds."""
        h, shared = f"L{layer}H{i}", group(self.arch, layer, i)
        w_q, w_k, w_v, w_o = self.named(f"W_Q[{h}]", f"W_K[{shared}]", f"W_V[{shared}]", f"W_O[{h}]")
        b_q, b_k, b_v = self.named(f"b_Q[{h}]", f"b_K[{shared}]", f"b_V[{shared}]")
        q, k = reads @ w_q.T + b_q, reads @ w_k.T + b_k
        self.f |= {f"W_QK[{h}]": w_q.T @ w_k, f"W_OV[{h}]": w_o @ w_v}
        if self.arch.qk_norm:
            q, k = (
                self.scaled(q, f"Q{h}") * self.w[f"gain_Q{layer}"],
                self.scaled(k, f"K{shared}") * self.w[f"gain_K{layer}"],
            )
            self.f |= {f"gain[{s}{layer}]": np.diag(self.w[f"gain_{s}{layer}"]) for s in "QK"}
        if self.arch.positions == "rotary":
            turns = [rotation(self.model, at, q.shape[1]) for at in range(self.n)]
            self.f[f"R[{h}]"] = turns
            q, k = (np.array([row @ turn for row, turn in zip(rows, turns, strict=True)]) for rows in (q, k))
        scale = self.f[f"scale[{h}]"] = self.model.score_scale.get(h, 1.0)
        sums = self.out.score_sums[h] = np.array([[np.dot(a, b) for b in k] for a in q]) * scale
        scores = self.out.scores[h] = seen(self.model, layer, i, sums)
        pattern = self.f[f"A[{h}]"] = self.out.patterns[h] = self.edits.patterns.get(h, pattern_of(self.model, scores))
        return 0.0 if h in self.edits.removed else pattern @ (values @ w_v.T + b_v) @ w_o.T

    def mlp(self, layer: int, x: Any) -> Any:
        """What an MLP adds."""
        at, act = f"[L{layer}]", np.vectorize(ACTIVATE[self.model.settings.activation])
        reads = self.normed(x, f"M{layer}")
        w_in, w_out, b_in, b_out = self.named(f"W_in{at}", f"W_out{at}", f"b_in{at}", f"b_out{at}")
        inner = reads @ w_in.T + b_in
        if self.arch.bilinear:
            act = np.vectorize(float)
        if self.arch.gated:
            w_gate, b_gate = self.named(f"W_gate{at}", f"b_gate{at}")
            inner = act(reads @ w_gate.T + b_gate) * inner
        else:
            inner = act(inner)
        out = self.out.mlps[layer] = self.f[f"mlp{at}"] = self.edits.mlps.get(layer, inner @ w_out.T + b_out)
        return out

    def run(self) -> Pass:
        for layer, count in enumerate(self.arch.heads):
            values = self.normed(self.x, f"L{layer}")
            reads = values + self.f["P"] if self.arch.positions == "shortformer" else values
            before, (b_o,) = self.x, self.named(f"b_O[L{layer}]")
            heads = sum((self.head(layer, i, reads, values) for i in range(count)), np.zeros_like(before))
            self.x = self.x + self.times(f"r[L{layer}]", heads + b_o)
            if layer in self.arch.mlps:
                written = self.mlp(layer, before if self.arch.parallel else self.x)
                self.x = self.x + self.times(f"r[M{layer}]", written)
        end = sums = self.x
        if self.arch.unembed:
            sums = self.normed(self.x, "final") @ self.w["W_U"].T + self.w.get("b_U", 0.0)
            end = sums = self.times("m_U", sums)
        if self.arch.unembed and self.model.settings.logit_cap is not None:
            end = np.vectorize(lambda v: self.model.settings.logit_cap * math.tanh(v / self.model.settings.logit_cap))(
                end
            )
        return replace(self.out, end=end, sums=sums)


def forward(model: Model, tokens: Any, edits: Edits = Edits()) -> Pass:
    """The forward pass of one row of tokens."""
    return _Forward(model, tokens, edits).run()


def value_of(text: str, factors: Mapping[str, Any]) -> Any:
    """What a term is by its text: the product of its factors, from left to right.

    A rotation stands between queries and keys, and turns each row of both as its position asks.
    """
    *front, product = text.split(" * ")
    sides: list[Any] = [None]
    turns = None
    for name in product.split(" @ "):
        if name.startswith("R["):
            turns = factors[name]
            sides.append(None)
            continue
        matrix = factors[name.removesuffix(".T")].T if name.endswith(".T") else factors[name]
        sides[-1] = matrix if sides[-1] is None else sides[-1] @ matrix
    if turns is not None:
        q, k = sides[0], sides[1].T
        sides = [
            np.array([[a @ s @ t.T @ b for b, t in zip(k, turns, strict=True)] for a, s in zip(q, turns, strict=True)])
        ]
    return math.prod(factors[scalar] for scalar in front) * sides[0]


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
