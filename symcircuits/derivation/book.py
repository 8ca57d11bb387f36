"""All results in one book: the list of derivations, its index, and the LaTeX document with a table of contents."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from symcircuits.core.architecture import transformer
from symcircuits.core.notation import ROW, Notation
from symcircuits.derivation.derive import Derivation, derive, theorem
from symcircuits.derivation.printing.formats import FORMATS
from symcircuits.work.files import check_writable, write_bytes, write_text

__all__ = ["CHAPTERS", "BookError", "derivations", "index", "write_book", "write_index"]

TITLE = "The algebra of transformer circuits, derived and checked"
_COMMAND = ("-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")


class BookError(AssertionError):
    """LaTeX failed on the book, or it has a line that is too wide."""


Maker = Callable[[], Derivation]


def _expansion(heads: tuple[int, ...], target: str = "logits", form: str = "generic", **options: Any) -> Maker:
    return lambda: derive(transformer(heads, **options), target, form)


def _theorem(name: str) -> Maker:
    return lambda: theorem(name)


# chapter -> name of the file in derivations/ -> heading, and how it is derived
CHAPTERS: Mapping[str, Mapping[str, tuple[str, Maker]]] = {
    "Zero and one layer": {
        "zero_layers": ("No layer: the direct path", _expansion((), form="enumerated")),
        "one_layer": ("One layer of three heads", _expansion((3,), form="enumerated")),
        "one_layer_generic": ("One layer, any number of heads", _expansion((3,))),
        "scores_first_layer": ("Scores of a first-layer head", _expansion((3,), "scores:L0H0", "enumerated")),
        "qk_and_ov_circuits": ("QK and OV circuits", _theorem("qk_and_ov_circuits")),
    },
    "Heads": {
        "concatenated_heads": ("Concatenated heads are a sum of heads", _theorem("concatenated_heads")),
        "virtual_heads": ("A product of heads is a head", _theorem("virtual_heads")),
        "virtual_weights": ("Virtual weights", _theorem("virtual_weights")),
        "linearity": ("Linear with the patterns held fixed", _theorem("linearity")),
        "basis_freedom": ("Basis freedom", _theorem("basis_freedom")),
    },
    "Two layers": {
        "logits_generic": ("Logits, any numbers of heads", _expansion((3, 3))),
        "logits_two_layers": ("Logits, three heads a layer", _expansion((3, 3), form="enumerated")),
        "scores_generic": ("Second-layer scores, any number of heads", _expansion((3, 3), "scores:L1H0")),
        "scores_second_layer": ("Second-layer scores, three heads", _expansion((3, 3), "scores:L1H0", "enumerated")),
    },
    "More layers": {
        "three_layers_generic": ("Logits of three layers", _expansion((3, 3, 3))),
        "scores_third_layer": ("Third-layer scores", _expansion((3, 3, 3), "scores:L2H0")),
    },
    "Positions and biases": {
        "numbers_of_terms": ("How many terms there are", _theorem("numbers_of_terms")),
        "logits_positions": ("Logits, position in the stream", _expansion((12, 12), positions="standard")),
        "scores_positions": (
            "Scores, position in the stream", _expansion((12, 12), "scores:L1H0", positions="standard"),
        ),
        "scores_shortformer": (
            "Scores, position in queries and keys only", _expansion((12, 12), "scores:L1H0", positions="shortformer"),
        ),
        "logits_biases": ("Logits with biases", _expansion((2, 2), biases=True)),
        "bias_collapse": ("All biases are one bias of the logits", _theorem("bias_collapse")),
        "scores_query_key_biases": (
            "Scores with query and key biases", _expansion((2, 2), "scores:L1H0", biases=["b_Q", "b_K"]),
        ),
        "query_key_biases": ("Query and key biases in one matrix", _theorem("query_key_biases")),
        "scores_rotary": ("Scores with rotary positions", _expansion((2, 2), "scores:L1H0", positions="rotary")),
        "scores_alibi": ("Scores with ALiBi", _expansion((2, 2), "scores:L1H0", positions="alibi")),
    },
    "Norms, MLPs and grouped queries": {
        "layer_norm": ("Layer norm", _theorem("layer_norm")),
        "logits_layer_norm": ("Logits through layer norms", _expansion((2, 2), norm="LN", biases=["b_N"])),
        "scores_layer_norm": ("Scores through layer norms", _expansion((2, 2), "scores:L1H0", norm="LN")),
        "scores_normed_queries": (
            "Scores with normed queries and keys",
            _expansion((2, 2), "scores:L1H0", biases=["b_Q", "b_K"], qk_norm=True),
        ),
        "logits_rms_norm": ("Logits through RMS norms", _expansion((2, 2), norm="RMS")),
        "mlp": ("MLPs", _theorem("mlp")),
        "logits_mlps": ("Logits, what MLPs write as sources", _expansion((2, 2), norm="LN", mlps=True)),
        "logits_parallel_blocks": (
            "Logits of parallel blocks", _expansion((2, 2), norm="RMS", gains=False, mlps=True, parallel=True),
        ),
        "logits_multipliers": (
            "Logits with multipliers", _expansion((2, 2), biases=["b_O"], mlps=True, multipliers=True),
        ),
        "logits_grouped_queries": (
            "Logits of grouped queries", _expansion((4, 4), biases=["b_V"], groups=(2, 2)),
        ),
        "scores_grouped_queries": (
            "Scores of grouped queries", _expansion((4, 4), "scores:L1H3", "enumerated", groups=(2, 2)),
        ),
    },
    "Nothing held fixed": {
        "bilinear_mlp": ("Bilinear MLPs", _theorem("bilinear_mlp")),
        "attention_without_softmax": ("Attention without softmax", _theorem("attention_without_softmax")),
    },
    "Interventions": {
        "ablation": ("Removing a head", _theorem("ablation")),
        "term_importance": ("Term importance", _theorem("term_importance")),
    },
}  # fmt: skip


def derivations() -> Iterator[tuple[str, str, str, Derivation]]:
    """Chapter, name, heading and checked derivation of every result, in the order of the book."""
    for chapter, entries in CHAPTERS.items():
        for name, (heading, make) in entries.items():
            yield chapter, name, heading, make()


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
    return f"{sum(numbers.values())} claims in {len(derivation.steps)} steps: {said}"


def _rows(found: list[tuple[str, str, str, Derivation]]) -> Iterator[str]:
    from symcircuits.derivation.printing.words import statement

    chapter = ""
    for here, name, _, derivation in found:
        if here != chapter:
            chapter = here
            yield f"\n## {chapter}\n\n| derivation | statement | section of the paper | checks passed |"
            yield "|---|---|---|---|"
        said = statement(derivation).replace("|", r"\|")
        files = f"[{name}]({name}.py) ([tex]({name}{FORMATS['latex'].suffix}))"
        yield f"| {files} | {said} | {derivation.section} | {_checks(derivation)} |"


def index() -> str:
    """The index of all results in Markdown: file, statement, section of the paper, checks passed."""
    head = (
        "# Derivations\n\n"
        "One file for each result, and beside it the LaTeX document that it writes. Every step was checked before it "
        "was\nprinted: `mod p` exactly, on random matrices over a prime field (a wrong claim passes with probability "
        "below\n1e-12; each step says its own bound), `by counting` of terms that were listed, `by SymPy` with exact "
        "numbers,\n`on a real model` up to rounding. Formulas are in the row convention, the attention patterns are "
        "held fixed; every\ndocument says what else it assumes.\n"
        'Sections are those of "A Mathematical Framework for Transformer Circuits" (2021).\n\n'
        "This page is written by `python -m symcircuits.derivation.book derivations`; do not edit it.\n"
    )
    return head + "\n".join(_rows(list(derivations()))) + "\n"


def write_index(folder: str | Path) -> Path:
    """Write the index as ``README.md`` in a folder. OSError, in words, where it cannot be written."""
    target = Path(folder) / "README.md"
    check_writable(target)
    return write_text(target, index())


# ------------------------------------------------------------------------------------------------------- the book
def book(notation: Notation = ROW) -> str:
    """The LaTeX document of all results, with a table of contents; ValueError where two symbols print alike."""
    chapters: dict[str, dict[str, Derivation]] = {}
    for chapter, name, heading, derivation in derivations():
        try:
            chapters.setdefault(chapter, {})[heading] = derivation.written(notation)
        except ValueError as fault:
            raise ValueError(f"{name}: {fault}") from None
    return FORMATS["latex"].bound(TITLE, chapters)


def write_book(folder: str | Path, notation: Notation = ROW) -> Path:
    """Write ``book.tex`` and, by pdflatex, ``book.pdf`` in a folder; the path of the PDF.

    Every step of every derivation is checked on the way. ValueError says in which derivation two symbols would be
    printed alike, FileNotFoundError that pdflatex is not there (``book.tex`` is written all the same),
    :class:`BookError` that LaTeX fails or a line is too wide, and OSError that a file cannot be written.
    """
    folder = Path(folder)
    source = folder / "book.tex"
    check_writable(source)
    check_writable(folder / "book.pdf")
    write_text(source, book(notation))
    program = shutil.which("pdflatex")
    if program is None:
        raise FileNotFoundError(
            f"{source} is written, but there is no pdflatex to make a PDF of it; "
            "on Debian: apt install texlive-latex-recommended"
        )
    return _compiled(program, source)


def _compiled(program: str, source: Path) -> Path:
    """The PDF of a document, compiled twice (the table of contents is known at the second time) in a folder apart.

    There it is called book.tex: LaTeX would take signs in the name of a folder for commands.
    """
    with tempfile.TemporaryDirectory() as scratch:
        write_bytes(Path(scratch) / "book.tex", source.read_bytes())
        for _ in range(2):
            command = [program, *_COMMAND, "book.tex"]
            try:
                done = subprocess.run(command, cwd=scratch, capture_output=True, timeout=300)
            except subprocess.TimeoutExpired:
                raise BookError(f"pdflatex did not finish {source} in 300 seconds") from None
            log = done.stdout.decode("utf-8", "replace")
            if done.returncode:
                faults = [line for line in log.splitlines() if line.startswith("!")]
                raise BookError(f"pdflatex failed on {source}: {faults[0] if faults else log[-300:]}")
        wide = re.findall(r"Overfull \\hbox.*", log)
        if wide:
            raise BookError(f"{len(wide)} lines of {source} are too wide, the first: {wide[0]}")
        return write_bytes(source.with_suffix(".pdf"), (Path(scratch) / "book.pdf").read_bytes())


if __name__ == "__main__":
    import sys

    print(write_index(sys.argv[1] if len(sys.argv) > 1 else "derivations"))
