"""explain over many prompts: every average held to NumPy's over single explanations; bad prompts, closures, memory."""

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures, examples

import symcircuits as sc
from symcircuits.explanation import one_prompt as prompt_sums
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.many import Averages, Part
from symcircuits.explanation.prompts import BadPrompt
from symcircuits.model import Model
from symcircuits.values.evaluate import closure, compare

SMALL = sc.random_model(sc.attention_only((2, 2), biases=True), d_vocab=9, seed=1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Model, list[dict[str, Any]]]:
    """A model, and prompts of different lengths, some of which choose their logit."""
    model = sc.random_model(draw(architectures(max_layers=3, max_heads=2, max_terms=40)), seed=draw(st.integers(0, 9)))
    out = model.d_vocab_out
    prompts = []
    for _ in range(draw(st.integers(1, 5))):
        tokens = draw(st.lists(st.integers(0, model.d_vocab - 1), min_size=1, max_size=4))
        prompt: dict[str, Any] = {"tokens": tokens}
        if draw(st.booleans()):
            prompt["position"] = draw(st.integers(-len(tokens), len(tokens) - 1))
        if out is not None and draw(st.booleans()):
            prompt["target"] = draw(st.integers(0, out - 1))
            if out > 1 and draw(st.booleans()):
                prompt["against"] = (prompt["target"] + 1) % out
        prompts.append(prompt)
    return model, prompts


def alone(model: Model, prompt: dict[str, Any]) -> Explanation:
    by = sc.logit(prompt.get("target"), prompt.get("against"), position=prompt.get("position", -1))
    return sc.explain(model, prompt["tokens"], by=by, top=0, max_terms=0)


def check(part: Part, name: str, numbers: list[float | None]) -> None:
    known = np.array([x for x in numbers if x is not None])
    spread = part.spreads.get(name)
    if spread is None:
        assert not len(known)
        return
    assert spread.count == len(known)
    if len(known):
        size = 1e-9 * (1 + np.abs(known).max())
        got = (spread.mean, spread.std, spread.least, spread.most)
        np.testing.assert_allclose(got, (known.mean(), known.std(), known.min(), known.max()), rtol=0, atol=size)


@examples(30)
@given(cases())
def test_averages_are_those_of_single_explanations(case: tuple[Model, list[dict[str, Any]]]) -> None:
    model, prompts = case
    found, single = sc.explain_many(model, prompts), [alone(model, p) for p in prompts]
    assert found.prompts + found.n_unclosed == len(prompts)
    if found.n_unclosed:  # the bound is empirical
        return
    assert (found.lengths.least, found.lengths.most) == (
        min(len(p["tokens"]) for p in prompts), max(len(p["tokens"]) for p in prompts),
    )  # fmt: skip
    assert set(found.totals) == {*single[0].totals, "head"}
    for by in single[0].totals:
        assert list(found.totals[by]) == list(single[0].totals[by])
        for key, part in found.totals[by].items():
            assert part.count == single[0].totals[by][key]["count"]
            for name in ("norm", "contribution", "difference"):
                check(part, name, [s.totals[by][key].get(name) for s in single])
    check(found.whole, "contribution", [s.value for s in single])
    check(found.whole, "difference", [s.difference for s in single])
    for head in model.architecture.all_heads:
        expansion = single[0].expansion.through(head)
        sums = [sc.evaluate(expansion, s.run).total() for s in single]
        part = found.totals["head"][str(head)]
        assert part.count == expansion.count
        check(part, "norm", [float(np.linalg.norm(v)) for v in sums])
        check(part, "contribution", [s.measure.at(v)[0] for s, v in zip(single, sums, strict=True)])
        scores = [s.scores[str(head)] for s in single]
        assert list(found.scores[str(head)]) == [c for c, n in scores[0].counts.items() if n]
        for c, split in found.scores[str(head)].items():
            assert split.count == scores[0].counts[c]
            check(split, "centred_share", [s.centred_shares[c] for s in scores])
            check(split, "share", [s.shares[c] for s in scores])
            check(split, "norm", [s.norms[c] for s in scores])
            check(split, "centred_norm", [s.centred_norms[c] for s in scores])


@examples(20)
@given(cases(), st.randoms())
def test_the_order_of_prompts_does_not_matter(case: tuple[Model, list[dict[str, Any]]], chance: Any) -> None:
    model, prompts = case
    turned = prompts[:]
    chance.shuffle(turned)
    first, second = sc.explain_many(model, prompts).columns(), sc.explain_many(model, turned).columns()
    for name in ("of", "by", "part", "terms"):
        assert sorted(zip(first["of"], first["part"], first[name], strict=True)) == sorted(
            zip(second["of"], second["part"], second[name], strict=True)
        )
    keyed = [
        {(t["of"][i], t["by"][i], t["part"][i], t["quantity"][i]): [t[x][i] for x in ("mean", "std", "min", "max")]
         for i in range(len(t["of"]))} for t in (first, second)
    ]  # fmt: skip
    assert keyed[0].keys() == keyed[1].keys()
    for key, numbers in keyed[0].items():
        same = np.array([[np.nan if x is None else x for x in row] for row in (numbers, keyed[1][key])])
        np.testing.assert_allclose(*same, rtol=1e-9, atol=1e-9)


def test_sums_by_degree_where_a_model_is_a_polynomial() -> None:
    model = sc.random_model(sc.transformer((1,), softmax=False, mlps=[0], bilinear=True), d_vocab=9, seed=1)
    found = sc.explain_many(model, [[1, 2, 3], [4, 5]], by=sc.logit(2))
    degrees = [sc.explain(model, t, by=sc.logit(2)).totals["degree"] for t in ([1, 2, 3], [4, 5])]
    assert list(found.totals["degree"]) == list(degrees[0])
    for degree, part in found.totals["degree"].items():
        check(part, "contribution", [d[degree]["contribution"] for d in degrees])
    assert found.json()["by_degree"]["3"]["count"] == degrees[0][3]["count"]
    assert "\ndegree 3 " in found.text()
    assert "by_degree" not in sc.explain_many(SMALL, [[1, 2]]).json()
    assert "softmax sees" not in found.text()
    assert "centred share (what softmax sees)" in sc.explain_many(SMALL, [[1, 2]]).text()
    assert "of 2 tokens" in sc.explain_many(SMALL, [[1, 2]]).text()
    assert "of 1 token\n" in sc.explain_many(SMALL, [[1]]).text()


def test_heads_of_a_large_vocabulary_are_measured_without_it() -> None:
    arch = sc.attention_only((2, 2), biases=True)
    model = sc.random_model(arch, d_vocab=40, d_model=6, d_head=3, seed=1)
    prompts = [{"tokens": [1, 2, 3], "target": 5, "against": 7}, {"tokens": [4, 30]}]
    found = sc.explain_many(model, prompts)
    runs = [model.run(p["tokens"]) for p in prompts]
    for head, part in found.totals["head"].items():
        sums = [sc.evaluate(sc.logits(arch).through(head), run).total() for run in runs]
        check(part, "norm", [float(np.linalg.norm(v)) for v in sums])
        check(part, "contribution", [sums[0][-1, 5], sums[1][-1, runs[1].logits[-1].argmax()]])
        check(part, "difference", [sums[0][-1, 5] - sums[0][-1, 7]])


def test_sums_with_the_bias_of_a_large_vocabulary_have_their_norms() -> None:
    """``b_U`` is not a term of its own there: it stands in one sum with terms that are not orthogonal to it."""
    arch = sc.attention_only((2, 2), biases=["b_U"])
    model = sc.random_model(arch, d_vocab=40, d_model=6, d_head=3, seed=1)
    prompts = [[1, 2, 3], [4, 30]]
    found, runs = sc.explain_many(model, prompts), [model.run(p) for p in prompts]
    values = [sc.evaluate(sc.logits(arch), run) for run in runs]
    check(found.whole, "norm", [float(np.linalg.norm(run.logits)) for run in runs])
    for order, part in found.totals["order"].items():
        check(part, "norm", [float(np.linalg.norm(v.by_order()[order])) for v in values])
    for composition, part in found.totals["composition"].items():
        check(part, "norm", [float(np.linalg.norm(v.by_composition()[composition])) for v in values])


# -------------------------------------------------------------------------------------------- the chosen logit
def test_one_choice_for_all_and_the_prompts_own() -> None:
    prompts: list[Any] = [
        [1, 2, 3],
        {"tokens": [4, 5], "target": 2, "against": 3},
        {"tokens": [6, 7, 8], "position": 0},
    ]
    found = sc.explain_many(SMALL, prompts, by=sc.logit(7, against=8, position=1))
    assert found.chosen == {"the same for all": 2, "its own": 1}
    runs = [SMALL.run(t).logits for t in ([1, 2, 3], [4, 5], [6, 7, 8])]
    check(found.whole, "contribution", [runs[0][1, 7], runs[1][1, 2], runs[2][0, 7]])
    check(found.whole, "difference", [
        runs[0][1, 7] - runs[0][1, 8], runs[1][1, 2] - runs[1][1, 3], runs[2][0, 7] - runs[2][0, 8],
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "what"),
    [
        ({"by": sc.logit(9)}, "token 9 does not exist: there are 9"),
        ({"by": sc.logit(1, against=9)}, "the token against 9 does not exist"),
        ({"by": sc.logit(against=1)}, "against is the second token of a difference"),
        ({"by": sc.logit(1, against=1)}, "the difference of the logit of token 1 with itself is 0"),
        ({"by": sc.logit(position=2)}, "prompt 2: position 2 does not exist: there are 2"),
        ({"by": sc.logit(row=0)}, "^each prompt is one row of tokens: leave row out of by$"),
        ({"by": sc.norm()}, r"^explain_many shows norms and contributions to one logit: give .*, not sc\.norm\(\)$"),
        ({"by": sc.score_entry()}, r"not sc\.score_entry\(query, key\)$"),
        ({"dtype": "int8"}, "^the forward pass is computed in float64 or float32, not int8"),
    ],
)
def test_choices_that_do_not_exist(choice: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        sc.explain_many(SMALL, [[1, 2, 3], [4, 5]], **choice)


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="there are 2 labels"):
        sc.explain_many(SMALL, [[1, 2, 3]]).labelled(["a", "b"])


def test_each_prompts_first_choice_against_its_second() -> None:
    prompts = [[1, 2, 3], [4, 5], {"tokens": [6, 7, 8], "target": 2}]
    found = sc.explain_many(SMALL, prompts, by=sc.logit(against="second"))
    ends = [np.sort(SMALL.run(tokens).logits[-1]) for tokens in ([1, 2, 3], [4, 5])]
    check(found.whole, "difference", [end[-1] - end[-2] for end in ends])
    assert found.json()["target"] == {
        "position": -1, "token": None, "against": "second", "chosen": {"first choice": 2, "its own": 1},
    }  # fmt: skip
    assert "the model's first choice less that of its second" in " ".join(found.text().split())
    of_one = sc.explain_many(SMALL, [[1, 2, 3]], by=sc.logit(2, against="second"))
    logits = np.delete(SMALL.run([1, 2, 3]).logits[-1], 2)
    check(of_one.whole, "difference", [SMALL.run([1, 2, 3]).logits[-1, 2] - logits.max()])
    assert "token 2 less that of the largest other" in " ".join(of_one.text().split())
    single = sc.random_model(sc.attention_only((1,)), d_vocab=3, d_vocab_out=1)
    with pytest.raises(ValueError, match="a difference needs two: the model has one output token"):
        sc.explain_many(single, [[1]], by=sc.logit(against="second"))


def test_a_model_without_unembedding() -> None:
    model = sc.random_model(sc.attention_only((2,), unembed=False), d_vocab=9)
    found = sc.explain_many(model, [[1, 2], [3]])
    assert set(found.whole.spreads) == {"norm"}
    assert found.json()["by_head_of_stream"]["L0H1"]["norm"]["count"] == 2
    assert "Norms of the stream" in found.text()
    with pytest.raises(ValueError, match="this model has no unembedding"):
        sc.explain_many(model, [[1, 2]], by=sc.logit(1))


def test_what_is_no_model() -> None:
    with pytest.raises(TypeError, match="explain_many takes a model"):
        sc.explain_many(3, [[1]])  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- bad prompts
def test_bad_prompts_are_refused_before_any_is_run(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("1,2\n3\n9\n")
    done: list[str] = []
    for given_ in (path, [[1, 2], [3], [9]]):
        with pytest.raises(BadPrompt, match=r"(line|prompt) 3: token 9"):
            sc.explain_many(SMALL, given_, progress=lambda what, i, n: done.append(what))
    assert set(done) == {"prompts read"}


def test_what_can_be_read_once_is_refused_when_it_comes() -> None:
    steps: list[tuple[str, int, int]] = []
    with pytest.raises(BadPrompt, match="prompt 3: token 9"):
        sc.explain_many(SMALL, iter([[1, 2], [3], [9]]), progress=lambda *step: steps.append(step))
    assert steps == [("prompts", 1, 1), ("prompts", 2, 2)]


def test_bad_prompts_left_out_are_named() -> None:
    good: list[Any] = [[1, 2, 3], [4, 5]]
    mixed: list[Any] = [[9], good[0], "no text", good[1], *([[-1]] * 30)]
    found, clean = sc.explain_many(SMALL, mixed, skip_bad=True), sc.explain_many(SMALL, good)
    assert (found.prompts, found.n_skipped, len(found.skipped), found.ok) == (2, 32, 20, True)
    assert [f.prompt for f in found.skipped][:3] == [1, 3, 5]
    assert found.columns() == clean.columns()
    text = found.text()
    assert "Left out: 32 invalid prompts:" in text
    assert "prompt 1: token 9 at position 0 is out of range" in text
    assert "and 12 more" in text
    with pytest.raises(ValueError, match=r"prompt 1: token 9 .*; all 2 prompts are invalid"):
        sc.explain_many(SMALL, [[9], [-1]], skip_bad=True)
    with pytest.raises(ValueError, match=r"prompt 1: token 9 .*; it is the only prompt$"):
        sc.explain_many(SMALL, [[9]], skip_bad=True)


def test_a_prompt_that_overflows_is_a_bad_prompt() -> None:
    weights = {name: w.copy() for name, w in SMALL.weights.items()}
    weights["W_E"][:, 3] = 1e300
    weights["W_U"] *= 1e20
    model = Model(SMALL.architecture, weights, SMALL.score_scale)
    with pytest.raises(BadPrompt, match=r"prompt 2: .*"):
        sc.explain_many(model, [[1, 2], [3, 1]])
    assert sc.explain_many(model, [[1, 2], [3, 1]], skip_bad=True).n_skipped == 1


@pytest.mark.parametrize("empty", ["", "\n \n", None])
def test_no_prompts_at_all(tmp_path: Path, empty: str | None) -> None:
    given_: Any = []
    if empty is not None:
        given_ = tmp_path / "empty.txt"
        given_.write_text(empty)
    with pytest.raises(ValueError, match=r"there are no prompts"):
        sc.explain_many(SMALL, given_)


# ------------------------------------------------------------------------------------------------ closure
def test_a_prompt_whose_closure_fails_is_in_no_average(monkeypatch: pytest.MonkeyPatch) -> None:
    real = prompt_sums.closure

    def failing(expansion: Any, run: Any, listed: int = 0) -> Any:
        found = real(expansion, run, listed)
        return replace(found, error=1.0, passed=False) if len(run.tokens) == 2 else found

    monkeypatch.setattr(prompt_sums, "closure", failing)
    found = sc.explain_many(SMALL, [[1, 2, 3], [4, 5], [6]])
    monkeypatch.undo()
    assert (found.ok, found.prompts, found.n_unclosed) == (False, 2, 1)
    assert found.columns() == sc.explain_many(SMALL, [[1, 2, 3], [6]]).columns()
    assert found.worst["logits"].prompt == found.unclosed[0].prompt == 2
    assert found.unclosed[0].why.startswith("logits: error 1 beyond the bound")
    text = found.text()
    assert "FAIL: 1 prompt with a closure beyond its bound, left out of all averages:" in text
    assert "FAIL  logits" in text
    data = found.json()
    assert (data["ok"], data["unclosed"]["count"], data["closure"]["logits"]["passed"]) == (False, 1, False)


@pytest.mark.parametrize("part", ["scores:L1H1", "layer:1"])
def test_closures_of_heads_and_layers_count_too(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    if part.startswith("layer"):
        real_layers = prompt_sums.layer_closures
        monkeypatch.setattr(
            prompt_sums, "layer_closures",
            lambda run: tuple(replace(c, passed=False, error=2.0) if c.target == part else c for c in real_layers(run)),
        )  # fmt: skip
    else:
        real_scores = prompt_sums.scores_of_heads

        def failing(run: Any, expansions: Any, listed: int) -> Any:
            found = real_scores(run, expansions, listed=listed)
            closed = [replace(f.closure, passed=f.closure.target != part) for f in found]
            return [replace(f, closure=c) for f, c in zip(found, closed, strict=True)]

        monkeypatch.setattr(prompt_sums, "scores_of_heads", failing)
    found = sc.explain_many(SMALL, [[1, 2, 3]])
    assert (found.ok, found.prompts) == (False, 0)
    assert part in found.unclosed[0].why
    assert "left out of all averages" in found.text()
    json.dumps(found.json(), allow_nan=False)


def test_the_worst_closure_is_the_worst_of_all_prompts() -> None:
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 1]]
    found = sc.explain_many(SMALL, prompts)
    each = [sc.explain_many(SMALL, [p]) for p in prompts]
    for kind, worst in found.worst.items():
        ratios = [e.worst[kind].ratio for e in each]
        assert worst.ratio == max(ratios) == ratios[worst.prompt - 1]
        assert worst.ratio < 1


# ------------------------------------------------------------------------------------------ what it costs
def test_memory_does_not_grow_with_the_number_of_prompts() -> None:
    def prompts(n: int) -> Iterator[list[int]]:
        return ([i % 9, (i // 9) % 9, i % 7, 1] for i in range(n))

    def peak(n: int) -> int:
        tracemalloc.start()
        sc.explain_many(SMALL, prompts(n))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)  # what is made once is made before
    assert peak(60) < peak(5) + 300_000  # a run kept for each prompt would be a million bytes


# ---------------------------------------------------------------------------------------------- what it shows
def test_json_and_columns_say_the_same() -> None:
    found = sc.explain_many(SMALL, [[1, 2, 3], [4, 5]], by=sc.logit(2, against=3))
    data = json.loads(json.dumps(found.json(), allow_nan=False))
    assert data["schema"] == "symcircuits.explain-many/1"
    assert (data["prompts"], data["length"]["mean"], data["source"]) == (2, 2.5, None)
    assert data["target"] == {"position": -1, "token": 2, "against": 3, "chosen": {"the same for all": 2}}
    table = found.columns()
    assert len({len(column) for column in table.values()}) == 1
    for i, of in enumerate(table["of"]):
        by, part = table["by"][i], table["part"][i]
        if of != "logits":
            entry = data["by_composition"][of.partition(":")[2]][part]
        elif by == "all":
            entry = data["whole"]
        else:
            entry = data[f"by_{by}" if by == "order" else f"by_{by}_of_logits"][part]
        assert entry["count"] == table["terms"][i]
        spread = entry[table["quantity"][i]]
        assert [spread[x] for x in ("mean", "std", "min", "max", "count")] == [
            table[x][i] for x in ("mean", "std", "min", "max", "prompts")
        ]


@pytest.mark.parametrize("width", [60, 100])
def test_the_text_fits_and_holds_the_numbers(width: int) -> None:
    found = sc.explain_many(SMALL, [[1, 2, 3], [4, 5]], by=sc.logit(2, against=3)).labelled([f"t{i}" for i in range(9)])
    text = found.text(width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    assert "averages over 2 prompts of 2 to 3 tokens" in flat
    assert "each prompt is run separately at its own length: nothing is padded" in flat
    assert 'Contributions to the logit of token 2 "t2", at the last position; ' in flat
    assert 'Differences: contributions to the logit of token 2 "t2" less that of token 3 "t3", at the last' in flat
    row = next(line.split() for line in text.splitlines() if line.startswith("order 2"))
    spread = found.totals["order"][2].spreads["norm"]
    assert row[2:] == [str(found.totals["order"][2].count), *(f"{x:.4g}" for x in (
        spread.mean, spread.std, spread.least, spread.most,
    ))]  # fmt: skip
    assert repr(found) == found.text()


def test_of_many_heads_the_largest_are_shown() -> None:
    found = sc.explain_many(SMALL, [[1, 2, 3]])
    assert isinstance(found, Averages)
    text = found.text(top=1)
    assert text.count("  through L") + text.count("\nthrough L") == 3  # for norms, contributions, and these centred
    assert "the 1 head with the largest mean" in " ".join(text.split())
    means = {h: p.spreads["norm"].mean for h, p in found.totals["head"].items()}
    assert f"through {max(means, key=lambda h: means[h] or 0)}" in text
    assert "through L" not in found.text(top=0)


# ------------------------------------------------------------------------------------- one bound for one and many
def cancelling() -> sc.Model:
    """A right model of d_head 1 whose score terms cancel within their orders: their sums show less than is rounded."""
    arch = sc.attention_only((3, 2, 1), biases=True)
    return sc.random_model(arch, d_vocab=3, d_model=1, d_head=1, seed=6729, weight_scale=2.0)


def test_explain_and_explain_many_hold_terms_to_one_bound() -> None:
    model = cancelling()
    run, e = model.run([0, 1, 2]), sc.scores(model.architecture, "L1H1")
    values = sc.evaluate(e, run)
    assert compare(e.target, run, (value for _, value in values.classes()), False).passed  # the bound knows of it
    assert sc.explain(model, [0, 1, 2]).ok
    found = sc.explain_many(model, [[0, 1, 2]])
    assert found.ok
    assert found.prompts == 1


def test_what_lacks_terms_is_refused_by_that_bound_too() -> None:
    model = cancelling()
    run = model.run([0, 1, 2])
    for head in ("L1H1", "L2H0"):
        e = sc.scores(model.architecture, head)
        for some in (e.order(0), e.where("K"), e.through("L0H0"), e.from_source("embed")):
            assert not closure(some, run, listed=0).passed
            assert not closure(some, run).passed
