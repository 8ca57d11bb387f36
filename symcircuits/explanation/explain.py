"""explain: a model on tokens, as a sum of its terms: what was held fixed, closure, sizes, totals, remainder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from symcircuits.core.expansion import Expansion
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import entries, place, shown, whole
from symcircuits.explanation.all_scores import all_head_scores
from symcircuits.explanation.assumptions import assumptions, ranked_by
from symcircuits.explanation.labels import Labels
from symcircuits.explanation.score_parts import largest_score_terms, lowest_orders, score_term_columns
from symcircuits.explanation.scores import HeadScores, share_columns
from symcircuits.explanation.sizes import SizedTerm, Sizes, columns, largest, sized
from symcircuits.explanation.subject import as_logit, logit_of, values_of
from symcircuits.explanation.tokenizers import any_labels
from symcircuits.loaders.by_path import RunFile
from symcircuits.model import Model, Run
from symcircuits.values.closure import layer_closures
from symcircuits.values.evaluate import Closure, Values, closure, evaluate, reference
from symcircuits.values.measure import Measure
from symcircuits.work.files import write_text
from symcircuits.work.progress import OnProgress, told_by
from symcircuits.work.workers import WorkerPool, pinned

__all__ = ["Explanation", "explain"]

MAX_TERMS = 20_000  # terms that are looked at one by one; the orders above are in the remainder


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Shown):
    """What :func:`explain` found; ``.text()``, ``.json()``, ``.html()`` and ``.columns()`` show it.

    ``measure``: the chosen logit, or difference of two, with all defaults filled in (for the stream only position and
    row); ``row`` is None if the run is not a batch. ``terms``: the largest single terms; ``rows``: the same as in
    reports, where those from token and position embedding through the same heads may form one row (``beside``).
    """

    model: Model
    run: Run
    expansion: Expansion
    measure: Measure
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
    rows: tuple[SizedTerm, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every closure is within its bound."""
        parts = (self.closure, *self.layers, *(h.closure for h in self.scores.values()))
        return all(part.passed for part in parts)

    @property
    def readout(self) -> str:
        """The name of the readout that is explained in place of the logits; empty if there is none."""
        return self.expansion.target.partition(":")[2]

    @property
    def value(self) -> float | None:
        """The chosen logit (before a soft cap, if there is one: terms add up to that), or what the direction reads."""
        return self.measure.at(reference(self.expansion.target, self.run))[0]

    @property
    def difference(self) -> float | None:
        """The same minus that of the second token; None if no second token was chosen."""
        return self.measure.at(reference(self.expansion.target, self.run))[1]

    @property
    def centred(self) -> float | None:
        """The chosen logit minus the mean of all logits there; None for a readout and for the stream."""
        if self.readout or not self.measure.chosen:
            return None
        return float(sized(reference(self.expansion.target, self.run), self.measure)["centred"])

    def labelled(self, labels: Any) -> Explanation:
        """The same with names of tokens.

        ``labels``: a list with one for each vocabulary entry or position, the path of a file of them or of a
        ``tokenizer.json``, or a tokenizer. ValueError on anything else.

        >>> import symcircuits as sc
        >>> found = sc.explain(sc.random_model(sc.attention_only((1,)), d_vocab=9), [1, 2], by=sc.logit(3))
        >>> 'logit of token 3 "dog"' in found.labelled("a the cat dog sat on my mat .".split()).text()
        True
        """
        return replace(self, labels=any_labels(labels, self.run.tokens.shape[-1], self.model))

    def json(self) -> dict[str, Any]:
        """The explanation as plain data (schema in docs/json.md)."""
        return higher(dict, "Explanation.json")(self)

    def html(self, head: str | None = None, progress: OnProgress | bool = None) -> str:
        """The explanation as one self-contained page with formulas, figures and filters.

        ``head``: the head whose scores are shown first (by default the one with the largest margin, among those with
        composition if there are any). Raises ValueError if the head does not exist.
        """
        return higher(str, "Explanation.html")(self, head, told_by(progress))

    def save_html(self, path: str | os.PathLike[str], head: str | None = None) -> Path:
        """Write :meth:`html` to a file, completely or not at all."""
        return write_text(path, self.html(head))

    def columns(self) -> dict[str, list[Any]]:
        """The shown terms as columns of equal length, ready for ``pandas.DataFrame`` or ``polars.DataFrame``.

        ``label, order, composition, source, heads`` (labels separated by spaces), ``norm, contribution, text``, and
        ``difference`` if two tokens were chosen.

        >>> import symcircuits as sc
        >>> found = sc.explain(sc.random_model(sc.attention_only((2, 2)), seed=1), [1, 2, 3])
        >>> {name: len(column) for name, column in found.columns().items()}["heads"]
        9
        """
        return columns(self.terms)

    def score_columns(self, head: str | None = None, top: int = 20) -> dict[str, list[Any]]:
        """Scores as columns: for every head by composition type, or the largest score terms of one head.

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


def explain(
    subject: Model | Run | Values | str | os.PathLike[str],
    tokens: Any = None,
    *,
    by: Measure | None = None,
    top: int = 20,
    sort: str | None = None,
    queries: Sequence[int] | None = None,
    max_terms: int = MAX_TERMS,
    progress: OnProgress | bool = None,
    workers: Any = None,
) -> Explanation:
    """Explain the logits of a model on tokens (or its stream, without unembedding), and the scores of its heads.

    ``subject``: a model, or the path of one, with ``tokens``; a run, which has its own tokens, and may be made with a
    dtype, a mask and sources (``model.with_(sc.source(...)).run(tokens, dtype, mask=mask)``); or the values of a whole
    expansion on a run, which determine what is explained (logits, stream or a readout) and how terms are printed.

    ``by``: the logit whose contributions are shown, :func:`~symcircuits.logit`: by default the model's first choice at
    the last position (of the first row); with ``against``, contributions to the difference are shown too. For a readout
    it is a direction; for the stream it gives only position and row. ``top``: how many terms are shown, largest first.

    By default, terms are ranked by a number that does not depend on how the model is parameterised (see
    :func:`~symcircuits.invariances`): the difference if two tokens are given, else the contribution minus its mean over
    all outputs (``"centred"``), for a readout the contribution; terms through the same heads from token and position
    embedding count as one, and form one row of a report. ``sort`` chooses another ranking of single terms:
    ``"centred"``, ``"norm"``, ``"contribution"`` or ``"difference"``. The stream has only norms. ``assumptions`` name
    the choice.

    ``queries``: the query positions of the margin (all). Above ``max_terms`` terms, the orders that do not fit are not
    examined term by term: they are in the remainder, whose sum is exact. Names of tokens: :meth:`Explanation.labelled`.

    ``workers``: a number, an executor or a function that makes one (as for
    :func:`~symcircuits.explain_many`), which analyse the scores, some heads each; the result is the same, bit for bit,
    for any number of them. Workers in other processes read the model from its path and run it themselves, so nothing
    may be attached to it, and the run must have no mask. Raises ValueError on bad tokens or choices, TypeError on
    values that are not on a run.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((2, 2)), d_model=4, seed=1)
    >>> found = sc.explain(model, [1, 2, 3], by=sc.logit(5, against=7), top=3)
    >>> found.ok, len(found.terms), found.remainder["count"]
    (True, 3, 6)

    A source, in a float32 run in which no other token sees the first:

    >>> steered = model.with_(sc.source("steer", [1.0, 0, 0, 0], 1, of="added"))
    >>> run = steered.run([1, 2, 3], "float32", mask=[[True, False, False], [False, True, False], [False, True, True]])
    >>> [s.term.label for s in sc.explain(run).terms if "steer" in s.term.sources]
    ['steer', 'steer -> L1H1', 'steer -> L1H0']

    A readout in place of the logits, its terms printed in the paper's notation:

    >>> run = model.with_(sc.readout([1.0, 0, 0, -1], "probe")).run([1, 2, 3])
    >>> terms = sc.expand(run.model, "readout:probe").written("paper", {"W_OV": "M"})
    >>> found = sc.explain(sc.evaluate(terms, run), sort="contribution")
    >>> bool(abs(found.value - run.readouts["probe"][-1, 0]) < 1e-12), found.terms[1].term.text
    (True, '(A[L1H1] (x) probe @ M[L1H1] @ W_E) t')
    """
    values = values_of(subject, tokens)
    expansion, run = values.expansion, values.run
    measure = logit_of(as_logit("explain", by), expansion, run)
    sort, together = _ranking(sort, measure)
    top, max_terms = whole("top", top, 0), whole("max_terms", max_terms, 0)
    chosen = _queries(run, queries)
    looked, sizes = lowest_orders(expansion, max_terms), Sizes(values, measure)
    with WorkerPool(workers) as crew, nullcontext() if crew.alone else pinned():
        sent, told = None if crew.here else RunFile.of(run), told_by(progress)
        rows = largest(evaluate(looked, run), measure, top, sort, told, together)
        scores = all_head_scores(run, sent, chosen, crew, told)
    return Explanation(
        run.model,
        run,
        expansion=expansion,
        measure=measure,
        assumptions=(*assumptions(run), ranked_by(measure, sort, together, [s.name for s in expansion.sources])),
        closure=closure(expansion, run),
        scores=scores,
        totals=sizes.totals(),
        terms=tuple(one if one.beside is None else sizes.term(term) for one in rows for term in one.terms),
        sort=sort,
        looked_at=looked.count,
        remainder=sizes.remainder(rows),
        rows=rows,
        layers=layer_closures(run),
    )


def _ranking(sort: str | None, measure: Measure) -> tuple[str, bool]:
    """By what terms are ranked, and whether those from token and position embedding stand together."""
    logits = measure.kind.startswith("logit") and measure.token is not None
    allowed = ["norm", "contribution", "difference"][: 1 + len(measure.chosen)] + ["centred"] * logits
    if sort is None:
        chosen = "difference" if measure.against is not None else allowed[-1]
        return chosen, chosen != "norm"
    if sort not in allowed:
        more = ', or, as two tokens are given, "difference"' if measure.against is not None else ""
        said = f'sort is "norm" or, for a model with logits, "contribution"{more}, not {shown(sort)}'
        hint = "; a difference is of two tokens, by=sc.logit(token, against=other)" if sort == "difference" else ""
        raise ValueError(said + (hint or '; or, of logits, "centred": the contribution less its mean over all outputs'))
    return sort, False


def _queries(run: Run, queries: Sequence[int] | None) -> list[int]:
    n = np.shape(run.tokens)[-1]
    given = range(n) if queries is None else entries("queries", queries, "positions")
    chosen = sorted({place("query", q, n) for q in given})
    if not chosen and n:
        raise ValueError("queries is empty: give positions, or None for all of them")
    return chosen
