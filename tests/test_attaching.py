"""Readouts and sources through explain, its page, and the options of the command line."""

import io
import json
import zipfile
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.cli.attachments import read_array
from symcircuits.cli.main import main
from symcircuits.explanation.explain import Explanation
from symcircuits.render import plot
from symcircuits.values.evaluate import evaluate

DATA = Path(__file__).parent / "data"
BIAS = DATA / "tl_bias_s1"
TOKENS = [1, 2, 3, 4]
MARKUP = '<b>12</b> & "$x_1$"'


@pytest.fixture
def model() -> sc.Model:
    return sc.load(BIAS)


def row(d: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(d)


def explain(model: sc.Model, tokens: Any, *attached: Any, of: str = "readout:probe", **more: Any) -> Explanation:
    """What a readout (``of``) reads, taken apart, with all of these attached."""
    run = model.with_(*attached).run(tokens)
    return sc.explain(sc.evaluate(sc.expand(run.model.architecture, of), run), **more)


# ----------------------------------------------------------------------------------------------- explain
def test_a_real_model_is_explained_from_feature_to_probe(model: sc.Model) -> None:
    d, acts = model.d_model, [0.0, 2.0, 0.5, 0.0]
    probe, feature = row(d), row(d, 1)
    found = explain(model, TOKENS, sc.readout(probe), sc.source(MARKUP, feature, 1, activations=acts))
    assert found.ok
    assert found.expansion.target == "readout:probe"
    assert found.closure.target == "readout:probe"
    run = model.run(TOKENS)
    assert found.value == pytest.approx(run.streams[-1][-1] @ probe)
    assert found.remainder["count"] == 0
    assert sum(s.contribution or 0 for s in found.terms) == pytest.approx(found.value)
    direct = next(s for s in found.terms if s.term.label == MARKUP)
    assert direct.contribution == pytest.approx(acts[-1] * feature @ probe)
    total = evaluate(found.expansion.from_source(MARKUP), found.run).total()[-1, 0]
    paths = [s for s in found.terms if s.term.sources == (MARKUP,)]
    assert len(paths) == 1 + model.architecture.heads[1]
    assert sum(s.contribution or 0 for s in paths) == pytest.approx(total)
    assert any("source" in line and "cut off" in line for line in found.assumptions)


def test_several_directions_are_chosen_as_tokens_are(model: sc.Model) -> None:
    vectors = np.random.default_rng(0).standard_normal((3, model.d_model))
    owned = model.with_(sc.readout(vectors, "three"))
    found = explain(owned, TOKENS, of="readout:three", by=sc.logit(1, against=2), sort="difference")
    values = model.run(TOKENS).streams[-1][-1] @ vectors.T
    assert found.value == pytest.approx(values[1])
    assert found.difference == pytest.approx(values[1] - values[2])
    assert explain(owned, TOKENS, of="readout:three").measure.token == np.argmax(np.abs(values))
    assert "readout three, direction 1, at position 3" in found.text()
    assert "difference to direction 2" in found.text()
    data = found.json()
    assert data["of"] == "readout:three"
    assert data["target"]["direction"] == 1
    assert data["target"]["readout"] == "three"
    assert data["closure"]["readout"]["passed"]
    assert json.loads(json.dumps(data)) == data
    assert sc.explain(owned, TOKENS).expansion.target == "logits"  # the model's own end, unless asked


def test_models_that_are_polynomials_are_explained_too() -> None:
    model = sc.random_model(sc.transformer((1, 1), softmax=False, mlps=[0], bilinear=True), d_model=6)
    found = explain(model, TOKENS, sc.readout(row(6)), sc.source("part", row(6, 1), 1))
    assert found.ok
    assert "degree" not in found.totals  # patterns and MLPs stay fixed


def test_a_row_of_a_batch_is_chosen(model: sc.Model) -> None:
    probe, tokens = row(model.d_model), [[1, 2, 3], [4, 5, 6]]
    steer = sc.source("steer", probe, 2, of="added")
    found = explain(model, tokens, sc.readout(probe, layer=1), steer, by=sc.logit(position=0, row=1))
    assert "stream + heads + b_O + added sources" in found.text()
    assert found.value == pytest.approx(model.run(tokens).streams[1][1, 0] @ probe)
    assert "at position 0 of row 1" in found.text()
    assert "readout" in found.html()


def test_a_model_without_unembedding_has_readouts() -> None:
    model = sc.random_model(sc.attention_only((1, 2), unembed=False), d_model=6)
    found = explain(model, TOKENS, sc.readout(row(6)), sort="contribution")
    assert found.ok
    assert found.measure.token == 0
    assert "contribution to the readout probe at position 3" in found.text()


@pytest.mark.parametrize(
    ("attached", "by", "message"),
    [
        ([], None, "there is no readout 'probe'"),
        ([sc.readout(np.ones(3))], None, "must have shape"),
        ([sc.readout(np.ones(16))], sc.logit(1), "direction 1 does not exist: there is 1"),
        ([sc.readout(np.ones((2, 16)))], sc.logit(1, against=1), "choose two directions"),
        ([sc.source("part", np.ones((3, 16)), 1)], None, r"\[3\], but the tokens are \[4\]"),
    ],
)
def test_bad_choices_are_refused(attached: Any, by: Any, message: str) -> None:
    model = sc.random_model(sc.attention_only((1, 1)))
    with pytest.raises(ValueError, match=message):
        explain(model, TOKENS, *attached, by=by)


def test_other_things_are_no_readouts_or_sources() -> None:
    with pytest.raises(TypeError, match="with_ takes readouts and sources"):
        explain(sc.random_model(sc.attention_only((1, 1))), TOKENS, np.ones(16))


def test_the_page_shows_names_as_they_are(model: sc.Model) -> None:
    own = sc.readout(np.random.default_rng(0).standard_normal((2, model.d_model)), "my <i>probe</i>")
    part = sc.source(MARKUP, row(model.d_model), 1)
    found = explain(model, TOKENS, own, part, of=f"readout:{own.name}", by=sc.logit(0, against=1))
    page = found.html()
    assert "<b>12" not in page
    assert "<i>probe" not in page
    assert f"<mtext>{escape(MARKUP)}</mtext>" in page  # in formulas, not its LaTeX
    assert f"<msup><mtext>{escape('my <i>probe</i>')}</mtext>" in page
    assert escape("my <i>probe</i>[0] - my <i>probe</i>[1]") in page
    assert "of the readout" in page
    assert "Change of the chosen readout when a head" in page
    assert plot.contributions(found, difference=True).axes


def test_removals_are_of_the_readout(model: sc.Model) -> None:
    probe = row(model.d_model)
    run = model.with_(sc.readout(probe)).run(TOKENS)
    head = f"L{model.architecture.n_layers - 1}H0"
    found = sc.remove_heads(run, head, "readout:probe")
    assert found.of == "readout:probe"
    assert np.allclose(found.change[:, 0], -run.results[head] @ probe)
    assert np.allclose(found.pattern_part, 0, atol=1e-12)
    gone = sc.remove_scores(run, head, "none", "readout:probe")
    assert np.allclose(gone.frozen, gone.recomputed)
    assert gone.frozen.shape == (4, 1)
    with pytest.raises(ValueError, match="there is no readout 'other'"):
        sc.remove_heads(run, head, "readout:other")


# --------------------------------------------------------------------------------------------- command line
@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    d = sc.load(BIAS).d_model
    monkeypatch.chdir(tmp_path)
    np.save("probe.npy", row(d))
    np.save("part.npy", np.random.default_rng(1).standard_normal((4, d)))
    np.savez("two.npz", a=row(d), b=row(d))
    np.savez("one.npz", a=row(d))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    Path("text.npy").write_text("hello", "utf-8")
    Path("empty.npy").touch()
    Path("broken.npz").write_bytes(b"PK\3\4 no archive")
    Path("cut.npy").write_bytes(Path("part.npy").read_bytes()[:150])
    np.save("words.npy", np.array(["a"]))
    return tmp_path


def test_readouts_and_sources_are_options(files: Path, capsys: pytest.CaptureFixture[str], model: sc.Model) -> None:
    code = main([
        "explain", str(BIAS), "--tokens", "1,2,3,4", "--readout", "my probe=probe.npy@1", "--source",
        "feature 12=part.npy@0", "--source", "steer=one.npz@1:added", "--json", "--html", "p.html",
    ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["of"] == "readout:my probe"
    own = [
        sc.readout(row(model.d_model), "my probe", 1), sc.source("feature 12", np.load("part.npy"), 0),
        sc.source("steer", row(model.d_model), 1, of="added"),
    ]  # fmt: skip
    again = explain(model, TOKENS, *own, of="readout:my probe")
    assert found["target"]["value"] == again.value
    assert [t["label"] for t in found["terms"]] == [s.term.label for s in again.terms]
    assert "feature 12" in (files / "p.html").read_text("utf-8")


def test_verify_takes_them_too(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", str(BIAS), "--tokens", "1,2,3,4", "--source", "part=part.npy@1", "--readout", "probe.npy"]
    assert main([*words, "--target", "readout:probe", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["checks"]
    assert {r["name"].partition(": ")[2] for r in rows} == {"readout probe", "stream"}
    assert all(r["passed"] is not False for r in rows)
    assert main(["verify", "--heads", "2,2", "--readout", "probe.npy"]) == 2
    assert "need a MODEL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--readout", "none.npy"], "none.npy"),
        (["--readout", "text.npy"], "it is not an .npy file, or has Python objects in it"),
        (["--readout", "objects.npy"], "it is not an .npy file, or has Python objects in it"),
        (["--readout", "empty.npy"], "empty.npy: cannot be read as an array of numbers"),
        (["--readout", "broken.npz"], "broken.npz: cannot be read as an array of numbers"),
        (["--readout", "cut.npy"], "cut.npy: cannot be read as an array of numbers"),
        (["--readout", "two.npz"], "it has 2 arrays (a, b), not one"),
        (["--readout", "words.npy"], "must hold real numbers"),
        (["--readout", "."], "is a folder"),
        (["--readout", "part.npy@9"], "0 to 2, not 9"),
        (["--readout", "probe.npy@1:added"], "write [NAME=]FILE[@LAYER[:mlp]]"),
        (["--readout", "=probe.npy"], "must not be empty"),
        (["--readout", "probe.npy", "--normed"], "the model has no norms"),
        (["--normed"], "have no effect without --readout FILE"),
        (["--final-norm"], "have no effect without --readout FILE"),
        (["--readout", "probe.npy@1", "--final-norm"], "--final-norm, but the model has no norms"),
        (["--source", "part.npy@1"], "write NAME=FILE@LAYER"),
        (["--source", "part=part.npy"], "write NAME=FILE@LAYER"),
        (["--source", "part=part.npy@1:head"], "--source 'part=part.npy@1:head': write NAME=FILE@LAYER[:mlp|:added]"),
        (["--source", "W_U=part.npy@1"], "W_U has that name already"),
        (["--source", "a=part.npy@1", "--source", "a=part.npy@1"], "are called 'a'"),
        (["--source", "part=part.npy@1:mlp"], "layer 1 has no MLP"),
    ],
)
def test_bad_options_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["explain", str(BIAS), "--tokens", "1,2,3,4", "--html", "p.html", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("symcircuits explain: error: ")
    assert message in err
    assert not (files / "p.html").exists()


def test_any_bytes_are_an_array_or_refused(tmp_path: Path) -> None:
    """Cut or changed at any place, a file is read as numbers, or refused in plain words."""
    buffer, path, rng = io.BytesIO(), tmp_path / "x.npy", np.random.default_rng(0)
    np.save(buffer, np.ones((2, 3)))
    whole = buffer.getvalue()
    said = []
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
        path.write_bytes(bytes(data[: int(rng.integers(len(data) // 2, len(data) + 1))]))
        try:
            read_array(str(path))
        except ValueError as fault:
            said.append(str(fault))
    assert said
    assert all("cannot be read as an array of numbers" in fault for fault in said)


@pytest.mark.parametrize("words", [["--readout", "probe.npy"], ["--source", "part=part.npy@1"]])
def test_prompts_of_a_file_go_without_them(files: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    Path("prompts.txt").write_text("1,2,3,4\n", "utf-8")
    assert main(["explain", str(BIAS), "--prompts", "prompts.txt", *words]) == 2
    assert f"{words[0]} is for a single prompt and cannot be used with --prompts" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- very large and small
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_leaves_the_range_is_refused_and_not_printed(model: sc.Model, dtype: Any) -> None:
    size = {np.float64: 1e300, np.float32: 1e37}[dtype]
    with pytest.raises(ValueError, match=r"terms of \w+( \w+)?, or the bound of their sum, leave the range of float"):
        sc.explain(model.with_(sc.source("part", size * row(model.d_model), 1)).run(TOKENS, dtype))


def test_what_is_large_and_within_the_range_scales(model: sc.Model) -> None:
    plain, large = (explain(model, TOKENS, sc.readout(size * row(model.d_model))) for size in (1.0, 2.0**997))
    assert plain.ok
    assert large.ok
    assert [s.norm / 2.0**997 for s in large.terms] == pytest.approx([s.norm for s in plain.terms], rel=1e-12)
    assert large.remainder["norm"] / 2.0**997 == pytest.approx(plain.remainder["norm"], rel=1e-9)
    assert sc.verify(large.model, tokens=TOKENS).ok


def test_verify_says_that_numbers_leave_the_range(model: sc.Model) -> None:
    steer = sc.source("part", 1e20 * row(model.d_model), 1, of="added")
    own = model.with_(steer, sc.readout(1e300 * row(model.d_model)))
    with pytest.raises(ValueError, match="the values of the readout probe leave the range of float64"):
        sc.verify(own, tokens=TOKENS)
    near = 2.0**1023 / np.abs(model.with_(sc.readout(row(model.d_model))).run(TOKENS).readouts["probe"]).max()
    found = sc.verify(model.with_(sc.readout(near * row(model.d_model))), targets=["readout:probe"], tokens=TOKENS)
    wrong = [c for c in found.checks if c.passed is False]
    assert {c.name for c in wrong} == {"same transformer", "same transformer, lambdified"}
    assert all("leave the range of float64" in c.what for c in wrong)


def test_numbers_below_the_normal_ones_are_held_to_the_smallest_of_these(model: sc.Model) -> None:
    found = explain(model, TOKENS, sc.readout(1e-310 * row(model.d_model)))
    assert found.ok
    assert found.closure.bound == np.finfo(np.float64).tiny
    assert explain(model, TOKENS, sc.readout(np.zeros(model.d_model))).closure.bound == 0


def test_a_file_that_is_not_there_is_named_with_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (["--readout", "no.npy"], "--readout: there is no file 'no.npy'\n"),
        (["--readout", "a=b=no.npy@1"], "there is no file 'b=no.npy' (of --readout 'a=b=no.npy@1': FILE is the part"),
        (["--source", "a1=no.npy@1"], "--source: there is no file 'no.npy' (of --source 'a1=no.npy@1'"),
    ):
        assert main(["explain", str(BIAS), "--tokens", "1,2", *words]) == 2
        assert said in capsys.readouterr().err


def header(shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of float64 numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_no_array_is_made_for_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(header((10**12, 48)) + bytes(16))
    with pytest.raises(ValueError, match="its header promises 384,000,000,000,000 bytes of numbers, not 16"):
        read_array(str(path))
    path.write_bytes(header((2,)) + bytes(16) + b"more")  # as where arrays are saved one after another
    assert read_array(str(path)).tolist() == [0.0, 0.0]
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as packed:
        packed.writestr("probe.npy", header((10**12,)) + bytes(16))
    with pytest.raises(ValueError, match="probe: its header promises 8,000,000,000,000 bytes of numbers, not 16"):
        read_array(str(tmp_path / "a.npz"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"a.npz: this is not a whole .npz file, .*probe: its header promises"):
        sc.load(tmp_path / "a.npz")


def test_long_titles_and_names_stay_in_the_figure(model: sc.Model) -> None:
    agg = pytest.importorskip("matplotlib.backends.backend_agg")
    found = sc.explain(model, TOKENS).labelled(["a long name of a token " + str(i) for i in range(model.d_vocab or 0)])
    for figure in (plot.origins(found), plot.pattern(found, "L1H0")):
        agg.FigureCanvasAgg(figure).draw()
        size = figure.bbox
        for axes in figure.axes[:1]:
            for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()):
                if not text.get_text():
                    continue
                box = text.get_window_extent()
                assert box.x0 >= -1
                assert box.y0 >= -1
                assert box.x1 <= size.x1 + 1
                assert box.y1 <= size.y1 + 1
