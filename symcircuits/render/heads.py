"""What heads look at, and why, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcircuits.circuits.attended import SUPPRESSION
from symcircuits.circuits.heads import DEFINITIONS
from symcircuits.core.text import amount
from symcircuits.render.tables import Titled, number

if TYPE_CHECKING:
    from symcircuits.circuits.attended import SUPPRESSION
    from symcircuits.circuits.causes import Causes
from symcircuits.circuits.heads import Heads

__all__ = ["causes_table", "heads_parts"]


def heads_parts(found: Heads) -> list[Titled]:
    """One row per head of some kind, one column per kind; then the definitions."""
    shown = {label: head for label, head in found.heads.items() if head.kinds}
    first = next(iter(found.heads.values()), None)
    kinds, rows = list(first.scores) if first else [], []
    for label, head in shown.items():
        cells = ["-" if score is None else f"{score.mean:.2f}" for score in head.scores.values()]
        offset = "" if head.offset is None or "fixed-offset" not in head.kinds else f" ({head.offset})"
        rows.append([label, *cells, ", ".join(head.kinds) + offset])
    if first is not None:
        even = {kind: score for kind, score in first.scores.items() if kind != SUPPRESSION and score is not None}
        rows.append(["equal", *(f"{even[k].equal:.2f}" if k in even else "-" for k in kinds), "equal weights"])
    title = f"What heads look at: {amount(len(shown), 'head')} of some kind (threshold {number(found.threshold)})"
    left = len(found.heads) - len(shown)
    notes = [f"{amount(left, 'head')} of no kind (not shown)"] if left else []
    header = ["head", *kinds, "kinds"]
    table = Titled(title, header, rows, [*range(1, len(header) - 1)], points=[f"  - {found.prompts.said}"], notes=notes)
    said = [f"  {kind}: {DEFINITIONS[kind]}" for kind in kinds]
    return [table, Titled("Definitions", points=said)]


def causes_table(found: Causes) -> Titled:
    """What the score of a head is without each part of its scores: the parts without which it loses a tenth."""
    parts = [p for p in sorted(found.parts, key=lambda p: p.without) if p.without <= 0.9 * found.score]
    rows = [[p.text, f"{p.terms:,}", f"{p.without:.2f}", f"{p.without - found.score:+.2f}"] for p in parts]
    left = len(found.parts) - len(parts)
    change = "changes" if left == 1 else "change"
    notes = [f"{amount(left, 'other part')} {change} it by less than a tenth"] if left else []
    score = f"{found.kind} score ({found.score:.2f} on the longest period)"
    title = f"Why {found.head}: its {score} without a part of its scores"
    return Titled(title, ["without", "terms", "score", "change"], rows, [1, 2, 3], notes=notes)
