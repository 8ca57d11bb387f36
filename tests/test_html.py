"""The page that explain writes: its numbers, that it needs nothing else, that it is safe; and in a real browser."""

import base64
import dataclasses
import functools
import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from chromium import Page
from conftest import find_tool
from hypothesis import given
from hypothesis import strategies as st
from strategies import architectures, examples

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.explanation.ablation import remove_heads, remove_scores
from symcircuits.explanation.explain import Explanation
from symcircuits.model import needs
from symcircuits.render import html, html_heads
from symcircuits.render.markup import Markup, el
from symcircuits.render.tables import number
from symcircuits.values.closure import worst_closure
from symcircuits.zoo import path

TOKENS = [0, 7, 19, 3, 11, 26, 7, 19, 3, 11]
HOSTILE = [
    "<script>alert(1)</script>", "</style><script>window.broken=1</script>", '"onload="window.broken=1', "]]>",
    "'><img src=x onerror=window.broken=1>", "</script>", "<!--", "&lt;b&gt;", "\u202eevil\x00\x1b[2J", "\ud800",
    "x" * 5000, "$\\href{javascript:window.broken=1}{a}$",
]  # fmt: skip


@functools.cache
def zoo() -> Explanation:
    labels = [f"w{i}" for i in range(32)]
    return sc.explain(sc.load(path()), TOKENS, by=sc.logit(against=3), top=12).labelled(labels)


@functools.cache
def page_of_zoo() -> str:
    return zoo().html()


class Element:
    """An element as it was read: tag, attributes, children, all text in it."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes, self.children = tag, attributes, list[Element | str]()

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "", **attributes: str) -> "list[Element]":
        found = []
        for child in self.children:
            if isinstance(child, Element):
                wanted = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
                if tag in ("", child.tag) and wanted.items() <= child.attributes.items():
                    found.append(child)
                found += child.all(tag, **attributes)
        return found


class Reader(HTMLParser):
    """Reads a page into elements, and refuses one whose tags do not close."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack = [Element("", {})]
        self.feed(page)
        self.close()
        assert len(self.stack) == 1, f"not closed: {[e.tag for e in self.stack[1:]]}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute stands twice: {attrs}"
        made = Element(tag, dict(attrs))
        self.stack[-1].children.append(made)
        if tag not in ("meta", "br", "input", "link", "img"):
            self.stack.append(made)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.stack[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.stack[-1].children.append(data)


def read(page: str) -> Element:
    return Reader(page).stack[0]


def rows(page: Element, caption: str) -> list[list[str]]:
    """The cells of the table whose caption starts so, without its header; formulas left out."""
    table = next(t for t in page.all("table") if t.all("caption")[0].text.startswith(caption))
    found = []
    for tr in table.all("tbody")[0].all("tr"):
        cells = [c for c in tr.children if isinstance(c, Element)]
        found.append(["".join(x if isinstance(x, str) else "" for x in c.children) or c.text for c in cells])
    return found


# -------------------------------------------------------------------------------------------------- numbers
def test_terms_totals_and_closure_are_those_of_the_explanation() -> None:
    found, page = zoo(), read(page_of_zoo())
    terms = rows(page, "Largest terms")
    kinds = ("centred", "norm", "contribution", "difference")
    for cells, s in zip(terms, found.terms, strict=False):
        assert cells == [s.term.label, s.term.composition, *(number(getattr(s, k)) for k in kinds)]
    rest = found.remainder
    assert len(terms) == 13
    assert terms[-1] == ["remainder: the exact sum of the 4 terms not shown", "", *(number(rest[k]) for k in kinds)]
    for cells, (k, v) in zip(rows(page, "Sums of the 16 terms"), found.totals["order"].items(), strict=False):
        assert cells == [f"order {k}", str(v["count"]), *(number(v[k]) for k in kinds)]
    closures = rows(page, "Largest |sum")
    assert closures[0] == ["pass", "logits", number(found.closure.error), number(found.closure.bound), "16 terms"]
    assert len(closures) == 8
    layer = worst_closure(found.layers)
    assert layer is not None
    assert closures[-1][:4] == ["pass", "every layer", number(layer.error), number(layer.bound)]
    bars = rows(page, "One bar per term")
    assert [b[2] for b in bars[:-2]] == [number(s.contribution) for s in found.terms]
    assert [b[4] for b in bars[-2:]] == [number(rest["difference"]), number(found.difference)]
    assert all(a in page.text for a in found.assumptions)


def test_formulas_are_those_of_the_words() -> None:
    page, found = read(page_of_zoo()), zoo()
    table = next(t for t in page.all("table") if t.all("caption")[0].text.startswith("Largest terms"))
    maths = table.all("math")
    assert [m.attributes["alttext"] for m in maths] == [s.term.text for s in found.terms]
    assert [m.all("annotation")[0].text for m in maths] == [s.term.latex() for s in found.terms]


def test_scores_and_removals_of_a_head() -> None:
    found, page = zoo(), read(page_of_zoo())
    scores = found.scores["L1H0"]
    shares = rows(page, "Scores of L1H0 by composition")
    assert [r[0] for r in shares] == ["none", "Q", "K", "QK"]
    assert shares[2] == [
        "K", "6", number(scores.shares["K"]), number(scores.centred_shares["K"]), number(scores.norms["K"]),
        number(scores.centred_norms["K"]),
    ]  # fmt: skip
    assert len(rows(page, "Scores of L1H0 by source")) == 4
    gone = remove_scores(found.run, "L1H0", "K")
    cells = next(r for r in rows(page, "What changes when a part of the scores of L1H0") if r[0] == "composition K")
    logits, differences = zip(*(found.measure.at(x) for x in (gone.frozen, gone.recomputed)), strict=True)
    distance = [gone.distance[1:].mean(), gone.distance.max()]
    assert cells[1:] == [*map(number, distance), *map(number, (logits[0], differences[0], logits[1], differences[1]))]
    head = remove_heads(found.run, "L0H2")
    cells = next(r for r in rows(page, "Change of the chosen logit") if r[0] == "L0H2")
    parts = [found.measure.at(x) for x in (head.value_part, head.pattern_part, head.change)]
    assert cells[1:] == [number(p[i]) for i in (0, 1) for p in parts]
    maps = {f.all("figcaption")[0].text for f in page.all("section", data_head="L1H0")[0].all("figure")}
    assert {"pattern of L1H0", "composition K", "embed | embed", "pattern of L1H0 without composition K"} <= maps


def test_without_softmax_every_query_has_a_distance() -> None:
    model = sc.random_model(sc.attention_only((1, 1), softmax=False), seed=1)
    found = sc.explain(model, [1, 2, 3])
    page = found.html("L1H0")
    far = sc.remove_scores(found.run, "L1H0", "QK").distance
    listed = rows(read(page), "What changes when a part of the scores of L1H0 is removed (computed, not estimated)")
    qk = next(r for r in listed if r[0] == "composition QK")
    assert far[0] > 0  # of the first query, which has one key: a pattern of softmax would be 1 there
    assert qk[1:3] == [number(float(far.mean())), number(float(far.max()))]
    assert "0 the same pattern; without softmax it has no upper limit" in page
    assert "which softmax does not see" not in page


def test_what_softmax_does_not_see_has_a_row_of_its_own() -> None:
    model = sc.random_model(sc.attention_only((2, 2), biases=True), seed=1)
    page = read(sc.explain(model, [1, 2, 3]).html("L1H0"))
    row = next(r for r in rows(page, "Scores of L1H0 by composition") if "not seen by softmax" in r[0])
    assert row[1:4] == ["28", "0", "0"]
    assert re.fullmatch(r"of these not seen by softmax \(constant along the keys( to within [1-9.]+e-1\d)?\)", row[0])
    assert "not seen by softmax" in {f.text for f in page.all("figcaption")}


def test_the_colour_scale_of_a_narrow_heat_map_is_whole() -> None:
    page = read(sc.explain(sc.random_model(sc.attention_only((1, 1)), seed=1), [3]).html())
    drawn = page.all("svg", role="img")
    assert drawn
    for svg in drawn:
        ends = [float(r.attributes["x"] or 0) + 5 for r in svg.all("rect") if r.attributes.get("width") == "5"]
        assert len(ends) in (11, 21)
        assert max(ends) <= float(svg.attributes["width"] or 0)


def test_values_of_a_heat_map() -> None:
    found = zoo()
    section = read(page_of_zoo()).all("section", data_head="L1H0")[0]
    svg = section.all("svg", role="img")[0]
    values = (svg.attributes["data-values"] or "").split(" ")
    for value, right, shown in zip(values, found.run.patterns["L1H0"].ravel(), np.tri(10).ravel(), strict=True):
        assert (value == "-") == (not shown)
        assert not shown or float(value) == pytest.approx(right, rel=0.006, abs=1e-300)
    assert json.loads(svg.attributes["data-rows"] or "") == [f"w{t}" for t in TOKENS]
    cells = sum(
        abs(int(run[1]))
        for p in svg.all("path")
        for run in re.finditer(r"M\d+ \d+h(\d+)v1h-\d+z", p.attributes["d"] or "")
    )
    assert cells == 55  # every entry that the mask leaves, once


def test_a_failing_closure_cannot_be_missed() -> None:
    found = dataclasses.replace(zoo(), closure=dataclasses.replace(zoo().closure, passed=False))
    page = read(found.html())
    assert "A CLOSURE FAILS" in page.text
    assert rows(page, "Largest |sum")[0][0] == "FAIL"
    assert "All closures pass" not in page.text
    assert "FAIL" not in page_of_zoo()


def test_a_model_without_logits_and_one_without_heads() -> None:
    stream = sc.explain(sc.random_model(sc.attention_only((2, 1), unembed=False), seed=1), [1, 2, 3])
    page = read(stream.html())
    assert "Contributions" not in {h.text for h in page.all("h2")}
    assert rows(page, "Change of the stream")[0][0] == "L0H0"
    assert "product of a term's patterns" in page.text
    bare = read(sc.explain(sc.random_model(sc.attention_only(()), seed=1), [1]).html())
    assert [h.text for h in bare.all("h2")][:5] == [
        "What was found", "What is held fixed and assumed", "Closure: do the terms add up to the model?",
        "Totals by order and composition", "Largest terms",
    ]  # fmt: skip
    nothing = read(sc.explain(sc.random_model(sc.attention_only((1,)), seed=1), [1, 2], top=0).html())
    assert rows(nothing, "Largest terms")[0][0] == "remainder: the exact sum of the 2 terms not shown"


def test_batches_show_the_chosen_row() -> None:
    model = sc.random_model(sc.attention_only((1, 1)), seed=1)
    page = read(sc.explain(model, [[1, 2, 3], [4, 5, 6]], by=sc.logit(row=1)).html())
    assert [li.text for li in page.all("ol")[0].all("li")] == ["04", "15", "26"]
    assert "at position 2 of row 1" in page.all("header")[0].text


@examples(20)
@given(architectures(max_layers=3, max_heads=3, max_terms=60), st.integers(1, 4), st.booleans(), st.booleans())
def test_every_architecture_has_a_page(arch: sc.Architecture, n: int, batch: bool, two: bool) -> None:
    tokens = [[i, 3, 1, 4][:n] for i in (2, 7)] if batch else [5, 3, 1, 4][:n]
    by = sc.logit(4, against=6) if two and arch.unembed else None
    found = sc.explain(sc.random_model(arch, seed=1).run(tokens, "float32"), by=by, top=7)
    page = read(found.html())
    assert len(rows(page, "Largest terms")) == len(found.rows) + 1
    assert len(found.rows) == 7 or len(found.terms) == found.expansion.count
    assert len(page.all("section", data_head=str(html.opened(found)))) == bool(arch.all_heads)
    assert "nan" not in page.text
    assert found.text(60)


# ------------------------------------------------------------------------------------------ opened and left out
def test_the_head_that_is_opened() -> None:
    found = zoo()
    margins = {h: abs(s.margin) for h, s in found.scores.items() if h.startswith("L1")}
    assert html.opened(found) == max(margins, key=lambda h: margins[h])
    for head in (None, "L0H1", "0.1"):
        options = read(found.html(head)).all("select", id="head-choice")[0].all("option")
        chosen = [o.text for o in options if "selected" in o.attributes]
        assert chosen == [html.opened(found) if head is None else "L0H1"]
    with pytest.raises(ValueError, match="no head L2H0"):
        found.html("L2H0")


def test_nothing_is_left_out_of_a_small_page_and_much_of_a_large_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sc.random_model(sc.attention_only((2, 2)), seed=1)
    small = sc.explain(model, [1, 2, 3], top=5)
    assert read(small.html()).all("h2", id="left-out")
    assert "Nothing." in page_section(read(small.html()), "left-out").text
    monkeypatch.setattr(html, "MOST_ROWS", 3)
    monkeypatch.setattr(html, "MOST_MAPS", 2)
    monkeypatch.setattr(html, "MOST_ORIGINS", 1)
    monkeypatch.setattr(html, "MOST_TOKENS", 2)
    monkeypatch.setattr(html, "MOST_HEADS", 4)
    monkeypatch.setattr(html, "MOST_CELLS", 2)
    monkeypatch.setattr(html_heads, "MOST_CELLS", 2)
    monkeypatch.setattr(html_heads, "MOST_BYTES", 1)
    monkeypatch.setattr(html_heads, "MOST_REMOVALS", 3)
    monkeypatch.setattr(html_heads, "FEW_REMOVALS", 2)
    monkeypatch.setattr(html_heads, "MOST_SINGLE", 3)
    page = read(sc.explain(model, [1, 2, 3], top=8).html("L1H1"))
    said = page_section(page, "left-out").text
    for part in (
        "5 of the 8 largest terms: they are in the remainder", "in the list of tokens: all after the first 2",
        "heat maps of single terms: all but the 2 largest", "all but the 4 worst of 5 rows",
        "at most 2 rows and columns", "in the map of where terms come from: all but the 1 largest",
        "the scores of 3 heads with smaller margins: L0H0, L0H1, L1H0",
        "the removal of 1 other head, which changes less",
        "what changes when the rest is recomputed, for all but 2 heads",
        "removing score terms one by one, for other heads than L1H1",
    ):  # fmt: skip
        assert part in said
    terms = rows(page, "Largest terms")
    assert len(terms) == 4
    exact = sc.explain(model, [1, 2, 3], top=3).remainder
    assert terms[-1][2:] == [number(exact[kind]) for kind in ("centred", "norm", "contribution")]
    assert [s.attributes["data-head"] for s in page.all("section") if "data-head" in s.attributes] == ["L1H1"]
    page = read(sc.explain(model, [1, 2, 3], top=8).html("L0H1"))
    links = [a.attributes["href"] for a in page.all("a") if "#head-" in (a.attributes["href"] or "")]
    assert links == ["#head-L0H1"]  # not to what is left out


def page_section(page: Element, name: str) -> Element:
    return next(s for s in page.all("section") if any(h.attributes.get("id") == name for h in s.all("h2")))


@pytest.mark.parametrize("norm", [None, "RMS"])
def test_of_many_heads_those_that_matter_most_are_recomputed(
    monkeypatch: pytest.MonkeyPatch, norm: Literal["RMS"] | None
) -> None:
    """Half by the margins of their scores, half by what they change with everything held fixed, which all have."""
    monkeypatch.setattr(html_heads, "MOST_REMOVALS", 5)
    monkeypatch.setattr(html_heads, "FEW_REMOVALS", 4)
    found = sc.explain(sc.random_model(sc.transformer((4, 4), norm=norm), seed=3), [1, 2, 3, 4], by=sc.logit(2))
    last = set() if norm else {head for head in found.scores if head.startswith("L1")}  # nothing answers these
    gone = {head: remove_heads(found.run, head) for head in found.scores}
    by_margin = sorted(found.scores, key=lambda h: -abs(found.scores[h].margin))
    by_size = sorted(by_margin, key=lambda h: -abs(gone[h].value_part[-1, 2]))
    margins, fixed = ([h for h in order if h not in last] for order in (by_margin, by_size))
    again = {*margins[:2], *[h for h in fixed if h not in margins[:2]][:2]}
    shown = again | {*[h for h in by_size if h not in again][:1]}
    table = rows(read(found.html()), "Change of the chosen logit")
    assert [row[0] for row in table] == [h for h in found.scores if h in shown]
    for head, value, pattern, whole in table:
        one = gone[head]
        assert np.isclose(float(value), one.value_part[-1, 2], rtol=1e-3)
        assert [pattern, whole] == (
            [number(one.pattern_part[-1, 2]), number(one.change[-1, 2])]
            if head in again
            else ["0", number(one.change[-1, 2])]
            if head in last
            else ["", ""]
        )


def test_many_heads_and_a_long_context_make_no_large_file() -> None:
    model = sc.random_model(sc.attention_only((8, 8), "standard"), n_context=160, d_vocab=50, seed=1)
    found = sc.explain(model, np.arange(160) % 50, top=10**6).labelled(["<long name>" * 9] * 50)
    page = found.html("L0H7")
    assert len(page.encode()) < 8_000_000
    said = page_section(read(page), "left-out").text
    assert "the scores of" in said
    assert "at most 40 rows and columns" in said
    svg = read(page).all("section", data_head="L0H7")[0].all("svg", role="img")[0]
    assert len(json.loads(svg.attributes["data-rows"] or "")) == 40


# --------------------------------------------------------------------------------------------------- by itself
def test_the_page_needs_nothing_else() -> None:
    page = page_of_zoo()
    elements = read(page).all()
    for element in elements:
        assert element.tag not in ("link", "iframe", "object", "embed", "base", "img", "form", "image", "use")
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "style", "action", "data", "xlink:href")
            assert name != "href" or (value or "").startswith("#")
    style = next(e for e in elements if e.tag == "style").text
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in page.replace("http-equiv", "")


def test_nothing_runs_and_nothing_loads_but_what_is_written_in_it() -> None:
    page = read(page_of_zoo())
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0].attributes["content"] or ""
    assert policy.startswith("default-src 'none'; ")
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        (element,) = page.all(tag)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_the_same_explanation_gives_the_same_page() -> None:
    assert zoo().html() == page_of_zoo()


def test_the_page_can_be_used_without_eyes() -> None:
    page = read(page_of_zoo())
    ids = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert page.all("html")[0].attributes["lang"] == "en"
    assert len(page.all("h1")) == len(page.all("main")) == 1
    for link in page.all("a"):
        assert (link.attributes["href"] or "")[1:] in ids
    for svg in page.all("svg"):
        hidden = svg.attributes.get("aria-hidden") == "true"
        assert hidden or (svg.attributes["role"] == "img" and "heat map, " in (svg.attributes["aria-label"] or ""))
    labelled = [s for label in page.all("label") for s in label.all("select")]
    assert len(labelled) == len(page.all("select")) > 5
    assert all("scope" in th.attributes for th in page.all("th"))
    for box in page.all("div", class_="box"):
        assert (box.attributes["role"], box.attributes["tabindex"]) == ("region", "0")
        assert box.attributes["aria-label"]


# ------------------------------------------------------------------------------------------------------- safety
@given(st.text(st.characters(codec=None), max_size=60), st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_text(text: str, value: str) -> None:
    made = read(str(el("p", text, el("b", text), title=value, data_x=value)))
    (outer,) = made.children
    assert isinstance(outer, Element)
    assert [e.tag for e in outer.all()] == ["b"]
    assert outer.attributes.keys() == {"title", "data-x"}
    if text.isprintable():
        assert outer.text == text * 2


def test_only_markup_is_markup() -> None:
    assert el("p", Markup("<b>"), "<b>") == "<p><b>&lt;b&gt;</p>"


@functools.cache
def hostile() -> str:
    """A page in which every text that comes from outside is an attack."""
    model = sc.random_model(sc.attention_only((1, 2), "standard", True), d_vocab=12, seed=1)
    evil = dataclasses.replace(model, name="".join(HOSTILE[:8]), notes=tuple(HOSTILE), dtype=HOSTILE[1])
    return sc.explain(evil, list(range(12)), by=sc.logit(1, against=4)).labelled(HOSTILE).html()


def test_texts_from_outside_are_escaped_everywhere() -> None:
    page = read(hostile())
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert page.all("body")[0].all("script")[0].text == read(page_of_zoo()).all("script")[0].text
    assert not page.all("img")
    for element in page.all():
        assert not any(name.startswith("on") for name in element.attributes)
    assert page.all("title")[0].text == "explain " + "".join(HOSTILE[:8])
    shown = [li.all("span")[0].text + "|" + li.text for li in page.all("ol")[0].all("li")]
    assert shown[0] == "0|0<script>alert(1)</script>"
    assert shown[3] == "3|3]]>"
    assert "\\u202eevil\\x00\\x1b[2J" in shown[8]
    assert len(shown[10]) < 100
    notes = [li.text for li in page_section(page, "assumptions").all("li")]
    assert HOSTILE[0] in notes
    assert HOSTILE[7] in notes


# ------------------------------------------------------------------------------------------------------ files
def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert zoo().save_html(file) == file
    assert file.read_text("utf-8") == page_of_zoo()
    with pytest.raises(ValueError, match="no head L9H9"):
        zoo().save_html(file, head="L9H9")
    assert file.read_text("utf-8") == page_of_zoo()
    with pytest.raises(OSError, match="does not exist"):
        zoo().save_html(tmp_path / "missing" / "report.html")
    assert [f.name for f in tmp_path.iterdir()] == ["report.html"]


# ----------------------------------------------------------------------------------------------- in a browser
@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(chromium, tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("pages") / "zoo.html"
    file.write_text(page_of_zoo(), "utf-8")
    return file.as_uri()


@pytest.fixture
def opened(browser: Page, address: str) -> Page:
    browser.size(1280)
    browser.send("Emulation.setEmulatedMedia", media="", features=[])
    browser.open(address)
    return browser


VISIBLE = "[...document.querySelectorAll(`{}`)].filter(e => e.checkVisibility()).length"


def test_a_browser_has_no_complaint_and_asks_for_nothing(opened: Page, address: str) -> None:
    assert opened.value("document.title") == "explain induction"
    assert "held fixed: the attention pattern of every head" in opened.value("document.body.innerText")
    assert opened.said == []
    assert opened.asked == [address]
    sizes = opened.value("[...document.querySelectorAll('#terms ~ * math')].map(m => m.getBoundingClientRect().width)")
    assert len(sizes) == 12
    assert min(sizes) > 20


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("page", ["zoo", "hostile"])
def test_no_width_scrolls_the_page_sideways(browser: Page, address: str, tmp_path: Path, width: int, page: str) -> None:
    if page == "hostile":
        (tmp_path / "page.html").write_text(hostile(), "utf-8")
        address = (tmp_path / "page.html").as_uri()
    browser.size(width, mobile=width < 700)
    browser.open(address)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("innerWidth") == width  # a phone has not zoomed out to fit something wide
    wide = browser.value("[...document.querySelectorAll('.box')].filter(b => b.scrollWidth > b.clientWidth).length")
    assert wide > 0 or width > 390  # what is wide scrolls in its box
    small = "[...document.querySelectorAll('figure.map svg')].every(s => s.getBoundingClientRect().right <= innerWidth)"
    assert browser.value(small)


def test_attacks_do_not_run(browser: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(hostile(), "utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.value("typeof window.broken") == "undefined"
    assert browser.said == []
    assert len(browser.asked) == 1
    assert browser.value("document.querySelectorAll('[data-filter]:not([hidden])').length") > 0  # its own script runs


def test_the_policy_stops_a_script_that_is_put_in(browser: Page, tmp_path: Path) -> None:
    """The second wall: had the first one a hole."""
    broken = page_of_zoo().replace(
        "<main>", "<main><script>window.broken=1</script><img src=x onerror=window.broken=2>"
    )
    (tmp_path / "page.html").write_text(broken, "utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.value("typeof window.broken") == "undefined"
    assert any("Content Security Policy" in said for said in browser.said)


def choose(page: Page, selector: str, letter: str) -> None:
    """As by hand: the list gets the focus, and a letter is typed."""
    page.value(f"document.querySelector(`{selector}`).focus()")
    page.key(letter, ord(letter.upper()), letter)


def test_filters_hide_rows_and_bars(opened: Page) -> None:
    found = zoo()
    rows_shown, bars_shown = VISIBLE.format("#terms ~ * tr[data-in]"), VISIBLE.format("#contributions ~ * tr[data-in]")
    assert (opened.value(rows_shown), opened.value(bars_shown)) == (12, 12)
    choose(opened, "[data-filter=terms] select[name=composition]", "V")
    virtual = [s for s in found.terms if s.term.composition == "V"]
    assert 0 < len(virtual) < 12
    assert (opened.value(rows_shown), opened.value(bars_shown)) == (len(virtual), len(virtual))
    said = opened.value("document.querySelector('[data-filter=terms] output').textContent")
    together = sum(s.contribution or 0 for s in virtual)
    assert said.startswith(f"{len(virtual)} of 12 terms, together ")
    assert float(said.split(" ")[5]) == pytest.approx(together, rel=1e-3)
    opened.value("document.querySelector('[data-filter=terms] select[name=heads]').value = 'L0H2'")
    opened.value("document.querySelector('[data-filter=terms] select[name=heads]').dispatchEvent(new Event('change'))")
    both = [s for s in virtual if "L0H2" in map(str, s.term.heads[0])]
    assert opened.value(rows_shown) == len(both) < len(virtual)
    assert opened.value(VISIBLE.format("#terms ~ * tr.rest")) == 1  # the remainder stays
    opened.value("document.querySelector('[data-filter=terms] button').focus()")
    opened.key("Enter", 13, "\r")
    assert opened.value(rows_shown) == 12


def test_one_head_is_shown_at_a_time(opened: Page) -> None:
    heads = VISIBLE.format("section[data-head]")
    assert opened.value(heads) == 1
    assert opened.value(VISIBLE.format(f"#head-{html.opened(zoo())}")) == 1
    opened.value("document.querySelector('#head-choice').focus()")
    for _ in range(6):
        opened.key("ArrowUp", 38)
    assert opened.value("document.querySelector('#head-choice').value") == "L0H0"
    assert (opened.value(heads), opened.value(VISIBLE.format("#head-L0H0"))) == (1, 1)
    opened.value("document.querySelector('a[href=\"#head-L1H1\"]').click()")
    opened.value("new Promise(done => setTimeout(done, 100))")
    assert (opened.value(heads), opened.value(VISIBLE.format("#head-L1H1"))) == (1, 1)
    assert opened.value("document.querySelector('#head-choice').value") == "L1H1"


def test_a_heat_map_is_read_out_by_keys_and_by_pointer(opened: Page) -> None:
    head = html.opened(zoo())
    opened.value(f"document.querySelector('#head-{head} svg[role=img]').focus()")
    for name, code in (("ArrowDown", 40), *[("ArrowDown", 40)] * 9, *[("ArrowRight", 39)] * 5):
        opened.key(name, code)
    read_out = f"document.querySelector('#head-{head} .read').textContent"
    value = zoo().run.patterns[str(head)][9, 5]
    assert opened.value(read_out) == f"query 9 w11, key 5 w26: {value:.3g}"
    box = opened.value(
        f"(() => {{ const s = document.querySelector('#head-{head} svg[role=img]');"
        "s.scrollIntoView({block: 'center'});"
        "const b = s.getBoundingClientRect(), [l, t, c] = s.dataset.at.split(' ').map(Number);"
        "return [b.left + l + c * 0.5, b.top + t + c * 8.5]; })()"
    )
    opened.move(*box)
    assert opened.value(read_out) == f"query 8 w3, key 0 w0: {zoo().run.patterns[str(head)][8, 0]:.3g}"
    opened.move(box[0] + 18 * 9, box[1])
    assert opened.value(read_out) == "query 8 w3, key 9 w11: masked"


def test_all_that_can_be_used_is_reached_by_tab_and_shows_its_focus(opened: Page) -> None:
    can = "a[href], button, select, summary, [tabindex='0']"
    wanted = opened.value(VISIBLE.format(can))
    seen = 0
    for _ in range(wanted):
        opened.key("Tab", 9)
        on = opened.value(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            f"return [e.matches(`{can}`), s.outlineStyle, parseFloat(s.outlineWidth)]; }})()"
        )
        assert on == [True, "solid", 3]
        seen += 1
    assert opened.value("new Set([document.activeElement]).size") == 1
    assert seen == wanted > 20
    assert opened.value("document.activeElement.getAttribute('href')") is not None  # the last: links of the removals


def contrast(colours: list[str]) -> float:
    """Ratio of luminances as WCAG defines it."""
    light = []
    for colour in colours:
        parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_light_and_on_dark(opened: Page, scheme: str) -> None:
    opened.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    back = opened.value("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    for selector in ("body", ".soft", "a", "caption", ".holds", "math", "legend"):
        colour = opened.value(f"getComputedStyle(document.querySelector('{selector}')).color")
        assert contrast([colour, back]) >= 4.5, selector
    fill = opened.value("getComputedStyle(document.querySelector('figure.map svg text')).fill")
    assert contrast([fill, back]) >= 7


def test_it_prints(opened: Page, tmp_path: Path) -> None:
    opened.send("Emulation.setEmulatedMedia", media="print")
    assert opened.value(VISIBLE.format("nav, .controls")) == 0
    assert opened.value("getComputedStyle(document.querySelector('.box')).overflowX") == "visible"
    assert opened.value("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    opened.size(690)  # the width of the sheet
    right = "Math.max(...[...document.querySelectorAll('table, svg')].map(e => e.getBoundingClientRect().right))"
    assert opened.value(right) <= 700
    opened.send("Emulation.setEmulatedMedia", media="")
    (tmp_path / "page.pdf").write_bytes(opened.pdf())
    pdftotext = find_tool("pdftotext")
    text = subprocess.run([pdftotext, "-layout", tmp_path / "page.pdf", "-"], capture_output=True, text=True).stdout
    for part in ("explain induction", "All closures pass", "remainder: the exact sum", "How to read this page"):
        assert part in text
    assert "the patterns without each part" in text
    assert "without composition K" in text  # what was folded away is on the paper
    assert opened.value("document.querySelectorAll('details[open]').length") == 0  # and folded again


def test_without_its_script_everything_is_there(browser: Page, address: str) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(address)
        assert browser.value(VISIBLE.format("section[data-head]")) == 6
        assert browser.value(VISIBLE.format("[data-filter]")) == 0
        assert browser.value(VISIBLE.format("tr[data-in=terms]")) == 24
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


# ------------------------------------------------------------------------------- a part that cannot be made
def test_a_page_without_memory_for_its_reruns_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed anew says that it could not be; all that is known already is there."""
    found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])
    whole = found.html()
    monkeypatch.setattr(needs, "_LITTLE", 0)
    monkeypatch.setattr(needs, "free_memory", lambda: 1000)
    page = found.html("L1H0")
    assert page.count("could not be made: a run of this model on tokens of shape [3] in float64 takes") == 5
    assert "removing heads could not be made" in page
    assert "removing parts of the scores of L1H0 could not be made" in page
    for title in (
        "Largest terms",
        "Totals by order",
        "Closure: do the terms",
        "Scores of L1H0",
        "What this page leaves",
    ):
        assert title in page
    assert "could not be made" not in whole


def test_a_head_whose_parts_cannot_be_removed_leaves_those_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of all heads are removed at once; where one has none that can be, each head is by itself."""
    found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])
    own, title = html_heads._Split.removed, "What changes when a part of the scores of {} is removed"

    def removed(split: Any, head: str) -> Any:
        if head == "L1H0":
            raise ValueError("it has none")
        return own(split, head)

    right = tables_of(found.html())
    monkeypatch.setattr(html_heads._Split, "removed", removed)
    page = found.html()
    assert page.count("removing parts of the scores of L1H0 could not be made: it has none") == 1
    assert title.format("L1H0") not in page
    for head in ("L0H0", "L0H1", "L1H1"):
        assert title.format(head) in page
    assert [table for table in right if "scores of L1H0 is removed" not in table] == tables_of(page)


def tables_of(page: str) -> list[str]:
    """The tables of what changes."""
    return [found for found in re.findall(r"<table.*?</table>", page, re.DOTALL) if "What changes when" in found]


@pytest.mark.parametrize("part", ["score_maps", "score_parts", "source_maps", "distance", "_changes", "figure"])
def test_no_part_of_a_page_loses_the_rest(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])

    def broken(*args: Any, **options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(html_heads, part, broken)
    page = found.html()
    assert "could not be made: MemoryError" in page
    assert "Largest terms" in page
    assert page.endswith("</html>\n")


# ------------------------------------------------------------------------------------------------------ the foot
def foot(page: str) -> str:
    return re.sub(r"<[^>]*>", " ", page.partition("<footer>")[2].partition("</footer>")[0])


def test_the_foot_says_version_date_command_and_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    page = tmp_path / "a.html"
    model = tmp_path / "my model"
    shutil.copytree(path(), model)
    words = ["explain", str(model), "--tokens", "1,2,3", "--html", str(page)]
    assert main(words) == 0
    found = foot(page.read_text("utf-8"))
    assert f"Written by symcircuits {sc.__version__} on 2023-11-14." in found
    assert shlex.join(["symcircuits", *words]) in unescape(found)
    for file in (model / "config.json", model / "model.safetensors"):
        assert f"{file.name}:  {hashlib.sha256(file.read_bytes()).hexdigest()}" in found
    again = page.read_text("utf-8")
    assert main(words) == 0
    assert page.read_text("utf-8") == again  # the same page, byte by byte
    assert main(["circuits", str(model), "--draws", "2", "--html", str(page)]) == 0
    assert f"symcircuits circuits '{model}' --draws 2" in unescape(foot(page.read_text("utf-8")))
    capsys.readouterr()


def test_the_foot_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    changed = sc.load(path()).with_(sc.readout(np.ones((1, sc.load(path()).d_model)), "probe"))
    for model in (sc.random_model(sc.attention_only((1,)), seed=1), changed):
        said = foot(sc.explain(model, [1, 2]).html())
        assert "Weights: not those of a file." in said
        assert "Command" not in said
        assert re.search(r" on \d{4}-\d\d-\d\d\. ", said)
    assert "Weights (SHA-256)" in foot(sc.explain(sc.load(path()), [1, 2]).html())


def test_weights_that_have_changed_since_have_no_digest(tmp_path: Path) -> None:
    shutil.copytree(path(), tmp_path / "m")
    model = sc.load(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text((tmp_path / "m" / "config.json").read_text() + "\n")
    assert "Weights: not those of a file." in foot(sc.explain(model, [1, 2]).html())
    shutil.rmtree(tmp_path / "m")
    assert "Weights: not those of a file." in foot(sc.explain(model, [1, 2]).html())
