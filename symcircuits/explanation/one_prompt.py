"""What one prompt gives to averages over many: numbers of every sum of terms, and closures; no term is listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from symcircuits.arrays.norms import frobenius
from symcircuits.core.expansion import expand
from symcircuits.explanation.explain import assumptions
from symcircuits.explanation.prompts import Prompt
from symcircuits.explanation.scores import head_scores
from symcircuits.loaders.by_path import ModelFile
from symcircuits.model import Model, Run
from symcircuits.values.by_head import through_each_head
from symcircuits.values.closure import layer_closures, worst_closure
from symcircuits.values.evaluate import Closure, Values, closure, evaluate
from symcircuits.values.targets import Target, by_degree, read_target, sized
from symcircuits.values.unembedding import compact
from symcircuits.work.workers import pin

__all__ = ["CHOICES", "Choice", "Far", "Key", "Look", "Seen", "Task", "look_at"]

CHOICES = ("its own", "the same for all", "first choice")


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen logit of prompts that do not say their own."""

    position: int
    token: int | None
    against: int | None

    def of(self, prompt: Prompt) -> tuple[int, int | None, int | None, str]:
        """Position, token, token against, and who chose it."""
        position = self.position if prompt.position is None else prompt.position
        if prompt.target is not None:
            return position, prompt.target, prompt.against, CHOICES[0]
        return position, self.token, self.against, CHOICES[1 if self.token is not None else 2]


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

    def __init__(self, model: Model, choice: Choice, dtype: Any) -> None:
        self.model, self.choice, self.dtype = model, choice, dtype
        architecture = model.architecture
        self.expansion = expand(architecture, "logits" if architecture.unembed else "stream")
        self.heads = {str(h): expand(architecture, f"scores:{h}") for h in architecture.all_heads}
        self.counts: dict[str, int] = {}  # of the terms through each head
        self.triangle: Any = None

    def at(self, prompt: Prompt) -> Seen:
        """What a prompt gives; ValueError where the chosen logit does not exist."""
        number, length = prompt.number, len(prompt.tokens)
        try:
            run = self.model.run(prompt.tokens, self.dtype)
        except ValueError as fault:
            return Seen(number, length, str(fault))
        position, token, against, who = self.choice.of(prompt)
        target = read_target(run, 0, position, token, against)
        closures = {self.expansion.target: closure(self.expansion, run, listed=0)}
        rows: list[Row] = list(self._scores(run, closures))
        if (layers := worst_closure(layer_closures(run))) is not None:
            closures["layers"] = layers
        assumed = assumptions(self.model, run)
        if not all(c.passed for c in closures.values()):
            return Seen(number, length, "", who, assumed, closures=closures)
        rows += self._logits(run, target)
        rows.append((("length",), 0, {"length": float(length)}))
        return Seen(number, length, "", who, assumed, closures=closures, rows=tuple(rows))

    def _logits(self, run: Run, target: Target) -> Iterable[Row]:
        """Sums of logit terms; their sizes without the vocabulary, where it is larger than the stream."""
        values = evaluate(self.expansion, run)
        small = compact(values, target.tokens, self.triangle)
        if small is not None:
            self.triangle, values = small.triangle, Values(self.expansion, run, small.matrices)

        def size(value: Any) -> dict[str, float | None]:
            if small is None:
                return _sizes(sized(value, target))
            same, entries = small.read(value)
            contribution, difference = target.of(entries)
            return _sizes({"norm": frobenius(same), "contribution": contribution, "difference": difference})

        yield ("all",), self.expansion.count, size(values.total())
        orders, compositions = self.expansion.counts_by_order(), self.expansion.counts_by_composition()
        yield from ((("order", k), orders[k], size(v)) for k, v in values.by_order().items())
        yield from ((("composition", k), compositions[k], size(v)) for k, v in values.by_composition().items())
        for degree, sums in by_degree(self.expansion, run, target).items():
            yield ("degree", degree), sums["count"], _sizes(sums)
        for head, value in through_each_head(values):
            if str(head) not in self.counts:  # a number of terms is the same for every prompt
                self.counts[str(head)] = self.expansion.through(head).count
            yield ("head", str(head)), self.counts[str(head)], size(value)

    def _scores(self, run: Run, closures: dict[str, Closure]) -> Iterable[Row]:
        for head, expansion in self.heads.items():
            found = head_scores(run, expansion, listed=0)
            closures[f"scores:{head}"] = found.closure
            for c in (c for c, n in found.counts.items() if n):
                yield ("scores", head, c), found.counts[c], {
                    "centred_share": found.centred_shares[c], "share": found.shares[c], "norm": found.norms[c],
                    "centred_norm": found.centred_norms[c],
                }  # fmt: skip


def _sizes(size: Mapping[str, Any]) -> dict[str, float | None]:
    """Norm and contributions, without what is not there."""
    return {name: x for name, x in size.items() if name != "count" and x is not None}


@dataclass(frozen=True, slots=True)
class Far:
    """By what a worker in another process looks at prompts; it keeps what it made of that."""

    model: ModelFile
    choice: Choice
    dtype: str | None


@lru_cache(maxsize=2)
def _look(far: Far) -> Look:
    return Look(far.model.model(), far.choice, far.dtype)


Task = tuple[Look | Far, tuple[Prompt | Seen, ...]]  # what was bad when it was read is passed on, in its place


def look_at(task: Task) -> list[Seen]:
    """What the prompts of a task give, in order."""
    by, prompts = task
    if isinstance(by, Far):
        pin()
        by = _look(by)
    return [one if isinstance(one, Seen) else by.at(one) for one in prompts]
