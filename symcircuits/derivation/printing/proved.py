"""What Coq has proved of a derivation: a record of the texts of Coq that it accepted, by their digests, is beside this.

``derivations/prove.py`` writes the record. Of a generic form the text is that with few heads, for sums over heads are
written out in it. A derivation whose text is another one is not proved, whatever it is called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.coq import coverage, module, tactic

__all__ = ["RECORD", "digest", "provable", "proved_sentence", "record", "recorded"]

RECORD: Final = Path(__file__).with_name("proved.json")
SCHEMA: Final = "symcircuits.proved/1"
_TERMS = 9  # at most, of what is generic and has two heads a layer
_LARGEST = 200  # terms; no more were proved, and larger texts take long to write


def provable(derivation: Derivation) -> Derivation:
    """The derivation whose text Coq is given: of a generic form that with two heads a layer, or with one."""
    frame = derivation.frame
    if not frame.generic or derivation.result is not None or frame.architecture.symbolic:
        return derivation
    for most in (2, 1):
        small = frame.with_heads(tuple(min(most, n) for n in frame.architecture.heads[: frame.depth]))
        if most == 1 or expand(small, frame.target).count <= _TERMS:
            break
    return replace(derivation, frame=replace(frame, architecture=small))


def digest(derivation: Derivation) -> str:
    """SHA-256 of the text of Coq, with the tactic that it is proved by."""
    return hashlib.sha256((tactic() + module(provable(derivation))).encode()).hexdigest()


def record(proved: Mapping[str, str], version: str) -> str:
    """The text of the record: digests of the texts that were proved, by the names of their derivations in the book."""
    return json.dumps({"schema": SCHEMA, "coq": version, "proved": dict(sorted(proved.items()))}, indent=1) + "\n"


@cache
def recorded() -> Mapping[str, str]:
    """The record: digests by names; nothing where there is none of this schema."""
    found = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    return dict(found["proved"]) if found.get("schema") == SCHEMA else {}


def proved_sentence(derivation: Derivation) -> str:
    """Which claims are proved, where the record has the digest of the derivation's text of Coq; else nothing.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> proved_sentence(derive(attention_only((3, 3)))).partition(",")[0]
    'Proved in Coq'
    >>> proved_sentence(derive(attention_only((3, 2))))
    ''
    """
    frame = derivation.frame
    if derivation.result is not None or frame.architecture.symbolic or len(frame.terms) > _LARGEST:
        return ""
    if digest(derivation) not in recorded().values():
        return ""
    few = provable(derivation)
    found = coverage(few)
    claims = {"step {}, claim {}".format(*re.findall(r"\d+", name)) for name in found.lemmas}
    lemmas = claims - set(found.left)  # of a chain of equations every one must be proved
    total = sum(len(step.claims) for step in derivation.steps) - len(found.defined)
    heads = ",".join(map(str, few.frame.architecture.heads[: few.frame.depth]))
    at = f", with sums over heads written out for heads {heads}" if frame.generic and heads else ""
    number = f"{total}" if len(lemmas) == total else f"{len(lemmas)} of {total}"
    text = f"Proved in Coq, for matrices of any sizes over any commutative ring{at}: {number} equations"
    left = list(dict.fromkeys(re.findall(r"step (\d+)", " ".join(found.left))))
    more = f", after {amount(len(found.defined), 'definition')}" if found.defined else ""
    others = f"; not the others, of step{'s' * (len(left) > 1)} {', '.join(left)}" if left else ""
    return f"{text}{more}{others}."
