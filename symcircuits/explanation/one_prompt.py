"""What one prompt gives to averages over many: numbers of every sum of terms, and closures; no term is listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

from symcircuits.core.expansion import expand
from symcircuits.core.programs import made_once
from symcircuits.explanation.assumptions import assumptions
from symcircuits.explanation.prompts import Prompt
from symcircuits.explanation.scores import scores_of_heads
from symcircuits.explanation.sizes import Sizes, by_degree
from symcircuits.explanation.subject import logit_of
from symcircuits.loaders.by_path import ModelFile
from symcircuits.model import Model, Run
from symcircuits.values.by_head import through_each_head
from symcircuits.values.closure import layer_closures, worst_closure
from symcircuits.values.evaluate import Closure, closure, evaluate
from symcircuits.values.measure import Measure, logit
from symcircuits.work.workers import pin

__all__ = ["CHOICES", "Far", "Key", "Look", "Seen", "Task", "look_at"]

CHOICES = ("its own", "the same for all", "first choice")


def _chosen(by: Measure, prompt: Prompt) -> tuple[Measure, str]:
    """The logit that a prompt is looked at by, and who chose it; what the prompt does not say ``by`` says."""
    by = by if prompt.position is None else replace(by, position=prompt.position)
    if prompt.target is not None:
        own = logit(prompt.target, prompt.against)
        return replace(own, position=by.position), CHOICES[0]
    return by, CHOICES[1 if by.token is not None else 2]


Key = tuple[Any, ...]
Row = tuple[Key, int, dict[str, float | None]]  # of one prompt: which sum, how many terms, its quantities


@dataclass(frozen=True, slots=True)
class Seen:
    """What one prompt gives: ``fault`` says why it cannot be run; ``rows`` are None where a closure failed."""

    number: int
    length: int
    fault: str = ""
    who: str = ""
    assumed: tuple[str, ...] = ()
    closures: Mapping[str, Closure] | None = None
    rows: tuple[Row, ...] | None = None


@final
class Look:
    """Looks at prompts, one at a time; of a model only what is the same for every prompt is kept."""

    def __init__(self, model: Model, by: Measure, dtype: Any) -> None:
        self.model, self.by, self.dtype = model, by, dtype
        architecture = model.architecture
        self.expansion = expand(architecture, architecture.end)
        with made_once():
            self.heads = {str(h): expand(architecture, f"scores:{h}") for h in architecture.all_heads}
        self.counts: dict[str, int] = {}  # of the terms through each head

    def at(self, prompt: Prompt) -> Seen:
        """What a prompt gives; ValueError where the chosen logit does not exist."""
        number, length = prompt.number, len(prompt.tokens)
        try:
            run = self.model.run(prompt.tokens, self.dtype)
        except ValueError as fault:
            return Seen(number, length, str(fault))
        chosen, who = _chosen(self.by, prompt)
        by = logit_of(chosen, self.expansion, run)
        closures = {self.expansion.target: closure(self.expansion, run, listed=0)}
        rows: list[Row] = list(self._scores(run, closures))
        if (layers := worst_closure(layer_closures(run))) is not None:
            closures["layers"] = layers
        assumed = assumptions(run)
        if not all(c.passed for c in closures.values()):
            return Seen(number, length, "", who, assumed, closures=closures)
        rows += self._logits(run, by)
        rows.append((("length",), 0, {"length": float(length)}))
        return Seen(number, length, "", who, assumed, closures=closures, rows=tuple(rows))

    def _logits(self, run: Run, by: Measure) -> Iterable[Row]:
        """Sums of logit terms; their sizes without the vocabulary, where it is larger than the stream."""
        size = Sizes(evaluate(self.expansion, run), by)
        values = size.values
        yield ("all",), self.expansion.count, _there(size(values.total()))
        orders, compositions = self.expansion.counts_by_order(), self.expansion.counts_by_composition()
        yield from ((("order", k), orders[k], _there(size(v))) for k, v in values.by_order().items())
        yield from ((("composition", k), compositions[k], _there(size(v))) for k, v in values.by_composition().items())
        for degree, sums in by_degree(self.expansion, run, by).items():
            yield ("degree", degree), sums["count"], _there(sums)
        for head, value in through_each_head(values):
            if str(head) not in self.counts:  # a number of terms is the same for every prompt
                self.counts[str(head)] = self.expansion.through(head).count
            yield ("head", str(head)), self.counts[str(head)], _there(size(value))

    def _scores(self, run: Run, closures: dict[str, Closure]) -> Iterable[Row]:
        architecture = self.model.architecture
        layers = ([*map(str, architecture.layer_heads(layer))] for layer in range(architecture.n_layers))
        each = ((heads, scores_of_heads(run, [self.heads[h] for h in heads], listed=0)) for heads in layers)
        for head, found in ((h, s) for heads, scores in each for h, s in zip(heads, scores, strict=True)):
            closures[f"scores:{head}"] = found.closure
            for c in (c for c, n in found.counts.items() if n):
                yield ("scores", head, c), found.counts[c], {
                    "centred_share": found.centred_shares[c], "share": found.shares[c], "norm": found.norms[c],
                    "centred_norm": found.centred_norms[c],
                }  # fmt: skip


def _there(size: Mapping[str, Any]) -> dict[str, float | None]:
    """Norm and contributions, without what is not there."""
    return {name: x for name, x in size.items() if name != "count" and x is not None}


@dataclass(frozen=True, slots=True)
class Far:
    """By what a worker in another process looks at prompts; it keeps what it made of that."""

    model: ModelFile
    by: Measure
    dtype: str | None


@lru_cache(maxsize=2)
def _look(far: Far) -> Look:
    return Look(far.model.model(), far.by, far.dtype)


Task = tuple[Look | Far, tuple[Prompt | Seen, ...]]  # what was bad when it was read is passed on, in its place


def look_at(task: Task) -> list[Seen]:
    """What the prompts of a task give, in order."""
    by, prompts = task
    if isinstance(by, Far):
        pin()
        by = _look(by)
    return [one if isinstance(one, Seen) else by.at(one) for one in prompts]
