"""An explanation as tables for a terminal, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from symcircuits.core.names import visible
from symcircuits.core.text import amount, many
from symcircuits.core.unfrozen.unfrozen import still_held
from symcircuits.derivation.printing.conventions import own_symbols
from symcircuits.derivation.printing.prose import plain
from symcircuits.render.compared import closures_json
from symcircuits.render.tables import UNBROKEN, Titled, number
from symcircuits.values.closure import parts_named, worst_closure

if TYPE_CHECKING:
    from symcircuits.explanation.explain import Explanation
    from symcircuits.values.evaluate import Closure

__all__ = [
    "RANKED", "against_name", "closure_cells", "closure_name", "degrees_of", "explanation_json", "explanation_parts",
    "logit_name", "ratio", "sizes", "target_name", "token_name", "totals_of",
]  # fmt: skip


RANKED: Final = {
    "norm": "norm", "contribution": "contribution", "difference": "difference",
    "centred": "contribution less the mean of all outputs (centred)",
}  # fmt: skip


def _closure_json(closure: Closure) -> dict[str, Any]:
    return {
        "error": closure.error, "bound": closure.bound, "passed": closure.passed,
        "summands": closure.summands, "listed": closure.listed, **({"of": closure.of} if closure.of else {}),
    }  # fmt: skip


def closure_name(name: str, closure: Closure) -> str:
    """What a closure is of, with what of the model was compared where it is not what the model gives."""
    return f"{name} ({closure.of})" if closure.of else name


def explanation_json(found: Explanation) -> dict[str, Any]:
    """The explanation as plain data; the schema is in docs/json.md."""
    run = found.run
    kind = found.expansion.target.partition(":")[0]
    closure = {"logits": None, "stream": None} | {kind: _closure_json(found.closure)}
    return {
        "schema": "symcircuits.explain/1",
        "model": {"name": found.model.name, "architecture": str(found.model.architecture)},
        "notation": found.expansion.notation.json(),
        "tokens": run.tokens.tolist(),
        **_labels_json(found),
        "ok": found.ok,
        "assumptions": list(found.assumptions),
        "closure": {
            **closure,
            "scores": {h: _closure_json(s.closure) for h, s in found.scores.items()},
            "layers": closures_json(found.layers),
        },
        "of": found.expansion.target,
        "count": found.expansion.count,
        "target": _target_json(found),
        "by_order": {str(k): v for k, v in found.totals["order"].items()},
        "by_composition_of_" + kind: found.totals["composition"],
        **({"by_degree": {str(k): v for k, v in found.totals["degree"].items()}} if "degree" in found.totals else {}),
        "by_composition": {
            head: {
                c: {
                    "share": s.shares[c], "centred_share": s.centred_shares[c], "norm": s.norms[c],
                    "centred_norm": s.centred_norms[c], "count": s.counts[c],
                }
                for c in s.shares
            }
            for head, s in found.scores.items()
        },
        "softmax_invisible": {head: s.softmax_invisible for head, s in found.scores.items()},
        "sort": found.sort,
        "looked_at": found.looked_at,
        "terms": [
            {
                "label": s.term.label, "composition": s.term.composition, "order": s.term.order, "norm": s.norm,
                "contribution": s.contribution, "text": s.term.text,
                **({} if s.centred is None else {"centred": s.centred}),
                **({} if s.difference is None else {"difference": s.difference}),
            }
            for s in found.terms
        ],
        "remainder": found.remainder,
    }  # fmt: skip


def _labels_json(found: Explanation) -> dict[str, Any]:
    """The labels; of a tokenizer, whose vocabulary is large, those of the tokens that occur here, by number."""
    labels, by = found.labels, found.measure
    if not labels.names:
        return {}
    if labels.of != "tokenizer":
        return {"labels": list(labels.names), "labels_of": labels.of}
    seen = {int(t) for t in found.run.tokens.flat}
    seen |= set(by.chosen) if labels.names_output else set()
    return {"labels": {str(t): labels.names[t] for t in sorted(seen)}, "labels_of": labels.of}


def _target_json(found: Explanation) -> dict[str, Any]:
    by = found.measure
    own = {"readout": found.readout, "direction": by.token} if found.readout else {"token": by.token}
    two = {} if by.against is None else {"against": by.against, "difference": found.difference}
    return {"row": by.row or 0, "position": by.position, **own, "value": found.value, **two}


def explanation_parts(found: Explanation) -> list[Titled]:
    """The explanation as sections of tables."""
    makers = (_heading, _closures, _totals, degrees_of, _terms, _scores)
    return [make(found) for make in makers]


def _heading(found: Explanation) -> Titled:
    *batch, n = found.run.tokens.shape
    tokens = (f"{amount(batch[0], 'row')} of " if batch else "") + amount(n, "token")
    notation = found.expansion.notation
    names = f"; {plain(own_symbols(notation), notation)}" if notation.symbols else ""
    said = [*found.assumptions, f"terms in {notation.convention}{names}"]
    title = f"explain {visible(found.model.name)}: {found.model.architecture}; {tokens}"
    return Titled(title, points=[f"  - {visible(line)}" for line in said])


def closure_cells(name: str, closure: Closure) -> list[str]:
    """What is compared, error, bound, and what was added up."""
    added = amount(closure.summands, "term") if closure.listed else f"{amount(closure.summands, 'sum')} by the walk"
    return [closure_name(name, closure), number(closure.error), number(closure.bound), added]


def _closures(found: Explanation) -> Titled:
    all_scores = [(h, s.closure) for h, s in found.scores.items()]
    named = [(target_name(found), found.closure)]
    shown = all_scores if len(all_scores) <= 12 else sorted(all_scores, key=lambda x: -ratio(x[1]))[:5]
    named += [(f"scores {h}", c) for h, c in shown]
    rows = [["pass" if c.passed else "FAIL", *closure_cells(name, c)] for name, c in named]
    if (layer := worst_closure(found.layers)) is not None:
        place = f"each of {len(found.layers)}" if layer.passed else layer.target.replace(":", " ")
        parts = f"{place}: stream + {parts_named(found.run)}"
        rows.append(["pass" if layer.passed else "FAIL", "layers", number(layer.error), number(layer.bound), parts])
    title = "Closure: largest |sum of terms - model| and its rounding bound"
    if len(shown) < len(all_scores):
        failed = sum(not c.passed for _, c in all_scores)
        title += f" (the {len(shown)} worst of {len(all_scores)} heads; {failed} fail)"
    return Titled(title, ["", "of", "error", "bound", "summands"], rows, [2, 3])


def ratio(closure: Closure) -> float:
    """How near a closure is to its bound."""
    return closure.error / closure.bound if closure.bound else float(closure.error > 0)


def target_name(found: Explanation) -> str:
    """``logits``, ``stream`` or ``readout probe``."""
    return visible(found.expansion.target.replace(":", " ", 1))


def token_name(found: Explanation, token: int, blank: str = " ") -> str:
    """``token 7``, with its label where there is one; of a readout ``direction 7``.

    ``blank`` stands for blanks of the label.
    """
    if found.readout:
        return f"direction {token}"
    label = found.labels.output(token)
    return f"token {token}" if label == str(token) else f'token {token} "{label.replace(" ", blank)}"'


def logit_name(found: Explanation, blank: str = " ") -> str:
    """``logit of token 7 at position 9 of row 0``; ``readout probe, direction 0, at position 9``."""
    by, readout = found.measure, found.readout
    row = "" if by.row is None else f" of row {by.row}"
    if readout:
        several = len(found.model.attached[readout]) > 1
        which = f", {token_name(found, by.token or 0)}," if several else ""
        return f"readout {visible(readout)}{which} at position {by.position}{row}"
    of = f" ({found.closure.of})" if found.closure.of else ""
    return f"logit of {token_name(found, by.token or 0, blank)} at position {by.position}{row}{of}"


def against_name(found: Explanation, blank: str = " ") -> str:
    """What is subtracted in a difference: ``the logit of token 3``, or ``direction 1``."""
    other = token_name(found, found.measure.chosen[1], blank)
    return other if found.readout else f"the logit of {other}"


def sizes(found: Explanation) -> list[str]:
    """What is given of every sum of terms: its norm, and what there is to contribute to."""
    centred = ["centred"] if found.measure.chosen and not found.readout else []
    return [*centred, *["norm", "contribution", "difference"][: 1 + len(found.measure.chosen)]]


def totals_of(found: Explanation, kinds: Sequence[str], title: str) -> Titled:
    """The sums of the terms of each order, composition type or degree."""
    names = sizes(found)
    rows = [
        [f"{kind}{UNBROKEN if kind == 'degree' else ' '}{k}", many(v["count"]), *(number(v[x]) for x in names)]
        for kind in kinds
        for k, v in found.totals[kind].items()
    ]
    return Titled(title, ["", "terms", *names], rows, range(1, 2 + len(names)))


def _totals(found: Explanation) -> Titled:
    title = f"Totals of the {target_name(found)}, {amount(found.expansion.count, 'term')}"
    if found.measure.token is not None:
        title += f"; contribution to the {logit_name(found, UNBROKEN)} ({number(found.value)} in all)"
    if found.centred is not None:
        title += f", centred: less its mean over all outputs ({number(found.centred)})"
    if found.measure.against is not None:
        title += f"; difference to {against_name(found, UNBROKEN)}"
        title += f" ({number(found.difference)} in all)"
    return totals_of(found, ["order", "composition"], title)


def degrees_of(found: Explanation) -> Titled:
    """Sums by degree of a model that is a polynomial; ``Nothing held fixed but norms: 222 terms, ...``."""
    if "degree" not in found.totals:
        return Titled()
    arch = found.model.architecture
    opened = ["patterns"] * (not arch.softmax) + ["MLPs"] * arch.bilinear
    terms = amount(sum(v["count"] for v in found.totals["degree"].values()), "term")
    held = still_held(arch)
    what = f"{' and '.join(opened)} multiplied out, by degree (number of sources in a term)"
    return totals_of(found, ["degree"], f"{held[:1].upper()}{held[1:]}: {terms}, {what}")


def _terms(found: Explanation) -> Titled:
    names = sizes(found)
    rows = [[*(number(getattr(s, x)) for x in names), s.term.composition, s.label, s.text] for s in found.rows]
    rest = found.remainder
    what = (
        f"the sum of the {amount(rest['count'], 'term')} not shown" if rest["count"] else "nothing: every term is shown"
    )
    rows.append([*(number(rest[x]) for x in names), "", "remainder", what])
    title = f"Largest terms of the {target_name(found)}, by {RANKED[found.sort]}"
    if found.looked_at < found.expansion.count:
        title += f" (of the {found.looked_at:,} of the lowest orders; the others are in the remainder)"
    return Titled(title, [*names, "composition", "path", "term"], rows, range(len(names)))


def _scores(found: Explanation) -> Titled:
    if not found.scores:
        return Titled()
    rows = []
    for head, s in found.scores.items():
        shares = ["-" if v is None else f"{round(v, 3) + 0:.3f}" for v in s.shares.values()]
        best = max(s.shares, key=lambda c, s=s: s.shares[c] or 0.0)  # type: ignore[misc]
        rows.append([head, *shares, "" if None in s.shares.values() else best])
    title = "Scores by composition type: share of the margin (best key minus the mean of the others, over queries)"
    invisible = {h: s.softmax_invisible for h, s in found.scores.items() if s.softmax_invisible}
    notes = []
    if invisible:
        some = ", ".join(f"{h} {n}" for h, n in list(invisible.items())[:6]) + (", ..." if len(invisible) > 6 else "")
        notes = [f"Terms that softmax does not see (their key side starts from a bias): {some}"]
    header = ["head", *found.scores[next(iter(found.scores))].shares, "largest"]
    return Titled(title, header, rows, [1, 2, 3, 4], notes=notes)
