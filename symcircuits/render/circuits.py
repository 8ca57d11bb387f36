"""Composition scores and circuits in words and tables, and as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symcircuits.circuits.composition import FAR, INVARIANT
from symcircuits.circuits.copying import DEFINITIONS, MEANS, NOT_SUFFICIENT
from symcircuits.core.text import amount, whole
from symcircuits.explanation.labels import Labels, read_labels
from symcircuits.render.tables import Titled, number

if TYPE_CHECKING:
    from symcircuits.circuits.chance import Chance
    from symcircuits.circuits.circuit import Circuit
    from symcircuits.circuits.composition import CompositionScores, Pair
    from symcircuits.circuits.copying import DiagonalScores

__all__ = [
    "circuit_json", "circuit_parts", "composition_json", "composition_parts", "diagonal_json", "diagonal_parts",
]  # fmt: skip

_WORDS = {"above": "above chance", "below": "below chance", "at": "at chance", None: "-"}
_LISTED = 3  # reasons


# ------------------------------------------------------------------------------------------- composition scores
def composition_parts(found: CompositionScores, top: int = 20) -> list[Titled]:
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
    shown = sorted(known, key=lambda pair: -abs(pair.z or 0.0))[: whole("top", top, 0)]
    if shown:
        rows = [
            [p.later, p.earlier, number(p.score), number(p.z, 3), number(p.tight, 3), _WORDS[p.chance]] for p in shown
        ]
        title = "All pairs" if len(shown) == len(known) else f"The {len(shown)} furthest from chance"
        tables.append(Titled(title, ["later", "earlier", "score", "z", "tight", ""], rows, [2, 3, 4]))
    return tables


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


# ------------------------------------------------------------------------------------------------------ circuits
def circuit_parts(found: Circuit, top: int = 0, labels: Sequence[str] | None = None) -> list[Titled]:
    """What a circuit is, and its numbers."""
    vocabulary = found.model.d_vocab
    names = Labels() if labels is None else read_labels(labels, vocabulary, vocabulary, found.model.d_vocab_out)
    rows, columns = found.shape
    said = [
        f"{rows} {found.axes[0]}s (rows) x {columns} {found.axes[1]}s (columns): {found.convention}",
        f"rank {found.svd.rank}, {found.width} at most; norm {number(found.norm)}",
    ]
    said += _spectrum_words(found) if _square(found) else []
    said += [found.invariant, *found.notes]
    parts = [Titled(f"{found.formula} of {found.model.name}", points=[f"  - {line}" for line in said])]
    if top:
        row, column = found.axes
        pairs = [
            [_called(p.row, row, names), _called(p.column, column, names), number(p.value)] for p in found.top(top)
        ]
        parts.append(Titled("The largest entries", [row, column, "value"], pairs, [2] if labels else [0, 1, 2]))
    return parts


def _called(i: int, axis: str, names: Labels) -> str:
    """What a row or a column is called."""
    if not axis.endswith("token"):
        return str(i)
    return names.output(i) if axis.startswith("output") else names.at(0, i)


def _square(found: Circuit) -> bool:
    kinds = {axis.rpartition(" ")[2] for axis in found.axes}
    return len(kinds) == 1 and found.shape[0] == found.shape[1]


def _spectrum_words(found: Circuit) -> list[str]:
    spectrum = found.spectrum
    lines = [f"trace {number(spectrum.trace)}, the sum of its eigenvalues"]
    if spectrum.positivity is None:
        return [*lines, f"no eigenvalue positivity: {spectrum.reason}"]
    error = f" +- {number(spectrum.error, 2)}" if spectrum.error and spectrum.error > 1e-6 else ""
    return [
        *lines,
        f"eigenvalue positivity {number(spectrum.positivity)}{error}: {DEFINITIONS['eigenvalue_positivity']}",
    ]


def circuit_json(found: Circuit, top: int = 0) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    spectrum = found.spectrum if _square(found) else None
    values = None if spectrum is None else [[v.real, v.imag] for v in spectrum.values.tolist()]
    return {
        "schema": "symcircuits.circuit/1",
        "model": {"name": found.model.name, "architecture": str(found.model.architecture)},
        "kind": found.kind,
        **{name: [str(head) for head in getattr(found, name)] for name in ("heads", "query", "key")},
        "formula": {"text": found.formula, "latex": found.latex()},
        "notation": found.notation.json(),
        "convention": found.convention,
        "invariant": found.invariant,
        "axes": list(found.axes),
        "shape": list(found.shape),
        "width": found.width,
        "rank": found.svd.rank,
        "norm": found.norm,
        "trace": None if spectrum is None else spectrum.trace,
        "eigenvalues": values,
        "eigenvalue_positivity": None if spectrum is None else spectrum.positivity,
        "error": None if spectrum is None else spectrum.error,
        "reason": (None if spectrum is None else spectrum.reason) or None,
        "singular_values": found.svd.values.tolist(),
        "blocks": [{"start": b.start, "stop": b.stop, "kind": b.kind} for b in found.svd.blocks],
        "notes": list(found.notes),
        "top": [pair._asdict() for pair in found.top(top)] if top else [],
    }


# -------------------------------------------------------------------------------------------- copying and matching
def diagonal_parts(found: DiagonalScores) -> list[Titled]:
    """The three scores, each with its definition."""
    chance = {name: number(value, 2) for name, value in found.by_chance.items()}
    chance["eigenvalue_positivity"] = f"0 +- {number(found.chance.std, 2)}"
    rows = [
        [name.replace("_", " "), number(getattr(found, name)), chance[name], of] for name, of in DEFINITIONS.items()
    ]
    notes = [f"no eigenvalue positivity: {found.reason}"] if found.reason else []
    notes += [f"{amount(found.ties, 'token')} tied for the top"] if found.ties else []
    notes.append(f"{NOT_SUFFICIENT}; {MEANS[found.name]}")
    head = f"{found.name.capitalize()}, of {amount(found.tokens, 'token')}"
    return [Titled(head, ["score", "", "by chance", "definition"], rows, [1, 2], notes=notes)]


def diagonal_json(found: DiagonalScores) -> dict[str, Any]:
    """The same as plain data; the schema is in docs/json.md."""
    named = {name: getattr(found, name) for name in (*DEFINITIONS, "error", "tokens", "ties")}
    spread = {name: getattr(found.chance, name) for name in ("std", "samples", "seed")}
    return {
        "name": found.name,
        **named,
        "reason": found.reason or None,
        "definitions": dict(DEFINITIONS),
        "by_chance": {**found.by_chance, **spread},
    }
