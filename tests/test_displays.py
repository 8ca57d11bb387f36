"""What a display says beside each term (type, label, order) is what the term itself is, read from its formula."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from strategies import Row, oracle

import symcircuits as sc
from symcircuits.checking.matching import Spelling
from symcircuits.checking.reading import read
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.notation import NOTATIONS
from symcircuits.model import random_model

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "plain": {"heads": (2, 2)},
    "biased": {"heads": (1, 2), "positions": "standard", "biases": True},
    "deep": {"heads": (1, 1, 1), "positions": "shortformer", "scale": False},
    "normed": {"heads": (1, 1), "norm": "LN", "mlps": True, "biases": ["b_V", "b_K"], "multipliers": True},
    "turned": {"heads": (2, 2), "positions": "rotary", "qk_norm": True, "groups": (1, 1), "biases": ["b_Q", "b_K"]},
    "slanted": {"heads": (2, 1), "positions": "alibi"},
}
HERE = [(name, notation) for name in ARCHITECTURES for notation in NOTATIONS]


def architecture(name: str) -> Architecture:
    return sc.transformer(**ARCHITECTURES[name])


def targets(arch: Architecture) -> list[str]:
    return ["logits", "stream", *(f"scores:{h}" for h in arch.all_heads)]


A = re.compile(r"(?<![A-Za-z_\\{])A(?=\[|\^\{)")
READER = re.compile(r"W_\{?QK\}?|(?<![A-Za-z_])QK(?=\[)|W_Q(?=[\[^])|b_Q(?=[\[^])")


def orders_in(formula: str, scores: bool) -> tuple[int, ...]:
    """The number of patterns of a term in text or LaTeX: of each side, if it is a score."""
    slots = re.split(r"\(x\)|\\otimes", formula)
    if len(slots) > 1:
        return tuple(len(A.findall(slot)) for slot in slots[:-1])
    if not scores:
        return (len(A.findall(formula)),)
    reader = READER.search(formula)
    assert reader is not None
    return len(A.findall(formula[: reader.start()])), len(A.findall(formula[reader.start() :]))


def composition_in(formula: str, scores: bool) -> str:
    orders = orders_in(formula, scores)
    if not scores:
        return "V" if orders[0] > 1 else "none"
    return {(False, False): "none", (True, False): "Q", (False, True): "K"}.get((orders[0] > 0, orders[1] > 0), "QK")


# -------------------------------------------------------------------------------------------------- expansions
@pytest.mark.parametrize(("name", "notation"), HERE)
def test_a_notebook_says_beside_each_term_what_it_is(name: str, notation: str) -> None:
    arch = architecture(name)
    for target in targets(arch):
        every = expand(arch, target).written(notation)
        kinds = [every, *(every.where(composition=c) for c in every.counts_by_composition()), every.order(1)]
        for expansion in kinds:
            rows = [line for line in expansion._repr_latex_().splitlines() if "&&" in line and "\\cdots" not in line]
            listed = [row for row in rows if not re.search(r"[\d,]+ terms?\}|not a path term", row)]
            assert len(listed) == min(expansion.count, 40 if expansion.count <= 40 else 10)
            terms = [expansion[i] for i in range(len(listed))]
            for row, term in zip(listed, terms, strict=True):
                formula, said = re.fullmatch(r"(.*?) ?&&\\text\{(\w+)\}(?: \\\\)?", row).groups()  # type: ignore[union-attr]
                assert said == composition_in(formula.partition("&")[2], target[:6] == "scores"), row
                assert term.latex() in row


def rows_of(arch: Architecture, target: str) -> dict[str, Row]:
    """The terms by what they are written in text, from the definition of the transformer."""
    return {row.text: row for row in oracle(arch, target)}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_term_shows_its_label_and_type(name: str) -> None:
    arch = architecture(name)
    for target in targets(arch):
        rows = rows_of(arch, target)
        for term in expand(arch, target):
            row = rows[term.text]
            long = f": {row.text}" if len(row.text) <= 200 else ""
            shown = f"<Term {row.label} ({row.composition}){long}>" if long else f"<Term {row.label}>"
            assert repr(term) == shown
            assert (term.label, term.composition, term.orders) == (row.label, row.composition, row.orders)


# ------------------------------------------------------------------------------------------------- derivations
@pytest.mark.parametrize(("name", "notation"), HERE)
@pytest.mark.sampled(8)
def test_a_derivation_says_beside_each_term_what_it_is(name: str, notation: str) -> None:
    arch = architecture(name)
    for target in targets(arch)[-1:] + targets(arch)[:1]:
        derivation, scores = sc.derive(arch, target, notation=notation), target[:6] == "scores"
        seen = list(_beside(derivation.text(), r" {2,}\[(none|V|Q|K|QK)\]$"))
        assert len(seen) == expand(arch, target).count
        for formula, said in seen:
            assert said == composition_in(formula, scores), formula
        said_in_latex = re.findall(r"&\\quad&(?:\\textcolor\{[^}]*\}\{)?\\text\{(none|V|Q|K|QK)\}", derivation.latex())
        assert said_in_latex == [said for _, said in seen]
        for entry in derivation.json()["terms"]:
            assert entry["composition"] == composition_in(entry["text"], scores)
            assert tuple(entry.get("orders", [entry["order"]])) == orders_in(entry["text"], scores)
            assert composition_in(entry["latex"], scores) == entry["composition"]


def _beside(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """Every term of a text with the mark beside it, and what is marked."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if found := re.search(mark, line):
            formula = line[: found.start()]
            for more in lines[i + 1 :]:
                if not re.match(r" {6,}\S", more):
                    break
                formula += more
            yield formula, found[1]


@pytest.mark.parametrize(("name", "notation"), HERE)
@pytest.mark.sampled(9)
def test_families_hold_the_terms_that_their_headings_say(name: str, notation: str) -> None:
    arch = architecture(name)
    for target in targets(arch)[-1:] + targets(arch)[:1]:
        expansion, scores = expand(arch, target), target[:6] == "scores"
        text = sc.derive(arch, target, notation=notation).text()
        heads = re.findall(r"-- (.*?)(?: \((\w+)\))?: ([\d,]+) terms?\n((?:    .*\n)+?)(?=    -- |\n)", text)
        heads = [(said, kind or said.partition("-composition")[0], *more) for said, kind, *more in heads]
        by_type = expansion.counts_by_composition()
        if not heads:
            assert expansion.count <= 1
            continue
        for said, composition, count, body in heads:
            terms = re.split(r"\n    [+=] ", "\n" + body)[1:]
            terms = [t for t in terms if "not a path term" not in t]
            assert len(terms) == int(count.replace(",", ""))
            for term in terms:
                assert composition_in(term, scores) == composition
                order = orders_in(term, scores)
                kind = {0: "direct path", 1: "individual head"}.get(order[0], f"virtual heads of order {order[0]}")
                assert said.startswith(kind if not scores else "no composition" if not sum(order) else composition)
        counted: dict[str, int] = {}
        for _, composition, count, _ in heads:
            counted[composition] = counted.get(composition, 0) + int(count.replace(",", ""))
        assert counted == by_type


# ------------------------------------------------------------------------------------------------ explanations
CELLS = re.compile(r'<tr ([^>]*data-composition="\w+"[^>]*)>(.*?)</tr>', re.DOTALL)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", ["plain", "biased", "normed", "turned"])
@pytest.mark.sampled(6)
def test_an_explanation_says_beside_each_term_what_it_is(name: str, notation: str) -> None:
    arch = architecture(name)
    run = random_model(arch, seed=1).run([1, 2, 3])
    found = sc.explain(sc.evaluate(sc.logits(run.model.architecture).written(notation), run), top=6, sort="norm")
    every = [row for target in targets(arch) for row in oracle(arch, target)]
    labels: dict[str, list[Row]] = {}
    for row in every:
        labels.setdefault(row.label, []).append(row)
    seen = 0
    for attributes, cells in CELLS.findall(found.html()):
        given = dict(re.findall(r'data-([\w-]+)="([^"]*)"', attributes))
        label = re.sub(r"<[^>]*>", "", re.split(r"<div|<math|</th>|</td>", cells)[0])
        label = html.unescape(label).partition(" (")[0].strip()
        written, scores = re.search(r'alttext="([^"]*)"', cells), "|" in label
        said = re.findall(r"<td>(none|V|Q|K|QK)</td>", cells)
        assert label in labels, cells[:200]
        row = labels[label][0]
        assert given["composition"] == row.composition
        assert int(given["order"]) == sum(row.orders)
        heads = [f"L{layer}H{i}" for route in row.routes for layer, i in route.heads]
        assert sorted(set(given["heads"].split())) == sorted(set(heads))
        assert given["source"].split() == list(dict.fromkeys(r.source for r in row.routes))
        if written is None:  # a bar with the label of its term
            continue
        formula = html.unescape(written[1])
        assert said == [row.composition] == [composition_in(formula, scores)]
        assert orders_in(formula, scores) == row.orders
        if notation == "row":
            assert formula in {r.text for r in labels[label]}
            tex = html.unescape(re.search(r'x-tex">([^<]*)<', cells)[1])  # type: ignore[index]
            in_tex, in_text = ([Spelling(arch).fuse(w.letters) for w in read(f, arch).words] for f in (tex, formula))
            assert in_tex == in_text
        seen += 1
    assert seen >= 6
    listed = re.findall(r"^ *(?:[-+.\de]+ +){2,3}(none|V) +(\S.*?)  +(\S.*)$", found.text(300), re.MULTILINE)
    listed = [(said, label, formula) for said, label, formula in listed if label in labels]
    assert listed
    for said, label, formula in listed:
        assert said == labels[label][0].composition == composition_in(formula, False)


# ------------------------------------------------------------------------------------------- rankings, as text and data
def described(data: Any) -> Iterator[dict[str, Any]]:
    """Every description of a term in plain data."""
    if isinstance(data, dict):
        if "label" in data and "composition" in data:
            yield data
        data = list(data.values())
    for part in data if isinstance(data, list) else []:
        yield from described(part)


@pytest.mark.parametrize("name", ["biased", "deep", "turned"])
def test_rankings_say_beside_each_term_what_it_is(name: str) -> None:
    arch = architecture(name)
    model = random_model(arch, seed=1)
    run, head = model.run([1, 2, 3]), arch.all_heads[-1]
    for target in ("logits", f"scores:{head}"):
        expansion = expand(model.architecture, target)
        rows = {row.label: row for row in oracle(arch, target)}
        found = [
            sc.evaluate(expansion, run).largest(8, sc.norm()),
                sc.evaluate(expansion, model.run([1, 2, 3])).summary(top=8),
            sc.evaluate(expansion, run).sample(30),
        ]  # fmt: skip
        for ranking in found:
            listed = list(described(ranking.json()))
            assert listed
            for entry in listed:
                row = rows[entry["label"]]
                assert (entry["composition"], entry["order"]) == (row.composition, sum(row.orders))
                assert entry.get("text", row.text) == row.text
            shown = re.findall(r" (none|V|Q|K|QK) +(\S.*?) *$", ranking.text(200), re.MULTILINE)
            shown = [(said, label) for said, label in shown if label in rows]
            assert len(shown) >= min(5, expansion.count)
            assert all(said == rows[label].composition for said, label in shown)
    if arch.unembed:
        data = sc.explain(model, [1, 2, 3], top=6).json()
        every = {row.label: row for target in targets(arch) for row in oracle(arch, target)}
        for entry in described(data):
            assert entry["composition"] == every[entry["label"]].composition
