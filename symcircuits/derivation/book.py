"""All entries as one book: their index, their files, and the LaTeX document with a table of contents."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from symcircuits.core.architecture import transformer
from symcircuits.core.notation import ROW, Notation
from symcircuits.core.text import amount, shown
from symcircuits.core.version import DATE
from symcircuits.derivation.derive import Derivation, derive, theorem
from symcircuits.derivation.printing.chapters import Part
from symcircuits.derivation.printing.formats import FORMATS
from symcircuits.derivation.results.every import entries
from symcircuits.derivation.results.registry import Entry
from symcircuits.work.files import check_writable, user_path, write_bytes, write_text

__all__ = ["BookError", "derivations", "derived", "index", "script", "write_book", "write_files"]

TITLE = "The algebra of transformer circuits, derived and checked"
_COMMAND = ("-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")
_PASSES = 6  # at most: labels are known at the second, pages behind a table of contents of its final length later


class BookError(AssertionError):
    """LaTeX failed on the book, or it has a line that is too wide."""


def derived(entry: Entry) -> Derivation:
    """The checked derivation of an entry."""
    if entry.result is not None:
        return theorem(entry.name)
    return derive(transformer(entry.heads, **entry.options), entry.target, entry.form)


def derivations() -> Iterator[tuple[Entry, Derivation]]:
    """Every entry with its checked derivation, in the order of the book."""
    for entry in entries():
        yield entry, derived(entry)


# ------------------------------------------------------------------------------------------------------ the files
_ATTENTION_ONLY = {"positions", "biases", "qk_norm"}  # what a model may have to be made by attention_only


def script(entry: Entry) -> str:
    """The file ``derivations/NAME.py``: the derivation by public names alone, and how its document is written."""
    call = f'derivation = sc.theorem("{entry.name}")'
    if entry.result is None:
        options = {"heads": entry.heads, **entry.options}
        said = ", ".join(f"{key}={_literal(value)}" for key, value in options.items())
        make = "attention_only" if set(entry.options) <= _ATTENTION_ONLY else "transformer"
        call = f'arch = sc.{make}({said})\nderivation = sc.derive(arch, target="{entry.target}", form="{entry.form}")'
    return (
        f'"""{entry.summary}\n\nRun it to write the document {entry.name}.tex beside this file.\n"""\n\n'
        f"from pathlib import Path\n\nimport symcircuits as sc\n\n{call}\n\n"
        'if __name__ == "__main__":\n    print(derivation.save(Path(__file__).with_suffix(".tex")).name)\n'
    )


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (str, list)) else repr(value)


# ------------------------------------------------------------------------------------------------------ the index
def _checks(derivation: Derivation) -> str:
    """``13 claims in 9 steps: 10 mod p, 3 by counting``."""
    by = {
        "values": "mod p",
        "indices": "mod p",
        "count": "by counting",
        "exact": "by SymPy",
        "model": "on a real model",
    }
    numbers: dict[str, int] = {}
    for step in derivation.steps:
        how = by[step.check.how]
        numbers[how] = numbers.get(how, 0) + step.check.claims
    said = ", ".join(f"{n} {how}" for how, n in numbers.items())
    return f"{amount(sum(numbers.values()), 'claim')} in {amount(len(derivation.steps), 'step')}: {said}"


def _rows(found: Iterable[tuple[Entry, Derivation]]) -> Iterator[str]:
    from symcircuits.derivation.printing.words import statement

    chapter = ""
    for entry, derivation in found:
        if entry.chapter != chapter:
            chapter = entry.chapter
            yield f"\n## {chapter}\n\n| derivation | statement | section of the paper | checks passed |"
            yield "|---|---|---|---|"
        said = statement(derivation).replace("|", r"\|")
        files = f"[{entry.name}]({entry.name}.py) ([tex]({entry.name}{FORMATS['latex'].suffix}))"
        yield f"| {files} | {said} | {derivation.section} | {_checks(derivation)} |"


def index(found: Iterable[tuple[Entry, Derivation]] | None = None) -> str:
    """The index of all results (or of these) in Markdown: file, statement, section of the paper, checks passed."""
    head = (
        "# Derivations\n\n"
        "One file for each result, and beside it the LaTeX document that it writes. Every step was checked before it "
        "was\nprinted: `mod p` exactly, on random matrices over a prime field (a wrong claim passes with probability "
        "below\n1e-12; each step says its own bound), `by counting` of terms that were listed, `by SymPy` with exact "
        "numbers,\n`on a real model` up to rounding. Formulas are in the row convention, the attention patterns are "
        "held fixed; every\ndocument says what else it assumes.\n"
        "Coq proves the claims of path expansions, generic ones for every number of heads, for matrices of any sizes\n"
        "over any commutative ring, and their documents say so: `python derivations/prove.py`.\n"
        'Sections are those of "A Mathematical Framework for Transformer Circuits" (2021).\n\n'
        "This page is written by `python -m symcircuits.derivation.book derivations`; do not edit it.\n"
    )
    return head + "\n".join(_rows(derivations() if found is None else found)) + "\n"


def write_files(folder: str | Path) -> Path:
    """Write the index as ``README.md``, and the file and the document of every entry; the path of the index.

    OSError, in words, where one cannot be written.
    """
    folder = user_path(folder)
    check_writable(folder / "README.md")
    found = list(derivations())
    for entry, derivation in found:
        write_text(folder / f"{entry.name}.py", script(entry))
        derivation.save(folder / f"{entry.name}{FORMATS['latex'].suffix}")
    return write_text(folder / "README.md", index(found))


# ------------------------------------------------------------------------------------------------------- the book
def book(notation: Notation = ROW) -> str:
    """The LaTeX document of all results; ValueError where two symbols print alike.

    Its date is that of SOURCE_DATE_EPOCH where the environment has it, else that of the version.
    """
    chapters: dict[str, list[Part]] = {}
    for entry, derivation in derivations():
        try:
            part = Part(entry.name, entry.heading, derivation.written(notation))
        except ValueError as fault:
            raise ValueError(f"{entry.name}: {fault}") from None
        chapters.setdefault(entry.chapter, []).append(part)
    return FORMATS["latex"].bound(TITLE, chapters, _moment().strftime("%Y-%m-%d"))


def _moment() -> datetime:
    """The time at which documents say that they were made. ValueError on a SOURCE_DATE_EPOCH that is not a time."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return datetime.fromisoformat(DATE).replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"SOURCE_DATE_EPOCH must be a number of seconds since 1970, not {shown(given)}") from None


def write_book(folder: str | Path, notation: Notation = ROW) -> Path:
    """Write ``book.tex`` and, by pdflatex, ``book.pdf`` in a folder; the path of the PDF.

    Every step of every derivation is checked on the way. ValueError says in which derivation two symbols would be
    printed alike, FileNotFoundError that pdflatex is not there (``book.tex`` is written all the same),
    :class:`BookError` that LaTeX fails or a line is too wide, and OSError that a file cannot be written.
    """
    folder = user_path(folder)
    source = folder / "book.tex"
    check_writable(source)
    check_writable(folder / "book.pdf")
    write_text(source, book(notation))
    program = shutil.which("pdflatex")
    if program is None:
        raise FileNotFoundError(
            f"{source} is written, but not its PDF: pdflatex was not found; "
            "install it, on Debian by: apt install texlive-latex-recommended"
        )
    return _compiled(program, source)


def _compiled(program: str, source: Path) -> Path:
    """The PDF of a document, compiled in a folder apart until its references and table of contents stand.

    There it is called book.tex: LaTeX would take signs in the name of a folder for commands.
    """
    epoch = str(int(_moment().timestamp()))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "FORCE_SOURCE_DATE": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        write_bytes(Path(scratch) / "book.tex", source.read_bytes())
        for number in range(1, _PASSES + 1):
            command = [program, *_COMMAND, "book.tex"]
            try:
                done = subprocess.run(command, cwd=scratch, capture_output=True, timeout=300, env=environment)
            except subprocess.TimeoutExpired:
                raise BookError(f"pdflatex did not finish {source} in 300 seconds") from None
            log = done.stdout.decode("utf-8", "replace")
            if done.returncode:
                faults = [line for line in log.splitlines() if line.startswith("!")]
                raise BookError(f"pdflatex failed on {source}: {faults[0] if faults else log[-300:]}")
            if number >= 3 and "Rerun" not in log:
                break
        faults = re.findall(r"Overfull \\hbox.*|LaTeX Warning: (?:Reference|Label).*", log)
        if faults:
            raise BookError(f"{amount(len(faults), 'line')} of {source} too wide or without what it cites: {faults[0]}")
        return write_bytes(source.with_suffix(".pdf"), (Path(scratch) / "book.pdf").read_bytes())


if __name__ == "__main__":
    import sys

    print(write_files(sys.argv[1] if len(sys.argv) > 1 else "derivations"))
