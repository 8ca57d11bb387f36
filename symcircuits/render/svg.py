"""Heat maps and bars as inline SVG: few bytes a cell, colours as classes, values for the reader of cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from symcircuits.render.figures import HeatMap
from symcircuits.render.markup import Markup, el
from symcircuits.render.tables import number

__all__ = ["bar", "figure", "heat_map", "palette"]

LEVELS = 10
_LETTER = 6.1  # width of a letter of the axes, in the units of the drawing
_STEP = 5  # width of a colour of the scale
_LONGEST = 22  # letters of a name that fit beside the map
_HIDDEN = LEVELS + 1  # in the place of a level


def palette() -> str:
    """The colours of the levels as style rules: positive, negative and unsigned, on light and on dark."""
    ends = {"p": ((178, 24, 43), (255, 120, 110)), "m": ((33, 102, 172), (110, 170, 255))}
    ends["u"] = ((13, 71, 120), (130, 200, 255))
    light, dark = [], []
    for name, (on_light, on_dark) in ends.items():
        for k in range(1, LEVELS + 1):
            light.append(f".{name}{k}{{fill:{_mix((247, 247, 247), on_light, k / LEVELS)}}}")
            dark.append(f".{name}{k}{{fill:{_mix((38, 42, 48), on_dark, k / LEVELS)}}}")
    return "".join(light) + "@media screen and (prefers-color-scheme:dark){" + "".join(dark) + "}"


def _mix(start: tuple[int, int, int], end: tuple[int, int, int], part: float) -> str:
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(start, end, strict=True))


def figure(data: HeatMap, most: int) -> Markup:
    """A heat map with its title, and the line that says the value of the cell that is pointed at."""
    small = data.pooled(most)
    caption = el("figcaption", data.title)
    return el("figure", caption, heat_map(small), el("output", Markup("&nbsp;"), class_="read"), class_="map")


def heat_map(data: HeatMap) -> Markup:
    """A heat map as SVG, with its axes and its colour scale.

    Cells of one level are one path; the values, to three digits, are in an attribute, for the script to read out.
    """
    rows, columns = data.values.shape
    cell = max(7, min(18, 340 // max(rows, columns, 1)))
    left = _room(data.rows)
    top = _room(data.columns)
    width, height = left + max(cell * columns, _STEP * len(_scale_names(data))) + 6, top + cell * rows + 30
    parts = [
        el("g", *_cells(data), transform=f"translate({left} {top}) scale({cell})", shape_rendering="crispEdges"),
        el("rect", class_="cursor", width=cell, height=cell, visibility="hidden"),
        *_names((data.rows, data.columns), (data.row_name, data.column_name), cell, left, top),
        *_scale(data, left, top + cell * rows + 8),
    ]
    return el(
        "svg", *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", tabindex=0,
        aria_label=_words(data), data_at=f"{left} {top} {cell}", data_rows=json.dumps(data.rows),
        data_columns=json.dumps(data.columns), data_names=f"{data.row_name}|{data.column_name}",
        data_values=_written(data.shown.tobytes()) % tuple(data.values[data.shown].tolist()),
    )  # fmt: skip


@lru_cache(maxsize=16)  # maps of one page show the same cells
def _written(shown: bytes) -> str:
    """How the values of a map are written: those shown to three digits."""
    return " ".join("%.3g" if cell else "-" for cell in shown)


@lru_cache(maxsize=64)
def _room(names: tuple[str, ...]) -> int:
    """The room that names take beside the map."""
    return 18 + int(_LETTER * max((len(_short(n)) for n in names), default=0))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _cells(data: HeatMap) -> list[Markup]:
    """One path a level: runs of neighbouring cells as rectangles."""
    ratio = data.values / data.largest if data.largest else np.zeros(data.values.shape)
    levels = np.clip(np.rint(np.abs(ratio) * LEVELS), 0, LEVELS).astype(int)
    codes = np.where(data.shown, np.where(ratio < 0, -levels, levels), _HIDDEN)
    begun = np.ones(codes.shape, bool)  # where a run begins: at the edge, or beside another level
    begun[:, 1:] = codes[:, 1:] != codes[:, :-1]
    rows, starts = (axis.tolist() for axis in np.nonzero(begun))
    paths: dict[int, list[str]] = {}
    ends = [*starts, 0][1:]
    for i, j, end, code in zip(rows, starts, ends, codes[begun].tolist(), strict=True):
        if code != _HIDDEN:
            length = (end or codes.shape[1]) - j
            paths.setdefault(code, []).append(f"M{j} {i}h{length}v1h{-length}z")
    sign = "p" if data.signed else "u"
    named = {f"{'m' if code < 0 else sign}{abs(code)}" if code else "z": runs for code, runs in paths.items()}
    return [el("path", class_=name, d="".join(runs)) for name, runs in sorted(named.items())]


@lru_cache(maxsize=16)  # maps of one page have the same axes
def _names(
    labels: tuple[Sequence[str], Sequence[str]], axes: tuple[str, str], cell: int, left: int, top: int
) -> tuple[Markup, ...]:
    """The names along the axes, as many as there is room for, and what the axes are; of rows and of columns."""
    step = -(-11 // cell)
    middle = cell / 2
    found = [
        el("text", _short(name), x=left - 4, y=f"{top + cell * i + middle + 3.5:g}", text_anchor="end")
        for i, name in enumerate(labels[0])
        if i % step == 0
    ]
    for j, name in enumerate(labels[1]):
        if j % step == 0:
            x, y = left + cell * j + middle + 3.5, top - 4
            found.append(el("text", _short(name), transform=f"translate({x:g} {y}) rotate(-90)"))
    axis = {"class_": "axis"}
    found.append(el("text", f"{axes[1]} →", x=left, y=9, **axis))
    found.append(el("text", f"← {axes[0]}", transform=f"translate(9 {top}) rotate(-90)", text_anchor="end", **axis))
    return tuple(found)


def _scale_names(data: HeatMap) -> list[str]:
    """The classes of the colours, from the smallest value to the largest."""
    names = [f"m{k}" for k in range(LEVELS, 0, -1)] if data.signed else []
    return [*names, "z", *(f"{'p' if data.signed else 'u'}{k}" for k in range(1, LEVELS + 1))]


def _scale(data: HeatMap, x: int, y: int) -> list[Markup]:
    """The colour scale under the map."""
    names, end = tuple(_scale_names(data)), number(data.largest, 3)
    return [
        *_colours(names, x, y),
        el("text", f"-{end}" if data.signed and data.largest else "0", x=x, y=y + 18),
        el("text", end, x=x + _STEP * len(names), y=y + 18, text_anchor="end"),
    ]


@lru_cache(maxsize=16)
def _colours(names: tuple[str, ...], x: int, y: int) -> tuple[Markup, ...]:
    return tuple(el("rect", class_=name, x=x + _STEP * i, y=y, width=_STEP, height=7) for i, name in enumerate(names))


def _words(data: HeatMap) -> str:
    """The map in words: its size, and where its largest entry is."""
    rows, columns = data.values.shape
    said = f"heat map, {rows} by {columns}: {data.title}"
    if data.shown.any():
        i, j = np.unravel_index(np.argmax(np.where(data.shown, np.abs(data.values), -1)), data.values.shape)
        where = f"{data.row_name} {i} {data.rows[i]}, {data.column_name} {j} {data.columns[j]}"
        said += f"; largest {number(float(data.values[i, j]), 3)} at {where}"
    return said


def bar(value: float, largest: float, kind: str = "") -> Markup:
    """One bar, from the middle to the right where positive, to the left where negative; its number stands beside it."""
    size = 100 * abs(value) / largest if largest else 0.0
    name = kind or ("p" if value >= 0 else "m")
    inside = (
        el(
            "rect",
            class_=f"bar-{name}",
            x=f"{100 if value >= 0 else 100 - size:.4g}",
            y=2,
            width=f"{size:.4g}",
            height=8,
        ),
        el("path", class_="zero", d="M100 0v12"),
    )
    return el("svg", *inside, viewBox="0 0 200 12", preserveAspectRatio="none", class_="bar", aria_hidden="true")
