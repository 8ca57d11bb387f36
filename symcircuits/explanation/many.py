"""explain over many prompts: totals and shares averaged, with their spread; every prompt's closure is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, final

from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import need
from symcircuits.explanation.labels import Labels
from symcircuits.explanation.one_prompt import Far, Key, Look, Seen, Task, look_at
from symcircuits.explanation.prompts import BadPrompt, Prompt, Prompts
from symcircuits.explanation.statistics import Running, Spread
from symcircuits.explanation.subject import as_logit, check_no_token
from symcircuits.explanation.tokenizers import encoder, tokenizer_labels, vocabulary_labels
from symcircuits.loaders import load
from symcircuits.loaders.by_path import ModelFile
from symcircuits.model import Model
from symcircuits.model.checks import float_type
from symcircuits.values.evaluate import Closure
from symcircuits.values.measure import SECOND, Measure
from symcircuits.work.progress import OnProgress, told_by
from symcircuits.work.workers import WorkerPool, pinned

__all__ = ["Averages", "Failed", "Part", "Worst", "explain_many"]

_NAMED = 20  # faults that are kept to be shown; the others are counted
EACH = 4  # prompts that a worker elsewhere is sent together
MOST_EACH, WHILE = 64, 0.1  # prompts that are done together, and seconds that they may take
_KINDS = ("order", "composition", "degree", "head")  # degree: of models that are polynomials


@dataclass(frozen=True, slots=True)
class Part:
    """A sum of ``count`` terms over many prompts: the spread of each of its quantities, by name."""

    count: int
    spreads: Mapping[str, Spread]

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {"count": self.count, **{name: spread.json() for name, spread in self.spreads.items()}}


@dataclass(frozen=True, slots=True)
class Worst:
    """The closure of one target nearest to its bound (or farthest beyond it), with the number of its prompt."""

    prompt: int
    closure: Closure

    @property
    def ratio(self) -> float:
        """Error divided by bound; 0 if there is no error."""
        error, bound = self.closure.error, self.closure.bound
        return 0.0 if error == 0 else error / bound if bound else float("inf")


@dataclass(frozen=True, slots=True)
class Failed:
    """A prompt that is left out of all averages: its number (line or position, from 1), and why."""

    prompt: int
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Averages(Shown):
    """The result of :func:`explain_many`; ``.text()``, ``.json()`` and ``.columns()`` show it.

    ``measure``: the requested logit, or difference of two, for prompts that do not choose their own; ``prompts``: how
    many are averaged; ``whole``: the whole logits (or stream); ``totals``: by ``"order"``, ``"composition"`` and
    ``"head"`` (terms through it), for models that are polynomials also by ``"degree"``; ``scores``: for each head by
    composition type. ``worst``: for logits (or stream), scores and layers the closure nearest to its bound, over all
    prompts. ``unclosed``, ``skipped``: the first prompts whose closure failed and the first invalid ones;
    ``n_unclosed``, ``n_skipped``: how many there are.
    """

    model: Model
    source: str
    expansion: Expansion
    measure: Measure
    chosen: Mapping[str, int]
    assumptions: tuple[str, ...]
    prompts: int
    lengths: Spread
    whole: Part
    totals: Mapping[str, Mapping[Any, Part]]
    scores: Mapping[str, Mapping[str, Part]]
    worst: Mapping[str, Worst]
    unclosed: tuple[Failed, ...] = ()
    skipped: tuple[Failed, ...] = ()
    n_unclosed: int = 0
    n_skipped: int = 0
    labels: Labels = field(default_factory=Labels)

    @property
    def ok(self) -> bool:
        """Whether every closure of every prompt that was run is within its bound."""
        return not self.n_unclosed

    def labelled(self, labels: Any) -> Averages:
        """The same with names of tokens.

        ``labels``: a list with one for each vocabulary entry, the path of a file of them or of a ``tokenizer.json``, or
        a tokenizer. ValueError on anything else.
        """
        return replace(self, labels=vocabulary_labels(labels, self.model))

    def json(self) -> dict[str, Any]:
        """The averages as plain data (schema in docs/json.md)."""
        return higher(dict, "Averages.json")(self)

    def text(self, width: int = 100, top: int = 20) -> str:
        """The averages as tables that fit a terminal of that width; of many heads the ``top`` largest."""
        return self._text(width, top=top)

    def columns(self) -> dict[str, list[Any]]:
        """Every average as columns of equal length, ready for ``pandas.DataFrame`` or ``polars.DataFrame``.

        ``of`` (``logits`` or ``scores:L1H0``), ``by``, ``part``, ``terms``, ``quantity``, ``prompts``, ``mean``,
        ``std``, ``min``, ``max``.

        >>> import symcircuits as sc
        >>> model = sc.random_model(sc.attention_only((2,)), d_vocab=9, seed=1)
        >>> table = sc.explain_many(model, [[1, 2], [3, 4, 5]]).columns()
        >>> [(table["part"][i], table["quantity"][i], table["prompts"][i]) for i in (0, 3)]
        [('all', 'norm', 2), ('0', 'norm', 2)]
        """
        of = self.expansion.target
        rows = [(of, "all", "all", self.whole)]
        rows += [(of, by, str(key), part) for by, parts in self.totals.items() for key, part in parts.items()]
        rows += [
            (f"scores:{h}", "composition", c, part) for h, parts in self.scores.items() for c, part in parts.items()
        ]
        cells = [(o, by, k, p.count, name, s) for o, by, k, p in rows for name, s in p.spreads.items()]
        return {
            "of": [c[0] for c in cells], "by": [c[1] for c in cells], "part": [c[2] for c in cells],
            "terms": [c[3] for c in cells], "quantity": [c[4] for c in cells], "prompts": [c[5].count for c in cells],
            "mean": [c[5].mean for c in cells], "std": [c[5].std for c in cells], "min": [c[5].least for c in cells],
            "max": [c[5].most for c in cells],
        }  # fmt: skip


def explain_many(
    model: Model | str | os.PathLike[str],
    prompts: Any,
    *,
    by: Measure | None = None,
    tokenizer: Any = None,
    skip_bad: bool = False,
    dtype: Any = None,
    progress: OnProgress | bool = None,
    workers: Any = None,
) -> Averages:
    """Average the results of :func:`~symcircuits.explanation.explain.explain` over many prompts, one at a time.

    ``prompts``: the path of a file with one prompt per line, or an iterable of prompts (see
    :mod:`symcircuits.explanation.prompts`). ``by``: the chosen logit (or difference), :func:`~symcircuits.logit`, for
    every prompt that does not choose its own; without a token it is the model's first choice. ``tokenizer``: converts
    texts to tokens; it also names tokens (other names: :meth:`Averages.labelled`). The averages are norms and
    contributions of logit terms by order, composition type and head (all terms through it), and norms and shares of
    each head's scores by composition type; all are computed by the walk, without listing terms. Memory does not grow
    with the number of prompts. Each prompt is run separately, at its own length.

    ``workers``: a number, an executor (anything with ``submit``, as of Dask or loky), or a function that
    makes one (see :class:`~symcircuits.work.workers.WorkerPool`); prompts are split among them, and their results are
    added in the order of the prompts, so the result is the same, bit for bit, for any number of workers of the same
    kind. BLAS has one thread in each. Workers in other processes are sent tokens and the path and digest of the
    weights, so ``model`` is then that path. Tasks of dead workers are retried, three times at most.

    A prompt that cannot be read raises an error with its number, for a file or sequence before the first is run; with
    ``skip_bad`` it is left out and named. One whose closure fails is left out of all averages and named, and ``ok`` is
    False. Raises ValueError on bad choices, and if there are no prompts.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((2, 2)), d_vocab=9, seed=1)
    >>> found = sc.explain_many(model, [[1, 2, 3], [4, 5], {"tokens": [6, 7], "target": 8}])
    >>> found.ok, found.prompts, found.totals["order"][2].count, found.scores["L1H0"]["K"].spreads["norm"].count
    (True, 3, 4, 3)
    >>> sc.explain_many(model, [[1, 2, 3], [4, 5], {"tokens": [6, 7], "target": 8}], workers=2).json() == found.json()
    True
    """
    with WorkerPool(workers) as crew, pinned():
        known = _known(model, crew)
        given, told = model if isinstance(model, Model) else load(model), told_by(progress)
        by, kind = _for_all(given, by), None if dtype is None else float_type(dtype).name
        read = Prompts(given, prompts, by.position, None if tokenizer is None else encoder(tokenizer, given))
        tally = _Tally(given, by, read, skip_bad)
        count = _check_all(read, skip_bad, told) if read.again else 0
        look = Look(given, by, kind) if known is None else Far(known, by, kind)

        def sent() -> Callable[[Task], Task]:
            elsewhere = Far(ModelFile.of(given), by, kind)
            return lambda task: (elsewhere, task[1])

        def each() -> int:
            """Prompts of the next task: so many as take a while, by the first."""
            if isinstance(workers, int):
                return max(1, min(MOST_EACH, int(WHILE / crew.pace))) if crew.pace else 1
            return 1 if crew.alone else EACH

        tasks = _tasks(read, look, skip_bad, each)
        for found in crew.results(look_at, tasks, pieces=count or None, sent=sent):
            for one in found:
                tally.take(one)
                if told:
                    told("prompts", tally.seen, max(count, tally.seen))
    if not tally.seen:
        raise ValueError(f"{read.path}: there are no prompts in this file" if read.path else "there are no prompts")
    if tally.skipped and not tally.prompts and not tally.unclosed:
        first = tally.skipped[0]
        only = "it is the only prompt" if tally.n_skipped == 1 else f"all {tally.n_skipped:,} prompts are invalid"
        raise read.bad(first.prompt, f"{first.why}; {only}")
    labels = Labels() if tokenizer is None else tokenizer_labels(tokenizer, given)
    return tally.found(str(read.path) if read.path else "", labels)


def _known(model: Any, crew: WorkerPool) -> ModelFile | None:
    """The file that workers elsewhere read; None where the work is done here."""
    need("explain_many", model, Model, str, os.PathLike)
    if crew.here:
        return None
    if isinstance(model, Model):
        raise ValueError(
            "workers in other processes read a model from its file, and are sent no arrays: give the path of its "
            "folder in place of the model"
        )
    return ModelFile.at(model)


def _tasks(read: Prompts, look: Look | Far, skip_bad: bool, each: Callable[[], int]) -> Iterator[tuple[str, Task]]:
    """Prompts, some together, as work; one that is bad keeps its place."""
    entries = read.entries()
    while some := tuple(_read(reader, number, skip_bad) for number, reader in islice(entries, each())):
        yield f"prompts {some[0].number} to {some[-1].number}", (look, some)


def _read(reader: Callable[[int], Prompt], number: int, skip_bad: bool) -> Prompt | Seen:
    try:
        return reader(number)
    except BadPrompt as fault:
        if not skip_bad:
            raise
        return Seen(number, 0, fault.what)


def _for_all(model: Model, by: Measure | None) -> Measure:
    """What is chosen of every prompt that does not say its own; ValueError on what does not exist."""
    by, size = as_logit("explain_many", by), model.d_vocab_out
    if by.row is not None:
        raise ValueError("each prompt is one row of tokens: leave row out of by")
    if size is None:
        check_no_token(by, model)
        return by
    if by.against not in (None, SECOND) and by.token is None:
        raise ValueError("against is the second token of a difference; give the first as token")
    if by.against == SECOND and size < 2:
        raise ValueError("a difference needs two: the model has one output token")
    return by.outputs(size)


def _check_all(read: Prompts, skip_bad: bool, progress: OnProgress) -> int:
    """The number of prompts; all are read, so an invalid one raises an error before any is run."""
    count = 0
    for number, reader in read.entries():
        count += 1
        if not skip_bad:
            reader(number)
        if progress:
            progress("prompts read", count, count)
    return count


# --------------------------------------------------------------------------------------------- running sums
@final
class _Tally:
    """Running sums over prompts; a prompt is included completely or not at all."""

    def __init__(self, model: Model, by: Measure, read: Prompts, skip_bad: bool) -> None:
        self.model, self.by, self.read, self.skip_bad = model, by, read, skip_bad
        self.expansion = expand(model, model.architecture.end)
        self.sums: dict[Key, dict[str, Running]] = {}
        self.counts: dict[Key, int] = {}
        self.chosen: dict[str, int] = {}
        self.worst: dict[str, Worst] = {}
        self.unclosed: list[Failed] = []
        self.skipped: list[Failed] = []
        self.seen = self.prompts = self.n_unclosed = self.n_skipped = 0
        self.assumed: tuple[str, ...] = ()

    def take(self, one: Seen) -> None:
        """Add what one prompt gives."""
        self.seen += 1
        if one.fault:
            if not self.skip_bad:
                raise self.read.bad(one.number, one.fault)
            self.n_skipped += 1
            self.skipped += [Failed(one.number, one.fault)] if self.n_skipped <= _NAMED else []
            return
        closures = one.closures or {}
        self.assumed = self.assumed or one.assumed
        self._remember(one.number, closures)
        if one.rows is None:
            failed = [c for c in closures.values() if not c.passed]
            self.n_unclosed += 1
            what = "; ".join(f"{c.target}: error {c.error:.2g} beyond the bound {c.bound:.2g}" for c in failed[:3])
            self.unclosed += [Failed(one.number, what)] if self.n_unclosed <= _NAMED else []
            return
        self.prompts += 1
        self.chosen[one.who] = self.chosen.get(one.who, 0) + 1
        for key, count, numbers in one.rows:
            self.counts[key] = count
            sums = self.sums.setdefault(key, {})
            for name, x in numbers.items():
                sums.setdefault(name, Running()).add(x)

    def _remember(self, number: int, closures: Mapping[str, Closure]) -> None:
        for name, one in closures.items():
            kind, worst = name.partition(":")[0], Worst(number, one)
            if kind not in self.worst or _badness(worst) > _badness(self.worst[kind]):
                self.worst[kind] = worst

    def found(self, source: str, labels: Labels) -> Averages:
        """The averages so far."""
        parts = {
            key: Part(self.counts[key], {name: r.spread for name, r in sums.items()}) for key, sums in self.sums.items()
        }
        scores: dict[str, dict[str, Part]] = {}
        for key, part in parts.items():
            if key[0] == "scores":
                scores.setdefault(key[1], {})[key[2]] = part
        by = {kind: {k[1]: p for k, p in parts.items() if k[0] == kind} for kind in _KINDS}
        by = {kind: split for kind, split in by.items() if split or kind != "degree"}
        empty = Part(self.expansion.count, {})
        length = self.sums.get(("length",))
        return Averages(
            self.model,
            source,
            expansion=self.expansion,
            measure=self.by,
            chosen=self.chosen,
            assumptions=self.assumed,
            prompts=self.prompts,
            lengths=length["length"].spread if length else Spread(),
            whole=parts.get(("all",), empty),
            totals=by,
            scores=scores,
            worst=self.worst,
            unclosed=tuple(self.unclosed),
            skipped=tuple(self.skipped),
            n_unclosed=self.n_unclosed,
            n_skipped=self.n_skipped,
            labels=labels,
        )


def _badness(worst: Worst) -> tuple[bool, float]:
    return not worst.closure.passed, worst.ratio
