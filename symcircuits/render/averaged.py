"""Averages over many prompts as tables for a terminal, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.explained import closure_name
from symcircuits.render.tables import UNBROKEN, Titled, number
from symcircuits.values.measure import SECOND

if TYPE_CHECKING:
    from symcircuits.explanation.many import Averages, Failed, Part, Worst
    from symcircuits.explanation.statistics import Spread

__all__ = ["averages_json", "averages_parts"]


# ------------------------------------------------------------------------------------------------ plain data
def averages_json(found: Averages) -> dict[str, Any]:
    """The averages as plain data; the schema is in docs/json.md."""
    kind, by = found.expansion.target, found.measure
    totals = {name: {str(k): p.json() for k, p in parts.items()} for name, parts in found.totals.items()}
    return {
        "schema": "symcircuits.explain-many/1",
        "model": {"name": found.model.name, "architecture": str(found.model.architecture)},
        "source": found.source or None,
        "ok": found.ok,
        "prompts": found.prompts,
        "length": found.lengths.json(),
        "unclosed": _faults_json(found.n_unclosed, found.unclosed),
        "skipped": _faults_json(found.n_skipped, found.skipped),
        "assumptions": list(found.assumptions),
        "closure": {name: _worst_json(worst) for name, worst in found.worst.items()},
        "of": kind,
        "target": {
            "position": by.position, "token": by.token, "against": by.against, "chosen": dict(found.chosen),
        },
        "whole": found.whole.json(),
        "by_order": totals["order"],
        **({"by_degree": totals["degree"]} if "degree" in totals else {}),
        "by_composition_of_" + kind: totals["composition"],
        "by_head_of_" + kind: totals["head"],
        "by_composition": {h: {c: p.json() for c, p in parts.items()} for h, parts in found.scores.items()},
    }  # fmt: skip


def _faults_json(count: int, faults: Sequence[Failed]) -> dict[str, Any]:
    return {"count": count, "first": [{"prompt": f.prompt, "why": f.why} for f in faults]}


def _worst_json(worst: Worst) -> dict[str, Any]:
    c = worst.closure
    ratio = None if worst.ratio == float("inf") else worst.ratio
    return {"prompt": worst.prompt, "target": c.target, "error": c.error, "bound": c.bound, "ratio": ratio,
            "passed": c.passed, **({"of": c.of} if c.of else {})}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- tables
def averages_parts(found: Averages, top: int = 20) -> list[Titled]:
    """The averages as sections of tables; of many heads the ``top`` largest are shown."""
    parts = [_heading(found), _faults(found), _closures(found)]
    if found.prompts:
        parts += [_totals(found, name, top) for name in found.whole.spreads] + [_scores(found, top)]
    return parts


def _heading(found: Averages) -> Titled:
    name, n, lengths = visible(found.model.name), found.prompts, found.lengths
    of = f" of {_range(lengths)} token{'s' * (lengths.most != 1)}" if n else ""
    title = f"explain {name}: {found.model.architecture}; averages over {amount(n, 'prompt')}{of}"
    said = [*found.assumptions, "each prompt is run separately at its own length: nothing is padded, no token is added"]
    said += ["norms grow with the length of a prompt; shares and contributions do not"] if _several(lengths) else []
    return Titled(title, points=[f"  - {visible(line)}" for line in said])


def _several(lengths: Spread) -> bool:
    return lengths.least != lengths.most


def _range(lengths: Spread) -> str:
    least, most = int(lengths.least or 0), int(lengths.most or 0)
    return str(least) if least == most else f"{least} to {most}"


def _place(found: Averages, n: int) -> str:
    return f"line {n}" if found.source else f"prompt {n}"


def _faults(found: Averages) -> Titled:
    lines: list[str] = []
    for count, faults, what in (
        (found.n_unclosed, found.unclosed, "FAIL: {} with a closure beyond its bound, left out of all averages:"),
        (found.n_skipped, found.skipped, "Left out: {}:"),
    ):
        if count:
            lines.append(what.format(amount(count, "prompt" if "FAIL" in what else "invalid prompt")))
            lines += [f"  {_place(found, f.prompt)}: {visible(f.why)}" for f in faults]
            lines += [f"  and {count - len(faults)} more"] if count > len(faults) else []
    return Titled(points=lines)


def _closures(found: Averages) -> Titled:
    rows = [
        ["pass" if w.closure.passed else "FAIL", closure_name(w.closure.target.replace(":", " "), w.closure),
         number(w.closure.error), number(w.closure.bound), number(w.ratio), _place(found, w.prompt)]
        for w in found.worst.values()
    ]  # fmt: skip
    if not rows:
        return Titled()
    title = "Closure nearest to its bound, over all prompts (and all heads or layers): largest |sum - model|"
    return Titled(title, ["", "of", "error", "bound", "ratio", "prompt"], rows, [2, 3, 4])


def _totals(found: Averages, quantity: str, top: int) -> Titled:
    """One quantity of the logits (or stream): whole, by order, by composition type, through each head."""
    heads, left = _largest(found.totals["head"], quantity, top)
    parts = [("all", found.whole)]
    parts += [(f"{by} {key}", p) for by, of in found.totals.items() if by != "head" for key, p in of.items()]
    parts += [(f"through {head}", found.totals["head"][head]) for head in heads]
    terms = amount(found.expansion.count, "term")
    title = f"Norms of the {found.expansion.target}" if quantity == "norm" else _chosen(found, quantity)
    title += f"; {terms}" + (f"; the {amount(len(heads), 'head')} with the largest mean" if left else "")
    rows = [[name, f"{p.count:,}", *_cells(p.spreads[quantity], found.prompts)] for name, p in parts]
    return _spread_table(title, rows, ["", "terms"], [1])


def _largest(parts: Mapping[str, Part], quantity: str, top: int) -> tuple[list[str], int]:
    """The heads with the largest mean, in their order, and how many there are besides."""
    best = sorted(parts, key=lambda h: -abs(parts[h].spreads[quantity].mean or 0.0))[:top]
    return [h for h in parts if h in set(best)], len(parts) - len(best)


def _chosen(found: Averages, quantity: str) -> str:
    """Which logit, or difference of logits, a contribution is to."""
    by = found.measure
    own, same, first = (found.chosen.get(who, 0) for who in ("its own", "the same for all", "first choice"))
    said = ["the token that the prompt names"] if own else []
    if quantity == "difference":
        other = "the largest other" if by.against == SECOND else f"token {_name(found, by.against)}"
        names = f"token {_name(found, by.token)} less that of {other}"
        said = ["the two tokens that the prompt names"] if own else []
        said += [names] if same and by.against is not None else []
        said += ["the model's first choice less that of its second"] if first and by.against is not None else []
    else:
        said += [f"token {_name(found, by.token)}"] if same else []
        said += ["the model's first choice"] if first else []
    position = "the last position" if by.position == -1 else f"position {by.position}"
    what = "Differences: contributions to the logit of" if quantity == "difference" else "Contributions to the logit of"
    return f"{what} {' or '.join(said)}, at {position}" + (" or where the prompt says" if own else "")


def _name(found: Averages, token: int | None) -> str:
    label = found.labels.output(token or 0)
    return str(token) if label == str(token) else f'{token} "{label.replace(" ", UNBROKEN)}"'


def _scores(found: Averages, top: int) -> Titled:
    if not found.scores:
        return Titled()
    many = {h: parts for h, parts in found.scores.items() if len(parts) > 1}
    best = sorted(many, key=lambda h: _beside_none(many[h]), reverse=True)[:top]
    shown = [h for h in many if h in set(best)]
    rows = [
        [head if i == 0 else "", c, *_cells(part.spreads["centred_share"], found.prompts)]
        for head in shown for i, (c, part) in enumerate(found.scores[head].items())
    ]  # fmt: skip
    seen = " (what softmax sees)" if found.model.architecture.softmax else ""
    title = f"Scores by composition type: centred share{seen}, with its spread over prompts"
    alone = len(found.scores) - len(many)
    left = len(many) - len(shown)
    notes = [f"the {len(shown)} heads of {len(many)} with the largest share of types other than none"] if left else []
    notes += [f"{amount(alone, 'head')} without earlier heads (all none), not shown"] if alone else []
    title += f" ({'; '.join(notes)})" if notes else ""
    return _spread_table(title, rows, ["head", "composition"], []) if rows else Titled(title)


def _beside_none(parts: Mapping[str, Part]) -> float:
    """The largest mean share of a type in which an earlier head enters."""
    return max((abs(p.spreads["centred_share"].mean or 0.0) for c, p in parts.items() if c != "none"), default=0.0)


def _cells(spread: Spread, prompts: int) -> list[str]:
    """Mean, deviation, smallest, largest; and how many prompts, where it is not defined for all."""
    numbers = [number(x) for x in (spread.mean, spread.std, spread.least, spread.most)]
    return [*numbers, "" if spread.count == prompts else str(spread.count)]


def _spread_table(title: str, rows: list[list[str]], first: list[str], right: list[int]) -> Titled:
    header = [*first, "mean", "std", "min", "max", "prompts"]
    if not any(row[-1] for row in rows):
        rows, header = [row[:-1] for row in rows], header[:-1]
    return Titled(title, header, rows, [*right, *range(len(first), len(header))])
