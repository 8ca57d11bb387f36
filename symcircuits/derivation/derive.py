"""Derivations: sequences of steps, each a claim between objects, a reason and a check that passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symcircuits.core.architecture import Architecture, Described, architecture_of
from symcircuits.core.notation import ROW, Notation, as_notation
from symcircuits.core.seam import higher
from symcircuits.core.text import amount, whole
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import Check, Claim, DerivationError, Draft, Step
from symcircuits.derivation.frames import Frame, make_frame
from symcircuits.derivation.result_checker import ResultChecker
from symcircuits.derivation.results.every import entries, registered
from symcircuits.derivation.results.registry import Result
from symcircuits.derivation.steps import path_expansion
from symcircuits.derivation.symbols_used import symbols_used
from symcircuits.work.files import user_path

__all__ = [
    "Check",
    "Claim",
    "Derivation",
    "DerivationError",
    "Draft",
    "Result",
    "Step",
    "derive",
    "theorem",
    "theorems",
]


@dataclass(frozen=True, slots=True)
class Derivation:
    """A checked derivation; made by :func:`derive`, or by :func:`theorem` for a result that is not a path expansion.

    >>> from symcircuits.core.architecture import attention_only
    >>> derivation = derive(attention_only((1,)), "stream")
    >>> [line.strip() for line in derivation.text().splitlines() if line.startswith("  X1 =")]
    ['X1 = X0 + A[L0H0] @ X0 @ W_OV[L0H0].T']
    """

    frame: Frame
    steps: tuple[Step, ...]
    result: Result | None = None
    notation: Notation = ROW

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

    @property
    def statement(self) -> str:
        """What is shown, in a sentence."""
        return higher(str, "Derivation.statement")(self)

    @property
    def speaks_of_scores(self) -> bool:
        """Whether its formulas contain scores or their scale."""
        return "scale" in symbols_used(self.steps)[0]

    def written(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> Derivation:
        """The same derivation, printed in another notation, with other names for symbols.

        ``notation`` is ``"row"``, ``"paper"`` or ``"transformerlens"``, or a
        :class:`~symcircuits.core.notation.Notation`; ValueError on an unknown one, and on a name that would look like
        something else in the formulas.

        >>> from symcircuits.core.architecture import attention_only
        >>> paper = derive(attention_only((1,)), "stream").written("paper", {"A": "P"})
        >>> [line.strip() for line in paper.text().splitlines() if line.startswith("  X1 =")]
        ['X1 = (Id (x) W_E) t + (P[L0H0] (x) W_OV[L0H0] @ W_E) t']
        """
        chosen = as_notation(notation, symbols)
        return replace(self, notation=chosen.fitting(*symbols_used(self.steps)) if chosen.symbols else chosen)

    @property
    def section(self) -> str:
        """The section of the paper."""
        return higher(str, "Derivation.section")(self)

    def latex(self, standalone: bool = False) -> str:
        """LaTeX: a fragment, or a document that compiles with pdflatex."""
        return higher(str, "Derivation.latex")(self, standalone)

    def paper(self, width: str | float = "article", label: str = "eq", standalone: bool = False) -> str:
        r"""LaTeX for a paper (amsmath, amssymb): numbered and labelled equations, what was checked in one sentence.

        ``width`` of the text: ``"article"``, ``"neurips"``, ``"two-column"`` or a number of pt; no equation is wider.
        The first equation of step 3 has the label ``label:3.1``. ``standalone``: a document of that width. ValueError
        on an invalid width or label.

        >>> import symcircuits as sc
        >>> found = sc.derive(sc.attention_only((2, 2)), form="generic").paper("two-column", label="eq:path")
        >>> r"\label{eq:path:3.1}" in found, "Checked:" in found
        (True, False)
        """
        return higher(str, "Derivation.paper")(self, width, label, standalone)

    def text(self) -> str:
        """Text in 80 columns, in text notation."""
        return higher(str, "Derivation.text")(self)

    def json(self) -> dict[str, Any]:
        """A dictionary for JSON, ``"schema": "symcircuits.derivation/1"``."""
        return higher(dict, "Derivation.json")(self)

    def certificate(self) -> dict[str, Any]:
        """Every claim as an expression tree, a draw of all matrices, values: ``"schema": "symcircuits.certificate/1"``.

        ``derivations/recheck.py``, which imports nothing of symcircuits, evaluates every claim again.

        >>> from symcircuits.core.architecture import attention_only
        >>> derive(attention_only((1,)), "stream").certificate()["claims"][2]["sides"][1][:2]
        ['sum', 'X_0']
        """
        return higher(dict, "Derivation.certificate")(self)

    def save_certificate(self, path: str | Path) -> Path:
        """Write the certificate as JSON. OSError if the path cannot be written."""
        return higher(Path, "Derivation.save_certificate")(self, user_path(path))

    def save(self, path: str | Path) -> Path:
        """Write the derivation; the suffix chooses: ``.tex`` (a document), ``.txt``, ``.json``, as in ``FORMATS``.

        The file is replaced only when the new one is complete. OSError if the path cannot be written.
        """
        return higher(Path, "Derivation.save")(self, user_path(path))

    def _repr_html_(self) -> str:
        return higher(str, "Derivation.html")(self)

    def __repr__(self) -> str:
        if self.result is not None:
            return f"<Derivation of {self.result.name}: {amount(len(self.steps), 'step')}, all checked>"
        return f"<Derivation of {self.target}, {self.form} form: {amount(len(self.steps), 'step')}, all checked>"


def derive(
    subject: Architecture | Described,
    target: str = "logits",
    form: str = "enumerated",
    *,
    seed: int = 0,
    notation: str | Notation = ROW,
    symbols: Mapping[str, str] | None = None,
) -> Derivation:
    """Derive the sum over paths of a target, every step checked before anything is printed.

    ``target``: ``"logits"``, ``"stream"`` or ``"scores:L1H0"``. ``form``: ``"enumerated"`` (every head by its
    label, every term listed) or ``"generic"`` (sums over heads ``h_1``, ``h_2``, ... with symbolic head counts).
    ``notation``: ``"row"``, ``"paper"`` or ``"transformerlens"``; ``symbols``: other names, e.g. ``{"W_OV": "M"}``.
    Norms are frozen, and ``Y[L0]`` is the output of one; outputs of MLPs are sources; keys and values that heads share
    belong to the group, ``G(h_1)``. If numbers of heads are symbols, the form is ``"generic"``.
    Raises ValueError if there is too much to print, :class:`DerivationError` if a step fails its check.
    Source: paper, "The Path Expansion Trick", "Path Expansion of Logits", "... of Attention Scores QK Circuit".

    >>> from symcircuits.core.architecture import attention_only
    >>> derivation = derive(attention_only((3, 3)), "scores:L1H0", form="generic")
    >>> derivation.ok, [step.kind for step in derivation.steps][3:6]
    (True, ['substitution', 'distributing', 'collecting by composition type'])
    """
    architecture = architecture_of("derive", subject, symbolic=True)
    chosen = as_notation(notation, symbols)  # a bad name raises an error before the work
    if architecture.attachments:
        one = architecture.attachments[0]
        raise ValueError(f"derive takes no models with attachments ({one}); expand and verify do")
    frame = make_frame(architecture, target, form)
    checker = ClaimChecker(frame, whole("seed", seed, 0))
    steps = tuple(checker.check(draft, n) for n, draft in enumerate(path_expansion(frame), 1))
    return Derivation(frame, steps).written(chosen)


def theorem(
    name: str, *, seed: int = 0, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None
) -> Derivation:
    """A result that is not a path expansion, by its name, every step checked; :func:`theorems` lists the names.

    ``notation`` and ``symbols`` as in :func:`derive`. Raises ValueError on an unknown name, :class:`DerivationError`
    if a step fails its check.

    >>> derivation = theorem("ablation")
    >>> derivation.ok, derivation.steps[2].kind
    (True, 'identity')
    >>> derivation.statement.partition("; ")[0]
    'Removing a head while the patterns are held fixed removes exactly the terms whose path goes through it'
    """
    chosen, found = as_notation(notation, symbols), registered(name)
    assert found.result is not None
    frame, shown = found.frame, found.result
    drafts = tuple(shown.steps(frame))
    checker = ResultChecker(frame, drafts, shown.given, whole("seed", seed, 0), shown.real_model)
    steps = tuple(checker.check(draft, n) for n, draft in enumerate(drafts, 1))
    return Derivation(frame, steps, shown).written(chosen)


def theorems() -> tuple[str, ...]:
    """The names that :func:`theorem` knows.

    >>> "virtual_weights" in theorems()
    True
    """
    return tuple(sorted(entry.name for entry in entries() if entry.result is not None))
