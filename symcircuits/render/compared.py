"""A comparison with recorded activations as a table, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.tables import Titled, number

if TYPE_CHECKING:
    from symcircuits.values.evaluate import Closure
    from symcircuits.verification.reference import Comparison

__all__ = ["closures_json", "comparison_json", "comparison_parts"]


def closures_json(closures: tuple[Closure, ...]) -> list[dict[str, Any]]:
    """The sums of parts of the layers, in order."""
    return [
        {"layer": i, "error": c.error, "bound": c.bound, "passed": c.passed, "summands": c.summands}
        for i, c in enumerate(closures)
    ]


def comparison_json(found: Comparison) -> dict[str, Any]:
    """The comparison as plain data; the schema is in docs/json.md."""
    return {
        "schema": "symcircuits.reference/1",
        "model": found.model,
        "ok": found.ok,
        "first": None if found.first is None else found.first.name,
        "arrays": [
            {"name": r.name, "place": r.place, "error": r.error, "bound": r.bound, "passed": r.passed, "what": r.what}
            for r in found.rows
        ],
        "unknown": list(found.unknown),
        "notes": list(found.notes),
        "layers": closures_json(found.layers),
    }


def comparison_parts(found: Comparison) -> list[Titled]:
    """One row an array in the order of the forward pass, then what it comes to."""
    rows = [
        ["agrees" if r.passed else "DIFFERS", r.place, number(r.error), number(r.bound),
         visible(r.name) + (f": {r.what}" if r.what else "")]
        for r in found.rows
    ]  # fmt: skip
    head = f"our forward pass of {visible(found.model)} compared with the recorded one, {amount(len(rows), 'array')}"
    compared = Titled("", ["", "where", "error", "bound", "array"], rows, [2, 3])
    unknown = ", ".join(map(visible, found.unknown))
    notes = [f"not compared, because not known here: {unknown}"] if unknown else []
    notes += [*(f"note: {note}" for note in found.notes), _verdict(found)]
    return [Titled(head), compared, Titled(notes=notes)]


def _verdict(found: Comparison) -> str:
    failed = [c for c in found.layers if not c.passed]
    if found.first is not None:
        differing = sum(not r.passed for r in found.rows)
        seen = "1 array differs" if differing == 1 else f"{differing} arrays differ"
        return f"the recorded model is a different one: {seen}, the first in {found.first.place}: {found.first.name}"
    if failed:
        return f"{failed[0].target}: the stream is not the sum of what the layer adds"
    return "all known arrays agree" + ("; every layer is the sum of its parts" if found.layers else "")
