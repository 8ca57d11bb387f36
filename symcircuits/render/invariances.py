"""Which numbers stay the same under which changes of the weights, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcircuits.circuits.invariances import CHANGES
from symcircuits.render.tables import Titled

if TYPE_CHECKING:
    from symcircuits.circuits.invariances import Invariances

__all__ = ["invariances_parts"]


def invariances_parts(found: Invariances) -> list[Titled]:
    """One row per number, one column per change; ``-``: the number changes."""
    rows = [[number, *("yes" if found[number, change] else "-" for change in CHANGES)] for number in found.changed]
    numbered = [str(i) for i in range(1, len(CHANGES) + 1)]
    notes = [f"{i}  {name}: {said}" for i, (name, (said, _)) in enumerate(CHANGES.items(), 1)]
    title = "Which numbers stay the same when weights change but the model does not (-: they change)"
    return [Titled(title, ["number", *numbered], rows, range(1, 1 + len(CHANGES)), notes=notes)]
