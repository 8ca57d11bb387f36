"""What explain is given: a model on tokens, a run, or values, which carry the target and the notation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.render.tables import number
from symcircuits.values.measure import Measure

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "tl_bias_s1"
TOKENS = [1, 2, 3, 4]
MODEL = sc.load(FOLDER)
RUN = MODEL.run(TOKENS)
ROWS = MODEL.run([TOKENS, [4, 0, 2, 1]])
LOGITS = sc.logits(MODEL.architecture)
STREAM = sc.evaluate(sc.stream(MODEL.architecture), RUN)


def test_a_model_its_path_a_run_and_values_are_explained_alike() -> None:
    found = sc.explain(MODEL, TOKENS, by=sc.logit(3, against=5), top=7)
    for subject, tokens in ((str(FOLDER), TOKENS), (RUN, None), (sc.evaluate(LOGITS, RUN), None)):
        same = sc.explain(subject, tokens, by=sc.logit(3, against=5), top=7)
        assert same.json() == found.json()
        assert same.text() == found.text()
        assert same.html() == found.html()


def test_values_say_how_terms_are_printed_and_nothing_else() -> None:
    names = sc.Notation("paper", {"W_OV": "M"})
    plain, found = sc.explain(RUN), sc.explain(sc.evaluate(LOGITS.written(names), RUN))
    assert found.expansion.notation == names
    for one, other in zip(plain.terms, found.terms, strict=True):
        assert (one.term, one.norm, one.contribution) == (other.term, other.norm, other.contribution)
        assert other.term.text == LOGITS.written(names)[LOGITS.index(one.term)].text


def test_the_stream_of_a_model_with_logits() -> None:
    found = sc.explain(STREAM, by=sc.logit(position=1))
    assert found.ok
    assert (found.closure.target, found.value, found.difference) == ("stream", None, None)
    assert found.json()["target"] == {"row": 0, "position": 1, "token": None, "value": None}
    sizes = {s.term.label: s.norm for s in found.terms}
    for i, value in enumerate(STREAM):
        label = STREAM.expansion[i].label
        assert label not in sizes or sizes[label] == pytest.approx(np.linalg.norm(value))
    assert found.totals["order"][0]["contribution"] is None
    page = found.html()
    assert "Change of the stream when a head" in page
    gone, last = sc.remove_heads(RUN, "L1H0", "stream"), MODEL.run(TOKENS).results["L1H0"]
    assert (gone.of, gone.change.shape) == ("stream", RUN.streams[-1].shape)
    np.testing.assert_allclose(gone.change, -last, atol=1e-12)
    assert f">{number(float(np.linalg.norm(last)))}<" in page
    part = sc.remove_scores(RUN, "L1H0", "K", "stream")
    np.testing.assert_allclose(part.frozen, part.recomputed, atol=1e-12)
    assert sc.remove_heads(RUN, "L1H0").of == sc.remove_heads(RUN, "L1H0", "logits").of == "logits"
    with pytest.raises(ValueError, match=r"^target must be logits, stream or a readout, not scores:L1H0$"):
        sc.remove_heads(RUN, "L0H0", "scores:L1H0")


TENSORS = RUN.to(np)
REFUSED: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a selection": (
        sc.evaluate(LOGITS.order(1).through("L0H0"), RUN), None, ValueError,
        "explain takes values of a whole expansion, not of a selection (order 1, through L0H0)",
    ),
    "scores": (
        sc.evaluate(sc.scores(MODEL.architecture, "L1H0"), RUN), None, ValueError,
        "explain takes values of the logits, the stream or a readout, not of scores:L1H0: its results include the "
        "scores of all heads",
    ),
    "arrays of other libraries": (
        sc.evaluate(LOGITS, TENSORS), None, TypeError,
        "explain takes values of an expansion on a run (evaluate(expansion, run)), not of arrays of other libraries",
    ),
    "Tensors": (
        TENSORS, None, TypeError,
        "explain takes values of an expansion on a run (evaluate(expansion, run)), not of arrays of other libraries",
    ),
    "no tokens": (
        MODEL, None, ValueError,
        "tokens are required: give explain(model, tokens), or a run in place of the model",
    ),
    "a path without tokens": (
        str(FOLDER), None, ValueError,
        "tokens are required: give explain(model, tokens), or a run in place of the model",
    ),
    "tokens beside a run": (
        RUN, TOKENS, ValueError, "tokens go with a model: a run, and values on a run, have their own; leave tokens out",
    ),
    "tokens beside values": (
        STREAM, TOKENS, ValueError,
        "tokens go with a model: a run, and values on a run, have their own; leave tokens out",
    ),
    "a number": (
        3, TOKENS, TypeError,
        "explain takes a model (see load and from_arrays), the path of one, a run (see model.run) or values (see "
        "evaluate), not 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_explained_is_refused_in_one_line(name: str) -> None:
    subject, tokens, kind, message = REFUSED[name]
    with pytest.raises(kind) as seen:
        sc.explain(subject, tokens)
    assert str(seen.value) == message


def test_unfrozen_terms_are_refused() -> None:
    run = sc.random_model(sc.attention_only((1,), softmax=False)).run(TOKENS)
    with pytest.raises(TypeError, match=r"on a run \(evaluate\(expansion, run\)\), not of unfrozen terms$"):
        sc.explain(sc.evaluate(sc.logits(run.model.architecture).unfrozen(), run))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- the chosen logit
def test_the_chosen_logit_is_filled_in_and_can_be_given_again() -> None:
    logits = ROWS.logits
    assert logits is not None
    first = int(logits[0, -1].argmax())
    found = sc.explain(ROWS)
    assert found.measure == Measure(kind="logit", row=0, position=3, token=first)
    assert found.value == logits[0, -1, first]
    second = sc.explain(ROWS, by=sc.logit(against="second", position=1, row=-1), sort="difference")
    order = np.argsort(logits[1, 1])
    assert second.measure.chosen == [order[-1], order[-2]]
    assert second.difference == logits[1, 1, order[-1]] - logits[1, 1, order[-2]]
    assert sc.explain(ROWS, by=second.measure, sort="difference").json() == second.json()
    assert sc.explain(STREAM, by=sc.explain(STREAM).measure).json() == sc.explain(STREAM).json()


@pytest.mark.parametrize(
    ("subject", "by", "kind", "message"),
    [
        (RUN, sc.norm(), ValueError, "explain shows norms and contributions to one logit: give by=sc.logit(token, "
         "against=..., position=...), not sc.norm()"),
        (RUN, sc.norm(masked=True), ValueError, "not sc.norm(masked=True)"),
        (RUN, sc.score_entry(2, 1), ValueError, "not sc.score_entry(query, key)"),
        (RUN, 3, TypeError, "by must be sc.logit(token, against=..., position=..., row=...), not 3"),
        (RUN, "norm", TypeError, "not 'norm'"),
        (RUN, sc.logit(row=1), ValueError, "row 1 does not exist: there is 1, counted from 0"),
        (STREAM, sc.logit(1), ValueError, "these are values of the stream, so there is no logit of a token to look at"),
        (STREAM, sc.logit(against="second"), ValueError, "these are values of the stream, so there is no logit"),
        (STREAM, sc.logit(position=4), ValueError, "position 4 does not exist: there are 4, counted from 0"),
    ],
)  # fmt: skip
def test_other_measures_are_refused(subject: Any, by: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as seen:
        sc.explain(subject, by=by)
    assert message in str(seen.value)


# ------------------------------------------------------------------------------------------- names of tokens
def test_a_result_with_names_is_another_result() -> None:
    names = [f"t{i}" for i in range(MODEL.d_vocab)]
    found, many = sc.explain(RUN), sc.explain_many(MODEL, [TOKENS], by=sc.logit(3))
    named, named_many = found.labelled(names), many.labelled(names)
    assert (found.labels.names, many.labels.names) == ((), ())
    assert named.labels.names == named_many.labels.names == tuple(names)
    assert named.terms is found.terms
    assert 'token 3 "t3"' in " ".join(named_many.text().split())
    assert named.labelled(None).json() == found.json()
    assert named_many.labelled(None).text() == many.text()
    assert found.labelled(["a", "b", "c", "d"]).labels.of == "positions"


@pytest.mark.parametrize("words", [("--tokens", "1,2,3"), ("--prompts", "prompts.txt")])
def test_labels_that_do_not_fit_are_refused_before_the_work(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the work has begun")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("symcircuits.explanation.explain.explain", never)
    monkeypatch.setattr("symcircuits.explanation.many.explain_many", never)
    Path("labels.txt").write_text("a\nb\n", "utf-8")
    Path("prompts.txt").write_text("1,2\n", "utf-8")
    assert main(["explain", str(FOLDER), *words, "--labels", "labels.txt"]) == 2
    assert "there are 2 labels; one is needed for each vocabulary entry" in capsys.readouterr().err


def test_row_0_is_about_one_prompt_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(FOLDER), "--prompts", "prompts.txt", "--row", "0"]) == 2
    assert "--row is for a single prompt and cannot be used with --prompts" in capsys.readouterr().err
