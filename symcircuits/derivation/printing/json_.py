"""A derivation as a dictionary for JSON, schema ``symcircuits.derivation/1``."""

from __future__ import annotations

import json
from typing import Any

from symcircuits.core.notation import Notation
from symcircuits.core.words import scalar_order
from symcircuits.derivation.claims import Check
from symcircuits.derivation.derive import Derivation, Step
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.multiplying import softmax_invisible
from symcircuits.derivation.nodes import Expr
from symcircuits.derivation.printing.conventions import conventions
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.forms import Shown, shown_claims
from symcircuits.derivation.printing.prose import plain
from symcircuits.derivation.printing.styles import LatexStyle, TextStyle
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.printing.words import check_sentence, seal, subject, title

__all__ = ["SCHEMA", "derivation_json", "json_ascii", "json_file"]

SCHEMA = "symcircuits.derivation/1"


def derivation_json(derivation: Derivation) -> dict[str, Any]:
    """Title, subject, architecture, conventions, terms (generic: families), steps with checks, and the seal."""
    frame = derivation.frame
    arch = frame.architecture
    result, notation = derivation.result, derivation.notation
    named = {"result": result.name, "statement": derivation.statement, "section": result.section} if result else {}
    return {
        "schema": SCHEMA,
        **named,
        "title": title(derivation),
        "subject": plain(subject(derivation), notation),
        "target": derivation.target,
        "form": derivation.form,
        "architecture": {
            "heads": None if frame.generic else list(arch.heads),
            "layers": frame.depth,
            "positions": arch.positions,
            "biases": list(frame.biases) if frame.generic else sorted(arch.biases),
            "scale": arch.scale,
            "causal": arch.causal,
            "unembed": arch.unembed,
            **_features(frame),
        },
        "notation": notation.json(),
        "conventions": [plain(line, notation) for line in conventions(derivation)],
        "count": None if frame.generic or result else frame.expansion.count,
        "families" if frame.generic else "terms": [] if result else _terms(derivation),
        "steps": [_step(step, notation) for step in derivation.steps],
        "ok": derivation.ok,
        "seal": plain(seal(derivation), notation),
    }


def json_ascii(derivation: Derivation) -> str:
    """The dictionary as JSON that every terminal can show."""
    return json.dumps(derivation_json(derivation), indent=1)


def json_file(derivation: Derivation) -> str:
    """The dictionary as a file of JSON in UTF-8."""
    return json.dumps(derivation_json(derivation), indent=1, ensure_ascii=False) + "\n"


def _features(frame: Frame) -> dict[str, Any]:
    """Norms, MLPs, key/value groups and multipliers, where there are any."""
    arch, found = frame.architecture, dict[str, Any]()
    if arch.norm:
        found |= {"norm": arch.norm, "gains": sorted(arch.gains)}
    if arch.mlps:
        found |= {"mlps": sorted(arch.mlps), "gated": arch.gated, "parallel": arch.parallel}
    if arch.groups:
        found |= {"groups": None if frame.generic else list(arch.groups)}
    if arch.multipliers:
        found |= {"multipliers": sorted(arch.multipliers, key=scalar_order)}
    return found


def _terms(derivation: Derivation) -> list[dict[str, Any]]:
    """Every term, in the order of the enumeration."""
    frame, notation, found = derivation.frame, derivation.notation, []
    for term, expr in sorted(frame.terms, key=lambda pair: frame.expansion.index(pair[0])):
        entry: dict[str, Any] = {
            "label": frame.label(term),
            "composition": term.composition,
            "order": term.order,
            **_expr(expr, notation),
            "sources": list(term.sources),
        }
        if len(term.orders) == 2:
            entry["orders"] = list(term.orders)
            entry["softmax_invisible"] = frame.architecture.shift_invariant and softmax_invisible(expr)
        if frame.generic:
            entry |= {"count": _expr(frame.count(term), notation)}
            entry["layers"] = [[h.layer + 1 for h in path.heads] for path in term.paths]
        found.append(entry)
    return found


def _expr(expr: Expr, notation: Notation) -> dict[str, str]:
    return {"text": expr_text(expr, TextStyle(notation)), "latex": expr_latex(expr, LatexStyle(notation))}


def _step(step: Step, notation: Notation) -> dict[str, Any]:
    return {
        "number": step.number,
        "kind": step.kind,
        "reason": plain(step.reason, notation),
        "claims": [_claim(claim) for claim in shown_claims(step, notation)],
        "check": _check(step.check, notation),
    }


def _claim(claim: Shown) -> dict[str, Any]:
    relation = {"relation": claim.relation} if claim.relation != "=" else {}
    return {"sides": [_expr(side, claim.notation) for side in claim.sides], **relation}


def _check(check: Check, notation: Notation) -> dict[str, Any]:
    return {
        "passed": check.passed,
        "how": check.how,
        "sentence": plain(check_sentence(check), notation),
        "claims": check.claims,
        "size": check.k or None,
        "trials": check.trials or None,
        "prime": check.prime or None,
        "seed": check.seed if check.prime else None,
        "degree": check.degree or None,
        "bound": check.bound,
        "head_counts": [list(c) for c in check.head_counts],
        "also": list(check.also),
        **({"given": list(check.given)} if check.given else {}),
        **({"groups": [list(c) for c in check.groups]} if check.groups else {}),
    }
