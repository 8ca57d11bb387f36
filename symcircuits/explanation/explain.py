"""explain: a model on tokens, as a sum of its terms: what was held fixed, closure, sizes, totals, remainder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.core.architecture import SOURCE_BIASES, Architecture
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.notation import ROW, Notation, as_notation
from symcircuits.core.seam import higher
from symcircuits.core.text import need, place, shown, whole
from symcircuits.core.words import scalar_order
from symcircuits.explanation.all_scores import all_head_scores
from symcircuits.explanation.labels import Labels
from symcircuits.explanation.largest_terms import SizedTerm, columns, largest, remainder
from symcircuits.explanation.score_parts import largest_score_terms, lowest_orders, score_term_columns
from symcircuits.explanation.scores import HeadScores, margin, margin_shares, share_columns
from symcircuits.explanation.tokenizers import any_labels
from symcircuits.loaders import load
from symcircuits.loaders.by_path import RunFile
from symcircuits.model import Attachment, Model, Run
from symcircuits.values.closure import layer_closures
from symcircuits.values.evaluate import Closure, closure, evaluate
from symcircuits.values.targets import Target, read_target, totals
from symcircuits.work.files import write_text
from symcircuits.work.progress import OnProgress
from symcircuits.work.workers import WorkerPool, pinned

__all__ = ["Explanation", "HeadScores", "SizedTerm", "Target", "assumptions", "explain", "margin", "margin_shares"]

MAX_TERMS = 20_000  # terms that are looked at one by one; the orders above are in the remainder


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What :func:`explain` found; ``.text()``, ``.json()``, ``.html()`` and ``.columns()`` show it."""

    model: Model
    run: Run
    expansion: Expansion
    target: Target
    assumptions: tuple[str, ...]
    closure: Closure
    scores: dict[str, HeadScores]
    totals: dict[str, dict[Any, dict[str, Any]]]
    terms: tuple[SizedTerm, ...]
    sort: str
    looked_at: int
    remainder: dict[str, Any] = field(default_factory=dict)
    layers: tuple[Closure, ...] = ()
    labels: Labels = field(default_factory=Labels)

    @property
    def ok(self) -> bool:
        """Whether every closure is within its bound."""
        parts = (self.closure, *self.layers, *(h.closure for h in self.scores.values()))
        return all(part.passed for part in parts)

    def json(self) -> dict[str, Any]:
        """The explanation as plain data (schema in docs/json.md)."""
        return higher(dict, "Explanation.json")(self)

    def text(self, width: int = 100) -> str:
        """The explanation as tables that fit a terminal of that width."""
        return higher(str, "Explanation.text")(self, width)

    def html(self, head: str | None = None, progress: OnProgress = None) -> str:
        """The explanation as one page that needs nothing else: formulas, figures and filters are in it.

        ``head``: whose scores are opened (the head with the largest margin, of those with composition if any).
        Raises ValueError on a head that is not there.
        """
        return higher(str, "Explanation.html")(self, head, progress)

    def save_html(self, path: str | os.PathLike[str], head: str | None = None) -> Path:
        """Write :meth:`html` to a file, whole or not at all."""
        return write_text(path, self.html(head))

    def columns(self) -> dict[str, list[Any]]:
        """The shown terms as columns of equal length, ready for ``pandas.DataFrame`` or ``polars.DataFrame``.

        ``label, order, composition, source, heads`` (labels with blanks between), ``norm, contribution, text``, and
        ``difference`` where two tokens were chosen.

        >>> import symcircuits as sc
        >>> found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])
        >>> {name: len(column) for name, column in found.columns().items()}["heads"]
        9
        """
        return columns(self.terms)

    def score_columns(self, head: str | None = None, top: int = 20) -> dict[str, list[Any]]:
        """Scores as columns: of every head by composition type, or the largest score terms of one head.

        Without a head: ``head, composition, count, share`` (of the margin), ``centred_share, norm, centred_norm``.
        With one: ``label, order, composition, query_source, key_source, query_heads, key_heads, norm, centred_norm,
        centred_share, softmax_invisible, text``.

        >>> import symcircuits as sc
        >>> found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])
        >>> found.score_columns()["composition"]
        ['none', 'none', 'none', 'Q', 'K', 'QK', 'none', 'Q', 'K', 'QK']
        >>> len(found.score_columns("L1H0")["text"])
        9
        """
        if head is None:
            return share_columns(self.scores)
        return score_term_columns(largest_score_terms(self.run, head, top)[0])

    def __repr__(self) -> str:
        return self.text()  # what a notebook shows


def explain(
    model: Model | str | os.PathLike[str],
    tokens: Any,
    *,
    position: int = -1,
    token: int | None = None,
    against: int | None = None,
    row: int = 0,
    top: int = 20,
    sort: str = "norm",
    queries: Sequence[int] | None = None,
    labels: Any = None,
    max_terms: int = MAX_TERMS,
    dtype: Any = None,
    notation: str | Notation = ROW,
    symbols: Mapping[str, str] | None = None,
    progress: OnProgress = None,
    readout: str | Attachment | None = None,
    sources: Sequence[Attachment] = (),
    workers: Any = None,
    mask: Any = None,
) -> Explanation:
    """Run a model on tokens and take its logits (the stream, without unembedding) and scores apart.

    ``position``, ``token``, ``row``: the logit whose contributions are shown (last position, the model's first
    choice, first row). ``against``: a second token; contributions to logit[token] - logit[against] are shown too.
    ``top``: how many terms are shown, largest first by ``sort`` (``"norm"``, ``"contribution"`` or
    ``"difference"``). ``queries``: the query positions of the margin (all). ``labels``: names of tokens, a list
    with one for each vocabulary entry or position, the path of a file of them or of a ``tokenizer.json``, or a
    tokenizer. Above ``max_terms`` terms the orders that do not fit are not looked at one by
    one: they are in the remainder, whose sum is exact. ``notation`` and ``symbols``: how terms are printed (see
    :class:`~symcircuits.core.notation.Notation`). ``readout``: what is taken apart in place of the logits, a
    :func:`~symcircuits.readout` or the name of one that the model has; ``token`` and ``against`` then number its
    directions. ``sources``: parts set apart (:func:`~symcircuits.source`). ``mask``: as of
    :meth:`~symcircuits.model.Model.run`, which keys each query may attend to, in place of the model's own rule.

    ``workers``: a number of threads, an executor or a function that makes one (as for
    :func:`~symcircuits.explain_many`), which take the scores apart, some heads each; the result is the same, bit for
    bit, for any number of them. In other processes they read the model for themselves: ``model`` is then the path of
    its folder, and nothing is attached. Raises ValueError on bad tokens or choices.

    >>> import symcircuits as sc
    >>> found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3], top=3)
    >>> found.ok, len(found.terms), found.remainder["count"]
    (True, 3, 6)
    """
    need("explain", model, Model, str, os.PathLike)
    chosen_notation = as_notation(notation, symbols)
    model, own = _with_own(model if isinstance(model, Model) else load(model), readout, sources)
    run, architecture = model.run(tokens, dtype, mask=mask), model.architecture
    _check_sort(sort, architecture.unembed or bool(own), against is not None)
    top, max_terms = whole("top", top, 0), whole("max_terms", max_terms, 0)
    target = read_target(run, row, position, token, against, own)
    named = any_labels(labels, run.tokens.shape[-1], model)
    chosen = _queries(run, queries)
    what = f"readout:{own}" if own else "logits" if architecture.unembed else "stream"
    expansion = expand(architecture, what).written(chosen_notation)
    values = evaluate(expansion, run)
    looked = lowest_orders(expansion, max_terms)
    with WorkerPool(workers) as crew, nullcontext() if crew.alone else pinned():
        sent = None if crew.here else RunFile.of(run)
        shown = largest(evaluate(looked, run), target, top, sort, progress)
        scores = all_head_scores(run, sent, chosen, crew, progress)
    return Explanation(
        model,
        run,
        expansion=expansion,
        target=target,
        assumptions=assumptions(model, run),
        closure=closure(expansion, run),
        scores=scores,
        totals=totals(values, target),
        terms=shown,
        sort=sort,
        looked_at=looked.count,
        remainder=remainder(values, shown, target),
        layers=layer_closures(run),
        labels=named,
    )


# --------------------------------------------------------------------------------------------- what is asked
def _with_own(model: Model, readout: str | Attachment | None, sources: Sequence[Attachment]) -> tuple[Model, str]:
    """The model with what is given, and the name of the readout that is taken apart (empty: none)."""
    if isinstance(sources, Attachment):
        sources = [sources]
    kinds = [(one, "source") for one in sources]
    if readout is not None and not isinstance(readout, str):
        kinds.append((readout, "readout"))
    for one, kind in kinds:
        if getattr(one, "kind", "") != kind:
            raise TypeError(f"a {kind} is needed there (see symcircuits.{kind}), not {shown(one)}")
    found = model.with_(*(one for one, _ in kinds))
    if readout is None:
        return found, ""
    return found, found.architecture.reading(readout if isinstance(readout, str) else readout.name).name


def _check_sort(sort: str, logits: bool, two: bool) -> None:
    allowed = ["norm", *(["contribution"] if logits else []), *(["difference"] if two else [])]
    if sort not in allowed:
        more = ', or, as two tokens are given, "difference"' if two else ""
        raise ValueError(f'sort is "norm" or, for a model with logits, "contribution"{more}, not {shown(sort)}')


def _queries(run: Run, queries: Sequence[int] | None) -> list[int]:
    n = np.shape(run.tokens)[-1]
    chosen = range(n) if queries is None else sorted({place("query", q, n) for q in queries})
    if not chosen and n:
        raise ValueError("queries is empty: give positions, or None for all of them")
    return list(chosen)


def assumptions(model: Model, run: Run) -> tuple[str, ...]:
    """What was held fixed and assumed, in sentences."""
    architecture = model.architecture
    lines = [_held_sentence(architecture)]
    lines.append(f"computed in {run.dtype}; the file holds {model.dtype}")
    lines.append(_position_sentence(architecture))
    direction = "causal (a query sees itself and what is before)" if architecture.causal else "bidirectional"
    if run.attended is not None:
        direction = "by the mask that was given, in place of the model's own"
    lines.append(f"attention: {direction}")
    if run.attended is not None and run.attended.added is not None:
        lines.append("what the mask adds to scores is not a term: score terms add up to the scores before it")
    lines.append(_scale_sentence(model))
    lines += _feature_sentences(model) + _own_sentences(architecture)
    if architecture.biases:
        kinds = sorted({b.partition("[")[0] for b in architecture.biases})
        sources = [kind for kind in kinds if kind in SOURCE_BIASES]
        lines += [f"biases are sources of their own: {', '.join(sources)}"] if sources else []
    return (*lines, *model.notes)


def _feature_sentences(model: Model) -> list[str]:
    """What norms, MLPs, groups, windows and caps mean for the terms."""
    architecture, settings, lines = model.architecture, model.settings, []
    if architecture.norm:
        lines.append(
            f"norms: {architecture.norm}, {'with' if architecture.gains else 'without'} gain; terms through different "
            "norms carry different scales, so that their sizes are not comparable"
        )
    if architecture.mlps:
        kind = f"{settings.activation}, gated" if architecture.gated else settings.activation
        kind = "bilinear" if architecture.bilinear else kind
        lines.append(f"MLPs: {kind}; what each writes is a source of its own")
    if not architecture.softmax:
        lines.append("no softmax: a pattern is the masked scores, and its rows need not sum to one")
    if architecture.groups:
        lines.append(f"key/value heads by layer: {', '.join(map(str, architecture.groups))}")
    if model.multipliers:
        values = ", ".join(
            f"{name} {model.multipliers[name]:.6g}" for name in sorted(model.multipliers, key=scalar_order)
        )
        lines.append(f"multipliers stand before the terms: {values}")
    if any(w is not None for w in settings.windows):
        lines.append(f"window of keys by layer: {', '.join('all' if w is None else str(w) for w in settings.windows)}")
    for cap, what in ((settings.score_cap, "scores"), (settings.logit_cap, "logits")):
        lines += [f"{what} have a soft cap of {cap:g}: terms sum to the {what} before it"] if cap is not None else []
    return lines


def _own_sentences(architecture: Architecture) -> list[str]:
    """What attached readouts and sources mean for the terms."""
    lines = [str(r) for r in architecture.readings]
    for part in architecture.parts:
        label = f"{'M' if part.of == 'mlp' else 'L'}{part.layer}"
        means = {
            "stream": f"there the stream is the sources and rest[{label}], held fixed, and all before is cut off",
            "mlp": f"what that MLP writes is its sources and rest[{label}], held fixed",
            "added": "the model is run with it",
        }
        lines.append(f"{part}: {means[part.of]}")
    return lines


def _held_sentence(architecture: Architecture) -> str:
    held = ["the attention pattern of every head"]
    held += ["1 / sigma of every norm"] if architecture.norm or architecture.qk_norm else []
    held += ["what every MLP writes"] if architecture.mlps else []
    values = "its value" if len(held) == 1 else "their values"
    return f"held fixed: {', '.join(held)}, at {values} on these tokens"


def _position_sentence(architecture: Architecture) -> str:
    return {
        None: "no position embedding",
        "standard": "the position embedding is a source of the stream, pos",
        "shortformer": "the position embedding enters queries and keys only (shortformer): pos is in no logit term",
        "rotary": "rotary positions turn queries and keys: scores hold W_Q^T R_(j-i) W_K",
        "alibi": "ALiBi adds -slope |i - j| to scores; it is not a path term: score terms sum to the scores without it",
    }[architecture.positions]


def _scale_sentence(model: Model) -> str:
    if not model.architecture.scale:
        return "scores carry no scale"
    scales = sorted(set(model.score_scale.values()))
    return "score scale: " + (f"{scales[0]:.6g}" if len(scales) == 1 else "one a head") if scales else "no heads"
