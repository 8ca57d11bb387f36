"""What a result is shown as, in a terminal and in a notebook."""

from __future__ import annotations

from symcircuits.core.seam import higher

__all__ = ["Shown"]


class Shown:
    """A result that is shown as titled tables, which its row ``parts`` in :mod:`symcircuits.core.seam` makes of it.

    The same tables are text (``text()``, and what Python prints) and HTML (what a notebook shows).
    """

    __slots__ = ()

    def text(self, width: int = 100) -> str:
        """The result as tables that fit a terminal of that width."""
        return self._text(width)

    def _text(self, width: int, **chosen: object) -> str:
        return higher(str, "Shown.text")(self, width, **chosen)

    def _repr_html_(self) -> str:
        return higher(str, "Shown.html")(self)

    def __repr__(self) -> str:
        return self.text()
