"""The circuits of a model as one page: findings first, then graph, matrices, heads, causes and losses behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from symcircuits.circuits.circuit import circuit
from symcircuits.circuits.heads import DEFINITIONS
from symcircuits.circuits.report import Circuits
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.render.circuits_figures import (
    composition_maps,
    effect_maps,
    eigenvalue_points,
    pattern_maps,
    positivity_counts,
    positivity_points,
    score_table,
    trigram_table,
    value_maps,
)  # fmt: skip
from symcircuits.render.circuits_svg import composition_graph, counts_svg, points_svg
from symcircuits.render.figures import HeatMap
from symcircuits.render.findings import copying_table, effects_table, findings, notes_of
from symcircuits.render.heads import causes_table, heads_parts
from symcircuits.render.html_heads import MOST_CELLS
from symcircuits.render.losses import by_order_table
from symcircuits.render.markup import Markup, box, el, formula, section, table
from symcircuits.render.positions import positions_of, positions_svg
from symcircuits.render.shell import page_of
from symcircuits.render.svg import figure

if TYPE_CHECKING:
    from symcircuits.circuits.causes import Cause

__all__ = ["circuits_html", "over_text"]

MOST_PLOTS: Final = 36
MOST_PICTURES: Final = 3
MOST_TRIGRAMS: Final = 12


def circuits_html(found: Circuits) -> str:
    """The page."""
    model = found.model
    title = f"circuits of {model.name}"
    header = el(
        "header", el("h1", title), el("p", f"{model.architecture}; d_model {model.d_model}, d_vocab {model.d_vocab}"),
        el("p", found.heads.prompts.said),
    )  # fmt: skip
    said = el("ul", *(el("li", line) for line in findings(found)))
    notes = notes_of(found)
    more = [el("p", "Notes", class_="soft"), el("ul", *(el("li", n) for n in notes), class_="soft")] if notes else []
    main = [
        section("findings", "What was found", said, *more), *_pictures(found), *_composition(found), _heads(found),
        *_causes(found), *_copying(found), *_trigrams(found), *_losses(found), _definitions(),
    ]  # fmt: skip
    return page_of(title, header, main, ("to the findings", "findings"), found.model)


def _pictures(found: Circuits) -> Iterator[Markup]:
    """The induction circuit, position by position: of the heads that need an earlier one, the first few."""
    shown = [p for head in found.heads.of_kind("induction") if (p := positions_of(found, head)) is not None]
    if shown:
        parts = [
            el("figure", el("figcaption", one.said), box(positions_svg(one), f"positions of {one.head}"))
            for one in shown[:MOST_PICTURES]
        ]
        left = len(shown) - len(parts)
        more = [el("p", f"{amount(left, 'other head')} not drawn.", class_="soft")] if left else []
        yield section("induction", "The induction circuit on a prompt", el("div", *parts, class_="maps wide"), *more)


def _trigrams(found: Circuits) -> Iterator[Markup]:
    tables = [table(t) for head in list(found.copying)[:MOST_TRIGRAMS] if (t := trigram_table(found, head)) is not None]
    if tables:
        words = (
            "What each head looks for with its own QK circuit and makes more likely with its OV circuit: the score of "
            "source and destination less its mean over sources, and the effect on the output's logit less the mean. "
            "The effects of other terms (positions, composition) are left out: a head that relies on them behaves "
            "differently."
        )
        left = len(found.copying) - len(tables)
        more = [el("p", f"{amount(left, 'other head')} not shown.", class_="soft")] if left else []
        yield section(
            "trigrams", "Skip-trigrams", el("p", words, class_="soft"), el("div", *tables, class_="maps"), *more
        )


# ---------------------------------------------------------------------------------------------- composition
def _composition(found: Circuits) -> Iterator[Markup]:
    if not any(True for scores in found.composition.values() for _ in scores.pairs()):
        return
    notes = el(
        "p", "A score says that weights are aligned, not that anything flows there. It is invariant under rotations "
             "of the stream, O(d_model), but not under other changes of its basis, GL(d_model).", class_="soft",
    )  # fmt: skip
    yield section("graph", "Which heads compose, above chance", notes, composition_graph(found))
    rows = table(effects_table(found)) if found.effects else el("p", "No pair differs from chance.")
    yield section(
        "composition", "Composition scores, and what a pair is worth", _figures(composition_maps(found)), rows
    )


# ---------------------------------------------------------------------------------------------- heads, losses
def _heads(found: Circuits) -> Markup:
    shown = (
        (pattern_maps(found), "Patterns on one of the prompts: rows are queries, columns keys, by their tokens."),
        (effect_maps(found), "Patterns times the direct effect on the logit of the query's next token, less the mean "
                             "of all: this does not depend on the basis of the weights."),
        (value_maps(found), "Patterns times the norm of the output, |W_O v|: invariant under rotations of the stream, "
                            "but not under other changes of its basis."),
    )  # fmt: skip
    left = sum(bool(head.kinds) for head in found.heads.heads.values()) - len(shown[0][0])
    said: list[Markup] = [over_text(maps) for maps in [[m for group, _ in shown for m in group]] if maps]
    said += [
        el("details", el("summary", words), _figures(maps), open=maps is shown[0][0]) for maps, words in shown if maps
    ]
    if left > 0:
        said.append(el("p", f"Patterns of {amount(left, 'other head')} of some kind are not shown.", class_="soft"))
    tables = [table(part) for part in heads_parts(found.heads)[:1]]
    return section("heads", "What heads look at", *tables, *said)


def over_text(maps: Sequence[HeatMap]) -> Markup:
    """The tokens of the prompt, each of which shows what it looks at in the chosen map: by pointer and keyboard.

    The maps are those that stand in the same section of the page; without a script they are what there is.
    """
    first = next((i for i, one in enumerate(maps) if one.title.endswith("induction")), 0)
    options = [el("option", one.title, value=str(i), selected=i == first) for i, one in enumerate(maps)]
    tokens = [el("li", el("button", name, type="button")) for name in maps[0].columns]
    return el(
        "div", el("p", el("label", el("span", "over the text"), el("select", *options)), class_="controls"),
        el("ol", *tokens, class_="looks", aria_label="tokens; one that is pointed at shows what it looks at"),
        el(
            "output", "Point at a token, or reach it by keyboard: the tokens that it looks at are coloured.",
            class_="read",
        ),
        data_looks="", hidden=True,
    )  # fmt: skip


def _figures(maps: Iterable[HeatMap]) -> Markup:
    return el("div", *(figure(one, MOST_CELLS) for one in maps), class_="maps")


def _causes(found: Circuits) -> Iterator[Markup]:
    if not found.causes:
        return
    parts = [el("p", "Each part is removed from the head's scores, and the softmax is computed again.", class_="soft")]
    for head, causes in found.causes.items():
        parts.append(table(causes_table(causes)))
        by = causes.largest("head")
        if by is not None and by.without <= causes.score / 2:
            made = circuit(found.model, "QK", head, **{by.side: by.name})  # type: ignore[arg-type]
            words = f"The circuit of {head} through {by.name}, from token to token:"
            parts.append(el("div", el("p", words), formula(made.word), *_as_terms(found, head, by)))
        scores = score_table(found, head)
        parts += [] if scores is None else [table(scores)]
    yield section("causes", "Why they look there", *parts)


def _as_terms(found: Circuits, head: str, by: Cause) -> Iterator[Markup]:
    """The same as a term of the head's scores, with the pattern of the earlier head, and what the head then writes."""
    arch = found.model.architecture
    scores = expand(arch, f"scores:{head}")
    for term in scores.through(by.name, by.side).order(1).from_source("embed"):
        if set(term.sources) == {"embed"}:
            count = amount(scores.count, "term")
            yield el("p", f"It selects by this term of its scores, one of {count} ({term.label}):")
            yield formula(term.word)
    for term in expand(arch, "logits").through(head).order(1).from_source("embed") if arch.unembed else ():
        yield el("p", f"It writes what it selects to the logits by this one ({term.label}):")
        yield formula(term.word)


def _copying(found: Circuits) -> Iterator[Markup]:
    if not found.copying:
        return
    parts, pictures = [table(copying_table(found))], list[Markup]()
    if (scatter := positivity_points(found)) is not None:
        pictures.append(el("figure", el("figcaption", scatter.title), points_svg(scatter, 260)))
    if (counts := positivity_counts(found)) is not None:
        pictures.append(el("figure", el("figcaption", counts.title), counts_svg(counts)))
    parts += [el("div", *pictures, class_="maps")] if pictures else []
    parts.append(el("p", "Eigenvalues in the complex plane, over the largest modulus; right: positive.", class_="soft"))
    plots = eigenvalue_points(found)
    drawn = [el("figure", el("figcaption", one.title), points_svg(one)) for one in plots[:MOST_PLOTS]]
    left = len(plots) - len(drawn)
    parts.append(el("div", *drawn, class_="maps"))
    parts += [el("p", f"Those of {amount(left, 'other circuit')} are not drawn.", class_="soft")] if left else []
    yield section("copying", "Copying and matching", *parts)


def _losses(found: Circuits) -> Iterator[Markup]:
    if found.losses is not None:
        yield section("losses", "What terms are worth in loss", table(by_order_table(found.losses)))


def _definitions() -> Markup:
    rows = [part for kind, said in DEFINITIONS.items() for part in (el("dt", kind), el("dd", said))]
    return section("definitions", "Definitions", el("dl", *rows))
