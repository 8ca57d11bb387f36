"""What removing something does, computed and not estimated: a head's output, or a part of a head's scores.

Two kinds of answer, always named. *frozen*: what is held fixed in an expansion (the patterns of all heads, and
whatever else the architecture holds fixed) stays at its value on these tokens. *recomputed*: everything after
the change is computed anew by the model's own forward pass. "End" is the logits (before their soft cap, if they have
one: that is what terms add up to), the last stream (of a model without unembedding unless ``target`` says otherwise),
or an attached readout; every array has the tokens' batch axis in front, if they have one. Source: own derivation.
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
    """What happens to the end ``[..., n, width]`` without heads, or a path: ``change = value_part + pattern_part``.

    ``value_part``: with everything held fixed, ``- sum of the terms through the heads`` (along the path).
    ``pattern_part``: the rest, recomputed minus frozen: the later patterns (and what else was held fixed) answer. It is
    the error that freezing makes for this intervention.
    """

    heads: tuple[str, ...]
    of: str
    value_part: Array
    pattern_part: Array

    @property
    def change(self) -> Array:
        """The whole change: end of the model without the heads' outputs minus end of the model."""
        return np.asarray(self.value_part + self.pattern_part)


def remove_heads(run: Run, heads: str | tuple[int, int] | Iterable[str], target: str | None = None) -> HeadRemoval:
    """Remove the outputs of one head, or of several together, or a path; and take the change of the end apart.

    With ``Y`` the end of the model, ``Y'`` of the model in which each of the heads H adds 0 to the stream (also not its
    value bias; ``b_O`` stays):
    ``value_part = - sum_{terms through a head of H} term``, ``pattern_part = (Y' - Y) - value_part``.
    A path ``"L0H2 -> L1H0"`` is two heads or more, each read by the next: the second does not read what the first
    writes, so writes something else, and so on; all other heads read what they did, and what comes after the last is
    computed anew. The value part is then minus the terms with these heads one directly after the other, the pattern
    part what the patterns of the path's own and of later heads answer.
    ``target``: what is looked at as the end, ``"logits"``, ``"stream"`` or ``"readout:probe"``. Raises ValueError on a
    head, a path or a target that is not there.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> first, last = remove_heads(run, "L0H0"), remove_heads(run, "L1H0")
    >>> bool(abs(first.pattern_part).max() > 1e-3)      # later heads look elsewhere
    True
    >>> bool(abs(last.pattern_part).max() < 1e-12)      # nothing comes after
    True
    >>> both = [remove_heads(run, f"L0H0 -> L1H{i}").change for i in range(2)]
    >>> bool(abs(sum(both) + remove_heads(run, "L0H0").change).max() > 1e-3)      # there is the way past them, too
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
    """What happens when a part of one head's scores is taken away.

    ``removed``: what, in words; ``scores``: the part, ``[..., n, n]``; ``pattern``: the head's pattern without it,
    ``pattern_change`` that minus the pattern with it. ``frozen``: the change of the end when this head uses the new
    pattern and all else is held fixed; ``recomputed``: when all heads after it compute theirs anew.
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

        Half the sum of the absolute changes; without softmax, where rows need not sum to one, it has no upper end.
        """
        return distance(self.pattern_change)


def distance(pattern_change: Array) -> Array:
    """Half the sum of the absolute changes of a pattern, query by query."""
    return np.asarray(np.abs(pattern_change).sum(axis=-1) / 2)


def remove_scores(
    run: Run, head: str | tuple[int, int], what: str | Term | Expansion, target: str | None = None
) -> ScoreRemoval:
    """Take a composition type, a term or a selection of terms from a head's scores; the pattern follows by softmax.

    ``A' = softmax*(S - part)`` (where scores have a soft cap S is before it: see
    :func:`symcircuits.model.pattern_without`); with everything but this head's pattern held fixed the end changes by
    the terms through the head, its pattern replaced by ``A' - A``
    (each term holds it once); ``recomputed`` is the model's forward pass with ``A'`` given. ``what``: ``"none"``,
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
            f"this selection is of [{what.architecture}], but the run is of a model that is [{scores.architecture}]; "
            "select from the expansion of its own architecture"
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
        raise ValueError(f"target is logits, stream or a readout, whose change is computed, not {found.target}")
    return found
