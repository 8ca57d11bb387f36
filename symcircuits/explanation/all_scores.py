"""The scores of every head by composition type, some heads of a layer at a time, by any workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from symcircuits.core.architecture import Head
from symcircuits.core.expansion import expand
from symcircuits.core.programs import made_once
from symcircuits.explanation.scores import HeadScores, scores_of_heads
from symcircuits.loaders.by_path import RunFile
from symcircuits.model import Run
from symcircuits.work.progress import OnProgress
from symcircuits.work.workers import WorkerPool, pin

__all__ = ["all_head_scores"]

_EACH = 4  # heads of a layer that are sent together: what they read of the stream is walked once

_Task = tuple[Run | RunFile, tuple[Head, ...], tuple[int, ...]]


def all_head_scores(
    run: Run,
    sent: RunFile | None,
    queries: Sequence[int],
    crew: WorkerPool,
    progress: OnProgress,
) -> dict[str, HeadScores]:
    """Of each head, in order; ``sent`` stands in for the run where workers are in other processes."""
    found: dict[str, HeadScores] = {}
    heads = run.model.architecture.all_heads
    tasks = [*_tasks(run if sent is None else sent, run, queries)]

    def sends() -> Callable[[_Task], _Task]:
        elsewhere = RunFile.of(run)
        return lambda task: (elsewhere, *task[1:])

    with made_once():  # for workers that are in this thread; others make what a task needs
        for part in crew.results(_scored, tasks, pieces=len(tasks), sent=sends):
            for one in part:
                found[str(heads[len(found)])] = one
                if progress:
                    progress("scores", len(found), len(heads))
    return found


def _tasks(source: Run | RunFile, run: Run, queries: Sequence[int]) -> Iterator[tuple[str, _Task]]:
    for layer in range(run.model.architecture.n_layers):
        heads = run.model.architecture.layer_heads(layer)
        for at in range(0, len(heads), _EACH):
            some = tuple(heads[at : at + _EACH])
            yield f"scores of {some[0]} to {some[-1]}", (source, some, tuple(queries))


def _scored(task: _Task) -> list[HeadScores]:
    source, heads, queries = task
    if isinstance(source, RunFile):
        pin()
        source = source.run()
    with made_once():
        expansions = [expand(source.model.architecture, f"scores:{head}") for head in heads]
    return scores_of_heads(source, expansions, queries)
