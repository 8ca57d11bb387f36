"""Measures by the names of their kinds, for tests that run over kinds."""

from __future__ import annotations

from typing import Any

import symcircuits as sc


def measure_of(kind: str, position: int = -1, key: int | None = None, **chosen: Any) -> Any:
    """The measure of a kind; a difference is held against the largest other where nothing else is said."""
    if "norm" in kind:
        return sc.norm(masked=kind == "masked norm")
    if kind == "score entry":
        return sc.score_entry(position, key, **chosen)
    against = chosen.pop("against", None)
    if "difference" in kind and against is None:
        against = "second"
    return sc.logit(chosen.pop("token", None), against, position=position, **chosen)
