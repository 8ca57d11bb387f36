"""Token and position embedding as one source: how they are divided between the two is not a property of the model.

Adding a vector to every token embedding and subtracting it from every position changes nothing that the model
computes. So terms of either depend on how the weights are written, and a term of both does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from symcircuits.core.expansion import Expansion, Term
from symcircuits.model import Run
from symcircuits.model.transformer import Arrays
from symcircuits.values.evaluate import Values

__all__ = ["TOGETHER", "OneOrTwo", "are_apart", "beside", "joined"]

TOGETHER: Final = ("embed", "pos")


def are_apart(expansion: Expansion) -> bool:
    """Whether it has terms from the token embedding and terms from positions.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import expand
    >>> terms = expand(attention_only((2,), "standard"), "logits")
    >>> are_apart(terms), are_apart(terms.from_source("embed"))
    (True, False)
    """
    known = {source.name for source in expansion.sources}  # of the target, for any selection
    return set(TOGETHER) <= known and all(expansion.from_source(name).count for name in TOGETHER)


class OneOrTwo:
    """A term, or two through the same heads that count as one; ``beside`` is that from positions."""

    __slots__ = ()
    term: Term
    beside: Term | None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The one term, or the two."""
        return (self.term,) if self.beside is None else (self.term, self.beside)

    @property
    def label(self) -> str:
        """``embed -> L0H1``; for two ``embed + pos -> L0H1``."""
        both = " + ".join(TOGETHER)
        return self.term.label if self.beside is None else self.term.label.replace(TOGETHER[0], both, 1)

    @property
    def text(self) -> str:
        """The formula; for two, their sum."""
        return " + ".join(term.text for term in self.terms)


def beside(expansion: Expansion, term: Term) -> Term | None:
    """The term from positions through the same heads, for one from the token embedding; else None.

    >>> import symcircuits as sc
    >>> terms = sc.logits(sc.attention_only((2,), "standard"))
    >>> beside(terms, terms[2]).label, beside(terms, terms[3])
    ('pos -> L0H0', None)
    """
    if term.sources != TOGETHER[:1]:
        return None
    tokens, positions = (expansion.from_source(name) for name in TOGETHER)
    return positions[tokens.index(term)]


def joined(values: Values) -> Values:
    """One term for each pair of terms from the token embedding and from positions, with the sum of both values.

    It is the term from the token embedding, with ``X_0 + P`` (over the multiplier of the embedding) in place of X_0.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2,), "standard")).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model), run)
    >>> both = joined(values)
    >>> values.expansion.count, both.expansion.count, bool(abs(both.total() - values.total()).max() < 1e-12)
    (6, 3, True)
    """
    run, names = values.run, [source.name for source in values.expansion.sources]
    assert isinstance(run, Run)
    positions = run.arrays["P"] / run.arrays["m_E"] if "m_E" in run.arrays else run.arrays["P"]
    arrays = Arrays({"X0": run.arrays["X0"] + positions}, {}, run.arrays)
    kept = values.expansion.from_source([name for name in names if name != TOGETHER[1]])
    return type(values)(kept, replace(run, arrays=arrays))
