"""Pictures of circuits as SVG: the graph of composition, points in the plane, how many heads are how positive."""

from __future__ import annotations

from typing import Final

from symcircuits.circuits.report import Circuits
from symcircuits.core.text import amount
from symcircuits.render.circuits_figures import Counts, Points, edges
from symcircuits.render.markup import Markup, el

__all__ = ["MOST_EDGES", "composition_graph", "counts_svg", "points_svg"]

MOST_EDGES: Final = 60
MOST_NAMES: Final = 24  # points that have their names beside them
_COLUMN, _ROW, _RADIUS = 150, 34, 13
_DASHES: Final = {"Q": "7 3", "K": None, "V": "2 3"}  # told apart without colour


def composition_graph(found: Circuits) -> Markup:
    """Heads by layer from left to right, and an edge for each pair above chance: solid K, dashed Q, dotted V."""
    arch = found.model.architecture
    best = edges(found)
    left, most = len(best) - MOST_EDGES, max((one.z for one in best), default=1.0)
    places = {
        str(head): (40 + _COLUMN * head.layer, 34 + _ROW * head.number) for head in arch.all_heads
    }  # fmt: skip
    width, height = 80 + _COLUMN * max(arch.n_layers - 1, 0), 60 + _ROW * max((*arch.heads, 1))
    lines = []
    for one in best[:MOST_EDGES]:
        (x1, y1), (x2, y2) = places[one.earlier], places[one.later]
        bend = {"Q": -10, "K": 0, "V": 10}[one.kind]
        middle = f"{(x1 + x2) / 2:g} {(y1 + y2) / 2 + bend:g}"
        words = f"{one.kind}: {one.later} from {one.earlier}, score {one.score:.3f}, z {one.z:.1f}"
        lines.append(
            el("path", el("title", words), d=f"M{x1 + _RADIUS} {y1}Q{middle} {x2 - _RADIUS} {y2}",
               class_=f"edge-{one.kind}", stroke_width=f"{1 + 4 * one.z / most:.2g}",
               stroke_dasharray=_DASHES[one.kind])
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
    drawn = el("svg", *heads, *lines, *nodes, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img",
               aria_label=said)  # fmt: skip
    key = "Heads by number; earlier layers to the left. Solid: K-composition, dashed: Q, dotted: V; wider is further "
    key += "above chance. Filled: a head of some kind."
    key += f" The {MOST_EDGES} furthest of {len(best)} pairs are drawn." if left > 0 else ""
    key += "" if best else " No pair is above chance."
    return el(
        "figure", el("figcaption", key), el("div", drawn, class_="box", tabindex=0, role="region", aria_label=said)
    )


def points_svg(data: Points, size: int = 120) -> Markup:
    """Points between -1 and 1 on both axes, with the unit circle where they have no names."""
    half, radius = size / 2, size / 2 - (10 if not data.names else 24)
    at = [(f"{half + radius * x:.3g}", f"{half - radius * y:.3g}") for x, y in zip(data.x, data.y, strict=True)]
    names = data.names or ("",) * len(at)
    dots = [
        el("circle", *([el("title", f"{name}: {x:+.2f}, {y:+.2f}")] if name else []), cx=cx, cy=cy, r=2.5, class_="dot")
        for (cx, cy), name, x, y in zip(at, names, data.x, data.y, strict=True)
    ]
    axes = [el("path", d=f"M{half - radius} {half}h{2 * radius}M{half} {half - radius}v{2 * radius}", class_="zero")]
    if data.names:
        axes += [
            el("text", f"{data.x_name} →", x=size, y=half + 12, text_anchor="end", class_="axis"),
            el("text", f"{data.y_name} ↑", x=half + 4, y=10, class_="axis"),
        ]
        axes += [] if len(at) > MOST_NAMES else _names(at, names, size)
    else:
        axes.append(el("circle", cx=half, cy=half, r=radius, class_="ring"))
    words = f"{data.title}: {amount(len(at), 'point')}; {data.x_name} to the right, {data.y_name} up"
    return el("svg", *axes, *dots, viewBox=f"0 0 {size} {size}", width=size, height=size, role="img", aria_label=words)


def _names(at: list[tuple[str, str]], names: tuple[str, ...], size: int) -> list[Markup]:
    """The names beside their points, on the side that has room; of names that would lie on another, further down."""
    found, taken = [], list[tuple[float, float]]()
    for (cx, cy), name in sorted(zip(at, names, strict=True), key=lambda one: (float(one[0][1]), one[1])):
        x, y, left = float(cx), float(cy) + 3.5, float(cx) > size / 2
        while any(abs(y - other) < 10 and (x > size / 2) == (before > size / 2) for before, other in taken):
            y += 10
        taken.append((x, y))
        found.append(
            el("text", name, x=f"{x + (-9 if left else 9):.4g}", y=f"{y:.4g}", text_anchor="end" if left else "start")
        )
    return found


def counts_svg(data: Counts) -> Markup:
    """How many there are in each interval, as bars with their numbers."""
    wide, tall, most = 26, 80, max(data.counts, default=0) or 1
    bars = []
    for i, count in enumerate(data.counts):
        high = tall * count / most
        words = f"{data.edges[i]:+.1f} to {data.edges[i + 1]:+.1f}: {count}"
        bars.append(
            el("rect", el("title", words), x=6 + wide * i, y=f"{16 + tall - high:.3g}", width=wide - 3,
               height=f"{high:.3g}", class_="bar-m" if data.edges[i + 1] <= 0 else "bar-p")
        )  # fmt: skip
        bars += [
            el("text", str(count), x=6 + wide * i + wide / 2, y=f"{12 + tall - high:.3g}", text_anchor="middle")
        ] * (count > 0)
    width, ends = 12 + wide * len(data.counts), (data.edges[0], (data.edges[0] + data.edges[-1]) / 2, data.edges[-1])
    places = zip((6, width / 2, width - 6), ("start", "middle", "end"), ends, strict=True)
    marks = [
        el("text", f"{value:+g}" if value else "0", x=x, y=tall + 30, text_anchor=a, class_="axis")
        for x, a, value in places
    ]
    line = el("path", d=f"M6 {16.5 + tall}h{width - 12}", class_="zero")
    words = f"{data.title}: " + ", ".join(map(str, data.counts))
    return el(
        "svg", *bars, line, *marks, viewBox=f"0 0 {width} {tall + 34}", width=width, height=tall + 34, role="img",
        aria_label=words,
    )  # fmt: skip
