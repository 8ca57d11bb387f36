"""The part of the page about heads: scores split, patterns, and what happens when parts are removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.explanation.ablation import distance, part_name, score_part
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.removals import HeadChange, PatternChange, Removals
from symcircuits.explanation.score_parts import (
    ScoreParts,
    ScoreTerm,
    bounds_of_heads,
    largest_score_terms,
    score_parts,
)
from symcircuits.model import of_outputs
from symcircuits.render.figures import HeatMap, pattern_map, removed_map, score_maps, score_term_map, source_maps
from symcircuits.render.markup import FAULTS, Markup, el, filters, formula, join, marks, optional, table
from symcircuits.render.svg import figure
from symcircuits.render.tables import Titled, number
from symcircuits.work.progress import OnProgress

__all__ = ["MOST_CELLS", "head_changes", "head_sections", "removal_table", "removals_of"]

Array = npt.NDArray[Any]

MOST_CELLS = 40  # rows and columns of a heat map
MOST_BYTES = 6_000_000  # of the sections of heads together
MOST_SECTIONS = 8
MOST_REMOVALS = 48  # heads of a model up to which all are removed and the rest recomputed, and rows of that table
FEW_REMOVALS = 12  # heads that are removed so of a larger model
MOST_TOGETHER = 2**16  # numbers of a head's scores up to which parts of all heads are removed together
MOST_TERMS = 10  # score terms of a head
MOST_OWN = 4  # of these with a heat map of their own, and removed one by one
MOST_SINGLE = 8  # heads of a model up to which terms are removed one by one for all, else for the chosen head alone


def head_sections(
    found: Explanation, chosen: str | None, removals: Callable[[], Removals], left_out: list[str],
    progress: OnProgress = None,
) -> list[Markup]:  # fmt: skip
    """The scores of heads: the chosen one, then those of largest margin as far as there is room."""
    if chosen is None:
        return []
    order = [chosen, *sorted((h for h in found.scores if h != chosen), key=lambda h: -abs(found.scores[h].margin))]
    single = len(order) <= MOST_SINGLE
    if not single:
        left_out.append(f"removing score terms one by one, for other heads than {chosen}")
    shown, own = order[:MOST_SECTIONS], {h: MOST_OWN if single or h == chosen else 0 for h in order}
    split = _Split(found, shown, own, removals)
    made: dict[str, Markup] = {}
    size = 0
    for i, head in enumerate(shown):
        said = left_out if head == chosen else []
        one = optional(f"scores of {head}", partial(_head_section, found, split, head, said), left_out)
        size += len(one)
        if made and size > MOST_BYTES:
            break
        made[head] = one if 'data-head="' in one else el("section", one, data_head=head, id=f"head-{head}")
        if progress:
            progress("heads", i + 1, len(shown))
    if len(made) < len(order):
        gone = [h for h in found.scores if h not in made]
        named = ", ".join(gone[:20]) + (", ..." if len(gone) > 20 else "")
        left_out.append(f"the scores of {amount(len(gone), 'head')} with smaller margins: {named}")
    heads = [h for h in found.scores if h in made]
    options = [el("option", h, value=h, selected=h == chosen) for h in heads]
    chooser = el("p", el("label", "head", el("select", *options, id="head-choice")), class_="controls", hidden=True)
    inside = (el("h2", "Scores of a head", id="heads"), chooser, *(made[h] for h in heads))
    return [el("section", *inside)]


class _Split:
    """The scores of the heads that are shown, split; what removing parts changes is computed for all heads at once."""

    def __init__(
        self, found: Explanation, heads: Sequence[str], own: Mapping[str, int], removals: Callable[[], Removals]
    ) -> None:
        self._run, self._heads, self._own, self._removals = found.run, heads, own, removals
        self.parts = cache(partial(score_parts, found.run))
        self._bounds = cache(partial(bounds_of_heads, found.run, heads))
        self.largest = cache(self._largest)
        self._together = cache(self._all)

    def _largest(self, head: str) -> tuple[tuple[ScoreTerm, ...], int]:
        return largest_score_terms(self._run, head, MOST_TERMS, bounded=self._bounds().get(head))

    def removed(self, head: str) -> dict[str, Array]:
        """What is taken from a head's scores, by name: composition types, and the largest terms where they are few."""
        run, terms = self._run, self.largest(head)[0][: self._own[head]]
        types = {part_name(run, f"composition {c}"): v for c, v in self.parts(head).by_composition.items()}
        scores = expand(run.model.architecture, f"scores:{head}")
        return {**types, **(dict(score_part(run, scores, s.term) for s in terms) if len(terms) > 1 else {})}

    def changes(self, head: str) -> dict[str, PatternChange]:
        """What changes without each of these."""
        found = self._together().get(head)
        return self._removals().scores({head: self.removed(head)})[head] if found is None else found

    def _all(self) -> dict[str, dict[str, PatternChange]]:
        """Of all heads; of none where these are large, or where one of them cannot be: then each is by itself."""
        if self._run.scores[self._heads[0]].size > MOST_TOGETHER:
            return {}
        try:
            return self._removals().scores({head: self.removed(head) for head in self._heads})
        except FAULTS:
            return {}


def _head_section(found: Explanation, split: _Split, head: str, left_out: list[str]) -> Markup:
    parts = split.parts(head)
    terms, looked_at = split.largest(head)
    count = sum(found.scores[head].counts.values())
    if looked_at < count:
        some = f"{looked_at:,} of {count:,} of {head}"
        left_out.append(
            f"of scores, terms of higher orders one by one ({some} are examined); sums and shares include all"
        )
    inside = [
        el("h3", f"Scores of {head}", tabindex=-1), _shares(found, parts),
        optional(
            f"heat maps of {head}", lambda: _maps([pattern_map(found, head), *score_maps(found, parts)]), left_out
        ),
        el("p", "Centred: each row minus its mean over allowed keys; all parts on one colour scale.", class_="soft"),
        optional(
            f"heat maps of {head}, not centred",
            lambda: _folded("the same, not centred", score_maps(found, parts, False)), left_out,
        ),
        optional(f"scores of {head} by source", lambda: _sources(found, parts), left_out),
        optional(f"largest score terms of {head}", lambda: _terms(found, head, terms, count), left_out),
        optional(
            f"removing parts of the scores of {head}", lambda: _removed(found, split, parts), left_out,
        ),
    ]  # fmt: skip
    return el("section", *inside, data_head=head, id=f"head-{head}")


def _maps(maps: Sequence[HeatMap]) -> Markup:
    return el("div", *(figure(m, MOST_CELLS) for m in maps), class_="maps")


def _folded(title: str, maps: Sequence[HeatMap]) -> Markup:
    return el("details", el("summary", title), _maps(maps))


def _shares(found: Explanation, parts: ScoreParts) -> Markup:
    s = found.scores[parts.head]
    rows = [
        [c, f"{s.counts[c]:,}", _share(s.shares[c]), _share(s.centred_shares[c]), number(s.norms[c]),
         number(s.centred_norms[c])]
        for c in s.counts if s.counts[c]
    ]  # fmt: skip
    attributes: list[dict[str, str]] = [{}] * len(rows)
    if parts.invisible_count:
        size = frobenius(np.where(parts.allowed, parts.invisible, 0))
        within = f" to within {number(parts.spread, 2)}" if parts.spread else ""
        name = f"of these not seen by softmax (constant along the keys{within})"
        rows.append([name, f"{parts.invisible_count:,}", "0", "0", number(size), "0"])
        attributes.append({"class_": "rest"})
    header = ["composition", "terms", "share of margin", "centred share", "norm", "centred norm"]
    title = f"Scores of {parts.head} by composition type (margin {number(s.margin)})"
    return table(Titled(title, header, rows, range(1, 6)), attributes=attributes)


def _share(share: float | None) -> str:
    """A share for a table; what is of the size of rounding is 0."""
    return number(None if share is None else round(share, 12) + 0.0)


def _sources(found: Explanation, parts: ScoreParts) -> Markup:
    pairs = sorted(parts.by_source, key=lambda p: -abs(parts.shares_by_source[p] or 0.0))
    rows = [
        [q, k, f"{parts.counts_by_source[q, k]:,}", _share(parts.shares_by_source[q, k]),
         number(frobenius(np.where(parts.allowed, parts.by_source[q, k], 0)))]
        for q, k in pairs
    ]  # fmt: skip
    header = ["query from", "key from", "terms", "centred share", "norm"]
    title = f"Scores of {parts.head} by source of query and key"
    return join([table(Titled(title, header, rows, range(2, 5)), head=None), _maps(source_maps(found, parts))])


def _terms(found: Explanation, head: str, terms: Sequence[ScoreTerm], count: int) -> Markup:
    name = f"scores-{head}"
    rows = [
        [join([s.term.label, " (not seen by softmax)" if s.softmax_invisible else "", formula(s.term.word)]),
         s.term.composition, _share(s.centred_share), number(s.centred_norm), number(s.norm)]
        for s in terms
    ]  # fmt: skip
    attributes = [{**marks(s.term), "data_in": name, "data_counted": ""} for s in terms]
    header = ["query path | key path, and formula", "composition", "centred share", "centred norm", "norm"]
    title = f"Largest of the {amount(count, 'score term')} of {head}, by centred norm"
    own = [score_term_map(found, s.term) for s in terms[:MOST_OWN]]
    some = filters(name, [s.term for s in terms])
    shown = table(Titled(title, header, rows, range(2, 5)), attributes=attributes)
    return join([some, shown, _folded("heat maps of the largest (centred)", own)])


# ------------------------------------------------------------------------------------------------ removals
def _removed(found: Explanation, split: _Split, parts: ScoreParts) -> Markup:
    """What the pattern and the logits do when composition types and single terms are taken from the scores."""
    head, run, gone = parts.head, found.run, split.changes(parts.head)
    types = [part_name(run, f"composition {c}") for c in parts.by_composition]
    maps = [removed_map(found, head, name, gone[name].pattern) for name in types]
    rows = []
    for name, change in gone.items():
        far = distance(change.pattern - run.patterns[head])
        if run.model.architecture.softmax and far.size:  # a query of one key has the pattern 1, whatever is removed
            far = far[..., np.sum(parts.allowed, axis=-1) > 1]
        mean = float(far.mean()) if far.size else 0.0
        changes = (mean, float(far.max(initial=0.0)), *change.frozen, *change.recomputed)
        rows.append([name, *map(number, changes)])
    names = [f"{name}: {kind}" for kind in ("frozen", "recomputed") for name in _changes(found)]
    header = ["removed from the scores", "pattern distance, mean", "largest", *names]
    title = f"What changes when a part of the scores of {head} is removed (computed, not estimated)"
    shown = table(Titled(title, header, rows, range(1, len(header))))
    return join([shown, _folded("the patterns without each part", maps)])


def _changes(found: Explanation) -> list[str]:
    """What a change is measured by."""
    names = ["readout" if found.readout else "logit", "difference"]
    return names[: len(found.measure.chosen)] or ["norm of the change"]


def removals_of(found: Explanation) -> Removals:
    """Of the same model with the chosen outputs alone: changes of these cost no whole vocabulary."""
    by, chosen, run = found.measure, found.measure.chosen, found.run
    if chosen and not found.readout:
        run = of_outputs(run, chosen)
        by = replace(by, token=0, against=1 if len(chosen) == 2 else None)
    return Removals(run, found.expansion, by)


def head_changes(found: Explanation, removals: Removals, left_out: list[str]) -> dict[str, HeadChange]:
    """What removing a head's output changes: all recomputed for the heads that matter most, else all held fixed.

    Those are the heads whose scores have the largest margins (what later heads look at may hang on them), and those
    that change the chosen number most with everything held fixed.
    """
    heads = sorted(found.scores, key=lambda h: -abs(found.scores[h].margin))
    if len(heads) <= MOST_REMOVALS:
        return removals.heads([*found.scores])
    frozen = removals.frozen(heads)
    at = -1 if found.measure.against is not None else 0
    largest = sorted(frozen, key=lambda h: -abs(frozen[h].value[at]))
    answered = [h for h in heads if h not in frozen or frozen[h].whole is None]
    by_size = [h for h in largest if frozen[h].whole is None]
    by_margin = answered[: FEW_REMOVALS // 2 if frozen else FEW_REMOVALS]
    chosen = [*dict.fromkeys([*by_margin, *by_size])][:FEW_REMOVALS]
    left_out.append(
        f"in removing a head: what changes when the rest is recomputed, for all but {amount(len(chosen), 'head')} "
        "(half of them those with the largest margins, the others those that change most with all held fixed)"
    )
    shown = {*chosen, *[h for h in largest if h not in chosen][: max(0, MOST_REMOVALS - len(chosen))]}
    if len(shown) < len(heads):
        left_out.append(f"the removal of {amount(len(heads) - len(shown), 'other head')}, which changes less")
    changes = {**frozen, **removals.heads(chosen)}
    return {head: changes[head] for head in found.scores if head in shown}


def removal_table(found: Explanation, changes: Mapping[str, HeadChange], shown: str) -> Markup:
    """What removing the output of a head changes; with links to the sections in ``shown``."""
    rows, opened = [], set(re.findall(r'id="head-([^"]+)"', shown))
    for head, change in changes.items():
        cells: list[str] = [el("a", head, href=f"#head-{head}") if head in opened else head]
        for i, value in enumerate(change.value):
            cells += [
                number(value),
                *("" if part is None else number(part[i]) for part in (change.pattern, change.whole)),
            ]
        rows.append(cells)
    parts = ("value part (frozen)", "pattern part", "whole change")
    header = ["head", *(f"{name}: {part}" for name in _changes(found) for part in parts)]
    what = f"chosen {_changes(found)[0]}" if found.measure.token is not None else "stream"
    title = f"Change of the {what} when a head's output is removed"
    return table(Titled(title, header, rows, range(1, len(header))))
