"""How a language of proofs spells what the claims of a derivation are made of.

The claims are gone through once (:mod:`symcircuits.derivation.printing.statements`); what is written for each node is
taken from a row of this table. Operands come in their own parentheses: no spelling depends on what binds closer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spelling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Signs that stand between operands, and patterns with a place ``{0}``, ``{1}`` for each operand.

    ``matrix`` is the type of a matrix with these rows and columns, ``one`` the identity matrix, whose size is that
    of what it stands beside. Of what acts
    (tensors): ``identity``, ``acts_plus`` (a sum), ``after`` (one after the other), ``acts_scaled``; ``acts_alike``
    states that two do the same. ``numbers_equal`` equates numbers; ``listed`` counts terms, with ``between`` them;
    ``elementary`` is the elementary symmetric polynomial of an order, of numbers of heads.

    The last are None in a language that has none of them. ``sum_over`` and ``acts_over`` are sums, of matrices and of
    what acts, over an index up to a number of heads: without them sums over heads are written out. ``rotary`` is a
    product of queries and keys whose rows a family of matrices turns: without it no claim about them is stated.
    """

    matrix: str
    one: str
    transposed: str
    times: str
    scaled: str
    identity: str
    acts_plus: str
    after: str
    acts_scaled: str
    acts_alike: str
    numbers_equal: str
    listed: str
    between: str
    elementary: str
    sum_over: str | None = None
    acts_over: str | None = None
    rotary: str | None = None

    @staticmethod
    def joined(sign: str, operands: Iterable[str]) -> str:
        """Operands with a sign between them, in parentheses where there are several.

        >>> from symcircuits.derivation.printing.coq import COQ
        >>> COQ.joined(COQ.times, ["t", COQ.transposed.format("W_E")]), COQ.joined(COQ.times, ["t"])
        ('(t *m W_E^T)', 't')
        """
        found = list(operands)
        return found[0] if len(found) == 1 else f"({sign.join(found)})"

    def product(self, factors: Iterable[str]) -> str:
        """A product of matrices."""
        return self.joined(self.times, factors)
