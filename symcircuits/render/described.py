"""What a notebook shows of values of terms and of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symcircuits.core.expansion import Expansion
from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.tables import Titled

if TYPE_CHECKING:
    from symcircuits.checking.verdict import Verdict
    from symcircuits.values.evaluate import Values

__all__ = ["values_parts", "verdict_parts"]

_WHOLE = 10**6  # a width that no line reaches


def values_parts(found: Values) -> list[Titled]:
    """Which terms they are values of, by order and type. No value is computed."""
    expansion = found.expansion
    where = f"on a run of {visible(found.run.model.name)}"
    title = f"Values of {amount(expansion.count, 'term')} of {expansion.target} {where}"
    return [Titled(title, ["", "terms"], _counts(expansion), [1])]


def _counts(expansion: Expansion) -> list[list[str]]:
    kinds: dict[str, Mapping[Any, int]] = {
        "order": expansion.counts_by_order(), "composition": expansion.counts_by_composition(),
    }  # fmt: skip
    return [[f"{kind} {key}", f"{count:,}"] for kind, counts in kinds.items() for key, count in counts.items()]


def verdict_parts(found: Verdict) -> list[Titled]:
    """Right or wrong, then all lines of its text."""
    where = f" in line {found.line}" if found.line is not None and found.lines > 1 else ""
    title = "Right" if found.right else f"Wrong{where}"
    return [Titled(title, notes=found.text(_WHOLE).splitlines())]
