"""What heads look at: heads made by hand that do one thing, and trained models; and why they do."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_cli import DATA

import symcircuits as sc
from symcircuits.circuits.attended import effect_on_attended
from symcircuits.circuits.causes import find_causes
from symcircuits.circuits.heads import PAIRS, find_heads, weight_on
from symcircuits.circuits.prompts import draw_prompts
from symcircuits.circuits.report import find_circuits
from symcircuits.zoo import path

SHIPPED = sc.load(path("induction"))


# ------------------------------------------------------------------------------------ heads that do one thing
def looks(tokens: list[int], i: int, what: str) -> list[int]:
    """The keys that a head made by hand looks at from query i, in equal parts; the first token where there is none."""
    if what == "all":
        return list(range(i + 1))
    if what.startswith("back"):
        found = [i - int(what[4:])]
    elif what == "induction":
        found = [j for j in range(2, i + 1) if tokens[j - 1] == tokens[i] and j - 1 < i]
    elif what == "nearest":
        found = [j for j in range(2, i + 1) if tokens[j - 1] == tokens[i] and j - 1 < i][-1:]
    elif what == "same":
        found = [j for j in range(1, i) if tokens[j] == tokens[i]]
    elif what == "after the same token":
        found = [j for j in range(2, i) if tokens[j - 1] == tokens[i - 1]]
    elif what == "two after a copy of the token before":
        found = [j for j in range(3, i + 1) if tokens[j - 2] == tokens[i - 1] and j - 2 < i - 1]
    elif what == "after a copy 10 back":
        found = [i - 9] if i > 10 and tokens[i - 10] == tokens[i] else []
    elif what.startswith("other"):  # of two keys of one token the later one, as heads do that forget slowly
        others = {tokens[j]: j for j in range(i + 1) if tokens[j] != tokens[i] and (j or what == "other or first")}
        found = [*others.values()]
    else:
        found = [0]
    return [j for j in found if j >= 0] or [0]


def made(*whats: str, n_context: int = 31) -> Any:
    """A model whose heads are these; it has patterns and nothing else."""

    def run(tokens: Any) -> Any:
        n = tokens.shape[-1]
        patterns = {f"L0H{k}": np.zeros((len(tokens), n, n)) for k in range(len(whats))}
        for k, what in enumerate(whats):
            for row, prompt in enumerate(tokens.tolist()):
                for i in range(n):
                    keys = looks(prompt, i, what)
                    patterns[f"L0H{k}"][row, i, keys] = 1 / len(keys)
        return SimpleNamespace(patterns=patterns, masks={"L0": np.tri(n, dtype=bool)})

    return SimpleNamespace(architecture=sc.attention_only((len(whats),)), run=run, d_vocab=40, n_context=n_context)


@pytest.mark.parametrize(
    ("what", "kinds", "offset"),
    [
        ("all", (), None),
        ("back1", ("previous-token",), None),
        ("back0", ("fixed-offset",), 0),
        ("back4", ("fixed-offset",), -4),
        ("back6", ("fixed-offset",), -6),
        ("back9", ("fixed-offset",), -9),  # where the token after the copy stands on repeats of ten
        ("back10", ("fixed-offset",), -10),  # and the copy
        ("induction", ("induction",), None),
        ("nearest", ("induction",), None),
        ("same", ("duplicate-token",), None),
        ("after the same token", (), None),  # on repeats that is the copy itself, in another order it is not
        ("first", ("first-token",), None),
    ],
)
def test_a_head_that_does_one_thing_is_of_that_kind(what: str, kinds: tuple[str, ...], offset: int | None) -> None:
    model = made(what)
    found = find_heads(model, draw_prompts(model, count=3))["L0H0"]
    assert found.kinds == kinds or (what in ("same", "induction", "nearest") and found.kinds == (*kinds, "first-token"))
    assert offset is None or found.offset == offset
    equal = find_heads(made("all"), draw_prompts(model, count=3))["L0H0"]
    for kind, score in found.scores.items():
        even = equal.scores[kind]
        assert score is not None
        assert even is not None
        assert 0 <= score.mean <= 1
        assert score.spread >= 0
        if kind != "fixed-offset" or found.offset == equal.offset:
            assert score.equal == pytest.approx(even.mean)


@pytest.mark.parametrize("n_context", [7, 8, 10, 12, 14])
def test_a_head_that_looks_at_all_tokens_but_its_own_is_no_induction_head(n_context: int) -> None:
    """With two tokens a period, "after the earlier copy" would be "not the same token"."""
    model = made("other", "other or first", "induction", n_context=n_context)
    found = find_heads(model, draw_prompts(model))
    assert found.of_kind("induction") == ["L0H2"]


def test_what_looks_after_copies_at_one_distance_alone_is_no_induction_head() -> None:
    """As heads do that were trained on periods of one length, where it is after a copy and nowhere else."""
    model = made("after a copy 10 back", "induction")
    found = find_heads(model, draw_prompts(model, count=3), threshold=0.2)
    assert "induction" not in found["L0H0"].kinds
    assert "induction" in found["L0H1"].kinds
    score = found["L0H0"].scores["induction"]
    assert score is not None
    assert score.mean >= 0.2 >= 2 * score.equal
    assert score.by_period[7] == score.least == 0
    assert score.by_period[10] > 0.5
    assert score.json()["by_period"].keys() == {"10", "7", "5"}


def test_a_head_that_matches_the_token_before_shows_less_in_shuffled_order() -> None:
    model = made("two after a copy of the token before", "induction")
    found = find_heads(model, draw_prompts(model, count=3))
    assert found.of_kind("induction") == ["L0H0", "L0H1"]
    assert found["L0H1"].shuffled == 1
    assert found["L0H0"].shuffled is not None
    assert found["L0H0"].shuffled < 0.3
    assert found["L0H0"].json()["shuffled"] == found["L0H0"].shuffled


def test_lengths_that_a_window_hides_do_not_count() -> None:
    """An induction head that sees 8 keys shows with periods of 7 and less."""

    def run(tokens: Any) -> Any:
        found = made("induction").run(tokens)
        n = tokens.shape[-1]
        mask = np.tri(n, dtype=bool) & ~np.tri(n, k=-8, dtype=bool)
        pattern = found.patterns["L0H0"] * mask
        pattern[..., range(n), range(n)] += 1 - pattern.sum(-1)
        return SimpleNamespace(patterns={"L0H0": pattern}, masks={"L0": mask})

    model: Any = SimpleNamespace(architecture=sc.attention_only((1,)), run=run, d_vocab=40, n_context=31)
    score = find_heads(model, draw_prompts(model, count=2), threshold=0.3)["L0H0"].scores["induction"]
    assert score is not None
    assert list(score.by_period) == [7, 5]
    assert score.least > 0.3


def test_no_head_of_one_layer_is_an_induction_head() -> None:
    """In a small vocabulary a head that only prefers some tokens to others often looks at the one after a copy."""
    for d_vocab in (4, 5):
        for n_context in (7, 13):
            for seed in range(3):
                model = sc.random_model(
                    sc.attention_only((12,), positions="standard" if seed % 2 else None), d_vocab=d_vocab,
                    n_context=n_context, score_scale=3.0, seed=seed,
                )  # fmt: skip
                assert not find_heads(model, draw_prompts(model, length=n_context)).of_kind("induction")


def test_a_preference_that_favours_induction_by_its_prompts_shows_on_the_opposite_side() -> None:
    found = find_heads(made("induction"), draw_prompts(made("induction"), count=3))["L0H0"].scores["induction"]
    assert found is not None
    assert found.opposite == 0
    assert found.shows(0.4)
    assert replace(found, opposite=0.9).shows(0.4)
    assert replace(found, others=0.9).shows(0.4)
    assert not replace(found, opposite=0.9, others=0.9).shows(0.4)
    assert found.others == pytest.approx((1 / 9 + 1 / 6 + 1 / 4) / 3)
    assert found.json()["opposite"] == 0


def test_a_head_that_looks_at_the_token_before_too_is_an_induction_head() -> None:
    """Half of the weight is more than equal weights on the other tokens would have, but for periods of three."""
    both = made("back1", "induction")

    def run(tokens: Any) -> Any:
        found = both.run(tokens)
        half = (found.patterns["L0H0"] + found.patterns["L0H1"]) / 2
        return SimpleNamespace(patterns={"L0H0": half}, masks=found.masks)

    model: Any = SimpleNamespace(architecture=sc.attention_only((1,)), run=run, d_vocab=40, n_context=31)
    assert find_heads(model, draw_prompts(model, count=4))["L0H0"].kinds == ("previous-token", "induction")


def test_without_softmax_weights_are_shares_of_their_row() -> None:
    model = sc.random_model(sc.attention_only((3,), positions="standard", softmax=False), score_scale=9.0)
    prompts = draw_prompts(model, count=3)
    found = find_heads(model, prompts)
    control = np.abs(model.run(prompts.control).patterns["L0H1"])
    own = np.mean([(a / a.sum(-1, keepdims=True)).diagonal(-1)[1:].mean() for a in control])
    assert min(own, 1.0) < 1
    for head in found.heads.values():
        for score in head.scores.values():
            assert score is not None
            assert 0 <= score.mean <= 1
    before = found["L0H1"].scores["previous-token"]
    assert before is not None
    assert before.mean <= own + 1e-12
    causes = find_causes(model, "L0H1", prompts, "duplicate-token")
    assert all(0 <= x <= 1 for x in (causes.score, *(p.without for p in causes.parts)))


def test_a_head_that_looks_at_the_next_token_has_a_fixed_offset() -> None:
    """Queries of a model that is not causal see later keys."""

    def run(tokens: Any) -> Any:
        n = tokens.shape[-1]
        pattern = np.broadcast_to(np.eye(n, k=1) + np.eye(n) * (np.arange(n) == n - 1), (len(tokens), n, n))
        return SimpleNamespace(patterns={"L0H0": pattern}, masks={"L0": np.ones((n, n), bool)})

    arch = sc.attention_only((1,), causal=False)
    model: Any = SimpleNamespace(architecture=arch, run=run, d_vocab=40, n_context=31)
    found = find_heads(model, draw_prompts(model, count=2))["L0H0"]
    assert (found.kinds, found.offset) == (("fixed-offset",), 1)


def test_layers_without_heads_are_looked_at_too() -> None:
    model = sc.random_model(sc.attention_only((0, 0), positions="standard"))
    found = find_circuits(model, count=2)
    assert not found.heads.heads
    assert found.findings[0] == "No head is an induction head."
    assert found.text(40)


def test_scores_are_means_of_weights_by_their_definition() -> None:
    prompts, run = draw_prompts(SHIPPED, count=2), SHIPPED.run
    found = find_heads(SHIPPED, prompts)["L1H1"]
    for kind, family in (("induction", prompts.repeated), ("duplicate-token", prompts.shuffled)):
        each = []
        for tokens in family.values():
            for prompt, pattern in zip(tokens.tolist(), run(tokens).patterns["L1H1"], strict=True):
                weights = []
                for i in range(len(prompt)):
                    shift = 1 if kind == "induction" else 0
                    keys = [j + shift for j in range(1, i) if prompt[j] == prompt[i]]
                    weights += [sum(pattern[i, j] for j in keys)] if keys else []
                each.append(np.mean(weights))
        score = found.scores[kind]
        assert score is not None
        assert (score.mean, score.spread) == pytest.approx((np.mean(each), np.std(each)))


def test_trained_models() -> None:
    heads = find_heads(SHIPPED, draw_prompts(SHIPPED))
    assert heads.of_kind("induction") == ["L1H0", "L1H1", "L1H2"]
    assert heads.of_kind("previous-token") == ["L0H2"]
    assert heads["L1H0"].kinds == ("induction",)
    assert heads["L1H0"].json()["scores"]["induction"]["mean"] > 0.95
    random = sc.load(DATA / "tl_plain_s0")
    assert not any(head.kinds for head in find_heads(random, draw_prompts(random)).heads.values())


# ------------------------------------------------------------------------------------------------- prompts
def test_prompts_are_what_they_say() -> None:
    prompts = draw_prompts(SHIPPED, count=6, first=3, seed=1)
    assert list(prompts.repeated) == [10, 7, 5]
    for period, tokens in prompts.repeated.items():
        assert tokens.shape == (6, 1 + 3 * period)
        assert (tokens[:, 0] == 3).all()
        assert (tokens[:, 1 : 1 + period] == tokens[:, 1 + period : 1 + 2 * period]).all()
        assert all(len(set(row)) == period + 1 for row in tokens.tolist())
        assert (tokens[1::2, 1:] == tokens[::2, :0:-1]).all()  # so that "the one after" and "the one before" are even
        other = prompts.shuffled[period]
        assert (np.sort(other[:, 1 : 1 + period]) == np.sort(other[:, 1 + 2 * period :])).all()
        assert (other[:, 1 : 1 + period] != other[:, 1 + period : 1 + 2 * period]).any()
    assert all(len(set(row)) == 32 for row in prompts.control.tolist())
    assert prompts.half == 12
    assert (prompts.twice[:, 1:13] == prompts.twice[:, 13:]).all()
    assert (prompts.twice[:, [q + 1 for q in prompts.known]] == prompts.twice[:, 2:13]).all()
    again = draw_prompts(SHIPPED, count=6, first=3, seed=1)
    assert (again.control == prompts.control).all()
    assert "6 random prompts each of 3 periods of 10, 7, 5 distinct tokens" in prompts.said


@pytest.mark.parametrize(("n_context", "d_vocab"), [(6, 40), (2, 40), (20, 2), (20, 1), (7, 3), (40, 5)])
def test_small_models_have_what_scores_their_prompts_allow(n_context: int, d_vocab: int) -> None:
    model = sc.random_model(sc.attention_only((2, 1), positions="standard"), n_context=n_context, d_vocab=d_vocab)
    prompts = draw_prompts(model, count=2)
    found = find_heads(model, prompts)["L1H0"]
    short = n_context < 7 or d_vocab < 5
    assert bool(prompts.missing) == short == (found.scores["induction"] is None)
    assert (found.scores["first-token"] is None) == (n_context < 3)
    for score in found.scores.values():
        assert score is None or np.isfinite([score.mean, score.spread, score.equal]).all()
    if short:
        assert "2 periods of 3 tokens or more need 7 positions and 5 tokens" in prompts.missing
        with pytest.raises(ValueError, match="there are no repeats to look at: 2 periods"):
            find_causes(model, "L1H0", prompts)


def test_what_cannot_be_drawn_is_refused() -> None:
    for given, says in (
        ({"first": 32}, "the first token 32 does not exist"),
        ({"count": 0}, "count must be a number of prompts, 1 or more, not 0"),
        ({"length": 33}, "length must be 2 to 32 tokens, not 33"),
        ({"length": 1}, "length must be 2 to 32 tokens, not 1"),
        ({"seed": -1}, "seed must be a whole number, 0 or more, not -1"),
        ({"seed": "x"}, "seed must be a whole number, 0 or more, not 'x'"),
    ):
        with pytest.raises(ValueError, match=says):
            draw_prompts(SHIPPED, **given)
    with pytest.raises(ValueError, match="threshold must be a weight, above 0 and up to 1, not 0"):
        find_heads(SHIPPED, draw_prompts(SHIPPED, count=1), 0)
    with pytest.raises(ValueError, match="threshold must be a finite number, not 'x'"):
        find_heads(SHIPPED, draw_prompts(SHIPPED, count=1), "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the model has one position"):
        draw_prompts(sc.random_model(sc.attention_only((1,), positions="standard"), n_context=1))


# -------------------------------------------------------------------------------------------------- causes
def test_the_pattern_of_an_induction_head_is_made_by_the_head_of_the_token_before() -> None:
    prompts = draw_prompts(SHIPPED, count=4)
    found = find_causes(SHIPPED, "L1H0", prompts)
    composition, head = found.largest("composition"), found.largest("head")
    assert composition is not None
    assert head is not None
    assert (composition.name, head.name, head.side) == ("K", "L0H2", "key")
    assert found.score > 0.9 > 0.1 > head.without
    assert all(p.without > 0.8 for p in found.parts if p.name in ("none", "Q", "QK", "L0H0", "L0H1", "pos"))
    assert find_causes(SHIPPED, "L0H0", prompts, "duplicate-token").largest("head") is None


def test_causes_are_what_remove_scores_does() -> None:
    prompts = draw_prompts(SHIPPED, count=3)
    tokens = prompts.repeated[10]
    run, wanted = SHIPPED.run(tokens), PAIRS["induction"](tokens)
    scores = sc.scores(SHIPPED, "L1H2")
    parts = {"composition K": scores.where("K"), "terms through L0H1 on the key side": scores.through("L0H1", "key"),
             "terms from pos on the query side": scores.from_source("pos", "query")}  # fmt: skip
    found = {p.text: p for p in find_causes(SHIPPED, "L1H2", prompts).parts}
    for name, part in parts.items():
        removed = sc.remove_scores(run, "L1H2", part)
        assert found[name].terms == part.count
        assert found[name].without == pytest.approx(weight_on(removed.pattern, wanted).mean(), abs=1e-12)


def test_models_compiled_from_programs() -> None:
    """Heads of models whose programs are known: what looks after copies, and what looks where the token before is."""
    for name, head, kinds, composition in (
        ("tracr_induction_K_2L_causal", "L1H0", ("induction", "first-token"), "K"),  # where there is no copy it rests
        ("tracr_induction_K_2L", "L1H0", ("induction", "fixed-offset"), "K"),  # not causal: after its own token too
        ("tracr_sameprev_QK_2L", "L1H0", ("fixed-offset",), None),  # its own token is one of those
        ("tracr_prevprev_V_2L", "L1H0", ("previous-token",), None),
    ):
        model = sc.load(DATA / name)
        prompts = draw_prompts(model)
        found = find_heads(model, prompts)
        assert found["L0H0"].kinds == ("previous-token",)
        assert found[head].kinds == kinds
        if "induction" in kinds:
            cause = find_causes(model, head, prompts).largest("composition")
            assert cause is not None
            assert cause.name == composition


def test_heads_are_shown() -> None:
    found = find_heads(SHIPPED, draw_prompts(SHIPPED, count=3))
    for width in (40, 100):
        text = found.text(width)
        assert max(map(len, text.splitlines())) <= width
        said = " ".join(text.split())
        assert "5 heads" in said
        assert "2 heads of no kind" in said or "1 head of no kind" in said
        assert "prefix matching" in said


# ----------------------------------------------------------------------------------- copying and suppressing
def negated(head: str) -> sc.Model:
    """The shipped model with what a head writes turned round."""
    weights = {name: -w if name == f"W_O_{head}" else w for name, w in SHIPPED.weights.items()}
    return sc.Model(SHIPPED.architecture, weights, SHIPPED.score_scale)


def test_a_head_that_lowers_what_it_attends_to_suppresses_copies() -> None:
    found = find_circuits(negated("L1H0"), count=4)
    assert found.heads["L1H0"].kinds == ("induction", "copy-suppression")
    turned = find_circuits(negated("L0H1"), count=4)
    assert "copy-suppression" in find_circuits(SHIPPED, count=4).heads["L0H1"].kinds
    assert "copy-suppression" not in turned.heads["L0H1"].kinds
    score = turned.heads["L0H1"].scores["copy-suppression"]
    assert score is not None
    assert score.mean < -0.9


@pytest.mark.parametrize("features", [{}, {"norm": "LN", "biases": True}, {"positions": "standard", "scale": False}])
def test_effects_on_attended_tokens_entry_by_entry(features: dict[str, Any]) -> None:
    run = sc.random_model(sc.transformer((2, 2), **features), seed=4).run([[3, 1, 4, 1], [2, 0, 0, 5]])
    values = sc.evaluate(sc.logits(run.model), run)
    found = effect_on_attended(values, "L1H0")
    for row in range(2):
        above, below, sums = 0.0, 0.0, []
        for i in range(4):
            total = 0.0
            for j in range(1, i + 1):
                token = int(run.tokens[row, j])
                effect = values.weighted_pattern("L1H0", of=sc.logit(token, row=row))[row, i, j]
                above, below, total = above + effect, below + abs(effect), total + effect
            sums.append(total)
        assert found.signed[row] == pytest.approx(above / below)
        assert found.logits[row] == pytest.approx(np.mean(sums))


def test_copying_and_matching_are_those_of_the_full_circuits() -> None:
    found = find_circuits(SHIPPED, count=2)
    assert list(found.copying) == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    one = sc.circuit(SHIPPED, "OV", "L1H1").copying()
    assert found.copying["L1H1"].json() == {
        "eigenvalue_positivity": one.eigenvalue_positivity, "positive_diagonal": one.positive_diagonal,
        "top_of_diagonal": one.top_of_diagonal,
    }  # fmt: skip
    assert list(found.matching) == [("L1H0", "L0H2"), ("L1H1", "L0H2"), ("L1H2", "L0H2")]
    pair = sc.circuit(SHIPPED, "QK", "L1H0", key="L0H2").matching()
    assert found.matching["L1H0", "L0H2"].eigenvalue_positivity == pair.eigenvalue_positivity
    assert found.copying["L1H0"].eigenvalue_positivity == pytest.approx(1.0, abs=0.01)
    assert pair.eigenvalue_positivity == pytest.approx(0.99, abs=0.01)


# ------------------------------------------------------------------------------- few draws, and few tokens
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d_vocab", "n_context"), [(5, 7), (5, 10), (6, 10)])
@pytest.mark.sampled(1)
def test_random_heads_of_one_layer_are_no_induction_heads(causal: bool, d_vocab: int, n_context: int) -> None:
    """None of them can be: a key knows its own token alone. On few draws of few tokens some look as if they were."""
    high = 0
    for seed in range(60):
        model = sc.random_model(
            sc.attention_only((4,), "standard", causal=causal), d_vocab=d_vocab, d_model=6, d_head=6,
            n_context=n_context, seed=seed, weight_scale=1.5,
        )  # fmt: skip
        for count in (1, 2, 4):
            found = find_heads(model, draw_prompts(model, count=count, seed=seed))
            assert found.of_kind("induction") == []
            scores = [head.scores["induction"] for head in found.heads.values()]
            high += sum(one is not None and one.mean > 0.45 for one in scores)
    assert high > 5  # so that the threshold alone would have named some


@pytest.mark.parametrize("seeds", [range(4), range(12)], ids=["few", "many"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.sampled(1)
def test_heads_that_prefer_one_token_for_each_token_are_no_induction_heads(causal: bool, seeds: range) -> None:
    """All 81 ways to prefer another token of four; of some draws one of them is what follows in all periods."""
    ways = list(product(*([other for other in range(1, 5) if other != own] for own in range(1, 5))))

    def run(tokens: Any) -> Any:
        n, patterns = tokens.shape[-1], {}
        seen = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
        for k, way in enumerate(ways):
            liked = np.array([0, *way])[tokens][:, :, None] == tokens[:, None, :]
            weights = np.where(seen, np.where(liked, 1.0, 1e-9), 0)
            patterns[f"L0H{k}"] = weights / weights.sum(-1, keepdims=True)
        return SimpleNamespace(patterns=patterns, masks={"L0": seen})

    arch = sc.attention_only((len(ways),), causal=causal)
    model: Any = SimpleNamespace(architecture=arch, run=run, d_vocab=5, n_context=10)
    for seed in seeds:
        for count in (1, 2, 3, 20):
            assert find_heads(model, draw_prompts(model, count=count, seed=seed)).of_kind("induction") == []


def test_an_induction_head_shows_on_few_draws_of_few_tokens() -> None:
    model = made("induction", "nearest", n_context=10)
    model.d_vocab = 5
    assert find_heads(model, draw_prompts(model, count=3)).of_kind("induction") == ["L0H0", "L0H1"]
    one = find_heads(model, draw_prompts(model, count=1))
    assert one.of_kind("induction") == []  # three tokens in one order do not tell
    score = one["L0H0"].scores["induction"]
    assert score is not None
    assert (score.cases, score.mean > 0.9) == (3, True)
