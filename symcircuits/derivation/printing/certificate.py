"""A derivation as a certificate: claims as expression trees, one draw of all matrices, the values of both sides.

``derivations/recheck.py`` reads it: it evaluates every claim with a transformer of its own, on the recorded matrices,
where it must find the recorded values, and on new ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.core.symbols import LATEX
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import Draft
from symcircuits.derivation.derive import Derivation, Step
from symcircuits.derivation.nodes import (
    Apply,
    Expr,
    Family,
    Number,
    Product,
    Sign,
    Special,
    Spelled,
    Sum,
    SumOver,
    Tensor,
    Transposed,
    Written,
    every_node,
)
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.printing.styles import RELATIONS, LatexStyle
from symcircuits.derivation.printing.words import check_sentence, model_line, title
from symcircuits.derivation.result_checker import ResultChecker
from symcircuits.derivation.specials import Inverse, NamedMatrix
from symcircuits.derivation.values import Instance
from symcircuits.work.files import write_text

__all__ = ["SCHEMA", "certificate", "save_certificate", "tree"]

SCHEMA = "symcircuits.certificate/1"
Tree = Any  # a symbol in LaTeX, or [kind, Tree, ...]
_STYLE = LatexStyle()


def tree(expr: Expr) -> Tree:
    """An expression as a tree: a symbol in LaTeX, or the kind of node and its parts.

    Kinds: ``product`` (of maps one after the other, of a map and what it acts on, too), ``sum``, ``tensor``,
    ``transposed``, ``pair``, and ``written``, signs and parts as they are printed.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import stream
    >>> tree(Sum((stream(attention_only((1,)))[0].word, Number(2))))
    ['sum', 'X_0', '2']
    """
    match expr:
        case Spelled():
            return _chain(expr.word.scales, [_STYLE.factor(f) for f in expr.word.factors])
        case Product():
            return _chain(expr.scales, [tree(f) for f in expr.factors])
        case Sum() if any(isinstance(term, Number) and term.value < 0 for term in expr.terms):
            return ["written", "(", expr_latex(expr), ")"]
        case Sum():
            return ["sum", *map(tree, expr.terms)] if expr.terms else "0"
        case SumOver():
            return ["product", _STYLE.sum_over(expr.index, expr.layer), tree(expr.body)]
        case Transposed():
            return ["transposed", tree(expr.body)]
        case Tensor():
            return ["tensor", *map(tree, expr.slots)]
        case Apply():
            first, *others = map(tree, expr.arguments)
            return ["product", tree(expr.operator), ["pair", first, *others] if others else first]
        case Family():
            return tree(expr.body)
        case Special():
            return ["written", *_written(expr.written())]
        case _:
            found = getattr(expr, "fused", None)
            return expr_latex(expr) if found is None else _chain(expr.scales, [_STYLE.factor(f) for f in found])  # type: ignore[union-attr]


def _written(parts: Written) -> Iterator[Tree]:
    """Signs and parts; a sign that can have another name is one with what is written to it."""
    symbol = ""
    for part in parts:
        if isinstance(part, Sign) and part.glyph:
            symbol += part.latex
        elif isinstance(part, Sign):
            yield symbol + part.latex
            symbol = ""
        else:
            yield from [symbol] if symbol else []
            yield tree(part)
            symbol = ""
    if symbol:
        yield symbol


def _chain(scales: tuple[str, ...], parts: list[Tree]) -> Tree:
    parts = [*map(_STYLE.scale, scales), *parts]
    return parts[0] if len(parts) == 1 else ["product", *parts]


def certificate(derivation: Derivation) -> dict[str, Any]:
    """The certificate: ``schema, title, model, prime, size, seed, draw, claims, count, sha256``.

    ``claims``: ``step``, ``relation``, two ``sides`` (a chain ``a = b = c`` is two claims), and their ``values`` on the
    ``draw`` modulo ``prime``, matrices or numbers (None where it was not checked by values: counts, rules by indices,
    exact numbers, rotary positions). Of a generic form the draw is at one choice of numbers of heads, which ``model``
    says.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> found = certificate(derive(attention_only((1,)), "stream"))
    >>> found["schema"], found["count"] == len(found["claims"]), found["size"]
    ('symcircuits.certificate/1', True, 3)
    """
    at = _instance(derivation)
    claims = [claim for step in derivation.steps for claim in _claims(step, at, derivation.frame.turned)]
    matrices, numbers = at.draws()
    draw = {_plain(name): array[0].tolist() for name, array in sorted(matrices.items()) if " " not in name}
    sides = {side for step in derivation.steps for claim in step.claims for side in claim.sides}
    for node in {node for side in sides for node in every_node(side) if isinstance(node, (NamedMatrix, Inverse))}:
        name = f"{{{node.name}" if isinstance(node, NamedMatrix) else f"{node.of.name}^-1"
        draw[name] = at.value(node)[0].tolist()
    draw |= {_number(name): int(array[0, 0, 0]) for name, array in sorted(numbers.items()) if name[:5] != "slope"}
    if derivation.frame.alibi:
        draw[f"{{alibi^{derivation.frame.head}"] = at.alibi(str(derivation.frame.head))[0].tolist()
    found = {
        "schema": SCHEMA, "title": title(derivation), "model": _model(derivation, at),
        "prime": at.ring.p, "size": at.k, "seed": at.seed, "draw": draw, "count": len(claims), "claims": claims,
    }  # fmt: skip
    return {**found, "sha256": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}


def save_certificate(derivation: Derivation, path: str | Path) -> Path:
    """Write the certificate to a file, which is replaced only when the new one is complete."""
    return write_text(path, json.dumps(certificate(derivation)) + "\n")


def _instance(derivation: Derivation) -> Instance:
    """Where claims are evaluated: at the most heads at which they were checked, in every layer some if it can be."""
    frame, result = derivation.frame, derivation.result
    seed = next((step.check.seed for step in derivation.steps if step.check.prime), 0)
    if result is None:
        found = ClaimChecker(frame, seed).instances
    else:
        drafts = [Draft(s.kind, s.claims, s.reason, s.check.how) for s in derivation.steps]
        found = ResultChecker(frame, drafts, result.given, seed).instances
    whole = [one for one in found if all(one.architecture.heads[: frame.depth])]
    return max(whole or found, key=lambda one: sum(one.architecture.heads))


def _claims(step: Step, at: Instance, turned: bool) -> list[dict[str, Any]]:
    found = []
    for claim in step.claims:
        for sides in zip(claim.sides, claim.sides[1:], strict=False):
            values = [_value(at.value(s)) for s in sides] if step.check.how == "values" and not turned else None
            found.append(
                {"step": step.number, "relation": RELATIONS[claim.relation], "sides": [*map(tree, sides)],
                 "values": values}
            )  # fmt: skip
    return found


def _value(value: Array) -> Any:
    """The matrix of the first draw; a number where it is one."""
    first = value[0]
    return int(first[0, 0]) if first.size == 1 else first.tolist()


def _model(derivation: Derivation, at: Instance) -> str:
    """The line "Model:" of a page of that model, what is given of the matrices, and the letters of numbers."""
    frame = replace(derivation.frame, architecture=at.architecture, walked=at.architecture, form="enumerated")
    given = next((step.check for step in derivation.steps if step.check.how == "values"), None)
    scales = " ".join(f"${_STYLE.scale(name)}$" for name in sorted(at.architecture.multipliers))
    lines = [prose(model_line(frame)), f"Derived: ${_STYLE.target(derivation.target)}$.", f"Multipliers: {scales}."]
    return "\n".join(lines[: 2 + bool(scales)] + ([prose(check_sentence(given))] if given else []))


def _number(name: str) -> str:
    """The score scale of a head, a multiplier or another letter, without braces."""
    return name if len(name) == 1 else re.sub(r"\\mathrm|[{}]", "", _STYLE.scale(name))


_LABELLED = re.compile(r"(.+?)_((?:[LM]\d|final|[QK]L?\d|G\(|[a-z](?:_\d)?$).*)")


def _plain(name: str) -> str:
    """``W_OV_L0H1`` as ``W_OV^L0H1``: a symbol of a page without its braces."""
    labelled = _LABELLED.fullmatch(name)
    glyph, label = labelled.groups() if labelled else (name, "")
    plain = re.sub(r"\\mathrm|[{}]", "", LATEX.get(glyph, glyph))
    label = re.sub(r"^G\((.*)\)$", r"\1", label)
    return f"{plain}^{label}" if label else plain
