"""What ALiBi adds to the scores of a head: not a path term, for it depends on positions alone."""

from __future__ import annotations

from dataclasses import dataclass

from symcircuits.arrays.rings import Array
from symcircuits.derivation.nodes import Sign, Special, node
from symcircuits.derivation.values import Bindings, Instance

__all__ = ["AlibiTerm"]


@node()
@dataclass(frozen=True, slots=True, repr=False)
class AlibiTerm(Special):
    """``alibi[L1H0]``, ``-m |i - j|`` for query i and key j, with m the slope of the head; it goes through no path.

    >>> AlibiTerm("L1H0")
    <AlibiTerm alibi[L1H0]>
    """

    head: str
    letter = True
    pathless = True

    def written(self) -> tuple[Sign, ...]:
        latex = rf"{{\mathrm{{alibi}}^{{\mathrm{{{self.head}}}}}}}"
        return (Sign(f"alibi[{self.head}]", latex),)

    def value(self, at: Instance, bindings: Bindings) -> Array:
        return at.alibi(self.head)
