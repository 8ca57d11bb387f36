"""What figures show: every matrix held to the model's own numbers and to the terms; and drawn by matplotlib."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import centred, featured_models, forward, value_of
from strategies import examples

import symcircuits as sc
from symcircuits.explanation.ablation import remove_scores
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.score_parts import score_parts
from symcircuits.model import Settings
from symcircuits.render import figures, plot
from symcircuits.values.by_position import Reads, by_position, moves
from symcircuits.values.evaluate import evaluate

BIASED = sc.attention_only((2, 2), "standard", True)
ROWS = [[3, 1, 4, 1], [5, 9, 2, 6]]


def explained(**more: Any) -> Explanation:
    model = sc.random_model(BIASED, seed=4)
    found = sc.explain(model, ROWS, by=sc.logit(7, against=2, row=1), top=9, **more)
    return found.labelled([f"t{i}" for i in range(11)])


# ------------------------------------------------------------------------------------ where a term comes from
@given(featured_models(max_terms=60), st.data())
def test_a_term_split_by_position_adds_up_to_it(model: sc.Model, data: st.DataObject) -> None:
    arch = model.architecture
    expansion = sc.logits(arch) if arch.unembed else sc.stream(arch)
    values = evaluate(expansion, model.run(ROWS))
    term = expansion[data.draw(st.integers(0, expansion.count - 1))]
    reader = np.random.default_rng(2).normal(size=values.value(term).shape[-1])
    found = by_position(values, term, reader)
    assert found.shape == (2, 4, 4)
    assert np.allclose(found.sum(-1), values.value(term) @ reader, atol=1e-12)
    reads: Reads = {}  # what is kept of a reader for other terms changes none of them
    for other in (*map(expansion.__getitem__, range(min(6, expansion.count))), term):
        assert np.array_equal(by_position(values, other, reader, reads), by_position(values, other, reader))
    # and from each position what it is by itself: the source with all other rows taken away
    names = term.text.rpartition(" * ")[2].split(" @ ")
    core = next(i for i, name in enumerate(names) if not name.startswith(("A[", "D[")))
    for i, row in enumerate(ROWS):
        factors = dict(forward(model, row).factors)
        assert np.allclose(
            moves(values, term)[i], value_of(" @ ".join(names[:core]), factors) if core else np.eye(4), atol=1e-12
        )
        for j in range(4):
            alone = np.zeros_like(factors[names[core]])
            alone[j] = factors[names[core]][j]
            assert np.allclose(found[i, :, j], value_of(term.text, factors | {names[core]: alone}) @ reader, atol=1e-12)


# ------------------------------------------------------------------------------------------------- heat maps
def test_maps_of_a_head_are_of_the_chosen_row_and_add_up() -> None:
    found = explained()
    run = found.run
    assert figures.token_labels(found) == ("t5", "t9", "t2", "t6")
    pattern = figures.pattern_map(found, "L1H0")
    assert np.array_equal(pattern.values, run.patterns["L1H0"][1])
    assert np.array_equal(pattern.shown, np.tril(np.ones((4, 4), bool)))
    assert (pattern.signed, pattern.largest, pattern.rows) == (False, 1.0, ("t5", "t9", "t2", "t6"))
    parts = score_parts(run, "L1H0")
    scores = np.where(parts.allowed[1], run.scores["L1H0"][1], 0)
    plain, centre = figures.score_maps(found, parts, False), figures.score_maps(found, parts)
    names = ["scores of L1H0", "composition none", "composition Q", "composition K", "composition QK"]
    assert [m.title for m in centre] == names
    assert [m.title for m in plain] == [*names, "not seen by softmax"]
    for maps, whole in ((plain, scores), (centre, centred(scores, parts.allowed[1]))):
        assert np.allclose(maps[0].values, whole)
        assert np.allclose(sum(m.values for m in maps[1:5]), whole)
        assert {m.largest for m in maps} == {max(np.abs(m.values).max() for m in maps)}
    assert np.allclose(plain[5].values, np.where(parts.allowed[1], parts.invisible[1], 0))
    pairs = figures.source_maps(found, parts, most=100)
    assert np.allclose(sum(m.values for m in pairs), centre[0].values)
    assert not any(m.title.partition(" | ")[2].startswith("b_") for m in pairs)  # nothing is left of them
    sizes = [np.abs(m.values).max() for m in pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert len(figures.source_maps(found, parts, most=2)) == 2


@examples(20)
@given(featured_models(max_terms=60))
def test_an_explanation_of_any_model_adds_up(model: sc.Model) -> None:
    arch = model.architecture
    found = sc.explain(model, ROWS, by=sc.logit(7, against=2, row=1) if arch.unembed else sc.logit(row=1), top=4)
    assert found.ok, found.text()
    plain = forward(model, ROWS[1])
    for difference in (False, True) if arch.unembed else ():
        bars = figures.contribution_bars(found, difference)
        whole = plain.sums[-1, 7] - (plain.sums[-1, 2] if difference else 0)
        assert bars.values[-1] == pytest.approx(whole, abs=1e-9)
        assert sum(bars.values[:-1]) == pytest.approx(whole, abs=1e-9)
    for head in map(str, arch.all_heads):
        parts = score_parts(found.run, head)
        allowed = np.isfinite(plain.scores[head])
        maps = figures.score_maps(found, parts, centre=False)
        assert np.allclose(maps[0].values, np.where(allowed, plain.score_sums[head], 0), atol=1e-9)
        for kind in (parts.by_composition, parts.by_source):
            assert np.allclose(sum(kind.values())[1], plain.score_sums[head], atol=1e-9)


def test_soft_caps_are_named_where_they_act() -> None:
    model = sc.random_model(BIASED, seed=4, settings=Settings(score_cap=1.0, logit_cap=2.0), weight_scale=2.0)
    found = sc.explain(model, ROWS[0], by=sc.logit(7))
    parts = score_parts(found.run, "L1H0")
    assert figures.score_maps(found, parts)[0].title == "scores of L1H0 (pre-cap)"
    assert "logit of token 7 at position 3 (pre-cap)" in " ".join(found.text().split())
    assert found.value == pytest.approx(forward(model, ROWS[0]).sums[-1, 7])
    assert abs(found.value or 0) != pytest.approx(abs(found.run.logits[-1, 7]))
    # what is constant along the keys is seen where a cap acts on the sum
    assert (parts.invisible_count, parts.spread, np.abs(parts.invisible).max()) == (0, 0, 0)
    assert not any(found.score_columns("L1H0")["softmax_invisible"])
    assert "does not see" not in found.text()
    gone = remove_scores(found.run, "L1H0", sc.scores(BIASED, "L1H0").softmax_invisible())
    assert gone.distance.max() > 1e-3


def test_maps_of_terms_and_removals() -> None:
    found = explained()
    values = evaluate(found.expansion, found.run)
    term = found.terms[3].term
    one, two = figures.term_map(found, term), figures.term_map(found, term, difference=True)
    assert np.allclose(one.values.sum(1), values.value(term)[1, :, 7])
    assert np.allclose(two.values.sum(1), values.value(term)[1, :, 7] - values.value(term)[1, :, 2])
    for difference, kind in ((False, "contribution"), (True, "difference")):
        origins = figures.origin_map(found, found.terms, difference)
        assert np.allclose(origins.values.sum(1), [getattr(s, kind) for s in found.terms])
        assert origins.rows == tuple(s.term.label for s in found.terms)
    gone = remove_scores(found.run, "L1H1", "K")
    assert np.array_equal(figures.removed_map(found, "L1H1", gone.removed, gone.pattern).values, gone.pattern[1])
    score = sc.scores(BIASED, "L1H1")[7]
    value = evaluate(sc.scores(BIASED, "L1H1"), found.run).value(score)[1]
    allowed = np.isfinite(found.run.scores["L1H1"][1])
    assert np.allclose(figures.score_term_map(found, score).values, centred(value, allowed))
    assert np.allclose(figures.score_term_map(found, score, centre=False).values, np.where(allowed, value, 0))


def test_without_logits_maps_are_products_of_patterns() -> None:
    found = sc.explain(sc.random_model(sc.attention_only((1, 1), unembed=False), seed=1), [1, 2, 3])
    term = next(s.term for s in found.terms if s.term.order == 2)
    patterns = found.run.patterns
    assert np.allclose(figures.term_map(found, term).values, patterns["L1H0"] @ patterns["L0H0"])
    with pytest.raises(ValueError, match="no logit to contribute to"):
        figures.contribution_bars(found)


def test_a_map_that_looks_before_the_chosen_position_hides_what_comes_after() -> None:
    model = sc.random_model(BIASED, seed=4)
    found = sc.explain(model, ROWS[0], by=sc.logit(position=1))
    assert figures.origin_map(found, found.terms[:2]).shown.tolist() == [[True, True, False, False]] * 2
    both = sc.explain(sc.random_model(sc.attention_only((2,), causal=False), seed=4), ROWS[0], by=sc.logit(position=1))
    assert figures.origin_map(both, both.terms).shown.all()


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 9))
def test_a_pooled_map_keeps_the_largest_of_every_block(rows: int, columns: int, most: int) -> None:
    values = np.random.default_rng(rows * columns).normal(size=(rows, columns))
    shown = np.tril(np.ones(values.shape, bool))
    names = tuple(str(i) for i in range(rows)), tuple(str(i) for i in range(columns))
    small = figures.HeatMap("m", values, shown, *names).pooled(most)
    high, wide = -(-rows // most), -(-columns // most)
    assert small.values.shape == (len(small.rows), len(small.columns)) == (-(-rows // high), -(-columns // wide))
    for i in range(small.values.shape[0]):
        for j in range(small.values.shape[1]):
            block = (slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide))
            assert small.shown[i, j] == shown[block].any()
            kept = np.where(shown, values, 0)[block]
            assert abs(small.values[i, j]) == np.abs(kept).max()
            assert small.values[i, j] in kept


# ------------------------------------------------------------------------------------------------------ bars
def test_bars_add_up_to_the_logit_and_to_the_difference() -> None:
    found = explained()
    for difference, whole in ((False, found.value), (True, found.difference)):
        bars = figures.contribution_bars(found, difference)
        assert bars.labels[-2:] == (f"remainder ({found.expansion.count - len(found.terms)})", "all")
        assert len(bars.values) == len(bars.labels) == 2 + len(found.terms)
        assert sum(bars.values[:-1]) == pytest.approx(bars.values[-1])
        assert bars.values[-1] == pytest.approx(whole)
    assert figures.contribution_bars(found).of == "logit[t7]"
    assert figures.contribution_bars(found, True).of == "logit[t7] - logit[t2]"
    with pytest.raises(ValueError, match="no logit difference was chosen"):
        figures.contribution_bars(sc.explain(found.model, ROWS[0]), difference=True)


# ----------------------------------------------------------------------------------------------- matplotlib
def test_the_same_figures_are_drawn_by_matplotlib(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    found = explained()
    drawn = [
        plot.contributions(found), plot.contributions(found, difference=True), plot.pattern(found, "1.0"),
        plot.scores(found, "L1H0"), plot.scores(found, "L1H0", centre=False), plot.sources(found, "L1H0"),
        plot.patterns_without(found, "L1H0"), plot.term(found, found.terms[0]), plot.origins(found),
    ]  # fmt: skip
    assert all(isinstance(one, figure.Figure) for one in drawn)
    assert [len(one.axes) for one in drawn] == [1, 1, 2, 10, 12, 12, 10, 2, 2]  # each map has a scale of its own
    image = drawn[2].axes[0].images[0].get_array()
    assert np.array_equal(image.filled(0), found.run.patterns["L1H0"][1])
    assert image.mask.tolist() == (~np.tril(np.ones((4, 4), bool))).tolist()
    assert [t.get_text() for t in drawn[2].axes[0].get_xticklabels()] == ["t5", "t9", "t2", "t6"]
    widths = [p.get_width() for p in drawn[0].axes[0].patches]
    assert widths == [*(s.contribution for s in found.terms), found.remainder["contribution"], found.value]
    for i, one in enumerate(drawn):
        one.savefig(tmp_path / f"{i}.png", dpi=40)
        assert (tmp_path / f"{i}.png").stat().st_size > 1000


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    """Jupyter asks an object for its picture; a figure of matplotlib has one only where pyplot was imported."""
    matplotlib = pytest.importorskip("matplotlib.figure")
    drawn = pickle.loads(pickle.dumps(plot.pattern(explained(), "L0H0")))
    assert drawn._repr_png_().startswith(b"\x89PNG\r\n")
    assert not hasattr(matplotlib.Figure(), "_repr_png_")


def test_a_figure_is_drawn_where_it_is_told(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib.figure")
    own = matplotlib.Figure()
    left, right = own.subplots(1, 2)
    model = sc.random_model(sc.attention_only((1,)), d_vocab=2, seed=1)
    found = sc.explain(model, [0, 1]).labelled(["$a_$", r"\frac{"])
    assert plot.contributions(found, axes=left) is own
    assert plot.pattern(found, "L0H0", axes=right) is own
    own.savefig(tmp_path / "own.png")  # what looks like mathematics is shown as it is


def test_what_is_not_there_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="no head L4H0"):
        plot.pattern(explained(), "L4H0")
    with pytest.raises(ValueError, match="nothing to show"):
        plot.heat_maps([])


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
import symcircuits as sc
from symcircuits.render import plot
found = sc.explain(sc.random_model(sc.attention_only((1,)), seed=1), [1, 2])
try:
    plot.pattern(found, "L0H0")
except ImportError as fault:
    print(fault)
"""


def test_without_matplotlib_it_says_what_to_install() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith('figures need matplotlib, which is not installed: pip install "symcircuits[plot]"')


def test_figures_say_what_they_draw() -> None:
    pytest.importorskip("matplotlib")
    from symcircuits.render import plot

    found = sc.explain(sc.random_model(sc.attention_only((1, 1)), seed=1), [1, 2])
    draws: list[Any] = [plot.contributions, plot.origins]
    draws += [lambda f, draw=draw: draw(f, "L0H0") for draw in (plot.pattern, plot.scores, plot.patterns_without)]
    for draw in draws:
        with pytest.raises(TypeError, match="the figures draw the result of explain"):
            draw(found.run)
    with pytest.raises(TypeError, match=r"which must be one of the terms shown, e\.g\. found\.terms\[0\], not 'x'"):
        plot.term(found, "x")  # type: ignore[arg-type]
