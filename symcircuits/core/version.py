"""The version of the package, also available as ``symcircuits.__version__``."""

from __future__ import annotations

from typing import Final

__all__ = ["DATE", "VERSION"]

VERSION: Final = "0.2.0"
DATE: Final = "2026-12-01"  # of the version; documents carry it, so they do not depend on when they are made
