"""The formats of derivations: a row and a file each.

A new format is a file in this folder, with a function that takes a derivation and returns text, and a row in
``FORMATS``: ``Derivation.save`` knows its suffix then, and the command line its name. Functions are looked up by name
when they are called, so that the command line can list the formats without importing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from symcircuits.core.seam import function_called
from symcircuits.work.files import write_text

if TYPE_CHECKING:
    from symcircuits.core.expansion import Expansion
    from symcircuits.derivation.derive import Derivation
    from symcircuits.derivation.printing.chapters import Part

__all__ = ["FORMATS", "Format", "save_derivation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The suffix of files of a format, and the functions that write in it, by name.

    ``derivation`` writes what is printed, ``file`` what a file holds where that is something else; ``standalone`` says
    that then the file is whole and what is printed a part of one. ``expansion`` writes the terms of an expansion for a
    notebook, ``book`` many derivations as one document, in the formats that have them.
    """

    suffix: str
    derivation: str
    file: str = ""
    standalone: bool = False
    expansion: str = ""
    book: str = ""

    def printed(self, derivation: Derivation) -> str:
        """The derivation as it is printed."""
        return function_called(str, self.derivation)(derivation)

    def written(self, derivation: Derivation) -> str:
        """The derivation as a file holds it."""
        return function_called(str, self.file or self.derivation)(derivation)

    def displayed(self, expansion: Expansion) -> str:
        """The expansion for a notebook. ValueError where the format has no such display."""
        if not self.expansion:
            raise ValueError(f"expansions cannot be displayed in the format {self.suffix}")
        return function_called(str, self.expansion)(expansion)

    def bound(self, title: str, chapters: Mapping[str, Sequence[Part]], date: str = "") -> str:
        """Many derivations as one document, by chapters. ValueError where the format has none."""
        if not self.book:
            raise ValueError(f"a book cannot be written in the format {self.suffix}")
        return function_called(str, self.book)(title, chapters, date)


# name on the command line: the format
FORMATS: Final[dict[str, Format]] = {
    "latex": Format(
        suffix=".tex",
        derivation="derivation.printing.latex.derivation_latex",
        file="derivation.printing.latex.derivation_document",
        standalone=True,
        expansion="derivation.printing.latex.expansion_display",
        book="derivation.printing.chapters.book_latex",
    ),
    "text": Format(suffix=".txt", derivation="derivation.printing.text.derivation_text"),
    "json": Format(
        suffix=".json",
        derivation="derivation.printing.json_.json_ascii",
        file="derivation.printing.json_.json_file",
    ),
    "coq": Format(suffix=".v", derivation="derivation.printing.coq.derivation_coq"),
    "lean": Format(suffix=".lean", derivation="derivation.printing.lean.derivation_lean"),
}


def save_derivation(derivation: Derivation, path: Path) -> Path:
    """Write a derivation in the format of the path's suffix. ValueError names the suffixes where it is none of them."""
    for chosen in FORMATS.values():
        if path.suffix == chosen.suffix:
            return write_text(path, chosen.written(derivation))
    *others, last = (chosen.suffix for chosen in FORMATS.values())
    raise ValueError(f"cannot tell the format of {path}: the suffix is {', '.join(others)} or {last}")
