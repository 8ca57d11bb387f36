"""What Coq has proved of a derivation: a record of the texts of Coq that it accepted, by their digests, is beside this.

``derivations/prove.py`` writes the record. A derivation whose text is another one is not proved, whatever it is called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from symcircuits.core.text import amount
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.coq import coverage, module, tactic

__all__ = ["RECORD", "digest", "proved_sentence", "record", "recorded"]

RECORD: Final = Path(__file__).with_name("proved.json")
SCHEMA: Final = "symcircuits.proved/1"
_LARGEST = 200  # terms; no more were proved, and larger texts take long to write


def digest(derivation: Derivation) -> str:
    """SHA-256 of the text of Coq, with the tactic that it is proved by."""
    return hashlib.sha256((tactic() + module(derivation)).encode()).hexdigest()


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
    found = coverage(derivation)
    claims = {"step {}, claim {}".format(*re.findall(r"\d+", name)) for name in found.lemmas}
    lemmas = claims - set(found.left)  # of a chain of equations every one must be proved
    total = sum(len(step.claims) for step in derivation.steps) - len(found.defined)
    every = "every number of heads and " if frame.generic else ""
    number = f"{total}" if len(lemmas) == total else f"{len(lemmas)} of {total}"
    text = f"Proved in Coq, for {every}matrices of any sizes over any commutative ring: {number} equations"
    left = list(dict.fromkeys(re.findall(r"step (\d+)", " ".join(found.left))))
    more = f", after {amount(len(found.defined), 'definition')}" if found.defined else ""
    others = f"; not the others, of step{'s' * (len(left) > 1)} {', '.join(left)}" if left else ""
    return f"{text}{more}{others}."
