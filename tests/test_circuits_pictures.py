"""The pictures of a model's circuits: their data against what the model computes, on the page and with matplotlib."""

import re
from pathlib import Path

import numpy as np
import pytest
from chromium import Page

import symcircuits as sc
from symcircuits.circuits.report import Circuits, find_circuits
from symcircuits.circuits.trigrams import skip_trigrams
from symcircuits.render import plot
from symcircuits.render.circuits_figures import (
    edges,
    eigenvalue_points,
    pattern_maps,
    positivity_counts,
    positivity_points,
    trigram_table,
    value_maps,
)  # fmt: skip
from symcircuits.render.circuits_svg import counts_svg, points_svg
from symcircuits.render.positions import positions_file, positions_of, positions_svg
from symcircuits.zoo import path

ROOT = Path(__file__).parent.parent
SHIPPED = sc.load(path("induction"))
FOUND = find_circuits(SHIPPED, count=4)
NO_LOGITS = find_circuits(sc.random_model(sc.attention_only((1, 1), unembed=False), n_context=12), count=2)


def test_the_positions_are_those_that_the_model_attends() -> None:
    for head in ("L1H0", "L1H1", "L1H2"):
        one = positions_of(FOUND, head)
        assert one is not None
        tokens, (look, before) = np.array(one.tokens), one.arrows
        run = SHIPPED.run(tokens)
        assert (look.head, look.start, before.head, before.start) == (head, len(tokens) - 1, "L0H2", look.end)
        for arrow in one.arrows:
            row = run.patterns[arrow.head][arrow.start]
            assert (arrow.end, arrow.weight) == (row.argmax(), pytest.approx(row.max()))
        assert tokens[one.matched[0]] == tokens[one.matched[1]] == tokens[one.query]
        assert tokens[one.copied] == one.next
        weights, written = run.patterns[head], run.arrays
        values = run.streams[1] @ written[f"W_V_{head}"].T @ written[f"W_O_{head}"].T @ written["W_U"].T
        effect = weights[one.query, one.copied] * values[one.copied]
        assert one.effect == pytest.approx(effect[one.next] - effect.mean())
        assert f"copies token {one.next}, and adds {one.effect:+.1f} to its logit" in one.said


def test_a_head_of_no_kind_of_content_has_no_picture() -> None:
    assert positions_of(FOUND, "L0H2") is None
    assert positions_of(FOUND, "L0H0") is None  # that looks at copies by itself


def test_the_picture_of_the_readme_is_what_the_shipped_model_gives() -> None:
    one = positions_of(find_circuits(SHIPPED), "L1H0")
    assert one is not None
    drawn = (ROOT / "docs" / "induction.svg").read_text("utf-8")
    assert drawn == positions_file(one), "write it anew: positions_file(positions_of(find_circuits(model), 'L1H0'))"
    assert "(docs/induction.svg)" in (ROOT / "README.md").read_text("utf-8")
    assert "(induction.svg)" in (ROOT / "docs" / "circuits.md").read_text("utf-8")


def test_skip_trigrams_against_brute_force() -> None:
    model = sc.random_model(sc.attention_only((2,), scale=True), d_vocab=7, d_model=5, d_head=3, seed=3)
    w = model.weights
    for head in ("L0H0", "L0H1"):
        looks = w["W_E"].T @ w[f"W_Q_{head}"].T @ w[f"W_K_{head}"] @ w["W_E"] * model.score_scale[head]
        moves = w["W_U"] @ w[f"W_O_{head}"] @ w[f"W_V_{head}"] @ w["W_E"]
        looks, moves = looks - looks.mean(1, keepdims=True), moves - moves.mean(0)
        best = []
        for s in range(7):
            every = [(looks[d, s] * moves[o, s], s, d, o) for d in range(7) for o in range(7)
                     if looks[d, s] > 0 and moves[o, s] > 0]  # fmt: skip
            best += [max(every)] if every else []
        best.sort(reverse=True)
        found = skip_trigrams(model, head, 4)
        assert [one[:3] for one in found] == [one[1:] for one in best[:4]]
        assert [one.attends * one.adds for one in found] == pytest.approx([one[0] for one in best[:4]])


def test_skip_trigrams_need_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="the outputs are not the input tokens"):
        skip_trigrams(NO_LOGITS.model, "L0H0")
    assert trigram_table(NO_LOGITS, "L0H0") is None
    with pytest.raises(ValueError, match="no head L7H0"):
        skip_trigrams(SHIPPED, "L7H0")


def test_points_and_counts_are_the_positivities() -> None:
    points, counts = positivity_points(FOUND), positivity_counts(FOUND)
    assert points is not None
    assert counts is not None
    at = dict(zip(points.names, zip(points.x, points.y, strict=True), strict=True))
    for head, one in FOUND.copying.items():
        own = sc.circuit(SHIPPED, "QK", head).matching().eigenvalue_positivity
        assert at[head] == (pytest.approx(own), one.eigenvalue_positivity)
    pair = FOUND.matching["L1H0", "L0H2"].eigenvalue_positivity
    assert at["L1H0 from L0H2"] == (pair, FOUND.copying["L1H0"].eigenvalue_positivity)
    assert counts.counts == (3, 0, 0, 0, 0, 0, 0, 0, 0, 3)
    assert sum(counts.counts) == len(FOUND.copying)
    for one in eigenvalue_points(FOUND):
        assert max(np.hypot(one.x, one.y)) == pytest.approx(1)
    assert positivity_points(NO_LOGITS) is positivity_counts(NO_LOGITS) is None
    drawn = points_svg(points, 260)
    assert drawn.count("<circle") == len(points.names)
    assert all(f">{name}</text>" in drawn for name in points.names)
    assert counts_svg(counts).count(">3</text>") == 2


def test_edges_are_the_pairs_above_chance() -> None:
    found = edges(FOUND)
    assert [(e.kind, e.later, e.earlier) for e in found] == [("K", f"L1H{i}", "L0H2") for i in (0, 1, 2)]
    assert all(e.score == FOUND.composition[e.kind][e.later, e.earlier] for e in found)


def test_value_maps_are_patterns_by_what_is_written() -> None:
    patterns, values = pattern_maps(FOUND), value_maps(FOUND)
    run = SHIPPED.run([int(token) for token in patterns[0].columns])
    for pattern, value in zip(patterns, values, strict=True):
        head = value.title[:4]
        weighted = sc.evaluate(sc.logits(SHIPPED), run).weighted_pattern(head, "output")
        assert pattern.title.startswith(head)
        np.testing.assert_allclose(value.values, weighted)


# --------------------------------------------------------------------------------------------------- drawn
@pytest.mark.parametrize(
    ("what", "axes"), [("graph", 1), ("eigenvalues", 9), ("positivity", 2), ("positions", 3), ("values", 12)]
)
def test_everything_is_drawn_with_matplotlib(what: str, axes: int) -> None:
    pytest.importorskip("matplotlib")
    figure = plot.circuits(FOUND, what)
    assert len(figure.axes) == axes
    figure.canvas.draw()  # type: ignore[attr-defined]
    if what == "positivity":
        points = positivity_points(FOUND)
        assert points is not None
        drawn = figure.axes[0].collections[0].get_offsets()
        np.testing.assert_allclose(drawn, np.stack([points.x, points.y], 1))


def test_what_cannot_be_drawn_is_said() -> None:
    pytest.importorskip("matplotlib")
    for what in ("eigenvalues", "positivity", "positions"):
        with pytest.raises(ValueError, match=f"there is nothing to draw of {what}"):
            plot.circuits(NO_LOGITS, what)
    with pytest.raises(ValueError, match=r"what must be composition, .* or positions, not 'size'"):
        plot.circuits(FOUND, "size")


def page(found: Circuits) -> str:
    return found.html()


def test_the_page_has_the_pictures() -> None:
    text = page(FOUND)
    one = positions_of(FOUND, "L1H0")
    assert one is not None
    assert positions_svg(one) in text
    assert one.said in re.sub("<[^>]*>", "", text)
    for name in ("induction", "graph", "heads", "causes", "copying", "trigrams", "losses"):
        assert f'id="{name}"' in text
    bare = page(NO_LOGITS)
    assert 'id="trigrams"' not in bare
    assert 'id="induction"' not in bare


def test_the_text_shows_what_a_token_looks_at(chromium: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(FOUND), "utf-8")
    with Page(chromium, tmp_path / "browser") as browser:
        browser.size(390)
        browser.open((tmp_path / "page.html").as_uri())
        assert browser.value("document.documentElement.scrollWidth") == 390
        maps = pattern_maps(FOUND)
        first = next(i for i, one in enumerate(maps) if one.title == "L1H0: induction")
        assert browser.value("document.querySelector('[data-looks] select').value") == str(first)
        for query in (14, 3):
            browser.value(f"document.querySelectorAll('.looks button')[{query}].focus()")
            said = browser.value("document.querySelector('[data-looks] output').textContent")
            row = maps[first].values[query]
            key = int(row.argmax())
            names = maps[first].columns
            assert said.startswith(f"{query} ({names[query]}): {row[key]:.3g} on {key} ({names[key]})")
            colour = "getComputedStyle(document.querySelectorAll('.looks button')[{}]).backgroundColor"
            assert browser.value(colour.format(key)) != browser.value(colour.format(query))
        browser.value("document.querySelector('[data-looks] select').value = '0'")
        browser.value("document.querySelector('[data-looks] select').dispatchEvent(new Event('change'))")
        said = browser.value("document.querySelector('[data-looks] output').textContent")
        assert said.startswith(f"3 ({names[3]}): {maps[0].values[3].max():.3g} on ")
        assert browser.said == []
