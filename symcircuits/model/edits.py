"""The forward pass with changes: patterns given, outputs of heads removed; everything after is recomputed.

The result is not a :class:`~symcircuits.model.Run`: its terms would not add up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.model.forward import BY_LABEL, Changes, Record, pattern_of, written_by
from symcircuits.model.needs import Converted
from symcircuits.model.transformer import Model, Run, _run

__all__ = [
    "Edited", "before", "check_pattern", "end_of", "of_outputs", "pattern_without", "rerun", "rerun_without_path",
    "with_outputs",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """The result of an edited forward pass: logits (None without unembedding), streams, patterns by head.

    ``products``: as in a :class:`~symcircuits.model.Run`, the sums of score terms (and, under ``logits``, of logit
    terms) if those differ from the model's scores and logits; ``readouts`` by name.
    """

    logits: Array | None
    streams: tuple[Array, ...]
    patterns: Mapping[str, Array]
    products: Mapping[str, Array]
    readouts: Mapping[str, Array]

    @property
    def end(self) -> Array:
        """The logits, or the last stream of a model without unembedding."""
        return self.streams[-1] if self.logits is None else self.logits


def end_of(run: Run | Edited, target: str) -> Array:
    """The logits (before their soft cap), the last stream or the readout that a target names."""
    kind, _, name = target.partition(":")
    if kind == "readout":
        return run.readouts[name]
    return run.streams[-1] if run.logits is None or kind == "stream" else run.products.get("logits", run.logits)


def rerun(run: Run, *, patterns: Mapping[str, Array] | None = None, removed: Iterable[str] = ()) -> Edited:
    """The forward pass of a run on its tokens, with edits; everything after the first of them is recomputed.

    ``patterns``: by head label the pattern ``[..., n, n]`` to use in place of the softmax of the head's scores;
    ``removed``: labels of heads that add nothing to the stream. Raises ValueError on a head that does not exist and
    on a pattern of another shape.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> run = random_model(attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> edited = rerun(run, removed=["L0H0"])
    >>> bool(np.array_equal(edited.streams[1], run.streams[0])), edited.logits.shape
    (True, (3, 11))
    """
    given = {}
    for label, pattern in (patterns or {}).items():
        check_pattern(run, label, np.shape(pattern))
        given[_named(run, label)] = np.array(pattern, dtype=run.dtype)
    return _edited(run, Changes(given, dict.fromkeys((_named(run, label) for label in removed), np.ones(1, bool))))


def rerun_without_path(run: Run, heads: Sequence[str]) -> Edited:
    """The forward pass of a run without what goes through these heads, each read directly by the next.

    The second head does not read the output of the first, which changes its own output; the third does not read that
    change, and so on; all other heads read what they read before. What the last head writes, and everything after it,
    is recomputed. Raises ValueError on fewer than two heads and if their layers do not rise. Source: path patching with
    an output of zero (Goldowsky-Dill et al. 2023, "Localizing Model Behavior with Path Patching").

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> run = random_model(attention_only((1, 1)), seed=1).run([1, 2, 3])
    >>> edited = rerun_without_path(run, ["L0H0", "L1H0"])
    >>> both = rerun(run, removed=["L0H0"])        # there is no other way from one to the other ...
    >>> bool(np.allclose(edited.streams[2] - run.results["L0H0"], both.streams[2]))  # ... but past it
    True
    """
    arch, model = run.model.architecture, run.model
    chain = [arch.head(label) for label in heads]
    if len(chain) < 2 or any(a.layer >= b.layer for a, b in pairwise(chain)):
        raise ValueError(f"a path needs two or more heads in rising layers, not {' -> '.join(map(str, chain))}")
    w, scales = Converted(model.weights, run.dtype), {**model.score_scale, **model.multipliers}
    change = -run.results[str(chain[0])]
    for head in chain[1:]:
        stream = run.streams[head.layer] + change
        written = written_by(arch, w, scales, model.settings, head, stream, run.attended)
        change = written - run.results[str(head)]
    return _edited(run, Changes(written={str(chain[-1]): written}))


def pattern_without(run: Run, head: str, part: Array) -> Array:
    """The head's pattern with a part removed from its scores: ``softmax*(S - part)``, ``[..., n, n]``.

    ``S`` is the sum of the score terms: with soft caps or ALiBi, the scores before these, which act on the
    difference, ``softmax*(cap(S - part) + addend)``.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> run = random_model(attention_only((1,)), seed=1).run([1, 2])
    >>> pattern_without(run, "L0H0", run.scores["L0H0"]).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    allowed = np.isfinite(run.scores[head])
    left = np.where(allowed, run.products.get(head, run.scores[head]), 0) - np.where(allowed, part, 0)
    model = run.model
    return pattern_of(model.architecture, model.settings, model.architecture.head(head), left, allowed, run.attended)


def of_outputs(run: Run, chosen: Sequence[int]) -> Run:
    """The run with only some of the model's outputs, so its reruns do not compute the whole vocabulary.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> run = random_model(attention_only((1,)), seed=1).run([1, 2, 3])
    >>> few = of_outputs(run, [5, 7])
    >>> few.model.d_vocab_out, bool(np.array_equal(few.logits, run.logits[:, [5, 7]]))
    (2, True)
    """
    return with_ends(run, _rows(run.model, chosen))


def with_ends(run: Run, ends: Mapping[str, Array]) -> Run:
    """The run with another unembedding (and bias), and everything before unchanged."""
    model = _unembedding(run.model, ends)
    last = model.architecture.n_layers
    return _run(model, run.tokens, run.dtype, Changes(start=last, before=before(run, last)), run.attended)


def with_outputs(model: Model, chosen: Sequence[int]) -> Model:
    """The model with only some of its outputs: its runs do not compute the whole vocabulary.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> with_outputs(random_model(attention_only((1,))), [0]).d_vocab_out
    1
    """
    return _unembedding(model, _rows(model, chosen))


def _rows(model: Model, chosen: Sequence[int]) -> dict[str, Array]:
    """Some rows of the unembedding and its bias; empty if there is none."""
    return {name: model.weights[name][list(chosen)] for name in ("W_U", "b_U") if name in model.weights}


def _unembedding(model: Model, ends: Mapping[str, Array]) -> Model:
    """The model with another unembedding (and bias); it is no longer that of a file."""
    if not ends:
        return model
    found = object.__new__(Model)  # every weight has been checked; replace() would check again
    for one in fields(Model):
        object.__setattr__(found, one.name, getattr(model, one.name) if one.init else one.default)
    for array in ends.values():
        array.flags.writeable = False
    object.__setattr__(found, "weights", MappingProxyType({**model.weights, **ends}))
    return found


def _named(run: Run, label: str) -> str:
    return str(run.model.architecture.head(label))


def check_pattern(run: Run, label: str, given: tuple[int, ...]) -> None:
    """Raise ValueError if a head does not exist, or if a pattern has the wrong shape."""
    shape = run.patterns[_named(run, label)].shape
    if given != shape:
        raise ValueError(f"the pattern of {label} must have shape {list(shape)}, not {list(given)}")


def _edited(run: Run, changes: Changes) -> Edited:
    """The forward pass with these changes, from the first changed layer on."""
    changed = [
        run.model.architecture.head(label).layer for label in (*changes.given, *changes.removed, *changes.written)
    ]
    if changed:
        changes = replace(changes, start=min(changed), before=before(run, min(changed)))
    found = _run(run.model, run.tokens, run.dtype, changes, run.attended)
    return Edited(found.logits, found.streams, found.patterns, found.products, found.readouts)


def before(run: Run, layer: int) -> Record:
    """The record of the first layers of a run; later entries are recomputed and overwrite the old ones."""
    found = Record(streams=list(run.streams[: layer + 1]))
    for kind in BY_LABEL:
        getattr(found, kind).update(getattr(run, kind))
    return found
