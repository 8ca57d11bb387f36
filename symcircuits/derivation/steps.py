"""The steps of the path expansion, for every target in both forms: builders of drafts, not yet checked."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.algebra import Word
from symcircuits.architecture import stream_program
from symcircuits.derivation import counts
from symcircuits.derivation.checks import Claim, Draft
from symcircuits.derivation.definitions import layer_definition, plus, readout_definition
from symcircuits.derivation.expressions import (
    CountOf,
    Expr,
    Family,
    Number,
    Spelled,
    Sum,
    Target,
    relabelled,
    stream_symbol,
    substitute,
)
from symcircuits.derivation.flatten import multiply_out
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.tensors import factored, mixed, rules

__all__ = ["path_expansion"]

LISTED = 100  # up to so many terms the layers are substituted one by one, each result printed


def path_expansion(frame: Frame) -> Iterator[Draft]:
    """The steps from the definition of the transformer to the sum over all paths, collected and counted."""
    target = Target(frame.target)
    yield from _definitions(frame, target)
    everything = plus([expr for _, expr in frame.terms])
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
        ov = relabelled(stream_program(frame.walked, 1)[1].branches[0].right, {"L0H0": "h"}) if _any_head(frame) else ()
        if ov:
            word = Word(ov).T
            claims.append(Claim((word, Spelled(word))))
    if frame.head is not None:
        sides = [program[-1].branches[0].right for program in frame.expansion.readout.sides]
        word = Word((*sides[0], sides[1][0].T))
        claims.append(Claim((word, Spelled(word))))
    yield Draft("definition", tuple(claims), "Abbreviations (paper, “Notation”).", how="letters")
    if frame.depth:
        layers = range(1, frame.depth + 1)
        yield Draft(
            "definition",
            tuple(Claim((Word((stream_symbol(n),)), layer_definition(frame, n))) for n in layers),
            "The residual stream: each layer adds what its heads write to what it reads, with the attention "
            "patterns held fixed (paper, “High-Level Architecture” and “Attention Heads as Information Movement”).",
        )
    what = {"logits": "The unembedding reads the stream after the last layer (paper, “High-Level Architecture”).",
            "stream": "What is expanded is the stream after the last layer."}  # fmt: skip
    scores = (
        f"The scores of {frame.head}, before mask and softmax: its queries and its keys both read the stream before "
        f"its layer (paper, “Path Expansion of Attention Scores QK Circuit”)."
    )
    yield Draft("definition", (Claim((target, readout_definition(frame))),), what.get(frame.target, scores))


def _any_head(frame: Frame) -> bool:
    return bool(stream_program(frame.walked, 1)[1].branches)


def _layer_by_layer(frame: Frame, target: Target, everything: Expr) -> Iterator[Draft]:
    """Substitute the definition of the last layer, multiply out, and so on down to the embedding."""
    current = readout_definition(frame)
    for layer in range(frame.depth, 0, -1):

        def definition(transposed: bool, layer: int = layer) -> Expr:
            return layer_definition(frame, layer, "key" if transposed else "query")

        replaced = substitute(current, layer, definition)
        symbol = stream_symbol(layer).text
        yield Draft(
            "substitution", (Claim((target, current, replaced)),),
            f"Put in the definition of `{symbol}`" + (", on the query and on the key side." if frame.head else "."),
        )  # fmt: skip
        last = layer == 1
        current = everything if last else plus([flat.expr for flat in multiply_out(replaced)])
        yield _distributing(target, replaced, current, last)
    if frame.depth == 0 and current != everything:
        yield _distributing(target, current, everything, True)


def _distributing(target: Target, before: Expr, after: Expr, complete: bool) -> Draft:
    reason = "Matrix multiplication distributes over sums, on the left and on the right"
    reason += "; a path takes in each layer the residual stream or one head." if complete else "."
    return Draft("distributing", (Claim((target, before, after)),), reason, complete=complete)


def _tensor_form(frame: Frame, target: Target, everything: Expr | None = None) -> Iterator[Draft]:
    yield from rules(frame)
    product = factored(frame)
    yield Draft(
        "substitution", (Claim((target, product)),),
        "The factored form: every layer is the map `Id + sum A (x) W_OV`, later layers stand on the left "
        "(paper, “The Path Expansion Trick”).",
    )  # fmt: skip
    if everything is not None:
        yield _distributing(target, product, everything, True)
        return
    yield Draft(
        "mixed product", (Claim((target, product, mixed(frame))),),
        "Multiply the factors out and join the slots by the mixed product: a product of heads is a virtual head "
        "(paper, “Virtual Attention Heads”).",
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
    kinds = ["none", "V", "Q", "K", "QK"]
    for (composition, order), members in sorted(groups.items(), key=lambda g: (g[0][1] or 0, kinds.index(g[0][0]))):
        formula = counts.by_composition(frame, composition) if order is None else counts.by_order(frame, order)
        count = formula if frame.generic else Number(len(members))
        families.append(Family(plus(members), composition, count, order))
    reason = (
        "By composition type: whether a head stands on the query side (Q), on the key side (K), on both (QK) or on "
        "neither (none)." if frame.head is not None else
        "By order, the number of heads of the path: order 0 is the direct path, order 1 an individual head, and from "
        "order 2 on heads are joined by V-composition into virtual heads."
    )  # fmt: skip
    claim = Claim((target, everything, Sum(tuple(families))))
    return Draft("collecting by composition type", (claim,), reason + _source(frame), complete=True)


def _source(frame: Frame) -> str:
    name = "Path Expansion of Attention Scores QK Circuit" if frame.head else "Path Expansion of Logits"
    if frame.target == "stream":
        return " Own derivation, as the paper's for logits."
    return f" Paper, “{name}”."


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
    reason = (
        "A path chooses in each layer the residual stream or one of the heads; a score has a path on each side."
        if frame.head is not None else
        "A path chooses in each layer the residual stream or one of the heads; so many paths go through `k` heads as "
        "there are choices of `k` layers and of a head in each: the elementary symmetric polynomial of the head counts."
    )  # fmt: skip
    return Draft("counting", tuple(claims), reason + " Own derivation.", how="count")


def _count(frame: Frame, counted: CountOf, formula: Expr, number: int) -> Claim:
    sides: tuple[Expr, ...] = (counted, formula)
    if not frame.generic and formula != Number(number):
        sides += (Number(number),)
    return Claim(sides)
