"""The circuits of a model: what is found in trained models, as sentences, tables, data, and by the command."""

import json
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import TOKENS, Hand, by_hand
from test_cli import DATA, Cli, cli

import symcircuits as sc
from symcircuits.circuits.checkpoints import compared
from symcircuits.circuits.fewer_tokens import same_ov_spectrum
from symcircuits.circuits.report import PairEffect, find_circuits
from symcircuits.render import plot
from symcircuits.render.circuits_figures import composition_maps, effect_maps, pattern_maps, score_table, shown_run
from symcircuits.render.heads import causes_table
from symcircuits.zoo import path

__all__ = ["cli"]  # a fixture
SHIPPED = sc.load(path("induction"))
FOUND = find_circuits(SHIPPED, count=6)


def test_what_was_found_is_said_with_its_numbers() -> None:
    score, z = FOUND.composition["K"]["L1H0", "L0H2"], FOUND.composition["K"].z[3, 2]
    first = FOUND.findings[0]
    assert first.startswith("L1H0 is an induction head (0.9")
    assert f"by K-composition with L0H2 (score {score:.3f}, z {z:.1f}; 0.00 without those terms)" in first
    assert "L0H2 looks at the previous token, whatever it is" in " ".join(FOUND.findings)
    assert FOUND.losses is not None
    after = ", ".join(f"{x:.3f}" for x in FOUND.losses.after)
    assert any(f"the loss of a repeated half is {after} nats" in line for line in FOUND.findings)
    assert any("; those of order 1 lower it most (-" in line for line in FOUND.findings)


def test_why_a_head_attends_says_on_which_prompts() -> None:
    score = FOUND.causes["L1H0"].score
    assert f"Why L1H0: its induction score ({score:.2f} on the longest period) without a part" in FOUND.text()
    few = replace(FOUND.causes["L1H0"], parts=(replace(FOUND.causes["L1H0"].parts[0], without=score),))
    assert causes_table(few).notes == ["1 other part changes it by less than a tenth"]


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("tl_plain_s0", ["No head is an induction head."]),
        ("tl_mlp_gelu_ln_s18", ["No head is an induction head.", "none of them lowers it by 0.1"]),
        ("tracr_sameprev_QK_2L", ["No head is an induction head.", "No losses: the model has no unembedding."]),
        ("induction_shortformer_h2_s3", ["L1H1 is an induction head", "K-composition with L0H0", "4.1"]),
        ("real_gbmi_indhead_finetuned_model_0", ["L1H0 is an induction head", "K-composition with L0H0"]),
        ("hf_llama", ["No head is an induction head."]),
        ("hf_gpt2", ["No head is an induction head."]),
    ],
)
@pytest.mark.sampled(4)
def test_models_of_many_kinds(name: str, sentences: list[str]) -> None:
    found = find_circuits(sc.load(DATA / name), count=3)
    said = " ".join(found.findings)
    for sentence in sentences:
        assert sentence in said
    json.dumps(found.json(), allow_nan=False)
    for width in (40, 100):
        assert max(map(len, found.text(width).splitlines())) <= width


def why(arch: sc.Architecture, put: Any) -> str:
    """The sentence about the induction head of a model that is written by hand."""
    [line, *_] = find_circuits(by_hand(arch, put), count=3).findings
    return line


def test_causes_of_models_written_by_hand() -> None:
    one = sc.attention_only((1, 1), positions="standard")

    def plain(hand: Hand) -> None:
        hand.moves("L0H0", 1, read=0, write=1)
        hand.matches("L1H0", query=0, key=1)

    assert "by K-composition with L0H0 (score 0.289, z " in why(one, plain)

    def passed_on(hand: Hand) -> None:  # the head of the token before is read by another, which L2H0 reads
        hand.moves("L0H0", 1, read=0, write=1)
        hand.moves("L1H0", 0, read=1, write=3)
        hand.matches("L2H0", query=0, key=3)

    said = why(sc.attention_only((1, 1, 1), positions="standard"), passed_on)
    assert "by K-composition with L1H0 (score 0.289, z " in said
    assert "L0H0" not in said

    def both_sides(hand: Hand) -> None:
        hand.moves("L0H0", 1, read=0, write=1)
        hand.moves("L0H1", 0, read=0, write=3)
        hand.matches("L1H0", query=3, key=1)

    said = why(sc.attention_only((2, 1), positions="standard"), both_sides)
    assert "by QK-composition with L0H0 on the key side (score 0.289, z " in said
    assert "and L0H1 on the query side (score 0.289, z " in said

    def through_an_mlp(hand: Hand) -> None:
        hand.moves("L0H0", 1, read=0, write=1)
        hand.w["W_in_L0"][:, hand.place(1)] = np.eye(TOKENS)
        hand.w["W_out_L0"][hand.place(3)] = np.eye(TOKENS)
        hand.matches("L1H0", query=0, key=3)

    said = why(sc.transformer((1, 1), positions="standard", mlps=[0]), through_an_mlp)
    assert "by the tokens themselves" not in said
    assert "by terms without an earlier head (0." in said
    assert "from mlp[L0] on the key side (0." in said
    assert said.endswith("which may include outputs of earlier heads.")

    def by_the_token_before(hand: Hand) -> None:
        hand.moves("L0H0", 1, read=0, write=1)
        hand.moves("L0H1", 2, read=0, write=3)
        hand.matches("L1H0", query=1, key=3)

    shuffled = "in shuffled order, so more than the query's token has to match)"
    assert shuffled in why(sc.attention_only((2, 1), positions="standard"), by_the_token_before)
    assert shuffled not in why(one, plain)

    def held_back(hand: Hand) -> None:  # terms without a head are needed too: they undo what L0H1 brings
        both_sides(hand)
        hand.w["W_Q_L1H0"][:], hand.w["W_K_L1H0"][:] = 0, 0
        hand.matches("L1H0", query=0, key=1, strength=30)
        hand.w["W_K_L1H0"][:TOKENS, hand.place(3)] = 3 * np.eye(TOKENS)
        hand.w["W_K_L1H0"][:TOKENS, hand.place(0)] = -3 * np.eye(TOKENS)

    said = why(sc.attention_only((2, 1), positions="standard"), held_back)
    assert "by K-composition with L0H0" in said


def test_a_head_that_needs_no_single_one_says_so() -> None:
    def twice(hand: Hand) -> None:
        for head in ("L0H0", "L0H1"):
            hand.moves(head, 1, read=0, write=1)
        hand.matches("L1H0", query=0, key=1)

    said = why(sc.attention_only((2, 1), positions="standard"), twice)
    assert "by K-composition (0." in said
    assert "and no single head accounts for half of it (the largest is L0H0: 1.00 without it)" in said


def test_too_few_prompts_are_not_said_to_show_that_there_is_none(data: Path) -> None:
    model = sc.load(data / "real_gbmi_indhead_finetuned_model_0")
    one, many = (find_circuits(model, count) for count in (1, 20))
    assert one.heads.of_kind("induction") == []
    words = " ".join(one.findings)
    assert "It is unknown whether L1H0 looks at the tokens after earlier copies: it does on these prompts (0." in words
    assert "but with 3 tokens in their periods" in words
    assert "No head is an induction head." not in words
    assert "It is unknown" not in " ".join(many.findings)
    assert "L1H0 is an induction head" in many.findings[0]


def test_what_looks_after_copies_at_some_distances_is_said() -> None:
    head = FOUND.heads["L1H0"]
    score = replace(head.scores["induction"], by_period={10: 0.95, 7: 0.1})  # type: ignore[type-var]
    odd = replace(head, kinds=(), scores={**head.scores, "induction": score})
    found = replace(FOUND, heads=replace(FOUND.heads, heads={"L1H0": odd}), causes={})
    assert found.findings[:2] == (
        "No head is an induction head.",
        "L1H0 looks at the tokens after earlier copies at some distances and not at others (0.95 with periods of 10, "
        "0.10 with periods of 7): not induction.",
    )


def test_a_narrow_circuit_is_said_to_copy_beyond_chance_alone() -> None:
    """Of one eigenvalue positivity is 1 or -1, whatever the head does."""
    narrow = {head: replace(one, eigenvalues=one.eigenvalues[:1]) for head, one in FOUND.copying.items()}
    assert "its OV circuit copies" in FOUND.findings[0]
    assert "its OV circuit copies" not in replace(FOUND, copying=narrow).findings[0]


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        (sc.attention_only((1, 1), norm="LN"), "With patterns and norms held fixed"),
        (sc.transformer((1, 1), norm="RMS", mlps=True), "With patterns, norms and MLP outputs held fixed"),
        (sc.attention_only((1, 1), causal=False), "the model is not causal, so it sees the next token."),
        (
            sc.attention_only((1, 1), "shortformer", norm="RMS"),
            "K-composition has no scores: the gain of the norm L1 cannot",
        ),
        (sc.attention_only((1, 1), positions="rotary"), "these scores are for distance 0"),
    ],
)
def test_what_a_loss_and_a_score_leave_out_is_said(arch: sc.Architecture, says: str) -> None:
    found = find_circuits(sc.random_model(arch, d_model=32, seed=1), count=2, threshold=1)
    effects = tuple(PairEffect("K", pair, None) for pair in found.composition["K"].pairs())
    assert says in " ".join(replace(found, effects=effects).text(10_000).split())


def test_losses_of_any_size_are_short() -> None:
    model = sc.random_model(sc.attention_only((1,), positions="standard"))
    weights = {name: 1e20 * array if name == "W_U" else array for name, array in model.weights.items()}
    found = find_circuits(replace(model, weights=weights), count=2)
    [line] = [line for line in found.findings if "held fixed, the loss" in line]
    assert re.search(r"is \d\.\d+e\+\d\d, \d\.\d+e\+\d\d nats", line)
    assert re.search(r"\d\.\d+e\+\d\d", compared([("", found)]).text())


def test_a_share_of_k_is_not_negative() -> None:
    """Where the score is higher without K, nothing of it is due to K."""
    causes = {
        head: replace(one, parts=tuple(replace(p, without=1.0) if p.name == "K" else p for p in one.parts))
        for head, one in FOUND.causes.items()
    }
    [row] = compared([("", replace(FOUND, causes=causes))]).rows
    assert row.k_share == 0


def test_what_a_pair_is_worth_is_the_change_of_the_loss() -> None:
    """Against remove_scores, and for V against the sum of the paths through both heads."""
    prompts = FOUND.heads.prompts
    run, queries = SHIPPED.run(prompts.twice), prompts.known

    def loss(logits: Any) -> float:
        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        each = [-np.log(shares[r, q, prompts.twice[r, q + 1]]) for r in range(6) for q in queries]
        return float(np.mean(each))

    kinds = {"Q": "query", "K": "key"}
    assert {e.kind for e in FOUND.effects} == {"Q", "K", "V"}
    for effect in FOUND.effects:
        later, earlier = effect.pair.later, effect.pair.earlier
        if effect.kind == "V":
            e = sc.logits(SHIPPED).through(earlier).through(later)
            logits = run.logits - sum(sc.evaluate(e, run))
        else:
            part = sc.scores(SHIPPED, later).through(earlier, kinds[effect.kind])
            logits = run.logits + sc.remove_scores(run, later, part).recomputed
        assert effect.effect == pytest.approx(loss(logits) - loss(run.logits), abs=1e-9)
        assert abs(effect.pair.z or 0) >= 3


def test_models_that_are_too_small_say_what_cannot_be_said() -> None:
    for arch, sizes, says in (
        (
            sc.attention_only((1,), positions="standard"),
            {"n_context": 4},
            "It is unknown whether a head is an induction head: 2 periods",
        ),
        (sc.attention_only(()), {"d_vocab": 9}, "No head is an induction head."),
        (sc.attention_only((2,)), {"d_vocab": 1}, "It is unknown"),
        (
            sc.attention_only((1, 1)),
            {"d_vocab": 9, "d_vocab_out": 4},
            "No losses: 4 outputs are not the 9 input tokens.",
        ),
        (sc.attention_only((1, 1), positions="standard"), {"n_context": 2}, "No losses: two halves of 2 tokens"),
    ):
        found = find_circuits(sc.random_model(arch, **sizes), count=2)
        assert says in " ".join(found.findings)
        json.dumps(found.json(), allow_nan=False)
        assert found.text(60)


def test_the_command(cli: Cli) -> None:
    ran = cli("circuits", str(path("induction")), "--draws", "6", "--json")
    data = json.loads(ran.out)
    assert ran.code == 0
    assert data == json.loads(json.dumps(FOUND.json()))
    assert data["heads"]["L1H0"]["kinds"] == ["induction"]
    assert data["heads"]["L1H0"]["scores"]["induction"]["mean"] > 0.95
    assert data["loss_by_order"] == list(FOUND.losses.after)  # type: ignore[union-attr]
    first = data["composition"]["K"][0]
    assert {"later", "earlier", "score", "z", "tight"} <= first.keys()
    assert cli("circuits", str(path("induction")), "--draws", "6").out.rstrip("\n") == FOUND.text(100)
    assert cli("circuits", str(path("induction")), "--draws", "6", "--seed", "1", "--json").out != ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--draws", "0"], "must be a whole number, 1 or more, not '0'"),
        (["--threshold", "0"], "must be a weight, above 0 and up to 1, not '0'"),
        (["--threshold", "nan"], "must be a weight, above 0 and up to 1, not 'nan'"),
        (["--first", "32"], "the first token 32 does not exist: there are 32, counted from 0"),
        (["--length", "33"], "length must be 2 to 32 tokens, not 33"),
    ],
)
def test_what_the_command_refuses(cli: Cli, words: list[str], says: str) -> None:
    ran = cli("circuits", str(path("induction")), *words)
    assert ran.code == 2
    assert says in " ".join(ran.err.split())


# ------------------------------------------------------------------------------------------------------ the page
class Elements(HTMLParser):
    """The elements of a page by their class, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.classes: Counter[str] = Counter()
        self.said, self.open = "", list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes.update((dict(attrs).get("class") or "").split())
        self.open += [] if tag in ("meta", "input", "br", "link") else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


def test_the_page_says_and_draws_what_was_found() -> None:
    page = Elements(FOUND.html())
    assert not page.open
    for line in FOUND.findings:
        assert line in page.said
    for kind, scores in FOUND.composition.items():
        above = [p for p in scores.pairs() if p.chance == "above"]
        assert page.classes[f"edge-{kind}"] == len(above)
        for p in above:
            assert f"{kind}: {p.later} from {p.earlier}, score {p.score:.3f}, z {p.z:.1f}" in page.said
    assert page.classes["node"] == 6
    assert page.classes["map"] == 3 + 3 * 6  # Q, K, V, and patterns, effects and values of six heads
    assert page.said.count("It selects by this term of its scores, one of 25 terms (embed | embed -> L0H2):") == 3
    assert "It writes what it selects to the logits by this one (embed -> L1H0):" in page.said
    [k_map] = [one for one in composition_maps(FOUND) if one.title.startswith("K")]
    assert k_map.rows == ("L1H0", "L1H1", "L1H2")
    assert k_map.columns == ("L0H0", "L0H1", "L0H2")
    assert k_map.values[0, 2] == FOUND.composition["K"].z[3, 2] == k_map.largest


def test_figures_are_data() -> None:
    run = shown_run(FOUND)
    patterns, effects = pattern_maps(FOUND), effect_maps(FOUND)
    assert [one.title.partition(":")[0] for one in patterns] == [h for h, k in FOUND.heads.heads.items() if k.kinds]
    values = sc.evaluate(sc.logits(SHIPPED), run)
    for pattern, effect in zip(patterns, effects, strict=True):
        head = pattern.title.partition(":")[0]
        assert np.array_equal(pattern.values, run.patterns[head])
        for query in (3, 20):
            weighted = values.weighted_pattern(head, of=sc.logit(int(run.tokens[query + 1])))
            assert np.allclose(effect.values[query], weighted[query])
    for what in ("composition", "patterns", "effects"):
        assert plot.circuits(FOUND, what).axes
    with pytest.raises(TypeError, match="circuits draws the result of find_circuits"):
        plot.circuits(run)  # type: ignore[arg-type]


def test_scores_of_one_query_add_up_to_the_model_s() -> None:
    run, shown = shown_run(FOUND), score_table(FOUND, "L1H0")
    assert shown is not None
    query = run.tokens.shape[0] - 2
    best = np.argsort(-np.where(np.isfinite(run.scores["L1H0"][query]), run.scores["L1H0"][query], -np.inf))[:3]
    assert list(shown.header[1:]) == [f"key {j} (token {run.tokens[j]})" for j in best]
    assert list(shown.rows[-1][1:]) == [f"{run.scores['L1H0'][query, j]:.3g}" for j in best]
    assert shown.rows[-2][1:] == shown.rows[-1][1:]  # the sum of all terms is the score
    assert "L0H2" in shown.rows[0][0]


@pytest.mark.parametrize("heads", [(), (1,), (0, 2), (3, 0, 1), (12,) * 6])
def test_pages_of_other_shapes(heads: tuple[int, ...]) -> None:
    model = sc.random_model(sc.attention_only(heads), d_vocab=20, d_model=12, d_head=3)
    found = find_circuits(model, count=2, length=10)
    page = Elements(found.html())
    assert not page.open
    assert page.classes["node"] == sum(heads) * any(True for s in found.composition.values() for _ in s.pairs())


def test_the_command_writes_the_page(cli: Cli, tmp_path: Path) -> None:
    words = ("circuits", str(path("induction")), "--draws", "6", "--html", str(tmp_path / "page.html"))
    assert cli(*words).code == 0
    page, plain = (tmp_path / "page.html").read_text("utf-8"), FOUND.html()
    assert re.sub("<p>Command: .*?</p>", "", page) == plain != page  # the command that wrote it stands in its foot
    refused = cli(*words[:-1], str(tmp_path / "none" / "page.html"))
    assert refused.code == 2
    assert "page.html" in refused.err
    weights = tmp_path / "model" / "model.safetensors"
    shutil.copytree(path("induction"), weights.parent)
    os.link(weights, tmp_path / "link.html")
    refused = cli("circuits", str(weights.parent), "--draws", "2", "--html", str(tmp_path / "link.html"))
    assert refused.code == 2
    assert "which is read; choose another name" in refused.err


# --------------------------------------------------------------------------------------------------- side by side
def test_models_side_by_side(cli: Cli) -> None:
    models = [str(path("induction")), str(DATA / "tl_plain_s0"), str(DATA / "tracr_prev_1L")]
    ran = cli("circuits", *models, "--draws", "6", "--json")
    trained, random, one_layer = json.loads(ran.out)["models"]
    assert [row["model"] for row in (trained, random, one_layer)] == models
    assert trained["induction"]["mean"] == max(h.scores["induction"].mean for h in FOUND.heads.heads.values())  # type: ignore[union-attr]
    assert trained["previous_token"]["head"] == "L0H2"
    assert trained["k_pair"]["z"] == max(p.z or 0 for p in FOUND.composition["K"].pairs())
    causes = FOUND.causes[trained["induction"]["head"]]
    [k] = [p.without for p in causes.parts if (p.by, p.name) == ("composition", "K")]
    assert trained["k_share"] == 1 - k / causes.score > 0.9
    assert trained["loss_by_order"] == list(FOUND.losses.after)  # type: ignore[union-attr]
    assert trained["heads"]["induction"] == 3
    assert random["k_share"] is None
    assert one_layer["k_pair"] is None
    assert one_layer["loss_by_order"] is None
    lines = cli("circuits", *models, "--draws", "6").out.splitlines()
    assert lines[0].split()[:3] == ["model", "previous", "induction"]
    assert any(line.startswith("induction") and "0.86" in line for line in lines)
    narrow = compared([("one", FOUND)]).text(40)
    assert "previous 0.8" in narrow
    assert "induction 0.9" in narrow
    refused = cli("circuits", models[0], "")
    assert refused.code == 2
    assert "MODEL is empty" in refused.err
    refused = cli("circuits", *models, "--html", "page.html")
    assert refused.code == 2
    assert "--html needs a single MODEL, not " in refused.err


def test_a_large_vocabulary_has_the_same_eigenvalues_by_small_products() -> None:
    for norm in (None, "LN"):
        arch = sc.attention_only((2, 2), "standard", norm=norm, gains=norm is not None, biases=norm is not None)
        model = sc.random_model(arch, d_vocab=4300, d_model=6, d_head=3, n_context=12, seed=2)
        found = find_circuits(model, count=1)
        for head, one in found.copying.items():
            whole = sc.circuit(model, "OV", head)
            assert one.eigenvalue_positivity == pytest.approx(whole.spectrum.positivity, abs=1e-9)
            assert one.positive_diagonal == pytest.approx((whole.diagonal > 0).mean(), abs=0.02)
            assert one.top_of_diagonal is None
        for (later, earlier), one in found.matching.items():
            whole = sc.circuit(model, "QK", later, key=earlier)
            assert one.eigenvalue_positivity == pytest.approx(whole.spectrum.positivity, abs=1e-9)
        assert "positive diagonal: over 4,096 tokens of 4,300, drawn at random" in found.text(200)
    assert "drawn at random" not in FOUND.text(200).partition("Copying")[2]


def test_another_product_of_embeddings_has_other_eigenvalues() -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=40, d_model=4, d_head=2)
    small = same_ov_spectrum(model)
    wrong = replace(small, weights={**small.weights, "W_E": small.weights["W_E"].T.copy()})
    right = sc.circuit(model, "OV", "L0H0").eigenvalues
    assert np.allclose(sc.circuit(small, "OV", "L0H0").eigenvalues, right)
    assert not np.allclose(sc.circuit(wrong, "OV", "L0H0").eigenvalues, right)
