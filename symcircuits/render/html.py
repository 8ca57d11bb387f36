"""An explanation as one self-contained page: no server, no network, no other files.

Formulas are MathML made from the checked words, figures inline SVG. The page states what it leaves out: it is kept
below a few megabytes, and everything in it is escaped (:mod:`symcircuits.render.markup`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from symcircuits.core.programs import made_once
from symcircuits.core.text import amount
from symcircuits.explanation import sizes
from symcircuits.explanation.explain import Explanation
from symcircuits.explanation.removals import HeadChange
from symcircuits.render.explained import (
    RANKED,
    against_name,
    closure_cells,
    degrees_of,
    logit_name,
    ratio,
    target_name,
    totals_of,
)
from symcircuits.render.explained import sizes as size_names
from symcircuits.render.explanation_findings import findings_of
from symcircuits.render.figures import contribution_bars, origin_map, term_map, token_labels
from symcircuits.render.html_heads import MOST_CELLS, head_changes, head_sections, removal_table, removals_of
from symcircuits.render.markup import FAULTS, Markup, el, filters, formula, join, marks, optional, section, table
from symcircuits.render.shell import page_of
from symcircuits.render.svg import bar, figure
from symcircuits.render.tables import Titled, number
from symcircuits.values.by_position import Reads
from symcircuits.values.closure import parts_named, worst_closure
from symcircuits.values.evaluate import Closure, evaluate
from symcircuits.work.progress import OnProgress

__all__ = ["explanation_html"]

MOST_ROWS = 200  # terms in the page
MOST_MAPS = 8  # terms with a heat map of their own
MOST_ORIGINS = 40  # rows of the map of where terms come from
MOST_TOKENS = 400
MOST_HEADS = 300  # rows of a table of heads

_READING = (
    ("norm", "Frobenius norm of the array of a term (or of a sum), over all rows, positions and outputs."),
    ("contribution", "The term's entry of the chosen logit (or direction of the readout); contributions of all terms "
     "add up to it."),
    ("centred (of a term)", "The contribution less its mean over all outputs: it does not change when a vector is "
                            "added to every row of W_U, and neither do the probabilities."),
    ("difference", "Contribution to the first logit (or direction) minus contribution to the second."),
    ("margin", "Score of the key with the largest pattern minus the mean over the query's other keys, over queries."),
    ("centred (of scores)", "Each row of scores minus its mean over the allowed keys: what is constant along the keys, "
     "which softmax does not see, drops out. Centred share: <C(part), C(scores)> / <C(scores), C(scores)>; they sum "
     "to 1."),
    ("frozen, recomputed", "Frozen: all else stays at its value on these tokens. Recomputed: everything after it is "
                           "recomputed by the model."),
    ("value part, pattern part", "Of removing a head's output: what changes with everything held fixed (minus the "
                                 "terms through the head), and the rest, recomputed minus frozen, because what was "
                                 "held fixed responds."),
    ("pattern distance", "Half the sum of |new - old| over a query's keys: 0 the same pattern, 1 nothing in common."),
)  # fmt: skip
_READING_RAW = {  # what is different without softmax
    "centred (of scores)": "Each row of scores minus its mean over the allowed keys; without softmax, what is constant "
    "along the keys counts too, and is left out of centred numbers only. Centred share: <C(part), C(scores)> / "
    "<C(scores), C(scores)>; they sum to 1.",
    "pattern distance": "Half the sum of |new - old| over a query's keys: 0 the same pattern; without softmax it has "
    "no upper limit.",
}


@made_once()
def explanation_html(found: Explanation, head: str | None = None, progress: OnProgress = None) -> str:
    """The page; ``head``: the head whose scores are shown first. Raises ValueError if it does not exist."""
    chosen = opened(found) if head is None else str(found.model.architecture.head(head))
    left_out: list[str] = []
    title = f"explain {found.model.name}"
    header = _header(found, title, left_out)
    shown, rest = _shown(found, left_out)
    removals = cache(partial(removals_of, found))
    changes = cache(lambda: head_changes(found, removals(), left_out))
    heads = head_sections(found, chosen, removals, left_out, progress)
    main = [
        _findings(found, changes, left_out),
        _assumptions(found),
        _closures(found, left_out),
        _totals(found),
        _terms(found, shown, rest),
        *_figures(found, shown, rest, left_out),
        *heads,
        *_removals(found, changes, "".join(heads), left_out),
        _left_out(left_out, len(token_labels(found))),
        _reading(found),
    ]
    return page_of(title, header, main, ("to the findings", "findings"), found.model)


def opened(found: Explanation) -> str | None:
    """The default head: the one with the largest margin, among those with composition if there are any."""
    heads = [h for h, s in found.scores.items() if sum(map(bool, s.counts.values())) > 1] or list(found.scores)
    return max(heads, key=lambda h: abs(found.scores[h].margin), default=None)


def _header(found: Explanation, title: str, left_out: list[str]) -> Markup:
    labels = token_labels(found)
    tokens = [
        el("li", el("span", str(i)), label, class_="chosen" if i == found.measure.position else None)
        for i, label in enumerate(labels[:MOST_TOKENS])
    ]
    if len(labels) > MOST_TOKENS:
        left_out.append(f"in the list of tokens: all after the first {MOST_TOKENS}")
    *batch, n = found.run.tokens.shape
    size = f"{amount(batch[0], 'row')} of {amount(n, 'token')}" if batch else amount(n, "token")
    said = [el("p", f"{found.model.architecture}; {size}")]
    if found.measure.token is not None:
        said.append(el("p", f"{logit_name(found)}: {number(found.value)}"))
    if found.measure.against is not None:
        said.append(el("p", f"difference to {against_name(found)}: {number(found.difference)}"))
    return el("header", el("h1", title), *said, el("ol", *tokens, class_="tokens", aria_label="tokens"))


# --------------------------------------------------------------------------------------------------- parts
def _findings(found: Explanation, changes: Callable[[], Mapping[str, HeadChange]], left_out: list[str]) -> Markup:
    """Sentences first, each with a link to what it comes from, and its limits."""

    def known() -> Mapping[str, HeadChange]:
        try:
            return changes()
        except FAULTS:  # the section on removing heads says why
            return {}

    def sentences() -> Markup:
        said = [
            el("li", one.said + " ", el("a", "evidence", href=f"#{one.evidence}"),
               el("span", f" Note: {one.unless}.", class_="soft"))
            for one in findings_of(found, known)
        ]  # fmt: skip
        return el("ul", *said) if said else el("p", "No number was chosen: the tables below have the sizes of terms.")

    return section("findings", "What was found", optional("sentences on what was found", sentences, left_out))


def _assumptions(found: Explanation) -> Markup:
    return section("assumptions", "What is held fixed and assumed", el("ul", *(el("li", a) for a in found.assumptions)))


def _closures(found: Explanation, left_out: list[str]) -> Markup:
    named = [(target_name(found), found.closure), *((f"scores {h}", s.closure) for h, s in found.scores.items())]
    worst = sorted(range(len(named)), key=lambda i: (i > 0 and named[i][1].passed, -ratio(named[i][1])))
    if len(named) > MOST_HEADS:
        left_out.append(f"in the closure: all but the {MOST_HEADS} worst of {len(named)} rows")
    rows: list[list[str]] = [
        [_mark(c), *closure_cells(name, c)] for name, c in map(named.__getitem__, sorted(worst[:MOST_HEADS]))
    ]
    if (layer := worst_closure(found.layers)) is not None:
        parts = f"stream + {parts_named(found.run)}"
        rows.append([_mark(layer), "every layer", number(layer.error), number(layer.bound), parts])
    title = "Largest |sum of terms - model| beside what rounding allows"
    shown = Titled(title, ["", "of", "error", "bound", "summands"], rows, [2, 3])
    said = "All closures pass." if found.ok else "A CLOSURE FAILS: the terms do not add up to the model."
    mark = el("p", said, class_="holds" if found.ok else "fails")
    return section("closure", "Closure: do the terms add up to the model?", mark, table(shown, head=1))


def _mark(c: Closure) -> Markup:
    return el("span", "pass" if c.passed else "FAIL", class_="holds" if c.passed else "fails")


def _totals(found: Explanation) -> Markup:
    title = f"Sums of the {amount(found.expansion.count, 'term')} of the {target_name(found)}"
    sums = [totals_of(found, ["order", "composition"], title), degrees_of(found)]
    return section("totals", "Totals by order and composition", *(table(part) for part in sums if part.header))


def _shown(found: Explanation, left_out: list[str]) -> tuple[Sequence[sizes.SizedTerm], dict[str, Any]]:
    """The terms in the page, and the exact remainder of these."""
    if len(found.rows) <= MOST_ROWS:
        return found.rows, found.remainder
    left_out.append(
        f"{len(found.rows) - MOST_ROWS:,} of the {len(found.rows):,} largest terms: they are in the remainder"
    )
    shown = found.rows[:MOST_ROWS]
    return shown, sizes.Sizes(evaluate(found.expansion, found.run), found.measure).remainder(shown)


def _terms(found: Explanation, shown: Sequence[sizes.SizedTerm], rest: dict[str, Any]) -> Markup:
    names, logit = size_names(found), found.measure.token is not None
    rows: list[list[str]] = [
        [join([s.label, *(formula(t.word) for t in s.terms)]), s.term.composition,
         *(number(getattr(s, x)) for x in names)]
        for s in shown
    ]  # fmt: skip
    of = "centred" if _centred(found) else "contribution"
    counted = [repr(getattr(s, of)) if logit else "" for s in shown]
    attributes = [
        {**marks(*s.terms), "data_in": "terms", "data_counted": c} for s, c in zip(shown, counted, strict=True)
    ]
    what = f"remainder: the exact sum of the {amount(rest['count'], 'term')} not shown"
    what = what if rest["count"] else "remainder: nothing, every term is shown"
    rows.append([what, "", *(number(rest[x]) for x in names)])
    title = f"Largest terms of the {target_name(found)}, by {RANKED[found.sort]}"
    if found.looked_at < found.expansion.count:
        title += f", of the {found.looked_at:,} of the lowest orders (the others are in the remainder)"
    less = " less the mean of all logits" if _centred(found) else ""
    some = filters("terms", [t for s in shown for t in s.terms], f"of the {_read(found)}{less}" if logit else None)
    terms = Titled(title, ["path and formula", "composition", *names], rows, range(2, 2 + len(names)))
    return section("terms", "Largest terms", some, table(terms, attributes=[*attributes, {"class_": "rest"}]))


def _figures(
    found: Explanation, shown: Sequence[sizes.SizedTerm], rest: dict[str, Any], left_out: list[str]
) -> list[Markup]:
    """Bars of contributions, and where terms come from."""
    made = [] if found.measure.token is None else [_bars(found, shown, rest)]
    if not shown:
        return made
    two = [False, True] if found.measure.against is not None else [False]
    some = shown[:MOST_ORIGINS]
    reads: dict[bool, Reads] = {False: {}, True: {}}

    def origins(difference: bool) -> Markup:
        return figure(origin_map(found, some, difference, centred=_centred(found), reads=reads[difference]), MOST_CELLS)

    def one(term: sizes.SizedTerm) -> Markup:
        return figure(term_map(found, term, centred=_centred(found), reads=reads[False]), MOST_CELLS)

    maps = [optional("heat map of where terms come from", partial(origins, d), left_out) for d in two]
    own = [optional(f"heat map of {s.label}", partial(one, s), left_out) for s in shown[:MOST_MAPS]]
    if len(shown) > MOST_MAPS:
        left_out.append(f"heat maps of single terms: all but the {MOST_MAPS} largest")
    if len(shown) > MOST_ORIGINS:
        left_out.append(f"in the map of where terms come from: all but the {MOST_ORIGINS} largest")
    of = "the product of its patterns" if found.measure.token is None else f"its part of the chosen {_read(found)}"
    said = el("p", f"A cell is the part that starts at one position: {of}; a row adds up to the term.", class_="soft")
    if found.measure.token is None:
        said = el(
            "p", "A cell is the entry of the product of a term's patterns: how much comes from where.", class_="soft"
        )
    each = el("details", el("summary", "each term, at every position"), el("div", *own, class_="maps"))
    made.append(section("origins", "Where the terms come from", said, el("div", *maps, class_="maps"), each))
    return made


def _bars(found: Explanation, shown: Sequence[sizes.SizedTerm], rest: dict[str, Any]) -> Markup:
    kinds = [False, True] if found.measure.against is not None else [False]
    bars = [contribution_bars(found, kind, shown, rest, centred=_centred(found)) for kind in kinds]
    largest = [max(map(abs, b.values), default=0.0) for b in bars]
    rows: list[list[str]] = []
    for i, label in enumerate(bars[0].labels):
        rows.append([label])
        for one, most in zip(bars, largest, strict=True):
            rows[-1] += [bar(one.values[i], most, "" if i < len(shown) else "g"), number(one.values[i])]
    attributes = [{**marks(*s.terms), "data_in": "terms"} for s in shown] + [{"class_": "rest"}] * (
        len(rows) - len(shown)
    )
    header = ["path", *(h for b in bars for h in (b.of, ""))]
    title = f"One bar per term, at position {found.measure.position}; filtered with the terms above"
    return section("contributions", "Contributions", table(Titled(title, header, rows, [2, 4]), attributes=attributes))


def _centred(found: Explanation) -> bool:
    """Whether contributions are less their mean over all outputs: where that is what ranks."""
    return found.sort == "centred"


def _read(found: Explanation) -> str:
    return "readout" if found.readout else "logit"


def _removals(
    found: Explanation, changes: Callable[[], Mapping[str, HeadChange]], heads: str, left_out: list[str]
) -> list[Markup]:
    if not found.scores:
        return []
    said = el(
        "p", "The head adds nothing to the stream. Value part: everything held fixed; pattern part: the rest, "
        "recomputed minus frozen; both add up to the change.", class_="soft",
    )  # fmt: skip
    table_of = optional("removing heads", lambda: removal_table(found, changes(), heads), left_out)
    return [section("removals", "Removing a head", said, table_of)]


def _left_out(left_out: Sequence[str], n: int) -> Markup:
    if n > MOST_CELLS:
        left_out = [*left_out, f"heat maps have at most {MOST_CELLS} rows and columns: a cell stands for a block of "
                    "positions, and shows its entry of largest size"]  # fmt: skip
    inside = el("ul", *(el("li", x) for x in left_out)) if left_out else el("p", "Nothing.")
    return section("left-out", "What this page leaves out", inside)


def _reading(found: Explanation) -> Markup:
    other = {} if found.model.architecture.softmax else _READING_RAW
    listed = [part for name, text in _READING for part in (el("dt", name), el("dd", other.get(name, text)))]
    keys = "A heat map shows the value of the cell under the pointer, or, with focus, chosen by the arrow keys."
    return section("reading", "How to read this page", el("p", keys), el("dl", *listed))
