"""What :func:`symcircuits.verify` found, and what is proved in Coq, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.tables import UNBROKEN, Titled, number
from symcircuits.verification.coq import THEOREMS, GeneralReport
from symcircuits.verification.coqc import CLOSED
from symcircuits.verification.listing import PAIRS, PATHS

if TYPE_CHECKING:
    from symcircuits.verification.result import Report

__all__ = ["proof_parts", "report_parts"]


def report_parts(report: Report) -> list[Titled]:
    """The report as a table, one row a check, and what it comes to."""
    mark = {True: "pass", False: "FAIL", None: "not run"}
    rows = [
        [mark[c.passed], c.name, number(c.error), number(c.bound), f"{c.target}: {_what(c.what, c.details)}"]
        for c in report.checks
    ]
    checks = Titled("", ["", "check", "error", "bound", "what was checked"], rows, [2, 3])
    failed = [c for c in report.checks if c.passed is False]
    left = sum(c.passed is None for c in report.checks)
    end = "all checks passed" if report.ok else f"{amount(len(failed), 'row')} failed" if failed else "nothing was run"
    end += f", {amount(left, 'row')} not run" if left and (report.ok or failed) else ""
    end += f" ({report.seconds:.1f}{UNBROKEN}s)"
    return [Titled(f"verify {visible(report.subject)}"), checks, Titled(end)]


def _what(what: str, details: dict[str, object]) -> str:
    if "false_pass" in details:
        k = details["k"]
        sizes = f"{k[0]} to {k[1]}" if isinstance(k, list) and k[0] != k[1] else str(k[0] if isinstance(k, list) else k)
        field = f"k x k matrices mod {details['p']}, k = {sizes}"
        return f"{what}; {field}; a false pass has probability below {details['false_pass']:.1g}"
    return what


def proof_parts(report: GeneralReport) -> list[Titled]:
    """A row for each theorem, in words."""
    if not report.available:
        return [Titled(f"general theorem: not checked. {report.reason}")]
    rows = [
        ["proved" if report.theorems.get(name) == CLOSED else "FAILED", name, words]
        for name, words in THEOREMS.items()
    ]  # fmt: skip
    head = "general theorem, for every number of layers and heads, over any commutative ring"
    notes = [f"fault: {fault}" for fault in report.faults]
    notes += [f"{report.proved} of {len(THEOREMS)} theorems proved without axioms (Coq {report.coq})."]
    if report.ok:
        lists = "; ".join(",".join(map(str, heads)) for heads in (*PATHS, *PAIRS))
        notes += [f"Coq's lists of all paths are those of the package, in order, for {lists} heads."]
    return [Titled(head), Titled("", ["", "theorem", "in words"], rows), Titled(notes=notes)]
