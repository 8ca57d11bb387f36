"""The figures of an explanation, or of circuits, as matplotlib objects (``pip install "symcircuits[plot]"``).

Every function takes an :class:`~symcircuits.explanation.explain.Explanation` (``circuits``: what ``find_circuits``
gives) and returns a ``matplotlib.figure.Figure``; with ``axes=`` it draws one figure there instead. Nothing global is
touched (no pyplot). A notebook shows it; save it with ``.savefig(path)``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from symcircuits.circuits.report import Circuits
from symcircuits.core.text import shown
from symcircuits.explanation.ablation import remove_scores
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.score_parts import score_parts
from symcircuits.explanation.sizes import SizedTerm
from symcircuits.render.circuits_figures import (
    composition_maps,
    edges,
    effect_maps,
    eigenvalue_points,
    pattern_maps,
    positivity_counts,
    positivity_points,
    value_maps,
)  # fmt: skip
from symcircuits.render.circuits_plot import draw_counts, draw_graph, draw_points, draw_positions
from symcircuits.render.figures import (
    HeatMap,
    contribution_bars,
    origin_map,
    pattern_map,
    removed_map,
    score_maps,
    source_maps,
    term_map,
)
from symcircuits.render.positions import positions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "circuits",
    "contributions",
    "heat_map",
    "heat_maps",
    "origins",
    "pattern",
    "patterns_without",
    "scores",
    "sources",
    "term",
]

_MOST_NAMES = 40  # names along an axis


def contributions(
    found: Explanation, difference: bool = False, axes: Axes | None = None, *, centred: bool = False
) -> Figure:
    """Bars: what each shown term, the remainder and all terms contribute to the chosen logit (or to the difference).

    ``centred``: to the logit less the mean of all logits.

    Raises ValueError for a model without unembedding, and for ``difference`` where no second token was chosen.
    """
    _check(found)
    bars = contribution_bars(found, difference, centred=centred)
    at = axes if axes is not None else _figure(6.4, 0.25 * len(bars.labels) + 1.2).add_subplot()
    places = range(len(bars.labels))
    terms = len(bars.terms)
    colours = [("tab:red" if v >= 0 else "tab:blue") if i < terms else "tab:gray" for i, v in enumerate(bars.values)]
    at.barh(places, bars.values, color=colours)
    at.axvline(0, color="black", linewidth=0.8)
    at.set_yticks(places, [_plain(name) for name in bars.labels])
    at.invert_yaxis()
    _entitle(at, f"contributions to {bars.of} at position {bars.position}")
    return _of(at)


def pattern(found: Explanation, head: str, axes: Axes | None = None) -> Figure:
    """The attention pattern of a head, tokens on both axes."""
    _check(found)
    return heat_map(pattern_map(found, _head(found, head)), axes)


def scores(found: Explanation, head: str, centre: bool = True) -> Figure:
    """A head's scores and their parts by composition type; ``centre``: each row minus its mean over allowed keys."""
    _check(found)
    return heat_maps(score_maps(found, score_parts(found.run, head), centre))


def sources(found: Explanation, head: str, most: int = 6) -> Figure:
    """A head's centred scores by kind of source of query and key, the largest first."""
    _check(found)
    return heat_maps(source_maps(found, score_parts(found.run, head), most))


def patterns_without(found: Explanation, head: str) -> Figure:
    """A head's pattern, and what it becomes when each composition type is removed from its scores."""
    _check(found)
    label = _head(found, head)
    types = [c for c, n in found.scores[label].counts.items() if n]
    gone = [remove_scores(found.run, label, c) for c in types]
    removed = [removed_map(found, label, g.removed, g.pattern) for g in gone]
    return heat_maps([pattern_map(found, label), *removed])


def term(
    found: Explanation, which: SizedTerm, difference: bool = False, axes: Axes | None = None, *, centred: bool = False
) -> Figure:
    """Where a shown term comes from: its part at each position (row) that starts at each position (column)."""
    _check(found)
    if not isinstance(which, SizedTerm):
        raise TypeError(f"which must be one of the terms shown, e.g. found.terms[0], not {shown(which)}")
    return heat_map(term_map(found, which, difference, centred=centred), axes)


def origins(found: Explanation, difference: bool = False, axes: Axes | None = None, *, centred: bool = False) -> Figure:
    """For the chosen logit (or difference): the part of each shown term that starts at each position."""
    _check(found)
    return heat_map(origin_map(found, found.terms, difference, centred=centred), axes)


def circuits(found: Circuits, what: str = "composition") -> Figure:
    """The pictures of a model's circuits, one kind at a time.

    ``what``: heat maps of ``"composition"``, and of heads of some kind ``"patterns"``, ``"effects"`` (on the next
    token's logit) or ``"values"`` (lengths of what is written); the ``"graph"`` of pairs above chance;
    ``"eigenvalues"`` of full circuits; their ``"positivity"``, QK against OV, and how many heads have how much;
    ``"positions"`` of the induction circuit on a prompt. ValueError where there is nothing to draw.
    """
    if not isinstance(found, Circuits):
        raise TypeError(f"circuits draws the result of find_circuits(model), not {type(found).__name__}")
    maps = {"composition": composition_maps, "patterns": pattern_maps, "effects": effect_maps, "values": value_maps}
    if isinstance(what, str) and what in maps:
        shown_maps = maps[what](found)
        if not shown_maps:
            raise ValueError(f"there are no {what} to draw: no head is of a kind, or outputs are not the input tokens")
        return heat_maps(shown_maps)
    draw: list[Callable[[Axes], None]] = []
    if what == "graph":
        lines = edges(found)
        draw, size = [lambda at: draw_graph(at, found, lines)], (1.6 * found.model.architecture.n_layers + 2.4, 4.2)
    elif what == "eigenvalues":
        draw, size = [partial(draw_points, data=one) for one in eigenvalue_points(found)], (2.6, 2.8)
    elif what == "positivity":
        points, counts = positivity_points(found), positivity_counts(found)
        draw += [] if points is None else [partial(draw_points, data=points)]
        draw += [] if counts is None else [partial(draw_counts, data=counts)]
        size = (4.6, 4.6)
    elif what == "positions":
        pictures = [p for head in found.heads.of_kind("induction") if (p := positions_of(found, head)) is not None]
        draw, size = [partial(draw_positions, data=one) for one in pictures], (6.4, 3.2)
    else:
        names = ", ".join([*maps, "graph", "eigenvalues", "positivity"])
        raise ValueError(f"what must be {names} or positions, not {shown(what)}")
    if not draw:
        raise ValueError(f"there is nothing to draw of {what}: no head has it")
    across = 1 if what == "positions" else min(len(draw), 4)
    down = -(-len(draw) // across)
    figure = _figure(across * size[0], down * size[1])
    for i, one in enumerate(draw):
        one(figure.add_subplot(down, across, i + 1))
    return figure


def _check(found: Any) -> None:
    """TypeError where something else than what ``explain`` gives is to be drawn."""
    if not isinstance(found, Explanation):
        raise TypeError(f"the figures draw the result of explain(model, tokens), not {type(found).__name__}")


# ------------------------------------------------------------------------------------------------- drawing
def _entitle(at: Axes, title: str, **more: Any) -> None:
    """The title, on as many lines as its axes are wide for: a long one would run out of the figure."""
    figure = at.get_figure(root=True)
    inches = at.get_position().width * (figure.get_figwidth() if figure is not None else 6.4)
    at.set_title("\n".join(textwrap.wrap(_plain(title), max(24, int(11 * inches)))), **more)


def heat_map(data: HeatMap, axes: Axes | None = None) -> Figure:
    """One heat map; entries that the mask takes out are left blank."""
    import numpy as np

    rows, columns = data.values.shape
    room = [0.075 * max(0, max(map(len, names), default=0) - 8) for names in (data.rows, data.columns)]  # of long names
    wide = max(2.4, min(0.24 * columns + 2, 12)) + room[0]
    lines = len(data.title) // int(5 * wide)
    size = (wide, max(2.2, min(0.24 * rows + 1.6, 12)) + room[1] + 0.2 * lines)
    at = axes if axes is not None else _figure(*size).add_subplot()
    low = -data.largest if data.signed else 0.0
    top = data.largest or 1.0
    values = np.ma.masked_array(data.values, ~data.shown)
    image = at.imshow(values, cmap="RdBu_r" if data.signed else "Blues", vmin=low if data.largest else -top, vmax=top)
    _entitle(at, data.title, fontsize="medium")
    at.set_xlabel(data.column_name)
    at.set_ylabel(data.row_name)
    for ticks, names in ((at.set_xticks, data.columns), (at.set_yticks, data.rows)):
        step = -(-len(names) // _MOST_NAMES)
        ticks(range(0, len(names), step), [_plain(n) for n in names[::step]], fontsize="small")
    at.tick_params(axis="x", labelrotation=90)
    _of(at).colorbar(image, ax=at, fraction=0.046)
    return _of(at)


def heat_maps(maps: Sequence[HeatMap]) -> Figure:
    """Heat maps beside each other."""
    if not maps:
        raise ValueError("there is nothing to show: no part has any size")
    across = min(len(maps), 3)
    down = -(-len(maps) // across)
    side = max(2.6, min(0.2 * len(maps[0].columns) + 1.6, 7))
    figure = _figure(across * side, down * side)
    for i, data in enumerate(maps):
        heat_map(data, figure.add_subplot(down, across, i + 1))
    return figure


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            'figures need matplotlib, which is not installed: pip install "symcircuits[plot]" (or matplotlib itself)'
        ) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    vars(figure)["_repr_png_"] = partial(_png, figure)  # Jupyter itself shows a figure only after pyplot was imported
    return figure


def _png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    written = BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(written)
    return written.getvalue()


def _of(axes: Axes) -> Figure:
    found: Any = axes.figure
    figure: Figure = found
    return figure


def _head(found: Explanation, head: str) -> str:
    return str(found.model.architecture.head(head))


def _plain(text: str) -> Any:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
