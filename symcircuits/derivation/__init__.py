"""Derivations: sequences of steps, each a claim between objects, a reason and a check that passed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symcircuits.architecture import Architecture
from symcircuits.derivation.checks import Check, Claim, DerivationError, Draft, Laboratory, Step
from symcircuits.derivation.frames import Frame, make_frame
from symcircuits.derivation.steps import path_expansion

__all__ = ["Check", "Claim", "Derivation", "DerivationError", "Draft", "Step", "derive"]


@dataclass(frozen=True, slots=True)
class Derivation:
    """A checked derivation; made by :func:`derive`.

    >>> from symcircuits.architecture import attention_only
    >>> derivation = derive(attention_only((1,)), "stream")
    >>> [line.strip() for line in derivation.text().splitlines() if line.startswith("  X1 =")]
    ['X1 = X0 + A[L0H0] @ X0 @ W_OV[L0H0].T']
    """

    frame: Frame
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether every step was checked and passed."""
        return bool(self.steps) and all(step.check.passed for step in self.steps)

    @property
    def target(self) -> str:
        """``logits``, ``stream`` or ``scores:L1H0``."""
        return self.frame.target

    @property
    def form(self) -> str:
        """``enumerated`` or ``generic``."""
        return self.frame.form

    def latex(self, standalone: bool = False) -> str:
        """LaTeX: a fragment, or a document that compiles with pdflatex."""
        from symcircuits.render.latex import derivation_latex

        return derivation_latex(self, standalone)

    def text(self) -> str:
        """Text in 80 columns, in text notation."""
        from symcircuits.render.text import derivation_text

        return derivation_text(self)

    def json(self) -> dict[str, Any]:
        """A dictionary for JSON, ``"schema": "symcircuits.derivation/1"``."""
        from symcircuits.render.json_ import derivation_json

        return derivation_json(self)

    def save(self, path: str | Path) -> Path:
        """Write the derivation; the suffix chooses: ``.tex`` (a document), ``.txt``, ``.json``.

        The file is replaced only when the new one is complete. OSError names a path that cannot be written.
        """
        from symcircuits.render import save_derivation

        return save_derivation(self, Path(path))

    def _repr_latex_(self) -> str:
        from symcircuits.render.latex import derivation_display

        return derivation_display(self)

    def __repr__(self) -> str:
        return f"<Derivation of {self.target}, {self.form} form: {len(self.steps)} steps, all checked>"


def derive(
    architecture: Architecture, target: str = "logits", form: str = "enumerated", *, seed: int = 0
) -> Derivation:
    """Derive the sum over paths of a target, every step checked before anything is printed.

    ``target``: ``"logits"``, ``"stream"`` or ``"scores:L1H0"``. ``form``: ``"enumerated"`` (every head by its
    label, every term listed) or ``"generic"`` (sums over heads ``h_1``, ``h_2``, ... with symbolic head counts).
    Raises ValueError where there is too much to print, :class:`DerivationError` where a step does not hold.
    Source: paper, "The Path Expansion Trick", "Path Expansion of Logits", "... of Attention Scores QK Circuit".

    >>> from symcircuits.architecture import attention_only
    >>> derivation = derive(attention_only((3, 3)), "scores:L1H0", form="generic")
    >>> derivation.ok, [step.kind for step in derivation.steps][3:6]
    (True, ['substitution', 'distributing', 'collecting by composition type'])
    """
    frame = make_frame(architecture, target, form)
    laboratory = Laboratory(frame, seed)
    steps = tuple(laboratory.check(draft, n) for n, draft in enumerate(path_expansion(frame), 1))
    return Derivation(frame, steps)
