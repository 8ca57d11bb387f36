"""The version of the package, which ``symcircuits.__version__`` is too."""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
