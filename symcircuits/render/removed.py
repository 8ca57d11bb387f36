"""What removing heads, paths or parts of scores does, and a term as selection times transport, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from symcircuits.core.names import visible
from symcircuits.render.tables import Titled, number

if TYPE_CHECKING:
    from symcircuits.circuits.transport import Transport
    from symcircuits.explanation.ablation import HeadRemoval, ScoreRemoval

__all__ = ["head_removal_parts", "score_removal_parts", "transport_parts"]

_SHOWN = 10  # rows of a table


def head_removal_parts(found: HeadRemoval) -> list[Titled]:
    """The outputs that change most at the last position: with all else held fixed, and by what then responds."""
    title = f"Without {', '.join(found.heads)}: change of {_end(found.of, found.change)}"
    columns = {"held fixed": found.value_part, "response": found.pattern_part, "change": found.change}
    return [_largest(title, _axis(found.of), {name: _last(array) for name, array in columns.items()}, "change")]


def score_removal_parts(found: ScoreRemoval) -> list[Titled]:
    """The pattern of the last query with and without the part, and the outputs that change most."""
    title = f"Scores of {found.head} without {visible(found.removed)}: pattern of the last query"
    after, change = _last(found.pattern), _last(found.pattern_change)
    columns = {"part": _last(found.scores), "pattern": after - change, "without": after, "change": change}
    title_end = f"Change of {_end(found.of, found.recomputed)}"
    ends = {"held fixed": _last(found.frozen), "recomputed": _last(found.recomputed)}
    return [_largest(title, "key", columns, "change"), _largest(title_end, _axis(found.of), ends, "recomputed")]


def transport_parts(found: Transport) -> list[Titled]:
    """What the term reads at the last query, and what it writes of that."""
    title = f"{found.term.label}: selection of the last query"
    written = np.linalg.norm(found.transport, axis=-1)
    columns = {"selection": _last(found.selection), "norm of what it transports": _row(written)}
    return [_largest(title, "source token", columns, "selection")]


def _largest(title: str, axis: str, columns: dict[str, Any], by: str) -> Titled:
    """The rows in which a column is largest by absolute value, in that order."""
    size = len(columns[by])
    order = np.argsort(-np.abs(columns[by]), kind="stable")[:_SHOWN].tolist()
    rows = [[str(i), *(number(float(column[i])) for column in columns.values())] for i in order]
    notes = [f"the {len(rows)} largest of {size:,}"] if len(rows) < size else []
    return Titled(title, [axis, *columns], rows, [*range(1, 1 + len(columns))], notes=notes)


def _end(of: str, array: Any) -> str:
    return f"{visible(of)} at the last position" + (" of row 0" if array.ndim > 2 else "")


def _axis(of: str) -> str:
    return "token" if of.startswith("logits") else "direction"


def _last(array: Any) -> Any:
    """The last row, of a batch of its first."""
    return array.reshape(-1, *array.shape[-2:])[0, -1] if array.size else array.reshape(-1)


def _row(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1])[0] if array.size else array.reshape(-1)
