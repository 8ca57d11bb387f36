"""explain: every number it gives, held to a plain computation from the weight file and the text of each term."""

import dataclasses
import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from strategies import Row, oracle

import symcircuits as sc
from symcircuits.explanation.explain import Explanation, explain
from symcircuits.explanation.scores import margin
from symcircuits.values.evaluate import closure

RANDOM = ["tl_plain_s0", "tl_bias_s1", "tl_3layer_s11", "tl_shortformer_s7"]
TRACR = [
    "tracr_prev_1L", "tracr_induction_K_2L", "tracr_induction_K_2L_causal", "tracr_sameprev_QK_2L",
    "tracr_prevprev_V_2L",
]  # fmt: skip
TRAINED = ["induction_shortformer_h2_s3", "real_gbmi_indhead_finetuned_model_0"]
ALL = [*RANDOM, *TRACR, *TRAINED]
DATA = Path(__file__).parent / "data"
TYPES = ("none", "Q", "K", "QK")
ALL_TERMS = 10**6


# ------------------------------------------------------------------------------------ the plain computation
def reference(name: str) -> dict[str, Any]:
    with np.load(DATA / name / "reference.npz") as arrays:
        return dict(arrays)


def plain_arrays(name: str, tokens: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """For one row of tokens: the factors of terms by their text name, and the scores of every head, masked.

    From the weight file as it stands, in TransformerLens's convention, by a loop over layers and heads.
    """
    w = {k: v.astype(np.float64) for k, v in load_file(DATA / name / "model.safetensors").items()}
    config = json.loads((DATA / name / "config.json").read_text())
    kind, n = config["positional_embedding_type"], len(tokens)
    x = w["embed.W_E"][tokens]
    f: dict[str, Any] = {"X0": x, "P": w["pos_embed.W_pos"][:n], "ones": np.ones((n, 1))}
    x = x + f["P"] if kind == "standard" else x
    scale, scores = 1 / config.get("attn_scale", math.sqrt(config["d_head"])), {}
    for layer in range(config["n_layers"]):
        at = f"blocks.{layer}.attn."
        read, new = (x + f["P"] if kind == "shortformer" else x), 0
        for i in range(config["n_heads"]):
            h = f"L{layer}H{i}"
            q, k, v, o = (w[f"{at}W_{m}"][i] for m in "QKVO")
            bias = {m: w.get(f"{at}b_{m}", np.zeros((config["n_heads"], config["d_head"])))[i] for m in "QKV"}
            s = (read @ q + bias["Q"]) @ (read @ k + bias["K"]).T * scale
            if config["attention_dir"] == "causal":
                s[np.triu_indices(n, 1)] = -np.inf
            a = np.exp(s - s.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            new = new + a @ (x @ v + bias["V"]) @ o
            scores[h], f[f"A[{h}]"], f[f"scale[{h}]"] = s, a, scale
            f |= {f"W_Q[{h}]": q.T, f"W_K[{h}]": k.T, f"W_V[{h}]": v.T, f"W_O[{h}]": o.T}
            f |= {f"W_QK[{h}]": q @ k.T, f"W_OV[{h}]": (v @ o).T}
            f |= {f"b_{m}[{h}]": b[:, None] for m, b in bias.items()}
        f[f"b_O[L{layer}]"] = w.get(f"{at}b_O", np.zeros(x.shape[1]))[:, None]
        x = x + new + f[f"b_O[L{layer}]"].T
    if "unembed.W_U" in w:
        f["W_U"] = w["unembed.W_U"].T
        f["b_U"] = w.get("unembed.b_U", np.zeros(len(f["W_U"])))[:, None]
    return f, scores


def value_of(text: str, factors: dict[str, Any]) -> Any:
    """What a term is by its text: the product of its factors, from left to right."""
    front, _, product = text.rpartition(" * ")
    matrices = (factors[x.removesuffix(".T")].T if x.endswith(".T") else factors[x] for x in product.split(" @ "))
    value = functools.reduce(np.matmul, matrices)
    return value * factors[front] if front else value


@dataclasses.dataclass(frozen=True)
class Plain:
    """All of a model's terms on its recorded tokens, ``[terms, row, n, width]``."""

    rows: list[Row]
    values: Any
    score_rows: dict[str, list[Row]]
    score_values: dict[str, Any]
    scores: dict[str, Any]
    patterns: dict[str, Any]

    def scores_by_type(self, head: str) -> dict[str, Any]:
        types = [r.composition for r in self.score_rows[head]]
        return {c: self.score_values[head][[t == c for t in types]].sum(axis=0) for c in TYPES}


@functools.cache
def plain(name: str) -> Plain:
    architecture = sc.load(DATA / name).architecture
    by_row = [plain_arrays(name, row) for row in reference(name)["tokens"]]
    main = oracle(architecture, "logits" if architecture.unembed else "stream")
    heads = [str(h) for h in architecture.all_heads]
    rows = {h: oracle(architecture, f"scores:{h}") for h in heads}

    def values(some: list[Row]) -> Any:
        return np.array([[value_of(r.text, factors) for factors, _ in by_row] for r in some])

    return Plain(
        main, values(main), rows, {h: values(rows[h]) for h in heads},
        {h: np.array([s[h] for _, s in by_row]) for h in heads},
        {h: np.array([f[f"A[{h}]"] for f, _ in by_row]) for h in heads},
    )  # fmt: skip


@functools.cache
def explained(name: str) -> Explanation:
    return explain(sc.load(DATA / name), reference(name)["tokens"], top=ALL_TERMS)


def plain_margin(scores: Any, pattern: Any, allowed: Any, queries: Any = None) -> float:
    """By the definition, for ``[row, n, n]``, one query after the other."""
    total = 0.0
    for row in range(len(scores)):
        for i in range(scores.shape[1]) if queries is None else queries:
            keys = [j for j in range(scores.shape[2]) if allowed[row, i, j]]
            if len(keys) < 2:
                continue
            best = min(keys, key=lambda j: (-pattern[row, i, j], j))
            total += scores[row, i, best] - sum(scores[row, i, j] for j in keys if j != best) / (len(keys) - 1)
    return total


def close(value: float | None, right: float, size: float) -> bool:
    """Equal up to rounding, beside the size of what was added."""
    return value is not None and abs(value - right) <= 1e-11 * (size + 1e-300)


# ----------------------------------------------------------------------------------- every number, every model
@pytest.mark.parametrize("name", ALL)
def test_the_terms_add_up_to_the_model(name: str) -> None:
    found, mine = explained(name), plain(name)
    assert found.ok
    kind = "logits" if found.model.architecture.unembed else "stream"
    assert found.closure.target == kind
    assert (found.closure.summands, found.closure.listed) == (len(mine.rows), True)
    assert found.scores.keys() == mine.scores.keys()
    for head, scores in found.scores.items():
        assert scores.closure.passed
        assert scores.closure.summands == len(mine.score_rows[head])
    recorded = reference(name)
    if "logits" in recorded:
        tolerance = 1e-12 if recorded["logits"].dtype == np.float64 else 2e-6
        error = np.abs(mine.values.sum(axis=0) - recorded["logits"]).max()
        assert error <= tolerance * np.abs(recorded["logits"]).max()
    else:
        assert found.run.logits is None


@pytest.mark.parametrize("name", ALL)
def test_error_and_bound_are_those_of_the_entry_with_the_largest_ratio(name: str) -> None:
    """Of a run whose results are moved by far more than rounding; ``bound = 16 u (sum of |terms| + f)``."""
    found, mine = explained(name), plain(name)
    arch, w, run = found.model.architecture, found.model.weights, found.run
    draw = np.random.default_rng(1)

    def check(target: str, moved: Any, size: Any, allowed: Any, **changed: Any) -> None:
        result = closure(sc.expand(arch, target), dataclasses.replace(run, **changed))
        bounds = np.where(allowed, 16 * 2.0**-53 * size, np.inf)
        worst = np.unravel_index(np.argmax(np.abs(moved) / bounds), moved.shape)
        assert not result.passed
        assert result.error == pytest.approx(abs(moved[worst]), rel=1e-4, abs=0)
        assert result.bound == pytest.approx(bounds[worst], rel=1e-6, abs=0)

    def move(size: Any) -> Any:
        return 1e-8 * size * draw.uniform(0.5, 1, size.shape)

    x = run.streams[-1]
    norm, summed = row_sizes(run, w, len(run.streams) - 1)[..., None], np.abs(mine.values).sum(axis=0)
    if arch.unembed:
        size = summed + norm * np.sqrt((w["W_U"].astype(float) ** 2).sum(1))
        moved = move(size)
        check("logits", moved, size, True, logits=run.logits + moved)
    else:
        size = summed + norm
        moved = move(size)
        check("stream", moved, size, True, streams=(*run.streams[:-1], x + moved))
    for head in (str(h) for h in arch.all_heads):
        read = run.streams[int(head[1])]
        rows = row_sizes(run, w, int(head[1]))
        if arch.positions == "shortformer":
            rows = rows + np.sqrt((w["W_pos"][: x.shape[1]].astype(float) ** 2).sum(-1))
        read = read + w["W_pos"][: x.shape[1]].astype(float) if arch.positions == "shortformer" else read
        q, k = (read @ w[f"W_{m}_{head}"].T.astype(float) + w.get(f"b_{m}_{head}", 0) for m in "QK")
        lengths = [np.sqrt((v**2).sum(-1)) for v in (q, k)]
        f = found.model.score_scale[head] * lengths[0][..., :, None] * lengths[1][..., None, :]
        d_head, d_model = w[f"W_Q_{head}"].shape
        steps = int(head[1]) + (d_head <= 4 or d_model >= 16 * d_head)
        f = np.maximum(f, found.model.score_scale[head] * made_of(rows, lengths, w, head) * steps / 16)
        size = np.abs(mine.score_values[head]).sum(axis=0) + f
        moved = move(size)
        scores = {**run.scores, head: run.scores[head] + moved}
        check(f"scores:{head}", moved, size, np.isfinite(mine.scores[head]), scores=scores)


def row_sizes(run: Any, w: Any, point: int) -> Any:
    """``|x_i|`` at a point, or 6 sixteenths of what was written and what heads made of roundings, if that is more."""
    squares = (run.streams[0] ** 2).sum(-1)
    for layer in range(point):
        heads = [str(h) for h in run.model.architecture.layer_heads(layer)]
        maps = {h: (w[f"W_O_{h}"] @ w[f"W_V_{h}"]).astype(float) for h in heads}
        passed_on = [(run.patterns[h] ** 2 @ squares[..., None])[..., 0] * (maps[h] ** 2).sum() for h in heads]
        written = [written_size(run, w, h, row_sizes(run, w, layer)) ** 2 for h in heads]
        squares = squares + sum(passed_on) / len(w["W_E"]) + sum(written) + (run.streams[layer + 1] ** 2).sum(-1)
    return np.maximum(np.sqrt((run.streams[point] ** 2).sum(-1)), np.sqrt(squares) * 6 / 16 * (point > 0))


def written_size(run: Any, w: Any, head: str, rows: Any) -> Any:
    """That of what a head writes; where it or the stream is narrow, with a sixth of what its values are made of."""
    size = np.sqrt((run.results[head] ** 2).sum(-1))
    w_v, w_o = (w[f"W_{m}_{head}"].astype(float) for m in "VO")
    if min(w_v.shape) > 4:
        return size
    made = rows * np.linalg.norm(w_v) + np.linalg.norm(w.get(f"b_V_{head}", np.zeros(1)))
    return size + (run.patterns[head] @ made[..., None])[..., 0] / 6 * np.linalg.norm(w_o) / np.sqrt(len(w_v))


def made_of(x: Any, lengths: list[Any], w: Any, head: str) -> Any:
    """``|x_i||W_Q||k_j| + |q_i||x_j||W_K|``, which counts for each layer before, and once more for small heads."""
    q, k = lengths
    w_q, w_k = (np.sqrt((w[f"W_{m}_{head}"].astype(float) ** 2).sum()) for m in "QK")
    return x[..., :, None] * w_q * k[..., None, :] + q[..., :, None] * x[..., None, :] * w_k


@pytest.mark.parametrize("name", ALL)
def test_every_term_has_its_size_and_contribution(name: str) -> None:
    found, mine = explained(name), plain(name)
    target, at = found.measure, {r.label: i for i, r in enumerate(mine.rows)}
    assert len(found.terms) == len(at) == found.expansion.count == found.looked_at
    size = np.abs(mine.values).max()
    for sized in found.terms:
        i = at.pop(sized.term.label)
        row, value = mine.rows[i], mine.values[i]
        assert (sized.term.order, sized.term.composition) == (sum(row.orders), row.composition)
        assert sized.term.text == row.text
        assert close(sized.norm, math.sqrt((value**2).sum()), math.sqrt((value**2).sum()))
        if found.model.architecture.unembed:
            assert close(sized.contribution, value[target.row, target.position, target.token], size)
        else:
            assert sized.contribution is None
    by_norm = [s.norm for s in explain(found.model, reference(name)["tokens"], sort="norm", top=ALL_TERMS).terms]
    assert by_norm == sorted(by_norm, reverse=True) == sorted((s.norm for s in found.terms), reverse=True)
    centred = {"centred": 0.0} if has_logits(found) else {}
    assert found.remainder == {"count": 0, "norm": 0.0, "contribution": 0.0 if has_logits(found) else None, **centred}


def has_logits(found: Explanation) -> bool:
    return found.measure.token is not None


@pytest.mark.parametrize("name", ALL)
def test_the_chosen_logit_is_the_first_choice_at_the_last_position(name: str) -> None:
    found, total = explained(name), plain(name).values.sum(axis=0)
    n = total.shape[1]
    assert (found.measure.row, found.measure.position) == (0, n - 1)
    if found.model.architecture.unembed:
        assert found.measure.token == total[0, -1].argmax()
        assert close(found.value, total[0, -1].max(), np.abs(total).max())
    else:
        assert (found.measure.token, found.value) == (None, None)


@pytest.mark.parametrize("name", ALL)
def test_totals_by_order_and_composition(name: str) -> None:
    found, mine = explained(name), plain(name)
    keys: dict[str, list[Any]] = {
        "order": [sum(r.orders) for r in mine.rows], "composition": [r.composition for r in mine.rows],
    }  # fmt: skip
    size = np.abs(mine.values).sum()
    for kind, of in keys.items():
        assert found.totals[kind].keys() == set(of)
        for key, total in found.totals[kind].items():
            chosen = mine.values[[k == key for k in of]]
            value = chosen.sum(axis=0)
            assert total["count"] == len(chosen)
            assert close(total["norm"], math.sqrt((value**2).sum()), size)
            t = found.measure
            if t.token is not None:
                assert close(total["contribution"], value[t.row, t.position, t.token], size)
            else:
                assert total["contribution"] is None


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("top", [0, 1, 3])
def test_the_remainder_is_the_sum_of_what_is_not_shown(name: str, top: int) -> None:
    mine = plain(name)
    found = explain(sc.load(DATA / name), reference(name)["tokens"], top=top)
    assert found.rows == explained(name).rows[: len(found.rows)]
    assert [s.term for s in found.terms] == [t for row in found.rows for t in row.terms]
    top = len(found.terms)
    shown = {s.term.label for s in found.terms}
    rest = mine.values[[r.label not in shown for r in mine.rows]].sum(axis=0)
    top = min(top, len(mine.rows))
    assert found.remainder["count"] == len(mine.rows) - top
    assert close(found.remainder["norm"], math.sqrt((rest**2).sum()), np.abs(mine.values).sum())
    t = found.measure
    if t.token is not None:
        right = rest[t.row, t.position, t.token]
        assert close(found.remainder["contribution"], right, np.abs(mine.values).sum())


@pytest.mark.parametrize("name", ALL)
def test_shares_of_the_margin_by_the_definition(name: str) -> None:
    found, mine = explained(name), plain(name)
    for head, scores in found.scores.items():
        allowed = np.isfinite(mine.scores[head])
        parts = {c: plain_margin(v, mine.patterns[head], allowed) for c, v in mine.scores_by_type(head).items()}
        masked = np.where(allowed, mine.scores[head], 0)
        total = plain_margin(masked, mine.patterns[head], allowed)
        assert close(sum(parts.values()), total, np.abs(masked).sum())
        assert list(scores.shares) == list(TYPES)
        assert sum(v for v in scores.shares.values() if v is not None) == pytest.approx(1, abs=1e-12)
        for c in TYPES:
            assert scores.shares[c] == pytest.approx(parts[c] / total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_norms_and_counts_of_the_scores_by_composition(name: str) -> None:
    found, mine = explained(name), plain(name)
    for head, scores in found.scores.items():
        allowed = np.isfinite(mine.scores[head])
        types = [r.composition for r in mine.score_rows[head]]
        size = np.abs(mine.score_values[head]).sum()
        for c, value in mine.scores_by_type(head).items():
            assert scores.counts[c] == types.count(c)
            assert close(scores.norms[c], math.sqrt((value[allowed] ** 2).sum()), size)
        starts = [r.routes[1].source.partition("[")[0] for r in mine.score_rows[head]]
        assert scores.softmax_invisible == sum(s in ("b_K", "b_O", "b_V") for s in starts)


def test_known_counts_of_terms_that_softmax_does_not_see() -> None:
    found = explained("tl_bias_s1")
    assert found.scores["L1H0"].softmax_invisible == 65
    assert sum(found.scores["L1H0"].counts.values()) == 169
    assert [s.softmax_invisible for s in explained("tl_plain_s0").scores.values()] == [0] * 6


# ------------------------------------------------------------------------------------------ what circuits show
def dominant(found: Explanation, head: str) -> str:
    shares = found.scores[head].shares
    assert None not in shares.values()
    return max(shares, key=lambda c: shares[c] or 0)


@pytest.mark.parametrize(
    ("name", "queries", "heads", "composition"),
    [
        ("tracr_induction_K_2L", None, ["L1H0"], "K"),
        ("tracr_sameprev_QK_2L", None, ["L1H0"], "QK"),
        ("tracr_induction_K_2L_causal", [-1], ["L1H0"], "K"),
        ("induction_shortformer_h2_s3", None, ["L1H0", "L1H1"], "K"),
        ("real_gbmi_indhead_finetuned_model_0", None, ["L1H0"], "K"),
    ],
)
def test_the_composition_that_dominates(name: str, queries: Any, heads: list[str], composition: str) -> None:
    found = explain(sc.load(DATA / name), reference(name)["tokens"], queries=queries)
    for head in heads:
        assert dominant(found, head) == composition
        assert (found.scores[head].shares[composition] or 0) > 0.5
        assert found.scores[head[:1] + "0" + head[2:]].shares["none"] == pytest.approx(1)


def test_a_virtual_head_writes_what_the_program_computes() -> None:
    name = "tracr_prevprev_V_2L"
    found, mine = explained(name), plain(name)
    assert found.scores["L1H0"].shares["none"] == pytest.approx(1)
    labels = json.loads(str(reference(name)["residual_labels"]))
    columns = [i for i, label in enumerate(labels) if label.startswith("prevprev")]
    assert len(columns) == 4
    run = found.run
    both = zip(found.expansion, sc.evaluate(found.expansion, run), mine.rows, mine.values, strict=True)
    nonzero = [
        (term.label, row.label) for term, value, row, own in both
        if np.abs(value[..., columns]).max() > 1e-12 or np.abs(own[..., columns]).max() > 1e-12
    ]  # fmt: skip
    assert nonzero == [("embed -> L0H0 -> L1H0",) * 2]


@pytest.mark.parametrize("name", ["tl_rotary_s5", "tl_ln_s2", "tl_mlp_gelu_ln_s18", "tl_gqa_s9", "hf_mistral"])
def test_models_with_more_than_attention(name: str) -> None:
    """Closures hold, and what is held fixed is named."""
    found = sc.explain(sc.load(DATA / name), [1, 2, 3, 4])
    assert found.ok
    assert found.assumptions[0].startswith("held fixed: the attention pattern of every head")
    architecture = found.model.architecture
    assert ("1 / sigma of every norm" in found.assumptions[0]) == (architecture.norm is not None)
    assert ("the output of every MLP" in found.assumptions[0]) == bool(architecture.mlps)


def test_a_closure_before_a_cap_says_so() -> None:
    """Terms of a capped model sum to what the cap is applied to, and the report names it."""
    arch = sc.transformer((2, 2), "alibi", norm="LN")
    capped = sc.explain(sc.random_model(arch, settings=sc.Settings(logit_cap=3.0)), [1, 2, 3])
    assert capped.ok
    assert (capped.closure.of, capped.scores["L0H0"].closure.of) == ("pre-cap", "before the addend")
    shown = capped.json()["closure"]
    assert (shown["logits"]["of"], shown["scores"]["L0H0"]["of"]) == ("pre-cap", "before the addend")
    assert "logits (pre-cap)" in capped.text()
    assert "logits (pre-cap)" in capped.html()
    assert np.abs(capped.run.logits).max() < 3


# ---------------------------------------------------------------------------------------------- the choices
@pytest.fixture(scope="module")
def model() -> Any:
    return sc.random_model(sc.attention_only((3, 3), "standard", biases=True), seed=5)


TOKENS = [[1, 2, 3, 4, 5], [10, 0, 3, 3, 7]]


def asked(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice with what chooses the logit as one measure."""
    of_logit = {name: choice[name] for name in ("token", "against", "position", "row") if name in choice}
    return {k: v for k, v in choice.items() if k not in of_logit} | ({"by": sc.logit(**of_logit)} if of_logit else {})


def test_position_token_and_row_choose_the_logit(model: Any) -> None:
    run = model.run(TOKENS)
    for row, position, token in ((0, 0, 0), (1, 2, 10), (-1, -5, 4), (0, 4, 7)):
        found = explain(model, TOKENS, by=sc.logit(token, position=position, row=row), top=ALL_TERMS)
        t = found.measure
        assert (t.row, t.position, t.token) == (row % 2, position % 5, token)
        assert found.value == run.logits[row, position, token]
        total = sum(s.contribution or 0 for s in found.terms)
        assert total == pytest.approx(found.value, abs=1e-12)
    first = explain(model, TOKENS, by=sc.logit(position=1, row=1))
    assert first.measure.token == int(run.logits[1, 1].argmax())


def test_numpy_integers_are_whole_numbers(model: Any) -> None:
    i = np.int64(1)
    found = explain(model, np.array(TOKENS), by=sc.logit(i, position=i, row=i), top=i, queries=np.array([1]))
    assert (found.measure.row, found.measure.position, found.measure.token, len(found.rows)) == (1, 1, 1, 1)
    json.dumps(found.json(), allow_nan=False)


def test_sort_by_contribution(model: Any) -> None:
    everything = explain(model, TOKENS, top=ALL_TERMS)
    found = explain(model, TOKENS, top=6, sort="contribution")
    sizes = sorted((abs(s.contribution or 0) for s in everything.terms), reverse=True)
    assert [abs(s.contribution or 0) for s in found.terms] == sizes[:6]
    assert found.sort == "contribution"
    assert "by contribution" in found.text()
    rest = everything.value - sum(s.contribution for s in found.terms)  # type: ignore[operator,misc]
    assert found.remainder["contribution"] == pytest.approx(rest, abs=1e-12)


def test_terms_of_the_same_size_keep_the_order_of_the_expansion() -> None:
    """All values are zero but those of the direct path."""
    arch = sc.attention_only((2, 2))
    weights = {k: np.zeros_like(v) if "W_O_" in k else v for k, v in sc.random_model(arch, seed=1).weights.items()}
    model = sc.Model(arch, weights, {str(h): 1.0 for h in arch.all_heads})
    found = explain(model, [1, 2], top=5)
    assert [s.term for s in found.terms] == list(found.expansion)[:5]


@pytest.mark.parametrize(("max_terms", "looked_at"), [(0, 0), (1, 0), (4, 0), (5, 5), (25, 5), (26, 26), (53, 53)])
def test_above_max_terms_the_higher_orders_are_in_the_remainder(model: Any, max_terms: int, looked_at: int) -> None:
    """There are 5 terms of order 0, 21 of order 1 and 27 of order 2."""
    found = explain(model, TOKENS, top=ALL_TERMS, max_terms=max_terms)
    assert found.totals["order"].keys() == {0, 1, 2}
    assert [v["count"] for v in found.totals["order"].values()] == [5, 21, 27]
    assert (found.looked_at, len(found.terms)) == (looked_at, looked_at)
    everything = {s.term.label: s for s in explain(model, TOKENS, top=ALL_TERMS).terms}
    for s in found.terms:
        whole = everything[s.term.label]
        assert (s.norm, s.contribution) == (pytest.approx(whole.norm), pytest.approx(whole.contribution))
    values = dict(zip((t.label for t in found.expansion), sc.evaluate(found.expansion, found.run), strict=True))
    rest = sum(v for label, v in values.items() if label not in {s.term.label for s in found.terms})
    assert found.remainder["count"] == 53 - looked_at
    assert found.remainder["norm"] == pytest.approx(float(np.linalg.norm(rest)), rel=1e-12)
    assert ("of the lowest orders" in " ".join(found.text().split())) == (looked_at < 53)
    assert found.ok


def test_only_the_largest_are_kept_of_many() -> None:
    deep = sc.random_model(sc.attention_only((12, 12, 12)), seed=2)
    everything = explain(deep, [1, 2, 3, 4], top=ALL_TERMS, max_terms=2197)
    assert len(everything.terms) == 2197
    for sort in ("norm", "contribution"):
        found = explain(deep, [1, 2, 3, 4], top=2, sort=sort)
        sizes = [s.norm if sort == "norm" else abs(s.contribution or 0) for s in everything.terms]
        got = [s.norm if sort == "norm" else abs(s.contribution or 0) for s in found.terms]
        assert got == sorted(sizes, reverse=True)[:2]
    assert not found.closure.listed  # above 2,000 terms the walk's sums are added


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"position": 5}, "position 5 does not exist: there are 5, counted from 0"),
        ({"position": -6}, "position -6 does not exist"),
        ({"position": 1.0}, r"position must be a whole number, not 1\.0"),
        ({"position": True}, "position must be a whole number, not True"),
        ({"token": 11}, "token 11 does not exist: there are 11, counted from 0"),
        ({"token": -1}, "token -1 does not exist"),
        ({"token": "a"}, "token must be a whole number, not 'a'"),
        ({"row": 2}, "row 2 does not exist: there are 2"),
        ({"row": 1.0}, r"row must be a whole number, not 1\.0"),
        ({"queries": [5]}, "query 5 does not exist: there are 5"),
        ({"queries": [0.5]}, r"query must be a whole number, not 0\.5"),
        ({"top": -1}, "top must be a whole number, 0 or more, not -1"),
        ({"top": 1.5}, r"top must be a whole number, 0 or more, not 1\.5"),
        ({"top": True}, "top must be a whole number, 0 or more, not True"),
        ({"max_terms": -1}, "max_terms must be a whole number, 0 or more, not -1"),
        ({"sort": "size"}, 'sort is "norm" or, for a model with logits, "contribution", not \'size\''),
    ],
)
def test_choices_that_do_not_exist(model: Any, choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain(model, TOKENS, **asked(choice))


@pytest.mark.parametrize(("choice", "message"), [({"token": 1}, "no unembedding"), ({"sort": "contribution"}, "sort")])
def test_choices_that_need_logits(choice: dict[str, Any], message: str) -> None:
    stream_only = sc.random_model(sc.attention_only((2,), unembed=False), seed=1)
    with pytest.raises(ValueError, match=message):
        explain(stream_only, [1, 2], **asked(choice))


@pytest.mark.parametrize("tokens", [[], [11], [-1], [1.5], [[1], [2, 3]], "12"])
def test_tokens_that_do_not_fit(model: Any, tokens: Any) -> None:
    with pytest.raises(ValueError, match="token"):
        explain(model, tokens)


def test_queries_choose_what_counts_in_the_margin(model: Any) -> None:
    run = model.run(TOKENS)
    for queries in ([4], [1, 3], [-1, 4, 4], [0]):
        found = explain(model, TOKENS, queries=queries)
        chosen = sorted({q % 5 for q in queries})
        for head in ("L0H1", "L1H2"):
            allowed = np.isfinite(run.scores[head])
            masked = np.where(allowed, run.scores[head], 0)
            total = plain_margin(masked, run.patterns[head], allowed, chosen)
            shares = found.scores[head].shares
            if chosen == [0]:  # a query that sees itself only has no margin
                assert set(shares.values()) == {None}
                continue
            expansion = sc.expand(model.architecture, f"scores:{head}")
            for c, value in sc.evaluate(expansion, run).by_composition().items():
                right = plain_margin(value, run.patterns[head], allowed, chosen) / total
                assert shares[c] == pytest.approx(right, rel=1e-9, abs=1e-9)


def test_a_batch_is_its_rows_added_up(model: Any) -> None:
    both, rows = explain(model, TOKENS, top=0), [explain(model, row, top=0) for row in TOKENS]
    for head in both.scores:
        for c in TYPES:
            norms = [r.scores[head].norms[c] for r in rows]
            assert both.scores[head].norms[c] == pytest.approx(math.hypot(*norms), rel=1e-12, abs=1e-12)
    for order, total in both.totals["order"].items():
        norms = [r.totals["order"][order]["norm"] for r in rows]
        assert total["norm"] == pytest.approx(math.hypot(*norms), rel=1e-12)
    assert both.value == pytest.approx(rows[0].value)
    said = f"norms and shares are over all {len(rows)} rows"
    assert said in both.assumptions
    assert not any(said[:15] in line for row in rows for line in row.assumptions)


# ---------------------------------------------------------------------------------------------- small and odd
def test_float32(model: Any) -> None:
    found, exact = explain(model.run(TOKENS, "float32")), explain(model, TOKENS)
    assert found.ok
    assert found.run.logits.dtype == np.float32
    assert "computed in float32; the weights are float64" in found.assumptions
    assert "computed in float64; the weights are float64" in exact.assumptions
    assert 1e-7 < found.closure.bound / exact.closure.bound * 1e-9 * 2 < 10  # u is 2**29 times as large
    for a, b in zip(found.terms, exact.terms, strict=True):
        assert a.norm == pytest.approx(b.norm, rel=1e-5)
    json.dumps(found.json(), allow_nan=False)


def test_norms_do_not_overflow_on_the_way() -> None:
    big = np.float32(1e15) * np.ones((2, 2), np.float32)
    model = sc.Model(sc.attention_only(()), {"W_E": big, "W_U": np.eye(2, dtype=np.float32) * np.float32(1e15)})
    found = explain(model.run([0, 1], "float32"), by=sc.logit(0))
    assert found.terms[0].norm == pytest.approx(2e30, rel=1e-6)
    assert found.terms[0].contribution == pytest.approx(1e30, rel=1e-6)


def test_one_token_has_no_margin(model: Any) -> None:
    found = explain(model, [3])
    assert found.ok
    for scores in found.scores.values():
        assert set(scores.shares.values()) == {None}
        assert all(math.isfinite(n) for n in scores.norms.values())
    assert found.json()["by_composition"]["L1H0"]["K"]["share"] is None


def test_a_margin_that_is_rounding_only_has_no_shares() -> None:
    """All keys are alike: the scores of a query are one number, up to rounding."""
    arch = sc.attention_only((1, 1), biases=["b_Q", "b_K"])
    weights = {k: np.zeros_like(v) if "W_K" in k else v for k, v in sc.random_model(arch, seed=3).weights.items()}
    found = explain(sc.Model(arch, weights, {"L0H0": 0.1, "L1H0": 0.7}), [1, 2, 3, 4, 5, 6, 7])
    assert found.ok
    for scores in found.scores.values():
        assert set(scores.shares.values()) == {None}
        assert scores.norms["none"] > 0.1
    line = next(line for line in found.text().splitlines() if line.startswith("L1H0"))
    assert line.split() == ["L1H0", "-", "-", "-", "-"]


def test_a_model_without_layers_and_with_one_token_in_its_vocabulary() -> None:
    found = explain(sc.random_model(sc.attention_only(()), d_vocab=1, seed=1), [0, 0])
    assert (found.ok, found.scores, found.expansion.count, found.measure.token) == (True, {}, 1, 0)
    assert found.json()["by_composition"] == {}


def test_a_model_without_unembedding_is_taken_apart_in_the_stream() -> None:
    found = explain(sc.random_model(sc.attention_only((2, 1), unembed=False), seed=1), [1, 2, 3])
    data = found.json()
    assert data["closure"]["logits"] is None
    assert data["closure"]["stream"]["error"] <= data["closure"]["stream"]["bound"]
    assert data["target"]["token"] is None
    assert data["of"] == "stream"
    assert "contribution" not in found.text()


def test_progress_is_told_in_steps(model: Any) -> None:
    said: list[tuple[str, int, int]] = []
    explain(model, [1, 2], progress=lambda what, done, total: said.append((what, done, total)))
    assert ("terms", 53, 53) in said
    assert [s for s in said if s[0] == "scores"] == [("scores", i, 6) for i in range(1, 7)]


# ------------------------------------------------------------------------------------------------- the margin
def test_ties_go_to_the_lowest_key_and_lone_keys_are_skipped() -> None:
    scores = np.array([[5.0, 9.0, 9.0], [1.0, 4.0, 9.0], [7.0, 1.0, 2.0]])
    pattern = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4]])
    allowed = np.tril(np.ones((3, 3), bool))
    assert margin(scores, pattern, allowed, [0]) == 0
    assert margin(scores, pattern, allowed, [1]) == 1 - 4
    assert margin(scores, pattern, allowed, [2]) == 1 - (7 + 2) / 2
    assert margin(scores, pattern, allowed) == -3 - 3.5


small = st.floats(-8, 8).map(lambda x: round(x, 3))


@given(st.lists(small, min_size=32, max_size=32), st.booleans(), st.floats(-3, 3))
def test_the_margin_is_linear_and_the_plain_one(numbers: list[float], causal: bool, factor: float) -> None:
    a, b = np.array(numbers).reshape(2, 4, 4)
    allowed = np.tril(np.ones((4, 4), bool)) if causal else np.ones((4, 4), bool)
    pattern = np.where(allowed, np.exp(a), 0)
    whole = margin(a + factor * b, pattern, allowed)
    assert whole == pytest.approx(margin(a, pattern, allowed) + factor * margin(b, pattern, allowed), abs=1e-9)
    assert whole == pytest.approx(plain_margin((a + factor * b)[None], pattern[None], allowed[None]), abs=1e-9)


# ------------------------------------------------------------------------------------------- what is printed
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_text_fits_its_width(name: str, width: int) -> None:
    lines = explained(name).text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", ALL)
def test_the_text_says_what_was_held_fixed_and_all_numbers(name: str) -> None:
    found = explained(name)
    text = found.text(1000)
    assert f"explain {name}" in text
    for line in found.assumptions:
        assert f"- {line}" in text
    assert "held fixed: the attention pattern of every head" in text
    assert all(note in text for note in found.model.notes)
    for row in found.rows:
        assert f"{row.term.composition:<11}  {row.label}" in text
        assert text.count(f"  {row.text}\n") >= 1
    assert "nothing: every term is shown" in text
    assert "FAIL" not in text
    for head in found.scores:
        assert f"scores {head} " in text


def test_a_failing_closure_is_shown_and_not_ok(model: Any) -> None:
    found = explain(model, [1, 2])
    failed = dataclasses.replace(found.closure, passed=False)
    broken = dataclasses.replace(found, closure=failed)
    assert not broken.ok
    assert broken.json()["ok"] is False
    assert "FAIL" in broken.text()
    head = dataclasses.replace(found.scores["L0H0"], closure=failed)
    assert not dataclasses.replace(found, scores={**found.scores, "L0H0": head}).ok


def test_many_heads_are_shown_by_the_worst() -> None:
    found = explain(sc.random_model(sc.attention_only((7, 7)), seed=1), [1, 2, 3])
    text = " ".join(found.text(80).split())
    assert "(the 5 worst of 14 heads; 0 fail)" in text
    worst = max(found.scores, key=lambda h: found.scores[h].closure.error / found.scores[h].closure.bound)
    assert f"scores {worst} " in text
    assert len(found.json()["closure"]["scores"]) == 14


@pytest.mark.parametrize("name", ALL)
def test_the_json_holds_what_was_found(name: str) -> None:
    found = explained(name)
    data = json.loads(json.dumps(found.json(), allow_nan=False))
    kind = found.expansion.target
    assert data["schema"] == "symcircuits.explain/1"
    assert data["ok"] is True
    assert data["tokens"] == reference(name)["tokens"].tolist()
    assert data["closure"][kind]["error"] == found.closure.error
    assert data["closure"][kind]["bound"] == found.closure.bound
    assert data["closure"]["logits" if kind == "stream" else "stream"] is None
    assert data["assumptions"] == list(found.assumptions)
    assert data["by_order"] == {str(k): v for k, v in found.totals["order"].items()}
    for head, scores in found.scores.items():
        assert data["closure"]["scores"][head]["bound"] == scores.closure.bound
        assert {c: v["share"] for c, v in data["by_composition"][head].items()} == scores.shares
        assert {c: v["norm"] for c, v in data["by_composition"][head].items()} == scores.norms
        assert data["softmax_invisible"][head] == scores.softmax_invisible
    assert [t["label"] for t in data["terms"]] == [s.term.label for s in found.terms]
    assert [t["norm"] for t in data["terms"]] == [s.norm for s in found.terms]
    assert {t["composition"] for t in data["terms"]} <= {"none", "V"}
    assert data["remainder"] == found.remainder
    chosen = dataclasses.asdict(found.measure)
    assert (chosen.pop("against"), found.difference, chosen.pop("key"), found.readout) == (None, None, None, "")
    assert chosen.pop("kind") == "logit"
    assert data["target"] == chosen | {"value": found.value}


# ------------------------------------------------------------------------------------------ a logit difference
@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith("tracr")])
def test_contributions_to_a_difference_of_logits(name: str) -> None:
    mine = plain(name)
    found = explain(sc.load(DATA / name), reference(name)["tokens"], by=sc.logit(4, against=1, position=2), top=5)
    size, at = np.abs(mine.values).sum(), (slice(None), 0, 2)
    parts = mine.values[at][:, 4] - mine.values[at][:, 1]
    by_label = {r.label: v for r, v in zip(mine.rows, parts, strict=True)}
    assert (found.measure.token, found.measure.against) == (4, 1)
    assert close(found.difference, parts.sum(), size)
    for sized in found.terms:
        assert close(sized.difference, by_label.pop(sized.term.label), size)
    assert close(found.remainder["difference"], sum(by_label.values()), size)
    for kind, keys in (
        ("order", [sum(r.orders) for r in mine.rows]),
        ("composition", [r.composition for r in mine.rows]),
    ):
        for key, total in found.totals[kind].items():
            assert close(total["difference"], parts[[k == key for k in keys]].sum(), size)


def test_a_difference_is_shown_where_it_was_chosen(model: Any) -> None:
    found = explain(model, [1, 2, 3], by=sc.logit(5, against=7), sort="difference", top=4)
    sizes = [abs(s.difference or 0.0) for s in found.terms]
    assert sizes == sorted(sizes, reverse=True)
    data = json.loads(json.dumps(found.json()))
    assert data["target"]["against"] == 7
    assert data["target"]["difference"] == found.difference
    assert [t["difference"] for t in data["terms"]] == [s.difference for s in found.terms]
    text = found.text(200)
    assert "difference to the logit of token 7 (" in " ".join(text.split())
    assert "norm  contribution  difference  composition" in text
    assert found.columns()["difference"] == [s.difference for s in found.terms]
    without = explain(model, [1, 2, 3])
    assert "difference" not in without.text() + json.dumps(without.json()) + str(without.columns().keys())


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"token": 3, "against": 3}, "the difference of the logit of token 3 with itself is 0"),
        ({"against": 11}, "the token against 11 does not exist: there are 11"),
        ({"against": -1}, "the token against -1 does not exist"),
        ({"against": 1.5}, "against must be a whole number, not 1.5"),
        ({"sort": "difference"}, "'difference'; a difference is of two tokens, by=sc.logit"),
        ({"sort": "size", "against": 1}, 'or, as two tokens are given, "difference", not'),
    ],
)
def test_differences_that_do_not_exist(model: Any, choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        explain(model, [1, 2, 3], **asked(choice))


def test_a_difference_needs_logits() -> None:
    with pytest.raises(ValueError, match="no unembedding"):
        explain(sc.load(DATA / "tracr_prev_1L"), [1, 2], by=sc.logit(against=1))


def test_terms_as_columns(model: Any) -> None:
    found = explain(model, [1, 2, 3], top=9)
    table = found.columns()
    names = ["label", "order", "composition", "source", "heads", "norm", "contribution", "text", "centred"]
    assert list(table) == names
    assert {len(column) for column in table.values()} == {len(found.terms)}
    for i, s in enumerate(found.terms):
        path = s.term.paths[0]
        assert (table["source"][i], table["heads"][i]) == (path.source.name, " ".join(map(str, path.heads)))
        assert (table["norm"][i], table["text"][i]) == (s.norm, s.term.text)
    assert {len(column) for column in explain(model, [1], top=0).columns().values()} == {0}
