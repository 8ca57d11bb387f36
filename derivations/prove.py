"""Prove the path expansions of this folder with Coq: every claim that `derive --format coq` can say.

    python derivations/prove.py

What is generic is proved with two heads a layer, or with one where two make many terms; what is enumerated as it is
printed. Exit status: 0 all proved, 1 a claim is refused, 2 Coq cannot be asked.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import symcircuits as sc
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.results.every import entries
from symcircuits.derivation.results.registry import Entry
from symcircuits.verification.coqc import Compiler
from symcircuits.verification.proofs import prove_together

TERMS = 9  # at most, of what is generic


def derived(entry: Entry) -> Derivation:
    """The derivation of an entry; a generic one with few heads."""
    for most in (2, 1) if entry.form == "generic" else (max(entry.heads, default=0),):
        heads = tuple(min(most, n) for n in entry.heads)
        groups = {"groups": tuple(min(most, n) for n in entry.options["groups"])} if "groups" in entry.options else {}
        arch = sc.transformer(heads, **{**entry.options, **groups})
        if most == 1 or sc.expand(arch, entry.target).count <= TERMS:
            break
    return sc.derive(arch, entry.target, entry.form)


def main() -> int:
    """Print a line for each derivation, and what it comes to."""
    found = {entry.name: derived(entry) for entry in entries() if entry.result is None}
    with tempfile.TemporaryDirectory(prefix="symcircuits-") as scratch:
        compiler = Compiler.found(Path(scratch))
        if compiler is None or (why := compiler.unusable()):
            print("not proved: Coq is not installed" if compiler is None else f"not proved: {why}")
            return 2
        rows = prove_together(compiler, found, seconds=1800)
    for row in rows:
        print(f"{ {True: 'proved', False: 'FAILED', None: 'not run'}[row.passed] }  {row.target}: {row.what}")
    if any(row.passed is False for row in rows):
        return 1
    return 0 if all(row.passed for row in rows) else 2


if __name__ == "__main__":
    sys.exit(main())
