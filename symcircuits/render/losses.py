"""What terms are worth in loss, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcircuits.core.text import amount, whole
from symcircuits.render.tables import Titled, number, signed

if TYPE_CHECKING:
    from symcircuits.circuits.losses import LossByOrder, LossEffects

__all__ = ["by_order_parts", "by_order_table", "effects_parts"]

_SIDES = {"Q": "query", "K": "key"}
_OF = {
    "nats": "Loss in nats",
    "probability": "Probability of the next token",
    "centred logit": "Logit of the next token, less the mean of all",
}


def by_order_parts(found: LossByOrder) -> list[Titled]:
    """A row an order."""
    return [by_order_table(found)]


def by_order_table(found: LossByOrder) -> Titled:
    """A row an order: what is said of the next token when the logits end there."""
    rows = [["none", "0", number(found.uniform), "", ""]]
    for order, (count, after, spread, change) in enumerate(
        zip(found.counts, found.after, found.spread, found.marginal, strict=True)
    ):
        rows.append([str(order), f"{count:,}", number(after), number(spread), signed(change)])
    over = f"{amount(found.by_prompt.shape[1], 'prompt')}, next tokens of {amount(len(found.queries), 'query')}"
    how = "patterns held fixed" if found.composition == "V" else f"of the {_SIDES[found.composition]} side of scores"
    title = f"{_OF[found.unit]} after each order, {how}; {over.replace('querys', 'queries')}"
    return Titled(title, ["up to order", "terms", "after", "std over prompts", "change"], rows, [1, 2, 3, 4])


def effects_parts(found: LossEffects, top: int = 20) -> list[Titled]:
    """A row a part."""
    chosen = sorted(found.parts, key=lambda p: -abs(p.last))[: whole("top", top, 0)]
    rows = [[p.name, f"{p.count:,}", signed(p.alone), signed(p.last)] for p in found.parts if p in chosen]
    left = len(found.parts) - len(rows)
    title = f"{_OF[found.unit]}: what the terms of each {found.by} change, patterns held fixed"
    title += f"; the {len(rows)} largest of {len(found.parts)}" if left else ""
    notes = [
        f"added alone to the terms without a head ({number(found.direct)}), or last to all others (then "
        f"{number(found.model)}); {amount(found.prompts, 'prompt')}"
    ]
    return [Titled(title, [found.by, "terms", "alone", "last"], rows, [1, 2, 3], notes=notes)]
