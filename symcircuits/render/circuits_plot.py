"""Pictures of circuits with matplotlib, from the same data as those of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symcircuits.circuits.report import Circuits
from symcircuits.render.circuits_figures import Counts, Edge, Points
from symcircuits.render.positions import Positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_counts", "draw_graph", "draw_points", "draw_positions"]

_COLOURS = {"Q": "tab:green", "K": "tab:red", "V": "tab:blue"}
_STYLES = {"Q": "dashed", "K": "solid", "V": "dotted"}


def draw_graph(axes: Axes, found: Circuits, lines: Sequence[Edge]) -> None:
    """Heads by layer from left to right, and a line for each pair: solid K, dashed Q, dotted V."""
    at = {str(head): (head.layer, -head.number) for head in found.model.architecture.all_heads}
    most = max((one.z for one in lines), default=1.0)
    seen: set[str] = set()
    for one in lines:
        (x1, y1), (x2, y2) = at[one.earlier], at[one.later]
        label = None if one.kind in seen else f"{one.kind}-composition"
        seen.add(one.kind)
        axes.plot([x1, x2], [y1, y2], color=_COLOURS[one.kind], linestyle=_STYLES[one.kind], label=label,
                  linewidth=1 + 3 * one.z / most, alpha=0.7, zorder=1)  # fmt: skip
    for head, (x, y) in at.items():
        axes.scatter([x], [y], s=260, zorder=2, edgecolors="black", color="0.8" if found.heads[head].kinds else "white")
        axes.text(x, y, head, ha="center", va="center", fontsize="x-small", zorder=3)
    if seen:
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, frameon=False)
    axes.set_title("pairs of heads above chance", fontsize="medium")
    axes.margins(0.2)
    axes.set_axis_off()


def draw_points(axes: Axes, data: Points) -> None:
    """Points between -1 and 1 on both axes."""
    axes.axhline(0, color="0.7", linewidth=0.8)
    axes.axvline(0, color="0.7", linewidth=0.8)
    axes.scatter(data.x, data.y, s=14, color="tab:red", zorder=2)
    for name, x, y in zip(data.names, data.x, data.y, strict=bool(data.names)):
        axes.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize="x-small")
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xlabel=data.x_name, ylabel=data.y_name, aspect="equal")
    axes.set_title(data.title, fontsize="small", wrap=True)


def draw_counts(axes: Axes, data: Counts) -> None:
    """How many there are in each interval."""
    axes.bar(data.edges[:-1], data.counts, width=0.95 * (data.edges[1] - data.edges[0]), align="edge", color="tab:red")
    axes.set_xlabel("eigenvalue positivity of the OV circuit")
    axes.set_ylabel("heads")
    axes.set_title(data.title, fontsize="small", wrap=True)


def draw_positions(axes: Axes, data: Positions) -> None:
    """Tokens in a row, each head's look as an arrow, matching and copied tokens marked."""
    marked = {data.copied: "tab:red", **dict.fromkeys(data.matched, "tab:blue")}
    last = len(data.tokens)
    for i, token in enumerate([*data.tokens, data.tokens[data.copied]]):
        edge = "tab:red" if i == last else marked.get(i, "0.8")
        frame = {"boxstyle": "round", "facecolor": "white", "edgecolor": edge, "linewidth": 1.6}
        axes.text(i, 0, str(token), ha="center", va="center", bbox=frame, zorder=3)
        axes.text(i, -0.34, "next" if i == last else str(i), ha="center", va="center", fontsize="x-small", color="0.4")
    for arrow in data.arrows:
        up = 1 if arrow.above else -1
        colour = "tab:red" if arrow.above else "tab:blue"
        bend = f"arc3,rad={0.45 * up * (1 if arrow.end < arrow.start else -1)}"
        style = {"arrowstyle": "-|>", "color": colour, "connectionstyle": bend, "linewidth": 1.4}
        ends = (arrow.end, 0.24 * up - 0.2 * (up < 0)), (arrow.start, 0.24 * up - 0.2 * (up < 0))
        axes.annotate("", xy=ends[0], xytext=ends[1], arrowprops=style)
        high = 0.55 + 0.13 * abs(arrow.start - arrow.end)
        axes.text((arrow.start + arrow.end) / 2, up * high - 0.15 * (up < 0), f"{arrow.head} {arrow.weight:.2f}",
                  ha="center", fontsize="small", color=colour)  # fmt: skip
    style = {"arrowstyle": "-|>", "color": "0.5", "linestyle": "dashed", "connectionstyle": "arc3,rad=0.35"}
    axes.annotate("", xy=(last, -0.44), xytext=(data.copied + 0.2, -0.44), arrowprops=style)
    effect = "" if data.effect is None else f" ({data.effect:+.1f})"
    axes.text((data.copied + last) / 2, -1.55, f"copied{effect}", ha="center", fontsize="small", color="0.4")
    axes.set(xlim=(-0.7, last + 0.7), ylim=(-1.8, 1.6))
    axes.set_axis_off()
    axes.set_title(data.said, fontsize="small", wrap=True)
