"""What a derivation consists of: claims, steps before and after their check, and what was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symcircuits.core.notation import ROW, Notation, as_notation
from symcircuits.core.seam import higher
from symcircuits.derivation.nodes import Expr, cut

__all__ = ["HOW", "KINDS", "Check", "Claim", "DerivationError", "Draft", "Step"]

KINDS = ("definition", "substitution", "distributing", "mixed product", "collecting by composition type", "counting")
HOW = ("values", "indices", "count", "exact", "model")


class DerivationError(AssertionError):
    """A step whose check failed; the message names the step and what differed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``sides[0] = sides[1] = ...``; all are expressions. The relation may be ``!=`` or ``<=`` too."""

    sides: tuple[Expr, ...]
    relation: str = "="

    @property
    def lhs(self) -> Expr:
        """The left-hand side."""
        return self.sides[0]

    @property
    def rhs(self) -> Expr:
        """The last right-hand side."""
        return self.sides[-1]

    @property
    def text(self) -> str:
        """The claim on one line, in text notation."""
        return f" {self.relation} ".join(map(higher(str, "Expr.text"), self.sides))

    def latex(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> str:
        r"""The claim on one line of LaTeX (math mode, no delimiters); ``symbols``: other names, as in ``derive``.

        >>> import symcircuits as sc
        >>> print(sc.derive(sc.attention_only((1,))).steps[2].claim.latex())
        \mathrm{logits} = X_{1}\,W_U^{\mathsf{T}}
        """
        return higher(str, "Claim.latex")(self, as_notation(notation, symbols))

    def __repr__(self) -> str:
        return f"<Claim {cut(self.text)}>"


@dataclass(frozen=True, slots=True)
class Draft:
    """A step before its check.

    ``how`` is what is evaluated: ``values`` (matrices over the prime field), ``indices`` (a rule of the tensor
    product, by its definition), ``count``, ``exact`` (by SymPy) or ``model`` (on a real run). ``complete`` says that
    the right-hand side lists every term of the expansion, which is then compared term by term; ``softmax`` that it
    marks those that softmax does not see.
    """

    kind: str
    claims: tuple[Claim, ...]
    reason: str
    how: str = "values"
    complete: bool = False
    softmax: bool = False

    def __repr__(self) -> str:
        return f"<Draft ({self.kind}): {cut(self.claims[-1].text, 80) if self.claims else 'no claim'}>"


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked in a step, and how: the outcome is always passed, because nothing else becomes a step."""

    how: str
    claims: int
    k: int = 0
    trials: int = 0
    prime: int = 0
    seed: int = 0
    degree: int = 0
    head_counts: tuple[tuple[int, ...], ...] = ()
    also: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    passed: bool = True

    @property
    def bound(self) -> float:
        """The largest probability with which a wrong claim passes; 0 where nothing is drawn at random."""
        return float(self.degree / self.prime) ** self.trials if self.prime else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One checked step of a derivation."""

    number: int
    kind: str
    claims: tuple[Claim, ...]
    reason: str
    check: Check

    @property
    def claim(self) -> Claim:
        """The (last) claim."""
        return self.claims[-1]

    def latex(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> str:
        """The formulas of the step as displays of LaTeX (amsmath, xcolor), broken to fit a page of 160 mm."""
        return higher(str, "Step.latex")(self, as_notation(notation, symbols))

    def __repr__(self) -> str:
        outcome = "checked" if self.check.passed else "NOT checked"
        return f"<Step {self.number} ({self.kind}): {cut(self.claim.text, 60)}, {outcome}>"
