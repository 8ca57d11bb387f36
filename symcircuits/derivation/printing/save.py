"""Formats: one module each, and derivations saved in the format of a file's suffix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from symcircuits.work.files import write_text

if TYPE_CHECKING:
    from symcircuits.derivation.derive import Derivation

__all__ = ["save_derivation"]


def save_derivation(derivation: Derivation, path: Path) -> Path:
    """Write a derivation in the format of the path's suffix: ``.tex`` (a document), ``.txt`` or ``.json``."""
    if path.suffix == ".tex":
        return write_text(path, derivation.latex(standalone=True))
    if path.suffix == ".txt":
        return write_text(path, derivation.text())
    if path.suffix == ".json":
        return write_text(path, json.dumps(derivation.json(), indent=1, ensure_ascii=False) + "\n")
    raise ValueError(f"cannot tell the format of {path}: the suffix is .tex, .txt or .json")
