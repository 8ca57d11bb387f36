"""*proved*: Coq proves every plain claim of a derivation, for matrices of any sizes over any commutative ring.

The lemmas are those of ``derive --format coq``. They are first read back: they must state what is printed. A
row passes only if every lemma is proved and Coq reports no assumptions; claims without a lemma are listed in it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.derivation.derive import Derivation, derive
from symcircuits.derivation.printing.coq import coverage, module, tactic
from symcircuits.derivation.printing.coq_reader import misstated
from symcircuits.derivation.printing.statements import Coverage
from symcircuits.verification.coqc import CLOSED, INSTALL, Compiler
from symcircuits.verification.result import Check

__all__ = [
    "MAX_PROVED", "PROVED", "check_proved", "claim_at", "details_of", "not_run", "prove_together", "refused",
    "what_is_proved", "what_is_wrong",
]  # fmt: skip

PROVED: Final = "proved"
MAX_PROVED: Final = 100  # terms of one target given to Coq: the claims of this many take about half a minute
_SECONDS = 300.0  # for one file
_NAMED = 3  # differing statements that a row names
_BEGIN = """From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Claims.
Import GRing.Theory.
Local Open Scope ring_scope.
"""


def check_proved(
    architecture: Architecture, targets: Sequence[str], told: Callable[[Check], None] | None = None,
    seconds: float = _SECONDS,
) -> list[Check]:  # fmt: skip
    """One row per target. If Coq cannot be asked, or does not end in time, the row says so and is not run.

    A target of more than 100 terms is proved in generic form, with sums over the heads of each layer.

    >>> from symcircuits.core.architecture import attention_only
    >>> row, = check_proved(attention_only((1,)), ["logits"])  # doctest: +SKIP
    >>> row.passed, row.details["proved"][:2]                  # doctest: +SKIP
    (True, ['step 1, claim 1', 'step 1, claim 2'])
    """
    with tempfile.TemporaryDirectory(prefix="symcircuits-") as scratch:
        compiler = Compiler.found(Path(scratch))
        reason = f"Coq is not installed; on Debian and Ubuntu: {INSTALL}" if compiler is None else compiler.unusable()
        if compiler is None or reason:
            return [_not_run(target, reason) for target in targets]
        rows = []
        for target in targets:
            count, generic = expand(architecture, target).count, _generic_terms(architecture, target)
            if min(count, generic) > MAX_PROVED:
                why = f"Coq is given at most {MAX_PROVED} terms of a target, and there are {count:,}"
                why += f", or {generic:,} sums over heads" if generic < count else ""
                rows.append(_not_run(target, why))
            else:
                form = "enumerated" if count <= MAX_PROVED else "generic"
                rows += prove_together(compiler, {target: derive(architecture, target, form)}, seconds)
            if told:
                told(rows[-1])
        return rows


def _generic_terms(architecture: Architecture, target: str) -> int:
    """How many terms there are where all heads of a layer are one sum."""
    groups = architecture.groups and tuple(min(1, n) for n in architecture.groups)
    one = replace(architecture, heads=tuple(min(1, n) for n in architecture.heads), groups=groups)
    return expand(one, re.sub(r"H\d+$", "H0", target)).count


def prove_together(compiler: Compiler, derivations: Mapping[str, Derivation], seconds: float = _SECONDS) -> list[Check]:
    """One row per derivation, all in one file; if one is rejected, those after it are not run."""
    if not (compiler.scratch / "Claims.vo").is_file() and (fault := compiler.compile("Claims.v", tactic()).fault):
        return [_not_run(name, f"this Coq does not compile the tactic of the claims: {fault}") for name in derivations]
    rows: dict[str, Check] = {}
    parts: dict[str, str] = {}
    version = compiler.version()
    for name, derivation in derivations.items():
        found, text = coverage(derivation), module(derivation)
        details = details_of(found) | {"coq": version}
        if wrong := misstated(derivation, text):
            rows[name] = _refused(name, what_is_wrong(wrong, "Coq"), details, len(wrong))
        elif not found.lemmas:
            rows[name] = _not_run(name, f"no claim has a lemma: {_listed(found.left)}", **details)
        else:
            rows[name], parts[name] = _proved(name, derivation.form, found, details), text
    text, first = _BEGIN, {}
    for number, (name, part) in enumerate(parts.items()):
        first[name] = text.count("\n") + 1
        text += f"Module Part{number}.\n{part}End Part{number}.\n"
    said = compiler.compile("Derivations.v", text, seconds)
    left = list(parts)
    if said.late:
        rows |= {name: _not_run(name, f"Coq has not ended after {seconds:g} seconds") for name in left}
    elif said.fault:
        line = int(found_line[1]) if (found_line := re.search(r"line (\d+)", said.fault)) else 0
        at = next((name for name in reversed(left) if first[name] <= line), left[0])
        why = f"{claim_at(text, line)}not proved: {said.fault}"
        rows[at] = _refused(at, why, rows[at].details)
        rows |= {name: _not_run(name, f"{at}, before it, was rejected") for name in left[left.index(at) + 1 :]}
    elif said.output.count(CLOSED) != (lemmas := sum(part.count("\nPrint Assumptions ") for part in parts.values())):
        why = f"Coq says of {said.output.count(CLOSED)} of {amount(lemmas, 'lemma')} that they assume nothing"
        rows |= {name: _refused(name, why, rows[name].details) for name in left}
    return [rows[name] for name in derivations]


def not_run(row: str, target: str, why: str, **details: Any) -> Check:
    """The row of a target that a prover was not given, or did not answer."""
    return Check(row, target, None, error=None, bound=None, what=why, details=details)


def refused(row: str, target: str, why: str, details: dict[str, Any], error: int = 1) -> Check:
    """The row of a target that a prover refused, or whose file states something else."""
    return Check(row, target, False, error=error, bound=0, what=why, details=details)


_not_run, _refused = partial(not_run, PROVED), partial(refused, PROVED)


def _proved(target: str, form: str, found: Coverage, details: dict[str, Any]) -> Check:
    of = "every number of heads and matrices" if form == "generic" else "matrices"
    what = what_is_proved(found, details, f"Coq {details['coq']}", of)
    return Check(PROVED, target, True, error=0, bound=0, what=what, details=details)


def what_is_proved(found: Coverage, details: dict[str, Any], prover: str, of: str = "matrices") -> str:
    """How many claims are proved, by what, and which are not covered."""
    what = f"{amount(len(details['proved']), 'claim')} proved and {amount(len(found.defined), 'definition')}, for "
    what += f"{of} of any sizes over any commutative ring ({prover})"
    return what + (f"; not covered: {_listed(found.left)}" if found.left else "; none is left")


def what_is_wrong(faults: list[str], prover: str) -> str:
    """That a file says something else than what is printed, and where."""
    where = amount(len(faults), "place")
    return f"the file for {prover} states something else in {where}: {'; '.join(faults[:_NAMED])}"


def details_of(found: Coverage) -> dict[str, Any]:
    """The claims that are proved, those that are definitions, and those that are left, with the reasons."""
    proved = ["step {}, claim {}".format(*re.findall(r"\d+", name)) for name in found.lemmas]
    return {"proved": list(dict.fromkeys(proved)), "defined": list(found.defined), "left": dict(found.left)}


def _listed(left: dict[str, str]) -> str:
    """Every claim without a lemma, by its number, grouped by the reason."""
    by_reason: dict[str, list[str]] = {}
    for claim, reason in left.items():
        by_reason.setdefault(reason, []).append(claim)
    return "; ".join(f"{'; '.join(claims)} ({reason})" for reason, claims in by_reason.items())


def claim_at(text: str, line: int) -> str:
    """The claim of the lemma or theorem at a line of a file, as the beginning of a sentence."""
    names = [
        found
        for found in map(re.compile(r"(?:Lemma|theorem) step(\d+)_(\d+)_").match, text.splitlines()[:line])
        if found
    ]
    return f"step {names[-1][1]}, claim {names[-1][2]} is " if names else ""
