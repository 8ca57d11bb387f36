"""The circuits of several models side by side, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcircuits.core.names import visible
from symcircuits.render.tables import Titled, nats, number

if TYPE_CHECKING:
    from symcircuits.circuits.checkpoints import Checkpoint, Checkpoints

__all__ = ["checkpoints_parts"]


def checkpoints_parts(found: Checkpoints) -> list[Titled]:
    """A row a model; losses after each order as far as there are any."""
    orders = max((len(row.losses or ()) for row in found.rows), default=0)
    header = ["model", "previous", "", "induction", "", "K share", "K pair", "z", *(f"loss {k}" for k in range(orders))]
    short = [row.name.rstrip("/").rpartition("/")[2] for row in found.rows]
    names = short if len(set(short)) == len(short) else [row.name for row in found.rows]
    rows = [_row(name, row, orders) for name, row in zip(names, found.rows, strict=True)]
    notes = [
        "previous, induction: the head with the highest score of that kind; K share: the part of the induction score "
        "that is lost without composition K, if that head is an induction head",
        "K pair: furthest above chance; loss k: nats after the terms of up to k heads, patterns held fixed, over a "
        "repeated half",
    ]
    return [Titled("", header, rows, [1, 3, 5, *range(7, 8 + orders)], notes=notes)]


def _row(name: str, row: Checkpoint, orders: int) -> list[str]:
    losses = [nats(x) for x in row.losses or ()]
    cells = [visible(name)]
    for best in (row.previous, row.induction):
        cells += ["-", "-"] if best is None else [f"{best[1]:.2f}", best[0]]
    cells.append("-" if row.k_share is None else f"{row.k_share:.2f}")
    cells += ["-", "-"] if row.pair is None else [f"{row.pair[0]} from {row.pair[1]}", number(row.pair[3], 3)]
    return [*cells, *losses, *["-"] * (orders - len(losses))]
