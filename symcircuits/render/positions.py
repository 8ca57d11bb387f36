"""The positions of an induction circuit on a prompt: which is attended by which head, and what is copied.

The picture as data (:func:`positions_of`), and as SVG; matplotlib draws the same data
(:mod:`symcircuits.render.circuits_plot`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from symcircuits.circuits.report import Circuits
from symcircuits.circuits.transport import DirectEffects, written_rows
from symcircuits.core.expansion import expand
from symcircuits.render.markup import Markup, el
from symcircuits.values.evaluate import evaluate

__all__ = ["Arrow", "Positions", "positions_file", "positions_of", "positions_svg"]

_STEP: Final = 46
_BOX: Final = 34
_TALL: Final = 96  # of the room for arrows above and below
_STYLE: Final = (  # of the file: what the page has in its own
    "text{font:10px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}.axis{fill:#4c5560}"
    "rect{fill:none;stroke:#c9d0d8}.at-matched,.before{stroke:#2166ac}.at-copied,.look{stroke:#b2182b}.at-matched,.at-copied{stroke-width:2.5}"
    ".next{stroke-dasharray:4 3}path{fill:none;stroke-width:2}.copy{stroke:#6b7480;stroke-dasharray:5 4}"
    ".tip{stroke:none}.look-tip{fill:#b2182b}.before-tip{fill:#2166ac}.copy-tip{fill:#6b7480}@media(prefers-color-scheme:dark)"
    "{text{fill:#e6eaef}.axis{fill:#aeb7c2}rect{stroke:#3b444f}.at-matched,.before{stroke:#6eaaff}.at-copied,.look"
    "{stroke:#ff786e}.look-tip{fill:#ff786e}.before-tip{fill:#6eaaff}}"
)


@dataclass(frozen=True, slots=True)
class Arrow:
    """A head at position ``start`` looks at ``end`` with this weight; drawn above the tokens or below."""

    head: str
    start: int
    end: int
    weight: float
    above: bool


@dataclass(frozen=True, slots=True)
class Positions:
    """The tokens of a prompt up to the query, the arrows, the two positions whose tokens match, what is copied.

    ``effect``: what the head adds directly to the logit of the copied token from that position, less the mean over all
    outputs; None where outputs are not the input tokens. ``next``: the token that does follow.
    """

    head: str
    tokens: tuple[int, ...]
    arrows: tuple[Arrow, ...]
    matched: tuple[int, int]
    copied: int
    effect: float | None
    next: int

    @property
    def query(self) -> int:
        """The position that the head looks from."""
        return self.arrows[0].start

    @property
    def said(self) -> str:
        """The picture in a sentence."""
        one, *others = self.arrows
        said = (
            f"At position {self.query} (token {self.tokens[self.query]}) {one.head} looks at position {one.end} (token "
        )
        said += f"{self.tokens[one.end]}, weight {one.weight:.2f})"
        for other in others:
            where = "there" if other.start == one.end else "at its own position"
            said += f"; {where} {other.head} wrote what it saw at {other.end} (token {self.tokens[other.end]}, weight "
            said += f"{other.weight:.2f})"
        adds = "" if self.effect is None else f", and adds {self.effect:+.1f} to its logit"
        return f"{said}. {one.head} copies token {self.tokens[self.copied]}{adds}; the next token is {self.next}."


def positions_of(found: Circuits, head: str) -> Positions | None:
    """The circuit of an induction head on two short periods; None where the head needs no earlier one."""
    causes, prompts = found.causes.get(head), found.heads.prompts
    by = None if causes is None else causes.largest("head")
    if causes is None or by is None or by.without > causes.score / 2 or not prompts.repeated:
        return None
    period = min(prompts.repeated)
    tokens = prompts.repeated[period][0][: 1 + 2 * period]
    query = period + 2  # the second token of the second period, which has three or more: its next is known
    run = found.model.run(tokens)
    key = int(run.patterns[head][query].argmax())
    start = key if by.side == "key" else query
    end = int(run.patterns[by.name][start].argmax())
    arrows = (
        Arrow(head, query, key, float(run.patterns[head][query, key]), above=True),
        Arrow(by.name, start, end, float(run.patterns[by.name][start, end]), above=False),
    )
    matched = (end, query) if by.side == "key" else (end, key)
    return Positions(
        head, tuple(map(int, tokens[: query + 1])), arrows, matched=matched, copied=key,
        effect=_effect(found, run, head, query, key), next=int(tokens[query + 1]),
    )  # fmt: skip


def _effect(found: Circuits, run: object, head: str, query: int, key: int) -> float | None:
    model = found.model
    if model.d_vocab_out is None or model.d_vocab_out < model.d_vocab:
        return None
    values = evaluate(expand(model.architecture, "logits"), run)  # type: ignore[call-overload]
    direct = DirectEffects(values)
    weight = direct.weights(values.run.patterns[head])[query, key]
    written = written_rows(values.run, head)[key : key + 1]
    return float(weight * direct.read(written, np.array([values.run.tokens[key]]))[0, 0])


def positions_svg(data: Positions, **more: str) -> Markup:
    """The picture as SVG: tokens in a row, each head's look as an arrow, matching and copied tokens marked."""
    last, parts = len(data.tokens), list[Markup]()
    width, height = _STEP * (last + 1) + 16, 2 * _TALL + _BOX + 24
    for i, token in enumerate(data.tokens):
        kind = "copied" if i == data.copied else "matched" if i in data.matched else "plain"
        parts += _box(i, str(token), f"at-{kind}", str(i))
    parts += _box(last, str(data.tokens[data.copied]), "at-copied next", "next")
    parts += [part for arrow in data.arrows for part in _arrow(arrow, data.head)]
    copied = f"M{_middle(data.copied) + 9} {_TALL + _BOX + 18}v{_TALL - 22}H{_middle(last)}V{_TALL + _BOX + 22}"
    effect = "" if data.effect is None else f" ({data.effect:+.1f})"
    parts.append(el("path", d=copied, class_="copy", marker_end=f"url(#{data.head}-copy)"))
    x = (_middle(data.copied) + _middle(last)) / 2
    parts.append(el("text", f"copied{effect}", x=x, y=2 * _TALL + _BOX + 8, text_anchor="middle"))
    tips = [_tip(data.head, kind) for kind in ("look", "before", "copy")]
    return el(
        "svg", el("defs", *tips), *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img",
        aria_label=data.said, class_="positions", **more,
    )  # fmt: skip


def positions_file(data: Positions) -> str:
    """The picture as a file of its own, on light and on dark."""
    drawn = positions_svg(data, xmlns="http://www.w3.org/2000/svg")
    start, _, rest = drawn.partition(">")
    return f"{start}><title>{data.said}</title><style>{_STYLE}</style>{rest}\n"


def _middle(i: int) -> float:
    return 8 + _STEP * i + _STEP / 2


def _tip(head: str, kind: str) -> Markup:
    """The point of an arrow, in its colour."""
    return el("marker", el("path", d="M0 0L8 4L0 8z", class_=f"tip {kind}-tip"), id=f"{head}-{kind}", viewBox="0 0 8 8",
              refX=7, refY=4, markerWidth=7, markerHeight=7, orient="auto")  # fmt: skip


def _box(i: int, text: str, class_: str, below: str) -> list[Markup]:
    return [
        el("rect", x=_middle(i) - _BOX / 2, y=_TALL, width=_BOX, height=_BOX, rx=5, class_=class_),
        el("text", text, x=_middle(i), y=_TALL + _BOX / 2 + 4, text_anchor="middle"),
        el("text", below, x=_middle(i), y=_TALL + _BOX + 13, text_anchor="middle", class_="axis"),
    ]


def _arrow(arrow: Arrow, head: str) -> list[Markup]:
    """An arc from where a head is to where it looks, with its name and weight."""
    x1, x2, side = _middle(arrow.start), _middle(arrow.end), -1 if arrow.above else 1
    y = _TALL if arrow.above else _TALL + _BOX + 16
    bend = min(_TALL - 18, 26 + 0.22 * abs(x1 - x2)) * 1.3
    path = f"M{x1:g} {y}C{x1:g} {y + side * bend:g} {x2:g} {y + side * bend:g} {x2:g} {y + side * 2}"
    name, said = "look" if arrow.above else "before", f"{arrow.head} {arrow.weight:.2f}"
    down = f"{y + side * (0.75 * bend + 6) + (8 if side > 0 else 0):g}"
    word = el("text", said, x=(x1 + x2) / 2, y=down, text_anchor="middle" if arrow.above else "end")
    return [el("path", d=path, class_=name, marker_end=f"url(#{head}-{name})"), word]
