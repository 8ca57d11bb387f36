"""What the figures of a model's circuits show, as plain data: for the page and for matplotlib alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.circuits.circuit import circuit
from symcircuits.circuits.composition import CompositionScores
from symcircuits.circuits.fewer_tokens import MOST_TOKENS, same_qk_spectrum
from symcircuits.circuits.report import Circuits
from symcircuits.circuits.transport import DirectEffects, written_rows
from symcircuits.circuits.trigrams import skip_trigrams
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.model import Run
from symcircuits.render.figures import HeatMap
from symcircuits.render.tables import Titled, number
from symcircuits.values.evaluate import evaluate
from symcircuits.values.measure import score_entry

__all__ = [
    "Counts", "Edge", "Points", "composition_maps", "edges", "effect_maps", "eigenvalue_points", "pattern_maps",
    "positivity_counts", "positivity_points", "score_table", "trigram_table", "value_maps",
]  # fmt: skip

Array = npt.NDArray[Any]
MOST_PATTERNS: Final = 12
MOST_TERMS: Final = 20_000  # of a head's scores, of which each is looked at
_KEYS, _TERMS = 3, 6  # of a table of scores: keys with the highest scores, and terms


@dataclass(frozen=True, slots=True)
class Edge:
    """A pair above chance in the graph of composition: its kind, both heads, score and z."""

    kind: str
    earlier: str
    later: str
    score: float
    z: float


@dataclass(frozen=True, slots=True)
class Points:
    """Points in the plane, -1 to 1 on both axes, with their names (empty: none)."""

    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_name: str
    y_name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of some numbers lie between one edge and the next."""

    title: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def edges(found: Circuits) -> list[Edge]:
    """The pairs above chance, those furthest above first."""
    pairs = [
        Edge(kind, p.earlier, p.later, score=p.score, z=p.z)
        for kind, scores in found.composition.items() for p in scores.pairs()
        if p.chance == "above" and p.score is not None and p.z is not None
    ]  # fmt: skip
    return sorted(pairs, key=lambda one: -one.z)


def eigenvalue_points(found: Circuits) -> list[Points]:
    """Of each OV circuit, and of the QK circuits of pairs, the eigenvalues over the largest modulus."""
    named = [(f"OV {head}", one) for head, one in found.copying.items()]
    named += [(f"QK {later} from {earlier}", one) for (later, earlier), one in found.matching.items()]
    points = []
    for name, one in named:
        largest = max(map(abs, one.eigenvalues), default=0.0)
        if largest:
            known = "no value" if one.eigenvalue_positivity is None else f"{one.eigenvalue_positivity:+.2f}"
            over = [z / largest for z in one.eigenvalues]
            x, y = tuple(z.real for z in over), tuple(z.imag for z in over)
            points.append(Points(f"{name} ({known})", x, y, x_name="real", y_name="imaginary"))
    return points


def positivity_points(found: Circuits) -> Points | None:
    """Of each head how positive the eigenvalues of its QK circuit and of its OV circuit are; of pairs above chance the
    QK circuit is that of K-composition, and its name says so. None where no head has both.
    """
    points, model = [], same_qk_spectrum(found.model)
    for head, one in found.copying.items():
        own = circuit(model, "QK", head).spectrum.positivity
        points.append((head, own, one.eigenvalue_positivity))
        points += [
            (f"{head} from {earlier}", two.eigenvalue_positivity, one.eigenvalue_positivity)
            for (later, earlier), two in found.matching.items() if later == head
        ]  # fmt: skip
    known = [(name, x, y) for name, x, y in points if x is not None and y is not None]
    if not known:
        return None
    names, x, y = zip(*known, strict=True)
    title = "How positive are the eigenvalues: looking for the same token (QK), copying it (OV)"
    return Points(title, x, y, x_name="QK positivity", y_name="OV positivity", names=names)


def positivity_counts(found: Circuits) -> Counts | None:
    """How many OV circuits have eigenvalues how positive, in ten intervals; None where none has a value."""
    known = [p for one in found.copying.values() if (p := one.eigenvalue_positivity) is not None]
    if not known:
        return None
    counts, ends = np.histogram(np.clip(known, -1, 1), bins=10, range=(-1, 1))
    title = "How many heads have an OV circuit with eigenvalues how positive"
    return Counts(title, tuple(map(float, ends.round(12))), tuple(map(int, counts)))


def composition_maps(found: Circuits) -> list[HeatMap]:
    """Of Q, K and V the standard deviations from chance: rows are later heads, columns earlier ones."""
    return [_map(kind, scores) for kind, scores in found.composition.items()]


def _map(kind: str, scores: CompositionScores) -> HeatMap:
    z, names = scores.z, scores.labels
    arch = scores.model.architecture
    first, last = arch.heads[0] if arch.heads else 0, len(names) - (arch.heads[-1] if arch.heads else 0)
    values = np.asarray(z.filled(0.0))[first:, :last]
    shown = ~np.ma.getmaskarray(z)[first:, :last]
    largest = float(np.abs(values).max(initial=0.0))
    title = f"{kind}-composition: standard deviations from chance"
    return HeatMap(title, values, shown, names[first:], names[:last], row_name="later head",
                   column_name="earlier head", largest=largest)  # fmt: skip


def shown_run(found: Circuits) -> Run:
    """The run that figures are of: the first prompt of the longest period, else of the control."""
    prompts = found.heads.prompts
    tokens = prompts.repeated[max(prompts.repeated)] if prompts.repeated else prompts.control
    return found.model.run(tokens[0])


def pattern_maps(found: Circuits) -> list[HeatMap]:
    """The patterns of heads of some kind; tokens by their numbers."""
    run = shown_run(found)
    return [_square(run, label, f"{label}: {', '.join(found.heads[label].kinds)}", run.patterns[label], signed=False)
            for label in _of_kinds(found)]  # fmt: skip


def value_maps(found: Circuits) -> list[HeatMap]:
    """Of the same heads the pattern times the length of what is written, ``A |W_O v|``.

    It stays under rotations of the stream, and not under other changes of its basis.
    """
    run, maps = shown_run(found), []
    for label in _of_kinds(found):
        values = run.patterns[label] * np.linalg.norm(written_rows(run, label), axis=-1)
        title = f"{label}: pattern times length of what is written"
        one = _square(run, label, title, values, signed=False)
        maps.append(replace(one, largest=float(np.where(one.shown, np.abs(values), 0).max(initial=0.0))))
    return maps


def trigram_table(found: Circuits, head: str, k: int = 6) -> Titled | None:
    """The strongest skip-trigrams of a head; None where the vocabulary is too large to look at all, or not one."""
    model = found.model
    if model.d_vocab > MOST_TOKENS or model.d_vocab_out is None or model.d_vocab_out < model.d_vocab:
        return None
    rows = [
        [f"{t.source} … {t.destination} → {t.output}", f"{t.attends:+.2f}", f"{t.adds:+.2f}"]
        for t in skip_trigrams(model, head, k)
    ]
    title = f"Skip-trigrams of {head}: source … destination → output"
    return Titled(title, ["tokens", "score", "logit"], rows, [1, 2])


def effect_maps(found: Circuits) -> list[HeatMap]:
    """Of the same heads the pattern times what the head adds directly to the logit of the query's next token.

    ``A_ij e_ij``, with ``e_ij`` what ``W_O v_j`` adds to the logit of the token after query i, less the mean over all
    outputs; norms before the logits held fixed. None where outputs are not the input tokens.
    """
    model, run = found.model, shown_run(found)
    if model.d_vocab_out is None or model.d_vocab_out < model.d_vocab or len(run.tokens) < 2:
        return []
    direct, maps = DirectEffects(evaluate(expand(model.architecture, "logits"), run)), []
    for label in _of_kinds(found):
        pattern = direct.weights(run.patterns[label])
        effect = np.zeros(pattern.shape)
        effect[:-1] = pattern[:-1] * direct.read(written_rows(run, label), run.tokens[1:]).T
        maps.append(_square(run, label, f"{label}: effect on the next token's logit", effect, signed=True))
    return maps


def _of_kinds(found: Circuits) -> list[str]:
    return [label for label, head in found.heads.heads.items() if head.kinds][:MOST_PATTERNS]


def _square(run: Run, head: str, title: str, values: Array, signed: bool) -> HeatMap:
    names = tuple(map(str, run.tokens))
    shown = np.asarray(run.masks[f"L{run.model.architecture.head(head).layer}"], bool)
    largest = float(np.abs(np.where(shown, values, 0)).max(initial=0.0)) if signed else 1.0
    return HeatMap(title, values, shown, names, names, largest=largest, signed=signed)


def score_table(found: Circuits, head: str) -> Titled | None:
    """A head's scores of one query, term by term: the keys with the highest scores, their largest terms, and the sum.

    The query is the last one whose next token stands in the prompt. None for a head with too many terms.
    """
    run, arch = shown_run(found), found.model.architecture
    values = evaluate(expand(arch, f"scores:{head}"), run)
    if values.expansion.count > MOST_TERMS or len(run.tokens) < 2:
        return None
    query = len(run.tokens) - 2
    scores = np.asarray(run.products.get(head, run.scores[head]))[query]
    allowed = np.isfinite(run.scores[head][query])
    keys = sorted(np.flatnonzero(allowed), key=lambda j: -scores[j])[:_KEYS]
    parts = np.stack([
        np.concatenate([block.values for block in values.measure(score_entry(query, int(j)))]) for j in keys
    ])  # fmt: skip
    best = np.argsort(-np.abs(parts).max(0))[:_TERMS]
    rows = [[values.expansion[int(i)].label, *(number(float(x), 3) for x in parts[:, i])] for i in best]
    left = parts.shape[1] - len(best)
    rest = parts.sum(1) - parts[:, best].sum(1)
    rows += [[f"{amount(left, 'other term')}", *(number(float(x), 3) for x in rest)]] if left else []
    rows.append(["all terms", *(number(float(x), 3) for x in parts.sum(1))])
    rows.append(["the score that the model computes", *(number(float(scores[j]), 3) for j in keys)])
    header = ["term", *(f"key {j} (token {run.tokens[j]})" for j in keys)]
    title = f"Scores of {head} at query {query} (token {run.tokens[query]}): the {len(keys)} highest keys"
    return Titled(title, header, rows, range(1, 1 + len(keys)))
