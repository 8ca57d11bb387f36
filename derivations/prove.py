"""Prove the path expansions of this folder with Coq: every claim that `derive --format coq` can say.

    python derivations/prove.py [--record]

What is generic is proved for every number of heads, what is enumerated as it is printed. Printed documents say "Proved
in Coq" of derivations whose text of Coq has its digest in a record of what was proved,
`symcircuits/derivation/printing/proved.json`; `--record` writes it. Exit status: 0 all proved, and the record has these
texts and no others, 1 a claim is refused or the record is another, 2 Coq cannot be asked.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from symcircuits.derivation.book import derived
from symcircuits.derivation.printing.proved import RECORD, digest, record, recorded
from symcircuits.derivation.results.every import entries
from symcircuits.verification.coqc import Compiler
from symcircuits.verification.proofs import prove_together


def main(arguments: list[str]) -> int:
    """Print a line for each derivation, and what it comes to."""
    found = {entry.name: derived(entry) for entry in entries() if entry.result is None}
    with tempfile.TemporaryDirectory(prefix="symcircuits-") as scratch:
        compiler = Compiler.found(Path(scratch))
        if compiler is None or (why := compiler.unusable()):
            print("not proved: Coq is not installed" if compiler is None else f"not proved: {why}")
            return 2
        rows = prove_together(compiler, found, seconds=1800)
        version = compiler.version()
    for row in rows:
        print(f"{ {True: 'proved', False: 'FAILED', None: 'not run'}[row.passed] }  {row.target}: {row.what}")
    if not all(row.passed for row in rows):
        return 1 if any(row.passed is False for row in rows) else 2
    proved = {row.target: digest(found[row.target]) for row in rows}
    if "--record" in arguments:
        RECORD.write_text(record(proved, version), encoding="utf-8")
        print(f"recorded: {RECORD.name}")
    elif stale := differing(proved):
        print(f"FAILED  the record of what is proved, {RECORD}, is another: {'; '.join(stale)}")
        print("write it by: python derivations/prove.py --record, then the documents of this folder anew")
        return 1
    return 0


def differing(proved: dict[str, str]) -> list[str]:
    """The derivations of which the record has another text than the one proved now, or which only one of both has."""
    before = recorded()
    return sorted(name for name in {*before, *proved} if before.get(name) != proved.get(name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
