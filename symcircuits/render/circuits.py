"""Composition scores in words and tables, and as plain data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from symcircuits.circuits.composition import FAR, INVARIANT
from symcircuits.core.text import amount
from symcircuits.render.tables import Titled, number, plain_text

if TYPE_CHECKING:
    from symcircuits.circuits.chance import Chance
    from symcircuits.circuits.composition import CompositionScores, Pair

__all__ = ["composition_json", "composition_text"]

_WORDS = {"above": "above chance", "below": "below chance", "at": "at chance", None: "-"}
_LISTED = 3  # reasons


# ------------------------------------------------------------------------------------------- composition scores
def composition_text(found: CompositionScores, width: int = 100, top: int = 20) -> str:
    """The formula, what chance is, and the pairs that are furthest from it."""
    pairs = list(found.pairs())
    known = [pair for pair in pairs if pair.score is not None]
    said = [found.formula(), "Frobenius norms; h_2 the later head, h_1 the earlier"]
    said += [_chance_words(one) for one in found.baselines]
    counts = Counter(pair.chance for pair in known)
    if counts:
        parts = [f"{counts[key]} {_WORDS[key]}" for key in ("above", "below", "at") if counts[key]]
        said.append(f"{amount(len(known), 'pair')}: {', '.join(parts)} (within {FAR:g} standard deviations)")
    said.append(INVARIANT)
    said.append("a score is not an effect: it says that weights are aligned")
    said += [*found.notes, *_reasons(pairs)]
    tables = [Titled(f"{found.kind}-composition of {found.model.name}", points=[f"  - {line}" for line in said])]
    shown = sorted(known, key=lambda pair: -abs(pair.z or 0.0))[:top]
    if shown:
        rows = [
            [p.later, p.earlier, number(p.score), number(p.z, 3), number(p.tight, 3), _WORDS[p.chance]] for p in shown
        ]
        title = "All pairs" if len(shown) == len(known) else f"The {len(shown)} furthest from chance"
        tables.append(Titled(title, ["later", "earlier", "score", "z", "tight", ""], rows, [2, 3, 4]))
    return plain_text(tables, width)


def _chance_words(one: Chance) -> str:
    s = one.shapes
    heads = f"d_head {s.later}" if s.later == s.earlier else f"d_head {s.later} (later) and {s.earlier} (earlier)"
    return (
        f"by chance {one.mean:.4f} with standard deviation {one.std:.2g} ({amount(one.samples, 'pair')} of random "
        f"heads with d_model {s.write}, {heads}, seed {one.seed}); 1/sqrt(d_model) is {one.about:.4f}"
    )


def _reasons(pairs: list[Pair]) -> list[str]:
    reasons = Counter(pair.reason for pair in pairs if pair.score is None)
    lines = [f"{amount(count, 'pair')} without a score: {why}" for why, count in reasons.most_common(_LISTED)]
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(_LISTED))
    return [*lines, *([f"{amount(rest, 'more pair')} without a score"] if rest else [])]


def composition_json(found: CompositionScores) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.composition/1",
        "model": {"name": found.model.name, "architecture": str(found.model.architecture)},
        "type": found.kind,
        "formula": {"text": found.formula(), "latex": found.latex()},
        "convention": found.convention,
        "invariant": INVARIANT,
        "folded": found.folded,
        "offset": found.offset,
        "baselines": [
            {
                "d_model": one.shapes.write, "later_d_head": one.shapes.later, "earlier_d_head": one.shapes.earlier,
                "mean": one.mean, "std": one.std, "samples": one.samples, "seed": one.seed, "about": one.about,
            }
            for one in found.baselines
        ],
        "notes": list(found.notes),
        "pairs": [{**row, "reason": row["reason"] or None} for row in found.table()],
    }  # fmt: skip
