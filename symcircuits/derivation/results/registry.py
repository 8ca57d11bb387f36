"""The derivations of the book: a name, a chapter and a model each, and what is shown of it.

A path expansion is a row, :func:`expansion`; a result that is not one is a function under :func:`result`, whose steps
are checked like those of a path expansion before anything is printed. The book, its index and the files in
``derivations/`` are made from these entries, in the order of ``CHAPTERS`` and, in a chapter, of the modules of
:mod:`~symcircuits.derivation.results.every`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from symcircuits.core.architecture import transformer
from symcircuits.derivation.claims import Draft
from symcircuits.derivation.frames import Frame, make_frame
from symcircuits.derivation.real_models import RealModel

__all__ = ["CHAPTERS", "Entry", "Result", "expansion", "result"]

CHAPTERS: Final = (
    "The tensor product",
    "Zero and one layer",
    "Heads",
    "Two layers",
    "More layers",
    "Reading circuits",
    "Positions and biases",
    "Norms, MLPs and grouped queries",
    "Nothing held fixed",
    "Interventions",
)

Steps = Callable[[Frame], Iterator[Draft]]
_OF_RESULT = ("given", "conventions", "names_model", "real_model")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A statement about transformer circuits that is not a path expansion, where it comes from, and its steps.

    ``given`` names what is drawn beside the weights: patterns whose rows sum to one, causal ones, narrow heads.
    ``conventions`` stand after those of the model, and one that says what is "held fixed:" takes the place of the
    model's; ``names_model`` says whether one model is meant; ``real_model`` is the one on a run of which claims are
    checked too.
    """

    name: str
    title: str
    statement: str
    section: str
    steps: Steps
    given: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    names_model: bool = True
    real_model: RealModel | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A derivation of the book: its chapter and heading, what its file says of it, for which model it is shown.

    ``options`` are those of ``transformer``; ``result`` is what is shown where that is not a path expansion.
    """

    name: str
    chapter: str
    heading: str
    summary: str
    heads: tuple[int, ...] = (1,)
    target: str = "logits"
    form: str = "enumerated"
    options: Mapping[str, Any] = field(default_factory=dict)
    result: Result | None = None

    def __post_init__(self) -> None:
        if self.chapter not in CHAPTERS:
            raise ValueError(f"unknown chapter {self.chapter!r}: choose one of {', '.join(map(repr, CHAPTERS))}")

    @property
    def frame(self) -> Frame:
        """The frame in which it is shown."""
        return make_frame(transformer(self.heads, **self.options), self.target, self.form)


def expansion(
    name: str, heading: str, summary: str, *, chapter: str, heads: tuple[int, ...], target: str = "logits",
    form: str = "generic", **options: Any,
) -> Entry:  # fmt: skip
    """The path expansion of one model as an entry of the book."""
    return Entry(
        name=name, chapter=chapter, heading=heading, summary=summary, heads=heads, target=target, form=form,
        options=options,
    )  # fmt: skip


def result(
    name: str, title: str, statement: str, section: str, *, chapter: str, heading: str = "", summary: str = "",
    **more: Any,
) -> Callable[[Steps], Entry]:  # fmt: skip
    """The function below gives the steps of a result; ``more`` are the other fields of ``Result`` and ``Entry``.

    The heading in the book, and what its file says of it, are the title where they are not given.
    """

    def entry(steps: Steps) -> Entry:
        steps.__qualname__ = f"{steps.__qualname__}.result.steps"  # where pickle finds it: its name is the entry's
        own = {key: more[key] for key in _OF_RESULT if key in more}
        model = {key: value for key, value in more.items() if key not in own}
        shown = Result(name=name, title=title, statement=statement, section=section, steps=steps, **own)
        return Entry(
            name=name, chapter=chapter, heading=heading or title, summary=summary or f"{title}.", result=shown, **model
        )

    return entry
