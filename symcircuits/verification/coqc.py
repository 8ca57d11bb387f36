"""``coqc``: whether it is usable, and its output for a file."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from symcircuits.verification.compilers import Said, answer, compiled

__all__ = ["CLOSED", "INSTALL", "Compiler"]

INSTALL = "apt-get install --no-install-recommends coq libcoq-mathcomp-algebra"
CLOSED = "Closed under the global context"  # Coq's answer for a proof without axioms
_OLDEST = (8, 16)  # the proofs are written for this version
_SECONDS = 600.0  # for one file


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler, and the folder that it works in."""

    coqc: str
    scratch: Path

    @classmethod
    def found(cls, scratch: Path) -> Compiler | None:
        """The installed compiler, if there is one."""
        coqc = shutil.which("coqc")
        return None if coqc is None else cls(coqc, scratch)

    def unusable(self) -> str:
        """Why the compiler is unusable: older than the proofs, or without mathcomp; empty if it is usable."""
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
