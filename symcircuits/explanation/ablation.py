"""The effect of removing a head's output, or a part of a head's scores: computed, not estimated.

Two kinds of results, always named. *frozen*: everything that an expansion holds fixed (the patterns of all heads, and
whatever else the architecture holds fixed) stays at its value on these tokens. *recomputed*: everything after the
change is recomputed by the model's own forward pass. The "end" is the logits (before their soft cap, if they have
one, because terms add up to these), the last stream (by default for a model without unembedding), or an attached
readout; every array has the tokens' batch axis in front, if they have one. Source: own derivation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.core.shown import Shown
from symcircuits.core.text import brief, need
from symcircuits.model import Arrays, Run, end_of, pattern_without, rerun, rerun_without_path
from symcircuits.values.evaluate import evaluate

__all__ = [
    "HeadRemoval", "ScoreRemoval", "distance", "part_name", "remove_heads", "remove_scores", "score_part",
    "with_pattern",
]  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeadRemoval(Shown):
    """The change of the end ``[..., n, width]`` without heads, or a path: ``change = value_part + pattern_part``.

    ``value_part``: with everything held fixed, ``- sum of the terms through the heads`` (along the path).
    ``pattern_part``: the rest, recomputed minus frozen: the response of later patterns (and of everything else that was
    held fixed). It is the error of freezing for this intervention.
    """

    heads: tuple[str, ...]
    of: str
    value_part: Array
    pattern_part: Array

    @property
    def change(self) -> Array:
        """The whole change: the end of the model without the heads' outputs minus the end of the model."""
        return np.asarray(self.value_part + self.pattern_part)


def remove_heads(run: Run, heads: str | tuple[int, int] | Iterable[str], target: str | None = None) -> HeadRemoval:
    """Remove the outputs of one head, of several heads, or of a path, and split the change of the end.

    With ``Y`` the end of the model and ``Y'`` that of the model in which each of the heads H adds 0 to the stream
    (including its value bias; ``b_O`` stays):
    ``value_part = - sum_{terms through a head of H} term``, ``pattern_part = (Y' - Y) - value_part``.
    A path ``"L0H2 -> L1H0"`` has two heads or more, each read by the next: the second does not read the output of the
    first, so its own output changes, and so on; all other heads keep their inputs, and everything after the last head
    is recomputed. The value part is then minus the terms with these heads directly one after another, the pattern part
    the response of the patterns of later heads of the path and of all heads after it.
    ``target``: the end, ``"logits"``, ``"stream"`` or ``"readout:probe"``. Raises ValueError if a head, a path or a
    target does not exist.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> first, last = remove_heads(run, "L0H0"), remove_heads(run, "L1H0")
    >>> bool(abs(first.pattern_part).max() > 1e-3)      # later heads look elsewhere
    True
    >>> bool(abs(last.pattern_part).max() < 1e-12)      # nothing comes after
    True
    >>> both = [remove_heads(run, f"L0H0 -> L1H{i}").change for i in range(2)]
    >>> bool(abs(sum(both) + remove_heads(run, "L0H0").change).max() > 1e-3)      # L0H0 also acts past them
    True
    """
    need("remove_heads", run, Run)
    architecture = run.model.architecture
    expansion = _expanded_end(run, target)
    path = _path_of(heads)
    if path is None:
        labels = [str(h) for h in architecture.some_heads(heads)]
        removed, edited = expansion.through(labels), rerun(run, removed=labels)
    else:
        chain = [str(architecture.head(label)) for label in path]
        edited = rerun_without_path(run, chain)
        labels, removed = [" -> ".join(chain)], expansion.through_sequence(*chain)
    value = np.array(-evaluate(removed, run).total())
    change = end_of(edited, expansion.target) - end_of(run, expansion.target)
    return HeadRemoval(tuple(labels), _end_name(run, expansion.target), value, np.asarray(change - value))


def _path_of(heads: Any) -> list[str] | None:
    """The heads of a path, as it is written in labels of terms; None of heads."""
    if not isinstance(heads, str) or "->" not in heads:
        return None
    return [label.strip() for label in heads.split("->")]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScoreRemoval(Shown):
    """The effect of removing a part of one head's scores.

    ``removed``: a description of the part; ``scores``: the part, ``[..., n, n]``; ``pattern``: the head's pattern
    without it; ``pattern_change``: that minus the original pattern. ``frozen``: the change of the end if this head uses
    the new pattern and everything else is held fixed; ``recomputed``: if everything after it is recomputed.
    """

    head: str
    removed: str
    of: str
    scores: Array
    pattern: Array
    pattern_change: Array
    frozen: Array
    recomputed: Array

    @property
    def distance(self) -> Array:
        """Total variation between old and new pattern of each query, ``[..., n]``: 0 the same, 1 nothing shared.

        Half the sum of the absolute changes; without softmax, where rows need not sum to one, it has no upper limit.
        """
        return distance(self.pattern_change)


def distance(pattern_change: Array) -> Array:
    """Half the sum of the absolute changes of a pattern, query by query."""
    return np.asarray(np.abs(pattern_change).sum(axis=-1) / 2)


def remove_scores(
    run: Run, head: str | tuple[int, int], what: str | Term | Expansion, target: str | None = None
) -> ScoreRemoval:
    """Remove a composition type, a term or a selection of terms from a head's scores, and apply softmax again.

    ``A' = softmax*(S - part)`` (with a soft cap on scores, S is taken before it: see
    :func:`symcircuits.model.pattern_without`). With everything but this head's pattern held fixed, the end changes by
    the terms through the head with its pattern replaced by ``A' - A`` (each term contains it once); ``recomputed`` is
    the model's forward pass with the pattern ``A'``. ``what``: ``"none"``,
    ``"Q"``, ``"K"`` or ``"QK"``, a term of the head's scores, or a selection such as
    ``scores(arch, "L1H0").from_source("pos")``. ``target``: as in :func:`remove_heads`. Raises ValueError on another
    head's terms or an unknown type.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> gone = remove_scores(run, "L1H0", "K")
    >>> gone.removed, gone.pattern.shape, bool(0 < gone.distance.max() < 1)
    ('composition K', (3, 3), True)
    >>> bool(abs(gone.frozen - gone.recomputed).max() < 1e-12)      # no head comes after
    True
    """
    need("remove_scores", run, Run)
    architecture = run.model.architecture
    label = str(architecture.head(head))
    name, part = score_part(run, expand(architecture, f"scores:{label}"), what)
    pattern = pattern_without(run, label, part)
    change = np.asarray(pattern - run.patterns[label])
    end = _expanded_end(run, target)
    frozen, recomputed = with_pattern(run, end, label, pattern)
    return ScoreRemoval(
        label,
        name,
        of=_end_name(run, end.target),
        scores=part,
        pattern=pattern,
        pattern_change=change,
        frozen=frozen,
        recomputed=recomputed,
    )


def with_pattern(run: Run, end: Expansion, label: str, pattern: Array) -> tuple[Array, Array]:
    """The change of an end when a head has another pattern: everything else held fixed, and recomputed."""
    changed = replace(run, arrays=Arrays({f"A_{label}": pattern - run.patterns[label]}, {}, run.arrays))
    frozen = np.array(evaluate(end.through(label), changed).total())
    recomputed = end_of(rerun(run, patterns={label: pattern}), end.target) - end_of(run, end.target)
    return frozen, np.asarray(recomputed)


def score_part(run: Run, scores: Expansion, what: str | Term | Expansion) -> tuple[str, Array]:
    """What is taken from a head's scores (see :func:`remove_scores`), in words, and its value."""
    name, values = _part(run, scores, what)
    return part_name(run, name), np.array(values)


def part_name(run: Run, name: str) -> str:
    """The name of a part of scores, with where it is taken from."""
    return name + (", before the soft cap" if run.model.settings.score_cap is not None else "")


def _part(run: Run, scores: Expansion, what: str | Term | Expansion) -> tuple[str, Array]:
    if isinstance(what, Term):
        return what.label, evaluate(scores, run).value(what)
    if isinstance(what, str):
        return f"composition {what}", evaluate(scores.where(what), run).total()
    if isinstance(what, Expansion) and what.target == scores.target and what.readout != scores.readout:
        raise ValueError(
            f"this selection is of [{what.architecture}], but the model of the run is [{scores.architecture}]; "
            "select from the expansion of the model's architecture"
        )
    if not isinstance(what, Expansion) or what.readout != scores.readout:
        raise ValueError(f"{brief(what)} is neither a composition type, a term nor a selection of {scores.target}")
    return ", ".join(map(str, what.clauses)) or "all terms", evaluate(what, run).total()


def _end_name(run: Run, target: str) -> str:
    capped = target == "logits" and run.model.settings.logit_cap is not None
    return "logits before the soft cap" if capped else target


def _expanded_end(run: Run, target: str | None) -> Expansion:
    """The expansion of the end; ValueError where the model has no such end."""
    found = expand(run.model, run.model.architecture.end if target is None else target)
    if found.readout.bilinear:
        raise ValueError(f"target must be logits, stream or a readout, not {found.target}")
    return found
