"""The real forward pass, held to a plain computation with loops; the frozen one over any ring; what is refused."""

import cmath
import contextlib
import dataclasses
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symcircuits.arrays.rings import Floats, PrimeField
from symcircuits.core.architecture import (
    Architecture,
    attention_only,
    possible_biases,
    possible_multipliers,
    transformer,
)
from symcircuits.model import (
    ACTIVATIONS,
    Model,
    Rotary,
    Run,
    Settings,
    change_basis,
    frozen,
    matrices_of,
    matrix_names,
    random_model,
    read_tokens,
)

# Two float64 computations of the same sums differ by rounding alone: a few hundred operations of order 1.
ROUNDING = 1e-12


@st.composite
def architectures(draw: st.DrawFn, most_layers: int = 4, most_heads: int = 5) -> Architecture:
    """Any architecture: unequal heads, none, some or all biases, each kind of position, with and without the rest."""
    heads = tuple(draw(st.lists(st.integers(0, most_heads), max_size=most_layers)))
    options: dict[str, Any] = {name: draw(st.booleans()) for name in ("scale", "causal", "unembed")}
    options["positions"] = draw(st.sampled_from([None, "standard", "shortformer", "rotary", "alibi"]))
    if draw(st.booleans()):
        options["norm"] = draw(st.sampled_from([None, "LN", "RMS"]))
        options["qk_norm"] = draw(st.booleans())
        options["mlps"] = draw(st.sets(st.integers(0, len(heads) - 1))) if heads else False
        options["groups"] = [draw(st.sampled_from([g for g in range(1, n + 1) if n % g == 0] or [0])) for n in heads]
    if options.get("mlps"):
        options |= {"gated": draw(st.booleans()), "parallel": draw(st.booleans())}
    names = possible_multipliers(transformer(heads, **options))
    options["multipliers"] = draw(st.booleans() | st.sets(st.sampled_from(names)))
    plain = transformer(heads, **options)
    possible = possible_biases(plain)
    biases = draw(st.booleans() | (st.sets(st.sampled_from(possible)) if possible else st.just(frozenset[str]())))
    labels = plain.norm_labels
    gains = draw(st.booleans() | (st.sets(st.sampled_from(labels)) if labels else st.just(True)))
    return transformer(heads, biases=biases, gains=gains, **options)


@st.composite
def models(draw: st.DrawFn) -> Model:
    sizes = {name: draw(st.integers(1, 6)) for name in ("d_vocab", "d_model", "d_head", "d_vocab_out")}
    arch = draw(architectures())
    windows = tuple(draw(st.sampled_from([None, 1, 2, 3])) for _ in arch.heads) if draw(st.booleans()) else ()
    turns = Rotary(draw(st.sampled_from([None, 0, 2 * (sizes["d_head"] // 2)])), 50.0, draw(st.booleans()))
    caps = [draw(st.sampled_from([None, 2.0])) for _ in range(2)]
    activation = draw(st.sampled_from(sorted(ACTIVATIONS)))
    settings = Settings(draw(st.sampled_from([1e-5, 1e-2])), activation, turns, windows, *caps)
    sizes["n_context"], sizes["seed"] = draw(st.integers(5, 7)), draw(st.integers(0, 99))
    return random_model(arch, **sizes, settings=settings)


def plain_turn(row: Any, at: int, turns: Rotary) -> Any:
    """A query or key turned, pair by pair, as complex numbers."""
    dim = len(row) - len(row) % 2 if turns.dim is None else turns.dim
    out = row.copy()
    for m in range(dim // 2):
        a, b = (2 * m, 2 * m + 1) if turns.adjacent else (m, m + dim // 2)
        turned = complex(row[a], row[b]) * cmath.exp(1j * at * turns.base ** (-2 * m / dim))
        out[a], out[b] = turned.real, turned.imag
    return out


def plain_slope(i: int, n: int) -> float:
    """ALiBi's slope as its authors compute it: recursion on the power of two below."""
    if n & (n - 1) == 0:
        return 2 ** (-8 * (i + 1) / n)
    below = 1 << (n.bit_length() - 1)
    return plain_slope(i, below) if i < below else plain_slope(2 * (i - below), 2 * below)


def plain_norm(model: Model, label: str, x: list[Any]) -> list[Any]:
    """The norm of every row, entry by entry, with sums that do not round."""
    arch, w, d = model.architecture, model.weights, model.d_model
    if arch.norm is None:
        return x
    out = []
    for row in x:
        mean = math.fsum(row) / d if arch.norm == "LN" else 0.0
        sigma = math.sqrt(math.fsum((v - mean) ** 2 for v in row) / d + model.settings.eps)
        gain, bias = w.get(f"gain_{label}", np.ones(d)), w.get(f"b_N_{label}", np.zeros(d))
        out.append(np.array([(row[i] - mean) / sigma * gain[i] + bias[i] for i in range(d)]))
    return out


def plain_mlp(model: Model, layer: int, x: list[Any]) -> list[Any]:
    w, arch, zero = model.weights, model.architecture, np.zeros(1)
    activation, out = ACTIVATIONS[model.settings.activation], []
    for row in plain_norm(model, f"M{layer}", x):
        inner = w[f"W_in_L{layer}"] @ row + w.get(f"b_in_L{layer}", zero)
        if arch.gated:
            gate = w[f"W_gate_L{layer}"] @ row + w.get(f"b_gate_L{layer}", zero)
            inner = activation(gate) * inner
        else:
            inner = activation(inner)
        out.append(w[f"W_out_L{layer}"] @ inner + w.get(f"b_out_L{layer}", zero))
    return out


def plain_forward(model: Model, tokens: list[int]) -> dict[str, Any]:
    """One sequence, token by token, from the definition: no matrix products over tokens, nothing shared."""
    w, arch = model.weights, model.architecture
    zero = np.zeros(1)
    positions = [w["W_pos"][i] for i in range(len(tokens))] if "W_pos" in w else None
    settings = model.settings
    by = dict.fromkeys(("m_E", "m_U"), 1.0) | dict(model.multipliers)
    x = [by["m_E"] * w["W_E"][:, token] for token in tokens]
    if arch.positions == "standard":
        x = [row + p for row, p in zip(x, positions, strict=True)]
    out: dict[str, Any] = {"streams": [x], "scores": {}, "patterns": {}, "results": {}}
    for layer, count in enumerate(arch.heads):
        y = plain_norm(model, f"L{layer}", x)
        read = [row + p for row, p in zip(y, positions, strict=True)] if arch.positions == "shortformer" else y
        r, r_mlp = by.get(f"r[L{layer}]", 1.0), by.get(f"r[M{layer}]", 1.0)
        after = [row + r * w.get(f"b_O_L{layer}", zero) for row in x]
        for i in range(count):
            name, kv = f"L{layer}H{i}", f"L{layer}H{i}"
            if arch.groups and arch.groups[layer] != count:
                kv = f"L{layer}G{i // (count // arch.groups[layer])}"
            q = [w[f"W_Q_{name}"] @ row + w.get(f"b_Q_{name}", zero) for row in read]
            k = [w[f"W_K_{kv}"] @ row + w.get(f"b_K_{kv}", zero) for row in read]
            v = [w[f"W_V_{kv}"] @ row + w.get(f"b_V_{kv}", zero) for row in y]
            if arch.qk_norm:
                for rows, gain in ((q, w[f"gain_Q{layer}"]), (k, w[f"gain_K{layer}"])):
                    rows[:] = [r * gain / math.sqrt(math.fsum(r * r) / len(r) + settings.eps) for r in rows]
            if arch.positions == "rotary":
                q, k = ([plain_turn(row, at, settings.rotary) for at, row in enumerate(rows)] for rows in (q, k))
            slope = plain_slope(i, count) if arch.positions == "alibi" else 0.0
            window = settings.windows[layer] if settings.windows else None
            n, scale = len(tokens), model.score_scale[name] if arch.scale else 1.0
            scores, pattern = np.full((n, n), -np.inf), np.zeros((n, n))
            result = []
            for i in range(n):
                allowed = [j for j in range(i + 1 if arch.causal else n) if window is None or abs(i - j) < window]
                for j in allowed:
                    product = scale * math.fsum(q[i] * k[j])
                    scores[i, j] = plain_cap(product, settings.score_cap) - slope * abs(i - j)
                total = math.fsum(math.exp(scores[i, j]) for j in allowed)
                for j in allowed:
                    pattern[i, j] = math.exp(scores[i, j]) / total
                result.append(r * w[f"W_O_{name}"] @ sum(pattern[i, j] * v[j] for j in allowed))
            after = [row + r for row, r in zip(after, result, strict=True)]
            out["scores"][name], out["patterns"][name], out["results"][name] = scores, pattern, result
        if layer in arch.mlps:
            written = plain_mlp(model, layer, x if arch.parallel else after)
            after = [row + r_mlp * m for row, m in zip(after, written, strict=True)]
        x = after
        out["streams"].append(x)
    last = plain_norm(model, "final", x) if arch.unembed else []
    logits = [plain_cap(by["m_U"] * (w["W_U"] @ row + w.get("b_U", zero)), settings.logit_cap) for row in last]
    out["logits"] = logits if arch.unembed else None
    return out


def plain_cap(x: Any, cap: float | None) -> Any:
    return x if cap is None else cap * np.tanh(x / cap)


def close(a: Any, b: Any) -> bool:
    """Equal within rounding, relative to the largest entry; -inf where -inf."""
    a, b = np.asarray(a), np.asarray(b)
    finite = np.isfinite(b)
    largest = max(1.0, float(np.abs(b[finite]).max(initial=0)))
    return a.shape == b.shape and bool(
        (np.isfinite(a) == finite).all() and (np.abs(a[finite] - b[finite]) <= ROUNDING * largest).all()
    )


def same_run(run: Run, plain: dict[str, Any]) -> bool:
    fine = all(close(a, b) for a, b in zip(run.streams, plain["streams"], strict=True))
    for name in ("scores", "patterns", "results"):
        mine = getattr(run, name)
        fine = fine and mine.keys() == plain[name].keys() and all(close(mine[h], plain[name][h]) for h in mine)
    return (
        fine
        and (run.logits is None) == (plain["logits"] is None)
        and (run.logits is None or close(run.logits, plain["logits"]))
    )


# ------------------------------------------------------------------------------------- the forward pass


@given(models(), st.data())
def test_the_forward_pass_is_the_plain_one(model: Model, data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, model.d_vocab - 1), min_size=1, max_size=5))
    run = model.run(tokens)
    assert same_run(run, plain_forward(model, tokens))
    assert len(run.streams) == model.architecture.n_layers + 1
    assert all(p.dtype == np.float64 for p in (*run.streams, *run.patterns.values(), *run.scores.values()))


@given(models(), st.data())
def test_a_batch_is_its_rows(model: Model, data: st.DataObject) -> None:
    token = st.integers(0, model.d_vocab - 1)
    tokens = data.draw(st.lists(st.lists(token, min_size=4, max_size=4), min_size=1, max_size=3))
    run = model.run(tokens)
    for i, row in enumerate(tokens):
        single = model.run(row)
        assert close(run.streams[-1][i], single.streams[-1])
        assert all(close(run.scores[h][i], single.scores[h]) for h in run.scores)
        assert run.logits is None or close(run.logits[i], single.logits)


@given(models())
def test_patterns_are_rows_that_sum_to_one_and_masked_entries_are_exactly_zero(model: Model) -> None:
    run = model.run([0] * 4)
    above = np.triu(np.ones((4, 4), dtype=bool), 1)
    for name, pattern in run.patterns.items():
        assert np.allclose(pattern.sum(-1), 1, rtol=0, atol=1e-15 * 4)
        seen = run.masks[name.partition("H")[0]]
        assert (pattern[~seen] == 0).all()
        assert (run.scores[name][~seen] == -np.inf).all()
        assert np.isfinite(run.scores[name][seen]).all()
        assert not (model.architecture.causal and seen[above].any())
        assert seen.all() or model.architecture.causal or model.settings.windows


def test_masked_weights_stay_zero_at_scores_of_any_size() -> None:
    """A mask of -1e5 would lie above real scores here (TransformerLens #318)."""
    model = random_model(attention_only((1,), "standard"))
    weights = {**model.weights, "W_Q_L0H0": -1e4 * np.abs(model.weights["W_Q_L0H0"]) * 100}
    run = Model(model.architecture, weights, model.score_scale).run([1, 2, 3, 4])
    assert np.abs(run.scores["L0H0"][np.tril_indices(4)]).max() > 1e6
    assert (run.patterns["L0H0"][np.triu_indices(4, 1)] == 0).all()
    assert close(run.patterns["L0H0"].sum(-1), np.ones(4))


@pytest.mark.parametrize("d_head", [4, 5, 16, 20])
def test_summed_heads_are_the_concatenation_times_one_matrix(d_head: int) -> None:
    """concat(z) @ W_O of all heads is the sum over heads, also where H d_head != d_model, or d_head > d_model."""
    model = random_model(attention_only((3,), "standard"), d_head=d_head)
    run = model.run([3, 1, 4, 1, 5])
    heads = [f"L0H{i}" for i in range(3)]
    z = [run.patterns[h] @ run.streams[0] @ model.weights[f"W_V_{h}"].T for h in heads]
    w_o = np.concatenate([model.weights[f"W_O_{h}"] for h in heads], axis=1)
    assert w_o.shape == (16, 3 * d_head)
    assert close(np.concatenate(z, axis=-1) @ w_o.T, sum(run.results[h] for h in heads))


def test_head_and_embedding_miss_exactly_b_o() -> None:
    run = random_model(attention_only((3,), biases=True)).run([1, 2, 3])
    gap = run.streams[1] - run.streams[0] - sum(run.results.values())
    assert close(gap, np.broadcast_to(run.arrays["b_O_L0"], gap.shape))
    assert np.abs(gap).max() > 0.1


def test_a_shortformer_position_is_not_in_the_stream() -> None:
    model = random_model(attention_only((2, 2), "shortformer"))
    other = Model(model.architecture, {**model.weights, "W_pos": 3 * model.weights["W_pos"]}, model.score_scale)
    one, two = model.run([1, 2, 3]), other.run([1, 2, 3])
    assert close(one.streams[0], one.arrays["X0"])
    assert close(one.streams[0], two.streams[0])
    assert not close(one.scores["L0H0"], two.scores["L0H0"])
    assert close(one.results["L0H0"][0], two.results["L0H0"][0])  # the first token sees only itself


@pytest.mark.parametrize("heads", [(), (0,), (0, 0, 0), (1,), (0, 2, 0)])
def test_small_models_work(heads: tuple[int, ...]) -> None:
    for positions, biases in product((None, "standard", "shortformer"), (False, True)):
        model = random_model(attention_only(heads, positions, biases), d_vocab=1, d_model=1, d_head=7, n_context=1)
        run = model.run([0])
        assert run.logits is not None
        assert run.logits.shape == (1, 1)
        assert same_run(run, plain_forward(model, [0]))


# ------------------------------------------------------------------------------------------------ dtype


def test_float64_is_used_whatever_the_weights_are_in() -> None:
    model = random_model(attention_only((2, 2), "standard", True))
    for dtype, tolerance in ((np.float32, 1e-6), (np.float16, 1e-2)):
        small = Model(model.architecture, {k: w.astype(dtype) for k, w in model.weights.items()}, model.score_scale)
        assert small.dtype == np.dtype(dtype).name
        run = small.run([1, 2, 3])
        assert run.dtype == np.float64
        assert run.logits is not None
        assert run.logits.dtype == np.float64
        assert 0 < np.abs(run.logits - model.run([1, 2, 3]).logits).max() < tolerance * 10


def test_float32_on_request() -> None:
    model = random_model(attention_only((2, 2), "shortformer", True))
    run, exact = model.run([1, 2, 3], dtype="float32"), model.run([1, 2, 3])
    everything = [*run.streams, *run.scores.values(), *run.patterns.values(), *run.results.values(), run.logits]
    assert {a.dtype for a in everything} == {np.dtype(np.float32)} == {run.arrays[n].dtype for n in run.arrays}
    assert 0 < np.abs(run.logits - exact.logits).max() < 2e-6 * np.abs(exact.logits).max()


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex128", "longdouble"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="the forward pass is computed in float64 or float32, not"):
        random_model(attention_only(())).run([0], dtype=dtype)


@pytest.mark.parametrize("causal_window", [None, 2])
def test_masked_weights_are_exactly_zero_however_low_real_scores_are(causal_window: int | None) -> None:
    """A mask of a finite number, -1e5 say, would let keys through that have no score as low as the real ones."""
    arch = attention_only((1,), biases=["b_Q"])
    model = random_model(arch, settings=Settings(windows=(causal_window,)))
    weights = dict(model.weights) | {"b_Q_L0H0": np.full(4, 1e30)}
    low = Model(arch, weights, model.score_scale, settings=model.settings).run([1, 2, 3, 4])
    assert low.scores["L0H0"][np.isfinite(low.scores["L0H0"])].min() < -1e25
    seen = np.tril(np.ones((4, 4), bool)) & np.triu(np.ones((4, 4), bool), 1 - (causal_window or 9))
    assert (low.patterns["L0H0"][~seen] == 0).all()
    assert np.allclose(low.patterns["L0H0"].sum(axis=-1), 1)


def test_numbers_that_leave_the_range_are_an_error() -> None:
    model = random_model(attention_only((1, 1)), weight_scale=1e12)
    assert model.run([1, 2]).logits is not None
    with pytest.raises(ValueError, match=r"the scores of L0H0 leave the range of float32: .* try dtype float64"):
        model.run([1, 2], dtype="float32")
    with pytest.raises(ValueError, match=r"leave the range of float64: the weights are too large$"):
        random_model(attention_only((1,)), weight_scale=1e200).run([1, 2])
    with pytest.raises(ValueError, match="the residual stream after layer 0 leave"):
        build(
            {
                "W_E": np.full((6, 5), 1e308),
                "b_O_L0": np.full(6, 1e308),
                "W_Q_L0H0": np.zeros((2, 6)),
                "W_Q_L0H1": np.zeros((2, 6)),
                "W_K_L0H0": np.zeros((2, 6)),
                "W_K_L0H1": np.zeros((2, 6)),
            }
        ).run([1])


# ----------------------------------------------------------------------------------------------- arrays


@given(models())
def test_arrays_hold_all_that_a_term_needs(model: Model) -> None:
    run = model.run([[0, 0, 0], [0, 0, 0]])
    arrays, arch = run.arrays, model.architecture
    for name in ("t", "X0", "ones", *model.weights):
        assert name in arrays
    assert arrays["t"].shape == (2, 3, model.d_vocab)
    assert arrays["ones"].shape == (3, 1)
    assert close(arrays["t"] @ arrays["W_E"].T, arrays["X0"])
    assert ("P" in arrays) == (arch.positions in ("standard", "shortformer"))
    for head in arch.all_heads:
        assert close(arrays[f"W_OV_{head}"], arrays[f"W_O_{head}"] @ arrays[f"W_V_{arch.key_value(head)}"])
        assert close(arrays[f"W_QK_{head}"], arrays[f"W_Q_{head}"].T @ arrays[f"W_K_{arch.key_value(head)}"])
        assert arrays[f"A_{head}"] is run.patterns[str(head)]
        assert (f"scale_{head}" in arrays) == arch.scale
        assert not arch.scale or arrays[f"scale_{head}"] == model.score_scale[str(head)]
    assert set(arrays) == {n for n in arrays if n in arrays}
    assert len(arrays) == len(list(arrays)) == len(set(arrays))
    with pytest.raises(KeyError):
        arrays["W_Q_L9H9"]


def test_one_hot_tokens_are_made_only_when_asked_for() -> None:
    run = random_model(attention_only((1,)), d_vocab=5).run([4, 0])
    assert "t" not in run.arrays._made
    assert run.arrays["t"].tolist() == [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]
    assert run.arrays["t"] is run.arrays["t"]


# ----------------------------------------------------------------------------------------- over any ring


@given(models())
def test_frozen_over_floats_is_the_run(model: Model) -> None:
    run = model.run([[0] * 3, [model.d_vocab - 1] * 3])
    again = frozen(model.architecture, matrices_of(run), Floats())
    assert all(close(a, b) for a, b in zip(again.streams, run.streams, strict=True))
    assert (again.logits is None) == (run.logits is None)
    assert again.logits is None or close(again.logits, run.products.get("logits", run.logits))
    assert again.scores.keys() == run.scores.keys() == again.results.keys()
    for name, scores in run.scores.items():
        allowed = np.isfinite(scores)
        assert close(again.scores[name][allowed], run.products.get(name, scores)[allowed])
        assert close(again.results[name], run.results[name])


def whole_forward(arch: Architecture, m: dict[str, Any], p: int) -> tuple[Any, dict[str, Any]]:
    """Logits (or the stream) and scores through Python's integers, every product written out."""

    def bias(name: str, argument: str) -> Any:
        return m["ones"] @ m[argument].T if name in arch.biases else 0

    def norm(x: Any, label: str) -> Any:
        if not arch.norm:
            return x
        x = m[f"D_{label}"] @ x @ (m["C"].T if arch.norm == "LN" else np.eye(len(x), dtype=int).astype(object))
        return (x @ m[f"gain_{label}"].T if label in arch.gains else x) + bias(f"b_N[{label}]", f"b_N_{label}")

    def number(name: str) -> Any:
        return m[name.replace("[", "_").rstrip("]")] if name in arch.multipliers else 1

    x = number("m_E") * (m["t"] @ m["W_E"].T) + (m["P"] if arch.positions == "standard" else 0)
    scores = {}
    for layer in range(arch.n_layers):
        z = norm(x, f"L{layer}") % p
        y = z + (m["P"] if arch.positions == "shortformer" else 0)
        r, r_mlp = number(f"r[L{layer}]"), number(f"r[M{layer}]")
        terms = [
            x,
            r * bias(f"b_O[L{layer}]", f"b_O_L{layer}"),
            r_mlp * m[f"mlp_L{layer}"] if layer in arch.mlps else 0,
        ]
        for h, g in ((str(h), arch.key_value(h)) for h in arch.layer_heads(layer)):
            q = y @ m[f"W_Q_{h}"].T + bias(f"b_Q[{h}]", f"b_Q_{h}")
            k = y @ m[f"W_K_{g}"].T + bias(f"b_K[{g}]", f"b_K_{g}")
            if arch.qk_norm:
                q = m[f"D_Q{h}"] @ (q % p) @ m[f"gain_Q{layer}"].T
                k = m[f"D_K{g}"] @ (k % p) @ m[f"gain_K{layer}"].T
            if arch.positions == "rotary":
                q, k = (
                    np.stack([row % p @ r % p for row, r in zip(rows, m[f"R_{h}"], strict=True)]) for rows in (q, k)
                )
            scores[h] = (m[f"scale_{h}"] if arch.scale else 1) * (q @ k.T) % p
            out = m[f"A_{h}"] @ (z @ m[f"W_V_{g}"].T + bias(f"b_V[{g}]", f"b_V_{g}")) @ m[f"W_O_{h}"].T
            terms.append(r * (out % p))
        x = sum(terms) % p
    logits = number("m_U") * (norm(x, "final") @ m["W_U"].T + bias("b_U", "b_U")) if arch.unembed else x
    return logits % p, scores


@given(architectures(3, 3), st.integers(1, 4), st.integers(0, 2**32))
def test_frozen_over_a_prime_field_is_exact(arch: Architecture, k: int, seed: int) -> None:
    field, rng = PrimeField(), np.random.default_rng(seed)
    scalars = ("scale_", "m_", "r_")
    matrices = {n: field.random(() if n.startswith(scalars) else (k, k), rng) for n in matrix_names(arch)}
    matrices |= {n: field.random((k, k, k), rng) for n in matrices if n.startswith("R_")}
    result = frozen(arch, matrices, field)
    end, scores = whole_forward(arch, {n: a.astype(object) for n, a in matrices.items()}, field.p)
    assert field.equal(result.streams[-1] if result.logits is None else result.logits, end.astype(np.int64))
    assert result.scores.keys() == scores.keys()
    assert all(field.equal(result.scores[h], scores[h].astype(np.int64)) for h in scores)


def test_frozen_is_an_einsum_written_differently() -> None:
    """The same numbers from one einsum per formula, in the shapes of a real model."""
    run = random_model(attention_only((2,), biases=True), d_vocab_out=5).run([3, 1, 4])
    m = matrices_of(run)
    x = np.einsum("nv,dv->nd", m["t"], m["W_E"])
    heads = [
        np.einsum(
            "nm,mo,do->nd", m[f"A_{h}"], np.einsum("md,od->mo", x, m[f"W_V_{h}"]) + m[f"b_V_{h}"].T, m[f"W_O_{h}"]
        )
        for h in ("L0H0", "L0H1")
    ]
    logits = np.einsum("nd,ud->nu", x + sum(heads) + m["b_O_L0"].T, m["W_U"]) + m["b_U"].T
    assert close(frozen(run.model.architecture, m, Floats()).logits, logits)
    assert close(run.logits, logits)


def test_frozen_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="the frozen forward pass needs W_E, which is not among the matrices"):
        frozen(attention_only((1,)), {"t": np.eye(2)}, Floats())


# -------------------------------------------------------------------------------------- change of basis


def invertible(n: int, rng: np.random.Generator) -> Any:
    """An invertible matrix far from orthogonal, with a condition number below 30."""
    u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return u @ np.diag(np.geomspace(0.3, 5, n)) @ v


@given(models(), st.integers(0, 99))
def test_a_change_of_basis_leaves_logits_and_scores(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bases = {}
    for head in model.architecture.all_heads:
        if f"W_K_{head}" not in model.weights:
            with pytest.raises(ValueError, match=f"{head} shares its keys and values"):
                change_basis(model, None, {str(head): (None, None)})
            continue
        qk, ov = len(model.weights[f"W_Q_{head}"]), len(model.weights[f"W_V_{head}"])
        bases[str(head)] = (invertible(qk, rng), invertible(ov, rng))
        if model.architecture.positions == "rotary" or model.architecture.qk_norm:
            with pytest.raises(ValueError, match=f"queries and keys of {head} are rotated"):
                change_basis(model, None, bases)
            bases[str(head)] = (None, invertible(ov, rng))
    change = invertible(model.d_model, rng)
    if model.architecture.norm:
        with pytest.raises(ValueError, match="this model has norms, which depend on the basis of the stream"):
            change_basis(model, change)
        change = np.eye(model.d_model)
    moved = change_basis(model, None if model.architecture.norm else change, bases)
    run, after = model.run([0] * 3), moved.run([0] * 3)
    assert all(np.allclose(run.scores[h], after.scores[h], rtol=1e-9, atol=1e-9) for h in run.scores)
    assert all(
        np.allclose(a @ change.T, b, rtol=1e-9, atol=1e-9) for a, b in zip(run.streams, after.streams, strict=True)
    )
    assert run.logits is None or np.allclose(run.logits, after.logits, rtol=1e-9, atol=1e-9)


def test_a_change_of_basis_changes_the_weights() -> None:
    model = random_model(attention_only((1,), "standard", True))
    rng = np.random.default_rng(0)
    moved = change_basis(model, invertible(16, rng), {"L0H0": (invertible(4, rng), invertible(4, rng))})
    assert [n for n in model.weights if np.allclose(model.weights[n], moved.weights[n])] == ["b_U"]
    only_head = change_basis(model, head_bases={"L0H0": (None, invertible(4, rng))})
    changed = [n for n in model.weights if not np.allclose(model.weights[n], only_head.weights[n])]
    assert changed == ["W_V_L0H0", "W_O_L0H0", "b_V_L0H0"]


@pytest.mark.parametrize(
    ("change", "bases", "message"),
    [
        (np.ones((16, 16)), None, "T is not invertible"),
        (np.full((16, 16), np.nan), None, "T is not invertible"),
        (np.eye(4), None, r"T must be an invertible matrix of shape \[16, 16\], not \[4, 4\]"),
        (None, {"L0H0": (np.zeros((4, 4)), None)}, "R of L0H0 is not invertible"),
        (None, {"L0H0": (None, np.eye(3))}, r"S of L0H0 must be an invertible matrix of shape \[4, 4\]"),
        (None, {"L5H0": (None, None)}, "there is no head L5H0"),
    ],
)
def test_a_wrong_change_of_basis_is_refused(change: Any, bases: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change_basis(random_model(attention_only((1,))), change, bases)


# ------------------------------------------------------------------------------------------ random models


def test_random_models_are_reproducible_and_of_order_one() -> None:
    arch = attention_only((12,) * 12, "standard", True)
    one, same, other = (random_model(arch, d_model=64, seed=s) for s in (0, 0, 1))
    assert all(np.array_equal(one.weights[n], same.weights[n]) for n in one.weights)
    assert not np.array_equal(one.weights["W_E"], other.weights["W_E"])
    run = one.run(range(11))
    assert 0.3 < np.std(run.logits) < 30
    assert 0.1 < np.std([s[-1] for s in run.scores.values()]) < 30


def test_sizes_of_a_random_model() -> None:
    model = random_model(attention_only((1,), "standard"), d_vocab=3, d_model=5, d_head=7, d_vocab_out=2, n_context=9)
    assert (model.d_model, model.d_vocab, model.d_vocab_out, model.n_context) == (5, 3, 2, 9)
    assert model.score_scale == {"L0H0": 1 / math.sqrt(7)}
    assert model.dtype == "float64"
    assert random_model(attention_only((1,)), score_scale=0.5).score_scale == {"L0H0": 0.5}
    assert random_model(attention_only((1,), scale=False)).score_scale == {}
    bare = random_model(attention_only((), unembed=False))
    assert (bare.d_vocab_out, bare.n_context, bare.run([1]).logits) == (None, None, None)


@pytest.mark.parametrize("word", ["d_vocab", "d_model", "d_head", "d_vocab_out", "n_context"])
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3"])
def test_sizes_below_one_are_refused(word: str, size: Any) -> None:
    with pytest.raises(ValueError, match=f"{word} must be a whole number, 1 or more, not {size!r}"):
        random_model(attention_only((1,)), **{word: size})


# ------------------------------------------------------------------------------------------------ weights


def build(change: dict[str, Any] | None = None, drop: str = "", **fields: Any) -> Model:
    """A small model (d_model 6, d_vocab 5, d_head 2) with some weights replaced or one dropped."""
    model = random_model(attention_only((2,), "standard", True), d_vocab=5, d_model=6, d_head=2, n_context=4)
    weights = {n: w for n, w in {**model.weights, **(change or {})}.items() if n != drop}
    return dataclasses.replace(model, **{"weights": weights, "dtype": "", **fields})


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("W_E", (5, 6), r"W_E has shape \[5, 6\]; expected \[d_model, d_vocab\] = \[6, any\]; its transpose would fit"),
        ("W_U", (6, 5), r"W_U has shape \[6, 5\]; expected \[d_vocab_out, d_model\] = \[any, 6\]; its transpose"),
        ("W_Q_L0H0", (6, 2), r"W_Q_L0H0 has shape \[6, 2\]; expected \[d_head, d_model\] = \[any, 6\]; its transpose"),
        ("W_K_L0H1", (3, 6), r"W_K_L0H1 has shape \[3, 6\]; expected \[d_head, d_model\] = \[2, 6\]$"),
        ("W_O_L0H1", (2, 6), r"W_O_L0H1 has shape \[2, 6\]; expected \[d_model, d_head\] = \[6, 2\]; its transpose"),
        ("W_V_L0H1", (2, 6, 1), r"W_V_L0H1 has shape \[2, 6, 1\]; expected \[d_head, d_model\] = \[any, 6\]$"),
        ("W_pos", (4, 5), r"W_pos has shape \[4, 5\]; expected \[n_ctx, d_model\] = \[any, 6\]$"),
        ("b_O_L0", (1, 6), r"b_O_L0 has shape \[1, 6\]; expected \[d_model\] = \[6\]$"),
        ("b_Q_L0H0", (3,), r"b_Q_L0H0 has shape \[3\]; expected \[d_head\] = \[2\]$"),
        ("b_U", (6,), r"b_U has shape \[6\]; expected \[d_vocab_out\] = \[5\]$"),
        ("W_E", (6, 0), r"W_E is empty: its shape is \[6, 0\]"),
    ],
)
def test_a_weight_of_the_wrong_shape_is_named(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build({name: np.ones(shape)})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((6, 5), np.nan), r"W_E holds nan at \[0, 0\] and 29 more such entries; weights must be finite"),
        (
            np.where(np.arange(30).reshape(6, 5) == 7, -np.inf, 1.0),
            r"W_E holds -inf at \[1, 2\]; weights must be finite",
        ),
        (np.ones((6, 5), dtype=int), "W_E holds int64; a weight must hold float16, float32 or float64"),
        (np.ones((6, 5), dtype=bool), "W_E holds bool"),
        (np.ones((6, 5), dtype=complex), "W_E holds complex128"),
        (np.ones((6, 5), dtype=object), "W_E holds object"),
        (np.ones((6, 5), dtype=np.longdouble), "W_E holds"),
        (
            np.ones((6, 5), dtype=">f8"),
            r"W_E is stored in the other byte order \(>f8\); convert it with .astype\('float64'",
        ),
    ],
)
def test_a_weight_of_the_wrong_kind_is_named(array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build({"W_E": array})


def test_missing_and_unknown_weights_are_listed() -> None:
    with pytest.raises(ValueError, match=r"the model lacks 1 weight: W_K_L0H1$"):
        build(drop="W_K_L0H1")
    with pytest.raises(ValueError, match="the model has 2 weights that it does not use: W_K_L0H7, W_in"):
        build({"W_K_L0H7": np.ones((2, 6)), "W_in": np.ones(3)})
    with pytest.raises(ValueError, match="lacks 1 weight: W_E; it has these, which are unknown: W_e"):
        build({"W_e": np.ones((6, 5))}, drop="W_E")
    with pytest.raises(ValueError, match=r"lacks 19 weights: W_E, W_pos, .* and 11 more$"):
        build(weights={})


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"L0H0": 1.0}, "score_scale lacks 1 weight: L0H1"),
        ({"L0H0": 1.0, "L0H1": np.inf}, "the score scale of L0H1 is inf; it must be a finite number"),
        ({"L0H0": 1.0, "L0H1": 1.0, "L1H0": 1.0}, "score_scale has 1 weight that it does not use: L1H0"),
    ],
)
def test_score_scales_are_checked(scales: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(score_scale=scales)


def test_a_model_cannot_be_changed() -> None:
    model = build()
    with pytest.raises(ValueError, match="read-only"):
        model.weights["W_E"][0, 0] = 1
    with pytest.raises(TypeError):
        model.weights["W_E"] = 1  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.name = "other"  # type: ignore[misc]
    mine = np.ones((6, 5))
    build({"W_E": mine})
    mine[0, 0] = 2  # the caller's own array stays the caller's


def test_heads_may_differ_in_size() -> None:
    sizes = {"W_Q_L0H1": (3, 6), "W_K_L0H1": (3, 6), "b_Q_L0H1": (3,), "b_K_L0H1": (3,)}
    model = build({name: np.ones(shape) for name, shape in sizes.items()})
    assert same_run(model.run([1, 2, 3]), plain_forward(model, [1, 2, 3]))


# ------------------------------------------------------------------------------------------------- tokens


class Tensor:
    """What becomes an array when asked."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values


@pytest.mark.parametrize(
    "tokens",
    [
        [1, 2, 3], (1, 2, 3), range(1, 4), np.array([1, 2, 3]), np.array([1, 2, 3], dtype=np.uint8), Tensor([1, 2, 3]),
        np.array([1, 2, 3], dtype=object), [np.int64(1), np.int32(2), 3], [np.array(1), 2, 3],
        np.array([1, 2, 3], dtype=">i4"),
    ],
)  # fmt: skip
def test_tokens_are_taken_from_lists_and_arrays(tokens: Any) -> None:
    read = read_tokens(tokens, 4)
    assert read.tolist() == [1, 2, 3]
    assert read.dtype == np.int64


@pytest.mark.parametrize("tokens", [[[1, 2], [3, 0]], np.array([[1, 2], [3, 0]]), [np.array([1, 2]), (3, 0)]])
def test_batches_of_tokens_are_taken(tokens: Any) -> None:
    assert read_tokens(tokens, 4).tolist() == [[1, 2], [3, 0]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, 11], "token 11 at position 1 is out of range: the vocabulary has 11 tokens, 0 to 10"),
        ([[1, 2], [3, -1]], "token -1 in row 1 at position 1 is out of range: the vocabulary has 11 tokens, 0 to 10"),
        ([10**30], f"token {10**30} at position 0 is out of range"),
        (np.array([0, 2**63], dtype=np.uint64), f"token {2**63} at position 1 is out of range"),
        ([1, 1.5], "1.5 at position 1 is not a token: tokens are whole numbers .*this is a float"),
        ([1, 1.0], "1.0 at position 1 is not a token: tokens are whole numbers .*this is a float"),
        ([1, True], "True at position 1 is not a token: tokens are whole numbers .*this is a bool"),
        ([[1, 2], [None, 1]], "None in row 1 at position 0 is not a token"),
        (["1", "2"], "'1' at position 0 is not a token: .*this is a str"),
        (np.array([0.0, 1.5]), "this array holds float64, such as 1.5 at position 1; convert it to integers if"),
        (np.array([0.0, 1.0]), "tokens are whole numbers .* this array holds float64, such as 0.0 at position 0"),
        (np.array([[True]]), "this array holds bool, such as True in row 0 at position 0"),
        (np.array([np.nan]), "this array holds float64, such as nan"),
        (np.array([1, True, 2], dtype=object), "True at position 1 is not a token"),
        ([np.array(True)], "at position 0 is not a token"),
        ([], "there are no tokens"),
        ([[]], "there are no tokens"),
        ([[], []], "there are no tokens"),
        (np.array([]), r"there are no tokens \(shape \[0\]\)"),
        (np.zeros((2, 0), dtype=int), r"there are no tokens \(shape \[2, 0\]\)"),
        ([[1, 2], [3]], "the rows differ in length: row 0 has 2 tokens, row 1 has 1 token"),
        ([[1, 2], 3], "the rows differ in length: row 0 has 2 tokens, entry 1 is not a row"),
        ([1, [2]], "the rows differ in length: entry 0 is not a row, row 1 has 1 token"),
        ([[[1]]], "there is a third axis in row 0 at position 0"),
        (np.zeros((1, 1, 1), dtype=int), r"this array has 3 axes, shape \[1, 1, 1\]"),
        (5, "tokens are whole numbers in a list or array of shape .*not 5"),
        (np.array(5), r"5 is a single number: write \[5\]"),
        ("1,2", "not '1,2'"),
        (b"12", "not b'12'"),
        (None, "not None"),
        ({1, 2}, "not {1, 2}"),
        (Tensor([1, 99]), "token 99 at position 1"),
        (Tensor(1.5), "tokens are whole numbers"),
        (list(range(11)) * 2, r"22 tokens are too many: the position table has 12 rows \(n_ctx = 12\)"),
    ],
)
def test_wrong_tokens_are_named(tokens: Any, message: str) -> None:
    model = random_model(attention_only((1,), "standard"), n_context=12)
    with pytest.raises(ValueError, match=message):
        model.run(tokens)


def test_tokens_up_to_the_length_of_the_position_table_work() -> None:
    assert random_model(attention_only((1,), "shortformer"), n_context=3).run([1, 2, 3]).logits is not None
    assert random_model(attention_only((1,)), n_context=3).run([1] * 40).logits is not None
    with pytest.raises(ValueError, match="token 1 at position 0 is out of range: the vocabulary has 1 token, 0"):
        random_model(attention_only(()), d_vocab=1).run([1])


@given(st.recursive(st.none() | st.booleans() | st.integers(-3, 14) | st.floats() | st.text(max_size=2), st.lists))
def test_any_input_gives_tokens_or_a_value_error(tokens: Any) -> None:
    with contextlib.suppress(ValueError):
        read = read_tokens(tokens, 11, 5)
        assert read.ndim in (1, 2)
        assert read.shape[-1] <= 5
        assert set(read.flat) <= set(range(11))
        assert read.size
