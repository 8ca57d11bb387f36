"""Results that are no path expansion: a registry of statements, each with a generator of steps.

A new result is one function under :func:`result`; its steps are checked like those of a path expansion, by a
:class:`~symcircuits.derivation.bench.Bench`, before anything is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from symcircuits.derivation.checks import Draft
from symcircuits.derivation.frames import Frame, make_frame
from symcircuits.derivation.real import Real

__all__ = ["RESULTS", "Result", "frame_of", "result"]

Steps = Callable[[Frame], Iterator[Draft]]


@dataclass(frozen=True)
class Result:
    """A statement about transformer circuits, where it comes from, for which model it is shown, and its steps.

    ``given`` names what is drawn beside the weights: patterns whose rows sum to one, causal ones, narrow heads.
    ``conventions`` stand after those of the model, and one that says what is "held fixed:" takes the place of the
    model's; ``names_model`` says whether one model is meant; ``real`` is the model on which claims are held against a
    run.
    """

    name: str
    title: str
    statement: str
    section: str
    steps: Steps
    heads: tuple[int, ...] = (1,)
    target: str = "logits"
    form: str = "enumerated"
    given: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    names_model: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    real: Real | None = None


RESULTS: dict[str, Result] = {}


def result(name: str, title: str, statement: str, section: str, **rest: Any) -> Callable[[Steps], Steps]:
    """Register the function below as the steps of a result."""

    def register(steps: Steps) -> Steps:
        RESULTS[name] = Result(name, title, statement, section, steps, **rest)
        return steps

    return register


def frame_of(found: Result) -> Frame:
    """The frame in which a result is shown."""
    from symcircuits.core.architecture import transformer

    return make_frame(transformer(found.heads, **found.options), found.target, found.form)
