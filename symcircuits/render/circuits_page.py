"""The circuits of a model as one page: findings first, then graph, matrices, heads, causes and losses behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from symcircuits.circuits.circuit import circuit
from symcircuits.circuits.heads import DEFINITIONS
from symcircuits.circuits.report import Circuits, Diagonal
from symcircuits.core.text import amount
from symcircuits.render.circuits_figures import composition_maps, effect_maps, pattern_maps, score_table
from symcircuits.render.figures import HeatMap
from symcircuits.render.findings import copying_table, effects_table, findings
from symcircuits.render.heads import causes_table, heads_tables
from symcircuits.render.html_heads import MOST_CELLS
from symcircuits.render.losses import by_order_table
from symcircuits.render.markup import Markup, el, formula, section, table
from symcircuits.render.shell import page_of
from symcircuits.render.svg import figure

__all__ = ["circuits_html", "composition_graph", "eigenvalue_plot"]

MOST_EDGES: Final = 60
MOST_PLOTS: Final = 24
_COLUMN, _ROW, _RADIUS = 150, 34, 13
_DASHES: Final = {"Q": "7 3", "K": None, "V": "2 3"}  # told apart without colour


def circuits_html(found: Circuits) -> str:
    """The page."""
    model = found.model
    title = f"circuits of {model.name}"
    header = el(
        "header", el("h1", title), el("p", f"{model.architecture}; d_model {model.d_model}, d_vocab {model.d_vocab}"),
        el("p", found.heads.prompts.said),
    )  # fmt: skip
    said = el("ul", *(el("li", line) for line in findings(found)))
    main = [
        section("findings", "What was found", said), *_composition(found), _heads(found), *_causes(found),
        *_copying(found), *_losses(found), _definitions(),
    ]  # fmt: skip
    return page_of(title, header, main, ("to what was found", "findings"))


# ---------------------------------------------------------------------------------------------- composition
def _composition(found: Circuits) -> Iterator[Markup]:
    if not any(True for scores in found.composition.values() for _ in scores.pairs()):
        return
    notes = el(
        "p", "A score says that weights are aligned, not that anything goes there. It stays the same under rotations "
        "of the stream, O(d_model), and not under other changes of its basis, GL(d_model).", class_="soft",
    )  # fmt: skip
    yield section("graph", "Which heads compose, above chance", notes, composition_graph(found))
    rows = table(effects_table(found)) if found.effects else el("p", "No pair is away from chance.")
    yield section(
        "composition", "Composition scores, and what a pair is worth", _figures(composition_maps(found)), rows
    )


def composition_graph(found: Circuits) -> Markup:
    """Heads by layer from left to right, and an edge for each pair above chance: solid K, dashed Q, dotted V."""
    arch = found.model.architecture
    pairs = [(kind, p) for kind, scores in found.composition.items() for p in scores.pairs() if p.chance == "above"]
    best = sorted(pairs, key=lambda one: -(one[1].z or 0.0))
    left, most = len(best) - MOST_EDGES, max((p.z or 0.0 for _, p in best), default=1.0)
    places = {
        str(head): (40 + _COLUMN * head.layer, 34 + _ROW * head.number) for head in arch.all_heads
    }  # fmt: skip
    width, height = 80 + _COLUMN * max(arch.n_layers - 1, 0), 60 + _ROW * max((*arch.heads, 1))
    edges = []
    for kind, p in best[:MOST_EDGES]:
        (x1, y1), (x2, y2) = places[p.earlier], places[p.later]
        bend = {"Q": -10, "K": 0, "V": 10}[kind]
        middle = f"{(x1 + x2) / 2:g} {(y1 + y2) / 2 + bend:g}"
        words = f"{kind}: {p.later} from {p.earlier}, score {p.score:.3f}, z {p.z:.1f}"
        edges.append(
            el("path", el("title", words), d=f"M{x1 + _RADIUS} {y1}Q{middle} {x2 - _RADIUS} {y2}",
               class_=f"edge-{kind}", stroke_width=f"{1 + 4 * (p.z or 0.0) / most:.2g}", stroke_dasharray=_DASHES[kind])
        )  # fmt: skip
    nodes = []
    for label, (x, y) in places.items():
        kinds = found.heads[label].kinds
        words = f"{label}: {', '.join(kinds) or 'of no kind'}"
        nodes.append(
            el("g", el("title", words), el("circle", cx=x, cy=y, r=_RADIUS, class_="node kind" if kinds else "node"),
               el("text", label.partition("H")[2], x=x, y=y + 3.5, text_anchor="middle"))
        )  # fmt: skip
    heads = [
        el("text", f"layer {layer}", x=40 + _COLUMN * layer, y=12, text_anchor="middle", class_="axis")
        for layer in range(arch.n_layers)
    ]
    said = f"graph of {amount(len(best[:MOST_EDGES]), 'pair')} of heads above chance"
    drawn = el("svg", *heads, *edges, *nodes, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img",
               aria_label=said)  # fmt: skip
    key = "Heads by number; earlier layers to the left. Solid: K-composition, dashed: Q, dotted: V; wider is further "
    key += "above chance. Filled: a head of some kind."
    key += f" The {MOST_EDGES} furthest of {len(best)} pairs are drawn." if left > 0 else ""
    key += "" if best else " No pair is above chance."
    return el(
        "figure", el("figcaption", key), el("div", drawn, class_="box", tabindex=0, role="region", aria_label=said)
    )


# ---------------------------------------------------------------------------------------------- heads, losses
def _heads(found: Circuits) -> Markup:
    maps, effects = pattern_maps(found), effect_maps(found)
    left = sum(bool(head.kinds) for head in found.heads.heads.values()) - len(maps)
    said: list[Markup] = []
    if maps:
        words = "Patterns on one of the prompts: rows are queries, columns keys, by their tokens."
        said += [el("p", words, class_="soft"), _figures(maps)]
    if effects:
        words = "Patterns times what is added directly to the logit of the query's next token, less the mean of all: "
        words += "this does not depend on the basis that weights are written in."
        said += [el("p", words, class_="soft"), _figures(effects)]
    if left > 0:
        said.append(el("p", f"Patterns of {amount(left, 'other head')} of some kind are not shown.", class_="soft"))
    tables = [table(part) for part in heads_tables(found.heads)[:1]]
    return section("heads", "What heads look at", *tables, *said)


def _figures(maps: Iterable[HeatMap]) -> Markup:
    return el("div", *(figure(one, MOST_CELLS) for one in maps), class_="maps")


def _causes(found: Circuits) -> Iterator[Markup]:
    if not found.causes:
        return
    parts = [el("p", "Each part is taken from the head's scores, and the softmax computed anew.", class_="soft")]
    for head, causes in found.causes.items():
        parts.append(table(causes_table(causes)))
        by = causes.largest("head")
        if by is not None and by.without <= causes.score / 2:
            made = circuit(found.model, "QK", head, **{by.side: by.name})  # type: ignore[arg-type]
            words = f"The circuit of {head} through {by.name}, from token to token:"
            parts.append(el("div", el("p", words), formula(made.word)))
        scores = score_table(found, head)
        parts += [] if scores is None else [table(scores)]
    yield section("causes", "Why they look there", *parts)


def _copying(found: Circuits) -> Iterator[Markup]:
    if found.copying:
        plots = [eigenvalue_plot(f"OV {head}", one) for head, one in found.copying.items() if one.eigenvalues]
        pairs = [eigenvalue_plot(f"QK {a} from {b}", one) for (a, b), one in found.matching.items()]
        drawn = el("div", *plots[:MOST_PLOTS], *pairs, class_="maps")
        said = el("p", "Eigenvalues in the complex plane, over the largest modulus; right: positive.", class_="soft")
        yield section("copying", "Copying and matching", table(copying_table(found)), said, drawn)


def eigenvalue_plot(title: str, one: Diagonal) -> Markup:
    """The eigenvalues of a full circuit, over the largest modulus, in the complex plane with the unit circle."""
    largest = max(map(abs, one.eigenvalues), default=0.0) or 1.0
    points = [(value / largest) for value in one.eigenvalues]
    dots = [
        el("circle", cx=f"{60 + 50 * z.real:.3g}", cy=f"{60 - 50 * z.imag:.3g}", r=2.5, class_="dot") for z in points
    ]
    known = "no value" if one.eigenvalue_positivity is None else f"{one.eigenvalue_positivity:+.2f}"
    words = f"{title}: {len(points)} eigenvalues, positivity {known}, largest modulus {largest:.3g}"
    axes = (el("circle", cx=60, cy=60, r=50, class_="ring"), el("path", d="M5 60h110M60 5v110", class_="zero"))
    drawn = el("svg", *axes, *dots, viewBox="0 0 120 120", width=120, height=120, role="img", aria_label=words)
    return el("figure", el("figcaption", f"{title} ({known})"), drawn)


def _losses(found: Circuits) -> Iterator[Markup]:
    if found.losses is not None:
        yield section("losses", "What terms are worth in loss", table(by_order_table(found.losses)))


def _definitions() -> Markup:
    rows = [part for kind, said in DEFINITIONS.items() for part in (el("dt", kind), el("dd", said))]
    return section("definitions", "Definitions", el("dl", *rows))
