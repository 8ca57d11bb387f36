"""The steps of the path expansion, for every target in both forms: builders of drafts, not yet checked."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import Head
from symcircuits.core.programs import stream_program, weight
from symcircuits.core.words import Factor, Word
from symcircuits.derivation import counts, reasons
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import (
    layer_definition,
    norm_definition,
    norm_of,
    plus,
    readout_definition,
    with_alibi_term,
)
from symcircuits.derivation.expressions import stream_symbol, substitute
from symcircuits.derivation.frames import COMPOSITIONS, Frame
from symcircuits.derivation.multiplying import composition_of_term, multiply_out, softmax_invisible
from symcircuits.derivation.nodes import CountOf, Expr, Family, Number, Spelled, Sum, Target
from symcircuits.derivation.tensors import factored, mixed, rules

__all__ = ["path_expansion"]

LISTED = 100  # up to this number of terms, the layers are substituted one by one, and each result is printed


def path_expansion(frame: Frame) -> Iterator[Draft]:
    """The steps from the definition of the transformer to the sum over all paths, collected and counted."""
    target = Target(frame.target)
    yield from _definitions(frame, target)
    everything = with_alibi_term(frame, plus([expr for _, expr in frame.terms]))
    if frame.expansion.count <= LISTED:
        yield from _layer_by_layer(frame, target, everything)
    else:
        yield from _tensor_form(frame, target, everything)
    yield _collected(frame, target, everything)
    yield _counted(frame, everything)
    if frame.expansion.count <= LISTED:
        yield from _tensor_form(frame, target)


def _definitions(frame: Frame, target: Target) -> Iterator[Draft]:
    embed = stream_program(frame.walked, 0)[0].sources[0].factors
    claims = [Claim((Word(embed), Spelled(Word(embed))))]
    if frame.depth:
        any_head = tuple(Factor(weight(frame.walked, glyph, Head(0, 0))) for glyph in ("W_O", "W_V"))
        word = Word(frame.named_for(any_head, Head(0, 0), "h"))
        claims.append(Claim((word, Spelled(word))))
    if frame.head is not None and not (frame.turned or frame.normed):
        query, key = (program[-1].branches[0].right[-1] for program in frame.expansion.readout.sides)
        word = Word((query, key.T))
        claims.append(Claim((word, Spelled(word))))
    yield Draft("definition", tuple(claims), 'Abbreviations (paper, "Notation").')
    if frame.depth:
        layers = range(1, frame.depth + 1)
        yield Draft(
            "definition",
            tuple(Claim((Word((stream_symbol(n),)), layer_definition(frame, n))) for n in layers),
            reasons.layers(frame),
        )
    if frame.norms:
        norms = tuple(
            Claim((Word((norm_of(frame, label).symbol,)), norm_definition(frame, label))) for label in frame.norms
        )
        yield Draft("definition", norms, reasons.norms(frame))
    yield Draft("definition", (Claim((target, readout_definition(frame))),), reasons.read(frame))


def _layer_by_layer(frame: Frame, target: Target, everything: Expr) -> Iterator[Draft]:
    """Substitute the definition of the last layer, multiply out, and so on down to the embedding."""
    current = readout_definition(frame)
    if frame.norms and frame.target != "stream":
        opened = readout_definition(frame, opened=True)
        symbol = norm_of(frame, frame.norms[-1]).symbol.text
        yield Draft("substitution", (Claim((target, current, opened)),), reasons.substituted(frame, symbol))
        current = opened
    for layer in range(frame.depth, 0, -1):

        def definition(transposed: bool, layer: int = layer) -> Expr:
            return layer_definition(frame, layer, "key" if transposed else "query", opened=True)

        replaced = substitute(current, layer, definition)
        symbol = stream_symbol(layer).text + (f"` and `Y[L{layer - 1}]" if frame.norms else "")
        yield Draft("substitution", (Claim((target, current, replaced)),), reasons.substituted(frame, symbol))
        last = layer == 1
        rest = plus(_by_type(frame, [flat.expr for flat in multiply_out(replaced)]))
        current = everything if last else with_alibi_term(frame, rest)
        yield _distributing(frame, target, replaced, current, last)
    if frame.depth == 0 and current != everything:
        yield _distributing(frame, target, current, everything, True)


def _by_type(frame: Frame, terms: list[Expr]) -> list[Expr]:
    """Terms of scores by composition type, whatever their streams still stand for; others as they are."""
    if frame.head is None:
        return terms
    return sorted(terms, key=lambda term: COMPOSITIONS.index(composition_of_term(term) or "none"))


def _distributing(frame: Frame, target: Target, before: Expr, after: Expr, complete: bool) -> Draft:
    claim = Claim((target, before, after))
    return Draft("distributing", (claim,), reasons.distributed(frame, complete), complete=complete)


def _tensor_form(frame: Frame, target: Target, everything: Expr | None = None) -> Iterator[Draft]:
    yield from rules(frame)
    product = factored(frame)
    yield Draft("substitution", (Claim((target, product)),), reasons.factored(frame))
    if everything is not None:
        yield _distributing(frame, target, product, everything, True)
        return
    yield Draft(
        "mixed product", (Claim((target, product, mixed(frame))),),
        "Multiply out the factors and combine the slots by the mixed product: a product of heads is a virtual head "
        '(paper, "Virtual Attention Heads").',
    )  # fmt: skip


# --------------------------------------------------------------------------------------- collecting, counting
def _collected(frame: Frame, target: Target, everything: Expr) -> Draft:
    """The terms in families: by composition type for scores, by order (which decides it) for the others."""
    groups: dict[tuple[str, int | None], list[Expr]] = {}
    for term, expr in frame.terms:
        key = (term.composition, None if frame.head is not None else term.order)
        member = Family(expr, term.composition, frame.count(term), term.order) if frame.generic else expr
        groups.setdefault(key, []).append(member)
    families = []
    for (composition, order), members in sorted(
        groups.items(), key=lambda g: (g[0][1] or 0, COMPOSITIONS.index(g[0][0]))
    ):
        formula = counts.by_composition(frame, composition) if order is None else counts.by_order(frame, order)
        count = formula if frame.generic else Number(len(members))
        families.append(Family(plus(members), composition, count, order))
    claim = Claim((target, everything, with_alibi_term(frame, Sum(tuple(families)))))
    unseen = frame.architecture.shift_invariant and any(softmax_invisible(expr) for _, expr in frame.terms)
    reason = reasons.collected(frame) + (reasons.unseen(frame) if unseen else "")
    return Draft("collecting by composition type", (claim,), reason, complete=True, softmax=unseen)


def _counted(frame: Frame, everything: Expr) -> Draft:
    numbers = frame.expansion
    claims = []
    if frame.head is not None:
        for composition, n in numbers.counts_by_composition().items():
            formula = counts.by_composition(frame, composition)
            claims.append(_count(frame, CountOf(everything, composition=composition), formula, n))
    else:
        for order, n in numbers.counts_by_order().items():
            claims.append(_count(frame, CountOf(everything, order=order), counts.by_order(frame, order), n))
    claims.append(_count(frame, CountOf(everything), counts.total(frame), numbers.count))
    return Draft("counting", tuple(claims), reasons.counted(frame), how="count")


def _count(frame: Frame, counted: CountOf, formula: Expr, number: int) -> Claim:
    sides: tuple[Expr, ...] = (counted, formula)
    if not frame.generic and formula != Number(number):
        sides += (Number(number),)
    return Claim(sides)
