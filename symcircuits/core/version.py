"""The version of the package, which ``symcircuits.__version__`` is too."""

from __future__ import annotations

from typing import Final

__all__ = ["DATE", "VERSION"]

VERSION: Final = "0.2.0"
DATE: Final = "2026-12-01"  # of the version: documents bear it, so that they are the same whenever they are made
