"""*proved by Lean*: Lean 4 compiles the theorems of ``derive --format lean``, if it is installed with Mathlib.

The statements are first read back and compared with the printed claims. A row passes only if the file compiles and
every theorem uses no axioms but the three of Lean. If Lean cannot run, the row says that nothing was compiled. In the
folder of a Lake project the command is ``lake env lean``, elsewhere ``lean``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.derivation.derive import Derivation, derive
from symcircuits.derivation.printing.lean import derivation_lean, lean_coverage
from symcircuits.derivation.printing.lean_reader import misstated
from symcircuits.verification.compilers import Said, answer, compiled, in_short
from symcircuits.verification.proofs import (
    MAX_PROVED,
    claim_at,
    details_of,
    not_run,
    refused,
    what_is_proved,
    what_is_wrong,
)
from symcircuits.verification.result import Check

__all__ = ["PROVED_BY_LEAN", "LeanCompiler", "check_lean"]

PROVED_BY_LEAN: Final = "proved by Lean"
_AXIOMS = {"propext", "Classical.choice", "Quot.sound"}  # those of Lean itself, on which most of Mathlib stands
_OLDEST = (4, 12)  # what the file is written for
_SECONDS = 600.0  # for one file, of which importing Mathlib takes some
_INSTALL = "install it with elan, and run this in the folder of a Lake project that requires Mathlib"
_ASSUMES = re.compile(r"'(?:\w+\.)*(step\w+)' (?:does not depend on any axioms|depends on axioms:\s*\[([^\]]*)\])")


@dataclass(frozen=True, slots=True)
class LeanCompiler:
    """How Lean is called, from which folder, and the folder where files are written."""

    command: tuple[str, ...]
    folder: Path
    scratch: Path

    @classmethod
    def found(cls, scratch: Path) -> LeanCompiler | None:
        """Lean, if it is installed: that of the Lake project of the working directory, if that is one."""
        here = Path.cwd()
        lake, lean = shutil.which("lake"), shutil.which("lean")
        if lake is not None and any((here / name).is_file() for name in ("lakefile.toml", "lakefile.lean")):
            return cls((lake, "env", "lean"), here, scratch)
        return None if lean is None else cls((lean,), scratch, scratch)

    def version(self) -> str:
        """The version of Lean."""
        found = re.search(r"version (\d+\.\d+[\w.-]*)", answer([*self.command, "--version"], self.folder, 120).output)
        return found[1] if found else "of unknown version"

    def unusable(self, seconds: float = _SECONDS) -> str:
        """Why it cannot be asked: it is older than the files are written for, or has no Mathlib; empty if it can."""
        version = self.version()
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if numbers and numbers < _OLDEST:
            return f"Lean {version} is older than {'.'.join(map(str, _OLDEST))}, which the file is written for"
        said = self.compile("Probe.lean", "import Mathlib\n", seconds)
        if said.late:
            return f"Lean has not imported Mathlib after {seconds:g} seconds"
        return f"Lean has no Mathlib here ({said.fault}); {_INSTALL}" if said.fault else ""

    def compile(self, name: str, text: str, seconds: float = _SECONDS) -> Said:
        """Compile a file. What is wrong is the first error."""
        said = compiled(self.command, self.scratch, name, text, seconds, self.folder)
        messages = re.split(r"^(?=.*\.lean:\d+:\d+: )", said.output, flags=re.MULTILINE)
        errors = [message for message in messages if re.match(r".*?\.lean:\d+:\d+: error", message)]
        if not said.fault or not errors:
            return said
        return said._replace(fault=in_short(errors[0].replace(f"{self.scratch}/", "")))


def check_lean(
    architecture: Architecture, targets: Sequence[str], told: Callable[[Check], None] | None = None,
    seconds: float = _SECONDS,
) -> list[Check]:  # fmt: skip
    """A row for each target. Where Lean cannot be asked, or has not ended in time, the row says so and is not run.

    >>> from symcircuits.core.architecture import attention_only
    >>> row, = check_lean(attention_only((1,)), ["logits"])  # doctest: +SKIP
    >>> row.passed, row.what                                 # doctest: +SKIP
    (None, 'not compiled: Lean is not installed; ...')
    """
    with tempfile.TemporaryDirectory(prefix="symcircuits-") as scratch:
        compiler = LeanCompiler.found(Path(scratch))
        reason = f"Lean is not installed; {_INSTALL}" if compiler is None else compiler.unusable(seconds)
        rows = []
        for target in targets:
            if compiler is None or reason:
                rows.append(_not_run(target, reason))
            elif (count := expand(architecture, target).count) > MAX_PROVED:
                most = f"Lean is given at most {MAX_PROVED} terms of a target, and there are {count:,}"
                rows.append(_not_run(target, most))
            else:
                rows.append(_asked(compiler, target, derive(architecture, target), seconds))
            if told:
                told(rows[-1])
        return rows


def _asked(compiler: LeanCompiler, target: str, derivation: Derivation, seconds: float) -> Check:
    """The row of a derivation whose file Lean is given."""
    found, text = lean_coverage(derivation), derivation_lean(derivation)
    details = details_of(found) | {"lean": compiler.version()}
    if wrong := misstated(derivation, text):
        return refused(PROVED_BY_LEAN, target, what_is_wrong(wrong, "Lean"), details, len(wrong))
    if not found.lemmas:
        return _not_run(target, "no claim has a theorem", **details)
    said = compiler.compile("Derivation.lean", text, seconds)
    if said.late:
        return _not_run(target, f"Lean has not ended after {seconds:g} seconds", **details)
    if said.fault:
        line = int(at[1]) if (at := re.search(r":(\d+):\d+: error", said.fault)) else 0
        return refused(PROVED_BY_LEAN, target, f"{claim_at(text, line)}not proved: {said.fault}", details)
    assumed = {name: set(re.findall(r"[\w.]+", axioms)) for name, axioms in _ASSUMES.findall(said.output)}
    clean = [name for name in found.lemmas if name in assumed and assumed[name] <= _AXIOMS]
    if len(clean) < len(found.lemmas):
        more = sorted(set().union(*assumed.values()) - _AXIOMS)
        why = (
            f"Lean says of {len(clean)} of {amount(len(found.lemmas), 'theorem')} that they assume only its own axioms"
        )
        return refused(PROVED_BY_LEAN, target, why + (f"; others assume {', '.join(more)}" if more else ""), details)
    what = what_is_proved(found, details, f"Lean {details['lean']}")
    return Check(PROVED_BY_LEAN, target, True, error=0, bound=0, what=what, details=details)


def _not_run(target: str, why: str, **details: Any) -> Check:
    return not_run(PROVED_BY_LEAN, target, f"not compiled: {why}", **details)
