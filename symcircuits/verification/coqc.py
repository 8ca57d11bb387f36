"""``coqc``: whether it can be asked, and what it says of a file."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from symcircuits.verification.compilers import Said, answer, compiled

__all__ = ["CLOSED", "INSTALL", "Compiler"]

INSTALL = "apt-get install --no-install-recommends coq libcoq-mathcomp-algebra"
CLOSED = "Closed under the global context"  # what Coq says of a proof without axioms
_OLDEST = (8, 16)  # what the proofs are written for
_SECONDS = 600.0  # for one file


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler, and the folder where it works."""

    coqc: str
    scratch: Path

    @classmethod
    def found(cls, scratch: Path) -> Compiler | None:
        """The compiler that is installed, if one is."""
        coqc = shutil.which("coqc")
        return None if coqc is None else cls(coqc, scratch)

    def unusable(self) -> str:
        """Why it cannot be asked: it is older than the proofs, or has no mathcomp; empty if it can."""
        version = self.version()
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if len(numbers) == 2 and numbers < _OLDEST:
            return f"Coq {version} is older than {'.'.join(map(str, _OLDEST))}, which the proofs are written for"
        if fault := self.compile("Probe.v", "From mathcomp Require Import all_ssreflect all_algebra.\n").fault:
            return f"mathcomp is not installed ({fault}); on Debian and Ubuntu: {INSTALL}"
        return ""

    def version(self) -> str:
        """The version of Coq."""
        return (answer([self.coqc, "--print-version"], self.scratch, 60).output.split() or ["of unknown version"])[0]

    def compile(self, name: str, text: str, seconds: float = _SECONDS) -> Said:
        """Compile a file; those compiled before can be imported from ``Circuits``."""
        command = [self.coqc, "-q", "-w", "none", "-Q", ".", "Circuits"]
        return compiled(command, self.scratch, name, text, seconds)
